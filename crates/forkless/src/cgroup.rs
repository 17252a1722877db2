//! A control group (version 2) of one's own, for children to be born in.

use crate::error::reworded;
use forkless_core::planted;
use forkless_core::sys;
use forkless_core::sys::signal::{SIGCONT, SIGKILL};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf, absolute};
use std::time::{Duration, Instant};

mod events;

mod own;

#[cfg(test)]
mod tests;

/// How long a process that has been killed or reaped may still be counted.
const MOMENT: Duration = Duration::from_millis(50);

/// A control group (version 2) that this handle has made, and removes when it is dropped: `cgroups(7)`.
///
/// ```no_run
/// use forkless::{Cgroup, Command};
/// let parent = "/sys/fs/cgroup/my.slice";
/// Cgroup::hand_down(parent, &["memory", "pids"])?;
/// let group = Cgroup::create(parent, "build-7")?;
/// group.memory_max(512 << 20)?.pids_max(100)?;
/// let mut child = Command::new("make").cgroup(group.directory()?).spawn()?;
/// child.wait()?;
/// println!("{} bytes at most, {} killed for want of memory", group.memory_peak()?, group.oom_kills()?);
/// group.kill()?; // whatever make has left behind
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A program in the group may make groups below it; they are limited, counted, frozen and killed with it.
///
/// Dropping the handle removes the group, and those below, if nobody is in them any more; it neither kills nor waits for
/// who is (but for a moment, since the kernel takes one to notice that a process has gone). [`remove`](Self::remove) tells.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    directory: OwnedFd,
    removed: bool,
}

impl Cgroup {
    /// The directory of the group that the caller is in, to make others in: `/proc/self/cgroup`, below the place where
    /// control groups are mounted, `/sys/fs/cgroup` or, beside those of version 1, `/sys/fs/cgroup/unified`.
    ///
    /// # Errors
    /// ENOENT where no version 2 group is to be seen: none is mounted, or the caller's is outside of what is.
    pub fn own() -> io::Result<PathBuf> {
        own::directory()
    }

    /// Has the group of this directory hand controllers (`memory`, `pids`, `cpu`, `io`…) down to those made in it, which
    /// can then have limits: `cgroup.subtree_control`. Nothing is written where it does so already.
    ///
    /// # Errors
    /// EBUSY where processes are in that very group: only the root may have both processes and groups with limits. ENOENT
    /// where it has not got a controller itself, because the group above it does not hand it down or version 1 has it.
    /// EACCES where the caller may not. No controller is handed down then that was not before.
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
            let why =
                format!("it has no controller {none:?}: the group above does not hand it down, or version 1 has it");
            return Err(about(io::Error::new(ErrorKind::NotFound, why), directory));
        }
        let request = missing.iter().map(|one| format!("+{one}")).collect::<Vec<_>>().join(" ");
        let busy = || {
            let why = "processes are in it, and only the root may have both processes and groups with limits";
            let why = format!("cannot hand {request} down: {why}");
            about(io::Error::new(ErrorKind::ResourceBusy, why), directory)
        };
        // Some controllers the kernel would hand down all the same, to groups that can then have nothing but threads:
        // cgroup_vet_subtree_control_enable() in kernel/cgroup/cgroup.c. Only the root has no events.
        let is_root = !directory.join("cgroup.events").exists();
        if !is_root && words("cgroup.procs").is_ok_and(|processes| !processes.is_empty()) {
            return Err(busy());
        }
        let written = write(directory, "cgroup.subtree_control", &request);
        written.map_err(|error| if error.kind() == ErrorKind::ResourceBusy { busy() } else { error })
    }

    /// Makes the group `name` in `parent`, the directory of another group.
    ///
    /// # Errors
    /// `mkdir(2)`'s: EACCES where the caller may not, EEXIST if it is there already (it is left alone then). EINVAL where
    /// the parent is no group of version 2. All errors of this type name the file.
    pub fn create<P: AsRef<Path>>(parent: P, name: &str) -> io::Result<Self> {
        let parent = parent.as_ref();
        check(parent)?;
        // Where the caller goes later must not change what is removed.
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

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A descriptor of its directory, for [`Command::cgroup`](crate::Command::cgroup).
    ///
    /// # Errors
    /// EMFILE.
    pub fn directory(&self) -> io::Result<OwnedFd> {
        self.directory.try_clone()
    }

    /// The most memory that it may use, in bytes, `u64::MAX` for no limit: `memory.max`. Where the kernel can free none,
    /// it kills a process of the group: see [`oom_kills`](Self::oom_kills).
    ///
    /// # Errors
    /// ENOENT where the parent group does not hand the controller down: see [`hand_down`](Self::hand_down).
    pub fn memory_max(&self, bytes: u64) -> io::Result<&Self> {
        self.set("memory.max", &amount(bytes))
    }

    /// The memory above which it is slowed down until it has given some back, in bytes, `u64::MAX` for none:
    /// `memory.high`.
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max).
    pub fn memory_high(&self, bytes: u64) -> io::Result<&Self> {
        self.set("memory.high", &amount(bytes))
    }

    /// The most of its memory that may be swapped out, in bytes, `u64::MAX` for no limit: `memory.swap.max`.
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max); also ENOENT on a kernel without swap.
    pub fn memory_swap_max(&self, bytes: u64) -> io::Result<&Self> {
        self.set("memory.swap.max", &amount(bytes))
    }

    /// The most processes and threads that it may have, `u64::MAX` for no limit: `pids.max`. A fork beyond fails with
    /// EAGAIN; so does the launch of a child into a group that is full.
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max).
    pub fn pids_max(&self, count: u64) -> io::Result<&Self> {
        self.set("pids.max", &amount(count))
    }

    /// The most processor time, in microseconds of each period of as many: `cpu.max`. 150,000 of 100,000 are one and a
    /// half processors. The kernel takes periods from 1,000 to 1,000,000.
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max).
    pub fn cpu_max(&self, quota: u64, period: u64) -> io::Result<&Self> {
        self.set("cpu.max", &format!("{quota} {period}"))
    }

    /// Its share of processor time where others want it too, from 1 to 10,000; 100 unless set: `cpu.weight`.
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max).
    pub fn cpu_weight(&self, weight: u32) -> io::Result<&Self> {
        self.set("cpu.weight", &weight.to_string())
    }

    /// Its share of the disks where others want them too, from 1 to 10,000; 100 unless set: `io.weight`.
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max); also ENOENT on a kernel without it.
    pub fn io_weight(&self, weight: u32) -> io::Result<&Self> {
        self.set("io.weight", &format!("default {weight}"))
    }

    /// Writes to any of its files, such as `io.max` or `memory.oom.group`.
    ///
    /// # Errors
    /// ENOENT where the file is not there, EINVAL where the kernel does not take the value.
    pub fn set(&self, file: &str, value: &str) -> io::Result<&Self> {
        write(&self.path, file, value).map(|()| self)
    }

    /// What any of its files says, such as `memory.pressure`, without the end of the last line.
    ///
    /// # Errors
    /// ENOENT where the file is not there, which may be the kernel's age.
    pub fn get(&self, file: &str) -> io::Result<String> {
        let path = self.path.join(file);
        let text = fs::read_to_string(&path).map_err(|error| about(error, &path))?;
        Ok(text.trim_end().to_owned())
    }

    /// The counters of a file that has a name and a number in each line: `cpu.stat`, `memory.events`, `memory.stat`,
    /// `pids.events`.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn counters(&self, file: &str) -> io::Result<BTreeMap<String, u64>> {
        let text = self.get(file)?;
        let pair = |line: &str| line.split_once(' ').and_then(|(name, n)| Some((name.to_owned(), n.parse().ok()?)));
        Ok(text.lines().filter_map(pair).collect())
    }

    /// The most memory that it has used at any time, in bytes: `memory.peak`, Linux 5.19.
    ///
    /// # Errors
    /// ENOENT where there is no such file: see [`memory_max`](Self::memory_max).
    pub fn memory_peak(&self) -> io::Result<u64> {
        self.number("memory.peak")
    }

    /// The most processes and threads that it has had at any time: `pids.peak`, Linux 6.1.
    ///
    /// # Errors
    /// As for [`memory_peak`](Self::memory_peak).
    pub fn pids_peak(&self) -> io::Result<u64> {
        self.number("pids.peak")
    }

    /// The processes that the kernel has killed in it and below because memory had run out, its own or the machine's:
    /// `oom_kill` in `memory.events`.
    ///
    /// # Errors
    /// As for [`memory_peak`](Self::memory_peak).
    pub fn oom_kills(&self) -> io::Result<u64> {
        Ok(self.counters("memory.events")?.get("oom_kill").copied().unwrap_or(0))
    }

    /// The processor time of all that has run in it and below, also of what nobody has waited for: `cpu.stat`.
    ///
    /// # Errors
    /// Those of reading.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        let microseconds = self.counters("cpu.stat")?.get("usage_usec").copied().unwrap_or(0);
        Ok(Duration::from_micros(microseconds))
    }

    fn number(&self, file: &str) -> io::Result<u64> {
        let text = self.get(file)?;
        let wrong = || io::Error::new(ErrorKind::InvalidData, format!("{text:?} is no number"));
        text.parse().map_err(|_| about(wrong(), self.path.join(file)))
    }

    /// Asks every process in it and below to stop where it is: `cgroup.freeze`. They have when
    /// [`wait_frozen`](Self::wait_frozen) says so. SIGKILL ends a frozen process all the same.
    ///
    /// # Errors
    /// ENOENT before Linux 5.2.
    pub fn freeze(&self) -> io::Result<()> {
        self.set("cgroup.freeze", "1").map(drop)
    }

    /// Lets them go on.
    ///
    /// # Errors
    /// As for [`freeze`](Self::freeze).
    pub fn thaw(&self) -> io::Result<()> {
        self.set("cgroup.freeze", "0").map(drop)
    }

    /// Waits until every process is frozen, for `limit` at most; says whether that is so. Sleeps on `cgroup.events`.
    ///
    /// # Errors
    /// Those of reading.
    pub fn wait_frozen(&self, limit: Duration) -> io::Result<bool> {
        events::wait(&self.path, "frozen 1", limit)
    }

    /// Waits until no process is in it or below, for `limit` at most; says whether that is so. Sleeps on `cgroup.events`.
    ///
    /// # Errors
    /// Those of reading.
    pub fn wait_empty(&self, limit: Duration) -> io::Result<bool> {
        events::wait(&self.path, "populated 0", limit)
    }

    /// Kills every process in it and below with SIGKILL: `cgroup.kill`; before Linux 5.14 by freezing them and killing
    /// each. They have gone when [`wait_empty`](Self::wait_empty) says so.
    ///
    /// # Errors
    /// Those of writing.
    pub fn kill(&self) -> io::Result<()> {
        if planted!("cgroup-nobody-killed") {
            return Ok(());
        }
        match self.set("cgroup.kill", "1") {
            Err(error) if error.kind() == ErrorKind::NotFound => self.kill_each(),
            answer => answer.map(drop),
        }
    }

    fn kill_each(&self) -> io::Result<()> {
        self.signal_each(&[SIGKILL])
    }

    /// Asks every process in it and below to end by `signal` (15 is SIGTERM), waits for `grace` at most until all have gone,
    /// then [kills](Self::kill) those that are left, and waits until they have gone; says whether there was none to be killed.
    ///
    /// They are frozen while they are told, so that none is born meanwhile that does not hear; afterwards all go on, also who
    /// was stopped or frozen before. One that the caller may not signal is killed in the end.
    ///
    /// ```no_run
    /// # let group = forkless::Cgroup::create("/sys/fs/cgroup/my.slice", "server")?;
    /// if !group.terminate(15, std::time::Duration::from_secs(5))? {
    ///     eprintln!("some had to be killed");
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// EINVAL if there is no such signal. As for [`kill`](Self::kill); ENOENT before Linux 5.2.
    pub fn terminate(&self, signal: i32, grace: Duration) -> io::Result<bool> {
        if !(1..=64).contains(&signal) {
            return Err(about(io::Error::from_raw_os_error(sys::errno::EINVAL), &self.path));
        }
        self.signal_each(&[signal, SIGCONT])?;
        if self.wait_empty(grace)? {
            return Ok(true);
        }
        self.kill()?;
        self.wait_empty(Duration::MAX).map(|_| false)
    }

    /// Frozen processes make no others, and none leaves its number to a stranger while we look. They go on afterwards.
    fn signal_each(&self, signals: &[i32]) -> io::Result<()> {
        let frozen = self.freeze();
        let told = frozen.and_then(|()| self.signal_frozen(signals));
        // Whatever came of it, nobody is left frozen.
        let thawed = if planted!("cgroup-left-frozen") { Ok(()) } else { self.thaw() };
        told.and(thawed)
    }

    fn signal_frozen(&self, signals: &[i32]) -> io::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(1);
        // One that waits for a disk is late to freeze; it makes no others either.
        self.wait_frozen(PATIENCE)?;
        for directory in below(&self.path)? {
            let path = directory.join("cgroup.procs");
            let list = fs::read_to_string(&path).map_err(|error| about(error, &path))?;
            // 0 is a process that we cannot see, and to kill(2) our own process group.
            for pid in list.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0) {
                for &signal in signals {
                    let _ = sys::kill(pid, signal);
                }
            }
        }
        Ok(())
    }

    /// Removes it, and the groups that programs in it have made below.
    ///
    /// # Errors
    /// EBUSY while a process is in one of them; none is killed for it. That it has gone already is no error.
    pub fn remove(mut self) -> io::Result<()> {
        self.removed = true;
        remove(&self.path)
    }
}

impl AsFd for Cgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if !self.removed && !planted!("cgroup-left-behind") {
            let _ = remove(&self.path);
        }
    }
}

/// A directory of another kind would be taken for one until the clone, whose error says less.
fn check(directory: &Path) -> io::Result<()> {
    if directory.is_dir() && !directory.join("cgroup.controllers").exists() {
        return Err(about(io::Error::new(ErrorKind::InvalidInput, "it is none of version 2"), directory));
    }
    Ok(())
}

/// Those below first, since a group with others in it stays; again while somebody who is going is still counted.
fn remove(path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + MOMENT;
    loop {
        let answer = below(path).and_then(|all| all.iter().rev().try_for_each(|one| remove_one(one)));
        match answer {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                let left = deadline.saturating_duration_since(Instant::now());
                // Should somebody else have removed it, there are no events; the next try tells.
                if left.is_zero() || !events::wait(path, "populated 0", left).unwrap_or(true) {
                    return Err(error);
                }
            }
            answer => return answer,
        }
    }
}

fn remove_one(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        answer => answer.map_err(|error| about(error, path)),
    }
}

/// The group and all below it, each before those in it; none if it has gone.
fn below(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![path.to_owned()];
    let mut next = 0;
    while let Some(directory) = found.get(next) {
        next += 1;
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries.map_err(|error| about(error, directory))?,
        };
        let groups = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let groups = groups.filter(|_| !planted!("cgroup-groups-below-forgotten"));
        found.extend(groups.map(|entry| entry.path()).collect::<Vec<_>>());
    }
    Ok(found)
}

fn write(directory: &Path, file: &str, value: &str) -> io::Result<()> {
    let path = directory.join(file);
    // Not created where it is missing: the kernel would say EPERM, and ENOENT says more.
    let written = OpenOptions::new().write(true).open(&path).and_then(|mut open| open.write_all(value.as_bytes()));
    written.map_err(|error| match file.split_once('.') {
        Some((controller, _)) if error.kind() == ErrorKind::NotFound && controller != "cgroup" => {
            let why = format!("{error}, perhaps because the group above does not hand {controller:?} down");
            about(reworded(error, why), &path)
        }
        _ => about(error, &path),
    })
}

/// The kernel's word for no limit.
fn amount(number: u64) -> String {
    if number == u64::MAX { "max".to_owned() } else { number.to_string() }
}

fn about(error: io::Error, path: impl AsRef<OsStr>) -> io::Error {
    let words = format!("control group {:?}: {error}", path.as_ref());
    reworded(error, words)
}
