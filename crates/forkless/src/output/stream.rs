//! What a program writes: all of it at its end, or while it runs, line by line or as it comes.

use crate::child::Child;
use crate::launch::pipes::Defaults;
use crate::launch::run::LaunchForm;
use crate::launch::wait::is_sigchld_ignored;
use crate::output::capture::{drive::Drive, reader};
use crate::plan::Plan;
use crate::prepared::Prepared;
use crate::start::{Pidfd, Start};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Output;
use std::sync::Arc;

/// Runs a plan to its end and returns what the program wrote.
pub(crate) fn output(plan: &Arc<Plan>) -> io::Result<Output> {
    // Whether a filter killed the child in exec can be seen only before it is reaped.
    let form = if plan.place.is_filtered { LaunchForm::Spawn } else { LaunchForm::Launch };
    let start = Start::new(form).with(Defaults::Capture).pidfd(Pidfd::Unless(is_sigchld_ignored()));
    start.child(plan)?.wait_with_output()
}

impl Child {
    /// Waits for the child to end, and returns its exit status and what it wrote to those pipes that are still in the
    /// handle. Both pipes are read at the same time.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// let child = Command::new("echo").arg("hello").stdout(Stdio::piped()).spawn()?;
    /// assert_eq!(child.wait_with_output()?.stdout, b"hello\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`wait`](Self::wait), and any error of reading.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        self.read_to_end()
    }

    /// [`wait_with_output`](Self::wait_with_output) of a handle that is needed afterwards.
    #[doc(hidden)]
    pub fn read_to_end(&mut self) -> io::Result<Output> {
        self.end_input();
        let drive = Drive::plain(self.stdout.take().map(Into::into), self.stderr.take().map(Into::into));
        // With limits, the end of the child kills processes that it has left with the pipes open.
        let children = if self.has_group() { std::slice::from_mut(&mut *self) } else { &mut [] };
        let [stdout, stderr] = drive.run(children)?.readers.map(|reader| reader::finish(reader).0);
        Ok(Output { status: self.wait()?, stdout, stderr })
    }

    /// An iterator over what the child writes to the pipes of its standard output and error, as it comes: the stream,
    /// and at most 64 KiB of it at a time. It takes both pipes out of this handle, and ends when both have ended.
    ///
    /// The two streams are two pipes: what was written to them within microseconds may come in another order. If the
    /// order matters, make them one stream with `stderr(Stdio::dup_of(1))`.
    ///
    /// ```
    /// use forkless::{Command, Stdio, Stream};
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "echo out; echo err >&2"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    /// let mut child = command.spawn()?;
    /// for chunk in child.chunks() {
    ///     match chunk? {
    ///         (Stream::Stdout, bytes) => assert_eq!(bytes, b"out\n"),
    ///         (Stream::Stderr, bytes) => assert_eq!(bytes, b"err\n"),
    ///     }
    /// }
    /// # child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn chunks(&mut self) -> Chunks {
        Chunks::new(self.stdout.take().map(Into::into), self.stderr.take().map(Into::into))
    }

    /// [`chunks`](Self::chunks), but line by line, without the newlines. Bytes after the last newline are a line too. A
    /// line longer than 1 MiB comes in pieces.
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

/// One of a child's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// An iterator over what a child writes, as it comes: from [`Child::chunks`].
#[derive(Debug)]
pub struct Chunks {
    streams: [Option<OwnedFd>; 2],
    /// The stream that is looked at first. It alternates, so that a busy stream does not starve the other.
    first: usize,
}

/// An iterator over what a child writes, line by line: from [`Child::lines`].
#[derive(Debug)]
pub struct Lines {
    chunks: Chunks,
    /// The beginnings of lines whose newline has not come yet.
    begun: [Vec<u8>; 2],
    /// The last item of this stream was a piece of a long line. A newline that follows ends that line, and is no empty
    /// line.
    in_pieces: [bool; 2],
    whole: VecDeque<(Stream, Vec<u8>)>,
}

/// The size of a read: what a pipe holds by default.
const CHUNK: usize = 64 * 1024;

/// A line longer than this is returned in pieces.
const LONGEST_LINE: usize = 1024 * 1024;

impl Chunks {
    pub(crate) fn new(stdout: Option<OwnedFd>, stderr: Option<OwnedFd>) -> Self {
        Self { streams: [stdout, stderr], first: 0 }
    }

    /// Waits until a stream can be read; `None` when both have ended.
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
                // With one stream there is nothing to choose: the read waits.
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

    /// Sleeps until the stream can be read. An error comes again from the read.
    fn wait_for(&self, n: usize) {
        if let Some(stream) = &self.streams[n] {
            let _ = poll(&mut [PollFd::new(stream, PollFlags::IN)], None);
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
                    // The error is returned once; after it the iterator is at its end.
                    self.streams = [None, None];
                    return Some(Err(error));
                }
            };
            let mut bytes = Vec::with_capacity(CHUNK);
            match read(self.streams[n].as_ref()?, spare_capacity(&mut bytes)) {
                Ok(0) => self.streams[n] = None,
                Ok(count) => {
                    // A caller that collects small chunks should not hold 64 KiB for each.
                    if count < CHUNK / 2 {
                        bytes.shrink_to_fit();
                    }
                    return Some(Ok((if n == 0 { Stream::Stdout } else { Stream::Stderr }, bytes)));
                }
                Err(Errno::INTR) => {}
                // The caller has set O_NONBLOCK.
                Err(Errno::AGAIN) => self.wait_for(n),
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
                    // Bytes after the last newline are a line too.
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

impl Prepared {
    /// Runs the program to its end and returns what it wrote, as [`Command::output`](crate::Command::output) does.
    ///
    /// # Errors
    /// As for [`Command::output`](crate::Command::output).
    ///
    /// ```
    /// let prepared = forkless::Command::new("echo").arg("hello").prepare()?;
    /// assert_eq!(prepared.output()?.stdout, b"hello\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn output(&self) -> io::Result<Output> {
        output(self.plan())
    }
}
