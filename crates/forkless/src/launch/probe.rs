//! What this kernel, and whatever filters it for us, allows.
//!
//! Asked once, by a real child, before the first launch. Containers and service managers refuse system calls with
//! ENOSYS, EPERM, EINVAL or E2BIG, old kernels do not have them, emulators refuse `CLONE_VM` (qemu-user: EINVAL) or share
//! nothing by it; each of them answers here, and what is refused later is noted then.

use super::clone::{self, How};
use super::dumpable::KeepDumpable;
use super::dumps;
use super::stack::Stack;
use crate::wait;
use forkless_core::child::{probe, probed};
use forkless_core::frame::Table;
use forkless_core::sys::{self, errno};
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};

static FOUND: AtomicU32 = AtomicU32::new(0);

const PROBED: u32 = 1;

/// What can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Feature {
    /// `clone3(2)` with `CLONE_CLEAR_SIGHAND`.
    Clone3 = 2,
    /// `close_range(2)` with `CLOSE_RANGE_UNSHARE`.
    CloseRange = 4,
    /// `pidfd_getfd(2)` on the parent.
    GetFd = 8,
    /// `pidfd_open(2)` of a thread.
    ThreadFd = 16,
    /// Opening the parent's pipes anew through `/proc`: believed until it fails.
    ProcFd = 32,
}

/// What can be used here: a snapshot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Features(u32);

impl Features {
    /// Probes, if that has not been done. The error is the step's errno: EINVAL where `CLONE_VM` does not share memory.
    pub(crate) fn get() -> Result<Self, ProbeError> {
        let found = FOUND.load(Ordering::Relaxed);
        if found & PROBED != 0 {
            return Ok(Self(found));
        }
        // Threads that come here at the same time find the same; what the first one has lost since stays lost.
        let found = run()? | PROBED;
        let first = FOUND.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed);
        Ok(Self(first.map_or_else(|earlier| earlier, |_| found)))
    }

    pub(crate) fn has(self, feature: Feature) -> bool {
        self.0 & feature as u32 != 0
    }

    /// Notes a refusal that came later, and gives what is left.
    pub(crate) fn lose(feature: Feature) -> Self {
        Self(FOUND.fetch_and(!(feature as u32), Ordering::Relaxed) & !(feature as u32))
    }
}

/// Why nothing can be launched.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ProbeError {
    /// No memory for a stack.
    Stack(i32),
    /// Neither `clone3` nor `clone` makes a child.
    Clone(i32),
    /// `CLONE_VM` gives the child memory of its own.
    NotShared,
}

/// Does this errno of a capability's call mean "not available here"?
pub(crate) fn is_refusal(error: i32) -> bool {
    matches!(error, errno::ENOSYS | errno::EPERM | errno::EINVAL | errno::E2BIG | errno::EACCES)
}

/// The probe, with every signal blocked for the child: one that is meant for our group would end it half-way, and what it
/// has not come to would be taken for refused.
fn run() -> Result<u32, ProbeError> {
    // SAFETY: put back below, whatever happens.
    let mask = unsafe { sys::set_signal_mask(!0) };
    // Nor may a filter that kills it end us.
    let keep_dumpable = dumps::may_come_from_a_filter(false).then(KeepDumpable::begin);
    if keep_dumpable.is_some() {
        dumps::forbid();
    }
    let answer = probe_once();
    drop(keep_dumpable);
    if let Ok(mask) = mask {
        // SAFETY: the mask as it was.
        let _ = unsafe { sys::set_signal_mask(mask) };
    }
    answer
}

fn probe_once() -> Result<u32, ProbeError> {
    let mut stack = Stack::take().map_err(ProbeError::Stack)?;
    let mut clone3 = true;
    let pid = loop {
        stack.begin(|frame| {
            frame.detail = 0.into();
            frame.plan = null();
            frame.table = Table::Private;
        });
        let how = How { clone3, share_files: true, ..How::plain() };
        // SAFETY: `probe` follows the child's rules; the stack is held until the child is reaped.
        match unsafe { clone::clone(&mut stack, how, probe) } {
            Ok(cloned) => break cloned.pid,
            Err(error) if clone3 && is_refusal(error) => clone3 = false,
            Err(error) => return Err(ProbeError::Clone(error)),
        }
    };
    wait::reap(pid);
    let detail = stack.frame().detail.load(Ordering::Acquire);
    if detail & probed::SHARED == 0 {
        // The kernel that does not share memory does not clear our word either.
        stack.cancel();
        return Err(ProbeError::NotShared);
    }
    let mut found = Feature::ProcFd as u32 | if clone3 { Feature::Clone3 as u32 } else { 0 };
    for (bit, feature) in [
        (probed::CLOSE_RANGE, Feature::CloseRange),
        (probed::GETFD, Feature::GetFd),
        (probed::THREAD_FD, Feature::ThreadFd),
    ] {
        if detail & bit != 0 {
            found |= feature as u32;
        }
    }
    Ok(found)
}
