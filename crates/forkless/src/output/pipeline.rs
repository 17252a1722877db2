//! Pipelines: programs that run at the same time, each reading what the one before it writes.

use crate::child::Child;
use crate::error::Error;
use crate::kernel::SIGKILL;
use crate::launch::pipes::{DefaultStream, Defaults};
use crate::launch::run::LaunchForm;
use crate::output::capture::{Capture, Captured, Content, drive::Drive, reader};
use crate::plan::Plan;
use crate::plan::compile::compile;
use crate::prepared::Prepared;
use crate::request::command::Command;
use crate::start::Start;
use crate::step::Step;
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
/// Each program is compiled when it is added, and the pipeline can be run any number of times. A standard input or
/// output that a command sets stays as the command sets it, and that pipe is not connected.
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
/// No program has an end of a pipe that is not its own. So each reads the end of its input as soon as the one before it
/// has ended, and gets SIGPIPE as soon as the next one has ended.
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

/// A pipeline whose programs have been started: from [`Pipeline::spawn`].
#[derive(Debug)]
pub struct RunningPipeline {
    /// The programs in their order. The pipeline's own input and output are `stdin` of the first and `stdout` of the
    /// last, if these are pipes.
    pub children: Vec<Child>,
    pipefail: bool,
}

impl PipelineStatus {
    /// The exit status of every program, in their order.
    ///
    /// ```
    /// use forkless::{Command, Pipeline};
    /// let mut pipeline = Pipeline::new();
    /// pipeline.command(&mut Command::new("false"))?.command(&mut Command::new("true"))?;
    /// let codes: Vec<_> = pipeline.status()?.all().iter().map(|status| status.code()).collect();
    /// assert_eq!(codes, [Some(1), Some(0)]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn all(&self) -> &[ExitStatus] {
        &self.statuses
    }

    /// The exit status of the pipeline: that of the last program, or with [`Pipeline::pipefail`] that of the last
    /// program that failed.
    ///
    /// ```
    /// use forkless::{Command, Pipeline};
    /// let mut pipeline = Pipeline::new();
    /// pipeline.command(&mut Command::new("false"))?.command(&mut Command::new("true"))?;
    /// assert_eq!(pipeline.status()?.status().code(), Some(0));
    /// assert_eq!(pipeline.pipefail(true).status()?.status().code(), Some(1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn status(&self) -> ExitStatus {
        let failed = self.statuses.iter().rev().find(|status| !status.success());
        let last = self.statuses.last().copied().unwrap_or_else(|| ExitStatus::from_raw(0));
        if self.pipefail { failed.copied().unwrap_or(last) } else { last }
    }

    /// Whether the [pipeline](Self::status) succeeded.
    ///
    /// ```
    /// let mut pipeline = forkless::Pipeline::new();
    /// pipeline.command(&mut forkless::Command::new("true"))?;
    /// assert!(pipeline.status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn success(&self) -> bool {
        self.status().success()
    }
}

impl Pipeline {
    /// A pipeline without a program.
    ///
    /// ```
    /// use forkless::{Command, Pipeline};
    /// let mut pipeline = Pipeline::new();
    /// pipeline.command(Command::new("ls").arg("/"))?.command(Command::new("wc").arg("-l"))?;
    /// assert!(pipeline.status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a program at the end. Later changes of the command have no effect on the pipeline.
    ///
    /// ```
    /// use forkless::{Command, Pipeline};
    /// let mut pipeline = Pipeline::new();
    /// pipeline.command(Command::new("echo").arg("hello"))?.command(&mut Command::new("cat"))?;
    /// # assert!(pipeline.status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Step::Check`](crate::Step::Check) if the settings are invalid.
    pub fn command(&mut self, command: &mut Command) -> io::Result<&mut Self> {
        self.plans.push(Arc::new(compile(command, true)?));
        Ok(self)
    }

    /// Adds a prepared program at the end.
    ///
    /// ```
    /// use forkless::{Command, Pipeline};
    /// let sort = Command::new("sort").prepare()?;
    /// let mut pipeline = Pipeline::new();
    /// pipeline.command(Command::new("ls").arg("/"))?.prepared(&sort);
    /// assert!(pipeline.status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn prepared(&mut self, prepared: &Prepared) -> &mut Self {
        self.plans.push(Arc::clone(prepared.plan()));
        self
    }

    /// Sets whether the pipeline fails if any of its programs fails (default: only the last one counts), like a shell's
    /// `set -o pipefail`. A program that was killed by SIGPIPE, because the next one read no more, counts as failed.
    ///
    /// ```
    /// use forkless::{Command, Pipeline};
    /// let mut pipeline = Pipeline::new();
    /// pipeline.command(&mut Command::new("false"))?.command(&mut Command::new("true"))?;
    /// assert!(!pipeline.pipefail(true).status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pipefail(&mut self, pipefail: bool) -> &mut Self {
        self.pipefail = pipefail;
        self
    }

    /// Starts all programs, and returns when all of them have been executed. The pipeline's own streams are the
    /// caller's, unless the commands set them.
    ///
    /// ```
    /// use forkless::{Command, Pipeline, Stdio};
    /// use std::io::Read;
    /// let mut pipeline = Pipeline::new();
    /// pipeline.command(Command::new("echo").arg("hello"))?.command(Command::new("cat").stdout(Stdio::piped()))?;
    /// let mut running = pipeline.spawn()?;
    /// let mut text = String::new();
    /// running.children[1].stdout.take().unwrap().read_to_string(&mut text)?;
    /// assert_eq!(text, "hello\n");
    /// assert!(running.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Command::spawn`], of the first program that could not be started; those that were started have been
    /// killed and reaped. [`Step::Check`] if there is no program.
    pub fn spawn(&self) -> io::Result<RunningPipeline> {
        self.start([DefaultStream::Inherit; 3], None)
    }

    /// Runs the pipeline until all its programs have ended.
    ///
    /// ```
    /// use forkless::{Command, Pipeline};
    /// let mut pipeline = Pipeline::new();
    /// pipeline.command(Command::new("echo").arg("hello"))?.command(Command::new("grep").args(["-q", "hello"]))?;
    /// assert!(pipeline.status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn status(&self) -> io::Result<PipelineStatus> {
        self.spawn()?.wait()
    }

    /// Runs the pipeline to its end, with the input, limits and timeout of `how`. It writes the input to the first
    /// program, and captures the standard output of the last one and the standard errors of all.
    ///
    /// The timeout is for the whole pipeline. With [`merged`](Capture::merged), all standard errors go where the last
    /// program's standard output goes.
    ///
    /// ```
    /// use forkless::{Capture, Command, Pipeline};
    /// let mut pipeline = Pipeline::new();
    /// pipeline.command(&mut Command::new("sort"))?.command(Command::new("head").args(["-n", "1"]))?;
    /// let (captured, statuses) = pipeline.capture(&Capture::new().input("b\na\n"))?;
    /// assert_eq!(captured.text(), "a");
    /// assert!(statuses.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn), and errors of reading. [`Step::Check`] with
    /// [`memory_file`](Capture::memory_file), which pipelines do not support.
    pub fn capture(&self, how: &Capture) -> io::Result<(Captured, PipelineStatus)> {
        let first = self.first()?;
        if how.is_in_memory() {
            return Err(Error::check(first.program(), "pipelines do not support memory_file").into());
        }
        let until = how.timing.timeout.and_then(|limit| Instant::now().checked_add(limit));
        let (all, theirs) = make_pipe(first)?;
        let stdin = if how.has_input() { DefaultStream::Piped } else { DefaultStream::Null };
        let stdout = if how.is_merged() { DefaultStream::Pipe(theirs.as_fd()) } else { DefaultStream::Piped };
        let mut running = self.start([stdin, stdout, DefaultStream::Pipe(theirs.as_fd())], until)?;
        drop(theirs);
        let stdout = running.children.last_mut().and_then(|last| last.stdout.take()).map(Into::into);
        let stdin = running.children.first_mut().and_then(|first| first.stdin.take()).map(Into::into);
        let outputs = if how.is_merged() { [Some(all), stdout] } else { [stdout, Some(all)] };
        let mut drive: Drive = how.drive(outputs, stdin);
        // The start has used a part of the timeout.
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
            limit_events: None,
            skipped: running.children.iter().flat_map(|child| child.skipped().to_vec()).collect(),
        };
        Ok((captured, statuses))
    }

    fn first(&self) -> Result<&Arc<Plan>, Error> {
        self.plans.first().ok_or_else(|| Error::check(OsStr::new("a pipeline"), "it has no program"))
    }

    /// `ends`: the first program's input, the last one's output, all standard errors; `until`: how long to wait for the
    /// execs.
    fn start(&self, ends: [DefaultStream<'_>; 3], until: Option<Instant>) -> io::Result<RunningPipeline> {
        self.first()?;
        let mut running = RunningPipeline { children: Vec::with_capacity(self.plans.len()), pipefail: self.pipefail };
        match self.start_each(&mut running, ends, until) {
            Ok(()) => Ok(running),
            Err(error) => {
                for child in &mut running.children {
                    let _ = if child.is_group_leader() { child.signal_group(SIGKILL) } else { Ok(()) };
                    // A child whose launch failed is gone. One that may not be killed is not waited for: it may never end.
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
        ends: [DefaultStream<'_>; 3],
        until: Option<Instant>,
    ) -> io::Result<()> {
        let mut read_from: Option<OwnedFd> = None;
        for (n, plan) in self.plans.iter().enumerate() {
            let next = if n + 1 < self.plans.len() { Some(make_pipe(plan)?) } else { None };
            let stdin = read_from.as_ref().map_or(ends[0], |fd| DefaultStream::Pipe(fd.as_fd()));
            let stdout = next.as_ref().map_or(ends[1], |(_, write)| DefaultStream::Pipe(write.as_fd()));
            let form = if plan.place.is_filtered { LaunchForm::Spawn } else { LaunchForm::Launch };
            running.children.push(Start::new(form).with(Defaults::Each([stdin, stdout, ends[2]])).child(plan)?);
            // The ends that this child has are closed here: an open writing end would keep the next program from its end of
            // input.
            read_from = next.map(|(read, _)| read);
        }
        running.children.iter_mut().try_for_each(|child| match until {
            None => child.wait_exec(),
            Some(until) => child.wait_exec_timeout(until.saturating_duration_since(Instant::now())).map(drop),
        })
    }
}

/// Makes a pipe: the reading end and the writing end.
fn make_pipe(plan: &Plan) -> Result<(OwnedFd, OwnedFd), Error> {
    pipe_with(PipeFlags::CLOEXEC)
        .map_err(|errno| Error::new(plan.program(), Step::Pipe, errno.raw_os_error()).on("of a pipeline"))
}

impl RunningPipeline {
    /// Waits for all programs to end, and returns their exit statuses.
    ///
    /// ```
    /// use forkless::{Command, Pipeline};
    /// let mut pipeline = Pipeline::new();
    /// pipeline.command(Command::new("echo").arg("hello"))?.command(Command::new("grep").args(["-q", "hello"]))?;
    /// let mut running = pipeline.spawn()?;
    /// assert!(running.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Child::wait`]; the other programs have been waited for nevertheless.
    pub fn wait(&mut self) -> io::Result<PipelineStatus> {
        self.end_input();
        let ended: Vec<_> = self.children.iter_mut().map(Child::wait).collect();
        let statuses = ended.into_iter().collect::<io::Result<_>>()?;
        Ok(PipelineStatus { statuses, pipefail: self.pipefail })
    }

    /// Ends the inputs that this process has: a program that reads one to its end would never end.
    fn end_input(&mut self) {
        self.children.iter_mut().for_each(Child::end_input);
    }

    /// Kills all programs with SIGKILL.
    ///
    /// ```
    /// use forkless::{Command, Pipeline};
    /// let mut pipeline = Pipeline::new();
    /// pipeline.command(Command::new("sleep").arg("60"))?.command(&mut Command::new("cat"))?;
    /// let mut running = pipeline.spawn()?;
    /// running.kill()?;
    /// assert!(!running.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error of [`Child::kill`]; the other programs have been killed nevertheless.
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
