//! The files of the sandbox: a new root with what the program may see, and the Landlock rules for it.
//!
//! Init mounts what every sandbox has. The plan of the program adds the mounts of options, whose paths lead through directories
//! of others, and makes the root the root.

use std::{
    collections::BTreeSet,
    ffi::{CStr, CString, OsStr},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use forkless::{
    Command,
    internal::{
        FilePlace,
        preset::{COUNTERS, DEVICES, HIDDEN, MASKED, SHOWN},
    },
    mount_attribute,
};
use forkless_core::sys;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    Scope,
};
use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, mkdirat, mknodat, openat, openat2, symlinkat},
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

/// All bind mounts of options, and their new file systems: Landlock's rules are for files that exist.
fn trees_of(options: &RunOptions, of_root: &Trees) -> Result<Trees, Failure> {
    let of_root = of_root.iter().map(Option::as_ref).chain(std::iter::repeat(None));
    options
        .mounts
        .steps()
        .iter()
        .zip(of_root)
        .map(|(mount, of_root)| match (bind_of(mount), of_root) {
            (None, _) => new_file_system(mount),
            (_, Some(tree)) => copy(tree).map(Some),
            (Some((source, set, _)), None) => tree(source, set).map(Some).map_err(|(what, error)| failed(&what, error)),
        })
        .collect()
}

/// A file system of its own that an option mounts, attached nowhere. `--proc` and `--dev` show those that every sandbox has.
fn new_file_system(mount: &Mount) -> Result<Option<OwnedFd>, Failure> {
    let (kind, parameters, set) = match mount {
        Mount::Tmpfs(_, options) => {
            let words = options.split(',').filter(|word| !word.is_empty());
            let pairs = words.map(|word| word.split_once('=').map_or((word, None), |(key, value)| (key, Some(value))));
            let owned = pairs.map(|(key, value)| (key.to_owned(), value.map(|value| value.as_bytes().to_vec())));
            ("tmpfs", owned.collect::<Vec<_>>(), NO_SUID | NO_DEV)
        }
        Mount::Overlay(lower, upper, _) => {
            // A backslash stands before a colon, which separates layers, and before a backslash: overlayfs(5).
            let escaped = |path: &Path| -> Vec<u8> {
                let bytes = path.as_os_str().as_bytes();
                bytes
                    .iter()
                    .flat_map(|byte| [b'\\', *byte].into_iter().skip(usize::from(!b":\\".contains(byte))))
                    .collect()
            };
            let lower = lower.iter().map(|path| escaped(path)).collect::<Vec<_>>().join(&b':');
            let mut parameters = vec![("lowerdir".to_owned(), Some(lower)), ("userxattr".to_owned(), None)];
            for (key, path) in upper.iter().flat_map(|(upper, work)| [("upperdir", upper), ("workdir", work)]) {
                parameters.push((key.to_owned(), Some(escaped(path))));
            }
            ("overlay", parameters, NO_SUID | NO_DEV)
        }
        Mount::FileSystem { kind, parameters, attributes, .. } => {
            let owned = parameters.iter().map(|(key, value)| (key.clone(), value.clone().map(String::into_bytes)));
            (kind.as_str(), owned.collect(), *attributes)
        }
        _ => return Ok(None),
    };
    mounted(kind, &parameters, set)
        .map(Some)
        .map_err(|(what, error)| failed(&format!("{kind} at {:?}{what}", mount.target()), error))
}

/// fsopen(2), fsconfig(2), fsmount(2).
fn mounted(kind: &str, parameters: &[(String, Option<Vec<u8>>)], set: u64) -> Result<OwnedFd, (String, Errno)> {
    const CLOEXEC: usize = 1;
    const SET_FLAG: usize = 0;
    const SET_STRING: usize = 1;
    const CREATE: usize = 6;
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| (String::new(), Errno::INVAL));
    let plain = |error| (String::new(), error);
    let name = text(kind.as_bytes())?;
    let context = descriptor(call(libc::SYS_fsopen, [address(&name), CLOEXEC, 0, 0, 0, 0]).map_err(plain)?);
    let configure = |command, key: usize, value: usize| {
        call(libc::SYS_fsconfig, [context.as_raw_fd() as usize, command, key, value, 0, 0]).map(drop)
    };
    for (key, value) in parameters {
        let (name, words) = (text(key.as_bytes())?, value.as_ref().map(|value| text(value)).transpose()?);
        let done = match &words {
            Some(words) => configure(SET_STRING, address(&name), address(words)),
            None => configure(SET_FLAG, address(&name), 0),
        };
        done.map_err(|error| (format!(": the parameter {key:?}"), error))?;
    }
    configure(CREATE, 0, 0).map_err(plain)?;
    let tree = [context.as_raw_fd() as usize, CLOEXEC, set as usize, 0, 0, 0];
    call(libc::SYS_fsmount, tree).map(descriptor).map_err(plain)
}

fn is_directory(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|data| FileType::from_raw_mode(data.st_mode).is_dir())
}

/// Whether the mount point is a directory.
fn is_on_directory(mount: &Mount, tree: Option<&OwnedFd>) -> bool {
    !matches!(mount, Mount::File { .. }) && tree.is_none_or(is_directory)
}

/// What may be done below a file or directory.
struct LandlockRule(OwnedFd, BitFlags<AccessFs>);

/// The rights that a rule can give.
const RIGHTS: ABI = ABI::V6;

/// Makes the new root with everything in it that no option has asked for, and adds the rest to the program's plan, with the
/// Landlock ruleset. Nobody else is in the mount namespace, so that a mount may be restricted after it has been made.
pub(super) fn build(sandbox: &Sandbox<'_>, command: &mut Command, trees: &Trees) -> Result<(), Failure> {
    command.mounts_here();
    let strict = if sandbox.profile == Profile::Strict { libc::MS_NOEXEC } else { 0 };
    let read = AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::from_all(RIGHTS) & !(AccessFs::MakeChar | AccessFs::MakeBlock);

    // Before the new root hides /proc, of which a source may be a part.
    let trees = trees_of(sandbox.options, trees)?;
    let executed = sandbox.options.child.executed()?;
    let top = tmpfs("", c"mode=755,size=1m,nr_inodes=16k", libc::MS_NOSUID | libc::MS_NODEV)?;
    let skeleton = Skeleton(top.as_fd());
    for path in ["/proc", "/dev", "/tmp", "/var", "/run"] {
        skeleton.create_mount_point(Path::new(path), true)?;
    }
    skeleton.link(Path::new("../tmp"), Path::new("/var/tmp"))?;
    skeleton.link(Path::new("../run"), Path::new("/var/run"))?;
    show(sandbox, &skeleton)?;
    let (mut in_dev, mut made) = (Vec::new(), Vec::new());
    for (mount, tree) in sandbox.options.mounts.steps().iter().zip(&trees) {
        if matches!(mount, Mount::Symlink(..)) {
            made.push(sandbox.is_in_root(mount) && skeleton.symlink(mount)?);
        } else if matches!(mount, Mount::Mode(..) | Mount::File { place: FilePlace::Path, .. }) {
            // No mount point.
            made.push(false);
        } else {
            made.push(false);
            let (target, is_directory) = (absolute(mount.target()), is_on_directory(mount, tree.as_ref()));
            skeleton.create_mount_point(&target, is_directory)?;
            // The file system at /dev hides the place just made.
            in_dev.extend(target.strip_prefix("/dev").map(|path| (path.to_owned(), is_directory)));
        }
    }
    mount_proc()?;
    limit_counters()?;
    set_attributes(&top, READ_ONLY | NO_SUID | NO_DEV).map_err(|error| failed("read-only root", error))?;

    let dev = tmpfs("dev", c"mode=755,size=64k,nr_inodes=1k", libc::MS_NOSUID | libc::MS_NOEXEC)?;
    fill_devices(&dev, &in_dev)?;
    let terminals = c"ptmxmode=0666,mode=620,max=64";
    mount(Some(c"devpts"), "dev/pts", Some(c"devpts"), libc::MS_NOSUID | libc::MS_NOEXEC, Some(terminals))
        .map_err(|error| failed("mount of devpts", error))?;
    let private = libc::MS_NOSUID | libc::MS_NODEV | strict;
    let shm = tmpfs("dev/shm", c"mode=1777,size=64m,nr_inodes=4k", private)?;
    let tmp = tmpfs("tmp", c"mode=1777,size=1g,nr_inodes=256k", private)?;
    // The child makes directories as mount points, but no files.
    for (mount, tree) in sandbox.options.mounts.steps().iter().zip(&trees) {
        let target = absolute(mount.target());
        for (place, held) in [("/tmp", &tmp), ("/var/tmp", &tmp), ("/dev/shm", &shm)] {
            let is_mount = !matches!(mount, Mount::Mode(..) | Mount::File { place: FilePlace::Path, .. });
            let is_on_file = is_mount && !is_on_directory(mount, tree.as_ref());
            if let (Ok(path), true) = (target.strip_prefix(place), is_on_file) {
                Skeleton(held.as_fd()).create_mount_point(path, false)?;
            }
        }
    }

    let mut rules = device_rules(&dev)?;
    rules.push(LandlockRule(top, read));
    rules.extend(executed.map(|program| LandlockRule(program, AccessFs::Execute | AccessFs::ReadFile)));
    // The kernel skips the rule of a directory that is hidden by a mount over it.
    rules.extend([LandlockRule(tmp, write), LandlockRule(shm, write)]);
    let unmade = sandbox.options.mounts.steps().iter().zip(trees).zip(made).filter(|(_, made)| !made);
    let mut writable: Vec<(PathBuf, OwnedFd)> = Vec::new();
    let mut pinned = BTreeSet::new();
    for ((mount, tree), _) in unmade {
        // Those that every sandbox has, with their rules.
        let tree = match mount {
            Mount::Proc(_) => Some(own_tree("proc")?),
            Mount::Devices(_) => Some(own_tree("dev")?),
            _ => tree,
        };
        let mount = if strict == 0 { mount } else { &mount.not_executable() };
        let target = absolute(mount.target());
        if tree.is_some() {
            pin(command, &writable, &target, &mut pinned)?;
        }
        let rule = add(command, mount, tree, write)?;
        if let Some(LandlockRule(tree, _)) = &rule {
            writable.push((target, copy(tree)?));
        }
        rules.extend(rule);
    }
    command.pivot_root(PLACE);
    landlock(sandbox, command, rules)
}

/// Shows the parts of the host that exist. A symbolic link, such as /bin to usr/bin, is made again.
fn show(sandbox: &Sandbox<'_>, skeleton: &Skeleton<'_>) -> Result<(), Failure> {
    for path in SHOWN.map(Path::new) {
        match rustix::fs::readlink(path, Vec::new()) {
            Ok(link) => skeleton.link(Path::new(OsStr::from_bytes(link.to_bytes())), path)?,
            // No link.
            Err(Errno::INVAL) => bind(path, skeleton, true)?,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(failed(&format!("read-only root: {path:?}"), error)),
        }
    }
    for path in HIDDEN.map(Path::new).into_iter().filter(|path| path.is_dir()) {
        tmpfs(
            path.strip_prefix("/").unwrap_or(path),
            c"mode=755,size=4k,nr_inodes=1",
            libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
        )?;
    }
    if sandbox.options.sandbox.share_net {
        // Often a link to a file of a daemon below /run.
        if let Ok(real) = std::fs::canonicalize("/etc/resolv.conf") {
            if !SHOWN.iter().any(|shown| real.starts_with(shown)) {
                bind(&real, skeleton, false)?;
            }
        }
    }
    Ok(())
}

/// Binds a part of the host, with all mounts below it, at the same place in the new root.
fn bind(path: &Path, skeleton: &Skeleton<'_>, is_directory: bool) -> Result<(), Failure> {
    skeleton.create_mount_point(path, is_directory)?;
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| failed("bind mount", error))?;
    let place = path.strip_prefix("/").unwrap_or(path);
    mount(Some(&name), place, None, libc::MS_BIND | libc::MS_REC, None)
        .map_err(|error| failed(&format!("bind mount of {path:?}"), error))
}

/// Everything in /dev except mounts of new file systems and of options, and the places of those. Then it becomes read-only:
/// that does not keep anybody from writing to a device.
fn fill_devices(dev: &OwnedFd, places: &[(PathBuf, bool)]) -> Result<(), Failure> {
    let skeleton = Skeleton(dev.as_fd());
    for name in DEVICES {
        skeleton.create_mount_point(Path::new(name), false)?;
        let source = CString::new(format!("/dev/{name}")).map_err(|error| failed("bind mount", error))?;
        match mount(Some(&source), format!("dev/{name}"), None, libc::MS_BIND, None) {
            Ok(()) => {}
            // A container may lack some.
            Err(Errno::NOENT) => skeleton.remove(name)?,
            Err(error) => return Err(failed(&format!("bind mount of {source:?}"), error)),
        }
    }
    for name in ["pts", "shm"] {
        skeleton.create_mount_point(Path::new(name), true)?;
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
    for (path, is_directory) in places {
        skeleton.create_mount_point(path, *is_directory)?;
    }
    set_attributes(dev, READ_ONLY | NO_SUID | NO_EXEC).map_err(|error| failed("/dev", error))
}

/// One rule for each device and for the pseudo-terminals: a rule for /dev would also hold for a mount over /dev/shm.
fn device_rules(dev: &OwnedFd) -> Result<Vec<LandlockRule>, Failure> {
    let file = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let mut rules = Vec::new();
    for (name, access) in DEVICES.map(|name| (name, file)).into_iter().chain([("pts", file | AccessFs::ReadDir)]) {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(dev, name, flags, Mode::empty()) {
            Ok(device) => rules.push(LandlockRule(device, access)),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(failed(&format!("Landlock rule for /dev/{name}"), error)),
        }
    }
    Ok(rules)
}

/// A procfs of the new PID namespace. It becomes read-only with the root: sysctls and the like belong to the machine.
fn mount_proc() -> Result<(), Failure> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount(Some(c"proc"), "proc", Some(c"proc"), flags, None).map_err(|error| failed("mount of proc", error))?;
    for name in MASKED {
        match mount(Some(c"/dev/null"), format!("proc/{name}"), None, libc::MS_BIND, None) {
            // A kernel may lack it.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(failed(&format!("mount over /proc/{name}"), error)),
        }
    }
    Ok(())
}

/// The limits of its user namespace, for what is counted for the user who has made it.
fn limit_counters() -> Result<(), Failure> {
    for (name, limit) in COUNTERS {
        match std::fs::write(below(Path::new("proc/sys/user")).join(name), limit) {
            Ok(()) => {}
            // A kernel may lack it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(&format!("limit {name}"), error)),
        }
    }
    Ok(())
}

/// A copy of a mount in the new root.
fn own_tree(place: &str) -> Result<OwnedFd, Failure> {
    let path = below(Path::new(place));
    tree(&path, 0).map_err(|(_, error)| failed(&format!("copy of /{place}"), error))
}

/// Adds a mount of the options.
fn add(
    command: &mut Command,
    mount: &Mount,
    tree: Option<OwnedFd>,
    write: BitFlags<AccessFs>,
) -> Result<Option<LandlockRule>, Failure> {
    let target = below(&absolute(mount.target()));
    for parent in
        target.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev().filter(|one| **one > *Path::new(PLACE))
    {
        command.make_dir(parent, 0o755);
    }
    if let Some(tree) = tree {
        let mut access = write;
        if is_directory(&tree) {
            command.make_dir(&target, 0o755);
        } else {
            access &= AccessFs::from_file(RIGHTS);
        }
        let is_writable = match mount {
            Mount::Tmpfs(..) | Mount::Overlay(..) => true,
            Mount::FileSystem { attributes, .. } => attributes & READ_ONLY == 0,
            _ => bind_of(mount).is_some_and(|(_, _, is_writable)| is_writable),
        };
        let rule = if is_writable { Some(LandlockRule(copy(&tree)?, access)) } else { None };
        command.attach_mount(tree, target);
        return Ok(rule);
    }
    mount.at(target).apply(command)?;
    Ok(None)
}

/// Mounts the directories between a mount point and a writable mount above it on themselves. The program could rename one that is no
/// mount point, and put another one in its place: what is read-only would be elsewhere then.
fn pin(
    command: &mut Command,
    writable: &[(PathBuf, OwnedFd)],
    target: &Path,
    pinned: &mut BTreeSet<PathBuf>,
) -> Result<(), Failure> {
    let is_above = |above: &&(PathBuf, OwnedFd)| target != above.0 && target.starts_with(&above.0);
    let Some((above, tree)) = writable.iter().filter(is_above).max_by_key(|(above, _)| above.as_os_str().len()) else {
        return Ok(());
    };
    let mut between: Vec<&Path> = target.ancestors().skip(1).take_while(|path| path != above).collect();
    between.reverse();
    for path in between {
        let rest = path.strip_prefix(above).unwrap_or(path);
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        if openat2(tree, rest, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).is_err_and(|error| error == Errno::LOOP)
        {
            let why = format!(
                "mount on {target:?}: below {above:?}, where the program may write, it leads over the symbolic link {path:?}, which could be replaced"
            );
            return Err(failed(&why, Errno::LOOP));
        }
        if pinned.insert(path.to_owned()) {
            command.make_dir(below(path), 0o755).bind(below(path), below(path));
        }
    }
    Ok(())
}

/// The path in the new root, while that is being put together.
fn below(path: &Path) -> PathBuf {
    Path::new(PLACE).join(path.strip_prefix("/").unwrap_or(path))
}

/// Directories and files in a new file system, as places for mounts.
struct Skeleton<'a>(BorrowedFd<'a>);

impl Skeleton<'_> {
    fn create_mount_point(&self, path: &Path, is_directory: bool) -> Result<(), Failure> {
        let made = self.make(path, |at, name| match is_directory {
            true => mkdirat(at, name, Mode::from_raw_mode(0o755)),
            false => mknodat(at, name, FileType::RegularFile, Mode::from_raw_mode(0o444), 0),
        });
        made.map(drop)
    }

    /// Makes the link of an option. `false`: there is something, or its directory is no part of this file system.
    fn symlink(&self, mount: &Mount) -> Result<bool, Failure> {
        let Mount::Symlink(to, path) = mount else { return Ok(false) };
        self.make(&absolute(path), |at, name| symlinkat(to, at, name))
    }

    /// Makes the directories above the path, and the path by `last`. Other links are not followed: what is below them is no part
    /// of this file system. Returns whether it was made.
    fn make(&self, path: &Path, last: impl Fn(BorrowedFd<'_>, &OsStr) -> Result<(), Errno>) -> Result<bool, Failure> {
        let failed = |error: Errno| failed(&format!("mount point {path:?}"), error);
        // The link in every sandbox that leads to another directory of this file system.
        let in_run = path.strip_prefix("/var/run").map(|below| Path::new("/run").join(below));
        let place = in_run.as_deref().unwrap_or(path);
        let names: Vec<_> = place.iter().filter(|name| *name != "/").collect();
        let own = rustix::fs::fstat(self.0).map_err(failed)?.st_dev;
        let mut held: Option<OwnedFd> = None;
        for (number, name) in names.iter().enumerate() {
            let at = held.as_ref().map_or(self.0, |held| held.as_fd());
            if number + 1 == names.len() {
                return match last(at, name) {
                    Ok(()) => Ok(true),
                    Err(Errno::EXIST) => Ok(false),
                    Err(error) => Err(failed(error)),
                };
            }
            match mkdirat(at, *name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(error)),
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(at, *name, flags, Mode::empty()) {
                // A file system of the host: nothing is made there.
                Ok(next) if rustix::fs::fstat(&next).map_err(failed)?.st_dev != own => {
                    return Ok(false);
                }
                Ok(next) => held = Some(next),
                // A file, or a link.
                Err(Errno::NOTDIR | Errno::LOOP) => return Ok(false),
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(false)
    }

    fn remove(&self, name: &str) -> Result<(), Failure> {
        let removed = rustix::fs::unlinkat(self.0, name, rustix::fs::AtFlags::empty());
        removed.map_err(|error| failed(&format!("mount point {name:?}"), error))
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

/// Sets attributes of a mount and all mounts below it, and cuts them off from those that they are copies of: no later mount
/// gets in or out.
fn set_attributes(tree: &OwnedFd, set: u64) -> Result<(), Errno> {
    const AT_EMPTY_PATH_RECURSIVE: usize = 0x1000 | 0x8000;
    // struct mount_attr: set, clear, propagation, user namespace.
    let propagation = libc::MS_PRIVATE;
    let attributes = [set, 0, propagation, 0];
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

/// Makes a mount at this place below the new root, by mount(2).
fn mount(
    source: Option<&CStr>,
    place: impl AsRef<Path>,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
    data: Option<&CStr>,
) -> Result<(), Errno> {
    let target = CString::new(below(place.as_ref()).as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    let text = |text: Option<&CStr>| text.map_or(0, address);
    let args = [text(source), address(&target), text(kind), flags as usize, text(data), 0];
    call(libc::SYS_mount, args).map(drop)
}

/// Mounts a new tmpfs, and opens its root.
fn tmpfs(place: impl AsRef<Path>, data: &CStr, flags: libc::c_ulong) -> Result<OwnedFd, Failure> {
    let place = place.as_ref();
    let failed = |error: Errno| failed(&format!("mount of tmpfs at /{}", place.display()), error);
    mount(Some(c"tmpfs"), place, Some(c"tmpfs"), flags, Some(data)).map_err(failed)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(below(place), flags, Mode::empty()).map_err(failed)
}

/// A second layer over the mounts. It also refuses changes of mounts, and signals and abstract sockets to the outside.
fn landlock(sandbox: &Sandbox<'_>, command: &mut Command, rules: Vec<LandlockRule>) -> Result<(), Failure> {
    let strict = sandbox.profile == Profile::Strict;
    let level = if strict { CompatLevel::HardRequirement } else { CompatLevel::BestEffort };
    let refused = |error: &dyn std::fmt::Display| failed("Landlock", error);
    let ruleset = Ruleset::default().set_compatibility(level).handle_access(AccessFs::from_all(RIGHTS));
    let ruleset = ruleset.and_then(|ruleset| ruleset.scope(Scope::from_all(RIGHTS))).and_then(Ruleset::create);
    let mut ruleset = ruleset.map_err(|error| refused(&error))?;
    for LandlockRule(file, access) in rules {
        ruleset = ruleset.add_rule(PathBeneath::new(file, access)).map_err(|error| refused(&error))?;
    }
    match Option::<OwnedFd>::from(ruleset) {
        Some(ruleset) => _ = command.landlock(ruleset),
        None if strict => return Err(failed("Landlock", io::Error::from_raw_os_error(libc::EOPNOTSUPP))),
        None => say("sandbox: this kernel has no Landlock, or it is not enabled; --sandbox=strict would require it"),
    }
    Ok(())
}
