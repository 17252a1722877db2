//! The files of the sandbox: a new root with what the program may see, and the Landlock rules for it.
//!
//! File systems and bind mounts are made here without a place, so that each is complete and restricted before any process can
//! reach it, and so that Landlock rules can name it. The plan of the program attaches them, and makes the root the root.

use std::{
    ffi::{CStr, CString},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use forkless::{Command, mount_attribute};
use forkless_core::sys;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    Scope,
};
use rustix::{
    fs::{FileType, Mode, OFlags, mkdirat, mknodat, openat, symlinkat},
    io::Errno,
};

use super::{
    super::{
        failure::{Failure, say},
        options::{Mount, Profile, RunOptions},
    },
    Sandbox, absolute, failed,
};

/// Where the new root is put together. A procfs is needed anyway, and nobody binds files of it.
const PLACE: &str = "/proc";

/// What the program sees of the host, read-only, as far as it exists.
pub(super) const SHOWN: [&str; 11] =
    ["/usr", "/etc", "/opt", "/nix", "/gnu", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Devices of the host, of which each is visible alone.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Files of procfs about the whole machine that only root could read, or that show keys.
const MASKED: [&str; 4] = ["kcore", "keys", "key-users", "timer_list"];

const READ_ONLY: u64 = mount_attribute::READ_ONLY;
const NO_SUID: u64 = mount_attribute::NO_SUID;
const NO_DEV: u64 = mount_attribute::NO_DEV;
const NO_EXEC: u64 = mount_attribute::NO_EXEC;

/// The bind mounts of options that root may make and the program's user may not, by the number of the mount.
pub(super) type Trees = Vec<Option<OwnedFd>>;

/// Makes them with the rights of root, while this process still has them. Where it has no CAP_SYS_ADMIN, init makes all.
pub(super) fn trees_of_root(options: &RunOptions) -> Result<Trees, Failure> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Vec::new());
    }
    options
        .mounts
        .steps()
        .iter()
        .map(|mount| match bind_of(mount) {
            Some((source, set, _)) => match tree(source, set) {
                Err((_, Errno::PERM)) => Ok(None),
                answer => answer.map(Some).map_err(|(what, error)| failed(&what, error)),
            },
            None => Ok(None),
        })
        .collect()
}

/// The source of a bind mount, its attributes, and whether it can be written to.
fn bind_of(mount: &Mount) -> Option<(&Path, u64, bool)> {
    match mount {
        Mount::Bind(source, _) => Some((source, NO_SUID | NO_DEV, true)),
        Mount::ReadOnlyBind(source, _) => Some((source, NO_SUID | NO_DEV | READ_ONLY, false)),
        Mount::DeviceBind(source, _) => Some((source, NO_SUID, true)),
        _ => None,
    }
}

fn tree_of(trees: &Trees, number: usize) -> Option<&OwnedFd> {
    trees.get(number).and_then(Option::as_ref)
}

/// Is the mount point a directory? The program's user may have no access to the source.
fn is_directory(mount: &Mount, tree: Option<&OwnedFd>) -> bool {
    match (tree, bind_of(mount)) {
        (Some(tree), _) => rustix::fs::fstat(tree).is_ok_and(|data| FileType::from_raw_mode(data.st_mode).is_dir()),
        (None, Some((source, ..))) => source.is_dir(),
        (None, None) => true,
    }
}

/// What may be done below a file or directory.
struct Rule(OwnedFd, BitFlags<AccessFs>);

/// The rights that a rule can give.
const RIGHTS: ABI = ABI::V6;

/// Adds the new root and everything in it to the program's plan, and the Landlock ruleset.
pub(super) fn build(sandbox: &Sandbox<'_>, command: &mut Command, trees: &Trees) -> Result<(), Failure> {
    command.mounts_here();
    let strict = if sandbox.profile == Profile::Strict { NO_EXEC } else { 0 };
    let read = AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir;
    let devices =
        AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let write = AccessFs::from_all(RIGHTS) & !(AccessFs::MakeChar | AccessFs::MakeBlock);

    let shown = shown(sandbox)?;
    let top = tmpfs("root", &[("mode", "755"), ("size", "1m")], NO_SUID | NO_DEV)?;
    let skeleton = Skeleton(top.as_fd());
    for Shown { path, link, .. } in &shown {
        match link {
            Some(to) => skeleton.link(to, path)?,
            None => skeleton.place(path, path.is_dir())?,
        }
    }
    for path in ["/proc", "/dev", "/tmp", "/var", "/run"] {
        skeleton.place(Path::new(path), true)?;
    }
    skeleton.link(Path::new("../tmp"), Path::new("/var/tmp"))?;
    skeleton.link(Path::new("../run"), Path::new("/var/run"))?;
    for (number, mount) in sandbox.options.mounts.steps().iter().enumerate() {
        if !matches!(mount, Mount::Symlink(..)) {
            skeleton.place(&absolute(mount.target()), is_directory(mount, tree_of(trees, number)))?;
        }
    }
    set_attributes(&top, READ_ONLY).map_err(|error| failed("read-only root", error))?;

    let dev = tmpfs("/dev", &[("mode", "755"), ("size", "64k")], NO_SUID | NO_EXEC)?;
    fill_devices(&dev)?;
    let tmp = tmpfs("/tmp", &[("mode", "1777"), ("size", "1g")], NO_SUID | NO_DEV | strict)?;
    let shm = tmpfs("/dev/shm", &[("mode", "1777"), ("size", "64m")], NO_SUID | NO_DEV | strict)?;

    let changed = sandbox.options.mounts.steps().iter().any(|mount| bind_of(mount).is_none());
    let mut rules = vec![
        // Mounts of other kinds may be writable: their options say so.
        Rule(copy(&top)?, if changed { write } else { read }),
        Rule(copy(&dev)?, devices),
        Rule(copy(&tmp)?, write),
        Rule(copy(&shm)?, write),
    ];
    command.attach_mount(top, PLACE);
    for Shown { path, tree, .. } in shown {
        if let Some(tree) = tree {
            command.attach_mount(tree, below(&path));
        }
    }
    mount_proc(command);
    command.attach_mount(dev, below(Path::new("/dev")));
    for name in present_devices() {
        let source = Path::new("/dev").join(name);
        let device = tree(&source, NO_SUID | NO_EXEC).map_err(|(what, error)| failed(&what, error))?;
        command.attach_mount(device, below(&source));
    }
    let terminals = [("ptmxmode", Some("0666")), ("mode", Some("620"))];
    command.file_system("devpts", terminals, NO_SUID | NO_EXEC, below(Path::new("/dev/pts")));
    command.attach_mount(shm, below(Path::new("/dev/shm")));
    command.attach_mount(tmp, below(Path::new("/tmp")));
    for (number, mount) in sandbox.options.mounts.steps().iter().enumerate() {
        rules.extend(add(command, mount, tree_of(trees, number), write)?);
    }
    command.pivot_root(PLACE);
    landlock(sandbox, command, rules)
}

/// A part of the host that the program sees.
struct Shown {
    path: PathBuf,
    /// The target, if it is a symbolic link, such as /bin to usr/bin.
    link: Option<PathBuf>,
    tree: Option<OwnedFd>,
}

fn shown(sandbox: &Sandbox<'_>) -> Result<Vec<Shown>, Failure> {
    let mut found = Vec::new();
    for path in SHOWN.map(PathBuf::from) {
        match path.symlink_metadata() {
            Ok(data) if data.is_symlink() => {
                let link = path.read_link().map_err(|error| failed("read-only root", error))?;
                found.push(Shown { path, link: Some(link), tree: None });
            }
            Ok(data) if data.is_dir() => found.push(Shown { tree: Some(read_only(&path)?), path, link: None }),
            _ => {}
        }
    }
    if sandbox.options.sandbox.share_net {
        // Often a link to a file of a daemon below /run.
        if let Ok(real) = std::fs::canonicalize("/etc/resolv.conf") {
            if !SHOWN.iter().any(|shown| real.starts_with(shown)) {
                found.push(Shown { tree: Some(read_only(&real)?), path: real, link: None });
            }
        }
    }
    Ok(found)
}

fn read_only(path: &Path) -> Result<OwnedFd, Failure> {
    tree(path, READ_ONLY | NO_SUID | NO_DEV).map_err(|(what, error)| failed(&what, error))
}

fn present_devices() -> impl Iterator<Item = &'static str> {
    // A container may lack some.
    DEVICES.into_iter().filter(|name| Path::new("/dev").join(name).exists())
}

/// Everything in /dev that is not a mount, and the places of mounts. Then it becomes read-only.
fn fill_devices(dev: &OwnedFd) -> Result<(), Failure> {
    let skeleton = Skeleton(dev.as_fd());
    for name in present_devices() {
        skeleton.place(Path::new(name), false)?;
    }
    for name in ["pts", "shm"] {
        skeleton.place(Path::new(name), true)?;
    }
    for (to, name) in [
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
        ("pts/ptmx", "ptmx"),
    ] {
        skeleton.link(Path::new(to), Path::new(name))?;
    }
    set_attributes(dev, READ_ONLY).map_err(|error| failed("/dev", error))
}

/// A procfs of the new PID namespace, read-only: sysctls and the like belong to the machine.
fn mount_proc(command: &mut Command) {
    let place = below(Path::new("/proc"));
    command.file_system("proc", std::iter::empty::<(&str, Option<&str>)>(), NO_SUID | NO_DEV | NO_EXEC, &place);
    for name in MASKED.iter().filter(|name| Path::new("/proc").join(name).exists()) {
        command.bind("/dev/null", place.join(name));
    }
    command.mount_attributes(&place, READ_ONLY | NO_DEV, 0);
}

/// Adds a mount of the options.
fn add(
    command: &mut Command,
    mount: &Mount,
    tree_of_root: Option<&OwnedFd>,
    write: BitFlags<AccessFs>,
) -> Result<Option<Rule>, Failure> {
    let target = below(&absolute(mount.target()));
    for parent in
        target.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev().filter(|one| **one > *Path::new(PLACE))
    {
        command.make_dir(parent, 0o755);
    }
    if let Some((source, set, is_writable)) = bind_of(mount) {
        if is_directory(mount, tree_of_root) {
            command.make_dir(&target, 0o755);
        }
        let tree = match tree_of_root {
            Some(tree) => copy(tree)?,
            None => tree(source, set).map_err(|(what, error)| failed(&what, error))?,
        };
        let rule = if is_writable { Some(Rule(copy(&tree)?, write)) } else { None };
        command.attach_mount(tree, target);
        return Ok(rule);
    }
    if !matches!(mount, Mount::Symlink(..) | Mount::Directory(..)) {
        command.make_dir(&target, 0o755);
    }
    mount.at(target).apply(command)?;
    Ok(None)
}

/// The path in the new root, while that is being put together.
fn below(path: &Path) -> PathBuf {
    Path::new(PLACE).join(path.strip_prefix("/").unwrap_or(path))
}

/// Directories and files in a new file system, as places for mounts.
struct Skeleton<'a>(BorrowedFd<'a>);

impl Skeleton<'_> {
    /// Makes the path and the directories above it. Links are not followed: what is below them is no part of this file system.
    fn place(&self, path: &Path, is_directory: bool) -> Result<(), Failure> {
        let failed = |error: Errno| failed(&format!("mount point {path:?}"), error);
        let names: Vec<_> = path.iter().filter(|name| *name != "/").collect();
        let mut held: Option<OwnedFd> = None;
        for (number, name) in names.iter().enumerate() {
            let at = held.as_ref().map_or(self.0, |held| held.as_fd());
            let made = if number + 1 < names.len() || is_directory {
                mkdirat(at, *name, Mode::from_raw_mode(0o755))
            } else {
                mknodat(at, *name, FileType::RegularFile, Mode::from_raw_mode(0o444), 0)
            };
            match made {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(error)),
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(at, *name, flags, Mode::empty()) {
                Ok(next) => held = Some(next),
                // A file, or a link.
                Err(Errno::NOTDIR | Errno::LOOP) => return Ok(()),
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    fn link(&self, to: &Path, path: &Path) -> Result<(), Failure> {
        let path = path.strip_prefix("/").unwrap_or(path);
        symlinkat(to, self.0, path).map_err(|error| failed(&format!("link {path:?}"), error))
    }
}

fn call(number: libc::c_long, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the callers pass numbers, and addresses of their own objects that outlive the call.
    unsafe { sys::syscall(number as u32, args) }.map_err(Errno::from_raw_os_error)
}

/// A string as the argument of a system call.
fn address(text: &CStr) -> usize {
    text.as_ptr() as usize
}

fn descriptor(number: usize) -> OwnedFd {
    // SAFETY: the system call has just returned this descriptor, so nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(number as i32) }
}

fn copy(fd: &OwnedFd) -> Result<OwnedFd, Failure> {
    fd.try_clone().map_err(|error| failed("descriptor", error))
}

/// A copy of the mount at `source` with all mounts below it, attached nowhere.
fn tree(source: &Path, set: u64) -> Result<OwnedFd, (String, Errno)> {
    const OPEN_TREE_CLONE: usize = 1;
    const AT_RECURSIVE: usize = 0x8000;
    let explained = |error| (format!("bind mount of {source:?}"), error);
    let name = CString::new(source.as_os_str().as_bytes()).map_err(|_| explained(Errno::INVAL))?;
    let flags = OPEN_TREE_CLONE | AT_RECURSIVE | libc::O_CLOEXEC as usize;
    let args = [libc::AT_FDCWD as usize, address(&name), flags, 0, 0, 0];
    let tree = descriptor(call(libc::SYS_open_tree, args).map_err(explained)?);
    set_attributes(&tree, set).map_err(explained)?;
    Ok(tree)
}

fn set_attributes(tree: &OwnedFd, set: u64) -> Result<(), Errno> {
    const AT_EMPTY_PATH_RECURSIVE: usize = 0x1000 | 0x8000;
    // struct mount_attr: set, clear, propagation, user namespace.
    let attributes = [set, 0, 0, 0];
    let args = [
        tree.as_raw_fd() as usize,
        address(c""),
        AT_EMPTY_PATH_RECURSIVE,
        attributes.as_ptr() as usize,
        size_of_val(&attributes),
        0,
    ];
    call(libc::SYS_mount_setattr, args).map(drop)
}

/// A new tmpfs, attached nowhere. `what`: its name in errors.
fn tmpfs(what: &str, parameters: &[(&str, &str)], attributes: u64) -> Result<OwnedFd, Failure> {
    const CLOEXEC: usize = 1;
    const SET_STRING: usize = 1;
    const CREATE: usize = 6;
    let failed = |error: Errno| failed(&format!("tmpfs for {what}"), error);
    let text = |text: &str| CString::new(text).map_err(|_| failed(Errno::INVAL));
    let context = [address(c"tmpfs"), CLOEXEC, 0, 0, 0, 0];
    let context = descriptor(call(libc::SYS_fsopen, context).map_err(failed)?);
    let number = context.as_raw_fd() as usize;
    for (key, value) in parameters {
        let (key, value) = (text(key)?, text(value)?);
        let args = [number, SET_STRING, address(&key), address(&value), 0, 0];
        call(libc::SYS_fsconfig, args).map_err(failed)?;
    }
    call(libc::SYS_fsconfig, [number, CREATE, 0, 0, 0, 0]).map_err(failed)?;
    let made = call(libc::SYS_fsmount, [number, CLOEXEC, attributes as usize, 0, 0, 0]);
    made.map(descriptor).map_err(failed)
}

/// A second layer over the mounts. It also refuses changes of mounts, and signals and abstract sockets to the outside.
fn landlock(sandbox: &Sandbox<'_>, command: &mut Command, rules: Vec<Rule>) -> Result<(), Failure> {
    let strict = sandbox.profile == Profile::Strict;
    let level = if strict { CompatLevel::HardRequirement } else { CompatLevel::BestEffort };
    let refused = |error: &dyn std::fmt::Display| failed("Landlock", error);
    let ruleset = Ruleset::default().set_compatibility(level).handle_access(AccessFs::from_all(RIGHTS));
    let ruleset = ruleset.and_then(|ruleset| ruleset.scope(Scope::from_all(RIGHTS))).and_then(Ruleset::create);
    let mut ruleset = ruleset.map_err(|error| refused(&error))?;
    for Rule(file, access) in rules {
        let is_directory = rustix::fs::fstat(&file).is_ok_and(|data| FileType::from_raw_mode(data.st_mode).is_dir());
        let access = if is_directory { access } else { access & AccessFs::from_file(RIGHTS) };
        ruleset = ruleset.add_rule(PathBeneath::new(file, access)).map_err(|error| refused(&error))?;
    }
    match Option::<OwnedFd>::from(ruleset) {
        Some(ruleset) => _ = command.landlock(ruleset),
        None if strict => return Err(failed("Landlock", io::Error::from_raw_os_error(libc::EOPNOTSUPP))),
        None => say("sandbox: this kernel has no Landlock, or it is not enabled; --sandbox=strict would require it"),
    }
    Ok(())
}
