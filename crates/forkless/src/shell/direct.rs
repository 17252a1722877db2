//! The checks before a direct run: where the program is, whether its files are harmless, and which of the child's
//! settings a shell would notice.

use super::around::{self, ShellSurroundings};
use super::classify::{OpenMode, Redirection};
use super::ending::{Captures, ShellEnding};
use super::environment::{Given, ProgramPlace};
use super::known::{self, ShellFile, ShellKind, ShellName};
use super::{Reason, ShellCommand};
use crate::procfs;
use crate::request::command::{Command, Isolation, Paths, Ready, ReadyFile, Setup, Signals};
use crate::route::Launcher;
use forkless_core::plan::NOWHERE;
use forkless_core::sys::{self, signal, uapi};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::borrow::Cow;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// What is put into a command for a direct run.
pub(super) struct Direct {
    words: Vec<OsString>,
    ready: Ready,
    /// The shell handles SIGCHLD, so the program does not inherit it as ignored.
    resets_sigchld: bool,
    /// Children that the shell forks start with no signal blocked.
    clears_mask: bool,
    pub(super) ending: ShellEnding,
}

const SIGCHLD: u64 = signal::bit(signal::SIGCHLD);

/// Signals that must not be blocked for a dash that waits: SIGCHLD, by which it waits, and those that a terminal sends
/// to both and that would have killed dash.
const HEEDED: u64 = SIGCHLD | 0b111;

impl Direct {
    /// Everything that a direct run needs, or why the line must go to the shell.
    pub(super) fn prepare(line: &ShellCommand, captures: Captures) -> Result<Self, Reason> {
        let form = line.form.as_ref().map_err(|why| Reason::Syntax(why.clone()))?;
        let around = line.surroundings.as_ref();
        let known = around.and_then(|around| around.shell(&line.shell));
        let shell = known.or_else(|| ShellFile::of(&line.shell)).ok_or(Reason::Shell)?;
        let kind = known::shell_kind(&shell);
        let name = line.command.args.first().map_or(ShellName::Other, |arg0| ShellName::of(arg0));
        match kind {
            ShellKind::Other => return Err(Reason::Shell),
            ShellKind::Bash if name == ShellName::Other => return Err(Reason::Shell),
            // It replaces itself by its last command only.
            ShellKind::Bash if !form.exec && (!form.redirections.is_empty() || !form.bare) => {
                return Err(Reason::Waits);
            }
            ShellKind::Bash | ShellKind::Dash => {}
        }
        let waits = kind == ShellKind::Dash && !form.exec;
        let command = &line.command;
        check_settings(command)?;
        check_privileges(around)?;
        // A process that dash forks starts with no signal blocked, whatever dash itself has blocked; bash unblocks
        // SIGCHLD.
        check_mask(&command.signals, around, if waits { HEEDED } else { SIGCHLD })?;
        let ending = match waits {
            true => ShellEnding::of(shell, command, &form.redirections, captures).ok_or(Reason::StandardError)?,
            false => ShellEnding::plain(),
        };
        let directory = command.directory.as_deref();
        let mut redirections: Vec<_> =
            form.redirections.iter().map(|one| file(one, command)).collect::<Result<_, _>>()?;
        redirections.extend(program(&form.words[0], command, around)?);
        let given = Given::of(command);
        let paths = programs(kind, &form.words[0], given.path())?;
        let known = around.filter(|_| directory.is_none()).and_then(|around| around.pwd(given.pwd()));
        let directory = known.or_else(|| around::pwd(given.pwd(), directory)).ok_or(Reason::Directory)?;
        let place = ProgramPlace { directory, program: paths.get(0).as_bytes(), shell: name };
        let env = given.by_shell(kind, form, &place, around.map(ShellSurroundings::patterns))?;
        let words = form.words.iter().map(|word| OsString::from_vec(word.clone())).collect();
        let ready = Ready { env, paths, redirections };
        Ok(Self { words, ready, resets_sigchld: kind == ShellKind::Dash, clears_mask: waits, ending })
    }

    /// Runs it by `how`. Afterwards the command is as before.
    pub(super) fn run<T>(
        self,
        command: &mut Command,
        how: impl Fn(&mut Command) -> io::Result<T>,
    ) -> io::Result<(T, ShellEnding)> {
        let before = (command.signals, command.busy_ms, command.scripts_by_shell);
        let program = std::mem::replace(&mut command.program, self.words[0].clone());
        let args = std::mem::replace(&mut command.args, self.words);
        let ready = command.ready.replace(self.ready);
        // If the file is busy, or a script without `#!`, the shell runs the line and does what it does then.
        command.busy_ms = 0;
        command.scripts_by_shell = false;
        if self.resets_sigchld {
            command.signals.default |= SIGCHLD;
            command.signals.ignore &= !SIGCHLD;
        }
        if self.clears_mask {
            (command.signals.inherit_mask, command.signals.mask) = (false, 0);
        }
        let answer = how(command);
        command.ready = ready;
        (command.program, command.args) = (program, args);
        (command.signals, command.busy_ms, command.scripts_by_shell) = before;
        answer.map(|done| (done, self.ending))
    }
}

/// Refuses settings that affect a shell in another way than the program, or that name descriptors that the
/// redirections may need.
fn check_settings(command: &Command) -> Result<(), Reason> {
    let Isolation {
        unshare,
        uid_maps: _,
        gid_maps: _,
        joins,
        hostname,
        mounts,
        pivot_root,
        cgroup: _,
        bounding,
        permitted,
        effective,
        inheritable,
        ambient,
        securebits,
        landlock,
        seccomp,
        // Set by sandboxes alone.
        ids_first: _,
        calls: _,
        in_sandbox: _,
        init: _,
        limits,
    } = &command.sandbox;
    let surroundings = *unshare != 0 || !joins.is_empty() || hostname.is_some() || !mounts.is_empty();
    let sets = [bounding, permitted, effective, inheritable, ambient].into_iter().any(Option::is_some);
    let rules = securebits.is_some() || landlock.is_some() || seccomp.is_some() || pivot_root.is_some();
    let rules = rules || command.confinement.is_some();
    let Setup {
        simple,
        directory_fd,
        rlimits,
        scheduler: _,
        affinity: _,
        io_priority: _,
        terminal,
        foreground,
        chroot,
        user,
        group,
        groups,
        umask: _,
        no_new_privs: _,
        parent_death_signal,
        follows_thread: _,
        calls,
        hand_backs,
        best_effort,
    } = &command.setup;
    let identity = user.is_some() || group.is_some() || groups.is_some();
    let places = directory_fd.is_some() || chroot.is_some() || terminal.is_some() || foreground.is_some();
    let own = !calls.is_empty() || !hand_backs.is_empty() || !best_effort.is_empty() || parent_death_signal.is_some();
    let handles = command.pty.is_some() || command.program_fd.is_some() || !command.candidates.is_empty();
    // Limits: a shell would count as one of the tasks, and has memory of its own.
    let any = limits.make.is_some()
        || simple.has_effect_on_shell()
        || surroundings
        || sets
        || rules
        || identity
        || places
        || own
        || handles
        || !rlimits.is_empty();
    if any { Err(Reason::Setting) } else { Ok(()) }
}

fn check_privileges(around: Option<&ShellSurroundings>) -> Result<(), Reason> {
    let is_privileged = around.map_or_else(around::is_privileged, ShellSurroundings::is_privileged);
    if is_privileged { Err(Reason::Privileged) } else { Ok(()) }
}

/// Refuses a program in which one of the `unblocked` signals would be blocked.
fn check_mask(signals: &Signals, around: Option<&ShellSurroundings>, unblocked: u64) -> Result<(), Reason> {
    let inherited = match signals.inherit_mask {
        true => match around.and_then(ShellSurroundings::mask) {
            Some(mask) => mask,
            None => sys::signal_mask().map_err(|_| Reason::Blocked)?,
        },
        false => 0,
    };
    let is_clear = (inherited | signals.mask) & unblocked == 0;
    if is_clear { Ok(()) } else { Err(Reason::Blocked) }
}

/// A redirection for the child. Pipes, terminals and devices are refused: opening one may block without end, or have
/// an effect each time.
fn file(redirection: &Redirection, command: &Command) -> Result<ReadyFile, Reason> {
    let (to, path, how) = match redirection {
        Redirection::Copy { to, from } => return Ok(ReadyFile::Copy { to: *to, from: *from }),
        Redirection::Open { to, path, how } => (*to, path, *how),
    };
    let name = Path::new(OsStr::from_bytes(path));
    let refused = || Reason::File(name.to_owned());
    // The child detects other names that lead there.
    if is_procfs(path) {
        return Err(refused());
    }
    // A child of the C library's posix_spawn cannot detect them.
    if command.launcher == Launcher::PosixSpawn {
        return Err(Reason::Setting);
    }
    let found = fs::metadata(in_directory(name, command.directory.as_deref()));
    match found {
        Ok(file) if file.is_file() || is_null(&file) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound && how != OpenMode::Read => check_umask(command)?,
        _ => return Err(refused()),
    }
    let flags = match how {
        OpenMode::Read => uapi::O_RDONLY,
        OpenMode::Write => uapi::O_WRONLY | uapi::O_CREAT | uapi::O_TRUNC,
        OpenMode::Append => uapi::O_WRONLY | uapi::O_CREAT | uapi::O_APPEND,
    };
    let path = CString::new(path.as_slice()).map_err(|_| refused())?;
    Ok(ReadyFile::Open { to, path, flags: flags as i32 })
}

/// Whether the path is in procfs by its usual names.
fn is_procfs(path: &[u8]) -> bool {
    [&b"/proc"[..], b"/dev/fd", b"/dev/std"].iter().any(|start| path.starts_with(start))
}

/// What the child opens after the redirections. It goes on only if the program is not in procfs, where the shell would
/// find another file.
fn program(name: &[u8], command: &Command, around: Option<&ShellSurroundings>) -> Result<Option<ReadyFile>, Reason> {
    if !name.contains(&b'/') {
        return Ok(None);
    }
    let path = CString::new(name).ok().filter(|_| !is_procfs(name) && command.launcher != Launcher::PosixSpawn);
    let path = path.ok_or_else(|| Reason::File(OsString::from_vec(name.to_vec()).into()))?;
    if around.is_some_and(|around| around.is_outside_procfs(&path)) {
        return Ok(None);
    }
    Ok(Some(ReadyFile::Open { to: NOWHERE, path, flags: uapi::O_PATH as i32 }))
}

/// Refuses a umask with which the shell could not open a file that this run has created.
fn check_umask(command: &Command) -> Result<(), Reason> {
    const OWNER_WRITES: u32 = 0o200;
    let own = || {
        // Read from /proc: umask(2) can only be read by changing it, for all threads.
        let status = fs::read(procfs::thread("status")).ok()?;
        let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"Umask:"))?;
        u32::from_str_radix(std::str::from_utf8(line).ok()?.trim(), 8).ok()
    };
    match command.setup.umask.or_else(own) {
        Some(mask) if mask & OWNER_WRITES == 0 => Ok(()),
        _ => Err(Reason::Umask),
    }
}

/// Whether it is `/dev/null`, by any name: character device 1:3.
fn is_null(file: &Metadata) -> bool {
    file.file_type().is_char_device() && file.rdev() == rustix::fs::makedev(1, 3)
}

fn in_directory<'a>(path: &'a Path, directory: Option<&Path>) -> Cow<'a, Path> {
    match directory {
        Some(directory) => Cow::Owned(directory.join(path)),
        None => Cow::Borrowed(path),
    }
}

/// The files that the shell would try for a program, in its order; never empty.
fn programs(kind: ShellKind, name: &[u8], path: Option<&[u8]>) -> Result<Paths, Reason> {
    if name.contains(&b'/') {
        return Ok(Paths::one(name));
    }
    // Shells differ in what a missing PATH means, and in how they take these two characters.
    let path = path.filter(|path| !path.is_empty() && !path.iter().any(|byte| b"%~".contains(byte)));
    let path = path.ok_or(Reason::Path)?;
    let entries = path.split(|&byte| byte == b':');
    if entries.clone().any(is_procfs) {
        return Err(Reason::Path);
    }
    match kind {
        ShellKind::Dash => {
            let count = entries.clone().count();
            let mut paths = Paths::with_capacity(count, path.len() + count * (name.len() + 1));
            entries.for_each(|entry| paths.push(&joined(entry, name)));
            Ok(paths)
        }
        // bash looks the program up before it executes it, and tries no other file.
        _ => look_up(entries, name),
    }
}

/// dash also writes a slash between the two if the directory ends in one.
fn joined<'a>(directory: &'a [u8], name: &'a [u8]) -> [&'a [u8]; 3] {
    [directory, if directory.is_empty() { b"" } else { b"/" }, name]
}

fn look_up<'a>(entries: impl Iterator<Item = &'a [u8]>, name: &[u8]) -> Result<Paths, Reason> {
    for entry in entries {
        if !entry.starts_with(b"/") || entry.ends_with(b"/") {
            return Err(Reason::Path);
        }
        let path = joined(entry, name).concat();
        let file = Path::new(OsStr::from_bytes(&path));
        let is_file = fs::metadata(file).is_ok_and(|found| found.is_file());
        if is_file && accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS).is_ok() {
            return Ok(Paths::one(&path));
        }
    }
    Err(Reason::Path)
}
