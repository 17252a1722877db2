//! Nothing is left of children cloned ahead, whoever ends whom, and nobody else sees them.

use crate::elf::Programs;
use crate::foreign;
use crate::hosts::in_a_copy;
use crate::leaks::Holdings;
use crate::observe::{self, eventually, skip};
use forkless::{Command, Launcher, Pool, PoolOptions, Prepared, Stdio};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Not by themselves less.
pub(crate) fn options() -> PoolOptions {
    let mut options = PoolOptions::new();
    options.marks(2, 6).idle(None).recheck(Duration::ZERO);
    options
}

/// A pool with children parked.
pub(crate) fn full(options: &PoolOptions) -> Pool {
    let pool = options.start().expect("a pool");
    fill(&pool);
    pool
}

pub(crate) fn fill(pool: &Pool) {
    eventually("parked children", || pool.stats().parked == pool.stats().high);
}

/// Descriptors opened and closed between park and launch: the numbers that the launch names are looked up then.
pub fn descriptors(_: &[String]) {
    let pool = full(&options());
    let directory = tempfile::tempdir().expect("a directory");
    for n in 0..observe::scaled(50) {
        let path = directory.path().join(format!("file {n}"));
        fs::write(&path, format!("text {n}")).expect("write");
        let file = fs::File::open(&path).expect("open");
        let prepared = Command::new("/bin/cat").stdin(file).stdout(Stdio::piped()).prepare().expect("prepare");
        eventually("a parked child", || pool.stats().parked > 0);
        let child = pool.launch(&prepared).expect("launch");
        assert_eq!(child.wait_with_output().expect("output").stdout, format!("text {n}").as_bytes());
    }
    assert_eq!(pool.stats().pooled as usize, observe::scaled(50), "{:?}", pool.stats());
}

fn exits(programs: &Programs, code: u8) -> Prepared {
    Command::new(programs.exits(code)).prepare().expect("prepare")
}

/// Thousands of launches from several threads; some fail, some handles are dropped.
pub fn leaks(_: &[String]) {
    let programs = Programs::new();
    let (good, bad) = (exits(&programs, 3), Command::new(programs.path("missing")).prepare().expect("prepare"));
    let round = |pool: &Pool, total: usize| {
        thread::scope(|scope| {
            for thread in 0..4 {
                let (good, bad) = (&good, &bad);
                scope.spawn(move || {
                    for n in 0..total / 4 {
                        match (n + thread) % 5 {
                            0 => assert_eq!(pool.status(good).expect("status").code(), Some(3)),
                            1 => assert_eq!(pool.spawn(good).expect("spawn").wait().expect("wait").code(), Some(3)),
                            2 => assert_eq!(pool.launch(good).expect("launch").wait().expect("wait").code(), Some(3)),
                            3 => assert!(pool.spawn(bad).is_err()),
                            _ => drop(pool.launch(good).expect("launch")),
                        }
                    }
                });
            }
        });
        eventually("dropped children reaped", || forkless::reap_orphans() == 0);
    };
    let before = Holdings::now();
    {
        let pool = full(&options());
        round(&pool, 400);
        fill(&pool);
        let fds = observe::open_fds();
        round(&pool, observe::scaled(20_000));
        eventually("as many parked as before", || {
            let _ = pool.status(&good);
            pool.stats().parked == pool.stats().high
        });
        assert_eq!(observe::open_fds(), fds);
        assert_eq!(parked().len(), pool.stats().high + 1, "children beside those that are parked");
        let stats = pool.stats();
        assert!(stats.pooled > 0 && (stats.lost, stats.renewals, stats.failures) == (0, 0, 0), "{stats:?}");
    }
    before.assert_as_before("a pool");
    for n in 0..observe::scaled(200) {
        let pool = options().start().expect("a pool");
        if n % 2 == 0 {
            fill(&pool);
        }
        // Who has been launched is no child of the pool's any more.
        let mut child = pool.launch(&good).expect("launch");
        drop(pool);
        assert_eq!(child.wait().expect("wait").code(), Some(3));
    }
    before.assert_as_before("a hundred pools");
}

/// The pids of the pool's processes: all our children.
fn parked() -> Vec<i32> {
    observe::children()
}

/// `waitpid(-1)` sees none of them, and SIGCHLD comes for none.
pub fn invisible(_: &[String]) {
    static CAME: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn count(_: libc::c_int) {
        CAME.fetch_add(1, Relaxed);
    }
    // SAFETY: the handler only counts.
    unsafe { libc::signal(libc::SIGCHLD, count as *const () as libc::sighandler_t) };
    let pool = full(&options());
    assert_eq!(foreign::wait(-1, libc::WNOHANG), Err(libc::ECHILD));
    let victim = *parked().iter().find(|pid| Some(**pid as u32) != pool.stats().refiller).expect("a parked child");
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::kill(victim, libc::SIGKILL) }, 0);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(foreign::wait(-1, libc::WNOHANG), Err(libc::ECHILD));
    drop(pool);
    assert_eq!(foreign::wait(-1, libc::WNOHANG), Err(libc::ECHILD));
    assert_eq!(CAME.load(Relaxed), 0, "SIGCHLD came");
    observe::assert_no_orphans();
}

/// Somebody kills and stops what is parked, and who makes it.
pub fn killed(_: &[String]) {
    let programs = Programs::new();
    let program = exits(&programs, 6);
    let pool = full(&options());
    let launch = || assert_eq!(pool.status(&program).expect("status").code(), Some(6));
    for round in 0..observe::scaled(20) {
        let refiller = pool.stats().refiller.map(|pid| pid as i32);
        let everybody = parked();
        let victims = everybody.iter().filter(|&&pid| round % 2 == 0 || Some(pid) == refiller || pid % 2 == 0);
        for &pid in victims {
            // SAFETY: our own children.
            unsafe { libc::kill(pid, if round % 3 == 2 { libc::SIGTERM } else { libc::SIGKILL }) };
        }
        for _ in 0..20 {
            launch();
        }
        eventually("parked children again", || {
            launch();
            pool.stats().parked > 0
        });
    }
    assert!(pool.stats().lost > 0 && pool.stats().renewals > 0, "{:?}", pool.stats());
    // Stopped ones: they are launched all the same.
    pool.refresh().expect("refresh");
    fill(&pool);
    for pid in parked() {
        // SAFETY: our own children.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
    }
    thread::sleep(Duration::from_millis(10));
    for _ in 0..3 {
        assert_eq!(pool.spawn(&program).expect("spawn").wait().expect("wait").code(), Some(6));
    }
    drop(pool);
    observe::assert_no_orphans();
}

/// What was sent to a parked child is not the program's.
pub fn signalled(_: &[String]) {
    let programs = Programs::new();
    let program = exits(&programs, 6);
    let pool = full(&options());
    // SAFETY: our own group, in which no parked child is, and then each parked child; the signal is ignored here.
    unsafe {
        libc::signal(libc::SIGUSR1, libc::SIG_IGN);
        pool.refresh().expect("refresh");
        libc::signal(libc::SIGUSR1, libc::SIG_DFL);
    }
    fill(&pool);
    for pid in parked() {
        for signal in [libc::SIGTERM, libc::SIGUSR1, libc::SIGHUP, libc::SIGRTMIN()] {
            // SAFETY: our own children.
            assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        }
    }
    pool.refresh().expect("refresh");
    fill(&pool);
    for pid in parked() {
        // SAFETY: our own children.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    }
    for _ in 0..pool.stats().high {
        let child = pool.launch(&program).expect("launch");
        assert_eq!(child.route().launcher, Launcher::Pool);
        assert_eq!({ child }.wait().expect("wait").code(), Some(6));
    }
}

/// A forked copy has no pool, and leaves the original's alone.
pub fn forked(_: &[String]) {
    let programs = Programs::new();
    let program = exits(&programs, 6);
    let pool = full(&options());
    let there = parked();
    let taken = std::cell::Cell::new(Some(pool));
    in_a_copy(|| {
        let pool = taken.take().expect("the pool");
        let child = pool.launch(&program).expect("launch");
        assert_eq!(child.route().launcher, Launcher::Clone);
        assert_eq!({ child }.wait().expect("wait").code(), Some(6));
        assert_eq!((pool.stats().parked, pool.stats().refiller), (0, None));
        pool.refresh().expect("nothing to do");
        drop(pool);
        let own = full(&options());
        let child = own.launch(&program).expect("launch");
        assert_eq!(child.route().launcher, Launcher::Pool);
        assert_eq!({ child }.wait().expect("wait").code(), Some(6));
        drop(own);
        observe::assert_no_orphans();
    });
    assert_eq!(parked(), there);
    drop(taken.take());
    observe::assert_no_orphans();
}

/// Forks while other threads launch.
pub fn forked_storm(_: &[String]) {
    let programs = Programs::new();
    let program = exits(&programs, 6);
    let pool = full(&options());
    let done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    assert_eq!(pool.status(&program).expect("status").code(), Some(6));
                }
            });
        }
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..observe::scaled(50) {
                in_a_copy(|| {
                    assert_eq!(pool.status(&program).expect("status").code(), Some(6));
                    assert_eq!(pool.launch(&program).expect("launch").wait().expect("wait").code(), Some(6));
                });
            }
        }));
        done.store(true, Relaxed);
        answer.expect("the copies");
    });
    drop(pool);
    observe::assert_no_orphans();
}

/// The thread that made it ends.
pub fn maker_ends(_: &[String]) {
    let programs = Programs::new();
    let program = exits(&programs, 6);
    let pool = thread::spawn(|| full(&options())).join().expect("a thread");
    thread::sleep(Duration::from_millis(20));
    assert_eq!(pool.stats().parked, pool.stats().high);
    let child = pool.launch(&program).expect("launch");
    assert_eq!(child.route().launcher, Launcher::Pool);
    assert_eq!({ child }.wait().expect("wait").code(), Some(6));
}

/// Nothing is launched for a while: nothing is parked; the next launch has it begin again.
pub fn idle(_: &[String]) {
    let programs = Programs::new();
    let program = exits(&programs, 6);
    let pool = options().idle(Duration::from_millis(50)).start().expect("a pool");
    // It may have been idle for so long already when this thread looks.
    let launched_until = |what: &str, is: &dyn Fn() -> bool| {
        eventually(what, || {
            assert_eq!(pool.status(&program).expect("status").code(), Some(6));
            is()
        });
    };
    launched_until("a parked child", &|| pool.stats().parked > 0);
    eventually("nothing parked", || pool.stats().refiller.is_none());
    assert_eq!(pool.stats().parked, 0);
    eventually("their end", observe::is_childless);
    launched_until("a parked child again", &|| pool.stats().parked > 0);
    // A pool that is used is kept.
    let refiller = pool.stats().refiller;
    for _ in 0..30 {
        assert_eq!(pool.status(&program).expect("status").code(), Some(6));
        thread::sleep(Duration::from_millis(5));
    }
    if pool.stats().refiller != refiller {
        // Only a machine that stood still for so long ends it.
        skip("a pool that is used is kept", "this machine is too busy");
    }
}

/// A host for `ends`: tells its children's pids, then goes as it is told.
pub fn host(args: &[String]) {
    let pool = full(&options());
    println!("{}", parked().iter().map(i32::to_string).collect::<Vec<_>>().join(" "));
    match args.first().map(String::as_str) {
        Some("exec") => panic!("{}", process::Command::new("/bin/cat").exec()),
        Some("drop-privileges") => {
            // SAFETY: libc's, for all threads.
            assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
        }
        Some("exit") => process::exit(0),
        _ => {}
    }
    let _ = std::io::stdin().read(&mut [0]);
    std::mem::forget(pool);
    // SAFETY: our own end.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// The host executes another program, exits, is killed, or is killed when it may no longer signal what it has parked.
pub fn ends(_: &[String]) {
    for how in ["exec", "exit", "kill", "drop-privileges"] {
        // SAFETY: a question.
        if how == "drop-privileges" && unsafe { libc::geteuid() } != 0 {
            skip("the end of a host that has dropped its privileges", "it needs root");
            continue;
        }
        let mut host = process::Command::new("/proc/self/exe")
            .args(["pool-host", how])
            .stdin(process::Stdio::piped())
            .stdout(process::Stdio::piped())
            .spawn()
            .expect("a host");
        let mut line = String::new();
        BufReader::new(host.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let pids: Vec<i32> = line.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect();
        assert_eq!(pids.len(), 7, "{how}: {line:?}");
        let stdin = host.stdin.take();
        if how == "kill" || how == "drop-privileges" {
            drop(stdin);
            assert_eq!(host.wait().expect("wait").signal(), Some(libc::SIGKILL));
        } else {
            // A program that has been executed goes on with what is left of them, which is nothing that runs.
            let gone = |pid: &i32| {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                stat.is_empty() || stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
            };
            eventually(&format!("the end of what a host had parked that went by {how}"), || pids.iter().all(gone));
            drop(stdin);
            host.wait().expect("wait");
        }
        eventually(&format!("nothing left of a host that went by {how}"), || {
            pids.iter().all(|pid| fs::metadata(format!("/proc/{pid}/exe")).is_err() || is_zombie_of_another(*pid))
        });
    }
}

/// Its new parent may be slow, or not reap at all.
fn is_zombie_of_another(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

/// The limit of processes is met while children are made: launches say so, and the pool recovers.
pub fn limits(_: &[String]) {
    let programs = Programs::new();
    let program = exits(&programs, 6);
    // SAFETY: to a user that nobody else here is, for whom the limit counts.
    unsafe {
        if libc::geteuid() != 0 {
            return skip("a limit of processes", "it needs root, to become a user without processes");
        }
        assert_eq!(libc::setresuid(54_321, 54_321, 54_321), 0);
        libc::prctl(libc::PR_SET_DUMPABLE, 1);
    }
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the scene's own limits.
    let set = |soft: u64, hard: u64| unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &libc::rlimit { rlim_cur: soft, rlim_max: hard }), 0);
    };
    // SAFETY: the kernel writes a limit.
    unsafe { assert_eq!(libc::getrlimit(libc::RLIMIT_NPROC, &raw mut old), 0) };
    // This thread, the pool's, the refiller and three of six children.
    set(6, old.rlim_max);
    let pool = options().start().expect("a pool");
    eventually("the limit", || pool.stats().failures > 0);
    let stats = pool.stats();
    assert_eq!((stats.parked, stats.last_errno), (3, Some(libc::EAGAIN)), "{stats:?}");
    for _ in 0..20 {
        match pool.status(&program) {
            Ok(status) => assert_eq!(status.code(), Some(6)),
            Err(error) => assert!(error.to_string().contains("the limit of processes is reached"), "{error}"),
        }
    }
    set(old.rlim_cur, old.rlim_max);
    eventually("all parked", || {
        let _ = pool.status(&program);
        pool.stats().parked == pool.stats().high
    });
    drop(pool);
    observe::assert_no_orphans();
    // No room at all: no pool, and nothing left of it.
    set(1, old.rlim_max);
    let error = options().start().map(drop).expect_err("no pool");
    assert_eq!(
        error.raw_os_error().or(forkless::Error::of(&error).and_then(forkless::Error::errno)),
        Some(libc::EAGAIN),
        "{error}"
    );
    observe::assert_no_orphans();
}

/// No memory for further stacks: launches fail or are done by what is there, and the pool recovers.
pub fn no_memory(_: &[String]) {
    let programs = Programs::new();
    let sleeper = Command::new("/bin/sleep").arg("60").kill_on_drop(true).prepare().expect("prepare");
    let program = exits(&programs, 6);
    // So that another limit is no reason to clone.
    let pool = full(options().recheck(Duration::MAX));
    assert_eq!(pool.status(&program).expect("status").code(), Some(6));
    let mut children = Vec::with_capacity(2000);
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("VmSize");
    let kib: u64 = size.trim().trim_end_matches(" kB").parse().expect("KiB");
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the scene's own limit; the kernel writes and reads one.
    let set = |limit: &libc::rlimit| unsafe { assert_eq!(libc::setrlimit(libc::RLIMIT_AS, limit), 0) };
    // SAFETY: as above.
    unsafe { assert_eq!(libc::getrlimit(libc::RLIMIT_AS, &raw mut old), 0) };
    set(&libc::rlimit { rlim_cur: (kib + 2048) << 10, rlim_max: old.rlim_max });
    let mut failed = None;
    for _ in 0..200 {
        match pool.launch(&sleeper) {
            Ok(child) => children.push(child),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    set(&old);
    if let Some(error) = failed {
        let step = forkless::Error::of(&error).map(forkless::Error::step);
        assert_eq!(step, Some(forkless::Step::Stack), "{error}");
    }
    let stats = pool.stats();
    assert!(
        children.len() >= stats.high && stats.pooled as usize >= stats.high,
        "{} children, {stats:?}",
        children.len()
    );
    drop(children);
    eventually("parked children again", || {
        assert_eq!(pool.status(&program).expect("status").code(), Some(6));
        pool.stats().parked > pool.stats().low
    });
    drop(pool);
    observe::assert_no_orphans();
}

/// Where it cannot be it says why.
pub fn refused(_: &[String]) {
    let error = PoolOptions::new().marks(4, 4).start().map(drop).expect_err("no pool");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    let error = PoolOptions::new().marks(4, 1000).start().map(drop).expect_err("no pool");
    assert!(error.to_string().contains("128"), "{error}");
}
