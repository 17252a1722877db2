// The Node engine of `forkless bench`: child_process. The protocol is in ../README.md.
'use strict';

const fs = require('node:fs');
const { spawn, spawnSync } = require('node:child_process');

const [way, program, ...args] = process.argv.slice(2);
const ways = { spawn: byEvents, spawnSync: atOnce };
// Node has made 3 and 4 close-on-exec, as all that it was started with.
const options = { stdio: 'inherit' };
const memory = []; // kept until the end
const now = () => process.hrtime.bigint();

function answer(text) {
  fs.writeSync(4, `${text}\n`);
}

function fail(why) {
  answer(`failed ${String(why).replaceAll('\n', ' ')}`);
  process.exit(1);
}

function check(status, signal, error) {
  if (error) fail(`not launched: ${error.message}`);
  if (status !== 0) fail(`the program did not exit with 0 but with ${status}, signal ${signal}`);
}

function byEvents() {
  return new Promise((resolve) => {
    const start = now();
    const child = spawn(program, args, options);
    const held = now() - start;
    child.on('error', (error) => check(null, null, error));
    child.on('exit', (status, signal) => {
      const total = now() - start;
      check(status, signal);
      resolve([held, total]);
    });
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

async function turn(limit, fewest, most) {
  const launch = ways[way];
  await launch();
  const samples = [];
  const cpu = cpuTime();
  const start = now();
  while (samples.length < most && (samples.length < fewest || now() - start < limit)) samples.push(await launch());
  const wall = now() - start;
  answer(['done', wall, Math.max(0, cpuTime() - cpu), ...samples.flat()].join(' '));
}

async function obey(request) {
  const [word, ...rest] = request.split(' ');
  if (word === 'turn') return turn(...rest.map(Number));
  if (word === 'memory') {
    for (let mib = 0; mib < Number(rest[0]); mib++) memory.push(Buffer.alloc(1 << 20, 1));
  } else if (word === 'plain') {
    delete options.uid;
    delete options.gid;
  } else if (word === 'ids') {
    [options.uid, options.gid] = rest.map(Number);
  } else {
    fail(`unknown request ${request}`);
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
    console.error('usage: engine.js spawn|spawnSync PROGRAM [ARGS]...; requests at 3, answers at 4');
    process.exit(2);
  }
  answer(`forkless-engine 2 ${process.versions.node} ids`);
  for (let line = nextLine(); line !== null; line = nextLine()) await obey(line);
}

main();
