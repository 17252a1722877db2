//! The exported functions: only names of libc. `c/` defines some more of them.

use crate::spawn::layout::{self, Actions, Attributes};
use crate::spawn::{self, Call, objects};
use crate::{next, popen};
use libc::{FILE, c_char, c_int, c_short, mode_t, pid_t, sched_param, sigset_t};

/// # Safety
/// `popen(3)`
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's contract.
    unsafe { popen::popen(command, mode) }
}

/// A function that starts a program. posix_spawn and posix_spawnp have two versions each; `c/versions.S` defines those
/// symbols.
macro_rules! spawns {
    ($($name:ident => $libc:expr, $words:literal, $searches:literal, $takes_scripts:literal, $gives_pidfd:literal;)*) => {$(
        /// # Safety
        /// `posix_spawn(3)`
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            out: *mut c_int,
            file: *const c_char,
            actions: *const Actions,
            attributes: *const Attributes,
            argv: *const *const c_char,
            envp: *const *const c_char,
        ) -> c_int {
            let call = Call {
                name: $words,
                searches: $searches,
                takes_scripts: $takes_scripts,
                gives_pidfd: $gives_pidfd,
                libc: || $libc,
                out,
                file,
                actions,
                attributes,
                argv,
                envp,
            };
            // SAFETY: the caller's contract.
            unsafe { spawn::spawn(&call) }
        }
    )*};
}

spawns! {
    forkless_preload_posix_spawn => next::posix_spawn(), "posix_spawn", false, false, false;
    forkless_preload_posix_spawnp => next::posix_spawnp(), "posix_spawnp", true, false, false;
    forkless_preload_posix_spawn_old => next::posix_spawn_old(), "posix_spawn", false, true, false;
    forkless_preload_posix_spawnp_old => next::posix_spawnp_old(), "posix_spawnp", true, true, false;
    pidfd_spawn => next::pidfd_spawn(), "pidfd_spawn", false, false, true;
    pidfd_spawnp => next::pidfd_spawnp(), "pidfd_spawnp", true, false, true;
}

/// A function that fills or reads an object. It calls libc's own if the layout of the object is unknown.
macro_rules! objects {
    ($($name:ident($object:ident: $kind:ty $(, $arg:ident: $type:ty)*) => $function:ident;)*) => {$(
        /// # Safety
        /// As its manual page says.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($object: $kind $(, $arg: $type)*) -> c_int {
            type Libc = unsafe extern "C" fn($kind $(, $type)*) -> c_int;
            // SAFETY: the caller's contract; libc's function of this name has this type.
            unsafe {
                if layout::is_known($object) {
                    return objects::$function($object $(, $arg)*);
                }
                match next::look_up(concat!(stringify!($name), "\0"), None) {
                    0 => libc::ENOSYS,
                    libc => std::mem::transmute::<usize, Libc>(libc)($object $(, $arg)*),
                }
            }
        }
    )*};
}

objects! {
    posix_spawn_file_actions_init(actions: *mut Actions) => actions_init;
    posix_spawn_file_actions_destroy(actions: *mut Actions) => actions_destroy;
    posix_spawn_file_actions_addclose(actions: *mut Actions, fd: c_int) => actions_addclose;
    posix_spawn_file_actions_adddup2(actions: *mut Actions, fd: c_int, new: c_int) => actions_adddup2;
    posix_spawn_file_actions_addopen(
        actions: *mut Actions, fd: c_int, path: *const c_char, flags: c_int, mode: mode_t
    ) => actions_addopen;
    posix_spawn_file_actions_addchdir_np(actions: *mut Actions, path: *const c_char) => actions_addchdir;
    posix_spawn_file_actions_addfchdir_np(actions: *mut Actions, fd: c_int) => actions_addfchdir;
    posix_spawn_file_actions_addclosefrom_np(actions: *mut Actions, from: c_int) => actions_addclosefrom;
    posix_spawn_file_actions_addtcsetpgrp_np(actions: *mut Actions, fd: c_int) => actions_addtcsetpgrp;
    posix_spawnattr_init(attributes: *mut Attributes) => attr_init;
    posix_spawnattr_destroy(attributes: *mut Attributes) => attr_destroy;
    posix_spawnattr_getflags(attributes: *const Attributes, flags: *mut c_short) => attr_getflags;
    posix_spawnattr_setflags(attributes: *mut Attributes, flags: c_short) => attr_setflags;
    posix_spawnattr_getpgroup(attributes: *const Attributes, group: *mut pid_t) => attr_getpgroup;
    posix_spawnattr_setpgroup(attributes: *mut Attributes, group: pid_t) => attr_setpgroup;
    posix_spawnattr_getsigdefault(attributes: *const Attributes, set: *mut sigset_t) => attr_getsigdefault;
    posix_spawnattr_setsigdefault(attributes: *mut Attributes, set: *const sigset_t) => attr_setsigdefault;
    posix_spawnattr_getsigmask(attributes: *const Attributes, set: *mut sigset_t) => attr_getsigmask;
    posix_spawnattr_setsigmask(attributes: *mut Attributes, set: *const sigset_t) => attr_setsigmask;
    posix_spawnattr_getschedparam(attributes: *const Attributes, param: *mut sched_param) => attr_getschedparam;
    posix_spawnattr_setschedparam(attributes: *mut Attributes, param: *const sched_param) => attr_setschedparam;
    posix_spawnattr_getschedpolicy(attributes: *const Attributes, policy: *mut c_int) => attr_getschedpolicy;
    posix_spawnattr_setschedpolicy(attributes: *mut Attributes, policy: c_int) => attr_setschedpolicy;
    posix_spawnattr_getcgroup_np(attributes: *const Attributes, group: *mut c_int) => attr_getcgroup;
    posix_spawnattr_setcgroup_np(attributes: *mut Attributes, group: c_int) => attr_setcgroup;
}
