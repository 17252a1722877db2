"""Children that are awaited: `create_subprocess_exec` and `create_subprocess_shell` with the names and meanings of asyncio.

A child is watched by its pidfd, in the running event loop, whichever that is (uvloop too): no thread, no signal handler, no child watcher.
"""

import asyncio
import signal
import subprocess
import warnings

from . import _forkless, _launch
from ._popen import Popen

__all__ = ["DEVNULL", "PIPE", "STDOUT", "Process", "create_subprocess_exec", "create_subprocess_shell"]

PIPE, STDOUT, DEVNULL = subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL

_LIMIT = 2**16

# Keywords that the class Popen has to work out; the others go to the native call as they are.
_OF_POPEN = frozenset(("user", "group", "extra_groups", "umask", "pipesize", "preexec_fn", "startupinfo", "creationflags", "kill_group"))

# What makes no sense where streams are of bytes, and unbuffered.
_REFUSED = ("universal_newlines", "text", "encoding", "errors", "bufsize", "shell")


async def create_subprocess_exec(program, *args, stdin=None, stdout=None, stderr=None, limit=_LIMIT, **kwargs):
    """Starts a program: as asyncio's. Further keywords are those of `forkless.Popen`."""
    return await _create([program, *args], stdin, stdout, stderr, limit, kwargs)


async def create_subprocess_shell(cmd, stdin=None, stdout=None, stderr=None, limit=_LIMIT, **kwargs):
    """Has `/bin/sh` run a line: as asyncio's. Further keywords are those of `forkless.Popen`."""
    if not isinstance(cmd, (bytes, str)):
        raise ValueError("cmd must be a string")
    program = kwargs.get("executable") or "/bin/sh"
    return await _create([program, "-c", cmd], stdin, stdout, stderr, limit, kwargs)


async def _create(words, stdin, stdout, stderr, limit, kwargs):
    loop = asyncio.get_running_loop()
    try:
        handle = _start(words, stdin, stdout, stderr, kwargs)
    except Exception as error:
        _forkless.tell(error, kwargs.get("executable") or words[0])
        raise
    if not isinstance(handle, Popen):
        await _executed(handle)
    try:
        process = Process(handle, loop)
    except BaseException:
        handle.kill()  # there is no pidfd, or the loop can watch none
        raise
    if handle.stdin is handle.stdout is handle.stderr is None:
        return process
    connecting = loop.create_task(process._connect(limit))
    try:
        # Not to be cancelled half-way: uvloop would close a descriptor that its file closes again.
        await asyncio.shield(connecting)
    except BaseException:
        connecting.add_done_callback(process._abandon)
        raise
    return process


async def _executed(handle):
    """Until the program has been executed, which takes some 50 µs, the loop does what else there is to do. Raises why it could not be.

    A launch that is alone sleeps for moments instead: on a busy machine its child may be waiting for this very processor, and the loop's own
    sleep is a millisecond at least.
    """
    turns = 0
    _underway.add(handle)
    try:
        while not handle.has_executed(_MOMENT if 0 < turns < _TURNS and len(_underway) == 1 else None):
            # Soon, or else the machine is busy, and better left alone.
            await asyncio.sleep(0 if turns < _TURNS else 0.0005)
            turns += 1
    except asyncio.CancelledError:
        handle.kill()
        raise
    finally:
        _underway.discard(handle)


# So many times it is looked at once more as soon as the loop has come round; a moment, in seconds.
_TURNS, _MOMENT = 20, 0.0001

# Launches, in all loops.
_underway = set()


def _start(words, stdin, stdout, stderr, kwargs):
    """A handle: the native one, or a Popen, which have what is needed here in common."""
    for word in _REFUSED:
        if kwargs.get(word):
            raise ValueError(f"{word} must be {False if word in ('shell', 'universal_newlines') else None}: streams are of bytes here")
    kwargs = {word: value for word, value in kwargs.items() if word not in _REFUSED}
    if not _OF_POPEN.isdisjoint(kwargs):
        return Popen(words, stdin=stdin, stdout=stdout, stderr=stderr, bufsize=0, **kwargs)
    settings = dict(kwargs)
    take = settings.pop
    streams = tuple(one if one is None or isinstance(one, int) else one.fileno() for one in (stdin, stdout, stderr))
    program = take("executable", None) or words[0]
    pass_fds = [int(fd) for fd in take("pass_fds", ())]
    close_fds = take("close_fds", True) or bool(pass_fds)
    cwd, env = take("cwd", None), take("env", None)
    restore_signals, new_session = take("restore_signals", True), take("start_new_session", False)
    group = take("process_group", None)
    _launch.sys.audit("subprocess.Popen", program, words, cwd, env)
    return _forkless.start(
        words, program, streams, bool(close_fds), pass_fds, cwd, env, bool(restore_signals), bool(new_session), group, settings
    )


class Process:
    """A child that is awaited: the names and meanings of `asyncio.subprocess.Process`."""

    def __init__(self, handle, loop):
        self._handle = handle
        self._loop = loop
        self._ended = loop.create_future()
        self._returncode = None
        self._transports = []
        self.pid = handle.pid
        self.stdin = self.stdout = self.stderr = None
        # The loop keeps this object from now on until the child has ended, so that it is reaped whoever forgets it.
        self._pidfd = handle.fileno()
        loop.add_reader(self._pidfd, self._on_end)

    def __repr__(self):
        return f"<{type(self).__name__} {self.pid}>"

    @property
    def returncode(self):
        """The return code; None while the child runs."""
        return self._returncode

    async def _connect(self, limit):
        handle, loop = self._handle, self._loop
        if handle.stdin is not None:
            protocol = _Input(loop)
            transport, _ = await loop.connect_write_pipe(lambda: protocol, handle.stdin)
            self.stdin = asyncio.StreamWriter(transport, protocol, None, loop)
            self._transports.append(transport)
        for name in ("stdout", "stderr"):
            pipe = getattr(handle, name)
            if pipe is not None:
                setattr(self, name, await self._reader(pipe, limit))

    async def _reader(self, pipe, limit):
        reader = asyncio.StreamReader(limit=limit, loop=self._loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        transport, _ = await self._loop.connect_read_pipe(lambda: protocol, pipe)
        self._transports.append(transport)
        return reader

    def _on_end(self):
        try:
            code = self._handle.poll()
        except OSError:
            # Somebody else has reaped it; asyncio's words for that.
            warnings.warn(f"the exit status of process {self.pid} is lost: it is taken for 255", RuntimeWarning, stacklevel=1)
            code = 255
        if code is None:
            return  # woken for nothing
        self._loop.remove_reader(self._pidfd)
        self._returncode = code
        self._ended.set_result(code)

    def _abandon(self, connecting):
        """After a failure: nobody is left who could wait for it."""
        if not connecting.cancelled():
            connecting.exception()  # it has been told
        if self._returncode is None:
            self.kill()
        for transport in self._transports:
            transport.close()

    async def wait(self):
        """Waits for the child to end; its return code."""
        if self._returncode is None:
            # Several may wait, and one that is cancelled does not cancel the others.
            await asyncio.shield(self._ended)
        return self._returncode

    async def communicate(self, input=None):
        """Feeds standard input, reads both outputs to their ends and waits: the outputs, None where there is no pipe."""
        _, stdout, stderr = await asyncio.gather(self._feed(input), _read(self.stdout), _read(self.stderr))
        await self.wait()
        return stdout, stderr

    async def _feed(self, input):
        if self.stdin is None:
            return
        try:
            # uvloop refuses to write to what the program has closed.
            if input is not None and not self.stdin.is_closing():
                self.stdin.write(input)
            await self.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            pass  # it reads no more
        self.stdin.close()

    def send_signal(self, signal):
        """Sends a signal. Raises ProcessLookupError if the child has ended and been seen to."""
        if self._returncode is not None:
            raise ProcessLookupError
        self._handle.send_signal(signal)

    def terminate(self):
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self):
        """SIGKILL; with kill_group, to the whole group."""
        if self._returncode is not None:
            raise ProcessLookupError
        self._handle.kill()


async def _read(stream):
    return None if stream is None else await stream.read()


class _Input(asyncio.streams.FlowControlMixin, asyncio.Protocol):
    """The protocol of a standard input: it is never read from."""

    def __init__(self, loop):
        super().__init__(loop=loop)
        self._closed = loop.create_future()

    def connection_lost(self, exc):
        super().connection_lost(exc)
        if not self._closed.done():
            self._closed.set_result(None)

    def _get_close_waiter(self, stream):
        return self._closed


# What editors and `help` show.


def _of_exec(
    program, *args, stdin=None, stdout=None, stderr=None, limit=_LIMIT, executable=None, preexec_fn=None, close_fds=True, cwd=None,
    env=None, restore_signals=True, start_new_session=False, pass_fds=(), user=None, group=None, extra_groups=None, umask=-1,
    pipesize=-1, process_group=None, kill_group=False, **settings,
):  # fmt: skip
    pass


def _of_shell(
    cmd, stdin=None, stdout=None, stderr=None, limit=_LIMIT, *, executable=None, preexec_fn=None, close_fds=True, cwd=None, env=None,
    restore_signals=True, start_new_session=False, pass_fds=(), user=None, group=None, extra_groups=None, umask=-1, pipesize=-1,
    process_group=None, kill_group=False, **settings,
):  # fmt: skip
    pass


create_subprocess_exec.__wrapped__ = _of_exec
create_subprocess_shell.__wrapped__ = _of_shell
