//! Children cloned ahead are what children are that are cloned at the launch, whatever the host has done meanwhile.

use crate::hosts::in_a_copy;
use crate::observe::{self, eventually, skip};
use crate::pool::{fill, full, options};
use forkless::{Command, Launcher, Pool, Stdio};
use std::io::Read;
use std::thread;
use std::time::Duration;

/// What a program can see of what it has inherited.
fn looker() -> Command {
    let look = "grep -E '^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp.*|Sig(Blk|Ign)|Cpus_allowed|Umask):' /proc/self/status
        pwd -P; ulimit -c; ulimit -n; for n in net uts ipc mnt cgroup pid; do readlink /proc/self/ns/$n; done; cat /proc/self/timerslack_ns \
        /proc/self/personality 2>/dev/null; cut -d' ' -f4-8,18,19,40,41 /proc/$$/stat | cut -d' ' -f2-; ls /proc/$$/fd; env";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", look]).stdout(Stdio::piped()).env_clear().env("PATH", "/usr/bin:/bin");
    command
}

/// What a child sees: one that is cloned now, and one of the pool's; and whether that had been parked.
fn both(pool: &Pool) -> (String, String, bool) {
    let mut command = looker();
    if let Some(value) = std::env::var_os("POOL_SCENE") {
        command.env("POOL_SCENE", value);
    }
    let prepared = command.prepare().expect("prepare");
    let read = |mut child: forkless::Child| {
        let (mut text, parked) = (String::new(), child.route().launcher == Launcher::Pool);
        child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
        assert!(child.wait().expect("wait").success(), "{text}");
        (text, parked)
    };
    let (now, parked) = read(prepared.spawn().expect("spawn"));
    assert!(!parked);
    let (before, parked) = read(pool.launch(&prepared).expect("launch"));
    (now, before, parked)
}

/// Something that a host does between park and launch.
struct Change {
    name: &'static str,
    /// Who may.
    needs: Option<&'static str>,
    /// A parked child takes part in it.
    shared: bool,
    /// Only the calling thread has it, so that new parked children are not like it.
    of_thread: bool,
    act: fn() -> bool,
}

fn call(number: libc::c_long, args: [usize; 3]) -> bool {
    // SAFETY: changes the calling process or thread as the scene says.
    unsafe { libc::syscall(number, args[0], args[1], args[2]) >= 0 }
}

const CHANGES: &[Change] = &[
    Change {
        name: "a directory",
        needs: None,
        shared: true,
        of_thread: false,
        act: || std::env::set_current_dir("/usr").is_ok(),
    },
    Change {
        name: "a umask",
        needs: None,
        shared: true,
        of_thread: false,
        act: || {
            // SAFETY: the scene's own process.
            unsafe { libc::umask(0o31) };
            true
        },
    },
    Change {
        name: "the environment of the next command",
        needs: None,
        shared: true,
        of_thread: false,
        act: || {
            // SAFETY: no other thread of the scene reads it now.
            unsafe { std::env::set_var("POOL_SCENE", "x") };
            true
        },
    },
    Change {
        name: "a process group",
        needs: None,
        shared: true,
        of_thread: false,
        act: || call(libc::SYS_setpgid, [0, 0, 0]),
    },
    Change {
        name: "a limit",
        needs: None,
        shared: false,
        of_thread: false,
        act: || {
            let limit = libc::rlimit { rlim_cur: 777, rlim_max: 888 };
            call(libc::SYS_setrlimit, [libc::RLIMIT_NOFILE as usize, &raw const limit as usize, 0])
        },
    },
    Change {
        name: "an ignored signal",
        needs: None,
        shared: false,
        of_thread: false,
        act: || {
            // SAFETY: no handler.
            unsafe { libc::signal(libc::SIGUSR2, libc::SIG_IGN) != libc::SIG_ERR }
        },
    },
    Change {
        name: "a nice value",
        needs: None,
        shared: false,
        of_thread: true,
        // Another one than whoever runs the tests has given it.
        // SAFETY: reads and sets the scene's own.
        act: || unsafe {
            let now = libc::getpriority(libc::PRIO_PROCESS, 0);
            now < 19 && libc::setpriority(libc::PRIO_PROCESS, 0, now + 1) == 0
        },
    },
    Change {
        name: "timer slack",
        needs: None,
        shared: false,
        of_thread: true,
        act: || call(libc::SYS_prctl, [29, 77_000, 0]),
    },
    Change {
        name: "a personality",
        needs: None,
        shared: false,
        of_thread: true,
        act: || call(libc::SYS_personality, [libc::ADDR_NO_RANDOMIZE as usize, 0, 0]),
    },
    Change {
        name: "processors",
        needs: Some("processors"),
        shared: false,
        of_thread: true,
        act: || {
            let one = 1u64;
            call(libc::SYS_sched_setaffinity, [0, 8, &raw const one as usize])
        },
    },
    Change {
        name: "a directory of the thread's own",
        needs: None,
        shared: false,
        of_thread: true,
        act: || call(libc::SYS_unshare, [libc::CLONE_FS as usize, 0, 0]) && std::env::set_current_dir("/").is_ok(),
    },
    Change {
        name: "no_new_privs",
        needs: None,
        shared: false,
        of_thread: true,
        act: || {
            // SAFETY: the scene's own thread.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 }
        },
    },
    Change {
        name: "an effective user",
        needs: Some("root"),
        shared: false,
        of_thread: false,
        // SAFETY: libc's, for all threads.
        act: || unsafe { libc::seteuid(65534) == 0 },
    },
    Change {
        name: "groups",
        needs: Some("root"),
        shared: false,
        of_thread: false,
        // SAFETY: libc's, for all threads.
        act: || unsafe { libc::setgroups(2, [7, 8].as_ptr()) == 0 },
    },
    Change {
        name: "all privileges dropped",
        needs: Some("root"),
        shared: false,
        of_thread: false,
        // SAFETY: libc's, for all threads.
        act: || unsafe {
            libc::setgroups(0, std::ptr::null()) == 0
                && libc::setresgid(65534, 65534, 65534) == 0
                && libc::setresuid(65534, 65534, 65534) == 0
                && libc::prctl(libc::PR_SET_DUMPABLE, 1) == 0
        },
    },
    Change {
        name: "a bounding set",
        needs: Some("root"),
        shared: false,
        of_thread: true,
        // SAFETY: the scene's own thread.
        act: || unsafe { libc::prctl(libc::PR_CAPBSET_DROP, 13, 0, 0, 0) == 0 },
    },
    Change {
        name: "a network namespace",
        needs: Some("root"),
        shared: false,
        of_thread: true,
        act: || call(libc::SYS_unshare, [libc::CLONE_NEWNET as usize, 0, 0]),
    },
    Change {
        name: "a namespace for host names",
        needs: Some("root"),
        shared: false,
        of_thread: true,
        act: || call(libc::SYS_unshare, [libc::CLONE_NEWUTS as usize, 0, 0]),
    },
    Change {
        name: "a mount namespace",
        needs: Some("root"),
        shared: false,
        of_thread: true,
        act: || call(libc::SYS_unshare, [libc::CLONE_NEWNS as usize, 0, 0]),
    },
];

/// Plays each change in a process of its own.
pub fn changes(_: &[String]) {
    for change in CHANGES {
        // SAFETY: a question.
        let is_root = unsafe { libc::geteuid() } == 0;
        if change.needs == Some("root") && !is_root {
            skip(&format!("{} between park and launch", change.name), "it needs root");
            continue;
        }
        if change.needs == Some("processors") && thread::available_parallelism().is_ok_and(|count| count.get() == 1) {
            skip(change.name, "there is one processor");
            continue;
        }
        in_a_copy(|| one_change(change));
    }
    in_a_copy(|| {
        let pool = full(&options());
        both(&pool);
        if !call(libc::SYS_unshare, [libc::CLONE_NEWPID as usize, 0, 0]) {
            return skip("a process-id namespace for children between park and launch", "unshare is refused");
        }
        // The first one there, and the last.
        let prepared = Command::new("/bin/sh").args(["-c", "exit $$"]).prepare().expect("prepare");
        let mut child = pool.launch(&prepared).expect("launch");
        assert_eq!(child.route().launcher, Launcher::Clone);
        assert_eq!(child.wait().expect("wait").code(), Some(1));
    });
}

fn one_change(change: &Change) {
    let pool = full(&options());
    let (now, before, parked) = both(&pool);
    assert_eq!((before, parked), (now, true), "before {}", change.name);
    fill(&pool);
    if !(change.act)() {
        return skip(&format!("{} between park and launch", change.name), "it is refused");
    }
    let (now, before, parked) = both(&pool);
    assert_eq!(now, before, "after {}", change.name);
    assert_eq!(parked, change.shared, "a parked child was used after {}", change.name);
    if change.of_thread {
        assert_eq!(pool.stats().renewals, 0, "{} is the calling thread's alone", change.name);
    } else if !change.shared {
        // The whole process has changed, and so will the parked children.
        let again = std::cell::Cell::new((String::new(), String::new()));
        eventually("parked children that are like the process", || {
            let (now, before, parked) = both(&pool);
            again.set((now, before));
            parked
        });
        let (now, before) = again.take();
        assert_eq!(now, before, "later after {}", change.name);
        assert_eq!(pool.stats().renewals, 1, "after {}", change.name);
    }
    drop(pool);
    observe::assert_no_orphans();
}

/// Negative controls: what is not compared is not noticed, and the scene above would see it.
pub fn control(_: &[String]) {
    in_a_copy(|| {
        let pool = full(options().recheck(Duration::MAX));
        both(&pool);
        let limit = libc::rlimit { rlim_cur: 777, rlim_max: 888 };
        assert!(call(libc::SYS_setrlimit, [libc::RLIMIT_NOFILE as usize, &raw const limit as usize, 0]));
        let (now, before, parked) = both(&pool);
        assert!(parked && now != before, "the limits were compared");
        pool.refresh().expect("refresh");
        fill(&pool);
        let (now, before, parked) = both(&pool);
        assert!(parked && now == before, "the pool has not been refreshed");
    });
    in_a_copy(|| {
        let pool = full(options().fixed_namespaces(true));
        if !call(libc::SYS_unshare, [libc::CLONE_NEWUTS as usize, 0, 0]) {
            return skip("namespaces that are not compared", "unshare is refused");
        }
        let (now, before, parked) = both(&pool);
        assert!(parked && now != before, "the namespaces were compared");
    });
}
