"""Replaces the internal call with which `subprocess.Popen` starts its child."""

import io
import os
import subprocess
import sys
import warnings

from . import _forkless

# The parameters of Popen._execute_child: in Python 3.9 and 3.10, and from 3.11 on.
_WORDS = [
    "self", "args", "executable", "preexec_fn", "close_fds", "pass_fds", "cwd", "env", "startupinfo", "creationflags", "shell",
    "p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite", "restore_signals", "gid", "gids", "uid", "umask",
    "start_new_session",
]  # fmt: skip
_KNOWN = (_WORDS, [*_WORDS, "process_group"])

# The maximum number of descriptors in one command.
MOST_FDS = 1000

original = subprocess.Popen._execute_child


def is_known(function=original):
    """Whether this is a known version of Popen._execute_child."""
    return _words_of(function) in _KNOWN


def _words_of(function):
    """The names of a Python function's parameters. (`inspect` takes longer to import than this whole package.)"""
    code = getattr(function, "__code__", None)
    return list(code.co_varnames[: code.co_argcount]) if code else None


def command_of(args, executable, shell):
    """The argument list and the program, from the arguments of Popen."""
    if isinstance(args, (str, bytes)):
        args = [args]
    elif isinstance(args, os.PathLike):
        if shell:
            raise TypeError("args cannot be path-like where shell is true")
        args = [args]
    else:
        args = list(args)
    if shell:
        args = ["/bin/sh", "-c", *args]
        if executable:
            args[0] = executable
    if executable is None:
        executable = args[0]
    return args, executable


def program_of(args, executable, shell):
    """The program to name in errors, or None if it is unknown."""
    if executable is not None or shell:
        return executable or "/bin/sh"
    if isinstance(args, (str, bytes, os.PathLike)):
        return args
    return args[0] if isinstance(args, (list, tuple)) and args else None


# Frames of these files are skipped when a warning is attributed to the caller.
_STANDARD = subprocess.Popen.__init__.__code__.co_filename
_OURS = os.path.dirname(__file__)


def warn(message, category):
    """Issues a warning at the line that called this package."""
    frame, level = sys._getframe(), 1
    while frame is not None and (frame.f_code.co_filename == _STANDARD or os.path.dirname(frame.f_code.co_filename) == _OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, level)


def warns_of_encoding():
    """Whether the interpreter warns of a missing encoding argument (Python 3.11 with -X warn_default_encoding)."""
    return getattr(sys.flags, "warn_default_encoding", 0) and hasattr(subprocess, "_text_encoding")


def encoding():
    """The default encoding of text."""
    if sys.flags.utf8_mode:
        return "utf-8"
    said = "locale" if getattr(sys.flags, "warn_default_encoding", 0) else None
    return io.TextIOWrapper(io.BytesIO(), said).encoding


def execute_child(
    popen, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
    p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, restore_signals, gid, gids, uid, umask,
    start_new_session, process_group=-1, *, settings=None,
):  # fmt: skip
    """Starts the child of a Popen. `settings`: keywords that the standard class does not have.

    Three cases are left to the standard function: preexec_fn, which needs fork; start_new_session together with process_group, where the
    kernel's error is wanted; and more descriptors than one command supports.
    """
    pass_fds = list(pass_fds)  # any iterable
    if preexec_fn is not None or (start_new_session and process_group >= 0) or len(pass_fds) > MOST_FDS:
        if settings:
            raise ValueError(f"{', '.join(settings)}: not supported with preexec_fn, nor with start_new_session and process_group together")
        words = (
            args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
            p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, restore_signals, gid, gids, uid, umask, start_new_session,
        )  # fmt: skip
        if _words_of(original) == _KNOWN[1]:
            return original(popen, *words, process_group)
        if process_group >= 0:
            raise ValueError("process_group: not supported with preexec_fn before Python 3.11")
        return original(popen, *words)
    args, executable = command_of(args, executable, shell)
    sys.audit("subprocess.Popen", executable, args, cwd, env)
    # If this raises, Popen.__init__ closes the child's ends.
    try:
        _, kept, _, ending = _forkless.spawn(
            args, executable, close_fds, [int(fd) for fd in pass_fds], cwd, env, (p2cread, c2pwrite, errwrite), restore_signals,
            start_new_session, process_group, gid, gids, uid, umask, settings, popen,
        )  # fmt: skip
    except Exception as error:
        _forkless.tell(error, executable)
        raise
    if kept is not None:
        popen._forkless_kept = kept
    if ending is not None:
        popen._forkless_ending = ending
    close_ends(popen, (p2cread, p2cwrite), (c2pwrite, c2pread), (errwrite, errread))


def close_ends(popen, *ends):
    """Closes the child's ends of pipes, and the null device. Popen.__init__ expects that of _execute_child."""
    null = getattr(popen, "_devnull", None)
    for theirs, ours in ends:
        if theirs != -1 and ours != -1 and theirs != null:
            os.close(theirs)
    if null is not None:
        os.close(null)
    # Otherwise Popen.__init__ would close them again after an exception.
    popen._closed_child_pipe_fds = True
