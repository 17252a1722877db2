'use strict';

// Starts a program in a sandbox of the Node package: FORKLESS_TEST_ESCAPE_BY="node …/by_node.js" cargo test --test escape
// FORKLESS_NODE names the package.

const { spawn } = require(process.env.FORKLESS_NODE || 'forkless');

const [mode, read, program, ...words] = process.argv.slice(2);
const how = mode === 'landlock' ? { mode } : mode === 'refused' ? { network: 'refused' } : {};
spawn(program, words, { sandbox: { read, ...how }, cwd: '/', stdio: 'inherit' }).wait().then(({ code }) => process.exit(code ?? 5));
