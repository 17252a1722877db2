'use strict';

// Where processes break: ends of threads and processes, garbage collection, many children, limits of the system.

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const { test } = require('node:test');

// Runs a script of its own process, with forkless under child_process, and returns what it has written.
function script(body, { args = [], env = {}, before = [], fails = false } = {}) {
  const whole = `
    const forkless = require(${JSON.stringify(path.join(__dirname, '..'))});
    const assert = require('node:assert');
    const cp = require('node:child_process');
    const fs = require('node:fs');
    const { once } = require('node:events');
    const worker = require('node:worker_threads');
    if (!forkless.install()) throw new Error('not installed');
    const children = () => fs.readdirSync('/proc/self/task').flatMap((task) => {
      try { return fs.readFileSync('/proc/self/task/' + task + '/children', 'utf8').split(' ').filter(Boolean); } catch { return []; }
    });
    const fds = () => fs.readdirSync('/proc/self/fd').length;
    (async () => { ${body} })().catch((error) => { console.error(error); process.exit(99); });`;
  const [file, ...rest] = [...before, process.execPath, '--expose-gc', ...args, '-e', whole];
  const { stdout, stderr, status, signal } = spawnSync(file, rest, { encoding: 'utf8', env: { ...process.env, ...env, NODE_TEST_CONTEXT: undefined }, stdio: ['ignore', 'pipe', 'pipe'] });
  if (!fails) assert.deepStrictEqual([status, signal], [0, null], stdout + stderr);
  return { stdout, stderr, status, signal };
}

test('children are launched by forkless, and not by libuv', () => {
  const { stdout } = script(`
    const child = cp.spawn('true');
    const symbols = Object.getOwnPropertySymbols(child._handle).map(String);
    await once(child, 'exit');
    console.log(symbols.includes('Symbol(forkless.process)'));
    forkless.uninstall();
    const stock = cp.spawn('true');
    console.log(Object.getOwnPropertySymbols(stock._handle).map(String).includes('Symbol(forkless.process)'));
    await once(stock, 'exit');`);
  assert.strictEqual(stdout, 'true\nfalse\n');
});

test('1,000 children at once, each end reported once', () => {
  const [most] = spawnSync('sh', ['-c', 'ulimit -Hn'], { encoding: 'utf8' }).stdout.trim().split('\n').map(Number);
  if (most < 1500) return console.log('SKIPPED: 1,000 children at once because of the limit of files');
  const { stdout } = script(`
    const before = fds();
    const codes = new Map();
    const all = [];
    for (let n = 0; n < 1000; n++) {
      const child = cp.spawn('/bin/sh', ['-c', 'read x; exit $(($1 % 200))', 'sh', n], { stdio: ['pipe', 'ignore', 'ignore'] });
      all.push(child);
      child.on('exit', (code) => codes.set(n, (codes.get(n) ?? []).concat(code)));
    }
    const exits = Promise.all(all.map((child) => once(child, 'close')));
    for (const child of all) child.stdin.end('go\\n');
    await exits;
    for (let n = 0; n < 1000; n++) assert.deepStrictEqual(codes.get(n), [n % 200]);
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
    console.log(codes.size, children().length, fds() - before <= 2);`);
  assert.strictEqual(stdout, '1000 0 true\n');
});

test('handles are collected after the end, and not before', () => {
  const { stdout } = script(`
    let collected = 0;
    const registry = new FinalizationRegistry(() => collected++);
    const launch = (args) => {
      const child = cp.spawn(...args);
      registry.register(child);
      return new Promise((resolve) => child.on('close', resolve).on('error', resolve));
    };
    const settle = async () => { for (let n = 0; n < 20; n++) { gc(); await new Promise((resolve) => setTimeout(resolve, 5)); } };
    // Nobody refers to it: its end must be reported all the same.
    const ended = new Promise((resolve) => cp.spawn('sh', ['-c', 'read x; exit 5']).on('exit', resolve).stdin.unref());
    for (let n = 0; n < 200; n++) await launch(n % 2 ? ['true', { stdio: 'ignore' }] : ['no-such-program']);
    await settle();
    console.log(collected >= 190, 'collected');
    for (const child of children()) process.kill(child);
    console.log(await ended);`);
  assert.strictEqual(stdout, 'true collected\nnull\n');
});

test('the results of spawnSync are no larger than their outputs', () => {
  const { stdout } = script(`
    const before = process.memoryUsage().rss;
    const results = Array.from({ length: 1000 }, () => cp.spawnSync('/bin/echo', ['x']));
    gc();
    const grown = process.memoryUsage().rss - before;
    console.log(results.length, grown < 32 << 20 ? 'small' : grown);`);
  assert.strictEqual(stdout, '1000 small\n');
});

// With libuv 1.52, a wrong end of a handle writes to freed memory, which most of such runs do not survive.
test('chains of children, each launched at the end of another', () => {
  const { stdout } = script(`
    let ends = 0;
    const chain = async () => {
      for (let n = 0; n < 100; n++, ends++) await new Promise((resolve) => cp.spawn('/bin/true', { stdio: 'ignore' }).on('exit', resolve));
    };
    await Promise.all(Array.from({ length: 8 }, chain));
    const objects = [];
    for (let n = 0; n < 1e6; n++) objects.push({ n });
    console.log(ends);`);
  assert.strictEqual(stdout, '800\n');
});

test('a worker ends with children running', () => {
  const { stdout } = script(`
    for (let n = 0; n < 20; n++) {
      const one = new worker.Worker(\`
        const forkless = require(\${JSON.stringify(require.resolve(${JSON.stringify(path.join(__dirname, '..'))}))});
        forkless.install();
        const cp = require('node:child_process');
        const { parentPort } = require('node:worker_threads');
        const all = [1, 2, 3].map(() => cp.spawn('sleep', ['1000'], { stdio: 'ignore' }));
        forkless.spawn('sleep', ['1000'], { stdio: 'ignore' });
        forkless.spawn('true', { stdio: 'ignore' });
        parentPort.postMessage(all.map((child) => child.pid));
        \${n % 2 ? 'process.exit(3)' : ''}
      \`, { eval: true });
      const exit = once(one, 'exit');
      const [pids] = await once(one, 'message');
      if (n % 2 === 0) one.terminate();
      const [code] = await exit;
      assert.strictEqual(code, n % 2 ? 3 : 1);
      // They run on, as with libuv.
      for (const pid of pids) assert.strictEqual(process.kill(pid, 0), true);
    }
    for (const pid of children()) process.kill(pid, 'SIGKILL');
    // The children of this thread are not disturbed.
    console.log(await forkless.run('echo', ['still here']).then(({ stdout }) => stdout.trim()));`);
  assert.strictEqual(stdout, 'still here\n');
});

test('children of several threads at once', () => {
  const { stdout } = script(`
    const body = \`
      const forkless = require(\${JSON.stringify(require.resolve(${JSON.stringify(path.join(__dirname, '..'))}))});
      forkless.install();
      const cp = require('node:child_process');
      const { parentPort } = require('node:worker_threads');
      (async () => {
        let sum = 0;
        for (let n = 0; n < 50; n++) {
          sum += await new Promise((resolve) => cp.spawn('/bin/sh', ['-c', 'exit ' + n], { stdio: 'ignore' }).on('exit', resolve));
        }
        parentPort.postMessage(sum);
      })();\`;
    const sums = await Promise.all([1, 2, 3, 4].map(() => once(new worker.Worker(body, { eval: true }), 'message')));
    console.log(sums.flat().join());`);
  assert.strictEqual(stdout, '1225,1225,1225,1225\n');
});

test('process.exit in a callback', () => {
  const { status, stdout } = script(`
    cp.spawn('sleep', ['1000'], { stdio: 'ignore' }).unref();
    const other = cp.spawn('true').on('exit', () => { console.log('exit'); for (const pid of children()) process.kill(pid); process.exit(7); });`, { fails: true });
  assert.deepStrictEqual([status, stdout], [7, 'exit\n']);
});

test('an exception in a callback is an uncaught one, and the loop goes on', () => {
  const { stdout } = script(`
    process.on('uncaughtException', (error) => console.log('uncaught', error.message));
    const child = cp.spawn('true');
    child.on('exit', () => { throw new Error('mine'); });
    await new Promise((resolve) => process.once('uncaughtException', () => setImmediate(resolve)));
    const next = await forkless.run('echo', ['next']);
    console.log(next.stdout.trim());`);
  assert.strictEqual(stdout, 'uncaught mine\nnext\n');
  const { status, stderr } = script("cp.spawn('true').on('exit', () => { throw new Error('fatal'); });", { fails: true });
  assert.strictEqual(status, 1);
  assert.match(stderr, /Error: fatal/);
});

test('too many open files', () => {
  const body = `
    const files = [];
    let errors = 0;
    for (;;) { try { files.push(fs.openSync('/dev/null')); } catch { break; } }
    for (const spare of [0, 1, 2, 3, 4, 5, 6, 7]) {
      const child = cp.spawn('true');
      child.on('error', ({ code }) => { assert.ok(['EMFILE', 'EAGAIN'].includes(code), code); errors++; });
      const sync = cp.spawnSync('true');
      if (sync.error) assert.strictEqual(sync.error.code, 'EMFILE');
      if (child.pid !== undefined) await once(child, 'close');
      await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
      fs.closeSync(files.pop());
    }
    for (const fd of files) fs.closeSync(fd);
    const after = await forkless.run('echo', ['after']);
    console.log(errors > 0, after.stdout.trim(), children().length);`;
  const { stdout } = script(body, { before: ['sh', '-c', 'ulimit -n 100; exec "$@"', 'sh'] });
  assert.strictEqual(stdout, 'true after 0\n');
});

test('no more processes', () => {
  if (process.getuid() !== 0) return console.log('SKIPPED: no more processes because it needs root, to become a user without processes');
  const user = ['setpriv', '--reuid', '61234', '--regid', '61234', '--clear-groups'];
  const probe = spawnSync(user[0], [...user.slice(1), process.execPath, '-e', `require(${JSON.stringify(path.join(__dirname, '..'))})`], { encoding: 'utf8' });
  if (probe.status !== 0) return console.log('SKIPPED: no more processes because another user cannot read this directory, or setpriv is missing');
  const { stdout } = script(`
    cp.execFileSync('prlimit', ['--pid', String(process.pid), '--nproc=1:1']);
    const child = cp.spawn('/bin/true');
    const [error] = await once(child, 'error');
    const own = await forkless.run('/bin/true').catch(({ code, message }) => code + ' ' + message.includes('/bin/true'));
    console.log(error.code, cp.spawnSync('/bin/true').error.code, own);`, { before: user });
  assert.strictEqual(stdout, 'EAGAIN EAGAIN EAGAIN true\n');
});

test('the example', () => {
  const file = path.join(__dirname, '..', 'examples', 'tools.js');
  const whole = fs.readFileSync(file, 'utf8').replace("require('forkless')", `require(${JSON.stringify(path.join(__dirname, '..'))})`);
  const { stdout, status } = spawnSync(process.execPath, ['-e', whole], { encoding: 'utf8' });
  assert.strictEqual(status, 0);
  assert.match(stdout, /^ls: exit code 0, \d+ characters\nsh: timed out\nno-such-tool: failed to start "no-such-tool": exec/m);
});

test('closed standard streams', () => {
  for (const closing of ['<&-', '>&-', '2>&-', '<&- >&- 2>&-']) {
    const body = `
      const { stdout, code } = await forkless.run('sh', ['-c', 'echo out; exit 3']);
      const sync = cp.spawnSync('echo', ['sync'], { encoding: 'utf8' });
      const one = cp.spawn('true', { stdio: 'inherit' });
      const [inherited] = await once(one, 'exit');
      fs.writeFileSync(process.env.ANSWER, JSON.stringify([stdout, code, sync.stdout, inherited]));`;
    const ANSWER = path.join(fs.mkdtempSync(path.join(require('node:os').tmpdir(), 'forkless-node-')), 'answer');
    script(body, { before: ['sh', '-c', `exec "$@" ${closing}`, 'sh'], env: { ANSWER } });
    assert.deepStrictEqual(JSON.parse(fs.readFileSync(ANSWER, 'utf8')), ['out\n', 3, 'sync\n', 0], closing);
    fs.rmSync(path.dirname(ANSWER), { recursive: true });
  }
});

test('libuv and forkless each reap their own children', () => {
  const { stdout } = script(`
    const seen = [];
    for (let turn = 0; turn < 30; turn++) {
      forkless.uninstall();
      const stock = cp.spawn('/bin/sh', ['-c', 'exit 1'], { stdio: 'ignore' });
      forkless.install();
      const ours = cp.spawn('/bin/sh', ['-c', 'exit 2'], { stdio: 'ignore' });
      const sync = cp.spawnSync('/bin/sh', ['-c', 'exit 3'], { stdio: 'ignore' }).status;
      const codes = await Promise.all([stock, ours].map((child) => once(child, 'exit')));
      seen.push([codes[0][0], codes[1][0], sync].join());
    }
    console.log([...new Set(seen)].join(' '), children().length);`);
  assert.strictEqual(stdout, '1,2,3 0\n');
});

test('SIGCHLD listeners of the program', () => {
  const { stdout } = script(`
    let count = 0;
    process.on('SIGCHLD', () => count++);
    const child = cp.spawn('true', { stdio: 'ignore' });
    await once(child, 'exit');
    while (count === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    console.log('heard');
    process.exit();`);
  assert.strictEqual(stdout, 'heard\n');
});

// A tracer has the status first. The kernel tells the parent, by another SIGCHLD, when the tracer has let go.
test('a child that is traced when it ends', () => {
  if (spawnSync('strace', ['-o', '/dev/null', 'true']).status !== 0) return console.log('SKIPPED: traced children because strace cannot trace here');
  const { stdout } = script(`
    for (const child of [cp.spawn('cat', { stdio: ['pipe', 'ignore', 'ignore'] }), cp.exec('cat')]) {
      const tracer = cp.spawn('strace', ['-o', '/dev/null', '-p', child.pid]);
      await once(tracer.stderr, 'data');
      const ended = once(child, 'exit');
      child.stdin.end();
      console.log(...(await ended));
    }`, { before: ['timeout', '30'] });
  assert.strictEqual(stdout, '0 null\n0 null\n');
});

test('unref lets the process end', () => {
  const { stdout } = script(`
    const child = cp.spawn('sleep', ['1000'], { stdio: 'ignore', detached: true });
    child.unref();
    process.on('exit', () => { console.log('ends'); process.kill(child.pid); });`);
  assert.strictEqual(stdout, 'ends\n');
});

test('options of Node', () => {
  for (const args of [['--jitless'], ['--pending-deprecation', '--throw-deprecation'], ['--frozen-intrinsics'], ['--disable-proto=delete']]) {
    const { stdout, stderr } = script("console.log(cp.execSync('echo a').toString().trim(), (await forkless.run('echo', ['b'])).stdout.trim());", { args });
    assert.strictEqual(stdout, 'a b\n', `${args}: ${stderr}`);
  }
});

test('node --require forkless/install, and NODE_OPTIONS', () => {
  const file = path.join(__dirname, '..', 'lib', 'install-now.js');
  const show = "const c = require('child_process').spawn('true'); console.log(Object.getOwnPropertySymbols(c._handle).map(String).includes('Symbol(forkless.process)'))";
  for (const [args, env] of [[['--require', file], {}], [[], { NODE_OPTIONS: `--require ${file}` }]]) {
    const { stdout } = spawnSync(process.execPath, [...args, '-e', show], { encoding: 'utf8', env: { ...process.env, ...env } });
    assert.strictEqual(stdout, 'true\n');
  }
});

test('process.chdir', () => {
  const { stdout } = script(`
    const path = require('node:path');
    const place = fs.mkdtempSync(path.join(fs.realpathSync(require('node:os').tmpdir()), 'forkless-chdir-'));
    fs.mkdirSync(place + '/inner');
    fs.writeFileSync(place + '/inner/own', '#!/bin/sh\\npwd\\n', { mode: 0o755 });
    const prepared = forkless.prepare('pwd', [], { env: {} });
    const read = async (child) => {
      let text = '';
      for await (const part of child.stdout) text += part;
      return path.relative(place, text.trim());
    };
    const all = async () => [
      path.relative(place, cp.execSync('pwd', { encoding: 'utf8' }).trim()),
      path.relative(place, cp.spawnSync('pwd', { encoding: 'utf8', env: {} }).stdout.trim()),
      await read(cp.exec('exec pwd')),
      await read(cp.spawn('pwd', { env: {} })),
      path.relative(place, (await forkless.run('pwd', { env: {} })).stdout.trim()),
      await read(prepared.spawn()),
    ].join();
    const found = [];
    process.chdir(place);
    found.push(await all());
    process.chdir('inner');
    found.push(await all());
    // A name with a slash is a path from the working directory of the moment, and so is a relative directory.
    found.push(cp.execFileSync('./own', { encoding: 'utf8' }).trim() === place + '/inner');
    found.push(cp.execFileSync('./inner/own', { encoding: 'utf8', cwd: '..' }).trim() === place);
    // A directory that no longer exists.
    fs.rmSync(place, { recursive: true });
    found.push(cp.execSync('echo removed', { encoding: 'utf8' }).trim(), (await forkless.run('echo', ['removed'])).stdout.trim());
    console.log(found.join(' '));`);
  assert.strictEqual(stdout, `${','.repeat(5)} ${'inner,'.repeat(5)}inner true true removed removed\n`);
});

test('cluster', () => {
  const { stdout } = script(`
    const cluster = require('node:cluster');
    cluster.setupPrimary({ exec: ${JSON.stringify(path.join(__dirname, 'clustered.js'))}, execArgv: [] });
    const all = [cluster.fork(), cluster.fork()];
    await Promise.all(all.map((one) => once(one, 'message')));
    const exits = all.map((one) => once(one, 'exit'));
    for (const one of all) one.send('end');
    console.log((await Promise.all(exits)).map(([code]) => code).join());`);
  assert.strictEqual(stdout, '0,0\n');
});

// A program that reads its standard input to the end, and is as small as a process can be.
function reader() {
  const directory = fs.mkdtempSync(path.join(require('node:os').tmpdir(), 'forkless-node-'));
  process.on('exit', () => fs.rmSync(directory, { recursive: true, force: true }));
  const [source, program] = ['reader.c', 'reader'].map((name) => path.join(directory, name));
  fs.writeFileSync(source, `
    #include <unistd.h>
    #include <sys/syscall.h>
    int main(void) { char byte; while (read(0, &byte, 1) > 0) {} return 7; }`);
  const { status } = spawnSync('cc', ['-static', '-O2', '-o', program, source]);
  return status === 0 ? program : undefined;
}

test('10,000 children at once, each end reported once', () => {
  const program = reader();
  if (!program) return console.log('SKIPPED: 10,000 children because cc cannot build a static program');
  const COUNT = 10_000;
  const limit = spawnSync('sh', ['-c', 'ulimit -Hn; ulimit -u'], { encoding: 'utf8' }).stdout.trim().split('\n').map(Number);
  if (limit.some((most) => most < COUNT + 1000)) return console.log('SKIPPED: 10,000 children because of the limits of files or processes');
  const { stdout } = script(`
    const COUNT = ${COUNT};
    const [before, others] = [fds(), children().length];
    // All read one pipe; the last of its writers is this process.
    const holder = cp.spawn('cat', { stdio: ['pipe', 'pipe', 'ignore'] });
    const fd = holder.stdout._handle.fd;
    const ends = new Map();
    const all = [];
    for (let n = 0; n < COUNT; n++) {
      const child = cp.spawn(${JSON.stringify(program)}, { stdio: [fd, 'ignore', 'ignore'] });
      child.on('exit', (code, signal) => ends.set(child.pid, (ends.get(child.pid) ?? []).concat(code ?? signal)));
      all.push(once(child, 'close'));
    }
    assert.strictEqual(children().length, others + COUNT + 1);
    assert.strictEqual(ends.size, 0);
    // One more launch, with its pipes, and a timer, while all run.
    const more = await forkless.run('echo', ['more']);
    await new Promise((resolve) => setTimeout(resolve, 1));
    holder.stdin.end();
    await Promise.all(all);
    const codes = [...ends.values()].map(String);
    holder.stdout.destroy();
    await new Promise((resolve) => setTimeout(resolve, 50));
    console.log(more.stdout.trim(), codes.length, [...new Set(codes)].join(), children().length, fds() - before <= 2);`, { before: ['sh', '-c', 'ulimit -n $(ulimit -Hn); exec "$@"', 'sh'] });
  assert.strictEqual(stdout, 'more 10000 7 0 true\n');
});

test('too few descriptors for ten thousand children', () => {
  const { stdout } = script(`
    const all = [];
    const errors = new Set();
    for (let n = 0; n < 1000; n++) {
      const child = cp.spawn('sleep', ['1000'], { stdio: 'ignore' });
      if (child.pid === undefined) {
        const [error] = await once(child, 'error');
        errors.add(error.code);
        break;
      }
      all.push(child);
    }
    const exits = all.map((child) => once(child, 'exit'));
    for (const child of all) child.kill();
    const signals = new Set((await Promise.all(exits)).map(([, signal]) => signal));
    console.log(all.length > 50, [...errors].join(), [...signals].join(), children().length, (await forkless.run('echo', ['after'])).stdout.trim());`, { before: ['sh', '-c', 'ulimit -n 200; exec "$@"', 'sh'] });
  assert.strictEqual(stdout, 'true EMFILE SIGTERM 0 after\n');
});

test('a heap snapshot with children running', () => {
  const { stdout } = script(`
    const v8 = require('node:v8');
    const os = require('node:os');
    const path = require('node:path');
    const all = [1, 2, 3, 4, 5].flatMap(() => [cp.spawn('sleep', ['1000']), cp.exec('sleep 1000', () => {}), forkless.spawn('sleep', ['1000'])]);
    const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'forkless-node-')), 'heap');
    v8.writeHeapSnapshot(file);
    const { snapshot, nodes, strings } = JSON.parse(fs.readFileSync(file, 'utf8'));
    fs.rmSync(path.dirname(file), { recursive: true });
    const size = snapshot.meta.node_fields.length;
    let found = 0;
    for (let n = 0; n < nodes.length; n += size) if (['ChildProcess', 'Child'].includes(strings[nodes[n + 1]]) && snapshot.meta.node_types[0][nodes[n]] === 'object') found++;
    const exits = all.map((child) => once(child, 'exit'));
    for (const child of all) child.kill('SIGKILL');
    const signals = (await Promise.all(exits)).map(([, signal]) => signal);
    console.log(found >= all.length, [...new Set(signals)].join(), signals.length);`);
  assert.strictEqual(stdout, 'true SIGKILL 15\n');
});

test('NODE_OPTIONS with --jitless, in workers and forked processes too', () => {
  const file = path.join(__dirname, '..', 'lib', 'install-now.js');
  const show = `
    const cp = require('node:child_process');
    const { Worker, isMainThread } = require('node:worker_threads');
    const child = cp.spawn('true');
    const is = Object.getOwnPropertySymbols(child._handle).map(String).includes('Symbol(forkless.process)');
    console.log(is, typeof WebAssembly, cp.execSync('uname').toString().trim());
    if (isMainThread && process.env.DEEP) {
      child.on('close', () => new Worker(process.argv[1]).on('exit', () => {
        process.env.DEEP = '';
        cp.fork(process.argv[1]);
      }));
    }`;
  const name = path.join(fs.mkdtempSync(path.join(require('node:os').tmpdir(), 'forkless-node-')), 'show.js');
  fs.writeFileSync(name, show);
  const NODE_OPTIONS = `--jitless --require ${file}`;
  const { stdout, stderr } = spawnSync(process.execPath, [name], { encoding: 'utf8', env: { ...process.env, NODE_OPTIONS, DEEP: '1' } });
  fs.rmSync(path.dirname(name), { recursive: true });
  assert.strictEqual(stdout, 'true undefined Linux\n'.repeat(3), stderr);
});

test('the permission model', () => {
  const flag = ['--permission', '--experimental-permission'].find((name) => process.allowedNodeEnvironmentFlags.has(name));
  if (!flag) return console.log('SKIPPED: the permission model, which this Node does not have');
  const addons = process.allowedNodeEnvironmentFlags.has('--allow-addons') ? ['--allow-addons'] : [];
  const args = [flag, '--no-warnings', '--allow-fs-read=*', '--allow-fs-write=*', ...addons];
  const file = path.join(__dirname, 'echo.js');
  const body = (install) => `
    const cp = require('node:child_process');
    const forkless = require(${JSON.stringify(path.join(__dirname, '..'))});
    if (${install}) forkless.install();
    const told = (how) => {
      try {
        const done = how();
        if (done?.kill) done.on('error', () => {}).kill('SIGKILL');
        return 'started';
      } catch ({ code, permission, message }) {
        return [code, permission, message];
      }
    };
    const stdio = 'ignore';
    const calls = [() => cp.spawn('true', { stdio }), () => cp.spawn('true', { shell: true, stdio }), () => cp.exec('true'), () => cp.execFile('true'), () => cp.fork(${JSON.stringify(file)}, { stdio: ['ignore', 'ignore', 'ignore', 'ipc'] }),
      () => cp.spawnSync('true'), () => cp.execSync('true'), () => cp.execFileSync('true')];
    const answers = calls.map(told);
    if (${install}) answers.push(told(() => forkless.spawn('true')), told(() => forkless.prepare('true').spawn()));
    forkless.run('true').then(({ code }) => code, ({ code }) => code).then((own) => console.log(JSON.stringify([answers, own])));`;
  const answers = (install, more) => {
    const { stdout, stderr } = spawnSync(process.execPath, [...args, ...more, '-e', body(install)], { encoding: 'utf8' });
    return JSON.parse(stdout || JSON.stringify(stderr));
  };
  const [stock, denied] = [answers(false, []), answers(true, [])];
  assert.ok(stock[0].every(([code]) => code === 'ERR_ACCESS_DENIED'), JSON.stringify(stock));
  assert.deepStrictEqual(denied[0].slice(0, stock[0].length), stock[0]);
  assert.deepStrictEqual(denied[0].slice(stock[0].length).map(([code]) => code), ['ERR_ACCESS_DENIED', 'ERR_ACCESS_DENIED']);
  assert.deepStrictEqual([stock[1], denied[1]], ['ERR_ACCESS_DENIED', 'ERR_ACCESS_DENIED']);
  // Since Node 25 pipes by their descriptors need another permission. child_process goes to libuv without it.
  const net = process.allowedNodeEnvironmentFlags.has('--allow-net') ? ['--allow-net'] : [];
  const [calls, own] = net.length ? answers(true, ['--allow-child-process']) : [[], 'ERR_ACCESS_DENIED'];
  assert.ok(calls.slice(0, stock[0].length).every((call) => call === 'started') && own === 'ERR_ACCESS_DENIED', JSON.stringify(calls));
  const allowed = answers(true, ['--allow-child-process', ...net]);
  assert.deepStrictEqual([[...new Set(allowed[0])], allowed[1]], [['started'], 0], JSON.stringify(allowed));
});

test('a launch copies no page tables, however large the process', () => {
  const { stdout } = script(`
    const memory = Array.from({ length: 10 }, () => Buffer.alloc(10 << 20, 1));
    // The page faults of writing to each page after launches. A fork leaves each page read-only: its next write is a fault.
    const faults = () => {
      for (let n = 0; n < 5; n++) cp.spawn('/bin/true', { stdio: 'ignore' }).unref();
      const before = process.resourceUsage().minorPageFault;
      for (const buffer of memory) for (let at = 0; at < buffer.length; at += 4096) buffer[at] = 2;
      return process.resourceUsage().minorPageFault - before;
    };
    const ours = faults();
    forkless.uninstall();
    // libuv forks, or launches by posix_spawn as from 1.53 on.
    const forks = require(${JSON.stringify(require.resolve('../lib/handle.js'))}).runsScripts({});
    console.log(JSON.stringify([ours, forks ? faults() : null]));`);
  const [ours, stock] = JSON.parse(stdout);
  assert.ok(ours < 1000 && (stock === null || stock > 2 * ours), stdout);
});
