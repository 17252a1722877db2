//! Functions of libc that the compiler calls. With those of libc, each child would touch pages of libc before it is the
//! program: a page fault each, which maps sixteen pages.
//!
//! They are not exported: the program's own calls reach libc.
//!
//! # Safety
//! The contracts of memcpy(3), memset(3) and strlen(3).

use core::arch::asm;
use core::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_load_si128, _mm_movemask_epi8, _mm_setzero_si128};

#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the contract of memcpy(3). The direction flag is clear (System V ABI).
    unsafe {
        asm!("rep movsb", inout("rcx") length => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the contract of memset(3). The direction flag is clear (System V ABI).
    unsafe {
        asm!("rep stosb", inout("rcx") length => _, inout("rdi") to => _, in("al") byte as u8,
            options(nostack, preserves_flags));
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    const BLOCK: usize = size_of::<__m128i>();
    let offset = text as usize % BLOCK;
    // SAFETY: an aligned block does not cross a page, so all of it can be read if one byte of it can.
    unsafe {
        let mut block = text.wrapping_sub(offset).cast::<__m128i>();
        let ends = |block| _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_load_si128(block), _mm_setzero_si128())) as u32;
        // Bytes before the text do not count.
        let mut found = ends(block) >> offset << offset;
        while found == 0 {
            block = block.add(1);
            found = ends(block);
        }
        block as usize + found.trailing_zeros() as usize - text as usize
    }
}
