//! How jobs run.

use crate::control::{Control, Flow};
use crate::job::Job;
use crate::log::{Done, Log};
use crate::remote::Remote;
use crate::summary::{Ended, Summary};
use forkless::Command;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What happens to the output of the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// The jobs have this process's standard output and standard error.
    #[default]
    Inherit,
    /// Each job's output goes to the [`Sink`](crate::Sink) when the job has ended: standard output, then standard error.
    Group,
    /// Whole lines go to the sink as they come. A line of more than 1 MiB comes in pieces.
    Lines,
}

/// When a run ends early, by the number of jobs that failed, succeeded or ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Halt {
    /// What then happens to the jobs that run.
    pub when: HaltWhen,
    /// Which jobs count.
    pub on: HaltOn,
    /// How many.
    pub limit: Limit,
}

/// What happens to jobs that run when a [`Halt`] is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HaltWhen {
    /// They go on.
    Soon,
    /// They are ended.
    Now,
}

/// Which jobs count for a [`Halt`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HaltOn {
    /// Those that failed.
    Fail,
    /// Those that succeeded.
    Success,
    /// All that ended.
    Done,
}

/// The limit of a [`Halt`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// So many jobs.
    Count(u64),
    /// So many of a hundred. Needs [`JobSource::total`](crate::JobSource::total); while that is not known, it has no effect.
    Percent(f64),
}

impl Halt {
    /// How the run stops if this end, which the summary counts already, is the first to reach the limit.
    pub(crate) fn stops(
        &self,
        summary: &mut Summary,
        ended: &Ended,
        total: impl FnOnce() -> Option<u64>,
    ) -> Option<Flow> {
        let counts = match self.on {
            HaltOn::Fail => ended.is_failure(),
            HaltOn::Success => !ended.is_failure(),
            HaltOn::Done => true,
        };
        let ended_so_far = summary.ran + summary.not_started;
        let count = match self.on {
            HaltOn::Fail => summary.failed,
            HaltOn::Success => ended_so_far - summary.failed,
            HaltOn::Done => ended_so_far,
        };
        let limit = match self.limit {
            Limit::Count(limit) => limit as f64,
            Limit::Percent(percent) => total().map_or(f64::INFINITY, |total| total as f64 * percent / 100.0),
        };
        if summary.halted_by.is_some() || !counts || (count as f64) < limit {
            return None;
        }
        summary.halted_by = Some(ended.ending.numbers());
        Some(match self.when {
            HaltWhen::Soon => Flow::Soon,
            HaltWhen::Now => Flow::Now,
        })
    }
}

/// How long a job may run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Timeout {
    /// For so long.
    After(Duration),
    /// For so many percent of the median time of the jobs that have succeeded, once three have.
    Percent(f64),
}

/// Changes a command before its launch.
pub type Setup = Box<dyn FnMut(&mut Command, &Job)>;

/// Changes a command in the thread that launches it, right before that.
pub type Prepare = Box<dyn FnMut(&mut Command) + Send>;

/// How jobs run. `Options::default()` runs one job for each CPU, with inherited output.
pub struct Options {
    /// How many jobs run at once.
    pub slots: usize,
    /// What happens to their output.
    pub output: Output,
    /// Whether captured output comes in the order of the jobs, and not in that of their ends.
    pub keep_order: bool,
    /// How often a job is launched, at most, until it succeeds (default: 1).
    pub tries: u32,
    /// How long a job may run.
    pub timeout: Option<Timeout>,
    /// The signals that end a job, each with the time that follows it (default: TERM, 200 ms, TERM, 100 ms, TERM, 50 ms,
    /// KILL). They go to the job's process group if it has one of its own. When the job itself has ended, the rest of the
    /// group is killed.
    pub termination: Vec<(i32, Duration)>,
    /// When the run ends early.
    pub halt: Option<Halt>,
    /// The least time between two launches.
    pub delay: Duration,
    /// No job is launched while more processes than this run or wait for a disk.
    pub max_load: Option<f64>,
    /// No job is launched while less memory than this is available, in bytes.
    pub min_memory: Option<u64>,
    /// The nice value of the jobs, from -20 (most CPU time) to 19: `setpriority(2)`. None: that of this process.
    pub nice: Option<i32>,
    /// The shell of jobs that are lines: [`Run::Line`](crate::Run::Line) (default: `/bin/sh`).
    pub shell: PathBuf,
    /// Whether each job leads a process group of its own, so that what it has started ends with it.
    pub groups: bool,
    /// Whether everything that a job has started ends with it, also in other process groups and sessions, and with this process:
    /// [`Command::kill_tree`] (Linux 6.12). Of lines, it ends what the shell has started.
    pub kill_tree: bool,
    /// Changes each command before its launch: working directory, limits and so on.
    pub setup: Option<Setup>,
    /// A thread for each of these functions, which launches the jobs of some of the slots, so that launches run in parallel.
    /// Useful for launches that wait for another process, as warm ones do. The function is called after
    /// [`setup`](Self::setup). [`Events::started`](crate::Events::started) may then come in another order than the jobs.
    ///
    /// The run's own thread launches if this is empty (default), if no threads can be started, if the time of a launch
    /// depends on earlier ones ([`delay`](Self::delay), [`max_load`](Self::max_load), [`min_memory`](Self::min_memory)), and
    /// jobs with [`Stdin::Stream`](crate::Stdin::Stream).
    pub threads: Vec<Prepare>,
    /// The standard input of this process is `/dev/null`: jobs with [`Stdin::Null`](crate::Stdin::Null) inherit it, which is
    /// faster than an open for each.
    pub stdin_is_null: bool,
    /// Writes each job's text to the sink and launches nothing.
    pub dry_run: bool,
    /// Gets a line for each job that ends.
    pub log: Option<Log>,
    /// Jobs that are not launched, because an earlier run has done them.
    pub done: Done,
    /// Stops the run from elsewhere.
    pub control: Option<Control>,
    /// How often [`Events::tick`](crate::Events::tick) is called.
    pub tick: Option<Duration>,
    /// How long a launch is tried again, if the kernel has no resources for it and no job runs (default: a minute).
    pub patience: Duration,
    /// How many bytes of output are kept in memory, for all jobs together (default: 1 MiB).
    pub memory: usize,
    /// How many jobs may be ahead of the one whose output is due, with `keep_order` (default: 16,384).
    pub window: usize,
    /// How many bytes of each job's output are kept, standard output and standard error together (default: all). The
    /// rest is read and dropped; [`Ended::received`](crate::Ended) counts it.
    pub most_output: Option<u64>,
    /// How long to wait, after a job's process has ended, while another process holds its captured output open (default:
    /// 200 ms). Later output is lost. A job that the run ends is not waited for.
    pub linger: Duration,
    /// Runs the jobs elsewhere. Nothing is launched here then.
    pub remote: Option<Box<dyn Remote>>,
    /// The directory for output that is too much for memory (default: `$TMPDIR`, else `/tmp`).
    pub temporary: PathBuf,
}

/// The default of [`Options::termination`].
fn termination() -> Vec<(i32, Duration)> {
    const TERM: i32 = 15;
    const KILL: i32 = 9;
    [(TERM, 200), (TERM, 100), (TERM, 50), (KILL, 25)].map(|(signal, ms)| (signal, Duration::from_millis(ms))).into()
}

impl Default for Options {
    fn default() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
    }
}

impl Options {
    /// The default values with this number of slots, at least one. Unlike [`default`](Self::default), does not count the
    /// CPUs, which takes some system calls.
    pub fn new(slots: usize) -> Self {
        Self {
            slots: slots.max(1),
            output: Output::Inherit,
            keep_order: false,
            tries: 1,
            timeout: None,
            termination: termination(),
            halt: None,
            delay: Duration::ZERO,
            max_load: None,
            min_memory: None,
            nice: None,
            shell: "/bin/sh".into(),
            groups: false,
            kill_tree: false,
            setup: None,
            threads: Vec::new(),
            stdin_is_null: false,
            dry_run: false,
            log: None,
            done: Done::default(),
            control: None,
            tick: None,
            patience: Duration::from_secs(60),
            memory: 1 << 20,
            window: 1 << 14,
            most_output: None,
            linger: Duration::from_millis(200),
            remote: None,
            temporary: std::env::temp_dir(),
        }
    }

    /// How often this job is launched at most.
    pub(crate) fn tries_of(&self, job: &Job) -> u32 {
        job.tries.unwrap_or(self.tries)
    }

    /// Sets how many jobs run at once: one at least.
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = slots.max(1);
        self
    }

    /// Sets what happens to the output.
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slots, output, keep_order, tries, timeout, halt, .. } = self;
        out.debug_struct("Options")
            .field("slots", slots)
            .field("output", output)
            .field("keep_order", keep_order)
            .field("tries", tries)
            .field("timeout", timeout)
            .field("halt", halt)
            .finish_non_exhaustive()
    }
}
