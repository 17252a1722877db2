//! Launches of all forms, mixed, from many threads of one host, for a long time: every answer is checked, and at the end the host
//! must hold what it held after the first 10,000.
//!
//! `soak [--launches N] [--threads N] [--seed N] [--seconds N] [--json FILE] [--control FAULT]`. The host runs in a process of its
//! own; this one stops and continues it now and then, ends it if it makes no progress, and looks for processes that it has left.
//! Exit code 1: something was wrong. The same seed gives the same choices in each thread; how they meet is the scheduler's.

use host::Options;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

#[allow(dead_code, reason = "shared with the scenarios")]
#[path = "../../it/scenarios/observe.rs"]
mod observe;

#[allow(dead_code, reason = "shared with the scenarios")]
#[path = "../../it/scenarios/elf.rs"]
mod elf;

#[allow(dead_code, reason = "shared with the scenarios")]
#[path = "../../it/scenarios/foreign.rs"]
mod foreign;
#[path = "../soak/programs.rs"]
mod programs;
#[path = "../soak/forms.rs"]
mod forms;
#[path = "../soak/disturb.rs"]
mod disturb;
#[path = "../soak/host.rs"]
mod host;

/// Marks the process that is the host.
const HOST: &str = "--host";

/// A host that makes no launch for so long hangs.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    forkless::zygote::serve_if_asked(&forkless::zygote::Registry::new());
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let is_host = args.first().is_some_and(|word| word == HOST);
    if is_host {
        args.remove(0);
        let hook = std::panic::take_hook();
        // A thread that panics would leave the others waiting for its launches; a copy of the host would go on as one.
        std::panic::set_hook(Box::new(move |panic| {
            hook(panic);
            // SAFETY: ends the process.
            unsafe { libc::_exit(101) };
        }));
        // Closes descriptors that the caller has left open.
        // SAFETY: before any descriptor was opened here.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
        return if host::run(&read(&args)) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let options = read(&args);
    if !args.iter().any(|word| word == "--seed") {
        args.extend(["--seed".to_owned(), options.seed.to_string()]);
    }
    println!("seed {}", options.seed);
    supervise(&args, options.seed)
}

fn read(args: &[String]) -> Options {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| u64::from(time.subsec_nanos()));
    let mut found = Options { launches: 100_000, threads: 16, seed: now, seconds: 1 << 32, control: None, json: None };
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        let number = || value.parse().unwrap_or_else(|_| panic!("{value} is no number"));
        match word.as_str() {
            "--launches" => found.launches = number(),
            "--threads" => found.threads = number(),
            "--seed" => found.seed = number(),
            "--seconds" => found.seconds = number(),
            "--control" => found.control = Some(value.clone()),
            "--json" => found.json = Some(value.into()),
            _ => panic!("{word} is no option"),
        }
    }
    found
}

/// Starts the host and looks after it.
#[expect(clippy::zombie_processes, reason = "it is reaped by its number: see host_status")]
fn supervise(args: &[String], seed: u64) -> ExitCode {
    // Orphans of the host become children of this process.
    // SAFETY: a flag of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    let mut host = Command::new("/proc/self/exe").arg(HOST).args(args).stdout(Stdio::piped()).spawn().expect("a host");
    let pid = host.id() as i32;
    let (done, at) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let disturber = {
        let (done, at) = (Arc::clone(&done), Arc::clone(&at));
        thread::spawn(move || disturb_host(pid, seed, &done, &at))
    };
    let mut said = Instant::now();
    for line in BufReader::new(host.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("text");
        match line.strip_prefix("@ ").and_then(|count| count.parse().ok()) {
            Some(count) => {
                at.store(count, Relaxed);
                if said.elapsed() >= Duration::from_secs(30) {
                    println!("{count} launches");
                    said = Instant::now();
                }
            }
            None => println!("{line}"),
        }
        let _ = std::io::stdout().flush();
    }
    let status = host_status(pid);
    done.store(true, Relaxed);
    let hung = disturber.join().expect("the disturber");
    let left = left_behind();
    if hung {
        println!("the host made no launch within {PATIENCE:?}, and was killed");
    }
    if !left.is_empty() {
        println!("processes that the host has left: {left:?}");
    }
    println!("host: {status}");
    if status.success() && !hung && left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The host's end. It is reaped when no other thread sends it signals any more.
fn host_status(pid: i32) -> std::process::ExitStatus {
    let raw = foreign::wait(pid, 0).expect("our own child").1;
    std::os::unix::process::ExitStatusExt::from_raw(raw)
}

/// Stops the host for a moment now and then; says whether it had to be killed.
fn disturb_host(pid: i32, seed: u64, done: &AtomicBool, at: &AtomicU64) -> bool {
    let mut dice = observe::Dice::new(seed ^ 0x50a4);
    let (mut last, mut since) = (0, Instant::now());
    while !done.load(Relaxed) {
        // SAFETY: signals to our own child, which is not reaped before its output has ended; see `host_status`.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        thread::sleep(Duration::from_millis(1 + dice.below(12)));
        // SAFETY: as above.
        unsafe { libc::kill(pid, libc::SIGCONT) };
        thread::sleep(Duration::from_millis(50 + dice.below(400)));
        let now = at.load(Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() > PATIENCE {
            // SAFETY: as above.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            return true;
        }
    }
    false
}

/// Processes of the host's that outlive it: ended, after a moment for those that are about to.
fn left_behind() -> Vec<i32> {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        while matches!(foreign::wait(-1, libc::WNOHANG), Ok((pid, _)) if pid > 0) {}
        let left = observe::children();
        if left.is_empty() || Instant::now() > deadline {
            for &pid in &left {
                // SAFETY: children of this process, which no other code reaps.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            return left;
        }
        thread::sleep(Duration::from_millis(10));
    }
}
