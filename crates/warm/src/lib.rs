//! `libforkless_warm.so`: the library in a *template*, a program that the dynamic loader has loaded and that waits to be
//! cloned.
//!
//! `forkless::warm` executes a program with this library in `LD_PRELOAD`. The library has the name of libc's
//! `__libc_start_main`, which each program calls first: the loader has mapped and relocated all libraries then, and has run
//! their constructors, but no code of the program itself except `_start`. There the library stops and serves: it receives
//! plans from the caller, over the protocol of a zygote ([`forkless_core::parcel`]). For each it clones a child of the
//! caller with its own memory. The child plays the plan, and in place of `execve(2)` becomes the program: see
//! [`program`].
//!
//! The library lives in programs that know nothing of it. So it has no heap and no thread-local storage, and calls no
//! function of libc except `dlsym(3)`, `dl_iterate_phdr(3)`, those that it interposes, and `memcmp(3)` (only in the
//! template). Everything else is a system call, or in [`memory`].
//!
//! Read it in this order: [`start`] (libc's two names), [`template`] (the loop), [`program`] (the child), [`bind`] (what
//! the loader would do in each child), [`pages`] (what page faults would do in each child).
//!
//! # Safety
//! The template has one thread: the caller checks that. So the library's static memory needs no lock.
#![no_std]
#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#![allow(clippy::missing_safety_doc, reason = "the head of the crate states the one contract all its functions share")]

// Gives the static library the panic handler that every build must have. Of std, the installed library has only a
// constructor that notes where the arguments are.
extern crate std as _;

mod start;
mod template;
mod program;
mod bind;
mod pages;
mod memory;
