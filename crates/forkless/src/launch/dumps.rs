//! Core dumps of a child that shares this process's memory, before Linux 5.16.
//!
//! Before such a kernel writes a core dump, it kills every process that shares the memory: a SIGQUIT to a child would
//! kill the host. So there the child has handlers for the signals that dump core (`signals::guard`), and exec removes
//! them.
//!
//! A seccomp filter that kills runs no handler. But the kernel does not dump non-dumpable memory, and then kills
//! nothing else. So if the child may have such a filter, the memory is made non-dumpable until the child has left it.
//! That is not done for every launch: meanwhile the process's files in `/proc` belong to root, and its children
//! cannot fetch descriptors from it.
//!
//! A distribution's kernel may have the change in an earlier version. Nothing shows that, so the version decides.
//!
//! Source: do_coredump() in fs/coredump.c before commit 0258b5fd7c71, __seccomp_filter() in kernel/seccomp.c.

use crate::kernel::{self, Prctl};
use forkless_core::signals;
use std::sync::atomic::{AtomicU32, Ordering};

/// [`BEFORE`] or [`AFTER`] the change; 0: not read yet.
static KERNEL: AtomicU32 = AtomicU32::new(0);

const AFTER: u32 = 1;
const BEFORE: u32 = 2;

/// The first kernel that kills only the process that it dumps.
const CHANGED: (u32, u32) = (5, 16);

/// Whether a core dump of a child would kill this process.
#[inline]
pub(super) fn reach_the_parent() -> bool {
    match KERNEL.load(Ordering::Relaxed) {
        0 => read_version(),
        kernel => kernel == BEFORE,
    }
}

#[cold]
fn read_version() -> bool {
    let is_before = release().is_none_or(|release| release < CHANGED);
    // A value that a test has set in the meantime stays.
    let _ = KERNEL.compare_exchange(0, if is_before { BEFORE } else { AFTER }, Ordering::Relaxed, Ordering::Relaxed);
    reach_the_parent()
}

/// Launches as on a kernel before 5.16. For tests.
#[doc(hidden)]
pub fn assume_old_kernel() {
    KERNEL.store(BEFORE, Ordering::Relaxed);
}

/// The kernel's version, if it can be read: `uname(2)`.
fn release() -> Option<(u32, u32)> {
    version(&kernel::release().ok()?)
}

/// The first two numbers of `5.15.0-91-generic`.
fn version(text: &[u8]) -> Option<(u32, u32)> {
    let mut numbers =
        text.split(|byte| !byte.is_ascii_digit()).map(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Whether a seccomp filter may kill a child whose core dump would kill this process. `is_filtered`: the child
/// installs a filter of its own.
pub(super) fn can_be_of_a_filter(is_filtered: bool) -> bool {
    reach_the_parent() && (is_filtered || signals::has_filter())
}

/// Makes the memory non-dumpable. The caller holds a [`KeepDumpable`](super::dumpable::KeepDumpable), which restores
/// the state.
pub(super) fn forbid() {
    let _ = kernel::prctl(Prctl::SetDumpable, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_two_numbers() {
        assert_eq!(version(b"5.15.0-91-generic\0\0"), Some((5, 15)));
        assert_eq!(version(b"6.1\0\0"), Some((6, 1)));
        assert_eq!(version(b"5.16-rc1\0"), Some((5, 16)));
        assert_eq!(version(b"unknown\0"), None);
        assert!(release() > Some((3, 0)));
    }
}
