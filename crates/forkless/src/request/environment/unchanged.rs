//! The environment that the kernel gave this process. As long as it is unchanged, it can be read without a lock.
//!
//! Reading `environ` races with `setenv(3)` in other threads, which may free the memory being read. The kernel's list
//! is safe: it is on the main thread's stack, with its strings, and is never freed. A C library may remove entries
//! from it, or replace one by another string. To add an entry it copies the list to its heap. So after the kernel's
//! list has been seen complete once, a few loads show whether it is unchanged: a changed list never becomes equal
//! again, because a new entry is not one of the kernel's strings. The strings themselves are compared too: a program
//! may overwrite a secret in its environment, and its children must not get it.

use super::{Block, KeptEnvironment};
use crate::once::Once;
use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The list is at most this many bytes below the kernel's random bytes (AT_RANDOM). The kernel maps 128 KiB below its
/// data, so all of this range is on the stack.
///
/// Source: `setup_arg_pages` in fs/exec.c.
const REACH: usize = 64 << 10;
/// Keys of the auxiliary vector, from the kernel's linux/auxvec.h.
const AT_NULL: usize = 0;
const AT_RANDOM: usize = 25;
const AT_EXECFN: usize = 31;

unsafe extern "C" {
    static environ: AtomicPtr<*mut c_char>;
    fn getauxval(key: c_ulong) -> c_ulong;
    fn memcmp(one: *const c_void, other: *const c_void, length: usize) -> c_int;
}

/// The kernel's list and its entries.
struct Seen {
    list: List,
    entries: Vec<*mut c_char>,
    block: KeptEnvironment,
}

// SAFETY: the addresses are read with atomic loads only.
unsafe impl Send for Seen {}
// SAFETY: as above.
unsafe impl Sync for Seen {}

/// The environment, if it is certainly unchanged since the kernel gave it.
pub(crate) fn get() -> Option<&'static KeptEnvironment> {
    first().filter(|seen| seen.is_still_so()).map(|seen| &seen.block)
}

/// The environment that the kernel gave, even if it has been changed since.
pub(crate) fn environment_at_exec() -> Option<&'static KeptEnvironment> {
    first().map(|seen| &seen.block)
}

fn first() -> Option<&'static Seen> {
    static SEEN: Once<Option<Seen>> = Once::new();
    SEEN.get_or(Seen::of_kernel).as_ref()
}

/// A list on the main thread's stack.
#[derive(Clone, Copy, PartialEq, Eq)]
struct List(*mut *mut c_char);

impl List {
    /// The present value of `environ`.
    fn now() -> Self {
        // SAFETY: a word that exists as long as the process. Other threads may store to it, so the load is atomic.
        Self(unsafe { &environ }.load(Ordering::Relaxed))
    }

    /// One entry.
    ///
    /// # Safety
    /// The entry is on the main thread's stack, above the frames in use.
    unsafe fn entry(self, index: usize) -> *mut c_char {
        // SAFETY: the address is valid, as this function requires. Other threads may store to it, as above.
        unsafe { AtomicPtr::from_ptr(self.0.add(index)) }.load(Ordering::Relaxed)
    }
}

impl Seen {
    /// The present list, if it is the kernel's list.
    fn of_kernel() -> Option<Self> {
        // SAFETY: it takes a number. Both results are addresses on the main thread's stack, or 0 if the kernel does
        // not report them.
        let [random, name] = [AT_RANDOM, AT_EXECFN].map(|key| unsafe { getauxval(key as c_ulong) } as usize);
        let list = List::now();
        let (start, word) = (list.0 as usize, size_of::<usize>());
        if name <= random || start >= random || random - start > REACH || !start.is_multiple_of(word) {
            return None;
        }
        let words = (random - start) / word;
        // SAFETY: everything up to the random bytes is on the main thread's stack: see `REACH`.
        let at = |index: usize| (index < words).then(|| unsafe { list.entry(index) });
        let mut entries = Vec::with_capacity(64);
        while let Some(entry) = at(entries.len()).filter(|entry| !entry.is_null()) {
            // The kernel places the strings between its random bytes and the program's name.
            if !(random..name).contains(&(entry as usize)) {
                return None;
            }
            entries.push(entry);
        }
        // Only the kernel's own list is followed by the auxiliary vector.
        let vector = entries.len() + 1;
        let pairs = (0..).map_while(|n| Some((at(vector + 2 * n)? as usize, at(vector + 2 * n + 1)? as usize)));
        if !pairs.take_while(|&(key, _)| key != AT_NULL).any(|pair| pair == (AT_RANDOM, random)) {
            return None;
        }
        // SAFETY: the kernel's strings, which end in NUL and are never freed.
        let strings = entries.iter().map(|&entry| unsafe { CStr::from_ptr(entry) });
        // With entries that `std::env` skips, a second list would be needed, so such environments are not kept.
        if !strings.clone().all(|text| text.to_bytes().iter().skip(1).any(|&byte| byte == b'=')) {
            return None;
        }
        let block = KeptEnvironment::new(Block::copy_of(strings));
        // The kernel stores the strings one after the other, so they can be compared as one.
        let first = entries.first().map_or(0, |&entry| entry as usize);
        if !entries.iter().zip(&block.starts).all(|(&entry, start)| entry as usize == first + start) {
            return None;
        }
        let seen = Self { list, entries, block };
        // While another thread removes an entry, this loop may miss a different one.
        seen.is_still_so().then_some(seen)
    }

    fn is_still_so(&self) -> bool {
        // SAFETY: the kernel's list, up to its end.
        let same = |(index, &entry): (usize, &*mut c_char)| ptr::eq(unsafe { self.list.entry(index) }, entry);
        List::now() == self.list
            && self.entries.iter().enumerate().all(same)
            // SAFETY: as above.
            && unsafe { self.list.entry(self.entries.len()) }.is_null()
            && self.entries.first().is_none_or(|&first| {
                let text = &self.block.text;
                // SAFETY: these bytes were there when the list was first seen, and are never freed. No reference is
                // made, because other threads may write to them.
                unsafe { memcmp(first.cast(), text.as_ptr().cast(), text.len()) == 0 }
            })
    }
}
