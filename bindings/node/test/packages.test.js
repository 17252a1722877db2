'use strict';

// Packages that launch programs, on Node's child_process and on forkless: the answers must be equal.

const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const { compare } = require('./compare.js');

const directory = path.join(__dirname, 'packages');

test('packages of others answer as without forkless', async (all) => {
  if (!fs.existsSync(path.join(directory, 'node_modules', 'execa'))) {
    return console.log('SKIPPED: packages of others, because npm has not installed them');
  }
  return compare(all, path.join(directory, 'play.mjs'));
});
