//! The Frame: what belongs to one run of a plan.
//!
//! It lies at the upper end of the child's stack mapping, in memory that parent and child share, and is the only thing
//! that the child writes besides its stack: the step it is in, and what went wrong. All zero bytes are a valid frame
//! of a run that is over, which is what a forked copy of the parent finds there.

use crate::plan::{Header, MAX_FDS, MISSES, Origin, Pair, VARIABLES};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64};

/// The child may still be using the parent's memory and descriptors.
pub const RUNNING: u32 = 1;

/// The child has its own descriptors and needs the parent's no longer; it still uses the memory.
pub const TOOK_FDS: u32 = 2;

/// The child has left the parent's memory: it has called exec, or is gone. The kernel writes this one.
pub const LEFT: u32 = 0;

/// Set in the word by the kernel where it is the child's robust list that tells: see [`Frame::is_robust`].
const OWNER_DIED: u32 = 0x4000_0000;

/// [`Frame::go`]: the child waits.
pub const GO_WAIT: u32 = 0;

/// [`Frame::go`]: the parent has done its part.
pub const GO: u32 = 1;

/// [`Frame::go`]: the parent has failed, and the child is to end.
pub const GO_AWAY: u32 = 2;

/// [`Frame::asked`]: the child is to say when it waits for [`Frame::go`].
pub const ASK_WANTED: u32 = 1;

/// [`Frame::asked`]: it does, or will never.
pub const ASKED: u32 = 2;

/// How many slots a frame has: three for stdio, the rest for socket pairs.
pub const SLOTS: usize = 32;

/// Slot value: leave the target as it is.
pub const SLOT_INHERIT: i32 = -1;

/// Slot value: open `/dev/null`.
pub const SLOT_NULL: i32 = -2;

/// The parent's descriptor for a pair, or a slot's special value.
#[inline(always)]
pub fn source_of(slots: &[i32; SLOTS], pair: &Pair) -> i32 {
    match pair.origin() {
        Origin::Descriptor(number) => number,
        Origin::Null => SLOT_NULL,
        Origin::Slot(slot) => match slots.get(slot) {
            Some(&value) => value,
            None => SLOT_INHERIT,
        },
    }
}

/// How the child's descriptor table comes to be, as the launcher chose it.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Cloned with `CLONE_FILES`; the child unshares, keeping `keep_below` descriptors.
    Private = 0,
    /// Cloned without: the kernel copied the whole table.
    Copied = 1,
    /// The caller's: it is no child that plays the plan. What the program is not to have is not closed, but left for exec to
    /// close, so that a failure leaves it.
    Own = 2,
}

/// One run.
#[repr(C, align(64))]
pub struct Frame {
    /// The futex word: [`RUNNING`], then [`TOOK_FDS`], then [`LEFT`].
    pub word: AtomicU32,
    /// 1 + the index of the op that the child is in; 0 before the first.
    pub step: AtomicU32,
    /// The errno that ended the child, or 0.
    pub errno: AtomicI32,
    /// What of the step's object failed: an index into the pairs, or a descriptor number.
    pub detail: AtomicI32,
    /// The arena to play. A zygote writes it while the caller may look at the frame.
    pub plan: AtomicPtr<Header>,
    /// How the descriptor table comes to be.
    pub table: Table,
    /// With [`Table::Private`]: descriptors from here on are not copied.
    pub keep_below: u32,
    /// The parent's pid, where descriptors are fetched from it or its death is to be noticed.
    pub parent: i32,
    /// The parent's pid in its own process-id namespace, where its death is to be noticed while it is waited for.
    pub host: i32,
    /// The parent's thread that cloned, whose descriptors are meant: it may have a table of its own, and the parent's
    /// first thread may have ended.
    pub thread: i32,
    /// 1: the parent sleeps until its descriptors have been taken, and is to be woken then.
    pub announce: u32,
    /// 1: `pidfd_getfd` is refused; the parent writes it before the run, or the child finds out.
    pub no_getfd: AtomicU32,
    /// 1: `close_range` is known to be refused.
    pub no_close_range: u32,
    /// 1: cloned without `CLONE_CLEAR_SIGHAND`, with every signal blocked; the child resets the handlers.
    pub reset_handlers: u32,
    /// 1: the child was cloned with every signal blocked, and the caller's own mask is in `caller_mask`.
    pub has_caller_mask: u32,
    /// The caller's signal mask.
    pub caller_mask: u64,
    /// 1: a core dump of the child would end the parent too, so it is to have a handler for the signals that dump: see
    /// [`signals::guard`](crate::signals::guard). It was cloned with every signal blocked.
    pub guards_dumps: u32,
    /// With `guards_dumps`: the mask to have once the handlers are there.
    pub guarded_mask: u64,
    /// The signal by which such a handler has ended the child, or 0.
    pub ended_by: AtomicU32,
    /// What differs between runs of a plan: the parent's descriptor, [`SLOT_INHERIT`] or [`SLOT_NULL`].
    pub slots: [i32; SLOTS],
    /// 1: the first three slots hold nothing but pipes, which may be opened anew through `/proc`.
    pub only_pipes: u32,
    /// What [`OpCode::AwaitGo`](crate::plan::OpCode::AwaitGo) waits for.
    pub go: AtomicU32,
    /// [`ASK_WANTED`] where the parent's part is done only when the child has come to wait for it; then [`ASKED`].
    pub asked: AtomicU32,
    /// The child's pid, where the launcher has asked the kernel to write it here.
    pub pid: AtomicI32,
    /// What [`OpCode::PreExec`](crate::plan::OpCode::PreExec) calls, where the child has memory of its own: gives 0 or an
    /// errno, and does not unwind.
    pub hook: Option<unsafe extern "C" fn(*const Frame, *const ()) -> i32>,
    /// Its second argument.
    pub hook_data: *const (),
    /// 1: the word holds the child's thread number once the child runs, and is the one entry of its robust list: see
    /// [`zygote_child`](crate::zygote_child).
    pub is_robust: u32,
    /// The results of calls, for later ones.
    pub variables: UnsafeCell<[usize; VARIABLES]>,
    /// How many best-effort steps have failed.
    pub missed: AtomicU32,
    /// Each of them: op index in the upper half, errno in the lower.
    pub misses: [AtomicU64; MISSES],
    /// Where each pair's source stands, while they are being moved.
    pub scratch: UnsafeCell<[i32; MAX_FDS]>,
}

impl Frame {
    /// The futex word: [`RUNNING`], [`TOOK_FDS`] or, where it is in the child's robust list, any other number; [`LEFT`].
    #[inline]
    pub fn state(&self) -> u32 {
        let word = self.word.load(Acquire);
        if word & OWNER_DIED != 0 { LEFT } else { word }
    }
}
