//! Who takes part: the list of contestants, and those of C and of Rust's standard library.
//!
//! Ours are in [`super::ours`], behind the same trait, so that the run loop cannot tell them apart.

use std::{
    ffi::{c_char, c_int},
    io,
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    ptr,
    time::Instant,
};

use anyhow::{Context, Result, ensure};

use super::{ours, program::Program, statistics::Sample};

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
    /// system(3), so with a shell
    System,
    /// popen(3), read to the end, pclose(3), so with a shell
    Popen,
    /// Rust's std::process::Command, spawn and wait
    Std,
    /// forkless Command, spawn and wait
    ForklessSpawn,
    /// forkless Command, launch and wait
    ForklessLaunch,
    /// forkless Command, status
    ForklessStatus,
    /// forkless prepared plan, spawn and wait, no pidfd
    ForklessPrepared,
    /// forkless prepared plan, launch and wait, no pidfd
    ForklessPreparedLaunch,
    /// forkless prepared plan, status
    ForklessPreparedStatus,
}

/// One contestant made ready for one program.
pub(crate) trait Launcher {
    /// Launches the program once, waits for it and checks that it exited with 0.
    ///
    /// # Errors
    /// When it was not launched or did not exit with 0.
    fn launch(&mut self) -> Result<Sample>;
}

impl Contestant {
    /// All of them, in the order of the tables.
    pub(crate) const ALL: [Self; 12] = [
        Self::Floor,
        Self::Fork,
        Self::PosixSpawn,
        Self::System,
        Self::Popen,
        Self::Std,
        Self::ForklessSpawn,
        Self::ForklessLaunch,
        Self::ForklessStatus,
        Self::ForklessPrepared,
        Self::ForklessPreparedLaunch,
        Self::ForklessPreparedStatus,
    ];

    /// Name in tables, in the JSON and in `--only`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Fork => "fork",
            Self::PosixSpawn => "posix_spawn",
            Self::System => "system",
            Self::Popen => "popen",
            Self::Std => "std",
            Self::ForklessSpawn => "forkless-spawn",
            Self::ForklessLaunch => "forkless-launch",
            Self::ForklessStatus => "forkless-status",
            Self::ForklessPrepared => "forkless-prepared",
            Self::ForklessPreparedLaunch => "forkless-prepared-launch",
            Self::ForklessPreparedStatus => "forkless-prepared-status",
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

    /// Makes the contestant ready to launch `program`, with the child's stdio on `pipes` pipes (0 or 3).
    ///
    /// # Errors
    /// When our own plan cannot be prepared.
    pub(crate) fn ready<'p>(self, program: &'p Program, pipes: u8) -> Result<Box<dyn Launcher + 'p>> {
        let native = |function| Ok(Box::new(Native::new(function, program, pipes)) as Box<dyn Launcher>);
        match self {
            Self::Floor => native(bench_floor),
            Self::Fork => native(bench_fork),
            Self::PosixSpawn => native(bench_posix_spawn),
            Self::System => native(bench_system),
            Self::Popen => native(bench_popen),
            Self::Std => Ok(Box::new(Std { program, pipes })),
            Self::ForklessSpawn => Ok(Box::new(ours::OneShot::new(program, pipes, ours::Form::Spawn))),
            Self::ForklessLaunch => Ok(Box::new(ours::OneShot::new(program, pipes, ours::Form::Launch))),
            Self::ForklessStatus => Ok(Box::new(ours::OneShot::new(program, pipes, ours::Form::Status))),
            Self::ForklessPrepared => Ok(Box::new(ours::Planned::new(program, pipes, ours::Form::Spawn)?)),
            Self::ForklessPreparedLaunch => Ok(Box::new(ours::Planned::new(program, pipes, ours::Form::Launch)?)),
            Self::ForklessPreparedStatus => Ok(Box::new(ours::Planned::new(program, pipes, ours::Form::Status)?)),
        }
    }
}

/// Fails unless the program did what a launched program must do.
pub(crate) fn check(status: ExitStatus) -> Result<()> {
    ensure!(status.success(), "the program did not exit with 0 but with: {status}");
    Ok(())
}

/// `struct bench_plan` of `c/contestants.c`.
#[repr(C)]
struct Plan {
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    shell_command: *const c_char,
    pipes: c_int,
}

/// `struct bench_times` of `c/contestants.c`.
#[repr(C)]
#[derive(Default)]
struct Times {
    held: u64,
    total: u64,
}

type NativeLaunch = unsafe extern "C" fn(*const Plan, *mut Times) -> c_int;

unsafe extern "C" {
    fn bench_floor(plan: *const Plan, times: *mut Times) -> c_int;
    fn bench_fork(plan: *const Plan, times: *mut Times) -> c_int;
    fn bench_posix_spawn(plan: *const Plan, times: *mut Times) -> c_int;
    fn bench_system(plan: *const Plan, times: *mut Times) -> c_int;
    fn bench_popen(plan: *const Plan, times: *mut Times) -> c_int;
}

/// A contestant written in C.
struct Native<'p> {
    function: NativeLaunch,
    program: &'p Program,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    pipes: u8,
}

impl<'p> Native<'p> {
    fn new(function: NativeLaunch, program: &'p Program, pipes: u8) -> Self {
        let terminated = |strings: &[std::ffi::CString]| -> Vec<*const c_char> {
            strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
        };
        Self { function, program, argv: terminated(&program.c_argv), envp: terminated(&program.c_envp), pipes }
    }
}

impl Launcher for Native<'_> {
    fn launch(&mut self) -> Result<Sample> {
        let plan = Plan {
            path: self.program.c_path.as_ptr(),
            argv: self.argv.as_ptr(),
            envp: self.envp.as_ptr(),
            shell_command: self.program.shell_command.as_ptr(),
            pipes: c_int::from(self.pipes),
        };
        let mut times = Times::default();
        // SAFETY: both pointers are to live structs of the C layout; the strings belong to `program`, which outlives
        // `self`, and both vectors end with a null pointer (`new`).
        let answer = unsafe { (self.function)(&plan, &mut times) };
        if answer < 0 {
            return Err(io::Error::from_raw_os_error(-answer)).context("not launched");
        }
        check(ExitStatus::from_raw(answer))?;
        Ok(Sample { held_ns: times.held, total_ns: times.total })
    }
}

/// `std::process::Command`.
struct Std<'p> {
    program: &'p Program,
    pipes: u8,
}

impl Launcher for Std<'_> {
    fn launch(&mut self) -> Result<Sample> {
        let start = Instant::now();
        let mut command = std::process::Command::new(&self.program.path);
        command.args(&self.program.args);
        if self.pipes > 0 {
            use std::process::Stdio;
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
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
        for contestant in Contestant::ALL {
            for pipes in [0, 3] {
                if pipes > 0 && !contestant.takes_pipes() {
                    continue;
                }
                let mut launcher = contestant.ready(&program, pipes).expect("ready");
                let sample = launcher.launch().unwrap_or_else(|e| panic!("{}: {e:#}", contestant.name()));
                assert!(sample.held_ns > 0, "{}", contestant.name());
                assert!(sample.held_ns <= sample.total_ns, "{}: {sample:?}", contestant.name());
            }
        }
    }

    #[test]
    fn each_reports_a_missing_program() {
        let program = Program::missing();
        for contestant in Contestant::ALL {
            // Our prepared forms may already notice when the plan is made.
            let failed = match contestant.ready(&program, 0) {
                Ok(mut launcher) => launcher.launch().is_err(),
                Err(_) => true,
            };
            assert!(failed, "{} did not notice", contestant.name());
        }
    }

    #[test]
    fn each_reports_a_failing_program() {
        let program = Program::from_words(&["/bin/sh".into(), "-c".into(), "exit 3".into()]).expect("sh");
        for contestant in Contestant::ALL {
            let error = contestant.ready(&program, 0).expect("ready").launch().expect_err(contestant.name());
            assert!(format!("{error:#}").contains('3'), "{}: {error:#}", contestant.name());
        }
    }

    #[test]
    fn pipes_of_native_contestants_are_closed() {
        let program = Program::embedded().expect("temporary directory");
        for contestant in [Contestant::Floor, Contestant::PosixSpawn, Contestant::Popen] {
            let mut launcher = contestant.ready(&program, 3).expect("ready");
            for _ in 0..1_500 {
                // More launches than the usual limit of 1,024 open files allows with one leaked each.
                launcher.launch().unwrap_or_else(|e| panic!("{}: {e:#}", contestant.name()));
            }
        }
    }
}
