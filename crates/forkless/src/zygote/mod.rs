//! A zygote: a small helper process that clones children for the caller.
//!
//! A child of [`Command::spawn`](crate::Command::spawn) runs in the caller's memory for some microseconds. The
//! child of a [`Zygote`] never does. Use a zygote for:
//! - memory that no other process may ever see, or a host that forbids sharing it;
//! - code of the caller's that must run between clone and exec;
//! - a process that has a hundred thousand descriptors and passes some of them.
//!
//! The caller sends it the plan and the descriptors, and the helper clones with `CLONE_PARENT`. So the child is the
//! *caller's* child, with the same [`Child`] as any other.
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
//! # The helper's program
//! The helper is the caller's own program, executed again through `/proc/self/exe`. It is never a copy of the caller,
//! which may be large and have many threads, all of which a fork would have to deal with. That is why
//! [`serve_if_asked`] must come first in `main`. A host that cannot call it there (an interpreter, a library in
//! another program) sets another program that does: [`ZygoteOptions::program`]. The command `forkless zygote` is one,
//! without functions.
//!
//! # What the child inherits
//! The same as after [`Command::spawn`](crate::Command::spawn). Each launch sends the helper the calling thread's
//! working directory, umask, standard streams, environment, signal mask, ignored signals, limits, process group, nice
//! value, scheduling and CPU affinity. Other attributes cannot be given to another process: IDs, capabilities,
//! namespaces, root, session, cgroup, seccomp filters, oom_score_adj. They are compared at each launch, while the
//! child is being made. If they differ, the helper is started again from the caller as it is now. If they still
//! differ, the launch is refused, and the error names the first difference.
//!
//! # Differences from `Command::spawn`
//! - When a sibling clones a child, the kernel gives the child the sibling's exit signal, SIGCHLD. So SIGCHLD handlers
//!   and `waitpid(-1)` see a launch that fails.
//! - [`inherit_all`](crate::Command::inherit_all) and [`thread_death_signal`](crate::Command::thread_death_signal) are
//!   refused: the helper has neither the caller's descriptors nor its threads.
//! - The helper is a child of the caller: a `waitpid(-1)` sees its end.
//! - `/proc` must be mounted.

use crate::child::Child;
use crate::launch::pipes::Defaults;
use crate::launch::run::LaunchForm;
use crate::launch::wait::is_sigchld_ignored;
use crate::prepared::Prepared;
use crate::process;
use crate::start::{Pidfd, Start};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) mod message;
pub(crate) mod helper;
pub(crate) mod launch;
mod registry;
mod parcel;
mod server;

use helper::{Helper, lock};
#[cfg(any(test, fuzzing))]
pub(crate) use parcel::fuzzed;
pub use registry::Registry;
pub use server::serve_if_asked;

/// What happens to launches when the helper has been killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Restart {
    /// Another helper is started, which makes the launch.
    #[default]
    Always,
    /// The launch, and all later ones, fail.
    Never,
}

/// How a [`Zygote`] is started.
#[derive(Debug, Clone, Default)]
pub struct ZygoteOptions {
    source: HelperProgram,
    args: Vec<OsString>,
    restart: Restart,
}

#[derive(Debug, Clone, Default)]
enum HelperProgram {
    #[default]
    Own,
    Program(PathBuf),
}

impl ZygoteOptions {
    /// The caller's own program as the helper, restarted when it is killed.
    ///
    /// ```no_run
    /// use forkless::zygote::{Registry, Zygote, ZygoteOptions, serve_if_asked};
    /// serve_if_asked(&Registry::new()); // first in main
    /// let zygote = Zygote::start(&ZygoteOptions::new())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets another program as the helper: one that calls [`serve_if_asked`].
    ///
    /// ```no_run
    /// use forkless::zygote::{Zygote, ZygoteOptions};
    /// let zygote = Zygote::start(ZygoteOptions::new().program("/usr/bin/forkless").arg("zygote"))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn program<P: AsRef<Path>>(&mut self, program: P) -> &mut Self {
        self.source = HelperProgram::Program(program.as_ref().to_owned());
        self
    }

    /// Adds an argument for the helper's program, such as `zygote` for the command `forkless`.
    ///
    /// ```
    /// use forkless::zygote::ZygoteOptions;
    /// let mut options = ZygoteOptions::new();
    /// options.program("/usr/bin/forkless").arg("zygote");
    /// ```
    pub fn arg<S: Into<OsString>>(&mut self, arg: S) -> &mut Self {
        self.args.push(arg.into());
        self
    }

    /// Sets what happens when the helper has been killed (default: it is restarted). In both cases it is restarted
    /// when the caller's own attributes have changed.
    ///
    /// ```
    /// use forkless::zygote::{Restart, ZygoteOptions};
    /// let mut options = ZygoteOptions::new();
    /// options.restart(Restart::Never);
    /// ```
    pub fn restart(&mut self, restart: Restart) -> &mut Self {
        self.restart = restart;
        self
    }
}

/// What a [`Zygote`] has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ZygoteStats {
    /// Children that were made.
    pub launches: u64,
    /// Helpers that were started, including the first one.
    pub starts: u64,
    /// How many of these replaced a helper that had ended.
    pub deaths: u64,
}

/// A helper process that launches for the caller; see the [module](self).
///
/// Any number of threads may use it at once. Dropping it ends the helper and waits for it; the children go on running.
///
/// If this process ends or executes another program, the helper ends too. A forked copy of this process cannot use it,
/// and gets an error. While a forked copy lives that has its end of the socket, a helper does not notice an exec.
#[derive(Debug)]
pub struct Zygote {
    options: ZygoteOptions,
    /// The [process](process::generation) that started it.
    owner: u32,
    state: Mutex<ZygoteState>,
    launches: AtomicU64,
    starts: AtomicU64,
    deaths: AtomicU64,
}

struct ZygoteState {
    helper: Option<Arc<Helper>>,
}

impl std::fmt::Debug for ZygoteState {
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
    /// Starts the helper, and waits until it is ready.
    ///
    /// ```no_run
    /// # use forkless::zygote::{Zygote, ZygoteOptions};
    /// # let zygote = Zygote::start(&ZygoteOptions::new())?;
    /// println!("the helper is process {:?}", zygote.pid());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of starting the program; `InvalidInput` if this program should be the helper and has not called
    /// [`serve_if_asked`]; `PermissionDenied` if the program gains privileges when it is executed; `TimedOut` if it is
    /// not ready within 20 seconds.
    pub fn start(options: &ZygoteOptions) -> io::Result<Self> {
        if matches!(options.source, HelperProgram::Own) && !server::has_asked() {
            let why =
                "this program cannot be its own helper: its main does not call forkless::zygote::serve_if_asked first";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let helper = Some(Arc::new(Helper::start(options)?));
        Ok(Self {
            options: options.clone(),
            owner: process::generation(),
            state: Mutex::new(ZygoteState { helper }),
            launches: AtomicU64::new(0),
            starts: AtomicU64::new(1),
            deaths: AtomicU64::new(0),
        })
    }

    /// Launches a child by the helper, like [`Prepared::launch`]: returns as soon as the child exists.
    ///
    /// ```no_run
    /// # use forkless::zygote::{Zygote, ZygoteOptions};
    /// # let zygote = Zygote::start(&ZygoteOptions::new())?;
    /// let mut child = zygote.launch(&forkless::Command::new("true").prepare()?)?;
    /// assert!(child.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Prepared::launch`]; [`Step::Zygote`](crate::Step::Zygote) if the helper cannot do it, or has ended
    /// and is not restarted.
    pub fn launch(&self, prepared: &Prepared) -> io::Result<Child> {
        self.launch_with(prepared, &[])
    }

    /// Starts a child by the helper, like [`Prepared::spawn`]: returns when the program has been executed.
    ///
    /// ```no_run
    /// # use forkless::zygote::{Zygote, ZygoteOptions};
    /// # let zygote = Zygote::start(&ZygoteOptions::new())?;
    /// let mut child = zygote.spawn(&forkless::Command::new("true").prepare()?)?;
    /// assert!(child.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`launch`](Self::launch).
    pub fn spawn(&self, prepared: &Prepared) -> io::Result<Child> {
        self.spawn_with(prepared, &[])
    }

    /// Launches a child like [`launch`](Self::launch). Right before exec the child calls these functions of the
    /// helper's [`Registry`], in this order, each with its bytes.
    ///
    /// The child is then a copy of the helper with its own memory, which takes some 100 µs more.
    ///
    /// ```no_run
    /// # use forkless::zygote::{Zygote, ZygoteOptions};
    /// # let zygote = Zygote::start(&ZygoteOptions::new())?;
    /// // The helper has `functions.add("log", …)`.
    /// let prepared = forkless::Command::new("true").prepare()?;
    /// let mut child = zygote.launch_with(&prepared, &[("log", b"about to start")])?;
    /// assert!(child.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`launch`](Self::launch), and [`Step::Function`](crate::Step::Function) with the function's name: at
    /// once if no function has this name; from [`Child::wait_exec`] and [`Child::wait`] if it failed, panicked or
    /// ended the process.
    pub fn launch_with(&self, prepared: &Prepared, calls: &[(&str, &[u8])]) -> io::Result<Child> {
        self.begin(prepared, calls, LaunchForm::Launch, Defaults::Inherit)
    }

    /// Does what [`launch_with`](Self::launch_with) does, but returns when the program has been executed.
    ///
    /// ```no_run
    /// # use forkless::zygote::{Zygote, ZygoteOptions};
    /// # let zygote = Zygote::start(&ZygoteOptions::new())?;
    /// let prepared = forkless::Command::new("true").prepare()?;
    /// let mut child = zygote.spawn_with(&prepared, &[("log", b"about to start")])?;
    /// assert!(child.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`launch_with`](Self::launch_with), all from this call.
    pub fn spawn_with(&self, prepared: &Prepared, calls: &[(&str, &[u8])]) -> io::Result<Child> {
        self.begin(prepared, calls, LaunchForm::Spawn, Defaults::Inherit)
    }

    /// Runs a program to its end by the helper, and returns its exit status, like [`Prepared::status`].
    ///
    /// ```no_run
    /// # use forkless::zygote::{Zygote, ZygoteOptions};
    /// # let zygote = Zygote::start(&ZygoteOptions::new())?;
    /// assert!(zygote.status(&forkless::Command::new("true").prepare()?)?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn status(&self, prepared: &Prepared) -> io::Result<ExitStatus> {
        self.spawn(prepared)?.wait()
    }

    /// Runs a program to its end by the helper, and returns what it wrote, like [`Prepared::output`].
    ///
    /// ```no_run
    /// # use forkless::zygote::{Zygote, ZygoteOptions};
    /// # let zygote = Zygote::start(&ZygoteOptions::new())?;
    /// let output = zygote.output(&forkless::Command::new("echo").arg("hello").prepare()?)?;
    /// assert_eq!(output.stdout, b"hello\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn output(&self, prepared: &Prepared) -> io::Result<Output> {
        self.begin(prepared, &[], LaunchForm::Spawn, Defaults::Capture)?.wait_with_output()
    }

    fn begin(
        &self,
        prepared: &Prepared,
        calls: &[(&str, &[u8])],
        form: LaunchForm,
        defaults: Defaults<'_>,
    ) -> io::Result<Child> {
        let plan = prepared.plan();
        let pidfd = Pidfd::Unless(!matches!(defaults, Defaults::Capture) || is_sigchld_ignored());
        let request = Request { zygote: self, calls };
        let child = Start { form, defaults, pidfd, cloner: Some(&request), holds: false }.child(plan)?;
        self.launches.fetch_add(1, Ordering::Relaxed);
        Ok(child)
    }

    /// The helper's PID. `None` while there is no helper.
    ///
    /// ```no_run
    /// # use forkless::zygote::{Zygote, ZygoteOptions};
    /// # let zygote = Zygote::start(&ZygoteOptions::new())?;
    /// println!("the helper is process {:?}", zygote.pid());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pid(&self) -> Option<u32> {
        let helper = if self.owner == process::generation() { lock(&self.state).helper.clone() } else { None };
        helper.map(|helper| helper.pid as u32)
    }

    /// What the zygote has done so far.
    ///
    /// ```no_run
    /// # use forkless::zygote::{Zygote, ZygoteOptions};
    /// # let zygote = Zygote::start(&ZygoteOptions::new())?;
    /// let stats = zygote.stats();
    /// println!("{} launches, {} helpers", stats.launches, stats.starts);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stats(&self) -> ZygoteStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ZygoteStats { launches: read(&self.launches), starts: read(&self.starts), deaths: read(&self.deaths) }
    }

    /// The helper, started again if needed. The error is text for the user.
    pub(crate) fn helper(&self) -> Result<Arc<Helper>, String> {
        if self.owner != process::generation() {
            return Err("the zygote belongs to the process that forked this one".into());
        }
        let mut state = lock(&self.state);
        if let Some(helper) = &state.helper {
            return Ok(Arc::clone(helper));
        }
        if self.options.restart == Restart::Never && self.deaths.load(Ordering::Relaxed) > 0 {
            return Err("the helper has ended, and Restart::Never forbids starting it again".into());
        }
        let helper =
            Helper::start(&self.options).map_err(|error| format!("the helper could not be started again: {error}"))?;
        let helper = Arc::new(helper);
        self.starts.fetch_add(1, Ordering::Relaxed);
        state.helper = Some(Arc::clone(&helper));
        Ok(helper)
    }

    /// Forgets a helper that has ended, or whose attributes differ from the caller's. Another thread may have done so
    /// first.
    pub(crate) fn discard(&self, helper: &Arc<Helper>, has_died: bool) {
        let mut state = lock(&self.state);
        if state.helper.as_ref().is_some_and(|current| Arc::ptr_eq(current, helper)) {
            state.helper = None;
            if has_died {
                self.deaths.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether another helper makes the launch when one has ended.
    pub(crate) fn does_restart(&self) -> bool {
        self.options.restart == Restart::Always
    }
}
