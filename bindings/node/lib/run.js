'use strict';

// run(), runSync(), runPipeline() and lines(): programs to their end, with their output.

const fs = require('node:fs');
const { Readable, pipeline } = require('node:stream');
const { ExitError, checkAbort, checkAmount, checkObject, checkSignal, isList, isObject, toArguments, wrongType } = require('./error.js');
const native = require('./native.js');
const { LONGEST, after, endSync, noTerminal, spawnAhead, startNow, toOptions } = require('./child.js');

const MAX_BUFFER = 1024 * 1024;

// Collects what streams write, up to a limit that all streams of a run share.
function collect(streams, room, onFull) {
  const chunks = [];
  for (const stream of streams) {
    stream?.on('data', (chunk) => {
      const kept = chunk.subarray(0, room.left);
      room.left -= kept.length;
      if (kept.length > 0) chunks.push(kept);
      if (kept.length < chunk.length) onFull();
    });
  }
  return () => Buffer.concat(chunks);
}

function feed(stdin, input) {
  if (!stdin) return undefined;
  // A program need not read its input.
  stdin.on('error', () => {});
  if (!(input instanceof Readable)) return stdin.end(input);
  // An error of the stream ends the input.
  return pipeline(input, stdin, () => {});
}

// Kills what is left of the group of a program that has ended, but for other users' processes.
function endGroup(pid) {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch (error) {
    if (error.code !== 'ESRCH' && error.code !== 'EPERM') throw error;
  }
}

// Checks what would otherwise throw while the program runs: that would be left alone, and the promise never settled.
function check(caller, { input, timeout, maxBuffer, killSignal, grace, encoding }) {
  checkSignal(killSignal);
  checkAmount(`${caller}timeout`, 'milliseconds', timeout);
  checkAmount(`${caller}grace`, 'milliseconds', grace);
  checkAmount(`${caller}maxBuffer`, 'bytes', maxBuffer);
  if (encoding !== 'buffer' && !Buffer.isEncoding(encoding)) throw new TypeError(`Unknown encoding: ${encoding}`);
  if (input !== undefined && typeof input !== 'string' && !ArrayBuffer.isView(input) && !(input instanceof Readable)) {
    throw new TypeError('input is not a string, bytes or a readable stream');
  }
}

// The options of a run, and those of its launches. null is as undefined.
function split(caller, options) {
  const { input, timeout, maxBuffer, killSignal, grace, killGroup, encoding, check: mustSucceed, show, merged, signal, ...others } = noTerminal(options);
  if (killGroup) others.detached = true;
  if (merged) others.merged = true;
  checkAbort(`${caller}signal`, signal);
  signal?.throwIfAborted();
  const how = {
    input: input ?? undefined,
    timeout: timeout ?? 0,
    maxBuffer: maxBuffer ?? MAX_BUFFER,
    killSignal: killSignal ?? 'SIGKILL',
    grace: grace ?? undefined,
    killGroup: killGroup ?? false,
    encoding: encoding ?? 'utf8',
    mustSucceed: mustSucceed ?? false,
    show: show ?? false,
    merged: merged ?? false,
    signal: signal ?? undefined,
  };
  check(caller, how);
  return [how, others];
}

/**
 * Runs a program to its end. The promise has its exit code or signal and its output. It is rejected if the program cannot be
 * started, and with `check: true` if it does not exit with 0. It has the child and `kill`, too.
 */
function run(file, args, options) {
  return runAs('run(): ', file, args, options);
}

// `caller`: how errors begin.
function runAs(caller, file, args, options) {
  let child;
  let early;
  const ended = async () => {
    const [started, how] = begin(caller, file, args, options);
    child = started instanceof Promise ? await started : started;
    if (early !== undefined) child.kill(early);
    return complete([child], how, ([end]) => [file, end]);
  };
  return Object.defineProperties(ended(), {
    child: { get: () => child },
    kill: {
      value(signal = 'SIGTERM') {
        checkSignal(signal);
        if (child !== undefined) return child.kill(signal);
        early = signal;
        return true;
      },
    },
  });
}

/** The same, while the event loop stands still. What needs the loop is an error: a stream as input, signal, show, grace, killGroup. */
function runSync(file, args, options) {
  const caller = 'runSync(): ';
  [args, options] = toArguments(caller, file, args, options);
  const [how, others] = split(caller, options);
  const cannot = ['grace', 'killGroup', 'show', 'signal'].filter((name) => how[name] !== undefined && how[name] !== false);
  if (how.input instanceof Readable) cannot.push('a stream as input');
  if (others.stdio != null) cannot.push('stdio');
  if (cannot.length > 0) throw new TypeError(`runSync() has no event loop for ${cannot.join(', ')}`);
  const { outputs, ...end } = endSync(toOptions(caller, file, args, { ...others, stdio: streamsOf(how) }), how);
  let left = how.maxBuffer;
  const [stdout, stderr = Buffer.alloc(0)] = outputs.map((bytes) => {
    const kept = bytes.subarray(0, left);
    left -= kept.length;
    return kept;
  });
  const decode = (bytes) => (how.encoding === 'buffer' ? bytes : bytes.toString(how.encoding));
  const result = { ...end, stdout: decode(stdout), stderr: decode(stderr) };
  if (how.mustSucceed && (result.code !== 0 || result.timedOut || result.truncated)) throw new ExitError(file, result);
  return result;
}

// The child's standard streams; a merged one is a setting of the launch.
function streamsOf({ input, merged }) {
  return [input === undefined ? 'ignore' : 'pipe', 'pipe', merged ? 'ignore' : 'pipe'];
}

// A child, or a promise of one. The error of a launch comes at the next tick: a child must have its listeners before that.
function begin(caller, file, args, options) {
  [args, options] = toArguments(caller, file, args, options);
  const [how, others] = split(caller, options);
  const launch = toOptions(caller, file, args, { ...others, stdio: others.stdio ?? streamsOf(how) });
  // A sandbox takes milliseconds, in which the event loop has other work.
  return [others.sandbox && !others.stdio ? spawnAhead(launch) : startNow(launch), how];
}

/**
 * The lines that a program writes, while it runs, for `for await`: `run` with `check: true` by default, and maxBuffer for standard error
 * alone. A caller that takes no more lines ends the program.
 */
async function* lines(file, args, options) {
  const caller = 'lines(): ';
  [args, options] = toArguments(caller, file, args, options);
  const [started, how] = begin(caller, file, args, { ...options, check: options.check ?? true });
  const child = started instanceof Promise ? await started : started;
  const ended = complete([child], { ...how, isRead: true }, ([end]) => [file, end]);
  // The child was not started for want of descriptors, or its output goes elsewhere.
  if (!child.stdout) return void (await ended);
  const interface_ = require('node:readline').createInterface({ input: child.stdout.setEncoding(how.encoding), crlfDelay: Infinity });
  // At a limit the stream is destroyed: its end, for which the lines would wait, does not come.
  const close = () => interface_.close();
  ended.then(close, close);
  let isWhole = false;
  try {
    yield* interface_;
    isWhole = true;
  } finally {
    if (!isWhole) {
      // Other processes may hold the pipes, which would keep this one from its end.
      [child.stdout, child.stderr].forEach((stream) => stream?.destroy());
      if (how.killGroup) child.killGroup();
      else child.kill('SIGKILL');
    }
  }
  await ended;
}

/**
 * Runs programs at the same time, each of which reads what the one before it writes, to the end of all. Each is an array of a file and its
 * arguments, or an object with these as `file` and `args`, and with options for this program alone. The result is that of `run` with the last
 * program's end and output, everyone's standard error, and `ends`. With `pipefail: true` the last program that failed counts.
 */
async function runPipeline(programs, options) {
  const caller = 'runPipeline(): ';
  checkObject(`${caller}options`, options);
  if (!isList(programs)) throw wrongType(`${caller}programs`, 'an array of commands', programs);
  const { pipefail = false, ...more } = options ?? {};
  const [how, others] = split(caller, more);
  const each = Array.from(programs, (one, n) => {
    if (!Array.isArray(one) && !isObject(one)) throw wrongType(`${caller}programs[${n}]`, 'an array of a file and its arguments, nor an object with these', one);
    return Array.isArray(one) ? { file: one[0], args: one.slice(1) } : { ...one };
  });
  if (each.length === 0) throw new TypeError('a pipeline needs a program');
  if ([others, ...each].some((one) => one.stdio != null)) throw new TypeError('the streams of a pipeline are its own: stdio is not possible');
  // Checks what is for all programs: its errors name none of them.
  toOptions(caller, 'all', [], { ...others, env: others.env ?? {}, sandbox: undefined });
  const launches = each.map(({ file, args, ...own }, n) => toOptions(`${caller}programs[${n}].`, file, args ?? [], noTerminal({ ...others, ...own })));
  const children = [];
  let source = how.input === undefined ? 'ignore' : 'pipe';
  try {
    for (const [n, launch] of launches.entries()) {
      const [next, sink] = n + 1 < each.length ? native.pipe() : [undefined, 'pipe'];
      try {
        const child = startNow({ ...launch, stdio: [source, sink, launch.merged ? 'ignore' : 'pipe'] });
        if (child.pid === undefined) throw await new Promise((resolve) => child.once('error', resolve));
        children.push(child);
      } finally {
        // The child has them. An open writing end would keep the next program from the end of its input.
        close(source, sink);
        source = next;
      }
    }
  } catch (error) {
    close(source);
    for (const child of children) {
      child.on('error', () => {});
      if (how.killGroup) child.killGroup();
      else child.kill('SIGKILL');
    }
    throw error;
  }
  return complete(children, how, (ends) => {
    const failed = pipefail ? ends.findLastIndex(({ code }) => code !== 0) : -1;
    return [each.at(failed).file, { ...ends.at(failed), ends }];
  });
}

function close(...ends) {
  for (const end of ends) if (typeof end === 'number') fs.closeSync(end);
}

// Waits for all programs, with the limits. `pick` returns the program whose end counts, and its part of the result.
// `isRead`: the caller has the output.
function complete(children, { input, timeout, maxBuffer, killSignal, grace, killGroup, encoding, mustSucceed, show, isRead, signal }, pick) {
  const child = children.at(-1);
  return new Promise((resolve, reject) => {
    const state = { timedOut: false, truncated: false };
    const kill = (number) => children.forEach((one) => (killGroup ? one.killGroup(number) : one.kill(number)));
    const hasEnded = (one) => one.exitCode !== null || one.signalCode !== null;
    let last;
    const stop = (why) => {
      if (state[why]) return;
      state[why] = true;
      kill(killSignal);
      if (grace !== undefined) last ??= setTimeout(() => kill('SIGKILL'), Math.min(grace, LONGEST));
      for (const one of children) {
        // What the program has started may hold the pipes for as long as it likes.
        const letGo = () => {
          if (grace !== undefined && killGroup) endGroup(one.pid);
          [one.stdout, one.stderr].forEach((stream) => stream?.destroy());
        };
        if (hasEnded(one)) letGo();
        else one.once('exit', letGo);
      }
    };
    const room = { left: maxBuffer };
    const stdout = collect(isRead ? [] : [child.stdout], room, () => stop('truncated'));
    const stderr = collect(children.map((one) => one.stderr), room, () => stop('truncated'));
    if (show) {
      child.stdout?.pipe(process.stdout, { end: false });
      children.forEach((one) => one.stderr?.pipe(process.stderr, { end: false }));
    }
    feed(children[0].stdin, input);
    const timer = after(timeout, () => stop('timedOut'));
    const abort = () => stop('aborted');
    if (signal?.aborted) abort();
    else signal?.addEventListener('abort', abort, { once: true });
    const settle = () => {
      clearTimeout(timer);
      clearTimeout(last);
      signal?.removeEventListener('abort', abort);
    };
    const finish = () => {
      settle();
      if (state.aborted) return reject(signal.reason);
      const decode = (bytes) => (encoding === 'buffer' ? bytes : bytes.toString(encoding));
      const ends = children.map((one) => ({ code: one.exitCode, signal: one.signalCode }));
      const [file, end] = pick(ends);
      const result = {
        pid: child.pid,
        ...end,
        stdout: decode(stdout()),
        stderr: decode(stderr()),
        timedOut: state.timedOut,
        truncated: state.truncated,
        ...(child.limitEvents && { limitEvents: child.limitEvents }),
      };
      const failed = result.code !== 0 || state.timedOut || state.truncated;
      return mustSucceed && failed ? reject(new ExitError(file, result)) : resolve(result);
    };
    let open = children.length;
    for (const one of children) {
      // More than one may come: each limit sends a signal, which may be refused.
      one.on('error', (error) => {
        settle();
        reject(error);
      });
      one.once('close', () => {
        open -= 1;
        if (open === 0) finish();
      });
    }
  });
}

module.exports = { lines, run, runAs, runPipeline, runSync };
