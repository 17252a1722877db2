//! The life of templates, and what their children do not share.

use crate::common::{
    SCENARIO, by_template, command, in_own_process, is_warm, library, options, prepared, slow, until, warm,
};
use forkless::Stdio;
use forkless::warm::Warm;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Command as Std;
use std::time::Duration;

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a PID");
    rustix::process::kill_process(pid, signal).expect("a process");
}

/// Whether a process has ended, reaped or not.
fn has_ended(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
}

#[test]
fn a_killed_template_is_replaced() {
    let warm = warm();
    let prepared = prepared(&mut command("/bin/echo", &["text"]));
    by_template(&warm, &prepared).expect("warm");
    for _ in 0..3 {
        let [template] = warm.templates()[..] else { panic!("one template") };
        signal(template, rustix::process::Signal::KILL);
        until("the template stays", || has_ended(template));
        let child = warm.spawn(&prepared).expect("a child");
        assert_eq!(child.cold_reason(), Some("the template has ended"));
        assert_eq!(child.wait_with_output().expect("its output").stdout, b"text\n");
        assert_eq!(by_template(&warm, &prepared).expect("warm again").stdout, b"text\n");
    }
}

/// A template that cannot receive descriptors.
#[test]
fn a_template_that_fails_makes_the_launch_cold() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let warm = warm();
    let prepared = prepared(&mut command("/bin/echo", &["text"]));
    by_template(&warm, &prepared).expect("warm");
    let [template] = warm.templates()[..] else { panic!("one template") };
    let none = Rlimit { current: Some(4), maximum: Some(4) };
    prlimit(Pid::from_raw(template as i32), Resource::Nofile, none).expect("a process");
    let child = warm.spawn(&prepared).expect("a child");
    assert_eq!(child.cold_reason(), Some("the template could not make the child"));
    assert_eq!(child.wait_with_output().expect("its output").stdout, b"text\n");
    assert_eq!(by_template(&warm, &prepared).expect("warm again").stdout, b"text\n");
}

/// FIFOs in a directory, by number. A child that opens one waits in that step until somebody writes to it.
fn fifos(count: usize) -> (tempfile::TempDir, Vec<PathBuf>) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let directory = tempfile::tempdir().expect("a directory");
    let paths: Vec<_> = (0..count).map(|n| directory.path().join(n.to_string())).collect();
    for path in &paths {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
    }
    (directory, paths)
}

/// Launches `cat` of each FIFO by the template, on another thread.
fn launch_readers(warm: &forkless::warm::Warm, paths: &[PathBuf]) -> std::thread::JoinHandle<Vec<forkless::Child>> {
    let reads = |path: &PathBuf| {
        let mut command = command("/bin/cat", &[]);
        command.stdin(Stdio::open(path, 0, 0)).stdout(Stdio::piped()).warm(warm);
        command.prepare().expect("a plan")
    };
    let plans: Vec<_> = paths.iter().map(reads).collect();
    warm.start(&plans[0]).expect("a template");
    std::thread::spawn(move || plans.iter().map(|plan| plan.launch().expect("a child")).collect())
}

/// `launch` returns when the child exists, and not when it has made its steps.
#[test]
fn launch_does_not_wait_for_the_childs_steps() {
    let warm = warm();
    let (_directory, paths) = fifos(20);
    let launches = launch_readers(&warm, &paths);
    until("launches that do not wait", || launches.is_finished());
    for (path, child) in paths.iter().zip(launches.join().expect("children")) {
        assert!(is_warm(&child));
        std::fs::write(path, "text").expect("a reader");
        assert_eq!(child.wait_with_output().expect("its output").stdout, b"text");
    }
}

/// A template has 256 parcels. With many children that use one, `launch` waits for the steps.
#[test]
fn more_children_than_parcels_are_launched() {
    let warm = warm();
    let (_directory, paths) = fifos(300);
    let launches = launch_readers(&warm, &paths);
    // Long enough for all of them, if none waited.
    std::thread::sleep(Duration::from_secs(3));
    // Not all at once: the others are not there yet.
    let writes =
        std::thread::spawn(move || paths.iter().for_each(|path| std::fs::write(path, "text").expect("a reader")));
    until("all launches", || launches.is_finished() && writes.is_finished());
    for child in launches.join().expect("children") {
        assert!(is_warm(&child));
        assert_eq!(child.wait_with_output().expect("its output").stdout, b"text");
    }
    assert_eq!(warm.stats().starts, 1);
}

/// Kills a template that somebody waits for in vain, so that a test fails instead of waiting.
struct Watchdog(Option<std::sync::mpsc::Sender<()>>, std::thread::JoinHandle<bool>);

impl Watchdog {
    /// `others`: their tracers, without whose end a parent does not see that of a template.
    fn over(template: u32, others: &[u32]) -> Self {
        let others = others.to_vec();
        let (over, limit) = std::sync::mpsc::channel();
        let watches = move || {
            let has_fired =
                limit.recv_timeout(Duration::from_secs(45) * slow()) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
            if has_fired {
                others.into_iter().chain([template]).for_each(|pid| signal(pid, rustix::process::Signal::KILL));
            }
            has_fired
        };
        Self(Some(over), std::thread::spawn(watches))
    }

    fn ends(mut self) {
        drop(self.0.take());
        assert!(!self.1.join().expect("a thread"), "a launch waits for its template for ever");
    }
}

#[test]
fn a_stopped_template_loses_no_launch() {
    let warm = warm();
    let prepared = prepared(&mut command("/bin/echo", &["text"]));
    by_template(&warm, &prepared).expect("warm");
    let [template] = warm.templates()[..] else { panic!("one template") };
    let launched = || {
        let child = warm.spawn(&prepared).expect("a child");
        let reason = child.cold_reason().map(str::to_owned);
        assert_eq!(child.wait_with_output().expect("its output").stdout, b"text\n");
        reason
    };
    let watchdog = Watchdog::over(template, &[]);
    signal(template, rustix::process::Signal::STOP);
    assert_eq!(launched(), None);
    // The stop is reported to other code of this process.
    signal(template, rustix::process::Signal::STOP);
    let pid = rustix::process::Pid::from_raw(template as i32);
    rustix::process::waitpid(pid, rustix::process::WaitOptions::UNTRACED).expect("its stop");
    assert_eq!(launched(), None);
    // At any step of a launch.
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let reasons: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                signal(template, rustix::process::Signal::STOP);
                // Not so often that the template gets no further in its ten seconds.
                std::thread::sleep(Duration::from_micros(n * 7919 % 2_000) * slow());
            }
        });
        let reasons = (0..100).filter_map(|_| launched()).collect();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        reasons
    });
    assert!(reasons.is_empty(), "{reasons:?}");
    assert_eq!(warm.templates(), [template]);
    watchdog.ends();
}

/// Another process traces the template and stops it, and no signal continues it: the launch is cold after ten seconds.
#[test]
fn a_template_that_does_not_answer_is_replaced() {
    // PTRACE_SEIZE, then PTRACE_INTERRUPT. Not by this process: the kernel reports such stops to the waits of the tracer.
    const TRACER: &str = r#"$| = 1; for my $request (0x4206, 0x4207) {
        syscall(101, $request, $ARGV[0] + 0, 0, 0) == 0 or die "ptrace: $!";
    } print "stopped\n"; <STDIN>"#;
    let warm = warm();
    let prepared = prepared(&mut command("/bin/echo", &["text"]));
    by_template(&warm, &prepared).expect("warm");
    let [template] = warm.templates()[..] else { panic!("one template") };
    let mut tracer = Std::new("perl");
    tracer.args(["-e", TRACER]).arg(template.to_string());
    tracer.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut tracer = tracer.spawn().expect("perl");
    let mut said = String::new();
    BufReader::new(tracer.stdout.take().expect("a pipe")).read_line(&mut said).expect("a line");
    if said.is_empty() {
        eprintln!("SKIPPED: a template that does not answer, because another process may not trace it");
        tracer.wait().expect("its end");
        return;
    }
    let watchdog = Watchdog::over(template, &[tracer.id()]);
    let child = warm.spawn(&prepared).expect("a child");
    watchdog.ends();
    assert_eq!(child.cold_reason(), Some("the template has ended"));
    assert_eq!(child.wait_with_output().expect("its output").stdout, b"text\n");
    assert_eq!(by_template(&warm, &prepared).expect("warm again").stdout, b"text\n");
    drop(tracer.stdin.take());
    tracer.wait().expect("its end");
}

#[test]
fn a_template_is_replaced_after_its_launches() {
    // So few that none of them is in the last quarter.
    let warm = options().launches(3).open().expect("a set");
    let prepared = command("/bin/true", &[]).prepare().expect("a plan");
    for _ in 0..5 {
        warm.start(&prepared).expect("a template");
        for _ in 0..3 {
            assert!(is_warm(&warm.spawn(&prepared).expect("a child")));
        }
        let child = warm.spawn(&prepared).expect("a child");
        assert_eq!(child.cold_reason(), Some("the template has served long enough"));
    }
    assert_eq!(warm.stats().warm, 15, "{:?}", warm.stats());
}

/// The successor is started in the last quarter of a template's launches, so that no launch is cold.
#[test]
fn a_template_that_is_near_its_end_has_a_successor() {
    // With room for one: the successor takes the template's place, and no other program's.
    let warm = options().launches(8).templates(2).open().expect("a set");
    let of = |program| command(program, &[]).prepare().expect("a plan");
    let (other, prepared) = (of("/bin/false"), of("/bin/true"));
    warm.start(&other).expect("a template");
    warm.start(&prepared).expect("a template");
    for _ in 0..4 {
        let templates = warm.templates();
        for _ in 0..6 {
            assert!(is_warm(&warm.spawn(&prepared).expect("a child")));
        }
        until("no successor is started", || warm.templates() != templates && warm.templates().len() == 2);
        let common = templates.iter().filter(|pid| warm.templates().contains(pid)).count();
        assert_eq!(common, 1, "the template of the other program has made room");
        until("the template stays", || templates.iter().filter(|&&pid| has_ended(pid)).count() == 1);
    }
    assert_eq!((warm.stats().cold, warm.stats().starts), (0, 6), "{:?}", warm.stats());
}

#[test]
fn the_number_of_templates_is_limited() {
    let warm = options().templates(2).open().expect("a set");
    let of = |name: &str| command(&format!("/bin/{name}"), &[]).prepare().expect("a plan");
    for name in ["true", "false", "echo"] {
        warm.start(&of(name)).expect("a template");
    }
    assert_eq!(warm.templates().len(), 2);
    // The oldest made room.
    assert!(!is_warm(&warm.spawn(&of("true")).expect("a child")));
    let none = options().templates(0).open().expect("a set");
    let child = none.spawn(&of("true")).expect("a child");
    assert_eq!(child.cold_reason(), Some("no templates are configured"));
}

#[test]
fn idle_and_old_templates_end() {
    in_own_process("templates::idle_and_old_templates_end", || {
        let prepared = command("/bin/true", &[]).prepare().expect("a plan");
        let short = Duration::from_millis(300);
        let idle = options().idle(short).open().expect("a set");
        let old = options().life(short).open().expect("a set");
        for warm in [&idle, &old] {
            // It may have ended before `start` looks, or before the next line.
            until("no template is started", || {
                let _ = warm.start(&prepared);
                warm.stats().starts > 0
            });
            until("the template stays", || warm.templates().is_empty());
            until("the process stays", || children("forkless-warm") == 0);
        }
        assert!(idle.stats().idle >= 1 && old.stats().idle == 0);
        // And it comes back.
        until("it does not come back", || by_template(&idle, &prepared).is_ok());
    });
}

/// The number of this process's threads that guard templates.
fn guards() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc").flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.map(name).filter(|name| name == "forkless-warm\n").count()
}

/// A program that asks for a parent-death signal does not get it when its template ends, only when this process does.
#[test]
fn children_with_a_death_signal_outlive_their_template() {
    in_own_process("templates::children_with_a_death_signal_outlive_their_template", || {
        // PR_SET_PDEATHSIG with SIGTERM. With an argument, it crashes.
        const CODE: &str = "kill $ARGV[0], $$ if @ARGV; syscall(157, 1, 15, 0, 0, 0) == 0 or die; \
                            $| = 1; print qq(ready\\n); <STDIN>; print qq(end\\n)";
        let plan = |args: &[&str]| {
            let mut command = command("/usr/bin/perl", &[&["-e", CODE], args].concat());
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).prepare().expect("a plan")
        };
        let outlives = |warm: Warm, ends_the_template: &dyn Fn(Warm) -> Option<Warm>| {
            warm.start(&plan(&[])).expect("a template");
            let template = warm.templates();
            let mut child = warm.spawn(&plan(&[])).expect("a child");
            assert_eq!(child.cold_reason(), None);
            let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
            let mut text = String::new();
            output.read_line(&mut text).expect("a line");
            let warm = ends_the_template(warm);
            until("the template stays", || template.iter().all(|&pid| has_ended(pid)));
            // For a guard that does not wait for the child.
            std::thread::sleep(Duration::from_millis(300));
            drop(child.stdin.take());
            output.read_to_string(&mut text).expect("text");
            let end = child.wait().expect("its end");
            assert!(end.success() && text == "ready\nend\n", "{end}, {text:?}");
            drop(warm);
            until("a guard stays", || guards() == 0);
        };
        outlives(options().idle(Duration::from_secs(1)).open().expect("a set"), &Some);
        outlives(options().launches(1).open().expect("a set"), &|warm| {
            let child = warm.spawn(&plan(&[])).expect("a child");
            assert_eq!(child.cold_reason(), Some("the template has served long enough"));
            Some(warm)
        });
        outlives(warm(), &|warm| {
            let mut child = warm.spawn(&plan(&["SEGV"])).expect("a child");
            assert_eq!(child.cold_reason(), None);
            assert_eq!(child.wait().expect("its end").code(), None);
            Some(warm)
        });
        outlives(warm(), &|_| None);
    });
}

/// The number of this process's children of this name, dead or alive.
fn children(name: &str) -> usize {
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let is_it = |entry: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let (comm, rest) = stat.rsplit_once(") ").unwrap_or_default();
        comm.ends_with(&format!("({name}")) && rest.split(' ').nth(1) == Some(&own)
    };
    entries.filter(is_it).count()
}

/// Another try of an attacker does not find the same layout of memory.
#[test]
fn a_crash_ends_the_template() {
    let warm = warm();
    let kill = |signal: &str| prepared(&mut command("/bin/sh", &["-c", &format!("kill -{signal} $$")]));
    for (signal, ends) in
        [("TERM", false), ("KILL", false), ("SEGV", true), ("ABRT", true), ("BUS", true), ("ILL", true)]
    {
        let plan = kill(signal);
        by_template(&warm, &plan).expect("warm");
        assert_eq!(warm.templates().is_empty(), ends, "SIG{signal}");
    }
    assert_eq!(warm.stats().crashes, 4);
}

/// Makes a program whose library spins for ever while it is loaded. `None`: there is no C compiler.
fn spinning_program(directory: &Path) -> Option<PathBuf> {
    let code = "__attribute__((constructor)) static void spin(void) { for (;;) __asm__ volatile(\"\"); }\nint f(void) { return 0; }\n";
    std::fs::write(directory.join("l.c"), code).expect("a file");
    std::fs::write(directory.join("p.c"), "int f(void); int main(void) { return f(); }\n").expect("a file");
    let cc = |args: &[&str]| {
        let status = Std::new("cc").args(args).current_dir(directory).status();
        status.is_ok_and(|status| status.success())
    };
    let library = directory.join("libl.so");
    let is_made = cc(&["-shared", "-fPIC", "-o", "libl.so", "l.c"])
        && cc(&["-o", "spin", "p.c", library.to_str().expect("UTF-8")]);
    if !is_made {
        println!("skipped: there is no C compiler");
        return None;
    }
    let program = directory.join("spin");
    crate::common::grow_old(&program);
    Some(program)
}

#[test]
fn the_first_launch_does_not_wait_for_its_template() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(program) = spinning_program(directory.path()) else { return };
    let mut command = command(program.to_str().expect("UTF-8"), &[]);
    let prepared = command.kill_on_drop(true).prepare().expect("a plan");
    // The watch gives up when the program has taken a second of CPU time. If this thread is stopped meanwhile, it sees
    // that too, so one attempt of several counts.
    let is_beside = || {
        let warm = warm();
        let first = warm.spawn(&prepared).expect("a child");
        assert_eq!(first.cold_reason(), Some("the template was not started yet"));
        let second = warm.spawn(&prepared).expect("a child");
        let is_beside = warm.stats().refusals == 0;
        assert!(!is_beside || second.cold_reason() == Some("the template is being started"));
        drop((first, second));
        // On a machine that is so busy that half a minute is no second of CPU time, it is tried again.
        let refused = (0..20).find_map(|_| warm.start(&prepared).err().filter(|_| warm.stats().refusals == 1));
        assert_eq!(refused.expect("a refusal").to_string(), "its loading takes too long");
        let third = warm.spawn(&prepared).expect("a child");
        assert_eq!(third.cold_reason(), Some("its loading takes too long"));
        is_beside
    };
    assert!((0..3).any(|_| is_beside()), "each first launch has waited");
}

/// The number of processes that run this program.
fn running(program: &Path) -> usize {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter(|entry| std::fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program)).count()
}

/// The caller dies while the program is watched.
#[test]
fn a_watched_program_ends_with_its_owner() {
    let test = "templates::a_watched_program_ends_with_its_owner";
    library();
    if let (true, Some(program)) =
        (std::env::var_os(SCENARIO).is_some_and(|name| name == test), std::env::var_os("FORKLESS_WARM_PROGRAM"))
    {
        let mut command = command(program.to_str().expect("UTF-8"), &[]);
        let prepared = command.kill_on_drop(true).prepare().expect("a plan");
        let watching = || {
            let warm = warm();
            drop(warm.spawn(&prepared).expect("a child"));
            // The watch may be over before this thread looks.
            until("the program is not watched", || running(program.as_ref()) == 1 || warm.stats().refusals == 1);
            if running(program.as_ref()) == 1 {
                std::process::abort();
            }
        };
        (0..5).for_each(|_| watching());
        panic!("the program was never under watch");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let Some(program) = spinning_program(directory.path()) else { return };
    let output = Std::new(std::env::current_exe().expect("a program"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(SCENARIO, test)
        .env("FORKLESS_WARM_PROGRAM", &program)
        .output()
        .expect("a process");
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(output.status.signal(), Some(6), "{}", String::from_utf8_lossy(&output.stdout));
    until("the watched program outlives its owner", || running(&program) == 0);
}

/// A forked copy launches cold, and does not end the templates of the original.
#[test]
fn a_forked_copy_launches_cold() {
    in_own_process("templates::a_forked_copy_launches_cold", || {
        let warm = warm();
        let prepared = prepared(&mut command("/bin/echo", &["text"]));
        by_template(&warm, &prepared).expect("warm");
        let template = warm.templates();
        const FORK: u32 = 57;
        // SAFETY: a copy of this process with its own memory, which ends below.
        let pid = unsafe { forkless_core::sys::syscall(FORK, [0; 6]) }.expect("fork");
        if pid == 0 {
            let child = warm.spawn(&prepared).expect("a child");
            let is_cold = child.cold_reason() == Some("this process is a copy of the one that has the templates");
            let is_well = is_cold && warm.templates().is_empty() && child.wait_with_output().is_ok();
            drop(warm);
            // SAFETY: ends the copy without the handlers of the original.
            let _ = unsafe { forkless_core::sys::syscall(231, [usize::from(!is_well), 0, 0, 0, 0, 0]) };
            unreachable!("exit_group");
        }
        let pid = rustix::process::Pid::from_raw(pid as i32);
        let status = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).expect("a child");
        assert_eq!(status.expect("a status").1.exit_status(), Some(0));
        by_template(&warm, &prepared).expect("warm");
        assert_eq!(warm.templates(), template);
    });
}

/// Sixteen threads launch a program for the first time at once: one template is started.
#[test]
fn threads_start_one_template() {
    let warm = warm();
    let prepared = prepared(&mut command("/bin/echo", &["text"]));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let output = warm.output(&prepared).expect("a child");
                    assert_eq!(output.stdout, b"text\n");
                }
            });
        }
    });
    warm.start(&prepared).expect("a template");
    let stats = warm.stats();
    assert_eq!((stats.warm + stats.cold, stats.starts), (320, 1), "{stats:?}");
}

#[test]
fn templates_end_with_their_owner() {
    let test = "templates::templates_end_with_their_owner";
    library();
    if std::env::var_os(SCENARIO).is_some_and(|name| name == test) {
        let warm = warm();
        by_template(&warm, &command("/bin/true", &[]).prepare().expect("a plan")).expect("warm");
        println!("template {}", warm.templates()[0]);
        std::process::abort();
    }
    let output = Std::new(std::env::current_exe().expect("a program"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(SCENARIO, test)
        .output()
        .expect("a process");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let pid = text.lines().find_map(|line| line.rsplit_once("template ")?.1.parse::<u32>().ok());
    let pid = pid.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    until("the template outlives its owner", || has_ended(pid));
}

/// A forked copy of the owner lives on. It has a copy of the template's socket, so the template does not see the socket end.
#[test]
fn templates_end_though_a_copy_of_their_owner_lives() {
    let test = "templates::templates_end_though_a_copy_of_their_owner_lives";
    library();
    if std::env::var_os(SCENARIO).is_some_and(|name| name == test) {
        let warm = warm();
        by_template(&warm, &command("/bin/true", &[]).prepare().expect("a plan")).expect("warm");
        const FORK: u32 = 57;
        // SAFETY: a copy of this process with its own memory. It makes only the two calls below: it waits until standard
        // input ends, and ends.
        unsafe {
            if forkless_core::sys::syscall(FORK, [0; 6]) == Ok(0) {
                let mut byte = [0u8];
                let _ = forkless_core::sys::syscall(0, [0, byte.as_mut_ptr() as usize, 1, 0, 0, 0]);
                let _ = forkless_core::sys::syscall(231, [0; 6]);
            }
        }
        println!("template {}", warm.templates()[0]);
        std::process::abort();
    }
    let mut owner = Std::new(std::env::current_exe().expect("a program"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(SCENARIO, test)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("a process");
    // Until the copy ends.
    let copy = owner.stdin.take();
    let lines = BufReader::new(owner.stdout.take().expect("a pipe")).lines();
    let pid = lines.map_while(Result::ok).find_map(|line| line.rsplit_once("template ")?.1.parse::<u32>().ok());
    let pid = pid.expect("a template");
    owner.wait().expect("its end");
    until("the template outlives its owner", || has_ended(pid));
    drop(copy);
}

#[test]
fn a_dropped_set_ends_its_templates() {
    let warm = warm();
    by_template(&warm, &command("/bin/true", &[]).prepare().expect("a plan")).expect("warm");
    let [template] = warm.templates()[..] else { panic!("one template") };
    drop(warm);
    assert!(!std::path::Path::new(&format!("/proc/{template}")).exists());
}

/// A program has neither the parcels nor the socket of its template, and nothing of another launch.
#[test]
fn nothing_of_other_launches_is_in_a_child() {
    in_own_process("templates::nothing_of_other_launches_is_in_a_child", || {
        let warm = warm();
        let marker = "marker-of-another-launch";
        by_template(&warm, &prepared(&mut command("/bin/cat", &["/dev/null", marker]))).expect("warm");
        let maps = by_template(&warm, &prepared(&mut command("/bin/cat", &["/proc/self/maps"]))).expect("warm");
        assert_eq!(warm.stats().starts, 1, "one template for both");
        let maps = String::from_utf8_lossy(&maps.stdout).into_owned();
        assert!(maps.contains("libforkless_warm.so") && !maps.contains("memfd"), "{maps}");
        // A child that waits for input, whose whole memory is read.
        let mut command = command("/bin/cat", &[]);
        let mut child = warm
            .spawn(&command.stdin(Stdio::piped()).stdout(Stdio::piped()).prepare().expect("a plan"))
            .expect("a child");
        assert!(is_warm(&child));
        let found = is_in_memory(child.id(), marker.as_bytes());
        assert!(is_in_memory(child.id(), b"libforkless_warm"), "the memory was not read");
        drop(child.stdin.take());
        child.wait().expect("its end");
        assert!(!found, "the arguments of another launch");
    });
}

/// Whether the readable memory of a process contains these bytes.
fn is_in_memory(pid: u32, bytes: &[u8]) -> bool {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("a process");
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).expect("a process");
    maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|flags| flags.starts_with('r'))).any(|line| {
        let (first, end) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
        let number = |text| u64::from_str_radix(text, 16).expect("a number");
        let mut part = vec![0; (number(end) - number(first)) as usize];
        let length = memory.read_at(&mut part, number(first)).unwrap_or(0);
        part[..length].windows(bytes.len()).any(|window| window == bytes)
    })
}

/// Each child has its own canary and its own AT_RANDOM bytes. (libc makes the canary of the first eight.)
#[test]
fn secrets_are_new_in_each_child() {
    let directory = tempfile::tempdir().expect("a directory");
    let (source, program) = (directory.path().join("p.c"), directory.path().join("p"));
    let code = "#include <stdio.h>\n#include <string.h>\n#include <sys/auxv.h>\nint main(void) { unsigned long c, r; \
                __asm__(\"mov %%fs:0x28, %0\" : \"=r\"(c)); memcpy(&r, (char *)getauxval(AT_RANDOM) + 8, 8); \
                printf(\"%lx %lx\\n\", c, r); return (c & 255) != 0; }\n";
    std::fs::write(&source, code).expect("a file");
    if !Std::new("cc").arg("-o").args([&program, &source]).status().is_ok_and(|status| status.success()) {
        println!("skipped: there is no C compiler");
        return;
    }
    crate::common::grow_old(&program);
    let warm = warm();
    let prepared = prepared(&mut command(program.to_str().expect("UTF-8"), &[]));
    by_template(&warm, &prepared).expect("warm");
    let mut seen = HashSet::new();
    for _ in 0..10 {
        let output = by_template(&warm, &prepared).expect("warm");
        assert!(output.status.success());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.split_whitespace().filter(|word| seen.insert((*word).to_owned())).count(), 2, "{text}");
    }
    assert_eq!(warm.stats().starts, 1);
}

/// Threads launch through one set at the same time. There is a template all the time, so no launch has a reason to be cold.
#[test]
fn threads_launch_at_once() {
    let warm = warm();
    let plans: Vec<_> = (0..4).map(|n| prepared(&mut command("/bin/echo", &[&n.to_string()]))).collect();
    by_template(&warm, &plans[0]).expect("warm");
    std::thread::scope(|scope| {
        for (n, plan) in plans.iter().enumerate() {
            let warm = &warm;
            scope.spawn(move || {
                for _ in 0..100 {
                    let mut child = warm.spawn(plan).expect("a child");
                    assert_eq!(child.cold_reason(), None);
                    let mut text = String::new();
                    child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
                    assert_eq!(text, format!("{n}\n"));
                    assert!(child.wait().expect("its end").success());
                }
            });
        }
    });
    let stats = warm.stats();
    assert_eq!((stats.warm, stats.cold, stats.starts), (401, 0, 1), "{stats:?}");
}
