//! Takes signals with `signalfd(2)`, which reports the sender of each, and forwards them.
//!
//! The signals stay blocked while forkless supervises its program, so no handler ever runs, and none is lost between the
//! launch and the first wait.

use std::{
    io,
    mem::{MaybeUninit, offset_of},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use forkless::{Child, Command};
use forkless_core::{
    signals::{handler, set_default},
    sys::{self, signal::bit, uapi},
};
use libc::signalfd_siginfo;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use super::options::has_ignored_sigpipe;

/// What a terminal sends to its foreground group, or to a group that uses it from the background.
const OF_TERMINALS: [i32; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGCONT,
    libc::SIGWINCH,
];

/// The stop signals that a program can catch.
pub(crate) const STOPS: [i32; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// The real-time signals that C libraries use themselves and keep out of masks: cancellation and setuid(3) of all threads.
const OF_LIBC: [i32; 2] = [32, 33];

/// The size of the structure that signalfd(2) returns.
const RECORD: usize = size_of::<signalfd_siginfo>();

/// A signal that has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) number: i32,
    code: i32,
    /// The sender's process ID, 0 if it is in another PID namespace.
    pub(crate) sender: u32,
    value: u64,
}

impl Arrived {
    fn read(record: &[u8]) -> Self {
        let word = |at: usize| u32::from_ne_bytes(record[at..at + 4].try_into().expect("four bytes"));
        let value = offset_of!(signalfd_siginfo, ssi_ptr);
        Self {
            number: word(offset_of!(signalfd_siginfo, ssi_signo)) as i32,
            code: word(offset_of!(signalfd_siginfo, ssi_code)) as i32,
            sender: word(offset_of!(signalfd_siginfo, ssi_pid)),
            value: u64::from_ne_bytes(record[value..value + 8].try_into().expect("eight bytes")),
        }
    }

    /// Did a process send it? Otherwise the kernel did.
    pub(crate) fn is_sent(&self) -> bool {
        self.code <= 0
    }

    /// Did a terminal send it? A terminal signals a whole process group.
    pub(crate) fn is_from_terminal(&self) -> bool {
        !self.is_sent() && OF_TERMINALS.contains(&self.number)
    }

    /// Does it report a change of a child?
    pub(crate) fn is_of_a_child(&self) -> bool {
        self.number == libc::SIGCHLD && !self.is_sent()
    }

    /// Did a timer of this process send it?
    pub(crate) fn is_from_timer(&self) -> bool {
        self.code == libc::SI_TIMER
    }

    /// The value that sigqueue(3), a message queue or a timer has sent with it.
    pub(crate) fn value(&self) -> Option<u64> {
        (self.code < 0 && self.code != libc::SI_TKILL).then_some(self.value)
    }
}

/// Did a SIGCONT arrive after the last stop signal? Each discards the other while that is pending (signal(7)), so they are
/// taken in the order in which they arrived.
pub(crate) fn has_continued(arrived: &[Arrived]) -> bool {
    let mut last =
        arrived.iter().rev().filter(|signal| signal.number == libc::SIGCONT || STOPS.contains(&signal.number));
    last.next().is_some_and(|signal| signal.number == libc::SIGCONT)
}

/// The signals that forkless takes, blocked until this is dropped.
#[derive(Debug)]
pub(crate) struct Signals {
    file: OwnedFd,
    /// The previous signal mask.
    mask: u64,
    taken: u64,
}

impl Signals {
    /// Blocks and takes every signal that can be caught, except those in `left` and those that forkless has inherited as
    /// ignored (nohup, a background job): they stay ignored, by forkless and by its program.
    ///
    /// # Errors
    /// If no file descriptor is left.
    pub(crate) fn take(left: &[i32]) -> io::Result<Self> {
        let signals = (1..=libc::SIGRTMAX()).filter(|number| {
            let cannot = [libc::SIGKILL, libc::SIGSTOP].contains(number) || OF_LIBC.contains(number);
            !cannot && !left.contains(number) && !is_inherited_ignored(*number)
        });
        let taken = signals.map(bit).fold(0, |set, bit| set | bit);
        let flags = (libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) as usize;
        let args = [usize::MAX, &raw const taken as usize, size_of_val(&taken), flags, 0, 0];
        // SAFETY: the kernel only reads the 8 bytes of `taken`; -1 requests a new descriptor.
        let file = unsafe { sys::syscall(uapi::__NR_signalfd4, args) }.map_err(io::Error::from_raw_os_error)?;
        // SAFETY: the kernel has just returned this descriptor, so nothing else owns it.
        let file = unsafe { OwnedFd::from_raw_fd(file as i32) };
        if is_ignored(libc::SIGCHLD) {
            // Ignored, it would report no stop of the program. The program still ignores it: `SignalOptions::apply`.
            default(libc::SIGCHLD);
        }
        let mask = sys::signal_mask().map_err(io::Error::from_raw_os_error)?;
        sys::block_signals(taken).map_err(io::Error::from_raw_os_error)?;
        Ok(Self { file, mask, taken })
    }

    /// Starts the program with the previous signal mask if `inherits`, otherwise with an empty one.
    pub(crate) fn leave_to(&self, command: &mut Command, inherits: bool) {
        command.inherit_signal_mask(false);
        if inherits {
            (1..=64).filter(|number| self.mask & bit(*number) != 0).for_each(|number| _ = command.signal_block(number));
        }
    }

    /// Takes what has arrived, without waiting.
    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        let mut all = Vec::new();
        let mut buffer = [0; 16 * RECORD];
        // An error means that none is left, which is EAGAIN.
        while let Ok(count @ 1..) = rustix::io::read(&self.file, &mut buffer) {
            all.extend(buffer[..count].chunks_exact(RECORD).map(Arrived::read));
        }
        all
    }

    /// Stops forkless, or its whole process group, by one of [`STOPS`], until it is continued. Returns at once if the kernel
    /// discards the signal: in a group that no shell watches ("orphaned"), or if forkless has inherited it as ignored.
    pub(crate) fn stop(&self, signal: i32, whole_group: bool) {
        let everybody = if whole_group { 0 } else { sys::getpid() };
        // The signal is blocked, and takes effect below.
        let _ = sys::kill(everybody, signal);
        let _ = sys::set_signal_mask((self.mask | self.taken) & !bit(signal));
        let _ = sys::set_signal_mask(self.mask | self.taken);
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Signals {
    /// A signal that has arrived by now was for the program, which has ended.
    fn drop(&mut self) {
        self.arrived();
        let _ = sys::set_signal_mask(self.mask);
    }
}

/// Where the program's signals go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipient {
    /// The program leads a process group; signals are sent to the group.
    pub(crate) leads: bool,
}

impl Recipient {
    /// Sends a signal to the program, or to its process group if it leads one. Not an error if the program has ended.
    ///
    /// # Errors
    /// If forkless may not signal the program, which may have become another user's by a setuid bit.
    pub(crate) fn send(self, child: &mut Child, signal: i32, value: Option<u64>) -> io::Result<()> {
        if value.is_some_and(|value| self.queue(child, signal, value)) {
            return Ok(());
        }
        // The child is not reaped yet, so its PID has not been reused. A PID is never 0 or 1, whose negatives kill(2) would
        // treat differently.
        match i32::try_from(child.id()) {
            // Below an init, the kill must go by the handle.
            _ if signal == libc::SIGKILL && child.signal_group(signal).is_ok() => Ok(()),
            Ok(group) if self.leads && sys::kill(-group, signal).is_ok() => Ok(()),
            // The group does not exist yet, or the program has left it: signal the program alone.
            _ => child.signal(signal),
        }
    }

    /// `sigqueue(3)`. False if the value cannot be sent, as to a group before Linux 6.9.
    fn queue(self, child: &Child, signal: i32, value: u64) -> bool {
        const PIDFD_SIGNAL_PROCESS_GROUP: usize = 4;
        let Some(pidfd) = child.pidfd() else { return false };
        let mut record = MaybeUninit::<libc::siginfo_t>::zeroed();
        let words = record.as_mut_ptr().cast::<i32>();
        // SAFETY: the structure is 128 bytes, aligned to eight. It begins with the number, an errno and the code; after the
        // padding, the sender and its user precede the value.
        unsafe {
            words.write(signal);
            words.add(2).write(libc::SI_QUEUE);
            words.add(4).write(sys::getpid());
            words.add(5).write(rustix::process::getuid().as_raw() as i32);
            words.add(6).cast::<u64>().write(value);
        }
        let flags = if self.leads { PIDFD_SIGNAL_PROCESS_GROUP } else { 0 };
        let args = [pidfd.as_raw_fd() as usize, signal as usize, record.as_ptr() as usize, flags, 0, 0];
        // SAFETY: the kernel only reads `record`, a whole siginfo_t.
        unsafe { sys::syscall(uapi::__NR_pidfd_send_signal, args) }.is_ok()
    }
}

/// Ends forkless by the signal that its program died of, without a second core dump. Returns only if the kernel keeps this
/// process from dying, as the first process of a PID namespace.
pub(crate) fn die_by(signal: i32) {
    // RLIMIT_CORE does not hold for core dumps that are piped to a program: core(5).
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    default(signal);
    let _ = sys::kill(sys::getpid(), signal);
    let _ = sys::set_signal_mask(!bit(signal));
}

fn default(signal: i32) {
    // SAFETY: no handler depends on the old action: forkless has none but those of Rust's runtime, for SEGV and BUS.
    let _ = unsafe { set_default(None, bit(signal)) };
}

/// Is the signal ignored in this process?
pub(crate) fn is_ignored(signal: i32) -> bool {
    sys::signal_action(signal.unsigned_abs()).is_ok_and(|action| handler(&action) == libc::SIG_IGN)
}

/// Does forkless ignore the signal because its caller did?
fn is_inherited_ignored(signal: i32) -> bool {
    match signal {
        libc::SIGPIPE => has_ignored_sigpipe(),
        // Taken all the same: see `take`.
        libc::SIGCHLD => false,
        _ => is_ignored(signal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_after_a_continue_counts() {
        let arrived = |numbers: &[i32]| -> Vec<Arrived> {
            let of = |&number: &i32| Arrived { number, code: libc::SI_USER, sender: 1, value: 0 };
            numbers.iter().map(of).collect()
        };
        use libc::{SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN};
        assert!(has_continued(&arrived(&[SIGCONT])));
        assert!(has_continued(&arrived(&[SIGTSTP, SIGCHLD, SIGCONT, SIGCHLD])));
        assert!(!has_continued(&arrived(&[SIGCHLD, SIGCONT, SIGCHLD, SIGTSTP])));
        assert!(!has_continued(&arrived(&[SIGCONT, SIGTTIN, SIGCHLD])));
        assert!(!has_continued(&arrived(&[SIGCHLD])));
        assert!(!has_continued(&[]));
    }
}
