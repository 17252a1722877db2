//! A refiller and the children it has made: all alike, as the process was when it was started.

use super::failed;
use crate::error::Error;
use crate::launch::surroundings::{Identity, Namespaces, Settings, Tasks};
use crate::launch::{self, Stack, clone_parked, processor};
use crate::wait;
use forkless_core::frame::{Frame, GO, GO_AWAY, LEFT};
use forkless_core::park::{CLONING, EMPTY, HEIR, PARKED, SEATS, Seat, Shared, TAKEN, WANTED, probe, probed, refill};
use forkless_core::sys::{self, errno, uapi};
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// See the module.
pub(super) struct Generation {
    pub(super) number: u64,
    /// What the refiller and its children read and write. Never freed before they are gone.
    shared: ManuallyDrop<Box<Shared>>,
    /// The stacks of the seats: whoever has taken a seat has its stack.
    stacks: Box<[UnsafeCell<Option<Stack>>]>,
    refiller: ManuallyDrop<Stack>,
    pub(super) pid: i32,
    pub(super) identity: Identity,
    pub(super) namespaces: Namespaces,
    pub(super) settings: Settings,
    pub(super) lost: AtomicU64,
    /// See [`processor::few`].
    processors: u64,
    /// `pidfd_open(2)` works.
    pub(super) opens_pidfds: bool,
}

// SAFETY: a stack is touched only by who has taken its seat, which one thread does at a time.
unsafe impl Sync for Generation {}

/// A parked child that is nobody else's any more.
pub(super) struct Waiting<'a> {
    generation: &'a Generation,
    /// The seat's number.
    at: usize,
    stack: Stack,
    pub(super) pid: i32,
}

/// How long who is to end is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long who is to begin is waited for: on a busy machine it may not get a processor for long.
const PATIENCE_AT_START: Duration = Duration::from_secs(10);

impl Generation {
    /// Starts a refiller from the calling thread, which must outlive it, with `high` seats.
    pub(super) fn start(number: u64, high: usize) -> Result<Self, Error> {
        let (pid, thread) = (sys::getpid(), sys::gettid());
        let no_proc = |errno: i32| failed(errno).on("looking at itself in /proc");
        let own = Tasks::own().map_err(no_proc)?;
        if own.is_outside(thread).map_err(no_proc)? {
            let why = "the children of this process are born in another process-id namespace";
            return Err(failed(errno::EINVAL).note(why));
        }
        let (batch, processors) = (is_ordinary(), processor::few());
        let opens_pidfds = check_resume(batch, processors)?;
        let mut stack = Stack::take().map_err(failed)?;
        let mut shared = Box::new(Shared {
            demand: AtomicU32::new(0),
            end: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            errno: AtomicI32::new(0),
            is_ready: AtomicU32::new(0),
            identity: UnsafeCell::new(Identity::NONE),
            host: pid,
            owner: thread,
            batch: batch.into(),
            stack_length: stack.span().1,
            seats: [const {
                Seat { state: AtomicU32::new(EMPTY), frame: AtomicPtr::new(null_mut()), maker: AtomicI32::new(0) }
            }; SEATS],
        });
        let mut stacks = Vec::with_capacity(high);
        for seat in &mut shared.seats[..high] {
            let stack = Stack::take().map_err(failed)?;
            seat.frame = AtomicPtr::new(stack.frame_ptr());
            seat.state = AtomicU32::new(WANTED);
            stacks.push(UnsafeCell::new(Some(stack)));
        }
        let shared = ManuallyDrop::new(shared);
        let at: *const Shared = &raw const **shared;
        let cloned = clone_parked(&mut stack, refill, |frame| {
            frame.pool = at;
        });
        let pid = match cloned {
            Ok(pid) => pid,
            Err(error) => {
                drop(ManuallyDrop::into_inner(shared));
                return Err(not_cloned(error));
            }
        };
        let mut new = Self {
            number,
            shared,
            stacks: stacks.into(),
            refiller: ManuallyDrop::new(stack),
            pid,
            identity: Identity::NONE,
            namespaces: Namespaces::NONE,
            settings: Settings::default(),
            lost: AtomicU64::new(0),
            processors,
            opens_pidfds,
        };
        new.look(&own).map(|()| new)
    }

    /// Finds out what the refiller is. Whatever fails, it is ended by the drop.
    fn look(&mut self, own: &Tasks) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE_AT_START;
        while self.shared.is_ready.load(Ordering::Acquire) == 0 {
            let nap = sys::uapi::__kernel_timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            let _ = sys::futex_wait_within(&self.shared.is_ready, 0, Some(&nap));
            if !self.is_alive() || Instant::now() > deadline {
                return Err(failed(errno::ECHILD).note("the process that makes its children was killed or stopped"));
            }
        }
        // SAFETY: written before `is_ready`, and not again.
        self.identity = unsafe { *self.shared.identity.get() };
        let look = |tasks: &Tasks, process, thread| Ok((tasks.namespaces(thread)?, tasks.settings(process, thread)?));
        (self.namespaces, self.settings) = match Tasks::of(self.pid).and_then(|tasks| look(&tasks, self.pid, self.pid))
        {
            // A process that has changed its ids may not look at others, not even its own. What the calling thread has, the
            // refiller got.
            Err(errno::EACCES | errno::EPERM) => look(own, 0, sys::gettid()),
            answer => answer,
        }
        .map_err(|errno: i32| failed(errno).on("looking at its own processes in /proc"))?;
        Ok(())
    }

    pub(super) fn is_alive(&self) -> bool {
        self.refiller.frame().word.load(Ordering::Acquire) != LEFT
    }

    /// Children parked now, as far as is known.
    pub(super) fn parked(&self) -> usize {
        self.seats().filter(|seat| seat.state.load(Ordering::Relaxed) == PARKED).count()
    }

    fn seats(&self) -> impl Iterator<Item = &Seat> {
        self.shared.seats.iter().take(self.stacks.len())
    }

    pub(super) fn failures(&self) -> (u32, i32) {
        (self.shared.failures.load(Ordering::Relaxed), self.shared.errno.load(Ordering::Relaxed))
    }

    /// Takes a parked child, if there is one.
    pub(super) fn take(&self) -> Option<Waiting<'_>> {
        for (at, (seat, stack)) in self.shared.seats.iter().zip(&self.stacks).enumerate() {
            if !seat.becomes_ours(PARKED) {
                continue;
            }
            // SAFETY: the seat is ours.
            let stack = unsafe { (*stack.get()).take() }.expect("a parked child has its stack");
            let pid = stack.frame().pid.load(Ordering::Relaxed);
            let waiting = Waiting { generation: self, at, stack, pid };
            if waiting.stack.frame().word.load(Ordering::Acquire) != LEFT {
                return Some(waiting);
            }
            // Somebody has killed it.
            wait::reap(pid);
            self.lost.fetch_add(1, Ordering::Relaxed);
            drop(waiting.leave());
            self.ask();
        }
        None
    }

    /// Gives those a stack that there was no memory for.
    pub(super) fn restock(&self) {
        for (at, seat) in self.seats().enumerate() {
            if seat.becomes_ours(EMPTY) {
                self.give_stack(at, None);
            }
        }
    }

    /// Finds the seats whose child was killed after its launch, before it could clone a successor: they are the refiller's.
    pub(super) fn find_killed(&self) {
        for seat in self.seats().filter(|seat| seat.state.load(Ordering::Acquire) == HEIR) {
            if has_died(seat.maker.load(Ordering::Relaxed)) {
                let _ = seat.state.compare_exchange(HEIR, WANTED, Ordering::Release, Ordering::Relaxed);
            }
        }
    }

    /// Gives a seat that is ours a stack for another child, if there is memory for one.
    fn give_stack(&self, at: usize, maker: Option<i32>) -> bool {
        let seat = &self.shared.seats[at];
        let new = Stack::take().ok();
        if let Some(new) = &new {
            seat.frame.store(new.frame_ptr(), Ordering::Relaxed);
            seat.maker.store(maker.unwrap_or(0), Ordering::Relaxed);
        }
        let state = match (&new, maker) {
            (Some(_), Some(_)) => HEIR,
            (Some(_), None) => WANTED,
            (None, _) => EMPTY,
        };
        // SAFETY: the seat is ours.
        unsafe { *self.stacks[at].get() = new };
        seat.state.store(state, Ordering::Release);
        state == HEIR
    }

    /// Has the refiller look for work.
    pub(super) fn ask(&self) {
        self.shared.demand.fetch_add(1, Ordering::Release);
        sys::futex_wake_within(&self.shared.demand);
    }

    /// Ends the children and their maker, and reaps them. What does not end in time is left as it is, with its memory.
    fn end(&mut self) {
        self.shared.end.store(1, Ordering::Release);
        self.ask();
        if !ended(&self.refiller, self.pid) {
            return;
        }
        wait::reap(self.pid);
        let mut all = self.successors_are_made();
        for seat in &self.shared.seats {
            if let Some(frame) = child_of(seat) {
                frame.go.store(GO_AWAY, Ordering::Release);
                sys::futex_wake_within(&frame.go);
            }
        }
        for (seat, stack) in self.shared.seats.iter().zip(&mut self.stacks) {
            let (Some(_), Some(stack)) = (child_of(seat), stack.get_mut()) else { continue };
            let pid = stack.frame().pid.load(Ordering::Relaxed);
            if ended(stack, pid) {
                wait::reap(pid);
            } else {
                all = false;
            }
        }
        if all {
            // SAFETY: nobody has them any more, and this is called once.
            unsafe {
                ManuallyDrop::drop(&mut self.refiller);
                ManuallyDrop::drop(&mut self.shared);
            }
        }
    }
}

impl Generation {
    /// Waits until no child that has been launched is about to clone its successor.
    fn successors_are_made(&self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        for seat in self.seats() {
            let maker = seat.maker.load(Ordering::Relaxed);
            while maker != 0 && matches!(seat.state.load(Ordering::Acquire), HEIR | CLONING) && !has_died(maker) {
                if Instant::now() > deadline {
                    return false;
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        true
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.end();
    }
}

impl Waiting<'_> {
    pub(super) fn frame(&mut self) -> &mut Frame {
        // SAFETY: the child reads nothing but `go`, `pool` and `parent` before it is launched, and these are left alone or are
        // atomic; nobody else has the stack.
        unsafe { &mut *self.stack.frame_ptr() }
    }

    /// Puts it back.
    pub(super) fn put_back(self) {
        let Self { generation, at, stack, .. } = self;
        // SAFETY: the seat is ours.
        unsafe { *generation.stacks[at].get() = Some(stack) };
        generation.shared.seats[at].state.store(PARKED, Ordering::Release);
    }

    /// Leaves the seat to a new child, which the refiller is to make.
    fn leave(self) -> Stack {
        let Self { generation, at, stack, .. } = self;
        generation.give_stack(at, None);
        stack
    }

    /// Readies the frame for a launch from a process group, and leaves the seat to the child's successor, which it clones
    /// before anything else. Where no more than `low` are left it wakes the refiller as well.
    pub(super) fn go(mut self, group: i32, low: usize) -> Stack {
        let Self { generation, at, pid, .. } = self;
        let has_heir = generation.give_stack(at, Some(pid));
        let shared = &**generation.shared;
        let count = |states: &[u32]| {
            generation.seats().filter(|seat| states.contains(&seat.state.load(Ordering::Relaxed))).count()
        };
        if count(&[PARKED]) <= low {
            generation.find_killed();
        }
        let is_low = count(&[PARKED, CLONING, HEIR]) <= low;
        if is_low {
            generation.restock();
            shared.demand.fetch_add(1, Ordering::Release);
        }
        if launch::is_stopped(pid) {
            const SIGCONT: i32 = 18;
            // SAFETY: a parked child of ours, which nobody else can have reaped.
            let _ = unsafe { sys::kill(pid, SIGCONT) };
        }
        if generation.processors != 0 {
            // Refused, it runs where the kernel likes.
            let _ = processor::own().is_some_and(|cpu| processor::keep(pid, cpu));
        }
        let frame = self.frame();
        (frame.group, frame.batch, frame.affinity) = (group, shared.batch, generation.processors);
        frame.seat = if has_heir { &raw const shared.seats[at] } else { null() };
        frame.demand = if is_low { &raw const shared.demand } else { null() };
        frame.go.store(GO, Ordering::Release);
        sys::futex_wake_within(&frame.go);
        self.stack
    }
}

/// What the host does with seats.
trait Take {
    /// Takes it from the given state; from then on it is the calling thread's.
    fn becomes_ours(&self, from: u32) -> bool;
}

impl Take for Seat {
    fn becomes_ours(&self, from: u32) -> bool {
        self.state.load(Ordering::Relaxed) == from
            && self.state.compare_exchange(from, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// Has a child of ours ended, or been reaped? One that has not may be another one that has got its number.
fn has_died(pid: i32) -> bool {
    let options = uapi::WEXITED | uapi::WNOHANG | uapi::WNOWAIT | uapi::__WALL;
    let mut info = sys::SignalInfo::EMPTY;
    sys::waitid(uapi::P_PID, pid, &mut info, options, None).is_err() || info.pid != 0
}

/// The child in a seat, if there is one.
fn child_of(seat: &Seat) -> Option<&Frame> {
    // SAFETY: the seat's stack is kept by the generation.
    let frame = unsafe { seat.frame.load(Ordering::Acquire).as_ref() }?;
    let there = match seat.state.load(Ordering::Acquire) {
        PARKED => true,
        // The refiller was killed amid its work; the kernel tells the number before the child runs.
        CLONING => frame.pid.load(Ordering::Acquire) != 0,
        _ => false,
    };
    there.then_some(frame)
}

/// Waits for one of ours to leave our memory, and helps it if it is stopped.
fn ended(stack: &Stack, pid: i32) -> bool {
    const SIGKILL: i32 = 9;
    let busy = |word: u32| word != LEFT;
    if launch::wait_while(stack, pid, Some(Duration::from_millis(100)), busy) {
        return true;
    }
    // SAFETY: our own child, which nobody else can reap, since it has no exit signal.
    let _ = unsafe { sys::kill(pid, SIGKILL) };
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if launch::wait_while(stack, pid, Some(Duration::from_millis(100)), busy) {
            return true;
        }
    }
    false
}

/// Can children go on, once they are parked? Gives whether pidfds can be opened.
fn check_resume(batch: bool, processors: u64) -> Result<bool, Error> {
    let mut stack = Stack::take().map_err(failed)?;
    // SAFETY: a question.
    let group = unsafe { sys::syscall(uapi::__NR_getpgid, [0; 6]) }.map_err(failed)?;
    let cloned = clone_parked(&mut stack, probe, |frame| {
        (frame.group, frame.batch, frame.affinity) = (group as i32, batch.into(), processors);
        frame.demand = null();
    });
    wait::reap(cloned.map_err(not_cloned)?);
    let frame = stack.frame();
    let found = frame.detail.load(Ordering::Acquire);
    if found > 0 && found & probed::RESUMES != 0 {
        return Ok(found & probed::PIDFD_OPEN != 0);
    }
    let why = "unshare(2) of CLONE_FS, setpgid(2) or another call that its children need is refused here, as by the default filter of container engines";
    Err(match frame.errno.load(Ordering::Acquire) {
        0 => failed(errno::EPERM),
        error => failed(error),
    }
    .note(why))
}

fn not_cloned(error: i32) -> Error {
    match error {
        errno::EAGAIN => {
            failed(error).note("the limit of processes is reached: RLIMIT_NPROC, pids.max or kernel.pid_max")
        }
        errno::ENOSYS | errno::EPERM | errno::EINVAL => failed(error).note("clone3(2) is refused or missing here"),
        _ => failed(error),
    }
}

/// Is the calling thread scheduled as most are?
fn is_ordinary() -> bool {
    // SAFETY: a question.
    unsafe { sys::syscall(sys::uapi::__NR_sched_getscheduler, [0; 6]) == Ok(0) }
}
