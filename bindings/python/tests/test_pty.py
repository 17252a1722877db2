"""Tests of `forkless.Pty`."""

import asyncio
import os
import signal
import subprocess
import threading
import time

import pytest

import forkless
from forkless.asyncio import create_subprocess_exec, open_pty


def test_a_program_has_the_terminal():
    with forkless.Pty(30, 100) as pty:
        assert pty.size == (30, 100) and pty.path.startswith("/dev/pts/") and pty.path in repr(pty)
        words = "tty; tty <&2; stty size; test $(ps -o sid= -p $$) = $$ && echo s; test -t 1 && echo yes >/dev/tty"
        with forkless.Popen(["sh", "-c", words], pty=pty) as child:
            lines = pty.read_until_exit(child).decode().split("\r\n")
        path = pty.path.encode().decode()
    assert lines == [path, path, "30 100", "s", "yes", ""] and child.returncode == 0
    assert "closed" in repr(pty)
    for use in (pty.fileno, pty.read, lambda: forkless.run(["true"], pty=pty)):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_what_is_typed_and_signals_of_keys():
    with forkless.Pty() as pty:
        pty.echo(False)
        with forkless.Popen(["wc", "-l"], pty=pty) as child:
            pty.write(b"one\ntwo\n")
            pty.send_eof()
            assert pty.read_until_exit(child) == b"2\r\n"
        pty.make_raw()
        with pytest.raises(ValueError, match="raw mode"):
            pty.send_eof()
    with forkless.Pty() as pty, forkless.Popen(["sleep", "60"], pty=pty, kill_group=True) as child:
        pty.write(b"\x03")
        assert child.wait() == -signal.SIGINT
    with forkless.Pty() as pty, forkless.Popen(["sh", "-c", "trap 'stty size; exit' WINCH; echo; while :; do sleep 0.01; done"], pty=pty) as child:
        assert pty.read() == b"\r\n"
        pty.resize(50, 120)
        assert pty.read_until_exit(child) == b"50 120\r\n"


def test_streams_that_are_set_stay():
    with forkless.Pty() as pty:
        with forkless.Popen(["sh", "-c", "test -t 0 && echo out; echo err >&2"], pty=pty, stdout=forkless.PIPE) as child:
            assert pty.read_until_exit(child) == b"err\r\n" and child.stdout.read() == b"out\n"
        child = forkless.prepare(["tty"], pty=pty).launch()
        assert pty.read_until_exit(child).decode() == f"{pty.path}\r\n" and child.returncode == 0
    for wrong in ("x", 3, True):
        with pytest.raises(TypeError, match=r"pty.*forkless\.Pty"):
            forkless.run(["true"], pty=wrong)


def test_the_end_with_background_processes_and_limits():
    with forkless.Pty() as pty:
        with forkless.Popen(["sh", "-c", "trap '' HUP; sleep 60 & echo $!"], pty=pty) as child:
            left = int(pty.read_until_exit(child))
        os.kill(left, signal.SIGKILL)
    with forkless.Pty() as pty:
        with forkless.Popen(["sh", "-c", "trap '' HUP; (sleep 0.2; echo late) & echo early"], pty=pty) as child:
            assert pty.read_until_exit(child, linger=30) == b"early\r\nlate\r\n"
    with forkless.Pty() as pty, forkless.Popen(["sh", "-c", "echo some; sleep 60"], pty=pty, kill_group=True) as child:
        with pytest.raises(subprocess.TimeoutExpired) as raised:
            pty.read_until_exit(child, timeout=0.3)
        assert raised.value.output == b"some\r\n" and raised.value.cmd == child.args
        child.kill()
        # One that has been waited for.
        child.wait()
        assert pty.read_until_exit(child) == b""


def test_a_limit_holds_for_a_program_that_writes_without_end():
    with forkless.Pty() as pty, forkless.Popen(["yes"], pty=pty) as child:
        with pytest.raises(subprocess.TimeoutExpired) as raised:
            pty.read_until_exit(child, timeout=0.3)
        assert raised.value.output.startswith(b"y\r\n")
        child.kill()


def test_much_output_and_no_end_is_lost():
    with forkless.Pty() as pty:
        with forkless.Popen(["seq", "100000"], pty=pty) as child:
            assert pty.read_until_exit(child).split() == [b"%d" % n for n in range(1, 100001)]


def test_handlers_of_signals_run_while_it_reads():
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    try:
        with forkless.Pty() as pty, forkless.Popen(["sleep", "60"], pty=pty) as child:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()

            def end():
                while not seen:
                    time.sleep(0.01)
                child.kill()

            ending = threading.Thread(target=end)
            ending.start()
            assert pty.read_until_exit(child) == b""
            ending.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_with_a_loop(loop):
    async def main(pty):
        pty.echo(False)
        child = await create_subprocess_exec("sh", "-c", "read x; echo got $x; tty; seq 10000", pty=pty)
        stream = await open_pty(pty, child)
        await stream.write(b"hello\n")
        seen = await stream.read()
        assert await child.wait() == 0
        stream.close()
        with pytest.raises(ValueError, match="closed"):
            await stream.write(b"x")
        # More than a terminal holds, for a program that does not read it at once.
        child = await create_subprocess_exec("sh", "-c", "stty -echo; sleep 0.2; cat | wc -l", pty=pty)
        stream = await open_pty(pty, child)
        await stream.write(b"line\n" * 5000)
        pty.send_eof()
        lines = await stream.read()
        await child.wait()
        stream.close()
        assert lines.split()[-1] == b"5000"
        return seen

    run = asyncio.run if loop == "asyncio" else pytest.importorskip("uvloop").run
    with forkless.Pty() as pty:
        assert run(main(pty)).decode().split("\r\n") == ["got hello", pty.path, *map(str, range(1, 10001)), ""]
