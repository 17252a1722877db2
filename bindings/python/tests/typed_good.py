"""Correct uses, in which type checkers must find no error: input of test_typing.py, never run."""

import asyncio
import pathlib
import resource
import signal
import subprocess
import sys
from typing import IO, Any

from typing_extensions import assert_type

import forkless
import forkless.anyio as of_anyio
import forkless.asyncio as own
import forkless.trio as of_trio
from forkless import (
    PIPE, CapturedProcess, CompletedPipeline, Pipeline, Popen, Pty, Settings, call, check_call, check_output, prepare, run, run_pipeline,
)  # fmt: skip

# bytes or str, depending on the arguments.
assert_type(run(["true"]), subprocess.CompletedProcess[bytes])
assert_type(run("true", shell=True, capture_output=True), subprocess.CompletedProcess[bytes])
assert_type(run(["true"], text=True), subprocess.CompletedProcess[str])
assert_type(run(["true"], encoding="utf-8", input="x"), subprocess.CompletedProcess[str])
assert_type(run(["true"], errors="replace"), subprocess.CompletedProcess[str])
assert_type(run(["true"], universal_newlines=True), subprocess.CompletedProcess[str])
assert_type(run(["true"], input=b"x", memory_file=True), subprocess.CompletedProcess[bytes])
assert_type(run(["true"], capture_output=True, max_output=10), CapturedProcess[bytes])
assert_type(run(["true"], capture_output=True, max_output=10, text=True).stdout_cut, int)
assert_type(run(["true"], text=len(sys.argv) > 1), subprocess.CompletedProcess[Any])
assert_type(run_pipeline(["true"], ["true"], capture_output=True, pipefail=True), CompletedPipeline[bytes])
assert_type(run_pipeline({"args": ["true"], "nice": 5}, "true", text=True, input="x", timeout=5).returncodes, list[int])
assert_type(Pipeline(["true"], ["true"], encoding="utf-8", stdin=PIPE), Pipeline[str])
with Pty(24, 80) as pty:
    assert_type(pty.read_until_exit(Popen(["true"], pty=pty), timeout=5), bytes)
    assert_type(pty.size, tuple[int, int])
assert_type(Popen(["true"]), Popen[bytes])
assert_type(Popen(["true"], text=True), Popen[str])
assert_type(Popen(["true"], encoding="utf-8"), Popen[str])
assert_type(Popen(["true"], errors="strict"), Popen[str])
assert_type(Popen(["true"], universal_newlines=True), Popen[str])
assert_type(Popen(["true"], -1, None, PIPE, PIPE), Popen[bytes])
assert_type(check_output(["true"]), bytes)
assert_type(check_output(["true"], text=True), str)
assert_type(check_output(["true"], encoding="utf-8", input="x", timeout=5), str)
assert_type(check_output(["true"], errors="strict"), str)
assert_type(check_output(["true"], universal_newlines=True), str)
assert_type(call(["true"], timeout=5), int)
assert_type(check_call(["true"]), int)
assert_type(forkless.getoutput("true"), str)
assert_type(forkless.getstatusoutput("true"), "tuple[int, str]")

# Every function takes settings.
run([pathlib.Path("true"), b"x", "y"], nice=5, rlimits={"nofile": (10, 20), resource.RLIMIT_CORE: 0}, kill_group=True, user="me")
Popen("true", unshare=["user", "pid"], uid_map=[(0, 1000, 1)], process_group=0, pipesize=4096)
call(["true"], best_effort=["set the nice value"], nice=-5)
check_call(["true"], mounts=[("tmpfs", "/tmp", "size=1m"), ("read_only", "/")], pivot_root=pathlib.Path("/mnt"))
check_output(["true"], no_new_privs=True, seccomp=b"12345678", ignore_signals=[signal.SIGINT], launcher="fork")
with open("log", "wb") as log:
    run(["true"], fds={7: log, 8: 1, 9: forkless.DEVNULL}, stdin=log, join={"net": "/proc/1/ns/net"})
words: Settings = {"nice": 5, "cpu_affinity": {0, 1}, "hostname": None}
run(["true"], **words)
prepare(["true"], **words)

warm = forkless.Warm(templates=2, idle=30)
run(["true"], warm=True)
assert_type(warm.start(prepare(["true"], warm=warm)), "str | None")
assert_type(warm.templates, "list[int]")

# Attributes of the results.
with Popen(["true"], text=True) as child:
    assert_type(child.communicate("x"), "tuple[str, str]")
    assert_type(child.usage, "resource.struct_rusage | None")
    assert_type(child.cold_reason, "str | None")
    assert_type(child.fileno(), int)
    assert_type(child.terminate_group(1.0), int)
    standard: subprocess.Popen[str] = child
prepared = prepare(["true"], stdin=PIPE, stdout=subprocess.DEVNULL)
assert_type(prepared.run(input=b"x", check=True), subprocess.CompletedProcess[bytes])
with prepared.spawn() as handle:
    assert_type(handle, forkless.Child)
    assert_type(handle.stdin, "IO[bytes] | None")
    assert_type(handle.wait(1.5), int)
assert_type(forkless.install(), bool)


async def main() -> None:
    process = await own.create_subprocess_exec("true", b"x", stdin=PIPE, nice=5, cwd="/", kill_group=True, env={"A": "b"})
    assert_type(process.stdin, "asyncio.StreamWriter | None")
    assert_type(await process.wait(), int)
    await own.create_subprocess_shell("true", stdout=PIPE, limit=1000, rlimits={"core": 0})
    assert_type(await own.run_process(["true"], capture_output=True, max_output=10, nice=5), CapturedProcess[bytes])
    assert_type(await of_trio.run_process("true", shell=True, text=True, input="x", timeout=5), CapturedProcess[str])
    assert_type(await of_anyio.run_process(["true"], encoding="utf-8", check=True), CapturedProcess[str])
