//! The messages between a caller and its zygote's helper.
//!
//! Requests are small messages on a SOCK_SEQPACKET socket, with descriptors attached. Everything else of a launch is
//! in a *parcel*: memory that both processes have mapped, with the child's stack, its frame, the caller's attributes
//! and the plan's arena. The kernel clears the frame's futex word there as in the caller's own memory, so the caller
//! waits and gets errors as for any other child. The helper sends only its first message, `Hello`.

use forkless_core::frame::{Frame, SLOTS};
use forkless_core::plan::{self, MAX_FDS};
use forkless_core::zygote_child::Sent;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::net::{recvmsg, sendmsg};
use std::cell::UnsafeCell;
use std::io::{IoSlice, IoSliceMut};
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicU32};

use crate::launch::stack::{GUARD, MAPPING, frame_offset};

/// The first word of each message: "fkzy".
const MAGIC: u32 = 0x797a_6b66;

/// The version of the layout of plans, frames and parcels. It must be the same on both sides.
const VERSION: u32 = plan::VERSION << 16 | 2;

/// The kind of a message.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The helper is ready. `value`: 0, or why it refuses to serve: one of [`refusal`].
    Hello = 1,
    /// Map the attached memory as this parcel. `value`: its length.
    Map = 2,
    /// More descriptors for this parcel's launch.
    Descriptors = 3,
    /// Launch the plan in this parcel.
    Launch = 4,
    /// Unmap this parcel.
    Forget = 5,
}

/// Why a helper refuses to serve.
pub(super) mod refusal {
    /// Its exec gave it more privileges than its parent may have.
    pub(crate) const PRIVILEGED: u64 = 1;
}

/// One message.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    magic: u32,
    version: u32,
    kind: u32,
    pub(super) parcel: u32,
    pub(super) value: u64,
}

/// The most descriptors that one message carries: SCM_MAX_FD in the kernel.
pub(crate) const AT_ONCE: usize = 253;

impl Message {
    pub(super) fn new(kind: Kind, parcel: u32, value: u64) -> Self {
        Self { magic: MAGIC, version: VERSION, kind: kind as u32, parcel, value }
    }

    /// The kind. `None` for a message of another version.
    pub(super) fn kind(&self) -> Option<Kind> {
        let kinds = [Kind::Hello, Kind::Map, Kind::Descriptors, Kind::Launch, Kind::Forget];
        let ours = self.magic == MAGIC && self.version == VERSION;
        kinds.into_iter().find(|&kind| ours && kind as u32 == self.kind)
    }

    /// A message of arbitrary bytes.
    #[cfg(any(test, fuzzing))]
    pub(super) fn of(bytes: [u8; size_of::<Self>()]) -> Self {
        // SAFETY: plain numbers, for which any bytes are good.
        unsafe { std::mem::transmute(bytes) }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: plain numbers without padding: four of 32 bits, one of 64.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }

    /// `sendmsg(2)` with SCM_RIGHTS; does not wait for room.
    pub(super) fn send<F: AsFd>(&self, socket: F, fds: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(rustix::io::Errno::INVAL);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(socket, &[IoSlice::new(self.bytes())], &mut control, flags).map(drop)
    }

    /// `recvmsg(2)`; `take` gets the descriptors. `None` at the end of the stream. The flag is set if descriptors
    /// were lost.
    pub(super) fn receive<F: AsFd>(
        socket: F,
        mut take: impl FnMut(std::os::fd::OwnedFd),
    ) -> rustix::io::Result<Option<(Self, bool)>> {
        let mut message = Self { magic: 0, version: 0, kind: 0, parcel: 0, value: 0 };
        // SAFETY: plain numbers, for which any bytes are good.
        let bytes = unsafe { std::slice::from_raw_parts_mut((&raw mut message).cast::<u8>(), size_of::<Self>()) };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for part in control.drain() {
            if let rustix::net::RecvAncillaryMessage::ScmRights(fds) = part {
                fds.for_each(&mut take);
            }
        }
        Ok((got.bytes > 0).then_some((message, got.flags.contains(ReturnFlags::CTRUNC))))
    }
}

/// The maximum number of descriptors of a launch: those of the plan, the working directory, the cgroup, and the
/// namespaces and directories that the child uses before it has its own table.
pub(crate) const MAX_PATCHES: usize = MAX_FDS + SLOTS + 16;

/// The maximum length of a function's error message.
pub(crate) const WORDS: usize = 400;

/// A parcel's contents from the frame on.
#[repr(C)]
pub(crate) struct Parcel {
    pub(crate) sent: Sent,
    pub(crate) order: Order,
}

/// The request to the helper, and the result.
#[repr(C)]
pub(crate) struct Order {
    /// `CLONE_NEW*`.
    pub(crate) namespaces: u64,
    /// The directory of the child's cgroup (`CLONE_INTO_CGROUP`); -1: the helper's.
    pub(crate) cgroup: i32,
    /// The PID namespace of the child; -1: the helper's.
    pub(crate) pid_namespace: i32,
    /// 1: clone with `CLONE_VFORK`, so that the helper waits until the child has left its memory.
    pub(crate) vfork: u32,
    /// 1: the helper is bound to the caller's CPU; the child must not inherit that.
    pub(crate) kept: u32,
    /// Offset of the list of functions from the start of the arena; 0: there are none.
    pub(crate) calls: u32,
    /// Length of that list.
    pub(crate) calls_len: u32,
    /// Number of descriptors.
    pub(crate) descriptors: u32,
    /// Where the number of each received descriptor is stored, as an offset from the start of the mapping.
    pub(crate) patches: [u32; MAX_PATCHES],
    /// Why there is no child: one of [`failure`]; 0: the child exists.
    pub(crate) failure: AtomicU32,
    /// The errno of that failure, or the number of an unknown function.
    pub(crate) errno: AtomicI32,
    /// 1: `clone3(2)` was refused.
    pub(crate) old_clone: AtomicU32,
    /// 1 + the number of the function that runs or has failed; 0: none.
    pub(crate) function: AtomicU32,
    /// Length of the message in `words`.
    pub(crate) said: AtomicU32,
    /// The function's error message.
    pub(crate) words: UnsafeCell<[u8; WORDS]>,
}

/// Why the helper has made no child.
pub(crate) mod failure {
    /// The clone itself.
    pub(crate) const CLONE: u32 = 1;
    /// Some descriptors have not arrived.
    pub(crate) const DESCRIPTORS: u32 = 2;
    /// The registry has no function of this name.
    pub(crate) const FUNCTION: u32 = 3;
    /// The plan is of another version, or its memory could not be mapped.
    pub(crate) const PLAN: u32 = 4;
    /// The PID namespace could not be joined.
    pub(crate) const JOIN: u32 = 5;
}

/// Offset of the [`Parcel`] in its mapping. It begins with the frame, which is where a stack has it.
pub(crate) const PARCEL_AT: usize = frame_offset();

/// Offset of the arena.
pub(crate) const ARENA_AT: usize = (PARCEL_AT + size_of::<Parcel>()).next_multiple_of(4096);

/// The length of a parcel that is reused. Untouched pages use no memory.
pub(crate) const USUAL: usize = ARENA_AT + 128 * 1024;

const _: () = assert!(PARCEL_AT + size_of::<Frame>() <= MAPPING && GUARD < PARCEL_AT);

/// Offset in the mapping of the working directory's number.
pub(crate) const DIRECTORY_AT: usize = PARCEL_AT + offset_of!(Parcel, sent.adopt.directory);
/// Offset of the cgroup's number.
pub(crate) const CGROUP_AT: usize = PARCEL_AT + offset_of!(Parcel, order.cgroup);
/// Offset of the PID namespace's number.
pub(crate) const PID_NAMESPACE_AT: usize = PARCEL_AT + offset_of!(Parcel, order.pid_namespace);
