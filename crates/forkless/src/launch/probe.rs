//! What this kernel, and whatever filters it for us, allows.
//!
//! Asked once, by a real child, before the first launch. Containers and service managers refuse system calls with
//! ENOSYS, EPERM, EINVAL or E2BIG, old kernels do not have them, emulators refuse `CLONE_VM` (qemu-user: EINVAL) or share
//! nothing by it; each of them answers here, and what is refused later is noted then. One refusal may be for a moment: what was
//! there once is tried again after a while, by a launch that goes another way if it must; the others are told when it has worked.
//! And while the memory is not dumpable, `pidfd_getfd(2)` is refused to whoever has not CAP_SYS_PTRACE, which says nothing about later.

use super::clone::{self, How};
use super::dumpable::{self, KeepDumpable, Mark};
use super::dumps;
use super::stack::Stack;
use crate::wait;
use forkless_core::child::{probe, probed};
use forkless_core::frame::Table;
use forkless_core::planted;
use forkless_core::signals::blocked_in_caller;
use forkless_core::sys::{self, errno};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

static KNOWN: Known = Known::new();

/// What is known: [`Feature`]s, and which of those that are missing may come back.
struct Known {
    /// [`PROBED`]; each feature, or that it is [`LOST`] or [`HIDDEN`].
    found: AtomicU32,
    /// When what is lost is tried again, in nanoseconds of the monotonic clock.
    again: AtomicU64,
    /// How long that was from the loss on.
    pause: AtomicU64,
}

const PROBED: u32 = 1;

/// The features.
const ALL: u32 = 0x3e;

/// Those that a parent can refuse by not being dumpable.
const BY_PARENT: u32 = Feature::GetFd as u32 | Feature::ProcFd as u32;

/// A feature shifted by so much: refused to a launch.
const LOST: u32 = 8;

/// A feature shifted by so much: refused while the memory was not dumpable, and there again when that is.
const HIDDEN: u32 = 16;

/// What is lost is tried again after so long; if that was in vain, after twice as long, up to [`LONGEST`].
const SHORTEST: u64 = Duration::from_secs(1).as_nanos() as u64;
const LONGEST: u64 = Duration::from_secs(60).as_nanos() as u64;

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

/// What can be used here: a snapshot. What is only tried again is [`LOST`] besides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Features(u32);

impl Features {
    /// Probes, if that has not been done. The error is the step's errno: EINVAL where `CLONE_VM` does not share memory.
    pub(crate) fn get() -> Result<Self, ProbeError> {
        Self::found(0)
    }

    /// The same for a launch, which tries again what was lost: of what only the child meets, only if it stays to see how that goes.
    pub(super) fn get_to_launch(stays: bool) -> Result<Self, ProbeError> {
        Self::found(if stays { ALL } else { Feature::Clone3 as u32 })
    }

    fn found(tries: u32) -> Result<Self, ProbeError> {
        match KNOWN.get(tries, dumpable::now, dumpable::is_dumpable) {
            Some(found) => Ok(found),
            None => Ok(KNOWN.note(run()?, dumpable::is_dumpable())),
        }
    }

    pub(crate) fn has(self, feature: Feature) -> bool {
        self.0 & feature as u32 != 0
    }

    /// After a launch that used these: what was tried again is there.
    pub(super) fn worked(self, used: impl Iterator<Item = Feature>) {
        let back = used.fold(0, |bits, feature| bits | feature as u32) & self.0 & self.0 >> LOST;
        if back != 0 {
            KNOWN.regain(back);
        }
    }

    /// After a refusal to a launch that began at `mark`: what is left for this launch. Later ones are told too, unless others were
    /// changing ids meanwhile.
    pub(super) fn lose(self, feature: Feature, mark: Mark) -> Self {
        if mark.was_alone() && !planted!("refusal-not-learned") {
            KNOWN.lose(feature, dumpable::now(), dumpable::is_dumpable());
        }
        Self(self.0 & !(feature as u32))
    }
}

impl Known {
    const fn new() -> Self {
        Self { found: AtomicU32::new(0), again: AtomicU64::new(0), pause: AtomicU64::new(0) }
    }

    /// None: nothing has been probed. Asks for the time, or whether the memory is dumpable, only where something is missing for it.
    fn get(&self, tries: u32, now: impl FnOnce() -> u64, is_dumpable: impl FnOnce() -> bool) -> Option<Features> {
        let found = self.found.load(Ordering::Relaxed);
        if found & PROBED == 0 {
            return None;
        }
        let (lost, hidden) = (found >> LOST & ALL, found >> HIDDEN & ALL);
        // For this launch alone: one that did not stay would fail by what is still refused.
        let tried = lost & tries;
        let tried = if tried != 0 && now() >= self.again.load(Ordering::Relaxed) { tried } else { 0 };
        let found = if hidden != 0 && is_dumpable() { self.give(hidden << HIDDEN, HIDDEN) } else { found };
        Some(Features(found | tried))
    }

    /// What was tried again has worked.
    fn regain(&self, features: u32) {
        self.give(features << LOST, LOST);
    }

    /// Features that were shifted are there again.
    fn give(&self, shifted: u32, by: u32) -> u32 {
        let give = |found: u32| found & !shifted | (found & shifted) >> by;
        let before = self.found.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |found| Some(give(found)));
        before.map_or_else(give, give)
    }

    /// What the probe found. Threads that come here at the same time find the same; what the first one has lost since stays lost.
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
            // It was there for longer than it had been away: another matter.
            let is_new = now > again.saturating_add(pause);
            let pause = if is_new { SHORTEST } else { (pause * 2).clamp(SHORTEST, LONGEST) };
            self.pause.store(pause, Ordering::Relaxed);
            self.again.store(now.saturating_add(pause), Ordering::Relaxed);
        }
        // What was only tried is lost already.
        let take = |found: u32| Some(found & !feature | (found & feature) << to);
        let _ = self.found.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
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
    // Put back below, whatever happens.
    let mask = sys::set_signal_mask(blocked_in_caller());
    // Nor may a filter that kills it end us.
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
        let how = How { clone3, share_files: true, ..How::plain() };
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
        // In vain: after twice as long, and so on.
        known.lose(Feature::GetFd, 1001 * SHORTEST, true);
        assert!(!has(&known, Feature::GetFd, 1003 * SHORTEST - 1, true));
        assert!(has(&known, Feature::GetFd, 1003 * SHORTEST, true));
        for _ in 0..20 {
            known.lose(Feature::GetFd, 1003 * SHORTEST, true);
        }
        assert!(!has(&known, Feature::GetFd, 1003 * SHORTEST + LONGEST - 1, true));
        assert!(has(&known, Feature::GetFd, 1003 * SHORTEST + LONGEST, true));
        // For a launch that stays alone, until that has worked.
        let untold = |now| known.get(0, || now, || true).expect("probed");
        assert!(!untold(u64::MAX).has(Feature::GetFd));
        known.regain(Feature::GetFd as u32);
        assert!(untold(0).has(Feature::GetFd));
        // It was there for a long time: another matter.
        known.lose(Feature::GetFd, 5000 * SHORTEST, true);
        assert!(has(&known, Feature::GetFd, 5001 * SHORTEST, true));
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
