"""`run_process`: `forkless.run` for event loops, without a thread that waits."""

import subprocess
import threading
import time

from . import _run
from ._output import CapturedProcess, LimitedPopen, Streams

# The interval between two checks of a child whose end cannot be waited for, in seconds.
_LOOK = 0.02


def run_process_of(library, module):
    """`run_process` for a library. That has four functions:

    readable(fd, seconds): waits until the descriptor is readable, at most so long (None: without a limit).
    sleep(seconds).
    in_thread(function): calls it, and is not cancelled before it has returned.
    to_its_end(function): awaits its coroutine, and is not cancelled meanwhile.
    """

    async def run_process(args, *, input=None, capture_output=False, timeout=None, check=False, max_output=None, **keywords):
        """Runs a program and waits for its end, while the event loop goes on. The arguments are those of `forkless.run`, without memory_file.
        Returns a `CapturedProcess`.

        If the call is cancelled, or fails, the program is killed (with kill_group its process group, with kill_tree or a sandbox all that it has
        started), and its end is waited for.
        """
        _run.check_words((args,), input, capture_output, keywords)
        if max_output is not None:
            _run.check_most((args,), max_output, capture_output, False, keywords)
        if input is not None:
            keywords["stdin"] = subprocess.PIPE
        if capture_output:
            keywords["stdout"] = keywords["stderr"] = subprocess.PIPE
        deadline = None if timeout is None else time.monotonic() + timeout
        starting = _Starting(args, max_output, keywords)
        try:
            if keywords.get("sandbox"):
                # Making a sandbox takes milliseconds.
                await library.in_thread(starting)
            else:
                starting()
            popen = starting.popen
            with Streams(popen, input, max_output) as streams:
                while streams.are_open():
                    await library.readable(streams.fileno(), streams.left(deadline, timeout))
                    streams.move(0)
                await _ended(library, popen, lambda: streams.left(deadline, timeout))
            stdout, stderr = streams.contents()
        except BaseException:
            popen = starting.give_up()
            if popen is not None:
                popen.kill()
                for stream in (popen.stdin, popen.stdout, popen.stderr):
                    if stream:
                        stream.close()
                await library.to_its_end(lambda: _ended(library, popen, lambda: None))
            raise
        done = CapturedProcess(popen.args, popen.returncode, stdout, stderr)
        done.stdout_cut, done.stderr_cut = (popen.cut.get(name, 0) for name in ("stdout", "stderr"))
        done.limit_events = popen.limit_events
        if check:
            done.check_returncode()
        return done

    run_process.__module__ = module
    return run_process


class _Starting:
    """A launch, which may be in a thread. If it is given up before it has returned, the thread ends the program."""

    def __init__(self, args, max_output, keywords):
        self._words = args, max_output, keywords
        self._lock = threading.Lock()
        self._is_given_up = False
        self.popen = None

    def __call__(self):
        args, max_output, keywords = self._words
        popen = LimitedPopen(args, max_output=max_output, **keywords)
        with self._lock:
            if not self._is_given_up:
                self.popen = popen
                return
        with popen:
            popen.kill()

    def give_up(self):
        """The Popen, if there is one."""
        with self._lock:
            self._is_given_up = True
            return self.popen


async def _ended(library, popen, left):
    """Waits for the end of the child and reaps it."""
    while popen.poll() is None:
        try:
            pidfd = popen.fileno()
        except OSError:
            pidfd = None  # reaped by another thread, or no descriptor is left
        if pidfd is not None:
            await library.readable(pidfd, left())
        if popen.poll() is None:
            # A tracer is notified first. The pidfd is readable meanwhile.
            left()
            await library.sleep(_LOOK)
