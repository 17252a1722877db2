//! The template: a loop that receives plans and clones a child for each.
//!
//! It is the counterpart of a zygote's helper (`forkless::zygote`), with the same messages, and ends when the caller has
//! closed the socket or has ended.

use crate::bind::bind_functions;
use crate::pages::Pages;
use crate::program::{Arguments, Program};
use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int};
use core::mem::{MaybeUninit, zeroed};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::fence;
use forkless_core::attributes::{mark_differences, observe};
use forkless_core::child::play_all_but_last;
use forkless_core::frame::LEFT;
use forkless_core::parcel::{self, MAX_PATCHES, Message, MessageKind, PARCEL_AT, Parcel, SHORTEST, failure, refusal};
use forkless_core::sender::{Owner, receive};
use forkless_core::sync;
use forkless_core::sys::{self, errno, prctl, uapi};
use forkless_core::zygote_child::{Adopt, adopt_unannounced, announce, fail};

/// The descriptor number of the template's socket.
const SOCKET: i32 = 3;

/// The number of parcels that can be mapped at one time. A caller that needs more loses this template.
const PARCELS: usize = 256;

/// The offset from which a parcel is mapped: the page of its frame. The guard and the stack below are for a zygote's child.
const START: usize = PARCEL_AT & !4095;

/// A parcel of the caller, mapped in this process; a null address: none. `memory` is where its first byte would be.
#[derive(Clone, Copy)]
struct Mapped {
    memory: *mut u8,
    length: usize,
}

const NOTHING: Mapped = Mapped { memory: null_mut(), length: 0 };

/// The state of a template. It is static memory, because the library has no heap, and a large value on the stack would
/// remain there in each child. The fields that each launch writes to come first: a page that is written to is copied
/// while the child exists.
#[repr(C)]
struct State {
    /// The number of descriptors received for the next launch.
    count: usize,
    lost_some: bool,
    descriptors: [i32; MAX_PATCHES],
    /// The process that may send.
    owner: Owner,
    /// The attributes that a child of this process inherits from it.
    own: MaybeUninit<Adopt>,
    parcels: [Mapped; PARCELS],
    pages: Pages,
}

/// Each value begins a page: a page that both the template and the child write to would be copied for both.
#[repr(align(4096))]
struct OwnPages<T>(UnsafeCell<T>);

// SAFETY: one thread uses it (crate contract).
unsafe impl<T> Sync for OwnPages<T> {}

static STATE: OwnPages<State> = OwnPages(UnsafeCell::new(State {
    count: 0,
    lost_some: false,
    descriptors: [0; MAX_PATCHES],
    owner: Owner::NOBODY,
    own: MaybeUninit::uninit(),
    parcels: [NOTHING; PARCELS],
    pages: Pages::NONE,
}));

/// Nothing writes to it once a template serves.
static PROGRAM: OwnPages<Program> = OwnPages(UnsafeCell::new(Program::EMPTY));

/// Serves, if this process was started as a template; returns in each child with the child's arguments. Otherwise
/// returns the arguments at once. `has_fork_handlers`: those of `pthread_atfork(3)` would have to run in a child.
pub(crate) unsafe fn stop(argc: c_int, argv: *mut *mut c_char, has_fork_handlers: bool) -> Arguments {
    if !is_template() {
        return (argc, argv);
    }
    // SAFETY: the only references to them, in the only thread. A child that returns from here has its own copies.
    let (state, program) = unsafe { (&mut *STATE.0.get(), &mut *PROGRAM.0.get()) };
    let refusal = match has_fork_handlers {
        true => refusal::FORK_HANDLERS,
        // SAFETY: the arguments that the kernel has given this program.
        false => unsafe { state.prepare(program, argc, argv) }.err().unwrap_or(0),
    };
    if !send(&Message::new(MessageKind::Hello, 0, refusal)) || refusal != 0 {
        sys::exit(1);
    }
    state.serve(program)
}

/// Whether descriptor 3 is a socket that this process's parent has made for it.
fn is_template() -> bool {
    const SOL_SOCKET: usize = 1;
    const SO_TYPE: usize = 3;
    const SO_PEERCRED: usize = 17;
    const SOCK_SEQPACKET: i32 = 5;
    let ask = |what: usize, into: &mut [i32; 3]| {
        let mut size = size_of_val(into) as u32;
        let args = [SOCKET as usize, SOL_SOCKET, what, into.as_mut_ptr() as usize, &raw mut size as usize, 0];
        // SAFETY: the kernel writes at most the size.
        unsafe { sys::syscall(uapi::__NR_getsockopt, args) }.is_ok()
    };
    let (mut kind, mut peer) = ([0; 3], [0; 3]);
    ask(SO_TYPE, &mut kind) && kind[0] == SOCK_SEQPACKET && ask(SO_PEERCRED, &mut peer) && peer[0] == sys::getppid()
}

/// Sends a message without descriptors.
fn send(message: &Message) -> bool {
    const MSG_NOSIGNAL: usize = 0x4000;
    let args = [SOCKET as usize, &raw const *message as usize, size_of::<Message>(), MSG_NOSIGNAL, 0, 0];
    // SAFETY: the kernel reads the message.
    let sent = unsafe { sys::syscall(uapi::__NR_sendto, args) };
    sent == Ok(size_of::<Message>())
}

impl State {
    /// Prepares this process, so that children inherit nothing unwanted. The error is a [`refusal`].
    unsafe fn prepare(&mut self, program: &mut Program, argc: c_int, argv: *mut *mut c_char) -> Result<(), u64> {
        if !has_plain_signals_and_timers() {
            return Err(refusal::TIMERS);
        }
        self.owner = Owner::of(SOCKET).ok_or(refusal::KERNEL)?;
        // SAFETY: the caller's contract.
        unsafe { program.observe(argc, argv) }?;
        // SAFETY: the only thread, before the program's own code.
        unsafe { bind_functions() };
        // SAFETY: this process only serves, and no other code uses descriptors 0 to 3.
        unsafe {
            // A child needs close_range(2) before it is the program.
            if sys::close_range(u32::MAX, u32::MAX, 0).is_err() {
                return Err(refusal::KERNEL);
            }
            // Placeholders: a program whose caller has no such stream must not have them.
            for number in 0..=SOCKET {
                let _ = sys::fcntl(number, uapi::F_SETFD, uapi::FD_CLOEXEC as usize);
            }
            let _ = sys::syscall(uapi::__NR_chdir, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]);
            let name = [prctl::PR_SET_NAME as usize, c"forkless-warm".as_ptr() as usize, 0, 0, 0, 0];
            let _ = sys::syscall(uapi::__NR_prctl, name);
            // A launch may need many descriptors. Children take on their caller's limit.
            let mut limit = [0u64; 2];
            let nofile = uapi::RLIMIT_NOFILE as usize;
            let _ = sys::syscall(uapi::__NR_prlimit64, [0, nofile, 0, limit.as_mut_ptr() as usize, 0, 0]);
            limit[0] = limit[1];
            let _ = sys::syscall(uapi::__NR_prlimit64, [0, nofile, limit.as_ptr() as usize, 0, 0, 0]);
        }
        // SAFETY: Adopt consists of numbers, so all zeroes are valid.
        self.own = MaybeUninit::new(unsafe { zeroed() });
        // SAFETY: just initialized.
        observe(unsafe { self.own.assume_init_mut() });
        // SAFETY: the only thread, before the program's own code.
        unsafe { self.pages.begin() };
        Ok(())
    }

    /// Serves until the caller has ended or closed the socket. Returns in each child.
    fn serve(&mut self, program: &mut Program) -> Arguments {
        loop {
            let before = self.count;
            match self.receive() {
                Ok(Some(message)) => {
                    if message.value == 0 && before > 0 {
                        // Left over from a launch whose sender failed half-way.
                        self.close_first(before);
                        self.lost_some = false;
                    }
                    if let Some(arguments) = self.take(program, &message) {
                        return arguments;
                    }
                }
                Err(errno::EINTR) => {}
                Ok(None) | Err(_) => sys::exit(0),
            }
        }
    }

    /// The next message. `None` at the end of the stream.
    fn receive(&mut self) -> sys::Result<Option<Message>> {
        let (descriptors, count, lost_some) = (&mut self.descriptors, &mut self.count, &mut self.lost_some);
        let received = receive(SOCKET, |fd| match descriptors.get_mut(*count) {
            Some(place) => {
                *place = fd;
                *count += 1;
            }
            None => *lost_some = true,
        })?;
        let Some(received) = received else { return Ok(None) };
        self.lost_some |= received.lost_some;
        if received.message.message_kind() == Some(MessageKind::Launch) && !self.owner.has_sent(received.sender) {
            // Another process, or the caller has given up rights that this process still has.
            sys::exit(5);
        }
        Ok(Some(received.message))
    }

    /// Closes the first `count` received descriptors: the child has its copies.
    fn close_first(&mut self, count: usize) {
        for &fd in self.descriptors.iter().take(count.min(self.count)) {
            // SAFETY: it came with a message, and no other code of this process uses it.
            let _ = unsafe { sys::close(fd) };
        }
        let rest = self.count.saturating_sub(count);
        for n in 0..rest {
            if let Some(&fd) = self.descriptors.get(count + n) {
                if let Some(place) = self.descriptors.get_mut(n) {
                    *place = fd;
                }
            }
        }
        self.count = rest;
    }

    /// Does what a message requests. Returns a child's arguments in the child.
    fn take(&mut self, program: &mut Program, message: &Message) -> Option<Arguments> {
        let at = message.parcel as usize;
        match message.message_kind() {
            Some(MessageKind::Map) => {
                let memory = self.count.checked_sub(1).and_then(|last| self.descriptors.get(last)).copied();
                let mapped = memory.and_then(|fd| map(fd, message.value as usize));
                self.close_first(self.count);
                match (self.parcels.get_mut(at), mapped) {
                    (Some(place), Some(mapped)) => *place = mapped,
                    _ => sys::exit(3),
                }
            }
            Some(MessageKind::Descriptors) => {}
            Some(MessageKind::Launch) => {
                let parcel = self.parcels.get(at).copied().unwrap_or(NOTHING);
                let Some(memory) = NonNull::new(parcel.memory) else { sys::exit(2) };
                if let Some(arguments) = self.launch(program, memory, parcel.length) {
                    return Some(arguments);
                }
                self.close_first(self.count);
                self.lost_some = false;
            }
            Some(MessageKind::Forget) => {
                if let Some(place) = self.parcels.get_mut(at) {
                    unmap(place);
                    *place = NOTHING;
                }
            }
            // A message of another version: its sender would understand no reply.
            Some(MessageKind::Hello) | None => sys::exit(3),
        }
        None
    }

    fn launch(&mut self, program: &mut Program, memory: NonNull<u8>, length: usize) -> Option<Arguments> {
        let parcel = memory.as_ptr().wrapping_byte_add(PARCEL_AT).cast::<Parcel>();
        match self.try_launch(program, memory, length, parcel) {
            Ok(child) => child,
            Err((why, error)) => {
                // SAFETY: a mapped parcel without a child. Its owner waits for the futex word, and reads only atomics.
                let Parcel { sent, order } = unsafe { &*parcel };
                order.errno.store(error, Relaxed);
                order.failure.store(why, Relaxed);
                sent.frame.word.store(LEFT, Release);
                sync::futex_wake(&sent.frame.word);
                None
            }
        }
    }

    /// As in a zygote's helper: until the child exists, the parcel's owner reads only its atomics, and this process may
    /// use the rest.
    fn try_launch(
        &mut self,
        program: &mut Program,
        memory: NonNull<u8>,
        length: usize,
        parcel: *mut Parcel,
    ) -> Result<Option<Arguments>, (u32, i32)> {
        let received = self.descriptors.get(..self.count).unwrap_or(&[]);
        // SAFETY: a mapped parcel, and no other code uses it now.
        let is_whole = unsafe { parcel::patch(memory, length, received) };
        if !is_whole || self.lost_some {
            return Err((failure::DESCRIPTORS, errno::EMFILE));
        }
        // SAFETY: as above; `own` was initialized before this process served.
        unsafe { mark_differences(self.own.assume_init_mut(), &mut (*parcel).sent.adopt, (*parcel).order.kept != 0) };
        // SAFETY: from here on only atomics are written.
        let Parcel { sent, order } = unsafe { &*parcel };
        // SAFETY: the arena is in the parcel. It is a copy of the plan, and no child plays it yet.
        let Some(arena) = (unsafe { parcel::arena(memory, length) }) else {
            return Err((failure::PLAN, errno::EINVAL));
        };
        let is_plain = order.calls == 0
            && order.namespaces == 0
            && order.cgroup < 0
            && order.pid_namespace < 0
            && order.vfork == 0;
        if !is_plain {
            return Err((failure::PLAN, errno::EINVAL));
        }
        sent.frame.plan.store(arena.as_ptr().cast(), Relaxed);
        // SAFETY: the template's only thread.
        unsafe { self.pages.apply() };
        // SAFETY: all zeroes are valid arguments.
        let mut args: uapi::clone_args = unsafe { zeroed() };
        args.flags =
            (uapi::CLONE_PARENT | uapi::CLONE_PARENT_SETTID | uapi::CLONE_CHILD_SETTID | uapi::CLONE_CHILD_CLEARTID)
                as u64;
        args.parent_tid = sent.frame.pid.as_ptr() as u64;
        args.child_tid = program.thread_number();
        const SIZE: usize = 64;
        // SAFETY: without CLONE_VM the child has a copy of all memory, including this stack, and this process has one
        // thread.
        match unsafe { sys::syscall(uapi::__NR_clone3, [&raw const args as usize, SIZE, 0, 0, 0, 0]) } {
            // SAFETY: this is the child.
            Ok(0) => Ok(Some(unsafe { self.run(program, parcel) })),
            Ok(child) => {
                // SAFETY: the template's only thread.
                unsafe { self.pages.watch(child as i32) };
                Ok(None)
            }
            Err(error) => Err((failure::CLONE, error)),
        }
    }

    /// The child: takes on the caller's attributes, plays the plan up to its last step, and returns its arguments.
    unsafe fn run(&mut self, program: &mut Program, parcel: *const Parcel) -> Arguments {
        // SAFETY: the parcel is mapped until this function unmaps it, and belongs to this run.
        let sent = unsafe { &(*parcel).sent };
        let frame = &sent.frame;
        // SAFETY: this is the child.
        unsafe {
            self.pages.await_watch();
            adopt_unannounced(sent);
        }
        let plan = frame.plan.load(Relaxed).cast_const();
        // Everything that can fail comes before the plan's first step, so that the caller can launch cold instead.
        // SAFETY: the plan lies in the parcel.
        let arguments = match unsafe { program.become_of(plan) } {
            Ok(arguments) => arguments,
            Err(error) => fail(frame, error),
        };
        announce(sent);
        // SAFETY: this is the child; the plan is used until it is released.
        unsafe {
            if !play_all_but_last(frame) {
                fence(Release);
                sys::exit(127)
            }
            program.close_descriptors(plan);
            program.release(frame, plan);
        }
        // `parcels` itself is not cleared: the write would copy its page.
        for place in &self.parcels {
            unmap(place);
        }
        arguments
    }
}

/// Whether no timer runs and no alternate signal stack is set.
fn has_plain_signals_and_timers() -> bool {
    const SS_DISABLE: i32 = 2;
    let mut stack = [0usize; 3];
    // SAFETY: the kernel writes a stack_t: address, flags, size.
    let answer = unsafe { sys::syscall(uapi::__NR_sigaltstack, [0, stack.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    let has_no_stack = answer.is_ok() && stack[1] as i32 & SS_DISABLE != 0;
    let is_off = |kind: usize| {
        let mut timer = [0u64; 4];
        // SAFETY: the kernel writes a struct itimerval.
        let answer = unsafe { sys::syscall(uapi::__NR_getitimer, [kind, timer.as_mut_ptr() as usize, 0, 0, 0, 0]) };
        answer.is_ok() && timer == [0; 4]
    };
    has_no_stack && (0..3).all(is_off)
}

fn map(memory: i32, length: usize) -> Option<Mapped> {
    // An access beyond the end of the file would kill this process with SIGBUS.
    let mut found = MaybeUninit::<uapi::stat>::uninit();
    // SAFETY: the kernel writes one stat.
    unsafe { sys::syscall(uapi::__NR_fstat, [memory as usize, found.as_mut_ptr() as usize, 0, 0, 0, 0]) }.ok()?;
    // SAFETY: the kernel has filled it.
    let size = unsafe { (*found.as_ptr()).st_size };
    if length < SHORTEST || u64::try_from(size).ok()? < length as u64 {
        return None;
    }
    let protection = (uapi::PROT_READ | uapi::PROT_WRITE) as usize;
    let args = [0, length - START, protection, uapi::MAP_SHARED as usize, memory as usize, START];
    // SAFETY: a new mapping at an address that the kernel chooses.
    let base = unsafe { sys::syscall(uapi::__NR_mmap, args) }.ok()? as *mut u8;
    Some(Mapped { memory: base.wrapping_byte_sub(START), length })
}

/// Unmaps a parcel.
fn unmap(place: &Mapped) {
    if !place.memory.is_null() {
        let (base, length) = (place.memory.wrapping_byte_add(START), place.length - START);
        // SAFETY: a whole mapping. The caller has reported that the child has left it, or this is a child with a copy of it.
        let _ = unsafe { sys::syscall(uapi::__NR_munmap, [base as usize, length, 0, 0, 0, 0]) };
    }
}
