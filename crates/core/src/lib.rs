//! The part of forkless that may run in the child.
//!
//! Between `clone3` and `execve` the child shares its parent's memory. Whatever it touches, the parent has touched: a
//! lock it takes stays taken, an allocation corrupts a heap that others are using, a libc call overwrites the parent's
//! `errno`. So everything that runs there lives in this crate, and this crate can do none of those things: it has no
//! heap, no libc, no locks, no thread-local storage, and its release library calls no function outside itself but
//! `memcpy` and friends (a test holds it to that).
//!
//! Read it in this order: [`plan`] (what the child is to do, as flat data), [`frame`] (what belongs to one run),
//! [`child`] (the loop that plays the plan back), then the steps: [`fds`], [`process`], [`signals`], [`call`], [`exec`];
//! [`forked`] is the entry of a child with memory of its own, [`zygote_child`] of one that another process clones, and
//! [`vfork_call`] of one that calls a function of the caller's own. [`report`] reads what a child has left in its frame; [`sys`] makes the
//! system calls, and [`robust`] has the kernel mark a word when a child leaves.
#![no_std]
#![allow(clippy::missing_safety_doc, reason = "each module's head states the one contract all its functions share")]

#[doc(hidden)]
pub mod planted;

pub mod plan;

pub mod frame;

pub mod child;

pub mod fds;

pub mod process;

pub mod signals;

pub mod call;

pub mod exec;

pub mod robust;

pub mod forked;

pub mod zygote_child;

pub mod vfork_call;

pub mod report;

pub mod sys;
