//! Creating the child: `clone3(2)`, or `clone(2)` where `clone3` is refused.
//!
//! - `CLONE_VM`: no page table is copied.
//! - `CLONE_FILES`: no file-descriptor table is copied. The child creates a small one of its own.
//! - No `CLONE_VFORK`, except for a few plans and under a debugger ([`traced`]). So the caller can continue at once
//!   or wait with a timeout, and a child that is stopped before exec does not suspend the caller too.
//! - No exit signal. Exec sets it to SIGCHLD, so a child that fails before exec is invisible to the host's SIGCHLD
//!   handler and to its `waitpid(-1)`. The waits of this library see it, because they have `__WALL`.

use super::stack::Stack;
use super::{dumps, traced};
use forkless_core::frame::Frame;
use forkless_core::signals::blocked_in_caller;
use forkless_core::sys::{self, Entry, errno, uapi};
use std::os::fd::{FromRawFd, OwnedFd};

/// The system call and its flags.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CloneArgs {
    /// `clone3` with `CLONE_CLEAR_SIGHAND`. Otherwise `clone`, with every signal blocked until the child has reset
    /// the handlers.
    pub(crate) clone3: bool,
    /// `CLONE_FILES`.
    pub(crate) share_files: bool,
    /// `CLONE_PIDFD`.
    pub(crate) pidfd: bool,
    /// `CLONE_NEW*`.
    pub(crate) namespaces: u64,
    /// A descriptor of the cgroup's directory, for `CLONE_INTO_CGROUP`; -1: the caller's cgroup.
    pub(crate) cgroup: i32,
    /// `CLONE_VFORK`: the caller is suspended until the child has left its memory.
    pub(crate) vfork: bool,
    /// `CLONE_PARENT_SETTID`: the kernel stores the child's PID in the frame before the child runs. `clone` cannot
    /// combine this with a pidfd.
    pub(crate) tells_pid: bool,
    /// `CLONE_PARENT`: the child becomes a sibling of the caller. Only its robust list reports that it has left,
    /// without `CLONE_CHILD_CLEARTID`: the kernel would clear the futex word a moment later, when the word may
    /// already belong to the next child.
    pub(crate) for_parent: bool,
    /// Flags that only `clone3` of Linux 7.1 has: [`CLONE_AUTOREAP`](crate::kernel::CLONE_AUTOREAP) and related ones.
    /// If they cannot be set, the clone fails.
    pub(crate) flags: u64,
}

impl CloneArgs {
    /// The settings that every child has. Every clone must start from these. They include `CLONE_VFORK` if a tracer
    /// is attached, which would otherwise take a child that shares memory for a thread.
    pub(crate) fn plain() -> Self {
        Self {
            clone3: true,
            share_files: false,
            pidfd: false,
            namespaces: 0,
            cgroup: -1,
            vfork: traced::is_traced(),
            tells_pid: false,
            for_parent: false,
            flags: 0,
        }
    }
}

pub(crate) struct Cloned {
    pub(crate) pid: i32,
    pub(crate) pidfd: Option<OwnedFd>,
}

/// Clones a child that runs `entry` on `stack`. The stack's frame must have been filled.
///
/// If the clone fails, the stack is free again.
///
/// # Safety
/// `entry` follows the rules of `forkless_core::child`, and `stack` is held until the child has left.
pub(crate) unsafe fn clone(stack: &mut Stack, how: CloneArgs, entry: Entry<Frame>) -> Result<Cloned, i32> {
    let mut pidfd = -1;
    let mut flags = uapi::CLONE_VM as u64 | how.namespaces | how.flags;
    if how.share_files {
        flags |= uapi::CLONE_FILES as u64;
    }
    if how.vfork {
        flags |= uapi::CLONE_VFORK as u64;
    }
    if how.pidfd {
        flags |= uapi::CLONE_PIDFD as u64;
    }
    let cleartid = uapi::CLONE_CHILD_CLEARTID;
    flags |= if how.for_parent { uapi::CLONE_PARENT } else { cleartid } as u64;
    if how.tells_pid {
        flags |= uapi::CLONE_PARENT_SETTID as u64;
    }
    let guards = dumps::reach_the_parent();
    // A raw system call, because libc's sigprocmask never blocks the signals that libc itself uses. The mask is
    // restored below on every path.
    let blocked = (guards || !how.clone3).then(|| sys::set_signal_mask(blocked_in_caller()));
    if let Some(Ok(mask)) = blocked {
        begin_blocked(stack, mask, how.clone3, guards);
    }
    // SAFETY: as this function requires, `entry` follows the child's rules and `stack` is held until the child has left.
    let answer = unsafe {
        if let Some(Err(error)) = blocked {
            Err(error)
        } else if how.clone3 {
            by_clone3(stack, flags, how.cgroup, &mut pidfd, entry)
        } else if how.cgroup >= 0 || how.flags != 0 {
            Err(errno::ENOSYS)
        } else if how.tells_pid && how.pidfd {
            // clone(2) has one output address, which CLONE_PARENT_SETTID and CLONE_PIDFD would both use.
            Err(errno::EINVAL)
        } else {
            let told = if how.tells_pid { stack.frame().pid.as_ptr() } else { &raw mut pidfd };
            by_clone(stack, flags, told, entry)
        }
    };
    if let Some(Ok(mask)) = blocked {
        let _ = sys::set_signal_mask(mask);
    }
    match answer {
        // SAFETY: with CLONE_PIDFD the kernel has written a new descriptor, which is ours.
        Ok(pid) => Ok(Cloned { pid, pidfd: (pidfd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) }) }),
        Err(error) => {
            stack.cancel();
            Err(error)
        }
    }
}

/// Fills the frame for a child that is cloned with every signal blocked. `mask`: the caller's mask before that.
fn begin_blocked(stack: &mut Stack, mask: u64, clone3: bool, guards: bool) {
    // SAFETY: no child has the frame yet.
    let frame = unsafe { &mut *stack.frame_ptr() };
    if !clone3 {
        frame.reset_handlers = 1;
        if frame.has_caller_mask == 0 {
            (frame.has_caller_mask, frame.caller_mask) = (1, mask);
        }
    }
    // Without CLONE_CLEAR_SIGHAND the child still has the caller's handlers then, so every signal stays blocked.
    (frame.guards_dumps, frame.guarded_mask) = (guards as u32, if clone3 { mask } else { !0 });
}

/// With `CLONE_CLEAR_SIGHAND` the child has none of the caller's handlers. So no handler can run in shared memory, and
/// no signal has to be blocked to prevent that.
unsafe fn by_clone3(
    stack: &mut Stack,
    mut flags: u64,
    cgroup: i32,
    pidfd: &mut i32,
    entry: Entry<Frame>,
) -> Result<i32, i32> {
    let (base, length) = stack.span();
    // The first version of the structure ends before set_tid, and every kernel with clone3 accepts it. The third
    // version has the cgroup.
    let mut size = 64;
    if cgroup >= 0 {
        flags |= uapi::CLONE_INTO_CGROUP;
        size = size_of::<uapi::clone_args>();
    }
    let args = uapi::clone_args {
        flags: flags | uapi::CLONE_CLEAR_SIGHAND,
        pidfd: pidfd as *mut i32 as u64,
        child_tid: stack.frame().word.as_ptr() as u64,
        parent_tid: stack.frame().pid.as_ptr() as u64,
        exit_signal: 0,
        stack: base,
        stack_size: length,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: cgroup.max(0) as u64,
    };
    // SAFETY: the stack is the child's own, and the caller guarantees that `entry` follows the child's rules.
    unsafe { sys::clone3_call(&args, size, entry, stack.frame_ptr()) }
}

/// The child starts with the caller's handlers. So every signal is blocked before the clone, and stays blocked until
/// the child has reset them.
unsafe fn by_clone(stack: &mut Stack, flags: u64, told: *mut i32, entry: Entry<Frame>) -> Result<i32, i32> {
    let (base, length) = stack.span();
    let top = (base + length) as usize;
    // SAFETY: as in `by_clone3`.
    unsafe { sys::clone_call(flags, top, told, stack.frame().word.as_ptr(), entry, stack.frame_ptr()) }
}
