"""Subprocesses for asyncio: `create_subprocess_exec` and `create_subprocess_shell`, as in the standard module, and `run_process`.

The running event loop (also uvloop) watches the child's pidfd: no thread, no signal handler, no child watcher. A sandbox is made in a thread.
"""

import asyncio
import concurrent.futures
import errno
import os
import signal
import subprocess
import warnings
import weakref

from . import _forkless, _launch
from ._async import run_process_of
from ._popen import Popen, _Descriptor

__all__ = ["DEVNULL", "PIPE", "STDOUT", "Process", "PtyStream", "create_subprocess_exec", "create_subprocess_shell", "open_pty", "run_process"]

PIPE, STDOUT, DEVNULL = subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL

_LIMIT = 2**16

# Keywords that need the class Popen. The others are passed to the native call unchanged.
_OF_POPEN = frozenset(("user", "group", "extra_groups", "umask", "pipesize", "preexec_fn", "startupinfo", "creationflags", "kill_group"))

# Keywords that are refused because streams are unbuffered bytes.
_REFUSED = ("universal_newlines", "text", "encoding", "errors", "bufsize", "shell")


async def create_subprocess_exec(program, *args, stdin=None, stdout=None, stderr=None, limit=_LIMIT, **kwargs):
    """Starts a program, as asyncio's function does. Further keywords are those of `forkless.Popen`."""
    return await _create([program, *args], stdin, stdout, stderr, limit, kwargs)


async def create_subprocess_shell(cmd, stdin=None, stdout=None, stderr=None, limit=_LIMIT, **kwargs):
    """Runs a command line with `/bin/sh`, as asyncio's function does. Further keywords are those of `forkless.Popen`."""
    if not isinstance(cmd, (bytes, str)):
        raise ValueError("cmd must be a string")
    program = kwargs.get("executable") or "/bin/sh"
    return await _create([program, "-c", cmd], stdin, stdout, stderr, limit, kwargs)


class PtyStream(asyncio.StreamReader):
    """The caller's side of a terminal, from `open_pty`: a StreamReader of what is on the screen. It ends when the process and all others that
    have the terminal open have ended.
    """

    def __init__(self, pty, limit, loop):
        super().__init__(limit=limit, loop=loop)
        self._fd = _Descriptor(os.dup(pty.fileno()))
        self._writing = asyncio.Lock()

    async def write(self, data):
        """Types the bytes. It waits while the program does not read them."""
        loop, left = asyncio.get_running_loop(), memoryview(data)
        async with self._writing:
            while left:
                # Keeps the descriptor open during the wait.
                descriptor = self._fd
                if descriptor is None:
                    raise ValueError("the stream has been closed")
                fd = descriptor.number
                try:
                    left = left[os.write(fd, left) :]
                except BlockingIOError:
                    ready = loop.create_future()
                    loop.add_writer(fd, _wake, ready)
                    try:
                        await ready
                    finally:
                        loop.remove_writer(fd)

    def close(self):
        """Closes it. The terminal hangs up when the Pty is closed, too."""
        self._fd = None
        self._transport.close()


async def open_pty(pty, process, limit=_LIMIT):
    """Opens the `forkless.Pty` of a process, which is non-blocking from then on: returns a `PtyStream`."""
    loop = asyncio.get_running_loop()
    stream = PtyStream(pty, limit, loop)
    # Held open so that reads do not end while the process runs: it may open the terminal as /dev/tty.
    held = [_Descriptor(pty.follower())]
    copy = open(os.dup(pty.fileno()), "rb", buffering=0)
    try:
        await loop.connect_read_pipe(lambda: _Screen(pty, stream, loop), copy)
    except BaseException:
        copy.close()
        raise
    process._ended.add_done_callback(lambda _: held.clear())
    return stream


async def _create(words, stdin, stdout, stderr, limit, kwargs):
    loop = asyncio.get_running_loop()
    try:
        if kwargs.get("sandbox"):
            handle = await _start_beside(loop, words, stdin, stdout, stderr, kwargs)
        else:
            handle = _start(words, stdin, stdout, stderr, kwargs)
    except Exception as error:
        _forkless.tell(error, kwargs.get("executable") or words[0])
        raise
    starts = not isinstance(handle, Popen)
    try:
        process = Process(handle, loop)
        if not starts:
            process._watch()
    except BaseException:
        handle.kill()  # there is no pidfd, or the loop cannot watch descriptors
        raise
    try:
        if not handle.stdin is handle.stdout is handle.stderr is None:
            # The child executes its program meanwhile.
            connecting = loop.create_task(process._connect(handle, limit))
            try:
                # Shielded from cancellation: uvloop would close a descriptor that the file object closes again.
                await asyncio.shield(connecting)
            except BaseException:
                if not connecting.done():
                    connecting.add_done_callback(process._abandon)
                raise
        if starts:
            await _executed(handle, loop)
            process._watch()
    except BaseException:
        process._abandon()
        raise
    return process


async def _executed(handle, loop):
    """Waits until the program has been executed, while the loop runs other tasks. Raises the error of a failed launch."""
    while not handle.has_executed():
        pipe, ready = handle.exec_fileno(), loop.create_future()
        # The other end of the pipe is closed by exec, and by the end of the child. But another thread of this process may fork just
        # when it has been made, and that process then has a copy.
        timer = loop.call_later(_LOOK, _wake, ready)
        loop.add_reader(pipe, _wake, ready)
        try:
            await ready
        finally:
            timer.cancel()
            loop.remove_reader(pipe)


# The interval between two checks of a pipe that may have a copy, in seconds.
_LOOK = 0.05


def _wake(future):
    if not future.done():
        future.set_result(None)


async def _start_beside(loop, *words):
    """`_start` in a thread: to make a sandbox takes milliseconds, for which the loop does not stop."""
    starting = loop.run_in_executor(_threads_of(loop), _start, *words)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(_kill)
        # The descriptors are the caller's until the child has them.
        await asyncio.wait([starting])
        raise


# By loop: a copy of the process has none of the threads, and a loop of its own.
_threads = weakref.WeakKeyDictionary()


def _threads_of(loop):
    """A thread more than CPUs: more launch no more, and take the CPUs from the loop."""
    if loop not in _threads:
        _threads[loop] = concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0)) + 1, "forkless")
    return _threads[loop]


def _kill(starting):
    if not starting.cancelled() and starting.exception() is None:
        starting.result().kill()


def _start(words, stdin, stdout, stderr, kwargs):
    """Starts the child. Returns the native handle or a Popen; this module only uses attributes that both have."""
    for word in _REFUSED:
        if kwargs.get(word):
            raise ValueError(f"{word} must be {False if word in ('shell', 'universal_newlines') else None}: streams are bytes")
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
    """A child process, with the interface of `asyncio.subprocess.Process`."""

    def __init__(self, handle, loop):
        self._handle = handle
        self._loop = loop
        self._ended = loop.create_future()
        self._returncode = None
        self._transports = []
        self.pid = handle.pid
        self.stdin = self.stdout = self.stderr = None
        self._pidfd = handle.fileno()

    def __repr__(self):
        return f"<{type(self).__name__} {self.pid}>"

    @property
    def returncode(self):
        """The return code, or None while the child runs."""
        return self._returncode

    def _watch(self):
        # The loop keeps a reference to this object until the child has ended, so that it is reaped even if the caller drops it.
        self._loop.add_reader(self._pidfd, self._on_end)

    async def _connect(self, handle, limit):
        loop = self._loop
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
            # It was reaped by other code. asyncio warns, too, and reports 255.
            warnings.warn(f"the exit status of process {self.pid} is lost: 255 is reported instead", RuntimeWarning, stacklevel=1)
            code = 255
        self._loop.remove_reader(self._pidfd)
        if code is None:
            # A tracer is notified first. The pidfd is readable meanwhile.
            self._loop.call_later(0.02, self._watch)
            return
        self._returncode = code
        self._handle = None  # closes the pidfd, also if the caller keeps this object
        self._ended.set_result(code)

    def _abandon(self, connecting=None):
        """Kills the child after a failed creation: the caller has no object to wait for."""
        if connecting is not None and not connecting.cancelled():
            connecting.exception()  # already raised: mark it as retrieved
        if self._returncode is None:
            self._handle.kill()
        for transport in self._transports:
            transport.close()

    async def wait(self):
        """Waits for the child to end. Returns its return code. The loop of the launch may be closed; its streams are lost then."""
        if self._returncode is None:
            running = asyncio.get_running_loop()
            if self._loop is not running and self._loop.is_closed():
                self._loop, self._ended = running, running.create_future()
                self._watch()
            # Cancelling one waiter must not cancel the others.
            await asyncio.shield(self._ended)
        return self._returncode

    async def communicate(self, input=None):
        """Writes standard input, reads both outputs until end of file, and waits for the child. Returns the outputs, None for one that is no pipe."""
        # Only concurrent reads and writes need tasks of their own.
        if self.stdin is not None:
            _, stdout, stderr = await asyncio.gather(self._feed(input), _read(self.stdout), _read(self.stderr))
        elif self.stdout is not None and self.stderr is not None:
            stdout, stderr = await asyncio.gather(self.stdout.read(), self.stderr.read())
        else:
            stdout, stderr = await _read(self.stdout), await _read(self.stderr)
        await self.wait()
        return stdout, stderr

    async def _feed(self, input):
        try:
            # uvloop raises an error on writing to a pipe that the program has closed.
            if input is not None and not self.stdin.is_closing():
                self.stdin.write(input)
            await self.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            pass  # the program has closed its standard input
        self.stdin.close()

    def send_signal(self, signal):
        """Sends a signal. Raises ProcessLookupError if the child has ended and was reaped."""
        if self._returncode is not None:
            raise ProcessLookupError
        self._handle.send_signal(signal)

    def terminate(self):
        """Sends SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self):
        """Sends SIGKILL to the child; with kill_group, to its whole process group."""
        if self._returncode is not None:
            raise ProcessLookupError
        self._handle.kill()


async def _read(stream):
    return None if stream is None else await stream.read()


class _Screen(asyncio.StreamReaderProtocol):
    """The protocol of a terminal. When nobody has it open, a read fails with EIO."""

    def __init__(self, pty, reader, loop):
        super().__init__(reader, loop=loop)
        self._pty = pty

    def connection_lost(self, exc):
        if isinstance(exc, OSError) and exc.errno == errno.EIO:
            exc = None
            try:
                # Output that was written between the kernel's two checks.
                while rest := self._pty.read():
                    self.data_received(rest)
            except (OSError, ValueError):
                pass  # it is open again, or has been closed
        super().connection_lost(exc)


class _Input(asyncio.streams.FlowControlMixin, asyncio.Protocol):
    """The protocol of a standard input, which is only written to."""

    def __init__(self, loop):
        super().__init__(loop=loop)
        self._closed = loop.create_future()

    def connection_lost(self, exc):
        super().connection_lost(exc)
        if not self._closed.done():
            self._closed.set_result(None)

    def _get_close_waiter(self, stream):
        return self._closed


class _Asyncio:
    """What `run_process` needs."""

    @staticmethod
    async def readable(fd, seconds):
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _wake, ready)
        loop.add_reader(fd, _wake, ready)
        try:
            await ready
        finally:
            if timer:
                timer.cancel()
            loop.remove_reader(fd)

    sleep = staticmethod(asyncio.sleep)

    @staticmethod
    async def in_thread(function):
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(_threads_of(loop), function)
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            # The descriptors are the caller's until the child has them.
            await asyncio.wait([running])
            if not running.cancelled():
                running.exception()  # marks it as retrieved
            raise

    @staticmethod
    async def to_its_end(function):
        task = asyncio.get_running_loop().create_task(function())
        _ending.add(task)
        task.add_done_callback(_ending.discard)
        await asyncio.shield(task)


# A loop has only weak references to its tasks.
_ending = set()

run_process = run_process_of(_Asyncio, __name__)


# Signatures for `help` and editors.


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
