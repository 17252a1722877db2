//! Output that is captured and printed when the program has ended (`--capture`).

use std::{
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
};

use clap::ValueEnum;
use forkless::{Child, Command, Stdio};
use rustix::{
    event::{PollFd, PollFlags},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::{Errno, read},
};

use super::failure::say;

/// When the captured output is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// Print the output when the program has ended
    Always,
    /// Print it only after a failure: an exit code other than 0, a signal or a timeout
    OnFailure,
}

/// Size of one read: the default capacity of a pipe.
const AT_ONCE: usize = 64 * 1024;

/// Limit of what is read after the program has ended: more than a pipe holds. Without it, a background process that keeps
/// writing would keep forkless reading for ever.
const AFTER_END: usize = 4 << 20;

/// What is kept of each stream without `--limit-output`: a program that writes without end must not use up the memory.
const DEFAULT_LIMIT: u64 = 64 << 20;

const NAMES: [&str; 2] = ["standard output", "standard error"];

/// The output of the program so far.
#[derive(Debug)]
pub(crate) struct Captured {
    streams: [Stream; 2],
    limit: usize,
    /// Is the limit the default?
    default: bool,
    buffer: Box<[u8]>,
}

/// A stream; without a pipe it has ended or is not captured.
#[derive(Debug, Default)]
struct Stream {
    pipe: Option<OwnedFd>,
    bytes: Vec<u8>,
    dropped: u64,
}

impl Captured {
    /// Redirects standard output and standard error to pipes, except those that are `taken`; returns false if both are.
    pub(crate) fn ask(command: &mut Command, taken: [bool; 2]) -> bool {
        for number in (1..).zip(taken).filter(|(_, taken)| !taken).map(|(number, _)| number) {
            command.fd(Stdio::piped(), number);
        }
        taken != [true, true]
    }

    /// Takes the read ends of the pipes and makes them non-blocking.
    ///
    /// # Errors
    /// Those of `fcntl(2)`.
    pub(crate) fn new(child: &mut Child, limit: Option<u64>) -> io::Result<Self> {
        let pipes = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        for pipe in pipes.iter().flatten() {
            fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
        }
        let default = limit.is_none();
        let limit = usize::try_from(limit.unwrap_or(DEFAULT_LIMIT)).unwrap_or(usize::MAX);
        let streams = pipes.map(|pipe| Stream { pipe, ..Stream::default() });
        Ok(Self { streams, limit, default, buffer: vec![0; AT_ONCE].into() })
    }

    /// Adds the pipes to the files to poll; [`carry`](Self::carry) takes the resulting events.
    pub(crate) fn wants<'a>(&'a self, files: &mut Vec<PollFd<'a>>) {
        let pipes = self.streams.iter().filter_map(|stream| stream.pipe.as_ref());
        files.extend(pipes.map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)));
    }

    /// Reads from each pipe that has an event.
    pub(crate) fn carry(&mut self, came: &[PollFlags]) -> io::Result<()> {
        let open = self.streams.iter_mut().filter(|stream| stream.pipe.is_some());
        for (stream, _) in open.zip(came).filter(|(_, came)| !came.is_empty()) {
            stream.take(&mut self.buffer, self.limit)?;
        }
        Ok(())
    }

    /// Has every pipe ended, because no process has it open?
    pub(crate) fn has_ended(&self) -> bool {
        self.streams.iter().all(|stream| stream.pipe.is_none())
    }

    /// After the last wait: reads what the pipes hold by now, also if other processes still have them open.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        for stream in &mut self.streams {
            let mut late = 0;
            while late < AFTER_END {
                match stream.take(&mut self.buffer, self.limit)? {
                    0 => break,
                    count => late += count,
                }
            }
            stream.pipe = None;
        }
        Ok(())
    }

    /// Prints each stream to the corresponding stream of forkless.
    pub(crate) fn show(&self) -> io::Result<()> {
        let [out, err] = &self.streams;
        let mut ours = io::stdout();
        ours.write_all(&out.bytes).and_then(|()| ours.flush())?;
        io::stderr().write_all(&err.bytes)?;
        for (stream, name) in self.streams.iter().zip(NAMES).filter(|(stream, _)| stream.dropped > 0) {
            let dropped = stream.dropped;
            match self.default {
                true => say(format_args!(
                    "--capture: dropped {dropped} bytes of {name} after the first {} MiB; --limit-output=BYTES sets another limit",
                    DEFAULT_LIMIT >> 20
                )),
                false => say(format_args!("--limit-output: dropped {dropped} bytes of {name}")),
            }
        }
        Ok(())
    }
}

impl Stream {
    /// Reads once without waiting; returns the number of bytes, 0 if there are none.
    fn take(&mut self, buffer: &mut [u8], limit: usize) -> io::Result<usize> {
        let Some(pipe) = &self.pipe else { return Ok(0) };
        let answer = loop {
            match read(pipe, &mut *buffer) {
                Err(Errno::INTR) => {}
                answer => break answer,
            }
        };
        match answer {
            Ok(0) => {
                self.pipe = None;
                Ok(0)
            }
            Ok(count) => {
                let kept = count.min(limit - self.bytes.len());
                self.bytes.extend_from_slice(&buffer[..kept]);
                self.dropped += (count - kept) as u64;
                Ok(count)
            }
            Err(Errno::AGAIN) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}
