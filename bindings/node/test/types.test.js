'use strict';

// The declarations of types: the compiler accepts right uses and refuses wrong ones, and each name exists.

const assert = require('node:assert');
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const forkless = require('..');

const directory = path.join(__dirname, 'packages');
const compiler = path.join(directory, 'node_modules', 'typescript', 'bin', 'tsc');

test('the declarations name what the module exports', () => {
  const text = fs.readFileSync(path.join(__dirname, '..', 'lib', 'index.d.ts'), 'utf8');
  const names = new Set([...text.matchAll(/^export (?:function|class) ([\w$]+)/gm)].map(([, name]) => name));
  assert.deepStrictEqual([...names].sort(), Object.keys(forkless).sort());
});

test('the addon knows each setting of the declarations', async () => {
  const text = fs.readFileSync(path.join(__dirname, '..', 'lib', 'settings.d.ts'), 'utf8');
  const names = [...text.matchAll(/^ {2}(\w+)\?: /gm)].map(([, name]) => name);
  assert.ok(names.length > 30, `${names}`);
  for (const name of names) {
    // No setting takes a function, so each is refused: for its value, and not for its name.
    const error = await forkless.run('true', { [name]: { wrong: ['value'] } }).then(() => undefined, (why) => why);
    assert.ok(error, name);
    assert.doesNotMatch(error.message, /there is no option/);
  }
});

test('the compiler accepts right uses, and refuses wrong ones', () => {
  if (!fs.existsSync(compiler)) return console.log('SKIPPED: types, because npm has not installed the compiler');
  const options = ['--noEmit', '--strict', '--module', 'node16', '--target', 'es2022', '--types', 'node', '--esModuleInterop'];
  const check = (file) => spawnSync(process.execPath, [compiler, ...options, path.join(directory, file)], { encoding: 'utf8', cwd: directory });
  const good = check('right.ts');
  assert.strictEqual(good.status, 0, good.stdout);
  const bad = check('wrong.ts');
  const lines = fs.readFileSync(path.join(directory, 'wrong.ts'), 'utf8').split('\n');
  const expected = lines.flatMap((line, at) => (line.endsWith('// wrong') ? [at + 1] : []));
  const found = [...bad.stdout.matchAll(/^wrong\.ts\((\d+),/gm)].map(([, line]) => Number(line));
  assert.deepStrictEqual([...new Set(found)], expected, bad.stdout);
});
