//! Warm programs: children without an exec. **Experimental**: the interface and the rules may change.
//!
//! Most of the time of a short program goes to exec, the dynamic loader and relocation, which are the same each time. A
//! [`Warm`] keeps, for each program that is launched through it, a *template*: the program itself, executed once and
//! stopped before its own code begins. A launch clones the template and gives the clone the arguments, environment,
//! descriptors and settings of the command.
//!
//! ```no_run
//! use forkless::{Command, warm::Warm};
//! let warm = Warm::new("/usr/lib/libforkless_warm.so")?;
//! let prepared = Command::new("/usr/bin/git").arg("--version").prepare()?;
//! for _ in 0..3 {
//!     let mut child = warm.spawn(&prepared)?; // the first one is cold, and starts the template
//!     println!("{}: {}", child.route(), child.cold_reason().unwrap_or("warm"));
//!     child.wait()?;
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A launch is warm only if all conditions hold. Otherwise the command is launched as always, and
//! [`Child::cold_reason`] names the first condition that does not hold. docs/warm.md lists the conditions, what a program
//! can notice, and what is missing.
//!
//! # Templates
//! A template is a child of the caller: `wait(2)` for any child sees its end, and it is killed when the caller ends. At
//! most 16 are kept; the one that was not used for the longest time makes room. Each is replaced after 100 launches or
//! 10 minutes. A [`Warm`] that is dropped ends its templates.

use crate::child::Child;
use crate::error::Error;
use crate::launch;
use crate::launch::run::{Cloner, Form, Run, Running};
use crate::pipes::Defaults;
use crate::plan::Plan;
use crate::prepared::Prepared;
use crate::process;
use crate::route::Route;
use crate::start::{Pidfd, Start};
use crate::step::Step;
use crate::wait::sigchld_discards;
use crate::zygote::helper::lock;
use crate::zygote::launch::{Again, Refused, attempt};
use files::Stamp;
use forkless_core::planted;
use request::Request;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};
use std::sync::{Arc, Mutex};
use template::Template;

mod request;

mod files;

mod caller;

mod watch;

mod template;

/// The number of templates that are kept.
const KEPT: usize = 16;

/// The number of programs whose refusal is remembered.
const REMEMBERED: usize = 256;

/// Why a launch is cold.
type Reason = Arc<str>;

/// What is known of a program with an environment.
enum Entry {
    Ready(Arc<Template>),
    /// It cannot be warm as long as its file is the same.
    Refused(Stamp, Reason),
}

/// What a [`Warm`] has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WarmStats {
    /// Launches from a template.
    pub warm: u64,
    /// Other launches.
    pub cold: u64,
    /// Templates that were started.
    pub starts: u64,
}

/// A set of templates; see the [module](self).
///
/// Any number of threads may use it at once. A forked copy of this process launches cold.
pub struct Warm {
    library: PathBuf,
    /// The [process](process::generation) that made it.
    owner: u32,
    entries: Mutex<HashMap<Vec<u8>, Entry>>,
    stats: Mutex<WarmStats>,
}

impl std::fmt::Debug for Warm {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Warm").field("library", &self.library).field("stats", &self.stats()).finish()
    }
}

impl Warm {
    /// Makes a set without templates. `library`: the absolute path of `libforkless_warm.so`.
    ///
    /// ```no_run
    /// let warm = forkless::warm::Warm::new("/usr/lib/libforkless_warm.so")?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` if the path is not absolute, or contains a character that separates the entries of `LD_PRELOAD`;
    /// `NotFound` if the file does not exist.
    pub fn new<P: AsRef<Path>>(library: P) -> io::Result<Self> {
        use std::os::unix::ffi::OsStrExt;
        let is_absolute = library.as_ref().is_absolute();
        // As `/proc/PID/maps` shows it.
        let library = std::fs::canonicalize(library)?;
        let separates = |byte: &u8| matches!(byte, b' ' | b':' | b'$' | b'\n');
        if !is_absolute || library.as_os_str().as_bytes().iter().any(separates) {
            let why = "the library's path must be absolute, without spaces, line feeds, colons and dollar signs";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Self {
            library,
            owner: process::generation(),
            entries: Mutex::new(HashMap::new()),
            stats: Mutex::new(WarmStats::default()),
        })
    }

    /// Starts a child, like [`Prepared::spawn`]: returns when the program has been executed, or its clone has begun to run
    /// it. After the first launch of a program the call starts the template too, which takes some milliseconds.
    ///
    /// ```no_run
    /// # let warm = forkless::warm::Warm::new("/usr/lib/libforkless_warm.so")?;
    /// let mut child = warm.spawn(&forkless::Command::new("true").prepare()?)?;
    /// assert!(child.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Prepared::spawn`]. A template that fails makes the launch cold.
    pub fn spawn(&self, prepared: &Prepared) -> io::Result<Child> {
        self.begin(prepared, Defaults::Inherit)
    }

    /// Runs a program to its end, and returns its exit status, like [`Prepared::status`].
    ///
    /// ```no_run
    /// # let warm = forkless::warm::Warm::new("/usr/lib/libforkless_warm.so")?;
    /// assert!(warm.status(&forkless::Command::new("true").prepare()?)?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn status(&self, prepared: &Prepared) -> io::Result<ExitStatus> {
        self.spawn(prepared)?.wait()
    }

    /// Runs a program to its end, and returns what it wrote, like [`Prepared::output`].
    ///
    /// ```no_run
    /// # let warm = forkless::warm::Warm::new("/usr/lib/libforkless_warm.so")?;
    /// let output = warm.output(&forkless::Command::new("echo").arg("hello").prepare()?)?;
    /// assert_eq!(output.stdout, b"hello\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn output(&self, prepared: &Prepared) -> io::Result<Output> {
        self.begin(prepared, Defaults::Capture)?.wait_with_output()
    }

    /// What it has done so far.
    ///
    /// ```no_run
    /// # let warm = forkless::warm::Warm::new("/usr/lib/libforkless_warm.so")?;
    /// let stats = warm.stats();
    /// println!("{} of {} launches were warm", stats.warm, stats.warm + stats.cold);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stats(&self) -> WarmStats {
        *lock(&self.stats)
    }

    /// The PIDs of the templates.
    ///
    /// ```no_run
    /// # let warm = forkless::warm::Warm::new("/usr/lib/libforkless_warm.so")?;
    /// println!("{:?}", warm.templates());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn templates(&self) -> Vec<u32> {
        if self.owner != process::generation() {
            return Vec::new();
        }
        let entries = lock(&self.entries);
        let ready = entries.values().filter_map(|entry| match entry {
            Entry::Ready(template) => Some(template.helper.pid as u32),
            Entry::Refused(..) => None,
        });
        ready.collect()
    }

    fn begin(&self, prepared: &Prepared, defaults: Defaults<'_>) -> io::Result<Child> {
        let plan = prepared.plan();
        let pidfd = Pidfd::Unless(!matches!(defaults, Defaults::Capture) || sigchld_discards());
        let request = self.request(plan);
        let attempt = Attempt { warm: self, request: request.as_ref(), reason: RefCell::new(None) };
        let mut child = Start { form: Form::Spawn, defaults, pidfd, cloner: Some(&attempt) }.child(plan)?;
        let cold = attempt.reason.into_inner();
        let mut stats = lock(&self.stats);
        stats.warm += u64::from(cold.is_none());
        stats.cold += u64::from(cold.is_some());
        drop(stats);
        if let Some(Cold { reason, starts }) = cold {
            child.set_cold(reason);
            if let (true, Ok(request)) = (starts, &request) {
                self.start(request);
            }
        }
        Ok(child)
    }

    /// What a launch needs of a template. The error is the reason why the launch is cold.
    fn request(&self, plan: &Plan) -> Result<Request, Reason> {
        if self.owner != process::generation() {
            return Err("this process is a copy of the one that has the templates".into());
        }
        Request::of(plan)
    }

    /// The template for a launch, if it may be used.
    fn template(&self, request: &Request) -> Result<Arc<Template>, Cold> {
        let mut entries = lock(&self.entries);
        let why = match entries.get(&request.key) {
            None => return Err(Cold::first("the template was not started yet")),
            Some(Entry::Refused(stamp, reason)) => match stamp.is_current() {
                true => return Err(Cold::for_now(Arc::clone(reason))),
                false => "the program's file has changed",
            },
            Some(Entry::Ready(template)) => match template.is_usable() {
                Ok(()) => return Ok(Arc::clone(template)),
                Err(why) => why,
            },
        };
        let old = entries.remove(&request.key);
        drop(entries);
        // Ends the template without the lock.
        drop(old);
        Err(Cold::first(why))
    }

    /// Forgets a template that cannot be used any more. Another thread may have replaced it.
    fn discard(&self, request: &Request, template: &Arc<Template>) {
        let mut entries = lock(&self.entries);
        let is_it = |entry: &Entry| matches!(entry, Entry::Ready(current) if Arc::ptr_eq(current, template));
        let old = if entries.get(&request.key).is_some_and(is_it) { entries.remove(&request.key) } else { None };
        drop(entries);
        drop(old);
    }

    /// Starts the template for later launches like this one.
    fn start(&self, request: &Request) {
        let entry = match Template::start(request, &self.library) {
            Ok(template) => Entry::Ready(Arc::new(template)),
            Err(template::Refusal::Lasting(stamp, reason)) => Entry::Refused(stamp, reason),
            // The next launch tries again.
            Err(template::Refusal::Now) => return,
        };
        let started = matches!(entry, Entry::Ready(_));
        let mut entries = lock(&self.entries);
        let mut old = vec![];
        if started {
            while entries.values().filter(|entry| matches!(entry, Entry::Ready(_))).count() >= KEPT {
                let used = |entry: &Entry| match entry {
                    Entry::Ready(template) => Some(template.last_used()),
                    Entry::Refused(..) => None,
                };
                let oldest = entries.iter().filter_map(|(key, entry)| Some((used(entry)?, key.clone()))).min();
                let Some((_, key)) = oldest else { break };
                old.extend(entries.remove(&key));
            }
        } else if entries.len() >= REMEMBERED {
            entries.retain(|_, entry| matches!(entry, Entry::Ready(_)));
        }
        old.extend(entries.insert(request.key.clone(), entry));
        drop(entries);
        drop(old);
        lock(&self.stats).starts += u64::from(started);
    }
}

/// Why a launch is cold, and whether a template is to be started for later ones.
struct Cold {
    reason: Reason,
    starts: bool,
}

impl Cold {
    fn first(reason: &str) -> Self {
        Self { reason: reason.into(), starts: true }
    }

    fn for_now(reason: Reason) -> Self {
        Self { reason, starts: false }
    }
}

/// One launch: warm if it may be, and cold otherwise.
struct Attempt<'a> {
    warm: &'a Warm,
    request: Result<&'a Request, &'a Reason>,
    reason: RefCell<Option<Cold>>,
}

impl Cloner for Attempt<'_> {
    fn launch(&self, plan: &Plan, run: &Run<'_>) -> Result<Running, Error> {
        match self.by_template(plan, run) {
            Ok(answer) => answer,
            Err(cold) => {
                *self.reason.borrow_mut() = Some(cold);
                launch::run(plan, &Run { cloner: None, ..*run })
            }
        }
    }
}

impl Attempt<'_> {
    /// A launch from the template. The outer error: why it must be cold.
    fn by_template(&self, plan: &Plan, run: &Run<'_>) -> Result<Result<Running, Error>, Cold> {
        let request = self.request.map_err(|reason| Cold::for_now(Arc::clone(reason)))?;
        let template = self.warm.template(request)?;
        if let Err(why) = template.suits_caller() {
            if !planted!("warm-caller-not-compared") {
                self.warm.discard(request, &template);
                return Err(Cold::first(why));
            }
        }
        template.note_use();
        match attempt(plan, run, &[], &template.helper) {
            Ok(running) => Ok(Ok(Running { route: Route::Warm, ..running })),
            // No step of the plan was made: the launch can be made in another way, which also finds the right error.
            Err(Refused::Error(error)) if matches!(error.step(), Step::Zygote | Step::Adopt | Step::Clone) => {
                self.warm.discard(request, &template);
                Err(Cold::first("the template could not make the child"))
            }
            Err(Refused::Error(error)) => Ok(Err(error)),
            Err(Refused::Again(again)) => {
                self.warm.discard(request, &template);
                Err(Cold::first(match again {
                    Again::Died(_) => "the template has ended",
                    Again::Differs(what) => what,
                }))
            }
        }
    }
}
