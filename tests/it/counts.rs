//! Counts the system calls of a launch by tracing a program that launches once between two marks. The counts do not
//! depend on timing.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

/// The mark; the same value as in the scenario.
const MARK: u64 = 0x7eed_0000;

/// The system calls of one launch.
#[derive(Default)]
struct Trace {
    parent: Vec<Call>,
    /// Up to `execve`, inclusive.
    child: Vec<Call>,
    /// The events by which the kernel announced the child: `PTRACE_EVENT_…`.
    announced: Vec<i32>,
}

#[derive(Clone, Copy)]
struct Call {
    number: i64,
    args: [u64; 6],
}

/// The members of `struct ptrace_syscall_info` that are used here.
#[repr(C)]
#[derive(Default)]
struct SyscallInfo {
    op: u8,
    padding: [u8; 3],
    arch: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    number: u64,
    args: [u64; 6],
    rest: [u64; 2],
}

const PTRACE_GET_SYSCALL_INFO: libc::c_uint = 0x420e;
const ENTRY: u8 = 1;

/// Traces `scenario traced WHAT`. None if tracing is refused.
fn trace(what: &str) -> Option<Trace> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scenario"));
    command.args(["traced", what]);
    trace_command(what, command)
}

fn trace_command(what: &str, mut command: Command) -> Option<Trace> {
    command.stdin(Stdio::null());
    // SAFETY: one system call.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        })
    };
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let text = format!("SKIPPED: system calls of {what} because ptrace is refused here: {error}\n");
            let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
            return None;
        }
    };
    let pid = child.id() as i32;
    let (over, limit) = mpsc::channel::<()>();
    // Kills a tracee that does not end, because the tracer would wait for ever. The channel is closed when it has
    // ended.
    let guard = std::thread::spawn(move || {
        if limit.recv_timeout(forkless_tests::patience::limit(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
            // The tracer has not reaped it yet: it would have closed the channel.
            forkless_tests::process::kill(pid, libc::SIGKILL);
        }
    });
    let trace = Tracer { main: pid, marks: 0, trace: Trace::default(), children: HashMap::new() }.run();
    drop(over);
    guard.join().expect("guard");
    Some(trace)
}

struct Tracer {
    main: i32,
    marks: usize,
    trace: Trace,
    /// Children created between the marks; true: has called exec.
    children: HashMap<i32, bool>,
}

impl Tracer {
    fn run(mut self) -> Trace {
        let (pid, status) = wait(self.main);
        assert!(pid == self.main && libc::WIFSTOPPED(status), "stopped at its exec");
        let options = libc::PTRACE_O_TRACESYSGOOD
            | libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACEEXEC
            | libc::PTRACE_O_EXITKILL;
        // SAFETY: a stopped tracee of this thread.
        unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options) };
        resume(pid, 0);
        loop {
            let (pid, status) = wait(-1);
            if !libc::WIFSTOPPED(status) {
                if pid == self.main {
                    assert_eq!(status, 0, "the traced scenario failed");
                    assert_eq!(self.marks, 2, "two marks");
                    return self.trace;
                }
                continue;
            }
            let signal = self.stopped(pid, status);
            resume(pid, signal);
        }
    }

    /// Handles a stop; returns the signal to continue with.
    fn stopped(&mut self, pid: i32, status: i32) -> i32 {
        let event = status >> 16;
        match libc::WSTOPSIG(status) {
            signal if signal == libc::SIGTRAP | 0x80 => {
                self.call(pid);
                0
            }
            libc::SIGTRAP
                if matches!(event, libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK) =>
            {
                let mut child: libc::c_ulong = 0;
                // SAFETY: our stopped tracee; the kernel writes one word.
                unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, 0, &mut child) };
                if self.marks == 1 {
                    self.trace.announced.push(event);
                    self.children.insert(child as i32, false);
                }
                0
            }
            // The initial stop of a traced child, and those of exec.
            libc::SIGTRAP | libc::SIGSTOP => 0,
            other => other,
        }
    }

    fn call(&mut self, pid: i32) {
        let mut info = SyscallInfo::default();
        // SAFETY: our stopped tracee; the kernel writes at most the given length.
        unsafe { libc::ptrace(PTRACE_GET_SYSCALL_INFO as _, pid, size_of::<SyscallInfo>(), &mut info) };
        if info.op != ENTRY {
            return;
        }
        let call = Call { number: info.number as i64, args: info.args };
        if pid != self.main {
            if let Some(exec @ false) = self.children.get_mut(&pid) {
                *exec = call.number == libc::SYS_execve;
                self.trace.child.push(call);
            }
        } else if call.number == libc::SYS_getpgid && call.args[0] == MARK {
            self.marks += 1;
        } else if self.marks == 1 {
            self.trace.parent.push(call);
        }
    }
}

fn wait(pid: i32) -> (i32, i32) {
    let mut status = 0;
    // Other tests of this program trace their own children in other threads (__WNOTHREAD). SAFETY: the kernel writes a
    // status.
    let found = unsafe { libc::waitpid(pid, &mut status, libc::__WALL | libc::__WNOTHREAD) };
    assert!(found > 0, "wait: {}", io::Error::last_os_error());
    (found, status)
}

fn resume(pid: i32, signal: i32) {
    // SAFETY: our stopped tracee. It may have been killed meanwhile, which the next wait tells.
    unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, signal) };
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
        gettid SYS_gettid kcmp SYS_kcmp epoll_ctl SYS_epoll_ctl epoll_pwait SYS_epoll_pwait
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
        without_waits(names(&trace.parent)),
        without_waits(parent.to_vec()),
        "system calls of the parent: {what}"
    );
    assert_eq!(names(&trace.child), child, "system calls of the child: {what}");
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
    let looks = that_count(&trace.parent).windows(LOOK.len()).filter(|calls| is_look_for_tracer(calls)).count() as u128;
    assert!(looks <= most, "{looks} looks where {most} are due");
    assert_eq!(names(&trace.parent), ["rt_sigaction", "clone3", "wait4"].repeat(100));
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
    let mut parent = names(&trace.parent);
    parent.retain(|call| call != "epoll_pwait" && !call.starts_with("call "));
    assert_eq!(without_waits(parent), ["clone3", "epoll_ctl", "waitid", "epoll_ctl", "close"]);
    assert_eq!(names(&trace.child), PLAIN_CHILD);
}

/// Events are read 64 at a time. The close is that of the dropped handle.
#[test]
fn a_wait_set_takes_two_calls_for_each_child() {
    let Some(trace) = trace("set") else { return };
    let ended = |count: usize| ["waitid", "close"].repeat(count);
    let expected = [vec!["epoll_pwait"], ended(64), vec!["epoll_pwait"], ended(36)].concat();
    assert_eq!(names(&trace.parent), expected);
}

/// A debugger must not see the child as a thread of the host: it would lose the host when that thread executes a
/// program.
#[test]
fn a_traced_caller_launches_by_vfork() {
    for what in ["status", "spawn-pipes"] {
        let Some(trace) = trace(what) else { return };
        assert_eq!(trace.announced, [libc::PTRACE_EVENT_VFORK], "{what}");
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
    let names = names(&trace_command("uid = 7", command)?.parent);
    let clone = names.iter().position(|name| name == "clone3").expect("a child");
    Some(names[clone..].to_vec())
}

/// The kernel clears the futex word shortly before the child releases the memory.
#[test]
fn a_change_of_ids_waits_until_the_child_has_given_up_the_memory() {
    let Some(names) = after_change_of_ids("") else { return };
    assert!(names.iter().any(|name| name == "kcmp"), "{names:?}");
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

/// Negative control: one more step is one more call.
#[test]
fn a_working_directory_takes_one_more_call() {
    let child = ["close_range", "chdir", "rt_sigaction", "execve"];
    expect("status-chdir", &["rt_sigaction", "clone3", "wait4"], &child);
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
        let Some(trace) = trace_command(setting, command) else { return };
        let names = names(&trace.child);
        let (mut rest, mut plain) = (Vec::new(), PLAIN_CHILD.iter().peekable());
        for name in &names {
            if plain.next_if(|expected| *expected == name).is_none() {
                rest.push(name);
            }
        }
        assert_eq!((rest.len(), plain.count()), (calls, 0), "system calls for {setting:?}: {names:?}");
    }
}
