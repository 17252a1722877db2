//! The programs to launch: as small as possible, so that a run consists mostly of launches.

use crate::elf::{self, Programs};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

// `echo TEXT [WAIT]` without libc: with WAIT it reads a byte from standard input first, then it writes TEXT to standard output
// and exits with the lower 6 bits of its length. The arguments lie where the kernel has put them, on the stack.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .rodata.forkless_soak, \"a\"",
    ".global forkless_soak_echo, forkless_soak_echo_end",
    "forkless_soak_echo:",
    "mov r8, [rsp]",
    "mov r9, [rsp + 16]",
    "cmp r8, 3",
    "jb 2f",
    "lea rsi, [rsp - 256]",
    "xor edi, edi",
    "mov edx, 1",
    "xor eax, eax",
    "syscall",
    "2:",
    "xor edx, edx",
    "3:",
    "cmp byte ptr [r9 + rdx], 0",
    "je 4f",
    "inc rdx",
    "jmp 3b",
    "4:",
    "mov r10, rdx",
    "mov rsi, r9",
    "mov edi, 1",
    "mov eax, 1",
    "syscall",
    "mov rdi, r10",
    "and edi, 63",
    "mov eax, 231",
    "syscall",
    "forkless_soak_echo_end:",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .rodata.forkless_soak, \"a\"",
    ".balign 4",
    ".global forkless_soak_echo, forkless_soak_echo_end",
    "forkless_soak_echo:",
    "ldr x10, [sp]",
    "ldr x11, [sp, #16]",
    "cmp x10, #3",
    "b.lo 2f",
    "mov x0, #0",
    "sub x1, sp, #256",
    "mov x2, #1",
    "mov x8, #63",
    "svc #0",
    "2:",
    "mov x12, #0",
    "3:",
    "ldrb w13, [x11, x12]",
    "cbz w13, 4f",
    "add x12, x12, #1",
    "b 3b",
    "4:",
    "mov x0, #1",
    "mov x1, x11",
    "mov x2, x12",
    "mov x8, #64",
    "svc #0",
    "and x0, x12, #63",
    "mov x8, #94",
    "svc #0",
    "forkless_soak_echo_end:",
    ".popsection",
);

unsafe extern "C" {
    static forkless_soak_echo: u8;
    static forkless_soak_echo_end: u8;
}

/// The machine code of `echo`.
fn echo_code() -> &'static [u8] {
    let (start, end) = (&raw const forkless_soak_echo, &raw const forkless_soak_echo_end);
    // SAFETY: two labels of one section around code that nobody changes; it needs nothing outside itself.
    unsafe { std::slice::from_raw_parts(start, end.offset_from_unsigned(start)) }
}

/// How many exit codes there is a program for.
pub(crate) const CODES: u64 = 16;

/// Paths of programs, and of files that are no programs.
pub(crate) struct Places {
    _directory: Programs,
    exits: Vec<PathBuf>,
    pub(crate) echo: PathBuf,
    pub(crate) missing: PathBuf,
    /// A file that nobody may execute.
    pub(crate) forbidden: PathBuf,
}

impl Places {
    pub(crate) fn new() -> Self {
        let directory = Programs::new();
        let exits = (0..CODES).map(|code| directory.exits(code as u8)).collect();
        let path = |name: &str| directory.path(name);
        let (echo, missing, forbidden) = (path("echo"), path("missing"), path("forbidden"));
        elf::write(&echo, &elf::program_of(echo_code()));
        std::fs::write(&forbidden, "no program").expect("a file");
        std::fs::set_permissions(&forbidden, std::fs::Permissions::from_mode(0o644)).expect("its mode");
        Self { _directory: directory, exits, echo, missing, forbidden }
    }

    pub(crate) fn exits(&self, code: u64) -> &PathBuf {
        &self.exits[code as usize]
    }
}
