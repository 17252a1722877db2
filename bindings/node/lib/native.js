'use strict';

// Loads the addon. It needs no rebuild for another version of Node: its interface is Node-API.

const fs = require('node:fs');
const path = require('node:path');

const NAME = `linux-${process.arch}`;

// A build in a checkout is in this package; for users, npm installs the package of their platform beside it.
function addon() {
  const built = path.join(__dirname, '..', 'prebuilds', NAME, 'forkless.node');
  return process.env.FORKLESS_NODE_ADDON || (fs.existsSync(built) ? built : `forkless-${NAME}-gnu`);
}

function load() {
  if (process.platform !== 'linux') throw new Error(`forkless needs Linux, not ${process.platform}`);
  const file = addon();
  try {
    return require(file);
  } catch (error) {
    const missing = error.code === 'MODULE_NOT_FOUND' && !path.isAbsolute(file);
    const why = missing ? `the package ${file} is missing; npm installs it, except with --omit=optional` : error.message;
    error.message = `the addon of forkless for ${NAME} cannot be loaded: ${why}`;
    throw error;
  }
}

module.exports = load();
