//! Threads that launch jobs: several launches take place at the same time, and the run goes on meanwhile.
//!
//! The run sends a [`Ready`] command to the thread of its slot, and goes on. The answer comes over a channel. The thread
//! writes to an eventfd only if the run sleeps, or is about to.
//!
//! The threads have the signal mask of the run's thread, because children inherit it. They end with the pool, after the
//! last job: `prctl(2)` PR_SET_PDEATHSIG sends its signal when the thread ends that has cloned the child.

use crate::launch::{Launched, Ready};
use crate::options::Prepare;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

/// The result of a launch.
pub(crate) struct PoolAnswer {
    pub(crate) slot: usize,
    pub(crate) launched: io::Result<Launched>,
}

struct Order {
    slot: usize,
    ready: Ready,
}

/// How a thread wakes the run after an answer.
struct Bell {
    event: OwnedFd,
    /// The run sleeps, or is about to: only the eventfd wakes it.
    sleeps: AtomicBool,
}

pub(crate) struct Pool {
    orders: Vec<Sender<Order>>,
    answers: Receiver<PoolAnswer>,
    bell: Arc<Bell>,
    threads: Vec<JoinHandle<()>>,
    /// How many orders have no answer yet.
    sent: usize,
}

impl Pool {
    /// Starts a thread for each of these functions, which change its commands before the launch.
    ///
    /// # Errors
    /// EMFILE; EAGAIN, if there can be no further thread.
    pub(crate) fn start(prepares: Vec<Prepare>) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bell = Arc::new(Bell { event, sleeps: AtomicBool::new(false) });
        let (answer, answers) = channel();
        let mut pool = Self { orders: Vec::new(), answers, bell, threads: Vec::new(), sent: 0 };
        for prepare in prepares {
            let (order, orders) = channel();
            let (answer, bell) = (answer.clone(), Arc::clone(&pool.bell));
            let thread = Builder::new().name("launch".to_owned());
            pool.threads.push(thread.spawn(move || work(prepare, &orders, &answer, &bell))?);
            pool.orders.push(order);
        }
        Ok(pool)
    }

    /// Has the command launched by the thread of its slot.
    pub(crate) fn send(&mut self, slot: usize, ready: Ready) {
        self.sent += 1;
        let order = Order { slot, ready };
        // The threads wait for orders until the pool is dropped.
        self.orders[slot % self.orders.len()].send(order).expect("the thread runs");
    }

    /// The next answer, if there is one.
    pub(crate) fn take_answer(&mut self) -> Option<PoolAnswer> {
        let answer = self.answers.try_recv().ok()?;
        self.sent -= 1;
        Some(answer)
    }

    /// The next answer. Waits for it. `None`: nothing was sent.
    pub(crate) fn await_answer(&mut self) -> Option<PoolAnswer> {
        if self.sent == 0 {
            return None;
        }
        let answer = self.answers.recv().expect("the threads run");
        self.sent -= 1;
        Some(answer)
    }

    /// How many launches have no answer yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.sent
    }

    /// Marks the run as about to sleep. Until it [wakes](Self::wakes), the threads write to the eventfd. An answer that came
    /// earlier is found by [`take_answer`](Self::take_answer), which must be called after this.
    pub(crate) fn sleeps(&self) {
        self.bell.sleeps.store(true, Ordering::SeqCst);
    }

    pub(crate) fn wakes(&self) {
        self.bell.sleeps.store(false, Ordering::SeqCst);
    }

    /// Clears the eventfd after it has ended a sleep.
    pub(crate) fn slept(&self) {
        let _ = rustix::io::read(&self.bell.event, &mut [0; 8]);
    }
}

impl AsFd for Pool {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.event.as_fd()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.orders.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn work(mut prepare: Prepare, orders: &Receiver<Order>, answers: &Sender<PoolAnswer>, bell: &Bell) {
    while let Ok(Order { slot, mut ready }) = orders.recv() {
        // The run waits for each answer, so there is one after a panic too.
        let launched = catch_unwind(AssertUnwindSafe(|| {
            prepare(ready.command());
            ready.launch()
        }));
        let launched = launched.unwrap_or_else(|_| Err(io::Error::other("the thread that launches panicked")));
        if answers.send(PoolAnswer { slot, launched }).is_err() {
            return;
        }
        // The run sets `sleeps` before it reads the channel; this thread sends before it reads `sleeps`. One sees the other.
        if bell.sleeps.swap(false, Ordering::SeqCst) {
            // Fails only when it is readable already.
            let _ = rustix::io::write(&bell.event, &1u64.to_ne_bytes());
        }
    }
}
