//! The part with warm programs on a machine that has none: see `warm.rs`.

use anyhow::{Result, bail};

use super::{
    condition::Condition,
    contestant::Contestant,
    launcher::{Job, Launcher},
    name::Name,
    program::Program,
    statistics::Sample,
};

/// No program can be warm.
pub(crate) fn programs() -> impl Iterator<Item = Name> {
    std::iter::empty()
}

/// No warm programs.
#[derive(Default)]
pub(crate) struct WarmPrograms {
    pub(crate) cold: Vec<String>,
}

impl WarmPrograms {
    /// # Errors
    /// None here.
    pub(crate) fn find() -> Result<Self> {
        Ok(Self { cold: vec!["only x86-64 with glibc has warm programs".to_owned()] })
    }

    pub(crate) fn program(&self, _: &Condition) -> Option<&Program> {
        None
    }

    pub(crate) fn is_for(&self, contestant: Contestant, condition: &Condition) -> bool {
        contestant != Contestant::ForklessWarm && (condition.program.is_empty() || contestant.can_take_programs())
    }
}

/// A launcher of warm programs: no value of it can exist.
pub(crate) enum Warmed {}

impl Warmed {
    /// # Errors
    /// Always.
    pub(crate) fn new(_: &Job<'_>) -> Result<Self> {
        bail!("only x86-64 with glibc has warm programs")
    }
}

impl Launcher for Warmed {
    fn launch(&mut self) -> Result<Sample> {
        match *self {}
    }
}
