//! `cargo xtask settings`: what other languages and the docs have of the library's tables of settings and features, written between marks
//! in their files.

use crate::features;
use forkless::Step;
use forkless::settings::{Row, TABLE};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// A file with what stands between two marks.
struct Part {
    file: &'static str,
    begin: &'static str,
    end: &'static str,
    text: fn() -> String,
}

const PARTS: &[Part] = &[
    Part { file: HEADER, begin: "/* steps: begin */\n", end: "/* steps: end */", text: steps },
    Part { file: HEADER, begin: "/* settings: begin */\n", end: "/* settings: end */", text: functions },
    Part { file: "bindings/perl/settings.h", begin: "/* settings: begin */\n", end: "/* settings: end */", text: perl },
    Part {
        file: "bindings/python/python/forkless/_settings.py",
        begin: "    # settings: begin\n",
        end: "    # settings: end",
        text: python,
    },
    Part {
        file: "bindings/raku/lib/Forkless/Settings.rakumod",
        begin: "    # settings: begin\n",
        end: "    # settings: end",
        text: raku,
    },
    Part {
        file: "bindings/node/lib/settings.d.ts",
        begin: "  // settings: begin\n",
        end: "  // settings: end",
        text: node,
    },
    Part {
        file: "docs/faq.md",
        begin: "<!-- features: begin -->\n",
        end: "<!-- features: end -->",
        text: features::table,
    },
    Part { file: "docs/settings.md", begin: "<!-- settings: begin -->\n", end: "<!-- settings: end -->", text: docs },
];

const HEADER: &str = "crates/capi/include/forkless.h";

/// The files, as they should be now: name and text.
///
/// # Panics
/// When one cannot be read, or has lost its marks.
pub fn files(root: &Path) -> Vec<(&'static str, String)> {
    let mut files: Vec<(&str, String)> = Vec::new();
    for part in PARTS {
        let index = files.iter().position(|(name, _)| *name == part.file).unwrap_or_else(|| {
            let text = fs::read_to_string(root.join(part.file));
            files.push((part.file, text.unwrap_or_else(|error| panic!("{}: {error}", part.file))));
            files.len() - 1
        });
        let text = &mut files[index].1;
        let line = |mark: &str| panic!("{} has no line {:?}", part.file, mark.trim());
        let start = text.find(part.begin).map_or_else(|| line(part.begin), |at| at + part.begin.len());
        let length = text[start..].find(part.end).unwrap_or_else(|| line(part.end));
        text.replace_range(start..start + length, &(part.text)());
    }
    files
}

/// `SetGid` as `SET_GID`.
fn upper(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push('_');
        }
        words.push(letter.to_ascii_uppercase());
    }
    words
}

fn steps() -> String {
    let all = (0..1000).filter_map(Step::of_code);
    let lines: Vec<String> =
        all.map(|step| format!("    FORKLESS_STEP_{} = {}", upper(&format!("{step:?}")), step.code())).collect();
    format!("enum {{\n{}\n}};\n", lines.join(",\n"))
}

/// A kind of value in C, in Perl's table, and in Python's stub.
fn value_kind(row: &Row) -> (&'static str, char, &'static str) {
    match row.kind {
        "u64" => ("uint64_t ", 'U', "int"),
        "u32" => ("uint32_t ", 'u', "int"),
        "i32" | "number" => ("int ", 'i', "int"),
        "flag" => ("int ", 'i', "bool"),
        "signal" => ("int ", 'g', "int"),
        "fd" => ("int ", 'f', "FileDescriptorLike"),
        "file" => ("int ", 'f', "FileDescriptorLike | StrOrBytesPath"),
        "mode" => ("mode_t ", 'u', "int"),
        "capabilities" => ("uint64_t ", 'U', "Iterable[str] | int"),
        "path" => ("const char *", 's', "StrOrBytesPath"),
        "text" => ("const char *", 's', "str | bytes"),
        "word" => ("const char *", 's', "str"),
        "amount" => ("const char *", 's', "int | float | str"),
        other => panic!("{}: no such kind: {other}", row.name),
    }
}

fn functions() -> String {
    let mut text = String::new();
    for row in TABLE {
        let (name, c, argument) = (row.name, value_kind(row).0, row.argument);
        let _ = writeln!(text, "/* {}. */", row.line);
        let _ = writeln!(text, "int forkless_command_{name}(forkless_command *command, {c}{argument});");
    }
    text
}

fn perl() -> String {
    let mut text = "#define SETTINGS_OF_ONE_VALUE \\\n".to_owned();
    for row in TABLE {
        let example = if row.example.is_empty() { String::new() } else { format!(" /* {} */", row.example) };
        let _ = writeln!(text, "    ONE({}, \"{}\"),{example} \\", row.name, value_kind(row).1);
    }
    text.push('\n');
    text
}

fn raku() -> String {
    let mut text = String::new();
    for row in TABLE {
        let kind = match value_kind(row).1 {
            's' => "Blob",
            'u' => "uint32",
            'U' => "uint64",
            _ => "int32",
        };
        let (name, c_name) = (row.name.replace('_', "-"), row.name);
        let _ = writeln!(
            text,
            "    {name} => (sub forkless_command_{c_name}(size_t, {kind} --> int32) is native(&library) {{*}}),"
        );
    }
    text
}

fn python() -> String {
    let mut text = String::new();
    for row in TABLE.iter().filter(|row| row.in_python) {
        let _ = writeln!(text, "    {}: {} | None\n    \"\"\"{}.\"\"\"", row.name, value_kind(row).2, row.line);
    }
    text
}

/// A kind of value in TypeScript.
fn node_kind(row: &Row) -> &'static str {
    match row.kind {
        "u64" => "number | bigint",
        "flag" => "boolean",
        "amount" | "mode" => "number | string",
        "fd" => "FileLike",
        "file" => "FileLike | string",
        "capabilities" => "Iterable<string> | number | bigint",
        "path" | "text" | "word" => "string",
        _ => "number",
    }
}

fn node() -> String {
    let mut text = String::new();
    for row in TABLE {
        let mut words = row.name.split('_');
        let mut name = words.next().unwrap_or_default().to_owned();
        for word in words {
            let (first, rest) = word.split_at(1);
            name.push_str(&first.to_ascii_uppercase());
            name.push_str(rest);
        }
        let _ = writeln!(text, "  /** {}. */\n  {name}?: {};", row.line, node_kind(row));
    }
    text
}

fn docs() -> String {
    let mut text = "| builder (`Command::`) | `forkless run` | what it does | system call | needs |\n".to_owned();
    text.push_str("| --- | --- | --- | --- | --- |\n");
    for row in TABLE {
        let Some((call, needs)) = row.docs else { continue };
        let cells = [&format!("`{}`", row.name), row.run_words, row.line, call, needs];
        let _ = writeln!(text, "| {} |", cells.join(" | ").replace("|  |", "| |").trim_end());
    }
    text
}
