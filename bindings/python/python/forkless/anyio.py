"""Subprocesses for anyio 4.7 or later, on asyncio and on trio: `run_process`. anyio's own functions launch through forkless after
`forkless.install()`.
"""

import anyio
import anyio.to_thread

from ._async import run_process_of

__all__ = ["run_process"]


class _Anyio:
    @staticmethod
    async def readable(fd, seconds):
        with anyio.move_on_after(seconds):
            await anyio.wait_readable(fd)

    sleep = staticmethod(anyio.sleep)
    in_thread = staticmethod(anyio.to_thread.run_sync)

    @staticmethod
    async def to_its_end(function):
        with anyio.CancelScope(shield=True):
            await function()


run_process = run_process_of(_Anyio, __name__)
