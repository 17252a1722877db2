'use strict';

// Lines for a shell by exec, spawn with a shell, and execSync: node lines.js (stock|forkless|direct) [SHELL].
//
// With `direct` it says of each line of the table whether it ran without the shell. A line that is not marked needs the shell.

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const cp = require('node:child_process');

const place = fs.mkdtempSync(path.join(os.tmpdir(), 'forkless-lines-'));
process.on('exit', () => fs.rmSync(place, { recursive: true, force: true }));
const file = (name, text, mode = 0o644) => fs.writeFileSync(path.join(place, name), text, { mode });
file('text', 'one\ntwo\n');
file('plain', 'exit 3\n');
file('script', 'echo "script $0 $1"; exit 4\n', 0o755);
file('hashed', '#!/bin/sh\necho "hashed $1"; exit 5\n', 0o755);
file('broken', '#!/no/such/interpreter\n', 0o755);
file('not a program', Buffer.from([0x7f, 0x45, 0x4c, 0x46, 9, 9, 9]), 0o755);
fs.mkdirSync(path.join(place, 'directory'));

// Of Node's own choice, if none is named.
const shell = process.argv[3];
const PATH = process.env.PATH ?? '/usr/bin:/bin';
const env = (more) => ({ env: { PATH, ...more } });
const SIGNALS = ['ILL', 'TRAP', 'ABRT', 'BUS', 'FPE', 'KILL', 'USR1', 'SEGV', 'USR2', 'PIPE', 'TERM', 'XCPU', 'XFSZ', 'VTALRM', 'SYS'];

// A line, whether it runs without the shell, and options. SIGHUP, SIGINT and SIGQUIT are left out: README.md, "What differs".
const table = [
  ['uname -s', 'direct'],
  ['  uname   -s  ', 'direct'],
  ['uname -s # a comment', 'direct'],
  ['ls text', 'direct'],
  ["ls 'text'", 'direct'],
  ['ls "text"', 'direct'],
  ['ls t\\ext', 'direct'],
  ["env printf '[%s]' '' ' ' '$HOME' \"a'b\" 'ä€😀' '*'", 'direct'],
  ['exec uname -s', 'direct'],
  ['exec ls /no/such/file', 'direct'],
  ['ls /no/such/file', 'direct'],
  ['ls /no/such/file 2>/dev/null', 'direct'],
  ['ls text /no/such/file 2>&1', 'direct'],
  ['ls text /no/such/file >/dev/null', 'direct'],
  ['ls text /no/such/file 2>&1 >/dev/null', 'direct'],
  ['ls text /no/such/file >/dev/null 2>&1', 'direct'],
  ['cat <text', 'direct'],
  ['cat < text > written', 'direct'],
  ['cat written', 'direct'],
  ['cat <text >>written', 'direct'],
  ['wc -c written', 'direct'],
  ['cat', 'direct', { input: 'fed\n' }],
  ['cat <&0', 'shell', { input: 'fed\n' }],
  ['head -c 3', 'direct', { input: '12345' }],
  ['grep -c nothing text', 'direct'],
  ['sed -n 1p text', 'direct'],
  ['env', 'direct', env({ Z: '1', A: '2', EMPTY: '', M: 'ä=ö' })],
  ['env', 'direct', env({ PWD: '/elsewhere', OLDPWD: '/old', HOME: '/', PS1: 'x' })],
  ['A=1 B=2 env', 'direct', env({ C: '3', A: '0' })],
  ['env', 'direct', { ...env({ 'odd-name': '1', 'a.b': '2', _: '/x', SHLVL: '7' }) }],
  ['pwd', 'shell', { cwd: '/usr' }],
  ['env pwd', 'direct', { cwd: '/usr' }],
  ['ls', 'shell', { env: { PATH: '' } }],
  ['ls text', 'shell', { env: { A: '1' } }],
  ['./hashed x', 'direct'],
  ['./script x', 'failed'],
  ['script x', 'failed', { env: { PATH: place } }],
  ['./broken', 'failed'],
  ['./plain', 'failed'],
  ['./directory', 'failed'],
  ["'./not a program'", 'failed'],
  ['./missing', 'failed'],
  ['no-such-program-xyz a b', 'failed'],
  ['no-such-program-xyz 2>/dev/null', 'failed'],
  ['no-such-program-xyz 2>&1', 'failed'],
  ['cat <missing', 'failed'],
  ['ls >directory', 'shell'],
  ['ls >/no/such/directory/file', 'failed'],
  ['   ', 'shell'],
  ['exit 7', 'shell'],
  ['true', 'shell'],
  ['false', 'shell'],
  ['echo one two', 'shell'],
  ['echo $HOME', 'shell', env({ HOME: '/h' })],
  ['ls t*', 'shell'],
  ['cat text | wc -l', 'shell'],
  ['cat text && exit 2', 'shell'],
  ['cat text; exit 9', 'shell'],
  ['(exit 6)', 'shell'],
  ['kill -TERM $$', 'shell'],
  ['kill -KILL $$', 'shell'],
  ['ls "', 'shell'],
  ['ls )', 'shell'],
  ['sleep 0.05 & wait', 'shell'],
  ['if true; then exit 3; fi', 'shell'],
  ["sh -c 'echo out; echo err >&2; exit 11'", 'direct'],
  ["sh -c 'exit 255'", 'direct'],
  ["env sh -c 'ulimit -c 0; kill -40 $$'", 'direct'],
  ["sh -c 'ulimit -c 0; kill -TERM $$' 2>/dev/null", 'direct'],
  ["sh -c 'ulimit -c 0; echo out; kill -SEGV $$' 2>&1", 'direct'],
  ["exec sh -c 'ulimit -c 0; kill -TERM $$'", 'direct'],
  ["sh -c 'echo before >&2; ulimit -c 0; kill -KILL $$'", 'direct'],
  ["sh -c 'exec 2>&-; ulimit -c 0; kill -KILL $$'", 'direct'],
  ...SIGNALS.map((name) => [`sh -c 'ulimit -c 0; kill -${name} $$'`, 'direct']),
];

function told(error) {
  if (!error) return null;
  const { name, message, code, errno, syscall, path: where, spawnargs, status, signal, killed, cmd, stdout, stderr } = error;
  return { name, message, code, errno, syscall, where, spawnargs, status, signal, killed, cmd, out: stdout && `${stdout}`, err: stderr && `${stderr}` };
}

function byExec(line, { input, ...options }) {
  return new Promise((resolve) => {
    const child = cp.exec(line, { cwd: place, shell, ...options }, (error, out, err) => resolve([told(error), out, err, child.exitCode, child.signalCode, child.killed]));
    child.stdin.on('error', () => {}).end(input);
  });
}

function bySpawn(line, { input, ...options }) {
  return new Promise((resolve) => {
    const child = cp.spawn(line, { cwd: place, shell: shell ?? true, ...options });
    const seen = { out: '', err: '', events: [], spawnfile: child.spawnfile, spawnargs: child.spawnargs };
    for (const [name, stream] of [['out', child.stdout], ['err', child.stderr]]) stream?.on('data', (data) => (seen[name] += data));
    child.stdin?.on('error', () => {}).end(input);
    for (const name of ['spawn', 'error', 'exit', 'close']) child.on(name, (...args) => seen.events.push([name, ...args.map((one) => (one instanceof Error ? told(one) : one))]));
    child.on('close', () => resolve(seen));
  });
}

function bySync(line, options) {
  try {
    return [`${cp.execSync(line, { cwd: place, stdio: 'pipe', shell, ...options })}`];
  } catch (error) {
    return told(error);
  }
}

// What is not a table: limits, signals of the caller, and other streams than pipes.
const others = {
  async 'timeout'() {
    // The program of Node's own shell lives on: it must not hold the pipes of a spawn for long.
    return [await bySpawn('exec sleep 1000', { timeout: 30 }), await byExec('sleep 1', { timeout: 30 }), await byExec('sleep 1', { timeout: 30, killSignal: 'SIGKILL' }), bySync('exec sleep 60', { timeout: 30 })];
  },
  async 'maxBuffer'() {
    return [(await byExec('cat /dev/zero', { maxBuffer: 10 }))[0].code, bySync('exec cat /dev/zero', { maxBuffer: 10 }).code, await byExec('cat text', { maxBuffer: 8 }), (await byExec('cat text', { maxBuffer: 7 })).slice(0, 3)];
  },
  async 'AbortSignal'() {
    const stop = new AbortController();
    const seen = byExec('sleep 1', { signal: stop.signal });
    stop.abort();
    return seen;
  },
  async 'signals of the caller'() {
    const killed = (how, signal) => new Promise((resolve) => {
      const child = cp.exec('exec 2>/dev/null sleep 1000', { shell }, (error) => resolve([told(error), child.signalCode, child.killed]));
      how(child, signal);
    });
    const answers = [];
    for (const signal of ['SIGTERM', 'SIGKILL', 'SIGUSR1', 'SIGINT']) {
      answers.push(await killed((child, name) => child.kill(name), signal), await killed((child, name) => process.kill(child.pid, name), signal));
    }
    return answers;
  },
  async 'signals of the caller to a shell that waits'() {
    const killed = (how) => new Promise((resolve) => {
      const child = cp.spawn('sleep 0.5', { shell: shell ?? true, stdio: 'ignore' });
      child.on('exit', (...args) => resolve([args, child.killed]));
      how(child);
    });
    return [await killed((child) => child.kill()), await killed((child) => process.kill(child.pid, 'SIGKILL')), await killed((child) => child.kill('SIGUSR2'))];
  },
  async 'streams'() {
    const file = path.join(place, 'streams');
    const answers = [];
    for (const line of ['ls text /no/such/file', "sh -c 'ulimit -c 0; echo x; kill -TERM $$'", 'no-such-program-xyz']) {
      for (const stdio of ['ignore', ['ignore', 'pipe', 'ignore'], ['ignore', 'ignore', 'pipe']]) answers.push(await bySpawn(line, { stdio }));
      const fd = fs.openSync(file, 'w');
      answers.push(await bySpawn(line, { stdio: ['ignore', fd, fd] }), fs.readFileSync(file, 'utf8'));
      fs.closeSync(fd);
      answers.push(bySync(line, { stdio: ['ignore', 'pipe', 'ignore'] }));
    }
    return answers;
  },
  async 'a shell message behind a large output'() {
    const { out, err, events } = await bySpawn("sh -c 'head -c 1000000 /dev/zero >&2; ulimit -c 0; kill -KILL $$'", {});
    const sync = cp.spawnSync("sh -c 'head -c 1000000 /dev/zero >&2; ulimit -c 0; kill -KILL $$'", { shell: shell ?? true });
    return [out, err.length, err.slice(-8), events, sync.stderr.length, `${sync.stderr.subarray(-8)}`, sync.status];
  },
  async 'a shell message when nothing has been read yet'() {
    const line = "sh -c 'head -c 100000 /dev/zero >&2; ulimit -c 0; kill -KILL $$'";
    const seeing = [bySpawn(line, {}), byExec(line, {})];
    // The loop stands still until the program has ended.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500);
    const [{ err, events }, [error]] = await Promise.all(seeing);
    return [err.length, err.slice(-7), events, error.code, error.message.length];
  },
  async 'a line in a session, with ids, with a channel'() {
    const leads = 'cat /proc/self/stat';
    const { out } = await bySpawn(leads, { detached: true });
    const channel = cp.spawn('cat text', { shell: shell ?? true, cwd: place, stdio: ['ignore', 'ignore', 'ignore', 'ipc'] });
    return [out.split(' ')[3] === out.split(' ')[5], await new Promise((resolve) => channel.on('exit', (...args) => resolve(args)))];
  },
  async 'standard streams that are closed in the shell'() {
    return [await byExec('cat <&-', {}), await byExec('ls text >&-', {}), await byExec('ls /no/such/file 2>&-', {})];
  },
};

async function main() {
  const how = process.argv[2];
  if (how !== 'stock') require('..').install();
  // bash names a process that a signal has killed.
  const show = (name, answer) => process.stdout.write(`${JSON.stringify({ name, answer }).replaceAll(place, 'PLACE').replaceAll(/(bash: (?:line \d+: )?) *\d+ (?=[A-Z])/g, '$1PID ')}\n`);
  // First, because programs of Node's own shells that were killed end later.
  if (how !== 'direct') for (const [name, play] of Object.entries(others)) show(name, await play());
  for (const [n, [line, expected, options]] of table.entries()) {
    if (how === 'direct') {
      const child = cp.spawn(line, { cwd: place, shell: shell ?? true, stdio: 'pipe', ...options });
      const isDirect = require('../lib/handle.js').lines.has(child.pid);
      child.stdin.on('error', () => {}).end();
      await new Promise((resolve) => child.on('close', resolve));
      show(`${n}: ${line}`, [isDirect, expected === 'direct']);
      continue;
    }
    // By turns, because a line may write a file.
    show(`${n}: ${line}`, [await byExec(line, options ?? {}), await bySpawn(line, options ?? {}), bySync(line, options ?? {})]);
  }
}

if (require.main === module) main();
module.exports = { count: table.length + Object.keys(others).length };
