//! The mode of namespaces: a new root with what the program may see, and an init.
//!
//! All is made by the plan of the launch, in its new namespaces, and nothing is shared by two launches. Most mounts and calls do not
//! depend on the launch, so they are put together once.

use super::hide::{self, HiddenPath};
use super::landlock::{self, LayerAccess, LayerRule};
use super::mounts::{self, OwnMounts, PLACE, is_shown};
use super::place::GivenPath;
use super::preset::{COUNTERS, DEVICES, NOBODY};
use super::{Network, REFUSES_SIGNALS, Sandbox, ids, refused};
use crate::Resource;
use crate::error::{Error, reworded};
use crate::procfs;
use crate::request::command::{
    BUSY_MS, CapabilitySet, Command, IsolationArg, IsolationCall, IsolationVariable, MountStep, Name, Namespace,
    SandboxInit,
};
use crate::step::Step;
use forkless_core::init;
use forkless_core::sys::{self, errno, uapi};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

/// What all launches have in common.
pub(super) struct NamespaceSandbox {
    mounts: Vec<MountStep>,
    /// The mounts of the places, if nothing is hidden below them.
    shown: Vec<MountStep>,
    hidden: Vec<HiddenPath>,
    calls: Vec<IsolationCall>,
    /// The version of Landlock, if there is a second layer, and its rules.
    layer: Option<u32>,
    rules: Vec<LayerRule>,
    init: Option<SandboxInit>,
    network: Network,
    is_strict: bool,
    trusts_command: bool,
}

impl NamespaceSandbox {
    pub(super) fn prepare(sandbox: &Sandbox, places: &[GivenPath], linger: Duration) -> io::Result<Self> {
        let network = sandbox.network;
        // Version 1 refuses to move files to other directories.
        let layer = landlock::version().ok().filter(|version| *version > 1);
        if sandbox.strict && layer.is_none_or(|version| version < REFUSES_SIGNALS) {
            let why = format!("sandbox: Landlock: strict needs version {REFUSES_SIGNALS} (Linux 6.12)");
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let linger = u32::try_from(linger.as_millis()).unwrap_or(u32::MAX);
        let init = || {
            let file = init_file().map_err(|error| {
                let words = format!(
                    "sandbox: init cannot be a program in memory: {error}; see vm.memfd_noexec; init(false) needs no such program"
                );
                reworded(error.into(), words)
            })?;
            Ok::<_, io::Error>(SandboxInit { file: Arc::new(file), linger, kills_tree: false })
        };
        Ok(Self {
            mounts: mounts::preset(network, sandbox.strict)?,
            shown: mounts::of_places(places)?,
            hidden: sandbox.hidden.iter().map(|path| HiddenPath::of(path)).collect::<io::Result<_>>()?,
            calls: calls(network),
            layer,
            rules: rules(places),
            init: sandbox.init.then(init).transpose()?,
            network,
            is_strict: sandbox.strict,
            trusts_command: sandbox.trusts_command,
        })
    }

    /// Whether there is a second layer over the mounts.
    pub(super) fn has_landlock(&self) -> bool {
        self.layer.is_some()
    }

    /// Adds the settings to a command.
    pub(super) fn confine(&self, own: &mut Command, places: &[GivenPath]) -> Result<(), Error> {
        let isolation = &own.sandbox;
        let has_others = isolation.unshare != 0 || !isolation.joins.is_empty() || isolation.pivot_root.is_some();
        if has_others || own.setup.chroot.is_some() {
            return refused(own, "the command has namespaces or a root of its own");
        }
        let checked = match &self.init {
            Some(_) => check_init(own),
            None if own.program_fd.is_some() => {
                Err("program_fd is a file outside of the sandbox: give the path that it has inside")
            }
            None => Ok(()),
        };
        checked.or_else(|why| refused(own, why))?;
        if own.setup.directory_fd.is_some() {
            return refused(
                own,
                "the working directory is a descriptor, so its visibility in the sandbox cannot be checked",
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
        // Resolved like the places: inside, the directories before a `..` need not exist.
        let has_parent = directory.components().any(|part| part == Component::ParentDir);
        let real = if has_parent { directory.canonicalize().ok() } else { None };
        let directory = real.unwrap_or(directory);
        if !is_shown(places, &own.sandbox.mounts, &directory) {
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
            let most = forkless_core::sys::getrlimit(resource as u32).map_or(u64::MAX, |[_, hard]| hard);
            own.setup.rlimits.entry(resource as u32).or_insert((soft.min(most), hard.min(most)));
        }
        if !self.trusts_command || own.sandbox.bounding.is_none() {
            own.bounding_set(CapabilitySet::EMPTY);
        }
        let made = OwnMounts::of(own, places, self.is_strict)?;
        let of_place = |error: io::Error| {
            let found = Error::new(&own.program, Step::Mount, error.raw_os_error().unwrap_or(errno::EINVAL));
            found.on("of a place of a sandbox").note(error.to_string())
        };
        let of_launch = match self.hidden.is_empty() {
            true => Vec::new(),
            false => hide::look_up(&self.hidden, places).and_then(|all| mounts::of_places(&all)).map_err(of_place)?,
        };
        let shown = if self.hidden.is_empty() { &self.shown } else { &of_launch };
        let shown = shown.iter().map(|step| mounts::of_root(own, step));
        let shown = shown.collect::<io::Result<Vec<_>>>().map_err(of_place)?;
        own.sandbox.calls = self.calls.iter().cloned().chain(made.calls).collect();
        if let Some(version) = self.layer {
            let is_hidden = |rule: &LayerRule| mounts::is_hidden(&own.sandbox.mounts, &rule.path);
            let rules = self.rules.iter().filter(|rule| !is_hidden(rule)).chain(&made.rules);
            own.sandbox.calls.extend(landlock::layer(version, rules));
        }
        own.sandbox.mounts = self.mounts.iter().cloned().chain(shown).chain(made.steps).collect();
        own.sandbox.pivot_root = Some(PLACE.into());
        own.sandbox.in_sandbox = true;
        own.sandbox.init = self.init.clone();
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
        own.sandbox.hostname.get_or_insert_with(|| "sandbox".into());
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let setup = &mut own.setup;
        let id = |name: &Option<Name>, otherwise: u32| match name {
            Some(Name::Id(id)) => Some(*id),
            Some(Name::Name(_)) => None,
            None => Some(otherwise),
        };
        let is_root = ids::is_root();
        let given = match is_root {
            // Not root: even without capabilities the program would own root's files.
            true => (id(&setup.user, NOBODY), id(&setup.group, NOBODY)),
            false => (id(&setup.user, uid.as_raw()), id(&setup.group, gid.as_raw())),
        };
        let (Some(user), Some(group)) = given else {
            return refused(own, "give users and groups by their numbers");
        };
        let mut groups = vec![group];
        if is_root {
            groups.extend(setup.groups.iter().flatten());
            groups.sort_unstable();
            groups.dedup();
            ids::of_root(own).or_else(|why| refused(own, why))?;
            own.sandbox.ids_first = true;
        }
        own.map_uid(user, user, 1);
        groups.into_iter().for_each(|group| _ = own.map_gid(group, group, 1));
        Ok(())
    }
}

/// The rules of the second layer, over the mounts.
fn rules(places: &[GivenPath]) -> Vec<LayerRule> {
    let rule = |path: &str, is_directory, access| LayerRule { path: path.into(), is_directory, access };
    let mut rules = vec![rule("/", true, LayerAccess::Read)];
    let devices = DEVICES.iter().map(|name| format!("/dev/{name}")).filter(|path| Path::new(path).exists());
    rules.extend(devices.map(|path| rule(&path, false, LayerAccess::Device)));
    rules.push(rule("/dev/pts", true, LayerAccess::Device));
    rules.extend(["/tmp", "/dev/shm"].map(|path| rule(path, true, LayerAccess::Write)));
    rules.retain(|rule| !places.iter().any(|place| rule.path.starts_with(&place.path)));
    rules.extend(places.iter().filter(|place| place.may_write).map(|place| LayerRule {
        path: place.path.clone(),
        is_directory: place.is_directory,
        access: LayerAccess::Write,
    }));
    rules
}

/// What the plan does in the new root, while it has all capabilities over the namespaces.
fn calls(network: Network) -> Vec<IsolationCall> {
    use IsolationArg::{Bytes, Variable};
    use IsolationVariable::File;
    const HERE: IsolationArg = IsolationArg::Number(uapi::AT_FDCWD as i64 as u64);
    let mut calls = Vec::new();
    let mut call = |step, object, number, args: Vec<IsolationArg>, result| {
        calls.push(IsolationCall { step, object, number: Some(number), args, result });
    };
    let number = IsolationArg::Number;
    let text = |text: &str| Bytes(text.as_bytes().to_vec());
    if has_keyrings() {
        // A new session keyring: the program must not have the keys of the caller's session.
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
        call(Step::Namespace, object, uapi::__NR_socket, vec![number(2), number(datagram), number(0)], Some(File));
        let up = vec![Variable(File), number(SIOCSIFFLAGS), Bytes(request.to_vec())];
        call(Step::Namespace, object, uapi::__NR_ioctl, up, None);
        call(Step::Namespace, object, uapi::__NR_close, vec![Variable(File)], None);
    }
    for (name, limit) in COUNTERS {
        let path = Path::new(procfs::ROOT).join("sys/user").join(name);
        if path.exists() {
            let (object, flags) = ("limit of its user namespace", u64::from(uapi::O_WRONLY | uapi::O_CLOEXEC));
            let path = text(&path.to_string_lossy());
            call(Step::Namespace, object, uapi::__NR_openat, vec![HERE, path, number(flags)], Some(File));
            let write = vec![Variable(File), text(limit), number(limit.len() as u64)];
            call(Step::Namespace, object, uapi::__NR_write, write, None);
            call(Step::Namespace, object, uapi::__NR_close, vec![Variable(File)], None);
        }
    }
    calls
}

/// Whether keyctl(2) is available. Where it is refused here, it is refused to the program too.
fn has_keyrings() -> bool {
    const KEYCTL_GET_KEYRING_ID: usize = 0;
    const KEY_SPEC_SESSION_KEYRING: usize = -3_isize as usize;
    // SAFETY: no memory is touched, and no keyring is made.
    let found =
        unsafe { sys::syscall(uapi::__NR_keyctl, [KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0, 0, 0, 0]) };
    !matches!(found, Err(errno::ENOSYS | errno::EPERM))
}

/// Refuses settings that do not work where an init executes the program.
pub(super) fn check_init(command: &Command) -> Result<(), &'static str> {
    if command.program_fd.is_some() {
        return Err("program_fd names no path, which init needs");
    }
    if command.any_by_shell {
        return Err("init runs no file without #! by the shell that may be a binary");
    }
    if command.busy_ms > BUSY_MS {
        return Err("init retries a program that is open for writing for 100 ms at most");
    }
    Ok(())
}

/// A sealed memfd with [`init`], as an ELF file of one segment.
pub(super) fn init_file() -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create("forkless-init", flags | MemfdFlags::EXEC) {
        // Linux before 6.3.
        Err(Errno::INVAL) => memfd_create("forkless-init", flags)?,
        answer => answer?,
    };
    let image = image();
    if rustix::io::write(&file, &image)? < image.len() {
        return Err(Errno::NOSPC);
    }
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

/// The init as an ELF file: `elf(5)`.
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
