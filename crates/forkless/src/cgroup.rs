//! A control group (version 2) of one's own, for children to be born in.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// A control group (version 2) that this handle has made, and removes when it is dropped: `cgroups(7)`.
///
/// ```no_run
/// use forkless::{Cgroup, Command};
/// let group = Cgroup::create("/sys/fs/cgroup/my.slice", "build-7")?;
/// group.memory_max(512 << 20)?.pids_max(100)?;
/// let mut child = Command::new("make").cgroup(group.directory()?).spawn()?;
/// child.wait()?;
/// group.kill()?; // whatever make has left behind
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Dropping the handle removes the group if nobody is in it any more; it neither kills nor waits for who is (but for an
/// instant, since the kernel takes one to notice that a process has gone). [`remove`](Self::remove) tells.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    directory: OwnedFd,
    removed: bool,
}

impl Cgroup {
    /// Makes the group `name` in `parent`, the directory of another group.
    ///
    /// # Errors
    /// `mkdir(2)`'s: EACCES where the caller may not, EEXIST if it is there already (it is left alone then). All errors
    /// of this type name the file.
    pub fn create<P: AsRef<Path>>(parent: P, name: &str) -> io::Result<Self> {
        let path = parent.as_ref().join(name);
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

    /// The most memory that it may use, in bytes: `memory.max`.
    ///
    /// # Errors
    /// ENOENT where the parent group does not hand the controller down: write `+memory` to its `cgroup.subtree_control`.
    pub fn memory_max(&self, bytes: u64) -> io::Result<&Self> {
        self.set("memory.max", &bytes.to_string())
    }

    /// The most processes and threads that it may have: `pids.max`.
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max).
    pub fn pids_max(&self, count: u64) -> io::Result<&Self> {
        self.set("pids.max", &count.to_string())
    }

    /// The most processor time, in microseconds of each period of as many: `cpu.max`. 150,000 of 100,000 are one and a
    /// half processors.
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max).
    pub fn cpu_max(&self, quota: u64, period: u64) -> io::Result<&Self> {
        self.set("cpu.max", &format!("{quota} {period}"))
    }

    /// Writes to any of its files, such as `memory.high` or `io.max`.
    ///
    /// # Errors
    /// ENOENT where the file is not there, EINVAL where the kernel does not take the value.
    pub fn set(&self, file: &str, value: &str) -> io::Result<&Self> {
        let path = self.path.join(file);
        // Not created where it is missing: the kernel would say EPERM, and ENOENT says more.
        let written = fs::OpenOptions::new().write(true).open(&path).and_then(|mut open| {
            use io::Write;
            open.write_all(value.as_bytes())
        });
        written.map(|()| self).map_err(|error| about(error, &path))
    }

    /// Kills every process in it and below with SIGKILL: `cgroup.kill`, Linux 5.14.
    ///
    /// # Errors
    /// ENOENT on an older kernel.
    pub fn kill(&self) -> io::Result<()> {
        self.set("cgroup.kill", "1").map(drop)
    }

    /// Removes it.
    ///
    /// # Errors
    /// EBUSY while a process or another group is in it.
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
        if !self.removed {
            let _ = remove(&self.path);
        }
    }
}

/// A process that has just been reaped or killed is still counted for a moment.
fn remove(path: &Path) -> io::Result<()> {
    let mut tries = 20;
    loop {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && tries > 0 => {
                tries -= 1;
                sleep(Duration::from_millis(1));
            }
            answer => return answer.map_err(|error| about(error, path)),
        }
    }
}

fn about(error: io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("control group {path:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;

    /// Where a group can be made here, if anywhere.
    fn parent() -> Option<&'static str> {
        let found = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].into_iter().find(|parent| {
            let probe = Path::new(parent).join(format!("forkless-probe-{}", std::process::id()));
            Path::new(parent).join("cgroup.procs").exists()
                && fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe)).is_ok()
        });
        if found.is_none() {
            eprintln!("SKIPPED: control groups, because no version 2 group is writable here");
        }
        found
    }

    #[test]
    fn a_child_is_born_in_it_killed_with_it_and_it_is_removed() -> io::Result<()> {
        let Some(parent) = parent() else { return Ok(()) };
        let name = format!("forkless-test-{}", std::process::id());
        let group = Cgroup::create(parent, &name)?;
        assert_eq!(Cgroup::create(parent, &name).unwrap_err().kind(), ErrorKind::AlreadyExists);
        let seen = Command::new("cat").arg("/proc/self/cgroup").cgroup(group.directory()?).output()?;
        assert!(String::from_utf8_lossy(&seen.stdout).contains(&format!("0::/{name}")), "{seen:?}");
        let mut child = Command::new("sleep").arg("1000").cgroup(group.directory()?).spawn()?;
        assert_eq!(fs::remove_dir(group.path()).unwrap_err().kind(), ErrorKind::ResourceBusy);
        group.kill()?;
        assert!(!child.wait()?.success());
        let path = group.path().to_owned();
        drop(group);
        assert!(!path.exists());
        Ok(())
    }

    #[test]
    fn a_group_that_is_gone_is_an_error_of_the_clone() -> io::Result<()> {
        let Some(parent) = parent() else { return Ok(()) };
        let group = Cgroup::create(parent, &format!("forkless-gone-{}", std::process::id()))?;
        let directory = group.directory()?;
        group.remove()?;
        let error = Command::new("true").cgroup(directory).spawn().unwrap_err();
        assert_eq!(crate::Error::of(&error).unwrap().step(), crate::Step::Clone, "{error}");
        Ok(())
    }
}
