'use strict';

// Cgroups: limits of all processes of a program together.

const os = require('node:os');
const { fileURLToPath } = require('node:url');
const { checkAmount, checkSignal } = require('./error.js');
const native = require('./native.js');

// The period of cpu.max, in microseconds.
const PERIOD = 100_000;

// How long `end` waits for killed processes, in milliseconds.
const PATIENCE = 10_000;

const count = (value) => (Number.isInteger(value) && value >= 0 ? String(value) : undefined);
const bytes = (value) => (typeof value === 'string' ? value : count(value));

// Each option: the file, what is written, and what is expected.
const LIMITS = {
  memoryMax: ['memory.max', bytes, 'a number of bytes, or a string such as "512M"'],
  memoryHigh: ['memory.high', bytes, 'a number of bytes, or a string such as "512M"'],
  memorySwapMax: ['memory.swap.max', bytes, 'a number of bytes, or a string such as "512M"'],
  tasksMax: ['pids.max', count, 'a number of processes and threads'],
  cpuMax: ['cpu.max', (cpus) => (cpus >= 0.01 && cpus <= 1e6 ? `${Math.round(cpus * PERIOD)} ${PERIOD}` : undefined), 'a number of CPUs'],
  cpuWeight: ['cpu.weight', count, 'a number from 1 to 10000'],
  ioWeight: ['io.weight', (weight) => count(weight) && `default ${weight}`, 'a number from 1 to 10000'],
  ioMax: ['io.max', (value) => (typeof value === 'string' ? value : undefined), 'a string such as "8:16 wbps=1048576"'],
};

function limitsOf(options) {
  return Object.entries(options).filter(([, value]) => value != null).map(([name, value]) => {
    if (!Object.hasOwn(LIMITS, name)) throw new TypeError(`there is no limit ${name} of a cgroup`);
    const [file, write, expected] = LIMITS[name];
    const written = write(value);
    if (written === undefined) throw new TypeError(`${name} is not ${expected}`);
    return [file, written];
  });
}

/** A new cgroup (version 2), for the option `cgroup`. */
class Cgroup {
  #group;

  constructor(options = {}) {
    if (options === null || typeof options !== 'object') throw new TypeError('the options of a cgroup are not an object');
    const { parent, ...limits } = options;
    const place = parent instanceof URL ? fileURLToPath(parent) : parent;
    if (place != null && typeof place !== 'string') throw new TypeError('parent is not a string or a file URL');
    this.#group = native.NativeCgroup.create(place, limitsOf(limits));
  }

  get path() {
    return this.#group.path();
  }

  get fd() {
    return this.#group.fd();
  }

  get(file) {
    return this.#group.get(file);
  }

  set(file, value) {
    this.#group.set(file, String(value));
  }

  counters(file) {
    return this.#group.counters(file);
  }

  oomKills() {
    return this.counters('memory.events').oom_kill ?? 0;
  }

  signal(signal) {
    if (signal !== 0) checkSignal(signal);
    this.#group.signal(typeof signal === 'string' ? os.constants.signals[signal.toUpperCase()] : signal);
  }

  kill() {
    this.#group.kill();
  }

  async waitEmpty(timeout) {
    checkAmount('waitEmpty(): timeout', 'milliseconds', timeout);
    const { setTimeout: sleep } = require('node:timers/promises');
    const end = performance.now() + (timeout ?? Infinity);
    for (let pause = 1; this.counters('cgroup.events').populated !== 0; pause = Math.min(2 * pause, 50)) {
      const left = end - performance.now();
      if (left <= 0) return false;
      await sleep(Math.min(pause, left));
    }
    return true;
  }

  async terminate(grace, signal = 'SIGTERM') {
    checkAmount('terminate(): grace', 'milliseconds', grace);
    this.signal(signal);
    if (await this.waitEmpty(grace)) return true;
    this.kill();
    await this.waitEmpty();
    return false;
  }

  async end() {
    this.kill();
    await this.waitEmpty(PATIENCE);
    this.#group.remove();
  }

  async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    await this.end();
  }
}

module.exports = { Cgroup };
