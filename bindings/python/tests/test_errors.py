"""Tests of the messages and attributes of errors and warnings."""

import asyncio
import errno
import gc
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

import forkless
import forkless.asyncio
from conftest import python

PIPE = forkless.PIPE
AS_ROOT = os.geteuid() == 0


def launched_by_asyncio(args, **words):
    async def main():
        return await (await forkless.asyncio.create_subprocess_exec(*args, **words)).wait()

    return asyncio.run(main())


# Every function that launches, until the program has been executed.
WAYS = {
    "run": forkless.run,
    "captured": lambda args, **words: forkless.run(args, **words, capture_output=True),
    "Popen": lambda args, **words: forkless.Popen(args, **words).wait(),
    "check_output": forkless.check_output,
    "prepared run": lambda args, **words: forkless.prepare(args, **words).run(),
    "spawn": lambda args, **words: forkless.prepare(args, **words).spawn().wait(),
    "launch": lambda args, **words: forkless.prepare(args, **words).launch().wait(),
    "asyncio": launched_by_asyncio,
}
BOTH = {**WAYS, "subprocess": subprocess.run}


def error_of(call, *args, **words):
    with pytest.raises(Exception) as caught:
        call(*args, **words)
    return caught.value


FAILURES = [
    (["no-such-program"], {}, "exec"),
    (["/no/such/program"], {}, "exec"),
    ([""], {}, "exec"),
    (["true"], {"cwd": "/no/such/directory"}, "chdir"),
    (["true"], {"stdout": -5}, "pass fd"),
    (["true"], {"stdout": 999_999}, "pass fd"),
    (["true"], {"stdin": -2}, "pass fd"),
    (["true"], {"nice": "x"}, "check"),
    (["true"], {"nice": 2**70}, "check"),
    (["true"], {"no_such_setting": 5}, "check"),
    (["true"], {"cgroup": "/no/such/group"}, "check"),
    (["true"], {"landlock": 999_999}, "check"),
    (["true"], {"hostname": "x"}, "check"),
    (["true"], {"env": 5}, "check"),
    (["true"], {"env": {"A=": "b"}}, "check"),
    (["true"], {"cwd": 5.5}, "check"),
    (["true"], {"pass_fds": [-1]}, "check"),
    (["true", None], {}, "check"),
    (["true\0"], {}, "check"),
    (["true"], {"executable": 5.5}, "check"),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("args", "words", "step"), FAILURES, ids=lambda one: repr(one)[:40])
def test_each_error_has_step_program_and_detail(way, args, words, step):
    if "stdout" in words and way in ("captured", "check_output"):
        return  # these have an `object` of their own
    error = error_of(WAYS[way], args, **words)
    assert (error.step, error.program) == (step, words.get("executable", args[0])), repr(error)
    assert isinstance(error.object, (str, type(None)))
    assert error.detail.startswith("failed to start ") and len(error.detail) > len("failed to start ") + len(args[0])


def test_errors_of_the_standard_class_have_step_program_and_detail():
    for words in (
        {"bufsize": "large"},
        {"user": "no such user"},
        {"user": -7},
        {"pipesize": "x"},
        {"text": True, "universal_newlines": False},
        {"cwd": "/no/such/directory", "user": os.getuid()},
        {"stdin": object()},
        {"stdout": 2**40},
        {"preexec_fn": print, "nice": 1},
    ):
        with pytest.warns() if "preexec_fn" in words else pytest.MonkeyPatch.context():
            error = error_of(forkless.Popen, ["true"], **words)
        assert error.step == ("chdir" if "cwd" in words else "check") and error.program == "true", words
        assert error.detail.startswith('failed to start "true": '), error.detail
    for words in ({"input": b"", "stdin": PIPE}, {"capture_output": True, "stdout": PIPE}):
        error = error_of(forkless.run, ["true"], **words)
        assert (error.step, error.program) == ("check", "true") and str(error) == str(error_of(subprocess.run, ["true"], **words))
    with pytest.raises(ValueError) as caught:
        launched_by_asyncio(["true"], text=True)
    assert (caught.value.step, caught.value.program) == ("check", "true")


def test_errors_after_install_have_step_program_and_detail(installed):
    for words, step in (({"cwd": "/no/such/directory"}, "chdir"), ({"stdout": -5}, "pass fd"), ({"env": {"A=": "b"}}, "check")):
        error = error_of(subprocess.Popen, ["true"], **words)
        assert (error.step, error.program) == (step, "true") and error.detail


def test_failing_pipe_creation_names_the_step():
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(2)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 1, limits[1]))
    try:
        for call in (forkless.run, forkless.check_output, lambda args, **words: forkless.run(args, memory_file=True, **words)):
            words = {} if call is forkless.check_output else {"stdout": PIPE}
            error = error_of(call, ["true"], timeout=9, **words)
            assert error.errno == errno.EMFILE and error.program == "true" and error.detail and error.step != "check"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in held:
            os.close(fd)


def test_errors_of_a_child_handle_have_a_step():
    child = forkless.prepare(["sleep", "60"]).spawn()
    try:
        error = error_of(child.signal_group, signal.SIGTERM)
        assert error.program == "sleep" and error.step and error.detail and "start_new_session=True" in str(error)
        for signal_number in (999, -1):
            error = error_of(child.send_signal, signal_number)
            assert (error.errno, error.program, error.step) == (errno.EINVAL, "sleep", "send the signal")
        assert type(error_of(child.send_signal, 2**40)) is OverflowError
        for timeout in (0, -1, -math.inf, 0.01):
            assert type(error_of(child.wait, timeout)) is forkless.TimeoutExpired
    finally:
        child.kill()
        # Infinite timeouts.
        assert child.wait(math.nan) == child.wait(math.inf) == -signal.SIGKILL
    assert not RUST.search(str(error_of(forkless.prepare(["true"]).launch().has_executed, math.nan)))


def test_fileno_after_wait_raises_process_lookup_error():
    child = forkless.Popen(["true"])
    child.wait()
    error = error_of(child.fileno)
    assert (type(error), error.program, error.step) == (ProcessLookupError, "true", "wait") and error.detail


def test_an_exception_of_a_signal_handler_is_not_changed():
    class Own(Exception):
        pass

    def raises(*_):
        raise Own

    old = signal.signal(signal.SIGUSR1, raises)
    try:
        error = error_of(forkless.run, ["sh", "-c", "sleep 0.2; kill -USR1 $PPID; exec sleep 50"])
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert type(error) is Own and not hasattr(error, "step")


# Messages of conversions in PyO3 and Rust, and names of Rust functions.
RUST = re.compile(
    r"integral|Duration|unsigned|\bint too big|tuple index|Py[A-Z]\w+|\b[iu](8|16|32|64|size)\b|::|\(true\)|\(0\)|Some\(|None\)|\\u\{"
    r"|os error|RawFd|enum\b|panick|borrow|C long"
)
ODD = [
    object(), 5, -5, 2**40, 2**70, 1.5, math.nan, math.inf, "x", "a\0b", "ü\u0301\u200b", "\ud800", b"x", b"\xff", [], [5], ["x"], [2**31], [1.5],
    [-1], ["\u200b"], (), (1,), (1, 2), (1, 2, 3), ("x", 5), ("other", -1), ("other", 2**70), (5, 5), {}, {5: -9}, {"x": 1}, {5: "x"},
    {2**40: 1}, {"nofile": (1, "x")}, {"nofile": 2**70}, {"nofile": -2}, {"user": "/no"}, [("tmpfs",)], [("tmpfs", "/", 5)], [()], [5],
    [("dir", "/x", -1)], [("attributes", "/x", 1, 2**99)], [("overlay", 5, None, "/")], [("teleport\u200b", "/")], [(0, 0)], [(0, 0, -1)],
    ["exec"], ["CAP_\u200b"], True,
]  # fmt: skip
BESIDE = ["pass_fds", "process_group", "umask", "cwd", "env", "executable", "start_new_session", "user", "group", "stdout", "no_such\u200b"]


@pytest.mark.parametrize("name", [*forkless.Settings.__annotations__, *BESIDE])
def test_errors_name_keywords_and_not_rust_functions(name):
    is_setting, seen = name in forkless.Settings.__annotations__, 0
    # The settings are common to all functions, and a prepared command checks most values before a launch.
    launch = (lambda **words: forkless.prepare(["/bin/true"], **words).run()) if is_setting else WAYS["Popen"]
    for value in ODD:
        if name == "warm" and value is True:
            continue  # no odd value: a template would be started
        try:
            launch(**{name: value}) if is_setting else launch(["/bin/true"], **{name: value})
        except Exception as error:
            seen += 1
            # The value itself may contain anything.
            said, detail = (text.replace(repr(value), "").replace(str(value), "") for text in (str(error), error.detail))
            assert not RUST.search(said) and not RUST.search(detail), (value, error)
            if is_setting and type(error) in (TypeError, OverflowError):
                assert str(error).startswith(name), error
    assert seen > 5 or name in ("no_new_privs", "kill_tree", "scripts_by_shell", "start_new_session"), "what is true or false may be anything"


def test_remedies_in_errors_are_python_keywords():
    for words, remedy in [
        ({"controlling_terminal": 0}, "start_new_session=True"),
        ({"hostname": "x"}, "unshare=['uts']"),
        ({"pivot_root": "/"}, "unshare=['mount']"),
        ({"uid_map": [(0, 0, 1)]}, "unshare=['user']"),
        ({"launcher": "posix_spawn", "chroot": "/"}, "launcher='fork'"),
    ]:
        error = error_of(forkless.prepare, ["true"], **words)
        assert remedy in error.detail and not RUST.search(error.detail), error.detail


def executable(path, content):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)


@pytest.mark.parametrize("way", BOTH)
def test_path_search_continues_after_any_failure(way, tmp_path):
    launch = BOTH[way]
    # No #!, so ENOEXEC; a link to itself, so ELOOP; a binary of no known kind.
    executable(tmp_path / "text/program", b"exit 7\n")
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop/program").symlink_to("program")
    executable(tmp_path / "odd/program", b"\x7fELF" + bytes(100))
    (tmp_path / "denied").mkdir()
    (tmp_path / "denied/program").write_bytes(b"")
    executable(tmp_path / "good/program", b"#!/bin/sh\nexit 0\n")

    def path(*names):
        return {"PATH": ":".join(str(tmp_path / name) for name in names) + ":/usr/bin:/bin"}

    for names in (("text", "good"), ("loop", "good"), ("odd", "loop", "text", "denied", "good")):
        done = launch(["program"], env=path(*names))
        assert getattr(done, "returncode", done) in (0, b""), names
    # If none can be executed, the first failure other than "no such file" is reported.
    for names, number in [
        (("none", "text"), errno.ENOEXEC),
        (("loop", "text"), errno.ELOOP),
        (("text", "denied"), errno.ENOEXEC),
        (("denied", "text"), errno.EACCES),
        (("none",), errno.ENOENT),
    ]:
        error = error_of(launch, ["program"], env=path(*names))
        assert (error.errno, error.filename) == (number, "program"), names
    # A name with a slash is not searched for.
    assert error_of(launch, [str(tmp_path / "text/program")]).errno == errno.ENOEXEC


@pytest.mark.parametrize("launcher", ["clone", "fork", "posix_spawn"])
def test_path_search_is_the_same_with_every_launcher(launcher, tmp_path):
    executable(tmp_path / "text/program", b"exit 7\n")
    executable(tmp_path / "good/program", b"#!/bin/sh\nexit 0\n")
    path = f"{tmp_path}/text:{tmp_path}/good"
    # posix_spawn closes no descriptors before glibc 2.34.
    words = {"launcher": launcher, "close_fds": launcher != "posix_spawn"}
    assert forkless.run(["program"], env={"PATH": path}, **words).returncode == 0
    assert error_of(forkless.run, ["program"], env={"PATH": f"{tmp_path}/text"}, **words).errno == errno.ENOEXEC


def test_errors_of_fork_exec_name_the_program_as_str():
    import _posixsubprocess

    assert forkless.install()
    try:
        words = [["x"], [b"/no/such/\xffprogram"], True, (), None, None, -1, -1, -1, -1, -1, -1, -1, -1, True, False]
        words += [-1] if sys.version_info >= (3, 11) else []
        words += [None, None, None, -1, None]
        # Whether vfork may be used.
        words += [False] if (3, 11) <= sys.version_info < (3, 14) else []
        error = error_of(_posixsubprocess.fork_exec, *words)
    finally:
        forkless.uninstall()
    assert error.filename == error.program == os.fsdecode(b"/no/such/\xffprogram") and error.step == "exec"


ABANDONED = {
    **WAYS,
    "text": lambda args: forkless.run(args, text=True, capture_output=True),
    "shell": lambda args: forkless.run("true", shell=True),
}


@pytest.mark.parametrize("way", ABANDONED)
@pytest.mark.parametrize("module", [subprocess, forkless])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_each_launch_reaps_an_abandoned_popen(way, module):
    child = module.Popen(["cat"], stdin=PIPE)
    pid, pipe = child.pid, os.dup(child.stdin.fileno())
    child.stdin.close()
    del child
    gc.collect()
    os.close(pipe)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    ABANDONED[way](["true"])
    with pytest.raises(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)


WARNS = """
import sys, warnings
import {module} as module
seen = []
warnings.showwarning = lambda message, category, filename, line, *_: seen.append((category.__name__, filename.rpartition("/")[2], line))
warnings.simplefilter("always")
def helper():
    return module.run(["true"], text=True)
module.run(["true"], text=True)
module.run(["true"], universal_newlines=True, capture_output=True)
module.run(["true"], errors="strict", timeout=9)
module.Popen(["true"], text=True).wait()
module.Popen(
    ["true"],
    text=True,
).wait()
module.check_output(["true"], text=True)
module.check_call(["true"], text=True)
module.call(["true"], text=True)
module.getoutput("true")
module.getstatusoutput("true")
helper()
module.run(["true"], encoding="utf-8")
class Own(module.Popen):
    pass
Own(["true"], text=True).wait()
assert module.run(["printf", "\\\\303\\\\274"], text=True, stdout=-1).stdout == "\\u00fc"
for line in seen:
    print(line)
"""


def test_encoding_warnings_are_at_the_callers_line(tmp_path):
    said = {}
    for name in ("subprocess", "forkless"):
        program = tmp_path / "program.py"
        program.write_text(WARNS.format(module=name))
        words = [sys.executable, "-X", "warn_default_encoding", str(program)]
        done = subprocess.run(words, stdout=-1, stderr=-1, text=True, timeout=50, env={**os.environ, "LC_ALL": "C.UTF-8"})
        assert done.returncode == 0, done.stderr
        said[name] = done.stdout
    assert said["forkless"] == said["subprocess"]
    assert said["subprocess"].count("program.py") == (13 if sys.version_info >= (3, 11) else 0)


def test_an_encoding_warning_with_memory_file_is_at_the_callers_line(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import forkless\n\nforkless.run(['true'], text=True, capture_output=True, memory_file=True)\n")
    done = subprocess.run([sys.executable, "-X", "warn_default_encoding", program], stderr=-1, text=True, timeout=50)
    assert done.returncode == 0
    assert re.findall(r"(\w+.py):(\d+): EncodingWarning", done.stderr) == ([("program.py", "3")] if sys.version_info >= (3, 11) else [])


def test_the_preexec_warning_is_at_the_callers_line():
    for launch in (forkless.run, forkless.check_output, lambda *args, **words: forkless.Popen(*args, **words).wait()):
        with pytest.warns(forkless.PreexecWarning) as caught:
            launch(["true"], preexec_fn=int)
        assert [pathlib.Path(one.filename) for one in caught] == [pathlib.Path(__file__)]


# Python 3.9 issues the warning itself.
IMPORTED = {"resource", "fcntl"} if sys.version_info < (3, 10) else set()


def test_import_loads_no_module_beyond_those_of_subprocess():
    """Importing `inspect`, `typing` or `asyncio` takes longer than importing this package."""
    code = """
        import subprocess, sys
        subprocess.run(["true"], capture_output=True, text=True)
        before = set(sys.modules)
        import forkless
        print(*sorted(set(sys.modules) - before))
        forkless.run(["true"], capture_output=True, text=True)
        forkless.Popen(["true"]).wait(5)
        forkless.install()
        forkless.uninstall()
        print(*sorted(set(sys.modules) - before))
        assert forkless.Settings.__annotations__ and "Settings" in forkless.__all__
        assert not hasattr(forkless, "no_such_name")
    """
    for line in python(code).splitlines():
        beyond = {name for name in line.split() if name.partition(".")[0] != "forkless"}
        assert not beyond
        assert "forkless.asyncio" not in line.split() and "forkless._settings" not in line.split()


def test_import_in_a_free_threaded_interpreter_raises_import_error():
    code = """
        import sys
        sys.abiflags += "t"
        try:
            import forkless
        except ImportError as error:
            print(error.name, "free-threaded" in str(error), "forkless._forkless" in sys.modules)
    """
    assert python(code) == "forkless True False\n"
