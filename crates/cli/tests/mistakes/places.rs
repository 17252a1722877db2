//! Programs that cannot be executed, and files that cannot be read.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

/// A directory with one file for each mistake.
pub(super) struct Place {
    directory: TempDir,
    path: String,
    /// Open for writing.
    _busy: File,
}

impl Place {
    pub(super) fn new() -> Self {
        let directory = super::callers::directory();
        let path = directory.path().to_str().expect("temporary paths are text").to_owned();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("bin")).expect("a directory");
        let program = fs::read("/bin/true").expect("a program");
        for (name, content) in [
            ("bin/unusual-name", &b"#!/bin/sh\n"[..]),
            ("local", b"#!/bin/sh\n"),
            ("badinterp", b"#!/no/such/interpreter\n"),
            ("crlf", b"#!/bin/sh\r\necho\r\n"),
            ("garbage", b"MZ\0\0\n"),
            ("empty", b""),
            ("cut", b"\x7fELF\x02\x01\x01"),
            ("foreign", &foreign(&program)),
            ("badloader", &without_loader(&program)),
            ("dirinterp", b"#!/\n"),
            ("busy", &program),
        ] {
            write(&at(name), content, 0o755);
        }
        write(&at("data"), b"some text", 0o644);
        write(&at("secret"), b"#!/bin/sh\n", 0o0);
        write(&at("kill.bpf"), &kills_all_but_execve(), 0o644);
        symlink("loop", at("loop")).expect("a link");
        fs::create_dir(at("closed")).expect("a directory");
        write(&at("closed/program"), &program, 0o755);
        set_mode(&at("closed"), 0o0);
        let busy = File::options().append(true).open(at("busy")).expect("a file");
        Self { directory, path, _busy: busy }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // An ordinary user cannot remove what is in it otherwise.
        set_mode(&self.directory.path().join("closed"), 0o755);
    }
}

fn write(path: &PathBuf, content: &[u8], mode: u32) {
    fs::write(path, content).expect("a file");
    set_mode(path, mode);
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
}

/// A program for another machine.
fn foreign(program: &[u8]) -> Vec<u8> {
    const MACHINE: usize = 18;
    const RISCV: [u8; 2] = [243, 0];
    let mut program = program.to_vec();
    program[MACHINE..MACHINE + 2].copy_from_slice(&RISCV);
    program
}

/// A program whose dynamic loader has another name.
fn without_loader(program: &[u8]) -> Vec<u8> {
    let mut program = program.to_vec();
    let name = b"/ld-linux";
    let at = program.windows(name.len()).position(|some| some == name).expect("a dynamic loader");
    program[at..at + name.len()].copy_from_slice(b"/ld-lunix");
    program
}

/// A seccomp filter that kills at each system call except those that start the program.
fn kills_all_but_execve() -> Vec<u8> {
    const ALLOW: u32 = 0x7fff_0000;
    const KILL: u32 = 0x8000_0000;
    let lines: [(u16, u8, u8, u32); 5] = [
        (0x20, 0, 0, 0),
        (0x15, 1, 0, libc::SYS_execve as u32),
        (0x15, 0, 1, libc::SYS_execveat as u32),
        (0x06, 0, 0, ALLOW),
        (0x06, 0, 0, KILL),
    ];
    let bytes = |(code, jt, jf, k): (u16, u8, u8, u32)| [&code.to_ne_bytes()[..], &[jt, jf], &k.to_ne_bytes()].concat();
    lines.into_iter().flat_map(bytes).collect()
}
