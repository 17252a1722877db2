//! Shortages, files that change, callers that die at any moment, and many launches by many threads.

use crate::common::{
    SCENARIO, by_template, command, grow_old, in_own_process, library, options, prepared, until, warm,
};
use forkless::warm::WarmOptions;
use forkless_core::sys::{getrlimit, setrlimit, uapi};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A caller or a template that may have no further process. Root has no such limit; then the caller only differs.
#[test]
fn at_a_limit_of_processes() {
    in_own_process("faults::at_a_limit_of_processes", || {
        let is_root = rustix::process::geteuid().is_root();
        let warm = warm();
        let of = |program: &str| command(program, &[]).prepare().expect("a plan");
        let (one, other) = (of("/bin/true"), of("/bin/false"));
        by_template(&warm, &one).expect("warm");
        let template = warm.templates();
        let usual = getrlimit(uapi::RLIMIT_NPROC).expect("a limit");
        setrlimit(uapi::RLIMIT_NPROC, &[1, usual[1]]).expect("a limit");
        match warm.spawn(&one) {
            Ok(mut child) => {
                assert!(is_root && child.cold_reason().is_some(), "the caller's limit is not that of its launches");
                assert!(child.wait().expect("its end").success());
            }
            Err(error) => assert!(!is_root && error.kind() == std::io::ErrorKind::WouldBlock, "{error}"),
        }
        assert_eq!(warm.start(&other).is_ok(), is_root);
        setrlimit(uapi::RLIMIT_NPROC, &usual).expect("a limit");
        assert_eq!((warm.stats().refusals, warm.templates().contains(&template[0])), (0, true));
        by_template(&warm, &one).expect("warm again");
        by_template(&warm, &other).expect("warm");
        if is_root {
            return;
        }
        let none = Rlimit { current: Some(1), maximum: Some(usual[1]) };
        prlimit(Pid::from_raw(template[0] as i32), Resource::Nproc, none).expect("a process");
        let mut child = warm.spawn(&one).expect("a child");
        assert_eq!(child.cold_reason(), Some("the template could not make the child"));
        assert!(child.wait().expect("its end").success());
        by_template(&warm, &one).expect("warm again");
        assert!(!warm.templates().contains(&template[0]), "a template that makes no child is kept");
    });
}

/// A cgroup of this test, of version 1 or 2. Removed at its end.
struct Group(PathBuf);

impl Group {
    /// With a controller, whose limit is set by the first of these files that exists. `None`: none is writable here, which
    /// is printed.
    fn new(test: &str, controller: &str, limits: &[&str]) -> Option<(Self, PathBuf)> {
        let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", format!("+{controller}"));
        let bases = [format!("/sys/fs/cgroup/{controller}"), "/sys/fs/cgroup".to_owned()];
        for base in bases {
            let group = Self(Path::new(&base).join(format!("forkless-{test}-{}", std::process::id())));
            let is_made = fs::create_dir(&group.0).is_ok();
            let limit = limits.iter().map(|name| group.0.join(name)).find(|path| is_made && path.exists());
            if let Some(limit) = limit {
                return Some((group, limit));
            }
        }
        println!("SKIPPED: {test}, because no cgroup with the controller {controller} can be made");
        None
    }

    fn add(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("a process");
    }

    fn remove(&self, pid: u32) {
        let _ = fs::write(self.0.parent().expect("a parent").join("cgroup.procs"), pid.to_string());
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.remove(std::process::id());
        until("the cgroup cannot be removed", || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

/// The caller and its templates are in a cgroup in which no further process may be.
#[test]
fn in_a_full_cgroup_of_processes() {
    in_own_process("faults::in_a_full_cgroup_of_processes", || {
        let Some((group, limit)) = Group::new("pids", "pids", &["pids.max"]) else { return };
        group.add(std::process::id());
        let warm = warm();
        let of = |program: &str| command(program, &[]).prepare().expect("a plan");
        let (one, other) = (of("/bin/true"), of("/bin/false"));
        by_template(&warm, &one).expect("warm");
        let templates = warm.templates();
        let current = || fs::read_to_string(group.0.join("pids.current")).expect("a number");
        let number = |more: u32| (current().trim().parse::<u32>().expect("a number") + more).to_string();
        fs::write(&limit, number(0)).expect("a limit");
        for _ in 0..3 {
            let error = warm.spawn(&one).expect_err("a further process");
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
            assert!(warm.start(&other).is_err());
        }
        assert_eq!((warm.stats().refusals, warm.templates()), (0, templates.clone()));
        // One more: a child.
        fs::write(&limit, number(1)).expect("a limit");
        let mut child = warm.spawn(&one).expect("a child");
        assert_eq!(child.cold_reason(), None);
        child.wait().expect("its end");
        fs::write(&limit, "max").expect("a limit");
        by_template(&warm, &one).expect("warm again");
        assert_eq!(warm.templates(), templates);
        by_template(&warm, &other).expect("warm");
        drop(warm);
    });
}

/// A template that gets no more memory: each launch is right, or it fails as any program fails in a cgroup without memory.
#[test]
fn a_template_without_memory() {
    in_own_process("faults::a_template_without_memory", || {
        let limits = ["memory.max", "memory.limit_in_bytes"];
        let Some((group, limit)) = Group::new("memory", "memory", &limits) else { return };
        let warm = warm();
        let plan = prepared(&mut command("/bin/echo", &["text"]));
        let mut cold = 0;
        fs::write(&limit, "65536").expect("a limit");
        for _ in 0..10 {
            by_template(&warm, &plan).expect("warm");
            warm.templates().into_iter().for_each(|template| group.add(template));
            let Ok(child) = warm.spawn(&plan) else { continue };
            cold += u32::from(child.cold_reason().is_some());
            let output = child.wait_with_output().expect("its output");
            use std::os::unix::process::ExitStatusExt;
            let is_killed = output.status.signal() == Some(9);
            assert!(is_killed || output.status.success() && output.stdout == b"text\n", "{output:?}");
            warm.templates().into_iter().for_each(|template| group.remove(template));
        }
        println!("{cold} of 10 launches were cold, {:?}", warm.stats());
        drop(warm);
    });
}

/// Address space instead of memory: what the template or its child cannot map makes the launch cold.
#[test]
fn a_template_without_address_space() {
    let warm = warm();
    let text = "x".repeat(30_000);
    let plan = prepared(command("/bin/echo", &[&text]).warm(&warm));
    let limited = |launches: bool, why: &str| {
        let [template] = warm.templates()[..] else { panic!("one template") };
        let none = Rlimit { current: Some(4096), maximum: Some(4096) };
        prlimit(Pid::from_raw(template as i32), Resource::As, none).expect("a process");
        let child = if launches { plan.launch() } else { plan.spawn() }.expect("a child");
        assert_eq!(child.cold_reason(), Some(why));
        assert_eq!(child.wait_with_output().expect("its output").stdout, format!("{text}\n").as_bytes());
    };
    // The child has no room for its arguments.
    for launches in [false, true] {
        by_template(&warm, &plan).expect("warm");
        limited(launches, "the template could not make the child");
    }
    // The template cannot map its first parcel.
    warm.start(&plan).expect("a template");
    limited(false, "the template has ended");
    by_template(&warm, &plan).expect("warm again");
}

/// The library that templates are made with is replaced and deleted.
#[test]
fn the_library_is_compared() {
    let place = tempfile::tempdir().expect("a directory");
    let (path, new) = (place.path().join("libforkless_warm.so"), place.path().join("new"));
    fs::copy(library(), &path).expect("a copy");
    grow_old(&path);
    let warm = options().library(&path).open().expect("a set");
    let prepared = prepared(&mut command("/bin/echo", &["text"]));
    by_template(&warm, &prepared).expect("warm");
    let cold = |why: &str| {
        let child = warm.spawn(&prepared).expect("a child");
        assert_eq!(child.cold_reason(), Some(why));
        assert_eq!(child.wait_with_output().expect("its output").stdout, b"text\n");
    };
    fs::copy(library(), &new).expect("a copy");
    fs::rename(&new, &path).expect("a file");
    cold("a library or a file of the loader has changed");
    grow_old(&path);
    by_template(&warm, &prepared).expect("warm");
    fs::rename(&path, &new).expect("a file");
    cold("a library or a file of the loader has changed");
    assert!(warm.start(&prepared).is_err());
    fs::rename(&new, &path).expect("a file");
    grow_old(&path);
    by_template(&warm, &prepared).expect("warm");
    assert_eq!((warm.stats().starts, warm.stats().refusals), (3, 0));
}

/// SIGKILL at any moment of the start of templates and of launches: all processes of the caller end, and each child that
/// runs has its own plan. How often: `FORKLESS_WARM_KILLS`.
#[test]
fn callers_that_die_leave_nothing() {
    let test = "faults::callers_that_die_leave_nothing";
    const PLACE: &str = "FORKLESS_WARM_PLACE";
    if let (Some(_), Some(place)) = (std::env::var_os(SCENARIO), std::env::var_os(PLACE)) {
        let place = PathBuf::from(place);
        let warm = options().launches(7).open().expect("a set");
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (warm, place) = (&warm, &place);
                scope.spawn(move || {
                    for n in 0.. {
                        let file = fs::File::options().append(true).open(place.join("output")).expect("a file");
                        let (text, name) = (format!("{thread}-{n}"), format!("name-{}", n % 2));
                        let mut command = command("/bin/dash", &["-c", "echo $0 $1 $PWD $(pwd)", &text, &text]);
                        command.current_dir(place).env("PWD", place).arg0(&name).stdout(file);
                        warm.spawn(&command.prepare().expect("a plan")).expect("a child").wait().expect("its end");
                    }
                });
            }
        });
    }
    in_own_process(test, || {
        const PR_SET_CHILD_SUBREAPER: usize = 36;
        // SAFETY: of this process alone.
        unsafe {
            let args = [PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0, 0];
            forkless_core::sys::syscall(forkless_core::sys::uapi::__NR_prctl, args).expect("a subreaper");
        }
        let rounds = std::env::var("FORKLESS_WARM_KILLS").map_or(100, |count| count.parse().expect("a number"));
        let mut lines = 0;
        for round in 0..rounds {
            let place = tempfile::tempdir().expect("a directory");
            let output = place.path().join("output");
            fs::write(&output, "").expect("a file");
            let mut caller = std::process::Command::new(std::env::current_exe().expect("a program"));
            caller.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(PLACE, place.path());
            caller.env_remove("LD_LIBRARY_PATH").stdout(std::process::Stdio::null());
            let mut caller = caller.spawn().expect("a process");
            // The first launches and the first start; then later ones.
            match round % 4 {
                0 => {}
                1 => until("no child runs", || fs::metadata(&output).expect("a file").len() > 0),
                many => until("no child runs", || fs::metadata(&output).expect("a file").len() > 700 * many),
            }
            std::thread::sleep(Duration::from_micros(round * 7919 % 20_000));
            caller.kill().expect("a process");
            caller.wait().expect("its end");
            // Orphans come to this process. The wait ends only if the templates do.
            until("processes outlive their caller", || {
                loop {
                    match rustix::process::waitpid(None, rustix::process::WaitOptions::NOHANG) {
                        Ok(Some(_)) => {}
                        Ok(None) => break false,
                        Err(_) => break true,
                    }
                }
            });
            let text = fs::read_to_string(&output).expect("a file");
            let mut seen = HashSet::new();
            let place = place.path().to_str().expect("UTF-8");
            for line in text.lines() {
                let own = line.split(' ').next().expect("a word");
                assert_eq!(line, format!("{own} {own} {place} {place}"));
                assert!(seen.insert(own), "{line}: twice");
            }
            lines += seen.len();
        }
        println!("{rounds} callers killed, {lines} children had written");
    });
}

/// Many threads launch for long. Nothing grows: descriptors, threads, memory, children. How much for each thread:
/// `FORKLESS_WARM_SOAK` (default: 5,000).
///
/// `cargo test --release -p forkless-warm --test warm faults::soak -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes"]
fn soak() {
    in_own_process("faults::soak", || {
        let count: u32 = std::env::var("FORKLESS_WARM_SOAK").map_or(5_000, |count| count.parse().expect("a number"));
        let warm = WarmOptions::new().library(library()).open().expect("a set");
        let launch = |thread: u32, n: u32| {
            let (text, directory) = (format!("{thread} {n}"), if n.is_multiple_of(2) { "/usr" } else { "/etc" });
            let mut command =
                command("/bin/dash", &["-c", "echo \"$1\"; pwd; exit $2", "sh", &text, &(n % 7).to_string()]);
            let prepared = prepared(command.current_dir(directory));
            let output = warm.output(&prepared).expect("a child");
            let is_right = output.stdout == format!("{text}\n{directory}\n").as_bytes()
                && output.stderr.is_empty()
                && output.status.code() == Some((n % 7) as i32);
            u64::from(!is_right)
        };
        let round = |count: u32| -> u64 {
            std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..16).map(|thread| scope.spawn(move || (0..count).map(|n| launch(thread, n)).sum())).collect();
                threads.into_iter().map(|thread| thread.join().unwrap_or(1u64)).sum()
            })
        };
        let state = || {
            let status = fs::read_to_string("/proc/self/status").expect("/proc");
            let field = |label: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(label)).expect("a line");
                line.split_whitespace().next().expect("a word").parse::<u64>().expect("a number")
            };
            let open = fs::read_dir("/proc/self/fd").expect("/proc").count();
            (open, field("Threads:"), field("VmRSS:"))
        };
        let mut wrong = round(200);
        let before = state();
        let started = std::time::Instant::now();
        wrong += round(count);
        let time = started.elapsed();
        // A template that was replaced ends a moment later.
        let is_as_before = || {
            let now = state();
            now.0 <= before.0 + 16 && now.1 <= before.1 + 1
        };
        until("descriptors or threads have grown", is_as_before);
        let after = state();
        println!("16 x {count} launches in {time:?}: {wrong} wrong; {:?}", warm.stats());
        println!("descriptors, threads, KiB of memory: {before:?}, then {after:?}");
        assert_eq!(wrong, 0);
        assert!(after.2 < before.2 + 8 * 1024, "memory has grown");
    });
}
