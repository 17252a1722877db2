//! Wait sets: each child is returned once, whatever state it was inserted in, and nothing is leaked.

use crate::allocator;
use crate::elf::Programs;
use crate::foreign;
use crate::hosts::in_a_copy;
use crate::observe::{self, eventually, skip};
use crate::storms::{handle, start_timer};
use forkless::{Capture, Child, Command, Ended, Error, Stdio, Step, WaitSet};
use forkless_tests::filter::{Answer, Refusal, refuse};
use forkless_tests::state::State;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};
use with_libc::{is_readable, nested};

/// Long enough for anything that is not stuck.
const LONG: Duration = Duration::from_secs(60);

const MOMENT: Duration = Duration::from_millis(30);

const AWHILE: Duration = Duration::from_millis(400);

/// A child that runs until its input ends.
fn cat() -> Child {
    Command::new("/bin/cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("spawn")
}

/// A child that has ended and waits to be reaped.
fn zombie(command: &mut Command) -> Child {
    let child = command.spawn().expect("spawn");
    eventually("its end", || observe::state_of(child.id() as i32) == Some('Z'));
    child
}

/// A child whose launch fails without having been reported yet.
pub(crate) fn failing(command: &mut Command) -> Child {
    // A launch that finds that the child has already failed says so itself.
    std::iter::repeat_with(|| command.launch()).find_map(Result::ok).expect("there is no end of them")
}

fn next<T>(set: &mut WaitSet<T>) -> Ended<T> {
    set.wait_timeout(LONG).expect("wait").expect("an end")
}

/// The soft limit of descriptors, as high as it may be with none; gives what it was, or is then.
pub(crate) fn set_file_limit(limit: Option<u64>) -> u64 {
    // SAFETY: reads and sets a limit of this process.
    unsafe {
        let mut now: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut now);
        let was = now.rlim_cur;
        now.rlim_cur = limit.unwrap_or(now.rlim_max).min(now.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const now), 0);
        if limit.is_some() { was } else { now.rlim_cur }
    }
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("/proc/self/task").count()
}

scenario!(thousands_of_children_are_returned_once_each);
/// Many at a time, started in every way; each is returned with its value and its status.
pub fn thousands_of_children_are_returned_once_each(_: &[String]) {
    let programs = Programs::new();
    let paths: Vec<_> = (0..7).map(|code| programs.exits(code)).collect();
    let limit = set_file_limit(None) as usize;
    let total = observe::scaled(2000).min(limit.saturating_sub(100));
    assert!(Command::new(&paths[0]).status().expect("status").success());
    let before = State::now();
    let mut set = WaitSet::new().expect("a set");
    for n in 0..total {
        let mut command = Command::new(&paths[n % 7]);
        let child = match n % 4 {
            0 => command.spawn(),
            1 => command.launch(),
            2 => command.pidfd(false).spawn(),
            _ => command.pidfd(false).launch(),
        };
        set.insert(child.expect("a child"), n).expect("insert");
    }
    assert_eq!(set.len(), total);
    let mut told = vec![false; total];
    while let Some(ended) = set.wait().expect("wait") {
        assert_eq!(ended.status.expect("a status").code(), Some((ended.value % 7) as i32));
        let usage = ended.child.usage().expect("what it used");
        assert!(usage.wall_time > Duration::ZERO && usage.max_rss_kib > 0);
        assert!(!std::mem::replace(&mut told[ended.value], true), "child {} was told twice", ended.value);
    }
    assert!(told.iter().all(|&told| told) && set.is_empty());
    assert_eq!(threads(), 1, "no thread was made");
    drop(set);
    observe::assert_no_orphans();
    // No handler set, no descriptor left, no child.
    State::assert_unchanged(&before);
}

scenario!(children_in_every_state_are_returned);
/// Ended, not yet executed, failed, reaped by another, waited for already.
pub fn children_in_every_state_are_returned(_: &[String]) {
    let programs = Programs::new();
    let five = programs.exits(5);
    let mut set = WaitSet::new().expect("a set");
    assert!(set.wait().expect("no child").is_none() && set.try_wait().expect("no child").is_none());
    let code = |ended: &Ended<&str>| ended.status.as_ref().expect("a status").code();

    set.insert(zombie(&mut Command::new(&five)), "ended").expect("insert");
    assert_eq!(code(&next(&mut set)), Some(5));
    set.insert(zombie(Command::new(&five).pidfd(false)), "ended, without a pidfd").expect("insert");
    assert_eq!(code(&next(&mut set)), Some(5));

    let fifo = programs.fifo("hold");
    let mut held = Command::new(&five);
    set.insert(held.fd(Stdio::open(&fifo, libc::O_RDONLY, 0), 9).launch().expect("launch"), "held").expect("insert");
    assert!(set.wait_timeout(MOMENT).expect("wait").is_none());
    drop(OpenOptions::new().write(true).open(&fifo).expect("open"));
    assert_eq!(code(&next(&mut set)), Some(5));

    for pidfd in [true, false] {
        let missing = failing(Command::new(programs.path("missing")).pidfd(pidfd));
        set.insert(missing, "missing").expect("insert");
        let error = next(&mut set).status.expect_err("no program");
        assert_eq!((error.kind(), Error::of(&error).map(Error::step)), (ErrorKind::NotFound, Some(Step::Exec)));
        let mut known = failing(Command::new(programs.path("missing")).pidfd(pidfd));
        known.wait_exec().expect_err("no program");
        set.insert(known, "missing").expect("insert");
        assert_eq!(next(&mut set).status.expect_err("no program").kind(), ErrorKind::NotFound);

        let taken = Command::new(&five).pidfd(pidfd).spawn().expect("spawn");
        foreign::wait(taken.id() as i32, 0).expect("wait");
        set.insert(taken, "taken").expect("insert");
        let ended = next(&mut set);
        assert!(ended.child.usage().is_none());
        match &ended.status {
            Ok(status) => assert_eq!((status.code(), pidfd), (Some(5), true)),
            Err(error) => {
                assert_eq!(Error::of(error).and_then(Error::errno), Some(libc::ECHILD), "{error}");
                assert!(!pidfd || !observe::is_kernel_at_least(6, 15), "{error}");
            }
        }

        let mut waited = Command::new(&five).pidfd(pidfd).spawn().expect("spawn");
        waited.wait().expect("wait");
        set.insert(waited, "waited for").expect("insert");
        assert_eq!(code(&next(&mut set)), Some(5));
    }
    // Waited for while it is in there.
    let key = set.insert(cat(), "waited for inside").expect("insert");
    assert!(set.get(key).expect("the child").0.wait().expect("wait").success());
    assert_eq!(code(&next(&mut set)), Some(0));
    // Limits of all sizes.
    let key = set.insert(cat(), "limits").expect("insert");
    assert!(set.wait_timeout(Duration::ZERO).expect("wait").is_none());
    let started = Instant::now();
    assert!(set.wait_timeout(MOMENT).expect("wait").is_none());
    assert!(started.elapsed() >= MOMENT, "it came back too early");
    for limit in [Duration::MAX, Duration::from_secs(1 << 40)] {
        set.insert(zombie(&mut Command::new(&five)), "no limit").expect("insert");
        assert_eq!(set.wait_timeout(limit).expect("wait").expect("an end").value, "no limit");
    }
    drop(set.get(key).expect("the child").0.stdin.take());
    assert_eq!(next(&mut set).value, "limits");
    observe::assert_no_orphans();
}

scenario!(a_key_refers_to_one_child);
/// Removal, repeated insertion, reused slots.
pub fn a_key_refers_to_one_child(_: &[String]) {
    let programs = Programs::new();
    let mut set = WaitSet::new().expect("a set");
    let first = set.insert(cat(), 1).expect("insert");
    let second = set.insert(cat(), 2).expect("insert");
    assert_eq!(set.iter_mut().map(|(_, value)| *value).collect::<Vec<_>>(), [1, 2]);
    let (child, value) = set.remove(first).expect("the first");
    assert_eq!((value, set.len()), (1, 1));
    assert!(set.remove(first).is_none() && set.get(first).is_none(), "its key means nothing now");
    // The next child comes to its place.
    let third = set.insert(cat(), 3).expect("insert");
    assert_ne!(third, first);
    assert_eq!(third.to_bits() as u32, first.to_bits() as u32, "the place of the one that was taken out");
    assert!(set.get(first).is_none() && set.remove(first).is_none());
    assert_eq!(set.get(third).map(|(_, value)| *value), Some(3));
    // A removed child is not returned; inserted again, it is.
    let pid = child.id() as i32;
    let mut child = child;
    drop(child.stdin.take());
    eventually("its end", || observe::state_of(pid) == Some('Z'));
    assert!(!is_readable(set.as_fd(), Duration::ZERO), "it is none of the set's");
    assert!(set.wait_timeout(MOMENT).expect("wait").is_none());
    set.insert(child, 4).expect("insert");
    let ended = next(&mut set);
    assert_eq!((ended.value, ended.status.expect("a status").code()), (4, Some(0)));
    // A child that was returned and is inserted again is returned again.
    set.insert(ended.child, 5).expect("insert");
    assert_eq!(next(&mut set).value, 5);
    // Ended, asked for together with another, and removed before it is told: its place may be another's by then.
    let keys: Vec<_> = (10..12).map(|n| set.insert(zombie(&mut Command::new(programs.exits(0))), n)).collect();
    let told = next(&mut set).value;
    let other = keys.into_iter().flatten().find(|key| set.get(*key).is_some()).expect("the other");
    assert_eq!(set.remove(other).expect("the other").1 + told, 21);
    set.insert(cat(), 20).expect("insert");
    assert!(set.wait_timeout(MOMENT).expect("wait").is_none());
    for (child, _) in set.iter_mut() {
        child.kill().expect("kill");
    }
    let mut rest: Vec<_> = std::iter::from_fn(|| set.wait().expect("wait")).map(|ended| ended.value).collect();
    rest.sort_unstable();
    assert_eq!(rest, [2, 3, 20]);
    assert!(set.get(second).is_none());
    observe::assert_no_orphans();
}

scenario!(a_child_that_cannot_be_watched_comes_back);
/// If the kernel refuses calls that a set needs.
pub fn a_child_that_cannot_be_watched_comes_back(_: &[String]) {
    let programs = Programs::new();
    let mut set = WaitSet::new().expect("a set");
    let blind = || Command::new(programs.exits(5)).pidfd(false).spawn().expect("spawn");
    let given_back = |set: &mut WaitSet<i32>, child: Child, kind: ErrorKind, words: &str| {
        let not = set.insert(child, 7).expect_err("it cannot be watched");
        assert_eq!(not.error.kind(), kind, "{not}");
        assert!(not.to_string().contains(words), "{not}");
        let (mut child, value) = not.into_inner();
        assert_eq!((child.wait().expect("wait").code(), value, set.len()), (Some(5), 7, 0));
    };
    let whole = Command::new(programs.exits(5)).spawn().expect("spawn");
    let (first, second) = (blind(), blind());
    // As if the limit of watches were reached; one in there already can be changed.
    refuse(&[Refusal::of(libc::SYS_epoll_ctl, Answer::Errno(libc::ENOSPC)).with_value(1, libc::EPOLL_CTL_ADD as u64)])
        .expect("a filter");
    given_back(&mut set, whole, ErrorKind::StorageFull, "No space left");
    given_back(&mut set, first, ErrorKind::StorageFull, "No space left");
    refuse(&[Refusal::of(libc::SYS_pidfd_open, Answer::Errno(libc::EPERM))]).expect("a filter");
    given_back(&mut set, second, ErrorKind::PermissionDenied, "pidfd");
    // As an io::Error it is the same; the child is an orphan then.
    let error: std::io::Error = set.insert(blind(), 8).expect_err("refused").into();
    assert_eq!(Error::of(&error).map(|error| (error.step(), error.errno())), Some((Step::Wait, Some(libc::EPERM))));
    assert!(set.wait().expect("no child").is_none());
    observe::assert_no_orphans();
}

scenario!(a_child_comes_back_when_descriptors_are_used_up);
/// No descriptor left for the pidfd.
pub fn a_child_comes_back_when_descriptors_are_used_up(_: &[String]) {
    let mut set = WaitSet::new().expect("a set");
    let mut command = Command::new("/bin/cat");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).pidfd(false).spawn().expect("spawn");
    let input = child.stdin.take();
    let before = observe::open_fds();
    let free = (0..).find(|number| !before.contains(number)).expect("a free number");
    let was = set_file_limit(Some(free as u64));
    let not = set.insert(child, ()).expect_err("no descriptor");
    assert_eq!(Error::of(&not.error).and_then(Error::errno), Some(libc::EMFILE), "{not}");
    assert_eq!(WaitSet::<()>::new().expect_err("no descriptor").raw_os_error(), Some(libc::EMFILE));
    set_file_limit(Some(was));
    assert_eq!(observe::open_fds(), before);
    set.insert(not.into_inner().0, ()).expect("insert");
    drop(input);
    assert!(next(&mut set).status.expect("a status").success());
    observe::assert_no_orphans();
}

scenario!(a_dropped_set_leaks_nothing);
/// A set is dropped with running, ended and returned children.
pub fn a_dropped_set_leaks_nothing(_: &[String]) {
    let programs = Programs::new();
    let before = observe::open_fds();
    for _ in 0..20 {
        let mut set = WaitSet::new().expect("a set");
        set.insert(cat(), None).expect("insert");
        set.insert(zombie(&mut Command::new(programs.exits(0))), Some(OpenOptions::new())).expect("insert");
        set.insert(zombie(&mut Command::new(programs.exits(0))), None).expect("insert");
        set.insert(failing(&mut Command::new(programs.path("missing"))), None).expect("insert");
        set.insert(Command::new("/bin/sleep").arg("1000").kill_on_drop(true).spawn().expect("spawn"), None)
            .expect("insert");
        // The set knows of all that have ended; one was returned.
        next(&mut set);
        drop(set);
    }
    observe::assert_no_orphans();
    assert_eq!(observe::open_fds(), before);
}

scenario!(a_set_works_in_a_storm_of_signals);
/// Signals with handlers pour in.
pub fn a_set_works_in_a_storm_of_signals(_: &[String]) {
    let programs = Programs::new();
    handle(libc::SIGALRM);
    start_timer(libc::ITIMER_REAL, 300);
    let mut set = WaitSet::new().expect("a set");
    for round in 0..observe::scaled(40) {
        let started = Instant::now();
        let key = set.insert(cat(), usize::MAX).expect("insert");
        assert!(set.wait_timeout(MOMENT).expect("wait").is_none());
        assert!(started.elapsed() >= MOMENT, "a signal made it come back");
        for n in 0..8 {
            set.insert(Command::new(programs.exits(n)).launch().expect("launch"), n as usize).expect("insert");
        }
        let mut told: Vec<_> = (0..8).map(|_| next(&mut set)).map(|ended| (ended.status.ok(), ended.value)).collect();
        told.sort_by_key(|(_, value)| *value);
        for (n, (status, value)) in told.into_iter().enumerate() {
            assert_eq!((status.and_then(|status| status.code()), value), (Some(n as i32), n), "round {round}");
        }
        drop(set.get(key).expect("the cat").0.stdin.take());
        assert_eq!(set.wait().expect("wait").expect("an end").value, usize::MAX);
    }
    start_timer(libc::ITIMER_REAL, 0);
    observe::assert_no_orphans();
}

scenario!(a_traced_child_is_returned_after_its_tracer_detaches);
/// A child that another process traces is readable when it has ended, and ours when its tracer has let it go.
pub fn a_traced_child_is_returned_after_its_tracer_detaches(_: &[String]) {
    let mut child = cat();
    let input = child.stdin.take();
    let Some((tracer, go)) = trace(child.id() as i32) else { return };
    drop(input);
    eventually("its end", || observe::state_of(child.id() as i32) == Some('Z'));
    let sleeps = |wait: &mut dyn FnMut() -> bool| {
        let (started, busy) = (Instant::now(), cpu_time());
        assert!(wait(), "it is its tracer's");
        assert!(started.elapsed() >= AWHILE);
        assert!(cpu_time() - busy < AWHILE / 2, "it did not sleep while it waited");
    };
    sleeps(&mut || child.wait_timeout(AWHILE).expect("wait").is_none());
    let mut set = WaitSet::new().expect("a set");
    set.insert(child, ()).expect("insert");
    assert!(set.try_wait().expect("wait").is_none(), "it is its tracer's");
    sleeps(&mut || set.wait_timeout(AWHILE).expect("wait").is_none());
    drop(go);
    assert!(next(&mut set).status.expect("a status").success());
    foreign::wait(tracer, 0).expect("wait");
    observe::assert_no_orphans();
}

scenario!(a_capture_sleeps_while_a_tracer_has_its_child);
/// The same for a child whose output is captured.
pub fn a_capture_sleeps_while_a_tracer_has_its_child(_: &[String]) {
    let (input, writer) = std::io::pipe().expect("a pipe");
    let (said, says) = std::io::pipe().expect("a pipe");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo $$ >&2; exec cat"]).stdin(input).stderr(says);
    let capture = std::thread::spawn(move || {
        // With a limit it watches the child's end.
        let captured = command.capture(&Capture::new().timeout(LONG)).expect("capture");
        (captured.status.success(), cpu_time())
    });
    let mut pid = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(said), &mut pid).expect("read");
    let pid = pid.trim().parse().expect("a number");
    let Some((tracer, go)) = trace(pid) else { return };
    drop(writer);
    eventually("its end", || observe::state_of(pid) == Some('Z'));
    std::thread::sleep(AWHILE);
    drop(go);
    let (success, busy) = capture.join().expect("no panic");
    assert!(success && busy < AWHILE / 2, "it did not sleep while it waited: {busy:?}");
    foreign::wait(tracer, 0).expect("wait");
    observe::assert_no_orphans();
}

/// Starts a process that traces the child until the pipe is closed.
fn trace(pid: i32) -> Option<(i32, std::io::PipeWriter)> {
    let (mut read, write) = std::io::pipe().expect("a pipe");
    let (go_read, go) = std::io::pipe().expect("a pipe");
    // SAFETY: the copy makes system calls only, and leaves without the original's exit.
    let tracer = unsafe { libc::fork() };
    if tracer == 0 {
        // SAFETY: traces a process by number; the kernel writes a byte; closes descriptors of this copy; ends the copy.
        unsafe {
            let mut byte = (libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) == 0) as u8;
            libc::write(write.as_raw_fd(), (&raw const byte).cast(), 1);
            let kept = go_read.as_raw_fd();
            libc::syscall(libc::SYS_close_range, 3, kept - 1, 0);
            libc::syscall(libc::SYS_close_range, kept + 1, i32::MAX, 0);
            libc::read(kept, (&raw mut byte).cast(), 1);
            libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL);
            libc::_exit(0);
        }
    }
    drop((write, go_read));
    let mut seized = [0];
    std::io::Read::read_exact(&mut read, &mut seized).expect("read");
    if seized == [0] {
        skip("a traced child", "ptrace is refused here");
        drop(go);
        foreign::wait(tracer, 0).expect("wait");
        return None;
    }
    Some((tracer, go))
}

/// The CPU time of this thread, which a busy loop would use.
fn cpu_time() -> Duration {
    // SAFETY: all zeroes is a valid timespec; the kernel writes one.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        assert_eq!(libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time), 0);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

scenario!(a_set_is_readable_when_a_child_has_ended);
/// A set in an external event loop.
pub fn a_set_is_readable_when_a_child_has_ended(_: &[String]) {
    let mut set = WaitSet::new().expect("a set");
    let outer = nested(set.as_fd());
    let key = set.insert(cat(), ()).expect("insert");
    set.insert(cat(), ()).expect("insert");
    for fd in [set.as_fd(), outer.as_fd()] {
        assert!(!is_readable(fd, Duration::ZERO));
    }
    drop(set.get(key).expect("the cat").0.stdin.take());
    for fd in [set.as_fd(), outer.as_fd()] {
        assert!(is_readable(fd, LONG));
    }
    assert!(set.try_wait().expect("wait").is_some() && set.try_wait().expect("wait").is_none());
    for fd in [set.as_fd(), outer.as_fd()] {
        assert!(!is_readable(fd, Duration::ZERO));
    }
    for (child, ()) in set.iter_mut() {
        drop(child.stdin.take());
    }
    assert!(is_readable(outer.as_fd(), LONG));
    assert!(set.try_wait().expect("wait").is_some());
    observe::assert_no_orphans();
}

/// poll and epoll of libc.
mod with_libc {
    use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
    use std::time::Duration;

    /// Is it readable within this time?
    pub(super) fn is_readable(fd: BorrowedFd<'_>, limit: Duration) -> bool {
        let mut fds = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd.
        unsafe { libc::poll(&raw mut fds, 1, limit.as_millis() as i32) == 1 }
    }

    /// An epoll instance that watches this.
    pub(super) fn nested(fd: BorrowedFd<'_>) -> OwnedFd {
        // SAFETY: a new descriptor, and one event that lives for the call.
        unsafe {
            let outer = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            let added = libc::epoll_ctl(outer.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event);
            assert_eq!(added, 0);
            outer
        }
    }
}

scenario!(a_forked_process_can_drop_a_set);
/// A forked process drops objects of the original process.
pub fn a_forked_process_can_drop_a_set(_: &[String]) {
    let mut set = WaitSet::new().expect("a set");
    for n in 0..20 {
        let mut child = cat();
        child.kill_on_drop(n % 2 == 0);
        set.insert(child, n).expect("insert");
    }
    let mut set = Some(set);
    in_a_copy(|| {
        drop(set.take());
        eventually("no orphans", || forkless::reap_orphans() == 0);
    });
    let set = set.as_mut().expect("the original's");
    assert!(set.wait_timeout(MOMENT).expect("wait").is_none(), "a child of the original has ended");
    for (child, _) in set.iter_mut() {
        drop(child.stdin.take());
    }
    while let Some(ended) = set.wait().expect("wait") {
        assert!(ended.status.expect("a status").success(), "child {} was killed by the copy", ended.value);
    }
    observe::assert_no_orphans();
}

scenario!(a_waiting_child_takes_little_memory);
/// The heap memory of a waiting child.
pub fn a_waiting_child_takes_little_memory(_: &[String]) {
    const MOST: i64 = 512;
    let prepared = Command::new("/bin/sleep").arg("1000").kill_on_drop(true).prepare().expect("prepare");
    let total = 500.min(set_file_limit(None) as usize - 50);
    drop(prepared.spawn().expect("spawn"));
    let before = allocator::held();
    let mut set = WaitSet::new().expect("a set");
    for _ in 0..total {
        set.insert(prepared.spawn().expect("spawn"), 0u64).expect("insert");
    }
    let each = (allocator::held() - before) / total as i64;
    eprintln!("{each} bytes for each waiting child");
    assert!(each > 0 && each <= MOST, "{each} bytes for each waiting child");
    // The measure measures: a value of that size is seen.
    let mut large = WaitSet::new().expect("a set");
    let before = allocator::held();
    large.insert(prepared.spawn().expect("spawn"), [0u8; MOST as usize]).expect("insert");
    assert!(allocator::held() - before > MOST);
    drop((set, large));
    observe::assert_no_orphans();
}
