//! The table of streams and their children.
//!
//! It is indexed by the stream's descriptor, as an array of arrays: opening and closing take constant time, and there
//! is no lock that a forked process might find held for ever.

use super::Running;
use crate::error::Failure;
use libc::FILE;
use std::alloc::{Layout, alloc_zeroed};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// An open stream.
pub struct Entry {
    /// The stream.
    pub stream: *mut FILE,
    /// Its child.
    pub running: Running,
}

const ROW: usize = 1024;

/// The entries of consecutive descriptors.
type Row = [AtomicPtr<Entry>; ROW];

/// Room for 2^20 descriptors, the default of `/proc/sys/fs/nr_open`.
static ROWS: [AtomicPtr<Row>; ROW] = [const { AtomicPtr::new(null_mut()) }; ROW];

/// The entry of a stream; `make` allocates it if it does not exist.
fn entry_of(stream: *mut FILE, make: bool) -> Option<&'static AtomicPtr<Entry>> {
    // SAFETY: the stream is open, as pclose(3) and fclose(3) require.
    let fd = usize::try_from(unsafe { libc::fileno(stream) }).ok()?;
    let first = ROWS.get(fd / ROW)?;
    let mut row = first.load(Ordering::Acquire);
    if row.is_null() {
        if !make {
            return None;
        }
        // SAFETY: the layout's size is not 0.
        let new = unsafe { alloc_zeroed(Layout::new::<Row>()) }.cast::<Row>();
        if new.is_null() {
            return None;
        }
        row = match first.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(theirs) => {
                // SAFETY: allocated above with this layout, and not shared.
                unsafe { std::alloc::dealloc(new.cast(), Layout::new::<Row>()) };
                theirs
            }
        };
    }
    // SAFETY: rows start as null pointers, and are never freed.
    Some(&unsafe { &*row }[fd % ROW])
}

/// Records a stream. If the entry is still used by a stream that was closed with `fclose(3)`, the handle of that
/// stream's child is dropped.
pub fn insert(entry: Entry) -> Result<(), Failure> {
    let place = entry_of(entry.stream, true)
        .ok_or(Failure::Refused(libc::ENOMEM, "too many open streams, or out of memory"))?;
    let stale = place.swap(Box::into_raw(Box::new(entry)), Ordering::AcqRel);
    if !stale.is_null() {
        // SAFETY: of Box::into_raw, and no longer in the table.
        drop(unsafe { Box::from_raw(stale) });
    }
    Ok(())
}

/// The place and the entry of a stream that this library has opened.
fn find(stream: *mut FILE) -> Option<(&'static AtomicPtr<Entry>, *mut Entry)> {
    let place = entry_of(stream, false)?;
    let found = place.load(Ordering::Acquire);
    // SAFETY: not null; an entry stays in the table while its descriptor is open, and the given stream has it open.
    if found.is_null() || unsafe { (*found).stream } != stream {
        return None;
    }
    Some((place, found))
}

/// Whether this library has opened a stream. Allocates and frees nothing.
pub fn has(stream: *mut FILE) -> bool {
    find(stream).is_some()
}

/// Removes a stream; None if this library has not opened it.
pub fn remove(stream: *mut FILE) -> Option<Entry> {
    let (place, found) = find(stream)?;
    let taken = place.compare_exchange(found, null_mut(), Ordering::AcqRel, Ordering::Relaxed).ok()?;
    // SAFETY: of Box::into_raw; the thread that exchanges the pointer owns it.
    Some(*unsafe { Box::from_raw(taken) })
}
