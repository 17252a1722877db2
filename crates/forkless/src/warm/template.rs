//! One template: its start, and the conditions for its use.

use super::ColdReason;
use super::caller::ThreadAttributes;
use super::files::{DirectoryEntry, LOADER, Stamp, check_program, has_capabilities, is_executable};
use super::library::Library;
use super::options::Limits;
use super::request::TemplateRequest;
use super::watch::{Unwatched, watch};
use crate::child::Child;
use crate::kernel::SIGKILL;
use crate::procfs::{Process, Status};
use crate::request::command::Command;
use crate::zygote::helper::Helper;
use crate::zygote::message::{MessageKind, refusal};
use forkless_core::sender::{Received, receive};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Timeout for a template's first message, in real time: it may be blocked. The watch has limited its CPU time.
const START: Duration = Duration::from_secs(10);

/// Timeout for a template to make a child. The launch is cold then. It is much longer than any clone takes, because a busy
/// machine must not end templates.
const ANSWER: Duration = Duration::from_secs(10);

/// Why there is no template.
pub(super) enum Refusal {
    /// There can be none as long as the program's file is the same.
    Lasting(Stamp, ColdReason),
    /// There may be one later. The reason against one now.
    Now(&'static str),
}

/// A program that waits to be cloned.
pub(super) struct Template {
    pub(super) helper: Arc<Helper>,
    program: Stamp,
    /// Where the program's path leads: the child finds it in `/proc/self/exe`.
    place: Option<DirectoryEntry>,
    files: Vec<Stamp>,
    caller: ThreadAttributes,
    started: Instant,
    launches: AtomicU32,
    /// Milliseconds from `started` to the last use.
    used: AtomicU64,
    /// How many launches in a row had a caller with other attributes.
    misfits: AtomicU32,
    /// The start of its successor was claimed.
    is_succeeded: AtomicBool,
}

/// Why a template is not used for a caller.
pub(super) enum Unfit {
    /// The caller has other attributes.
    Differs(&'static str),
    /// They cannot be compared now, or the caller cannot launch warm now. The template is as good as before.
    Unknown(&'static str),
}

impl Template {
    /// Starts a template, if the program can have one.
    pub(super) fn start(request: &TemplateRequest, library: &Library, limits: &Limits) -> Result<Self, Refusal> {
        let path = request.program();
        let Some(program) = Stamp::of(path).filter(Stamp::exists) else {
            return Err(Refusal::Now("the program does not exist"));
        };
        let place = DirectoryEntry::of(program.path());
        let lasting = |why: &str| Refusal::Lasting(program.clone(), why.into());
        if !program.is_regular() {
            return Err(lasting("the program is no regular file"));
        }
        if program.has_ids() || has_capabilities(path) {
            return Err(lasting("the program gains privileges when it is executed"));
        }
        match check_program(path) {
            Some(Ok(())) => {}
            Some(Err(why)) => return Err(lasting(why)),
            None => return Err(Refusal::Now("the program's file cannot be read")),
        }
        const YOUNG: &str = "the program or a library has changed a moment ago";
        request.check().map_err(Refusal::Now)?;
        let (caller, _) = ThreadAttributes::observe(None, false).map_err(Refusal::Now)?;
        if program.is_young() {
            return Err(Refusal::Now(YOUNG));
        }
        if !library.is_usable() {
            return Err(Refusal::Now("others may replace libforkless_warm.so"));
        }
        let library = &*library.path;
        let looked_at = watch(command(request, library), library).map_err(|why| match why {
            Unwatched::Lasting(why) => lasting(&why),
            Unwatched::Passing(why) => Refusal::Now(why),
        })?;
        let fixed = [Path::new(LOADER), library];
        let mut paths: Vec<_> = looked_at.iter().map(|path| &**path).chain(fixed).collect();
        paths.sort_unstable();
        paths.dedup();
        let files: Option<Vec<_>> = paths.into_iter().map(Stamp::of).collect();
        let files = files.ok_or(Refusal::Now("a library has a path with a NUL byte"))?;
        // A change during the watch has a time stamp of less than two seconds ago.
        if files.iter().any(Stamp::is_young) {
            return Err(Refusal::Now(YOUNG));
        }
        let mut said = None;
        let helper = Helper::start_by(command(request, library), |socket, child| greet(socket, child, &mut said));
        let mut helper = match (helper, said) {
            (Ok(helper), _) => helper,
            (Err(_), Some(why)) => return Err(lasting(why)),
            (Err(_), None) => return Err(Refusal::Now("the template did not start")),
        };
        helper.limit = Some(ANSWER);
        if !helper.is_open() {
            return Err(lasting("the caller may not inspect the template, or kcmp(2) is not available"));
        }
        match examine(helper.pid, &program) {
            Some(Ok(())) => {}
            Some(Err(why)) => return Err(lasting(why)),
            None => return Err(Refusal::Now("the template cannot be inspected")),
        }
        let template = Self {
            helper: Arc::new(helper),
            place,
            program,
            files,
            caller,
            started: Instant::now(),
            launches: AtomicU32::new(0),
            used: AtomicU64::new(0),
            misfits: AtomicU32::new(0),
            is_succeeded: AtomicBool::new(false),
        };
        // A file or the caller may have changed while the template started.
        match template.is_usable(limits).is_ok() && template.compare(false).is_ok() {
            true => Ok(template),
            false => Err(Refusal::Now("a file or the caller has changed meanwhile")),
        }
    }

    /// Whether its age and its files allow another launch. The error is the reason against it.
    pub(super) fn is_usable(&self, limits: &Limits) -> Result<(), &'static str> {
        if self.launches.load(Ordering::Relaxed) >= limits.launches || self.age() >= limits.life {
            return Err("the template has served long enough");
        }
        if !self.program.is_current() {
            return Err("the program's file has changed");
        }
        // The path may lead to another link of the same file, in another directory.
        if DirectoryEntry::of(self.program.path()) != self.place {
            return Err("the program's path resolves to another file");
        }
        if !self.files.iter().all(Stamp::is_current) {
            return Err("a library or a file of the loader has changed");
        }
        let path = Path::new(self.program.path());
        if !is_executable(path) {
            return Err("the caller may not execute the program");
        }
        Ok(())
    }

    /// Whether the caller has the attributes that it had when the template was started. Returns its status, which the
    /// launch needs too.
    pub(super) fn suits_caller(&self) -> Result<Status, Unfit> {
        self.compare(true)
    }

    /// `keeps`: the calling thread will launch again.
    fn compare(&self, keeps: bool) -> Result<Status, Unfit> {
        let (caller, status) = ThreadAttributes::observe(Some(&self.caller), keeps).map_err(Unfit::Unknown)?;
        if caller != self.caller {
            return Err(Unfit::Differs("the caller's credentials, limits or other attributes have changed"));
        }
        Ok(status)
    }

    /// Notes a launch that was warm.
    pub(super) fn note_fit(&self) {
        self.misfits.store(0, Ordering::Relaxed);
    }

    /// Notes a launch whose caller has other attributes. Returns how many there were in a row.
    pub(super) fn note_misfit(&self) -> u32 {
        self.misfits.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn note_use(&self) {
        self.launches.fetch_add(1, Ordering::Relaxed);
        self.used.store(self.started.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Claims the start of its successor, in the last quarter of its launches or of its life. True for one caller.
    pub(super) fn claim_successor(&self, limits: &Limits) -> bool {
        let left = limits.launches.saturating_sub(self.launches.load(Ordering::Relaxed));
        let is_near_its_end = left > 0 && left <= limits.launches / 4 || self.age() >= limits.life - limits.life / 4;
        is_near_its_end && !self.is_succeeded.swap(true, Ordering::Relaxed)
    }

    /// The time since its start.
    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// When it was last used.
    pub(super) fn last_used(&self) -> Instant {
        self.started + Duration::from_millis(self.used.load(Ordering::Relaxed))
    }
}

/// The command that executes a template.
fn command(request: &TemplateRequest, library: &Path) -> Command {
    let mut command = Command::new(request.program());
    command.arg0(request.arg0()).env_clear();
    for (name, value) in request.env() {
        command.env(name, value);
    }
    command.env("LD_PRELOAD", library);
    // The starting thread is the template's guard: no template outlives it.
    command.thread_death_signal(SIGKILL);
    command
}

/// Waits for a template's first message. `said`: why there can be no template.
fn greet(socket: &OwnedFd, _child: &mut Child, said: &mut Option<&'static str>) -> io::Result<()> {
    let deadline = Instant::now() + START;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Timespec::try_from(left).ok().as_ref()) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => break,
        }
    }
    let received = receive(socket.as_raw_fd(), |_| ()).map_err(io::Error::from_raw_os_error)?;
    let Some(Received { message, .. }) = received else { return Err(io::ErrorKind::UnexpectedEof.into()) };
    *said = Some(match (message.message_kind(), message.value) {
        (Some(MessageKind::Hello), 0) => return Ok(()),
        (Some(MessageKind::Hello), refusal::PRIVILEGED) => "the program gains privileges when it is executed",
        (Some(MessageKind::Hello), refusal::FORK_HANDLERS) => "a library has handlers for fork (pthread_atfork)",
        (Some(MessageKind::Hello), refusal::TIMERS) => "a library has a timer or an alternate signal stack",
        (Some(MessageKind::Hello), refusal::KERNEL) => {
            "the kernel does not support templates (CONFIG_CHECKPOINT_RESTORE)"
        }
        _ => "libforkless_warm.so is of another version",
    });
    Err(io::ErrorKind::Unsupported.into())
}

/// Checks what loading has left in a template. The error is the reason why it cannot be used. `None`: `/proc` cannot be
/// read now.
fn examine(pid: i32, program: &Stamp) -> Option<Result<(), &'static str>> {
    let process = Process::open(pid).ok()?;
    let status = String::from_utf8_lossy(&process.read("status").ok()?).into_owned();
    let field = |label: &str| status.lines().find_map(|line| line.strip_prefix(label)).map(str::trim);
    if field("Threads:") != Some("1") {
        return Some(Err("a library has started a thread"));
    }
    if field("SigCgt:").is_none_or(|set| set.bytes().any(|digit| digit != b'0')) {
        return Some(Err("a library has signal handlers"));
    }
    // The standard streams, the socket, and the caller's status where the template has rights that the caller may give up.
    let own = if crate::kernel::capabilities()[1] == 0 { 4 } else { 5 };
    if process.count_descriptors().ok()? != own {
        return Some(Err("a library has left a descriptor open"));
    }
    let executed = process.identity("exe").ok();
    if executed.is_none() || executed != program.identity() {
        return Some(Err("the template runs another program"));
    }
    Some(Ok(()))
}
