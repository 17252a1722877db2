'use strict';

// What tests ask of processes.

const fs = require('node:fs');

/** Whether a process is there and has not ended. It may go between any two calls. */
function runs(pid) {
  try {
    return !/\) [ZX] /.test(fs.readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch {
    return false;
  }
}

module.exports = { runs };
