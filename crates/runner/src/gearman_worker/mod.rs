//! `forkless gearman-worker`: runs the jobs of a Gearman server.

mod allow;
mod options;
mod queue;
mod reply;

use std::{
    fs,
    os::unix::ffi::OsStrExt,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use forkless_gearman::{Link, Trust, cipher::Envelope};
use forkless_jobs::{Control, Options, Output, Timeout};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::parallel;
use allow::Allowed;
pub use options::GearmanWorkerOptions;
use queue::{Answers, Jobs, Liveness, Queue, Worker};

/// The exit code if something could not be delivered.
const UNDELIVERED: u8 = 1;
/// The exit code for wrong options.
const USAGE: u8 = 2;
/// How long to try to deliver replies and results after the last job.
const DELIVERY: Duration = Duration::from_secs(30);
/// The time limit of a check to which its server sets none: the default of mod_gearman.
const CHECK: Duration = Duration::from_secs(60);

/// Runs the worker until a signal.
pub fn main(options: &GearmanWorkerOptions) -> ExitCode {
    match run(options) {
        Ok(code) => ExitCode::from(code),
        Err(why) => {
            say(format_args!("{why}"));
            ExitCode::from(USAGE)
        }
    }
}

/// Writes a message to standard error.
fn say(words: impl std::fmt::Display) {
    crate::message::say(format_args!("gearman-worker: {words}"));
}

fn run(given: &GearmanWorkerOptions) -> Result<u8, String> {
    let control = Control::new().map_err(|error| format!("cannot make an eventfd: {error}"))?;
    let ends_now = Arc::new(AtomicBool::new(false));
    let has_checks = !given.checks.is_empty();
    // A check mostly waits for what it checks.
    let slots = parallel::slots(given.jobs.as_deref().unwrap_or(if has_checks { "400%" } else { "100%" }))?;
    let queue = Queue::new(worker(given, slots, ends_now.clone())?);
    let mut options = Options::new(slots).output(Output::Group);
    options.groups = true;
    options.timeout = given.timeout.map(Timeout::After);
    options.most_output = Some(given.max_output);
    options.control = Some(control.clone());
    // While all slots are taken, only ticks serve the connection.
    options.tick = Some(Duration::from_millis(500));
    heed_signals(control, ends_now).map_err(|error| format!("cannot install signal handlers: {error}"))?;
    let (mut jobs, mut liveness, mut answers) = (Jobs(queue.clone()), Liveness(queue.clone()), Answers(queue.clone()));
    let summary = forkless_jobs::run(options, &mut jobs, &mut liveness, &mut answers)
        .map_err(|error| format!("cannot run: {error}"))?;
    for error in &summary.errors {
        say(error);
    }
    let delivered = deliver(&queue);
    if !delivered {
        say(format_args!("replies or results could not be delivered to {}", given.server));
    }
    Ok(if delivered && summary.errors.is_empty() { 0 } else { UNDELIVERED })
}

fn worker(given: &GearmanWorkerOptions, slots: usize, ends_now: Arc<AtomicBool>) -> Result<Worker, String> {
    if given.function.is_empty() && given.checks.is_empty() {
        return Err("no queue: give --function NAME or --checks".to_owned());
    }
    let wrong = given.function.iter().chain(&given.checks).find(|name| name.is_empty() || name.contains('\0'));
    if let Some(name) = wrong {
        return Err(format!(
            "not the name of a queue: {name:?} (--function and --checks take names such as \"service\")"
        ));
    }
    if given.checks.is_empty() {
        let for_checks = [
            (given.key.is_some(), "--key"),
            (given.key_file.is_some(), "--key-file"),
            (given.max_age.is_some(), "--max-age"),
        ];
        if let Some((_, option)) = for_checks.iter().find(|(is_given, _)| *is_given) {
            return Err(format!("{option} is for the checks of mod_gearman: give --checks, too, or leave it out"));
        }
    }
    let key = match (&given.key, &given.key_file) {
        (Some(key), _) => Some(key.as_bytes().to_vec()),
        (None, Some(path)) => {
            let text = fs::read(path).map_err(|error| format!("--key-file: {path:?}: {error}"))?;
            Some(text.split(|&byte| byte == b'\n').next().unwrap_or_default().to_vec())
        }
        (None, None) => None,
    };
    if key.as_ref().is_some_and(Vec::is_empty) {
        return Err(match &given.key_file {
            Some(path) => format!("--key-file: the first line of {path:?} is empty: write the key there"),
            None => "--key is empty: leave it out if the checks are not encrypted".to_owned(),
        });
    }
    let trust = if given.remote { Trust::Any } else { Trust::Loopback };
    let link = Link::new(&given.server, trust).map_err(|error| {
        let remedy = if error.kind() == std::io::ErrorKind::PermissionDenied { ": --remote permits it" } else { "" };
        format!("{}: {error}{remedy}", given.server)
    })?;
    let name = given.name.clone().unwrap_or_else(|| {
        let names = rustix::system::uname();
        names.nodename().to_string_lossy().into_owned()
    });
    if name.is_empty() || name.contains(['\0', '\n']) {
        return Err(format!("--name: not a name in one line: {name:?}"));
    }
    Ok(Worker {
        link,
        functions: given.function.clone(),
        checks: given.checks.clone(),
        envelope: key.map_or_else(Envelope::plain, |key| Envelope::with_key(&key)),
        name,
        allowed: Allowed::new(&given.allow)?,
        slots,
        check_timeout: given.timeout.unwrap_or(CHECK),
        max_age: given.max_age,
        most_output: given.max_output,
        ends_now,
    })
}

/// The first TERM, INT or HUP: no further jobs. The second one: the jobs that run are ended.
fn heed_signals(control: Control, ends_now: Arc<AtomicBool>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut seen = 0;
        for _ in signals.forever() {
            seen += 1;
            if seen > 1 {
                ends_now.store(true, Ordering::SeqCst);
                control.stop_now();
            } else {
                control.stop_soon();
            }
        }
    })?;
    Ok(())
}

/// Waits until the server has all replies and results. Returns whether it has.
fn deliver(queue: &Queue) -> bool {
    let end = Instant::now() + DELIVERY;
    loop {
        queue.pump();
        if queue.is_delivered() {
            return true;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || queue.is_ending() {
            return false;
        }
        // Short, so that a second signal is noticed.
        let limit = Timespec::try_from(left.min(Duration::from_millis(200))).ok();
        let fd = queue.descriptor();
        let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], limit.as_ref());
    }
}
