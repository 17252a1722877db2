//! `forkless xargs` beside the installed xargs of GNU findutils: output and exit code of many command lines, and of random
//! input.

testing::usual_surroundings!();

use testing::surroundings::word;

use std::{
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

/// Runs a program with this input. The environment is the same for both programs.
fn output(program: &[&str], args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).args(args).env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C");
    command.envs(std::env::var("FORKLESS_PLANTED").map(|fault| ("FORKLESS_PLANTED", fault)));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || {
        // It may not read all of it.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("its output");
    feeder.join().expect("the feeder");
    output
}

fn ours(args: &[&str], input: &[u8]) -> Output {
    output(&[env!("CARGO_BIN_EXE_forkless"), "xargs"], args, input)
}

/// GNU's, or `None` with a message where it is not installed.
fn theirs(args: &[&str], input: &[u8]) -> Option<Output> {
    let version = Command::new("xargs").arg("--version").output();
    if !version.is_ok_and(|version| String::from_utf8_lossy(&version.stdout).contains("findutils")) {
        eprintln!("SKIPPED: comparison with GNU findutils' xargs, which is not installed");
        return None;
    }
    Some(output(&["xargs"], args, input))
}

fn is_same(args: &[&str], input: &[u8]) -> bool {
    let Some(theirs) = theirs(args, input) else { return false };
    let ours = ours(args, input);
    let input = String::from_utf8_lossy(input);
    assert_eq!(
        (String::from_utf8_lossy(&ours.stdout), ours.status.code()),
        (String::from_utf8_lossy(&theirs.stdout), theirs.status.code()),
        "{args:?} with {input:?}:\n{}\n{}",
        String::from_utf8_lossy(&ours.stderr),
        String::from_utf8_lossy(&theirs.stderr),
    );
    // Errors have messages on both sides. Warnings are each one's own.
    assert!(!ours.stderr.is_empty() || theirs.status.success() || theirs.status.code() == Some(123), "{args:?}");
    true
}

/// Options, each with these inputs.
const OPTIONS: [&[&str]; 34] = [
    &[],
    &["-n1"],
    &["-n", "2"],
    &["--max-args=3"],
    &["--max-a", "2"],
    &["-L1"],
    &["-L", "2"],
    &["-l"],
    &["-l2"],
    &["--max-lines=2"],
    &["-I{}"],
    &["-I", "X"],
    &["-i"],
    &["-iX"],
    &["--replace"],
    &["--replace=X"],
    &["-0"],
    &["--null", "-n1"],
    &["-d,"],
    &["-d", "\\n"],
    &["-d\\t", "-n1"],
    &["-d", "\\x2c"],
    &["-d\\054", "-L2"],
    &["-s", "40"],
    &["-s40", "-x"],
    &["-xs40", "-n9"],
    &["-E_"],
    &["-e_", "-n1"],
    &["--eof=_"],
    &["-E", "_", "-e"],
    &["-r"],
    &["-n2", "-I{}"],
    &["-I{}", "-n2"],
    &["-rn1", "-L2"],
];

const INPUTS: [&str; 5] = [
    "a b  c\n d e\n",
    "one two\n\n  'three four' \"five\" si\\ x \n_ seven,eight\tnine\nten",
    "",
    "a,b\nc _ d\n\na\0b",
    "x '' y \\\nz \n \"un\nmatched'",
];

#[test]
fn many_command_lines_give_what_findutils_gives() {
    let mut compared = 0;
    for options in OPTIONS {
        for input in INPUTS {
            let words: &[&str] = &["printf", "<%s>", "{}-X-{}"];
            let replaces = options.iter().any(|option| option.contains('I') || option.contains('i'));
            let words = if replaces { words } else { &words[..2] };
            compared += usize::from(is_same(&[options, words].concat(), input.as_bytes()));
        }
    }
    assert!(compared == 0 || compared >= 170);
}

/// With -I the limit is for the whole command, after the replacement.
#[test]
fn limit_of_a_replaced_command_is_that_of_findutils() {
    for limit in 5..30 {
        let limit = format!("-s{limit}");
        is_same(&["-IARG", &limit, "echo", "ARG"], b"999999999\n1\n");
        is_same(&["-IARG", &limit, "echo", "xARGxARG", "a-longer-word"], b"9\n");
    }
}

/// The next process that reads the same file begins where xargs has ended.
#[test]
fn unused_input_of_a_file_is_left_for_the_next_process() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("input");
    std::fs::write(&path, "1\n2\n3 4\n5\n").expect("a file");
    let read = |xargs: &str, options: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{xargs} {options}; echo =; cat")]);
        let input = std::fs::File::open(&path).expect("the file");
        let output = command.env("F", word(env!("CARGO_BIN_EXE_forkless"))).stdin(input).output().expect("a shell");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for options in ["-E 2", "-E 3", "-E 5", "-n1 -E 2", "-E none"] {
        let ours = read("\"$F\" xargs", options);
        if theirs(&[], b"").is_some() {
            assert_eq!(ours, read("xargs", options), "{options}");
        }
        assert!(options != "-E 2" || ours == "1\n=\n3 4\n5\n", "{options}: {ours}");
    }
}

#[test]
fn exit_codes_are_those_of_findutils() {
    let lines: [(&[&str], &str); 30] = [
        (&["sh", "-c", "exit 0"], "a"),
        (&["sh", "-c", "exit 1"], "a"),
        (&["sh", "-c", "exit 125"], "a"),
        (&["sh", "-c", "exit 126"], "a"),
        (&["sh", "-c", "exit 254"], "a"),
        (&["sh", "-c", "exit 255"], "a"),
        (&["sh", "-c", "kill -9 $$"], "a"),
        (&["sh", "-c", "kill -15 $$"], "a"),
        (&["no-such-program-at-all"], "a"),
        (&["/"], "a"),
        (&["/etc/passwd"], "a"),
        (&["-n1", "sh", "-c", "echo $0; exit $0"], "0 1 0"),
        (&["-n1", "sh", "-c", "echo $0; exit $0"], "0 255 0"),
        (&["-n1", "sh", "-c", "echo $0; exit $0"], "3 255"),
        (&["-n1", "no-such-program-at-all"], "1 2 3"),
        (&["-n0", "echo"], "a"),
        (&["-L0", "echo"], "a"),
        (&["-s0", "echo"], "a"),
        (&["-nx", "echo"], "a"),
        (&["-P-1", "echo"], "a"),
        (&["--bogus"], "a"),
        (&["-Z"], "a"),
        (&["-n"], "a"),
        (&["-dxy", "echo"], "a"),
        (&["-d\\q", "echo"], "a"),
        (&["-I", "", "echo", "a"], "a"),
        (&["-a", "/no/such/file", "echo"], "a"),
        (&["--process-slot-var=A=B", "echo"], "a"),
        (&["-s6", "echo"], "aa"),
        (&["-s3", "echo"], "a"),
    ];
    for (args, input) in lines {
        is_same(args, input.as_bytes());
    }
}

/// A program that ends as its argument says, or vanishes, or can no longer be executed.
const ENDS: &str = "#!/bin/sh\necho $1\ncase $1 in k) kill -9 $$;; gone) rm -f prog; exit 0;; noexec) chmod a-x prog; exit 0;; \
                    esac\nexit $1\n";

/// The exit code after these ends, one after the other. `None`: xargs is not there.
fn code_after(ends: &[&str], program: &str) -> Option<(String, Option<i32>)> {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("prog");
    std::fs::write(&file, ENDS).expect("a program");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    let line = format!("cd {}; echo {} | {program} -n1 ./prog", place.path().display(), ends.join(" "));
    let output = Command::new("sh").arg("-c").arg(line).stdin(Stdio::null()).output().ok()?;
    Some((String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code()))
}

/// What stops the run decides on the exit code, whatever failed before. findutils before 4.10 reports 123 then, if a command has
/// failed and there are further arguments.
#[test]
fn the_end_that_stops_the_run_decides_on_the_exit_code() {
    let compares = theirs(&["true"], b"").is_some();
    let forkless = format!("{} xargs", word(env!("CARGO_BIN_EXE_forkless")));
    let firsts = [&["0"][..], &["1"], &["126"], &["127"], &["254"], &[]];
    // Each with its code, alone and when another command would follow.
    let stops =
        [("255", 124, 124), ("k", 125, 125), ("gone", 0, 127), ("noexec", 0, 126), ("1", 123, 123), ("0", 0, 0)];
    for first in firsts {
        for (stop, at_the_end, before_others) in stops {
            for last in [&[][..], &["0"], &["1"]] {
                let ends = [first, &[stop], last].concat();
                let mut expected = if last.is_empty() { at_the_end } else { before_others };
                let has_failed = first.iter().chain(last.iter().filter(|_| expected == 0)).any(|end| *end != "0");
                if expected == 0 && has_failed {
                    expected = 123;
                }
                let ours = code_after(&ends, &forkless).expect("forkless");
                assert_eq!(ours.1, Some(expected), "{ends:?}");
                let differs = first.iter().any(|end| *end != "0") && expected > 123 && !last.is_empty();
                if compares {
                    let theirs = code_after(&ends, "xargs").expect("xargs");
                    assert_eq!(theirs.0, ours.0, "{ends:?}");
                    let is_old = differs && theirs.1 == Some(123);
                    assert!(is_old || theirs.1 == Some(expected), "{ends:?}: {theirs:?}");
                }
            }
        }
    }
}

/// A command that reads gets nothing, and takes no argument of a later one. With `-a` it gets what the runner has.
#[test]
fn commands_do_not_read_the_arguments() {
    let forkless = format!("{} xargs", word(env!("CARGO_BIN_EXE_forkless")));
    for (line, expected) in [
        ("{ echo a; sleep 0.2; echo b; } | $X -n1 sh -c 'echo $0; wc -c'", "a\n0\nb\n0\n"),
        ("echo a > args; echo b | $X -a args sh -c 'echo $0; cat'", "a\nb\n"),
    ] {
        let programs = [Some(forkless.as_str()), theirs(&[], b"").map(|_| "xargs")];
        for program in programs.into_iter().flatten() {
            let place = tempfile::tempdir().expect("a directory");
            let mut shell = Command::new("sh");
            let output = shell.args(["-c", line]).env("X", program).current_dir(place.path()).output().expect("sh");
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{program}: {line}: {output:?}");
        }
    }
}

/// SIGUSR2 takes a slot away: the third command starts when both others have ended.
#[test]
fn sigusr2_removes_a_slot() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().display().to_string();
    // The first two see each other, the second one takes a slot away, and the first one ends. The third one must not start
    // while the second one runs, which ends when nothing has happened for a while.
    let script = format!(
        "cd {directory}; touch run-$0; case $0 in 1) until test -e run-2; do sleep 0.01; done; until test -e sent; do sleep 0.01; \
         done;; 2) kill -USR2 $PPID; touch sent; sleep 1; test ! -e run-3; echo $?;; esac"
    );
    let output = ours(&["-P2", "-n1", "sh", "-c", &script], b"1 2 3");
    assert_eq!(
        (String::from_utf8_lossy(&output.stdout).as_ref(), output.status.code()),
        ("0\n", Some(0)),
        "{output:?}"
    );
}

#[test]
fn other_options_do_what_those_of_findutils_do() {
    let lines: [(&[&str], &str); 16] = [
        (&[], "a b\n"),
        (&["--", "echo", "-n"], "a b"),
        (&["echo", "-n", "-x"], "a b"),
        (&["-P4", "-n1", "true"], "a b c d e"),
        (&["-P0", "-n1", "true"], "a b c d e"),
        (&["--process-slot-var=SLOT", "-I_", "sh", "-c", "echo $SLOT _"], "a\nb\n"),
        (&["--process-slot-var", "SLOT", "-n1", "env"], "A=1 B=2"),
        (&["cat"], ""),
        (&["-a", "/etc/hostname", "sh", "-c", "cat; echo $0"], "the input"),
        (&["--arg-file=/dev/null", "-r", "echo"], "a"),
        (&["-I{}", "{}"], "echo"),
        (&["-I{}", "echo", "{}{}", "a{}b", "{"], "  x y  \n\n'q'\n"),
        (&["-t", "echo"], "a b"),
        (&["-n1", "-I{}", "echo", "{}-"], "a b\nc"),
        (&["-L1", "-n1", "echo"], "a b\nc"),
        (&["-n1", "-L1", "echo"], "a b\nc"),
    ];
    for (args, input) in lines {
        is_same(args, input.as_bytes());
    }
}

/// Of options that exclude each other the last one counts, and a warning names the other one.
#[test]
fn each_pair_of_options_that_exclude_each_other_has_a_warning_where_findutils_has_one() {
    const PACKING: [&str; 10] =
        ["-n1", "-n2", "--max-args=1", "--max-a=2", "-L1", "-l", "--max-lines=2", "-I{}", "-i", "--replace={}"];
    let warnings = |output: &Output| String::from_utf8_lossy(&output.stderr).matches("warning: ").count();
    for (one, other) in PACKING.iter().flat_map(|one| PACKING.map(|other| (*one, other))) {
        let args = [one, other, "echo", "{}"];
        if is_same(&args, b"a b\nc d\n") {
            let [ours, theirs] = [ours(&args, b"a\n"), theirs(&args, b"a\n").expect("as before")];
            assert_eq!(warnings(&ours), warnings(&theirs), "{args:?}: {ours:?}, {theirs:?}");
        }
    }
}

/// The commands have the same arguments where many thousands do not fit into one.
#[test]
fn long_input_is_packed_to_the_same_limit() {
    let short: String = (0..70_000).map(|n| if n % 7 == 0 { "b\n" } else { "a " }).collect();
    let long: String = (1..6).map(|n| format!("{}\n", "x".repeat(n * 25_000))).collect();
    let too_long = format!("a {} b\n", "x".repeat(140_000));
    for input in [&short, &long, &too_long] {
        for options in [&[][..], &["-s", "4096"], &["-s100000", "-n300"], &["-L100"]] {
            is_same(&[options, &["sh", "-c", "echo $# ${#1}", "x"]].concat(), input.as_bytes());
        }
    }
}

/// `-s` allows more than the kernel takes as one argument.
#[test]
fn an_argument_that_no_command_can_have_is_an_error_of_the_input() {
    let input = format!("a\n{}\nb\n", "x".repeat(140_000));
    let each = ["-s1000000", "-n1", "sh", "-c", "echo $#", "x"];
    is_same(&each, input.as_bytes());
    // Here findutils exits with 126.
    for (options, expected) in [(&each[..], "1\n"), (&["-s1000000", "-I{}", "echo", "<{}>"], "<a>\n")] {
        let output = ours(options, input.as_bytes());
        let found = String::from_utf8_lossy(&output.stdout);
        assert_eq!((output.status.code(), &*found), (Some(1), expected), "{options:?}");
    }
}

/// Random input, the same in each run.
#[test]
fn random_input_is_read_as_findutils_reads_it() {
    const PARTS: [&[u8]; 26] = [
        b"a",
        b"b",
        b"_",
        b" ",
        b"  ",
        b"\t",
        b"\n",
        b"\n\n",
        b"\"",
        b"'",
        b"\\",
        b",",
        b"\0",
        b"\x0b",
        b"\x0c",
        b"\r",
        b"{}",
        b"X",
        b"cc",
        b"dddddddddddd",
        b"\"q r\"",
        b"'s'",
        b"''",
        b"\\\n",
        b" _ ",
        b"\xff",
    ];
    let mut random: u64 = 20_251_122;
    let mut next = |most: usize| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as usize % most
    };
    for _ in 0..250 {
        let options = OPTIONS[next(OPTIONS.len())];
        let mut input: Vec<u8> = (0..next(15)).flat_map(|_| PARTS[next(PARTS.len())].to_vec()).collect();
        if next(2) == 0 {
            input.push(b'\n');
        }
        if !is_same(&[options, &["printf", "<%s>", "{}-X"]].concat(), &input) {
            return;
        }
    }
}

/// The first command waits for the second one's mark, so both run at once.
#[test]
fn commands_run_at_once_as_their_arguments_come() {
    let place = tempfile::tempdir().expect("a directory");
    let mark = place.path().join("mark").display().to_string();
    let script = format!("if test $0 = 1; then until test -e {mark}; do sleep 0.01; done; else touch {mark}; fi");
    let output = ours(&["-P2", "-n1", "sh", "-c", &script], b"1 2");
    assert!(output.status.success(), "{output:?}");
}

/// SIGUSR1 makes room for the second command, which the first one waits for.
#[test]
fn sigusr1_adds_a_slot() {
    let place = tempfile::tempdir().expect("a directory");
    let mark = place.path().join("mark").display().to_string();
    let wait = format!("until test -e {mark}; do sleep 0.01; done");
    let script = format!("if test $0 = 1; then kill -USR1 $PPID; {wait}; else touch {mark}; fi");
    let output = ours(&["-n1", "sh", "-c", &script], b"1 2");
    assert!(output.status.success() && Path::new(&mark).exists(), "{output:?}");
}

/// With a limit of processes as small as this, launches fail until other commands have ended.
#[test]
fn all_commands_run_where_descriptors_are_few() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("ran").display().to_string();
    let words = ["-c", "ulimit -n 14; exec \"$0\" xargs -P 60 -n 1 sh -c \"sleep 0.0$1; echo $1 >> $1\" x", ""];
    let script = words[1].replace("echo $1 >> $1", &format!("echo \\$1 >> {file}")).replace("0.0$1", "0.01");
    let args: String = (0..200).map(|n| format!("{n} ")).collect();
    let output = output(&["sh", "-c", &script], &[env!("CARGO_BIN_EXE_forkless")], args.as_bytes());
    assert!(output.status.success(), "{output:?}");
    let ran = std::fs::read_to_string(&file).expect("the file");
    let mut numbers: Vec<u32> = ran.lines().map(|line| line.parse().expect("a number")).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..200).collect::<Vec<_>>());
}
