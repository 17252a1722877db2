"""What a child can be given beside what `subprocess` knows."""

# Types are words here, and looked at by type checkers only.
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Collection, Iterable, Literal, Mapping, TypedDict

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike, StrOrBytesPath


class Settings(TypedDict, total=False):
    """Keywords of `run`, `Popen`, `prepare` and the functions of `forkless.asyncio`; None is as if it were not there. None makes the launch
    fork. Each is a builder of the Rust library's Command, where it is documented (`docs/settings.md`); names may be given in any case.
    """

    fds: Mapping[int, FileDescriptorLike] | None
    """{number: descriptor, file or DEVNULL}: what the child finds at its numbers, whatever they are here."""
    executable_fd: FileDescriptorLike | None
    """The program, as an open file or its descriptor."""
    retry_busy: float | None
    """Seconds to try again while the program is open for writing; 0.1 unless told otherwise."""
    scripts_by_shell: bool | None
    """True: a file without #! that is no program is run by /bin/sh, in place of an error (ENOEXEC)."""
    default_signals: Iterable[int] | None
    """Signals at their default."""
    ignore_signals: Iterable[int] | None
    """Signals that are ignored."""
    block_signals: Iterable[int] | None
    """Signals that are blocked, in place of the caller's mask."""
    controlling_terminal: int | None
    """The child's descriptor whose terminal becomes the controlling one; with start_new_session."""
    foreground: int | None
    """The child's descriptor in whose terminal its group comes to the foreground."""
    chroot: StrOrBytesPath | None
    """The root directory."""
    launcher: Literal['clone', 'fork', 'posix_spawn'] | None
    """"clone", "fork" or "posix_spawn"."""
    best_effort: Iterable[str] | None
    """Steps that may fail, by the words of `OSError.step`."""
    rlimits: Mapping[int | str, int | tuple[int, int]] | None
    """{resource.RLIMIT_… or a name such as "nofile": (soft, hard), or one number for both}."""
    nice: int | None
    """The nice value, from -20 to 19."""
    scheduler: tuple[int | str, int] | None
    """(os.SCHED_… or "other", "fifo", "rr", "batch", "idle"; priority)."""
    cpu_affinity: Iterable[int] | None
    """The processors it may run on."""
    io_priority: tuple[int | str, int] | None
    """("realtime", "best-effort" or "idle"; level from 0 to 7)."""
    timer_slack: int | None
    """Nanoseconds that timers may be late."""
    personality: int | None
    """The execution domain, a number."""
    oom_score_adj: int | None
    """How ready the kernel is to kill it when memory runs out, from -1000 to 1000."""
    parent_death_signal: int | None
    """The signal it gets when this process ends."""
    thread_death_signal: int | None
    """The signal it gets when the thread ends that launches it."""
    unshare: Iterable[int | str] | None
    """Namespaces of its own: "user", "pid", "net", "mount", "uts", "ipc", "cgroup", "time", or os.CLONE_NEW…."""
    join: Mapping[int | str, FileDescriptorLike | StrOrBytesPath] | None
    """{namespace: descriptor, file or path of one that is to be joined}."""
    uid_map: Iterable[tuple[int, int, int]] | None
    """[(inside, outside, count)]: user ids of the new user namespace."""
    gid_map: Iterable[tuple[int, int, int]] | None
    """The same for groups."""
    hostname: str | bytes | None
    """The host name in a UTS namespace."""
    mounts: Iterable[tuple[Any, ...]] | None
    """What is mounted in a mount namespace, in this order: tuples ("bind", source, target), ("bind_read_only", source, target),
    ("read_only", target), ("tmpfs", target, options), ("proc", target), ("devices", target), ("unmount", target), ("dir", path, mode),
    ("symlink", to, path), ("attributes", target, set, clear), ("attach", descriptor, target), ("overlay", [lower], (upper, work) or None,
    target), ("file_system", kind, {parameter: value or None}, attributes, target), ("mount", source, target, kind, flags, data)."""
    pivot_root: StrOrBytesPath | None
    """The directory that becomes the root of its mount namespace."""
    cgroup: FileDescriptorLike | StrOrBytesPath | None
    """The control group (version 2) it is born in: its directory's path or descriptor."""
    no_new_privs: bool | None
    """True: no privileges can be gained by exec."""
    bounding_set: Iterable[str] | int | None
    """Capabilities that can ever be had: names, or an int of bits."""
    permitted: Iterable[str] | int | None
    """Permitted capabilities."""
    effective: Iterable[str] | int | None
    """Effective capabilities."""
    inheritable: Iterable[str] | int | None
    """Inheritable capabilities."""
    ambient: Iterable[str] | int | None
    """Ambient capabilities."""
    securebits: int | None
    """The securebits."""
    landlock: FileDescriptorLike | None
    """A Landlock ruleset's descriptor."""
    seccomp: bytes | None
    """A filter of system calls: bytes of `struct sock_filter`, as libseccomp exports them."""


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
