"""`forkless.Popen`: the standard class with its own implementation of starting and waiting, and with further keywords."""

import os
import select
import signal
import subprocess
import threading
import time

from . import _forkless, _launch

_HAS_PIPESIZE = hasattr(subprocess, "fcntl")
_F_SETPIPE_SZ = 1031

# The settings with which each launch makes a cgroup.
LIMITS = frozenset(("memory_max", "tasks_max", "cpu_max", "io_max", "cgroup_parent"))


def makes_cgroup(settings):
    """Whether a launch with these settings makes a cgroup."""
    return not LIMITS.isdisjoint(settings) or getattr(settings.get("sandbox"), "_makes_cgroup", False)


# In seconds.
_DAY = 86400

# The longest timeout that poll accepts, in milliseconds, less one.
_LONGEST = 2**31 - 2


class PreexecWarning(RuntimeWarning):
    """preexec_fn makes the launch fork. The cost of that grows with the caller's memory."""


class Popen(subprocess.Popen):
    """A child process: a `subprocess.Popen` that is started without fork (except with preexec_fn).

    In addition to the standard keywords it takes those of `forkless.Settings`, process_group and pipesize on every version of Python, and:

    kill_group: the child leads a process group (process_group=0, unless process_group, start_new_session or pty is given), and `kill()`
    kills the whole group, also when `run` times out.
    """

    _forkless_kept = None
    _forkless_ending = None
    _pidfd = None
    _usage = None

    def __init__(
        self, args, bufsize=-1, executable=None, stdin=None, stdout=None, stderr=None, preexec_fn=None, close_fds=True, shell=False,
        cwd=None, env=None, universal_newlines=None, startupinfo=None, creationflags=0, restore_signals=True, start_new_session=False,
        pass_fds=(), *, user=None, group=None, extra_groups=None, encoding=None, errors=None, text=None, umask=-1, pipesize=-1,
        process_group=None, kill_group=False, **settings,
    ):  # fmt: skip
        self._settings = {name: value for name, value in settings.items() if value is not None}
        if preexec_fn is not None:
            _launch.warn("preexec_fn forks: forkless.Settings has alternatives that do not", PreexecWarning)
        if encoding is None and (text or universal_newlines or errors) and _launch.warns_of_encoding():
            _launch.warn("'encoding' argument not specified.", EncodingWarning)
            encoding = _launch.encoding()
        if kill_group and process_group is None and not start_new_session and "pty" not in self._settings:
            process_group = 0
        self._kills_group = kill_group
        has_cgroup = makes_cgroup(self._settings)
        self._kills_tree = has_cgroup or bool(self._settings.get("kill_tree"))
        self._group = -1 if process_group is None else process_group
        more = {"pipesize": pipesize} if _HAS_PIPESIZE else {}
        self._pipesize = pipesize
        try:
            if not isinstance(pipesize, (int, type(None))) and not _HAS_PIPESIZE:
                raise TypeError("pipesize must be an integer")
            super().__init__(
                args, bufsize, executable, stdin, stdout, stderr, preexec_fn, close_fds, shell, cwd, env, universal_newlines,
                startupinfo, creationflags, restore_signals, start_new_session, pass_fds, user=user, group=group,
                extra_groups=extra_groups, encoding=encoding, errors=errors, text=text, umask=umask, **more,
            )  # fmt: skip
        except Exception as error:
            _forkless.tell(error, _launch.program_of(args, executable, shell))
            raise

        if has_cgroup and self._forkless_kept is not None:
            # What the child leaves may hold a pipe until the child's end has been seen.
            try:
                threading.Thread(target=self._reap, daemon=True).start()
            except RuntimeError:
                pass  # no thread can be made: then a wait sees the end

    def _reap(self):
        try:
            while not self._ended(time.monotonic() + _DAY):
                pass
            self.poll()
        except OSError:
            pass  # without a pidfd only a wait sees the end

    def _get_handles(self, stdin, stdout, stderr):
        try:
            handles = super()._get_handles(stdin, stdout, stderr)
        except OSError as error:
            _forkless.tell(error, None, "open a stream")
            raise
        if not _HAS_PIPESIZE and self._pipesize and self._pipesize > 0:
            import fcntl

            for ours, theirs in (handles[1::-1], handles[2:4], handles[4:]):
                if -1 not in (ours, theirs):
                    fcntl.fcntl(ours, _F_SETPIPE_SZ, self._pipesize)
        return handles

    if _launch.is_known():

        def _execute_child(self, *words):
            # The standard process_group is ignored: it was passed around the standard __init__, which does not accept it in every
            # version.
            _launch.execute_child(self, *words[:22], self._group, settings=self._settings)

    else:

        def _execute_child(self, *words):
            # Unknown version of Python: the standard function starts the child, so forkless's own keywords cannot take effect.
            if self._settings or self._group >= 0:
                raise NotImplementedError("settings and process_group are not supported with this version of Python")
            super()._execute_child(*words)

    def fileno(self):
        """A pidfd, which is readable when the child has ended, for select, poll and event loops. It is closed with this object.

        Raises ProcessLookupError if the child has already been waited for.
        """
        if self._pidfd is None:
            if self.returncode is not None:
                raise self._told(ProcessLookupError("the child has been waited for"))
            try:
                self._pidfd = _Descriptor(_forkless.pidfd_open(self.pid))
            except OSError as error:
                raise self._told(error)
        return self._pidfd.number

    def _told(self, error):
        _forkless.tell(error, _launch.program_of(self.args, None, False), "wait")
        return error

    def kill(self):
        """Sends SIGKILL to the child; with kill_group, to its whole process group; with kill_tree, or a limit such as memory_max, to all that it has started."""
        if self._kills_group:
            self.signal_group(signal.SIGKILL)
        else:
            super().kill()

    def send_signal(self, sig):
        if sig == signal.SIGKILL and self._kills_tree and self._forkless_kept is not None:
            # By the handle, which lets the init of the tree kill it. The standard method would kill init alone.
            if self.poll() is None:
                self._forkless_kept.kill()
        else:
            super().send_signal(sig)

    def signal_group(self, number):
        """Sends a signal to the process group that the child leads. Does nothing if the group is empty, or if the child has been waited
        for: its number may then belong to another group.
        """
        if number == signal.SIGKILL and self._kills_tree:
            return self.send_signal(number)
        # While the child is not reaped, its PID is not reused. If another thread has the lock, it is waiting for the child, and this
        # thread must not block on it.
        locked = self._waitpid_lock.acquire(False)
        try:
            if self.returncode is None:
                os.killpg(self.pid, number)
        except ProcessLookupError:
            pass
        finally:
            if locked:
                self._waitpid_lock.release()

    def terminate_group(self, grace, number=signal.SIGTERM):
        """Sends the signal to the process group that the child leads, waits up to `grace` seconds for the child's end, and then kills the
        remaining processes of the group. Returns the return code.
        """
        self.signal_group(number)
        self.signal_group(signal.SIGCONT)
        self._ended(time.monotonic() + grace)
        self.signal_group(signal.SIGKILL)
        return self.wait()

    def _ended(self, deadline):
        """Sleeps until the child has ended; returns false at the deadline. Does not reap the child."""
        # A new descriptor, unless fileno() has made one: a Popen that has ended, and is still referred to, holds none.
        pidfd = self._pidfd
        if pidfd is None:
            if self.returncode is not None:
                return True
            try:
                pidfd = _Descriptor(_forkless.pidfd_open(self.pid))
            except ProcessLookupError:
                return True
            except OSError as error:
                raise self._told(error)
        poll = select.poll()
        poll.register(pidfd.number, select.POLLIN)
        # Rounded up, so that it does not wake just before the deadline.
        left = max(0, deadline - time.monotonic())
        return bool(poll.poll(int(min(left * 1000, _LONGEST)) + (left > 0)))

    def _wait(self, timeout):
        if timeout is None or self.returncode is not None:
            return super()._wait(timeout)
        if timeout != timeout:  # NaN: no timeout, as in the standard class
            return super()._wait(None)
        deadline = time.monotonic() + timeout
        try:
            self._ended(deadline)
        except OSError:
            pass  # no pidfd is available
        # The standard class checks at once and then polls with pauses of up to 50 ms. Its first check succeeds now, unless another
        # thread has reaped the child, or a tracer has not yet been notified.
        try:
            return super()._wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            error.timeout = timeout
            raise

    def _internal_poll(self, _deadstate=None, *, _WNOHANG=os.WNOHANG):
        # The standard function calls os.waitpid, which has no usage, and loses the status if SIGCHLD is ignored.
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(_WNOHANG)
                    if pid == self.pid:
                        self._handle_exitstatus(status)
            except OSError:
                if _deadstate is not None:
                    self.returncode = _deadstate
            finally:
                self._waitpid_lock.release()
        return self.returncode

    def _try_wait(self, wait_flags):
        try:
            pid, status, self._usage = _forkless.wait4(self.pid, wait_flags)
        except ChildProcessError:
            # It was reaped by other code, or by the kernel because SIGCHLD is ignored. The standard class returns 0, too.
            return self.pid, self._kept_status(0)
        if not pid:
            return pid, status
        if self._forkless_ending is not None:
            # A template ends when a child of it has crashed.
            self._forkless_ending.child_ended(status)
        return pid, self._kept_status(status)

    @property
    def cold_reason(self):
        """Why the launch was not warm (`forkless.Warm`). None if it was, or if it was not to be."""
        return None if self._forkless_ending is None else self._forkless_ending.cold_reason

    @property
    def limit_events(self):
        """How often the child, with all that it has started, has reached its limits (memory_max, tasks_max): a dict of oom_kills, memory_max and
        tasks_max, as `forkless.Settings` describes. None before its end, and without limits.
        """
        return None if self._forkless_kept is None else self._forkless_kept.limit_events

    @property
    def usage(self):
        """The resource usage of the child and of the children that it waited for, as of `os.wait4`; None before `wait` returned its end."""
        if self._usage is None:
            return None
        import resource

        times, counts = self._usage.fields()
        return resource.struct_rusage((*times, *counts))

    def _kept_status(self, otherwise):
        """What the handle knows of the end: in a sandbox, this is the status of init."""
        code = None
        if self._forkless_kept is not None:
            try:
                code = self._forkless_kept.poll()
            except OSError:
                pass
        if code is None:
            return otherwise
        return code << 8 if code >= 0 else -code


class _Descriptor:
    """A file descriptor that is closed with the last reference to this object."""

    __slots__ = ("number", "_close")

    def __init__(self, number):
        self.number = number
        self._close = os.close

    def __del__(self):
        self._close(self.number)
