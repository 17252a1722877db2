//! A program written for `std::process` works with this crate after changing its `use` line: the same source, compiled
//! with both, gives the same results.

testing::usual_surroundings!();

/// The source. It may only use what the `use` line imports, and the rest of std.
macro_rules! story {
    ($name:ident, $($path:ident)::+) => {
        mod $name {
            use super::{kind_of, File, Path, Read, Write};
            use std::os::unix::process::ExitStatusExt;
            use $($path)::+::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};

            /// Runs the program; the results are compared.
            pub(super) fn tell(directory: &Path) -> Vec<String> {
                let mut told = Vec::new();
                describe(&mut told, directory);
                moves(&mut told);
                oddities(&mut told, directory);
                streams(&mut told, directory);
                handles(&mut told);
                failures(&mut told, directory);
                told
            }

            fn text(output: Output) -> String {
                let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                format!("{:?} {:?} {out} {err}", output.status.code(), output.status.signal())
            }

            fn sh(script: &str) -> Command {
                let mut command = Command::new("sh");
                command.arg("-c").arg(script);
                command
            }

            fn describe(told: &mut Vec<String>, directory: &Path) {
                told.push(text(Command::new("printf").args(["%s|", "a b", "", "$HOME", "*"]).output().unwrap()));
                let script = "echo $ONE-$TWO-${PATH:+path}; pwd";
                told.push(text(sh(script).env("ONE", "1").envs([("TWO", "2")]).current_dir(directory).output().unwrap()));
                told.push(text(sh(script).env("ONE", "1").env_remove("ONE").env("TWO", "2").env_remove("TWO").output().unwrap()));
                told.push(text(Command::new("/usr/bin/env").env_clear().env("B", "2").env("A", "1").env("E", "").output().unwrap()));
                told.push(text(Command::new("tool").env("PATH", directory).output().unwrap()));
                told.push(text(Command::new("./tool").current_dir(directory).output().unwrap()));
                let mut command = Command::new("prog");
                command.args(["x", "y"]).env("K", "v").env_remove("R").current_dir("/tmp");
                told.push(format!("{:?} {:?}", command.get_program(), command.get_args().collect::<Vec<_>>()));
                told.push(format!("{:?} {:?}", command.get_envs().collect::<Vec<_>>(), command.get_current_dir()));
            }

            fn streams(told: &mut Vec<String>, directory: &Path) {
                let file = |name: &str| File::create(directory.join(name)).unwrap();
                let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
                let status = sh("echo out; echo err >&2").stdout(file("out")).stderr(Stdio::from(file("err"))).status();
                told.push(format!("{:?} {} {}", status.unwrap(), read("out"), read("err")));
                let input = File::open(directory.join("out")).unwrap();
                told.push(text(Command::new("cat").stdin(input).output().unwrap()));
                told.push(text(Command::new("cat").stdin(Stdio::null()).stdout(Stdio::piped()).output().unwrap()));
                told.push(text(sh("echo gone; echo kept >&2").stdout(Stdio::null()).output().unwrap()));
                // A pipeline.
                let mut first = sh("echo one; echo two").stdout(Stdio::piped()).spawn().unwrap();
                let between: ChildStdout = first.stdout.take().unwrap();
                told.push(text(Command::new("wc").arg("-l").stdin(Stdio::from(between)).output().unwrap()));
                told.push(format!("{:?}", first.wait().unwrap()));
                // More data than a pipe holds, on both streams.
                let output = sh("head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2").output().unwrap();
                told.push(format!("{} {} {:?}", output.stdout.len(), output.stderr.len(), output.status));
                let mut child = sh("echo e >&2").stderr(Stdio::piped()).stdin(Stdio::inherit()).spawn().unwrap();
                let mut errors: ChildStderr = child.stderr.take().unwrap();
                let mut found = String::new();
                errors.read_to_string(&mut found).unwrap();
                told.push(format!("{found} {:?}", child.wait().unwrap().success()));
            }

            /// The streams may be moved out of the handle.
            #[allow(clippy::zombie_processes, reason = "nothing is left to wait for them with")]
            fn moves(told: &mut Vec<String>) {
                let child = sh("echo out").stdout(Stdio::piped()).spawn().unwrap();
                let mut found = String::new();
                child.stdout.unwrap().read_to_string(&mut found).unwrap();
                told.push(found);
                let child = sh("cat; echo err >&2").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
                let (input, errors) = (child.stdin, child.stderr);
                input.expect("a pipe").write_all(b"").unwrap();
                let mut found = String::new();
                errors.unwrap().read_to_string(&mut found).unwrap();
                told.push(found);
                let Child { stdout, .. } = sh("echo other").stdout(Stdio::piped()).spawn().unwrap();
                let mut found = String::new();
                stdout.unwrap().read_to_string(&mut found).unwrap();
                told.push(found);
            }

            fn oddities(told: &mut Vec<String>, directory: &Path) {
                told.push(text(sh("echo $ONE").env("ONE", "1").env_remove("a\0b").output().unwrap()));
                // A directory in PATH that is too long for a path is skipped; one whose name is too long for a file is
                // not.
                for entry in ["/x".repeat(3000), format!("/{}", "x".repeat(300))] {
                    let path = format!("{entry}:{}", directory.display());
                    told.push(match Command::new("tool").env("PATH", path).output() {
                        Ok(output) => text(output),
                        Err(error) => format!("{:?}", error.kind()),
                    });
                }
                told.push(kind_of(Command::new(directory.join("bare")).spawn()));
                // Not in a shell, which would clear its mask.
                let mask = || text(Command::new("grep").args(["SigBlk", "/proc/self/status"]).output().unwrap());
                told.push(super::with_blocked(libc::SIGUSR1, mask));
            }

            fn handles(told: &mut Vec<String>) {
                let status: ExitStatus = sh("exit 3").status().unwrap();
                told.push(format!("{:?} {status} {status:?} {}", status.code(), status.success()));
                let status = sh("kill -TERM $$").status().unwrap();
                told.push(format!("{:?} {status} {:?}", status.code(), status.signal()));
                let mut child: Child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
                told.push(format!("{} {:?}", child.id() > 0, child.try_wait().unwrap()));
                let mut input: ChildStdin = child.stdin.take().unwrap();
                input.write_all(b"through").unwrap();
                drop(input);
                told.push(text(child.wait_with_output().unwrap()));
                // Waiting closes a pipe to standard input that is still in the handle.
                let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
                told.push(format!("{:?} {:?}", child.wait().unwrap(), child.try_wait().unwrap()));
                told.push(format!("{:?} {:?}", child.wait().unwrap(), child.stdin.is_none()));
                told.push(format!("{:?}", child.kill().is_ok()));
                let mut child = Command::new("sleep").arg("60").spawn().unwrap();
                child.kill().unwrap();
                told.push(format!("{:?} {:?}", child.wait().unwrap(), child.wait().unwrap().signal()));
                // One command is run several times.
                let mut command = sh("exit 4");
                told.push(format!("{:?} {:?}", command.status().unwrap(), command.spawn().unwrap().wait().unwrap()));
            }

            fn failures(told: &mut Vec<String>, directory: &Path) {
                told.push(kind_of(Command::new("no-such-program-anywhere").spawn()));
                told.push(kind_of(Command::new("/no/such/program").status()));
                told.push(kind_of(Command::new("/no/such/program").output()));
                told.push(kind_of(Command::new("true").current_dir("/no/such/directory").spawn()));
                told.push(kind_of(Command::new(directory).spawn()));
                told.push(kind_of(Command::new(directory.join("out")).spawn()));
                told.push(kind_of(Command::new("echo").arg("nul\0byte").spawn()));
                told.push(kind_of(Command::new("nul\0byte").spawn()));
                told.push(kind_of(Command::new("echo").env("nul\0byte", "x").spawn()));
                told.push(kind_of(Command::new("true").arg("x".repeat(3 << 20)).spawn()));
            }
        }
    };
}

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

story!(with_std, std::process);
story!(with_forkless, forkless);

/// The kind of the error, or a text if there was none.
fn kind_of<T>(answer: io::Result<T>) -> String {
    match answer {
        Ok(_) => "no error".into(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// Runs a closure with a signal blocked in this thread.
fn with_blocked<T>(signal: i32, work: impl FnOnce() -> T) -> T {
    // SAFETY: local signal sets, and this thread's mask, which is restored.
    unsafe {
        let (mut set, mut old): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut old);
        let answer = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        answer
    }
}

#[test]
fn the_same_program_gives_the_same_results() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let tool = directory.path().join("tool");
    std::fs::write(&tool, "#!/bin/sh\necho tool \"$0\"\n").expect("write");
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("chmod");
    std::fs::write(directory.path().join("bare"), "echo bare\n").expect("write");
    std::fs::set_permissions(directory.path().join("bare"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("chmod");
    let (theirs, ours) = (with_std::tell(directory.path()), with_forkless::tell(directory.path()));
    assert_eq!(theirs.len(), ours.len());
    for (n, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
        assert_eq!(theirs, ours, "answer {n}: std (left) and forkless (right)");
    }
    // The results are not empty.
    assert!(theirs.len() > 30 && theirs.iter().any(|line| line.contains("NotFound")));
}

/// The longest timeout does not overflow.
#[test]
fn the_longest_timeout_does_not_overflow() {
    for pidfd in [true, false] {
        let mut child = forkless::Command::new("true").pidfd(pidfd).launch().expect("launch");
        assert!(child.wait_exec_timeout(std::time::Duration::MAX).expect("exec"));
        assert!(child.wait_timeout(std::time::Duration::MAX).expect("wait").expect("an end").success());
    }
}

/// Each stable type of std that owns a descriptor becomes a `Stdio`, and the child gets that file.
#[test]
fn every_owner_of_a_descriptor_is_a_stdio() {
    use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
    use std::os::fd::{AsFd, AsRawFd, OwnedFd};
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    fn check<T: AsFd + Into<forkless::Stdio>>(owner: T) -> String {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", owner.as_fd().as_raw_fd())).expect("a link");
        let output = forkless::Command::new("readlink").arg("/proc/self/fd/3").fd(owner, 3).output().expect("readlink");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), link.to_string_lossy());
        std::any::type_name::<T>().rsplit("::").next().expect("a name").to_owned()
    }
    let home = Ipv4Addr::LOCALHOST;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (reader, writer) = io::pipe().expect("a pipe");
    let listener = TcpListener::bind((home, 0)).expect("a port");
    let mut child = std::process::Command::new("true");
    let piped = std::process::Stdio::piped;
    let mut child = child.stdin(piped()).stdout(piped()).stderr(piped()).spawn().expect("true");
    let checked = [
        check(OwnedFd::from(File::open("/dev/null").expect("a file"))),
        check(File::open("/dev/null").expect("a file")),
        check(reader),
        check(writer),
        check(TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection")),
        check(listener),
        check(UdpSocket::bind((home, 0)).expect("a port")),
        check(UnixStream::pair().expect("a pair").0),
        check(UnixDatagram::unbound().expect("a socket")),
        check(UnixListener::bind(directory.path().join("socket")).expect("a socket")),
        check(child.stdin.take().expect("a pipe")),
        check(child.stdout.take().expect("a pipe")),
        check(child.stderr.take().expect("a pipe")),
    ];
    child.wait().expect("an end");
    // The page of the toolchain, if it is installed, has the types that std adds later.
    let sysroot = std::process::Command::new("rustc").args(["--print", "sysroot"]).output().expect("rustc").stdout;
    let sysroot = String::from_utf8(sysroot).expect("text");
    let page = Path::new(sysroot.trim_end()).join("share/doc/rust/html/std/os/fd/struct.OwnedFd.html");
    let Ok(page) = std::fs::read_to_string(page) else {
        return println!("SKIPPED: search for other types because the toolchain has no component rust-docs");
    };
    let found = page.split("id=\"impl-From%3C").skip(1).filter_map(|text| text.split_once("%3E-for-OwnedFd\""));
    // These are not stable yet.
    let unstable = ["Dir", "PidFd"];
    let missing: Vec<_> =
        found.filter(|(name, _)| !unstable.contains(name) && !checked.iter().any(|c| c == name)).collect();
    assert!(missing.is_empty(), "std has {:?}", missing.iter().map(|(name, _)| name).collect::<Vec<_>>());
}

/// `Command::from_std` takes over what std lets it read.
#[test]
fn a_command_of_std_is_taken_over() {
    let script = "echo $0 $1 $ADDED ${HOME-unset} $PWD";
    let mut theirs = std::process::Command::new("sh");
    theirs.args(["-c", script, "zero", "one"]).env("ADDED", "added").env_remove("HOME").current_dir("/usr");
    let mut ours = forkless::Command::from_std(&theirs);
    assert_eq!(theirs.output().expect("std"), ours.output().expect("forkless"));
    assert_eq!(ours.output().expect("again").stdout, b"zero one added unset /usr\n");
    // It cannot read these: the variables are inherited, the stream is captured.
    let mut theirs = std::process::Command::new("sh");
    theirs.env_clear().args(["-c", "env | grep -c ^PATH="]).stdout(std::process::Stdio::null());
    assert_eq!(forkless::Command::from_std(&theirs).output().expect("forkless").stdout, b"1\n");
}
