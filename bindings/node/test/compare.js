'use strict';

// Plays a table of cases in two processes, without and with forkless under child_process, and compares the answers.

const assert = require('node:assert');
const { spawnSync } = require('node:child_process');

function play(file, how, ...more) {
  const { stdout, stderr, status, signal } = spawnSync(process.execPath, [file, how, ...more], {
    encoding: 'utf8',
    maxBuffer: 1 << 28,
    // Far more than all cases take: one that waits for what never comes must fail.
    timeout: 300_000,
    killSignal: 'SIGKILL',
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  assert.deepStrictEqual([status, signal], [0, null], stderr);
  const lines = stdout.split('\n').filter(Boolean).map((line) => JSON.parse(line));
  return new Map(lines.map(({ name, answer }) => [name, answer]));
}

/** Makes a subtest of each case. `names`: the cases that must have been played; without it, any. `more`: arguments for the player. */
async function compare(all, file, names, ...more) {
  const [stock, ours] = ['stock', 'forkless'].map((how) => play(file, how, ...more));
  if (names) assert.deepStrictEqual([...stock.keys()], names, 'a case was not played');
  assert.ok(stock.size > 0);
  assert.deepStrictEqual([...ours.keys()], [...stock.keys()]);
  for (const [name, expected] of stock) {
    await all.test(name, () => {
      assert.strictEqual(expected?.thrown, undefined, 'the case does not work on Node itself');
      if (typeof expected === 'string' && expected.startsWith('SKIPPED')) console.log(expected);
      assert.deepStrictEqual(ours.get(name), expected);
    });
  }
}

module.exports = { compare, play };
