//! Programs that run to their ends with limits, while the runtime has other work.

use crate::child::Child;
use crate::kernel::SIGKILL;
use crate::output::capture::Captured;
use crate::output::capture::drive::{CaptureRun, Next, What};
use crate::output::capture::run::{Begun, finish};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Kills the child, and its process group if it leads one, when it is dropped. A task of the runtime reaps it.
struct Running(Option<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take().filter(Child::is_running) {
            let _ = if child.is_group_leader() { child.signal_group(SIGKILL) } else { Ok(()) };
            let _ = child.kill();
            drop(super::Child::from_forkless(child));
        }
    }
}

/// Runs what has been started to its end. Dropping the future kills the child, also before it was polled.
pub(super) fn capture(started: io::Result<Begun>) -> impl Future<Output = io::Result<Captured>> {
    let started = started.map(|Begun { child, drive, files }| (Running(Some(child)), drive, files));
    async move {
        let (mut running, mut drive, files) = started?;
        // The loop awaits the child's end too, so that `finish` need not block for it.
        drive.watches = true;
        let mut run = CaptureRun::new(drive, running.0.as_mut_slice());
        let answer = to_the_end(&mut run).await;
        let driven = run.conclude(answer)?;
        running.0.as_mut().map_or(Err(io::ErrorKind::Other.into()), |child| finish(child, driven, files))
    }
}

/// The loop of a blocking capture, with turns that do not sleep.
async fn to_the_end(run: &mut CaptureRun<'_>) -> io::Result<bool> {
    run.begin()?;
    // One descriptor for all: ready when one of them is.
    // SAFETY: the `AsyncFd` owns the descriptor.
    let all = unsafe { AsyncFd::register_with_interest(together(run)?, Interest::READABLE) }?;
    loop {
        let patience = match run.next()? {
            Next::Done(held_open) => return Ok(held_open),
            Next::Turn(patience) => run.limited(patience),
        };
        if run.turn(Some(Duration::ZERO))? {
            // A program that writes without end must not keep the thread from other tasks.
            tokio::task::yield_now().await;
            continue;
        }
        // What happens after that turn makes it ready again.
        let ready = async { all.readable().await.map(|mut news| news.clear_ready()) };
        match patience {
            None => ready.await?,
            Some(limit) => tokio::time::timeout(limit, ready).await.unwrap_or(Ok(()))?,
        }
    }
}

fn together(run: &CaptureRun<'_>) -> io::Result<OwnedFd> {
    let all = epoll::create(CreateFlags::CLOEXEC)?;
    for (what, fd) in run.watched() {
        let awaited = if matches!(what, What::Input) { EventFlags::OUT } else { EventFlags::IN };
        epoll::add(&all, &fd, EventData::new_u64(0), awaited)?;
    }
    Ok(all)
}
