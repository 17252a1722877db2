//! What a child reads and opens in `/proc`.
//!
//! A procfs shows the processes of one PID namespace, and a pid of another one may be a stranger's there. So the caller
//! reports whether the procfs at `/proc` is of its own namespace, before a child opens anything by the caller's pid.
//!
//! # Safety
//! As for [`child`](crate::child); the file-descriptor table is the child's own.

use crate::sys::{self, Result, uapi};
use core::mem::MaybeUninit;

/// Opens descriptor `fd` of another thread again, with `mode`; close-on-exec.
pub(crate) unsafe fn open_descriptor(process: i32, thread: i32, fd: i32, mode: u32) -> Result<i32> {
    let mut path = ProcFdPath::new();
    path.push(b"/proc/");
    path.number(process as u32);
    path.push(b"/task/");
    path.number(thread as u32);
    path.push(b"/fd/");
    path.number(fd as u32);
    // SAFETY: the buffer was zeroed and is longer than the longest such path, so the path ends in NUL.
    unsafe { sys::open(path.bytes.as_ptr(), mode | uapi::O_CLOEXEC, 0) }
}

/// `/proc/<pid>/task/<tid>/fd/<fd>`, built without a heap. The buffer is larger than three 10-digit numbers need.
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

/// A number in `/proc/self/status`, by its label. The label begins with the preceding newline, because the first line
/// contains the program's name, which may be anything. This needs a descriptor for a moment, so the file-descriptor
/// table must be the child's own.
pub(crate) fn status_number(label: &[u8]) -> Option<u32> {
    with_own(|file| {
        let mut buffer = MaybeUninit::<[u8; 1024]>::uninit();
        // SAFETY: the kernel writes at most the buffer's length, and as many bytes as it says.
        let mut start = unsafe {
            let filled = sys::read(file, buffer.as_mut_ptr().cast(), 1024).ok()?;
            core::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), filled)
        };
        numbers(value(&mut start, label)?, 10).next().map(|number| number as u32)
    })?
}

/// Room for the whole status of a usual process, on a stack of usual size. `Groups`, the one line without a bound, may be longer than this.
const ROOM: usize = 16 * 1024;

/// Calls `work` with the calling process's status file. `None`: it cannot be opened.
fn with_own<T>(work: impl FnOnce(i32) -> T) -> Option<T> {
    // SAFETY: the path ends in NUL, and the descriptor is this function's own.
    unsafe {
        let file = sys::open(c"/proc/self/status".as_ptr().cast(), uapi::O_RDONLY | uapi::O_CLOEXEC, 0).ok()?;
        let answer = work(file);
        let _ = sys::close(file);
        Some(answer)
    }
}

/// Calls `work` with the calling process's status. `None`: it cannot be read.
pub(crate) fn with_own_status<T>(work: impl FnOnce(&[u8]) -> T) -> Option<T> {
    with_own(|file| with_open_status(file, work))?
}

/// Calls `work` with the status of the process that an open file is of. Of a status that is longer than the buffer, a part in the
/// middle is left out, which is of the line `Groups`: what is before it has less than 1 KiB, and what is behind it less than 7.
pub(crate) fn with_open_status<T>(file: i32, work: impl FnOnce(&[u8]) -> T) -> Option<T> {
    const HEAD: usize = 1024;
    // Not zeroed first: that would compile to a call of memset, the only one in this crate.
    let mut buffer = MaybeUninit::<[u8; ROOM]>::uninit();
    // SAFETY: `at` is below ROOM, and the kernel writes at most what is left from there.
    let mut read = |at: usize, offset: usize| unsafe {
        let to = buffer.as_mut_ptr().cast::<u8>().add(at) as usize;
        sys::syscall(uapi::__NR_pread64, [file as usize, to, ROOM - at, offset, 0, 0])
    };
    let mut filled = read(0, 0).ok()?;
    let mut offset = HEAD;
    while filled == ROOM {
        // Half of what was read is read again, so that the last part is never short.
        offset += (ROOM - HEAD) / 2;
        filled = HEAD + read(HEAD, offset).ok()?;
    }
    // SAFETY: that many bytes have been written.
    Some(work(unsafe { core::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), filled) }))
}

/// Opens a process's status, close-on-exec. `None`: it cannot be opened, or `/proc` shows another PID namespace.
pub(crate) fn open_status(process: i32) -> Option<i32> {
    // One number for each namespace, from that of the procfs to that of the process.
    let pids = with_own_status(|mut status| {
        let mut pids = numbers(value(&mut status, b"\nNSpid:")?, 10);
        Some((pids.next()?, pids.next()))
    })??;
    if pids != (sys::getpid() as u64, None) {
        return None;
    }
    let mut path = ProcFdPath::new();
    path.push(b"/proc/");
    path.number(process as u32);
    path.push(b"/status");
    // SAFETY: the path ends in NUL, for it is shorter than the zeroed buffer.
    unsafe { sys::open(path.bytes.as_ptr(), uapi::O_RDONLY | uapi::O_CLOEXEC, 0) }.ok()
}

/// The rest of the line that begins with this label, which includes the preceding newline. Then `status` begins after that
/// line, so that labels in the order of the file are found in one pass. Without such a line `status` is unchanged.
pub(crate) fn value<'a>(status: &mut &'a [u8], label: &[u8]) -> Option<&'a [u8]> {
    let mut rest = *status;
    loop {
        // Byte by byte: comparing slices would compile to a call of bcmp.
        if rest.len() >= label.len() && rest.iter().zip(label).all(|(byte, wanted)| byte == wanted) {
            let value = rest.get(label.len()..)?;
            let (value, behind) = value.split_at_checked(value.iter().position(|&byte| byte == b'\n')?)?;
            *status = behind;
            return Some(value);
        }
        rest = rest.get(1..)?;
    }
}

/// The numbers of a line, in this base.
pub(crate) fn numbers(line: &[u8], base: u64) -> impl Iterator<Item = u64> + '_ {
    let mut rest = line.iter().copied();
    core::iter::from_fn(move || {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(u64::from(byte - b'0')),
            b'a'..=b'f' if base == 16 => Some(u64::from(byte - b'a') + 10),
            _ => None,
        };
        let mut number = rest.find_map(digit)?;
        for byte in rest.by_ref() {
            match digit(byte) {
                Some(digit) => number = number.wrapping_mul(base).wrapping_add(digit),
                None => break,
            }
        }
        Some(number)
    })
}
