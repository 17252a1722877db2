//! Shared code of the tests: a process's state before and after a launch ([`state`]), seccomp filters ([`filter`], and
//! those of other projects: [`profile`]), attributes of a process ([`observe`]), time limits ([`patience`]), signals
//! ([`process`]), the behaviour table and its player ([`table`]), dependencies between files ([`modules`]), a crate's
//! public functions ([`public`]), tracing of system calls ([`trace`]), the matrix of refused calls ([`matrix`]), and
//! what is written from the table of settings ([`generated`]).

pub mod attributes;
pub mod filter;
pub mod features;
pub mod generated;
pub mod matrix;
pub mod modules;
pub mod observe;
pub mod patience;
pub mod process;
pub mod profile;
pub mod public;
pub mod state;
pub mod supervise;
pub mod table;
pub mod trace;

/// The examples of the repository's README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// The examples of the page about tool calls.
#[cfg(doctest)]
#[doc = include_str!("../../docs/agents.md")]
struct Agents;

/// The example of the page about warm programs.
#[cfg(doctest)]
#[doc = include_str!("../../docs/warm.md")]
struct WarmPrograms;

/// The questions and answers.
#[cfg(doctest)]
#[doc = include_str!("../../docs/faq.md")]
struct Questions;

/// The tour of the Rust library.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tour/rust.md")]
struct Tour;
