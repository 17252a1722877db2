//! A refiller and the children it has made: all alike, as the process was when it was started.

use super::failed;
use crate::error::Error;
use crate::launch::surroundings::{Identity, Namespaces, Settings, Tasks};
use crate::launch::{self, Stack, clone_parked};
use crate::wait;
use forkless_core::frame::{Frame, GO_AWAY, LEFT};
use forkless_core::park::{CLONING, EMPTY, PARKED, SEATS, Seat, Shared, TAKEN, WANTED, probe, refill};
use forkless_core::sys::{self, errno};
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
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
    /// Children that are no longer parked: launched or lost.
    gone: AtomicU32,
    pub(super) lost: AtomicU64,
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
        check_unshare(pid, thread)?;
        let mut stack = Stack::take().map_err(failed)?;
        let mut shared = Box::new(Shared {
            demand: AtomicU32::new(0),
            end: AtomicU32::new(0),
            made: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            errno: AtomicI32::new(0),
            is_ready: AtomicU32::new(0),
            identity: UnsafeCell::new(Identity::NONE),
            batch: is_ordinary() as u32,
            stack_length: stack.span().1,
            seats: [const { Seat { state: AtomicU32::new(EMPTY), frame: AtomicPtr::new(null_mut()) } }; SEATS],
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
            (frame.pool, frame.parent, frame.thread) = (at, pid, thread);
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
            gone: AtomicU32::new(0),
            lost: AtomicU64::new(0),
        };
        new.look().map(|()| new)
    }

    /// Finds out what the refiller is. Whatever fails, it is ended by the drop.
    fn look(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        while self.shared.is_ready.load(Ordering::Acquire) == 0 {
            let nap = sys::uapi::__kernel_timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            let _ = sys::futex_wait_within(&self.shared.is_ready, 0, Some(&nap));
            if !self.is_alive() || Instant::now() > deadline {
                return Err(failed(errno::ECHILD).note("the process that makes its children was killed or stopped"));
            }
        }
        // SAFETY: written before `is_ready`, and not again.
        self.identity = unsafe { *self.shared.identity.get() };
        let no_proc = |errno: i32| failed(errno).on("looking at its own processes in /proc");
        let tasks = Tasks::of(self.pid).map_err(no_proc)?;
        self.namespaces = tasks.namespaces(self.pid).map_err(no_proc)?;
        self.settings = tasks.settings(self.pid, self.pid).map_err(no_proc)?;
        Ok(())
    }

    pub(super) fn is_alive(&self) -> bool {
        self.refiller.frame().word.load(Ordering::Acquire) != LEFT
    }

    /// Children parked now, as far as is known.
    pub(super) fn parked(&self) -> u32 {
        self.shared.made.load(Ordering::Relaxed).wrapping_sub(self.gone.load(Ordering::Relaxed))
    }

    pub(super) fn failures(&self) -> (u32, i32) {
        (self.shared.failures.load(Ordering::Relaxed), self.shared.errno.load(Ordering::Relaxed))
    }

    /// Takes a parked child, if there is one.
    pub(super) fn take(&self) -> Option<Waiting<'_>> {
        for (at, (seat, stack)) in self.shared.seats.iter().zip(&self.stacks).enumerate() {
            let state = seat.state.load(Ordering::Relaxed);
            let is_ours = matches!(state, PARKED | EMPTY)
                && seat.state.compare_exchange(state, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if !is_ours {
                continue;
            }
            if state == EMPTY {
                // There was no memory for a stack.
                self.give_stack(at);
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
            waiting.replace();
            self.ask();
        }
        None
    }

    /// Gives a seat that is ours a stack, for another child, if there is memory for one.
    fn give_stack(&self, at: usize) {
        let seat = &self.shared.seats[at];
        let new = Stack::take().ok();
        let state = if new.is_some() { WANTED } else { EMPTY };
        if let Some(new) = &new {
            seat.frame.store(new.frame_ptr(), Ordering::Relaxed);
        }
        // SAFETY: the seat is ours.
        unsafe { *self.stacks[at].get() = new };
        seat.state.store(state, Ordering::Release);
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
        let mut all = true;
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

    /// Leaves the seat to a new child.
    pub(super) fn replace(self) -> Stack {
        let Self { generation, at, stack, .. } = self;
        generation.gone.fetch_add(1, Ordering::Relaxed);
        generation.give_stack(at);
        stack
    }

    /// Tells the child whether it is to wake the refiller, which is so where no more than `low` are left beside it.
    pub(super) fn note_demand(&mut self, low: usize) {
        let left = self.generation.parked().wrapping_sub(1);
        let refills = left as usize <= low;
        if refills {
            self.generation.shared.demand.fetch_add(1, Ordering::Release);
        }
        self.frame().refills = refills as u32;
    }
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

/// Can children stop sharing our directory here?
fn check_unshare(pid: i32, thread: i32) -> Result<(), Error> {
    let mut stack = Stack::take().map_err(failed)?;
    let cloned = clone_parked(&mut stack, probe, |frame| (frame.parent, frame.thread) = (pid, thread));
    let child = cloned.map_err(not_cloned)?;
    wait::reap(child);
    let frame = stack.frame();
    match (frame.detail.load(Ordering::Acquire), frame.errno.load(Ordering::Acquire)) {
        (1, 0) => Ok(()),
        (_, error) => Err(failed(if error == 0 { errno::EPERM } else { error })
            .on("for its children")
            .note("unshare(2) of CLONE_FS is refused here, as by the default filters of container engines")),
    }
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
