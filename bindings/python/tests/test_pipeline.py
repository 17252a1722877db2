"""Tests of `forkless.Pipeline` and `run_pipeline`."""

import os
import signal
import subprocess
import time

import pytest

import forkless
from forkless import PIPE, STDOUT, Pipeline, run_pipeline


def test_each_reads_what_the_one_before_writes():
    done = run_pipeline(["sort"], ["uniq", "-c"], ["sed", "s/ *//"], input="b\na\nb\n", capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr, done.returncode, done.returncodes) == ("1 a\n2 b\n", "", 0, [0, 0, 0])
    assert done.args == [["sort"], ["uniq", "-c"], ["sed", "s/ *//"]]
    assert run_pipeline(["cat"], input=b"one", stdout=PIPE).stdout == b"one"
    much = bytes(range(256)) * 20000
    assert run_pipeline(["cat"], ["cat"], ["cat"], input=much, stdout=PIPE).stdout == much


def test_a_program_ends_when_the_next_one_does():
    done = run_pipeline(["yes"], ["head", "-n", "1"], stdout=PIPE, timeout=50)
    assert (done.stdout, done.returncode, done.returncodes) == (b"y\n", 0, [-signal.SIGPIPE, 0])
    # And none has an end of a pipe that is not its own.
    done = run_pipeline(["true"], ["ls", "/proc/self/fd"], ["cat"], stdout=PIPE)
    assert done.stdout == b"0\n1\n2\n3\n"


def test_how_it_fails():
    assert run_pipeline(["false"], ["true"]).returncode == 0
    done = run_pipeline(["sh", "-c", "exit 3"], ["sh", "-c", "exit 4"], ["true"], pipefail=True)
    assert (done.returncode, done.returncodes) == (4, [3, 4, 0])
    with pytest.raises(subprocess.CalledProcessError) as raised:
        run_pipeline(["false"], ["true"], pipefail=True, check=True)
    assert raised.value.returncode == 1 and raised.value.cmd == [["false"], ["true"]]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_that_cannot_be_started_ends_all(place):
    programs = [["sleep", "60"], ["sleep", "60"], ["sleep", "60"]]
    programs[place] = ["/nonexistent/program"]
    with pytest.raises(FileNotFoundError, match="/nonexistent/program"):
        Pipeline(*programs, stdin=PIPE, stdout=PIPE, stderr=PIPE)


def test_standard_errors():
    programs = [["sh", "-c", "echo one >&2"], ["sh", "-c", "cat; echo two >&2"]]
    done = run_pipeline(*programs, capture_output=True)
    assert done.stdout == b"" and sorted(done.stderr.split()) == [b"one", b"two"]
    done = run_pipeline(*programs, stdout=PIPE, stderr=STDOUT)
    assert sorted(done.stdout.split()) == [b"one", b"two"] and done.stderr is None


def test_settings_of_all_and_of_one():
    words = ["sh", "-c", "cat; echo $X $(nice) $PWD"]
    done = run_pipeline({"args": words, "env": {"X": "1"}, "cwd": "/usr"}, {"args": words, "nice": 7}, env={"X": "2"}, cwd="/", nice=5, stdout=PIPE)
    assert done.stdout == b"1 5 /usr\n2 7 /\n"
    for wrong in ({}, {"args": ["true"], "stdin": PIPE}):
        with pytest.raises(ValueError, match="of a pipeline|a pipeline needs"):
            run_pipeline(["true"], wrong)
    with pytest.raises(ValueError, match="needs programs"):
        run_pipeline()
    with forkless.Pty() as pty, pytest.raises(ValueError, match="or a terminal"):
        run_pipeline(["true"], ["true"], pty=pty)
    with pytest.raises(ValueError, match="may not both be used"):
        run_pipeline(["true"], ["true"], input=b"", stdin=PIPE)


def test_limits_of_time_and_output():
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired) as raised:
        run_pipeline(["sh", "-c", "echo some; sleep 60 & wait"], ["cat"], stdout=PIPE, timeout=0.3, kill_group=True)
    assert raised.value.output == b"some\n" and raised.value.timeout == 0.3 and time.monotonic() - begun < 30
    # The last one has ended, the first has not.
    with pytest.raises(subprocess.TimeoutExpired):
        run_pipeline(["sleep", "60"], ["true"], timeout=0.2)
    done = run_pipeline(["seq", "100000"], ["cat"], stdout=PIPE, max_output=10)
    assert done.stdout.startswith(b"1\n2\n3\n[...") and done.stdout.endswith(b"0000\n") and done.stdout_cut == 588895 - 10
    with pytest.raises(ValueError, match="positive number"):
        run_pipeline(["true"], stdout=PIPE, max_output=0)


def test_a_running_one():
    with Pipeline(["cat"], ["tr", "a-z", "A-Z"], stdin=PIPE, stdout=PIPE, text=True) as pipeline:
        assert pipeline.poll() is None and pipeline.returncodes == [None, None]
        pipeline.stdin.write("hello\n")
        pipeline.stdin.close()
        assert pipeline.stdout.read() == "HELLO\n"
        assert pipeline.wait() == 0
    with Pipeline(["sleep", "60"], ["sleep", "60"]) as pipeline:
        pipeline.terminate()
        assert pipeline.wait() == -signal.SIGTERM and pipeline.returncodes == [-signal.SIGTERM] * 2
    with Pipeline(["sh", "-c", "sleep 60"], ["sh", "-c", "sleep 60; true"], kill_group=True, stdout=PIPE) as pipeline:
        pipeline.kill()
        assert pipeline.stdout.read() == b""


def test_it_works_in_a_sandbox():
    done = run_pipeline(["echo", "inside"], ["cat"], stdout=PIPE, sandbox=True, cwd="/")
    assert done.stdout == b"inside\n", os.getcwd()
