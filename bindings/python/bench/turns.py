"""Compares asyncio with forkless.asyncio in one process, beside a timer: `python turns.py [--turns N] [--at-once N...] [--mebibytes N] [PATH...]`.

Each call is `create_subprocess_exec("cat", FILE)` with captured output, and `communicate()`. The methods take turns of 16 calls, one at a time and
sixteen at once, while a task of the same loop sleeps for 5 ms again and again. Shown are the median and the 99th percentile of a call, the longest
stop of the loop beyond the 5 ms, and the CPU time of this process per call. `forkless bench tools` runs each method in a process of its own, one after
another, so on a busy machine its figures also show what else ran at that time. PATH: directories with other builds of the package `forkless`.
"""

import argparse
import asyncio
import importlib
import os
import resource
import statistics
import sys
import time

TICK = 0.005
CALLS = 16


def builds(paths):
    """The methods by name: asyncio, and each build of forkless."""
    found = {"asyncio": asyncio.create_subprocess_exec}
    for path in paths or [None]:
        for name in [name for name in sys.modules if name.split(".")[0] == "forkless"]:
            del sys.modules[name]
        if path:
            sys.path.insert(0, path)
        module = importlib.import_module("forkless.asyncio")
        found["forkless.asyncio" + (f" {path}" if path else "")] = module.create_subprocess_exec
        if path:
            sys.path.remove(path)
    return found


class Figures:
    def __init__(self):
        self.times, self.stops, self.cpu, self.calls = [], [], 0.0, 0


async def call(create, figures, words):
    begun = time.perf_counter()
    child = await create(*words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    out, _ = await child.communicate()
    figures.times.append(time.perf_counter() - begun)
    if child.returncode != 0 or not out:
        raise SystemExit(f"{words}: {child.returncode}")


async def ticks(found):
    while True:
        begun = time.perf_counter()
        await asyncio.sleep(TICK)
        found[0] = max(found[0], time.perf_counter() - begun - TICK)


def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def turn(create, at_once, figures, words):
    longest = [0.0]
    timer = asyncio.create_task(ticks(longest))
    work = iter(range(CALLS))

    async def slot():
        for _ in work:
            await call(create, figures, words)

    before = cpu()
    await asyncio.gather(*(slot() for _ in range(at_once)))
    figures.cpu += cpu() - before
    figures.calls += CALLS
    timer.cancel()
    figures.stops.append(longest[0])


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--mebibytes", type=int, default=100)
    parser.add_argument("paths", nargs="*")
    options = parser.parse_args()
    methods = builds(options.paths)
    memory = bytearray(b"\1") * (options.mebibytes << 20)
    words = ["cat", os.path.abspath(__file__)]
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {len(memory) >> 20} MiB, {options.turns} turns of {CALLS} calls")
    for at_once in options.at_once:
        all_figures = {name: Figures() for name in methods}
        for n in range(options.turns + 1):
            for name, create in methods.items():
                # The first turn only warms up.
                await turn(create, at_once, all_figures[name] if n else Figures(), words)
        print(f"\n{at_once} at once\n\n| method | p50 ms | p99 ms | stop p50 ms | stop max ms | CPU µs |\n| --- | --: | --: | --: | --: | --: |")
        for name, figures in all_figures.items():
            times = sorted(figures.times)
            row = (statistics.median(times), times[len(times) * 99 // 100], statistics.median(figures.stops), max(figures.stops))
            print(f"| {name} | {' | '.join(f'{value * 1e3:.2f}' for value in row)} | {figures.cpu / figures.calls * 1e6:.0f} |")


asyncio.run(main())
