"""Settings of a child that `subprocess` does not have."""

# Annotations are strings here, which only type checkers evaluate.
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Collection, Iterable, Literal, Mapping, TypedDict

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike, StrOrBytesPath

    from ._forkless import Pty, Sandbox, Warm


class Settings(TypedDict, total=False):
    """Keywords of `run`, `Popen`, `prepare` and the functions of `forkless.asyncio`; None is as if it were not there. No keyword makes
    the launch fork, except launcher="fork". Each is a builder of the Rust library's Command, where it is documented (`docs/settings.md`); names
    may be given in any case.
    """

    fds: Mapping[int, FileDescriptorLike] | None
    """{number: descriptor, file or DEVNULL}: what the child finds at its numbers, whatever they are here."""
    executable_fd: FileDescriptorLike | None
    """The program, as an open file or its descriptor."""
    retry_busy: float | None
    """Seconds to try again while the program is open for writing (default: 0.1)."""
    scripts_by_shell: bool | None
    """True: a file without #! that is no program is run by /bin/sh, in place of an error (ENOEXEC)."""
    default_signals: Iterable[int] | None
    """Signals at their default."""
    ignore_signals: Iterable[int] | None
    """Signals that are ignored."""
    block_signals: Iterable[int] | None
    """Signals that are blocked, in place of the caller's mask."""
    launcher: Literal['clone', 'fork', 'posix_spawn'] | None
    """"clone", "fork" or "posix_spawn"."""
    pty: Pty | None
    """A `forkless.Pty`: the session, the controlling terminal, and the standard streams that are not set otherwise."""
    sandbox: bool | Sandbox | None
    """A `forkless.Sandbox`: what the program may do, if it is not trusted. True: `Sandbox()`."""
    warm: bool | Warm | None
    """True, or a `forkless.Warm`: launch from a template of the loaded program, if nothing but the time differs (experimental: docs/warm.md)."""
    best_effort: Iterable[str] | None
    """Steps that may fail, by the words of `OSError.step`."""
    rlimits: Mapping[int | str, int | tuple[int, int]] | None
    """{resource.RLIMIT_… or a name such as "nofile": (soft, hard), or one number for both}."""
    scheduler: tuple[int | str, int] | None
    """(os.SCHED_… or "other", "fifo", "rr", "batch", "idle"; priority)."""
    cpu_affinity: Iterable[int] | None
    """The CPUs it may run on."""
    io_priority: tuple[int | str, int] | None
    """("realtime", "best-effort" or "idle"; level from 0 to 7)."""
    unshare: Iterable[int | str] | None
    """Namespaces of its own: "user", "pid", "net", "mount", "uts", "ipc", "cgroup", "time", or os.CLONE_NEW…."""
    join: Mapping[int | str, FileDescriptorLike | StrOrBytesPath] | None
    """{namespace: descriptor, file or path of one that is to be joined}."""
    uid_map: Iterable[tuple[int, int, int]] | None
    """[(inside, outside, count)]: user ids of the new user namespace."""
    gid_map: Iterable[tuple[int, int, int]] | None
    """The same for groups."""
    mounts: Iterable[tuple[Any, ...]] | None
    """What is mounted in a mount namespace, in this order: tuples ("bind", source, target), ("bind_read_only", source, target),
    ("read_only", target), ("tmpfs", target, options), ("proc", target), ("devices", target), ("unmount", target), ("dir", path, mode),
    ("symlink", to, path), ("attributes", target, set, clear), ("attach", descriptor, target), ("overlay", [lower], (upper, work) or None,
    target), ("file_system", kind, {parameter: value or None}, attributes, target), ("mount", source, target, kind, flags, data)."""
    seccomp: bytes | None
    """A filter of system calls: bytes of `struct sock_filter`, as libseccomp exports them."""
    # settings: begin
    nice: int | None
    """Set the nice value, from -20 to 19."""
    timer_slack: int | None
    """Set the timer slack, in nanoseconds (0: the caller's default)."""
    personality: int | None
    """Set the execution domain and its flags: personality(2)."""
    oom_score_adj: int | None
    """Set how readily the OOM killer kills the child, from -1000 (never) to 1000."""
    memory_policy: str | None
    """Set the NUMA memory policy: local, preferred:NODE, membind:NODES or interleave:NODES (0-3,5 or all)."""
    memory_deny_write_execute: bool | None
    """Deny memory that is writable and executable: PR_SET_MDWE; needs the launcher fork unless the caller becomes the program."""
    chroot: StrOrBytesPath | None
    """Set the root directory: chroot(2)."""
    controlling_terminal: int | None
    """Make the terminal at this descriptor of the child its controlling terminal; needs a new session."""
    foreground: int | None
    """Make the child's process group the foreground group of the terminal at this descriptor."""
    no_new_privs: bool | None
    """Prevent exec from granting privileges: PR_SET_NO_NEW_PRIVS."""
    parent_death_signal: int | None
    """Send the child this signal when the calling process ends (this may start a thread of the library)."""
    thread_death_signal: int | None
    """Send the child this signal when the thread ends that launches it."""
    hostname: str | bytes | None
    """Set the host name of the new UTS namespace."""
    pivot_root: StrOrBytesPath | None
    """Make this directory the root of the mount namespace: pivot_root(2)."""
    cgroup: FileDescriptorLike | StrOrBytesPath | None
    """Start in this cgroup (version 2), named by its directory; every launch then waits for the exec."""
    memory_max: int | float | str | None
    """Limit the memory of the child with all that it starts, in bytes (suffix K, M, G or T): a cgroup for each launch."""
    tasks_max: int | float | str | None
    """Limit the processes and threads of the child with all that it starts."""
    cpu_max: int | float | str | None
    """Limit the CPU time of the child with all that it starts: a number of CPUs, such as 1.5."""
    io_max: int | float | str | None
    """Limit the disk I/O of the child with all that it starts: a line of io.max, such as 8:0 rbps=10485760."""
    cgroup_parent: StrOrBytesPath | None
    """Make a cgroup for each launch below this one, named by its directory; what the child leaves in it is killed."""
    bounding_set: Iterable[str] | int | None
    """Set the bounding set: capabilities(7)."""
    permitted: Iterable[str] | int | None
    """Set the permitted capabilities."""
    effective: Iterable[str] | int | None
    """Set the effective capabilities."""
    inheritable: Iterable[str] | int | None
    """Set the inheritable capabilities."""
    ambient: Iterable[str] | int | None
    """Set the ambient capabilities."""
    securebits: int | None
    """Set the securebits: capabilities(7)."""
    kill_tree: bool | None
    """End all that the program has started together with it: Linux 6.12, or a sandbox of namespaces."""
    landlock: FileDescriptorLike | None
    """Restrict the child by a Landlock ruleset: landlock(7)."""
    # settings: end


class AsyncSettings(Settings, total=False):
    """Those, and the other keywords that the functions of `forkless.asyncio` take: streams are of bytes, and unbuffered."""

    user: str | int | None
    group: str | int | None
    extra_groups: Iterable[str | int] | None
    umask: int
    pipesize: int
    process_group: int | None
    kill_group: bool
    executable: StrOrBytesPath | None
    preexec_fn: Callable[[], object] | None
    close_fds: bool
    cwd: StrOrBytesPath | None
    env: Mapping[str, StrOrBytesPath] | Mapping[bytes, StrOrBytesPath] | None
    startupinfo: None
    creationflags: Literal[0]
    restore_signals: bool
    start_new_session: bool
    pass_fds: Collection[int]
    universal_newlines: Literal[False] | None
    shell: Literal[False] | None
    bufsize: Literal[0] | None
    encoding: None
    errors: None
    text: Literal[False] | None
