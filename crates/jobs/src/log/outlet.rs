//! Where the output of all jobs goes. The only writer of the log: a job gets its line when its output is out.

use super::Log;
use crate::source::{Sink, Stream};
use crate::summary::Ended;
use std::io;

pub(crate) struct Outlet<'a> {
    sink: &'a mut dyn Sink,
    log: Option<Log>,
    /// Some output could not be written. It may be that of any job, because sinks have buffers.
    has_failed: bool,
}

impl<'a> Outlet<'a> {
    pub(crate) fn new(sink: &'a mut dyn Sink, log: Option<Log>) -> Self {
        Self { sink, log, has_failed: false }
    }

    /// Ends the output of a job. The job gets a line in the log if `is_done`: it has ended by itself, and none of its output
    /// is lost. A later run skips jobs that are in the log, so what is buffered goes out before.
    pub(crate) fn complete(&mut self, ended: &Ended, host: Option<&str>, is_done: bool) -> io::Result<()> {
        let answer = self.sink.written(ended);
        let mut answer = self.noted(answer);
        if self.log.is_none() || !is_done {
            return answer;
        }
        let flushed = self.sink.flush();
        answer = answer.and(self.noted(flushed));
        if let Some(log) = self.log.as_mut().filter(|_| !self.has_failed) {
            log.write(ended, host);
        }
        answer
    }

    /// Writes the lines that could not be written to the log before.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.log.as_mut().map_or(Ok(()), Log::end)
    }

    fn noted(&mut self, answer: io::Result<()>) -> io::Result<()> {
        self.has_failed |= answer.is_err();
        answer
    }
}

impl Sink for Outlet<'_> {
    fn write(&mut self, seq: u64, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let answer = self.sink.write(seq, stream, bytes);
        self.noted(answer)
    }

    fn flush(&mut self) -> io::Result<()> {
        let answer = self.sink.flush();
        self.noted(answer)
    }
}
