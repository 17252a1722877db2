//! What a program reads and writes: its streams while it runs (`stream`), all of its output at its end (`capture`), and programs that
//! are connected (`pipeline`).

pub(crate) mod capture;
#[cfg(feature = "capture")]
pub(crate) mod pipeline;
pub(crate) mod quiet;
pub(crate) mod stream;
