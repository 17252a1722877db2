//! Each campaign with a few launches: every contestant that is installed has figures. Asserts no times.

testing::usual_surroundings!();

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use serde_json::Value;
use testing::modules::{Modules, Profile};

/// The libraries, built and installed as for their own tests; none if another user owns the build directory.
fn prefix() -> Option<&'static Path> {
    static PREFIX: OnceLock<Option<PathBuf>> = OnceLock::new();
    let install = || {
        let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let prefix = own.join("c");
        match testing::dist::install_once(&prefix, own.parent().expect("a directory of cargo's")) {
            Err(error) if tempfile::tempfile_in(own).is_err() => {
                eprintln!("SKIPPED: campaigns, because cargo cannot build as this user: {error:#}");
                return None;
            }
            installed => installed.expect("installed"),
        }
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // The program beside this one, which a test of this package alone has not built.
        build.args(["build", "--quiet", "--locked", "--package", "forkless-cli"]);
        assert!(build.status().expect("cargo").success());
        Some(prefix)
    };
    PREFIX.get_or_init(install).as_deref()
}

/// Runs a campaign with the language modules of forkless; its record, and the page.
fn campaign(name: &str, words: &[&str]) -> Option<(Value, String)> {
    let (prefix, own) = (prefix()?, Path::new(env!("CARGO_TARGET_TMPDIR")));
    let out = own.join("campaigns").join(name);
    let _ = fs::remove_dir_all(&out);
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkless-bench"));
    command.arg(name).args(words).arg("--prefix").arg(prefix).arg("--out").arg(&out);
    let modules = Modules::build(own, own.parent().expect("a directory of cargo's"), Profile::Dev);
    let modules = modules.unwrap_or_else(|error| panic!("{error:#}"));
    let raku = own.join("campaigns/raku");
    testing::raku::copy_modules(&raku).expect("a copy");
    command.env("RAKULIB", raku.join("lib"));
    let output = modules.add_to(&mut command).expect("no colon").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().filter(|line| line.starts_with("SKIPPED")).for_each(|line| eprintln!("{line}"));
    assert!(output.status.success(), "{said}");
    let read = |ending: &str| fs::read_to_string(out.join(name).with_extension(ending));
    let record = serde_json::from_str(&read("json").unwrap_or_else(|_| "{}".to_owned())).expect("JSON");
    Some((record, read("md").unwrap_or_else(|_| String::from_utf8_lossy(&output.stdout).into_owned())))
}

/// The rows of the tables with this in their title.
fn rows<'a>(record: &'a Value, title: &str) -> Vec<&'a Value> {
    let tables = record["tables"].as_array().expect("tables");
    let found = tables.iter().filter(|table| table["title"].as_str().is_some_and(|text| text.contains(title)));
    found.flat_map(|table| table["rows"].as_array().expect("rows")).collect()
}

/// Every row has figures. User time may be zero where the kernel counts in ticks, and a difference less.
fn has_figures(record: &Value, title: &str, least: usize) {
    let rows = rows(record, title);
    assert!(rows.len() >= least, "{title}: {} rows of {least}\n{record:#}", rows.len());
    for row in rows {
        assert!(row["rounds"].as_u64() > Some(0), "{row}");
        let of = |name: &str| -> Vec<f64> {
            row[name].as_array().expect("figures").iter().filter_map(Value::as_f64).collect()
        };
        let (p50, p99) = (of("p50"), of("p99"));
        assert!(p50.iter().any(|&figure| figure > 0.0) && p50.len() == p99.len(), "{row}");
        assert!(p50.iter().zip(&p99).all(|(p50, p99)| p50 <= p99), "{row}");
    }
}

fn is_skipped(record: &Value, word: &str) -> bool {
    let skipped = record["skipped"].as_array().expect("a list");
    skipped.iter().any(|why| why.as_str().is_some_and(|why| why.contains(word)))
}

#[test]
fn wrappers_are_compared_with_the_program_alone() {
    let Some((record, page)) = campaign("wrappers", &["--rounds", "3"]) else { return };
    has_figures(&record, "/bin/true", 9);
    for name in ["/bin/true", "env", "forkless run", "timeout 5", "forkless run --timeout 5"] {
        assert!(page.contains(&format!("| {name} |")), "{name}\n{page}");
    }
    let ours = |why: &Value| why.as_str().is_some_and(|why| why.starts_with("forkless") && !why.contains("--sandbox"));
    assert!(!record["skipped"].as_array().expect("a list").iter().any(ours), "{page}");
}

#[test]
fn runners_run_every_job_once() {
    let Some((record, page)) = campaign("runners", &["--smoke"]) else { return };
    let names = ["posix_spawn loop", "xargs", "busybox xargs", "moreutils parallel", "GNU parallel -u"];
    let ours = ["forkless xargs", "forkless parallel -u", "forkless parallel -k"];
    for title in ["/bin/true", "static program", "/bin/echo", "One job"] {
        has_figures(&record, title, 4);
        for name in names.into_iter().chain(ours).filter(|name| !is_skipped(&record, name)) {
            let has_row = rows(&record, title).iter().any(|row| row["name"] == name);
            assert!(has_row || title == "One job", "no row of {name} with {title}\n{page}");
        }
    }
    has_figures(&record, "Many jobs", 2);
    assert_eq!(Path::new("/usr/bin/strace").exists(), page.contains("## System calls"));
}

#[test]
fn tool_calls_are_the_same_from_every_parent() {
    let Some((record, page)) = campaign("tools", &["--smoke"]) else { return };
    has_figures(&record, "16 MiB", 2);
    for name in ["Python: forkless.asyncio", "Python: forkless in threads", "Node: forkless, install()"] {
        let language = name.split(':').next().expect("a language");
        // Two situations, and the table of the tools.
        let wanted = if is_skipped(&record, language) { 0 } else { 3 };
        assert_eq!(page.matches(&format!("| {name} |")).count(), wanted, "{name}\n{page}");
    }
}

#[test]
fn published_tables_and_curves_have_figures() {
    let Some((record, page)) = campaign("background", &["--smoke"]) else { return };
    has_figures(&record, "popen_noshell", 13);
    has_figures(&record, "", 13 + 6 + 4);
    assert!(page.contains("| 7.40 / 1.60 / 9.00 |"), "{page}");
    let curve = rows(&record, "").into_iter().filter(|row| row["points"].as_array().is_some_and(|all| all.len() > 1));
    assert!(curve.count() >= 10, "{page}");
}

#[test]
fn methods_of_popen_noshell_take_turns() {
    let words = ["--launches", "4", "--turns", "2", "--memory", "2"];
    let Some((record, _)) = campaign("noshell", &words) else { return };
    has_figures(&record, "Launches", 11);
}

#[test]
fn functions_and_programs_run_with_the_preload_library() {
    let Some((_, text)) = campaign("preload", &["--launches", "10"]) else { return };
    assert!(text.contains("FORKLESS_INHERIT=stdio") && text.contains("posix_spawn"), "{text}");
    let Some((record, _)) = campaign("real", &["--turns", "1", "--only", "make"]) else { return };
    if !is_skipped(&record, "make") {
        has_figures(&record, "Programs", 3);
    }
}

#[test]
fn simulation_of_nodes_needs_no_installation() {
    let output = Command::new(env!("CARGO_BIN_EXE_forkless-bench")).arg("scale").output().expect("it starts");
    assert!(String::from_utf8_lossy(&output.stdout).contains("| nodes of 32 CPUs |"), "{output:?}");
}
