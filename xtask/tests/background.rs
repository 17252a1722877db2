//! Every table and curve of `cargo xtask background`, with a launch or two of each way.

use std::fs;
use std::path::Path;

#[test]
fn every_way_that_is_here_gives_figures() {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let out = own.join("background-record");
    // Root's files, where an ordinary user comes after it.
    let is_ours = fs::create_dir_all(&out).is_ok() && fs::write(out.join("probe"), "").is_ok();
    if !is_ours {
        println!("SKIPPED: the background's tables because the build directory is someone else's");
        return;
    }
    // What could not be measured has been said.
    xtask::background::smoke(&out, own.parent().expect("a directory of cargo's")).expect("figures");
    let json = fs::read_to_string(out.join("background.json")).expect("a record");
    let record: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(record["version"], 1);
    let noshell = record["tables"].as_array().expect("tables").iter().find(|table| table["name"] == "noshell");
    let rows = noshell.expect("noshell's table")["rows"].as_array().expect("rows").len();
    assert_eq!(rows, 13);
    let markdown = fs::read_to_string(out.join("background.md")).expect("tables");
    assert!(markdown.contains("| vfork, exec | 7.4 / 1.6 / 9.0 |"), "{markdown}");
    assert!(fs::read_to_string(out.join("growth.svg")).expect("a picture").contains("<polyline"));
    assert!(fs::read_to_string(out.join("mapped.csv")).expect("a curve").lines().count() > 14);
}
