//! Faults on purpose: how it is seen that a test fails when the rule is broken that it is there for.
//!
//! `if planted!("name") { … }` marks a place where a rule can be broken. In every ordinary build that is `if false`, and
//! nothing of it is left. With the feature `planted`, which only the builds for these trials have, it is true in a process
//! that was started with `FORKLESS_PLANTED=name`.
//!
//! The list of the faults, each with its reason and the tests that have to fail, is `tests/planted.toml`.

#[cfg(not(feature = "planted"))]
#[doc(hidden)]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        false
    };
}

#[cfg(feature = "planted")]
#[doc(hidden)]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        $crate::planted::is_chosen(const { $crate::planted::mark($name.as_bytes()) })
    };
}

#[cfg(feature = "planted")]
pub use chosen::{is_chosen, mark};

#[cfg(feature = "planted")]
mod chosen {
    use core::ffi::{CStr, c_char, c_int};
    use core::sync::atomic::AtomicU64;
    use core::sync::atomic::Ordering::Relaxed;

    const VARIABLE: &[u8] = b"FORKLESS_PLANTED=";

    /// The mark of the fault that was chosen; 0: none.
    static CHOSEN: AtomicU64 = AtomicU64::new(0);

    /// A name as a number: FNV-1a.
    pub const fn mark(name: &[u8]) -> u64 {
        let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325u64, 0);
        while at < name.len() {
            hash = (hash ^ name[at] as u64).wrapping_mul(0x100_0000_01b3);
            at += 1;
        }
        hash
    }

    /// Is this the fault that is wanted? A load: it may be asked in a child, too.
    #[inline]
    pub fn is_chosen(mark: u64) -> bool {
        // So that whoever asks has the constructor linked.
        let _ = &raw const AT_START;
        CHOSEN.load(Relaxed) == mark
    }

    /// Before `main`, and when a library is loaded: glibc gives constructors the arguments of `main`.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static AT_START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = choose;

    extern "C" fn choose(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
        let mut entry = environment;
        // SAFETY: the environment of main: pointers to strings, behind the last of them a null pointer.
        unsafe {
            while !entry.is_null() && !(*entry).is_null() {
                if let Some(name) = CStr::from_ptr(*entry).to_bytes().strip_prefix(VARIABLE) {
                    CHOSEN.store(if name.is_empty() { 0 } else { mark(name) }, Relaxed);
                }
                entry = entry.add(1);
            }
        }
    }
}
