//! Prepares each method: those in C, Rust's standard library, forkless, and the engines.

use std::{os::unix::process::CommandExt, time::Instant};

use anyhow::{Context, Result};

use super::{
    contestant::Contestant,
    engines::Engines,
    launcher::{Job, Launcher, check_output, look_through, nanoseconds},
    native::{self, Native},
    ours,
    program::check,
    setting::Feature,
    statistics::Sample,
    warm,
};

/// Whether the C library of this build supports the method.
pub(crate) fn is_here(contestant: Contestant) -> bool {
    // SAFETY: the function takes no arguments and returns a constant.
    contestant != Contestant::PosixSpawnClosefrom || unsafe { native::bench_has_closefrom() } != 0
}

/// The settings that the method supports. The vfork baseline supports none.
pub(crate) fn can(contestant: Contestant, engines: Option<&Engines>) -> Vec<Feature> {
    match contestant {
        Contestant::Fork | Contestant::ForklessSpawn | Contestant::ForklessStatus | Contestant::ForklessPrepared => {
            Feature::ALL.to_vec()
        }
        Contestant::Std => vec![Feature::Ids],
        engine if engine.is_engine() => engines.map_or_else(Vec::new, |engines| engines.can(contestant).to_vec()),
        // Other methods of forkless would add no information to `forkless-spawn` and its variants.
        _ => Vec::new(),
    }
}

/// Prepares the method.
///
/// # Errors
/// If a plan cannot be prepared or an engine cannot be started.
pub(crate) fn ready<'p>(
    contestant: Contestant,
    job: &Job<'p>,
    engines: Option<&'p Engines>,
) -> Result<Box<dyn Launcher + 'p>> {
    let native = |function| Ok(Box::new(Native::new(function, &native::LIBC, job)) as Box<dyn Launcher>);
    let ours_in_c = |function| Ok(Box::new(Native::new(function, &native::OURS, job)) as Box<dyn Launcher>);
    let one_shot = |form| Ok(Box::new(ours::OneShot::new(job, form)) as Box<dyn Launcher>);
    let planned = |form| Ok(Box::new(ours::Planned::new(job, form)?) as Box<dyn Launcher>);
    match contestant {
        Contestant::Floor if job.condition.output > 0 => native(native::bench_output),
        Contestant::Floor => native(native::bench_floor),
        Contestant::Fork => native(native::bench_fork),
        Contestant::PosixSpawn => native(native::bench_posix_spawn),
        Contestant::PosixSpawnClosefrom => native(native::bench_closefrom),
        Contestant::System => native(native::bench_system),
        Contestant::Popen => native(native::bench_popen),
        Contestant::Std => Ok(Box::new(Std { job: *job })),
        Contestant::ForklessPreloadPosixSpawn
        | Contestant::ForklessPreloadClosefrom
        | Contestant::ForklessPreloadStdio
        | Contestant::ForklessPreloadSystem
        | Contestant::ForklessPreloadPopen
        | Contestant::ForklessPerlSystem
        | Contestant::ForklessPerlBackticks
        | Contestant::ForklessPerlFastSpawn
        | Contestant::ForklessCPython
        | Contestant::ForklessCPythonRun
        | Contestant::ForklessCPythonAsyncio
        | Contestant::ForklessNodeSpawn
        | Contestant::ForklessNodeSpawnSync
        | Contestant::Go
        | Contestant::CPython
        | Contestant::CPythonAsyncio
        | Contestant::PerlSystem
        | Contestant::PerlBackticks
        | Contestant::PerlFastSpawn
        | Contestant::PerlIpcRun
        | Contestant::NodeSpawn
        | Contestant::NodeSpawnSync
        | Contestant::Java
        | Contestant::Glib
        | Contestant::Libuv => {
            let engines = engines.context("engines are not available here")?;
            Ok(Box::new(engines.start(contestant, job)?))
        }
        Contestant::Tokio
        | Contestant::ForklessTokio
        | Contestant::ForklessTokioStatus
        | Contestant::ForklessTokioPreparedStatus => {
            anyhow::bail!("this method launches from tasks only")
        }
        Contestant::ForklessSpawn => one_shot(ours::CallForm::Spawn),
        Contestant::ForklessLaunch => one_shot(ours::CallForm::Launch),
        Contestant::ForklessInherit => one_shot(ours::CallForm::Inherit),
        Contestant::ForklessFork => one_shot(ours::CallForm::By(forkless::Launcher::Fork)),
        Contestant::ForklessPosixSpawn => one_shot(ours::CallForm::By(forkless::Launcher::PosixSpawn)),
        Contestant::ForklessStatus => one_shot(ours::CallForm::Status),
        Contestant::ForklessPrepared => planned(ours::CallForm::Spawn),
        Contestant::ForklessPreparedLaunch => planned(ours::CallForm::Launch),
        Contestant::ForklessPreparedStatus => planned(ours::CallForm::Status),
        Contestant::ForklessOutput => one_shot(ours::CallForm::Output),
        Contestant::ForklessPreparedOutput => planned(ours::CallForm::Output),
        Contestant::ForklessMemoryFile => one_shot(ours::CallForm::MemoryFile),
        Contestant::ForklessZygote => one_shot(ours::CallForm::Zygote),
        Contestant::ForklessPreparedZygote => planned(ours::CallForm::Zygote),
        Contestant::ForklessWarm => Ok(Box::new(warm::Warmed::new(job)?)),
        Contestant::ForklessCSpawn => ours_in_c(native::bench_spawn),
        Contestant::ForklessCSystem => ours_in_c(native::bench_system),
        Contestant::ForklessCPopen => ours_in_c(native::bench_popen),
    }
}

/// `std::process::Command`.
struct Std<'p> {
    job: Job<'p>,
}

impl Launcher for Std<'_> {
    fn launch(&mut self) -> Result<Sample> {
        let start = Instant::now();
        let mut command = std::process::Command::new(&self.job.program.path);
        command.args(&self.job.program.args);
        if let Some(id) = self.job.wishes.id {
            // std also drops supplementary groups for root.
            command.uid(id).gid(id);
        }
        if self.job.condition.pipes > 0 {
            use std::process::Stdio;
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        if self.job.condition.output > 0 {
            let output = command.output().context("not launched")?;
            let intact = look_through(&output.stdout);
            let total_ns = nanoseconds(start);
            check(output.status)?;
            check_output(self.job.condition.output, intact, output.stdout.len())?;
            return Ok(Sample { held_ns: total_ns, total_ns });
        }
        let mut child = command.spawn().context("not launched")?;
        let held_ns = nanoseconds(start);
        let status = child.wait().context("not waited for")?;
        // Closing the pipes is included in the time, because they belong to the launch.
        drop(child);
        let total_ns = nanoseconds(start);
        check(status)?;
        Ok(Sample { held_ns, total_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Condition;
    use crate::program::Program;
    use crate::wishes::Wishes;

    fn ready<'p>(contestant: Contestant, program: &'p Program, pipes: u8) -> Result<Box<dyn Launcher + 'p>> {
        static NONE: std::sync::LazyLock<Wishes> = std::sync::LazyLock::new(Wishes::none);
        let condition = Condition { pipes, ..Condition::SMALL };
        super::ready(contestant, &Job { program, condition, wishes: &NONE }, None)
    }

    /// Without engines and tasks, which have separate tests, and the zygote, which a test program cannot serve.
    fn inside() -> impl Iterator<Item = Contestant> {
        let is_zygote = |one| matches!(one, Contestant::ForklessZygote | Contestant::ForklessPreparedZygote);
        // No static program is warm.
        let is_left_out = move |one| is_zygote(one) || one == Contestant::ForklessWarm;
        Contestant::ALL.into_iter().filter(move |&one| !one.is_engine() && !one.does_await() && !is_left_out(one))
    }

    #[test]
    fn every_method_launches_with_held_before_total() {
        let program = Program::embedded().expect("temporary directory");
        for contestant in inside() {
            for pipes in [0, 3] {
                if pipes > 0 && !contestant.can_take_pipes() {
                    continue;
                }
                let mut launcher = ready(contestant, &program, pipes).expect("ready");
                let sample = launcher.launch().unwrap_or_else(|e| panic!("{}: {e:#}", contestant.name()));
                assert!(sample.held_ns > 0, "{}", contestant.name());
                assert!(sample.held_ns <= sample.total_ns, "{}: {sample:?}", contestant.name());
            }
        }
    }

    #[test]
    fn every_method_reports_a_missing_program() {
        let program = Program::missing();
        for contestant in inside() {
            // Prepared methods may fail when the plan is prepared.
            let failed = match ready(contestant, &program, 0) {
                Ok(mut launcher) => launcher.launch().is_err(),
                Err(_) => true,
            };
            assert!(failed, "{} did not notice", contestant.name());
        }
    }

    #[test]
    fn every_method_reports_a_failing_program() {
        let program = Program::from_words(&["/bin/sh".into(), "-c".into(), "exit 3".into()]).expect("sh");
        for contestant in inside() {
            let error = ready(contestant, &program, 0).expect("ready").launch().expect_err(contestant.name());
            assert!(format!("{error:#}").contains('3'), "{}: {error:#}", contestant.name());
        }
    }

    #[test]
    fn native_methods_close_their_pipes() {
        let program = Program::embedded().expect("temporary directory");
        for contestant in [Contestant::Floor, Contestant::PosixSpawn, Contestant::Popen] {
            let mut launcher = ready(contestant, &program, 3).expect("ready");
            for _ in 0..1_500 {
                // More launches than the usual limit of 1,024 open files, so that a leak of one descriptor each fails.
                launcher.launch().unwrap_or_else(|e| panic!("{}: {e:#}", contestant.name()));
            }
        }
    }
}
