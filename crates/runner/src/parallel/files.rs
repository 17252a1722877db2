//! `--cat` and `--fifo`: blocks as files and as FIFOs.
//!
//! They are in a directory of the run, which is removed with it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::mem;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use forkless_jobs::is_lack;
use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_setfl, mknodat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

/// The pauses between checks whether a job has opened its FIFO: the first one, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(20));

/// The files or FIFOs of the jobs.
#[derive(Debug)]
pub(super) struct Files {
    directory: tempfile::TempDir,
    are_fifos: bool,
    fifos: RefCell<HashMap<u64, Fifo>>,
}

/// The FIFO of a job.
#[derive(Debug)]
struct Fifo {
    block: Arc<Vec<u8>>,
    /// Whether the present try of the job is over.
    over: Arc<Mutex<bool>>,
}

impl Files {
    pub(super) fn new(parent: &Path, are_fifos: bool) -> io::Result<Self> {
        // Other users read no blocks.
        let mode = fs::Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().prefix("forkless-").permissions(mode).tempdir_in(parent)?;
        Ok(Self { directory, are_fifos, fifos: RefCell::default() })
    }

    /// The name of a job's file.
    pub(super) fn path(&self, seq: u64) -> PathBuf {
        self.directory.path().join(format!("{seq}.block"))
    }

    /// Makes the file of a job's block. A FIFO is fed when the job [starts](Self::start).
    pub(super) fn make(&self, seq: u64, block: &mut Vec<u8>) -> io::Result<()> {
        let path = self.path(seq);
        if self.are_fifos {
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            let fifo = Fifo { block: Arc::new(mem::take(block)), over: Arc::default() };
            self.fifos.borrow_mut().insert(seq, fifo);
        } else {
            // Overwrites what was written of it when memory was short.
            fs::write(&path, block)?;
        }
        Ok(())
    }

    /// A try of the job has started, with this process.
    pub(super) fn start(&self, seq: u64, pid: u32) {
        let Some(Fifo { block, over }) = self.fifos.borrow_mut().get_mut(&seq).map(|fifo| {
            fifo.over = Arc::default();
            Fifo { block: fifo.block.clone(), over: fifo.over.clone() }
        }) else {
            return;
        };
        let path = self.path(seq);
        let feeder = thread::Builder::new().name("fifo".to_owned()).stack_size(64 << 10);
        let started = feeder.spawn(move || feed(&path, &block, &over, pid));
        if let Err(error) = started {
            super::message::say(format_args!("cannot start a thread for the FIFO of job {seq}: {error}"));
            kill(pid);
        }
    }

    /// The try is over: a process that has not opened the FIFO yet gets nothing.
    pub(super) fn stop(&self, seq: u64) {
        if let Some(fifo) = self.fifos.borrow().get(&seq) {
            *fifo.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        }
    }

    /// The job is over.
    pub(super) fn remove(&self, seq: u64) {
        self.stop(seq);
        self.fifos.borrow_mut().remove(&seq);
        let _ = fs::remove_file(self.path(seq));
    }
}

/// Ends a job that would wait for its FIFO for ever. It must not see an end of its input, which would be a success.
fn kill(pid: u32) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        // It may have ended.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Waits until the FIFO is open for reading, and writes the block.
fn feed(path: &Path, block: &[u8], over: &Mutex<bool>, pid: u32) {
    let (mut pause, longest) = PAUSES;
    let mut fifo = loop {
        // Locked, so that a later try of the job never reads from the feeder of an earlier one.
        let is_over = over.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_over {
            return;
        }
        match OpenOptions::new().write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path) {
            Ok(fifo) => break fifo,
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => {}
            Err(error) if is_lack(&error) => {}
            Err(error) => {
                super::message::say(format_args!("{}: {error}", path.display()));
                return kill(pid);
            }
        }
        drop(is_over);
        thread::sleep(pause);
        pause = (pause * 2).min(longest);
    };
    if let Err(error) = fcntl_setfl(&fifo, OFlags::empty()) {
        super::message::say(format_args!("{}: {error}", path.display()));
        return kill(pid);
    }
    let mut rest = block;
    while !rest.is_empty() {
        match forkless::internal::write_quietly(&mut fifo, rest) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The job has closed the FIFO.
            Err(_) => return,
        }
    }
}
