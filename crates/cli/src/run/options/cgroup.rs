//! The cgroup of the program. The options have the names of the properties of systemd-run(1).

use std::{
    fmt::Write,
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use clap::Args;
use forkless::{Cgroup, Command};

use super::{super::failure::Failure, limits::amount};

// No doc comment: clap would take it for the description of `forkless run`.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Cgroup (version 2; any limit creates a new cgroup; suffixes K, M, G, T)")]
pub(crate) struct ControlGroup {
    /// Start the program in the existing cgroup DIR
    #[arg(long, value_name = "DIR", conflicts_with_all = LIMITS)]
    cgroup: Option<PathBuf>,

    /// Start the program in a new cgroup below PARENT (default: the current cgroup); processes left in it when the program
    /// has ended are killed
    #[arg(long, value_name = "PARENT", num_args = 0..=1, require_equals = true)]
    new_cgroup: Option<Option<PathBuf>>,

    /// Set the hard memory limit; the OOM killer enforces it (default: unlimited)
    #[arg(long, value_name = "BYTES", value_parser = amount)]
    memory_max: Option<u64>,

    /// Set the memory limit above which processes are throttled (default: unlimited)
    #[arg(long, value_name = "BYTES", value_parser = amount)]
    memory_high: Option<u64>,

    /// Set the limit of swapped-out memory (default: unlimited)
    #[arg(long, value_name = "BYTES", value_parser = amount)]
    memory_swap_max: Option<u64>,

    /// Set the limit of processes and threads (default: unlimited)
    #[arg(long, value_name = "N", value_parser = amount)]
    tasks_max: Option<u64>,

    /// Set the limit of CPU time: 150% is one and a half CPUs (default: unlimited)
    #[arg(long, value_name = "PERCENT", value_parser = quota)]
    cpu_quota: Option<u64>,

    /// Set the share of CPU time among competing cgroups, 1 to 10000 (default: 100)
    #[arg(long, value_name = "N", value_parser = weight())]
    cpu_weight: Option<u32>,

    /// Set the share of disk I/O among competing cgroups, 1 to 10000 (default: 100)
    #[arg(long, value_name = "N", value_parser = weight())]
    io_weight: Option<u32>,
}

/// Options that create a new cgroup and therefore exclude `--cgroup`.
const LIMITS: [&str; 8] =
    ["new_cgroup", "memory_max", "memory_high", "memory_swap_max", "tasks_max", "cpu_quota", "cpu_weight", "io_weight"];

/// The period of `cpu.max`, in microseconds.
const PERIOD: u64 = 100_000;

fn weight() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=10_000)
}

/// A limit from the command line: its option, and the file and value to write.
struct CgroupLimit {
    flag: &'static str,
    file: &'static str,
    value: String,
}

impl ControlGroup {
    pub(crate) fn apply(&self, command: &mut Command) -> Result<(), Failure> {
        if let Some(directory) = &self.cgroup {
            command.cgroup(super::super::failure::open("--cgroup", directory)?);
        }
        Ok(())
    }

    /// Does the program start in another cgroup?
    pub(crate) fn has_any(&self) -> bool {
        self.cgroup.is_some() || self.new_cgroup.is_some() || !self.limits().is_empty()
    }

    /// Does any option require a new cgroup?
    pub(crate) fn has_new(&self) -> bool {
        self.new_cgroup.is_some() || !self.limits().is_empty()
    }

    /// Creates the new cgroup, if any option requires one.
    pub(crate) fn make(&self) -> Result<Option<OwnGroup>, Failure> {
        if !self.has_new() {
            return Ok(None);
        }
        let limits = self.limits();
        let failed = |error: &dyn std::fmt::Display| {
            let flags = limits.iter().map(|limit| limit.flag).collect::<Vec<_>>().join(", ");
            Failure::before(format_args!("{}: {error}", if flags.is_empty() { "--new-cgroup" } else { &flags }))
        };
        let mut controllers: Vec<&str> = limits.iter().filter_map(|limit| limit.file.split('.').next()).collect();
        controllers.dedup();
        let parent = match self.new_cgroup.iter().flatten().next() {
            Some(parent) => {
                Cgroup::hand_down(parent, &controllers).map_err(|error| failed(&error))?;
                parent.clone()
            }
            None => {
                let own = Cgroup::delegated().map_err(|error| failed(&error))?;
                let advised = |error| failed(&format_args!("{error}{}", advice(&own, &controllers)));
                Cgroup::hand_down(&own, &controllers).map_err(advised)?;
                own
            }
        };
        // `OwnGroup` removes the cgroup on drop, so the error returns below leave none behind.
        let group = OwnGroup(Some(Cgroup::with_limits(&parent, &[]).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => failed(&format_args!("{error}; {}", remedy(&controllers))),
            _ => failed(&error),
        })?));
        for CgroupLimit { flag, file, value } in &limits {
            let set = group.get().map_or(Ok(()), |group| group.set(file, value).map(drop));
            set.map_err(|error| Failure::before(format_args!("{flag}: {error}")))?;
        }
        Ok(Some(group))
    }

    fn limits(&self) -> Vec<CgroupLimit> {
        // The kernel writes "max" for no limit.
        let size = |number: u64| if number == u64::MAX { "max".to_owned() } else { number.to_string() };
        let limits = [
            ("--memory-max", "memory.max", self.memory_max.map(size)),
            ("--memory-high", "memory.high", self.memory_high.map(size)),
            ("--memory-swap-max", "memory.swap.max", self.memory_swap_max.map(size)),
            ("--tasks-max", "pids.max", self.tasks_max.map(size)),
            ("--cpu-quota", "cpu.max", self.cpu_quota.map(|quota| format!("{quota} {PERIOD}"))),
            ("--cpu-weight", "cpu.weight", self.cpu_weight.map(|weight| weight.to_string())),
            ("--io-weight", "io.weight", self.io_weight.map(|weight| format!("default {weight}"))),
        ];
        limits.into_iter().filter_map(|(flag, file, value)| Some(CgroupLimit { flag, file, value: value? })).collect()
    }

    /// Describes the cgroup that the clone uses, for `--explain`.
    pub(crate) fn describe(&self) -> String {
        let limits = self.limits();
        let mut words = String::new();
        if let Some(directory) = &self.cgroup {
            words = format!("; in the cgroup {directory:?}");
        } else if self.new_cgroup.is_some() || !limits.is_empty() {
            words = match self.new_cgroup.iter().flatten().next() {
                Some(parent) => format!("; in a new cgroup below {parent:?}"),
                None => "; in a new cgroup below the current one".to_owned(),
            };
            for (number, CgroupLimit { file, value, .. }) in limits.iter().enumerate() {
                let _ = write!(words, "{} {file} {value}", if number == 0 { " with" } else { "," });
            }
        }
        words
    }
}

/// A cgroup created for this run. Dropping it kills the processes in it and removes it.
#[derive(Debug)]
pub(crate) struct OwnGroup(Option<Cgroup>);

impl OwnGroup {
    fn get(&self) -> Option<&Cgroup> {
        self.0.as_ref()
    }

    pub(crate) fn join(&self, command: &mut Command) -> Result<(), Failure> {
        if let Some(group) = self.get() {
            let failed = |error| Failure::before(format_args!("--new-cgroup: {error}"));
            command.cgroup(group.directory().map_err(failed)?);
        }
        Ok(())
    }

    /// Processes of the cgroup that the OOM killer has killed.
    pub(crate) fn oom_kills(&self) -> u64 {
        self.get().and_then(|group| group.oom_kills().ok()).unwrap_or(0)
    }

    /// A message if the OOM killer ran in the cgroup: the exit code alone shows only a SIGKILL.
    pub(crate) fn trouble(&self) -> Option<String> {
        let group = self.get()?;
        let killed = group.oom_kills().ok().filter(|killed| *killed > 0)?;
        let who = if killed == 1 { "a process".to_owned() } else { format!("{killed} processes") };
        let limit = match group.get("memory.max").ok().and_then(|text| text.parse::<u64>().ok()) {
            Some(bytes) => format!("memory.max is {} KiB", bytes >> 10),
            None => "it has no memory.max of its own".to_owned(),
        };
        Some(format!("out of memory: the kernel killed {who} of the cgroup ({limit})"))
    }

    /// Lines for `--usage`, as far as the kernel accounts for the cgroup.
    pub(crate) fn usage(&self) -> String {
        let mut lines = String::new();
        let Some(group) = self.get() else { return lines };
        if let Ok(bytes) = group.memory_peak() {
            let _ = writeln!(lines, "  cgroup memory {} KiB peak", bytes >> 10);
        }
        if let Ok(count) = group.pids_peak() {
            let _ = writeln!(lines, "  cgroup tasks  {count} peak");
        }
        if let Ok(time) = group.cpu_time() {
            let _ = writeln!(lines, "  cgroup CPU    {:.6} s", time.as_secs_f64());
        }
        lines
    }

    /// Kills the processes left in the cgroup and removes it.
    pub(crate) fn end(mut self) -> io::Result<()> {
        self.clear()
    }

    fn clear(&mut self) -> io::Result<()> {
        self.0.take().map_or(Ok(()), Cgroup::end)
    }
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        let _ = self.clear();
    }
}

/// Suggests another parent for the new cgroup. It is not used automatically: the program would escape the limits of the
/// current cgroup.
fn advice(own: &Path, controllers: &[&str]) -> String {
    let hands_down = |directory: &&Path| {
        let handed = fs::read_to_string(directory.join("cgroup.subtree_control")).unwrap_or_default();
        controllers.iter().all(|one| handed.split_whitespace().any(|word| word == *one))
    };
    let may_write = |directory: &&Path| rustix::fs::access(*directory, rustix::fs::Access::WRITE_OK).is_ok();
    match own.ancestors().skip(1).filter(may_write).find(hands_down) {
        Some(above) => format!("; this parent outside the current cgroup would work: --new-cgroup={}", above.display()),
        None => format!("; {}", remedy(controllers)),
    }
}

/// What to do where no cgroup above the current one has the controllers.
fn remedy(controllers: &[&str]) -> String {
    // Lines of version 1 are NUMBER:CONTROLLERS:PATH, that of version 2 has no controllers.
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let bound = |one: &str| {
        groups.lines().any(|line| line.split(':').nth(1).is_some_and(|list| list.split(',').any(|word| word == one)))
    };
    match controllers.iter().find(|one| bound(one)) {
        Some(one) => format!(
            "here version 1 has the controller {one}: boot with systemd.unified_cgroup_hierarchy=1, or use a resource limit \
             such as --as=BYTES or --nproc=N"
        ),
        None => "select a parent with these controllers by --new-cgroup=PARENT, or run forkless as a service of systemd with Delegate=yes \
                 and DelegateSubgroup=main"
            .to_owned(),
    }
}

/// A percentage of one CPU, as microseconds of each period.
fn quota(word: &str) -> Result<u64, String> {
    let digits = word.strip_suffix('%').filter(|text| text.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
    let percent = digits.and_then(|text| text.parse::<f64>().ok()).filter(|percent| (1.0..=1e6).contains(percent));
    let percent = percent.ok_or("must be a percentage of one CPU, at least 1%, such as 150%")?;
    Ok((percent * PERIOD as f64 / 100.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_is_a_percentage_of_one_cpu() {
        assert_eq!(quota("150%"), Ok(150_000));
        assert_eq!(quota("12.5%"), Ok(12_500));
        for word in ["", "%", "150", "0%", "0.5%", "-5%", "inf%", "1e3%", "9999999%"] {
            assert!(quota(word).is_err(), "{word}");
        }
    }
}
