"""A replacement for subprocess that never forks: the time of a launch does not grow with the process's memory. Linux only.

    import forkless as subprocess

replaces the module in one program. `forkless.install()` makes the standard module launch through forkless in the whole process. Features that
only forkless has, such as namespaces, limits and seccomp filters, are further keywords: see `forkless.Settings`.
"""

import sys

if "t" in sys.abiflags:
    # The native module uses the limited API, which free-threaded builds do not support, and it relies on the GIL.
    raise ImportError(
        "forkless needs a Python with the global interpreter lock: this build is free-threaded and cannot load extensions of the limited API",
        name=__name__,
    )

from subprocess import (
    DEVNULL,
    PIPE,
    STDOUT,
    CalledProcessError,
    CompletedProcess,
    SubprocessError,
    TimeoutExpired,
    list2cmdline,
)

from ._forkless import Cgroup, Child, Prepared, Pty, Sandbox, Warm, reap_orphans
from ._install import install, is_installed, uninstall
from ._output import CapturedProcess
from ._pipeline import CompletedPipeline, Pipeline
from ._popen import Popen, PreexecWarning
from ._run import call, check_call, check_output, getoutput, getstatusoutput, prepare, run, run_pipeline


__version__ = "0.1.0"


def __getattr__(name):
    # Imported on demand, because it is only needed for annotations and `typing` takes longer to import than this package.
    if name != "Settings":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ._settings import Settings

    globals()[name] = Settings
    return Settings

__all__ = [
    "DEVNULL",
    "PIPE",
    "STDOUT",
    "CalledProcessError",
    "CapturedProcess",
    "Cgroup",
    "Child",
    "CompletedPipeline",
    "CompletedProcess",
    "Pipeline",
    "Popen",
    "PreexecWarning",
    "Prepared",
    "Pty",
    "Sandbox",
    "Settings",
    "SubprocessError",
    "TimeoutExpired",
    "Warm",
    "call",
    "check_call",
    "check_output",
    "getoutput",
    "getstatusoutput",
    "install",
    "is_installed",
    "list2cmdline",
    "prepare",
    "reap_orphans",
    "run",
    "run_pipeline",
    "uninstall",
]
