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
    let what = signal ? `was killed by ${signal}` : `exited with code ${code}`;
    if (timedOut) what = `timed out, and ${what}`;
    if (truncated) what = `wrote more than maxBuffer, and ${what}`;
    super(`${file} ${what}`);
    this.name = 'ExitError';
    this.program = file;
    Object.assign(this, result);
  }
}

module.exports = { ExitError, LaunchError };
