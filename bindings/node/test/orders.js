'use strict';

// The orders in which the events of a child come: node orders.js (stock|forkless) (blocked|free). Each case is played many times, and
// the answer says how often each order came.
//
// "blocked": the loop stands still until the child has ended. So all events are there when it looks, and their order is no chance.
// "free": the events come as they do.

const cp = require('node:child_process');
const fs = require('node:fs');

const isBlocked = process.argv[3] === 'blocked';
const TIMES = isBlocked ? 10 : 100;
// A child that is a Node takes longer.
const NODES = 10;

function sleep(milliseconds) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
}

// The first thread is a zombie before the others have ended.
function hasEnded(pid) {
  const stat = fs.readFileSync(`/proc/${pid}/stat`, 'latin1');
  return stat[stat.lastIndexOf(')') + 2] === 'Z' && fs.readdirSync(`/proc/${pid}/task`).length === 1;
}

// Stands still until the child is a zombie, and its SIGCHLD has come.
function block(child) {
  if (child.pid === undefined) return child;
  for (let left = 10_000; !hasEnded(child.pid); left--) {
    if (left === 0) throw new Error(`process ${child.pid} does not end`);
    sleep(1);
  }
  sleep(2);
  return child;
}

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
  // Several reads, but no more than a pair of sockets holds.
  'much output': [NODES, () => cp.spawn('head', ['-c', '100000', '/dev/zero'])],
  'a signal': [TIMES, () => cp.spawn('sh', ['-c', 'echo a; kill -9 $$'])],
  'a line': [TIMES, () => cp.exec('ls /')],
  'a line for the shell': [TIMES, () => cp.exec('echo a; exit 2')],
  'no program': [TIMES, () => cp.spawn('no-such-program-xyz')],
  'another writes on': [NODES, () => {
    const child = cp.spawn('sh', ['-c', 'sleep 600 & echo a'], { detached: true, stdio: ['ignore', 'pipe', 'ignore'] });
    return child.on('exit', () => setTimeout(() => process.kill(-child.pid), 5));
  }],
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
    return { child, closed: new Promise((resolve) => child.on('close', resolve)) };
  });
  // All of them end before the loop looks.
  children.forEach(({ child }) => block(child));
  setImmediate(() => seen.push('immediate'));
  await Promise.all(children.map(({ closed }) => closed));
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
  for (const [name, [times, start]] of Object.entries(cases)) {
    show(name, await count(times, () => follow(isBlocked ? block(start()) : start())));
  }
  show('several children', await count(NODES, several));
}

main();
