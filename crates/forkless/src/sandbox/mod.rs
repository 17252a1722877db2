//! What a sandboxed program may do.

mod calls;
pub mod filter;
