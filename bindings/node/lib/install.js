'use strict';

// install(): child_process on forkless.

const native = require('./native.js');
const { Process, mayLaunch, ours, own, packed, scripted, signalName, toRequest, watchedKill, PIPE } = require('./handle.js');

const SIGTERM = 15;
const { ENOEXEC } = require('node:os').constants.errno;
const EMPTY = new Uint8Array(0);

let installed = false;
let ownSync;
let ownKill;

// The object whose `spawn` child_process.spawnSync and its relatives call. Undefined where Node does not expose it:
// they then stay Node's.
function syncBinding() {
  const quiet = process.noDeprecation;
  try {
    // With --pending-deprecation Node warns of this function, which has no other form.
    process.noDeprecation = true;
    const found = process.binding('spawn_sync');
    return typeof found.spawn === 'function' ? found : undefined;
  } catch {
    return undefined;
  } finally {
    process.noDeprecation = quiet;
  }
}

function bytes(input) {
  if (input === undefined || input === null) return EMPTY;
  return new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
}

// In place of libuv's part of spawnSync: takes its options, and returns its result.
function spawnSync(options) {
  const request = mayLaunch() ? toRequest(options) : undefined;
  if (request === undefined) return ownSync.call(this, options);
  const pipes = [];
  request.stdio.forEach((what, number) => {
    const { readable, writable, input } = options.stdio[number];
    if (what === PIPE) pipes.push({ number, input: readable ? bytes(input) : undefined, writable: Boolean(writable) });
  });
  const limits = {
    timeout: Number(options.timeout ?? 0),
    maxBuffer: Number(options.maxBuffer ?? 0),
    killSignal: options.killSignal || SIGTERM,
  };
  const again = scripted(request, options);
  let ended = native.runSync(packed(request), pipes, limits);
  if (ended.errno === -ENOEXEC && again()) ended = native.runSync(packed(request), pipes, limits);
  if (ended.errno !== undefined) return { error: ended.errno, status: null, signal: null, output: null, pid: 0 };
  const output = request.stdio.map(() => null);
  for (const { number, writable } of pipes) {
    if (writable) output[number] = ended.outputs.shift();
  }
  const result = {
    status: ended.signal > 0 ? null : ended.code,
    signal: ended.signal > 0 ? signalName(ended.signal) : null,
    output,
    pid: ended.pid,
  };
  if (ended.error !== 0) result.error = ended.error;
  return result;
}

/** Makes child_process launch by forkless, in this thread. Returns false, and changes nothing, where it cannot. */
function install() {
  if (installed) return true;
  if (!native.isSupported()) return false;
  for (const [name, value] of Object.entries(ours)) {
    Object.defineProperty(Process.prototype, name, { value, writable: true, configurable: true, enumerable: false });
  }
  const sync = syncBinding();
  if (sync) {
    ownSync = sync.spawn;
    sync.spawn = spawnSync;
  }
  ownKill = process._kill;
  if (typeof ownKill === 'function') process._kill = watchedKill(ownKill);
  installed = true;
  return true;
}

/** Gives child_process back to libuv. Children that run are still reported. */
function uninstall() {
  if (!installed) return;
  // The other functions distinguish the children of forkless from those of libuv.
  Process.prototype.spawn = own.spawn;
  if (ownSync) syncBinding().spawn = ownSync;
  ownSync = undefined;
  process._kill = ownKill;
  installed = false;
}

module.exports = { install, uninstall };
