'use strict';

// A forked child for the cases: sends back what it gets.

const net = require('node:net');

process.on('message', (got, handle) => {
  if (got === 'leave') return process.disconnect();
  if (got === 'serve') {
    handle.on('connection', (socket) => socket.end('from the child'));
    return process.send('serving');
  }
  return process.send({ got, argv: process.argv.slice(2), isServer: handle instanceof net.Server });
});
