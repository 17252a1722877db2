'use strict';

// Options that child_process does not have, in the form that the addon reads: names with underscores, JSON values.

const { isList, wrongNumber, wrongType } = require('./error.js');

// Options of run() that a launch does not have.
const OF_RUN = ['check', 'encoding', 'grace', 'input', 'killGroup', 'maxBuffer', 'show'];

// What child_process and this package understand themselves.
const KNOWN = new Set([
  ...OF_RUN, 'argv0', 'cwd', 'detached', 'env', 'gid', 'killSignal', 'serialization', 'shell', 'signal', 'stdio', 'timeout', 'uid',
  'windowsHide', 'windowsVerbatimArguments',
]);

// With these each launch makes a cgroup.
const LIMITS = ['memoryMax', 'tasksMax', 'cpuMax', 'ioMax', 'cgroupParent'];

function underscored(name) {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

// The addon refuses wrong values by name, but these have no JSON form.
function toJson(value, setting) {
  if (value === undefined || Number.isNaN(value) || value === -Infinity || typeof value === 'function' || typeof value === 'symbol') throw wrongNumber(setting, 'a number, text, list or object', value);
  if (typeof value === 'bigint') return value.toString();
  if (value === Infinity) return 'unlimited';
  if (value instanceof Uint8Array) return Array.from(value);
  if (value instanceof URL) return require('node:url').fileURLToPath(value);
  if (Array.isArray(value) || value instanceof Set) return Array.from(value, (one) => toJson(one, setting));
  if (value !== null && typeof value === 'object') {
    const fd = value.fd ?? value._handle?.fd;
    if (Number.isInteger(fd)) return fd;
    return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== undefined).map(([name, one]) => [name, toJson(one, setting)]));
  }
  return value;
}

// The settings among a caller's options. Undefined: there are none.
function settingsOf(caller, options) {
  const found = Object.entries(options).filter(([name, value]) => !KNOWN.has(name) && value != null);
  if (found.length === 0) return undefined;
  const settings = Object.fromEntries(found);
  const { umask, mounts } = settings;
  if (typeof umask === 'string') settings.umask = octal(`${caller}umask`, umask);
  // The mode of ['dir', path, mode].
  if (isList(mounts)) settings.mounts = Array.from(mounts, (one) => (one?.[0] === 'dir' && typeof one[2] === 'string' ? [...one.slice(0, 2), octal(`${caller}mounts: mode`, one[2])] : one));
  return settings;
}

// A mode that is a string is octal, as for process.umask() and fs.
function octal(name, text) {
  if (!/^[0-7]+$/.test(text)) throw Object.assign(wrongType(name, 'a number or an octal string', text), { code: 'ERR_INVALID_ARG_VALUE' });
  return Number.parseInt(text, 8);
}

function toSettings(settings) {
  return Object.fromEntries(Object.entries(settings).map(([name, value]) => [underscored(name), toJson(value, name)]));
}

// A message of the addon, with names of settings as the caller has written them.
function respelled(message, names) {
  for (const name of [...LIMITS, ...names].filter((one) => /^\w+$/.test(one))) message = message.replace(new RegExp(`\\b${underscored(name)}\\b`), name);
  const [, unknown] = message.match(/there is no option (\w+)$/) ?? [];
  const letters = (name) => name.toLowerCase().replaceAll('_', '');
  const close = unknown && [...KNOWN].find((name) => letters(name) === letters(unknown));
  return close ? `${message}; did you mean ${close}?` : message;
}

module.exports = { LIMITS, OF_RUN, respelled, settingsOf, toSettings };
