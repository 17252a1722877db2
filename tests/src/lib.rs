//! What the tests share: the parent's state before and after ([`state`]), filters that refuse system calls
//! ([`filter`], and those of others: [`profile`]), what a process is ([`observe`]), how long it may take ([`patience`]), signals
//! to it ([`process`]), the behaviour table and its player ([`table`]), which files of a crate need each other ([`modules`]), its
//! public functions ([`public`]), the system calls that a program makes ([`trace`]) and what comes of each when it is refused ([`matrix`]).

pub mod filter;
pub mod matrix;
pub mod modules;
pub mod observe;
pub mod patience;
pub mod process;
pub mod profile;
pub mod public;
pub mod state;
pub mod table;
pub mod trace;
