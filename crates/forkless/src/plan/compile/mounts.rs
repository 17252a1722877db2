//! Compiles mounts into ops, in the order of the caller's requests.

use crate::plan::compile::arena::Arg;
use crate::plan::compile::places::{Before, HERE, Part, Places};
use crate::plan::compile::setup::{self, Steps};
use crate::request::command::{MS_BIND, MS_MOVE, MS_PRIVATE, MS_REC, MS_REMOUNT, Mount, MountStep, Namespace, OVERLAY};
use crate::step::Step;
use forkless_core::plan::{CALLER_VARIABLES, Op, OpCode};
use forkless_core::sys::{errno, uapi};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

mod files;

/// The variables in which calls store descriptors for later calls.
const FIRST: u32 = CALLER_VARIABLES as u32;

/// The devices that [`devices`] shows, whose mounts are in the first variables.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// A file-system context.
const CONTEXT: u32 = FIRST + DEVICES.len() as u32;

/// A detached mount: one that `move_mount(2)` has not attached yet.
const TREE: u32 = CONTEXT + 1;

/// A second detached mount, while the first one is still in use.
const SECOND_TREE: u32 = CONTEXT + 2;

/// A copy of all mounts, from before those of the root were restricted.
const BEFORE: u32 = CONTEXT + 3;

/// A file that is open only during its step.
const FILE: u32 = CONTEXT + 4;

const NOTHING: Arg = Arg::Number(0);

/// The type and mode of an empty file to mount upon.
const REGULAR_FILE: u64 = 0o100_444;

const MNT_DETACH: u64 = 2;
const OPEN_TREE_CLONE: u64 = 1;
const AT_RECURSIVE: u64 = 0x8000;
const AT_EMPTY_PATH: u64 = 0x1000;
const ATTR_READ_ONLY: u64 = 1;
const ATTR_NO_SUID: u64 = 2;
const ATTR_NO_EXEC: u64 = 8;
const ATTR_STRICT_ATIME: u64 = 0x20;

/// `trees`: the descriptors of detached mounts and of contents, by their numbers in the child.
pub(super) fn mounts(steps: &mut Steps<'_>, trees: &[i32]) {
    let sandbox = steps.sandbox;
    let mut trees = trees.iter();
    let start = steps.ops.len();
    let makes_private = sandbox.has_new(Namespace::Mount);
    if makes_private {
        make_private(steps);
    }
    for (number, one) in sandbox.mounts.iter().enumerate() {
        steps.places.binds_later = sandbox.mounts[number + 1..].iter().any(is_copy);
        match one {
            MountStep::Mount(one) => mount(steps, one),
            MountStep::ReadOnlyBind { source, target } => bind_read_only(steps, source, target),
            MountStep::Shown { source, target, set } => show(steps, source, target, *set),
            MountStep::Attributes { target, set, clear } => attributes(steps, target, *set, *clear),
            MountStep::FileSystem { kind, parameters, attributes, target } => {
                file_system(steps, kind, parameters, *attributes, target);
            }
            MountStep::Attach { target, .. } => {
                let tree = trees.next().map_or(-1, |number| *number);
                let object = format!("of a detached tree at {target:?}{}", steps.places.describe(target));
                let start = steps.ops.len();
                attach(steps, Arg::Number(tree as u64), &object, target, NOT_FOLLOWED);
                steps.belong(start);
                // The tree may be a copy of a shared mount: what is mounted below one would appear below the other.
                let attached = steps.ops.len();
                make_private(steps);
                steps.fail_as(None, attached);
            }
            MountStep::Unmount(target) => unmount(steps, target),
            MountStep::Directory { path, mode } => make_dir(steps, path, *mode),
            MountStep::MountPoint(path) => make_mount_point(steps, path),
            MountStep::Symlink { to, path } => symlink(steps, to, path),
            MountStep::Devices(target) => devices(steps, target),
            MountStep::Mode { path, mode } => files::set_mode(steps, path, *mode),
            MountStep::NewFile(content) => {
                let data = trees.next().map_or(-1, |number| *number);
                files::make_file(steps, content, Arg::Number(data as u64));
            }
        }
        steps.places.follow(one);
        steps.keep_root(one);
    }
    steps.leave_root();
    forget_before(steps);
    if makes_private {
        // If this fails as best effort, the mounts might appear in the caller's namespace, so none is made.
        steps.ops[start].skip = (steps.ops.len() - start - 1) as u32;
    }
}

/// The working directory may be below a new mount, which hides it: its path is entered again, unless the child leaves it for
/// another one. `before` the mounts, the child of a zygote enters it in its own mount namespace.
pub(super) fn enter_again(steps: &mut Steps<'_>, directory: Option<&Path>, before: bool) {
    let changes = |one: &MountStep| one.has_mount() || matches!(one, MountStep::Unmount(_));
    let leaves = directory.is_some_and(Path::is_absolute) || steps.sandbox.pivot_root.is_some();
    let leaves = leaves || steps.setup.chroot.is_some();
    if steps.sandbox.mounts.iter().any(changes) && !leaves {
        // It may not fail as best effort: the program would read what the mount hides.
        steps.ops.push(Op { a: before.into(), ..Op::new(OpCode::EnterAgain) });
    }
}

/// Cuts all mounts off from those that they are copies of.
fn make_private(steps: &mut Steps<'_>) {
    mount(steps, &Mount { source: None, target: "/".into(), kind: None, flags: MS_REC | MS_PRIVATE, data: None });
}

/// Whether the step would mount something else on the child's root directory. A process does not see a mount on top of that.
/// `/` may be bound on itself, as bwrap(1) needs it: that changes nothing, or makes it read-only.
pub(super) fn is_upon_root(places: &Places, one: &MountStep) -> bool {
    one.has_mount() && places.is_top(one.target()) && !bound(one).is_some_and(|source| places.is_top(source))
}

/// The source of a bind mount.
fn bound(one: &MountStep) -> Option<&Path> {
    match one {
        MountStep::Mount(Mount { source: Some(source), flags, .. })
            if flags & MS_BIND != 0 && flags & MS_REMOUNT == 0 =>
        {
            Some(Path::new(source))
        }
        MountStep::ReadOnlyBind { source, .. } | MountStep::Shown { source, .. } => Some(source),
        _ => None,
    }
}

/// Whether the step copies mounts of the caller.
fn is_copy(one: &MountStep) -> bool {
    bound(one).is_some() || matches!(one, MountStep::Devices(_))
}

/// Copies all mounts before the root becomes read-only or loses its devices: what is bound later must be as it was, as in
/// `--ro-bind / / --bind W W --dev /dev`.
fn keep_before(steps: &mut Steps<'_>, object: &str) {
    if steps.places.binds_later && steps.places.before.is_none() {
        let flags = OPEN_TREE_CLONE | AT_RECURSIVE | u64::from(uapi::O_CLOEXEC);
        let args = [HERE, steps.path(Path::new("/")), Arg::Number(flags)];
        steps.call_into(Step::Mount, object, uapi::__NR_open_tree, &args, Some(BEFORE));
        steps.places.before = Some(Before::Detached);
    }
}

/// Where the source of a bind mount is looked up. The copy of all mounts is mounted on the root, where no process sees
/// it: Linux before 6.15 copies nothing of a detached mount.
fn source_at(steps: &mut Steps<'_>, source: &Path, object: &str) -> [Arg; 2] {
    let Some(before) = steps.places.before.filter(|_| steps.places.inside(source).is_none()) else {
        return [HERE, steps.path(source)];
    };
    if before == Before::Detached {
        attach_at(steps, Arg::Variable(BEFORE), object, HERE, Path::new("/"), NOT_FOLLOWED);
        steps.places.before = Some(Before::Attached);
    }
    // A link to an absolute path would lead out of the copy.
    let path = std::path::absolute(source).and_then(|path| path.canonicalize().or(Ok(path)));
    let path = path.unwrap_or_else(|_| source.to_owned());
    let below = path.strip_prefix("/").ok().filter(|below| !below.as_os_str().is_empty());
    [Arg::Variable(BEFORE), steps.path(below.unwrap_or(Path::new(".")))]
}

/// Unmounts the copy of all mounts.
fn forget_before(steps: &mut Steps<'_>) {
    if steps.places.before == Some(Before::Attached) {
        steps.unmount_root(Arg::Variable(BEFORE), MNT_DETACH);
    }
}

/// `mount(2)` with the given path. Inside a root (`places.rs`) a path would not be safe: mounts are copied
/// and moved by descriptors, and everything else is mounted on the working directory.
fn mount(steps: &mut Steps<'_>, mount: &Mount) {
    let mut data = mount.data.as_deref().map(|text| text.as_bytes().to_owned());
    if mount.kind.as_deref().is_some_and(|kind| kind == OVERLAY) && steps.sandbox.has_new(Namespace::User) {
        // An overlay in a user namespace stores its attributes under names that the owner may set: overlayfs(5).
        data.get_or_insert_default().extend(b",userxattr");
    }
    let inside = steps.places.inside(&mount.target);
    let object = match (&mount.source, &mount.kind) {
        (Some(source), Some(kind)) => format!("{source:?} ({}) at {:?}", kind.to_string_lossy(), mount.target),
        (Some(source), None) => format!("{source:?} at {:?}", mount.target),
        (None, _) => format!("{:?} with flags {:#x}", mount.target, mount.flags),
    };
    let object = object + &steps.places.describe(&mount.target);
    if mount.flags & MS_BIND != 0 && mount.flags & MS_REMOUNT == 0 && steps.places.is_top(&mount.target) {
        // The root on itself. On top of the root, it would keep the program from making user namespaces.
        return;
    }
    let moves_trees = inside.is_some() || steps.places.before.is_some() && mount.flags & MS_BIND != 0;
    if let (Some(source), true) = (&mount.source, moves_trees && mount.flags & MS_REMOUNT == 0) {
        let recursive = if mount.flags & MS_REC != 0 { AT_RECURSIVE } else { 0 };
        if mount.flags & MS_BIND != 0 {
            return tree_at(steps, Path::new(source), OPEN_TREE_CLONE | recursive, 0, &object, &mount.target);
        } else if mount.flags & MS_MOVE != 0 {
            return tree_at(steps, Path::new(source), 0, 0, &object, &mount.target);
        }
    }
    let mut text = |text: Option<&[u8]>| text.map_or(NOTHING, |text| Arg::Data(steps.arena.data(text)));
    let here = Path::new(".");
    let target = if inside.is_some() { here } else { &mount.target };
    let args = [
        text(mount.source.as_deref().map(|text| text.as_bytes())),
        text(Some(target.as_os_str().as_bytes())),
        text(mount.kind.as_deref().map(|text| text.as_bytes())),
        Arg::Number(mount.flags),
        text(data.as_deref()),
    ];
    match inside {
        Some(inside) => steps.call_in(&object, &inside, Part::Directory, uapi::__NR_mount, &args),
        None => steps.call(Step::Mount, &object, uapi::__NR_mount, &args),
    }
}

/// A read-only recursive bind mount of `source` at `target`.
///
/// The copy becomes read-only while it is detached, so no process ever sees it writable. Each path is looked up once,
/// so no other process can replace it between two look-ups.
fn bind_read_only(steps: &mut Steps<'_>, source: &Path, target: &Path) {
    if steps.places.is_top(target) {
        // Of itself: see [`is_upon_root`]. The root mount itself is changed.
        return attributes(steps, target, ATTR_READ_ONLY, 0);
    }
    let object = format!("{source:?} at {target:?} read-only{}", steps.places.describe(target));
    tree_at(steps, source, OPEN_TREE_CLONE | AT_RECURSIVE, ATTR_READ_ONLY, &object, target);
}

/// A recursive bind mount of `source` at `target` with these attributes. The source's path was resolved before: a symbolic
/// link in it has replaced a part since, and is refused.
fn show(steps: &mut Steps<'_>, source: &Path, target: &Path, set: u64) {
    const RESOLVE_NO_SYMLINKS: u64 = 4;
    let object = format!("{source:?} at {target:?}{}", steps.places.describe(target));
    let start = steps.ops.len();
    let how = steps.arena.push_words(&[(uapi::O_PATH | uapi::O_CLOEXEC).into(), 0, RESOLVE_NO_SYMLINKS]);
    let args = [HERE, steps.path(source), Arg::Data(how), Arg::Number(24)];
    steps.call_again(Step::Mount, &object, uapi::__NR_openat2, &args, FILE);
    let (file, tree, nothing) = (Arg::Variable(FILE), Arg::Variable(TREE), steps.path(Path::new("")));
    let flags = OPEN_TREE_CLONE | AT_RECURSIVE | AT_EMPTY_PATH | u64::from(uapi::O_CLOEXEC);
    steps.call_into(Step::Mount, &object, uapi::__NR_open_tree, &[file, nothing, Arg::Number(flags)], Some(TREE));
    steps.close(Step::Mount, &object, file);
    set_attributes(steps, &object, [tree, nothing, Arg::Number(AT_EMPTY_PATH | AT_RECURSIVE)], set, 0);
    attach(steps, tree, &object, target, NOT_FOLLOWED);
    steps.close(Step::Mount, &object, tree);
    steps.belong(start);
}

/// Attaches the mount that `open_tree(2)` returns for these flags at `target`.
fn tree_at(steps: &mut Steps<'_>, source: &Path, flags: u64, set: u64, object: &str, target: &Path) {
    let start = steps.ops.len();
    let tree = Arg::Variable(TREE);
    let [directory, source] = match flags & OPEN_TREE_CLONE {
        0 => [HERE, steps.path(source)],
        _ => source_at(steps, source, object),
    };
    let args = [directory, source, Arg::Number(flags | u64::from(uapi::O_CLOEXEC))];
    steps.call_into(Step::Mount, object, uapi::__NR_open_tree, &args, Some(TREE));
    if set != 0 {
        let nothing = steps.path(Path::new(""));
        set_attributes(steps, object, [tree, nothing, Arg::Number(AT_EMPTY_PATH | AT_RECURSIVE)], set, 0);
    }
    attach(steps, tree, object, target, MOVE_MOUNT_T_SYMLINKS);
    steps.close(Step::Mount, object, tree);
    steps.belong(start);
}

fn attributes(steps: &mut Steps<'_>, target: &Path, set: u64, clear: u64) {
    let object = match (set, clear) {
        (ATTR_READ_ONLY, 0) => format!("{target:?} read-only"),
        _ => format!("{target:?} with attributes {set:#x}, without {clear:#x}"),
    };
    let object = object + &steps.places.describe(target);
    let start = steps.ops.len();
    match steps.places.inside(target) {
        Some(inside) => {
            let place = steps.open_inside(Step::Mount, &object, &inside, Part::Whole);
            let nothing = steps.path(Path::new(""));
            set_attributes(steps, &object, [place, nothing, Arg::Number(AT_EMPTY_PATH | AT_RECURSIVE)], set, clear);
            steps.close(Step::Mount, &object, place);
        }
        None => {
            if set != 0 && steps.places.is_top(target) {
                keep_before(steps, &object);
            }
            let path = steps.path(target);
            set_attributes(steps, &object, [HERE, path, Arg::Number(AT_RECURSIVE)], set, clear);
        }
    }
    steps.belong(start);
}

/// Sets and clears attributes of a mount. `at`: directory, path and flags.
fn set_attributes(steps: &mut Steps<'_>, object: &str, at: [Arg; 3], set: u64, clear: u64) {
    // struct mount_attr: set, clear, propagation, user namespace.
    let attributes = Arg::Data(steps.arena.push_words(&[set, clear, 0, 0]));
    let [directory, path, flags] = at;
    let args = [directory, path, flags, attributes, Arg::Number(32)];
    steps.call(Step::Mount, object, uapi::__NR_mount_setattr, &args);
}

fn unmount(steps: &mut Steps<'_>, target: &Path) {
    const UMOUNT_NOFOLLOW: u64 = 8;
    let object = format!("(umount2) at {target:?}{}", steps.places.describe(target));
    match steps.places.inside(target) {
        Some(inside) => {
            let args = [steps.last_name(&inside), Arg::Number(MNT_DETACH | UMOUNT_NOFOLLOW)];
            steps.call_in(&object, &inside, Part::Parent, uapi::__NR_umount2, &args);
        }
        None => {
            let args = [steps.path(target), Arg::Number(MNT_DETACH)];
            steps.call(Step::Mount, &object, uapi::__NR_umount2, &args);
        }
    }
}

fn file_system(
    steps: &mut Steps<'_>,
    kind: &str,
    parameters: &[(String, Option<OsString>)],
    attributes: u64,
    target: &Path,
) {
    let start = steps.ops.len();
    configure(
        steps,
        target,
        kind,
        parameters.iter().map(|(key, value)| (key.as_str(), value.as_ref().map(|v| v.as_bytes()))),
    );
    let object = format!("{kind:?} at {target:?}{}", steps.places.describe(target));
    create(steps, &object, attributes, TREE);
    attach(steps, Arg::Variable(TREE), &object, target, NOT_FOLLOWED);
    steps.close(Step::Mount, &object, Arg::Variable(TREE));
    steps.belong(start);
}

/// Creates a file-system context in the variable `CONTEXT`, and sets its parameters.
fn configure<'a>(
    steps: &mut Steps<'_>,
    target: &Path,
    kind: &str,
    parameters: impl Iterator<Item = (&'a str, Option<&'a [u8]>)>,
) {
    const FSOPEN_CLOEXEC: u64 = 1;
    const FSCONFIG_SET_FLAG: u64 = 0;
    const FSCONFIG_SET_STRING: u64 = 1;
    const FSCONFIG_CMD_CREATE: u64 = 6;
    let context = Arg::Variable(CONTEXT);
    let name = Arg::Data(steps.arena.data(kind.as_bytes()));
    let open = [name, Arg::Number(FSOPEN_CLOEXEC)];
    steps.call_into(Step::Mount, &format!("a file system {kind:?}"), uapi::__NR_fsopen, &open, Some(CONTEXT));
    for (key, value) in parameters {
        let name = Arg::Data(steps.arena.data(key.as_bytes()));
        let (command, value, shown) = match value {
            Some(value) => {
                let shown = format!("{:?}", std::ffi::OsStr::from_bytes(value));
                (FSCONFIG_SET_STRING, Arg::Data(steps.arena.data(value)), shown)
            }
            None => (FSCONFIG_SET_FLAG, NOTHING, "set".into()),
        };
        let args = [context, Arg::Number(command), name, value, NOTHING];
        let object = format!("{kind:?} at {target:?} with the parameter {key:?} {shown}");
        steps.call(Step::Mount, &object, uapi::__NR_fsconfig, &args);
    }
    let create = [context, Arg::Number(FSCONFIG_CMD_CREATE), NOTHING, NOTHING, NOTHING];
    steps.call(Step::Mount, &format!("{kind:?} at {target:?} with these parameters"), uapi::__NR_fsconfig, &create);
}

/// Creates a detached mount of the file system of [`configure`], in the variable `tree`.
fn create(steps: &mut Steps<'_>, object: &str, attributes: u64, tree: u32) {
    const FSMOUNT_CLOEXEC: u64 = 1;
    let args = [Arg::Variable(CONTEXT), Arg::Number(FSMOUNT_CLOEXEC), Arg::Number(attributes)];
    steps.call_into(Step::Mount, object, uapi::__NR_fsmount, &args, Some(tree));
    steps.close(Step::Mount, object, Arg::Variable(CONTEXT));
}

const MOVE_MOUNT_F_EMPTY_PATH: u64 = 4;
const MOVE_MOUNT_T_SYMLINKS: u64 = 0x10;
const MOVE_MOUNT_T_EMPTY_PATH: u64 = 0x40;
const NOT_FOLLOWED: u64 = 0;

/// `follow`: whether to follow a symbolic link at the end of the target's path, if it is not looked up inside a root.
fn attach(steps: &mut Steps<'_>, tree: Arg, object: &str, target: &Path, follow: u64) {
    match steps.places.inside(target) {
        Some(inside) => {
            let place = steps.open_inside(Step::Mount, object, &inside, Part::Whole);
            let nothing = steps.path(Path::new(""));
            let flags = Arg::Number(MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
            let args = [tree, nothing, place, nothing, flags];
            steps.call(Step::Mount, object, uapi::__NR_move_mount, &args);
            steps.close(Step::Mount, object, place);
        }
        None => attach_at(steps, tree, object, HERE, target, follow),
    }
}

/// The same, at a path relative to an open directory.
fn attach_at(steps: &mut Steps<'_>, tree: Arg, object: &str, directory: Arg, path: &Path, follow: u64) {
    let nothing = steps.path(Path::new(""));
    let path = steps.path(path);
    let args = [tree, nothing, directory, path, Arg::Number(MOVE_MOUNT_F_EMPTY_PATH | follow)];
    steps.call(Step::Mount, object, uapi::__NR_move_mount, &args);
}

fn make_dir(steps: &mut Steps<'_>, target: &Path, mode: u32) {
    make(steps, Step::MakeDir, &format!("{target:?}"), target, |steps, object, directory, name| {
        make_dir_at(steps, object, directory, name, mode);
    });
}

/// Makes an empty file to mount upon. An existing file stays as it is: it may be one of the host.
fn make_mount_point(steps: &mut Steps<'_>, target: &Path) {
    make(steps, Step::Mount, &format!("a mount point at {target:?}"), target, |steps, object, directory, name| {
        let args = [directory, name, Arg::Number(REGULAR_FILE), NOTHING];
        steps.call_unless(Step::Mount, object, uapi::__NR_mknodat, &args, errno::EEXIST);
    });
}

fn make_dir_at(steps: &mut Steps<'_>, object: &str, directory: Arg, name: Arg, mode: u32) {
    let args = [directory, name, Arg::Number(mode.into())];
    steps.call_unless(Step::MakeDir, object, uapi::__NR_mkdirat, &args, errno::EEXIST);
}

fn symlink(steps: &mut Steps<'_>, to: &Path, at: &Path) {
    make(steps, Step::Symlink, &format!("{at:?} to {to:?}"), at, |steps, object, directory, name| {
        symlink_at(steps, object, to, directory, name);
    });
}

fn symlink_at(steps: &mut Steps<'_>, object: &str, to: &Path, directory: Arg, name: Arg) {
    let args = [steps.path(to), directory, name];
    steps.call(Step::Symlink, object, uapi::__NR_symlinkat, &args);
}

/// Makes a file by a call that takes a directory and a name, and does not follow a symbolic link there.
fn make(
    steps: &mut Steps<'_>,
    step: Step,
    object: &str,
    path: &Path,
    call: impl FnOnce(&mut Steps<'_>, &str, Arg, Arg),
) {
    let object = object.to_owned() + &steps.places.describe(path);
    let start = steps.ops.len();
    match steps.places.inside(path) {
        Some(inside) => {
            let directory = steps.open_inside(step, &object, &inside, Part::Parent);
            let name = steps.last_name(&inside);
            call(steps, &object, directory, name);
            steps.close(step, &object, directory);
        }
        None => {
            let path = steps.path(path);
            call(steps, &object, HERE, path);
        }
    }
    steps.belong(start);
}

/// The caller's devices are first copied as detached mounts, because the new file system may hide them. Everything in
/// the new file system is made relative to its descriptor.
fn devices(steps: &mut Steps<'_>, target: &Path) {
    const LINKS: [(&str, &str); 5] = [
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
        ("pts/ptmx", "ptmx"),
    ];
    let start = steps.ops.len();
    // A machine or a container may lack some of the devices: these are skipped.
    let there: Vec<_> =
        (FIRST..).zip(DEVICES.into_iter().filter(|name| Path::new("/dev").join(name).exists())).collect();
    for &(variable, name) in &there {
        let object = format!("of /dev/{name}");
        let [from, source] = source_at(steps, &Path::new("/dev").join(name), &object);
        let args = [from, source, Arg::Number(OPEN_TREE_CLONE | u64::from(uapi::O_CLOEXEC))];
        steps.call_into(Step::Mount, &object, uapi::__NR_open_tree, &args, Some(variable));
    }
    let directory = Arg::Variable(TREE);
    let object = format!("\"tmpfs\" (tmpfs) at {target:?}{}", steps.places.describe(target));
    configure(steps, target, "tmpfs", [("mode", Some(&b"755"[..]))].into_iter());
    create(steps, &object, ATTR_NO_SUID | ATTR_STRICT_ATIME, TREE);
    attach(steps, directory, &object, target, MOVE_MOUNT_T_SYMLINKS);
    for &(variable, name) in &there {
        let place = target.join(name);
        let object = format!("of /dev/{name} at {place:?}");
        let args = [directory, steps.path(Path::new(name)), Arg::Number(REGULAR_FILE), NOTHING];
        steps.call(Step::Mount, &object, uapi::__NR_mknodat, &args);
        attach_at(steps, Arg::Variable(variable), &object, directory, Path::new(name), NOT_FOLLOWED);
        steps.close(Step::Mount, &object, Arg::Variable(variable));
    }
    for (to, name) in LINKS {
        let at = steps.path(Path::new(name));
        symlink_at(steps, &format!("{:?} to {to:?}", target.join(name)), Path::new(to), directory, at);
    }
    let (shm, shared) = (steps.path(Path::new("shm")), target.join("shm"));
    make_dir_at(steps, &format!("{shared:?}"), directory, shm, 0o1777);
    // mkdirat(2) has applied the umask.
    let args = [directory, shm, Arg::Number(0o1777)];
    steps.call(Step::MakeDir, &format!("{shared:?} with mode 1777"), uapi::__NR_fchmodat, &args);
    terminals(steps, directory, &target.join("pts"));
    steps.close(Step::Mount, &object, directory);
    steps.belong(start);
    // If a link or a directory fails as best effort, the other steps still run.
    let is_mount = |op: &&mut Op| op.b == Step::Mount.code();
    steps.ops[start..].iter_mut().filter(|op| !is_mount(op)).for_each(|op| op.skip = 0);
}

/// A new devpts at `pts` in this directory. `place`: its path, for errors.
fn terminals(steps: &mut Steps<'_>, directory: Arg, place: &Path) {
    let pts = Path::new("pts");
    let name = steps.path(pts);
    make_dir_at(steps, &format!("{place:?}"), directory, name, 0o755);
    let object = format!("\"devpts\" (devpts) at {place:?}");
    configure(steps, place, "devpts", [("ptmxmode", Some(&b"0666"[..])), ("mode", Some(&b"620"[..]))].into_iter());
    create(steps, &object, ATTR_NO_SUID | ATTR_NO_EXEC, SECOND_TREE);
    attach_at(steps, Arg::Variable(SECOND_TREE), &object, directory, pts, NOT_FOLLOWED);
    steps.close(Step::Mount, &object, Arg::Variable(SECOND_TREE));
}

/// Changes the root of the mount namespace without a directory for the old root: pivot_root(2), "pivot_root(".",
/// ".")".
pub(super) fn pivot_root(steps: &mut Steps<'_>) {
    let Some(root) = &steps.sandbox.pivot_root else { return };
    let object = format!("{root:?}{}", steps.places.describe(root));
    let here = Arg::Data(steps.arena.data(b"."));
    let start = steps.ops.len();
    steps.enter(Step::Chdir, &object, root);
    steps.call(Step::PivotRoot, &object, uapi::__NR_pivot_root, &[here, here]);
    steps.call(Step::PivotRoot, &object, uapi::__NR_umount2, &[here, Arg::Number(MNT_DETACH)]);
    // The first of these calls is a chdir(2). A program that may run elsewhere may not run in the old root.
    steps.fail_as(Some(Step::PivotRoot), start);
    steps.belong(start);
    setup::enter_root(steps);
}

#[cfg(test)]
mod tests {
    use crate::plan::compile::compile;
    use crate::{Command, Namespace};
    use forkless_core::plan::{argument_is_offset, argument_is_variable};
    use forkless_core::sys::uapi;
    use std::path::Path;

    /// The system calls of the mounts, after the one that makes all mounts private, each with its strings and
    /// variables.
    fn calls(set: impl FnOnce(&mut Command)) -> Vec<(u32, Vec<String>)> {
        let mut command = Command::new("/bin/true");
        set(command.unshare(Namespace::Mount));
        let plan = compile(&command, true).expect("a plan");
        let calls = plan.steps().filter(|op| op.b == crate::Step::Mount.code()).filter_map(|op| plan.call(op)).skip(1);
        let all = calls.map(|call| {
            let named = (0..6).filter_map(|n| match call.flags {
                flags if flags & argument_is_variable(n) != 0 => Some(format!("${}", call.args[n as usize])),
                flags if flags & argument_is_offset(n) != 0 => Some(plan.text(call.args[n as usize] as u32)),
                _ => None,
            });
            (call.number, named.collect())
        });
        all.collect()
    }

    fn count(calls: &[(u32, Vec<String>)], name: &str) -> usize {
        calls.iter().flat_map(|(_, named)| named).filter(|one| *one == name).count()
    }

    #[test]
    fn a_read_only_bind_names_each_path_once_and_is_read_only_before_it_is_attached() {
        let calls = calls(|command| _ = command.bind_read_only("/a", "/b"));
        let numbers: Vec<u32> = calls.iter().map(|(number, _)| *number).collect();
        let wanted = [uapi::__NR_open_tree, uapi::__NR_mount_setattr, uapi::__NR_move_mount, uapi::__NR_close];
        assert_eq!(numbers, wanted);
        assert_eq!((count(&calls, "/a"), count(&calls, "/b")), (1, 1), "{calls:?}");
        let tree = &calls[1].1[0];
        assert!(tree.starts_with('$') && calls[2].1[0] == *tree, "one descriptor: {calls:?}");
    }

    #[test]
    fn below_the_new_root_no_path_is_looked_up_outside() {
        let new = Path::new("/new/root");
        let below = calls(|command| {
            command
                .bind("/x", new)
                .tmpfs("/new/root/a/b", "")
                .bind_read_only("/x", new.join("c"))
                .devices(new.join("dev"));
            command.read_only(new.join("d")).unmount(new.join("e/f")).pivot_root(new);
        });
        let whole = |name: &&String| name.starts_with("/new/root/");
        assert_eq!(below.iter().flat_map(|(_, named)| named).find(whole), None);
        for part in ["a/b", "c", "dev", "d", "e"] {
            let found = below.iter().find(|(_, named)| named.iter().any(|one| one == part));
            assert_eq!(found.map(|(number, _)| *number), Some(uapi::__NR_openat2), "{part}: {below:?}");
        }
        assert_eq!(count(&below, "/new/root"), 6, "the root itself, each time: {below:?}");
    }

    #[test]
    fn paths_are_compared_however_they_are_written() {
        for target in ["/m/./x", "//m//x", "/m/y/../x", "/n/../m/x"] {
            let calls = calls(|command| _ = command.bind("/a", "/m/").tmpfs(target, ""));
            assert_eq!(count(&calls, "x"), 1, "{target}: {calls:?}");
        }
        for target in ["/mm/x", "/m/../x", "/x/m"] {
            let calls = calls(|command| _ = command.bind("/a", "/m").tmpfs(target, ""));
            assert_eq!(count(&calls, target), 1, "{target}: {calls:?}");
        }
        // The innermost mount counts, and unmounted ones do not.
        let inner = calls(|command| _ = command.bind("/a", "/m").bind("/b", "/m/n").tmpfs("/m/n/x", ""));
        assert_eq!((count(&inner, "n"), count(&inner, "x"), count(&inner, "n/x")), (2, 1, 0), "{inner:?}");
        let gone = calls(|command| _ = command.bind("/a", "/m").bind("/b", "/m/n").unmount("/m").tmpfs("/m/n/x", ""));
        assert_eq!(count(&gone, "/m/n/x"), 1, "{gone:?}");
        // Relative paths start from the working directory.
        let here = std::env::current_dir().expect("a directory").join("m");
        let relative = calls(|command| _ = command.bind("/a", here).tmpfs("m/x", ""));
        assert_eq!(count(&relative, "x"), 1, "{relative:?}");
    }

    #[test]
    fn sources_that_another_directory_would_change_are_refused() {
        let refused = |lower: &str, upper: Option<(&Path, &Path)>| {
            let mut command = Command::new("/bin/true");
            command.unshare(Namespace::Mount).bind("/a", "/m").overlay(
                &lower.split(' ').collect::<Vec<_>>(),
                upper,
                "/m/x",
            );
            compile(&command, true).is_err()
        };
        assert!(!refused("/a /b:c /d,e", None));
        assert!(!refused("/a", Some((Path::new("/u"), Path::new("/w")))));
        assert!(refused("a", None) && refused("/a b", None) && refused("/a ./b", None));
        assert!(refused("/a", Some((Path::new("u"), Path::new("/w")))));
        assert!(refused("/a", Some((Path::new("/u"), Path::new("w")))));
    }
}
