'use strict';

// Children on a terminal.

const assert = require('node:assert');
const fs = require('node:fs');
const { once } = require('node:events');
const { test } = require('node:test');
const { LaunchError, prepare, run, runPipeline, spawn } = require('..');
const { runs } = require('./processes.js');

async function screen(pty) {
  let text = '';
  for await (const chunk of pty) text += chunk;
  return text;
}

test('a program has the terminal', async () => {
  const line = 'tty; tty <&2; stty size; test $(ps -o sid= -p $$) = $$ && echo s; test -t 1 && echo yes > /dev/tty';
  const child = spawn('sh', ['-c', line], { pty: { rows: 30, columns: 100 } });
  const { path } = child.pty;
  assert.match(path, /^\/dev\/pts\/\d+$/);
  assert.strictEqual(child.stdin, null);
  assert.deepStrictEqual((await screen(child.pty)).split('\r\n'), [path, path, '30 100', 's', 'yes', '']);
  assert.deepStrictEqual(await child.wait(), { code: 0, signal: null });
});

test('what is typed, sizes, and keys that signal', async () => {
  const child = spawn('wc', ['-l'], { pty: true });
  child.pty.echo(false);
  child.pty.write('one\ntwo\n', () => child.pty.sendEof());
  assert.strictEqual(await screen(child.pty), '2\r\n');
  const sleep = spawn('sleep', ['60'], { pty: true });
  sleep.pty.resume();
  sleep.pty.write('\x03');
  assert.deepStrictEqual(await sleep.wait(), { code: null, signal: 'SIGINT' });
  const sized = spawn('sh', ['-c', "trap 'stty size; exit' WINCH; echo; while :; do sleep 0.01; done"], { pty: true });
  await once(sized.pty, 'readable');
  sized.pty.resize(50, 120);
  assert.deepStrictEqual([sized.pty.rows, sized.pty.columns], [50, 120]);
  assert.strictEqual(await screen(sized.pty), '\r\n50 120\r\n');
});

test('streams that are set stay', async () => {
  const child = spawn('sh', ['-c', 'test -t 0 && echo out; echo err >&2'], { pty: true, stdio: [null, 'pipe'] });
  let out = '';
  child.stdout.on('data', (chunk) => { out += chunk; });
  assert.strictEqual(await screen(child.pty), 'err\r\n');
  await child.wait();
  assert.strictEqual(out, 'out\n');
  const none = spawn('sh', ['-c', 'cat; test -t 0 || echo null > /dev/tty'], { pty: true, stdio: 'ignore' });
  assert.strictEqual(await screen(none.pty), 'null\r\n');
  const merged = spawn('sh', ['-c', 'echo out; echo err >&2'], { pty: true, merged: true });
  assert.strictEqual(await screen(merged.pty), 'out\r\nerr\r\n');
  const piped = spawn('sh', ['-c', 'echo out; echo err >&2; test -t 0 && echo in > /dev/tty'], { pty: true, merged: true, stdio: [null, 'pipe'] });
  const [onScreen, inPipe] = await Promise.all([screen(piped.pty), piped.stdout.toArray()]);
  assert.deepStrictEqual([onScreen, inPipe.join('')], ['in\r\n', 'out\nerr\n']);
});

test('much output, and no end, is lost', async () => {
  const child = spawn('seq', ['100000'], { pty: true });
  assert.strictEqual(await screen(child.pty), Array.from({ length: 100000 }, (_, n) => `${n + 1}\r\n`).join(''));
});

test('destroy() hangs up, and nothing is left', async () => {
  const count = () => fs.readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return fs.readlinkSync(`/proc/self/fd/${fd}`).includes('pt');
    } catch {
      return false;
    }
  }).length;
  const before = count();
  const child = spawn('sleep', ['60'], { pty: true });
  child.pty.destroy();
  assert.deepStrictEqual(await child.wait(), { code: null, signal: 'SIGHUP' });
  assert.throws(() => spawn('true', { pty: true, noSuchOption: 1 }), /noSuchOption|no_such_option/);
  const missing = spawn('/nonexistent/program', [], { pty: true });
  const [error] = await once(missing, 'error');
  assert.ok(error instanceof LaunchError);
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.strictEqual(count(), before);
});

test('the end of a worker hangs up its terminals', async () => {
  const own = JSON.stringify(require('node:path').join(__dirname, '..'));
  const code = `const { pid } = require(${own}).spawn('sleep', ['60'], { pty: true }); require('node:worker_threads').parentPort.postMessage(pid); setInterval(() => {}, 1000)`;
  const worker = new (require('node:worker_threads').Worker)(code, { eval: true });
  const [pid] = await once(worker, 'message');
  await worker.terminate();
  for (let n = 0; n < 500 && runs(pid); n += 1) await new Promise((resolve) => setTimeout(resolve, 10));
  assert.ok(!runs(pid), 'it runs');
});

test('where it is not possible, an error says so', async () => {
  for (const pty of [{ rows: -1 }, { columns: 1.5 }]) assert.throws(() => spawn('true', [], { pty }), /^TypeError: pty/);
  assert.throws(() => spawn('true', [], { pty: 'yes' }), /^TypeError: spawn\(\): pty is not/);
  assert.throws(() => spawn('true', [], { pty: { row: 3 } }), /^TypeError: there is no option pty\.row$/);
  assert.throws(() => prepare('true', [], { pty: true }), /pty is an option of spawn/);
  await assert.rejects(run('true', [], { pty: true }), /pty is an option of spawn/);
  await assert.rejects(runPipeline([['true']], { pty: true }), /pty is an option of spawn/);
});
