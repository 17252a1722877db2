//! Keeping the parent dumpable.
//!
//! When a child changes its ids, `commit_creds()` makes its memory non-dumpable, so that the former self cannot look into
//! it. Until exec that memory is ours: `/proc/self` would belong to root, debuggers would be refused, cores would not be
//! written. So the parent's state is put back as soon as the child has left.
//!
//! Several such launches may overlap. The first notes the state, later ones go by that note, and each puts it back.
//!
//! Source: commit_creds() in kernel/cred.c; PR_SET_DUMPABLE in prctl(2).

use forkless_core::sys::{self, uapi};
use std::sync::atomic::{AtomicU64, Ordering};

/// Generation (upper 24 bits), the state noted (8 bits), launches under way (32 bits).
static NOTE: AtomicU64 = AtomicU64::new(0);

const ONE_LAUNCH: u64 = 1;
const STATE_AT: u32 = 32;
const GENERATION: u64 = 1 << 40;

/// A launch whose child changes ids; puts the parent's state back when dropped.
pub(super) struct KeepDumpable(());

impl KeepDumpable {
    pub(super) fn begin() -> Self {
        loop {
            let note = NOTE.load(Ordering::Acquire);
            let noted = if launches(note) == 0 {
                // A launch that came and went since makes this a new generation, and the exchange fails.
                (note & !(0xff << STATE_AT)) | (state() as u64) << STATE_AT
            } else {
                note
            };
            if NOTE.compare_exchange(note, noted + ONE_LAUNCH, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Self(());
            }
        }
    }
}

impl Drop for KeepDumpable {
    fn drop(&mut self) {
        let noted = (NOTE.load(Ordering::Acquire) >> STATE_AT & 0xff) as usize;
        // 2, "readable by root only", can only be set by the kernel; and what was 0 is so already.
        if noted == 1 && state() != 1 {
            const PR_SET_DUMPABLE: usize = 4;
            // SAFETY: puts a flag of this process back to what it was.
            let _ = unsafe { sys::syscall(uapi::__NR_prctl, [PR_SET_DUMPABLE, noted, 0, 0, 0, 0]) };
        }
        let end = |note: u64| Some(note - ONE_LAUNCH + if launches(note) == 1 { GENERATION } else { 0 });
        let _ = NOTE.fetch_update(Ordering::AcqRel, Ordering::Acquire, end);
    }
}

fn launches(note: u64) -> u32 {
    note as u32
}

fn state() -> u8 {
    const PR_GET_DUMPABLE: usize = 3;
    // SAFETY: reads a flag of this process.
    unsafe { sys::syscall(uapi::__NR_prctl, [PR_GET_DUMPABLE, 0, 0, 0, 0, 0]) }.unwrap_or(1) as u8
}
