//! The library for `LD_PRELOAD`: libc's own functions that start processes, by forkless.
//!
//! [`exported`] has the names; what each does is in the module of its kind. [`settings`] is what the user says in the environment,
//! [`next`] what libc has under the same names, for where this library steps aside.
//!
//! Objects of `posix_spawn(3)` are laid out as glibc lays them out, so it does not matter which of the two has filled one; whether
//! that is so is looked at once ([`spawn::layout`]), and where it is not, libc serves them all.

mod exported;

mod settings;

mod log;

mod next;

mod inherit;

mod spawn;

mod popen;

mod system;

mod dumpable;
