//! Builds a command from Python arguments.

use crate::convert::{DEVNULL, Int, PIPE, STDOUT, Text, each, items, number, pairs};
use crate::{error, settings};
use forkless::{Command, Prepared, Stdio, Step};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A command, and its name in errors.
pub(crate) struct Request<'py> {
    pub(crate) command: Command,
    pub(crate) names: Names<'py>,
}

/// The names in errors, as the caller gave them.
pub(crate) struct Names<'py> {
    pub(crate) program: Bound<'py, PyAny>,
    pub(crate) directory: Option<Bound<'py, PyAny>>,
}

const SIGPIPE: i32 = 13;
const SIGXFSZ: i32 = 25;

impl<'py> Request<'py> {
    /// `args`: as for `subprocess.Popen` without a shell. `env`: the environment whose PATH is searched.
    pub(crate) fn new(
        args: &Bound<'py, PyAny>,
        executable: Option<Bound<'py, PyAny>>,
        env: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let words: Vec<Bound<'py, PyAny>> = if is_one(args)? { vec![args.clone()] } else { sequence(args)? };
        let Some(first) = words.first() else {
            return Err(PyIndexError::new_err("args has no program"));
        };
        let program = executable.unwrap_or_else(|| first.clone());
        let name = program.extract::<Text<'_>>()?;
        let mut command = if name.as_bytes().is_empty() { places(args.py(), env) } else { Command::new(name) };
        command.try_all(true).arg0(first.extract::<Text<'_>>()?);
        for word in &words[1..] {
            command.arg(word.extract::<Text<'_>>()?);
        }
        // `status` and calls that wait at once need no pidfd.
        command.pidfd(false);
        Ok(Self { command, names: Names { program, directory: None } })
    }

    /// `restore_signals`: resets signals that Python ignores and programs expect at their default.
    pub(crate) fn signals(&mut self, restore: bool) {
        if restore {
            self.command.signal_default(SIGPIPE);
            self.command.signal_default(SIGXFSZ);
        } else {
            self.command.signal_inherit(SIGPIPE);
        }
    }

    /// `as_caller`: the directory is opened with the caller's identity, since the child changes its own.
    pub(crate) fn directory(&mut self, cwd: Option<Bound<'py, PyAny>>, as_caller: bool) -> PyResult<()> {
        let Some(cwd) = cwd else { return Ok(()) };
        if as_caller {
            let entered = entered(&cwd).inspect_err(|error| {
                let object = cwd.repr().map(|cwd| cwd.to_string()).ok();
                error::tell(cwd.py(), error, Some(&self.names.program), Step::Chdir.describe(), object.as_deref());
            });
            self.command.current_dir_fd(entered?);
        } else {
            self.command.current_dir(cwd.extract::<Text<'_>>()?);
        }
        self.names.directory = Some(cwd);
        Ok(())
    }

    /// Sets the whole environment; without one the caller's is inherited.
    pub(crate) fn environment(&mut self, env: Option<&Bound<'py, PyAny>>) -> PyResult<()> {
        let Some(env) = env else { return Ok(()) };
        self.command.env_clear();
        let mut set = |key: &Bound<'py, PyAny>, value: &Bound<'py, PyAny>| -> PyResult<()> {
            let key = key.extract::<Text<'_>>()?;
            if key.as_bytes().contains(&b'=') {
                return Err(PyValueError::new_err("illegal environment variable name"));
            }
            self.command.env(key, value.extract::<Text<'_>>()?);
            Ok(())
        };
        match env.cast_exact::<PyDict>() {
            Ok(dict) => dict.iter().try_for_each(|(key, value)| set(&key, &value)),
            Err(_) => items(env)?.iter().try_for_each(|(key, value)| set(key, value)),
        }
    }

    /// Redirects a standard stream: inherited, a descriptor, or one of the constants of `subprocess`.
    pub(crate) fn stream(&mut self, number: RawFd, what: Option<i32>) -> PyResult<()> {
        let stdio = match what {
            None => return Ok(()),
            Some(PIPE) => Stdio::piped(),
            Some(DEVNULL) => Stdio::null(),
            Some(STDOUT) if number == 2 => Stdio::dup_of(1),
            // SAFETY: a descriptor that the Python caller has named as its own.
            Some(fd) if fd >= 0 => unsafe { Stdio::fd(fd) },
            Some(other) => return Err(self.names.not_open(other, number)),
        };
        self.command.fd(stdio, number);
        Ok(())
    }

    /// All three standard streams, and `pass_fds`.
    pub(crate) fn streams(&mut self, streams: [Option<i32>; 3], pass_fds: &[RawFd]) -> PyResult<()> {
        for (number, what) in (0..).zip(streams) {
            self.stream(number, what)?;
        }
        self.pass(pass_fds, streams.map(|what| what.is_some()));
        Ok(())
    }

    /// Descriptors that the child inherits under the same number.
    pub(crate) fn pass(&mut self, fds: &[RawFd], is_redirected: [bool; 3]) {
        for &fd in fds {
            // A redirection of a standard stream takes precedence over `pass_fds`.
            if usize::try_from(fd).ok().and_then(|fd| is_redirected.get(fd)) != Some(&true) {
                // SAFETY: as in `stream`.
                self.command.fd(unsafe { Stdio::fd(fd) }, fd);
            }
        }
    }

    pub(crate) fn groups(&mut self, start_new_session: bool, process_group: Option<i32>) {
        self.command.setsid(start_new_session);
        if let Some(group) = process_group {
            self.command.process_group(group);
        }
    }

    pub(crate) fn settings(&mut self, settings: Option<&Bound<'py, PyDict>>) -> PyResult<()> {
        for (name, value) in settings.into_iter().flatten() {
            if !value.is_none() {
                settings::apply(&mut self.command, &name.cast::<PyString>()?.to_cow()?, &value)?;
            }
        }
        Ok(())
    }

    /// Makes the plan. The GIL is held.
    pub(crate) fn prepare(mut self) -> PyResult<(Prepared, Names<'py>)> {
        match self.command.prepare() {
            Ok(prepared) => Ok((prepared, self.names)),
            Err(error) => Err(self.names.error(error)),
        }
    }
}

impl Names<'_> {
    pub(crate) fn error(&self, error: std::io::Error) -> PyErr {
        error::of(self.program.py(), error, Some(&self.program), self.directory.as_ref())
    }

    /// The error for a negative number that is not one of the constants: the kernel's EBADF.
    pub(crate) fn not_open(&self, fd: RawFd, target: RawFd) -> PyErr {
        let py = self.program.py();
        let made = error::of_errno(py, libc::EBADF, None);
        error::tell(py, &made, Some(&self.program), Step::PassFd.describe(), Some(&format!("{fd} as {target}")));
        made
    }
}

/// A program with an empty name: the standard module then executes the directories of PATH, and reports their errors.
fn places(py: Python<'_>, env: Option<&Bound<'_, PyAny>>) -> Command {
    let path = py.import("os").and_then(|os| os.call_method1("get_exec_path", (env,)));
    // An invalid PATH is reported later, with the environment.
    let directories = path.and_then(|path| each::<Text<'_>>(&path)).unwrap_or_default();
    let mut paths = directories.iter().map(Text::as_bytes).filter(|entry| !entry.is_empty()).map(|entry| {
        let slash: &[u8] = if entry.ends_with(b"/") { b"" } else { b"/" };
        OsString::from_vec([entry, slash].concat())
    });
    let mut command = Command::new(paths.next().unwrap_or_default());
    for path in paths {
        command.or_else(path);
    }
    command
}

/// Whether `args` is a single program and not a list.
fn is_one(args: &Bound<'_, PyAny>) -> PyResult<bool> {
    // Checked first, because looking up a missing attribute creates an exception.
    if args.is_instance_of::<PyList>() || args.is_instance_of::<PyTuple>() {
        return Ok(false);
    }
    let is_text = args.is_instance_of::<PyString>() || args.is_instance_of::<PyBytes>();
    Ok(is_text || args.hasattr("__fspath__")?)
}

fn sequence<'py>(args: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let not_one = |_| PyTypeError::new_err("args: expected a program, or a sequence of a program and its arguments");
    args.try_iter().map_err(not_one)?.collect()
}

/// Opens the working directory, for the child to enter it before its IDs change.
fn entered(cwd: &Bound<'_, PyAny>) -> PyResult<std::os::fd::OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    let path = cwd.extract::<Text<'_>>()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fail = |errno: rustix::io::Errno| error::of_errno(cwd.py(), errno.raw_os_error(), Some(cwd));
    open(std::ffi::OsStr::from_bytes(path.as_bytes()), flags, Mode::empty()).map_err(fail)
}

/// `fds={number: source}`.
pub(crate) fn place_fds(command: &mut Command, fds: &Bound<'_, PyAny>) -> PyResult<()> {
    for (target, source) in pairs(fds)? {
        let Int(target) = target.extract::<Int<RawFd>>()?;
        let stdio = match number(&source)? {
            DEVNULL => Stdio::null(),
            // SAFETY: as in `Request::stream`.
            fd if fd >= 0 => unsafe { Stdio::fd(fd) },
            other => return Err(PyValueError::new_err(format!("fd {target}: {other} is not a file descriptor"))),
        };
        command.fd(stdio, target);
    }
    Ok(())
}
