//! Builds a command from what JavaScript has prepared.

use crate::{pty, sandbox, settings};
use forkless::{
    Child, Command, ShellCommand, ShellEnding, ShellRoute, Stdio, Step,
    internal::{is_for_the_shell, preset::is_kept},
};
use napi::bindgen_prelude::{Array, FromNapiValue, TypeName, ValidateNapiValue};
use napi::{ValueType, sys};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::cell::Cell;
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// A launch, as Node's `ChildProcess` describes it to libuv. In JavaScript it is a list in the order of the fields: names would have to
/// be looked up.
pub struct Request {
    /// The program: a path, or a name that is searched for in PATH of `env`.
    pub file: String,
    /// All arguments, the first of which is the program's name, with NUL bytes between them.
    pub args: String,
    /// The number of arguments: an argument that contains a NUL byte is noticed.
    pub args_count: u32,
    /// Strings `NAME=value` with NUL bytes between them.
    pub env: String,
    /// The number of variables.
    pub env_count: u32,
    /// The working directory.
    pub cwd: Option<String>,
    /// A session of its own.
    pub detached: bool,
    /// The user ID.
    pub uid: Option<u32>,
    /// The group ID.
    pub gid: Option<u32>,
    /// For each descriptor of the child: [`NULL`], [`PIPE`], or the number of a descriptor of the caller.
    pub stdio: Vec<i32>,
    /// Run a file without `#!` by /bin/sh.
    pub scripts_by_shell: bool,
    /// Settings that `child_process` does not have.
    pub settings: Option<serde_json::Map<String, serde_json::Value>>,
}

impl TypeName for Request {
    fn type_name() -> &'static str {
        "Array"
    }

    fn value_type() -> ValueType {
        ValueType::Object
    }
}

impl FromNapiValue for Request {
    unsafe fn from_napi_value(env: sys::napi_env, value: sys::napi_value) -> napi::Result<Self> {
        fn next<T: FromNapiValue>(list: &Array<'_>, at: &mut u32) -> napi::Result<T> {
            *at += 1;
            list.get(*at - 1)?.ok_or_else(|| napi::Error::from_reason("a request is too short"))
        }
        // SAFETY: `env` is live and `value` belongs to it, as the trait requires of the caller.
        let list = unsafe { Array::from_napi_value(env, value) }?;
        let at = &mut 0;
        Ok(Self {
            file: next(&list, at)?,
            args: next(&list, at)?,
            args_count: next(&list, at)?,
            env: next(&list, at)?,
            env_count: next(&list, at)?,
            cwd: next(&list, at)?,
            detached: next(&list, at)?,
            uid: next(&list, at)?,
            gid: next(&list, at)?,
            stdio: next(&list, at)?,
            scripts_by_shell: next(&list, at)?,
            settings: next(&list, at)?,
        })
    }
}

impl ValidateNapiValue for Request {}

/// `/dev/null` for a standard stream; any other descriptor stays closed.
const NULL: i32 = -1;
/// One end of a pair of sockets, of which the caller gets the other.
const PIPE: i32 = -2;

/// The most socket pairs that the library makes for a command; if there are more, all are made here.
const MOST_PAIRS: usize = 16;

/// The shells whose lines may run without them: that of `exec` and `shell: true`, and those that a caller names.
const SHELLS: [&str; 3] = ["sh", "bash", "dash"];

/// The search path of `execvp(3)` if the environment has no PATH.
const STANDARD_PATH: &[u8] = b"/bin:/usr/bin";

/// Signals that libuv resets. SIGKILL and SIGSTOP always have their default action.
const RESET: std::ops::RangeInclusive<i32> = 1..=31;

impl Request {
    /// The descriptors of the child that are pipes.
    pub(crate) fn pipes(&self) -> impl Iterator<Item = RawFd> {
        (0..).zip(&self.stdio).filter(|(_, what)| **what == PIPE).map(|(number, _)| number)
    }

    /// The command. As libuv does: signal actions and mask are reset.
    pub(crate) fn command(&self) -> Result<Command, Refusal> {
        self.command_with(|_| Ok(Stdio::socketpair()))
    }

    fn command_with(&self, pipe: impl FnMut(RawFd) -> Result<Stdio, Errno>) -> Result<Command, Refusal> {
        let mut command = Command::new(&self.file);
        self.fill(&mut command, pipe)?;
        command.any_file_by_shell(self.scripts_by_shell && !self.has_init() && !self.is_on("kill_tree"));
        Ok(command)
    }

    /// Launches it by `how`, and does not wait for the exec. A line for a shell runs without it where the result is the same.
    pub(crate) fn launch(&self, how: fn(&mut Command) -> io::Result<Child>) -> Result<Launched, Refusal> {
        let mut pipes = Vec::new();
        let mut pair = |number| {
            let flags = SocketFlags::CLOEXEC;
            let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            pipes.push((number, ours));
            Ok(theirs.into())
        };
        let Some(line) = self.line()? else {
            if self.pipes().count() <= MOST_PAIRS {
                let child = how(&mut self.command()?).map_err(Refusal::Launch)?;
                return Launched::of(child, self.pipes()).map_err(Refusal::Launch);
            }
            let child = how(&mut self.command_with(pair)?).map_err(Refusal::Launch)?;
            return Ok(Launched { child, line: None, pipes, is_ahead: false });
        };
        let mut command = forkless::shell(line);
        command.shell_path(&self.file);
        // Not those of the library: the ending writes the shell's message to the child's end when the program has ended.
        self.fill(command.settings(), &mut pair)?;
        let (child, ending) = command.launch_captured().map_err(Refusal::Launch)?.into_parts();
        let is_direct = command.taken() == Some(&ShellRoute::Direct);
        let line = is_direct.then(|| (Line { ending, signals: Cell::new(0) }, command));
        Ok(Launched { child, line, pipes, is_ahead: false })
    }

    fn is_on(&self, setting: &str) -> bool {
        self.settings
            .as_ref()
            .and_then(|settings| settings.get(setting))
            .is_some_and(|value| value.as_bool() != Some(false))
    }

    /// Whether the init of a sandbox executes the program, and so only files that the kernel executes.
    fn has_init(&self) -> bool {
        sandbox::of(self.settings.as_ref()).is_ok_and(|found| found.is_some_and(|(sandbox, _)| sandbox.has_init))
    }

    /// The line, if this is what `exec` and `shell: true` start, and no option makes the shell itself observable: a
    /// session is killed as a group, and further descriptors are open in the shell, too.
    fn line(&self) -> Result<Option<&[u8]>, Refusal> {
        // These settings apply to the shell, too.
        if ["sandbox", "pty", "kill_tree", "merged"].iter().any(|name| self.is_on(name)) {
            return Ok(None);
        }
        if !is_shell(&self.file) || self.detached || self.uid.is_some() || self.gid.is_some() || self.stdio.len() > 3 {
            return Ok(None);
        }
        let mut args = parts(&self.args, self.args_count)?;
        let start = [args.next(), args.next()] == [Some(self.file.as_bytes()), Some(&b"-c"[..])];
        let (line, rest) = (args.next(), args.next());
        Ok(line.filter(|_| start && rest.is_none()))
    }

    fn fill(&self, command: &mut Command, mut pipe: impl FnMut(RawFd) -> Result<Stdio, Errno>) -> Result<(), Refusal> {
        let env = if self.env_count == 0 { String::new() } else { format!("{}\0", self.env) };
        let env = Variables(env.as_bytes());
        has_no_nul(env.clone().count(), self.env_count)?;
        let args: Vec<OsString> =
            parts(&self.args, self.args_count)?.map(|arg| OsStr::from_bytes(arg).to_owned()).collect();
        let sandbox = sandbox::of(self.settings.as_ref()).map_err(Refusal::Setting)?;
        match &sandbox {
            None => _ = command.exactly(self.paths(env.clone()), args, env),
            Some((kept, inherits)) => {
                command.sandbox(&kept.sandbox).try_all(true).env_clear();
                command.arg0(args.first().map_or(OsStr::new(""), OsString::as_os_str)).args(args.iter().skip(1));
                for variable in env {
                    let text = variable.to_bytes();
                    let end = text.iter().position(|byte| *byte == b'=').unwrap_or(text.len());
                    let (name, value) = (OsStr::from_bytes(&text[..end]), text.get(end + 1..));
                    if let Some(value) = value.filter(|_| !inherits || is_kept(name, &kept.keep_env)) {
                        command.env(name, OsStr::from_bytes(value));
                    }
                }
            }
        }
        command.retry_busy(Duration::ZERO);
        RESET.for_each(|signal| _ = command.signal_default(signal));
        command.inherit_signal_mask(false);
        command.setsid(self.detached);
        self.identity(command, sandbox.is_some())?;
        for (number, what) in (0..).zip(&self.stdio) {
            match *what {
                NULL if number > 2 || pty::is_stream(self.settings.as_ref(), number) => {}
                // As libuv does; ours would be open for writing, too.
                NULL if number == 0 => _ = command.fd(null_for_reading()?, number),
                NULL => _ = command.fd(Stdio::null(), number),
                PIPE => _ = command.fd(pipe(number).map_err(|errno| Refusal::Launch(errno.into()))?, number),
                fd => {
                    blocking(fd, number);
                    // SAFETY: a descriptor that the JavaScript caller has named as its own.
                    command.fd(unsafe { Stdio::fd(fd) }, number);
                }
            }
        }
        for (name, value) in self.settings.iter().flatten() {
            settings::apply(command, name, value).map_err(Refusal::Setting)?;
        }
        Ok(())
    }

    /// As libuv does: the directory is entered with the caller's IDs, and a change of IDs drops the supplementary groups. In a new
    /// root it is entered by its path.
    fn identity(&self, command: &mut Command, is_sandboxed: bool) -> Result<(), Refusal> {
        let changes = self.uid.is_some() || self.gid.is_some();
        if let Some(cwd) = &self.cwd {
            if changes && !self.has_init() {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let opened = open(cwd.as_str(), flags, Mode::empty());
                command.current_dir_fd(opened.map_err(|errno| Refusal::Directory(errno.into()))?);
            } else {
                command.current_dir(cwd);
            }
        }
        if changes {
            // Only a privileged process can drop them; libuv ignores that failure.
            command.groups(&[]);
            if !is_sandboxed {
                command.best_effort(Step::SetGroups);
            }
        }
        if let Some(gid) = self.gid {
            command.gid(gid);
        }
        if let Some(uid) = self.uid {
            command.uid(uid);
        }
        Ok(())
    }

    /// The files to try, as `execvp(3)` does with the new environment.
    fn paths(&self, mut env: Variables<'_>) -> Vec<OsString> {
        if self.file.contains('/') {
            return vec![self.file.clone().into()];
        }
        let path = env.find_map(|variable| variable.to_bytes().strip_prefix(b"PATH=")).unwrap_or(STANDARD_PATH);
        let join = |directory: &[u8]| match directory {
            b"" => self.file.clone().into(),
            _ => OsString::from_vec([directory, b"/", self.file.as_bytes()].concat()),
        };
        path.split(|byte| *byte == b':').map(join).collect()
    }
}

/// A child that has been launched.
pub struct Launched {
    child: Child,
    /// A line that runs without the shell, and the command that starts it by the shell if its program cannot be executed.
    line: Option<(Line, ShellCommand)>,
    /// The caller's ends of the pipes, by the child's descriptor.
    pub(crate) pipes: Vec<(RawFd, OwnedFd)>,
    /// The loop has had turns since the launch, so SIGCHLD may have come.
    pub(crate) is_ahead: bool,
}

impl Launched {
    /// A launch of a compiled command. JavaScript takes the ends in the order of the pipes, so none may be missing: the child is
    /// killed where a setting has replaced a pipe.
    pub(crate) fn of(mut child: Child, pipes: impl Iterator<Item = RawFd>) -> io::Result<Self> {
        let mut ends = Vec::new();
        for number in pipes {
            let Some(end) = child.take_socket(number) else {
                if child.kill().is_ok() {
                    // An error is one of the launch; the child has been reaped then, too.
                    let _ = child.wait();
                }
                let reason = format!("a setting replaces the pipe at descriptor {number}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
            };
            ends.push((number, end));
        }
        Ok(Self { child, line: None, pipes: ends, is_ahead: false })
    }

    /// Waits until the program has been executed, as `Command::spawn` does.
    pub(crate) fn executed(mut self) -> io::Result<(Child, Option<Line>)> {
        let waited = self.child.wait_spawn();
        match (waited, self.line) {
            (Ok(()), line) => Ok((self.child, line.map(|(line, _)| line))),
            (Err(error), Some((_, mut command))) if is_for_the_shell(&error) => Ok((command.settings().spawn()?, None)),
            (Err(error), _) => Err(error),
        }
    }

    /// A launch in another thread than the loop's, which waits for the exec. A line has not been executed then.
    pub(crate) fn ahead(mut self) -> io::Result<Self> {
        if self.line.is_none() {
            self.child.wait_spawn()?;
        }
        Ok(Self { is_ahead: true, ..self })
    }

    /// For a caller that waits for the end: the wait reports the failure of an exec. But a line is waited for here, because the
    /// shell may have to run it.
    pub(crate) fn into_run(self) -> io::Result<(Child, Option<Line>)> {
        if self.line.is_some() { self.executed() } else { Ok((self.child, None)) }
    }
}

/// A line whose program runs without the shell.
pub(crate) struct Line {
    ending: ShellEnding,
    /// Signals that the caller has sent to the PID, as a set of bits. The shell, which would have had that PID, would have died of
    /// them.
    signals: Cell<u64>,
}

impl Line {
    /// Remembers a signal that the caller has sent.
    pub(crate) fn note(&self, signal: i32) {
        if let Ok(bit @ 0..64) = u32::try_from(signal) {
            self.signals.set(self.signals.get() | 1 << bit);
        }
    }

    /// Whether the shell would have to wait until its message is read. Then the caller must read first.
    pub(crate) fn has_to_wait(&self, status: ExitStatus) -> bool {
        self.ending.has_room(status).is_ok_and(|has_room| !has_room)
    }

    /// The status that the shell would have had. Writes the shell's message, and closes the child's standard error.
    pub(crate) fn end(self, status: ExitStatus) -> ExitStatus {
        let is_noted = |signal: i32| u32::try_from(signal).is_ok_and(|bit| self.signals.get() >> bit & 1 != 0);
        if status.signal().is_some_and(is_noted) {
            return status;
        }
        self.ending.status(status).unwrap_or(status)
    }
}

/// Why a child could not be started.
pub(crate) enum Refusal {
    /// The launch failed.
    Launch(io::Error),
    /// The working directory cannot be opened.
    Directory(io::Error),
    /// `/dev/null` cannot be opened.
    Null(io::Error),
    /// A setting's value is wrong.
    Setting(String),
    /// A NUL byte in an argument or a variable.
    Nul,
}

/// Whether it is the path of a shell whose lines may run without it.
fn is_shell(file: &str) -> bool {
    file.rsplit_once('/').is_some_and(|(_, name)| SHELLS.contains(&name))
}

/// Fails if there are more strings than JavaScript has joined: then one of them contains a NUL byte.
fn has_no_nul(found: usize, joined: u32) -> Result<(), Refusal> {
    if found == joined as usize { Ok(()) } else { Err(Refusal::Nul) }
}

/// The strings of a list.
fn parts(list: &str, count: u32) -> Result<impl Iterator<Item = &[u8]>, Refusal> {
    let split = move || list.as_bytes().split(|byte| *byte == 0);
    if count > 0 {
        has_no_nul(split().count(), count)?;
    }
    Ok(split().take(if count == 0 { 0 } else { usize::MAX }))
}

/// Strings that each end in a NUL byte.
#[derive(Clone)]
struct Variables<'a>(&'a [u8]);

impl<'a> Iterator for Variables<'a> {
    type Item = &'a CStr;

    fn next(&mut self) -> Option<Self::Item> {
        let variable = CStr::from_bytes_until_nul(self.0).ok()?;
        self.0 = self.0.get(variable.count_bytes() + 1..)?;
        Some(variable)
    }
}

fn null_for_reading() -> Result<Stdio, Refusal> {
    let opened = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    opened.map(Stdio::from).map_err(|errno| Refusal::Null(errno.into()))
}

/// As libuv does: a standard stream that the child inherits is set to blocking mode, because programs expect that.
fn blocking(fd: RawFd, number: RawFd) {
    if number > 2 {
        return;
    }
    // SAFETY: as in `Request::fill`: a descriptor that the JavaScript caller has named as its own.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    if let Ok(flags) = fcntl_getfl(fd)
        && flags.contains(OFlags::NONBLOCK)
    {
        let _ = fcntl_setfl(fd, flags - OFlags::NONBLOCK);
    }
}
