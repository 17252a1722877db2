//! Writes to pipes and sockets that raise no SIGPIPE: if its disposition is the default, it would kill this process.

use crate::kernel;
use forkless_core::sys::{self, errno, signal, uapi};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd};

/// SIGPIPE's bit in a signal set.
const SIGPIPE: u64 = signal::bit(signal::SIGPIPE);

/// The most parts that the kernel takes in one call: UIO_MAXIOV.
const MOST_PARTS: usize = 1024;

/// `write(2)`; without a reader it fails with EPIPE, and raises no signal.
pub fn write_quietly<F: AsFd>(fd: F, bytes: &[u8]) -> io::Result<usize> {
    write_vectored(fd, &[IoSlice::new(bytes)])
}

/// [`write_quietly`] of several buffers: `writev(2)`.
///
/// Linux 6.18 has a flag against the signal. Before that, or where a filter refuses the call, the signal is blocked in
/// this thread during the write, and then removed from the pending ones.
pub(crate) fn write_vectored<F: AsFd>(fd: F, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    const RWF_NOSIGNAL: usize = 0x100;
    /// Instead of an offset: the current file position.
    const HERE: usize = usize::MAX;
    let parts = &parts[..parts.len().min(MOST_PARTS)];
    let args = [fd.as_fd().as_raw_fd() as usize, parts.as_ptr() as usize, parts.len(), HERE, HERE, RWF_NOSIGNAL];
    // SAFETY: `IoSlice` has the layout of iovec, and the kernel only reads the bytes.
    match unsafe { sys::syscall(uapi::__NR_pwritev2, args) } {
        Err(errno::EOPNOTSUPP | errno::ENOSYS | errno::EINVAL | errno::EPERM | errno::EACCES) => {}
        answer => return answer.map_err(io::Error::from_raw_os_error),
    }
    while_blocked(parts.iter().map(|part| part.len()).sum(), || Ok(rustix::io::writev(&fd, parts)?))
}

/// Makes a write of so many bytes with SIGPIPE blocked. A SIGPIPE that the write raises is removed; one that was
/// pending before stays.
fn while_blocked(length: usize, write: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
    let mask = sys::signal_mask().map_err(io::Error::from_raw_os_error)?;
    let was_blocked = mask & SIGPIPE != 0;
    // A write raises the signal in the thread. There a second one is merged with one that is pending.
    let was_pending = was_blocked && kernel::pending_signals().is_ok_and(|pending| pending & SIGPIPE != 0);
    if !was_blocked {
        sys::block_signals(SIGPIPE).map_err(io::Error::from_raw_os_error)?;
    }
    let answer = write();
    // A short write may have raised it too: the reader may have gone during the write.
    if !was_pending && !matches!(answer, Ok(count) if count == length) {
        kernel::take_signal(SIGPIPE);
    }
    if !was_blocked {
        let _ = sys::set_signal_mask(mask);
    }
    answer
}
