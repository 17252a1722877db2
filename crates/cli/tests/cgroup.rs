//! Cgroups of `forkless run`: existing ones, and new ones that are removed with the processes left in them. Tests of limits
//! need writable cgroup v2 controllers.

testing::usual_surroundings!();

mod callers;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::Stdio,
};

use callers::{Caller, binary, shown, skipped};

const CAP_SETUID: u32 = 7;

fn text(path: &Path) -> &str {
    path.to_str().expect("cgroup paths are UTF-8")
}

/// A cgroup for a test, removed with all cgroups below it.
struct Group(PathBuf);

impl Group {
    fn make(test: &str) -> Option<Self> {
        let parents = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
        let name = format!("forkless-{test}-{}", std::process::id());
        let parents = parents.iter().filter(|parent| parent.join("cgroup.controllers").exists());
        let found = parents.map(|parent| parent.join(&name)).find(|group| fs::create_dir(group).is_ok());
        if found.is_none() {
            skipped(test, "no cgroup v2 is writable here");
        }
        found.map(Self)
    }

    /// A cgroup whose children can have limits.
    fn with_limits(test: &str) -> Option<Self> {
        let group = Self::make(test)?;
        for place in [group.0.parent().expect("a parent"), &group.0] {
            if let Err(error) = fs::write(place.join("cgroup.subtree_control"), "+memory +pids +cpu") {
                skipped(test, &format!("cannot enable cgroup v2 controllers: {error}"));
                return None;
            }
        }
        Some(group)
    }

    fn option(&self) -> String {
        format!("--new-cgroup={}", text(&self.0))
    }

    /// The cgroups below it.
    fn below(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).expect("a group").flatten().map(|entry| entry.path());
        entries.filter(|path| path.is_dir()).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A failed test may leave processes, which take a moment to end.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        let removed = (0..100).any(|_| {
            for group in self.below() {
                let _ = fs::remove_dir(group);
            }
            fs::remove_dir(&self.0).is_ok() || {
                std::thread::sleep(std::time::Duration::from_millis(10));
                false
            }
        });
        if !removed {
            eprintln!("cannot remove {:?}", self.0);
        }
    }
}

/// Has this process ended? A zombie counts as ended.
fn has_ended(pid: &str) -> bool {
    match fs::read_to_string(format!("/proc/{}/stat", pid.trim())) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}

#[test]
fn program_starts_in_the_given_cgroup() {
    let Some(group) = Group::make("program_starts_in_the_given_cgroup") else { return };
    let output = Caller::Root.output(&["--cgroup", text(&group.0), "cat", "/proc/self/cgroup"]);
    let seen = String::from_utf8(output.stdout).expect("text");
    let name = group.0.file_name().expect("a name").to_str().expect("text");
    assert!(seen.lines().any(|line| line.starts_with("0::") && line.ends_with(name)), "{seen}");
    let refused = Caller::Root.failure(&["--cgroup=/", "true"]);
    assert!(refused.contains("join the cgroup") && refused.contains("version 2 cgroup"), "{refused}");
    let refused = Caller::Root.failure(&["--supervise", "--cgroup=/", "true"]);
    assert!(refused.contains("into a cgroup") && refused.contains("version 2 cgroup"), "{refused}");
}

#[test]
fn new_cgroup_is_removed_with_its_processes_at_the_end() {
    let Some(group) = Group::make("a_new_control_group_goes") else { return };
    let option = group.option();
    let script = "cat /proc/self/cgroup; sleep 1000 >/dev/null 2>&1 & echo $!; exit 7";
    let output = Caller::Root.output(&[&option, "sh", "-c", script]);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(7), 0), "{output:?}");
    let seen = String::from_utf8(output.stdout).expect("text");
    let place = format!("/{}/forkless-", group.0.file_name().expect("a name").to_str().expect("text"));
    assert!(seen.lines().any(|line| line.starts_with("0::") && line.contains(&place)), "{seen}");
    assert!(has_ended(seen.lines().last().expect("a number")), "{seen}");
    assert_eq!(group.below(), [""; 0].map(PathBuf::from));
    // A launch that fails removes its cgroup, too.
    let output = Caller::Root.output(&[&option, "no-such-program-anywhere"]);
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    assert!(Caller::Root.failure(&[&option, "--chdir=/no/such/directory", "true"]).contains("chdir"));
    let explained = Caller::Root.stdout(&[&option, "--explain", "--tasks-max=5", "true"]);
    assert!(explained.lines().any(|line| line.ends_with("with pids.max 5")), "{explained}");
    assert_eq!(group.below(), [""; 0].map(PathBuf::from));
}

#[test]
fn new_cgroup_is_removed_when_forkless_is_signalled() {
    let Some(group) = Group::make("a_new_control_group_goes_when_told") else { return };
    let option = group.option();
    for (signal, code) in [(libc::SIGTERM, 143), (libc::SIGINT, 130), (libc::SIGHUP, 129)] {
        let script = "sh -c 'trap \"\" TERM INT HUP; echo $$; exec sleep 1000 >/dev/null 2>&1' & wait";
        // SAFETY: no handler. Under nohup(1) SIGHUP is ignored here, and would be in forkless.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        // In a new session, so that forkless must relay the signal.
        let mut command = Caller::Root.forkless(&[&option, "--setsid", "sh", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("forkless starts");
        let mut stubborn = String::new();
        let mut reader = BufReader::new(child.stdout.take().expect("a pipe"));
        reader.read_line(&mut stubborn).expect("a line");
        assert!(!has_ended(&stubborn), "{stubborn}");
        // SAFETY: the child has not been waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        assert_eq!(shown(child.wait().expect("ends")), code);
        assert!(has_ended(&stubborn), "{stubborn}");
        assert_eq!(group.below(), [""; 0].map(PathBuf::from));
    }
}

#[test]
fn unusable_parent_of_a_cgroup_is_an_error() {
    for caller in Caller::all("unusable_parent_of_a_cgroup_is_an_error") {
        let refused = caller.failure(&["--new-cgroup=/tmp", "true"]);
        assert!(refused.contains("--new-cgroup") && refused.contains("not a cgroup of version 2"), "{refused}");
        let refused = caller.failure(&["--memory-max=1G", "--new-cgroup=/no/such/group", "true"]);
        assert!(refused.contains("--memory-max") && refused.contains("/no/such/group"), "{refused}");
    }
    // A cgroup with processes cannot have limited children, so the error must suggest the one above.
    let Some(group) = Group::with_limits("unusable_parent_of_a_cgroup_is_an_error") else { return };
    let inner = group.0.join("inner");
    fs::create_dir(&inner).expect("a group");
    let line = format!("exec {} run --memory-max=1G true", binary());
    let refused = Caller::Root.failure(&["--inherit-all", "--cgroup", text(&inner), "sh", "-c", &line]);
    assert!(refused.contains("it contains processes"), "{refused}");
    assert!(refused.contains(&format!("--new-cgroup={}\n", text(&group.0))), "a parent that works: {refused}");
}

#[test]
fn cgroup_limits_are_set_and_enforced() {
    let Some(group) = Group::with_limits("cgroup_limits_are_set_and_enforced") else { return };
    let option = group.option();
    let options = ["--memory-max=64M", "--memory-high=32M", "--tasks-max=9", "--cpu-quota=150%", "--cpu-weight=50"];
    let script = format!("cd {}/forkless-*; cat memory.max memory.high pids.max cpu.max cpu.weight", text(&group.0));
    let words = [&[option.as_str()], &options[..], &["sh", "-c", &script]].concat();
    assert_eq!(Caller::Root.stdout(&words), "67108864\n33554432\n9\n150000 100000\n50\n");
    // Out of memory.
    let hog = "x=a; while :; do x=$x$x; done";
    let output = Caller::Root.output(&[&option, "--memory-max=16M", "--usage", "sh", "-c", hog]);
    assert_eq!(output.status.code(), Some(137), "{output:?}");
    let words = String::from_utf8(output.stderr).expect("text");
    assert!(words.contains("forkless: out of memory: the kernel killed a process"), "{words}");
    assert!(words.contains("(memory.max is 16384 KiB)"), "{words}");
    let peak = words.lines().find_map(|line| line.trim_start().strip_prefix("cgroup memory ")).map(str::trim);
    assert!(peak.is_some_and(|peak| peak.ends_with("KiB peak")), "{words}");
    // No message without an OOM kill.
    let output = Caller::Root.output(&[&option, "--memory-max=16M", "true"]);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
    // A shell exits at the first fork that fails.
    let script = "for n in 1 2 3 4; do sleep 1000 >/dev/null 2>&1 & done; echo made";
    let output = Caller::Root.output(&[&option, "--tasks-max=3", "sh", "-c", script]);
    assert_eq!((output.status.success(), output.stdout.len()), (false, 0), "{output:?}");
    // Loop until the program has been throttled.
    let script =
        format!("until grep -q 'nr_throttled [1-9]' {}/forkless-*/cpu.stat; do :; done; echo met", text(&group.0));
    let seen = Caller::Root.stdout(&[&option, "--cpu-quota=1%", "--timeout=60", "sh", "-c", &script]);
    assert_eq!(seen, "met\n");
    assert_eq!(group.below(), [""; 0].map(PathBuf::from));
}

/// An ordinary user who owns a cgroup, and runs in one below it, may create others in it.
#[test]
fn ordinary_user_creates_cgroups_in_a_delegated_one() {
    let test = "ordinary_user_creates_cgroups_in_a_delegated_one";
    let Some(_) = Caller::root_with(test, CAP_SETUID) else { return };
    let Some(group) = Group::make(test) else { return };
    let place = group.0.join("inner");
    fs::create_dir(&place).expect("a group");
    for path in [&group.0, &group.0.join("cgroup.procs"), &group.0.join("cgroup.subtree_control")] {
        std::os::unix::fs::chown(path, Some(Caller::Ordinary.uid()), None).expect("chown");
    }
    let option = group.option();
    let run = |options: &[&str]| {
        let outer = ["--inherit-all", "--cgroup", text(&place), "--reuid=65534", "--regid=65534", binary(), "run"];
        Caller::Root.output(&[&outer[..], &[option.as_str()], options].concat())
    };
    let output = run(&["sh", "-c", "id -u; cat /proc/self/cgroup; sleep 1000 >/dev/null 2>&1 & exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let seen = String::from_utf8(output.stdout).expect("text");
    assert!(seen.starts_with("65534\n") && seen.contains("/forkless-"), "{seen}");
    assert_eq!(group.below(), [place.as_path()]);
    drop(group);
    let Some(group) = Group::with_limits(test) else { return };
    let refused = Caller::Ordinary.failure(&[&group.option(), "--tasks-max=3", "true"]);
    assert!(refused.contains("ermission denied"), "{refused}");
}
