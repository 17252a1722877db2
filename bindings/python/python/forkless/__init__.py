"""subprocess for Linux, without fork: the same names and meanings, at the speed of exec from any process, however big.

    import forkless as subprocess

changes one program; `forkless.install()` all that the process does by way of the standard module. What only forkless can do, namespaces,
limits, filters and more, are further keywords: see `forkless.Settings`.
"""

import sys

if "t" in sys.abiflags:
    # The limited API, in which the native part is written, has no such build; and that part is not safe without the lock.
    raise ImportError(
        "forkless needs a Python with the global interpreter lock: this one is free-threaded, and cannot load extensions of the limited API",
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

from ._forkless import Child, Prepared, reap_orphans
from ._install import install, is_installed, uninstall
from ._popen import Popen, PreexecWarning
from ._run import call, check_call, check_output, getoutput, getstatusoutput, prepare, run


__version__ = "0.1.0"


def __getattr__(name):
    # For annotations alone: `typing` takes longer to import than all that is needed to launch.
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
    "Child",
    "CompletedProcess",
    "Popen",
    "PreexecWarning",
    "Prepared",
    "Settings",
    "SubprocessError",
    "TimeoutExpired",
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
    "uninstall",
]
