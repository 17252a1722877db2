'use strict';

// The same table of cases on Node's child_process and on forkless: the answers must be equal.

const path = require('node:path');
const { test } = require('node:test');
const { cases } = require('./cases.js');
const { compare } = require('./compare.js');

test('child_process answers as without forkless', (all) => compare(all, path.join(__dirname, 'play.js'), Object.keys(cases)));
