//! The templates of a [`Warm`](super::Warm), and the threads that start and end them.
//!
//! Each template has a *guard*: a thread that is started by the launch that found no template. It starts the template,
//! sleeps as long as the template is of use, and then until the last child of the template has ended.
//!
//! - The guard clones the template, and the template is killed when the guard ends (`prctl(2)` PR_SET_PDEATHSIG): so no
//!   template outlives its process, however that ends, and none outlives its guard.
//! - For the kernel the guard is also the parent of the template's children (CLONE_PARENT). A child that has asked for a
//!   parent-death signal itself would get it when the guard ends: so the guard ends after them.
//! - A thread has the ids, namespaces, filters and other attributes of the thread that has started it, and so has the
//!   template: they are those of the launch, also if threads of this process differ.
//! - It blocks all signals, so no handler of the process runs on it. It holds no lock while it starts the template.
//! - A forked copy of this process has no guards, and launches cold.
//!
//! A launch by a template that is near its end starts the *successor*, with a guard of its own. When the successor is ready,
//! it takes the template's place in the set, and the template ends.

use super::ColdReason;
use super::files::Stamp;
use super::library::Library;
use super::options::Limits;
use super::request::TemplateRequest;
use super::template::{Refusal, Template};
use crate::launch::creator::{outlive_children, starting_thread};
use crate::launch::run::Origin;
use crate::process;
use crate::zygote::helper::lock;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// The number of programs whose refusal is remembered.
const REMEMBERED: usize = 256;

/// The time before a start is tried again that failed for a passing reason.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a caller waits for a template: more than the timeouts of the watch and of the start together. A debugger that
/// attaches at the wrong moment stops the guard for ever.
const PATIENCE: Duration = Duration::from_secs(45);

/// How often a guard continues its template, which may have been stopped. Nothing else would notice a stop between its
/// clone and the close of its copies of the child's pipes, and a reader of these pipes would wait for their end.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The number of launches in a row with other attributes after which a template is replaced.
const MISFITS: u32 = 16;

/// The stack size of guards in bytes: enough for two launches.
const STACK: usize = 256 * 1024;

/// What is known of a program with an environment.
enum TemplateEntry {
    /// Its guard is starting it.
    Starting,
    Ready(Arc<Template>),
    /// It could not be started for a reason that may pass.
    Later(Instant, &'static str),
}

#[derive(Default)]
struct SetState {
    entries: HashMap<Vec<u8>, TemplateEntry>,
    /// Programs that cannot be warm as long as their file is the same.
    refused: HashMap<Vec<u8>, (Stamp, ColdReason)>,
    /// Its owner has dropped it.
    is_closed: bool,
}

/// What a [`Warm`](super::Warm) has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WarmStats {
    /// Launches from a template.
    pub warm: u64,
    /// Other launches.
    pub cold: u64,
    /// Templates that were started.
    pub starts: u64,
    /// Programs that cannot have a template.
    pub refusals: u64,
    /// Templates that were ended because they were idle.
    pub idle: u64,
    /// Templates that were ended because a child crashed: SIGSEGV, SIGABRT, SIGBUS or SIGILL.
    pub crashes: u64,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) warm: AtomicU64,
    pub(super) cold: AtomicU64,
    starts: AtomicU64,
    refusals: AtomicU64,
    idle: AtomicU64,
    crashes: AtomicU64,
}

impl Counts {
    pub(super) fn add(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) struct Set {
    pub(super) library: Library,
    limits: Limits,
    /// The [process](process::generation) that made it.
    owner: u32,
    state: Mutex<SetState>,
    /// An entry has changed.
    changed: Condvar,
    pub(super) counts: Counts,
}

/// Why a launch is cold, and whether a template is to be started for later ones.
pub(super) struct Cold {
    pub(super) reason: ColdReason,
    pub(super) starts: bool,
    /// The template that could not make the child. If the cold launch succeeds, the template was at fault.
    pub(super) blamed: Option<Arc<Template>>,
}

impl Cold {
    pub(super) fn first(reason: &str) -> Self {
        Self { reason: reason.into(), starts: true, blamed: None }
    }

    pub(super) fn for_now(reason: impl Into<ColdReason>) -> Self {
        Self { reason: reason.into(), starts: false, blamed: None }
    }
}

impl Set {
    pub(super) fn new(library: Library, limits: Limits) -> Self {
        Self {
            library,
            limits,
            owner: process::generation(),
            state: Mutex::default(),
            changed: Condvar::new(),
            counts: Counts::default(),
        }
    }

    /// Whether this process is a forked copy of the one that has the templates. Its locks may then stay locked forever.
    pub(super) fn is_copy(&self) -> bool {
        self.owner != process::generation()
    }

    pub(super) fn stats(&self) -> WarmStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        WarmStats {
            warm: of(&counts.warm),
            cold: of(&counts.cold),
            starts: of(&counts.starts),
            refusals: of(&counts.refusals),
            idle: of(&counts.idle),
            crashes: of(&counts.crashes),
        }
    }

    /// The PIDs of the templates.
    pub(super) fn templates(&self) -> Vec<u32> {
        if self.is_copy() {
            return Vec::new();
        }
        let state = lock(&self.state);
        let ready = state.entries.values().filter_map(|entry| match entry {
            TemplateEntry::Ready(template) => Some(template.helper.pid as u32),
            _ => None,
        });
        ready.collect()
    }

    /// Why this program can have no template, if that is known. Must be cheap: it runs at each launch of a program that
    /// cannot be warm.
    pub(super) fn refusal(&self, program: &[u8]) -> Option<ColdReason> {
        if self.limits.templates == 0 {
            return Some("no templates are configured".into());
        }
        let mut state = lock(&self.state);
        let (stamp, reason) = state.refused.get(program)?;
        if stamp.is_current() {
            return Some(Arc::clone(reason));
        }
        state.refused.remove(program);
        None
    }

    /// The template for a launch, if it may be used.
    pub(super) fn template(&self, request: &TemplateRequest) -> Result<Arc<Template>, Cold> {
        let mut state = lock(&self.state);
        let template = match state.entries.get(&request.key) {
            None => return Err(Cold::first("the template was not started yet")),
            Some(TemplateEntry::Starting) => return Err(Cold::for_now("the template is being started")),
            Some(TemplateEntry::Later(when, why)) if Instant::now() < *when => return Err(Cold::for_now(*why)),
            Some(&TemplateEntry::Later(_, why)) => {
                state.entries.remove(&request.key);
                return Err(Cold::first(why));
            }
            Some(TemplateEntry::Ready(template)) => Arc::clone(template),
        };
        drop(state);
        if let Err(why) = template.is_usable(&self.limits) {
            self.discard(&template);
            return Err(Cold::first(why));
        }
        Ok(template)
    }

    /// Removes a template from the set. Returns false if another thread has done so before.
    pub(super) fn discard(&self, template: &Arc<Template>) -> bool {
        let mut state = lock(&self.state);
        let is_it =
            |entry: &TemplateEntry| matches!(entry, TemplateEntry::Ready(current) if Arc::ptr_eq(current, template));
        let key = state.entries.iter().find(|(_, entry)| is_it(entry)).map(|(key, _)| key.clone());
        let old = key.and_then(|key| state.entries.remove(&key));
        drop(state);
        self.changed.notify_all();
        // Dropped without the lock: the last owner ends the template and waits for that.
        old.is_some()
    }

    /// A launch whose caller has other attributes than the template was started with. If many in a row have, the template is
    /// replaced. Not at once: threads of this process with different attributes may launch in turn.
    pub(super) fn differs(&self, template: &Arc<Template>, why: &str) -> Cold {
        if template.note_misfit() < MISFITS {
            return Cold::for_now(why);
        }
        self.discard(template);
        Cold::first(why)
    }

    /// Starts the template for later launches like this one, on a thread of its own.
    pub(super) fn start(self: &Arc<Self>, request: TemplateRequest) {
        let key = request.key.clone();
        let mut state = lock(&self.state);
        let is_known = match state.entries.get(&key) {
            None => false,
            Some(TemplateEntry::Later(when, _)) => Instant::now() < *when,
            Some(_) => true,
        };
        let starting = state.entries.values().filter(|entry| matches!(entry, TemplateEntry::Starting)).count();
        if is_known || state.is_closed || starting >= self.limits.templates {
            return;
        }
        state.entries.insert(key.clone(), TemplateEntry::Starting);
        drop(state);
        if !self.start_guard(request, true) {
            self.put(&key, TemplateEntry::Later(Instant::now() + PAUSE, "no thread could be started"));
        }
    }

    /// Starts the successor of the template that has made a launch like this one, if that is near its end. If it cannot be
    /// started, the template serves to its end, and the launch after that starts the next one.
    pub(super) fn succeed(self: &Arc<Self>, template: &Template, request: TemplateRequest) {
        if template.claim_successor(&self.limits) {
            self.start_guard(request, false);
        }
    }

    /// Starts a guard. Returns false if no thread could be started.
    fn start_guard(self: &Arc<Self>, request: TemplateRequest, is_first: bool) -> bool {
        let set = Arc::clone(self);
        let builder = thread::Builder::new().name("forkless-warm".into()).stack_size(STACK);
        let work = move || {
            set.guard(&request, is_first);
            drop(request);
            // Neither the template, which a launch may be using at this moment, nor its children must get the signal.
            outlive_children();
        };
        starting_thread(|| builder.spawn(work)).is_ok()
    }

    /// Starts the template, and waits until it is ready. The error: why there is none.
    pub(super) fn start_and_wait(self: &Arc<Self>, request: TemplateRequest) -> Result<(), ColdReason> {
        let (key, program) = (request.key.clone(), request.program().as_os_str().as_bytes().to_vec());
        let mut state = lock(&self.state);
        if let Some(TemplateEntry::Later(..)) = state.entries.get(&key) {
            state.entries.remove(&key);
        }
        drop(state);
        self.start(request);
        let deadline = Instant::now() + PATIENCE;
        let mut state = lock(&self.state);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match state.entries.get(&key) {
                Some(TemplateEntry::Ready(_)) => return Ok(()),
                Some(TemplateEntry::Starting) if left.is_zero() => return Err("the template is being started".into()),
                Some(TemplateEntry::Starting) => {
                    state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                }
                Some(TemplateEntry::Later(_, why)) => return Err((*why).into()),
                None => {
                    let refused = state.refused.get(&program).map(|(_, reason)| Arc::clone(reason));
                    return Err(refused.unwrap_or_else(|| "the template has ended".into()));
                }
            }
        }
    }

    /// The work of a guard. `is_first`: its template succeeds no other one.
    fn guard(self: Arc<Self>, request: &TemplateRequest, is_first: bool) {
        let program = request.program().as_os_str().as_bytes();
        match Template::start(request, &self.library, &self.limits) {
            Ok(template) => {
                let template = Arc::new(template);
                // Not an owner: the template ends where it is forgotten.
                let known = Arc::downgrade(&template);
                Counts::add(&self.counts.starts);
                if self.put(&request.key, TemplateEntry::Ready(template)) {
                    self.watch_over(&request.key, &known);
                }
            }
            Err(Refusal::Lasting(stamp, reason)) => {
                Counts::add(&self.counts.refusals);
                let mut state = lock(&self.state);
                if state.refused.len() >= REMEMBERED {
                    state.refused.clear();
                }
                state.refused.insert(program.to_vec(), (stamp, reason));
                let old = state.entries.remove(&request.key);
                drop(state);
                drop(old);
                self.changed.notify_all();
            }
            Err(Refusal::Now(why)) if is_first => {
                self.put(&request.key, TemplateEntry::Later(Instant::now() + PAUSE, why));
            }
            Err(Refusal::Now(_)) => {}
        }
    }

    /// Replaces the entry of a start, and makes room for a template. Returns whether the set is still open.
    fn put(&self, key: &[u8], entry: TemplateEntry) -> bool {
        let mut state = lock(&self.state);
        let is_open = !state.is_closed;
        let mut old = vec![];
        if is_open {
            // Its predecessor first, so that no other program's template makes room for it.
            old.extend(state.entries.remove(key));
            if matches!(entry, TemplateEntry::Ready(_)) {
                old.extend(state.make_room(self.limits.templates));
            }
            let now = Instant::now();
            state.entries.retain(|_, entry| !matches!(entry, TemplateEntry::Later(when, _) if *when < now));
            state.entries.insert(key.to_vec(), entry);
        }
        drop(state);
        self.changed.notify_all();
        drop(old);
        is_open
    }

    /// Sleeps until the template is of no use: another thread has forgotten it, it is idle, or old.
    fn watch_over(&self, key: &[u8], template: &Weak<Template>) {
        let mut state = lock(&self.state);
        loop {
            let current = match state.entries.get(key) {
                Some(TemplateEntry::Ready(current)) if std::ptr::eq(Arc::as_ptr(current), template.as_ptr()) => current,
                _ => break,
            };
            let idle = self.limits.idle.saturating_sub(current.last_used().elapsed());
            let left = idle.min(self.limits.life.saturating_sub(current.age()));
            if left.is_zero() {
                let old = state.entries.remove(key);
                drop(state);
                drop(old);
                if idle.is_zero() {
                    Counts::add(&self.counts.idle);
                }
                return;
            }
            current.helper.go_on();
            // Not less, so that a clock that stands cannot keep the guard busy.
            let left = left.clamp(Duration::from_millis(1), POLL_INTERVAL);
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends all templates.
    pub(super) fn close(&self) {
        if self.is_copy() {
            return;
        }
        let mut state = lock(&self.state);
        state.is_closed = true;
        let old = std::mem::take(&mut state.entries);
        drop(state);
        drop(old);
        self.changed.notify_all();
    }
}

impl SetState {
    /// Removes templates until there is room for one more: first those that were not used for the longest time.
    fn make_room(&mut self, most: usize) -> Vec<TemplateEntry> {
        let mut old = vec![];
        let used = |entry: &TemplateEntry| match entry {
            TemplateEntry::Ready(template) => Some(template.last_used()),
            _ => None,
        };
        while self.entries.values().filter_map(used).count() >= most {
            let oldest = self.entries.iter().filter_map(|(key, entry)| Some((used(entry)?, key.clone()))).min();
            let Some((_, key)) = oldest else { break };
            old.extend(self.entries.remove(&key));
        }
        old
    }
}

/// Where a child comes from.
pub(super) enum ChildSource {
    Cold(ColdReason),
    Template(Weak<Set>, Weak<Template>),
}

impl std::fmt::Debug for ChildSource {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Cold(reason) => reason,
            Self::Template(..) => "a template",
        })
    }
}

impl Origin for ChildSource {
    fn cold_reason(&self) -> Option<&str> {
        match self {
            Self::Cold(reason) => Some(reason),
            Self::Template(..) => None,
        }
    }

    /// Ends the template if the child has crashed: an attacker that can make a program crash and try again must not find
    /// the same layout of memory.
    fn child_ended(&self, status: ExitStatus) {
        use std::os::unix::process::ExitStatusExt;
        const SIGILL: i32 = 4;
        const SIGABRT: i32 = 6;
        const SIGBUS: i32 = 7;
        const SIGSEGV: i32 = 11;
        let Self::Template(set, template) = self else { return };
        let has_crashed = matches!(status.signal(), Some(SIGILL | SIGABRT | SIGBUS | SIGSEGV));
        if !has_crashed {
            return;
        }
        if let (Some(set), Some(template)) = (set.upgrade(), template.upgrade()) {
            if !set.is_copy() && set.discard(&template) {
                Counts::add(&set.counts.crashes);
            }
        }
    }
}
