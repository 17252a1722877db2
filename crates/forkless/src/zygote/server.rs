//! The helper: a process with one thread that waits for parcels and clones children for the caller, its parent.
//!
//! After a launch it keeps only the parcel's mapping. It closes the received descriptors as soon as the child has its
//! copies, and reports errors in the parcel. It ends when the caller has closed the socket or has ended.

use super::message::{
    MAX_PATCHES, Message, MessageKind, Order, OverSocket, PARCEL_AT, Parcel, WORDS, failure, refusal,
};
use super::parcel;
use super::registry::{Registry, read_calls};
use crate::kernel::{self, Prctl};
use crate::launch::clone::{CloneArgs, clone};
use crate::launch::dumpable::has_sibling_left;
use crate::launch::probe::is_refusal;
use crate::launch::stack::{GUARD, Lender, Stack};
use crate::procfs::OWN_PIDS;
use crate::sync;
use forkless_core::attributes::{mark_differences, observe};
use forkless_core::child::play_with;
use forkless_core::frame::LEFT;
use forkless_core::sender::{Owner, Received, receive};
use forkless_core::sys::{self, errno, prctl, uapi};
use forkless_core::zygote_child::{Adopt, adopt, play_sent};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};
use std::ffi::c_ulong;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

/// The environment variable that makes a program serve as a zygote's helper.
pub(super) const ASKED: &str = "FORKLESS_ZYGOTE";

/// The descriptor number of the helper's socket.
pub(super) const SOCKET: RawFd = 3;

/// Whether this process has called [`serve_if_asked`].
static HAS_ASKED: AtomicBool = AtomicBool::new(false);

pub(super) fn has_asked() -> bool {
    HAS_ASKED.load(Ordering::Relaxed)
}

/// Serves as a [`Zygote`](super::Zygote)'s helper if this process was started as one, and then never returns.
/// Otherwise it returns at once.
///
/// Call it first in `main`, before threads are started and files are opened.
///
/// If another process runs the program with the environment variable of a helper, the program serves only its own parent,
/// over a socket that this parent has made. It does not serve if its exec gave it privileges (setuid, file capabilities).
///
/// ```no_run
/// use forkless::zygote::{Registry, serve_if_asked};
/// let mut functions = Registry::new();
/// functions.add("greet", |name| std::fs::write("/tmp/greeting", name));
/// serve_if_asked(&functions);
/// // From here on: the program.
/// ```
pub fn serve_if_asked(functions: &Registry) {
    if std::env::var_os(ASKED).is_some() {
        if let Some(socket) = parents_socket() {
            Server::new(socket, functions).serve();
        }
    }
    HAS_ASKED.store(true, Ordering::Relaxed);
}

/// The socket of a helper, if this process is one.
fn parents_socket() -> Option<OwnedFd> {
    use rustix::net::{SocketType, sockopt};
    // SAFETY: the descriptor is only examined, unless it is a helper's socket.
    let socket = unsafe { std::os::fd::BorrowedFd::borrow_raw(SOCKET) };
    // If the parent is outside of this PID namespace, both are 0.
    let is_parents = kernel::peer(socket) == Ok(sys::getppid());
    if !is_parents || sockopt::socket_type(socket) != Ok(SocketType::SEQPACKET) {
        return None;
    }
    // SAFETY: the parent has passed it for this purpose, and no other code of this process uses it.
    Some(unsafe { OwnedFd::from_raw_fd(SOCKET) })
}

/// Whether exec has given this process privileges, which its parent may not have: `getauxval(3)` AT_SECURE.
fn is_privileged() -> bool {
    unsafe extern "C" {
        fn getauxval(kind: c_ulong) -> c_ulong;
    }
    const AT_SECURE: c_ulong = 23;
    // SAFETY: any argument is valid, and the function only returns a number.
    unsafe { getauxval(AT_SECURE) != 0 }
}

/// A parcel of the caller, mapped in this process.
struct Mapped {
    memory: NonNull<u8>,
    length: usize,
}

/// The lender of a stack whose memory the server owns, so dropping it returns nothing.
struct Served;

impl Lender for Served {}

struct Server<'a> {
    socket: OwnedFd,
    functions: &'a Registry,
    owner: Owner,
    parcels: Vec<Option<Mapped>>,
    /// The descriptors received so far for the next launch.
    descriptors: Vec<RawFd>,
    lost_some: bool,
    /// The attributes that a child of this process inherits from it.
    own: Box<Adopt>,
    has_clone3: bool,
    /// Whether this process was dumpable at its start: it is not if its user may not read the program.
    is_dumpable: bool,
    /// The address at which libc stores the thread's ID; 0: not known.
    thread_number: u64,
}

impl<'a> Server<'a> {
    fn new(socket: OwnedFd, functions: &'a Registry) -> Self {
        // SAFETY: Adopt consists of numbers, so all zeroes are valid.
        let own: Box<Adopt> = unsafe { Box::new(std::mem::zeroed()) };
        Self {
            socket,
            functions,
            owner: Owner::NOBODY,
            parcels: Vec::with_capacity(16),
            descriptors: Vec::with_capacity(MAX_PATCHES),
            lost_some: false,
            own,
            has_clone3: true,
            is_dumpable: kernel::prctl(Prctl::Dumpable, 0) == Ok(1),
            thread_number: 0,
        }
    }

    fn serve(mut self) -> ! {
        if is_privileged() {
            let _ = Message::new(MessageKind::Hello, 0, refusal::PRIVILEGED).send(&self.socket, &[]);
            sys::exit(1);
        }
        match Owner::of(self.socket.as_raw_fd()) {
            Some(owner) => self.owner = owner,
            // A filter refuses SO_PASSCRED, with which each message names its sender.
            None => sys::exit(1),
        }
        self.settle_down();
        if Message::new(MessageKind::Hello, 0, 0).send(&self.socket, &[]).is_err() {
            sys::exit(1);
        }
        loop {
            let before = self.descriptors.len();
            let descriptors = &mut self.descriptors;
            let answer = receive(self.socket.as_raw_fd(), |fd| descriptors.push(fd));
            match answer {
                Ok(Some(Received { message, lost_some, sender })) => {
                    if message.message_kind() == Some(MessageKind::Launch) && !self.owner.has_sent(sender) {
                        // Another process, or the caller has given up rights that this process still has.
                        sys::exit(5);
                    }
                    let came = self.descriptors.len() - before;
                    if message.value == 0 && before > 0 {
                        // Left over from a launch whose sender failed half-way.
                        self.close_first(before);
                        self.lost_some = false;
                    }
                    self.lost_some |= lost_some;
                    self.take(&message, came);
                }
                Err(errno::EINTR) => {}
                // The parent has ended, or has closed the socket.
                Ok(None) | Err(_) => sys::exit(0),
            }
        }
    }

    /// Prepares this process, so that children inherit nothing unwanted: signals are blocked and not ignored, the
    /// working directory keeps no file system busy, and the standard streams are placeholders that no program gets.
    fn settle_down(&mut self) {
        // The caller gets the message of a function's panic as an error, so none is printed here.
        std::panic::set_hook(Box::new(|_| {}));
        // SAFETY: this process only serves, so it needs no signal handler, and no other code uses descriptors 0 to 2.
        unsafe {
            let _ = sys::set_signal_mask(!0);
            let _ = forkless_core::signals::set_default(None, !(1 << 8 | 1 << 18));
            if let Ok(null) = sys::open(c"/dev/null".as_ptr().cast(), uapi::O_RDWR | uapi::O_CLOEXEC, 0) {
                for number in 0..3 {
                    let _ = sys::dup3(null, number, uapi::O_CLOEXEC);
                }
                if null > 2 {
                    let _ = sys::close(null);
                }
            }
            let _ = sys::fcntl(self.socket.as_raw_fd(), uapi::F_SETFD, uapi::FD_CLOEXEC as usize);
            let _ = sys::syscall(uapi::__NR_chdir, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]);
            let _ = sys::syscall(
                uapi::__NR_prctl,
                [prctl::PR_SET_NAME as usize, c"forkless-zygote".as_ptr() as usize, 0, 0, 0, 0],
            );
            let _ = sys::syscall(
                uapi::__NR_prctl,
                [prctl::PR_GET_TID_ADDRESS as usize, &raw mut self.thread_number as usize, 0, 0, 0, 0],
            );
        }
        // A launch may need many descriptors. Children take on their caller's limit.
        if let Ok([_, most]) = sys::getrlimit(uapi::RLIMIT_NOFILE) {
            let _ = sys::setrlimit(uapi::RLIMIT_NOFILE, &[most, most]);
        }
        observe(&mut self.own);
    }

    /// Closes the descriptors received for a launch: the child has its copies.
    fn close_first(&mut self, count: usize) {
        for fd in self.descriptors.drain(..count) {
            // SAFETY: it came with a message, and no other code of this process uses it.
            let _ = unsafe { sys::close(fd) };
        }
    }

    /// `came`: the number of descriptors that came with the message.
    fn take(&mut self, message: &Message, came: usize) {
        let id = message.parcel as usize;
        match message.message_kind() {
            Some(MessageKind::Map) => {
                // At the limit of descriptors it was lost, and the last one is a file of an unfinished launch.
                let memory = if came == 1 { self.descriptors.pop() } else { None };
                if id >= parcel::MOST {
                    sys::exit(3);
                }
                let mapped = memory.and_then(|fd| {
                    // SAFETY: it came with this message.
                    map(unsafe { OwnedFd::from_raw_fd(fd) }, message.value as usize)
                });
                if self.parcels.len() <= id {
                    self.parcels.resize_with(id + 1, || None);
                }
                self.parcels[id] = mapped;
            }
            Some(MessageKind::Descriptors) => {}
            Some(MessageKind::Launch) => {
                match self.parcels.get(id).and_then(Option::as_ref).map(|parcel| (parcel.memory, parcel.length)) {
                    Some((memory, length)) => self.launch(memory, length),
                    // A parcel that cannot be mapped: this process ends, which the owner notices.
                    None => sys::exit(2),
                }
                self.close_first(self.descriptors.len());
                self.lost_some = false;
            }
            Some(MessageKind::Forget) => {
                if let Some(parcel) = self.parcels.get_mut(id).and_then(Option::take) {
                    // SAFETY: a whole mapping. The owner sends this message when the child has left it.
                    let _ = unsafe { munmap(parcel.memory.as_ptr().cast(), parcel.length) };
                }
            }
            // A message of another version: its sender would not understand a reply.
            Some(MessageKind::Hello) | None => sys::exit(3),
        }
    }

    fn launch(&mut self, memory: NonNull<u8>, length: usize) {
        let parcel = memory.as_ptr().wrapping_byte_add(PARCEL_AT).cast::<Parcel>();
        // Without an error nothing more is written: the owner may already use the parcel for the next launch.
        if let Err((why, error)) = self.try_launch(memory, length, parcel) {
            // SAFETY: a mapped parcel without a child. Its owner waits for the futex word, and reads only atomics.
            let Parcel { sent, order } = unsafe { &*parcel };
            order.errno.store(error, Ordering::Relaxed);
            order.failure.store(why, Ordering::Relaxed);
            sent.frame.word.store(LEFT, Ordering::Release);
            sync::futex_wake(&sent.frame.word);
        }
    }

    /// Until the child exists, the parcel's owner reads only its atomics, and this process may use the rest: first it
    /// writes, through references to single fields, and then it only reads.
    fn try_launch(&mut self, memory: NonNull<u8>, length: usize, parcel: *mut Parcel) -> Result<(), (u32, i32)> {
        self.patch(memory, length)?;
        // SAFETY: a mapped parcel, and no other code uses this part of it now.
        let (adopt, kept) = unsafe { (&mut (*parcel).sent.adopt, (*parcel).order.kept != 0) };
        mark_differences(&mut self.own, adopt, kept);
        // SAFETY: from here on only atomics are written.
        let parcel = unsafe { &*parcel };
        self.play(memory, length, parcel)
    }

    /// Stores the numbers of the received descriptors in the parcel.
    fn patch(&self, memory: NonNull<u8>, length: usize) -> Result<(), (u32, i32)> {
        // SAFETY: as for `try_launch`.
        let is_whole = unsafe { parcel::patch(memory, length, &self.descriptors) };
        let is_whole = is_whole && !self.lost_some;
        if is_whole { Ok(()) } else { Err((failure::DESCRIPTORS, errno::EMFILE)) }
    }

    /// Clones the child, which plays the plan.
    fn play(&mut self, memory: NonNull<u8>, length: usize, parcel: &Parcel) -> Result<(), (u32, i32)> {
        let Parcel { sent, order } = parcel;
        // SAFETY: the arena is in the parcel. It is a copy of the plan, and no child plays it yet.
        let Some(arena) = (unsafe { parcel::arena(memory, length) }) else {
            return Err((failure::PLAN, errno::EINVAL));
        };
        order.old_clone.store(!self.has_clone3 as u32, Ordering::Relaxed);
        sent.frame.plan.store(arena.as_ptr().cast(), Ordering::Relaxed);
        if order.calls != 0 {
            // SAFETY: the list is the owner's, and the owner waits.
            let Some(list) = (unsafe { parcel::calls(memory, length, order) }) else {
                return Err((failure::PLAN, errno::EINVAL));
            };
            if let Some(unknown) = read_calls(list).position(|(name, _)| self.functions.get(name).is_none()) {
                return Err((failure::FUNCTION, unknown as i32));
            }
            return self.in_pid_namespace(order.pid_namespace, |server| server.fork(parcel, list));
        }
        self.in_pid_namespace(order.pid_namespace, |server| server.clone(memory, order))
    }

    /// Joins the PID namespace for the next child: `setns(2)` applies to the children of the calling thread.
    fn in_pid_namespace(
        &mut self,
        namespace: i32,
        work: impl FnOnce(&mut Self) -> Result<(), (u32, i32)>,
    ) -> Result<(), (u32, i32)> {
        if namespace < 0 {
            return work(self);
        }
        let failed = |errno| (failure::JOIN, errno);
        let own = rustix::fs::open(OWN_PIDS, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let own = own.map_err(|error| failed(error.raw_os_error()))?;
        kernel::join_pid_namespace(namespace).map_err(failed)?;
        let answer = work(self);
        if kernel::join_pid_namespace(own.as_raw_fd()).is_err() {
            // Otherwise later children would be created in the wrong namespace.
            sys::exit(4);
        }
        answer
    }

    /// Clones a child that shares this process's memory until exec, like other children of this library.
    fn clone(&mut self, memory: NonNull<u8>, order: &Order) -> Result<(), (u32, i32)> {
        // Read now: when the child exists, the parcel may belong to another launch.
        let vfork = order.vfork != 0;
        loop {
            // SAFETY: the parcel's own stack. No child uses it: the owner sends only free parcels.
            let mut stack = unsafe { Stack::lent(memory, Box::new(Served)) };
            let plain = CloneArgs::plain();
            let how = CloneArgs {
                clone3: self.has_clone3,
                namespaces: order.namespaces,
                cgroup: order.cgroup,
                vfork: plain.vfork || vfork,
                tells_pid: true,
                for_parent: true,
                ..plain
            };
            // SAFETY: `play_sent` obeys the rules for children. The parcel stays mapped until its owner reports that
            // the child has left.
            match unsafe { clone(&mut stack, how, play_sent) } {
                Ok(cloned) => {
                    // A child that has changed its IDs has made this process's memory non-dumpable. If it cannot be
                    // determined that the child has given the memory up, it stays so: then the caller starts another
                    // helper, if it has to inspect this one.
                    let is_closed = vfork && self.is_dumpable && kernel::prctl(Prctl::Dumpable, 0) != Ok(1);
                    if is_closed && has_sibling_left(cloned.pid) {
                        let _ = kernel::prctl(Prctl::SetDumpable, 1);
                    }
                    return Ok(());
                }
                Err(error) if self.has_clone3 && order.namespaces == 0 && order.cgroup < 0 && is_refusal(error) => {
                    self.has_clone3 = false;
                    order.old_clone.store(1, Ordering::Relaxed);
                }
                Err(error) => return Err((failure::CLONE, error)),
            }
        }
    }

    /// Clones a child with its own memory, in which functions may run.
    fn fork(&mut self, parcel: &Parcel, list: &[u8]) -> Result<(), (u32, i32)> {
        let Parcel { sent, order } = parcel;
        let mut flags = (uapi::CLONE_PARENT | uapi::CLONE_PARENT_SETTID) as u64 | order.namespaces;
        if self.thread_number != 0 {
            flags |= (uapi::CLONE_CHILD_SETTID | uapi::CLONE_CHILD_CLEARTID) as u64;
        }
        // SAFETY: all zeroes are valid arguments.
        let mut args: uapi::clone_args = unsafe { std::mem::zeroed() };
        args.flags = flags | if order.cgroup >= 0 { uapi::CLONE_INTO_CGROUP } else { 0 };
        args.cgroup = order.cgroup.max(0) as u64;
        args.parent_tid = sent.frame.pid.as_ptr() as u64;
        args.child_tid = self.thread_number;
        let size = if order.cgroup >= 0 { size_of::<uapi::clone_args>() } else { 64 };
        let by_clone3 = || {
            // SAFETY: without CLONE_VM the child has a copy of all memory, including this stack, and this process has
            // one thread.
            unsafe { sys::syscall(uapi::__NR_clone3, [&raw const args as usize, size, 0, 0, 0, 0]) }
        };
        let by_clone = || {
            let (told, thread) = (args.parent_tid as usize, args.child_tid as usize);
            // The order of the last two arguments depends on the architecture.
            let last = if cfg!(target_arch = "x86_64") { [thread, 0] } else { [0, thread] };
            // SAFETY: as above.
            unsafe { sys::syscall(uapi::__NR_clone, [flags as usize, 0, told, last[0], last[1], 0]) }
        };
        let answer = match by_clone3() {
            Err(error) if order.cgroup < 0 && order.namespaces == 0 && is_refusal(error) => {
                self.has_clone3 = false;
                order.old_clone.store(1, Ordering::Relaxed);
                by_clone()
            }
            answer => answer,
        };
        match answer {
            Ok(0) => {
                // SAFETY: this is the child.
                unsafe { self.run(parcel, list) }
            }
            Ok(_) => Ok(()),
            Err(error) => Err((failure::CLONE, error)),
        }
    }

    /// The child with its own memory: takes on the caller's attributes, and plays the plan with the functions.
    unsafe fn run(&self, parcel: &Parcel, list: &[u8]) -> ! {
        let Parcel { sent, order } = parcel;
        // SAFETY: this is the child.
        unsafe {
            adopt(sent);
            play_with(&sent.frame, || self.call(order, list))
        }
    }

    fn call(&self, order: &Order, list: &[u8]) -> sys::Result<()> {
        for (n, (name, bytes)) in (1..).zip(read_calls(list)) {
            let Some(function) = self.functions.get(name) else { return Err(errno::ENOSYS) };
            order.function.store(n, Ordering::Relaxed);
            let words = match catch_unwind(AssertUnwindSafe(|| function(bytes))) {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(panic) => {
                    let text = panic.downcast_ref::<&str>().copied();
                    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
                    format!("it panicked: {}", text.unwrap_or("no message"))
                }
            };
            let words = if words.is_empty() { "it failed without a message".into() } else { words };
            let length = words.len().min(WORDS);
            // SAFETY: only the child writes here, and the owner reads it after the child has left.
            unsafe { order.words.get().cast::<u8>().copy_from_nonoverlapping(words.as_ptr(), length) };
            order.said.store(length as u32, Ordering::Release);
            return Err(errno::EINVAL);
        }
        order.function.store(0, Ordering::Release);
        Ok(())
    }
}

fn map(memory: OwnedFd, length: usize) -> Option<Mapped> {
    // An access beyond the end of the file would kill this process with SIGBUS.
    let size = rustix::fs::fstat(&memory).ok()?.st_size;
    if length < parcel::SHORTEST || u64::try_from(size).ok()? < length as u64 {
        return None;
    }
    // SAFETY: a new mapping at an address that the kernel chooses. Its lower part is a guard below the child's stack.
    unsafe {
        let base = mmap(null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &memory, 0).ok()?;
        if mprotect(base, GUARD, MprotectFlags::empty()).is_err() {
            let _ = munmap(base, length);
            return None;
        }
        Some(Mapped { memory: NonNull::new(base.cast())?, length })
    }
}
