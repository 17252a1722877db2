//! Supervised programs as jobs of interactive shells: keys, `fg`, `bg`, the foreground of the terminal, and other
//! programs between the terminal and forkless.

testing::usual_surroundings!();

mod jobs;

use std::{
    fs,
    io::{BufRead, BufReader, Read, pipe},
};

use forkless::{Command, Pty, PtySize};
use jobs::{BINARY, CTRL_BACKSLASH, CTRL_C, CTRL_D, CTRL_Z, PROMPT, Session, has, shells};
use rustix::process::{Signal, kill_process, kill_process_group};

/// A supervised program in the group of forkless.
const PLAIN: &str = "$F run --timeout 100";
/// In a group of its own.
const GROUP: &str = "$F run --timeout 100 --process-group";
/// In a group of its own that has the terminal.
const FOREGROUND: &str = "$F run --timeout 100 --process-group --foreground";

/// Shows "is-up" when it runs, and "back" when it was continued. Not a script: Ctrl-Z does not stop dash in its vfork(2), and
/// Ctrl-C does not end bash between two children.
const ALIVE: &str =
    r#"perl -e '$| = 1; $SIG{CONT} = sub { print "ba" . "ck\n" }; print "is-u" . "p\n"; sleep 1 while 1'"#;
/// Shows "is-up", then what it reads.
const CAT: &str = "sh -c 'echo is-u''p; exec cat'";

/// Runs the test with each shell.
fn with_shells(test: &str, body: impl Fn(&mut Session, &str)) {
    for name in shells(test) {
        body(&mut Session::shell(name), name);
    }
}

// ---- keys ----

#[test]
fn ctrl_c_ends_the_program_and_the_loop_of_the_shell() {
    with_shells("ctrl_c_ends_the_program_and_the_loop_of_the_shell", |session, _| {
        for run in [PLAIN, GROUP, FOREGROUND] {
            session.line(&format!("for i in 1 2 3; do {run} sh -c \"echo is-u''p $i; exec cat\"; done"));
            session.expect("is-up 1");
            session.keys(CTRL_C);
            let text = session.prompt();
            assert!(!text.contains("is-up 2"), "{run}: {text}");
            assert_eq!(session.status(), 130, "{run}");
        }
    });
}

#[test]
fn ctrl_c_does_not_end_forkless_before_a_program_that_handles_it() {
    with_shells("ctrl_c_does_not_end_forkless_before_a_program_that_handles_it", |session, _| {
        for run in [PLAIN, GROUP, FOREGROUND] {
            let script =
                r#"$| = 1; $SIG{INT} = sub { print "cau" . "ght\n"; exit 3 }; print "is-u" . "p\n"; sleep 1 while 1"#;
            session.starts(&format!("{run} perl -e '{script}'"));
            session.keys(CTRL_C);
            session.expect("caught");
            let text = session.prompt();
            // The terminal signals the group, and forkless does not repeat it.
            assert!(!text.contains("caught"), "{text}");
            assert_eq!(session.status(), 3, "{run}");
        }
    });
}

#[test]
fn ctrl_backslash_ends_the_program_with_one_core_dump_at_most() {
    let directory = tempfile::tempdir().expect("a directory");
    with_shells("ctrl_backslash_ends_the_program_with_one_core_dump_at_most", |session, _| {
        session.run(&format!("cd {}; ulimit -c 100", directory.path().display()));
        for run in [PLAIN, GROUP, FOREGROUND] {
            // The program does not dump core. forkless, which may, must not either.
            session.line(&format!("{run} sh -c 'ulimit -c 0; echo is-u''p; exec cat'"));
            session.expect("is-up");
            session.keys(CTRL_BACKSLASH);
            let text = session.prompt();
            assert!(!text.contains("core dumped"), "{text}");
            assert_eq!(session.status(), 131, "{run}");
        }
    });
    assert_eq!(fs::read_dir(directory.path()).expect("list").count(), 0, "a core dump");
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    with_shells("ctrl_z_stops_the_job_and_fg_continues_it", |session, _| {
        for run in [PLAIN, GROUP, FOREGROUND] {
            session.starts(&format!("{run} {CAT}"));
            for _ in 0..3 {
                session.echoes("again");
                session.stop();
                session.continues("cat");
            }
            session.echoes("again");
            session.press(CTRL_C);
            assert_eq!(session.status(), 130, "{run}");
        }
    });
}

/// The jobs are in process groups of their own, which Ctrl-Z does not reach.
#[test]
fn ctrl_z_stops_the_jobs_of_the_runner() {
    with_shells("ctrl_z_stops_the_jobs_of_the_runner", |session, _| {
        let directory = tempfile::tempdir().expect("a directory");
        let beat = directory.path().join("beat");
        // Alive as long as its file grows.
        let script = directory.path().join("script");
        fs::write(&script, format!("echo is-up\nwhile :; do echo x >>{}; sleep 0.02; done", beat.display()))
            .expect("a script");
        let size = || fs::metadata(&beat).map_or(0, |file| file.len());
        let grows = || {
            let before = size();
            (0..500).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                size() > before
            })
        };
        session.starts(&format!("$F parallel -u sh ::: {}", script.display()));
        for _ in 0..2 {
            assert!(grows());
            session.stop();
            let stopped = size();
            std::thread::sleep(std::time::Duration::from_millis(300));
            assert_eq!(size(), stopped, "the job runs on");
            session.continues("parallel");
        }
        assert!(grows());
        session.press(CTRL_C);
    });
}

/// On a terminal, output does not stand behind the line about the progress.
#[test]
fn progress_leaves_the_line_to_the_output() {
    with_shells("progress_leaves_the_line_to_the_output", |session, _| {
        for option in ["--bar", "--eta", "--progress"] {
            session.line(&format!("$F parallel -j1 {option} 'sleep 0.3; echo output-{{}}' ::: 1 2 3"));
            session.expect("output-1");
            let text = session.prompt();
            for line in text.split("\n").filter(|line| line.contains("output-")) {
                let shown = line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default();
                assert!(shown.starts_with("output-"), "{option}: {line:?}");
            }
            assert!(text.contains("output-3"), "{option}: {text:?}");
        }
    });
}

#[test]
fn values_from_the_terminal_are_announced() {
    with_shells("values_from_the_terminal_are_announced", |session, _| {
        session.line("$F parallel -k echo got-");
        session.expect("reads values from the terminal");
        session.input("one");
        session.keys(CTRL_D);
        session.expect("got- one");
        session.prompt();
    });
}

#[test]
fn bg_continues_the_program_without_the_terminal() {
    with_shells("bg_continues_the_program_without_the_terminal", |session, _| {
        for run in [PLAIN, GROUP, FOREGROUND] {
            let script =
                "echo is-u''p; read a; echo re''ad $a; trap \"echo go''ne; exit\" USR1; while :; do sleep 0.01; done";
            session.starts(&format!("{run} bash -c '{script}'"));
            session.has_foreground(if run == PLAIN { "forkless" } else { "bash" });
            session.stop();
            // It reads from the terminal, so it stops again. The shell has the terminal all the time.
            session.run("bg");
            session.child_stops();
            session.continues("sh -c");
            session.input("word");
            session.expect("read word");
            session.stop();
            session.run("bg");
            session.run("echo the shell has the terminal");
            session.run("kill -USR1 %1");
            session.run("wait");
            assert!(session.run("jobs").lines().count() <= 2);
        }
    });
}

#[test]
fn a_job_that_is_stopped_as_soon_as_it_is_continued_stays_stopped() {
    with_shells("a_job_that_is_stopped_as_soon_as_it_is_continued_stays_stopped", |session, _| {
        for run in [PLAIN, GROUP, FOREGROUND] {
            session.run(&format!("{run} cat &"));
            session.child_stops();
            let job = session.first_child();
            // The second discards the first, which forkless then never sees.
            for signal in [Signal::CONT, Signal::TSTP] {
                kill_process_group(job, signal).expect("alive");
            }
            session.child_stops();
            session.continues("cat");
            session.echoes("here");
            session.press(CTRL_D);
            assert_eq!(session.status(), 0, "{run}");
        }
    });
}

#[test]
fn job_started_in_the_background_does_not_take_the_terminal() {
    with_shells("job_started_in_the_background_does_not_take_the_terminal", |session, _| {
        for run in [PLAIN, GROUP, FOREGROUND] {
            session.run(&format!("{run} cat &"));
            session.child_stops();
            session.continues("cat");
            session.echoes("here");
            session.press(CTRL_D);
            assert_eq!(session.status(), 0, "{run}");
        }
    });
}

#[test]
fn a_stopped_job_times_out() {
    with_shells("a_stopped_job_times_out", |session, _| {
        for options in ["", "--process-group", "--process-group --foreground"] {
            // The job must stop before its time is up, which may take long on a busy machine.
            let stopped = (1..=6).map(|shift| 1 << shift).find(|seconds| {
                session.line(&format!("$F run --timeout {seconds}s {options} sh -c 'echo is-u''p; exec cat'"));
                if session.expect_first(&["is-up", PROMPT]) == PROMPT {
                    return false;
                }
                session.keys(CTRL_Z);
                session.prompt().contains("Stopped")
            });
            assert!(stopped.is_some(), "{options}");
            session.children_end();
            session.run("echo the shell has the terminal");
        }
    });
}

/// The program, too, stops when it reads the terminal, which forkless then lends it. The SIGCONT that continues it discards
/// a Ctrl-Z that waits.
#[test]
fn ctrl_z_is_not_lost_when_the_program_gets_the_terminal() {
    // The signal that is sent again may come when the word has been read.
    let script = r#"use POSIX; $| = 1; $z = POSIX::SigSet->new(SIGTSTP); sigprocmask(SIG_BLOCK, $z); print "is-u" . "p\n";
        sub await { do { sigpending($now = POSIX::SigSet->new) } until $now->ismember(SIGTSTP) } await(); print "wai" . "ts\n";
        $word = <STDIN>; print "re" . "ad $word"; await(); sigprocmask(SIG_UNBLOCK, $z); print "continu" . "ed\n""#;
    let script = script.replace('\n', " ");
    with_shells("ctrl_z_is_not_lost_when_the_program_gets_the_terminal", |session, _| {
        session.starts(&format!("{GROUP} perl -e '{script}'"));
        session.keys(CTRL_Z);
        session.expect("waits");
        session.input("word");
        session.expect("read word");
        session.expect("Stopped");
        session.prompt();
        session.continues("continued");
        session.prompt();
        assert_eq!(session.status(), 0);
    });
}

#[test]
fn stop_of_the_program_alone_stops_the_job() {
    with_shells("stop_of_the_program_alone_stops_the_job", |session, _| {
        for run in [PLAIN, GROUP, FOREGROUND] {
            session.line(&format!("{run} sh -c 'echo is-u''p; kill -STOP $$; echo continu''ed; exec cat'"));
            session.expect("is-up");
            session.expect("Stopped");
            session.prompt();
            session.continues("continued");
            session.echoes("word");
            session.press(CTRL_C);
        }
    });
}

#[test]
fn ctrl_z_in_a_pipeline_stops_all_of_it() {
    with_shells("ctrl_z_in_a_pipeline_stops_all_of_it", |session, _| {
        for run in [PLAIN, GROUP, FOREGROUND] {
            session.starts(&format!("{run} {CAT} | cat"));
            session.echoes("one");
            session.stop();
            session.continues("| cat");
            session.echoes("two");
            session.press(CTRL_C);
        }
    });
}

#[test]
fn pty_is_stopped_by_a_signal_and_leaves_the_terminal_as_it_was() {
    with_shells("pty_is_stopped_by_a_signal_and_leaves_the_terminal_as_it_was", |session, _| {
        session.line("$F run --timeout 100 --pty sh -c 'echo is-u''p; read word; stty size'");
        session.expect("is-up");
        for signal in [Signal::TSTP, Signal::STOP] {
            kill_process(session.first_child(), signal).expect("a job");
            session.expect("Stopped");
            session.prompt();
            // Typed lines are shown again: the mode is not the raw one.
            session.run("echo between");
            session.pty.resize(PtySize::new(12, 34)).expect("resize");
            session.continues("stty size");
            session.children_run();
        }
        session.keys("\r");
        session.expect("12 34");
        session.prompt();
        assert_eq!(session.status(), 0);
    });
}

// ---- the terminal is given back ----

#[test]
fn script_reads_on_after_the_foreground_was_lent() {
    let directory = tempfile::tempdir().expect("a directory");
    let ways = [
        ("--process-group --foreground true", 0),
        ("--process-group --foreground sh -c 'exit 3'", 3),
        ("--process-group --foreground sh -c 'kill -TERM $$'", 143),
        ("--process-group --foreground sh -c 'kill -KILL $$'", 137),
        ("--process-group --foreground --timeout 100ms sleep 100", 124),
        ("--process-group --foreground --timeout 100ms --signal KILL sleep 100", 137),
        ("--process-group --foreground /no/such/program", 127),
        ("--process-group --foreground /", 126),
        ("--process-group --foreground --fd 9=/no/such/directory/file true", 125),
        ("--process-group --foreground --usage --capture --stdout=null true", 0),
        ("--process-group --timeout 100 sh -c 'read word </dev/tty; exit 4'", 4),
    ];
    with_shells("script_reads_on_after_the_foreground_was_lent", |session, name| {
        for (words, status) in ways {
            let script = directory.path().join("script");
            let text = format!("echo sta''rt\n$F run {words}\necho st=$?\nread word\necho got $word\n");
            fs::write(&script, text).expect("a script");
            session.line(&format!("{name} {}", script.display()));
            session.expect("start");
            if status == 4 {
                session.input("for the program");
            }
            session.expect(&format!("st={status}"));
            session.input("word");
            session.expect("got word");
            session.prompt();
        }
    });
}

#[test]
fn own_group_in_a_script_uses_the_terminal() {
    let directory = tempfile::tempdir().expect("a directory");
    with_shells("own_group_in_a_script_uses_the_terminal", |session, name| {
        let script = directory.path().join("script");
        fs::write(
            &script,
            "echo sta''rt; $F run --timeout 100 --process-group cat\necho st=$?\nread word\necho got $word\n",
        )
        .expect("a script");
        let script = format!("{name} {}", script.display());
        session.line(&script);
        session.expect("start");
        session.echoes("one");
        // Ctrl-Z stops the script too, as without forkless.
        session.stop();
        session.continues("script");
        session.echoes("two");
        session.keys(CTRL_D);
        session.expect("st=0");
        session.line("word");
        session.expect("got word");
        session.prompt();
        // As every program in a group of its own, it gets Ctrl-C alone.
        session.line(&script);
        session.expect("start");
        session.echoes("one");
        session.keys(CTRL_C);
        session.expect("st=130");
        session.input("word");
        session.expect("got word");
        session.prompt();
    });
}

// ---- the size ----

#[test]
fn change_of_the_size_reaches_the_program_once() {
    with_shells("change_of_the_size_reaches_the_program_once", |session, _| {
        for (index, run) in [PLAIN, GROUP, FOREGROUND].into_iter().enumerate() {
            let script = r#"$| = 1; $SIG{WINCH} = sub { system "stty size </dev/tty"; print "fi" . "n\n" }; print "is-u" . "p\n"; sleep 1 while 1"#;
            session.starts(&format!("{run} perl -e '{script}'"));
            let rows = 30 + index as u16;
            session.pty.resize(PtySize::new(rows, 90)).expect("resize");
            session.expect(&format!("{rows} 90"));
            session.expect("fin");
            session.keys(CTRL_C);
            let text = session.prompt();
            assert!(!text.contains(" 90"), "{run}: {text}");
        }
    });
}

// ---- pipes ----

#[test]
fn closed_and_full_pipes() {
    with_shells("closed_and_full_pipes", |session, _| {
        for run in [PLAIN, GROUP, FOREGROUND] {
            assert!(session.run(&format!("{run} yes | head -1")).contains("\r\ny\r\n"));
            session.line(&format!("{run} sh -c 'exec yes 2>&-' 2>&1 >&2 | (head -c 1 >/dev/null; exit 9)"));
            session.prompt();
            assert_eq!(session.status(), 9);
        }
        for run in [PLAIN, GROUP] {
            // Nobody reads: the program waits, and can be stopped and ended. Before it runs, bash's child ignores Ctrl-Z.
            session.line(&format!("{run} sh -c 'echo is-u''p >&2; exec yes' | {ALIVE}"));
            session.expect("is-up");
            session.expect("is-up");
            session.stop();
            session.continues("back");
            session.press(CTRL_C);
            session.run(&format!("{run} cat <&-"));
            session.run(&format!("{run} cat </dev/null"));
            assert_eq!(session.status(), 0);
        }
    });
}

#[test]
fn death_by_sigpipe_is_seen_in_a_pipeline() {
    if !has("death_by_sigpipe_is_seen_in_a_pipeline", "bash") || shells("pty").is_empty() {
        return;
    }
    let mut session = Session::shell("bash");
    session.run("$F run --timeout 100 yes | head -1; echo ${PIPESTATUS[*]} | sed 's/^/statuses /'");
    assert!(session.transcript().contains("statuses 141 0"), "{}", session.transcript());
}

// ---- forkless in forkless, and under other programs ----

#[test]
fn nested_runs_stop_and_continue_together() {
    with_shells("nested_runs_stop_and_continue_together", |session, _| {
        let pairs =
            [[PLAIN, PLAIN], [PLAIN, FOREGROUND], [FOREGROUND, PLAIN], [FOREGROUND, FOREGROUND], [GROUP, GROUP]];
        for [outer, inner] in pairs {
            session.starts(&format!("{outer} {inner} {CAT}"));
            session.echoes("one");
            session.stop();
            session.continues("cat");
            session.echoes("two");
            session.press(CTRL_C);
            assert_eq!(session.status(), 130, "{outer} {inner}");
        }
    });
}

#[test]
fn interactive_shell_as_the_program() {
    with_shells("interactive_shell_as_the_program", |session, name| {
        for run in [PLAIN, GROUP, FOREGROUND, "$F run --timeout 100 --pty"] {
            let shell = if name == "bash" { "bash --norc --noprofile -i" } else { "dash -i" };
            session.run(&format!("{run} {shell}"));
            session.starts(ALIVE);
            session.stop();
            session.continues("back");
            session.press(CTRL_C);
            session.run("exit 6");
            assert_eq!(session.status(), 6, "{run}");
        }
    });
}

#[test]
fn under_script() {
    if !has("under_script", "script") {
        return;
    }
    with_shells("under_script", |session, name| {
        let shell = if name == "bash" { "bash --norc --noprofile -i" } else { "dash -i" };
        // The prompt again: the shell that script starts for the command forgets it.
        session.run(&format!("script -q -c \"env PS1='ready''$ ' {shell}\" /dev/null"));
        for run in [PLAIN, GROUP, FOREGROUND] {
            keys_work(session, run);
        }
        session.run("exit");
    });
}

/// A program that a user stops, continues and ends.
fn keys_work(session: &mut Session, run: &str) {
    session.starts(&format!("{run} {ALIVE}"));
    session.stop();
    session.continues("back");
    session.press(CTRL_C);
    assert_eq!(session.status(), 130, "{run}");
}

/// As sshd starts a command (`ssh -t`): a session and a terminal, but no shell that would continue a stopped job.
#[test]
fn as_the_leader_of_a_session_nothing_stays_stopped() {
    if shells("as_the_leader_of_a_session_nothing_stays_stopped").is_empty() {
        return;
    }
    for options in [&[][..], &["--process-group"], &["--process-group", "--foreground"]] {
        let words = [&[BINARY, "run", "--timeout", "100"], options, &["cat"]].concat();
        let mut session = Session::start(&words);
        session.line("one");
        session.expect("one\r\none");
        for _ in 0..3 {
            session.keys(CTRL_Z);
            session.line("two");
            session.expect("two\r\ntwo");
        }
        session.keys(CTRL_C);
        assert_eq!(jobs::shown(session.end()), 130, "{options:?}");
    }
}

#[test]
fn hangup_of_the_terminal_ends_the_program() {
    if shells("hangup_of_the_terminal_ends_the_program").is_empty() {
        return;
    }
    for options in [&[][..], &["--process-group"], &["--process-group", "--foreground"], &["--pty"]] {
        let (read, write) = pipe().expect("a pipe");
        let pty = Pty::open(PtySize::default()).expect("a terminal");
        let mut command = Command::new(BINARY);
        command.args(["run", "--timeout", "100", "--fd", "3=3"]).args(options);
        command.args(["sh", "-c", "echo on >&3; exec sleep 100"]).pty(&pty).fd(write, 3);
        // Under nohup(1) it is ignored here.
        command.signal_default(libc::SIGHUP);
        let mut child = command.spawn().expect("starts");
        drop(command);
        let mut reader = BufReader::new(read);
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        assert_eq!(line, "on\n");
        drop(pty);
        child.wait_timeout(jobs::LIMIT).expect("wait").expect("an end");
        // The end of the pipe: the program has ended, too.
        assert_eq!(reader.read(&mut [0]).expect("read"), 0);
    }
}

#[test]
fn ctrl_c_ends_a_parallel_make() {
    if !has("ctrl_c_ends_a_parallel_make", "make") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    for run in [PLAIN, GROUP] {
        let run = run.replace("$F", "$$F");
        let text = format!(
            "all: a b c d\na b c d:\n\t@{run} sh -c 'echo $@ is on; exec sleep 100'\nquick: q1 q2 q3\nq1 q2 q3:\n\t@{run} true\n"
        );
        fs::write(directory.path().join("Makefile"), text).expect("a makefile");
        with_shells("ctrl_c_ends_a_parallel_make", |session, _| {
            session.run(&format!("cd {}", directory.path().display()));
            session.line("make -j4 all");
            for _ in 0..4 {
                session.expect("is on");
            }
            session.press(CTRL_C);
            session.children_end();
            assert_ne!(session.status(), 0);
            session.run("make -j4 quick");
            assert_eq!(session.status(), 0);
        });
    }
}
