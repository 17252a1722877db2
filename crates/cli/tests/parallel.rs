//! `forkless parallel` behaves as GNU parallel 20221122: the same standard output and exit status for the same command
//! lines. What differs on purpose is tested by itself.

testing::usual_surroundings!();

use std::{
    collections::{BTreeMap, VecDeque},
    fs, iter,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::Path,
    process::{Command, Output, Stdio},
    sync::Mutex,
    thread,
};

/// Command lines for `sh`; `$P` is the program.
const SAME: &str = include_str!("parallel/same.txt");

/// The number of lines that must be compared at least.
const LEAST: usize = 450;

/// A directory with a HOME in which GNU parallel is silent, and files that the command lines use.
fn work_directory() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a directory");
    let home = place.path().join("home/.parallel");
    fs::create_dir_all(&home).expect("a home");
    fs::write(home.join("will-cite"), "").expect("a file");
    let work = place.path().join("work");
    fs::create_dir(&work).expect("a directory");
    fs::write(work.join("ten"), "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n").expect("a file");
    fs::write(work.join("table"), "x y\n1 2\n3 4\n").expect("a file");
    fs::write(work.join("tabs"), "x\ty\na.b\tc/d\n").expect("a file");
    place
}

/// Runs a line in a directory of its own.
fn run(program: &str, line: &str, place: &Path) -> Output {
    let mut shell = Command::new("/bin/sh");
    // The second one plants a fault: `cargo xtask mutants`.
    let kept = ["PATH", "FORKLESS_PLANTED"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    shell.arg("-c").arg(line).env_clear().envs(kept);
    shell.env("HOME", place.join("home")).env("LC_ALL", "C.UTF-8").env("P", program);
    shell.env("PARALLEL_SHELL", "/bin/sh").current_dir(place.join("work")).stdin(Stdio::null());
    shell.output().expect("a shell")
}

fn ours() -> String {
    format!("{} parallel", testing::surroundings::word(env!("CARGO_BIN_EXE_forkless")))
}

fn has_gnu(test: &str) -> bool {
    let version = Command::new("parallel").arg("--version").stdin(Stdio::null()).output();
    let is_gnu = version.is_ok_and(|output| output.stdout.starts_with(b"GNU parallel"));
    if !is_gnu {
        println!("SKIPPED: {test}: GNU parallel is not installed");
    }
    is_gnu
}

/// What a test looks at.
fn shown(output: &Output) -> String {
    format!("exit {:?}\n{}", output.status.code(), String::from_utf8_lossy(&output.stdout))
}

/// What GNU parallel 20221122 does with each script. Its 700 starts take minutes, so no test repeats them: with
/// `FORKLESS_GNU_PARALLEL=write` and `--test-threads=1` the tests write this file.
const GNU: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parallel/gnu.json");

/// Runs scripts, each in a directory of its own, and compares what they show with GNU parallel's.
fn compare(scripts: &[String]) {
    let text = fs::read_to_string(GNU).expect("it is beside this test");
    let mut known: BTreeMap<String, String> = serde_json::from_str(&text).expect("an object of strings");
    if std::env::var_os("FORKLESS_GNU_PARALLEL").is_some() && has_gnu("the record of GNU parallel") {
        known.extend(all(scripts, "parallel"));
        fs::write(GNU, serde_json::to_string_pretty(&known).expect("strings") + "\n").expect("it can be written");
    }
    let mut wrong = all(scripts, &ours());
    wrong.retain(|(script, found)| *found != *known.get(script).unwrap_or_else(|| panic!("gnu.json lacks {script}")));
    let show = |(script, found)| format!("{script}\n--- GNU parallel: {}--- forkless: {found}\n", known[&script]);
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.into_iter().map(show).collect::<String>());
}

/// What each script shows with this program.
fn all(scripts: &[String], program: &str) -> Vec<(String, String)> {
    let left: Mutex<VecDeque<&String>> = Mutex::new(scripts.iter().collect());
    let next = || left.lock().expect("no panic").pop_front();
    let look = |script: &String| {
        // Otherwise as many jobs as CPUs run at once, over which -X and -m spread the values.
        let line = format!("export PARALLEL=-j2; {script}");
        (script.clone(), shown(&run(program, &line, work_directory().path())))
    };
    thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(|| iter::from_fn(next).map(look).collect::<Vec<_>>()));
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn standard_output_and_exit_status_are_those_of_gnu_parallel() {
    let lines: Vec<_> = SAME.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert!(lines.len() >= LEAST, "{} lines", lines.len());
    compare(&lines.into_iter().map(str::to_owned).collect::<Vec<_>>());
}

/// Lines of several values: how many go into a job, and what is repeated for each of them.
const SEVERAL: &str = "-N3|-n3|-L3|-l3|-N3 -m|-n3 -m|-L3 -m|-N3 --xargs|-n3 --xargs|-L3 --xargs|-N3 -X|-n3 -X|-L3 -X|-X -j1|-m -j1|--xargs|-N1";

/// In one word, beside others, in several words, and without a place.
const TEMPLATES: [&str; 14] = [
    "mv dir/{} dst",
    "echo a{}b c",
    "echo a{}b{}c {}",
    "echo x{/.}y z",
    "echo {.}x {//}",
    "echo {}",
    "echo",
    "echo '<{}>' q",
    "echo {1}x{2} {3}y",
    "echo p{1}q{} r",
    "echo {#}a{} {#}",
    "'echo a{};echo b{}'",
    "-q echo 'a{}b' c{}",
    "-I ,, echo a,,b {}",
];

#[test]
fn several_values_fill_a_line_as_in_gnu_parallel() {
    // As GNU parallel's manual says.
    let found =
        run(&ours(), "seq 5 | $P -k -N 3 echo mv dir/{} dst; seq 5 | $P -k -L 3 echo a{}b", work_directory().path());
    let expected = "mv dir/1 dir/2 dir/3 dst\nmv dir/4 dir/5 dst\na1b a2b a3b\na4b a5b\n";
    assert_eq!(String::from_utf8_lossy(&found.stdout), expected);
    let values = r#"printf '%s\n' d/1.e 'a  b' "c'd" e f g h"#;
    let script =
        |several| TEMPLATES.map(|template| format!("{values} | $P --dry-run -k {several} {template}")).join("\n");
    compare(&SEVERAL.split('|').map(script).collect::<Vec<_>>());
}

/// GNU parallel writes only the files, too.
#[test]
fn results_of_ungrouped_jobs_are_in_their_files() {
    let place = work_directory();
    let line = "$P --results out -u echo ::: a b; cat out/1/a/stdout out/1/b/stdout";
    assert_eq!(shown(&run(&ours(), line, place.path())), "exit Some(0)\na\nb\n");
}

/// Values that would run, be split or vanish if they were not quoted.
const NASTY: &[&[u8]] = &[
    b"$(touch ran)",
    b"`touch ran`",
    b"a; touch ran",
    b"a\ntouch ran\n",
    b"'; touch ran; '",
    b"\"; touch ran; \"",
    b"a  b",
    b" ",
    b"-n",
    b".hidden",
    b"*",
    b"~",
    b"#",
    b"\\",
    b"\xff\xfe",
    b"{}",
    b"{1}",
    b"&",
    b"|touch ran",
    b">ran",
    b"$HOME",
    b"!x",
    b"\t",
];

/// The values come back from the program as they are, and run nothing.
fn come_back(shell: &str, template: &[&str]) {
    let place = work_directory();
    let input = NASTY.join(&b"\0"[..]);
    fs::write(place.path().join("work/input"), input).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
    command.args(["parallel", "-0", "-k", "-a", "input"]).args(template).current_dir(place.path().join("work"));
    let output = command.env("PARALLEL_SHELL", shell).stdin(Stdio::null()).output().expect("forkless");
    assert!(output.status.success(), "{shell} {template:?}: {output:?}");
    let expected: Vec<u8> = NASTY.iter().flat_map(|value| [b"<", *value, b">"].concat()).collect();
    assert_eq!(output.stdout, expected, "{shell} {template:?}: {}", String::from_utf8_lossy(&output.stdout));
    assert!(!place.path().join("work/ran").exists(), "{shell} {template:?}");
}

#[test]
fn values_reach_the_program_as_they_are() {
    for shell in ["/bin/sh", "/bin/bash", "/bin/dash", "/usr/bin/zsh", "/usr/bin/busybox"] {
        if !Path::new(shell).exists() || shell.ends_with("busybox") {
            continue;
        }
        come_back(shell, &["printf", "'<%s>'", "{}"]);
        come_back(shell, &["/usr/bin/printf", "'<%s>'"]);
        come_back(shell, &["printf '<%s>' '{}'"]);
        come_back(shell, &["-q", "printf", "<%s>", "{}"]);
        come_back(shell, &["x={}; printf '<%s>' \"$x\""]);
    }
}

#[test]
fn no_value_runs_inside_of_quotes() {
    for template in [
        "echo \"{}\"",
        "echo \"$(echo {})\"",
        "echo \"`echo {}`\"",
        "echo `echo {}`",
        "bash -c \"echo {}\"",
        "echo a # {}",
        "echo $'{}'",
    ] {
        for shell in ["/bin/sh", "/bin/bash"] {
            let place = work_directory();
            fs::write(place.path().join("work/input"), NASTY.join(&b"\0"[..])).expect("a file");
            let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
            command.args(["parallel", "-0", "-a", "input", template]).current_dir(place.path().join("work"));
            command.env("PARALLEL_SHELL", shell).stdin(Stdio::null()).output().expect("forkless");
            assert!(!place.path().join("work/ran").exists(), "{shell} {template}");
        }
    }
}

#[test]
fn an_argument_with_a_newline_is_one_value() {
    let place = work_directory();
    let output = run(&ours(), "$P -k echo {#} {} ::: 'a\ntouch ran' b", place.path());
    assert_eq!(output.stdout, b"1 a\ntouch ran\n2 b\n");
    assert!(!place.path().join("work/ran").exists());
}

#[test]
fn only_the_argument_that_begins_the_command_is_code() {
    let place = work_directory();
    let output = run(&ours(), "$P {1} {2} ::: 'echo a' ::: '$(touch ran)' 'b  c'", place.path());
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2);
    assert!(output.stdout.ends_with(b"a b  c\n") || output.stdout.starts_with(b"a b  c\n"), "{output:?}");
    assert!(!place.path().join("work/ran").exists());
}

#[test]
fn results_of_any_value_stay_in_their_directory() {
    let place = work_directory();
    let output =
        run(&ours(), "$P --results out/in echo ::: .. ../../x . a/b '' && find . -name stdout | sort", place.path());
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(found.lines().count(), 5, "{output:?}");
    assert!(found.lines().all(|line| line.starts_with("./out/in/1/")), "{found}");
}

#[test]
fn results_in_a_name_with_replacement_strings_stay_below_it() {
    let place = work_directory();
    let line =
        "$P --results 'top/out/{}/' echo ::: .. ../../x ../../../../y a/../../../b && find . -name stdout | sort";
    let output = run(&ours(), line, place.path());
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    let files: Vec<&str> = found.lines().filter(|line| line.ends_with("/stdout")).collect();
    assert_eq!(files.len(), 4, "{output:?}");
    assert!(files.iter().all(|file| file.starts_with("./top/out/")), "{found}");
}

/// A file is in the place of a directory.
#[test]
fn a_job_whose_results_have_no_place_runs_like_the_others() {
    let place = work_directory();
    let line = "mkdir -p out/1; touch out/1/x; $P -j1 --results out --summary 'touch ran-{#}; echo' ::: a x b; echo $?; ls -d ran-*";
    let output = run(&ours(), line, place.path());
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(found.ends_with("255\nran-1\nran-2\nran-3\n"), "{output:?}");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("ran 3, failed 0, skipped 0 of 3") && words.contains("the results of job 2"), "{words}");
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let place = work_directory();
    for (options, expected) in [
        ("-S host", "--sshlogin is refused"),
        ("--sqlmaster x", "--sql-master is refused"),
        ("--transferfile {}", "--transferfile is refused"),
        ("--tmux", "--tmux is refused"),
        ("--rpl x", "--rpl is refused"),
        ("--round-robin", "--pipe: takes one input"),
        ("--pipe --round-robin --retries 2", "--round-robin: not with --retries"),
        ("--tee --fifo", "--tee: not with --fifo"),
        ("--profile x", "--profile is refused"),
    ] {
        let output = run(&ours(), &format!("$P {options} echo ::: a"), place.path());
        assert_eq!(output.status.code(), Some(255), "{options}: {output:?}");
        assert!(output.stdout.is_empty(), "{options}: {output:?}");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(words.contains(expected), "{options}: {words}");
    }
    for (line, expected) in [
        ("$P 'echo {= s/a/b/ =}' ::: a", "is Perl"),
        ("$P --pipe --block -2 cat < ten", "--block -2: needs --pipe-part"),
        ("$P --pipe-part -a /dev/null --block -2 cat", "--block -2: /dev/null is no regular file"),
    ] {
        let output = run(&ours(), line, place.path());
        assert_eq!(output.status.code(), Some(255), "{line}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected), "{line}: {output:?}");
    }
}

#[test]
fn every_job_is_in_one_shard_and_its_log_is_named_by_it() {
    let place = work_directory();
    let line = "for i in 1 2 3; do $P --shard $i/3 --joblog log -k echo ::: a b c d e f g; done; cut -f2,9 log.?-of-3";
    let output = run(&ours(), line, place.path());
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    let (jobs, logs): (Vec<&str>, Vec<&str>) = found.lines().partition(|line| !line.contains('\t'));
    assert_eq!(jobs, ["a", "d", "g", "b", "e", "c", "f"]);
    assert_eq!(logs.iter().filter(|line| line.starts_with("2/3\t")).count(), 2, "{logs:?}");
    let output = run(&ours(), "SLURM_PROCID=1 SLURM_NTASKS=2 $P --shard auto -k echo ::: a b c d", place.path());
    assert_eq!(output.stdout, b"b\nd\n");
    let output = run(&ours(), "$P --shard auto echo ::: a", place.path());
    assert_eq!(output.status.code(), Some(255));
}

#[test]
fn a_run_ends_with_its_numbers_also_beside_the_log() {
    let place = work_directory();
    let output = run(&ours(), "$P -j1 --joblog log --summary --halt now,fail=1 exit ::: 0 3 0 0", place.path());
    assert_eq!(output.status.code(), Some(3));
    let summary = fs::read_to_string(place.path().join("work/log.summary")).expect("a summary");
    assert_eq!(summary, "ran 2, failed 1, skipped 2 of 4\n");
    assert!(output.stderr.ends_with(summary.as_bytes()), "{output:?}");
    if !has_gnu("a_run_ends_with_its_numbers_also_beside_the_log") {
        return;
    }
    // GNU parallel goes on with our log.
    let output = run("parallel", "$P -j1 --joblog log --resume -k echo ::: 0 3 0 1", place.path());
    assert_eq!(output.stdout, b"0\n1\n", "{output:?}");
}

#[test]
fn a_log_of_gnu_parallel_is_resumed() {
    if !has_gnu("a_log_of_gnu_parallel_is_resumed") {
        return;
    }
    let place = work_directory();
    run("parallel", "$P -j1 --joblog log -k exit ::: 0 1 0", place.path());
    let output = run(&ours(), "$P --joblog log --resume -k echo ::: a b c d", place.path());
    assert_eq!(output.stdout, b"d\n", "{output:?}");
    let output = run(&ours(), "$P --joblog log --resume-failed -k echo ::: a b c d", place.path());
    assert_eq!(output.stdout, b"b\n", "{output:?}");
}

/// Nor does a line with number 0, which no job has, make it run for ever.
#[test]
fn a_log_with_huge_numbers_is_retried_at_once() {
    let place = work_directory();
    let line = |seq: u64, status: u32| format!("{seq}\t:\t1795362973.752\t0.1\t0\t2\t{status}\t0\techo {seq}\n");
    let log = [line(0, 1), line(2, 1), line(3, 0), line(9_000_000_000_000, 1), line(5, 1)].concat();
    for options in ["", "-k", "--line-buffer -k"] {
        fs::write(place.path().join("work/huge"), &log).expect("a log");
        let script = format!("timeout -s KILL 60 $P --joblog huge --retry-failed --summary -j1 {options}");
        let output = run(&ours(), &script, place.path());
        assert_eq!(output.stdout, b"2\n5\n9000000000000\n", "{options}: {output:?}");
        let summary = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(summary, "ran 3, failed 0, skipped 0 of 9000000000000 (8999999999997 done before)\n", "{options}");
    }
}

#[test]
fn jobs_start_before_the_input_ends() {
    let place = work_directory();
    // The second value is written when the first job has run.
    let line =
        "mkfifo in; { echo first; while ! test -e first; do sleep 0.01; done; echo second; } > in & $P touch < in";
    let output = run(&ours(), line, place.path());
    assert!(output.status.success(), "{output:?}");
    assert!(place.path().join("work/second").exists());
}

#[test]
fn a_stopped_run_starts_nothing_more_and_fails() {
    let place = work_directory();
    for (signal, expected) in [("HUP", "1\n"), ("TERM", "1\n"), ("INT", "")] {
        let line = format!("$P -j1 --summary 'kill -{signal} $PARALLEL_PID; sleep 1; echo {{}}' ::: 1 2 3");
        let output = run(&ours(), &line, place.path());
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{signal}: {output:?}");
        assert_eq!(output.status.code(), Some(255), "{signal}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("skipped 2 of 3"), "{signal}: {output:?}");
    }
}

#[test]
fn a_semaphore_runs_so_many_commands_at_once() {
    let place = work_directory();
    let sem = format!("{} sem", testing::surroundings::word(env!("CARGO_BIN_EXE_forkless")));
    let line = "for i in 1 2 3 4; do $P --id x -j1 'echo begin >> log; sleep 0.05; echo end >> log'; done; $P --id x --wait; cat log";
    let output = run(&sem, line, place.path());
    assert_eq!(output.stdout, b"begin\nend\n".repeat(4), "{output:?}");
    let output = run(&sem, "$P --fg --id x 'exit 7'", place.path());
    assert_eq!(output.status.code(), Some(7));
    let line = "$P --id y 'sleep 60 & echo $! > pid; wait'; while ! test -s pid; do sleep 0.01; done; $P --id y --st -0.1 echo; echo $?; kill $(cat pid)";
    let output = run(&sem, line, place.path());
    assert_eq!(output.stdout, b"1\n", "{output:?}");
}

#[test]
fn options_come_from_the_environment_too() {
    let place = work_directory();
    let output = run(&ours(), "PARALLEL='-k --tagstring \"a b\"' $P echo ::: 1", place.path());
    assert_eq!(output.stdout, b"a b\t1\n", "{output:?}");
    let output = run(&ours(), "PARALLEL=--tag $P --plain echo ::: 1", place.path());
    assert_eq!(output.stdout, b"1\n", "{output:?}");
}

#[test]
fn names_that_are_not_utf_8_pass() {
    let place = work_directory();
    let name = std::ffi::OsStr::from_bytes(b"\xff\xfe $(x)");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
    command.args(["parallel", "touch", ":::"]).arg(name).current_dir(place.path());
    assert!(command.stdin(Stdio::null()).status().expect("forkless").success());
    assert!(place.path().join(name).exists());
}

/// The options in the first column of a table row: the long ones, and those that have no long name.
fn options_of(cell: &str) -> Vec<String> {
    cell.split(", ").filter_map(|names| names.split('`').nth(1)).map(str::to_owned).collect()
}

#[test]
fn the_table_of_options_has_each_option_once() {
    let page = include_str!("../../../docs/runner.md");
    let section = page.split("## From GNU parallel").nth(1).expect("a section");
    let section = section.split("\n## ").next().expect("its end");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let (mut supported, mut found) = (Vec::new(), Vec::new());
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert!(["same", "different", "refused"].contains(&cells[2]), "{row}");
        supported.extend(options_of(cells[1]));
    }
    let help = Command::new(env!("CARGO_BIN_EXE_forkless")).args(["parallel", "--help"]).output().expect("forkless");
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    // Further lines of a text are indented by ten.
    let names = help.lines().filter(|line| !line.starts_with("        "));
    for line in names.map(str::trim_start).filter(|line| line.starts_with('-')) {
        let long = line.split([' ', '=', '[', ',']).find(|word| word.starts_with("--"));
        let name = long.or_else(|| line.split([' ', ',']).next()).expect("a name");
        found.push(name.trim_end_matches("...").to_owned());
    }
    found.retain(|name| !["--help", "-h", "--version"].contains(&name.as_str()));
    // Hidden.
    found.extend(["--gnu", "--will-cite"].map(str::to_owned));
    supported.sort();
    found.sort();
    found.dedup();
    assert_eq!(supported, found);
    let text = section.split("These are refused").nth(1).expect("a list").split("###").next().expect("a list");
    let refused: Vec<&str> = text.split('`').filter(|word| word.starts_with("--")).collect();
    assert!(refused.len() > 50, "{refused:?}");
    for option in refused {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
        let output = command.args(["parallel", option, "x", ":::"]).stdin(Stdio::null()).output().expect("forkless");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(words.contains(&format!("{option} is refused")), "{option}: {words}");
    }
}

fn can_trace() -> bool {
    Command::new("strace").args(["-o", "/dev/null", "true"]).status().is_ok_and(|status| status.success())
}

/// The programs that a run executes.
fn executed(line: &str, stdin: &Path, place: &Path) -> Vec<String> {
    let calls = place.join("calls");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", "trace=execve,execveat", "-e", "status=successful", "-o"]).arg(&calls);
    strace.arg(env!("CARGO_BIN_EXE_forkless")).arg("parallel").args(line.split(' '));
    strace.stdin(fs::File::open(stdin).expect("input")).env("PARALLEL_SHELL", "/bin/sh");
    let output = strace.output().expect("strace");
    assert!(output.status.success(), "{line}: {output:?}");
    let text = fs::read_to_string(&calls).expect("calls");
    text.lines().filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

#[test]
fn simple_lines_start_no_shell() {
    let place = work_directory();
    let numbers = place.path().join("work/ten");
    for line in
        ["-j2 /bin/echo", "-j2 -k /bin/echo", "-j2 -u /bin/echo", "-j2 --line-buffer /bin/echo", "--tag env A={}"]
    {
        let programs = executed(line, &numbers, place.path());
        // The runner itself, and its jobs.
        assert_eq!(programs.len(), 11, "{line}: {programs:?}");
        assert!(programs[1..].iter().all(|name| name.ends_with("/echo") || name.ends_with("/env")), "{programs:?}");
    }
}

/// Without a shell, the end of a job is reported as by a shell.
#[test]
fn a_job_killed_by_a_signal_ends_as_in_a_shell() {
    let place = work_directory();
    let killed = place.path().join("work/killed");
    fs::write(&killed, "#!/usr/bin/perl\nprint STDERR 'half';\nkill shift, $$;\n").expect("a program");
    fs::set_permissions(&killed, fs::Permissions::from_mode(0o755)).expect("a mode");
    let of = |command: &str, options: &str, signal: &str| {
        let line = format!("$P {options} --joblog log {command} ::: {signal} 2>&1; echo $?; cut -f7,8 log");
        shown(&run(&ours(), &line, place.path()))
    };
    for signal in ["KILL", "TERM", "SEGV"] {
        for options in ["", "-k", "-u", "--tag", "--line-buffer"] {
            // The second one is a list, for which a shell is needed.
            let by_shell = of("\"sh -c './killed {}'; exit \\$?\"", options, signal);
            assert_eq!(of("./killed {}", options, signal), by_shell, "{signal} {options}");
        }
    }
    // A terminal sends this one to the shell too.
    let interrupted = of("./killed {}", "", "INT");
    assert!(interrupted.ends_with("\n0\t2\n") || interrupted.ends_with("\n130\t0\n"), "{interrupted}");
}

/// The runner's own system calls for so many jobs; without one that only a debug build makes, before each close.
fn calls_of(words: &[&str], jobs: usize, place: &Path) -> usize {
    let (input, calls) = (place.join("input"), place.join("calls"));
    fs::write(&input, "x\n".repeat(jobs)).expect("input");
    let mut strace = Command::new("strace");
    strace.arg("-o").arg(&calls).arg(env!("CARGO_BIN_EXE_forkless")).args(words).arg("/bin/true");
    strace.stdin(fs::File::open(&input).expect("input")).env("PARALLEL_SHELL", "/bin/sh");
    let output = strace.output().expect("strace");
    assert!(output.status.success(), "{words:?}: {output:?}");
    let text = fs::read_to_string(&calls).expect("calls");
    text.lines().filter(|line| !line.contains("F_GETFD") && !line.starts_with("---")).count()
}

#[test]
fn a_job_costs_few_system_calls() {
    let place = work_directory();
    if !can_trace() {
        return println!("SKIPPED: a_job_costs_few_system_calls: strace cannot be used here");
    }
    for (words, most) in
        [(&["xargs", "-n1", "-P2"][..], 6), (&["parallel", "-j2", "-u"], 6), (&["parallel", "-j2", "-k"], 16)]
    {
        let of = |jobs| calls_of(words, jobs, place.path());
        let per_job = (of(320) - of(20)) as f64 / 300.0;
        assert!(per_job <= f64::from(most), "{words:?}: {per_job}");
    }
}

/// What stands around the values is in the first word and in the last one, and both may need quotes.
#[test]
fn lines_with_quotes_are_shorter_than_max_chars() {
    let place = work_directory();
    for (command, limit) in
        ["'{}x y'", "'x y{}z'", "\"{}it's '\""].iter().flat_map(|command| (24..44).map(move |n| (command, n)))
    {
        let line =
            format!("$P -q -m -j1 -s {limit} --dry-run echo {command} ::: 'a b' 1 2 'c d' 3 4 'e f' 5 'g h' i j 'k l'");
        let output = run(&ours(), &line, place.path());
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.lines().count() > 1, "{line}: {output:?}");
        let longest = text.lines().map(str::len).max().unwrap_or(0);
        assert!(longest < limit, "{line}: {longest} bytes: {text}");
    }
}
