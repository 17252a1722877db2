//! Signal dispositions and the signal mask of the program.
//!
//! `CLONE_CLEAR_SIGHAND` gives the child its own signal table without handlers, so that no code of the caller can run
//! in it. *Ignored* signals stay ignored across clone and exec, so signals that must have their default action are
//! reset one by one; normally that is only SIGPIPE, which the Rust runtime ignores.
//!
//! # Safety
//! As for [`child`](crate::child); the signal table is the child's own.

use crate::frame::Frame;
use crate::plan::Op;
use crate::sync::fence;
use crate::sys::signal::{self, bit};
use crate::sys::{self, Result, prctl, uapi};
use core::sync::atomic::Ordering::{Relaxed, Release};

/// The signals whose default action is a core dump: signal(7).
const DUMPING: u64 = bit(signal::SIGQUIT)
    | bit(signal::SIGILL)
    | bit(signal::SIGTRAP)
    | bit(signal::SIGABRT)
    | bit(signal::SIGBUS)
    | bit(signal::SIGFPE)
    | bit(signal::SIGSEGV)
    | bit(signal::SIGXCPU)
    | bit(signal::SIGXFSZ)
    | bit(signal::SIGSYS);

/// Every signal but SIGSYS, for a thread that lives on and may get a seccomp filter later. A filter sends SIGSYS for a
/// call that it traps (SECCOMP_RET_TRAP), and the kernel kills a process that blocks SIGSYS then.
pub const ALL_BUT_SIGSYS: u64 = !bit(signal::SIGSYS);

/// The caller's mask around a clone that leaves the caller's handlers in the child. The child sets its own:
/// [`block_all`].
///
/// It is every signal. But if a seccomp filter is in force, SIGSYS stays unblocked, because a handler may answer the calls
/// that the filter traps. Then a SIGSYS that is sent by kill(2) between the clone and the child's first call would run
/// that handler in the child.
pub fn blocked_in_caller() -> u64 {
    if has_filter() { ALL_BUT_SIGSYS } else { !0 }
}

/// Whether the calling thread has a seccomp filter, which its children inherit. If prctl(2) is refused, a filter did
/// it.
pub fn has_filter() -> bool {
    // SAFETY: it reads a number.
    let mode = unsafe { sys::syscall(uapi::__NR_prctl, [prctl::PR_GET_SECCOMP as usize, 0, 0, 0, 0, 0]) };
    mode != Ok(0)
}

/// In [`Frame::detail`] before the first step: the child is resetting its caller's handlers. Not a value of
/// `zygote_child::what`.
pub const PUTS_HANDLERS_AWAY: i32 = 13;

/// The first call of a child that still has its caller's handlers. The caller has made the same call, so a filter
/// allows it. If the caller has left SIGSYS unblocked ([`blocked_in_caller`]), this blocks it.
pub fn block_all() {
    let _ = sys::set_signal_mask(!0);
}

/// Resets every signal in `set` (bit n-1 is signal n) to its default action. `frame`: the frame of the child that calls
/// this.
pub unsafe fn set_default(frame: Option<&Frame>, set: u64) -> Result<()> {
    // SAFETY: the module's contract.
    unsafe { set_all(set, |signal| default_for(frame, signal)) }
}

/// Ignores every signal in `set`.
pub unsafe fn set_ignored(set: u64) -> Result<()> {
    // SAFETY: the module's contract; SIG_IGN is 1.
    unsafe { set_all(set, |_| action(1)) }
}

/// Sets the action of each signal in `set`.
unsafe fn set_all(set: u64, action: impl Fn(u32) -> uapi::kernel_sigaction) -> Result<()> {
    let mut rest = set;
    while rest != 0 {
        let signal = rest.trailing_zeros() + 1;
        rest &= rest - 1;
        // SAFETY: SIG_DFL and SIG_IGN are not addresses, and `end` keeps the child's rules.
        unsafe { sys::set_signal_action(signal, &action(signal)) }?;
    }
    Ok(())
}

/// Keeps a signal that dumps core from killing the caller. Before Linux 5.16 the kernel first kills every process that
/// shares the memory to be dumped.
///
/// A handler ends the child instead. Exec resets handlers to the default, so the program never has it, and there is no
/// gap between the two; a signal mask would have to be restored before exec. Ignored signals stay ignored, and those
/// that the caller blocks stay blocked. If a filter refuses one of these calls, the launch continues without.
///
/// Source: coredump_wait() in fs/coredump.c before commit 0258b5fd7c71; flush_signal_handlers() in kernel/signal.c.
#[cold]
pub unsafe fn guard(frame: &Frame) {
    // Not a real signal stack: it only stores the frame's address in the kernel, where the handler can get it. No
    // handler here runs on such a stack.
    let place =
        uapi::sigaltstack { ss_sp: frame as *const Frame as *mut _, ss_flags: 0, ss_size: size_of::<Frame>() as _ };
    // SAFETY: the kernel reads the structure; exec discards the setting.
    let _ = unsafe { sys::syscall(uapi::__NR_sigaltstack, [&raw const place as usize, 0, 0, 0, 0, 0]) };
    for signal in (1..=64).filter(|&signal| DUMPING & bit(signal as i32) != 0) {
        if sys::signal_action(signal).is_ok_and(|old| handler(&old) == 0) {
            // SAFETY: `end` follows the child's rules; the table is the child's own.
            let _ = unsafe { sys::set_signal_action(signal, &ending()) };
        }
    }
    // The child's own mask.
    let _ = sys::set_signal_mask(frame.guarded_mask);
}

/// Ends the child, after storing the signal in the frame.
unsafe extern "C" fn end(signal: i32) {
    // SAFETY: all zeroes is a valid structure, which the kernel fills.
    let place = unsafe {
        let mut place: uapi::sigaltstack = core::mem::zeroed();
        let _ = sys::syscall(uapi::__NR_sigaltstack, [0, &raw mut place as usize, 0, 0, 0, 0]);
        place
    };
    // SAFETY: `guard` has stored the frame's address there; the frame is valid until the child has left. Null if a
    // filter refuses sigaltstack.
    if let Some(frame) = unsafe { place.ss_sp.cast::<Frame>().as_ref() } {
        frame.ended_by.store(signal as u32, Relaxed);
    }
    fence(Release);
    sys::exit(127)
}

/// Never runs, because `end` does not return; the kernel requires an address.
unsafe extern "C" fn after_end() {
    sys::exit(127)
}

fn ending() -> uapi::kernel_sigaction {
    const SA_RESTORER: uapi::__kernel_ulong_t = 0x0400_0000;
    let mut action = action(end as *const () as usize);
    action.sa_flags = SA_RESTORER as _;
    action.sa_restorer = Some(after_end);
    action
}

/// The handler's address, 0 for SIG_DFL or 1 for SIG_IGN.
pub fn handler(action: &uapi::kernel_sigaction) -> usize {
    // SAFETY: an optional function pointer read as the word it is.
    unsafe { (&raw const action.sa_handler_kernel).cast::<usize>().read() }
}

/// The default action; or, if a core dump would kill the caller, the handler that replaces it until exec.
fn default_for(frame: Option<&Frame>, signal: u32) -> uapi::kernel_sigaction {
    let is_guarded = frame.is_some_and(|frame| frame.guards_dumps != 0) && DUMPING & bit(signal as i32) != 0;
    if is_guarded { ending() } else { action(0) }
}

fn action(handler: usize) -> uapi::kernel_sigaction {
    // SAFETY: all zeroes is SIG_DFL without flags. The handler is an optional function pointer of word size, for which
    // the kernel reads 0 as SIG_DFL and 1 as SIG_IGN.
    unsafe {
        let mut action: uapi::kernel_sigaction = core::mem::zeroed();
        (&raw mut action.sa_handler_kernel).cast::<usize>().write(handler);
        action
    }
}

/// Plays [`OpCode::SigMask`](crate::plan::OpCode::SigMask).
pub unsafe fn set_mask(frame: &Frame, op: &Op) -> Result<()> {
    let mask = match (op.a, frame.has_caller_mask) {
        (0, _) => op.set,
        // The child has inherited the caller's mask, unless it was cloned with every signal blocked.
        (_, 0) if op.set == 0 => return Ok(()),
        (_, 0) => return sys::block_signals(op.set),
        (_, _) => frame.caller_mask | op.set,
    };
    sys::set_signal_mask(mask).map(drop)
}

/// Does the work of `CLONE_CLEAR_SIGHAND`: resets the caller's handlers. Every signal is blocked while this runs.
pub fn reset_handlers(frame: Option<&Frame>) -> Result<()> {
    for signal in 1..=64 {
        let Ok(old) = sys::signal_action(signal) else { continue };
        if handler(&old) > 1 {
            // SAFETY: the table is the child's own, as it was cloned without CLONE_SIGHAND; the action is as in
            // `set_all`.
            unsafe { sys::set_signal_action(signal, &default_for(frame, signal)) }?;
        }
    }
    Ok(())
}
