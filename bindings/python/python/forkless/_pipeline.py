"""Programs in a row, as in a shell's `a | b | c`."""

import os
import subprocess
import time

from ._output import CapturedProcess, LimitedPopen
from ._popen import Popen

_NOT_OF_ONE = ("stdin", "stdout", "stderr", "pty")

# The index of `errwrite` in the arguments of Popen._execute_child.
_ERRORS = 15


class CompletedPipeline(CapturedProcess):
    """What `run_pipeline` returns: a CompletedProcess that also has the return codes of all programs, in their order."""

    returncodes: "list[int]" = []


class Pipeline(LimitedPopen):
    """Programs that run at the same time: the standard output of each is the standard input of the next.

    commands: for each program its arguments, as for `Popen`; or a dict with them as `args`, and with keywords for this program alone. The
    keywords are those of `Popen`, for all programs. stdin is for the first, stdout for the last, and stderr for all (STDOUT: where the output
    of the last one goes).

    pipefail: `returncode` is that of the last program that failed, as with a shell's `set -o pipefail`. Otherwise it is that of the last one.

    This is a Popen: `stdin` belongs to the first program, `pid` and `fileno()` to the last. Signals go to all, and `wait` waits for all. If a
    program cannot be started, those before it are killed.
    """

    _before = ()
    _codes = None

    def __init__(
        self, *commands, pipefail=False, max_output=None, stdin=None, stdout=None, stderr=None, text=None, encoding=None, errors=None, **keywords
    ):  # fmt: skip
        keywords.update(text=text, encoding=encoding, errors=errors)
        each = [{**keywords, **(command if isinstance(command, dict) else {"args": command})} for command in commands]
        if not each or not all("args" in words and words.keys().isdisjoint(_NOT_OF_ONE) for words in each):
            raise ValueError("a pipeline needs programs, each with args, and without a stream or a terminal of its own")
        self._pipefail, self._before, self._first, self._links = pipefail, [], (each[:-1], stdin), []
        try:
            for _ in each[1:]:
                self._links.append(os.pipe())
            if self._links:
                stdin = self._links[-1][0]
            super().__init__(stdin=stdin, stdout=stdout, stderr=stderr, max_output=max_output, **each[-1])
        except BaseException:
            self._abandon()
            raise
        finally:
            for link in self._links:
                for end in link:
                    os.close(end)
            del self._links, self._first
        if self._before:
            self.stdin = self._before[0].stdin
        self.args = [words["args"] for words in each]

    def _execute_child(self, *words):
        # Started here, where the descriptor of all standard errors is known, and still open.
        first, stdin = self._first
        stderr = None if words[_ERRORS] == -1 else words[_ERRORS]
        for (read, write), keywords in zip(self._links, first):
            self._before.append(Popen(stdin=stdin, stdout=write, stderr=stderr, **keywords))
            stdin = read
        super()._execute_child(*words)

    def _abandon(self):
        for program in self._before:
            program.kill()
            program.wait()
            if program.stdin:
                program.stdin.close()

    @property
    def returncodes(self):
        """The return codes of all programs, in their order; None for one that has not been waited for."""
        return self._codes or [program.returncode for program in self._before] + [self.returncode]

    def send_signal(self, sig):
        """Sends a signal to all programs that have not ended."""
        for program in self._before:
            program.send_signal(sig)
        super().send_signal(sig)

    def signal_group(self, number):
        """Sends a signal to the process group of each program."""
        for program in self._before:
            program.signal_group(number)
        super().signal_group(number)

    def wait(self, timeout=None):
        """Waits for all programs. Returns the return code of the pipeline."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            for program in self._before:
                program.wait(None if deadline is None else max(0, deadline - time.monotonic()))
            super().wait(None if deadline is None else max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise subprocess.TimeoutExpired(self.args, timeout) from None
        return self._code()

    def poll(self):
        """The return code of the pipeline if all programs have ended, else None."""
        ended = [program.poll() for program in self._before] + [super().poll()]
        return None if None in ended else self._code()

    def _code(self):
        if self._codes is None:
            self._codes = self.returncodes
            if self._pipefail:
                self.returncode = next((code for code in reversed(self._codes) if code), 0)
        return self.returncode
