//! Tests of the Node package: it is built as its users get it, and its tests, in JavaScript, run there.

testing::usual_surroundings!();

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use testing::modules::Profile;

/// The directory of the built package; none without a suitable Node.
fn package() -> Option<&'static Path> {
    static PACKAGE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = PACKAGE.get_or_init(|| {
        let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let target = own.parent().expect("a directory of cargo's");
        let built = testing::modules::node(&own.join("node"), target, Profile::Dev);
        match built.unwrap_or_else(|error| panic!("{error:#}")) {
            Ok(modules) => {
                let package = modules.join("forkless");
                // Where the addon finds it.
                #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
                testing::dist::warm(&package.join("prebuilds/linux-x64/forkless"), &own.join("warm-build"))
                    .expect("libforkless_warm.so");
                if let Err(why) = testing::modules::node_packages(&package).unwrap_or_else(|error| panic!("{error:#}"))
                {
                    say(&format!("SKIPPED: npm packages of the tests in Node because {why}"));
                }
                Some(package)
            }
            Err(why) => {
                say(&format!("SKIPPED: tests in Node because {why}"));
                None
            }
        }
    });
    made.as_deref()
}

/// Written to the terminal directly, because the harness hides the output of passing tests.
fn say(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Runs a file of tests, and prints its counts and what it skipped.
#[track_caller]
fn passes(name: &str) {
    let Some(package) = package() else { return };
    // bash reads ~/.bashrc where its standard input is a socket, and a test that kills it may break what that does.
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("home");
    std::fs::create_dir_all(&home).expect("a directory");
    let mut command = Command::new("timeout");
    command
        .env("HOME", home)
        .args(["900", "node", "--expose-gc", "--test-reporter=tap"])
        .arg(package.join("test").join(name));
    // A test that runs below another runner would report to that.
    command
        .env_remove("NODE_OPTIONS")
        .env_remove("FORKLESS_NODE_ADDON")
        .env_remove("NODE_TEST_CONTEXT")
        .current_dir(package)
        .stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{out}{err}");
    let mut lines = out.lines().map(|line| line.trim_start().trim_start_matches("# "));
    lines.clone().filter(|line| line.starts_with("SKIPPED:")).for_each(say);
    let mut count = |name: &str| lines.find_map(|line| line.strip_prefix(name)?.trim().parse::<usize>().ok());
    let (all, passed) = (count("tests "), count("pass "));
    say(&format!("node {name}: {} passed", passed.unwrap_or(0)));
    assert!(all.is_some_and(|all| all > 0) && all == passed, "{all:?} tests, {passed:?} passed:\n{out}");
}

#[test]
fn child_process_answers_as_without_forkless() {
    passes("differential.test.js");
}

#[test]
fn lines_answer_as_from_the_shell() {
    passes("lines.test.js");
}

#[test]
fn events_come_in_the_orders_of_nodes_own() {
    passes("orders.test.js");
}

#[test]
fn own_functions_work() {
    passes("own.test.js");
}

#[test]
fn programs_run_in_sandboxes() {
    passes("sandbox.test.js");
}

#[test]
fn programs_have_terminals() {
    passes("pty.test.js");
}

#[test]
fn pipelines_run() {
    passes("pipeline.test.js");
}

#[test]
fn programs_run_in_cgroups() {
    passes("cgroup.test.js");
}

#[test]
fn nothing_breaks_the_process() {
    passes("robust.test.js");
}

#[test]
fn packages_of_others_work() {
    passes("packages.test.js");
}

/// Each example of the page about tool calls is a program that checks its own result.
#[test]
fn examples_of_the_page_about_agents_work() {
    let Some(package) = package() else { return };
    let page = include_str!("../../../docs/agents.md");
    let examples: Vec<&str> =
        page.split("```js\n").skip(1).map(|rest| rest.split("```").next().expect("an end")).collect();
    assert!(!examples.is_empty(), "no examples");
    for (n, example) in examples.into_iter().enumerate() {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("agents-{n}.js"));
        std::fs::write(&file, example).expect("a file");
        let mut node = Command::new("timeout");
        node.args(["60", "node"]).arg(&file).env("NODE_PATH", package.parent().expect("node_modules"));
        let output = node.env_remove("NODE_OPTIONS").stdin(Stdio::null()).output().expect("node");
        assert!(output.status.success(), "{example}\n{output:?}");
    }
}

#[test]
fn types_match() {
    passes("types.test.js");
}
