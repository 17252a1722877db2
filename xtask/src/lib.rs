//! What tasks and tests share: how the C library is built and installed.

pub mod dist;
