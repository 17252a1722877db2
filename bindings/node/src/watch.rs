//! Children whose end libuv's loop sees.
//!
//! libuv handles the ends of its own children last in a turn of its loop, when it has read what they have written: a handler of
//! SIGCHLD writes into a pipe, which the loop reads after everything else. This uses the same pipe, by a `uv_signal_t`, so ends come
//! when libuv's own would. An epoll instance that holds the pidfds of the children says which of them have ended. So ten thousand
//! children cost nothing until one ends. A child sends SIGCHLD at its end, because exec makes that its exit signal.
//!
//! When an environment of Node ends (a worker, for example), its handles are closed and the children are left alone, as libuv does.

use crate::request::{Launched, Line};
use crate::sync::numbers;
use forkless::{Child, LimitEvents};
use napi::sys;
use rustix::event::{Timespec, epoll};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::ptr::null_mut;
use std::rc::Rc;

/// `uv_signal_t`, `uv_idle_t` or `uv_check_t`, of which only libuv knows the size.
#[repr(C)]
struct Handle {
    _data: [u8; 0],
}

/// `UV_CHECK` of `enum uv_handle_type`.
const UV_CHECK: c_int = 2;
/// `UV_IDLE` of `enum uv_handle_type`.
const UV_IDLE: c_int = 6;
/// `UV_SIGNAL` of `enum uv_handle_type`.
const UV_SIGNAL: c_int = 16;
/// The highest number of a watch: JavaScript has it as a small integer.
const HIGHEST: u32 = i32::MAX as u32;
/// The most ends that are read from the epoll instance by one call.
const AT_ONCE: usize = 64;

/// What libuv calls for a handle.
type Call = unsafe extern "C" fn(*mut Handle);

// Node exports libuv's functions to addons; their binary interface does not change within libuv 1.
unsafe extern "C" {
    fn uv_handle_size(kind: c_int) -> usize;
    fn uv_handle_get_data(handle: *const Handle) -> *mut c_void;
    fn uv_handle_set_data(handle: *mut Handle, data: *mut c_void);
    fn uv_signal_init(uv_loop: *mut sys::uv_loop_s, handle: *mut Handle) -> c_int;
    fn uv_signal_start(handle: *mut Handle, call: unsafe extern "C" fn(*mut Handle, c_int), signal: c_int) -> c_int;
    fn uv_check_init(uv_loop: *mut sys::uv_loop_s, handle: *mut Handle) -> c_int;
    fn uv_check_start(handle: *mut Handle, call: Call) -> c_int;
    fn uv_check_stop(handle: *mut Handle) -> c_int;
    fn uv_idle_init(uv_loop: *mut sys::uv_loop_s, handle: *mut Handle) -> c_int;
    fn uv_idle_start(handle: *mut Handle, call: Call) -> c_int;
    fn uv_idle_stop(handle: *mut Handle) -> c_int;
    fn uv_close(handle: *mut Handle, call: Option<Call>);
    fn uv_ref(handle: *mut Handle);
    fn uv_unref(handle: *mut Handle);
}

/// A child whose end is reported to JavaScript.
pub(crate) struct Watch {
    env: sys::napi_env,
    /// By which JavaScript identifies the watch.
    number: u32,
    /// None when it has ended, or the environment has.
    child: RefCell<Option<Child>>,
    line: RefCell<Option<Line>>,
    /// The turns of the loop in which the message of the line's shell could not be written.
    turns: Cell<u32>,
    /// How many more turns of the loop end before the end of a line is reported.
    turns_left: Cell<u32>,
    /// Does it keep the loop alive?
    is_ref: Cell<bool>,
    /// The exit code and the signal, when it has ended.
    result: Cell<Option<(i32, i32)>>,
    /// How often it has reached its limits, if it has any.
    limit_events: Cell<Option<LimitEvents>>,
    /// What JavaScript must not collect before the end: the function to call, and its `this`.
    kept: Cell<Option<Kept>>,
}

/// What JavaScript must not collect while a child runs.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    on_exit: sys::napi_ref,
    this: sys::napi_ref,
    /// The asynchronous context of the launch, for `AsyncLocalStorage`.
    context: sys::napi_async_context,
}

/// What a child whose end has been seen waits for.
#[derive(PartialEq)]
enum Next {
    Report,
    /// Another turn of the loop.
    Turn,
    /// SIGCHLD.
    Signal,
}

/// The watches of one environment of Node.
struct Registry {
    /// Calls [`some_ended`] after SIGCHLD. It keeps the loop alive while a child shall do so. This handle and the next two are null
    /// until the first launch.
    signal: *mut Handle,
    /// Keeps the loop from waiting, while lines wait for its next turn.
    idle: *mut Handle,
    /// Calls [`turn_ended`] in that turn.
    check: *mut Handle,
    /// The pidfds of the children, with their numbers as data.
    ends: Option<OwnedFd>,
    /// Lines that have ended and wait for turns of the loop.
    turning: Vec<u32>,
    watches: HashMap<u32, Rc<Watch>>,
    /// How many watches keep the loop alive.
    refs: usize,
    /// The number of the watch that was made last.
    last: u32,
    /// What was launched last, until its exec is waited for.
    launched: Option<Launched>,
    /// Handles whose memory libuv still uses.
    closing: usize,
    /// Set when the environment ends: the hook to remove when nothing is left.
    ending: Option<sys::napi_async_cleanup_hook_handle>,
}

impl Default for Registry {
    fn default() -> Self {
        let (watches, turning) = Default::default();
        let (signal, idle, check) = (null_mut(), null_mut(), null_mut());
        let (refs, last, closing) = (0, 0, 0);
        Self { signal, idle, check, ends: None, turning, watches, refs, last, launched: None, closing, ending: None }
    }
}

thread_local! {
    /// A thread has one environment, but an addon may be loaded into it more than once.
    static REGISTRIES: RefCell<HashMap<sys::napi_env, Registry>> = RefCell::default();
}

/// Calls a function with the registry of an environment.
fn of<T>(env: sys::napi_env, call: impl FnOnce(&mut Registry) -> T) -> T {
    REGISTRIES.with_borrow_mut(|all| {
        call(all.entry(env).or_insert_with(|| {
            let mut handle = null_mut();
            // SAFETY: a live environment, in whose thread this runs; the hook is given the environment as a number.
            unsafe { sys::napi_add_async_cleanup_hook(env, Some(clean_up), env.cast(), &raw mut handle) };
            Registry::default()
        }))
    })
}

/// Prepares to see the ends of children. Called before a launch, whose child may end at once.
///
/// # Errors
/// When descriptors or memory are lacking.
pub(crate) fn prepare(env: sys::napi_env) -> io::Result<()> {
    of(env, |registry| registry.prepare(env))
}

/// Keeps what was launched until [`launched`] takes it.
pub(crate) fn launch(env: sys::napi_env, launched: Launched) {
    of(env, |registry| registry.launched = Some(launched));
}

/// What was launched last.
pub(crate) fn launched(env: sys::napi_env) -> io::Result<Launched> {
    of(env, |registry| registry.launched.take()).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Calls a function with the watch of this number. None: the child has ended.
pub(crate) fn with<T>(env: sys::napi_env, number: u32, call: impl FnOnce(&Watch) -> T) -> Option<T> {
    let watch = of(env, |registry| registry.watches.get(&number).map(Rc::clone))?;
    Some(call(&watch))
}

/// Looks in the next turn of the loop whether the child has ended, for one whose SIGCHLD may have come before it was watched.
pub(crate) fn look_next_turn(env: sys::napi_env, number: u32) {
    of(env, |registry| {
        registry.turning.push(number);
        registry.turn_again();
    });
}

impl Kept {
    /// References to the function to call and its `this`, in an asynchronous context of its own.
    pub(crate) fn new(env: sys::napi_env, on_exit: sys::napi_value, this: sys::napi_value) -> Self {
        let mut name = null_mut();
        let mut kept = Self { on_exit: null_mut(), this: null_mut(), context: null_mut() };
        const NAME: &str = "PROCESSWRAP";
        // SAFETY: a live environment, in whose thread this runs, and live values of the caller's scope. Where a call fails, its
        // result stays null, which `report` checks.
        unsafe {
            sys::napi_create_reference(env, on_exit, 1, &raw mut kept.on_exit);
            sys::napi_create_reference(env, this, 1, &raw mut kept.this);
            sys::napi_create_string_utf8(env, NAME.as_ptr().cast(), NAME.len() as isize, &raw mut name);
            sys::napi_async_init(env, this, name, &raw mut kept.context);
        }
        kept
    }

    /// Lets JavaScript collect what was kept. It must not be used afterwards.
    pub(crate) fn forget(self, env: sys::napi_env) {
        // SAFETY: made by `new` in this environment, and used no more. A null pointer, of a call that failed, is refused.
        unsafe {
            sys::napi_async_destroy(env, self.context);
            sys::napi_delete_reference(env, self.on_exit);
            sys::napi_delete_reference(env, self.this);
        }
    }
}

impl Watch {
    /// Watches a child, and returns the number of the watch. `kept` is called with the exit code, the number of the signal that
    /// killed it or 0, and three numbers of its limits, if it has any.
    ///
    /// # Errors
    /// When its pidfd cannot be watched. The child is then killed.
    pub(crate) fn start(env: sys::napi_env, mut child: Child, line: Option<Line>, kept: Kept) -> io::Result<u32> {
        let begun = of(env, |registry| registry.add(&child));
        let number = match begun {
            Ok(number) => number,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        let (child, line, kept) = (RefCell::new(Some(child)), RefCell::new(line), Cell::new(Some(kept)));
        let (turns, turns_left, is_ref, result, limit_events) = Default::default();
        let watch = Rc::new(Self { env, number, child, line, turns, turns_left, is_ref, result, limit_events, kept });
        of(env, |registry| registry.watches.insert(number, Rc::clone(&watch)));
        watch.set_ref(true);
        Ok(number)
    }

    /// Ends the watch.
    fn close(&self) {
        self.set_ref(false);
        // The pidfd is closed now, and not when JavaScript collects what refers to the watch. That takes it out of the epoll instance.
        drop(self.child.take());
        of(self.env, |registry| registry.watches.remove(&self.number));
    }

    /// Leaves the child alone: its end is not reported. It is reaped, when it has ended and something else is launched.
    pub(crate) fn leave(&self) {
        self.close();
        if let Some(kept) = self.kept.take() {
            kept.forget(self.env);
        }
    }

    /// Reaps the child if it has ended.
    fn reap(&self) -> Next {
        if self.result.get().is_some() {
            let left = self.turns_left.get();
            self.turns_left.set(left.saturating_sub(1));
            return if left > 0 { Next::Turn } else { Next::Report };
        }
        let is_line = self.line.borrow().is_some();
        let waited = self.child.borrow_mut().as_mut().map_or(Ok(None), Child::try_wait);
        let result = match waited {
            // A tracer has it first. When that lets it go, SIGCHLD comes again, and the pidfd becomes readable again
            // (do_notify_parent() in kernel/signal.c).
            Ok(None) => return Next::Signal,
            Ok(Some(status)) if self.is_waiting_for_room(status) => return Next::Turn,
            Ok(Some(status)) => {
                let status = self.line.take().map_or(status, |line| line.end(status));
                (status.code().unwrap_or(0), status.signal().unwrap_or(0))
            }
            // Another part of the process has reaped it.
            Err(error) => (-forkless::internal::errno(&error).unwrap_or(libc::ECHILD), 0),
        };
        self.result.set(Some(result));
        self.limit_events.set(self.child.borrow().as_ref().and_then(Child::limit_events));
        // The pidfd is no longer needed. It is closed before JavaScript is called, which may need the number for a launch.
        drop(self.child.take());
        // A line's end of the standard error is closed now. JavaScript shall see that in the next turn, and the end in the one after
        // that, as from a shell that ends.
        self.turns_left.set(2);
        if is_line { Next::Turn } else { Next::Report }
    }

    /// Reports the end of the child, which has been reaped, unless JavaScript has closed its handle meanwhile.
    fn finish(&self) {
        self.close();
        if let (Some((code, signal)), Some(kept)) = (self.result.get(), self.kept.take()) {
            self.report(kept, code, signal);
            kept.forget(self.env);
        }
    }

    /// Has the line's program been killed while its standard error is full? A shell would wait until it is read. This gives up
    /// after a time, because JavaScript may never read it.
    fn is_waiting_for_room(&self, status: ExitStatus) -> bool {
        const MOST: u32 = 1000;
        let waits = self.line.borrow().as_ref().is_some_and(|line| line.has_to_wait(status));
        self.turns.set(self.turns.get() + 1);
        waits && self.turns.get() <= MOST
    }

    /// Calls JavaScript from the loop.
    fn report(&self, kept: Kept, code: i32, signal: i32) {
        let env = self.env;
        let mut scope = null_mut();
        // SAFETY: a live environment, in whose thread the loop runs. The values live until the scope is closed. If a call fails,
        // because the environment is about to end, the values stay null and nothing is called.
        unsafe {
            if sys::napi_open_handle_scope(env, &raw mut scope) != sys::Status::napi_ok {
                return;
            }
            let (mut on_exit, mut this, mut arguments) = (null_mut(), null_mut(), [null_mut(); 5]);
            sys::napi_get_reference_value(env, kept.on_exit, &raw mut on_exit);
            sys::napi_get_reference_value(env, kept.this, &raw mut this);
            sys::napi_create_int32(env, code, &raw mut arguments[0]);
            sys::napi_create_int32(env, signal, &raw mut arguments[1]);
            let mut count = 2;
            for number in self.limit_events.get().into_iter().flat_map(numbers) {
                sys::napi_create_double(env, number, &raw mut arguments[count]);
                count += 1;
            }
            let is_whole = ![on_exit, this].iter().chain(&arguments[..count]).any(|value| value.is_null());
            let mut result = null_mut();
            let status = if is_whole {
                sys::napi_make_callback(env, kept.context, this, on_exit, count, arguments.as_ptr(), &raw mut result)
            } else {
                sys::Status::napi_ok
            };
            if status == sys::Status::napi_pending_exception {
                let mut error = null_mut();
                sys::napi_get_and_clear_last_exception(env, &raw mut error);
                // As an exception in a callback of Node's own: `uncaughtException`, or the end of the process.
                sys::napi_fatal_exception(env, error);
            }
            sys::napi_close_handle_scope(env, scope);
        }
    }

    /// Why the launch was not warm.
    pub(crate) fn cold_reason(&self) -> Option<String> {
        self.child.borrow().as_ref()?.cold_reason().map(str::to_owned)
    }

    /// Sets whether the child keeps the loop alive.
    pub(crate) fn set_ref(&self, on: bool) {
        if self.is_ref.replace(on) == on {
            return;
        }
        of(self.env, |registry| {
            let before = registry.refs;
            registry.refs = if on { before + 1 } else { before - 1 };
            let change = match (before, registry.refs) {
                (0, 1) => uv_ref,
                (1, 0) => uv_unref,
                _ => return,
            };
            // When the environment ends, the handle may be closed already.
            if !registry.signal.is_null() {
                // SAFETY: an open handle, in the thread of its loop.
                unsafe { change(registry.signal) };
            }
        });
    }

    pub(crate) fn has_ref(&self) -> bool {
        self.is_ref.get()
    }

    /// Sends a signal; ESRCH when the child has ended.
    pub(crate) fn signal(&self, signal: i32) -> io::Result<()> {
        match self.child.borrow_mut().as_mut() {
            Some(child) => child.signal(signal)?,
            None => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
        self.note(signal);
        Ok(())
    }

    pub(crate) fn note(&self, signal: i32) {
        if let Some(line) = self.line.borrow().as_ref() {
            line.note(signal);
        }
    }
}

/// The loop of an environment, in whose thread this runs.
fn loop_of(env: sys::napi_env) -> Option<*mut sys::uv_loop_s> {
    let mut uv_loop = null_mut();
    // SAFETY: a live environment, in whose thread this runs.
    let status = unsafe { sys::napi_get_uv_event_loop(env, &raw mut uv_loop) };
    (status == sys::Status::napi_ok).then_some(uv_loop)
}

impl Registry {
    /// Makes the epoll instance and libuv's handles, if that has not been done.
    fn prepare(&mut self, env: sys::napi_env) -> io::Result<()> {
        if self.ends.is_some() {
            return Ok(());
        }
        let ends = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (handle, kind, init) in [
            (&mut self.idle, UV_IDLE, uv_idle_init as Init),
            (&mut self.check, UV_CHECK, uv_check_init),
            (&mut self.signal, UV_SIGNAL, uv_signal_init),
        ] {
            if handle.is_null() {
                *handle = made(env, kind, init)?;
                // SAFETY: an initialized handle.
                unsafe { uv_unref(*handle) };
            }
        }
        // SAFETY: as above.
        of_uv(unsafe { uv_signal_start(self.signal, some_ended, libc::SIGCHLD) })?;
        self.ends = Some(ends);
        Ok(())
    }

    /// Adds the child's pidfd to the epoll instance, and returns the number of the watch.
    fn add(&mut self, child: &Child) -> io::Result<u32> {
        // After two thousand million launches the numbers begin again.
        loop {
            self.last = self.last % HIGHEST + 1;
            if !self.watches.contains_key(&self.last) {
                break;
            }
        }
        let (Some(ends), Some(pidfd)) = (&self.ends, child.pidfd()) else {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        };
        let data = epoll::EventData::new_u64(self.last.into());
        epoll::add(ends, pidfd, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        Ok(self.last)
    }

    /// The children that have ended since the last call.
    fn read_ends(&mut self) -> Vec<u32> {
        let mut numbers = Vec::new();
        let mut events = [const { MaybeUninit::uninit() }; AT_ONCE];
        while let Some(ends) = &self.ends {
            // The call does not wait, and returns each end once.
            let Ok((read, _)) = epoll::wait(ends, &mut events, Some(&Timespec::default())) else { break };
            numbers.extend(read.iter().filter_map(|event| u32::try_from(event.data.u64()).ok()));
            if read.len() < AT_ONCE {
                break;
            }
        }
        numbers
    }

    /// Has [`turn_ended`] called in the next turn of the loop, which does not wait.
    fn turn_again(&mut self) {
        // Restarted each time: libuv runs the check that was started last first, so before the callbacks of setImmediate.
        // SAFETY: initialized handles that are not being closed. With a callback these calls cannot fail.
        unsafe {
            uv_check_stop(self.check);
            uv_check_start(self.check, turn_ended);
            uv_idle_start(self.idle, turn_begun);
        }
    }
}

/// What initializes a handle.
type Init = unsafe extern "C" fn(*mut sys::uv_loop_s, *mut Handle) -> c_int;

fn of_uv(code: c_int) -> io::Result<()> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(()) }
}

/// A handle in the loop of an environment, which is its data.
fn made(env: sys::napi_env, kind: c_int, init: Init) -> io::Result<*mut Handle> {
    let uv_loop = loop_of(env).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: `handle` is memory of the size that libuv names, checked for null, and `uv_loop` is the loop of this thread.
    unsafe {
        let handle: *mut Handle = libc::malloc(uv_handle_size(kind)).cast();
        if handle.is_null() {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        of_uv(init(uv_loop, handle)).inspect_err(|_| libc::free(handle.cast()))?;
        uv_handle_set_data(handle, env.cast());
        Ok(handle)
    }
}

/// Called by the loop after SIGCHLD, when it has read everything else.
unsafe extern "C" fn some_ended(handle: *mut Handle, _signal: c_int) {
    // SAFETY: called for the handle of a registry, which is not freed before the environment ends.
    let env = unsafe { env_of(handle) };
    let numbers = of(env, Registry::read_ends);
    report_ends(env, numbers);
}

/// Called by the loop before it reads anything, while lines wait for another turn. The handle only keeps the loop from waiting.
unsafe extern "C" fn turn_begun(_: *mut Handle) {}

/// Called by the loop at the end of a turn for which a line has waited.
unsafe extern "C" fn turn_ended(check: *mut Handle) {
    // SAFETY: as in `some_ended`. If a line still waits, `turn_again` starts the handles again.
    let env = unsafe {
        uv_check_stop(check);
        env_of(check)
    };
    let numbers = of(env, |registry| {
        // SAFETY: initialized, as the check is.
        unsafe { uv_idle_stop(registry.idle) };
        std::mem::take(&mut registry.turning)
    });
    report_ends(env, numbers);
}

/// Reports the ends of children. Those that have ended in the same turn come in the order of their launches, as from libuv, which also
/// reaps all of them before it reports the first.
fn report_ends(env: sys::napi_env, mut numbers: Vec<u32>) {
    numbers.sort_unstable();
    // A pidfd that became readable twice while they were read.
    numbers.dedup();
    let ended: Vec<_> =
        of(env, |registry| numbers.iter().filter_map(|number| registry.watches.get(number).map(Rc::clone)).collect());
    let ended: Vec<_> = ended.into_iter().map(|watch| (watch.reap(), watch)).collect();
    of(env, |registry| {
        let turning = ended.iter().filter(|(next, _)| *next == Next::Turn);
        registry.turning.extend(turning.map(|(_, watch)| watch.number));
        if !registry.turning.is_empty() {
            registry.turn_again();
        }
    });
    for (next, watch) in ended {
        if next == Next::Report {
            watch.finish();
        }
    }
}

/// The environment of a handle.
///
/// # Safety
/// A handle of [`made`] that has not been freed.
unsafe fn env_of(handle: *const Handle) -> sys::napi_env {
    // SAFETY: `handle` is one of [`made`] that has not been freed, as this function requires.
    unsafe { uv_handle_get_data(handle) }.cast()
}

/// Called by the loop when libuv has no more use for a handle of [`made`].
unsafe extern "C" fn made_closed(handle: *mut Handle) {
    // SAFETY: its data is still the environment; made by malloc, and the loop is done with it.
    let env = unsafe {
        let env = env_of(handle);
        libc::free(handle.cast());
        env
    };
    one_closed(env);
}

/// One of the handles of an environment is closed. After the last one, the environment may end.
fn one_closed(env: sys::napi_env) {
    let last = REGISTRIES.with_borrow_mut(|all| {
        let registry = all.get_mut(&env)?;
        registry.closing -= 1;
        registry.ending.filter(|_| registry.closing == 0)
    });
    if let Some(handle) = last {
        finish(env, handle);
    }
}

/// Called when the environment ends. Node then runs the loop until the hook has been removed.
unsafe extern "C" fn clean_up(handle: sys::napi_async_cleanup_hook_handle, env: *mut c_void) {
    let env: sys::napi_env = env.cast();
    let open = REGISTRIES.with_borrow_mut(|all| {
        let registry = all.entry(env).or_default();
        registry.ending = Some(handle);
        let handles = [&mut registry.signal, &mut registry.idle, &mut registry.check]
            .map(|handle| std::mem::replace(handle, null_mut()));
        for handle in handles.into_iter().filter(|handle| !handle.is_null()) {
            registry.closing += 1;
            // SAFETY: an initialized handle that has not been closed, since the registry held it.
            unsafe { uv_close(handle, Some(made_closed)) };
        }
        registry.watches.values().map(Rc::clone).collect::<Vec<_>>()
    });
    for watch in open {
        watch.leave();
    }
    let is_done = REGISTRIES.with_borrow(|all| all.get(&env).is_none_or(|registry| registry.closing == 0));
    if is_done {
        finish(env, handle);
    }
}

/// Removes the registry and the hook of an environment of which nothing is left.
fn finish(env: sys::napi_env, handle: sys::napi_async_cleanup_hook_handle) {
    REGISTRIES.with_borrow_mut(|all| all.remove(&env));
    // SAFETY: the handle that Node gave to the hook, and gives up here.
    unsafe { sys::napi_remove_async_cleanup_hook(handle) };
}

/// Whether this kernel has pidfds: Linux 5.3 and later, unless a filter refuses them.
pub(crate) fn has_pidfds() -> bool {
    // SAFETY: takes numbers, and returns a descriptor or an error.
    let made = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    if let Ok(fd @ 0..) = c_int::try_from(made) {
        // SAFETY: just opened, and owned here.
        unsafe { libc::close(fd) };
        return true;
    }
    // A lack of descriptors or memory does not show that pidfds are missing; a launch will report it.
    matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}
