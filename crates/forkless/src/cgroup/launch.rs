//! The cgroup of one launch, for limits of a child together with all that it starts.

use super::{Cgroup, end};
use crate::error::reworded;
use crate::process;
use crate::request::command::{Command, GroupLimits, LaunchGroup};
#[cfg(feature = "sandbox")]
use crate::sandbox::Sandbox;
use crate::usage::LimitEvents;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

impl Command {
    /// Limits the memory of the child together with all that it starts, in bytes: a number, or text with the suffix K, M, G or T, or `max`.
    /// `memory.max` in `cgroups(7)`. If the kernel can free no memory, the OOM killer kills a process of them.
    ///
    /// Each launch makes a cgroup of version 2 below [`cgroup_parent`](Self::cgroup_parent), starts the child in it, and
    /// - when the child has ended, kills what it has left running, also in other sessions. The wait for the child, also
    ///   [`try_wait`](crate::Child::try_wait), returns when that has gone and the cgroup has been removed: mostly within a millisecond, 10
    ///   seconds at most
    /// - kills all of them when the handle kills the child: by [`Child::kill`](crate::Child::kill), [`kill_on_drop`](Self::kill_on_drop),
    ///   or a timeout or limit of a [`Capture`](crate::Capture)
    /// - reports by [`Child::limit_events`](crate::Child::limit_events) which limits were reached.
    ///
    /// Until the child is waited for, what it has left runs on, and may hold a pipe that you read yourself.
    ///
    /// A handle that is dropped before leaves the child running with its limits; the cgroup is then removed as
    /// [`reap_orphans`](crate::reap_orphans) says. If this process ends before the child, the cgroup stays:
    /// [`kill_tree`](Self::kill_tree) or a sandbox ends the child with it. A launch returns no sooner than the exec. The kernel keeps a removed
    /// cgroup with a limit of memory until it reclaims the pages that are charged to it: `nr_dying_descendants` in `cgroup.stat`.
    ///
    /// The program can leave the cgroup if it may write to others: as root, or as the user to whom they are delegated, unless it is in a
    /// [sandbox](Self::sandbox).
    ///
    /// ```no_run
    /// # #[cfg(feature = "capture")] {
    /// use forkless::{Capture, Command};
    /// let mut command = Command::new("python3");
    /// command.arg("untrusted.py").memory_max("512M").tasks_max(100).cpu_max(1.5);
    /// let captured = command.capture(&Capture::new())?;
    /// if captured.limit_events.is_some_and(|events| events.oom_kills > 0) {
    ///     eprintln!("it needs more than 512 MiB");
    /// }
    /// # }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The launch fails at [`Step::Limits`](crate::Step::Limits) where no such cgroup can be made, and says what to do: root may make one
    /// anywhere, others in a cgroup that is delegated to them ([`Cgroup::delegated`]). EBUSY: the cgroup of this
    /// process, which contains processes, cannot have limits below it. [`Step::Check`](crate::Step::Check): a value that is none, or
    /// [`cgroup`](Self::cgroup) or [`autoreap`](Self::autoreap), which exclude limits. With
    /// [`best_effort`](Self::best_effort)`(Step::Limits)` the program runs without limits then.
    pub fn memory_max(&mut self, bytes: impl Display) -> &mut Self {
        self.sandbox.limits.set("memory_max", bytes.to_string());
        self
    }

    /// Limits the number of processes and threads of the child together with all that it starts: a number, or `max`. `pids.max` in
    /// `cgroups(7)`. A fork beyond it fails with EAGAIN. See [`memory_max`](Self::memory_max) for the cgroup that each launch makes.
    ///
    /// ```no_run
    /// use forkless::Command;
    /// let status = Command::new("make").arg("-j").tasks_max(100).status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max).
    pub fn tasks_max(&mut self, count: impl Display) -> &mut Self {
        self.sandbox.limits.set("tasks_max", count.to_string());
        self
    }

    /// Limits the CPU time of the child together with all that it starts: a number of CPUs, such as 1.5, or `max`. `cpu.max` in
    /// `cgroups(7)`, in periods of 100 ms. See [`memory_max`](Self::memory_max) for the cgroup that each launch makes.
    ///
    /// ```no_run
    /// use forkless::Command;
    /// let status = Command::new("make").arg("-j").cpu_max(1.5).status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max).
    pub fn cpu_max(&mut self, cpus: impl Display) -> &mut Self {
        self.sandbox.limits.set("cpu_max", cpus.to_string());
        self
    }

    /// Limits the disk I/O of the child together with all that it starts: the numbers of a device and its limits per second as in `io.max` of
    /// `cgroups(7)`, such as `8:0 rbps=10485760 wiops=100`; one line per device. See [`memory_max`](Self::memory_max) for the cgroup that each
    /// launch makes.
    ///
    /// ```no_run
    /// use forkless::Command;
    /// let status = Command::new("make").io_max("8:0 wbps=10485760").status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max). ENODEV: there is no such device.
    pub fn io_max(&mut self, limits: impl Display) -> &mut Self {
        self.sandbox.limits.set("io_max", limits.to_string());
        self
    }

    /// Sets the directory of the cgroup below which each launch makes its own, as [`memory_max`](Self::memory_max) says. Without a limit it
    /// needs no controllers, and what the child leaves running is killed all the same.
    ///
    /// The default for a command with a limit is [`Cgroup::delegated`].
    ///
    /// ```no_run
    /// use forkless::Command;
    /// let status = Command::new("make").memory_max("1G").cgroup_parent("/sys/fs/cgroup/builds").status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`memory_max`](Self::memory_max).
    pub fn cgroup_parent<P: AsRef<Path>>(&mut self, directory: P) -> &mut Self {
        self.sandbox.limits.set_parent(directory.as_ref());
        self
    }

    /// Whether each launch makes a cgroup: its child's handle must then be kept.
    #[doc(hidden)]
    pub fn has_cgroup(&self) -> bool {
        let of_sandbox = || self.confinement.as_ref().is_some_and(|sandbox| sandbox.has_cgroup());
        self.sandbox.limits.make.is_some() || of_sandbox()
    }
}

/// Limits of each launch in the sandbox, for all its processes together. A limit that the command sets itself replaces that of the sandbox.
#[cfg(feature = "sandbox")]
impl Sandbox {
    /// Limits the memory of each launch, in bytes: [`Command::memory_max`].
    ///
    /// ```no_run
    /// use forkless::{Capture, Command, Sandbox};
    /// let sandbox = Sandbox::new().write("/srv/results").memory_max(512 << 20).tasks_max(100).prepare()?;
    /// let captured = Command::new("analyse").current_dir("/srv/results").sandbox(&sandbox).capture(&Capture::new())?;
    /// println!("{:?}", captured.limit_events);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn memory_max(&mut self, bytes: impl Display) -> &mut Self {
        self.limit("memory_max", bytes.to_string());
        self
    }

    /// Limits the processes and threads of each launch: [`Command::tasks_max`].
    ///
    /// ```no_run
    /// let sandbox = forkless::Sandbox::new().tasks_max(100).prepare()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn tasks_max(&mut self, count: impl Display) -> &mut Self {
        self.limit("tasks_max", count.to_string());
        self
    }

    /// Limits the CPU time of each launch, as a number of CPUs: [`Command::cpu_max`].
    ///
    /// ```no_run
    /// let sandbox = forkless::Sandbox::new().cpu_max(1.5).prepare()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn cpu_max(&mut self, cpus: impl Display) -> &mut Self {
        self.limit("cpu_max", cpus.to_string());
        self
    }

    /// Limits the disk I/O of each launch: [`Command::io_max`].
    ///
    /// ```no_run
    /// let sandbox = forkless::Sandbox::new().io_max("8:0 rbps=10485760").prepare()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn io_max(&mut self, limits: impl Display) -> &mut Self {
        self.limit("io_max", limits.to_string());
        self
    }

    /// Sets the directory of the cgroup below which each launch makes its own: [`Command::cgroup_parent`].
    ///
    /// ```no_run
    /// let sandbox = forkless::Sandbox::new().cgroup_parent("/sys/fs/cgroup/tools").prepare()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn cgroup_parent<P: AsRef<Path>>(&mut self, directory: P) -> &mut Self {
        self.limits.set_parent(directory.as_ref());
        self
    }

    /// Sets a limit by the name of its setting. Returns false if no limit has that name.
    #[doc(hidden)]
    pub fn limit(&mut self, name: &str, value: String) -> bool {
        self.limits.set(name, value)
    }
}

impl GroupLimits {
    fn set_parent(&mut self, directory: &Path) {
        self.make = Some(make);
        self.parent = Some(directory.to_owned());
    }

    /// Sets a limit by the name of its setting. Returns false if no limit has that name.
    fn set(&mut self, name: &str, given: String) -> bool {
        let (file, value, what) = match name {
            "memory_max" => ("memory.max", size(&given), "a number of bytes, perhaps with K, M, G or T, or max"),
            "tasks_max" => ("pids.max", number(&given), "a number, or max"),
            "cpu_max" => ("cpu.max", quota(&given), "a number of CPUs from 0.01 on, or max"),
            "io_max" => {
                let is_good = given.contains(':') && !given.contains('\0');
                ("io.max", is_good.then(|| given.clone()), "a device and its limits, such as 8:0 rbps=1048576")
            }
            "cgroup_parent" => {
                self.set_parent(Path::new(&given));
                return true;
            }
            _ => return false,
        };
        self.make = Some(make);
        match value {
            Some(value) => {
                self.bad.remove(file);
                self.files.insert(file, value);
            }
            None => _ = self.bad.insert(file, format!("{name} must be {what}, not {given:?}")),
        }
        true
    }
}

fn number(text: &str) -> Option<String> {
    if text == "max" { Some(text.to_owned()) } else { text.parse::<u64>().ok().map(super::amount) }
}

/// A number of CPUs as the kernel spells it.
fn quota(text: &str) -> Option<String> {
    const PERIOD: f64 = 100_000.0;
    if text == "max" {
        return Some(text.to_owned());
    }
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    // The kernel's shortest quota is 1 ms.
    let cpus = text.parse::<f64>().ok().filter(|cpus| is_plain && (0.01..=1e6).contains(cpus))?;
    Some(format!("{} {PERIOD}", (cpus * PERIOD).round()))
}

/// An amount of bytes as the kernel spells it.
fn size(text: &str) -> Option<String> {
    if text == "max" {
        return Some(text.to_owned());
    }
    let shift = ["", "K", "M", "G", "T"].iter().rposition(|suffix| text.ends_with(suffix))?;
    let digits = if shift == 0 { text } else { text.get(..text.len() - 1)? };
    // A sign would be accepted by parse().
    let number = digits.parse::<u64>().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let bytes = number.checked_mul(1 << (10 * shift))?;
    Some(super::amount(bytes))
}

/// Makes the cgroup of one launch.
fn make(limits: &GroupLimits) -> io::Result<Box<dyn LaunchGroup>> {
    let parent = match &limits.parent {
        Some(parent) => parent.clone(),
        None => Cgroup::delegated()?,
    };
    let given: Vec<_> = limits.files.iter().flat_map(|(file, value)| value.lines().map(|line| (*file, line))).collect();
    let group = Cgroup::with_limits(&parent, &given).map_err(|error| {
        let words = format!("{error}; {}", remedy(&error));
        reworded(error, words)
    })?;
    Ok(Box::new(OfLaunch {
        group: Some(group),
        limits_memory: limits.files.contains_key("memory.max"),
        limits_tasks: limits.files.contains_key("pids.max"),
        owner: process::generation(),
    }))
}

/// What to do where no cgroup with limits can be made.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::ReadOnlyFilesystem => "the cgroup file system is read-only: give the container a writable cgroup",
        ErrorKind::InvalidInput => "the kernel does not accept the value",
        _ => {
            "name a parent by cgroup_parent, or run this program as a service of systemd with Delegate=yes and DelegateSubgroup=main"
        }
    }
}

/// The cgroup of one launch.
#[derive(Debug)]
struct OfLaunch {
    /// `None`: it has been removed.
    group: Option<Cgroup>,
    limits_memory: bool,
    limits_tasks: bool,
    /// The process that has made it: see [`process::generation`].
    owner: u32,
}

/// How long a drop waits for the end of the processes that it has killed.
const MOMENT: Duration = Duration::from_millis(50);

impl OfLaunch {
    fn events(&self) -> LimitEvents {
        let Some(group) = &self.group else { return LimitEvents::default() };
        let read = |is_limited: bool, file| is_limited.then(|| group.counters(file).ok()).flatten().unwrap_or_default();
        let (memory, tasks) = (read(self.limits_memory, "memory.events"), read(self.limits_tasks, "pids.events"));
        let count = |counters: &BTreeMap<_, _>, name: &str| counters.get(name).copied().unwrap_or(0);
        LimitEvents {
            oom_kills: count(&memory, "oom_kill"),
            memory_max: count(&memory, "max"),
            tasks_max: count(&tasks, "max"),
        }
    }

    /// Kills what is left, waits for its end, for `limit` at most, and removes the cgroup.
    fn clear(&mut self, limit: Duration) {
        let Some(mut group) = self.group.take() else { return };
        if self.owner != process::generation() {
            // A forked copy of the process: the child is not its own, and the descriptor may be another file's.
            std::mem::forget(group);
            return;
        }
        // Mostly nothing is left.
        let is_left = end::remove_now(&group.path).is_err();
        if is_left {
            let _ = group.kill();
            let _ = group.wait_empty(limit);
            let _ = end::remove(&group.path);
        }
        group.removed = true;
    }
}

impl LaunchGroup for OfLaunch {
    fn directory(&self) -> BorrowedFd<'_> {
        match &self.group {
            Some(group) => group.as_fd(),
            None => unreachable!("only its end takes it"),
        }
    }

    fn kill(&self) {
        if let Some(group) = self.group.as_ref().filter(|_| self.owner == process::generation()) {
            // The child itself is killed by its handle as well.
            let _ = group.kill();
        }
    }

    fn end(mut self: Box<Self>) -> LimitEvents {
        let events = self.events();
        self.clear(end::PATIENCE);
        events
    }
}

impl Drop for OfLaunch {
    fn drop(&mut self) {
        self.clear(MOMENT);
    }
}

#[cfg(test)]
mod tests;
