//! Writes what other languages and the docs have of the table of settings: `cargo xtask settings`.

use std::{fs, path::Path};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (name, text) in forkless_tests::generated::files(&root) {
        fs::write(root.join(name), text).unwrap_or_else(|error| panic!("{name}: {error}"));
        println!("{name} is written");
    }
}
