'use strict';

// Runs the own tests of npm packages that start programs, with child_process as it is and with forkless under it, and prints how many
// passed: node suites.js [--times N] [--only NAME,...] [--record DIRECTORY]. The packages are those that contain their tests. npm
// installs them into a temporary directory.
//
// Forkless is loaded by NODE_OPTIONS, so it is also under the programs of Node that a test starts. A test may fail without forkless: a
// package may be older than this Node. The package is the one that contains this file, or FORKLESS_PACKAGE.

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const { parseArgs } = require('node:util');

const { values: options } = parseArgs({ options: { times: { type: 'string', default: '3' }, only: { type: 'string' }, record: { type: 'string' } } });

// `tap` of some is an old runner that needs an older Node: tape has the functions that they use.
const ALL = [
  { name: 'jake', version: '10.8.7', with: ['mocha@10', 'q@1'], run: 'mocha', args: ['--ui', 'tdd', '--reporter', 'tap', '--timeout', '60000', '--ignore', 'jakefile.js', "'*.js'"], directory: 'test/integration' },
  { name: 'worker-farm', version: '1.7.0', with: ['tape@4'], run: 'tape', args: ['tests/index.js'] },
  { name: 'respawn', version: '2.6.0', with: ['tape@4'], run: 'tape', args: ['test/index.js'] },
  { name: 'nexpect', version: '0.6.0', with: ['vows@0.8'], run: 'vows', args: ['--tap', 'test/nexpect-test.js'] },
  { name: 'execspawn', version: '1.0.1', with: ['tap@npm:tape@4', 'endpoint@0.4'], run: 'tape', args: ['test.js'] },
  { name: 'comandante', version: '0.0.1', with: ['tap@npm:tape@4', 'through@1'], run: 'tape', args: ['test/log.js'] },
];

const SUITES = ALL.filter(({ name }) => !options.only || options.only.split(',').includes(name));

const install = path.join(process.env.FORKLESS_PACKAGE ?? path.join(__dirname, '..'), 'lib', 'install-now.js');

function must(file, args, where) {
  const { status, stdout, stderr } = spawnSync(file, args, { cwd: where, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${file} ${args.join(' ')}: ${status}\n${stdout}${stderr}`);
}

// All lines of a suite's output that begin with "ok" or "not ok": the names of what passed and failed, in an order that does not depend on
// the time. Names are without the number that TAP has before them.
function play({ name, run, args, directory = '.' }, place, NODE_OPTIONS) {
  const own = path.join(place, 'node_modules', name);
  const program = path.join(place, 'node_modules', '.bin', run);
  const line = `exec ${[program, ...args].join(' ')}`;
  const { stdout, stderr, signal } = spawnSync('/bin/sh', ['-c', line], { cwd: path.join(own, directory), encoding: 'utf8', env: { ...process.env, NODE_OPTIONS, PROJECT_DIR: own }, timeout: 600_000, killSignal: 'SIGKILL' });
  const named = (start) => [...stdout.matchAll(new RegExp(`^\\s*${start} \\d+(.*)$`, 'gm'))].map(([, what]) => what).sort();
  return { passed: named('ok'), failed: named('not ok'), signal, text: stdout + stderr };
}

function main() {
  const place = fs.mkdtempSync(path.join(os.tmpdir(), 'forkless-suites-'));
  const rows = [];
  try {
    for (const suite of SUITES) {
      const own = path.join(place, suite.name);
      fs.mkdirSync(own);
      fs.writeFileSync(path.join(own, 'package.json'), '{ "private": true }');
      must('npm', ['install', '--silent', '--no-audit', '--no-fund', '--legacy-peer-deps', `${suite.name}@${suite.version}`, ...suite.with], own);
      // A test of comandante reads the log of a repository.
      must('git', ['init', '-q', '.'], path.join(own, 'node_modules', suite.name));
      must('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.org', 'commit', '-q', '--allow-empty', '-m', 'a'], path.join(own, 'node_modules', suite.name));
      for (let turn = 0; turn < Number(options.times); turn++) {
        const [stock, ours] = ['', `--require ${install}`].map((node) => play(suite, own, node));
        rows.push({ ...suite, turn, stock, ours });
        const counts = [stock, ours].map(({ passed, failed }) => `${passed.length} passed, ${failed.length} failed`);
        console.error(`${suite.name}@${suite.version}: ${counts.join('; forkless: ')}`);
        if (stock.passed.length === 0) console.error(stock.text);
        else if (String(stock.failed) !== String(ours.failed)) console.error(ours.text);
      }
    }
  } finally {
    fs.rmSync(place, { recursive: true, force: true });
  }
  const lines = ['# Tests of npm packages', '', `Written by \`bindings/node/bench/suites.js\` with Node ${process.version}: the packages' own tests, each run ${options.times} times with child_process and with forkless, in turns. A number is that of assertions; several numbers are those of the runs, where they differ.`, ''];
  lines.push('| package | child_process: passed | failed | forkless: passed | failed |', '| --- | --: | --: | --: | --: |');
  for (const { name, version } of SUITES) {
    const turns = rows.filter((row) => row.name === name);
    const each = (method, what) => [...new Set(turns.map((row) => row[method][what].length))].join(', ');
    lines.push(`| ${name} ${version} | ${each('stock', 'passed')} | ${each('stock', 'failed')} | ${each('ours', 'passed')} | ${each('ours', 'failed')} |`);
  }
  const failing = new Set(rows.flatMap(({ name, stock, ours }) => [...stock.failed, ...ours.failed].map((what) => `${name}: ${what.trim().replace(/^- /, '').replace(/\d+/g, 'N')}`)));
  if (failing.size > 0) lines.push('', 'Failed in a run:', '', ...[...failing].sort().map((what) => `- ${what}`));
  const text = `${lines.join('\n')}\n`;
  process.stdout.write(text);
  if (options.record) {
    fs.mkdirSync(options.record, { recursive: true });
    fs.writeFileSync(path.join(options.record, 'packages.md'), text);
  }
}

main();
