//! A compiled command: the ops that the child plays, and what the caller needs to launch it. `compile` makes it,
//! and every launcher uses it.

use crate::kernel::{CLONE_AUTOREAP, CLONE_PIDFD_AUTOKILL};
use crate::request::environment::Held;
use crate::request::stdio::FdSource;
use crate::route::Launcher;
use forkless_core::frame::{SLOT_INHERIT, SLOT_NULL, SLOTS};
use forkless_core::init;
use forkless_core::plan::{self, Call, Header, Op, OpCode, Pair};
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

pub(crate) mod compile;
pub(crate) mod describe;
pub(crate) mod posix_spawn;

use crate::request::ClonerHandle;
use crate::request::closure::Closure;
use crate::request::command::{Command, GroupLimits, Paths};
use posix_spawn::Extensions;

/// A compiled command: the arena that the child plays, and what the caller needs to run it and to explain a failure.
pub(crate) struct Plan {
    pub(crate) arena: Box<[u64]>,
    pub(crate) fds: Fds,
    pub(crate) place: Placement,
    /// The thread that clones the child.
    pub(crate) creator: Creator,
    /// The child is killed when its handle is dropped.
    pub(crate) kill_on_drop: bool,
    /// The caller launches nothing else: a probe of the kernel's features is not worth its child.
    pub(crate) once: bool,
    /// The child leads a process group of its own.
    pub(crate) leads_group: bool,
    /// Flags of `clone3(2)`. If they cannot be set, no child is created.
    pub(crate) flags: u64,
    /// Whether the command requested a pidfd, or none; `None`: neither.
    pub(crate) pidfd: Option<bool>,
    /// The launcher that creates the child.
    pub(crate) launcher: Launcher,
    /// With `Launcher::PosixSpawn`: the functions that the C library has.
    pub(crate) extensions: Option<Extensions>,
    /// The closures that a forked child calls before exec.
    pub(crate) closures: Vec<Arc<Closure>>,
    /// The process that clones in the caller's place, if a launch names no other: an `OfPlan`.
    pub(crate) cloner: Option<ClonerHandle>,
    pub(crate) program: OsString,
    /// Set if the plan executes an init, which executes the program.
    pub(crate) inner: Option<InnerProgram>,
    /// The program may not see what the caller sees.
    pub(crate) in_sandbox: bool,
    /// The directories of PATH that were searched.
    pub(crate) searched: Option<OsString>,
    /// Keeps an environment alive that the arena only points to.
    pub(crate) _environment: Option<Held>,
    /// Keeps the descriptors open that the command owns.
    pub(crate) _owned: Vec<Arc<OwnedFd>>,
}

/// A program that is executed by the init of a sandbox: see [`forkless_core::init`].
pub(crate) struct InnerProgram {
    /// The child's number of the socket that init reports over.
    pub(crate) socket: RawFd,
    /// The arguments of init, with those of the program.
    pub(crate) args: Vec<OsString>,
    /// Which of them are the paths that init tries.
    pub(crate) paths: Range<usize>,
    /// Without a PID namespace, SIGKILL to init would leave the program's processes: init itself must kill them.
    pub(crate) kills_tree: bool,
}

impl InnerProgram {
    pub(crate) fn new(socket: RawFd, command: &Command, paths: &Paths) -> Self {
        let leads = if command.setsid && command.pty.is_none() { init::LEADS } else { 0 };
        let by_shell = if command.scripts_by_shell { init::BY_SHELL } else { 0 };
        let tries_all = if command.tries_all { init::TRIES_ALL } else { 0 };
        let given = command.sandbox.init.as_ref();
        let kills = if given.is_some_and(|init| init.kills_tree) { init::KILLS_TREE } else { 0 };
        let linger = given.map_or(0, |init| init.linger);
        let word = init::word(socket, leads | by_shell | tries_all | kills, linger);
        let word = word.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut args = vec![OsString::from("forkless-init"), OsStr::from_bytes(word).to_owned()];
        args.extend(paths.iter().map(OsStr::to_owned));
        let paths = 2..args.len();
        args.push(OsString::new());
        args.extend(command.args.iter().cloned());
        Self { socket, args, paths, kills_tree: kills != 0 }
    }
}

/// The descriptors that the caller makes and passes, and how it shares its file-descriptor table.
pub(crate) struct Fds {
    /// The standard streams, unless the run overrides them.
    pub(crate) stdio: [PlannedStream; 3],
    /// The child's descriptor numbers for the socket pairs in slots 3 and up.
    pub(crate) sockets: Vec<RawFd>,
    /// The one of them over which the child sends descriptors back.
    pub(crate) back: Option<RawFd>,
    /// Each run makes a pipe whose writing end, in [`EXEC_SLOT`](forkless_core::frame::EXEC_SLOT), exec closes.
    pub(crate) exec_pipe: bool,
    /// A launch waits until the child has a table of its own.
    pub(crate) keeps_locks: bool,
    /// The master of the pseudo-terminal whose other side is opened for each run, in [`TERMINAL_SLOT`].
    pub(crate) pty: Option<Weak<OwnedFd>>,
    /// The caller's highest descriptor that every run passes; -1: none.
    pub(crate) highest_source: RawFd,
    /// Some passed descriptors are the caller's, which may close them after the launch. The others are the plan's own.
    pub(crate) borrows: bool,
    /// Every descriptor that is not close-on-exec is inherited.
    pub(crate) inherit_all: bool,
    /// The child uses descriptors in the caller's file-descriptor table before it has its own.
    pub(crate) reads_early: bool,
}

/// Where the child starts, and what it changes of itself while it shares memory.
pub(crate) struct Placement {
    /// The child gets other IDs, capabilities or user namespaces. Processes that may not inspect the caller may then
    /// inspect the child.
    pub(crate) changes_ids: bool,
    /// `CLONE_NEW*`: the new namespaces that the child starts in.
    pub(crate) namespaces: u64,
    /// The ID maps of its user namespace, if any must be written.
    pub(crate) id_maps: Option<IdMaps>,
    /// The child is in another user or PID namespace, and cannot inspect the caller or is not allowed to.
    pub(crate) is_foreign: bool,
    /// The cgroup that the child starts in.
    pub(crate) cgroup: Option<Arc<OwnedFd>>,
    /// Each launch makes a cgroup for the child.
    pub(crate) limits: Option<GroupLimits>,
    /// A seccomp filter may kill the child at exec.
    pub(crate) is_filtered: bool,
    /// The child must be cloned with `CLONE_VFORK`.
    pub(crate) vfork: bool,
    /// The child may be in another cgroup than the caller while it shares the caller's memory.
    pub(crate) changes_cgroup: bool,
    /// The child needs its parent's PID.
    pub(crate) names_parent: bool,
    /// The child is in another PID namespace, where its parent has no PID.
    pub(crate) is_in_other_pids: bool,
}

impl Placement {
    /// Whether the clone puts the child into a cgroup.
    pub(crate) fn has_cgroup(&self) -> bool {
        self.cgroup.is_some() || self.limits.is_some()
    }
}

/// The ID maps of a plan, as the caller writes them.
#[derive(Default)]
pub(crate) struct IdMaps {
    pub(crate) uid: String,
    pub(crate) gid: String,
}

/// The thread that clones.
#[derive(Debug, Clone)]
pub(crate) enum Creator {
    /// The thread that launches.
    Caller,
    /// A thread that outlives the child. The process's first thread clones itself, because mostly it lives as long as the
    /// process.
    Process,
    /// A thread that joins this PID namespace first.
    Member(Arc<OwnedFd>),
}

/// The slot of a pseudo-terminal: the last one, because those of socket pairs are counted from the front.
pub(crate) const TERMINAL_SLOT: usize = SLOTS - 1;

/// A standard stream as the command described it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlannedStream {
    /// Not set.
    Unset,
    /// The caller's.
    Inherit,
    /// `/dev/null`.
    Null,
    /// A pipe for each run.
    Piped,
    /// A pair of sockets for each run.
    SocketPair,
    /// In the plan itself.
    Compiled,
}

impl PlannedStream {
    pub(crate) fn of(source: Option<&FdSource>) -> Self {
        match source {
            None => Self::Unset,
            Some(FdSource::Inherit) => Self::Inherit,
            Some(FdSource::Null) => Self::Null,
            Some(FdSource::Piped) => Self::Piped,
            Some(FdSource::SocketPair) => Self::SocketPair,
            Some(_) => Self::Compiled,
        }
    }

    /// The slot's value where no descriptor has to be made.
    pub(crate) fn slot(self) -> i32 {
        if self == Self::Null { SLOT_NULL } else { SLOT_INHERIT }
    }
}

impl Plan {
    /// Whether the kernel reaps the child.
    pub(crate) fn is_autoreaped(&self) -> bool {
        self.flags & CLONE_AUTOREAP != 0
    }

    /// Whether the kernel kills the child when its pidfd is closed.
    pub(crate) fn is_autokilled(&self) -> bool {
        self.flags & CLONE_PIDFD_AUTOKILL != 0
    }

    /// The arena that the child plays. Valid as long as the plan exists, even if the plan itself is moved. [`plan::at`]
    /// takes this pointer and no reference to the header, which would be valid for the header alone.
    pub(crate) fn header(&self) -> *const Header {
        self.arena.as_ptr().cast()
    }

    /// The arena's header.
    pub(crate) fn head(&self) -> &Header {
        // SAFETY: the arena begins with its header.
        unsafe { &*self.header() }
    }

    /// The whole arena. A copy of it elsewhere can be played after it has been relocated there.
    pub(crate) fn arena(&self) -> &[u64] {
        &self.arena
    }

    /// The program as it was requested.
    pub(crate) fn program(&self) -> &OsStr {
        &self.program
    }

    /// The PATH that was searched.
    pub(crate) fn searched(&self) -> Option<&OsStr> {
        self.searched.as_deref()
    }

    /// The index of the op that executes the program.
    pub(crate) fn last_op(&self) -> u32 {
        self.head().op_count - 1
    }

    /// The ops of this plan.
    fn ops(&self) -> &[Op] {
        // SAFETY: the header's list lies in the arena.
        unsafe {
            let header = self.header();
            std::slice::from_raw_parts(plan::at::<Op>(header, (*header).ops), (*header).op_count as usize)
        }
    }

    /// An op of this plan, by an index that is known to be one.
    pub(crate) fn op(&self, index: u32) -> &Op {
        &self.ops()[index as usize]
    }

    /// A pair of this plan, if there is one of that index.
    pub(crate) fn pair(&self, index: i32) -> Option<&Pair> {
        // SAFETY: the header's list lies in the arena.
        let pairs = unsafe {
            let header = self.header();
            std::slice::from_raw_parts(plan::at::<Pair>(header, (*header).pairs), (*header).pair_count as usize)
        };
        pairs.get(usize::try_from(index).ok()?)
    }

    /// All ops but the one that executes the program.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &Op> {
        (0..self.last_op()).map(|index| self.op(index))
    }

    /// The system call of an [`OpCode::Call`] op.
    pub(crate) fn call(&self, op: &Op) -> Option<&Call> {
        // SAFETY: the first operand of such an op is the offset of a Call.
        (op.code == OpCode::Call).then(|| unsafe { &*plan::at::<Call>(self.header(), op.a) })
    }

    /// The descriptor numbers that the program inherits, including 0 to 2.
    pub(crate) fn keep(&self) -> &[i32] {
        // SAFETY: the header's list lies in the arena.
        unsafe {
            let header = self.header();
            std::slice::from_raw_parts(plan::at::<i32>(header, (*header).keep), (*header).keep_count as usize)
        }
    }

    /// The offsets of the candidates of an `Exec` op.
    pub(crate) fn candidates(&self, exec: &Op) -> &[u32] {
        // SAFETY: the list at `a` holds `b` offsets.
        unsafe { std::slice::from_raw_parts(plan::at::<u32>(self.header(), exec.a), exec.b as usize) }
    }

    /// A string of this plan.
    pub(crate) fn text(&self, offset: u32) -> String {
        // SAFETY: offsets of strings come from the plan's own ops and lists, and every string ends in NUL.
        let text = unsafe { std::ffi::CStr::from_ptr(plan::at(self.header(), offset)) };
        String::from_utf8_lossy(text.to_bytes()).into_owned()
    }

    /// The path of a candidate of an `Exec` op.
    pub(crate) fn candidate(&self, exec: &Op, index: i32) -> Option<String> {
        self.candidates(exec).get(usize::try_from(index).ok()?).map(|&offset| self.text(offset))
    }

    /// A path of the program that exists for the caller, although a sandbox may not show it.
    pub(crate) fn outside(&self) -> Option<PathBuf> {
        let exec = Some(self.op(self.last_op())).filter(|op| op.code == OpCode::Exec);
        let own = exec.into_iter().flat_map(|op| self.candidates(op)).map(|&offset| PathBuf::from(self.text(offset)));
        let of_init = self.inner.iter().flat_map(|inner| inner.args.get(inner.paths.clone())).flatten();
        let mut paths = of_init.map(PathBuf::from).chain(own);
        paths.find(|path| self.in_sandbox && path.is_absolute() && path.is_file())
    }
}

#[cfg(test)]
mod tests {
    use forkless_core::frame::{SLOT_INHERIT, SLOT_NULL, SLOTS, source_of};
    use forkless_core::plan::{Origin, OriginNumber, Pair};

    /// A number stands for one origin. A slot that no frame has leaves the child's descriptor unchanged.
    #[test]
    fn an_origin_comes_back_from_its_number() {
        let origins =
            [Origin::Null, Origin::Descriptor(0), Origin::Descriptor(i32::MAX), Origin::Slot(0), Origin::Slot(SLOTS)];
        for origin in origins {
            assert_eq!(OriginNumber::of(origin).origin(), origin);
        }
        let slots: [i32; SLOTS] = std::array::from_fn(|n| 100 + n as i32);
        let found = origins.map(|origin| source_of(&slots, &Pair::new(origin, 7)));
        assert_eq!(found, [SLOT_NULL, 0, i32::MAX, 100, SLOT_INHERIT]);
    }
}
