'use strict';

// Cgroups. Limits need controllers of version 2, which a machine with those of version 1 does not hand down.

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const { Cgroup, Sandbox, prepare, run, runSync, spawn } = require('..');

function writable(place) {
  try {
    fs.accessSync(place, fs.constants.W_OK);
    return fs.existsSync(path.join(place, 'cgroup.procs'));
  } catch {
    return false;
  }
}

function parentOf() {
  const found = ['/sys/fs/cgroup', '/sys/fs/cgroup/unified'].find(writable);
  if (!found) console.log('SKIPPED: cgroups, because no cgroup of version 2 is writable here');
  return found;
}

const parent = parentOf();
const options = { skip: !parent };

test('a program starts in it, and what is left ends with it', options, async () => {
  const group = new Cgroup({ parent });
  const seen = await run('cat', ['/proc/self/cgroup'], { cgroup: group });
  assert.ok(seen.stdout.includes(`/${path.basename(group.path)}\n`), seen.stdout);
  const child = spawn('sh', ['-c', "trap '' TERM; setsid sleep 600 & sleep 600"], { cgroup: group, stdio: 'ignore' });
  assert.strictEqual(group.counters('cgroup.events').populated, 1);
  assert.strictEqual(await group.waitEmpty(5), false);
  for (const wrong of [NaN, -1]) await assert.rejects(group.waitEmpty(wrong), { code: 'ERR_OUT_OF_RANGE', message: /^waitEmpty\(\): timeout is not/ });
  await assert.rejects(group.terminate('20'), { code: 'ERR_INVALID_ARG_TYPE', message: /^terminate\(\): grace is not .*'20'/ });
  assert.throws(() => group.signal('SIGNONE'), { code: 'ERR_UNKNOWN_SIGNAL' });
  await group.end();
  assert.deepStrictEqual(await child.wait(), { code: null, signal: 'SIGKILL' });
  assert.strictEqual(fs.existsSync(group.path), false);
  assert.throws(() => group.kill(), { code: 'ENODEV', message: /removed/ });
});

test('its processes are asked to end, and then killed', options, async () => {
  const group = new Cgroup({ parent });
  const polite = spawn('sleep', ['600'], { cgroup: group, stdio: 'ignore' });
  assert.strictEqual(await group.terminate(60_000), true);
  assert.deepStrictEqual(await polite.wait(), { code: null, signal: 'SIGTERM' });
  const stubborn = spawn('sh', ['-c', "trap '' TERM; echo; while :; do sleep 1; done"], { cgroup: group });
  await new Promise((resolve) => stubborn.stdout.once('data', resolve));
  assert.strictEqual(await group.terminate(20), false);
  assert.deepStrictEqual(await stubborn.wait(), { code: null, signal: 'SIGKILL' });
  await group.end();
});

test('limits', options, async (t) => {
  for (const [limits, file, value] of [
    [{ memoryMax: '64M' }, 'memory.max', String(64 << 20)],
    [{ tasksMax: 20 }, 'pids.max', '20'],
    [{ cpuMax: 1.5 }, 'cpu.max', '150000 100000'],
  ]) {
    let group;
    try {
      group = new Cgroup({ parent, ...limits });
    } catch (error) {
      assert.match(error.message, /no controller/);
      console.log(`SKIPPED: the limit ${file}, because ${error.message}`);
      continue;
    }
    assert.strictEqual(group.get(file), value);
    if (limits.memoryMax) {
      const script = 'Buffer.alloc(1 << 30, 1)';
      assert.strictEqual((await run(process.execPath, ['-e', script], { cgroup: group })).signal, 'SIGKILL');
      assert.ok(group.oomKills() > 0);
    }
    await group.end();
  }
});

test('wrong cgroups are errors', options, () => {
  for (const wrong of [null, 7, { parent: 7 }, { memory: 1 }, { memoryMax: -1 }, { tasksMax: '1' }, { cpuMax: 0 }, { ioMax: 1 }]) {
    assert.throws(() => new Cgroup(wrong), TypeError, JSON.stringify(wrong));
  }
  assert.throws(() => new Cgroup({ parent: '/no/such/place' }), { code: 'ENOENT', message: /no\/such\/place/ });
  assert.throws(() => new Cgroup({ parent: '/tmp' }), { code: 'EINVAL', message: /not a cgroup/ });
});

const groups = () => fs.readdirSync(parent).filter((name) => name.startsWith(`forkless-${process.pid}`));
const none = { oomKills: 0, memoryMax: 0, tasksMax: 0 };

test('a launch with a cgroup of its own leaves nothing', options, async () => {
  // What it leaves holds the pipe.
  const words = ['sh', ['-c', 'setsid sleep 600 & echo done'], { cgroupParent: parent }];
  const done = await run(...words);
  assert.deepStrictEqual([done.stdout, done.limitEvents], ['done\n', none]);
  const sync = runSync(...words);
  assert.deepStrictEqual([sync.stdout, sync.limitEvents], ['done\n', none]);
  const child = prepare(...words).spawn();
  assert.deepStrictEqual(await child.wait(), { code: 0, signal: null });
  assert.deepStrictEqual(child.limitEvents, none);
  assert.deepStrictEqual(groups(), []);
  assert.strictEqual((await run('true')).limitEvents, undefined);
  const sandbox = new Sandbox({ mode: 'landlock', cgroupParent: parent, memoryMax: undefined });
  try {
    sandbox.check();
  } catch {
    return;
  }
  const inside = await run('sh', words[1], { sandbox, cwd: '/' });
  assert.deepStrictEqual([inside.stdout, inside.limitEvents], ['done\n', none]);
  assert.throws(() => new Sandbox({ tasksMax: 'many' }), /tasksMax must be/);
  assert.throws(() => new Sandbox({ tasksMax: [1] }), /neither a number nor a string/);
});

test('a kill and a timeout end all of a launch', options, async () => {
  const words = ['sh', ['-c', "trap '' TERM; setsid sleep 600 & sleep 600; sleep 600"]];
  const { timedOut } = await run(...words, { cgroupParent: parent, timeout: 200, killSignal: 'SIGKILL' });
  assert.ok(timedOut);
  assert.deepStrictEqual(groups(), []);
  for (const kill of [(child) => child.kill('SIGKILL'), (child) => child.killGroup()]) {
    const child = spawn(...words, { cgroupParent: parent, detached: true, stdio: 'ignore' });
    assert.strictEqual(groups().length, 1);
    kill(child);
    assert.deepStrictEqual(await child.wait(), { code: null, signal: 'SIGKILL' });
    assert.deepStrictEqual(groups(), []);
  }
});

test('a limit of a launch that is none is an error, and so is one that cannot be had', async () => {
  for (const [limit, said] of [
    [{ memoryMax: 'lots' }, /memoryMax must be/],
    [{ tasksMax: 1.5 }, /tasksMax must be/],
    [{ cpuMax: '150%' }, /cpuMax must be/],
    [{ ioMax: [1] }, /neither a number nor a string/],
    [{ memoryMax: 2 ** 40, cgroupParent: '/tmp' }, /not a cgroup of version 2/],
    [{ memoryMax: '1M', cgroupParent: '/no/such' }, /name a parent by cgroupParent/],
  ]) {
    await assert.rejects(run('true', [], limit), said);
  }
  const { code } = await run('true', [], { memoryMax: Infinity, cgroupParent: '/tmp', bestEffort: ['make a cgroup for limits'] });
  assert.strictEqual(code, 0);
});
