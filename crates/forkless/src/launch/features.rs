//! The known features of the kernel, and the missing ones that may come back.

use crate::sync::{AtomicU32, AtomicU64};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The features that the probe found, without those that were refused since. All threads share one value.
pub(super) struct Known {
    /// [`PROBED`], and a bit for each feature: available, [`LOST`] or [`HIDDEN`].
    found: AtomicU32,
    /// When lost features are tried again, in nanoseconds of the monotonic clock.
    again: AtomicU64,
    /// The time from the loss until then.
    pause: AtomicU64,
}

const PROBED: u32 = 1;

/// The bits of all features.
pub(super) const ALL: u32 = 0x3e;

/// The features that the kernel refuses if the caller is non-dumpable.
const BY_PARENT: u32 = Feature::GetFd as u32 | Feature::ProcFd as u32;

/// The shift of a feature's bit if it was refused to a launch.
pub(super) const LOST: u32 = 8;

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
    /// `pidfd_getfd(2)` on the caller.
    GetFd = 8,
    /// `pidfd_open(2)` of a thread.
    ThreadFd = 16,
    /// Opening the caller's pipes again through `/proc`: assumed to work until it fails.
    ProcFd = 32,
}

/// A snapshot of the features that a launch may use. One that is being tried again also has its [`LOST`] bit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Features(pub(super) u32);

impl Known {
    pub(super) const fn new() -> Self {
        Self { found: AtomicU32::new(0), again: AtomicU64::new(0), pause: AtomicU64::new(0) }
    }

    pub(super) fn is_probed(&self) -> bool {
        self.found.load(Ordering::Relaxed) & PROBED != 0
    }

    /// `None`: nothing has been probed. Reads the clock only if a feature is lost, and the memory's state only if one
    /// is hidden.
    pub(super) fn get(
        &self,
        tries: u32,
        now: impl FnOnce() -> u64,
        is_dumpable: impl FnOnce() -> bool,
    ) -> Option<Features> {
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
    pub(super) fn regain(&self, features: u32) {
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
    pub(super) fn note(&self, found: u32, is_dumpable: bool) -> Features {
        let hidden = if is_dumpable { 0 } else { (BY_PARENT & !found) << HIDDEN };
        let found = found | hidden | PROBED;
        let first = self.found.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed);
        Features(first.map_or_else(|earlier| earlier, |_| found))
    }

    pub(super) fn lose(&self, feature: Feature, now: u64, is_dumpable: bool) {
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
