//! The results of single tests in the output of a suite.

use super::Counts;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The result of each test, by its name.
pub type Results = BTreeMap<String, &'static str>;

const PASSED: &str = "passed";
const FAILED: &str = "failed";
const SKIPPED: &str = "skipped";

/// How a suite reports its tests.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// `PASS: NAME`, of DejaGnu, busybox and toybox.
    #[default]
    Words,
    /// `not ok 3 - NAME`, perhaps below lines of prove with the names of files.
    Tap,
    /// `test NAME ... ok`, of Rust.
    Libtest,
    /// `FILE::NAME PASSED`, of `pytest -v`.
    Pytest,
}

impl Format {
    pub fn read(self, text: &str) -> Results {
        let mut found = Results::new();
        let mut file = "";
        for line in text.lines() {
            let one = match self {
                // A reason follows the name after a comma.
                Self::Words => line
                    .split_once(": ")
                    .and_then(|(word, name)| Some((name.split(", ").next()?.to_owned(), word_of(word)?))),
                Self::Libtest => line.strip_prefix("test ").and_then(|rest| {
                    let (name, word) = rest.split_once(" ... ")?;
                    Some((name.to_owned(), word_of(word.split([',', ' ']).next()?)?))
                }),
                Self::Pytest => line.split(' ').next().filter(|name| name.contains("::")).and_then(|_| {
                    let mut words = line.split(' ');
                    let word = words.find_map(|word| Some((word, word_of(word)?)))?;
                    Some((line.split(&format!(" {}", word.0)).next()?.to_owned(), word.1))
                }),
                Self::Tap => {
                    if let Some((name, _)) = line.split_once(" ..").filter(|(name, _)| name.ends_with(".t")) {
                        file = name;
                    }
                    tap(file, line)
                }
            };
            if let Some((name, result)) = one {
                // A name that comes twice is numbered.
                let same = found
                    .keys()
                    .filter(|known| known.as_str() == name || known.starts_with(&format!("{name} #")))
                    .count();
                found.insert(if same == 0 { name } else { format!("{name} #{}", same + 1) }, result);
            }
        }
        found
    }
}

fn tap(file: &str, line: &str) -> Option<(String, &'static str)> {
    let (result, rest) = match line.strip_prefix("not ok") {
        Some(rest) => (FAILED, rest),
        None => (PASSED, line.strip_prefix("ok")?),
    };
    let (name, comment) = rest.split_once(" # ").unwrap_or((rest, ""));
    let result = match comment.to_ascii_lowercase() {
        comment if comment.starts_with("skip") => SKIPPED,
        comment if comment.starts_with("todo") => PASSED,
        _ => result,
    };
    (rest.is_empty() || rest.starts_with(' ')).then(|| (format!("{file}{name}"), result))
}

fn word_of(word: &str) -> Option<&'static str> {
    match word {
        "PASS" | "PASSED" | "XFAIL" | "XPASS" | "ok" => Some(PASSED),
        "FAIL" | "FAILED" | "ERROR" => Some(FAILED),
        "SKIP" | "SKIPPED" | "UNTESTED" | "UNSUPPORTED" | "ignored" => Some(SKIPPED),
        _ => None,
    }
}

pub fn counts(results: &Results) -> Counts {
    let count = |wanted| results.values().filter(|result| **result == wanted).count();
    Counts { passed: count(PASSED), failed: count(FAILED), skipped: count(SKIPPED) }
}

/// Tests with another result: name, stock, ours.
pub fn differences(stock: &Results, ours: &Results) -> Vec<(String, String, String)> {
    let names = stock.keys().chain(ours.keys().filter(|name| !stock.contains_key(*name)));
    let word = |results: &Results, name: &str| (*results.get(name).unwrap_or(&"not run")).to_owned();
    let all = names.map(|name| (name.clone(), word(stock, name), word(ours, name)));
    all.filter(|(_, stock, ours)| stock != ours).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_read() {
        let read = |format: Format, text| format!("{:?}", format.read(text));
        let words = "PASS: a b\nFAIL: c, why\nSKIPPED: d: e\nFAIL: c\nNote: x\n";
        let all = r#"{"a b": "passed", "c": "failed", "c #2": "failed", "d: e": "skipped"}"#;
        assert_eq!(read(Format::Words, words), all);
        let tap = "t/a.t ..\nok 1 - x\nnot ok 2 - y # todo z\nok 3 # skip no\nok\nokay\nnot ok 4\n";
        let all = r#"{"t/a.t": "passed", "t/a.t 1 - x": "passed", "t/a.t 2 - y": "passed", "t/a.t 3": "skipped", "t/a.t 4": "failed"}"#;
        assert_eq!(read(Format::Tap, tap), all);
        let libtest = "test a::b ... ok\ntest c ... FAILED\ntest d ... ignored, why\ntest result: ok. 1 passed\n";
        assert_eq!(read(Format::Libtest, libtest), r#"{"a::b": "passed", "c": "failed", "d": "skipped"}"#);
        let pytest = "t.py::a[x y] PASSED [ 1%]\nt.py::b SKIPPED (why) [ 2%]\nFAILED t.py::a - x\nt.py::c XFAIL\n";
        assert!(
            read(Format::Pytest, pytest) == r#"{"t.py::a[x y]": "passed", "t.py::b": "skipped", "t.py::c": "passed"}"#
        );
    }

    #[test]
    fn a_test_that_one_run_lacks_is_a_difference() {
        let stock = Results::from([("a".to_owned(), PASSED), ("b".to_owned(), FAILED)]);
        let ours = Results::from([("a".to_owned(), PASSED)]);
        assert_eq!(differences(&stock, &ours), [("b".to_owned(), FAILED.to_owned(), "not run".to_owned())]);
    }
}
