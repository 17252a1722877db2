"""Times calls of /bin/true with captured output, by each package in turns, in one process: prints JSON for languages.py."""

import asyncio
import importlib
import json
import subprocess
import sys
import time

PROGRAM = "/bin/true"
CALLS = 10

import forkless
import forkless.asyncio


def package(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def methods():
    """Functions that make so many calls, and append the time of each."""

    def plain(call):
        def turn(times):
            for _ in range(CALLS):
                begun = time.perf_counter()
                call()
                times.append(time.perf_counter() - begun)

        return turn

    def in_loop(run, call):
        async def calls(times):
            for _ in range(CALLS):
                begun = time.perf_counter()
                await call()
                times.append(time.perf_counter() - begun)

        return lambda times: run(calls, times)

    async def own():
        child = await forkless.asyncio.create_subprocess_exec(PROGRAM, stdout=-1, stderr=-1)
        await child.communicate()

    async def standard():
        child = await asyncio.create_subprocess_exec(PROGRAM, stdout=-1, stderr=-1)
        await child.communicate()

    def in_asyncio(function, *args):
        asyncio.run(function(*args))

    sh, plumbum, trio, anyio = (package(name) for name in ("sh", "plumbum", "trio", "anyio"))
    found = {
        "subprocess.run": plain(lambda: subprocess.run([PROGRAM], capture_output=True)),
        "forkless.run": plain(lambda: forkless.run([PROGRAM], capture_output=True)),
        "forkless.run_pipeline, 2 programs": plain(lambda: forkless.run_pipeline([PROGRAM], [PROGRAM], capture_output=True)),
        "asyncio": in_loop(in_asyncio, standard),
        "forkless.asyncio": in_loop(in_asyncio, own),
    }
    if sh:
        command = sh.Command(PROGRAM)
        found["sh"] = plain(lambda: command())
    if plumbum:
        local = plumbum.local[PROGRAM]
        found["plumbum"] = plain(lambda: local())
        found["plumbum, 2 programs"] = plain(lambda: (local | local)())
    if trio:
        found["trio.run_process"] = in_loop(trio.run, lambda: trio.run_process([PROGRAM], capture_stdout=True, capture_stderr=True))
    if anyio:
        found["anyio.run_process"] = in_loop(anyio.run, lambda: anyio.run_process([PROGRAM]))
    return found


def main():
    found = methods()
    times = {name: [] for name in found}
    for turn in range(int(sys.argv[1]) + 1):
        for name, calls in found.items():
            # The first turn only warms up.
            calls(times[name] if turn else [])
    print(json.dumps(times))


main()
