// The Node engine of `forkless bench`: child_process, also on the package forkless. The protocol is in ../README.md.
'use strict';

const fs = require('node:fs');
const { spawn, spawnSync } = require('node:child_process');
const { once } = require('node:events');
const { Worker, isMainThread, parentPort } = require('node:worker_threads');

const [way, program, ...args] = process.argv.slice(2);
const ways = { spawn: byEvents, spawnSync: atOnce, 'forkless-spawn': byEvents, 'forkless-spawnSync': atOnce };
// Node has made 3 and 4 close-on-exec, as all that it was started with.
let options = { stdio: 'inherit' };
const memory = []; // kept until the end
let workers = []; // that launch at once; none: the main thread launches
const now = () => process.hrtime.bigint();

function answer(text) {
  fs.writeSync(4, `${text}\n`);
}

function fail(why) {
  answer(`failed ${String(why).replaceAll('\n', ' ')}`);
  process.exit(1);
}

// In every thread. Returns the version for the greeting.
function useForkless() {
  if (!way?.startsWith('forkless-')) return '';
  let forkless;
  try {
    forkless = require('forkless');
  } catch (error) {
    fail(error.code === 'MODULE_NOT_FOUND' ? 'forkless is not installed' : error.message);
  }
  if (!forkless.install()) fail('forkless does not work with this kernel');
  return `,forkless-${require('forkless/package.json').version}`;
}

function check(status, signal, error) {
  if (error) throw new Error(`not launched: ${error.message}`);
  if (status !== 0) throw new Error(`the program did not exit with 0 but with ${status}, signal ${signal}`);
}

function byEvents() {
  return new Promise((resolve, reject) => {
    const start = now();
    const child = spawn(program, args, options);
    const held = now() - start;
    const settle = (total, status, signal, error) => {
      try {
        check(status, signal, error);
        resolve([held, total]);
      } catch (wrong) {
        reject(wrong);
      }
    };
    child.on('error', (error) => settle(null, null, null, error));
    child.on('exit', (status, signal) => settle(now() - start, status, signal));
  });
}

async function atOnce() {
  const start = now();
  const { status, signal, error } = spawnSync(program, args, options);
  const total = now() - start;
  check(status, signal, error);
  return [total, total];
}

// Node tells nothing of its children's time; the kernel does, in ticks.
function cpuTime() {
  const { user, system } = process.cpuUsage();
  const fields = fs.readFileSync('/proc/self/stat', 'latin1').split(') ')[1].split(' ');
  return (user + system) * 1000 + (Number(fields[13]) + Number(fields[14])) * 1e7;
}

async function launches({ limit, fewest, most }) {
  const launch = ways[way];
  const samples = [];
  const start = now();
  while (samples.length < most && (samples.length < fewest || now() - start < limit)) samples.push(await launch());
  return { samples, end: now() };
}

// What a worker does: it tells that it is ready, waits until all are, and tells what it has made.
async function work({ goal, gate, settings }) {
  options = settings;
  await ways[way]();
  parentPort.postMessage('ready');
  Atomics.wait(gate, 0, 0);
  parentPort.postMessage(await launches(goal));
}

// Of each worker the next message, or the error of the first that has failed.
function told() {
  return Promise.all(workers.map((worker) => once(worker, 'message').then(([message]) => message)));
}

async function turn(limit, fewest, most) {
  const goal = { limit, fewest, most };
  const gate = new Int32Array(new SharedArrayBuffer(4));
  const ready = told();
  for (const worker of workers) worker.postMessage({ goal, gate, settings: options });
  await (workers.length > 0 ? ready : ways[way]());
  const done = told();
  const cpu = cpuTime();
  const start = now();
  Atomics.store(gate, 0, 1);
  Atomics.notify(gate, 0);
  const runs = workers.length > 0 ? await done : [await launches(goal)];
  const wall = runs.reduce((last, { end }) => (end > last ? end : last), start) - start;
  const figures = runs.map(({ samples }) => samples.flat().join(' '));
  answer(`done ${wall} ${Math.max(0, cpuTime() - cpu)} ${figures.join(' | ')}`);
}

// Their heaps and the code that was compiled in them are their own, so they stay for the turns to come.
async function employ(count) {
  await Promise.all(workers.map((worker) => worker.terminate()));
  const hire = () => new Worker(__filename, { argv: process.argv.slice(2) });
  workers = count > 1 ? Array.from({ length: count }, hire) : [];
}

async function obey(request) {
  const [word, ...rest] = request.split(' ');
  if (word === 'turn') return turn(...rest.map(Number));
  if (word === 'memory') {
    for (let mib = 0; mib < Number(rest[0]); mib++) memory.push(Buffer.alloc(1 << 20, 1));
  } else if (word === 'threads') {
    await employ(Number(rest[0]));
  } else if (word === 'plain') {
    delete options.uid;
    delete options.gid;
  } else if (word === 'ids') {
    [options.uid, options.gid] = rest.map(Number);
  } else {
    throw new Error(`unknown request ${request}`);
  }
  answer('ok');
}

// A line at a time, and nothing is asked for while one is obeyed.
function nextLine() {
  const bytes = Buffer.alloc(4096);
  let line = '';
  while (!line.endsWith('\n')) {
    const count = fs.readSync(3, bytes);
    if (count === 0) return null;
    line += bytes.toString('utf8', 0, count);
  }
  return line.slice(0, -1);
}

async function main() {
  if (!ways[way] || program === undefined) {
    console.error('usage: engine.js [forkless-]spawn[Sync] PROGRAM [ARGS]...; requests at 3, answers at 4');
    process.exit(2);
  }
  answer(`forkless-engine 2 ${process.versions.node}${useForkless()} ids${way.endsWith('spawn') ? ' threads' : ''}`);
  for (let line = nextLine(); line !== null; line = nextLine()) await obey(line);
  await employ(0);
}

// Without a reader there is nobody to tell.
if (isMainThread) main().catch((error) => (error.code === 'EPIPE' ? process.exit(1) : fail(error.message)));
else {
  useForkless();
  parentPort.on('message', work);
}
