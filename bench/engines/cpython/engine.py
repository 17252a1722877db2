"""The CPython engine of `forkless bench`: subprocess.Popen, asyncio's subprocesses, or those of the package forkless and its run().

The protocol is in ../README.md.
"""

import asyncio
import concurrent.futures
import mmap
import os
import platform
import resource
import subprocess
import sys
import threading
import time


class Failed(Exception):
    pass


class Engine:
    def __init__(self, way, command):
        self.version, self.features = platform.python_version(), ["ids", "threads"]
        if way.startswith("forkless"):
            self.use_forkless()
        else:
            self.popen, self.create = subprocess.Popen, asyncio.create_subprocess_exec
        self.launch = WAYS[way].__get__(self)
        self.command = command
        self.settings = {}
        self.memory = []  # kept until the end
        self.crowd = 1  # threads that launch at once; of asyncio, tasks
        self.has_tasks = way.endswith("asyncio")

    def use_forkless(self):
        try:
            import forkless.asyncio
        except ModuleNotFoundError as error:
            raise Failed(f"{error.name} is not installed") from error
        self.version += f",forkless-{forkless.__version__}"
        self.features += ["user-namespace", "cgroup", "limits", "no-new-privs", "seccomp"]
        self.popen, self.create, self.run = forkless.Popen, forkless.asyncio.create_subprocess_exec, forkless.run

    async def answer(self, request):
        word, *rest = request.split(" ")
        if word == "memory":
            self.touch(int(rest[0]) << 20)
        elif word == "plain":
            self.settings = {}
        elif word == "ids":
            uid, gid = map(int, rest)
            self.settings.update(user=uid, group=gid, extra_groups=[])
        elif word == "user-namespace":
            inside, uid, gid, count = map(int, rest[:4])
            # An ordinary user's are denied setgroups by themselves.
            self.settings.update(unshare=["user"], uid_map=[(inside, uid, count)], gid_map=[(inside, gid, count)])
        elif word == "cgroup":
            self.settings.update(cgroup=" ".join(rest))
        elif word == "limits":
            pairs = [map(int, pair.split("=")) for pair in rest]
            self.settings.update(rlimits=dict(pairs))
        elif word == "no-new-privs":
            self.settings.update(no_new_privs=True)
        elif word == "seccomp":
            self.settings.update(seccomp=bytes.fromhex(rest[0]))
        elif word == "threads":
            self.crowd = int(rest[0])
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
        child = self.popen(self.command, **self.settings)
        held = time.monotonic_ns()
        status = child.wait()
        total = time.monotonic_ns()
        return status, held - start, total - start

    async def by_asyncio(self):
        start = time.monotonic_ns()
        child = await self.create(*self.command, **self.settings)
        held = time.monotonic_ns()
        status = await child.wait()
        total = time.monotonic_ns()
        return status, held - start, total - start

    async def by_run(self):
        start = time.monotonic_ns()
        status = self.run(self.command, **self.settings).returncode
        total = time.monotonic_ns()
        return status, total - start, total - start

    async def sample(self):
        status, held, total = await self.launch()
        if status != 0:
            raise Failed(f"the program did not exit with 0 but with {status}")
        return held, total

    async def launches(self, goal, begin):
        """One launch after the other, the first of them uncounted and before `begin`, for which others wait."""
        try:
            await self.sample()
        finally:
            await begin()
        limit, fewest, most = goal
        samples = []
        start = time.monotonic_ns()
        while len(samples) < most and (len(samples) < fewest or time.monotonic_ns() - start < limit):
            samples.append(await self.sample())
        return samples

    async def turn(self, *goal):
        begun = Begun(self.crowd)
        if self.crowd == 1 or self.has_tasks:
            runs = await asyncio.gather(*(self.launches(goal, begun.task) for _ in range(self.crowd)))
        else:
            with concurrent.futures.ThreadPoolExecutor(self.crowd) as pool:
                run = lambda _: asyncio.run(self.launches(goal, begun.thread))
                runs = list(pool.map(run, range(self.crowd)))
        wall = time.monotonic_ns() - begun.start
        figures = " | ".join(" ".join(f"{held} {total}" for held, total in samples) for samples in runs)
        return f"done {wall} {cpu_time() - begun.cpu} {figures}"


class Begun:
    """Where so many threads or tasks wait for each other, and what time it was then."""

    def __init__(self, count):
        self.waiting = count
        self.event = asyncio.Event()
        self.barrier = threading.Barrier(count, action=self.begin)

    def begin(self):
        self.cpu = cpu_time()
        self.start = time.monotonic_ns()

    async def thread(self):
        self.barrier.wait()

    async def task(self):
        self.waiting -= 1
        if self.waiting == 0:
            self.begin()
            self.event.set()
        await self.event.wait()


WAYS = {
    "subprocess": Engine.by_subprocess,
    "asyncio": Engine.by_asyncio,
    "forkless": Engine.by_subprocess,
    "forkless-asyncio": Engine.by_asyncio,
    "forkless-run": Engine.by_run,
}


def cpu_time():
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(int((usage.ru_utime + usage.ru_stime) * 1e9) for usage in usages)


async def serve(engine, requests, answers):
    print("forkless-engine 2", engine.version, *engine.features, file=answers, flush=True)
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
        sys.exit(f"usage: engine.py {'|'.join(WAYS)} PROGRAM [ARGS]...; requests at 3, answers at 4")
    for fd in (3, 4):
        os.set_inheritable(fd, False)
    requests, answers = os.fdopen(3), os.fdopen(4, "w")
    try:
        engine = Engine(sys.argv[1], sys.argv[2:])
    except Failed as error:
        print("failed", error, file=answers)
        sys.exit(1)
    asyncio.run(serve(engine, requests, answers))


main()
