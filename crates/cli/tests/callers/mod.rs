//! Runs `forkless run` as root and as an ordinary user, for the tests of its settings.

#![allow(dead_code, reason = "each test program uses only a part of it")]

use std::{
    fs::{self, File},
    os::{
        fd::AsRawFd,
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Command, ExitStatus, Output},
    sync::OnceLock,
};

/// Who runs `forkless`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The super-user.
    Root,
    /// Somebody without privileges.
    Ordinary,
}

/// The user that an ordinary user is where the tests run as root: `nobody`, who owns nothing.
const NOBODY: u32 = 65534;

impl Caller {
    /// Those that there can be here; an ordinary user cannot become root.
    pub(crate) fn all(test: &str) -> Vec<Self> {
        if rustix::process::geteuid().is_root() {
            return vec![Self::Root, Self::Ordinary];
        }
        skipped(&format!("{test} as root"), "the tests run as an ordinary user");
        vec![Self::Ordinary]
    }

    /// Those that there can be here, as far as they can make a user namespace.
    pub(crate) fn with_user_namespaces(test: &str) -> Vec<Self> {
        let able = |caller: &Self| {
            let probe = caller.output(&["--unshare-user", "--unshare-mount", "--remount-ro", "/", "true"]);
            if !probe.status.success() {
                skipped(&format!("{test} as {caller:?}"), &format!("there are no user namespaces for it: {probe:?}"));
            }
            probe.status.success()
        };
        Self::all(test).into_iter().filter(able).collect()
    }

    /// Root, where there is one with this capability (by number).
    pub(crate) fn root_with(test: &str, capability: u32) -> Option<Self> {
        let status = fs::read_to_string("/proc/self/status").expect("status");
        let has = field(&status, "CapEff")
            .is_some_and(|set| u64::from_str_radix(&set, 16).expect("a set") >> capability & 1 == 1);
        if !has {
            skipped(test, &format!("the tests run without capability {capability}"));
        }
        has.then_some(Self::Root)
    }

    /// `forkless run` with these words, from `/`.
    pub(crate) fn forkless(self, words: &[&str]) -> Command {
        let mut command = self.shell(binary());
        command.arg0("forkless").arg("run").args(words);
        command
    }

    /// Any program, started by this caller.
    pub(crate) fn shell(self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/");
        if self == Self::Ordinary && rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    pub(crate) fn output(self, words: &[&str]) -> Output {
        self.forkless(words).output().expect("forkless starts")
    }

    /// What it wrote, after an exit with 0.
    pub(crate) fn stdout(self, words: &[&str]) -> String {
        let output = self.output(words);
        assert!(output.status.success(), "{self:?} {words:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Why forkless itself failed.
    pub(crate) fn failure(self, words: &[&str]) -> String {
        let output = self.output(words);
        assert_eq!(output.status.code(), Some(125), "{self:?} {words:?}: {output:?}");
        String::from_utf8(output.stderr).expect("text")
    }

    /// A field of the program's /proc/self/status.
    pub(crate) fn status(self, options: &[&str], name: &str) -> String {
        let words = [options, &["cat", "/proc/self/status"]].concat();
        field(&self.stdout(&words), name).unwrap_or_else(|| panic!("no {name}"))
    }

    /// The user id.
    pub(crate) fn uid(self) -> u32 {
        match self {
            Self::Root => 0,
            Self::Ordinary if rustix::process::geteuid().is_root() => NOBODY,
            Self::Ordinary => rustix::process::geteuid().as_raw(),
        }
    }
}

/// What follows `name:` in a text like /proc/self/status.
pub(crate) fn field(text: &str, name: &str) -> Option<String> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(rest.trim().to_owned())
}

/// The binary under a path that everybody can execute: the build directory may be open to its owner alone.
pub(crate) fn binary() -> &'static str {
    static PATH: OnceLock<(String, std::os::fd::OwnedFd)> = OnceLock::new();
    let (path, _) = PATH.get_or_init(|| {
        let file = File::open(env!("CARGO_BIN_EXE_forkless")).expect("the binary");
        // Out of the way of the numbers that shells name.
        let file = rustix::io::fcntl_dupfd_cloexec(&file, 100).expect("a descriptor");
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).expect("no close-on-exec");
        (format!("/proc/self/fd/{}", file.as_raw_fd()), file)
    });
    path
}

/// The exit status as a shell shows it: 128+n after signal n.
pub(crate) fn shown(status: ExitStatus) -> i32 {
    status.code().or_else(|| Some(128 + status.signal()?)).expect("an end")
}

pub(crate) fn skipped(what: &str, why: &str) {
    eprintln!("SKIPPED: {what}, because {why}");
}

/// A temporary directory that everybody can use.
pub(crate) fn directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("temporary directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).expect("chmod");
    directory
}
