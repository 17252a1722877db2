'use strict';

// Options that child_process does not have, in the form that the addon reads: names with underscores, JSON values.

// What child_process and this package understand themselves.
const KNOWN = new Set([
  'argv0', 'check', 'cwd', 'detached', 'encoding', 'env', 'gid', 'input', 'killGroup', 'killSignal', 'maxBuffer',
  'serialization', 'shell', 'signal', 'stdio', 'timeout', 'uid', 'windowsHide', 'windowsVerbatimArguments',
]);

// With these each launch makes a cgroup.
const LIMITS = ['memoryMax', 'tasksMax', 'cpuMax', 'ioMax', 'cgroupParent'];

function underscored(name) {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function toJson(value) {
  if (typeof value === 'bigint') return value.toString();
  if (value === Infinity) return 'unlimited';
  if (value instanceof Uint8Array) return Array.from(value);
  if (value instanceof URL) return require('node:url').fileURLToPath(value);
  if (Array.isArray(value) || value instanceof Set) return Array.from(value, toJson);
  if (value !== null && typeof value === 'object') {
    const fd = value.fd ?? value._handle?.fd;
    if (Number.isInteger(fd)) return fd;
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, toJson(one)]));
  }
  return value;
}

// The settings among a caller's options. Undefined: there are none.
function settingsOf(options) {
  const found = Object.entries(options).filter(([name, value]) => !KNOWN.has(name) && value != null);
  return found.length > 0 ? Object.fromEntries(found) : undefined;
}

function toSettings(settings) {
  return Object.fromEntries(Object.entries(settings).map(([name, value]) => [underscored(name), toJson(value)]));
}

module.exports = { LIMITS, settingsOf, toSettings };
