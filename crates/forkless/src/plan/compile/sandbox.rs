//! Compiles namespaces, capabilities and filters into ops.

use crate::error::Error;
use crate::kernel::{self, Prctl};
use crate::once::Once;
use crate::plan::IdMaps;
use crate::plan::compile::arena::Arg;
use crate::plan::compile::launcher;
use crate::plan::compile::mounts;
use crate::plan::compile::places::{self, Places};
use crate::plan::compile::setup::Steps;
use crate::request::command::{CapabilitySet, Command, Isolation, Mount, MountStep, Namespace, OVERLAY};
use crate::route::Launcher;
use crate::step::Step;
use forkless_core::plan::{Op, OpCode};
use forkless_core::sys::{errno, prctl, uapi};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

/// The ID maps that the caller must write, if the command has any.
pub(super) fn id_maps(command: &Command) -> Option<IdMaps> {
    let lines = |maps: &[[u32; 3]]| maps.iter().map(|[a, b, c]| format!("{a} {b} {c}\n")).collect::<String>();
    let sandbox = &command.sandbox;
    let maps = IdMaps { uid: lines(&sandbox.uid_maps), gid: lines(&sandbox.gid_maps) };
    (!maps.uid.is_empty() || !maps.gid.is_empty()).then_some(maps)
}

/// Refuses settings that exclude each other, or that need another one.
pub(super) fn check(command: &Command) -> Result<(), Error> {
    let refuse = |what: &str| Err(Error::check(&command.program, what));
    let sandbox = &command.sandbox;
    let has_maps = !sandbox.uid_maps.is_empty() || !sandbox.gid_maps.is_empty();
    if has_maps && !sandbox.has_new(Namespace::User) {
        return refuse("id maps need a new user namespace: unshare(Namespace::User)");
    }
    if sandbox.has_joined(Namespace::Time) {
        return refuse("a process that shares memory, as the child does, cannot join a time namespace");
    }
    if sandbox.has_joined(Namespace::Pid) && command.setup.parent_death_signal.is_some() {
        return refuse(
            "join(Namespace::Pid) and a parent-death signal exclude each other: the thread that clones the child ends",
        );
    }
    if sandbox.joins.iter().any(|(kind, _)| sandbox.has_new(*kind)) {
        // The child would leave the new namespace for the joined one, and its mounts would change that for the
        // processes in it.
        return refuse("a namespace of one kind can be made or joined, not both");
    }
    let has_mounts = !sandbox.mounts.is_empty() || sandbox.pivot_root.is_some();
    if has_mounts && !sandbox.has_new(Namespace::Mount) {
        return refuse("mounts and pivot_root need a mount namespace of the child's: unshare(Namespace::Mount)");
    }
    if sandbox.pivot_root.is_some() && command.setup.chroot.is_some() {
        return refuse("pivot_root and chroot exclude each other");
    }
    if sandbox.hostname.is_some() && !sandbox.has_new(Namespace::Uts) && !sandbox.has_joined(Namespace::Uts) {
        return refuse("a host name needs a UTS namespace of the child's: unshare(Namespace::Uts)");
    }
    if let Some(bad) = sandbox.limits.bad.values().next() {
        return refuse(bad);
    }
    if sandbox.limits.make.is_some() {
        if sandbox.cgroup.is_some() {
            return refuse(
                "cgroup excludes memory_max and the like, and cgroup_parent: with these each launch makes a cgroup",
            );
        }
        if launcher::is_autoreaped(command) {
            return refuse(
                "an autoreaped child cannot have memory_max and the like, or cgroup_parent: its cgroup would never be removed",
            );
        }
    }
    if sandbox.seccomp.as_ref().is_some_and(|filter| filter.is_empty() || filter.len() > 4096) {
        return refuse("a seccomp filter must have from 1 to 4,096 instructions");
    }
    let texts = sandbox.mounts.iter().flat_map(MountStep::texts);
    let root = sandbox.pivot_root.iter().map(|root| root.as_os_str());
    if texts.chain(root).any(|text| text.as_bytes().contains(&0)) {
        return refuse("a mount's name or data contains a NUL byte");
    }
    check_places(command)
}

/// Refuses relative paths that cannot be looked up from the right directory.
fn check_places(command: &Command) -> Result<(), Error> {
    let refuse = |what: String| Err(Error::check(&command.program, what));
    let (setup, sandbox) = (&command.setup, &command.sandbox);
    let root = setup.chroot.iter().chain(&sandbox.pivot_root).next();
    if setup.directory_fd.is_some() && root.is_some_and(|root| root.is_absolute()) {
        // The child would leave that directory for the root, or could escape from the root through it.
        return refuse("current_dir_fd has no effect with chroot or pivot_root to an absolute path".into());
    }
    if sandbox.mounts.is_empty() {
        return Ok(());
    }
    if let Err(error) = places::base(command) {
        return refuse(format!("relative paths of mounts need the path of the working directory: {error}"));
    }
    let mut places = Places::of(command);
    for (number, one) in sandbox.mounts.iter().enumerate() {
        if let MountStep::Mount(mount) = one {
            if has_relative_source(mount) && places.inside(&mount.target).is_some() {
                let target = &mount.target;
                return refuse(format!(
                    "the file system at {target:?} is inside another root, so the paths of its sources must be absolute"
                ));
            }
        }
        if mounts::is_upon_root(&places, one) {
            return refuse(format!(
                "a mount on {:?} has no effect, because a process keeps the root that it has: use pivot_root \
                 (forkless run: --pivot-root)",
                one.target()
            ));
        }
        // A sandbox makes its own mounts in its root.
        if sandbox.has_new(Namespace::Mount) && !sandbox.in_sandbox {
            if let Some(root) = places.misses(one, &sandbox.mounts[number + 1..]) {
                return refuse(format!(
                    "the mount at {:?} has no effect, because it is outside of the new root {root:?}, and no later \
                     mount copies it from there",
                    one.target()
                ));
            }
        }
        places.follow(one);
    }
    Ok(())
}

/// Whether a mount names source files by relative paths, which a change of directory would redirect.
fn has_relative_source(mount: &Mount) -> bool {
    let bytes =
        |text: &Option<std::ffi::OsString>| text.as_ref().map(|text| text.as_bytes().to_vec()).unwrap_or_default();
    match &mount.kind {
        None => false,
        Some(kind) if kind == OVERLAY => {
            // As in lowerdir=/a:/b,upperdir=/c: a path follows each name and each colon. See overlayfs(5).
            let data = bytes(&mount.data);
            let starts =
                |at: usize| data[..at].ends_with(b"dir=") || data[..at].ends_with(b"dir+=") || data[at - 1] == b':';
            (1..data.len()).any(|at| starts(at) && !data[..at].ends_with(b"\\:") && !b"/:".contains(&data[at]))
        }
        Some(_) => {
            let source = bytes(&mount.source);
            source.contains(&b'/') && source[0] != b'/'
        }
    }
}

/// Namespaces to join. This comes before the child has its own table, because only the caller's has the descriptors.
pub(super) fn joins(steps: &mut Steps<'_>) {
    for (namespace, fd) in steps.sandbox.joins.iter().filter(|(kind, _)| *kind != Namespace::Pid) {
        let args = [Arg::Number(fd.as_raw_fd() as u64), Arg::Number(*namespace as u64)];
        let start = steps.ops.len();
        steps.call(Step::JoinNamespace, &format!("{namespace:?}"), uapi::__NR_setns, &args);
        if *namespace == Namespace::Uts && steps.sandbox.hostname.is_some() {
            // Best effort would rename the whole system.
            steps.fail_as(None, start);
        }
    }
}

/// When a child that shares the caller's memory becomes accessible (by `ptrace(2)` and the like) to processes that
/// must not access the caller, and the kernel does not prevent it.
///
/// The kernel prevents it if the child's IDs change (see `launch/dumpable.rs`). It does not if the child has fewer
/// capabilities: then every process of the same user with at least these may access it. Also, the owner of the
/// child's user namespace, and every privileged process in it, may access the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opens {
    /// From its first step.
    AtBirth,
    /// As soon as the caller has written the ID maps: while the memory is non-dumpable, the map files belong to root.
    WithMaps,
    /// When it drops capabilities.
    LessCapable,
}

pub(super) fn opens(command: &Command) -> Option<Opens> {
    if command.launcher == Launcher::PosixSpawn {
        // It supports none of these settings.
        return None;
    }
    let sandbox = &command.sandbox;
    // Every process of the same user may access a caller without capabilities anyway.
    let is_capable = || kernel::capabilities()[1] != 0;
    let is_born_open = sandbox.has_new(Namespace::User) && is_capable();
    let has_maps = !sandbox.uid_maps.is_empty() || !sandbox.gid_maps.is_empty();
    if sandbox.has_joined(Namespace::User) || is_born_open && (!has_maps || nix::unistd::geteuid().is_root()) {
        Some(Opens::AtBirth)
    } else if is_born_open {
        Some(Opens::WithMaps)
    } else {
        sandbox.permitted.filter(|_| is_capable()).map(|_| Opens::LessCapable)
    }
}

/// Makes the child's memory non-dumpable.
pub(super) fn close_memory(steps: &mut Steps<'_>) {
    let args = [Arg::Number(prctl::PR_SET_DUMPABLE.into()), Arg::Number(0)];
    steps.call(Step::Capabilities, "(PR_SET_DUMPABLE)", uapi::__NR_prctl, &args);
}

/// Makes the child wait until the caller has written the ID maps.
pub(super) fn maps(steps: &mut Steps<'_>) {
    let sandbox = steps.sandbox;
    if !sandbox.uid_maps.is_empty() || !sandbox.gid_maps.is_empty() {
        steps.ops.push(Op::new(OpCode::AwaitGo));
    }
}

/// The first steps inside new namespaces, with all capabilities over them.
pub(super) fn surroundings(steps: &mut Steps<'_>) {
    let sandbox = steps.sandbox;
    if sandbox.has_new(Namespace::Time) {
        // clone3(2) refuses a time namespace for a child that shares memory: copy_namespaces() in kernel/nsproxy.c.
        steps.call(Step::Namespace, "Time", uapi::__NR_unshare, &[Arg::Number(Namespace::Time as u64)]);
    }
    if let Some(name) = &sandbox.hostname {
        let text = steps.arena.data(name.as_bytes());
        let args = [Arg::Data(text), Arg::Number(name.len() as u64)];
        steps.call(Step::Hostname, &format!("{name:?}"), uapi::__NR_sethostname, &args);
    }
}

/// Steps before the IDs change: they need CAP_SETPCAP, which is lost when the user changes.
pub(super) fn capabilities_before(steps: &mut Steps<'_>) {
    let sandbox = steps.sandbox;
    if let Some(keep) = sandbox.bounding {
        let start = steps.ops.len();
        let dropped = known() & !keep.bits();
        let object = format!("bounding set without {}", ranges(dropped));
        for number in numbers(dropped) {
            let args = [Arg::Number(prctl::PR_CAPBSET_DROP.into()), Arg::Number(number)];
            steps.call(Step::Capabilities, &object, uapi::__NR_prctl, &args);
        }
        steps.belong(start);
        let [effective, permitted, inheritable] = own(sandbox);
        if sandbox.inheritable.is_none() && inheritable & !keep.bits() != 0 {
            // At exec as root, or of a file with inheritable capabilities, these would become permitted despite the
            // bounding set.
            capset(steps, [effective, permitted, inheritable & keep.bits()]);
        }
    }
    if let Some(bits) = sandbox.securebits {
        let args = [Arg::Number(prctl::PR_SET_SECUREBITS.into()), Arg::Number(bits.into())];
        steps.call(Step::Securebits, &format!("{bits:#x}"), uapi::__NR_prctl, &args);
    }
    // Also for the inheritable set: only permitted capabilities can be added to it.
    let needs_them = sandbox.permitted.is_some() || sandbox.inheritable.is_some() || sandbox.ambient.is_some();
    if steps.setup.has_ids() && needs_them {
        let args = [Arg::Number(prctl::PR_SET_KEEPCAPS.into()), Arg::Number(1)];
        steps.call(Step::Capabilities, "(PR_SET_KEEPCAPS)", uapi::__NR_prctl, &args);
    }
}

/// Whether this kernel has the capability. True if a filter refuses the call: then the child's steps fail. Otherwise no
/// capability would exist, and none would be dropped.
fn exists(number: u64) -> bool {
    let answer = kernel::prctl(Prctl::IsInBoundingSet, number as usize);
    answer != Err(errno::EINVAL)
}

/// Sets the capability sets, after the IDs. `leaves_root`: the user becomes another one than root.
pub(super) fn capabilities_after(steps: &mut Steps<'_>, leaves_root: bool) {
    let sandbox = steps.sandbox;
    let ambient = sandbox.ambient.map_or(0, |set| set.bits() & known());
    let given = [sandbox.permitted, sandbox.effective, sandbox.inheritable, sandbox.ambient];
    if given.iter().all(Option::is_none) {
        return;
    }
    let [effective, permitted, inheritable] = own(sandbox);
    let inheritable = inheritable & sandbox.bounding.map_or(u64::MAX, |keep| keep.bits());
    // A change from root to another user clears the permitted set. PR_SET_KEEPCAPS prevents it, but only the
    // requested capabilities must stay.
    const SECBIT_NO_SETUID_FIXUP: u32 = 4;
    let changes = leaves_root && sandbox.securebits.unwrap_or(0) & SECBIT_NO_SETUID_FIXUP == 0;
    let or = |set: Option<CapabilitySet>, else_bits: u64| set.map_or(else_bits, |set| set.bits() & known());
    let permitted = or(sandbox.permitted, if changes { 0 } else { permitted }) | ambient;
    let effective = or(sandbox.effective, if changes { 0 } else { effective }) & permitted | ambient;
    let inheritable = or(sandbox.inheritable, inheritable) | ambient;
    capset(steps, [effective, permitted, inheritable]);
    if sandbox.ambient.is_some() {
        let clear = [Arg::Number(prctl::PR_CAP_AMBIENT.into()), Arg::Number(prctl::PR_CAP_AMBIENT_CLEAR_ALL.into())];
        steps.call(Step::Capabilities, "ambient set emptied", uapi::__NR_prctl, &clear);
    }
    let start = steps.ops.len();
    for number in numbers(ambient) {
        let raise = [
            Arg::Number(prctl::PR_CAP_AMBIENT.into()),
            Arg::Number(prctl::PR_CAP_AMBIENT_RAISE.into()),
            Arg::Number(number),
        ];
        let object = format!("ambient set with {}", ranges(ambient));
        steps.call(Step::Capabilities, &object, uapi::__NR_prctl, &raise);
    }
    steps.belong(start);
}

/// `capset(2)` of the effective, permitted and inheritable sets.
fn capset(steps: &mut Steps<'_>, [effective, permitted, inheritable]: [u64; 3]) {
    const VERSION_3: u64 = 0x2008_0522;
    let header = Arg::Data(steps.arena.push_words(&[VERSION_3]));
    let half = |bits: u64, n: u32| (bits >> (32 * n)) as u32;
    let words: Vec<u8> = (0..2)
        .flat_map(|n| [half(effective, n), half(permitted, n), half(inheritable, n)])
        .flat_map(u32::to_ne_bytes)
        .collect();
    let data = Arg::Data(steps.arena.data(&words));
    let object = format!("permitted {permitted:#x}, effective {effective:#x}, inheritable {inheritable:#x}");
    steps.call(Step::Capabilities, &object, uapi::__NR_capset, &[header, data]);
}

/// The child's effective, permitted and inheritable capabilities before it changes any.
fn own(sandbox: &Isolation) -> [u64; 3] {
    match sandbox.has_new(Namespace::User) || sandbox.has_joined(Namespace::User) {
        // A process that is created in a user namespace, or joins one, has all capabilities in it:
        // set_cred_user_ns().
        true => [known(), known(), 0],
        false => kernel::capabilities(),
    }
}

/// The numbers of the bits.
fn numbers(bits: u64) -> impl Iterator<Item = u64> {
    (0..64).filter(move |number| bits >> number & 1 == 1)
}

/// The numbers of the bits in words, such as `0-4, 6`.
fn ranges(bits: u64) -> String {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for number in numbers(bits) {
        match found.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => found.push((number, number)),
        }
    }
    let words =
        found.iter().map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
    words.collect::<Vec<_>>().join(", ")
}

/// The capabilities that this kernel has.
fn known() -> u64 {
    static KNOWN: Once<u64> = Once::new();
    *KNOWN.get_or(|| {
        // The numbers have no gaps, so a binary search finds the last one.
        let (mut there, mut count) = (0, 64);
        while there < count {
            let middle = (there + count) / 2;
            if exists(middle) {
                there = middle + 1;
            } else {
                count = middle;
            }
        }
        1_u64.checked_shl(count as u32).map_or(u64::MAX, |bit| bit - 1)
    })
}

/// Restrictions come late, because they must not apply to the steps before. The seccomp filter is the last step
/// before exec.
pub(super) fn landlock(steps: &mut Steps<'_>, ruleset: Option<i32>) {
    if let Some(number) = ruleset {
        let args = [Arg::Number(number as u64), Arg::Number(0)];
        steps.call(Step::Landlock, "", uapi::__NR_landlock_restrict_self, &args);
    }
}

/// See [`landlock`].
pub(super) fn seccomp(steps: &mut Steps<'_>) {
    let Some(filter) = &steps.sandbox.seccomp else { return };
    let words: Vec<u64> = filter
        .iter()
        .map(|one| {
            let mut bytes = [0; 8];
            bytes[..2].copy_from_slice(&one.code.to_ne_bytes());
            bytes[2] = one.jt;
            bytes[3] = one.jf;
            bytes[4..].copy_from_slice(&one.k.to_ne_bytes());
            u64::from_ne_bytes(bytes)
        })
        .collect();
    let a = steps.arena.push_words(&words);
    steps.op(Step::Seccomp, Op { a, b: words.len() as u32, ..Op::new(OpCode::Seccomp) });
}
