// Uses packages of others that launch programs, and writes what they answer: node play.mjs (stock|forkless).

import fs from 'node:fs';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { once } from 'node:events';
import spawnCross from 'cross-spawn';
import { execa, execaSync, execaNode, $ as execa$ } from 'execa';
import shell from 'shelljs';
import { simpleGit } from 'simple-git';
import treeKill from 'tree-kill';
import { $, quiet } from 'zx';

const require = createRequire(import.meta.url);
if (process.argv[2] === 'forkless' && !require('../../lib/index.js').install()) throw new Error('forkless cannot be installed');

const place = fs.mkdtempSync(path.join(os.tmpdir(), 'forkless-node-'));
process.on('exit', () => fs.rmSync(place, { recursive: true, force: true }));
process.env.GIT_CONFIG_GLOBAL = '/dev/null';
process.env.GIT_CONFIG_SYSTEM = '/dev/null';
for (const who of ['AUTHOR', 'COMMITTER']) {
  process.env[`GIT_${who}_NAME`] = 'someone';
  process.env[`GIT_${who}_EMAIL`] = 'someone@example.org';
  process.env[`GIT_${who}_DATE`] = '2020-01-01T00:00:00Z';
}

function told(result) {
  const { name, shortMessage, command, exitCode, signal, stdout, stderr, failed, timedOut, isCanceled, isTerminated, isMaxBuffer, killed, code, originalMessage } = result;
  return { name, shortMessage, command, exitCode, signal, stdout, stderr, failed, timedOut, isCanceled, isTerminated, isMaxBuffer, killed, code, originalMessage };
}

const tried = (promise) => promise.then(told, told);

const cases = {
  'execa: output and exit codes': async () => Promise.all([tried(execa('echo', ['a b'])), tried(execa('sh', ['-c', 'echo x; echo y >&2; exit 3'])), tried(execa('no-such-program')), tried(execa('sh', ['-c', 'kill -TERM $$']))]),
  'execa: input, lines, all': async () => [await tried(execa('cat', { input: 'text' })), (await execa('printf', ['a\\nb\\n'], { lines: true })).stdout, (await execa('sh', ['-c', 'echo a; echo b >&2'], { all: true, buffer: true })).all.split('\n').sort()],
  'execa: timeout, cancel, maxBuffer': async () => {
    const stop = new AbortController();
    const cancelled = tried(execa('sleep', ['1000'], { cancelSignal: stop.signal }));
    stop.abort();
    const late = await tried(execa('sleep', ['1000'], { timeout: 50 }));
    const long = await tried(execa('yes', { maxBuffer: 10 }));
    return [late.timedOut, late.signal, (await cancelled).isCanceled, long.isMaxBuffer, long.stdout];
  },
  'execa: pipes between programs': async () => (await execa('printf', ['b\\na\\n']).pipe('sort').pipe('tr', ['a-z', 'A-Z'])).stdout,
  'execa: files, iteration, shell, options': async () => {
    const file = path.join(place, 'out');
    await execa('echo', ['to a file'], { stdout: { file } });
    const lines = [];
    for await (const line of execa('printf', ['1\\n2\\n3\\n'])) lines.push(line);
    return [fs.readFileSync(file, 'utf8'), lines, (await execa('echo $A | cat', { shell: true, env: { A: 'z' } })).stdout, (await execa('pwd', { cwd: '/usr' })).stdout, (await execa$`echo ${'a b'} c`).stdout];
  },
  'execa: sync': async () => [told(execaSync('echo', ['a'])), attempt(() => execaSync('false')), attempt(() => execaSync('no-such-program')), told(execaSync('cat', { input: 'in' }))],
  'execa: node with IPC': async () => {
    const file = path.join(place, 'child.mjs');
    fs.writeFileSync(file, "process.once('message', (got) => process.send({ got }, () => process.disconnect()));");
    const child = execaNode(file, { ipc: true });
    await child.sendMessage({ a: 1 });
    return [await child.getOneMessage(), told(await child).exitCode];
  },
  'execa: kill, and force after a delay': async () => {
    const child = execa('sh', ['-c', 'trap "" TERM; echo ready; while :; do sleep 0.05; done'], { forceKillAfterDelay: 50 });
    await once(child.stdout, 'data');
    child.kill();
    return (await tried(child)).signal;
  },
  'cross-spawn': async () => {
    const file = path.join(place, 'script');
    fs.writeFileSync(file, '#!/bin/sh\necho "$@"; exit 6\n', { mode: 0o755 });
    const child = spawnCross(file, ['a', 'b c']);
    let text = '';
    child.stdout.on('data', (data) => (text += data));
    const [code] = await once(child, 'close');
    const [error] = await once(spawnCross('no-such-program'), 'error');
    const sync = spawnCross.sync(file, ['x'], { encoding: 'utf8' });
    return [text, code, error.message, error.code, sync.status, sync.stdout, spawnCross.sync('no-such-program').error.message];
  },
  'zx': async () => {
    const zx = $({ quiet: true, cwd: place, shell: '/bin/bash', prefix: 'set -eu;' });
    const failing = await zx`echo out; echo err >&2; exit 4`.nothrow();
    const name = 'a b; c';
    const killed = zx`sleep 1000`.nothrow();
    setTimeout(() => killed.kill('SIGKILL'), 50);
    return [(await zx`echo ${name}`).stdout, failing.exitCode, failing.stdout, failing.stderr, (await zx`printf 'b\na\n'`.pipe(zx`sort`)).stdout, (await killed).signal, (await zx`sleep 1000`.timeout(50).nothrow()).signal, $.sync({ quiet: true })`echo sync`.stdout, (await Promise.all([1, 2, 3].map((n) => zx`echo ${n}`))).map(String)];
  },
  'simple-git': async () => {
    const git = simpleGit(place);
    await git.init(['--initial-branch=main']);
    fs.writeFileSync(path.join(place, 'file'), 'one\n');
    await git.add('file');
    const { commit, branch } = await git.commit('first');
    fs.appendFileSync(path.join(place, 'file'), 'two\n');
    fs.writeFileSync(path.join(place, 'other'), '');
    const status = await git.status();
    const log = await git.log();
    const failed = await git.checkout('no-such-branch').catch((error) => error.message);
    return [commit, branch, status.modified, status.not_added.includes('other'), log.all.map(({ hash, message }) => [hash, message]), await git.diff(), await git.revparse(['HEAD']), failed];
  },
  'shelljs': async () => {
    shell.config.silent = true;
    const sync = shell.exec('echo out; echo err >&2; exit 5');
    const piped = shell.exec('printf "b\\na\\n"').exec('sort');
    const list = shell.cmd('echo', 'a b', '$HOME');
    const [code, out] = await new Promise((resolve) => shell.exec('echo async; exit 2', { async: true }, (status, text) => resolve([status, text])));
    return [sync.code, sync.stdout, sync.stderr, piped.stdout, list.stdout, code, out, shell.which('sh') !== null, shell.exec('no-such-program-xyz').code];
  },
  'tree-kill': async () => {
    // The parent must not end when tree-kill has ended only its child.
    const child = spawnCross('sh', ['-c', 'sleep 1000 & echo $!; exec sleep 1000'], { stdio: ['ignore', 'pipe', 'ignore'] });
    const [data] = await once(child.stdout, 'data');
    const closed = once(child, 'close');
    const error = await new Promise((resolve) => treeKill(child.pid, 'SIGKILL', resolve));
    const [code, signal] = await closed;
    return [Number(data) > 0, error ?? null, code, signal];
  },
};

function attempt(how) {
  try {
    return told(how());
  } catch (error) {
    return told(error);
  }
}

for (const [name, play] of Object.entries(cases)) {
  let answer;
  try {
    answer = (await play()) ?? null;
  } catch (error) {
    answer = { thrown: error.stack };
  }
  process.stdout.write(`${JSON.stringify({ name, answer }).replaceAll(place, 'PLACE')}\n`);
}
