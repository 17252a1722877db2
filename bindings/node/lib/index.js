'use strict';

const { Child, Prepared, prepare, spawn } = require('./child.js');
const { ExitError, LaunchError } = require('./error.js');
const { install, uninstall } = require('./install.js');
const { run } = require('./run.js');

module.exports = { Child, ExitError, LaunchError, Prepared, install, prepare, run, spawn, uninstall };
