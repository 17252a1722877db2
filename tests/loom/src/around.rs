//! What the product's modules have around them, as far as a model needs it. The caller is a process with one user, whose
//! memory the kernel shows as dumpable or not.

/// `crate::process`
pub mod process {
    pub fn generation() -> u32 {
        1
    }
}

/// `crate::plan`
pub mod plan {
    #[derive(Default)]
    pub struct IdMaps {
        pub uid: String,
        pub gid: String,
    }
}

/// `crate::request`
pub mod request {
    pub mod command {
        /// No child of a model has a cgroup of its own.
        pub trait LaunchGroup {}
    }
}

/// `crate::kernel`
pub mod kernel {
    use forkless_core::sync::AtomicU32;
    use std::sync::atomic::Ordering::SeqCst;

    /// Whether the kernel lets other processes of this user read the memory.
    pub static DUMPABLE: AtomicU32 = AtomicU32::new(1);

    pub enum Prctl {
        Dumpable,
        SetDumpable,
    }

    pub fn prctl(option: Prctl, value: usize) -> Result<i32, i32> {
        match option {
            Prctl::Dumpable => Ok(DUMPABLE.load(SeqCst) as i32),
            Prctl::SetDumpable if value > 1 => Err(forkless_core::sys::errno::EINVAL),
            Prctl::SetDumpable => {
                DUMPABLE.store(value as u32, SeqCst);
                Ok(0)
            }
        }
    }

    pub fn has_shared_memory(_: i32) -> Result<bool, i32> {
        Ok(false)
    }

    pub fn capabilities() -> [u64; 3] {
        [1; 3]
    }

    pub fn user_ids() -> [u32; 3] {
        [1000; 3]
    }

    pub fn group_ids() -> [u32; 3] {
        [1000; 3]
    }
}

/// `crate::procfs`. A model's threads are one thread for the kernel, so no other thread's status is read.
pub mod procfs {
    use rustix::fs::OFlags;
    use std::fs::File;
    use std::io;

    pub struct Process;

    impl Process {
        pub fn open(_: i32) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub fn file(self, _: &str, _: OFlags) -> io::Result<File> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    pub fn own(name: &str) -> String {
        name.to_owned()
    }

    pub struct Status;

    impl Status {
        pub fn of_file(_: &File) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub fn values<const N: usize>(&self, _: [&str; N]) -> [Option<&[u8]>; N] {
            [None; N]
        }

        pub fn number(_: Option<&[u8]>, _: u32) -> Option<u64> {
            None
        }
    }
}

/// `nix::time`: the clock stands, so no launch is overdue.
pub mod time {
    #[allow(non_camel_case_types)]
    pub enum ClockId {
        CLOCK_MONOTONIC,
    }

    pub struct Time;

    impl Time {
        pub fn tv_sec(&self) -> i64 {
            1
        }

        pub fn tv_nsec(&self) -> i64 {
            0
        }
    }

    pub fn clock_gettime(_: ClockId) -> Result<Time, ()> {
        Ok(Time)
    }
}
