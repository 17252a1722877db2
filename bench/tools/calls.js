'use strict';

// The same as crates/forkless/examples/tool_calls.rs, for Node: calls.js MODE SLOTS CYCLES MEBIBYTES DESCRIPTORS DIRECTORY TOOLS.
// MODE is `stock` (child_process), `forkless` (child_process after install()), or of forkless.run: `none`, or the kind of a sandbox.

const { execFile } = require('child_process');
const { promisify } = require('util');
const fs = require('fs');

const [mode, slots, cycles, mebibytes, descriptors, directory, list] = process.argv.slice(2);
if (mode === 'forkless' && !require('forkless').install()) throw new Error('forkless cannot be installed');

const TICK = 5e6;
const isOwn = ['none', 'namespaces', 'landlock'].includes(mode);
const own = isOwn ? require('forkless') : undefined;
const sandbox = isOwn && mode !== 'none' ? new own.Sandbox({ mode }) : undefined;
// A sandbox does not show the directory.
const run = isOwn ? (file, args, options) => own.run(file, args, { ...options, sandbox, ...(sandbox && { cwd: '/' }) }) : promisify(execFile);
const tools = fs.readFileSync(list, 'utf8').trimEnd().split('\n').map((line) => line.split('\t'));
const memory = [];
// A Buffer has at most 4 GiB.
for (let left = Number(mebibytes); left > 0; left -= 512) memory.push(Buffer.alloc(Math.min(left, 512) * 1048576, 1));
const files = Array.from({ length: Number(descriptors) }, () => fs.openSync('/dev/null'));

let bytes = 0;
async function call([, file, ...args]) {
  const begun = process.hrtime.bigint();
  const { stdout } = await run(file, args, { cwd: directory, timeout: 60000, maxBuffer: 64 << 20 });
  bytes += Buffer.byteLength(stdout);
  return process.hrtime.bigint() - begun;
}

async function main() {
  for (const tool of tools) await call(tool);
  bytes = 0;
  const late = [];
  let last = process.hrtime.bigint();
  const timer = setInterval(() => {
    const now = process.hrtime.bigint();
    late.push(Number(now - last) - TICK);
    last = now;
  }, 5);
  const lines = [];
  const count = tools.length * Number(cycles);
  let next = 0;
  async function slot() {
    while (next < count) {
      const tool = tools[next++ % tools.length];
      lines.push(`${tool[0]}\t${await call(tool)}`);
    }
  }
  const before = ownTime();
  const children = ofChildren();
  await Promise.all(Array.from({ length: Number(slots) }, slot));
  lines.push(`own\t${ownTime() - before}`, `children\t${ofChildren() - children}`);
  // A stop at the end counts too.
  late.push(Number(process.hrtime.bigint() - last) - TICK);
  clearInterval(timer);
  late.sort((a, b) => a - b);
  lines.push(`stop\t${Math.round(late.at(-1))}`, `late\t${Math.round(late[Math.floor((late.length * 999) / 1000)])}`);
  lines.push(`bytes\t${bytes}`);
  console.log(lines.join('\n'));
  if (memory.length + files.length < 0) throw new Error('kept');
}

function ownTime() {
  const { user, system } = process.cpuUsage();
  return user + system;
}

// Node does not report the CPU time of children; the kernel does, in ticks of 10 ms: cutime and cstime.
function ofChildren() {
  const fields = fs.readFileSync('/proc/self/stat', 'latin1').replace(/^.*\) /s, '').split(' ');
  return (Number(fields[13]) + Number(fields[14])) * 10000;
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
