//! The child's stack, and the frame at its upper end.
//!
//! Each is one mapping: a guard region, which faults if the child overflows its stack, then the stack, then the
//! frame. Mapping and unmapping would cost two system calls and a page fault per launch, so mappings are kept in a
//! pool.
//!
//! The kernel clears a frame's futex word when its child has left. A stack whose word is not 0 is still in use, even
//! if it lies in the pool, and no other launch gets it. A forked copy of the process finds these mappings full of
//! zeroes (`MADV_WIPEONFORK`), so there they are free.

use super::pool::Pool;
use crate::error::Error;
use crate::plan::Plan;
use crate::sync::{AtomicI32, AtomicU32};
use forkless_core::forked::{ForkFrame, OWNER_LEFT, UNWATCHED};
use forkless_core::frame::{Frame, LEFT, RUNNING};
pub(crate) use forkless_core::parcel::{GUARD, MAPPING, frame_offset};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::process::ExitStatus;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of stacks that are kept. If more children are between clone and exec at one time, the further stacks are
/// unmapped after use.
const KEPT: usize = 256;

static POOL: Pool<Frame, KEPT> = Pool::new();

/// The number of mappings that exist now.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The slot where this thread last found or left a stack. It tries that slot first, so that threads do not
    /// compete.
    static HINT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The number of stacks that the library has mapped, in use or kept for later launches. At most 256 are kept.
///
/// ```
/// let mut child = forkless::Command::new("true").spawn()?;
/// println!("{} stacks", forkless::mapped_stacks());
/// # child.wait()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn mapped_stacks() -> usize {
    MAPPED.load(Ordering::Relaxed)
}

/// A stack that one child may use. Returns to the pool when dropped, whether or not the child has left.
///
/// A child with its own memory uses no such stack: then this is only a frame.
pub(crate) struct Stack {
    frame: NonNull<Frame>,
    kind: StackKind,
    /// With [`StackKind::Lent`]: the owner.
    lender: Option<Box<dyn Lender>>,
}

/// The owner of a stack that is not from the pool. Dropping it returns the stack.
pub(crate) trait Lender: Send + Sync {
    /// The length of the memory that contains the stack; 0 if no caller needs it.
    fn length(&self) -> usize {
        0
    }

    /// After the child has left without executing its program: the lender's error, if it knows the reason.
    fn error(&self, _stack: &Stack, _plan: &Plan, _status: Option<ExitStatus>) -> Option<Error> {
        None
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StackKind {
    /// From the pool.
    Pooled,
    /// In memory that is shared with a zygote, and returns there.
    Lent,
    /// The frame in a [`ForkFrame`], which is shared with a forked child, in a mapping for this run.
    Forked,
    /// The frame that no child uses: [`UNUSED_FRAME`].
    Bare,
}

/// All zeroes: the frame of a finished run.
static UNUSED_FRAME: UnusedFrame = UnusedFrame(MaybeUninit::zeroed());

struct UnusedFrame(MaybeUninit<Frame>);

// SAFETY: no code writes to it, so it is a constant.
unsafe impl Sync for UnusedFrame {}

// SAFETY: while a child uses the frame, this process accesses only its atomics; it fills the rest before the clone.
unsafe impl Send for Stack {}
// SAFETY: as above.
unsafe impl Sync for Stack {}

impl Stack {
    /// A stack from the pool, or a new one. The error is `mmap(2)`'s.
    pub(crate) fn take() -> Result<Self, i32> {
        let Some((frame, slot)) = POOL.take(hint(), |frame| frame.state() == LEFT, unmap) else { return Self::map() };
        HINT.set(slot);
        Ok(Self { frame, kind: StackKind::Pooled, lender: None })
    }

    fn map() -> Result<Self, i32> {
        let error = |error: rustix::io::Errno| error.raw_os_error();
        // SAFETY: a new private mapping, chosen by the kernel.
        let base = unsafe {
            mmap_anonymous(null_mut(), MAPPING, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::STACK)
        }
        .map_err(error)?;
        // SAFETY: the mapping's own lower part. Without WIPEONFORK (before 4.14) a forked copy would merely lose
        // stacks that were in use at the fork.
        unsafe {
            if let Err(refused) = mprotect(base, GUARD, MprotectFlags::empty()) {
                let _ = munmap(base, MAPPING);
                return Err(error(refused));
            }
            let _ = madvise(base, MAPPING, rustix::mm::Advice::LinuxWipeOnFork);
        }
        MAPPED.fetch_add(1, Ordering::Relaxed);
        let frame = base.wrapping_byte_add(frame_offset()).cast::<Frame>();
        // SAFETY: mmap does not give address 0, and the offset lies inside.
        Ok(Self { frame: unsafe { NonNull::new_unchecked(frame) }, kind: StackKind::Pooled, lender: None })
    }

    /// A frame to be shared with a forked child. The error is `mmap(2)`'s.
    pub(super) fn shared() -> Result<Self, i32> {
        // SAFETY: a new mapping, chosen by the kernel.
        let base = unsafe {
            mmap_anonymous(null_mut(), size_of::<ForkFrame>(), ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
        };
        let base = base.map_err(|error| error.raw_os_error())?;
        // SAFETY: mmap does not give address 0.
        Ok(Self { frame: unsafe { NonNull::new_unchecked(base.cast()) }, kind: StackKind::Forked, lender: None })
    }

    /// For a child that is known to have executed its program, and has no frame.
    pub(super) fn bare() -> Self {
        Self { frame: NonNull::from(&UNUSED_FRAME.0).cast(), kind: StackKind::Bare, lender: None }
    }

    /// The stack in the first [`MAPPING`] bytes of memory that belongs to `lender`.
    ///
    /// # Safety
    /// The memory is mapped for as long as `lender` exists, no child uses it, and no other code has it.
    pub(crate) unsafe fn lent(memory: NonNull<u8>, lender: Box<dyn Lender>) -> Self {
        // SAFETY: the frame lies inside (caller).
        Self { frame: unsafe { memory.byte_add(frame_offset()) }.cast(), kind: StackKind::Lent, lender: Some(lender) }
    }

    /// The memory that is shared with a forked child.
    pub(super) fn forked(&self) -> Option<&ForkFrame> {
        // SAFETY: such a frame is the first field of a ForkFrame, all of whose bytes may be zeroes, mapped while this
        // handle is.
        (self.kind == StackKind::Forked).then(|| unsafe { self.frame.cast().as_ref() })
    }

    /// Whether the child has been seen to leave. Makes no system call.
    pub(crate) fn has_left(&self) -> bool {
        self.frame().state() == LEFT || self.forked().is_some_and(has_left)
    }

    /// Whether the child shares the caller's own memory.
    pub(crate) fn has_shared_memory(&self) -> bool {
        self.kind == StackKind::Pooled
    }

    /// Fills the frame for a run.
    ///
    /// Must not be called while a child uses it. `take` returns only stacks whose child has left.
    pub(crate) fn begin(&mut self, fill: impl FnOnce(&mut Frame)) {
        // SAFETY: no child has it (the word was LEFT), and this handle is the only one.
        let frame = unsafe { self.frame.as_mut() };
        *frame.step.get_mut() = 0;
        *frame.errno.get_mut() = 0;
        *frame.detail.get_mut() = -1;
        *frame.ended_by.get_mut() = 0;
        frame.guards_dumps = 0;
        fill(frame);
        *frame.word.get_mut() = RUNNING;
    }

    /// Clears the futex word after a failed clone, because the kernel will not. (A lender clears the word of its
    /// stack itself, after it has reported the reason.)
    pub(crate) fn cancel(&mut self) {
        if self.lender.is_none() {
            self.frame().word.store(LEFT, Ordering::Release);
        }
    }

    /// Clears the futex word of a child that has been seen to end. The kernel has done so before, unless the write needed
    /// a userfaultfd, which a process that exits does not wait for: handle_userfault() in fs/userfaultfd.c.
    pub(crate) fn child_has_ended(&self) {
        if self.has_shared_memory() {
            self.frame().word.store(LEFT, Ordering::Release);
        }
    }

    /// The length of the lent memory.
    pub(crate) fn lent_length(&self) -> usize {
        self.lender.as_ref().map_or(0, |lender| lender.length())
    }

    /// The lender's error for a failure, if it knows the reason.
    pub(crate) fn lenders_error(&self, plan: &Plan, status: Option<ExitStatus>) -> Option<Error> {
        self.lender.as_ref()?.error(self, plan, status)
    }

    /// Whether it lies in memory that is shared with a zygote.
    pub(crate) fn is_lent(&self) -> bool {
        self.lender.is_some()
    }

    pub(crate) fn frame(&self) -> &Frame {
        // SAFETY: mapped for as long as this handle is.
        unsafe { self.frame.as_ref() }
    }

    /// The parts of the frame for a thread that writes the ID maps while this handle is used to clone: `go`, `asked`,
    /// `pid`, and the futex word.
    pub(crate) fn handshake<'a>(&self) -> (&'a AtomicU32, &'a AtomicU32, &'a AtomicI32, &'a AtomicU32) {
        // SAFETY: the mapping outlives the clone: the caller joins that thread while it has the handle.
        let frame = unsafe { self.frame.as_ref() };
        (&frame.go, &frame.asked, &frame.pid, &frame.word)
    }

    pub(crate) fn frame_ptr(&self) -> *mut Frame {
        self.frame.as_ptr()
    }

    /// Lowest address and length of the stack proper, as `clone3(2)` wants them.
    pub(crate) fn span(&self) -> (u64, u64) {
        let top = self.frame.as_ptr() as u64;
        let length = (frame_offset() - GUARD) as u64;
        (top - length, length)
    }
}

/// Unmaps a stack that the pool has no room for, unless a child uses it.
fn unmap(frame: NonNull<Frame>) {
    // SAFETY: mapped until here.
    if unsafe { frame.as_ref() }.state() == LEFT {
        let base = frame.as_ptr().wrapping_byte_sub(frame_offset());
        // SAFETY: the whole mapping, to which nothing refers any more.
        let _ = unsafe { munmap(base.cast(), MAPPING) };
        MAPPED.fetch_sub(1, Ordering::Relaxed);
    }
    // Otherwise a child still runs on it: the mapping is leaked, because unmapping it would crash the child.
}

impl Drop for Stack {
    fn drop(&mut self) {
        match self.kind {
            // SAFETY: mapped until it is unmapped below, or taken, and this handle is its last one.
            StackKind::Pooled => match unsafe { POOL.put(hint(), self.frame) } {
                Some(slot) => HINT.set(slot),
                None => unmap(self.frame),
            },
            // SAFETY: the whole mapping, which this process uses no more; the child has its own.
            StackKind::Forked => _ = unsafe { munmap(self.frame.as_ptr().cast(), size_of::<ForkFrame>()) },
            // Dropping the lender returns it.
            StackKind::Bare | StackKind::Lent => {}
        }
    }
}

/// Whether a forked child has been seen to leave.
pub(super) fn has_left(shared: &ForkFrame) -> bool {
    let owner = shared.owner.load(Ordering::Acquire);
    owner != UNWATCHED && owner & OWNER_LEFT != 0
}

fn hint() -> usize {
    let hint = HINT.get();
    if hint != usize::MAX {
        return hint;
    }
    // First use in this thread: the address of its stack spreads threads over the slots well enough.
    (&raw const hint as usize >> 12) % KEPT
}

const _: () = assert!(size_of::<Frame>() < 16 * 1024);

#[cfg(test)]
mod tests {
    use super::*;

    /// Any access to the guard faults.
    #[test]
    fn below_a_stack_is_a_guard() {
        let stack = Stack::take().expect("a stack");
        let (lowest, _) = stack.span();
        let guard = format!("{:x}-{lowest:x} ---p", lowest - GUARD as u64);
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        assert!(maps.lines().any(|line| line.starts_with(&guard)), "no {guard} in\n{maps}");
    }

    /// However full the pool is: other tests of this process use it too.
    #[test]
    fn the_stack_of_a_running_child_stays_mapped_when_the_pool_is_full() {
        for _ in 0..20 {
            let mut many: Vec<Stack> = (0..=KEPT).map(|_| Stack::take().expect("a stack")).collect();
            let running = many.pop().expect("a stack");
            running.frame().word.store(forkless_core::frame::RUNNING, Ordering::Release);
            let (lowest, _) = running.span();
            drop(many);
            drop(running);
            let start = format!("{lowest:x}-");
            let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
            assert!(maps.lines().any(|line| line.starts_with(&start)), "no {start} in\n{maps}");
        }
    }
}
