//! A cgroup (version 2) of the caller's own, to start children in.

use crate::error::reworded;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf, absolute};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

mod end;
mod events;
mod launch;
mod own;
#[cfg(test)]
mod tests;

/// How many names [`Cgroup::with_limits`] tries.
const MOST_NAMES: u32 = 10_000;

/// The number in the next name.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A cgroup (version 2) that this handle has created, and removes when it is dropped: `cgroups(7)`.
///
/// ```no_run
/// use forkless::{Cgroup, Command};
/// let parent = "/sys/fs/cgroup/my.slice";
/// Cgroup::hand_down(parent, &["memory", "pids"])?;
/// let group = Cgroup::create(parent, "build-7")?;
/// group.memory_max(512 << 20)?.pids_max(100)?;
/// let mut child = Command::new("make").cgroup(group.directory()?).spawn()?;
/// child.wait()?;
/// println!("at most {} bytes, {} OOM kills", group.memory_peak()?, group.oom_kills()?);
/// group.kill()?; // what make has left running
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A program in the cgroup may create cgroups below it. They are limited, counted, frozen and killed with it.
///
/// Dropping the handle removes the cgroup, and those below it, if they have no processes. It does not kill processes,
/// and waits for their end at most 50 ms, since the kernel takes a moment to notice that a process has gone. Use
/// [`remove`](Self::remove) to see an error.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    directory: OwnedFd,
    removed: bool,
}

impl Cgroup {
    /// The directory of the cgroup that the calling process is in, to create others in. It reads `/proc/self/cgroup`,
    /// and finds where cgroups are mounted: `/sys/fs/cgroup`, or beside version 1 `/sys/fs/cgroup/unified`.
    ///
    /// ```no_run
    /// use forkless::Cgroup;
    /// let group = Cgroup::create(Cgroup::own()?, "job-1")?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// ENOENT if no cgroup of version 2 can be found: none is mounted, or the caller's is outside of the mounted tree.
    pub fn own() -> io::Result<PathBuf> {
        own::directory()
    }

    /// The directory of the nearest cgroup that systemd has delegated, if the calling process is in it or below; else that of
    /// [`own`](Self::own). Cgroups with limits can be made there if no process is in it itself. A service has that by `Delegate=yes` with
    /// `DelegateSubgroup=main` (systemd 254), or if it moves itself into a cgroup below: `systemd.resource-control(5)`.
    ///
    /// ```no_run
    /// use forkless::Cgroup;
    /// let group = Cgroup::with_limits(Cgroup::delegated()?, &[("memory.max", "512M")])?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`own`](Self::own).
    pub fn delegated() -> io::Result<PathBuf> {
        own::directory().map(own::delegated_above)
    }

    /// Makes controllers (`memory`, `pids`, `cpu`, `io`…) available to the cgroups inside this directory, which can
    /// then have limits: `cgroup.subtree_control`. Writes nothing if they are available already.
    ///
    /// ```no_run
    /// use forkless::Cgroup;
    /// let parent = "/sys/fs/cgroup/my.slice";
    /// Cgroup::hand_down(parent, &["memory", "pids"])?;
    /// Cgroup::create(parent, "build-7")?.memory_max(512 << 20)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// EBUSY if processes are in this cgroup itself: only the root may have both processes and cgroups with limits.
    /// ENOENT if the cgroup does not have a controller itself, because its parent does not hand it down or version 1
    /// uses it. EACCES if the caller may not write there. After an error no further controller is available.
    pub fn hand_down<P: AsRef<Path>>(directory: P, controllers: &[&str]) -> io::Result<()> {
        let directory = directory.as_ref();
        check(directory)?;
        let words = |file: &str| {
            let path = directory.join(file);
            let text = fs::read_to_string(&path).map_err(|error| about(error, &path))?;
            Ok::<Vec<String>, io::Error>(text.split_whitespace().map(str::to_owned).collect())
        };
        let handed = words("cgroup.subtree_control")?;
        let missing: Vec<_> = controllers.iter().filter(|one| !handed.iter().any(|word| word == **one)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let there = words("cgroup.controllers")?;
        if let Some(none) = missing.iter().find(|one| !there.iter().any(|word| word == **one)) {
            let why = format!(
                "no controller {none:?}: the parent cgroup does not enable it, or it belongs to cgroup version 1"
            );
            return Err(about(io::Error::new(ErrorKind::NotFound, why), directory));
        }
        let request = missing.iter().map(|one| format!("+{one}")).collect::<Vec<_>>().join(" ");
        let busy = || {
            let why = "it contains processes, and only the root cgroup may have both";
            let why = format!("cannot enable {request} for the cgroups below: {why}");
            about(io::Error::new(ErrorKind::ResourceBusy, why), directory)
        };
        // Checked here because the kernel hands some controllers down nevertheless, to cgroups that can then hold only
        // threads: cgroup_vet_subtree_control_enable() in kernel/cgroup/cgroup.c. Only the root has no cgroup.events.
        let is_root = !directory.join("cgroup.events").exists();
        if !is_root && words("cgroup.procs").is_ok_and(|processes| !processes.is_empty()) {
            return Err(busy());
        }
        let written = write(directory, "cgroup.subtree_control", &request);
        written.map_err(|error| if error.kind() == ErrorKind::ResourceBusy { busy() } else { error })
    }

    /// Creates the cgroup `name` in `parent`, the directory of another cgroup.
    ///
    /// ```no_run
    /// use forkless::{Cgroup, Command};
    /// let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// Command::new("make").cgroup(group.directory()?).status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `mkdir(2)`: EACCES if the caller may not, EEXIST if it exists (it is then left alone). EINVAL if the
    /// parent is no cgroup of version 2, or the name is empty, `.` or `..` or contains a slash. All errors of this type name the file.
    pub fn create<P: AsRef<Path>>(parent: P, name: &str) -> io::Result<Self> {
        let parent = parent.as_ref();
        check(parent)?;
        // Joined to the parent, such a name would lead out of it, and the handle would remove what is no cgroup.
        if Path::new(name).file_name() != Some(OsStr::new(name)) {
            return Err(about(io::Error::new(ErrorKind::InvalidInput, format!("{name:?} is not a name")), parent));
        }
        // Absolute: a later change of the working directory must not change what is removed.
        let path = absolute(parent.join(name)).map_err(|error| about(error, parent))?;
        fs::create_dir(&path).map_err(|error| about(error, &path))?;
        match File::open(&path) {
            Ok(directory) => Ok(Self { path, directory: directory.into(), removed: false }),
            Err(error) => {
                let _ = fs::remove_dir(&path);
                Err(about(error, &path))
            }
        }
    }

    /// Creates a cgroup with an unused name, `forkless-PID`, and with limits: files of `cgroups(7)` and what is written to them. Their
    /// controllers are [handed down](Self::hand_down).
    ///
    /// ```no_run
    /// use forkless::{Cgroup, Command};
    /// let group = Cgroup::with_limits(Cgroup::own()?, &[("memory.max", "512M"), ("pids.max", "100")])?;
    /// Command::new("make").cgroup(group.directory()?).status()?;
    /// group.end()?; // also what make has left running
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`hand_down`](Self::hand_down), [`create`](Self::create) and [`set`](Self::set). The cgroup is removed then.
    pub fn with_limits<P: AsRef<Path>>(parent: P, limits: &[(&str, &str)]) -> io::Result<Self> {
        let parent = parent.as_ref();
        let controllers: BTreeSet<&str> = limits.iter().filter_map(|(file, _)| file.split('.').next()).collect();
        // Files of every cgroup, such as cgroup.max.descendants.
        let controllers: Vec<&str> = controllers.into_iter().filter(|controller| *controller != "cgroup").collect();
        Self::hand_down(parent, &controllers)?;
        let id = std::process::id();
        let mut tries = 0;
        let group = loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = if number == 0 { format!("forkless-{id}") } else { format!("forkless-{id}-{number}") };
            match Self::create(parent, &name) {
                // It may belong to a process that was killed, or has the same PID in another PID namespace.
                Err(error) if error.kind() == ErrorKind::AlreadyExists && tries < MOST_NAMES => tries += 1,
                answer => break answer?,
            }
        };
        for (file, value) in limits {
            group.set(file, value)?;
        }
        Ok(group)
    }

    /// The directory of the cgroup.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// println!("limits are in {}", group.path().display());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A descriptor of the directory, for [`Command::cgroup`](crate::Command::cgroup).
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// let mut child = forkless::Command::new("make").cgroup(group.directory()?).spawn()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// EMFILE.
    pub fn directory(&self) -> io::Result<OwnedFd> {
        self.directory.try_clone()
    }

    /// Sets the hard memory limit, in bytes; `u64::MAX` for no limit: `memory.max`. If the kernel can free no memory,
    /// the OOM killer kills a process of the cgroup: see [`oom_kills`](Self::oom_kills).
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// group.memory_max(512 << 20)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// ENOENT if the parent cgroup does not hand the controller down: see [`hand_down`](Self::hand_down).
    pub fn memory_max(&self, bytes: u64) -> io::Result<&Self> {
        self.set("memory.max", &amount(bytes))
    }

    /// Sets the memory use, in bytes, above which the kernel slows the processes down and reclaims memory; `u64::MAX`
    /// for none: `memory.high`.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// group.memory_high(400 << 20)?.memory_max(512 << 20)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max).
    pub fn memory_high(&self, bytes: u64) -> io::Result<&Self> {
        self.set("memory.high", &amount(bytes))
    }

    /// Sets the limit of swap space, in bytes; `u64::MAX` for no limit: `memory.swap.max`.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// group.memory_max(512 << 20)?.memory_swap_max(0)?; // nothing is swapped out
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max); also ENOENT on a kernel without swap.
    pub fn memory_swap_max(&self, bytes: u64) -> io::Result<&Self> {
        self.set("memory.swap.max", &amount(bytes))
    }

    /// Sets the limit of processes and threads; `u64::MAX` for no limit: `pids.max`. A fork beyond it fails with
    /// EAGAIN, and so does the launch of a child into a full cgroup.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// group.pids_max(100)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max).
    pub fn pids_max(&self, count: u64) -> io::Result<&Self> {
        self.set("pids.max", &amount(count))
    }

    /// Sets the limit of CPU time: `quota` microseconds in each period of `period` microseconds: `cpu.max`. A quota of
    /// 150,000 in a period of 100,000 is one and a half CPUs. The kernel accepts periods from 1,000 to 1,000,000.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// group.cpu_max(150_000, 100_000)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max).
    pub fn cpu_max(&self, quota: u64, period: u64) -> io::Result<&Self> {
        self.set("cpu.max", &format!("{quota} {period}"))
    }

    /// Sets its share of CPU time when the CPUs are busy, from 1 to 10,000 (default: 100): `cpu.weight`.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// group.cpu_weight(50)?; // half as much as a cgroup beside it
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max).
    pub fn cpu_weight(&self, weight: u32) -> io::Result<&Self> {
        self.set("cpu.weight", &weight.to_string())
    }

    /// Sets its share of disk I/O when the disks are busy, from 1 to 10,000 (default: 100): `io.weight`.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// group.io_weight(50)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max); also ENOENT on a kernel without it.
    pub fn io_weight(&self, weight: u32) -> io::Result<&Self> {
        self.set("io.weight", &format!("default {weight}"))
    }

    /// Writes to any file of the cgroup, such as `io.max` or `memory.oom.group`.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// group.set("memory.oom.group", "1")?; // the OOM killer kills all or none
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// ENOENT if the file does not exist, EINVAL if the kernel does not accept the value.
    pub fn set(&self, file: &str, value: &str) -> io::Result<&Self> {
        write(&self.path, file, value).map(|()| self)
    }

    /// Reads any file of the cgroup, such as `memory.pressure`, and returns its text without the last newline.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// println!("{}", group.get("memory.pressure")?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// ENOENT if the file does not exist, perhaps because the kernel is too old.
    pub fn get(&self, file: &str) -> io::Result<String> {
        let path = self.path.join(file);
        let text = fs::read_to_string(&path).map_err(|error| about(error, &path))?;
        Ok(text.trim_end().to_owned())
    }

    /// Reads a file that has a name and a number in each line: `cpu.stat`, `memory.events`, `memory.stat`,
    /// `pids.events`.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// let refused = group.counters("pids.events")?["max"];
    /// println!("{refused} forks have failed because of pids.max");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn counters(&self, file: &str) -> io::Result<BTreeMap<String, u64>> {
        let text = self.get(file)?;
        let pair = |line: &str| line.split_once(' ').and_then(|(name, n)| Some((name.to_owned(), n.parse().ok()?)));
        Ok(text.lines().filter_map(pair).collect())
    }

    /// The largest memory use so far, in bytes: `memory.peak`, Linux 5.19.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// println!("{} MiB at most", group.memory_peak()? >> 20);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// ENOENT if the file does not exist: see [`memory_max`](Self::memory_max).
    pub fn memory_peak(&self) -> io::Result<u64> {
        self.number("memory.peak")
    }

    /// The largest number of processes and threads so far: `pids.peak`, Linux 6.1.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// println!("{} processes and threads at most", group.pids_peak()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`memory_peak`](Self::memory_peak).
    pub fn pids_peak(&self) -> io::Result<u64> {
        self.number("pids.peak")
    }

    /// The number of processes in the cgroup and below that the kernel has killed because memory was exhausted, the
    /// cgroup's or the machine's: `oom_kill` in `memory.events`.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// if group.oom_kills()? > 0 {
    ///     eprintln!("the memory limit is too small");
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`memory_peak`](Self::memory_peak).
    pub fn oom_kills(&self) -> io::Result<u64> {
        Ok(self.counters("memory.events")?.get("oom_kill").copied().unwrap_or(0))
    }

    /// The CPU time of all processes that have run in the cgroup and below, including those that nobody has waited
    /// for: `cpu.stat`.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// println!("{:?} of CPU time", group.cpu_time()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of reading.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        let microseconds = self.counters("cpu.stat")?.get("usage_usec").copied().unwrap_or(0);
        Ok(Duration::from_micros(microseconds))
    }

    fn number(&self, file: &str) -> io::Result<u64> {
        let text = self.get(file)?;
        let wrong = || io::Error::new(ErrorKind::InvalidData, format!("{text:?} is not a number"));
        text.parse().map_err(|_| about(wrong(), self.path.join(file)))
    }

    /// Tells the kernel to stop every process in the cgroup and below: `cgroup.freeze`.
    /// [`wait_frozen`](Self::wait_frozen) waits until they have stopped. SIGKILL ends a frozen process too.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// group.freeze()?;
    /// group.wait_frozen(std::time::Duration::from_secs(1))?;
    /// // Nothing runs in it here.
    /// group.thaw()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// ENOENT before Linux 5.2.
    pub fn freeze(&self) -> io::Result<()> {
        self.set("cgroup.freeze", "1").map(drop)
    }

    /// Lets frozen processes continue.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// group.freeze()?;
    /// group.thaw()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`freeze`](Self::freeze).
    pub fn thaw(&self) -> io::Result<()> {
        self.set("cgroup.freeze", "0").map(drop)
    }

    /// Waits until every process is frozen, for `limit` at most. Returns whether they are. Sleeps on `cgroup.events`.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// group.freeze()?;
    /// if !group.wait_frozen(std::time::Duration::from_secs(1))? {
    ///     eprintln!("a process has not stopped yet");
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of reading.
    pub fn wait_frozen(&self, limit: Duration) -> io::Result<bool> {
        events::wait(&self.path, "frozen 1", limit)
    }

    /// Waits until no process is in the cgroup or below, for `limit` at most. Returns whether it is empty. Sleeps on
    /// `cgroup.events`.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// group.kill()?;
    /// assert!(group.wait_empty(std::time::Duration::from_secs(10))?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of reading.
    pub fn wait_empty(&self, limit: Duration) -> io::Result<bool> {
        events::wait(&self.path, "populated 0", limit)
    }
}

impl AsFd for Cgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if !self.removed {
            let _ = end::remove(&self.path);
        }
    }
}

/// Refuses a directory that is no cgroup of version 2. Otherwise the clone would fail later, with a less helpful
/// error.
fn check(directory: &Path) -> io::Result<()> {
    if directory.is_dir() && !directory.join("cgroup.controllers").exists() {
        return Err(about(io::Error::new(ErrorKind::InvalidInput, "not a cgroup of version 2"), directory));
    }
    Ok(())
}

fn write(directory: &Path, file: &str, value: &str) -> io::Result<()> {
    let path = directory.join(file);
    // Without O_CREAT: for a missing file the kernel would then return EPERM, and ENOENT is more helpful.
    let written = OpenOptions::new().write(true).open(&path).and_then(|mut open| open.write_all(value.as_bytes()));
    written.map_err(|error| match file.split_once('.') {
        Some((controller, _)) if error.kind() == ErrorKind::NotFound && controller != "cgroup" => {
            let why = format!("{error} (perhaps the parent cgroup does not enable {controller:?})");
            about(reworded(error, why), &path)
        }
        _ => about(error, &path),
    })
}

/// The value as the kernel spells it: `max` for no limit.
fn amount(number: u64) -> String {
    if number == u64::MAX { "max".to_owned() } else { number.to_string() }
}

fn about(error: io::Error, path: impl AsRef<OsStr>) -> io::Error {
    let words = format!("cgroup {:?}: {error}", path.as_ref());
    reworded(error, words)
}
