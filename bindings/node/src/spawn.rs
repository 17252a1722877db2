//! Launches whose children are watched in the loop.

use crate::error::Failure;
use crate::request::{Launched, Request};
use crate::watch::{self, Kept, Watch};
use forkless::Command;
use napi::Task;
use napi::bindgen_prelude::{AsyncTask, Either, Env, Function, JsValue, Object};
use napi_derive::napi;
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, memfd_create};
use rustix::io::{DupFlags, dup3};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// What `on_exit` gets: the exit code, and the number of the signal that killed the child, or 0.
type OnExit<'f> = Function<'f, (i32, i32), ()>;

/// A command that is compiled once and started any number of times.
#[napi]
pub struct Prepared {
    plan: forkless::Prepared,
    pipes: Vec<RawFd>,
}

/// Launches a program, and does not wait for its exec: the caller's ends of its pipes, in the order of the child's descriptors.
/// The caller must close them, and call [`executed`] next.
#[napi]
pub fn launch(env: &Env, request: Request) -> Either<Vec<i32>, Failure> {
    if let Err(error) = watch::prepare(env.raw()) {
        return Either::B(Failure::of(&error));
    }
    match request.launch(Command::launch_holding) {
        Ok(launched) => Either::A(begun(env, launched)),
        Err(refusal) => Either::B(Failure::refused(&request.file, refusal)),
    }
}

/// Launches a program in a thread of libuv's pool, and waits there for its exec: a sandbox takes milliseconds. JavaScript gets a promise
/// of an [`Ahead`].
#[napi]
pub fn launch_ahead(request: Request) -> AsyncTask<LaunchTask> {
    AsyncTask::new(LaunchTask(request))
}

/// A launch for another thread.
pub struct LaunchTask(Request);

impl Task for LaunchTask {
    type Output = Result<Launched, Failure>;
    type JsValue = Ahead;

    fn compute(&mut self) -> napi::Result<Self::Output> {
        let launched =
            self.0.launch(Command::launch_holding).map_err(|refusal| Failure::refused(&self.0.file, refusal));
        Ok(launched.and_then(|launched| launched.ahead().map_err(|error| Failure::of(&error))))
    }

    fn resolve(&mut self, _: Env, output: Self::Output) -> napi::Result<Ahead> {
        Ok(Ahead(Some(output)))
    }
}

/// What was launched by [`launch_ahead`].
#[napi]
pub struct Ahead(Option<Result<Launched, Failure>>);

#[napi]
impl Ahead {
    /// As [`launch`], once.
    #[napi]
    pub fn launch(&mut self, env: &Env) -> Either<Vec<i32>, Failure> {
        let launched = self.0.take().unwrap_or_else(|| Err(Failure::of(&io::ErrorKind::InvalidInput.into())));
        match launched
            .and_then(|launched| watch::prepare(env.raw()).map(|()| launched).map_err(|error| Failure::of(&error)))
        {
            Ok(launched) => Either::A(begun(env, launched)),
            Err(failure) => Either::B(failure),
        }
    }
}

/// Waits for the exec of what was launched last: the number by which the functions below know the child, its PID, and whether it
/// is the program of a line that runs without the shell. At its end `on_exit` is called on `this`.
#[napi]
pub fn executed(env: &Env, on_exit: OnExit<'_>, this: Object<'_>) -> Either<Vec<u32>, Failure> {
    // The child goes on to its program meanwhile.
    let kept = Kept::new(env.raw(), on_exit.raw(), this.raw());
    let watched = watch::launched(env.raw()).and_then(|launched| {
        let is_ahead = launched.is_ahead;
        let (child, line) = launched.executed()?;
        let (pid, is_line) = (child.id(), line.is_some());
        let number = Watch::start(env.raw(), child, line, kept)?;
        if is_ahead {
            watch::look_next_turn(env.raw(), number);
        }
        Ok((number, pid, is_line))
    });
    match watched {
        Ok((number, pid, is_line)) => Either::A(vec![number, pid, is_line.into()]),
        Err(error) => {
            kept.forget(env.raw());
            Either::B(Failure::of(&error))
        }
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

/// Puts a second launch's end of a pipe in the place of the first one's, which libuv has as a stream and does not poll yet. Returns 0,
/// or a negated errno.
#[napi]
pub fn replace(place: i32, end: i32) -> i32 {
    // SAFETY: `end` is the caller's, which gives it up. `place` is an open descriptor of its stream, which keeps it.
    let (end, mut place) = unsafe { (OwnedFd::from_raw_fd(end), ManuallyDrop::new(OwnedFd::from_raw_fd(place))) };
    let moved = dup3(&end, &mut place, DupFlags::CLOEXEC);
    let moved = moved.and_then(|()| fcntl_setfl(&*place, fcntl_getfl(&*place)? | OFlags::NONBLOCK));
    moved.map_or_else(|errno| -errno.raw_os_error(), |()| 0)
}

/// A descriptor of an executable file without a byte in it, at `/proc/self/fd`; or a negated errno.
#[napi]
pub fn empty_program() -> i32 {
    memfd_create("empty", MemfdFlags::CLOEXEC).map_or_else(|errno| -errno.raw_os_error(), IntoRawFd::into_raw_fd)
}

#[napi]
impl Prepared {
    /// Launches it once, as [`launch`].
    #[napi]
    pub fn launch(&self, env: &Env) -> Either<Vec<i32>, Failure> {
        let launched = watch::prepare(env.raw()).and_then(|()| self.plan.launch());
        match launched.and_then(|child| Launched::of(child, self.pipes.iter().copied())) {
            Ok(launched) => Either::A(begun(env, launched)),
            Err(error) => Either::B(Failure::of(&error)),
        }
    }
}

fn begun(env: &Env, mut launched: Launched) -> Vec<i32> {
    let ends = std::mem::take(&mut launched.pipes);
    watch::launch(env.raw(), launched);
    ends.into_iter().map(|(_, end)| end.into_raw_fd()).collect()
}

/// Remembers a signal that was sent to the PID of a line by another function than [`kill`].
#[napi]
pub fn note(env: &Env, number: u32, signal: i32) {
    watch::with(env.raw(), number, |watch| watch.note(signal));
}

/// Sends a signal: 0, or a negated errno; ESRCH if the child has ended.
#[napi]
pub fn kill(env: &Env, number: u32, signal: i32) -> i32 {
    match watch::with(env.raw(), number, |watch| watch.signal(signal)) {
        Some(Ok(())) => 0,
        Some(Err(error)) => -forkless::internal::errno(&error).unwrap_or(libc::EINVAL),
        None => -libc::ESRCH,
    }
}

/// Reports the child's end no longer, as libuv after the close of a handle.
#[napi]
pub fn leave(env: &Env, number: u32) {
    watch::with(env.raw(), number, Watch::leave);
}

/// Sets whether the child keeps the event loop alive, as it does at first.
#[napi]
pub fn set_ref(env: &Env, number: u32, on: bool) {
    watch::with(env.raw(), number, |watch| watch.set_ref(on));
}

/// Does the child keep the event loop alive?
#[napi]
pub fn has_ref(env: &Env, number: u32) -> bool {
    watch::with(env.raw(), number, Watch::has_ref).unwrap_or(false)
}

/// Why the launch was not warm. None if it was, or if it was not to be.
#[napi]
pub fn cold_reason(env: &Env, number: u32) -> Option<String> {
    watch::with(env.raw(), number, Watch::cold_reason).flatten()
}
