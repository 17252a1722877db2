'use strict';

// Lines for /bin/sh and for bash on Node's child_process and on forkless, which runs many of them without the shell: the answers must be
// equal.

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

const bash = ['/bin/bash', '/usr/bin/bash'].find((file) => fs.existsSync(file));
// Otherwise bash may read its files for interactive shells.
process.env.SHLVL = '1';

test('lines for bash answer as without forkless', (all) => (bash ? compare(all, player, undefined, bash) : console.log('SKIPPED: lines for bash, because there is none')));

test('lines that need no bash run without it', () => {
  if (!bash) return console.log('SKIPPED: lines without bash, because there is none');
  const seen = play(player, 'direct', bash);
  // bash waits for programs with redirections.
  for (const [name, [isDirect, expected]] of seen) assert.ok(expected || !isDirect, name);
  assert.ok([...seen.values()].filter(([isDirect]) => isDirect).length >= 30, JSON.stringify([...seen]));
});
