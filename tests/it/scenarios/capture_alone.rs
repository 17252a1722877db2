//! Captures in unusual processes: filters, few descriptors, signals, other reapers.

use crate::capture::{LONG, in_every_way, leaving_nothing, pattern, sh};
use crate::observe::{self, is_kernel_at_least, scaled};
use forkless::{
    Capture, Command, Error, Pipeline, Route, Stdio, Step,
    internal::{DescriptorTable, Passing},
};
use forkless_core::sys::{self, uapi};
use forkless_tests::filter::{Answer, Refusal, refuse_in_all_threads};
use forkless_tests::process::is_hidden_from_children;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

scenario!(memfds_work_if_pidfd_getfd_is_refused[]["late"]);
/// Where `pidfd_getfd` is refused, known before (`late` is not given) or not: memfds are never opened again.
pub fn memfds_work_if_pidfd_getfd_is_refused(args: &[String]) {
    if args.first().is_some_and(|arg| arg == "late") {
        in_every_way();
    }
    refuse_in_all_threads(&[Refusal::of(libc::SYS_pidfd_getfd, Answer::Errno(libc::EPERM))]).expect("a filter");
    leaving_nothing(in_every_way);
    let mut child = Command::new("true").stdout(forkless::Stdio::piped()).spawn().expect("spawn");
    let Route::Clone { table, .. } = child.route() else { panic!("{}", child.route()) };
    let is_felt = match table {
        DescriptorTable::Private(Passing::Proc) => !is_hidden_from_children(),
        DescriptorTable::PrivateBelow(_) => is_hidden_from_children(),
        _ => false,
    };
    assert!(is_felt, "the filter is not felt: {table:?}");
    child.wait().expect("wait");
    // Opened again it would have its own file offset, and the length of the output would be unknown.
    let how = Capture::new().memory_file(true);
    let text =
        leaving_nothing(|| sh("echo one; echo two >&2; echo three").capture(&how.merged(true))).expect("a capture");
    assert_eq!(&text.stdout[..], b"one\ntwo\nthree\n");
}

scenario!(pipes_that_the_child_opens_again_keep_their_direction);
/// Where `pidfd_getfd` is refused, the child opens its end of each pipe again, in that end's direction.
pub fn pipes_that_the_child_opens_again_keep_their_direction(_: &[String]) {
    if is_hidden_from_children() {
        return observe::skip("pipes that are opened again", "children cannot see this process's descriptors");
    }
    refuse_in_all_threads(&[Refusal::of(libc::SYS_pidfd_getfd, Answer::Errno(libc::EPERM))]).expect("a filter");
    let flags = "for n in 0 1 2; do grep flags /proc/self/fdinfo/$n; done; cat";
    for _ in 0..2 {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", flags]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("spawn");
        child.stdin.take().expect("a pipe").write_all(b"through").expect("write");
        let output = child.wait_with_output().expect("output");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let modes: Vec<_> =
            text.lines().filter_map(|line| line.strip_prefix("flags:")?.trim().bytes().last()).collect();
        assert_eq!((&modes[..], text.lines().last()), (&b"011"[..], Some("through")), "{text}");
    }
}

fn set_limit(resource: u32, number: u64) {
    let [_, most] = sys::getrlimit(resource).expect("a limit");
    sys::setrlimit(resource, &[number.min(most), most]).expect("a limit");
}

scenario!(captures_work_with_few_descriptors);
/// With each number of free descriptors it works, or reports that there are too few, and leaks nothing.
pub fn captures_work_with_few_descriptors(_: &[String]) {
    in_every_way();
    let base = Capture::new().input(pattern(100)).timeout(LONG);
    let mut pipeline = Pipeline::new();
    for _ in 0..3 {
        pipeline.command(&mut Command::new("cat")).expect("a command");
    }
    let open = observe::open_fds();
    assert_eq!(open, [0, 1, 2]);
    let (mut worked, mut failed) = (0, 0);
    // One is used to check for leaks.
    for number in 4..24 {
        for kind in 0..5 {
            let how = base.clone().merged(kind == 1).memory_file(kind == 2);
            let how = if kind == 3 { Capture::new() } else { how };
            set_limit(uapi::RLIMIT_NOFILE, number);
            let answer = leaving_nothing(|| match kind {
                4 => pipeline.capture(&how).map(|(captured, _)| captured),
                _ => Command::new("/bin/cat").capture(&how),
            });
            set_limit(uapi::RLIMIT_NOFILE, 1024);
            match answer {
                Ok(captured) => {
                    worked += 1;
                    // A program without room for its libraries fails by itself.
                    assert!(!captured.status.success() || captured.stdout[..] == pattern(100)[..] || kind == 3);
                }
                Err(error) => {
                    failed += 1;
                    let detail =
                        Error::of(&error).unwrap_or_else(|| panic!("{number} descriptors, kind {kind}: {error}"));
                    let known = matches!(detail.step(), Step::Pipe | Step::Clone | Step::PassFd | Step::Exec);
                    assert!(known, "{number} descriptors, kind {kind}: {error}");
                }
            }
        }
    }
    assert!(worked > 20 && failed > 20, "{worked} worked, {failed} failed");
}

scenario!(captures_work_with_a_small_file_size_limit);
/// The caller may not make long files: that is no reason to end it.
pub fn captures_work_with_a_small_file_size_limit(_: &[String]) {
    set_limit(uapi::RLIMIT_FSIZE, 8192);
    let how = Capture::new().memory_file(true);
    let got = leaving_nothing(|| sh("echo x").capture(&how)).expect("a capture");
    assert_eq!(&got.stdout[..], b"x\n");
    let got = leaving_nothing(|| sh("trap '' XFSZ; head -c 100000 /dev/zero").capture(&how)).expect("a capture");
    assert_eq!((got.stdout.len(), got.status.success()), (8192, false));
}

static FIRED: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: i32) {
    FIRED.fetch_add(1, Ordering::Relaxed);
}

scenario!(captures_survive_a_storm_of_signals);
/// A signal each 100 microseconds, whose handler lets no call be restarted.
pub fn captures_survive_a_storm_of_signals(_: &[String]) {
    // SAFETY: a handler that only counts; a timer.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()), 0);
        let time = libc::timeval { tv_sec: 0, tv_usec: 100 };
        let timer = libc::itimerval { it_interval: time, it_value: time };
        assert_eq!(libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()), 0);
    }
    for _ in 0..scaled(10) {
        leaving_nothing(in_every_way);
    }
    let how = Capture::new().linger(Duration::from_millis(20)).timeout(LONG);
    let held = leaving_nothing(|| sh("sleep 20 & head -c 60000 /dev/zero").capture(&how)).expect("a capture");
    assert_eq!((held.stdout.len(), held.held_open), (60_000, true));
    let how = Capture::new().timeout(Duration::from_millis(50)).terminate(15, Duration::from_millis(50));
    let deaf = leaving_nothing(|| sh("trap '' TERM; while :; do sleep 0.01; done").capture(&how)).expect("a capture");
    assert!(deaf.timed_out);
    crate::pipeline::ten_stages();
    assert!(FIRED.load(Ordering::Relaxed) > 100);
}

scenario!(sigchld_ignored);
/// SIGCHLD ignored: a pidfd keeps the status.
pub fn sigchld_ignored(_: &[String]) {
    if !is_kernel_at_least(6, 15) {
        return observe::skip("captures while SIGCHLD is ignored", "before Linux 6.15 statuses are lost");
    }
    // SAFETY: an action of this process.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    leaving_nothing(in_every_way);
    leaving_nothing(crate::pipeline::ten_stages);
}

scenario!(captures_report_a_status_taken_by_another_reaper);
/// A thread that reaps whatever it finds.
pub fn captures_report_a_status_taken_by_another_reaper(_: &[String]) {
    let stop = AtomicBool::new(false);
    let taken = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: reaps; nobody here counts on what it takes.
                if unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let lost = |error: std::io::Error| {
            let detail = Error::of(&error).map(|error| (error.step(), error.errno()));
            assert_eq!(detail, Some((Step::Wait, Some(libc::ECHILD))), "{error}");
        };
        let mut rounds = 0;
        // On a slow machine the first few may all be faster than the other reaper.
        while rounds < scaled(100) || taken.load(Ordering::Relaxed) == 0 {
            rounds += 1;
            match sh("echo x; exit 7").capture(&Capture::new().timeout(LONG)) {
                Ok(got) => assert_eq!((got.status.code(), &got.stdout[..]), (Some(7), &b"x\n"[..])),
                Err(error) if !is_kernel_at_least(6, 15) => lost(error),
                Err(error) => panic!("{error}"),
            }
            // Without a pidfd the status may be gone; it ends nevertheless.
            match sh("echo x; exit 7").pidfd(false).capture(&Capture::new().timeout(LONG)) {
                Ok(got) => assert_eq!(&got.stdout[..], b"x\n"),
                Err(error) => {
                    assert_eq!(error.kind(), std::io::Error::from_raw_os_error(libc::ECHILD).kind(), "{error}")
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(observe::is_childless());
}
