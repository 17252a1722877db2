"""Tests of install(): the standard module launches through forkless."""

import asyncio
import os
import subprocess
import sys
import types

import pytest

import forkless
from conftest import python
from forkless import _forkless


@pytest.fixture
def launches(monkeypatch):
    """Counts the launches by forkless."""
    counted = []
    native = _forkless.spawn
    monkeypatch.setattr(_forkless, "spawn", lambda *words: (counted.append(words), native(*words))[1])
    return counted


def test_uninstall_restores_the_standard_functions(launches):
    standard = subprocess.Popen._execute_child
    assert forkless.install() and forkless.install() and forkless.is_installed()
    assert subprocess.run(["true"]).returncode == 0 and len(launches) == 1
    forkless.uninstall()
    forkless.uninstall()
    assert subprocess.Popen._execute_child is standard and not forkless.is_installed()
    assert subprocess.run(["true"]).returncode == 0 and len(launches) == 1


def test_libraries_that_use_subprocess_launch_through_forkless(installed, launches):
    assert subprocess.check_output(["echo", "x"]) == b"x\n"
    with os.popen("echo y") as pipe:
        assert pipe.read() == "y\n"

    class Own(subprocess.Popen):
        pass

    with Own(["true"]) as child:
        pass
    assert child.returncode == 0 and len(launches) == 3


def test_preexec_fn_uses_the_standard_function(installed, launches, tmp_path, recwarn):
    mark = tmp_path / "mark"
    assert subprocess.run(["true"], preexec_fn=lambda: mark.write_text("x")).returncode == 0
    assert mark.exists() and not launches
    assert not [warning for warning in recwarn if issubclass(warning.category, forkless.PreexecWarning)]


def test_asyncio_launches_through_forkless(installed, launches):
    async def main():
        process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
        return await process.communicate(b"hello")

    assert asyncio.run(main()) == (b"hello", None) and len(launches) == 1


MULTIPROCESSING = """
import multiprocessing, sys
import forkless
from forkless import _forkless

def double(n):
    return 2 * n

if __name__ == "__main__":
    forkless.install()
    launches, native = [], _forkless.spawn
    _forkless.spawn = lambda *words: (launches.append(words), native(*words))[1]
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        assert pool.map(double, range(5)) == [0, 2, 4, 6, 8]
    print(len(launches))
"""


@pytest.mark.parametrize("how", ["spawn", "forkserver"])
def test_multiprocessing_launches_through_forkless(how, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(MULTIPROCESSING)
    done = subprocess.run([sys.executable, program, how], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    # The resource tracker; and each process, or the server that forks them.
    assert int(done.stdout) >= 2


def test_an_unknown_version_keeps_the_standard_functions():
    code = """
        import subprocess, sys, _posixsubprocess
        class Popen(subprocess.Popen):
            def _execute_child(self, words_of_another_kind):
                raise AssertionError
        subprocess.Popen._execute_child = Popen._execute_child
        import forkless
        forkless._install._PARAMETERS = None
        before = _posixsubprocess.fork_exec
        import warnings
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            forkless.install()
        print(len(seen), "fork_exec" in str(seen[0].message))
        warnings.simplefilter("ignore")
        print(forkless.install(), forkless.is_installed(), _posixsubprocess.fork_exec is before)
        # Settings are refused instead of being ignored.
        try:
            forkless.Popen(["true"], nice=5)
        except NotImplementedError:
            print("refused")
    """
    assert python(code) == "1 True\nFalse False True\nrefused\n"


def test_parameters_of_fork_exec_are_taken_from_its_own_signature():
    parameters, needed = forkless._install._parameters, forkless._install._NEEDED

    def of(names):
        return parameters(types.SimpleNamespace(__text_signature__=f"($module, {', '.join(names)}, /)"), (4, 0))

    # Python 3.12 and 3.13; 3.14; a version that has another order.
    for names in ([*needed[:16], "pgid_to_set", *needed[16:], "allow_vfork"], [*needed[:16], "pgid_to_set", *needed[16:]], needed[::-1]):
        assert of(names) == names
    assert of([*needed, "a_new_one"]) is None
    assert of(needed[1:]) is None
    without = types.SimpleNamespace()
    assert [parameters(without, version) is None for version in ((3, 9), (3, 10), (3, 11), (3, 12))] == [False, False, False, True]
    assert forkless._install._PARAMETERS is not None


def test_direct_calls_of_fork_exec_launch_through_forkless(installed, launches):
    import _posixsubprocess

    read, write = os.pipe()
    words = [["/bin/echo", "x"], [b"/bin/echo"], True, (write,), None, [b"A=b"], -1, -1, -1, write, -1, -1, read, write, True, False]
    words += [-1] if sys.version_info >= (3, 11) else []
    words += [None, None, None, -1, None]
    words += [False] if (3, 11) <= sys.version_info < (3, 14) else []
    pid = _posixsubprocess.fork_exec(*words)
    os.close(write)
    assert os.read(read, 100) == b"x\n" and os.waitpid(pid, 0)[1] == 0 and len(launches) == 1
    os.close(read)
    with pytest.raises(TypeError):
        _posixsubprocess.fork_exec(1, 2, 3)
