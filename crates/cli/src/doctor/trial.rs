//! The program that probes launch: the bench's own that only exits, in memory, or ourselves.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
};

use forkless::{Command, Stdio};
use rustix::{fs::MemfdFlags, io::Errno};

use forkless_bench::TARGET_PROGRAM;

/// Ourselves, however the path to us may be closed.
const SELF: &str = "/proc/self/exe";

/// A program that ends with 0 and writes nothing that is seen.
#[derive(Debug)]
pub(crate) enum Trial {
    /// An executable file in memory.
    Memory(OwnedFd),
    /// Ourselves by descriptor.
    Open(OwnedFd),
    /// Ourselves by name.
    Named,
}

impl Trial {
    /// The file in memory. It is not executable where `vm.memfd_noexec` says so.
    pub(crate) fn in_memory() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC;
        // Kernels before 6.3 do not know EXEC, and do not ask for it.
        let memory = match rustix::fs::memfd_create("forkless-doctor", flags | MemfdFlags::EXEC) {
            Err(Errno::INVAL) => rustix::fs::memfd_create("forkless-doctor", flags),
            answer => answer,
        }?;
        let mut file = File::from(memory);
        file.write_all(TARGET_PROGRAM)?;
        // A file that is open for writing cannot be executed, but one in memory may.
        Ok(Self::Memory(file.into()))
    }

    /// Ourselves, opened.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self::Open(File::open(SELF)?.into()))
    }

    /// Something that runs here, to try other things with.
    pub(crate) fn find() -> Option<Self> {
        let kinds: [fn() -> io::Result<Self>; 3] = [Self::in_memory, Self::open, || Ok(Self::Named)];
        kinds.into_iter().filter_map(|kind| kind().ok()).find(|trial| trial.run(|_| ()).is_ok())
    }

    /// Launches it with what `ask` adds, and waits.
    ///
    /// # Errors
    /// When it was not launched, or did not end with 0.
    pub(crate) fn run(&self, ask: impl FnOnce(&mut Command)) -> io::Result<()> {
        let mut command = self.command()?;
        ask(&mut command);
        let status = command.status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("the program ended with {status}"))) }
    }

    /// The command, with none of our streams.
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
