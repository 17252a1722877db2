'use strict';

// A worker of `cluster` for robust.test.js.

const http = require('node:http');

const server = http.createServer((_, response) => response.end('served')).listen(0, '127.0.0.1', () => process.send('listening'));

process.on('message', () => {
  server.close();
  process.disconnect();
});
