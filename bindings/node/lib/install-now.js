'use strict';

// node --require forkless/install: child_process on forkless from the start, in every thread.

require('./install.js').install();
