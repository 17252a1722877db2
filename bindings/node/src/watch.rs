//! Children whose end libuv's loop sees: a pidfd becomes readable when its process has ended.
//!
//! libuv handles the ends of children last in a turn of its loop, when it has read what the children have written. So does this: a
//! poll only notes that the child has ended, and a `uv_check_t`, which runs right after all polls, reports it. If the loop has waited
//! for events, libuv learns of the end a turn later: the kernel runs the handler of SIGCHLD when it has returned the events. So this
//! lets a turn pass, in which the pidfd is readable still.
//!
//! A child is watched by a `uv_poll_t` of its own. So it keeps the loop alive as libuv's own processes do, and ten thousand of them
//! cost nothing until one ends. When an environment of Node ends (a worker, for example), its polls are closed and the children are
//! left alone, as libuv does.

use crate::request::{Launched, Line};
use forkless::{Child, planted};
use napi::sys;
use rustix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::ptr::null_mut;
use std::rc::Rc;

/// `uv_poll_t`, of which only libuv knows the size.
#[repr(C)]
struct Poll {
    _data: [u8; 0],
}

/// `uv_check_t` or `uv_prepare_t`, of which only libuv knows the size.
#[repr(C)]
struct Check {
    _data: [u8; 0],
}

/// `UV_CHECK` of `uv_handle_type`.
const UV_CHECK: c_int = 2;
/// `UV_PREPARE` of `uv_handle_type`.
const UV_PREPARE: c_int = 9;
/// `UV_POLL` of `uv_handle_type`.
const UV_POLL: c_int = 8;
/// The highest number of a watch: JavaScript has it as a small integer.
const HIGHEST: u32 = i32::MAX as u32;
/// `UV_READABLE` of `enum uv_poll_event`.
const UV_READABLE: c_int = 1;

/// Real time, and the CPU time of this thread, in nanoseconds.
#[derive(Clone, Copy)]
struct Clocks(i64, i64);

impl Clocks {
    fn now() -> Self {
        let nanoseconds = |clock| {
            let time = clock_gettime(clock);
            time.tv_sec * 1_000_000_000 + time.tv_nsec
        };
        Self(nanoseconds(ClockId::Monotonic), nanoseconds(ClockId::ThreadCPUTime))
    }

    /// Whether the thread has waited since then.
    fn has_slept(self) -> bool {
        const SHORT: i64 = 10_000;
        let Self(real, own) = Self::now();
        real - self.0 - (own - self.1) > SHORT
    }
}

// Node exports libuv's functions to addons; their binary interface does not change within libuv 1.
unsafe extern "C" {
    fn uv_backend_timeout(uv_loop: *const sys::uv_loop_s) -> c_int;
    fn uv_handle_size(kind: c_int) -> usize;
    fn uv_handle_get_data(handle: *const Poll) -> *mut c_void;
    fn uv_handle_set_data(handle: *mut Poll, data: *mut c_void);
    fn uv_poll_init(uv_loop: *mut sys::uv_loop_s, handle: *mut Poll, fd: c_int) -> c_int;
    fn uv_poll_start(handle: *mut Poll, events: c_int, call: unsafe extern "C" fn(*mut Poll, c_int, c_int)) -> c_int;
    fn uv_check_init(uv_loop: *mut sys::uv_loop_s, handle: *mut Check) -> c_int;
    fn uv_check_start(handle: *mut Check, call: unsafe extern "C" fn(*mut Check)) -> c_int;
    fn uv_check_stop(handle: *mut Check) -> c_int;
    fn uv_prepare_init(uv_loop: *mut sys::uv_loop_s, handle: *mut Check) -> c_int;
    fn uv_prepare_start(handle: *mut Check, call: unsafe extern "C" fn(*mut Check)) -> c_int;
    fn uv_prepare_stop(handle: *mut Check) -> c_int;
    fn uv_close(handle: *mut Poll, call: Option<unsafe extern "C" fn(*mut Poll)>);
    fn uv_ref(handle: *mut Poll);
    fn uv_unref(handle: *mut Poll);
    fn uv_has_ref(handle: *const Poll) -> c_int;
}

/// A child whose end is reported to JavaScript.
pub(crate) struct Watch {
    env: sys::napi_env,
    /// By which JavaScript knows it.
    number: Cell<u32>,
    /// None when it has ended, or the environment has.
    child: RefCell<Option<Child>>,
    line: RefCell<Option<Line>>,
    /// The turns of the loop in which the message of the line's shell could not be written.
    turns: Cell<u32>,
    /// Noted for the end of this turn.
    is_due: Cell<bool>,
    /// So many turns pass before the end is reported. None: it has not been seen yet.
    turns_left: Cell<Option<u32>>,
    /// The exit code and the signal of a line, which has ended.
    result: Cell<Option<(i32, i32)>>,
    /// Null from the call of `uv_close` on.
    poll: Cell<*mut Poll>,
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

/// The watches of one environment of Node.
struct Registry {
    /// What reports the ends of a turn: a `uv_check_t`. Null until the first launch.
    check: *mut Check,
    /// What runs before the polls: a `uv_prepare_t`. Null until the first launch.
    prepare: *mut Check,
    /// When the polls of this turn began. None if they wait for nothing.
    turn: Option<Clocks>,
    /// The children that have ended in this turn.
    due: Vec<u32>,
    watches: HashMap<u32, Rc<Watch>>,
    /// The number of the watch that was made last.
    last: u32,
    /// What was launched last, until its exec is waited for.
    launched: Option<Launched>,
    /// Polls whose memory libuv still uses.
    closing: usize,
    /// Set when the environment ends: what must be told that nothing is left.
    ending: Option<sys::napi_async_cleanup_hook_handle>,
}

impl Default for Registry {
    fn default() -> Self {
        let (watches, due) = Default::default();
        let (check, prepare) = (null_mut(), null_mut());
        Self { check, prepare, turn: None, due, watches, last: 0, launched: None, closing: 0, ending: None }
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
    /// Watches a child, and returns the number of the watch. `kept` is called with the exit code, and the number of the signal that
    /// killed it or 0.
    ///
    /// # Errors
    /// When the loop cannot poll it. The child is then killed.
    pub(crate) fn start(env: sys::napi_env, child: Child, line: Option<Line>, kept: Kept) -> io::Result<u32> {
        let (child, line) = (RefCell::new(Some(child)), RefCell::new(line));
        let (number, turns, is_due, poll) = (Cell::new(0), Cell::new(0), Cell::new(false), Cell::new(null_mut()));
        let (turns_left, result) = Default::default();
        let watch =
            Rc::new(Self { env, number, child, line, turns, is_due, turns_left, result, poll, kept: Cell::new(None) });
        if let Err(error) = watch.poll() {
            if let Some(mut child) = watch.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
            return Err(error);
        }
        watch.kept.set(Some(kept));
        Ok(of(env, |registry| {
            // After two thousand million launches the numbers begin again.
            loop {
                registry.last = registry.last % HIGHEST + 1;
                if !registry.watches.contains_key(&registry.last) {
                    break;
                }
            }
            if registry.watches.is_empty() {
                registry.prepare(env);
            }
            watch.number.set(registry.last);
            registry.watches.insert(registry.last, Rc::clone(&watch));
            registry.last
        }))
    }

    fn poll(&self) -> io::Result<()> {
        let child = self.child.borrow();
        let pidfd = child.as_ref().and_then(Child::pidfd).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))?;
        let of_uv = |code: c_int| if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(()) };
        let uv_loop = loop_of(self.env).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: malloc of the size that libuv names; null is checked for.
        let poll: *mut Poll = unsafe { libc::malloc(uv_handle_size(UV_POLL)) }.cast();
        if poll.is_null() {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        // SAFETY: memory for a uv_poll_t, and the loop of this thread. The descriptor is open as long as the child's handle, which
        // is dropped only after uv_close, when libuv no longer uses it.
        if let Err(error) = of_uv(unsafe { uv_poll_init(uv_loop, poll, pidfd.as_raw_fd()) }) {
            // SAFETY: libuv has not taken it.
            unsafe { libc::free(poll.cast()) };
            return Err(error);
        }
        self.poll.set(poll);
        // SAFETY: an initialized handle. Its data is this watch, which the registry keeps until the poll is closed.
        let started = unsafe {
            uv_handle_set_data(poll, std::ptr::from_ref(self).cast_mut().cast());
            of_uv(uv_poll_start(poll, UV_READABLE, ended))
        };
        started.inspect_err(|_| self.close())
    }

    /// Ends the polling. Its memory is freed, and the watch forgotten, when libuv has no more use for it.
    fn close(&self) {
        let poll = self.poll.replace(null_mut());
        if poll.is_null() {
            return;
        }
        let owner = REGISTRIES.with_borrow_mut(|all| {
            let registry = all.get_mut(&self.env)?;
            let owner = registry.watches.remove(&self.number.get())?;
            registry.closing += 1;
            Some(owner)
        });
        let closing = Box::into_raw(Box::new(Closing { env: self.env, owner }));
        // SAFETY: an initialized handle that has not been closed, since `poll` held it. From here on its data is the box.
        unsafe {
            uv_handle_set_data(poll, closing.cast());
            uv_close(poll, Some(closed));
        }
    }

    /// Leaves the child alone: its end is not reported. It is reaped, when it has ended and something else is launched.
    pub(crate) fn leave(&self) {
        self.close();
        drop(self.child.take());
        if let Some(kept) = self.kept.take() {
            kept.forget(self.env);
        }
    }

    /// Reaps the child if it has ended, and returns its exit code and signal. None: not yet.
    fn reap(&self) -> Option<(i32, i32)> {
        match self.child.borrow_mut().as_mut().map_or(Ok(None), Child::try_wait) {
            Ok(None) => None,
            // The pidfd stays readable, so this is called again when the loop has read what is there.
            Ok(Some(status)) if self.waits_for_room(status) => None,
            Ok(Some(_)) if planted!("node-status-lost") => Some((0, 0)),
            Ok(Some(status)) => {
                let status = self.line.take().map_or(status, |line| line.end(status));
                Some((status.code().unwrap_or(0), status.signal().unwrap_or(0)))
            }
            // Another part of the process has reaped it.
            Err(error) => Some((-forkless::errno(&error).unwrap_or(libc::ECHILD), 0)),
        }
    }

    /// Whether the end is reported in this turn. `has_waited`: the loop has waited for events.
    fn is_over(&self, has_waited: bool) -> bool {
        let left = match self.turns_left.get() {
            Some(left) => left,
            None => {
                let is_line = self.line.borrow().is_some();
                if is_line {
                    // Its end of the standard error is closed now. JavaScript shall see that in the next turn, before the end.
                    let Some(result) = self.reap() else { return false };
                    self.result.set(Some(result));
                }
                if is_line { 2 } else { u32::from(has_waited) }
            }
        };
        self.turns_left.set(Some(left.saturating_sub(1)));
        left == 0
    }

    /// Reports the end of the child, if it has ended.
    fn look(&self) {
        self.is_due.set(false);
        let Some((code, signal)) = self.result.take().or_else(|| self.reap()) else { return };
        self.close();
        // libuv has no more use for the pidfd. It is closed before JavaScript is called, which may need the number for a launch.
        drop(self.child.take());
        if let Some(kept) = self.kept.take() {
            self.report(kept, code, signal);
            kept.forget(self.env);
        }
    }

    /// Has the line's program been killed while its standard error is full? A shell would wait until it is read. This gives up
    /// after a time, because JavaScript may never read it.
    fn waits_for_room(&self, status: ExitStatus) -> bool {
        const MOST: u32 = 1000;
        let waits = self.line.borrow().as_ref().is_some_and(|line| line.must_wait(status));
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
            let (mut on_exit, mut this, mut arguments) = (null_mut(), null_mut(), [null_mut(); 2]);
            sys::napi_get_reference_value(env, kept.on_exit, &raw mut on_exit);
            sys::napi_get_reference_value(env, kept.this, &raw mut this);
            sys::napi_create_int32(env, code, &raw mut arguments[0]);
            sys::napi_create_int32(env, signal, &raw mut arguments[1]);
            let is_whole = ![on_exit, this, arguments[0], arguments[1]].iter().any(|value| value.is_null());
            let mut result = null_mut();
            let status = if is_whole {
                let count = arguments.len();
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

    /// Does the child keep the loop alive?
    pub(crate) fn set_ref(&self, on: bool) {
        let poll = self.poll.get();
        if !poll.is_null() {
            // SAFETY: an open handle, in the thread of its loop.
            unsafe { if on { uv_ref(poll) } else { uv_unref(poll) } };
        }
    }

    pub(crate) fn has_ref(&self) -> bool {
        let poll = self.poll.get();
        // SAFETY: an open handle, in the thread of its loop.
        !poll.is_null() && unsafe { uv_has_ref(poll) } != 0
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

/// The data of a poll that is being closed.
struct Closing {
    env: sys::napi_env,
    /// The watch must outlive the poll.
    owner: Option<Rc<Watch>>,
}

/// Called by the loop when the pidfd is readable, or cannot be polled.
unsafe extern "C" fn ended(poll: *mut Poll, _status: c_int, _events: c_int) {
    // SAFETY: the data of an open poll is its watch, which the registry keeps.
    let watch: *const Watch = unsafe { uv_handle_get_data(poll) }.cast();
    // SAFETY: as above. The copy keeps it alive although JavaScript, which is called now, may do anything.
    let watch = unsafe {
        Rc::increment_strong_count(watch);
        Rc::from_raw(watch)
    };
    let has_waited = of(watch.env, |registry| registry.turn.is_some_and(Clocks::has_slept));
    let is_early = planted!("node-ends-before-data");
    if watch.is_due.get() || !is_early && !watch.is_over(has_waited) {
        return;
    }
    watch.is_due.set(true);
    let number = watch.number.get();
    if is_early || !of(watch.env, |registry| registry.note(number)) {
        watch.look();
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
    /// Makes the handles of this registry, and has the first one called. What fails has no effect but on the order of events.
    fn prepare(&mut self, env: sys::napi_env) {
        if self.check.is_null() {
            self.check = made(env, UV_CHECK, uv_check_init);
        }
        if self.prepare.is_null() {
            self.prepare = made(env, UV_PREPARE, uv_prepare_init);
        }
        if !self.prepare.is_null() {
            // SAFETY: an initialized handle, which does not keep the loop alive.
            unsafe {
                uv_unref(self.prepare.cast());
                uv_prepare_start(self.prepare, before_polls);
            }
        }
    }

    /// Has a child's end reported at the end of this turn of the loop. False if that cannot be.
    fn note(&mut self, number: u32) -> bool {
        // Each time again: libuv runs the one that was started last first, so before the callbacks of setImmediate.
        // SAFETY: an initialized handle that is not being closed.
        let is_started =
            !self.check.is_null() && (!self.due.is_empty() || unsafe { uv_check_start(self.check, reported) } >= 0);
        if is_started {
            self.due.push(number);
        }
        is_started
    }
}

/// A handle in the loop of an environment, which is its data. Null if that fails.
fn made(
    env: sys::napi_env,
    kind: c_int,
    init: unsafe extern "C" fn(*mut sys::uv_loop_s, *mut Check) -> c_int,
) -> *mut Check {
    let Some(uv_loop) = loop_of(env) else { return null_mut() };
    // SAFETY: malloc of the size that libuv names; null is checked for. Then memory for the handle, and the loop of this thread.
    unsafe {
        let handle: *mut Check = libc::malloc(uv_handle_size(kind)).cast();
        if handle.is_null() || init(uv_loop, handle) < 0 {
            libc::free(handle.cast());
            return null_mut();
        }
        uv_handle_set_data(handle.cast(), env.cast());
        handle
    }
}

/// The environment of a handle.
///
/// # Safety
/// A handle of [`made`] that has not been freed.
unsafe fn env_of(handle: *const Check) -> sys::napi_env {
    // SAFETY: the caller's promise.
    unsafe { uv_handle_get_data(handle.cast()) }.cast()
}

/// Called by the loop before the polls of a turn.
unsafe extern "C" fn before_polls(prepare: *mut Check) {
    // SAFETY: called for the handle of a registry, which is not freed before the environment ends.
    let env = unsafe { env_of(prepare) };
    // SAFETY: the loop of this thread.
    let waits = loop_of(env).is_some_and(|uv_loop| unsafe { uv_backend_timeout(uv_loop) } != 0);
    let has_children = of(env, |registry| {
        registry.turn = waits.then(Clocks::now);
        !registry.watches.is_empty()
    });
    if !has_children {
        // SAFETY: an initialized handle.
        unsafe { uv_prepare_stop(prepare) };
    }
}

/// Called by the loop after all polls of a turn. Children that have ended in the same turn are reported in the order of their
/// launches, as by libuv.
unsafe extern "C" fn reported(check: *mut Check) {
    // SAFETY: called for the handle of a registry, which is not freed before the environment ends.
    let env = unsafe {
        uv_check_stop(check);
        env_of(check)
    };
    let mut due = of(env, |registry| std::mem::take(&mut registry.due));
    due.sort_unstable();
    for number in due {
        with(env, number, Watch::look);
    }
}

/// Called by the loop when libuv has no more use for a handle of [`made`].
unsafe extern "C" fn made_closed(handle: *mut Poll) {
    // SAFETY: its data is still the environment; made by malloc, and the loop is done with it.
    let env = unsafe {
        let env = env_of(handle.cast());
        libc::free(handle.cast());
        env
    };
    one_closed(env);
}

/// Called by the loop when libuv has no more use for the poll.
unsafe extern "C" fn closed(poll: *mut Poll) {
    // SAFETY: the data of a closing poll is the box that `close` made.
    let closing = unsafe { Box::from_raw(uv_handle_get_data(poll).cast::<Closing>()) };
    // SAFETY: made by malloc, and the loop is done with it.
    unsafe { libc::free(poll.cast()) };
    let Closing { env, owner } = *closing;
    // A poll that could not be started has no owner, and is not counted.
    let Some(owner) = owner else { return };
    // The pidfd is closed now, and not when JavaScript collects what refers to the watch.
    drop(owner.child.take());
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
        let handles = [&mut registry.check, &mut registry.prepare].map(|handle| std::mem::replace(handle, null_mut()));
        for handle in handles.into_iter().filter(|handle| !handle.is_null()) {
            registry.closing += 1;
            // SAFETY: an initialized handle that has not been closed, since the registry held it.
            unsafe { uv_close(handle.cast(), Some(made_closed)) };
        }
        registry.watches.values().map(Rc::clone).collect::<Vec<_>>()
    });
    if !planted!("node-polls-left-open") {
        for watch in &open {
            watch.leave();
        }
    }
    let is_done = REGISTRIES.with_borrow(|all| all.get(&env).is_none_or(|registry| registry.closing == 0));
    if is_done {
        finish(env, handle);
    }
}

/// Nothing of the environment is left.
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
    // Too many open files is no answer; a launch will report that.
    matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}
