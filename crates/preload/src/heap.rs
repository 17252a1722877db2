//! The memory of this library, apart from that of libc's malloc.
//!
//! libc's own functions that start programs call no malloc, and programs rely on that: a handler of SIGSEGV or SIGABRT calls
//! `system(3)` after the heap was corrupted, or a timer's handler calls `posix_spawn(3)` while malloc has its lock.
//!
//! A signal handler never finds this heap's lock held by its own thread, because all signals are [blocked](crate::sealed)
//! while this library works. A forked copy of the process may find it held by a thread that it does not have. Then the heap
//! may be half-changed: the copy begins another one, and never frees what is in the old one. So each block has the number of
//! its heap in front of it.

use dlmalloc::Dlmalloc;
use forkless_capi::lock::Lock;
use libc::{c_char, pthread_mutex_t};
use std::alloc::{GlobalAlloc, Layout};
use std::ffi::CStr;
use std::ptr::null_mut;

struct Heap {
    memory: Dlmalloc,
    number: usize,
    /// Is never waited for. It shows ThreadSanitizer, which does not see the lock, that memory is used by one thread after the
    /// other.
    shown: pthread_mutex_t,
}

impl Heap {
    const fn new(number: usize) -> Self {
        Self { memory: Dlmalloc::new(), number, shown: libc::PTHREAD_MUTEX_INITIALIZER }
    }

    /// Whether a block is of this heap, and not of one that the original process had.
    ///
    /// # Safety
    /// A block that was allocated and not freed.
    unsafe fn has(&self, block: *mut u8) -> bool {
        // SAFETY: the number is in front of each block.
        unsafe { block.cast::<usize>().sub(1).read() == self.number }
    }
}

struct Global(Lock<Heap>);

#[global_allocator]
static GLOBAL: Global = Global(Lock::new(Heap::new(0)));

impl Global {
    fn with<T>(&self, work: impl FnOnce(&mut Heap) -> T) -> T {
        self.0.with_or_after(
            |heap| *heap = Heap::new(heap.number + 1),
            |heap| {
                // SAFETY: a mutex that this thread alone uses, under the lock.
                let is_shown = unsafe { libc::pthread_mutex_trylock(&mut heap.shown) } == 0;
                let answer = work(heap);
                if is_shown {
                    // SAFETY: locked above.
                    unsafe { libc::pthread_mutex_unlock(&mut heap.shown) };
                }
                answer
            },
        )
    }
}

/// How many bytes are before a block, for the number of its heap: so many that the block is aligned.
fn front(layout: Layout) -> usize {
    layout.align().max(align_of::<usize>())
}

// SAFETY: the memory is that of an allocator with the same contract, under a lock.
unsafe impl GlobalAlloc for Global {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let front = front(layout);
        let Some(size) = layout.size().checked_add(front) else { return null_mut() };
        // SAFETY: the size is not 0; the number is within the block, and aligned as its end is.
        self.with(|heap| unsafe {
            let start = heap.memory.malloc(size, front);
            if start.is_null() {
                return start;
            }
            let block = start.add(front);
            block.cast::<usize>().sub(1).write(heap.number);
            block
        })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let front = front(layout);
        // SAFETY: allocated above with this layout.
        self.with(|heap| unsafe {
            if heap.has(block) {
                heap.memory.free(block.sub(front), layout.size() + front, front);
            }
        });
    }
}

/// Whether there is memory for a launch with these lists of strings and `besides` more bytes. Rust ends the process when an
/// allocation fails, but libc's functions fail with ENOMEM. Another thread may still take what was found here.
///
/// # Safety
/// Each list is null, or consists of strings and ends in a null pointer.
pub(crate) unsafe fn has_room(lists: [*const *const c_char; 2], besides: usize) -> bool {
    /// For what does not depend on the strings.
    const BASE: usize = 64 << 10;
    /// A string is copied into a list of words and into the plan, and each copy may grow when it is made.
    const COPIES: usize = 4;
    /// Pointers and headers for each string.
    const EACH: usize = 64;
    let mut bytes = besides;
    for list in lists.into_iter().filter(|list| !list.is_null()) {
        let mut at = list;
        // SAFETY: the caller's contract.
        unsafe {
            while !(*at).is_null() {
                bytes += CStr::from_ptr(*at).to_bytes().len() + EACH;
                at = at.add(1);
            }
        }
    }
    let Ok(layout) = Layout::from_size_align(BASE + bytes * COPIES, 16) else { return false };
    // Not `std::alloc::alloc`, which the compiler may leave out here.
    // SAFETY: the size is not 0; freed with the same layout.
    unsafe {
        let place = GLOBAL.alloc(layout);
        if place.is_null() {
            return false;
        }
        GLOBAL.dealloc(place, layout);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a forked copy that finds the lock held: the old blocks stay as they are, and new ones are freed.
    #[test]
    fn a_copy_with_a_half_changed_heap_begins_another_one() {
        let heap = Global(Lock::new(Heap::new(0)));
        let layout = Layout::from_size_align(100_000, 16).expect("a layout");
        // SAFETY: blocks of this size, each used until it is freed.
        unsafe {
            let old = heap.alloc(layout);
            old.write_bytes(7, 100_000);
            heap.with(|inside| *inside = Heap::new(inside.number + 1));
            let new = heap.alloc(layout);
            assert!(heap.with(|inside| inside.has(new) && !inside.has(old)));
            heap.dealloc(old, layout);
            assert_eq!((*old, *old.add(99_999)), (7, 7));
            for _ in 0..1000 {
                let block = heap.alloc(layout);
                assert!(!block.is_null());
                heap.dealloc(block, layout);
                assert_eq!(heap.alloc(layout), block, "it was freed");
                heap.dealloc(block, layout);
            }
            heap.dealloc(new, layout);
        }
    }
}
