//! The one place where a run sleeps: an epoll instance.

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// What a descriptor is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeKind {
    /// The pidfd of a job.
    Child,
    /// The pipe of a job's standard output.
    Out,
    /// The pipe of a job's standard error.
    Err,
    /// The pipe of a job's standard input.
    In,
    /// The [`Control`](crate::Control).
    Control,
    /// What the source waits for.
    Source,
    /// What the jobs that run elsewhere wait for.
    Remote,
    /// The threads that launch.
    Pool,
}

const KINDS: [WakeKind; 8] = [
    WakeKind::Child,
    WakeKind::Out,
    WakeKind::Err,
    WakeKind::In,
    WakeKind::Control,
    WakeKind::Source,
    WakeKind::Remote,
    WakeKind::Pool,
];

/// A descriptor that is ready.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    pub(crate) kind: WakeKind,
    pub(crate) slot: usize,
    /// The launch that the descriptor belongs to. Events may come after the job has ended: a process may hold a copy of
    /// the descriptor between its clone and its exec.
    pub(crate) turn: u32,
}

impl Token {
    pub(crate) fn of_run(kind: WakeKind) -> Self {
        Self { kind, slot: 0, turn: 0 }
    }

    /// Upper half: the turn. Lower half: the kind in three bits, the slot in the others.
    fn to_data(self) -> EventData {
        EventData::new_u64(u64::from(self.turn) << 32 | (self.kind as u64) << 29 | self.slot as u64 & SLOT)
    }

    fn from_data(data: EventData) -> Option<Self> {
        let data = data.u64();
        let kind = *KINDS.get((data >> 29 & 7) as usize)?;
        Some(Self { kind, slot: (data & SLOT) as usize, turn: (data >> 32) as u32 })
    }
}

const SLOT: u64 = (1 << 29) - 1;

/// How many events one call returns at most.
const BATCH: usize = 64;

pub(crate) struct Wake(OwnedFd);

impl Wake {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Watches a descriptor, which leaves the set when it is closed.
    pub(crate) fn add(&self, fd: impl AsFd, token: Token) -> io::Result<()> {
        let flags = match token.kind {
            // Under a tracer it is readable before the job can be reaped, and a second edge comes when it can.
            WakeKind::Child => EventFlags::IN | EventFlags::ET,
            WakeKind::In => EventFlags::OUT,
            WakeKind::Out
            | WakeKind::Err
            | WakeKind::Control
            | WakeKind::Source
            | WakeKind::Remote
            | WakeKind::Pool => EventFlags::IN,
        };
        Ok(epoll::add(&self.0, fd, token.to_data(), flags)?)
    }

    pub(crate) fn remove(&self, fd: impl AsFd) {
        // An error means that it is not in the set.
        let _ = epoll::delete(&self.0, fd);
    }

    /// Sleeps until something is ready, for `limit` at most, and puts the tokens of what is ready into `ready`.
    pub(crate) fn sleep(&self, limit: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<()> {
        /// `epoll_wait(2)` counts milliseconds in 31 bits.
        const LONGEST: Duration = Duration::from_secs(1 << 20);
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; BATCH];
        let limit = limit.and_then(|limit| Timespec::try_from(limit.min(LONGEST)).ok());
        ready.clear();
        match epoll::wait(&self.0, &mut events[..], limit.as_ref()) {
            Ok((found, _)) => {
                ready.extend(found.iter().filter_map(|event| Token::from_data(event.data)));
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_from_its_number() {
        for kind in KINDS {
            let token = Token { kind, slot: 123_456, turn: u32::MAX };
            let back = Token::from_data(token.to_data()).expect("a token");
            assert_eq!((back.kind, back.slot, back.turn), (kind, 123_456, u32::MAX));
        }
    }
}
