//! The ends of jobs.

use super::limits::after;
use super::{Engine, Finished};
use crate::control::Flow;
use crate::job::{Job, JobPlace, Run, Stdin};
use crate::launch::{is_killed_before_exec, is_lack, is_of_launch};
use crate::output::Capture;
use crate::slot::{Over, Running, Slot, Waiting};
use crate::summary::{Ended, Ending};
use forkless::{Error, internal::is_for_the_shell};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Output};
use std::time::{Duration, Instant};

const KILL: i32 = 9;

impl Engine<'_> {
    pub(super) fn ask_unwatched(&mut self) {
        for slot in 0..self.slots.len() {
            if matches!(&self.slots[slot], Slot::Running(job) if !job.watched) {
                self.reap(slot);
            }
        }
    }

    /// Reaps the job in a slot, if it has ended.
    pub(super) fn reap(&mut self, slot: usize) {
        let Slot::Running(running) = &mut self.slots[slot] else { return };
        if running.over.is_some() {
            return;
        }
        if running.killing.is_some() && self.options.groups && running.has_ended() {
            // Not reaped yet, so no other group can have its number.
            let _ = running.child.signal_group(KILL);
        }
        let status = match running.child.try_wait() {
            Ok(None) => return,
            Ok(Some(status)) => match &running.shell {
                // The signal would have killed the shell, too.
                Some(ending) if !running.signalled => match &mut running.capture {
                    Some(capture) => {
                        let output = Output { status, stdout: Vec::new(), stderr: Vec::new() };
                        ending.output(output).map(|output| capture.note(output))
                    }
                    None => ending.status(status),
                },
                _ => Ok(status),
            },
            Err(error) => Err(error),
        };
        running.end_feed(self.options.tries_of(&running.job) > 1);
        let runtime = running.started.elapsed();
        match status {
            Ok(status) if self.check_held_open(slot) => self.linger(slot, status, runtime),
            status => self.release(slot, status, runtime),
        }
    }

    /// Whether a process that a job has left behind may still write output.
    fn check_held_open(&mut self, slot: usize) -> bool {
        let Slot::Running(running) = &mut self.slots[slot] else { return false };
        if self.options.linger.is_zero() || running.killing.is_some() || self.flow == Flow::Now {
            return false;
        }
        // Our copies of the child's ends would hold it open, too.
        running.child.let_go();
        running.capture.as_ref().is_some_and(|capture| capture.is_open())
    }

    /// Waits for the end of the output of a job.
    fn linger(&mut self, slot: usize, status: ExitStatus, runtime: Duration) {
        let Slot::Running(running) = &mut self.slots[slot] else { return };
        let (until, turn) = (after(Instant::now(), self.options.linger), running.turn);
        running.over = Some(Over { status, runtime, until });
        self.due_at(until);
        self.watch_pipes(slot, turn);
    }

    /// Ends a job whose process has ended before, and whose output is not waited for any longer.
    pub(super) fn let_end(&mut self, slot: usize) {
        let Slot::Running(running) = &mut self.slots[slot] else { return };
        if let Some(Over { status, runtime, .. }) = running.over.take() {
            self.release(slot, Ok(status), runtime);
        }
    }

    /// Frees the slot of a job that has ended.
    fn release(&mut self, slot: usize, status: io::Result<ExitStatus>, runtime: Duration) {
        let Slot::Running(running) = std::mem::replace(&mut self.slots[slot], Slot::Free) else { return };
        self.running -= 1;
        self.unwatched -= usize::from(!running.watched);
        // The resources that a launch lacked may be free now.
        self.not_before = None;
        let Running {
            job, place, tries, shell, clock, capture, timed_out, killing, signalled, kills_before_exec, ..
        } = *running;
        let is_streamed = matches!(job.stdin, Stdin::Stream(_));
        let mut has_not_run = false;
        let ending = match status {
            Ok(status) => match status.code() {
                Some(code) => Ending::Exited(code),
                None => Ending::Killed(status.signal().unwrap_or(0)),
            },
            // What was written to its standard input is lost with the process: a later try would miss it.
            Err(error) if is_lack(&error) && killing.is_none() && !is_streamed => {
                let waiting = self.withdraw(job, place, tries, kills_before_exec, capture);
                self.hold(waiting, error);
                return;
            }
            Err(error) if is_killed_before_exec(&error) && killing.is_none() && !signalled && !is_streamed => {
                let waiting = self.withdraw(job, place, tries, kills_before_exec, capture);
                self.keep_killed(waiting, error);
                return;
            }
            Err(error) if shell.is_some() && killing.is_none() && is_for_the_shell(&error) => {
                let waiting = self.withdraw(job, place, tries, kills_before_exec, capture);
                self.run_by_shell(waiting);
                return;
            }
            Err(error) if is_of_launch(&error) => match Error::of(&error).and_then(Error::signal) {
                // Its own signal was faster than the exec.
                Some(signal) if signalled => Ending::Killed(signal),
                _ => {
                    has_not_run = is_killed_before_exec(&error);
                    Ending::NotStarted(error)
                }
            },
            Err(error) => Ending::Lost(error),
        };
        if ending.is_success() {
            self.runtimes.add(runtime);
        }
        let mut ended = Ended {
            job,
            place,
            ending,
            timed_out,
            cut_short: has_not_run,
            started: clock,
            runtime,
            tries,
            received: 0,
        };
        // It must run again with the same log: the run has ended it, not the job itself.
        ended.cut_short |= killing.is_some() && !timed_out && ended.is_failure();
        self.end(ended, capture);
    }

    /// Makes a launch undone that has not executed the program.
    fn withdraw(
        &mut self,
        job: Job,
        place: JobPlace,
        tries: u32,
        kills_before_exec: u32,
        capture: Option<Box<Capture>>,
    ) -> Waiting {
        self.discard(capture);
        self.events.withdrawn(place);
        Waiting { job, place, tries: tries - 1, since: None, kills_before_exec }
    }

    /// Runs a line by the shell after its program could not be executed, so that the error message is the shell's. Launches
    /// at once, even while no further jobs are started: this one was already running.
    fn run_by_shell(&mut self, mut waiting: Waiting) {
        if let Run::Line(line) = &waiting.job.run {
            let args = vec!["-c".into(), OsString::from_vec(line.clone())];
            waiting.job.run = Run::Program { program: self.options.shell.clone().into(), args };
        }
        self.launch(waiting);
    }

    /// Counts a job that has ended, or launches it again if it failed and has a try left.
    pub(super) fn end(&mut self, mut ended: Ended, capture: Option<Box<Capture>>) {
        let streamed = matches!(ended.job.stdin, Stdin::Stream(_));
        let most = self.options.tries_of(&ended.job);
        if ended.is_failure() && ended.tries < most && self.flow == Flow::Continue && !streamed {
            self.events.retried(&ended);
            self.discard(capture);
            let slot = ended.place.slot - 1;
            let Ended { job, place, tries, .. } = ended;
            self.slots[slot] =
                Slot::Waiting(Box::new(Waiting { job, place, tries, since: None, kills_before_exec: 0 }));
            self.waiting += 1;
            return;
        }
        match ended.ending {
            Ending::NotStarted(_) => self.summary.not_started += 1,
            _ => self.summary.ran += 1,
        }
        self.summary.failed += u64::from(ended.is_failure());
        self.source.closed(ended.place.seq);
        let flow = self.events.finished(&ended);
        self.stop(flow);
        if let Some(flow) =
            self.options.halt.and_then(|halt| halt.stops(&mut self.summary, &ended, || self.source.total()))
        {
            self.stop(flow);
        }
        // Frees memory: the output may wait long for its turn.
        ended.job.run = Run::default();
        ended.job.stdin = Stdin::Null;
        ended.job.env = Vec::new();
        self.ended.push(Finished { ended, capture });
    }
}
