//! What a child with a parent-death signal inherits, if the thread that launched it has restrictions, ids, namespaces or a
//! directory of its own: the same as a child that the thread has cloned itself.

use crate::observe::{self, eventually, skip};
use forkless::{Command, Error, Step};
use forkless_tests::filter::{self, Answer, Refusal};
use forkless_tests::process::is_root;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::{env, fs, io, process, thread};

/// The most threads that wait for their children: `MOST` of `launch/creator.rs`.
const MOST: usize = 1024;

part!(shows);
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

/// The threads that wait for a child with a parent-death signal; the kernel cuts names off after 15 bytes.
pub fn parents() -> Vec<PathBuf> {
    let tasks = fs::read_dir("/proc/self/task").expect("tasks").flatten().map(|task| task.path());
    let is_parent = |name: String| name.trim_end() == "forkless-parent";
    tasks.filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(is_parent)).collect()
}

/// Each ends soon after its child.
pub fn assert_no_parents() {
    eventually("the end of the threads of ended children", || parents().is_empty());
}

fn program() -> Command {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.arg("creator::shows");
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

/// A thread with something of its own: a child with a parent-death signal has it too.
fn with_its_own(what: &str, change: fn(), plain: &str) {
    let had = thread::spawn(move || {
        change();
        both()
    });
    let [threads, ours] = had.join().expect("a thread");
    assert_ne!(threads, plain, "{what} has an effect");
    assert_eq!(ours, threads, "{what}");
}

scenario!(a_child_has_the_rights_of_the_thread_that_launched_it);
/// Threads with restrictions or a directory of their own.
/// With the kernel's own rule beside it: the children that the thread clones itself.
pub fn a_child_has_the_rights_of_the_thread_that_launched_it(_: &[String]) {
    let plain = thread::spawn(both).join().expect("a thread");
    assert_eq!(plain[0], plain[1]);
    with_its_own("no_new_privs", no_new_privs, &plain[0]);
    with_its_own("a filter", seccomp, &plain[0]);
    with_its_own("another filter", other_seccomp, &plain[0]);
    with_its_own("a directory", own_directory, &plain[0]);
    assert_eq!(thread::spawn(both).join().expect("a thread"), plain, "a thread with nothing of its own");
    assert_no_parents();
    observe::assert_no_orphans();
}

scenario!(the_number_of_threads_with_children_is_bounded);
/// The number of threads is bounded, and the error says what does without.
pub fn the_number_of_threads_with_children_is_bounded(_: &[String]) {
    // The first one is refused only when all of them wait.
    let (mut children, error) = thread::spawn(|| {
        let mut sleep = Command::new("/bin/sleep");
        sleep.arg("1000").stdin(forkless::Stdio::null()).parent_death_signal(libc::SIGKILL);
        let mut children = Vec::new();
        loop {
            match sleep.launch() {
                Ok(child) => children.push(child),
                Err(error) => return (children, error),
            }
        }
    })
    .join()
    .expect("a thread");
    let text = error.to_string();
    if children.len() < MOST {
        return skip("the most threads with children", &text);
    }
    assert_eq!(children.len(), MOST);
    assert_eq!(Error::of(&error).map(Error::step), Some(Step::Clone));
    for word in ["1024", "thread_death_signal", "pidfd_autokill", "cgroup", "PID namespace"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    for child in &mut children {
        child.kill().expect("kill");
        child.wait().expect("wait");
    }
    assert_no_parents();
    let again = || Command::new("/bin/true").parent_death_signal(libc::SIGKILL).status();
    assert!(thread::spawn(again).join().expect("a thread").expect("room again").success());
    observe::assert_no_orphans();
}

scenario!(a_slow_child_holds_up_no_other_threads_launch);
/// A child that is slow before its exec, and that its caller must wait for (`CLONE_VFORK`), holds up no other thread's launch.
pub fn a_slow_child_holds_up_no_other_threads_launch(_: &[String]) {
    let programs = crate::elf::Programs::new();
    let fifo = programs.fifo("hold");
    let slow = fifo.clone();
    let held = thread::spawn(move || {
        let mut command = Command::new("/bin/true");
        command.fd(forkless::Stdio::open(&slow, libc::O_RDONLY, 0), 5).oom_score_adj(500);
        command.parent_death_signal(libc::SIGKILL).launch().expect("launch").wait().expect("wait")
    });
    eventually("a child asleep before exec", || observe::opening_child().is_some());
    let other = || Command::new("/bin/true").parent_death_signal(libc::SIGKILL).status();
    assert!(thread::spawn(other).join().expect("a thread").expect("status").success());
    assert!(!held.is_finished(), "the first child is still before its exec");
    let _open = fs::File::options().read(true).write(true).open(&fifo).expect("open");
    assert!(held.join().expect("a thread").success());
    assert_no_parents();
}

scenario!(equally_many_filters_of_two_threads_are_not_taken_for_the_same);
/// Three threads, of which one is the first, that have one filter each, and not the same.
pub fn equally_many_filters_of_two_threads_are_not_taken_for_the_same(_: &[String]) {
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
    observe::assert_no_orphans();
}

scenario!(a_child_has_the_ids_of_the_thread_that_launched_it);
/// What needs privileges.
pub fn a_child_has_the_ids_of_the_thread_that_launched_it(_: &[String]) {
    if !is_root() {
        return skip("threads with ids, capabilities and namespaces of their own", "needs root");
    }
    let plain = thread::spawn(both).join().expect("a thread");
    with_its_own("a group", group, &plain[0]);
    with_its_own("a bounding set", bounding_set, &plain[0]);
    with_its_own("securebits", securebits, &plain[0]);
    with_its_own("a namespace", uts_namespace, &plain[0]);
    observe::assert_no_orphans();
}

scenario!(a_parent_death_signal_works_without_proc);
/// It works without `/proc`.
pub fn a_parent_death_signal_works_without_proc(_: &[String]) {
    let mut host = process::Command::new(env::current_exe().expect("this program"));
    host.arg("creator::without_proc");
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

part!(without_proc);
/// The host of [`a_parent_death_signal_works_without_proc`], with mounts of its own.
pub fn without_proc(_: &[String]) {
    let sleeps = || {
        let mut command = Command::new("/bin/sleep");
        command.arg("0").parent_death_signal(libc::SIGKILL);
        command.status()
    };
    // SAFETY: hides the files of /proc from this process.
    must(unsafe { libc::mount(c"none".as_ptr(), c"/proc".as_ptr(), c"tmpfs".as_ptr(), 0, std::ptr::null()) }.into());
    assert!(thread::spawn(sleeps).join().expect("a thread").expect("status").success());
    assert!(sleeps().expect("status").success());
}
