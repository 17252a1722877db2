"""CPython's own tests of subprocess, run on forkless: `python standard.py install|popen [unittest's words]`.

install: the standard module launches through forkless. popen: its names are forkless' own. What is left out is below, with the reason; the
last line tells how many ran, and by which way they were launched.
"""

import os
import subprocess
import sys
import tempfile
import unittest

import forkless
from forkless import _forkless

# Tests to skip, with the reason why they do not apply to forkless.
_LOOKS_INSIDE = "it replaces what the standard module calls inside, and forkless does not"
_BOTH = {
    # They check an argument of fork_exec that selects vfork.
    "test__use_vfork": _LOOKS_INSIDE,
    # They inspect the error pipe, which forkless does not use. The last also takes the descriptors of a failing launch for its own.
    "test_exception_errpipe_normal": _LOOKS_INSIDE,
    "test_exception_errpipe_bad_data": _LOOKS_INSIDE,
}
LEFT_OUT = {
    "install": _BOTH,
    "popen": {
        **_BOTH,
        # They replace os.waitpid.
        "test_stopped": _LOOKS_INSIDE,
        # They replace subprocess.Popen, which the functions of forkless do not use.
        "test_call_keyboardinterrupt_no_kill": _LOOKS_INSIDE,
        "test_run_keyboardinterrupt_no_kill": _LOOKS_INSIDE,
    },
}

# Launches that the standard function must handle are not counted.
launches = 0


def counted(native):
    def count(*words):
        global launches
        launches += 1
        return native(*words)

    return count


def substitute():
    for name in ("Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"):
        setattr(subprocess, name, getattr(forkless, name))


def cases(suite):
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from cases(one)
        else:
            yield one


def main():
    how, *words = sys.argv[1:]
    for name in ("spawn", "run"):
        setattr(_forkless, name, counted(getattr(_forkless, name)))
    if how == "install":
        assert forkless.install()
    else:
        # Before the import, because the tests define subclasses of Popen.
        substitute()
    from test import test_subprocess

    left_out = LEFT_OUT[how]
    chosen, passed_over = unittest.TestSuite(), []
    for case in cases(unittest.defaultTestLoader.loadTestsFromModule(test_subprocess)):
        name = case.id().rpartition(".")[2]
        if name in left_out:
            passed_over.append(name)
        elif not words or any(word in name for word in words):
            chosen.addTest(case)
    with tempfile.TemporaryDirectory() as directory:
        # Some tests create files in the working directory.
        os.chdir(directory)
        result = unittest.TextTestRunner(verbosity=1, buffer=False).run(chosen)
        os.chdir("/")
    counts = f"{result.testsRun} ran, {len(result.skipped)} skipped, {len(passed_over)} left out; {launches} launches"
    print(f"test_subprocess by {how}: {counts}")
    sys.exit(not result.wasSuccessful() or launches == 0)


if __name__ == "__main__":
    main()
