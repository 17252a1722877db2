//! Types for the values of settings: resources, policies, classes.

use crate::procfs;
use forkless_core::sys::mempolicy;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::str::FromStr;

macro_rules! resources {
    ($($name:ident = $number:literal $word:literal, $doc:literal;)*) => {
        /// A resource that can be limited: `getrlimit(2)`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Resource {
            $(#[doc = concat!("Limits ", $doc, ".")] $name = $number,)*
        }

        impl Resource {
            /// All of them, by their numbers, which are those of `RLIMIT_CPU` and so on.
            pub const ALL: [Self; 16] = [$(Self::$name),*];

            /// The name that `prlimit(1)` uses.
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
            pub fn describe(self) -> &'static str {
                match self { $(Self::$name => concat!("Limit ", $doc),)* }
            }
        }
    };
}

// The only list of resources: front ends and tests derive theirs from it.
resources! {
    Cpu = 0 "cpu", "the CPU time, in seconds";
    FileSize = 1 "fsize", "the size of the files that the process writes, in bytes";
    Data = 2 "data", "the data segment, in bytes";
    Stack = 3 "stack", "the stack, in bytes";
    Core = 4 "core", "the size of a core dump, in bytes";
    Rss = 5 "rss", "the resident set, in bytes (without effect since Linux 2.4.30)";
    Processes = 6 "nproc", "the number of processes and threads of the real user";
    Files = 7 "nofile", "the file descriptors: one above the highest number that the process may use";
    LockedMemory = 8 "memlock", "the locked memory, in bytes";
    AddressSpace = 9 "as", "the address space (virtual memory), in bytes";
    Locks = 10 "locks", "the number of file locks (without effect since Linux 2.4.25)";
    PendingSignals = 11 "sigpending", "the number of queued signals of the real user";
    MessageQueues = 12 "msgqueue", "the memory of POSIX message queues, in bytes";
    Nice = 13 "nice", "the nice value: 20 minus the lowest that the process may set";
    RealtimePriority = 14 "rtprio", "the real-time priority";
    RealtimeTime = 15 "rttime", "the real-time CPU time without a blocking call, in microseconds";
}

/// No limit, for [`Command::rlimit`](crate::Command::rlimit).
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
    /// Only when no other process uses the disk.
    Idle = 3,
}

/// Which NUMA nodes memory comes from, for [`Command::memory_policy`](crate::Command::memory_policy): `set_mempolicy(2)`.
///
/// As text it is `local`, `preferred:NODE`, `membind:NODES` or `interleave:NODES`; the nodes are numbers and ranges, as in `0-3,5`, or
/// `all`: those that the calling process may use when the text is parsed.
///
/// ```
/// use forkless::MemoryPolicy;
/// let policy: MemoryPolicy = "membind:0-2,5".parse()?;
/// assert_eq!(policy, MemoryPolicy::membind([0, 1, 2, 5]));
/// assert_eq!(policy.to_string(), "membind:0-2,5");
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPolicy {
    mode: Mode,
    nodes: BTreeSet<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Preferred = mempolicy::MPOL_PREFERRED as isize,
    Membind = mempolicy::MPOL_BIND as isize,
    Interleave = mempolicy::MPOL_INTERLEAVE as isize,
    Local = mempolicy::MPOL_LOCAL as isize,
}

/// No kernel supports more nodes.
const MOST_NODES: usize = 1024;

impl MemoryPolicy {
    /// From the node of the CPU that allocates it: MPOL_LOCAL.
    pub fn local() -> Self {
        Self { mode: Mode::Local, nodes: BTreeSet::new() }
    }

    /// From this node, and from others when it has none left: MPOL_PREFERRED.
    pub fn preferred(node: usize) -> Self {
        Self { mode: Mode::Preferred, nodes: [node].into() }
    }

    /// From these nodes only: MPOL_BIND.
    pub fn membind<I: IntoIterator<Item = usize>>(nodes: I) -> Self {
        Self { mode: Mode::Membind, nodes: nodes.into_iter().collect() }
    }

    /// From these nodes in turn, page by page: MPOL_INTERLEAVE.
    pub fn interleave<I: IntoIterator<Item = usize>>(nodes: I) -> Self {
        Self { mode: Mode::Interleave, nodes: nodes.into_iter().collect() }
    }

    pub(crate) fn mode(&self) -> u32 {
        self.mode as u32
    }

    /// A bit for each node. A number above the maximum sets the bit after the last valid one, which the kernel refuses.
    pub(crate) fn mask(&self) -> Vec<u64> {
        let mut mask = vec![0; MOST_NODES / 64 + 1];
        for &node in &self.nodes {
            let node = node.min(MOST_NODES);
            mask[node / 64] |= 1 << (node % 64);
        }
        mask
    }

    /// The argument `maxnode`: the kernel reads one bit less than that.
    pub(crate) fn bits(&self) -> u64 {
        if self.nodes.is_empty() { 1 } else { MOST_NODES as u64 + 2 }
    }
}

impl fmt::Display for MemoryPolicy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.mode {
            Mode::Preferred => "preferred:",
            Mode::Membind => "membind:",
            Mode::Interleave => "interleave:",
            Mode::Local => return write!(out, "local"),
        };
        write!(out, "{word}")?;
        let is_in = |node: usize| self.nodes.contains(&node);
        let mut comma = "";
        for &first in self.nodes.iter().filter(|&&node| node == 0 || !is_in(node - 1)) {
            let last = (first..).take_while(|&node| is_in(node)).last().unwrap_or(first);
            write!(out, "{comma}{first}")?;
            if last > first {
                write!(out, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

impl FromStr for MemoryPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, list) = text.split_once(':').unwrap_or((text, ""));
        match (word, list) {
            ("local", "") if !text.contains(':') => Ok(Self::local()),
            ("preferred", node) if node.bytes().all(|byte| byte.is_ascii_digit()) => {
                nodes(node).map(|nodes| Self { mode: Mode::Preferred, nodes })
            }
            ("membind", list) => nodes(list).map(Self::membind),
            ("interleave", list) => nodes(list).map(Self::interleave),
            _ => Err(format!("{text:?} is none of local, preferred:NODE, membind:NODES and interleave:NODES")),
        }
    }
}

/// `0-3,5`, or `all`.
fn nodes(list: &str) -> Result<BTreeSet<usize>, String> {
    if list == "all" {
        let status = fs::read_to_string(procfs::own("status")).unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"));
        return nodes(allowed.ok_or("/proc/self/status does not say which nodes are all: name them")?.trim());
    }
    let wrong = || format!("{list:?} is no list of nodes, such as 0-3,5 or all");
    let number = |text: &str| text.parse::<usize>().ok().filter(|node| *node < MOST_NODES).ok_or_else(wrong);
    let mut found = BTreeSet::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(wrong());
        }
        found.extend(first..=last);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::MemoryPolicy;

    #[test]
    fn memory_policies_are_numactls_words() {
        for text in ["local", "preferred:7", "membind:0-3,5", "interleave:0,2,1022-1023"] {
            assert_eq!(text.parse::<MemoryPolicy>().map(|policy| policy.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("membind:3,1,2".parse(), Ok(MemoryPolicy::membind([1, 2, 3])));
        assert!("interleave:all".parse::<MemoryPolicy>().is_ok_and(|policy| policy.to_string() != "interleave:"));
        for text in [
            "",
            "local:",
            "local:0",
            "preferred",
            "preferred:0-1",
            "preferred:all",
            "membind",
            "membind:",
            "membind:1-0",
        ] {
            assert!(text.parse::<MemoryPolicy>().is_err(), "{text}");
        }
        for text in ["membind:1024", "membind:0,,1", "membind:-1", "membind:+1-2 ", "interleave:x", "default", "bind:0"]
        {
            assert!(text.parse::<MemoryPolicy>().is_err(), "{text}");
        }
    }

    #[test]
    fn masks_have_a_bit_for_each_node_and_one_for_what_cannot_be() {
        let mask = |nodes: &[usize]| MemoryPolicy::membind(nodes.iter().copied()).mask();
        assert_eq!(mask(&[0, 65])[..2], [1, 2]);
        assert_eq!((mask(&[usize::MAX])[16], mask(&[1023])[15]), (1, 1 << 63));
    }
}
