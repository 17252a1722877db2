//! Warm programs: children without an exec. **Experimental**: the interface and the rules may change.
//!
//! Most of the time of a short program goes to exec, the dynamic loader and relocation, which are the same each time. A
//! [`Warm`] keeps, for each program that is launched through it, a *template*: the program itself, executed once and
//! stopped before its own code begins. A launch clones the template and gives the clone the arguments, environment,
//! descriptors and settings of the command.
//!
//! ```no_run
//! use forkless::{Command, warm::Warm};
//! let warm = Warm::of_process()?;
//! for _ in 0..3 {
//!     // The first launch is cold, and starts the template beside it.
//!     let mut child = Command::new("git").arg("--version").warm(&warm).spawn()?;
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
//! A template is a child of the caller: `wait(2)` for any child sees its end, and it is killed when the caller ends in any
//! way. [`WarmOptions`] limits their number, their launches and their time. A template also ends when a child of it has
//! crashed, and when its set is dropped.
//!
//! Each template has a thread of this process, which starts it, and sleeps until the template and all its children have
//! ended. It blocks all signals.
//!
//! # Forbidden for the machine
//! If the file `/etc/forkless/warm` begins with the word `off`, or cannot be read, all launches are cold. A process reads it
//! once.

use crate::child::Child;
use crate::error::Error;
use crate::launch;
use crate::launch::pipes::Defaults;
use crate::launch::run::{Cloner, LaunchForm, OfPlan, Run, Running};
use crate::launch::wait::is_sigchld_ignored;
use crate::plan::Plan;
use crate::prepared::Prepared;
use crate::request::command::Command;
use crate::route::Route;
use crate::start::{Pidfd, Start};
use crate::step::Step;
use crate::zygote::launch::{Again, Refused, attempt};
use library::Library;
use options::Limits;
use request::TemplateRequest;
use set::{ChildSource, Cold, Counts, Set};
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Output};
use std::sync::{Arc, Mutex, PoisonError};
use template::{Template, Unfit};

mod options;
mod library;
mod switch;
mod set;
mod request;
mod files;
mod caller;
mod watch;
mod template;

pub use options::WarmOptions;
pub use set::WarmStats;

/// Why a launch is cold.
type ColdReason = Arc<str>;

/// A set of templates; see the [module](self). Clones share it.
///
/// Any number of threads may use it at once. A forked copy of this process launches cold. The templates end when the last
/// clone is dropped, and the last command and [`Prepared`] that uses it.
#[derive(Clone)]
pub struct Warm(Arc<Owner>);

impl Command {
    /// Launches the command [warm](crate::warm), if it can be: from a template in this set. **Experimental.** Otherwise it
    /// is launched as always, and [`Child::cold_reason`] says why.
    ///
    /// The command is then looked up in `PATH` and its environment copied before each launch, as by
    /// [`prepare`](Self::prepare). A warm [`launch`](Self::launch) returns when the child exists and has its arguments.
    ///
    /// ```no_run
    /// use forkless::{Command, warm::Warm};
    /// let output = Command::new("git").arg("--version").warm(&Warm::of_process()?).output()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn warm(&mut self, warm: &Warm) -> &mut Self {
        self.cloner = Some(Arc::new(OfPlan(Box::new(warm.clone()))));
        self
    }
}

/// Closes the set at its end. The templates' guards share the set, but not this.
struct Owner(Arc<Set>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl std::fmt::Debug for Warm {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Warm").field("library", &self.set().library.path).field("stats", &self.stats()).finish()
    }
}

impl Warm {
    /// Makes a set without templates, with the default [configuration](WarmOptions). `library`: the absolute path of
    /// `libforkless_warm.so`.
    ///
    /// ```no_run
    /// let warm = forkless::warm::Warm::new("/usr/lib/forkless/libforkless_warm.so")?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`WarmOptions::open`].
    pub fn new<P: AsRef<Path>>(library: P) -> io::Result<Self> {
        WarmOptions::new().library(library).open()
    }

    /// The set that this process shares, with the default [configuration](WarmOptions). The first call makes it; it exists
    /// until the process ends.
    ///
    /// ```no_run
    /// let warm = forkless::warm::Warm::of_process()?;
    /// let output = forkless::Command::new("git").arg("--version").warm(&warm).output()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`WarmOptions::open`]. The next call tries again.
    pub fn of_process() -> io::Result<Self> {
        static SHARED: Mutex<Option<Warm>> = Mutex::new(None);
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        match &*shared {
            Some(warm) => Ok(warm.clone()),
            None => Ok(shared.insert(WarmOptions::new().open()?).clone()),
        }
    }

    fn with(library: Library, limits: Limits) -> Self {
        Self(Arc::new(Owner(Arc::new(Set::new(library, limits)))))
    }

    fn set(&self) -> &Arc<Set> {
        &self.0.0
    }

    /// Starts a child, like [`Prepared::spawn`]: returns when the program has been executed, or its clone has begun to run
    /// it. The first launch of a program is cold, and starts the template beside it.
    ///
    /// ```no_run
    /// # let warm = forkless::warm::Warm::of_process()?;
    /// let mut child = warm.spawn(&forkless::Command::new("true").prepare()?)?;
    /// assert!(child.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Prepared::spawn`]. A template that fails makes the launch cold.
    pub fn spawn(&self, prepared: &Prepared) -> io::Result<Child> {
        Start { cloner: Some(self), ..Start::new(LaunchForm::Spawn) }.child(prepared.plan())
    }

    /// Runs a program to its end, and returns its exit status, like [`Prepared::status`].
    ///
    /// ```no_run
    /// # let warm = forkless::warm::Warm::of_process()?;
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
    /// # let warm = forkless::warm::Warm::of_process()?;
    /// let output = warm.output(&forkless::Command::new("echo").arg("hello").prepare()?)?;
    /// assert_eq!(output.stdout, b"hello\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn output(&self, prepared: &Prepared) -> io::Result<Output> {
        let start = Start::new(LaunchForm::Spawn).with(Defaults::Capture).pidfd(Pidfd::Unless(is_sigchld_ignored()));
        Start { cloner: Some(self), ..start }.child(prepared.plan())?.wait_with_output()
    }

    /// Starts the template of a command ahead of its first launch, and waits until it is ready: some milliseconds.
    ///
    /// ```no_run
    /// # let warm = forkless::warm::Warm::of_process()?;
    /// if let Err(why) = warm.start(&forkless::Command::new("git").prepare()?) {
    ///     println!("launches of git are cold: {why}");
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Unsupported`, with the reason why launches of this command are cold.
    pub fn start(&self, prepared: &Prepared) -> io::Result<()> {
        let request = self.request(prepared.plan());
        let answer = request.and_then(|request| match self.set().template(&request) {
            Ok(template) => match template.suits_caller() {
                Ok(_) if template.helper.end().is_none() => Ok(()),
                Err(Unfit::Unknown(why)) => Err(why.into()),
                Ok(_) | Err(Unfit::Differs(_)) => {
                    self.set().discard(&template);
                    self.set().start_and_wait(request)
                }
            },
            Err(_) => self.set().start_and_wait(request),
        });
        answer.map_err(|why| io::Error::new(io::ErrorKind::Unsupported, &*why))
    }

    /// What it has done so far.
    ///
    /// ```no_run
    /// # let warm = forkless::warm::Warm::of_process()?;
    /// let stats = warm.stats();
    /// println!("{} of {} launches were warm", stats.warm, stats.warm + stats.cold);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stats(&self) -> WarmStats {
        self.set().stats()
    }

    /// The PIDs of the templates.
    ///
    /// ```no_run
    /// # let warm = forkless::warm::Warm::of_process()?;
    /// println!("{:?}", warm.templates());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn templates(&self) -> Vec<u32> {
        self.set().templates()
    }

    /// What a launch needs of a template. The error is the reason why the launch is cold.
    fn request(&self, plan: &Plan) -> Result<TemplateRequest, ColdReason> {
        if self.set().is_copy() {
            return Err("this process is a copy of the one that has the templates".into());
        }
        if !switch::is_allowed() {
            return Err("the administrator of this machine forbids it: /etc/forkless/warm".into());
        }
        if let Some(why) = request::program(plan).and_then(|program| self.set().refusal(program)) {
            return Err(why);
        }
        TemplateRequest::of(plan)
    }
}

/// A launch that is warm if it may be, and cold otherwise.
impl Cloner for Warm {
    fn launch(&self, plan: &Plan, run: &Run<'_>) -> Result<Running, Error> {
        let set = self.set();
        let request = self.request(plan);
        match by_template(set, request.as_ref(), plan, run) {
            Ok((template, answer)) => {
                Counts::add(&set.counts.warm);
                if let Ok(request) = request {
                    set.succeed(&template, request);
                }
                let source = ChildSource::Template(Arc::downgrade(set), Arc::downgrade(&template));
                answer.map(|running| Running { route: Route::Warm, origin: Some(Box::new(source)), ..running })
            }
            Err(Cold { reason, starts, blamed }) => {
                Counts::add(&set.counts.cold);
                let answer = launch::run(plan, &Run { cloner: None, ..*run });
                if let (Some(template), Ok(_)) = (blamed, &answer) {
                    set.discard(&template);
                }
                if let (true, Ok(request), Ok(_)) = (starts, request, &answer) {
                    set.start(request);
                }
                answer.map(|running| Running { origin: Some(Box::new(ChildSource::Cold(reason))), ..running })
            }
        }
    }
}

/// A launch from the template. The outer error: why it must be cold.
fn by_template(
    set: &Set,
    request: Result<&TemplateRequest, &ColdReason>,
    plan: &Plan,
    run: &Run<'_>,
) -> Result<(Arc<Template>, Result<Running, Error>), Cold> {
    let request = request.map_err(|reason| Cold::for_now(Arc::clone(reason)))?;
    let template = set.template(request)?;
    let status = match template.suits_caller() {
        Ok(status) => status,
        Err(Unfit::Differs(why)) => return Err(set.differs(&template, why)),
        Err(Unfit::Unknown(why)) => return Err(Cold::for_now(why)),
    };
    template.note_use();
    // A caller that waits for the child's end must first learn whether the child failed before its first step: such a
    // launch is repeated cold.
    let launches = run.form == LaunchForm::Launch && !template.helper.has_many_children();
    let form = if launches { LaunchForm::Launch } else { LaunchForm::Spawn };
    let run = Run { form, ..*run };
    let answer = match attempt(plan, &run, &[], &template.helper, status, true) {
        Ok(running) => {
            template.note_fit();
            Ok(running)
        }
        // No step of the plan was made: the launch can be repeated cold, which also finds the right error.
        Err(Refused::Error(error)) if matches!(error.step(), Step::Zygote | Step::Adopt | Step::Clone) => {
            let blamed = Some(template);
            return Err(Cold { blamed, ..Cold::first("the template could not make the child") });
        }
        Err(Refused::Callers(_)) => {
            return Err(Cold { blamed: None, ..Cold::for_now("the caller is short of descriptors or memory") });
        }
        Err(Refused::Error(error) | Refused::Late(error)) => Err(error),
        Err(Refused::Again(Again::Differs(what))) => return Err(set.differs(&template, what)),
        Err(Refused::Again(Again::Died(_))) => {
            set.discard(&template);
            return Err(Cold::first("the template has ended"));
        }
    };
    Ok((template, answer))
}
