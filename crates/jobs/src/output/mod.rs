//! Captured output: reading it, keeping it until its turn comes, and writing it with its tags.

pub(crate) mod kept;

pub(crate) mod spill;

use crate::job::Job;
use crate::source::{Sink, Stream};
use kept::Kept;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ReadWriteFlags, ioctl_fionread, preadv2};
use spill::Spill;
use std::fs::File;
use std::io::{self, IoSliceMut, Write};
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Output};

/// How much is read at once.
pub(crate) const PIECE: usize = 64 * 1024;

/// How much is read at once until a read fills that: a buffer that is not used needs no memory.
pub(crate) const FIRST: usize = 4096;

/// Makes the buffer larger after it has been filled.
pub(crate) fn filled(scratch: &mut Vec<u8>) {
    scratch.resize(PIECE, 0);
}

/// A line that is longer is passed on in pieces.
const LONGEST_LINE: usize = 1 << 20;

/// The output of one job.
pub(crate) struct Capture {
    pub(crate) streams: [Captured; 2],
    /// The job's head has been written.
    headed: bool,
    pub(crate) received: u64,
    /// A part of the output is lost.
    is_cut: bool,
    /// Why the second copies are not complete.
    pub(crate) copy_error: Option<io::Error>,
    /// So many bytes of it are kept.
    most: u64,
}

/// One of its streams.
pub(crate) struct Captured {
    stream: Stream,
    pub(crate) pipe: Option<OwnedFd>,
    kept: Kept,
    /// What the shell would have added after the program's end.
    message: Vec<u8>,
    /// The beginning of a line, where whole lines are passed on.
    line: Vec<u8>,
    /// The next byte begins a line, and needs a tag before it.
    fresh: bool,
    /// A second copy, for the results.
    copy: Option<File>,
}

/// Where the output of a job is written when it is its turn, and kept before.
pub(crate) struct OutputPath<'a> {
    pub(crate) seq: u64,
    pub(crate) job: &'a Job,
    pub(crate) sink: &'a mut dyn Sink,
    pub(crate) spill: &'a mut Spill,
}

impl Capture {
    pub(crate) fn new(
        out: Option<OwnedFd>,
        err: Option<OwnedFd>,
        copies: [Option<File>; 2],
        most: Option<u64>,
    ) -> Self {
        let [first, second] = copies;
        let captured = |stream, pipe, copy| Captured {
            stream,
            pipe,
            kept: Kept::default(),
            message: Vec::new(),
            line: Vec::new(),
            fresh: true,
            copy,
        };
        let streams = [captured(Stream::Out, out, first), captured(Stream::Err, err, second)];
        let most = most.unwrap_or(u64::MAX);
        Self { streams, headed: false, received: 0, most, is_cut: false, copy_error: None }
    }

    /// Output that has come as a whole, as from another machine.
    pub(crate) fn whole(out: Vec<u8>, err: Vec<u8>, copies: [Option<File>; 2]) -> Self {
        let mut capture = Self::new(None, None, copies, None);
        let [first, second] = &mut capture.streams;
        (first.message, second.message) = (out, err);
        capture
    }

    /// Keeps what a shell would have written after the program's end, and returns the status.
    pub(crate) fn note(&mut self, output: Output) -> ExitStatus {
        let [out, err] = &mut self.streams;
        (out.message, err.message) = (output.stdout, output.stderr);
        output.status
    }

    /// Takes bytes that have been read. With `lines`, whole lines are written if it is their turn; all else is kept. An
    /// error is one of writing or keeping them; those that cannot be moved to the file are kept in memory.
    pub(crate) fn take(
        &mut self,
        index: usize,
        bytes: &[u8],
        lines: bool,
        mut way: OutputPath<'_>,
        turn: bool,
    ) -> io::Result<()> {
        let bytes = within(bytes, &mut self.received, self.most);
        let one = &mut self.streams[index];
        one.copy_to(bytes, &mut self.copy_error);
        if !lines {
            return one.kept.push(bytes, way.spill);
        }
        let whole = match bytes.iter().rposition(|&byte| byte == b'\n') {
            Some(end) => end + 1,
            None if one.line.len() + bytes.len() > LONGEST_LINE => bytes.len(),
            None => 0,
        };
        let mut ready = Vec::new();
        if whole > 0 {
            ready = std::mem::take(&mut one.line);
            ready.extend_from_slice(&bytes[..whole]);
        }
        one.line.extend_from_slice(&bytes[whole..]);
        if whole == 0 {
            return Ok(());
        }
        if !turn {
            return one.kept.push(&ready, way.spill);
        }
        // Lines that are written at once take no room among the kept bytes.
        let answer = self.write(&mut way);
        answer.and(self.streams[index].emit(&ready, &mut way))
    }

    /// Whether all output has been passed on, and all copies that were requested are complete.
    pub(crate) fn is_whole(&self, copied: bool) -> bool {
        !self.is_cut && (!copied || self.streams.iter().all(|one| one.copy.is_some()))
    }

    /// Whether both streams have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.streams.iter().all(|one| one.pipe.is_none())
    }

    /// Whether a process holds a write end open.
    pub(crate) fn is_open(&self) -> bool {
        let mut pipes = self.streams.iter().filter_map(|one| one.pipe.as_ref());
        let Some(first) = pipes.next() else { return false };
        // The kernel reports POLLHUP without a request.
        let mut files = [first, pipes.next().unwrap_or(first)].map(|pipe| PollFd::new(pipe, PollFlags::empty()));
        let _ = poll(&mut files, Some(&Timespec::default()));
        files.iter().any(|file| !file.revents().contains(PollFlags::HUP))
    }

    /// Closes the pipes, because there is no room for further output.
    pub(crate) fn cut(&mut self) {
        self.is_cut = true;
        self.streams.iter_mut().for_each(|one| one.pipe = None);
    }

    /// Writes what is kept.
    pub(crate) fn write(&mut self, way: &mut OutputPath<'_>) -> io::Result<()> {
        if !self.headed {
            self.headed = true;
            head(way)?;
        }
        let answer = self.streams.iter_mut().try_for_each(|one| one.write(way));
        self.is_cut |= answer.is_err();
        answer
    }

    /// Frees what is kept.
    pub(crate) fn discard(self, spill: &mut Spill) {
        self.streams.into_iter().for_each(|one| one.kept.discard(spill));
    }

    /// The job has ended: closes the pipes, after what they hold has been read. Each stream's rest is written if its
    /// turn has come.
    pub(crate) fn finish(&mut self, scratch: &mut Vec<u8>, mut way: OutputPath<'_>, turn: bool) -> io::Result<()> {
        if turn && !self.headed {
            self.headed = true;
            head(&mut way)?;
        }
        let mut answer = Ok(());
        for one in &mut self.streams {
            let pipe = one.pipe.take();
            let line = std::mem::take(&mut one.line);
            answer = answer.and(one.kept.push(&line, way.spill));
            if turn {
                let written = one.write(&mut way);
                self.is_cut |= written.is_err();
                answer = answer.and(written);
            }
            let message = std::mem::take(&mut one.message);
            let mut rest = |bytes: &[u8]| {
                let bytes = within(bytes, &mut self.received, self.most);
                one.copy_to(bytes, &mut self.copy_error);
                if turn { one.emit(bytes, &mut way) } else { one.kept.push(bytes, way.spill) }
            };
            // Only what is in the pipe now: another process may hold it open, and write for ever.
            let pipe = pipe.as_ref();
            let first = pipe.and_then(|pipe| read_now(pipe, scratch));
            if let Some(count) = first.filter(|&count| count > 0) {
                answer = answer.and(rest(&scratch[..count]));
            }
            let mut left = match (first, pipe) {
                // Less than the buffer holds: the pipe was emptied. This is the frequent case.
                (Some(count), _) if count < scratch.len() => 0,
                (_, Some(pipe)) => {
                    filled(scratch);
                    ioctl_fionread(pipe).unwrap_or(0)
                }
                (_, None) => 0,
            };
            while let Some(pipe) = pipe.filter(|_| left > 0) {
                let most = scratch.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let Some(count) = read(pipe, &mut scratch[..most]).filter(|&count| count > 0) else { break };
                left -= count as u64;
                answer = answer.and(rest(&scratch[..count]));
            }
            if !message.is_empty() {
                answer = answer.and(rest(&message));
            }
        }
        answer
    }
}

impl Captured {
    /// Writes the second copy, until that fails.
    fn copy_to(&mut self, bytes: &[u8], error: &mut Option<io::Error>) {
        if let Some(Err(why)) = self.copy.as_mut().map(|copy| copy.write_all(bytes)) {
            self.copy = None;
            *error = Some(why);
        }
    }

    fn write(&mut self, way: &mut OutputPath<'_>) -> io::Result<()> {
        let kept = std::mem::take(&mut self.kept);
        let Self { stream, fresh, .. } = self;
        let OutputPath { seq, job, sink, spill } = way;
        kept.drain(spill, |bytes| tagged(&job.tag, fresh, bytes, |piece| sink.write(*seq, *stream, piece)))
    }

    fn emit(&mut self, bytes: &[u8], way: &mut OutputPath<'_>) -> io::Result<()> {
        let stream = self.stream;
        tagged(&way.job.tag, &mut self.fresh, bytes, |piece| way.sink.write(way.seq, stream, piece))
    }
}

/// Returns the bytes that do not exceed the limit `most` together with those `received`, and counts all of them as received.
fn within<'a>(bytes: &'a [u8], received: &mut u64, most: u64) -> &'a [u8] {
    let left = most.saturating_sub(*received);
    *received += bytes.len() as u64;
    &bytes[..bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX))]
}

/// Writes the job's head.
pub(crate) fn head(way: &mut OutputPath<'_>) -> io::Result<()> {
    if way.job.head.is_empty() { Ok(()) } else { way.sink.write(way.seq, Stream::Out, &way.job.head) }
}

/// Reads what is there; `None`: nothing for now. To be called only when the pipe is known to be readable.
pub(crate) fn read(pipe: &OwnedFd, scratch: &mut [u8]) -> Option<usize> {
    match rustix::io::read(pipe, scratch) {
        Ok(count) => Some(count),
        Err(Errno::INTR | Errno::AGAIN) => None,
        // Treated as the end.
        Err(_) => Some(0),
    }
}

/// Reads what is in the pipe, without a wait; 0: nothing. `None`: the kernel cannot do that, as before Linux 6.4.
fn read_now(pipe: &OwnedFd, scratch: &mut [u8]) -> Option<usize> {
    /// Offset -1: a pipe has no positions.
    const PRESENT: u64 = u64::MAX;
    match preadv2(pipe, &mut [IoSliceMut::new(scratch)], PRESENT, ReadWriteFlags::NOWAIT) {
        Ok(count) => Some(count),
        Err(Errno::AGAIN) => Some(0),
        Err(_) => None,
    }
}

/// Passes bytes on with the tag before each line.
pub(crate) fn tagged(
    tag: &[u8],
    fresh: &mut bool,
    bytes: &[u8],
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    if tag.is_empty() || bytes.is_empty() {
        return if bytes.is_empty() { Ok(()) } else { write(bytes) };
    }
    let mut text = Vec::with_capacity(bytes.len() + 16 * tag.len());
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        if *fresh {
            text.extend_from_slice(tag);
        }
        text.extend_from_slice(line);
        *fresh = line.ends_with(b"\n");
    }
    write(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_comes_before_each_line_however_it_is_cut() {
        let text = b"one\n\ntwo\nthree";
        for cut in 0..text.len() {
            let (mut fresh, mut found) = (true, Vec::new());
            for part in [&text[..cut], &text[cut..]] {
                let collect = |piece: &[u8]| {
                    found.extend_from_slice(piece);
                    Ok(())
                };
                tagged(b"t\t", &mut fresh, part, collect).expect("written");
            }
            assert_eq!(found, b"t\tone\nt\t\nt\ttwo\nt\tthree");
        }
    }
}
