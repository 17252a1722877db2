"""Tests with invalid arguments, unusual environments and signals at bad times: forkless behaves as the standard module, or better."""

import asyncio
import contextlib
import errno
import gc
import math
import os
import pickle
import resource
import select
import signal
import subprocess
import sys
import threading
import time

import pytest

import forkless
import forkless.asyncio
from conftest import SLOW, python, traced

PIPE = forkless.PIPE


def outcome(call, *args, **words):
    """The exception of a call: its class and message."""
    try:
        return call(*args, **words)
    except Exception as error:
        return type(error), getattr(error, "errno", None), getattr(error, "filename", None)


SAME = [
    (["/no/such/program"], {}),
    (["no-such-program"], {}),
    ("no-such-program", {}),
    (b"no-such-program", {}),
    (["/etc/passwd"], {}),
    (["/"], {}),
    (["/etc/passwd/x"], {}),
    (["true"], {"cwd": "/no/such/directory"}),
    (["true"], {"cwd": "/etc/passwd"}),
    (["true"], {"executable": "/no/such/program"}),
    ([], {}),
    (["true", 5], {}),
    (["true", None], {}),
    ([None], {}),
    (5, {}),
    (["true\0"], {}),
    (["true", "\0"], {}),
    (["true"], {"env": {"A\0": "b"}}),
    (["true"], {"env": {"A": "b\0"}}),
    (["true"], {"env": {"A=B": "c"}}),
    (["true"], {"env": {"A": 5}}),
    (["true"], {"env": 5}),
    (["true"], {"cwd": 5.5}),
    (["true"], {"cwd": "a\0b"}),
    (["true"], {"pass_fds": [-1]}),
    (["true"], {"pass_fds": ["x"]}),
    (["true"], {"stdout": 999_999}),
    (["true"], {"user": 2**64}),
    (["true"], {"group": "no such group"}),
    (["true"], {"shell": True, "executable": "/no/such/shell"}),
    (["\udcff-no-such-program"], {}),
    (["true", "\ud800"], {}),
    (["false"], {"bufsize": "large"}),
    # The standard module executes the directories of PATH, because the name is empty.
    ("", {}),
    ([""], {}),
    (b"", {}),
    (["true"], {"executable": ""}),
    ([""], {"env": {"PATH": "/no/such:/etc/passwd:/usr/bin"}}),
    ([""], {"env": {"PATH": "/no/such:/etc/passwd"}}),
    ([""], {"env": {"PATH": ""}}),
    ([""], {"env": {}}),
    ([""], {"cwd": "/no/such/directory"}),
    # Negative numbers that are no constant.
    (["true"], {"stdin": -5}),
    (["true"], {"stdout": -5}),
    (["true"], {"stderr": -5}),
    (["true"], {"stdin": -2}),
    (["true"], {"stdout": -2}),
    (["no-such-program"], {"stdout": -9}),
    (["true"], {"stdout": 2**40}),
    (["true"], {"pass_fds": [2**40]}),
    (["true"], {"umask": 2**70}),
    (["true"], {"umask": 2**40}),
    (["true"], {"umask": 0o1022}),
    (["true"], {"cwd": "a\0b", "user": os.geteuid()}),
    (["true"], {"cwd": "\ud800", "user": os.geteuid()}),
    (["true"], {"cwd": 0, "user": os.geteuid()}),
    (["true"], {"timeout": math.nan}),
    (["sleep", "0.2"], {"timeout": math.nan}),
    (["true"], {"timeout": math.inf}),
    (["sleep", "5"], {"timeout": -1}),
    (["sleep", "5"], {"timeout": -math.inf}),
    (["true"], {"timeout": "soon"}),
]


@pytest.mark.parametrize(("args", "words"), SAME, ids=lambda one: repr(one)[:40])
def test_errors_equal_those_of_subprocess(args, words):
    for name in ("run", "call"):
        theirs = outcome(getattr(subprocess, name), args, **words)
        ours = outcome(getattr(forkless, name), args, **words)
        if isinstance(theirs, tuple) and isinstance(ours, tuple):
            assert ours == theirs
        else:
            # No exception is needed: both fail the same way.
            assert getattr(ours, "returncode", ours) == getattr(theirs, "returncode", theirs)


def test_flags_are_taken_by_their_truth_value():
    for flag in (1, 0, "yes", ""):
        code = "import os; print(os.getsid(0) == os.getpid())"
        words = {"start_new_session": flag, "close_fds": flag, "restore_signals": flag}
        done = forkless.run([sys.executable, "-c", code], **words, stdout=PIPE, timeout=50)
        assert done.stdout.decode() == f"{bool(flag)}\n"
        assert forkless.run(["echo", "x"], capture_output=flag).stdout == (b"x\n" if flag else None)
        assert forkless.prepare(["true"], start_new_session=flag).run().returncode == 0


def test_pass_fds_are_any_iterable():
    reads, writes = os.pipe()
    try:
        for fds in (iter([writes]), {writes}, {writes: None}.keys()):
            assert forkless.call(["sh", "-c", f"echo x >/dev/fd/{writes}"], pass_fds=fds) == 0
            assert os.read(reads, 10) == b"x\n"
    finally:
        os.close(reads)
        os.close(writes)


def test_errors_have_additional_attributes():
    with pytest.raises(FileNotFoundError) as caught:
        forkless.run(["no-such-program"])
    error = caught.value
    assert (error.step, error.program, error.filename) == ("exec", "no-such-program", "no-such-program")
    assert "searched PATH" in error.detail and str(error) == "[Errno 2] No such file or directory: 'no-such-program'"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    # What a traceback shows.
    assert "searched PATH" in getattr(error, "__notes__", [error.detail])[0]
    with pytest.raises(OSError) as caught:
        forkless.Popen(["true"], pass_fds=[999])
    assert caught.value.errno == errno.EBADF and caught.value.step == "pass fd" and caught.value.object
    if hasattr(caught.value, "__notes__"):
        assert "pass fd" in caught.value.__notes__[0]


def test_a_failed_launch_leaves_no_pipe():
    for words in ({"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}, {"stdin": forkless.DEVNULL, "stdout": PIPE}):
        for _ in range(20):
            with pytest.raises(FileNotFoundError):
                forkless.Popen(["/no/such/program"], **words)


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (0, 1, 2)])
def test_launches_with_closed_standard_streams(closed):
    code = """
        import os, sys, forkless
        report = os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), 50)
        closed = [int(word) for word in sys.argv[2:]]
        for fd in closed:
            os.close(fd)
        done = forkless.run(["sh", "-c", "echo out; echo err >&2; cat"], input=b"in", capture_output=True)
        os.write(50, repr((done.returncode, done.stdout, done.stderr)).encode())
        with forkless.Popen(["sh", "-c", "echo out; cat"], stdin=forkless.PIPE, stdout=forkless.PIPE) as child:
            os.write(50, repr(child.communicate(b"in")[0]).encode())
        os.write(50, repr(forkless.call(["true"])).encode())
        os._exit(0)
    """
    path = f"/tmp/forkless-closed-{os.getpid()}"
    try:
        python(code, path, *map(str, closed))
        with open(path) as file:
            assert file.read() == repr((0, b"out\nin", b"err\n")) + repr(b"out\nin") + "0"
    finally:
        os.unlink(path)


def test_launches_with_replaced_sys_streams():
    code = """
        import sys, forkless
        sys.stdin = sys.stdout = sys.stderr = None
        assert forkless.run(["true"]).returncode == 0
        assert forkless.check_output(["echo", "x"], stderr=forkless.STDOUT) == b"x\\n"
    """
    python(code)


def test_a_forked_process_launches():
    forkless.run(["true"])
    pid = os.fork()
    if pid == 0:
        try:
            good = forkless.run(["echo", "x"], stdout=PIPE).stdout == b"x\n" and forkless.Popen(["true"]).wait() == 0
            os._exit(0 if good else 1)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_process_forked_from_many_threads_launches():
    """A launch must not need a lock that another thread held at the fork."""
    stop = threading.Event()

    def launches():
        while not stop.is_set():
            forkless.run(["true"], env={})

    threads = [threading.Thread(target=launches) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                signal.alarm(20 * SLOW)
                os._exit(forkless.run(["true"]).returncode)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_import_in_a_subinterpreter_raises_import_error():
    code = """
        import sys
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        import forkless
        one = interpreters.create()
        # An ImportError, except in versions that only leave the name unbound.
        code = "try:\\n import forkless\\nexcept ImportError:\\n pass\\nelse:\\n assert forkless.run(['true']).returncode == 0"
        if hasattr(interpreters, "run_string"):
            interpreters.run_string(one, code)
        interpreters.destroy(one)
        assert forkless.run(["true"]).returncode == 0
    """
    python(code)


def test_shutdown_with_running_children():
    code = """
        import forkless
        child = forkless.Popen(["sleep", "0.2"])
        handle = forkless.prepare(["sleep", "0.2"]).launch()
        print("ended")
    """
    assert python(code) == "ended\n"


def test_launches_during_shutdown():
    code = """
        import atexit, forkless
        class Late:
            def __del__(self, run=forkless.run):
                assert run(["true"]).returncode == 0
                print("late")
        atexit.register(lambda: print(forkless.run(["echo", "x"], capture_output=True, text=True).stdout, end=""))
        late = Late()
    """
    assert python(code) == "x\nlate\n"


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("kind", ["run", "captured", "fed", "popen", "timeout", "prepared", "handle"])
def test_a_signal_handler_that_raises_ends_a_wait(kind):
    def raises(*_):
        raise Interrupted

    # The program sends the signal, so it does not arrive before the program runs, or before the handle is known.
    program = ["sh", "-c", "sleep 0.2; kill -USR1 $PPID; exec sleep 50"]
    held = ["sh", "-c", "read go; sleep 0.2; kill -USR1 $PPID; exec sleep 50"]
    reads, writes = os.pipe()
    old = signal.signal(signal.SIGUSR1, raises)
    child = None
    start = time.monotonic()
    try:
        with pytest.raises(Interrupted):
            if kind == "run":
                forkless.run(program)
            elif kind == "captured":
                forkless.run(program, capture_output=True)
            elif kind == "fed":
                forkless.run(program, input=b"x" * 10_000_000, stdout=PIPE)
            elif kind == "prepared":
                forkless.prepare(program).run()
            else:
                child = forkless.prepare(held, stdin=reads).spawn() if kind == "handle" else forkless.Popen(held, stdin=reads)
                os.write(writes, b"\n")
                child.wait(*([50] if kind == "timeout" else []))
    finally:
        signal.signal(signal.SIGUSR1, old)
        os.close(reads)
        os.close(writes)
        if child is not None:
            child.kill()
            child.wait()
    assert time.monotonic() - start < 20


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_signal_handler_that_raises_during_a_launch_loses_no_child():
    raised = []

    def raises(_, frame):
        if frame.f_code.co_name == "execute_child":
            raised.append(1)
            raise Interrupted

    old = signal.signal(signal.SIGUSR1, raises)
    stop = threading.Event()
    main = threading.main_thread().ident

    def sends():
        while not stop.wait(0.0003):
            signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=sends)
    thread.start()
    try:
        while len(raised) < 50:
            try:
                forkless.Popen(["true"]).wait()
            except Interrupted:
                pass
    finally:
        stop.set()
        thread.join()
        signal.signal(signal.SIGUSR1, old)
    deadline = time.monotonic() + 20
    while subprocess._active and time.monotonic() < deadline:
        time.sleep(0.01)
        subprocess._cleanup()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_signal_handler_that_returns_does_not_end_a_wait():
    seen = []
    old = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    timer = threading.Timer(0.1, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1))
    try:
        timer.start()
        assert forkless.run(["sh", "-c", "sleep 0.4; echo x"], capture_output=True).stdout == b"x\n"
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, old)
    assert seen == [1]


def test_ctrl_c_ends_run_and_its_program():
    code = """
        import forkless, os, signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            forkless.run(["sh", "-c", "sleep 0.1; kill -INT $PPID; exec sleep 50"], capture_output=True)
        except KeyboardInterrupt:
            print("interrupted")
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            print("nobody left")
    """
    assert python(code) == "interrupted\nnobody left\n"


def test_other_threads_run_during_a_wait():
    """The program ends when this thread closes the pipe. If the GIL were held, that would never happen."""
    reads, writes = os.pipe()
    thread = threading.Thread(target=forkless.run, args=(["cat"],), kwargs={"stdin": reads})
    thread.start()
    for _ in range(10):
        time.sleep(0.01)
        assert thread.is_alive()
    os.close(writes)
    thread.join()
    os.close(reads)


def test_a_large_environment_is_passed():
    env = {f"VARIABLE_{n}": "x" * 100 for n in range(8000)}
    env["PATH"] = os.environ["PATH"]
    done = forkless.run(["sh", "-c", "echo ${#VARIABLE_7999}"], env=env, stdout=PIPE)
    assert done.stdout == b"100\n"
    env["TOO_LONG"] = "x" * 200_000
    with pytest.raises(OSError) as caught:
        forkless.run(["true"], env=env)
    assert caught.value.errno == errno.E2BIG


def test_file_names_that_are_not_utf_8(tmp_path):
    odd = b"\xff\xfe odd"
    name = os.fsdecode(odd)
    program = tmp_path / name
    program.write_text("#!/bin/sh\nprintf '%s' \"$1\" \"$ODD\"\nbasename \"$(pwd)\"\n")
    program.chmod(0o755)
    place = tmp_path / (name + "d")
    place.mkdir()
    done = forkless.run([program, name], env={b"ODD": odd}, cwd=place, stdout=PIPE)
    assert done.stdout == odd + odd + odd + b"d\n"
    done = forkless.run([os.fsencode(program), odd], env={"ODD": name}, cwd=os.fsencode(place), stdout=PIPE)
    assert done.stdout == odd + odd + odd + b"d\n"


def test_an_error_of_the_wait_leaves_no_program(tmp_path):
    """poll(2) refuses more descriptors than the process may have."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    code = f"""if True:
        import os, resource, time
        open("pid", "w").write(str(os.getpid()))
        resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (1, {limits[1]}))
        print(flush=True)
        time.sleep(1000)
    """
    try:
        with pytest.raises(OSError) as raised:
            forkless.run([sys.executable, "-c", code], capture_output=True, cwd=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    try:
        assert raised.value.errno == errno.EINVAL
        deadline = time.monotonic() + 20 * SLOW
        while forkless.reap_orphans():  # a killed program that has not ended yet
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_return_codes_with_sigchld_ignored():
    old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        codes = {forkless.run(["sh", "-c", "exit 7"]).returncode, forkless.call(["sh", "-c", "exit 7"])}
        assert forkless.run(["sh", "-c", "exit 7"], stdout=PIPE).returncode in (0, 7)
    except OSError as error:
        assert error.errno == errno.ECHILD  # before Linux 6.15 the status is lost
        codes = set()
    finally:
        signal.signal(signal.SIGCHLD, old)
    assert codes <= {0, 7}
    version = tuple(int(part) for part in os.uname().release.split(".")[:2])
    if version >= (6, 15):
        assert codes == {7}


def test_poll_has_status_and_usage_as_wait_has():
    def polled():
        child = forkless.Popen(["sh", "-c", "exit 7"])
        while child.poll() is None:
            time.sleep(0.001)
        return child

    child = polled()
    assert child.returncode == 7 and child.usage.ru_maxrss > 0
    # Only the handle's returncode checks.
    ended, handle = forkless.Popen(["true"]), forkless.prepare(["true"]).launch()
    for one in ended, handle:
        select.select([one], [], [])
    assert ended.returncode is None and handle.returncode == 0 and ended.wait() == 0
    old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        polled_code = polled().returncode
        waited_code = forkless.Popen(["sh", "-c", "exit 7"]).wait()
    finally:
        signal.signal(signal.SIGCHLD, old)
    assert polled_code == waited_code


def test_interpreters_without_the_newer_calls_of_os(monkeypatch):
    """As one is that was built with the headers of an old system."""
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    monkeypatch.delattr(os, "memfd_create", raising=False)
    assert forkless.run(["true"], timeout=50).returncode == 0
    assert forkless.run(["echo", "x"], stdout=PIPE, memory_file=True).stdout == b"x\n"
    with forkless.Popen(["true"]) as child:
        assert child.fileno() > 2


def test_an_ended_popen_holds_no_descriptor():
    before = len(os.listdir("/proc/self/fd"))
    children = [forkless.Popen(["true"]) for _ in range(5)]
    assert [child.wait(timeout=50) for child in children] == [0] * 5
    assert len(os.listdir("/proc/self/fd")) == before


def test_terminate_group_without_a_limit_of_time():
    child = forkless.Popen(["sleep", "50"], kill_group=True)
    assert child.terminate_group(math.inf) == -signal.SIGTERM


@pytest.mark.parametrize("words", [{"encoding": "no-such"}, {"encoding": "hex"}, {"encoding": 5}, {"errors": 5, "text": True}])
@pytest.mark.parametrize("more", [{}, {"memory_file": True}, {"input": ""}])
def test_a_program_does_not_run_with_a_wrong_encoding(words, more, tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises((LookupError, TypeError)):
        forkless.run(["touch", mark], stdout=PIPE, **words, **more)
    assert not mark.exists()
    # Without a pipe nothing is decoded.
    assert forkless.run(["true"], **words).returncode == 0


def test_different_words_for_text_are_refused():
    for words in ({"text": 0, "universal_newlines": True}, {"text": True, "universal_newlines": 0}):
        with pytest.raises(forkless.SubprocessError):
            forkless.run(["true"], stdout=PIPE, **words)


def test_input_of_a_prepared_command_needs_a_pipe():
    with pytest.raises(ValueError, match="stdin=PIPE"):
        forkless.prepare(["cat"], stdin=forkless.DEVNULL, stdout=PIPE).run(input=b"x")
    assert forkless.prepare(["cat"], stdin=PIPE, stdout=PIPE).run(input=b"x").stdout == b"x"


def test_has_executed_does_not_block_signals_and_other_threads(tmp_path):
    class Seen(Exception):
        pass

    def raises(*_):
        raise Seen

    program = tmp_path / "busy"
    writer = os.open(program, os.O_CREAT | os.O_WRONLY, 0o755)
    child = forkless.prepare([program], retry_busy=40.0).launch()
    old = signal.signal(signal.SIGUSR1, raises)
    main = threading.main_thread().ident

    def interrupts():
        time.sleep(0.1)
        child.send_signal(0)  # waits for the lock with the GIL held
        signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=interrupts)
    start = time.monotonic()
    try:
        thread.start()
        with pytest.raises(Seen):
            child.has_executed(30)
        assert time.monotonic() - start < 20
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, old)
        child.kill()
        os.close(writer)
        child.wait()


def test_a_child_reaped_by_other_code_returns_0():
    child = forkless.Popen(["true"])
    os.waitpid(child.pid, 0)
    assert child.wait() == 0  # as in the standard class


def test_no_descriptor_leaks():
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        with pytest.raises(OSError) as caught:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        assert caught.value.errno == errno.EMFILE
        assert forkless.run(["true"]).returncode == 0
        for call in (lambda: forkless.run(["true"], capture_output=True), lambda: forkless.Popen(["true"], stdout=PIPE)):
            with pytest.raises(OSError) as caught:
                call()
            assert caught.value.errno == errno.EMFILE
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_dropped_popen_warns_and_is_reaped():
    child = forkless.Popen(["sleep", "0.1"])
    pid = child.pid
    with pytest.warns(ResourceWarning, match=f"{pid} is still running"):
        del child
        gc.collect()
    deadline = time.monotonic() + 20
    # The next Popen reaps it, as with the standard class.
    while time.monotonic() < deadline:
        forkless.Popen(["true"]).wait()
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:
            return
        time.sleep(0.01)
    raise AssertionError("it is still there")


def test_launches_do_not_reap_other_children():
    """A launch reaps children of dropped handles only. A Popen is not a handle, although it is a child of this process."""
    children = [forkless.Popen(["sh", "-c", f"exit {n}"]) for n in range(5)]
    time.sleep(0.1)
    for _ in range(20):
        forkless.run(["true"])
    assert forkless.reap_orphans() == 0
    assert [child.wait() for child in children] == [0, 1, 2, 3, 4]


def test_dropped_handles_are_reaped():
    prepared = forkless.prepare(["true"])
    for _ in range(20):
        prepared.launch()
    deadline = time.monotonic() + 20
    while forkless.reap_orphans():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_several_threads_wait_for_one_handle():
    reads, writes = os.pipe()
    child = forkless.prepare(["cat"], stdin=reads).spawn()
    codes = []
    threads = [threading.Thread(target=lambda: codes.append(child.wait())) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert child.poll() is None
    os.close(writes)
    for thread in threads:
        thread.join()
    os.close(reads)
    assert codes == [0] * 8


def test_memory_does_not_grow():
    """Ten thousand failed and successful launches make any leak visible."""
    import resource

    def many():
        for _ in range(1500):
            try:
                forkless.run(["/no/such/program"], env={"A": "b" * 10_000}, cwd="/")
            except FileNotFoundError:
                pass
            forkless.prepare(["true"], env={"A": "b" * 10_000}, nice=0)

    many()
    before = resident()
    many()
    assert resident() - before < 8 << 20, resource.getpagesize()


def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_preexec_fn_forks_with_a_warning(tmp_path):
    mark = tmp_path / "mark"
    with pytest.warns(forkless.PreexecWarning):
        child = forkless.Popen(["true"], preexec_fn=lambda: mark.write_text("x"))
    assert child.wait() == 0 and mark.exists()


def test_two_thousand_pass_fds_use_the_standard_function(tmp_path):
    """More than one command supports, so the standard function is used."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1500:
        pytest.skip(f"only {hard} files may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1500), hard))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1200)]
    try:
        listed = forkless.run(["ls", "/proc/self/fd"], pass_fds=held, stdout=PIPE).stdout.split()
        assert len(listed) >= 1200
        # With the program's path, the standard function calls fork_exec with a single candidate.
        assert forkless.install()
        assert subprocess.call(["/bin/true"], pass_fds=held) == 0
    finally:
        forkless.uninstall()
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_import_does_not_change_the_interpreter():
    assert python("import subprocess, forkless; print(subprocess.Popen._execute_child.__module__)") == "subprocess\n"
    assert sys.modules["forkless"] is forkless


@pytest.mark.parametrize("start", [forkless.Popen, lambda *words, **more: forkless.prepare(*words, **more).spawn()])
def test_a_wait_for_a_child_that_its_tracer_has_ends_in_time(start):
    reads, writes = os.pipe()
    child = start(["cat"], stdin=reads)
    os.close(reads)
    with traced(child.pid):
        os.close(writes)
        with pytest.raises(forkless.TimeoutExpired):
            child.wait(0.3)
    assert child.wait(60) == 0


def test_a_loop_sleeps_while_a_tracer_has_its_child():
    async def main():
        child = await forkless.asyncio.create_subprocess_exec("cat", stdin=PIPE)
        with traced(child.pid):
            child.stdin.close()
            busy = time.thread_time()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(child.wait(), 1)
            assert time.thread_time() - busy < 0.5
        assert await child.wait() == 0

    asyncio.run(main())
