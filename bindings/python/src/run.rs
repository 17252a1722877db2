//! Runs a program and waits for its end in one call: the GIL is released for launch, input, output and wait, and is
//! taken only to handle signals.

use crate::convert::{DEVNULL, Flag, PIPE, STDOUT};
use crate::error;
use crate::request::{Names, Request};
use crate::settings;
use crate::spawn::is_status_lost;
use forkless::internal::is_for_the_shell;
use forkless::{Child, Prepared, ShellCommand, ShellRoute, Step};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PyString};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Output};
use std::time::Duration;

/// The return code and the captured streams.
pub(crate) type Finished<'py> = (i32, Option<Bound<'py, PyBytes>>, Option<Bound<'py, PyBytes>>);

/// `subprocess.run` without a Popen. Returns a `CompletedProcess`, or None, before anything was done, if a keyword is
/// unknown here or needs the standard class.
///
/// If a signal handler raises (KeyboardInterrupt), the program is killed with SIGKILL, as by `subprocess.run`.
#[pyfunction]
pub(crate) fn run<'py>(
    py: Python<'py>,
    args: &Bound<'py, PyAny>,
    input: Option<&Bound<'py, PyAny>>,
    capture_output: Flag,
    words: &Bound<'py, PyDict>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    static AUDIT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let Some(Words { mut streams, shell, executable, cwd, env, warm }) = Words::of(words)? else { return Ok(None) };
    let input = match input.map(|input| input.cast_exact::<PyBytes>()) {
        None => None,
        Some(Ok(bytes)) if streams[0].is_none() => {
            streams[0] = Some(PIPE);
            Some(bytes.as_bytes())
        }
        Some(_) => return Ok(None),
    };
    if capture_output.0 {
        if streams[1].is_some() || streams[2].is_some() {
            return Ok(None);
        }
        (streams[1], streams[2]) = (Some(PIPE), Some(PIPE));
    }
    let is_list = args.is_exact_instance_of::<PyList>();
    if shell == is_list || !(is_list || args.is_exact_instance_of::<PyString>()) {
        return Ok(None);
    }
    let line = if shell { Some(PyList::new(py, ["/bin/sh", "-c"])?) } else { None };
    if let Some(line) = &line {
        line.append(args)?;
    }
    let list = line.as_ref().map_or(args, |line| line.as_any());
    reap_abandoned(py)?;
    let request = || {
        let mut request = Request::new(list, executable.clone(), env.as_ref())?;
        AUDIT.import(py, "sys", "audit")?.call1(("subprocess.Popen", &request.names.program, list, &cwd, &env))?;
        request.signals(true);
        request.directory(cwd, false)?;
        request.environment(env.as_ref())?;
        request.streams(streams, &[])?;
        request.command.pidfd(is_status_lost());
        if let Some(warm) = &warm {
            settings::apply(&mut request.command, "warm", warm)?;
        }
        let line =
            if shell && warm.is_none() { ShellCommand::of(request.command) } else { Err(Box::new(request.command)) };
        match line {
            Ok(line) => Ok((Err(line), request.names)),
            Err(command) => {
                let (prepared, names) = Request { command: *command, names: request.names }.prepare()?;
                Ok((Ok(prepared), names))
            }
        }
    };
    let (what, names) = request().inspect_err(|error| {
        let first = if is_list { list.get_item(0).ok() } else { Some(list.clone()) };
        error::tell(py, error, executable.or(first).as_ref(), Step::Check.describe(), None);
    })?;
    let finished = match what {
        Ok(prepared) => to_the_end(py, &prepared, &names, input)?,
        Err(line) => line_to_its_end(py, line, &names, input)?,
    };
    completed(py, args, finished).map(Some)
}

/// Runs a line, without the shell where the result is the same. The environment is copied at the launch, so the GIL is held.
fn line_to_its_end<'py>(
    py: Python<'py>,
    mut line: ShellCommand,
    names: &Names<'py>,
    input: Option<&[u8]>,
) -> PyResult<Finished<'py>> {
    let (mut child, ending) = line.launch_captured().map_err(|error| names.error(error))?.into_parts();
    let is_direct = line.taken() == Some(&ShellRoute::Direct);
    // The handle holds the child's ends of the pipes until then.
    match py.detach(|| child.wait_spawn()) {
        Ok(()) => finish(py, || Ok(child), names, input, |output| ending.output(output)),
        Err(error) if is_direct && is_for_the_shell(&error) => {
            let child = line.settings().launch().map_err(|error| names.error(error))?;
            finish(py, || Ok(child), names, input, Ok)
        }
        Err(error) => Err(names.error(error)),
    }
}

/// Reaps, as the standard module does before each launch, the ended children of dropped `Popen` objects.
pub(crate) fn reap_abandoned(py: Python<'_>) -> PyResult<()> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("subprocess").map(Bound::unbind))?.bind(py);
    if module.getattr("_active")?.is_truthy()? {
        module.call_method0("_cleanup")?;
    }
    Ok(())
}

/// `subprocess.CompletedProcess`.
pub(crate) fn completed<'py>(
    py: Python<'py>,
    args: &Bound<'py, PyAny>,
    finished: Finished<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    static COMPLETED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let (code, stdout, stderr) = finished;
    COMPLETED.import(py, "subprocess", "CompletedProcess")?.call1((args, code, stdout, stderr))
}

/// The keywords that `run` handles.
#[derive(Default)]
struct Words<'py> {
    streams: [Option<i32>; 3],
    shell: bool,
    executable: Option<Bound<'py, PyAny>>,
    cwd: Option<Bound<'py, PyAny>>,
    env: Option<Bound<'py, PyAny>>,
    warm: Option<Bound<'py, PyAny>>,
}

impl<'py> Words<'py> {
    fn of(words: &Bound<'py, PyDict>) -> PyResult<Option<Self>> {
        let mut found = Self::default();
        for (name, value) in words.iter() {
            let name = name.cast_exact::<PyString>()?.to_cow()?;
            if value.is_none() {
                if KNOWN.contains(&&*name) {
                    continue;
                }
                return Ok(None);
            }
            match &*name {
                "stdin" | "stdout" | "stderr" => {
                    // A bool, an enum or a file is left to the standard class.
                    let Ok(Ok(what)) = value.cast_exact::<PyInt>().map(|number| number.extract::<i32>()) else {
                        return Ok(None);
                    };
                    found.streams[STREAMS.iter().position(|stream| *stream == name).unwrap_or(0)] = Some(what);
                }
                "shell" => found.shell = value.is_truthy()?,
                "executable" => found.executable = Some(value),
                "cwd" => found.cwd = Some(value),
                "env" => found.env = Some(value),
                "warm" => found.warm = Some(value),
                _ => return Ok(None),
            }
        }
        let [stdin, stdout, stderr] = found.streams;
        let merges_nothing = stderr == Some(STDOUT) && stdout.is_none();
        let is_odd = |what: Option<i32>| what.is_some_and(|what| what < DEVNULL || what == STDOUT);
        // `executable` together with `shell` is left to the standard class.
        let is_renamed = found.shell && found.executable.is_some();
        if is_odd(stdin) || is_odd(stdout) || stderr.is_some_and(|what| what < DEVNULL) || merges_nothing || is_renamed
        {
            return Ok(None);
        }
        Ok(Some(found))
    }
}

const STREAMS: [&str; 3] = ["stdin", "stdout", "stderr"];

const KNOWN: [&str; 8] = ["stdin", "stdout", "stderr", "shell", "executable", "cwd", "env", "warm"];

/// Runs a plan and waits for the program's end.
pub(crate) fn to_the_end<'py>(
    py: Python<'py>,
    prepared: &Prepared,
    names: &Names<'py>,
    input: Option<&[u8]>,
) -> PyResult<Finished<'py>> {
    finish(py, || prepared.launch(), names, input, Ok)
}

/// `start` starts the program, without the GIL; `end` changes its status and output.
fn finish<'py>(
    py: Python<'py>,
    start: impl FnOnce() -> io::Result<Child> + Send,
    names: &Names<'py>,
    input: Option<&[u8]>,
    end: impl FnOnce(Output) -> io::Result<Output> + Send,
) -> PyResult<Finished<'py>> {
    let mut start = Some(start);
    let mut begun = None;
    let mut input = input.unwrap_or(&[]);
    loop {
        let answer = py.detach(|| {
            let running = match &mut begun {
                Some(running) => running,
                none => {
                    let start = start.take().ok_or(io::ErrorKind::Other)?;
                    let running = none.insert(Running::new(start()?));
                    running.unblock_input()?;
                    running
                }
            };
            running.go_on(&mut input)
        });
        match answer {
            Ok(status) => {
                let streams = begun.map_or([None, None], |running| running.outputs);
                let is_piped = [streams[0].is_some(), streams[1].is_some()];
                let [stdout, stderr] = streams.map(|stream| stream.map_or(Vec::new(), |stream| stream.bytes));
                let ended = py.detach(|| end(Output { status, stdout, stderr })).map_err(|error| names.error(error))?;
                let bytes = |is_piped: bool, bytes: &[u8]| is_piped.then(|| PyBytes::new(py, bytes));
                let [stdout, stderr] = [bytes(is_piped[0], &ended.stdout), bytes(is_piped[1], &ended.stderr)];
                return Ok((code(ended.status), stdout, stderr));
            }
            Err(error) => {
                let raised = if error.kind() == io::ErrorKind::Interrupted {
                    let Err(raised) = py.check_signals() else { continue };
                    raised
                } else {
                    names.error(error)
                };
                let is_interrupt = raised.is_instance_of::<PyKeyboardInterrupt>(py);
                if let Some(running) = begun {
                    py.detach(|| running.abandon(is_interrupt));
                }
                return Err(raised);
            }
        }
    }
}

/// The return code as `subprocess` defines it: the exit status, or the negated signal that ended the program.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))
}

/// A launched program with its pipes.
struct Running {
    child: Child,
    stdin: Option<OwnedFd>,
    outputs: [Option<Stream>; 2],
}

struct Stream {
    /// None after end of file.
    pipe: Option<OwnedFd>,
    bytes: Vec<u8>,
}

/// The default capacity of a pipe.
const CHUNK: usize = 64 * 1024;

impl Running {
    fn new(mut child: Child) -> Self {
        let stdin: Option<OwnedFd> = child.stdin.take().map(Into::into);
        let outputs = [child.stdout.take().map(Into::into), child.stderr.take().map(Into::into)];
        let outputs =
            outputs.map(|pipe: Option<OwnedFd>| pipe.map(|pipe| Stream { pipe: Some(pipe), bytes: Vec::new() }));
        Self { child, stdin, outputs }
    }

    /// Affects only this end: the child's end is another open file description.
    fn unblock_input(&self) -> io::Result<()> {
        let Some(stdin) = &self.stdin else { return Ok(()) };
        Ok(rustix::fs::fcntl_setfl(stdin, rustix::fs::OFlags::NONBLOCK)?)
    }

    /// Writes, reads and waits until the program has ended or a signal interrupts.
    fn go_on(&mut self, input: &mut &[u8]) -> io::Result<ExitStatus> {
        loop {
            if input.is_empty() {
                self.stdin = None;
            }
            let mut open: Vec<&mut Stream> =
                self.outputs.iter_mut().flatten().filter(|one| one.pipe.is_some()).collect();
            match (&self.stdin, open.as_mut_slice()) {
                (None, []) => return self.child.wait_interruptible(),
                // With a single stream the read itself may block.
                (None, [only]) => only.read()?,
                _ => self.wait_and_move(input)?,
            }
        }
    }

    /// Waits until a pipe is ready, and reads or writes it.
    fn wait_and_move(&mut self, input: &mut &[u8]) -> io::Result<()> {
        let pipes: Vec<_> = self.outputs.iter().flatten().filter_map(|one| one.pipe.as_ref()).collect();
        let mut watched: Vec<_> =
            pipes.iter().map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)).collect();
        watched.extend(self.stdin.as_ref().map(|stdin| PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::OUT)));
        poll(&mut watched, None)?;
        let ready: Vec<bool> = watched.iter().map(|one| !one.revents().is_empty()).collect();
        drop(watched);
        let count = pipes.len();
        let open = self.outputs.iter_mut().flatten().filter(|one| one.pipe.is_some());
        for (output, _) in open.zip(&ready).filter(|(_, ready)| **ready) {
            output.read()?;
        }
        if ready.get(count) == Some(&true) {
            self.feed(input)?;
        }
        Ok(())
    }

    fn feed(&mut self, input: &mut &[u8]) -> io::Result<()> {
        let Some(stdin) = &self.stdin else { return Ok(()) };
        match forkless::internal::write_quietly(stdin, input) {
            Ok(count) => *input = &input[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The program has closed its standard input.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.stdin = None,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// After an exception, ends the program. After Ctrl-C, which the terminal has sent to the program too, it first
    /// gets time to end by itself.
    fn abandon(mut self, is_interrupt: bool) {
        /// As in `subprocess`.
        const SIGINT_GRACE: Duration = Duration::from_millis(250);
        /// How long to wait for the killed program. If that is in uninterruptible sleep, a later launch reaps it.
        const DEATH: Duration = Duration::from_secs(1);
        let ended = is_interrupt && matches!(self.child.wait_timeout(SIGINT_GRACE), Ok(Some(_)));
        if !ended && self.child.kill().is_ok() {
            let _ = self.child.wait_timeout(DEATH);
        }
    }
}

impl Stream {
    fn read(&mut self) -> io::Result<()> {
        let Some(pipe) = &self.pipe else { return Ok(()) };
        self.bytes.reserve(CHUNK);
        if rustix::io::read(pipe, spare_capacity(&mut self.bytes))? == 0 {
            self.pipe = None;
        }
        Ok(())
    }
}
