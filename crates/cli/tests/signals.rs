//! Signals that are sent to a supervising `forkless run`, and how it ends. Without a terminal; with one: `job_control`.

testing::usual_surroundings!();

mod jobs;

use std::{
    io::{BufRead, BufReader, Read},
    mem::MaybeUninit,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use jobs::{BINARY, LIMIT};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// Where the program runs.
const PLACES: [&[&str]; 4] = [&[], &["--process-group"], &["--setsid"], &["--pty"]];

/// A supervised program that has said that it runs.
struct Run {
    forkless: Child,
    output: BufReader<ChildStdout>,
}

impl Run {
    fn start(options: &[&str], program: &[&str]) -> Self {
        Self::with(&mut command(options, program))
    }

    fn with(command: &mut Command) -> Self {
        let mut forkless = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("forkless starts");
        let output = BufReader::new(forkless.stdout.take().expect("a pipe"));
        let mut run = Self { forkless, output };
        assert_eq!(run.line(), "ready");
        run
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn pid(&self) -> i32 {
        self.forkless.id() as i32
    }

    fn kill(&self, signal: i32) {
        // SAFETY: the process has not been waited for.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0, "signal {signal}");
    }

    /// The status as a shell shows it, after the program has closed its output, too.
    fn end(mut self) -> i32 {
        let status = jobs::shown(self.forkless.wait().expect("wait"));
        // Ends only when no process has the pipe any more.
        self.output.read_to_end(&mut Vec::new()).expect("the end");
        status
    }

    /// Has forkless ended? It is not reaped.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.forkless)), options).expect("a child").is_some()
    }

    /// Waits until forkless is stopped; the signal that stopped it.
    fn stops(&self) -> i32 {
        let pid = WaitId::Pid(Pid::from_child(&self.forkless));
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        waitid(pid, options).expect("a child").expect("a change").stopping_signal().expect("stopped")
    }
}

fn command(options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(["run", "--timeout", "100"]).args(options).args(program);
    command
}

/// Prints the number of each signal that it gets, and exits with 0 at TERM.
const NAMES_SIGNALS: &str = r#"use POSIX; $| = 1;
    for my $n (1 .. 31, 34 .. 64) { next if $n == 9 || $n == 19;
        my $action = POSIX::SigAction->new(sub { 1 until syswrite STDOUT, "$n\n"; exit 0 if $n == 15 });
        $action->safe(1); POSIX::sigaction($n, $action) or die $n }
    print "ready\n"; sleep 1 while 1"#;

#[test]
fn every_signal_that_is_sent_reaches_the_program_once() {
    for place in PLACES {
        let mut run = Run::start(place, &["perl", "-e", NAMES_SIGNALS]);
        // The stop signals, CONT and TERM follow below.
        let others = (1..=31).chain(34..=64).filter(|n| ![9, 15, 17, 18, 19, 20, 21, 22, 28].contains(n));
        for number in others {
            run.kill(number);
            assert_eq!(run.line(), number.to_string(), "{place:?}");
        }
        run.kill(15);
        assert_eq!(run.line(), "15", "{place:?}");
        assert_eq!(run.end(), 0, "{place:?}");
    }
}

#[test]
fn value_of_a_queued_signal_is_forwarded() {
    let script = r#"use POSIX; $| = 1; my $all = POSIX::SigSet->new(40);
        POSIX::sigprocmask(SIG_BLOCK, $all); print "ready\n";
        my $info = pack("x128"); my $set = pack("Q", 1 << 39);
        syscall(128, $set, $info, 0, 8); print join(" ", unpack("l x4 l x12 q", $info)), "\n""#;
    if std::env::consts::ARCH != "x86_64" {
        eprintln!("SKIPPED: value_of_a_queued_signal_is_forwarded, because the script has the numbers of x86_64");
        return;
    }
    for place in PLACES {
        let mut run = Run::start(place, &["perl", "-e", script]);
        let value = libc::sigval { sival_ptr: 0x1234_5678_9abc as *mut _ };
        // SAFETY: the process has not been waited for; the value is a number.
        assert_eq!(unsafe { libc::sigqueue(run.pid(), 40, value) }, 0);
        assert_eq!(run.line(), format!("40 {} {}", libc::SI_QUEUE, 0x1234_5678_9abc_u64), "{place:?}");
        assert_eq!(run.end(), 0);
    }
}

#[test]
fn two_signals_at_once_both_reach_the_program() {
    // A signal that waits ends a write to a terminal with EINTR.
    let script = r#"$| = 1; $SIG{$_} = sub { 1 until syswrite STDOUT, "$_[0]\n"; exit 3 if ++$n == 2 } for qw(USR1 USR2); print "ready\n"; sleep 1 while 1"#;
    for place in PLACES {
        let mut run = Run::start(place, &["perl", "-e", script]);
        run.kill(libc::SIGUSR2);
        run.kill(libc::SIGUSR1);
        let mut names = [run.line(), run.line()];
        names.sort();
        assert_eq!(names, ["USR1", "USR2"], "{place:?}");
        assert_eq!(run.end(), 3);
    }
}

/// forkless with these signals ignored.
fn ignoring(program: &[&str]) -> Command {
    let script = r#"$SIG{$_} = "IGNORE" for qw(USR1 HUP CHLD); exec @ARGV"#;
    let mut perl = Command::new("perl");
    perl.args(["-e", script, BINARY, "run", "--timeout", "100"]).args(program);
    perl
}

#[test]
fn inherited_ignored_signals_stay_ignored() {
    let output = ignoring(&["grep", "SigIgn", "/proc/self/status"]).output().expect("perl");
    let text = String::from_utf8(output.stdout).expect("text");
    let set = u64::from_str_radix(text.rsplit('\t').next().expect("a set").trim(), 16).expect("a number");
    let is_ignored = |signal: i32| set >> (signal - 1) & 1 == 1;
    assert!([libc::SIGUSR1, libc::SIGHUP, libc::SIGCHLD].into_iter().all(is_ignored), "{text}");
    assert!(!is_ignored(libc::SIGUSR2), "{text}");
    let run = Run::with(&mut ignoring(&["sh", "-c", "echo ready; kill -STOP $$; exit 5"]));
    run.kill(libc::SIGUSR1);
    run.kill(libc::SIGHUP);
    // forkless, too, sees that its program stops.
    while !run.has_ended() {
        run.kill(libc::SIGCONT);
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(run.end(), 5);
}

#[test]
fn signal_from_before_the_launch_reaches_the_program() {
    // forkless starts with the signal pending, and passes on the mask, so that it is pending in the program, too.
    let mut command = command(&[], &["sh", "-c", "echo ready; grep ShdPnd /proc/$$/status"]);
    // SAFETY: these two are async-signal-safe, and the set is the closure's own.
    unsafe {
        command.pre_exec(|| {
            let mut set = MaybeUninit::uninit();
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGUSR1);
            libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            libc::kill(libc::getpid(), libc::SIGUSR1);
            Ok(())
        });
    }
    let output = command.output().expect("starts");
    let text = String::from_utf8(output.stdout).expect("text");
    // The signal may arrive after the program has looked, so only the mask is certain: it still runs.
    assert!(text.starts_with("ready\n") && output.status.success(), "{text} {:?}", output.status);
}

#[test]
fn signals_at_any_moment_end_forkless_and_its_program() {
    for round in 0..60 {
        for place in [&[][..], &["--process-group"]] {
            let mut command = command(place, &["sleep", "100"]);
            let mut forkless = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("starts");
            let start = Instant::now();
            while start.elapsed() < Duration::from_micros(200 * round) {
                thread::yield_now();
            }
            // SAFETY: the process has not been waited for.
            assert_eq!(unsafe { libc::kill(forkless.id() as i32, libc::SIGTERM) }, 0);
            let mut output = forkless.stdout.take().expect("a pipe");
            assert_eq!(forkless.wait().expect("wait").signal(), Some(libc::SIGTERM), "round {round}");
            assert_eq!(output.read(&mut [0]).expect("read"), 0);
        }
    }
}

#[test]
fn signals_while_the_program_ends_do_not_change_its_status() {
    for round in 0..60 {
        let run = Run::start(&[], &["sh", "-c", "trap '' USR1; echo ready; exit 7"]);
        for _ in 0..round % 7 {
            run.kill(libc::SIGUSR1);
        }
        let status = run.end();
        // Once forkless supervises nothing any more, a signal ends it as any program.
        assert!([7, 128 + libc::SIGUSR1].contains(&status), "{status}");
    }
}

#[test]
fn storm_of_sigcont_does_no_harm() {
    for place in PLACES {
        let mut run = Run::start(place, &["sh", "-c", "echo ready; sleep 0.5; echo done; exit 4"]);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(200) {
            run.kill(libc::SIGCONT);
        }
        assert_eq!(run.line(), "done", "{place:?}");
        assert_eq!(run.end(), 4);
    }
}

#[test]
fn sigstop_to_forkless_and_sigcont() {
    for place in PLACES {
        let run = Run::start(place, &["sh", "-c", "trap 'echo again' CONT; echo ready; while :; do sleep 0.01; done"]);
        run.kill(libc::SIGSTOP);
        assert_eq!(run.stops(), libc::SIGSTOP);
        run.kill(libc::SIGTERM);
        run.kill(libc::SIGCONT);
        let status = run.end();
        assert_eq!(status, 128 + libc::SIGTERM, "{place:?}");
    }
}

/// The group of forkless has no shell: the kernel discards the stop of forkless, which must not try again and again.
#[test]
fn stopped_program_of_an_orphaned_group() {
    for place in PLACES {
        let mut command =
            command(place, &["perl", "-e", "$| = 1; print \"ready\\n\"; kill STOP => $$; print \"on\\n\"; exit 6"]);
        // SAFETY: async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                Ok(())
            });
        }
        let mut run = Run::with(&mut command);
        let before = cpu(run.pid());
        thread::sleep(Duration::from_millis(300));
        assert!(cpu(run.pid()) - before < 20, "{place:?}: forkless is busy");
        run.kill(libc::SIGCONT);
        assert_eq!(run.line(), "on", "{place:?}");
        assert_eq!(run.end(), 6);
    }
}

/// The CPU time of a process in clock ticks.
fn cpu(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("alive");
    let fields: Vec<&str> = text.rsplit_once(") ").expect("fields").1.split(' ').collect();
    [11, 12].iter().map(|at| fields[*at].parse::<u64>().expect("a number")).sum()
}

#[test]
fn sigkill_of_forkless_kills_the_program() {
    for place in PLACES {
        let mut run = Run::start(place, &["sh", "-c", "trap '' HUP TERM; echo ready; exec sleep 100"]);
        run.forkless.kill().expect("alive");
        let start = Instant::now();
        assert_eq!(run.end(), 137, "{place:?}");
        assert!(start.elapsed() < LIMIT);
    }
    // A process that the program has left behind runs on.
    let run = Run::start(&[], &["sh", "-c", "sleep 0.5 & echo ready; exec sleep 100 >/dev/null"]);
    run.kill(libc::SIGKILL);
    assert_eq!(run.end(), 137);
}

#[test]
fn program_of_another_user_that_cannot_be_signalled() {
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "SKIPPED: program_of_another_user_that_cannot_be_signalled, because the tests run as an ordinary user"
        );
        return;
    }
    // Without CAP_KILL, root is a stranger to the program.
    let inner = ["--timeout=300ms", "--kill-after=100ms", "--reuid=65534", "sh", "-c", "echo ready; sleep 1; exit 3"];
    let mut command = Command::new(BINARY);
    command.args(["run", "--bounding-set=-kill", BINARY, "run"]).args(inner);
    let run = Run::with(command.stderr(Stdio::null()));
    run.kill(libc::SIGUSR1);
    let status = run.end();
    assert_eq!(status, 137, "the timeout was up, and KILL was sent in vain");
}

#[test]
fn background_start_without_a_terminal() {
    let script = r#""$0" run --timeout 100 --process-group --foreground sh -c 'exit 5' </dev/null 2>&1"#;
    let output = Command::new("setsid").args(["sh", "-c", script, BINARY]).output().expect("setsid");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains("take the foreground"), "{text}");
    let script = r#""$0" run --timeout 100 --process-group sh -c 'exit 5' </dev/null & wait $!"#;
    let output = Command::new("setsid").args(["sh", "-c", script, BINARY]).output().expect("setsid");
    assert_eq!(output.status.code(), Some(5));
}
