//! The environment that the kernel gave this process, known for good as long as nobody has changed it.
//!
//! Reading `environ` races with `setenv(3)` in other threads, which may free what is being read. The list that the
//! kernel laid out does not have that danger: it lies on the first thread's stack, with its strings, and is never
//! freed. A C library may take entries out of it, or put another string in the place of one; an entry more makes it
//! copy the list to its heap. So once a list of the kernel's was seen whole, a few loads tell whether it is the same
//! still: it never comes back to what it was, since what is put there is not a string of the kernel's. The strings
//! themselves are compared as well: a program may wipe a secret out of one where it stands, and must not find it in
//! its children.

use super::{Block, Kept};
use crate::once::Once;
use forkless_core::planted;
use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Entries lie at most so many bytes below the kernel's random bytes: far less than the 128 KiB that the kernel maps
/// below what it has laid out, so all of it is on the stack.
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

/// A list as the kernel has laid it out, with what it says.
struct Seen {
    list: List,
    entries: Vec<*mut c_char>,
    block: Kept,
}

// SAFETY: addresses, which are read with atomic loads.
unsafe impl Send for Seen {}
// SAFETY: as above.
unsafe impl Sync for Seen {}

/// The environment, if it is certainly still what the kernel gave.
pub(crate) fn get() -> Option<&'static Kept> {
    first().filter(|seen| seen.is_still_so()).map(|seen| &seen.block)
}

/// What the kernel gave, whatever the environment is now.
pub(crate) fn given() -> Option<&'static Kept> {
    first().map(|seen| &seen.block)
}

fn first() -> Option<&'static Seen> {
    static SEEN: Once<Option<Seen>> = Once::new();
    SEEN.get_or(Seen::of_kernel).as_ref()
}

/// A list on the first thread's stack.
#[derive(Clone, Copy, PartialEq, Eq)]
struct List(*mut *mut c_char);

impl List {
    /// What `environ` is now.
    fn now() -> Self {
        // SAFETY: a word that lives as long as the process; others may store to it meanwhile, which a relaxed load
        // bears.
        Self(unsafe { &environ }.load(Ordering::Relaxed))
    }

    /// One entry.
    ///
    /// # Safety
    /// It lies on the first thread's stack, above what is in use there.
    unsafe fn entry(self, index: usize) -> *mut c_char {
        // SAFETY: the caller's word for where it is; others may store to it meanwhile, as above.
        unsafe { AtomicPtr::from_ptr(self.0.add(index)) }.load(Ordering::Relaxed)
    }
}

impl Seen {
    /// The present list, if it is the kernel's.
    fn of_kernel() -> Option<Self> {
        // SAFETY: it takes a number; both are addresses on the first thread's stack, or 0 where they are not told.
        let [random, name] = [AT_RANDOM, AT_EXECFN].map(|key| unsafe { getauxval(key as c_ulong) } as usize);
        let list = List::now();
        let (start, word) = (list.0 as usize, size_of::<usize>());
        if name <= random || start >= random || random - start > REACH || !start.is_multiple_of(word) {
            return None;
        }
        let words = (random - start) / word;
        // SAFETY: up to the random bytes all is on the first thread's stack: see `REACH`.
        let at = |index: usize| (index < words).then(|| unsafe { list.entry(index) });
        let mut entries = Vec::with_capacity(64);
        while let Some(entry) = at(entries.len()).filter(|entry| !entry.is_null()) {
            // The kernel puts the strings above its random bytes and below the program's name.
            if !(random..name).contains(&(entry as usize)) {
                return None;
            }
            entries.push(entry);
        }
        // Only behind the kernel's own list comes its auxiliary vector.
        let vector = entries.len() + 1;
        let pairs = (0..).map_while(|n| Some((at(vector + 2 * n)? as usize, at(vector + 2 * n + 1)? as usize)));
        if !pairs.take_while(|&(key, _)| key != AT_NULL).any(|pair| pair == (AT_RANDOM, random)) {
            return None;
        }
        // SAFETY: strings of the kernel's, which end in NUL and stay where they are.
        let strings = entries.iter().map(|&entry| unsafe { CStr::from_ptr(entry) });
        // Those that `std::env` leaves out are not worth a second list.
        if !strings.clone().all(|text| text.to_bytes().iter().skip(1).any(|&byte| byte == b'=')) {
            return None;
        }
        let block = Kept::new(Block::copy_of(strings));
        // The kernel copies them one behind the other, so that they can be compared as one.
        let first = entries.first().map_or(0, |&entry| entry as usize);
        if !entries.iter().zip(&block.starts).all(|(&entry, start)| entry as usize == first + start) {
            return None;
        }
        let seen = Self { list, entries, block };
        // While an entry is being taken out, another may be missed.
        seen.is_still_so().then_some(seen)
    }

    fn is_still_so(&self) -> bool {
        // SAFETY: a list of the kernel's, up to its end.
        let same = |(index, &entry): (usize, &*mut c_char)| ptr::eq(unsafe { self.list.entry(index) }, entry);
        (List::now() == self.list || planted!("environment-of-old"))
            && self.entries.iter().enumerate().all(same)
            // SAFETY: as above.
            && unsafe { self.list.entry(self.entries.len()) }.is_null()
            && self.entries.first().is_none_or(|&first| {
                let text = &self.block.text;
                // SAFETY: as much was there at the first look, one string behind the other, and stays there. Not by a
                // reference: others may write to it.
                planted!("environment-secret-kept") || unsafe { memcmp(first.cast(), text.as_ptr().cast(), text.len()) == 0 }
            })
    }
}
