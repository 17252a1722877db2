'use strict';

// $`program ${argument}`: run() by a template string, without a shell. A value is never more than an argument.

const { checkObject } = require('./error.js');
const { runAs } = require('./run.js');

// Characters that a shell would interpret, and the program would get literally.
const OF_SHELLS = /["'`\\|&;<>()$*?]|(?<=^|\s)[~#]/;

function textOf(value, at) {
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'bigint') return `${value}`;
  // What another run() has printed, as a shell's $( ).
  if (typeof value?.stdout === 'string') return value.stdout.replace(/\n+$/, '');
  throw new TypeError(`value ${at + 1} of the command is not a string, a number, a result with text, or an array of these`);
}

function wordsOf(parts, values) {
  const words = [];
  let isOpen = false;
  const add = (text) => {
    if (isOpen) words[words.length - 1] += text;
    else words.push(text);
    isOpen = true;
  };
  parts.forEach((part, at) => {
    const [found] = parts.raw[at].replaceAll('\\\n', '').match(OF_SHELLS) ?? [];
    if (found !== undefined) throw new TypeError(`${found} is not interpreted, because no shell runs: pass it as a value, or run sh -c`);
    part.split(/\s+/).forEach((piece, n) => {
      if (n > 0) isOpen = false;
      if (piece !== '') add(piece);
    });
    if (at === values.length) return;
    if (!Array.isArray(values[at])) return add(textOf(values[at], at));
    values[at].forEach((value, n) => {
      if (n > 0) isOpen = false;
      add(textOf(value, at));
    });
  });
  return words;
}

function runTemplate(options, parts, values) {
  try {
    const [file, ...args] = wordsOf(parts, values);
    if (!file) throw new TypeError('the command has no program');
    return runAs('$: ', file, args, { ...options, check: options.check ?? true });
  } catch (error) {
    return Promise.reject(error);
  }
}

/** Runs a command that is written as a template string; with options, returns what does so. Unlike run(), `check` is true by default. */
function $(parts, ...values) {
  if (Array.isArray(parts?.raw)) return runTemplate({}, parts, values);
  checkObject('$: options', parts);
  return (given, ...more) => runTemplate(parts ?? {}, given, more);
}

module.exports = { $ };
