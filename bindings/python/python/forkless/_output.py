"""Reads a child's streams: `run(…, max_output=N)` keeps the beginning and the end of long output."""

import codecs
import os
import selectors
import subprocess
import sys
import time

from ._popen import Popen

_CHUNK = 64 * 1024

# As in subprocess, in seconds.
_SIGINT_GRACE = 0.25


class CapturedProcess(subprocess.CompletedProcess):
    """What `run` returns with max_output or a limit such as memory_max: a CompletedProcess that also says how many bytes of each stream are left
    out, and how often the limits were reached (`Popen.limit_events`).
    """

    stdout_cut = stderr_cut = 0
    limit_events = None


class _Kept:
    """The first and the last bytes of a stream; all, if `most` is None."""

    def __init__(self, most):
        most = sys.maxsize if most is None else most
        self._head_room, self._tail_room = most - most // 2, most // 2
        self.head, self._tail, self._dropped = bytearray(), bytearray(), 0

    def add(self, data):
        room = self._head_room - len(self.head)
        self.head += data[:room]
        self._tail += data[room:] if room > 0 else data
        # Only at twice the room, so that not every call moves the rest.
        if len(self._tail) > 2 * self._tail_room + _CHUNK:
            self._trim()

    def _trim(self):
        more = len(self._tail) - self._tail_room
        if more > 0:
            del self._tail[:more]
            self._dropped += more

    def content(self, is_utf8):
        """The bytes, with a line about those that are left out, and their number. Letters of UTF-8 are left out as a whole."""
        self._trim()
        if not self._dropped:
            return bytes(self.head + self._tail), 0
        head, tail = bytes(self.head), bytes(self._tail)
        if is_utf8:
            whole = codecs.getincrementaldecoder("utf-8")("replace")
            whole.decode(head)
            head = head[: len(head) - len(whole.getstate()[0])]
            start = 0
            while start < min(3, len(tail)) and tail[start] & 0xC0 == 0x80:
                start += 1
            tail = tail[start:]
        cut = self._dropped + len(self.head) - len(head) + len(self._tail) - len(tail)
        return b"%s\n[... %d bytes left out ...]\n%s" % (head, cut, tail), cut


class Streams:
    """The pipes of a Popen, until all have ended. It can be waited for: `fileno` is readable when `move` has something to do."""

    def __init__(self, popen, input, most):
        self._popen = popen
        self._kept = {stream: _Kept(most) for stream in (popen.stdout, popen.stderr) if stream}
        if input and popen.text_mode:
            input = input.encode(popen.stdin.encoding, popen.stdin.errors)
        self._unsent = memoryview(input or b"")
        self._selector = selectors.EpollSelector()

    def __enter__(self):
        for stream in self._kept:
            self._selector.register(stream, selectors.EVENT_READ)
        stdin = self._popen.stdin
        if stdin and self._unsent:
            os.set_blocking(stdin.fileno(), False)
            self._selector.register(stdin, selectors.EVENT_WRITE)
        elif stdin:
            stdin.close()
        return self

    def __exit__(self, *_):
        self._selector.close()

    def fileno(self):
        return self._selector.fileno()

    def are_open(self):
        return bool(self._selector.get_map())

    def move(self, timeout):
        """Writes and reads what is ready, within so many seconds (None: without a limit)."""
        for key, _ in self._selector.select(timeout):
            if key.fileobj is self._popen.stdin:
                try:
                    self._unsent = self._unsent[os.write(key.fd, self._unsent) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    self._unsent = self._unsent[:0]
                is_done = not self._unsent
            else:
                data = os.read(key.fd, _CHUNK)
                self._kept[key.fileobj].add(data)
                is_done = not data
            if is_done:
                self._selector.unregister(key.fileobj)
                key.fileobj.close()

    def contents(self, is_text=True):
        """What has come from both streams, None for one that is no pipe."""
        found, popen = [], self._popen
        for name, stream in (("stdout", popen.stdout), ("stderr", popen.stderr)):
            if not stream:
                found.append(None)
                continue
            is_utf8 = bool(popen.text_mode) and codecs.lookup(stream.encoding).name == "utf-8"
            content, popen.cut[name] = self._kept[stream].content(is_utf8)
            if popen.text_mode and is_text:
                content = popen._translate_newlines(content, stream.encoding, stream.errors)
            found.append(content)
        return found

    def left(self, deadline, timeout):
        """The seconds that are left. After the deadline it raises TimeoutExpired with the output so far."""
        if deadline is None:
            return None
        left = deadline - time.monotonic()
        if left <= 0:
            stdout, stderr = self.contents(is_text=False)
            raise subprocess.TimeoutExpired(self._popen.args, timeout, output=stdout, stderr=stderr)
        return left


class LimitedPopen(Popen):
    """A Popen whose `communicate` keeps so many bytes of each stream (None: all)."""

    def __init__(self, *args, max_output, **keywords):
        self._max_output = max_output
        self.cut = {}
        super().__init__(*args, **keywords)

    def communicate(self, input=None, timeout=None):
        if self._max_output is None:
            return super().communicate(input, timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        streams = Streams(self, input, self._max_output)
        try:
            with streams:
                while streams.are_open():
                    streams.move(streams.left(deadline, timeout))
            try:
                self.wait(timeout=streams.left(deadline, timeout))
            except subprocess.TimeoutExpired:
                streams.left(0, timeout)
        except KeyboardInterrupt:
            # The terminal has sent it to the program, too.
            try:
                self.wait(timeout=_SIGINT_GRACE)
            except subprocess.TimeoutExpired:
                pass
            raise
        return streams.contents()
