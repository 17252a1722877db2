//! The program that the probes launch: the bench's target, which only exits, as a memfd, or this executable.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
};

use forkless::{Command, Stdio};
use rustix::{fs::MemfdFlags, io::Errno};

use forkless_bench::TARGET_PROGRAM;

/// This executable. Works even if its path is not accessible.
const SELF: &str = "/proc/self/exe";

/// A program that exits with 0.
#[derive(Debug)]
pub(crate) enum Trial {
    /// An executable memfd.
    Memory(OwnedFd),
    /// This executable, by descriptor.
    Open(OwnedFd),
    /// This executable, by path.
    Named,
}

impl Trial {
    /// The memfd. It is not executable if `vm.memfd_noexec` is 2.
    pub(crate) fn in_memory() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC;
        // Kernels before 6.3 neither know nor need EXEC.
        let memory = match rustix::fs::memfd_create("forkless-doctor", flags | MemfdFlags::EXEC) {
            Err(Errno::INVAL) => rustix::fs::memfd_create("forkless-doctor", flags),
            answer => answer,
        }?;
        let mut file = File::from(memory);
        file.write_all(TARGET_PROGRAM)?;
        // execve(2) returns ETXTBSY for other files open for writing, but not for a memfd.
        Ok(Self::Memory(file.into()))
    }

    /// This executable, opened.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self::Open(File::open(SELF)?.into()))
    }

    /// The first of the three that can be launched here.
    pub(crate) fn find() -> Option<Self> {
        let kinds: [fn() -> io::Result<Self>; 3] = [Self::in_memory, Self::open, || Ok(Self::Named)];
        kinds.into_iter().filter_map(|kind| kind().ok()).find(|trial| trial.run(|_| ()).is_ok())
    }

    /// Launches it with the settings that `ask` adds, and waits.
    ///
    /// # Errors
    /// If the launch fails or the exit code is not 0.
    pub(crate) fn run(&self, ask: impl FnOnce(&mut Command)) -> io::Result<()> {
        let mut command = self.command()?;
        ask(&mut command);
        let status = command.status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("the program ended with {status}"))) }
    }

    /// The command, with its standard streams on /dev/null.
    pub(crate) fn command(&self) -> io::Result<Command> {
        let mut command = match self {
            Self::Memory(program) => {
                let mut command = Command::new("forkless-trial");
                command.program_fd(program.try_clone()?);
                command
            }
            Self::Open(program) => {
                let mut command = Command::new("forkless");
                command.program_fd(program.try_clone()?).arg("--version");
                command
            }
            Self::Named => {
                let mut command = Command::new(SELF);
                command.arg("--version");
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }
}
