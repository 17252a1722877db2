//! Programs in a row, each reading what the one before it writes.

use crate::capture::{Capture, Captured, Content, drive::Drive, reader};
use crate::child::Child;
use crate::compile::Plan;
use crate::error::Error;
use crate::launch::Form;
use crate::pipes::{Defaults, Unsaid};
use crate::step::Step;
use crate::{Command, Prepared};
use forkless_core::planted;
use forkless_core::sys::signal::SIGKILL;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Instant;

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
        let failed = self.statuses.iter().rev().find(|status| !status.success() && !planted!("pipefail-ignored"));
        let last = if planted!("pipeline-status-of-the-first") { self.statuses.first() } else { self.statuses.last() };
        let last = last.copied().unwrap_or_else(|| ExitStatus::from_raw(0));
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
    /// [`Step::Check`] where there is no program.
    pub fn spawn(&self) -> io::Result<RunningPipeline> {
        self.start([Unsaid::Inherit; 3], None)
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn status(&self) -> io::Result<PipelineStatus> {
        self.spawn()?.wait()
    }

    /// Runs it to its end, feeding the first program and taking what the last one writes to its standard output and what all of them
    /// write to their standard errors, as a [`Capture`] says. A time-out is for all together; merged, all standard errors go where
    /// the last one's standard output goes. Memory files are not for pipelines.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn), and of reading. [`Step::Check`] with a [memory file](Capture::memory_file).
    pub fn capture(&self, how: &Capture) -> io::Result<(Captured, PipelineStatus)> {
        let first = self.first()?;
        if how.is_in_memory() {
            return Err(Error::check(first.program(), "memory files are not for pipelines").into());
        }
        let until = how.timing.timeout.and_then(|limit| Instant::now().checked_add(limit));
        let (all, theirs) = make_pipe(first)?;
        let stdin = if how.has_input() { Unsaid::Piped } else { Unsaid::Null };
        let stdout = if how.is_merged() { Unsaid::Pipe(theirs.as_fd()) } else { Unsaid::Piped };
        let mut running = self.start([stdin, stdout, Unsaid::Pipe(theirs.as_fd())], until)?;
        drop(theirs);
        let stdout = running.children.last_mut().and_then(|last| last.stdout.take()).map(Into::into);
        let stdin = running.children.first_mut().and_then(|first| first.stdin.take()).map(Into::into);
        let outputs = if how.is_merged() { [Some(all), stdout] } else { [stdout, Some(all)] };
        let mut drive: Drive = how.drive(outputs, stdin);
        // Of which the start has taken its part.
        drive.timing.timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        running.end_input();
        let driven = drive.run(&mut running.children)?;
        let ended: Vec<_> = running.children.iter_mut().map(|child| driven.status(child.wait())).collect();
        let statuses = ended.into_iter().collect::<io::Result<_>>()?;
        let statuses = PipelineStatus { statuses, pipefail: self.pipefail };
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

    fn first(&self) -> Result<&Arc<Plan>, Error> {
        self.plans.first().ok_or_else(|| Error::check(OsStr::new("a pipeline"), "it has no program"))
    }

    /// `ends`: the first one's input, the last one's output, everybody's errors; `until`: how long to wait for them to execute.
    fn start(&self, ends: [Unsaid<'_>; 3], until: Option<Instant>) -> io::Result<RunningPipeline> {
        self.first()?;
        let mut running = RunningPipeline { children: Vec::with_capacity(self.plans.len()), pipefail: self.pipefail };
        match self.start_each(&mut running, ends, until) {
            Ok(()) => Ok(running),
            Err(error) if planted!("pipeline-left-running") => Err(error),
            Err(error) => {
                for child in &mut running.children {
                    let _ = if child.leads_group() { child.signal_group(SIGKILL) } else { Ok(()) };
                    // One that has failed is gone; one that may not be killed is not waited for.
                    if child.kill().is_ok() {
                        let _ = child.wait();
                    }
                }
                Err(error)
            }
        }
    }

    fn start_each(
        &self,
        running: &mut RunningPipeline,
        ends: [Unsaid<'_>; 3],
        until: Option<Instant>,
    ) -> io::Result<()> {
        let mut read_from: Option<OwnedFd> = None;
        for (n, plan) in self.plans.iter().enumerate() {
            let next = if n + 1 < self.plans.len() { Some(make_pipe(plan)?) } else { None };
            let stdin = read_from.as_ref().map_or(ends[0], |fd| Unsaid::Pipe(fd.as_fd()));
            let stdout = next.as_ref().map_or(ends[1], |(_, write)| Unsaid::Pipe(write.as_fd()));
            let form = if plan.is_filtered { Form::Spawn } else { Form::Launch };
            running.children.push(Child::start(plan, form, Defaults::Each([stdin, stdout, ends[2]]), true)?);
            // The ends that it has taken are closed here, so that nobody else has them.
            read_from = next.map(|(read, write)| {
                if planted!("pipeline-end-kept-by-the-parent") {
                    std::mem::forget(write);
                }
                read
            });
        }
        running.children.iter_mut().try_for_each(|child| match until {
            None => child.wait_exec(),
            Some(until) => child.wait_exec_timeout(until.saturating_duration_since(Instant::now())).map(drop),
        })
    }
}

/// Reading and writing end.
fn make_pipe(plan: &Plan) -> Result<(OwnedFd, OwnedFd), Error> {
    pipe_with(PipeFlags::CLOEXEC).map_err(|errno| {
        let error = Error::new(plan.program(), Step::Pipe, errno.raw_os_error()).on("of a pipeline");
        if errno == Errno::MFILE { error.note("RLIMIT_NOFILE is reached") } else { error }
    })
}

impl RunningPipeline {
    /// Waits for all programs to end.
    ///
    /// # Errors
    /// As for [`Child::wait`]; the others have been waited for nevertheless.
    pub fn wait(&mut self) -> io::Result<PipelineStatus> {
        self.end_input();
        let ended: Vec<_> = self.children.iter_mut().map(Child::wait).collect();
        let statuses = ended.into_iter().collect::<io::Result<_>>()?;
        Ok(PipelineStatus { statuses, pipefail: self.pipefail })
    }

    /// Whoever still reads from us would wait for ever.
    fn end_input(&mut self) {
        self.children.iter_mut().for_each(Child::end_input);
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
