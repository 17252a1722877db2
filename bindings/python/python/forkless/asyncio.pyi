import asyncio
from subprocess import DEVNULL as DEVNULL, PIPE as PIPE, STDOUT as STDOUT
from typing import IO, Any

from _typeshed import StrOrBytesPath
from typing_extensions import Unpack

from ._async import _Function
from ._forkless import Pty
from ._settings import AsyncSettings

__all__ = ["DEVNULL", "PIPE", "STDOUT", "Process", "PtyStream", "create_subprocess_exec", "create_subprocess_shell", "open_pty", "run_process"]

class Process:
    pid: int
    def __init__(self, handle: Any, loop: asyncio.AbstractEventLoop) -> None: ...
    stdin: asyncio.StreamWriter | None
    stdout: asyncio.StreamReader | None
    stderr: asyncio.StreamReader | None
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    async def communicate(self, input: bytes | bytearray | memoryview | None = None) -> tuple[bytes, bytes]: ...
    def send_signal(self, signal: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...

class PtyStream(asyncio.StreamReader):
    def __init__(self, pty: Pty, limit: int, loop: asyncio.AbstractEventLoop) -> None: ...
    async def write(self, data: bytes | bytearray | memoryview) -> None: ...
    def close(self) -> None: ...

async def create_subprocess_exec(
    program: StrOrBytesPath,
    *args: StrOrBytesPath,
    stdin: int | IO[Any] | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    limit: int = 65536,
    **settings: Unpack[AsyncSettings],
) -> Process: ...
async def create_subprocess_shell(
    cmd: str | bytes,
    stdin: int | IO[Any] | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    limit: int = 65536,
    **settings: Unpack[AsyncSettings],
) -> Process: ...
async def open_pty(pty: Pty, process: Process, limit: int = 65536) -> PtyStream: ...

run_process: _Function
