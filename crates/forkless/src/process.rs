//! A number that identifies this process, and differs in a forked copy.
//!
//! The PID cannot do that: a copy that is forked into a new PID namespace can have the PID of the process that it was
//! forked from. So there is a page that the kernel clears in every forked copy (`MADV_WIPEONFORK`). Each process stores
//! a new number in it at the first use. A later read takes no system call and no lock.
//!
//! Source: `madvise(2)`; dup_mmap() in kernel/fork.c.

use forkless_core::sys;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The number of this process: never 0, and never that of a process that it was forked from, by any method.
///
/// Where the kernel does not support the advice (before 4.14), the number depends on the PID.
pub fn generation() -> u32 {
    let page = PAGE.load(Ordering::Acquire);
    if std::ptr::eq(page, &raw const REFUSED) {
        return by_pid(&BY_PID);
    }
    // SAFETY: null, or the published page, which is never unmapped.
    match unsafe { page.as_ref() } {
        Some(number) => of_page(number),
        None => first(),
    }
}

/// The page with the number; [`REFUSED`] if there is none.
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

/// Stands for a page that could not be mapped.
static REFUSED: AtomicU32 = AtomicU32::new(0);

/// The PID (upper half) and the number of the process that had it.
static BY_PID: AtomicU64 = AtomicU64::new(0);

/// The last number in use, by this process or those that it was forked from.
static LAST: AtomicU32 = AtomicU32::new(0);

fn draw() -> u32 {
    // 0 means none, so it is skipped after an overflow too.
    match LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1) {
        0 => draw(),
        number => number,
    }
}

fn of_page(number: &AtomicU32) -> u32 {
    match number.load(Ordering::Relaxed) {
        0 => {
            let new = draw();
            // Another thread of this process may have been faster.
            number.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed).map_or_else(|theirs| theirs, |_| new)
        }
        number => number,
    }
}

fn by_pid(word: &AtomicU64) -> u32 {
    let me = (sys::getpid() as u64) << 32;
    let mut known = word.load(Ordering::Relaxed);
    loop {
        if known & !0 << 32 == me && known as u32 != 0 {
            return known as u32;
        }
        let new = me | draw() as u64;
        match word.compare_exchange(known, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return new as u32,
            Err(now) => known = now,
        }
    }
}

/// Maps the page.
#[cold]
fn first() -> u32 {
    let new = map().unwrap_or((&raw const REFUSED).cast_mut());
    if PAGE.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Relaxed).is_err()
        && !std::ptr::eq(new, &raw const REFUSED)
    {
        // SAFETY: mapped above, and never published.
        let _ = unsafe { munmap(new.cast(), PAGE_SIZE) };
    }
    generation()
}

/// The kernel rounds it up to whole pages.
const PAGE_SIZE: usize = 4096;

/// The kernel clears it in copies that are forked after this, so it is safe before it is published.
fn map() -> Option<*mut AtomicU32> {
    // SAFETY: a new private mapping, chosen by the kernel.
    unsafe {
        let page = mmap_anonymous(null_mut(), PAGE_SIZE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE).ok()?;
        if madvise(page, PAGE_SIZE, Advice::LinuxWipeOnFork).is_err() {
            let _ = munmap(page, PAGE_SIZE);
            return None;
        }
        Some(page.cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_until_its_page_is_emptied() {
        let page = AtomicU32::new(0);
        let first = of_page(&page);
        assert_eq!(of_page(&page), first);
        page.store(0, Ordering::Relaxed);
        assert!(first != 0 && of_page(&page) > first);
        assert_eq!(generation(), generation());
    }

    /// If the kernel does not clear the page in forked copies.
    #[test]
    fn without_a_page_another_pid_draws_another_number() {
        let word = AtomicU64::new(0);
        let first = by_pid(&word);
        assert_eq!(by_pid(&word), first);
        // As a forked copy with another PID finds it.
        word.fetch_add(1 << 32, Ordering::Relaxed);
        assert!(first != 0 && by_pid(&word) > first);
    }
}
