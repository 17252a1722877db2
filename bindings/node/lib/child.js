'use strict';

// spawn() and prepare(): Node's ChildProcess on forkless, with the settings of forkless.

const os = require('node:os');
const childProcess = require('node:child_process');
const { fileURLToPath } = require('node:url');
const { LaunchError, checkAbort, checkAmount, checkId, checkObject, checkSignal, toArguments, wrongType } = require('./error.js');
const native = require('./native.js');
const { begin, coldReason, kLimits, mayLaunch, mayOpen, ours, packed, signalName, toLimitEvents, toOptions: toLow, toRequest } = require('./handle.js');
const { LIMITS, OF_RUN, respelled, settingsOf } = require('./settings.js');

const { ChildProcess } = childProcess;

const kFailure = Symbol('forkless.failure');
const kTree = Symbol('forkless.tree');

// With these settings, kill() kills all that the child has started.
const TREES = ['killTree', ...LIMITS];

/** A child process: Node's ChildProcess, and a promise of its end. */
class Child extends ChildProcess {
  constructor() {
    super();
    Object.assign(this._handle, ours);
    this[kFailure] = undefined;
    this[kTree] = false;
    /** Why the launch was not warm. Undefined if it was, or if `warm` was not set. */
    this.coldReason = undefined;
    /** How often it has reached its limits: `oomKills`, `memoryMax`, `tasksMax`. Undefined before its end, and without limits. */
    this.limitEvents = undefined;
    /** The stream of its terminal, with the option `pty`. */
    this.pty = undefined;
  }

  // Node makes the error of a failed launch from its errno; the LaunchError also has the step and its object.
  emit(name, ...args) {
    if (name === 'error' && this[kFailure] && args[0]?.syscall?.startsWith('spawn')) args[0] = this[kFailure];
    return super.emit(name, ...args);
  }

  /** A promise of `{ code, signal }`. It is rejected if the launch failed. Output that nobody reads may delay the end. */
  wait() {
    if (this.pid === undefined) {
      // The promise reports the failure; an event without a listener would end the process.
      this.once('error', () => {});
      return Promise.reject(this[kFailure]);
    }
    if (this.exitCode !== null || this.signalCode !== null) {
      return Promise.resolve({ code: this.exitCode, signal: this.signalCode });
    }
    return new Promise((resolve) => this.once('exit', (code, signal) => resolve({ code, signal })));
  }

  /** Kills the child and what is left of its process group, if it leads one. */
  killGroup(signal = 'SIGKILL') {
    if (this.pid === undefined || this._handle === null) return false;
    // Below an init, or with a cgroup of its own, only the handle kills all that the child has started.
    if (this[kTree] && (signal === 9 || `${signal}`.toUpperCase() === 'SIGKILL')) return this.kill(signal);
    try {
      return process.kill(-this.pid, signal);
    } catch (error) {
      if (error.code === 'ESRCH') return this.kill(signal);
      throw error;
    }
  }

  async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    if (this.pid === undefined) return;
    this.kill('SIGKILL');
    await this.wait();
  }
}

function pathOf(value, name) {
  if (value == null) return undefined;
  const text = value instanceof URL ? fileURLToPath(value) : value;
  if (typeof text !== 'string') throw new TypeError(`${name} is not a string or a file URL`);
  return noNul(text, name);
}

function noNul(text, name) {
  if (text.includes('\0')) throw new TypeError(`${name} contains a NUL byte`);
  return text;
}

// As child_process does, this takes inherited properties of `env`, too.
function variablesOf(env) {
  const pairs = [];
  for (const name in env) {
    const value = env[name];
    if (value !== undefined) pairs.push(noNul(`${name}=${value}`, `env.${name}`));
  }
  return pairs;
}

// What child_process makes of a caller's arguments, and the settings. `caller`: how errors begin.
function toOptions(caller, file, args, options) {
  [args, options] = toArguments(caller, file, args, options);
  const { argv0, cwd, detached, env, shell, stdio: streams, uid, gid, serialization, sandbox: given, pty, ...others } = options;
  const stdio = others.merged ? merge(caller, streams) : streams;
  // Loaded when it is first used, as the terminals.
  const Sandbox = given == null || given === false ? undefined : require('./sandbox.js').Sandbox;
  const sandbox = Sandbox?.of(given);
  noNul(file, 'file');
  if (others.killSignal != null) checkSignal(others.killSignal);
  checkAbort(`${caller}signal`, others.signal);
  checkAmount(`${caller}timeout`, 'milliseconds', others.timeout);
  checkId(`${caller}uid`, uid);
  checkId(`${caller}gid`, gid);
  checkObject(`${caller}env`, env);
  // A limit would otherwise be ignored silently.
  const strange = OF_RUN.find((name) => others[name] != null && others[name] !== false);
  if (strange !== undefined) throw new TypeError(`${caller}${strange} is an option of run()`);
  let words = args.map((arg, at) => noNul(`${arg}`, `args[${at}]`));
  if (shell) {
    words = ['-c', [file, ...words].join(' ')];
    file = typeof shell === 'string' ? shell : '/bin/sh';
  }
  return {
    file,
    args: [argv0 == null ? file : noNul(`${argv0}`, 'argv0'), ...words],
    envPairs: variablesOf(env ?? process.env),
    cwd: pathOf(cwd, 'cwd'),
    detached: Boolean(detached),
    uid,
    gid,
    ...(pty ? onTerminal(caller, pty, stdio) : { stdio: stdio ?? 'pipe' }),
    serialization: serialization ?? 'json',
    settings: settingsOf(caller, sandbox ? { ...others, sandbox: Sandbox.toSetting(sandbox, env == null) } : others),
    // Kept, because its number is valid only as long as the object exists.
    sandbox,
    ...others,
  };
}

// With `merged`, Node has no stream for standard error, which goes where standard output goes.
function merge(caller, stdio) {
  // Node refuses it.
  if (stdio != null && typeof stdio !== 'string' && !Array.isArray(stdio)) return stdio;
  const [input, output, error, ...rest] = typeof stdio === 'string' ? [stdio, stdio] : (stdio ?? []);
  if ((error ?? 'ignore') !== 'ignore') throw new TypeError(`${caller}merged: standard error goes where standard output goes; leave stdio[2] out`);
  return [input, output, 'ignore', ...rest];
}

// The standard streams that are not set otherwise are the terminal; Node gets `ignore` for them.
function onTerminal(caller, pty, stdio) {
  if (pty !== true && typeof pty !== 'object') throw wrongType(`${caller}pty`, 'true, nor an object with rows and columns', pty);
  const given = typeof stdio === 'string' ? [stdio, stdio, stdio] : Array.from(stdio ?? []);
  const streams = [0, 1, 2].filter((number) => given[number] == null);
  for (const number of streams) given[number] = 'ignore';
  return { stdio: given, terminal: { size: pty, streams } };
}

// The addon names settings with underscores; this error has the caller's spelling.
function failed({ file, args, settings }, failure) {
  const message = ['check', 'make a cgroup for limits'].includes(failure.step) ? respelled(failure.message, Object.keys(settings ?? {})) : failure.message;
  return new LaunchError(file, args, { ...failure, message });
}

function checkOpen(stdio) {
  if (mayOpen(stdio)) return;
  const error = new Error('pipes to a child need --allow-net, where the permission model is on');
  throw Object.assign(error, { code: 'ERR_ACCESS_DENIED', permission: 'Net' });
}

// `launch(request)` starts the child by the addon; `request()` returns the request for the addon.
function start(options, launch) {
  // This throws Node's own error.
  if (!mayLaunch()) {
    childProcess.spawn(options.file);
    throw new Error('this process may not launch programs');
  }
  const child = new Child();
  child[kTree] = TREES.some((name) => options.settings?.[name]) || Boolean(options.sandbox?.constructor.makesCgroup(options.sandbox));
  child._handle[kLimits] = (events) => (child.limitEvents = events);
  child._handle.spawn = function spawn(...args) {
    const low = toLow(args);
    checkOpen(low.stdio);
    const request = () => requested(low, options.settings);
    const failure = begin(this, low.stdio, () => launch(request));
    if (failure === 0) {
      if (options.settings?.warm) child.coldReason = coldReason(this);
      return 0;
    }
    child[kFailure] = failed(options, failure);
    return failure.errno;
  };
  try {
    // A copy, because Node changes the array.
    ChildProcess.prototype.spawn.call(child, { ...options, envPairs: [...options.envPairs] });
  } catch (error) {
    throw child[kFailure] ?? error;
  }
  limit(child, options);
  return child;
}

function requested(low, settings) {
  const request = toRequest(low, settings);
  if (request === undefined) throw new TypeError('stdio has a stream without a descriptor');
  return request;
}

// More milliseconds than a timer can wait, such as Infinity, are no limit: setTimeout would make one millisecond of them.
const LONGEST = 2 ** 31 - 1;

function after(timeout, call) {
  return timeout > 0 && timeout <= LONGEST ? setTimeout(call, timeout) : undefined;
}

// `timeout` and `signal`, as child_process.spawn has them.
function limit(child, { timeout, killSignal, signal }) {
  if (child.pid === undefined) return;
  killSignal ??= 'SIGTERM';
  const timer = after(timeout, () => child.kill(killSignal));
  if (timer) child.once('exit', () => clearTimeout(timer));
  if (signal) {
    const abort = () => {
      const error = Object.assign(new Error('The operation was aborted', { cause: signal.reason }), {
        name: 'AbortError',
        code: 'ABORT_ERR',
      });
      if (child.kill(killSignal)) child.emit('error', error);
    };
    if (signal.aborted) {
      process.nextTick(abort);
    } else {
      signal.addEventListener('abort', abort, { once: true });
      child.once('exit', () => signal.removeEventListener('abort', abort));
    }
  }
}

// Starts what toOptions() has returned.
function startNow(options) {
  return start(options, (request) => native.launch(packed(request())));
}

/** Starts a program: child_process.spawn with the settings of forkless. */
function spawn(file, args, given) {
  const options = toOptions('spawn(): ', file, args, given);
  if (!options.terminal) return startNow(options);
  const { Pty } = require('./pty.js');
  const pty = new Pty(options.terminal.size);
  try {
    options.settings = { ...options.settings, pty: Pty.toSetting(pty, options.terminal.streams) };
    const child = startNow(options);
    if (child.pid === undefined) pty.destroy();
    else child.once('exit', () => Pty.released(pty));
    child.pty = pty;
    return child;
  } catch (error) {
    pty.destroy();
    throw error;
  }
}

// Refuses `pty` where a child has pipes, or where no child exists yet.
function noTerminal(options) {
  if (options?.terminal ?? options?.pty) throw new TypeError('pty is an option of spawn()');
  return options;
}

// startNow() for run(), with the launch in another thread: returns a promise of the child.
async function spawnAhead(options) {
  if (!mayLaunch()) return start(options);
  const low = { ...options, stdio: options.stdio.map((type) => ({ type })) };
  checkOpen(low.stdio);
  const ahead = await native.launchAhead(packed(requested(low, options.settings)));
  return start(options, () => ahead.launch());
}

// Runs a program to its end while the event loop is blocked.
function endSync(options, { input, timeout, maxBuffer, killSignal }) {
  if (!mayLaunch()) {
    // This throws Node's own error.
    childProcess.spawnSync(options.file);
    throw new Error('this process may not launch programs');
  }
  const low = { ...options, stdio: options.stdio.map((type) => ({ type })) };
  const pipes = options.stdio.flatMap((type, number) => {
    const bytes = number === 0 ? Buffer.from(input ?? '') : undefined;
    return type === 'pipe' ? [{ number, input: bytes, writable: number > 0 }] : [];
  });
  const { signals, errno } = os.constants;
  const limits = { timeout, maxBuffer, killSignal: signals[`${killSignal}`.toUpperCase()] ?? killSignal };
  // To the addon 0 is no limit.
  if (maxBuffer === 0) limits.maxBuffer = 0.5;
  for (const name of ['timeout', 'maxBuffer']) if (limits[name] === Infinity) limits[name] = 0;
  const ended = native.runSync(packed(requested(low, options.settings)), pipes, limits);
  if (ended.errno !== undefined) throw failed(options, ended);
  return {
    pid: ended.pid,
    code: ended.signal > 0 ? null : ended.code,
    signal: ended.signal > 0 ? signalName(ended.signal) : null,
    outputs: ended.outputs,
    timedOut: ended.error === -errno.ETIMEDOUT,
    truncated: ended.error === -errno.ENOBUFS,
    ...(ended.limitEvents && { limitEvents: toLimitEvents(ended.limitEvents) }),
  };
}

/** A command that is compiled once and started any number of times. */
class Prepared {
  #options;
  #plan;

  constructor(file, args, options) {
    this.#options = noTerminal(toOptions('prepare(): ', file, args, options));
  }

  /** Starts it once. */
  spawn() {
    return start(this.#options, (request) => {
      if (this.#plan === undefined) {
        const plan = native.prepare(packed(request()));
        if (plan.errno !== undefined) return plan;
        this.#plan = plan;
      }
      return this.#plan.launch();
    });
  }
}

/** Returns a command that is compiled when it is first started: later starts cost less. */
function prepare(file, args, options) {
  return new Prepared(file, args, options);
}

module.exports = { Child, LONGEST, Prepared, after, endSync, noTerminal, prepare, spawn, spawnAhead, startNow, toOptions };
