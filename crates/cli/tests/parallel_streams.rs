//! `forkless parallel --pipe` with streams, FIFOs and files, numbers of jobs that change, and signals.

testing::usual_surroundings!();

mod marks;

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

use rustix::process::Signal;

/// Runs a line of sh in a directory; `$P` is `forkless parallel`. Ends it after a minute.
fn run(line: &str, place: &Path) -> Output {
    let mut shell = Command::new("timeout");
    shell.args(["-s", "KILL", "60", "/bin/sh", "-c", line]).current_dir(place).stdin(Stdio::null());
    shell
        .env("P", format!("{} parallel", testing::surroundings::word(env!("CARGO_BIN_EXE_forkless"))))
        .env("PARALLEL_SHELL", "/bin/sh");
    shell.env("TMPDIR", place).env_remove("PARALLEL").output().expect("a shell")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of a line that must succeed.
fn output(line: &str) -> String {
    let place = tempfile::tempdir().expect("a directory");
    let output = run(line, place.path());
    assert!(output.status.success(), "{line}: {output:?}");
    text(&output.stdout)
}

#[test]
fn every_record_goes_to_one_job_of_the_round() {
    let line = "seq 100000 | $P --round-robin -j4 --block 1k cat | sort -n | cksum; seq 100000 | cksum";
    let found = output(line);
    let sums: Vec<&str> = found.lines().collect();
    assert_eq!(sums[0], sums[1]);
}

/// The second job waits for the end of the first one's input, so blocks must go past it.
#[test]
fn a_slow_job_does_not_hold_up_the_round() {
    let line = "seq 200000 | $P --round-robin -j2 --block 10k 'if test {#} = 2; then until test -e done; do sleep 0.01; done; \
                wc -l; else head -n 50000 | wc -l; touch done; cat | wc -l; fi' | awk '{ sum += $1 } END { print sum }'";
    // `head` may take more than it prints.
    let found: u64 = output(line).trim().parse().expect("a number");
    assert!((180_000..=200_000).contains(&found), "{found}");
}

/// The first job takes nothing until the second one has ended. Without strict turns, the second one would get all blocks.
#[test]
fn blocks_of_an_ordered_round_go_to_the_jobs_in_turn() {
    let line = "seq 40 | $P --round-robin -k -j2 -N1 'if test {#} = 1; then until test -e go; do sleep 0.01; done; fi; \
                if test {#} = 2; then touch go; fi; tr \"\\n\" \" \"; echo'";
    let odd: String = (1..=40).step_by(2).map(|number| format!("{number} ")).collect();
    let even: String = (2..=40).step_by(2).map(|number| format!("{number} ")).collect();
    assert_eq!(output(line), format!("{odd}\n{even}\n"));
    // Blocks larger than a pipe. The first job takes nothing until the second one has had its first block.
    let line = "seq 1 60000 | $P --round-robin -k -j2 --block 70000 'if test {#} = 1; then until test -e go; do sleep 0.01; done; \
                wc -l; else head -c 60000 > /dev/null; touch go; cat > /dev/null; fi'";
    // The first, third and fifth block.
    assert_eq!(output(line), "36668\n");
}

#[test]
fn blocks_that_nobody_takes_make_the_run_fail() {
    let place = tempfile::tempdir().expect("a directory");
    let output = run("seq 1000000 | $P --summary --round-robin -j2 --block 10k true", place.path());
    assert_eq!(output.status.code(), Some(255), "{output:?}");
    assert!(text(&output.stderr).contains("unread input"), "{output:?}");
}

#[test]
fn the_jobs_of_a_round_get_blocks_as_they_come() {
    let line = "mkfifo in; { echo 1; until test -e got-1; do sleep 0.01; done; echo 2; until test -e got-2; do sleep 0.01; done; } \
                > in & $P --round-robin -j1 -N1 'while read x; do touch got-$x; done' < in; ls got-1 got-2";
    assert_eq!(output(line), "got-1\ngot-2\n");
}

#[test]
fn a_round_ends_at_a_hangup_and_reports_the_rest() {
    let place = tempfile::tempdir().expect("a directory");
    let line = "yes | $P --summary --round-robin -j2 --block 10k 'head -n 1; kill -HUP $PARALLEL_PID; cat > /dev/null; echo end'";
    let output = run(line, place.path());
    assert_eq!(output.status.code(), Some(255), "{output:?}");
    assert_eq!(text(&output.stdout).matches("end").count(), 2, "{output:?}");
}

#[test]
fn a_run_that_stops_before_endless_input_ends() {
    let place = tempfile::tempdir().expect("a directory");
    let output = run("$P --summary -0 -a /dev/zero --halt now,fail=1 -j1 'false #'", place.path());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("unread input"), "{output:?}");
}

/// The kernel takes 2 MiB of arguments and environment together. The environment leaves less than one argument may have.
#[test]
fn lines_are_packed_to_what_the_environment_leaves() {
    let line = "ulimit -s 8192; big=$(head -c 125000 /dev/zero | tr '\\0' x); for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do \
                export V$n=$big; done; seq 60000 | $P -X 'echo {} | wc -w' | awk '{ sum += $1 } END { print sum }'";
    assert_eq!(output(line), "60000\n");
    // More records than there are numbers.
    assert_eq!(output("seq 3 | $P --pipe -N 18446744073709551615 -L 18446744073709551615 wc -l"), "3\n");
}

/// The second job starts when the first one has ended.
#[test]
fn a_job_that_starts_late_gets_all_input_too() {
    assert_eq!(output("seq 100000 | $P --tee -j1 -k 'cksum; :' ::: a b c | uniq | wc -l").trim(), "1");
    assert_eq!(output("seq 100000 | $P --tee -j1 -k 'wc -l' ::: a b c"), "100000\n".repeat(3));
    assert_eq!(output("seq 3000000 | $P --tee -k 'wc -l' ::: a b"), "3000000\n".repeat(2));
}

#[test]
fn a_job_that_closes_its_input_holds_up_no_other() {
    assert_eq!(
        output("seq 1000000 | $P --tee -k 'if test {} = a; then head -n 1; else wc -l; fi' ::: a b"),
        "1\n1000000\n"
    );
    // Nobody takes the rest of this.
    assert_eq!(output("yes | $P --tee -k 'head -n 1' ::: a b"), "y\ny\n");
}

#[test]
fn input_goes_to_all_jobs_as_it_comes() {
    let line = "mkfifo in; { echo 1; until test -e got-a-1 && test -e got-b-1; do sleep 0.01; done; echo 2; } > in & \
                $P --tee 'while read x; do touch got-{}-$x; done' ::: a b < in; ls got-*";
    assert_eq!(output(line), "got-a-1\ngot-a-2\ngot-b-1\ngot-b-2\n");
}

/// A directory cannot be read. A job that saw that as the end of its input would succeed.
#[test]
fn a_job_whose_input_cannot_be_read_sees_no_end() {
    let place = tempfile::tempdir().expect("a directory");
    let output = run("$P --tee 'cat > /dev/null; touch done-{}' ::: a b < .", place.path());
    assert_eq!(output.status.code(), Some(255), "{output:?}");
    assert!(!place.path().join("done-a").exists() && !place.path().join("done-b").exists(), "{output:?}");
}

/// The job does not open its FIFO, or only a part of it, or opens it late, or fails at first.
#[test]
fn fifos_hold_up_no_job() {
    let place = tempfile::tempdir().expect("a directory");
    for (command, expected) in [
        ("echo {#}", "1\n2\n"),
        ("head -n 1 {}", "1\n50001\n"),
        ("until test -e late-{#}; do touch late-{#}; sleep 0.05; done; wc -l < {}", "50000\n50000\n"),
    ] {
        let output = run(&format!("seq 100000 | $P --fifo -N50000 -k --block 10M '{command}'"), place.path());
        assert_eq!(text(&output.stdout), expected, "{command}: {output:?}");
        assert!(output.status.success(), "{command}: {output:?}");
    }
    let line =
        "seq 4 | $P --fifo -N2 -k --retries 2 'if ! test -e tried-{#}; then touch tried-{#}; exit 1; fi; cat {}'";
    let output = run(line, place.path());
    assert_eq!(text(&output.stdout), "1\n2\n3\n4\n", "{output:?}");
    let left: Vec<_> =
        fs::read_dir(place.path()).expect("a directory").flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("forkless-")), "{left:?}");
}

/// The last job counts the files.
#[test]
fn the_files_of_jobs_that_are_done_do_not_stay() {
    let place = tempfile::tempdir().expect("a directory");
    let count = "$P -j1 --cat -N1 --joblog log --resume 'ls $(dirname {}) | wc -l'";
    let output = run(&format!("seq 20 | {count} > all; seq 21 | {count}"), place.path());
    assert_eq!(text(&output.stdout), "1\n", "{output:?}");
}

#[test]
fn no_file_of_a_block_stays_behind_a_stopped_run() {
    let place = tempfile::tempdir().expect("a directory");
    for option in ["--cat", "--fifo"] {
        let output = run(&format!("seq 100 | $P -j2 {option} -N1 'kill -INT $PARALLEL_PID; cat {{}}'"), place.path());
        assert_eq!(output.status.code(), Some(255), "{option}: {output:?}");
        let left: Vec<_> = fs::read_dir(place.path()).expect("a directory").flatten().collect();
        assert!(left.is_empty(), "{option}: {left:?}");
    }
}

/// The first job waits for the second one, which the new number in the file makes room for, once a short job has ended.
#[test]
fn the_file_with_the_number_of_jobs_is_read_when_a_job_ends() {
    let line = "echo 1 > jobs; $P -k -j jobs 'case {} in 1) echo 2 > jobs;; 2) n=0; until test -e three || test $n = 2000; do \
                n=$((n + 1)); sleep 0.01; done; test -e three || echo late;; 3) touch three;; esac; echo {}' ::: 1 2 3";
    assert_eq!(output(line), "1\n2\n3\n");
    // What is no number changes nothing.
    assert_eq!(output("echo 1 > jobs; $P -k -j jobs 'echo many > jobs; echo {}' ::: 1 2 3"), "1\n2\n3\n");
    assert_eq!(output("echo 2 > jobs; $P -k -j jobs 'rm -f jobs; echo {}' ::: 1 2 3"), "1\n2\n3\n");
}

#[test]
fn sigusr1_lists_the_jobs_that_run() {
    let place = tempfile::tempdir().expect("a directory");
    let line = "$P -j2 'touch run-{}; if test {} = b; then until test -e run-a; do sleep 0.01; done; kill -USR1 $PARALLEL_PID; fi; \
                until grep -q run-a list; do sleep 0.01; done' ::: a b c 2> list; cat list";
    let output = run(line, place.path());
    let found = text(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(found.lines().count(), 2, "{found}");
    assert!(found.contains("parallel: touch run-a") && found.contains("parallel: touch run-b"), "{found}");
}

#[test]
fn sigusr2_shows_progress_until_the_next_one() {
    let place = tempfile::tempdir().expect("a directory");
    let line = "$P -j1 'kill -USR2 $PARALLEL_PID; until grep -q \"1 running\" list; do sleep 0.01; done; echo {}' ::: a 2> list";
    let output = run(line, place.path());
    assert_eq!(text(&output.stdout), "a\n", "{output:?}");
}

/// One SIGTERM lets the jobs end; the second one ends them.
#[test]
fn the_second_sigterm_ends_the_jobs() {
    let place = tempfile::tempdir().expect("a directory");
    let line = "$P -j1 'kill -TERM $PARALLEL_PID; until grep -q \"no more jobs\" said; do sleep 0.01; done; echo {}' ::: a b 2> said";
    let output = run(line, place.path());
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("a\n", Some(255)), "{output:?}");
    let line = "$P -j1 'kill -TERM $PARALLEL_PID; until grep -q \"no more jobs\" said; do sleep 0.01; done; \
                kill -TERM $PARALLEL_PID; sleep 30; echo {}' ::: a b 2> said";
    let _ = fs::remove_file(place.path().join("said"));
    let output = run(line, place.path());
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("", Some(255)), "{output:?}");
}

/// Two signals end a run whose standard error is a full pipe.
#[test]
fn a_stop_does_not_wait_for_a_reader_of_standard_error() {
    let place = marks::Place::new();
    let (_reader, writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("non-blocking");
    while (&writer).write(&[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("blocking");
    let mut command = place.forkless(&["parallel", "-j1", "touch started; exec sleep 1000", ":::", "1"]);
    let mut child = command.stdout(Stdio::null()).stderr(writer).spawn().expect("forkless starts");
    marks::wait_for("the job", || place.path("started").exists());
    marks::send(&child, Signal::TERM);
    marks::send(&child, Signal::INT);
    let mut status = None;
    let ends = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        marks::wait_for("the end of the run", || {
            status = child.try_wait().expect("a wait");
            status.is_some()
        });
    }));
    if ends.is_err() {
        let _ = child.kill();
    }
    place.kill_all();
    // The job that was ended has failed.
    assert_eq!(status.and_then(|status| status.code()), Some(1));
}

/// A job that reads gets nothing, with or without capture, and takes nothing from the later jobs.
#[test]
fn jobs_do_not_read_the_input_of_the_runner() {
    for options in ["-j1 -k", "-j1 -u", "-j1 --lb", "-j1 -k --timeout 100"] {
        let line = format!("{{ echo a; sleep 0.2; echo b; echo c; }} | $P {options} 'echo {{}}; wc -c'");
        assert_eq!(output(&line), "a\n0\nb\n0\nc\n0\n", "{options}");
    }
    assert_eq!(output("echo x | $P -k 'cat; echo {}' ::: a b"), "a\nb\n");
    assert_eq!(output("$P -k 'cat; echo {}' ::: a b <&-"), "a\nb\n");
}

/// A quote that is not closed must not make a value of the rest of the input.
#[test]
fn a_quote_that_is_not_closed_is_an_error() {
    let place = tempfile::tempdir().expect("a directory");
    let output = run("printf 'a,b\nc,\"d\ne,f\n' | $P --csv -k echo {2}", place.path());
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("b\n", Some(255)), "{output:?}");
    assert!(text(&output.stderr).contains("a quote is not closed"), "{output:?}");
}

#[test]
fn a_record_in_quotes_arrives_in_pieces() {
    let line = "{ printf '\"a\n'; sleep 0.1; printf 'b\"\",\nc\",d\ne,f\n'; } | $P --csv -k --dry-run echo {2} {1}";
    assert_eq!(output(line), "echo d 'a\nb\",\nc'\necho f e\n");
}
