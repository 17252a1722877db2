//! libc's own functions of the same names.

use libc::{FILE, c_char, c_int, c_void, pid_t};
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `posix_spawn_file_actions_t` or `posix_spawnattr_t`, whatever their layout.
pub(crate) type Opaque = c_void;

pub(crate) type Spawn = unsafe extern "C" fn(
    *mut pid_t,
    *const c_char,
    *const Opaque,
    *const Opaque,
    *const *const c_char,
    *const *const c_char,
) -> c_int;

macro_rules! next {
    ($($name:ident $(, $version:literal)? => $function:ident: $type:ty;)*) => {$(
        /// libc's function, or none.
        pub(crate) fn $name() -> Option<$type> {
            // Not looked up yet. No lock protects this, because in a forked process another thread's lock would never
            // be released.
            const UNKNOWN: usize = 1;
            static ADDRESS: AtomicUsize = AtomicUsize::new(UNKNOWN);
            let mut address = ADDRESS.load(Ordering::Relaxed);
            if address == UNKNOWN {
                let name = concat!(stringify!($function), "\0");
                #[allow(unused_mut, unused_assignments, reason = "not for every function")]
                let mut version: Option<&str> = None;
                $(version = Some(concat!($version, "\0"));)?
                address = look_up(name, version);
                ADDRESS.store(address, Ordering::Relaxed);
            }
            // SAFETY: libc's function of this name has this type; 0 is none.
            (address != 0).then(|| unsafe { std::mem::transmute::<usize, $type>(address) })
        }
    )*};
}

next! {
    popen => popen: unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE;
    pclose => pclose: unsafe extern "C" fn(*mut FILE) -> c_int;
    fclose => fclose: unsafe extern "C" fn(*mut FILE) -> c_int;
    system => system: unsafe extern "C" fn(*const c_char) -> c_int;
    posix_spawn, "GLIBC_2.15" => posix_spawn: Spawn;
    posix_spawnp, "GLIBC_2.15" => posix_spawnp: Spawn;
    posix_spawn_old, "GLIBC_2.2.5" => posix_spawn: Spawn;
    posix_spawnp_old, "GLIBC_2.2.5" => posix_spawnp: Spawn;
    pidfd_spawn => pidfd_spawn: Spawn;
    pidfd_spawnp => pidfd_spawnp: Spawn;
    actions_init => posix_spawn_file_actions_init: unsafe extern "C" fn(*mut Opaque) -> c_int;
    actions_destroy => posix_spawn_file_actions_destroy: unsafe extern "C" fn(*mut Opaque) -> c_int;
    actions_addclose => posix_spawn_file_actions_addclose: unsafe extern "C" fn(*mut Opaque, c_int) -> c_int;
    actions_adddup2 => posix_spawn_file_actions_adddup2: unsafe extern "C" fn(*mut Opaque, c_int, c_int) -> c_int;
    actions_addopen => posix_spawn_file_actions_addopen:
        unsafe extern "C" fn(*mut Opaque, c_int, *const c_char, c_int, libc::mode_t) -> c_int;
    actions_addchdir_np => posix_spawn_file_actions_addchdir_np:
        unsafe extern "C" fn(*mut Opaque, *const c_char) -> c_int;
    actions_addfchdir_np => posix_spawn_file_actions_addfchdir_np: unsafe extern "C" fn(*mut Opaque, c_int) -> c_int;
    actions_addclosefrom_np => posix_spawn_file_actions_addclosefrom_np:
        unsafe extern "C" fn(*mut Opaque, c_int) -> c_int;
    actions_addtcsetpgrp_np => posix_spawn_file_actions_addtcsetpgrp_np:
        unsafe extern "C" fn(*mut Opaque, c_int) -> c_int;
    attr_init => posix_spawnattr_init: unsafe extern "C" fn(*mut Opaque) -> c_int;
    attr_setflags => posix_spawnattr_setflags: unsafe extern "C" fn(*mut Opaque, libc::c_short) -> c_int;
    attr_setpgroup => posix_spawnattr_setpgroup: unsafe extern "C" fn(*mut Opaque, pid_t) -> c_int;
    attr_setsigdefault => posix_spawnattr_setsigdefault:
        unsafe extern "C" fn(*mut Opaque, *const libc::sigset_t) -> c_int;
    attr_setsigmask => posix_spawnattr_setsigmask:
        unsafe extern "C" fn(*mut Opaque, *const libc::sigset_t) -> c_int;
    attr_setschedparam => posix_spawnattr_setschedparam:
        unsafe extern "C" fn(*mut Opaque, *const libc::sched_param) -> c_int;
    attr_setschedpolicy => posix_spawnattr_setschedpolicy: unsafe extern "C" fn(*mut Opaque, c_int) -> c_int;
    attr_setcgroup_np => posix_spawnattr_setcgroup_np: unsafe extern "C" fn(*mut Opaque, c_int) -> c_int;
}

/// Finds what a signal handler may need. Called from `c/handle.c`.
#[unsafe(no_mangle)]
extern "C" fn forkless_preload_find() {
    let _ = (posix_spawn(), posix_spawnp(), posix_spawn_old(), posix_spawnp_old(), system());
}

/// Whether libc is glibc 2.`minor` or later. A changed behaviour of a function has no sign but the version.
pub(crate) fn is_glibc(minor: u32) -> bool {
    // SAFETY: returns a constant string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_str().unwrap_or_default();
    let number = version.strip_prefix("2.").and_then(|rest| rest.split('.').next());
    number.and_then(|number| number.parse().ok()).is_some_and(|have: u32| have >= minor)
}

/// Both names end in NUL. Returns 0 if the symbol does not exist. Without a version, glibc before 2.36 finds the oldest one.
pub(crate) fn look_up(name: &str, version: Option<&str>) -> usize {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default();
    let version = version.filter(|_| cfg!(target_arch = "x86_64"));
    // SAFETY: names that end in NUL.
    unsafe {
        match version.and_then(|version| CStr::from_bytes_with_nul(version.as_bytes()).ok()) {
            Some(version) => libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) as usize,
            None => libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) as usize,
        }
    }
}
