//! `posix_spawn(3)`, `posix_spawnp(3)` and the pidfd variants.
//!
//! The objects are converted to a command, whose child makes the steps in libc's order: scheduler, session, process
//! group, file actions, signals. Calls that this library cannot improve or does not know, such as resetting IDs or an
//! unknown action, are left to libc.

use crate::heap;
use crate::inherit::{self, Flat};
use crate::log::Story;
use crate::next::{self, Opaque, is_glibc};
use crate::sealed::{Mask, sealed};
use crate::settings::{Settings, without_us};
use forkless::internal::posix::FileAction;
use forkless::{Child, Command, Error, Stdio, Step, internal::Released};
use forkless_capi::boundary::shielded;
use forkless_capi::error::Failure;
use forkless_capi::simple::{DEFAULT_PATH, like_libc, places_in};
use forkless_core::sys;
use layout::{Actions, Attributes};
use libc::{c_char, c_int, pid_t, sigset_t};
use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;

pub(crate) mod layout;

pub(crate) mod objects;

/// The arguments of a call.
pub(crate) struct Call {
    /// The function's name.
    pub(crate) name: &'static str,
    /// Whether PATH is searched.
    pub(crate) searches: bool,
    /// Whether a file without #! is run by the shell, as in the old version of the functions.
    pub(crate) takes_scripts: bool,
    /// Whether the result is a pidfd instead of a pid.
    pub(crate) gives_pidfd: bool,
    /// libc's function.
    pub(crate) libc: fn() -> Option<next::Spawn>,
    pub(crate) out: *mut c_int,
    pub(crate) file: *const c_char,
    pub(crate) actions: *const Actions,
    pub(crate) attributes: *const Attributes,
    pub(crate) argv: *const *const c_char,
    pub(crate) envp: *const *const c_char,
}

/// Why a call is left to libc.
type Aside = &'static str;

/// The result of a call that is handled here.
#[derive(Clone, Copy)]
enum SpawnAnswer {
    /// The pid, or the pidfd.
    Started(c_int),
    Failed(c_int),
    /// The child was killed by this signal before it could run the program.
    Killed(c_int),
}

/// # Safety
/// As `posix_spawn(3)` says of the arguments.
pub(crate) unsafe fn spawn(call: &Call) -> c_int {
    let answer = sealed(|mask| {
        // SAFETY: the caller's contract.
        let answer = unsafe { try_here(call, mask) };
        match answer {
            Ok(SpawnAnswer::Started(number)) if !call.out.is_null() => {
                // SAFETY: `out` is a valid pointer of the caller.
                unsafe { call.out.write(number) };
            }
            Err(why) if why != OFF && why != NO_MEMORY => Story::begin().left(call.name, why),
            _ => {}
        }
        answer
    });
    match answer {
        Ok(SpawnAnswer::Started(_)) => 0,
        Ok(SpawnAnswer::Failed(error)) => error,
        // To the caller, the child was started and then killed. That child was never visible, so another one is started
        // and killed by the same signal.
        // SAFETY: the caller's contract.
        Ok(SpawnAnswer::Killed(signal)) => unsafe { left_to_libc(call, Some(signal)) },
        // SAFETY: the caller's contract.
        Err(_) => unsafe { left_to_libc(call, None) },
    }
}

/// FORKLESS=off.
const OFF: Aside = "FORKLESS is off";

/// The call may still succeed: libc's function needs less memory.
const NO_MEMORY: Aside = "there is no memory";

/// Children that share the caller's memory open nothing in procfs, because /proc/self would be the caller.
const IN_PROCFS: Aside = "a file lies in procfs";

/// # Safety
/// As for [`spawn`].
unsafe fn left_to_libc(call: &Call, signal: Option<c_int>) -> c_int {
    let Some(libc) = (call.libc)() else { return libc::ENOSYS };
    let mut number = -1;
    // The caller's variable, if there is one: libc writes to it before a signal handler can run.
    let out = if call.out.is_null() { &raw mut number } else { call.out };
    let (actions, attributes) = (call.actions.cast::<Opaque>(), call.attributes.cast::<Opaque>());
    // SAFETY: libc's own function, with the caller's arguments.
    let error = unsafe { libc(out, call.file, actions, attributes, call.argv, call.envp) };
    if let (0, Some(signal)) = (error, signal) {
        // SAFETY: written by libc. The child has not been waited for, so the number is still its own.
        let number = unsafe { *out };
        let _ = if call.gives_pidfd { sys::pidfd_send_signal(number, signal) } else { sys::kill(number, signal) };
    }
    error
}

/// # Safety
/// As for [`spawn`].
unsafe fn try_here(call: &Call, mask: &Mask) -> Result<SpawnAnswer, Aside> {
    // SAFETY: the caller's contract.
    if !unsafe { heap::has_room([call.argv, call.envp], 0) } {
        return Err(NO_MEMORY);
    }
    let settings = Settings::get();
    if settings.off {
        return Err(OFF);
    }
    if !layout::is_known(call.actions) || !layout::is_known(call.attributes) {
        return Err("the layout of libc's objects is unknown");
    }
    // SAFETY: the caller's contract.
    let (actions, request) = unsafe { (actions(call.actions)?, Request::of(call.attributes)?) };
    if actions.iter().any(inherit::is_open_of_procfs) {
        return Err(IN_PROCFS);
    }
    // SAFETY: the caller's contract.
    let words = match unsafe { Words::of(call) } {
        Ok(words) => words,
        Err(error) => return Ok(SpawnAnswer::Failed(error)),
    };
    let story = Story::begin();
    let started = shielded(|| {
        // In a private table a path such as /dev/fd/N would lead to another file, or to none.
        let by_number = words.paths.iter().any(|path| inherit::is_procfs(path.as_bytes()));
        if let Some(flat) = Flat::of(&actions, &settings.inherit).filter(|_| !by_number) {
            let launched = launch(call, &words, (&request, mask), Descriptors::Flat(flat));
            // Otherwise the whole table is copied, and the steps determine whether this is an error.
            if !is_descriptor_missing(&launched, &actions) {
                return Ok(launched);
            }
        }
        let all = inherit::whole(&actions, &settings.inherit);
        Ok(launch(call, &words, (&request, mask), Descriptors::All(all)))
    });
    let error = match started.unwrap_or_else(|_| Err(io::Error::from_raw_os_error(libc::ENOSYS))) {
        Ok(child) => {
            story.end(call.name, &words.name, None, &child);
            match child.release() {
                Ok(Released::Running { pid, pidfd }) => {
                    let pidfd = pidfd.filter(|_| call.gives_pidfd).map(IntoRawFd::into_raw_fd);
                    return Ok(SpawnAnswer::Started(pidfd.unwrap_or(pid)));
                }
                Ok(Released::Killed(signal)) => return Ok(SpawnAnswer::Killed(signal)),
                Err(error) => error,
            }
        }
        Err(error) => error,
    };
    match Error::of(&error) {
        Some(detail) if detail.step() == Step::Probe => {
            return Err("the kernel or a seccomp filter does not allow it");
        }
        // The path led to procfs without showing it. Steps that the child has already made are repeated.
        Some(detail) if detail.step() == Step::Open && detail.errno() == Some(libc::EOPNOTSUPP) => {
            return Err(IN_PROCFS);
        }
        _ => {}
    }
    Ok(match killed_by(&error) {
        Some(signal) => SpawnAnswer::Killed(signal),
        None => SpawnAnswer::Failed(Failure::from(error).errno()),
    })
}

/// Whether the launch failed because of a missing descriptor, or maybe because of a link such as /dev/fd/N to a number
/// that the child's private table does not have. A second attempt must not fail because of a file that the first has
/// created.
fn is_descriptor_missing(launched: &io::Result<Child>, actions: &[FileAction]) -> bool {
    let makes_it = |action: &FileAction| matches!(action, FileAction::Open { flags, .. } if flags & libc::O_EXCL != 0);
    launched.as_ref().err().and_then(Error::of).is_some_and(|detail| match (detail.step(), detail.errno()) {
        (Step::PassFd, _) => true,
        (Step::Open | Step::Chdir, Some(libc::ENOENT)) => !actions.iter().any(makes_it),
        _ => false,
    })
}

/// The source of a child's descriptors.
enum Descriptors {
    All(Vec<FileAction>),
    Flat(Flat),
}

/// Starts a child; with a shell if the file is a script without #! and the call allows that.
fn launch(
    call: &Call,
    words: &Words<'_>,
    (request, mask): (&Request, &Mask),
    descriptors: Descriptors,
) -> io::Result<Child> {
    let mut command = Command::new(&words.name);
    like_libc(&mut command).pidfd(call.gives_pidfd);
    match descriptors {
        Descriptors::All(actions) => _ = command.inherit_all(true).file_actions(actions),
        Descriptors::Flat(flat) => {
            for (source, number) in flat.passed {
                // SAFETY: descriptors of the caller of posix_spawn(3), which its child inherits.
                command.fd(unsafe { Stdio::fd(source) }, number);
            }
            command.file_actions(flat.actions);
        }
    }
    request.put(&mut command, mask)?;
    command.exactly(words.paths.clone(), words.args.clone(), words.env.iter().map(Cow::as_ref));
    let launched = command.spawn();
    let is_script = launched
        .as_ref()
        .err()
        .and_then(Error::of)
        .is_some_and(|detail| detail.step() == Step::Exec && detail.errno() == Some(libc::ENOEXEC));
    if !is_script || !call.takes_scripts {
        return launched;
    }
    let mut args = vec![OsString::from(SHELL), words.name.clone()];
    args.extend(words.args.iter().skip(1).cloned());
    command.exactly(vec![SHELL.into()], args, words.env.iter().map(Cow::as_ref));
    command.spawn()
}

const SHELL: &str = "/bin/sh";

/// The program, its arguments and its environment.
struct Words<'a> {
    name: OsString,
    paths: Vec<OsString>,
    args: Vec<OsString>,
    env: Vec<Cow<'a, CStr>>,
}

impl Words<'_> {
    /// Returns an errno on failure.
    ///
    /// # Safety
    /// As for [`spawn`].
    unsafe fn of(call: &Call) -> Result<Self, c_int> {
        if call.file.is_null() {
            return Err(libc::EFAULT);
        }
        // SAFETY: a string.
        let name = OsStr::from_bytes(unsafe { CStr::from_ptr(call.file) }.to_bytes());
        let paths = if call.searches { candidates(name) } else { vec![name.to_owned()] };
        // SAFETY: lists of strings that end in a null pointer.
        let (args, env) = unsafe { (texts(call.argv), texts(call.envp)) };
        let args = args.iter().map(|arg| OsStr::from_bytes(arg.to_bytes()).to_owned()).collect();
        let env = env.into_iter().filter_map(|entry| inherited(entry, Settings::get())).collect();
        Ok(Self { name: name.to_owned(), paths, args, env })
    }
}

/// An entry of the environment as the program gets it: LD_PRELOAD without this library, with FORKLESS_CHILDREN=off.
fn inherited<'a>(entry: &'a CStr, settings: &Settings) -> Option<Cow<'a, CStr>> {
    let Some(list) = entry.to_bytes().strip_prefix(b"LD_PRELOAD=").filter(|_| settings.spares_children) else {
        return Some(Cow::Borrowed(entry));
    };
    let rest = without_us(list);
    if rest.is_empty() {
        return None;
    }
    CString::new([b"LD_PRELOAD=", rest.as_slice()].concat()).ok().map(Cow::Owned)
}

/// # Safety
/// Null, or a list of strings that ends in a null pointer.
unsafe fn texts<'a>(list: *const *const c_char) -> Vec<&'a CStr> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: all entries before the null pointer are strings.
    let text = |n: usize| unsafe { (*list.add(n)).as_ref().map(|first| CStr::from_ptr(first)) };
    (0..).map_while(text).collect()
}

/// The files that `execvp(3)` would try: from the caller's PATH, not that of the new environment.
///
/// libc's child searches after its file actions, so a name that is not found is an error of exec, not of the call.
fn candidates(name: &OsStr) -> Vec<OsString> {
    const NAME_MAX: usize = 255;
    let as_given = vec![name.to_owned()];
    // An empty name is ENOENT and a long one ENAMETOOLONG, also from the kernel.
    if name.is_empty() || name.len() > NAME_MAX || name.as_bytes().contains(&b'/') {
        return as_given;
    }
    // SAFETY: the name ends in NUL; the value is read at once, as libc's own function does.
    let path = unsafe {
        let path = libc::getenv(c"PATH".as_ptr());
        if path.is_null() { DEFAULT_PATH } else { CStr::from_ptr(path).to_bytes() }
    };
    let paths = places_in(path, name);
    // Every directory was too long: nothing is found.
    if paths.is_empty() { vec![OsString::new()] } else { paths }
}

/// # Safety
/// Null, or an object that was initialised.
unsafe fn actions(actions: *const Actions) -> Result<Vec<FileAction>, Aside> {
    // SAFETY: the caller's contract.
    let Some(list) = (unsafe { actions.as_ref() }) else { return Ok(Vec::new()) };
    let mut found = Vec::with_capacity(usize::try_from(list.used).unwrap_or(0));
    for n in 0..list.used {
        // SAFETY: `used` entries are initialized, and each has the fields of its tag.
        found.push(unsafe {
            let action = &*list.first.add(n as usize);
            let [fd, new] = action.what.numbers;
            let text = |path: *mut c_char| CStr::from_ptr(path).to_owned();
            match action.tag {
                layout::CLOSE => FileAction::Close(fd),
                layout::DUP2 => FileAction::Dup2 { from: fd, to: new },
                layout::OPEN => {
                    let layout::Open { fd, path, flags, mode } = action.what.open;
                    FileAction::Open { to: fd, path: text(path), flags, mode }
                }
                layout::CHDIR => FileAction::Chdir(text(action.what.path)),
                layout::FCHDIR => FileAction::Fchdir(fd),
                layout::CLOSEFROM => FileAction::CloseRange(fd, -1),
                layout::TCSETPGRP => FileAction::Foreground(fd),
                _ => return Err("a file action is unknown"),
            }
        });
    }
    Ok(found)
}

/// The settings of the attributes.
#[derive(Default)]
struct Request {
    session: bool,
    group: Option<pid_t>,
    default: Vec<c_int>,
    /// None: the caller's.
    mask: Option<Vec<c_int>>,
    /// The policy (none: the caller's) and the priority.
    scheduler: Option<(Option<c_int>, c_int)>,
    cgroup: Option<c_int>,
}

impl Request {
    /// # Safety
    /// Null, or an object that was initialised.
    unsafe fn of(attributes: *const Attributes) -> Result<Self, Aside> {
        // SAFETY: the caller's contract.
        let Some(given) = (unsafe { attributes.as_ref() }) else { return Ok(Self::default()) };
        let has = |flag| given.flags & flag != 0;
        // SAFETY: numbers.
        let (user, group) = unsafe { (libc::getuid() != libc::geteuid(), libc::getgid() != libc::getegid()) };
        if has(objects::RESETIDS) && (user || group) {
            return Err("POSIX_SPAWN_RESETIDS changes the IDs");
        }
        if has(objects::SETSID) && has(objects::SETPGROUP) {
            return Err("a session leader cannot change its process group");
        }
        // If both flags are set, setting the policy includes the priority.
        let policy = has(objects::SETSCHEDULER).then_some(given.policy);
        let schedules = policy.is_some() || has(objects::SETSCHEDPARAM);
        Ok(Self {
            session: has(objects::SETSID),
            group: has(objects::SETPGROUP).then_some(given.pgrp),
            default: if has(objects::SETSIGDEF) { members(&given.default) } else { Vec::new() },
            mask: has(objects::SETSIGMASK).then(|| members(&given.mask)),
            scheduler: schedules.then_some((policy, given.param.sched_priority)),
            cgroup: has(objects::SETCGROUP).then_some(given.cgroup),
        })
    }

    fn put(&self, command: &mut Command, callers: &Mask) -> io::Result<()> {
        if self.session {
            command.setsid(true);
        }
        if let Some(group) = self.group {
            command.process_group(group);
        }
        reserve(command);
        for &signal in &self.default {
            command.signal_default(signal);
        }
        match &self.mask {
            Some(mask) => {
                command.inherit_signal_mask(false);
                for &signal in mask.iter().filter(|signal| !RESERVED.contains(signal)) {
                    command.signal_block(signal);
                }
            }
            None => callers.ready(command),
        }
        if let Some((policy, priority)) = self.scheduler {
            command.scheduler_as_given(policy, priority);
        }
        if let Some(group) = self.cgroup {
            if group < 0 {
                return Err(io::Error::from_raw_os_error(libc::EBADF));
            }
            // SAFETY: the caller names this number as a descriptor; if it is closed, the duplication fails.
            command.cgroup(unsafe { BorrowedFd::borrow_raw(group) }.try_clone_to_owned()?);
        }
        Ok(())
    }
}

/// glibc uses these signals itself, and never blocks them.
const RESERVED: [c_int; 2] = [32, 33];

/// The signal that killed a child before it could run its program.
pub(crate) fn killed_by(error: &io::Error) -> Option<c_int> {
    let detail = Error::of(error)?;
    detail.signal().filter(|_| detail.errno().is_none())
}

/// Ignores the [`RESERVED`] signals, as glibc before 2.38 does when it sets each disposition itself (`__spawni_child`).
pub(crate) fn reserve(command: &mut Command) {
    if !is_glibc(38) {
        for signal in RESERVED {
            command.signal_ignore(signal);
        }
    }
}

/// The signals of a set.
fn members(set: &sigset_t) -> Vec<c_int> {
    // A set begins with a word in which bit n-1 is signal n. libc's own functions skip 32 and 33, so the word is read
    // directly.
    // SAFETY: a set is longer than a word.
    let word = unsafe { (&raw const *set).cast::<u64>().read() };
    (1..=64).filter(|signal| word & 1 << (signal - 1) != 0).collect()
}
