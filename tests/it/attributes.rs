//! The list of everything that a process inherits, `tests/attributes.toml`: each attribute reaches the children of every launcher, and
//! the list has everything that this kernel shows.

testing::usual_surroundings!();

#[allow(dead_code, reason = "for tests of one scenario each")]
#[path = "scenarios/runner.rs"]
mod runner;

use forkless_tests::attributes::{Fate, table};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Compiles the program that prints what it finds of itself.
fn program(directory: &Path) -> String {
    let program = directory.join("attributes");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/c/attributes.c");
    let status = Command::new("cc").args(["-Wall", "-Wextra", "-o"]).arg(&program).arg(source).status().expect("cc");
    assert!(status.success(), "{status}");
    program.to_str().expect("UTF-8").to_owned()
}

#[test]
fn every_attribute_reaches_the_children_of_every_launcher() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Readable for those that have dropped their IDs.
    Command::new("chmod").arg("755").arg(directory.path()).status().expect("chmod");
    let (program, scratch) = (program(directory.path()), directory.path().join("scratch"));
    fs::create_dir(&scratch).expect("a directory");
    let scratch = scratch.to_str().expect("UTF-8");
    let scenario = Path::new(env!("CARGO_BIN_EXE_scenario"));
    let (mut checked, mut failed) = (0, Vec::new());
    let changes: Vec<_> = table().attribute.into_iter().filter_map(|row| row.change).collect();
    for name in &changes {
        for scope in ["process", "thread"] {
            let ending = runner::end(scenario, &["attributes::changed", name, scope, &program, scratch]);
            checked += ending.text.contains("CHECKED: ") as usize;
            if !ending.status.success() {
                failed.push(format!("{name}, {scope}: {}", ending.text));
            }
        }
    }
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), 2 * changes.len(), failed.join("\n"));
    println!("{checked} changes of {} attributes", changes.len());
    assert!(checked >= 20, "only {checked} were checked");
}

#[test]
fn the_list_has_what_this_kernel_shows() {
    let table = table();
    for row in &table.attribute {
        assert_eq!(row.change.is_some(), row.untested.is_none(), "{}: a change, or why there is none", row.name);
        let is_documented = [row.zygote, row.warm].contains(&Fate::Documented);
        assert_eq!(is_documented, row.why.is_some(), "{}: why is for what is documented", row.name);
        assert!(row.kernel.contains("task->"), "{}: {}", row.name, row.kernel);
    }
    let shown = table.attribute.iter().map(|row| &row.shown).chain(table.no_attribute.iter().map(|row| &row.shown));
    let all: Vec<&str> = shown.flatten().map(String::as_str).collect();
    let known: BTreeSet<&str> = all.iter().copied().collect();
    assert_eq!(all.len(), known.len(), "something is in the list twice");
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let mut found: Vec<String> =
        status.lines().filter_map(|line| Some(format!("status:{}", line.split_once(':')?.0))).collect();
    // The vendor's lines for features of the CPU.
    found.retain(|field| !field.starts_with("status:x86_"));
    let names = |directory: &str| {
        let entries = fs::read_dir(directory).expect(directory).flatten();
        entries.map(|entry| entry.file_name().into_string().expect("UTF-8")).collect::<Vec<_>>()
    };
    found.extend(names("/proc/self"));
    found.extend(names("/proc/self/ns").iter().map(|name| format!("ns/{name}")));
    found.extend(options());
    let unknown: Vec<_> = found.iter().filter(|name| !known.contains(name.as_str())).collect();
    assert!(unknown.is_empty(), "tests/attributes.toml does not have {unknown:?}");
}

/// The options of prctl(2) in the kernel's header: values of options are defined with a space behind the number sign, or have the
/// name of their option as a prefix.
fn options() -> Vec<String> {
    let Ok(header) = fs::read_to_string("/usr/include/linux/prctl.h") else {
        println!("SKIPPED: options of prctl(2), because linux/prctl.h is not installed");
        return Vec::new();
    };
    const OTHERS: [&str; 5] = ["PR_SET_MM_", "PR_SET_VMA_", "PR_SET_PTRACER_", "PR_MCE_KILL_", "PR_SCHED_CORE_"];
    let defined = header.lines().filter_map(|line| line.strip_prefix("#define PR_")?.split_whitespace().next());
    let names: BTreeSet<String> = defined.map(|name| format!("PR_{name}")).collect();
    let is_option = |name: &&String| {
        let is_value = OTHERS.iter().any(|prefix| name.starts_with(prefix)) && *name != "PR_MCE_KILL_GET";
        let words = [
            "_GET",
            "_SET",
            "PR_CAPBSET",
            "PR_MCE_KILL",
            "PR_SCHED_CORE",
            "PR_TASK_PERF",
            "PR_MPX",
            "PR_PAC_RESET",
            "PR_FUTEX",
            "PR_LOCK",
        ];
        !is_value
            && words.iter().any(|word| name.contains(word))
            && !name.starts_with("PR_CAP_AMBIENT_")
            && *name != "PR_MCE_KILL_SET"
    };
    names.iter().filter(is_option).cloned().collect()
}
