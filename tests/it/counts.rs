//! Counts the system calls of a launch by tracing a program that launches once between two marks. The counts do not
//! depend on timing.

testing::usual_surroundings!();

use forkless_tests::trace::{Call, Options, Trace, Who, trace_from_exec};
use std::io;
use std::process::Command;
use std::time::Instant;

/// Traces `scenario traced WHAT`. None where tracing is refused.
fn trace(what: &str) -> Option<Trace> {
    trace_with(what, Options::default())
}

fn trace_with(what: &str, options: Options) -> Option<Trace> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scenario"));
    command.args(["traced::run", what]);
    trace_from_exec(what, command, options)
}

/// The check whether the caller is traced, which is made at most every 100 ms.
const LOOK: [i64; 3] = [libc::SYS_openat, libc::SYS_read, libc::SYS_close];

fn is_look_for_tracer(calls: &[Call]) -> bool {
    calls.iter().map(|call| call.number).eq(LOOK)
}

/// The calls without those that depend on timing or on the build: the check whether a child is stopped, after 10 ms;
/// and std's check in debug builds that a descriptor is open before it is closed.
fn that_count(calls: &[Call]) -> Vec<Call> {
    let is_look = |call: &Call| call.number == libc::SYS_waitid && call.args[3] & libc::WNOWAIT as u64 != 0;
    let is_check = |call: &Call| call.number == libc::SYS_fcntl && call.args[1] == libc::F_GETFD as u64;
    calls.iter().copied().filter(|call| !is_look(call) && !is_check(call)).collect()
}

/// Their names. A repeated wait on the futex word, because the traced child is slow, counts once; the check for a
/// tracer does not count.
fn names(calls: &[Call]) -> Vec<String> {
    let calls = that_count(calls);
    let mut names: Vec<String> = Vec::new();
    let mut rest = calls.as_slice();
    while let Some((call, others)) = rest.split_first() {
        if rest.get(..LOOK.len()).is_some_and(is_look_for_tracer) {
            rest = &rest[LOOK.len()..];
            continue;
        }
        let name = name(call.number);
        if name != "futex" || names.last().is_none_or(|last| last != "futex") {
            names.push(name);
        }
        rest = others;
    }
    names
}

fn name(number: i64) -> String {
    macro_rules! known { ($($name:ident $number:ident)*) => { match number {
        $(libc::$number => stringify!($name).to_owned(),)*
        other => format!("call {other}"),
    } } }
    known! {
        clone SYS_clone clone3 SYS_clone3 close SYS_close close_range SYS_close_range dup3 SYS_dup3 execve SYS_execve
        fcntl SYS_fcntl futex SYS_futex chdir SYS_chdir getpid SYS_getpid getppid SYS_getppid brk SYS_brk mmap SYS_mmap
        munmap SYS_munmap openat SYS_openat pidfd_getfd SYS_pidfd_getfd pidfd_open SYS_pidfd_open pipe2 SYS_pipe2
        rt_sigaction SYS_rt_sigaction rt_sigprocmask SYS_rt_sigprocmask wait4 SYS_wait4 waitid SYS_waitid
        gettid SYS_gettid statx SYS_statx getresuid SYS_getresuid getresgid SYS_getresgid getcwd SYS_getcwd read SYS_read
        ioctl SYS_ioctl ppoll SYS_ppoll kcmp SYS_kcmp epoll_ctl SYS_epoll_ctl epoll_pwait SYS_epoll_pwait
    }
}

/// The calls of a child without settings.
const PLAIN_CHILD: [&str; 3] = ["close_range", "rt_sigaction", "execve"];

/// The calls without the wait for the exec: there is none if the child has already left, and more if the check for a
/// stopped child is made.
fn without_waits<T: AsRef<str> + PartialEq>(mut calls: Vec<T>) -> Vec<T> {
    calls.retain(|call| call.as_ref() != "futex");
    calls.dedup_by(|call, before| call == before && call.as_ref() == "waitid");
    calls
}

fn expect(what: &str, parent: &[&str], child: &[&str]) {
    let Some(trace) = trace(what) else { return };
    assert_eq!(
        without_waits(names(&trace.of(Who::Parent))),
        without_waits(parent.to_vec()),
        "system calls of the parent: {what}"
    );
    assert_eq!(names(&trace.of(Who::Child)), child, "system calls of the child: {what}");
}

#[test]
fn status_takes_three_calls_in_the_parent_and_three_in_the_child() {
    expect("status", &["rt_sigaction", "clone3", "wait4"], &PLAIN_CHILD);
    expect("prepared-status", &["rt_sigaction", "clone3", "wait4"], &PLAIN_CHILD);
}

/// The check for a tracer is made at most every 100 ms, not for each launch.
#[test]
fn a_hundred_launches_check_for_a_tracer_once_per_100_ms() {
    let begun = Instant::now();
    let Some(trace) = trace("hundred") else { return };
    let most = begun.elapsed().as_millis() / 100 + 1;
    let looks = that_count(&trace.of(Who::Parent)).windows(LOOK.len()).filter(|calls| is_look_for_tracer(calls)).count()
        as u128;
    assert!(looks <= most, "{looks} looks where {most} are due");
    assert_eq!(names(&trace.of(Who::Parent)), ["rt_sigaction", "clone3", "wait4"].repeat(100));
}

#[test]
fn spawn_adds_one_wait_for_the_exec() {
    expect("spawn-without-pidfd", &["clone3", "futex", "wait4"], &PLAIN_CHILD);
    expect("spawn", &["clone3", "futex", "waitid", "close"], &PLAIN_CHILD);
}

/// The reactor's own sleep is not counted: it may be woken twice, because the child's tracer is notified first.
#[test]
fn an_awaited_child_is_watched_and_not_polled() {
    let Some(trace) = trace("awaited-status") else { return };
    let mut parent = names(&trace.of(Who::Parent));
    parent.retain(|call| call != "epoll_pwait" && !call.starts_with("call "));
    assert_eq!(without_waits(parent), ["clone3", "epoll_ctl", "waitid", "epoll_ctl", "close"]);
    assert_eq!(names(&trace.of(Who::Child)), PLAIN_CHILD);
}

/// Events are read 64 at a time. The close is that of the dropped handle.
#[test]
fn a_wait_set_takes_two_calls_for_each_child() {
    let Some(trace) = trace("set") else { return };
    let ended = |count: usize| ["waitid", "close"].repeat(count);
    let expected = [vec!["epoll_pwait"], ended(64), vec!["epoll_pwait"], ended(36)].concat();
    assert_eq!(names(&trace.of(Who::Parent)), expected);
}

/// A debugger must not see the child as a thread of the host: it would lose the host when that thread executes a
/// program.
#[test]
fn a_traced_caller_launches_by_vfork() {
    for what in ["status", "spawn-pipes"] {
        let Some(trace) = trace(what) else { return };
        let events: Vec<i32> = trace.children.iter().map(|made| made.event).collect();
        assert_eq!(events, [libc::PTRACE_EVENT_VFORK], "{what}");
    }
}

/// The parent's calls after it has cloned a child that changes its user, with this filter.
fn after_change_of_ids(refusals: &str) -> Option<Vec<String>> {
    // SAFETY: reads a number.
    if unsafe { libc::geteuid() } != 0 {
        let _ = io::Write::write_all(
            &mut io::stderr(),
            b"SKIPPED: system calls of a change of ids because it needs root\n",
        );
        return None;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_case"));
    command.args(["--traced", "uid = 7", refusals]);
    let names = names(&trace_from_exec("uid = 7", command, Options::default())?.of(Who::Parent));
    let clone = names.iter().position(|name| name == "clone3").expect("a child");
    Some(names[clone..].to_vec())
}

/// The kernel clears the futex word shortly before the child releases the memory.
#[test]
fn a_change_of_ids_waits_until_the_child_has_given_up_the_memory() {
    let Some(names) = after_change_of_ids("") else { return };
    assert!(names.iter().any(|name| name == "kcmp"), "{names:?}");
}

/// The same for a zygote's helper, whose memory such a child shares: only then may it be dumpable again.
#[test]
fn a_zygotes_helper_waits_until_the_child_has_given_up_the_memory() {
    // SAFETY: reads a number.
    if unsafe { libc::geteuid() } != 0 {
        let line = b"SKIPPED: system calls of a zygote's change of ids because it needs root\n";
        let _ = io::Write::write_all(&mut io::stderr(), line);
        return;
    }
    let options = Options { has_helper: true, ..Options::default() };
    let Some(trace) = trace_with("zygote-uid", options) else { return };
    let calls = trace.of(Who::Helper);
    // The caller does not wait for the end of this, so the marks may cut the first launch and the last one. Every other
    // has its clone and its prctl.
    let clones: Vec<usize> = (0..calls.len()).filter(|&at| calls[at].number == libc::SYS_clone3).collect();
    let mut whole = 0;
    for (at, &clone) in clones.iter().enumerate() {
        let launch = &calls[clone..clones.get(at + 1).map_or(calls.len(), |&next| next)];
        let is_open = |call: &Call| call.number == libc::SYS_prctl && call.args[0] == libc::PR_SET_DUMPABLE as u64;
        let Some(open) = launch.iter().position(is_open) else { continue };
        assert!(launch[..open].iter().any(|call| call.number == libc::SYS_kcmp), "{:?}", names(launch));
        whole += 1;
    }
    assert!(whole > 0, "no helper that is dumpable again: {:?}", names(&calls));
}

/// Without kcmp the parent reads `/proc`.
#[test]
fn a_change_of_ids_waits_without_kcmp_too() {
    let Some(names) = after_change_of_ids("kcmp EPERM") else { return };
    let refused = names.iter().rposition(|name| name == "kcmp").expect("kcmp");
    assert!(names[refused..].iter().any(|name| name == "openat"), "{names:?}");
}

#[test]
fn three_pipes_take_two_calls_each_in_the_child() {
    let pipe = ["pidfd_getfd", "dup3"];
    let child = [&["close_range", "pidfd_open", "getppid"][..], &pipe, &pipe, &pipe, &PLAIN_CHILD[1..]].concat();
    let parent = [
        &["pipe2"; 3][..],
        &["getpid", "gettid", "clone3", "futex"],
        // The child's three ends, then the parent's end of its input; the outputs and the pidfd are closed with the
        // handle.
        &["close"; 4],
        &["waitid"],
        &["close"; 3],
    ];
    expect("spawn-pipes", &parent.concat(), &child);
}

/// What a timeout and limits of size add to a launch whose output is read: one call for each pipe, and the polls. Each
/// poll but the last is followed by a read.
#[test]
fn a_capture_with_limits_adds_one_call_for_each_pipe_to_a_bare_read() {
    let (Some(bare), Some(limited)) = (trace("spawn-read-wait"), trace("capture")) else { return };
    let calls = |trace: &Trace| {
        let mut calls = without_waits(names(&trace.of(Who::Parent)));
        let polls = calls.iter().filter(|call| *call == "ppoll").count();
        calls.retain(|call| call != "ppoll");
        calls.sort_unstable();
        (calls, polls)
    };
    let ((bare, none), (limited, polls)) = (calls(&bare), calls(&limited));
    let mut expected = bare;
    expected.extend(["ioctl".to_owned(), "ioctl".to_owned()]);
    expected.sort_unstable();
    assert_eq!(limited, expected);
    assert!(none == 0 && (1..=3).contains(&polls), "{none} and {polls} polls");
    assert_eq!(limited.iter().filter(|call| *call == "read").count(), 2, "{limited:?}");
}

/// The shell's file and the root, the ids, the signal mask, and the working directory.
#[test]
fn a_line_is_classified_with_six_calls() {
    let here = std::env::current_dir().expect("a working directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_scenario"));
    command.args(["traced::run", "route"]).env("PWD", here);
    let Some(trace) = trace_from_exec("route", command, Options::default()) else { return };
    let calls = names(&trace.of(Who::Parent));
    if forkless::shell("uname -a").route() == forkless::ShellRoute::Direct {
        assert_eq!(calls, ["statx", "statx", "getresuid", "getresgid", "rt_sigprocmask", "getcwd"]);
    } else {
        let _ = io::Write::write_all(&mut io::stderr(), b"SKIPPED: calls of a line because the shell is not known\n");
    }
}

/// Negative control: one more step is one more call.
#[test]
fn a_working_directory_takes_one_more_call() {
    let child = ["close_range", "chdir", "rt_sigaction", "execve"];
    expect("status-chdir", &["rt_sigaction", "clone3", "wait4"], &child);
}

/// A process that launches nothing else clones no second child, to test the kernel's features.
#[test]
fn the_only_launch_of_a_process_makes_one_child() {
    let Some(only) = trace("only-status") else { return };
    assert_eq!(only.children.len(), 1, "{:?}", only.children);
    assert_eq!(names(&only.of(Who::Child)), PLAIN_CHILD);
    // Negative control: the first launch of a process that may launch more.
    let Some(first) = trace("first-status") else { return };
    assert_eq!(first.children.len(), 2, "{:?}", first.children);
}

/// Each setting takes the listed number of calls, and the others do not change.
#[test]
fn a_simple_setting_takes_one_call() {
    let is_root = forkless_tests::process::is_root();
    let settings = [
        ("", 0, false),
        ("umask = 0o27", 1, false),
        ("nice = 3", 1, false),
        ("rlimit = { core = [0, 0] }", 1, false),
        ("rlimit = { core = [0, 0], nofile = [20, 20] }", 2, false),
        ("scheduler = ['Batch', 0]", 1, false),
        ("affinity = [0]", 1, false),
        ("io_priority = ['Idle', 0]", 1, false),
        ("timer_slack = 1000", 1, false),
        ("personality = 0x40000", 1, false),
        ("no_new_privs = true", 1, false),
        ("parent_death_signal = 'SIGTERM'", 2, false),
        ("oom_score_adj = 100", 3, false),
        ("gid = 7", 1, true),
        ("groups = [7, 8]", 1, true),
        // If root sets a uid, the child's supplementary groups are dropped too.
        ("uid = 7", 2, true),
        ("uid = 7\ngid = 7\ngroups = [7, 8]", 3, true),
        ("chroot = '/'", 2, true),
        ("inheritable = []", 1, true),
        ("securebits = 1", 1, true),
    ];
    for (setting, calls, needs_root) in settings {
        if needs_root && !is_root {
            let text = format!("SKIPPED: system calls of {setting:?} because it needs root\n");
            let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
            continue;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_case"));
        command.args(["--traced", setting]);
        let Some(trace) = trace_from_exec(setting, command, Options::default()) else { return };
        let names = names(&trace.of(Who::Child));
        let (mut rest, mut plain) = (Vec::new(), PLAIN_CHILD.iter().peekable());
        for name in &names {
            if plain.next_if(|expected| *expected == name).is_none() {
                rest.push(name);
            }
        }
        assert_eq!((rest.len(), plain.count()), (calls, 0), "system calls for {setting:?}: {names:?}");
    }
}

/// Has the caller blocked this signal when it made its only child?
fn is_blocked(trace: &Trace, signal: i32) -> bool {
    let [made] = trace.children[..] else { panic!("one child: {:?}", trace.children) };
    made.mask & 1 << (signal - 1) != 0
}

/// A child that `clone` makes still has its caller's handlers, and no signal may run one in the memory that both share.
#[test]
fn without_clone3_every_signal_is_blocked_around_the_clone() {
    let Some(trace) = trace_with("status", Options { missing: Some(libc::SYS_clone3), ..Options::default() }) else {
        return;
    };
    assert!(trace.of(Who::Parent).iter().any(|call| call.number == libc::SYS_clone), "{:?}", trace.calls);
    for signal in (1..=64).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)) {
        assert!(is_blocked(&trace, signal), "signal {signal}");
    }
}

/// Every signal that can be blocked.
const ALL: u64 = !(1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));

/// A filtered caller leaves SIGSYS open around the clone, because its handler may answer calls that the filter traps. The child, which
/// still has that handler, blocks SIGSYS by its first call.
#[test]
fn without_clone3_the_child_of_a_filtered_caller_blocks_sigsys_first() {
    let options = Options { missing: Some(libc::SYS_clone3), ..Options::default() };
    let Some(trace) = trace_with("status-filtered", options) else { return };
    assert!(!is_blocked(&trace, libc::SIGSYS), "the filter has had no effect");
    let [first, second, ..] = trace.of(Who::Child)[..] else { panic!("calls of the child: {:?}", trace.calls) };
    assert_eq!(name(first.number), "rt_sigprocmask", "{:?}", trace.calls);
    assert_eq!(trace.masks_of_children[1] & ALL, ALL, "open at the call of {}", name(second.number));
}

/// Negative control: with `clone3`, which resets the handlers, nothing is blocked.
#[test]
fn with_clone3_no_signal_is_blocked_around_the_clone() {
    let Some(trace) = trace("status") else { return };
    assert!((1..=64).all(|signal| !is_blocked(&trace, signal)));
}
