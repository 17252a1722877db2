//! Programs in a row, each reading what the one before it writes.

use crate::capture::{Capture, Captured, Content, drive::Drive, reader};
use crate::child::Child;
use crate::compile::Plan;
use crate::launch::Form;
use crate::pipes::{Defaults, Unsaid};
use crate::{Command, Prepared};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;

/// Programs in a row: the standard output of each is the standard input of the next, as in a shell's `a | b | c`.
///
/// Each is compiled when it is added, and the pipeline can be run any number of times. Where a command says what its standard
/// input or output is, that holds, and the pipe ends there.
///
/// ```
/// use forkless::{Capture, Command, Pipeline};
/// let mut pipeline = Pipeline::new();
/// pipeline.command(Command::new("printf").arg("b\\na\\nb\\n"))?;
/// pipeline.command(&mut Command::new("sort"))?.command(&mut Command::new("uniq"))?;
/// let (captured, statuses) = pipeline.capture(&Capture::new())?;
/// assert_eq!(&captured.stdout[..], b"a\nb\n");
/// assert!(statuses.all().iter().all(|status| status.success()));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// No program holds an end of a pipe that is not its own, so each sees the end of its input as soon as the one before it has
/// ended, and SIGPIPE as soon as the next one has.
#[derive(Default)]
pub struct Pipeline {
    plans: Vec<Arc<Plan>>,
    pipefail: bool,
}

/// How the programs of a [`Pipeline`] ended.
#[derive(Debug, Clone)]
pub struct PipelineStatus {
    statuses: Vec<ExitStatus>,
    pipefail: bool,
}

/// A pipeline whose programs have been launched: from [`Pipeline::spawn`].
#[derive(Debug)]
pub struct RunningPipeline {
    /// The programs, in their order. The first one's `stdin` and the last one's `stdout` are those of the pipeline, where they are
    /// pipes.
    pub children: Vec<Child>,
    pipefail: bool,
}

impl PipelineStatus {
    /// Every program's own, in their order.
    pub fn all(&self) -> &[ExitStatus] {
        &self.statuses
    }

    /// That of the pipeline: the last program's; with [`Pipeline::pipefail`] that of the last one that failed.
    pub fn status(&self) -> ExitStatus {
        let failed = self.statuses.iter().rev().find(|status| !status.success());
        let last = self.statuses.last().copied().unwrap_or_else(|| ExitStatus::from_raw(0));
        if self.pipefail { failed.copied().unwrap_or(last) } else { last }
    }

    /// Did the [pipeline](Self::status) succeed?
    pub fn success(&self) -> bool {
        self.status().success()
    }
}

impl Pipeline {
    /// A pipeline without a program.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a program at the end.
    ///
    /// # Errors
    /// [`Step::Check`](crate::Step::Check) where the request makes no sense.
    pub fn command(&mut self, command: &mut Command) -> io::Result<&mut Self> {
        self.plans.push(Arc::new(Plan::compile(command, true)?));
        Ok(self)
    }

    /// Adds a program that has been prepared.
    pub fn prepared(&mut self, prepared: &Prepared) -> &mut Self {
        self.plans.push(Arc::clone(prepared.plan()));
        self
    }

    /// Has the pipeline failed if any of its programs has, as with a shell's `set -o pipefail`? One that was killed by SIGPIPE, since the
    /// next one wanted no more, has failed as well.
    pub fn pipefail(&mut self, pipefail: bool) -> &mut Self {
        self.pipefail = pipefail;
        self
    }

    /// Starts all programs. The pipeline's own streams are the caller's, unless the commands say otherwise.
    ///
    /// # Errors
    /// As for [`Command::spawn`], of the first program that could not be started; those that could have been killed and reaped.
    pub fn spawn(&self) -> io::Result<RunningPipeline> {
        self.start([Unsaid::Inherit; 3])
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn status(&self) -> io::Result<PipelineStatus> {
        self.spawn()?.wait()
    }

    /// Runs it to its end, feeding the first program and taking what the last one writes to its standard output and what all of them
    /// write to their standard errors, as a [`Capture`] says. A time-out is for all together. Memory files are not for pipelines.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn), and of reading.
    pub fn capture(&self, how: &Capture) -> io::Result<(Captured, PipelineStatus)> {
        let (errors, their_errors) = pipe_with(PipeFlags::CLOEXEC)?;
        let stdin = if how.has_input() { Unsaid::Piped } else { Unsaid::Null };
        let mut running = self.start([stdin, Unsaid::Piped, Unsaid::Pipe(their_errors.as_fd())])?;
        drop(their_errors);
        let stdout = running.children.last_mut().and_then(|last| last.stdout.take()).map(Into::into);
        let stdin = running.children.first_mut().and_then(|first| first.stdin.take()).map(Into::into);
        let drive: Drive = how.drive([stdout, Some(errors)], stdin);
        let driven = drive.run(&mut running.children)?;
        let statuses = running.wait()?;
        let [(stdout, stdout_cut), (stderr, stderr_cut)] = driven.readers.map(reader::finish);
        let captured = Captured {
            status: statuses.status(),
            stdout: Content::from(stdout),
            stderr: Content::from(stderr),
            stdout_cut,
            stderr_cut,
            input_left: driven.input_left,
            timed_out: driven.timed_out,
            held_open: driven.held_open,
            usage: None,
            missed: running.children.iter().flat_map(|child| child.missed().to_vec()).collect(),
        };
        Ok((captured, statuses))
    }

    /// `ends`: the first one's input, the last one's output, everybody's errors.
    fn start(&self, ends: [Unsaid<'_>; 3]) -> io::Result<RunningPipeline> {
        let mut running = RunningPipeline { children: Vec::with_capacity(self.plans.len()), pipefail: self.pipefail };
        match self.start_each(&mut running, ends) {
            Ok(()) => Ok(running),
            Err(error) => {
                for child in &mut running.children {
                    let _ = child.kill();
                    // One that has failed is gone; the others were just killed.
                    let _ = child.wait();
                }
                Err(error)
            }
        }
    }

    fn start_each(&self, running: &mut RunningPipeline, ends: [Unsaid<'_>; 3]) -> io::Result<()> {
        let mut read_from: Option<OwnedFd> = None;
        for (n, plan) in self.plans.iter().enumerate() {
            let next = if n + 1 < self.plans.len() { Some(pipe_with(PipeFlags::CLOEXEC)?) } else { None };
            let stdin = read_from.as_ref().map_or(ends[0], |fd| Unsaid::Pipe(fd.as_fd()));
            let stdout = next.as_ref().map_or(ends[1], |(_, write)| Unsaid::Pipe(write.as_fd()));
            let form = if plan.is_filtered { Form::Spawn } else { Form::Launch };
            running.children.push(Child::start(plan, form, Defaults::Each([stdin, stdout, ends[2]]), true)?);
            // The ends that it has taken are closed here, so that nobody else has them.
            read_from = next.map(|(read, _)| read);
        }
        running.children.iter_mut().try_for_each(Child::wait_exec)
    }
}

impl RunningPipeline {
    /// Waits for all programs to end.
    ///
    /// # Errors
    /// As for [`Child::wait`]; the others have been waited for nevertheless.
    pub fn wait(&mut self) -> io::Result<PipelineStatus> {
        // Whoever still reads from us would wait for ever.
        self.children.iter_mut().for_each(|child| drop(child.stdin.take()));
        let ended: Vec<_> = self.children.iter_mut().map(Child::wait).collect();
        let statuses = ended.into_iter().collect::<io::Result<_>>()?;
        Ok(PipelineStatus { statuses, pipefail: self.pipefail })
    }

    /// Kills all programs with SIGKILL.
    ///
    /// # Errors
    /// The first one of [`Child::kill`]'s; the others have been killed nevertheless.
    pub fn kill(&mut self) -> io::Result<()> {
        let killed: Vec<_> = self.children.iter_mut().map(Child::kill).collect();
        killed.into_iter().collect()
    }
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list().entries(self.plans.iter().map(|plan| plan.program())).finish()
    }
}
