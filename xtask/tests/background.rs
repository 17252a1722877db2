//! Every table and curve of `cargo xtask background`, with one or two launches of each method.

use std::fs;
use std::path::Path;

#[test]
fn every_installed_method_has_figures() {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let out = own.join("background-record");
    // The files may belong to root if root ran the tests before an ordinary user.
    let is_ours = fs::create_dir_all(&out).is_ok() && fs::write(out.join("probe"), "").is_ok();
    if !is_ours {
        println!("SKIPPED: the tables of cargo xtask background because another user owns the build directory");
        return;
    }
    // The smoke run prints what it cannot measure.
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
    let curves = record["curves"].as_array().expect("curves");
    assert!(curves.iter().any(|curve| curve["name"] == "mapped"), "{json}");
}
