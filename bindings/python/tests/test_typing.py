"""Tests of stubs and signatures: type checkers accept them, and they agree with the code."""

import importlib.util
import inspect
import json
import pathlib
import re
import subprocess
import sys

import pytest

import forkless
import forkless.asyncio
from forkless._settings import AsyncSettings, Settings

HERE = pathlib.Path(__file__).parent
GOOD, WRONG = HERE / "typed_good.py", HERE / "typed_wrong.py"


def run(module, *words):
    """Runs a type checker and returns its output."""
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        pytest.skip(f"{module} is not installed: requirements.txt has it for this Python and machine, or has none for it")
    return subprocess.run([sys.executable, "-m", module, *words], stdout=-1, stderr=-2, text=True, timeout=300)


def mypy(path, directory):
    """The lines in which mypy finds errors, and its output."""
    done = run("mypy", "--strict", "--config-file=", "--cache-dir", str(directory / "cache"), str(path))
    assert done.returncode in (0, 1), done.stdout
    return {int(line) for line in re.findall(rf"{path.name}:(\d+): error", done.stdout)}, done.stdout


def pyright(path, directory):
    """The same for pyright, from the package basedpyright, which includes the program."""
    config = directory / "pyrightconfig.json"
    config.write_text(json.dumps({"typeCheckingMode": "strict", "include": [str(path)]}))
    done = run("basedpyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(config))
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == 1, done.stdout
    errors = [one for one in found["generalDiagnostics"] if one["severity"] == "error"]
    return {one["range"]["start"]["line"] + 1 for one in errors}, done.stdout


@pytest.fixture(params=[mypy, pyright])
def checker(request):
    import signal

    signal.alarm(600)  # type checkers are slow
    return request.param


def test_checkers_accept_good_uses(checker, tmp_path):
    lines, said = checker(GOOD, tmp_path)
    assert not lines, said


def test_checkers_find_an_error_in_each_wrong_use(checker, tmp_path):
    marked = {number for number, line in enumerate(WRONG.read_text().splitlines(), 1) if line.endswith("# wrong")}
    lines, said = checker(WRONG, tmp_path)
    assert lines == marked, said


# Private modules have no stubs, and are checked as if they were public.
PRIVATE = ("_launch", "_popen", "_run")


def test_stubs_agree_with_the_modules(tmp_path):
    import signal

    signal.alarm(600)
    config, allowed = tmp_path / "mypy.ini", tmp_path / "allowed"
    config.write_text(f"[mypy]\ncache_dir = {tmp_path / 'cache'}\n" + "".join(f"[mypy-forkless.{name}]\nignore_errors = True\n" for name in PRIVATE))
    allowed.write_text("".join(rf"forkless\.{name}(\..*)?" + "\n" for name in PRIVATE))
    words = ["--mypy-config-file", config, "--allowlist", allowed, "--ignore-unused-allowlist"]
    done = run("mypy.stubtest", "forkless", *map(str, words))
    assert done.returncode == 0, done.stdout


def parameters(function):
    return list(inspect.signature(function).parameters.values())


@pytest.mark.parametrize("name", ["run", "call", "check_call", "check_output", "Popen", "prepare"])
def test_signatures_list_the_parameters(name):
    """They do not show *popenargs, **kwargs."""
    found = {one.name: one for one in parameters(getattr(forkless, name))}
    assert {"args", "executable", "stdin", "stderr", "cwd", "env", "shell", "process_group", "settings"} <= set(found)
    assert [one.kind for one in found.values()].count(inspect.Parameter.VAR_POSITIONAL) == 0
    assert found["settings"].kind == inspect.Parameter.VAR_KEYWORD
    assert getattr(forkless, name).__doc__


def test_signatures_agree_with_popen():
    """They have the same parameters and defaults, and the additional parameters of each function."""
    popen = {one.name: one for one in parameters(forkless.Popen)}
    for name, without, beside in [
        ("run", set(), {"input", "capture_output", "timeout", "check", "memory_file", "max_output"}),
        ("call", set(), {"timeout"}),
        ("check_call", set(), {"timeout"}),
        ("check_output", {"stdout"}, {"input", "timeout", "memory_file", "max_output"}),
    ]:
        found = {one.name: one for one in parameters(getattr(forkless, name))}
        assert set(found) == set(popen) - without | beside, name
        assert all(found[word].default == popen[word].default for word in found if word in popen), name
    standard = {one.name for one in parameters(subprocess.Popen)}
    assert standard <= set(popen)


@pytest.mark.parametrize("word", ["bufsize", "stdin", "pass_fds", "user", "nice", "kill_group", "check", "timeout", "memory_file", "max_output"])
def test_every_parameter_of_a_signature_is_accepted(word):
    """Passing the default value of a parameter changes nothing."""
    default = {one.name: one.default for one in parameters(forkless.run)}.get(word)
    assert forkless.run(["true"], **{word: default}).returncode == 0


def test_signatures_of_the_asyncio_functions_agree_with_the_stubs():
    for function in (forkless.asyncio.create_subprocess_exec, forkless.asyncio.create_subprocess_shell):
        found = {one.name for one in parameters(function)}
        assert inspect.iscoroutinefunction(function) and function.__doc__
        # The stub also lists keywords that accept a single value; the signature does not.
        refused = {"universal_newlines", "shell", "bufsize", "encoding", "errors", "text", "startupinfo", "creationflags"}
        beside = set(AsyncSettings.__annotations__) - set(Settings.__annotations__)
        assert beside - refused == found - {"program", "cmd", "args", "stdin", "stdout", "stderr", "limit", "settings"}


def test_native_functions_have_signatures():
    for kind in (forkless.Child, forkless.Prepared):
        for name, member in vars(kind).items():
            if not name.startswith("_") and callable(member):
                assert parameters(member)[0].name == "self" and member.__doc__, name


def test_every_function_takes_settings():
    assert forkless.run(["nice"], nice=17, stdout=-1).stdout == forkless.check_output(["nice"], nice=17) == b"17\n"
    line = 'test "$(nice)" = 17'
    assert forkless.call(line, shell=True, nice=17) == forkless.check_call(line, shell=True, nice=17) == 0
    assert forkless.Popen(line, shell=True, nice=17).wait() == forkless.prepare(line, shell=True, nice=17).run().returncode == 0


def test_every_setting_of_the_stub_is_accepted():
    """The error of a wrong value names the value, not the keyword."""
    for name in Settings.__annotations__:
        with pytest.raises((TypeError, ValueError, OSError, OverflowError)) as caught:
            forkless.prepare(["true"], **{name: object()}) and forkless.prepare(["true"], cgroup="/no/such/group")
        assert "unexpected keyword" not in str(caught.value), name


def test_the_package_has_a_py_typed_marker():
    assert (pathlib.Path(forkless.__file__).parent / "py.typed").exists()
