//! Settings that are a single system call, and arbitrary system calls of the user.
//!
//! # Safety
//! As for [`child`](crate::child). The plan's compiler is responsible for what a call does. Above all it must not
//! change what caller and child share (per-mm prctls, `oom_score_adj`).

use crate::frame::Frame;
use crate::plan::{
    Call, Header, Op, STORE, TRIES, TRY_AGAIN, argument_is_address, argument_is_offset, argument_is_variable, at,
};
use crate::sys::{self, Result, errno, uapi};
use core::sync::atomic::Ordering::Relaxed;

/// Plays [`OpCode::Call`](crate::plan::OpCode::Call).
pub unsafe fn call(frame: &Frame, plan: *const Header, op: &Op) -> Result<()> {
    // SAFETY: the op's first operand is the offset of a Call; only the child uses the variables.
    let (call, variables) = unsafe { (&*at::<Call>(plan, op.a), &mut *frame.variables.get()) };
    let mut args = [0; 6];
    for ((n, given), arg) in (0..).zip(call.args).zip(&mut args) {
        *arg = if call.flags & argument_is_offset(n) != 0 {
            // SAFETY: the argument is the offset of an object in the arena.
            unsafe { at::<u8>(plan, given as u32) as usize }
        } else if call.flags & argument_is_variable(n) != 0 {
            variables.get(given as usize).copied().unwrap_or(usize::MAX)
        } else if call.flags & argument_is_address(n) != 0 {
            variables.get(given as usize..).map_or(usize::MAX, |from| from.as_ptr() as usize)
        } else {
            given as usize
        };
    }
    let (mut answer, tries) = match call.flags {
        flags if flags & STORE != 0 => (Ok(args[0]), 0),
        flags if flags & TRY_AGAIN != 0 => (Err(errno::EAGAIN), TRIES),
        _ => (Err(errno::EAGAIN), 1),
    };
    for _ in 0..tries {
        // SAFETY: the plan's compiler is responsible for the call.
        answer = unsafe { sys::syscall(call.number, args) };
        if answer != Err(errno::EAGAIN) {
            break;
        }
    }
    if let Some(variable) = (call.result as usize).checked_sub(1).and_then(|n| variables.get_mut(n)) {
        // On failure the variable must not keep an older descriptor, which a later call would use.
        *variable = answer.unwrap_or(usize::MAX);
    }
    match answer {
        Err(error) if error as u32 == call.accept => Ok(()),
        answer => answer.map(drop),
    }
}

/// Plays [`OpCode::HandBack`](crate::plan::OpCode::HandBack): `sendmsg(2)` of one byte with SCM_RIGHTS, `unix(7)`.
pub unsafe fn hand_back(frame: &Frame, op: &Op) -> Result<()> {
    const SOL_SOCKET: i32 = 1;
    const SCM_RIGHTS: i32 = 1;
    const MSG_NOSIGNAL: usize = 0x4000;
    /// struct cmsghdr and one descriptor.
    #[repr(C, align(8))]
    struct Control {
        length: usize,
        level: i32,
        kind: i32,
        fd: i32,
    }
    /// struct msghdr.
    #[repr(C)]
    struct MessageHeader {
        name: usize,
        name_length: u32,
        vector: *const [usize; 2],
        vector_length: usize,
        control: *const Control,
        control_length: usize,
        flags: i32,
    }
    // SAFETY: only the child uses the variables.
    let variable = unsafe { (*frame.variables.get()).get(op.b as usize).copied() };
    let fd = variable.unwrap_or(usize::MAX) as i32;
    let byte = 0u8;
    let vector = [&raw const byte as usize, 1];
    let control = Control { length: 20, level: SOL_SOCKET, kind: SCM_RIGHTS, fd };
    let message = MessageHeader {
        name: 0,
        name_length: 0,
        vector: &vector,
        vector_length: 1,
        control: &control,
        control_length: size_of::<Control>(),
        flags: 0,
    };
    let args = [op.a as usize, &raw const message as usize, MSG_NOSIGNAL, 0, 0, 0];
    // SAFETY: the kernel reads the message and what it points to; all of it lives for the call.
    unsafe { sys::syscall(uapi::__NR_sendmsg, args) }.map(drop)
}

/// `seccomp(2)` SECCOMP_SET_MODE_FILTER of `count` instructions of 8 bytes.
pub unsafe fn seccomp(filter: *const u8, count: u32) -> Result<()> {
    const SECCOMP_SET_MODE_FILTER: usize = 1;
    /// struct sock_fprog.
    #[repr(C)]
    struct Program {
        count: u16,
        filter: *const u8,
    }
    let program = Program { count: count as u16, filter };
    // SAFETY: the kernel reads the program and its instructions; the filter is the child's own.
    unsafe { sys::syscall(uapi::__NR_seccomp, [SECCOMP_SET_MODE_FILTER, 0, &raw const program as usize, 0, 0, 0]) }
        .map(drop)
}

/// Records a best-effort step that failed. False if there is no room left: then the step must not be skipped.
pub fn note_miss(frame: &Frame, index: u32, errno: i32) -> bool {
    let n = frame.skipped.load(Relaxed);
    let Some(miss) = frame.misses.get(n as usize) else { return false };
    miss.store(u64::from(index) << 32 | u64::from(errno as u32), Relaxed);
    frame.skipped.store(n + 1, Relaxed);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::MISSES;
    use core::mem::MaybeUninit;

    #[test]
    fn a_step_of_best_effort_that_cannot_be_noted_is_not_skipped() {
        // SAFETY: all zero bytes are a valid frame.
        let frame: Frame = unsafe { MaybeUninit::zeroed().assume_init() };
        assert!((0..MISSES as u32).all(|index| note_miss(&frame, index, errno::EPERM)));
        assert!(!note_miss(&frame, 7, errno::EPERM));
        assert_eq!(frame.skipped.load(Relaxed), MISSES as u32);
    }
}
