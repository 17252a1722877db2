//! Help: `-h`, topics, `--help`, the man pages with their examples, and the table of other tools' options.

testing::usual_surroundings!();

mod callers;

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use callers::skipped;

const RUN_TEXT: &str = include_str!("../src/help/man/run.md");
/// The pages with their examples, which run here, and the least number of them. `gearman.rs` runs those of gearman-worker.
const TEXTS: [(&str, &str, usize); 7] = [
    ("run", RUN_TEXT, 10),
    ("forkless", include_str!("../src/help/man/forkless.md"), 5),
    ("parallel", include_str!("../src/help/man/parallel.md"), 4),
    ("completions", include_str!("../src/help/man/completions.md"), 2),
    ("man", include_str!("../src/help/man/man.md"), 2),
    ("doctor", include_str!("../src/help/man/doctor.md"), 2),
    ("xargs", include_str!("../src/help/man/xargs.md"), 3),
];

fn output(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
    command.args(words).env("COLUMNS", "80").output().expect("forkless starts")
}

/// Its output, after checking that it exited with 0.
fn stdout(words: &[&str]) -> String {
    let output = output(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    assert!(output.stderr.is_empty(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The visible subcommands.
fn subcommands() -> Vec<String> {
    let help = stdout(&["--help"]);
    let list = help.split("Commands:\n").nth(1).expect("commands").split("\n\n").next().expect("a list").to_owned();
    // Further lines of a text are indented by more.
    let first = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = first.filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
    // `bench` is a program of its own.
    names.filter(|name| !["help", "bench"].contains(&name.as_str())).collect()
}

/// The long options that begin a line.
fn options(help: &str) -> BTreeSet<String> {
    // Further lines of a text may begin with an option, too.
    let indented = |line: &str| line.len() - line.trim_start().len();
    let spec =
        |line: &str| (line.trim_start().starts_with('-') && indented(line) <= 6).then(|| line.trim_start().to_owned());
    let long = |line: String| {
        let name = line.split_whitespace().find(|word| word.starts_with("--"))?.to_owned();
        Some(name.split(['[', '=', '<']).next().unwrap_or_default().to_owned())
    };
    help.lines().filter_map(spec).filter_map(long).collect()
}

/// The names under "Topics:" of `-h` of `forkless run`.
fn topics() -> Vec<String> {
    topics_of("run")
}

fn topics_of(subcommand: &str) -> Vec<String> {
    let help = stdout(&[subcommand, "-h"]);
    let list = help.split("Topics:\n").nth(1).expect("topics").split("\n\n").next().expect("a list").to_owned();
    list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn short_help_has_at_most_60_lines_of_80_columns() {
    for name in subcommands() {
        let help = stdout(&[&name, "-h"]);
        assert!(help.lines().count() <= 60, "{name}: {} lines\n{help}", help.lines().count());
        let long = help.lines().find(|line| line.chars().count() > 80);
        assert!(long.is_none(), "{name}: {long:?}");
    }
    let help = stdout(&["run", "-h"]);
    assert_eq!(options(help.split("Topics:").next().expect("options")).len(), 20, "{help}");
    assert!(topics().len() > 12, "{help}");
}

#[test]
fn topics_have_all_options_each_once() {
    let has_topics = |name: &String| stdout(&[name, "-h"]).contains("Topics:\n");
    let with_topics: Vec<String> = subcommands().into_iter().filter(has_topics).collect();
    for (subcommand, least) in [("run", 100), ("parallel", 80)] {
        assert!(with_topics.iter().any(|name| name == subcommand), "{with_topics:?}");
        assert!(options(&stdout(&[subcommand, "--help"])).len() > least, "{subcommand}");
    }
    for subcommand in &with_topics {
        let all = options(&stdout(&[subcommand, "--help"]));
        let topics = topics_of(subcommand);
        let names: BTreeSet<&String> = topics.iter().collect();
        assert_eq!(names.len(), topics.len(), "{subcommand}: two topics have one name: {topics:?}");
        let mut found = BTreeSet::new();
        for topic in &topics {
            let page = stdout(&[subcommand, "--help", topic]);
            assert!(page.contains("Usage: forkless ") && !page.contains("PROGRAM]..."), "{page}");
            for option in options(&page) {
                assert!(found.insert(option.clone()), "{subcommand}: {option} is in two topics");
            }
        }
        let general = ["--help", "--version"].map(str::to_owned);
        let without: Vec<_> = all.difference(&found).filter(|option| !general.contains(option)).collect();
        assert!(without.is_empty(), "{subcommand}: {without:?} are in no topic");
        assert!(found.is_subset(&all));
    }
}

#[test]
fn topic_may_be_abbreviated_or_an_option() {
    assert_eq!(stdout(&["run", "--help", "mount"]), stdout(&["run", "--help", "mounts"]));
    assert_eq!(options(&stdout(&["run", "--help", "nofile"])), BTreeSet::from(["--nofile".to_owned()]));
    assert_eq!(stdout(&["run", "--help", "all"]), stdout(&["run", "--help"]));
}

#[test]
fn unknown_topic_is_an_error_that_names_the_topics() {
    let output = output(&["run", "--help", "nonsense"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty());
    let words = String::from_utf8(output.stderr).expect("text");
    for topic in topics() {
        assert!(words.contains(&topic), "{topic}: {words}");
    }
    assert!(words.contains("nonsense"), "{words}");
}

#[test]
fn help_names_the_topics() {
    let help = stdout(&["run", "--help"]);
    let list = help.split("Topics:").nth(1).expect("topics").split("\n\n").next().expect("a list").replace('\n', " ");
    for topic in topics() {
        assert!(list.split([',', ' ']).any(|word| word == topic), "{topic}: {list}");
    }
}

#[test]
fn help_after_the_program_belongs_to_the_program() {
    for words in [&["sh", "--help", "files"][..], &["sh", "-h"], &["sh", "-V"], &["A=1", "sh", "--help"]] {
        let (program, rest) = words.split_at(words.iter().position(|word| *word == "sh").expect("a program") + 1);
        let given = [&["run"], program, &["-c", "echo \"$@\"", "sh"], rest].concat();
        assert_eq!(stdout(&given), rest.join(" ") + "\n", "{given:?}");
    }
    // Also between other options, and in a group of letters.
    assert_eq!(stdout(&["run", "-i", "--help", "files"]), stdout(&["run", "--help", "files"]));
    assert_eq!(stdout(&["run", "-ih"]), stdout(&["run", "-h"]));
}

#[test]
fn version_is_printed_for_each_subcommand() {
    let version = stdout(&["--version"]);
    let number = version.strip_prefix("forkless ").expect("a version").trim();
    assert_eq!(stdout(&["-V"]), version);
    for name in subcommands() {
        for flag in ["-V", "--version"] {
            assert_eq!(stdout(&[&name, flag]), format!("forkless-{name} {number}\n"));
        }
    }
}

// ---- aliases ----

#[test]
fn names_of_other_tools_are_accepted() {
    let document = include_str!("../../../docs/run.md");
    let section = document.split("## Coming from other tools").nth(1).expect("the table");
    let table = section.split("\n## ").next().expect("a section");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let tools = ["env", "timeout", "setpriv", "unshare", "bwrap", "prlimit", "nice", "taskset", "systemd-run"];
    for tool in tools {
        assert!(rows.iter().any(|row| row[0] == format!("`{tool}`")), "{tool}");
    }
    let mut checked = 0;
    for row in &rows {
        let ours = if row[2] == "the same" { row[1] } else { row[2] };
        for words in ours.split('`').skip(1).step_by(2) {
            // Parsing ends at --help, but only after what precedes it was accepted.
            let words: Vec<&str> = ["run"].into_iter().chain(words.split(' ')).chain(["--help", "files"]).collect();
            let output = output(&words);
            assert!(output.status.success(), "{words:?}: {output:?}");
            checked += 1;
        }
    }
    assert!(checked > 90, "{checked}");
}

#[test]
fn aliases_do_what_their_options_do() {
    for option in ["--cwd", "--working-directory", "--wd", "--chdir", "-C"] {
        assert_eq!(stdout(&["run", option, "/", "pwd"]), "/\n", "{option}");
    }
    assert_eq!(stdout(&["run", "--clearenv", "--setenv", "A=1", "env"]), "A=1\n");
    assert_eq!(stdout(&["run", "--unsetenv", "HOME", "sh", "-c", "echo ${HOME-none}"]), "none\n");
    assert_eq!(output(&["run", "--timeout", "10s10ms", "-k", "1m30s", "-s", "INT", "true"]).status.code(), Some(0));
    let limit = stdout(&["run", "--fsize", "1MiB", "sh", "-c", "ulimit -f"]);
    assert_eq!(limit, stdout(&["run", "--fsize", "1M", "sh", "-c", "ulimit -f"]));
    let ambiguous = output(&["run", "--fsize", "1MB", "true"]);
    assert_eq!(ambiguous.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&ambiguous.stderr).contains("MB is ambiguous: use M or MiB"), "{ambiguous:?}");
}

#[test]
fn quiet_silences_remarks_but_no_errors() {
    let words = |option: &'static str| -> Vec<&str> {
        // Only root may protect a process from the OOM killer.
        vec!["--best-effort=oom-score", "--oom-score-adj=-1000", option, "sh", "-c", "echo ran"]
    };
    for caller in callers::Caller::all("quiet_silences_remarks_but_no_errors") {
        if caller == callers::Caller::Root {
            continue;
        }
        let loud = caller.output(&words("--supervise"));
        assert!(String::from_utf8_lossy(&loud.stderr).contains("skipped: "), "{loud:?}");
        for option in ["-q", "--quiet"] {
            let quiet = caller.output(&words(option));
            assert_eq!((quiet.stdout.as_slice(), quiet.stderr.as_slice()), (&b"ran\n"[..], &b""[..]), "{quiet:?}");
        }
        assert!(caller.failure(&["-q", "--chdir", "/nonexistent", "true"]).contains("/nonexistent"));
    }
}

#[test]
fn user_may_be_given_with_its_group() {
    let Some(root) = callers::Caller::root_with("user_may_be_given_with_its_group", 7) else { return };
    let ids = |option: &str| root.stdout(&[option, "sh", "-c", "echo $(id -u) $(id -g) $(id -G)"]);
    assert_eq!(ids("--user=12345:54321"), "12345 54321 54321\n");
    assert_eq!(ids("--user=daemon:12"), "1 12 12\n");
    assert_eq!(ids("--uid=1"), ids("--reuid=daemon"));
    assert_eq!(root.stdout(&["--uid=1", "--gid=12", "--clear-groups", "id", "-g"]), "12\n");
    for (words, wrong) in [(&["--user=1:"][..], "USER:GROUP"), (&["--user=1:1", "--gid=2"], "excludes --regid")] {
        assert!(root.failure(&[words, &["true"]].concat()).contains(wrong), "{words:?}");
    }
}

// ---- man pages ----

/// Is the tool here? Its absence is printed.
fn has(tool: &str, test: &str) -> bool {
    let found = Command::new("sh").args(["-c", "command -v \"$1\"", "sh", tool]).output().expect("sh").status.success();
    if !found {
        skipped(test, &format!("{tool} is not installed"));
    }
    found
}

#[test]
fn man_pages_are_written_for_all_subcommands() {
    let place = tempfile::tempdir().expect("temporary directory");
    let directory = place.path().join("man1");
    stdout(&["man", "--dir", directory.to_str().expect("text")]);
    for name in subcommands() {
        let text = fs::read_to_string(directory.join(format!("forkless-{name}.1"))).expect("a page");
        assert_eq!(text, stdout(&["man", &name]));
        let plain = text.replace("\\-", "-");
        for option in options(&stdout(&[&name, "--help"])) {
            assert!(plain.contains(&format!("\\fB{option}\\fR")), "{name}: {option}");
        }
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"SEE ALSO\""] {
            assert!(text.contains(&format!("\n.SH {section}\n")), "{name}: {section}");
        }
    }
    let run = stdout(&["man", "run"]);
    for section in ["\"EXIT STATUS\"", "ENVIRONMENT", "EXAMPLES", "NOTES"] {
        assert!(run.contains(&format!("\n.SH {section}\n")), "{section}");
    }
    let document = include_str!("../../../docs/run.md");
    assert_eq!(run.contains("\n.SH SIGNALS\n"), document.contains("\n## Signals"));
    for code in ["124", "125", "126", "127", "128+n"] {
        assert!(run.contains(&format!(".TP\n\\fB{code}\\fR\n")), "{code}");
    }
    let none = output(&["man", "nonsense"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("the pages are forkless, run"), "{none:?}");
}

/// The sections of a page, in order.
fn sections(page: &str) -> Vec<(&str, &str)> {
    let parts = page.split("\n.SH ").skip(1).filter_map(|part| part.split_once('\n'));
    parts.map(|(title, text)| (title.trim_matches('"'), text)).collect()
}

#[test]
fn man_pages_begin_with_examples() {
    for name in subcommands().into_iter().chain(["forkless".to_owned()]) {
        let page = stdout(&["man", &name]);
        let sections = sections(&page);
        let titles: Vec<&str> = sections.iter().map(|(title, _)| *title).collect();
        assert_eq!(titles[..4], ["NAME", "SYNOPSIS", "EXAMPLES", "DESCRIPTION"], "{name}");
        let once: BTreeSet<&&str> = titles.iter().collect();
        assert!(titles.contains(&"OPTIONS") && once.len() == titles.len(), "{name}: {titles:?}");
        // A line to run, and a sentence that says what for.
        let examples = sections[2].1;
        assert!(examples.contains("\n.EX\n") && examples.contains("forkless"), "{name}: {examples}");
        assert!(!examples.starts_with(".PP\n.RS"), "{name}: {examples}");
        let is_run = name == "gearman-worker" || TEXTS.iter().any(|(page, ..)| *page == name);
        assert!(is_run, "{name}: no test runs the examples of its page");
    }
}

#[test]
fn man_page_of_forkless_explains_the_whole_command() {
    let page = stdout(&["man"]);
    let sections = sections(&page);
    let of = |title: &str| sections.iter().find(|(name, _)| *name == title).map_or("", |(_, text)| *text);
    for title in ["DESCRIPTION", "COMMANDS", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"] {
        assert!(of(title).lines().count() >= 4, "{title}: {}", of(title));
    }
    for name in subcommands() {
        let tag = format!("forkless\\-{}", name.replace('-', "\\-"));
        let entry = of("COMMANDS").split(".TP\n").find(|entry| entry.starts_with(&format!("\\fB{tag}\\fR(1)\n")));
        assert!(entry.is_some_and(|entry| entry.lines().count() >= 2), "no line on {name}: {}", of("COMMANDS"));
        assert!(of("SEE ALSO").contains(&tag), "{name}");
    }
}

#[test]
fn man_pages_have_the_day_of_a_reproducible_build() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
    let output = command.args(["man", "run"]).env("SOURCE_DATE_EPOCH", "951782400").output().expect("forkless starts");
    assert!(String::from_utf8_lossy(&output.stdout).contains(" 1 2000-02-29 "), "{output:?}");
}

#[test]
fn man_pages_render_without_warnings() {
    let place = tempfile::tempdir().expect("temporary directory");
    stdout(&["man", "--dir", place.path().to_str().expect("text")]);
    let mut pages: Vec<_> = fs::read_dir(place.path()).expect("pages").flatten().map(|entry| entry.path()).collect();
    // clap_mangen makes this one, with blank lines that mandoc dislikes.
    pages.retain(|page| !page.ends_with("forkless-bench.1"));
    assert!(pages.len() > 4);
    let lint = has("mandoc", "man_pages_render_without_warnings with mandoc");
    let man = has("man", "man_pages_render_without_warnings with man");
    for page in &pages {
        if lint {
            // References to pages that are not installed are no fault of the page.
            let output =
                Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).arg(page).output().expect("mandoc");
            assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{page:?}");
        }
        if man {
            let output = Command::new("man")
                .args(["--warnings", "-l"])
                .arg(page)
                .env("LC_ALL", "C.UTF-8")
                .env("MANWIDTH", "80")
                .output();
            let output = output.expect("man");
            assert!(output.status.success() && output.stderr.is_empty(), "{page:?}: {output:?}");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("NAME") && text.contains("SEE ALSO"), "{page:?}: {text}");
        }
    }
}

/// Each command of the examples with its output; "..." stands for anything.
fn examples(text: &str) -> Vec<(String, Option<String>)> {
    let text = text.split("## EXAMPLES").nth(1).expect("examples").split("\n## ").next().expect("a section");
    let mut examples: Vec<(String, Option<String>)> = Vec::new();
    for block in text.split("\n```").collect::<Vec<_>>() {
        if let Some(command) = block.strip_prefix("sh\n") {
            examples.push((command.to_owned(), None));
        } else if let (Some(output), Some(example)) = (block.strip_prefix("text\n"), examples.last_mut()) {
            example.1 = Some(format!("{output}\n"));
        }
    }
    examples
}

/// Does the output match? Each "..." is any text.
fn matches(output: &str, expected: &str) -> bool {
    let mut parts = expected.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = output.strip_prefix(first) else { return false };
    let mut last = first;
    for part in parts {
        // The line end after "..." need not be there.
        let Some(at) = rest.find(part.trim_start_matches('\n')) else { return false };
        rest = &rest[at + part.trim_start_matches('\n').len()..];
        last = part;
    }
    rest.is_empty() || last.trim().is_empty() && last != first
}

/// May this user make user namespaces?
fn has_namespaces() -> bool {
    let made = Command::new("unshare").args(["--user", "--map-root-user", "true"]).output();
    made.is_ok_and(|output| output.status.success())
}

fn examples_run(name: &str, text: &str, least: usize) {
    let bin = Path::new(env!("CARGO_BIN_EXE_forkless")).parent().expect("a directory").to_str().expect("text");
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap_or_default());
    let page = stdout(&["man", name]).replace("\\-", "-");
    let examples = examples(text);
    assert!(examples.len() >= least, "{name}: {examples:?}");
    // `slurm.rs` runs it.
    for (command, expected) in examples.into_iter().filter(|(command, _)| !command.contains("--slurm")) {
        let place = tempfile::tempdir().expect("temporary directory");
        // A sandbox of root runs as nobody.
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        if command.contains("--sandbox") && !has_namespaces() {
            skipped(&command, "user namespaces are refused");
            continue;
        }
        if command.contains("--nice") && rustix::process::getpriority_process(None).is_ok_and(|nice| nice != 0) {
            skipped(&command, "it adds to the nice value, which is not 0 here");
            continue;
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).current_dir(place.path()).env("PATH", &path).env("LC_ALL", "C");
        let output = shell.output().expect("sh");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(
            matches(&printed, expected.as_deref().unwrap_or("")),
            "{command}\nprinted {output:?}\nnot {expected:?}"
        );
        // An example that fails says so itself.
        assert!(output.status.success() || command.contains("2>&1"), "{command}: {output:?}");
        let line = command.lines().next().expect("a command").replace('\\', "\\\\").replace('\'', "");
        let page = page.replace("\\*(Aq", "");
        assert!(page.contains(line.trim_start_matches('.')), "{name} has no {line}");
    }
}

#[test]
fn examples_of_run_print_what_the_page_says() {
    let (name, text, least) = TEXTS[0];
    examples_run(name, text, least);
}

#[test]
fn examples_of_the_other_pages_print_what_they_say() {
    for (name, text, least) in &TEXTS[1..] {
        examples_run(name, text, *least);
    }
}

#[test]
fn examples_are_compared() {
    assert!(
        matches("a\nb\n", "a\nb\n") && matches("a\nxyz\n", "a\n...\n") && matches("forkless 1\n", "forkless ...\n")
    );
    assert!(!matches("a\n", "b\n") && !matches("a\nb\n", "a\n") && !matches("b\n", "a\n...\n"));
    assert!(matches("anything", "...\n") && !matches("x", ""));
}
