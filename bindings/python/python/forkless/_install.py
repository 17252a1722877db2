"""Makes the standard module launch through forkless."""

import _posixsubprocess
import os
import subprocess
import sys
import warnings

from . import _forkless, _launch

_standard_fork_exec = _posixsubprocess.fork_exec
_undo = []


def install():
    """Makes the standard `subprocess` module launch through forkless, and so asyncio, and multiprocessing's spawn and forkserver. Their
    behaviour stays the same. Launches that forkless does not support (preexec_fn) still use the original functions.

    Returns whether anything was replaced: where the parameters of Python's `fork_exec` are unknown, the originals stay, with a warning.
    Calling it again has no effect.
    """
    if _undo:
        return True
    if _PARAMETERS is None:
        message = "forkless does not know the parameters of this Python's fork_exec: subprocess and multiprocessing stay as they are"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return False
    inner = subprocess.Popen._execute_child
    if _launch.is_known(inner):

        def _execute_child(*words):
            _launch.execute_child(*words)

        _set(subprocess.Popen, "_execute_child", _execute_child)
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


# The parameters of every fork_exec, in the order of Python 3.9 and 3.10; then those that later versions have among them.
_NEEDED = (
    "args executable_list close_fds pass_fds cwd env p2cread p2cwrite c2pread c2pwrite errread errwrite errpipe_read errpipe_write"
    " restore_signals call_setsid gid extra_groups uid child_umask preexec_fn"
).split()
_OTHERS = ["pgid_to_set", "allow_vfork"]


def _parameters(function, version):
    """The names of the function's parameters: from its own signature, which it has since Python 3.12. None if they are unknown."""
    signature = getattr(function, "__text_signature__", None)
    if signature is not None:
        names = [name.strip() for name in signature.strip("()").split(",")]
        names = [name for name in names if name not in ("$module", "/")]
    elif version == (3, 11):
        names = [*_NEEDED[:16], "pgid_to_set", *_NEEDED[16:], "allow_vfork"]
    elif version in ((3, 9), (3, 10)):
        names = _NEEDED
    else:
        return None
    known = set(_NEEDED) <= set(names) <= {*_NEEDED, *_OTHERS}
    return names if known and len(set(names)) == len(names) else None


_PARAMETERS = _parameters(_standard_fork_exec, sys.version_info[:2])


# Handles of children that were stopped by a signal before they executed their programs. A dropped handle would be reaped by a later
# launch, and the caller's waitpid would fail.
_stopped = {}


def fork_exec(*words):
    """Replaces `_posixsubprocess.fork_exec`, which multiprocessing calls directly."""
    if len(words) != len(_PARAMETERS) or not isinstance(words[0], (list, tuple)):
        return _standard_fork_exec(*words)
    given = dict(zip(_PARAMETERS, words))
    args, executables, close_fds, pass_fds, cwd, env = (given[name] for name in _NEEDED[:6])
    p2cread, c2pwrite, errwrite, errpipe = (given[name] for name in ("p2cread", "c2pwrite", "errwrite", "errpipe_write"))
    restore_signals, start_new_session, gid, gids, uid, umask, preexec_fn = (given[name] for name in _NEEDED[14:])
    process_group = given.get("pgid_to_set", -1)
    # The child does not inherit the error pipe: errors are raised here.
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
