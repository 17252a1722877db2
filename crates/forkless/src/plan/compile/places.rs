//! Where the paths of mounts are looked up: inside the new root or inside an earlier mount, and never outside of it.
//!
//! A mounted directory may belong to an untrusted user, who may change it at any time. A symbolic link in it must not
//! redirect a mount or a new file to another place. So `openat2(2)` looks each such path up inside an open directory.

use crate::plan::compile::arena::Arg;
use crate::plan::compile::setup::Steps;
use crate::procfs;
use crate::request::command::{Command, Mount, MountStep};
use crate::step::Step;
use forkless_core::plan::VARIABLES;
use forkless_core::sys::uapi;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The directory that relative paths start from.
pub(super) const HERE: Arg = Arg::Number(uapi::AT_FDCWD as i64 as u64);

/// Two variables that are used in turn, and one for the working directory to return to, or for the root that is kept open.
const TURNS: [u32; 2] = [VARIABLES as u32 - 3, VARIABLES as u32 - 2];
const KEPT: u32 = VARIABLES as u32 - 1;

/// How a directory is opened that is only passed through.
const DIRECTORY: u32 = uapi::O_PATH | uapi::O_DIRECTORY | uapi::O_CLOEXEC;

/// The mounts made before a step, and the new root.
#[derive(Default)]
pub(super) struct Places {
    /// The directory of relative paths, for comparisons.
    base: PathBuf,
    /// The directory of `pivot_root` or `chroot`.
    new_root: Option<Root>,
    mounted: Vec<Root>,
    /// Whether a later step copies mounts of the caller.
    pub(super) binds_later: bool,
    /// The copy of all mounts from before those of the root were restricted, once it has been made.
    pub(super) before: Option<Before>,
    /// Whether the new root stays open from its mount on. The child then does not return to its working directory, which its new user may
    /// be unable to open.
    keeps_root: bool,
    is_root_open: bool,
}

/// Where a copy of all mounts is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    Detached,
    /// On top of the root.
    Attached,
}

/// A directory that a look-up must not leave.
#[derive(Clone)]
struct Root {
    /// The caller's path.
    path: PathBuf,
    /// The path for comparisons: absolute, without `.` and `..`.
    plain: PathBuf,
}

/// A path below a [`Root`].
pub(super) struct Inside {
    root: PathBuf,
    below: PathBuf,
    resolve: u64,
}

/// The part of a path to open.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The directory of the last component.
    Parent,
    /// The whole path, which must be a directory.
    Directory,
    /// The whole path.
    Whole,
}

impl Places {
    /// The state before the first mount.
    pub(super) fn of(command: &Command) -> Self {
        let mut places = Self { base: base(command).unwrap_or_default(), ..Self::default() };
        let root = command.sandbox.pivot_root.as_ref().or(command.setup.chroot.as_ref());
        places.new_root = root.map(|root| places.root(root));
        // The directory of a sandbox's program is an absolute path. Sources need not be.
        places.keeps_root = command.sandbox.in_sandbox && !command.sandbox.mounts.iter().any(can_be_relative);
        places
    }

    fn root(&self, path: &Path) -> Root {
        Root { path: path.to_owned(), plain: plain(&self.base.join(path)) }
    }

    /// Text for a step's object: where its path is looked up, unless that is the caller's root.
    pub(super) fn describe(&self, path: &Path) -> String {
        self.inside(path).map(|inside| format!(", looked up inside {:?}", inside.root)).unwrap_or_default()
    }

    /// Records the effect of a step.
    pub(super) fn follow(&mut self, step: &MountStep) {
        let root = self.root(step.target());
        if step.has_mount() {
            self.mounted.push(root);
        } else if matches!(step, MountStep::Unmount(_)) {
            self.mounted.retain(|other| !other.plain.starts_with(&root.plain));
        }
    }

    /// Whether the path is the child's root directory, also through links.
    pub(super) fn is_top(&self, path: &Path) -> bool {
        self.inside(path).is_none() && self.base.join(path).canonicalize().is_ok_and(|path| path == Path::new("/"))
    }

    /// The new root, if a change of mounts does not reach it: it is outside, and none of the `later` steps copies it.
    pub(super) fn misses(&self, step: &MountStep, later: &[MountStep]) -> Option<&Path> {
        let root = self.new_root.as_ref().filter(|_| step.has_mount() || step.has_restriction())?;
        // Links may change until then, so a path is related if it is so in one of two forms: as written, or resolved now.
        let forms = |path: &Path| {
            let path = self.base.join(path);
            [Some(plain(&path)), path.canonicalize().ok()].into_iter().flatten().collect::<Vec<_>>()
        };
        let is_related = |one: &Path, other: &Path| {
            let others = forms(other);
            forms(one).iter().any(|one| others.iter().any(|other| one.starts_with(other) || other.starts_with(one)))
        };
        let target = step.target();
        let is_copied = |step: &MountStep| step.sources().iter().any(|source| is_related(target, source));
        let reaches = is_related(target, &root.path) || later.iter().any(is_copied);
        (!reaches).then_some(&root.path)
    }

    /// The root inside which the path is looked up. `None`: the caller's root.
    ///
    /// Inside the new root, symbolic links resolve as they will for the program: RESOLVE_IN_ROOT. Inside an earlier
    /// mount (the innermost one counts), a link that leads out of it is an error: RESOLVE_BENEATH.
    pub(super) fn inside(&self, path: &Path) -> Option<Inside> {
        const RESOLVE_NO_MAGICLINKS: u64 = 2;
        const RESOLVE_BENEATH: u64 = 8;
        const RESOLVE_IN_ROOT: u64 = 16;
        let path = plain(&self.base.join(path));
        // Not in `/`, or in itself. Both paths are plain, so their bytes tell.
        let holds = |root: &&Root| {
            let (path, root) = (path.as_os_str().as_bytes(), root.plain.as_os_str().as_bytes());
            root.len() > 1 && path.strip_prefix(root).is_some_and(|rest| rest.starts_with(b"/"))
        };
        let (root, resolve) = match self.new_root.iter().find(holds) {
            Some(root) => (root, RESOLVE_IN_ROOT),
            None => {
                let innermost = self.mounted.iter().filter(holds).max_by_key(|root| root.plain.components().count());
                (innermost?, RESOLVE_BENEATH)
            }
        };
        let below = path.strip_prefix(&root.plain).ok()?.to_owned();
        Some(Inside { root: root.path.clone(), below, resolve: resolve | RESOLVE_NO_MAGICLINKS })
    }
}

impl Steps<'_> {
    /// Opens a part of a path inside its root. Returns the variable with the descriptor.
    pub(super) fn open_inside(&mut self, step: Step, object: &str, inside: &Inside, part: Part) -> Arg {
        Arg::Variable(self.open_part(step, object, inside, part))
    }

    fn open_part(&mut self, step: Step, object: &str, inside: &Inside, part: Part) -> u32 {
        let root = match self.places.inside(&inside.root) {
            Some(outer) => self.open_part(step, object, &outer, Part::Directory),
            None if self.places.is_root_open => KEPT,
            None => {
                let path = self.path(&inside.root);
                let args = [HERE, path, Arg::Number(DIRECTORY.into())];
                self.call_into(step, object, uapi::__NR_openat, &args, Some(TURNS[0]));
                TURNS[0]
            }
        };
        let below = if part == Part::Parent { inside.below.parent() } else { Some(inside.below.as_path()) };
        let Some(below) = below.filter(|below| !below.as_os_str().is_empty()) else { return root };
        let other = if root == TURNS[0] { TURNS[1] } else { TURNS[0] };
        let below = self.path(below);
        let flags = if part == Part::Whole { DIRECTORY & !uapi::O_DIRECTORY } else { DIRECTORY };
        // struct open_how: flags, mode, resolve.
        let how = self.arena.push_words(&[flags.into(), 0, inside.resolve]);
        let args = [Arg::Variable(root), below, Arg::Data(how), Arg::Number(24)];
        self.call_again(step, object, uapi::__NR_openat2, &args, other);
        self.close(step, object, Arg::Variable(root));
        other
    }

    /// The last component of a path, for a call that also takes its directory.
    pub(super) fn last_name(&mut self, inside: &Inside) -> Arg {
        let name = inside.below.file_name().unwrap_or_default().as_bytes();
        Arg::Data(self.arena.data(name))
    }

    pub(super) fn path(&mut self, path: &Path) -> Arg {
        Arg::Data(self.arena.data(path.as_os_str().as_bytes()))
    }

    /// Closes a descriptor, unless it is that of the root that stays open.
    pub(super) fn close(&mut self, step: Step, object: &str, fd: Arg) {
        if !(self.places.is_root_open && matches!(fd, Arg::Variable(KEPT))) {
            self.call(step, object, uapi::__NR_close, &[fd]);
        }
    }

    /// Opens the new root if `step` has mounted it, for the look-ups of all later steps.
    pub(super) fn keep_root(&mut self, step: &MountStep) {
        let root = self.places.new_root.as_ref().filter(|root| root.path == step.target());
        let opens = self.places.keeps_root && !self.places.is_root_open;
        if let Some(root) = root.filter(|_| opens).map(|root| root.path.clone()) {
            let args = [HERE, self.path(&root), Arg::Number(DIRECTORY.into())];
            self.call_into(Step::Mount, &format!("{root:?}"), uapi::__NR_openat, &args, Some(KEPT));
            self.places.is_root_open = true;
        }
    }

    /// Closes it again.
    pub(super) fn leave_root(&mut self) {
        if std::mem::take(&mut self.places.is_root_open) {
            self.close(Step::Mount, "the new root", Arg::Variable(KEPT));
        }
    }

    /// Makes one call that takes no directory descriptor, with this part of a path as the working directory.
    pub(super) fn call_in(&mut self, object: &str, inside: &Inside, part: Part, number: u32, args: &[Arg]) {
        const HERE_ALONE: u32 = uapi::O_PATH | uapi::O_CLOEXEC;
        let (start, returns) = (self.ops.len(), !self.places.is_root_open);
        if returns {
            let here = Arg::Data(self.arena.data(b"."));
            let keep = [HERE, here, Arg::Number(HERE_ALONE.into())];
            self.call_into(Step::Mount, object, uapi::__NR_openat, &keep, Some(KEPT));
        }
        let place = self.open_inside(Step::Mount, object, inside, part);
        self.call(Step::Mount, object, uapi::__NR_fchdir, &[place]);
        let entered = self.ops.len();
        self.call(Step::Mount, object, number, args);
        // The child returns to its working directory even if the call has failed as best effort.
        let left = self.ops.len();
        if returns {
            self.call(Step::Mount, object, uapi::__NR_fchdir, &[Arg::Variable(KEPT)]);
            self.close(Step::Mount, object, Arg::Variable(KEPT));
        }
        self.close(Step::Mount, object, place);
        self.ops[left..].iter_mut().for_each(|op| op.flags = 0);
        self.belong(start);
        self.ops[entered].skip = 0;
    }

    /// Unmounts a mount that no path leads to, by a descriptor of its root.
    pub(super) fn unmount_root(&mut self, root: Arg, flags: u64) {
        let (object, start) = ("(umount2) of a copy of the mounts", self.ops.len());
        let here = Arg::Data(self.arena.data(b"."));
        let keep = [HERE, here, Arg::Number((uapi::O_PATH | uapi::O_CLOEXEC).into())];
        self.call_into(Step::Mount, object, uapi::__NR_openat, &keep, Some(KEPT));
        self.call(Step::Mount, object, uapi::__NR_fchdir, &[root]);
        self.call(Step::Mount, object, uapi::__NR_umount2, &[here, Arg::Number(flags)]);
        self.call(Step::Mount, object, uapi::__NR_fchdir, &[Arg::Variable(KEPT)]);
        self.close(Step::Mount, object, Arg::Variable(KEPT));
        self.close(Step::Mount, object, root);
        self.belong(start);
    }

    /// Changes the working directory.
    pub(super) fn enter(&mut self, step: Step, object: &str, directory: &Path) {
        match self.places.inside(directory) {
            Some(inside) => {
                let place = self.open_inside(step, object, &inside, Part::Directory);
                self.call(step, object, uapi::__NR_fchdir, &[place]);
                self.close(step, object, place);
            }
            None => {
                let path = self.path(directory);
                self.call(step, object, uapi::__NR_chdir, &[path]);
            }
        }
    }
}

/// Whether the step may name a source by a path from the working directory.
fn can_be_relative(step: &MountStep) -> bool {
    match step {
        MountStep::Mount(Mount { source: Some(source), kind: None, .. }) => Path::new(source).is_relative(),
        MountStep::ReadOnlyBind { source, .. } | MountStep::Shown { source, .. } => source.is_relative(),
        MountStep::FileSystem { .. } => true,
        _ => false,
    }
}

/// A path for comparisons: without `.`, and each `..` removed together with the component before it.
fn plain(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let is_plain = bytes.len() > 1 && bytes.starts_with(b"/") && !bytes.ends_with(b"/");
    if is_plain && !bytes.windows(2).any(|pair| pair == b"//" || pair == b"/.") {
        return path.to_owned();
    }
    let mut found = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => _ = found.pop(),
            other => found.push(other),
        }
    }
    found
}

/// The directory that relative paths of mounts start from. Empty if no path is relative.
pub(super) fn base(command: &Command) -> io::Result<PathBuf> {
    let sandbox = &command.sandbox;
    let root = sandbox.pivot_root.iter().chain(&command.setup.chroot).map(PathBuf::as_path);
    let mut all = sandbox.mounts.iter().map(|mount| mount.target()).chain(root);
    if sandbox.mounts.is_empty() || all.all(Path::is_absolute) {
        return Ok(PathBuf::new());
    }
    let link = |fd: RawFd| std::fs::read_link(procfs::own(&format!("fd/{fd}")));
    let base = command.setup.directory_number().map_or_else(std::env::current_dir, link)?;
    // The kernel returns "(unreachable)/…" for a directory outside the root.
    if base.is_absolute() { Ok(base) } else { Err(io::ErrorKind::NotFound.into()) }
}
