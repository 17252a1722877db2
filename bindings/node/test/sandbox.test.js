'use strict';

// Launches in a Sandbox.

const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { pathToFileURL } = require('node:url');
const { test } = require('node:test');
const { LaunchError, Sandbox, prepare, run, spawn } = require('..');

let missing;
try {
  new Sandbox({ mode: 'landlock' });
} catch (error) {
  if (error.code !== 'EOPNOTSUPP') throw error;
  missing = `SKIPPED: sandboxes, because ${error.message}`;
  console.log(missing);
}
const options = { skip: missing };

function places() {
  const place = fs.mkdtempSync(path.join(os.tmpdir(), 'forkless-sandbox-'));
  fs.chmodSync(place, 0o755);
  for (const name of ['inside', 'outside']) {
    fs.mkdirSync(path.join(place, name));
    fs.chmodSync(path.join(place, name), 0o777);
  }
  return place;
}

const INSIDE = 'grep -q Seccomp:.2 /proc/self/status && ! ls /tmp 2> /dev/null && test -z "$FORKLESS_SECRET" && echo inside';

test('a program writes only where it may', options, async () => {
  const place = places();
  const [inside, outside] = ['inside', 'outside'].map((name) => path.join(place, name));
  for (const write of [inside, [inside], pathToFileURL(inside)]) {
    const line = `echo 1 > ${inside}/a && cat ${inside}/a; (echo 2 > ${outside}/b || echo refused) 2> /dev/null`;
    const sandbox = { mode: 'landlock', write };
    assert.strictEqual((await run('sh', ['-c', line], { sandbox, cwd: '/' })).stdout, '1\nrefused\n');
  }
  fs.rmSync(place, { recursive: true });
});

test('every function launches in the sandbox', options, async () => {
  process.env.FORKLESS_SECRET = 'secret';
  const sandbox = new Sandbox({ mode: 'landlock' });
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

test('variables are inherited by name', options, async () => {
  process.env.FORKLESS_KEPT = '1';
  process.env.FORKLESS_SECRET = 'secret';
  const sandbox = new Sandbox({ mode: 'landlock', keepEnv: 'FORKLESS_KEPT' });
  const { stdout } = await run('env', { sandbox, cwd: '/' });
  assert.match(stdout, /^FORKLESS_KEPT=1$/m);
  assert.match(stdout, /^PATH=/m);
  assert.doesNotMatch(stdout, /SECRET/);
  assert.strictEqual((await run('/usr/bin/env', { sandbox, cwd: '/', env: { A: 'b' } })).stdout, 'A=b\n');
});

test('wrong sandboxes are errors', options, async () => {
  for (const wrong of [true, 7, 'landlock', {}, { mode: 'x' }, { mode: 'landlock', bind: '.' }, { mode: 'landlock', write: 7 }, { mode: 'landlock', network: 'none' }, { mode: 'landlock', read: [''] }]) {
    assert.throws(() => spawn('true', { sandbox: wrong }), TypeError, JSON.stringify(wrong));
  }
  assert.throws(() => new Sandbox({ mode: 'landlock', write: '/no/such/place' }), { code: 'ENOENT', message: /no\/such\/place/ });
  const place = places();
  const sandbox = new Sandbox({ mode: 'landlock', write: path.join(place, 'inside') });
  fs.rmSync(place, { recursive: true });
  await assert.rejects(run('true', { sandbox }), (error) => error instanceof LaunchError && /prepare it again/.test(error.message));
  await assert.rejects(run('true', { sandbox: { mode: 'landlock' }, inheritAll: true }), /inherit_all/);
});
