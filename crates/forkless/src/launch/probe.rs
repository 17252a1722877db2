//! The features that this kernel provides, and that no seccomp filter of this process refuses.
//!
//! A real child tests them once, before the first launch. Containers and service managers refuse system calls with
//! ENOSYS, EPERM, EINVAL or E2BIG. Old kernels do not have them. Emulators refuse `CLONE_VM` (qemu-user: EINVAL), or
//! do not share memory with it. The probe finds all of these.
//!
//! A feature that is refused to a later launch is lost from then on. The refusal may be temporary, so a lost feature
//! is tried again after a while, by a launch that can use another method. Other launches use it once it has worked.
//!
//! While the memory is non-dumpable, `pidfd_getfd(2)` is refused to processes without CAP_SYS_PTRACE. Such a refusal
//! counts only until the memory is dumpable again.

use super::clone::{self, CloneArgs};
use super::dumpable::{self, KeepDumpable, Mark};
use super::dumps;
use super::features::{ALL, Known, LOST};
pub(crate) use super::features::{Feature, Features};
use super::stack::Stack;
use crate::launch::wait;
use crate::procfs;
use forkless_core::child::{probe, probed};
use forkless_core::frame::Table;
use forkless_core::signals::{blocked_in_caller, has_filter};
use forkless_core::sys::{self, errno};
use rustix::fs::{AtFlags, CWD, readlinkat_raw, statat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

static KNOWN: Known = Known::new();

impl Features {
    /// The features. Probes if that has not been done.
    pub(crate) fn get() -> Result<Self, ProbeError> {
        Self::get_or_probe(0)
    }

    /// The same for a launch, which tries lost features again. `stays`: the launch waits for the result of its child.
    /// Otherwise only `clone3` is tried again: if another feature is still refused, the child fails.
    pub(super) fn get_to_launch(stays: bool) -> Result<Self, ProbeError> {
        Self::get_or_probe(if stays { ALL } else { Feature::Clone3 as u32 })
    }

    /// Without a probe: only `clone3` is assumed. For the only launch of the process, unless a seccomp filter may kill a
    /// child for its system calls; and if the next child will be an init: the probe's child would become it instead.
    /// Where clone3 is refused, the launch probes after all. Returns `None` once the kernel has been probed.
    pub(super) fn unprobed(is_only: bool) -> Option<Self> {
        let assumes = || is_only && !has_filter() || is_next_child_init();
        (!KNOWN.is_probed() && assumes()).then_some(Self(Feature::Clone3 as u32))
    }

    fn get_or_probe(tries: u32) -> Result<Self, ProbeError> {
        match KNOWN.get(tries, dumpable::now, dumpable::is_dumpable) {
            Some(found) => Ok(found),
            None => Ok(KNOWN.note(run()?, dumpable::is_dumpable())),
        }
    }

    pub(crate) fn has(self, feature: Feature) -> bool {
        self.0 & feature as u32 != 0
    }

    /// After a launch that used these features: those that it tried again are available.
    pub(super) fn confirm(self, used: impl Iterator<Item = Feature>) {
        let back = used.fold(0, |bits, feature| bits | feature as u32) & self.0 & self.0 >> LOST;
        if back != 0 {
            KNOWN.regain(back);
        }
    }

    /// After a refusal to a launch that began at `mark`: the features that remain for this launch. Later launches
    /// lose the feature too, unless launches that change IDs were under way, which may be the reason of the refusal.
    pub(super) fn lose(self, feature: Feature, mark: Mark) -> Self {
        if mark.is_alone() {
            KNOWN.lose(feature, dumpable::now(), dumpable::is_dumpable());
        }
        Self(self.0 & !(feature as u32))
    }
}

/// Why nothing can be launched by clone.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ProbeError {
    /// No memory for a stack.
    Stack(i32),
    /// Neither `clone3` nor `clone` makes a child.
    Clone(i32),
    /// `CLONE_VM` gives the child memory of its own.
    NotShared,
}

/// Whether the next child of this thread will be the first process of a PID namespace, after `unshare(2)` or `setns(2)`
/// of CLONE_NEWPID. When it has ended, no other process can be created there: `pid_namespaces(7)`. Until then the link
/// exists and cannot be read: pidns_for_children_get() in kernel/pid_namespace.c.
fn is_next_child_init() -> bool {
    const LINK: &CStr = procfs::PIDS_FOR_CHILDREN;
    // rustix's calls, unlike those of std, do not change the caller's errno.
    let link = readlinkat_raw(CWD, LINK, &mut [0; 32]);
    link == Err(Errno::NOENT) && statat(CWD, LINK, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Whether this errno of a feature's system call means that the feature is not available here.
pub(crate) fn is_refusal(error: i32) -> bool {
    matches!(error, errno::ENOSYS | errno::EPERM | errno::EINVAL | errno::E2BIG | errno::EACCES)
}

/// Probes with every signal blocked. Otherwise a signal to the caller's process group could kill the child half-way,
/// and the features that it has not tested by then would count as refused.
fn run() -> Result<u32, ProbeError> {
    // Restored below on every path.
    let mask = sys::set_signal_mask(blocked_in_caller());
    // If a seccomp filter kills the child, its core dump must not kill this process.
    let keep_dumpable = dumps::can_be_of_a_filter(false).then(KeepDumpable::begin).and_then(Result::ok);
    if keep_dumpable.is_some() {
        dumps::forbid();
    }
    let answer = probe_once();
    drop(keep_dumpable);
    if let Ok(mask) = mask {
        let _ = sys::set_signal_mask(mask);
    }
    answer
}

fn probe_once() -> Result<u32, ProbeError> {
    let mut stack = Stack::take().map_err(ProbeError::Stack)?;
    let mut clone3 = true;
    let pid = loop {
        stack.begin(|frame| {
            frame.detail = 0.into();
            *frame.plan.get_mut() = null_mut();
            frame.table = Table::Private;
        });
        let how = CloneArgs { clone3, share_files: true, ..CloneArgs::plain() };
        // SAFETY: `probe` follows the child's rules; the stack is held until the child is reaped.
        match unsafe { clone::clone(&mut stack, how, probe) } {
            Ok(cloned) => break cloned.pid,
            Err(error) if clone3 && is_refusal(error) => clone3 = false,
            Err(error) => return Err(ProbeError::Clone(error)),
        }
    };
    wait::reap(pid, None);
    let detail = stack.frame().detail.load(Ordering::Acquire);
    if detail & probed::SHARED == 0 {
        // A kernel that does not share the memory does not clear the caller's futex word either.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_that_works_again_is_there_for_every_launch() {
        Features::get().expect("probed");
        // Long ago, so that it may be tried again. Other tests of this program lose nothing by it.
        KNOWN.lose(Feature::ProcFd, 0, true);
        let tried = Features::get_to_launch(true).expect("probed");
        assert!(tried.has(Feature::ProcFd));
        tried.confirm([Feature::ProcFd].into_iter());
        assert!(Features::get().expect("probed").has(Feature::ProcFd));
    }
}
