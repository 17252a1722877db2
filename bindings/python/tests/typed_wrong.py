"""Wrong uses: type checkers must find an error in each marked line and in no other. Input of test_typing.py, never run."""

import forkless
import forkless.asyncio as own
from forkless import Popen, Settings, call, check_call, check_output, prepare, run

run(["true"], nicee=5)  # wrong
run(["true"], nice="five")  # wrong
run(["true"], text=True, rlimit={"core": 0})  # wrong
run(["true"], encoding="utf-8", no_such=None)  # wrong
run(["true"], errors="strict", chroot=5)  # wrong
run(["true"], universal_newlines=True, mounts=5)  # wrong
run(5)  # wrong
run(["true"], timeout="soon")  # wrong
run(["true"], launcher="rocket")  # wrong
run(["true"], kill_group="yes")  # wrong
run()  # wrong
Popen(["true"], no_such=5)  # wrong
Popen(["true"], text=True, nice=1.5)  # wrong
Popen(["true"], capture_output=True)  # wrong
Popen(["true"], env=["A=b"])  # wrong
Popen(["true"], unshare=5)  # wrong
call(["true"], no_such=5)  # wrong
call(["true"], input=b"x")  # wrong
check_call(["true"], nice="five")  # wrong
check_output(["true"], stdout=forkless.PIPE)  # wrong
check_output(["true"], no_such=5)  # wrong
check_output(["true"], text=True, seccomp="x")  # wrong
prepare(["true"], no_such=5)  # wrong
prepare(["true"], user=5)  # wrong
words: Settings = {"nicee": 5}  # wrong
run(["true"], warm="git")  # wrong
number: int = run(["true"], text=True).stdout  # wrong
text: str = check_output(["true"])  # wrong
child: Popen[str] = Popen(["true"])  # wrong
forkless.no_such  # wrong
forkless.run_pipeline(["true"], stdout="x")  # wrong
forkless.run_pipeline(["true"], {"nice": 5})  # wrong
forkless.Popen(["true"], pty=5)  # wrong


async def main() -> None:
    await own.create_subprocess_exec("true", no_such=5)  # wrong
    await own.create_subprocess_exec("true", text=True)  # wrong
    await own.create_subprocess_exec(["true"])  # wrong
    await own.create_subprocess_shell("true", nice="five")  # wrong
    await own.run_process(["true"], memory_file=True)  # wrong
    await own.run_process(["true"], input="text")  # wrong
    number: str = await (await own.create_subprocess_exec("true")).wait()  # wrong
