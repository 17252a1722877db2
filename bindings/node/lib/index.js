'use strict';

const { Cgroup } = require('./cgroup.js');
const { Child, Prepared, prepare, spawn } = require('./child.js');
const { ExitError, LaunchError } = require('./error.js');
const { install, uninstall } = require('./install.js');
const { lines, run, runPipeline } = require('./run.js');
const { Sandbox } = require('./sandbox.js');
const { $ } = require('./template.js');

module.exports = { $, Cgroup, Child, ExitError, LaunchError, Prepared, Sandbox, install, lines, prepare, run, runPipeline, spawn, uninstall };
