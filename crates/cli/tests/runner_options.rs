//! Every option of the manuals of GNU parallel and of GNU xargs is supported, or refused by name with what to use instead, and
//! docs/runner.md says which.

testing::usual_surroundings!();

use std::process::{Command, Stdio};

/// Each line: same, different or refused, and the names of an option.
const PARALLEL: &str = include_str!("parallel/options.txt");
const XARGS: &str = include_str!("parallel/xargs_options.txt");
const PAGE: &str = include_str!("../../../docs/runner.md");

/// Options, each with its word and all its names.
fn options(list: &'static str) -> Vec<(&'static str, Vec<&'static str>)> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split(' ');
            (words.next().expect("a word"), words.collect())
        })
        .collect()
}

/// What forkless prints about an option: the help where it is known, also if it needs a value.
fn print_help(subcommand: &str, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
    // Options name files, too.
    let place = tempfile::tempdir().expect("a directory");
    command.current_dir(place.path()).arg(subcommand).args(words).stdin(Stdio::null()).env_remove("PARALLEL");
    let output = command.output().expect("forkless");
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
    )
}

/// Whether the option is in the grammar.
fn is_known(subcommand: &str, name: &str) -> bool {
    // As a flag, and with values that one option or another takes.
    let values: [&[&str]; 4] = [&[], &["1"], &["n"], &["="]];
    values.iter().any(|value| {
        let words = [&[name], *value, &["--help"]].concat();
        let (code, text) = print_help(subcommand, &words);
        code == Some(0) && text.contains("Usage: forkless")
    })
}

/// The refusal of an option that is refused.
fn refusal(name: &str) -> Option<String> {
    [&[name, ":::"][..], &[name, "1", ":::"]].iter().find_map(|words| {
        let (code, text) = print_help("parallel", words);
        let hint = text.split_once(" is refused: ")?.1.trim().to_owned();
        (code == Some(255)).then_some(hint)
    })
}

/// The row of the table for GNU parallel that has this name: its second column.
fn word_in_table(section: &str, names: &[&str]) -> Option<String> {
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>())
        .find(|cells| names.iter().any(|name| cells[1].split('`').any(|word| word == *name)))
        .map(|cells| cells[2].to_owned())
}

#[test]
fn every_option_of_gnu_parallel_is_supported_or_refused_with_a_hint() {
    let section = PAGE.split("## From GNU parallel").nth(1).expect("a section");
    let refused = section.split("These are refused").nth(1).expect("a list").split("###").next().expect("a list");
    let listed = options(PARALLEL);
    assert!(listed.len() > 130, "{}", listed.len());
    for (word, names) in listed {
        match word {
            "refused" => {
                assert!(names.iter().any(|name| refused.contains(&format!("`{name}`"))), "not on the page: {names:?}");
                for name in &names {
                    let hint = refusal(name).unwrap_or_else(|| panic!("{name} is not refused"));
                    assert!(hint.len() > 8, "{name}: {hint}");
                }
            }
            _ => {
                assert_eq!(word_in_table(section, &names).as_deref(), Some(word), "{names:?}");
                for name in &names {
                    assert!(is_known("parallel", name), "{name} is not in the grammar");
                    assert!(!refused.contains(&format!("`{name}`")), "{name} is on the page twice");
                }
            }
        }
    }
}

#[test]
fn every_option_of_gnu_xargs_is_supported() {
    let section =
        PAGE.split("## From xargs").nth(1).expect("a section").split("## From GNU").next().expect("a section");
    for (word, names) in options(XARGS) {
        assert_eq!(word, "same");
        for name in &names {
            assert!(is_known("xargs", name), "{name} is not in the grammar");
            let on_page = section.lines().filter(|line| line.starts_with("| `") && line.ends_with("| same |"));
            let with_its_names = "and their long names";
            let is_listed = on_page.map(|row| row.split('|').nth(1).expect("a cell")).any(|cell| {
                let has = |name: &str| cell.split('`').any(|word| word.split(['[', '=']).next() == Some(name));
                has(name) || names.iter().any(|name| has(name)) && cell.contains(with_its_names)
            });
            assert!(is_listed, "{name} is not on the page as same");
        }
    }
}

#[test]
fn an_unknown_option_is_an_error() {
    assert!(!is_known("parallel", "--no-such-option"));
    assert!(!is_known("xargs", "--no-such-option"));
    assert_eq!(refusal("--keep-order"), None);
}

/// Each name by itself: with its hyphens, without them, and in both spellings of English.
#[test]
fn every_spelling_of_gnu_parallel_is_known_or_refused() {
    let list = include_str!("parallel/spellings.txt").lines().filter(|line| !line.starts_with('#'));
    let (mut count, mut unknown) = (0, Vec::new());
    for line in list {
        for name in line.trim_end_matches(" =").split(' ') {
            count += 1;
            let value = line.ends_with('=').then_some("100000");
            let words: Vec<&str> = [name].into_iter().chain(value).chain(["--help"]).collect();
            let (_, text) = print_help("parallel", &words);
            if text.is_empty() || text.contains("unknown option") {
                unknown.push(format!("{name}: {}", text.lines().next().unwrap_or_default()));
            }
        }
    }
    assert!(count == 299 && unknown.is_empty(), "{count}: {unknown:#?}");
}

/// A share of the jobs is a percentage, and one job is its exit status.
#[test]
fn halt_returns_the_exit_status_of_gnu_parallel() {
    let mut wrong = Vec::new();
    for line in include_str!("parallel/halt.txt").lines().filter(|line| !line.starts_with('#')) {
        let [halt, statuses, expected] = line.split(" | ").collect::<Vec<_>>().try_into().expect("three columns");
        let whens: &[&str] = if halt.contains("WHEN") { &["soon", "now"] } else { &[""] };
        for when in whens {
            let mut ours = Command::new(env!("CARGO_BIN_EXE_forkless"));
            ours.args(["parallel", "--halt", &halt.replace("WHEN", when), "-j1", "exit", "{}", ":::"]);
            ours.args(statuses.split(' ')).env("PARALLEL_SHELL", "/bin/sh").stdin(Stdio::null()).stderr(Stdio::null());
            let code = ours.status().expect("a run").code();
            if code.map(|code| code.to_string()).as_deref() != Some(expected) {
                wrong.push(format!("{when} {line}: {code:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Jobs that the halt has ended have not failed by themselves.
#[test]
fn jobs_that_a_halt_kills_are_not_named() {
    let mut ours = Command::new(env!("CARGO_BIN_EXE_forkless"));
    ours.args(["parallel", "--halt", "now,fail=1", "-j2", "sleep {}; exit 3", ":::", "0.2", "600"]);
    let output = ours.stdin(Stdio::null()).output().expect("a run");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(String::from_utf8_lossy(&output.stderr).matches("this job failed").count(), 1, "{output:?}");
}
