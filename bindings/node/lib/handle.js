'use strict';

// Puts forkless under Node's own process handle: the object `_handle` of a ChildProcess, whose functions call libuv.
//
// Node's JavaScript around it stays: streams, IPC, AbortSignal, timeouts and errors. The handle's `spawn(options)` answers with 0
// or a negated errno, sets `pid`, opens the pipes in `options.stdio`, and calls `onexit(code, signal)` at the end.

const os = require('node:os');
const { ChildProcess } = require('node:child_process');
const native = require('./native.js');
const { toSettings } = require('./settings.js');

const NULL = -1;
const PIPE = -2;

// The number by which the addon knows the child.
const kProcess = Symbol('forkless.process');
const kOurs = Symbol('forkless.ours');

const SIGNALS = new Map(Object.entries(os.constants.signals).map(([name, number]) => [number, name]));
// SIGABRT and SIGIO have second names, which libuv does not use.
for (const name of ['SIGABRT', 'SIGIO', 'SIGSYS']) SIGNALS.set(os.constants.signals[name], name);

function signalName(number) {
  return SIGNALS.get(number) ?? '';
}

// Node's class of handles, which is internal: it is taken from an instance, as are the functions that forkless replaces.
const probe = new ChildProcess()._handle;
const Process = probe.constructor;

const own = {};
for (const name of ['spawn', 'kill', 'close', 'ref', 'unref', 'hasRef']) own[name] = Process.prototype[name];

// How ChildProcess calls the handle's `spawn`: with one object, or since Node 24 with a list of arguments, where this is the flag of
// `detached`.
const detachedFlag = (() => {
  const child = new ChildProcess();
  const handle = child._handle;
  let flag;
  handle.spawn = (...low) => {
    if (typeof low[0] === 'string') flag = low[5];
    return -os.constants.errno.EINVAL;
  };
  try {
    ChildProcess.prototype.spawn.call(child, { file: 'probe', args: ['probe'], envPairs: [], stdio: 'ignore', detached: true });
  } catch {
    // The refusal above.
  }
  return flag;
})();

// What libuv would get, as one object.
function toOptions(low) {
  if (typeof low[0] !== 'string') return low[0];
  const [file, args, cwd, envPairs, stdio, flags, uid, gid] = low;
  return { file, args, cwd, envPairs, stdio, detached: (flags & detachedFlag) !== 0, uid, gid };
}

// From 1.52 on libuv takes a handle whose launch it refuses out of its list of handles, and again when the handle is closed: that
// writes to memory which is no longer the list's.
const [major, minor] = process.versions.uv.split('.').map(Number);
const removesTwice = major === 1 && minor >= 52;

// Node frees a handle only after it has seen a launch, even one that failed. libuv refuses this one before it forks. Where that is
// not safe, the handle stays, but keeps nothing else: neither the ChildProcess, nor its streams.
function release(handle) {
  if (removesTwice) {
    for (const key of Reflect.ownKeys(handle)) delete handle[key];
    return;
  }
  const stdio = [{ type: 'fd', fd: -1 }];
  if (detachedFlag === undefined) own.spawn.call(handle, { file: '', args: [''], detached: false, stdio });
  else own.spawn.call(handle, '', [''], undefined, [], stdio, 0, undefined, undefined);
}

if (mayLaunch()) {
  release(probe);
  probe.close();
}

// What libuv's options are for the addon. Undefined: something that only libuv can do.
function toRequest(options, settings) {
  const { file, args, envPairs, cwd, detached, uid, gid } = options;
  // Node accepts a Buffer, which its binding reads in one way for spawn and in another for spawnSync.
  if (cwd != null && typeof cwd !== 'string') return undefined;
  // For libuv, no arguments are none at all, and no variables are those of the process.
  if (!Array.isArray(args) || !Array.isArray(envPairs)) return undefined;
  const stdio = [];
  for (const one of options.stdio ?? []) {
    const what = toDescriptor(one);
    if (what === undefined) return undefined;
    stdio.push(what);
  }
  return {
    file,
    // Not args.join alone, which makes nothing of null and undefined.
    args: args.map((arg) => `${arg}`).join('\0'),
    argsCount: args.length,
    env: envPairs.join('\0'),
    envCount: envPairs.length,
    cwd: cwd || undefined,
    detached: Boolean(detached),
    uid: uid ?? undefined,
    gid: gid ?? undefined,
    stdio,
    settings: settings && toSettings(settings),
  };
}

function toDescriptor({ type, fd, handle }) {
  switch (type) {
    case 'ignore':
      return NULL;
    case 'pipe':
    case 'overlapped':
      return PIPE;
    case 'fd':
    case 'inherit':
      return Number.isInteger(fd) && fd >= 0 ? fd : undefined;
    case 'wrap':
      return Number.isInteger(handle?.fd) && handle.fd >= 0 ? handle.fd : undefined;
    default:
      return undefined;
  }
}

// The programs of lines that run without the shell: their numbers, by PID.
const lines = new Map();

// process.kill() calls it. The shell would have died of a signal to this PID; its program's own death is reported as the shell does.
function watchedKill(original) {
  return function _kill(pid, signal) {
    const answer = original.call(this, pid, signal);
    if (answer === 0 && lines.has(pid)) native.note(lines.get(pid), signal);
    return answer;
  };
}

function ended(code, signal) {
  lines.delete(this.pid);
  this[kProcess] = undefined;
  this.onexit(code, signalName(signal));
}

// After these errors Node makes streams of the pipes, which must be open.
const { EACCES, EAGAIN, ENOENT, ESRCH } = os.constants.errno;
const REPORTED = new Set([-EACCES, -EAGAIN, -ENOENT]);

function openClosed(stdio, failure) {
  for (const one of stdio) {
    if (toDescriptor(one) !== PIPE) continue;
    const fd = native.closedPipe();
    if (fd < 0) return { ...failure, errno: fd };
    one.handle.open(fd);
  }
  return failure;
}

// Starts a child for a handle by `launch()`. Returns 0, or the addon's description of the failure.
function begin(handle, stdio, launch) {
  handle[kOurs] = true;
  const ends = launch();
  if (!Array.isArray(ends)) return REPORTED.has(ends.errno) ? openClosed(stdio, ends) : ends;
  // The child goes on to its program meanwhile. If that fails, the other ends of these pipes are closed.
  let next = 0;
  for (const one of stdio) {
    if (toDescriptor(one) === PIPE) one.handle.open(ends[next++]);
  }
  const child = native.executed(ended, handle);
  if (!Array.isArray(child)) return child;
  const [number, pid, isLine] = child;
  handle[kProcess] = number;
  handle.pid = pid;
  if (isLine) lines.set(pid, number);
  return 0;
}

// Why the launch of a handle's child was not warm. Undefined if it was, or if it was not to be.
function coldReason(handle) {
  return (handle[kProcess] !== undefined && native.coldReason(handle[kProcess])) || undefined;
}

// The functions of a handle, in place of libuv's.
const ours = {
  spawn(...low) {
    const options = toOptions(low);
    const request = mayLaunch() ? toRequest(options) : undefined;
    if (request === undefined) return own.spawn.apply(this, low);
    const failure = begin(this, options.stdio, () => native.launch(request));
    return failure && failure.errno;
  },
  kill(signal) {
    if (!this[kOurs]) return own.kill.call(this, signal);
    return this[kProcess] === undefined ? -ESRCH : native.kill(this[kProcess], signal);
  },
  close(callback) {
    if (this[kOurs]) {
      this[kOurs] = false;
      // A closed handle reports no end.
      if (this[kProcess] !== undefined) native.leave(this[kProcess]);
      lines.delete(this.pid);
      this[kProcess] = undefined;
      release(this);
    }
    return own.close.call(this, callback);
  },
  ref() {
    if (!this[kOurs]) own.ref.call(this);
    else if (this[kProcess] !== undefined) native.setRef(this[kProcess], true);
  },
  unref() {
    if (!this[kOurs]) own.unref.call(this);
    else if (this[kProcess] !== undefined) native.setRef(this[kProcess], false);
  },
  hasRef() {
    if (!this[kOurs]) return own.hasRef.call(this);
    return this[kProcess] !== undefined && native.hasRef(this[kProcess]);
  },
};

// Node's permission model is about what the process may do, whoever does it.
function mayLaunch() {
  return process.permission?.has('child') !== false;
}

module.exports = { Process, begin, coldReason, lines, mayLaunch, ours, own, signalName, toOptions, toRequest, watchedKill, PIPE };
