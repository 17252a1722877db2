'use strict';

// Loads the addon. It needs no rebuild for another version of Node: its interface is Node-API.

const path = require('node:path');

const NAME = `linux-${process.arch}`;

function load() {
  if (process.platform !== 'linux') throw new Error(`forkless needs Linux, not ${process.platform}`);
  const file = process.env.FORKLESS_NODE_ADDON || path.join(__dirname, '..', 'prebuilds', NAME, 'forkless.node');
  try {
    return require(file);
  } catch (error) {
    error.message = `the addon of forkless for ${NAME} cannot be loaded: ${error.message}`;
    throw error;
  }
}

module.exports = load();
