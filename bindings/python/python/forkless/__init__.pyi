# The names of `subprocess` have the types that they have there. Further keywords are those of Settings.
#
# A process or its output is of str if text, encoding, errors or universal_newlines select it, of bytes if none is given, and unknown if a
# variable decides: six overloads each.

import resource
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from subprocess import (
    DEVNULL as DEVNULL,
    PIPE as PIPE,
    STDOUT as STDOUT,
    CalledProcessError as CalledProcessError,
    CompletedProcess as CompletedProcess,
    SubprocessError as SubprocessError,
    TimeoutExpired as TimeoutExpired,
    list2cmdline as list2cmdline,
)
from typing import IO, Any, AnyStr, Literal, Union, overload, type_check_only

from _typeshed import ReadableBuffer, StrOrBytesPath
from typing_extensions import TypeAlias, Unpack

from ._forkless import (
    Cgroup as Cgroup,
    Child as Child,
    Prepared as Prepared,
    Pty as Pty,
    Sandbox as Sandbox,
    Warm as Warm,
    reap_orphans as reap_orphans,
)
from ._install import install as install, is_installed as is_installed, uninstall as uninstall
from ._settings import Settings as Settings

__version__: str

__all__ = [
    "DEVNULL",
    "PIPE",
    "STDOUT",
    "CalledProcessError",
    "CapturedProcess",
    "Cgroup",
    "Child",
    "CompletedPipeline",
    "CompletedProcess",
    "Pipeline",
    "Popen",
    "PreexecWarning",
    "Prepared",
    "Pty",
    "Sandbox",
    "Settings",
    "SubprocessError",
    "TimeoutExpired",
    "Warm",
    "call",
    "check_call",
    "check_output",
    "getoutput",
    "getstatusoutput",
    "install",
    "is_installed",
    "list2cmdline",
    "prepare",
    "reap_orphans",
    "run",
    "run_pipeline",
    "uninstall",
]

_Command: TypeAlias = Union[StrOrBytesPath, Sequence[StrOrBytesPath]]
_File: TypeAlias = Union[int, IO[Any], None]
_Environment: TypeAlias = Union[Mapping[str, StrOrBytesPath], Mapping[bytes, StrOrBytesPath]]

class PreexecWarning(RuntimeWarning): ...

class CapturedProcess(CompletedProcess[AnyStr]):
    stdout_cut: int
    stderr_cut: int
    limit_events: dict[str, int] | None

class Popen(subprocess.Popen[AnyStr]):
    @overload
    def __init__(
        self: Popen[str], args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None,
        stdout: _File = None, stderr: _File = None, preexec_fn: Callable[[], object] | None = None, close_fds: bool = True,
        shell: bool = False, cwd: StrOrBytesPath | None = None, env: _Environment | None = None,
        universal_newlines: bool | None = None, startupinfo: Any = None, creationflags: int = 0, restore_signals: bool = True,
        start_new_session: bool = False, pass_fds: Collection[int] = (), *, user: str | int | None = None,
        group: str | int | None = None, extra_groups: Iterable[str | int] | None = None, encoding: str | None = None,
        errors: str | None = None, text: Literal[True], umask: int = -1, pipesize: int = -1, process_group: int | None = None,
        kill_group: bool = False, **settings: Unpack[Settings],
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: Popen[str], args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None,
        stdout: _File = None, stderr: _File = None, preexec_fn: Callable[[], object] | None = None, close_fds: bool = True,
        shell: bool = False, cwd: StrOrBytesPath | None = None, env: _Environment | None = None,
        universal_newlines: bool | None = None, startupinfo: Any = None, creationflags: int = 0, restore_signals: bool = True,
        start_new_session: bool = False, pass_fds: Collection[int] = (), *, user: str | int | None = None,
        group: str | int | None = None, extra_groups: Iterable[str | int] | None = None, encoding: str, errors: str | None = None,
        text: bool | None = None, umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False,
        **settings: Unpack[Settings],
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: Popen[str], args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None,
        stdout: _File = None, stderr: _File = None, preexec_fn: Callable[[], object] | None = None, close_fds: bool = True,
        shell: bool = False, cwd: StrOrBytesPath | None = None, env: _Environment | None = None,
        universal_newlines: bool | None = None, startupinfo: Any = None, creationflags: int = 0, restore_signals: bool = True,
        start_new_session: bool = False, pass_fds: Collection[int] = (), *, user: str | int | None = None,
        group: str | int | None = None, extra_groups: Iterable[str | int] | None = None, encoding: str | None = None, errors: str,
        text: bool | None = None, umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False,
        **settings: Unpack[Settings],
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: Popen[str], args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None,
        stdout: _File = None, stderr: _File = None, preexec_fn: Callable[[], object] | None = None, close_fds: bool = True,
        shell: bool = False, cwd: StrOrBytesPath | None = None, env: _Environment | None = None, *, universal_newlines: Literal[True],
        startupinfo: Any = None, creationflags: int = 0, restore_signals: bool = True, start_new_session: bool = False,
        pass_fds: Collection[int] = (), user: str | int | None = None, group: str | int | None = None,
        extra_groups: Iterable[str | int] | None = None, encoding: str | None = None, errors: str | None = None,
        text: bool | None = None, umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False,
        **settings: Unpack[Settings],
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: Popen[bytes], args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None,
        stdout: _File = None, stderr: _File = None, preexec_fn: Callable[[], object] | None = None, close_fds: bool = True,
        shell: bool = False, cwd: StrOrBytesPath | None = None, env: _Environment | None = None,
        universal_newlines: Literal[False] | None = None, startupinfo: Any = None, creationflags: int = 0,
        restore_signals: bool = True, start_new_session: bool = False, pass_fds: Collection[int] = (), *,
        user: str | int | None = None, group: str | int | None = None, extra_groups: Iterable[str | int] | None = None,
        encoding: None = None, errors: None = None, text: Literal[False] | None = None, umask: int = -1, pipesize: int = -1,
        process_group: int | None = None, kill_group: bool = False, **settings: Unpack[Settings],
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: Popen[Any], args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None,
        stdout: _File = None, stderr: _File = None, preexec_fn: Callable[[], object] | None = None, close_fds: bool = True,
        shell: bool = False, cwd: StrOrBytesPath | None = None, env: _Environment | None = None,
        universal_newlines: bool | None = None, startupinfo: Any = None, creationflags: int = 0, restore_signals: bool = True,
        start_new_session: bool = False, pass_fds: Collection[int] = (), *, user: str | int | None = None,
        group: str | int | None = None, extra_groups: Iterable[str | int] | None = None, encoding: str | None = None,
        errors: str | None = None, text: bool | None = None, umask: int = -1, pipesize: int = -1, process_group: int | None = None,
        kill_group: bool = False, **settings: Unpack[Settings],
    ) -> None: ...  # fmt: skip
    @property
    def usage(self) -> resource.struct_rusage | None: ...
    @property
    def limit_events(self) -> dict[str, int] | None: ...
    @property
    def cold_reason(self) -> str | None: ...
    def fileno(self) -> int: ...
    def signal_group(self, number: int) -> None: ...
    def terminate_group(self, grace: float, number: int = ...) -> int: ...

@type_check_only
class _OfEach(Settings, total=False):
    executable: StrOrBytesPath | None
    preexec_fn: Callable[[], object] | None
    close_fds: bool
    shell: bool
    cwd: StrOrBytesPath | None
    env: _Environment | None
    restore_signals: bool
    start_new_session: bool
    pass_fds: Collection[int]
    user: str | int | None
    group: str | int | None
    extra_groups: Iterable[str | int] | None
    umask: int
    pipesize: int
    process_group: int | None
    kill_group: bool

@type_check_only
class _Program(_OfEach):
    args: _Command

@type_check_only
class _OfPipeline(_OfEach, total=False):
    bufsize: int

@type_check_only
class _OfRun(_OfPipeline, total=False):
    stdin: _File
    stdout: _File
    stderr: _File
    capture_output: bool
    timeout: float | None
    check: bool

_Part: TypeAlias = Union[_Command, _Program]

class CompletedPipeline(CapturedProcess[AnyStr]):
    returncodes: list[int]

class Pipeline(Popen[AnyStr]):
    @overload
    def __init__(
        self: Pipeline[bytes], *commands: _Part, pipefail: bool = False, max_output: int | None = None, stdin: _File = None,
        stdout: _File = None, stderr: _File = None, text: Literal[False] | None = None, encoding: None = None, errors: None = None,
        **keywords: Unpack[_OfPipeline],
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: Pipeline[str], *commands: _Part, pipefail: bool = False, max_output: int | None = None, stdin: _File = None,
        stdout: _File = None, stderr: _File = None, text: Literal[True], encoding: str | None = None, errors: str | None = None,
        **keywords: Unpack[_OfPipeline],
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: Pipeline[str], *commands: _Part, pipefail: bool = False, max_output: int | None = None, stdin: _File = None,
        stdout: _File = None, stderr: _File = None, text: bool | None = None, encoding: str, errors: str | None = None,
        **keywords: Unpack[_OfPipeline],
    ) -> None: ...  # fmt: skip
    @property
    def returncodes(self) -> list[int | None]: ...

@overload
def run(
    args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None, stdout: _File = None,
    stderr: _File = None, preexec_fn: Callable[[], object] | None = None, close_fds: bool = True, shell: bool = False,
    cwd: StrOrBytesPath | None = None, env: _Environment | None = None, universal_newlines: bool | None = None,
    startupinfo: Any = None, creationflags: int = 0, restore_signals: bool = True, start_new_session: bool = False,
    pass_fds: Collection[int] = (), *, input: str | None = None, capture_output: bool = False, timeout: float | None = None,
    check: bool = False, memory_file: bool = False, max_output: None = None, user: str | int | None = None, group: str | int | None = None,
    extra_groups: Iterable[str | int] | None = None, encoding: str | None = None, errors: str | None = None, text: Literal[True],
    umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False, **settings: Unpack[Settings],
) -> CompletedProcess[str]: ...  # fmt: skip
@overload
def run(
    args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None, stdout: _File = None,
    stderr: _File = None, preexec_fn: Callable[[], object] | None = None, close_fds: bool = True, shell: bool = False,
    cwd: StrOrBytesPath | None = None, env: _Environment | None = None, universal_newlines: bool | None = None,
    startupinfo: Any = None, creationflags: int = 0, restore_signals: bool = True, start_new_session: bool = False,
    pass_fds: Collection[int] = (), *, input: str | None = None, capture_output: bool = False, timeout: float | None = None,
    check: bool = False, memory_file: bool = False, max_output: None = None, user: str | int | None = None, group: str | int | None = None,
    extra_groups: Iterable[str | int] | None = None, encoding: str, errors: str | None = None, text: bool | None = None,
    umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False, **settings: Unpack[Settings],
) -> CompletedProcess[str]: ...  # fmt: skip
@overload
def run(
    args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None, stdout: _File = None,
    stderr: _File = None, preexec_fn: Callable[[], object] | None = None, close_fds: bool = True, shell: bool = False,
    cwd: StrOrBytesPath | None = None, env: _Environment | None = None, universal_newlines: bool | None = None,
    startupinfo: Any = None, creationflags: int = 0, restore_signals: bool = True, start_new_session: bool = False,
    pass_fds: Collection[int] = (), *, input: str | None = None, capture_output: bool = False, timeout: float | None = None,
    check: bool = False, memory_file: bool = False, max_output: None = None, user: str | int | None = None, group: str | int | None = None,
    extra_groups: Iterable[str | int] | None = None, encoding: str | None = None, errors: str, text: bool | None = None,
    umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False, **settings: Unpack[Settings],
) -> CompletedProcess[str]: ...  # fmt: skip
@overload
def run(
    args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None, stdout: _File = None,
    stderr: _File = None, preexec_fn: Callable[[], object] | None = None, close_fds: bool = True, shell: bool = False,
    cwd: StrOrBytesPath | None = None, env: _Environment | None = None, *, universal_newlines: Literal[True], startupinfo: Any = None,
    creationflags: int = 0, restore_signals: bool = True, start_new_session: bool = False, pass_fds: Collection[int] = (),
    input: str | None = None, capture_output: bool = False, timeout: float | None = None, check: bool = False,
    memory_file: bool = False, max_output: None = None, user: str | int | None = None, group: str | int | None = None,
    extra_groups: Iterable[str | int] | None = None, encoding: str | None = None, errors: str | None = None, text: bool | None = None,
    umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False, **settings: Unpack[Settings],
) -> CompletedProcess[str]: ...  # fmt: skip
@overload
def run(
    args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None, stdout: _File = None,
    stderr: _File = None, preexec_fn: Callable[[], object] | None = None, close_fds: bool = True, shell: bool = False,
    cwd: StrOrBytesPath | None = None, env: _Environment | None = None, universal_newlines: Literal[False] | None = None,
    startupinfo: Any = None, creationflags: int = 0, restore_signals: bool = True, start_new_session: bool = False,
    pass_fds: Collection[int] = (), *, input: ReadableBuffer | None = None, capture_output: bool = False, timeout: float | None = None,
    check: bool = False, memory_file: bool = False, max_output: None = None, user: str | int | None = None, group: str | int | None = None,
    extra_groups: Iterable[str | int] | None = None, encoding: None = None, errors: None = None, text: Literal[False] | None = None,
    umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False, **settings: Unpack[Settings],
) -> CompletedProcess[bytes]: ...  # fmt: skip
@overload
def run(
    args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None, stdout: _File = None,
    stderr: _File = None, preexec_fn: Callable[[], object] | None = None, close_fds: bool = True, shell: bool = False,
    cwd: StrOrBytesPath | None = None, env: _Environment | None = None, universal_newlines: bool | None = None,
    startupinfo: Any = None, creationflags: int = 0, restore_signals: bool = True, start_new_session: bool = False,
    pass_fds: Collection[int] = (), *, input: ReadableBuffer | str | None = None, capture_output: bool = False,
    timeout: float | None = None, check: bool = False, memory_file: bool = False, max_output: None = None, user: str | int | None = None,
    group: str | int | None = None, extra_groups: Iterable[str | int] | None = None, encoding: str | None = None,
    errors: str | None = None, text: bool | None = None, umask: int = -1, pipesize: int = -1, process_group: int | None = None,
    kill_group: bool = False, **settings: Unpack[Settings],
) -> CompletedProcess[Any]: ...  # fmt: skip
@overload
def run(
    args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None, stdout: _File = None,
    stderr: _File = None, preexec_fn: Callable[[], object] | None = None, close_fds: bool = True, shell: bool = False,
    cwd: StrOrBytesPath | None = None, env: _Environment | None = None, universal_newlines: bool | None = None,
    startupinfo: Any = None, creationflags: int = 0, restore_signals: bool = True, start_new_session: bool = False,
    pass_fds: Collection[int] = (), *, input: str | None = None, capture_output: bool = False, timeout: float | None = None,
    check: bool = False, memory_file: Literal[False] = False, max_output: int, user: str | int | None = None, group: str | int | None = None,
    extra_groups: Iterable[str | int] | None = None, encoding: str | None = None, errors: str | None = None, text: Literal[True],
    umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False, **settings: Unpack[Settings],
) -> CapturedProcess[str]: ...  # fmt: skip
@overload
def run(
    args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None, stdout: _File = None,
    stderr: _File = None, preexec_fn: Callable[[], object] | None = None, close_fds: bool = True, shell: bool = False,
    cwd: StrOrBytesPath | None = None, env: _Environment | None = None, universal_newlines: Literal[False] | None = None,
    startupinfo: Any = None, creationflags: int = 0, restore_signals: bool = True, start_new_session: bool = False,
    pass_fds: Collection[int] = (), *, input: ReadableBuffer | None = None, capture_output: bool = False, timeout: float | None = None,
    check: bool = False, memory_file: Literal[False] = False, max_output: int, user: str | int | None = None, group: str | int | None = None,
    extra_groups: Iterable[str | int] | None = None, encoding: None = None, errors: None = None, text: Literal[False] | None = None,
    umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False, **settings: Unpack[Settings],
) -> CapturedProcess[bytes]: ...  # fmt: skip
@overload
def run(
    args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None, stdout: _File = None,
    stderr: _File = None, preexec_fn: Callable[[], object] | None = None, close_fds: bool = True, shell: bool = False,
    cwd: StrOrBytesPath | None = None, env: _Environment | None = None, universal_newlines: bool | None = None,
    startupinfo: Any = None, creationflags: int = 0, restore_signals: bool = True, start_new_session: bool = False,
    pass_fds: Collection[int] = (), *, input: ReadableBuffer | str | None = None, capture_output: bool = False,
    timeout: float | None = None, check: bool = False, memory_file: Literal[False] = False, max_output: int, user: str | int | None = None,
    group: str | int | None = None, extra_groups: Iterable[str | int] | None = None, encoding: str | None = None,
    errors: str | None = None, text: bool | None = None, umask: int = -1, pipesize: int = -1, process_group: int | None = None,
    kill_group: bool = False, **settings: Unpack[Settings],
) -> CapturedProcess[Any]: ...  # fmt: skip
def call(
    args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None, stdout: _File = None,
    stderr: _File = None, preexec_fn: Callable[[], object] | None = None, close_fds: bool = True, shell: bool = False,
    cwd: StrOrBytesPath | None = None, env: _Environment | None = None, universal_newlines: bool | None = None,
    startupinfo: Any = None, creationflags: int = 0, restore_signals: bool = True, start_new_session: bool = False,
    pass_fds: Collection[int] = (), *, timeout: float | None = None, user: str | int | None = None, group: str | int | None = None,
    extra_groups: Iterable[str | int] | None = None, encoding: str | None = None, errors: str | None = None, text: bool | None = None,
    umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False, **settings: Unpack[Settings],
) -> int: ...  # fmt: skip
def check_call(
    args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None, stdout: _File = None,
    stderr: _File = None, preexec_fn: Callable[[], object] | None = None, close_fds: bool = True, shell: bool = False,
    cwd: StrOrBytesPath | None = None, env: _Environment | None = None, universal_newlines: bool | None = None,
    startupinfo: Any = None, creationflags: int = 0, restore_signals: bool = True, start_new_session: bool = False,
    pass_fds: Collection[int] = (), *, timeout: float | None = None, user: str | int | None = None, group: str | int | None = None,
    extra_groups: Iterable[str | int] | None = None, encoding: str | None = None, errors: str | None = None, text: bool | None = None,
    umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False, **settings: Unpack[Settings],
) -> int: ...  # fmt: skip
@overload
def check_output(
    args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None, *, stderr: _File = None,
    preexec_fn: Callable[[], object] | None = None, close_fds: bool = True, shell: bool = False, cwd: StrOrBytesPath | None = None,
    env: _Environment | None = None, universal_newlines: bool | None = None, startupinfo: Any = None, creationflags: int = 0,
    restore_signals: bool = True, start_new_session: bool = False, pass_fds: Collection[int] = (), timeout: float | None = None,
    input: str | None = ..., memory_file: bool = False, max_output: int | None = None, user: str | int | None = None, group: str | int | None = None,
    extra_groups: Iterable[str | int] | None = None, encoding: str | None = None, errors: str | None = None, text: Literal[True],
    umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False, **settings: Unpack[Settings],
) -> str: ...  # fmt: skip
@overload
def check_output(
    args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None, *, stderr: _File = None,
    preexec_fn: Callable[[], object] | None = None, close_fds: bool = True, shell: bool = False, cwd: StrOrBytesPath | None = None,
    env: _Environment | None = None, universal_newlines: bool | None = None, startupinfo: Any = None, creationflags: int = 0,
    restore_signals: bool = True, start_new_session: bool = False, pass_fds: Collection[int] = (), timeout: float | None = None,
    input: str | None = ..., memory_file: bool = False, max_output: int | None = None, user: str | int | None = None, group: str | int | None = None,
    extra_groups: Iterable[str | int] | None = None, encoding: str, errors: str | None = None, text: bool | None = None,
    umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False, **settings: Unpack[Settings],
) -> str: ...  # fmt: skip
@overload
def check_output(
    args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None, *, stderr: _File = None,
    preexec_fn: Callable[[], object] | None = None, close_fds: bool = True, shell: bool = False, cwd: StrOrBytesPath | None = None,
    env: _Environment | None = None, universal_newlines: bool | None = None, startupinfo: Any = None, creationflags: int = 0,
    restore_signals: bool = True, start_new_session: bool = False, pass_fds: Collection[int] = (), timeout: float | None = None,
    input: str | None = ..., memory_file: bool = False, max_output: int | None = None, user: str | int | None = None, group: str | int | None = None,
    extra_groups: Iterable[str | int] | None = None, encoding: str | None = None, errors: str, text: bool | None = None,
    umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False, **settings: Unpack[Settings],
) -> str: ...  # fmt: skip
@overload
def check_output(
    args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None, *, stderr: _File = None,
    preexec_fn: Callable[[], object] | None = None, close_fds: bool = True, shell: bool = False, cwd: StrOrBytesPath | None = None,
    env: _Environment | None = None, universal_newlines: Literal[True], startupinfo: Any = None, creationflags: int = 0,
    restore_signals: bool = True, start_new_session: bool = False, pass_fds: Collection[int] = (), timeout: float | None = None,
    input: str | None = ..., memory_file: bool = False, max_output: int | None = None, user: str | int | None = None, group: str | int | None = None,
    extra_groups: Iterable[str | int] | None = None, encoding: str | None = None, errors: str | None = None, text: bool | None = None,
    umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False, **settings: Unpack[Settings],
) -> str: ...  # fmt: skip
@overload
def check_output(
    args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None, *, stderr: _File = None,
    preexec_fn: Callable[[], object] | None = None, close_fds: bool = True, shell: bool = False, cwd: StrOrBytesPath | None = None,
    env: _Environment | None = None, universal_newlines: Literal[False] | None = None, startupinfo: Any = None, creationflags: int = 0,
    restore_signals: bool = True, start_new_session: bool = False, pass_fds: Collection[int] = (), timeout: float | None = None,
    input: ReadableBuffer | None = ..., memory_file: bool = False, max_output: int | None = None, user: str | int | None = None, group: str | int | None = None,
    extra_groups: Iterable[str | int] | None = None, encoding: None = None, errors: None = None, text: Literal[False] | None = None,
    umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False, **settings: Unpack[Settings],
) -> bytes: ...  # fmt: skip
@overload
def check_output(
    args: _Command, bufsize: int = -1, executable: StrOrBytesPath | None = None, stdin: _File = None, *, stderr: _File = None,
    preexec_fn: Callable[[], object] | None = None, close_fds: bool = True, shell: bool = False, cwd: StrOrBytesPath | None = None,
    env: _Environment | None = None, universal_newlines: bool | None = None, startupinfo: Any = None, creationflags: int = 0,
    restore_signals: bool = True, start_new_session: bool = False, pass_fds: Collection[int] = (), timeout: float | None = None,
    input: ReadableBuffer | str | None = ..., memory_file: bool = False, max_output: int | None = None, user: str | int | None = None, group: str | int | None = None,
    extra_groups: Iterable[str | int] | None = None, encoding: str | None = None, errors: str | None = None, text: bool | None = None,
    umask: int = -1, pipesize: int = -1, process_group: int | None = None, kill_group: bool = False, **settings: Unpack[Settings],
) -> Any: ...  # fmt: skip

@overload
def run_pipeline(
    *commands: _Part, pipefail: bool = False, max_output: int | None = None, input: ReadableBuffer | None = None, text: Literal[False] | None = None, encoding: None = None, errors: None = None,
    **keywords: Unpack[_OfRun],
) -> CompletedPipeline[bytes]: ...  # fmt: skip
@overload
def run_pipeline(
    *commands: _Part, pipefail: bool = False, max_output: int | None = None, input: str | None = None, text: Literal[True], encoding: str | None = None, errors: str | None = None,
    **keywords: Unpack[_OfRun],
) -> CompletedPipeline[str]: ...  # fmt: skip
@overload
def run_pipeline(
    *commands: _Part, pipefail: bool = False, max_output: int | None = None, input: str | None = None, text: bool | None = None, encoding: str, errors: str | None = None,
    **keywords: Unpack[_OfRun],
) -> CompletedPipeline[str]: ...  # fmt: skip

if sys.version_info >= (3, 11):
    def getstatusoutput(cmd: _Command, *, encoding: str | None = None, errors: str | None = None) -> tuple[int, str]: ...
    def getoutput(cmd: _Command, *, encoding: str | None = None, errors: str | None = None) -> str: ...

else:
    def getstatusoutput(cmd: _Command) -> tuple[int, str]: ...
    def getoutput(cmd: _Command) -> str: ...

def prepare(
    args: _Command, *, executable: StrOrBytesPath | None = None, stdin: _File = None, stdout: _File = None, stderr: _File = None,
    pass_fds: Collection[int] = (), cwd: StrOrBytesPath | None = None, env: _Environment | None = None, start_new_session: bool = False,
    process_group: int | None = None, shell: bool = False, **settings: Unpack[Settings],
) -> Prepared: ...  # fmt: skip
