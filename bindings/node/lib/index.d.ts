/// <reference types="node" />
import { type Readable } from 'node:stream';
import { type ReadStream } from 'node:tty';
import { ChildProcess, type IOType, type SerializationType, type StdioOptions } from 'node:child_process';
import type { Settings } from './settings.js';

export type { FileLike, IdMap, Limit, Namespace, Settings } from './settings.js';

/** The options of `child_process.spawn`, and the settings of forkless. */
export interface SpawnOptions extends Settings {
  argv0?: string;
  cwd?: string | URL;
  detached?: boolean;
  /** All variables of the child (default: `process.env`). */
  env?: NodeJS.ProcessEnv;
  gid?: number;
  /** A new terminal (pts(4)) for the standard streams that `stdio` does not set, in a session of its own: `pty` of the child. For `spawn`. */
  pty?: boolean | { rows?: number; columns?: number };
  killSignal?: NodeJS.Signals | number;
  /** Standard error goes where standard output goes, in order: both are in `stdout`, and `stdio` does not set standard error (default: false). */
  merged?: boolean;
  /** What the program may do, if it is not trusted: a `Sandbox`, or the options of one for this launch. True: `{}`. */
  sandbox?: Sandbox | SandboxOptions | boolean;
  serialization?: SerializationType;
  shell?: boolean | string;
  signal?: AbortSignal;
  stdio?: StdioOptions | IOType;
  /** Milliseconds, after which the child is killed with `killSignal`. */
  timeout?: number;
  uid?: number;
  windowsHide?: boolean;
}

/** What a program in a sandbox may do (docs/sandbox.md). It reads the programs and libraries of the system in any case. */
export interface SandboxOptions {
  /**
   * 'namespaces' (default): the program sees nothing else, and has an init. 'landlock': Landlock and a filter of system calls alone, which
   * hide nothing, and work where user namespaces are refused.
   */
  mode?: 'namespaces' | 'landlock';
  /** Files and directories that it may read, with all below them. */
  read?: string | URL | readonly (string | URL)[];
  /** Files and directories that it may also write to. */
  write?: string | URL | readonly (string | URL)[];
  /** As `write`, but what programs outside obey there, such as hooks of git, stays read-only. With namespaces. */
  project?: string | URL | readonly (string | URL)[];
  /** With namespaces: paths and patterns below these that cannot be opened, such as '*.pem', looked up at each launch, or by prepare(). */
  hide?: string | URL | readonly (string | URL)[];
  /** 'none': a loopback device alone (default with namespaces). 'refused': no sockets (default with Landlock). 'host': that of this process. */
  network?: 'none' | 'refused' | 'host';
  /** Variables that it inherits beside PATH, HOME, TERM, LANG and the like. With `env`, exactly those are passed. */
  keepEnv?: string | readonly string[];
  /** With namespaces: milliseconds that its other processes have when the program has ended (default: 200). */
  linger?: number;
  /** With namespaces: what it writes to /tmp and /dev/shm cannot be executed, and Landlock of Linux 6.12 is required (default: false). */
  strict?: boolean;
  /** With namespaces, whether an init is PID 1 of the sandbox (default: true). `false`: the program itself is; faster, but see docs/sandbox.md. */
  init?: boolean;
  /** With Landlock: it may change modes, owners and times; that then holds for every file of its user (default: false). */
  changeAttributes?: boolean;
  /** Limits of each launch with all that it starts, as the settings of these names. */
  memoryMax?: number | string;
  tasksMax?: number | string;
  cpuMax?: number | string;
  ioMax?: number | string;
  cgroupParent?: string;
}

/** What a program may do, prepared once for any number of launches. `child_process`, also after `install()`, does not know it. */
export class Sandbox {
  /** Throws if a path cannot be opened, or with the code EOPNOTSUPP if the kernel has no Landlock of Linux 6.2. */
  constructor(options?: SandboxOptions);
  /** Tries whether this machine can give it to this process. The error says what is refused. */
  check(): void;
  readonly #number: number;
}

/** Limits of all processes in a new cgroup together. A limit needs the controller in the parent: docs/gotchas.md. */
export interface CgroupOptions {
  /** The directory of the cgroup to create it in (default: that of this process). */
  parent?: string | URL;
  /** Bytes, or a string such as '512M'. At this limit the kernel kills a process. */
  memoryMax?: number | string;
  /** Bytes above which the processes are slowed down. */
  memoryHigh?: number | string;
  memorySwapMax?: number | string;
  /** Processes and threads. */
  tasksMax?: number;
  /** CPUs, such as 1.5. */
  cpuMax?: number;
  /** From 1 to 10000. */
  cpuWeight?: number;
  ioWeight?: number;
  /** As in the file io.max, such as '8:16 wbps=1048576'. */
  ioMax?: string;
}

/** A new cgroup (version 2), for the option `cgroup`. A program in it cannot leave it without privileges. See cgroups(7). */
export class Cgroup {
  /** Throws if there is no cgroup of version 2, if this process may not create one, or if the parent has no controller to hand down. */
  constructor(options?: CgroupOptions);
  /** Its directory, and a descriptor of that. */
  readonly path: string;
  readonly fd: number;
  /** The contents of one of its files, such as 'memory.current'. */
  get(file: string): string;
  set(file: string, value: string | number): void;
  /** A file of names and numbers, such as 'memory.events'. */
  counters(file: string): Record<string, number>;
  /** How many of its processes the OOM killer has killed. */
  oomKills(): number;
  /** Signals all its processes. None can escape by forking. */
  signal(signal: NodeJS.Signals | number): void;
  /** Kills all its processes. */
  kill(): void;
  /** Resolves when it has no processes: true; or after so many milliseconds: false. */
  waitEmpty(timeout?: number): Promise<boolean>;
  /** Signals all its processes, and kills those that are left after `grace` milliseconds. True if none was left. */
  terminate(grace: number, signal?: NodeJS.Signals | number): Promise<boolean>;
  /** Kills all processes that are left, and removes it. */
  end(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface Exit {
  /** The exit code, or null if a signal killed the child. */
  code: number | null;
  /** The signal that killed the child, or null. */
  signal: NodeJS.Signals | null;
}

/** A child process: Node's `ChildProcess`, and a promise of its end. */
export class Child extends ChildProcess {
  /** Resolves when the child has ended. Rejects with a `LaunchError` if it could not be started. */
  wait(): Promise<Exit>;
  /** Kills the child and its process group, which it leads with `detached: true` (default: SIGKILL). */
  killGroup(signal?: NodeJS.Signals | number): boolean;
  /** Why the launch was not warm. Undefined if it was, or if `warm` was not set. */
  readonly coldReason?: string;
  /** How often it has reached its limits. Undefined before its end, and without limits. */
  readonly limitEvents?: LimitEvents;
  /** The caller's side of its terminal, with the option `pty`. */
  readonly pty?: Pty;
}

/**
 * A terminal, of which a child has the other side: what is written is typed, what is read is on the screen. It ends when the child and all others
 * that have it open have ended. `destroy()` hangs it up. `setRawMode(true)`: bytes pass unchanged.
 */
export interface Pty extends ReadStream {
  /** `/dev/pts/N`. */
  readonly path: string;
  readonly rows: number;
  readonly columns: number;
  /** Changes the size. The programs in the foreground get SIGWINCH. */
  resize(rows: number, columns: number): void;
  /** Whether typed bytes come back (default: yes). */
  echo(on: boolean): void;
  /** Types the end-of-file character, which ends one read of one program. */
  sendEof(): void;
}

/** A command that is compiled once and started any number of times. */
export class Prepared {
  private constructor();
  spawn(): Child;
}

export interface RunOptions extends Omit<SpawnOptions, 'stdio' | 'serialization' | 'pty'> {
  /** Reject with an `ExitError` unless the program exits with 0 within its limits (default: false). */
  check?: boolean;
  /** Milliseconds after `killSignal`, at a limit, until SIGKILL follows (default: never). */
  grace?: number;
  /** What the program reads (default: nothing). A stream may be that of a file. */
  input?: string | Uint8Array | Readable;
  /** The process leads a session, which is killed at a limit unless the process itself has ended (default: false). */
  killGroup?: boolean;
  /** The most bytes of both outputs together; at more the program is killed (default: 1 MiB; `Infinity`: no limit). */
  maxBuffer?: number;
  /** Show the output of the program as that of this process, too (default: false). */
  show?: boolean;
}

export interface Result<Output> extends Exit {
  pid: number;
  stdout: Output;
  stderr: Output;
  /** It was killed because `timeout` was over. */
  timedOut: boolean;
  /** It was killed because it wrote more than `maxBuffer`. */
  truncated: boolean;
  /** How often it has reached its limits; of several programs, the last one. Undefined without limits. */
  limitEvents?: LimitEvents;
}

/** How often a program, with all that it has started, has reached `memoryMax` and `tasksMax`. */
export interface LimitEvents {
  /** Processes that the kernel has killed because memory was exhausted. */
  oomKills: number;
  /** How often the memory was about to exceed its limit; the kernel then frees caches. */
  memoryMax: number;
  /** Forks and new threads that failed. */
  tasksMax: number;
}

/** A promise of the end of a program, and its child. */
export interface Running<Output> extends Promise<Result<Output>> {
  /** The child, whose streams may be read and listened to as well. Undefined if it could not be started, and, in a sandbox, before it is. */
  readonly child: Child | undefined;
  /** Sends a signal (default: SIGTERM), as soon as there is a child. */
  kill(signal?: NodeJS.Signals | number): boolean;
}

/** The options of `run` that need no event loop. */
export interface RunSyncOptions extends Omit<RunOptions, 'grace' | 'killGroup' | 'show' | 'signal'> {
  input?: string | Uint8Array;
}

/** A launch that failed. */
export class LaunchError extends Error {
  readonly code: string;
  readonly errno: number;
  readonly syscall: string;
  readonly path: string;
  readonly spawnargs: readonly string[];
  /** The program, as the caller named it. */
  readonly program: string;
  /** The step that failed, such as `exec` or `chdir`. */
  readonly step: string;
  /** The thing on which the step failed. */
  readonly object?: string;
}

/** A program that failed: from `run` with `check`. */
export class ExitError extends Error implements Result<string | Buffer> {
  readonly program: string;
  readonly pid: number;
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string | Buffer;
  readonly stderr: string | Buffer;
  readonly timedOut: boolean;
  readonly truncated: boolean;
}

/** Starts a program. */
export function spawn(file: string, args?: readonly string[], options?: SpawnOptions): Child;
export function spawn(file: string, options?: SpawnOptions): Child;

/** Returns a command that is compiled when it is first started: later starts cost less. */
export function prepare(file: string, args?: readonly string[], options?: SpawnOptions): Prepared;
export function prepare(file: string, options?: SpawnOptions): Prepared;

/** Runs a program to its end. Rejects with a `LaunchError` if it cannot be started. */
export function run(file: string, args: readonly string[], options: RunOptions & { encoding: 'buffer' }): Running<Buffer>;
export function run(file: string, options: RunOptions & { encoding: 'buffer' }): Running<Buffer>;
export function run(file: string, args?: readonly string[], options?: RunOptions & { encoding?: BufferEncoding }): Running<string>;
export function run(file: string, options?: RunOptions & { encoding?: BufferEncoding }): Running<string>;

/** The same, while the event loop stands still. Throws where `run` rejects. */
export function runSync(file: string, args: readonly string[], options: RunSyncOptions & { encoding: 'buffer' }): Result<Buffer>;
export function runSync(file: string, options: RunSyncOptions & { encoding: 'buffer' }): Result<Buffer>;
export function runSync(file: string, args?: readonly string[], options?: RunSyncOptions & { encoding?: BufferEncoding }): Result<string>;
export function runSync(file: string, options?: RunSyncOptions & { encoding?: BufferEncoding }): Result<string>;

/**
 * The lines that a program writes, without their ends, while it runs. A caller that takes no more ends the program. Rejects as `run` does, with
 * an `ExitError` unless `check` is false. `maxBuffer` is for standard error.
 */
export function lines(file: string, args?: readonly string[], options?: RunOptions & { encoding?: BufferEncoding }): AsyncGenerator<string, void, void>;
export function lines(file: string, options?: RunOptions & { encoding?: BufferEncoding }): AsyncGenerator<string, void, void>;

/** A program of a pipeline: its file and arguments, or these with options for it alone. */
export type PipelineProgram = readonly [file: string, ...args: string[]] | (Omit<SpawnOptions, 'stdio' | 'pty' | 'timeout' | 'signal'> & { file: string; args?: readonly string[] });

export interface PipelineOptions extends RunOptions {
  /** The last program that failed counts, as with a shell's `set -o pipefail` (default: the last program). */
  pipefail?: boolean;
}

/** The last program's end and output, the standard errors of all, and how each has ended. */
export interface PipelineResult<Output> extends Result<Output> {
  ends: Exit[];
}

/** Runs programs at the same time, each of which reads what the one before it writes, to the end of all. The limits are for all together. */
export function runPipeline(programs: Iterable<PipelineProgram>, options: PipelineOptions & { encoding: 'buffer' }): Promise<PipelineResult<Buffer>>;
export function runPipeline(programs: Iterable<PipelineProgram>, options?: PipelineOptions & { encoding?: BufferEncoding }): Promise<PipelineResult<string>>;

/** A part of a command: one argument, or a part of one. A result is what the program has printed, without newlines at its end. */
export type TemplateValue = string | number | bigint | Result<string>;

/**
 * Runs a command that is written as a template string, without a shell: words are separated by blanks, a value is one argument (or a part
 * of one), an array several. Quotes and other signs of shells are errors. Rejects with an `ExitError` unless `check` is false.
 */
export function $(parts: TemplateStringsArray, ...values: (TemplateValue | readonly TemplateValue[])[]): Running<string>;
export function $(options: RunOptions & { encoding: 'buffer' }): (parts: TemplateStringsArray, ...values: (TemplateValue | readonly TemplateValue[])[]) => Running<Buffer>;
export function $(options: RunOptions & { encoding?: BufferEncoding }): (parts: TemplateStringsArray, ...values: (TemplateValue | readonly TemplateValue[])[]) => Running<string>;

/** Makes `child_process` launch by forkless, in this thread. Returns false, and changes nothing, where the kernel has no pidfds. */
export function install(): boolean;

/** Gives `child_process` back to libuv. Children that run are still reported. */
export function uninstall(): void;
