'use strict';

// Launches in a Sandbox.

const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { pathToFileURL } = require('node:url');
const { execFileSync } = require('node:child_process');
const { test } = require('node:test');
const { LaunchError, Sandbox, prepare, run, spawn } = require('..');

// Each test runs in both modes, where they work.
const MODES = { namespaces: 'test $PPID = 1', landlock: '! ls /tmp 2> /dev/null' };
const missing = {};
for (const mode of Object.keys(MODES)) {
  try {
    new Sandbox({ mode }).check();
  } catch (error) {
    missing[mode] = `SKIPPED: sandboxes by ${mode}, because ${error.message}`;
    console.log(missing[mode]);
  }
}

function tests(name, body, modes = Object.keys(MODES)) {
  for (const mode of modes) {
    test(`${mode}: ${name}`, { skip: missing[mode] }, () => body(mode, inside(MODES[mode])));
  }
}

function places() {
  const place = fs.mkdtempSync(path.join(os.tmpdir(), 'forkless-sandbox-'));
  fs.chmodSync(place, 0o755);
  for (const name of ['inside', 'outside']) {
    fs.mkdirSync(path.join(place, name));
    fs.chmodSync(path.join(place, name), 0o777);
  }
  return place;
}

const inside = (more) => `grep -q Seccomp:.2 /proc/self/status && ${more} && test -z "$FORKLESS_SECRET" && echo inside`;

tests('a program writes only where it may', async (mode, INSIDE) => {
  const place = places();
  const [inside, outside] = ['inside', 'outside'].map((name) => path.join(place, name));
  for (const write of [inside, [inside], pathToFileURL(inside)]) {
    const line = `echo 1 > ${inside}/a && cat ${inside}/a; (echo 2 > ${outside}/b || echo refused) 2> /dev/null`;
    const sandbox = { mode, write };
    assert.strictEqual((await run('sh', ['-c', line], { sandbox, cwd: '/' })).stdout, '1\nrefused\n');
  }
  fs.rmSync(place, { recursive: true });
});

tests('every function launches in the sandbox', async (mode, INSIDE) => {
  process.env.FORKLESS_SECRET = 'secret';
  const sandbox = new Sandbox({ mode });
  const more = { sandbox, cwd: '/' };
  assert.strictEqual((await run('sh', ['-c', INSIDE], more)).stdout, 'inside\n');
  assert.strictEqual((await run(INSIDE, { ...more, shell: true })).stdout, 'inside\n');
  assert.strictEqual((await run('/usr/bin/env', { ...more, shell: true })).stdout.includes('SECRET'), false);
  assert.strictEqual((await spawn('sh', ['-c', INSIDE], { ...more, stdio: 'ignore' }).wait()).code, 0);
  const prepared = prepare('sh', ['-c', INSIDE], { ...more, stdio: 'ignore' });
  for (const child of [prepared.spawn(), prepared.spawn()]) assert.strictEqual((await child.wait()).code, 0);
  const all = await Promise.all(Array.from({ length: 100 }, () => run('sh', ['-c', INSIDE], more)));
  assert.ok(all.every(({ stdout }) => stdout === 'inside\n'));
  if (process.getuid() === 0) {
    const { stdout } = await run('id', ['-u'], { ...more, uid: 12345, gid: 12345 });
    assert.strictEqual(stdout, '12345\n');
  }
});

tests('variables are inherited by name', async (mode, INSIDE) => {
  process.env.FORKLESS_KEPT = '1';
  process.env.FORKLESS_SECRET = 'secret';
  const sandbox = new Sandbox({ mode, keepEnv: 'FORKLESS_KEPT' });
  const { stdout } = await run('env', { sandbox, cwd: '/' });
  assert.match(stdout, /^FORKLESS_KEPT=1$/m);
  assert.match(stdout, /^PATH=/m);
  assert.doesNotMatch(stdout, /SECRET/);
  assert.strictEqual((await run('/usr/bin/env', { sandbox, cwd: '/', env: { A: 'b' } })).stdout, 'A=b\n');
});

tests('wrong sandboxes are errors', async (mode) => {
  for (const wrong of [7, 'landlock', { mode: 'x' }, { mode, bind: '.' }, { mode, write: 7 }, { mode, network: 'all' }, { mode, read: [''] }, { mode: 'landlock', network: 'none' }, { changeAttributes: true }]) {
    assert.throws(() => spawn('true', { sandbox: wrong }), TypeError, JSON.stringify(wrong));
  }
  assert.throws(() => new Sandbox({ mode, write: '/no/such/place' }), { code: 'ENOENT', message: /no\/such\/place/ });
  const place = places();
  const sandbox = new Sandbox({ mode, write: path.join(place, 'inside') });
  fs.rmSync(place, { recursive: true });
  await assert.rejects(run('true', { sandbox, cwd: '/' }), (error) => error instanceof LaunchError && /prepare it again/.test(error.message));
  assert.throws(() => sandbox.check(), /a trial of the sandbox/);
  await assert.rejects(run('true', { sandbox: { mode }, cwd: '/', inheritAll: true }), /inheritAll/);
});

tests('a program ends as any other', async () => {
  const more = { sandbox: true, cwd: '/' };
  for (const [line, code, signal] of [['exit 7', 7, null], ['kill -TERM $$', null, 'SIGTERM'], ['kill -KILL $$', null, 'SIGKILL']]) {
    assert.deepStrictEqual(await spawn('sh', ['-c', line], { ...more, stdio: 'ignore' }).wait(), { code, signal });
    const prepared = prepare('sh', ['-c', line], { ...more, stdio: 'ignore' });
    assert.deepStrictEqual(await prepared.spawn().wait(), { code, signal });
  }
  const child = spawn('sh', ['-c', 'echo ready; (setsid sleep 600 &); sleep 600'], more);
  child.stdout.once('data', () => child.kill());
  assert.deepStrictEqual(await child.wait(), { code: null, signal: 'SIGTERM' });
  await assert.rejects(run('no-such-program', more), { code: 'ENOENT', path: 'no-such-program' });
  await assert.rejects(run('true', { sandbox: true, cwd: os.homedir() }), /give the sandbox read/);
  assert.strictEqual((await run('sh', ['-c', 'grep -c Seccomp:.2 /proc/self/status || true'], { sandbox: false })).stdout, '0\n');
}, ['namespaces']);

tests('other processes have a while when the program has ended', async () => {
  const line = '(sleep 0.05; echo late) & echo done';
  for (const [linger, output] of [[undefined, 'done\nlate\n'], [5000, 'done\nlate\n'], [0, 'done\n']]) {
    assert.strictEqual((await run('sh', ['-c', line], { sandbox: { linger }, cwd: '/' })).stdout, output);
  }
  for (const linger of [-1, '1', Infinity, NaN]) assert.throws(() => new Sandbox({ linger }), /milliseconds/);
  assert.throws(() => new Sandbox({ linger: 1, mode: 'landlock' }), /Landlock/);
}, ['namespaces']);

tests('without an init the program is the first process', async () => {
  const sandbox = new Sandbox({ init: false });
  const line = 'echo $$ /proc/[0-9]*; (setsid sleep 600 &) & exit 7';
  const { code, stdout } = await run('sh', ['-c', line], { sandbox, cwd: '/' });
  assert.deepStrictEqual([code, stdout], [7, '1 /proc/1\n']);
  const child = spawn('sleep', ['600'], { sandbox, cwd: '/', stdio: 'ignore' });
  child.kill('SIGKILL');
  assert.strictEqual((await child.wait()).signal, 'SIGKILL');
  assert.throws(() => new Sandbox({ init: 0 }), /a boolean/);
  assert.throws(() => new Sandbox({ init: false, mode: 'landlock' }), /Landlock/);
  assert.throws(() => new Sandbox({ init: false, linger: 1 }), /linger.*init/);
}, ['namespaces']);

tests('strict executes nothing that the program has written', async () => {
  assert.throws(() => new Sandbox({ strict: true, mode: 'landlock' }), /Landlock/);
  assert.throws(() => new Sandbox({ strict: 1 }), /a boolean/);
  let sandbox;
  try {
    sandbox = new Sandbox({ strict: true });
  } catch (error) {
    assert.strictEqual(error.code, 'EOPNOTSUPP');
    return;
  }
  const line = 'cp /bin/true /tmp/true && /tmp/true 2>/dev/null || echo $?';
  assert.strictEqual((await run('sh', ['-c', line], { sandbox, cwd: '/' })).stdout, '126\n');
}, ['namespaces']);

tests('what is obeyed outside stays read-only in a project', async () => {
  const place = places();
  const project = path.join(place, 'inside');
  fs.mkdirSync(path.join(project, '.git/hooks'), { recursive: true });
  for (const name of ['.git', '.git/hooks']) fs.chmodSync(path.join(project, name), 0o777);
  const line = '(echo > .git/hooks/a || mv .git x || echo > .git/b && echo written) 2> /dev/null';
  assert.strictEqual((await run('sh', ['-c', line], { sandbox: { project }, cwd: project })).stdout, 'written\n');
  assert.deepStrictEqual(fs.readdirSync(path.join(project, '.git/hooks')), []);
  for (const name of ['.env', '.git/.env']) fs.writeFileSync(path.join(project, name), 'secret');
  const hidden = await run('cat', ['.env', '.git/.env'], { sandbox: { project, hide: '**/.env' }, cwd: project });
  assert.deepStrictEqual([hidden.stdout, hidden.stderr.match(/Permission denied/g)?.length], ['', 2]);
  fs.rmSync(place, { recursive: true });
}, ['namespaces']);

function children() {
  return fs.readdirSync('/proc/self/task').flatMap((task) => {
    return fs.readFileSync(`/proc/self/task/${task}/children`, 'utf8').split(' ').filter(Boolean);
  });
}

tests('run launches beside the event loop', async (mode) => {
  const place = places();
  const fifo = path.join(place, 'fifo');
  execFileSync('mkfifo', [fifo]);
  // All threads of the pool wait for a writer.
  const busy = Array.from({ length: Number(process.env.UV_THREADPOOL_SIZE ?? 4) }, () => fs.promises.open(fifo, 'r'));
  const before = children();
  const stopped = new AbortController();
  const more = { sandbox: { mode }, cwd: '/' };
  const done = run('echo', ['done'], more);
  const aborted = assert.rejects(run('sleep', ['600'], { ...more, signal: stopped.signal }), /not needed/);
  const after = children();
  stopped.abort(new Error('not needed'));
  // A writer for all of them, whenever they come.
  const writer = fs.openSync(fifo, 'r+');
  assert.deepStrictEqual(after, before);
  assert.strictEqual((await done).stdout, 'done\n');
  await aborted;
  await Promise.all(busy.map(async (opened) => (await opened).close()));
  fs.closeSync(writer);
  fs.rmSync(place, { recursive: true });
});

tests('the end of a program that is over before the loop knows it is seen', async (mode) => {
  const more = { sandbox: new Sandbox({ mode }), cwd: '/' };
  let left = mode === 'landlock' ? 2000 : 300;
  const one = async () => {
    while (left-- > 0) assert.strictEqual((await run('true', more)).code, 0);
  };
  await Promise.all(Array.from({ length: 16 }, one));
});
