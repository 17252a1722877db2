//! The signal handlers of a run. They do only what is safe in a handler: set numbers, and wake the loop.
//!
//! A thread for them would make each system call on a descriptor slower, because the file-descriptor table would be
//! shared, and would take memory for its stack.

use std::env;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forkless_jobs::Control;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGXFSZ};

use super::plan;
use super::report::Report;

/// The exit code of a run that was stopped before its end by a signal, under Slurm: EX_TEMPFAIL of sysexits.h. The same
/// command with `--resume` does the rest.
pub(super) const RESUME: u8 = 75;

/// Whether Slurm has started this process, or one that has started it.
pub(super) fn is_in_slurm() -> bool {
    env::var_os("SLURM_JOB_ID").is_some()
}

/// Installs the handlers. TSTP, by Ctrl-Z: the jobs are stopped with this process, as GNU parallel's. They are in process
/// groups of their own, which the terminal does not reach. HUP, TERM: no further jobs. INT, a second TERM: the jobs are
/// ended. USR1: the jobs that run are listed, or, in a job of Slurm, no further jobs (`sbatch --signal=B:USR1@60`: its
/// time is about to end). USR2: progress is shown, or no longer.
pub(super) fn handle(control: &Control, report: &Report) -> io::Result<()> {
    // A log or a temporary file that may grow no further is an error like a full disk, not the end of the run.
    on(SIGXFSZ, || ())?;
    let stops = control.clone();
    on(SIGINT, move || stops.stop_now())?;
    for signal in [SIGHUP, SIGTERM] {
        on(signal, stop_soon(control, signal))?;
    }
    if is_in_slurm() {
        on(SIGUSR1, stop_soon(control, SIGUSR1))?;
    } else {
        let lists = control.clone();
        on(SIGUSR1, move || lists.notify())?;
    }
    if !is_ignored(SIGTSTP)? {
        let stops = control.clone();
        on(SIGTSTP, move || stops.suspend())?;
    }
    let (control, progress, ticks) = (control.clone(), Arc::clone(&report.progress), report.bar || report.eta);
    on(SIGUSR2, move || {
        let shows = !progress.fetch_xor(true, Ordering::Relaxed);
        control.set_tick((shows || ticks).then_some(plan::TICK));
    })
}

fn on(signal: i32, action: impl Fn() + Send + Sync + 'static) -> io::Result<()> {
    // SAFETY: the actions of this module only change atomic numbers and make system calls by rustix, which leaves errno as it is.
    unsafe { signal_hook::low_level::register(signal, action) }?;
    Ok(())
}

fn is_ignored(signal: i32) -> io::Result<bool> {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is given, so nothing changes; `now` is valid for the write of the old one.
    let answer = unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above has succeeded, so `now` is written.
    Ok(unsafe { now.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

/// Stops this process as SIGTSTP does by default, until it is continued. The kernel discards the signal if no shell
/// watches the process group.
pub(super) fn suspend() {
    let mut default = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    let mut before = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: `default` is a valid action, SIG_DFL with an empty mask; `before` is put back only if the call has written it.
    unsafe {
        (*default.as_mut_ptr()).sa_sigaction = libc::SIG_DFL;
        if libc::sigaction(SIGTSTP, default.as_ptr(), before.as_mut_ptr()) == 0 {
            libc::raise(SIGTSTP);
            libc::sigaction(SIGTSTP, before.as_ptr(), std::ptr::null_mut());
        }
    }
}

fn stop_soon(control: &Control, signal: i32) -> impl Fn() + Send + Sync + 'static {
    let (control, count) = (control.clone(), AtomicU32::new(0));
    move || {
        let is_again = count.fetch_add(1, Ordering::Relaxed) > 0;
        if is_again && signal == SIGTERM {
            return control.stop_now();
        }
        report_stop();
        control.stop_soon();
    }
}

/// Writes the message of a stop, unless that would block: the next signal could not be handled meanwhile.
fn report_stop() {
    const WORDS: &[u8] =
        b"forkless parallel: starting no more jobs, waiting for those that run (SIGTERM again ends them)\n";
    let stderr = rustix::stdio::stderr();
    let is_ready = poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&Timespec::default()));
    if is_ready.is_ok_and(|count| count > 0) {
        let _ = rustix::io::write(stderr, WORDS);
    }
}
