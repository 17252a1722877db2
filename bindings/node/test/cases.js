'use strict';

// What child_process does, one function a case. play.js plays them in a process with and in one without forkless under
// child_process; differential.test.js compares the answers. An answer must not depend on time, nor contain a PID.

const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { promisify } = require('node:util');
const { AsyncLocalStorage } = require('node:async_hooks');
const { once } = require('node:events');
const cp = require('node:child_process');

const place = fs.mkdtempSync(path.join(os.tmpdir(), 'forkless-node-'));
process.on('exit', () => fs.rmSync(place, { recursive: true, force: true }));

const isRoot = process.getuid() === 0;

function told(error) {
  if (!error) return null;
  const { name, message, code, errno, syscall, path: file, spawnargs, status, signal, killed, cmd } = error;
  return { name, message, code, errno, syscall, file, spawnargs, status, signal, killed, cmd };
}

function attempt(how) {
  try {
    return how();
  } catch (error) {
    return told(error);
  }
}

// All events of a child, with what it wrote.
async function watched(child, last = 'close') {
  const seen = { events: [], out: '', err: '', spawnfile: child.spawnfile, spawnargs: child.spawnargs };
  seen.hasPid = Number.isInteger(child.pid);
  child.stdout?.on('data', (data) => (seen.out += data));
  child.stderr?.on('data', (data) => (seen.err += data));
  child.on('spawn', () => seen.events.push(['spawn']));
  child.on('error', (error) => seen.events.push(['error', told(error)]));
  child.on('exit', (code, signal) => seen.events.push(['exit', code, signal]));
  child.on('close', (code, signal) => seen.events.push(['close', code, signal]));
  // Without pipes a child with a channel is not always closed.
  await new Promise((resolve) => child.on(last, () => setImmediate(() => setImmediate(resolve))));
  return { ...seen, exitCode: child.exitCode, signalCode: child.signalCode, killed: child.killed, connected: child.connected };
}

const sh = (line, options) => cp.spawn('/bin/sh', ['-c', line], options);
const shSync = (line, options) => synced(cp.spawnSync('/bin/sh', ['-c', line], options));

function synced({ pid, error, ...rest }) {
  return { hasPid: pid > 0, error: told(error), ...rest, output: undefined, outputs: rest.output?.map((one) => one && `${one}`) };
}

// Node and libuv in this process have descriptors of their own; what a child has is only the standard ones and the listing's.
const DESCRIPTORS = 'cd /proc/self/fd && for n in 0 1 2 3 4 5 6 7 8 9; do if [ -e $n ] || [ -L $n ]; then printf "$n "; fi; done';

module.exports.place = place;

module.exports.cases = {
  async 'exit codes'() {
    return Promise.all([0, 1, 3, 127, 255].map((code) => watched(sh(`exit ${code}`))));
  },

  async 'signals that kill'() {
    return Promise.all(['HUP', 'INT', 'QUIT', 'ABRT', 'KILL', 'USR1', 'TERM', 'SYS'].map((name) => watched(sh(`ulimit -c 0; kill -${name} $$`))));
  },

  async 'realtime signal that kills'() {
    return watched(sh('kill -40 $$'));
  },

  async 'output and errors'() {
    return watched(sh('echo out; echo err >&2; exit 2'));
  },

  async 'a large output'() {
    const { out, ...rest } = await watched(sh('i=0; while [ $i -lt 20000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done'));
    return { length: out.length, ...rest };
  },

  async 'input goes through'() {
    const child = cp.spawn('cat');
    child.stdin.end('some text\n'.repeat(10000));
    const { out, ...rest } = await watched(child);
    return { length: out.length, ...rest };
  },

  async 'program that does not exist'() {
    return Promise.all([watched(cp.spawn('no-such-program', ['a', 'b'])), watched(cp.spawn('/no/such/program'))]);
  },

  async 'program that may not be executed'() {
    const file = path.join(place, 'plain');
    fs.writeFileSync(file, 'exit 3\n', { mode: 0o644 });
    return (await watched(cp.spawn(file))).events.map(([name, error]) => [name, error?.code ?? error]);
  },

  async 'directory as a program'() {
    return (await watched(cp.spawn('/'))).events.map(([name, error]) => [name, error?.code ?? error]);
  },

  async 'script without an interpreter line'() {
    const file = path.join(place, 'script');
    fs.writeFileSync(file, 'echo $# $1; cat; echo err >&2; exit 3\n', { mode: 0o755 });
    // libuv runs it by the shell where it forks, which it may do for a change of IDs alone.
    const answers = [];
    const ids = isRoot ? [{}, { uid: 0 }, { gid: 0 }, { uid: 0, gid: 0 }] : [{}];
    for (const options of [...ids, ...ids]) {
      const child = attempt(() => cp.spawn(file, ['x y'], options));
      child.stdin?.end('input');
      answers.push(child instanceof cp.ChildProcess ? await watched(child) : child);
      answers.push(synced(cp.spawnSync(file, ['x y'], { input: 'input', ...options })));
    }
    return answers;
  },

  async 'script with a missing interpreter'() {
    const file = path.join(place, 'broken');
    fs.writeFileSync(file, '#!/no/such/interpreter\n', { mode: 0o755 });
    return (await watched(cp.spawn(file))).events.map(([name, error]) => [name, error?.code ?? error]);
  },

  async 'file that is no program'() {
    const file = path.join(place, 'binary');
    fs.writeFileSync(file, Buffer.from([0x7f, 0x45, 0x4c, 0x46, 9, 9, 9, 9]), { mode: 0o755 });
    const answer = attempt(() => cp.spawn(file, { stdio: 'ignore' }));
    return answer instanceof cp.ChildProcess ? (await watched(answer)).events : { code: answer.code };
  },

  async 'search in the PATH of the child'() {
    const [one, two] = ['one', 'two'].map((name) => path.join(place, name));
    for (const directory of [one, two]) {
      fs.mkdirSync(directory, { recursive: true });
      fs.writeFileSync(path.join(directory, 'here'), `#!/bin/sh\necho ${path.basename(directory)}\n`, { mode: 0o755 });
    }
    fs.chmodSync(path.join(one, 'here'), 0o644);
    const of = async (PATH) => {
      const { out, events } = await watched(cp.spawn('here', { env: { PATH } }));
      return { out, events: events.map(([name, error]) => [name, error?.code ?? error]) };
    };
    return [await of(`${one}:${two}`), await of(`${two}:${one}`), await of(one), await of(''), await of('/nowhere')];
  },

  async 'no PATH in the environment'() {
    return watched(cp.spawn('env', { env: { A: '1' } }));
  },

  async 'environment, in its order'() {
    return watched(cp.spawn('/usr/bin/env', { env: { Z: '1', A: '2', EMPTY: '', M: 'ä=ö', U: undefined, N: 3 } }));
  },

  async 'arguments of every kind'() {
    return watched(cp.spawn('printf', ['[%s]', '', ' ', '\n', '"$HOME"', 'ä€😀', '\ud800', '-n', '*']));
  },

  async 'arguments that are not strings'() {
    const args = ['[%s]', undefined, null, 5, true, {}, [1, 2]];
    return [await watched(cp.spawn('printf', args)), synced(cp.spawnSync('printf', args))];
  },

  async 'working directory as bytes'() {
    const cwd = Buffer.from('/usr');
    return [(await watched(cp.spawn('pwd', { cwd }))).events, synced(cp.spawnSync('pwd', { cwd }))];
  },

  async 'argv0'() {
    return watched(cp.spawn('/bin/sh', ['-c', 'cat /proc/$$/cmdline | tr "\\0" " "'], { argv0: 'another name' }));
  },

  async 'working directory'() {
    return Promise.all([watched(sh('pwd', { cwd: '/usr' })), watched(sh('pwd', { cwd: new URL('file:///usr/bin') })), watched(sh('pwd', { cwd: '/no/such/directory' }))]);
  },

  async 'working directory that is a file'() {
    const answer = attempt(() => sh('pwd', { cwd: '/etc/passwd', stdio: 'ignore' }));
    return answer instanceof cp.ChildProcess ? (await watched(answer)).events : answer;
  },

  async 'relative program after a change of directory'() {
    fs.writeFileSync(path.join(place, 'local'), '#!/bin/sh\necho local\n', { mode: 0o755 });
    return (await watched(cp.spawn('./local', { cwd: place }))).out;
  },

  'invalid arguments'() {
    const wrong = [[''], ['a\0b'], ['true', ['a\0b']], ['true', [], { cwd: 'a\0b' }], ['true', [], { env: { A: 'a\0b' } }],
      ['true', [], { uid: 'x' }], ['true', [], { stdio: 'nonsense' }], ['true', [], { stdio: ['ipc', 'ipc'] }], ['true', [], { timeout: -1 }]];
    return wrong.map((args) => [attempt(() => cp.spawn(...args) && 'started'), attempt(() => cp.spawnSync(...args) && 'run')]);
  },

  async 'stdio: ignore'() {
    return watched(sh('for n in 0 1 2; do readlink /proc/$$/fd/$n; done > ' + path.join(place, 'links'), { stdio: 'ignore' }))
      .then((seen) => [seen, fs.readFileSync(path.join(place, 'links'), 'utf8')]);
  },

  async 'access modes of /dev/null'() {
    const file = path.join(place, 'modes');
    await watched(sh(`for n in 0 1 2; do grep flags /proc/$$/fdinfo/$n; done > ${file}`, { stdio: 'ignore' }));
    return fs.readFileSync(file, 'utf8').split('\n').map((line) => line.slice(-1));
  },

  async 'stdio: descriptors and files'() {
    const file = path.join(place, 'both');
    const fd = fs.openSync(file, 'w');
    const seen = await watched(sh('echo out; echo err >&2', { stdio: ['ignore', fd, fd] }));
    fs.closeSync(fd);
    return [seen, fs.readFileSync(file, 'utf8')];
  },

  async 'stdio: a stream'() {
    const file = path.join(place, 'stream');
    const stream = fs.createWriteStream(file);
    await once(stream, 'open');
    const seen = await watched(sh('echo out', { stdio: ['ignore', stream, 'pipe'] }));
    stream.end();
    return [seen, fs.readFileSync(file, 'utf8')];
  },

  async 'stdio: a socket'() {
    const server = net.createServer((socket) => sh('echo through the socket', { stdio: ['ignore', socket, 'ignore'] }).on('exit', () => socket.destroy()));
    server.listen(path.join(place, 'socket'));
    await once(server, 'listening');
    const client = net.connect(path.join(place, 'socket'));
    let text = '';
    client.on('data', (data) => (text += data));
    await once(client, 'close');
    server.close();
    return text;
  },

  async 'stdio: further descriptors'() {
    const child = sh('read line <&3; echo "got $line" >&4; echo five >&5', { stdio: ['ignore', 'pipe', 'pipe', 'pipe', 'pipe', 'pipe'] });
    const texts = ['', ''];
    [4, 5].forEach((number, at) => child.stdio[number].on('data', (data) => (texts[at] += data)));
    child.stdio[3].end('hello\n');
    return [await watched(child), texts, child.stdio.map((one) => one?.constructor.name)];
  },

  async 'stdio: forty pipes'() {
    const stdio = Array.from({ length: 40 }, () => 'pipe');
    const child = cp.spawn('/bin/bash', ['-c', 'cat <&38 >&39'], { stdio });
    child.stdio[38].end('through');
    let text = '';
    child.stdio[39].on('data', (data) => (text += data));
    const sync = cp.spawnSync('/bin/bash', ['-c', 'echo last >&39'], { stdio });
    return [await watched(child), text, sync.status, `${sync.output[39]}`];
  },

  async 'stdio: one that is closed in between'() {
    return (await watched(sh(DESCRIPTORS, { stdio: ['ignore', 'pipe', 'pipe', 'ignore', 'pipe'] }))).out.startsWith('0 1 2');
  },

  async 'pipes are sockets'() {
    return (await watched(sh('for n in 0 1 2; do readlink /proc/$$/fd/$n; done'))).out.replace(/\d+/g, 'N');
  },

  async 'stdio: inherit is in blocking mode'() {
    const [ours, theirs] = [path.join(place, 'fifo')].flatMap((fifo) => {
      cp.execFileSync('mkfifo', [fifo]);
      const reader = fs.openSync(fifo, fs.constants.O_RDWR | fs.constants.O_NONBLOCK);
      return [reader, reader];
    });
    const seen = await watched(sh('line=$(grep flags /proc/$$/fdinfo/1); echo "$line" >&2', { stdio: ['ignore', ours, 'pipe'] }));
    fs.closeSync(theirs);
    return seen.err;
  },

  async 'descriptors of this process do not leak'() {
    const fds = Array.from({ length: 20 }, () => fs.openSync('/dev/null'));
    const seen = await watched(cp.spawn('/bin/ls', ['/proc/self/fd'], { stdio: ['ignore', 'pipe', 'pipe'] }));
    fds.forEach((fd) => fs.closeSync(fd));
    // A descriptor that Node was started with above 16 reaches the children of Node, but not ours.
    return seen.out.split('\n').filter((fd) => fd < 100);
  },

  async 'detached is a session of its own'() {
    const line = 'set -- $(cat /proc/$$/stat); [ "$5" = "$$" ] && [ "$6" = "$$" ] && echo leads || echo follows';
    return [(await watched(sh(line, { detached: true }))).out, (await watched(sh(line))).out];
  },

  async 'signal actions and mask of the child'() {
    process.on('SIGUSR2', () => {});
    const seen = await watched(cp.spawn('grep', ['-E', '^Sig(Blk|Ign)', '/proc/self/status']));
    process.removeAllListeners('SIGUSR2');
    return seen.out;
  },

  async 'kill'() {
    const child = cp.spawn('sleep', ['1000']);
    const seeing = watched(child);
    const answers = [child.kill(0), child.kill('SIGTERM')];
    const seen = await seeing;
    return [answers, seen, child.kill(), attempt(() => child.kill('SIGNONSENSE'))];
  },

  async 'timeout'() {
    return watched(cp.spawn('sleep', ['1000'], { timeout: 20, killSignal: 'SIGKILL' }));
  },

  async 'signal that aborts'() {
    const stop = new AbortController();
    const child = cp.spawn('sleep', ['1000'], { signal: stop.signal });
    const seen = watched(child);
    stop.abort(new Error('enough'));
    return [await seen, await watched(cp.spawn('sleep', ['1000'], { signal: AbortSignal.abort() }))];
  },

  async 'ids'() {
    if (!isRoot) return 'SKIPPED: ids because this needs root';
    const options = { uid: 65534, gid: 65534 };
    return Promise.all([watched(cp.spawn('id', options)), watched(cp.spawn('id', { uid: 65534 })), watched(cp.spawn('id', { gid: 65534 })), watched(cp.spawn('pwd', { ...options, cwd: place }))]);
  },

  async 'ids that may not be taken'() {
    if (isRoot) return 'SKIPPED: ids that may not be taken because this needs an ordinary user';
    return attempt(() => cp.spawn('id', { uid: 0 }) && 'started');
  },

  async 'exec'() {
    const of = (...args) => new Promise((resolve) => cp.exec(...args, (error, out, err) => resolve([told(error), `${out}`, `${err}`])));
    return [await of('echo out; echo err >&2'), await of('exit 7'), await of('no-such-program-xyz'), await of('kill -TERM $$'), await of('sleep 1000', { timeout: 20 }),
      await of('while :; do echo 0123456789; done', { maxBuffer: 100 }).then(([error, out]) => [error.code, out]), await of('pwd', { cwd: '/no/such' }), await of('echo $0 $A', { shell: '/bin/bash', env: { A: '1' } })];
  },

  async 'execFile'() {
    const of = (...args) => new Promise((resolve) => cp.execFile(...args, (error, out, err) => resolve([told(error), `${out}`, `${err}`])));
    return [await of('echo', ['a']), await of('false'), await of('no-such-program'), await of('sh', ['-c', 'echo x; exit 2']), await of('cat', ['/dev/zero'], { maxBuffer: 10 }).then(([error, out]) => [error.code, out])];
  },

  async 'promisified forms'() {
    const [exec, execFile] = [promisify(cp.exec), promisify(cp.execFile)];
    return [await exec('echo a; echo b >&2'), await execFile('echo', ['c']), await exec('exit 5').catch((error) => [told(error), error.stdout])];
  },

  async 'shell: true'() {
    return [await watched(cp.spawn('echo "$0" | tr a-z A-Z', { shell: true })), await watched(cp.spawn('echo', ['a', 'b'], { shell: '/bin/sh' })), await watched(cp.spawn('no-such-program-xyz', { shell: true })).then(({ err, ...rest }) => rest)];
  },

  async 'fork with messages'() {
    const child = cp.fork(path.join(__dirname, 'echo.js'), ['a', 'b'], { execArgv: [], silent: true });
    child.send({ deep: [1, 'two', null] });
    const [first] = await once(child, 'message');
    child.disconnect();
    return [first, await watched(child, 'exit')];
  },

  async 'fork with advanced serialization'() {
    const child = cp.fork(path.join(__dirname, 'echo.js'), [], { serialization: 'advanced', execArgv: [] });
    child.send({ map: new Map([[1, 2n]]), bytes: new Uint8Array([1, 2]) });
    const [first] = await once(child, 'message');
    child.disconnect();
    return [String(first.got.map.get(1)), Array.from(first.got.bytes), await watched(child, 'exit')];
  },

  async 'fork that gets a server'() {
    const server = net.createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const child = cp.fork(path.join(__dirname, 'echo.js'), [], { execArgv: [] });
    child.send('serve', server);
    await once(child, 'message');
    const { port } = server.address();
    server.close();
    const client = net.connect(port, '127.0.0.1');
    const [data] = await once(client, 'data');
    client.destroy();
    child.kill();
    return [`${data}`, await watched(child, 'exit')];
  },

  async 'ipc beside other descriptors'() {
    const child = cp.spawn(process.execPath, ['-e', 'process.send(process.env.NODE_CHANNEL_FD === undefined)'], { stdio: ['ignore', 'pipe', 'pipe', 'pipe', 'ipc'] });
    const [answer] = await once(child, 'message');
    return [answer, await watched(child, 'exit')];
  },

  async 'child that closes its channel'() {
    const child = cp.fork(path.join(__dirname, 'echo.js'), [], { execArgv: [] });
    child.send('leave');
    await once(child, 'disconnect');
    return watched(child, 'exit');
  },

  'spawnSync: outcomes'() {
    return [shSync('echo out; echo err >&2; exit 3'), shSync('kill -TERM $$'), shSync('kill -40 $$'), synced(cp.spawnSync('no-such-program')), synced(cp.spawnSync('/')), synced(cp.spawnSync('pwd', { cwd: '/no/such' })), synced(cp.spawnSync('true', { stdio: 'ignore' }))];
  },

  'spawnSync: input'() {
    const text = 'line\n'.repeat(100000);
    return [shSync('wc -c', { input: text }), shSync('cat', { input: Buffer.from('bytes') }), shSync('cat', { input: new Uint16Array([0x4142]) }), shSync('cat', { input: new DataView(new ArrayBuffer(3), 1) }), shSync('cat'), shSync('cat', { input: '' }), shSync('wc -c; cat <&3', { input: 'abc', stdio: ['pipe', 'pipe', 'pipe', 'ignore'] }).status];
  },

  'spawnSync: input that is not read'() {
    const { error, status } = cp.spawnSync('/bin/sh', ['-c', 'exec <&-; sleep 0.1'], { input: Buffer.alloc(10 << 20) });
    return [error?.code, status];
  },

  // The programs end without a timeout, too, so that its absence is a difference.
  'spawnSync: limits'() {
    return [shSync('echo begun; exec sleep 60', { timeout: 200 }).error, shSync('exec sleep 60', { timeout: 20, killSignal: 'SIGKILL' }), shSync('trap "" TERM; echo x; exec sleep 0.3', { timeout: 100 }).error, attempt(() => shSync('exec head -c 1000000 /dev/zero', { maxBuffer: 1000 }).error), shSync('echo 12345', { maxBuffer: 6 }), shSync('echo 12345', { maxBuffer: 5 }).error, shSync('echo 123; echo 456 >&2', { maxBuffer: 8, encoding: 'utf8' }).error];
  },

  'spawnSync: grandchild that holds a pipe'() {
    return shSync('sleep 0.2 & echo parent', { encoding: 'utf8' });
  },

  'spawnSync: stdio'() {
    const file = path.join(place, 'sync');
    const fd = fs.openSync(file, 'w');
    const first = shSync('echo out; echo err >&2; echo three >&3', { stdio: ['ignore', fd, 'pipe', 'pipe'] });
    fs.closeSync(fd);
    return [first, fs.readFileSync(file, 'utf8'), shSync(DESCRIPTORS, { stdio: ['pipe', 'pipe', 'inherit'] }).stdout.toString().startsWith('0 1 2')];
  },

  'spawnSync: settings'() {
    return [shSync('pwd; echo $A', { cwd: '/usr', env: { A: '1' } }), shSync('echo', { argv0: 'x' }).status, isRoot ? shSync('id -u; id -g; id -G', { uid: 65534, gid: 65534 }) : null];
  },

  'spawnSync: output that is transferred'() {
    const { stdout } = cp.spawnSync('echo', ['output']);
    return [stdout.buffer.byteLength, `${Buffer.from(structuredClone(stdout, { transfer: [stdout.buffer] }))}`, stdout.length];
  },

  'execSync and execFileSync'() {
    return [cp.execSync('echo a').toString(), cp.execFileSync('echo', ['b'], { encoding: 'utf8' }), attempt(() => cp.execSync('exit 4', { stdio: 'pipe' })), attempt(() => cp.execFileSync('false')), attempt(() => cp.execFileSync('no-such-program')), attempt(() => cp.execSync('echo to stderr >&2; exit 1', { stdio: 'pipe' })), cp.execSync('cat', { input: 'in' }).toString()];
  },

  async 'asynchronous context of the exit'() {
    const storage = new AsyncLocalStorage();
    return new Promise((resolve) => {
      storage.run('kept', () => cp.spawn('true').on('exit', () => resolve(storage.getStore())));
    });
  },

  async 'order of exit, microtasks and ticks'() {
    const order = [];
    const child = cp.spawn('true', { stdio: 'ignore' });
    child.on('exit', () => {
      order.push('exit');
      process.nextTick(() => order.push('tick'));
      Promise.resolve().then(() => order.push('microtask'));
      setImmediate(() => order.push('immediate'));
    });
    await once(child, 'close');
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
    return order;
  },

  async 'ref and unref'() {
    const child = cp.spawn('sleep', ['1000'], { stdio: 'ignore' });
    const handle = child._handle;
    const states = [handle.hasRef()];
    child.unref();
    states.push(handle.hasRef());
    child.ref();
    states.push(handle.hasRef());
    child.kill();
    await once(child, 'exit');
    return states;
  },

  async 'exit listener that launches again'() {
    const codes = [];
    for (let turn = 0; turn < 5; turn++) {
      const child = sh(`exit ${turn}`, { stdio: 'ignore' });
      codes.push((await once(child, 'exit'))[0]);
    }
    return codes;
  },

  async 'handle after the end'() {
    const child = cp.spawn('true', { stdio: 'ignore' });
    await once(child, 'close');
    return [child._handle, child.kill(), child.exitCode, typeof child.pid];
  },
};
