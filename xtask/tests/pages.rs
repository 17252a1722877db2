//! The generated pages are up to date.

testing::usual_surroundings!();

use std::fs;
use std::path::Path;
use std::process::Command;
use testing::dist;
use xtask::distros;
use xtask::faults::{self, Fault};
use xtask::kernels::page;
use xtask::trust;

fn is_up_to_date(page: &str, now: &str, task: &str) {
    let committed = fs::read_to_string(dist::root().join(Path::new(page))).expect("the page");
    if let Some(line) = committed.lines().zip(now.lines()).position(|(then, now)| then != now) {
        panic!("{page} is out of date from line {} on: run `cargo xtask {task}`", line + 1);
    }
    assert_eq!(committed.len(), now.len(), "{page} is out of date: run `cargo xtask {task}`");
}

#[test]
fn trust_page_is_up_to_date() {
    let now = trust::Sources::read(&dist::root()).and_then(|sources| sources.page()).expect("a page");
    is_up_to_date(trust::PAGE, &now, "trust");
}

#[test]
fn the_tables_of_kernels_and_distributions_are_those_of_the_records() {
    is_up_to_date(page::PAGE, &page::page(&dist::root()).expect("a page"), "kernels --page");
    is_up_to_date(page::PAGE, &distros::page(&dist::root()).expect("a page"), "distros --page");
}

/// Otherwise nothing of that part would be built.
#[test]
fn tests_of_the_distributions_exist() {
    let table = include_str!("../src/distros/distros.toml");
    let files =
        dist::output(Command::new("git").current_dir(dist::root()).args(["ls-files", "*/tests/*.rs", "*Cargo.toml"]));
    let files = files.expect("the files");
    for name in table.split("--test ").skip(1).filter_map(|rest| rest.split([' ', '"', '\n', '\\']).next()) {
        let is_it = |file: &str| match file.ends_with(".rs") {
            true => file.ends_with(&format!("/tests/{name}.rs")),
            false => fs::read_to_string(dist::root().join(file))
                .is_ok_and(|text| text.contains(&format!("name = \"{name}\""))),
        };
        assert!(files.lines().any(is_it), "no test {name}");
    }
}

#[test]
fn named_tests_and_faults_exist() {
    let sources = trust::Sources::read(&dist::root()).expect("promises");
    let missing = sources.missing(&dist::root()).expect("sources");
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
    let unknown = sources.unknown_faults();
    assert!(unknown.is_empty(), "no such faults: {unknown:#?}");
}

/// A patch that no longer applies would break a rule elsewhere, or none.
#[test]
fn all_planted_faults_apply_together_and_have_a_reason_and_tests() {
    let all = faults::read(&dist::root()).expect("patches");
    let broken = faults::planted(&dist::root(), &all).expect("patches that apply");
    let broken: String = broken.into_values().collect();
    let cases = fs::read_dir(dist::root().join("tests/cases")).expect("cases");
    let cases: String = cases.map(|entry| fs::read_to_string(entry.expect("cases").path()).expect("cases")).collect();
    for Fault { name, head, .. } in &all {
        let marks = [format!("planted!(\"{name}\")"), format!("PLANTED(\"{name}\")"), format!("'{name}'")];
        let count: usize = marks.iter().map(|mark| broken.matches(mark).count()).sum();
        assert_eq!(count, 1, "marks with the name of {name}");
        assert!(!head.why.is_empty() && !head.tests.is_empty(), "{name} has no reason, or no test");
        if let Some(case) = head.env.get("FORKLESS_CASE") {
            let is_named = cases.lines().any(|line| line.starts_with("name = ") && line.contains(case));
            assert!(is_named, "{name}: the table has no case {case}");
        }
    }
    let central = all.iter().filter(|fault| fault.head.central).count();
    assert!((1..=10).contains(&central), "CI tries ten faults, not {central}");
}

/// The CI of the hosting services calls the tasks that exist.
#[test]
fn hosted_ci_runs_tasks_that_exist() {
    for name in [".github/workflows/ci.yml", ".gitlab-ci.yml"] {
        let text = fs::read_to_string(dist::root().join(name)).expect("the definition");
        let tasks: Vec<_> = text.lines().filter_map(|line| Some(line.split_once("cargo xtask ")?.1)).collect();
        assert!(tasks.len() >= 3, "{name}: {tasks:?}");
        for task in tasks {
            let mut xtask = std::process::Command::new(env!("CARGO_BIN_EXE_xtask"));
            let output = xtask.args(task.split(' ')).arg("--help").output().expect("xtask");
            assert!(output.status.success(), "{name}: {task}: {}", String::from_utf8_lossy(&output.stderr));
        }
        // The oldest Rust is that of the manifest.
        let manifest = fs::read_to_string(dist::root().join("Cargo.toml")).expect("the manifest");
        let oldest = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).expect("a version");
        let line = format!("rustup toolchain install --profile minimal {}", oldest.trim_matches('"'));
        assert!(text.lines().any(|text| text.trim_end().ends_with(&line)), "{name}: not {oldest}");
    }
}

/// What a wrong word in a definition looks like.
#[test]
fn unknown_kinds_of_packages_are_refused() {
    let mut xtask = std::process::Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output = xtask.args(["package", "nonsense", "--help"]).output().expect("xtask");
    assert!(!output.status.success(), "{output:?}");
}

/// The form of Keep a Changelog: versions with dates, newest first, and in each the same kinds of changes.
#[test]
fn the_changelog_has_its_form() {
    let read = |name: &str| fs::read_to_string(dist::root().join(name)).expect("a changelog");
    let text = read("CHANGELOG.md");
    let versions: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let released = |heading: &str| {
        let (version, date) = heading.split_once(" - ").unwrap_or((heading, ""));
        let is_date = date.len() == 10 && date.split('-').all(|part| part.parse::<u32>().is_ok());
        assert!(is_date || date == "unreleased" || version == "Unreleased", "{heading}");
        version.to_owned()
    };
    let versions: Vec<String> = versions.into_iter().map(released).filter(|version| version != "Unreleased").collect();
    assert_eq!(versions.first().map(String::as_str), Some(env!("CARGO_PKG_VERSION")), "the newest version");
    assert!(read("bindings/perl/Changes").contains(concat!("\n", env!("CARGO_PKG_VERSION"), "\n")));
    let kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];
    for part in text.split("\n### ").skip(1) {
        let (kind, changes) = part.split_once('\n').expect("changes");
        assert!(kinds.contains(&kind) && changes.contains("\n- "), "### {kind}");
    }
}

/// What people ask before and soon after they begin, each with the section that answers it and words that the answer needs.
const QUESTIONS: [(&str, &str, &[&str]); 20] = [
    ("install the Rust library or the command", "how-do-i-install-it", &["cargo add", "cargo install"]),
    (
        "streaming output with a timeout in Rust",
        "how-do-i-read-output-while-the-program-runs-with-a-timeout",
        &["child.lines()", "wait_timeout"],
    ),
    ("a server with many threads", "may-i-launch-from-many-threads", &["Prepared", "no lock", "WaitSet"]),
    ("Docker and Kubernetes", "does-it-run-in-docker-and-kubernetes", &["seccomp", "clone3", "pod"]),
    ("Alpine and musl", "does-it-run-on-alpine-and-with-musl", &["x86_64-unknown-linux-musl", "Alpine"]),
    ("asyncio", "how-do-i-use-it-with-asyncio", &["create_subprocess_exec", "uvloop"]),
    ("macOS and Windows", "what-happens-on-macos-and-windows", &["std-fallback", "#[cfg(not(target_os = \"linux\"))]"]),
    ("the oldest kernel", "which-is-the-oldest-kernel", &["5.10"]),
    ("the oldest Rust", "which-is-the-oldest-rust", &[concat!("Rust ", env!("CARGO_PKG_RUST_VERSION"))]),
    ("tokio", "how-do-i-use-it-with-tokio", &["features = [\"tokio\"]"]),
    (
        "spawn, launch, status, prepare or a zygote",
        "spawn-launch-status-prepare-or-a-zygote",
        &["`spawn()`", "`launch()`", "`status()`", "`prepare()`", "zygote"],
    ),
    (
        "killing the tree on a timeout",
        "the-timeout-kills-the-program-but-not-what-it-started",
        &["process_group(0)", "--new-cgroup"],
    ),
    ("descriptor 5", "does-the-program-inherit-descriptor-5", &["`fd(file, 5)`", "inherit_all"]),
    (
        "own code before exec",
        "can-my-code-run-in-the-child-before-the-exec",
        &["pre_exec", "`Command::call`", "spawn_with"],
    ),
    ("signals of forkless run", "which-signals-does-forkless-run-forward", &["forwards", "run.md#signals"]),
    ("gdb and strace", "does-it-work-under-gdb-and-strace", &["gdb", "strace -f"]),
    (
        "seccomp by names, from Rust and C",
        "how-do-i-filter-system-calls-by-name",
        &["seccompiler", "forkless_command_seccomp"],
    ),
    ("what is saved with 15,000 sockets", "what-is-saved-with-15000-sockets", &["0.8 ms", "15,000"]),
    ("reporting a vulnerability", "how-do-i-report-a-vulnerability", &["SECURITY.md#reporting-a-vulnerability"]),
    (
        "moving from another launcher",
        "moving-from-another-launcher",
        &["subprocess", "std::process", "posix_spawn", "Proc::FastSpawn", "child_process", "GNU parallel"],
    ),
];

/// The anchor of a heading, as the hosting services and mdBook make it.
fn anchor(heading: &str) -> String {
    let heading = heading.to_lowercase().replace(' ', "-");
    heading.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter)).collect()
}

/// The first click leads from the README, or the first page of the site, to the questions; the second to the answer.
#[test]
fn questions_have_answers_within_two_clicks() {
    let read = |name: &str| fs::read_to_string(dist::root().join(name)).expect("a page");
    assert!(read("README.md").contains("](docs/faq.md)"), "the README has no link to the questions");
    let page = read("docs/faq.md");
    let (list, answers) = page.split_at(page.find("\n## ").expect("a heading"));
    let answers: Vec<(String, &str)> =
        answers.split("\n## ").skip(1).filter_map(|part| part.split_once('\n')).map(|(a, b)| (anchor(a), b)).collect();
    for (question, place, needed) in QUESTIONS {
        assert!(list.contains(&format!("](#{place})")), "{question}: the list of docs/faq.md has no link to #{place}");
        let answer = answers.iter().find(|(anchor, _)| anchor == place);
        let (_, answer) = answer.unwrap_or_else(|| panic!("{question}: docs/faq.md has no heading #{place}"));
        for words in needed {
            assert!(answer.contains(words), "{question}: the answer does not have {words:?}");
        }
    }
}

/// The Markdown files of the tree. The changelog and records are about their own day.
fn documents() -> Vec<(String, String)> {
    let mut git = std::process::Command::new("git");
    let files = git.args(["ls-files", "*.md"]).current_dir(dist::root()).output().expect("git");
    let names = String::from_utf8(files.stdout).expect("names");
    let names = names.lines().filter(|name| *name != "CHANGELOG.md" && !name.contains("/record/"));
    names.map(|name| (name.to_owned(), fs::read_to_string(dist::root().join(name)).expect("a page"))).collect()
}

/// The tasks that documents name exist, with their options.
#[test]
fn tasks_named_in_documents_exist() {
    let mut helps = std::collections::BTreeMap::new();
    let mut options = 0;
    for (name, text) in documents() {
        for call in text.split("cargo xtask ").skip(1) {
            let call = call.split(['`', '\n', '#', ';', '&', ',']).next().unwrap_or("");
            let Some(task) = call.split([' ', '.', ')', ':']).next() else { continue };
            if !task.starts_with(|first: char| first.is_ascii_lowercase()) {
                continue; // "cargo xtask TASK"
            }
            let help = helps.entry(task.to_owned()).or_insert_with(|| {
                let mut xtask = std::process::Command::new(env!("CARGO_BIN_EXE_xtask"));
                let output = xtask.args([task, "--help"]).output().expect("xtask");
                assert!(output.status.success(), "{name}: cargo xtask {call}: {output:?}");
                String::from_utf8_lossy(&output.stdout).into_owned()
            });
            // What follows "--" is for another program.
            for option in call.split(" -- ").next().unwrap_or("").split(' ').filter(|word| word.starts_with("--")) {
                let option = option.trim_end_matches([']', ')', '.', '…']).split('=').next().unwrap_or(option);
                assert!(help.contains(option), "{name}: cargo xtask {call}: no {option}");
                options += 1;
            }
        }
    }
    assert!(helps.len() > 15 && options > 10, "{} tasks, {options} options", helps.len());
}

/// The tests that documents name exist.
#[test]
fn tests_named_in_documents_exist() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut metadata = std::process::Command::new(cargo);
    metadata.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(dist::root());
    let output = metadata.output().expect("cargo");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let mut checked = 0;
    for (page, text) in documents() {
        for call in text.split("cargo test -p ").skip(1) {
            let mut words = call.split(['`', '\n']).next().unwrap_or("").split_whitespace();
            let name = words.next().expect("a package");
            let package = packages.iter().find(|package| package["name"] == name);
            let package = package.unwrap_or_else(|| panic!("{page}: no package {name}"));
            if let Some(test) = words.skip_while(|word| *word != "--test").nth(1) {
                let mut targets = package["targets"].as_array().expect("targets").iter();
                assert!(targets.any(|target| target["name"] == test && target["kind"][0] == "test"), "{page}: {test}");
                checked += 1;
            }
        }
    }
    assert!(checked > 10, "{checked}");
}
