# The native part of the package.

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import IO, Any, Literal, final, type_check_only

from _typeshed import StrOrBytesPath
from typing_extensions import Self, TypedDict

__all__ = ["Cgroup", "Child", "Ending", "Prepared", "RawUsage", "Sandbox", "Warm", "memfd_create", "pidfd_open", "prepare", "reap_orphans", "run", "spawn", "start", "tell", "wait4"]

@type_check_only
class Usage(TypedDict):
    wall_time: float
    user_time: float
    system_time: float
    max_rss_kib: int
    minor_faults: int
    major_faults: int
    blocks_in: int
    blocks_out: int
    voluntary_switches: int
    involuntary_switches: int

@final
class Child:
    @property
    def pid(self) -> int: ...
    @property
    def stdin(self) -> IO[bytes] | None: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    @property
    def stderr(self) -> IO[bytes] | None: ...
    @property
    def returncode(self) -> int | None: ...
    @property
    def usage(self) -> Usage | None: ...
    @property
    def skipped(self) -> list[str]: ...
    @property
    def route(self) -> str: ...
    @property
    def cold_reason(self) -> str | None: ...
    def fileno(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def wait_exec(self) -> None: ...
    def exec_fileno(self) -> int: ...
    def has_executed(self, timeout: float | None = None) -> bool: ...
    def send_signal(self, signal: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def signal_group(self, signal: int) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...

@final
class Prepared:
    @property
    def args(self) -> Any: ...
    def spawn(self) -> Child: ...
    def launch(self) -> Child: ...
    def run(self, input: bytes | None = None, check: bool = False) -> subprocess.CompletedProcess[bytes]: ...
    def steps(self) -> list[str]: ...

@final
class Cgroup:
    def __new__(
        cls,
        parent: StrOrBytesPath | None = None,
        *,
        memory_max: int | str | None = None,
        memory_high: int | str | None = None,
        memory_swap_max: int | str | None = None,
        tasks_max: int | None = None,
        cpu_max: float | None = None,
        cpu_weight: int | None = None,
        io_weight: int | None = None,
        io_max: str | None = None,
    ) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_error: object) -> None: ...
    @property
    def path(self) -> str: ...
    def fileno(self) -> int: ...
    def get(self, file: str) -> str: ...
    def set(self, file: str, value: object) -> None: ...
    def counters(self, file: str) -> dict[str, int]: ...
    def oom_kills(self) -> int: ...
    def memory_peak(self) -> int: ...
    def cpu_time(self) -> float: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...
    def kill(self) -> None: ...
    def terminate(self, grace: float | None, signal: int = 15) -> bool: ...
    def wait_empty(self, timeout: float | None = None) -> bool: ...
    def close(self) -> None: ...

@final
class RawUsage:
    def fields(self) -> tuple[list[float], list[int]]: ...

@final
class Sandbox:
    def __new__(
        cls,
        *,
        mode: Literal["namespaces", "landlock"] = "namespaces",
        read: StrOrBytesPath | Iterable[StrOrBytesPath] | None = None,
        write: StrOrBytesPath | Iterable[StrOrBytesPath] | None = None,
        project: StrOrBytesPath | Iterable[StrOrBytesPath] | None = None,
        network: Literal["none", "refused", "host"] | None = None,
        keep_env: str | Iterable[str] | None = None,
        change_attributes: bool = False,
        linger: float | None = None,
        strict: bool = False,
    ) -> Self: ...
    def check(self) -> None: ...

@type_check_only
class WarmStats(TypedDict):
    warm: int
    cold: int
    starts: int
    refusals: int
    idle: int
    crashes: int

@final
class Warm:
    def __new__(
        cls,
        *,
        library: StrOrBytesPath | None = None,
        templates: int = 16,
        idle: float | None = None,
        life: float | None = None,
        launches: int = 100,
    ) -> Self: ...
    @staticmethod
    def of_process() -> Warm: ...
    def start(self, prepared: Prepared) -> str | None: ...
    @property
    def stats(self) -> WarmStats: ...
    @property
    def templates(self) -> list[int]: ...

@final
class Ending:
    @property
    def cold_reason(self) -> str | None: ...
    def child_ended(self, status: int) -> None: ...

def run(
    args: Any, input: Any, capture_output: bool, words: dict[str, Any]
) -> subprocess.CompletedProcess[Any] | None: ...
def prepare(
    args: Any,
    executable: Any,
    streams: tuple[int | None, int | None, int | None],
    pass_fds: Sequence[int],
    cwd: Any,
    env: Mapping[Any, Any] | None,
    start_new_session: bool,
    process_group: int | None,
    settings: dict[str, Any] | None,
) -> Prepared: ...
def start(
    args: Any,
    executable: Any,
    streams: tuple[int | None, int | None, int | None],
    close_fds: bool,
    pass_fds: Sequence[int],
    cwd: Any,
    env: Mapping[Any, Any] | None,
    restore_signals: bool,
    start_new_session: bool,
    process_group: int | None,
    settings: dict[str, Any] | None,
) -> Child: ...
def spawn(
    args: Any,
    executable: Any,
    close_fds: bool,
    pass_fds: Sequence[int],
    cwd: Any,
    env: Mapping[Any, Any] | None,
    streams: tuple[int, int, int],
    restore_signals: bool,
    start_new_session: bool,
    process_group: int,
    gid: int | None,
    gids: Sequence[int] | None,
    uid: int | None,
    umask: int,
    settings: dict[str, Any] | None,
    popen: Any = None,
) -> tuple[int, Child | None, int | None, Ending | None]: ...
def tell(error: BaseException, program: Any, step: str = "check") -> None: ...
def wait4(pid: int, options: int) -> tuple[int, int, RawUsage | None]: ...
def pidfd_open(pid: int) -> int: ...
def memfd_create(name: str) -> int: ...
def reap_orphans() -> int: ...
