'use strict';

// node --require forkless/install: child_process on forkless from the start, in every thread.

try {
  require('./install.js').install();
} catch (error) {
  // The program does not need forkless: with --no-addons or the permission model, Node loads no addon.
  if (error.code !== 'ERR_DLOPEN_DISABLED') throw error;
  process.emitWarning(`child_process stays Node's: ${error.message} (--allow-addons permits them)`, 'ForklessWarning');
}
