//! The caller's side of one helper: its start, its socket, its parcels, its end.

use super::inherited::{Files, Identity};
use super::message::{ARENA_AT, AT_ONCE, Kind, Message, PARCEL_AT, Parcel, USUAL, refusal};
use super::namespaces::Namespaces;
use super::server::{ASKED, SOCKET};
use super::{Source, ZygoteOptions};
use crate::child::Child;
use crate::command::Command;
use crate::error::Error;
use crate::kernel::{SIGCONT, SIGKILL};
use crate::launch::processor;
use crate::launch::stack::{Lender, Stack};
use crate::plan::Plan;
use crate::process;
use crate::stdio::Stdio;
use crate::wait::is_stopped;
use forkless_core::frame::LEFT;
use forkless_core::planted;
use forkless_core::sys::{self};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, Mode, OFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::ExitStatus;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a helper may take to say that it is there: a program's start, and what runs before `serve_if_asked`.
const START: Duration = Duration::from_secs(20);

/// How long a helper is waited for that is to end. One that is stopped and cannot be killed is reaped later, as any
/// dropped child.
const END: Duration = Duration::from_secs(2);

/// How often a caller that waits looks whether the helper is still there.
pub(crate) const PATIENCE: Duration = Duration::from_millis(10);

/// Parcels that are kept for further launches.
const KEPT: usize = 64;

/// A helper that has said that it is there.
pub(crate) struct Helper {
    pub(crate) link: Arc<Link>,
    pub(crate) pid: i32,
    /// What it cannot change in its children.
    pub(crate) identity: Identity,
    /// The same, of what only some can change in themselves.
    pub(crate) namespaces: Namespaces,
    /// The caller's own.
    pub(crate) files: Files,
    child: Mutex<Child>,
    /// 1 + the processor that it is kept on; 0: on none.
    kept: AtomicU32,
}

/// What launches share with a helper; outlives it where a handle still has a parcel.
pub(crate) struct Link {
    /// The [process](process::generation) that started it: a forked copy has the socket too, and must not use it.
    owner: u32,
    socket: OwnedFd,
    /// The messages of one launch follow each other.
    sends: Mutex<()>,
    parcels: Mutex<Vec<Memory>>,
    /// The number of the next parcel.
    next: AtomicU32,
    free: Mutex<Vec<u32>>,
}

/// A parcel's memory.
struct Memory {
    base: NonNull<u8>,
    length: usize,
    id: u32,
}

// SAFETY: plain memory, which its holder alone uses, but for what the child writes by atomics.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// A parcel in use.
pub(crate) struct Lease {
    memory: Option<Memory>,
    link: Arc<Link>,
}

impl Lender for Lease {
    fn length(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.length)
    }

    fn error(&self, stack: &Stack, plan: &Plan, status: Option<ExitStatus>) -> Option<Error> {
        super::launch::late_function_error(stack, plan, status)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.link.give_back(memory);
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is whole at every moment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Helper {
    pub(super) fn start(options: &ZygoteOptions) -> io::Result<Self> {
        let _low = low_numbers()?;
        let kind = SocketType::SEQPACKET;
        let (socket, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        let mut command = match &options.source {
            Source::Own => Command::new("/proc/self/exe"),
            Source::Program(program) => Command::new(program),
        };
        command.arg0("forkless-zygote").args(&options.args).env(ASKED, "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).fd(theirs, SOCKET);
        // It is cloned by a thread that lives as long as the process, and ends with that.
        command.parent_death_signal(SIGKILL).pidfd(true);
        for signal in (1..=64).filter(|signal| ![9, 19].contains(signal)) {
            command.signal_block(signal).signal_default(signal);
        }
        let mut child = command.spawn()?;
        drop(command);
        if let Err(error) = greet(&socket, &mut child, options) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        let pid = child.id() as i32;
        let link = Link {
            owner: process::generation(),
            socket,
            sends: Mutex::new(()),
            parcels: Mutex::new(Vec::new()),
            next: AtomicU32::new(0),
            free: Mutex::new(Vec::new()),
        };
        Ok(Self {
            identity: Identity::of(pid)?,
            namespaces: Files::of(pid)?.namespaces(pid).map_err(io::Error::from_raw_os_error)?,
            files: Files::of(sys::getpid())?,
            link: Arc::new(link),
            pid,
            child: Mutex::new(child),
            kept: AtomicU32::new(0),
        })
    }

    /// How it ended, if it has.
    pub(crate) fn end(&self) -> Option<String> {
        match lock(&self.child).try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.to_string()),
            // Reaped by another part of the program.
            Err(_) => Some("gone".into()),
        }
    }

    /// A helper that is stopped would keep its callers: it is continued, as a stopped child of ours is.
    pub(crate) fn keep_going(&self) {
        let child = lock(&self.child);
        if is_stopped(self.pid) {
            if let Some(pidfd) = child.pidfd() {
                let _ = sys::pidfd_send_signal(pidfd.as_raw_fd(), SIGCONT);
            }
        }
    }

    /// Keeps it on the caller's processor, where that has `few`; says whether its children have to be put back.
    pub(crate) fn keep_near(&self, few: bool) -> bool {
        let kept = self.kept.load(Ordering::Relaxed);
        match processor::own().filter(|cpu| few && cpu + 1 != kept) {
            Some(cpu) if processor::keep(self.pid, cpu) => {
                self.kept.store(cpu + 1, Ordering::Relaxed);
                true
            }
            _ => kept != 0,
        }
    }

    /// Sends a launch: the descriptors, and then the word.
    pub(crate) fn send(&self, id: u32, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let _in_turn = lock(&self.link.sends);
        let mut rest = fds;
        // Each message says how many came before it: with none a launch begins, whatever became of the one before.
        let before = |rest: &[BorrowedFd<'_>]| (fds.len() - rest.len()) as u64;
        while rest.len() > AT_ONCE {
            let (now, later) = rest.split_at(AT_ONCE);
            self.push(&Message::new(Kind::Descriptors, id, before(rest)), now)?;
            rest = later;
        }
        self.push(&Message::new(Kind::Launch, id, before(rest)), rest)
    }

    /// Waits for room in the socket for as long as the helper is there.
    fn push(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        loop {
            match message.send(&self.link.socket, fds) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let limit = Timespec::try_from(PATIENCE).ok();
                    let _ = poll(&mut [PollFd::new(&self.link.socket, PollFlags::OUT)], limit.as_ref());
                    if self.end().is_some() {
                        return Err(Errno::PIPE);
                    }
                    self.keep_going();
                }
                answer => return answer,
            }
        }
    }

    /// A parcel with room for so long an arena, as a stack; and its number.
    pub(crate) fn parcel(&self, arena: usize) -> Result<(Stack, NonNull<u8>, u32), Errno> {
        let memory = match self.link.take(arena) {
            Some(memory) => memory,
            None => self.map((ARENA_AT + arena).max(USUAL).next_multiple_of(64 * 1024))?,
        };
        let (base, id) = (memory.base, memory.id);
        let lease = Lease { memory: Some(memory), link: Arc::clone(&self.link) };
        // SAFETY: the lease has the mapping, whose last child has left it.
        Ok((unsafe { Stack::lent(base, Box::new(lease)) }, base, id))
    }

    fn map(&self, length: usize) -> Result<Memory, Errno> {
        let file = memfd_create("forkless-parcel", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, length as u64)?;
        // SAFETY: a new mapping where the kernel likes.
        let base = unsafe { mmap(null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0) }?;
        let Some(base) = NonNull::new(base.cast::<u8>()) else { return Err(Errno::NOMEM) };
        let id = lock(&self.link.free).pop().unwrap_or_else(|| self.link.next.fetch_add(1, Ordering::Relaxed));
        let memory = Memory { base, length, id };
        let _in_turn = lock(&self.link.sends);
        match self.push(&Message::new(Kind::Map, id, length as u64), &[file.as_fd()]) {
            Ok(()) => Ok(memory),
            Err(error) => {
                memory.unmap();
                Err(error)
            }
        }
    }
}

/// Ends it and waits for that, when no launch needs it any more. It keeps nothing that would have to be put in order;
/// children that it has made go on.
impl Drop for Helper {
    fn drop(&mut self) {
        if self.link.owner == process::generation() || planted!("zygote-ended-by-a-copy") {
            let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
            // Who has become somebody else since may not kill it; but it ends by itself, unless it is stopped.
            let _ = shutdown(&self.link.socket, Shutdown::Both);
            let _ = child.kill();
            let _ = child.wait_timeout(END);
        }
    }
}

impl Memory {
    fn parcel(&self) -> &Parcel {
        // SAFETY: it lies in the mapping, and all bytes, zeroes too, are a valid one.
        unsafe { self.base.byte_add(PARCEL_AT).cast().as_ref() }
    }

    fn has_left(&self) -> bool {
        self.parcel().sent.frame.state() == LEFT
    }

    fn unmap(self) {
        // SAFETY: the whole mapping, which nobody refers to any more. A child that still runs on it does so in the
        // helper's.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}

impl Link {
    fn take(&self, arena: usize) -> Option<Memory> {
        let mut parcels = lock(&self.parcels);
        let fits = |memory: &Memory| memory.length >= ARENA_AT + arena && memory.has_left();
        // The last one is the warmest.
        let at = parcels.iter().rposition(fits)?;
        Some(parcels.swap_remove(at))
    }

    fn give_back(&self, memory: Memory) {
        if self.owner != process::generation() {
            // In a forked copy the locks may be held for ever.
            return memory.unmap();
        }
        let left = memory.has_left();
        let mut parcels = lock(&self.parcels);
        if !left || memory.length == USUAL.next_multiple_of(64 * 1024) && parcels.len() < KEPT {
            parcels.push(memory);
            return;
        }
        drop(parcels);
        // Where there is no room for the message the mapping is kept for the next time.
        let _in_turn = lock(&self.sends);
        match Message::new(Kind::Forget, memory.id, 0).send(&self.socket, &[]) {
            Ok(()) => {
                lock(&self.free).push(memory.id);
                memory.unmap();
            }
            Err(Errno::AGAIN) => lock(&self.parcels).push(memory),
            Err(_) => memory.unmap(),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let parcels = std::mem::take(&mut *self.parcels.get_mut().unwrap_or_else(PoisonError::into_inner));
        parcels.into_iter().for_each(Memory::unmap);
    }
}

/// Every number below 3 that is free: what is kept here is not to be taken for a standard stream that is closed.
fn low_numbers() -> io::Result<Vec<OwnedFd>> {
    let mut taken = Vec::new();
    loop {
        let fd = rustix::fs::open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        if fd.as_raw_fd() > 2 {
            return Ok(taken);
        }
        taken.push(fd);
    }
}

/// Waits for the helper's first word.
fn greet(socket: &OwnedFd, child: &mut Child, options: &ZygoteOptions) -> io::Result<()> {
    let deadline = Instant::now() + START;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], limit.as_ref()) {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(0) => {
                let why = format!("the zygote's helper was not ready within {} seconds", START.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            Ok(_) => break,
        }
    }
    let who = match &options.source {
        Source::Own => "this program".to_owned(),
        Source::Program(program) => format!("{program:?}"),
    };
    match Message::receive(socket, drop) {
        Ok(Some((message, _))) => match (message.kind(), message.value) {
            (Some(Kind::Hello), 0) => Ok(()),
            (Some(Kind::Hello), refusal::PRIVILEGED) => {
                let why = "gains privileges when it is executed (setuid, capabilities), so it refuses to be a zygote's helper";
                Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{who} {why}")))
            }
            _ => Err(io::Error::other(format!(
                "{who} cannot be the helper of this zygote: it uses another version of forkless"
            ))),
        },
        Ok(None) | Err(_) => {
            let end = child.wait().map(|status| status.to_string()).unwrap_or_else(|error| error.to_string());
            Err(io::Error::other(format!("{who} ended before it was ready as a zygote's helper: {end}")))
        }
    }
}
