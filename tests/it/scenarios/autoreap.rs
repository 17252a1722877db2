//! Children that the kernel reaps, or kills with their handle, with `clone3(2)` flags of Linux 7.1. Scenarios that need
//! the flags are skipped on an older kernel; refusals are tested on every kernel.

use crate::elf::Programs;
use crate::foreign;
use crate::observe::{self, eventually, skip, state_of};
use forkless::zygote::{Zygote, ZygoteOptions};
use forkless::{
    BpfInstruction, Change, Child, Command, Error, Launcher, Namespace, Route, Stdio, Step, WaitSet,
    internal::CloneCall,
};
use forkless_tests::filter::{Answer, Refusal, refuse};
use forkless_tests::process::{is_root, kill};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

const SIGKILL: i32 = libc::SIGKILL;

/// Long enough for anything that comes at all.
const LONG: Duration = Duration::from_secs(60);

/// Does this kernel know the three flags? One that does finds that the cgroup is not open, and makes no child.
fn has_flags() -> bool {
    const CLONE_INTO_CGROUP: u64 = 1 << 33;
    const AUTOREAP_NNP_AUTOKILL: u64 = 0b111 << 34;
    let mut pidfd = -1_i32;
    let mut args = [0_u64; 11];
    let flags = CLONE_INTO_CGROUP | libc::CLONE_PIDFD as u64 | AUTOREAP_NNP_AUTOKILL;
    (args[0], args[1], args[10]) = (flags, &raw mut pidfd as u64, i32::MAX as u64);
    // SAFETY: no memory is shared, and were there a child after all, it would end here at once.
    let answer = unsafe {
        let answer = libc::syscall(libc::SYS_clone3, args.as_mut_ptr(), size_of_val(&args));
        if answer == 0 {
            libc::_exit(0);
        }
        answer
    };
    answer < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EBADF)
}

/// Returns false, with a message, if the kernel does not have the flags.
fn can(what: &str) -> bool {
    let can = has_flags();
    if !can {
        skip(what, "this kernel has no CLONE_AUTOREAP (Linux 7.1)");
    }
    can
}

fn autoreaped(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.autoreap(true);
    command
}

fn sleeper() -> Command {
    let mut command = autoreaped("/bin/sleep".as_ref());
    command.arg("1000");
    command
}

/// Step, errno and words of a failed launch.
fn failure<T>(answer: io::Result<T>) -> (Step, Option<i32>, String) {
    let error = answer.err().expect("an error");
    let detail = Error::of(&error).expect("an error of this crate");
    (detail.step(), detail.errno(), error.to_string())
}

type Setting = fn(&mut Command, bool) -> &mut Command;

const SETTINGS: [(&str, Setting); 2] = [("autoreap", Command::autoreap), ("pidfd_autokill", Command::pidfd_autokill)];

scenario!(autoreap_and_autokill_are_refused_by_name_with_what_excludes_them);
/// Settings that exclude the flags are refused by name, on every kernel.
pub fn autoreap_and_autokill_are_refused_by_name_with_what_excludes_them(_: &[String]) {
    let allow = BpfInstruction { code: 6, jt: 0, jf: 0, k: 0x7fff_0000 };
    for (name, set) in SETTINGS {
        let check = |word: &str, change: &dyn Fn(&mut Command)| {
            let mut command = Command::new("true");
            change(set(&mut command, true));
            let (step, _, text) = failure(command.spawn());
            assert!(step == Step::Check && text.contains(name) && text.contains(word), "{text}");
        };
        check("clone3", &|command| _ = command.launcher(Launcher::Fork));
        check("clone3", &|command| _ = command.launcher(Launcher::PosixSpawn));
        check("pidfd(false)", &|command| _ = command.pidfd(false));
        check("seccomp", &|command| _ = command.no_new_privs(true).seccomp([allow]));
        let mut command = Command::new("true");
        assert_eq!(Error::of(&set(&mut command, true).exec()).map(Error::step), Some(Step::Check));
        // Not asked for after all.
        assert!(set(&mut command, false).launcher(Launcher::Fork).status().expect("a plain launch").success());
    }
    let zygote = Zygote::start(&ZygoteOptions::new()).expect("a zygote");
    let (step, _, text) = failure(zygote.spawn(&autoreaped("/bin/true".as_ref()).prepare().expect("prepare")));
    assert!(step == Step::Check && text.contains("zygote"), "{text}");
    drop(zygote);
    observe::assert_no_orphans();
}

/// By every form of launch.
fn fails_everywhere(set: Setting, flag: &str, errno: i32, needs: &str) {
    let command = || {
        let mut command = Command::new("/bin/true");
        set(&mut command, true);
        command
    };
    let prepared = command().prepare().expect("prepare");
    for answer in [
        command().spawn().map(drop),
        command().launch().map(drop),
        command().status().map(drop),
        command().output().map(drop),
        prepared.spawn().map(drop),
        prepared.status().map(drop),
        forkless::launch_all(std::slice::from_ref(&prepared)).remove(0).map(drop),
    ] {
        let (step, found, text) = failure(answer);
        assert_eq!((step, found), (Step::Clone, Some(errno)), "{text}");
        assert!(text.contains(flag) && text.contains(needs), "{text}");
    }
}

scenario!(a_missing_clone3_flag_is_an_error_that_names_it);
/// Where the flags cannot be had, that is an error that names them, and no other child is made instead. Other launches are as before.
pub fn a_missing_clone3_flag_is_an_error_that_names_it(_: &[String]) {
    const FLAGS: [&str; 2] = ["CLONE_AUTOREAP", "CLONE_PIDFD_AUTOKILL"];
    let route = |expected: CloneCall| {
        let mut child = Command::new("/bin/true").spawn().expect("a plain launch");
        assert!(matches!(child.route(), Route::Clone { call, .. } if call == expected), "{}", child.route());
        child.wait().expect("wait");
    };
    let fails = |errno: i32, needs: &str| {
        for ((_, set), flag) in SETTINGS.into_iter().zip(FLAGS) {
            fails_everywhere(set, flag, errno, needs);
        }
    };
    route(CloneCall::Clone3);
    let before = observe::open_fds();
    if has_flags() {
        skip("what a kernel before 7.1 answers", "this one has the flags");
    } else {
        fails(libc::EINVAL, "Linux 7.1");
        route(CloneCall::Clone3);
    }
    refuse(&[Refusal::of(libc::SYS_clone3, Answer::Errno(libc::ENOSYS))]).expect("a filter");
    fails(libc::ENOSYS, "clone3 of Linux 7.1");
    route(CloneCall::Clone);
    fails(libc::ENOSYS, "clone3 of Linux 7.1");
    assert_eq!(observe::open_fds(), before);
    observe::assert_no_orphans();
}

/// The kernel takes an autoreaped child away a moment after its status can be read.
fn assert_nothing_left() {
    eventually("nothing to look after", || forkless::reap_orphans() == 0);
    eventually("no child", observe::is_childless);
}

/// SIGCHLDs handled.
static SEEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_one(_: i32) {
    SEEN.fetch_add(1, Relaxed);
}

/// Set when this is dropped, also by a panic.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

scenario!(an_autoreaped_child_has_its_status_by_the_pidfd_alone);
/// Every way to wait returns the status; no other code gets it; no SIGCHLD is sent; there is no resource usage.
pub fn an_autoreaped_child_has_its_status_by_the_pidfd_alone(_: &[String]) {
    if !can("how an autoreaped child ends") {
        return;
    }
    // SAFETY: the handler only counts.
    unsafe { libc::signal(libc::SIGCHLD, count_one as *const () as libc::sighandler_t) };
    let programs = Programs::new();
    let seven = programs.exits(7);
    // The first launch of a process has a child that probes, which is not autoreaped.
    assert_eq!(Command::new(&seven).status().expect("status").code(), Some(7));
    SEEN.store(0, Relaxed);
    let (stop, taken) = (AtomicBool::new(false), AtomicUsize::new(0));
    let take = || matches!(foreign::wait(-1, libc::WNOHANG | libc::__WALL), Ok((pid, _)) if pid > 0);
    thread::scope(|scope| {
        let _stop = AtEnd(&stop);
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                taken.fetch_add(take() as usize, Relaxed);
                thread::yield_now();
            }
        });
        let prepared = autoreaped(&seven).prepare().expect("prepare");
        for n in 0..observe::scaled(100) {
            assert_eq!(end_of(n, &mut autoreaped(&seven), &prepared).code(), Some(7), "launch {n}");
        }
        let mut child = sleeper().spawn().expect("spawn");
        assert!(child.try_wait().expect("a look").is_none());
        assert!(child.wait_timeout(Duration::from_millis(1)).expect("a look").is_none());
        child.kill().expect("kill");
        assert_eq!(child.wait().expect("wait").signal(), Some(SIGKILL));
        child.kill().expect("an ended child is no error");
        assert_eq!(child.wait().expect("the same again").signal(), Some(SIGKILL));
        let mut group = sleeper().process_group(0).spawn().expect("spawn");
        assert_eq!(group.terminate_group(libc::SIGTERM, LONG).expect("terminate").signal(), Some(libc::SIGTERM));
    });
    assert_eq!((taken.load(Relaxed), SEEN.load(Relaxed)), (0, 0), "seen by others");
    eventually("no child", observe::is_childless);
    // Neither is blind: a plain child.
    let mut plain = Command::new(&seven).spawn().expect("spawn");
    eventually("a plain child taken", take);
    assert!(SEEN.load(Relaxed) > 0 && plain.wait().is_ok() && plain.usage().is_none());
}

/// The `n`th of the ways to wait.
fn end_of(n: usize, command: &mut Command, prepared: &forkless::Prepared) -> ExitStatus {
    let waited = |mut child: Child, how: fn(&mut Child) -> io::Result<ExitStatus>| {
        let status = how(&mut child)?;
        assert!(child.usage().is_none());
        Ok(status)
    };
    let answer = match n % 8 {
        0 => command.spawn().and_then(|child| waited(child, Child::wait)),
        1 => command.launch().and_then(|child| waited(child, Child::wait)),
        2 => command.status(),
        3 => command.output().map(|output| output.status),
        4 => prepared.status(),
        5 => command.spawn().and_then(|child| {
            waited(child, |child| {
                loop {
                    if let Some(status) = child.try_wait()? {
                        return Ok(status);
                    }
                    thread::yield_now();
                }
            })
        }),
        6 => command.spawn().and_then(|child| waited(child, |child| Ok(child.wait_timeout(LONG)?.expect("it ends")))),
        _ => command.spawn().and_then(|child| {
            waited(child, |child| match child.wait_change(None)? {
                Some(Change::Ended(status)) => Ok(status),
                other => panic!("{other:?}"),
            })
        }),
    };
    answer.expect("a status")
}

/// A command whose child is held before exec until someone opens the FIFO for writing.
fn held(program: &Path, fifo: &Path) -> Command {
    let mut command = autoreaped(program);
    command.fd(Stdio::open(fifo, libc::O_RDONLY, 0), 5);
    command
}

fn asleep() -> i32 {
    let mut pid = 0;
    eventually("a child asleep before exec", || {
        pid = observe::opening_child().unwrap_or(0);
        pid != 0
    });
    pid
}

fn signal(pid: i32, signal: i32) {
    assert!(kill(pid, signal), "it is there");
}

scenario!(an_autoreaped_child_that_does_not_come_to_exec_is_reported);
/// A child that fails, is killed or is stopped before its exec.
pub fn an_autoreaped_child_that_does_not_come_to_exec_is_reported(_: &[String]) {
    if !can("an autoreaped child that does not come to exec") {
        return;
    }
    let programs = Programs::new();
    let missing = programs.path("missing");
    for n in 0..observe::scaled(20) {
        let mut command = autoreaped(&missing);
        let answer = match n % 4 {
            0 => command.spawn().map(drop),
            1 => command.launch().and_then(|mut child| child.wait()).map(drop),
            2 => command.status().map(drop),
            _ => command.launch().and_then(|mut child| child.wait_exec()),
        };
        let (step, errno, text) = failure(answer);
        assert_eq!((step, errno), (Step::Exec, Some(libc::ENOENT)), "{text}");
    }
    let fifo = programs.fifo("killed");
    let mut child = held(&missing, &fifo).launch().expect("launch");
    signal(asleep(), libc::SIGTERM);
    let error = child.wait().expect_err("killed before its exec");
    let detail = Error::of(&error).expect("an error of this crate");
    assert_eq!((detail.step(), detail.signal()), (Step::Open, Some(libc::SIGTERM)), "{error}");
    // A stopped one does not keep `spawn`; nor one that pipes are passed to.
    for (n, pipe) in [false, true].into_iter().enumerate() {
        let fifo = programs.fifo(&format!("stopped-{n}"));
        let mut command = held(&programs.exits(6), &fifo);
        if pipe {
            command.stdin(Stdio::piped());
        }
        let (mut child, pid) = thread::scope(|scope| {
            let launcher = scope.spawn(|| command.spawn().expect("spawn"));
            let pid = asleep();
            signal(pid, libc::SIGSTOP);
            (launcher.join().expect("it returns"), pid)
        });
        assert_eq!(child.id() as i32, pid);
        signal(pid, libc::SIGCONT);
        drop(OpenOptions::new().write(true).open(&fifo).expect("open"));
        assert_eq!(child.wait().expect("wait").code(), Some(6));
    }
    assert_nothing_left();
}

scenario!(a_dropped_autoreaped_child_leaks_nothing);
/// A handle that is dropped leaves nothing: no zombie, nothing to reap, no descriptor, whenever that is.
pub fn a_dropped_autoreaped_child_leaks_nothing(_: &[String]) {
    if !can("an autoreaped child whose handle is dropped") {
        return;
    }
    let programs = Programs::new();
    let (three, missing) = (programs.exits(3), programs.path("missing"));
    let is_gone = |pid: u32| state_of(pid as i32).is_none();
    drop(Command::new(&three).status());
    let before = observe::open_fds();
    let prepared = autoreaped(&three).prepare().expect("prepare");
    for n in 0..observe::scaled(400) {
        match n % 5 {
            0 => drop(autoreaped(&three).spawn().expect("spawn")),
            1 => drop(autoreaped(&three).launch().expect("launch")),
            2 => drop(autoreaped(&missing).launch()),
            3 => drop(prepared.launch().expect("launch")),
            _ => drop(sleeper().kill_on_drop(true).launch().expect("launch")),
        }
    }
    eventually("nothing left to look after", || forkless::reap_orphans() == 0);
    eventually("no child", observe::is_childless);
    assert_eq!(observe::open_fds(), before);
    // What it reads is kept until its exec, and nothing longer.
    let fifo = programs.fifo("kept");
    drop(held(&three, &fifo).launch().expect("launch"));
    let pid = asleep() as u32;
    assert_eq!(forkless::reap_orphans(), 1, "its plan");
    drop(OpenOptions::new().write(true).open(&fifo).expect("open"));
    eventually("nothing left to look after", || forkless::reap_orphans() == 0);
    eventually("reaped by nobody", || is_gone(pid));
    // Without a further call of the library's.
    let ends_itself = |autoreap: bool| {
        let child = Command::new(&three).autoreap(autoreap).spawn().expect("spawn");
        let pid = child.id();
        drop(child);
        pid
    };
    let pid = ends_itself(true);
    eventually("reaped by nobody", || is_gone(pid));
    // Negative control: another one is a zombie until then, if it had not ended when its handle was dropped.
    let zombie = (0..1000).map(|_| ends_itself(false)).find(|&pid| !is_gone(pid)).expect("one that was dropped early");
    eventually("a zombie", || state_of(zombie as i32) == Some('Z'));
    assert_nothing_left();
}

/// Is it readable before the time is up?
fn does_end_within(fd: &impl AsRawFd, limit: Duration) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the kernel writes to `poll`.
    unsafe { libc::poll(&mut poll, 1, limit.as_millis() as i32) == 1 }
}

/// Waits for the child's end without asking for it.
fn wait_unseen(child: &Child) {
    assert!(does_end_within(&child.pidfd().expect("a pidfd"), LONG));
}

/// A child of ours with the given pid, which the kernel has given to nobody; none, and says so, where it cannot be chosen.
fn successor(pid: u32, program: &Path, argument: &str) -> Option<std::process::Child> {
    for _ in 0..200 {
        if fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).is_err() {
            skip("an autoreaped child whose pid is another's", "choosing a pid needs CAP_CHECKPOINT_RESTORE");
            return None;
        }
        let mut other = std::process::Command::new(program).arg(argument).spawn().expect("spawn");
        if other.id() == pid {
            return Some(other);
        }
        other.kill().expect("kill");
        other.wait().expect("wait");
    }
    panic!("pid {pid} was never given");
}

scenario!(a_process_with_an_autoreaped_childs_reused_pid_is_not_signalled);
/// The kernel frees the pid at the child's end. Whoever gets it is neither signalled nor reaped by the handle.
pub fn a_process_with_an_autoreaped_childs_reused_pid_is_not_signalled(_: &[String]) {
    if !can("an autoreaped child whose pid is another's") {
        return;
    }
    let programs = Programs::new();
    let sleep = Path::new("/bin/sleep");
    let mut child = autoreaped(&programs.exits(7)).kill_on_drop(true).process_group(0).spawn().expect("spawn");
    wait_unseen(&child);
    let Some(mut victim) = successor(child.id(), sleep, "1000") else { return };
    child.kill().expect("kill");
    child.signal_group(libc::SIGTERM).expect("a signal to nobody");
    drop(autoreaped(&programs.exits(7)).spawn().expect("spawn"));
    assert_eq!(child.wait().expect("wait").code(), Some(7), "the status is its own");
    drop(child);
    // Dropped unseen.
    let child = autoreaped(&programs.exits(7)).kill_on_drop(true).spawn().expect("spawn");
    wait_unseen(&child);
    let Some(mut second) = successor(child.id(), sleep, "1000") else { return };
    drop(child);
    forkless::reap_orphans();
    for one in [&mut victim, &mut second] {
        assert!(one.try_wait().expect("wait").is_none(), "it was not meant");
        one.kill().expect("kill");
        assert_eq!(one.wait().expect("its status is here").signal(), Some(SIGKILL));
    }
    // One that failed is not reaped by its number.
    let mut failed = None;
    eventually("a launch that returns before its child fails", || {
        // A child that has failed by then is the call's own error.
        failed = autoreaped(&programs.path("missing")).launch().ok();
        failed.is_some()
    });
    let mut failed = failed.expect("a child");
    wait_unseen(&failed);
    let Some(mut ended) = successor(failed.id(), &programs.exits(5), "") else { return };
    eventually("the other one ended", || state_of(ended.id() as i32) == Some('Z'));
    assert_eq!(failure(failed.wait_exec()).1, Some(libc::ENOENT));
    assert_eq!(ended.wait().expect("its status is here").code(), Some(5));
    assert_nothing_left();
}

scenario!(autoreaped_children_are_waited_for_in_sets_and_awaited);
/// Sets, and the awaiting kind.
pub fn autoreaped_children_are_waited_for_in_sets_and_awaited(_: &[String]) {
    if !can("many autoreaped children") {
        return;
    }
    let programs = Programs::new();
    let all: Vec<_> = (0..10).map(|code| autoreaped(&programs.exits(code)).prepare().expect("prepare")).collect();
    let mut set = WaitSet::new().expect("a set");
    for n in 0..observe::scaled(200) {
        let child = if n % 2 == 0 { all[n % 10].spawn() } else { all[n % 10].launch() }.expect("a child");
        if n % 3 == 0 {
            wait_unseen(&child);
        }
        set.insert(child, n % 10).expect("insert");
    }
    while let Some(ended) = set.wait().expect("wait") {
        assert_eq!(ended.status.expect("a status").code(), Some(ended.value as i32));
        assert!(ended.child.usage().is_none());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for n in 0..observe::scaled(100) {
            let prepared = forkless::tokio::Prepared::from(all[n % 10].clone());
            assert_eq!(prepared.status().await.expect("a status").code(), Some((n % 10) as i32));
            let output = prepared.output().await.expect("output");
            assert_eq!(output.status.code(), Some((n % 10) as i32));
            drop(prepared.spawn().expect("spawn"));
        }
        let mut slow = forkless::tokio::Command::from(std::mem::replace(&mut sleeper(), Command::new("")));
        let mut child = slow.spawn().expect("spawn");
        assert!(child.try_wait().expect("a look").is_none());
        child.kill().await.expect("kill");
        drop(slow.kill_on_drop(true).spawn().expect("spawn"));
    });
    drop(runtime);
    assert_nothing_left();
}

scenario!(a_forked_process_sees_an_autoreaped_childs_end);
/// A forked copy of the host, for which the child is no child, learns its end by the pidfd.
pub fn a_forked_process_sees_an_autoreaped_childs_end(_: &[String]) {
    if !can("an autoreaped child in a forked copy of its host") {
        return;
    }
    let mut child = sleeper().spawn().expect("spawn");
    let (mut read, mut write) = io::pipe().expect("a pipe");
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let runs = matches!(child.try_wait(), Ok(None));
        write.write_all(b".").expect("write");
        let ended = child.wait().is_ok_and(|status| status.signal() == Some(SIGKILL));
        // SAFETY: ends the copy.
        unsafe { libc::_exit(runs as i32 | (ended as i32) << 1) };
    }
    drop(write);
    read.read_exact(&mut [0]).expect("the copy has looked");
    child.kill().expect("kill");
    assert_eq!(foreign::wait(pid, 0), Ok((pid, 3 << 8)), "what the copy has seen");
    assert_eq!(child.wait().expect("wait").signal(), Some(SIGKILL));
    assert_nothing_left();
}

scenario!(autoreaped_children_take_settings);
/// In namespaces, with id maps, in a vfork'd child, and by other threads than the caller's.
pub fn autoreaped_children_take_settings(_: &[String]) {
    if !can("autoreaped children with settings") {
        return;
    }
    let programs = Programs::new();
    // SAFETY: numbers.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let mapped = |command: &mut Command| {
        command.unshare(Namespace::User).map_uid(0, uid, 1).map_gid(0, gid, 1);
    };
    type Setting<'a> = (&'a str, &'a (dyn Fn(&mut Command) + Sync));
    let settings: [Setting<'_>; 5] = [
        ("user namespace", &mapped),
        ("vfork", &|command| {
            mapped(command);
            command.oom_score_adj(500);
        }),
        ("PID namespace", &|command| _ = command.unshare(Namespace::User).unshare(Namespace::Pid)),
        ("parent-death signal", &|command| _ = command.parent_death_signal(SIGKILL)),
        ("pipes", &|command| _ = command.stdin(Stdio::piped()).stdout(Stdio::piped())),
    ];
    let all = || {
        for ((name, set), (_, asked)) in settings.iter().flat_map(|one| SETTINGS.map(|asked| (one, asked))) {
            let mut command = Command::new(programs.exits(9));
            set(asked(command.no_new_privs(true), true));
            let mut child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(child.wait().expect("wait").code(), Some(9), "{name}");
        }
    };
    all();
    thread::scope(|scope| scope.spawn(all).join().expect("from another thread"));
    assert_nothing_left();
}

part!(host);
/// `autoreap::host KIND`: has a child that holds standard output open, and waits to be killed.
pub fn host(args: &[String]) {
    let mut command = Command::new("/bin/sleep");
    command.arg("1000").kill_on_drop(true).pidfd_autokill(args[0] == "autokill");
    let child = command.spawn().expect("spawn");
    println!("{}", child.id());
    // SAFETY: sleeps.
    unsafe { libc::pause() };
}

/// The child of a host that is killed: its pid, and the pipe that it holds open.
fn of_a_killed_host(kind: &str) -> (i32, std::process::ChildStdout) {
    let mut host = std::process::Command::new("/proc/self/exe");
    let mut host = host.args(["autoreap::host", kind]).stdout(std::process::Stdio::piped()).spawn().expect("a host");
    let mut out = host.stdout.take().expect("a pipe");
    let mut text = Vec::new();
    while text.last() != Some(&b'\n') {
        let mut byte = [0];
        out.read_exact(&mut byte).expect("the host's word");
        text.push(byte[0]);
    }
    host.kill().expect("kill");
    host.wait().expect("wait");
    (String::from_utf8_lossy(&text).trim().parse().expect("a pid"), out)
}

scenario!(an_autokilled_child_ends_with_its_handle_and_its_host);
/// A child of `pidfd_autokill` ends with its handle, and with its host, however that ends.
pub fn an_autokilled_child_ends_with_its_handle_and_its_host(_: &[String]) {
    if !can("children that are killed with their host") {
        return;
    }
    let (mut read, write) = io::pipe().expect("a pipe");
    let mut command = Command::new("/bin/sleep");
    command.arg("1000").pidfd_autokill(true).fd(std::os::fd::OwnedFd::from(write), 3);
    let mut child = command.spawn().expect("spawn");
    child.kill_on_drop(false);
    drop(command);
    assert!(child.try_wait().expect("a look").is_none());
    drop(child);
    assert_eq!(read.read(&mut [0]).expect("read"), 0, "the child has gone");
    let (_, mut out) = of_a_killed_host("autokill");
    assert!(does_end_within(&out, LONG), "the child has gone with its host");
    assert_eq!(out.read(&mut [0]).expect("read"), 0);
    // Negative control: without the flag it survives, although it is to be killed with its handle.
    let (pid, mut out) = of_a_killed_host("plain");
    assert!(!does_end_within(&out, Duration::from_millis(200)), "the child goes on");
    signal(pid, SIGKILL);
    assert_eq!(out.read(&mut [0]).expect("read"), 0);
    assert_nothing_left();
}

scenario!(an_ordinary_user_needs_no_new_privs_for_autokill);
/// As an ordinary user: `pidfd_autokill` needs `no_new_privs`, which the child then has.
pub fn an_ordinary_user_needs_no_new_privs_for_autokill(args: &[String]) {
    if !can("pidfd_autokill by an ordinary user") {
        return;
    }
    if args.is_empty() && is_root() {
        let mut other = std::process::Command::new("/proc/self/exe");
        let status = other
            .args(["autoreap::an_ordinary_user_needs_no_new_privs_for_autokill", "as-nobody"])
            .uid(65534)
            .gid(65534)
            .status()
            .expect("status");
        assert!(status.success(), "as nobody: {status}");
        return;
    }
    let mut command = Command::new("/bin/grep");
    command.args(["NoNewPrivs", "/proc/self/status"]).pidfd_autokill(true);
    let (step, errno, text) = failure(command.spawn());
    assert_eq!((step, errno), (Step::Clone, Some(libc::EPERM)), "{text}");
    assert!(text.contains("CLONE_PIDFD_AUTOKILL") && text.contains("no_new_privs"), "{text}");
    let output = command.no_new_privs(true).output().expect("output");
    assert_eq!(output.stdout, b"NoNewPrivs:\t1\n");
    assert_nothing_left();
}
