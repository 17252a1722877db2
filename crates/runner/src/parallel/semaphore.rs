//! `--semaphore`, `sem`: limits how many commands of one name run at once, started by unrelated programs.
//!
//! Each slot is a file that its command holds locked (`flock(2)`): the lock ends with the last process that has it,
//! however that ends.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use forkless::Command;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::options::ParallelOptions;
use super::shell::Shell;
use super::template::{Fill, Numbers, Strings, Template};
use super::values;

/// The pauses between tries of the locks: the first one, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// Takes a slot and runs the command.
pub(super) fn run(options: &ParallelOptions) -> Result<u8, String> {
    let directory = directory(options)?;
    if options.words.is_empty() {
        return match options.wait {
            true => wait_for_all(&directory).map(|()| 0).map_err(|error| format!("--wait: {error}")),
            false => Err("--semaphore: a command is missing".to_owned()),
        };
    }
    let patience = options.semaphore_timeout.as_deref().map(patience).transpose()?;
    let slots = match &options.jobs {
        None => 1,
        Some(_) => options.slots()?,
    };
    let Some(lock) = take(&directory, slots, patience)? else {
        super::message::say("timed out: no slot of the semaphore is free");
        return Ok(1);
    };
    start(options, lock)
}

/// How long to wait for a slot, and whether the command then runs anyway.
#[derive(Debug, Clone, Copy)]
struct Patience {
    time: Duration,
    runs: bool,
}

fn patience(text: &str) -> Result<Patience, String> {
    let (text, runs) = text.strip_prefix('-').map_or((text, true), |text| (text, false));
    let time = values::duration(text).map_err(|error| format!("--semaphore-timeout: {error}"))?;
    Ok(Patience { time, runs })
}

/// The directory of the semaphore's slots.
fn directory(options: &ParallelOptions) -> Result<PathBuf, String> {
    let home = env::var_os("PARALLEL_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".parallel")));
    let home = home.ok_or("--semaphore: neither HOME nor PARALLEL_HOME is set")?;
    let name = options.semaphore_name.clone().unwrap_or_else(terminal);
    let name: String = name.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let directory = home.join("semaphores").join(format!("forkless-{name}"));
    fs::create_dir_all(&directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    Ok(directory)
}

/// The name of the terminal, as tty(1) prints it.
fn terminal() -> OsString {
    fs::read_link("/proc/self/fd/0")
        .ok()
        .filter(|path| path.starts_with("/dev"))
        .map_or_else(|| "not a tty".into(), PathBuf::into_os_string)
}

/// Waits for a free slot and locks it. `None`: the time is up.
fn take(directory: &Path, slots: usize, patience: Option<Patience>) -> Result<Option<Option<File>>, String> {
    let (mut pause, longest) = PAUSES;
    let begun = Instant::now();
    loop {
        for slot in 1..=slots {
            let path = directory.join(format!("slot-{slot}"));
            let file = File::create(&path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(Some(file))),
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => return Err(format!("cannot lock {}: {error}", path.display())),
            }
        }
        if let Some(patience) = patience.filter(|patience| begun.elapsed() >= patience.time) {
            return Ok(patience.runs.then_some(None));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(longest);
    }
}

fn wait_for_all(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let file = File::open(entry?.path())?;
        flock(&file, FlockOperation::LockExclusive)?;
    }
    Ok(())
}

/// Starts the command with the lock. In the background, the command is the only holder of the lock.
fn start(options: &ParallelOptions, lock: Option<File>) -> Result<u8, String> {
    let shell = Shell::find()?;
    let words: Vec<Vec<u8>> = options.words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let (strings, fill) = (Strings::default(), Fill::Arguments);
    let template = Template::parse(&words, &strings, fill, options.quote, false, shell.language)?;
    let numbers = Numbers { seq: 1, slot: 1, slots: 1, total: 1 };
    let line = template.expand(&[], numbers);
    let mut command = Command::new(&shell.path);
    command.arg("-c").arg(std::ffi::OsStr::from_bytes(&line));
    if let Some(lock) = &lock {
        let number = lock.as_raw_fd();
        command.fd(lock.try_clone().map_err(|error| error.to_string())?, number);
    }
    let failed = |error: io::Error| error.to_string();
    let mut child = command.spawn().map_err(failed)?;
    if !options.fg {
        return Ok(0);
    }
    let status = child.wait().map_err(failed)?;
    Ok(status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(255) as u8)
}
