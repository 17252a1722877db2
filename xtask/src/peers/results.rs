//! The results of single tests in the output of a suite.

use super::Counts;
use anyhow::Result;
use regex::Regex;
use std::collections::BTreeMap;

/// The result of each test, by its name.
pub type TestResults = BTreeMap<String, &'static str>;

/// Reads what a pattern with the groups `name`, `word` and perhaps `note` finds in each line.
pub fn read(pattern: &str, text: &str) -> Result<TestResults> {
    let pattern = Regex::new(pattern)?;
    let (mut found, mut file) = (TestResults::new(), "");
    for line in text.lines() {
        // prove names the file of the tests that follow.
        file = line.split_once(" ..").map_or(file, |(name, _)| if name.ends_with(".t") { name } else { file });
        let Some(groups) = pattern.captures(line) else { continue };
        let result =
            match groups.name("note").unwrap_or(groups.name("word").expect("a group")).as_str().trim_end_matches(':') {
                "PASS" | "PASSED" | "XFAIL" | "XPASS" | "ok" | "todo" => "passed",
                "FAIL" | "FAILED" | "ERROR" | "not ok" => "failed",
                _ => "skipped",
            };
        let name = format!("{file}{}", &groups["name"]);
        // A name that comes twice is numbered.
        let same = found.keys().filter(|known| **known == name || known.starts_with(&format!("{name} #"))).count();
        found.insert(if same == 0 { name } else { format!("{name} #{}", same + 1) }, result);
    }
    Ok(found)
}

pub fn counts(results: &TestResults) -> Counts {
    let count = |wanted| results.values().filter(|result| **result == wanted).count();
    Counts { passed: count("passed"), failed: count("failed"), skipped: count("skipped") }
}

/// Tests with another result: name, stock, ours.
pub fn differences(stock: &TestResults, ours: &TestResults) -> Vec<(String, String, String)> {
    let names = stock.keys().chain(ours.keys().filter(|name| !stock.contains_key(*name)));
    let word = |results: &TestResults, name: &str| (*results.get(name).unwrap_or(&"not run")).to_owned();
    let all = names.map(|name| (name.clone(), word(stock, name), word(ours, name)));
    all.filter(|(_, stock, ours)| stock != ours).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_read() {
        let formats = super::super::list().expect("the list").formats;
        let has = |format: &str, text, found: &str| {
            assert_eq!(format!("{:?}", read(&formats[format], text).expect("a pattern")), found, "{format}");
        };
        let words = "PASS: a b\nFAIL: c, why\nSKIPPED: d: e\nFAIL: c\nNote: x\n";
        has("words", words, r#"{"a b": "passed", "c": "failed", "c #2": "failed", "d: e": "skipped"}"#);
        let tap = "t/a.t ..\nok 1 - x\nnot ok 2 - y # todo z\nok 3 # skip no\nok\nokay\nnot ok 4\n";
        let all = r#"{"t/a.t": "passed", "t/a.t 1 - x": "passed", "t/a.t 2 - y": "passed", "t/a.t 3": "skipped", "t/a.t 4": "failed"}"#;
        has("tap", tap, all);
        let libtest = "test a::b ... ok\ntest c ... FAILED\ntest d ... ignored, why\ntest result: ok. 1 passed\n";
        has("libtest", libtest, r#"{"a::b": "passed", "c": "failed", "d": "skipped"}"#);
        let pytest = "t.py::a[x y] PASSED [ 1%]\nt.py::b SKIPPED (why) [ 2%]\nFAILED t.py::a - x\nt.py::c XFAIL\n";
        has("pytest", pytest, r#"{"t.py::a[x y]": "passed", "t.py::b": "skipped", "t.py::c": "passed"}"#);
    }

    #[test]
    fn a_test_that_one_run_lacks_is_a_difference() {
        let (stock, ours) = (
            TestResults::from([("a".into(), "passed"), ("b".into(), "failed")]),
            TestResults::from([("a".into(), "passed")]),
        );
        assert_eq!(differences(&stock, &ours), [("b".into(), "failed".into(), "not run".into())]);
    }
}
