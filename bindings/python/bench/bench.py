"""Compares forkless with subprocess and asyncio in one process: `python bench.py [--quick]`.

Each row launches a static program that only exits (or writes 100 bytes) and waits for it. The methods take turns of 20 launches. Each row has the
medians and their ratio. "Over the baseline" has the time of vfork, execve and wait4 in C subtracted, which is measured in the same turns.
"""

import argparse
import asyncio
import mmap
import os
import pathlib
import platform
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import forkless
import forkless.asyncio

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE.parents[2] / "bench/c/target.c"
TURN = 20


def build(directory):
    """The compiled programs, by name."""
    made = {}
    for source, flags in (
        (TARGET, ["-static", "-nostdlib"]),
        (HERE / "writer.c", ["-static", "-nostdlib"]),
        (HERE / "floor.c", ["-O2"]),
    ):
        made[source.stem] = os.path.join(directory, source.stem)
        subprocess.run(["cc", *flags, "-o", made[source.stem], source], check=True)
    return made


class Race:
    """Methods that are measured in turn."""

    def __init__(self, floor, program, turns):
        self.floor, self.program, self.turns = floor, program, turns

    def floor_turn(self):
        done = subprocess.run([self.floor, str(TURN), self.program], stdout=subprocess.PIPE, check=True)
        return [int(line) / 1000 for line in done.stdout.split()]

    @staticmethod
    def turn(launch):
        launch()  # warm-up
        times = []
        for _ in range(TURN):
            start = time.perf_counter_ns()
            launch()
            times.append((time.perf_counter_ns() - start) / 1000)
        return times

    def run(self, contestants, with_floor=True):
        """The medians in microseconds, that of the vfork baseline first."""
        times = {name: [] for name in contestants}
        floor = []
        for _ in range(self.turns):
            if with_floor:
                floor += self.floor_turn()
            for name, launch in contestants.items():
                times[name] += self.turn(launch)
        medians = {name: statistics.median(times[name]) for name in contestants}
        return (statistics.median(floor) if floor else 0.0), medians


def row(what, floor, medians):
    ours, theirs = (medians[name] for name in ("forkless", "standard"))
    over = f"{(ours - floor) / (theirs - floor):.2f} over the baseline of {floor:.0f}" if floor else f"{theirs / ours:.1f} times as fast"
    print(f"{what:42} {ours:9.1f} {theirs:9.1f} µs   {over}", flush=True)


def good(returncode):
    if returncode != 0:
        raise SystemExit(f"the program did not exit with 0 but with {returncode}")


def simple(programs, turns):
    target, writer = [programs["target"]], [programs["writer"]]
    race = Race(programs["floor"], programs["target"], turns)
    row("run([...])", *race.run({
        "forkless": lambda: good(forkless.run(target).returncode),
        "standard": lambda: good(subprocess.run(target).returncode),
    }))  # fmt: skip
    row("Popen([...]).wait()", *race.run({
        "forkless": lambda: good(forkless.Popen(target).wait()),
        "standard": lambda: good(subprocess.Popen(target).wait()),
    }))  # fmt: skip

    def captured(module):
        def launch():
            if len(module.run(writer, capture_output=True).stdout) != 100:
                raise SystemExit("not the 100 bytes")

        return launch

    # The vfork baseline captures no output.
    row("run(capture_output=True), 100 bytes", *race.run({"forkless": captured(forkless), "standard": captured(subprocess)}))


def sockets(programs, turns, count=15_000):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 100
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), max(hard, wanted)))
    except (ValueError, OSError):
        print(f"SKIPPED: {count} sockets because only {hard} files may be open")
        return
    held = [socket.socket() for _ in range(count)]
    target = [programs["target"]]
    _, medians = Race(programs["floor"], programs["target"], max(1, turns // 4)).run({
        "forkless": lambda: good(forkless.Popen(target).wait()),
        "standard": lambda: good(subprocess.Popen(target).wait()),
    }, with_floor=False)  # fmt: skip
    row(f"Popen([...]).wait(), {count:,} sockets open", 0, medians)
    for one in held:
        one.close()


def settings(programs, turns, mib=1024):
    """Settings with which the standard module forks, in a small and in a large parent."""
    target = [programs["target"]]
    kinds = {"umask=0o77": {"umask": 0o77}}
    if os.geteuid() == 0:
        kinds["user=65534"] = {"user": 65534}
    else:
        print("SKIPPED: user= because that needs root")
    race = Race(programs["floor"], programs["target"], turns)
    small, large = {}, {}
    for into in (small, large):
        if into is large:
            memory = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            try:
                memory.madvise(mmap.MADV_NOHUGEPAGE)
            except OSError:
                pass  # refused by kernels without huge pages
            for offset in range(0, mib << 20, mmap.PAGESIZE):
                memory[offset] = 1
            race.turns = max(1, turns // 10)  # a fork of this size is slow
        for kind, words in kinds.items():
            _, into[kind] = race.run({
                "forkless": lambda: good(forkless.Popen(target, **words).wait()),
                "standard": lambda: good(subprocess.Popen(target, **words).wait()),
            }, with_floor=False)  # fmt: skip
    for kind in kinds:
        row(f"Popen({kind}).wait(), small", 0, small[kind])
        row(f"Popen({kind}).wait(), {mib} MiB", 0, large[kind])
        growth = large[kind]["forkless"] / small[kind]["forkless"]
        print(f"{'':42} forkless with {mib} MiB: {growth:.2f} times its time in the small parent")


async def launches(create, program, count, at_once):
    limit = asyncio.Semaphore(at_once)

    async def one():
        async with limit:
            process = await create(program)
            good(await process.wait())

    start = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(count)))
    return count / (time.perf_counter() - start)


def loops():
    found = {"asyncio": asyncio.new_event_loop}
    try:
        import uvloop
    except ImportError:
        print("SKIPPED: uvloop because it is not installed")
    else:
        found["uvloop"] = uvloop.new_event_loop
    return found


def awaited(programs, rounds, count=1000, at_once=64):
    for name, new_loop in loops().items():
        rates = {"forkless": [], "standard": []}
        for _ in range(rounds):
            for contestant, create in (
                ("forkless", forkless.asyncio.create_subprocess_exec),
                ("standard", asyncio.create_subprocess_exec),
            ):
                loop = new_loop()
                asyncio.set_event_loop(loop)
                rates[contestant].append(loop.run_until_complete(launches(create, programs["target"], count, at_once)))
                loop.close()
        asyncio.set_event_loop(None)
        ours, theirs = (statistics.median(rates[one]) for one in ("forkless", "standard"))
        what = f"{name}: {count:,} launches, {at_once} at a time"
        print(f"{what:42} {ours:9.0f} {theirs:9.0f} /s   {ours / theirs:.1f} times the rate", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a quarter of the turns")
    parser.add_argument("--smoke", action="store_true", help="one turn of each, and little memory: the figures say nothing")
    options = parser.parse_args()
    turns = 1 if options.smoke else 10 if options.quick else 40
    print(f"Python {platform.python_version()}, Linux {platform.release()}, {os.cpu_count()} CPUs")
    print(f"{'':42} {'forkless':>9} {'standard':>9}")
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)  # for other users
        programs = build(directory)
        simple(programs, turns)
        awaited(programs, *((1, 50) if options.smoke else (max(3, turns // 8),)))
        sockets(programs, turns)
        settings(programs, turns, *((32,) if options.smoke else ()))


if __name__ == "__main__":
    main()
