//! Who takes part: the list of contestants, and those of C and of Rust's standard library.
//!
//! Ours are in [`super::ours`], behind the same trait, so that the run loop cannot tell them apart.

use std::{
    os::unix::process::CommandExt,
    process::ExitStatus,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::{
    conditions::Condition,
    engines::Engines,
    native::{self, Native},
    ours,
    program::Program,
    race::Goal,
    settings::{Feature, Wishes},
    statistics::{Sample, Series},
};

/// A way to launch a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Contestant {
    /// vfork, execve and wait4 in C: what every other row is measured against
    Floor,
    /// fork, execve and waitpid in C
    Fork,
    /// posix_spawn and waitpid in C
    #[value(name = "posix_spawn")]
    PosixSpawn,
    /// posix_spawn that closes all above standard error, and waitpid in C
    #[value(name = "posix_spawn-closefrom")]
    PosixSpawnClosefrom,
    /// system(3), so with a shell
    System,
    /// popen(3), read to the end, pclose(3), so with a shell
    Popen,
    /// Rust's std::process::Command, spawn and wait
    Std,
    /// Go's os/exec, Start and Wait
    Go,
    /// CPython's subprocess.Popen and wait
    #[value(name = "cpython")]
    CPython,
    /// CPython's asyncio.create_subprocess_exec and wait
    #[value(name = "cpython-asyncio")]
    CPythonAsyncio,
    /// Perl's system with a list
    PerlSystem,
    /// Perl's backticks
    PerlBackticks,
    /// Perl's Proc::FastSpawn and waitpid
    #[value(name = "perl-fastspawn")]
    PerlFastSpawn,
    /// Perl's IPC::Run
    PerlIpcRun,
    /// Node's child_process.spawn and its exit event
    NodeSpawn,
    /// Node's child_process.spawnSync
    #[value(name = "node-spawnsync")]
    NodeSpawnSync,
    /// Java's ProcessBuilder, start and waitFor
    Java,
    /// GLib's g_spawn_async and waitpid
    Glib,
    /// libuv's uv_spawn and its event loop
    Libuv,
    /// tokio::process::Command, spawn and wait
    Tokio,
    /// forkless Command, spawn and wait
    ForklessSpawn,
    /// forkless Command, launch and wait
    ForklessLaunch,
    /// forkless Command that passes on every descriptor, spawn and wait
    ForklessInherit,
    /// forkless Command by fork, spawn and wait
    ForklessFork,
    /// forkless Command by posix_spawn, spawn and wait
    #[value(name = "forkless-posix_spawn")]
    ForklessPosixSpawn,
    /// forkless Command, status
    ForklessStatus,
    /// forkless prepared plan, spawn and wait, no pidfd
    ForklessPrepared,
    /// forkless prepared plan, launch and wait, no pidfd
    ForklessPreparedLaunch,
    /// forkless prepared plan, status
    ForklessPreparedStatus,
    /// forkless Command, output
    ForklessOutput,
    /// forkless Prepared, output
    ForklessPreparedOutput,
    /// forkless Command, capture in memory files
    ForklessMemoryFile,
    /// forkless Command by a zygote, spawn and wait
    ForklessZygote,
    /// forkless prepared plan by a zygote, spawn and wait, no pidfd
    ForklessPreparedZygote,
    /// forkless::tokio::Command, spawn and wait
    ForklessTokio,
    /// forkless::tokio::Command, status
    ForklessTokioStatus,
    /// forkless::tokio::Prepared, status
    ForklessTokioPreparedStatus,
    /// forkless_spawn of the C library and waitpid in C
    #[value(name = "forkless-c-spawn")]
    ForklessCSpawn,
    /// forkless_system of the C library
    #[value(name = "forkless-c-system")]
    ForklessCSystem,
    /// forkless_popen of the C library, read to the end, forkless_pclose
    #[value(name = "forkless-c-popen")]
    ForklessCPopen,
    /// Perl's system with a list, under `use Forkless`
    ForklessPerlSystem,
    /// Perl's backticks, under `use Forkless`
    ForklessPerlBackticks,
    /// Perl's Forkless::FastSpawn and waitpid
    #[value(name = "forkless-perl-fastspawn")]
    ForklessPerlFastSpawn,
    /// forkless.Popen of the Python package and wait
    #[value(name = "forkless-cpython")]
    ForklessCPython,
    /// forkless.run of the Python package
    #[value(name = "forkless-cpython-run")]
    ForklessCPythonRun,
    /// forkless.asyncio.create_subprocess_exec of the Python package and wait
    #[value(name = "forkless-cpython-asyncio")]
    ForklessCPythonAsyncio,
    /// posix_spawn and waitpid in C, under the preload library
    #[value(name = "forkless-preload-posix_spawn")]
    ForklessPreloadPosixSpawn,
    /// posix_spawn-closefrom, under the preload library
    ForklessPreloadClosefrom,
    /// posix_spawn under the preload library that is told to pass on the standard streams only
    ForklessPreloadStdio,
    /// system(3) under the preload library
    ForklessPreloadSystem,
    /// popen(3), read to the end, pclose(3), under the preload library
    ForklessPreloadPopen,
}

/// One contestant made ready for one program.
pub(crate) trait Launcher {
    /// Launches the program once, waits for it and checks that it exited with 0.
    ///
    /// # Errors
    /// When it was not launched or did not exit with 0.
    fn launch(&mut self) -> Result<Sample>;

    /// Launches once, uncounted, and then until the goal is reached; adds those launches to `series`, with the time and the CPU
    /// time they took.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    fn turn(&mut self, goal: &Goal, series: &mut Series) -> Result<()> {
        self.launch()?;
        let cpu = super::race::cpu_time();
        let start = Instant::now();
        let mut count = 0;
        while goal.is_ahead(count, start.elapsed()) {
            series.push(self.launch()?);
            count += 1;
        }
        series.wall += start.elapsed();
        series.cpu += super::race::cpu_time().saturating_sub(cpu);
        Ok(())
    }

    /// A turn that would be shorter is left for later.
    fn least_turn(&self) -> Duration {
        Duration::ZERO
    }
}

/// What a contestant is to do.
#[derive(Clone, Copy)]
pub(crate) struct Job<'p> {
    pub(crate) program: &'p Program,
    /// What is asked of the launch. A contestant that is a process of its own must also be as large, the others are in ours.
    pub(crate) condition: Condition,
    pub(crate) wishes: &'p Wishes,
    pub(crate) engines: Option<&'p Engines>,
}

impl Contestant {
    /// All of them, in the order of the tables.
    pub(crate) const ALL: [Self; 51] = [
        Self::Floor,
        Self::Fork,
        Self::PosixSpawn,
        Self::PosixSpawnClosefrom,
        Self::System,
        Self::Popen,
        Self::Std,
        Self::Go,
        Self::CPython,
        Self::CPythonAsyncio,
        Self::PerlSystem,
        Self::PerlBackticks,
        Self::PerlFastSpawn,
        Self::PerlIpcRun,
        Self::NodeSpawn,
        Self::NodeSpawnSync,
        Self::Java,
        Self::Glib,
        Self::Libuv,
        Self::Tokio,
        Self::ForklessSpawn,
        Self::ForklessLaunch,
        Self::ForklessInherit,
        Self::ForklessFork,
        Self::ForklessPosixSpawn,
        Self::ForklessStatus,
        Self::ForklessPrepared,
        Self::ForklessPreparedLaunch,
        Self::ForklessPreparedStatus,
        Self::ForklessOutput,
        Self::ForklessPreparedOutput,
        Self::ForklessMemoryFile,
        Self::ForklessZygote,
        Self::ForklessPreparedZygote,
        Self::ForklessTokio,
        Self::ForklessTokioStatus,
        Self::ForklessTokioPreparedStatus,
        Self::ForklessCSpawn,
        Self::ForklessCSystem,
        Self::ForklessCPopen,
        Self::ForklessPerlSystem,
        Self::ForklessPerlBackticks,
        Self::ForklessPerlFastSpawn,
        Self::ForklessCPython,
        Self::ForklessCPythonRun,
        Self::ForklessCPythonAsyncio,
        Self::ForklessPreloadPosixSpawn,
        Self::ForklessPreloadClosefrom,
        Self::ForklessPreloadStdio,
        Self::ForklessPreloadSystem,
        Self::ForklessPreloadPopen,
    ];

    /// Name in tables, in the JSON and in `--launchers`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Fork => "fork",
            Self::PosixSpawn => "posix_spawn",
            Self::PosixSpawnClosefrom => "posix_spawn-closefrom",
            Self::System => "system",
            Self::Popen => "popen",
            Self::Std => "std",
            Self::Go => "go",
            Self::CPython => "cpython",
            Self::CPythonAsyncio => "cpython-asyncio",
            Self::PerlSystem => "perl-system",
            Self::PerlBackticks => "perl-backticks",
            Self::PerlFastSpawn => "perl-fastspawn",
            Self::PerlIpcRun => "perl-ipc-run",
            Self::NodeSpawn => "node-spawn",
            Self::NodeSpawnSync => "node-spawnsync",
            Self::Java => "java",
            Self::Glib => "glib",
            Self::Libuv => "libuv",
            Self::Tokio => "tokio",
            Self::ForklessSpawn => "forkless-spawn",
            Self::ForklessLaunch => "forkless-launch",
            Self::ForklessInherit => "forkless-inherit",
            Self::ForklessFork => "forkless-fork",
            Self::ForklessPosixSpawn => "forkless-posix_spawn",
            Self::ForklessStatus => "forkless-status",
            Self::ForklessPrepared => "forkless-prepared",
            Self::ForklessPreparedLaunch => "forkless-prepared-launch",
            Self::ForklessPreparedStatus => "forkless-prepared-status",
            Self::ForklessOutput => "forkless-output",
            Self::ForklessPreparedOutput => "forkless-prepared-output",
            Self::ForklessMemoryFile => "forkless-memory-file",
            Self::ForklessZygote => "forkless-zygote",
            Self::ForklessPreparedZygote => "forkless-prepared-zygote",
            Self::ForklessTokio => "forkless-tokio",
            Self::ForklessTokioStatus => "forkless-tokio-status",
            Self::ForklessTokioPreparedStatus => "forkless-tokio-prepared-status",
            Self::ForklessCSpawn => "forkless-c-spawn",
            Self::ForklessCSystem => "forkless-c-system",
            Self::ForklessCPopen => "forkless-c-popen",
            Self::ForklessPerlSystem => "forkless-perl-system",
            Self::ForklessPerlBackticks => "forkless-perl-backticks",
            Self::ForklessPerlFastSpawn => "forkless-perl-fastspawn",
            Self::ForklessCPython => "forkless-cpython",
            Self::ForklessCPythonRun => "forkless-cpython-run",
            Self::ForklessCPythonAsyncio => "forkless-cpython-asyncio",
            Self::ForklessPreloadPosixSpawn => "forkless-preload-posix_spawn",
            Self::ForklessPreloadClosefrom => "forkless-preload-closefrom",
            Self::ForklessPreloadStdio => "forkless-preload-stdio",
            Self::ForklessPreloadSystem => "forkless-preload-system",
            Self::ForklessPreloadPopen => "forkless-preload-popen",
        }
    }

    /// Those that can give the child three pipes.
    pub(crate) fn takes_pipes(self) -> bool {
        matches!(self, Self::Floor | Self::PosixSpawn | Self::Std | Self::ForklessSpawn | Self::ForklessPrepared)
    }

    /// Those that run in the thread sweep. The others would say nothing that these do not.
    pub(crate) fn joins_crowd(self) -> bool {
        matches!(
            self,
            Self::Floor
                | Self::PosixSpawn
                | Self::Std
                | Self::ForklessStatus
                | Self::ForklessPrepared
                | Self::ForklessPreparedStatus
        )
    }

    /// Those that capture what the child writes: where there is nothing to capture, and where there is.
    pub(crate) fn captures(self, output: bool) -> bool {
        match self {
            Self::Floor | Self::Std | Self::Tokio | Self::ForklessTokio => true,
            Self::ForklessOutput | Self::ForklessPreparedOutput | Self::ForklessMemoryFile => output,
            _ => !output,
        }
    }

    /// Those that launch from tasks.
    pub(crate) fn awaits(self) -> bool {
        matches!(
            self,
            Self::Tokio | Self::ForklessTokio | Self::ForklessTokioStatus | Self::ForklessTokioPreparedStatus
        )
    }

    /// Those that launch while other threads touch memory.
    pub(crate) fn bears_faults(self) -> bool {
        self.joins_crowd() || matches!(self, Self::Fork | Self::System | Self::ForklessSpawn | Self::ForklessCSystem)
    }

    /// Those that have to find the program, or to hand on a large environment.
    pub(crate) fn stands_apart(self) -> bool {
        let first = [Self::Floor, Self::Fork, Self::PosixSpawn, Self::System, Self::Popen, Self::Std];
        let ours = [Self::ForklessSpawn, Self::ForklessStatus, Self::ForklessPrepared];
        let in_c = [Self::ForklessCSpawn, Self::ForklessCSystem, Self::ForklessCPopen];
        self.is_engine() || first.contains(&self) || ours.contains(&self) || in_c.contains(&self)
    }

    /// Those that are a process of their own.
    pub(crate) fn is_engine(self) -> bool {
        super::engines::has_source(self)
    }

    /// Those that are this program under the preload library.
    pub(crate) fn is_preloaded(self) -> bool {
        let functions = [Self::ForklessPreloadPosixSpawn, Self::ForklessPreloadSystem, Self::ForklessPreloadPopen];
        functions.contains(&self) || matches!(self, Self::ForklessPreloadClosefrom | Self::ForklessPreloadStdio)
    }

    /// Of the engines of a language those that do not launch as another does: one for each of our modules.
    pub(crate) fn grows(self) -> bool {
        let alike = [Self::CPythonAsyncio, Self::PerlBackticks, Self::PerlIpcRun, Self::NodeSpawnSync];
        let in_perl = [Self::ForklessPerlBackticks, Self::ForklessPerlFastSpawn];
        let in_python = [Self::ForklessCPythonRun, Self::ForklessCPythonAsyncio];
        let is_alike = [&alike[..], &in_perl, &in_python].iter().any(|list| list.contains(&self));
        !is_alike && (!self.is_preloaded() || self == Self::ForklessPreloadPosixSpawn)
    }

    /// Whether the C library that the bench was built with has what it needs.
    pub(crate) fn is_here(self) -> bool {
        // SAFETY: it takes nothing and reads a constant.
        self != Self::PosixSpawnClosefrom || unsafe { native::bench_has_closefrom() } != 0
    }

    /// What the child is given otherwise than by the floor, which passes on its environment, its standard streams and every
    /// descriptor that is not close-on-exec, and reads no line as a shell does. A test compares.
    pub(crate) fn unlike(self) -> Option<&'static str> {
        match self {
            Self::Floor | Self::Fork | Self::PosixSpawn | Self::Std | Self::Go | Self::Libuv | Self::Tokio => None,
            Self::PerlSystem
            | Self::PerlFastSpawn
            | Self::PerlIpcRun
            | Self::ForklessInherit
            | Self::ForklessCSpawn => None,
            Self::ForklessPreloadPosixSpawn | Self::ForklessPerlSystem | Self::ForklessPerlFastSpawn => None,
            Self::System | Self::ForklessPreloadSystem => Some("shell"),
            Self::Popen | Self::ForklessPreloadPopen => Some("stdio, shell"),
            Self::PerlBackticks | Self::ForklessPerlBackticks => Some("stdio"),
            // No shell runs, but the line is read as by one, and PWD set.
            Self::ForklessCSystem => Some("fds, shell"),
            Self::ForklessCPopen => Some("stdio, fds, shell"),
            _ => Some("fds"),
        }
    }

    /// The settings that it can give a child. The floor has none: it is what a launch costs without.
    pub(crate) fn can(self, engines: Option<&Engines>) -> Vec<Feature> {
        match self {
            Self::Fork | Self::ForklessSpawn | Self::ForklessStatus | Self::ForklessPrepared => Feature::ALL.to_vec(),
            Self::Std => vec![Feature::Ids],
            engine if engine.is_engine() => engines.map_or_else(Vec::new, |engines| engines.can(self).to_vec()),
            // Of ours, theirs would say nothing that the rows of `forkless-spawn` and its like do not.
            _ => Vec::new(),
        }
    }

    /// Makes the contestant ready.
    ///
    /// # Errors
    /// When our own plan cannot be prepared or an engine not be started.
    pub(crate) fn ready<'p>(self, job: &Job<'p>) -> Result<Box<dyn Launcher + 'p>> {
        let native = |function| Ok(Box::new(Native::new(function, &native::LIBC, job)) as Box<dyn Launcher>);
        let ours_in_c = |function| Ok(Box::new(Native::new(function, &native::OURS, job)) as Box<dyn Launcher>);
        let one_shot = |form| Ok(Box::new(ours::OneShot::new(job, form)) as Box<dyn Launcher>);
        let planned = |form| Ok(Box::new(ours::Planned::new(job, form)?) as Box<dyn Launcher>);
        match self {
            Self::Floor if job.condition.output > 0 => native(native::bench_output),
            Self::Floor => native(native::bench_floor),
            Self::Fork => native(native::bench_fork),
            Self::PosixSpawn => native(native::bench_posix_spawn),
            Self::PosixSpawnClosefrom => native(native::bench_closefrom),
            Self::System => native(native::bench_system),
            Self::Popen => native(native::bench_popen),
            Self::Std => Ok(Box::new(Std { job: *job })),
            Self::ForklessPreloadPosixSpawn
            | Self::ForklessPreloadClosefrom
            | Self::ForklessPreloadStdio
            | Self::ForklessPreloadSystem
            | Self::ForklessPreloadPopen
            | Self::ForklessPerlSystem
            | Self::ForklessPerlBackticks
            | Self::ForklessPerlFastSpawn
            | Self::ForklessCPython
            | Self::ForklessCPythonRun
            | Self::ForklessCPythonAsyncio
            | Self::Go
            | Self::CPython
            | Self::CPythonAsyncio
            | Self::PerlSystem
            | Self::PerlBackticks
            | Self::PerlFastSpawn
            | Self::PerlIpcRun
            | Self::NodeSpawn
            | Self::NodeSpawnSync
            | Self::Java
            | Self::Glib
            | Self::Libuv => {
                let engines = job.engines.context("no engines are there")?;
                Ok(Box::new(engines.start(self, job)?))
            }
            Self::Tokio | Self::ForklessTokio | Self::ForklessTokioStatus | Self::ForklessTokioPreparedStatus => {
                anyhow::bail!("it launches from tasks only")
            }
            Self::ForklessSpawn => one_shot(ours::Form::Spawn),
            Self::ForklessLaunch => one_shot(ours::Form::Launch),
            Self::ForklessInherit => one_shot(ours::Form::Inherit),
            Self::ForklessFork => one_shot(ours::Form::By(forkless::Launcher::Fork)),
            Self::ForklessPosixSpawn => one_shot(ours::Form::By(forkless::Launcher::PosixSpawn)),
            Self::ForklessStatus => one_shot(ours::Form::Status),
            Self::ForklessPrepared => planned(ours::Form::Spawn),
            Self::ForklessPreparedLaunch => planned(ours::Form::Launch),
            Self::ForklessPreparedStatus => planned(ours::Form::Status),
            Self::ForklessOutput => one_shot(ours::Form::Output),
            Self::ForklessPreparedOutput => planned(ours::Form::Output),
            Self::ForklessMemoryFile => one_shot(ours::Form::MemoryFile),
            Self::ForklessZygote => one_shot(ours::Form::Zygote),
            Self::ForklessPreparedZygote => planned(ours::Form::Zygote),
            Self::ForklessCSpawn => ours_in_c(native::bench_spawn),
            Self::ForklessCSystem => ours_in_c(native::bench_system),
            Self::ForklessCPopen => ours_in_c(native::bench_popen),
        }
    }
}

/// Fails unless the program did what a launched program must do.
pub(crate) fn check(status: ExitStatus) -> Result<()> {
    ensure!(status.success(), "the program did not exit with 0 but with: {status}");
    Ok(())
}

/// Fails unless the program wrote what it was to write. Looks at every page, in the time, so that whoever has mapped the
/// bytes instead of copying them has paid for that.
pub(crate) fn look_through(bytes: &[u8]) -> bool {
    bytes.iter().step_by(4096).all(|&byte| std::hint::black_box(byte) == b'x')
}

/// Fails unless it was all that the program writes.
pub(crate) fn check_output(wanted: u64, intact: bool, length: usize) -> Result<()> {
    ensure!(intact && length as u64 == wanted, "{length} bytes of output instead of {wanted}");
    Ok(())
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
            // Without supplementary groups, as std does it for root.
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
        // The pipes are part of what was asked for, so closing them is part of the time.
        drop(child);
        let total_ns = nanoseconds(start);
        check(status)?;
        Ok(Sample { held_ns, total_ns })
    }
}

/// Time since `start`.
pub(crate) fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    fn ready<'p>(contestant: Contestant, program: &'p Program, pipes: u8) -> Result<Box<dyn Launcher + 'p>> {
        static NONE: std::sync::LazyLock<Wishes> = std::sync::LazyLock::new(Wishes::none);
        let condition = Condition { pipes, ..Condition::SMALL };
        contestant.ready(&Job { program, condition, wishes: &NONE, engines: None })
    }

    /// Engines have tests of their own, and so have tasks; the zygote is `forkless` itself, which a test's program is not.
    fn inside() -> impl Iterator<Item = Contestant> {
        let is_zygote = |one| matches!(one, Contestant::ForklessZygote | Contestant::ForklessPreparedZygote);
        Contestant::ALL.into_iter().filter(move |&one| !one.is_engine() && !one.awaits() && !is_zygote(one))
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for contestant in Contestant::ALL {
            let value = contestant.to_possible_value().expect("none is hidden");
            assert_eq!(value.get_name(), contestant.name());
        }
        assert_eq!(Contestant::ALL, Contestant::value_variants());
    }

    #[test]
    fn each_launches_and_is_timed_in_order() {
        let program = Program::embedded().expect("temporary directory");
        for contestant in inside() {
            for pipes in [0, 3] {
                if pipes > 0 && !contestant.takes_pipes() {
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
    fn each_reports_a_missing_program() {
        let program = Program::missing();
        for contestant in inside() {
            // Our prepared forms may already notice when the plan is made.
            let failed = match ready(contestant, &program, 0) {
                Ok(mut launcher) => launcher.launch().is_err(),
                Err(_) => true,
            };
            assert!(failed, "{} did not notice", contestant.name());
        }
    }

    #[test]
    fn each_reports_a_failing_program() {
        let program = Program::from_words(&["/bin/sh".into(), "-c".into(), "exit 3".into()]).expect("sh");
        for contestant in inside() {
            let error = ready(contestant, &program, 0).expect("ready").launch().expect_err(contestant.name());
            assert!(format!("{error:#}").contains('3'), "{}: {error:#}", contestant.name());
        }
    }

    #[test]
    fn pipes_of_native_contestants_are_closed() {
        let program = Program::embedded().expect("temporary directory");
        for contestant in [Contestant::Floor, Contestant::PosixSpawn, Contestant::Popen] {
            let mut launcher = ready(contestant, &program, 3).expect("ready");
            for _ in 0..1_500 {
                // More launches than the usual limit of 1,024 open files allows with one leaked each.
                launcher.launch().unwrap_or_else(|e| panic!("{}: {e:#}", contestant.name()));
            }
        }
    }
}
