'use strict';

// Lines for /bin/sh on Node's child_process and on forkless, which runs many of them without the shell: the answers must be equal.

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const { compare, play } = require('./compare.js');

const player = path.join(__dirname, 'lines.js');

test('lines answer as without forkless', (all) => compare(all, player));

test('lines that need no shell run without it', () => {
  if (path.basename(fs.realpathSync('/bin/sh')) !== 'dash') return console.log('SKIPPED: lines without the shell, because /bin/sh is not dash');
  const seen = play(player, 'direct');
  assert.ok(seen.size >= 60, `${seen.size}`);
  for (const [name, [isDirect, expected]] of seen) assert.strictEqual(isDirect, expected, name);
});
