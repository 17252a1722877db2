//! Pages of code and constants that children use: a child gets the template's entries in its page table, instead of making
//! them by page faults. A fault maps sixteen pages, most of which the child does not use; each costs when it is mapped and
//! again when the child ends.
//!
//! The first launches note which pages children fault for, by `perf_event_open(2)` of each child, where the kernel permits
//! that. After each, the template maps exactly those pages. It gives each mapping that has such a page one private page: a
//! copy of one of them, with the same contents. A clone copies the page-table entries of a mapping only if it has a private
//! page.
//!
//! All of this is optional: where a part fails, children are only slower.
//!
//! Source: `vma_needs_copy()`, `do_fault_around()` in mm/memory.c; `mem_rw()` in fs/proc/base.c, which writes to private
//! mappings that are not writable (FOLL_FORCE), as debuggers do for breakpoints.
//!
//! # Safety
//! Runs in the template's only thread. Only mappings without private pages are changed, and only in which of their pages
//! are mapped: the contents are those of the file.

use crate::bind::Info;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use forkless_core::signals::has_filter;
use forkless_core::sync;
use forkless_core::sys::{self, Result, errno, uapi};

const PAGE: usize = 4096;

/// The most launches that are noted. One is not enough: a fault also maps pages beside its own, so a child's use of those
/// shows only in a later round.
const ROUNDS: u32 = 12;

/// After this many launches in a row without a new page, no more are noted.
const VAIN: u32 = 2;

/// The most pages that are noted.
const PAGES: usize = 1024;

/// The most mappings.
const MAPPINGS: usize = 128;

/// Pages of the ring in which the kernel writes the events, without the first one, which describes it.
const RING: usize = 4;

/// A mapping of code or constants: its addresses.
#[derive(Clone, Copy)]
struct Range {
    start: usize,
    end: usize,
    /// Pages of it were noted that are not mapped yet.
    is_new: bool,
    /// It has a private page of this module.
    is_shared: bool,
}

/// What the template keeps while it notes launches, in a mapping that children do not inherit.
#[repr(C)]
struct Notes {
    ranges: [Range; MAPPINGS],
    range_count: usize,
    /// In order.
    pages: [usize; PAGES],
    page_count: usize,
    memory: [u64; 512],
}

/// How long a child waits at most until it is watched, in nanoseconds.
const PATIENCE: i64 = 10_000_000;

/// The pages of a template's children.
pub(crate) struct Pages {
    notes: *mut Notes,
    /// A word in a page that children share. It changes when a child is watched. Null: no child will be.
    gate: *mut AtomicU32,
    /// The number of launches that are still to be noted, also in [`gate`](Self::gate).
    rounds: u32,
    /// The number of launches in a row that have brought nothing.
    vain: u32,
    /// The event of the last child, and its ring; -1: there is none.
    event: i32,
    ring: *mut u8,
}

impl Pages {
    pub(crate) const NONE: Self =
        Self { notes: null_mut(), gate: null_mut(), rounds: 0, vain: 0, event: -1, ring: null_mut() };

    /// Finds the mappings, and makes what is needed to note launches.
    pub(crate) unsafe fn begin(&mut self) {
        const MADV_DONTFORK: usize = 10;
        // A filter may kill this process for a call that it does not know.
        if has_filter() {
            return;
        }
        // SAFETY: new mappings, of zeroes, which are valid notes and a valid word. The rest is the module's contract.
        unsafe {
            let length = size_of::<Notes>().next_multiple_of(PAGE);
            let Ok(notes) = map(length, uapi::MAP_PRIVATE) else { return };
            let _ = sys::syscall(uapi::__NR_madvise, [notes as usize, length, MADV_DONTFORK, 0, 0, 0]);
            self.notes = notes.cast();
            dl_iterate_phdr(note_mappings, notes.cast());
            let Ok(gate) = map(PAGE, uapi::MAP_SHARED) else { return };
            self.gate = gate.cast();
            self.rounds = ROUNDS;
            (*self.gate).store(ROUNDS, Release);
        }
    }

    /// Watches a child that was just cloned, and waits for that.
    pub(crate) unsafe fn watch(&mut self, child: i32) {
        if self.rounds == 0 {
            return;
        }
        self.rounds -= 1;
        match open_event(child) {
            Ok((event, ring)) => (self.event, self.ring) = (event, ring),
            // The child has ended.
            Err(errno::ESRCH) => {}
            // The call is not permitted, or memory is short.
            Err(_) => self.rounds = 0,
        }
        // SAFETY: the page is mapped as long as launches are noted.
        let gate = unsafe { &*self.gate };
        gate.store(self.rounds, Release);
        sync::futex_wake(gate);
    }

    /// In a child: waits until it is watched, if it will be. Not for long: the template may be stopped.
    pub(crate) unsafe fn await_watch(&self) {
        // SAFETY: the page is mapped in each child until this unmaps it.
        unsafe {
            let Some(gate) = self.gate.as_ref() else { return };
            let time = uapi::__kernel_timespec { tv_sec: 0, tv_nsec: PATIENCE };
            if self.rounds != 0 && gate.load(Acquire) == self.rounds {
                let _ = sync::futex_wait(gate, self.rounds, Some(&time));
            }
            let _ = sys::syscall(uapi::__NR_munmap, [self.gate as usize, PAGE, 0, 0, 0, 0]);
        }
    }

    /// Maps the pages that the last child has used. Called before the next one is cloned.
    pub(crate) unsafe fn apply(&mut self) {
        // SAFETY: the ring is mapped until this function unmaps it, and the notes stay (module contract).
        unsafe {
            if self.event >= 0 {
                let notes = &mut *self.notes;
                let before = notes.page_count;
                read_ring(self.ring, |address| note_page(notes, address & !(PAGE - 1)));
                let _ = sys::syscall(uapi::__NR_munmap, [self.ring as usize, (RING + 1) * PAGE, 0, 0, 0, 0]);
                let _ = sys::close(self.event);
                self.event = -1;
                if notes.page_count > before {
                    map_pages(notes);
                    self.vain = 0;
                } else {
                    self.vain += 1;
                }
            }
            if (self.rounds == 0 || self.vain == VAIN) && !self.gate.is_null() {
                self.rounds = 0;
                let length = size_of::<Notes>().next_multiple_of(PAGE);
                let _ = sys::syscall(uapi::__NR_munmap, [self.notes as usize, length, 0, 0, 0, 0]);
                let _ = sys::syscall(uapi::__NR_munmap, [self.gate as usize, PAGE, 0, 0, 0, 0]);
                (self.notes, self.gate) = (null_mut(), null_mut());
            }
        }
    }
}

/// A mapping of zeroes.
fn map(length: usize, kind: u32) -> Result<*mut u8> {
    let (protection, flags) = (uapi::PROT_READ | uapi::PROT_WRITE, kind | uapi::MAP_ANONYMOUS);
    let args = [0, length, protection as usize, flags as usize, usize::MAX, 0];
    // SAFETY: a new mapping at an address that the kernel chooses.
    unsafe { sys::syscall(uapi::__NR_mmap, args) }.map(|memory| memory as *mut u8)
}

unsafe extern "C" {
    fn dl_iterate_phdr(
        each: unsafe extern "C" fn(*const Info, usize, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
}

/// Notes the mappings of one object that are not writable.
unsafe extern "C" fn note_mappings(info: *const Info, _size: usize, notes: *mut c_void) -> c_int {
    const PT_LOAD: u32 = 1;
    const PF_W: u32 = 2;
    // SAFETY: `dl_iterate_phdr` passes a valid structure, and the notes of `begin`.
    unsafe {
        let (info, notes) = (&*info, &mut *notes.cast::<Notes>());
        for n in 0..usize::from(info.count) {
            let segment = &*info.headers.add(n);
            if segment.kind != PT_LOAD || segment.flags & PF_W != 0 {
                continue;
            }
            let start = info.base.wrapping_add(segment.address);
            let range = Range {
                start: start & !(PAGE - 1),
                end: start.wrapping_add(segment.length).next_multiple_of(PAGE),
                is_new: false,
                is_shared: false,
            };
            // Not the mapping of this library, whose code is running.
            let is_own = (range.start..range.end).contains(&(note_mappings as *const () as usize));
            if let (false, Some(place)) = (is_own, notes.ranges.get_mut(notes.range_count)) {
                *place = range;
                notes.range_count += 1;
            }
        }
    }
    0
}

/// `perf_event_open(2)`: the page faults of a process, with their addresses. Returns the event and its ring.
fn open_event(pid: i32) -> Result<(i32, *mut u8)> {
    const SOFTWARE: u32 = 1;
    const PAGE_FAULTS: u64 = 2;
    const SAMPLE_ADDRESS: u64 = 1 << 3;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
    const CLOSE_ON_EXEC: usize = 1 << 3;
    /// `struct perf_event_attr`, in its first version.
    #[repr(C)]
    struct Attributes {
        kind: u32,
        size: u32,
        config: u64,
        period: u64,
        sample: u64,
        read: u64,
        flags: u64,
        wakeup: u32,
        breakpoint: u32,
        address: u64,
    }
    let attributes = Attributes {
        kind: SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: PAGE_FAULTS,
        period: 1,
        sample: SAMPLE_ADDRESS,
        read: 0,
        flags: EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR,
        // No thread waits. (The kernel takes the number for a signed one: a very large one would wake at each event.)
        wakeup: 0,
        breakpoint: 0,
        address: 0,
    };
    let (any_cpu, no_group) = (usize::MAX, usize::MAX);
    let args = [&raw const attributes as usize, pid as usize, any_cpu, no_group, CLOSE_ON_EXEC, 0];
    // SAFETY: the kernel reads the attributes.
    let event = unsafe { sys::syscall(uapi::__NR_perf_event_open, args) }? as i32;
    let protection = (uapi::PROT_READ | uapi::PROT_WRITE) as usize;
    let args = [0, (RING + 1) * PAGE, protection, uapi::MAP_SHARED as usize, event as usize, 0];
    // SAFETY: a new mapping at an address that the kernel chooses. Children do not inherit it (VM_DONTCOPY).
    match unsafe { sys::syscall(uapi::__NR_mmap, args) } {
        Ok(ring) => Ok((event, ring as *mut u8)),
        Err(error) => {
            // SAFETY: this function's own descriptor.
            let _ = unsafe { sys::close(event) };
            Err(error)
        }
    }
}

/// Calls `each` with the address of each event.
unsafe fn read_ring(ring: *mut u8, mut each: impl FnMut(usize)) {
    /// `data_head` in `struct perf_event_mmap_page`.
    const HEAD: usize = 1024;
    const SAMPLE: u32 = 9;
    /// A record: its head, and the address.
    const LENGTH: usize = 16;
    // SAFETY: the kernel has written records up to the head. Each is a multiple of 8 bytes.
    unsafe {
        let head = (*ring.add(HEAD).cast::<AtomicU64>()).load(Acquire) as usize;
        let (data, mut at) = (ring.add(PAGE), 0);
        // A full ring takes no more records: its tail never moves.
        while at + LENGTH <= head.min(RING * PAGE) {
            let record = data.add(at);
            let size = usize::from(record.add(6).cast::<u16>().read());
            if size < 8 {
                return;
            }
            if record.cast::<u32>().read() == SAMPLE && size == LENGTH {
                each(record.add(8).cast::<u64>().read() as usize);
            }
            at += size;
        }
    }
}

/// Adds a page that is in one of the mappings.
fn note_page(notes: &mut Notes, page: usize) {
    let ranges = notes.ranges.get_mut(..notes.range_count).unwrap_or(&mut []);
    let Some(range) = ranges.iter_mut().find(|range| (range.start..range.end).contains(&page)) else { return };
    let known = notes.pages.get(..notes.page_count).unwrap_or(&[]);
    let Err(at) = known.binary_search(&page) else { return };
    if notes.page_count < PAGES {
        notes.page_count += 1;
        range.is_new = true;
        // Those behind it move by one.
        let mut moved = page;
        for place in notes.pages.iter_mut().take(notes.page_count).skip(at) {
            core::mem::swap(place, &mut moved);
        }
    }
}

/// Maps the noted pages, and no others of the same mappings.
unsafe fn map_pages(notes: &mut Notes) {
    // SAFETY: the paths end in NUL; the descriptors are this function's own.
    unsafe {
        let open = |path: &core::ffi::CStr, flags: u32| sys::open(path.as_ptr().cast(), flags | uapi::O_CLOEXEC, 0);
        let Ok(contents) = open(c"/proc/self/mem", uapi::O_RDWR) else { return };
        if let Ok(entries) = open(c"/proc/self/pagemap", uapi::O_RDONLY) {
            let known = notes.pages.get(..notes.page_count).unwrap_or(&[]);
            let ranges = notes.ranges.get_mut(..notes.range_count).unwrap_or(&mut []);
            for range in ranges.iter_mut().filter(|range| range.is_new) {
                range.is_new = false;
                let first = known.partition_point(|&page| page < range.start);
                let end = known.partition_point(|&page| page < range.end);
                let pages = known.get(first..end).unwrap_or(&[]);
                if range.is_shared || is_of_file(entries, *range, &mut notes.memory) {
                    map_range(contents, *range, pages);
                    range.is_shared = true;
                }
            }
            let _ = sys::close(entries);
        }
        let _ = sys::close(contents);
    }
}

/// Whether all mapped pages of a mapping are those of its file. The loader or a library may have written to some
/// (relocations in code, say), and must find what it has written.
///
/// Source: Documentation/admin-guide/mm/pagemap.rst.
unsafe fn is_of_file(entries: i32, range: Range, memory: &mut [u64; 512]) -> bool {
    const IN_FILE: u64 = 1 << 61;
    const SWAPPED: u64 = 1 << 62;
    const PRESENT: u64 = 1 << 63;
    let is_written = |entry: u64| entry & SWAPPED != 0 || entry & PRESENT != 0 && entry & IN_FILE == 0;
    let mut from = range.start;
    while from < range.end {
        let count = ((range.end - from) / PAGE).min(memory.len());
        let args = [entries as usize, memory.as_mut_ptr() as usize, count * 8, from / PAGE * 8, 0, 0];
        // SAFETY: the kernel writes at most the buffer's length.
        if unsafe { sys::syscall(uapi::__NR_pread64, args) } != Ok(count * 8) {
            return false;
        }
        if memory.iter().take(count).any(|&entry| is_written(entry)) {
            return false;
        }
        from += count * PAGE;
    }
    true
}

/// Maps these pages of a mapping, and unmaps the others, which stay in the file.
unsafe fn map_range(contents: i32, range: Range, pages: &[usize]) {
    const MADV_DONTNEED: usize = 4;
    const MADV_POPULATE_READ: usize = 22;
    // SAFETY: no page that is unmapped is private (checked before). The byte is written where it was read.
    unsafe {
        let advise = |start: usize, end: usize, what: usize| {
            end <= start || sys::syscall(uapi::__NR_madvise, [start, end - start, what, 0, 0, 0]).is_ok()
        };
        // MADV_POPULATE_READ needs Linux 5.14.
        if !pages.iter().all(|&page| advise(page, page + PAGE, MADV_POPULATE_READ)) {
            return;
        }
        if let (false, Some(&page)) = (range.is_shared, pages.first()) {
            let _ = sys::syscall(uapi::__NR_pwrite64, [contents as usize, page, 1, page, 0, 0]);
        }
        let mut from = range.start;
        for &page in pages {
            advise(from, page, MADV_DONTNEED);
            from = page + PAGE;
        }
        advise(from, range.end, MADV_DONTNEED);
    }
}
