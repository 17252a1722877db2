import { $, Child, ExitError, LaunchError, install, lines, prepare, run, runPipeline, runSync, spawn, uninstall, type Result, type Settings } from '../../lib/index.js';

const settings: Settings = { nice: 5, rlimits: { nofile: [10, 'unlimited'], as: 1n << 40n }, unshare: ['user', 'net'], uidMap: [[0, 1000, 1]], seccomp: new Uint8Array(8), noNewPrivs: true };

async function use(): Promise<void> {
  const text: Result<string> = await run('ls', ['-l'], { timeout: 5, ...settings });
  const bytes: Result<Buffer> = await run('ls', { encoding: 'buffer' });
  const listed: Result<string> = await $`ls ${['-l', text]} ${5}`;
  const raw: Result<Buffer> = await $({ encoding: 'buffer', cwd: '/', grace: 100 })`ls ${listed}`;
  const child: Child = spawn('ls', { stdio: ['ignore', 'pipe', 2], cwd: new URL('file:///') });
  const { code, signal } = await child.wait();
  const piped = await runPipeline([['sort'], { file: 'uniq', args: ['-c'], nice: 5 }], { input: 'b', pipefail: true, timeout: 500 });
  const counts: (number | null)[] = piped.ends.map((end) => end.code);
  const pty = spawn('sh', [], { pty: { rows: 24, columns: 80 }, stdio: [null, 'pipe'] }).pty;
  pty?.resize(50, 120);
  for await (const line of lines('ls', ['-l'], { timeout: 500 })) console.log(line.length);
  await run('sort', { input: process.stdin, show: true });
  const running = run('make', { merged: true });
  prepare('make', { merged: true, stdio: ['ignore', 'pipe'] });
  running.child?.stdout?.pause();
  running.kill('SIGINT');
  const now: Result<string> = runSync('ls', { input: 'x', merged: true });
  pty?.write(`${piped.stdout} ${counts.length} ${pty.path}`, () => pty.sendEof());
  child.killGroup('SIGTERM');
  prepare('true', [], settings).spawn().kill();
  const installed: boolean = install();
  uninstall();
  console.log(text.stdout.length, bytes.stdout.byteLength + raw.stdout.byteLength, code, signal, installed);
}

use().catch((error: unknown) => {
  if (error instanceof LaunchError) console.log(error.step, error.object ?? error.code);
  if (error instanceof ExitError) console.log(error.stderr);
});
