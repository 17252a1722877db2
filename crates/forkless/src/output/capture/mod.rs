//! Reading what programs write until they have ended. `drive` is the loop, with a `reader` for each stream; `run` has input, limits and
//! a timeout besides.

#[cfg(feature = "capture")]
mod content;
pub(crate) mod drive;
pub(crate) mod reader;
#[cfg(feature = "capture")]
pub(crate) mod run;

#[cfg(feature = "capture")]
pub use self::{
    content::Content,
    run::{Capture, Captured},
};
