//! x86-64: the `syscall` instruction and the two clone trampolines.
//!
//! # Safety
//! As for the parent module. The trampolines return once, in the caller. The child calls `entry`, which never returns.
//! It starts on its own stack, so it does not write to the caller's.

use core::arch::asm;
use linux_raw_sys::general::{__NR_clone, __NR_clone3, clone_args};

#[inline(always)]
pub(super) unsafe fn syscall6(nr: usize, args: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the `syscall` instruction clobbers rcx and r11 and no other register but rax.
    unsafe {
        asm!("syscall", inlateout("rax") nr as isize => ret, in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    ret
}

/// Ends the process with SIGILL, for which it cannot have a handler.
pub(super) unsafe fn trap() -> ! {
    // SAFETY: the instruction does not return.
    unsafe { asm!("ud2", options(noreturn, nomem, nostack)) }
}

#[inline(never)]
pub(super) unsafe fn clone3(args: &clone_args, size: usize, entry: usize, argument: usize) -> isize {
    let ret: isize;
    // SAFETY: in the child every register but rax, rcx, r11 and rsp is the caller's, so r8 and r9 still hold the entry
    // and its argument; rbp is cleared to end backtraces; rsp is the 16-byte aligned stack top that `call` expects.
    unsafe {
        asm!("syscall", "test rax, rax", "jnz 2f", "xor ebp, ebp", "mov rdi, r9", "call r8", "ud2", "2:",
            inlateout("rax") __NR_clone3 as isize => ret, in("rdi") args, in("rsi") size, in("r8") entry,
            in("r9") argument, lateout("rcx") _, lateout("r11") _);
    }
    ret
}

#[inline(never)]
pub(super) unsafe fn clone(
    flags: usize,
    stack_top: usize,
    parent_tid: usize,
    child_tid: usize,
    entry: usize,
    argument: usize,
) -> isize {
    let ret: isize;
    // SAFETY: as in `clone3`. The argument order of clone on x86-64 is flags, stack, parent_tid, child_tid, tls. r9 and
    // r12 are not arguments of it, so they carry the entry and its argument.
    unsafe {
        asm!("syscall", "test rax, rax", "jnz 2f", "xor ebp, ebp", "mov rdi, r12", "call r9", "ud2", "2:",
            inlateout("rax") __NR_clone as isize => ret, in("rdi") flags, in("rsi") stack_top, in("rdx") parent_tid,
            in("r10") child_tid, in("r8") 0usize, in("r9") entry, in("r12") argument, lateout("rcx") _,
            lateout("r11") _);
    }
    ret
}
