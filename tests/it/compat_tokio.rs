//! A program written for `tokio::process` works with this crate after changing its `use` lines: the same source,
//! compiled with both, gives the same results.

testing::usual_surroundings!();

/// The source. It may only use what the `use` lines import, and the rest of std and tokio.
macro_rules! story {
    ($name:ident, $($process:ident)::+, $($stdio:ident)::+) => {
        mod $name {
            use super::{File, Path, kind_of};
            use std::io::Read;
            use std::os::fd::{AsFd, AsRawFd, OwnedFd};
            use std::os::unix::process::ExitStatusExt;
            use std::process::{ExitStatus, Output};
            use std::time::Duration;
            use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
            use tokio::time::timeout;
            use $($process)::+::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
            use $($stdio)::+::Stdio;

            /// Runs the program; the results are compared.
            pub(super) async fn tell(directory: &Path) -> Vec<String> {
                let mut told = Vec::new();
                describe(&mut told, directory).await;
                streams(&mut told, directory).await;
                moves(&mut told).await;
                conversions(&mut told).await;
                handles(&mut told).await;
                ends(&mut told).await;
                failures(&mut told, directory).await;
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

            async fn describe(told: &mut Vec<String>, directory: &Path) {
                told.push(text(Command::new("printf").args(["%s|", "a b", "", "$HOME"]).output().await.unwrap()));
                let mut command = sh("echo $ONE-$TWO-${PATH:+path}; pwd");
                command.env("ONE", "1").envs([("TWO", "2")]).current_dir(directory);
                told.push(text(command.output().await.unwrap()));
                let mut command = sh("echo $ONE-$TWO");
                command.env("ONE", "1").env_remove("ONE").env("TWO", "2");
                told.push(text(command.output().await.unwrap()));
                told.push(text(Command::new("/usr/bin/env").env_clear().env("B", "2").output().await.unwrap()));
                told.push(text(Command::new("sh").arg0("other").args(["-c", "echo $0"]).output().await.unwrap()));
                told.push(text(sh("[ $(ps -o pgid= -p $$) = $$ ] && echo leads").process_group(0).output().await.unwrap()));
                let mut command = Command::new("prog");
                command.args(["x", "y"]).env("K", "v").current_dir("/tmp").kill_on_drop(true);
                let std = command.as_std();
                told.push(format!("{:?} {:?}", std.get_program(), std.get_args().collect::<Vec<_>>()));
                told.push(format!("{:?} {:?}", std.get_envs().collect::<Vec<_>>(), std.get_current_dir()));
                told.push(format!("{} {}", command.get_kill_on_drop(), Command::new("x").get_kill_on_drop()));
            }

            async fn streams(told: &mut Vec<String>, directory: &Path) {
                let file = |name: &str| File::create(directory.join(name)).unwrap();
                let status = sh("echo out; echo err >&2").stdout(file("out")).stderr(Stdio::from(file("err"))).status();
                let status: ExitStatus = status.await.unwrap();
                let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
                told.push(format!("{status:?} {} {}", read("out"), read("err")));
                let input = File::open(directory.join("out")).unwrap();
                told.push(text(Command::new("cat").stdin(input).output().await.unwrap()));
                // `output` captures whatever the command's redirections; standard input is inherited unless redirected.
                let mut command = sh("cat; echo kept; echo too >&2");
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                told.push(text(command.output().await.unwrap()));
                // `status` closes pipes of the command.
                let mut command = sh("cat; echo written || echo not written >&2");
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
                told.push(format!("{:?}", command.status().await.unwrap().code()));
                // A dialogue with the child, line by line.
                let mut child = sh("while read line; do echo \"<$line>\"; done; echo end >&2");
                child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
                let mut child: Child = child.spawn().unwrap();
                let mut input: ChildStdin = child.stdin.take().unwrap();
                let output: ChildStdout = child.stdout.take().unwrap();
                let mut errors: ChildStderr = child.stderr.take().unwrap();
                let mut lines = BufReader::new(output).lines();
                for word in ["one", "two"] {
                    input.write_all(format!("{word}\n").as_bytes()).await.unwrap();
                    input.flush().await.unwrap();
                    told.push(format!("{:?}", lines.next_line().await.unwrap()));
                }
                drop(input);
                told.push(format!("{:?}", lines.next_line().await.unwrap()));
                let mut found = String::new();
                errors.read_to_string(&mut found).await.unwrap();
                told.push(format!("{found} {:?}", child.wait().await.unwrap()));
                let mut child = sh("exec <&-; echo closed; sleep 60").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
                child.stdout.as_mut().unwrap().read_exact(&mut [0; 7]).await.unwrap();
                told.push(kind_of(child.stdin.as_mut().unwrap().write_all(b"too late").await));
                child.kill().await.unwrap();
                // More data than a pipe holds, on both streams, in either order.
                for script in ["head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2", "head -c 200000 /dev/zero >&2; head -c 300000 /dev/zero"] {
                    let output = sh(script).output().await.unwrap();
                    told.push(format!("{} {} {:?}", output.stdout.len(), output.stderr.len(), output.status));
                }
            }

            /// The streams may be moved out of the handle.
            async fn moves(told: &mut Vec<String>) {
                let child = sh("echo out").stdout(Stdio::piped()).spawn().unwrap();
                let mut found = String::new();
                child.stdout.unwrap().read_to_string(&mut found).await.unwrap();
                told.push(found);
                let Child { stdin, stderr, .. } =
                    sh("cat; echo err >&2").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
                drop(stdin.unwrap());
                let mut found = String::new();
                stderr.unwrap().read_to_string(&mut found).await.unwrap();
                told.push(found);
            }

            async fn conversions(told: &mut Vec<String>) {
                // A pipeline.
                let mut first = sh("echo one; echo two").stdout(Stdio::piped()).spawn().unwrap();
                let between: Stdio = first.stdout.take().unwrap().try_into().unwrap();
                told.push(text(Command::new("wc").arg("-l").stdin(between).output().await.unwrap()));
                told.push(format!("{:?}", first.wait().await.unwrap()));
                let mut last = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
                let between: Stdio = last.stdin.take().unwrap().try_into().unwrap();
                told.push(format!("{:?}", sh("echo three").stdout(between).status().await.unwrap()));
                told.push(text(last.wait_with_output().await.unwrap()));
                let mut child = sh("echo four >&2").stderr(Stdio::piped()).spawn().unwrap();
                let errors = child.stderr.take().unwrap();
                told.push(format!("{}", errors.as_raw_fd() == errors.as_fd().as_raw_fd()));
                let fd: OwnedFd = errors.into_owned_fd().unwrap();
                let mut found = String::new();
                File::from(fd).read_to_string(&mut found).unwrap();
                told.push(format!("{found} {:?}", child.wait().await.unwrap()));
                // From a blocking pipe.
                let (read, mut write) = std::io::pipe().unwrap();
                std::io::Write::write_all(&mut write, b"five").unwrap();
                drop(write);
                let mut found = String::new();
                let stream = std::process::ChildStdout::from(OwnedFd::from(read));
                ChildStdout::from_std(stream).unwrap().read_to_string(&mut found).await.unwrap();
                told.push(found);
            }

            async fn handles(told: &mut Vec<String>) {
                let status = sh("exit 3").status().await.unwrap();
                told.push(format!("{:?} {status} {}", status.code(), status.success()));
                let status = sh("kill -TERM $$").status().await.unwrap();
                told.push(format!("{:?} {status} {:?}", status.code(), status.signal()));
                let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
                told.push(format!("{:?} {:?}", child.id().is_some_and(|id| id > 0), child.try_wait().unwrap()));
                child.stdin.take().unwrap().write_all(b"through").await.unwrap();
                told.push(text(child.wait_with_output().await.unwrap()));
                // Waiting closes a pipe to standard input that is still in the handle.
                let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
                told.push(format!("{:?} {:?} {:?}", child.wait().await.unwrap(), child.try_wait().unwrap(), child.id()));
                told.push(format!("{:?} {:?}", child.wait().await.unwrap(), child.stdin.is_none()));
                told.push(format!("{} {}", child.start_kill().is_ok(), child.kill().await.is_ok()));
                // One command is run several times.
                let mut command = sh("exit 4");
                let (one, other) = tokio::join!(command.status(), command.output());
                told.push(format!("{:?} {:?}", one.unwrap(), other.unwrap().status));
            }

            async fn ends(told: &mut Vec<String>) {
                let mut child = Command::new("sleep").arg("60").kill_on_drop(true).spawn().unwrap();
                told.push(format!("{}", timeout(Duration::from_millis(1), child.wait()).await.is_err()));
                told.push(format!("{:?} {}", child.try_wait().unwrap(), child.id().is_some()));
                child.start_kill().unwrap();
                told.push(format!("{:?} {:?}", child.wait().await.unwrap(), child.wait().await.unwrap().signal()));
                // Dropped with and without kill_on_drop.
                for kill in [true, false] {
                    let mut command = sh("read line; echo alive");
                    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(kill);
                    let mut child = command.spawn().unwrap();
                    let (input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
                    drop(child);
                    drop(input);
                    let mut found = String::new();
                    output.read_to_string(&mut found).await.unwrap();
                    told.push(format!("{kill} {found:?}"));
                }
                let mut command = sh("exec sleep 60");
                told.push(format!("{}", timeout(Duration::from_millis(1), command.kill_on_drop(true).output()).await.is_err()));
            }

            async fn failures(told: &mut Vec<String>, directory: &Path) {
                told.push(kind_of(Command::new("no-such-program-anywhere").spawn()));
                told.push(kind_of(Command::new("/no/such/program").status().await));
                told.push(kind_of(Command::new("/no/such/program").output().await));
                told.push(kind_of(Command::new("true").current_dir("/no/such/directory").spawn()));
                told.push(kind_of(Command::new(directory).spawn()));
                told.push(kind_of(Command::new(directory.join("out")).status().await));
                told.push(kind_of(Command::new("echo").arg("nul\0byte").spawn()));
                told.push(kind_of(Command::new("nul\0byte").output().await));
                told.push(kind_of(Command::new("true").arg("x".repeat(3 << 20)).spawn()));
            }
        }
    };
}

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use tokio::runtime::Builder;

story!(with_tokio, tokio::process, std::process);
story!(with_forkless, forkless::tokio, forkless::tokio);

/// The kind of the error, or a text if there was none.
fn kind_of<T>(answer: io::Result<T>) -> String {
    match answer {
        Ok(_) => "no error".into(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

async fn compare() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let theirs = with_tokio::tell(directory.path()).await;
    let ours = with_forkless::tell(directory.path()).await;
    assert_eq!(theirs.len(), ours.len());
    for (n, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
        assert_eq!(theirs, ours, "answer {n}: tokio (left) and forkless (right)");
    }
    // The results are not empty.
    assert!(theirs.len() > 45 && theirs.iter().any(|line| line.contains("NotFound")));
}

/// One test at a time: until its exec, a process that the other one forks has this one's pipes, too.
fn compare_on(runtime: &mut Builder) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    runtime.enable_all().build().expect("a runtime").block_on(compare());
}

#[test]
fn the_same_program_gives_the_same_results_on_one_thread() {
    compare_on(&mut Builder::new_current_thread());
}

#[test]
fn the_same_program_gives_the_same_results_on_several_threads() {
    compare_on(Builder::new_multi_thread().worker_threads(2));
}
