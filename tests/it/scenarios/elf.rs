//! The smallest programs: static ELF files of under 200 bytes, made here, that only exit with a code.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// `exit_group(code)`.
#[cfg(target_arch = "x86_64")]
fn code(exit: u8) -> Vec<u8> {
    // mov edi, exit; mov eax, 231; syscall; and by exit(2) where a filter refuses that: mov eax, 60; syscall
    vec![0xbf, exit, 0, 0, 0, 0xb8, 231, 0, 0, 0, 0x0f, 0x05, 0xb8, 60, 0, 0, 0, 0x0f, 0x05]
}

/// `exit_group(code)`.
#[cfg(target_arch = "aarch64")]
fn code(exit: u8) -> Vec<u8> {
    // mov w0, exit; mov w8, 94; svc 0; and by exit(2) where a filter refuses that: mov w0, exit; mov w8, 93; svc 0
    let (status, exit_call, trap) = (0x5280_0000 | (exit as u32) << 5, |n: u32| 0x5280_0000 | n << 5 | 8, 0xd400_0001);
    let words = [status, exit_call(94), trap, status, exit_call(93), trap];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[allow(dead_code, reason = "not every program that has this file as a part of it")]
/// `exit_group(exit)` if descriptor `fd` is closed, `exit_group(9)` if not. By lseek(2), which launches do not use.
#[cfg(target_arch = "x86_64")]
fn code_if_closed(exit: u8, fd: u8) -> Vec<u8> {
    // mov edi, fd; xor esi, esi; mov edx, 1; mov eax, 8; syscall; cmp eax, -9; mov edi, exit; je +5; mov edi, 9
    let look = [0xbf, fd, 0, 0, 0, 0x31, 0xf6, 0xba, 1, 0, 0, 0, 0xb8, 8, 0, 0, 0, 0x0f, 0x05, 0x83, 0xf8, 0xf7];
    let choose = [0xbf, exit, 0, 0, 0, 0x74, 5, 0xbf, 9, 0, 0, 0];
    [&look[..], &choose, &code(exit)[5..]].concat()
}

#[allow(dead_code, reason = "not every program that has this file as a part of it")]
/// `exit_group(exit)` if descriptor `fd` is closed, `exit_group(9)` if not. By lseek(2), which launches do not use.
#[cfg(target_arch = "aarch64")]
fn code_if_closed(exit: u8, fd: u8) -> Vec<u8> {
    // mov w0, fd; mov x1, 0; mov w2, 1; mov w8, 62; svc 0; cmn w0, 9; mov w0, exit; b.eq +8; mov w0, 9
    let word = |register: u32, value: u8| 0x5280_0000 | (value as u32) << 5 | register;
    let words = [
        word(0, fd),
        0xd280_0001,
        word(2, 1),
        word(8, 62),
        0xd400_0001,
        0x3100_241f,
        word(0, exit),
        0x5400_0040,
        word(0, 9),
    ];
    let exit = [word(8, 94), 0xd400_0001, word(8, 93), 0xd400_0001];
    words.iter().chain(&exit).flat_map(|word| word.to_le_bytes()).collect()
}

/// The bytes of a program that exits with `exit`.
pub fn program(exit: u8) -> Vec<u8> {
    program_of(&code(exit))
}

#[allow(dead_code, reason = "not every program that has this file as a part of it")]
/// The bytes of a program that exits with `exit` if descriptor `fd` is closed, and with 9 if it is not.
pub fn program_if_closed(exit: u8, fd: u8) -> Vec<u8> {
    program_of(&code_if_closed(exit, fd))
}

/// The bytes of a program that runs this machine code from its first byte on.
pub fn program_of(code: &[u8]) -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    let start = 64 + 56u64;
    let length = start + code.len() as u64;
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for half in [2, MACHINE] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1u32.to_le_bytes());
    for word in [BASE + start, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 1, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // One loadable segment, read and execute: the whole file.
    file.extend(1u32.to_le_bytes());
    file.extend(5u32.to_le_bytes());
    for word in [0, BASE, BASE, length, length, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend(code);
    file
}

/// Writes an executable file and closes it.
pub fn write(path: &Path, bytes: &[u8]) {
    let create = || OpenOptions::new().write(true).create(true).truncate(true).mode(0o755).open(path);
    // Another thread's child may be executing the existing file: unlinking keeps that file for it.
    let mut file = create().or_else(|_| fs::remove_file(path).and_then(|()| create())).expect("create");
    file.write_all(bytes).expect("write");
}

/// A directory with such programs in it, removed when dropped.
pub struct Programs {
    directory: TempDir,
}

impl Programs {
    /// Makes the directory, open to other users.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("chmod");
        Self { directory }
    }

    /// The program that exits with `exit`.
    pub fn exits(&self, exit: u8) -> PathBuf {
        let path = self.directory.path().join(format!("exit-{exit}"));
        if !path.exists() {
            write(&path, &program(exit));
        }
        path
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A FIFO in the directory.
    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("no NUL");
        // SAFETY: the path ends in NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0, "mkfifo");
        path
    }
}
