//! The program that the probes launch: one that only exits, as a memfd, or this executable.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
};

use forkless::{Command, Stdio};
use rustix::{fs::MemfdFlags, io::Errno};

/// This executable. Works even if its path is not accessible.
const SELF: &str = "/proc/self/exe";

/// A static ELF program that only calls `exit_group(0)`: two headers of segments, and the code.
///
/// Source: elf(5).
fn exiting() -> Option<Vec<u8>> {
    // The machine of the ELF header, and the code: the number of the call in a register, 0 in another, the call.
    let (machine, code): (u16, &[u8]) = match std::env::consts::ARCH {
        "x86_64" => (62, &[0xb8, 231, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05]),
        "aarch64" => (183, &[0xc8, 0x0b, 0x80, 0xd2, 0, 0, 0x80, 0xd2, 0x01, 0, 0, 0xd4]),
        _ => return None,
    };
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 2 * 56;
    let size = HEADERS + code.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(16, 0);
    // An executable file (2) of ELF's version 1, with headers of 64, 56 and 64 bytes, of which there are one, two and none.
    [2, machine, 1, 0].iter().for_each(|half| elf.extend(half.to_le_bytes()));
    [BASE + HEADERS, 64, 0].iter().for_each(|word| elf.extend(word.to_le_bytes()));
    [0_u16, 0, 64, 56, 2, 64, 0, 0].iter().for_each(|half| elf.extend(half.to_le_bytes()));
    // PT_LOAD (1), readable and executable (5); PT_GNU_STACK, not executable (6).
    for (kind, flags, [place, size, align]) in [(1_u32, 5_u32, [BASE, size, 0x1_0000]), (0x6474_e551, 6, [0, 0, 16])] {
        [kind, flags].iter().for_each(|word| elf.extend(word.to_le_bytes()));
        [0, place, place, size, size, align].iter().for_each(|word| elf.extend(word.to_le_bytes()));
    }
    elf.extend(code);
    Some(elf)
}

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
    /// The memfd. It is not executable if `vm.memfd_noexec` is 2. Fails on architectures for which this module has no code.
    pub(crate) fn in_memory() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC;
        // Kernels before 6.3 neither know nor need EXEC.
        let memory = match rustix::fs::memfd_create("forkless-doctor", flags | MemfdFlags::EXEC) {
            Err(Errno::INVAL) => rustix::fs::memfd_create("forkless-doctor", flags),
            answer => answer,
        }?;
        let mut file = File::from(memory);
        file.write_all(&exiting().ok_or(Errno::NOSYS)?)?;
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
