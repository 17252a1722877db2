"""Fixtures and helpers of the tests."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import forkless

try:
    import uvloop
except ImportError:
    uvloop = None
else:
    # libuv creates a pipe when it is first used.
    _loop = uvloop.new_event_loop()
    _loop.run_until_complete(asyncio.sleep(0))
    _loop.close()


@pytest.fixture(autouse=True)
def leaves_nothing_behind():
    """Checks that a test leaves no descriptor and no child, and the standard module unchanged."""
    before = descriptors()
    yield
    assert not forkless.is_installed()
    if descriptors() != before or has_children():
        gc.collect()  # objects that a caught exception still refers to
    while forkless.reap_orphans():  # children of dropped handles
        time.sleep(0.001)
    assert descriptors() == before
    assert not has_children()


def has_children():
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


# How many times as long as usual a test may take: an emulated machine is slow.
SLOW = int(os.environ.get("FORKLESS_TEST_SLOW", "1"))


@pytest.fixture
def installed():
    assert forkless.install()
    yield
    forkless.uninstall()


@pytest.fixture(autouse=True)
def ends():
    """Limits the time of a test: it fails, or the second signal ends the run."""

    def takes_too_long(*_):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        raise TimeoutError("the test takes too long")

    before = signal.signal(signal.SIGALRM, takes_too_long)
    signal.alarm(60 * SLOW)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def descriptors():
    """The open descriptors and their targets."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass  # the descriptor of the directory itself
    return {name: what for name, what in found.items() if "/proc/" not in what}


def python(code, *args, **words):
    """Runs Python code in another interpreter, with the standard module, and returns its output."""
    words.setdefault("timeout", 50)
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), *args], capture_output=True, text=True, **words)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stdout


TRACER = """
import ctypes, os, sys
print(ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), None, None), flush=True)  # PTRACE_SEIZE
sys.stdin.read()
os.waitpid(int(sys.argv[1]), 0)
"""


@contextlib.contextmanager
def traced(pid):
    """Another process traces the child."""
    tracer = subprocess.Popen([sys.executable, "-c", TRACER, str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        if tracer.stdout.readline() != b"0\n":
            pytest.skip("traced children, because ptrace is refused here")
        yield
    finally:
        tracer.communicate()


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else report.longrepr
        terminalreporter.write_line(f"SKIPPED: {report.nodeid} because {reason}")
