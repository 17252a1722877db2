//! A running engine: sends requests and reads answers.

use std::{
    io::{self, BufRead, BufReader, PipeReader, PipeWriter, Write},
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use forkless::{Child, Command};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::PATIENCE;

/// The first words of a greeting.
pub(crate) const GREETING: &str = "forkless-engine 2 ";
/// The descriptors for requests and answers. The standard streams belong to the engine's children.
pub(crate) const REQUESTS: i32 = 3;
pub(crate) const ANSWERS: i32 = 4;

/// A running engine. It is ended on drop.
pub(super) struct Process {
    child: Child,
    requests: Option<PipeWriter>,
    answers: BufReader<PipeReader>,
}

impl Process {
    /// Starts it; also returns its greeting without the common prefix.
    ///
    /// # Errors
    /// If it does not start or sends no greeting.
    pub(super) fn start(mut command: Command) -> Result<(Self, String)> {
        let (theirs, requests) = io::pipe()?;
        let (answers, answering) = io::pipe()?;
        command.fd(OwnedFd::from(theirs), REQUESTS).fd(OwnedFd::from(answering), ANSWERS);
        // In a separate process group: Ctrl-C must reach the bench only. The engine ends at the end of its requests.
        let child = command.process_group(0).spawn()?;
        // Close this process's copies of the engine's ends.
        drop(command);
        let mut process = Self { child, requests: Some(requests), answers: BufReader::new(answers) };
        let greeting = process.line(PATIENCE)?;
        if let Some(words) = greeting.strip_prefix("failed ") {
            bail!("{words}");
        }
        let rest = greeting.strip_prefix(GREETING).with_context(|| format!("its greeting was {greeting:?}"))?;
        let rest = rest.to_owned();
        Ok((process, rest))
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a request and returns the answer without its first word.
    ///
    /// # Errors
    /// If it reports a failure or does not answer in time.
    pub(super) fn ask(&mut self, request: &str, limit: Duration) -> Result<String> {
        let requests = self.requests.as_mut().context("no pipe")?;
        requests.write_all(format!("{request}\n").as_bytes()).with_context(|| format!("request {request:?}"))?;
        let answer = self.line(limit).with_context(|| format!("request {request:?}"))?;
        match answer.split_once(' ').unwrap_or((&answer, "")) {
            ("ok" | "done", rest) => Ok(rest.to_owned()),
            ("failed", words) => bail!("{words}"),
            _ => bail!("the engine answered {answer:?} to the request {request:?}"),
        }
    }

    /// Ends the engine.
    pub(super) fn end(&mut self) {
        drop(self.requests.take());
    }

    /// Sends a request, closes the connection without waiting for the answer, and returns the exit status.
    #[cfg(test)]
    pub(super) fn leave(&mut self, request: &str) -> Result<std::process::ExitStatus> {
        self.requests.as_mut().context("no pipe")?.write_all(request.as_bytes())?;
        self.answers = BufReader::new(io::pipe()?.0);
        self.end();
        self.child.wait_timeout(PATIENCE)?.context("it does not end")
    }

    /// Reads one line, without the newline.
    fn line(&mut self, limit: Duration) -> Result<String> {
        let end = Instant::now() + limit;
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            if self.answers.buffer().is_empty() {
                self.wait_for_answer(end)?;
            }
            let buffer = self.answers.fill_buf()?;
            ensure!(!buffer.is_empty(), "it ended");
            let length = buffer.iter().position(|&byte| byte == b'\n').map_or(buffer.len(), |newline| newline + 1);
            line.extend_from_slice(&buffer[..length]);
            self.answers.consume(length);
        }
        line.pop();
        Ok(String::from_utf8(line)?)
    }

    fn wait_for_answer(&self, end: Instant) -> Result<()> {
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            ensure!(!rest.is_zero(), "the engine does not answer");
            let mut files = [PollFd::new(self.answers.get_ref(), PollFlags::IN)];
            match rustix::event::poll(&mut files, Some(&Timespec::try_from(rest)?)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => bail!(error),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
        // It ends at the end of its requests. If it is still in a turn, it is killed.
        if !matches!(self.child.wait_timeout(Duration::from_secs(2)), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
