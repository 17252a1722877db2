//! ID maps, which the host writes while the child waits, if either of them is stopped or the host is killed in the
//! meantime.

use crate::observe::{self, eventually, skip, state_of};
use forkless::{Command, Error, Launcher, Namespace, Step};
use std::ffi::{c_int, c_void};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::time::Duration;

/// Who is to be stopped when the host writes a `uid_map`.
static STOPS: AtomicI32 = AtomicI32::new(NOBODY);

const NOBODY: i32 = 0;
const THE_HOST: i32 = 1;
const THE_CHILD: i32 = 2;

/// libc's, by which std writes to files, and so the library.
///
/// # Safety
/// `write(2)`
#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, count: usize) -> isize {
    let stops = STOPS.load(Relaxed);
    let path = if stops == NOBODY { None } else { std::fs::read_link(format!("/proc/self/fd/{fd}")).ok() };
    let text = path.as_deref().and_then(|path| path.to_str()).unwrap_or_default();
    let child = text.strip_prefix("/proc/").and_then(|text| text.strip_suffix("/uid_map"));
    if let Some(child) = child.and_then(|number| number.parse().ok()) {
        // SAFETY: a signal to this process, or to its own child.
        match stops {
            THE_HOST => unsafe { _ = libc::raise(libc::SIGSTOP) },
            _ => {
                unsafe { libc::kill(child, libc::SIGSTOP) };
                eventually("the child's stop", || state_of(child) == Some('T'));
            }
        }
    }
    // SAFETY: the caller's.
    unsafe { libc::syscall(libc::SYS_write, fd, bytes, count) as isize }
}

/// A program in a user namespace with maps, which fails where it has no id by them.
fn mapped(with_pids: bool, count: u32) -> Command {
    // SAFETY: numbers.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "[ $(id -u) = 0 ]"]).unshare(Namespace::User).map_uid(0, uid, count).map_gid(0, gid, 1);
    if with_pids {
        command.unshare(Namespace::Pid);
    }
    command
}

fn is_possible() -> bool {
    let possible = mapped(false, 1).status().is_ok_and(|status| status.success());
    if !possible {
        skip("id maps of a stopped host or child", "user namespaces are refused here");
    }
    possible
}

part!(host);
/// The host of [`a_child_waits_for_its_id_maps_as_long_as_its_host_is_stopped`] and [`a_host_that_is_killed_leaves_no_child_that_waits_for_its_id_maps`].
pub fn host(args: &[String]) {
    STOPS.store(THE_HOST, Relaxed);
    let mut command = mapped(args.iter().any(|arg| arg == "pids"), 1);
    if args.iter().any(|arg| arg == "fork") {
        command.launcher(Launcher::Fork);
    }
    assert!(command.status().expect("status").success());
}

/// A host that has stopped where it is about to write the maps.
fn stopped_host(args: &[&str]) -> Child {
    let host = std::process::Command::new("/proc/self/exe").arg("maps::host").args(args).spawn().expect("a host");
    let mut status = 0;
    // SAFETY: the kernel writes a status.
    let seen = unsafe { libc::waitpid(host.id() as i32, &raw mut status, libc::WUNTRACED) };
    assert_eq!(seen, host.id() as i32);
    assert_eq!(ExitStatus::from_raw(status).stopped_signal(), Some(libc::SIGSTOP), "{args:?}");
    host
}

const WAYS: [&[&str]; 3] = [&[], &["pids"], &["fork"]];

scenario!(a_child_waits_for_its_id_maps_as_long_as_its_host_is_stopped);
/// A host may be stopped for any time: its child waits. (It looks for its host each second.)
pub fn a_child_waits_for_its_id_maps_as_long_as_its_host_is_stopped(_: &[String]) {
    if !is_possible() {
        return;
    }
    let hosts = WAYS.map(|args| (args, stopped_host(args)));
    std::thread::sleep(Duration::from_millis(2500));
    for (args, mut host) in hosts {
        // Our own child.
        forkless_tests::process::kill(host.id() as i32, libc::SIGCONT);
        assert!(host.wait().expect("wait").success(), "{args:?}");
    }
}

scenario!(a_host_that_is_killed_leaves_no_child_that_waits_for_its_id_maps);
/// A host that is killed leaves no child that waits for it.
pub fn a_host_that_is_killed_leaves_no_child_that_waits_for_its_id_maps(_: &[String]) {
    if !is_possible() {
        return;
    }
    for args in WAYS {
        let mut host = stopped_host(args);
        let tasks = format!("/proc/{0}/task/{0}/children", host.id());
        let child = std::fs::read_to_string(tasks).expect("children").trim().parse().expect("one child");
        assert!(state_of(child).is_some(), "{args:?}");
        host.kill().expect("kill");
        host.wait().expect("wait");
        eventually("the end of a killed host's child", || matches!(state_of(child), None | Some('Z' | 'X')));
    }
}

scenario!(a_stopped_child_without_id_maps_does_not_block_its_host);
/// A stopped child whose maps cannot be written does not block its host.
pub fn a_stopped_child_without_id_maps_does_not_block_its_host(_: &[String]) {
    if !is_possible() {
        return;
    }
    STOPS.store(THE_CHILD, Relaxed);
    for launcher in [Launcher::Clone, Launcher::Fork] {
        // A map of no ids is none.
        let mut command = mapped(false, 0);
        command.launcher(launcher);
        let error = observe::within("a launch whose child is stopped", || command.spawn().expect_err("an empty map"));
        assert_eq!(Error::of(&error).map(Error::step), Some(Step::IdMaps), "{launcher:?}: {error}");
    }
    observe::assert_no_orphans();
}

scenario!(a_child_gets_its_id_maps_while_its_thread_is_suspended);
/// A clone that suspends its thread until the child has left: another thread writes the maps meanwhile.
pub fn a_child_gets_its_id_maps_while_its_thread_is_suspended(_: &[String]) {
    if !is_possible() {
        return;
    }
    let mut command = mapped(false, 1);
    // The memory is the child's alone then, so that only this child is killed when memory is short.
    command.oom_score_adj(500);
    let status = observe::within("a launch with id maps", move || command.status().expect("status"));
    assert!(status.success());
}

scenario!(a_forked_child_gets_its_id_maps_and_its_pidfd);
/// A forked child has a pidfd, waits for its maps, gets them, and runs its program.
pub fn a_forked_child_gets_its_id_maps_and_its_pidfd(_: &[String]) {
    if !is_possible() {
        return;
    }
    let mut child = mapped(false, 1).launcher(Launcher::Fork).pidfd(true).launch().expect("launch");
    assert!(child.pidfd().is_some(), "a forked child has the pidfd that was asked for");
    let ended = child.wait_timeout(forkless_tests::patience::limit(10)).expect("wait");
    if ended.is_none() {
        child.kill().and_then(|()| child.wait()).expect("the child is ours");
    }
    assert!(ended.is_some_and(|status| status.success()), "a forked child waits for its maps: {ended:?}");
}
