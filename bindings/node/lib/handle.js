'use strict';

// Puts forkless under Node's own process handle: the object `_handle` of a ChildProcess, whose functions call libuv.
//
// Node's JavaScript around it stays: streams, IPC, AbortSignal, timeouts and errors. The handle's `spawn(options)` returns 0
// or a negated errno, sets `pid`, opens the pipes in `options.stdio`, and calls `onexit(code, signal)` at the end.

const fs = require('node:fs');
const os = require('node:os');
const { clearTimeout, setImmediate, setTimeout } = require('node:timers');
const { ChildProcess } = require('node:child_process');
const native = require('./native.js');
const { toSettings } = require('./settings.js');

const NULL = -1;
const PIPE = -2;

// Of a file's name, in bytes (limits.h).
const NAME_MAX = 255;

// The number by which the addon identifies the child.
const kProcess = Symbol('forkless.process');
const kOurs = Symbol('forkless.ours');
// A function to call with the limits that were reached.
const kLimits = Symbol('forkless.limits');

const SIGNALS = new Map(Object.entries(os.constants.signals).map(([name, number]) => [number, name]));
// These signals have second names, which libuv does not use.
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
let flagOfDetached;
function detachedFlag() {
  flagOfDetached ??= { value: probeDetached() };
  return flagOfDetached.value;
}

function probeDetached() {
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
}

// What libuv would get, as one object.
function toOptions(low) {
  if (typeof low[0] !== 'string') return low[0];
  const [file, args, cwd, envPairs, stdio, flags, uid, gid] = low;
  return { file, args, cwd, envPairs, stdio, detached: (flags & detachedFlag()) !== 0, uid, gid };
}

function spawnByLibuv(handle, file, stdio, uid, gid) {
  const args = [file];
  if (detachedFlag() === undefined) return own.spawn.call(handle, { file, args, envPairs: [], detached: false, stdio, uid, gid });
  return own.spawn.call(handle, file, args, undefined, [], stdio, 0, uid, gid);
}

const { EACCES, EAGAIN, ENOENT, ENOEXEC, ESRCH } = os.constants.errno;

// Whether libuv runs a file without `#!` by /bin/sh: where it forks, it does; by posix_spawn(3), which 1.53 uses unless IDs change,
// it does not. libuv is tried when that matters, once for each combination of IDs.
const byShell = new Map();

function changesOf({ uid, gid }) {
  return `${uid != null} ${gid != null}`;
}

function runsScripts(options) {
  const changes = changesOf(options);
  if (!byShell.has(changes)) {
    const [uid, gid] = [options.uid != null ? process.getuid() : undefined, options.gid != null ? process.getgid() : undefined];
    byShell.set(changes, asksLibuv(uid, gid));
  }
  return byShell.get(changes);
}

function asksLibuv(uid, gid) {
  // An executable file without a byte in it. A shell cannot open it: its descriptor is closed by then.
  const fd = native.emptyProgram();
  if (fd < 0) return true;
  const handle = new Process();
  handle.onexit = () => own.close.call(handle);
  const ignored = [0, 1, 2].map(() => ({ type: 'ignore' }));
  const answer = spawnByLibuv(handle, `/proc/self/fd/${fd}`, ignored, uid, gid);
  fs.closeSync(fd);
  if (answer === 0) own.unref.call(handle);
  else own.close.call(handle);
  return answer !== -ENOEXEC;
}

// Node frees a handle only after it has seen a launch, even one that failed. libuv refuses this one before it makes a process.
let refused = ['', [{ type: 'fd', fd: -1 }]];
const [major, minor] = process.versions.uv.split('.').map(Number);
if (major === 1 && minor >= 52) {
  // From 1.52 on libuv takes a handle with wrong stdio out of its list of handles, and again when the handle is closed: that writes
  // to memory which is no longer the list's. posix_spawn comes after a check of the name. Where libuv still forks, a handle cannot be
  // freed.
  refused = mayLaunch() && !runsScripts({}) ? ['x'.repeat(NAME_MAX + 1), []] : undefined;
}

function release(handle) {
  if (refused !== undefined) {
    spawnByLibuv(handle, ...refused);
    return;
  }
  // The handle stays, but keeps nothing else alive: neither the ChildProcess, nor its streams.
  for (const key of Reflect.ownKeys(handle)) delete handle[key];
}

// Closed handles of Node's that are not freed yet, for a second at most. Several at once cost less: libuv watches SIGCHLD from the first
// refusal to the first close.
const MOST = 16;
const LONGEST = 1000;
let closing = [];
let timer;

function closeLater(handle) {
  // Only these properties: the running callback may have its asynchronous context in the others.
  handle.onexit = undefined;
  for (const key of Object.getOwnPropertySymbols(handle)) if (handle[key] instanceof ChildProcess) handle[key] = undefined;
  if (closing.push(handle) >= MOST) closeAll();
  else timer ??= setTimeout(closeAll, LONGEST).unref();
}

function closeAll() {
  clearTimeout(timer);
  timer = undefined;
  const handles = closing;
  closing = [];
  handles.forEach(release);
  for (const handle of handles) own.close.call(handle);
}

if (mayLaunch()) {
  release(probe);
  probe.close();
}

// Converts libuv's options to a request for the addon. Undefined: only libuv can do it.
function toRequest(options, settings) {
  const { file, args, envPairs, cwd, detached, uid, gid } = options;
  // Node accepts a Buffer, which its binding reads in one way for spawn and in another for spawnSync.
  if (cwd != null && typeof cwd !== 'string') return undefined;
  // For libuv, a missing list of arguments is empty, and missing variables are those of the process.
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
    scriptsByShell: true,
    settings: settings && toSettings(settings),
  };
}

// The addon's form of a request: a list, in which it need not look for names.
function packed(r) {
  return [r.file, r.args, r.argsCount, r.env, r.envCount, r.cwd, r.detached, r.uid, r.gid, r.stdio, r.scriptsByShell, r.settings];
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

// Since Node 25 its permission model lets no JavaScript open a pipe by its descriptor without `--allow-net`. libuv makes its own.
const guardsPipes = process.allowedNodeEnvironmentFlags.has('--allow-net');

function mayOpen(stdio = []) {
  return !guardsPipes || process.permission?.has('net') !== false || !stdio.some((one) => toDescriptor(one) === PIPE);
}

// What the addon's three numbers mean.
function toLimitEvents([oomKills, memoryMax, tasksMax]) {
  return { oomKills, memoryMax, tasksMax };
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

function ended(code, signal, ...limits) {
  if (limits.length > 0) this[kLimits]?.(toLimitEvents(limits));
  lines.delete(this.pid);
  this[kProcess] = undefined;
  this.onexit(code, signalName(signal));
}

// After these errors Node makes streams of the pipes, which must be open.
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

// Starts a child for a handle by `launch()`, and once more if the file has no `#!` and `again()` returns true.
// Returns 0, or the addon's description of the failure.
function begin(handle, stdio, launch, again) {
  handle[kOurs] = true;
  let ends = launch();
  if (ends.errno === -ENOEXEC && again?.()) ends = launch();
  if (!Array.isArray(ends)) return REPORTED.has(ends.errno) ? openClosed(stdio, ends) : ends;
  // The child executes its program meanwhile. If that fails, the other ends of these pipes are closed.
  let next = 0;
  for (const one of stdio) {
    if (toDescriptor(one) === PIPE) one.handle.open(ends[next++]);
  }
  let child = native.executed(ended, handle);
  if (child.errno === -ENOEXEC && again?.()) {
    const others = launch();
    if (!Array.isArray(others)) return others;
    others.forEach((end, at) => native.replace(ends[at], end));
    child = native.executed(ended, handle);
  }
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

// Sets whether the request runs a file without `#!` by /bin/sh, as far as it is known whether libuv does. Returns a function
// that tries libuv, changes the request accordingly, and returns true if the launch is to be repeated.
function scripted(request, options) {
  request.scriptsByShell = byShell.get(changesOf(options)) ?? false;
  return () => !request.scriptsByShell && (request.scriptsByShell = runsScripts(options));
}

// The functions of a handle, in place of libuv's.
const ours = {
  spawn(...low) {
    const options = toOptions(low);
    const request = mayLaunch() && mayOpen(options.stdio) ? toRequest(options) : undefined;
    if (request === undefined) return own.spawn.apply(this, low);
    const again = scripted(request, options);
    const failure = begin(this, options.stdio, () => native.launch(packed(request)), again);
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
      if (callback === undefined) {
        closeLater(this);
        return;
      }
      release(this);
      // A handle that cannot be freed cannot be closed by Node, either.
      if (refused === undefined) {
        setImmediate(() => callback.call(this));
        return;
      }
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

// Node's permission model applies to launches by forkless, too.
function mayLaunch() {
  return process.permission?.has('child') !== false;
}

module.exports = { Process, begin, coldReason, kLimits, lines, mayLaunch, mayOpen, ours, own, packed, runsScripts, scripted, signalName, toLimitEvents, toOptions, toRequest, watchedKill, PIPE };
