//! The functions that fill `posix_spawn_file_actions_t` and `posix_spawnattr_t`.
//!
//! They return an errno and leave `errno` unchanged, as libc's functions do. Memory is allocated with libc's malloc, so
//! that either library may free it.

use super::layout::{self, Action, Actions, Attributes, Open, What};
use crate::next;
use libc::{c_char, c_int, c_short, mode_t, pid_t, sched_param, sigset_t};
use std::mem::{size_of, zeroed};

pub(crate) const RESETIDS: c_short = 0x01;
pub(crate) const SETPGROUP: c_short = 0x02;
pub(crate) const SETSIGDEF: c_short = 0x04;
pub(crate) const SETSIGMASK: c_short = 0x08;
pub(crate) const SETSCHEDPARAM: c_short = 0x10;
pub(crate) const SETSCHEDULER: c_short = 0x20;
pub(crate) const USEVFORK: c_short = 0x40;
pub(crate) const SETSID: c_short = 0x80;
pub(crate) const SETCGROUP: c_short = 0x100;
/// The flags that all versions of glibc support.
const COMMON: c_short =
    RESETIDS | SETPGROUP | SETSIGDEF | SETSIGMASK | SETSCHEDPARAM | SETSCHEDULER | USEVFORK | SETSID;

pub(crate) unsafe extern "C" fn actions_init(actions: *mut Actions) -> c_int {
    // SAFETY: the caller's object, for which all zeroes is empty.
    unsafe { actions.write(zeroed()) };
    0
}

pub(crate) unsafe extern "C" fn actions_destroy(actions: *mut Actions) -> c_int {
    // SAFETY: an initialized object; strings and list were allocated by libc.
    unsafe {
        for n in 0..usize::try_from((*actions).used).unwrap_or(0) {
            let action = &*(*actions).first.add(n);
            match action.tag {
                layout::OPEN => libc::free(action.what.open.path.cast()),
                layout::CHDIR => libc::free(action.what.path.cast()),
                _ => {}
            }
        }
        libc::free((*actions).first.cast());
    }
    0
}

/// Whether the number is below the limit of open files.
fn is_valid(fd: c_int) -> bool {
    // SAFETY: _SC_OPEN_MAX is a valid name.
    let limit = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
    fd >= 0 && (limit < 0 || i64::from(fd) < limit)
}

/// # Safety
/// The object was initialised.
unsafe fn add(actions: *mut Actions, tag: c_int, what: What) -> c_int {
    // SAFETY: the caller's object; the list has room for `allocated`.
    unsafe {
        let actions = &mut *actions;
        if actions.used == actions.allocated {
            let room = actions.allocated + 8;
            let bytes = room as usize * size_of::<Action>();
            let list = libc::realloc(actions.first.cast(), bytes).cast::<Action>();
            if list.is_null() {
                return libc::ENOMEM;
            }
            (actions.first, actions.allocated) = (list, room);
        }
        actions.first.add(actions.used as usize).write(Action { tag, what });
        actions.used += 1;
    }
    0
}

/// An action with one descriptor.
///
/// # Safety
/// The object is initialized.
unsafe fn add_one(actions: *mut Actions, tag: c_int, fd: c_int) -> c_int {
    if !is_valid(fd) {
        return libc::EBADF;
    }
    // SAFETY: the caller's contract.
    unsafe { add(actions, tag, What { numbers: [fd, 0] }) }
}

/// An action with a path, which is copied.
///
/// # Safety
/// The object is initialized, and the path is a string.
unsafe fn add_path(
    actions: *mut Actions,
    tag: c_int,
    path: *const c_char,
    what: impl FnOnce(*mut c_char) -> What,
) -> c_int {
    // SAFETY: the caller's string and object; the copy is owned here until it is in the list.
    unsafe {
        let copy = libc::strdup(path);
        if copy.is_null() {
            return libc::ENOMEM;
        }
        let error = add(actions, tag, what(copy));
        if error != 0 {
            libc::free(copy.cast());
        }
        error
    }
}

pub(crate) unsafe extern "C" fn actions_addclose(actions: *mut Actions, fd: c_int) -> c_int {
    // SAFETY: posix_spawn_file_actions_addclose(3)'s contract.
    unsafe { add_one(actions, layout::CLOSE, fd) }
}

pub(crate) unsafe extern "C" fn actions_adddup2(actions: *mut Actions, fd: c_int, new: c_int) -> c_int {
    if !is_valid(fd) || !is_valid(new) {
        return libc::EBADF;
    }
    // SAFETY: posix_spawn_file_actions_adddup2(3)'s contract.
    unsafe { add(actions, layout::DUP2, What { numbers: [fd, new] }) }
}

pub(crate) unsafe extern "C" fn actions_addopen(
    actions: *mut Actions,
    fd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    if !is_valid(fd) {
        return libc::EBADF;
    }
    // SAFETY: posix_spawn_file_actions_addopen(3)'s contract.
    unsafe { add_path(actions, layout::OPEN, path, |path| What { open: Open { fd, path, flags, mode } }) }
}

pub(crate) unsafe extern "C" fn actions_addchdir(actions: *mut Actions, path: *const c_char) -> c_int {
    // SAFETY: posix_spawn_file_actions_addchdir_np(3)'s contract.
    unsafe { add_path(actions, layout::CHDIR, path, |path| What { path }) }
}

pub(crate) unsafe extern "C" fn actions_addfchdir(actions: *mut Actions, fd: c_int) -> c_int {
    // glibc does not check this descriptor.
    // SAFETY: posix_spawn_file_actions_addfchdir_np(3)'s contract.
    unsafe { add(actions, layout::FCHDIR, What { numbers: [fd, 0] }) }
}

pub(crate) unsafe extern "C" fn actions_addclosefrom(actions: *mut Actions, from: c_int) -> c_int {
    // SAFETY: posix_spawn_file_actions_addclosefrom_np(3)'s contract.
    unsafe { add_one(actions, layout::CLOSEFROM, from) }
}

pub(crate) unsafe extern "C" fn actions_addtcsetpgrp(actions: *mut Actions, fd: c_int) -> c_int {
    // SAFETY: posix_spawn_file_actions_addtcsetpgrp_np(3)'s contract.
    unsafe { add_one(actions, layout::TCSETPGRP, fd) }
}

pub(crate) unsafe extern "C" fn attr_init(attributes: *mut Attributes) -> c_int {
    // SAFETY: the caller's object, for which all zeroes is the default.
    unsafe { attributes.write(zeroed()) };
    0
}

pub(crate) unsafe extern "C" fn attr_destroy(_: *mut Attributes) -> c_int {
    0
}

pub(crate) unsafe extern "C" fn attr_setflags(attributes: *mut Attributes, flags: c_short) -> c_int {
    // glibc has POSIX_SPAWN_SETCGROUP since 2.39.
    let known = if next::attr_setcgroup_np().is_some() { COMMON | SETCGROUP } else { COMMON };
    if flags & !known != 0 {
        return libc::EINVAL;
    }
    // SAFETY: the caller's object.
    unsafe { (*attributes).flags = flags };
    0
}

pub(crate) unsafe extern "C" fn attr_setschedpolicy(attributes: *mut Attributes, policy: c_int) -> c_int {
    if ![libc::SCHED_OTHER, libc::SCHED_FIFO, libc::SCHED_RR].contains(&policy) {
        return libc::EINVAL;
    }
    // SAFETY: the caller's object.
    unsafe { (*attributes).policy = policy };
    0
}

/// Functions for values that are passed by address.
macro_rules! object {
    ($($get:ident $($set:ident)? => $field:ident: $type:ty;)*) => {$(
        pub(crate) unsafe extern "C" fn $get(attributes: *const Attributes, value: *mut $type) -> c_int {
            // SAFETY: the caller's object and a valid pointer.
            unsafe { value.write((*attributes).$field) };
            0
        }

        $(pub(crate) unsafe extern "C" fn $set(attributes: *mut Attributes, value: *const $type) -> c_int {
            // SAFETY: the caller's object and value.
            unsafe { (*attributes).$field = value.read() };
            0
        })?
    )*};
}

object! {
    attr_getsigdefault attr_setsigdefault => default: sigset_t;
    attr_getsigmask attr_setsigmask => mask: sigset_t;
    attr_getflags => flags: c_short;
    attr_getschedpolicy => policy: c_int;
    attr_getschedparam attr_setschedparam => param: sched_param;
}

/// Functions for values that are passed directly.
macro_rules! value {
    ($($get:ident $set:ident $field:ident: $type:ty;)*) => {$(
        pub(crate) unsafe extern "C" fn $get(attributes: *const Attributes, value: *mut $type) -> c_int {
            // SAFETY: the caller's object and a valid pointer.
            unsafe { value.write((*attributes).$field) };
            0
        }

        pub(crate) unsafe extern "C" fn $set(attributes: *mut Attributes, value: $type) -> c_int {
            // SAFETY: the caller's object.
            unsafe { (*attributes).$field = value };
            0
        }
    )*};
}

value! {
    attr_getpgroup attr_setpgroup pgrp: pid_t;
    attr_getcgroup attr_setcgroup cgroup: c_int;
}
