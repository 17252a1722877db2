//! What a program writes while it runs: all of it, line by line, or as it comes.

use crate::capture::{drive::Drive, reader};
use crate::child::Child;
use crate::launch::run::Form;
use crate::pipes::Defaults;
use crate::plan::Plan;
use crate::start::{Pidfd, Start};
use crate::wait::sigchld_discards;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Output;
use std::sync::Arc;

/// Runs a plan to its end and gives what it wrote.
pub(crate) fn output(plan: &Arc<Plan>) -> io::Result<Output> {
    // Whether a filter killed it in exec can only be seen before it is reaped.
    let form = if plan.is_filtered { Form::Spawn } else { Form::Launch };
    let start = Start::new(form).with(Defaults::Capture).pidfd(Pidfd::Unless(sigchld_discards()));
    start.child(plan)?.wait_with_output()
}

impl Child {
    /// Waits for the child to end and gives what it wrote to the pipes that are still here.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait), and any error of reading.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        self.end_input();
        let drive = Drive::plain(self.stdout.take().map(Into::into), self.stderr.take().map(Into::into));
        let [stdout, stderr] = drive.run(&mut [])?.readers.map(|reader| reader::finish(reader).0);
        Ok(Output { status: self.wait()?, stdout, stderr })
    }

    /// What the child writes to the pipes of its standard output and error, as it comes, with the stream it came from: at most
    /// 64 KiB at a time. It takes the pipes out of this handle; when both have ended, so has the iterator.
    ///
    /// The two streams are two pipes: what was written to them within microseconds may come in another order. Where the order
    /// matters let them be one, with `stderr(Stdio::dup_of(1))`.
    pub fn chunks(&mut self) -> Chunks {
        Chunks::new(self.stdout.take().map(Into::into), self.stderr.take().map(Into::into))
    }

    /// The same line by line, without the newlines. What the program writes last is a line too if no newline ends it; a line
    /// longer than 1 MiB comes in pieces.
    ///
    /// ```
    /// use forkless::{Command, Stdio, Stream};
    /// let mut child = Command::new("printf").arg("one\ntwo").stdout(Stdio::piped()).spawn()?;
    /// let lines: Vec<_> = child.lines().collect::<Result<_, _>>()?;
    /// assert_eq!(lines, [(Stream::Stdout, b"one".to_vec()), (Stream::Stdout, b"two".to_vec())]);
    /// child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn lines(&mut self) -> Lines {
        Lines::new(self.chunks())
    }
}

/// One of a child's two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// What a child writes, piece by piece: from [`Child::chunks`].
#[derive(Debug)]
pub struct Chunks {
    streams: [Option<OwnedFd>; 2],
    /// The stream that is looked at first, so that one cannot keep the other waiting.
    first: usize,
}

/// What a child writes, line by line: from [`Child::lines`].
#[derive(Debug)]
pub struct Lines {
    chunks: Chunks,
    /// Lines that have not ended yet.
    begun: [Vec<u8>; 2],
    /// The last thing given of a stream was a piece: a newline now ends that, and no line of its own.
    in_pieces: [bool; 2],
    whole: VecDeque<(Stream, Vec<u8>)>,
}

/// A read takes as much as a pipe holds by default.
const CHUNK: usize = 64 * 1024;

/// A longer line is given in pieces.
const LONGEST_LINE: usize = 1024 * 1024;

impl Chunks {
    pub(crate) fn new(stdout: Option<OwnedFd>, stderr: Option<OwnedFd>) -> Self {
        Self { streams: [stdout, stderr], first: 0 }
    }

    /// Which stream has something; none when both have ended.
    fn ready(&mut self) -> io::Result<Option<usize>> {
        loop {
            let open: Vec<usize> =
                (0..2).map(|n| (n + self.first) % 2).filter(|&n| self.streams[n].is_some()).collect();
            let mut fds: Vec<_> = open
                .iter()
                .filter_map(|&n| Some(PollFd::from_borrowed_fd(self.streams[n].as_ref()?.as_fd(), PollFlags::IN)))
                .collect();
            match (open.as_slice(), fds.len()) {
                ([], _) => return Ok(None),
                // With one there is nothing to choose: the read waits.
                ([only], 1) => return Ok(Some(*only)),
                _ => {}
            }
            match poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                answer => answer?,
            };
            if let Some(at) = fds.iter().position(|fd| !fd.revents().is_empty()) {
                self.first = (open[at] + 1) % 2;
                return Ok(Some(open[at]));
            }
        }
    }
}

impl Iterator for Chunks {
    type Item = io::Result<(Stream, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let n = match self.ready() {
                Ok(ready) => ready?,
                Err(error) => {
                    // Told once.
                    self.streams = [None, None];
                    return Some(Err(error));
                }
            };
            let mut bytes = Vec::with_capacity(CHUNK);
            match read(self.streams[n].as_ref()?, spare_capacity(&mut bytes)) {
                Ok(0) => self.streams[n] = None,
                Ok(count) => {
                    // Whoever collects small ones is not to hold 64 KiB for each.
                    if count < CHUNK / 2 {
                        bytes.shrink_to_fit();
                    }
                    return Some(Ok((if n == 0 { Stream::Stdout } else { Stream::Stderr }, bytes)));
                }
                Err(Errno::INTR) => {}
                Err(error) => {
                    self.streams[n] = None;
                    return Some(Err(error.into()));
                }
            }
        }
    }
}

impl Iterator for Lines {
    type Item = io::Result<(Stream, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(line) = self.whole.pop_front() {
                return Some(Ok(line));
            }
            match self.chunks.next() {
                Some(Ok((stream, bytes))) => self.split(stream, &bytes),
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    // What does not end in a newline is a line too.
                    let stream = if self.begun[0].is_empty() { Stream::Stderr } else { Stream::Stdout };
                    let rest = std::mem::take(&mut self.begun[stream as usize]);
                    return (!rest.is_empty()).then_some(Ok((stream, rest)));
                }
            }
        }
    }
}

impl Lines {
    pub(crate) fn new(chunks: Chunks) -> Self {
        Self { chunks, begun: [Vec::new(), Vec::new()], in_pieces: [false; 2], whole: VecDeque::new() }
    }

    fn split(&mut self, stream: Stream, bytes: &[u8]) {
        let (begun, in_pieces) = (&mut self.begun[stream as usize], &mut self.in_pieces[stream as usize]);
        let mut pieces = bytes.split(|&byte| byte == b'\n');
        let mut piece = pieces.next().unwrap_or(&[]);
        for after in pieces {
            begun.extend_from_slice(piece);
            if !begun.is_empty() || !*in_pieces {
                self.whole.push_back((stream, std::mem::take(begun)));
            }
            (*in_pieces, piece) = (false, after);
        }
        begun.extend_from_slice(piece);
        if begun.len() >= LONGEST_LINE {
            *in_pieces = true;
            self.whole.push_back((stream, std::mem::take(begun)));
        }
    }
}
