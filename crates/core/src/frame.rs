//! The Frame: the state of one run of a plan.
//!
//! It lies at the upper end of the child's stack mapping, in memory that caller and child share. Apart from its stack
//! it is the only memory that the child writes: the current step, and the reason of a failure. All zero bytes are a
//! valid frame of a finished run; a forked copy of the caller finds these (MADV_WIPEONFORK).

use crate::plan::{Header, MAX_FDS, MISSES, Origin, Pair, VARIABLES};
use crate::sync::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Acquire;

/// The child may still use the caller's memory and descriptors.
pub const RUNNING: u32 = 1;

/// The child has its own descriptors and no longer needs the caller's. It still uses the memory.
pub const TOOK_FDS: u32 = 2;

/// The child has left the caller's memory: it has called exec or exited. Written by the kernel.
pub const LEFT: u32 = 0;

/// Set by the kernel if the word is in the child's robust list: see [`Frame::is_robust`].
const OWNER_DIED: u32 = 0x4000_0000;

/// [`Frame::go`]: the child waits.
pub const GO_WAIT: u32 = 0;

/// [`Frame::go`]: the caller has done its part.
pub const GO: u32 = 1;

/// [`Frame::go`]: the caller has failed, and the child must exit.
pub const GO_AWAY: u32 = 2;

/// [`Frame::asked`]: the child must report when it waits for [`Frame::go`].
pub const ASK_WANTED: u32 = 1;

/// [`Frame::asked`]: the child waits, or never will.
pub const ASKED: u32 = 2;

/// The number of slots of a frame: three for stdio, the others for socket pairs.
pub const SLOTS: usize = 32;

/// The slot of the writing end of a pipe that exec closes, so that the caller reads end of file.
pub const EXEC_SLOT: usize = SLOTS - 2;

/// Slot value: the target is inherited unchanged.
pub const SLOT_INHERIT: i32 = -1;

/// Slot value: open `/dev/null`.
pub const SLOT_NULL: i32 = -2;

/// The caller's descriptor for a pair, or a slot's special value.
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

/// How the child's file-descriptor table is created, chosen by the launcher.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Cloned with `CLONE_FILES`; the child unshares it, and keeps `keep_below` descriptors.
    Private = 0,
    /// Cloned without `CLONE_FILES`: the kernel has copied the whole table.
    Copied = 1,
    /// The caller's own: the calling process itself plays the plan. Descriptors that the program must not inherit are
    /// marked close-on-exec instead of closed, so that they survive a failure.
    Own = 2,
}

/// The state of one run.
#[repr(C, align(64))]
pub struct Frame {
    /// The futex word: [`RUNNING`], then [`TOOK_FDS`], then [`LEFT`].
    pub word: AtomicU32,
    /// 1 + the index of the op that the child is making; 0 before the first.
    pub step: AtomicU32,
    /// The errno that ended the child, or 0.
    pub errno: AtomicI32,
    /// Which object of the step failed: the index of a pair, of an exec candidate or of a closure. Before the first step:
    /// what was being done, see [`Outcome::Adopt`](crate::report::Outcome::Adopt).
    pub detail: AtomicI32,
    /// The arena to play. A zygote writes it while the caller may read the frame.
    pub plan: AtomicPtr<Header>,
    /// How the file-descriptor table is created.
    pub table: Table,
    /// With [`Table::Private`]: descriptors from here on are not copied.
    pub keep_below: u32,
    /// The caller's pid, if descriptors are fetched from it or its death must be noticed.
    pub parent: i32,
    /// The caller's pid in its own PID namespace, if its death must be noticed while the child waits for it.
    pub host: i32,
    /// The caller's thread that cloned, from which descriptors are fetched: it may have unshared its table, and the main
    /// thread may have exited.
    pub thread: i32,
    /// 1: the caller sleeps until its descriptors have been taken, and must be woken then.
    pub announce: u32,
    /// The caller's pid as `/proc` shows it; 0: the procfs there is that of another PID namespace.
    pub host_in_procfs: i32,
    /// 1: pipes are opened again through `/proc`, because `pidfd_getfd` is refused. The procfs there is that of the caller's
    /// PID namespace.
    pub opens_pipes: u32,
    /// With `opens_pipes`: device and inode of the pipes in the first three slots and in [`EXEC_SLOT`].
    pub pipes: [[u64; 2]; 4],
    /// 1: `close_range` is known to be refused.
    pub no_close_range: u32,
    /// 1: cloned without `CLONE_CLEAR_SIGHAND`, with every signal blocked; the child resets the handlers.
    pub reset_handlers: u32,
    /// 1: the child was cloned with every signal blocked, and the caller's own mask is in `caller_mask`.
    pub has_caller_mask: u32,
    /// The caller's signal mask.
    pub caller_mask: u64,
    /// 1: a core dump of the child would kill the caller too, so the child needs a handler for signals that dump core:
    /// see [`signals::guard`](crate::signals::guard). It was cloned with every signal blocked.
    pub guards_dumps: u32,
    /// With `guards_dumps`: the mask to set once the handlers are installed.
    pub guarded_mask: u64,
    /// The signal with which such a handler has ended the child, or 0.
    pub ended_by: AtomicU32,
    /// The values that differ between runs of a plan: the caller's descriptor, [`SLOT_INHERIT`] or [`SLOT_NULL`].
    pub slots: [i32; SLOTS],
    /// 1: the first three slots hold only pipes, which may be opened again through `/proc`.
    pub only_pipes: u32,
    /// The word that [`OpCode::AwaitGo`](crate::plan::OpCode::AwaitGo) waits for.
    pub go: AtomicU32,
    /// [`ASK_WANTED`] if the caller does its part only once the child waits for it; then [`ASKED`].
    pub asked: AtomicU32,
    /// The child's pid, if the launcher has asked the kernel to store it here.
    pub pid: AtomicI32,
    /// The function that [`OpCode::PreExec`](crate::plan::OpCode::PreExec) calls, in a child with its own memory. It
    /// returns 0 or an errno, and does not unwind.
    pub hook: Option<unsafe extern "C" fn(*const Frame, *const ()) -> i32>,
    /// Its second argument.
    pub hook_data: *const (),
    /// 1: the word holds the child's thread ID while the child runs, and is the only entry of its robust list: see
    /// [`zygote_child`](crate::zygote_child).
    pub is_robust: u32,
    /// The results of calls, for later calls.
    pub variables: UnsafeCell<[usize; VARIABLES]>,
    /// The number of best-effort steps that failed.
    pub skipped: AtomicU32,
    /// For each of them: op index in the upper half, errno in the lower.
    pub misses: [AtomicU64; MISSES],
    /// The current descriptor of each pair's source, while they are being moved.
    pub scratch: UnsafeCell<[i32; MAX_FDS]>,
}

impl Frame {
    /// The state in the futex word: [`RUNNING`], [`TOOK_FDS`] (or, if it is in the child's robust list, any other
    /// number), or [`LEFT`].
    #[inline]
    pub fn state(&self) -> u32 {
        let word = self.word.load(Acquire);
        if word & OWNER_DIED != 0 { LEFT } else { word }
    }
}
