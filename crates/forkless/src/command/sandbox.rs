//! What the child can see and may do: namespaces, mounts, control group, capabilities, filters.

use crate::command::Command;
use crate::command::capability::CapabilitySet;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
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
    pub(crate) seccomp: Vec<BpfInstruction>,
}

/// A change to the child's mounts.
pub(crate) enum MountStep {
    /// `mount(2)`.
    Mount(Mount),
    /// `mount_setattr(2)`: read-only, with all that is mounted below.
    ReadOnly(PathBuf),
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
pub(crate) const MS_BIND: u64 = 4096;
pub(crate) const MS_REC: u64 = 16384;
pub(crate) const MS_PRIVATE: u64 = 1 << 18;

/// Namespaces, mounts, control group, capabilities and filters of the child. None of them costs the launcher: it never
/// forks for them.
///
/// They are played in a fixed order, whatever the order of these calls (mounts and joins among themselves are in the
/// order of the calls): see `docs/design/order.md`.
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
    /// Not for process-id and time namespaces, which a process can join for its children only.
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

    /// As [`bind`](Self::bind), and nothing there can be written to: see [`read_only`](Self::read_only).
    pub fn bind_read_only<P: AsRef<Path>, Q: AsRef<Path>>(&mut self, source: P, target: Q) -> &mut Self {
        self.bind(source, target.as_ref());
        self.read_only(target)
    }

    /// What is mounted at `target`, and all that is mounted below it, becomes read-only: `mount_setattr(2)`, Linux 5.12.
    pub fn read_only<P: AsRef<Path>>(&mut self, target: P) -> &mut Self {
        self.sandbox.mounts.push(MountStep::ReadOnly(target.as_ref().to_owned()));
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
    pub fn cgroup<F: Into<OwnedFd>>(&mut self, directory: F) -> &mut Self {
        self.sandbox.cgroup = Some(Arc::new(directory.into()));
        self
    }

    /// The capabilities that the program and its children can ever get: all others are dropped from the bounding set,
    /// one system call each. Needs CAP_SETPCAP.
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
    /// program to be executed.
    pub fn landlock<F: Into<OwnedFd>>(&mut self, ruleset: F) -> &mut Self {
        self.sandbox.landlock = Some(Arc::new(ruleset.into()));
        self
    }

    /// A seccomp filter, the last thing before exec: `seccomp(2)` SECCOMP_SET_MODE_FILTER. Needs
    /// [`no_new_privs`](Self::no_new_privs) or CAP_SYS_ADMIN. It must allow `execve`, and should allow `exit_group`.
    pub fn seccomp(&mut self, filter: impl IntoIterator<Item = BpfInstruction>) -> &mut Self {
        self.sandbox.seccomp = filter.into_iter().collect();
        self
    }
}

impl Sandbox {
    pub(crate) fn makes(&self, namespace: Namespace) -> bool {
        self.unshare & namespace as u64 != 0
    }

    pub(crate) fn joins(&self, namespace: Namespace) -> bool {
        self.joins.iter().any(|(joined, _)| *joined == namespace)
    }
}
