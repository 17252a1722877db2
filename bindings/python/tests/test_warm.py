"""Tests of warm programs. tests/python.rs installs libforkless_warm.so with the package."""

import asyncio
import errno
import gc
import os
import platform
import signal
import threading
import time

import pytest

import forkless
import forkless.asyncio
from conftest import python

GLIBC = tuple(int(number) for number in platform.libc_ver()[1].split(".") if number.isdigit())
pytestmark = pytest.mark.skipif(GLIBC < (2, 34), reason=f"SKIPPED: templates, because glibc is {GLIBC}, older than 2.34")

PIPE = forkless.PIPE
# With a variable for the loader, which the tests have, launches are cold.
ENV = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "MALLOC_"))}
ARGS = ["/bin/sh", "-c", 'echo "$0 $* $VALUE"; pwd; cat; cat /proc/$$/comm; echo error >&2; exit 3', "name", "one  two"]
WORDS = {"env": {**ENV, "VALUE": "of this test"}, "cwd": "/usr", "stdin": forkless.DEVNULL, "stdout": PIPE, "stderr": PIPE}


def opened(**options):
    try:
        return forkless.Warm(**options)
    except OSError as error:  # this is not x86-64 with glibc, or the library is not installed
        pytest.skip(str(error))


def start(warm, args=ARGS, **words):
    """Starts the template. The library may have been installed a moment ago, and templates are made of older files only."""
    prepared = forkless.prepare(args, warm=warm, **(words or WORDS))
    for _ in range(400):
        reason = warm.start(prepared)
        if reason is None or "a moment ago" not in reason:
            break
        time.sleep(0.1)
    assert reason is None
    return prepared


def seen(done):
    return done.returncode, done.stdout, done.stderr


def is_gone(pid):
    """Has it ended? The first process of a container may leave it a zombie for ever."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(") ")[2].startswith("Z")
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_warm_launch_is_as_a_cold_one():
    warm = opened()
    cold = seen(forkless.run(ARGS, **WORDS))
    assert cold == (3, b"name one  two of this test\n/usr\nsh\n", b"error\n")
    first = forkless.Popen(ARGS, warm=warm, **WORDS)
    assert first.cold_reason == "the template was not started yet"
    assert (*first.communicate(), first.returncode) == (*cold[1:], 3)
    start(warm)
    before = warm.stats["warm"]

    second = forkless.Popen(ARGS, warm=warm, **WORDS)
    assert second.cold_reason is None
    assert (*second.communicate(), second.returncode) == (*cold[1:], 3)
    assert second.usage.ru_maxrss > 0
    # One native call; the standard class; text.
    assert seen(forkless.run(ARGS, warm=warm, **WORDS)) == cold
    assert seen(forkless.run(ARGS, warm=warm, timeout=50, **WORDS)) == cold
    assert forkless.run(ARGS, warm=warm, text=True, **WORDS).stderr == "error\n"
    assert warm.stats["warm"] == before + 4 and warm.stats["crashes"] == 0
    plain = forkless.Popen(["true"], warm=False)
    assert plain.wait() == 0 and plain.cold_reason is None


def test_prepared_commands_and_asyncio_launch_warm():
    warm = opened()
    prepared = start(warm)
    for launch in (prepared.spawn, prepared.launch):
        with launch() as child:
            assert child.cold_reason is None and "template" in child.route
            child.wait_exec()
            assert child.stdout.read().startswith(b"name one  two")
    assert prepared.run().stderr == b"error\n"
    before = warm.stats["warm"]

    async def main():
        process = await forkless.asyncio.create_subprocess_exec(*ARGS, warm=warm, **WORDS)
        return (*await process.communicate(), process.returncode)

    assert asyncio.run(main()) == (b"name one  two of this test\n/usr\nsh\n", b"error\n", 3)
    assert warm.stats["warm"] == before + 1


def test_an_ineligible_launch_is_cold_with_its_reason():
    warm = opened()
    words = dict(WORDS, no_new_privs=True)
    prepared = forkless.prepare(ARGS, warm=warm, **words)
    reason = warm.start(prepared)
    assert "exec" in reason
    child = forkless.Popen(ARGS, warm=warm, **words)
    assert child.cold_reason == reason
    assert child.communicate()[1] == b"error\n" and child.returncode == 3
    assert warm.templates == [] and warm.stats["cold"] == 1
    with pytest.raises(TypeError, match="^warm: "):
        forkless.run(["true"], warm=1)


def refusal(library):
    """The error of a set with this library. Other platforms have no warm programs, whatever the library."""
    with pytest.raises(OSError) as raised:
        forkless.Warm(library=library)
    if "need x86-64 and glibc" in str(raised.value):
        pytest.skip(str(raised.value))
    return raised.value


def test_a_missing_library_raises_file_not_found_error():
    error = refusal("/no/such/library.so")
    assert isinstance(error, FileNotFoundError) and error.errno == errno.ENOENT
    assert str(error) == "[Errno 2] /no/such/library.so: No such file or directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may search each directory")
def test_an_unreadable_directory_of_the_library_raises_permission_error(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    error = refusal(closed / "library.so")
    assert isinstance(error, PermissionError) and error.errno == errno.EACCES


def test_templates_end_with_the_last_owner_of_their_set():
    warm = opened()
    prepared = start(warm)
    [template] = warm.templates
    del warm
    gc.collect()
    assert not is_gone(template)
    child = prepared.spawn()
    assert child.cold_reason is None
    child.stdout.read()
    assert child.wait() == 3
    del prepared, child
    gc.collect()
    while not is_gone(template):
        time.sleep(0.001)


def test_a_crash_ends_the_template_also_if_popen_waits():
    warm = opened()
    args = ["/bin/sh", "-c", "kill -SEGV $$"]
    start(warm, args, env=ENV)
    assert len(warm.templates) == 1
    child = forkless.Popen(args, env=ENV, warm=warm)
    assert child.cold_reason is None
    assert child.wait() == -signal.SIGSEGV
    assert warm.templates == [] and warm.stats["crashes"] == 1


def test_threads_share_a_set():
    warm = opened(launches=10000, idle=1000, life=10000)
    start(warm)
    cold = seen(forkless.run(ARGS, **WORDS))
    wrong = []

    def launches():
        for _ in range(20):
            child = forkless.Popen(ARGS, warm=warm, **WORDS)
            out, err = child.communicate()
            if child.cold_reason is not None or (child.returncode, out, err) != cold:
                wrong.append((child.cold_reason, out, err))

    threads = [threading.Thread(target=launches) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and warm.stats["starts"] == 1


def test_the_set_of_the_process_ends_with_it():
    opened()
    code = """
        import os, time, forkless
        warm = forkless.Warm.of_process()
        prepared = forkless.prepare(["/bin/true"], warm=True)
        while (reason := warm.start(prepared)) is not None:
            assert "a moment ago" in reason, reason
            time.sleep(0.1)
        child = forkless.Popen(["/bin/true"], warm=True)
        assert child.cold_reason is None and child.wait() == 0
        pid = os.fork()
        if pid == 0:
            # A copy of the process launches cold, and ends no template.
            child = forkless.Popen(["/bin/true"], warm=True)
            os._exit(child.wait() if "copy" in child.cold_reason else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert forkless.Popen(["/bin/true"], warm=True).cold_reason is None
        print(*warm.templates)
    """
    [template] = python(code, env=ENV).split()
    while not is_gone(int(template)):
        time.sleep(0.001)
