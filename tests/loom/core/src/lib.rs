//! The sources of `crates/core`. Only [`sync`] is another one, and a child does not exit: its thread ends.

#![allow(dead_code, unused_imports, missing_docs)]

#[path = "../../../../crates/core/src/attributes.rs"]
pub mod attributes;
#[path = "../../../../crates/core/src/call.rs"]
pub mod call;
#[path = "../../../../crates/core/src/child.rs"]
pub mod child;
#[path = "../../../../crates/core/src/exec.rs"]
pub mod exec;
#[path = "../../../../crates/core/src/fds.rs"]
pub mod fds;
#[path = "../../../../crates/core/src/forked.rs"]
pub mod forked;
#[path = "../../../../crates/core/src/frame.rs"]
pub mod frame;
#[path = "../../../../crates/core/src/parcel.rs"]
pub mod parcel;
#[path = "../../../../crates/core/src/plan.rs"]
pub mod plan;
#[path = "../../../../crates/core/src/process.rs"]
pub mod process;
#[path = "../../../../crates/core/src/procfs.rs"]
pub mod procfs;
#[path = "../../../../crates/core/src/report.rs"]
pub mod report;
#[path = "../../../../crates/core/src/robust.rs"]
pub mod robust;
#[path = "../../../../crates/core/src/signals.rs"]
pub mod signals;
pub mod sync;
#[path = "../../../../crates/core/src/sys/mod.rs"]
mod system_calls;
#[path = "../../../../crates/core/src/zygote_child.rs"]
pub mod zygote_child;

/// System calls.
pub mod sys {
    pub use crate::system_calls::*;

    /// The end of a child: its thread unwinds to where the model started it.
    pub struct Exit;

    pub fn exit(_: i32) -> ! {
        std::panic::resume_unwind(Box::new(Exit))
    }
}
