//! `--sandbox`: the sandbox of the library, the options that change it, and messages about what does not fit.

use std::{
    ffi::{OsStr, OsString},
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use forkless::{
    Command, Namespace, Network,
    internal::{
        FilePlace,
        preset::{NOBODY, SHOWN, is_shown, plain},
    },
    mount_attribute,
};

use super::{
    failure::{Failure, say},
    options::{Ids, Profile, RunOptions},
};

/// The path of the program of `--exec-fd` and `--fexec` in the sandbox.
const PROGRAM: &str = "/run/forkless-program";

/// The preset with the options that change it.
pub(crate) struct Sandbox<'a> {
    options: &'a RunOptions,
    profile: Profile,
    ids: Option<Ids>,
}

impl<'a> Sandbox<'a> {
    /// The sandbox that the options request.
    pub(crate) fn of(options: &'a RunOptions) -> Result<Option<Self>, Failure> {
        let Some(profile) = options.sandbox.sandbox else { return Ok(None) };
        if options.mounts.targets().any(|target| absolute(target) == Path::new("/")) {
            return Err(failed(
                "root",
                "a mount at / would replace it; show directories below it, such as --write /srv",
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
        Ok(Some(Self { options, profile, ids: options.identity.outside()? }))
    }

    /// The path of the program, if an option gives its file.
    pub(crate) fn program(&self) -> Option<&'static str> {
        self.options.child.has_file().then_some(PROGRAM)
    }

    /// The settings that explicit options may change. Comes before them.
    pub(crate) fn begin(&self, command: &mut Command) {
        if std::env::var_os("PATH").is_none() {
            command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        }
    }

    /// The sandbox itself. Comes after the options.
    pub(crate) fn finish(&self, command: &mut Command) -> Result<(), Failure> {
        if let Some(Ids { uid, gid, groups }) = &self.ids {
            command.uid(*uid).gid(*gid).groups(groups);
        }
        if let Some(name) = self.options.namespaces.hostname() {
            command.hostname(name);
        }
        command.current_dir(self.directory()?);
        self.options.mounts.apply(command)?;
        self.show_program(command)?;
        let mut sandbox = forkless::Sandbox::new();
        sandbox.trusts_command(true).strict(self.profile == Profile::Strict).linger(self.options.linger());
        if self.options.sandbox.share_net {
            sandbox.network(Network::Host);
        }
        let given = &self.options.sandbox;
        given.keep_env.iter().for_each(|name| _ = sandbox.keep_env(name));
        given.read.iter().for_each(|path| _ = sandbox.read(path));
        given.write.iter().for_each(|path| _ = sandbox.write(path));
        given.project.iter().for_each(|path| _ = sandbox.writable_project(path));
        given.hide.iter().for_each(|path| _ = sandbox.hide(path));
        let prepared = sandbox.prepare().map_err(|error| Failure::before(error.to_string()))?;
        if !prepared.has_landlock() {
            say(
                "sandbox: this kernel has no Landlock, or an old one, or it is not enabled; --sandbox=strict would require it",
            );
        }
        command.sandbox(&prepared);
        Ok(())
    }

    /// The working directory.
    fn directory(&self) -> Result<PathBuf, Failure> {
        let directory = match &self.options.chdir {
            // Does not need that of forkless, which may have been removed, or may be outside of its root.
            Some(given) if given.is_absolute() => given.clone(),
            given => {
                let here = std::env::current_dir().map_err(|error| failed("working directory", error))?;
                given.as_ref().map_or(here.clone(), |given| here.join(given))
            }
        };
        if !self.is_shown(&directory) {
            return Err(failed(
                "working directory",
                format_args!(
                    "{directory:?} is not visible inside; show it: {}\n\
                     (--write lets the program write there; --chdir / starts it elsewhere)",
                    self.shown_line(&directory)
                ),
            ));
        }
        Ok(plain(&directory))
    }

    /// Shows the program of `--fexec` and `--exec-fd`. One without a path is copied.
    fn show_program(&self, command: &mut Command) -> Result<(), Failure> {
        let path = match (self.options.child.fexec(), self.options.child.executed()?) {
            (_, None) => return Ok(()),
            (Some(path), _) => std::fs::canonicalize(path).map_err(|error| failed("program", error))?,
            (None, Some(file)) => {
                let known = |file: &OwnedFd| rustix::fs::fstat(file).map(|found| (found.st_dev, found.st_ino));
                let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
                let found = rustix::fs::stat(&link).map(|found| (found.st_dev, found.st_ino));
                if found != known(&file) {
                    let length = rustix::fs::fstat(&file).map_err(|error| failed("program", error))?.st_size;
                    let read_only = mount_attribute::READ_ONLY | mount_attribute::NO_SUID | mount_attribute::NO_DEV;
                    command.make_file((file, length as usize), PROGRAM, 0o555, FilePlace::Mounted(read_only));
                    return Ok(());
                }
                link
            }
        };
        command.bind_read_only(path, PROGRAM);
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
                line += &format!(" --read {place}");
                is_shown = true;
            }
        }
        line
    }

    /// Is the path visible to the program, because the preset or an option that mounts shows it?
    fn is_shown(&self, path: &Path) -> bool {
        let path = plain(path);
        let given = self.options.sandbox.shown().map(PathBuf::as_path).chain(self.options.mounts.targets());
        is_shown(&path) || given.map(absolute).any(|target| path.starts_with(target))
    }

    /// Describes the sandbox, for `--explain`.
    pub(crate) fn describe(&self) -> String {
        let network = if self.options.sandbox.share_net { "" } else { ", network" };
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let (uid, gid) = match &self.ids {
            Some(ids) => (ids.uid, ids.gid),
            None if own.0 == 0 => (NOBODY, NOBODY),
            None => own,
        };
        format!(
            "sandbox: init, which starts the program, in new namespaces: user, PID, mount, IPC, UTS, cgroup{network}; user {uid}, \
             group {gid}\n\
             sandbox: read-only root with {}; private /proc, /dev, /tmp\n",
            SHOWN.iter().filter(|path| Path::new(path).exists()).copied().collect::<Vec<_>>().join(" "),
        )
    }
}

/// The kind of namespace that the kernel refuses, found by trying: clone(2) returns one error for all.
pub(crate) fn refused_namespace(options: &RunOptions, errno: i32) -> Option<String> {
    let kinds = [
        ("user", None),
        ("PID", Some(Namespace::Pid)),
        ("mount", Some(Namespace::Mount)),
        ("IPC", Some(Namespace::Ipc)),
        ("UTS", Some(Namespace::Uts)),
        ("cgroup", Some(Namespace::Cgroup)),
        ("network", Some(Namespace::Network).filter(|_| !options.sandbox.share_net)),
    ];
    let is_refused = |kind: Option<Namespace>| {
        let mut trial = Command::new("/");
        trial.unshare(Namespace::User);
        kind.into_iter().for_each(|kind| _ = trial.unshare(kind));
        let failed = trial.spawn().err();
        let failed = failed.as_ref().and_then(forkless::Error::of);
        failed.is_some_and(|error| error.object() == Some(super::remedy::INTO_NAMESPACES))
    };
    let (name, _) = kinds.into_iter().find(|(_, kind)| is_refused(*kind))?;
    let why = match errno {
        libc::EPERM if is_in_chroot() => "; user namespaces cannot be made in a chroot",
        libc::EPERM => "; AppArmor, a sysctl, a chroot or the filter of a container forbids it",
        libc::ENOSPC => "; the limit in /proc/sys/user is reached",
        _ => "",
    };
    Some(format!("the {name} namespace is refused{why}"))
}

/// Is `/` not the root of a mount? Then it cannot be the root of the mount namespace.
fn is_in_chroot() -> bool {
    let found = rustix::fs::statx(rustix::fs::CWD, "/", rustix::fs::AtFlags::empty(), rustix::fs::StatxFlags::empty());
    found.is_ok_and(|found| !found.stx_attributes.contains(rustix::fs::StatxAttributes::MOUNT_ROOT))
}

/// An error of one part of the sandbox.
fn failed(part: &str, why: impl std::fmt::Display) -> Failure {
    Failure::before(format_args!("sandbox: {part}: {why}"))
}

/// Quotes a word for a shell where needed.
fn word(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,@%+".contains(letter);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// A path of the program: relative ones start from the working directory of forkless.
fn absolute(path: &Path) -> PathBuf {
    plain(&std::env::current_dir().unwrap_or_default().join(path))
}

/// The program of a shell line: init always starts a shell.
pub(crate) fn shell(line: &OsString, path: Option<&Path>) -> Command {
    let mut command = Command::new(path.unwrap_or(Path::new("/bin/sh")));
    command.arg("-c").arg(line);
    command
}
