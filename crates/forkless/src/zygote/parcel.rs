//! How the helper reads the part of a parcel that only it uses: see [`forkless_core::parcel`] for the rest.

use super::message::{ARENA_AT, Order};
pub(super) use forkless_core::parcel::{MOST, SHORTEST, arena, is_inside, patch};
use std::ptr::NonNull;

/// The list of functions to call. `None` if it is outside the parcel.
///
/// # Safety
/// As for [`patch`]; no code writes to the list while it is in use.
pub(super) unsafe fn calls<'a>(memory: NonNull<u8>, length: usize, order: &Order) -> Option<&'a [u8]> {
    let (start, count) = (ARENA_AT + order.calls as usize, order.calls_len as usize);
    // SAFETY: inside, as is checked first.
    is_inside(start, count, length)
        .then(|| unsafe { std::slice::from_raw_parts(memory.byte_add(start).as_ptr(), count) })
}

/// The target of a fuzzer.
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzed {
    use super::{ARENA_AT, Order, SHORTEST, arena, calls, patch};
    use crate::zygote::message::{Message, message_of};
    use crate::zygote::registry::read_calls;
    use forkless_core::parcel::ORDER_AT;
    use forkless_core::plan::{Header, MAGIC, VERSION};
    use std::mem::offset_of;
    use std::os::fd::RawFd;
    use std::ptr::NonNull;

    /// Checks that arbitrary bytes are read as at most one kind of message.
    pub(crate) fn message(bytes: &[u8]) {
        let mut message = [0; size_of::<Message>()];
        message.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        let _ = message_of(message).message_kind();
    }

    /// The number of words on each side of a parcel that must stay unchanged.
    const FENCE: usize = 64;

    /// A parcel of arbitrary bytes: a word of flags, the order's numbers, offsets, then the arena.
    pub(crate) fn parcel(bytes: &[u8]) {
        let mut rest = bytes;
        let mut number = || match rest.split_first_chunk::<4>() {
            Some((word, after)) => {
                rest = after;
                u32::from_le_bytes(*word)
            }
            None => 0,
        };
        let (flags, count) = (number(), number());
        let length = (SHORTEST + (flags >> 16) as usize).next_multiple_of(8);
        let mut memory = vec![0u64; FENCE + length / 8 + FENCE];
        let fence = 0x5afe_5afe_5afe_5afe;
        memory[..FENCE].fill(fence);
        memory[FENCE + length / 8..].fill(fence);
        let parcel = NonNull::new(memory[FENCE..].as_mut_ptr().cast::<u8>()).expect("no null");
        let put = |at: usize, value: u32| {
            // SAFETY: `at` is inside the parcel.
            unsafe { parcel.byte_add(at).cast::<u32>().write_unaligned(value) };
        };
        put(ORDER_AT + offset_of!(Order, descriptors), count);
        put(ORDER_AT + offset_of!(Order, calls), number());
        put(ORDER_AT + offset_of!(Order, calls_len), number());
        let numbers: Vec<RawFd> = (0..count.min(flags & 0x3f) as i32).collect();
        for n in 0..numbers.len() {
            put(ORDER_AT + offset_of!(Order, patches) + n * 4, number());
        }
        // SAFETY: the parcel has this many bytes from the arena's start on.
        let to = unsafe { std::slice::from_raw_parts_mut(parcel.byte_add(ARENA_AT).as_ptr(), length - ARENA_AT) };
        to.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        if flags & 0x40 != 0 {
            // Values that a fuzzer would hardly guess.
            put(ARENA_AT + offset_of!(Header, magic), MAGIC);
            put(ARENA_AT + offset_of!(Header, version), VERSION);
        }
        // SAFETY: the parcel is this function's own memory, of `length` bytes.
        unsafe {
            if patch(parcel, length, &numbers) {
                let _ = arena(parcel, length);
            }
            let order = parcel.byte_add(ORDER_AT).cast::<Order>().as_ref();
            if let Some(list) = calls(parcel, length, order) {
                let read: usize = read_calls(list).map(|(name, bytes)| 16 + name.len() + bytes.len()).sum();
                assert!(read <= list.len());
            }
        }
        let is_whole = |words: &[u64]| words.iter().all(|&word| word == fence);
        assert!(is_whole(&memory[..FENCE]) && is_whole(&memory[FENCE + length / 8..]), "written outside of the parcel");
    }
}
