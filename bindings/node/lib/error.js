'use strict';

const util = require('node:util');

/** A launch that failed: which program, at which step, on what. */
class LaunchError extends Error {
  constructor(file, args, { errno, step, object, message }) {
    super(message);
    this.name = 'LaunchError';
    this.errno = errno;
    this.code = util.getSystemErrorName(errno);
    this.syscall = `spawn ${file}`;
    this.path = file;
    this.spawnargs = args.slice(1);
    this.program = file;
    this.step = step;
    if (object !== undefined) this.object = object;
  }
}

/** A program that did not exit with 0, or was ended at a limit: from `run` with `check`. */
class ExitError extends Error {
  constructor(file, result) {
    const { code, signal, timedOut, truncated } = result;
    const end = signal ? `was killed by ${signal}` : `exited with code ${code}`;
    const limits = [...(timedOut ? ['timed out'] : []), ...(truncated ? ['wrote more than maxBuffer'] : [])].join(' and ');
    // An exit with 0 is not why it failed.
    if (!limits) super(`${file} ${end}`);
    else super(code === 0 ? `${file} exited with code 0, but ${limits}` : `${file} ${limits}, and ${end}`);
    this.name = 'ExitError';
    this.program = file;
    Object.assign(this, result);
  }
}

module.exports = { ExitError, LaunchError };
