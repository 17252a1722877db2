//! What the tests share: the parent's state before and after ([`state`]), filters that refuse system calls
//! ([`filter`], and those of others: [`profile`]), what a process is ([`observe`]), how long it may take ([`patience`]), the
//! behaviour table and its player ([`table`]).

pub mod filter;
pub mod observe;
pub mod patience;
pub mod profile;
pub mod state;
pub mod table;
