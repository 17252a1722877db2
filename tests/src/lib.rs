//! What the tests share: the parent's state before and after ([`state`]), filters that refuse system calls
//! ([`filter`], and those of others: [`profile`]), what a process is ([`observe`]), the behaviour table and its player ([`table`]).

pub mod filter;
pub mod observe;
pub mod profile;
pub mod state;
pub mod table;
