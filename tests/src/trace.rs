//! Traces the system calls of a program between two marks with `ptrace(2)`, so that they do not depend on timing.
//!
//! A mark is a call of `getpgid(2)` with [`MARK`] by the program's first process.

use std::collections::HashMap;
use std::io;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The argument of `getpgid(2)` that marks the beginning and the end.
pub const MARK: i32 = 0x7eed_0000;

/// The process that makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Who {
    /// The program, in any of its threads.
    Parent,
    /// A program that it has started, and that starts others: a zygote's helper.
    Helper,
    /// A process that has not executed a program yet.
    Child,
}

/// A system call, as it was entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Call {
    /// Who made it.
    pub who: Who,
    /// `SYS_*`.
    pub number: i64,
    /// The arguments.
    pub args: [u64; 6],
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

/// Traces a program that lets itself be traced and stops: in its `pre_exec`, which stops it at its exec, or by
/// [`stop_for_tracer`]. `what` names it. With `has_helper` a program that a child executes is looked at too. None where
/// tracing is refused.
pub fn trace(what: &str, mut command: Command, has_helper: bool) -> Option<Vec<Call>> {
    command.stdin(Stdio::null());
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
        if limit.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
            // SAFETY: the tracer has not reaped it, or the channel would have been closed.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    });
    let tracer =
        Tracer { main: pid, has_helper, marks: 0, calls: Vec::new(), others: HashMap::from([(pid, Who::Parent)]) };
    let calls = tracer.run(what);
    drop(over);
    guard.join().expect("guard");
    Some(calls)
}

/// Stops the calling process until its parent, which traces it from now on, lets it go on.
pub fn stop_for_tracer() {
    // SAFETY: two system calls.
    unsafe {
        assert_eq!(libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0), 0, "ptrace: {}", io::Error::last_os_error());
        libc::kill(libc::getpid(), libc::SIGSTOP);
    }
}

/// Makes a mark.
pub fn mark() {
    // SAFETY: a system call that fails and changes nothing.
    unsafe { libc::getpgid(MARK) };
}

struct Tracer {
    main: i32,
    has_helper: bool,
    marks: usize,
    calls: Vec<Call>,
    /// Threads, and who they are; those that are nobody of interest are not in it.
    others: HashMap<i32, Who>,
}

impl Tracer {
    fn run(mut self, what: &str) -> Vec<Call> {
        let (pid, status) = wait(self.main);
        assert!(pid == self.main && libc::WIFSTOPPED(status), "{what}: it has not stopped for its tracer: {status:#x}");
        let options = libc::PTRACE_O_TRACESYSGOOD
            | libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACEEXEC
            | libc::PTRACE_O_EXITKILL;
        // SAFETY: our tracee, which is stopped.
        unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options) };
        resume(pid, 0);
        loop {
            let (pid, status) = wait(-1);
            if !libc::WIFSTOPPED(status) {
                if pid == self.main {
                    assert_eq!(status, 0, "the traced program failed: {what}");
                    assert_eq!(self.marks, 2, "two marks: {what}");
                    return self.calls;
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
            libc::SIGTRAP => {
                if matches!(event, libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK) {
                    let mut child: libc::c_ulong = 0;
                    // SAFETY: our stopped tracee; the kernel writes one word.
                    unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, 0, &mut child) };
                    let is_thread = thread_group(child as i32) == Some(self.main);
                    self.others.insert(child as i32, if is_thread { Who::Parent } else { Who::Child });
                }
                if event == libc::PTRACE_EVENT_EXEC && self.others.remove(&pid) == Some(Who::Child) && self.has_helper {
                    self.others.insert(pid, Who::Helper);
                }
                0
            }
            // The stop that a traced child begins with.
            libc::SIGSTOP => 0,
            other => other,
        }
    }

    fn call(&mut self, pid: i32) {
        let mut info = SyscallInfo::default();
        // SAFETY: our stopped tracee; the kernel writes at most the given length.
        unsafe { libc::ptrace(PTRACE_GET_SYSCALL_INFO as _, pid, size_of::<SyscallInfo>(), &mut info) };
        let Some(&who) = self.others.get(&pid).filter(|_| info.op == ENTRY) else { return };
        let call = Call { who, number: info.number as i64, args: info.args };
        if pid == self.main && call.number == libc::SYS_getpgid && call.args[0] == MARK as u64 {
            self.marks += 1;
        } else if self.marks == 1 {
            self.calls.push(call);
        }
    }
}

fn thread_group(thread: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn wait(pid: i32) -> (i32, i32) {
    let mut status = 0;
    // Other tests of this program trace children of their own, in other threads.
    // SAFETY: the kernel writes a status.
    let found = unsafe { libc::waitpid(pid, &mut status, libc::__WALL | libc::__WNOTHREAD) };
    assert!(found > 0, "wait: {}", io::Error::last_os_error());
    (found, status)
}

fn resume(pid: i32, signal: i32) {
    // SAFETY: our stopped tracee. It may have been killed meanwhile, which the next wait tells.
    unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, signal) };
}
