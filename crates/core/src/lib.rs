//! The part of forkless that may run in the child.
//!
//! Between `clone3` and `execve` the child shares its caller's memory. All that it does there affects the caller: a
//! lock that it takes is never released, an allocation corrupts a heap that other threads use, and a libc call
//! overwrites the caller's `errno`. So all code that runs there is in this crate, which cannot do any of this: it has
//! no heap, no libc, no locks and no thread-local storage. Its release library calls no function outside of itself
//! except `memcpy` and similar ones (a test checks this).
//!
//! Read it in this order: [`plan`] (the child's steps, as flat data), [`frame`] (the state of one run), [`child`]
//! (the loop that plays the plan), then the steps: [`fds`], [`process`], [`signals`], [`call`], [`exec`]. [`forked`]
//! is the entry of a child with its own memory, [`zygote_child`] that of a child of a zygote (which uses [`attributes`],
//! [`parcel`] and [`sender`]), and [`vfork_call`] that of a child that calls a function of the user. [`init`] is the first
//! process of a sandbox. [`report`] evaluates the result of a run, [`sys`] makes the system calls, [`sync`] has the atomic
//! types, and [`robust`] has the kernel mark a futex word when a child leaves.
#![no_std]
#![allow(clippy::missing_safety_doc, reason = "each module's head states the one contract all its functions share")]

#[doc(hidden)]
pub mod plan;
pub mod frame;
pub mod child;
pub mod fds;
pub mod procfs;
pub mod process;
pub mod signals;
pub mod call;
pub mod exec;
pub mod init;
pub mod robust;
pub mod forked;
pub mod zygote_child;
pub mod attributes;
pub mod parcel;
pub mod sender;
pub mod vfork_call;
pub mod report;
pub mod sys;
pub mod sync;
