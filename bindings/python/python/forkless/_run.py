"""`run`, `call`, `check_output` and similar functions."""

import io
import os
import subprocess
import types

from . import _forkless, _launch
from ._output import CapturedProcess, LimitedPopen
from ._pipeline import CompletedPipeline, Pipeline
from ._popen import Popen, makes_cgroup

PIPE = subprocess.PIPE

# The standard functions with `Popen` replaced in their globals. So their behaviour and messages are those of this version of Python.
_names = dict(vars(subprocess), Popen=Popen)


def _ours(name):
    standard = getattr(subprocess, name)
    made = types.FunctionType(standard.__code__, _names, name, standard.__defaults__, standard.__closure__)
    made.__kwdefaults__ = standard.__kwdefaults__
    made.__doc__ = standard.__doc__
    made.__module__ = __package__
    _names[name] = made
    return made


call, check_call, check_output = _ours("call"), _ours("check_call"), _ours("check_output")
getstatusoutput, getoutput = _ours("getstatusoutput"), _ours("getoutput")
_run = _ours("run")  # called by `run` below, which the other functions call

# Keywords that select text streams.
_OF_TEXT = ("text", "universal_newlines", "encoding", "errors")


def run(*popenargs, input=None, capture_output=False, timeout=None, check=False, memory_file=False, max_output=None, **kwargs):
    """Runs a program and waits for its end, as `subprocess.run` does. It takes the keywords of that function, those of `Popen`, and:

    memory_file: capture output in memfds instead of pipes, so that it need not be read while the program runs. This is faster for output of
    many megabytes. Other processes that still have the memfd open when the program ends are not waited for.

    max_output: how many bytes of each captured stream are kept: the first half and the last half, with a line between them that says how many
    are left out. The program runs on. The result is a `CapturedProcess`, whose `stdout_cut` and `stderr_cut` are these numbers.
    """
    if max_output is not None or not memory_file and makes_cgroup(kwargs):
        return _limited(popenargs, max_output, input, capture_output, timeout, check, memory_file, kwargs)
    if timeout is None and len(popenargs) == 1 and not memory_file:
        # One native call, if it gives the same result.
        done = _forkless.run(popenargs[0], input, capture_output, kwargs)
        if done is None and not kwargs.keys().isdisjoint(_OF_TEXT):
            done = _run_text(popenargs[0], input, capture_output, **kwargs)
        if done is not None:
            if check:
                done.check_returncode()
            return done
    check_words(popenargs, input, capture_output, kwargs)
    if memory_file:
        return _into_memory(popenargs, input, capture_output, timeout, check, kwargs)
    return _run(*popenargs, input=input, capture_output=capture_output, timeout=timeout, check=check, **kwargs)


_names["run"] = run


def check_words(popenargs, input, capture_output, kwargs):
    """Raises the errors that the standard function raises before it creates a Popen, with the same messages."""
    if input is not None and kwargs.get("stdin") is not None:
        why = "stdin and input arguments may not both be used."
    elif capture_output and (kwargs.get("stdout") is not None or kwargs.get("stderr") is not None):
        why = "stdout and stderr arguments may not be used with capture_output."
    else:
        return
    error = ValueError(why)
    _forkless.tell(error, _program(popenargs, kwargs))
    raise error


def _program(popenargs, kwargs):
    args = popenargs[0] if popenargs else kwargs.get("args")
    return _launch.program_of(args, kwargs.get("executable"), kwargs.get("shell"))


def _run_text(args, input, capture_output, *, text=None, universal_newlines=None, encoding=None, errors=None, **kwargs):
    """The same with text streams. None if the standard class must handle it, or if no text streams were requested."""
    # The standard class compares the two keywords for text.
    if not (text or universal_newlines or encoding or errors) or (text is not None and universal_newlines is not None):
        return None
    if not encoding and _launch.warns_of_encoding():
        return None
    encoding, errors = encoding or _launch.encoding(), errors or "strict"
    try:
        _check_encoding(encoding, errors)
    except Exception:
        # Without a pipe it is not used. (The standard class would raise the same error, and leave a pipe open.)
        if input is None and not capture_output and PIPE not in [kwargs.get(name) for name in ("stdin", "stdout", "stderr")]:
            return None
        raise
    if input is not None:
        if type(input) is not str:
            return None
        input = input.encode(encoding, errors)
    done = _forkless.run(args, input, capture_output, kwargs)
    if done is not None:
        done.stdout, done.stderr = _text(done.stdout, encoding, errors), _text(done.stderr, encoding, errors)
    return done


def _check_encoding(encoding, errors):
    """Raises the error of a wrong encoding before the program runs, as the standard class does."""
    io.TextIOWrapper(io.BytesIO(), encoding, errors)


def _text(stream, encoding, errors):
    if stream is None:
        return None
    return stream.decode(encoding, errors).replace("\r\n", "\n").replace("\r", "\n")


def _into_memory(popenargs, input, capture_output, timeout, check, kwargs):
    if capture_output:
        kwargs["stdout"] = kwargs["stderr"] = PIPE
    is_text = any(kwargs.get(word) for word in _OF_TEXT)
    encoding, errors = kwargs.get("encoding") or _launch.encoding(), kwargs.get("errors") or "strict"
    if is_text:
        _check_encoding(encoding, errors)
    files = {}
    try:
        try:
            for name in ("stdout", "stderr"):
                if kwargs.get(name) == PIPE:
                    kwargs[name] = files[name] = _forkless.memfd_create(name)
        except OSError as error:
            _forkless.tell(error, _program(popenargs, kwargs), "open a stream")
            raise
        try:
            done = run(*popenargs, input=input, timeout=timeout, **kwargs)
        except subprocess.TimeoutExpired as error:
            error.stdout, error.stderr = (_content(files.get(name)) for name in ("stdout", "stderr"))
            raise
        for name, file in files.items():
            content = _content(file)
            if is_text:
                content = _text(content, encoding, errors)
            setattr(done, name, content)
    finally:
        for file in files.values():
            os.close(file)
    if check:
        done.check_returncode()
    return done


def _limited(popenargs, max_output, input, capture_output, timeout, check, memory_file, kwargs):
    check_words(popenargs, input, capture_output, kwargs)
    if max_output is not None:
        check_most(popenargs, max_output, capture_output, memory_file, kwargs)
    words = dict(kwargs, input=input, capture_output=capture_output, timeout=timeout, check=check)
    return _run_by(LimitedPopen, CapturedProcess, popenargs, max_output, words)[0]


def check_most(popenargs, max_output, capture_output, memory_file, kwargs):
    why = None
    if type(max_output) is not int or max_output < 1:
        why = "max_output must be a positive number of bytes"
    elif memory_file:
        why = "memory_file and max_output arguments may not both be used."
    elif not capture_output and PIPE not in [kwargs.get(name) for name in ("stdout", "stderr")]:
        why = "max_output is for captured streams: use capture_output=True."
    if why:
        error = ValueError(why)
        _forkless.tell(error, _program(popenargs, kwargs))
        raise error


def _run_by(popen, result, popenargs, max_output, words):
    """The standard function with another class. Returns the result and the Popen."""
    begun = []

    def start(*args, **keywords):
        begun.append(popen(*args, max_output=max_output, **keywords))
        return begun[0]

    run = types.FunctionType(_run.__code__, dict(_names, Popen=start), "run", _run.__defaults__, _run.__closure__)
    run.__kwdefaults__ = _run.__kwdefaults__
    done = run(*popenargs, **words)
    made = result(done.args, done.returncode, done.stdout, done.stderr)
    made.stdout_cut, made.stderr_cut = (begun[0].cut.get(name, 0) for name in ("stdout", "stderr"))
    made.limit_events = begun[0].limit_events
    return made, begun[0]


def run_pipeline(*commands, pipefail=False, max_output=None, input=None, text=None, encoding=None, errors=None, **kwargs):
    """Runs programs at the same time, each of which reads what the one before it writes, and waits for their end. It takes the commands and
    keywords of `Pipeline`, and those of `run`. Returns a `CompletedPipeline`.
    """
    kwargs.update(input=input, text=text, encoding=encoding, errors=errors)
    capture_output, popenargs = kwargs.get("capture_output"), commands[:1]
    check_words(popenargs, input, capture_output, kwargs)
    if max_output is not None:
        check_most(popenargs, max_output, capture_output, False, kwargs)

    def popen(*args, **keywords):
        return Pipeline(*args, pipefail=pipefail, **keywords)

    made, pipeline = _run_by(popen, CompletedPipeline, commands, max_output, kwargs)
    made.returncodes = pipeline.returncodes
    return made


def _content(file):
    """The content of a file."""
    if file is None:
        return None
    size = os.fstat(file).st_size
    parts = []
    while size:
        # One read(2) returns at most 2 GiB.
        part = os.pread(file, size, sum(map(len, parts)))
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def prepare(
    args, *, executable=None, stdin=None, stdout=None, stderr=None, pass_fds=(), cwd=None, env=None, start_new_session=False,
    process_group=None, shell=False, **settings,
):  # fmt: skip
    """Prepares a command that is run several times: returns a `Prepared`. Environment and PATH are copied now.

    Streams: PIPE (a new one for each run), DEVNULL, a descriptor or a file, which must stay open; for stderr also STDOUT. Further keywords
    are those of `Settings`.
    """
    try:
        words, program = _launch.command_of(args, executable, shell)
        streams = tuple(stream if stream is None or isinstance(stream, int) else stream.fileno() for stream in (stdin, stdout, stderr))
        return _forkless.prepare(
            words, program, streams, [int(fd) for fd in pass_fds], cwd, env, start_new_session, process_group, settings
        )
    except Exception as error:
        _forkless.tell(error, _launch.program_of(args, executable, shell))
        raise


# Signatures for `help` and editors: the functions above take the parameters as *args and **kwargs.


def _of_run(
    args, bufsize=-1, executable=None, stdin=None, stdout=None, stderr=None, preexec_fn=None, close_fds=True, shell=False, cwd=None,
    env=None, universal_newlines=None, startupinfo=None, creationflags=0, restore_signals=True, start_new_session=False, pass_fds=(), *,
    input=None, capture_output=False, timeout=None, check=False, memory_file=False, max_output=None, user=None, group=None, extra_groups=None,
    encoding=None, errors=None, text=None, umask=-1, pipesize=-1, process_group=None, kill_group=False, **settings,
):  # fmt: skip
    pass


def _of_call(
    args, bufsize=-1, executable=None, stdin=None, stdout=None, stderr=None, preexec_fn=None, close_fds=True, shell=False, cwd=None,
    env=None, universal_newlines=None, startupinfo=None, creationflags=0, restore_signals=True, start_new_session=False, pass_fds=(), *,
    timeout=None, user=None, group=None, extra_groups=None, encoding=None, errors=None, text=None, umask=-1, pipesize=-1,
    process_group=None, kill_group=False, **settings,
):  # fmt: skip
    pass


def _of_check_output(
    args, bufsize=-1, executable=None, stdin=None, *, stderr=None, preexec_fn=None, close_fds=True, shell=False, cwd=None, env=None,
    universal_newlines=None, startupinfo=None, creationflags=0, restore_signals=True, start_new_session=False, pass_fds=(),
    timeout=None, input=None, memory_file=False, max_output=None, user=None, group=None, extra_groups=None, encoding=None, errors=None, text=None,
    umask=-1, pipesize=-1, process_group=None, kill_group=False, **settings,
):  # fmt: skip
    pass


run.__wrapped__ = _of_run
call.__wrapped__ = check_call.__wrapped__ = _of_call
check_output.__wrapped__ = _of_check_output
