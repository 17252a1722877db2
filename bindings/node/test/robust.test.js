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
