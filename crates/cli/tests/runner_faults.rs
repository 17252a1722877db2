//! `forkless parallel` and `xargs` where the kernel refuses what they need, where disks are full, and with jobs that misbehave.

testing::usual_surroundings!();

mod jobs;
mod marks;

use std::{
    fs,
    io::{Read, Write},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Stdio},
};

use jobs::{CTRL_C, Session, shells};
use marks::{Place, apart, peak, scaled, send, send_all, wait_for, with_small_disk};
use rustix::{process::Signal, termios::tcgetattr};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

// ---- the kernel's resources ----

fn can_trace(test: &str) -> bool {
    let works = Command::new("strace").args(["-o", "/dev/null", "true"]).status().is_ok_and(|status| status.success());
    if !works {
        println!("SKIPPED: {test}: strace cannot be used here");
    }
    works
}

/// Every third launch, or pipe, is refused.
#[test]
fn what_the_kernel_refuses_for_a_moment_is_tried_again() {
    const JOBS: usize = 40;
    if !can_trace("what_the_kernel_refuses_for_a_moment_is_tried_again") {
        return;
    }
    const LAUNCHES: &str = "clone,clone3,vfork,fork";
    let runs = [
        (LAUNCHES, "EAGAIN", "xargs -n1 -P4 ./mark"),
        (LAUNCHES, "ENOMEM", "xargs -n1 -P4 ./mark"),
        (LAUNCHES, "EAGAIN", "parallel --joblog log --summary -j4 -k ./mark {}"),
        (LAUNCHES, "ENOMEM", "parallel --joblog log --summary -j4 -u ./mark {}"),
        ("pipe2", "EMFILE", "parallel --joblog log --summary -j4 -k ./mark {}"),
        ("pipe2", "ENFILE", "parallel --joblog log --summary -j4 --line-buffer ./mark {}"),
    ];
    for (calls, errno, words) in runs {
        let place = Place::new();
        // Not the first ones, which are of threads and of the trial launch of forkless itself.
        let inject = format!("strace -o /dev/null -e trace={calls} -e inject={calls}:error={errno}:when=6+3");
        let mut command = place.script(&format!("exec {inject} \"$F\" {words}"));
        let output = command.stdin(place.numbers(JOBS)).output().expect("strace");
        let what = format!("{errno}: {words}: {output:?}");
        assert!(output.status.success(), "{what}");
        place.all_ran_once(JOBS, &what);
        if words.contains("--joblog") {
            assert_eq!(place.logged(), (1..=JOBS).collect(), "{what}");
            assert!(text(&output.stderr).contains("ran 40, failed 0, skipped 0 of 40"), "{what}");
        }
    }
}

/// Jobs need the descriptors that the FIFOs are opened with. Several runs at once, so that children are late in taking theirs.
#[test]
fn a_fifo_that_cannot_be_opened_for_lack_of_descriptors_is_opened_later() {
    let place = Place::new();
    let job = "cat {} > /dev/null; sleep 0.1";
    let output = place.run(&format!(
        "ulimit -n 16; for run in 1 2 3 4 5 6; do \
         seq 60 | timeout -s KILL 60 \"$F\" parallel --pipe -N1 --fifo -j50 --summary '{job}' & done; wait"
    ));
    assert_eq!(text(&output.stderr).matches("ran 60, failed 0, skipped 0 of 60").count(), 6, "{output:?}");
}

/// The jobs that run do not wait for one that cannot be launched before they end.
#[test]
fn a_round_of_fewer_jobs_for_lack_of_descriptors_gets_all_input() {
    let place = Place::new();
    for order in ["", "-k"] {
        let output = place.run(&format!(
            "ulimit -n 20; seq 60 | timeout -s KILL 60 \"$F\" parallel --pipe --round-robin -N1 -j5 {order} cat"
        ));
        assert!(output.status.success(), "{output:?}");
        let mut lines: Vec<u32> = text(&output.stdout).lines().map(|line| line.parse().expect("a number")).collect();
        lines.sort_unstable();
        assert_eq!(lines, (1..=60).collect::<Vec<_>>(), "{order}");
    }
}

#[test]
fn a_file_that_cannot_be_made_for_lack_of_descriptors_is_made_later() {
    let place = Place::new();
    let output = place.run(
        "ulimit -n 16; seq 60 | timeout -s KILL 60 \"$F\" parallel --pipe -N1 --cat -j50 --summary 'cat {}; sleep 0.1'",
    );
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stderr).contains("ran 60, failed 0, skipped 0 of 60"), "{output:?}");
    assert_eq!(text(&output.stdout).lines().count(), 60);
}

/// The file exists when its first write is refused.
#[test]
fn a_file_that_cannot_be_written_for_lack_of_memory_is_written_later() {
    if !can_trace("a_file_that_cannot_be_written_for_lack_of_memory_is_written_later") {
        return;
    }
    let place = Place::new();
    let inject = "strace -o /dev/null -e trace=write -e inject=write:error=ENOMEM:when=1";
    let output = place.run(&format!("seq 3 | {inject} \"$F\" parallel --pipe -N1 --cat -k cat {{}}"));
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"1\n2\n3\n"[..]), "{output:?}");
}

#[test]
fn blocks_are_in_a_directory_of_the_user_alone() {
    for option in ["--cat", "--fifo"] {
        let line = format!("umask 0; echo 1 | $F parallel --pipe {option} 'cat {{}}; stat -c %a {{//}}'");
        assert_eq!(by_shell(&line), (Some(0), "1\n700\n".to_owned(), String::new()), "{option}");
    }
}

/// No file may get longer than nothing.
#[test]
fn a_dry_run_writes_no_blocks() {
    for option in ["--cat", "--fifo"] {
        let (code, out, err) =
            by_shell(&format!("ulimit -f 0; seq 3 | $F parallel --pipe --dry-run {option} cat {{}}"));
        assert!(code == Some(0) && out.ends_with("/1.block\n"), "{option}: {out}{err}");
    }
}

/// Jobs are started by other calls where this one is refused.
#[test]
fn a_job_whose_fifo_no_thread_can_feed_fails() {
    if !can_trace("a_job_whose_fifo_no_thread_can_feed_fails") {
        return;
    }
    let place = Place::new();
    let inject = "strace -o /dev/null -e trace=clone3 -e inject=clone3:error=EPERM";
    let output =
        place.run(&format!("seq 2 | timeout -s KILL 60 {inject} \"$F\" parallel --pipe -N1 --fifo --summary cat {{}}"));
    let words = text(&output.stderr);
    // An old libc starts threads by another call.
    let fails = words.contains("cannot start a thread") && words.contains("failed 2, skipped 0 of 2");
    assert!(fails && output.status.code() == Some(2) || output.status.success(), "{output:?}");
    assert!(fails != (text(&output.stdout) == "1\n2\n"), "{output:?}");
}

/// The job must not take the end of the FIFO for the end of its block.
#[test]
fn a_job_whose_fifo_cannot_be_made_blocking_fails() {
    const EPERM: u32 = 1;
    const F_SETFL: u32 = 4;
    let fcntl = if cfg!(target_arch = "x86_64") { 72 } else { 25 };
    let instruction = |(code, jt, jf, k)| forkless::BpfInstruction { code, jt, jf, k };
    // The number of the call, and its second argument.
    let filter = [
        (0x20, 0, 0, 0),
        (0x15, 0, 3, fcntl),
        (0x20, 0, 0, 24),
        (0x15, 0, 1, F_SETFL),
        (0x06, 0, 0, 0x0005_0000 | EPERM),
        (0x06, 0, 0, 0x7fff_0000),
    ];
    let mut command = forkless::Command::new(env!("CARGO_BIN_EXE_forkless"));
    command.args(["parallel", "--pipe", "--fifo", "cat {}"]).no_new_privs(true).seccomp(filter.map(instruction));
    command.stdin(Place::new().numbers(1)).stdout(forkless::Stdio::piped()).stderr(forkless::Stdio::piped());
    let output = command.spawn().expect("forkless").wait_with_output().expect("output");
    assert!(text(&output.stderr).contains("Operation not permitted"), "{output:?}");
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "{output:?}");
}

/// A cgroup with a limit of processes, where one can be made.
struct PidsGroup(std::path::PathBuf);

impl PidsGroup {
    fn make(limit: u32) -> Option<Self> {
        let name = format!("forkless-runner-{}", std::process::id());
        // Version 1 has a hierarchy for this controller. In version 2 the parent must pass it on.
        let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+pids");
        ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].iter().find_map(|parent| {
            let group = Self(Path::new(parent).join(&name));
            fs::create_dir(&group.0).ok()?;
            // Dropped, and so removed, if it has no such limit.
            fs::write(group.0.join("pids.max"), limit.to_string()).ok()?;
            Some(group)
        })
    }
}

impl Drop for PidsGroup {
    fn drop(&mut self) {
        wait_for("the end of the group", || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

#[test]
fn a_limit_of_processes_of_a_cgroup_delays_jobs_and_loses_none() {
    let Some(group) = PidsGroup::make(6) else {
        return println!("SKIPPED: a_limit_of_processes_of_a_cgroup_delays_jobs_and_loses_none: no pids cgroup");
    };
    let place = Place::new();
    let enter = format!("echo $$ > {} || exit 77", group.0.join("cgroup.procs").display());
    for words in ["xargs -n1 -P30 $M", "parallel -j30 -k exec $M {}"] {
        let mut command = place.script(&format!("{enter}; exec \"$F\" {words}"));
        let output = command.stdin(place.numbers(120)).output().expect("sh");
        assert!(output.status.success(), "{words}: {output:?}");
        place.all_ran_once(120, words);
        place.forget_marks();
    }
}

/// The temporary file gets a descriptor, although the jobs need all that there are.
/// A job that runs cannot wait for a process that it needs: so fewer jobs run at once.
#[test]
fn jobs_leave_room_for_their_own_processes() {
    const TEST: &str = "jobs_leave_room_for_their_own_processes";
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: {TEST}: only root can become a user without processes");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("a mode");
    fs::copy(env!("CARGO_BIN_EXE_forkless"), directory.path().join("forkless")).expect("a copy");
    let line = "seq 60 | ./forkless parallel -j64 --joblog log 'sleep 0.02; echo {}' >out";
    let mut command = Command::new("setpriv");
    command.args(["--reuid=54321", "--regid=54321", "--clear-groups", "prlimit", "--nproc=12", "sh", "-c", line]);
    let output = command.current_dir(directory.path()).output().expect("setpriv");
    let log = fs::read_to_string(directory.path().join("log")).expect("a log");
    let failed = log.lines().skip(1).filter(|line| line.split('\t').nth(6) != Some("0")).count();
    assert_eq!((log.lines().count(), failed, output.status.code()), (61, 0, Some(0)), "{output:?}\n{log}");
    assert!(text(&output.stderr).contains("the limit of processes (ulimit -u)"), "{output:?}");
}

#[test]
fn output_that_waits_needs_no_free_descriptor() {
    let place = Place::new();
    let job = r#"if test {} = 1; then until test -e 40; do sleep 0.01; done; fi; head -c 100000 /dev/zero; touch {}"#;
    let output = place.run(&format!("ulimit -n 22; seq 40 | \"$F\" parallel -k -j30 --summary '{job}'"));
    assert!(output.status.success(), "{:?}", text(&output.stderr));
    assert_eq!(output.stdout.len(), 40 * 100_000);
    assert!(text(&output.stderr).contains("ran 40, failed 0, skipped 0 of 40"), "{}", text(&output.stderr));
}

// ---- full disks ----

#[test]
fn a_disk_that_is_full_for_a_while_costs_no_line_of_the_log() {
    let place = Place::new();
    if apart(&place).is_none() {
        return println!("SKIPPED: a_disk_that_is_full_for_a_while_costs_no_line_of_the_log: it needs a file system");
    }
    fs::write(place.path("job"), "test $1 = 70 && rm disk/filler; exec \"$M\" $1\n").expect("a script");
    let output = with_small_disk(
        &place,
        64,
        "head -c 100000 /dev/zero > disk/filler 2> /dev/null; \
         seq 100 | \"$F\" parallel -j3 --joblog disk/log --summary sh job {}; code=$?; cp disk/log log; exit $code",
    );
    assert!(output.status.success(), "{output:?}");
    place.all_ran_once(100, "the disk was full");
    assert_eq!(place.logged(), (1..=100).collect());
    assert!(text(&output.stderr).contains("ran 100, failed 0, skipped 0 of 100"), "{output:?}");
}

#[test]
fn a_full_disk_under_the_log_loses_no_job_and_is_an_error() {
    const JOBS: usize = 300;
    let place = Place::new();
    let run = |directory: &str, options: &str| {
        format!("seq {JOBS} | \"$F\" parallel -j3 --joblog {directory}/log {options} --summary \"$M\" {{}}")
    };
    // The log of all jobs has some 17 KB.
    let output = with_small_disk(&place, 8, &format!("{}; code=$?; cp disk/log log; exit $code", run("disk", "")));
    assert_eq!(output.status.code(), Some(255), "{output:?}");
    let words = text(&output.stderr);
    assert!(words.contains("the log is not complete") && words.contains("ran 300, failed 0, skipped 0"), "{words}");
    place.all_ran_once(JOBS, "the disk was full");
    let logged = place.logged();
    assert!(!logged.is_empty() && logged.len() < JOBS, "{} lines", logged.len());
    // The next run, with a larger disk, runs those without a line, and no other one.
    let output = place.run(&run(".", "--resume"));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(place.logged(), (1..=JOBS).collect());
    let marks = place.marks();
    assert!(marks.iter().all(|(job, count)| *count == if logged.contains(job) { 1 } else { 2 }), "{marks:?}");
}

#[test]
fn a_full_disk_under_the_results_loses_no_job_and_is_an_error() {
    const JOBS: usize = 30;
    let place = Place::new();
    fs::write(place.path("job"), "head -c 20000 /dev/zero | tr '\\0' x; echo; exec \"$M\" $1\n").expect("a script");
    let output = with_small_disk(
        &place,
        16,
        &format!("seq {JOBS} | \"$F\" parallel -j3 -k --results disk/out/ --joblog log --summary sh job {{}}"),
    );
    let words = text(&output.stderr);
    assert_eq!(output.status.code(), Some(255), "{words}");
    assert!(words.contains("the results of job") && words.contains("ran 30, failed 0, skipped 0 of 30"), "{words}");
    assert_eq!(words.matches("the results of job").count(), 1, "{words}");
    place.all_ran_once(JOBS, "the disk was full");
    assert_eq!(place.logged(), [].into(), "no file of a job fits");
}

/// The job whose output has no place is ended, and runs again with the same log. Memory stays bounded.
#[test]
fn a_full_disk_under_the_temporary_file_bounds_memory_and_is_an_error() {
    const MUCH: usize = 200_000_000;
    let place = Place::new();
    fs::write(place.path("job"), format!("head -c {MUCH} /dev/zero\n")).expect("a script");
    let run = |directory: &str| {
        let options = "-j1 --joblog log --resume --summary";
        format!("{{ seq 2 | \"$F\" parallel {options} --tmpdir {directory} sh job; echo $? > code; }} | wc -c > count")
    };
    // With all the output in memory, the run would fail.
    let limited = |script: String| format!("ulimit -v 150000; {script}");
    let output = with_small_disk(&place, 1024, &limited(run("disk")));
    let words = text(&output.stderr);
    assert!(words.contains("No space left") || words.contains("File too large"), "{words}");
    assert!(words.contains("skipped 1 of 2"), "{words}");
    assert_eq!(fs::read_to_string(place.path("code")).expect("a code"), "255\n");
    let count = |name: &str| -> usize {
        fs::read_to_string(place.path(name)).expect("a count").trim().parse().expect("a number")
    };
    assert!((1 << 20..100_000_000).contains(&count("count")), "{} bytes", count("count"));
    assert_eq!(place.logged(), [].into());
    let output = place.run(&limited(run(".")));
    let words = text(&output.stderr);
    assert!(words.contains("ran 2, failed 0, skipped 0 of 2"), "{words}");
    assert_eq!((count("count"), place.logged()), (2 * MUCH, [1, 2].into()));
}

// ---- jobs that misbehave ----

#[test]
fn jobs_that_misbehave_are_counted_once_and_their_output_is_whole() {
    let jobs = [
        ("exec >&- 2>&-; ./mark 1; exit 0", &b""[..]),
        ("echo two; sleep 1000 & ./mark 2", b"two\n"),
        ("setsid sh -c 'echo three; exec sleep 1000' & until test -e mark; do :; done; ./mark 3; wait $!", b""),
        ("printf half; ./mark 4", b"half"),
        ("printf 'a\\0b\\n\\0'; ./mark 5", b"a\0b\n\0"),
        ("./mark 6; kill -9 $$", b""),
        ("(trap '' HUP TERM; sleep 1000 > /dev/null 2>&1 & ) ; ./mark 7", b""),
        ("exec ./mark 8", b""),
    ];
    for options in ["-k", "-k --line-buffer", "-u"] {
        let place = Place::new();
        // The third job waits for a process that does not end.
        let lines: Vec<&str> = jobs.iter().map(|(line, _)| *line).collect();
        let lines = lines.join("\n").replace("; wait $!", "") + "\n";
        fs::write(place.path("jobs"), lines).expect("a file");
        let run = format!("\"$F\" parallel -j3 {options} --joblog log --summary < jobs > out 2> err; echo $? > code");
        // Nothing here may wait for the end of what the jobs leave behind.
        let status = place.script(&run).stdout(Stdio::null()).stderr(Stdio::null()).status().expect("sh");
        assert!(status.success());
        let words = fs::read_to_string(place.path("err")).expect("a file");
        assert!(words.contains("ran 8, failed 1, skipped 0 of 8"), "{options}: {words}");
        assert_eq!(fs::read_to_string(place.path("code")).expect("a code"), "1\n", "{options}");
        place.all_ran_once(8, options);
        assert_eq!(place.logged(), (1..=8).collect(), "{options}");
        if options != "-u" {
            let out = text(&fs::read(place.path("out")).expect("a file"));
            // The third job's child may have written when its job ended, or not.
            let expected: Vec<u8> = jobs.iter().flat_map(|(_, bytes)| bytes.to_vec()).collect();
            assert_eq!(out.replace("three\n", ""), text(&expected), "{options}");
        }
        assert!(!place.processes().is_empty(), "{options}: what was left behind runs on");
        place.kill_all();
    }
}

/// The state letter of a process, as proc(5) shows it.
fn state(pid: u32) -> Option<char> {
    fs::read_to_string(format!("/proc/{pid}/stat")).ok()?.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn a_job_that_stops_itself_is_ended_with_the_run_and_runs_again() {
    let place = Place::new();
    fs::write(place.path("job"), "test $1 = 2 && ! test -e go && kill -STOP $$; exec \"$M\" $1\n").expect("a script");
    let words = "exec \"$F\" parallel -j1 --joblog log --resume --summary sh job {} ::: 1 2 3";
    let child = place.script(words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("sh");
    wait_for("a stopped job", || place.processes().iter().any(|&pid| state(pid) == Some('T')));
    send(&child, Signal::INT);
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(255), "{output:?}");
    assert!(text(&output.stderr).contains("ran 2, failed 1, skipped 1 of 3"), "{output:?}");
    assert_eq!(place.logged(), [1].into());
    fs::write(place.path("go"), "").expect("a file");
    let output = place.run(words);
    assert!(output.status.success(), "{output:?}");
    place.all_ran_once(3, "the second run");
}

#[test]
fn a_job_may_write_any_amount() {
    let bytes = scaled(100 << 20);
    for options in ["-k", "--line-buffer", "-k --tag"] {
        let place = Place::new();
        let line = format!("exec \"$F\" parallel -j2 {options} 'head -c {bytes} /dev/zero #' ::: 1 2");
        let mut child = place.script(&line).stdout(Stdio::piped()).spawn().expect("sh");
        let mut output = child.stdout.take().expect("a pipe");
        let (mut count, mut sizes, mut buffer) = (0, 0, vec![0; 1 << 16]);
        loop {
            let read = output.read(&mut buffer).expect("output");
            if read == 0 {
                break;
            }
            count += read;
            if let Some(size) = peak(&child) {
                assert!(size < 64_000, "{options}: {size} KiB");
                sizes += 1;
            }
        }
        let status = child.wait().expect("ends");
        assert!(status.success(), "{options}: {status:?}");
        // The tag is written once for each job, since there is one line.
        let tags = if options.contains("--tag") { 4 } else { 0 };
        assert_eq!(count, 2 * bytes + tags, "{options}");
        assert!(sizes > 0, "{options}: its size was never seen");
    }
}

// ---- the terminal ----

#[test]
fn ctrl_c_ends_the_jobs_and_leaves_the_terminal_and_its_output_whole() {
    for shell in shells("ctrl_c_ends_the_jobs_and_leaves_the_terminal_and_its_output_whole") {
        let place = Place::new();
        let mut session = Session::shell(shell);
        session.run(&format!("cd {}", place.directory.path().display()));
        let modes = tcgetattr(&session.pty).expect("modes");
        // The third job writes, starts a process that ignores SIGTERM, and waits.
        let job = "case {} in 3) echo third-be''gins; (trap '' TERM INT; exec sleep 1000) & touch up; sleep 1000;; *) echo line-{}''-whole;; esac";
        session.line(&format!(
            "{} \"$F\" parallel --plain -k -j1 --joblog log --summary \"{job}\" ::: 1 2 3 4 5",
            place.mark()
        ));
        session.expect("line-1-whole\r\n");
        session.expect("line-2-whole\r\n");
        wait_for("the third job", || place.path("up").exists());
        session.keys(CTRL_C);
        session.expect("third-begins\r\n");
        session.expect("of 5\r\n");
        session.prompt();
        assert_eq!(session.status(), 255, "{shell}");
        wait_for("the end of all processes", || place.processes().is_empty());
        let now = tcgetattr(&session.pty).expect("modes");
        assert_eq!(format!("{modes:?}"), format!("{now:?}"), "{shell}");
        assert!(!place.logged().contains(&3), "{shell}");
    }
}

// ---- what is left, and what it needs ----

/// The files in a directory that processes have open, and that may have no name.
fn open_files(processes: &[u32], directory: &Path) -> usize {
    let of = |pid: &u32| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = processes.iter().flat_map(of).filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|path| path.starts_with(directory)).count()
}

#[test]
fn the_temporary_file_is_gone_in_every_ending() {
    const ENDINGS: [&[Signal]; 5] =
        [&[Signal::KILL], &[Signal::INT], &[Signal::TERM, Signal::TERM], &[Signal::HUP], &[Signal::SEGV]];
    for signals in ENDINGS {
        let place = Place::new();
        let temporary = place.path("temporary");
        fs::create_dir(&temporary).expect("a directory");
        // Two jobs fill the file; the first one holds their output back, and outlives a run that is killed.
        let job = "if test {} = 1; then until test -e go; do sleep 0.02; done; else head -c 3000000 /dev/zero; touch done-{}; fi";
        let line = format!("exec \"$F\" parallel -j3 -k --tmpdir temporary '{job}' ::: 1 2 3");
        let mut child = place.script(&line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("sh");
        wait_for("two jobs", || (2..=3).all(|job| place.path(&format!("done-{job}")).exists()));
        wait_for("the temporary file", || open_files(&[child.id()], &temporary) > 0);
        assert_eq!(fs::read_dir(&temporary).expect("a directory").count(), 0, "a temporary file with a name");
        send_all(&mut child, signals);
        if signals == [Signal::HUP] {
            // The job that runs goes on to its end.
            fs::write(place.path("go"), "").expect("a file");
        }
        let status = child.wait().expect("ends");
        assert!(!status.success() || signals == [Signal::HUP], "{signals:?}: {status:?}");
        assert_eq!(fs::read_dir(&temporary).expect("a directory").count(), 0, "{signals:?}: a file is left");
        // A job that has the file open would hold its space.
        assert_eq!(open_files(&place.processes(), &temporary), 0, "{signals:?}: a job has the file");
        if status.signal().is_some() {
            assert!(!place.processes().is_empty(), "{signals:?}: the first job has ended");
        }
        place.kill_all();
    }
}

#[test]
fn any_number_of_jobs_needs_the_same_memory() {
    for words in ["xargs -n1 -P4 ./mark", "parallel -j4 --joblog log ./mark", "parallel -j4 --line-buffer ./mark"] {
        let place = Place::new();
        let mut child = place.script(&format!("exec \"$F\" {words}")).stdin(Stdio::piped()).spawn().expect("sh");
        let mut input = child.stdin.take().expect("a pipe");
        let (mut sizes, mut sent) = (Vec::new(), 0);
        for count in [scaled(200), scaled(2_000)] {
            let lines: String = (sent + 1..=sent + count).map(|number| format!("{number}\n")).collect();
            sent += count;
            input.write_all(lines.as_bytes()).expect("it reads");
            wait_for("the jobs", || fs::read_to_string(place.path("marks")).expect("marks").lines().count() == sent);
            // It waits for more input.
            sizes.push(peak(&child).expect("alive"));
        }
        drop(input);
        assert!(child.wait().expect("ends").success(), "{words}");
        assert!(sizes[1] < sizes[0] + 400, "{words}: {sizes:?} KiB");
    }
}

#[test]
fn jobs_of_a_file_that_grows_start_at_once() {
    for words in ["xargs -n1 ./mark", "parallel ./mark", "parallel -k --joblog log ./mark {}"] {
        let place = Place::new();
        fs::write(place.path("growing"), "").expect("a file");
        let script = format!("tail -f growing & echo $! > tail.new; mv tail.new tail; wait | \"$F\" {words}");
        let script = script.replace("tail -f growing & ", "{ tail -f growing & ").replace("wait |", "wait; } |");
        let mut child = place.script(&script).spawn().expect("sh");
        let mut growing = fs::OpenOptions::new().append(true).open(place.path("growing")).expect("a file");
        for job in 1..=3 {
            growing.write_all(format!("{job}\n").as_bytes()).expect("a line");
            wait_for("a job", || place.marks().contains_key(&job));
        }
        let pid = fs::read_to_string(place.path("tail")).expect("a pid");
        assert!(Command::new("kill").arg(pid.trim()).status().expect("kill").success());
        assert!(child.wait().expect("ends").success(), "{words}");
        place.all_ran_once(3, words);
    }
}

// ---- as the peers ----

/// Runs a line by sh, in a new directory, where `$F` is forkless; its exit code and outputs.
fn by_shell(line: &str) -> (Option<i32>, String, String) {
    let place = tempfile::tempdir().expect("a directory");
    let mut shell = Command::new("/bin/bash");
    shell
        .args(["-c", line])
        .current_dir(place.path())
        .env("F", testing::surroundings::word(env!("CARGO_BIN_EXE_forkless")));
    let output = shell.env("PARALLEL_SHELL", "/bin/sh").stdin(Stdio::null()).output().expect("bash");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_runner_reads_values_as_gnu_parallel() {
    let long = "a".repeat(300);
    let records = || "R\nA1, S\nA2, 0\nR\nA1, S\n".to_owned();
    let cases = [
        // The end of the values also ends a line that goes on.
        (r"printf '1 \nEND\n3\n' | $F parallel -k -L2 -E END echo", "1 \n".to_owned()),
        (r"printf 'a\n1 \nEND\n3\n' | $F parallel -k -L1 -E END echo", "a\n1 \n".to_owned()),
        (r"printf '1 \n2\nEND\n3\n' | $F parallel -k -L2 -E END echo", "1 2\n".to_owned()),
        ("$F parallel -k -d , echo ::: 1, 2,3", "1\n\n2\n3\n".to_owned()),
        (r"$F parallel -k -d '\t' echo ::: $'1\t2' a", "1\n2\na\n".to_owned()),
        (r"printf 'a\0b\nc\n' | $F parallel -k printf '%s\\n'", "a\\0b\nc\n".to_owned()),
        ("$F parallel -k -X -j1 --tagstring t{} echo ::: 1 2 3", "t1 t2 t3\t1 2 3\n".to_owned()),
        ("$F parallel -k -N2 --tagstring t{} echo ::: 1 2 3", "t1 t2\t1 2\nt3\t3\n".to_owned()),
        ("$F parallel -k -m -j1 --tagstring t{} echo ::: 1 2 3", "t1 2 3\t1 2 3\n".to_owned()),
        ("mkdir d; ln -s d l; $F parallel --wd l 'echo ${PWD##*/}; pwd' ::: 1 | sed 's|.*/||'", "l\nl\n".to_owned()),
        ("mkdir d; ln -s d l; $F parallel --wd l/../d pwd ::: 1 | sed 's|.*/||'", "d\n".to_owned()),
        (
            "$F parallel --joblog - echo ::: 1 | cut -f1,7,8,9",
            "Seq\tExitval\tSignal\tCommand\n1\n1\t0\t0\techo 1\n".to_owned(),
        ),
        ("$F parallel --joblog - true ::: 1 >o; ls", "o\n".to_owned()),
        ("$F parallel --retries {} 'echo x >>l{}; false' ::: 1 3 2; cat l1 l2 l3 | wc -l", "6\n".to_owned()),
        (
            r"printf 'A1, S\nA2, 0\nA1, S\n' | $F parallel -k --pipe --regexp --recstart '.*, S' -N1 'echo R; cat'",
            records(),
        ),
        (
            r"printf 'A1, S\nA2, 0\nA1, S\n' | $F parallel -k --pipe --regexp --recstart '^A1' -N1 'echo R; cat'",
            records(),
        ),
        ("printf ab | $F parallel -k --pipe --recend '' -N1 'cat; echo'", "a\nb\n".to_owned()),
        ("$F parallel --plus echo {..}={+..} ::: a.b.", "a=b.\n".to_owned()),
        (
            r"$F parallel --header : --results r true ::: 11a x ::: Z y ::: 1a z; find r -name stdout",
            "r/Z/y/1a/z/11a/x/stdout\n".to_owned(),
        ),
        // What it does not do is an error that says so.
        ("$F parallel l{= s/p/s/ =} ::: p 2>&1 | grep -c 'is Perl'", "1\n".to_owned()),
        ("$F parallel --wd ... pwd ::: 1 2>&1 | grep -c mktemp", "1\n".to_owned()),
        ("PARALLEL_ENV='v=1' $F parallel echo ::: 1 2>&1 | grep -c 'export -f'", "1\n".to_owned()),
        // No value replaces the results of another one.
        (
            &format!(
                "$F parallel --results r echo {{#}} ::: {long}1 {long}2 {long}1/x >/dev/null; ls r/1 | wc -l; cat r/1/*/stdout | sort"
            ),
            "3\n1\n2\n3\n".to_owned(),
        ),
    ];
    for (line, expected) in cases {
        let (_, out, err) = by_shell(line);
        assert_eq!(out, expected, "{line}: {err}");
    }
}

/// It dies of SIGPIPE, as other programs do, and leaves no temporary files.
#[test]
fn a_runner_whose_output_nobody_reads_ends_quietly() {
    for options in ["", "-k", "--line-buffer", "--tag", "--results -.csv", "--joblog -"] {
        let line = format!("seq 100000 | $F parallel {options} -j2 echo | head -1 >/dev/null; echo ${{PIPESTATUS[1]}}");
        assert_eq!(by_shell(&line), (Some(0), "141\n".to_owned(), String::new()), "{options}");
    }
    for option in ["--cat", "--fifo"] {
        let jobs = format!("$F parallel --pipe {option} -N10 -j2 'cat {{}}; head -c 100000 /dev/zero'");
        let line = format!(
            "mkdir t; seq 20000 | TMPDIR=$PWD/t {jobs} | head -c 10 >/dev/null; echo ${{PIPESTATUS[1]}} $(ls -A t)"
        );
        let (_, out, err) = by_shell(&line);
        assert_eq!(out, "141\n", "{option}: {err}");
    }
}

/// What `xargs -t` writes does not act on the terminal, and a shell reads it as the same words.
#[test]
fn a_traced_command_is_quoted_for_the_terminal_and_a_shell() {
    let mut words: Vec<Vec<u8>> = (1..=255).map(|byte| vec![byte]).collect();
    words.extend((1..=255).map(|byte| vec![b'a', byte, b'\'']));
    words.push("é€ \u{85}'\u{1b}[2J".into());
    words.push(Vec::new());
    let mut xargs = Command::new(env!("CARGO_BIN_EXE_forkless"));
    let mut child = xargs.args(["xargs", "-0", "-n1", "-t", "true"]);
    child = child.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("xargs");
    let input: Vec<u8> = words.iter().flat_map(|word| [&word[..], b"\0"].concat()).collect();
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(&input).expect("input"));
    let traced = child.wait_with_output().expect("xargs").stderr;
    writer.join().expect("input");
    let lines: Vec<&[u8]> = traced.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), words.len());
    assert!(!text(&traced).replace('\n', "").contains(char::is_control), "a control character");
    let script = lines
        .iter()
        .flat_map(|line| [b"printf '%s\\0' ", &line[b"true ".len()..], b"\n"].concat())
        .collect::<Vec<u8>>();
    let mut bash = Command::new("/bin/bash").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("bash");
    let mut stdin = bash.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(&script).expect("a script"));
    let read = bash.wait_with_output().expect("bash").stdout;
    writer.join().expect("a script");
    let read: Vec<&[u8]> = read.split(|byte| *byte == 0).collect();
    for (word, read) in words.iter().zip(read) {
        assert_eq!(word, read, "{:?}", text(word));
    }
}
