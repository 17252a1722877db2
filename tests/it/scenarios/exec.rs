//! `Command::exec`, which creates no child, and files that only a shell can run.

use forkless::zygote::{Zygote, ZygoteOptions};
use forkless::{Command, Error, Launcher, Namespace, Resource, Stdio, Step};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn blocked() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("a set");
    u64::from_str_radix(line.trim(), 16).expect("hexadecimal")
}

fn block(signal: i32) {
    // SAFETY: a set of signals of our own, and this thread's mask.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()), 0);
    }
}

fn is_sigpipe_ignored() -> bool {
    // SAFETY: reads what a signal does.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action), 0);
        action.sa_sigaction == libc::SIG_IGN
    }
}

/// Runs this program again with one of the other scenarios here, which execute a program; returns the output.
fn inner(name: &str) -> (String, Option<i32>) {
    let this = std::env::current_exe().expect("this program");
    let output = std::process::Command::new(this).arg(name).output().expect("output");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}");
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

scenario!(exec_turns_the_process_into_the_program);
/// The process that was started is the program, with all that was asked for.
pub fn exec_turns_the_process_into_the_program(_: &[String]) {
    for name in ["exec::in_first_thread", "exec::in_other_thread"] {
        let (text, code) = inner(name);
        let lines: Vec<_> = text.lines().collect();
        let [before, after, settings @ ..] = &lines[..] else { panic!("{name}: {text:?}") };
        assert_eq!(before, after, "the pid");
        let expected = ["/", "0027", "50", "set", "/dev/zero", "0", "1", "2", "5"];
        assert_eq!(settings, expected, "{name}");
        assert_eq!(code, Some(7));
    }
    assert_eq!(inner("exec::mask"), ("SigBlk:\t0000000000000a00\n".into(), Some(0)));
    assert_eq!(inner("exec::fails"), ("all is as it was\n".into(), Some(0)));
}

fn settings() -> io::Error {
    // Neither is close-on-exec, and neither is passed to the program.
    let [left, other] = [0, 1].map(|_| File::open("/dev/null").expect("open").into_raw_fd());
    // SAFETY: copies of a descriptor of ours.
    unsafe { assert!(libc::dup2(left, 9) == 9 && libc::dup2(other, 40) == 40) };
    io::stdout().write_all(format!("{}\n", std::process::id()).as_bytes()).expect("write");
    let script = "echo $$; pwd; umask; ulimit -n; echo $ONE; readlink /proc/self/fd/5; ls /proc/$$/fd; exit 7";
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir("/").umask(0o27).rlimit(Resource::Files, 50, 50).env("ONE", "set");
    command.fd(File::open("/dev/zero").expect("open"), 5);
    // SAFETY: it only reads.
    unsafe { command.pre_exec(|| if is_sigpipe_ignored() { Err(io::Error::other("SIGPIPE")) } else { Ok(()) }) };
    command.exec()
}

part!(mask);
/// Not by a shell: that would empty its mask.
pub fn mask(_: &[String]) {
    block(libc::SIGUSR1);
    panic!("{}", Command::new("grep").args(["SigBlk", "/proc/self/status"]).signal_block(libc::SIGUSR2).exec());
}

part!(in_first_thread);
pub fn in_first_thread(_: &[String]) {
    panic!("{}", settings());
}

scenario!(exec_waits_for_a_number_that_another_thread_opens);
/// A number that an open of another thread has reserved: it is waited for, but not for ever.
pub fn exec_waits_for_a_number_that_another_thread_opens(_: &[String]) {
    assert_eq!(inner("exec::number_reserved"), ("/dev/zero\n".into(), Some(0)));
    assert_eq!(inner("exec::number_stays_reserved"), ("EBUSY\n".into(), Some(0)));
}

/// Another thread opens a FIFO, which reserves the returned number until there is a writer.
fn reserve(directory: &Path) -> (PathBuf, i32) {
    let path = directory.join("fifo");
    let name = CString::new(path.as_os_str().as_bytes()).expect("a name");
    // SAFETY: a NUL-terminated name.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let free = [File::open("/dev/null").expect("open"), File::open("/dev/null").expect("open")];
    let numbers = free.each_ref().map(|file| file.as_raw_fd());
    drop(free);
    let opened = path.clone();
    // Not closed: exec may have put another file at the number by then.
    std::thread::spawn(move || File::open(opened).map(std::mem::forget));
    // The thread gets the second number if the first one has a copy at that moment.
    for number in numbers.into_iter().cycle() {
        // SAFETY: a copy of a descriptor of ours to a number that is free or reserved.
        if unsafe { libc::dup2(0, number) } != number {
            assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EBUSY));
            return (path, number);
        }
        // SAFETY: the copy.
        unsafe { libc::close(number) };
        std::thread::yield_now();
    }
    unreachable!("a cycle has no end")
}

fn exec_with(number: i32) -> io::Error {
    let mut command = Command::new("readlink");
    command.arg(format!("/proc/self/fd/{number}")).fd(File::open("/dev/zero").expect("open"), number);
    command.exec()
}

part!(number_reserved);
pub fn number_reserved(_: &[String]) {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, number) = reserve(directory.path());
    // The writer comes while exec waits.
    let mut writer = Command::new("sh");
    writer.args(["-c", "sleep 0.2; exec 3> \"$1\""]).arg("sh").arg(&path);
    let _writer = writer.spawn().expect("spawn");
    panic!("{}", exec_with(number));
}

part!(number_stays_reserved);
pub fn number_stays_reserved(_: &[String]) {
    let directory = tempfile::tempdir().expect("a directory");
    let (_, number) = reserve(directory.path());
    let error = exec_with(number);
    assert_eq!(Error::of(&error).expect("ours").errno(), Some(libc::EBUSY));
    println!("EBUSY");
}

part!(in_other_thread);
/// Other threads run meanwhile; they end with the old program.
pub fn in_other_thread(_: &[String]) {
    std::thread::spawn(|| {
        loop {
            std::hint::black_box(fs::read("/proc/self/stat").ok());
        }
    });
    let _ = std::thread::spawn(|| panic!("{}", settings())).join();
}

/// Copies of a command share its closures, and `exec` calls them in this process.
fn closures_are_called_by_one_thread_at_a_time() {
    let (mut depth, again) = (0, Arc::new(Mutex::new(None::<Command>)));
    let inner = Arc::clone(&again);
    let mut command = Command::new("true");
    // SAFETY: it runs in this process alone.
    unsafe {
        command.pre_exec(move || {
            depth += 1;
            assert_eq!(depth, 1, "no other call is under way");
            std::thread::sleep(Duration::from_millis(2));
            // Nor by the closure itself.
            let error = inner.lock().expect("the command").as_mut().map(Command::exec);
            let is_refused = error.is_none_or(|error| Error::of(&error).and_then(Error::errno) == Some(libc::EBUSY));
            depth -= 1;
            Err(io::Error::from_raw_os_error(if is_refused { libc::ENOTTY } else { libc::EIO }))
        });
    }
    *again.lock().expect("the command") = Some(command.clone());
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let mut command = command.clone();
            std::thread::spawn(move || {
                (0..20).for_each(|_| {
                    let errno = Error::of(&command.exec()).expect("ours").errno();
                    assert!(matches!(errno, Some(libc::ENOTTY | libc::EBUSY)), "{errno:?}");
                });
            })
        })
        .collect();
    calls.into_iter().for_each(|call| call.join().expect("a thread"));
}

part!(fails);
/// The failure is reported, and steps after the failed one have changed nothing.
pub fn fails(_: &[String]) {
    block(libc::SIGUSR2);
    let (ignored, mask) = (is_sigpipe_ignored(), blocked());
    assert!(ignored);
    let mut file = File::open("/dev/zero").expect("open");
    let error = Command::new("/no/such/program").signal_ignore(libc::SIGHUP).signal_block(libc::SIGINT).exec();
    assert_eq!((error.kind(), Error::of(&error).expect("ours").step()), (ErrorKind::NotFound, Step::Exec));
    let error = Command::new("true").current_dir("/no/such/directory").exec();
    assert_eq!(Error::of(&error).expect("ours").step(), Step::Chdir);
    let mut command = Command::new("true");
    // SAFETY: it touches nothing.
    unsafe { command.pre_exec(|| Err(io::Error::from_raw_os_error(libc::ENOTTY))) };
    assert_eq!(Error::of(&command.exec()).expect("ours").errno(), Some(libc::ENOTTY));
    // A signal that is blocked stays so while the child, or here the caller, sets the foreground group of a terminal.
    // SAFETY: it stays pending.
    assert_eq!(unsafe { libc::raise(libc::SIGUSR2) }, 0);
    let error = Command::new("true").foreground(77).exec();
    assert_eq!(Error::of(&error).expect("ours").errno(), Some(libc::EBADF));
    assert!(is_sigpipe_ignored() && blocked() == mask, "signals");
    closures_are_called_by_one_thread_at_a_time();
    // Before its number could be another file's.
    file.read_exact(&mut [0; 4]).expect("it is still open");
    let pty = forkless::Pty::open(forkless::PtySize::default()).ok();
    type Ask<'a> = Box<dyn Fn(&mut Command) + 'a>;
    let refused: Vec<Ask<'_>> = vec![
        Box::new(|command| _ = command.stdout(Stdio::piped())),
        Box::new(|command| _ = command.fd(Stdio::socketpair(), 7)),
        Box::new(|command| _ = command.hand_back(0)),
        Box::new(|command| _ = command.unshare(Namespace::User).map_uid(0, 0, 1)),
        Box::new(|command| _ = command.unshare(Namespace::Pid)),
        Box::new(|command| _ = command.parent_death_signal(9)),
        Box::new(|command| _ = pty.as_ref().map(|pty| command.pty(pty))),
    ];
    for (n, ask) in refused.iter().enumerate().filter(|(n, _)| *n < 6 || pty.is_some()) {
        let mut command = Command::new("true");
        ask(&mut command);
        let error = command.umask(0o777).exec();
        assert_eq!(Error::of(&error).map(Error::step), Some(Step::Check), "{n}: {error}");
    }
    // SAFETY: reads the umask, and puts it back.
    let umask = unsafe { libc::umask(0o22) };
    assert_ne!(umask, 0o777, "nothing was done");
    // Still open, and still good.
    file.read_exact(&mut [0; 4]).expect("read");
    panic!("{}", Command::new("echo").arg("all is as it was").exec());
}

fn script(directory: &Path, name: &str, text: &str) -> std::path::PathBuf {
    let path = directory.join(name);
    fs::write(&path, text).expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
    path
}

scenario!(scripts_by_shell_runs_a_file_without_a_header);
/// Files without `#!`: an error unless the shell was asked for; then as `execvp(3)` has it.
pub fn scripts_by_shell_runs_a_file_without_a_header(_: &[String]) {
    let directory = tempfile::tempdir().expect("a directory");
    let bare = script(directory.path(), "bare", "echo \"$0|$#|$1|$2\"\n");
    let path = format!("/nonexistent:{}", directory.path().display());
    for launcher in [Launcher::Clone, Launcher::Fork] {
        for (program, args) in [(bare.as_os_str(), &["one", "two words"][..]), ("bare".as_ref(), &[])] {
            let mut command = Command::new(program);
            command.args(args).env("PATH", &path).launcher(launcher);
            let error = command.output().expect_err("no program");
            assert_eq!(Error::of(&error).and_then(Error::errno), Some(libc::ENOEXEC));
            command.scripts_by_shell(true);
            let [first, second] = [0, 1].map(|n| args.get(n).copied().unwrap_or(""));
            let expected = format!("{}|{}|{first}|{second}\n", bare.display(), args.len());
            let said = |output: forkless::Output| String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(said(command.output().expect("output")), expected);
            assert_eq!(said(command.prepare().expect("prepare").output().expect("output")), expected);
            // A real program is not run by the shell.
            let mut other = Command::new("/bin/echo");
            assert_eq!(said(other.arg("x").scripts_by_shell(true).launcher(launcher).output().expect("output")), "x\n");
        }
    }
    // A binary is no script, whatever it is for.
    for contents in [&b"\x7fELF\x02\x01\x01\nexit 7\n"[..], b"MZ\0\nexit 7\n"] {
        let binary = directory.path().join("binary");
        fs::write(&binary, contents).expect("write");
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).expect("chmod");
        let error = Command::new(&binary).scripts_by_shell(true).status().expect_err("no program");
        assert_eq!(Error::of(&error).and_then(Error::errno), Some(libc::ENOEXEC), "{contents:?}");
    }
    let late = script(directory.path(), "late", "exit 7\n\0\0\n");
    assert_eq!(Command::new(&late).scripts_by_shell(true).status().expect("a script").code(), Some(7));
    let zygote = Zygote::start(&ZygoteOptions::new()).expect("a zygote");
    let mut command = Command::new("bare");
    let prepared = command.arg("one").env("PATH", &path).scripts_by_shell(true).prepare().expect("prepare");
    let output = zygote.output(&prepared).expect("output");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{}|1|one|\n", bare.display()), "by a zygote");
    let file = File::open("/bin/true").expect("open");
    let mut by_fd = Command::new("true");
    for command in [by_fd.program_fd(file), Command::new("true").launcher(Launcher::PosixSpawn)] {
        let error = command.scripts_by_shell(true).status().expect_err("refused");
        assert_eq!(Error::of(&error).map(Error::step), Some(Step::Check));
    }
}

scenario!(streams_are_those_at_the_time_of_the_launch);
/// Streams named by descriptors and by std's words, as std has them.
pub fn streams_are_those_at_the_time_of_the_launch(_: &[String]) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("out");
    let file = File::create(&path).expect("create");
    let (theirs, ours) = (std::process::Stdio::from(io::stdout()), Stdio::from(io::stdout()));
    // SAFETY: copies descriptors of this process; what was there comes back below.
    let before = unsafe { libc::dup(1) };
    assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), 1) }, 1);
    std::process::Command::new("sh").args(["-c", "echo std >&2"]).stderr(theirs).status().expect("status");
    Command::new("sh").args(["-c", "echo forkless >&2"]).stderr(ours).status().expect("status");
    // SAFETY: as above.
    unsafe { libc::dup2(before, 1) };
    assert_eq!(fs::read_to_string(&path).expect("read"), "std\nforkless\n", "descriptor 1 of the launch");
    // SAFETY: a descriptor that is given away.
    let given = unsafe { Stdio::from_raw_fd(file.try_clone().expect("dup").into_raw_fd()) };
    Command::new("echo").arg("given").stdout(given).status().expect("status");
    // To std, where it has a word for it.
    let theirs = std::process::Stdio::try_from(Stdio::from(file)).expect("a file");
    std::process::Command::new("echo").arg("back").stdout(theirs).status().expect("status");
    assert_eq!(fs::read_to_string(&path).expect("read"), "std\nforkless\ngiven\nback\n");
    for stdio in [Stdio::inherit(), Stdio::null(), Stdio::piped()] {
        assert!(std::process::Stdio::try_from(stdio).is_ok());
    }
    for stdio in [Stdio::dup_of(1), Stdio::socketpair(), Stdio::open("/dev/null", 0, 0)] {
        let error = std::process::Stdio::try_from(stdio).expect_err("no word for it");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
    assert!(Command::new("x").env_clear().get_env_clear() && !Command::new("x").get_env_clear());
}
