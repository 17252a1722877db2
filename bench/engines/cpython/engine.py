"""The CPython engine of `forkless bench`: subprocess.Popen. The protocol is in ../README.md."""

import mmap
import os
import platform
import resource
import subprocess
import sys
import time


class Failed(Exception):
    pass


class Engine:
    def __init__(self, command):
        self.command = command
        self.null = os.open(os.devnull, os.O_RDWR)
        self.settings = {}
        self.memory = []  # kept until the end

    def answer(self, request):
        word, *rest = request.split(" ")
        if word == "memory":
            self.touch(int(rest[0]) << 20)
        elif word == "plain":
            self.settings = {}
        elif word == "ids":
            uid, gid = map(int, rest)
            self.settings = {"user": uid, "group": gid, "extra_groups": []}
        elif word == "turn":
            return self.turn(*map(int, rest))
        else:
            raise Failed(f"unknown request {request!r}")
        return "ok"

    def touch(self, length):
        memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        try:
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        except OSError:
            pass  # kernels without huge pages refuse it
        for offset in range(0, length, mmap.PAGESIZE):
            memory[offset] = 1
        self.memory.append(memory)

    def launch(self):
        start = time.monotonic_ns()
        child = subprocess.Popen(self.command, stdin=self.null, stdout=self.null, **self.settings)
        held = time.monotonic_ns()
        status = child.wait()
        total = time.monotonic_ns()
        if status != 0:
            raise Failed(f"the program did not exit with 0 but with {status}")
        return held - start, total - start

    def turn(self, limit, fewest, most):
        self.launch()
        samples = []
        cpu = cpu_time()
        start = time.monotonic_ns()
        while len(samples) < most and (len(samples) < fewest or time.monotonic_ns() - start < limit):
            samples.append(self.launch())
        wall = time.monotonic_ns() - start
        figures = " ".join(f"{held} {total}" for held, total in samples)
        return f"done {wall} {cpu_time() - cpu} {figures}"


def cpu_time():
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(int((usage.ru_utime + usage.ru_stime) * 1e9) for usage in usages)


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: engine.py PROGRAM [ARGS]...; requests on standard input")
    engine = Engine(sys.argv[1:])
    print("forkless-engine 1", platform.python_version(), "ids", flush=True)
    for line in sys.stdin:
        try:
            answer = engine.answer(line.rstrip("\n"))
        except (Failed, OSError, ValueError, subprocess.SubprocessError) as error:
            words = " ".join(str(error).split())
            print(f"failed {words}", flush=True)
            sys.exit(1)
        print(answer, flush=True)


main()
