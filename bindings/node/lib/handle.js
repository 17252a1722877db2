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

// Node frees a handle only after it has seen a launch, even one that failed. libuv refuses this one before it forks.
function release(handle) {
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
  const stdio = [];
  for (const one of options.stdio ?? []) {
    const what = toDescriptor(one);
    if (what === undefined) return undefined;
    stdio.push(what);
  }
  return {
    file,
    args: args.join('\0'),
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

// The programs of lines that run without the shell, by PID.
const lines = new Map();

// process.kill() calls it. The shell would have died of a signal to this PID; its program's own death is reported as the shell does.
function watchedKill(original) {
  return function _kill(pid, signal) {
    const answer = original.call(this, pid, signal);
    if (answer === 0) lines.get(pid)?.note(signal);
    return answer;
  };
}

function ended(code, signal) {
  lines.delete(this[kProcess].pid);
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

// Starts a child for a handle by `start(onExit, handle)`. Returns 0, or the addon's description of the failure.
function begin(handle, stdio, start) {
  handle[kOurs] = true;
  const child = start(ended, handle);
  if (child.errno !== undefined) {
    return REPORTED.has(child.errno) ? openClosed(stdio, child) : child;
  }
  handle[kProcess] = child;
  handle.pid = child.pid;
  if (child.isLine) lines.set(child.pid, child);
  const ends = child.takePipes();
  for (const one of stdio) {
    if (toDescriptor(one) === PIPE) one.handle.open(ends.shift());
  }
  return 0;
}

// The functions of a handle, in place of libuv's.
const ours = {
  spawn(...low) {
    const options = toOptions(low);
    const request = mayLaunch() ? toRequest(options) : undefined;
    if (request === undefined) return own.spawn.apply(this, low);
    const failure = begin(this, options.stdio, (onExit, self) => native.spawn(request, onExit, self));
    return failure && failure.errno;
  },
  kill(signal) {
    if (!this[kOurs]) return own.kill.call(this, signal);
    return this[kProcess]?.kill(signal) ?? -ESRCH;
  },
  close(callback) {
    if (this[kOurs]) {
      this[kOurs] = false;
      release(this);
    }
    return own.close.call(this, callback);
  },
  ref() {
    if (this[kOurs]) this[kProcess]?.ref();
    else own.ref.call(this);
  },
  unref() {
    if (this[kOurs]) this[kProcess]?.unref();
    else own.unref.call(this);
  },
  hasRef() {
    return this[kOurs] ? Boolean(this[kProcess]?.hasRef()) : own.hasRef.call(this);
  },
};

// Node's permission model is about what the process may do, whoever does it.
function mayLaunch() {
  return process.permission?.has('child') !== false;
}

module.exports = { Process, begin, mayLaunch, ours, own, signalName, toOptions, toRequest, watchedKill, PIPE };
