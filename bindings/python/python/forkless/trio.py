"""Subprocesses for trio: `run_process`. trio's own functions launch through forkless after `forkless.install()`."""

import math

import trio

from ._async import run_process_of

__all__ = ["run_process"]


class _Trio:
    @staticmethod
    async def readable(fd, seconds):
        with trio.move_on_after(math.inf if seconds is None else seconds):
            await trio.lowlevel.wait_readable(fd)

    sleep = staticmethod(trio.sleep)
    in_thread = staticmethod(trio.to_thread.run_sync)

    @staticmethod
    async def to_its_end(function):
        with trio.CancelScope(shield=True):
            await function()


run_process = run_process_of(_Trio, __name__)
