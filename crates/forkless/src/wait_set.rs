//! Waiting for any of many children.
//!
//! One epoll instance holds their pidfds. The kernel puts a pidfd on the ready list when its process ends, so an exit costs
//! the same whether ten children are waited for or ten thousand: no SIGCHLD handler, which would have to ask for each of
//! them, no thread per child, no polling.

use crate::child::Child;
use forkless_core::planted;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Children of which the next one to end is waited for.
///
/// Each comes with a value of the caller's own, which says what it is for. An end costs one system call, with one more for each 64
/// that come together and the close of the pidfd with the handle, whatever the number of children; a waiting child costs its handle
/// (less than 512 bytes) and its pidfd.
///
/// ```
/// use forkless::{Command, WaitSet};
/// let mut set = WaitSet::new()?;
/// for code in [3, 1, 2] {
///     set.insert(Command::new("sh").args(["-c", &format!("exit {code}")]).spawn()?, code)?;
/// }
/// while let Some(ended) = set.wait()? {
///     assert_eq!(ended.status?.code(), Some(ended.value));
/// }
/// assert!(set.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// It is a descriptor itself ([`AsFd`]), readable when a child has ended, for an event loop of the caller's own.
///
/// In a forked copy of the process its children are not children: do not use it there. Dropping it there does no harm.
///
/// Source: `epoll(7)`, `pidfd_open(2)`.
#[derive(Debug)]
pub struct WaitSet<T> {
    epoll: OwnedFd,
    places: Vec<Place<T>>,
    /// The first vacant place.
    vacant: Option<u32>,
    len: usize,
    /// Places whose children have been reported as ended.
    ready: VecDeque<u32>,
    /// Places whose children are watched edge-triggered.
    traced: BTreeSet<u32>,
}

#[derive(Debug)]
enum Place<T> {
    /// And how often this one has been vacated.
    Taken(Box<(Child, T)>, u32),
    /// The next vacant one, and how often this one has been vacated.
    Vacant(Option<u32>, u32),
}

/// A child of a [`WaitSet`], as long as it is in there; in another set it means another child, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    place: u32,
    turn: u32,
}

impl Key {
    /// The key as a number, for who has only numbers to pass on.
    ///
    /// ```
    /// use forkless::{Command, Key, WaitSet};
    /// let mut set = WaitSet::new()?;
    /// let first = set.insert(Command::new("true").spawn()?, 1)?;
    /// let second = set.insert(Command::new("true").spawn()?, 2)?;
    /// assert_eq!(Key::from_bits(second.to_bits()), second);
    /// assert!(set.remove(Key::from_bits(first.to_bits())).is_some_and(|(_, value)| value == 1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn to_bits(self) -> u64 {
        u64::from(self.turn) << 32 | u64::from(self.place)
    }

    /// The key that [`to_bits`](Self::to_bits) has made a number of; of any other number, one that means no child or another.
    pub fn from_bits(bits: u64) -> Self {
        Self { place: bits as u32, turn: (bits >> 32) as u32 }
    }
}

/// A child that has ended, out of a [`WaitSet`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Ended<T> {
    /// How it ended; an error as that of [`Child::wait`].
    pub status: io::Result<ExitStatus>,
    /// What it was inserted with.
    pub value: T,
    /// Its handle, with its pipes and what it has used.
    pub child: Child,
}

/// A child that could not be inserted, and why. It goes on: take it [out](Self::into_inner), or drop it as any [`Child`].
///
/// `?` makes an [`io::Error`] of it, which drops the child.
pub struct NotInserted<T> {
    /// Why.
    pub error: io::Error,
    child: Box<(Child, T)>,
}

impl<T> NotInserted<T> {
    /// The child, and what it was to be inserted with.
    pub fn into_inner(self) -> (Child, T) {
        *self.child
    }
}

impl<T> fmt::Debug for NotInserted<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("NotInserted").field("error", &self.error).field("child", &self.child.0).finish()
    }
}

impl<T> fmt::Display for NotInserted<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "cannot wait for pid {}: {}", self.child.0.id(), self.error)
    }
}

impl<T> std::error::Error for NotInserted<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl<T> From<NotInserted<T>> for io::Error {
    fn from(not: NotInserted<T>) -> Self {
        not.error
    }
}

/// How many ends are asked for at a time.
const BATCH: usize = 64;

impl<T> WaitSet<T> {
    /// An empty set.
    ///
    /// # Errors
    /// EMFILE.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, places: Vec::new(), vacant: None, len: 0, ready: VecDeque::new(), traced: BTreeSet::new() })
    }

    /// Adds a child, which may have ended already.
    ///
    /// A handle without a pidfd gets one. If the child's [standard input](Child::stdin) is a pipe it stays open: take it, or
    /// the child may wait for you.
    ///
    /// # Errors
    /// EMFILE, or that pidfds are refused here; ENOSPC where `/proc/sys/fs/epoll/max_user_watches` is reached. The child comes
    /// back with the error.
    pub fn insert(&mut self, child: Child, value: T) -> Result<Key, NotInserted<T>> {
        let mut both = Box::new((child, value));
        let place = self.vacant_place();
        match self.begin(&mut both.0, place) {
            Ok(true) => {}
            Ok(false) if planted!("set-known-end-not-told") => {}
            Ok(false) => self.ready.push_back(place),
            Err(error) => return Err(NotInserted { error, child: both }),
        }
        let Place::Vacant(next, turn) = self.places[place as usize] else { unreachable!("it is vacant") };
        self.vacant = next;
        self.places[place as usize] = Place::Taken(both, turn);
        self.len += 1;
        Ok(Key { place, turn })
    }

    /// The first vacant place; a new one if there is none.
    fn vacant_place(&mut self) -> u32 {
        *self.vacant.get_or_insert_with(|| {
            self.places.push(Place::Vacant(None, 0));
            self.places.len() as u32 - 1
        })
    }

    /// Watches a child; false if there is nothing to watch, since its end is known.
    fn begin(&self, child: &mut Child, place: u32) -> io::Result<bool> {
        if child.pidfd().is_none() && !child.is_running() {
            // Its pid may be another's by now.
            return Ok(false);
        }
        match child.pidfd_or_open() {
            Ok(pidfd) => self.watch(pidfd, place, epoll::EventFlags::ONESHOT).map(|()| true),
            // It has been reaped by another: the look at it will say so.
            Err(error) if error.errno() == Some(forkless_core::sys::errno::ESRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Has an end told: once, so that one that has been told need not be taken out.
    fn watch(&self, pidfd: BorrowedFd<'_>, place: u32, how: epoll::EventFlags) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | how;
        let data = epoll::EventData::new_u64(place.into());
        match epoll::add(&self.epoll, pidfd, data, flags) {
            // It is, or has been, in here.
            Err(Errno::EXIST) => Ok(epoll::modify(&self.epoll, pidfd, data, flags)?),
            answer => Ok(answer?),
        }
    }

    /// Takes a child out; none if it is not in there any more.
    pub fn remove(&mut self, key: Key) -> Option<(Child, T)> {
        self.get(key)?;
        let (child, value) = self.take(key.place)?;
        if let Some(pidfd) = child.pidfd().filter(|_| !planted!("set-watches-the-removed")) {
            let _ = epoll::delete(&self.epoll, pidfd);
        }
        Some((child, value))
    }

    fn take(&mut self, place: u32) -> Option<(Child, T)> {
        let slot = self.places.get_mut(place as usize)?;
        let Place::Taken(_, turn) = *slot else { return None };
        let taken = std::mem::replace(slot, Place::Vacant(self.vacant, turn.wrapping_add(1)));
        self.vacant = if planted!("set-places-not-used-again") { None } else { Some(place) };
        self.len -= 1;
        self.traced.remove(&place);
        match taken {
            Place::Taken(both, _) => Some(*both),
            Place::Vacant(..) => None,
        }
    }

    /// A child in the set, to be signalled for instance.
    pub fn get(&mut self, key: Key) -> Option<(&mut Child, &mut T)> {
        match self.places.get_mut(key.place as usize)? {
            Place::Taken(both, turn) if *turn == key.turn || planted!("set-key-of-another-child") => {
                Some((&mut both.0, &mut both.1))
            }
            _ => None,
        }
    }

    /// All children in the set.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&mut Child, &mut T)> {
        self.places.iter_mut().filter_map(|place| match place {
            Place::Taken(both, _) => Some((&mut both.0, &mut both.1)),
            Place::Vacant(..) => None,
        })
    }

    /// How many children are in the set.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Waits for the next child to end and takes it out; none if there is no child.
    ///
    /// # Errors
    /// Of `epoll_wait(2)`; that of a child is in [`Ended::status`].
    pub fn wait(&mut self) -> io::Result<Option<Ended<T>>> {
        self.next(None)
    }

    /// The same, for `limit` at most; none too if no child has ended by then.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, limit: Duration) -> io::Result<Option<Ended<T>>> {
        // A limit beyond what the clock holds is no limit.
        self.next(Instant::now().checked_add(limit))
    }

    /// A child that has ended, if there is one.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> io::Result<Option<Ended<T>>> {
        self.wait_timeout(Duration::ZERO)
    }

    fn next(&mut self, deadline: Option<Instant>) -> io::Result<Option<Ended<T>>> {
        while self.len > 0 {
            while let Some(place) = self.ready.pop_front() {
                if let Some(ended) = self.reap(place)? {
                    return Ok(Some(ended));
                }
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if !self.ask(left)? && left.is_some_and(|left| left.is_zero()) {
                break;
            }
        }
        Ok(None)
    }

    /// Which have ended? Waits for `limit` at most; false if there are none.
    fn ask(&mut self, limit: Option<Duration>) -> io::Result<bool> {
        /// Longer sleeps are several: `epoll_wait(2)` counts milliseconds in 31 bits.
        const LONGEST: Duration = Duration::from_secs(1 << 20);
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; BATCH];
        let limit = limit.and_then(|limit| Timespec::try_from(limit.min(LONGEST)).ok());
        match epoll::wait(&self.epoll, &mut events[..], limit.as_ref()) {
            Err(Errno::INTR) if !planted!("set-wait-interrupted") => Ok(true),
            Err(error) => Err(error.into()),
            Ok((found, _)) => {
                self.ready.extend(found.iter().map(|event| event.data.u64() as u32));
                Ok(!found.is_empty())
            }
        }
    }

    /// The child at a place whose pidfd has become readable.
    fn reap(&mut self, place: u32) -> io::Result<Option<Ended<T>>> {
        let Some(Place::Taken(both, _)) = self.places.get_mut(place as usize) else { return Ok(None) };
        let status = match both.0.try_wait() {
            Ok(Some(status)) => Ok(status),
            Err(error) => Err(error),
            // Traced by someone who is told first. Readable it is already, so only the wake that comes when it is ours must
            // count: edge-triggered. (Or it came to this place after the one that was meant.)
            Ok(None) => return self.watch_traced(place).map(|()| None),
        };
        Ok(self.take(place).map(|(child, value)| Ended { status, value, child }))
    }

    fn watch_traced(&mut self, place: u32) -> io::Result<()> {
        match self.places.get(place as usize) {
            Some(Place::Taken(both, _)) if !self.traced.contains(&place) => {
                let Some(pidfd) = both.0.pidfd() else { return Ok(()) };
                if planted!("set-traced-child-not-watched") {
                    return Ok(());
                }
                self.watch(pidfd, place, epoll::EventFlags::ET)?;
                self.traced.insert(place);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl<T> AsFd for WaitSet<T> {
    /// Readable when a child has ended that [`try_wait`](WaitSet::try_wait) has not come to: after each sleep on it, and after
    /// inserting a child that may have ended, call that until it gives none.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
