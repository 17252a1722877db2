//! What settings are given: resources, policies, classes.

macro_rules! resources {
    ($($name:ident = $number:literal $word:literal, $doc:literal;)*) => {
        /// A resource that can be limited: `getrlimit(2)`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Resource {
            $(#[doc = concat!($doc, ".")] $name = $number,)*
        }

        impl Resource {
            /// All of them, by their numbers, which are those of `RLIMIT_CPU` and so on.
            pub const ALL: [Self; 16] = [$(Self::$name),*];

            /// What `prlimit(1)` calls it.
            ///
            /// ```
            /// use forkless::Resource;
            /// assert_eq!(Resource::Files.name(), "nofile");
            /// assert_eq!(Resource::ALL[7], Resource::Files);
            /// ```
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            #[doc(hidden)]
            pub fn words(self) -> &'static str {
                match self { $(Self::$name => $doc,)* }
            }
        }
    };
}

// The one list of them: every front end and every test has its own from here.
resources! {
    Cpu = 0 "cpu", "Processor time, in seconds";
    FileSize = 1 "fsize", "Size of a written file, in bytes";
    Data = 2 "data", "Data segment, in bytes";
    Stack = 3 "stack", "Stack, in bytes";
    Core = 4 "core", "Core dump, in bytes";
    Rss = 5 "rss", "Resident set, in bytes (without effect since Linux 2.4.30)";
    Processes = 6 "nproc", "Processes of the real user";
    Files = 7 "nofile", "Descriptor numbers: one above the highest";
    LockedMemory = 8 "memlock", "Locked memory, in bytes";
    AddressSpace = 9 "as", "Address space, in bytes";
    Locks = 10 "locks", "File locks (without effect since Linux 2.4.25)";
    PendingSignals = 11 "sigpending", "Queued signals";
    MessageQueues = 12 "msgqueue", "POSIX message queues, in bytes";
    Nice = 13 "nice", "Ceiling of the nice value, as 20 minus nice";
    RealtimePriority = 14 "rtprio", "Ceiling of the real-time priority";
    RealtimeTime = 15 "rttime", "Real-time CPU time without a blocking call, in microseconds";
}

/// No limit, for [`Command::rlimit`].
pub const RLIM_INFINITY: u64 = u64::MAX;

/// A scheduling policy: `sched(7)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Scheduler {
    /// SCHED_OTHER, the default.
    Other = 0,
    /// SCHED_FIFO, a real-time policy.
    Fifo = 1,
    /// SCHED_RR, a real-time policy with time slices.
    RoundRobin = 2,
    /// SCHED_BATCH.
    Batch = 3,
    /// SCHED_IDLE.
    Idle = 5,
}

/// A class of I/O priority: `ioprio_set(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum IoClass {
    /// First at the disk; needs CAP_SYS_ADMIN or CAP_SYS_NICE.
    Realtime = 1,
    /// The default.
    BestEffort = 2,
    /// Only when nobody else wants the disk.
    Idle = 3,
}
