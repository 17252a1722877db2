//! System calls per launch: an engine is traced while it launches, and every call that it or a descendant enters is counted. Never
//! while times are taken: each call stops twice.

use std::{
    collections::HashSet,
    fs, io,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use anyhow::{Context, Result, bail};
use libc::{c_int, c_long, pid_t};

use super::{
    super::{contestant::Contestant, launcher::Job, statistics::round},
    Engines, PATIENCE,
};

/// Launches of the two runs: what begins and ends an engine is in both, so it is not in the difference.
const LAUNCHES: [u64; 2] = [5, 25];

/// What follows the tracee's own calls and those of all that come from it, and stops it when it is about to end.
const OPTIONS: c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT;

/// `PTRACE_GET_SYSCALL_INFO` and what it says at the entry of a call: not in every libc's headers.
const GET_SYSCALL_INFO: c_int = 0x420e;
const ENTRY: u8 = 1;

impl Engines {
    /// System calls of the contestant and its child, and of what the child starts, per launch.
    ///
    /// # Errors
    /// When it does not launch, or may not be traced.
    pub(crate) fn system_calls(&self, contestant: Contestant, job: &Job) -> Result<f64> {
        let [few, many] = LAUNCHES;
        let more = self.traced(contestant, job, many)?.saturating_sub(self.traced(contestant, job, few)?);
        Ok(round(more as f64 / (many - few) as f64))
    }

    /// System calls of an engine from its second launch to its end.
    fn traced(&self, contestant: Contestant, job: &Job, launches: u64) -> Result<u64> {
        let mut engine =
            if contestant.is_engine() { self.start(contestant, job) } else { self.serve(contestant, job) }?;
        let process = engine.process.as_mut().context("it has failed before")?;
        process.ask("turn 0 1 1", PATIENCE)?;
        let count = Count::begin(process.id())?;
        process.ask(&format!("turn 0 {launches} {launches}"), PATIENCE)?;
        process.end();
        count.end()
    }
}

/// A thread that traces.
struct Count {
    calls: Receiver<Result<u64>>,
}

impl Count {
    /// From here on every system call is counted.
    fn begin(root: u32) -> Result<Self> {
        let (ready, is_ready) = channel();
        let (answer, calls) = channel();
        thread::spawn(move || {
            // Whoever is to take it may have given up.
            let _ = answer.send(trace(root, ready));
        });
        match is_ready.recv() {
            Ok(()) => Ok(Self { calls }),
            Err(_) => Err(calls.recv()?.err().context("it ended")?),
        }
    }

    /// When all that were traced have ended.
    fn end(self) -> Result<u64> {
        self.calls.recv_timeout(PATIENCE).context("it does not end")?
    }
}

/// Traces the process, its descendants and theirs to their ends. Drops `ready` when each has been seen.
fn trace(root: u32, ready: Sender<()>) -> Result<u64> {
    let mut unseen = HashSet::new();
    seize_all(pid_t::try_from(root)?, &mut unseen)?;
    let (mut calls, mut ready) = (0, Some(ready));
    loop {
        let mut status = 0;
        // SAFETY: the pointer is to a live integer. The children of other threads are theirs.
        let pid = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::__WNOTHREAD) };
        if pid < 0 {
            match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EINTR) => continue,
                error if error.raw_os_error() == Some(libc::ECHILD) => return Ok(calls),
                error => bail!(error),
            }
        }
        unseen.remove(&pid);
        if let Some(ready) = ready.take_if(|_| unseen.is_empty()) {
            let _ = ready.send(());
        }
        if libc::WIFSTOPPED(status) {
            calls += u64::from(go_on(pid, status)?);
        }
    }
}

/// Begins to trace each thread of the process, and each child of each thread.
fn seize_all(process: pid_t, unseen: &mut HashSet<pid_t>) -> Result<()> {
    loop {
        let before = unseen.len();
        let tasks = match fs::read_dir(format!("/proc/{process}/task")) {
            Ok(tasks) => tasks,
            // It has ended.
            Err(_) => return Ok(()),
        };
        for task in tasks {
            let thread: pid_t = task?.file_name().to_string_lossy().parse()?;
            if unseen.contains(&thread) {
                continue;
            }
            match ptrace(libc::PTRACE_SEIZE as c_int, thread, OPTIONS.into()) {
                // The kernel says EPERM of a process that has ended and waits to be reaped.
                Err(_) if has_ended(thread) => continue,
                answer => answer.context("it may not be traced")?,
            };
            unseen.insert(thread);
            ptrace(libc::PTRACE_INTERRUPT as c_int, thread, 0)?;
            let children = fs::read_to_string(format!("/proc/{process}/task/{thread}/children")).unwrap_or_default();
            for child in children.split_whitespace() {
                seize_all(child.parse()?, unseen)?;
            }
        }
        // A thread that was made meanwhile by one that was not yet traced.
        if unseen.len() == before {
            return Ok(());
        }
    }
}

fn has_ended(pid: pid_t) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state stands behind the name, which may hold anything.
    stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with(['Z', 'X']))
}

/// Lets a stopped tracee go on to its next stop; true if it was about to enter a system call.
fn go_on(pid: pid_t, status: c_int) -> Result<bool> {
    let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
    let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    let mut enters = false;
    let answer = match event {
        // Nothing of it is left to count, and its end is for its parent to see.
        libc::PTRACE_EVENT_EXIT => ptrace(libc::PTRACE_DETACH as c_int, pid, 0),
        libc::PTRACE_EVENT_STOP if stops.contains(&signal) => ptrace(libc::PTRACE_LISTEN as c_int, pid, 0),
        0 if signal == libc::SIGTRAP | 0x80 => {
            enters = is_entry(pid)?;
            ptrace(libc::PTRACE_SYSCALL as c_int, pid, 0)
        }
        0 => ptrace(libc::PTRACE_SYSCALL as c_int, pid, signal.into()),
        _ => ptrace(libc::PTRACE_SYSCALL as c_int, pid, 0),
    };
    match answer {
        // Killed in between.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(enters),
        answer => answer.map(|_| enters).context("tracing"),
    }
}

fn is_entry(pid: pid_t) -> Result<bool> {
    let mut info = [0_u8; 128];
    // SAFETY: the kernel writes at most as much as it is told there is room for.
    let wrote = unsafe { libc::syscall(libc::SYS_ptrace, GET_SYSCALL_INFO, pid, info.len(), info.as_mut_ptr()) };
    match io::Error::last_os_error() {
        error if wrote < 0 && error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        error if wrote < 0 => Err(error).context("kernels before 5.3 do not tell an entry from an exit"),
        _ => Ok(info[0] == ENTRY),
    }
}

fn ptrace(request: c_int, pid: pid_t, data: c_long) -> io::Result<c_long> {
    // SAFETY: these requests read and write no memory of ours.
    let answer = unsafe { libc::syscall(libc::SYS_ptrace, request, pid, 0, data) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}
