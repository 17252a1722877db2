"""Tests of `forkless.Cgroup`. Limits need controllers of version 2, which a machine with those of version 1 does not hand down."""

import asyncio
import os
import pathlib
import signal
import subprocess
import threading

import pytest

import forkless
import forkless.asyncio


@pytest.fixture
def parent():
    for place in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        if os.path.exists(f"{place}/cgroup.procs") and os.access(place, os.W_OK):
            return place
    try:
        with forkless.Cgroup() as group:
            return os.path.dirname(group.path)
    except OSError as error:
        pytest.skip(f"cgroups, because {error}")


def test_a_program_starts_in_it_and_what_is_left_ends_with_it(parent):
    with forkless.Cgroup(parent) as group:
        name = os.path.basename(group.path)
        assert name in repr(group) and not group.get("cgroup.procs")
        seen = forkless.run(["cat", "/proc/self/cgroup"], cgroup=group, stdout=forkless.PIPE)
        assert f"/{name}\n" in seen.stdout.decode()
        child = forkless.Popen(["sh", "-c", "trap '' TERM; setsid sleep 600 & sleep 600"], cgroup=group)
        assert group.counters("cgroup.events")["populated"] == 1
        group.freeze()
        group.thaw()
        assert group.wait_empty(0.01) is False
    assert child.wait() == -9 and not os.path.exists(group.path)
    for use in (group.kill, group.fileno, lambda: group.get("cgroup.procs")):
        with pytest.raises(ValueError, match="removed"):
            use()
    group.close()


def test_its_processes_are_asked_to_end_and_then_killed(parent):
    def interrupt(*_):
        raise InterruptedError

    group = forkless.Cgroup(pathlib.Path(parent))
    polite = forkless.Popen(["sleep", "600"], cgroup=group)
    assert group.terminate(60) is True and polite.wait() == -15
    with forkless.Popen(["sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done"], cgroup=group, stdout=forkless.PIPE) as stubborn:
        stubborn.stdout.readline()
        waits = threading.Thread(target=group.wait_empty)
        waits.start()
        # A handler of a signal runs while it waits.
        old = signal.signal(signal.SIGUSR2, interrupt)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR2)).start()
        with pytest.raises(InterruptedError):
            group.terminate(60)
        signal.signal(signal.SIGUSR2, old)
        assert group.terminate(0.05) is False and stubborn.wait() == -9
    waits.join()
    group.close()
    assert not os.path.exists(group.path)


@pytest.mark.parametrize("words, file, value", [
    ({"memory_max": "64M"}, "memory.max", str(64 << 20)),
    ({"memory_max": 64 << 20, "memory_swap_max": 0}, "memory.swap.max", "0"),
    ({"tasks_max": 20}, "pids.max", "20"),
    ({"cpu_max": 1.5}, "cpu.max", "150000 100000"),
    ({"cpu_weight": 50}, "cpu.weight", "50"),
])  # fmt: skip
def test_limits(parent, words, file, value):
    try:
        group = forkless.Cgroup(parent, **words)
    except OSError as error:
        assert "no controller" in str(error)
        pytest.skip(f"a limit of a cgroup, because {error}")
    with group:
        assert group.get(file) == value
        if file == "memory.max":
            hungry = forkless.run(["python3", "-c", "bytearray(1 << 30)"], cgroup=group)
            assert hungry.returncode == -9 and group.oom_kills() > 0
        assert group.cpu_time() >= 0


def test_bad_values_are_errors_that_name_them(parent):
    with pytest.raises(FileNotFoundError, match="/no/such"):
        forkless.Cgroup("/no/such/place")
    with pytest.raises(OSError, match="not a cgroup"):
        forkless.Cgroup("/tmp")
    for cpus in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="cpu_max"):
            forkless.Cgroup(parent, cpu_max=cpus)
    for words in ({"memory": 1}, {"tasks_max": "x"}):
        with pytest.raises(TypeError):
            forkless.Cgroup(parent, **words)
    with forkless.Cgroup(parent) as group, pytest.raises(OSError):
        group.get("no.such.file")


def groups_in(parent):
    return [name for name in os.listdir(parent) if name.startswith(f"forkless-{os.getpid()}")]


LEAVES = "setsid sleep 600 & echo done"


def test_a_launch_with_a_cgroup_of_its_own_leaves_nothing(parent):
    # What it leaves holds the pipe.
    done = forkless.run(["sh", "-c", LEAVES], stdout=forkless.PIPE, cgroup_parent=parent)
    assert done.stdout == b"done\n" and done.limit_events == {"oom_kills": 0, "memory_max": 0, "tasks_max": 0}
    assert forkless.check_output(["sh", "-c", LEAVES], text=True, cgroup_parent=pathlib.Path(parent)) == "done\n"
    assert forkless.run(["sh", "-c", LEAVES], capture_output=True, memory_file=True, cgroup_parent=parent).stdout == b"done\n"
    piped = forkless.run_pipeline(["sh", "-c", LEAVES], ["cat"], stdout=forkless.PIPE, cgroup_parent=parent)
    assert piped.stdout == b"done\n"
    with forkless.Popen(["sh", "-c", LEAVES], stdout=forkless.PIPE, cgroup_parent=parent) as child:
        assert child.stdout.read() == b"done\n"
    with forkless.prepare(["sh", "-c", LEAVES], stdout=forkless.PIPE, cgroup_parent=parent).spawn() as child:
        assert child.wait() == 0 and child.limit_events["oom_kills"] == 0
    for sandbox in (forkless.Sandbox(), forkless.Sandbox(mode="landlock")):
        try:
            sandbox.check()
        except OSError:
            continue
        done = forkless.run(["sh", "-c", LEAVES], stdout=forkless.PIPE, cgroup_parent=parent, sandbox=sandbox, cwd="/")
        assert done.stdout == b"done\n" and done.limit_events["oom_kills"] == 0
        # As a part of the sandbox.
        sandbox = forkless.Sandbox(mode="landlock", cgroup_parent=parent, tasks_max=None)
        done = forkless.run(["sh", "-c", LEAVES], stdout=forkless.PIPE, sandbox=sandbox, cwd="/")
        assert done.stdout == b"done\n" and done.limit_events["oom_kills"] == 0
    with pytest.raises(TypeError, match="unexpected keyword argument 'memory'"):
        forkless.Sandbox(memory=1)
    with pytest.raises(OSError, match="tasks_max must be"):
        forkless.Sandbox(tasks_max="many")
    assert not groups_in(parent)


def test_a_kill_and_a_timeout_end_all_of_a_launch(parent):
    line = "trap '' TERM; setsid sleep 600 & sleep 600; sleep 600"
    with pytest.raises(subprocess.TimeoutExpired):
        forkless.run(["sh", "-c", line], stdout=forkless.PIPE, timeout=0.2, cgroup_parent=parent)
    assert not groups_in(parent)
    for kill in (lambda child: child.kill(), lambda child: child.signal_group(9)):
        child = forkless.Popen(["sh", "-c", line], start_new_session=True, cgroup_parent=parent)
        assert groups_in(parent)
        kill(child)
        assert child.wait() == -9 and not groups_in(parent)


def test_a_child_is_not_lost_where_no_thread_can_be_made(parent, monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    child = forkless.Popen(["sh", "-c", LEAVES], stdout=forkless.DEVNULL, cgroup_parent=parent)
    assert child.wait() == 0 and not groups_in(parent)


def test_a_launch_of_asyncio_leaves_nothing(parent):
    async def output():
        child = await forkless.asyncio.create_subprocess_exec("sh", "-c", LEAVES, stdout=forkless.PIPE, cgroup_parent=parent)
        return await child.communicate()

    assert asyncio.run(output())[0] == b"done\n" and not groups_in(parent)


def test_limits_of_a_launch(parent):
    try:
        done = forkless.run(["sh", "-c", "for n in 1 2 3 4 5 6; do sleep 1 & done; exit 0"], tasks_max=3, cgroup_parent=parent)
    except OSError as error:
        pytest.skip(f"limits, because {error}")
    assert done.limit_events["tasks_max"] > 0


@pytest.mark.parametrize("words", [
    {"memory_max": "lots"}, {"memory_max": -1}, {"tasks_max": 1.5}, {"cpu_max": "150%"}, {"io_max": "10M"},
])  # fmt: skip
def test_a_limit_that_is_none_is_an_error(words):
    with pytest.raises(ValueError, match=f"{next(iter(words))} must be"):
        forkless.run(["true"], **words)
    with pytest.raises(TypeError, match="a number, or a str"):
        forkless.run(["true"], **{name: [1] for name in words})


def test_a_launch_that_can_have_no_limits_says_why(tmp_path):
    with pytest.raises(OSError) as caught:
        forkless.run(["true"], memory_max="1M", cgroup_parent=tmp_path)
    # Python 3.11 shows it as a note, too.
    assert "not a cgroup of version 2" in caught.value.detail
    child = forkless.Popen(["true"], memory_max="1M", cgroup_parent=tmp_path, best_effort=["make a cgroup for limits"])
    assert child.wait() == 0
