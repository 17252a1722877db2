//! What each language has: the table in docs/faq.md, from tests/features.toml.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A row.
#[derive(Debug, Deserialize)]
pub struct Feature {
    /// In words, with links from docs/.
    pub what: String,
    /// What the Rust library exports for it.
    pub items: Vec<String>,
    /// What a language has.
    #[serde(flatten)]
    pub cells: BTreeMap<String, String>,
}

/// The columns: keys and headings.
pub const LANGUAGES: [(&str, &str); 6] =
    [("rust", "Rust"), ("c", "C"), ("python", "Python"), ("node", "Node"), ("perl", "Perl"), ("raku", "Raku")];

/// All of them.
///
/// # Panics
/// When the file is not as it should be.
pub fn all() -> Vec<Feature> {
    let mut file: BTreeMap<String, Vec<Feature>> =
        toml::from_str(include_str!("../features.toml")).expect("the features");
    file.remove("feature").expect("features")
}

pub(crate) fn table() -> String {
    let mut text = "| |".to_owned();
    LANGUAGES.iter().for_each(|(_, heading)| write!(text, " {heading} |").expect("a text"));
    text.push_str("\n| --- | --- | --- | --- | --- | --- | --- |\n");
    for feature in all() {
        write!(text, "| {} |", feature.what).expect("a text");
        for (key, _) in LANGUAGES {
            write!(text, " {} |", feature.cells.get(key).map_or("", String::as_str).replace('|', "\\|"))
                .expect("a text");
        }
        text.push('\n');
    }
    text
}
