'use strict';

// As calls.py, for Node: node calls.js TURNS FORKLESS PACKAGES

const { execFile } = require('node:child_process');
const path = require('node:path');
const { pathToFileURL } = require('node:url');
const { promisify } = require('node:util');

const PROGRAM = '/bin/true';
const CALLS = 10;
const [, , turns, own, packages] = process.argv;

async function load(name, file) {
  try {
    return await import(pathToFileURL(path.join(packages, 'node_modules', name, file)));
  } catch {
    return undefined;
  }
}

async function main() {
  const forkless = require(own);
  const standard = promisify(execFile);
  const methods = {
    'execFile of child_process': () => standard(PROGRAM),
    'forkless.run': () => forkless.run(PROGRAM),
    'forkless.runPipeline, 2 programs': () => forkless.runPipeline([[PROGRAM], [PROGRAM]]),
  };
  const execa = await load('execa', 'index.js');
  if (execa) {
    methods.execa = () => execa.execa(PROGRAM);
    methods['execa, 2 programs'] = () => execa.execa(PROGRAM).pipe(PROGRAM);
  }
  const zx = await load('zx', 'build/index.js');
  if (zx) {
    zx.$.quiet = true;
    methods.zx = () => zx.$`${PROGRAM}`;
  }
  const times = Object.fromEntries(Object.keys(methods).map((name) => [name, []]));
  for (let turn = 0; turn <= Number(turns); turn += 1) {
    for (const [name, call] of Object.entries(methods)) {
      for (let n = 0; n < CALLS; n += 1) {
        const begun = performance.now();
        await call();
        // The first turn only warms up.
        if (turn > 0) times[name].push((performance.now() - begun) / 1e3);
      }
    }
  }
  console.log(JSON.stringify(times));
}

main();
