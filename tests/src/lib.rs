//! What the tests share: the parent's state before and after ([`state`]), filters that refuse system calls
//! ([`filter`]), what a process is ([`observe`]), the behaviour table and its player ([`table`]), the system calls that a
//! program makes ([`trace`]) and what comes of each when it is refused ([`matrix`]).

pub mod filter;
pub mod matrix;
pub mod observe;
pub mod state;
pub mod table;
pub mod trace;
