//! What the child can see and may do: namespaces, mounts, control group, capabilities, filters.

use crate::command::Command;
use crate::command::capability::CapabilitySet;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Settings of the child's surroundings, as they were asked for.
#[derive(Default)]
pub(crate) struct Sandbox {
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
}

/// A change to the child's mounts.
pub(crate) enum MountStep {
    /// `mount(2)`.
    Mount(Mount),
    /// `open_tree(2)`, `mount_setattr(2)`, `move_mount(2)`.
    ReadOnlyBind { source: PathBuf, target: PathBuf },
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
    /// `symlinkat(2)`.
    Symlink { to: PathBuf, path: PathBuf },
    /// A small `/dev`.
    Devices(PathBuf),
}

impl MountStep {
    /// Every text in it.
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
            Self::Symlink { to: other, .. } | Self::ReadOnlyBind { source: other, .. } => {
                vec![other.as_os_str(), self.target().as_os_str()]
            }
            Self::Attributes { .. }
            | Self::Attach { .. }
            | Self::Unmount(_)
            | Self::Directory { .. }
            | Self::Devices(_) => vec![self.target().as_os_str()],
        }
    }

    /// What is mounted upon, changed or made.
    pub(crate) fn target(&self) -> &Path {
        match self {
            Self::Mount(one) => &one.target,
            Self::ReadOnlyBind { target: path, .. }
            | Self::Attributes { target: path, .. }
            | Self::FileSystem { target: path, .. }
            | Self::Attach { target: path, .. }
            | Self::Unmount(path)
            | Self::Directory { path, .. }
            | Self::Symlink { path, .. }
            | Self::Devices(path) => path,
        }
    }

    /// Is something mounted at the target afterwards that was not before?
    pub(crate) fn attaches(&self) -> bool {
        match self {
            Self::Mount(one) => {
                one.flags & MS_REMOUNT == 0 && (one.kind.is_some() || one.flags & (MS_BIND | MS_MOVE) != 0)
            }
            Self::ReadOnlyBind { .. } | Self::FileSystem { .. } | Self::Attach { .. } | Self::Devices(_) => true,
            Self::Attributes { .. } | Self::Unmount(_) | Self::Directory { .. } | Self::Symlink { .. } => false,
        }
    }
}

/// Attributes of a mount, for [`Command::mount_attributes`] and [`Command::file_system`]: `mount_setattr(2)`.
pub mod mount_attribute {
    /// MOUNT_ATTR_RDONLY: nothing can be written to.
    pub const READ_ONLY: u64 = 1;
    /// MOUNT_ATTR_NOSUID: set-user-id bits and file capabilities have no effect.
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
    /// Boot and monotonic clocks. The program is in it since Linux 6.3, before that only its children.
    Time = 0x80,
    /// Mounts. Everything in a new one is made private first.
    Mount = 0x2_0000,
    /// Control-group root.
    Cgroup = 0x200_0000,
    /// Host name and domain name.
    Uts = 0x400_0000,
    /// System V IPC and POSIX message queues.
    Ipc = 0x800_0000,
    /// User and group ids, and capabilities. An ordinary user may make one, and the others along with it.
    User = 0x1000_0000,
    /// Process ids. The program is process 1 in it.
    Pid = 0x2000_0000,
    /// Network devices, addresses, ports. A new one has only a loopback device, which is down.
    Network = 0x4000_0000,
}

/// An instruction of a seccomp filter: `struct sock_filter`, as filter compilers (the crates seccompiler, libseccomp)
/// make them.
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

/// Namespaces, mounts, control group, capabilities and filters of the child. None of them costs the launcher: it never
/// forks for them.
///
/// They are played in a fixed order, whatever the order of these calls (mounts and joins among themselves are in the
/// order of the calls): see `docs/design/order.md`.
///
/// # Paths of mounts
/// What is mounted may belong to somebody who is not trusted, so a place to mount upon or to make something at is looked up
/// by `openat2(2)` (Linux 5.6; without it the step fails) where it is
/// - below the directory of [`pivot_root`](Self::pivot_root) or [`chroot`](Self::chroot): inside it, as the program will look
///   it up. A symbolic link leads to no place outside.
/// - else below a mount made before: inside the innermost one. A symbolic link that leads out of it is an error.
///
/// Paths are compared as they are written, relative ones from the child's directory. Sources, such as that of
/// [`bind`](Self::bind), are looked up in the caller's root, links followed.
impl Command {
    /// The child has a new namespace of this kind: `clone3(2)`. Needs CAP_SYS_ADMIN, except for a user namespace and
    /// those asked for together with one.
    ///
    /// In a new user or process-id namespace the child may not fetch descriptors from the caller, so those it is passed
    /// are copied with all below them: flat as long as their numbers are low.
    pub fn unshare(&mut self, namespace: Namespace) -> &mut Self {
        self.sandbox.unshare |= namespace as u64;
        self
    }

    /// In the new user namespace, `count` user ids from `inside` on are the caller's from `outside` on:
    /// `user_namespaces(7)`. Written by the caller while the child waits.
    ///
    /// An ordinary user may map one id, its own.
    pub fn map_uid(&mut self, inside: u32, outside: u32, count: u32) -> &mut Self {
        self.sandbox.uid_maps.push([inside, outside, count]);
        self
    }

    /// The same for group ids. For an ordinary user the namespace is denied `setgroups(2)` first, as the kernel demands.
    pub fn map_gid(&mut self, inside: u32, outside: u32, count: u32) -> &mut Self {
        self.sandbox.gid_maps.push([inside, outside, count]);
        self
    }

    /// The child joins the namespace that the descriptor refers to: `setns(2)`.
    ///
    /// Not for time namespaces, which a process that shares memory cannot join. A process-id namespace can be joined for
    /// children only: a thread made for that one launch joins it and clones the child, so the caller stays where it is.
    pub fn join<F: Into<OwnedFd>>(&mut self, namespace: Namespace, fd: F) -> &mut Self {
        self.sandbox.joins.push((namespace, Arc::new(fd.into())));
        self
    }

    /// The host name, in a UTS namespace that is new or joined: `sethostname(2)`.
    pub fn hostname<S: AsRef<OsStr>>(&mut self, name: S) -> &mut Self {
        self.sandbox.hostname = Some(name.as_ref().to_owned());
        self
    }

    /// A mount in the child's new mount namespace: `mount(2)`, with its flags and data. Mounts are made in the order of
    /// the calls, before the root is changed and before the ids are.
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

    /// `source` is seen at `target` as well, with everything mounted below it.
    pub fn bind<P: AsRef<Path>, Q: AsRef<Path>>(&mut self, source: P, target: Q) -> &mut Self {
        self.mount(Some(source.as_ref().as_os_str()), target, None, MS_BIND | MS_REC, None)
    }

    /// As [`bind`](Self::bind), and nothing there can be written to: `open_tree(2)`, `mount_setattr(2)`, `move_mount(2)`,
    /// Linux 5.12. It is read-only before it can be found, and each path is looked up once.
    pub fn bind_read_only<P: AsRef<Path>, Q: AsRef<Path>>(&mut self, source: P, target: Q) -> &mut Self {
        let (source, target) = (source.as_ref().to_owned(), target.as_ref().to_owned());
        self.sandbox.mounts.push(MountStep::ReadOnlyBind { source, target });
        self
    }

    /// What is mounted at `target`, and all that is mounted below it, becomes read-only: `mount_setattr(2)`, Linux 5.12.
    pub fn read_only<P: AsRef<Path>>(&mut self, target: P) -> &mut Self {
        self.mount_attributes(target, mount_attribute::READ_ONLY, 0)
    }

    /// What is mounted at `target`, and all that is mounted below it, gets the [attributes](mount_attribute) `set` and loses
    /// those in `clear`: `mount_setattr(2)` AT_RECURSIVE, Linux 5.12. One that the caller's namespace has locked cannot be
    /// cleared in a user namespace (EPERM).
    pub fn mount_attributes<P: AsRef<Path>>(&mut self, target: P, set: u64, clear: u64) -> &mut Self {
        let target = target.as_ref().to_owned();
        self.sandbox.mounts.push(MountStep::Attributes { target, set, clear });
        self
    }

    /// A new file system of this kind at `target`, by the calls that take one parameter at a time: `fsopen(2)`,
    /// `fsconfig(2)`, `fsmount(2)`, `move_mount(2)`, Linux 5.2. An error names the parameter that was refused.
    ///
    /// `parameters`: names with their values; none for a flag. `attributes`: see [`mount_attribute`].
    ///
    /// ```
    /// use forkless::{Command, Namespace, mount_attribute};
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "echo 1 >/tmp/file && ! test -x /tmp/file"]).unshare(Namespace::User).unshare(Namespace::Mount);
    /// # use forkless::Stdio; command.stderr(Stdio::null());
    /// command.file_system("tmpfs", [("size", Some("1m"))], mount_attribute::NO_EXEC, "/tmp");
    /// # let _ = command.status(); // where user namespaces are refused this is an error
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

    /// `tree`, a mount that is attached nowhere (of `fsmount(2)`, or `open_tree(2)` with OPEN_TREE_CLONE, made by the caller
    /// with whatever attributes and id maps it likes), at `target`: `move_mount(2)`, Linux 5.2.
    ///
    /// It can be attached once, so a [`Prepared`](crate::Prepared) with it can be run once.
    pub fn attach_mount<F: Into<OwnedFd>, P: AsRef<Path>>(&mut self, tree: F, target: P) -> &mut Self {
        let target = target.as_ref().to_owned();
        self.sandbox.mounts.push(MountStep::Attach { tree: Arc::new(tree.into()), target });
        self
    }

    /// An overlay at `target`: the directories `lower`, topmost first, with what is changed going to `upper`, which needs an
    /// empty `work` directory on the same file system. Without `upper` nothing can be changed.
    ///
    /// In a new user namespace it has `userxattr`, which Linux takes from 5.11 on.
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

    /// What is mounted at `target` is taken away: `umount2(2)` MNT_DETACH.
    pub fn unmount<P: AsRef<Path>>(&mut self, target: P) -> &mut Self {
        self.sandbox.mounts.push(MountStep::Unmount(target.as_ref().to_owned()));
        self
    }

    /// A directory, in its turn among the mounts, as a place for one; it may be there already: `mkdirat(2)`, so `mode` is less
    /// the caller's umask.
    pub fn make_dir<P: AsRef<Path>>(&mut self, path: P, mode: u32) -> &mut Self {
        self.sandbox.mounts.push(MountStep::Directory { path: path.as_ref().to_owned(), mode });
        self
    }

    /// A symbolic link `path` to `to`, in its turn among the mounts: `symlinkat(2)`.
    pub fn make_symlink<P: AsRef<Path>, Q: AsRef<Path>>(&mut self, to: P, path: Q) -> &mut Self {
        self.sandbox.mounts.push(MountStep::Symlink { to: to.as_ref().to_owned(), path: path.as_ref().to_owned() });
        self
    }

    /// A small `/dev` at `target`: a file system in memory with `null`, `zero`, `full`, `random`, `urandom` and `tty` of the
    /// caller's `/dev`, new pseudo-terminals, `shm`, and links to the standard streams. Some 40 system calls.
    pub fn devices<P: AsRef<Path>>(&mut self, target: P) -> &mut Self {
        self.sandbox.mounts.push(MountStep::Devices(target.as_ref().to_owned()));
        self
    }

    /// An empty file system in memory at `target`; `options` as in `tmpfs(5)`, such as `size=10m,mode=700`.
    pub fn tmpfs<P: AsRef<Path>>(&mut self, target: P, options: &str) -> &mut Self {
        self.mount(Some(OsStr::new("tmpfs")), target, Some("tmpfs"), 0, Some(OsStr::new(options)))
    }

    /// The processes of the child's process-id namespace at `target`, as at `/proc`; without devices, set-user-id files
    /// and programs. An ordinary user's child needs a new process-id namespace for it, and the caller a `/proc` of which
    /// nothing is hidden by other mounts: `mount_namespaces(7)`.
    pub fn proc<P: AsRef<Path>>(&mut self, target: P) -> &mut Self {
        self.mount(Some(OsStr::new("proc")), target, Some("proc"), MS_NOSUID | MS_NODEV | MS_NOEXEC, None)
    }

    /// `new_root`, which must be a mount point, becomes the root of the child's mount namespace, and the old root is
    /// taken away: `pivot_root(2)`, `umount2(2)`; five system calls.
    pub fn pivot_root<P: AsRef<Path>>(&mut self, new_root: P) -> &mut Self {
        self.sandbox.pivot_root = Some(new_root.as_ref().to_owned());
        self
    }

    /// The child is born in the control group (version 2) whose directory this is: `clone3(2)` CLONE_INTO_CGROUP, Linux
    /// 5.7. The caller must be allowed to write to its `cgroup.procs`.
    ///
    /// The child is a vfork'd one then, so that the cgroup's OOM killer does not kill the caller, whose memory it shares: the
    /// launch returns no sooner than the exec, and if a signal stops the child before that, not before it is continued. In a
    /// cgroup with `memory.oom.group` the caller is killed nevertheless if memory runs out before the exec.
    pub fn cgroup<F: Into<OwnedFd>>(&mut self, directory: F) -> &mut Self {
        self.sandbox.cgroup = Some(Arc::new(directory.into()));
        self
    }

    /// The capabilities that the program and its children can ever get: all others are dropped from the bounding set,
    /// one system call each. Needs CAP_SETPCAP. Those that the caller has as inheritable are dropped there too, unless
    /// [`inheritable`](Self::inheritable) says otherwise: the bounding set does not bound them.
    pub fn bounding_set(&mut self, set: CapabilitySet) -> &mut Self {
        self.sandbox.bounding = Some(set);
        self
    }

    /// The permitted capabilities just before exec: `capset(2)`, `capabilities(7)`.
    pub fn permitted(&mut self, set: CapabilitySet) -> &mut Self {
        self.sandbox.permitted = Some(set);
        self
    }

    /// The effective capabilities just before exec.
    pub fn effective(&mut self, set: CapabilitySet) -> &mut Self {
        self.sandbox.effective = Some(set);
        self
    }

    /// The inheritable capabilities.
    pub fn inheritable(&mut self, set: CapabilitySet) -> &mut Self {
        self.sandbox.inheritable = Some(set);
        self
    }

    /// The ambient capabilities: those that a program without file capabilities keeps over exec although its user is not
    /// root. They become permitted and inheritable too, and survive a change of user.
    pub fn ambient(&mut self, set: CapabilitySet) -> &mut Self {
        self.sandbox.ambient = Some(set);
        self
    }

    /// The securebits: `capabilities(7)`, `prctl(2)` PR_SET_SECUREBITS. Needs CAP_SETPCAP.
    pub fn securebits(&mut self, bits: u32) -> &mut Self {
        self.sandbox.securebits = Some(bits);
        self
    }

    /// A Landlock ruleset, made by the caller (the crate landlock makes them), that restricts the child:
    /// `landlock_restrict_self(2)`. Needs [`no_new_privs`](Self::no_new_privs) or CAP_SYS_ADMIN. It must allow the
    /// program to be executed. What it restricts is known to its maker alone: the crate landlock leaves out, in silence, the
    /// rights that the kernel does not know, unless its `CompatLevel::HardRequirement` is set.
    pub fn landlock<F: Into<OwnedFd>>(&mut self, ruleset: F) -> &mut Self {
        self.sandbox.landlock = Some(Arc::new(ruleset.into()));
        self
    }

    /// A seccomp filter, the last thing before exec: `seccomp(2)` SECCOMP_SET_MODE_FILTER. Needs
    /// [`no_new_privs`](Self::no_new_privs) or CAP_SYS_ADMIN. It must allow `execve`, and should allow `exit_group`. An empty
    /// one is refused when the plan is made.
    ///
    /// On x86-64 a filter that refuses what it lists, and allows the rest, must refuse every number from 0x4000_0000 on too:
    /// where the kernel has the x32 ABI, those are the same calls by other numbers. Not every compiler of filters adds that.
    pub fn seccomp(&mut self, filter: impl IntoIterator<Item = BpfInstruction>) -> &mut Self {
        self.sandbox.seccomp = Some(filter.into_iter().collect());
        self
    }
}

/// The kind of file system whose data gains a word in a user namespace.
pub(crate) const OVERLAY: &str = "overlay";

/// A path as overlayfs reads it: commas separate options, and colons the lower directories.
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

impl Sandbox {
    pub(crate) fn makes(&self, namespace: Namespace) -> bool {
        self.unshare & namespace as u64 != 0
    }

    pub(crate) fn joins(&self, namespace: Namespace) -> bool {
        self.joins.iter().any(|(joined, _)| *joined == namespace)
    }
}
