'use strict';

// run(): a program to its end, with its output.

const { ExitError } = require('./error.js');
const { LONGEST, after, checkSignal, spawn, spawnAhead } = require('./child.js');

const MAX_BUFFER = 1024 * 1024;

// What a stream writes, up to a limit that all streams of a run share.
function collect(stream, room, onFull) {
  const chunks = [];
  stream?.on('data', (chunk) => {
    const kept = chunk.subarray(0, room.left);
    room.left -= kept.length;
    if (kept.length > 0) chunks.push(kept);
    if (kept.length < chunk.length) onFull();
  });
  return () => Buffer.concat(chunks);
}

function feed(stdin, input) {
  if (!stdin) return;
  // A program need not read its input.
  stdin.on('error', () => {});
  stdin.end(input);
}

// Kills what is left of the group of a program that has ended, but for other users' processes.
function endGroup(pid) {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch (error) {
    if (error.code !== 'ESRCH' && error.code !== 'EPERM') throw error;
  }
}

// What would otherwise throw only when the program runs: it would be left alone, and the promise would never be settled.
function check({ input, killSignal, grace, encoding }) {
  checkSignal(killSignal);
  if (grace !== undefined && !(typeof grace === 'number' && grace >= 0)) throw new TypeError('grace is not a number of milliseconds');
  if (encoding !== 'buffer' && !Buffer.isEncoding(encoding)) throw new TypeError(`Unknown encoding: ${encoding}`);
  if (input != null && typeof input !== 'string' && !ArrayBuffer.isView(input)) {
    throw new TypeError('input is not a string or bytes');
  }
}

/**
 * Runs a program to its end. The promise has its exit code or signal and its output. It is rejected if the program cannot be
 * started, and with `check: true` if it does not exit with 0.
 */
async function run(file, args, options) {
  if (args !== null && typeof args === 'object' && !Array.isArray(args)) [args, options] = [[], args];
  const {
    input, timeout = 0, maxBuffer = MAX_BUFFER, killSignal = 'SIGKILL', grace, killGroup = false, encoding = 'utf8', check: mustSucceed = false,
    signal, ...others
  } = options ?? {};
  if (killGroup) others.detached = true;
  signal?.throwIfAborted();
  check({ input, killSignal, grace, encoding });
  const launch = { stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'], ...others };
  // A sandbox takes milliseconds, in which the event loop has other work.
  const child = others.sandbox && !others.stdio ? await spawnAhead(file, args, launch) : spawn(file, args, launch);
  return new Promise((resolve, reject) => {
    const state = { timedOut: false, truncated: false };
    const kill = (number) => (killGroup ? child.killGroup(number) : child.kill(number));
    let last;
    const stop = (why) => {
      if (state[why]) return;
      state[why] = true;
      kill(killSignal);
      if (grace !== undefined) last ??= setTimeout(() => kill('SIGKILL'), Math.min(grace, LONGEST));
      // What the program has started may hold the pipes for as long as it likes.
      const letGo = () => {
        if (grace !== undefined && killGroup) endGroup(child.pid);
        [child.stdout, child.stderr].forEach((stream) => stream?.destroy());
      };
      if (child.exitCode === null && child.signalCode === null) child.once('exit', letGo);
      else letGo();
    };
    const room = { left: maxBuffer };
    const stdout = collect(child.stdout, room, () => stop('truncated'));
    const stderr = collect(child.stderr, room, () => stop('truncated'));
    feed(child.stdin, input);
    const timer = after(timeout, () => stop('timedOut'));
    const abort = () => stop('aborted');
    if (signal?.aborted) abort();
    else signal?.addEventListener('abort', abort, { once: true });
    const settle = () => {
      clearTimeout(timer);
      clearTimeout(last);
      signal?.removeEventListener('abort', abort);
    };
    // More than one may come: each limit sends a signal, which may be refused.
    child.on('error', (error) => {
      settle();
      reject(error);
    });
    child.once('close', (code, killedBy) => {
      settle();
      if (state.aborted) return reject(signal.reason);
      const decode = (bytes) => (encoding === 'buffer' ? bytes : bytes.toString(encoding));
      const result = {
        pid: child.pid,
        code,
        signal: killedBy,
        stdout: decode(stdout()),
        stderr: decode(stderr()),
        timedOut: state.timedOut,
        truncated: state.truncated,
      };
      const failed = code !== 0 || state.timedOut || state.truncated;
      return mustSucceed && failed ? reject(new ExitError(file, result)) : resolve(result);
    });
  });
}

module.exports = { run };
