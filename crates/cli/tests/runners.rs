//! `cargo xtask runners` with few jobs: every runner that is installed has figures, and no job is lost.

use std::{fs, path::Path};

use serde_json::Value;
use xtask::runners::{Built, smoke};

#[test]
fn every_installed_runner_has_figures() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let out = place.path().join("record");
    let built = Built { forkless: env!("CARGO_BIN_EXE_forkless").into(), library: None };
    // It prints what it cannot measure.
    let skipped = smoke(built, &out, &place.path().join("place")).expect("figures");
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let record: Value = serde_json::from_str(&read("runners.json")).expect("JSON");
    assert_eq!((record["version"].as_u64(), record["checked"].as_bool()), (Some(1), Some(true)));
    let rows = record["rows"].as_array().expect("rows");
    let absent = |name: &str| skipped.iter().any(|line| line.starts_with(&format!("{name} because")));
    let names = ["posix_spawn loop", "xargs", "busybox xargs", "moreutils parallel", "GNU parallel -u"];
    let ours = ["forkless xargs", "forkless parallel -u", "forkless parallel -k"];
    for program in ["/bin/true", "exit0", "/bin/echo"] {
        for name in names.into_iter().chain(ours).filter(|name| !absent(name)) {
            let is_it = |row: &&Value| row["runner"] == name && row["case"]["program"] == program;
            let row = rows.iter().find(is_it).unwrap_or_else(|| panic!("no row of {name} with {program}"));
            for field in ["jobs_per_s", "to_loop", "us_p50", "us_p99", "cpu_us"] {
                assert!(row[field].as_f64().is_some_and(|value| value > 0.0), "{field} of {row}");
            }
            assert!(row["us_p50"].as_f64() <= row["us_p99"].as_f64(), "{row}");
        }
    }
    assert!(record["starts"].as_array().expect("starts").iter().any(|start| start["runner"] == "sh -c"));
    assert!(record["million"].as_array().is_some_and(|sizes| !sizes.is_empty()));
    let (markdown, picture) = (read("runners.md"), read("runners.svg"));
    assert!(markdown.contains("| posix_spawn loop | ") && markdown.contains("## Targets"), "{markdown}");
    assert_eq!(picture.matches("× loop)").count(), rows.len());
    let counted = record["calls"].as_array().expect("calls").len();
    assert_eq!(Path::new("/usr/bin/strace").exists(), counted > 0);
}
