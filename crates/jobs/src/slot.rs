//! The slots: each is free, or has a job that runs or is to be launched.

use crate::job::Job;
use crate::source::Place;
use forkless::{Child, ShellEnding};
use std::time::{Instant, SystemTime};

/// What is in a slot.
pub(crate) enum Slot {
    Free,
    /// A job whose launch has failed for now, or that is tried again.
    Waiting(Box<Waiting>),
    Running(Box<Running>),
}

pub(crate) struct Waiting {
    pub(crate) job: Job,
    pub(crate) place: Place,
    /// How often it has been launched.
    pub(crate) tries: u32,
    /// When its launch first failed for lack of resources.
    pub(crate) since: Option<Instant>,
}

pub(crate) struct Running {
    pub(crate) job: Job,
    pub(crate) place: Place,
    pub(crate) tries: u32,
    /// Distinguishes it from other jobs in the same slot.
    pub(crate) turn: u32,
    pub(crate) child: Child,
    /// Translates the exit status of a line that runs without a shell.
    pub(crate) shell: Option<ShellEnding>,
    pub(crate) started: Instant,
    pub(crate) clock: SystemTime,
    /// Its pidfd is watched. Otherwise it is asked from time to time.
    pub(crate) watched: bool,
}
