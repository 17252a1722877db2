//! What the parent is made to look like while it launches: its memory, mappings and open files.
//!
//! A [`Parent`] gives everything back when it is dropped, so that each condition starts from the same process.

use std::{fs, io, os::fd::OwnedFd, ptr};

use anyhow::{Context, Result, bail};
use rustix::{
    mm::{Advice, MapFlags, MprotectFlags, ProtFlags},
    net::{AddressFamily, SocketFlags, SocketType},
    process::{Resource, Rlimit},
};

use super::{
    faulting::Faulting,
    options::{BenchOptions, Part},
    settings::Setting,
};

/// File descriptors left free below the limit, for two pipes to each engine and for the contestants' own needs.
const SPARE_FDS: u64 = 256;
/// Mappings left free below `vm.max_map_count`, for thread stacks, plots and the like.
const SPARE_MAPPINGS: u64 = 1_000;

/// What the child writes where that is captured: a line, and far more than a pipe holds.
pub(crate) const OUTPUTS: [u64; 2] = [100, 64 << 20];

/// Tasks that launch at once, and open files of the server that they are in.
pub(crate) const TASKS: usize = 64;
pub(crate) const SOCKETS: u64 = 10_000;

/// One parent to launch from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// Touched private anonymous memory added to the process.
    pub(crate) parent_mib: u64,
    /// Mappings added to the process.
    pub(crate) mappings: u64,
    /// Open files of the process.
    pub(crate) fds: u64,
    /// Threads that launch at once.
    pub(crate) threads: usize,
    /// Pipes between parent and child: 0, or 3 for stdin, stdout and stderr.
    pub(crate) pipes: u8,
    /// Settings of the child.
    pub(crate) setting: Setting,
    /// Bytes that the child writes and the parent captures; 0: nothing is captured.
    pub(crate) output: u64,
    /// Tasks of one tokio runtime that launch at once; 0: threads launch.
    pub(crate) tasks: usize,
    /// Whether the open files that were added are close-on-exec.
    pub(crate) close_on_exec: bool,
    /// Threads that touch memory while others launch.
    pub(crate) faulting: usize,
    /// Bytes added to the environment of caller and child.
    pub(crate) environment: u64,
    /// Directories of `PATH` before the one with the program; 0: it is launched by its path.
    pub(crate) path_misses: u64,
}

impl Condition {
    /// The process as it is, and a launch without anything.
    pub(crate) const SMALL: Self = Self {
        parent_mib: 0,
        mappings: 0,
        fds: 3,
        threads: 1,
        pipes: 0,
        setting: Setting::None,
        output: 0,
        tasks: 0,
        close_on_exec: true,
        faulting: 0,
        environment: 0,
        path_misses: 0,
    };

    /// Whether each contestant must be a process of its own, started with what the condition asks for.
    pub(crate) fn is_apart(&self) -> bool {
        self.environment > 0 || self.path_misses > 0
    }

    /// Whether the parent has more open files or mappings than the small one.
    pub(crate) fn has_files_or_mappings(&self) -> bool {
        self.fds > Self::SMALL.fds || self.mappings > 0
    }

    /// Whether the parent has something that not every process can have.
    pub(crate) fn is_demanding(&self) -> bool {
        self.parent_mib > 0 || self.has_files_or_mappings()
    }

    /// Whether the launch may be another than from the small parent, so that system calls are worth counting, and short
    /// enough to be counted.
    pub(crate) fn is_countable(&self) -> bool {
        let Self { pipes, output, path_misses, .. } = *self;
        *self == Self { pipes, output, path_misses, ..Self::SMALL } && output <= OUTPUTS[0]
    }

    /// Whether the floor does all that the others do.
    pub(crate) fn has_floor(&self) -> bool {
        self.setting == Setting::None && self.tasks == 0
    }

    /// Whether it differs from [`Condition::SMALL`] in what the parent has, and the child is started as there.
    pub(crate) fn is_sweep_of_parent(&self) -> bool {
        let same = Self { parent_mib: self.parent_mib, mappings: self.mappings, fds: self.fds, ..Self::SMALL };
        *self == same && *self != Self::SMALL
    }

    /// The condition in words, naming only what differs from [`Condition::SMALL`].
    pub(crate) fn words(&self) -> String {
        let mut words = Vec::new();
        if self.setting != Setting::None {
            words.push(self.setting.words().to_owned());
        }
        if self.output > 0 {
            words.push(format!("output of {}", bytes(self.output)));
        }
        if self.parent_mib > 0 {
            words.push(format!("{} of memory", mebibytes(self.parent_mib)));
        }
        if self.mappings > 0 {
            words.push(format!("{} mappings", thousands(self.mappings)));
        }
        if self.fds != Self::SMALL.fds || self.pipes > 0 {
            let inherited = if self.close_on_exec { "" } else { ", not close-on-exec" };
            words.push(format!("{} open files{inherited}", thousands(self.fds)));
        }
        if self.pipes > 0 {
            words.push("three pipes to the child".to_owned());
        }
        if self.threads > 1 {
            words.push(format!("{} threads at once", self.threads));
        }
        if self.tasks > 0 {
            words.push(format!("{} tasks at once", self.tasks));
        }
        if self.faulting > 0 {
            words.push(format!("{} more threads that touch memory", self.faulting));
        }
        if self.environment > 0 {
            words.push(format!("{} more of environment", bytes(self.environment)));
        }
        if self.path_misses > 0 {
            words.push(format!("found in PATH after {} other directories", thousands(self.path_misses)));
        }
        if words.is_empty() { "small parent".to_owned() } else { words.join(", ") }
    }
}

/// 1024 as "1 GiB", 100 as "100 MiB".
pub(crate) fn mebibytes(mib: u64) -> String {
    if mib >= 1024 && mib.is_multiple_of(1024) { format!("{} GiB", mib / 1024) } else { format!("{mib} MiB") }
}

/// 100 as "100 bytes", 1 << 20 as "1 MiB".
pub(crate) fn bytes(count: u64) -> String {
    match count {
        count if count >= 1 << 20 => mebibytes(count >> 20),
        count if count >= 1 << 10 && count.is_multiple_of(1 << 10) => format!("{} KiB", count >> 10),
        count => format!("{} bytes", thousands(count)),
    }
}

/// 15000 as "15,000".
pub(crate) fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut grouped = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// What this machine allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most open files.
    pub(crate) fds: u64,
    /// Most additional mappings.
    pub(crate) mappings: u64,
    /// Memory that can be touched without pushing anyone else out.
    pub(crate) memory_mib: u64,
    /// Cores that this process may use.
    pub(crate) cores: usize,
    /// Bytes by which the environment may grow.
    pub(crate) environment: u64,
}

impl Limits {
    /// Raises the soft limit of open files to the hard one and reads the rest.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(crate) fn raise_and_read() -> Result<Self> {
        let limit = rustix::process::getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        let now = match rustix::process::setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(_) => limit.current,
        };
        let max_map_count = fs::read_to_string("/proc/sys/vm/max_map_count")
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
            .unwrap_or(65_530);
        let used = fs::read_to_string("/proc/self/maps").context("cannot read /proc/self/maps")?.lines().count() as u64;
        Ok(Self {
            fds: now.unwrap_or(1 << 20).saturating_sub(SPARE_FDS),
            mappings: max_map_count.saturating_sub(used + SPARE_MAPPINGS),
            memory_mib: super::machine::meminfo_mib("MemAvailable").unwrap_or(0) * 8 / 10,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            environment: room_for_environment(),
        })
    }
}

/// What the kernel lets arguments and environment have, a quarter of the stack's limit and 6 MiB at most, but for half: what is in
/// there already, and what a shell adds.
fn room_for_environment() -> u64 {
    const MOST: u64 = 6 << 20;
    let stack = rustix::process::getrlimit(Resource::Stack).current;
    stack.map_or(MOST, |stack| (stack / 4).min(MOST)) / 2
}

/// The conditions to try, and a note for each that this machine does not allow.
pub(crate) struct Sweeps {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) notes: Vec<String>,
}

impl Sweeps {
    /// From the options, within the limits. Each sweep changes one thing of [`Condition::SMALL`]; the sweep of open files
    /// is made twice, the second time with three pipes, and each setting is tried in a small and in the largest parent.
    pub(crate) fn plan(options: &BenchOptions, limits: &Limits, settings: &[Setting]) -> Self {
        let mut sweeps = Self { conditions: Vec::new(), notes: Vec::new() };
        if options.sweeps() {
            sweeps.add(Condition::SMALL);
        }
        let memory = sweeps.memory(options, limits);
        if options.measures(Part::Memory) {
            for &parent_mib in &memory {
                sweeps.add(Condition { parent_mib, ..Condition::SMALL });
            }
        }
        if options.measures(Part::Mappings) {
            let usual: &[u64] = if options.full { &[0, 1_000, 10_000, 60_000] } else { &[0, 10_000] };
            for wanted in options.mappings.clone().unwrap_or_else(|| usual.to_vec()) {
                let mappings = wanted.min(limits.mappings);
                sweeps.note_less(wanted, mappings, "mappings", "vm.max_map_count");
                sweeps.add(Condition { mappings, ..Condition::SMALL });
            }
        }
        if options.measures(Part::Fds) {
            sweeps.files(options, limits);
        }
        if options.measures(Part::Threads) {
            let counts = options.threads.clone().unwrap_or_else(|| thread_counts(limits.cores, options.quick));
            for threads in counts {
                sweeps.add(Condition { threads: threads.max(1), ..Condition::SMALL });
            }
        }
        if options.measures(Part::Faulting) {
            let usual = if options.full { vec![1, limits.cores, 2 * limits.cores] } else { vec![limits.cores] };
            for faulting in options.faulting.clone().unwrap_or(usual) {
                sweeps.add(Condition { faulting, ..Condition::SMALL });
            }
        }
        sweeps.apart(options, limits);
        // The large parent is made once for all of them.
        for parent_mib in [0, memory.iter().copied().max().unwrap_or(0)] {
            for &setting in settings {
                sweeps.add(Condition { setting, parent_mib, ..Condition::SMALL });
            }
        }
        if options.measures(Part::Output) {
            for output in options.outputs() {
                sweeps.add(Condition { output, ..Condition::SMALL });
            }
        }
        if options.measures(Part::Tokio) {
            for wanted in [Condition::SMALL.fds, SOCKETS] {
                let fds = wanted.min(limits.fds);
                sweeps.note_less(wanted, fds, "open files", "the hard limit of RLIMIT_NOFILE");
                sweeps.add(Condition { fds, tasks: TASKS, ..Condition::SMALL });
            }
            sweeps.add(Condition { output: OUTPUTS[0], tasks: TASKS, ..Condition::SMALL });
        }
        sweeps
    }

    /// Sizes of the parent, as far as there is memory.
    fn memory(&mut self, options: &BenchOptions, limits: &Limits) -> Vec<u64> {
        let usual: &[u64] = match (options.quick, options.full) {
            (true, _) => &[0, 1024],
            (false, false) => &[0, 100, 1024],
            (false, true) => &[0, 100, 1024, 4096, 8192],
        };
        let wanted = options.memory.clone().unwrap_or_else(|| usual.to_vec());
        let (fits, too_much): (Vec<u64>, Vec<u64>) = wanted.iter().partition(|&&mib| mib <= limits.memory_mib);
        let left_out = |mib| format!("{} of memory left out: not free here", mebibytes(mib));
        self.notes.extend(too_much.into_iter().map(left_out));
        fits
    }

    fn files(&mut self, options: &BenchOptions, limits: &Limits) {
        let usual: &[u64] = match (options.quick, options.full) {
            (true, _) => &[3, 15_000],
            (false, false) => &[3, 1_000, 15_000],
            (false, true) => &[3, 1_000, 15_000, limits.fds],
        };
        let counts = options.fds.clone().unwrap_or_else(|| usual.to_vec());
        for pipes in [0, 3] {
            for &wanted in &counts {
                let fds = wanted.min(limits.fds).max(Condition::SMALL.fds);
                if pipes == 0 {
                    self.note_less(wanted, fds, "open files", "the hard limit of RLIMIT_NOFILE");
                }
                self.add(Condition { fds, pipes, ..Condition::SMALL });
            }
        }
        let most = counts.iter().map(|&wanted| wanted.min(limits.fds)).max().unwrap_or(0);
        if !options.quick && most > Condition::SMALL.fds {
            self.add(Condition { fds: most, close_on_exec: false, ..Condition::SMALL });
        }
    }

    /// What cannot be had in this process, or only for all that it does: another environment.
    fn apart(&mut self, options: &BenchOptions, limits: &Limits) {
        if options.measures(Part::Environment) {
            let usual: &[u64] = if options.full { &[100, 1024] } else { &[100] };
            for wanted in options.environment.clone().unwrap_or_else(|| usual.to_vec()) {
                let kib = wanted.min(limits.environment >> 10);
                self.note_less(wanted, kib, "KiB of environment", "the limit of the stack");
                self.add(Condition { environment: kib << 10, ..Condition::SMALL });
            }
        }
        if options.measures(Part::Path) {
            let usual: &[u64] = if options.full { &[1, 10, 100] } else { &[10] };
            for path_misses in options.path_misses.clone().unwrap_or_else(|| usual.to_vec()) {
                self.add(Condition { path_misses, ..Condition::SMALL });
            }
        }
    }

    fn add(&mut self, condition: Condition) {
        if !self.conditions.contains(&condition) {
            self.conditions.push(condition);
        }
    }

    fn note_less(&mut self, wanted: u64, got: u64, what: &str, why: &str) {
        if got < wanted {
            self.notes.push(format!("{} instead of {} {what}: {why}", thousands(got), thousands(wanted)));
        }
    }
}

/// 1, 2, 4 … up to twice the cores; with `quick` only the two ends.
fn thread_counts(cores: usize, quick: bool) -> Vec<usize> {
    let most = 2 * cores.max(1);
    if quick {
        return vec![1, most];
    }
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < most).collect();
    counts.push(most);
    counts
}

/// This process, brought into a [`Condition`]; back to what it was when dropped.
pub(crate) struct Parent {
    like: Condition,
    _memory: Option<Region>,
    _mappings: Option<Region>,
    _files: Vec<OwnedFd>,
    _faulting: Option<Faulting>,
}

impl Parent {
    /// Brings the process into the condition.
    ///
    /// # Errors
    /// When the kernel refuses the memory, the mappings or the files.
    pub(crate) fn become_like(condition: &Condition) -> Result<Self> {
        let memory = match condition.parent_mib {
            0 => None,
            mib => Some(Region::touched(mib << 20).with_context(|| format!("cannot have {}", mebibytes(mib)))?),
        };
        let mappings = match condition.mappings {
            0 => None,
            count => Some(Region::striped(count).with_context(|| format!("cannot have {count} mappings"))?),
        };
        let files = open_until(condition.fds, condition.close_on_exec)?;
        let faulting = match condition.faulting {
            0 => None,
            count => Some(Faulting::start(count)?),
        };
        Ok(Self { like: *condition, _memory: memory, _mappings: mappings, _files: files, _faulting: faulting })
    }
}

impl Parent {
    /// Whether it is also what another condition asks of the process.
    pub(crate) fn suits(&self, condition: &Condition) -> bool {
        let Condition { parent_mib, mappings, fds, close_on_exec, faulting, .. } = self.like;
        *condition == Condition { parent_mib, mappings, fds, close_on_exec, faulting, ..*condition }
    }
}

/// Opens sockets until the process has `count` open files.
///
/// Close-on-exec is what servers hold. Each is a socket of its own because a shared one would stay in the
/// cache. The lowest free numbers are taken first, so a pipe made afterwards gets high numbers.
fn open_until(count: u64, close_on_exec: bool) -> Result<Vec<OwnedFd>> {
    let mut files = Vec::new();
    // The directory that is read is one of its own entries.
    let open = fs::read_dir("/proc/self/fd").context("cannot read /proc/self/fd")?.count() as u64 - 1;
    let flags = if close_on_exec { SocketFlags::CLOEXEC } else { SocketFlags::empty() };
    for _ in open..count {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
            .with_context(|| format!("cannot have {count} open files"))?;
        files.push(socket);
    }
    Ok(files)
}

/// Private anonymous memory.
struct Region {
    start: *mut std::ffi::c_void,
    length: usize,
}

impl Region {
    /// `length` bytes, every page written to. Without huge pages, so that the page tables are as large as those of a
    /// heap that grew bit by bit.
    fn touched(length: u64) -> Result<Self> {
        let length = usize::try_from(length)?;
        // SAFETY: a new private mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let region = Self { start, length };
        // SAFETY: the range is the mapping just made; the advice changes no contents. Kernels without huge pages refuse
        // it, which is as good.
        let _ = unsafe { rustix::mm::madvise(start, length, Advice::LinuxNoHugepage) };
        for offset in (0..length).step_by(rustix::param::page_size()) {
            // SAFETY: offset < length, so the byte is inside the writable mapping just made. Volatile, because nobody
            // reads what is written.
            unsafe { start.cast::<u8>().add(offset).write_volatile(1) };
        }
        Ok(region)
    }

    /// `count` mappings of one touched page each: neighbours differ in protection, so the kernel cannot merge them.
    fn striped(count: u64) -> Result<Self> {
        let page = rustix::param::page_size();
        let region = Self::touched(count * page as u64)?;
        for index in (1..usize::try_from(count)?).step_by(2) {
            // SAFETY: the page lies inside the mapping just made, which nothing else uses.
            let answer =
                unsafe { rustix::mm::mprotect(region.start.byte_add(index * page), page, MprotectFlags::READ) };
            if let Err(error) = answer {
                bail!(io::Error::from(error));
            }
        }
        Ok(region)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `touched`, and nobody else has its address.
        let _ = unsafe { rustix::mm::munmap(self.start, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_what_differs() {
        assert_eq!(Condition::SMALL.words(), "small parent");
        let condition = Condition { parent_mib: 2048, fds: 15_000, pipes: 3, ..Condition::SMALL };
        assert_eq!(condition.words(), "2 GiB of memory, 15,000 open files, three pipes to the child");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(999), "999");
    }

    #[test]
    fn threads_end_at_twice_the_cores() {
        assert_eq!(thread_counts(2, false), [1, 2, 4]);
        assert_eq!(thread_counts(3, false), [1, 2, 4, 6]);
        assert_eq!(thread_counts(16, true), [1, 32]);
    }

    #[test]
    fn striped_memory_is_many_mappings_and_goes_away() {
        let count = |region: &Region| {
            let end = region.start as usize + region.length;
            let starts = fs::read_to_string("/proc/self/maps").expect("maps");
            starts
                .lines()
                .filter_map(|line| usize::from_str_radix(line.split('-').next()?, 16).ok())
                .filter(|start| (region.start as usize..end).contains(start))
                .count()
        };
        let region = Region::striped(200).expect("200 pages");
        assert!(count(&region) >= 199, "{}", count(&region));
    }

    #[test]
    fn files_are_opened_up_to_the_count() {
        let before = open_until(0, true).expect("none");
        assert!(before.is_empty());
        let files = open_until(300, true).expect("300 files");
        assert!(files.len() <= 298 && files.len() > 100, "{}", files.len());
    }
}
