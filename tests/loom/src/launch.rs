//! The product's modules about a launch, and in place of their neighbours what a model needs of these.

#[path = "../../../crates/forkless/src/launch/dumpable.rs"]
#[allow(dead_code)]
pub mod dumpable;
#[path = "../../../crates/forkless/src/launch/features.rs"]
#[allow(dead_code)]
mod features;
#[path = "../../../crates/forkless/src/launch/maps.rs"]
#[allow(dead_code)]
mod maps;
#[path = "../../../crates/forkless/src/launch/pool.rs"]
#[allow(dead_code)]
mod pool;

#[path = "models/dumpable.rs"]
pub mod of_dumpable;
#[path = "models/frame.rs"]
pub mod of_frame;
#[path = "models/pool.rs"]
pub mod of_pool;
#[path = "models/probes.rs"]
pub mod of_probes;

mod creator {
    pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
        work()
    }
}

mod dumps {
    pub fn forbid() {}
}

mod forked {
    pub fn has_executed(_: i32) -> bool {
        true
    }

    pub fn has_mark_or_ended(_: i32) -> Option<bool> {
        Some(true)
    }
}

mod stack {
    use forkless_core::frame::Frame;
    use forkless_core::sync::{AtomicI32, AtomicU32};

    pub struct Stack(pub &'static Frame);

    impl Stack {
        pub fn handshake(&self) -> (&'static AtomicU32, &'static AtomicU32, &'static AtomicI32, &'static AtomicU32) {
            (&self.0.go, &self.0.asked, &self.0.pid, &self.0.word)
        }
    }
}

pub mod pending {
    use crate::Written;

    /// The child has left before the handle was dropped.
    pub struct Pending(pub Written);

    impl Pending {
        pub fn has_left(&self) -> bool {
            self.0.read() == 1
        }
    }
}

pub mod wait {
    use std::os::fd::OwnedFd;

    pub const NOBODY: i32 = 0;

    pub fn has_gone(pid: i32, _: Option<&OwnedFd>) -> bool {
        crate::child::of_orphans::reap(pid)
    }
}
