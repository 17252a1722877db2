'use strict';

// The events of a child come in the orders of Node's own child_process: code that reads its output at 'exit' must find it.

const assert = require('node:assert');
const { spawnSync } = require('node:child_process');
const path = require('node:path');
const { test } = require('node:test');
const { play } = require('./compare.js');

const player = path.join(__dirname, 'orders.js');
// Both have rare orders, which come by chance.
const RARE = 0.25;
// So a difference counts only if it comes in each of so many rounds.
const ROUNDS = 3;

// What is different in one round, by case.
function differences() {
  const [stock, ours] = ['stock', 'forkless'].map((how) => play(player, how));
  assert.ok(stock.size >= 20);
  const found = new Map([...stock.keys()].map((name) => [name, undefined]));
  for (const [name, expected] of stock) {
    const own = ours.get(name);
    for (const [one, other, whose] of [[own, expected, 'forkless'], [expected, own, 'Node']]) {
      for (const [order, share] of Object.entries(one)) {
        if (share >= RARE && !(order in other)) found.set(name, `only ${whose}, ${share}: ${order}\n${JSON.stringify([expected, own])}`);
      }
    }
  }
  return found;
}

test('events come in the same orders', async (all) => {
  let left = differences();
  const isSame = () => [...left.values()].every((one) => one === undefined);
  for (let round = 1; round < ROUNDS && !isSame(); round++) {
    const now = differences();
    left = new Map([...left].map(([name, one]) => [name, one && now.get(name)]));
  }
  for (const [name, difference] of left) await all.test(name, () => assert.strictEqual(difference, undefined, difference));
});

test('what a child has written is there at its exit', () => {
  const body = `
    const { spawn } = require('node:child_process');
    require(${JSON.stringify(path.join(__dirname, '..'))}).install();
    let [left, early] = [300, 0];
    (function next() {
      if (left-- === 0) return console.log(early);
      const child = spawn('sh', ['-c', 'echo x >&2; exit 1']);
      let text = '';
      child.stderr.on('data', (data) => (text += data));
      child.on('exit', () => (early += text === 'x\\n' ? 0 : 1));
      child.on('close', next);
    })();`;
  const { stdout, stderr } = spawnSync(process.execPath, ['-e', body], { encoding: 'utf8' });
  assert.strictEqual(stdout, '0\n', stderr);
});

test('a handle that is closed reports no end, and one without arguments or variables is launched', () => {
  const body = (install) => `
    const { ChildProcess, spawn } = require('node:child_process');
    if (${install}) require(${JSON.stringify(path.join(__dirname, '..'))}).install();
    const closed = spawn('sleep', ['0.05'], { stdio: 'ignore' });
    closed.on('exit', () => console.log('closed: exit'));
    closed._handle.close(() => console.log('closed: closed'));
    for (const options of [{ file: '/bin/true', stdio: 'ignore', envPairs: ['A=1'] }, { file: '/bin/true', args: ['true'], stdio: 'ignore' }, { file: '/bin/true', args: ['true'], envPairs: null, stdio: 'ignore' }]) {
      const child = new ChildProcess();
      setTimeout(() => child.on('exit', (...how) => console.log(how)).spawn(options), 100);
    }
    setTimeout(() => console.log('end'), 300);`;
  const [stock, ours] = [false, true].map((install) => spawnSync(process.execPath, ['-e', body(install)], { encoding: 'utf8' }));
  assert.deepStrictEqual([ours.stdout, ours.status], [stock.stdout, stock.status], ours.stderr);
});

test('without addons child_process stays as it is', () => {
  const install = path.join(__dirname, '..', 'lib', 'install-now.js');
  const run = (...args) => spawnSync(process.execPath, [...args, '-r', install, '-e', 'console.log("runs")'], { encoding: 'utf8' });
  const { stdout, stderr, status } = run('--no-addons');
  assert.deepStrictEqual([stdout, status], ['runs\n', 0], stderr);
  assert.match(stderr, /child_process stays Node's/);
});
