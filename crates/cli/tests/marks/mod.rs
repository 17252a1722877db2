//! Runs of `forkless parallel` and `xargs` whose jobs leave marks, so that a test sees how often each one ran.

#![allow(dead_code, reason = "each test program uses only a part of it")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

fn dial(name: &str) -> f64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(1.0)
}

pub(crate) fn scaled(count: usize) -> usize {
    ((count as f64 * dial("FORKLESS_TEST_SCALE")) as usize).max(1)
}

/// A directory with the program `mark`, which adds its last argument to the file `marks` by one write.
pub(crate) struct Place {
    pub(crate) directory: tempfile::TempDir,
    /// In the environment of its processes.
    id: String,
}

/// The variable that marks the processes of a place.
const MARK: &str = "FORKLESS_TEST_MARK";

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        // Other users run programs in it, too.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
        let id = format!("{}-{}", std::process::id(), directory.path().display());
        let place = Self { directory, id };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/runners/mark.c");
        let mut cc = Command::new("cc");
        let built = cc.args(["-O2", "-static", "-o"]).arg(place.path("mark")).arg(source).status().expect("cc");
        assert!(built.success(), "{built:?}");
        fs::write(place.path("marks"), "").expect("a file");
        fs::set_permissions(place.path("marks"), fs::Permissions::from_mode(0o666)).expect("a mode");
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The numbers from 1, a line each.
    pub(crate) fn numbers(&self, count: usize) -> fs::File {
        let text: String = (1..=count).map(|number| format!("{number}\n")).collect();
        fs::write(self.path("numbers"), text).expect("a file");
        fs::File::open(self.path("numbers")).expect("a file")
    }

    pub(crate) fn forkless(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
        command.args(words).current_dir(self.directory.path()).env("MARKS", self.path("marks"));
        // Without it, the shell would be the one that runs the tests.
        command.env("PARALLEL_SHELL", "/bin/sh").env(MARK, &self.id).stdin(Stdio::null());
        command
    }

    /// How often each job has run.
    pub(crate) fn marks(&self) -> BTreeMap<usize, usize> {
        let mut marks = BTreeMap::new();
        for line in fs::read_to_string(self.path("marks")).expect("marks").lines() {
            *marks.entry(line.parse().expect("a number")).or_insert(0) += 1;
        }
        marks
    }

    /// The jobs with a whole line in the log. Asserts that none has two, and that at most one line is cut, as by a full disk.
    pub(crate) fn logged(&self) -> BTreeSet<usize> {
        let text = fs::read_to_string(self.path("log")).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        let (mut logged, mut cut) = (BTreeSet::new(), None);
        for line in whole.lines().filter(|line| !line.starts_with("Seq\t")) {
            let fields: Vec<&str> = line.split('\t').collect();
            if fields.len() < 9 {
                assert!(cut.replace(line.to_owned()).is_none(), "a line of the log: {line:?}");
                continue;
            }
            assert!(logged.insert(fields[0].parse().expect("a number")), "job {} is logged twice", fields[0]);
        }
        logged
    }

    /// Runs a script in the directory, with the command as `$F` and its program `mark` as `$M`.
    pub(crate) fn script(&self, text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]).current_dir(self.directory.path()).env("MARKS", self.path("marks"));
        command.env("F", testing::surroundings::word(env!("CARGO_BIN_EXE_forkless"))).env("M", self.path("mark"));
        command.env("PARALLEL_SHELL", "/bin/sh").env(MARK, &self.id).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, text: &str) -> Output {
        self.script(text).output().expect("sh")
    }

    /// What marks its processes, as an assignment before a command.
    pub(crate) fn mark(&self) -> String {
        format!("{MARK}={}", self.id)
    }

    /// The processes of its runs, which may have outlived them.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mark = format!("{MARK}={}\0", self.id);
        let pids = fs::read_dir("/proc").expect("procfs").flatten().filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let environment = fs::read(entry.path().join("environ")).ok()?;
            environment.windows(mark.len()).any(|part| part == mark.as_bytes()).then_some(pid)
        });
        pids.collect()
    }

    /// Kills what its runs have left behind.
    pub(crate) fn kill_all(&self) {
        wait_for("the end of all processes", || {
            let left = self.processes();
            for pid in left.iter().filter_map(|&pid| Pid::from_raw(pid as i32)) {
                // It may have ended.
                let _ = kill_process(pid, Signal::KILL);
            }
            left.is_empty()
        });
    }

    /// Asserts that each job from 1 to `jobs` has run once.
    pub(crate) fn all_ran_once(&self, jobs: usize, what: &str) {
        assert_eq!(self.marks(), (1..=jobs).map(|job| (job, 1)).collect(), "{what}");
    }

    pub(crate) fn forget_marks(&self) {
        fs::write(self.path("marks"), "").expect("a file");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What a failed test has started may wait for ever, and holds the output of the tests open.
        let left = if thread::panicking() { self.processes() } else { Vec::new() };
        for pid in left.iter().filter_map(|&pid| Pid::from_raw(pid as i32)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

pub(crate) fn send(child: &Child, signal: Signal) {
    // It may have ended.
    let _ = kill_process(Pid::from_child(child), signal);
}

/// Sends signals. Of several, the last one comes again until the process ends: one that comes while the first one waits to
/// be delivered is merged with it.
pub(crate) fn send_all(child: &mut Child, signals: &[Signal]) {
    signals.iter().for_each(|signal| send(child, *signal));
    if let [_, .., last] = signals {
        wait_for("the end after several signals", || {
            send(child, *last);
            thread::sleep(Duration::from_millis(20));
            child.try_wait().expect("a status").is_some()
        });
    }
}

/// Waits for a condition, for a minute. `FORKLESS_TEST_SLOW` multiplies that, for a slow machine.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let (start, limit) = (Instant::now(), Duration::from_secs(60).mul_f64(dial("FORKLESS_TEST_SLOW").max(1.0)));
    while !is_so() {
        assert!(start.elapsed() < limit, "{what}: not after {limit:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The largest resident size so far, in KiB. None when the process has ended: a zombie has no memory.
pub(crate) fn peak(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("not reaped");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse().expect("a number"))
}

/// How a file system is mounted here for one command: by an ordinary user as the root of a user namespace.
pub(crate) fn apart(place: &Place) -> Option<&'static str> {
    let mounts = |unshare: &&str| {
        let mount = place.script(&format!("exec {unshare} mount -t tmpfs tmpfs disk")).output();
        mount.is_ok_and(|output| output.status.success())
    };
    fs::create_dir_all(place.path("disk")).expect("a directory");
    ["unshare -m", "unshare -mUr"].into_iter().find(mounts)
}

/// Runs a script in which `disk` is a small file system, in a mount namespace of its own. As an ordinary user, and without
/// namespaces, `disk` is a directory, and no file may be longer than `blocks` of 512 bytes.
pub(crate) fn with_small_disk(place: &Place, kilobytes: u32, script: &str) -> Output {
    fs::create_dir_all(place.path("disk")).expect("a directory");
    let mount = format!("mount -t tmpfs -o size={kilobytes}k tmpfs disk");
    let mut command = match apart(place) {
        Some(unshare) => {
            let mut command = place.script(&format!("exec {unshare} sh -c \"$0\""));
            command.arg(format!("{mount} && {script}"));
            command
        }
        None => {
            println!("no file system can be mounted here: a limit of the length of files takes its place");
            place.script(&format!("ulimit -f {}; {script}", kilobytes * 2))
        }
    };
    command.output().expect("sh")
}
