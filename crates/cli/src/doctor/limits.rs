//! Limits and system settings that can make a launch fail. One that does not exist or cannot be read is null, not an error.

use std::{
    fs,
    path::{Path, PathBuf},
};

use forkless_core::sys::{getrlimit, uapi};
use rustix::process::dumpable_behavior;
use rustix::thread::{no_new_privs, secure_computing_mode};
use serde_json::{Value, json};

use super::report::Limit;
use super::system::meminfo;

/// A limit is nearly reached from this percentage on.
const NEAR: u64 = 90;

/// The process whose limits are read.
pub(crate) struct Holder {
    /// `/`, except in tests.
    pub(crate) root: PathBuf,
    /// `None`: the calling process.
    pub(crate) pid: Option<u32>,
    /// The number of its open files.
    pub(crate) files: u64,
}

impl Holder {
    /// The text of a file in the process's directory in /proc.
    fn text(&self, name: &str) -> Option<String> {
        let process = self.pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        fs::read_to_string(self.root.join("proc").join(process).join(name)).ok()
    }
}

pub(crate) fn read(holder: &Holder) -> Vec<Limit> {
    let mut limits =
        vec![open_files(holder), resource(holder, "RLIMIT_NPROC", uapi::RLIMIT_NPROC, "processes of the user").0];
    limits.extend(groups(holder));
    limits.extend(sysctls(&holder.root));
    limits.extend(flags(holder));
    limits.extend(memory(&holder.root));
    limits
}

/// Memory left before a limit is reached, in MiB.
pub(crate) fn memory_left_mib(limits: &[Limit]) -> u64 {
    limits.iter().filter_map(|limit| limit.memory_left).min().unwrap_or(0) >> 20
}

fn limit(name: &str, value: Value, words: &str) -> Limit {
    Limit { name: name.to_owned(), value, words: words.to_owned(), warning: None, memory_left: None }
}

/// The soft limit, as an entry and as a number. For another process it is in `/proc/PID/limits`, `proc_pid_limits(5)`.
fn resource(holder: &Holder, name: &str, resource: u32, words: &str) -> (Limit, Option<u64>) {
    let title = if resource == uapi::RLIMIT_NOFILE { "Max open files" } else { "Max processes" };
    let (soft, hard) = match holder.pid {
        None => {
            let limits = getrlimit(resource).ok().map(|both| both.map(|limit| (limit != u64::MAX).then_some(limit)));
            limits.map_or((None, None), Into::into)
        }
        Some(_) => {
            let text = holder.text("limits");
            let line = text.as_ref().and_then(|text| text.lines().find_map(|line| line.strip_prefix(title)));
            let Some(line) = line else { return (limit(name, Value::Null, words), None) };
            let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
            (numbers.next().flatten(), numbers.next().flatten())
        }
    };
    let said = |most: Option<u64>| most.map_or_else(|| json!("unlimited"), |most| json!(most));
    let raised = if soft == hard { String::new() } else { format!("; can be raised to {}", said(hard)) };
    (limit(name, said(soft), &format!("{words}{raised}")), soft)
}

fn open_files(holder: &Holder) -> Limit {
    let (found, most) = resource(holder, "RLIMIT_NOFILE", uapi::RLIMIT_NOFILE, "open files per process");
    // A launch with three pipes needs up to eight more descriptors.
    let warning = most.filter(|&most| holder.files.saturating_add(8) > most).map(|most| {
        let files = holder.files;
        format!("RLIMIT_NOFILE: {files} open files, and the limit of {most} leaves no room for the pipes to a child")
    });
    Limit { warning, ..found }
}

/// The limits of each cgroup up to the root, of version 1 and 2. The lowest one applies.
fn groups(holder: &Holder) -> Vec<Limit> {
    let kinds = [
        ("pids", "pids.max", "pids.current", "processes and threads in this cgroup"),
        ("memory", "memory.max", "memory.current", "memory of this cgroup, in bytes"),
        ("memory", "memory.high", "memory.current", "memory above which this cgroup is throttled, in bytes"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory of this cgroup, in bytes"),
    ];
    let mut limits = Vec::new();
    for directory in kinds.iter().flat_map(|(controller, ..)| own_groups(holder, controller)).collect::<Vec<_>>() {
        for (_, most, now, words) in kinds {
            let Some(value) = number_or_word(&directory.join(most)) else { continue };
            let name = Path::new("/").join(directory.strip_prefix(&holder.root).unwrap_or(&directory)).join(most);
            let name = name.to_string_lossy().into_owned();
            if limits.iter().any(|limit: &Limit| limit.name == name) {
                continue;
            }
            limits.push(group(name, value, number_or_word(&directory.join(now)), words));
        }
    }
    limits
}

fn group(name: String, value: Value, now: Option<Value>, words: &str) -> Limit {
    /// Version 1 writes the largest number of whole pages for no limit; anything above this means no limit.
    const NONE: u64 = 1 << 62;
    let used = now.as_ref().and_then(Value::as_u64);
    let most = value.as_u64().filter(|most| *most < NONE);
    let value = if most.is_none() { json!("unlimited") } else { value };
    let words = used.map_or_else(|| words.to_owned(), |used| format!("{words}; {used} in use"));
    let is_near = |(used, most): &(u64, u64)| u128::from(*used) * 100 >= u128::from(*most) * u128::from(NEAR);
    let warning = used.zip(most).filter(is_near).map(|(used, most)| format!("{name}: {used} of {most} are used"));
    let is_memory = name.rsplit('/').next().is_some_and(|file| file.starts_with("memory."));
    let memory_left = used.zip(most).map(|(used, most)| most.saturating_sub(used)).filter(|_| is_memory);
    Limit { name, value, words, warning, memory_left }
}

/// The directories of the cgroups from the process up to the root, for version 2 and for this controller of version 1:
/// `proc_pid_mountinfo(5)`, `cgroups(7)`.
fn own_groups(holder: &Holder, controller: &str) -> Vec<PathBuf> {
    let root = &holder.root;
    // /proc/PID/cgroup shows paths relative to the cgroup namespace of the reader, so the reader's mounts apply.
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let groups = holder.text("cgroup").unwrap_or_default();
    let mut found = Vec::new();
    for line in mounts.lines() {
        let Some((place, kind)) = line.split_once(" - ") else { continue };
        let (place, kind): (Vec<_>, Vec<_>) = (place.split(' ').collect(), kind.split(' ').collect());
        let (Some(mount_root), Some(mount_point)) = (place.get(3), place.get(4)) else { continue };
        let has_it = kind.get(2).is_some_and(|options| options.split(',').any(|one| one == controller));
        let of_group = |line: &&str| match kind[0] {
            "cgroup2" => line.starts_with("0::"),
            "cgroup" => has_it && line.split(':').nth(1).is_some_and(|all| all.split(',').any(|one| one == controller)),
            _ => false,
        };
        let Some(group) = groups.lines().find(of_group).and_then(|line| line.splitn(3, ':').nth(2)) else { continue };
        let inside = Path::new(group).strip_prefix(mount_root).unwrap_or(Path::new(""));
        let top = root.join(mount_point.trim_start_matches('/'));
        let own = top.join(inside);
        found.extend(own.ancestors().take_while(|directory| directory.starts_with(&top)).map(Path::to_path_buf));
    }
    found
}

/// Name and meaning.
const SYSCTLS: [(&str, &str); 11] = [
    ("kernel.pid_max", "PIDs are below this number"),
    ("kernel.threads-max", "threads on the system"),
    ("vm.overcommit_memory", "2: fork needs as much free memory as the caller uses; other launchers do not"),
    ("vm.max_map_count", "mappings per process"),
    ("vm.memfd_noexec", "2: a memfd cannot be executed"),
    ("kernel.yama.ptrace_scope", "1 or more: an unprivileged child cannot use pidfd_getfd on its caller"),
    ("user.max_user_namespaces", "user namespaces"),
    ("kernel.unprivileged_userns_clone", "0: only root can create user namespaces"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1: user namespaces of ordinary users have almost no privileges"),
    ("kernel.seccomp.actions_avail", "actions that seccomp filters can return"),
    ("fs.nr_open", "highest possible RLIMIT_NOFILE"),
];

fn sysctls(root: &Path) -> impl Iterator<Item = Limit> {
    SYSCTLS.into_iter().map(move |(name, words)| {
        let path = root.join("proc/sys").join(name.replace('.', "/"));
        limit(name, number_or_word(&path).unwrap_or(Value::Null), words)
    })
}

/// For this process, prctl(2) returns them without /proc. For another one, /proc does not show whether it is dumpable.
fn flags(holder: &Holder) -> [Limit; 3] {
    let status = holder.pid.and_then(|_| holder.text("status")).unwrap_or_default();
    let ask = |own: fn() -> rustix::io::Result<u32>, name: &str| {
        if holder.pid.is_some() {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            return line.and_then(|word| word.trim().parse::<u64>().ok()).map_or(Value::Null, |value| json!(value));
        }
        own().map_or(Value::Null, |answer| json!(answer))
    };
    let words = [
        "2: a seccomp filter restricts the process and its children",
        "1: setuid programs give its children no privileges",
        "other than 1: root owns its /proc/self, and ID maps need privileges",
    ];
    [
        limit("seccomp", ask(|| Ok(secure_computing_mode()? as u32), "Seccomp"), words[0]),
        limit("no_new_privs", ask(|| Ok(no_new_privs()? as u32), "NoNewPrivs"), words[1]),
        limit("dumpable", ask(|| Ok(dumpable_behavior()? as u32), "Dumpable"), words[2]),
    ]
}

fn memory(root: &Path) -> Option<Limit> {
    let (total, available) = (meminfo(root, "MemTotal")?, meminfo(root, "MemAvailable")?);
    let words = format!("available memory, in bytes, of {} MiB", total >> 10);
    // A machine in good order may use most of its memory, so warn later than for other limits.
    let near = available * 100 < total * 3;
    let warning =
        near.then(|| format!("MemAvailable: only {} MiB of {} MiB are available", available >> 10, total >> 10));
    let memory_left = Some(available << 10);
    Some(Limit { warning, memory_left, ..limit("MemAvailable", json!(available << 10), &words) })
}

/// The contents of the file, as a number if they are one.
fn number_or_word(path: &Path) -> Option<Value> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    Some(text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(limits: &'a [Limit], name: &str) -> &'a Limit {
        limits.iter().find(|limit| limit.name == name).unwrap_or_else(|| panic!("no {name} in {limits:#?}"))
    }

    #[test]
    fn unreadable_limits_are_null() {
        let root = tempfile::tempdir().expect("temporary directory");
        let limits = read(&Holder { root: root.path().to_path_buf(), pid: None, files: 3 });
        assert_eq!(find(&limits, "kernel.yama.ptrace_scope").value, Value::Null);
        assert!(find(&limits, "RLIMIT_NOFILE").value.is_number() || find(&limits, "RLIMIT_NOFILE").value.is_string());
        assert!(limits.iter().all(|limit| limit.warning.is_none()), "{limits:?}");
        assert_eq!(memory_left_mib(&limits), 0);
        let limits = read(&Holder { root: root.path().to_path_buf(), pid: Some(1), files: 3 });
        assert!(limits.iter().all(|limit| limit.value.is_null()), "{limits:?}");
    }

    #[test]
    fn too_many_open_files_are_a_warning() {
        let limits = read(&Holder { root: "/nonexistent".into(), pid: None, files: u64::MAX });
        let unlimited = getrlimit(uapi::RLIMIT_NOFILE).unwrap()[0] == u64::MAX;
        assert_eq!(find(&limits, "RLIMIT_NOFILE").warning.is_some(), !unlimited);
    }

    /// With cgroups of both versions, as on hybrid systems.
    #[test]
    fn cgroups_are_followed_up_to_the_root() {
        let root = tempfile::tempdir().expect("temporary directory");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("directories");
            fs::write(path, text).expect("written");
        };
        write("proc/self/cgroup", "5:pids,cpu:/a/b\n1:name=systemd:/a/b\n0::/box/user/one\n");
        write(
            "proc/self/mountinfo",
            "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
             32 31 0:29 / /sys/fs/cgroup/pids,cpu rw shared:3 - cgroup cgroup rw,pids,cpu\n\
             33 31 0:30 /box /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        );
        write("sys/fs/cgroup/pids,cpu/a/b/pids.max", "max\n");
        write("sys/fs/cgroup/pids,cpu/a/pids.max", "100\n");
        write("sys/fs/cgroup/pids,cpu/a/pids.current", "89\n");
        write("sys/fs/cgroup/unified/user/one/pids.max", "10\n");
        write("sys/fs/cgroup/unified/user/one/pids.current", "9\n");
        write("sys/fs/cgroup/unified/user/memory.max", "1000000\n");
        write("sys/fs/cgroup/unified/user/memory.current", "4096\n");
        write("sys/fs/cgroup/other/pids.max", "1\n");

        let limits = groups(&Holder { root: root.path().to_path_buf(), pid: None, files: 3 });
        let names: Vec<&str> = limits.iter().map(|limit| limit.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "/sys/fs/cgroup/pids,cpu/a/b/pids.max",
                "/sys/fs/cgroup/pids,cpu/a/pids.max",
                "/sys/fs/cgroup/unified/user/one/pids.max",
                "/sys/fs/cgroup/unified/user/memory.max",
            ]
        );
        assert_eq!(limits[0].value, "unlimited");
        assert_eq!((limits[1].value.as_u64(), &limits[1].warning), (Some(100), &None));
        assert!(limits[1].words.ends_with("; 89 in use"), "{}", limits[1].words);
        let near = limits[2].warning.as_deref().expect("nine of ten");
        assert_eq!(near, "/sys/fs/cgroup/unified/user/one/pids.max: 9 of 10 are used");
        assert_eq!(limits[3].warning, None);
        assert_eq!(limits.iter().filter_map(|limit| limit.memory_left).collect::<Vec<_>>(), [1_000_000 - 4_096]);

        write(
            "proc/77/limits",
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max processes             unlimited            unlimited            processes \n\
             Max open files            1024                 524288               files     \n",
        );
        write("proc/77/cgroup", "0::/box/user\n");
        write("proc/77/status", "Name:\tx\nSeccomp:\t2\nNoNewPrivs:\t1\n");
        let limits = read(&Holder { root: root.path().to_path_buf(), pid: Some(77), files: 1_020 });
        assert_eq!(find(&limits, "RLIMIT_NOFILE").value, 1_024);
        assert!(find(&limits, "RLIMIT_NOFILE").words.ends_with("; can be raised to 524288"));
        assert!(find(&limits, "RLIMIT_NOFILE").warning.is_some());
        assert_eq!(find(&limits, "RLIMIT_NPROC").value, "unlimited");
        assert_eq!((&find(&limits, "seccomp").value, &find(&limits, "no_new_privs").value), (&json!(2), &json!(1)));
        assert!(limits.iter().any(|limit| limit.name == "/sys/fs/cgroup/unified/user/memory.max"));
        assert!(limits.iter().all(|limit| !limit.name.contains("/one/")));
    }
}
