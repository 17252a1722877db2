//! What a child with a parent-death signal inherits, if the thread that launched it has restrictions, ids, namespaces or a
//! directory of its own: the same as a child that the thread has cloned itself.

use crate::observe::{self, eventually, skip};
use forkless::{Command, Error, Step};
use forkless_tests::filter::{self, Answer, Refusal};
use forkless_tests::process::is_root;
use std::os::unix::process::CommandExt as _;
use std::{env, fs, io, process, thread};

/// As many threads as clone for others, at most: `MOST` of `launch/creator.rs`.
const MOST: usize = 8;

/// The program: prints what it has inherited.
pub fn shows(_: &[String]) {
    const KEYS: [&str; 12] = [
        "Umask",
        "Uid",
        "Gid",
        "Groups",
        "CapInh",
        "CapPrm",
        "CapEff",
        "CapBnd",
        "CapAmb",
        "NoNewPrivs",
        "Seccomp",
        "Seccomp_filters",
    ];
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let is_wanted = |line: &&str| line.split_once(':').is_some_and(|(key, _)| KEYS.contains(&key));
    status.lines().filter(is_wanted).for_each(|line| println!("{line}"));
    for name in ["cwd", "root", "ns/mnt", "ns/uts", "ns/user", "ns/net", "ns/ipc"] {
        println!("{name} {}", fs::read_link(format!("/proc/self/{name}")).expect("a link").display());
    }
    // SAFETY: return numbers.
    unsafe {
        println!("securebits {}", libc::prctl(libc::PR_GET_SECUREBITS));
        println!("getpriority {}", libc::syscall(libc::SYS_getpriority, 0, 0));
        println!("ioprio_get {}", libc::syscall(libc::SYS_ioprio_get, 1, 0));
    }
}

pub fn keepers() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("tasks").flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim_end() == "forkless-keeper").count()
}

fn program() -> Command {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.arg("keeper-shows");
    command
}

fn text(output: io::Result<forkless::Output>) -> String {
    String::from_utf8(output.expect("output").stdout).expect("text")
}

/// What a child has that the kernel's own rule gives the signal, and what one has that lives as long as the process.
fn both() -> [String; 2] {
    [
        text(program().thread_death_signal(libc::SIGKILL).output()),
        text(program().parent_death_signal(libc::SIGKILL).output()),
    ]
}

fn must(answer: i64) {
    assert_eq!(answer, 0, "{}", io::Error::last_os_error());
}

fn no_new_privs() {
    // SAFETY: of this thread.
    must(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into());
}

fn seccomp() {
    filter::refuse(&[Refusal::of(libc::SYS_getpriority, Answer::Errno(libc::ENOSYS))]).expect("a filter");
}

/// As many filters as the one above.
fn other_seccomp() {
    filter::refuse(&[Refusal::of(libc::SYS_ioprio_get, Answer::Errno(libc::ENOSYS))]).expect("a filter");
}

fn own_umask(mask: u32) {
    // SAFETY: gives this thread a directory and a umask of its own.
    must(unsafe { libc::unshare(libc::CLONE_FS) }.into());
    // SAFETY: of this thread.
    unsafe { libc::umask(mask) };
}

fn own_directory() {
    own_umask(0o22);
    env::set_current_dir("/usr").expect("chdir");
}

fn group() {
    // SAFETY: the system call changes this thread alone. (libc's function changes all.)
    must(unsafe { libc::syscall(libc::SYS_setresgid, 12345, 12345, 12345) });
}

fn bounding_set() {
    const CAP_SYS_BOOT: i32 = 22;
    // SAFETY: of this thread.
    must(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_BOOT, 0, 0, 0) }.into());
}

fn securebits() {
    const SECBIT_NO_SETUID_FIXUP: i32 = 1 << 2;
    // SAFETY: of this thread.
    must(unsafe { libc::prctl(libc::PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) }.into());
}

fn uts_namespace() {
    // SAFETY: of this thread.
    must(unsafe { libc::unshare(libc::CLONE_NEWUTS) }.into());
}

/// A thread with something of its own, and then a second one like it. `more`: how many threads must have been started to
/// clone for the two.
fn one_after_another(what: &str, change: fn(), plain: &str, more: usize) {
    let before = keepers();
    for _ in 0..2 {
        let had = thread::spawn(move || {
            change();
            both()
        });
        let [threads, ours] = had.join().expect("a thread");
        assert_ne!(threads, plain, "{what} has an effect");
        assert_eq!(ours, threads, "{what}");
    }
    assert_eq!(keepers(), before + more, "{what}");
}

/// Threads with restrictions or a directory of their own, and then too many of them.
pub fn own_rights(_: &[String]) {
    let plain = thread::spawn(both).join().expect("a thread");
    assert_eq!((&plain[0], keepers()), (&plain[1], 1));
    one_after_another("no_new_privs", no_new_privs, &plain[0], 1);
    // Nobody knows whether the filters of two threads are the same.
    one_after_another("a filter", seccomp, &plain[0], 2);
    one_after_another("another filter", other_seccomp, &plain[0], 2);
    one_after_another("a directory", own_directory, &plain[0], 1);
    let masked = |mask: u32| {
        thread::spawn(move || {
            own_umask(mask);
            both()
        })
    };
    let [threads, ours] = masked(0o177).join().expect("a thread");
    assert_eq!((ours, keepers()), (threads, MOST));
    thread::spawn(|| {
        own_umask(0o107);
        let error = program().parent_death_signal(libc::SIGKILL).output().expect_err("no thread like this one");
        assert_eq!(Error::of(&error).map(Error::step), Some(Step::Clone));
        let text = error.to_string();
        assert!(text.contains("the umask of the calling thread") && text.contains("thread_death_signal"), "{text}");
        assert!(program().thread_death_signal(libc::SIGKILL).output().expect("output").status.success());
    })
    .join()
    .expect("a thread");
    let again = thread::spawn(both).join().expect("a thread");
    assert_eq!((again, keepers()), (plain, MOST), "a thread with nothing of its own");
    observe::assert_no_orphans();
}

/// Three threads, of which one is the first, that have one filter each, and not the same.
pub fn equal_filters(_: &[String]) {
    let threads: Vec<_> = [seccomp as fn(), other_seccomp]
        .map(|change| {
            let (sender, receiver) = std::sync::mpsc::channel();
            let launches = move || {
                receiver.recv().expect("the first thread's filter");
                change();
                both()
            };
            // It exists before the first thread's filter, so it does not have that.
            (sender, thread::spawn(launches))
        })
        .into();
    filter::refuse(&[Refusal::of(libc::SYS_membarrier, Answer::Errno(libc::ENOSYS))]).expect("a filter");
    let had: Vec<_> = threads
        .into_iter()
        .map(|(sender, thread)| {
            sender.send(()).expect("a thread");
            let [threads, ours] = thread.join().expect("a thread");
            assert_eq!(ours, threads);
            ours
        })
        .collect();
    assert_ne!(had[0], had[1], "the two filters differ");
    assert_eq!(keepers(), 2);
    observe::assert_no_orphans();
}

/// What needs privileges.
pub fn own_ids(_: &[String]) {
    if !is_root() {
        return skip("threads with ids, capabilities and namespaces of their own", "needs root");
    }
    let plain = thread::spawn(both).join().expect("a thread");
    one_after_another("a group", group, &plain[0], 1);
    one_after_another("a bounding set", bounding_set, &plain[0], 1);
    one_after_another("securebits", securebits, &plain[0], 1);
    one_after_another("a namespace", uts_namespace, &plain[0], 2);
    observe::assert_no_orphans();
}

/// Threads change what they have in common, again and again: that is no reason for another thread that clones.
pub fn common_rights(_: &[String]) {
    let ends = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                for mask in [0o22, 0o27] {
                    // SAFETY: of this process.
                    unsafe { libc::umask(mask) };
                }
            }
        });
        scope.spawn(|| {
            for _ in 0..observe::scaled(200) {
                let mut command = Command::new("/bin/true");
                assert!(command.parent_death_signal(libc::SIGKILL).status().expect("status").success());
            }
            ends.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    });
    assert_eq!(keepers(), 1);
    observe::assert_no_orphans();
}

/// Where `/proc` cannot be read, nobody knows whether two threads have the same rights.
pub fn unknown_rights(_: &[String]) {
    let mut host = process::Command::new(env::current_exe().expect("this program"));
    host.arg("keeper-without-proc");
    // SAFETY: system calls only. The mounts of the child's namespace do not concern others.
    unsafe {
        host.pre_exec(|| {
            let private = (libc::MS_REC | libc::MS_PRIVATE) as libc::c_ulong;
            let done = libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), private, std::ptr::null()) == 0;
            if done { Ok(()) } else { Err(io::Error::last_os_error()) }
        });
    }
    match host.status() {
        Err(error) => skip("parent-death signals without /proc", &error.to_string()),
        Ok(status) => assert!(status.success(), "{status}"),
    }
}

/// The host of [`unknown_rights`], with mounts of its own.
pub fn without_proc(_: &[String]) {
    let sleeps = || {
        let mut command = Command::new("/bin/sleep");
        command.arg("0").parent_death_signal(libc::SIGKILL);
        command.status()
    };
    eventually("a keeper", || thread::spawn(sleeps).join().expect("a thread").is_ok());
    // SAFETY: hides the files of /proc from this process.
    must(unsafe { libc::mount(c"none".as_ptr(), c"/proc".as_ptr(), c"tmpfs".as_ptr(), 0, std::ptr::null()) }.into());
    let error = thread::spawn(sleeps).join().expect("a thread").expect_err("no /proc");
    assert!(error.to_string().contains("/proc/thread-self"), "{error}");
    assert!(sleeps().expect("the first thread needs no other").success());
}
