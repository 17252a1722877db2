//! What tasks and tests share: how the C library is built and installed, and what comes from other packages.

pub mod dist;
pub mod noshell;
pub mod packages;
pub mod preload;
