/** An open file: its descriptor, or an object that has one. */
export type FileLike = number | { readonly fd: number };
export type Namespace = 'time' | 'mount' | 'cgroup' | 'uts' | 'ipc' | 'user' | 'pid' | 'net';
export type Limit = number | bigint | 'unlimited';
/** `[inside, outside, count]` */
export type IdMap = readonly [number, number, number];

/**
 * Settings of a child that `child_process` does not have. Each is a builder of the Rust library's `Command`, where it is documented
 * (docs/settings.md). `undefined` and `null` are as if the name were missing.
 */
export interface Settings {
  /** Inherit every descriptor that is not close-on-exec. The launch then depends on the number of open files. */
  inheritAll?: boolean;
  /** Join this process group; 0: lead a new one. */
  processGroup?: number;
  /** Milliseconds to try again while the program is open for writing (default: 0). */
  retryBusy?: number;
  /** Signals that are ignored, by number. */
  ignoreSignals?: Iterable<number>;
  /** Signals that are blocked, by number. */
  blockSignals?: Iterable<number>;
  /**
   * Launch it warm if it can be: from a template of the program (docs/warm.md). Experimental. Needs `libforkless_warm.so`; without it
   * the launch fails.
   */
  warm?: boolean;
  /** The launcher (default: clone). */
  launcher?: 'clone' | 'fork' | 'posix_spawn';
  /** Steps that may fail, by the words of `LaunchError.step`. */
  bestEffort?: Iterable<string>;
  /** Resource limits by name, such as `nofile`: soft and hard, or one number for both. */
  rlimits?: Readonly<Record<string, Limit | readonly [Limit, Limit]>>;
  /** Policy and priority. */
  scheduler?: readonly ['other' | 'fifo' | 'rr' | 'batch' | 'idle', number];
  /** The CPUs it may run on. */
  cpuAffinity?: Iterable<number>;
  /** Class and level, from 0 to 7. */
  ioPriority?: readonly ['realtime' | 'best-effort' | 'idle', number];
  /** Namespaces of its own. */
  unshare?: Iterable<Namespace>;
  /** Namespaces to join: each an open file, or its path. */
  join?: Readonly<Partial<Record<Namespace, FileLike | string>>>;
  /** User IDs of the new user namespace. */
  uidMap?: Iterable<IdMap>;
  /** Group IDs of the new user namespace. */
  gidMap?: Iterable<IdMap>;
  /**
   * Operations on mounts, in this order: `['bind', source, target]`, `['bind_read_only', source, target]`, `['read_only', target]`,
   * `['tmpfs', target, options]`, `['proc', target]`, `['devices', target]`, `['unmount', target]`, `['dir', path, mode]`,
   * `['symlink', to, path]`, `['attributes', target, set, clear]`, `['attach', file, target]`, `['overlay', lower, [upper, work] or
   * null, target]`, `['file_system', kind, parameters, attributes, target]`, `['mount', source, target, kind, flags, data]`.
   */
  mounts?: Iterable<readonly [string, ...unknown[]]>;
  /** A filter of system calls: bytes of `struct sock_filter`, as libseccomp exports them. */
  seccomp?: Uint8Array;
  // settings: begin
  /** Set the nice value, from -20 to 19. */
  nice?: number;
  /** Set the timer slack, in nanoseconds (0: the caller's default). */
  timerSlack?: number | bigint;
  /** Set the execution domain and its flags: personality(2). */
  personality?: number;
  /** Set how readily the OOM killer kills the child, from -1000 (never) to 1000. */
  oomScoreAdj?: number;
  /** Set the NUMA memory policy: local, preferred:NODE, membind:NODES or interleave:NODES (0-3,5 or all). */
  memoryPolicy?: string;
  /** Deny memory that is writable and executable: PR_SET_MDWE; needs the launcher fork unless the caller becomes the program. */
  memoryDenyWriteExecute?: boolean;
  /** Set the root directory: chroot(2). */
  chroot?: string;
  /** Set the file mode creation mask: umask(2). */
  umask?: number | string;
  /** Make the terminal at this descriptor of the child its controlling terminal; needs a new session. */
  controllingTerminal?: number;
  /** Make the child's process group the foreground group of the terminal at this descriptor. */
  foreground?: number;
  /** Prevent exec from granting privileges: PR_SET_NO_NEW_PRIVS. */
  noNewPrivs?: boolean;
  /** Send the child this signal when the calling process ends (this may start a thread of the library). */
  parentDeathSignal?: number;
  /** Send the child this signal when the thread ends that launches it. */
  threadDeathSignal?: number;
  /** Set the host name of the new UTS namespace. */
  hostname?: string;
  /** Make this directory the root of the mount namespace: pivot_root(2). */
  pivotRoot?: string;
  /** Start in this cgroup (version 2), named by its directory; every launch then waits for the exec. */
  cgroup?: FileLike | string;
  /** Limit the memory of the child with all that it starts, in bytes (suffix K, M, G or T): a cgroup for each launch. */
  memoryMax?: number | string;
  /** Limit the processes and threads of the child with all that it starts. */
  tasksMax?: number | string;
  /** Limit the CPU time of the child with all that it starts: a number of CPUs, such as 1.5. */
  cpuMax?: number | string;
  /** Limit the disk I/O of the child with all that it starts: a line of io.max, such as 8:0 rbps=10485760. */
  ioMax?: number | string;
  /** Make a cgroup for each launch below this one, named by its directory; what the child leaves in it is killed. */
  cgroupParent?: string;
  /** Set the bounding set: capabilities(7). */
  boundingSet?: Iterable<string> | number | bigint;
  /** Set the permitted capabilities. */
  permitted?: Iterable<string> | number | bigint;
  /** Set the effective capabilities. */
  effective?: Iterable<string> | number | bigint;
  /** Set the inheritable capabilities. */
  inheritable?: Iterable<string> | number | bigint;
  /** Set the ambient capabilities. */
  ambient?: Iterable<string> | number | bigint;
  /** Set the securebits: capabilities(7). */
  securebits?: number;
  /** End all that the program has started together with it: Linux 6.12, or a sandbox of namespaces. */
  killTree?: boolean;
  /** Restrict the child by a Landlock ruleset: landlock(7). */
  landlock?: FileLike;
  // settings: end
}

