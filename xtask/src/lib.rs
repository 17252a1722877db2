//! What tasks and tests share: how the C library and the modules of other languages are built and installed, what comes from other
//! packages, what real programs gain, and the pages that are written from the sources.

pub mod background;
pub mod dist;
pub mod inventory;
pub mod modules;
pub mod noshell;
pub mod packages;
pub mod preload;
pub mod real;
pub mod trust;
