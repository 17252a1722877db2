"""The CPython engine of `forkless bench`: subprocess.Popen, or asyncio's subprocesses. The protocol is in ../README.md."""

import asyncio
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
    def __init__(self, way, command):
        self.launch = {"subprocess": self.by_subprocess, "asyncio": self.by_asyncio}[way]
        self.command = command
        self.settings = {}
        self.memory = []  # kept until the end

    async def answer(self, request):
        word, *rest = request.split(" ")
        if word == "memory":
            self.touch(int(rest[0]) << 20)
        elif word == "plain":
            self.settings = {}
        elif word == "ids":
            uid, gid = map(int, rest)
            self.settings = {"user": uid, "group": gid, "extra_groups": []}
        elif word == "turn":
            return await self.turn(*map(int, rest))
        else:
            raise Failed(f"unknown request {request!r}")
        return "ok"

    def touch(self, length):
        memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for offset in range(0, length, mmap.PAGESIZE):
            memory[offset] = 1
        self.memory.append(memory)

    async def by_subprocess(self):
        start = time.monotonic_ns()
        child = subprocess.Popen(self.command, **self.settings)
        held = time.monotonic_ns()
        status = child.wait()
        total = time.monotonic_ns()
        return status, held - start, total - start

    async def by_asyncio(self):
        start = time.monotonic_ns()
        child = await asyncio.create_subprocess_exec(*self.command, **self.settings)
        held = time.monotonic_ns()
        status = await child.wait()
        total = time.monotonic_ns()
        return status, held - start, total - start

    async def sample(self):
        status, held, total = await self.launch()
        if status != 0:
            raise Failed(f"the program did not exit with 0 but with {status}")
        return held, total

    async def turn(self, limit, fewest, most):
        await self.sample()
        samples = []
        cpu = cpu_time()
        start = time.monotonic_ns()
        while len(samples) < most and (len(samples) < fewest or time.monotonic_ns() - start < limit):
            samples.append(await self.sample())
        wall = time.monotonic_ns() - start
        figures = " ".join(f"{held} {total}" for held, total in samples)
        return f"done {wall} {cpu_time() - cpu} {figures}"


def cpu_time():
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(int((usage.ru_utime + usage.ru_stime) * 1e9) for usage in usages)


async def serve(engine, requests, answers):
    print("forkless-engine 2", platform.python_version(), "ids", file=answers, flush=True)
    # No child is alive while it waits for a request.
    for line in requests:
        try:
            answer = await engine.answer(line.rstrip("\n"))
        except (Failed, OSError, ValueError, subprocess.SubprocessError) as error:
            words = " ".join(str(error).split())
            print(f"failed {words}", file=answers, flush=True)
            sys.exit(1)
        print(answer, file=answers, flush=True)


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: engine.py subprocess|asyncio PROGRAM [ARGS]...; requests at 3, answers at 4")
    for fd in (3, 4):
        os.set_inheritable(fd, False)
    asyncio.run(serve(Engine(sys.argv[1], sys.argv[2:]), os.fdopen(3), os.fdopen(4, "w")))


main()
