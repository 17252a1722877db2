//! A filter whose answer depends on the process that makes the call: `seccomp_unotify(2)`.
//!
//! A filter stays with a thread and all processes that it makes, so it cannot refuse a call to a zygote's helper and allow
//! it to the caller. A supervisor can: a thread without the filter gets each call, and answers it.

use crate::filter::{Answer, Refusal, hang};
use crate::trace::Who;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::{io, thread};

/// The answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// It fails with this errno.
    Errno(i32),
    /// The process that makes it is killed by SIGKILL.
    Kill,
    /// It has no answer.
    Hang,
    /// As [`Reply::Hang`]; after [`HANGS_FOR`] the process is killed.
    HangThenKill,
}

/// How long a call hangs before [`Reply::HangThenKill`] kills its process, in milliseconds.
pub const HANGS_FOR: i32 = 50;

/// The supervisor of the calling thread and its children. It ends with the process.
pub struct Supervisor(Arc<Shared>);

struct Shared {
    reply: Reply,
    listener: AtomicI32,
    /// 1 + the [`Who`] whose calls are answered; 0: every call is made.
    who: AtomicU32,
    helper: AtomicI32,
    answered: AtomicU32,
}

/// `SECCOMP_IOCTL_NOTIF_RECV`, `SECCOMP_IOCTL_NOTIF_SEND`: the size of a structure is a part of the number.
const RECEIVE: libc::c_ulong = 0xc000_2100 | (size_of::<libc::seccomp_notif>() as libc::c_ulong) << 16;
const SEND: libc::c_ulong = 0xc000_2101 | (size_of::<libc::seccomp_notif_resp>() as libc::c_ulong) << 16;

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`
const CONTINUE: u32 = 1;

impl Supervisor {
    /// Supervises this call in the calling thread, and in all processes that it makes from now on. Every call is made until
    /// [`reply_to`](Self::reply_to).
    pub fn start(refusal: Refusal, reply: Reply) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            reply,
            listener: AtomicI32::new(-1),
            who: AtomicU32::new(0),
            helper: AtomicI32::new(0),
            answered: AtomicU32::new(0),
        });
        let its = Arc::clone(&shared);
        thread::Builder::new().spawn(move || its.serve())?;
        let listener = hang(refusal)?;
        shared.listener.store(listener.as_raw_fd(), Ordering::Release);
        // If it were closed, calls would fail.
        std::mem::forget(listener);
        Ok(Self(shared))
    }

    /// From now on, only the calls of this process get the reply. `helper`: the zygote's.
    pub fn reply_to(&self, who: Who, helper: i32) {
        self.0.helper.store(helper, Ordering::Relaxed);
        self.0.who.store(1 + who as u32, Ordering::Release);
    }

    /// From now on every call is made.
    pub fn rest(&self) {
        self.0.who.store(0, Ordering::Release);
    }

    /// How many calls have got the reply.
    pub fn answered(&self) -> u32 {
        self.0.answered.load(Ordering::Acquire)
    }
}

/// Runs `work` on a thread. At each call of this number that it or its children make, `at` runs first, and then the call is made.
pub fn at_each<T: Send>(call: libc::c_long, work: impl FnOnce() -> T + Send, mut at: impl FnMut()) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            sender.send(hang(Refusal::of(call, Answer::Wait)).expect("a filter")).expect("the other thread");
            work()
        });
        let listener = receiver.recv().expect("a listener");
        while !worker.is_finished() {
            let mut wait = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: the kernel writes these structures, for which all zeroes are valid.
            let notified = unsafe {
                let mut notified: libc::seccomp_notif = std::mem::zeroed();
                let is_there = libc::poll(&raw mut wait, 1, 20) == 1
                    && libc::ioctl(listener.as_raw_fd(), RECEIVE as _, &raw mut notified) == 0;
                is_there.then_some(notified)
            };
            if let Some(call) = notified {
                at();
                let mut response = libc::seccomp_notif_resp { id: call.id, val: 0, error: 0, flags: CONTINUE };
                // SAFETY: the kernel reads the structure.
                unsafe { libc::ioctl(listener.as_raw_fd(), SEND as _, &raw mut response) };
            }
        }
        worker.join().expect("a thread")
    })
}

impl Shared {
    /// The thread. It must not allocate: a supervised thread may wait for it in the allocator.
    fn serve(&self) {
        let listener = loop {
            match self.listener.load(Ordering::Acquire) {
                -1 => thread::yield_now(),
                fd => break fd,
            }
        };
        let mut hanging = 0;
        loop {
            let mut wait = libc::pollfd { fd: listener, events: libc::POLLIN, revents: 0 };
            let limit = if hanging == 0 { -1 } else { HANGS_FOR };
            // SAFETY: one structure, and system calls of this process.
            if unsafe { libc::poll(&raw mut wait, 1, limit) } == 0 {
                unsafe { libc::kill(hanging, libc::SIGKILL) };
                hanging = 0;
                continue;
            }
            // SAFETY: all zeroes are valid, and what the kernel asks for.
            let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
            // SAFETY: the kernel writes the structure.
            if unsafe { libc::ioctl(listener, RECEIVE as _, &raw mut call) } != 0 {
                // The process was killed meanwhile.
                continue;
            }
            let pid = call.pid as i32;
            let mut response = libc::seccomp_notif_resp { id: call.id, val: 0, error: 0, flags: CONTINUE };
            if self.is_answered(pid) {
                self.answered.fetch_add(1, Ordering::Release);
                match self.reply {
                    Reply::Errno(errno) => (response.error, response.flags) = (-errno, 0),
                    // SAFETY: a process of this test, which waits for the answer.
                    Reply::Kill => unsafe {
                        libc::kill(pid, libc::SIGKILL);
                        continue;
                    },
                    Reply::Hang => continue,
                    Reply::HangThenKill => {
                        hanging = pid;
                        continue;
                    }
                }
            }
            // SAFETY: the kernel reads the structure.
            unsafe { libc::ioctl(listener, SEND as _, &raw mut response) };
        }
    }

    fn is_answered(&self, pid: i32) -> bool {
        let who = self.who.load(Ordering::Acquire);
        // SAFETY: signal 0 only asks whether this is a thread of this process.
        let is_ours = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), pid, 0) } == 0;
        let its = match () {
            () if is_ours => Who::Parent,
            () if pid == self.helper.load(Ordering::Relaxed) => Who::Helper,
            () => Who::Child,
        };
        who == 1 + its as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread, since the filter stays with it.
    #[test]
    fn only_the_calls_of_one_process_are_answered() {
        let test = || {
            let refusal = Refusal::of(libc::SYS_getpriority, Answer::Wait);
            let supervisor = Supervisor::start(refusal, Reply::Errno(libc::E2BIG)).unwrap();
            let fails = || {
                // SAFETY: a call without effect.
                let failed = unsafe { libc::syscall(libc::SYS_getpriority, 0, 0) } < 0;
                failed.then(|| io::Error::last_os_error().raw_os_error().unwrap())
            };
            assert_eq!((fails(), supervisor.answered()), (None, 0));
            supervisor.reply_to(Who::Child, 0);
            assert_eq!((fails(), supervisor.answered()), (None, 0));
            supervisor.reply_to(Who::Parent, 0);
            assert_eq!((fails(), supervisor.answered()), (Some(libc::E2BIG), 1));
            supervisor.rest();
            assert_eq!((fails(), supervisor.answered()), (None, 1));
        };
        thread::spawn(test).join().unwrap();
    }
}
