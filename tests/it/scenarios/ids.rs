//! Children that change their IDs or capabilities while they share the host's memory: who can access that memory
//! meanwhile, and the state of the host afterwards.

use crate::hosts::in_a_copy;
use crate::observe::{self, eventually, opening_child, skip};
use forkless::{
    CallArg, CapabilitySet, Command, Namespace, Route, Stdio,
    internal::{DescriptorTable, Passing},
};
use forkless_tests::supervise::at_each;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// An ordinary user.
const USER: u32 = 1000;

fn is_root(what: &str) -> bool {
    let is_root = forkless_tests::process::is_root();
    if !is_root {
        skip(what, "that needs root");
    }
    is_root
}

scenario!(a_child_of_another_user_has_no_group_of_its_host);
/// Another user has none of the host's supplementary groups, unless they are asked for.
pub fn a_child_of_another_user_has_no_group_of_its_host(_: &[String]) {
    if !is_root("the groups of a child of another user") {
        return;
    }
    // SAFETY: this process alone, which has one thread.
    assert_eq!(unsafe { libc::setgroups(3, [1, 2, 3].as_ptr()) }, 0);
    let groups = |set: &dyn Fn(&mut Command)| {
        let mut command = Command::new("grep");
        set(command.args(["Groups:", "/proc/self/status"]));
        let output = command.output().expect("output");
        String::from_utf8_lossy(&output.stdout).split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(groups(&|_| {}), "1 2 3");
    assert_eq!(groups(&|command| _ = command.uid(USER)), "");
    assert_eq!(groups(&|command| _ = command.uid(USER).gid(USER)), "");
    assert_eq!(groups(&|command| _ = command.uid(USER).groups(&[2])), "2");
}

fn dumpable() -> i32 {
    // SAFETY: reads a flag.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE) }
}

fn set_dumpable(value: libc::c_ulong) {
    // SAFETY: a flag of this process.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, value, 0, 0, 0) }, 0);
}

/// A FIFO that a child opens for reading, and stays in that until it is [let go](Fifo::let_go).
struct Fifo {
    path: PathBuf,
    _directory: TempDir,
}

impl Fifo {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("one's own directory");
        let path = directory.path().join("fifo");
        let name = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("a path");
        // SAFETY: makes a FIFO.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o666) }, 0);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).expect("one's own file");
        Self { path, _directory: directory }
    }

    fn stdio(&self) -> Stdio {
        Stdio::open(&self.path, libc::O_RDONLY, 0)
    }

    fn let_go(&self) {
        let open = || std::fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&self.path);
        eventually("a reader of the FIFO", || open().is_ok());
    }
}

/// `/bin/true` as another user.
fn as_user() -> Command {
    let mut command = Command::new("/bin/true");
    command.uid(USER).gid(USER);
    command
}

/// Runs `check` with the pid of a child of this command that waits in its opening of a FIFO.
fn while_it_waits(mut command: Command, check: impl FnOnce(i32)) {
    let fifo = Fifo::new();
    command.stdin(fifo.stdio());
    thread::scope(|scope| {
        let launch = scope.spawn(move || command.status());
        let mut pid = 0;
        eventually("a child that waits", || {
            pid = opening_child().unwrap_or(0);
            pid != 0 || launch.is_finished()
        });
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(pid)));
        fifo.let_go();
        assert!(launch.join().expect("a thread").expect("status").success());
        checked.expect("while the child waited");
    });
}

/// Whether a process of the ordinary user can open another one's memory.
fn is_open_to_user(pid: i32) -> bool {
    let mut peek = std::process::Command::new("/bin/sh");
    peek.args(["-c", ": < /proc/$0/mem", &pid.to_string()]).uid(USER).gid(USER);
    peek.stderr(std::process::Stdio::null()).status().expect("a shell").success()
}

scenario!(the_childs_new_user_cannot_access_the_hosts_memory);
/// The memory of a host is closed to the user that one of its children has become, also after another such child has left.
pub fn the_childs_new_user_cannot_access_the_hosts_memory(_: &[String]) {
    if !is_root("who may look at a child that has changed its ids") {
        return;
    }
    assert!(as_user().status().expect("status").success());
    assert_eq!(dumpable(), 1);
    while_it_waits(as_user(), |pid| {
        assert!(!is_open_to_user(pid), "with one such child");
        for _ in 0..20 {
            assert!(as_user().status().expect("status").success());
            assert!(!is_open_to_user(pid), "after another one has left");
        }
        // Negative control: an accessible process is detected.
        set_dumpable(1);
        let is_open = is_open_to_user(pid);
        set_dumpable(0);
        if !is_open {
            skip("the control of who may look at a child that has changed its ids", "another rule forbids it here");
        }
    });
    assert_eq!(dumpable(), 1, "when the last one has left");
}

scenario!(a_host_that_is_not_dumpable_stays_so);
/// A host that has made itself non-dumpable is so again after such a launch. The kernel may have changed it: with
/// fs.suid_dumpable a change of IDs makes any memory dumpable (1), or readable by root (2).
pub fn a_host_that_is_not_dumpable_stays_so(_: &[String]) {
    if !is_root("a non-dumpable host whose child changes its ids") {
        return;
    }
    forkless::set_dumpable(false).expect("prctl");
    // As a kernel with fs.suid_dumpable = 1 does it.
    while_it_waits(as_user(), |_| set_dumpable(1));
    assert_eq!(dumpable(), 0);
    forkless::set_dumpable(true).expect("prctl");
    while_it_waits(as_user(), |_| assert_ne!(dumpable(), 1));
    assert_eq!(dumpable(), 1);
}

scenario!(overlapping_id_changes_record_dumpable_once);
/// The host's state is recorded by the first of such launches. At the next one the child has already changed it.
pub fn overlapping_id_changes_record_dumpable_once(_: &[String]) {
    if !is_root("a host with two children of other ids at once") {
        return;
    }
    // The second is the last to leave.
    let second = Fifo::new();
    let mut launch = None;
    while_it_waits(as_user(), |_| {
        assert_eq!(dumpable(), 0);
        let mut command = as_user();
        command.stdin(second.stdio());
        launch = Some(thread::spawn(move || command.status()));
        eventually("two children that wait", || observe::opening_children().len() == 2);
    });
    assert_eq!(dumpable(), 0, "one is there still");
    second.let_go();
    let launch = launch.expect("launched");
    assert!(launch.join().expect("a thread").expect("status").success());
    assert_eq!(dumpable(), 1, "when the last one has left");
}

/// How many children change their ids at the same time in [`a_host_that_keeps_changing_ids_becomes_dumpable_between_launches`], and for how long each: as good as never
/// are they all away at once by chance.
const BUSY: usize = 8;
const HOLD_MS: u64 = 20;

/// So long do such launches wait for those under way (`launch/dumpable.rs`).
const PATIENCE: Duration = Duration::from_millis(100);

scenario!(a_host_that_keeps_changing_ids_becomes_dumpable_between_launches);
/// A host in which such launches always overlap is dumpable again, now and then, while they go on.
pub fn a_host_that_keeps_changing_ids_becomes_dumpable_between_launches(_: &[String]) {
    if !is_root("a host that always launches children of other ids") {
        return;
    }
    let nap = [0u64, HOLD_MS * 1_000_000].map(u64::to_ne_bytes).concat();
    let one = Instant::now();
    as_user().status().expect("status");
    if one.elapsed() > PATIENCE {
        let why = format!("one launch takes {:?}, and others wait {PATIENCE:?} for it at most", one.elapsed());
        return observe::skip("a host that always launches children of other ids", &why);
    }
    let (done, launched, seen) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..BUSY {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    let mut command = as_user();
                    // SAFETY: a nap changes nothing.
                    unsafe { command.call(libc::SYS_nanosleep as u32, [CallArg::Bytes(nap.clone()), 0.into()], None) };
                    drop(command.launch().expect("launch"));
                    launched.fetch_add(1, Relaxed);
                }
            });
        }
        let begun = Instant::now();
        // Once it could be the beginning.
        while seen.load(Relaxed) < 3 && begun.elapsed() < Duration::from_secs(60) {
            while dumpable() == 1 && begun.elapsed() < Duration::from_secs(60) {
                std::hint::spin_loop();
            }
            let before = launched.load(Relaxed);
            while dumpable() != 1 && begun.elapsed() < Duration::from_secs(60) {
                std::hint::spin_loop();
            }
            if launched.load(Relaxed) > before && dumpable() == 1 {
                seen.fetch_add(1, Relaxed);
            }
        }
        done.store(true, Relaxed);
    });
    let (seen, launched) = (seen.load(Relaxed), launched.load(Relaxed));
    assert!(seen >= 3, "dumpable {seen} times in {launched} launches");
    assert_eq!(dumpable(), 1);
    observe::assert_no_orphans();
}

scenario!(a_process_forked_during_an_id_change_does_not_hang);
/// A process that is forked while a child with other IDs is in the original's memory has no such child: it does not
/// wait for one, and changes take effect at once.
pub fn a_process_forked_during_an_id_change_does_not_hang(_: &[String]) {
    if !is_root("a copy that is forked amid a launch with other ids") {
        return;
    }
    while_it_waits(as_user(), |_| {
        in_a_copy(|| {
            for _ in 0..3 {
                assert!(as_user().status().expect("status").success());
            }
            forkless::set_dumpable(true).expect("PR_SET_DUMPABLE");
            assert_eq!(dumpable(), 1, "no child is in the copy's memory");
            assert!(as_user().status().expect("status").success());
            assert_eq!(dumpable(), 1);
        });
    });
    assert_eq!(dumpable(), 1);
}

scenario!(set_dumpable_works_during_an_id_change);
/// A change of the host's flag while such a child is in its memory takes effect when that has left.
pub fn set_dumpable_works_during_an_id_change(_: &[String]) {
    if !is_root("a host that makes itself non-dumpable while a child changes ids") {
        return;
    }
    let set = |dumpable| forkless::set_dumpable(dumpable).expect("PR_SET_DUMPABLE");
    while_it_waits(as_user(), |_| set(false));
    assert_eq!(dumpable(), 0, "asked for meanwhile");
    assert!(as_user().status().expect("status").success());
    assert_eq!(dumpable(), 0, "asked for before");
    while_it_waits(as_user(), |pid| {
        set(true);
        assert!(!is_open_to_user(pid), "the child is there still");
    });
    assert_eq!(dumpable(), 1, "asked for meanwhile, and so when the child has left");
    set(false);
    assert_eq!(dumpable(), 0);
    set(true);
    assert_eq!(dumpable(), 1);
}

scenario!(the_host_is_not_dumpable_while_its_child_has_other_credentials);
/// A child with fewer capabilities, or in a user namespace, is open to others than its host is, so the memory is closed by the plan.
pub fn the_host_is_not_dumpable_while_its_child_has_other_credentials(_: &[String]) {
    if !is_root("who may look at a child that has given up capabilities") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("program");
    std::fs::copy("/bin/true", &program).expect("a copy");
    let closes = |what: &str, set: &dyn Fn(&mut Command)| {
        let mut command = Command::new(&program);
        set(&mut command);
        // Its last step takes until the program is not busy any more.
        let writer = std::fs::OpenOptions::new().write(true).open(&program).expect("open");
        let mut seen = false;
        let answer = thread::scope(|scope| {
            let launch = scope.spawn(move || command.status());
            while !launch.is_finished() && !seen {
                seen = dumpable() == 0;
            }
            drop(writer);
            launch.join().expect("a thread")
        });
        assert!(seen, "the memory is open: {what}");
        assert!(answer.expect("status").success(), "{what}");
        assert_eq!(dumpable(), 1, "afterwards: {what}");
    };
    closes("fewer capabilities", &|command| _ = command.permitted(CapabilitySet::EMPTY));
    closes("a new user namespace", &|command| _ = command.unshare(Namespace::User));
    closes("the same with maps", &|command| _ = command.unshare(Namespace::User).map_uid(0, 0, 1).map_gid(0, 0, 1));
    let mut holder = Command::new("/bin/sleep").arg("100").unshare(Namespace::User).spawn().expect("a namespace");
    let path = format!("/proc/{}/ns/user", holder.id());
    let join = |command: &mut Command| _ = command.join(Namespace::User, File::open(&path).expect("a namespace"));
    closes("another user namespace", &join);
    // SAFETY: the child's own ids.
    let call = |command: &mut Command| unsafe { _ = command.call(libc::SYS_setfsuid as u32, [1000.into()], None) };
    closes("a call for other ids", &call);
    holder.kill().expect("kill");
    holder.wait().expect("wait");
    observe::assert_no_orphans();
}

scenario!(launches_after_an_id_change_can_access_the_host_again);
/// A file that a launch cannot open because another launch changes IDs is available to the next launch.
pub fn launches_after_an_id_change_can_access_the_host_again(_: &[String]) {
    if !is_root("descriptors passed while another child changes ids") {
        return;
    }
    // SAFETY: capabilities of this process, whose only thread this is: all but CAP_SYS_PTRACE.
    unsafe {
        let (mut header, mut sets) = ([0x2008_0522u32, 0], [0u32; 6]);
        assert_eq!(libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()), 0);
        (sets[0], sets[1]) = (sets[0] & !(1 << 19), sets[1] & !(1 << 19));
        assert_eq!(libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_ptr()), 0);
    }
    let passed = || {
        let null = File::open("/dev/null").expect("open");
        let mut child = Command::new("/bin/true").fd(null, 7).spawn().expect("spawn");
        assert!(child.wait().expect("wait").success());
        match child.route() {
            Route::Clone { table: DescriptorTable::Private(passing), .. } => passing,
            _ => Passing::None,
        }
    };
    if passed() != Passing::PidfdGetfd {
        return skip("descriptors passed while another child changes ids", "pidfd_getfd is refused here");
    }
    for _ in 0..3 {
        while_it_waits(as_user(), |_| assert_eq!(passed(), Passing::None, "the host may not be looked at"));
        assert_eq!(passed(), Passing::PidfdGetfd, "afterwards");
    }
    // The same by the host's own doing.
    forkless::set_dumpable(false).expect("PR_SET_DUMPABLE");
    assert_eq!(passed(), Passing::None);
    forkless::set_dumpable(true).expect("PR_SET_DUMPABLE");
    assert_eq!(passed(), Passing::PidfdGetfd);
}

scenario!(a_host_that_drops_root_during_a_launch_stays_non_dumpable);
/// The process drops root while a child with other IDs is on its way: it is non-dumpable then, for good.
pub fn a_host_that_drops_root_during_a_launch_stays_non_dumpable(_: &[String]) {
    if !is_root("a process that drops root during a launch") {
        return;
    }
    // While the child is before its exec.
    in_a_copy(|| {
        let fifo = Fifo::new();
        thread::scope(|scope| {
            let launch = || Command::new("/bin/true").uid(USER + 1).fd(fifo.stdio(), 5).status().expect("status");
            let launched = scope.spawn(launch);
            eventually("a child asleep before exec", || opening_child().is_some());
            drop_root();
            fifo.let_go();
            assert!(launched.join().expect("a thread").success());
        });
        assert_eq!(dumpable(), 0);
    });
    // At every change and look of the launch itself, and after the last one.
    for step in 0..9 {
        in_a_copy(|| dropped_at(step));
    }
    // At any moment of many launches.
    let opened = (0..observe::scaled(40)).filter(|n| {
        let mut seen = 0;
        in_a_copy(|| {
            thread::scope(|scope| {
                scope.spawn(|| while Command::new("/bin/true").uid(USER + 1).status().is_ok() {});
                thread::sleep(Duration::from_micros(3000 + 50 * (*n as u64 % 20)));
                drop_root();
            });
            seen = dumpable();
            assert_eq!(seen, 0, "{n}");
        });
        seen != 0
    });
    assert_eq!(opened.count(), 0);
}

/// All threads of this process become another user, by libc.
fn drop_root() {
    // SAFETY: of this process.
    assert_eq!(unsafe { libc::setuid(USER) }, 0);
}

/// Drops root when the launching thread makes its `step`th call of prctl(2) for the flag.
fn dropped_at(step: usize) {
    let mut seen = 0;
    // Filters of several values would need several listeners: all calls of prctl(2).
    let _ = at_each(
        libc::SYS_prctl,
        || Command::new("/bin/true").uid(USER + 1).status(),
        || {
            if seen == step {
                // The call is interrupted by libc's signal, and made again.
                drop_root();
            }
            seen += 1;
        },
    );
    if seen <= step {
        drop_root();
    }
    assert_eq!(dumpable(), 0, "root was dropped at step {step}");
}
