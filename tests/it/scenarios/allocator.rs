//! An allocator that counts calls per thread, and ends any process other than the owner that calls it.

use crate::observe;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

/// How a process ends that was caught.
pub const TRAP_STATUS: i32 = 86;

/// The only process that may use the heap; 0: any.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Set in shared memory by a process that was caught.
static TRIPPED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// From now on this process alone may use the heap.
pub fn own() {
    OWNER.store(observe::pid(), Relaxed);
}

/// Has a process that shares this memory been caught?
pub fn has_tripped() -> bool {
    TRIPPED.load(Relaxed)
}

/// How often this thread has asked for memory.
pub fn calls() -> u64 {
    CALLS.get()
}

/// How many bytes this thread has asked for.
pub fn bytes() -> u64 {
    BYTES.get()
}

/// How many bytes more this thread has been given than it has given back.
pub fn held() -> i64 {
    HELD.get()
}

/// The system's allocator, watched.
pub struct Watched;

impl Watched {
    fn watch(&self) {
        let owner = OWNER.load(Relaxed);
        if owner != 0 && owner != observe::pid() {
            TRIPPED.store(true, Relaxed);
            // Raw system calls only: a child that shares memory must not call libc.
            observe::write_raw(2, b"trapped: the heap was used in a child\n");
            forkless_core::sys::exit(TRAP_STATUS);
        }
    }
}

// SAFETY: every call is forwarded to the system allocator unchanged.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.watch();
        CALLS.set(CALLS.get() + 1);
        BYTES.set(BYTES.get() + layout.size() as u64);
        HELD.set(HELD.get() + layout.size() as i64);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        self.watch();
        HELD.set(HELD.get() - layout.size() as i64);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.watch();
        CALLS.set(CALLS.get() + 1);
        BYTES.set(BYTES.get() + size as u64);
        HELD.set(HELD.get() + size as i64 - layout.size() as i64);
        // SAFETY: the caller's contract.
        unsafe { System.realloc(at, layout, size) }
    }
}
