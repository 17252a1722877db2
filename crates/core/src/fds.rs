//! Moves descriptors to their numbers in the program.
//!
//! When this runs, the child's table holds the caller's lowest descriptors (`keep_below`, normally 0 to 2) and nothing
//! else. A source below that limit is moved; a higher one is *fetched* from the caller. The moves may form any
//! permutation, including cycles. So a source that some target would overwrite is first duplicated to a number above
//! all targets. These duplicates are close-on-exec, and exec closes them.
//!
//! # Safety
//! As for [`child`](crate::child); the table is the child's own.

use crate::frame::{EXEC_SLOT, Frame, SLOT_INHERIT, SLOT_NULL, TOOK_FDS, Table, source_of};
use crate::plan::{Header, IN_PROCFS, NOT_PROCFS, NOWHERE, Op, Origin, Pair, SURELY, at};
use crate::procfs;
use crate::sync;
use crate::sys::{self, Result, errno, uapi};
use core::sync::atomic::Ordering::{Relaxed, Release};

/// Limit of the retries in [`duplicate`].
const BUSY_NUMBER_MS: u32 = 1000;

/// Mark in the scratch list: not in the table yet, to be fetched or opened.
const ABSENT: i32 = -1;

/// Mark in the scratch list: not changed.
const LEAVE: i32 = -2;

/// Plays [`OpCode::Place`](crate::plan::OpCode::Place).
pub unsafe fn place_descriptors(frame: &Frame, plan: *const Header) -> Result<()> {
    // SAFETY: the header's list of pairs lies in the arena, and holds at most MAX_FDS.
    let pairs = unsafe { core::slice::from_raw_parts(at::<Pair>(plan, (*plan).pairs), (*plan).pair_count as usize) };
    // SAFETY: only the child uses the scratch list.
    let standing = unsafe { &mut *frame.scratch.get() };
    for ((n, pair), stands) in pairs.iter().enumerate().zip(standing.iter_mut()) {
        frame.detail.store(n as i32, Relaxed);
        let source = source_of(&frame.slots, pair);
        *stands = if source == SLOT_INHERIT {
            LEAVE
        } else if source < 0 || !is_present(frame, source) {
            ABSENT
        } else if source != pair.target && is_overwritten(frame, pairs, source) {
            // SAFETY: a duplicate in the child's own table.
            unsafe { step_aside(source, pairs) }?
        } else {
            source
        };
    }
    for ((n, pair), &stands) in pairs.iter().enumerate().zip(standing.iter()) {
        if stands >= 0 {
            frame.detail.store(n as i32, Relaxed);
            // SAFETY: a move in the child's own table; no descriptor that is still needed has the target's number.
            unsafe { settle(stands, pair.target) }?;
        }
    }
    // Only after all present sources are in place: here the kernel chooses numbers, which may be those of targets.
    let mut parent = Parent { pid: frame.parent, thread: frame.thread, pidfd: -1, opens_pipes: frame.opens_pipes != 0 };
    for ((n, pair), &stands) in pairs.iter().enumerate().zip(standing.iter()) {
        if stands == ABSENT {
            frame.detail.store(n as i32, Relaxed);
            let source = source_of(&frame.slots, pair);
            let fd = if source == SLOT_NULL {
                // SAFETY: the path ends in NUL.
                unsafe { sys::open(c"/dev/null".as_ptr().cast(), uapi::O_RDWR | uapi::O_CLOEXEC, 0) }?
            } else {
                parent.fetch(source, pairs, own_pipe(frame, pair))?
            };
            // SAFETY: as above.
            unsafe { settle(fd, pair.target) }?;
        }
    }
    Ok(())
}

/// A pipe of this library, to be opened again.
#[derive(Clone, Copy)]
struct Pipe {
    /// The access mode of the child's end.
    mode: u32,
    identity: [u64; 2],
}

/// The pipe of this library that is a pair's source; `None` if the source is another file.
#[inline(always)]
fn own_pipe(frame: &Frame, pair: &Pair) -> Option<Pipe> {
    let Origin::Slot(slot) = pair.origin() else { return None };
    let mode = match slot {
        0 if frame.only_pipes != 0 => uapi::O_RDONLY,
        1 | 2 if frame.only_pipes != 0 => uapi::O_WRONLY,
        EXEC_SLOT => uapi::O_WRONLY,
        _ => return None,
    };
    let identity = frame.pipes.get(if slot == EXEC_SLOT { 3 } else { slot }).copied()?;
    Some(Pipe { mode, identity })
}

#[inline(always)]
fn is_present(frame: &Frame, fd: i32) -> bool {
    frame.table != Table::Private || (fd as u32) < frame.keep_below
}

/// Whether `fd` is the target of another pair. The list is sorted by target.
fn is_overwritten(frame: &Frame, pairs: &[Pair], fd: i32) -> bool {
    let (mut low, mut high) = (0, pairs.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match pairs.get(middle) {
            Some(pair) if pair.target == fd => return source_of(&frame.slots, pair) != SLOT_INHERIT,
            Some(pair) if pair.target < fd => low = middle + 1,
            _ => high = middle,
        }
    }
    false
}

/// A close-on-exec duplicate of `fd`, at a number of 3 or more that is no pair's target: above all targets, or in a gap
/// between them if RLIMIT_NOFILE does not allow that. The list is sorted by target.
unsafe fn step_aside(fd: i32, pairs: &[Pair]) -> Result<i32> {
    let above = pairs.last().map_or(3, |pair| pair.target.saturating_add(1).max(3));
    // SAFETY: a duplicate in the child's own table.
    match unsafe { sys::fcntl(fd, uapi::F_DUPFD_CLOEXEC, above as usize) } {
        Err(errno::EINVAL | errno::EMFILE) => {}
        answer => return answer,
    }
    let mut from = 3;
    for pair in pairs {
        if pair.target > from {
            // SAFETY: as above; an unsuitable duplicate is this function's own.
            unsafe {
                let copy = sys::fcntl(fd, uapi::F_DUPFD_CLOEXEC, from as usize)?;
                if copy < pair.target {
                    return Ok(copy);
                }
                let _ = sys::close(copy);
            }
        }
        from = from.max(pair.target.saturating_add(1));
    }
    Err(errno::EMFILE)
}

/// Makes `target` refer to the file of `fd`, without close-on-exec.
unsafe fn settle(fd: i32, target: i32) -> Result<()> {
    // SAFETY: both numbers are in the child's own table (caller).
    unsafe { if fd == target { sys::fcntl(fd, uapi::F_SETFD, 0).map(drop) } else { duplicate(fd, target) } }
}

/// `dup3(2)` without close-on-exec.
///
/// A table that is shared with other threads, as that of `Command::exec`, has numbers that are neither free nor open:
/// those of an `open(2)` that has not returned yet. For these, dup3 fails with EBUSY. Retries each millisecond, at most
/// [`BUSY_NUMBER_MS`] times, because such an open can last for ever (a FIFO without a writer).
///
/// Source: `dup(2)`, `do_dup2()` in fs/file.c.
unsafe fn duplicate(fd: i32, target: i32) -> Result<()> {
    let mut left = BUSY_NUMBER_MS;
    loop {
        // SAFETY: both numbers are in the table that becomes the program's (caller).
        match unsafe { sys::dup3(fd, target, 0) } {
            Err(errno::EBUSY) if left > 0 => {
                left -= 1;
                sys::pause(core::time::Duration::from_millis(1));
            }
            answer => return answer.map(drop),
        }
    }
}

/// The caller, from which descriptors are fetched.
struct Parent {
    /// Its pid at the time of the clone.
    pid: i32,
    /// The thread that cloned this child, whose file-descriptor table is used.
    thread: i32,
    /// That thread's pidfd, opened when first needed.
    pidfd: i32,
    /// Its pipes are opened again through `/proc`.
    opens_pipes: bool,
}

impl Parent {
    /// Fetches the caller's descriptor `fd`; the duplicate is close-on-exec.
    ///
    /// `pidfd_getfd(2)` needs permission to trace the caller, which Yama and container filters withhold. If that is refused,
    /// the launcher tries again: with a copied table, or by opening the pipe again through `/proc`, which only needs
    /// permission to inspect a process of the same user.
    fn fetch(&mut self, fd: i32, pairs: &[Pair], pipe: Option<Pipe>) -> Result<i32> {
        match pipe {
            Some(pipe) if self.opens_pipes => self.open_again(fd, pipe),
            _ if self.opens_pipes => Err(errno::EPERM),
            _ => self.getfd(fd, pairs),
        }
    }

    fn open_again(&mut self, fd: i32, pipe: Pipe) -> Result<i32> {
        self.check_is_ours()?;
        // SAFETY: a descriptor in the child's own table.
        let opened =
            unsafe { procfs::open_descriptor(self.pid, self.thread, fd, pipe.mode) }.map_err(|_| errno::EPERM)?;
        self.check_is_ours()?;
        match sys::identity(opened) {
            Ok(found) if found == pipe.identity => Ok(opened),
            _ => Err(errno::EPERM),
        }
    }

    /// Checks that the pid still refers to the caller, in this namespace. A dead caller's pid may have been reused, and in
    /// a PID namespace that the caller has created for its children it may be any process.
    fn check_is_ours(&self) -> Result<()> {
        if sys::getppid() == self.pid { Ok(()) } else { Err(errno::EPERM) }
    }

    fn getfd(&mut self, fd: i32, pairs: &[Pair]) -> Result<i32> {
        if self.pidfd < 0 {
            let flags = if self.thread == self.pid { 0 } else { sys::PIDFD_THREAD };
            let opened = sys::pidfd_open(self.thread, flags);
            self.check_is_ours()?;
            let pidfd = opened?;
            let is_above = pairs.last().is_none_or(|last| pidfd > last.target);
            self.pidfd = if is_above {
                pidfd
            } else {
                // The kernel chooses the lowest free number, which may be a target that is placed later: move it above.
                // SAFETY: a duplicate in the child's own table; the low descriptor is this function's own.
                unsafe {
                    let moved = step_aside(pidfd, pairs);
                    let _ = sys::close(pidfd);
                    moved?
                }
            };
        }
        sys::pidfd_getfd(self.pidfd, fd)
    }
}

/// Plays [`OpCode::Taken`](crate::plan::OpCode::Taken).
pub fn announce_taken(frame: &Frame) {
    // Never overwrites LEFT, which only the kernel writes, after this child has left. A plain store: on aarch64 an
    // atomic exchange may be compiled to a call of an outline-atomics helper, which is outside of this crate.
    if frame.is_robust == 0 {
        frame.word.store(TOOK_FDS, Release);
    }
    if frame.announce != 0 {
        sync::futex_wake(&frame.word);
    }
}

/// Plays [`OpCode::Dup`](crate::plan::OpCode::Dup).
///
/// A source that is close-on-exec here is a duplicate of this module at the number of a closed stream, or does not
/// survive exec: for the program it is not open, so this fails with EBADF.
pub unsafe fn copy(source: i32, target: i32) -> Result<()> {
    // SAFETY: both numbers are in the child's own table.
    unsafe {
        let flags = sys::fcntl(source, uapi::F_GETFD, 0)?;
        if flags & uapi::FD_CLOEXEC as i32 != 0 {
            return Err(errno::EBADF);
        }
        duplicate(source, target)
    }
}

/// Plays [`OpCode::Open`](crate::plan::OpCode::Open).
pub unsafe fn open_as(path: *const u8, op: &Op) -> Result<()> {
    // SAFETY: the path ends in NUL (the arena's strings do); the table is the child's own.
    unsafe {
        let fd = open(path, op, uapi::O_CLOEXEC)?;
        if op.set as i32 == NOWHERE { sys::close(fd) } else { settle(fd, op.set as i32) }
    }
}

/// Plays [`OpCode::Open`](crate::plan::OpCode::Open) with [`IN_PLACE`](crate::plan::IN_PLACE), as
/// `posix_spawn_file_actions_addopen(3)` specifies.
pub unsafe fn open_in_place(path: *const u8, op: &Op) -> Result<()> {
    let target = op.set as i32;
    // SAFETY: the path ends in NUL (the arena's strings do); the table is the child's own.
    unsafe {
        let _ = sys::close(target);
        let fd = open(path, op, 0)?;
        if fd == target {
            return Ok(());
        }
        duplicate(fd, target)?;
        sys::close(fd)
    }
}

/// Opens the file of an [`OpCode::Open`](crate::plan::OpCode::Open), with `more` flags.
///
/// Whether [`NOT_PROCFS`] forbids the file is checked after opening it, because what a path refers to can change at any
/// time. Opening a file of procfs has no effect on the process that it describes. A magic link of procfs is not
/// followed.
unsafe fn open(path: *const u8, op: &Op, more: u32) -> Result<i32> {
    let (flags, mode) = (op.b | more, op.c);
    // SAFETY: the path ends in NUL (caller); what is closed is this function's own.
    unsafe {
        if op.flags & NOT_PROCFS == 0 {
            return sys::open(path, flags, mode);
        }
        let fd = match sys::open_without_magic(path, flags, mode) {
            // A magic link; or too many links of any kind; or a link where O_NOFOLLOW forbids it.
            Err(errno::ELOOP) if flags & uapi::O_NOFOLLOW == 0 => {
                sys::close(sys::open(path, uapi::O_PATH | uapi::O_CLOEXEC, 0)?)?;
                return Err(IN_PROCFS);
            }
            // openat2 does not exist, or refuses flags that open(2) ignores.
            Err(errno::ENOSYS | errno::EINVAL | errno::E2BIG) if op.flags & SURELY == 0 => {
                sys::open(path, flags, mode)?
            }
            // A seccomp filter may return these for openat2. With SURELY they are final: open(2) might open another
            // file.
            Err(error @ (errno::EPERM | errno::EACCES)) if op.flags & SURELY == 0 => {
                match sys::open_without_magic(c"/".as_ptr().cast(), uapi::O_PATH | uapi::O_CLOEXEC, 0) {
                    Ok(root) => {
                        let _ = sys::close(root);
                        return Err(error);
                    }
                    _ => sys::open(path, flags, mode)?,
                }
            }
            answer => answer?,
        };
        match sys::is_in_procfs(fd) {
            Ok(false) => Ok(fd),
            answer => {
                let _ = sys::close(fd);
                Err(answer.err().unwrap_or(IN_PROCFS))
            }
        }
    }
}

/// Plays [`OpCode::CloseOthers`](crate::plan::OpCode::CloseOthers): closes descriptors that the program must not
/// inherit, in a table that was copied beyond 0 to 2.
pub unsafe fn close_others(frame: &Frame, plan: *const Header) -> Result<()> {
    if frame.table == Table::Private && frame.keep_below <= 3 {
        return Ok(());
    }
    // SAFETY: the header's keep list lies in the arena.
    let keep = unsafe { core::slice::from_raw_parts(at::<i32>(plan, (*plan).keep), (*plan).keep_count as usize) };
    let mut from = 0;
    for &number in keep {
        if number > from {
            // SAFETY: closes descriptors that no pair needs, in the child's own table.
            unsafe { close_span(frame, from as u32, number as u32 - 1) }?;
        }
        from = number + 1;
    }
    // SAFETY: as above.
    unsafe { close_span(frame, from as u32, u32::MAX) }
}

/// Plays [`OpCode::CloseRange`](crate::plan::OpCode::CloseRange).
pub unsafe fn close_range(frame: &Frame, op: &Op) -> Result<()> {
    // SAFETY: the descriptors are the child's own, and the caller of posix_spawn(3) names them.
    unsafe { close_span(frame, op.a, op.b) }
}

/// Closes `first..=last`, or marks them close-on-exec, with `close_range(2)` or one by one.
unsafe fn close_span(frame: &Frame, first: u32, last: u32) -> Result<()> {
    let at_exec = frame.table == Table::Own;
    if frame.no_close_range == 0 {
        let flags = if at_exec { sys::CLOSE_RANGE_CLOEXEC } else { 0 };
        // SAFETY: the caller's span.
        match unsafe { sys::close_range(first, last, flags) } {
            // A forked child runs without a probe of the kernel. CLOSE_RANGE_CLOEXEC exists since Linux 5.11.
            Err(errno::ENOSYS | errno::EPERM | errno::EACCES | errno::EINVAL | errno::E2BIG)
                if frame.table == Table::Copied || at_exec => {}
            answer => return answer,
        }
    }
    // Reading /proc/self/fd would list only the open descriptors, but takes 3 µs for each; closing a number that is not
    // open takes 0.1 µs.
    for fd in first..=last.min(table_size().unwrap_or_else(descriptor_limit)) {
        // SAFETY: the caller's span.
        let answer = unsafe {
            match at_exec {
                true => sys::fcntl(fd as i32, uapi::F_SETFD, uapi::FD_CLOEXEC as usize).map(drop),
                false => sys::close(fd as i32),
            }
        };
        // Any other error of close(2) concerns written data; the descriptor is closed.
        if let Err(error @ (errno::ENOSYS | errno::EPERM | errno::EACCES | errno::EINVAL | errno::E2BIG)) = answer {
            return Err(error);
        }
    }
    Ok(())
}

/// The size of the child's file-descriptor table, above which no descriptor is open: `FDSize` in `/proc/self/status`.
fn table_size() -> Option<u32> {
    procfs::status_number(b"\nFDSize:")
}

/// The soft RLIMIT_NOFILE, or a generous default. Higher numbers are only open if the limit was lowered afterwards.
fn descriptor_limit() -> u32 {
    const GENEROUS: u64 = 1 << 20;
    sys::getrlimit(uapi::RLIMIT_NOFILE).map_or(GENEROUS, |[soft, _]| soft.min(GENEROUS)) as u32
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::mem::{offset_of, zeroed};
    use std::os::fd::IntoRawFd;
    use std::vec::Vec;

    /// The numbers that are moved, and where the test keeps their files.
    const NUMBERS: [i32; 4] = [50, 51, 52, 53];
    const KEPT: i32 = 70;

    /// Plays the pairs in a fresh table, in which the four numbers are close-on-exec. Returns what they are then, with
    /// whether exec closes them.
    fn played(pairs: [Pair; 4]) -> [(Result<[u64; 2]>, bool); 4] {
        #[repr(C)]
        struct Arena(Header, [Pair; 4]);
        // SAFETY: plain numbers; a frame may be all zero; what is moved is in this thread's own table (caller).
        unsafe {
            for (number, kept) in NUMBERS.into_iter().zip(KEPT..) {
                assert_eq!(sys::dup3(kept, number, uapi::O_CLOEXEC), Ok(number));
            }
            assert_eq!(sys::close_range(54, KEPT as u32 - 1, 0), Ok(()));
            let mut arena = Arena(zeroed(), pairs);
            (arena.0.pairs, arena.0.pair_count) = (offset_of!(Arena, 1) as u32, 4);
            let mut frame: Frame = zeroed();
            (frame.table, frame.slots) = (Table::Copied, [SLOT_INHERIT; 32]);
            assert_eq!(place_descriptors(&frame, (&raw const arena).cast()), Ok(()));
            let closes = |fd| sys::fcntl(fd, uapi::F_GETFD, 0) == Ok(uapi::FD_CLOEXEC as i32);
            assert!(
                (54..KEPT).all(|fd| sys::identity(fd).is_err() || closes(fd)),
                "{pairs:?}: the program has a helper"
            );
            NUMBERS.map(|fd| (sys::identity(fd), closes(fd)))
        }
    }

    /// Each of the four numbers gets any of the four, `/dev/null`, or stays: all 1,296 moves, with every cycle.
    #[test]
    fn every_move_of_four_descriptors() {
        let test = || {
            let pipes = [std::io::pipe(), std::io::pipe(), std::io::pipe(), std::io::pipe()];
            let files: Vec<i32> = pipes.into_iter().flatten().map(|(reader, _)| reader.into_raw_fd()).collect();
            // SAFETY: the first call gives this thread a table of its own; the numbers are free in a test.
            let null = unsafe {
                assert_eq!(sys::close_range(u32::MAX, u32::MAX, sys::CLOSE_RANGE_UNSHARE), Ok(()));
                for (&file, kept) in files.iter().zip(KEPT..) {
                    assert_eq!(sys::dup3(file, kept, 0), Ok(kept));
                }
                sys::open(c"/dev/null".as_ptr().cast(), uapi::O_PATH, 0).and_then(sys::identity)
            };
            assert_eq!(files.len(), 4);
            for code in 0..6usize.pow(4) {
                let choice: [usize; 4] = core::array::from_fn(|n| code / 6usize.pow(n as u32) % 6);
                let pairs = core::array::from_fn(|n| {
                    let origin = match choice[n] {
                        4 => Origin::Null,
                        5 => Origin::Slot(0),
                        source => Origin::Descriptor(NUMBERS[source]),
                    };
                    Pair::new(origin, NUMBERS[n])
                });
                let wanted: [_; 4] = core::array::from_fn(|n| match choice[n] {
                    4 => (null, false),
                    5 => (sys::identity(KEPT + n as i32), true),
                    source => (sys::identity(KEPT + source as i32), false),
                });
                assert_eq!(played(pairs), wanted, "{choice:?}");
            }
        };
        assert!(std::thread::spawn(test).join().is_ok());
    }

    /// Of the process that runs this test. O_PATH opens any file without an effect on it.
    #[test]
    fn a_pipe_that_is_another_file_by_now_is_not_opened() {
        let pid = sys::getppid();
        let mut parent = Parent { pid, thread: pid, pidfd: -1, opens_pipes: true };
        // SAFETY: a descriptor of this test.
        let Ok(opened) = (unsafe { procfs::open_descriptor(pid, pid, 1, uapi::O_PATH) }) else {
            return std::println!("SKIPPED: pipes of the parent because that is another user's process");
        };
        let identity = sys::identity(opened).unwrap_or_default();
        let mut fetch = |identity| parent.fetch(1, &[], Some(Pipe { mode: uapi::O_PATH, identity }));
        assert!(fetch(identity).is_ok());
        assert_eq!(fetch([identity[0], identity[1] + 1]), Err(errno::EPERM));
        assert_eq!(fetch([u64::MAX; 2]), Err(errno::EPERM));
    }
}
