//! The settings that each launcher refuses when the plan is made, and its route: the list that the library is checked
//! against.

use super::Ask;
use super::settings::Settings;
use crate::process::has_no_closefrom;
use forkless::{Launcher, Route, Step};

/// The words by which one of the settings asked for is refused, any of them; none if all can be done.
pub fn refused(launcher: Launcher, ask: &Ask) -> Vec<&'static str> {
    let set = &ask.set;
    let fork = [("unshare(Namespace::Pid)", set.unshare.iter().any(|kind| kind == "Pid"))];
    let posix_spawn = [
        ("signal_ignore", !ask.signal_ignore.is_empty()),
        ("chroot", set.chroot.is_some()),
        // Who changes the user gives up its groups first, if it is root.
        ("groups", set.groups.is_some() || set.uid.is_some() || set.user.is_some()),
        ("uid or user", set.uid.is_some() || set.user.is_some()),
        ("gid or group", set.gid.is_some() || set.group.is_some() || set.user.is_some()),
        ("umask", set.umask.is_some()),
        ("rlimit", !set.rlimit.is_empty()),
        ("cpu_affinity", set.affinity.is_some()),
        ("io_priority", set.io_priority.is_some()),
        ("controlling_terminal or pty", set.terminal.is_some() || set.pty),
        ("foreground", set.foreground.is_some()),
        ("no_new_privs", set.no_new_privs),
        ("parent_death_signal", set.parent_death_signal.is_some() || set.thread_death_signal.is_some()),
        ("call", !set.call.is_empty()),
        ("hand_back", !set.hand_back.is_empty()),
        ("best_effort", !set.best_effort.is_empty()),
        ("unshare", !set.unshare.is_empty()),
        ("map_uid and map_gid", !set.map_uid.is_empty() || !set.map_gid.is_empty()),
        ("join", !set.join.is_empty()),
        ("hostname", set.hostname.is_some()),
        ("mounts", !set.mount.is_empty()),
        ("pivot_root", set.pivot_root.is_some()),
        ("cgroup", set.cgroup.is_some()),
        ("capability sets", has_capabilities(ask)),
        ("securebits", set.securebits.is_some()),
        ("landlock", set.landlock.is_some()),
        ("seccomp", set.seccomp.is_some()),
        ("program_fd", set.program_fd.is_some()),
        ("scheduler", set.scheduler.as_ref().is_some_and(|(policy, _)| !is_posix(policy))),
        // It looks functions up, which ends a process of glibc 2.31 under a filter that refuses futex(2).
        ("closefrom", launcher == Launcher::PosixSpawn && !ask.inherit_all && has_no_closefrom()),
    ];
    let list: &[(&str, bool)] = match launcher {
        Launcher::Fork => &fork,
        Launcher::PosixSpawn => &posix_spawn,
        _ => &[],
    };
    let simple = simple(set).into_iter().filter(|(_, asked, own_memory)| {
        *asked && (launcher == Launcher::PosixSpawn || *own_memory && launcher != Launcher::Fork)
    });
    let list = list.iter().filter(|(_, asked)| *asked).map(|(words, _)| *words);
    list.chain(simple.map(|(words, ..)| words)).collect()
}

macro_rules! verdict {
    (shared) => {
        false
    };
    (own) => {
        true
    };
}

macro_rules! simple {
    (
        played { $(
            $(#[$doc:meta])*
            $name:ident($($arg:tt)*) {
                line $line:literal step $step:ident = $code:literal, $words:literal, $of:literal op $op:tt
                memory $memory:ident $($rest:tt)*
            }
        )* }
        passed $passed:tt
    ) => {
        /// Settings of one value: the name, whether it was asked for, and whether it changes the whole memory.
        fn simple(set: &Settings) -> Vec<(&'static str, bool, bool)> {
            vec![$((stringify!($name), set.$name.is_some(), verdict!($memory))),*]
        }
    };
}

forkless::settings!(simple);

/// Does the C library take it?
fn is_posix(policy: &str) -> bool {
    policy == "Other" || cfg!(not(target_env = "musl")) && matches!(policy, "Fifo" | "RoundRobin")
}

fn has_capabilities(ask: &Ask) -> bool {
    let set = &ask.set;
    [&set.bounding, &set.permitted, &set.effective, &set.inheritable, &set.ambient].iter().any(|set| set.is_some())
}

/// The route of a launcher that has but one.
pub fn route_of(launcher: Launcher, ask: &Ask) -> Option<Route> {
    match launcher {
        Launcher::Fork => Some(Route::Fork { inherits_all: ask.inherit_all }),
        Launcher::PosixSpawn => Some(Route::PosixSpawn { inherits_all: ask.inherit_all }),
        _ => None,
    }
}

/// The step at which a launcher fails where another one would at `step`: what a cloned child is born with a forked one
/// does itself, and `posix_spawn` cannot tell what it did.
pub fn steps(launcher: Launcher, step: &str) -> Vec<String> {
    let mut all = vec![step.to_owned()];
    match (launcher, step) {
        (Launcher::Fork, "Clone") => all.extend(["Namespace", "ControlGroup"].map(String::from)),
        (Launcher::PosixSpawn, "SetSid" | "SetPgid" | "Chdir" | "Open" | "Scheduler") => {
            all.push(format!("{:?}", Step::Exec));
        }
        _ => {}
    }
    all
}
