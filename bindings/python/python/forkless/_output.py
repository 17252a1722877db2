"""`run(…, max_output=N)`: the beginning and the end of long output are kept."""

import codecs
import os
import selectors
import subprocess
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
    """The first and the last bytes of a stream."""

    def __init__(self, most):
        self._head_room, self._tail_room = most - most // 2, most // 2
        self.head, self._tail, self._dropped = bytearray(), bytearray(), 0

    def add(self, data):
        room = self._head_room - len(self.head)
        self.head += data[:room]
        self._tail += data[room:] if room > 0 else data
        # Twice the room, so that not each call moves the rest.
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
        kept = {stream: _Kept(self._max_output) for stream in (self.stdout, self.stderr) if stream}
        try:
            self._move(memoryview(self._encoded(input)), kept, lambda: self._left(deadline, timeout, kept))
            left = self._left(deadline, timeout, kept)
            try:
                self.wait(timeout=left)
            except subprocess.TimeoutExpired:
                self._left(0, timeout, kept)
        except KeyboardInterrupt:
            # The terminal has sent it to the program, too.
            try:
                self.wait(timeout=_SIGINT_GRACE)
            except subprocess.TimeoutExpired:
                pass
            raise
        return self._contents(kept)

    def _move(self, unsent, kept, left):
        """Writes the input and reads the streams to their ends."""
        with selectors.DefaultSelector() as selector:
            for stream in kept:
                selector.register(stream, selectors.EVENT_READ)
            if self.stdin and unsent:
                os.set_blocking(self.stdin.fileno(), False)
                selector.register(self.stdin, selectors.EVENT_WRITE)
            elif self.stdin:
                self.stdin.close()
            while selector.get_map():
                for key, _ in selector.select(left()):
                    if key.fileobj is self.stdin:
                        try:
                            unsent = unsent[os.write(key.fd, unsent) :]
                        except BlockingIOError:
                            continue
                        except BrokenPipeError:
                            unsent = unsent[:0]
                        is_done = not unsent
                    else:
                        data = os.read(key.fd, _CHUNK)
                        kept[key.fileobj].add(data)
                        is_done = not data
                    if is_done:
                        selector.unregister(key.fileobj)
                        key.fileobj.close()

    def _left(self, deadline, timeout, kept):
        if deadline is None:
            return None
        left = deadline - time.monotonic()
        if left <= 0:
            stdout, stderr = self._contents(kept, is_text=False)
            raise subprocess.TimeoutExpired(self.args, timeout, output=stdout, stderr=stderr)
        return left

    def _encoded(self, input):
        if not input:
            return b""
        if not self.text_mode:
            return input
        return input.encode(self.stdin.encoding, self.stdin.errors)

    def _contents(self, kept, is_text=True):
        found = []
        for name, stream in (("stdout", self.stdout), ("stderr", self.stderr)):
            if not stream:
                found.append(None)
                continue
            is_utf8 = bool(self.text_mode) and codecs.lookup(stream.encoding).name == "utf-8"
            content, self.cut[name] = kept[stream].content(is_utf8)
            if self.text_mode and is_text:
                content = self._translate_newlines(content, stream.encoding, stream.errors)
            found.append(content)
        return found
