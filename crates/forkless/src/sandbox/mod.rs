//! Sandboxes as values: what a program may see and do, checked once, for any number of launches.

mod calls;
pub mod filter;
mod hide;
mod ids;
mod landlock;
mod mounts;
mod namespaces;
mod place;
pub mod preset;
mod tree;

use crate::Resource;
use crate::error::{Error, reworded};
use crate::procfs;
use crate::request::command::{BpfInstruction, CapabilitySet, Command, Confinement, GroupLimits};
use crate::step::Step;
use filter::{Shared, Surroundings};
use forkless_core::sys::errno;
use landlock::Ruleset;
use namespaces::NamespaceSandbox;
use place::GivenPath;
use preset::{DEVICES, OBEYED, SHOWN, is_kept};
use rustix::fs::{FileType, Mode, OFlags, open, stat};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Which networks a sandboxed program reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Network {
    /// A network of its own, with a loopback device and nothing else. Needs namespaces: [`Sandbox::new`].
    None,
    /// That of the caller, of which nothing is allowed. No socket can be made, but pairs of them (`socketpair(2)`).
    Refused,
    /// That of the caller, with the services of this machine. Unix sockets stay refused: by them daemons are reached, such as that of
    /// Docker.
    Host,
}

/// How long other processes may run after the program has ended, by default.
const LINGER: Duration = Duration::from_millis(200);

/// The oldest version of Landlock that refuses to truncate files: Linux 6.2.
const OLDEST: u32 = 3;

/// The first version that refuses signals to processes outside: Linux 6.12.
const REFUSES_SIGNALS: u32 = 6;

/// A sandbox for untrusted programs: what the program may see and do.
///
/// ```no_run
/// use forkless::{Command, Sandbox};
/// let sandbox = Sandbox::landlock().write(".").prepare()?;
/// let output = Command::new("python3").arg("x.py").sandbox(&sandbox).output()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Sandbox {
    mode: SandboxMode,
    places: Vec<(PathBuf, bool)>,
    hidden: Vec<PathBuf>,
    projects: Vec<PathBuf>,
    network: Network,
    change_attributes: bool,
    kept: Vec<OsString>,
    pub(crate) limits: GroupLimits,
    linger: Option<Duration>,
    init: bool,
    strict: bool,
    trusts_command: bool,
}

/// How the program is kept from the rest of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SandboxMode {
    Namespaces,
    Landlock,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Sandbox {
    /// A sandbox of new namespaces, a new root directory, a filter of system calls and limits: `namespaces(7)`, `seccomp(2)`. It
    /// works for root and, where user namespaces are allowed, for everybody.
    ///
    /// The program
    /// - sees `/usr`, `/etc`, `/bin`, `/lib*`, `/sbin`, `/nix/store` and `/gnu/store`, read-only, and what [`read`](Self::read) and
    ///   [`write`](Self::write) and mounts of the command give; all else does not exist. `/tmp`, `/dev`, `/proc`, `/run` and `/var` are new for each launch
    /// - must start in a directory that it sees: give the working directory, or set [`Command::current_dir`]
    /// - sees and signals no process outside. The first process of its PID namespace is an [`init`](Self::init), which reaps, passes on the
    ///   signals that the handle sends, and ends when the program (or 200 ms later: [`linger`](Self::linger)) or the caller ends. Then nothing
    ///   of it is left
    /// - has a network with a loopback device only, unless [`network`](Self::network) says otherwise
    /// - has no capabilities, gains none, and leads a session of its own (unless the command sets a process group or pseudo-terminal)
    /// - is user and group 65534 (nobody) without other groups if root launches it, where the command sets no others.
    ///
    /// [`Child::id`](crate::Child::id) is the process ID of init.
    ///
    /// ```no_run
    /// use forkless::{Command, Sandbox};
    /// let sandbox = Sandbox::new().read("/srv/data").write("/srv/results").prepare()?;
    /// let output = Command::new("analyse").arg("/srv/data").current_dir("/srv/results").sandbox(&sandbox).output()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> Self {
        Self { mode: SandboxMode::Namespaces, network: Network::None, ..Self::landlock() }
    }

    /// A sandbox of Landlock, a filter of system calls, and limits: `landlock(7)`, `seccomp(2)`. It needs neither privileges nor
    /// namespaces nor another process, so it also works where user namespaces are refused.
    ///
    /// The program
    /// - may read and execute what lies below `/usr`, `/etc`, `/bin`, `/lib*`, `/sbin`, `/nix/store` and `/gnu/store`, and read `/proc`;
    ///   all else must be given by [`read`](Self::read) and [`write`](Self::write), also the working directory and `/tmp`
    /// - changes no file elsewhere, and of no file mode, owner or extended attributes
    /// - reaches no network and no Unix socket, System V or POSIX IPC
    /// - signals, traces and changes no process outside
    /// - has no capabilities, gains none, and leads a session of its own (unless the command sets a process group or pseudo-terminal)
    /// - is user and group 65534 (nobody) without other groups if root launches it, where the command sets no others.
    ///
    /// Landlock hides nothing: names of files, `stat(2)`, links, and what `/proc` shows of all processes, such as their command lines.
    /// What the program leaves running is not killed with it, but for [`Command::kill_tree`]. Before version 6 of Landlock (Linux 6.12) the program cannot send signals at all,
    /// because the kernel could not refuse those to others.
    ///
    /// ```no_run
    /// # #[cfg(feature = "capture")] {
    /// use forkless::{Capture, Command, Sandbox};
    /// use std::time::Duration;
    /// let sandbox = Sandbox::landlock().read("/srv/data").write("/srv/results").prepare()?;
    /// let mut command = Command::new("analyse");
    /// command.arg("/srv/data").current_dir("/srv/results").sandbox(&sandbox);
    /// let captured = command.capture(&Capture::new().limit(1 << 20).timeout(Duration::from_secs(30)))?;
    /// # }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn landlock() -> Self {
        Self {
            mode: SandboxMode::Landlock,
            places: Vec::new(),
            hidden: Vec::new(),
            projects: Vec::new(),
            network: Network::Refused,
            change_attributes: false,
            kept: Vec::new(),
            limits: GroupLimits::default(),
            linger: None,
            init: true,
            strict: false,
            trusts_command: false,
        }
    }

    /// Lets the program read and execute a file, or all below a directory.
    ///
    /// ```no_run
    /// # use forkless::Sandbox;
    /// // A search tool that sees the sources, and nothing else of the home directory.
    /// let sandbox = Sandbox::landlock().read("/home/user/project").prepare()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read(&mut self, path: impl Into<PathBuf>) -> &mut Self {
        self.places.push((path.into(), false));
        self
    }

    /// Lets the program also write to a file, or to all below a directory.
    ///
    /// ```no_run
    /// # use forkless::Sandbox;
    /// let sandbox = Sandbox::landlock().write(".").write("/tmp").prepare()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write(&mut self, path: impl Into<PathBuf>) -> &mut Self {
        self.places.push((path.into(), true));
        self
    }

    /// Lets the program write to all below a directory, but for what other programs execute or obey there later, outside of the
    /// sandbox: hooks and configuration of git, settings of editors, of direnv, cargo and shells.
    /// These stay read-only at their places, as far as they exist at [`prepare`](Self::prepare); the program may make those that do not.
    /// Needs namespaces.
    ///
    /// ```no_run
    /// # use forkless::Sandbox;
    /// let sandbox = Sandbox::new().writable_project(".").prepare()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn writable_project(&mut self, directory: impl Into<PathBuf>) -> &mut Self {
        let directory = directory.into();
        self.projects.push(directory.clone());
        self.write(directory)
    }

    /// Hides a file or directory below what the sandbox shows: opening it fails with EACCES, and nothing is changed or left there.
    ///
    /// The path may be a pattern: `*` and `?` stand for any letters of a name, and `**` for any number of directories. A relative pattern is
    /// looked for below each path of [`read`](Self::read) and [`write`](Self::write). These stay visible themselves, also below a hidden
    /// directory, whatever the order of the calls. A symbolic link hides the file that it leads to.
    ///
    /// What matches is looked up **at each launch, of a [`Prepared`](crate::Prepared) only when that is made**. For a pattern these
    /// directories are searched. Visible is what appears later or is moved meanwhile, and another hard link. Needs namespaces.
    ///
    /// ```no_run
    /// # use forkless::Sandbox;
    /// let sandbox = Sandbox::new().write(".").hide("**/.env").hide("**/*.pem").hide("secrets").prepare()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn hide(&mut self, path: impl Into<PathBuf>) -> &mut Self {
        self.hidden.push(path.into());
        self
    }

    /// Lets the program change modes, owners and extended attributes of files, and times by path, as `chmod`, `cp -p`, `tar` and the linker
    /// `ld` do. Landlock cannot refuse these changes: the program may then make them **to every file of its user**, also outside
    /// of the sandbox. Setuid and setgid bits stay refused.
    ///
    /// ```no_run
    /// # use forkless::Sandbox;
    /// // Compilers make their output executable by chmod(2).
    /// let sandbox = Sandbox::landlock().write("/srv/build").change_attributes(true).prepare()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn change_attributes(&mut self, may: bool) -> &mut Self {
        self.change_attributes = may;
        self
    }

    /// Which networks the program reaches. The default is [`Network::None`], and with Landlock alone [`Network::Refused`].
    ///
    /// ```no_run
    /// # use forkless::{Network, Sandbox};
    /// let sandbox = Sandbox::landlock().network(Network::Host).prepare()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn network(&mut self, network: Network) -> &mut Self {
        self.network = network;
        self
    }

    /// Lets the program inherit a variable of the environment. By default it inherits `PATH`, `HOME`, `TERM`, `COLORTERM`, `NO_COLOR`,
    /// `LANG`, `LANGUAGE`, `TZ` and `LC_*`. Variables that the command sets are always passed.
    ///
    /// ```no_run
    /// # use forkless::Sandbox;
    /// let sandbox = Sandbox::landlock().keep_env("JAVA_HOME").prepare()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn keep_env(&mut self, name: impl Into<OsString>) -> &mut Self {
        self.kept.push(name.into());
        self
    }

    /// Sets how long the other processes of a sandbox of namespaces have when the program has ended (default: 200 ms), such as the `tee` of
    /// bash's `exec > >(tee log)`. The handle reports the end when none is left, or after this time; then they are killed. At most 17
    /// minutes.
    ///
    /// ```no_run
    /// # use forkless::Sandbox;
    /// # use std::time::Duration;
    /// let sandbox = Sandbox::new().linger(Duration::ZERO).prepare()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn linger(&mut self, limit: Duration) -> &mut Self {
        self.linger = Some(limit);
        self
    }

    /// Whether a sandbox of namespaces has an init (default: true). `false`: the program itself is PID 1 of its PID namespace, which is
    /// faster: no other program is executed, and the process ID and status of the handle are those of the program.
    ///
    /// When it ends or is killed, the kernel kills all others at once, and the wait returns when nothing is left. But:
    /// - **Signals that it does not handle are ignored** (`pid_namespaces(7)`): SIGTERM of the handle, SIGINT, SIGPIPE, SIGALRM, SIGXCPU, its own
    ///   `abort(3)` (then it ends by SIGSEGV). SIGKILL of the handle, timeouts and limits, and faults are not.
    /// - The orphans in the sandbox are its children, which stay zombies unless it waits for them.
    /// - Signals of the handle go to it alone, not to its process group, and nothing [`linger`](Self::linger)s.
    /// - **The end of the caller does not end it**, unless [`Command::parent_death_signal`] is SIGKILL, which the program can undo. So
    ///   [`Command::kill_tree`] is refused.
    ///
    /// ```no_run
    /// # use forkless::Sandbox;
    /// let sandbox = Sandbox::new().init(false).prepare()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn init(&mut self, init: bool) -> &mut Self {
        self.init = init;
        self
    }

    /// Requires Landlock with all that this library knows (version 6, Linux 6.12) as a second layer over the mounts of a sandbox of
    /// namespaces, and lets nothing be executed that the program has written to `/tmp` or `/dev/shm`. By default there is the second layer
    /// that the kernel has.
    ///
    /// ```no_run
    /// # use forkless::Sandbox;
    /// let sandbox = Sandbox::new().strict(true).prepare()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn strict(&mut self, strict: bool) -> &mut Self {
        self.strict = strict;
        self
    }

    /// For `forkless run`: options of the command may widen the sandbox by capabilities over its namespaces, by inherited descriptors, and
    /// by Unix sockets where it has the network of the caller.
    #[doc(hidden)]
    pub fn trusts_command(&mut self, trusts: bool) -> &mut Self {
        self.trusts_command = trusts;
        self
    }

    /// Checks the sandbox, and does once what all launches in it share.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported): this kernel has no Landlock, or a version before 3 (Linux 6.2), which does not keep
    /// files from being truncated. Others name the path that cannot be opened.
    ///
    /// ```no_run
    /// use forkless::{Command, Sandbox};
    /// let sandbox = Sandbox::landlock().write("/srv/results").prepare()?;
    /// for name in ["one", "two"] {
    ///     assert!(Command::new("analyse").arg(name).sandbox(&sandbox).status()?.success());
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn prepare(&self) -> io::Result<PreparedSandbox> {
        let unfit = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, format!("sandbox: {why}")));
        if let Some(bad) = self.limits.bad.values().next() {
            return unfit(bad);
        }
        if !self.init && self.linger.is_some() {
            return unfit(
                "linger needs an init: with init(false) the kernel kills what is left as soon as the program ends",
            );
        }
        if self.mode == SandboxMode::Namespaces {
            if self.change_attributes {
                return unfit(
                    "change_attributes is for Landlock alone: with namespaces, what can be written to can be changed",
                );
            }
            return self.prepare_namespaces();
        }
        if !self.projects.is_empty() {
            return unfit(
                "writable_project needs namespaces: a Landlock rule for a directory covers everything below it",
            );
        }
        if !self.hidden.is_empty() {
            return unfit("hide needs namespaces: a Landlock rule for a directory covers everything below it");
        }
        if self.strict {
            return unfit("strict is for namespaces: Sandbox::landlock() always requires Landlock");
        }
        if !self.init {
            return unfit("init(false) is for namespaces: with Landlock alone there is no init");
        }
        if self.linger.is_some() {
            return unfit(
                "linger needs namespaces: with Landlock alone, Command::kill_tree ends what the program leaves running",
            );
        }
        if self.network == Network::None {
            return unfit("a network of its own needs namespaces: Sandbox::new()");
        }
        let version = landlock::version().map_err(|error| {
            let why = match error {
                errno::EOPNOTSUPP => "Landlock is not enabled: add it to `lsm=` on the kernel's command line",
                _ => "this kernel has no Landlock, or a seccomp filter refuses it",
            };
            io::Error::new(io::ErrorKind::Unsupported, format!("sandbox: {why}"))
        })?;
        self.prepare_for(version)
    }

    fn prepare_for(&self, version: u32) -> io::Result<PreparedSandbox> {
        if version < OLDEST {
            let why = format!(
                "sandbox: version {version} of Landlock cannot keep files from being truncated; version {OLDEST} (Linux 6.2) can"
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let failed = |path: &Path, error: i32| {
            let error = io::Error::from_raw_os_error(error);
            let words = format!("sandbox: {}: {error}", path.display());
            reworded(error, words)
        };
        let ruleset = Ruleset::new(version).map_err(|error| failed(Path::new("ruleset"), error))?;
        let of_all = SHOWN.iter().chain(&[procfs::ROOT]).map(|path| (Path::new(path), false));
        let devices = DEVICES.iter().map(|name| (Path::new("/dev").join(name), true));
        for (path, may_write) in of_all.map(|(path, may_write)| (path.to_owned(), may_write)).chain(devices) {
            match open_place(&path) {
                Ok(place) => ruleset.allow(place, may_write).map_err(|error| failed(&path, error))?,
                Err(errno::ENOENT) => {}
                Err(error) => return Err(failed(&path, error)),
            }
        }
        let places = self
            .look_up(|path, place, may_write| ruleset.allow(place, may_write).map_err(|error| failed(path, error)))?;
        let shared = OfAllLaunches {
            confined: Confined::Landlock(Arc::new(ruleset.into_file())),
            filter: filter::program_in(Surroundings::Shared(Shared {
                network: self.network == Network::Host,
                attributes: self.change_attributes,
                signals: version >= REFUSES_SIGNALS,
            })),
            kept: self.kept.clone(),
            limits: self.limits.clone(),
            places,
            trusts_command: false,
        };
        Ok(PreparedSandbox(Arc::new(shared)))
    }
}

impl Sandbox {
    fn prepare_namespaces(&self) -> io::Result<PreparedSandbox> {
        let places = self.look_up(|path, _, _| {
            let hides =
                [procfs::ROOT, "/dev", "/sys"].iter().any(|own| path.starts_with(own)) || path == Path::new("/");
            let why = format!("sandbox: {}: it cannot be shown inside", path.display());
            if hides { Err(io::Error::new(io::ErrorKind::InvalidInput, why)) } else { Ok(()) }
        })?;
        let surroundings = match self.network {
            Network::Host if self.trusts_command => Surroundings::Own,
            Network::Refused => Surroundings::Shared(Shared { network: false, attributes: true, signals: true }),
            Network::None => Surroundings::Own,
            // Daemons on abstract sockets belong to the network.
            Network::Host => Surroundings::Shared(Shared { network: true, attributes: true, signals: true }),
        };
        let shared = OfAllLaunches {
            confined: Confined::Namespaces(NamespaceSandbox::prepare(self, &places, self.linger.unwrap_or(LINGER))?),
            filter: filter::program_in(surroundings),
            kept: self.kept.clone(),
            limits: self.limits.clone(),
            places,
            trusts_command: self.trusts_command,
        };
        Ok(PreparedSandbox(Arc::new(shared)))
    }

    /// Looks the given paths up, and lets `each` check them.
    fn look_up(&self, mut each: impl FnMut(&Path, &OwnedFd, bool) -> io::Result<()>) -> io::Result<Vec<GivenPath>> {
        let look_up = |((path, may_write), is_obeyed): (&(PathBuf, bool), bool)| {
            let given = std::path::absolute(path)?;
            let failed = |error: io::Error| {
                let words = format!("sandbox: {}: {error}", given.display());
                reworded(error, words)
            };
            let source = given.canonicalize().map_err(failed)?;
            // Paths are compared with each other, which needs their plain form.
            let is_plain = !given.components().any(|part| part == Component::ParentDir);
            let path = if is_plain { given.clone() } else { source.clone() };
            let place = open_place(&path).map_err(|error| failed(io::Error::from_raw_os_error(error)))?;
            let found = rustix::fs::fstat(&place)?;
            each(&path, &place, *may_write)?;
            let is_directory = FileType::from_raw_mode(found.st_mode).is_dir();
            let (may_write, file) = (*may_write, (found.st_dev, found.st_ino));
            Ok(GivenPath { path, source, is_directory, is_hidden: false, is_obeyed, may_write, file })
        };
        let of_project = |project: &PathBuf| OBEYED.map(|name| (project.join(name), false));
        let obeyed = self.projects.iter().flat_map(of_project).filter(|(path, _)| path.symlink_metadata().is_ok());
        let obeyed: Vec<_> = obeyed.collect();
        let given = self.places.iter().map(|place| (place, false));
        given.chain(obeyed.iter().map(|place| (place, true))).map(look_up).collect()
    }
}

/// What confines the program.
enum Confined {
    Landlock(Arc<OwnedFd>),
    Namespaces(NamespaceSandbox),
}

struct OfAllLaunches {
    confined: Confined,
    filter: Vec<BpfInstruction>,
    kept: Vec<OsString>,
    limits: GroupLimits,
    places: Vec<GivenPath>,
    trusts_command: bool,
}

/// A sandbox that is ready for launches: from [`Sandbox::prepare`]. Clones share it, and any number of threads may use it.
#[derive(Clone)]
pub struct PreparedSandbox(Arc<OfAllLaunches>);

impl PreparedSandbox {
    /// Checks whether this process can launch in the sandbox here: executes `/` in it, which fails as the last step.
    ///
    /// ```no_run
    /// use forkless::Sandbox;
    /// let sandbox = match Sandbox::new().write(".").prepare().and_then(|sandbox| sandbox.check().map(|()| sandbox)) {
    ///     Ok(sandbox) => sandbox,
    ///     Err(why) => {
    ///         eprintln!("{why}; processes and names of files will be visible");
    ///         Sandbox::landlock().write(".").prepare()?
    ///     }
    /// };
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// What is refused: user namespaces (by AppArmor, a sysctl or a container), a mount, Landlock, a seccomp filter.
    pub fn check(&self) -> io::Result<()> {
        let Err(error) = Command::new("/").current_dir("/").sandbox(self).spawn() else { return Ok(()) };
        match Error::of(&error) {
            Some(found) if found.step() == Step::Exec && found.errno() == Some(errno::EACCES) => Ok(()),
            Some(found) => Err(found.of_program("a trial of the sandbox").into()),
            None => Err(error),
        }
    }
}

impl PreparedSandbox {
    #[doc(hidden)]
    pub fn has_landlock(&self) -> bool {
        match &self.0.confined {
            Confined::Landlock(_) => true,
            Confined::Namespaces(namespaces) => namespaces.has_landlock(),
        }
    }
}

impl std::fmt::Debug for PreparedSandbox {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list().entries(self.0.places.iter().map(|place| &place.path)).finish()
    }
}

impl Command {
    /// Launches the program in a sandbox, whose settings are added to those of the command.
    ///
    /// # Errors
    /// The launch fails if a file or directory of the sandbox was replaced since, or if the command has a Landlock ruleset or a seccomp
    /// filter with which that of the sandbox cannot be combined.
    ///
    /// ```no_run
    /// use forkless::{Command, Sandbox};
    /// let sandbox = Sandbox::landlock().write(".").prepare()?;
    /// let status = Command::new("make").sandbox(&sandbox).status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn sandbox(&mut self, sandbox: &PreparedSandbox) -> &mut Self {
        self.confinement = Some(Arc::new(sandbox.clone()));
        self
    }
}

impl Confinement for PreparedSandbox {
    fn has_cgroup(&self) -> bool {
        self.0.limits.make.is_some()
    }

    /// Settings that the command has itself stay, where they are not weaker.
    fn confine(&self, command: &Command) -> Result<Command, Error> {
        let OfAllLaunches { confined, filter, kept, limits, places, trusts_command } = &*self.0;
        let refused = |why: &str| refused(command, why);
        if command.ready.is_some() {
            return refused("the environment was given as a whole, so it cannot be restricted");
        }
        if command.sandbox.landlock.is_some() {
            return refused("the command has a Landlock ruleset of its own");
        }
        if command.inherit_all && !trusts_command {
            return refused("inherit_all would pass descriptors of files outside");
        }
        if !command.setup.best_effort.is_empty() {
            return refused("best_effort could leave out a part of it");
        }
        for place in places {
            let found = stat(&place.path).map(|found| (found.st_dev, found.st_ino));
            if found != Ok(place.file) {
                let error = found.map_or_else(|error| error.raw_os_error(), |_| errno::ESTALE);
                return Err(Error::new(&command.program, Step::Landlock, error)
                    .on(place.path.display().to_string())
                    .note("it was replaced after the sandbox was prepared: prepare it again"));
            }
        }
        let mut own = command.clone();
        own.confinement = None;
        own.sandbox.limits.add(limits);
        // Variables are copied by name: those set later, and entries without `=`, do not get in.
        for (name, value) in std::env::vars_os().filter(|(name, _)| !command.env.clear && is_kept(name, kept)) {
            let hides = matches!(confined, Confined::Namespaces(_)) && name == "HOME" && !kept.contains(&name);
            // Shells and tools report errors where HOME does not exist.
            let value = if hides && !mounts::is_shown(places, &command.sandbox.mounts, Path::new(&value)) {
                "/tmp".into()
            } else {
                value
            };
            own.env.changes.entry(name).or_insert(Some(value));
        }
        own.env.clear = true;
        if let Confined::Namespaces(namespaces) = confined {
            namespaces.confine(&mut own, places)?;
        } else if ids::is_root() {
            ids::of_root(&mut own).or_else(|why| refused(why).map(drop))?;
        }
        // The bounding set needs a privilege to change, and gives nothing after no_new_privs.
        let none = Some(CapabilitySet::EMPTY);
        let of_command = &command.sandbox;
        let given = [of_command.permitted, of_command.effective, of_command.inheritable, of_command.ambient];
        let kept = given.map(|set| set.filter(|_| *trusts_command).or(none));
        let sets = &mut own.sandbox;
        [sets.permitted, sets.effective, sets.inheritable, sets.ambient] = kept;
        for (resource, limit) in [
            (Resource::Core, 0),
            (Resource::Nice, 0),
            (Resource::RealtimePriority, 0),
            (Resource::LockedMemory, 8 << 20),
        ] {
            let most = forkless_core::sys::getrlimit(resource as u32).map_or(u64::MAX, |[_, hard]| hard);
            own.setup.rlimits.entry(resource as u32).or_insert((limit.min(most), limit.min(most)));
        }
        own.no_new_privs(true);
        if own.pty.is_none() && own.process_group.is_none() {
            own.setsid(true);
        }
        let filter = match &own.sandbox.seccomp {
            None => filter.clone(),
            Some(given) => match filter::both(given, filter) {
                Some(both) => both,
                None => return refused("the command's seccomp filter cannot be combined with that of the sandbox"),
            },
        };
        own.seccomp(filter);
        if let Confined::Landlock(ruleset) = confined {
            own.sandbox.landlock = Some(Arc::clone(ruleset));
        }
        Ok(own)
    }
}

fn refused<T>(command: &Command, why: &str) -> Result<T, Error> {
    Err(Error::check(&command.program, format!("sandbox: {why}")))
}

fn open_place(path: &Path) -> Result<OwnedFd, i32> {
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|error| error.raw_os_error())
}

#[cfg(test)]
mod tests;
