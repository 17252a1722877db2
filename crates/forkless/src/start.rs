//! Starting a plan: its pipes, the launch, and the child's handle.

use crate::child::{Child, orphan};
use crate::error::{Error, errno};
use crate::launch;
use crate::launch::pipes::{Defaults, Pipes, plain_slots};
use crate::launch::run::{Cloner, LaunchForm, OfPlan, Run};
use crate::launch::wait::is_sigchld_ignored;
use crate::plan::{Plan, PlannedStream};
use crate::request::command::LaunchGroup;
use crate::step::Step;
use forkless_core::sys;
use std::io::{self, ErrorKind};
use std::process::ExitStatus;
use std::sync::Arc;

/// How a plan is started.
#[derive(Clone, Copy)]
pub(crate) struct Start<'a> {
    /// At which point of the child's start the launch returns.
    pub(crate) form: LaunchForm,
    /// The standard streams that the command does not set.
    pub(crate) defaults: Defaults<'a>,
    /// Whether the handle has a pidfd.
    pub(crate) pidfd: Pidfd,
    /// Clones the child in another process; `None`: as the plan says, which is this process by default.
    pub(crate) cloner: Option<&'a dyn Cloner>,
    /// Whether the handle keeps the child's ends of the pipes, for as long as the child has not taken them.
    pub(crate) holds: bool,
}

/// Whether a handle has a pidfd.
#[derive(Clone, Copy)]
pub(crate) enum Pidfd {
    /// As the command sets it, or this if it does not.
    Unless(bool),
    /// Always, whatever the command sets.
    #[cfg(feature = "tokio")]
    Always,
}

impl<'a> Start<'a> {
    /// The caller's streams, a pidfd, and a clone by this process.
    pub(crate) fn new(form: LaunchForm) -> Self {
        Self { form, defaults: Defaults::Inherit, pidfd: Pidfd::Unless(true), cloner: None, holds: false }
    }

    /// Sets other streams for those that the command does not set.
    pub(crate) fn with(self, defaults: Defaults<'a>) -> Self {
        Self { defaults, ..self }
    }

    /// Sets whether the handle has a pidfd.
    pub(crate) fn pidfd(self, pidfd: Pidfd) -> Self {
        Self { pidfd, ..self }
    }

    /// Does not wait for the child to take its ends of the pipes: the handle keeps them.
    pub(crate) fn holding(self) -> Self {
        Self { holds: true, ..self }
    }

    /// Starts a child.
    pub(crate) fn child(self, plan: &Arc<Plan>) -> io::Result<Child> {
        let pidfd = match self.pidfd {
            Pidfd::Unless(said) => plan.pidfd.unwrap_or(said),
            #[cfg(feature = "tokio")]
            Pidfd::Always => true,
        };
        let pipes = Pipes::make(plan, self.defaults)?;
        let cloner = self.cloner.or_else(|| OfPlan::get(plan));
        let (slots, only_pipes) = (pipes.slots, pipes.only_pipes);
        // A caller that writes to the child must get EPIPE when the child closes its input, so nothing else may hold it.
        let holds = self.holds && pipes.exec.is_none() && pipes.ours[0].is_none();
        let (group, skipped) = group(plan)?;
        let cgroup = group.as_deref().map(LaunchGroup::directory);
        let run = Run { cloner, cgroup, slots, only_pipes, pidfd, form: self.form, holds };
        orphan::look_after_a_few();
        let running = launch::run(plan, &run)?;
        let mut child = Child::new(running, pipes, plan, holds).limited(group, skipped);
        if self.form != LaunchForm::Launch {
            child.look_for_program(None)?;
        }
        Ok(child)
    }
}

type MadeGroup = (Option<Box<dyn LaunchGroup>>, Option<Error>);

/// The cgroup for a launch of a plan with limits; or why it has none, which may be skipped.
fn group(plan: &Plan) -> Result<MadeGroup, Error> {
    let Some((limits, make)) = plan.place.limits.as_ref().and_then(|limits| Some((limits, limits.make?))) else {
        return Ok((None, None));
    };
    match make(limits) {
        Ok(group) => Ok((Some(group), None)),
        Err(error) => {
            let by_kind = || match error.kind() {
                ErrorKind::NotFound => sys::errno::ENOENT,
                ErrorKind::ResourceBusy => sys::errno::EBUSY,
                _ => sys::errno::EINVAL,
            };
            let errno = errno(&error).unwrap_or_else(by_kind);
            let error = Error::new(plan.program(), Step::Limits, errno)
                .note(error.to_string().replace(&format!(" (os error {errno})"), ""));
            if limits.best_effort { Ok((None, Some(error))) } else { Err(error) }
        }
    }
}

/// Runs a plan to its end.
pub(crate) fn status(plan: &Arc<Plan>) -> io::Result<ExitStatus> {
    if plan.fds.stdio.iter().any(|stream| matches!(stream, PlannedStream::Piped | PlannedStream::SocketPair))
        || !plan.fds.sockets.is_empty()
        || plan.fds.pty.is_some()
        || plan.place.limits.is_some()
    {
        return Start::new(LaunchForm::Launch).child(plan)?.wait();
    }
    if plan.cloner.is_some() {
        return Start::new(LaunchForm::Launch).pidfd(Pidfd::Unless(is_sigchld_ignored())).child(plan)?.wait();
    }
    if plan.place.is_filtered {
        // Whether a filter killed the child in exec can be seen only before it is reaped.
        return Start::new(LaunchForm::Spawn).child(plan)?.wait();
    }
    let run = Run {
        cloner: None,
        cgroup: None,
        slots: plain_slots(plan),
        only_pipes: true,
        pidfd: plan.pidfd.unwrap_or_else(is_sigchld_ignored),
        form: LaunchForm::End,
        holds: false,
    };
    orphan::look_after_a_few();
    let running = launch::run(plan, &run)?;
    match running.ended {
        Some(ended) => ended.map(|ended| ended.status),
        None => unreachable!("LaunchForm::End waits for the end"),
    }
}
