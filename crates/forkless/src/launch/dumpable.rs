//! Keeps the caller's memory non-dumpable while a child with other IDs shares it, and restores the caller's own state
//! afterwards.
//!
//! When a child changes its IDs, `commit_creds()` makes its memory non-dumpable, so that the new user cannot read
//! what the process had in memory before. Until exec that memory is the caller's:
//!
//! - It must stay non-dumpable while any such child uses it. Otherwise the child's new user could open
//!   `/proc/PID/mem` and take over the host.
//! - It must become dumpable again afterwards. Otherwise `/proc/self` would belong to root, debuggers would be
//!   refused, and no core would be written.
//!
//! A child is exposed in the same way if it gives up capabilities, joins a user namespace or is created in one. The
//! kernel does nothing then, so such a plan makes the memory non-dumpable itself.
//!
//! If launches overlap, the first one notes the host's own state, and the last one restores it. Each of these takes a
//! few system calls, and the other launches wait for them. If such launches follow each other so closely that none is
//! the last, new ones wait for those under way: for [`PATIENCE`] at most, and then not again for [`AGAIN`]. The wait
//! is bounded because a child may stay in `open(2)` of a FIFO for ever, and must not block other launches.
//!
//! Another thread may change the process's IDs or give up capabilities during a launch. The memory must then stay
//! non-dumpable: it holds what the former user could read. So the IDs and capabilities of the process's first thread are
//! noted with its state, and those of each launching thread when its launch begins. They are compared before the state is
//! restored and again afterwards; if they differ, the memory stays non-dumpable. A change between the two comparisons
//! leaves it dumpable until the second one: SECURITY.md.
//!
//! There is no lock, and a forked copy ignores the original's note: a note belongs to one
//! [process](process::generation).
//!
//! Source: commit_creds() in kernel/cred.c; __ptrace_may_access() in kernel/ptrace.c; PR_SET_DUMPABLE in prctl(2).

use super::creator::without_signals;
use crate::kernel::{self, Prctl};
use crate::process;
use crate::procfs::{self, Status};
use crate::sync::{self, AtomicU32, AtomicU64};
use forkless_core::sys::{self, errno, uapi};
use nix::time::{ClockId, clock_gettime};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long launches may overlap before the state is due to be restored.
const OVERDUE: Duration = Duration::from_millis(10);

/// How long new launches then wait for the others, at most.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long new launches do not wait after a wait that was in vain.
const AGAIN: Duration = Duration::from_secs(1);

/// The [process](process::generation) in the upper half, [`Note`] in the lower.
static NOTE: AtomicU64 = AtomicU64::new(0);

/// When the state is due to be restored, in nanoseconds of the monotonic clock. With [`WAITS`]: until when new
/// launches wait.
static DUE: AtomicU64 = AtomicU64::new(0);

/// A bit of [`DUE`]: new launches wait.
const WAITS: u64 = 1 << 63;

/// The number of launches that have begun.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// The number of threads that sleep, or are about to.
static SLEEPERS: AtomicU32 = AtomicU32::new(0);

/// The rights of the process's first thread when its state was noted. Written only within [`Note::do_alone`], before the
/// note is stored.
static RIGHTS: [AtomicU64; 6] = [const { AtomicU64::new(0) }; 6];

/// User IDs, group IDs and capabilities of a thread, as numbers to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rights([u64; 6]);

impl Rights {
    /// Those of the calling thread. File system IDs follow the effective ones.
    fn of_thread() -> Self {
        let [effective, permitted, inheritable] = kernel::capabilities();
        let (user, group) = (kernel::user_ids(), kernel::group_ids());
        let low = |ids: [u32; 3]| u64::from(ids[0]) << 32 | u64::from(ids[1]);
        let saved = u64::from(user[2]) << 32 | u64::from(group[2]);
        Self([low(user), low(group), saved, effective, permitted, inheritable])
    }

    /// Those of the process's first thread. `own`: those of the calling thread, if it is the first or `/proc` shows none.
    fn of_process(own: Self) -> Self {
        if sys::getpid() == sys::gettid() {
            return own;
        }
        let found = std::fs::File::open(procfs::own("status")).and_then(|file| Status::of_file(&file));
        found.ok().and_then(|status| Self::of_status(&status)).unwrap_or(own)
    }

    fn of_status(status: &Status) -> Option<Self> {
        let [user, group, inheritable, permitted, effective] =
            status.values(["Uid:", "Gid:", "CapInh:", "CapPrm:", "CapEff:"]);
        let ids = |line: Option<&[u8]>| {
            let mut numbers =
                std::str::from_utf8(line?).ok()?.split_whitespace().map(|number| number.parse::<u64>().ok());
            Some([numbers.next()??, numbers.next()??, numbers.next()??])
        };
        let (user, group) = (ids(user)?, ids(group)?);
        let set = |value| Status::number(value, 16);
        let saved = user[2] << 32 | group[2];
        let low = |ids: [u64; 3]| ids[0] << 32 | ids[1];
        Some(Self([low(user), low(group), saved, set(effective)?, set(permitted)?, set(inheritable)?]))
    }

    /// Notes them as those of the process.
    fn note(self) {
        for (place, number) in RIGHTS.iter().zip(self.0) {
            place.store(number, Ordering::Relaxed);
        }
    }

    fn noted() -> Self {
        Self(std::array::from_fn(|n| RIGHTS[n].load(Ordering::Relaxed)))
    }
}

/// A note: [`BUSY`], the host's own state ([`STATE`]), and the number of launches under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Note(u32);

/// One thread is noting or changing the state.
const BUSY: u32 = 1 << 31;

const STATE_AT: u32 = 24;
const STATE: u32 = 3 << STATE_AT;
const LAUNCHES: u32 = (1 << STATE_AT) - 1;

impl Note {
    /// This process's note, and the word that it was read from. A forked copy finds the original's word, and has no
    /// note.
    fn load() -> (u64, Self) {
        let word = NOTE.load(Ordering::SeqCst);
        let is_ours = word >> 32 == u64::from(process::generation());
        (word, Self(if is_ours { word as u32 } else { 0 }))
    }

    fn launches(self) -> u32 {
        self.0 & LAUNCHES
    }

    fn state(self) -> u8 {
        ((self.0 & STATE) >> STATE_AT) as u8
    }

    fn is_busy(self) -> bool {
        self.0 & BUSY != 0
    }

    fn with(state: u8, launches: u32) -> Self {
        Self(u32::from(state) << STATE_AT & STATE | launches & LAUNCHES)
    }

    fn word(self) -> u64 {
        u64::from(process::generation()) << 32 | u64::from(self.0)
    }

    /// Stores the note if the word has not changed since it was read; returns whether it did.
    fn put(self, before: u64) -> bool {
        let done = NOTE.compare_exchange(before, self.word(), Ordering::SeqCst, Ordering::Relaxed).is_ok();
        if done {
            wake();
        }
        done
    }

    /// Does work that only one thread may do at a time, and stores the note that it returns. False if another thread
    /// was faster.
    ///
    /// Signals are blocked meanwhile: a handler that launches would wait for this thread for ever.
    fn do_alone(self, before: u64, work: impl FnOnce() -> Self) -> bool {
        without_signals(|| {
            if !Self(self.0 | BUSY).put(before) {
                return false;
            }
            NOTE.store(work().word(), Ordering::SeqCst);
            wake();
            true
        })
    }
}

fn wake() {
    if SLEEPERS.load(Ordering::SeqCst) != 0 {
        sync::futex_wake_low(&NOTE);
    }
}

/// Sleeps until the note changes, for `limit` at most.
fn sleep(note: Note, limit: Duration) {
    let limit = uapi::__kernel_timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos() as i64 };
    SLEEPERS.fetch_add(1, Ordering::SeqCst);
    let _ = sync::futex_wait_low(&NOTE, note.0, Some(&limit));
    SLEEPERS.fetch_sub(1, Ordering::SeqCst);
}

/// How long to wait for the thread in [`Note::do_alone`] before the note is read again.
const MOMENT: Duration = Duration::from_millis(100);

/// A launch whose child may have other IDs in the caller's memory. When the last such launch is dropped, the caller's
/// own dumpable state is restored.
#[derive(Debug)]
pub struct KeepDumpable {
    process: u32,
    /// Those of the thread that launches.
    rights: Rights,
    mark: Mark,
}

impl KeepDumpable {
    /// Begins such a launch. It does not change the memory's state: the child does.
    ///
    /// # Errors
    /// If a seccomp filter forbids making the memory dumpable again.
    pub fn begin() -> Result<Self, i32> {
        let mut refused = Ok(());
        let rights = Rights::of_thread();
        // If another launch begins meanwhile, or this number is stale, this launch does not count as alone.
        let begun = BEGUN.load(Ordering::Relaxed) + 1;
        let alone = loop {
            let (word, note) = Note::load();
            if note.is_busy() {
                sleep(note, MOMENT);
            } else if note.launches() == 0 {
                let first = || {
                    // First: if the process changes its IDs from here on, the rights differ at the end.
                    Rights::of_process(rights).note();
                    let state = state();
                    if state == 1 {
                        refused = may_set_state();
                    }
                    DUE.store(now().saturating_add(nanoseconds(OVERDUE)), Ordering::Relaxed);
                    if refused.is_ok() { Note::with(state, 1) } else { Note::with(0, 0) }
                };
                if note.do_alone(word, first) {
                    refused?;
                    break true;
                }
            } else if let Some(wait) = wait_for_others(now(), &DUE) {
                sleep(note, wait);
            } else if Note::with(noted(note), note.launches() + 1).put(word) {
                // The child of another launch may have changed the state already.
                break false;
            }
        };
        BEGUN.fetch_add(1, Ordering::SeqCst);
        Ok(Self { process: process::generation(), rights, mark: Mark { begun, alone } })
    }

    /// Ends the launch of a child that has been seen to leave. The kernel reports that a moment before it detaches
    /// the memory from the child, so this waits until `kcmp(2)` shows it, or `/proc` if `kcmp(2)` is refused. (If
    /// neither gives an answer, it does not wait.)
    pub fn end(self, pid: i32) {
        if wait_while_shared(pid).is_err() {
            super::forked::has_executed(pid);
        }
    }
}

/// Waits, as [`KeepDumpable::end`] does, until a child has given up the memory of the calling process, which has cloned
/// it for its own parent with `CLONE_VFORK`: the parent may have reaped the child. False: that cannot be determined.
///
/// The kernel lets the calling process continue when the child has begun to leave its memory. Until the child has the
/// new one, its new user may open `/proc/PID/mem`, unless the memory is non-dumpable. Source: exec_mmap() in fs/exec.c,
/// which calls exec_mm_release() and complete_vfork_done() first.
pub(crate) fn has_sibling_left(pid: i32) -> bool {
    match wait_while_shared(pid) {
        Ok(()) | Err(errno::ESRCH) => return true,
        Err(_) => {}
    }
    loop {
        match super::forked::has_mark_or_ended(pid) {
            Some(true) => return true,
            Some(false) => sys::pause(Duration::from_micros(50)),
            // Hidden, or gone: `/proc` does not show a process that does not exist.
            None => return sys::kill(pid, 0) == Err(errno::ESRCH),
        }
    }
}

/// Waits while a process shares the memory of the calling one.
///
/// # Errors
/// Those of `kcmp(2)`: then that is not known.
fn wait_while_shared(pid: i32) -> Result<(), i32> {
    let mut looks = 0;
    while kernel::has_shared_memory(pid)? {
        if looks < 8 {
            looks += 1;
            std::thread::yield_now();
        } else {
            // The child may have a lower priority and need this CPU.
            sys::pause(Duration::from_micros(50));
        }
    }
    Ok(())
}

impl Drop for KeepDumpable {
    fn drop(&mut self) {
        // A copy that was forked during a launch has no child in its memory.
        while self.process == process::generation() {
            let (word, note) = Note::load();
            let put_back = || {
                if self.has_fewer_rights() {
                    forbid();
                    return Note::with(0, 0);
                }
                // Only the kernel can set 2 ("readable by root only"). It sets it also where the host's own state was 0:
                // the sysctl fs.suid_dumpable says which state a change of IDs has (1 and 2 are possible).
                let own = note.state();
                if own < 2 && state() != own {
                    let _ = set_state(own);
                    if self.has_fewer_rights() {
                        forbid();
                    }
                }
                Note::with(0, 0)
            };
            // The launch that ends last has not recorded this thread's rights, so it must not restore the state.
            let taint = || {
                forbid();
                Note::with(0, note.launches() - 1)
            };
            let done = match note.launches() {
                _ if note.is_busy() => {
                    sleep(note, MOMENT);
                    false
                }
                0 => true,
                1 => note.do_alone(word, put_back),
                _ if note.state() != 0 && self.has_fewer_rights() => note.do_alone(word, taint),
                launches => Note::with(note.state(), launches - 1).put(word),
            };
            if done {
                return;
            }
        }
    }
}

impl KeepDumpable {
    /// Whether the process's first thread or this one has changed its IDs or capabilities since the launch began.
    fn has_fewer_rights(&self) -> bool {
        let own = Rights::of_thread();
        self.rights != own || Rights::noted() != Rights::of_process(own)
    }
}

/// Makes the memory non-dumpable for good, as the kernel does when a process changes its IDs.
fn forbid() {
    if state() == 1 {
        let _ = set_state(0);
    }
}

/// The host's own state, as the first launch has noted it: by now a child may have changed it.
fn noted(note: Note) -> u8 {
    note.state()
}

/// How long a new launch must wait for the others; `None`: not at all.
fn wait_for_others(now: u64, due: &AtomicU64) -> Option<Duration> {
    loop {
        let known = due.load(Ordering::Relaxed);
        let next = match known.checked_sub(WAITS) {
            None if now < known => return None,
            None => WAITS | now.saturating_add(nanoseconds(PATIENCE)),
            Some(until) if now < until => return Some(Duration::from_nanos(until - now)),
            Some(_) => now.saturating_add(nanoseconds(AGAIN)),
        };
        // If the exchange fails, another thread has stored the same.
        let _ = due.compare_exchange(known, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// Nanoseconds of the monotonic clock, from libc: before Linux 6.4 rustix opens a descriptor to find the vDSO, and
/// that descriptor is not close-on-exec.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC);
    time.map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// Makes this process dumpable or not, as PR_SET_DUMPABLE of `prctl(2)` does, even while children that change their IDs
/// are being launched.
///
/// Such a launch makes the memory that it shares non-dumpable until the child has executed its program, and then
/// restores the process's setting. It cannot distinguish a `prctl(2)` that the caller makes in between from the
/// kernel's own change, so that call has no lasting effect. This function has: `false` takes effect at once and
/// stays, `true` takes effect when no such child is left in the memory.
///
/// ```
/// forkless::set_dumpable(false)?;
/// // Read secrets here: debuggers cannot attach, and no core dump has them.
/// forkless::set_dumpable(true)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Those of `prctl(2)`, for example from a seccomp filter.
pub fn set_dumpable(dumpable: bool) -> io::Result<()> {
    let mut answer = Ok(());
    loop {
        let (word, note) = Note::load();
        if note.is_busy() {
            sleep(note, MOMENT);
            continue;
        }
        let launches = note.launches();
        let set = || {
            answer = if dumpable && launches > 0 { Ok(()) } else { set_state(u8::from(dumpable)) };
            let state = if answer.is_ok() { u8::from(dumpable) } else { note.state() };
            Note::with(state, launches)
        };
        if note.do_alone(word, set) {
            return answer.map_err(io::Error::from_raw_os_error);
        }
    }
}

/// Whether a refusal may come from the memory being non-dumpable, which is temporary.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    begun: u32,
    alone: bool,
}

impl Mark {
    /// Must be called when a launch begins. `own`: the launch's own [`KeepDumpable`], if it has one.
    pub(super) fn begin(own: Option<&KeepDumpable>) -> Self {
        own.map_or_else(
            || Self { begun: BEGUN.load(Ordering::SeqCst), alone: Note::load().1.launches() == 0 },
            |own| own.mark,
        )
    }

    /// Whether no other such launch has been under way since. Must be called when the launch's own one has ended.
    pub(super) fn is_alone(self) -> bool {
        self.alone && BEGUN.load(Ordering::SeqCst) == self.begun && Note::load().1.launches() == 0
    }
}

/// Waits until no such launch is under way, for [`PATIENCE`] at most.
pub(super) fn wait_until_alone() {
    let until = now().saturating_add(nanoseconds(PATIENCE));
    loop {
        let note = Note::load().1;
        let left = until.saturating_sub(now());
        if note.launches() == 0 && !note.is_busy() || left == 0 {
            return;
        }
        sleep(note, Duration::from_nanos(left));
    }
}

/// Whether the memory is dumpable now.
pub(super) fn is_dumpable() -> bool {
    state() == 1
}

fn state() -> u8 {
    kernel::prctl(Prctl::Dumpable, 0).unwrap_or(1) as u8
}

/// Whether a seccomp filter allows setting the state. Tries a value that the kernel rejects, which changes nothing.
fn may_set_state() -> Result<(), i32> {
    match set_state(2) {
        Err(errno::EINVAL) => Ok(()),
        answer => answer,
    }
}

fn set_state(state: u8) -> Result<(), i32> {
    kernel::prctl(Prctl::SetDumpable, state as usize).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn new_launches_wait_for_a_bounded_time_and_then_not_for_a_while() {
        let due = AtomicU64::new(50 * MS);
        assert_eq!(wait_for_others(49 * MS, &due), None, "not due yet");
        assert_eq!(wait_for_others(50 * MS, &due), Some(PATIENCE), "the first one that finds it due");
        assert_eq!(
            wait_for_others(90 * MS, &due),
            Some(Duration::from_millis(60)),
            "the next ones wait as long as that"
        );
        assert_eq!(wait_for_others(150 * MS, &due), None, "it was in vain");
        assert_eq!(wait_for_others(1149 * MS, &due), None, "and nobody waits for a while");
        assert_eq!(
            wait_for_others(5000 * MS, &due),
            Some(PATIENCE),
            "then the next one that comes does, whenever that is"
        );
    }

    #[test]
    fn a_note_is_that_of_one_process() {
        let word = Note::with(1, 3).word();
        assert_eq!((Note(word as u32).state(), Note(word as u32).launches()), (1, 3));
        assert_eq!(word >> 32, u64::from(process::generation()));
    }
}
