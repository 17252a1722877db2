//! What jobs read: the bytes on their way from the source to their standard input.

use super::{Engine, Supply};
use crate::control::Flow;
use crate::slot::{Running, Slot};
use crate::source::More;
use crate::wake::{Token, WakeKind};
use std::collections::VecDeque;
use std::io;
use std::time::Instant;

/// How many pieces are given to the jobs before events are handled again.
const AT_ONCE: usize = 64;

/// Jobs with a [`Stdin::Stream`](crate::Stdin::Stream).
#[derive(Default)]
pub(super) struct Streams {
    /// Slot and turn of those that can take more, the one that has waited longest first.
    hungry: VecDeque<(usize, u32)>,
    /// None can be served before the source's descriptor is readable.
    pub(super) waits_for_input: bool,
    /// Some can be served at once, without waiting for an event.
    pub(super) is_busy: bool,
    /// Whether there has been such a job: then input may be left when all jobs have ended.
    pub(super) have_been: bool,
}

impl Engine<'_> {
    /// Writes to a job's standard input.
    pub(super) fn feed(&mut self, slot: usize) {
        let Slot::Running(running) = &mut self.slots[slot] else { return };
        let (turn, seq) = (running.turn, running.place.seq);
        let Some(feed) = &mut running.feed else { return };
        // Noted before the first write, which fails if the job has already ended.
        if feed.goes_on {
            self.streams.have_been = true;
        }
        while feed.at < feed.bytes.len() {
            match forkless::internal::write_quietly(&feed.pipe, &feed.bytes[feed.at..]) {
                Ok(count) => feed.at += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let token = Token { kind: WakeKind::In, slot, turn };
                    match self.wake.add(&feed.pipe, token) {
                        Ok(()) => return,
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return,
                        Err(error) => {
                            self.fail(error);
                            return self.close_feed(slot, seq);
                        }
                    }
                }
                // The job has closed its standard input.
                Err(_) => return self.close_feed(slot, seq),
            }
        }
        if !feed.goes_on {
            running.end_feed(self.options.tries_of(&running.job) > 1);
            return;
        }
        // Not watched until there are bytes for it: the pipe is writable all that time.
        self.wake.remove(&feed.pipe);
        self.streams.hungry.push_back((slot, turn));
    }

    /// Closes a job's standard input, and reports that to the source.
    fn close_feed(&mut self, slot: usize, seq: u64) {
        if let Slot::Running(running) = &mut self.slots[slot] {
            running.end_feed(self.options.tries_of(&running.job) > 1);
        }
        self.source.closed(seq);
    }

    /// Gives bytes of the source to the jobs that can take more, in turn, until it has none for any of them.
    pub(super) fn serve(&mut self) {
        let (mut refused, mut given) = (0, 0);
        self.streams.is_busy = false;
        if self.flow == Flow::Now {
            return;
        }
        let mut lacks_input = false;
        while refused < self.streams.hungry.len() {
            if given == AT_ONCE {
                self.streams.is_busy = true;
                return;
            }
            let Some((slot, turn)) = self.streams.hungry.pop_front() else { break };
            let Slot::Running(running) = &mut self.slots[slot] else { continue };
            let Running { turn: now, place, feed: Some(feed), .. } = &mut **running else { continue };
            if *now != turn {
                continue;
            }
            let seq = place.seq;
            match self.source.more(seq) {
                Ok(More::Bytes(bytes)) => {
                    (feed.bytes, feed.at) = (bytes, 0);
                    (refused, given) = (0, given + 1);
                    self.feed(slot);
                }
                Ok(More::End) => self.close_feed(slot, seq),
                Ok(answer) => {
                    lacks_input |= matches!(answer, More::Later);
                    self.streams.hungry.push_back((slot, turn));
                    refused += 1;
                }
                Err(error) => {
                    self.source_failed(error);
                    // The job must not take a part of its input for all of it: it is ended while its pipe is still open.
                    self.stop(Flow::Now);
                    return;
                }
            }
        }
        if lacks_input && !self.streams.waits_for_input {
            self.wait_for_more();
        }
    }

    /// Waits for input that the streams need.
    fn wait_for_more(&mut self) {
        let answer = self.source.waits_for().map(|fd| self.wake.add(fd, Token::of_run(WakeKind::Source)));
        match answer {
            Some(Err(error)) if error.kind() == io::ErrorKind::AlreadyExists => self.streams.waits_for_input = true,
            // A regular file is always readable.
            Some(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => self.streams.is_busy = true,
            Some(Err(error)) => self.source_failed(error),
            _ => self.streams.waits_for_input = true,
        }
    }

    /// When the source goes on without input.
    pub(super) fn input_due(&self) -> Option<Instant> {
        let waits = self.input == Supply::Later || self.streams.waits_for_input;
        if waits { self.source.waits_until() } else { None }
    }

    /// What the source waits for is readable, or the time for it is up.
    pub(super) fn input_came(&mut self) {
        if let Some(fd) = self.source.waits_for() {
            self.wake.remove(fd);
        }
        self.streams.waits_for_input = false;
        if self.input == Supply::Later {
            self.input = Supply::MayHave;
        }
    }
}
