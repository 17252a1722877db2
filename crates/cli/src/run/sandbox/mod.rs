//! `--sandbox`: a program that is safe from its surroundings, for root as for an ordinary user.
//!
//! ```text
//! forkless ── clone, all new namespaces ──▶ init (PID 1) ── launch ──▶ the program
//!    │ writes the ID maps                     │ makes mounts, starts the program by the library, drops everything
//!    │ waits for init, sends it signals       │ forwards signals, reaps, ends with the program
//! ```
//!
//! Init is a forked copy of forkless, which has one thread, and so it may run ordinary code. The program itself is launched by
//! the library, as always: mounts, capabilities and filters are steps of its plan. No part is best effort. The first one that
//! fails is printed by its name, and the exit code is 125.

mod init;
mod root;

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::{AsFd, FromRawFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    path::{Component, Path, PathBuf},
    process::ExitStatus,
    sync::atomic::{AtomicI32, Ordering},
    time::Instant,
};

use forkless::{
    CapabilitySet, Child, Command, Resource,
    internal::{
        filter,
        preset::{NOBODY, SHOWN, keeps},
    },
};
use forkless_core::sys;

use super::{
    failure::{FAILED, Failure, say},
    options::{Ids, Mount, OwnGroup, Profile, RunOptions},
};

/// The preset with the options that change it.
pub(crate) struct Sandbox<'a> {
    options: &'a RunOptions,
    profile: Profile,
    ids: Ids,
}

impl<'a> Sandbox<'a> {
    /// The sandbox that the options request.
    pub(crate) fn of(options: &'a RunOptions) -> Result<Option<Self>, Failure> {
        let Some(profile) = options.sandbox.sandbox else { return Ok(None) };
        if options.mounts.targets().any(|target| absolute(target) == Path::new("/")) {
            return Err(failed(
                "root",
                "a mount at / would replace it; show directories below it, such as --bind /srv /srv",
            ));
        }
        if let Some(word @ ("strict" | "default")) = options.words.first().and_then(|word| word.to_str())
            && !std::env::args().any(|given| given.starts_with("--sandbox="))
        {
            return Err(failed(
                "profile",
                format_args!("--sandbox takes its value after =, as in --sandbox={word}; write ./{word} for a program"),
            ));
        }
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let ids = match options.identity.outside()? {
            Some(ids) => ids,
            // Root's files would be those of the program: without capabilities it still owns them.
            None if uid == 0 => Ids { uid: NOBODY, gid: NOBODY, groups: Some(Vec::new()) },
            None => Ids { uid, gid, groups: None },
        };
        Ok(Some(Self { options, profile, ids }))
    }

    /// The settings that explicit options may change. Comes before them.
    pub(crate) fn begin(&self, command: &mut Command) {
        command.env_clear();
        for (name, value) in std::env::vars_os().filter(|(name, _)| keeps(name, &self.options.sandbox.keep_env)) {
            if name != "HOME" || self.shows(Path::new(&value)) || self.options.sandbox.keep_env.contains(&name) {
                command.env(name, value);
            } else {
                command.env(name, "/tmp");
            }
        }
        if std::env::var_os("PATH").is_none() {
            command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        }
        let none = CapabilitySet::from_bits(0);
        // Init has emptied the bounding set.
        command.permitted(none).effective(none).inheritable(none).ambient(none);
        for (resource, soft, hard) in [
            (Resource::Core, 0, 0),
            (Resource::Processes, 2048, 2048),
            (Resource::Files, 1024, 65536),
            (Resource::Nice, 0, 0),
            (Resource::RealtimePriority, 0, 0),
            (Resource::LockedMemory, 8 << 20, 8 << 20),
            (Resource::PendingSignals, 4096, 4096),
            (Resource::MessageQueues, 256 << 10, 256 << 10),
        ] {
            let (_, most) = super::options::own_limit(resource);
            command.rlimit(resource, soft.min(most), hard.min(most));
        }
    }

    /// Does init empty the bounding set of the program, too? An option may ask for another one.
    fn empties_bounding_set(&self) -> bool {
        !self.options.privileges.sets_bounding_set()
    }

    /// The settings that explicit options only add to. Comes after them.
    pub(crate) fn finish(&self, command: &mut Command) -> Result<(), Failure> {
        command.no_new_privs(true);
        if self.options.child.pty.is_none() {
            command.setsid(true);
        }
        let given = command.get_seccomp().map(<[_]>::to_vec);
        let filter = match given {
            None => filter::program(),
            Some(given) => filter::both(&given, &filter::program()).ok_or_else(|| {
                failed("seccomp filter", "--seccomp: the given filter cannot be combined with that of the sandbox")
            })?,
        };
        command.seccomp(filter);
        let directory = match &self.options.chdir {
            // That of forkless may have been removed, or may be outside of its root.
            Some(given) if given.is_absolute() => given.clone(),
            given => {
                let here = std::env::current_dir().map_err(|error| failed("working directory", error))?;
                given.as_ref().map_or(here.clone(), |given| here.join(given))
            }
        };
        if !self.shows(&directory) {
            return Err(failed(
                "working directory",
                format_args!(
                    "{directory:?} is not visible inside; show it: {}\n\
                     (--bind lets the program write there; --chdir / starts it elsewhere)",
                    self.shown_line(&directory)
                ),
            ));
        }
        command.current_dir(plain(&directory));
        Ok(())
    }

    /// This command line, with an option that shows the working directory.
    fn shown_line(&self, directory: &Path) -> String {
        let place = match &self.options.chdir {
            Some(_) => word(directory.as_os_str()),
            None => ".".to_owned(),
        };
        let mut line = "forkless".to_owned();
        let mut is_shown = false;
        for given in std::env::args_os().skip(1) {
            line += &format!(" {}", word(&given));
            if !is_shown && given.as_encoded_bytes().starts_with(b"--sandbox") {
                line += &format!(" --ro-bind {place} {place}");
                is_shown = true;
            }
        }
        line
    }

    /// Is the path visible to the program? The places that the preset shows, and those of the options that mount.
    fn shows(&self, path: &Path) -> bool {
        let path = plain(path);
        // New file systems, which are empty.
        let new = ["/", "/tmp", "/var/tmp", "/dev", "/dev/shm", "/proc", "/run", "/var"]
            .iter()
            .any(|new| path == Path::new(new));
        let mut shown = SHOWN.iter().map(PathBuf::from).chain(self.options.mounts.targets().map(absolute));
        new || shown.any(|shown| path.starts_with(shown))
    }

    /// Is the target below no other mount of the sandbox?
    fn is_in_root(&self, mount: &Mount) -> bool {
        let target = absolute(mount.target());
        let own = ["/proc", "/dev", "/tmp", "/var/tmp"].map(PathBuf::from);
        let others = self.options.mounts.targets().map(absolute).filter(|other| *other != target);
        !others.chain(own).any(|other| target.starts_with(other))
    }

    /// Clones init, which starts the program.
    pub(crate) fn start(&self, command: &mut Command, group: Option<&OwnGroup>) -> Result<(Child, Status), Failure> {
        let pipes = self.capture(command)?;
        let trees = root::trees_of_root(self.options)?;
        let status = Status::new()?;
        let (go, went) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|error| failed("pipe", error))?;
        let started = Instant::now();
        let mask = sys::set_signal_mask(u64::MAX).map_err(|errno| failed("signal mask", error_of(errno)))?;
        let cloned = clone(self.namespaces());
        if let Ok(None) = cloned {
            drop(went);
            let inside = || init::run(self, command, &trees, go.as_fd(), &status);
            // No panic may get into the code of the parent.
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(inside));
            let code = match ended {
                Ok(Ok(code)) => code,
                Ok(Err(failure)) => {
                    say(super::remedy::describe(&failure, self.options));
                    failure.code
                }
                Err(_) => FAILED,
            };
            // SAFETY: ends the process; no destructors of the parent's objects run.
            unsafe { libc::_exit(code.into()) };
        }
        let _ = sys::set_signal_mask(mask);
        let (pid, pidfd) = match cloned {
            Ok(Some(child)) => child,
            Ok(None) => unreachable!("the child has ended above"),
            Err(error) => return Err(self.culprit(error)),
        };
        let mut child = Child::cloned(pid, pidfd, started);
        let [output, errors] = pipes;
        (child.stdout, child.stderr) = (output.map(Into::into), errors.map(Into::into));
        let ready = self
            .set_oom_score(pid)
            .and_then(|()| self.write_maps(pid))
            .and_then(|()| group.map_or(Ok(()), |group| group.add(pid)));
        let ready =
            ready.and_then(|()| rustix::io::write(&went, b"g").map(drop).map_err(|error| failed("init", error)));
        if let Err(failure) = ready {
            let _ = child.kill();
            let _ = child.wait();
            return Err(failure);
        }
        // Kept open: init knows by its end that forkless has died before it could ask for a signal.
        Ok((child, Status { alive: Some(went), ..status }))
    }

    /// Makes the pipes of `--capture` here: those that init would make belong to it. Returns the ends to read from.
    fn capture(&self, command: &mut Command) -> Result<[Option<OwnedFd>; 2], Failure> {
        let mut ends = [None, None];
        for (number, end) in (1..).zip(&mut ends).filter(|_| self.options.capture.is_some()) {
            if !self.options.sets_fd(number) {
                let (read, write) =
                    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|error| failed("pipe", error))?;
                command.fd(write, number);
                *end = Some(read);
            }
        }
        Ok(ends)
    }

    fn namespaces(&self) -> Vec<(&'static str, i32)> {
        let mut kinds = vec![
            ("PID", libc::CLONE_NEWPID),
            ("mount", libc::CLONE_NEWNS),
            ("IPC", libc::CLONE_NEWIPC),
            ("UTS", libc::CLONE_NEWUTS),
            ("cgroup", libc::CLONE_NEWCGROUP),
        ];
        if !self.options.sandbox.share_net {
            kinds.push(("network", libc::CLONE_NEWNET));
        }
        kinds
    }

    /// Names the namespace that the kernel refuses: clone(2) returns one error for all.
    fn culprit(&self, error: io::Error) -> Failure {
        let mut found = ("user", error);
        for kind in std::iter::once(None).chain(self.namespaces().into_iter().map(Some)) {
            match clone(kind.into_iter().collect()) {
                // SAFETY: ends the process, a copy that does nothing else.
                Ok(None) => unsafe { libc::_exit(0) },
                Ok(Some((pid, pidfd))) => _ = Child::cloned(pid, pidfd, Instant::now()).wait(),
                Err(error) => {
                    found = (kind.map_or("user", |(name, _)| name), error);
                    break;
                }
            }
        }
        let (name, error) = found;
        let remedy = match error.raw_os_error() {
            Some(libc::EPERM) if is_in_chroot() => "; user namespaces cannot be made in a chroot",
            Some(libc::EPERM) => "; AppArmor, a sysctl, a chroot or the filter of a container forbids it",
            Some(libc::ENOSPC) => "; the limit in /proc/sys/user is reached",
            _ => "",
        };
        failed(&format!("{name} namespace"), format_args!("{error}{remedy}"))
    }

    /// Here, because /proc is read-only inside.
    fn set_oom_score(&self, pid: i32) -> Result<(), Failure> {
        let Some(score) = self.options.settings.oom_score() else { return Ok(()) };
        std::fs::write(format!("/proc/{pid}/oom_score_adj"), score.to_string())
            .map_err(|error| failed("oom_score_adj", format_args!("cannot set {score}: {error}")))
    }

    /// Maps the IDs of the program to themselves, as only a process outside can do.
    fn write_maps(&self, pid: i32) -> Result<(), Failure> {
        let write = |file: &str, text: String| {
            std::fs::write(format!("/proc/{pid}/{file}"), text).map_err(|error| {
                let cause = match error.kind() {
                    io::ErrorKind::NotFound => "; it needs a /proc of this PID namespace",
                    io::ErrorKind::PermissionDenied => "; choose an ID that exists in this user namespace: --reuid",
                    _ => "",
                };
                failed("user namespace", format_args!("cannot write {file}: {error}{cause}"))
            })
        };
        let Ids { uid, gid, groups } = &self.ids;
        write("uid_map", format!("{uid} {uid} 1\n"))?;
        if groups.is_none() {
            write("setgroups", "deny".into())?;
        }
        // The kernel refuses a map with the same ID twice, and setgroups(2) does not.
        let groups: BTreeSet<_> = groups.iter().flatten().filter(|group| *group != gid).collect();
        let more: String = groups.iter().map(|group| format!("{group} {group} 1\n")).collect();
        write("gid_map", format!("{gid} {gid} 1\n{more}"))
    }

    /// Describes the sandbox, for `--explain`.
    pub(crate) fn describe(&self) -> String {
        let names: Vec<_> = self.namespaces().iter().map(|(name, _)| *name).collect();
        let Ids { uid, gid, .. } = self.ids;
        format!(
            "sandbox: init, cloned into new namespaces: user, {}; user {uid}, group {gid}\n\
             sandbox: read-only root with {}; private /proc, /dev, /tmp\n\
             sandbox: Landlock, a filter of system calls, {}these steps:\n",
            names.join(", "),
            SHOWN.iter().filter(|path| Path::new(path).exists()).copied().collect::<Vec<_>>().join(" "),
            if self.empties_bounding_set() { "an empty bounding set, and " } else { "and " },
        )
    }
}

/// The result that init leaves: PID 1 cannot end by a signal, and an exit code does not say whether one was sent.
pub(crate) struct Status {
    /// A page shared with init: 1 plus the wait status of the program; 0 if it has not ended.
    word: &'static AtomicI32,
    /// In the same page: 1 as soon as the program is executed.
    executed: &'static AtomicI32,
    alive: Option<OwnedFd>,
}

impl Status {
    fn new() -> Result<Self, Failure> {
        // SAFETY: a new mapping, chosen by the kernel and never unmapped; zero is a valid number.
        let [word, executed] = unsafe {
            let page = libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if page == libc::MAP_FAILED {
                return Err(failed("shared memory", io::Error::last_os_error()));
            }
            &*page.cast::<[AtomicI32; 2]>()
        };
        Ok(Self { word, executed, alive: None })
    }

    /// Whether the program was executed: init ends by itself if it could not start it.
    pub(crate) fn is_executed(&self) -> bool {
        self.executed.load(Ordering::Acquire) != 0
    }

    /// How the program ended, if init ended because of that.
    pub(crate) fn of(&self, init: ExitStatus) -> ExitStatus {
        debug_assert!(self.alive.is_some());
        match self.word.load(Ordering::Acquire) {
            0 => init,
            status => ExitStatus::from_raw(status - 1),
        }
    }
}

/// An error of one part of the sandbox.
fn failed(part: &str, why: impl std::fmt::Display) -> Failure {
    Failure::before(format_args!("sandbox: {part}: {why}"))
}

fn error_of(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// Clones a copy of this process into a new user namespace, and new ones of these kinds: clone(2) without a stack. Returns
/// None in the copy.
fn clone(kinds: Vec<(&'static str, i32)>) -> io::Result<Option<(i32, OwnedFd)>> {
    let flags =
        kinds.iter().fold(libc::CLONE_NEWUSER | libc::CLONE_PIDFD | libc::SIGCHLD, |flags, (_, kind)| flags | kind);
    let mut pidfd = -1;
    // SAFETY: without CLONE_VM the child has a copy of the memory, and this process has one thread, so nothing in the copy is
    // locked or half changed.
    let cloned = unsafe {
        let number = libc::SYS_clone as u32;
        sys::syscall(number, [flags as u32 as usize, 0, &raw mut pidfd as usize, 0, 0, 0])
    };
    match cloned.map_err(error_of)? {
        0 => Ok(None),
        // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
        pid => Ok(Some((pid as i32, unsafe { OwnedFd::from_raw_fd(pidfd) }))),
    }
}

/// A word for a shell.
fn word(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,@%+".contains(letter);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// Is `/` not the root of a mount? Then it cannot be the root of the mount namespace.
fn is_in_chroot() -> bool {
    let found = rustix::fs::statx(rustix::fs::CWD, "/", rustix::fs::AtFlags::empty(), rustix::fs::StatxFlags::empty());
    found.is_ok_and(|found| !found.stx_attributes.contains(rustix::fs::StatxAttributes::MOUNT_ROOT))
}

/// A path of the program: relative ones start from the working directory of forkless.
fn absolute(path: &Path) -> PathBuf {
    plain(&std::env::current_dir().unwrap_or_default().join(path))
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut found = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => found.push(name),
            Component::ParentDir => _ = found.pop(),
            _ => {}
        }
    }
    found
}

/// The program of a shell line: init always starts a shell.
pub(crate) fn shell(line: &OsString, path: Option<&Path>) -> Command {
    let mut command = Command::new(path.unwrap_or(Path::new("/bin/sh")));
    command.arg("-c").arg(line);
    command
}
