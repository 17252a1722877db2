//! The parts of a plan that `posix_spawn(3)` supports: which functions this C library has, and which settings are
//! refused when the plan is made.

use super::describe;
use super::{Creator, Plan};
use crate::kernel::LIBCS;
use crate::step::Step;
use forkless_core::plan::{BEST_EFFORT, Op, OpCode};
use nix::libc;
use std::ffi::{CStr, c_char, c_int, c_void};

pub(crate) type Actions = *mut libc::posix_spawn_file_actions_t;

/// The functions that not every C library has, looked up in the loaded one.
#[derive(Clone, Copy)]
pub(crate) struct Extensions {
    /// glibc 2.34.
    pub(crate) close_from: Option<unsafe extern "C" fn(Actions, c_int) -> c_int>,
    /// glibc 2.29, musl 1.1.24.
    pub(crate) chdir: Option<unsafe extern "C" fn(Actions, *const c_char) -> c_int>,
    /// The same versions.
    pub(crate) fchdir: Option<unsafe extern "C" fn(Actions, c_int) -> c_int>,
}

/// `dlsym(3)`. It finds nothing in a statically linked program: there the settings that need the function are refused.
fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a name that ends in NUL, looked for in what is loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

impl Extensions {
    /// Called when a plan is made, and not when it is launched, because `dlsym(3)` may wait for the loader.
    pub(crate) fn get() -> Self {
        // SAFETY: the types are those of the functions of these names, spawn.h of glibc and musl.
        unsafe {
            Self {
                close_from: find(c"posix_spawn_file_actions_addclosefrom_np").map(|f| std::mem::transmute(f)),
                chdir: find(c"posix_spawn_file_actions_addchdir_np").map(|f| std::mem::transmute(f)),
                fchdir: find(c"posix_spawn_file_actions_addfchdir_np").map(|f| std::mem::transmute(f)),
            }
        }
    }
}

/// The highest scheduling policy that the C library accepts. glibc accepts those of POSIX, musl none.
const MOST_POLICY: u64 = if cfg!(target_env = "musl") { 0 } else { libc::SCHED_RR as u64 };

/// The first setting of this plan that `posix_spawn` cannot do, in words; `None` if it can do all.
pub(crate) fn refusal(plan: &Plan, extensions: Extensions) -> Option<String> {
    const OTHERS: &str = "Launcher::Clone and Launcher::Fork can";
    let cannot = |what: &str| Some(format!("posix_spawn does not support {what}: {OTHERS}"));
    let lacks = |function: &str, what: &str| {
        Some(format!("the C library has no {function}, which posix_spawn needs for {what}: {OTHERS}"))
    };
    if plan.place.namespaces != 0 {
        return cannot("unshare");
    }
    if plan.place.has_cgroup() {
        return cannot("cgroup");
    }
    if matches!(plan.creator, Creator::Member(_)) {
        return cannot("join");
    }
    for op in plan.steps() {
        if op.flags & BEST_EFFORT != 0 {
            return cannot("best_effort");
        }
        match op.code {
            OpCode::Table | OpCode::Place | OpCode::Taken | OpCode::SetSid | OpCode::SetPgid => {}
            OpCode::Open | OpCode::Dup | OpCode::SigDefault => {}
            OpCode::SigMask if op.set & LIBCS == 0 => {}
            OpCode::SigMask => return cannot("signal_block of the C library's own signals"),
            OpCode::CloseOthers if extensions.close_from.is_some() => {}
            OpCode::CloseOthers => {
                return lacks(
                    "closefrom",
                    "a child with no other descriptors than those named (inherit_all(true) does without)",
                );
            }
            OpCode::Chdir if extensions.chdir.is_some() => {}
            OpCode::Chdir => return lacks("addchdir", "current_dir"),
            _ => match describe::step_of(op) {
                // Close-on-exec of a descriptor that another op uses.
                Step::PassFd => {}
                Step::Chdir if extensions.fchdir.is_some() => {}
                Step::Chdir => return lacks("addfchdir", "current_dir_fd"),
                Step::Scheduler if plan.call(op).is_some_and(|call| call.args[1] <= MOST_POLICY) => {}
                step => return cannot(setting_of(op, step)),
            },
        }
    }
    let by_name = plan.op(plan.last_op()).code == OpCode::Exec;
    if by_name { None } else { cannot("program_fd") }
}

/// The builder function that requests a step.
fn setting_of(op: &Op, step: Step) -> &'static str {
    match step {
        Step::Signals if op.code == OpCode::SigIgnore => "signal_ignore",
        Step::Rlimit => "rlimit",
        Step::Scheduler => "a scheduler of this policy",
        Step::Affinity => "cpu_affinity",
        Step::IoPriority => "io_priority",
        Step::Terminal => "controlling_terminal or pty",
        Step::Foreground => "foreground",
        Step::Chroot => "chroot",
        Step::SetGroups => "groups, which uid and user set too",
        Step::SetGid => "gid or group",
        Step::SetUid => "uid or user",
        Step::Umask => "umask",
        Step::Call => "call",
        Step::NoNewPrivs => "no_new_privs",
        Step::ParentDeathSignal => "parent_death_signal",
        Step::Namespace => "unshare",
        Step::JoinNamespace => "join",
        Step::IdMaps => "map_uid and map_gid",
        Step::Hostname => "hostname",
        Step::Mount | Step::MakeDir | Step::Symlink => "mounts",
        Step::PivotRoot => "pivot_root",
        Step::Capabilities => "capability sets",
        Step::Securebits => "securebits",
        Step::Landlock => "landlock",
        Step::Seccomp => "seccomp",
        Step::HandBack => "hand_back",
        other => of_table(other).unwrap_or(other.describe()),
    }
}

macro_rules! refusal {
    (refused $name:ident) => {
        Some(stringify!($name))
    };
}

macro_rules! refusals {
    (
        played { $(
            $(#[$doc:meta])*
            $name:ident($($arg:tt)*) {
                line $line:literal step $step:ident = $code:literal, $words:literal, $of:literal op $op:tt
                memory $memory:ident ids $ids:ident posix_spawn $verdict:ident $($rest:tt)*
            }
        )* }
        passed $passed:tt
    ) => {
        /// The setting of the table that has this step and that posix_spawn refuses.
        fn of_table(step: Step) -> Option<&'static str> {
            match step {
                $(Step::$step => refusal!($verdict $name),)*
                _ => None,
            }
        }
    };
}

crate::settings!(refusals);

#[cfg(test)]
mod tests {
    use super::Extensions;
    use crate::plan::compile::compile;
    use crate::request::command::Command;

    /// A function that an older library or a static program lacks is refused by name, and nothing else is refused.
    #[test]
    fn what_the_library_lacks_is_refused() {
        let none = Extensions { close_from: None, chdir: None, fchdir: None };
        let refusal = |ask: &dyn Fn(&mut Command)| {
            let mut command = Command::new("/bin/true");
            ask(&mut command);
            super::refusal(&compile(&command, false).expect("all is there"), none)
        };
        let all = |command: &mut Command| _ = command.inherit_all(true);
        assert_eq!(refusal(&all), None);
        assert!(refusal(&|_| {}).is_some_and(|words| words.contains("closefrom") && words.contains("inherit_all")));
        let moved = |command: &mut Command| _ = command.inherit_all(true).current_dir("/");
        assert!(refusal(&moved).is_some_and(|words| words.contains("addchdir") && words.contains("Launcher::Fork")));
    }
}
