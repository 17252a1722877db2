//! Pipelines and command lines: the bytes are right, and nothing is leaked.

use crate::capture::{LONG, MIB, in_time, leaving_nothing, make_fifo, pattern, run, sh};
use crate::observe::{eventually, scaled};
use forkless::{Capture, Child, Command, Error, Pipeline, Stdio, Step, Stream};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::Duration;

fn pipeline(scripts: &[&str]) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for script in scripts {
        pipeline.command(&mut sh(script)).expect("a command");
    }
    pipeline
}

fn codes(statuses: &forkless::PipelineStatus) -> Vec<(Option<i32>, Option<i32>)> {
    statuses.all().iter().map(|status| (status.code(), status.signal())).collect()
}

/// A mebibyte through ten programs.
pub(crate) fn ten_stages() {
    let data = pattern(MIB);
    let (got, statuses) = pipeline(&["exec cat"; 10]).capture(&Capture::new().input(&data)).expect("a capture");
    assert!(got.stdout[..] == data[..] && statuses.all().len() == 10 && statuses.success());
}

scenario!(pipelines);
/// Statuses, ends, errors.
pub fn pipelines(_: &[String]) {
    let how = Capture::new();
    let (_, statuses) = leaving_nothing(|| pipeline(&["exit 1", "exit 2", "exit 0"]).capture(&how)).expect("a capture");
    assert_eq!(codes(&statuses), [(Some(1), None), (Some(2), None), (Some(0), None)]);
    assert!(statuses.success());
    let mut strict = pipeline(&["exit 1", "exit 2", "exit 0"]);
    let statuses = leaving_nothing(|| strict.pipefail(true).status()).expect("statuses");
    assert_eq!((statuses.status().code(), statuses.success()), (Some(2), false));
    let (got, statuses) = leaving_nothing(|| pipeline(&["exec yes", "exec head -1"]).capture(&how)).expect("a capture");
    assert_eq!((&got.stdout[..], codes(&statuses)), (&b"y\n"[..], vec![(None, Some(13)), (Some(0), None)]));
    let (got, _) =
        leaving_nothing(|| pipeline(&["cat; echo e >&2"]).capture(&how.clone().input("x"))).expect("a capture");
    assert_eq!((&got.stdout[..], &got.stderr[..]), (&b"x"[..], &b"e\n"[..]));
    leaving_nothing(ten_stages);
    for answer in [Pipeline::new().status().err(), Pipeline::new().capture(&how).err()] {
        let error = answer.expect("no program");
        assert_eq!(Error::of(&error).map(Error::step), Some(Step::Check), "{error}");
    }
    let error = pipeline(&["true"]).capture(&how.clone().memory_file(true)).expect_err("a memory file");
    assert_eq!(Error::of(&error).map(Error::step), Some(Step::Check), "{error}");
    // The standard error of all programs, collected.
    let scripts = ["echo a; echo 1 >&2", "cat; echo 2 >&2"];
    let (got, _) = leaving_nothing(|| pipeline(&scripts).capture(&how.clone().merged(true))).expect("a capture");
    assert_eq!((got.stdout.iter().filter(|&&byte| byte != b'\n').count(), got.stderr.len()), (3, 0));
    missing();
    own_streams();
    times();
}

/// A missing program, at each position.
fn missing() {
    for place in 0..3 {
        let mut pipeline = Pipeline::new();
        for n in 0..3 {
            let mut command = if n == place { Command::new("/no/such/program") } else { sh("exec sleep 100") };
            pipeline.command(&mut command).expect("a command");
        }
        for answer in [
            leaving_nothing(|| pipeline.status().err()),
            leaving_nothing(|| pipeline.spawn().err()),
            leaving_nothing(|| pipeline.capture(&Capture::new().input(pattern(MIB))).err()),
            leaving_nothing(|| pipeline.capture(&Capture::new().timeout(LONG)).err()),
        ] {
            let error = answer.expect("no such program");
            let detail = Error::of(&error).map(|error| (error.step(), error.errno()));
            assert_eq!(detail, Some((Step::Exec, Some(2))), "{error}");
        }
    }
}

/// No program inherits another's end of a pipe, even if a command redirects its streams.
fn own_streams() {
    let list = "ls /proc/self/fd >&2; cat";
    let (got, _) = leaving_nothing(|| pipeline(&[list; 4]).capture(&Capture::new().input("x"))).expect("a capture");
    let text = String::from_utf8_lossy(&got.stderr).into_owned();
    // The three streams, and the directory that is being listed.
    let numbers: Vec<&str> = text.lines().collect();
    assert!(numbers.len() == 16 && numbers.iter().all(|number| matches!(*number, "0" | "1" | "2" | "3")), "{text}");
    for place in 0..3 {
        let mut other = Pipeline::new();
        for n in 0..3 {
            let mut command = sh("cat; echo $$ >&2");
            if n == place {
                command.stdin(Stdio::null());
            }
            other.command(&mut command).expect("a command");
        }
        let (got, _) = leaving_nothing(|| other.capture(&Capture::new().input("x"))).expect("a capture");
        assert_eq!((got.stdout.len(), got.input_left == 1), (0, place == 0));
    }
    let mut away = Pipeline::new();
    away.command(sh("echo x").stdout(Stdio::null()))
        .and_then(|all| all.command(&mut sh("cat; echo end")))
        .expect("commands");
    let (got, _) = leaving_nothing(|| away.capture(&Capture::new())).expect("a capture");
    assert_eq!(&got.stdout[..], b"end\n");
}

/// One time for all.
fn times() {
    let both = pipeline(&["echo x; sleep 100", "cat; sleep 100"]);
    let run = |how: &Capture| leaving_nothing(|| both.capture(how)).expect("a capture");
    let (got, statuses) = in_time(&Capture::new(), run, |(got, _)| &got.stdout);
    assert!(got.timed_out && &got.stdout[..] == b"x\n");
    assert_eq!(codes(&statuses), [(None, Some(9)); 2]);
    for _ in 0..scaled(50) {
        let none = Capture::new().timeout(Duration::ZERO);
        let (got, _) = leaving_nothing(|| pipeline(&["exec sleep 100"; 3]).capture(&none)).expect("a capture");
        assert!(got.timed_out);
    }
    // One that the time finds in its launch.
    let (_directory, fifo) = make_fifo();
    let mut held = pipeline(&["exec sleep 100"]);
    held.command(sh("cat").stdin(Stdio::open(&fifo, libc::O_RDONLY, 0))).expect("a command");
    let how = Capture::new().timeout(Duration::from_millis(200));
    let (got, statuses) = leaving_nothing(|| held.capture(&how)).expect("a capture");
    assert_eq!((got.timed_out, codes(&statuses)), (true, vec![(None, Some(9)); 2]));
    let (got, statuses) =
        leaving_nothing(|| pipeline(&["exec yes", "exec cat"]).capture(&Capture::new().limit(10).kill_at_limit(true)))
            .expect("a capture");
    assert_eq!((got.stdout.len(), statuses.all()[1].signal()), (10, Some(9)));
}

scenario!(one_pipeline_many_runs);
/// One pipeline, many runs, several threads.
pub fn one_pipeline_many_runs(_: &[String]) {
    let data = pattern(100_000);
    let all = pipeline(&["exec cat", "tr a-z A-Z", "exec cat"]);
    let expected = data.to_ascii_uppercase();
    leaving_nothing(|| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..scaled(25) {
                        let how = Capture::new().input(&data).timeout(LONG);
                        let (got, statuses) = all.capture(&how).expect("a capture");
                        assert!(got.stdout[..] == expected[..] && statuses.success());
                    }
                });
            }
        });
    });
}

fn piped(script: &str) -> Child {
    sh(script).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("spawn")
}

fn lines_of(script: &str) -> Vec<(Stream, Vec<u8>)> {
    leaving_nothing(|| {
        let mut child = piped(script);
        let lines = child.lines().collect::<Result<_, _>>().expect("lines");
        child.wait().expect("wait");
        lines
    })
}

scenario!(lines);
/// Lines as they come.
pub fn lines(_: &[String]) {
    let out = |script: &str| lines_of(script).into_iter().map(|(_, line)| line).collect::<Vec<_>>();
    assert!(out("true").is_empty());
    assert_eq!(out("echo"), [b""]);
    assert_eq!(out(r"printf 'a\n\n\nb'"), [&b"a"[..], b"", b"", b"b"]);
    assert_eq!(out(r"printf 'a\r\nb\r\n'"), [b"a\r", b"b\r"]);
    assert_eq!(out(r"printf 'a\0b\n\377\n'"), [&b"a\0b"[..], b"\xff"]);
    assert_eq!(out("printf a; sleep 0.05; echo b"), [b"ab"]);
    let zeros = |len: usize| format!("head -c {len} /dev/zero");
    // As many bytes as there are, in pieces, and no line that is none: the piece may end where the line does.
    for len in [MIB - 1, MIB, MIB + 1, 2 * MIB, 3 * MIB + 5] {
        let pieces = out(&format!("{}; sleep 0.05; echo; echo; echo end", zeros(len)));
        assert!(pieces.iter().all(|piece| piece.len() <= MIB + 64 * 1024));
        assert_eq!(pieces.iter().map(Vec::len).sum::<usize>(), len + 3);
        let (long, short) = pieces.split_at(pieces.len() - 2);
        assert!(long.iter().all(|piece| !piece.is_empty()), "{len}");
        assert_eq!(short, [&b""[..], b"end"], "{len}");
        assert_eq!(out(&zeros(len)).iter().map(Vec::len).sum::<usize>(), len);
    }
    let both = lines_of("for n in $(seq 2000); do echo out $n; echo err $n >&2; done");
    for (stream, word) in [(Stream::Stdout, "out"), (Stream::Stderr, "err")] {
        let found: Vec<_> = both.iter().filter(|line| line.0 == stream).map(|line| line.1.clone()).collect();
        let expected: Vec<_> = (1..=2000).map(|n| format!("{word} {n}").into_bytes()).collect();
        assert_eq!(found, expected);
    }
    let ends = lines_of("printf out; printf err >&2");
    assert_eq!(ends, [(Stream::Stdout, b"out".to_vec()), (Stream::Stderr, b"err".to_vec())]);
    // Another holds the pipe: what is there comes at once, and the end when that one ends.
    assert_eq!(out("(sleep 0.2; echo late) & echo early"), [&b"early"[..], b"late"]);
    nonblocking();
    dropped();
    let captured = run(&mut sh("echo"), &Capture::new());
    assert_eq!(&captured.stdout[..], b"\n");
}

/// Pipes that the caller has made nonblocking are waited for, too.
fn nonblocking() {
    leaving_nothing(|| {
        let mut child = piped("sleep 0.1; echo one; exec 2>&-; sleep 0.1; echo two");
        let stdout = child.stdout.as_ref().expect("a pipe");
        // SAFETY: an open descriptor.
        assert_eq!(unsafe { libc::fcntl(stdout.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
        let lines: Vec<_> = child.lines().map(|line| line.expect("a line").1).collect();
        assert_eq!(lines, [b"one", b"two"]);
        child.wait().expect("wait");
    });
}

/// An iterator that is dropped midway closes the pipes: the program gets SIGPIPE.
fn dropped() {
    leaving_nothing(|| {
        let mut child = piped("exec yes");
        let first = child.lines().next().expect("a line").expect("read");
        assert_eq!(first, (Stream::Stdout, b"y".to_vec()));
        assert_eq!(child.wait().expect("wait").signal(), Some(13));
        let mut child = piped("echo x; exec sleep 0.1");
        drop(child.chunks());
        assert!(child.lines().next().is_none());
        eventually("it ends", || child.try_wait().expect("wait").is_some());
    });
}
