//! Runs very many commands, a number of them at once, and loses none.
//!
//! ```
//! use forkless_jobs::{Job, Nothing, Options, Standard, from_iter, run};
//! let jobs = (0..100).map(|n| Job::program("test", [n.to_string(), "-lt".into(), "90".into()]));
//! let summary = run(Options::default().slots(4), &mut from_iter(jobs), &mut Nothing, &mut Standard::new())?;
//! assert_eq!(summary.to_string(), "ran 100, failed 10, skipped 0 of 100");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # How it works
//! One thread does everything, unless [`Options::threads`] launch: it takes a [`Job`] from a [`JobSource`] when a slot is
//! free, launches it, and sleeps on one epoll instance until a job ends or writes. No SIGCHLD handler, no thread per job, no
//! async runtime. When a job has ended, the next one is launched before the output of the first is handled.
//!
//! # The parts
//! - A [`JobSource`] makes the jobs, one at a time, as slots become free. It reads no further ahead than its own buffer. A
//!   source that has no input yet returns [`Next::Later`] and names the descriptor to wait for ([`Input`] does that). One
//!   that lacks a resource of the kernel returns [`Next::Lacks`], and is called again.
//! - [`Options`] say how many jobs run at once, what happens to their output, and when the run ends early.
//! - [`Events`] are called for starts and ends, and may stop the run.
//! - A [`Sink`] takes the output of the jobs, in the order in which it is to appear. [`Standard`] writes it to the
//!   process's own standard output and standard error.
//! - [`Gather`] keeps order, log and count of jobs that run on other machines; the caller hands them out.
//! - A [`Remote`] runs the jobs elsewhere. Order, log, limits and summary stay the same.
//! - A [`Control`] stops the run or changes its slots, from a signal handler or another thread.
//! - The [`Summary`] counts: every job of the source has run, has been skipped because the log says that it is done, or
//!   was not run. [`Summary::is_complete`] is true only if none was lost.
//!
//! # When a job ends
//! A job ends when its process ends. What its pipes hold at that time is still read. A process that the job has started
//! and left behind may keep the pipes open: the run waits [`Options::linger`] for their end, and later output gets EPIPE.
//!
//! # What can go wrong
//! - A launch fails with EAGAIN, ENOMEM, EMFILE or ENFILE: the job waits until another one ends, or for a moment, and is
//!   launched again. If none runs and nothing changes for [`Options::patience`], the run stops, and the summary counts
//!   what was not run.
//! - SIGHUP, SIGINT, SIGQUIT or SIGTERM kills the child before it has executed the program, because the signal went to this
//!   process's whole group: the job is launched again, up to ten times in all. It has no line in the log before it has run.
//! - Any other failed launch is the end of that job: [`Ending::NotStarted`].
//! - A full disk under the log or the results: the jobs run on, and [`Summary::errors`] has the error.
//! - A full disk under the temporary file: no further job is launched, and [`Summary::errors`] has the error. Up to 16 MiB
//!   of output more are kept in memory. A job that writes more is ended, and has no line in the log.
//! - [`JobSource::more`] fails: the run stops at once, and the job is ended before it sees an end of its input.
//! - Standard output is closed (EPIPE): the run stops at once.
//! - The run is stopped at once ([`Flow::Now`]): the jobs that it ends have no line in the log, unless they succeed, so
//!   that a run with the same log runs them again.
//! - This process is killed: the log has a line for each job that has ended, up to the last moment. A run with the same
//!   log and [`Done::read`] runs the others.
//!
//! # Memory
//! Nothing is kept of a job that has ended and whose output has been written. Output that must wait for its turn is kept
//! in memory up to [`Options::memory`], then in an unlinked temporary file. With [`Options::keep_order`] at most
//! [`Options::window`] jobs are ahead of the one whose output is due; then no further one is launched.

mod job;
mod source;
mod input;
mod options;
mod remote;
mod control;
mod log;
mod summary;
mod standard;
mod wake;
mod output;
mod slot;
mod launch;
mod pool;
mod engine;
mod gather;

pub use control::{Control, Flow};
pub use engine::{memory, run};
pub use gather::{Came, Gather, Offer};
pub use input::{Filled, Input};
pub use job::{Job, JobPlace, Run, Stdin};
pub use launch::is_lack;
pub use log::{Done, Log};
pub use options::{Halt, HaltOn, HaltWhen, Limit, Options, Output, Prepare, Setup, Timeout};
pub use remote::{Remote, RemoteEnd};
pub use source::{Events, JobSource, More, Next, Nothing, Sink, Stream, from_iter};
pub use standard::Standard;
pub use summary::{Ended, Ending, Progress, Summary};
