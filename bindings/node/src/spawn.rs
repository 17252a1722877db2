//! Launches whose children are watched in the loop.

use crate::error::Failure;
use crate::request::{Request, Started};
use crate::watch::{self, Watch};
use napi::bindgen_prelude::{Either, Env, Function, JsValue, Object};
use napi_derive::napi;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{IntoRawFd, RawFd};
use std::rc::Rc;

/// What `on_exit` gets: the exit code, and the number of the signal that killed the child, or 0.
type OnExit<'f> = Function<'f, (i32, i32), ()>;

/// A child that runs.
#[napi]
pub struct Process {
    watch: Rc<Watch>,
    pid: u32,
    /// The caller's ends of the pipes.
    pipes: Vec<RawFd>,
}

/// A command that is compiled once and started any number of times.
#[napi]
pub struct Prepared {
    plan: forkless::Prepared,
    pipes: Vec<RawFd>,
}

/// Starts a program. `this` is the object on which `on_exit` is called.
#[napi]
pub fn spawn(env: &Env, request: Request, on_exit: OnExit<'_>, this: Object<'_>) -> Either<Process, Failure> {
    match request.start() {
        Ok(started) => begun(env, started, &on_exit, &this),
        Err(refusal) => Either::B(Failure::refused(&request.file, refusal)),
    }
}

/// Compiles a command.
#[napi]
pub fn prepare(request: Request) -> Either<Prepared, Failure> {
    let made = match request.command() {
        Ok(mut command) => command.prepare(),
        Err(refusal) => return Either::B(Failure::refused(&request.file, refusal)),
    };
    match made {
        Ok(plan) => Either::A(Prepared { plan, pipes: request.pipes().collect() }),
        Err(error) => Either::B(Failure::of(&error)),
    }
}

/// Whether this kernel has what the package needs.
#[napi]
pub fn is_supported() -> bool {
    watch::has_pidfds()
}

/// One end of a pair of sockets whose other end is closed: what a pipe is after a failed launch. Otherwise a negated errno.
#[napi]
pub fn closed_pipe() -> i32 {
    match socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None) {
        Ok((end, _)) => end.into_raw_fd(),
        Err(errno) => -errno.raw_os_error(),
    }
}

#[napi]
impl Prepared {
    /// Starts it once.
    #[napi]
    pub fn spawn(&self, env: &Env, on_exit: OnExit<'_>, this: Object<'_>) -> Either<Process, Failure> {
        match self.plan.spawn() {
            Ok(mut child) => {
                let pipes =
                    self.pipes.iter().filter_map(|number| Some((*number, child.take_socket(*number)?))).collect();
                begun(env, Started { child, line: None, pipes }, &on_exit, &this)
            }
            Err(error) => Either::B(Failure::of(&error)),
        }
    }
}

fn begun(env: &Env, started: Started, on_exit: &OnExit<'_>, this: &Object<'_>) -> Either<Process, Failure> {
    let Started { child, line, pipes } = started;
    let pid = child.id();
    match Watch::start(env.raw(), child, line, on_exit.raw(), this.raw()) {
        Ok(watch) => {
            Either::A(Process { watch, pid, pipes: pipes.into_iter().map(|(_, end)| end.into_raw_fd()).collect() })
        }
        Err(error) => Either::B(Failure::of(&error)),
    }
}

#[napi]
impl Process {
    /// The process ID.
    #[napi(getter)]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Gives the caller's ends of the pipes away, in the order of the child's descriptors. The caller must close them.
    #[napi]
    pub fn take_pipes(&mut self) -> Vec<i32> {
        std::mem::take(&mut self.pipes)
    }

    /// Is this the program of a line for /bin/sh, which runs without the shell?
    #[napi(getter)]
    pub fn is_line(&self) -> bool {
        self.watch.is_line()
    }

    /// Remembers a signal that was sent to the PID by another function than `kill`.
    #[napi]
    pub fn note(&self, signal: i32) {
        self.watch.note(signal);
    }

    /// Sends a signal: 0, or a negated errno.
    #[napi]
    pub fn kill(&self, signal: i32) -> i32 {
        match self.watch.signal(signal) {
            Ok(()) => 0,
            Err(error) => -forkless::errno(&error).unwrap_or(libc::EINVAL),
        }
    }

    /// Lets the child keep the event loop alive, as it does at first.
    #[napi(js_name = "ref")]
    pub fn make_ref(&self) {
        self.watch.set_ref(true);
    }

    /// Lets the event loop end although the child runs.
    #[napi]
    pub fn unref(&self) {
        self.watch.set_ref(false);
    }

    /// Does the child keep the event loop alive?
    #[napi]
    pub fn has_ref(&self) -> bool {
        self.watch.has_ref()
    }
}
