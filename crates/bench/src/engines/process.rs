//! One engine that runs: requests go to it, answers come back.

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
/// Where an engine finds its requests, and where it writes its answers. Its standard streams are those of its children.
pub(crate) const REQUESTS: i32 = 3;
pub(crate) const ANSWERS: i32 = 4;

/// An engine that waits for requests. Ends when dropped.
pub(super) struct Process {
    child: Child,
    requests: Option<PipeWriter>,
    answers: BufReader<PipeReader>,
}

impl Process {
    /// Starts it; returns its greeting as well, without the words that all have.
    ///
    /// # Errors
    /// When it does not start or does not greet.
    pub(super) fn start(mut command: Command) -> Result<(Self, String)> {
        let (theirs, requests) = io::pipe()?;
        let (answers, answering) = io::pipe()?;
        command.fd(OwnedFd::from(theirs), REQUESTS).fd(OwnedFd::from(answering), ANSWERS);
        // In a process group of its own: Ctrl-C is for us, and the engine ends when we are gone.
        let child = command.process_group(0).spawn()?;
        // Our copies of its ends.
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

    /// Makes a request and returns the answer without its first word.
    ///
    /// # Errors
    /// When it says that it failed, or nothing.
    pub(super) fn ask(&mut self, request: &str, limit: Duration) -> Result<String> {
        let requests = self.requests.as_mut().context("no pipe")?;
        requests.write_all(format!("{request}\n").as_bytes()).with_context(|| format!("request {request:?}"))?;
        let answer = self.line(limit).with_context(|| format!("request {request:?}"))?;
        match answer.split_once(' ').unwrap_or((&answer, "")) {
            ("ok" | "done", rest) => Ok(rest.to_owned()),
            ("failed", words) => bail!("{words}"),
            _ => bail!("request {request:?}: it answered {answer:?}"),
        }
    }

    /// Lets it end.
    pub(super) fn end(&mut self) {
        drop(self.requests.take());
    }

    /// Makes a request for whose answer nobody waits, and is gone; returns how it ends.
    #[cfg(test)]
    pub(super) fn leave(&mut self, request: &str) -> Result<std::process::ExitStatus> {
        self.requests.as_mut().context("no pipe")?.write_all(request.as_bytes())?;
        self.answers = BufReader::new(io::pipe()?.0);
        self.end();
        self.child.wait_timeout(PATIENCE)?.context("it does not end")
    }

    /// One line, without its end.
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
            ensure!(!rest.is_zero(), "it does not answer");
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
        // It ends at the end of its input; if it does not, it is in a turn that nobody waits for.
        if !matches!(self.child.wait_timeout(Duration::from_secs(2)), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
