//! Writes of the library to pipes without a reader, in a process that does not ignore SIGPIPE: it never gets the
//! signal.

use forkless::{Capture, Command, Pipeline};
use forkless_tests::filter::{Answer, Refusal, refuse_in_all_threads};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::io::AsyncWriteExt;

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_one(_: i32) {
    HANDLED.fetch_add(1, Relaxed);
}

fn on_sigpipe(handler: libc::sighandler_t) {
    // SAFETY: the default action, or a handler that only counts.
    unsafe { libc::signal(libc::SIGPIPE, handler) };
}

fn sigpipe() -> libc::sigset_t {
    // SAFETY: a set of signals of our own.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGPIPE);
        set
    }
}

fn is_pending() -> bool {
    // SAFETY: a set of signals of our own.
    unsafe {
        let mut set = std::mem::zeroed();
        assert_eq!(libc::sigpending(&mut set), 0);
        libc::sigismember(&set, libc::SIGPIPE) == 1
    }
}

fn change_mask(how: i32) {
    // SAFETY: the mask of this thread.
    assert_eq!(unsafe { libc::pthread_sigmask(how, &sigpipe(), std::ptr::null_mut()) }, 0);
}

scenario!(a_program_that_ends_early_raises_no_sigpipe[]["ENOSYS"]["EOPNOTSUPP"]["EPERM"]);
/// Input for programs that end early. The argument: how `pwritev2`, where there is a flag against the signal, is refused.
/// With SIGPIPE at its default, handled, and blocked.
pub fn a_program_that_ends_early_raises_no_sigpipe(args: &[String]) {
    let refusal = match args.first().map(String::as_str) {
        None => None,
        Some("EOPNOTSUPP") => Some(libc::EOPNOTSUPP),
        Some(other) => Some(if other == "ENOSYS" { libc::ENOSYS } else { libc::EPERM }),
    };
    if let Some(errno) = refusal {
        refuse_in_all_threads(&[Refusal::of(libc::SYS_pwritev2, Answer::Errno(errno))]).expect("a filter");
    }
    for handler in [libc::SIG_DFL, count_one as *const () as libc::sighandler_t] {
        on_sigpipe(handler);
        feed();
        feed_awaited();
        // Blocked by the caller: nothing is left behind.
        change_mask(libc::SIG_BLOCK);
        feed();
        feed_awaited();
        assert!(!is_pending(), "a signal that a write of ours has left behind");
        change_mask(libc::SIG_UNBLOCK);
    }
    // One that came before is the caller's.
    change_mask(libc::SIG_BLOCK);
    // SAFETY: to this thread, which blocks it.
    unsafe { libc::raise(libc::SIGPIPE) };
    feed();
    assert!(is_pending(), "the caller's signal has gone");
    assert_eq!(HANDLED.load(Relaxed), 0);
    change_mask(libc::SIG_UNBLOCK);
    assert_eq!(HANDLED.load(Relaxed), 1);
    control();
}

/// Negative control: a plain write raises it.
fn control() {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let error = std::io::Write::write(&mut writer, b"x").expect_err("nobody reads");
    assert_eq!((error.kind(), HANDLED.load(Relaxed)), (std::io::ErrorKind::BrokenPipe, 2));
}

fn feed() {
    let how = Capture::new().input(vec![b'x'; 1 << 20]);
    for _ in 0..5 {
        let captured = Command::new("true").capture(&how).expect("a capture");
        assert!(captured.status.success() && captured.input_left > 0);
    }
    let mut pipeline = Pipeline::new();
    for program in ["true", "cat"] {
        pipeline.command(&mut Command::new(program)).expect("a command");
    }
    let (captured, _) = pipeline.capture(&how).expect("a capture");
    assert!(captured.input_left > 0);
}

fn feed_awaited() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    runtime.block_on(async {
        let mut child = forkless::tokio::Command::new("true").stdin(forkless::Stdio::piped()).spawn().expect("spawn");
        let mut input = child.stdin.take().expect("a pipe");
        assert!(child.wait().await.expect("wait").success());
        for vectored in [false, true] {
            let text = vec![b'x'; 1 << 20];
            let answer = match vectored {
                true => input.write_vectored(&[std::io::IoSlice::new(&text)]).await.map(drop),
                false => input.write_all(&text).await,
            };
            assert_eq!(answer.expect_err("nobody reads").kind(), std::io::ErrorKind::BrokenPipe);
        }
    });
}
