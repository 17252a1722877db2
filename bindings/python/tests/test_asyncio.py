"""Tests of forkless.asyncio, with the loops of asyncio and of uvloop."""

import asyncio
import gc
import os
import signal
import threading
import time

import pytest

import forkless
from conftest import descriptors, uvloop
from forkless.asyncio import DEVNULL, PIPE, STDOUT, create_subprocess_exec, create_subprocess_shell


def of_loop():
    """The open descriptors, but for the one that libuv opens with a loop's first stream, and closes with the loop."""
    return {name: what for name, what in descriptors().items() if what != "/dev/null"}


@pytest.fixture(params=["asyncio", "uvloop"])
def go(request):
    """Runs a coroutine in a new loop."""
    if request.param == "uvloop" and uvloop is None:
        pytest.skip("uvloop is not installed")
    loop = (uvloop if request.param == "uvloop" else asyncio).new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(asyncio.sleep(0))  # the loop has opened its own descriptors now
    before = of_loop()
    yield lambda coroutine: loop.run_until_complete(asyncio.wait_for(coroutine, 50))
    deadline = time.monotonic() + 10
    while of_loop() != before and time.monotonic() < deadline:  # transports close asynchronously
        gc.collect()  # objects that a caught exception still refers to
        forkless.reap_orphans()  # a handle that has been collected
        loop.run_until_complete(asyncio.sleep(0.005))
    assert of_loop() == before
    loop.close()
    asyncio.set_event_loop(None)


def test_communicate_writes_input_and_returns_output(go):
    async def main():
        process = await create_subprocess_exec("sh", "-c", "cat; echo err >&2; exit 3", stdin=PIPE, stdout=PIPE, stderr=PIPE)
        assert process.returncode is None and process.pid > 0
        assert await process.communicate(b"x" * 1_000_000) == (b"x" * 1_000_000, b"err\n")
        assert process.returncode == 3 and await process.wait() == 3

    go(main())


def test_streams_are_read_and_written(go):
    async def main():
        process = await create_subprocess_shell("while read line; do echo got $line; done", stdin=PIPE, stdout=PIPE)
        for word in (b"one", b"two"):
            process.stdin.write(word + b"\n")
            await process.stdin.drain()
            assert await process.stdout.readline() == b"got " + word + b"\n"
        process.stdin.close()
        await process.stdin.wait_closed()
        assert await process.stdout.read() == b"" and await process.wait() == 0
        process = await create_subprocess_shell("echo out; echo err >&2", stdout=PIPE, stderr=STDOUT)
        assert await process.communicate() == (b"out\nerr\n", None)

    go(main())


def test_an_ended_process_holds_no_descriptor(go):
    async def main():
        before = len(os.listdir("/proc/self/fd"))
        processes = []
        for words in ({}, {"umask": 0o22}):  # a handle and a Popen
            process = await create_subprocess_exec("true", **words)
            assert await process.wait() == 0
            processes.append(process)
        assert len(os.listdir("/proc/self/fd")) == before

    go(main())


def test_communicate_with_a_program_that_does_not_read_its_input(go):
    async def main():
        process = await create_subprocess_exec("true", stdin=PIPE, stdout=DEVNULL)
        assert await process.communicate(b"x" * 1_000_000) == (None, None)
        assert process.returncode == 0

    go(main())


def test_launch_errors_are_raised_by_the_create_functions(go):
    async def main():
        with pytest.raises(FileNotFoundError) as caught:
            await create_subprocess_exec("no-such-program", stdout=PIPE, stdin=PIPE)
        assert caught.value.filename == "no-such-program" and caught.value.step == "exec"
        with pytest.raises(FileNotFoundError) as caught:
            await create_subprocess_exec("true", cwd="/no/such/directory")
        assert caught.value.filename == "/no/such/directory"
        for word in ({"text": True}, {"shell": True}, {"bufsize": 5}, {"encoding": "utf-8"}, {"universal_newlines": True}):
            with pytest.raises(ValueError):
                await create_subprocess_exec("true", **word)
        with pytest.raises(ValueError):
            await create_subprocess_shell(["true"])
        with pytest.raises(TypeError):
            await create_subprocess_exec("true", nothing_of_that_name=1)

    go(main())


def test_several_tasks_wait_for_a_signalled_child(go):
    async def main():
        process = await create_subprocess_exec("sleep", "50")
        waiters = [asyncio.ensure_future(process.wait()) for _ in range(5)]
        await asyncio.sleep(0.01)
        waiters[0].cancel()
        await asyncio.sleep(0.01)
        process.terminate()
        assert await asyncio.gather(*waiters[1:]) == [-signal.SIGTERM] * 4 and waiters[0].cancelled()
        for call in (process.kill, process.terminate, lambda: process.send_signal(0)):
            with pytest.raises(ProcessLookupError):
                call()

    go(main())


def test_settings_and_kill_group_work_with_asyncio(go):
    async def main():
        words = {"nice": 15, "umask": 0o27, "env": {"A": "b", "PATH": "/bin"}}
        process = await create_subprocess_exec("sh", "-c", "nice; umask; echo $A", stdout=PIPE, **words)
        assert (await process.communicate())[0].split() == [b"15", b"0027", b"b"]
        process = await create_subprocess_shell("sleep 50 & echo $!; wait", stdout=PIPE, kill_group=True)
        grandchild = int(await process.stdout.readline())
        process.kill()
        assert await process.wait() == -signal.SIGKILL and await process.stdout.read() == b""
        # Its end of the pipe is closed, so the whole group was killed.
        assert not os.path.exists(f"/proc/{grandchild}/exe") or await gone(grandchild)

    go(main())


def test_kill_tree_works_with_asyncio(go):
    async def main():
        line = "(setsid sleep 50 & echo $!); sleep 50"
        try:
            process = await create_subprocess_exec("sh", "-c", line, stdout=PIPE, kill_tree=True)
        except OSError as error:
            assert "Landlock" in str(error)
            pytest.skip(f"kill_tree: {error}")
        grandchild = int(await process.stdout.readline())
        process.kill()
        assert await process.wait() == -signal.SIGKILL
        assert not os.path.exists(f"/proc/{grandchild}/exe") or await gone(grandchild)

    go(main())


async def gone(pid):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.readlink(f"/proc/{pid}/exe")
        except OSError:
            return True
        await asyncio.sleep(0.01)
    return False


def test_many_concurrent_children_need_no_thread(go):
    async def main():
        async def one(n):
            process = await create_subprocess_exec("sh", "-c", f"exit {n % 50}")
            assert await process.wait() == n % 50

        threads = threading.active_count()
        tasks = [asyncio.ensure_future(one(n)) for n in range(150)]
        while not all(task.done() for task in tasks):
            assert threading.active_count() == threads
            await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)

    go(main())


def test_a_dropped_process_is_reaped(go):
    async def main():
        await create_subprocess_exec("true")
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            await asyncio.sleep(0.005)
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            except ChildProcessError:
                return
        raise AssertionError("it is still there")

    go(main())


def test_a_cancelled_creation_leaves_no_child(go):
    async def main():
        for pause in (0, 0, 0.0001, 0.0003, 0.001) * 10:
            task = asyncio.ensure_future(create_subprocess_exec("sleep", "50", stdin=PIPE, stdout=PIPE))
            await asyncio.sleep(pause)
            if not task.cancel():
                process = await task
                process.kill()
                process.stdin.close()
                await process.communicate()
            else:
                with pytest.raises(asyncio.CancelledError):
                    await task
        deadline = time.monotonic() + 20
        while forkless.reap_orphans() and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    go(main())


def test_children_work_in_a_loop_of_another_thread():
    """No child watcher is used: those need the main thread."""
    found = []

    def run():
        async def main():
            process = await create_subprocess_exec("echo", "x", stdout=PIPE)
            found.append((await process.communicate())[0])

        asyncio.run(main())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(50)
    assert found == [b"x\n"]


def test_a_child_is_waited_for_in_another_loop_when_its_own_is_closed(go):
    async def main():
        return await create_subprocess_exec("sh", "-c", "cat; exit 3", stdin=reading)

    async def twice():
        return await asyncio.gather(child.wait(), child.wait())

    reading, writing = os.pipe()
    child = asyncio.run(main())
    os.close(reading)
    os.close(writing)
    assert go(twice()) == [3, 3] and child.returncode == 3


def test_the_exec_is_reported_and_not_looked_for(go, monkeypatch):
    monkeypatch.setattr(forkless.asyncio, "_LOOK", 1000)

    async def main():
        children = await asyncio.gather(*(create_subprocess_exec("sleep", "1000") for _ in range(60)))
        for child in children:
            child.kill()
            assert await child.wait() == -signal.SIGKILL
        failing = [create_subprocess_exec("true", cwd="/no/such/directory", stdin=PIPE, stdout=PIPE) for _ in range(60)]
        for error in await asyncio.gather(*failing, return_exceptions=True):
            assert isinstance(error, FileNotFoundError) and error.filename == "/no/such/directory", error

    go(main())


def test_a_pipe_that_another_process_holds_does_not_delay_the_exec_for_ever(go, monkeypatch):
    """A thread that forks between the making of the pipe and the launch leaves its writing end in the new process."""
    reading, writing = os.pipe()
    asked = []

    class Held:
        """A handle whose pipe is not closed by exec."""

        def __init__(self, handle):
            self._handle, self.turns = handle, 0

        def __getattr__(self, name):
            return getattr(self._handle, name)

        def exec_fileno(self):
            asked.append(self)
            return reading

        def has_executed(self):
            self.turns += 1
            return self.turns > 1 and self._handle.has_executed()

    start = forkless.asyncio._start
    monkeypatch.setattr(forkless.asyncio, "_start", lambda *args: Held(start(*args)))

    async def main():
        process = await create_subprocess_exec("true")
        assert await process.wait() == 0

    go(main())
    os.close(reading)
    os.close(writing)
    assert asked


def test_has_executed_reports_the_exec():
    handle = forkless.prepare(["true"]).launch()
    assert handle.has_executed(50)
    with pytest.raises(ValueError):
        handle.has_executed(-1)
    assert handle.wait() == 0
    with pytest.raises(FileNotFoundError):
        forkless.prepare(["true"], cwd="/no/such/directory").launch().has_executed(50)
