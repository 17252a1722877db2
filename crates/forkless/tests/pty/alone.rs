//! What has to be alone in a process: leaks, other users, machines without terminals.

use crate::{bound, rest, run, scaled, shell, terminal};
use forkless::{Command, Error, Pty, PtySize, Stdio, Step};
use forkless_core::sys::{getrlimit, setrlimit, uapi};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Plays this test again, as the only one of a process of its own; `how` changes the command. True in that process.
fn is_alone(test: &str, how: impl FnOnce(&mut Command)) -> bool {
    const ALONE: &str = "FORKLESS_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    // By a descriptor: another user, or another root, may have no way to the file.
    let program = File::open("/proc/self/exe").expect("this program");
    let mut command = Command::new(test);
    command.program_fd(program).args([test, "--exact", "--nocapture", "--test-threads=1"]).env(ALONE, "1");
    how(&mut command);
    let output = command.output().expect("this program starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprint!("{err}");
    assert!(output.status.success() && out.contains("1 passed"), "{test}: {out}{err}");
    false
}

fn open_descriptors() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/fd").expect("descriptors").flatten() {
        let target = fs::read_link(entry.path()).unwrap_or_default().to_string_lossy().into_owned();
        if !target.ends_with("/fd") {
            found.insert(entry.file_name().to_string_lossy().into_owned(), target);
        }
    }
    found
}

fn leave_nothing() {
    let before = open_descriptors();
    for round in 0..scaled(100) {
        let pty = Pty::open(PtySize::default()).expect("open");
        match round % 5 {
            0 => _ = run(&pty, "echo one; exit 1"),
            1 => {
                let error = Command::new("/no/such/program").pty(&pty).spawn().expect_err("no such program");
                assert_eq!(error.kind(), io::ErrorKind::NotFound);
                assert_eq!(rest(&pty), "");
            }
            2 => {
                let launched = Command::new("/no/such/program").pty(&pty).launch();
                assert!(launched.and_then(|mut child| child.wait()).is_err());
            }
            3 => {
                let mut command = shell(&pty, "true");
                assert!(command.current_dir("/no/such/directory").status().is_err());
            }
            // A child with pipes too.
            _ => {
                let mut command = shell(&pty, "echo text >&2");
                let mut child = command.stdout(Stdio::piped()).stdin(Stdio::piped()).spawn().expect("spawn");
                let status = pty.read_until_exit(&mut child, Duration::MAX, &mut io::sink());
                assert!(status.expect("status").success());
            }
        }
    }
    assert_eq!(open_descriptors(), before);
    // Nobody is left, not even as a zombie.
    let children = rustix::process::wait(rustix::process::WaitOptions::NOHANG);
    assert!(matches!(children, Err(Errno::CHILD)), "{children:?}");
}

#[test]
fn nothing_is_left() {
    let _bound = bound();
    if terminal("nothing is left").is_some() && is_alone("alone::nothing_is_left", |_| {}) {
        leave_nothing();
    }
}

#[test]
fn an_ordinary_user_has_terminals_too() {
    let _bound = bound();
    const NOBODY: u32 = 65534;
    let test = "alone::an_ordinary_user_has_terminals_too";
    let is_root = rustix::process::geteuid().is_root();
    let becomes_nobody = |command: &mut Command| _ = command.uid(NOBODY).gid(NOBODY).current_dir("/");
    if terminal(test).is_none()
        || !is_alone(test, |command| {
            if is_root {
                becomes_nobody(command)
            }
        })
    {
        return;
    }
    assert!(!rustix::process::geteuid().is_root());
    leave_nothing();
    let pty = Pty::open(PtySize::new(9, 8)).expect("open");
    let (text, status) = run(&pty, "stty size; echo here >/dev/tty; [ -w $(tty) ] && echo mine");
    assert_eq!((text.as_str(), status), ("9 8\r\nhere\r\nmine\r\n", 0));
}

/// In a mount namespace whose `/dev` is ours to spoil.
fn with_own_dev(test: &str, how: impl FnOnce(&mut Command)) -> bool {
    use forkless::Namespace;
    let sandbox = |command: &mut Command| {
        command.unshare(Namespace::Mount);
        if !rustix::process::geteuid().is_root() {
            let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            command.unshare(Namespace::User).map_uid(0, uid, 1).map_gid(0, gid, 1);
        }
    };
    if std::env::var_os("FORKLESS_TEST_ALONE").is_none() {
        let mut probe = Command::new("true");
        sandbox(probe.tmpfs("/mnt", ""));
        if let Err(error) = probe.status() {
            eprintln!("SKIPPED: {test} because there are no mount namespaces for this user: {error}");
            return false;
        }
    }
    is_alone(test, |command| {
        sandbox(command);
        how(command);
    })
}

#[test]
fn a_machine_without_terminals_is_named() {
    let _bound = bound();
    if with_own_dev("alone::a_machine_without_terminals_is_named", |command| _ = command.tmpfs("/dev", "")) {
        let error = Pty::open(PtySize::default()).expect_err("no /dev/ptmx");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("open /dev/ptmx") && error.to_string().contains("devpts"), "{error}");
    }
}

#[test]
fn the_limit_of_terminals_is_named() {
    let _bound = bound();
    let few = |command: &mut Command| {
        let options = OsStr::new("newinstance,ptmxmode=666,max=2");
        command.mount(Some("devpts".as_ref()), "/dev/pts", Some("devpts"), 0, Some(options));
        command.bind("/dev/pts/ptmx", "/dev/ptmx");
    };
    if with_own_dev("alone::the_limit_of_terminals_is_named", few) {
        let _held = [(); 2].map(|()| Pty::open(PtySize::default()).expect("within the limit"));
        let error = Pty::open(PtySize::default()).expect_err("beyond the limit");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().contains("kernel.pty.max"), "{error}");
    }
}

#[test]
fn running_out_of_descriptors_is_named() {
    let _bound = bound();
    if !is_alone("alone::running_out_of_descriptors_is_named", |_| {}) {
        return;
    }
    let Some(pty) = terminal("running out of descriptors is named") else { return };
    let mut held = Vec::new();
    let mut command = shell(&pty, "true");
    command.pidfd(false);
    // A launch is tried beforehand: what it finds out about the machine it finds out now.
    assert!(command.status().expect("status").success());
    let [_, most] = getrlimit(uapi::RLIMIT_NOFILE).expect("getrlimit");
    setrlimit(uapi::RLIMIT_NOFILE, &[64, most]).expect("setrlimit");
    while let Ok(file) = File::open("/dev/null") {
        held.push(file);
    }
    let error = Pty::open(PtySize::default()).expect_err("no descriptor");
    let launched = command.spawn().expect_err("no descriptor");
    drop(held);
    assert!(error.to_string().contains("open /dev/ptmx: Too many open files"), "{error}");
    let detail = Error::of(&launched).expect("ours");
    assert_eq!((detail.step(), detail.errno()), (Step::OpenTerminal, Some(24)), "{launched}");
    assert!(command.status().expect("status").success());
    assert!(pty.as_raw_fd() >= 0);
}
