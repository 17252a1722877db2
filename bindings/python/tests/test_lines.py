"""Tests of `run(shell=True)`: a line that needs no shell runs without one, and answers as with it."""

import os
import subprocess

import pytest

import forkless

LINES = [
    "uname -s",
    "ls -d / /tmp",
    "env | grep -c .",
    "expr 'two words' : '.*'",
    "A=1 B='x y' env -u PATH",
    "ls /nonexistent",
    "no-such-program 'a b'",
    "./no-such-program",
    "/",
    "",
    "# nothing",
    "exit 3",
    "grep -q x /dev/null",
    "cat",
    "tr a-z A-Z <&0 >&2",
    "uname >file 2>&1",
    "cat <no-such-file",
    "sh -c 'kill -9 $$'",
    "sh -c 'kill -TERM $$'",
    "echo $((1 + 1)) `echo x`",
    "printf 'a\\nb' | sort -r",
    "syntax (",
    "sleep 0.01 &",
]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("streams", [{"capture_output": True}, {"stdout": -1, "stderr": -2}, {"stderr": -1, "stdout": -3}, {"stdout": -1}])
def test_it_answers_as_the_shell(line, streams, tmp_path):
    answers = []
    for run in (subprocess.run, forkless.run):
        done = run(line, shell=True, input=b"some\n", cwd=tmp_path, **streams)
        there = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        answers.append((done.args, done.returncode, done.stdout, done.stderr, there))
        for path in tmp_path.iterdir():
            path.unlink()
    assert answers[0] == answers[1]


def parent(line, **words):
    """The parent of the line's program."""
    return int(forkless.run(line, shell=True, stdout=-1, **words).stdout.split()[3])


def test_it_needs_no_shell():
    if os.path.basename(os.path.realpath("/bin/sh")) != "dash":
        pytest.skip("/bin/sh is not dash")
    assert parent("cat /proc/self/stat") == os.getpid()
    # And where it does, or the caller chose it.
    assert parent("cat /proc/self/stat; true") != os.getpid()
    assert forkless.check_output("uname", shell=True, text=True) == forkless.getoutput("uname") + "\n"
    assert forkless.run("echo $0", shell=True, executable="/bin/bash", stdout=-1).stdout == b"/bin/bash\n"


def test_signals_of_a_terminal_are_reported_as_signals():
    # dash makes an exit code of one that only its program received.
    assert forkless.run("sh -c 'kill -INT $$'", shell=True).returncode in (-2, 130)


def test_variables_are_those_of_now(monkeypatch):
    monkeypatch.setenv("FORKLESS_NEW", "new")
    assert b"FORKLESS_NEW=new" in forkless.run("env", shell=True, stdout=-1).stdout.split(b"\n")
    assert forkless.run("env", shell=True, stdout=-1, env={"PATH": os.environ["PATH"], "X": "y"}).stdout.count(b"X=y\n") == 1


def test_errors_name_the_shell():
    with pytest.raises(FileNotFoundError) as raised:
        forkless.run("uname", shell=True, cwd="/nonexistent")
    assert raised.value.filename == "/nonexistent"
    with pytest.raises(ValueError, match="null"):
        forkless.run("uname \0", shell=True)
