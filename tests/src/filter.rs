//! Seccomp filters that refuse system calls in this process, as containers and service managers do.
//!
//! A filter cannot be taken off again, and children inherit it: use it only in a process of its own.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter, apply_filter_all_threads,
};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    /// It fails with this errno.
    Errno(i32),
    /// The process that makes it is killed by SIGSYS.
    Kill,
    /// The thread that makes it is.
    KillThread,
    /// SIGSYS is sent to the thread that makes it.
    Trap,
    /// It waits until the listener answers, or is closed: [`hang`].
    Wait,
}

/// A call to be refused.
#[derive(Debug, Clone, Copy)]
pub struct Refusal {
    syscall: i64,
    answer: Answer,
    when: When,
}

/// Which of the calls of that number.
#[derive(Debug, Clone, Copy)]
enum When {
    Always,
    /// The bits `mask` of argument `index` are `bits`.
    Bits {
        index: u8,
        mask: u64,
        bits: u64,
    },
}

impl Refusal {
    /// Every call of `syscall` (a `libc::SYS_*`).
    pub fn of(syscall: i64, answer: Answer) -> Self {
        Self { syscall, answer, when: When::Always }
    }

    /// Only those calls whose argument `index` (from 0) has all of `bits` set.
    pub fn with_bits(self, index: u8, bits: u64) -> Self {
        Self { when: When::Bits { index, mask: bits, bits }, ..self }
    }

    /// Only those calls whose argument `index` (from 0) is `value`.
    pub fn with_value(self, index: u8, value: u64) -> Self {
        Self { when: When::Bits { index, mask: !0, bits: value }, ..self }
    }

    fn rules(self) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
        let When::Bits { index, mask, bits } = self.when else { return Ok(Vec::new()) };
        let compare = SeccompCmpOp::MaskedEq(mask);
        Ok(vec![SeccompRule::new(vec![SeccompCondition::new(index, SeccompCmpArgLen::Qword, compare, bits)?])?])
    }
}

/// Refuses these calls from now on, in the calling thread and in processes that it creates. All other calls are
/// allowed.
///
/// Sets `no_new_privs`, without which an ordinary user may not install filters.
pub fn refuse(refusals: &[Refusal]) -> Result<(), seccompiler::Error> {
    programs(refusals)?.iter().try_for_each(|program| apply_filter(program))
}

/// The same in all threads of the process.
pub fn refuse_in_all_threads(refusals: &[Refusal]) -> Result<(), seccompiler::Error> {
    programs(refusals)?.iter().try_for_each(|program| apply_filter_all_threads(program))
}

/// BPF_RET | BPF_K.
const RETURN: u16 = 0x06;

/// Lets these calls wait, in the calling thread and the processes that it makes, until the listener is closed: then they fail
/// with ENOSYS. `seccomp_unotify(2)`.
pub fn hang(refusal: Refusal) -> io::Result<OwnedFd> {
    let programs = programs(&[Refusal { answer: Answer::Wait, ..refusal }]).map_err(io::Error::other)?;
    let [program] = programs.as_slice() else { unreachable!("one answer has one program") };
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: the kernel copies the program, whose lines are laid out as its own. A new descriptor is ours.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        match libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &filter) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd as i32)),
        }
    }
}

/// One program for each answer: a seccomp filter has one answer for all that it matches.
pub fn programs(refusals: &[Refusal]) -> Result<Vec<BpfProgram>, seccompiler::Error> {
    let mut by_answer: BTreeMap<Answer, BTreeMap<i64, Vec<SeccompRule>>> = BTreeMap::new();
    for refusal in refusals {
        let rules = refusal.rules().map_err(seccompiler::Error::Backend)?;
        by_answer.entry(refusal.answer).or_default().entry(refusal.syscall).or_default().extend(rules);
    }
    let target = std::env::consts::ARCH.try_into().map_err(seccompiler::Error::Backend)?;
    let compile = |(answer, rules)| {
        let action = match answer {
            Answer::Errno(errno) => SeccompAction::Errno(errno as u32),
            Answer::Kill => SeccompAction::KillProcess,
            Answer::KillThread => SeccompAction::KillThread,
            Answer::Trap => SeccompAction::Trap,
            // Seccompiler has no word for it: replaced below.
            Answer::Wait => SeccompAction::Trace(0),
        };
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, target);
        let program: Result<BpfProgram, _> = filter.and_then(TryInto::try_into).map_err(seccompiler::Error::Backend);
        program.map(|mut program| {
            let returns = program.iter_mut().filter(|line| line.code == RETURN && line.k == libc::SECCOMP_RET_TRACE);
            returns.for_each(|line| line.k = libc::SECCOMP_RET_USER_NOTIF);
            program
        })
    };
    by_answer.into_iter().map(compile).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread of its own, since the filter stays with it.
    #[test]
    fn calls_are_refused() {
        let thread = std::thread::spawn(|| {
            let refusals = [
                Refusal::of(libc::SYS_getpriority, Answer::Errno(libc::E2BIG)),
                Refusal::of(libc::SYS_umask, Answer::Errno(libc::EPERM)).with_value(0, 0o7777),
                Refusal::of(libc::SYS_close, Answer::Errno(libc::ENOSYS)).with_bits(0, 0x4000_0000),
            ];
            refuse(&refusals).unwrap();
            // SAFETY: calls without effect.
            let errno = |answer: i64| unsafe { if answer < 0 { *libc::__errno_location() } else { 0 } };
            unsafe {
                assert_eq!(errno(libc::syscall(libc::SYS_getpriority, 0, 0)), libc::E2BIG);
                assert_eq!(errno(libc::syscall(libc::SYS_umask, 0o7777)), libc::EPERM);
                assert_eq!(errno(libc::syscall(libc::SYS_close, 0x4000_0001)), libc::ENOSYS);
                assert_eq!(errno(libc::syscall(libc::SYS_close, 0x2000_0001)), libc::EBADF);
                assert_eq!(errno(libc::syscall(libc::SYS_getppid)), 0);
            }
        });
        thread.join().unwrap();
    }
}
