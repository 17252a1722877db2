from typing import Any, Literal, Protocol, overload

from _typeshed import ReadableBuffer
from typing_extensions import Unpack

from . import CapturedProcess, _Command, _OfRun

class _Function(Protocol):
    @overload
    async def __call__(
        self, args: _Command, *, max_output: int | None = None, input: ReadableBuffer | None = None, text: Literal[False] | None = None,
        encoding: None = None, errors: None = None, **keywords: Unpack[_OfRun],
    ) -> CapturedProcess[bytes]: ...  # fmt: skip
    @overload
    async def __call__(
        self, args: _Command, *, max_output: int | None = None, input: str | None = None, text: Literal[True], encoding: str | None = None,
        errors: str | None = None, **keywords: Unpack[_OfRun],
    ) -> CapturedProcess[str]: ...  # fmt: skip
    @overload
    async def __call__(
        self, args: _Command, *, max_output: int | None = None, input: str | None = None, text: bool | None = None, encoding: str,
        errors: str | None = None, **keywords: Unpack[_OfRun],
    ) -> CapturedProcess[str]: ...  # fmt: skip

def run_process_of(library: Any, module: str) -> _Function: ...
