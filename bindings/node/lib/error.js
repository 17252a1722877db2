'use strict';

// Errors of launches, and checks of what callers give, before anything is started: later an error would come where no caller can catch it. The
// codes are those of child_process.

const os = require('node:os');
const { getSystemErrorName, inspect } = require('node:util');

/** A launch that failed: which program, at which step, on what. */
class LaunchError extends Error {
  constructor(file, args, { errno, step, object, message }) {
    super(message);
    this.name = 'LaunchError';
    this.errno = errno;
    this.code = getSystemErrorName(errno);
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

const LARGEST_ID = 2 ** 32 - 2;

const seen = (value) => inspect(value, { depth: 0, maxArrayLength: 5, maxStringLength: 80, breakLength: Infinity });
const isList = (value) => typeof value === 'object' && typeof value?.[Symbol.iterator] === 'function';
const isObject = (value) => typeof value === 'object' && value !== null && !isList(value);

// `name`: of the function and of the value, such as "run(): args".
function wrongType(name, expected, value) {
  return Object.assign(new TypeError(`${name} is not ${expected}: ${seen(value)}`), { code: 'ERR_INVALID_ARG_TYPE' });
}

function wrongNumber(name, expected, value) {
  if (typeof value !== 'number') return wrongType(name, expected, value);
  return Object.assign(new RangeError(`${name} is not ${expected}: ${seen(value)}`), { code: 'ERR_OUT_OF_RANGE' });
}

// NaN is refused, too: no comparison with it is true.
function checkAmount(name, unit, value) {
  if (value != null && !(typeof value === 'number' && value >= 0)) throw wrongNumber(name, `a number of ${unit} from 0 to Infinity`, value);
}

// The addon would convert NaN to 0, which is root.
function checkId(name, value) {
  if (value != null && !(Number.isInteger(value) && value >= 0 && value <= LARGEST_ID)) throw wrongNumber(name, `an integer from 0 to ${LARGEST_ID}`, value);
}

function checkObject(name, value) {
  if (value != null && !isObject(value)) throw wrongType(name, 'an object', value);
}

function checkAbort(name, value) {
  if (value != null && typeof value.addEventListener !== 'function') throw wrongType(name, 'an AbortSignal', value);
}

// Otherwise kill() would throw later, in the callback of a timer.
function checkSignal(signal) {
  const { signals } = os.constants;
  const isNumber = Object.values(signals).includes(signal);
  if (!isNumber && !Object.hasOwn(signals, `${signal}`.toUpperCase())) throw Object.assign(new TypeError(`Unknown signal: ${signal}`), { code: 'ERR_UNKNOWN_SIGNAL' });
}

// The arguments and options of a function that takes (file, args, options), where args may be missing. `caller`: how errors begin.
function toArguments(caller, file, args, options) {
  if (isObject(args) && options === undefined) [args, options] = [undefined, args];
  if (typeof file !== 'string') throw wrongType(`${caller}file`, 'a string', file);
  if (file === '') throw Object.assign(new TypeError(`${caller}file is empty`), { code: 'ERR_INVALID_ARG_VALUE' });
  if (args != null && !Array.isArray(args)) throw wrongType(`${caller}args`, 'an array', args);
  checkObject(`${caller}options`, options);
  return [args ?? [], options ?? {}];
}

module.exports = { ExitError, LaunchError, checkAbort, checkAmount, checkId, checkObject, checkSignal, isList, isObject, toArguments, wrongNumber, wrongType };
