'use strict';

// runPipeline().

const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { test } = require('node:test');
const { ExitError, LaunchError, runPipeline } = require('..');

const ok = { code: 0, signal: null };

test('each reads what the one before it writes', async () => {
  const { stdout, ends } = await runPipeline([['sort'], ['uniq', '-c'], ['sed', 's/ *//']], { input: 'b\na\nb\n', check: true });
  assert.strictEqual(stdout, '1 a\n2 b\n');
  assert.deepStrictEqual(ends, [ok, ok, ok]);
  assert.strictEqual((await runPipeline([['cat']], { input: 'one' })).stdout, 'one');
  const much = Buffer.alloc(5 << 20, 'x');
  const copied = await runPipeline([['cat'], ['cat'], ['cat']], { input: much, encoding: 'buffer', maxBuffer: 6 << 20 });
  assert.ok(copied.stdout.equals(much));
});

test('a program ends when the next one does', async () => {
  const { stdout, code, ends } = await runPipeline([['yes'], ['head', '-n', '1']], { timeout: 50_000 });
  assert.deepStrictEqual([stdout, code, ends], ['y\n', 0, [{ code: null, signal: 'SIGPIPE' }, ok]]);
  // And none has an end of a pipe that is not its own.
  assert.strictEqual((await runPipeline([['true'], ['ls', '/proc/self/fd'], ['cat']])).stdout, '0\n1\n2\n3\n');
});

test('whose end counts', async () => {
  const programs = [['sh', '-c', 'exit 3'], ['sh', '-c', 'exit 4'], ['true']];
  assert.strictEqual((await runPipeline(programs)).code, 0);
  assert.strictEqual((await runPipeline(programs, { pipefail: true })).code, 4);
  await assert.rejects(runPipeline(programs, { pipefail: true, check: true }), (error) => error instanceof ExitError && error.code === 4);
  // The error names the program whose code it has.
  await assert.rejects(runPipeline([['sh', '-c', 'exit 3'], ['cat']], { pipefail: true, check: true }), { message: 'sh exited with code 3', program: 'sh', code: 3 });
  await assert.rejects(runPipeline([['false'], ['sh', '-c', 'exit 4']], { check: true }), { message: 'sh exited with code 4', program: 'sh' });
});

test('one that cannot be started ends all, and no descriptor is left', async () => {
  const count = () => fs.readdirSync('/proc/self/fd').length;
  const before = count();
  for (const place of [0, 1, 2]) {
    const programs = [['sleep', '60'], ['sleep', '60'], ['sleep', '60']];
    programs[place] = ['/nonexistent/program'];
    await assert.rejects(runPipeline(programs), (error) => error instanceof LaunchError && error.program === '/nonexistent/program');
  }
  for (let n = 0; n < 100 && count() !== before; n += 1) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.strictEqual(count(), before);
});

test('options of all and of one; standard errors', async () => {
  const line = 'cat; echo $X $(nice) $PWD; echo err$X >&2';
  const programs = [{ file: 'sh', args: ['-c', line], env: { ...process.env, X: '1' }, cwd: '/usr' }, { file: 'sh', args: ['-c', line], nice: 7 }];
  const { stdout, stderr } = await runPipeline(programs, { env: { ...process.env, X: '2' }, cwd: '/', nice: 5 });
  assert.strictEqual(stdout, '1 5 /usr\n2 7 /\n');
  assert.deepStrictEqual(stderr.split('\n').sort(), ['', 'err1', 'err2']);
  await assert.rejects(runPipeline([]), /needs a program/);
  await assert.rejects(runPipeline([['true']], { stdio: 'inherit' }), /stdio is not possible/);
  await assert.rejects(runPipeline([['true'], { args: [] }]), /file is not a string/);
});

test('wrong programs are refused before one is started', async () => {
  const place = fs.mkdtempSync(path.join(os.tmpdir(), 'forkless-node-'));
  const first = ['touch', path.join(place, 'started')];
  for (const [programs, message] of [
    [undefined, /^runPipeline\(\): programs is not an array.*: undefined$/],
    ['ls', /programs is not an array.*: 'ls'$/],
    [['ls', '-l'], /programs\[0\] is not an array.*: 'ls'$/],
    [[first, null], /programs\[1\] is not an array/],
    [[first, { args: [] }], /^runPipeline\(\): programs\[1\]\.file is not a string: undefined$/],
    [[first, { file: 'cat', args: '-n' }], /programs\[1\]\.args is not an array: '-n'$/],
    [[first, { file: 'cat', uid: NaN }], /programs\[1\]\.uid is not/],
    [[first, { file: 'cat', umask: '9' }], /programs\[1\]\.umask is not/],
    [[first, { file: 'cat', maxBuffer: 5 }], /programs\[1\]\.maxBuffer is an option of run/],
  ]) {
    await assert.rejects(runPipeline(programs), { message });
  }
  await assert.rejects(runPipeline([first], 'x'), { message: /^runPipeline\(\): options is not an object: 'x'$/ });
  assert.deepStrictEqual(fs.readdirSync(place), []);
  fs.rmSync(place, { recursive: true });
});

test('limits are for all together', async () => {
  const late = await runPipeline([['sh', '-c', 'echo some; sleep 60 & wait'], ['cat']], { timeout: 300, killGroup: true });
  assert.deepStrictEqual([late.stdout, late.timedOut, late.ends[0].signal], ['some\n', true, 'SIGKILL']);
  assert.ok((await runPipeline([['sleep', '60'], ['true']], { timeout: 200 })).timedOut);
  const long = await runPipeline([['yes'], ['cat']], { maxBuffer: 10 });
  assert.deepStrictEqual([long.stdout, long.truncated], ['y\n'.repeat(5), true]);
  const control = new AbortController();
  setTimeout(() => control.abort(new Error('enough')), 100);
  await assert.rejects(runPipeline([['sleep', '60'], ['sleep', '60']], { signal: control.signal }), /enough/);
});
