//! The system calls of a program between its first mark and its last one, by `ptrace(2)`: free of noise.
//!
//! A mark is a call of `getpgid(2)` with [`MARK`] by the program's first process.

use crate::{patience, process};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;

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

/// What a program did between its marks.
#[derive(Debug, Default)]
pub struct Trace {
    /// The system calls, in the order in which they were entered.
    pub calls: Vec<Call>,
    /// The children that were made.
    pub children: Vec<Made>,
    /// The signals that a child blocks when it enters each of its calls: as many as it has calls.
    pub masks_of_children: Vec<u64>,
    /// How many calls there were at each mark.
    pub marks: Vec<usize>,
}

impl Trace {
    /// The calls that one of these made.
    pub fn of(&self, who: Who) -> Vec<Call> {
        self.calls.iter().filter(|call| call.who == who).copied().collect()
    }
}

/// A child, as its maker announced it.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    /// `PTRACE_EVENT_…`.
    pub event: i32,
    /// The signals that its maker blocked when it made it. Bit n-1 is signal n.
    pub mask: u64,
}

/// How to trace.
#[derive(Debug, Default, Clone, Copy)]
pub struct Options {
    /// A program that the program's own child executes is looked at too, with the children that it makes.
    pub has_helper: bool,
    /// A system call that is answered as by a kernel that does not have it.
    pub missing: Option<i64>,
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

const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_GET_SYSCALL_INFO: libc::c_uint = 0x420e;
const ENTRY: u8 = 1;

/// Traces a program that lets itself be traced and stops: in its `pre_exec`, which stops it at its exec ([`trace_from_exec`]), or by
/// [`stop_for_tracer`]. `what` names it. None where tracing is refused.
pub fn trace(what: &str, mut command: Command, options: Options) -> Option<Trace> {
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
        if limit.recv_timeout(patience::limit(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
            // The tracer has not reaped it, or the channel would have been closed.
            process::kill(pid, libc::SIGKILL);
        }
    });
    let known = HashMap::from([(pid, Who::Parent)]);
    let tracer = Tracer {
        main: pid,
        options,
        trace: Trace::default(),
        known,
        made_by_helper: HashSet::new(),
        early: HashSet::new(),
    };
    let trace = tracer.run(what);
    drop(over);
    guard.join().expect("guard");
    Some(trace)
}

/// [`trace`] of a program that knows of no tracer.
pub fn trace_from_exec(what: &str, mut command: Command, options: Options) -> Option<Trace> {
    // SAFETY: one system call.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        })
    };
    trace(what, command, options)
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
    options: Options,
    trace: Trace,
    /// Threads, and who they are; those that are nobody of interest are not in it.
    known: HashMap<i32, Who>,
    /// The children whose program is nobody of interest.
    made_by_helper: HashSet<i32>,
    /// Those that have executed a program before their maker's stop came.
    early: HashSet<i32>,
}

impl Tracer {
    fn run(mut self, what: &str) -> Trace {
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
                    assert!(self.trace.marks.len() >= 2, "a mark at the beginning and at the end: {what}");
                    self.trace.calls.truncate(self.trace.marks[self.trace.marks.len() - 1]);
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
            libc::SIGTRAP => {
                if matches!(event, libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK) {
                    self.made(pid, event);
                }
                if event == libc::PTRACE_EVENT_EXEC {
                    self.executed(pid);
                }
                0
            }
            // The stop that a traced child begins with.
            libc::SIGSTOP => 0,
            other => other,
        }
    }

    /// Notes that a process has executed a program.
    fn executed(&mut self, pid: i32) {
        match self.known.remove(&pid) {
            Some(Who::Child) if self.options.has_helper && !self.made_by_helper.contains(&pid) => {
                self.known.insert(pid, Who::Helper);
            }
            None => _ = self.early.insert(pid),
            _ => {}
        }
    }

    /// Notes a child or a thread that `pid` has made.
    fn made(&mut self, pid: i32, event: i32) {
        let mut child: libc::c_ulong = 0;
        // SAFETY: our stopped tracee; the kernel writes a word.
        unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, 0, &mut child) };
        let mask = blocked_by(pid);
        let is_thread = thread_group(child as i32) == Some(self.main);
        if !self.early.remove(&(child as i32)) {
            self.known.insert(child as i32, if is_thread { Who::Parent } else { Who::Child });
        }
        if self.known.get(&pid) == Some(&Who::Helper) {
            self.made_by_helper.insert(child as i32);
        }
        if !self.trace.marks.is_empty() && !is_thread {
            self.trace.children.push(Made { event, mask });
        }
    }

    fn call(&mut self, pid: i32) {
        let mut info = SyscallInfo::default();
        // SAFETY: our stopped tracee; the kernel writes at most the given length.
        unsafe { libc::ptrace(PTRACE_GET_SYSCALL_INFO as _, pid, size_of::<SyscallInfo>(), &mut info) };
        let Some(&who) = self.known.get(&pid).filter(|_| info.op == ENTRY) else { return };
        let call = Call { who, number: info.number as i64, args: info.args };
        if self.options.missing == Some(call.number) {
            leave_out(pid);
        }
        if pid == self.main && call.number == libc::SYS_getpgid && call.args[0] == MARK as u64 {
            self.trace.marks.push(self.trace.calls.len());
        } else if !self.trace.marks.is_empty() && call.number != libc::SYS_restart_syscall {
            // With restart_syscall the kernel continues a wait that a stop by the tracer has interrupted.
            self.trace.calls.push(call);
            if who == Who::Child {
                self.trace.masks_of_children.push(blocked_by(pid));
            }
        }
    }
}

/// The signals that a stopped tracee blocks. Bit n-1 is signal n.
fn blocked_by(pid: i32) -> u64 {
    let mut mask = 0;
    // SAFETY: our stopped tracee; the kernel writes a word.
    unsafe { libc::ptrace(PTRACE_GETSIGMASK as _, pid, size_of::<u64>(), &mut mask) };
    mask
}

/// Has the tracee, which is about to make a system call, make none: ENOSYS.
fn leave_out(pid: i32) {
    const NT_ARM_SYSTEM_CALL: usize = 0x404;
    let mut none: i32 = -1;
    // SAFETY: our stopped tracee; the kernel reads an int.
    unsafe {
        if cfg!(target_arch = "x86_64") {
            // ORIG_RAX is the sixteenth word of the registers.
            libc::ptrace(libc::PTRACE_POKEUSER, pid, 15 * size_of::<u64>(), -1_i64);
        } else {
            let mut place = libc::iovec { iov_base: (&raw mut none).cast(), iov_len: size_of::<i32>() };
            libc::ptrace(libc::PTRACE_SETREGSET as _, pid, NT_ARM_SYSTEM_CALL, &mut place);
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
