//! Output that is captured and shown when the program has ended (`--capture`).

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

/// When what was kept is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// When the program has ended.
    Always,
    /// When it has failed: ended with another code than 0, by a signal, or too late.
    OnFailure,
}

/// As much as is read at once: what a pipe holds by default.
const AT_ONCE: usize = 64 * 1024;

/// As much as is read after the program's end: more than a pipe holds. Something that it has left running may write on.
const AFTER_END: usize = 4 << 20;

const NAMES: [&str; 2] = ["standard output", "standard error"];

/// What the program has written so far.
#[derive(Debug)]
pub(crate) struct Captured {
    streams: [Stream; 2],
    limit: usize,
    buffer: Box<[u8]>,
}

/// A stream; without a pipe it has ended, or is not kept.
#[derive(Debug, Default)]
struct Stream {
    pipe: Option<OwnedFd>,
    bytes: Vec<u8>,
    dropped: u64,
}

impl Captured {
    /// Has the command write its standard output and standard error to us, but for one that is `taken`; false if both are.
    pub(crate) fn ask(command: &mut Command, taken: [bool; 2]) -> bool {
        for number in (1..).zip(taken).filter(|(_, taken)| !taken).map(|(number, _)| number) {
            command.fd(Stdio::piped(), number);
        }
        taken != [true, true]
    }

    /// Takes our ends of the pipes.
    ///
    /// # Errors
    /// Those of `fcntl(2)`.
    pub(crate) fn new(child: &mut Child, limit: Option<u64>) -> io::Result<Self> {
        let pipes = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        for pipe in pipes.iter().flatten() {
            fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
        }
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let streams = pipes.map(|pipe| Stream { pipe, ..Stream::default() });
        Ok(Self { streams, limit, buffer: vec![0; AT_ONCE].into() })
    }

    /// Adds the files that it waits for; [`carry`](Self::carry) is told what has come of them.
    pub(crate) fn wants<'a>(&'a self, files: &mut Vec<PollFd<'a>>) {
        let pipes = self.streams.iter().filter_map(|stream| stream.pipe.as_ref());
        files.extend(pipes.map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)));
    }

    /// Reads where there is something.
    pub(crate) fn carry(&mut self, came: &[PollFlags]) -> io::Result<()> {
        let open = self.streams.iter_mut().filter(|stream| stream.pipe.is_some());
        for (stream, _) in open.zip(came).filter(|(_, came)| !came.is_empty()) {
            stream.take(&mut self.buffer, self.limit)?;
        }
        Ok(())
    }

    /// After the program's end: what is in the pipes by now. What something else, that has them open, writes later is not
    /// waited for.
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

    /// Shows it, each stream on ours.
    pub(crate) fn show(&self) -> io::Result<()> {
        let [out, err] = &self.streams;
        let mut ours = io::stdout();
        ours.write_all(&out.bytes).and_then(|()| ours.flush())?;
        io::stderr().write_all(&err.bytes)?;
        for (stream, name) in self.streams.iter().zip(NAMES).filter(|(stream, _)| stream.dropped > 0) {
            say(format_args!("{} bytes of {name} more than --limit-output were dropped", stream.dropped));
        }
        Ok(())
    }
}

impl Stream {
    /// One read of what is there; gives how much it was, 0 if nothing is.
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
