//! Which child belongs to which stream.
//!
//! By the stream's descriptor, in an array of arrays: opening and closing take the same time whatever the number of streams, and
//! no lock that a forked copy of the process might find held for ever.

use super::Running;
use crate::error::Failure;
use forkless_core::planted;
use libc::FILE;
use std::alloc::{Layout, alloc_zeroed};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A stream that is open.
pub struct Entry {
    /// The stream.
    pub stream: *mut FILE,
    /// Its program.
    pub running: Running,
}

const ROW: usize = 1024;

/// The entries of so many descriptors in a row.
type Row = [AtomicPtr<Entry>; ROW];

/// Room for 2^20 descriptors, as many as `/proc/sys/fs/nr_open` allows unless it was raised.
static ROWS: [AtomicPtr<Row>; ROW] = [const { AtomicPtr::new(null_mut()) }; ROW];

/// The place of a stream, made if there is none and it is wanted.
fn place(stream: *mut FILE, make: bool) -> Option<&'static AtomicPtr<Entry>> {
    // SAFETY: an open stream, says the header's contract.
    let fd = usize::try_from(unsafe { libc::fileno(stream) }).ok()?;
    let first = ROWS.get(fd / ROW)?;
    let mut row = first.load(Ordering::Acquire);
    if row.is_null() {
        if !make {
            return None;
        }
        // SAFETY: a layout of some bytes.
        let new = unsafe { alloc_zeroed(Layout::new::<Row>()) }.cast::<Row>();
        if new.is_null() {
            return None;
        }
        row = match first.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(theirs) => {
                // SAFETY: allocated above with this layout, and nobody has seen it.
                unsafe { std::alloc::dealloc(new.cast(), Layout::new::<Row>()) };
                theirs
            }
        };
    }
    // SAFETY: rows are null pointers at first, and are never freed.
    Some(&unsafe { &*row }[fd % ROW])
}

/// Notes a stream. One that was closed by `fclose(3)` and so left its place taken loses its child here.
pub fn insert(entry: Entry) -> Result<(), Failure> {
    let place = place(entry.stream, true).ok_or(Failure::Refused(libc::ENOMEM, "no room to note the stream"))?;
    let stale = place.swap(Box::into_raw(Box::new(entry)), Ordering::AcqRel);
    if !stale.is_null() && !planted!("c-stale-stream-kept") {
        // SAFETY: made by Box::into_raw, and out of the table.
        drop(unsafe { Box::from_raw(stale) });
    }
    Ok(())
}

/// Takes a stream out; none if it is not one of ours.
pub fn remove(stream: *mut FILE) -> Option<Entry> {
    let place = place(stream, false)?;
    let found = place.load(Ordering::Acquire);
    // SAFETY: not null, and in the table as long as its descriptor is open, which the stream that was given keeps so.
    if found.is_null() || unsafe { (*found).stream } != stream && !planted!("c-stream-of-another") {
        return None;
    }
    let taken = place.compare_exchange(found, null_mut(), Ordering::AcqRel, Ordering::Relaxed).ok()?;
    // SAFETY: made by Box::into_raw; who exchanges it has it alone.
    Some(*unsafe { Box::from_raw(taken) })
}
