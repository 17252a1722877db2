'use strict';

// Plays the cases, and writes a line of JSON for each: node play.js (stock|forkless).

const { AsyncResource } = require('node:async_hooks');
const { cases, place } = require('./cases.js');

if (process.argv[2] === 'forkless') {
  if (!require('..').install()) throw new Error('forkless cannot be installed');
}

async function main() {
  for (const [name, play] of Object.entries(cases)) {
    if (process.argv[3] && process.argv[3] !== name) continue;
    let answer;
    try {
      answer = await new AsyncResource('case').runInAsyncScope(play);
    } catch (error) {
      answer = { thrown: error.stack };
    }
    process.stdout.write(`${JSON.stringify({ name, answer: answer ?? null }).replaceAll(place, 'PLACE')}\n`);
  }
}

main();
