# The npm packages, as a user has them: npm takes the package of this machine's platform, and leaves that of others.
say() { { set +x; } 2>/dev/null; echo "packages: $*"; set -x; }

mkdir /tmp/project
cd /tmp/project
echo '{ "name": "project", "version": "1.0.0", "private": true }' >package.json
# Not from a registry, where nothing is.
npm install --offline --no-audit --no-fund /packages/forkless-[0-9]*.tgz /packages/forkless-linux-"$(node -p process.arch)"-gnu-*.tgz
ls node_modules
test "$(ls node_modules | grep -c '^forkless-linux-')" = 1
test -s node_modules/forkless-linux-*/THIRD-PARTY.txt
test ! -e node_modules/forkless/prebuilds
cat >require.js <<'END'
const assert = require('node:assert');
const { run, spawn, install, LaunchError } = require('forkless');
(async () => {
  const child = spawn('sh', ['-c', 'exit 3']);
  assert.strictEqual((await child.wait()).code, 3);
  assert.strictEqual((await run('echo', ['said'], { nice: 1 })).stdout, 'said\n');
  await assert.rejects(run('true', [], { cwd: '/no/such' }), (error) => error instanceof LaunchError && error.step === 'chdir');
  assert.strictEqual(install(), true);
  const { execFileSync, exec } = require('node:child_process');
  assert.strictEqual(execFileSync('echo', ['through']).toString(), 'through\n');
  exec('echo shell', (error, stdout) => assert.deepStrictEqual([error, stdout], [null, 'shell\n']));
})();
END
node require.js
cat >import.mjs <<'END'
import assert from 'node:assert';
import forkless, { run } from 'forkless';
assert.strictEqual((await run('echo', ['imported'])).stdout, 'imported\n');
assert.strictEqual(forkless.run, run);
END
node import.mjs
test "$(node --require forkless/install -p 'String(require("node:child_process").execSync("echo preloaded"))' | head -1)" = preloaded
# Without the package of the platform, the error says what to do.
rm -r node_modules/forkless-linux-*
if node -e 'require("forkless")' 2>error; then exit 1; fi
grep 'forkless-linux-.*--omit=optional' error
cd /
rm -r /tmp/project
say 'the npm packages work'
