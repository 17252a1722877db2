//! A child that shares the caller's memory opens nothing in procfs, because procfs would take it for the caller.

testing::usual_surroundings!();

use forkless::{Command, Error, Launcher, Reason, ShellRoute, ShellSurroundings, Stdio, Step};
use forkless_tests::filter::{Answer, Refusal, refuse};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

/// Written to the terminal directly, because the harness hides the output of passing tests.
fn say(text: &str) {
    let _ = Write::write_all(&mut std::io::stderr(), text.as_bytes());
}

/// Directories with all kinds of links to procfs.
struct Ways {
    place: TempDir,
    /// A file with the secret, open in this process and close-on-exec.
    file: File,
}

const SECRET: &str = "what nobody else may read";

impl Ways {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        for (name, target) in
            [("mem", "/proc/self/mem"), ("self", "/proc/self"), ("fds", "/dev/fd"), ("again", "self/../self")]
        {
            symlink(target, place.path().join(name)).expect("a link");
        }
        let mut file = tempfile::tempfile_in(place.path()).expect("a file");
        file.write_all(SECRET.as_bytes()).expect("a secret");
        Self { place, file }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Whether a line that does not touch procfs runs without a shell.
    fn is_direct(&self) -> bool {
        let direct = forkless::shell("cat </dev/null").route() == ShellRoute::Direct;
        if !direct {
            say("SKIPPED: lines without a shell, because /bin/sh is not dash\n");
        }
        direct
    }
}

/// Runs the line with the library, which must use the shell, and with the shell: both must give the same result.
#[track_caller]
fn is_the_shells(line: &str, directory: &Path) -> Output {
    let mut ours = forkless::shell(line);
    ours.settings().current_dir(directory).inherit_all(true);
    let found = ours.output().expect("a shell");
    assert!(
        matches!(
            ours.taken(),
            Some(ShellRoute::Shell(Reason::File(_) | Reason::Failed(Step::Open) | Reason::StandardError))
        ),
        "{line}: {:?}",
        ours.taken()
    );
    let mut theirs = std::process::Command::new("/bin/sh");
    let theirs = theirs.arg("-c").arg(line).current_dir(directory).output().expect("a shell");
    assert_eq!((found.status, text(&found.stdout)), (theirs.status, text(&theirs.stdout)), "{line}");
    found
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn lines_that_read_procfs_are_run_by_the_shell() {
    let ways = Ways::new();
    if !ways.is_direct() {
        return;
    }
    fs::write(ways.path("plain"), "").expect("a file");
    let (top, fd) = (ways.place.path(), ways.file.as_raw_fd());
    for line in [
        "cat </proc/self/comm",
        "cat <//proc/./self/comm",
        "cat <self/comm",
        "cat <again/comm",
        "cat </proc/thread-self/comm",
        "cat <./plain <self/comm",
        "cat </proc/sys/kernel/ostype",
    ] {
        is_the_shells(line, top);
    }
    is_the_shells("cat <comm", Path::new("/proc/self"));
    is_the_shells("cat <../dev/null <self/comm", Path::new("/proc"));
    // The caller's close-on-exec descriptor, which no shell inherits.
    for line in [
        format!("cat </dev/fd/{fd}"),
        format!("cat <fds/{fd}"),
        format!("cat </proc/self/fd/{fd}"),
        format!("cat <self/fd/{fd}"),
    ] {
        assert!(!text(&is_the_shells(&line, top).stdout).contains(SECRET), "{line}");
    }
    is_the_shells(&format!("cat <{fd}"), Path::new("/dev/fd"));
    for line in ["cat </dev/stdin", "ls >/dev/stdout", "ls >>fds/1", "ls /nonexistent 2>/dev/stdout"] {
        is_the_shells(line, top);
    }
}

/// A program is opened too: for the shell, `/proc/self/exe` is the shell.
#[test]
fn lines_that_execute_procfs_are_run_by_the_shell() {
    let ways = Ways::new();
    if !ways.is_direct() {
        return;
    }
    let program = File::open("/bin/ls").expect("a program");
    for line in [
        "/proc/self/exe -c 'exit 3'".to_owned(),
        "./self/exe -c 'exit 3'".to_owned(),
        format!("/dev/fd/{}", program.as_raw_fd()),
        format!("fds/{}", program.as_raw_fd()),
    ] {
        is_the_shells(&line, ways.place.path());
    }
    let mut line = forkless::shell("exe -c 'exit 3'");
    line.settings().env("PATH", "/usr/bin:/proc/self:/bin");
    assert_eq!(line.route(), ShellRoute::Shell(Reason::Path));
}

/// What lines have in common is looked at once; the program of each line is looked at anyway.
#[test]
fn lines_with_the_same_surroundings_that_execute_procfs_are_run_by_the_shell() {
    let ways = Ways::new();
    if !ways.is_direct() {
        return;
    }
    let surroundings = ShellSurroundings::now();
    let run = |line: &str| {
        let mut line = forkless::shell(line);
        let output = line.surroundings(&surroundings).output().expect("a shell");
        (output.status.code(), line.taken().cloned())
    };
    let test = format!(
        "{} 1 = 2",
        ["/usr/bin/test", "/bin/test"].into_iter().find(|path| Path::new(path).exists()).expect("test")
    );
    let procfs = format!("{} -c 'exit 3'", ways.path("self/exe").display());
    for _ in 0..2 {
        assert_eq!(run(&test), (Some(1), Some(ShellRoute::Direct)));
        assert_eq!(run(&test), (Some(1), Some(ShellRoute::Direct)));
        let (code, route) = run(&procfs);
        assert_eq!(code, Some(3), "{route:?}");
        assert!(matches!(route, Some(ShellRoute::Shell(Reason::Failed(Step::Open)))), "{route:?}");
    }
}

/// A redirection can neither read nor write this process's memory.
#[test]
fn lines_cannot_access_the_callers_memory() {
    let ways = Ways::new();
    if !ways.is_direct() {
        return;
    }
    let memory = Box::leak(SECRET.to_owned().into_boxed_str());
    let (address, length) = (memory.as_ptr() as usize, memory.len());
    fs::write(ways.path("other"), "x".repeat(length)).expect("a file");
    for path in ["/proc/self/mem", "mem", "self/mem", "again/mem"] {
        let read = format!("dd bs=1 skip={address} count={length} <{path}");
        assert!(!text(&is_the_shells(&read, ways.place.path()).stdout).contains(SECRET), "{path}");
        let write = format!("dd bs=1 seek={address} conv=notrunc <other >{path}");
        is_the_shells(&write, ways.place.path());
        // SAFETY: leaked memory; volatile, because another process might have written to it.
        let first = unsafe { std::ptr::read_volatile(memory.as_ptr()) };
        assert_eq!(first, SECRET.as_bytes()[0], "{path}: our memory has been written to");
    }
}

/// A file is checked again when it is opened, because it may have been replaced since the first check.
#[test]
fn a_link_that_changes_after_the_check_is_refused() {
    let ways = Ways::new();
    if !ways.is_direct() {
        return;
    }
    fs::write(ways.path("plain"), "plain").expect("a file");
    for (name, target) in [("a", "plain".into()), ("b", format!("/dev/fd/{}", ways.file.as_raw_fd()))] {
        symlink(target, ways.path(name)).expect("a link");
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for name in ["a", "b"] {
                    let _ = fs::remove_file(ways.path("next"));
                    symlink(fs::read_link(ways.path(name)).expect("a link"), ways.path("next")).expect("a link");
                    fs::rename(ways.path("next"), ways.path("which")).expect("a name");
                }
            }
        });
        let mut direct = 0;
        for _ in 0..300 {
            let mut line = forkless::shell("cat <which");
            line.settings().current_dir(ways.place.path()).inherit_all(true).stderr(Stdio::null());
            let found = line.output().expect("a run");
            direct += usize::from(line.taken() == Some(&ShellRoute::Direct));
            // Checked last, so that the other thread ends.
            if text(&found.stdout).contains(SECRET) {
                over.store(true, Ordering::Relaxed);
                panic!("a close-on-exec descriptor was read");
            }
        }
        over.store(true, Ordering::Relaxed);
        assert!(direct > 0, "some were run without a shell");
    });
}

/// The error of a child that opens this path.
#[track_caller]
fn refused(path: &Path, directory: &Path, flags: i32) -> Error {
    let mut command = Command::new("true");
    command.current_dir(directory).fd(Stdio::open(path, flags, 0o666), 5);
    let error = command.spawn().expect_err("it is not opened");
    Error::of(&error).expect("a launch's error").clone()
}

#[test]
fn a_child_in_shared_memory_opens_nothing_in_procfs() {
    let ways = Ways::new();
    let here = ways.place.path();
    for (path, directory) in [
        ("/proc/self/mem", here),
        ("/proc/self/maps", here),
        ("mem", here),
        ("self/environ", here),
        ("again/fd/0", here),
        ("/dev/fd/0", here),
        ("/dev/stdin", here),
        ("/proc/sys/kernel/ostype", here),
        ("/proc/self/fd", here),
        ("/proc", here),
        ("comm", Path::new("/proc/self")),
        ("0", Path::new("/dev/fd")),
    ] {
        let error = refused(Path::new(path), directory, libc::O_RDONLY);
        assert_eq!((error.step(), error.errno()), (Step::Open, Some(libc::EOPNOTSUPP)), "{path}: {error}");
        let words = error.to_string();
        assert!(words.contains(path) && words.contains("Launcher::Fork"), "{words}");
    }
    for (path, flags, errno) in [
        ("/dev/fd/77", libc::O_RDONLY, libc::ENOENT),
        ("mem", libc::O_RDONLY | libc::O_NOFOLLOW, libc::ELOOP),
        ("loop", libc::O_RDONLY, libc::ELOOP),
        ("missing", libc::O_RDONLY, libc::ENOENT),
    ] {
        let _ = symlink("loop", ways.path("loop"));
        assert_eq!(refused(Path::new(path), here, flags).errno(), Some(errno), "{path}");
    }
}

/// A second open might find another file. This one has a flag that no other open has, so that a filter can count it.
#[test]
fn a_file_without_permission_is_opened_once() {
    let ways = Ways::new();
    let path = ways.path("closed");
    fs::write(&path, SECRET).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("one's own file");
    let inside = || {
        let again = Refusal::of(libc::SYS_openat, Answer::Kill).with_bits(2, libc::O_DSYNC as u64);
        refuse(&[again]).expect("a filter");
        let mut command = Command::new("true");
        command.fd(Stdio::open(&path, libc::O_RDONLY | libc::O_DSYNC, 0), 5);
        // SAFETY: a number.
        if unsafe { libc::geteuid() } == 0 {
            command.uid(1000);
        }
        let error = command.spawn().expect_err("it is not opened");
        let error = Error::of(&error).expect("a launch's error");
        assert_eq!((error.step(), error.errno()), (Step::Open, Some(libc::EACCES)), "{error}");
    };
    std::thread::scope(|scope| scope.spawn(inside).join().expect("a thread"));
}

/// procfs mounted elsewhere, in a mount namespace of this thread.
#[test]
fn a_procfs_mounted_elsewhere_is_recognized() {
    let ways = Ways::new();
    let elsewhere = ways.path("elsewhere");
    fs::create_dir(&elsewhere).expect("a directory");
    let outside = std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let target = CString::new(elsewhere.as_os_str().as_bytes()).expect("no NUL");
            let none = std::ptr::null::<libc::c_char>();
            // SAFETY: affects only this thread's namespace; paths that end in NUL.
            let mounted = unsafe {
                libc::unshare(libc::CLONE_NEWNS) == 0
                    && libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) == 0
                    && libc::mount(c"/proc".as_ptr(), target.as_ptr(), none, libc::MS_BIND, none.cast()) == 0
            };
            if !mounted {
                return Some(std::io::Error::last_os_error());
            }
            let error = refused(Path::new("elsewhere/self/comm"), ways.place.path(), libc::O_RDONLY);
            assert_eq!(error.errno(), Some(libc::EOPNOTSUPP), "{error}");
            if ways.is_direct() {
                let line = "cat <elsewhere/self/comm";
                let mut ours = forkless::shell(line);
                ours.settings().current_dir(ways.place.path());
                assert!(ours.output().expect("a shell").status.success());
                assert_eq!(ours.taken(), Some(&ShellRoute::Shell(Reason::Failed(Step::Open))));
            }
            None
        });
        inside.join().expect("a thread")
    });
    if let Some(error) = outside {
        say(&format!("SKIPPED: procfs mounted elsewhere, because it cannot be: {error}\n"));
    }
}

#[test]
fn other_special_files_are_opened() {
    let ways = Ways::new();
    let path = |name: &str| ways.path(name).into_os_string();
    fs::write(ways.path("plain"), "plain").expect("a file");
    symlink("plain", ways.path("link")).expect("a link");
    // SAFETY: creates a file at a path that ends in NUL; opens a terminal.
    let (made, terminal) = unsafe {
        let fifo = CString::new(path("fifo").as_bytes()).expect("no NUL");
        (libc::mkfifo(fifo.as_ptr(), 0o600), libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC))
    };
    assert!(made == 0 && terminal >= 0);
    // SAFETY: a descriptor that this function owns.
    let terminal = unsafe { File::from_raw_fd(terminal) };
    let mut name = [0; 64];
    // SAFETY: the kernel's name for it fits.
    unsafe {
        libc::unlockpt(terminal.as_raw_fd());
        assert_eq!(libc::ptsname_r(terminal.as_raw_fd(), name.as_mut_ptr(), name.len()), 0);
    }
    // SAFETY: it ends in NUL.
    let name = unsafe { std::ffi::CStr::from_ptr(name.as_ptr()) }.to_str().expect("text").into();
    for (file, flags) in [
        ("/dev/null".into(), libc::O_RDWR),
        ("/dev/zero".into(), libc::O_RDONLY),
        (path("plain"), libc::O_RDONLY),
        (path("link"), libc::O_RDWR | libc::O_APPEND),
        (path("made"), libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL),
        (path("fifo"), libc::O_RDWR),
        (name, libc::O_RDWR | libc::O_NOCTTY),
        (path(""), libc::O_RDONLY | libc::O_DIRECTORY),
        (path(""), libc::O_PATH),
        // open(2) ignores a mode that is not used.
        ("/dev/null".into(), libc::O_RDONLY),
    ] {
        let mut command = Command::new("true");
        let status = command.fd(Stdio::open(&file, flags, 0o7_777_666), 5).status();
        assert!(status.as_ref().is_ok_and(std::process::ExitStatus::success), "{file:?}: {status:?}");
    }
}

/// A forked child has its own memory, so `/proc/self` is the child.
#[test]
fn a_forked_child_opens_its_own_procfs_files() {
    let mut file = tempfile::tempfile().expect("a file");
    let mut command = Command::new("cat");
    command.launcher(Launcher::Fork).stdin(Stdio::open("/proc/self/comm", libc::O_RDONLY, 0));
    assert!(command.stdout(Stdio::copy_of(&file).expect("a copy")).status().expect("a launch").success());
    let mut found = String::new();
    file.rewind().expect("a file");
    file.read_to_string(&mut found).expect("text");
    assert_eq!(found, "cat\n");
}

/// Without openat2 the library cannot check a path: every line that opens a file is run by the shell.
#[test]
fn lines_that_open_files_need_openat2_or_a_shell() {
    let ways = Ways::new();
    if !ways.is_direct() {
        return;
    }
    fs::write(ways.path("plain"), "plain").expect("a file");
    for answer in [Answer::Errno(libc::ENOSYS), Answer::Errno(libc::EPERM), Answer::Kill] {
        let inside = || {
            refuse(&[Refusal::of(libc::SYS_openat2, answer)]).expect("a filter");
            assert_eq!(text(&is_the_shells("cat <plain", ways.place.path()).stdout), "plain");
            let mut line = forkless::shell("cat");
            line.settings().stdin(Stdio::null());
            assert!(line.status().expect("a run").success());
            assert_eq!(line.taken(), Some(&ShellRoute::Direct));
        };
        std::thread::scope(|scope| scope.spawn(inside).join().expect("a thread"));
    }
}
