//! What a caller and its zygote tell each other.
//!
//! Requests are small messages on a socket that keeps them apart (SOCK_SEQPACKET), with descriptors beside them. All
//! else of a launch lies in a *parcel*: memory that both have mapped, with the child's stack, its frame, what it is
//! to take on, and the plan's arena. The kernel clears the frame's futex word in it as it does in the caller's own
//! memory, so the caller waits as for any child, and learns what failed in the same way. There is no answer on the
//! socket but the first one.

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

/// "fkzy".
const MAGIC: u32 = 0x797a_6b66;

/// Both sides must be of one make: the layout of plans, of frames and of parcels.
const VERSION: u32 = plan::VERSION << 16 | 2;

/// What a message is about.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The zygote is there. `value`: 0, or why it does not serve: one of [`refusal`].
    Hello = 1,
    /// Map the memory that comes with this as this parcel. `value`: its length.
    Map = 2,
    /// More descriptors for this parcel's launch.
    Descriptors = 3,
    /// Launch what this parcel holds.
    Launch = 4,
    /// Unmap this parcel.
    Forget = 5,
}

/// Why a helper does not serve.
pub(super) mod refusal {
    /// It has more privileges than who started it.
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

    /// None for the message of another make.
    pub(super) fn kind(&self) -> Option<Kind> {
        let kinds = [Kind::Hello, Kind::Map, Kind::Descriptors, Kind::Launch, Kind::Forget];
        let ours = self.magic == MAGIC && self.version == VERSION;
        kinds.into_iter().find(|&kind| ours && kind as u32 == self.kind)
    }

    /// One of any bytes.
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

    /// `recvmsg(2)`; `take` gets the descriptors. None at the end; also says whether descriptors were lost.
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

/// The most descriptors of a launch: the plan's, the directory, the control group, namespaces and directories that
/// are read early.
pub(crate) const MAX_PATCHES: usize = MAX_FDS + SLOTS + 16;

/// How much of a function's own words is told.
pub(crate) const WORDS: usize = 400;

/// A parcel, from the frame on.
#[repr(C)]
pub(crate) struct Parcel {
    pub(crate) sent: Sent,
    pub(crate) order: Order,
}

/// What the zygote is to do, and what came of it.
#[repr(C)]
pub(crate) struct Order {
    /// `CLONE_NEW*`.
    pub(crate) namespaces: u64,
    /// The directory of the control group that the child is born in; -1: none.
    pub(crate) cgroup: i32,
    /// The process-id namespace that the child is born in; -1: none.
    pub(crate) pid_namespace: i32,
    /// The zygote stands still until the child has left its memory.
    pub(crate) vfork: u32,
    /// 1: the zygote is kept on the caller's processor, which is no matter of the child's.
    pub(crate) kept: u32,
    /// The functions to call lie so many bytes behind the arena's start; 0: there are none.
    pub(crate) calls: u32,
    /// How long their list is.
    pub(crate) calls_len: u32,
    /// How many descriptors come.
    pub(crate) descriptors: u32,
    /// Where each number goes that a descriptor has got: so many bytes behind the mapping's start.
    pub(crate) patches: [u32; MAX_PATCHES],
    /// Why there is no child: one of [`failure`]; 0: there is one.
    pub(crate) failure: AtomicU32,
    /// The errno of that, or the number of an unknown function.
    pub(crate) errno: AtomicI32,
    /// 1: `clone3(2)` was refused.
    pub(crate) old_clone: AtomicU32,
    /// 1 + the number of the function that the child is in, or that failed; 0: none.
    pub(crate) function: AtomicU32,
    /// How many bytes of `words` it has left.
    pub(crate) said: AtomicU32,
    /// Why it failed, in its own words.
    pub(crate) words: UnsafeCell<[u8; WORDS]>,
}

/// Why a zygote made no child.
pub(crate) mod failure {
    /// The clone itself.
    pub(crate) const CLONE: u32 = 1;
    /// Not all descriptors have come.
    pub(crate) const DESCRIPTORS: u32 = 2;
    /// A function of that name was never added.
    pub(crate) const FUNCTION: u32 = 3;
    /// The plan is of another version, or its memory could not be mapped.
    pub(crate) const PLAN: u32 = 4;
    /// The process-id namespace could not be joined.
    pub(crate) const JOIN: u32 = 5;
}

/// Where the [`Parcel`] begins in its mapping: with its frame, where a stack has it.
pub(crate) const PARCEL_AT: usize = frame_offset();

/// Where the arena begins.
pub(crate) const ARENA_AT: usize = (PARCEL_AT + size_of::<Parcel>()).next_multiple_of(4096);

/// The length of a parcel that is kept for further launches. Pages that are not touched cost nothing.
pub(crate) const USUAL: usize = ARENA_AT + 128 * 1024;

const _: () = assert!(PARCEL_AT + size_of::<Frame>() <= MAPPING && GUARD < PARCEL_AT);

/// Where in the mapping the directory's number goes.
pub(crate) const DIRECTORY_AT: usize = PARCEL_AT + offset_of!(Parcel, sent.adopt.directory);
/// Where the control group's goes.
pub(crate) const CGROUP_AT: usize = PARCEL_AT + offset_of!(Parcel, order.cgroup);
/// Where the process-id namespace's goes.
pub(crate) const PID_NAMESPACE_AT: usize = PARCEL_AT + offset_of!(Parcel, order.pid_namespace);
