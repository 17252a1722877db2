//! Counts system calls per launch: traces an engine and all its descendants with ptrace while it launches. Times are measured in
//! separate runs, because each traced call stops twice.

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

/// Launches in the two runs. The difference excludes the calls with which an engine starts and ends.
const LAUNCHES: [u64; 2] = [5, 25];

/// Traces all descendants and stops each before it exits.
const OPTIONS: c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT;

/// `PTRACE_GET_SYSCALL_INFO` and its value for the entry of a call, which some libc headers lack.
const GET_SYSCALL_INFO: c_int = 0x420e;
const ENTRY: u8 = 1;

impl Engines {
    /// System calls of the method, its child and the child's descendants, per launch.
    ///
    /// # Errors
    /// If the method does not launch, or may not be traced.
    pub(crate) fn system_calls(&self, contestant: Contestant, job: &Job) -> Result<f64> {
        let [few, many] = LAUNCHES;
        let more = self.traced(contestant, job, many)?.saturating_sub(self.traced(contestant, job, few)?);
        Ok(round(more as f64 / (many - few) as f64))
    }

    /// Counts the system calls of an engine from its second launch to its end.
    fn traced(&self, contestant: Contestant, job: &Job, launches: u64) -> Result<u64> {
        let mut engine =
            if contestant.is_engine() { self.start(contestant, job) } else { self.serve(contestant, job) }?;
        let process = engine.process.as_mut().context("the engine has failed before")?;
        process.ask("turn 0 1 1", PATIENCE)?;
        let count = Count::begin(process.id())?;
        process.ask(&format!("turn 0 {launches} {launches}"), PATIENCE)?;
        process.end();
        count.end()
    }
}

/// A tracing thread.
struct Count {
    calls: Receiver<Result<u64>>,
}

impl Count {
    /// Starts counting.
    fn begin(root: u32) -> Result<Self> {
        let (ready, is_ready) = channel();
        let (answer, calls) = channel();
        thread::spawn(move || {
            // The receiver may have given up.
            let _ = answer.send(trace(root, ready));
        });
        match is_ready.recv() {
            Ok(()) => Ok(Self { calls }),
            Err(_) => Err(calls.recv()?.err().context("it ended")?),
        }
    }

    /// Returns the count when all traced processes have ended.
    fn end(self) -> Result<u64> {
        self.calls.recv_timeout(PATIENCE).context("the engine does not end")?
    }
}

/// Traces the process and its descendants until they end. Drops `ready` when all are attached.
fn trace(root: u32, ready: Sender<()>) -> Result<u64> {
    let mut unseen = HashSet::new();
    seize_all(pid_t::try_from(root)?, &mut unseen)?;
    let (mut calls, mut ready) = (0, Some(ready));
    loop {
        let mut status = 0;
        // SAFETY: the pointer is to a live integer. With __WNOTHREAD, children of other threads are not reaped.
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

/// Attaches to each thread of the process, and to each child of each thread.
fn seize_all(process: pid_t, unseen: &mut HashSet<pid_t>) -> Result<()> {
    loop {
        let before = unseen.len();
        let tasks = match fs::read_dir(format!("/proc/{process}/task")) {
            Ok(tasks) => tasks,
            // The process has ended.
            Err(_) => return Ok(()),
        };
        for task in tasks {
            let thread: pid_t = task?.file_name().to_string_lossy().parse()?;
            if unseen.contains(&thread) {
                continue;
            }
            match ptrace(libc::PTRACE_SEIZE as c_int, thread, OPTIONS.into()) {
                // The kernel returns EPERM for a zombie.
                Err(_) if has_ended(thread) => continue,
                answer => answer.context("the engine may not be traced")?,
            };
            unseen.insert(thread);
            ptrace(libc::PTRACE_INTERRUPT as c_int, thread, 0)?;
            let children = fs::read_to_string(format!("/proc/{process}/task/{thread}/children")).unwrap_or_default();
            for child in children.split_whitespace() {
                seize_all(child.parse()?, unseen)?;
            }
        }
        // Look again: an unattached thread may have created another one meanwhile.
        if unseen.len() == before {
            return Ok(());
        }
    }
}

fn has_ended(pid: pid_t) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the last ')': the name may contain any character.
    stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with(['Z', 'X']))
}

/// Resumes a stopped tracee; returns true if it was entering a system call.
fn go_on(pid: pid_t, status: c_int) -> Result<bool> {
    let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
    let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    let mut enters = false;
    let answer = match event {
        // Detach before it exits, so that its parent can reap it.
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
        // The tracee was killed meanwhile.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(enters),
        answer => answer.map(|_| enters).context("tracing"),
    }
}

fn is_entry(pid: pid_t) -> Result<bool> {
    let mut info = [0_u8; 128];
    // SAFETY: the kernel writes at most the given size.
    let wrote = unsafe { libc::syscall(libc::SYS_ptrace, GET_SYSCALL_INFO, pid, info.len(), info.as_mut_ptr()) };
    match io::Error::last_os_error() {
        error if wrote < 0 && error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        error if wrote < 0 => Err(error).context("counting system calls needs PTRACE_GET_SYSCALL_INFO (Linux 5.3)"),
        _ => Ok(info[0] == ENTRY),
    }
}

fn ptrace(request: c_int, pid: pid_t, data: c_long) -> io::Result<c_long> {
    // SAFETY: these requests access no memory of this process.
    let answer = unsafe { libc::syscall(libc::SYS_ptrace, request, pid, 0, data) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}
