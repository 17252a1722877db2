//! Runs a command line and waits for its end: `system(3)`.

use crate::boundary::as_libc;
use crate::error::Failure;
use crate::handle::optional;
use crate::lock::Lock;
use crate::stream::shell;
use forkless::{Command, Step};
use libc::{c_char, c_int, sigaction};
use std::ffi::OsStr;
use std::mem::zeroed;
use std::os::unix::process::ExitStatusExt;
use std::ptr::null_mut;

/// Signals that a terminal sends to both processes: the caller ignores them while it waits.
const IGNORED: [c_int; 2] = [libc::SIGINT, libc::SIGQUIT];
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_system(command: *const c_char) -> c_int {
    // SAFETY: `command` is null or a string (forkless.h).
    match unsafe { optional(command) } {
        Some(line) => as_libc(-1, || run(line)),
        None => as_libc(0, || Ok(has_shell() as c_int)),
    }
}

/// Whether `/bin/sh` can be executed: the result of `system(NULL)`.
pub fn has_shell() -> bool {
    // SAFETY: the path ends in NUL.
    unsafe { libc::access(c"/bin/sh".as_ptr(), libc::X_OK) == 0 }
}

fn run(line: &OsStr) -> Result<c_int, Failure> {
    let mut line = shell(line);
    let waiting = Waiting::begin();
    waiting.ready(line.settings());
    match line.status() {
        Ok(status) => Ok(status.into_raw()),
        // If the shell cannot be executed, the status is that of a shell that exited with 127.
        Err(error) if forkless::Error::of(&error).is_some_and(|detail| detail.step() == Step::Exec) => Ok(127 << 8),
        Err(error) => Err(error.into()),
    }
}

/// While one or more threads wait for a command line, SIGINT and SIGQUIT are ignored, and SIGCHLD is blocked in each of
/// them.
pub struct Waiting {
    actions: [sigaction; 2],
    /// The mask that this thread had; `None` if the caller sets the mask ([`Waiting::begin_blocked`]).
    mask: Option<libc::sigset_t>,
}

impl Waiting {
    /// Begins waiting, until the value is dropped.
    pub fn begin() -> Self {
        let actions = IGNORING.with(Ignoring::begin);
        // SAFETY: local signal sets, and this thread's mask, which is restored.
        let mask = unsafe {
            let mut child: libc::sigset_t = std::mem::zeroed();
            let mut mask = child;
            libc::sigemptyset(&mut child);
            libc::sigaddset(&mut child, libc::SIGCHLD);
            libc::pthread_sigmask(libc::SIG_BLOCK, &child, &mut mask);
            mask
        };
        Self { actions, mask: Some(mask) }
    }

    /// The same for a caller that has blocked all signals, and sets this thread's mask and that of the program itself.
    pub fn begin_blocked() -> Self {
        Self { actions: IGNORING.with(Ignoring::begin), mask: None }
    }

    /// Makes the program start as if the caller had changed nothing.
    pub fn ready(&self, command: &mut Command) {
        for (signal, action) in IGNORED.into_iter().zip(&self.actions) {
            match action.sa_sigaction {
                libc::SIG_IGN => command.signal_ignore(signal),
                _ => command.signal_default(signal),
            };
        }
        let Some(mask) = self.mask else { return };
        command.inherit_signal_mask(false);
        for signal in 1..=64 {
            // SAFETY: a valid signal set.
            if unsafe { libc::sigismember(&mask, signal) } == 1 {
                command.signal_block(signal);
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        IGNORING.with(Ignoring::end);
        // SAFETY: the mask that this thread had.
        unsafe {
            if let Some(mask) = self.mask {
                libc::pthread_sigmask(libc::SIG_SETMASK, &mask, null_mut());
            }
        }
    }
}

/// The number of waiting threads, and the dispositions to restore after the last one.
struct Ignoring {
    threads: usize,
    /// The process of these threads.
    process: u32,
    actions: [sigaction; 2],
}

impl Ignoring {
    fn begin(&mut self, me: u32) -> [sigaction; 2] {
        // A process that was forked while threads waited also ignores the signals, but has none of these threads.
        let is_copy = self.threads > 0 && self.process != me;
        if self.threads == 0 || is_copy {
            for (signal, old) in IGNORED.into_iter().zip(&mut self.actions) {
                // SAFETY: all zeroes is a valid action, with an empty mask and no flags.
                let (mut ignore, mut found): (sigaction, sigaction) = unsafe { (zeroed(), zeroed()) };
                ignore.sa_sigaction = libc::SIG_IGN;
                // Not by way of a local variable: ThreadSanitizer would see that copy, but does not see the lock.
                let before = if is_copy { &mut found } else { &mut *old };
                // SAFETY: variables of this function and its caller.
                unsafe { libc::sigaction(signal, &ignore, before) };
                // The copy may have set dispositions of its own since the fork.
                let is_inherited = found.sa_sigaction == libc::SIG_IGN;
                if is_copy && !is_inherited {
                    *old = found;
                }
            }
        }
        self.process = me;
        self.threads = if is_copy { 1 } else { self.threads + 1 };
        self.actions
    }

    fn end(&mut self, _: u32) {
        self.threads -= 1;
        if self.threads == 0 {
            for (signal, old) in IGNORED.into_iter().zip(&self.actions) {
                // SAFETY: the disposition from before.
                unsafe { libc::sigaction(signal, old, null_mut()) };
            }
        }
    }
}

// SAFETY: all zeroes is a valid action: the default.
static IGNORING: Lock<Ignoring> = Lock::new(Ignoring { threads: 0, process: 0, actions: unsafe { zeroed() } });

// SAFETY: an action is a number and the address of a function of the process.
unsafe impl Send for Ignoring {}
