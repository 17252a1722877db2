//! Files among the mounts: modes, and files with content. `forkless run` has these for command lines of bwrap(1).

use super::{
    AT_EMPTY_PATH, ATTR_NO_SUID, FILE, NOT_FOLLOWED, NOTHING, OPEN_TREE_CLONE, SECOND_TREE, TREE, attach, configure,
    create, make, set_attributes, unmount,
};
use crate::plan::compile::arena::Arg;
use crate::plan::compile::setup::Steps;
use crate::request::command::{FilePlace, NewFile};
use crate::step::Step;
use forkless_core::sys::uapi;
use std::path::Path;

/// Does not follow a symbolic link at the end of the path, because it could lead out of the new root.
pub(super) fn set_mode(steps: &mut Steps<'_>, path: &Path, mode: u32) {
    const FLAGS: u32 = uapi::O_NOFOLLOW | uapi::O_NONBLOCK | uapi::O_CLOEXEC;
    make(steps, Step::Mount, &format!("mode {mode:o} of {path:?}"), path, |steps, object, directory, name| {
        let args = [directory, name, Arg::Number(FLAGS.into())];
        steps.call_into(Step::Mount, object, uapi::__NR_openat, &args, Some(FILE));
        steps.call(Step::Mount, object, uapi::__NR_fchmod, &[Arg::Variable(FILE), Arg::Number(mode.into())]);
        steps.close(Step::Mount, object, Arg::Variable(FILE));
    });
}

pub(super) fn make_file(steps: &mut Steps<'_>, content: &NewFile, data: Arg) {
    let path = &content.path;
    let object = format!("content of {path:?}");
    match content.place {
        FilePlace::Path => make(steps, Step::Mount, &object, path, |steps, object, directory, name| {
            write(steps, object, content, data, [directory, name]);
        }),
        FilePlace::Mounted(attributes) => mount_file(steps, &object, content, data, attributes),
    }
}

/// Writes a file. Its mode does not depend on the umask.
fn write(steps: &mut Steps<'_>, object: &str, content: &NewFile, data: Arg, [directory, name]: [Arg; 2]) {
    const FLAGS: u32 = uapi::O_WRONLY | uapi::O_CREAT | uapi::O_TRUNC | uapi::O_NOFOLLOW | uapi::O_CLOEXEC;
    let (file, mode) = (Arg::Variable(FILE), Arg::Number(content.mode.into()));
    let args = [directory, name, Arg::Number(FLAGS.into()), Arg::Number(0o600)];
    steps.call_into(Step::Mount, object, uapi::__NR_openat, &args, Some(FILE));
    steps.call(Step::Mount, object, uapi::__NR_lseek, &[data, NOTHING, NOTHING]);
    if content.length > 0 {
        let args = [file, data, NOTHING, Arg::Number(content.length as u64)];
        // A full file system makes the first call short, and the second one an error.
        steps.call(Step::Mount, object, uapi::__NR_sendfile, &args);
        steps.call(Step::Mount, object, uapi::__NR_sendfile, &args);
    }
    steps.call(Step::Mount, object, uapi::__NR_fchmod, &[file, mode]);
    steps.close(Step::Mount, object, file);
}

/// A tmpfs with the file is mounted on the directory of the path for a moment: the kernel copies only mounts that are
/// attached. Then the copy of the file alone is mounted on the path.
fn mount_file(steps: &mut Steps<'_>, object: &str, content: &NewFile, data: Arg, attributes: u64) {
    let start = steps.ops.len();
    let (tree, file) = (Arg::Variable(TREE), Arg::Variable(SECOND_TREE));
    let object = &format!("{object}{}", steps.places.describe(&content.path));
    let parent = content.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    configure(steps, &content.path, "tmpfs", [("mode", Some(&b"755"[..]))].into_iter());
    create(steps, object, ATTR_NO_SUID, TREE);
    let name = steps.path(Path::new("content"));
    write(steps, object, content, data, [tree, name]);
    attach(steps, tree, object, parent, NOT_FOLLOWED);
    let args = [tree, name, Arg::Number(OPEN_TREE_CLONE | u64::from(uapi::O_CLOEXEC))];
    steps.call_into(Step::Mount, object, uapi::__NR_open_tree, &args, Some(SECOND_TREE));
    unmount(steps, parent);
    steps.close(Step::Mount, object, tree);
    let nothing = steps.path(Path::new(""));
    set_attributes(steps, object, [file, nothing, Arg::Number(AT_EMPTY_PATH)], attributes, 0);
    attach(steps, file, object, &content.path, NOT_FOLLOWED);
    steps.close(Step::Mount, object, file);
    steps.belong(start);
}
