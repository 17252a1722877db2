//! Mounts into ops, in the order in which they were asked for.

use crate::command::{MS_PRIVATE, MS_REC, Mount, MountStep, Namespace, OVERLAY};
use crate::compile::arena::Arg;
use crate::compile::setup::Steps;
use crate::step::Step;
use forkless_core::plan::CALLER_VARIABLES;
use forkless_core::sys::{errno, uapi};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where calls leave descriptors for the ones after them.
const FIRST: u32 = CALLER_VARIABLES as u32;

/// The directory that relative paths start from.
const HERE: Arg = Arg::Number(uapi::AT_FDCWD as i64 as u64);

const NOTHING: Arg = Arg::Number(0);

/// `trees`: the child's numbers of the mounts that are attached nowhere.
pub(super) fn mounts(steps: &mut Steps<'_>, trees: &[i32]) {
    let sandbox = steps.sandbox;
    let mut trees = trees.iter();
    if sandbox.makes(Namespace::Mount) {
        let all = Mount { source: None, target: "/".into(), kind: None, flags: MS_REC | MS_PRIVATE, data: None };
        mount(steps, &all);
    }
    for one in &sandbox.mounts {
        match one {
            MountStep::Mount(one) => mount(steps, one),
            MountStep::Attributes { target, set, clear } => attributes(steps, target, *set, *clear),
            MountStep::FileSystem { kind, parameters, attributes, target } => {
                configure(steps, kind, parameters);
                attach_new(steps, kind, *attributes, target);
            }
            MountStep::Attach { target, .. } => {
                let tree = trees.next().map_or(-1, |number| *number);
                attach(steps, Arg::Number(tree as u64), &format!("of a detached tree at {target:?}"), target);
            }
            MountStep::Unmount(target) => {
                const MNT_DETACH: u64 = 2;
                let path = path(steps, target);
                let object = format!("nothing more at {target:?}");
                steps.call(Step::Mount, &object, uapi::__NR_umount2, &[path, Arg::Number(MNT_DETACH)]);
            }
            MountStep::Directory { path, mode } => make_dir(steps, path, *mode),
            MountStep::Symlink { to, path } => symlink(steps, to, path),
            MountStep::Devices(target) => devices(steps, target),
        }
    }
}

fn path(steps: &mut Steps<'_>, path: &Path) -> Arg {
    Arg::Data(steps.arena.data(path.as_os_str().as_bytes()))
}

fn mount(steps: &mut Steps<'_>, mount: &Mount) {
    let mut data = mount.data.as_deref().map(|text| text.as_bytes().to_owned());
    if mount.kind.as_deref().is_some_and(|kind| kind == OVERLAY) && steps.sandbox.makes(Namespace::User) {
        // The attributes that an overlay needs, under names that its owner may set: overlayfs(5).
        data.get_or_insert_default().extend(b",userxattr");
    }
    let mut text = |text: Option<&[u8]>| text.map_or(NOTHING, |text| Arg::Data(steps.arena.data(text)));
    let args = [
        text(mount.source.as_deref().map(|text| text.as_bytes())),
        text(Some(mount.target.as_os_str().as_bytes())),
        text(mount.kind.as_deref().map(|text| text.as_bytes())),
        Arg::Number(mount.flags),
        text(data.as_deref()),
    ];
    let object = match (&mount.source, &mount.kind) {
        (Some(source), Some(kind)) => format!("{source:?} ({}) at {:?}", kind.to_string_lossy(), mount.target),
        (Some(source), None) => format!("{source:?} at {:?}", mount.target),
        (None, _) => format!("{:?} with flags {:#x}", mount.target, mount.flags),
    };
    steps.call(Step::Mount, &object, uapi::__NR_mount, &args);
}

fn attributes(steps: &mut Steps<'_>, target: &Path, set: u64, clear: u64) {
    const AT_RECURSIVE: u64 = 0x8000;
    const READ_ONLY: u64 = 1;
    let object = match (set, clear) {
        (READ_ONLY, 0) => format!("{target:?} read-only"),
        _ => format!("{target:?} with attributes {set:#x}, without {clear:#x}"),
    };
    let path = path(steps, target);
    // struct mount_attr: set, clear, propagation, user namespace.
    let attributes = steps.arena.words(&[set, clear, 0, 0]);
    let args = [HERE, path, Arg::Number(AT_RECURSIVE), Arg::Data(attributes), Arg::Number(32)];
    steps.call(Step::Mount, &object, uapi::__NR_mount_setattr, &args);
}

/// A file-system context in the first variable, with its parameters.
fn configure(steps: &mut Steps<'_>, kind: &str, parameters: &[(String, Option<std::ffi::OsString>)]) {
    const FSOPEN_CLOEXEC: u64 = 1;
    const FSCONFIG_SET_FLAG: u64 = 0;
    const FSCONFIG_SET_STRING: u64 = 1;
    const FSCONFIG_CMD_CREATE: u64 = 6;
    let context = Arg::Variable(FIRST);
    let name = Arg::Data(steps.arena.data(kind.as_bytes()));
    let open = [name, Arg::Number(FSOPEN_CLOEXEC)];
    steps.call_into(Step::Mount, &format!("a file system {kind:?}"), uapi::__NR_fsopen, &open, Some(FIRST));
    for (key, value) in parameters {
        let name = Arg::Data(steps.arena.data(key.as_bytes()));
        let (command, value, shown) = match value {
            Some(value) => (FSCONFIG_SET_STRING, Arg::Data(steps.arena.data(value.as_bytes())), format!("{value:?}")),
            None => (FSCONFIG_SET_FLAG, NOTHING, "set".into()),
        };
        let args = [context, Arg::Number(command), name, value, NOTHING];
        let object = format!("{kind:?} with the parameter {key:?} {shown}");
        steps.call(Step::Mount, &object, uapi::__NR_fsconfig, &args);
    }
    let create = [context, Arg::Number(FSCONFIG_CMD_CREATE), NOTHING, NOTHING, NOTHING];
    steps.call(Step::Mount, &format!("{kind:?} with these parameters"), uapi::__NR_fsconfig, &create);
}

/// What the context of [`configure`] describes, at `target`.
fn attach_new(steps: &mut Steps<'_>, kind: &str, attributes: u64, target: &Path) {
    const FSMOUNT_CLOEXEC: u64 = 1;
    const TREE: u32 = FIRST + 1;
    let object = format!("{kind:?} at {target:?}");
    let args = [Arg::Variable(FIRST), Arg::Number(FSMOUNT_CLOEXEC), Arg::Number(attributes)];
    steps.call_into(Step::Mount, &object, uapi::__NR_fsmount, &args, Some(TREE));
    attach(steps, Arg::Variable(TREE), &object, target);
    steps.call(Step::Mount, &object, uapi::__NR_close, &[Arg::Variable(FIRST)]);
    steps.call(Step::Mount, &object, uapi::__NR_close, &[Arg::Variable(TREE)]);
}

fn attach(steps: &mut Steps<'_>, tree: Arg, object: &str, target: &Path) {
    const MOVE_MOUNT_F_EMPTY_PATH: u64 = 4;
    let nothing = Arg::Data(steps.arena.data(b""));
    let target = path(steps, target);
    let args = [tree, nothing, HERE, target, Arg::Number(MOVE_MOUNT_F_EMPTY_PATH)];
    steps.call(Step::Mount, object, uapi::__NR_move_mount, &args);
}

fn make_dir(steps: &mut Steps<'_>, target: &Path, mode: u32) {
    let args = [HERE, path(steps, target), Arg::Number(mode.into())];
    steps.call_unless(Step::MakeDir, &format!("{target:?}"), uapi::__NR_mkdirat, &args, errno::EEXIST);
}

fn symlink(steps: &mut Steps<'_>, to: &Path, at: &Path) {
    let args = [path(steps, to), HERE, path(steps, at)];
    steps.call(Step::Symlink, &format!("{at:?} to {to:?}"), uapi::__NR_symlinkat, &args);
}

/// The caller's own devices are held, as mounts that are attached nowhere, before the new file system may hide them.
fn devices(steps: &mut Steps<'_>, target: &Path) {
    const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
    const LINKS: [(&str, &str); 5] = [
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
        ("pts/ptmx", "ptmx"),
    ];
    const OPEN_TREE_CLONE: u64 = 1;
    const MS_NOSUID: u64 = 2;
    const MS_NOEXEC: u64 = 8;
    const MS_STRICTATIME: u64 = 1 << 24;
    const REGULAR_FILE: u64 = 0o100_444;
    // What this machine, or the container we are in, has not got cannot be shown.
    let there: Vec<_> =
        (FIRST..).zip(DEVICES.into_iter().filter(|name| Path::new("/dev").join(name).exists())).collect();
    for &(variable, name) in &there {
        let source = path(steps, &Path::new("/dev").join(name));
        let args = [HERE, source, Arg::Number(OPEN_TREE_CLONE | u64::from(uapi::O_CLOEXEC))];
        steps.call_into(Step::Mount, &format!("of /dev/{name}"), uapi::__NR_open_tree, &args, Some(variable));
    }
    let mut file_system = |kind: &str, target: &Path, flags: u64, data: &str| {
        let (kind, data) = (Some(kind.into()), Some(data.into()));
        mount(steps, &Mount { source: kind.clone(), target: target.to_owned(), kind, flags, data });
    };
    file_system("tmpfs", target, MS_NOSUID | MS_STRICTATIME, "mode=755");
    for &(variable, name) in &there {
        let place = target.join(name);
        let object = format!("of /dev/{name} at {place:?}");
        let args = [HERE, path(steps, &place), Arg::Number(REGULAR_FILE), NOTHING];
        steps.call(Step::Mount, &object, uapi::__NR_mknodat, &args);
        attach(steps, Arg::Variable(variable), &object, &place);
        steps.call(Step::Mount, &object, uapi::__NR_close, &[Arg::Variable(variable)]);
    }
    for (to, name) in LINKS {
        symlink(steps, Path::new(to), &target.join(name));
    }
    let shared = target.join("shm");
    make_dir(steps, &shared, 0o1777);
    // Whatever the caller's umask.
    let args = [HERE, path(steps, &shared), Arg::Number(0o1777)];
    steps.call(Step::MakeDir, &format!("{shared:?} for all"), uapi::__NR_fchmodat, &args);
    make_dir(steps, &target.join("pts"), 0o755);
    let terminals = Mount {
        source: Some("devpts".into()),
        target: target.join("pts"),
        kind: Some("devpts".into()),
        flags: MS_NOSUID | MS_NOEXEC,
        data: Some("newinstance,ptmxmode=0666,mode=620".into()),
    };
    mount(steps, &terminals);
}

/// The new root of a mount namespace, without a place for the old one: pivot_root(2), "pivot_root(".", ".")".
pub(super) fn pivot_root(steps: &mut Steps<'_>) {
    const MNT_DETACH: u64 = 2;
    let Some(root) = &steps.sandbox.pivot_root else { return };
    let object = format!("{root:?}");
    let path = Arg::Data(steps.arena.data(root.as_os_str().as_bytes()));
    let here = Arg::Data(steps.arena.data(b"."));
    let top = Arg::Data(steps.arena.data(b"/"));
    steps.call(Step::Chdir, &object, uapi::__NR_chdir, &[path]);
    steps.call(Step::PivotRoot, &object, uapi::__NR_pivot_root, &[here, here]);
    steps.call(Step::PivotRoot, &object, uapi::__NR_umount2, &[here, Arg::Number(MNT_DETACH)]);
    steps.call(Step::Chdir, "\"/\"", uapi::__NR_chdir, &[top]);
}
