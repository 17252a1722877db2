//! Session, terminal, parent death, and how the program is executed. Options that setsid(1), setpriv(1) and timeout(1)
//! also have are named as theirs.

use std::{
    fs::OpenOptions,
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, ValueEnum};
use forkless::{CallArg, Command, Launcher, Step};
use forkless_core::sys;

use crate::near::did_you_mean;

use super::{
    super::{failure::Failure, job_control::is_in_background, parse, terminal},
    privileges::open_fd,
};

// No doc comment: clap would take it for the description of `forkless run`.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Session and parent")]
pub(crate) struct ChildOptions {
    /// Start a new session
    #[arg(long, alias = "new-session")]
    setsid: bool,

    /// Start a new session with standard input as its controlling terminal
    #[arg(long, conflicts_with = "sandbox")]
    ctty: bool,

    /// Run the program on a new pseudo-terminal (pty) and relay its input and output (default size: that of the current
    /// terminal)
    #[arg(long, value_name = "ROWSxCOLUMNS", num_args = 0..=1, require_equals = true, default_missing_value = terminal::OURS,
          value_parser = terminal::size, conflicts_with_all = ["ctty", "capture"])]
    pub(crate) pty: Option<terminal::Size>,

    /// Create a process group, or join the group PGID (default: inherit it)
    #[arg(long, value_name = "PGID", num_args = 0..=1, require_equals = true, default_missing_value = "0",
          value_parser = clap::value_parser!(i32).range(0..), conflicts_with_all = ["sandbox", "setsid", "ctty", "pty"])]
    pub(crate) process_group: Option<i32>,

    /// Make the program's process group the foreground group of the terminal on standard input, whenever forkless is in
    /// the foreground
    #[arg(long, conflicts_with = "sandbox")]
    pub(crate) foreground: bool,

    /// Send SIG to the program when its parent dies, or none (default: KILL where forkless is the parent)
    #[arg(long, value_name = "SIG", value_parser = death_signal)]
    pdeathsig: Option<DeathSignal>,

    /// Kill forkless and the program when the process that started forkless dies
    #[arg(long, conflicts_with_all = ["pdeathsig", "shell"])]
    pub(crate) die_with_parent: bool,

    /// Kill all that the program has started, also what has left its session: when the program ends, when KILL is sent at a
    /// timeout, and when forkless ends, even by SIGKILL. It can signal no process outside (Linux 6.12)
    #[arg(long, conflicts_with_all = ["ctty", "process_group", "foreground", "pidfd_autokill", "exec_fd", "fexec"])]
    pub(crate) kill_tree: bool,

    /// Kill the program when forkless ends, even by SIGKILL (Linux 7.1; needs --no-new-privs or CAP_SYS_ADMIN)
    // A sandbox ends with forkless in any case, and its process 1 does not keep the pidfd.
    #[arg(long, conflicts_with = "sandbox")]
    pub(crate) pidfd_autokill: bool,

    /// Change to the directory at inherited descriptor N; relative paths of --chdir, --chroot and --pivot-root start there
    #[arg(help_heading = EXPERT, long, value_name = "N", conflicts_with = "sandbox")]
    chdir_fd: Option<u32>,

    /// Execute inherited descriptor N; PROGRAM is only used as argv[0]
    #[arg(help_heading = EXPERT, long, value_name = "N", conflicts_with_all = ["fexec", "or_else", "shell"])]
    exec_fd: Option<u32>,

    /// Open FILE outside the program's root and execute its descriptor; PROGRAM is only used as argv[0]
    #[arg(help_heading = EXPERT, long, value_name = "FILE", conflicts_with_all = ["or_else", "shell"])]
    fexec: Option<PathBuf>,

    /// Retry for DURATION while the program is open for writing (default: 100ms; 0: never)
    #[arg(help_heading = EXPERT, long, value_name = "DURATION", value_parser = parse::duration, conflicts_with = "sandbox")]
    retry_busy: Option<Duration>,

    // The list comes from the library, which refuses all other steps.
    #[arg(help_heading = EXPERT, long, value_name = "STEP", value_delimiter = ',', value_parser = step,
          help = format!("Continue if one of these steps fails, and report it at the end: {}", step_names().join(", ")), conflicts_with = "sandbox")]
    best_effort: Vec<Step>,

    /// Create a child with LAUNCHER, where clone is the default; fork and posix_spawn are the C library's
    #[arg(help_heading = EXPERT, long, value_name = "LAUNCHER", value_enum, conflicts_with = "sandbox")]
    pub(crate) launcher: Option<ByName>,

    /// Make the system call number NR with numeric arguments in the child, before it drops privileges
    #[arg(help_heading = EXPERT, long, value_name = "NR[:ARG...]", value_parser = syscall, conflicts_with = "sandbox")]
    syscall: Vec<Syscall>,
}

const EXPERT: &str = "Advanced";

/// The launchers that `--launcher` accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ByName {
    Clone,
    Fork,
    #[value(name = "posix_spawn", alias = "posix-spawn")]
    PosixSpawn,
}

impl ByName {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Clone => "clone a child that shares memory with forkless until it executes the program",
            Self::Fork => "fork a child with a copy of forkless's memory",
            Self::PosixSpawn => "posix_spawn a child; the C library chooses the order of these steps",
        }
    }
}

/// The value of `--pdeathsig`: a signal, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DeathSignal(Option<i32>);

fn death_signal(word: &str) -> Result<DeathSignal, String> {
    if word == "none" { Ok(DeathSignal(None)) } else { parse::signal(word).map(|signal| DeathSignal(Some(signal))) }
}

/// A system call by numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Syscall {
    number: u32,
    args: Vec<u64>,
}

/// The session and process group of the program, seen from forkless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionAndGroup {
    /// The group of forkless.
    Beside,
    /// A new group.
    OwnGroup,
    /// An existing group.
    OtherGroup,
    /// A new session.
    OwnSession,
    /// A new session below an init, of a sandbox or of `--kill-tree`, which takes the signals for the program.
    BelowInit,
}

impl ChildOptions {
    pub(crate) fn session_and_group(&self) -> SessionAndGroup {
        match self.process_group {
            _ if self.kill_tree => SessionAndGroup::BelowInit,
            _ if self.has_session() || self.pty.is_some() => SessionAndGroup::OwnSession,
            Some(0) => SessionAndGroup::OwnGroup,
            Some(group) if group != sys::getpgrp() => SessionAndGroup::OtherGroup,
            _ => SessionAndGroup::Beside,
        }
    }

    /// Is the program to have the terminal of forkless?
    pub(crate) fn is_in_foreground(&self) -> bool {
        self.foreground && self.session_and_group() != SessionAndGroup::OwnSession
    }

    /// Is a parent-death signal given?
    pub(crate) fn has_death_signal(&self) -> bool {
        self.pdeathsig.is_some_and(|DeathSignal(signal)| signal.is_some())
    }

    /// Sets KILL as the default parent-death signal of a supervised program, which would otherwise run on unseen.
    pub(crate) fn supervised(&self, command: &mut Command, joins_pids: bool) {
        // The library refuses the signal for the first two, and autokill does more.
        let cannot = joins_pids || self.launcher() == ByName::PosixSpawn || self.pidfd_autokill;
        if self.pdeathsig.is_none() && !cannot {
            command.parent_death_signal(libc::SIGKILL);
        }
    }

    /// Makes the kernel kill forkless with its parent. The program then dies with forkless, as [`Self::supervised`] says.
    pub(crate) fn die_with_parent(&self, joins_pids: bool) -> Result<(), Failure> {
        if !self.die_with_parent {
            return Ok(());
        }
        let failed = |why: &dyn std::fmt::Display| Failure::before(format_args!("--die-with-parent: {why}"));
        if joins_pids || self.launcher() == ByName::PosixSpawn {
            return Err(failed(&"the program would not die with forkless; leave out --join pid= and --launcher"));
        }
        let parent = rustix::process::getppid();
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
            .map_err(|error| failed(&error))?;
        // The parent may have died before the request.
        if rustix::process::getppid() != parent { Err(failed(&"the parent has died")) } else { Ok(()) }
    }

    /// The file to execute in place of PROGRAM.
    pub(crate) fn fexec(&self) -> Option<&PathBuf> {
        self.fexec.as_ref()
    }

    /// Is a file executed in place of PROGRAM?
    pub(crate) fn has_file(&self) -> bool {
        self.exec_fd.is_some() || self.fexec.is_some()
    }

    /// The file that is executed by its descriptor, if there is one.
    pub(crate) fn executed(&self) -> Result<Option<OwnedFd>, Failure> {
        match (self.exec_fd, &self.fexec) {
            (Some(number), _) => open_fd("--exec-fd", number).map(Some),
            (None, Some(path)) => Ok(Some(open_program(path)?.into())),
            (None, None) => Ok(None),
        }
    }

    /// May the launch continue if this step fails?
    pub(crate) fn is_best_effort(&self, step: Step) -> bool {
        self.best_effort.contains(&step)
    }

    /// May any step fail, so that a report may be needed?
    pub(crate) fn is_any_best_effort(&self) -> bool {
        !self.best_effort.is_empty()
    }

    /// Does the program lead a new session?
    pub(crate) fn has_session(&self) -> bool {
        self.setsid || self.ctty
    }

    /// Does the child make system calls by their numbers?
    pub(crate) fn has_calls(&self) -> bool {
        !self.syscall.is_empty()
    }

    /// What creates the child, if there is one.
    pub(crate) fn launcher(&self) -> ByName {
        self.launcher.unwrap_or(ByName::Clone)
    }

    pub(crate) fn apply(&self, command: &mut Command, is_sandboxed: bool) -> Result<(), Failure> {
        command.launcher(match self.launcher() {
            ByName::Clone => Launcher::Clone,
            ByName::Fork => Launcher::Fork,
            ByName::PosixSpawn => Launcher::PosixSpawn,
        });
        if let Some(group) = self.process_group {
            command.process_group(group);
        }
        command.setsid(self.has_session() || self.kill_tree && self.pty.is_none());
        if self.ctty {
            command.controlling_terminal(0);
        }
        // In the background, forkless would take the terminal from another job.
        if self.foreground && !(self.is_in_foreground() && is_in_background()) {
            command.foreground(0);
        }
        if let Some(DeathSignal(Some(signal))) = self.pdeathsig {
            command.parent_death_signal(signal);
        }
        command.pidfd_autokill(self.pidfd_autokill).kill_tree(self.kill_tree);
        if let Some(number) = self.chdir_fd {
            command.current_dir_fd(open_fd("--chdir-fd", number)?);
        }
        if let Some(program) = self.executed()?.filter(|_| !is_sandboxed) {
            command.program_fd(program);
        }
        if let Some(limit) = self.retry_busy {
            command.retry_busy(limit);
        }
        // As execvp(3), and so env(1), nice(1) and timeout(1).
        command.scripts_by_shell(!self.has_file() && self.launcher() != ByName::PosixSpawn);
        for step in &self.best_effort {
            command.best_effort(*step);
        }
        for Syscall { number, args } in &self.syscall {
            // SAFETY: the child shares the memory of this process only, and the user is responsible for what the call does
            // to it, as in a debugger.
            unsafe { command.call(*number, args.iter().copied().map(CallArg::from), None) };
        }
        Ok(())
    }
}

/// Opens FILE for reading, as a script needs, or with O_PATH if it may be executed but not read.
fn open_program(path: &PathBuf) -> Result<std::fs::File, Failure> {
    let readable = OpenOptions::new().read(true).open(path);
    let opened = readable.or_else(|_| OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path));
    opened.map_err(|error| Failure::before(format_args!("--fexec: cannot open {path:?}: {error}")))
}

/// A step that may be best effort, by its name in the library or by its description in messages.
fn step(word: &str) -> Result<Step, String> {
    let plain = |text: &str| text.replace(['-', '_', ' '], "").to_ascii_lowercase();
    let called =
        |step: &Step| [format!("{step:?}"), step.describe().to_owned()].iter().any(|name| plain(name) == plain(word));
    match steps().find(called) {
        Some(step) if step.can_fail() => Ok(step),
        Some(_) => Err(format!("this step cannot be best effort; use one of {}", step_names().join(", "))),
        None => {
            let near = did_you_mean(word, step_names());
            Err(format!("no step {word:?}; use one of {}{near}", step_names().join(", ")))
        }
    }
}

/// The steps of the child. Their codes are below 100.
fn steps() -> impl Iterator<Item = Step> {
    (0..100).filter_map(Step::of_code)
}

/// The names of all steps that may be best effort.
pub(crate) fn step_names() -> Vec<String> {
    steps().filter(|step| step.can_fail()).map(|step| kebab(&format!("{step:?}"))).collect()
}

/// `SetGid` as `set-gid`.
fn kebab(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push('-');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

fn syscall(word: &str) -> Result<Syscall, String> {
    let mut parts = word.split(':');
    let number = parts.next().unwrap_or_default();
    let number = parse::number32(number)
        .map_err(|why| format!("{why}; system calls are given by number, as in ausyscall(8)"))?;
    let args: Vec<u64> = parts.map(parse::number).collect::<Result<_, _>>()?;
    if args.len() > 6 {
        return Err("a system call has at most 6 arguments".to_owned());
    }
    Ok(Syscall { number, args })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_accepts_names_and_descriptions_of_best_effort_steps() {
        for word in ["rlimit", "set the limit", "RLIMIT"] {
            assert_eq!(step(word), Ok(Step::Rlimit), "{word}");
        }
        assert_eq!(step("oom-score"), Ok(Step::OomScore));
        assert_eq!(step("set-gid"), Ok(Step::SetGid));
        assert!(step("nonsense").is_err_and(|words| words.contains("parent-death-signal")));
        assert!(step("exec").is_err_and(|words| words.contains("best effort")));
        // Every name that the help lists is accepted here and by the library.
        let names = step_names();
        for name in &names {
            let step = step(name).expect(name);
            assert!(Command::new("/").best_effort(step).prepare().is_ok(), "{name}");
        }
        assert!(names.len() > 20 && names.iter().all(|name| name != "exec"), "{names:?}");
    }

    #[test]
    fn syscall_takes_a_number_and_up_to_six_arguments() {
        assert_eq!(syscall("39"), Ok(Syscall { number: 39, args: vec![] }));
        assert_eq!(syscall("157:38:0x1:-1"), Ok(Syscall { number: 157, args: vec![38, 1, u64::MAX] }));
        for word in ["", "getpid", "1:", "1:a", "1:0:0:0:0:0:0:0", "-1"] {
            assert!(syscall(word).is_err(), "{word}");
        }
    }
}
