//! Limits and settings of the system that a launch can run into. What is not there, or cannot be read, is null and no error.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};

use super::report::Limit;

/// From here on, in percent of what is allowed, a limit is near.
const NEAR: u64 = 90;

/// Reads them all; `root` is `/`, `files` what the caller is to have open.
pub(crate) fn read(root: &Path, files: u64) -> Vec<Limit> {
    let mut limits = vec![open_files(files), resource("RLIMIT_NPROC", Resource::Nproc, "processes of this user")];
    limits.extend(groups(root));
    limits.extend(sysctls(root));
    limits.extend(this_process());
    limits.extend(memory(root));
    limits
}

fn limit(name: &str, value: Value, words: &str) -> Limit {
    Limit { name: name.to_owned(), value, words: words.to_owned(), warning: None }
}

/// The soft one.
fn resource(name: &str, resource: Resource, words: &str) -> Limit {
    let found = getrlimit(resource);
    let said = |most: Option<u64>| most.map_or_else(|| json!("unlimited"), |most| json!(most));
    let words = match found.current == found.maximum {
        true => words.to_owned(),
        false => format!("{words}; can be raised to {}", said(found.maximum)),
    };
    limit(name, said(found.current), &words)
}

fn open_files(files: u64) -> Limit {
    let found = resource("RLIMIT_NOFILE", Resource::Nofile, "open files of a process");
    // A launch with three pipes and a pidfd needs some numbers more.
    let warning = getrlimit(Resource::Nofile).current.filter(|&most| files.saturating_add(8) > most).map(|most| {
        format!(
            "RLIMIT_NOFILE: a caller with {files} open files does not fit in {most}, pipes of its children included"
        )
    });
    Limit { warning, ..found }
}

/// What each control group up the tree allows, by version 1 or 2: the lowest number counts.
fn groups(root: &Path) -> Vec<Limit> {
    let kinds = [
        ("pids", "pids.max", "pids.current", "processes and threads in this control group"),
        ("memory", "memory.max", "memory.current", "memory of this control group, in bytes"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory of this control group, in bytes"),
    ];
    let mut limits = Vec::new();
    for directory in kinds.iter().flat_map(|(controller, ..)| own_groups(root, controller)).collect::<Vec<_>>() {
        for (_, most, now, words) in kinds {
            let Some(value) = number_or_word(&directory.join(most)) else { continue };
            let name = Path::new("/").join(directory.strip_prefix(root).unwrap_or(&directory)).join(most);
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
    /// What version 1 writes for no limit: the largest number of whole pages.
    const NONE: u64 = 1 << 62;
    let used = now.as_ref().and_then(Value::as_u64);
    let most = value.as_u64().filter(|most| *most < NONE);
    let value = if most.is_none() { json!("unlimited") } else { value };
    let words = used.map_or_else(|| words.to_owned(), |used| format!("{words}; {used} now"));
    let is_near = |(used, most): &(u64, u64)| u128::from(*used) * 100 >= u128::from(*most) * u128::from(NEAR);
    let warning = used.zip(most).filter(is_near).map(|(used, most)| format!("{name}: {used} of {most} are used"));
    Limit { name, value, words, warning }
}

/// The directories of our groups from our own up to the root, of version 2 and of this controller of version 1:
/// `proc_pid_mountinfo(5)`, `cgroups(7)`.
fn own_groups(root: &Path, controller: &str) -> Vec<PathBuf> {
    let text = |name: &str| fs::read_to_string(root.join("proc/self").join(name)).unwrap_or_default();
    let (groups, mounts) = (text("cgroup"), text("mountinfo"));
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

/// Name, what it means.
const SYSCTLS: [(&str, &str); 11] = [
    ("kernel.pid_max", "process ids"),
    ("kernel.threads-max", "threads of the whole system"),
    ("vm.overcommit_memory", "with 2 a fork needs as much free memory as the caller has; others do not"),
    ("vm.max_map_count", "mappings of a process"),
    ("vm.memfd_noexec", "with 2 files in memory cannot be executed"),
    ("kernel.yama.ptrace_scope", "from 1 on pidfd_getfd on the parent is refused to ordinary users"),
    ("user.max_user_namespaces", "user namespaces"),
    ("kernel.unprivileged_userns_clone", "with 0 user namespaces are for root only"),
    ("kernel.apparmor_restrict_unprivileged_userns", "with 1 user namespaces of ordinary users may do next to nothing"),
    ("kernel.seccomp.actions_avail", "what filters may answer"),
    ("fs.nr_open", "the most that RLIMIT_NOFILE can be"),
];

fn sysctls(root: &Path) -> impl Iterator<Item = Limit> {
    SYSCTLS.into_iter().map(move |(name, words)| {
        let path = root.join("proc/sys").join(name.replace('.', "/"));
        limit(name, number_or_word(&path).unwrap_or(Value::Null), words)
    })
}

/// Asked by prctl(2), which needs no /proc.
fn this_process() -> [Limit; 3] {
    let ask = |what: i32| {
        // SAFETY: the three that are asked for read a flag of this process.
        let answer = unsafe { libc::prctl(what, 0, 0, 0, 0) };
        if answer < 0 { Value::Null } else { json!(answer) }
    };
    [
        limit("seccomp", ask(libc::PR_GET_SECCOMP), "with 2 a filter decides over the system calls of this process"),
        limit("no_new_privs", ask(libc::PR_GET_NO_NEW_PRIVS), "with 1 set-user-id programs give its children nothing"),
        limit("dumpable", ask(libc::PR_GET_DUMPABLE), "unless 1 /proc/self is root's, and id maps need privileges"),
    ]
}

fn memory(root: &Path) -> Option<Limit> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let kib = |name: &str| {
        let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let (total, available) = (kib("MemTotal")?, kib("MemAvailable")?);
    let words = format!("memory that is left, in bytes, of {} MiB", total >> 10);
    // What is left fills with caches, so this is nearer than the limits above may come.
    let near = available * 100 < total * 3;
    let warning = near.then(|| format!("MemAvailable: {} MiB of {} MiB are left", available >> 10, total >> 10));
    Some(Limit { warning, ..limit("MemAvailable", json!(available << 10), &words) })
}

/// What the file says, as a number where it is one.
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
    fn where_nothing_can_be_read_nothing_breaks() {
        let root = tempfile::tempdir().expect("temporary directory");
        let limits = read(root.path(), 3);
        assert_eq!(find(&limits, "kernel.yama.ptrace_scope").value, Value::Null);
        assert!(find(&limits, "RLIMIT_NOFILE").value.is_number() || find(&limits, "RLIMIT_NOFILE").value.is_string());
        assert!(limits.iter().all(|limit| limit.warning.is_none()), "{limits:?}");
    }

    #[test]
    fn more_files_than_may_be_open_are_told() {
        let limits = read(Path::new("/nonexistent"), u64::MAX);
        let unlimited = getrlimit(Resource::Nofile).current.is_none();
        assert_eq!(find(&limits, "RLIMIT_NOFILE").warning.is_some(), !unlimited);
    }

    /// A tree of both versions, as hybrid systems have it.
    #[test]
    fn control_groups_are_followed_up_to_the_root() {
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

        let limits = groups(root.path());
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
        assert!(limits[1].words.ends_with("; 89 now"), "{}", limits[1].words);
        let near = limits[2].warning.as_deref().expect("nine of ten");
        assert_eq!(near, "/sys/fs/cgroup/unified/user/one/pids.max: 9 of 10 are used");
        assert_eq!(limits[3].warning, None);
    }
}
