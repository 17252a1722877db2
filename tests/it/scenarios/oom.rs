//! The OOM killer of a cgroup that a child is in while it still shares its caller's memory.

use crate::elf::Programs;
use crate::observe::{self, eventually, skip};
use forkless::{CallArg, Command, Stdio};
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::thread;

const MIB: usize = 1 << 20;

/// What the cgroup may use. Its other process wants more, and the host has more resident than that one can ever get.
const LIMIT: usize = 24 * MIB;
const HOST: usize = 128 * MIB;

/// A memory cgroup, removed when dropped.
struct Group {
    path: PathBuf,
    /// Of version 2, in which a child can be born.
    is_second: bool,
}

impl Group {
    /// None, with a word about it, where there is no memory controller that may be used.
    fn new() -> Option<Self> {
        let what = "the OOM killer in a child's cgroup";
        if !forkless_tests::process::is_root() {
            skip(what, "it needs root");
            return None;
        }
        let name = format!("forkless-oom-{}", observe::pid());
        if let Ok(top) = forkless::Cgroup::own()
            && forkless::Cgroup::hand_down(&top, &["memory"]).is_ok()
        {
            let path = top.join(&name);
            fs::create_dir(&path).expect("a cgroup");
            fs::write(path.join("memory.max"), LIMIT.to_string()).expect("a limit");
            let _ = fs::write(path.join("memory.swap.max"), "0");
            return Some(Self { path, is_second: true });
        }
        let path = Path::new("/sys/fs/cgroup/memory").join(&name);
        if fs::create_dir(&path).is_err() {
            skip(what, "there is no memory controller, of version 2 or 1, that may be written to");
            return None;
        }
        fs::write(path.join("memory.limit_in_bytes"), LIMIT.to_string()).expect("a limit");
        let _ = fs::write(path.join("memory.memsw.limit_in_bytes"), LIMIT.to_string());
        Some(Self { path, is_second: false })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        eventually("the cgroup is empty and gone", || {
            for pid in fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default().lines() {
                // It is in the group that was made for this.
                forkless_tests::process::kill(pid.parse().expect("a pid"), libc::SIGKILL);
            }
            fs::remove_dir(&self.path).is_ok()
        });
    }
}

scenario!(
    an_oom_kill_in_a_childs_cgroup_spares_its_host,
    cgroup_kill_also_kills_the_host_of_an_unexecuted_child["whole"],
    an_oom_kill_reaches_processes_that_share_memory["control"]
);
/// Starts the host, which may be killed, and looks how it ends: `oom [control|whole]`. `whole`: the cgroup is one that is
/// killed whole.
pub fn an_oom_kill_in_a_childs_cgroup_spares_its_host(args: &[String]) {
    let Some(group) = Group::new() else { return };
    if args.first().is_some_and(|word| word == "whole") {
        if !group.is_second {
            return skip("memory.oom.group", "the memory controller is not of version 2");
        }
        fs::write(group.path.join("memory.oom.group"), "1").expect("write");
    }
    let mut host = std::process::Command::new(std::env::current_exe().expect("own path"));
    host.arg("oom::host").arg(&group.path).arg(if group.is_second { "2" } else { "1" }).args(args);
    let status = host.status().expect("the host starts");
    if args.is_empty() {
        assert!(status.success(), "the host of a child in a full cgroup: {status}");
    } else {
        assert_eq!(status.signal(), Some(libc::SIGKILL), "the host: {status}");
    }
}

part!(host);
/// A host outside the cgroup, with a child in it that waits before its exec.
pub fn host(args: &[String]) {
    let [path, version, control @ ..] = args else { panic!("arguments: {args:?}") };
    let group = Path::new(path);
    let ballast = vec![1u8; HOST];
    let programs = Programs::new();
    let (program, fifo) = (programs.exits(6), programs.fifo("hold"));
    let launch = || {
        let mut command = Command::new(&program);
        if version == "2" {
            command.cgroup(File::open(group).expect("open")).fd(Stdio::open(&fifo, libc::O_RDONLY, 0), 5);
        } else {
            enter_by_calls(&mut command, group, &fifo);
        }
        command.status().expect("status").code()
    };
    thread::scope(|scope| {
        let launcher = scope.spawn(|| {
            if control.first().is_some_and(|word| word == "control") { bare(group, &fifo) } else { launch() }
        });
        eventually("the child in its cgroup, asleep before its exec", || {
            observe::opening_child().is_some_and(|pid| {
                let processes = fs::read_to_string(group.join("cgroup.procs")).expect("read");
                processes.lines().any(|line| line == pid.to_string())
            })
        });
        let mut filler = std::process::Command::new(std::env::current_exe().expect("own path"));
        let status = filler.arg("oom::fill").arg(group).status().expect("the filler starts");
        // The host lives, or this would not be reached.
        drop(OpenOptions::new().write(true).open(&fifo).expect("open"));
        assert_eq!(launcher.join().expect("launcher"), Some(6));
        assert_eq!(status.signal(), Some(libc::SIGKILL), "the process that has filled the cgroup: {status}");
    });
    black_box(ballast);
}

/// The child writes itself into the cgroup, and then opens the FIFO.
fn enter_by_calls(command: &mut Command, group: &Path, fifo: &Path) {
    let text = |path: &Path| CallArg::from(path.to_str().expect("UTF-8"));
    let (here, flags) = (CallArg::Number(libc::AT_FDCWD as i64 as u64), |flags: i32| CallArg::Number(flags as u64));
    let file = [here.clone(), text(&group.join("cgroup.procs")), flags(libc::O_WRONLY)];
    // SAFETY: the calls change nothing that the child shares with its parent.
    unsafe {
        command.call(libc::SYS_openat as u32, file, Some(0));
        command.call(libc::SYS_write as u32, [CallArg::Variable(0), "0".into(), 1.into()], None);
        command.call(libc::SYS_openat as u32, [here, text(fifo), flags(libc::O_RDONLY)], None);
    }
}

/// Negative control: the same by a clone that lets the caller go on.
fn bare(group: &Path, fifo: &Path) -> Option<i32> {
    static PATHS: std::sync::OnceLock<[std::ffi::CString; 2]> = std::sync::OnceLock::new();
    let path = |path: &Path| std::ffi::CString::new(path.to_str().expect("UTF-8")).expect("no NUL");
    PATHS.set([path(&group.join("cgroup.procs")), path(fifo)]).expect("once");
    extern "C" fn child(_: *mut libc::c_void) -> i32 {
        let [procs, fifo] = PATHS.get().expect("set");
        // SAFETY: system calls alone, by libc's wrappers, of which one that fails writes an errno that nobody reads.
        unsafe {
            let file = libc::open(procs.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            libc::write(file, c"0".as_ptr().cast(), 1);
            libc::open(fifo.as_ptr(), libc::O_RDONLY);
            libc::_exit(6)
        }
    }
    let mut stack = vec![0u8; 64 * 1024];
    // SAFETY: the child keeps to its stack, which is there until it has ended.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).map_addr(|top| top & !15);
        libc::clone(child, top.cast(), libc::CLONE_VM | libc::SIGCHLD, std::ptr::null_mut())
    };
    let (_, status) = crate::foreign::wait(pid, 0).expect("wait");
    Some(libc::WEXITSTATUS(status))
}

part!(fill);
/// Enters the cgroup and wants more than it has: `oom::fill DIRECTORY`.
pub fn fill(args: &[String]) {
    let group = Path::new(args.first().expect("a directory"));
    fs::write(group.join("cgroup.procs"), "0").expect("enter");
    black_box(vec![1u8; 2 * LIMIT]);
}
