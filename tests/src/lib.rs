//! What the tests share: the parent's state before and after ([`state`]), filters that refuse system calls
//! ([`filter`]), what a process is ([`observe`]), how long it may take ([`patience`]), the behaviour table and its player ([`table`]).

pub mod filter;
pub mod observe;
pub mod patience;
pub mod state;
pub mod table;
