import { $, Prepared, prepare, run, runPipeline, runSync, spawn } from '../../lib/index.js';

run(['ls']); // wrong
run('ls', { pty: true }); // wrong
runPipeline([{ args: ['x'] }]); // wrong
spawn('ls', { pty: 'yes' }); // wrong
run('ls', { nice: 'high' }); // wrong
spawn('ls', { unshare: ['everything'] }); // wrong
spawn('ls', { nonsense: true }); // wrong
new Prepared(); // wrong
prepare('ls').run(); // wrong
$`ls ${{}}`; // wrong
$('ls'); // wrong
run('ls', { grace: '5' }); // wrong
runSync('ls', { grace: 5 }); // wrong
run('ls').child.pid; // wrong
run('ls').then((result) => result.stdout.byteLength); // wrong
