'use strict';

// Sandboxes: what programs that are not trusted may do.

const { fileURLToPath } = require('node:url');
const native = require('./native.js');

const NETWORKS = ['refused', 'host'];

const unused = new FinalizationRegistry((number) => native.releaseSandbox(number));

function wrong(name, expected) {
  return new TypeError(`sandbox.${name} is not ${expected}`);
}

function texts(value, name) {
  if (value == null) return [];
  const list = typeof value === 'string' || value instanceof URL ? [value] : value;
  if (!Array.isArray(list)) throw wrong(name, 'a string, a file URL, or an array of these');
  return list.map((one) => {
    const text = one instanceof URL ? fileURLToPath(one) : one;
    if (typeof text !== 'string' || text === '' || text.includes('\0')) throw wrong(name, 'a string without NUL bytes');
    return text;
  });
}

function checked(options) {
  if (options === null || typeof options !== 'object') throw new TypeError('the options of a sandbox are not an object');
  const { mode, read, write, network = 'refused', keepEnv, changeAttributes = false, ...others } = options;
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) throw new TypeError(`there is no option sandbox.${unknown}`);
  if (mode !== 'landlock') throw wrong('mode', "'landlock'");
  if (!NETWORKS.includes(network)) throw wrong('network', "'refused' or 'host'");
  if (typeof changeAttributes !== 'boolean') throw wrong('changeAttributes', 'a boolean');
  return { read: texts(read, 'read'), write: texts(write, 'write'), network, keepEnv: texts(keepEnv, 'keepEnv'), changeAttributes };
}

/** What a program may do, prepared once for any number of launches. */
class Sandbox {
  #number;

  constructor(options) {
    this.#number = native.prepareSandbox(checked(options));
    unused.register(this, this.#number);
  }

  // The sandbox that an option means.
  static of(value) {
    return value instanceof Sandbox ? value : new Sandbox(value);
  }

  // As a setting. `inherits`: no variables are given, so those of the process are meant.
  static toSetting(sandbox, inherits) {
    return { prepared: sandbox.#number, inherits };
  }
}

module.exports = { Sandbox };
