//! Launches by a zygote that are abandoned, dropped, or redirected: they must not affect later ones.

use crate::elf::Programs;
use crate::observe::{self, eventually, skip};
use crate::zygote::{error_of, helper_pid, says, zygote};
use forkless::{Command, Namespace, Stdio, Step};
use std::fs::{self, File};
use std::os::fd::AsRawFd;

/// A launch of which not all descriptors come to the helper, or not all can be sent, fails, and the next one does not.
pub fn lost(_: &[String]) {
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
    assert_eq!(zygote.stats().starts, 1);
    drop(zygote);
    observe::assert_no_orphans();
}

/// A PID namespace is joined for the launch that asks for it, and for no other.
pub fn pid_namespace(_: &[String]) {
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

/// Memory that a child reads is not reused before it has left, even without a handle.
pub fn dropped_before_exec(_: &[String]) {
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
