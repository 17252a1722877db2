"""Tests of keywords that subprocess does not have."""

import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time

import pytest

import forkless

PIPE = forkless.PIPE
AS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not AS_ROOT, reason="it needs root")


def says(line, **settings):
    """The output of a shell that is started with these keywords."""
    return forkless.run(["sh", "-c", line], stdout=PIPE, text=True, check=True, **settings).stdout.strip()


def user_namespaces():
    done = subprocess.run(["unshare", "--user", "true"], stderr=subprocess.DEVNULL)
    return done.returncode == 0


def test_limits_and_scheduling_settings_take_effect():
    assert says("nice", nice=17) == "17"
    assert says("ulimit -Sn; ulimit -Hn", rlimits={resource.RLIMIT_NOFILE: (20, 30)}).split() == ["20", "30"]
    assert says("ulimit -c", rlimits={"core": 0}) == "0"
    assert says("ulimit -s", rlimits={"stack": (resource.RLIM_INFINITY, resource.RLIM_INFINITY)} if AS_ROOT else None)
    cpu = min(os.sched_getaffinity(0))
    assert says("grep Cpus_allowed_list /proc/self/status", cpu_affinity=[cpu]).split()[1] == str(cpu)
    assert says("cat /proc/self/oom_score_adj", oom_score_adj=500) == "500"
    assert int(says("awk '{print $41}' /proc/self/stat", scheduler=("batch", 0))) == os.SCHED_BATCH
    assert int(says("awk '{print $41}' /proc/self/stat", scheduler=(os.SCHED_IDLE, 0))) == os.SCHED_IDLE


def test_group_session_and_signal_settings_take_effect():
    assert says("cut -d' ' -f1,5,6 /proc/self/stat", process_group=0) != ""
    own = says("ps -o pid=,pgid=,sid= -p $$", start_new_session=True).split()
    assert len(set(own)) == 1
    ignored = int(says("grep SigIgn /proc/self/status", ignore_signals=[signal.SIGUSR1]).split()[1], 16)
    assert ignored & 1 << signal.SIGUSR1 - 1
    # The interpreter ignores both, and programs expect them at their default.
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)
    assert blocked_signals(block_signals=[signal.SIGUSR2]) == 1 << signal.SIGUSR2 - 1


def test_return_code_of_a_signal_and_unread_input():
    assert forkless.run(["sh", "-c", "kill -TERM $$"]).returncode == -signal.SIGTERM
    assert forkless.run(["true"], input=b"x" * 1000000).returncode == 0


def blocked_signals(**settings):
    """Reads the signal mask without a shell, which might change it."""
    done = forkless.run(["grep", "SigBlk", "/proc/self/status"], stdout=PIPE, **settings)
    return int(done.stdout.split()[1], 16)


def test_the_signal_mask_is_inherited():
    old = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        blocked = blocked_signals()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
    assert blocked == 1 << signal.SIGUSR1 - 1


def test_fds_places_descriptors_by_number():
    with tempfile.TemporaryFile() as file:
        forkless.run(["sh", "-c", "echo seven >&7; echo nine >&9"], fds={7: file, 9: file.fileno()}, check=True)
        file.seek(0)
        assert file.read() == b"seven\nnine\n"
    assert forkless.run(["sh", "-c", "echo lost >&5"], fds={5: forkless.DEVNULL}).returncode == 0
    # No other descriptor is open.
    listed = says("ls /proc/self/fd", fds={5: forkless.DEVNULL}).split()
    assert set(listed) <= {"0", "1", "2", "3", "5"}


def test_program_fd_executes_a_descriptor():
    fd = os.open("/bin/echo", os.O_RDONLY)
    try:
        done = forkless.run(["anything", "hello"], executable_fd=fd, stdout=PIPE)
    finally:
        os.close(fd)
    assert done.stdout == b"hello\n"


def test_new_namespaces():
    if not user_namespaces():
        pytest.skip("user namespaces are refused")
    maps = {"uid_map": [(0, os.getuid(), 1)], "gid_map": [(0, os.getgid(), 1)]}
    words = says("id -u; hostname; echo $$", unshare=["user", "uts", "pid"], hostname="inner", **maps).split()
    assert words == ["0", "inner", "1"]
    with tempfile.TemporaryDirectory() as directory:
        mounts = [("tmpfs", directory, "size=1m"), ("dir", f"{directory}/a", 0o755), ("symlink", "a", f"{directory}/b")]
        listed = says(f"ls {directory}", unshare=["user", "mount"], mounts=mounts, **maps)
        assert listed.split() == ["a", "b"] and os.listdir(directory) == []
        if tuple(map(int, os.uname().release.split(".")[:2])) < (5, 12):
            pytest.skip("mount_setattr(2) needs Linux 5.12")
        mounts = [("bind_read_only", directory, directory)]
        line = f"touch {directory}/x 2>/dev/null || echo refused"
        assert says(line, unshare=["user", "mount"], mounts=mounts, **maps) == "refused"


def test_join_enters_a_namespace():
    if not AS_ROOT:
        pytest.skip("it needs root")
    with forkless.Popen(["sleep", "30"], unshare=["uts"], hostname="other") as holder:
        try:
            assert says("hostname", join={"uts": f"/proc/{holder.pid}/ns/uts"}) == "other"
        finally:
            holder.kill()


def test_seccomp_and_no_new_privs_take_effect():
    # uname fails with EPERM, the rest is allowed: load the number, compare, return.
    uname = {"x86_64": 63, "aarch64": 160}[os.uname().machine]
    instructions = [(0x20, 0, 0, 0), (0x15, 0, 1, uname), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
    filter = b"".join(struct.pack("HBBI", *one) for one in instructions)
    done = forkless.run(["uname"], no_new_privs=True, seccomp=filter, capture_output=True, text=True)
    assert done.returncode == 1 and "not permitted" in done.stderr
    assert says("grep NoNewPrivs /proc/self/status", no_new_privs=True).split()[1] == "1"


def test_capability_sets_take_effect():
    if not AS_ROOT:
        pytest.skip("it needs root")
    bounding = int(says("grep CapBnd /proc/self/status", bounding_set=["CAP_KILL", "chown"]).split()[1], 16)
    assert bounding == 1 << 5 | 1 << 0
    assert int(says("grep CapBnd /proc/self/status", bounding_set=0).split()[1], 16) == 0


def test_the_child_starts_in_a_cgroup():
    if not AS_ROOT or not os.path.exists("/sys/fs/cgroup/cgroup.procs"):
        pytest.skip("it needs root and a hierarchy of version 2")
    own = f"/sys/fs/cgroup/forkless-python-{os.getpid()}"
    try:
        os.mkdir(own)
    except OSError as error:
        pytest.skip(f"no group can be made: {error}")
    try:
        assert says("cat /proc/self/cgroup", cgroup=own).rpartition("/")[2] == os.path.basename(own)
    finally:
        os.rmdir(own)


def test_a_user_change_keeps_groups_that_are_not_given():
    if not AS_ROOT:
        pytest.skip("it needs root")
    own = os.getgroups()
    os.setgroups([7, 8])
    try:
        for words in ({"user": 65534}, {"user": 65534, "group": 65534}, {"user": 65534, "extra_groups": [9]}):
            theirs = subprocess.run(["id", "-G"], stdout=PIPE, **words).stdout
            assert forkless.run(["id", "-G"], stdout=PIPE, **words).stdout == theirs != b""
    finally:
        os.setgroups(own)


def test_cwd_is_entered_before_the_user_changes():
    if not AS_ROOT:
        pytest.skip("it needs root")
    with tempfile.TemporaryDirectory() as directory:  # of mode 0700
        for module in (subprocess, forkless):
            done = module.run(["/bin/pwd"], cwd=directory, user=65534, capture_output=True, text=True)
            assert (done.returncode, done.stdout.strip()) == (0, directory)


def test_parent_death_signal_kills_the_child():
    with forkless.Popen([sys.executable, "-c", DIES_FIRST], stdout=PIPE, text=True, close_fds=True) as parent:
        pid = int(parent.stdout.readline())
    deadline = time.monotonic() + 20
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(pid)


DIES_FIRST = """
import forkless, os, signal
child = forkless.Popen(["sleep", "60"], parent_death_signal=signal.SIGKILL, stdout=forkless.DEVNULL)
print(child.pid, flush=True)
os._exit(0)
"""


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_best_effort_step_may_fail():
    done = forkless.prepare(["sh", "-c", "nice"], nice=19, rlimits={"nofile": (10, 1 << 40)}, best_effort=["set the limit"])
    with done.spawn() as child:
        assert child.wait() == 0
        assert len(child.skipped) == 1 and "nofile" in child.skipped[0]
    with pytest.raises(ValueError, match="no step"):
        forkless.run(["true"], best_effort=["no such thing"])


def test_launchers_have_names():
    for launcher in ("clone", "fork", "posix_spawn"):
        # posix_spawn closes no descriptors before glibc 2.34.
        assert says("echo hello", launcher=launcher, close_fds=launcher != "posix_spawn") == "hello"
    with forkless.prepare(["true"], launcher="fork").spawn() as child:
        assert "fork" in child.route


def test_kill_group_kills_the_whole_group():
    line = "sleep 60 & echo $!; wait"
    with forkless.Popen(["sh", "-c", line], stdout=PIPE, text=True, kill_group=True) as shell:
        grandchild = int(shell.stdout.readline())
        shell.kill()
    assert shell.returncode == -signal.SIGKILL
    wait_for_end(grandchild)
    with forkless.Popen(["sh", "-c", line], stdout=PIPE, text=True, start_new_session=True) as shell:
        grandchild = int(shell.stdout.readline())
        assert shell.terminate_group(10) == -signal.SIGTERM
    wait_for_end(grandchild)


def at_the_time_out(*args, **words):
    """The output at the timeout; repeated with a longer timeout if there was none."""
    for limit in (0.2, 1, 5, 10):
        with pytest.raises(forkless.TimeoutExpired) as caught:
            forkless.run(*args, timeout=limit, **words)
        if caught.value.stdout:
            break
    return caught.value.stdout


def test_a_timeout_with_kill_group_kills_the_whole_group():
    # The shell ends, but a process that it started keeps the pipe open.
    wait_for_end(int(at_the_time_out(["sh", "-c", "sleep 50 & echo $!"], stdout=PIPE, kill_group=True)))


TREE = "(setsid sleep 50 & echo $!); sleep 50; sleep 50"


def test_kill_tree_ends_all_that_was_started():
    try:
        forkless.run(["true"], kill_tree=True)
    except OSError as error:
        assert "Landlock" in str(error)
        pytest.skip(f"kill_tree: {error}")
    words = {"stdout": PIPE, "text": True, "kill_tree": True}
    for end in (
        forkless.Popen.kill,
        lambda shell: shell.send_signal(signal.SIGKILL),
        lambda shell: shell.signal_group(signal.SIGKILL),
        lambda shell: shell.terminate_group(0, signal.SIGCONT),
    ):
        for more in ({}, {"kill_group": True}, {"sandbox": forkless.Sandbox(mode="landlock")}):
            # A sandbox makes it a session; else the group would be ours.
            if "signal_group" in end.__code__.co_names or "terminate_group" in end.__code__.co_names:
                more = {"kill_group": True}
            with forkless.Popen(["sh", "-c", TREE], cwd="/", **words, **more) as shell:
                grandchild = int(shell.stdout.readline())
                end(shell)
            assert shell.wait() == -signal.SIGKILL and not is_running(grandchild)
    # A process that has left the session keeps the pipe open.
    assert not is_running(int(at_the_time_out(["sh", "-c", TREE], stdout=PIPE, kill_tree=True)))
    with pytest.raises(forkless.CalledProcessError) as caught:
        forkless.run(["sh", "-c", "setsid sleep 50 & echo $!; sleep 0.2; exit 3"], check=True, **words)
    assert caught.value.returncode == 3 and not is_running(int(caught.value.stdout))
    with forkless.prepare(["sh", "-c", TREE], kill_tree=True, stdout=PIPE).spawn() as child:
        grandchild = int(child.stdout.readline())
        child.kill()
        assert child.wait() == -signal.SIGKILL and not is_running(grandchild)


def wait_for_end(pid):
    deadline = time.monotonic() + 20
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_memory_file_captures_output():
    done = forkless.run(["sh", "-c", "yes | head -c 5000000; echo no >&2"], capture_output=True, memory_file=True)
    assert len(done.stdout) == 5_000_000 and done.stderr == b"no\n"
    done = forkless.run("echo héllo", shell=True, capture_output=True, memory_file=True, encoding="utf-8", check=True)
    assert done.stdout == "héllo\n" and done.stderr == ""
    early = at_the_time_out("echo early; sleep 60", shell=True, capture_output=True, memory_file=True)
    assert early == b"early\n"
    with pytest.raises(forkless.CalledProcessError) as caught:
        forkless.run("echo out; exit 3", shell=True, capture_output=True, memory_file=True, check=True)
    assert caught.value.stdout == b"out\n"


def test_max_output_keeps_both_ends_of_long_output():
    done = forkless.run("seq 1 100000; echo no >&2", shell=True, capture_output=True, max_output=20)
    assert done.stdout == b"1\n2\n3\n4\n5\n\n[... 588875 bytes left out ...]\n99\n100000\n"
    assert (done.stdout_cut, done.stderr, done.stderr_cut) == (588875, b"no\n", 0)
    assert isinstance(done, forkless.CompletedProcess) and done.returncode == 0
    # Exactly as long, and one byte longer.
    for length, cut in ((20, 0), (21, 1)):
        done = forkless.run(["head", "-c", str(length), "/dev/zero"], stdout=PIPE, max_output=20)
        assert (done.stdout_cut, done.stdout.count(b"\0"), done.stderr) == (cut, 20, None)
    # No half letters.
    done = forkless.run(["printf", "%s", "é" * 50], capture_output=True, max_output=7, text=True, encoding="utf-8")
    assert done.stdout == "éé\n[... 94 bytes left out ...]\né"
    # More input and output than pipes hold, at the same time.
    done = forkless.run(["cat"], input=b"x" * 3_000_000, capture_output=True, max_output=1_000_000)
    assert done.stdout_cut == 2_000_000 and done.stdout.count(b"x") == 1_000_000
    assert forkless.run(["cat"], input="é", capture_output=True, max_output=10, encoding="utf-8").stdout == "é"
    assert forkless.run(["true"], input=b"x" * 1_000_000, capture_output=True, max_output=10).returncode == 0
    assert forkless.check_output(["seq", "9"], max_output=2) == b"1\n[... 16 bytes left out ...]\n\n"


def test_max_output_ends_as_without_it():
    early = at_the_time_out("seq 1 1000; sleep 60", shell=True, capture_output=True, max_output=2, kill_group=True)
    assert early == b"1\n[... 3891 bytes left out ...]\n\n"
    with pytest.raises(forkless.CalledProcessError) as caught:
        forkless.run("echo out; exit 3", shell=True, capture_output=True, max_output=100, check=True)
    assert caught.value.stdout == b"out\n"
    with pytest.raises(FileNotFoundError):
        forkless.run(["/no/such/program"], capture_output=True, max_output=100)
    for words in ({"max_output": 0}, {"max_output": "1K"}, {"max_output": True}, {"max_output": 5, "memory_file": True}):
        with pytest.raises(ValueError, match="max_output"):
            forkless.run(["true"], capture_output=True, **words)
    with pytest.raises(ValueError, match="capture_output"):
        forkless.run(["true"], max_output=5)


def test_a_prepared_command_runs_repeatedly():
    env = {"WHO": "me", "PATH": "/bin"}
    prepared = forkless.prepare(["sh", "-c", "read word; echo $word $WHO; exit 3"], stdin=PIPE, stdout=PIPE, env=env)
    for word in (b"one", b"two"):
        done = prepared.run(input=word + b"\n")
        assert (done.returncode, done.stdout, done.stderr) == (3, word + b" me\n", None)
    with prepared.spawn() as child:
        child.stdin.write(b"three\n")
        assert child.stdout.read() == b"three me\n" and child.wait() == 3 and child.returncode == 3
    assert child.usage["wall_time"] > 0 and prepared.steps()[-1].startswith("exec")
    with pytest.raises(forkless.CalledProcessError):
        prepared.run(input=b"x\n", check=True)


def test_a_failed_launch_is_reported_by_the_handle():
    """The launch may already have failed when the call returns."""
    with pytest.raises(FileNotFoundError) as caught:
        forkless.prepare(["/no/such/program"]).launch().wait()
    assert caught.value.filename == "/no/such/program"
    with pytest.raises(FileNotFoundError) as caught:
        forkless.prepare(["true"], cwd="/no/such/directory").launch().wait_exec()
    assert caught.value.filename == "/no/such/directory" and caught.value.step == "chdir"


def test_waiting_for_a_handle_with_a_timeout():
    with forkless.prepare(["sleep", "60"]).spawn() as child:
        assert child.poll() is None
        with pytest.raises(forkless.TimeoutExpired):
            child.wait(0.05)
        child.terminate()
        assert child.wait(20) == -signal.SIGTERM
        child.send_signal(signal.SIGKILL)  # nothing happens


def test_usage_of_an_ended_child():
    child = forkless.Popen(["sh", "-c", "exit 4"])
    assert child.usage is None and child.wait() == 4
    assert child.usage.ru_maxrss > 0 and isinstance(child.usage, resource.struct_rusage)


def test_fileno_is_readable_when_the_child_has_ended():
    import select

    child = forkless.Popen(["sh", "-c", "sleep 0.05"])
    assert select.select([child], [], [], 20)[0] == [child]
    assert child.wait() == 0
    del child


@pytest.mark.parametrize(
    "words",
    [
        {"nice": 99},
        {"rlimits": {"nofile": -7}},
        {"unshare": ["nothing"]},
        {"unshare": 5},
        {"uid_map": [(0, 0)]},
        {"hostname": "x"},
        {"mounts": [("teleport", "/")]},
        {"mounts": [("tmpfs",)]},
        {"seccomp": b"1234567"},
        {"seccomp": "text"},
        {"bounding_set": "CAP_KILL"},
        {"bounding_set": ["CAP_NOTHING"]},
        {"fds": {-4: 0}},
        {"fds": {5: -9}},
        {"fds": {5: "name"}},
        {"fds": [5]},
        {"cgroup": "/no/such/group"},
        {"landlock": 999_999},
        {"controlling_terminal": 0},
        {"parent_death_signal": 99},
        {"ignore_signals": [signal.SIGKILL]},
        {"ignore_signals": [1000]},
        {"launcher": "rocket"},
        {"cpu_affinity": []},
        {"retry_busy": -1},
        {"nothing_of_that_name": 1},
        {"nice": 1, "preexec_fn": print},
    ],
)
@pytest.mark.filterwarnings("ignore::forkless.PreexecWarning")
def test_bad_settings_are_refused(words):
    with pytest.raises((ValueError, TypeError, OSError, OverflowError)):
        forkless.Popen(["true"], **words)
