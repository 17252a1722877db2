"""The same as crates/forkless/examples/tool_calls.rs, for Python: calls.py MODE SLOTS CYCLES MEBIBYTES DESCRIPTORS DIRECTORY TOOLS.

MODE is stock-asyncio, forkless-asyncio, stock-threads or forkless-threads; forkless-asyncio-namespaces and -landlock are in a sandbox. With threads, each slot is a thread that calls run(), and the
event loop with its timer is in the main thread.
"""

import asyncio
import os
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor

mode, slots, cycles, mebibytes, descriptors, directory, tools = sys.argv[1:]
library, form, *kind = mode.split("-")
if library == "forkless":
    from forkless import DEVNULL, PIPE, run
    from forkless.asyncio import create_subprocess_exec
else:
    from asyncio import create_subprocess_exec
    from subprocess import DEVNULL, PIPE, run

more = {}
if kind:
    from forkless import Sandbox

    more = {"sandbox": Sandbox(mode=kind[0])}
TICK = 0.005
with open(tools, encoding="utf-8") as lines:
    TOOLS = [line.rstrip("\n").split("\t") for line in lines]
memory = bytearray(b"\1") * (int(mebibytes) << 20)
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(int(descriptors))]
counted = 0
# A sandbox does not show it.
place = "/" if kind else directory


def done(tool, begun, code, out):
    global counted
    took = time.monotonic_ns() - begun
    if code != 0:
        raise SystemExit(f"{tool}: exit code {code}")
    counted += len(out)
    return took


async def awaited(tool):
    begun = time.monotonic_ns()
    child = await create_subprocess_exec(*tool[1:], cwd=place, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, **more)
    out, _ = await asyncio.wait_for(child.communicate(), 60)
    return done(tool, begun, child.returncode, out)


def blocking(tool):
    begun = time.monotonic_ns()
    ended = run(tool[1:], cwd=directory, stdin=DEVNULL, capture_output=True, timeout=60)
    return done(tool, begun, ended.returncode, ended.stdout)


async def ticks(found):
    while True:
        begun = time.monotonic()
        await asyncio.sleep(TICK)
        found.append(time.monotonic() - begun - TICK)


def cpu(who):
    usage = resource.getrusage(who)
    return round((usage.ru_utime + usage.ru_stime) * 1e6)


async def main():
    global counted
    loop = asyncio.get_running_loop()
    pool = ThreadPoolExecutor(int(slots))

    async def call(tool):
        return await (awaited(tool) if form == "asyncio" else loop.run_in_executor(pool, blocking, tool))

    for tool in TOOLS:
        await call(tool)
    counted = 0
    late = [0.0]
    timer = asyncio.create_task(ticks(late))
    await asyncio.sleep(0)
    work = iter(TOOLS * int(cycles))
    times = []

    async def slot():
        for tool in work:
            times.append((tool[0], await call(tool)))

    before = cpu(resource.RUSAGE_SELF), cpu(resource.RUSAGE_CHILDREN)
    await asyncio.gather(*(slot() for _ in range(int(slots))))
    after = cpu(resource.RUSAGE_SELF), cpu(resource.RUSAGE_CHILDREN)
    timer.cancel()
    for name, took in times:
        print(name, took, sep="\t")
    print("own", after[0] - before[0], sep="\t")
    print("children", after[1] - before[1], sep="\t")
    late.sort()
    print("stop", round(late[-1] * 1e9), sep="\t")
    print("late", round(late[len(late) * 999 // 1000] * 1e9), sep="\t")
    print("bytes", counted, sep="\t")


asyncio.run(main())
