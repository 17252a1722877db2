'use strict';

// Compares child_process with itself on forkless, in turns in one process: node --expose-gc figures.js [--turns N] [--mebibytes N]
// [--record DIRECTORY].
//
// "Stop" is how long the call keeps the event loop from going on; "total" is from the call to the callback or to the `close` event.
// "JavaScript" is the part of the stop that Node's own JavaScript takes: all but the call of the process handle, which is what `install()`
// replaces.
// The delay is the largest that `monitorEventLoopDelay` has seen in a turn of ten launches, one after another: the median of the turns
// and the maximum. The programs are a static one that only exits, and `uname -a` by `exec`. With memory, each page has been written
// to. The package is the one that contains this file, or FORKLESS_PACKAGE.

const cp = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { once } = require('node:events');
const { monitorEventLoopDelay } = require('node:perf_hooks');
const { parseArgs } = require('node:util');
const forkless = require(process.env.FORKLESS_PACKAGE ?? '..');

const LAUNCHES = 10;
const FILES = 15_000;
const METHODS = ['child_process', 'forkless'];

const { values: options } = parseArgs({
  options: { turns: { type: 'string', default: '20' }, mebibytes: { type: 'string', default: '4096' }, record: { type: 'string' } },
});
const turns = Number(options.turns);
const mebibytes = Number(options.mebibytes);

const now = () => performance.now() * 1000;

function select(method) {
  if (method === 'forkless') {
    if (!forkless.install()) throw new Error('forkless cannot be installed here');
  } else {
    forkless.uninstall();
  }
}

function build(directory) {
  const program = path.join(directory, 'target');
  const source = process.env.FORKLESS_TARGET_C ?? path.join(__dirname, '../../../bench/c/target.c');
  cp.execFileSync('cc', ['-static', '-nostdlib', '-o', program, source]);
  return program;
}

const { constructor: Process } = new cp.ChildProcess()._handle;

// How long the last call of a process handle took: what libuv or forkless does in a launch.
let below = 0;

// Times the calls of process handles, until the function that this returns is called.
function watch() {
  const { spawn } = Process.prototype;
  Process.prototype.spawn = function (...low) {
    const begun = now();
    const result = spawn.apply(this, low);
    below = now() - begun;
    return result;
  };
  return () => (Process.prototype.spawn = spawn);
}

// What is measured: each returns microseconds by name.
function calls(program) {
  return {
    async spawn() {
      const begun = now();
      const child = cp.spawn(program, [], { stdio: ['ignore', 'pipe', 'pipe'] });
      const stop = now() - begun;
      const js = stop - below;
      const [code] = await once(child, 'close');
      if (code !== 0) throw new Error(`${program}: ${code}`);
      return { stop, js, total: now() - begun };
    },
    async spawnSync() {
      const begun = now();
      const { status } = cp.spawnSync(program);
      if (status !== 0) throw new Error(`${program}: ${status}`);
      return { stop: now() - begun };
    },
    async exec() {
      const begun = now();
      let stop, js;
      await new Promise((resolve, reject) => {
        cp.exec('uname -a', (error, out) => (error || !out ? reject(error) : resolve()));
        stop = now() - begun;
        js = stop - below;
      });
      return { stop, js, total: now() - begun };
    },
  };
}

async function turn(call, method, found) {
  select(method);
  const leave = watch();
  await call();
  global.gc?.();
  const delay = monitorEventLoopDelay({ resolution: 1 });
  delay.enable();
  for (let n = 0; n < LAUNCHES; n++) {
    for (const [name, took] of Object.entries(await call())) (found[name] ??= []).push(took);
    // Lets the monitor see the stop.
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  delay.disable();
  leave();
  (found.delay ??= []).push(delay.max / 1000);
}

const sorted = (values) => values.toSorted?.((a, b) => a - b) ?? [...values].sort((a, b) => a - b);
const at = (values, part) => sorted(values)[Math.min(values.length - 1, Math.floor(values.length * part))];

async function measure(situation, program, rows) {
  for (const [name, call] of Object.entries(calls(program))) {
    const found = Object.fromEntries(METHODS.map((method) => [method, {}]));
    for (let n = 0; n < turns; n++) for (const method of n % 2 ? METHODS : [...METHODS].reverse()) await turn(call, method, found[method]);
    for (const what of Object.keys(found.forkless)) {
      const row = { situation, call: name, what };
      for (const method of METHODS) {
        const values = found[method][what];
        row[method] = { p10: at(values, 0.1), p50: at(values, 0.5), p99: at(values, 0.99), max: Math.max(...values), count: values.length };
      }
      row.ratio = row.forkless.p50 / row.child_process.p50;
      row.ratioOfP10 = row.forkless.p10 / row.child_process.p10;
      rows.push(row);
      console.error(`${situation}, ${name}, ${what}: ${row.ratio.toFixed(2)}`);
    }
  }
}

function page(rows, machine) {
  const number = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1));
  const parts = (value) => (value < 0.1 ? value.toFixed(4) : value.toFixed(2));
  const lines = ['# Figures of the Node package', '', 'Written by `bindings/node/bench/figures.js`. Times in microseconds. On a busy machine the 10th percentile is nearest to what the calls cost.', ''];
  lines.push(Object.entries(machine).map(([name, value]) => `${name} ${value}`).join(', ') + '.', '');
  lines.push('| process | call | figure | child_process p10 | p50 | p99 | forkless p10 | p50 | p99 | × of p10 | × of p50 |', '| --- | --- | --- | --: | --: | --: | --: | --: | --: | --: | --: |');
  const what = { stop: 'loop stopped', js: 'of it Node\'s own JavaScript', total: 'total', delay: 'largest loop delay of ten' };
  for (const { situation, call, what: figure, child_process: stock, forkless: ours, ratio, ratioOfP10 } of rows) {
    // Of fewer values, the 99th percentile is the largest one.
    const times = ({ p10, p50, p99, count }) => [number(p10), number(p50), count < 100 ? '' : number(p99)];
    const both = [stock, ours].flatMap(times).join(' | ');
    lines.push(`| ${situation} | ${call} | ${what[figure]} | ${both} | ${parts(ratioOfP10)} | ${parts(ratio)} |`);
  }
  return `${lines.join('\n')}\n`;
}

async function main() {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'forkless-figures-'));
  const rows = [];
  const [date] = new Date().toISOString().split('T');
  const machine = {
    date, node: process.version, kernel: os.release(), CPUs: os.cpus().length, 'CPU model': os.cpus()[0].model, load: os.loadavg()[0].toFixed(1), turns,
  };
  try {
    const program = build(directory);
    await measure('small', program, rows);
    const files = Array.from({ length: FILES }, () => fs.openSync('/dev/null'));
    await measure(`small, ${FILES} descriptors`, program, rows);
    files.forEach((fd) => fs.closeSync(fd));
    const memory = [];
    for (let left = mebibytes; left > 0; left -= 512) memory.push(Buffer.alloc(Math.min(left, 512) << 20, 1));
    await measure(`${mebibytes} MiB`, program, rows);
    if (memory.some((one) => one[one.length - 1] !== 1)) throw new Error('the memory was not kept');
  } finally {
    fs.rmSync(directory, { recursive: true });
  }
  const text = page(rows, machine);
  process.stdout.write(text);
  if (options.record) {
    fs.mkdirSync(options.record, { recursive: true });
    fs.writeFileSync(path.join(options.record, 'node.md'), text);
    fs.writeFileSync(path.join(options.record, 'node.json'), `${JSON.stringify({ machine, rows }, null, 1)}\n`);
  }
}

main();
