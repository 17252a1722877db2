//! The memory of this library, apart from that of libc's malloc.
//!
//! libc's own functions that start programs call no malloc, and programs rely on that: a handler of SIGSEGV or SIGABRT calls
//! `system(3)` after the heap was corrupted, or a timer's handler calls `posix_spawn(3)` while malloc has its lock.
//!
//! A signal handler never finds this heap's lock held by its own thread, because all signals are [blocked](crate::sealed)
//! while this library works. A forked copy of the process may find it held by a thread that it does not have. Then the heap
//! may be half-changed: the copy begins another one, and frees nothing of either.

use dlmalloc::Dlmalloc;
use forkless::planted;
use forkless_capi::lock::Lock;
use libc::{c_char, pthread_mutex_t};
use std::alloc::{GlobalAlloc, Layout};
use std::ffi::CStr;

struct Heap {
    memory: Dlmalloc,
    /// Some of it was given up with a process that this one was forked from.
    lost: bool,
    /// Is never waited for. It shows ThreadSanitizer, which does not see the lock, that memory is used by one thread after the
    /// other.
    shown: pthread_mutex_t,
}

impl Heap {
    const fn new(lost: bool) -> Self {
        Self { memory: Dlmalloc::new(), lost, shown: libc::PTHREAD_MUTEX_INITIALIZER }
    }
}

struct Global(Lock<Heap>);

#[global_allocator]
static GLOBAL: Global = Global(Lock::new(Heap::new(false)));

impl Global {
    fn with<T>(&self, work: impl FnOnce(&mut Heap) -> T) -> T {
        self.0.with_or_after(
            |heap| *heap = Heap::new(true),
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

// SAFETY: the memory is that of an allocator with the same contract, under a lock.
unsafe impl GlobalAlloc for Global {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_of_malloc() {
            // SAFETY: the caller's contract.
            return unsafe { std::alloc::System.alloc(layout) };
        }
        // SAFETY: the caller's contract: the size is not 0.
        self.with(|heap| unsafe { heap.memory.malloc(layout.size(), layout.align()) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        self.with(|heap| unsafe { heap.memory.calloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if is_of_malloc() {
            return;
        }
        self.with(|heap| {
            if !heap.lost {
                // SAFETY: allocated above with this layout, from this heap.
                unsafe { heap.memory.free(place, layout.size(), layout.align()) };
            }
        });
    }
}

fn is_of_malloc() -> bool {
    planted!("preload-memory-of-malloc")
}

/// Whether there is memory for a launch with these lists of strings and so many bytes besides. Rust ends the process when
/// an allocation fails, and libc's functions fail with ENOMEM. Another thread may still take what was found here.
///
/// # Safety
/// Each list is null, or ends in a null pointer and has strings.
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
            return planted!("preload-no-memory-is-the-end");
        }
        GLOBAL.dealloc(place, layout);
    }
    true
}
