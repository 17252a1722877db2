//! Becomes a host of some kind and executes a program: `host KIND… -- PROGRAM [ARGS…]`.
//!
//! [`become_it`] lists the kinds. Each applies to the program and all its children, in the given order. If one is not
//! possible, prints the reason on standard error and exits with [`CANNOT`].

use forkless_tests::process::run_by_deadline;
use forkless_tests::profile;
use forkless_tests::table::parent::check;
use forkless_tests::table::settings::capabilities;
use std::ffi::CString;
use std::fs;
use std::io::{self, Error};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;

/// This kind of host is not possible here.
const CANNOT: u8 = 77;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let kinds: Vec<String> = args.by_ref().take_while(|arg| arg != "--").collect();
    for kind in &kinds {
        match become_it(kind) {
            Ok(Outcome::Inside) => {}
            Ok(Outcome::Ended(status)) => return ended(status),
            Err(error) => {
                eprintln!("{kind}: {error}");
                return ExitCode::from(CANNOT);
            }
        }
    }
    let error = Command::new(args.next().expect("host KIND… -- PROGRAM")).args(args).exec();
    eprintln!("no host: {error}");
    ExitCode::FAILURE
}

fn ended(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        // SAFETY: no handler is set; the default action ends this process.
        unsafe { libc::raise(signal) };
    }
    ExitCode::from(status.code().unwrap_or(1) as u8)
}

/// Where this process goes on.
enum Outcome {
    /// In the host.
    Inside,
    /// Outside of it, and it has ended.
    Ended(ExitStatus),
}

/// Becomes one kind of host.
fn become_it(kind: &str) -> io::Result<Outcome> {
    let (name, value) = kind.split_once('=').unwrap_or((kind, ""));
    match name {
        "filter" => profile::install(&fs::read_to_string(value)?)?,
        "capabilities" => keep_capabilities(&value.split(',').map(str::to_owned).collect::<Vec<_>>())?,
        "user" => become_user(number(value)? as u32)?,
        "limit" => limit(value)?,
        "deny-write-execute" => deny_write_execute()?,
        "hidepid" => mount("proc", "/proc", 0, &format!("hidepid={value}"))?,
        "no-proc" => mount("tmpfs", "/proc", libc::MS_RDONLY, "")?,
        "read-only" => read_only(Path::new(value))?,
        "process-1" => return process_1(),
        "cgroup" => return in_cgroup(value),
        "frozen" => return in_freezer(value),
        "deadline" => run_by_deadline(value == "reset")?,
        "yama" => {
            fs::write("/proc/sys/kernel/yama/ptrace_scope", value)?;
        }
        _ => return Err(Error::other("no such kind of host")),
    }
    Ok(Outcome::Inside)
}

fn number(text: &str) -> io::Result<u64> {
    text.parse().map_err(|_| Error::other(format!("{text:?} is no number")))
}

/// Of the capabilities that this process and its children may have, these alone are kept; root has them after exec.
fn keep_capabilities(names: &[String]) -> io::Result<()> {
    let kept = capabilities(names).bits();
    for capability in 0..64 {
        // SAFETY: two prctls on numbers, of this process.
        unsafe {
            if libc::prctl(libc::PR_CAPBSET_READ, capability) == 1 && kept & 1 << capability == 0 {
                check(libc::prctl(libc::PR_CAPBSET_DROP, capability))?;
            }
        }
    }
    Ok(())
}

fn become_user(id: u32) -> io::Result<()> {
    // SAFETY: this process has one thread.
    unsafe {
        check(libc::setgroups(0, std::ptr::null()))?;
        check(libc::setresgid(id, id, id))?;
        check(libc::setresuid(id, id, id))
    }
}

/// `NAME:NUMBER`, soft and hard.
fn limit(text: &str) -> io::Result<()> {
    let (name, value) = text.split_once(':').ok_or_else(|| Error::other("NAME:NUMBER"))?;
    let resource = match name {
        "nofile" => libc::RLIMIT_NOFILE,
        "nproc" => libc::RLIMIT_NPROC,
        "as" => libc::RLIMIT_AS,
        _ => return Err(Error::other("no such limit")),
    };
    let value = number(value)?;
    // SAFETY: reads a limit.
    check(unsafe { libc::setrlimit(resource, &libc::rlimit { rlim_cur: value, rlim_max: value }) })
}

/// No mapping becomes executable that was not, and none is both: systemd's `MemoryDenyWriteExecute`.
fn deny_write_execute() -> io::Result<()> {
    const PR_SET_MDWE: i32 = 65;
    const PR_MDWE_REFUSE_EXEC_GAIN: u64 = 1;
    // SAFETY: a flag of this process.
    check(unsafe { libc::prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) })
}

/// Mounts in a mount namespace of this process's own.
fn mount(kind: &str, target: &str, flags: u64, data: &str) -> io::Result<()> {
    own_mounts()?;
    let [kind, target, data] = [kind, target, data].map(|text| CString::new(text).expect("no NUL"));
    // SAFETY: texts that end in NUL.
    check(unsafe { libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast()) })
}

fn own_mounts() -> io::Result<()> {
    let (root, none) = (c"/".as_ptr(), std::ptr::null());
    // SAFETY: strings that end in NUL; only this process and its children see these mounts.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        check(libc::mount(none, root, none, libc::MS_REC | libc::MS_PRIVATE, none.cast()))
    }
}

/// Nothing can be written to but `/dev`, `/proc`, `/sys` and a new directory for temporary files: systemd's
/// `ProtectSystem=strict` with a directory of the service's own.
fn read_only(temporary: &Path) -> io::Result<()> {
    own_mounts()?;
    let attributes = libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the kernel reads the structure, and a text that ends in NUL.
    check(unsafe {
        let size = size_of::<libc::mount_attr>();
        libc::syscall(libc::SYS_mount_setattr, libc::AT_FDCWD, c"/".as_ptr(), libc::AT_RECURSIVE, &attributes, size)
    } as i32)?;
    for place in ["/dev", "/proc", "/sys"] {
        let path = CString::new(place).expect("no NUL");
        let attributes = libc::mount_attr { attr_set: 0, attr_clr: libc::MOUNT_ATTR_RDONLY, ..attributes };
        // SAFETY: as above. If it is not a mount, nothing changes.
        unsafe {
            let size = size_of::<libc::mount_attr>();
            let flags = libc::AT_RECURSIVE;
            libc::syscall(libc::SYS_mount_setattr, libc::AT_FDCWD, path.as_ptr(), flags, &attributes, size);
        }
    }
    let target = temporary.to_str().ok_or_else(|| Error::other("a path that is text"))?;
    mount("tmpfs", target, 0, "mode=1777")?;
    // SAFETY: this process has one thread.
    unsafe { std::env::set_var("TMPDIR", target) };
    Ok(())
}

/// The first process of a PID namespace, with a `/proc` of that.
fn process_1() -> io::Result<Outcome> {
    // SAFETY: changes the namespace of this process's children.
    check(unsafe { libc::unshare(libc::CLONE_NEWPID) })?;
    let outcome = in_child()?;
    if let Outcome::Inside = outcome {
        mount("proc", "/proc", 0, "")?;
    }
    Ok(outcome)
}

/// Goes on in a forked child, in the process group of this process; in this one when that has ended.
fn in_child() -> io::Result<Outcome> {
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    check(pid)?;
    if pid == 0 {
        return Ok(Outcome::Inside);
    }
    let mut status = 0;
    // SAFETY: our own child.
    check(unsafe { libc::waitpid(pid, &raw mut status, 0) })?;
    Ok(Outcome::Ended(ExitStatus::from_raw(status)))
}

/// `CONTROLLER:FILE:VALUE[:FILE:VALUE…]`: a cgroup of its own, of version 2 or 1, with these limits.
fn in_cgroup(text: &str) -> io::Result<Outcome> {
    let words: Vec<&str> = text.split(':').collect();
    let [controller, limits @ ..] = words.as_slice() else { return Err(Error::other("CONTROLLER:FILE:VALUE")) };
    let group = hierarchy(controller)?.join(format!("forkless-host-{}", std::process::id()));
    fs::create_dir(&group)?;
    let entered = || {
        for limit in limits.chunks(2) {
            // As version 1 calls it.
            let is_of_1 = limit[0] == "memory.max" && !group.join(limit[0]).exists();
            fs::write(group.join(if is_of_1 { "memory.limit_in_bytes" } else { limit[0] }), limit[1])?;
        }
        match in_child()? {
            Outcome::Inside => fs::write(group.join("cgroup.procs"), "0").map(|()| Outcome::Inside),
            ended => Ok(ended),
        }
    };
    let outcome = entered();
    if !matches!(outcome, Ok(Outcome::Inside)) {
        let _ = fs::remove_dir(&group);
    }
    outcome
}

/// In a cgroup of this version (1 or 2) that is frozen and thawed all the time.
fn in_freezer(version: &str) -> io::Result<Outcome> {
    let (place, file, [frozen, thawed]) = match version {
        "1" => (hierarchy("freezer")?, "freezer.state", ["FROZEN", "THAWED"]),
        _ => (hierarchy("")?, "cgroup.freeze", ["1", "0"]),
    };
    let group = place.join(format!("forkless-host-{}", std::process::id()));
    fs::create_dir(&group)?;
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    check(pid)?;
    if pid == 0 {
        return fs::write(group.join("cgroup.procs"), "0").map(|()| Outcome::Inside);
    }
    let (mut status, mut freezes) = (0, 0_u64);
    // SAFETY: our own child.
    while unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == 0 {
        for value in [frozen, thawed] {
            fs::write(group.join(file), value)?;
            // At any moment of a launch, which takes a tenth of a millisecond and more.
            std::thread::sleep(Duration::from_micros(20 + freezes * 7919 % 1500));
        }
        freezes += 1;
    }
    println!("USED: {freezes} freezes");
    // A program that a scenario has left behind stays in it.
    let _ = fs::remove_dir(&group);
    Ok(Outcome::Ended(ExitStatus::from_raw(status)))
}

/// Where cgroups of this controller are made; of none: those of version 2.
fn hierarchy(controller: &str) -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mut places = mounts.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, place, kind, options, ..] = words.as_slice() else { return None };
        let controllers = || fs::read_to_string(Path::new(place).join("cgroup.subtree_control")).unwrap_or_default();
        let is_of_1 = *kind == "cgroup" && options.split(',').any(|option| option == controller);
        let is_there = || controller.is_empty() || controllers().split_whitespace().any(|name| name == controller);
        let is_of_2 = *kind == "cgroup2" && is_there();
        (is_of_1 || is_of_2).then(|| PathBuf::from(place))
    });
    places.next().ok_or_else(|| Error::other(format!("no hierarchy of cgroups has the controller {controller}")))
}
