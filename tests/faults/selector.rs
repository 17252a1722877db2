//! Selects a planted fault: `cargo xtask mutants` makes this file a module of forkless-core in its copy of the tree, which has all
//! faults of this directory. `planted!("name")` is true in a process that was started with FORKLESS_PLANTED=name.

/// Whether this fault is selected.
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        $crate::planted::is_chosen(const { $crate::planted::mark($name.as_bytes()) })
    };
}

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

const VARIABLE: &[u8] = b"FORKLESS_PLANTED=";

/// The hash of the selected fault; 0: none.
static CHOSEN: AtomicU64 = AtomicU64::new(0);

/// The FNV-1a hash of a name.
pub const fn mark(name: &[u8]) -> u64 {
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325u64, 0);
    while at < name.len() {
        hash = (hash ^ name[at] as u64).wrapping_mul(0x100_0000_01b3);
        at += 1;
    }
    hash
}

/// Whether this fault is selected. A plain load, because it may run in a child.
#[inline]
pub fn is_chosen(mark: u64) -> bool {
    // A reference, so that the constructor is linked.
    let _ = &raw const AT_START;
    CHOSEN.load(Relaxed) == mark
}

/// Runs before `main`, and when a library is loaded. glibc passes the arguments of `main` to constructors.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = choose;

extern "C" fn choose(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    let mut entry = environment;
    // SAFETY: the environment of main: pointers to strings, ended by a null pointer.
    unsafe {
        while !entry.is_null() && !(*entry).is_null() {
            if let Some(name) = CStr::from_ptr(*entry).to_bytes().strip_prefix(VARIABLE) {
                CHOSEN.store(if name.is_empty() { 0 } else { mark(name) }, Relaxed);
            }
            entry = entry.add(1);
        }
    }
}
