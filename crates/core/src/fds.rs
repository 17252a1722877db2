//! Bringing descriptors to the numbers that the program is to find them at.
//!
//! When this runs, the child's table holds the parent's lowest descriptors at their own numbers (`keep_below`, normally
//! 0 to 2) and nothing else. A source below that limit is moved; one above it is *fetched* from the parent. Moves may
//! form any permutation, cycles included, so a source that some target would overwrite first steps aside to a number
//! above all targets. Helper descriptors are close-on-exec and are left for exec to close.
//!
//! # Safety
//! As for [`child`](crate::child); the table is the child's own.

use crate::frame::{Frame, SLOT_INHERIT, SLOT_NULL, TOOK_FDS, Table, source_of};
use crate::plan::{Header, IN_PROCFS, NOT_PROCFS, NOWHERE, Op, Origin, Pair, SURELY, at};
use crate::planted;
use crate::process;
use crate::sys::{self, Result, errno, uapi};
use core::sync::atomic::Ordering::{Relaxed, Release};

/// Mark in the scratch list: to be fetched or opened, not moved.
const ABSENT: i32 = -1;

/// Mark in the scratch list: to be left alone.
const LEAVE: i32 = -2;

/// Plays [`OpCode::Place`](crate::plan::OpCode::Place).
pub unsafe fn place(frame: &Frame, plan: *const Header) -> Result<()> {
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
        } else if source != pair.target && is_overwritten(frame, pairs, source) && !planted!("source-overwritten") {
            // SAFETY: a copy in the child's own table.
            unsafe { step_aside(source, pairs) }?
        } else {
            source
        };
    }
    for ((n, pair), &stands) in pairs.iter().enumerate().zip(standing.iter()) {
        if stands >= 0 {
            frame.detail.store(n as i32, Relaxed);
            // SAFETY: a move in the child's own table; nothing that is still needed stands at the target.
            unsafe { settle(stands, pair.target) }?;
        }
    }
    // Only now, when no present source can be overwritten any more, come the ones with numbers the kernel chooses.
    let mut parent =
        Parent { pid: frame.parent, thread: frame.thread, pidfd: -1, refused: frame.no_getfd.load(Relaxed) != 0 };
    for ((n, pair), &stands) in pairs.iter().enumerate().zip(standing.iter()) {
        if stands == ABSENT {
            frame.detail.store(n as i32, Relaxed);
            let source = source_of(&frame.slots, pair);
            let fd = if source == SLOT_NULL {
                let cloexec = if planted!("null-at-two-numbers") { 0 } else { uapi::O_CLOEXEC };
                // SAFETY: the path ends in NUL.
                unsafe { sys::open(c"/dev/null".as_ptr().cast(), uapi::O_RDWR | cloexec, 0) }?
            } else {
                parent.fetch(source, pairs, own_pipe_mode(frame, pair))?
            };
            // SAFETY: as above.
            unsafe { settle(fd, pair.target) }?;
        }
    }
    frame.no_getfd.store(parent.refused as u32, Relaxed);
    Ok(())
}

/// For a pair of stdio slots: how the child's end of the pipe is opened; none for other descriptors.
#[inline(always)]
fn own_pipe_mode(frame: &Frame, pair: &Pair) -> Option<u32> {
    match pair.origin() {
        Origin::Slot(0) if frame.only_pipes != 0 => Some(uapi::O_RDONLY),
        Origin::Slot(1 | 2) if frame.only_pipes != 0 => Some(uapi::O_WRONLY),
        _ => None,
    }
}

#[inline(always)]
fn is_present(frame: &Frame, fd: i32) -> bool {
    frame.table != Table::Private || (fd as u32) < frame.keep_below
}

/// Will `fd` become something else? The list is sorted by target.
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

/// A close-on-exec copy of `fd` at a number of 3 or more that is no pair's target: above all of them or, where the limit
/// of descriptors does not allow that, in a gap between them. The list is sorted by target.
unsafe fn step_aside(fd: i32, pairs: &[Pair]) -> Result<i32> {
    let above = pairs.last().map_or(3, |pair| pair.target.saturating_add(1).max(3));
    // SAFETY: a copy in the child's own table.
    match unsafe { sys::fcntl(fd, uapi::F_DUPFD_CLOEXEC, above as usize) } {
        Err(errno::EINVAL | errno::EMFILE) => {}
        answer => return answer,
    }
    let mut from = 3;
    for pair in pairs {
        if pair.target > from {
            // SAFETY: as above; a copy that is not wanted is this function's own.
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

/// Makes `target` the file that `fd` is, to be kept over exec.
unsafe fn settle(fd: i32, target: i32) -> Result<()> {
    if fd == target && planted!("passed-but-close-on-exec") {
        return Ok(());
    }
    // SAFETY: both numbers are in the child's own table (caller).
    unsafe { if fd == target { sys::fcntl(fd, uapi::F_SETFD, 0) } else { sys::dup3(fd, target, 0) } }.map(drop)
}

/// The parent, as a source of descriptors.
struct Parent {
    /// Its pid when it cloned us.
    pid: i32,
    /// Its thread that cloned us: the descriptors are that thread's.
    thread: i32,
    /// That thread's pidfd, opened when first needed.
    pidfd: i32,
    /// `pidfd_getfd` is known not to work here.
    refused: bool,
}

impl Parent {
    /// A close-on-exec copy of the parent's descriptor `fd`.
    ///
    /// `pidfd_getfd(2)` needs the permission to trace the parent, which Yama and container filters withhold. A pipe
    /// can still be had by opening it anew through `/proc`, which needs no more than the permission to look at a
    /// process of the same user (`pipe_mode`: how). Where that fails as well the first error is reported, and the
    /// launcher tries again with a copied table.
    fn fetch(&mut self, fd: i32, pairs: &[Pair], pipe_mode: Option<u32>) -> Result<i32> {
        let refusal = if self.refused {
            errno::EPERM
        } else {
            match self.getfd(fd, pairs) {
                Err(error @ (errno::EPERM | errno::ENOSYS | errno::EACCES | errno::EINVAL)) => error,
                answer => return answer,
            }
        };
        let mode = pipe_mode.ok_or(refusal)?;
        self.refused = true;
        let mut path = ProcFdPath::new();
        path.push(b"/proc/");
        path.number(self.pid as u32);
        path.push(b"/task/");
        path.number(self.thread as u32);
        path.push(b"/fd/");
        path.number(fd as u32);
        self.check_is_ours()?;
        // SAFETY: the buffer was zeroed and is longer than the longest such path, so it ends in NUL.
        let opened = unsafe { sys::open(path.bytes.as_ptr(), mode | uapi::O_CLOEXEC, 0) }.map_err(|_| refusal)?;
        self.check_is_ours().map(|()| opened)
    }

    /// Does the number still, and here, name our parent? One that has died has given it back; and in a process-id
    /// namespace that the parent has made for its children it may be anybody's.
    fn check_is_ours(&self) -> Result<()> {
        if sys::getppid() == self.pid || planted!("parent-not-checked") { Ok(()) } else { Err(errno::EPERM) }
    }

    fn getfd(&mut self, fd: i32, pairs: &[Pair]) -> Result<i32> {
        if self.pidfd < 0 {
            let thread = if planted!("first-threads-descriptors") { self.pid } else { self.thread };
            let flags = if thread == self.pid { 0 } else { sys::PIDFD_THREAD };
            let opened = sys::pidfd_open(thread, flags);
            self.check_is_ours()?;
            let pidfd = opened?;
            let is_above = pairs.last().is_none_or(|last| pidfd > last.target);
            self.pidfd = if is_above || planted!("pidfd-at-a-target") {
                pidfd
            } else {
                // The lowest free number may be a target: step aside, or the target would replace it.
                // SAFETY: a copy in the child's own table; the low one is this function's own.
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

/// `/proc/<pid>/task/<tid>/fd/<fd>`, built without a heap: three 10-digit numbers fit with room to spare.
struct ProcFdPath {
    bytes: [u8; 64],
    len: usize,
}

impl ProcFdPath {
    fn new() -> Self {
        Self { bytes: [0; 64], len: 0 }
    }

    fn push(&mut self, text: &[u8]) {
        for &byte in text {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
    }

    fn number(&mut self, value: u32) {
        let mut divisor = 1_000_000_000;
        let mut started = false;
        while divisor > 0 {
            let digit = (value / divisor % 10) as u8;
            started |= digit != 0 || divisor == 1;
            if started {
                self.push(&[b'0' + digit]);
            }
            divisor /= 10;
        }
    }
}

/// Plays [`OpCode::Taken`](crate::plan::OpCode::Taken).
pub fn announce_taken(frame: &Frame) {
    // Never over LEFT: only the kernel writes that, after us. A plain store, as everywhere in this crate: on aarch64 an
    // atomic exchange may be a call of a helper that is not ours (outline atomics).
    if frame.is_robust == 0 && !planted!("taken-not-told") {
        frame.word.store(TOOK_FDS, Release);
    }
    if frame.announce != 0 && !planted!("taken-without-wake") {
        sys::futex_wake(&frame.word);
    }
}

/// Plays [`OpCode::Dup`](crate::plan::OpCode::Dup).
///
/// What is close-on-exec by now is a helper of ours at the number of a closed stream, or will not outlive exec: the
/// program has not got it.
pub unsafe fn copy(source: i32, target: i32) -> Result<()> {
    // SAFETY: both numbers are in the child's own table.
    unsafe {
        let flags = sys::fcntl(source, uapi::F_GETFD, 0)?;
        if flags & uapi::FD_CLOEXEC as i32 != 0 && !planted!("helper-copied") {
            return Err(errno::EBADF);
        }
        sys::dup3(source, target, 0).map(drop)
    }
}

/// Plays [`OpCode::Open`](crate::plan::OpCode::Open).
pub unsafe fn open_as(path: *const u8, op: &Op) -> Result<()> {
    // SAFETY: the path ends in NUL (the arena's strings do); the table is the child's own.
    unsafe {
        let fd = open(path, op, if planted!("opened-at-two-numbers") { 0 } else { uapi::O_CLOEXEC })?;
        if op.set as i32 == NOWHERE { sys::close(fd) } else { settle(fd, op.set as i32) }
    }
}

/// Plays [`OpCode::Open`](crate::plan::OpCode::Open) with [`IN_PLACE`](crate::plan::IN_PLACE): as
/// `posix_spawn_file_actions_addopen(3)` describes it.
pub unsafe fn open_in_place(path: *const u8, op: &Op) -> Result<()> {
    let target = op.set as i32;
    // SAFETY: the path ends in NUL (the arena's strings do); the table is the child's own.
    unsafe {
        let _ = sys::close(target);
        let fd = open(path, op, 0)?;
        if fd == target {
            return Ok(());
        }
        sys::dup3(fd, target, 0)?;
        sys::close(fd)
    }
}

/// The file of an [`OpCode::Open`](crate::plan::OpCode::Open), with `more` flags.
///
/// What is kept from it by [`NOT_PROCFS`] is found by opening it, since what a path leads to may change at any time. To open a file of
/// procfs does nothing to what it stands for; a link of procfs' is not followed.
unsafe fn open(path: *const u8, op: &Op, more: u32) -> Result<i32> {
    let (flags, mode) = (op.b | more, op.c);
    // SAFETY: the path ends in NUL (caller); what is closed is this function's own.
    unsafe {
        if op.flags & NOT_PROCFS == 0 || planted!("procfs-opened") {
            return sys::open(path, flags, mode);
        }
        let fd = match sys::open_without_magic(path, flags, mode) {
            // Such a link, or too many of any kind, or one where there may be none.
            Err(errno::ELOOP) if flags & uapi::O_NOFOLLOW == 0 => {
                sys::close(sys::open(path, uapi::O_PATH | uapi::O_CLOEXEC, 0)?)?;
                return Err(IN_PROCFS);
            }
            // No such call, or flags that it does not take and open(2) overlooks.
            Err(errno::ENOSYS | errno::EINVAL | errno::E2BIG) if op.flags & SURELY == 0 => {
                sys::open(path, flags, mode)?
            }
            // A filter says so too in place of the call. Of the file itself it is the answer: the other call might meet another file.
            Err(error @ (errno::EPERM | errno::EACCES)) if op.flags & SURELY == 0 => {
                match sys::open_without_magic(c"/".as_ptr().cast(), uapi::O_PATH | uapi::O_CLOEXEC, 0) {
                    Ok(root) if !planted!("refused-file-asked-for-twice") => {
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
            Ok(_) if planted!("procfs-by-another-name") => Ok(fd),
            answer => {
                let _ = sys::close(fd);
                Err(answer.err().unwrap_or(IN_PROCFS))
            }
        }
    }
}

/// Plays [`OpCode::CloseOthers`](crate::plan::OpCode::CloseOthers): a table that was copied beyond 0 to 2 loses what
/// the program is not to have.
pub unsafe fn close_others(frame: &Frame, plan: *const Header) -> Result<()> {
    if frame.table == Table::Private && frame.keep_below <= 3 {
        return Ok(());
    }
    // SAFETY: the header's keep list lies in the arena.
    let keep = unsafe { core::slice::from_raw_parts(at::<i32>(plan, (*plan).keep), (*plan).keep_count as usize) };
    let mut from = 0;
    for &number in keep {
        if number > from && !planted!("gaps-left-open") {
            // SAFETY: closes what no one is to have, in the child's own table.
            unsafe { close_span(frame, from as u32, number as u32 - 1) }?;
        }
        from = number + 1;
    }
    // SAFETY: as above.
    unsafe { close_span(frame, from as u32, u32::MAX) }
}

/// Closes `first..=last`, or has exec close them, by `close_range(2)` or one by one.
unsafe fn close_span(frame: &Frame, first: u32, last: u32) -> Result<()> {
    let at_exec = frame.table == Table::Own && !planted!("callers-descriptors-closed");
    if frame.no_close_range == 0 {
        let flags = if at_exec { sys::CLOSE_RANGE_CLOEXEC } else { 0 };
        // SAFETY: the caller's span.
        match unsafe { sys::close_range(first, last, flags) } {
            // Where nobody has asked before, as for a forked child; the flag is known since Linux 5.11.
            Err(errno::ENOSYS | errno::EPERM | errno::EACCES | errno::EINVAL | errno::E2BIG)
                if frame.table == Table::Copied || at_exec => {}
            answer => return answer,
        }
    }
    // Reading /proc/self/fd would name just the open ones, at 3 µs each; closing a number that is not open takes 0.1.
    for fd in first..=last.min(table_size().unwrap_or_else(descriptor_limit)) {
        // SAFETY: the caller's span.
        let answer = unsafe {
            match at_exec {
                true => sys::fcntl(fd as i32, uapi::F_SETFD, uapi::FD_CLOEXEC as usize).map(drop),
                false => sys::close(fd as i32),
            }
        };
        // Any other answer of close(2) is about what was written, and the descriptor is gone.
        if let Err(error @ (errno::ENOSYS | errno::EPERM | errno::EACCES | errno::EINVAL | errno::E2BIG)) = answer {
            return Err(error);
        }
    }
    Ok(())
}

/// The size of the child's descriptor table, above which nothing is open: `FDSize` in `/proc/self/status`.
fn table_size() -> Option<u32> {
    process::status_number(b"\nFDSize:")
}

/// The soft RLIMIT_NOFILE, or a generous guess. Numbers above it can only be open if the limit was lowered since.
fn descriptor_limit() -> u32 {
    const GENEROUS: u64 = 1 << 20;
    let mut limit = [0u64; 2];
    let args = [0, uapi::RLIMIT_NOFILE as usize, 0, limit.as_mut_ptr() as usize, 0, 0];
    // SAFETY: the kernel writes one rlimit64, two words.
    match unsafe { sys::syscall(uapi::__NR_prlimit64, args) } {
        Ok(_) => limit[0].min(GENEROUS) as u32,
        Err(_) => GENEROUS as u32,
    }
}
