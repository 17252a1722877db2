//! Sending the messages between a caller and its zygote's helper, whose layout is in
//! [`forkless_core::parcel`].

pub(crate) use forkless_core::parcel::{ARENA_AT, CGROUP_AT, DIRECTORY_AT, MAX_PATCHES, PARCEL_AT};
pub(crate) use forkless_core::parcel::{
    Message, MessageKind, Order, PID_NAMESPACE_AT, Parcel, USUAL, WORDS, failure, refusal,
};
use rustix::net::sendmsg;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

/// The most descriptors that one message carries: SCM_MAX_FD in the kernel.
pub(crate) const AT_ONCE: usize = 253;

/// A message of arbitrary bytes.
#[cfg(any(test, fuzzing))]
pub(super) fn message_of(bytes: [u8; size_of::<Message>()]) -> Message {
    // SAFETY: plain numbers, for which any bytes are good.
    unsafe { std::mem::transmute(bytes) }
}

/// Sends a message.
pub(crate) trait OverSocket: Sized {
    /// `sendmsg(2)` with SCM_RIGHTS; does not wait for room.
    fn send<F: AsFd>(&self, socket: F, fds: &[BorrowedFd<'_>]) -> rustix::io::Result<()>;
}

impl OverSocket for Message {
    fn send<F: AsFd>(&self, socket: F, fds: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(rustix::io::Errno::INVAL);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // SAFETY: plain numbers without padding: four of 32 bits, one of 64.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) };
        sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags).map(drop)
    }
}
