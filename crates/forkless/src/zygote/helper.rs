//! The caller's side of one helper: its start, its socket, its parcels, its end.

use super::message::{ARENA_AT, AT_ONCE, Message, MessageKind, OverSocket, PARCEL_AT, Parcel, USUAL, refusal};
use super::server::{ASKED, SOCKET};
use super::{HelperProgram, ZygoteOptions};
use crate::child::Child;
use crate::error::Error;
use crate::identity::inherited::Inherited;
use crate::identity::namespaces::Namespaces;
use crate::identity::{CallersFiles, Files, Identity};
use crate::kept::{FileId, Kept};
use crate::kernel::{self, SIGCONT, SIGKILL};
use crate::launch::processor;
use crate::launch::stack::{Lender, Stack};
use crate::plan::Plan;
use crate::process;
use crate::procfs::{self, OWN_PROGRAM, Process, Status};
use crate::request::command::Command;
use crate::request::stdio::Stdio;
use forkless_core::frame::LEFT;
use forkless_core::sender::{Received, receive};
use forkless_core::sys::{self, errno};
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
use std::thread;
use std::time::{Duration, Instant};

/// Timeout for the start of a helper: the start of its program, and the code before `serve_if_asked`.
const START: Duration = Duration::from_secs(20);

/// Timeout for the end of a helper. If it is stopped and cannot be killed, it is reaped later, like any dropped
/// child.
const END: Duration = Duration::from_secs(2);

/// Interval at which a waiting caller checks whether the helper still runs.
pub(crate) const PATIENCE: Duration = Duration::from_millis(10);

/// How long a helper may be non-dumpable because of a launch, before that is taken for a restriction of the caller.
const CLOSED: Duration = Duration::from_millis(500);

/// The number of parcels that are kept for further launches.
const KEPT: usize = 64;

/// A helper that is ready.
pub(crate) struct Helper {
    pub(crate) link: Arc<Link>,
    pub(crate) pid: i32,
    /// Its attributes that children cannot take on from the caller.
    pub(crate) status: Status,
    pub(crate) identity: Identity,
    /// Its namespaces.
    pub(crate) namespaces: Namespaces,
    /// The caller's inherited attributes when the helper was started.
    pub(crate) inherited: Inherited,
    /// The caller's files in `/proc`.
    pub(crate) files: CallersFiles,
    /// Whether the caller could inspect it at its start.
    is_open: bool,
    child: Mutex<Reaper>,
    /// 1 + the CPU that it is bound to; 0: none.
    kept: AtomicU32,
    /// When a launch was sent that makes its memory non-dumpable for a while.
    closes: Mutex<Option<Instant>>,
    /// A helper that needs longer than this for a launch is killed. `None`: its callers wait.
    pub(crate) limit: Option<Duration>,
}

/// The helper as a child, which this library reaps.
struct Reaper {
    child: Child,
    /// Identifies the pidfd's file. Before Linux 6.9 all pidfds are one file, so another one at the number is not noticed.
    pidfd: Option<FileId>,
}

impl Reaper {
    /// The child, without its pidfd if the caller has closed that: the number may be another file by now.
    fn child(&mut self) -> &mut Child {
        let is_foreign = self.child.pidfd().is_some_and(|pidfd| !FileId::is_of(self.pidfd, &pidfd));
        if is_foreign {
            self.child.forget_pidfd();
        }
        &mut self.child
    }
}

/// Whether the calling thread may inspect a process, as far as `kcmp(2)` shows it. True for one that has ended.
fn can_inspect(pid: i32) -> bool {
    !matches!(kernel::has_shared_memory(pid), Err(errno::EPERM | errno::ENOSYS))
}

/// The part of a helper that launches share. It outlives the helper as long as a handle has a parcel.
pub(crate) struct Link {
    /// The [process](process::generation) that started it. A forked copy has the socket too, but must not use it.
    owner: u32,
    socket: Kept<OwnedFd>,
    /// Lock for sending: the messages of one launch must not mix with others.
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

// SAFETY: plain memory. Only its owner uses it, except for what the child writes by atomics.
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

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data behind these locks is consistent at every moment, also after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Helper {
    pub(super) fn start(options: &ZygoteOptions) -> io::Result<Self> {
        let mut command = match &options.source {
            HelperProgram::Own => Command::new(OWN_PROGRAM),
            HelperProgram::Program(program) => Command::new(program),
        };
        command.arg0("forkless-zygote").args(&options.args).env(ASKED, "1");
        // A thread that outlives the helper clones it, so the signal comes when this process ends.
        command.parent_death_signal(SIGKILL);
        Self::start_by(command, |socket, child| greet(socket, child, options))
    }

    /// Starts a program that clones for this process. The command says when the kernel kills it. `greet` waits until it is
    /// ready.
    pub(crate) fn start_by(
        mut command: Command,
        greet: impl FnOnce(&OwnedFd, &mut Child) -> io::Result<()>,
    ) -> io::Result<Self> {
        let _low = low_numbers()?;
        let kind = SocketType::SEQPACKET;
        let (socket, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).fd(theirs, SOCKET);
        command.pidfd(true);
        for signal in (1..=64).filter(|signal| ![9, 19].contains(signal)) {
            command.signal_block(signal).signal_default(signal);
        }
        // Before the clone: if attributes change meanwhile, the first launch finds that they differ.
        let files = CallersFiles::open().map_err(procfs::explain)?;
        let inherited = files.inherited(&files.status()?, None);
        let mut child = command.spawn()?;
        drop(command);
        let pid = child.id() as i32;
        let looked = greet(&socket, &mut child).and_then(|()| {
            let process = Process::open(pid)?;
            let files = Files::of(pid, &process)?;
            let namespaces = files.namespaces(pid)?;
            let status = Status::of_file(&process.file("status", OFlags::RDONLY)?)?;
            Ok((status, Identity::of(pid, &process, &files)?, namespaces))
        });
        let (status, identity, namespaces) = match looked {
            Ok(found) => found,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(procfs::explain(error));
            }
        };
        let link = Link {
            owner: process::generation(),
            socket: Kept::new(socket),
            sends: Mutex::new(()),
            parcels: Mutex::new(Vec::new()),
            next: AtomicU32::new(0),
            free: Mutex::new(Vec::new()),
        };
        Ok(Self {
            status,
            identity,
            namespaces,
            inherited,
            files,
            is_open: can_inspect(pid),
            link: Arc::new(link),
            pid,
            child: Mutex::new(Reaper { pidfd: child.pidfd().and_then(|pidfd| FileId::of(&pidfd)), child }),
            kept: AtomicU32::new(0),
            closes: Mutex::new(None),
            limit: None,
        })
    }

    /// Whether the caller could inspect it at its start, so that [`is_closed_now`](Self::is_closed_now) shows a change.
    #[cfg(all(feature = "warm", target_arch = "x86_64", target_env = "gnu"))]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether the caller may no longer inspect it. A thread that has put itself under Landlock since then may not: a domain
    /// restricts ptrace(2) of processes outside of it (landlock(7)).
    ///
    /// Nor may a caller without CAP_SYS_PTRACE while the helper is non-dumpable, because a child of another launch changes
    /// its IDs. That is over in a moment, so it is waited for.
    pub(crate) fn is_closed_now(&self) -> bool {
        let is_closed = || self.is_open && !can_inspect(self.pid);
        let asked = Instant::now();
        while is_closed() {
            let closes = lock(&self.closes).is_some_and(|sent| sent.elapsed() < CLOSED);
            if !closes || asked.elapsed() >= CLOSED {
                return true;
            }
            thread::sleep(Duration::from_micros(100));
        }
        false
    }

    /// Notes that a launch is sent whose child changes its IDs.
    pub(super) fn note_change_of_ids(&self) {
        *lock(&self.closes) = Some(Instant::now());
    }

    /// How it has ended. `None` while it runs.
    pub(crate) fn end(&self) -> Option<String> {
        match lock(&self.child).child().try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.to_string()),
            // Reaped by another part of the program.
            Err(_) => Some("gone".into()),
        }
    }

    /// For a caller that has waited since `asked`: how the helper has ended, or why it counts as ended. If the helper is
    /// stopped, it is continued. If its limit has passed, it is killed: a debugger may have stopped it.
    pub(crate) fn end_or_go_on(&self, asked: Instant) -> Option<String> {
        let end = self.end();
        if end.is_some() {
            return end;
        }
        let time = asked.elapsed();
        match self.limit.filter(|&limit| time >= limit) {
            None => {
                self.go_on();
                None
            }
            Some(limit) => {
                self.signal(SIGKILL);
                // It runs no more code, even if it ends only later, as in a frozen cgroup.
                (time >= limit + END).then(|| "it does not respond".into())
            }
        }
    }

    /// Continues the helper if it is stopped. Does not check first, because the stop may have been reported to other code of
    /// this process. The helper blocks SIGCONT, so the signal has no other effect.
    pub(crate) fn go_on(&self) {
        self.signal(SIGCONT);
    }

    /// Whether it has not been reaped. True if it has no pidfd.
    fn exists(&self) -> bool {
        lock(&self.child).child().pidfd().is_none_or(|pidfd| sys::pidfd_send_signal(pidfd.as_raw_fd(), 0).is_ok())
    }

    fn signal(&self, signal: i32) {
        if let Some(pidfd) = lock(&self.child).child().pidfd() {
            // Fails only if it has ended, or the caller may no longer signal it.
            let _ = sys::pidfd_send_signal(pidfd.as_raw_fd(), signal);
        }
    }

    /// Binds the helper to the caller's CPU if the caller has `few` CPUs. Returns whether the helper is bound, so
    /// that its children must reset their CPU affinity.
    pub(crate) fn keep_near(&self, few: bool) -> bool {
        let kept = self.kept.load(Ordering::Relaxed);
        match processor::own().filter(|cpu| few && cpu + 1 != kept) {
            // Other code of this process may have reaped it, and its PID be another's.
            Some(cpu) if self.exists() && processor::keep(self.pid, cpu) => {
                self.kept.store(cpu + 1, Ordering::Relaxed);
                true
            }
            _ => self.is_kept_near(),
        }
    }

    /// Whether it was bound to the caller's CPU.
    pub(super) fn is_kept_near(&self) -> bool {
        self.kept.load(Ordering::Relaxed) != 0
    }

    /// Sends a launch: the descriptors, and then the request.
    pub(crate) fn send(&self, id: u32, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let _in_turn = lock(&self.link.sends);
        let mut rest = fds;
        // Each message has the number of descriptors sent before it. 0 starts a new launch, even if the one before
        // was not complete.
        let before = |rest: &[BorrowedFd<'_>]| (fds.len() - rest.len()) as u64;
        while rest.len() > AT_ONCE {
            let (now, later) = rest.split_at(AT_ONCE);
            self.push(&Message::new(MessageKind::Descriptors, id, before(rest)), now)?;
            rest = later;
        }
        self.push(&Message::new(MessageKind::Launch, id, before(rest)), rest)
    }

    /// Sends one message. Waits for room in the socket as long as the helper runs.
    fn push(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let asked = Instant::now();
        loop {
            match message.send(self.link.socket()?, fds) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let limit = Timespec::try_from(PATIENCE).ok();
                    let _ = poll(&mut [PollFd::new(self.link.socket()?, PollFlags::OUT)], limit.as_ref());
                    if self.end_or_go_on(asked).is_some() {
                        return Err(Errno::PIPE);
                    }
                }
                // Too many descriptors of this user are in flight, in other sockets, too: unix(7).
                Err(Errno::TOOMANYREFS) if asked.elapsed() < 100 * PATIENCE => sys::pause(Duration::from_millis(1)),
                answer => return answer,
            }
        }
    }

    /// A parcel with room for an arena of this length, as a stack, and its number.
    pub(crate) fn parcel(&self, arena: usize) -> Result<(Stack, NonNull<u8>, u32), Errno> {
        let memory = match self.link.take(arena) {
            Some(memory) => memory,
            None => self.map((ARENA_AT + arena).max(USUAL).next_multiple_of(64 * 1024))?,
        };
        let (base, id) = (memory.base, memory.id);
        let lease = Lease { memory: Some(memory), link: Arc::clone(&self.link) };
        // SAFETY: the lease owns the mapping, and its last child has left it.
        Ok((unsafe { Stack::lent(base, Box::new(lease)) }, base, id))
    }

    /// Whether so many children use a parcel, or have not been seen to leave it, that further ones should be waited for.
    #[cfg(all(feature = "warm", target_arch = "x86_64", target_env = "gnu"))]
    pub(crate) fn has_many_children(&self) -> bool {
        // Each lease counts. A template has 256 parcels.
        Arc::strong_count(&self.link) > 64
    }

    fn map(&self, length: usize) -> Result<Memory, Errno> {
        let file = memfd_create("forkless-parcel", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, length as u64)?;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap(null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0) }?;
        let Some(base) = NonNull::new(base.cast::<u8>()) else { return Err(Errno::NOMEM) };
        let id = lock(&self.link.free).pop().unwrap_or_else(|| self.link.next.fetch_add(1, Ordering::Relaxed));
        let memory = Memory { base, length, id };
        let _in_turn = lock(&self.link.sends);
        match self.push(&Message::new(MessageKind::Map, id, length as u64), &[file.as_fd()]) {
            Ok(()) => Ok(memory),
            Err(error) => {
                memory.unmap();
                Err(error)
            }
        }
    }
}

/// Ends the helper and waits for its end, when no launch needs it. SIGKILL is safe: it has no state to save. Its
/// children go on running.
impl Drop for Helper {
    fn drop(&mut self) {
        if self.link.owner == process::generation() {
            let reaper = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
            // A caller that has changed its user since may not kill it. But it ends by itself when the socket is shut
            // down, unless it is stopped.
            if let Ok(socket) = self.link.socket() {
                let _ = shutdown(socket, Shutdown::Both);
            }
            let child = reaper.child();
            let _ = child.kill();
            let _ = child.wait_timeout(END);
        }
    }
}

impl Memory {
    fn parcel(&self) -> &Parcel {
        // SAFETY: it is inside the mapping, and any bytes are a valid Parcel.
        unsafe { self.base.byte_add(PARCEL_AT).cast().as_ref() }
    }

    fn has_left(&self) -> bool {
        self.parcel().sent.frame.state() == LEFT
    }

    fn unmap(self) {
        // SAFETY: the whole mapping, without references to it. A child that still runs on it uses the helper's
        // mapping.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}

impl Link {
    /// Its socket. `ESTALE` if the caller has closed it.
    fn socket(&self) -> Result<&OwnedFd, Errno> {
        self.socket.get().map_err(|_| Errno::STALE)
    }

    fn take(&self, arena: usize) -> Option<Memory> {
        let mut parcels = lock(&self.parcels);
        let fits = |memory: &Memory| memory.length >= ARENA_AT + arena && memory.has_left();
        // The last one is the most likely to be in the CPU's cache.
        let at = parcels.iter().rposition(fits)?;
        Some(parcels.swap_remove(at))
    }

    fn give_back(&self, memory: Memory) {
        if self.owner != process::generation() {
            // In a forked copy the locks may stay locked for ever.
            return memory.unmap();
        }
        let left = memory.has_left();
        let mut parcels = lock(&self.parcels);
        if !left || memory.length == USUAL.next_multiple_of(64 * 1024) && parcels.len() < KEPT {
            parcels.push(memory);
            return;
        }
        drop(parcels);
        // If the socket has no room for the message, the mapping is kept for another launch.
        let _in_turn = lock(&self.sends);
        match self.socket().and_then(|socket| Message::new(MessageKind::Forget, memory.id, 0).send(socket, &[])) {
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

/// Occupies every free number below 3, so that the helper's descriptors are not mistaken for closed standard streams.
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

/// Waits for the helper's first message.
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
        HelperProgram::Own => "this program".to_owned(),
        HelperProgram::Program(program) => format!("{program:?}"),
    };
    match receive(socket.as_raw_fd(), |_| ()) {
        Ok(Some(Received { message, .. })) => match (message.message_kind(), message.value) {
            (Some(MessageKind::Hello), 0) => Ok(()),
            (Some(MessageKind::Hello), refusal::PRIVILEGED) => {
                let why =
                    "gains privileges when it is executed (setuid, capabilities), so it cannot be a zygote's helper";
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
