"""Tests of `run_process` for asyncio, trio and anyio."""

import asyncio
import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

import forkless
import forkless.asyncio
from conftest import traced, uvloop
from forkless import _async, _output

try:
    import anyio
    import trio

    import forkless.anyio
    import forkless.trio
except ImportError:
    anyio = trio = None


class Asyncio:
    """A library as the tests use it."""

    def run(self, main):
        return asyncio.run(main())

    def run_process(self, *args, **keywords):
        return forkless.asyncio.run_process(*args, **keywords)

    sleep = staticmethod(asyncio.sleep)

    async def all(self, functions):
        return await asyncio.gather(*(function() for function in functions))

    async def cancel_after(self, seconds, function):
        """Cancels it then. Returns whether it was cancelled."""
        task = asyncio.ensure_future(function())
        await asyncio.sleep(seconds)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return True
        return False


class Uvloop(Asyncio):
    def run(self, main):
        loop = uvloop.new_event_loop()
        try:
            return loop.run_until_complete(main())
        finally:
            loop.close()


class Trio:
    def run(self, main):
        return trio.run(main)

    def run_process(self, *args, **keywords):
        return forkless.trio.run_process(*args, **keywords)

    async def sleep(self, seconds):
        await anyio.sleep(seconds)

    async def all(self, functions):
        found = [None] * len(functions)

        async def one(number, function):
            found[number] = await function()

        async with anyio.create_task_group() as group:
            for number, function in enumerate(functions):
                group.start_soon(one, number, function)
        return found

    async def cancel_after(self, seconds, function):
        with anyio.move_on_after(seconds) as scope:
            await function()
        return scope.cancelled_caught


class Anyio(Trio):
    backend = "asyncio"

    def run(self, main):
        return anyio.run(main, backend=self.backend)

    def run_process(self, *args, **keywords):
        return forkless.anyio.run_process(*args, **keywords)


class AnyioOnTrio(Anyio):
    backend = "trio"


@pytest.fixture(params=[Asyncio, Uvloop, Trio, Anyio, AnyioOnTrio])
def library(request):
    if request.param is Uvloop and uvloop is None:
        pytest.skip("uvloop is not installed: requirements.txt has none for this Python")
    if issubclass(request.param, Trio) and trio is None:
        pytest.skip("trio and anyio are not installed: requirements.txt has them for Python 3.10 and later")
    return request.param()


def outcome(function):
    """What it returns or raises, in words. A coroutine is run by the caller."""
    try:
        done = function()
    except subprocess.TimeoutExpired as error:
        # subprocess has None for a stream of which nothing has come, and sometimes names the time that was left.
        return type(error), error.cmd, error.stdout or None, error.stderr or None, abs(round(error.timeout, 1))
    except (OSError, ValueError, TypeError, subprocess.SubprocessError, UnicodeError) as error:
        named = [getattr(error, name, None) for name in ("step", "returncode", "cmd", "stdout", "stderr", "timeout")]
        return type(error), str(error), named
    cut = [getattr(done, name, 0) for name in ("stdout_cut", "stderr_cut")]
    return type(done).__mro__[-2], done.args, done.returncode, done.stdout, done.stderr, cut


NOISE = "import sys; sys.stdout.write('ä' * 50_000 + '\\r\\n'); sys.stderr.write('e' * 200_000); sys.exit(3)"

CASES = [
    ((["true"],), {}),
    ((["false"],), {}),
    ((["false"],), {"check": True}),
    ((["echo", "hello"],), {"capture_output": True}),
    ((["echo", "hello"],), {"stdout": -1}),
    (("echo $PPID | wc -l; exit 4",), {"shell": True, "capture_output": True, "text": True}),
    ((["cat"],), {"input": b"x" * 300_000, "capture_output": True}),
    ((["cat"],), {"input": b"", "stdout": -1}),
    ((["cat"],), {"input": "ä\r\n" * 3, "capture_output": True, "text": True, "encoding": "latin-1"}),
    ((["head", "-c1"],), {"input": b"x" * 300_000, "capture_output": True}),
    ((["true"],), {"input": b"x" * 300_000}),
    (([sys.executable, "-c", NOISE],), {"capture_output": True}),
    (([sys.executable, "-c", NOISE],), {"capture_output": True, "text": True, "encoding": "utf-8"}),
    (([sys.executable, "-c", NOISE],), {"capture_output": True, "max_output": 1001}),
    (([sys.executable, "-c", NOISE],), {"capture_output": True, "max_output": 1001, "encoding": "utf-8", "check": True}),
    ((["sh", "-c", "echo a; echo b >&2"],), {"stdout": -1, "stderr": subprocess.STDOUT}),
    ((["sh", "-c", "kill -9 $$"],), {"capture_output": True}),
    ((["sh", "-c", "echo early; exec sleep 100"],), {"capture_output": True, "timeout": 0.3}),
    ((["sh", "-c", "exec >&- 2>&-; sleep 100"],), {"capture_output": True, "timeout": 0.3}),
    ((["sleep", "100"],), {"timeout": 0.1}),
    ((["sleep", "100"],), {"timeout": 0}),
    ((["nice"],), {"capture_output": True, "nice": 5, "umask": 0o27}),
    ((["/no/such"],), {"capture_output": True}),
    ((["true"],), {"cwd": "/no/such"}),
    ((["true"],), {"input": b"", "stdin": -1}),
    ((["true"],), {"capture_output": True, "stdout": -1}),
    ((["true"],), {"max_output": 0, "capture_output": True}),
    ((["true"],), {"max_output": 1}),
    ((["cat"],), {"input": 5, "stdout": -1}),
    ((["cat"],), {"input": "text", "stdout": -1}),
    ((["true"],), {"no_such_word": 1}),
    ((["cat"],), {"text": True, "input": "ä", "encoding": "ascii"}),
    ((["printf", "\\377"],), {"text": True, "encoding": "utf-8", "capture_output": True}),
]


@pytest.mark.parametrize("args, keywords", CASES)
def test_it_is_run(library, args, keywords):
    async def main():
        return await library.run_process(*args, **keywords)

    assert outcome(lambda: library.run(main)) == outcome(lambda: forkless.run(*args, **keywords))


def test_the_loop_goes_on(library):
    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            for _ in range(20):
                await library.sleep(0.01)
                ticks += 1

        async def run():
            done = await library.run_process("sleep 0.4; echo x", shell=True, capture_output=True)
            return done.stdout, ticks

        return (await library.all([tick, run]))[1]

    assert library.run(main) == (b"x\n", 20)


def test_many_at_once(library):
    async def main():
        async def run(number):
            done = await library.run_process(["cat"], input=b"%d" % number * 30_000, capture_output=True)
            return done.stdout == b"%d" % number * 30_000

        return await library.all([lambda number=number: run(number) for number in range(30)])

    assert library.run(main) == [True] * 30


@pytest.mark.parametrize("after", [0, 0.001, 0.2])
@pytest.mark.parametrize("sandbox", [None, "landlock"])
def test_a_cancelled_call_kills_the_group(library, tmp_path, after, sandbox):
    """Also one that is cancelled while it is launched in a thread. `leaves_nothing_behind` looks for children."""
    if sandbox:
        sandbox = forkless.Sandbox(mode=sandbox, write=tmp_path)
        try:
            sandbox.check()
        except OSError as error:
            pytest.skip(f"SKIPPED: sandboxes by landlock, because {error}")
    os.chmod(tmp_path, 0o777)
    for parent in list(tmp_path.parents)[:3]:
        os.chmod(parent, os.stat(parent).st_mode | 0o011)
    line = f"trap '' TERM; (sleep 1; echo late > {tmp_path}/late) & echo $$ > {tmp_path}/pid; sleep 100"

    async def main():
        begun = time.monotonic()
        done = await library.cancel_after(
            after, lambda: library.run_process(["sh", "-c", line], capture_output=True, kill_group=True, sandbox=sandbox)
        )
        return done, time.monotonic() - begun

    was_cancelled, took = library.run(main)
    assert was_cancelled and took < 20
    if after == 0.2:
        pid = int(pathlib.Path(tmp_path, "pid").read_text())
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        time.sleep(1.2)
        assert not (tmp_path / "late").exists()


def test_a_program_that_holds_no_pipe_is_waited_for(library):
    """After the end of its streams the program runs on."""

    async def main():
        return await library.run_process("exec >&- 2>&-; sleep 0.3; exit 7", shell=True, capture_output=True)

    assert library.run(main).returncode == 7


def test_a_loop_sleeps_while_a_tracer_has_the_child(library, tmp_path):
    reads, writes = os.pipe()

    async def run():
        return await library.run_process(f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec cat", shell=True, stdin=reads)

    async def trace():
        while not (tmp_path / "pid").exists():
            await library.sleep(0.01)
        with traced(int((tmp_path / "pid").read_text())):
            os.close(writes)
            busy = time.thread_time()
            await library.sleep(1)
            return time.thread_time() - busy

    done, busy = library.run(lambda: library.all([run, trace]))
    os.close(reads)
    assert done.returncode == 0 and busy < 0.5


def test_without_descriptors_nothing_is_left(library):
    """EMFILE at any of its steps."""
    import resource

    if sys.version_info < (3, 11, 4):
        pytest.skip("subprocess itself leaves pipes behind if it cannot make the last one")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def main():
        failed = 0
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        fillers = [os.open("/dev/null", os.O_RDONLY)]
        while fillers[-1] <= highest:
            fillers.append(os.open("/dev/null", os.O_RDONLY))
        lowest = fillers.pop()
        os.close(lowest)
        # A loop may close those of a failure only in its next turn.
        for more in range(36):
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + more, hard))
            try:
                await library.run_process(["cat"], input=b"x", capture_output=True)
            except OSError:
                failed += 1
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)
        return failed

    assert 0 < library.run(main) < 36


def test_signals_of_the_caller_are_not_lost(library):
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    try:

        async def main():
            return await library.run_process(f"kill -USR1 {os.getpid()}; sleep 0.1; echo y", shell=True, capture_output=True)

        assert library.run(main).stdout == b"y\n"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [1]


def test_a_launch_in_a_thread_that_is_given_up_ends_its_program(monkeypatch):
    """asyncio can cancel twice. `leaves_nothing_behind` looks for children."""
    if sys.version_info < (3, 10):
        pytest.skip("asyncio logs a result that comes too late, and the log keeps the thread that it came from")
    popens = []

    def slow(*args, **keywords):
        time.sleep(0.3)
        popens.append(_output.LimitedPopen(*args, **keywords))
        return popens[0]

    monkeypatch.setattr(_async, "LimitedPopen", slow)

    async def main():
        sandbox = forkless.Sandbox(mode="landlock")
        task = asyncio.ensure_future(forkless.asyncio.run_process(["sleep", "100"], sandbox=sandbox))
        for _ in range(2):
            await asyncio.sleep(0.05)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not popens

    try:
        forkless.Sandbox(mode="landlock").check()
    except OSError as error:
        pytest.skip(f"SKIPPED: sandboxes by landlock, because {error}")
    asyncio.run(main())
    while not popens:
        time.sleep(0.01)
    while threading.active_count() > 1:
        gc.collect()
        time.sleep(0.01)
    assert popens[0].returncode == -signal.SIGKILL
