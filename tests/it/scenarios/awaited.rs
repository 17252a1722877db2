//! Awaited children: leaks, who is woken at their end, and what happens without a runtime that could watch them.

use crate::elf::Programs;
use crate::foreign;
use crate::leaks::Holdings;
use crate::observe::{self, eventually};
use forkless::tokio::{Child, Command, Stdio};
use forkless::{Error, Step};
use forkless_tests::filter::{Answer, Refusal, refuse};
use std::future::Future;
use std::io::{ErrorKind, Result};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Long enough for anything that is not stuck.
fn limit() -> Duration {
    forkless_tests::patience::limit(60)
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn several_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// The open descriptors; the first runtime makes some for all.
fn fds_with_tokio() -> Vec<i32> {
    drop(one_thread());
    observe::open_fds()
}

fn on_both(act: impl Fn(Runtime)) {
    act(one_thread());
    act(several_threads());
}

/// Runs `one` that many times, 64 at a time.
async fn many<F: Future<Output = ()> + Send + 'static>(total: usize, one: impl Fn(usize) -> F) {
    let mut running = JoinSet::new();
    for n in 0..total {
        running.spawn(one(n));
        if running.len() == 64 {
            running.join_next().await.expect("a task").expect("no panic");
        }
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("no panic");
    }
}

/// A child that only ends when it is killed, and has no descriptor of this process.
fn sleeper() -> Command {
    let mut command = Command::new("/bin/sleep");
    command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Waits until there is no child, without launching or reaping: only the runtime's tasks may reap.
async fn childless(what: &str) {
    let deadline = Instant::now() + limit();
    while !observe::is_childless() {
        assert!(Instant::now() < deadline, "children are left after {what}: {:?}", observe::children());
        sleep(Duration::from_millis(1)).await;
    }
}

scenario!(many_awaited_children_leak_nothing);
/// Every way to run, to fail, and to give up.
pub fn many_awaited_children_leak_nothing(_: &[String]) {
    let programs: &'static Programs = Box::leak(Box::new(Programs::new()));
    let (program, missing) = (programs.exits(3), programs.path("missing"));
    let round = |total| {
        let (program, missing) = (program.clone(), missing.clone());
        on_both(|runtime| {
            runtime.block_on(many(total, |n| {
                let (program, missing) = (program.clone(), missing.clone());
                async move { one(&program, &missing, n).await }
            }))
        });
    };
    round(400);
    observe::assert_no_orphans();
    let before = Holdings::now();
    round(observe::scaled(2000));
    before.assert_as_before("awaited children");
}

async fn one(program: &Path, missing: &Path, n: usize) {
    let mut command = Command::new(if n % 10 >= 8 { missing } else { program });
    if n.is_multiple_of(3) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).fd(Stdio::socketpair(), 5);
    }
    command.kill_on_drop(n.is_multiple_of(2));
    let ended = match n % 7 {
        0 => command.status().await,
        1 => command.output().await.map(|output| output.status),
        2 => wait(command.spawn()).await,
        3 => wait(command.launch()).await,
        4 => command.prepare().expect("prepare").output().await.map(|output| output.status),
        5 => return drop(command.launch()),
        _ => {
            let answer = timeout(Duration::from_micros(n as u64), sleeper().kill_on_drop(true).output()).await;
            return assert!(answer.is_err(), "a sleep of 1000 s has ended");
        }
    };
    match ended {
        Ok(status) => assert_eq!(status.code(), Some(3)),
        Err(error) => assert!(n % 10 >= 8, "launch {n} should have worked: {error}"),
    }
}

async fn wait(started: Result<Child>) -> Result<ExitStatus> {
    started?.wait().await
}

scenario!(dropped_children_are_reaped_when_they_end);
/// No launch after the drop: only the runtime may reap.
pub fn dropped_children_are_reaped_when_they_end(_: &[String]) {
    let programs = Programs::new();
    let missing = programs.path("missing");
    on_both(|runtime| {
        runtime.block_on(async {
            let before = observe::open_fds();
            drop(sleeper().kill_on_drop(true).spawn().expect("spawn"));
            childless("a kill on drop").await;
            drop(sleeper().kill_on_drop(true).status());
            childless("a kill on the drop of a future that was not polled").await;
            let given_up = timeout(Duration::from_millis(5), sleeper().kill_on_drop(true).output()).await;
            assert!(given_up.is_err());
            childless("a kill on a time-out").await;
            drop(Command::new("/bin/sleep").arg("0.05").spawn().expect("spawn"));
            childless("a drop").await;
            drop(Command::new(&missing).launch());
            childless("the drop of a launch that failed").await;
            // A task of the runtime reaps first, and closes the pidfd then.
            let deadline = Instant::now() + limit();
            while observe::open_fds() != before {
                assert!(Instant::now() < deadline, "{:?} are open, not {before:?}", observe::open_fds());
                sleep(Duration::from_millis(1)).await;
            }
        });
    });
    // Control: with the runtime gone a child that ends later stays a zombie, and is seen.
    let runtime = several_threads();
    let child = runtime.block_on(async { sleeper().spawn().expect("spawn") });
    let pid = child.id().expect("a pid") as i32;
    drop(runtime);
    drop(child);
    // A child of this process that has not been reaped.
    forkless_tests::process::kill(pid, libc::SIGKILL);
    eventually("a zombie", || observe::state_of(pid) == Some('Z'));
    assert!(!observe::is_childless());
    observe::assert_no_orphans();
}

scenario!(awaiting_uses_no_thread_no_handler_and_no_polling);
/// No thread is started, no handler is set, and the thread that waits sleeps.
pub fn awaiting_uses_no_thread_no_handler_and_no_polling(_: &[String]) {
    let threads = || std::fs::read_dir("/proc/self/task").expect("/proc/self/task").count();
    let sigchld = || {
        // SAFETY: all zeroes is a valid sigaction, which the kernel writes.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            assert_eq!(libc::sigaction(libc::SIGCHLD, std::ptr::null(), &raw mut action), 0);
            action.sa_sigaction
        }
    };
    let sleeps = || {
        // SAFETY: as above, an rusage.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
            usage.ru_nvcsw
        }
    };
    one_thread().block_on(async {
        let mut child = Command::new("/bin/sleep").arg("0.5").spawn().expect("spawn");
        let before = sleeps();
        assert!(child.wait().await.expect("wait").success());
        let waiting = sleeps() - before;
        assert!(waiting < 10, "the wait went to sleep {waiting} times");
        assert_eq!((threads(), sigchld()), (1, libc::SIG_DFL));
        drop(sleeper().kill_on_drop(true).spawn().expect("spawn"));
        childless("a kill on drop").await;
        assert_eq!((threads(), sigchld()), (1, libc::SIG_DFL));
        // Control: a loop that polls is seen.
        let mut child = sleeper().kill_on_drop(true).spawn().expect("spawn");
        let before = sleeps();
        for _ in 0..20 {
            assert!(child.try_wait().expect("wait").is_none());
            sleep(Duration::from_millis(5)).await;
        }
        assert!(sleeps() - before >= 10);
        drop(child);
        childless("a kill on drop").await;
    });
    // Control: tokio's own sets a handler when it has an orphan; whatever does is seen.
    // SAFETY: a handler that is never called is set and taken back.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    assert_ne!(sigchld(), libc::SIG_DFL);
    ignored();
}

/// With SIGCHLD ignored the kernel discards statuses; those of watched children are kept.
fn ignored() {
    if !observe::is_kernel_at_least(6, 15) {
        return observe::skip("awaited exit statuses under SIGCHLD=SIG_IGN", "this kernel is older than 6.15");
    }
    let programs = Programs::new();
    let seven = programs.exits(7);
    on_both(|runtime| {
        runtime.block_on(many(observe::scaled(200), |_| {
            let mut command = Command::new(&seven);
            async move { assert_eq!(command.status().await.expect("a status in spite of SIG_IGN").code(), Some(7)) }
        }));
    });
}

scenario!(exit_statuses_are_kept_from_a_foreign_reaper);
/// A thread that reaps whatever it finds takes no status.
pub fn exit_statuses_are_kept_from_a_foreign_reaper(_: &[String]) {
    let kept = observe::is_kernel_at_least(6, 15);
    if !kept {
        observe::skip("awaited exit statuses in spite of a foreign reaper", "this kernel is older than 6.15");
    }
    let programs = Programs::new();
    let seven = programs.exits(7);
    let (stop, taken) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                match foreign::wait(-1, libc::WNOHANG) {
                    Ok((pid, _)) if pid > 0 => _ = taken.fetch_add(1, Relaxed),
                    _ => thread::yield_now(),
                }
            }
        });
        on_both(|runtime| {
            runtime.block_on(many(observe::scaled(1000), |n| {
                let mut command = Command::new(&seven);
                async move {
                    let ended = if n % 2 == 0 { command.status().await } else { wait(command.spawn()).await };
                    match ended {
                        Ok(status) => assert_eq!(status.code(), Some(7)),
                        Err(error) => {
                            let detail = Error::of(&error).expect("an error of this crate");
                            assert_eq!((detail.step(), detail.errno()), (Step::Wait, Some(libc::ECHILD)), "{error}");
                            assert!(!kept, "an exit status was lost");
                        }
                    }
                }
            }));
        });
        stop.store(true, Relaxed);
    });
    assert!(taken.load(Relaxed) > 0, "the reaper took nothing, so nothing was tested");
    observe::assert_no_orphans();
}

scenario!(handles_outlive_their_runtime);
/// The runtime goes first, with children and handles alive.
pub fn handles_outlive_their_runtime(_: &[String]) {
    let before = fds_with_tokio();
    on_both(|runtime| {
        let mut command = sleeper();
        let mut child = runtime.block_on(async { command.stdout(Stdio::piped()).spawn().expect("spawn") });
        drop(runtime);
        assert!(child.try_wait().expect("wait").is_none());
        one_thread().block_on(async {
            // The child runs on, and is watched by this runtime.
            timeout(Duration::from_millis(20), child.wait()).await.expect_err("it has not ended");
            let mut stream = child.stdout.take().expect("a pipe");
            timeout(limit(), stream.read_u8()).await.expect("no hang").expect_err("nobody watches");
        });
        child.start_kill().expect("kill");
        // That one has gone, too.
        let status = one_thread().block_on(async { timeout(limit(), child.wait()).await.expect("no hang") });
        assert_eq!(status.expect("wait").signal(), Some(libc::SIGKILL));
        assert_eq!(child.id(), None);
    });
    on_both(|runtime| {
        let mut ended = runtime.block_on(async { Command::new("/bin/true").spawn().expect("spawn") });
        drop(runtime);
        let status = one_thread().block_on(async { timeout(limit(), ended.wait()).await.expect("no hang") });
        assert!(status.expect("wait").success());
    });
    on_both(|runtime| {
        let outside = runtime.block_on(async { sleeper().kill_on_drop(true).spawn().expect("spawn") });
        // Half of them are killed when their tasks are dropped, the others by hand.
        let survivors: Vec<i32> =
            runtime.block_on(async { (0..40).filter_map(|n| wait_in_a_task(n % 2 == 0)).collect() });
        runtime.shutdown_background();
        drop(outside);
        eventually("the others killed", || forkless::reap_orphans() == survivors.len());
        for pid in survivors {
            // A child of this process that has not been reaped, because the queue has not.
            forkless_tests::process::kill(pid, libc::SIGKILL);
        }
        observe::assert_no_orphans();
    });
    assert_eq!(observe::open_fds(), before);
}

/// A task that waits for a child; gives its pid if it is not to be killed with the task.
fn wait_in_a_task(kill: bool) -> Option<i32> {
    let mut child = sleeper().kill_on_drop(kill).spawn().expect("spawn");
    let pid = child.id().expect("a pid") as i32;
    tokio::spawn(async move { child.wait().await });
    (!kill).then_some(pid)
}

scenario!(a_child_that_cannot_be_watched_leaks_nothing);
/// Outside a runtime, and in one without I/O.
pub fn a_child_that_cannot_be_watched_leaks_nothing(_: &[String]) {
    let before = fds_with_tokio();
    let refused = |error: std::io::Error| {
        assert_eq!(Error::of(&error).map(Error::step), Some(Step::Check), "{error}");
        assert!(error.to_string().contains("no tokio runtime"), "{error}");
        assert!(observe::is_childless());
    };
    refused(sleeper().spawn().expect_err("spawn"));
    refused(sleeper().launch().expect_err("launch"));
    let futures = (sleeper().status(), sleeper().prepare().expect("prepare").output());
    one_thread().block_on(async {
        refused(futures.0.await.expect_err("status"));
        refused(futures.1.await.expect_err("output"));
    });
    let blocking = || forkless::Command::new("/bin/sleep").arg("0.05").spawn().expect("spawn");
    Child::from_forkless(blocking()).expect_err("no runtime");
    observe::assert_no_orphans();
    let blind = Builder::new_current_thread().build().expect("a runtime");
    blind.block_on(async {
        for spawn in [Command::spawn, Command::launch] {
            // Tokio panics where it has no reactor. The child is killed.
            catch_unwind(AssertUnwindSafe(|| spawn(&mut sleeper()))).expect_err("no reactor");
        }
        catch_unwind(|| Child::from_forkless(blocking())).expect_err("no reactor");
    });
    observe::assert_no_orphans();
    drop(blind);
    assert_eq!(observe::open_fds(), before);
}

scenario!(refused_calls_have_a_fallback_or_an_error);
/// Refused system calls: in threads of their own, since a filter stays with its thread.
pub fn refused_calls_have_a_fallback_or_an_error(_: &[String]) {
    let under = |refusal: Refusal, act: fn(Runtime)| {
        let thread = thread::spawn(move || {
            let runtime = one_thread();
            refuse(&[refusal]).expect("a filter");
            act(runtime);
        });
        thread.join().expect("no panic");
        observe::assert_no_orphans();
    };
    let eperm = Answer::Errno(libc::EPERM);
    under(Refusal::of(libc::SYS_clone3, Answer::Errno(libc::ENOSYS)), |runtime| {
        runtime.block_on(async {
            assert!(Command::new("true").status().await.expect("status").success());
            assert!(wait(Command::new("true").spawn()).await.expect("wait").success());
        });
    });
    under(Refusal::of(libc::SYS_pidfd_open, eperm), |runtime| {
        runtime.block_on(async {
            assert!(wait(Command::new("true").spawn()).await.expect("wait").success());
            let blocking = forkless::Command::new("true").pidfd(false).spawn().expect("spawn");
            let error = Child::from_forkless(blocking).expect_err("no pidfd");
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("pidfd"), "{error}");
        });
    });
    under(Refusal::of(libc::SYS_epoll_ctl, eperm), |runtime| {
        runtime.block_on(async {
            assert_eq!(sleeper().spawn().expect_err("spawn").kind(), ErrorKind::PermissionDenied);
            assert_eq!(sleeper().output().await.expect_err("output").kind(), ErrorKind::PermissionDenied);
        });
    });
}
