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
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

static KNOWN: Known = Known::new();

/// The known [`Feature`]s, and the missing ones that may come back.
struct Known {
    /// [`PROBED`], and a bit for each feature: available, [`LOST`] or [`HIDDEN`].
    found: AtomicU32,
    /// When lost features are tried again, in nanoseconds of the monotonic clock.
    again: AtomicU64,
    /// The time from the loss until then.
    pause: AtomicU64,
}

const PROBED: u32 = 1;

/// The bits of all features.
const ALL: u32 = 0x3e;

/// The features that the kernel refuses if the parent is non-dumpable.
const BY_PARENT: u32 = Feature::GetFd as u32 | Feature::ProcFd as u32;

/// The shift of a feature's bit if it was refused to a launch.
const LOST: u32 = 8;

/// The shift of a feature's bit if it was refused while the memory was non-dumpable: available again when it is
/// dumpable.
const HIDDEN: u32 = 16;

/// How long a lost feature is not tried. After each further refusal this doubles, up to [`LONGEST`].
const SHORTEST: u64 = Duration::from_secs(1).as_nanos() as u64;
const LONGEST: u64 = Duration::from_secs(60).as_nanos() as u64;

/// A feature that launches use.
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
    /// Opening the parent's pipes again through `/proc`: assumed to work until it fails.
    ProcFd = 32,
}

/// A snapshot of the features that a launch may use. One that is being tried again also has its [`LOST`] bit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Features(u32);

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
    /// child for its system calls; and for a child that will be an init, whose place the probe's child would take.
    /// Where clone3 is refused, the launch probes after all. Returns `None` once the kernel has been probed.
    pub(super) fn unprobed(is_only: bool) -> Option<Self> {
        let is_known = KNOWN.found.load(Ordering::Relaxed) & PROBED != 0;
        let assumes = || is_only && !has_filter() || next_child_is_init();
        (!is_known && assumes()).then_some(Self(Feature::Clone3 as u32))
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
        if mark.was_alone() {
            KNOWN.lose(feature, dumpable::now(), dumpable::is_dumpable());
        }
        Self(self.0 & !(feature as u32))
    }
}

impl Known {
    const fn new() -> Self {
        Self { found: AtomicU32::new(0), again: AtomicU64::new(0), pause: AtomicU64::new(0) }
    }

    /// `None`: nothing has been probed. Reads the clock only if a feature is lost, and the memory's state only if one
    /// is hidden.
    fn get(&self, tries: u32, now: impl FnOnce() -> u64, is_dumpable: impl FnOnce() -> bool) -> Option<Features> {
        let found = self.found.load(Ordering::Relaxed);
        if found & PROBED == 0 {
            return None;
        }
        let (lost, hidden) = (found >> LOST & ALL, found >> HIDDEN & ALL);
        // Only for this launch: one that does not wait for its child would fail if the feature is still refused.
        let tried = lost & tries;
        let tried = if tried != 0 && now() >= self.again.load(Ordering::Relaxed) { tried } else { 0 };
        let found = if hidden != 0 && is_dumpable() { self.give(hidden << HIDDEN, HIDDEN) } else { found };
        Some(Features(found | tried))
    }

    /// Lost features that were tried again have worked.
    fn regain(&self, features: u32) {
        self.give(features << LOST, LOST);
    }

    /// Makes features whose bits were shifted available again.
    fn give(&self, shifted: u32, by: u32) -> u32 {
        let give = |found: u32| found & !shifted | (found & shifted) >> by;
        let before = self.found.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |found| Some(give(found)));
        before.map_or_else(give, give)
    }

    /// Stores what the probe found. If several threads probe at the same time, the first result stays, with the
    /// features that were lost since.
    fn note(&self, found: u32, is_dumpable: bool) -> Features {
        let hidden = if is_dumpable { 0 } else { (BY_PARENT & !found) << HIDDEN };
        let found = found | hidden | PROBED;
        let first = self.found.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed);
        Features(first.map_or_else(|earlier| earlier, |_| found))
    }

    fn lose(&self, feature: Feature, now: u64, is_dumpable: bool) {
        let feature = feature as u32;
        let to = if is_dumpable || feature & BY_PARENT == 0 { LOST } else { HIDDEN };
        if to == LOST {
            let (again, pause) = (self.again.load(Ordering::Relaxed), self.pause.load(Ordering::Relaxed));
            // It has been available for longer than it was lost before, so this is a new loss with the shortest
            // pause.
            let is_new = now > again.saturating_add(pause);
            let pause = if is_new { SHORTEST } else { (pause * 2).clamp(SHORTEST, LONGEST) };
            self.pause.store(pause, Ordering::Relaxed);
            self.again.store(now.saturating_add(pause), Ordering::Relaxed);
        }
        // A feature that was only tried again is lost already, and does not move.
        let take = |found: u32| Some(found & !feature | (found & feature) << to);
        let _ = self.found.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
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
fn next_child_is_init() -> bool {
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
    let keep_dumpable = dumps::may_come_from_a_filter(false).then(KeepDumpable::begin).and_then(Result::ok);
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
        // A kernel that does not share the memory does not clear the parent's futex word either.
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

    fn all() -> Known {
        let known = Known::new();
        known.note(ALL, true);
        known
    }

    fn has(known: &Known, feature: Feature, now: u64, is_dumpable: bool) -> bool {
        known.get(ALL, || now, || is_dumpable).expect("probed").has(feature)
    }

    #[test]
    fn what_was_refused_once_is_tried_again() {
        let known = all();
        known.lose(Feature::GetFd, 1000 * SHORTEST, true);
        assert!(!has(&known, Feature::GetFd, 1001 * SHORTEST - 1, true));
        assert!(has(&known, Feature::Clone3, 1001 * SHORTEST - 1, true));
        assert!(has(&known, Feature::GetFd, 1001 * SHORTEST, true));
        // Refused again: tried after twice as long, and so on.
        known.lose(Feature::GetFd, 1001 * SHORTEST, true);
        assert!(!has(&known, Feature::GetFd, 1003 * SHORTEST - 1, true));
        assert!(has(&known, Feature::GetFd, 1003 * SHORTEST, true));
        for _ in 0..20 {
            known.lose(Feature::GetFd, 1003 * SHORTEST, true);
        }
        assert!(!has(&known, Feature::GetFd, 1003 * SHORTEST + LONGEST - 1, true));
        assert!(has(&known, Feature::GetFd, 1003 * SHORTEST + LONGEST, true));
        // Only for launches that wait for their child, until it has worked.
        let untold = |now| known.get(0, || now, || true).expect("probed");
        assert!(!untold(u64::MAX).has(Feature::GetFd));
        known.regain(Feature::GetFd as u32);
        assert!(untold(0).has(Feature::GetFd));
        // It was available for a long time, so this is a new loss.
        known.lose(Feature::GetFd, 5000 * SHORTEST, true);
        assert!(has(&known, Feature::GetFd, 5001 * SHORTEST, true));
    }

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

    #[test]
    fn what_is_refused_while_the_memory_is_not_dumpable_is_there_when_it_is() {
        let known = all();
        known.lose(Feature::GetFd, 0, false);
        assert!(!has(&known, Feature::GetFd, u64::MAX, false));
        assert!(has(&known, Feature::GetFd, 0, true));
        let probed = Known::new();
        let found = probed.note(ALL & !(Feature::GetFd as u32), false);
        assert!(!found.has(Feature::GetFd) && found.has(Feature::ThreadFd));
        assert!(has(&probed, Feature::GetFd, 0, true), "nor is the probe's answer for ever");
        let without = Known::new();
        without.note(ALL & !(Feature::GetFd as u32), true);
        assert!(!has(&without, Feature::GetFd, u64::MAX, true), "but what the probe did not find is not there");
    }

    #[test]
    fn nobody_is_asked_where_nothing_is_missing() {
        let known = all();
        let found = known.get(ALL, || panic!("the time"), || panic!("the state"));
        assert!(found.is_some_and(|found| found.0 == ALL | PROBED));
    }
}
