"""Tests of `forkless.Sandbox`."""

import asyncio
import concurrent.futures
import errno
import gc
import os
import pathlib
import subprocess
import sys

import pytest

import forkless
import forkless.asyncio

PIPE = forkless.PIPE


def works(mode):
    try:
        forkless.Sandbox(mode=mode).check()
        return None
    except OSError as error:
        return str(error)


@pytest.fixture(scope="module", params=["namespaces", "landlock"])
def mode(request):
    why = works(request.param)
    if why:
        pytest.skip(f"SKIPPED: sandboxes by {request.param}, because {why}")
    return request.param


@pytest.fixture
def landlock():
    why = works("landlock")
    if why:
        pytest.skip(f"SKIPPED: sandboxes by landlock, because {why}")


@pytest.fixture
def namespaces():
    why = works("namespaces")
    if why:
        pytest.skip(f"SKIPPED: sandboxes by namespaces, because {why}")


@pytest.fixture
def places(tmp_path):
    os.chmod(tmp_path, 0o755)
    for parent in list(tmp_path.parents)[:3]:
        os.chmod(parent, os.stat(parent).st_mode | 0o011)
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for place in (inside, outside):
        place.mkdir()
        place.chmod(0o777)
    return inside, outside


LINE = "echo 1 > {0}/a && cat {0}/a; echo 2 > {1}/b || echo refused"
TEXT = dict(stdout=PIPE, stderr=forkless.DEVNULL, cwd="/")


def test_a_program_writes_only_where_it_may(mode, places):
    inside, outside = places
    for write in (inside, str(inside), os.fsencode(inside), [inside], iter([str(inside)])):
        sandbox = forkless.Sandbox(mode=mode, write=write)
        done = forkless.run(["sh", "-c", LINE.format(inside, outside)], sandbox=sandbox, **TEXT)
        assert done.stdout == b"1\nrefused\n"
    sandbox = forkless.Sandbox(mode=mode, read=outside)
    (outside / "data").write_text("data")
    done = forkless.run(["sh", "-c", f"cat {outside}/data; echo 1 > {outside}/data"], sandbox=sandbox, **TEXT)
    assert done.stdout == b"data" and done.returncode != 0
    assert str(outside) in repr(sandbox)


@pytest.mark.filterwarnings("ignore:preexec_fn")
def test_every_function_launches_in_the_sandbox(mode, monkeypatch):
    sandbox = forkless.Sandbox(mode=mode)
    monkeypatch.setenv("FORKLESS_SECRET", "secret")
    alone = {"landlock": "! ls /tmp", "namespaces": "test $PPID = 1"}[mode]
    line = f"grep -q Seccomp:.2 /proc/self/status && {alone} && test -z $FORKLESS_SECRET && echo inside"
    args = ["sh", "-c", line]
    assert forkless.run(args, sandbox=sandbox, **TEXT).stdout == b"inside\n"
    assert forkless.run(line, shell=True, sandbox=sandbox, **TEXT).stdout == b"inside\n"
    assert forkless.run(args, sandbox=sandbox, timeout=50, input=b"", **TEXT).stdout == b"inside\n"
    assert forkless.check_output(args, sandbox=sandbox, stderr=forkless.DEVNULL, cwd="/") == b"inside\n"
    assert forkless.call(args, sandbox=sandbox, **TEXT) == 0
    with forkless.Popen(args, sandbox=sandbox, **TEXT) as child:
        assert child.stdout.read() == b"inside\n"
    assert forkless.prepare(args, sandbox=sandbox, **TEXT).run().stdout == b"inside\n"
    with forkless.prepare(args, sandbox=sandbox, **TEXT).launch() as child:
        assert child.stdout.read() == b"inside\n"

    async def outputs():
        child = await forkless.asyncio.create_subprocess_exec(*args, sandbox=sandbox, **TEXT)
        shell = await forkless.asyncio.create_subprocess_shell(line, sandbox=sandbox, **TEXT)
        return [(await one.communicate())[0] for one in (child, shell)]

    assert asyncio.run(outputs()) == [b"inside\n"] * 2
    # Not silently outside of it.
    assert forkless.check_call(args, sandbox=sandbox, **TEXT) == 0
    for settings in ({"preexec_fn": int}, {"close_fds": False}, {"best_effort": ["set the nice value"]}, {"start_new_session": True, "process_group": 0}):
        with pytest.raises(ValueError):
            forkless.run(["true"], sandbox=sandbox, **settings)
    with pytest.raises(TypeError):
        subprocess.run(["true"], sandbox=sandbox)


def test_few_threads_launch_beside_a_loop(mode):
    sandbox = forkless.Sandbox(mode=mode)

    async def launched():
        start = forkless.asyncio.create_subprocess_exec
        children = await asyncio.gather(*(start("true", sandbox=sandbox, cwd="/") for _ in range(30)))
        threads = forkless.asyncio._threads[asyncio.get_running_loop()]._threads
        return [await child.wait() for child in children], list(threads)

    codes, threads = asyncio.run(launched())
    assert codes == [0] * 30 and 1 <= len(threads) <= len(os.sched_getaffinity(0)) + 1
    # They end with the loop.
    gc.collect()
    for one in threads:
        one.join(60)
        assert not one.is_alive()


def test_variables_are_kept_by_name(mode, monkeypatch):
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setenv("OTHER", "2")
    sandbox = forkless.Sandbox(mode=mode, keep_env=["KEPT"])
    names = forkless.run(["env"], sandbox=sandbox, **TEXT).stdout.split()
    assert b"KEPT=1" in names and b"OTHER=2" not in names
    assert forkless.run(["/usr/bin/env"], sandbox=sandbox, env={"A": "b"}, **TEXT).stdout == b"A=b\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="it needs root")
def test_a_user_has_none_of_the_groups_of_root(mode):
    sandbox = forkless.Sandbox(mode=mode)
    before = os.getgroups()
    os.setgroups([0, 12345])
    try:
        for words, groups in (({}, b"54321\n"), ({"extra_groups": [23456]}, b"54321 23456\n")):
            done = forkless.run(["id", "-G"], sandbox=sandbox, user=54321, group=54321, **words, **TEXT)
            assert done.stdout == groups
        # Without a sandbox, as subprocess.
        own = forkless.run(["id", "-G"], user=54321, group=54321, sandbox=None, **TEXT).stdout
        assert own == subprocess.run(["id", "-G"], user=54321, group=54321, **TEXT).stdout
        assert forkless.run(["id", "-G"], sandbox=sandbox, **TEXT).stdout == b"65534\n"
        assert forkless.run(["id", "-G"], sandbox=sandbox, user=54321, **TEXT).stdout == b"65534\n"
    finally:
        os.setgroups(before)


def test_threads_share_a_sandbox(mode):
    sandbox = forkless.Sandbox(mode=mode)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        line = ["sh", "-c", "! ls /home/.. /root"]
        codes = pool.map(lambda _: forkless.run(line, sandbox=sandbox, stderr=forkless.DEVNULL, cwd="/").returncode, range(64))
        assert set(codes) == {0}


def test_bad_values_are_errors_that_name_them(landlock, tmp_path):
    for words, message in (
        ({"mode": "namespace"}, "mode: expected 'namespaces' or 'landlock'"),
        ({"network": "all"}, "network: expected 'none', 'refused' or 'host'"),
    ):
        with pytest.raises(ValueError, match=message):
            forkless.Sandbox(**words)
    for words in ({"mode": "landlock", "network": "none"}, {"mode": "namespaces", "change_attributes": True}):
        with pytest.raises(OSError, match="namespaces"):
            forkless.Sandbox(**words)
    for words in ({"mode": None}, {"mode": "landlock", "bind": "."}, {"mode": "landlock", "write": 7}):
        with pytest.raises(TypeError):
            forkless.Sandbox(**words)
    with pytest.raises(FileNotFoundError, match="none") as caught:
        forkless.Sandbox(mode="landlock", write=tmp_path / "none")
    assert caught.value.errno == errno.ENOENT
    for value in (7, "landlock", pathlib.Path("/")):
        with pytest.raises(TypeError, match="^sandbox: "):
            forkless.run(["true"], sandbox=value)
    place = tmp_path / "place"
    place.mkdir()
    sandbox = forkless.Sandbox(mode="landlock", write=place)
    place.rmdir()
    with pytest.raises(OSError, match=r"(?s).*") as caught:
        forkless.run(["true"], sandbox=sandbox)
    assert "prepare it again" in str(caught.value.detail)
    with pytest.raises(OSError, match="a trial of the sandbox"):
        sandbox.check()


def test_a_program_in_namespaces_ends_as_any_other(namespaces):
    sandbox = forkless.Sandbox()
    for line, code in (("exit 7", 7), ("kill -TERM $$", -15), ("kill -KILL $$", -9), ("ulimit -c 0; kill -SEGV $$", -11)):
        args = ["sh", "-c", line]
        assert forkless.run(args, sandbox=sandbox, cwd="/").returncode == code
        assert forkless.run(args, sandbox=sandbox, cwd="/", timeout=50, input=b"").returncode == code
        assert forkless.prepare(args, sandbox=sandbox, cwd="/").run().returncode == code
        child = forkless.Popen(args, sandbox=sandbox, cwd="/")
        while child.poll() is None:
            pass
        assert child.returncode == code and child.usage.ru_maxrss > 0

        async def ended():
            child = await forkless.asyncio.create_subprocess_exec(*args, sandbox=sandbox, cwd="/")
            return await child.wait()

        assert asyncio.run(ended()) == code
    # Reaped by other code, as a handler of SIGCHLD does: init has told the handle before.
    child = forkless.Popen(["sh", "-c", "kill -TERM $$"], sandbox=sandbox, cwd="/")
    os.waitpid(child.pid, 0)
    assert child.wait() == -15
    with pytest.raises(forkless.TimeoutExpired):
        forkless.run(["sh", "-c", "(setsid sleep 600 &); sleep 600"], sandbox=sandbox, cwd="/", timeout=0.1, stdout=PIPE)
    with forkless.Popen(["sleep", "600"], sandbox=True, cwd="/") as child:
        child.terminate()
    assert child.returncode == -15


def test_errors_in_namespaces_are_those_of_any_launch(namespaces, tmp_path):
    for program, kind in (("/no/such", FileNotFoundError), ("no-such", FileNotFoundError), ("/etc/passwd", PermissionError)):
        for start in (forkless.run, forkless.Popen):
            with pytest.raises(kind) as caught:
                start([program], sandbox=True, cwd="/")
            assert caught.value.filename == program
    # subprocess goes on after any failure, and reports the first that is more than absence.
    with pytest.raises(PermissionError):
        forkless.run(["passwd"], sandbox=True, cwd="/", env={"PATH": "/no/such:/etc:/usr/lib"})
    program = tmp_path / "true"
    program.write_text("neither text nor a program\0")
    for directory in (tmp_path, *list(tmp_path.parents)[:2]):
        directory.chmod(0o755)
    program.chmod(0o755)
    sandbox = forkless.Sandbox(read=tmp_path)
    path = f"/no/such:{tmp_path}:/usr/bin:/bin"
    assert forkless.run(["true"], sandbox=sandbox, cwd="/", env={"PATH": path}).returncode == 0
    with pytest.raises(OSError) as caught:
        forkless.run(["true"], sandbox=sandbox, cwd="/", env={"PATH": f"{tmp_path}:/no/such"})
    assert caught.value.errno == errno.ENOEXEC
    with pytest.raises(FileNotFoundError) as caught:
        forkless.run(["true"], sandbox=True, cwd=tmp_path)
    assert caught.value.filename == tmp_path and "read(" in str(caught.value.detail)
    assert forkless.run(["sh", "-c", "test -d /home"], sandbox=False, cwd="/").returncode == 0


def test_the_loop_goes_on_while_a_sandbox_is_made(mode):
    sandbox = forkless.Sandbox(mode=mode)

    async def cancelled():
        launches = [asyncio.ensure_future(forkless.asyncio.create_subprocess_exec("sleep", "600", sandbox=sandbox, cwd="/")) for _ in range(4)]
        await asyncio.sleep(0)
        for launch in launches:
            launch.cancel()
        ends = await asyncio.gather(*launches, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        # An error comes as from any launch.
        with pytest.raises(FileNotFoundError) as caught:
            await forkless.asyncio.create_subprocess_exec("/no/such", sandbox=sandbox, cwd="/")
        assert caught.value.filename == "/no/such"
        child = await forkless.asyncio.create_subprocess_exec("sh", "-c", "exit 5", sandbox=sandbox, cwd="/")
        assert await child.wait() == 5

    asyncio.run(cancelled())
    while forkless.reap_orphans():
        pass


def test_what_is_obeyed_outside_stays_read_only_in_a_project(namespaces, places):
    project, _ = places
    (project / ".git" / "hooks").mkdir(parents=True)
    for place in (project / ".git", project / ".git" / "hooks"):
        place.chmod(0o777)
    line = "echo > .git/hooks/a || mv .git x || echo > .git/b && echo written"
    done = forkless.run(line, shell=True, sandbox=forkless.Sandbox(project=project), **{**TEXT, "cwd": project})
    assert done.stdout == b"written\n" and os.listdir(project / ".git" / "hooks") == []
    with pytest.raises(OSError, match="namespaces"):
        forkless.Sandbox(mode="landlock", project=project)
    for name in (".env", ".git/.env", "key"):
        (project / name).write_text("secret")
    sandbox = forkless.Sandbox(project=project, hide=["**/.env", project / "key"])
    done = forkless.run("cat .env .git/.env key 2>&1", shell=True, sandbox=sandbox, **{**TEXT, "cwd": project})
    assert done.returncode == 1 and done.stdout.count(b"Permission denied") == 3


def test_other_processes_have_a_while_when_the_program_has_ended(namespaces):
    line = ["sh", "-c", "(sleep 0.05; echo late) & echo done"]
    for words, output in (({}, b"done\nlate\n"), ({"linger": 5}, b"done\nlate\n"), ({"linger": 0}, b"done\n")):
        assert forkless.run(line, sandbox=forkless.Sandbox(**words), **TEXT).stdout == output
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="number of seconds"):
            forkless.Sandbox(linger=wrong)
    with pytest.raises(OSError, match="needs namespaces"):
        forkless.Sandbox(mode="landlock", linger=1)


def test_without_an_init_the_program_is_the_first_process(namespaces):
    sandbox = forkless.Sandbox(init=False)
    done = forkless.run("echo $$ /proc/[0-9]*; (setsid sleep 600 &) & exit 7", shell=True, sandbox=sandbox, **TEXT)
    assert (done.returncode, done.stdout) == (7, b"1 /proc/1\n")
    child = forkless.Popen(["sleep", "600"], sandbox=sandbox, cwd="/")
    child.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.1)
    child.kill()
    assert child.wait() == -9
    for words in ({"linger": 1}, {"mode": "landlock"}):
        with pytest.raises(OSError, match=r"init\(false\)"):
            forkless.Sandbox(init=False, **words)


def test_a_death_signal_ends_a_program_without_an_init_with_its_caller(namespaces):
    line = "import forkless, os; forkless.Popen(['sh', '-c', 'echo ready; sleep 600'], sandbox=forkless.Sandbox(init=False), cwd='/', parent_death_signal=9)"
    caller = subprocess.run([sys.executable, "-c", line], stdout=subprocess.PIPE, timeout=30, check=True)
    # The program held the pipe.
    assert caller.stdout in (b"", b"ready\n")


def test_where_no_program_may_be_in_memory_there_needs_to_be_no_init(namespaces):
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", 'echo 2 >/proc/sys/vm/memfd_noexec && exec "$@"', "sh"]
    if subprocess.run([*inside, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("SKIPPED: vm.memfd_noexec, because it is for root, from Linux 6.3 on")
    line = "import forkless; print(forkless.run('echo $$', shell=True, sandbox=forkless.Sandbox(init=%s), cwd='/', stdout=-1).stdout)"
    done = [subprocess.run([*inside, sys.executable, "-c", line % init], capture_output=True) for init in (True, False)]
    assert b"vm.memfd_noexec; init(false) needs" in done[0].stderr and done[1].stdout == b"b'1\\n'\n", done


def test_strict_executes_nothing_that_the_program_has_written(namespaces):
    with pytest.raises(OSError, match="strict is for namespaces"):
        forkless.Sandbox(mode="landlock", strict=True)
    try:
        sandbox = forkless.Sandbox(strict=True)
    except OSError as error:
        assert error.errno in (errno.EOPNOTSUPP, None)
        return
    line = ["sh", "-c", "cp /bin/true /tmp/true && /tmp/true 2>/dev/null || echo $?"]
    assert forkless.run(line, sandbox=sandbox, **TEXT).stdout == b"126\n"
