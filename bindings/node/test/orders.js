'use strict';

// The orders in which the events of a child come: node orders.js (stock|forkless). Each case is played many times, and the answer says
// how often each order came.

const cp = require('node:child_process');

const TIMES = Number(process.env.FORKLESS_ORDERS ?? 200);
// A child that is a Node takes longer.
const NODES = Math.ceil(TIMES / 10);

// Records the events of a child and its streams until it is closed, or has failed. Which of two streams ends first is chance, so
// each has an order of its own, with the events of the child.
function follow(child) {
  return new Promise((resolve) => {
    const seen = [];
    const note = (name) => {
      // Data comes in any number of pieces.
      if (seen.at(-1) !== name) seen.push(name);
    };
    for (const name of ['spawn', 'disconnect', 'message', 'error', 'exit', 'close']) child.on(name, () => note(name));
    for (const [name, stream] of [['out', child.stdout], ['err', child.stderr], ['in', child.stdin]]) {
      if (!stream) continue;
      stream.on('error', () => {});
      if (name !== 'in') stream.on('data', () => note(`${name}.data`)).on('end', () => note(`${name}.end`));
      stream.on('close', () => note(`${name}.close`));
    }
    const orders = () => resolve(['out', 'err', 'in'].map((stream) => seen.filter((name) => !name.includes('.') || name.startsWith(`${stream}.`)).join(' ')));
    child.on('close', () => setImmediate(orders));
    child.on('error', () => setTimeout(orders, 5));
  });
}

const cases = {};

// Every combination of streams, with a child that writes to both and fails, and one that writes nothing.
for (const stdin of ['pipe', 'ignore']) {
  for (const stdout of ['pipe', 'ignore']) {
    for (const stderr of ['pipe', 'ignore']) {
      const stdio = [stdin, stdout, stderr];
      cases[`writes ${stdio}`] = [TIMES, () => cp.spawn('sh', ['-c', 'echo a; echo b >&2; exit 3'], { stdio })];
      cases[`silent ${stdio}`] = [TIMES, () => cp.spawn('true', { stdio })];
    }
  }
}
Object.assign(cases, {
  'much output': [NODES, () => cp.spawn('head', ['-c', '200000', '/dev/zero'])],
  'a signal': [TIMES, () => cp.spawn('sh', ['-c', 'echo a; kill -9 $$'])],
  'a line': [TIMES, () => cp.exec('ls /')],
  'a line for the shell': [TIMES, () => cp.exec('echo a; exit 2')],
  'no program': [TIMES, () => cp.spawn('no-such-program-xyz')],
  'another reads on': [NODES, () => cp.spawn('sh', ['-c', 'sleep 0.03 & echo a'])],
  'a message': [NODES, () => cp.spawn(process.execPath, ['-e', 'process.send(1, () => process.disconnect()); console.log(1)'], { stdio: ['ignore', 'pipe', 'pipe', 'ipc'] })],
});

// Several children, and what else the loop does: which comes first?
async function several() {
  // Not in a callback of the children before: libuv looks for ended children once for each SIGCHLD, also for those of earlier ones.
  await new Promise((resolve) => setTimeout(resolve));
  const seen = [];
  const children = [1, 2, 3].map((number) => {
    const child = cp.spawn('true', { stdio: 'ignore' });
    child.on('exit', () => seen.push(number));
    return new Promise((resolve) => child.on('close', resolve));
  });
  // All of them end before the loop looks.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 60);
  setImmediate(() => seen.push('immediate'));
  await Promise.all(children);
  return [seen.join(' ')];
}

async function main() {
  if (process.argv[2] === 'forkless' && !require('..').install()) throw new Error('forkless cannot be installed');
  const show = (name, answer) => process.stdout.write(`${JSON.stringify({ name, answer })}\n`);
  const count = async (times, play) => {
    const counts = {};
    for (let n = 0; n < times; n++) {
      for (const order of await play()) counts[order] = (counts[order] ?? 0) + 1 / times;
    }
    return counts;
  };
  for (const [name, [times, start]] of Object.entries(cases)) show(name, await count(times, () => follow(start())));
  show('several children', await count(NODES, several));
}

main();
