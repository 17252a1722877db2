//! Waiting for any of many children.
//!
//! One epoll instance holds their pidfds. The kernel puts a pidfd on the ready list when its process ends, so an exit
//! costs the same for ten children and for ten thousand. There is no SIGCHLD handler, which would have to query every
//! child, no thread per child, and no polling.

use crate::child::Child;
use crate::process;
use forkless_core::sys::errno;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// A set of children, to wait for the next one that ends.
///
/// Each child comes with a value of the caller's own, to tell what it is for. An exit costs one system call, one more
/// for each 64 that come together, and the close of the pidfd with the handle, whatever the number of children. A
/// waiting child costs its handle (less than 512 bytes) and its pidfd.
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
/// The set is a descriptor itself ([`AsFd`]), which is readable when a child has ended. An event loop can watch it.
///
/// Do not use it in a forked copy of the process, which has no children. Dropping it there does no harm.
///
/// Source: `epoll(7)`, `pidfd_open(2)`.
#[derive(Debug)]
pub struct WaitSet<T> {
    epoll: OwnedFd,
    /// The process that made it: [`process::generation`].
    process: u32,
    places: Vec<SetSlot<T>>,
    /// The first vacant place.
    vacant: Option<u32>,
    len: usize,
    /// Places whose children have been reported as ended.
    ready: VecDeque<u32>,
    /// Places whose children are watched edge-triggered, because a tracer is notified of their ends first.
    traced: BTreeSet<u32>,
}

#[derive(Debug)]
enum SetSlot<T> {
    /// A child with its value, and how often this place has been vacated.
    Taken(Box<(Child, T)>, u32),
    /// The next vacant place, and how often this one has been vacated.
    Vacant(Option<u32>, u32),
}

/// Names a child of a [`WaitSet`] as long as it is in the set. In another set it names another child, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    place: u32,
    turn: u32,
}

impl Key {
    /// The key as a number, for callers that can store only numbers, such as C.
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

    /// The key of a number that [`to_bits`](Self::to_bits) returned. Any other number gives a key that names no child,
    /// or another one.
    ///
    /// ```
    /// use forkless::{Command, Key, WaitSet};
    /// let mut set = WaitSet::new()?;
    /// let bits = set.insert(Command::new("true").spawn()?, "first")?.to_bits();
    /// let (_child, value) = set.get(Key::from_bits(bits)).expect("it is in the set");
    /// assert_eq!(*value, "first");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn from_bits(bits: u64) -> Self {
        Self { place: bits as u32, turn: (bits >> 32) as u32 }
    }
}

/// A child that has ended, taken out of a [`WaitSet`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Ended<T> {
    /// Its exit status; an error is one of [`Child::wait`].
    pub status: io::Result<ExitStatus>,
    /// The value that it was inserted with.
    pub value: T,
    /// Its handle, with its pipes and its resource usage.
    pub child: Child,
}

/// A child that could not be inserted, with the reason. It goes on running: take it [out](Self::into_inner), or drop it
/// like any [`Child`].
///
/// `?` turns it into an [`io::Error`], which drops the child.
pub struct NotInserted<T> {
    /// The reason.
    pub error: io::Error,
    child: Box<(Child, T)>,
}

impl<T> NotInserted<T> {
    /// Returns the child, and the value that it was to be inserted with.
    ///
    /// ```
    /// let mut set = forkless::WaitSet::new()?;
    /// let child = forkless::Command::new("true").spawn()?;
    /// if let Err(not) = set.insert(child, "value") {
    ///     eprintln!("{not}");
    ///     let (mut child, _value) = not.into_inner();
    ///     child.wait()?; // without the set
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
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

/// How many exits one call of `epoll_wait(2)` may report.
const BATCH: usize = 64;

impl<T> WaitSet<T> {
    /// An empty set.
    ///
    /// ```
    /// let set = forkless::WaitSet::<()>::new()?;
    /// assert!(set.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// EMFILE.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let process = process::generation();
        let (places, ready, traced) = (Vec::new(), VecDeque::new(), BTreeSet::new());
        Ok(Self { epoll, process, places, vacant: None, len: 0, ready, traced })
    }

    /// Adds a child, which may have ended already. Returns the key by which it can be found again.
    ///
    /// A handle without a pidfd gets one. If the child's [standard input](Child::stdin) is a pipe, it stays open: take
    /// it out, or a child that reads to the end of its input never ends.
    ///
    /// ```
    /// use forkless::{Command, WaitSet};
    /// let mut set = WaitSet::new()?;
    /// let key = set.insert(Command::new("sleep").arg("60").spawn()?, "sleep")?;
    /// set.get(key).expect("it is in the set").0.kill()?;
    /// assert!(set.wait()?.is_some_and(|ended| ended.value == "sleep"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// EMFILE, or that pidfds are refused here; ENOSPC if `/proc/sys/fs/epoll/max_user_watches` is reached; ECHILD in a
    /// process that was forked after the set was made. The error holds the child.
    pub fn insert(&mut self, child: Child, value: T) -> Result<Key, NotInserted<T>> {
        let mut both = Box::new((child, value));
        if let Err(error) = self.check_process() {
            return Err(NotInserted { error, child: both });
        }
        let place = self.vacant_place();
        match self.begin(&mut both.0, place) {
            Ok(true) => {}
            Ok(false) => self.ready.push_back(place),
            Err(error) => return Err(NotInserted { error, child: both }),
        }
        let SetSlot::Vacant(next, turn) = self.places[place as usize] else { unreachable!("it is vacant") };
        self.vacant = next;
        self.places[place as usize] = SetSlot::Taken(both, turn);
        self.len += 1;
        Ok(Key { place, turn })
    }

    /// An error in a forked copy of the process. The copy shares the original's epoll instance: it would take reports of
    /// ended children from the original, or change what the instance watches.
    fn check_process(&self) -> io::Result<()> {
        let is_own = self.process == process::generation();
        if is_own { Ok(()) } else { Err(io::Error::from_raw_os_error(errno::ECHILD)) }
    }

    /// The first vacant place; a new one if there is none.
    fn vacant_place(&mut self) -> u32 {
        *self.vacant.get_or_insert_with(|| {
            self.places.push(SetSlot::Vacant(None, 0));
            self.places.len() as u32 - 1
        })
    }

    /// Watches a child; false if there is nothing to watch because its end is known.
    fn begin(&self, child: &mut Child, place: u32) -> io::Result<bool> {
        if child.pidfd().is_none() && !child.is_running() {
            // Its PID may already belong to another process.
            return Ok(false);
        }
        match child.pidfd_or_open() {
            Ok(pidfd) => self.watch(pidfd, place, epoll::EventFlags::ONESHOT).map(|()| true),
            // Another part of the program has reaped it: try_wait reports that.
            Err(error) if error.errno() == Some(errno::ESRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Watches a pidfd. One-shot, a reported child needs no further call to take it out.
    fn watch(&self, pidfd: BorrowedFd<'_>, place: u32, how: epoll::EventFlags) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | how;
        let data = epoll::EventData::new_u64(place.into());
        match epoll::add(&self.epoll, pidfd, data, flags) {
            // It is, or has been, in this epoll instance.
            Err(Errno::EXIST) => Ok(epoll::modify(&self.epoll, pidfd, data, flags)?),
            answer => Ok(answer?),
        }
    }

    /// Takes a child out, with its value. `None` if it is not in the set any more.
    ///
    /// ```
    /// use forkless::{Command, WaitSet};
    /// let mut set = WaitSet::new()?;
    /// let key = set.insert(Command::new("true").spawn()?, ())?;
    /// let (mut child, ()) = set.remove(key).expect("it is in the set");
    /// assert!(child.wait()?.success());
    /// assert!(set.remove(key).is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn remove(&mut self, key: Key) -> Option<(Child, T)> {
        self.get(key)?;
        let (child, value) = self.take(key.place)?;
        let is_watched = self.check_process().is_ok();
        if let Some(pidfd) = child.pidfd().filter(|_| is_watched) {
            let _ = epoll::delete(&self.epoll, pidfd);
        }
        Some((child, value))
    }

    fn take(&mut self, place: u32) -> Option<(Child, T)> {
        let slot = self.places.get_mut(place as usize)?;
        let SetSlot::Taken(_, turn) = *slot else { return None };
        let taken = std::mem::replace(slot, SetSlot::Vacant(self.vacant, turn.wrapping_add(1)));
        self.vacant = Some(place);
        self.len -= 1;
        self.traced.remove(&place);
        match taken {
            SetSlot::Taken(both, _) => Some(*both),
            SetSlot::Vacant(..) => None,
        }
    }

    /// A child of the set and its value, for example to send a signal. `None` if it is not in the set any more.
    ///
    /// ```
    /// use forkless::{Command, WaitSet};
    /// let mut set = WaitSet::new()?;
    /// let key = set.insert(Command::new("sleep").arg("60").spawn()?, "sleep")?;
    /// if let Some((child, _name)) = set.get(key) {
    ///     child.signal(15)?;
    /// }
    /// # set.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn get(&mut self, key: Key) -> Option<(&mut Child, &mut T)> {
        match self.places.get_mut(key.place as usize)? {
            SetSlot::Taken(both, turn) if *turn == key.turn => Some((&mut both.0, &mut both.1)),
            _ => None,
        }
    }

    /// All children of the set and their values, in no particular order.
    ///
    /// ```
    /// use forkless::{Command, WaitSet};
    /// let mut set = WaitSet::new()?;
    /// for n in 0..3 {
    ///     set.insert(Command::new("sleep").arg("60").spawn()?, n)?;
    /// }
    /// for (child, _n) in set.iter_mut() {
    ///     child.kill()?;
    /// }
    /// while set.wait()?.is_some() {}
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&mut Child, &mut T)> {
        self.places.iter_mut().filter_map(|place| match place {
            SetSlot::Taken(both, _) => Some((&mut both.0, &mut both.1)),
            SetSlot::Vacant(..) => None,
        })
    }

    /// The number of children in the set.
    ///
    /// ```
    /// use forkless::{Command, WaitSet};
    /// let mut set = WaitSet::new()?;
    /// set.insert(Command::new("true").spawn()?, ())?;
    /// assert_eq!(set.len(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no child is in the set.
    ///
    /// ```
    /// let mut set = forkless::WaitSet::new()?;
    /// set.insert(forkless::Command::new("true").spawn()?, ())?;
    /// set.wait()?;
    /// assert!(set.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Waits for the next child to end, and takes it out. `None` if the set is empty.
    ///
    /// ```
    /// use forkless::{Command, WaitSet};
    /// let mut set = WaitSet::new()?;
    /// set.insert(Command::new("true").spawn()?, "true")?;
    /// set.insert(Command::new("false").spawn()?, "false")?;
    /// while let Some(ended) = set.wait()? {
    ///     println!("{}: {}", ended.value, ended.status?);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `epoll_wait(2)`. ECHILD in a process that was forked after the set was made: the children are not its own.
    /// An error of one child is in [`Ended::status`].
    pub fn wait(&mut self) -> io::Result<Option<Ended<T>>> {
        self.next(None)
    }

    /// Does the same, for `limit` at most. `None` also if no child has ended by then.
    ///
    /// ```
    /// use forkless::{Command, WaitSet};
    /// use std::time::Duration;
    /// let mut set = WaitSet::new()?;
    /// let key = set.insert(Command::new("sleep").arg("60").spawn()?, ())?;
    /// if set.wait_timeout(Duration::from_millis(10))?.is_none() {
    ///     set.get(key).expect("it still runs").0.kill()?;
    /// }
    /// # set.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, limit: Duration) -> io::Result<Option<Ended<T>>> {
        // A limit beyond what the clock holds is no limit.
        self.next(Instant::now().checked_add(limit))
    }

    /// Takes out a child that has ended. `None` if none has. Does not block.
    ///
    /// ```
    /// use forkless::{Command, WaitSet};
    /// let mut set = WaitSet::new()?;
    /// set.insert(Command::new("true").spawn()?, ())?;
    /// while let Some(ended) = set.try_wait()? {
    ///     assert!(ended.status?.success());
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> io::Result<Option<Ended<T>>> {
        self.wait_timeout(Duration::ZERO)
    }

    fn next(&mut self, deadline: Option<Instant>) -> io::Result<Option<Ended<T>>> {
        self.check_process()?;
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

    /// Asks the kernel which children have ended. Waits for `limit` at most; false if none has.
    fn ask(&mut self, limit: Option<Duration>) -> io::Result<bool> {
        /// A longer sleep is split: `epoll_wait(2)` counts milliseconds in 31 bits.
        const LONGEST: Duration = Duration::from_secs(1 << 20);
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; BATCH];
        let limit = limit.and_then(|limit| Timespec::try_from(limit.min(LONGEST)).ok());
        match epoll::wait(&self.epoll, &mut events[..], limit.as_ref()) {
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
            Ok((found, _)) => {
                self.ready.extend(found.iter().map(|event| event.data.u64() as u32));
                Ok(!found.is_empty())
            }
        }
    }

    /// Reaps the child at a place whose pidfd has become readable.
    fn reap(&mut self, place: u32) -> io::Result<Option<Ended<T>>> {
        let Some(SetSlot::Taken(both, _)) = self.places.get_mut(place as usize) else { return Ok(None) };
        let status = match both.0.try_wait() {
            Ok(Some(status)) => Ok(status),
            Err(error) => Err(error),
            // A tracer is notified first. The pidfd stays readable meanwhile, so a level-triggered watch would spin: it is
            // watched edge-triggered, for the wake that comes when the child can be reaped. (Or this child took the place
            // after the child that the event was for.)
            Ok(None) => return self.watch_traced(place).map(|()| None),
        };
        Ok(self.take(place).map(|(child, value)| Ended { status, value, child }))
    }

    fn watch_traced(&mut self, place: u32) -> io::Result<()> {
        match self.places.get(place as usize) {
            Some(SetSlot::Taken(both, _)) if !self.traced.contains(&place) => {
                let Some(pidfd) = both.0.pidfd() else { return Ok(()) };
                self.watch(pidfd, place, epoll::EventFlags::ET)?;
                self.traced.insert(place);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl<T> AsFd for WaitSet<T> {
    /// Readable when a child has ended that [`try_wait`](WaitSet::try_wait) has not returned yet. Call `try_wait` until
    /// it returns `None`, after each sleep on this descriptor and after inserting a child that may have ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
