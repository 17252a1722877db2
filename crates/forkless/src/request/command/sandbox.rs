//! What the child can see and may do: namespaces, mounts, cgroup, capabilities, filters.
//!
//! Longer than most files, because each method has an example.

use crate::error::Error;
use crate::request::command::Command;
use crate::request::command::capability::CapabilitySet;
use crate::usage::LimitEvents;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// These settings as the user gave them: nothing is looked up or checked yet.
#[derive(Clone, Default)]
pub(crate) struct Isolation {
    pub(crate) unshare: u64,
    pub(crate) uid_maps: Vec<[u32; 3]>,
    pub(crate) gid_maps: Vec<[u32; 3]>,
    pub(crate) joins: Vec<(Namespace, Arc<OwnedFd>)>,
    pub(crate) hostname: Option<OsString>,
    pub(crate) mounts: Vec<MountStep>,
    pub(crate) pivot_root: Option<PathBuf>,
    pub(crate) cgroup: Option<Arc<OwnedFd>>,
    pub(crate) bounding: Option<CapabilitySet>,
    pub(crate) permitted: Option<CapabilitySet>,
    pub(crate) effective: Option<CapabilitySet>,
    pub(crate) inheritable: Option<CapabilitySet>,
    pub(crate) ambient: Option<CapabilitySet>,
    pub(crate) securebits: Option<u32>,
    pub(crate) landlock: Option<Arc<OwnedFd>>,
    pub(crate) seccomp: Option<Vec<BpfInstruction>>,
    /// The IDs are set before the mounts: root's files cannot be made in file systems of a namespace that does not map root.
    pub(crate) ids_first: bool,
    /// Calls in the new root, with all capabilities over the new namespaces.
    pub(crate) calls: Vec<IsolationCall>,
    /// The mounts are those of a sandbox, which makes its own root.
    pub(crate) in_sandbox: bool,
    /// The program that is executed as PID 1, and executes that of the command.
    pub(crate) init: Option<SandboxInit>,
    pub(crate) limits: GroupLimits,
}

/// Limits of a child together with all that it starts: files of a cgroup, and what is written to them.
#[derive(Debug, Clone, Default)]
pub(crate) struct GroupLimits {
    pub(crate) files: BTreeMap<&'static str, String>,
    /// The errors in values, by file.
    pub(crate) bad: BTreeMap<&'static str, String>,
    pub(crate) parent: Option<PathBuf>,
    /// Makes the cgroup of one launch. `None`: there are no limits.
    pub(crate) make: Option<MakeGroup>,
    /// The program runs without limits where the cgroup cannot be made.
    pub(crate) best_effort: bool,
}

impl GroupLimits {
    /// Adds those of a sandbox that are not set.
    pub(crate) fn add(&mut self, others: &Self) {
        self.make = self.make.or(others.make);
        self.parent = self.parent.take().or_else(|| others.parent.clone());
        for (file, value) in &others.files {
            self.files.entry(file).or_insert_with(|| value.clone());
        }
    }
}

type MakeGroup = fn(&GroupLimits) -> io::Result<Box<dyn LaunchGroup>>;

/// The cgroup of one launch. Dropping it kills what is in it, and removes it.
pub(crate) trait LaunchGroup: Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    fn directory(&self) -> BorrowedFd<'_>;
    /// Kills everything in it.
    fn kill(&self);
    /// Kills what is left, waits until it has gone, and removes the cgroup. Returns which limits were reached.
    fn end(self: Box<Self>) -> LimitEvents;
}

/// The init of a sandbox: see [`forkless_core::init`].
#[derive(Clone)]
pub(crate) struct SandboxInit {
    pub(crate) file: Arc<OwnedFd>,
    /// Milliseconds.
    pub(crate) linger: u32,
    /// There is no PID namespace: see [`KILLS_TREE`](forkless_core::init::KILLS_TREE).
    pub(crate) kills_tree: bool,
}

/// A system call of a sandbox.
#[derive(Clone)]
pub(crate) struct IsolationCall {
    /// For errors: the step, and its object.
    pub(crate) step: crate::step::Step,
    pub(crate) object: &'static str,
    /// `None`: the result is the first argument.
    pub(crate) number: Option<u32>,
    pub(crate) args: Vec<IsolationArg>,
    /// The variable that gets the result.
    pub(crate) result: Option<IsolationVariable>,
}

/// An argument of such a call.
#[derive(Clone)]
pub(crate) enum IsolationArg {
    Number(u64),
    /// The address of a copy of these bytes, which are followed by a NUL byte.
    Bytes(Vec<u8>),
    Variable(IsolationVariable),
    /// The address of the variable. Those after it follow in memory.
    Address(IsolationVariable),
}

/// Variables for the results of such calls, with numbers above those that [`Command::call`] accepts.
#[derive(Clone, Copy)]
pub(crate) enum IsolationVariable {
    Kept,
    Word,
    File,
}

/// A prepared sandbox: it makes the command that runs in it.
pub(crate) trait Confinement: Send + Sync + std::panic::RefUnwindSafe {
    /// The command with the settings of the sandbox.
    ///
    /// # Errors
    /// The command has a setting that cannot be combined with it; something has changed since it was prepared.
    fn confine(&self, command: &Command) -> Result<Command, Error>;

    /// Whether each launch makes a cgroup.
    fn has_cgroup(&self) -> bool {
        false
    }
}

/// A change to the child's mounts.
#[derive(Clone)]
pub(crate) enum MountStep {
    /// `mount(2)`.
    Mount(Mount),
    /// `open_tree(2)`, `mount_setattr(2)`, `move_mount(2)`.
    ReadOnlyBind { source: PathBuf, target: PathBuf },
    /// The same with other attributes. No link in the source's path is followed.
    Shown { source: PathBuf, target: PathBuf, set: u64 },
    /// `mount_setattr(2)`, with all that is mounted below.
    Attributes { target: PathBuf, set: u64, clear: u64 },
    /// `fsopen(2)`, `fsconfig(2)`, `fsmount(2)`, `move_mount(2)`.
    FileSystem { kind: String, parameters: Vec<(String, Option<OsString>)>, attributes: u64, target: PathBuf },
    /// `move_mount(2)` of a mount that is attached nowhere.
    Attach { tree: Arc<OwnedFd>, target: PathBuf },
    /// `umount2(2)` with MNT_DETACH.
    Unmount(PathBuf),
    /// `mkdirat(2)`.
    Directory { path: PathBuf, mode: u32 },
    /// `mknodat(2)` of an empty file to mount upon, unless there is one.
    MountPoint(PathBuf),
    /// `symlinkat(2)`.
    Symlink { to: PathBuf, path: PathBuf },
    /// A small `/dev`.
    Devices(PathBuf),
    /// `openat(2)` and `fchmod(2)`.
    Mode { path: PathBuf, mode: u32 },
    /// A file with content.
    NewFile(NewFile),
}

/// A file that is made with the content of another one.
#[derive(Clone)]
pub(crate) struct NewFile {
    pub(crate) data: Arc<OwnedFd>,
    pub(crate) length: usize,
    pub(crate) path: PathBuf,
    pub(crate) mode: u32,
    pub(crate) place: FilePlace,
}

/// The location of such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePlace {
    /// At the path itself.
    Path,
    /// On a new tmpfs, and mounted on the path, with these attributes.
    Mounted(u64),
}

impl MountStep {
    /// Every string in it, to be searched for NUL bytes.
    pub(crate) fn texts(&self) -> Vec<&OsStr> {
        match self {
            Self::Mount(one) => {
                let more = [one.source.as_deref(), one.kind.as_deref(), one.data.as_deref()];
                more.into_iter().flatten().chain([one.target.as_os_str()]).collect()
            }
            Self::FileSystem { kind, parameters, target, .. } => {
                let given = parameters.iter().flat_map(|(key, value)| [Some(OsStr::new(key)), value.as_deref()]);
                given.flatten().chain([OsStr::new(kind), target.as_os_str()]).collect()
            }
            Self::Symlink { to: other, .. }
            | Self::ReadOnlyBind { source: other, .. }
            | Self::Shown { source: other, .. } => {
                vec![other.as_os_str(), self.target().as_os_str()]
            }
            Self::Attributes { .. }
            | Self::Attach { .. }
            | Self::Unmount(_)
            | Self::Directory { .. }
            | Self::MountPoint(_)
            | Self::Mode { .. }
            | Self::NewFile(_)
            | Self::Devices(_) => vec![self.target().as_os_str()],
        }
    }

    /// The path that is mounted upon, changed or made.
    pub(crate) fn target(&self) -> &Path {
        match self {
            Self::Mount(one) => &one.target,
            Self::ReadOnlyBind { target: path, .. }
            | Self::Shown { target: path, .. }
            | Self::Attributes { target: path, .. }
            | Self::FileSystem { target: path, .. }
            | Self::Attach { target: path, .. }
            | Self::Unmount(path)
            | Self::MountPoint(path)
            | Self::Directory { path, .. }
            | Self::Symlink { path, .. }
            | Self::Mode { path, .. }
            | Self::NewFile(NewFile { path, .. })
            | Self::Devices(path) => path,
        }
    }

    /// Does the step add a mount at the target?
    pub(crate) fn has_mount(&self) -> bool {
        match self {
            Self::Mount(one) => {
                one.flags & MS_REMOUNT == 0 && (one.kind.is_some() || one.flags & (MS_BIND | MS_MOVE) != 0)
            }
            Self::ReadOnlyBind { .. }
            | Self::Shown { .. }
            | Self::FileSystem { .. }
            | Self::Attach { .. }
            | Self::Devices(_) => true,
            Self::NewFile(content) => content.place != FilePlace::Path,
            Self::Attributes { .. }
            | Self::Unmount(_)
            | Self::Directory { .. }
            | Self::MountPoint(_)
            | Self::Mode { .. }
            | Self::Symlink { .. } => false,
        }
    }

    /// Does the step change or remove a mount at the target?
    pub(crate) fn has_restriction(&self) -> bool {
        match self {
            Self::Mount(one) => one.flags & MS_REMOUNT != 0,
            _ => matches!(self, Self::Attributes { .. } | Self::Unmount(_)),
        }
    }

    /// The paths that the step may copy mounts from, also those in options such as `lowerdir=/a:/b`.
    pub(crate) fn sources(&self) -> Vec<&Path> {
        let target = self.target().as_os_str();
        let texts = self.texts().into_iter().filter(|text| *text != target);
        let parts = texts.flat_map(|text| text.as_bytes().split(|byte| b"=:,".contains(byte)).chain([text.as_bytes()]));
        parts.filter(|part| !part.is_empty()).map(|part| Path::new(OsStr::from_bytes(part))).collect()
    }
}

/// Attributes of a mount, for [`Command::mount_attributes`] and [`Command::file_system`]: `mount_setattr(2)`.
pub mod mount_attribute {
    /// MOUNT_ATTR_RDONLY: nothing can be written to.
    pub const READ_ONLY: u64 = 1;
    /// MOUNT_ATTR_NOSUID: setuid bits and file capabilities have no effect.
    pub const NO_SUID: u64 = 2;
    /// MOUNT_ATTR_NODEV: devices cannot be opened.
    pub const NO_DEV: u64 = 4;
    /// MOUNT_ATTR_NOEXEC: programs cannot be executed.
    pub const NO_EXEC: u64 = 8;
    /// MOUNT_ATTR_NOATIME: times of access are not kept.
    pub const NO_ATIME: u64 = 0x10;
    /// MOUNT_ATTR_NOSYMFOLLOW: symbolic links are not followed (Linux 5.14).
    pub const NO_SYMLINKS: u64 = 0x20_0000;
}

/// A `mount(2)` call.
#[derive(Clone)]
pub(crate) struct Mount {
    pub(crate) source: Option<OsString>,
    pub(crate) target: PathBuf,
    pub(crate) kind: Option<OsString>,
    pub(crate) flags: u64,
    pub(crate) data: Option<OsString>,
}

/// A kind of namespace: `namespaces(7)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Namespace {
    /// Boot and monotonic clocks. From Linux 6.3 on the program is in it; before, only its children are.
    Time = 0x80,
    /// Mounts. Every mount in a new one is made private first.
    Mount = 0x2_0000,
    /// Root of the cgroup hierarchy.
    Cgroup = 0x200_0000,
    /// Host name and NIS domain name.
    Uts = 0x400_0000,
    /// System V IPC and POSIX message queues.
    Ipc = 0x800_0000,
    /// User and group ids, and capabilities. An ordinary user may make one, and with it one of each other kind.
    User = 0x1000_0000,
    /// Process ids. The program is process 1 in it.
    Pid = 0x2000_0000,
    /// Network devices, addresses, ports. A new one has only a loopback device, which is down.
    Network = 0x4000_0000,
}

/// An instruction of a seccomp filter: `struct sock_filter`. Filters come from a compiler, such as the crates seccompiler
/// and libseccomp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct BpfInstruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip if true.
    pub jt: u8,
    /// Instructions to skip if false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

const MS_NOSUID: u64 = 2;
const MS_NODEV: u64 = 4;
const MS_NOEXEC: u64 = 8;
pub(crate) const MS_REMOUNT: u64 = 32;
pub(crate) const MS_BIND: u64 = 4096;
pub(crate) const MS_MOVE: u64 = 8192;
pub(crate) const MS_REC: u64 = 16384;
pub(crate) const MS_PRIVATE: u64 = 1 << 18;

/// Namespaces, mounts, cgroup, capabilities and filters of the child.
///
/// None of these settings makes the launch fork. The child applies them in a fixed order, whatever the order of the calls:
/// see `docs/design/order.md`. Mounts among themselves, and joins among themselves, are in the order of the calls.
///
/// # Paths of mounts
/// A mounted directory may belong to a user who is not trusted. So the path of a mount point, or of a file to make, is looked
/// up by `openat2(2)` (Linux 5.6; without it the step fails) where it is
/// - below the directory of [`pivot_root`](Self::pivot_root) or [`chroot`](Self::chroot): inside it, as the program will look
///   it up. No symbolic link leads outside.
/// - else below a mount made before: inside the innermost one. A symbolic link that leads out of it is an error.
///
/// Paths are compared as they are written. Relative ones start from the caller's working directory, or from that of
/// [`current_dir_fd`](Self::current_dir_fd). Sources, such as that of [`bind`](Self::bind), are looked up in the caller's root,
/// and links in them are followed.
impl Command {
    /// Puts the child into a new namespace of this kind: `clone3(2)`. Needs CAP_SYS_ADMIN, except for a user namespace
    /// and those made together with one.
    ///
    /// In a new user or PID namespace the child may not fetch descriptors from the caller one by one. The kernel then
    /// copies all descriptors up to the highest one that is passed; the cost does not grow with the caller's table as
    /// long as those numbers are low.
    ///
    /// # Errors
    /// The launch fails at [`Step::Clone`](crate::Step::Clone): EPERM without the privilege, ENOSPC if the limit in
    /// `/proc/sys/user` is reached. A time namespace is made in the child, at
    /// [`Step::Namespace`](crate::Step::Namespace).
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// // Without a network; the user namespace lets an ordinary user do it.
    /// let status = Command::new("make")
    ///     .arg("test")
    ///     .unshare(Namespace::User)
    ///     .unshare(Namespace::Network)
    ///     .status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn unshare(&mut self, namespace: Namespace) -> &mut Self {
        self.sandbox.unshare |= namespace as u64;
        self
    }

    /// Maps `count` user ids of the child's new user namespace, from `inside` on, to the caller's from `outside` on:
    /// `user_namespaces(7)`. The caller writes the map while the child waits. An ordinary user may map one id, its own.
    ///
    /// # Errors
    /// The launch fails at [`Step::IdMaps`](crate::Step::IdMaps): EPERM for ids that the caller may not map, EINVAL for
    /// ranges that are empty or overlap. [`Step::Check`](crate::Step::Check): without `unshare(Namespace::User)`.
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// let me = rustix::process::getuid().as_raw();
    /// let output = Command::new("id").arg("-u").unshare(Namespace::User).map_uid(0, me, 1).output()?;
    /// assert_eq!(output.stdout, b"0\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn map_uid(&mut self, inside: u32, outside: u32, count: u32) -> &mut Self {
        self.sandbox.uid_maps.push([inside, outside, count]);
        self
    }

    /// Maps group ids, as [`map_uid`](Self::map_uid) maps user ids. If the caller is an ordinary user, `setgroups(2)`
    /// is first denied in the namespace, as the kernel demands.
    ///
    /// # Errors
    /// As for [`map_uid`](Self::map_uid).
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    /// let output = Command::new("id")
    ///     .unshare(Namespace::User).map_uid(0, user, 1).map_gid(0, group, 1)
    ///     .output()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn map_gid(&mut self, inside: u32, outside: u32, count: u32) -> &mut Self {
        self.sandbox.gid_maps.push([inside, outside, count]);
        self
    }

    /// Puts the child into the existing namespace that `fd` refers to: `setns(2)`.
    ///
    /// A time namespace cannot be joined by a process that shares memory, as the child does. A PID namespace can be
    /// joined for children only: a thread made for that one launch joins it and clones the child, so the caller stays
    /// where it is.
    ///
    /// After joining a mount namespace, the child looks up all paths there: the program, directories, files, and
    /// `/proc`, where [`oom_score_adj`](Self::oom_score_adj) is written. Its owner decides what they lead to. So a
    /// privileged caller should not join that of a user whom it does not trust.
    ///
    /// # Errors
    /// The launch fails at [`Step::JoinNamespace`](crate::Step::JoinNamespace): EPERM without CAP_SYS_ADMIN over the
    /// namespace, EINVAL if `fd` is no namespace of this kind. [`Step::Check`](crate::Step::Check): a time namespace, a
    /// namespace of a kind that is also made by [`unshare`](Self::unshare), a PID namespace together with
    /// [`parent_death_signal`](Self::parent_death_signal).
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// let network = std::fs::File::open("/run/netns/blue")?;
    /// let status = Command::new("ip").arg("address").join(Namespace::Network, network).status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join<F: Into<OwnedFd>>(&mut self, namespace: Namespace, fd: F) -> &mut Self {
        self.sandbox.joins.push((namespace, Arc::new(fd.into())));
        self
    }

    /// Sets the host name in the child's UTS namespace, a new or a joined one: `sethostname(2)`.
    ///
    /// # Errors
    /// The launch fails at [`Step::Hostname`](crate::Step::Hostname), with EINVAL for a name longer than 64 bytes.
    /// [`Step::Check`](crate::Step::Check): without a UTS namespace.
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// let output = Command::new("uname").arg("-n")
    ///     .unshare(Namespace::User).unshare(Namespace::Uts).hostname("build")
    ///     .output()?;
    /// assert_eq!(output.stdout, b"build\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn hostname<S: AsRef<OsStr>>(&mut self, name: S) -> &mut Self {
        self.sandbox.hostname = Some(name.as_ref().to_owned());
        self
    }

    /// Makes a mount in the child's new mount namespace: `mount(2)`, with its `flags` (MS_…) and `data` as they are.
    /// Mounts are made in the order of the calls, before the root and the ids are changed.
    ///
    /// # Errors
    /// The launch fails at [`Step::Mount`](crate::Step::Mount) with the errno of the call that failed.
    /// [`Step::Check`](crate::Step::Check): without `unshare(Namespace::Mount)`.
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// const MS_NODEV: u64 = 4;
    /// let mut command = Command::new("ls");
    /// command.arg("/mnt").unshare(Namespace::Mount);
    /// command.mount(Some("/dev/sdb1".as_ref()), "/mnt", Some("ext4"), MS_NODEV, Some("noload".as_ref()));
    /// command.status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn mount<P: AsRef<Path>>(
        &mut self,
        source: Option<&OsStr>,
        target: P,
        kind: Option<&str>,
        flags: u64,
        data: Option<&OsStr>,
    ) -> &mut Self {
        self.sandbox.mounts.push(MountStep::Mount(Mount {
            source: source.map(OsStr::to_owned),
            target: target.as_ref().to_owned(),
            kind: kind.map(OsString::from),
            flags,
            data: data.map(OsStr::to_owned),
        }));
        self
    }

    /// Makes `source`, with everything mounted below it, visible at `target` too: `mount(2)` MS_BIND, MS_REC.
    ///
    /// # Errors
    /// As for [`mount`](Self::mount).
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// let status = Command::new("ls")
    ///     .arg("/mnt")
    ///     .unshare(Namespace::User).unshare(Namespace::Mount)
    ///     .bind("/usr/share", "/mnt")
    ///     .status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind<P: AsRef<Path>, Q: AsRef<Path>>(&mut self, source: P, target: Q) -> &mut Self {
        self.mount(Some(source.as_ref().as_os_str()), target, None, MS_BIND | MS_REC, None)
    }

    /// Makes `source` visible at `target` too, as [`bind`](Self::bind) does, but read-only: `open_tree(2)`,
    /// `mount_setattr(2)`, `move_mount(2)`, Linux 5.12.
    ///
    /// The mount is made read-only before it is attached, so it is never writable. Each path is looked up once.
    ///
    /// `bind_read_only("/", "/")` makes the root read-only, with all mounts below it. What is bound after that is as before.
    ///
    /// # Errors
    /// As for [`mount`](Self::mount).
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// let status = Command::new("sh")
    ///     .args(["-c", "! touch /mnt/file"])
    ///     .unshare(Namespace::Mount)
    ///     .bind_read_only("/tmp", "/mnt")
    ///     .status()?;
    /// assert!(status.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind_read_only<P: AsRef<Path>, Q: AsRef<Path>>(&mut self, source: P, target: Q) -> &mut Self {
        let (source, target) = (source.as_ref().to_owned(), target.as_ref().to_owned());
        self.sandbox.mounts.push(MountStep::ReadOnlyBind { source, target });
        self
    }

    /// Makes the mount at `target`, and all mounts below it, read-only: `mount_setattr(2)`, Linux 5.12.
    ///
    /// # Errors
    /// As for [`mount`](Self::mount); EINVAL if `target` is no mount point.
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// // The program can write to /tmp alone.
    /// let status = Command::new("make")
    ///     .unshare(Namespace::Mount)
    ///     .read_only("/").tmpfs("/tmp", "size=100m")
    ///     .status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_only<P: AsRef<Path>>(&mut self, target: P) -> &mut Self {
        self.mount_attributes(target, mount_attribute::READ_ONLY, 0)
    }

    /// Changes the [attributes](mount_attribute) of the mount at `target` and of all mounts below it: sets those in
    /// `set`, clears those in `clear`. `mount_setattr(2)` AT_RECURSIVE, Linux 5.12.
    ///
    /// # Errors
    /// As for [`mount`](Self::mount); EPERM in a user namespace for an attribute to be cleared that is locked by the
    /// caller's namespace.
    ///
    /// ```no_run
    /// use forkless::mount_attribute::{NO_DEV, NO_SUID};
    /// use forkless::{Command, Namespace};
    /// let status = Command::new("make")
    ///     .unshare(Namespace::User).unshare(Namespace::Mount)
    ///     .mount_attributes("/", NO_SUID | NO_DEV, 0)
    ///     .status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn mount_attributes<P: AsRef<Path>>(&mut self, target: P, set: u64, clear: u64) -> &mut Self {
        let target = target.as_ref().to_owned();
        self.sandbox.mounts.push(MountStep::Attributes { target, set, clear });
        self
    }

    /// Mounts a new file system of this kind at `target`, by the calls that take one parameter at a time: `fsopen(2)`,
    /// `fsconfig(2)`, `fsmount(2)`, `move_mount(2)`, Linux 5.2.
    ///
    /// `parameters`: names with their values; none for a flag. `attributes`: see [`mount_attribute`].
    ///
    /// # Errors
    /// As for [`mount`](Self::mount). The error names the parameter that was refused.
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace, mount_attribute};
    /// let mut command = Command::new("ls");
    /// command.arg("/tmp").unshare(Namespace::User).unshare(Namespace::Mount);
    /// command.file_system("tmpfs", [("size", Some("1m")), ("mode", Some("700"))], mount_attribute::NO_EXEC, "/tmp");
    /// let status = command.status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn file_system<'a, I, V, P>(&mut self, kind: &str, parameters: I, attributes: u64, target: P) -> &mut Self
    where
        I: IntoIterator<Item = (&'a str, Option<V>)>,
        V: AsRef<OsStr>,
        P: AsRef<Path>,
    {
        let own = |(key, value): (&str, Option<V>)| (key.to_owned(), value.map(|value| value.as_ref().to_owned()));
        let parameters = parameters.into_iter().map(own).collect();
        let target = target.as_ref().to_owned();
        self.sandbox.mounts.push(MountStep::FileSystem { kind: kind.to_owned(), parameters, attributes, target });
        self
    }

    /// Attaches `tree`, a detached mount, at `target`: `move_mount(2)`, Linux 5.2. Such a mount comes from
    /// `fsmount(2)`, or from `open_tree(2)` with OPEN_TREE_CLONE. The caller makes it, with the attributes and id maps
    /// that it likes. It becomes private: a later mount below it does not appear below the mount that it is a copy of, nor
    /// the other way round. So do all other mounts of the namespace: make one shared after this step, not before it.
    ///
    /// It can be attached once, so a [`Prepared`](crate::Prepared) with it can be run once.
    ///
    /// # Errors
    /// As for [`mount`](Self::mount).
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// # fn open_tree(_: &str) -> std::io::Result<std::os::fd::OwnedFd> { unimplemented!() }
    /// let tree = open_tree("/srv/data")?; // open_tree(2) with OPEN_TREE_CLONE
    /// let status = Command::new("ls").arg("/mnt").unshare(Namespace::Mount).attach_mount(tree, "/mnt").status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn attach_mount<F: Into<OwnedFd>, P: AsRef<Path>>(&mut self, tree: F, target: P) -> &mut Self {
        let target = target.as_ref().to_owned();
        self.sandbox.mounts.push(MountStep::Attach { tree: Arc::new(tree.into()), target });
        self
    }

    /// Mounts an overlay at `target`: the directories `lower`, topmost first, and above them a writable layer.
    ///
    /// `upper`: the directory that receives the changes, and an empty work directory on the same file system. Without
    /// it the overlay is read-only. In a new user namespace the overlay has the option `userxattr`, which Linux has from
    /// 5.11 on.
    ///
    /// # Errors
    /// As for [`mount`](Self::mount).
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// use std::path::Path;
    /// // What make writes to /usr is in /tmp/changes afterwards.
    /// let layer = (Path::new("/tmp/changes"), Path::new("/tmp/work"));
    /// let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    /// let status = Command::new("make").arg("install")
    ///     .unshare(Namespace::User).unshare(Namespace::Mount).map_uid(0, user, 1).map_gid(0, group, 1)
    ///     .overlay(&["/usr"], Some(layer), "/usr")
    ///     .status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn overlay<P, Q>(&mut self, lower: &[P], upper: Option<(&Path, &Path)>, target: Q) -> &mut Self
    where
        P: AsRef<Path>,
        Q: AsRef<Path>,
    {
        let lower: Vec<_> = lower.iter().map(|directory| overlay_escaped(directory.as_ref(), true)).collect();
        let mut data = b"lowerdir=".to_vec();
        data.extend(lower.join(&b':'));
        if let Some((upper, work)) = upper {
            data.extend([b",upperdir=", &*overlay_escaped(upper, false)].concat());
            data.extend([b",workdir=", &*overlay_escaped(work, false)].concat());
        }
        let data = OsString::from_vec(data);
        self.mount(Some(OsStr::new(OVERLAY)), target, Some(OVERLAY), 0, Some(&data))
    }

    /// Unmounts what is mounted at `target`: `umount2(2)` MNT_DETACH.
    ///
    /// # Errors
    /// As for [`mount`](Self::mount); EINVAL if `target` is no mount point, or a mount that a user namespace may not
    /// reveal.
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// let status = Command::new("ls").arg("/boot").unshare(Namespace::Mount).unmount("/boot").status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn unmount<P: AsRef<Path>>(&mut self, target: P) -> &mut Self {
        self.sandbox.mounts.push(MountStep::Unmount(target.as_ref().to_owned()));
        self
    }

    /// Makes a directory, in its turn among the mounts, as a place for one: `mkdirat(2)`. The caller's umask applies to
    /// `mode`. It is no error if the directory exists.
    ///
    /// # Errors
    /// The launch fails at [`Step::MakeDir`](crate::Step::MakeDir): EOVERFLOW on a tmpfs in a user namespace that the
    /// user's ids are not mapped into ([`map_uid`](Self::map_uid), [`map_gid`](Self::map_gid)).
    /// [`Step::Check`](crate::Step::Check): without `unshare(Namespace::Mount)`.
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    /// let status = Command::new("ls").arg("/tmp/sources")
    ///     .unshare(Namespace::User).unshare(Namespace::Mount).map_uid(0, user, 1).map_gid(0, group, 1)
    ///     .tmpfs("/tmp", "size=1m").make_dir("/tmp/sources", 0o755).bind("/usr/src", "/tmp/sources")
    ///     .status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn make_dir<P: AsRef<Path>>(&mut self, path: P, mode: u32) -> &mut Self {
        self.sandbox.mounts.push(MountStep::Directory { path: path.as_ref().to_owned(), mode });
        self
    }

    /// Makes a symbolic link at `path` that leads to `to`, in its turn among the mounts: `symlinkat(2)`.
    ///
    /// # Errors
    /// The launch fails at [`Step::Symlink`](crate::Step::Symlink): EOVERFLOW and [`Step::Check`](crate::Step::Check)
    /// as for [`make_dir`](Self::make_dir).
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    /// let status = Command::new("ls").arg("/tmp/sources/")
    ///     .unshare(Namespace::User).unshare(Namespace::Mount).map_uid(0, user, 1).map_gid(0, group, 1)
    ///     .tmpfs("/tmp", "size=1m").make_symlink("/usr/src", "/tmp/sources")
    ///     .status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn make_symlink<P: AsRef<Path>, Q: AsRef<Path>>(&mut self, to: P, path: Q) -> &mut Self {
        self.sandbox.mounts.push(MountStep::Symlink { to: to.as_ref().to_owned(), path: path.as_ref().to_owned() });
        self
    }

    /// Mounts a small `/dev` at `target`: a tmpfs with `null`, `zero`, `full`, `random`, `urandom` and `tty` of the
    /// caller's `/dev`, a new devpts with `ptmx`, the directory `shm`, and links to the standard streams. Some 50
    /// system calls.
    ///
    /// # Errors
    /// As for [`mount`](Self::mount), [`make_dir`](Self::make_dir) and [`make_symlink`](Self::make_symlink).
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    /// let status = Command::new("ls").args(["-l", "/dev"])
    ///     .unshare(Namespace::User).unshare(Namespace::Mount).map_uid(0, user, 1).map_gid(0, group, 1)
    ///     .devices("/dev")
    ///     .status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn devices<P: AsRef<Path>>(&mut self, target: P) -> &mut Self {
        self.sandbox.mounts.push(MountStep::Devices(target.as_ref().to_owned()));
        self
    }

    /// Mounts an empty tmpfs at `target`; `options` as in `tmpfs(5)`, such as `size=10m,mode=700`.
    ///
    /// # Errors
    /// As for [`mount`](Self::mount).
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// let output = Command::new("ls").arg("/tmp")
    ///     .unshare(Namespace::User).unshare(Namespace::Mount)
    ///     .tmpfs("/tmp", "size=10m")
    ///     .output()?;
    /// assert_eq!(output.stdout, b"");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn tmpfs<P: AsRef<Path>>(&mut self, target: P, options: &str) -> &mut Self {
        self.mount(Some(OsStr::new("tmpfs")), target, Some("tmpfs"), 0, Some(OsStr::new(options)))
    }

    /// Mounts a procfs with the processes of the child's PID namespace at `target`, usually `/proc`: `proc(5)`.
    /// Devices, setuid bits and programs in it have no effect (nodev, nosuid, noexec).
    ///
    /// An ordinary user's child needs a new PID namespace for it, and the caller a `/proc` of which other mounts hide
    /// nothing: `mount_namespaces(7)`.
    ///
    /// # Errors
    /// As for [`mount`](Self::mount), with EPERM if these conditions are not met.
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// let output = Command::new("sh").args(["-c", "echo /proc/[0-9]*"])
    ///     .unshare(Namespace::User).unshare(Namespace::Pid).unshare(Namespace::Mount)
    ///     .proc("/proc")
    ///     .output()?;
    /// assert_eq!(output.stdout, b"/proc/1\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn proc<P: AsRef<Path>>(&mut self, target: P) -> &mut Self {
        self.mount(Some(OsStr::new("proc")), target, Some("proc"), MS_NOSUID | MS_NODEV | MS_NOEXEC, None)
    }

    /// Makes `new_root` the root of the child's mount namespace and detaches the old root: `pivot_root(2)`,
    /// `umount2(2)`; five system calls. `new_root` must be a mount point.
    ///
    /// The new root becomes the working directory, unless [`current_dir`](Self::current_dir) names another one, which
    /// is looked up inside. So is the program.
    ///
    /// # Errors
    /// The launch fails at [`Step::PivotRoot`](crate::Step::PivotRoot), with EINVAL if `new_root` is no mount point.
    /// [`Step::Check`](crate::Step::Check): without `unshare(Namespace::Mount)`, together with
    /// [`chroot`](Self::chroot), or after a mount outside of `new_root` that no later mount copies from there.
    ///
    /// ```no_run
    /// use forkless::{Command, Namespace};
    /// let status = Command::new("/bin/sh")
    ///     .unshare(Namespace::User).unshare(Namespace::Mount)
    ///     .bind("/srv/debian", "/srv/debian") // makes it a mount point
    ///     .pivot_root("/srv/debian")
    ///     .status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pivot_root<P: AsRef<Path>>(&mut self, new_root: P) -> &mut Self {
        self.sandbox.pivot_root = Some(new_root.as_ref().to_owned());
        self
    }

    /// Starts the child in the cgroup (version 2) whose directory this is: `clone3(2)` CLONE_INTO_CGROUP, Linux 5.7.
    /// The caller must be allowed to write to its `cgroup.procs`. [`Cgroup`](crate::Cgroup) makes new ones, with
    /// limits.
    ///
    /// The child is started with `CLONE_VFORK`. Otherwise the cgroup's OOM killer would count the caller's memory as
    /// the child's and kill the caller. So the launch returns no sooner than the exec. If a signal stops the child
    /// before the exec, the launch waits until the child is continued. In a cgroup with `memory.oom.group` the caller
    /// is killed nevertheless if memory runs out before the exec.
    ///
    /// # Errors
    /// The launch fails at [`Step::Clone`](crate::Step::Clone): EACCES if the caller may not write to `cgroup.procs`,
    /// EBADF if the descriptor is no cgroup, ENOSYS if `clone3(2)` is missing or refused.
    ///
    /// ```no_run
    /// use forkless::Command;
    /// let jobs = std::fs::File::open("/sys/fs/cgroup/jobs")?;
    /// let mut child = Command::new("make").cgroup(jobs).spawn()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn cgroup<F: Into<OwnedFd>>(&mut self, directory: F) -> &mut Self {
        self.sandbox.cgroup = Some(Arc::new(directory.into()));
        self
    }

    /// Sets the capabilities that the program and its children can ever get: all others are dropped from the bounding
    /// set, one system call each. Needs CAP_SETPCAP.
    ///
    /// Inheritable capabilities of the caller that are not in the set are dropped from the inheritable set too, unless
    /// [`inheritable`](Self::inheritable) sets that: the bounding set does not limit them.
    ///
    /// # Errors
    /// The launch fails at [`Step::Capabilities`](crate::Step::Capabilities), with EPERM without CAP_SETPCAP.
    ///
    /// ```no_run
    /// use forkless::{CapabilitySet, Command};
    /// // Root by its user id, and without any of its privileges.
    /// let status = Command::new("make").bounding_set(CapabilitySet::EMPTY).status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bounding_set(&mut self, set: CapabilitySet) -> &mut Self {
        self.sandbox.bounding = Some(set);
        self
    }

    /// Sets the permitted capabilities that the child has just before exec: `capset(2)`.
    ///
    /// Exec computes the program's own sets by the rules of `capabilities(7)`: a program of root's gets everything in
    /// its bounding set again. Use [`bounding_set`](Self::bounding_set) against that, or
    /// [`securebits`](Self::securebits).
    ///
    /// # Errors
    /// The launch fails at [`Step::Capabilities`](crate::Step::Capabilities), with EPERM for capabilities that the
    /// caller does not have.
    ///
    /// ```no_run
    /// use forkless::{CapabilitySet, Command};
    /// const SECBIT_NOROOT: u32 = 1;
    /// let status = Command::new("make")
    ///     .permitted(CapabilitySet::EMPTY)
    ///     .securebits(SECBIT_NOROOT)
    ///     .status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn permitted(&mut self, set: CapabilitySet) -> &mut Self {
        self.sandbox.permitted = Some(set);
        self
    }

    /// Sets the effective capabilities that the child has just before exec: `capset(2)`. Those that are not
    /// [permitted](Self::permitted) are left out.
    ///
    /// They count for the steps that follow, such as [`seccomp`](Self::seccomp). Exec computes the program's own
    /// (`capabilities(7)`).
    ///
    /// # Errors
    /// As for [`permitted`](Self::permitted).
    ///
    /// ```no_run
    /// use forkless::{Capability, CapabilitySet, Command};
    /// let bind = CapabilitySet::from_iter([Capability::NetBindService]);
    /// let status = Command::new("server").permitted(bind).effective(bind).status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn effective(&mut self, set: CapabilitySet) -> &mut Self {
        self.sandbox.effective = Some(set);
        self
    }

    /// Sets the inheritable capabilities, which a program gets whose file has them as inheritable too: `capset(2)`,
    /// `capabilities(7)`.
    ///
    /// # Errors
    /// As for [`permitted`](Self::permitted).
    ///
    /// ```no_run
    /// use forkless::{CapabilitySet, Command};
    /// let status = Command::new("make").inheritable(CapabilitySet::EMPTY).status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn inheritable(&mut self, set: CapabilitySet) -> &mut Self {
        self.sandbox.inheritable = Some(set);
        self
    }

    /// Sets the ambient capabilities: those that a program without file capabilities keeps over exec although its user
    /// is not root. They become permitted, effective and inheritable too, and survive a change of user.
    ///
    /// # Errors
    /// As for [`permitted`](Self::permitted).
    ///
    /// ```no_run
    /// use forkless::{Capability, CapabilitySet, Command};
    /// // An ordinary user's server that may use port 80.
    /// let bind = CapabilitySet::from_iter([Capability::NetBindService]);
    /// let mut server = Command::new("server").user("www-data").ambient(bind).spawn()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn ambient(&mut self, set: CapabilitySet) -> &mut Self {
        self.sandbox.ambient = Some(set);
        self
    }

    /// Sets the securebits (SECBIT_…), which say how ids and capabilities depend on each other: `capabilities(7)`,
    /// `prctl(2)` PR_SET_SECUREBITS. Needs CAP_SETPCAP.
    ///
    /// # Errors
    /// The launch fails at [`Step::Securebits`](crate::Step::Securebits), with EPERM without CAP_SETPCAP, or for a bit
    /// that is locked.
    ///
    /// ```no_run
    /// use forkless::Command;
    /// const SECBIT_NOROOT: u32 = 1;
    /// const SECBIT_NOROOT_LOCKED: u32 = 2;
    /// // User id 0 gives the program no capabilities.
    /// let status = Command::new("make").securebits(SECBIT_NOROOT | SECBIT_NOROOT_LOCKED).status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn securebits(&mut self, bits: u32) -> &mut Self {
        self.sandbox.securebits = Some(bits);
        self
    }

    /// Restricts the child by a Landlock ruleset, which the caller has made: `landlock_restrict_self(2)`. Needs
    /// [`no_new_privs`](Self::no_new_privs) or CAP_SYS_ADMIN.
    ///
    /// The ruleset must allow the program to be executed. This library cannot see what it restricts. The crate
    /// landlock, which makes rulesets, silently leaves out rights that the kernel does not know, unless its
    /// `CompatLevel::HardRequirement` is set.
    ///
    /// # Errors
    /// The launch fails at [`Step::Landlock`](crate::Step::Landlock), with EPERM without the privilege.
    ///
    /// ```no_run
    /// use forkless::Command;
    /// # fn ruleset() -> std::io::Result<std::os::fd::OwnedFd> { unimplemented!() }
    /// let ruleset = ruleset()?; // landlock_create_ruleset(2), or the crate landlock
    /// let status = Command::new("make").no_new_privs(true).landlock(ruleset).status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn landlock<F: Into<OwnedFd>>(&mut self, ruleset: F) -> &mut Self {
        self.sandbox.landlock = Some(Arc::new(ruleset.into()));
        self
    }

    /// Sets a seccomp filter, as the last thing before exec: `seccomp(2)` SECCOMP_SET_MODE_FILTER. Needs
    /// [`no_new_privs`](Self::no_new_privs) or CAP_SYS_ADMIN.
    ///
    /// It must allow `execve`, and should allow `exit_group`, by which a child ends whose exec fails.
    ///
    /// On x86-64 a filter that refuses what it lists, and allows the rest, must refuse every number from 0x4000_0000 on
    /// too: where the kernel has the x32 ABI, those are the same calls by other numbers. Not every compiler of filters
    /// adds that.
    ///
    /// # Errors
    /// The launch fails at [`Step::Seccomp`](crate::Step::Seccomp): EACCES without the privilege, EINVAL for a filter
    /// that the kernel does not take. [`Step::Check`](crate::Step::Check): a filter without instructions, or with more
    /// than 4,096.
    ///
    /// ```
    /// use forkless::{BpfInstruction, Command};
    /// // One instruction that allows every call. A real filter comes from a compiler such as the crate seccompiler.
    /// let allow = BpfInstruction { code: 0x06, jt: 0, jf: 0, k: 0x7fff_0000 };
    /// let status = Command::new("true").no_new_privs(true).seccomp([allow]).status()?;
    /// assert!(status.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn seccomp(&mut self, filter: impl IntoIterator<Item = BpfInstruction>) -> &mut Self {
        self.sandbox.seccomp = Some(filter.into_iter().collect());
        self
    }
}

/// The kind of file system that gets another option in a user namespace.
pub(crate) const OVERLAY: &str = "overlay";

/// Escapes a path for overlayfs: commas separate options, and colons the lower directories.
fn overlay_escaped(path: &Path, is_listed: bool) -> Vec<u8> {
    let mut text = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        if byte == b'\\' || byte == b',' || (is_listed && byte == b':') {
            text.push(b'\\');
        }
        text.push(byte);
    }
    text
}

impl Isolation {
    pub(crate) fn has_new(&self, namespace: Namespace) -> bool {
        self.unshare & namespace as u64 != 0
    }

    pub(crate) fn has_joined(&self, namespace: Namespace) -> bool {
        self.joins.iter().any(|(joined, _)| *joined == namespace)
    }
}
