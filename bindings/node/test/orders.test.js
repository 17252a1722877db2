'use strict';

// The events of a child come in the orders of Node's own child_process: code that reads its output at 'exit' must find it.

const assert = require('node:assert');
const { spawnSync } = require('node:child_process');
const path = require('node:path');
const { test } = require('node:test');
const { play } = require('./compare.js');

const player = path.join(__dirname, 'orders.js');
// By these lines a shell is spared, so EOF comes a turn of the loop before the end also where the loop stood still.
const WITHOUT_SHELL = ['a line'];

// The order that came most often, of each stream.
function usual(orders) {
  const best = {};
  for (const [order, share] of Object.entries(orders)) {
    const stream = order.match(/(\w+)\./)?.[1] ?? '';
    if (!(best[stream]?.share > share)) best[stream] = { order, share };
  }
  return Object.values(best).map(({ order }) => order).sort();
}

test('events that are there at once come in the order of Node', async (all) => {
  const [stock, ours] = ['stock', 'forkless'].map((how) => play(player, how, 'blocked'));
  assert.ok(stock.size >= 20);
  for (const [name, expected] of stock) {
    if (WITHOUT_SHELL.includes(name)) continue;
    await all.test(name, () => assert.deepStrictEqual(usual(ours.get(name)), usual(expected)));
  }
});

// What always comes first.
const RULES = ['out', 'err', 'in']
  .flatMap((stream) => [['data', 'end'], ['end', 'close']].map((pair) => pair.map((event) => `${stream}.${event}`)))
  .concat([['out.data', 'exit'], ['err.data', 'exit'], ['exit', 'close'], ['out.end', 'close'], ['err.end', 'close']]);
// Node has rare orders, as when a stream is read in two turns.
const RARE = 0.25;

function broken(order) {
  const events = order.split(' ');
  return RULES.filter(([first, then]) => {
    const [at, after] = [events.lastIndexOf(first), events.indexOf(then)];
    return at >= 0 && after >= 0 && at > after;
  });
}

for (const how of ['stock', 'forkless']) {
  test(`events come in a good order: ${how}`, async (all) => {
    for (const [name, orders] of play(player, how, 'free')) {
      await all.test(name, () => {
        const bad = Object.entries(orders).filter(([order, share]) => share >= RARE && broken(order).length > 0);
        assert.deepStrictEqual(bad, []);
      });
    }
  });
}

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
