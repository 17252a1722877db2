'use strict';

// Sandboxes: what programs that are not trusted may do.

const { fileURLToPath } = require('node:url');
const native = require('./native.js');
const { LIMITS, respelled, toSettings } = require('./settings.js');

const MODES = ['namespaces', 'landlock'];
const NETWORKS = ['none', 'refused', 'host'];

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
  const { mode = 'namespaces', read, write, project, hide, network, keepEnv, changeAttributes = false, linger, strict = false, init = true, ...others } = options;
  const limits = Object.entries(others).filter(([name]) => LIMITS.includes(name));
  const [unknown] = Object.keys(others).filter((name) => !LIMITS.includes(name));
  if (unknown !== undefined) throw new TypeError(`there is no option sandbox.${unknown}`);
  if (!MODES.includes(mode)) throw wrong('mode', "'namespaces' or 'landlock'");
  if (network != null && !NETWORKS.includes(network)) throw wrong('network', "'none', 'refused' or 'host'");
  if (mode === 'landlock' && network === 'none') throw wrong('network', "possible with Landlock: use 'refused'");
  if (mode === 'namespaces' && changeAttributes) throw wrong('changeAttributes', 'for namespaces, where what can be written to can be changed');
  if (typeof changeAttributes !== 'boolean') throw wrong('changeAttributes', 'a boolean');
  if (linger != null && !(Number.isFinite(linger) && linger >= 0)) throw wrong('linger', 'a number of milliseconds');
  if (mode === 'landlock' && linger != null) throw wrong('linger', 'possible with Landlock, which ends nothing');
  if (typeof strict !== 'boolean') throw wrong('strict', 'a boolean');
  if (mode === 'landlock' && strict) throw wrong('strict', 'for Landlock alone, which is required in any case');
  if (typeof init !== 'boolean') throw wrong('init', 'a boolean');
  if (!init && mode === 'landlock') throw wrong('init', 'for Landlock, where there is none');
  if (!init && linger != null) throw wrong('linger', 'possible with init: false: what is left is killed as soon as the program ends');
  return { limits: toSettings(Object.fromEntries(limits.filter(([, value]) => value != null))), linger, strict, init: init || mode === 'landlock', mode, read: texts(read, 'read'), write: texts(write, 'write'), project: texts(project, 'project'), hide: texts(hide, 'hide'), network, keepEnv: texts(keepEnv, 'keepEnv'), changeAttributes };
}

/** What a program may do, prepared once for any number of launches. */
class Sandbox {
  #number;
  #makesCgroup;

  constructor(options = {}) {
    const known = checked(options);
    try {
      this.#number = native.prepareSandbox(known);
    } catch (error) {
      error.message = respelled(error.message, []);
      throw error;
    }
    this.#makesCgroup = Object.keys(known.limits).length > 0;
    unused.register(this, this.#number);
  }

  // Whether each launch makes a cgroup.
  static makesCgroup(sandbox) {
    return sandbox.#makesCgroup;
  }

  check() {
    native.checkSandbox(this.#number);
  }

  // The sandbox that an option means. True: one without paths.
  static of(value) {
    return value instanceof Sandbox ? value : new Sandbox(value === true ? {} : value);
  }

  // As a setting. `inherits`: no variables are given, so those of the process are meant.
  static toSetting(sandbox, inherits) {
    return { prepared: sandbox.#number, inherits };
  }
}

module.exports = { Sandbox };
