//! The messages and the shared memory between a caller and a process that clones children for it: a zygote's helper, or
//! the template of a warm program.
//!
//! Requests are small messages on a SOCK_SEQPACKET socket, with descriptors attached. Everything else of a launch is
//! in a *parcel*: memory that both processes have mapped, with the child's stack, its frame, the caller's attributes
//! and the plan's arena. The kernel clears the frame's futex word there as in the caller's own memory, so the caller
//! waits and gets errors as for any other child. The other process sends only its first message, `Hello`.
//!
//! The child does what the caller wants. But the process that clones serves further launches, so it reads and writes
//! nothing outside the parcel, whatever the parcel contains.

use crate::frame::{Frame, SLOTS};
use crate::plan::{self, Header, MAX_FDS};
use crate::sync::{AtomicI32, AtomicU32};
use crate::zygote_child::Sent;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::ptr::NonNull;

/// The guard below a child's stack. As large as the largest page of any supported kernel, so that it is a whole number
/// of pages everywhere.
pub const GUARD: usize = 64 * 1024;

/// Guard, stack and frame. The child uses about 1 KiB of stack; untouched pages cost nothing.
pub const MAPPING: usize = GUARD + 64 * 1024;

/// Offset of the frame in its mapping.
pub const fn frame_offset() -> usize {
    // 64-byte aligned, as the frame's type requires.
    MAPPING - size_of::<Frame>().next_multiple_of(64)
}

/// The first word of each message: "fkzy".
pub const MAGIC: u32 = 0x797a_6b66;

/// The version of the layout of plans, frames and parcels. It must be the same on both sides.
pub const VERSION: u32 = plan::VERSION << 16 | 3;

/// The kind of a message.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
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
pub mod refusal {
    /// Its exec gave it more privileges than its parent may have.
    pub const PRIVILEGED: u64 = 1;
    /// A template: a library has registered handlers for fork, which a clone would skip.
    pub const FORK_HANDLERS: u64 = 2;
    /// A template: a library has started a timer or set an alternate signal stack.
    pub const TIMERS: u64 = 3;
    /// A template: the kernel does not support what it needs.
    pub const KERNEL: u64 = 4;
}

/// One message.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Message {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u32,
    /// A [`MessageKind`].
    pub kind: u32,
    /// The number of the parcel.
    pub parcel: u32,
    /// Depends on the kind.
    pub value: u64,
}

impl Message {
    /// A message of this version.
    pub const fn new(kind: MessageKind, parcel: u32, value: u64) -> Self {
        Self { magic: MAGIC, version: VERSION, kind: kind as u32, parcel, value }
    }

    /// A message of all zero bytes, to receive one.
    pub const EMPTY: Self = Self { magic: 0, version: 0, kind: 0, parcel: 0, value: 0 };

    /// The kind. `None` for a message of another version.
    pub fn message_kind(&self) -> Option<MessageKind> {
        let kinds =
            [MessageKind::Hello, MessageKind::Map, MessageKind::Descriptors, MessageKind::Launch, MessageKind::Forget];
        let ours = self.magic == MAGIC && self.version == VERSION;
        kinds.into_iter().find(|&kind| ours && kind as u32 == self.kind)
    }
}

/// The maximum number of descriptors of a launch: those of the plan, the working directory, the cgroup, and the
/// namespaces and directories that the child uses before it has its own table.
pub const MAX_PATCHES: usize = MAX_FDS + SLOTS + 16;

/// The maximum length of a function's error message.
pub const WORDS: usize = 400;

/// A parcel's contents from the frame on.
#[repr(C)]
pub struct Parcel {
    /// The run and the attributes.
    pub sent: Sent,
    /// The request.
    pub order: Order,
}

/// The request to the helper, and the result.
#[repr(C)]
pub struct Order {
    /// `CLONE_NEW*`.
    pub namespaces: u64,
    /// The directory of the child's cgroup (`CLONE_INTO_CGROUP`); -1: the helper's.
    pub cgroup: i32,
    /// The PID namespace of the child; -1: the helper's.
    pub pid_namespace: i32,
    /// 1: clone with `CLONE_VFORK`, so that the helper waits until the child has left its memory.
    pub vfork: u32,
    /// 1: the helper is bound to the caller's CPU; the child must not inherit that.
    pub kept: u32,
    /// Offset of the list of functions from the start of the arena; 0: there are none.
    pub calls: u32,
    /// Length of that list.
    pub calls_len: u32,
    /// Number of descriptors.
    pub descriptors: u32,
    /// Where the number of each received descriptor is stored, as an offset from the start of the mapping.
    pub patches: [u32; MAX_PATCHES],
    /// Why there is no child: one of [`failure`]; 0: the child exists.
    pub failure: AtomicU32,
    /// The errno of that failure, or the number of an unknown function.
    pub errno: AtomicI32,
    /// 1: `clone3(2)` was refused.
    pub old_clone: AtomicU32,
    /// 1 + the number of the function that runs or has failed; 0: none.
    pub function: AtomicU32,
    /// Length of the message in `words`.
    pub said: AtomicU32,
    /// The function's error message.
    pub words: UnsafeCell<[u8; WORDS]>,
}

/// Why the helper has made no child.
pub mod failure {
    /// The clone itself.
    pub const CLONE: u32 = 1;
    /// Some descriptors have not arrived.
    pub const DESCRIPTORS: u32 = 2;
    /// The registry has no function of this name.
    pub const FUNCTION: u32 = 3;
    /// The plan is of another version, or its memory could not be mapped.
    pub const PLAN: u32 = 4;
    /// The PID namespace could not be joined.
    pub const JOIN: u32 = 5;
}

/// Offset of the [`Parcel`] in its mapping. It begins with the frame, which is where a stack has it.
pub const PARCEL_AT: usize = frame_offset();

/// Offset of the arena.
pub const ARENA_AT: usize = (PARCEL_AT + size_of::<Parcel>()).next_multiple_of(4096);

/// The length of a parcel that is reused. Untouched pages use no memory.
pub const USUAL: usize = ARENA_AT + 128 * 1024;

const _: () = assert!(PARCEL_AT + size_of::<Frame>() <= MAPPING && GUARD < PARCEL_AT);

/// Offset in the mapping of the working directory's number.
pub const DIRECTORY_AT: usize = PARCEL_AT + offset_of!(Parcel, sent.adopt.directory);
/// Offset of the cgroup's number.
pub const CGROUP_AT: usize = PARCEL_AT + offset_of!(Parcel, order.cgroup);
/// Offset of the PID namespace's number.
pub const PID_NAMESPACE_AT: usize = PARCEL_AT + offset_of!(Parcel, order.pid_namespace);

/// The minimum length of a parcel's memory.
pub const SHORTEST: usize = ARENA_AT + size_of::<Header>();

/// Offset of the [`Order`] in the mapping.
pub const ORDER_AT: usize = PARCEL_AT + offset_of!(Parcel, order);

/// The number of parcels that a helper can have mapped: far more than a caller can have launches in flight.
pub const MOST: usize = 1 << 20;

/// Stores these numbers at the offsets that the parcel lists. False if an offset is outside, or the counts differ.
///
/// # Safety
/// `memory` is a parcel of `length` bytes, at least [`SHORTEST`]. No child and no other code uses it meanwhile.
pub unsafe fn patch(memory: NonNull<u8>, length: usize, numbers: &[i32]) -> bool {
    // No reference: an offset may be inside the order itself.
    let order = memory.as_ptr().wrapping_byte_add(ORDER_AT).cast::<Order>();
    // SAFETY: inside the parcel.
    let count = unsafe { (&raw const (*order).descriptors).read() };
    if count as usize != numbers.len() || numbers.len() > MAX_PATCHES {
        return false;
    }
    for (n, &number) in numbers.iter().enumerate() {
        // SAFETY: the list has as many offsets. The previous write may have changed this one, so it is read now.
        let at = unsafe { (&raw const (*order).patches).cast::<u32>().add(n).read() } as usize;
        if at < PARCEL_AT || !is_inside(at, size_of::<i32>(), length) {
            return false;
        }
        // SAFETY: inside, as just checked, and above the guard.
        unsafe { memory.byte_add(at).cast::<i32>().write_unaligned(number) };
    }
    true
}

/// The arena of the parcel, relocated. `None` if it is of another version, or refers to memory outside.
///
/// # Safety
/// As for [`patch`]; `memory` is aligned to 8 bytes.
pub unsafe fn arena(memory: NonNull<u8>, length: usize) -> Option<NonNull<u64>> {
    let room = length.checked_sub(ARENA_AT).filter(|&room| room >= size_of::<Header>())?;
    // SAFETY: inside, as just checked.
    let arena = unsafe { memory.byte_add(ARENA_AT).cast::<u64>() };
    // SAFETY: as above; plain numbers.
    let header = unsafe { arena.cast::<Header>().read() };
    let whole = usize::try_from(header.len).ok().filter(|&len| len <= room)?;
    let vectors = header.argv as usize;
    let is_ours = header.magic == plan::MAGIC && header.version == plan::VERSION && header.environment == 0;
    let has_vectors = vectors.is_multiple_of(8)
        && vectors >= size_of::<Header>()
        && is_inside(vectors, header.pointer_count as usize * size_of::<u64>(), whole);
    if !is_ours || !has_vectors {
        return None;
    }
    // SAFETY: the vectors are inside, as just checked, and no child reads them yet.
    unsafe { plan::relocate(arena.as_ptr(), arena.as_ptr() as u64) };
    Some(arena)
}

/// Whether these bytes end inside of a parcel of this length.
pub fn is_inside(at: usize, bytes: usize, length: usize) -> bool {
    at.checked_add(bytes).is_some_and(|end| end <= length)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    const LENGTH: usize = SHORTEST + 64;

    /// A parcel in memory of this test, as a caller may have filled it.
    fn parcel(fill: impl FnOnce(&mut Order, &mut Header)) -> std::vec::Vec<u64> {
        let mut words = std::vec![0; LENGTH.div_ceil(8)];
        let memory: *mut u8 = words.as_mut_ptr().cast();
        // SAFETY: both lie inside, and may be all zero.
        unsafe {
            let header = &mut *memory.byte_add(ARENA_AT).cast::<Header>();
            (header.magic, header.version, header.len) = (plan::MAGIC, plan::VERSION, size_of::<Header>() as u64 + 64);
            header.argv = size_of::<Header>() as u32;
            fill(&mut *memory.byte_add(ORDER_AT).cast(), header);
        }
        words
    }

    #[test]
    fn numbers_are_stored_only_inside() {
        let store = |places: &[u32], numbers: &[i32]| {
            let mut words = parcel(|order, _| {
                order.descriptors = places.len() as u32;
                order.patches[..places.len()].copy_from_slice(places);
            });
            let memory = NonNull::from(words.as_mut_slice()).cast();
            // SAFETY: a parcel of this length, which only this test uses.
            unsafe { patch(memory, LENGTH, numbers) }.then_some(words)
        };
        let (first, last) = (PARCEL_AT as u32, LENGTH as u32 - 4);
        let word = |words: &[u64], at: u32| words[at as usize / 8].to_ne_bytes();
        let stored = store(&[first, last], &[7, 9]).unwrap_or_default();
        assert_eq!((word(&stored, first)[0], word(&stored, last)[4]), (7, 9));
        for place in [0, GUARD as u32, first - 1, last + 1, LENGTH as u32, u32::MAX] {
            assert!(store(&[place], &[7]).is_none(), "{place}");
        }
        assert!(store(&[first], &[]).is_none() && store(&[first], &[7, 9]).is_none());
        // The first number is stored over the second place, which is looked at only then.
        let second = (ORDER_AT + offset_of!(Order, patches)) as u32 + 4;
        assert!(store(&[second, last], &[i32::MAX, 9]).is_none());
        assert!(store(&[second, first], &[last as i32, 9]).is_some_and(|words| word(&words, last)[4] == 9));
    }

    #[test]
    fn only_an_arena_of_this_version_that_is_inside_is_taken() {
        let takes = |change: fn(&mut Header)| {
            let mut words = parcel(|_, header| change(header));
            // SAFETY: a parcel of this length, which only this test uses.
            unsafe { arena(NonNull::from(words.as_mut_slice()).cast(), LENGTH) }.is_some()
        };
        assert!(takes(|_| ()) && takes(|header| header.pointer_count = 8));
        let wrong: [fn(&mut Header); 9] = [
            |header| header.magic += 1,
            |header| header.version += 1,
            |header| header.environment = 8,
            |header| header.len += 8,
            |header| header.len = u64::MAX,
            |header| header.argv += 4,
            |header| header.argv -= 8,
            |header| header.pointer_count = 9,
            |header| (header.argv, header.pointer_count) = (u32::MAX - 7, u32::MAX),
        ];
        assert_eq!(wrong.map(takes), [false; 9]);
        let mut short = parcel(|_, _| ());
        // SAFETY: as above.
        assert!(unsafe { arena(NonNull::from(short.as_mut_slice()).cast(), SHORTEST - 1) }.is_none());
    }

    #[test]
    fn a_message_of_another_version_has_no_kind() {
        let message = Message::new(MessageKind::Launch, 1, 0);
        assert_eq!(message.message_kind(), Some(MessageKind::Launch));
        assert_eq!(Message { magic: 0, ..message }.message_kind(), None);
        assert_eq!(Message { version: VERSION + 1, ..message }.message_kind(), None);
        assert_eq!(Message { kind: 6, ..message }.message_kind(), None);
    }
}
