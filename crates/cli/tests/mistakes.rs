//! Mistakes of users: the message names what is wrong and what would be right, in one or two lines.

testing::usual_surroundings!();

mod callers;
#[path = "mistakes/places.rs"]
mod places;
#[path = "mistakes/table.rs"]
mod table;

use std::{
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Command, ExitStatus, Output, Stdio},
};

use callers::{Caller, binary, skipped};
use places::Place;

/// Who makes the mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    All,
    Root,
    User,
}

/// What the kernel must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    Landlock,
    UserNamespaces,
}

/// Who, what is needed, the words, the exit code as a shell shows it, what is wrong, and what would be right. In the last two, `|` separates
/// alternatives that depend on the machine.
type Row = (Who, Need, &'static str, i32, &'static [&'static str], &'static [&'static str]);

#[test]
fn each_mistake_is_named_with_its_remedy() {
    let mut wrong = Vec::new();
    let mut answered = 0;
    let with_namespaces = Caller::with_user_namespaces("mistakes in user namespaces");
    for caller in Caller::all("mistakes") {
        let place = Place::new();
        let has_landlock = has_landlock(caller);
        for row in table::ROWS {
            let (who, need, ..) = row;
            let makes = *who == Who::All || (*who == Who::Root) == (caller == Caller::Root);
            let has = match need {
                Need::Nothing => true,
                Need::Landlock => has_landlock,
                Need::UserNamespaces => with_namespaces.contains(&caller),
            };
            if makes && has {
                answered += 1;
                wrong.extend(complaints(caller, &place, row));
            }
        }
    }
    eprintln!("{} mistakes, {answered} answers checked", table::ROWS.len());
    assert!(table::ROWS.len() >= 120);
    assert!(wrong.is_empty(), "{} wrong answers:\n{}", wrong.len(), wrong.join("\n"));
}

/// What is wrong with the answer to a mistake.
fn complaints(caller: Caller, place: &Place, row: &Row) -> Option<String> {
    let (_, _, line, code, names, suggests) = row;
    let output = run(caller, place, line);
    let words = String::from_utf8_lossy(&output.stderr);
    let ours =
        || words.lines().filter(|line| line.starts_with("forkless: ") || line.starts_with("forkless parallel: "));
    let any = |alternatives: &str| alternatives.split('|').any(|one| ours().any(|line| line.contains(one)));
    let mut wrong = Vec::new();
    if shown(output.status) != *code {
        wrong.push(format!("{} instead of exit code {code}", output.status));
    }
    wrong.extend(names.iter().chain(*suggests).filter(|part| !any(part)).map(|part| format!("{part:?} is missing")));
    if !(1..=2).contains(&ours().count()) {
        wrong.push("not one or two lines".to_owned());
    }
    // Others, such as the dynamic loader, write only after the program was started.
    if [2, 125, 255].contains(code) && ours().count() != words.lines().count() {
        wrong.push("lines that are not messages of forkless".to_owned());
    }
    (!wrong.is_empty()).then(|| format!("{caller:?}: forkless {line}\n  {}\n  {words:?}", wrong.join(", ")))
}

/// The exit code as a shell shows it: forkless dies by the signal that its program died of.
fn shown(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).expect("an ending")
}

fn run(caller: Caller, place: &Place, line: &str) -> Output {
    let word = |word: &str| match word {
        "''" => String::new(),
        "$LONG" => "x".repeat(100_000),
        _ => word.replace('^', " ").replace("$D", place.path()),
    };
    let mut command: Command = caller.shell(binary());
    command.arg0("forkless").args(line.split(' ').map(word)).current_dir(place.path());
    command.env("PATH", format!("{}/bin:/usr/bin:/bin", place.path())).env("LC_ALL", "C").stdin(Stdio::null());
    // The tests may run in a job of Slurm, or of a CI that numbers its parts.
    for name in ["SLURM_JOB_ID", "SLURM_PROCID", "CI_NODE_INDEX", "CIRCLE_NODE_INDEX", "BUILDKITE_PARALLEL_JOB"] {
        command.env_remove(name);
    }
    command.output().expect("forkless starts")
}

fn has_landlock(caller: Caller) -> bool {
    let output = caller.output(&["--no-new-privs", "--landlock-access=fs:make-sock", "true"]);
    if !output.status.success() {
        skipped(&format!("mistakes with Landlock as {caller:?}"), &format!("there is none: {output:?}"));
    }
    output.status.success()
}

/// A working directory that does not exist anymore.
#[test]
fn program_in_a_removed_directory_is_named() {
    let caller = Caller::Ordinary;
    let place = Place::new();
    let gone = format!("{}/gone", place.path());
    std::fs::create_dir(&gone).expect("a directory");
    let script = format!("cd {gone} && rmdir {gone} && exec \"$0\" run ./program");
    let mut command = caller.shell("sh");
    let output = command.args(["-c", &script, binary()]).current_dir(place.path()).output().expect("sh");
    let words = String::from_utf8_lossy(&output.stderr);
    if words.contains("rmdir") {
        return skipped("program_in_a_removed_directory_is_named", &words);
    }
    assert_eq!(output.status.code(), Some(127), "{words}");
    assert!(words.contains("the working directory was removed"), "{words}");
}

/// What cannot be written is an error, and not lost.
#[test]
fn full_disk_is_reported() {
    for option in ["--explain", "--capture", "--pty"] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
        let mut command = Caller::Ordinary.forkless(&[option, "echo", "words"]);
        let output = command.stdout(full).stdin(Stdio::null()).output().expect("forkless starts");
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{option}: {words}");
        assert!(words.starts_with("forkless: cannot write ") && words.contains("No space left"), "{option}: {words}");
    }
}

/// Messages have nowhere to go, and the exit code still tells.
#[test]
fn closed_streams_leave_the_exit_code() {
    for (words, code) in [("--nonsense true", 125), ("no-such-program-anywhere", 127), ("/", 126), ("true", 0)] {
        let script = format!("\"$0\" run {words} <&- >&- 2>&-");
        let mut command = Caller::Ordinary.shell("sh");
        command.env("PATH", "/usr/bin:/bin");
        let status = command.args(["-c", &script, binary()]).status().expect("sh");
        assert_eq!(status.code(), Some(code), "{words}");
    }
}

/// How a program ends that cannot load its libraries depends on the C library.
#[test]
fn filter_that_keeps_the_program_from_starting_is_blamed() {
    let output = Caller::Ordinary.output(&["--no-new-privs", "--system-call-filter=read", "true"]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{words}");
    let said = words.lines().filter(|line| line.starts_with("forkless: ")).collect::<Vec<_>>();
    assert_eq!(said.len(), 1, "{words}");
    for part in ["\"true\"", "under a seccomp filter", "--system-call-filter refuses mmap, ", "allow them"] {
        assert!(said[0].contains(part), "{part}: {words}");
    }
}

/// A filter may refuse calls that a program can start without.
#[test]
fn filter_that_lets_the_program_start_is_not_blamed() {
    for (filter, script, code) in [("~ptrace", "kill -SEGV $$", 139), ("~brk", "true", 0), ("~ptrace", "exit 127", 127)]
    {
        let filter = format!("--system-call-filter={filter}");
        let output = Caller::Ordinary.output(&["--no-new-privs", "--supervise", &filter, "sh", "-c", script]);
        assert_eq!((shown(output.status), &output.stderr[..]), (code, &b""[..]), "{filter}: {output:?}");
    }
}

#[test]
fn capture_keeps_64_mib_by_default_and_reports_the_rest() {
    const KEPT: usize = 64 << 20;
    let output = Caller::Ordinary.output(&["--capture", "head", "-c", "67208864", "/dev/zero"]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), KEPT), "{words}");
    assert!(words.contains("dropped 100000 bytes of standard output after the first 64 MiB"), "{words}");
    assert!(words.contains("--limit-output=BYTES"), "{words}");
    let all =
        Caller::Ordinary.output(&["--capture", "--limit-output=unlimited", "head", "-c", "67208864", "/dev/zero"]);
    assert_eq!((all.stdout.len(), &all.stderr[..]), (67_208_864, &b""[..]));
}
