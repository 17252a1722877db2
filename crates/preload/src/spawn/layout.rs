//! The layout of glibc's `posix_spawn(3)` objects, which are filled both here and by glibc's own functions.
//!
//! Their sizes are part of glibc's ABI. Their content is not, so it is compared once with what glibc's functions write.
//! Source: spawn.h for the outer structures.

use crate::next::{self, Opaque};
use libc::{c_char, c_int, c_short, c_void, mode_t, pid_t, sched_param, sigset_t};
use std::mem::{size_of, zeroed};
use std::sync::atomic::{AtomicU8, Ordering};

/// `posix_spawnattr_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Attributes {
    pub(crate) flags: c_short,
    pub(crate) pgrp: pid_t,
    pub(crate) default: sigset_t,
    pub(crate) mask: sigset_t,
    pub(crate) param: sched_param,
    pub(crate) policy: c_int,
    pub(crate) cgroup: c_int,
    pad: [c_int; 15],
}

/// `posix_spawn_file_actions_t`.
#[repr(C)]
pub(crate) struct Actions {
    pub(crate) allocated: c_int,
    pub(crate) used: c_int,
    pub(crate) first: *mut Action,
    pad: [c_int; 16],
}

const _: () = assert!(size_of::<Attributes>() == size_of::<libc::posix_spawnattr_t>());
const _: () = assert!(size_of::<Actions>() == size_of::<libc::posix_spawn_file_actions_t>());

/// An action and its operands.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Action {
    pub(crate) tag: c_int,
    pub(crate) what: What,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union What {
    /// Operands of all actions that only have numbers.
    pub(crate) numbers: [c_int; 2],
    pub(crate) open: Open,
    pub(crate) path: *mut c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Open {
    pub(crate) fd: c_int,
    pub(crate) path: *mut c_char,
    pub(crate) flags: c_int,
    pub(crate) mode: mode_t,
}

pub(crate) const CLOSE: c_int = 0;
pub(crate) const DUP2: c_int = 1;
pub(crate) const OPEN: c_int = 2;
pub(crate) const CHDIR: c_int = 3;
pub(crate) const FCHDIR: c_int = 4;
pub(crate) const CLOSEFROM: c_int = 5;
pub(crate) const TCSETPGRP: c_int = 6;

/// An object of `posix_spawn(3)`.
pub(crate) trait Object {
    /// Compares the layout. None if libc lacks a function.
    fn is_known_layout() -> Option<bool>;

    /// The cached result of the comparison: 0, 1 or [`UNKNOWN`].
    fn known_result() -> &'static AtomicU8;
}

const UNKNOWN: u8 = 2;

impl Object for Actions {
    fn is_known_layout() -> Option<bool> {
        // SAFETY: an object of libc's size, initialized by its own function.
        unsafe { is_layout_of_actions() }
    }

    fn known_result() -> &'static AtomicU8 {
        static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
        &ANSWER
    }
}

impl Object for Attributes {
    fn is_known_layout() -> Option<bool> {
        // SAFETY: an object of libc's size, initialized by its own function.
        unsafe { is_layout_of_attributes() }
    }

    fn known_result() -> &'static AtomicU8 {
        static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
        &ANSWER
    }
}

/// Whether glibc's functions write this layout of the object. If not, all such objects are left to glibc. A null pointer is
/// accepted unchecked: the check calls malloc, in libc, which a signal handler that passes no objects must not need.
pub(crate) fn is_known<T: Object>(object: *const T) -> bool {
    if object.is_null() {
        return true;
    }
    let mut answer = T::known_result().load(Ordering::Relaxed);
    if answer == UNKNOWN {
        answer = T::is_known_layout().unwrap_or(false) as u8;
        T::known_result().store(answer, Ordering::Relaxed);
    }
    answer == 1
}

/// Compares file actions. None if libc lacks a function.
///
/// # Safety
/// None beyond what each call requires.
unsafe fn is_layout_of_actions() -> Option<bool> {
    // SAFETY: all zeroes is a valid value, and libc initialises it.
    unsafe {
        let mut actions: Actions = zeroed();
        let object = (&raw mut actions).cast::<Opaque>();
        let path = c"/a/path";
        next::actions_init()?(object);
        let (mut expected, mut count) = ([(CLOSE, [7, 0]); 5], 2);
        expected[1] = (DUP2, [8, 9]);
        let mut failed = next::actions_addclose()?(object, 7) + next::actions_adddup2()?(object, 8, 9);
        failed += next::actions_addopen()?(object, 10, path.as_ptr(), 0x241, 0o640);
        let chdir = next::actions_addchdir_np();
        if let Some(chdir) = chdir {
            failed += chdir(object, path.as_ptr());
        }
        let more = [
            (FCHDIR, next::actions_addfchdir_np()),
            (CLOSEFROM, next::actions_addclosefrom_np()),
            (TCSETPGRP, next::actions_addtcsetpgrp_np()),
        ];
        for (tag, add) in more {
            if let Some(add) = add {
                failed += add(object, 11);
                expected[count] = (tag, [11, 0]);
                count += 1;
            }
        }
        let all = std::slice::from_raw_parts(actions.first, usize::try_from(actions.used).unwrap_or(0));
        let same_text = |text: *mut c_char| libc::strcmp(text, path.as_ptr()) == 0;
        let is_open = |action: &Action| {
            let Open { fd, path, flags, mode } = action.what.open;
            action.tag == OPEN && (fd, flags, mode) == (10, 0x241, 0o640) && same_text(path)
        };
        let is_chdir = |action: &Action| action.tag == CHDIR && same_text(action.what.path);
        let is_plain = |action: &Action, (tag, numbers): &(c_int, [c_int; 2])| {
            let count = if *tag == DUP2 { 2 } else { 1 };
            action.tag == *tag && action.what.numbers[..count] == numbers[..count]
        };
        let texts = 1 + chdir.is_some() as usize;
        let agrees = failed == 0
            && all.len() == count + texts
            && is_open(&all[2])
            && (chdir.is_none() || is_chdir(&all[3]))
            && all[..2]
                .iter()
                .chain(&all[2 + texts..])
                .zip(&expected[..count])
                .all(|(action, plain)| is_plain(action, plain));
        next::actions_destroy()?(object);
        Some(agrees)
    }
}

/// The same for attributes.
///
/// # Safety
/// None beyond what each call requires.
unsafe fn is_layout_of_attributes() -> Option<bool> {
    // SAFETY: all zeroes is a valid value, and libc initialises it.
    unsafe {
        let mut attributes: Attributes = zeroed();
        let object = (&raw mut attributes).cast::<Opaque>();
        let (mut default, mut mask): (sigset_t, sigset_t) = (zeroed(), zeroed());
        libc::sigaddset(&mut default, 3);
        libc::sigaddset(&mut mask, 40);
        let param = sched_param { sched_priority: 17 };
        let mut failed = next::attr_init()?(object) + next::attr_setflags()?(object, 0x86);
        failed += next::attr_setpgroup()?(object, 12345) + next::attr_setsigdefault()?(object, &default);
        failed += next::attr_setsigmask()?(object, &mask) + next::attr_setschedparam()?(object, &param);
        failed += next::attr_setschedpolicy()?(object, libc::SCHED_RR);
        let cgroup = next::attr_setcgroup_np();
        if let Some(set) = cgroup {
            failed += set(object, 77);
        }
        let same_set = |one: &sigset_t, other: &sigset_t| {
            libc::memcmp((&raw const *one).cast::<c_void>(), (&raw const *other).cast(), size_of::<sigset_t>()) == 0
        };
        Some(
            failed == 0
                && (attributes.flags, attributes.pgrp) == (0x86, 12345)
                && (attributes.param.sched_priority, attributes.policy) == (17, libc::SCHED_RR)
                && (cgroup.is_none() || attributes.cgroup == 77)
                && same_set(&attributes.default, &default)
                && same_set(&attributes.mask, &mask),
        )
    }
}
