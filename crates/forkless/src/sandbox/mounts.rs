//! The mounts of a sandbox: those of all sandboxes, its places, and those of the command.

use super::Network;
use super::landlock::{LayerAccess, LayerRule};
use super::place::GivenPath;
use super::preset::{self, HIDDEN, MASKED, NEW, SHOWN, plain};
use crate::error::{Error, reworded};
use crate::procfs;
use crate::request::command::{
    Command, FilePlace, IsolationArg, IsolationCall, MS_BIND, MS_REC, MS_REMOUNT, Mount, MountStep, NewFile, OVERLAY,
    mount_attribute,
};
use crate::step::Step;
use forkless_core::sys::{self, errno, uapi};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, fstatvfs, openat2, stat};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the new root is assembled. The sandbox needs a procfs anyway, and files of it are not bound.
pub(super) const PLACE: &str = procfs::ROOT;

pub(super) const OF_PLACES: u64 = mount_attribute::NO_SUID | mount_attribute::NO_DEV;

/// MS_NOSUID, MS_NODEV; MS_NOEXEC; MS_RDONLY.
const NO_SUID_NO_DEV: u64 = 2 | 4;
const NO_EXEC: u64 = 8;
const READ_ONLY: u64 = 1;

/// Whether the program sees the path.
pub(super) fn is_shown(places: &[GivenPath], own: &[MountStep], path: &Path) -> bool {
    let path = &plain(path);
    preset::is_shown(path)
        || places.iter().any(|place| path.starts_with(&place.path))
        || own.iter().any(|step| path.starts_with(in_root(step.target())))
}

/// The path in the new root, while that is being put together.
fn below(path: &Path) -> PathBuf {
    Path::new(PLACE).join(path.strip_prefix("/").unwrap_or(path))
}

/// A path of a command as it is in the new root, where `/var/tmp` and `/var/run` are links.
fn in_root(path: &Path) -> PathBuf {
    let path = plain(&std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    for (link, to) in [("/var/tmp", "/tmp"), ("/var/run", "/run")] {
        if let Ok(rest) = path.strip_prefix(link) {
            return plain(&Path::new(to).join(rest));
        }
    }
    path
}

/// The mounts of every sandbox, in their order.
pub(super) fn preset(network: Network, is_strict: bool) -> io::Result<Vec<MountStep>> {
    let mut root = Command::new("");
    let private = if is_strict { NO_EXEC } else { 0 };
    file_system(&mut root, "tmpfs", "/", 0, "mode=755,size=1m,nr_inodes=16k");
    for path in [procfs::ROOT, "/dev", "/tmp", "/var", "/run"] {
        root.make_dir(below(Path::new(path)), 0o755);
    }
    root.make_symlink("../tmp", below(Path::new("/var/tmp"))).make_symlink("../run", below(Path::new("/var/run")));
    for path in SHOWN.map(Path::new) {
        match std::fs::read_link(path) {
            Ok(link) => {
                directories(&mut root, path);
                root.make_symlink(link, below(path));
            }
            Err(error) if error.raw_os_error() == Some(errno::EINVAL) => {
                directories(&mut root, path);
                root.make_dir(below(path), 0o755);
                show(&mut root, &path.canonicalize()?, path, mount_attribute::READ_ONLY | OF_PLACES);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(reworded_path(path, error)),
        }
    }
    for path in HIDDEN.map(Path::new).into_iter().filter(|path| path.is_dir()) {
        file_system(&mut root, "tmpfs", path, NO_EXEC, "mode=755,size=4k,nr_inodes=1");
    }
    file_system(&mut root, "proc", procfs::ROOT, NO_EXEC, "");
    for name in MASKED.iter().filter(|name| Path::new(procfs::ROOT).join(name).exists()) {
        root.bind("/dev/null", below(&Path::new(procfs::ROOT).join(name)));
    }
    root.devices(below(Path::new("/dev")));
    // The pseudo-terminals are counted for the whole machine.
    const REMOUNT: u64 = 32 | 2 | 8;
    let terminals = Some(OsStr::new("ptmxmode=0666,mode=620,max=64"));
    root.mount(Some(OsStr::new("devpts")), below(Path::new("/dev/pts")), Some("devpts"), REMOUNT, terminals);
    file_system(&mut root, "tmpfs", "/dev/shm", private, "mode=1777,size=64m,nr_inodes=4k");
    file_system(&mut root, "tmpfs", "/tmp", private, "mode=1777,size=1g,nr_inodes=256k");
    if network == Network::Host {
        show_resolver(&mut root);
    }
    Ok(root.sandbox.mounts)
}

/// The mounts of the places of a sandbox, and those over what is hidden below them.
pub(super) fn of_places(places: &[GivenPath]) -> io::Result<Vec<MountStep>> {
    let mut root = Command::new("");
    let pins = pins(places)?;
    // Directories before what is below them: a pin that came later would be over what is hidden there.
    let mut order: Vec<&GivenPath> = places.iter().chain(pins.values()).collect();
    order.sort_by_key(|place| place.path.components().count());
    let (mut hidden_file, mut with_places) = (None, Vec::new());
    for (number, place) in order.iter().enumerate() {
        let above = nearest(&order[..number], &place.path);
        let has_places = || order.iter().any(|other| !other.is_hidden && other.path.starts_with(&place.path));
        match above {
            Some(above) if above.is_hidden && place.is_hidden => continue,
            Some(above) if !above.is_hidden => {}
            _ if place.is_hidden => {}
            _ => mount_point(&mut root, &place.path, place.is_directory),
        }
        if !place.is_hidden {
            let read_only = if place.may_write { 0 } else { mount_attribute::READ_ONLY };
            show(&mut root, &place.source, &place.path, read_only | OF_PLACES);
        } else if !place.is_directory {
            hide_file(&mut root, &place.path, &mut hidden_file)?;
        } else if has_places() {
            file_system(&mut root, "tmpfs", &place.path, NO_EXEC, "mode=111,size=64k,nr_inodes=1k");
            with_places.push(&place.path);
        } else {
            file_system(&mut root, "tmpfs", &place.path, NO_EXEC | READ_ONLY, "mode=0,size=4k,nr_inodes=1");
        }
    }
    for path in with_places {
        let flags = MS_REMOUNT | MS_BIND | NO_SUID_NO_DEV | NO_EXEC | READ_ONLY;
        root.mount(None, below(path), None, flags, None);
    }
    Ok(root.sandbox.mounts)
}

/// Mounts an empty file that nobody may read: at first a new one, then that one again.
fn hide_file(root: &mut Command, path: &Path, first: &mut Option<PathBuf>) -> io::Result<()> {
    let target = below(path);
    if let Some(first) = first {
        root.mount(Some(first.as_os_str()), target, None, MS_BIND, None);
        return Ok(());
    }
    *first = Some(target.clone());
    let data = Arc::new(rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
    let place = FilePlace::Mounted(mount_attribute::READ_ONLY | mount_attribute::NO_EXEC | OF_PLACES);
    root.sandbox.mounts.push(MountStep::NewFile(NewFile { data, length: 0, path: target, mode: 0, place }));
    Ok(())
}

/// Mounts a new file system at this path of the new root.
fn file_system(root: &mut Command, kind: &str, path: impl AsRef<Path>, flags: u64, options: &str) {
    let flags = NO_SUID_NO_DEV | flags;
    let target = match path.as_ref() {
        top if top == Path::new("/") => PathBuf::from(PLACE),
        path => below(path),
    };
    root.mount(Some(OsStr::new(kind)), target, Some(kind), flags, Some(OsStr::new(options)));
}

fn show(root: &mut Command, source: &Path, path: &Path, set: u64) {
    root.sandbox.mounts.push(MountStep::Shown { source: source.to_owned(), target: below(path), set });
}

/// The nearest of these places that is at this path or above it.
fn nearest<'a>(sorted: &[&'a GivenPath], path: &Path) -> Option<&'a GivenPath> {
    sorted.iter().rfind(|other| path.starts_with(&other.path)).copied()
}

/// The directories between a place and one above it where the program may write: they are mounted on themselves. It could rename one
/// that is no mount point, and put another one in its place: what is read-only would be elsewhere then.
fn pins(places: &[GivenPath]) -> io::Result<BTreeMap<PathBuf, GivenPath>> {
    let mut order: Vec<&GivenPath> = places.iter().collect();
    order.sort_by_key(|place| place.path.components().count());
    let mut pins = BTreeMap::new();
    for (number, place) in order.iter().enumerate() {
        let is_kept = |other: &&GivenPath| !other.is_hidden && other.path.starts_with(&place.path);
        let has_places = !place.is_hidden || places.iter().any(|other| is_kept(&other));
        let above = nearest(&order[..number], &place.path).filter(|above| above.may_write && has_places);
        let Some((above, rest)) = above.and_then(|above| Some((above, place.path.strip_prefix(&above.path).ok()?)))
        else {
            continue;
        };
        if rest.as_os_str().is_empty() {
            continue;
        }
        if place.source != above.source.join(rest) {
            let why = format!(
                "sandbox: {}: below {}, where the program may write, it leads over a symbolic link, which could be replaced: give {}",
                place.path.display(),
                above.path.display(),
                place.source.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        for rest in rest.ancestors().skip(1).filter(|rest| !rest.as_os_str().is_empty()) {
            let (path, source) = (above.path.join(rest), above.source.join(rest));
            let pin = GivenPath { path: path.clone(), source, is_directory: true, ..GivenPath::clone(above) };
            pins.insert(path, pin);
        }
    }
    Ok(pins)
}

/// Makes the directories above a path.
fn directories(root: &mut Command, path: &Path) {
    let mut above: Vec<&Path> = path.ancestors().skip(1).filter(|above| above.parent().is_some()).collect();
    above.reverse();
    above.into_iter().for_each(|above| _ = root.make_dir(below(above), 0o755));
}

/// Makes a directory or an empty file to mount upon.
fn mount_point(root: &mut Command, path: &Path, is_directory: bool) {
    directories(root, path);
    if is_directory {
        root.make_dir(below(path), 0o755);
    } else {
        root.sandbox.mounts.push(MountStep::MountPoint(below(path)));
    }
}

/// /etc/resolv.conf is often a link to a file of a daemon below /run.
fn show_resolver(root: &mut Command) {
    let Ok(real) = Path::new("/etc/resolv.conf").canonicalize() else { return };
    if !SHOWN.iter().any(|shown| real.starts_with(shown)) {
        mount_point(root, &real, false);
        show(root, &real, &real, mount_attribute::READ_ONLY | OF_PLACES);
    }
}

fn reworded_path(path: &Path, error: io::Error) -> io::Error {
    let words = format!("sandbox: {}: {error}", path.display());
    reworded(error, words)
}

/// What the mounts of a command become in the new root.
pub(super) struct OwnMounts {
    pub(super) steps: Vec<MountStep>,
    /// Restrictions of file systems, once all mount points exist. Sysctls and the like belong to the machine.
    pub(super) calls: Vec<IsolationCall>,
    /// Where the program may write.
    pub(super) rules: Vec<LayerRule>,
}

/// A place where the program may write, and what is there: a directory of the host, or a detached mount.
struct Writable {
    path: PathBuf,
    found: Vec<OwnedFd>,
}

impl OwnMounts {
    /// Mounts that are made in their order, after those of the sandbox.
    pub(super) fn of(own: &Command, places: &[GivenPath], is_strict: bool) -> Result<Self, Error> {
        let given = &own.sandbox.mounts;
        let mut made = Self { steps: Vec::new(), calls: restrictions(given), rules: Vec::new() };
        let of_places = places.iter().filter(|place| place.may_write);
        let mut writable: Vec<Writable> = of_places
            .map(|place| Writable { path: place.path.clone(), found: open(&place.source).into_iter().collect() })
            .collect();
        let mut pinned = BTreeSet::new();
        for (number, step) in given.iter().enumerate() {
            let path = in_root(step.target());
            if path == Path::new("/") {
                let why = "sandbox: a mount at / would replace its root; mount below it";
                return Err(Error::check(&own.program, why));
            }
            if !step.has_mount() {
                if !matches!(step, MountStep::Attributes { .. } | MountStep::Unmount(_) | MountStep::Mode { .. }) {
                    made.directories(&path);
                }
                made.steps.push(at(step, below(&path), is_strict));
                continue;
            }
            let later = &given[number + 1..];
            if let Some(source) = hidden_source(own, step) {
                let why =
                    format!("sandbox: {source:?} cannot be shown inside: the new root is put together on {PLACE}");
                return Err(Error::check(&own.program, why));
            }
            let is_on_own = is_on_own_file_system(places, &given[..number], &path);
            let step = of_root(own, step).map_err(|error| failed(own, step, &error))?;
            let is_directory = is_directory(&step).map_err(|error| failed(own, &step, &error))?;
            made.pin(own, &writable, &path, is_on_own, &mut pinned)?;
            if is_on_own {
                made.directories(&path);
                made.steps.push(match is_directory {
                    true => MountStep::Directory { path: below(&path), mode: 0o755 },
                    false => MountStep::MountPoint(below(&path)),
                });
            }
            made.steps.push(at(&step, below(&path), is_strict));
            // This mount hides those below it.
            pinned.retain(|pinned: &PathBuf| !pinned.starts_with(&path));
            // A new `/dev` or procfs: the rules have its files already.
            let restricted = restricted(&step);
            if !restricted.is_empty() {
                made.calls.extend(restricted.iter().map(|(set, flags)| restriction(&path, *set, *flags)));
            } else if is_writable(&step, &path, later) {
                let found = sources(&step);
                if !is_hidden(later, &path) {
                    made.rules.push(LayerRule { path: path.clone(), is_directory, access: LayerAccess::Write });
                }
                writable.push(Writable { path, found });
            }
        }
        Ok(made)
    }

    /// Makes the directories above a path.
    fn directories(&mut self, path: &Path) {
        let mut above: Vec<&Path> = path.ancestors().skip(1).filter(|above| above.parent().is_some()).collect();
        above.reverse();
        self.steps.extend(above.into_iter().map(|above| MountStep::Directory { path: below(above), mode: 0o755 }));
    }

    /// [`pin`] for mounts of the command. `makes`: missing directories are made, on a file system of the sandbox.
    fn pin(
        &mut self,
        own: &Command,
        writable: &[Writable],
        path: &Path,
        makes: bool,
        pinned: &mut BTreeSet<PathBuf>,
    ) -> Result<(), Error> {
        let is_above = |above: &&Writable| path != above.path && path.starts_with(&above.path);
        let Some(above) = writable.iter().filter(is_above).max_by_key(|above| above.path.as_os_str().len()) else {
            return Ok(());
        };
        let mut between: Vec<&Path> = path.ancestors().skip(1).take_while(|path| *path != above.path).collect();
        between.reverse();
        for middle in between {
            let rest = middle.strip_prefix(&above.path).unwrap_or(middle);
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let leads_over = |found: &OwnedFd| {
                let opened = openat2(found, rest, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
                opened.is_err_and(|error| error == rustix::io::Errno::LOOP)
            };
            let is_link = |step: &MountStep| matches!(step, MountStep::Symlink { path, .. } if in_root(path) == middle);
            if above.found.iter().any(leads_over) || own.sandbox.mounts.iter().any(is_link) {
                let why = format!(
                    "sandbox: mount on {path:?}: below {:?}, where the program may write, it leads over the symbolic link {middle:?}, \
                     which could be replaced",
                    above.path
                );
                return Err(Error::check(&own.program, why));
            }
            if pinned.insert(middle.to_owned()) {
                let middle = below(middle);
                if makes {
                    self.steps.push(MountStep::Directory { path: middle.clone(), mode: 0o755 });
                }
                let source = Some(middle.clone().into());
                let bind = Mount { source, target: middle, kind: None, flags: MS_BIND | MS_REC, data: None };
                self.steps.push(MountStep::Mount(bind));
            }
        }
        Ok(())
    }
}

/// The source of a bind mount that the new root, mounted over it, hides from the child. For root it is opened earlier.
fn hidden_source(own: &Command, step: &MountStep) -> Option<PathBuf> {
    let source = match step {
        MountStep::ReadOnlyBind { source, .. } | MountStep::Shown { source, .. } => source.as_path(),
        MountStep::Mount(Mount { source: Some(source), kind: None, .. }) => Path::new(source),
        _ => return None,
    };
    source
        .canonicalize()
        .ok()
        .filter(|source| source.starts_with(PLACE) && !(own.once && rustix::process::geteuid().is_root()))
}

/// Whether one of these mounts is on the path or above it.
pub(super) fn is_hidden(own: &[MountStep], path: &Path) -> bool {
    own.iter().any(|step| step.has_mount() && path.starts_with(in_root(step.target())))
}

fn failed(own: &Command, step: &MountStep, error: &io::Error) -> Error {
    let source = step.sources().first().map(|source| format!("of {source:?} ")).unwrap_or_default();
    let error = Error::new(&own.program, Step::Mount, error.raw_os_error().unwrap_or(errno::EINVAL));
    error.on(format!("{source}at {:?}", step.target()))
}

fn open(path: &Path) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// The directories whose content is at the target.
fn sources(step: &MountStep) -> Vec<OwnedFd> {
    match step {
        MountStep::Attach { tree, .. } => tree.try_clone().into_iter().collect(),
        MountStep::Mount(Mount { source: Some(source), kind: None, .. }) => {
            open(Path::new(source)).into_iter().collect()
        }
        _ => step.sources().into_iter().filter_map(open).collect(),
    }
}

fn is_directory(step: &MountStep) -> io::Result<bool> {
    let found = match step {
        MountStep::Attach { tree, .. } => fstat(tree)?,
        MountStep::ReadOnlyBind { source, .. } | MountStep::Shown { source, .. } => stat(source)?,
        MountStep::Mount(Mount { source: Some(source), kind: None, .. }) => stat(Path::new(source))?,
        step => return Ok(!matches!(step, MountStep::NewFile(_))),
    };
    Ok(FileType::from_raw_mode(found.st_mode).is_dir())
}

/// Whether the program may write there. A later step may restrict the mount.
fn is_writable(step: &MountStep, path: &Path, later: &[MountStep]) -> bool {
    let until = later.iter().take_while(|other| !(other.has_mount() && in_root(other.target()) == path));
    let is_restricted = |other: &MountStep| matches!(other, MountStep::Attributes { target, set, .. } if set & READ_ONLY != 0 && in_root(target) == path);
    let is_read_only = match step {
        MountStep::Mount(one) => one.flags & READ_ONLY != 0,
        MountStep::ReadOnlyBind { .. } => true,
        MountStep::Shown { set, .. } => set & READ_ONLY != 0,
        MountStep::FileSystem { attributes, .. } => attributes & READ_ONLY != 0,
        MountStep::NewFile(NewFile { place: FilePlace::Mounted(attributes), .. }) => attributes & READ_ONLY != 0,
        MountStep::Attach { tree, .. } => {
            fstatvfs(tree).is_ok_and(|found| found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
        }
        _ => false,
    };
    !is_read_only && !until.into_iter().any(is_restricted)
}

/// Whether the path is on a file system that the sandbox or an earlier step has made: on those of the host no mount
/// point is made.
fn is_on_own_file_system(places: &[GivenPath], before: &[MountStep], path: &Path) -> bool {
    let of_host = SHOWN.iter().map(|shown| (PathBuf::from(shown), false));
    let of_places = places.iter().map(|place| (place.path.clone(), false));
    let is_new = |step: &MountStep| match step {
        MountStep::Mount(Mount { kind: Some(kind), .. }) => kind != OVERLAY,
        MountStep::FileSystem { kind, .. } => kind != OVERLAY,
        step => matches!(step, MountStep::Devices(_)),
    };
    let of_steps = before.iter().filter(|step| step.has_mount()).map(|step| (in_root(step.target()), is_new(step)));
    let all = NEW.iter().map(|new| (PathBuf::from(new), true)).chain(of_host).chain(of_places).chain(of_steps);
    let around = all.filter(|(other, _)| path != other && path.starts_with(other));
    // Of several mounts at one path, the last one.
    around.max_by_key(|(other, _)| other.components().count()).is_none_or(|(_, is_own)| is_own)
}

/// What restricts a new `/dev` or procfs, which are those of the sandbox: attributes and flags.
fn restricted(step: &MountStep) -> &'static [(u64, u64)] {
    match step {
        MountStep::Devices(_) => &DEVICES_RESTRICTED,
        step if is_procfs(step) => &PROC_RESTRICTED,
        _ => &[],
    }
}

/// Whether the step mounts a new procfs, by either interface of the kernel.
fn is_procfs(step: &MountStep) -> bool {
    match step {
        MountStep::Mount(Mount { kind, .. }) => kind.as_deref() == Some(OsStr::new("proc")),
        MountStep::FileSystem { kind, .. } => kind == "proc",
        _ => false,
    }
}

const AT_RECURSIVE: u64 = 0x8000;
const DEVICES_RESTRICTED: [(u64, u64); 2] =
    [(mount_attribute::NO_SUID, AT_RECURSIVE), (mount_attribute::READ_ONLY | mount_attribute::NO_EXEC, 0)];
const PROC_RESTRICTED: [(u64, u64); 1] = [(mount_attribute::READ_ONLY, AT_RECURSIVE)];

/// The restrictions of those of the sandbox that no mount of the command hides.
fn restrictions(own: &[MountStep]) -> Vec<IsolationCall> {
    let of_root = [(mount_attribute::READ_ONLY | OF_PLACES, 0)];
    let all = [(procfs::ROOT, &PROC_RESTRICTED[..]), ("/dev", &DEVICES_RESTRICTED), ("/", &of_root)];
    let kept = all.iter().map(|(path, all)| (Path::new(path), all)).filter(|(path, _)| !is_hidden(own, path));
    kept.flat_map(|(path, all)| all.iter().map(move |(set, flags)| restriction(path, *set, *flags))).collect()
}

/// mount_setattr(2) in the new root.
fn restriction(path: &Path, set: u64, flags: u64) -> IsolationCall {
    let attributes = [set, 0, 0, 0].iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
    let args = vec![
        IsolationArg::Number(uapi::AT_FDCWD as i64 as u64),
        IsolationArg::Bytes(path.as_os_str().as_bytes().to_vec()),
        IsolationArg::Number(flags),
        IsolationArg::Bytes(attributes),
        IsolationArg::Number(32),
    ];
    let number = Some(uapi::__NR_mount_setattr);
    IsolationCall { step: Step::Mount, object: "read-only root", number, args, result: None }
}

/// The step with its target in the new root.
fn at(step: &MountStep, target: PathBuf, is_strict: bool) -> MountStep {
    let of_sandbox = |path: &str| {
        let source = Some(below(Path::new(path)).into());
        MountStep::Mount(Mount { source, target: target.clone(), kind: None, flags: MS_BIND | MS_REC, data: None })
    };
    let mut moved = match step {
        MountStep::Devices(_) => return of_sandbox("/dev"),
        step if is_procfs(step) => return of_sandbox(procfs::ROOT),
        step => step.clone(),
    };
    match &mut moved {
        MountStep::Mount(one) => {
            if one.kind.is_some() {
                one.flags |= NO_SUID_NO_DEV;
            }
            one.target = target;
        }
        MountStep::FileSystem { attributes, target: path, .. } => {
            *attributes |= OF_PLACES;
            *path = target;
        }
        MountStep::NewFile(one) => {
            if let (FilePlace::Mounted(attributes), true) = (&mut one.place, is_strict) {
                *attributes |= mount_attribute::NO_EXEC;
            }
            one.path = target;
        }
        MountStep::ReadOnlyBind { target: path, .. }
        | MountStep::Shown { target: path, .. }
        | MountStep::Attributes { target: path, .. }
        | MountStep::Attach { target: path, .. }
        | MountStep::Unmount(path)
        | MountStep::MountPoint(path)
        | MountStep::Directory { path, .. }
        | MountStep::Symlink { path, .. }
        | MountStep::Mode { path, .. }
        | MountStep::Devices(path) => *path = target,
    }
    moved
}

/// Opens the source of a bind mount with root's rights, which the program's user may not have, if the command is launched
/// once: the mount can be attached once. Otherwise, or where root has no CAP_SYS_ADMIN, returns the step itself.
pub(super) fn of_root(own: &Command, step: &MountStep) -> io::Result<MountStep> {
    let (source, set, resolve) = match step {
        MountStep::Shown { source, set, .. } => (source.as_path(), *set, ResolveFlags::NO_SYMLINKS),
        MountStep::ReadOnlyBind { source, .. } => (source.as_path(), mount_attribute::READ_ONLY, ResolveFlags::empty()),
        MountStep::Mount(Mount { source: Some(source), kind: None, flags, .. }) if *flags == MS_BIND | MS_REC => {
            (Path::new(source), 0, ResolveFlags::empty())
        }
        _ => return Ok(step.clone()),
    };
    if !own.once || !rustix::process::geteuid().is_root() {
        return Ok(step.clone());
    }
    let source = openat2(CWD, source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    match tree(&source, set) {
        Err(error) if error.raw_os_error() == Some(errno::EPERM) => Ok(step.clone()),
        tree => Ok(MountStep::Attach { tree: Arc::new(tree?), target: step.target().to_owned() }),
    }
}

/// A copy of the mount at `source` with all mounts below it, attached nowhere. No later mount propagates into or out of it.
fn tree(source: &OwnedFd, set: u64) -> io::Result<OwnedFd> {
    const AT_EMPTY_PATH: u64 = 0x1000;
    const OPEN_TREE_CLONE: u64 = 1;
    const MS_PRIVATE: u64 = 1 << 18;
    let nothing = c"".as_ptr() as usize;
    // struct mount_attr: set, clear, propagation, user namespace.
    let attributes = [set, 0, MS_PRIVATE, 0];
    // SAFETY: the kernel reads an empty string and the attributes, which outlive the calls, and the descriptor is a new one.
    let answer = unsafe {
        let flags = (AT_EMPTY_PATH | AT_RECURSIVE | OPEN_TREE_CLONE | u64::from(uapi::O_CLOEXEC)) as usize;
        let args = [source.as_raw_fd() as usize, nothing, flags, 0, 0, 0];
        sys::syscall(uapi::__NR_open_tree, args).map(|number| OwnedFd::from_raw_fd(number as i32)).and_then(|tree| {
            let at = (tree.as_raw_fd() as usize, &raw const attributes as usize);
            let args = [at.0, nothing, (AT_EMPTY_PATH | AT_RECURSIVE) as usize, at.1, size_of_val(&attributes), 0];
            sys::syscall(uapi::__NR_mount_setattr, args).map(|_| tree)
        })
    };
    answer.map_err(io::Error::from_raw_os_error)
}
