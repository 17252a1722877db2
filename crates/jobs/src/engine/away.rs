//! Jobs that run elsewhere.

use super::Engine;
use super::limits::shorter;
use crate::control::Flow;
use crate::output::Capture;
use crate::remote::RemoteEnd;
use crate::slot::{RemoteJob, Slot, Waiting};
use crate::summary::Ended;
use std::time::{Instant, SystemTime};

impl Engine<'_> {
    /// Gives a job to the [`Remote`](crate::Remote).
    pub(super) fn send_away(&mut self, waiting: Waiting) {
        let Waiting { job, place, tries, .. } = waiting;
        let timeout = shorter(self.time_limit(), job.timeout);
        let Some(remote) = &mut self.options.remote else { return };
        remote.submit(&job, place, timeout);
        self.events.started(&job, place, 0);
        let (started, clock) = (Instant::now(), SystemTime::now());
        self.running += 1;
        let absent = RemoteJob { job, place, tries: tries + 1, started, clock };
        self.slots[place.slot - 1] = Slot::Away(Box::new(absent));
        self.launched(started, place.slot - 1);
    }

    /// Lets the remote work. Returns whether jobs have ended.
    pub(super) fn pump_remote(&mut self) -> bool {
        let Some(remote) = &mut self.options.remote else { return false };
        let mut ended = Vec::new();
        let answer = remote.pump(&mut ended);
        let any = !ended.is_empty();
        for away in ended {
            self.came_back(away);
        }
        if let Err(error) = answer {
            self.fail(error);
            self.stop(Flow::Soon);
            self.leave_away();
        }
        any
    }

    fn came_back(&mut self, away: RemoteEnd) {
        let is_it = |slot: &Slot| matches!(slot, Slot::Away(absent) if absent.place.seq == away.seq);
        // Unknown: the run has left the job, or its end is reported twice.
        let Some(slot) = self.slots.iter().position(is_it) else { return };
        let Slot::Away(absent) = std::mem::replace(&mut self.slots[slot], Slot::Free) else { return };
        self.running -= 1;
        let RemoteJob { job, place, tries, started, clock } = *absent;
        let RemoteEnd { ending, timed_out, out, err, .. } = away;
        let runtime = away.runtime.unwrap_or_else(|| started.elapsed());
        if ending.is_success() {
            self.runtimes.add(runtime);
        }
        let started = away.started.unwrap_or(clock);
        let copies = self.copies(&job, place.seq).unwrap_or_else(|error| {
            self.results_failed(place.seq, &error);
            [None, None]
        });
        let capture = Some(Box::new(Capture::whole(out, err, copies)));
        let ended = Ended { job, place, ending, timed_out, cut_short: false, started, runtime, tries, received: 0 };
        self.end(ended, capture);
    }

    /// The run ends without the jobs that are away: they are not in the log, so that a run with the same log runs them.
    pub(super) fn leave_away(&mut self) {
        for slot in &mut self.slots {
            if matches!(slot, Slot::Away(_)) {
                *slot = Slot::Free;
                self.running -= 1;
                self.summary.skipped += 1;
            }
        }
    }
}
