//! `spawnSync`: a launch, its input and output, and the wait for its end, while the event loop stands still.

use crate::error::Failure;
use crate::request::{Launched, Line, Request};
use forkless::{Child, Command, LimitEvents};
use napi::bindgen_prelude::{BufferSlice, Either, Env, Uint8Array};
use napi_derive::napi;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio, read};
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// One pipe of the child.
#[napi(object)]
pub struct SyncPipe {
    /// The descriptor in the child.
    pub number: i32,
    /// What is written to it, if the child reads it.
    pub input: Option<Uint8Array>,
    /// Is what the child writes wanted?
    pub writable: bool,
}

/// The limits of a run.
#[napi(object)]
pub struct Limits {
    /// Milliseconds; 0: none.
    pub timeout: f64,
    /// The most bytes of all outputs together; 0: any number.
    pub max_buffer: f64,
    /// The signal that ends the child when a limit is reached.
    pub kill_signal: i32,
}

/// How a run has ended.
#[napi(object)]
pub struct SyncResult<'env> {
    /// The process ID.
    pub pid: u32,
    /// The exit code.
    pub code: i32,
    /// The number of the signal that killed it, or 0.
    pub signal: i32,
    /// What was read, in the order of the pipes that are writable. Copies that JavaScript owns: memory of ours would be as large as
    /// what was reserved for reading, and could not be transferred to a worker.
    pub outputs: Vec<BufferSlice<'env>>,
    /// The negated errno of a limit, or of a pipe; 0: none.
    pub error: i32,
    /// See `limit_events` of a child.
    pub limit_events: Option<Vec<f64>>,
}

/// What libuv reads at once.
const CHUNK: usize = 64 * 1024;

/// Runs a program to its end.
#[napi]
pub fn run_sync(
    env: &Env,
    request: Request,
    pipes: Vec<SyncPipe>,
    limits: Limits,
) -> napi::Result<Either<SyncResult<'_>, Failure>> {
    let launched = match request.launch(Command::launch) {
        Ok(launched) => launched,
        Err(refusal) => return Ok(Either::B(Failure::refused(&request.file, refusal))),
    };
    match Run::new(launched, pipes, &limits).and_then(Run::finish) {
        Ok(end) => end.result(env).map(Either::A),
        Err(error) => Ok(Either::B(Failure::of(&error))),
    }
}

/// A run that has ended.
struct End {
    pid: u32,
    status: ExitStatus,
    outputs: Vec<Vec<u8>>,
    error: i32,
    limit_events: Option<LimitEvents>,
}

/// How often limits were reached, as JavaScript gets it.
pub(crate) fn numbers(events: LimitEvents) -> [f64; 3] {
    [events.oom_kills, events.memory_max, events.tasks_max].map(|count| count as f64)
}

impl End {
    fn result<'env>(&self, env: &'env Env) -> napi::Result<SyncResult<'env>> {
        let (code, signal) = (self.status.code().unwrap_or(0), self.status.signal().unwrap_or(0));
        let outputs =
            self.outputs.iter().map(|output| BufferSlice::copy_from(env, output)).collect::<Result<_, _>>()?;
        let limit_events = self.limit_events.map(|events| numbers(events).to_vec());
        Ok(SyncResult { pid: self.pid, code, signal, outputs, error: self.error, limit_events })
    }
}

struct Run {
    child: Child,
    line: Option<Line>,
    pipes: Vec<Pipe>,
    status: Option<ExitStatus>,
    deadline: Option<Instant>,
    max_buffer: f64,
    kill_signal: i32,
    /// Bytes read so far.
    read: usize,
    /// A limit was reached: the first errno.
    error: Option<Errno>,
    /// The first errno of a pipe.
    pipe_error: Option<Errno>,
    is_traced: bool,
    is_killed: bool,
}

struct Pipe {
    socket: Option<OwnedFd>,
    input: Option<Uint8Array>,
    written: usize,
    /// None if the output is not wanted.
    output: Option<Vec<u8>>,
}

impl Run {
    fn new(mut launched: Launched, pipes: Vec<SyncPipe>, limits: &Limits) -> io::Result<Self> {
        let mut ends = std::mem::take(&mut launched.pipes);
        let take = |SyncPipe { number, input, writable }| {
            let at = ends.iter().position(|(theirs, _)| *theirs == number);
            let socket = at.map(|at| ends.swap_remove(at).1);
            if let Some(socket) = &socket {
                ioctl_fionbio(socket, true)?;
            }
            Ok(Pipe { socket, input, written: 0, output: writable.then(Vec::new) })
        };
        let pipes = pipes.into_iter().map(take).collect::<io::Result<Vec<_>>>()?;
        let (child, line) = launched.into_run()?;
        let limit = Duration::try_from_secs_f64(limits.timeout / 1000.0).ok().filter(|limit| !limit.is_zero());
        Ok(Self {
            child,
            line,
            pipes,
            status: None,
            deadline: limit.and_then(|limit| Instant::now().checked_add(limit)),
            max_buffer: limits.max_buffer,
            kill_signal: limits.kill_signal,
            read: 0,
            error: None,
            pipe_error: None,
            is_traced: false,
            is_killed: false,
        })
    }

    /// Runs to the end. After an error nothing would wait for the program: it is killed, and a later launch reaps it.
    fn finish(mut self) -> io::Result<End> {
        let ended = self.complete();
        if ended.is_err() {
            let _ = self.child.kill();
        }
        ended
    }

    fn complete(&mut self) -> io::Result<End> {
        loop {
            self.pipes.iter_mut().for_each(Pipe::close_if_done);
            let status = match self.status {
                Some(status) if self.pipes.iter().all(|pipe| pipe.socket.is_none()) => status,
                // Only the end is waited for, without a limit.
                None if self.is_quiet() => {
                    let status = self.child.wait()?;
                    self.end(status)
                }
                _ => {
                    self.step()?;
                    continue;
                }
            };
            let error = self.error.or(self.pipe_error).map_or(0, |errno| -errno.raw_os_error());
            let outputs = std::mem::take(&mut self.pipes).into_iter().filter_map(|pipe| pipe.output).collect();
            let limit_events = self.child.limit_events();
            return Ok(End { pid: self.child.id(), status, outputs, error, limit_events });
        }
    }

    fn is_quiet(&self) -> bool {
        self.pipes.iter().all(|pipe| pipe.socket.is_none()) && (self.deadline.is_none() || self.is_killed)
    }

    /// Waits for events, and handles them.
    fn step(&mut self) -> io::Result<()> {
        let mut watched = Vec::with_capacity(self.pipes.len() + 1);
        let mut owners = Vec::with_capacity(self.pipes.len() + 1);
        for (index, pipe) in self.pipes.iter().enumerate() {
            if let Some(socket) = &pipe.socket {
                watched.push(PollFd::from_borrowed_fd(socket.as_fd(), pipe.wanted()));
                owners.push(Some(index));
            }
        }
        // Without a pidfd the end is looked for after each wait, which is then short.
        let pidfd = if self.status.is_none() && !self.is_traced { self.child.pidfd() } else { None };
        let is_blind = self.status.is_none() && pidfd.is_none();
        if let Some(pidfd) = pidfd {
            watched.push(PollFd::from_borrowed_fd(pidfd, PollFlags::IN));
            owners.push(None);
        }
        let left = self.deadline.filter(|_| !self.is_killed).map(|at| at.saturating_duration_since(Instant::now()));
        const BLIND: Duration = Duration::from_millis(1);
        let left = if is_blind { Some(left.map_or(BLIND, |left| left.min(BLIND))) } else { left };
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut watched, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready: Vec<_> = watched.iter().zip(owners).filter(|(one, _)| !one.revents().is_empty()).collect();
        let ready: Vec<Option<usize>> = ready.into_iter().map(|(_, owner)| owner).collect();
        if self.status.is_none() && (is_blind || ready.contains(&None)) {
            let status = self.child.try_wait()?;
            // A tracer is notified first. The pidfd is readable meanwhile.
            self.is_traced |= status.is_none() && !is_blind;
            self.status = status.map(|status| self.end(status));
        }
        for index in ready.into_iter().flatten() {
            self.serve(index);
        }
        if !self.is_killed && self.deadline.is_some_and(|at| Instant::now() >= at) {
            // As libuv's timer, which also runs when only a grandchild still holds a pipe.
            self.give_up(Errno::TIMEDOUT);
        }
        Ok(())
    }

    /// The status of an ended child; of a line, the status that the shell would have had.
    fn end(&mut self, status: ExitStatus) -> ExitStatus {
        let Some(line) = self.line.take() else { return status };
        // Makes room for the shell's message. A socket holds less than 16 reads; the loop ends even if others write, too.
        for _ in 0..16 {
            if line.has_to_wait(status) {
                (0..self.pipes.len()).for_each(|index| self.serve(index));
            }
        }
        line.end(status)
    }

    /// Writes to a pipe and reads from it.
    fn serve(&mut self, index: usize) {
        let Some(pipe) = self.pipes.get_mut(index) else { return };
        if let Err(errno) = pipe.write() {
            self.pipe_error.get_or_insert(errno);
        }
        match pipe.read() {
            Ok(count) => self.read += count,
            Err(errno) => _ = self.pipe_error.get_or_insert(errno),
        }
        if self.max_buffer > 0.0 && self.read as f64 > self.max_buffer {
            self.give_up(Errno::NOBUFS);
        }
    }

    /// A limit was reached: ends the child, and reads no further.
    fn give_up(&mut self, errno: Errno) {
        self.error.get_or_insert(errno);
        if std::mem::replace(&mut self.is_killed, true) {
            return;
        }
        if self.status.is_none() {
            let mut sent = self.kill_signal;
            if let Err(error) = self.child.signal(self.kill_signal)
                && forkless::internal::errno(&error) != Some(libc::ESRCH)
            {
                // As libuv does where the signal cannot be sent.
                let _ = self.child.kill();
                sent = libc::SIGKILL;
            }
            self.line.iter().for_each(|line| line.note(sent));
        }
        self.pipes.iter_mut().for_each(|pipe| pipe.socket = None);
    }
}

impl Pipe {
    fn wanted(&self) -> PollFlags {
        let out = if self.input.is_some() { PollFlags::OUT } else { PollFlags::empty() };
        if self.output.is_some() { out | PollFlags::IN } else { out }
    }

    /// Closes a pipe with no further use: one that only feeds the child, after its last byte.
    fn close_if_done(&mut self) {
        if self.input.is_none() && self.output.is_none() {
            self.socket = None;
        }
    }

    fn write(&mut self) -> Result<(), Errno> {
        let (Some(socket), Some(input)) = (&self.socket, &self.input) else { return Ok(()) };
        let rest = input.get(self.written..).unwrap_or_default();
        let sent = if rest.is_empty() { Ok(0) } else { put(socket.as_fd(), rest) };
        match sent {
            Ok(count) => self.written += count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(errno) => {
                self.input = None;
                return Err(errno);
            }
        }
        if self.written >= input.len() {
            let _ = shutdown(socket, Shutdown::Write);
            self.input = None;
        }
        Ok(())
    }

    fn read(&mut self) -> Result<usize, Errno> {
        let (Some(socket), Some(output)) = (&self.socket, &mut self.output) else { return Ok(0) };
        output.reserve(CHUNK);
        match read(socket, spare_capacity(output)) {
            Ok(0) => self.socket = None,
            Ok(count) => return Ok(count),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => {
                self.socket = None;
                return Err(errno);
            }
        }
        Ok(0)
    }
}

/// Without SIGPIPE: Node ignores it, but a program that embeds Node may not.
fn put(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    send(socket, bytes, SendFlags::NOSIGNAL)
}
