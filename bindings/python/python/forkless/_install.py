"""The standard module, served by forkless."""

import _posixsubprocess
import os
import subprocess
import sys

from . import _forkless, _launch

_standard_fork_exec = _posixsubprocess.fork_exec
_undo = []


def install():
    """Lets the standard `subprocess` module launch through forkless, and what stands on it: asyncio, and multiprocessing's spawn and
    forkserver. Nothing changes for their callers but the speed; what forkless cannot serve (preexec_fn) goes the old way.

    It says whether anything is served: an interpreter whose inner calls are not known here keeps its own. Safe to call twice.
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
    """Takes `install` back."""
    while _undo:
        owner, name, old, new = _undo.pop()
        # What somebody else has put there since is theirs.
        if vars(owner).get(name) is new:
            setattr(owner, name, old)


def is_installed():
    """Is the standard module served by forkless?"""
    return bool(_undo)


def _set(owner, name, new):
    _undo.append((owner, name, vars(owner)[name], new))
    setattr(owner, name, new)


# How many words the interpreter's fork_exec takes, by version.
_FORK_EXEC = {(3, 9): 21, (3, 10): 21, (3, 11): 23, (3, 12): 23, (3, 13): 23}


# Children that a signal stopped before they executed their programs, and that would be reaped here if nobody had their handles.
_stopped = {}


def fork_exec(*words):
    """`_posixsubprocess.fork_exec`, for who calls it beside Popen: multiprocessing, above all."""
    if len(words) != _FORK_EXEC[sys.version_info[:2]] or not isinstance(words[0], (list, tuple)):
        return _standard_fork_exec(*words)
    args, executables, close_fds, pass_fds, cwd, env = words[:6]
    p2cread, _, _, c2pwrite, _, errwrite, _, errpipe = words[6:14]
    restore_signals, start_new_session = words[14:16]
    rest = list(words[16:])
    process_group = rest.pop(0) if len(words) == 23 else -1
    gid, gids, uid, umask, preexec_fn = rest[:5]
    # It is here for the result alone.
    passed = [fd for fd in pass_fds if fd != errpipe]
    plain = preexec_fn is None and len(executables) == 1 and os.path.dirname(executables[0]) and not (
        start_new_session and process_group >= 0
    )
    if not plain:
        return _standard_fork_exec(*words)
    if env is not None:
        # A list of b"NAME=value".
        env = dict(entry.partition(b"=")[::2] for entry in env)
    # In text, as Popen's callers have it in errors.
    program = os.fsdecode(executables[0])
    try:
        pid, kept, _ = _forkless.spawn(
            list(args), program, bool(close_fds), passed, cwd, env, (p2cread, c2pwrite, errwrite), bool(restore_signals),
            bool(start_new_session), process_group, gid, gids, uid, umask, None,
        )  # fmt: skip
    except Exception as error:
        _forkless.tell(error, program)
        raise
    if kept is not None and not kept.has_executed():
        _stopped[pid] = kept
    return pid
