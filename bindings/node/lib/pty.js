'use strict';

// Pseudo-terminals: the stream of a child that has the option `pty`.

const tty = require('node:tty');
const native = require('./native.js');

const isCount = (value) => Number.isInteger(value) && value >= 0 && value < 65536;

function checkSize(rows, columns) {
  if (!isCount(rows) || !isCount(columns)) throw new TypeError('pty: rows and columns are not numbers from 0 to 65535');
}

/** The caller's side of a child's terminal: what is written is typed, what is read is on the screen. */
class Pty extends tty.ReadStream {
  #native;

  constructor(options) {
    const { rows = 24, columns = 80, ...others } = options === true ? {} : options;
    const [unknown] = Object.keys(others);
    if (unknown !== undefined) throw new TypeError(`there is no option pty.${unknown}`);
    checkSize(rows, columns);
    const opened = native.NativePty.open(rows, columns);
    super(opened.fd());
    this.#native = opened;
    this.path = opened.path();
    this.rows = rows;
    this.columns = columns;
  }

  resize(rows, columns) {
    checkSize(rows, columns);
    this.#native.resize(rows, columns);
    Object.assign(this, { rows, columns });
  }

  echo(on) {
    this.#native.echo(Boolean(on));
  }

  sendEof() {
    this.#native.sendEof();
  }

  // Before the end, adds what libuv has not read.
  push(chunk, ...more) {
    if (chunk === null && !this.destroyed) {
      const rest = this.#native.rest();
      if (rest.length > 0) super.push(rest);
    }
    return super.push(chunk, ...more);
  }

  // A read fails with EIO when no process has the other side open: that is the end of the stream.
  destroy(error) {
    if (error?.code === 'EIO' && error.syscall === 'read') {
      this.push(null);
      return this;
    }
    return super.destroy(error);
  }

  _destroy(error, done) {
    this.#native.close();
    super._destroy(error, done);
  }

  // As a setting of one launch. `streams`: the standard streams that are the terminal.
  static toSetting(pty, streams) {
    return { number: pty.#native.number(), streams };
  }

  static released(pty) {
    pty.#native.release();
  }
}

module.exports = { Pty };
