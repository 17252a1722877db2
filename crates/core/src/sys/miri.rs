//! Miri, which interprets and has no `syscall` instruction: every system call is refused, as by a filter, and none makes a child.

use linux_raw_sys::errno::ENOSYS;
use linux_raw_sys::general::clone_args;

pub(super) unsafe fn syscall6(_: usize, _: [usize; 6]) -> isize {
    -(ENOSYS as isize)
}

pub(super) unsafe fn trap() -> ! {
    panic!("the end of a process")
}

pub(super) unsafe fn clone3(_: &clone_args, _: usize, _: usize, _: usize) -> isize {
    -(ENOSYS as isize)
}

pub(super) unsafe fn clone(_: usize, _: usize, _: usize, _: usize, _: usize, _: usize) -> isize {
    -(ENOSYS as isize)
}

/// `getauxval(3)`, which Miri lacks: without an answer, the environment is read as in a program that has changed it.
#[unsafe(no_mangle)]
extern "C" fn getauxval(_: core::ffi::c_ulong) -> core::ffi::c_ulong {
    0
}
