//! The library for `LD_PRELOAD`: implements libc's functions that start processes with forkless.
//!
//! [`exported`] has the exported names, and the other modules implement them. [`settings`] reads the environment
//! variables, and [`next`] finds libc's own functions, for calls that this library does not handle.
//!
//! Objects of `posix_spawn(3)` have glibc's layout, so both libraries can fill and read them. The layout is verified
//! once ([`spawn::layout`]); if it differs, libc handles all calls.
//!
//! As in libc's functions, no signal handler runs while the library works ([`sealed`]), and its memory is not of malloc
//! ([`heap`]).

mod exported;
mod sealed;
mod heap;
mod settings;
mod log;
mod next;
mod inherit;
mod spawn;
mod popen;
mod system;
mod dumpable;
