//! The runners of the command `forkless`: `xargs`, `parallel` and `gearman-worker`. Each has its options, as clap defines
//! them, and a function that runs it. The engine is that of `forkless-jobs`.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "doc comments of options are help texts, in which [brackets] are no links"
)]

pub mod message;
mod no_input;
mod warm;
#[cfg(feature = "gearman")]
pub mod gearman_worker;
pub mod parallel;
pub mod xargs;
