'use strict';

// The tool calls of an agent: each with a limit of time and output, and no process left behind.

const { run } = require('forkless');

const CALLS = [
  ['git', ['rev-parse', 'HEAD']],
  ['ls', ['-la', '/']],
  ['sh', ['-c', 'sleep 60 & wait']],
  ['no-such-tool', []],
];

async function call(file, args) {
  try {
    const { code, signal, stdout, timedOut } = await run(file, args, { timeout: 500, maxBuffer: 64 * 1024, killGroup: true, noNewPrivs: true });
    return timedOut ? 'timed out' : `${signal ?? `exit code ${code}`}, ${stdout.length} characters`;
  } catch (error) {
    return error.message;
  }
}

async function main() {
  for (const [file, args] of CALLS) console.log(`${file}: ${await call(file, args)}`);
}

main();
