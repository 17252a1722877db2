//! Zygotes: attributes of their children, and launches while the helper or its owner changes or ends.

use crate::elf::Programs;
use crate::foreign;
use crate::hosts::in_a_copy;
use crate::observe::{self, eventually, skip};
use forkless::zygote::{Registry, Restart, Zygote, ZygoteOptions};
use forkless::{Command, Error, Prepared, Route, Stdio, Step};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Functions that children of the helper may call.
pub fn functions() -> Registry {
    let mut functions = Registry::new();
    functions.add("say", |bytes| io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()));
    functions.add("who", |_| {
        let cwd = std::env::current_dir()?;
        // SAFETY: reads a number.
        let uid = unsafe { libc::geteuid() };
        println!("{} {uid} {}", cwd.display(), fs::read_dir("/proc/self/fd")?.count());
        Ok(())
    });
    functions.add("measure", |bytes| writeln!(io::stdout(), "{}", bytes.len()));
    functions.add("fail", |bytes| Err(io::Error::other(String::from_utf8_lossy(bytes).into_owned())));
    functions.add("refuse", |_| File::open("/no/such/file").map(drop));
    functions.add("panic", |_| panic!("a panic of {}", 1 + 1));
    functions.add("exit", |_| std::process::exit(7));
    functions.add("kill", |_| {
        // SAFETY: ends this process.
        unsafe { libc::raise(libc::SIGKILL) };
        Ok(())
    });
    functions.add("thread", |_| thread::spawn(|| ()).join().map_err(|_| io::Error::other("a thread")));
    functions
}

pub fn zygote() -> Zygote {
    Zygote::start(&ZygoteOptions::new()).expect("a zygote")
}

pub fn shell(script: &str) -> Prepared {
    Command::new("/bin/sh").args(["-c", script]).stdout(Stdio::piped()).prepare().expect("prepare")
}

pub fn says(zygote: &Zygote, script: &str) -> String {
    let output = zygote.output(&shell(script)).expect("output");
    assert!(output.status.success(), "{script}: {}", output.status);
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

pub fn error_of<T>(answer: io::Result<T>) -> Error {
    match answer {
        Ok(_) => panic!("it should have failed"),
        Err(error) => Error::of(&error).unwrap_or_else(|| panic!("no step: {error}")).clone(),
    }
}

pub fn helper_pid(zygote: &Zygote) -> i32 {
    zygote.pid().expect("a helper") as i32
}

fn kill(pid: i32, signal: i32) {
    // A process that this one has started.
    assert!(forkless_tests::process::kill(pid, signal));
}

scenario!(children_are_the_callers_own);
/// Children belong to the caller, with every form of launch, and errors are those of any launch.
pub fn children_are_the_callers_own(_: &[String]) {
    let zygote = zygote();
    let programs = Programs::new();
    let exits = Command::new(programs.exits(3)).prepare().expect("prepare");
    // The helper closes the descriptors of a launch once the child exists, before anything else: otherwise a reader of
    // a pipe would wait for its end.
    let fds = || fs::read_dir(format!("/proc/{}/fd", helper_pid(&zygote))).expect("the helper's descriptors").count();
    let before = fds();
    for _ in 0..5 {
        assert_eq!(zygote.status(&exits).expect("status").code(), Some(3));
    }
    // The last child may have ended before.
    eventually("the helper's descriptors", || fds() == before);
    let me = std::process::id();
    assert_eq!(says(&zygote, "echo $PPID"), me.to_string());
    assert_eq!(zygote.status(&exits).expect("status").code(), Some(3));
    let mut child = zygote.launch(&exits).expect("launch");
    assert!(matches!(child.route(), Route::Zygote { .. }), "{}", child.route());
    assert!(child.route().to_string().contains("zygote"), "{}", child.route());
    assert_eq!(child.wait().expect("wait").code(), Some(3));
    let error = error_of(zygote.spawn(&Command::new("/no/such/program").prepare().expect("prepare")));
    assert_eq!((error.step(), error.errno()), (Step::Exec, Some(libc::ENOENT)));
    let error = error_of(zygote.spawn(&Command::new("true").current_dir("/no/such").prepare().expect("prepare")));
    assert_eq!((error.step(), error.errno()), (Step::Chdir, Some(libc::ENOENT)));
    // SAFETY: nothing is open there.
    let error =
        error_of(zygote.spawn(&Command::new("true").fd(unsafe { Stdio::fd(7777) }, 4).prepare().expect("prepare")));
    assert_eq!((error.step(), error.errno()), (Step::PassFd, Some(libc::EBADF)), "{error}");
    let error = error_of(zygote.spawn(&Command::new("true").inherit_all(true).prepare().expect("prepare")));
    assert_eq!(error.step(), Step::Check);
    let missing = Command::new("/no/such/program").prepare().expect("prepare");
    assert_eq!(error_of(zygote.launch(&missing).and_then(|mut child| child.wait())).step(), Step::Exec);
    assert_eq!(zygote.stats().starts, 1);
    drop(zygote);
    observe::assert_no_orphans();
}

scenario!(functions_run_before_exec);
/// Functions run right before exec, in memory of their own; each way in which one can fail is told, and leaves nothing.
pub fn functions_run_before_exec(_: &[String]) {
    let zygote = zygote();
    let echo = shell("echo program");
    let run = |calls: &[(&str, &[u8])]| {
        zygote.launch_with(&echo, calls).and_then(|mut child| {
            child.wait_exec()?;
            child.wait_with_output()
        })
    };
    let output = run(&[("say", b"one "), ("thread", b""), ("say", b"two ")]).expect("functions that work");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one two program\n");
    let root = Command::new("true").current_dir("/usr").stdout(Stdio::piped()).prepare().expect("prepare");
    let child = zygote.spawn_with(&root, &[("who", b"")]).expect("spawn");
    let said = String::from_utf8(child.wait_with_output().expect("output").stdout).expect("text");
    // SAFETY: reads a number.
    let uid = unsafe { libc::geteuid() };
    // Standard streams, and the directory that is read.
    assert_eq!(said, format!("/usr {uid} 4\n"), "where the function was called");
    for (name, bytes, words) in [
        ("fail", &b"for a reason"[..], "call the function \"fail\": for a reason"),
        ("refuse", b"", "\"refuse\": No such file or directory (os error 2)"),
        ("panic", b"", "\"panic\": it panicked: a panic of 2"),
        ("exit", b"", "\"exit\": it ended the process: exit status: 7"),
        ("kill", b"", "\"kill\": it ended the process: signal: 9 (SIGKILL)"),
        ("none", b"", "\"none\": the helper has no function of this name"),
    ] {
        for form in ["launch", "spawn"] {
            let calls: &[(&str, &[u8])] = &[("thread", b""), (name, bytes)];
            let answer = match form {
                "spawn" => zygote.spawn_with(&echo, calls).map(drop),
                _ => zygote.launch_with(&echo, calls).and_then(|mut child| child.wait().map(drop)),
            };
            let error = error_of(answer);
            assert_eq!(error.step(), Step::Function, "{error}");
            assert!(error.to_string().ends_with(words), "{form}: {error}");
        }
    }
    let long = vec![b'x'; 300_000];
    let output = run(&[("measure", &long)]).expect("a long argument");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "300000\nprogram\n");
    // A missing program is still an error of exec.
    let missing = Command::new("/no/such").prepare().expect("prepare");
    assert_eq!(error_of(zygote.spawn_with(&missing, &[("thread", b"")])).step(), Step::Exec);
    assert_eq!(zygote.stats().starts, 1, "the helper went on");
    drop(zygote);
    observe::assert_no_orphans();
}

scenario!(children_take_on_the_callers_attributes);
/// Children take on the caller's attributes at the launch, not those at the zygote's start.
pub fn children_take_on_the_callers_attributes(_: &[String]) {
    let zygote = zygote();
    let helper = helper_pid(&zygote);
    let ask = "umask; pwd; ulimit -S -c; ulimit -S -n; nice; grep 'Max processes' /proc/self/limits; \
               grep -e SigIgn -e SigBlk -e Cpus_allowed: /proc/self/status";
    let direct = || String::from_utf8(shell(ask).output().expect("output").stdout).expect("text");
    let same = |what: &str| assert_eq!(says(&zygote, ask), direct().trim(), "{what}");
    same("at first");
    crate::zygote_scheduling::reset_on_fork(&zygote);
    // SAFETY: settings of this process, which has one thread; each is undone with it.
    unsafe {
        libc::umask(0o027);
        same("after umask");
        std::env::set_current_dir("/usr/lib").expect("chdir");
        same("after chdir");
        let limit = libc::rlimit { rlim_cur: 123, rlim_max: 4096 };
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 });
        same("after limits");
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::getrlimit(libc::RLIMIT_NPROC, &mut limit);
        limit.rlim_cur = limit.rlim_max.min(1_000_000) - 1;
        libc::setrlimit(libc::RLIMIT_NPROC, &limit);
        same("after a limit of processes");
        libc::signal(libc::SIGUSR1, libc::SIG_IGN);
        same("after ignoring a signal");
        libc::setpriority(libc::PRIO_PROCESS, 0, 5);
        same("after nice");
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&cpus), &mut cpus);
        let first = (0..1024).find(|&cpu| libc::CPU_ISSET(cpu, &cpus)).expect("a processor");
        libc::CPU_ZERO(&mut cpus);
        libc::CPU_SET(first, &mut cpus);
        libc::sched_setaffinity(0, size_of_val(&cpus), &cpus);
        same("with one processor");
    }
    let me = std::process::id();
    // SAFETY: this process leads a group already, or can.
    unsafe { libc::setpgid(0, 0) };
    assert_eq!(says(&zygote, "cut -d' ' -f5 /proc/$$/stat"), me.to_string(), "the group");
    assert_eq!((helper_pid(&zygote), zygote.stats().starts), (helper, 1), "none of this needs another helper");
    // Attributes that a child takes on do not change those of the helper or of its next child.
    let score = "cat /proc/$$/oom_score_adj";
    let mut other = Command::new("/bin/sh");
    other.args(["-c", score]).stdout(Stdio::piped()).oom_score_adj(500);
    let output = zygote.output(&other.prepare().expect("prepare")).expect("output");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "500");
    assert_eq!(says(&zygote, score), fs::read_to_string("/proc/self/oom_score_adj").expect("one's own").trim());
    // A directory that nobody has a name for any more is still the caller's.
    let gone = tempfile::tempdir().expect("a directory");
    std::env::set_current_dir(gone.path()).expect("chdir");
    drop(gone);
    assert!(says(&zygote, "readlink /proc/$$/cwd").ends_with("(deleted)"));
    std::env::set_current_dir("/").expect("chdir");
    becomes_another(&zygote, helper);
}

/// Attributes that no child can take on make the zygote start another helper.
fn becomes_another(zygote: &Zygote, helper: i32) {
    fs::write("/proc/self/oom_score_adj", "77").expect("oom_score_adj");
    assert_eq!(says(zygote, "cat /proc/$$/oom_score_adj"), "77");
    let second = helper_pid(zygote);
    assert_ne!(second, helper, "another helper");
    if !forkless_tests::process::is_root() {
        return skip("becoming another user with a zygote", "it needs root");
    }
    // SAFETY: ids of this process alone. Nothing else differs.
    assert_eq!(unsafe { libc::setgroups(1, &7) }, 0);
    assert_eq!(says(zygote, "id -G"), "0 7");
    let unused = self::zygote();
    let before = [helper_pid(zygote), helper_pid(&unused)];
    // SAFETY: namespaces and ids of this process alone.
    unsafe {
        assert_eq!(libc::unshare(libc::CLONE_NEWUTS), 0);
        assert_eq!(libc::sethostname(c"zygote-test".as_ptr(), 11), 0);
    }
    // The first launch by a helper is compared while it makes the child. With few CPUs later ones are compared before.
    for (zygote, before) in [zygote, &unused].into_iter().zip(before) {
        assert_eq!(says(zygote, "uname -n"), "zygote-test");
        assert_ne!(helper_pid(zygote), before, "another helper after a namespace");
    }
    // SAFETY: as above.
    unsafe {
        assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
        assert_eq!(libc::setresgid(65534, 65534, 65534), 0);
        assert_eq!(libc::setresuid(65534, 65534, 65534), 0);
        libc::prctl(libc::PR_SET_DUMPABLE, 1);
    }
    assert_eq!(says(zygote, "id -u; id -g; grep CapEff /proc/$$/status"), "65534\n65534\nCapEff:\t0000000000000000");
    assert_eq!(zygote.stats().deaths, 0);
}

scenario!(a_killed_helper_loses_no_child);
/// A helper that is killed, before or amid a launch: another one, or an error, and no child is lost.
pub fn a_killed_helper_loses_no_child(_: &[String]) {
    let zygote = zygote();
    let programs = Programs::new();
    let exits = Command::new(programs.exits(3)).prepare().expect("prepare");
    let first = helper_pid(&zygote);
    kill(first, libc::SIGKILL);
    assert_eq!(zygote.status(&exits).expect("by another helper").code(), Some(3));
    assert_ne!(helper_pid(&zygote), first);
    let counted = zygote.stats();
    assert_eq!((counted.starts, counted.deaths), (2, 1));
    // Stopped, asked, killed: the request is in its socket.
    let stopped = helper_pid(&zygote);
    killed_amid(stopped, || assert_eq!(zygote.status(&exits).expect("by another").code(), Some(3)));
    drop(zygote);
    // Until one is killed before a caller continues it.
    eventually("a launch that is lost", || {
        let never = Zygote::start(ZygoteOptions::new().restart(Restart::Never)).expect("a zygote");
        let mut answer = None;
        killed_amid(helper_pid(&never), || answer = Some(never.spawn(&exits)));
        let error = match answer.expect("an answer") {
            Ok(mut child) => {
                assert_eq!(child.wait().expect("wait").code(), Some(3));
                return false;
            }
            Err(error) => error_of::<()>(Err(error)),
        };
        assert_eq!(error.step(), Step::Zygote);
        let is_lost = error.to_string().contains("ended before it made the child: ");
        assert!(is_lost || error.to_string().contains("forbids starting it again"), "{error}");
        let error = error_of(never.spawn(&exits));
        assert!(error.to_string().contains("forbids starting it again"), "{error}");
        is_lost
    });
    observe::assert_no_orphans();
}

/// Kills a helper while requests are made, at every moment of them.
fn killed_amid(helper: i32, ask: impl FnOnce()) {
    let killer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(2));
        kill(helper, libc::SIGKILL);
    });
    // A caller would continue it; whether it is killed before depends on timing.
    kill(helper, libc::SIGSTOP);
    ask();
    killer.join().expect("the killer");
}

scenario!(a_child_of_a_killed_helper_reports_its_exec);
/// A child that is before its exec when the helper is killed still tells of its exec, though nobody shares its memory then.
pub fn a_child_of_a_killed_helper_reports_its_exec(_: &[String]) {
    let programs = Programs::new();
    for (n, calls) in [&[][..], &[("thread", &b""[..])]].into_iter().enumerate() {
        let zygote = zygote();
        let fifo = programs.fifo(&format!("hold-{n}"));
        let mut command = Command::new("sleep");
        command.arg("600").fd(Stdio::open(&fifo, libc::O_RDONLY, 0), 5);
        let mut child = zygote.launch_with(&command.prepare().expect("prepare"), calls).expect("launch");
        assert!(!child.wait_exec_timeout(Duration::from_millis(50)).expect("it is held"));
        let helper = helper_pid(&zygote);
        kill(helper, libc::SIGKILL);
        eventually("the helper's end", || observe::state_of(helper).is_none_or(|state| state == 'Z'));
        drop(File::options().write(true).open(&fifo).expect("open"));
        let told = child.wait_exec_timeout(forkless_tests::patience::limit(20)).expect("a program that is there");
        assert!(told, "the exec was never told");
        child.kill().and_then(|()| child.wait()).expect("wait");
        drop(zygote);
    }
    observe::assert_no_orphans();
}

scenario!(killed_helpers_lose_no_child_in_a_storm);
/// Launches from several threads while the helper is killed again and again: each gives a child or an error, and nothing is
/// left.
pub fn killed_helpers_lose_no_child_in_a_storm(_: &[String]) {
    let zygote = zygote();
    let programs = Programs::new();
    let exits = Command::new(programs.exits(3)).prepare().expect("prepare");
    let (done, good, bad) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let wanted = observe::scaled(50);
    thread::scope(|scope| {
        for n in 0..3 {
            let (zygote, exits, done, good, bad) = (&zygote, &exits, &done, &good, &bad);
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    let answer = match n {
                        0 => zygote.launch(exits).and_then(|mut child| child.wait()),
                        1 => zygote.launch_with(exits, &[("thread", b"")]).and_then(|mut child| child.wait()),
                        _ => zygote.status(exits),
                    };
                    match answer {
                        Ok(status) => {
                            assert_eq!(status.code(), Some(3));
                            good.fetch_add(1, Relaxed);
                        }
                        Err(error) => {
                            assert_eq!(Error::of(&error).map(Error::step), Some(Step::Zygote), "{error}");
                            bad.fetch_add(1, Relaxed);
                        }
                    }
                }
            });
        }
        // However busy the machine is: until enough of both has happened.
        let enough = || good.load(Relaxed) > wanted && zygote.stats().deaths > 5;
        for n in 0..20_000 {
            if n > 60 && enough() {
                break;
            }
            // Longer and longer, so that a launch comes to its end in between.
            thread::sleep(Duration::from_millis(3 + n / 100) * forkless_tests::patience::factor());
            if let Some(pid) = zygote.pid() {
                // Our helper, or a number that was its own a moment ago.
                forkless_tests::process::kill(pid as i32, libc::SIGKILL);
            }
        }
        done.store(true, Relaxed);
    });
    let counted = zygote.stats();
    assert!(counted.deaths > 5 && good.load(Relaxed) > wanted, "{counted:?}, {good:?} good");
    eprintln!("{counted:?}: {good:?} good, {bad:?} without a child");
    drop(zygote);
    observe::assert_no_orphans();
}

scenario!(a_stopped_helper_is_continued);
/// A stopped helper is continued by the next caller.
pub fn a_stopped_helper_is_continued(_: &[String]) {
    let zygote = zygote();
    let programs = Programs::new();
    let exits = Command::new(programs.exits(3)).prepare().expect("prepare");
    for _ in 0..5 {
        kill(helper_pid(&zygote), libc::SIGSTOP);
        assert_eq!(zygote.status(&exits).expect("status").code(), Some(3));
    }
    // With its socket full: more threads ask than there is room for, each with many descriptors.
    let file = File::open("/dev/null").expect("open");
    let mut command = Command::new(programs.exits(3));
    for number in 3..400 {
        // SAFETY: open for as long as the command is used.
        command.fd(unsafe { Stdio::fd(file.as_raw_fd()) }, number);
    }
    let many = command.prepare().expect("prepare");
    kill(helper_pid(&zygote), libc::SIGSTOP);
    thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| assert_eq!(zygote.status(&many).expect("status").code(), Some(3)));
        }
    });
    assert_eq!(zygote.stats().starts, 1);
    drop(zygote);
    observe::assert_no_orphans();
}

scenario!(many_descriptors_and_large_environments);
/// Many descriptors, and a large environment.
pub fn many_descriptors_and_large_environments(_: &[String]) {
    // Where each is moved out of another's way there are twice as many for a moment.
    let limit = crate::set::set_file_limit(None);
    if limit < 2000 {
        return skip("900 descriptors", &format!("{limit} may be open"));
    }
    let zygote = zygote();
    let file = tempfile::tempfile().expect("a file");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "exec ls /proc/self/fd"]).stdout(Stdio::piped());
    for number in 3..900 {
        // SAFETY: open for as long as the command is used.
        command.fd(unsafe { Stdio::fd(file.as_raw_fd()) }, number);
    }
    let output = zygote.output(&command.prepare().expect("prepare")).expect("900 descriptors");
    // And the directory that is listed.
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 901);
    let resident = rss(helper_pid(&zygote));
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "env | wc -c"]).stdout(Stdio::piped());
    for n in 0..15 {
        command.env(format!("LARGE_{n}"), "x".repeat(100_000));
    }
    let large = command.prepare().expect("prepare");
    for _ in 0..20 {
        let output = zygote.output(&large).expect("a large environment");
        let length: usize = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
        assert!(length > 1_500_000, "{length} bytes");
    }
    let now = rss(helper_pid(&zygote));
    // Less than one environment; before Linux 6.2 the number itself is some hundred KiB off.
    assert!(now < resident + 1400, "the helper has {now} KiB, {resident} before");
    drop(zygote);
    observe::assert_no_orphans();
}

/// A field of `/proc/PID/status` in KiB.
fn rss(pid: i32) -> u64 {
    field(pid, "status", "VmRSS:")
}

fn field(pid: i32, file: &str, label: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).expect("the helper's memory");
    let line = text.lines().find_map(|line| line.strip_prefix(label)).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("KiB")
}

scenario!(launches_by_a_zygote_leak_nothing);
/// Ten thousand launches leave descriptors, children, and memory, the helper's too, as they were.
pub fn launches_by_a_zygote_leak_nothing(_: &[String]) {
    const THREADS: usize = 4;
    let zygote = zygote();
    let programs = Programs::new();
    let exits = Command::new(programs.exits(3)).prepare().expect("prepare");
    let missing = Command::new(programs.path("missing")).prepare().expect("prepare");
    let piped =
        Command::new(programs.exits(3)).stdin(Stdio::piped()).fd(Stdio::socketpair(), 5).prepare().expect("prepare");
    let round = |n: usize| match n % 6 {
        0 => assert_eq!(zygote.status(&exits).expect("status").code(), Some(3)),
        1 => drop(zygote.launch(&exits).expect("launch")),
        2 => assert!(zygote.spawn(&missing).is_err()),
        3 => assert_eq!(zygote.output(&exits).expect("output").status.code(), Some(3)),
        4 if n.is_multiple_of(5) => drop(zygote.launch_with(&exits, &[("thread", b"")]).expect("launch_with")),
        4 => drop(zygote.launch(&missing)),
        _ => assert_eq!(zygote.spawn(&piped).and_then(|mut child| child.wait()).expect("wait").code(), Some(3)),
    };
    let all = |total: usize| {
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| (0..total / THREADS).for_each(&round));
            }
        });
        eventually("dropped children reaped", || forkless::reap_orphans() == 0);
    };
    all(600);
    let helper = helper_pid(&zygote);
    let helper_fds = || fs::read_dir(format!("/proc/{helper}/fd")).expect("the helper's descriptors").count();
    // Clean pages are the program's file: whether they are shared is a matter of who else runs it now.
    let private = || field(helper, "smaps_rollup", "Private_Dirty:");
    let (fds, theirs, resident, helpers) = (observe::open_fds(), helper_fds(), observe::resident_kib(), private());
    all(observe::scaled(10_000));
    assert_eq!(observe::open_fds(), fds, "descriptors");
    // The helper may close a launch's descriptors after the child's end.
    eventually("the helper's descriptors", || helper_fds() <= theirs);
    assert_eq!(observe::children(), [helper], "children");
    let now = observe::resident_kib();
    assert!(now < resident + 8192, "{now} KiB after, {resident} before");
    let now = private();
    // A parcel for each launch under way at one moment, with some pages of stack; 64 at most are kept.
    assert!(now <= helpers + 64 * 12 && now < 2048, "the helper has {now} KiB of its own, {helpers} before");
    eprintln!("the helper: {now} KiB of its own, {} resident", rss(helper));
    assert_eq!((helper_pid(&zygote), zygote.stats().starts), (helper, 1));
    drop(zygote);
    observe::assert_no_orphans();
}

scenario!(a_forked_process_cannot_use_the_zygote);
/// A forked process gets an error and does not affect the zygote.
pub fn a_forked_process_cannot_use_the_zygote(_: &[String]) {
    let zygote = zygote();
    let programs = Programs::new();
    let exits = Command::new(programs.exits(3)).prepare().expect("prepare");
    assert_eq!(zygote.status(&exits).expect("status").code(), Some(3));
    let mut child = zygote.launch(&shell("read line")).expect("launch");
    let helper = helper_pid(&zygote);
    let mut zygote = Some(zygote);
    in_a_copy(|| {
        let zygote = zygote.take().expect("a copy of it");
        let error = error_of(zygote.spawn(&exits));
        assert!(error.to_string().contains("belongs to the process that forked this one"), "{error}");
        assert_eq!(zygote.pid(), None);
        let own = Zygote::start(&ZygoteOptions::new()).expect("a zygote of the copy's own");
        assert_eq!(own.status(&exits).expect("status").code(), Some(3));
        drop((own, zygote));
        observe::assert_no_orphans();
    });
    let zygote = zygote.expect("ours");
    child.kill().and_then(|()| child.wait()).expect("the child is still ours");
    assert_eq!(zygote.status(&exits).expect("status").code(), Some(3));
    assert_eq!(helper_pid(&zygote), helper, "the same helper");
    drop(zygote);
    observe::assert_no_orphans();
}

scenario!(a_helper_ends_with_its_owner_and_not_with_a_thread);
/// The helper ends with its owner, also where a forked copy keeps the socket open, and goes on when the thread ends that
/// started it, as do its children that are to die with their parent.
pub fn a_helper_ends_with_its_owner_and_not_with_a_thread(args: &[String]) {
    if args.first().is_some_and(|arg| arg == "owner") {
        let zygote = zygote();
        println!("{}", helper_pid(&zygote));
        // SAFETY: the copy has the socket until it is killed with the test's group.
        if unsafe { libc::fork() } == 0 {
            thread::sleep(Duration::from_secs(600));
        }
        // SAFETY: no destructor is to end the helper.
        unsafe { libc::_exit(0) };
    }
    let mut owner = Command::new("/proc/self/exe")
        .args(["zygote::a_helper_ends_with_its_owner_and_not_with_a_thread", "owner"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("spawn");
    let mut line = String::new();
    io::BufRead::read_line(&mut io::BufReader::new(owner.stdout.take().expect("a pipe")), &mut line).expect("read");
    let helper: i32 = line.trim().parse().expect("a pid");
    owner.wait().expect("wait");
    eventually("the helper's end", || observe::state_of(helper).is_none_or(|state| state == 'Z'));

    let zygote = thread::spawn(zygote).join().expect("a thread");
    thread::sleep(Duration::from_millis(50));
    let mut dies = Command::new("sleep");
    dies.arg("600").parent_death_signal(libc::SIGKILL);
    let dies = dies.prepare().expect("prepare");
    let mut child =
        thread::scope(|scope| scope.spawn(|| zygote.spawn(&dies).expect("spawn")).join().expect("a thread"));
    assert_eq!(child.wait_timeout(Duration::from_millis(200)).expect("wait"), None, "it has outlived the thread");
    child.kill().and_then(|()| child.wait()).expect("wait");
    assert_eq!(zygote.stats().starts, 1);
    drop(zygote);
    observe::assert_no_orphans();
}

scenario!(a_program_that_does_not_serve_is_refused);
/// A program that does not serve is not started, or is recognized.
pub fn a_program_that_does_not_serve_is_refused(_: &[String]) {
    let error = Zygote::start(ZygoteOptions::new().program("/bin/true")).expect_err("it does not serve");
    assert!(error.to_string().contains("ended before it was ready"), "{error}");
    let error = Zygote::start(ZygoteOptions::new().program("/no/such/program")).expect_err("it is not there");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    observe::assert_no_orphans();
    // A marked process without a socket is not a helper.
    let mut plain = Command::new("/proc/self/exe");
    plain.args(["zygote::plain"]).env("FORKLESS_ZYGOTE", "1");
    assert!(plain.status().expect("status").success());
    // Nor one with a socket that the parent has not created.
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
    assert!(plain.fd(theirs, 3).status().expect("status").success());
    drop(ours);
    observe::assert_no_orphans();
    not_for_another();
    not_with_more_privileges();
    observe::assert_no_orphans();
}

/// A socket of the right kind that another process than the parent has made is not served.
fn not_for_another() {
    let (ours, theirs) = seqpacket();
    let mut between = Command::new("/bin/sh");
    between.args(["-c", "\"$0\" zygote::plain; exit $?"]).arg(std::env::current_exe().expect("this program"));
    between.env("FORKLESS_ZYGOTE", "1").fd(theirs, 3);
    let mut child = between.spawn().expect("spawn");
    drop(between);
    // Closed by the last process that has it, without an answer.
    let said = File::from(ours).read(&mut [0; 64]).expect("read");
    assert_eq!(said, 0, "it says hello to somebody who has not started it");
    assert!(child.wait().expect("wait").success());
}

/// Nor does a program that exec gives privileges.
fn not_with_more_privileges() {
    const WHAT: &str = "a set-user-id program as a zygote";
    // SAFETY: reads a number.
    if unsafe { libc::geteuid() } != 0 {
        return skip(WHAT, "it needs root");
    }
    let place = tempfile::tempdir().expect("a directory");
    let copy = place.path().join("copy");
    fs::copy(std::env::current_exe().expect("this program"), &copy).expect("a copy");
    std::os::unix::fs::chown(&copy, Some(65534), None).expect("chown");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).expect("chmod");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let user = Command::new(&copy).args(["zygote::plain"]).status();
    if !user.is_ok_and(|status| status.success()) {
        return skip(WHAT, "a copy of this program cannot be executed");
    }
    match Zygote::start(ZygoteOptions::new().program(&copy)) {
        Ok(zygote) => {
            let status = fs::read_to_string(format!("/proc/{}/status", helper_pid(&zygote))).expect("its status");
            let ids = status.lines().find(|line| line.starts_with("Uid:")).expect("its ids").to_owned();
            assert_eq!(ids, "Uid:\t0\t0\t0\t0", "it serves with privileges");
            skip(WHAT, "the file system gives none");
        }
        Err(error) => assert!(error.to_string().contains("gains privileges"), "{error}"),
    }
}

/// A pair of sockets that keep messages apart.
fn seqpacket() -> (OwnedFd, OwnedFd) {
    let mut pair = [0; 2];
    // SAFETY: two new descriptors, ours.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        assert_eq!(libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()), 0);
        (OwnedFd::from_raw_fd(pair[0]), OwnedFd::from_raw_fd(pair[1]))
    }
}

part!(plain);
/// Does nothing, because this process was not started to serve.
pub fn plain(_: &[String]) {}

scenario!(no_zombie_is_left_by_a_zygote);
/// The failure of a launch is seen from outside, as is said; the status of a good one is nobody else's.
pub fn no_zombie_is_left_by_a_zygote(_: &[String]) {
    let zygote = zygote();
    let programs = Programs::new();
    let missing = Command::new(programs.path("missing")).prepare().expect("prepare");
    assert!(zygote.spawn(&missing).is_err());
    assert_eq!(foreign::wait(-1, libc::WNOHANG), Ok((0, 0)), "it has been reaped, and the helper runs");
    let helper = helper_pid(&zygote);
    drop(zygote);
    assert_eq!(foreign::wait(helper, libc::WNOHANG), Err(libc::ECHILD), "the helper has been reaped");
}
