//! The end of a cgroup: its processes are signalled, killed and waited for, and it is removed.

use super::{Cgroup, about, events};
use crate::kernel::{SIGCONT, SIGKILL};
use forkless_core::sys;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

impl Cgroup {
    /// Kills every process in the cgroup and below with SIGKILL: `cgroup.kill`; before Linux 5.14 by freezing them and
    /// killing each. [`wait_empty`](Self::wait_empty) waits until they have gone.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// group.kill()?;
    /// group.wait_empty(std::time::Duration::from_secs(10))?;
    /// group.remove()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// Afterwards create another cgroup: newer kernels (seen on Linux 6.18) also kill each program that is launched into this one later.
    ///
    /// # Errors
    /// Those of writing.
    pub fn kill(&self) -> io::Result<()> {
        match self.set("cgroup.kill", "1") {
            Err(error) if error.kind() == ErrorKind::NotFound => self.kill_each(),
            answer => answer.map(drop),
        }
    }

    pub(super) fn kill_each(&self) -> io::Result<()> {
        self.signal_each(&[SIGKILL])
    }

    /// Sends a signal to every process in the cgroup and below. They are frozen meanwhile, so that none can fork a child that
    /// misses it; afterwards all of them continue, including those that were stopped or frozen before.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// group.signal(15)?; // SIGTERM
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// EINVAL if there is no such signal. ENOENT before Linux 5.2. A process that the caller may not signal is no error.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        if !(1..=64).contains(&signal) {
            return Err(about(io::Error::from_raw_os_error(sys::errno::EINVAL), &self.path));
        }
        self.signal_each(&[signal, SIGCONT])
    }

    /// Asks every process in the cgroup and below to end with `signal` (15 is SIGTERM), waits for `grace` at most
    /// until all have gone, [kills](Self::kill) those that are left, and waits until they have gone. Returns whether
    /// none had to be killed.
    ///
    /// The processes are frozen while they are signalled, so that none can fork a child that misses the signal.
    /// Afterwards all of them continue, including those that were stopped or frozen before. A process that the caller
    /// may not signal is killed after `grace`.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// if !group.terminate(15, std::time::Duration::from_secs(5))? {
    ///     eprintln!("some had to be killed");
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// EINVAL if there is no such signal. As for [`kill`](Self::kill); ENOENT before Linux 5.2.
    pub fn terminate(&self, signal: i32, grace: Duration) -> io::Result<bool> {
        self.signal(signal)?;
        if self.wait_empty(grace)? {
            return Ok(true);
        }
        self.kill()?;
        self.wait_empty(Duration::MAX).map(|_| false)
    }

    /// Signals every process. They are frozen meanwhile: none can fork, and none can end and leave its PID to another
    /// process. They continue afterwards.
    fn signal_each(&self, signals: &[i32]) -> io::Result<()> {
        let frozen = self.freeze();
        let told = frozen.and_then(|()| self.signal_frozen(signals));
        // After an error too: no process may stay frozen.
        let thawed = self.thaw();
        told.and(thawed)
    }

    fn signal_frozen(&self, signals: &[i32]) -> io::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(1);
        // A process that waits for a disk freezes late. It cannot fork meanwhile either.
        self.wait_frozen(PATIENCE)?;
        for directory in below(&self.path)? {
            let path = directory.join("cgroup.procs");
            let list = match fs::read_to_string(&path) {
                // Removed meanwhile; or threaded, so that its processes are listed above it (cgroups(7)).
                Err(error) if has_no_list(&error) => continue,
                list => list.map_err(|error| about(error, &path))?,
            };
            // 0 stands for a process outside of this PID namespace. To kill(2), 0 is the caller's own process group.
            for pid in list.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0) {
                for &signal in signals {
                    let _ = sys::kill(pid, signal);
                }
            }
        }
        Ok(())
    }

    /// [Kills](Self::kill) every process in the cgroup and below, waits until they have gone, for 10 seconds at most, and
    /// [removes](Self::remove) it.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// let group = Cgroup::with_limits(Cgroup::own()?, &[("pids.max", "100")])?;
    /// group.end()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`kill`](Self::kill) and [`remove`](Self::remove).
    pub fn end(self) -> io::Result<()> {
        self.kill()?;
        self.wait_empty(PATIENCE)?;
        self.remove()
    }

    /// Removes the cgroup, and the cgroups that programs in it have created below.
    ///
    /// ```no_run
    /// # use forkless::Cgroup;
    /// # let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
    /// group.kill()?;
    /// group.wait_empty(std::time::Duration::from_secs(10))?;
    /// group.remove()?; // with the error that a drop would not report
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// EBUSY while a process is in one of them; no process is killed. It is no error if it has already been removed.
    pub fn remove(mut self) -> io::Result<()> {
        self.removed = true;
        remove(&self.path)
    }
}

/// How long [`Cgroup::end`] waits: a process in uninterruptible disk sleep ends late.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How long a cgroup may still count a process that has been killed or reaped.
const MOMENT: Duration = Duration::from_millis(50);

/// Removes those below first, since a cgroup with others in it cannot be removed. Retries for a moment while an ended
/// process is still counted.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + MOMENT;
    loop {
        let answer = remove_now(path);
        match answer {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                let left = deadline.saturating_duration_since(Instant::now());
                // Without cgroup.events another process may have removed the cgroup: the next try finds out.
                if left.is_zero() || !events::wait(path, "populated 0", left).unwrap_or(true) {
                    return Err(error);
                }
            }
            answer => return answer,
        }
    }
}

/// Removes it and those below, if there is no process in them.
pub(super) fn remove_now(path: &Path) -> io::Result<()> {
    below(path)?.iter().rev().try_for_each(|one| remove_one(one))
}

fn has_no_list(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    [sys::errno::ENOENT, sys::errno::ENODEV, sys::errno::EOPNOTSUPP].iter().any(|one| errno == Some(*one))
}

fn remove_one(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        answer => answer.map_err(|error| about(error, path)),
    }
}

/// The cgroup and all below it, each before those inside it; none if it has gone.
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
        found.extend(groups.map(|entry| entry.path()).collect::<Vec<_>>());
    }
    Ok(found)
}
