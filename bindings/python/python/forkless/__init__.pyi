# The names of `subprocess` have the types that they have there; further keywords are those of Settings.

import resource
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from subprocess import (
    DEVNULL as DEVNULL,
    PIPE as PIPE,
    STDOUT as STDOUT,
    CalledProcessError as CalledProcessError,
    CompletedProcess as CompletedProcess,
    SubprocessError as SubprocessError,
    TimeoutExpired as TimeoutExpired,
    call as call,
    check_call as check_call,
    check_output as check_output,
    getoutput as getoutput,
    getstatusoutput as getstatusoutput,
    list2cmdline as list2cmdline,
)
from typing import IO, Any, AnyStr, Literal, overload

from _typeshed import StrOrBytesPath
from typing_extensions import Unpack

from ._forkless import Child as Child, Prepared as Prepared, reap_orphans as reap_orphans
from ._install import install as install, is_installed as is_installed, uninstall as uninstall
from ._settings import Settings as Settings

__version__: str

class PreexecWarning(RuntimeWarning): ...

class Popen(subprocess.Popen[AnyStr]):
    def __init__(
        self,
        args: StrOrBytesPath | Sequence[StrOrBytesPath],
        bufsize: int = -1,
        executable: StrOrBytesPath | None = None,
        stdin: int | IO[Any] | None = None,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        preexec_fn: Callable[[], object] | None = None,
        close_fds: bool = True,
        shell: bool = False,
        cwd: StrOrBytesPath | None = None,
        env: Mapping[str, StrOrBytesPath] | Mapping[bytes, StrOrBytesPath] | None = None,
        universal_newlines: bool | None = None,
        startupinfo: Any = None,
        creationflags: int = 0,
        restore_signals: bool = True,
        start_new_session: bool = False,
        pass_fds: Collection[int] = (),
        *,
        user: str | int | None = None,
        group: str | int | None = None,
        extra_groups: Iterable[str | int] | None = None,
        encoding: str | None = None,
        errors: str | None = None,
        text: bool | None = None,
        umask: int = -1,
        pipesize: int = -1,
        process_group: int | None = None,
        kill_group: bool = False,
        **settings: Unpack[Settings],
    ) -> None: ...
    @property
    def usage(self) -> resource.struct_rusage | None: ...
    def fileno(self) -> int: ...
    def signal_group(self, number: int) -> None: ...
    def terminate_group(self, grace: float, number: int = ...) -> int: ...

@overload
def run(
    *popenargs: Any,
    input: str | None = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    memory_file: bool = False,
    text: Literal[True],
    **kwargs: Any,
) -> CompletedProcess[str]: ...
@overload
def run(
    *popenargs: Any,
    input: str | None = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    memory_file: bool = False,
    encoding: str,
    **kwargs: Any,
) -> CompletedProcess[str]: ...
@overload
def run(
    *popenargs: Any,
    input: bytes | str | None = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    memory_file: bool = False,
    **kwargs: Any,
) -> CompletedProcess[Any]: ...
def prepare(
    args: StrOrBytesPath | Sequence[StrOrBytesPath],
    *,
    executable: StrOrBytesPath | None = None,
    stdin: int | IO[Any] | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    pass_fds: Collection[int] = (),
    cwd: StrOrBytesPath | None = None,
    env: Mapping[str, StrOrBytesPath] | Mapping[bytes, StrOrBytesPath] | None = None,
    start_new_session: bool = False,
    process_group: int | None = None,
    shell: bool = False,
    **settings: Unpack[Settings],
) -> Prepared: ...
