//! aarch64: the `svc` instruction and the two clone trampolines.
//!
//! # Safety
//! As for the parent module. The trampolines return once, in the caller. The child calls `entry`, which never returns.
//! It starts on its own stack, so it does not write to the caller's.

use core::arch::asm;
use linux_raw_sys::general::{__NR_clone, __NR_clone3, clone_args};

#[inline(always)]
pub(super) unsafe fn syscall6(nr: usize, args: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: `svc 0` changes x0 and no other register.
    unsafe {
        asm!("svc 0", in("x8") nr, inlateout("x0") args[0] as isize => ret, in("x1") args[1], in("x2") args[2],
            in("x3") args[3], in("x4") args[4], in("x5") args[5], options(nostack));
    }
    ret
}

/// Ends the process with SIGILL, for which it cannot have a handler.
pub(super) unsafe fn trap() -> ! {
    // SAFETY: the instruction does not return.
    unsafe { asm!("udf #0", options(noreturn, nomem, nostack)) }
}

#[inline(never)]
pub(super) unsafe fn clone3(args: &clone_args, size: usize, entry: usize, argument: usize) -> isize {
    let ret: isize;
    // SAFETY: in the child every register but x0 and sp is the caller's, so x4 and x5 still hold the entry and its
    // argument; x29 is cleared to end backtraces; sp is the 16-byte aligned stack top that the ABI requires.
    unsafe {
        asm!("svc 0", "cbnz x0, 2f", "mov x29, xzr", "mov x0, x5", "blr x4", "brk #1", "2:",
            in("x8") __NR_clone3 as usize, inlateout("x0") args as *const clone_args as isize => ret, in("x1") size,
            in("x4") entry, in("x5") argument, lateout("x30") _);
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
    // SAFETY: as in `clone3`. The argument order of clone on aarch64 is flags, stack, parent_tid, tls, child_tid. x5
    // and x6 are not arguments of it, so they carry the entry and its argument.
    unsafe {
        asm!("svc 0", "cbnz x0, 2f", "mov x29, xzr", "mov x0, x6", "blr x5", "brk #1", "2:",
            in("x8") __NR_clone as usize, inlateout("x0") flags as isize => ret, in("x1") stack_top,
            in("x2") parent_tid, in("x3") 0usize, in("x4") child_tid, in("x5") entry, in("x6") argument,
            lateout("x30") _);
    }
    ret
}
