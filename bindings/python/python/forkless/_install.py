"""Makes the standard module launch through forkless."""

import _posixsubprocess
import os
import subprocess
import sys

from . import _forkless, _launch

_standard_fork_exec = _posixsubprocess.fork_exec
_undo = []


def install():
    """Makes the standard `subprocess` module launch through forkless, and so asyncio, and multiprocessing's spawn and forkserver. Their
    behaviour stays the same. Launches that forkless does not support (preexec_fn) still use the original functions.

    Returns whether anything was replaced: in an unknown version of Python the originals stay. Calling it again has no effect.
    """
    if _undo:
        return True
    inner = subprocess.Popen._execute_child
    if _launch.is_known(inner):

        def _execute_child(*words):
            _launch.execute_child(*words)

        _set(subprocess.Popen, "_execute_child", _execute_child)
    if sys.version_info[:2] in _FORK_EXEC:
        _set(_posixsubprocess, "fork_exec", fork_exec)
        if hasattr(subprocess, "_fork_exec"):
            _set(subprocess, "_fork_exec", fork_exec)
    return bool(_undo)


def uninstall():
    """Reverts `install`."""
    while _undo:
        owner, name, old, new = _undo.pop()
        # Keep a replacement that other code has installed since.
        if vars(owner).get(name) is new:
            setattr(owner, name, old)


def is_installed():
    """Whether the standard module launches through forkless."""
    return bool(_undo)


def _set(owner, name, new):
    _undo.append((owner, name, vars(owner)[name], new))
    setattr(owner, name, new)


# The number of parameters of the interpreter's fork_exec, by version.
_FORK_EXEC = {(3, 9): 21, (3, 10): 21, (3, 11): 23, (3, 12): 23, (3, 13): 23}


# Handles of children that were stopped by a signal before they executed their programs. A dropped handle would be reaped by a later
# launch, and the caller's waitpid would fail.
_stopped = {}


def fork_exec(*words):
    """Replaces `_posixsubprocess.fork_exec`, which multiprocessing calls directly."""
    if len(words) != _FORK_EXEC[sys.version_info[:2]] or not isinstance(words[0], (list, tuple)):
        return _standard_fork_exec(*words)
    args, executables, close_fds, pass_fds, cwd, env = words[:6]
    p2cread, _, _, c2pwrite, _, errwrite, _, errpipe = words[6:14]
    restore_signals, start_new_session = words[14:16]
    rest = list(words[16:])
    process_group = rest.pop(0) if len(words) == 23 else -1
    gid, gids, uid, umask, preexec_fn = rest[:5]
    # The error pipe is not passed on: errors are raised here.
    passed = [fd for fd in pass_fds if fd != errpipe]
    plain = preexec_fn is None and len(executables) == 1 and os.path.dirname(executables[0]) and not (
        start_new_session and process_group >= 0
    ) and len(passed) <= _launch.MOST_FDS
    if not plain:
        return _standard_fork_exec(*words)
    if env is not None:
        # A list of b"NAME=value".
        env = dict(entry.partition(b"=")[::2] for entry in env)
    # As str, because errors of Popen have a str here.
    program = os.fsdecode(executables[0])
    try:
        pid, kept, _, _ = _forkless.spawn(
            list(args), program, bool(close_fds), passed, cwd, env, (p2cread, c2pwrite, errwrite), bool(restore_signals),
            bool(start_new_session), process_group, gid, gids, uid, umask, None,
        )  # fmt: skip
    except Exception as error:
        _forkless.tell(error, program)
        raise
    if kept is not None and not kept.has_executed():
        _stopped[pid] = kept
    return pid
