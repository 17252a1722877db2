//! The part with warm programs: real programs, launched by exec and by the template of a warm program.

use std::{path::Path, time::Instant};

use anyhow::{Context, Result, ensure};
use forkless::{
    Command, Prepared, Route,
    warm::{Warm, WarmOptions},
};

use super::{
    budget::Helpers,
    condition::Condition,
    contestant::Contestant,
    launcher::{Job, Launcher},
    name::Name,
    ours::{command, finish},
    program::Program,
    statistics::Sample,
};

/// Short programs with arguments with which they do little, and write nothing to standard error.
const PROGRAMS: [Name; 14] = [
    "/bin/true",
    "/bin/dash -c :",
    "/usr/bin/jq --version",
    "/usr/bin/lua5.4 -v",
    "/bin/sed -n 1p /etc/hostname",
    "/usr/bin/git --version",
    "/bin/ls /",
    "/bin/grep -c root /etc/passwd",
    "/bin/bash -c :",
    "/usr/bin/perl -e 1",
    "/usr/bin/python3 -S -c 1",
    "/usr/bin/curl --version",
    "/usr/bin/rg -c root /etc/passwd",
    "/usr/bin/openssl version",
];

/// The programs that are installed here.
pub(crate) fn programs() -> impl Iterator<Item = Name> {
    PROGRAMS.into_iter().filter(|line| line.split(' ').next().is_some_and(|path| Path::new(path).exists()))
}

/// The programs of this part, and which of them can be warm.
#[derive(Default)]
pub(crate) struct WarmPrograms {
    all: Vec<(Name, Program, bool)>,
    /// The programs that cannot be warm, with the reason.
    pub(crate) cold: Vec<String>,
}

impl WarmPrograms {
    /// Tries to start a template of each.
    ///
    /// # Errors
    /// If there is no memory for a plan.
    pub(crate) fn find() -> Result<Self> {
        let mut found = Self::default();
        for line in programs() {
            let words: Vec<_> = line.split(' ').map(Into::into).collect();
            let program = Program::from_words(&words)?;
            let reason = refusal(&program)?;
            found.all.push((line, program, reason.is_none()));
            found.cold.extend(reason.map(|reason| format!("{line:?} is never warm: {reason}")));
        }
        Ok(found)
    }

    /// The program of a condition, if it is one of these.
    pub(crate) fn program(&self, condition: &Condition) -> Option<&Program> {
        self.find_by_name(condition.program).map(|(_, program, _)| program)
    }

    /// Whether the method takes part with the program of the condition.
    pub(crate) fn is_for(&self, contestant: Contestant, condition: &Condition) -> bool {
        let is_warm = self.find_by_name(condition.program).is_some_and(|(.., is_warm)| *is_warm);
        match (condition.program, contestant) {
            ("", Contestant::ForklessWarm) => false,
            ("", _) => true,
            (_, Contestant::ForklessWarm) => is_warm,
            _ => contestant.can_take_programs(),
        }
    }

    fn find_by_name(&self, name: Name) -> Option<&(Name, Program, bool)> {
        self.all.iter().find(|(line, ..)| *line == name)
    }
}

/// Without a limit of launches: the start of a new template would be measured, too.
fn open() -> std::io::Result<Warm> {
    WarmOptions::new().launches(u32::MAX).open()
}

/// Why a program cannot be warm.
fn refusal(program: &Program) -> Result<Option<String>> {
    let mut command = Command::new(&program.path);
    let plan = command.args(&program.args).prepare()?;
    let started = open().and_then(|warm| warm.start(&plan));
    Ok(started.err().map(|error| error.to_string()))
}

/// A template and the plan that it launches.
pub(crate) struct Warmed {
    plan: Prepared,
    _template: Helpers,
}

impl Warmed {
    /// Starts the template, which is not measured.
    ///
    /// # Errors
    /// If the template cannot be started.
    pub(crate) fn new(job: &Job<'_>) -> Result<Self> {
        let warm = open()?;
        let plan = command(job)?.pidfd(false).warm(&warm).prepare().context("not prepared")?;
        warm.start(&plan).context("no template")?;
        Ok(Self { plan, _template: Helpers::count(warm.templates()) })
    }
}

impl Launcher for Warmed {
    fn launch(&mut self) -> Result<Sample> {
        let start = Instant::now();
        let child = self.plan.launch().context("not launched")?;
        let (route, reason) = (child.route(), child.cold_reason().map(str::to_owned));
        let sample = finish(start, child)?;
        ensure!(matches!(route, Route::Warm), "a cold launch: {}", reason.unwrap_or_default());
        Ok(sample)
    }
}
