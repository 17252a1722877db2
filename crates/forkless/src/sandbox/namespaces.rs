//! The mode of namespaces: a new root with what the program may see, and an init.
//!
//! All is made by the plan of the launch, in its new namespaces, and nothing is shared by two launches. The mounts and calls do not
//! depend on the launch, so they are put together once.

use super::preset::{COUNTERS, HIDDEN, MASKED, NOBODY, SHOWN};
use super::{GivenPath, Network, refused};
use crate::Resource;
use crate::error::{Error, reworded};
use crate::kernel;
use crate::procfs;
use crate::request::command::{
    CallArg, CapabilitySet, Command, IsolationCall, MountStep, Name, Namespace, SandboxInit, mount_attribute,
};
use crate::step::Step;
use forkless_core::init;
use forkless_core::sys::{self, errno, uapi};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where the new root is put together. A procfs is needed anyway, and nobody binds files of it.
const PLACE: &str = procfs::ROOT;

/// Directories that are new in every sandbox.
const NEW: [&str; 9] = ["/", procfs::ROOT, "/dev", "/dev/shm", "/tmp", "/var", "/var/tmp", "/run", "/var/run"];

const OF_PLACES: u64 = mount_attribute::NO_SUID | mount_attribute::NO_DEV;

/// What all launches have in common.
pub(super) struct NamespaceSandbox {
    mounts: Vec<MountStep>,
    calls: Vec<IsolationCall>,
    init: SandboxInit,
    network: Network,
}

impl NamespaceSandbox {
    pub(super) fn prepare(places: &[GivenPath], network: Network, linger: Duration) -> io::Result<Self> {
        let mounts = mounts(places, network)?;
        let linger = u32::try_from(linger.as_millis()).unwrap_or(u32::MAX);
        let init = SandboxInit { file: Arc::new(init_file()?), linger };
        Ok(Self { mounts, calls: calls(network), init, network })
    }

    /// Adds the settings to a command.
    pub(super) fn confine(&self, own: &mut Command, places: &[GivenPath]) -> Result<(), Error> {
        let isolation = &own.sandbox;
        let has_others = isolation.unshare != 0 || !isolation.joins.is_empty() || !isolation.mounts.is_empty();
        if has_others || isolation.pivot_root.is_some() || own.setup.chroot.is_some() || isolation.hostname.is_some() {
            return refused(own, "the command has namespaces, mounts or a root of its own");
        }
        if own.program_fd.is_some() {
            return refused(own, "program_fd names no path, which init needs");
        }
        if own.scripts_by_shell {
            return refused(own, "init runs no file without #! by the shell");
        }
        if own.setup.directory_fd.is_some() {
            return refused(
                own,
                "the directory is given as a descriptor, so nobody knows whether it is visible inside",
            );
        }
        self.enter_namespaces(own)?;
        let directory = match &own.directory {
            Some(given) if given.is_absolute() => given.clone(),
            given => {
                let here = std::env::current_dir().map_err(|error| {
                    Error::new(&own.program, Step::Chdir, error.raw_os_error().unwrap_or(errno::ENOENT))
                        .note("the working directory has no path")
                })?;
                given.as_ref().map_or(here.clone(), |given| here.join(given))
            }
        };
        if !shows(places, &directory) {
            let why = format!(
                "{directory:?} is not visible inside: give the sandbox read({directory:?}) or write({directory:?}), or the command \
                 current_dir(\"/\")"
            );
            return Err(Error::new(&own.program, Step::Chdir, errno::ENOENT).on("of a sandbox").note(why));
        }
        own.directory = Some(directory);
        for (resource, soft, hard) in [
            (Resource::Processes, 2048, 2048),
            (Resource::Files, 1024, 65536),
            (Resource::PendingSignals, 4096, 4096),
            (Resource::MessageQueues, 256 << 10, 256 << 10),
        ] {
            let most = kernel::limit(resource as u32).map_or(u64::MAX, |[_, hard]| hard);
            own.setup.rlimits.entry(resource as u32).or_insert((soft.min(most), hard.min(most)));
        }
        own.bounding_set(CapabilitySet::EMPTY);
        own.sandbox.mounts.clone_from(&self.mounts);
        own.sandbox.calls.clone_from(&self.calls);
        own.sandbox.pivot_root = Some(PLACE.into());
        own.sandbox.init = Some(self.init.clone());
        Ok(())
    }

    /// New namespaces, and the IDs in them: those outside, so that files have the same owners.
    fn enter_namespaces(&self, own: &mut Command) -> Result<(), Error> {
        for kind in [Namespace::User, Namespace::Mount, Namespace::Pid, Namespace::Uts, Namespace::Cgroup] {
            own.unshare(kind);
        }
        if self.network != Network::Refused {
            own.unshare(Namespace::Ipc);
        }
        if self.network == Network::None {
            own.unshare(Namespace::Network);
        }
        own.hostname("sandbox");
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let setup = &mut own.setup;
        let id = |name: &Option<Name>, otherwise: u32| match name {
            Some(Name::Id(id)) => Some(*id),
            Some(Name::Name(_)) => None,
            None => Some(otherwise),
        };
        let ids = match uid.is_root() {
            // Root's files would be those of the program: without capabilities it still owns them.
            true => (id(&setup.user, NOBODY), id(&setup.group, NOBODY)),
            false => (id(&setup.user, uid.as_raw()), id(&setup.group, gid.as_raw())),
        };
        let (Some(user), Some(group)) = ids else {
            return refused(own, "give users and groups by their numbers");
        };
        let mut groups = vec![group];
        if uid.is_root() {
            (setup.user, setup.group) = (Some(Name::Id(user)), Some(Name::Id(group)));
            groups.extend(setup.groups.get_or_insert_with(Vec::new).iter());
            groups.sort_unstable();
            groups.dedup();
            own.sandbox.ids_first = true;
        }
        own.map_uid(user, user, 1);
        groups.into_iter().for_each(|group| _ = own.map_gid(group, group, 1));
        Ok(())
    }
}

/// Whether the program sees the path.
pub(super) fn shows(places: &[GivenPath], path: &Path) -> bool {
    let path = plain(path);
    let given = places.iter().any(|place| path.starts_with(&place.path));
    given || NEW.iter().any(|new| path == Path::new(new)) || SHOWN.iter().any(|shown| path.starts_with(shown))
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut found = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => found.push(name),
            Component::ParentDir => _ = found.pop(),
            _ => {}
        }
    }
    found
}

/// The path in the new root, while that is being put together.
fn below(path: &Path) -> PathBuf {
    Path::new(PLACE).join(path.strip_prefix("/").unwrap_or(path))
}

/// The mounts of every launch, in their order.
fn mounts(places: &[GivenPath], network: Network) -> io::Result<Vec<MountStep>> {
    let mut root = Command::new("");
    file_system(&mut root, "tmpfs", "/", "mode=755,size=1m,nr_inodes=16k");
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
        file_system(&mut root, "tmpfs", path, "mode=755,size=4k,nr_inodes=1");
    }
    file_system(&mut root, "proc", procfs::ROOT, "");
    for name in MASKED.iter().filter(|name| Path::new(procfs::ROOT).join(name).exists()) {
        root.bind("/dev/null", below(&Path::new(procfs::ROOT).join(name)));
    }
    root.devices(below(Path::new("/dev")));
    // The pseudo-terminals are counted for the whole machine.
    const REMOUNT: u64 = 32 | 2 | 8;
    let terminals = Some(OsStr::new("ptmxmode=0666,mode=620,max=64"));
    root.mount(Some(OsStr::new("devpts")), below(Path::new("/dev/pts")), Some("devpts"), REMOUNT, terminals);
    file_system(&mut root, "tmpfs", "/dev/shm", "mode=1777,size=64m,nr_inodes=4k");
    file_system(&mut root, "tmpfs", "/tmp", "mode=1777,size=1g,nr_inodes=256k");
    if network == Network::Host {
        show_resolver(&mut root);
    }
    // Directories before what is below them.
    let mut order: Vec<&GivenPath> = places.iter().collect();
    order.sort_by_key(|place| place.path.components().count());
    let mut pinned = BTreeSet::new();
    for (number, place) in order.iter().enumerate() {
        // The last one that is above it is the nearest.
        match order[..number].iter().rfind(|other| place.path.starts_with(&other.path)) {
            Some(above) => pin(&mut root, above, place, &mut pinned)?,
            None => mount_point(&mut root, &place.path, place.is_directory),
        }
        let read_only = if place.may_write { 0 } else { mount_attribute::READ_ONLY };
        show(&mut root, &place.source, &place.path, read_only | OF_PLACES);
    }
    Ok(root.sandbox.mounts)
}

/// Mounts a new file system at this path of the new root.
fn file_system(root: &mut Command, kind: &str, path: impl AsRef<Path>, options: &str) {
    const NO_SUID_NO_DEV: u64 = 2 | 4;
    const NO_EXEC: u64 = 8;
    let flags = NO_SUID_NO_DEV | if kind == "proc" { NO_EXEC } else { 0 };
    let target = match path.as_ref() {
        top if top == Path::new("/") => PathBuf::from(PLACE),
        path => below(path),
    };
    root.mount(Some(OsStr::new(kind)), target, Some(kind), flags, Some(OsStr::new(options)));
}

fn show(root: &mut Command, source: &Path, path: &Path, set: u64) {
    root.sandbox.mounts.push(MountStep::Shown { source: source.to_owned(), target: below(path), set });
}

/// Mounts the directories between a place and one above it on themselves, where the program may write. It could rename one that is
/// no mount point, and put another one in its place: what is read-only would be elsewhere then.
fn pin(root: &mut Command, above: &GivenPath, place: &GivenPath, pinned: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    let Ok(rest) = place.path.strip_prefix(&above.path) else { return Ok(()) };
    if !above.may_write || rest.as_os_str().is_empty() {
        return Ok(());
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
    let mut between: Vec<&Path> = rest.ancestors().skip(1).filter(|rest| !rest.as_os_str().is_empty()).collect();
    between.reverse();
    for rest in between {
        let path = above.path.join(rest);
        if pinned.insert(path.clone()) {
            show(root, &above.source.join(rest), &path, OF_PLACES);
        }
    }
    Ok(())
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

/// What the plan does in the new root, while it has all capabilities over the namespaces.
fn calls(network: Network) -> Vec<IsolationCall> {
    const AT_RECURSIVE: u64 = 0x8000;
    const HERE: CallArg = CallArg::Number(uapi::AT_FDCWD as i64 as u64);
    let mut calls = Vec::new();
    let mut call = |step, object, number, args: Vec<CallArg>, result| {
        calls.push(IsolationCall { step, object, number, args, result });
    };
    let number = CallArg::Number;
    let text = |text: &str| CallArg::Bytes(text.as_bytes().to_vec());
    if has_keyrings() {
        // The keys of the caller's session are not the program's.
        call(Step::Namespace, "session keyring", uapi::__NR_keyctl, vec![number(1), number(0)], None);
    }
    if network == Network::None {
        const SIOCSIFFLAGS: u64 = 0x8914;
        const UP_AND_RUNNING: [u8; 2] = 0x41_u16.to_ne_bytes();
        // struct ifreq: the name, and the flags.
        let mut request = [0; 40];
        request[..2].copy_from_slice(b"lo");
        request[16..18].copy_from_slice(&UP_AND_RUNNING);
        let (object, datagram) = ("loopback device", 2 | u64::from(uapi::O_CLOEXEC));
        call(Step::Namespace, object, uapi::__NR_socket, vec![number(2), number(datagram), number(0)], Some(0));
        let up = vec![CallArg::Variable(0), number(SIOCSIFFLAGS), CallArg::Bytes(request.to_vec())];
        call(Step::Namespace, object, uapi::__NR_ioctl, up, None);
        call(Step::Namespace, object, uapi::__NR_close, vec![CallArg::Variable(0)], None);
    }
    for (name, limit) in COUNTERS {
        let path = Path::new(procfs::ROOT).join("sys/user").join(name);
        if path.exists() {
            let (object, flags) = ("limit of its user namespace", u64::from(uapi::O_WRONLY | uapi::O_CLOEXEC));
            let path = text(&path.to_string_lossy());
            call(Step::Namespace, object, uapi::__NR_openat, vec![HERE, path, number(flags)], Some(0));
            let write = vec![CallArg::Variable(0), text(limit), number(limit.len() as u64)];
            call(Step::Namespace, object, uapi::__NR_write, write, None);
            call(Step::Namespace, object, uapi::__NR_close, vec![CallArg::Variable(0)], None);
        }
    }
    // Now that all mount points exist. Sysctls and the like belong to the machine.
    for (path, flags, more) in [
        (procfs::ROOT, AT_RECURSIVE, 0),
        ("/dev", 0, mount_attribute::NO_SUID | mount_attribute::NO_EXEC),
        ("/", 0, OF_PLACES),
    ] {
        let set = mount_attribute::READ_ONLY | more;
        let attributes = [set, 0, 0, 0].iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
        let args = vec![HERE, text(path), number(flags), CallArg::Bytes(attributes), number(32)];
        call(Step::Mount, "read-only root", uapi::__NR_mount_setattr, args, None);
    }
    calls
}

/// Whether keyctl(2) is there. If it is refused, it is refused to the program, too.
fn has_keyrings() -> bool {
    const KEYCTL_GET_KEYRING_ID: usize = 0;
    const KEY_SPEC_SESSION_KEYRING: usize = -3_isize as usize;
    // SAFETY: asks for a number, and makes no keyring.
    let found =
        unsafe { sys::syscall(uapi::__NR_keyctl, [KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0, 0, 0, 0]) };
    !matches!(found, Err(errno::ENOSYS | errno::EPERM))
}

/// A sealed memfd with [`init`], as an ELF file of one segment.
fn init_file() -> io::Result<OwnedFd> {
    let failed = |error: io::Error| {
        let words = format!("sandbox: init cannot be a program in memory: {error}; see vm.memfd_noexec");
        reworded(error, words)
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create("forkless-init", flags | MemfdFlags::EXEC) {
        // Linux before 6.3.
        Err(rustix::io::Errno::INVAL) => memfd_create("forkless-init", flags),
        answer => answer,
    };
    let file = file.map_err(|error| failed(error.into()))?;
    let image = image();
    let written = rustix::io::write(&file, &image).map_err(|error| failed(error.into()))?;
    if written < image.len() {
        return Err(failed(io::ErrorKind::WriteZero.into()));
    }
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)
        .map_err(|error| failed(error.into()))?;
    Ok(file)
}

/// `elf(5)`.
fn image() -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 2 * 56;
    let machine: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    let code = init::code();
    let length = HEADERS + code.len() as u64;
    let mut image = Vec::with_capacity(length as usize);
    // Class, byte order, version; ET_EXEC.
    image.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    let half = |image: &mut Vec<u8>, number: u16| image.extend_from_slice(&number.to_le_bytes());
    let word = |image: &mut Vec<u8>, number: u32| image.extend_from_slice(&number.to_le_bytes());
    let long = |image: &mut Vec<u8>, number: u64| image.extend_from_slice(&number.to_le_bytes());
    half(&mut image, 2);
    half(&mut image, machine);
    word(&mut image, 1);
    // Entry, program headers, no sections, flags.
    [BASE + HEADERS, 64, 0].into_iter().for_each(|number| long(&mut image, number));
    word(&mut image, 0);
    [64, 56, 2, 0, 0, 0].into_iter().for_each(|number| half(&mut image, number));
    const READ_AND_EXECUTE: u32 = 4 | 1;
    const READ_AND_WRITE: u32 = 4 | 2;
    // PT_LOAD
    word(&mut image, 1);
    word(&mut image, READ_AND_EXECUTE);
    [0, BASE, BASE, length, length, 0x1_0000].into_iter().for_each(|number| long(&mut image, number));
    // PT_GNU_STACK
    word(&mut image, 0x6474_e551);
    word(&mut image, READ_AND_WRITE);
    [0, 0, 0, 0, 0, 16].into_iter().for_each(|number| long(&mut image, number));
    image.extend_from_slice(code);
    image
}

#[cfg(test)]
mod tests;
