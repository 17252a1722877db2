//! The methods of forkless.

use std::{process::ExitStatus, sync::OnceLock, time::Instant};

use anyhow::{Context, Result};
use forkless::{
    Capture, Child, Command, Prepared, Stdio,
    zygote::{Zygote, ZygoteOptions},
};

use super::{
    budget::Helpers,
    launcher::{Job, Launcher, check_output, look_through, nanoseconds},
    program::check,
    statistics::Sample,
};

/// The calls that launch and wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallForm {
    /// `spawn()`, then `wait()`
    Spawn,
    /// `launch()`, then `wait()`
    Launch,
    /// As `Spawn`, with `inherit_all`
    Inherit,
    /// As `Spawn`, with another launcher
    By(forkless::Launcher),
    /// `status()`
    Status,
    /// `output()`
    Output,
    /// `capture()` in memfds
    MemoryFile,
    /// `Zygote::spawn()`, then `wait()`
    Zygote,
}

/// Capture without a copy.
fn memory_file() -> Capture {
    Capture::new().memory_file(true)
}

/// One zygote for the whole benchmark, as in a real program. It is started in the warm-up, which is not measured.
fn zygote() -> &'static Zygote {
    static ZYGOTE: OnceLock<(Zygote, Helpers)> = OnceLock::new();
    let start = || {
        let zygote = Zygote::start(&ZygoteOptions::new()).expect("this program serves as its own zygote");
        let helper = Helpers::count(zygote.pid());
        (zygote, helper)
    };
    &ZYGOTE.get_or_init(start).0
}

pub(crate) fn command(job: &Job) -> Result<Command> {
    let mut command = Command::new(&job.program.path);
    command.args(&job.program.args);
    if job.condition.pipes > 0 {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    job.wishes.put_on(&mut command)?;
    Ok(command)
}

/// Waits and drops the handle and the pipes. This is included in the time, as for `std`.
pub(crate) fn finish(start: Instant, mut child: Child) -> Result<Sample> {
    let held_ns = nanoseconds(start);
    let status = child.wait().context("not waited for")?;
    drop(child);
    let total_ns = nanoseconds(start);
    check(status)?;
    Ok(Sample { held_ns, total_ns })
}

fn whole(start: Instant, status: ExitStatus) -> Result<Sample> {
    let total_ns = nanoseconds(start);
    check(status)?;
    Ok(Sample { held_ns: total_ns, total_ns })
}

fn captured(start: Instant, status: ExitStatus, stdout: &[u8], job: &Job) -> Result<Sample> {
    let intact = look_through(stdout);
    let total_ns = nanoseconds(start);
    check(status)?;
    check_output(job.condition.output, intact, stdout.len())?;
    Ok(Sample { held_ns: total_ns, total_ns })
}

/// A `Command` built for each launch. Building it is included in the time, as for `std`.
pub(crate) struct OneShot<'p> {
    job: Job<'p>,
    form: CallForm,
}

impl<'p> OneShot<'p> {
    pub(crate) fn new(job: &Job<'p>, form: CallForm) -> Self {
        Self { job: *job, form }
    }
}

impl Launcher for OneShot<'_> {
    fn launch(&mut self) -> Result<Sample> {
        let start = Instant::now();
        let mut command = command(&self.job)?;
        match self.form {
            CallForm::Spawn => finish(start, command.spawn().context("not launched")?),
            CallForm::Inherit => finish(start, command.inherit_all(true).spawn().context("not launched")?),
            CallForm::By(launcher) => finish(start, command.launcher(launcher).spawn().context("not launched")?),
            CallForm::Launch => finish(start, command.launch().context("not launched")?),
            CallForm::Status => whole(start, command.status().context("not launched")?),
            CallForm::Output => {
                let output = command.output().context("not launched")?;
                captured(start, output.status, &output.stdout, &self.job)
            }
            CallForm::MemoryFile => {
                let output = command.capture(&memory_file()).context("not launched")?;
                captured(start, output.status, &output.stdout, &self.job)
            }
            CallForm::Zygote => {
                let plan = command.prepare().context("not prepared")?;
                finish(start, zygote().spawn(&plan).context("not launched")?)
            }
        }
    }
}

/// A plan prepared once, which is not in the time. Without a pidfd, like the vfork baseline.
pub(crate) struct Planned<'p> {
    job: Job<'p>,
    plan: Prepared,
    form: CallForm,
}

impl<'p> Planned<'p> {
    /// # Errors
    /// If the plan cannot be prepared.
    pub(crate) fn new(job: &Job<'p>, form: CallForm) -> Result<Self> {
        let mut command = command(job)?;
        command.pidfd(false);
        match form {
            CallForm::Inherit => drop(command.inherit_all(true)),
            CallForm::By(launcher) => drop(command.launcher(launcher)),
            _ => {}
        }
        Ok(Self { job: *job, plan: command.prepare().context("not prepared")?, form })
    }
}

impl Launcher for Planned<'_> {
    fn launch(&mut self) -> Result<Sample> {
        let start = Instant::now();
        match self.form {
            // Launcher and inherited descriptors are part of the plan.
            CallForm::Spawn | CallForm::Inherit | CallForm::By(_) => {
                finish(start, self.plan.spawn().context("not launched")?)
            }
            CallForm::Launch => finish(start, self.plan.launch().context("not launched")?),
            CallForm::Status => whole(start, self.plan.status().context("not launched")?),
            CallForm::Output => {
                let output = self.plan.output().context("not launched")?;
                captured(start, output.status, &output.stdout, &self.job)
            }
            CallForm::MemoryFile => {
                let output = self.plan.capture(&memory_file()).context("not launched")?;
                captured(start, output.status, &output.stdout, &self.job)
            }
            CallForm::Zygote => finish(start, zygote().spawn(&self.plan).context("not launched")?),
        }
    }
}
