//! What tasks and tests share: how the C library and the modules of other languages are built and installed, what comes from other
//! packages, and what real programs gain.

pub mod background;
pub mod dist;
pub mod fuzz;
pub mod modules;
pub mod mutants;
pub mod noshell;
pub mod packages;
pub mod preload;
pub mod real;
pub mod soak;
