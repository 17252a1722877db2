//! Calls a function of the caller in a child that shares its memory: `popen_noshell_vmfork`.

use crate::boundary::as_libc;
use crate::error::{Failure, bad};
use forkless::internal::KeepDumpable;
use forkless_core::signals;
use forkless_core::sys::{self, errno, uapi};
use forkless_core::vfork_call::{Called, call};
use libc::{c_int, c_void, pid_t};
use std::io;
use std::ptr::null_mut;

/// The stack of the function. Only pages that it touches are allocated, and only until it has returned.
const STACK: usize = 8 << 20;

/// The guard area below the stack: whole pages, with any page size of Linux.
const GUARD: usize = 64 << 10;

type ChildFunction = unsafe extern "C" fn(*mut c_void) -> c_int;
#[unsafe(no_mangle)]
unsafe extern "C" fn popen_noshell_vmfork(
    function: Option<ChildFunction>,
    argument: *mut c_void,
    memory_to_free_on_child_exit: *mut *mut c_void,
) -> pid_t {
    as_libc(-1, || {
        let function = function.ok_or(bad("the function is a null pointer"))?;
        if memory_to_free_on_child_exit.is_null() {
            return Err(bad("the pointer to the result is null"));
        }
        // SAFETY: not null, so writable (popen_noshell.h). There is nothing to free: the child no longer uses the memory
        // when this returns.
        unsafe { memory_to_free_on_child_exit.write(null_mut()) };
        let stack = Stack::new()?;
        let mut called = Called { function, argument, mask: None };
        // The function may change the child's IDs. Most do not, so a failure (a seccomp filter may refuse the calls) is
        // ignored.
        let keep = KeepDumpable::begin().ok();
        // SAFETY: the function does what vfork(2) allows (popen_noshell.h); the stack lives until the child has left it.
        let pid = unsafe { clone(&stack, &mut called) }.map_err(io::Error::from_raw_os_error)?;
        if let Some(keep) = keep {
            keep.end(pid);
        }
        Ok(pid)
    })
}

/// Clones. The caller is suspended until the child has called exec or exited.
///
/// # Safety
/// The function may run as in a child of `vfork(2)`.
unsafe fn clone(stack: &Stack, called: &mut Called) -> Result<pid_t, i32> {
    // No exit signal, as in the original. Exec sets it to SIGCHLD.
    let flags = (uapi::CLONE_VM | uapi::CLONE_VFORK) as u64;
    let args = uapi::clone_args {
        flags: flags | uapi::CLONE_CLEAR_SIGHAND,
        pidfd: 0,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: 0,
        stack: stack.bottom() as u64,
        stack_size: STACK as u64,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    };
    // SAFETY: the child has its own stack, and the caller is suspended. 64 bytes are the first version of the
    // structure, without set_tid.
    match unsafe { sys::clone3_call(&args, 64, call, called) } {
        Err(errno::ENOSYS | errno::EPERM | errno::EINVAL) => {}
        answer => return answer,
    }
    // Without clone3 there is no CLONE_CLEAR_SIGHAND: the child resets the handlers, and none may run before. The mask
    // is restored below. By raw system call, because libc's functions leave its own two signals out.
    let mask = sys::set_signal_mask(signals::blocked_in_caller())?;
    called.mask = Some(mask);
    // SAFETY: as above.
    let answer = unsafe { sys::clone_call(flags, stack.bottom() + STACK, null_mut(), null_mut(), call, called) };
    let _ = sys::set_signal_mask(mask);
    answer
}

struct Stack(*mut c_void);

impl Stack {
    fn new() -> Result<Self, Failure> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE;
        // SAFETY: new memory.
        let start = unsafe { libc::mmap(null_mut(), GUARD + STACK, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        let stack = Self(start);
        // SAFETY: the lower part of the new mapping.
        if unsafe { libc::mprotect(start, GUARD, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error().into());
        }
        Ok(stack)
    }

    /// The lowest usable address.
    fn bottom(&self) -> usize {
        self.0 as usize + GUARD
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; a child that used it no longer does.
        unsafe { libc::munmap(self.0, GUARD + STACK) };
    }
}
