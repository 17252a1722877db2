//! Captured output on its way: from the pipes, through the order of the jobs, to the sink.

use super::{Engine, Finished};
use crate::options::Output;
use crate::output::{self, Capture, OutputPath};
use crate::slot::{Running, Slot};
use crate::wake::{Token, WakeKind};
use rustix::io::ioctl_fionread;
use std::io;
use std::time::{Duration, Instant};

/// For so long the pipes of a new job are not watched. What a short job writes fits into its pipe, and is read when the
/// job has ended: without this, each write would wake the run.
pub(super) const QUIET: Duration = Duration::from_millis(4);

impl Engine<'_> {
    /// Watches the pipes of a job, and closes our copies of the child's ends: at once with [`Output::Lines`], otherwise after [`QUIET`].
    pub(super) fn watch_output(&mut self, slot: usize, launched: Instant) {
        let Slot::Running(running) = &self.slots[slot] else { return };
        let turn = running.turn;
        if self.options.output == Output::Lines {
            self.watch_pipes(slot, turn);
        } else {
            self.output.quiet.push_back((launched, slot, turn));
        }
    }

    /// Watches the pipes of jobs that have run for [`QUIET`].
    pub(super) fn watch_the_long(&mut self, now: Instant) {
        while let Some(&(launched, slot, turn)) = self.output.quiet.front() {
            let runs = matches!(&self.slots[slot], Slot::Running(running) if running.turn == turn);
            if runs && now.saturating_duration_since(launched) < QUIET {
                break;
            }
            self.output.quiet.pop_front();
            if runs {
                self.watch_pipes(slot, turn);
            }
        }
    }

    /// Closes our copies of the child's ends of the pipes of the job launched before this one. Its child has inherited them.
    pub(super) fn let_go(&mut self, slot: usize) {
        let last = self.output.last.replace(slot).filter(|&last| last != slot);
        if let Some(Slot::Running(running)) = last.map(|last| &mut self.slots[last]) {
            running.child.let_go();
        }
    }

    pub(super) fn watch_pipes(&mut self, slot: usize, turn: u32) {
        let Slot::Running(running) = &mut self.slots[slot] else { return };
        let is_free = running.child.let_go();
        let mut unwatched = false;
        let streams = running.capture.iter().flat_map(|capture| &capture.streams);
        for (kind, one) in [WakeKind::Out, WakeKind::Err].into_iter().zip(streams) {
            let Some(pipe) = &one.pipe else { continue };
            match self.wake.add(pipe, Token { kind, slot, turn }) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(_) => unwatched = true,
            }
        }
        if unwatched || !is_free {
            // Again later: the kernel has no memory for the watch, or the child has not taken its ends yet. Descriptors that stay open
            // could be missing for the input that this job waits for.
            self.output.quiet.push_back((Instant::now(), slot, turn));
        }
        if unwatched {
            // The pipes are polled.
            for index in [0, 1] {
                self.read_if_any(slot, index);
            }
        }
    }

    fn read_if_any(&mut self, slot: usize, index: usize) {
        let Slot::Running(running) = &self.slots[slot] else { return };
        let pipe = running.capture.as_ref().and_then(|capture| capture.streams[index].pipe.as_ref());
        if pipe.is_some_and(|pipe| ioctl_fionread(pipe).is_ok_and(|count| count > 0)) {
            self.read(slot, index);
        }
    }

    /// Whether a job's output may be written now.
    fn is_turn(&self, seq: u64) -> bool {
        !self.options.keep_order || seq == self.output.due
    }

    /// Reads from a pipe that is readable.
    pub(super) fn read(&mut self, slot: usize, index: usize) {
        let turn = matches!(&self.slots[slot], Slot::Running(running) if self.is_turn(running.place.seq));
        let Slot::Running(running) = &mut self.slots[slot] else { return };
        let Running { job, place, capture: Some(capture), .. } = &mut **running else { return };
        let Some(pipe) = &capture.streams[index].pipe else { return };
        let Some(count) = output::read(pipe, &mut self.output.scratch) else { return };
        if count == 0 {
            capture.streams[index].pipe = None;
            if capture.has_ended() {
                self.let_end(slot);
            }
            return;
        }
        let way = OutputPath { seq: place.seq, job, sink: &mut self.sink, spill: &mut self.output.spill };
        let lines = self.options.output == Output::Lines;
        let (seq, answer) = (place.seq, capture.take(index, &self.output.scratch[..count], lines, way, turn));
        let copy_error = capture.copy_error.take();
        if count == self.output.scratch.len() {
            output::filled(&mut self.output.scratch);
        }
        if answer.is_err() && self.output.spill.is_full() {
            capture.cut();
            self.send_next(slot, Instant::now());
            self.let_end(slot);
        }
        if let Some(error) = copy_error {
            self.results_failed(seq, &error);
        }
        if let Err(error) = answer {
            self.sink_failed(error);
        }
    }

    /// Records that the results of a job are not complete. Only the first such job is reported, and the run goes on.
    pub(super) fn results_failed(&mut self, seq: u64, error: &io::Error) {
        const OF: &str = "the results of job";
        if !self.summary.errors.iter().any(|known| known.to_string().starts_with(OF)) {
            self.fail(io::Error::new(error.kind(), format!("{OF} {seq}: {error}")));
        }
    }

    /// Handles the output of the jobs that have ended.
    pub(super) fn settle(&mut self) {
        for mut finished in std::mem::take(&mut self.ended) {
            let seq = finished.ended.place.seq;
            let turn = self.is_turn(seq);
            if turn {
                self.write_out(finished);
                if self.options.keep_order {
                    self.advance();
                }
                continue;
            }
            self.take_rest(&mut finished, false);
            self.output.held.insert(seq, finished);
        }
    }

    /// Reads what is left in the job's pipes.
    fn take_rest(&mut self, finished: &mut Finished, turn: bool) {
        let Finished { ended, capture, .. } = finished;
        let Some(capture) = capture else { return };
        let way =
            OutputPath { seq: ended.place.seq, job: &ended.job, sink: &mut self.sink, spill: &mut self.output.spill };
        let answer = capture.finish(&mut self.output.scratch, way, turn);
        ended.received = capture.received;
        let (seq, copy_error) = (ended.place.seq, capture.copy_error.take());
        if let Some(error) = copy_error {
            self.results_failed(seq, &error);
        }
        if let Err(error) = answer {
            self.sink_failed(error);
        }
    }

    /// Writes the output of a job whose turn has come.
    pub(super) fn write_out(&mut self, mut finished: Finished) {
        self.take_rest(&mut finished, true);
        let Finished { ended, capture } = finished;
        if capture.is_none() {
            let way = &mut OutputPath {
                seq: ended.place.seq,
                job: &ended.job,
                sink: &mut self.sink,
                spill: &mut self.output.spill,
            };
            if let Err(error) = output::head(way) {
                self.sink_failed(error);
            }
        }
        let is_whole = capture.is_none_or(|capture| capture.is_whole(ended.job.results.is_some()));
        if let Err(error) = self.sink.complete(&ended, None, is_whole && !ended.cut_short) {
            self.sink_failed(error);
        }
    }

    /// Writes the output that has waited for the output just written.
    fn advance(&mut self) {
        loop {
            self.output.due = self.options.done.next_open(self.output.due + 1);
            let Some(finished) = self.output.held.remove(&self.output.due) else { break };
            self.write_out(finished);
        }
        if self.options.output == Output::Lines {
            self.write_lines_of_due();
        }
    }

    /// Writes the lines of a job that runs, and whose turn has come.
    fn write_lines_of_due(&mut self) {
        let due = self.output.due;
        let found = self.slots.iter_mut().find_map(|slot| match slot {
            Slot::Running(running) if running.place.seq == due => Some(running),
            _ => None,
        });
        let Some(Running { job, capture: Some(capture), .. }) = found.map(|running| &mut **running) else { return };
        let way = &mut OutputPath { seq: due, job, sink: &mut self.sink, spill: &mut self.output.spill };
        if let Err(error) = capture.write(way) {
            self.sink_failed(error);
        }
    }

    /// Forgets the output of a try that failed.
    pub(super) fn discard(&mut self, capture: Option<Box<Capture>>) {
        if let Some(capture) = capture {
            capture.discard(&mut self.output.spill);
        }
    }
}
