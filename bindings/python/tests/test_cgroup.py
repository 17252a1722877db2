"""Tests of `forkless.Cgroup`. Limits need controllers of version 2, which a machine with those of version 1 does not hand down."""

import os
import pathlib
import threading

import pytest

import forkless


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
    group = forkless.Cgroup(pathlib.Path(parent))
    polite = forkless.Popen(["sleep", "600"], cgroup=group)
    assert group.terminate(60) is True and polite.wait() == -15
    with forkless.Popen(["sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done"], cgroup=group, stdout=forkless.PIPE) as stubborn:
        stubborn.stdout.readline()
        waits = threading.Thread(target=group.wait_empty)
        waits.start()
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
