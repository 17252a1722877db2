//! A zygote: a small helper process that clones children in the caller's place.
//!
//! A child of [`Command::spawn`](crate::Command::spawn) runs in the caller's memory for some microseconds. Where that must not
//! be (memory that no other process may ever see, a host that forbids it), where code of one's own has to run between clone and
//! exec, or where descriptors have to be passed by a process that has a hundred thousand of them, a [`Zygote`] launches
//! instead: it is sent the plan and the descriptors, and clones with `CLONE_PARENT`. So the child is the *caller's* child,
//! with the same [`Child`] as any.
//!
//! ```standalone_crate
//! use forkless::zygote::{Registry, Zygote, ZygoteOptions, serve_if_asked};
//! use forkless::{Command, Stdio};
//!
//! fn main() -> std::io::Result<()> {
//!     let mut functions = Registry::new();
//!     functions.add("say", |text| std::io::Write::write_all(&mut std::io::stdout(), text));
//!     serve_if_asked(&functions);
//!
//!     let zygote = Zygote::start(&ZygoteOptions::new())?;
//!     let prepared = Command::new("echo").arg("hello").stdout(Stdio::piped()).prepare()?;
//!     assert_eq!(zygote.output(&prepared)?.stdout, b"hello\n");
//!
//!     let child = zygote.spawn_with(&prepared, &[("say", b"before\n")])?;
//!     assert_eq!(child.wait_with_output()?.stdout, b"before\nhello\n");
//!     Ok(())
//! }
//! ```
//!
//! # Which program the helper is
//! The caller's own, executed once more through `/proc/self/exe`: never a copy of the caller, which may be large and have many
//! threads, and which a fork would copy both of. That is why [`serve_if_asked`] stands first in `main`. A host that cannot call it
//! there (a scripting language, a library in somebody else's program) names another program that does:
//! [`ZygoteOptions::program`]; the command `forkless zygote` is one, without functions.
//!
//! # What the child starts from
//! The same as after [`Command::spawn`](crate::Command::spawn): the calling thread's directory, umask, standard streams,
//! environment, signal mask, ignored signals, limits, process group, nice value, scheduling and processors are sent with each
//! launch. What no process can give another (ids, capabilities, namespaces, root, session, control group, seccomp filters,
//! oom_score_adj) is compared at each launch, while the child is being made; where it differs the helper is started anew, from
//! the caller as it is now, and if it still differs the launch is refused with the first difference named.
//!
//! # What differs from `Command::spawn`
//! - The kernel gives a child that a brother has cloned the brother's exit signal, SIGCHLD. So a launch that fails is seen by
//!   SIGCHLD handlers and by `waitpid(-1)`.
//! - [`inherit_all`](crate::Command::inherit_all) and [`thread_death_signal`](crate::Command::thread_death_signal) are refused:
//!   the helper has neither the caller's descriptors nor its threads.
//! - The helper is a child of the caller: a `waitpid(-1)` sees it when it ends.
//! - `/proc` has to be there.

use crate::child::Child;
use crate::launch::run::Form;
use crate::pipes::Defaults;
use crate::prepared::Prepared;
use crate::process;
use crate::start::{Pidfd, Start};
use crate::wait::sigchld_discards;
use forkless_core::planted;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

mod message;

mod inherited;

mod namespaces;

mod helper;

mod launch;

mod registry;

mod parcel;

mod server;

use helper::{Helper, lock};
#[cfg(any(test, fuzzing))]
pub(crate) use parcel::fuzzed;
pub use registry::Registry;
pub use server::serve_if_asked;

/// What becomes of launches when the helper has been killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Restart {
    /// Another helper is started, and the launch is made by that one.
    #[default]
    Always,
    /// The launch and all further ones are an error.
    Never,
}

/// How a [`Zygote`] is started.
#[derive(Debug, Clone, Default)]
pub struct ZygoteOptions {
    source: Source,
    args: Vec<OsString>,
    restart: Restart,
}

#[derive(Debug, Clone, Default)]
enum Source {
    #[default]
    Own,
    Program(PathBuf),
}

impl ZygoteOptions {
    /// The caller's own program, restarted when killed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Another program as the helper: one that calls [`serve_if_asked`].
    pub fn program<P: AsRef<Path>>(&mut self, program: P) -> &mut Self {
        self.source = Source::Program(program.as_ref().to_owned());
        self
    }

    /// An argument for the helper's program, such as `zygote` for the command `forkless`.
    pub fn arg<S: Into<OsString>>(&mut self, arg: S) -> &mut Self {
        self.args.push(arg.into());
        self
    }

    /// What to do when the helper has been killed. A helper is started anew also where the caller has become something else,
    /// whatever is said here.
    pub fn restart(&mut self, restart: Restart) -> &mut Self {
        self.restart = restart;
        self
    }
}

/// What a [`Zygote`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ZygoteStats {
    /// Children that were made.
    pub launches: u64,
    /// Helpers that were started, the first one too.
    pub starts: u64,
    /// How many of these because one had ended.
    pub deaths: u64,
}

/// A helper process that launches in the caller's place; see the [module](self).
///
/// It may be used by any number of threads at once. When it is dropped the helper ends and is waited for; children go on.
///
/// If this process ends or executes another program, the helper ends too. A forked copy of this process cannot use it, and is
/// told so by an error; as long as a forked copy lives that has its end of the socket, a helper does not notice an exec.
#[derive(Debug)]
pub struct Zygote {
    options: ZygoteOptions,
    /// The [process](process::generation) that started it.
    owner: u32,
    state: Mutex<State>,
    launches: AtomicU64,
    starts: AtomicU64,
    deaths: AtomicU64,
}

struct State {
    helper: Option<Arc<Helper>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("State").field("helper", &self.helper.as_ref().map(|helper| helper.pid)).finish()
    }
}

/// A launch for a zygote.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) zygote: &'a Zygote,
    pub(crate) calls: &'a [(&'a str, &'a [u8])],
}

impl Zygote {
    /// Starts the helper and waits until it serves.
    ///
    /// # Errors
    /// The start of the program; `InvalidInput` if this program is to be the helper and has not called [`serve_if_asked`];
    /// `PermissionDenied` if the program is given privileges when it is executed; `TimedOut` if it does not serve within 20
    /// seconds.
    pub fn start(options: &ZygoteOptions) -> io::Result<Self> {
        if matches!(options.source, Source::Own) && !server::has_asked() {
            let why = "the helper is this program, which has not called forkless::zygote::serve_if_asked first in main";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let helper = Some(Arc::new(Helper::start(options)?));
        Ok(Self {
            options: options.clone(),
            owner: process::generation(),
            state: Mutex::new(State { helper }),
            launches: AtomicU64::new(0),
            starts: AtomicU64::new(1),
            deaths: AtomicU64::new(0),
        })
    }

    /// As [`Prepared::launch`], by the helper: returns as soon as the child exists.
    ///
    /// # Errors
    /// As there; [`Step::Zygote`](crate::Step::Zygote) if the helper cannot do it, or has ended and is not started anew.
    pub fn launch(&self, prepared: &Prepared) -> io::Result<Child> {
        self.launch_with(prepared, &[])
    }

    /// As [`Prepared::spawn`], by the helper: returns when the program has been executed.
    ///
    /// # Errors
    /// As for [`launch`](Self::launch).
    pub fn spawn(&self, prepared: &Prepared) -> io::Result<Child> {
        self.spawn_with(prepared, &[])
    }

    /// As [`launch`](Self::launch); right before exec the child calls these functions of the helper's [`Registry`], in this
    /// order, each with its bytes.
    ///
    /// The child is then a copy of the helper, with memory of its own: some 100 µs more.
    ///
    /// # Errors
    /// As for [`launch`](Self::launch), and [`Step::Function`](crate::Step::Function), with the function's name: at once if
    /// there is none of that name; from [`Child::wait_exec`] and [`Child::wait`] if it failed, panicked or ended the process.
    pub fn launch_with(&self, prepared: &Prepared, calls: &[(&str, &[u8])]) -> io::Result<Child> {
        self.begin(prepared, calls, Form::Launch, Defaults::Inherit)
    }

    /// As [`launch_with`](Self::launch_with), but returns when the program has been executed.
    ///
    /// # Errors
    /// As there, and all at once.
    pub fn spawn_with(&self, prepared: &Prepared, calls: &[(&str, &[u8])]) -> io::Result<Child> {
        self.begin(prepared, calls, Form::Spawn, Defaults::Inherit)
    }

    /// As [`Prepared::status`], by the helper: runs the program to its end.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn status(&self, prepared: &Prepared) -> io::Result<ExitStatus> {
        self.spawn(prepared)?.wait()
    }

    /// As [`Prepared::output`], by the helper.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn output(&self, prepared: &Prepared) -> io::Result<Output> {
        self.begin(prepared, &[], Form::Spawn, Defaults::Capture)?.wait_with_output()
    }

    fn begin(
        &self,
        prepared: &Prepared,
        calls: &[(&str, &[u8])],
        form: Form,
        defaults: Defaults<'_>,
    ) -> io::Result<Child> {
        let plan = prepared.plan();
        let pidfd = Pidfd::Unless(!matches!(defaults, Defaults::Capture) || sigchld_discards());
        let request = Request { zygote: self, calls };
        let child = Start { form, defaults, pidfd, cloner: Some(&request) }.child(plan)?;
        self.launches.fetch_add(1, Ordering::Relaxed);
        Ok(child)
    }

    /// The helper's process id; none while there is no helper.
    pub fn pid(&self) -> Option<u32> {
        let helper = if self.owner == process::generation() { lock(&self.state).helper.clone() } else { None };
        helper.map(|helper| helper.pid as u32)
    }

    /// What it has done so far.
    pub fn stats(&self) -> ZygoteStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ZygoteStats { launches: read(&self.launches), starts: read(&self.starts), deaths: read(&self.deaths) }
    }

    /// The helper. The error is for the user.
    pub(crate) fn helper(&self) -> Result<Arc<Helper>, String> {
        if self.owner != process::generation() && !planted!("zygote-of-another-process") {
            return Err("it belongs to the process of which this one is a forked copy".into());
        }
        let mut state = lock(&self.state);
        if let Some(helper) = &state.helper {
            return Ok(Arc::clone(helper));
        }
        if self.options.restart == Restart::Never && self.deaths.load(Ordering::Relaxed) > 0 {
            return Err("it has ended, and is not to be started anew".into());
        }
        let helper = Helper::start(&self.options).map_err(|error| format!("it could not be started anew: {error}"))?;
        let helper = Arc::new(helper);
        self.starts.fetch_add(1, Ordering::Relaxed);
        state.helper = Some(Arc::clone(&helper));
        Ok(helper)
    }

    /// This helper has ended, or is no longer what the caller is. Others may have seen it first.
    pub(crate) fn discard(&self, helper: &Arc<Helper>, has_died: bool) {
        let mut state = lock(&self.state);
        if state.helper.as_ref().is_some_and(|current| Arc::ptr_eq(current, helper)) {
            state.helper = None;
            if has_died {
                self.deaths.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Is the launch to be tried again by another helper when one has ended?
    pub(crate) fn restarts(&self) -> bool {
        self.options.restart == Restart::Always
    }
}
