//! The thread that starts refillers, and is for the kernel the parent of all that is parked: it lives as long as the pool, in
//! whatever thread that was made, and with it end, by the kernel, the children of a process that executes another program.

use super::generation::Generation;
use super::inner::Inner;
use super::{PoolOptions, failed};
use crate::launch::surroundings::{Identity, Tasks};
use crate::launch::without_signals;
use forkless_core::sys;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What the thread is asked for.
enum Ask {
    /// To look whether the parked children are like the process.
    Look,
    /// To replace them.
    Refresh(Sender<io::Result<()>>),
    End,
}

/// The thread's other end.
pub(super) struct Owner {
    inner: ManuallyDrop<Arc<Inner>>,
    asks: ManuallyDrop<Sender<Ask>>,
    thread: ManuallyDrop<JoinHandle<()>>,
}

/// Enough for a launch, in bytes.
const STACK: usize = 256 * 1024;

/// The shortest time between two looks at the process that were asked for by launches.
const PAUSE: Duration = Duration::from_millis(10);

impl Owner {
    pub(super) fn start(options: PoolOptions) -> io::Result<Self> {
        let (asks, queue) = channel();
        let wake = asks.clone();
        // A thread that has ended hears nothing, and then there is nothing to be asked for.
        let wake = Box::new(move || drop(wake.send(Ask::Look)));
        let inner = Inner::new(options, wake).map_err(|errno| failed(errno).on("looking at itself in /proc"))?;
        let inner = Arc::new(inner);
        let (tell, told) = channel();
        let own = Arc::clone(&inner);
        let builder = thread::Builder::new().name("forkless-pool".into()).stack_size(STACK);
        let run = move || {
            own.owner.store(sys::gettid(), Ordering::Relaxed);
            let mut keeper = Keeper { inner: own, number: 0, next_look: Instant::now() };
            let started = keeper.renew();
            let works = started.is_ok();
            let _ = tell.send(started);
            if works {
                keeper.keep(&queue);
            }
        };
        let thread = without_signals(|| builder.spawn(run))?;
        let answer = told.recv().map_err(io::Error::other)?;
        let owner =
            Self { inner: ManuallyDrop::new(inner), asks: ManuallyDrop::new(asks), thread: ManuallyDrop::new(thread) };
        answer.map(|()| owner)
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.inner
    }

    pub(super) fn refresh(&self) -> io::Result<()> {
        if sys::getpid() != self.inner.process {
            return Ok(());
        }
        let (tell, told) = channel();
        let _ = self.asks.send(Ask::Refresh(tell));
        told.recv().map_err(io::Error::other)?
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if sys::getpid() != self.inner.process {
            // A forked copy: the thread, the queue and the children are the other process's.
            return;
        }
        let _ = self.asks.send(Ask::End);
        // SAFETY: each is taken once, here.
        unsafe {
            let _ = ManuallyDrop::take(&mut self.thread).join();
            ManuallyDrop::drop(&mut self.asks);
            ManuallyDrop::drop(&mut self.inner);
        }
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.stats().fmt(out)
    }
}

/// The thread's side.
struct Keeper {
    inner: Arc<Inner>,
    number: u64,
    /// Before this, launches ask in vain.
    next_look: Instant,
}

impl Keeper {
    fn keep(&mut self, queue: &Receiver<Ask>) {
        let mut launched = self.inner.launched();
        let mut is_asked = false;
        loop {
            let patience = match self.inner.options.idle.filter(|_| self.has_generation()) {
                _ if is_asked => Some(self.next_look.saturating_duration_since(Instant::now())),
                idle => idle,
            };
            let ask = match patience {
                Some(time) => queue.recv_timeout(time),
                None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match ask {
                Ok(Ask::Look) => is_asked = true,
                Err(RecvTimeoutError::Timeout) if is_asked => {
                    is_asked = false;
                    self.look();
                }
                Ok(Ask::Refresh(tell)) => {
                    self.inner.note_renewal();
                    let _ = tell.send(self.renew());
                }
                Err(RecvTimeoutError::Timeout) => {
                    let now = self.inner.launched();
                    if now == launched {
                        self.end();
                    }
                    launched = now;
                }
                Ok(Ask::End) | Err(RecvTimeoutError::Disconnected) => return self.end(),
            }
        }
    }

    fn has_generation(&self) -> bool {
        self.inner.generation.read().is_ok_and(|generation| generation.is_some())
    }

    /// A launch has met something else than a parked child that is like its thread.
    fn look(&mut self) {
        self.inner.asked.store(false, Ordering::Relaxed);
        self.next_look = Instant::now() + PAUSE;
        let stale = match self.inner.generation.read().as_deref() {
            Ok(Some(generation)) => {
                let stale = !generation.is_alive() || self.differs(generation).unwrap_or(true);
                if stale {
                    self.inner.note_renewal();
                }
                stale
            }
            _ => true,
        };
        if stale && self.renew().is_err() {
            // The limit that was met may be over in a while.
            self.next_look = Instant::now() + Duration::from_secs(1);
        }
    }

    /// Has the process, of which this thread is an ordinary one, changed?
    fn differs(&self, generation: &Generation) -> sys::Result<bool> {
        let (tasks, thread) = (Tasks::own()?, sys::gettid());
        let mut identity = Identity::NONE;
        identity.read()?;
        Ok(!identity.is_like(&generation.identity)
            || tasks.namespaces(thread)? != generation.namespaces
            || tasks.settings(0, thread)? != generation.settings)
    }

    fn renew(&mut self) -> io::Result<()> {
        self.end();
        self.number += 1;
        match Generation::start(self.number, self.inner.options.high) {
            Ok(new) => {
                if let Ok(mut generation) = self.inner.generation.write() {
                    *generation = Some(new);
                }
                Ok(())
            }
            Err(error) => {
                self.inner.note_failures(1, error.errno().unwrap_or(0));
                Err(error.into())
            }
        }
    }

    fn end(&mut self) {
        let old = self.inner.generation.write().ok().and_then(|mut generation| generation.take());
        if let Some(old) = old {
            self.inner.remember(&old);
        }
    }
}
