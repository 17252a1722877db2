//! Launches by a zygote that are abandoned, dropped, or redirected: they must not affect later ones.

use crate::elf::Programs;
use crate::observe::{self, eventually, scaled, skip};
use crate::zygote::{error_of, helper_pid, says, zygote};
use forkless::zygote::Zygote;
use forkless::{Command, Error, Namespace, Stdio, Step};
use forkless_tests::filter::{self, Answer, Refusal};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread;

scenario!(lost_descriptors_fail_one_launch);
/// A launch of which not all descriptors come to the helper, or not all can be sent, fails, and the next one does not.
pub fn lost_descriptors_fail_one_launch(_: &[String]) {
    let file = File::open("/dev/null").expect("open");
    let with = |count: i32, last: i32| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo program"]).stdout(Stdio::piped());
        for number in 4..4 + count {
            // SAFETY: open for as long as the command is used, or meant not to be.
            command.fd(unsafe { Stdio::fd(if number == 3 + count { last } else { file.as_raw_fd() }) }, number);
        }
        command.prepare().expect("prepare")
    };
    let zygote_before = zygote();
    let fds = || fs::read_dir(format!("/proc/{}/fd", helper_pid(&zygote_before))).expect("its descriptors").count();
    let open = fds();
    // The last of three messages cannot be sent.
    let error = error_of(zygote_before.output(&with(600, 7777)));
    assert_eq!((error.step(), error.errno()), (Step::PassFd, Some(libc::EBADF)), "{error}");
    assert_eq!(says(&zygote_before, "echo good"), "good");
    eventually("the helper's descriptors", || fds() == open);
    assert_eq!(zygote_before.stats().starts, 1);
    drop(zygote_before);
    // More than the helper may have.
    let few = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: a limit of this process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) }, 0);
    let zygote = zygote();
    let error = error_of(zygote.output(&with(60, file.as_raw_fd())));
    assert_eq!((error.step(), error.errno()), (Step::Zygote, Some(libc::EMFILE)), "{error}");
    assert_eq!(says(&zygote, "echo good"), "good");
    // The caller's own limit, wherever it is met.
    let mut full: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let errors: Vec<_> = std::iter::from_fn(|| {
        full.pop();
        zygote.output(&with(0, 0)).err().map(|error| (full.len(), error))
    })
    .collect();
    assert!(errors.len() >= 3, "{errors:?}");
    for (open, error) in errors {
        let text = error.to_string();
        let error = Error::of(&error).expect("a launch error");
        assert_eq!(error.errno(), Some(libc::EMFILE), "{open}: {text}");
        assert!(text.contains("RLIMIT_NOFILE"), "{open}: {text}");
    }
    drop(full);
    assert_eq!(says(&zygote, "echo good"), "good");
    assert_eq!(zygote.stats().starts, 1);
    drop(zygote);
    observe::assert_no_orphans();
}

scenario!(a_pid_namespace_is_joined_for_one_launch);
/// A PID namespace is joined for the launch that asks for it, and for no other.
pub fn a_pid_namespace_is_joined_for_one_launch(_: &[String]) {
    const WHAT: &str = "a zygote's children in another PID namespace";
    let mut first = Command::new("/bin/sleep");
    first.arg("600").unshare(Namespace::Pid).kill_on_drop(true);
    let first = match first.spawn() {
        Ok(first) => first,
        Err(error) => return skip(WHAT, &error.to_string()),
    };
    let theirs = format!("/proc/{}/ns/pid", first.id());
    let name = |path: &str| fs::read_link(path).expect("a namespace").display().to_string();
    let ask = "readlink /proc/self/ns/pid";
    let mut inside = Command::new("/bin/sh");
    inside.args(["-c", ask]).stdout(Stdio::piped()).join(Namespace::Pid, File::open(&theirs).expect("open"));
    let inside = inside.prepare().expect("prepare");
    let zygote = zygote();
    for _ in 0..2 {
        let output = zygote.output(&inside).expect("output");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), name(&theirs));
        assert_eq!(says(&zygote, ask), name("/proc/self/ns/pid"));
    }
    assert_eq!(zygote.stats().starts, 1);
    drop((first, zygote));
    observe::assert_no_orphans();
}

/// The permitted, the effective and the bounding set of this process.
fn capabilities() -> [u64; 3] {
    let status = fs::read_to_string("/proc/self/status").expect("status");
    ["CapPrm:", "CapEff:", "CapBnd:"].map(|label| {
        let line = status.lines().find_map(|line| line.strip_prefix(label)).expect("a set");
        u64::from_str_radix(line.trim(), 16).expect("a number")
    })
}

/// Gives up all other capabilities. The inheritable set stays empty.
fn takes_on([permitted, effective, bounding]: [u64; 3]) {
    const VERSION_3: u32 = 0x2008_0522;
    for capability in (0..64).filter(|n| bounding >> n & 1 == 0) {
        // SAFETY: of this process, which has one thread. Numbers that the kernel does not know are an error.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
    let half = |set: u64, n: u32| (set >> (32 * n)) as u32;
    let sets = [0, 1].map(|n| [half(effective, n), half(permitted, n), 0]);
    let header = [VERSION_3, 0];
    // SAFETY: a header of two words, and two sets of three.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

scenario!(launches_beside_changes_of_ids_do_not_fail);
/// A helper is non-dumpable while one of its children changes its ids. A caller without CAP_SYS_PTRACE may not inspect it
/// then, and launches by it nevertheless.
pub fn launches_beside_changes_of_ids_do_not_fail(_: &[String]) {
    if !forkless_tests::process::is_root() {
        return skip("launches by a zygote beside changes of ids", "that needs root");
    }
    const CAP_SYS_PTRACE: u64 = 1 << 19;
    takes_on(capabilities().map(|set| set & !CAP_SYS_PTRACE));
    let zygote = zygote();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let mut command = Command::new("/bin/true");
            let other = command.uid(1000).prepare().expect("prepare");
            let mut count = 0;
            while !done.load(Relaxed) {
                assert!(zygote.status(&other).expect("as another user").success());
                count += 1;
            }
            count
        });
        let plain = Command::new("/bin/true").prepare().expect("prepare");
        let answers: Vec<_> = (0..scaled(500)).map(|_| zygote.status(&plain)).collect();
        done.store(true, Relaxed);
        assert!(beside.join().expect("a thread") > 0);
        answers.into_iter().for_each(|status| assert!(status.expect("status").success()));
    });
    assert_eq!(zygote.stats().starts, 1, "one helper for all of them");
}

scenario!(a_caller_in_a_user_namespace_is_noticed);
/// A caller that has entered a user namespace has its children there, though it looks the same in every other way: root with all
/// capabilities, or an ordinary user who has given all of them up.
pub fn a_caller_in_a_user_namespace_is_noticed(_: &[String]) {
    let name = || fs::read_link("/proc/self/ns/user").expect("a namespace").display().to_string();
    let ask = "readlink /proc/self/ns/user";
    // kcmp(2) would show it too, where it is allowed.
    filter::refuse(&[Refusal::of(libc::SYS_kcmp, Answer::Errno(libc::EPERM))]).expect("a filter");
    let zygote = zygote();
    let (outside, before) = (name(), capabilities());
    assert_eq!(says(&zygote, ask), outside);
    // SAFETY: namespaces and capabilities of this process, which has one thread.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    // SAFETY: as above.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
        let why = std::io::Error::last_os_error();
        return skip("a zygote's caller in a user namespace", &why.to_string());
    }
    fs::write("/proc/self/uid_map", format!("{user} {user} 1")).expect("uid_map");
    fs::write("/proc/self/setgroups", "deny").expect("setgroups");
    fs::write("/proc/self/gid_map", format!("{group} {group} 1")).expect("gid_map");
    takes_on(before);
    assert_eq!(capabilities(), before);
    let inside = name();
    assert_ne!(inside, outside);
    assert_eq!(says(&zygote, ask), inside, "the namespace of a child");
    assert_eq!(zygote.stats().starts, 2, "another helper");
    drop(zygote);
    observe::assert_no_orphans();
}

scenario!(a_caller_under_landlock_is_noticed);
/// A caller that has put itself under Landlock has no child outside of its domain.
pub fn a_caller_under_landlock_is_noticed(_: &[String]) {
    const WHAT: &str = "a zygote's caller under Landlock";
    /// `LANDLOCK_ACCESS_FS_MAKE_DIR`
    const MAKE_DIR: u64 = 1 << 7;
    let place = tempfile::tempdir().expect("a directory");
    let make = |name: &str| format!("mkdir {} 2>/dev/null; echo $?", place.path().join(name).display());
    // SAFETY: of this process alone, which has one thread.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    let zygote = zygote();
    assert_eq!(says(&zygote, &make("before")), "0");
    let handled = [MAKE_DIR];
    // SAFETY: the kernel reads eight bytes.
    let rules = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, handled.as_ptr(), 8, 0) };
    // SAFETY: the descriptor is this function's own.
    if rules < 0 || unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) } != 0 {
        return skip(WHAT, &std::io::Error::last_os_error().to_string());
    }
    assert!(fs::create_dir(place.path().join("own")).is_err(), "the domain is in force");
    let line = Command::new("/bin/sh").args(["-c", &make("after")]).stdout(Stdio::piped()).prepare().expect("prepare");
    match zygote.output(&line) {
        Ok(output) => assert_ne!(output.stdout, b"0\n", "a child outside of the domain"),
        // Where the thread that starts helpers is not in the domain.
        Err(error) => assert!(error.to_string().contains("Landlock"), "{error}"),
    }
    assert!(!place.path().join("after").exists());
    drop(zygote);
    observe::assert_no_orphans();
}

scenario!(a_plan_outlives_every_handle_while_a_child_reads_it);
/// Memory that a child reads is not reused before it has left, even without a handle.
pub fn a_plan_outlives_every_handle_while_a_child_reads_it(_: &[String]) {
    let zygote = zygote();
    let programs = Programs::new();
    let (fifo, made) = (programs.fifo("hold"), programs.path("made"));
    let mut held = Command::new("/bin/sh");
    held.args(["-c", "echo held >$0"]).arg(&made).fd(Stdio::open(&fifo, libc::O_RDONLY, 0), 5);
    drop(zygote.launch(&held.prepare().expect("prepare")).expect("launch"));
    for n in 0..5 {
        assert_eq!(says(&zygote, &format!("echo {n}")), n.to_string());
    }
    drop(File::options().write(true).open(&fifo).expect("open"));
    eventually("the program of the first", || fs::read(&made).is_ok_and(|text| text == b"held\n"));
    drop(zygote);
    observe::assert_no_orphans();
}

/// The answer of [`asks`] by this zygote.
fn ask(zygote: &Zygote, call: i64) -> String {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["zygote_odd::asks", &call.to_string()]).stdout(Stdio::piped());
    let output = zygote.output(&command.prepare().expect("prepare")).expect("output");
    String::from_utf8(output.stdout).expect("text").trim().to_string()
}

scenario!(restrictions_that_proc_does_not_show_are_noticed);
/// Restrictions that no file of `/proc` shows: securebits, and filters of a thread that are as many as those of another.
pub fn restrictions_that_proc_does_not_show_are_noticed(_: &[String]) {
    const SECBIT_NO_SETUID_FIXUP: i32 = 1 << 2;
    const PR_SET_MDWE: i32 = 65;
    const PR_MDWE_REFUSE_EXEC_GAIN: i32 = 1;
    let zygote = zygote();
    std::thread::scope(|scope| {
        for call in [libc::SYS_getpriority, libc::SYS_ioprio_get] {
            let zygote = &zygote;
            let thread = scope.spawn(move || {
                assert_ne!(ask(zygote, call), "refused");
                filter::refuse(&[Refusal::of(call, Answer::Errno(libc::ENOSYS))]).expect("a filter");
                assert_eq!(ask(zygote, call), "refused", "the filter of the calling thread");
            });
            thread.join().expect("a thread");
        }
    });
    // A helper of this thread.
    assert_eq!(ask(&zygote, 0), "0");
    // SAFETY: of this thread, which is the process's first.
    if unsafe { libc::prctl(libc::PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) } == 0 {
        assert_eq!(ask(&zygote, 0), SECBIT_NO_SETUID_FIXUP.to_string());
    } else {
        skip("a zygote's caller with other securebits", "needs root");
    }
    // SAFETY: of this process, which makes no memory executable any more.
    if unsafe { libc::prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) } == 0 {
        assert_eq!(ask(&zygote, 1), PR_MDWE_REFUSE_EXEC_GAIN.to_string());
    } else {
        skip("a zygote's caller that denies itself executable memory", "needs Linux 6.3");
    }
    drop(zygote);
    observe::assert_no_orphans();
}

scenario!(equally_many_filters_of_two_threads_are_not_taken_for_the_same);
/// Two threads that have one filter each, and not the same: their number says nothing.
pub fn equally_many_filters_of_two_threads_are_not_taken_for_the_same(_: &[String]) {
    let (one, other) = (libc::SYS_getpriority, libc::SYS_ioprio_get);
    let refuse = |call| filter::refuse(&[Refusal::of(call, Answer::Errno(libc::ENOSYS))]).expect("a filter");
    let (sender, receiver) = channel::<Zygote>();
    // It exists before the first thread's filter, so it does not have that.
    let thread = std::thread::spawn(move || {
        let zygote = receiver.recv().expect("a zygote");
        refuse(other);
        assert_eq!(ask(&zygote, one), "allowed", "the filter of the first thread");
        assert_eq!(ask(&zygote, other), "refused", "the filter of the calling thread");
        zygote
    });
    refuse(one);
    let zygote = zygote();
    assert_eq!((ask(&zygote, one), ask(&zygote, other)), ("refused".into(), "allowed".into()));
    assert_eq!(zygote.stats().starts, 1);
    sender.send(zygote).expect("a thread");
    let zygote = thread.join().expect("the thread");
    assert_eq!((ask(&zygote, one), ask(&zygote, other)), ("refused".into(), "allowed".into()));
    drop(zygote);
    observe::assert_no_orphans();
}

scenario!(filters_that_a_program_is_executed_with_need_no_other_helper);
/// A program that was executed with a filter, as in a container: all its threads have that one.
pub fn filters_that_a_program_is_executed_with_need_no_other_helper(_: &[String]) {
    filter::refuse(&[Refusal::of(libc::SYS_getpriority, Answer::Errno(libc::ENOSYS))]).expect("a filter");
    let error = std::process::Command::new("/proc/self/exe").arg("zygote_odd::common_filters_host").exec();
    panic!("{error}");
}

part!(common_filters_host);
/// The host of [`filters_that_a_program_is_executed_with_need_no_other_helper`], which does nothing with the library before it has several threads.
pub fn common_filters_host(_: &[String]) {
    let mut zygote = None;
    for _ in 0..3 {
        let in_thread = |zygote: Option<Zygote>| {
            let zygote = zygote.unwrap_or_else(crate::zygote::zygote);
            assert_eq!(ask(&zygote, libc::SYS_getpriority), "refused");
            assert!(Command::new("/bin/true").parent_death_signal(libc::SIGKILL).status().expect("status").success());
            zygote
        };
        let ours = zygote.take();
        zygote = Some(std::thread::spawn(move || in_thread(ours)).join().expect("a thread"));
    }
    assert_eq!(zygote.as_ref().map(|zygote| zygote.stats().starts), Some(1), "one helper for all threads");
    drop(zygote);
    observe::assert_no_orphans();
}

part!(asks);
/// The program of [`restrictions_that_proc_does_not_show_are_noticed`] and its neighbours: whether a call is refused, or its securebits, or its MDWE setting.
pub fn asks(args: &[String]) {
    const PR_GET_MDWE: i32 = 66;
    let call: i64 = args[0].parse().expect("a number");
    // SAFETY: these return numbers.
    unsafe {
        match call {
            0 => println!("{}", libc::prctl(libc::PR_GET_SECUREBITS)),
            1 => println!("{}", libc::prctl(PR_GET_MDWE, 0, 0, 0, 0)),
            call if libc::syscall(call, 1, 0) < 0 => println!("refused"),
            _ => println!("allowed"),
        }
    }
}
