//! Style rules of the project that can be checked automatically.

testing::usual_surroundings!();

use forkless_tests::modules::Modules;
use forkless_tests::{features, public};

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Of `crates/forkless`: those of `shell`.
const FORKLESS: usize = 6;

/// The maximum length of a file, unless it says at the top why it is longer.
const LONGEST: usize = 700;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The project's own files with this extension.
fn files(ending: &str) -> Vec<PathBuf> {
    fn walk(directory: &Path, ending: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).expect("a directory").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let hidden = name.to_string_lossy().starts_with('.');
            if path.is_symlink() {
                // Another file's text.
            } else if path.is_dir() && !hidden && name != "target" {
                walk(&path, ending, found);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), ending, &mut found);
    assert!(!found.is_empty(), "no .{ending} file");
    found
}

#[test]
fn sources_begin_with_their_purpose_and_are_short() {
    for path in files("rs") {
        let text = fs::read_to_string(&path).expect("a source");
        assert!(text.starts_with("//!"), "{path:?} does not begin with a line on what it is for");
        let excused = text.lines().take(12).any(|line| line.contains("Longer than"));
        let lines = text.lines().count();
        assert!(lines <= LONGEST || excused, "{path:?} has {lines} lines and does not say why (\"Longer than …\")");
        for (n, line) in text.lines().enumerate() {
            assert!(!line.contains('\t'), "{path:?}:{} has a tab", n + 1);
            for word in ["TODO", "FIXME", "XXX"] {
                // This file names them.
                let named = path.ends_with("tidy.rs");
                assert!(named || !line.contains(word), "{path:?}:{} has a {word}", n + 1);
            }
        }
    }
}

/// A test that reads a message of another program, say, would fail in another language.
#[test]
fn every_test_program_has_the_usual_surroundings() {
    let is_program = |path: &PathBuf| {
        let parent = path.parent().and_then(Path::file_name);
        parent.is_some_and(|name| name == "tests" || name == "it") && path.extension().is_some_and(|end| end == "rs")
    };
    let programs: Vec<PathBuf> = files("rs").into_iter().filter(is_program).collect();
    assert!(programs.len() > 70, "{programs:?}");
    for path in programs {
        let text = fs::read_to_string(&path).expect("a source");
        assert!(
            text.contains("\ntesting::usual_surroundings!();\n"),
            "{path:?} has not: testing::usual_surroundings!();"
        );
    }
}

#[test]
fn links_between_documents_have_targets() {
    let mut links = 0;
    for path in files("md") {
        let text = fs::read_to_string(&path).expect("a document");
        for link in text.split("](").skip(1).filter_map(|part| part.split(')').next()) {
            let (target, anchor) = link.split_once('#').map_or((link, None), |(target, anchor)| (target, Some(anchor)));
            if target.contains("://") || link.is_empty() {
                continue;
            }
            links += 1;
            let page = if target.is_empty() { path.clone() } else { path.parent().expect("a directory").join(target) };
            assert!(page.exists(), "{path:?} refers to {target}, which is not there");
            if let Some(anchor) = anchor.filter(|_| page.extension().is_some_and(|ending| ending == "md")) {
                let has_it = anchors(&fs::read_to_string(&page).expect("a document")).any(|known| known == anchor);
                assert!(has_it, "{path:?} refers to {link}: {page:?} has no heading of that name");
            }
        }
    }
    assert!(links > 10);
}

/// The names by which links lead to the headings of a document, as forges make them.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let mut is_code = false;
    let headings = text.lines().filter(move |line| {
        is_code ^= line.starts_with("```");
        !is_code && line.starts_with('#')
    });
    let part = |letter: char| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then(|| letter.to_ascii_lowercase()),
    };
    headings.map(move |line| line.trim_start_matches('#').trim().chars().filter_map(part).collect())
}

/// Sources move, and the documents that name them with them. The changelog and records are about their own day.
#[test]
fn sources_named_in_documents_exist() {
    let sources = files("rs");
    let mut named = 0;
    for path in files("md").iter().filter(|path| !path.ends_with("CHANGELOG.md")) {
        let text = fs::read_to_string(path).expect("a document");
        let is_source = |word: &&str| word.ends_with(".rs") && !word.contains([' ', '\n', '*', '…']);
        for source in text.split('`').skip(1).step_by(2).filter(is_source) {
            named += 1;
            let exists = sources.iter().any(|path| path.ends_with(source));
            assert!(exists, "{path:?} names {source}, which does not exist");
        }
    }
    assert!(named > 10);
}

/// A number in `/proc` may be a stranger, so paths below it are made at one place, which proves that it is not: the module `procfs`.
#[test]
fn paths_below_proc_are_made_at_one_place() {
    // Words of a file that are data or prose: paths that a child has mounted, that a user's line names, or that an error explains.
    const OTHERS: [(&str, &[&str]); 7] = [
        (
            "crates/forkless/src/plan/compile/mounts.rs",
            &["\"/proc/self/fd\"", "\"/proc/self/fd/0\"", "\"/proc/self/fd/1\"", "\"/proc/self/fd/2\""],
        ),
        ("crates/forkless/src/plan/compile/setup.rs", &["b\"/proc/self/oom_score_adj\""]),
        ("crates/forkless/src/shell/direct.rs", &["b\"/proc\""]),
        ("crates/forkless/src/warm/watch.rs", &["b\"/proc/\"", "b\"/proc/filesystems\""]),
        ("crates/preload/src/log.rs", &["\"/proc/self/fd\""]),
        ("crates/preload/src/inherit.rs", &["b\"/proc\""]),
        ("crates/jobs/src/engine/limits.rs", &["\"/proc/stat\"", "\"/proc/meminfo\""]),
    ];
    // The memory and the status of the calling process alone, in libraries without std.
    const OWN: [&str; 3] = ["c\"/proc/self/mem\"", "c\"/proc/self/pagemap\"", "c\"/proc/self/stat\""];
    let mut seen = 0;
    for path in files("rs") {
        let name = path.strip_prefix(root()).expect("below it").to_str().expect("UTF-8").to_owned();
        let is_library = ["core", "forkless", "capi", "preload", "warm", "jobs", "gearman"]
            .iter()
            .any(|part| name.starts_with(&format!("crates/{part}/src/")));
        if !is_library || name.ends_with("/procfs.rs") || name.ends_with("/tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let allowed = OTHERS.iter().find(|(file, _)| *file == name).map_or(&[][..], |(_, words)| words);
        for (n, line) in code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for (at, _) in line.match_indices("\"/proc") {
                seen += 1;
                let end = line[at + 1..].find('"').map_or(line.len(), |end| at + end + 2);
                let start = if at > 0 && matches!(line.as_bytes()[at - 1], b'b' | b'c') { at - 1 } else { at };
                let literal = &line[start..end];
                // A sentence.
                let is_prose = literal.contains(' ');
                let is_own = name.starts_with("crates/warm/") && OWN.contains(&literal);
                assert!(is_prose || is_own || allowed.contains(&literal), "{name}:{}: {literal}", n + 1);
            }
        }
    }
    assert!(seen >= 10, "{seen}");
}

/// Every setting of the child has a row in the table of settings.
#[test]
fn settings_are_documented() {
    let table = fs::read_to_string(root().join("docs/settings.md")).expect("the table");
    for source in ["setup", "sandbox"] {
        let path = root().join(format!("crates/forkless/src/request/command/{source}.rs"));
        let text = fs::read_to_string(&path).expect("the source");
        let builders = text.split("pub fn ").chain(text.split("pub unsafe fn ")).skip(1);
        for name in builders.filter(|part| part.contains("&mut self")).filter_map(|part| part.split(['(', '<']).next())
        {
            if name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_') {
                assert!(table.contains(&format!("`{name}`")), "docs/settings.md has no row for {name}");
            }
        }
    }
}

/// Every step has a name and a unique number.
#[test]
fn steps_have_numbers_of_their_own() {
    let mut seen = 0;
    for code in 0..256 {
        if let Some(step) = forkless::Step::of_code(code) {
            assert_eq!(step.code(), code);
            assert!(!step.describe().is_empty());
            seen += 1;
        }
    }
    assert!(seen > 40);
}

/// Files that need each other can only be understood together. The numbers are today's: they may fall, not rise.
#[test]
fn few_files_need_each_other() {
    for (name, most) in [
        ("bench", 3),
        ("bindings/python", 7),
        ("crates/cli", 5),
        ("crates/forkless", FORKLESS),
        ("crates/jobs", 4),
        ("crates/runner", 6),
    ] {
        let circles = Modules::read(&root().join(name).join("src")).circles();
        let largest = circles.first().map_or(0, |circle| circle.len());
        assert!(largest <= most, "{largest} files of {name} need each other: {:?}", circles[0]);
        eprintln!("{largest} files of {name} need each other");
    }
    // Between the folders of a crate, and the files beside them, there is none: a reader can begin with any.
    for name in ["bench", "bindings/node", "testing", "xtask"].map(PathBuf::from).into_iter().chain(crates()) {
        let folders = Modules::read(&root().join(&name).join("src")).folders().circles();
        assert!(folders.is_empty(), "folders of {} need each other: {folders:?}", name.display());
    }
}

/// The directories below `crates`.
fn crates() -> impl Iterator<Item = PathBuf> {
    let all = fs::read_dir(root().join("crates")).expect("crates").flatten();
    all.map(|entry| entry.path()).filter(|path| path.join("Cargo.toml").exists())
}

/// The builders that the table of settings makes; the rows have their documentation.
fn is_of_table(name: &str) -> bool {
    name.contains('$')
}

/// Each row of the table of settings with a builder has an example of it.
#[test]
fn settings_of_the_table_have_an_example() {
    let table = fs::read_to_string(root().join("crates/forkless/src/settings.rs")).expect("the table");
    let rows = forkless::settings::TABLE.iter().filter(|row| row.docs.is_some()).count();
    assert_eq!(table.matches(" /// ```").count(), 2 * rows, "examples in {rows} rows");
}

/// An example says what a function is for sooner than its text does, and as a doc test it is compiled.
#[test]
fn public_functions_have_an_example() {
    let all = public::functions(&root().join("crates/forkless/src"), &["lib.rs", "tokio/mod.rs", "zygote/mod.rs"]);
    let bare: Vec<_> = all
        .iter()
        .filter(|one| !one.has_example && !is_of_table(&one.name))
        .map(|one| format!("{} ({})", one.name, one.source))
        .collect();
    assert!(bare.is_empty(), "{} functions have no example: {bare:#?}", bare.len());
    assert!(all.len() > 250, "only {} functions were found", all.len());
}

/// The documentation of `Command` lists its methods by what they are for.
#[test]
fn methods_of_command_are_grouped_in_its_documentation() {
    let text = fs::read_to_string(root().join("crates/forkless/src/request/command/mod.rs")).expect("the source");
    let groups = text.split("/// # Methods by purpose\n").nth(1).expect("the groups");
    let groups = groups.split("///\n").next().expect("the groups");
    let all = public::functions(&root().join("crates/forkless/src"), &["lib.rs"]);
    let mut methods = 0;
    // A link to a method of a feature would be broken without the feature.
    let has_feature = |source: &str| source.starts_with("tokio") || source.starts_with("warm");
    for method in all.iter().filter(|one| !has_feature(&one.source) && !is_of_table(&one.name)) {
        if let Some(name) = method.name.strip_prefix("Command::") {
            methods += 1;
            let listed = groups.matches(&format!("](Self::{name})")).count();
            assert_eq!(listed, 1, "how often the groups in the documentation of Command have {name}");
        }
    }
    assert!(methods > 90, "only {methods} methods were found");
}

/// The types that a crate defines outside of its tests, each with its files.
fn types_of(sources: &Path) -> BTreeMap<String, Vec<PathBuf>> {
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for path in files("rs").into_iter().filter(|path| path.starts_with(sources)) {
        let text = fs::read_to_string(&path).expect("a source");
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or("");
        for line in code.lines() {
            let words: Vec<&str> = line.split_whitespace().skip_while(|word| word.starts_with("pub")).collect();
            // Indented: a type of one function, or of a trait.
            let ["struct" | "enum" | "trait" | "type" | "union", name, ..] = words[..] else { continue };
            if !line.starts_with(' ') {
                let end = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(name.len());
                found.entry(name[..end].to_owned()).or_default().push(path.clone());
            }
        }
    }
    found
}

/// docs/design/terms.md. A reader who has met a name should not have to ask which one it is here.
#[test]
fn a_type_name_says_what_it_is_and_is_defined_once_in_a_crate() {
    const GENERIC: [&str; 8] = ["Answer", "Form", "How", "Kind", "Look", "Place", "Source", "Way"];
    // The same names on purpose: a module in place of one that this build does not have, and types for tokio.
    let stands_for_another = |path: &Path| {
        path.ends_with("absent.rs")
            || path.ends_with("no_warm.rs")
            || path.components().any(|part| part.as_os_str() == "tokio")
    };
    let sources =
        files("toml").into_iter().filter(|path| path.ends_with("Cargo.toml")).map(|path| path.with_file_name("src"));
    let mut wrong = Vec::new();
    // What tests/src has are many programs.
    let sources = sources.filter(|sources| sources.is_dir() && !sources.ends_with("tests/src"));
    for (name, paths) in sources.flat_map(|sources| types_of(&sources)) {
        let own = paths.iter().filter(|path| !stands_for_another(path)).count();
        // The options of each task of xtask, which are called by its module: `fuzz::Options`.
        if GENERIC.contains(&&*name) || own > 1 && name != "Options" {
            wrong.push((name, paths));
        }
    }
    assert!(wrong.is_empty(), "generic, or defined twice: {wrong:#?}");
}

/// docs/design/terms.md. A function has at least a verb or a noun that says of what. (`kind` and `source` of an error are names of std.)
#[test]
fn a_function_name_says_what_it_is() {
    const GENERIC: [&str; 21] = [
        "above", "again", "answer", "away", "felt", "form", "found", "given", "how", "kind", "look", "missed", "place",
        "said", "source", "struck", "told", "unsaid", "way", "words", "worked",
    ];
    let is_of_std = |name: &str, line: &str| match name {
        "kind" => line.ends_with("io::ErrorKind {"),
        "source" => line.contains("dyn std::error::Error"),
        _ => false,
    };
    let mut wrong = Vec::new();
    for path in files("rs") {
        let text = fs::read_to_string(&path).expect("a source");
        for line in text.lines() {
            let Some((before, rest)) = line.split_once("fn ") else { continue };
            let name = rest.split(['(', '<']).next().unwrap_or("");
            let is_definition =
                before.split_whitespace().all(|word| word.chars().all(|letter| !"/\"=".contains(letter)));
            if is_definition && GENERIC.contains(&name) && !is_of_std(name, line) {
                wrong.push(format!("{path:?}: {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "generic names of functions: {wrong:#?}");
}

/// What returns a bool and begins with a verb in the third person or another auxiliary verb is a predicate under another name.
#[test]
fn a_predicate_begins_with_is_has_can_or_does_and_changes_nothing() {
    const OF_STD: [&str; 4] = ["contains", "exists", "matches", "success"];
    const AUXILIARIES: [&str; 9] = ["may", "must", "was", "were", "would", "should", "are", "have", "had"];
    const INSIDE: [&str; 6] = ["_is_", "_are_", "_was_", "_has_", "_may_", "_must_"];
    let is_misnamed = |name: &str, line: &str| match name.split_once('_').map_or(name, |(first, _)| first) {
        "is" | "has" | "can" | "does" => line.contains("(&mut self"),
        first => {
            let is_third_person = first.ends_with('s') && !first.ends_with("ss");
            let asks = is_third_person || AUXILIARIES.contains(&first) || INSIDE.iter().any(|part| name.contains(part));
            asks && (line.contains("-> bool") || line.contains("<bool"))
        }
    };
    let mut wrong = Vec::new();
    for path in files("rs") {
        let text = fs::read_to_string(&path).expect("a source");
        let functions =
            text.lines().filter_map(|line| Some((line.split_once("fn ")?.1.split(['(', '<']).next()?, line)));
        wrong.extend(
            functions
                .filter(|(name, line)| !OF_STD.contains(name) && is_misnamed(name, line))
                .map(|(name, _)| format!("{path:?}: {name}")),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// They are patches in tests/faults, and apply: a test of xtask.
#[test]
fn no_source_has_a_planted_fault() {
    for path in ["rs", "c", "h", "xs", "js", "py", "pm", "rakumod", "toml"].into_iter().flat_map(files) {
        let text = fs::read_to_string(&path).expect("a source");
        let has_mark = [concat!("planted", "!("), concat!("PLANTED", "(\"")].iter().any(|mark| text.contains(mark));
        let is_of_the_trials = path.ends_with("xtask/src/faults.rs")
            || path.ends_with("xtask/tests/pages.rs")
            || path.ends_with("tests/faults/selector.rs");
        assert!(!has_mark || is_of_the_trials, "{path:?}");
    }
}

#[test]
fn what_follows_from_the_table_of_settings_is_up_to_date() {
    let files = forkless_tests::generated::files(&root());
    assert!(files.len() >= 4, "{} files", files.len());
    for (name, now) in files {
        let committed = fs::read_to_string(root().join(name)).expect("the file");
        assert!(committed == now, "{name} is out of date: run `cargo xtask settings`");
    }
}

#[test]
fn resources_have_the_names_of_the_library_in_perl() {
    let module = fs::read_to_string(root().join("bindings/perl/lib/Forkless/Command.pm")).expect("the module");
    let after = module.split_once("%RESOURCE").expect("the list").1;
    let list = after.split_once("qw(").and_then(|(_, rest)| rest.split_once(')')).expect("names").0;
    let names: Vec<String> = list.split_whitespace().map(str::to_lowercase).collect();
    assert_eq!(names, forkless::Resource::ALL.map(forkless::Resource::name));
}

/// A feature of the Rust library is a row of the table, and each language has it, or a reason.
#[test]
fn each_language_has_each_feature_or_a_reason() {
    let root = root();
    let places: [(&str, &str, &[&str]); 5] = [
        ("c", "crates/capi/include", &["h"]),
        ("python", "bindings/python/python", &["pyi", "py"]),
        ("node", "bindings/node/lib", &["ts"]),
        ("perl", "bindings/perl/lib", &["pm"]),
        ("raku", "bindings/raku/lib", &["rakumod"]),
    ];
    let read = |(language, below, endings): &(&'static str, &str, &[&str])| {
        let all = endings.iter().flat_map(|ending| files(ending)).filter(|path| path.starts_with(root.join(below)));
        (*language, all.map(|path| fs::read_to_string(path).expect("a source")).collect::<String>())
    };
    let mut sources: BTreeMap<&str, String> = places.iter().map(read).collect();
    let exported = public::exported(&root.join("crates/forkless/src/lib.rs"));
    let functions = public::functions(&root.join("crates/forkless/src"), &["lib.rs"]);
    let names = functions.iter().map(|one| format!("fn {}\n", one.name.rsplit("::").next().unwrap_or_default()));
    sources.insert("rust", exported.iter().map(|name| format!("pub {name}\n")).chain(names).collect());

    let features = features::all();
    let rows: Vec<&String> = features.iter().flat_map(|feature| &feature.items).collect();
    for name in &exported {
        assert_eq!(rows.iter().filter(|row| **row == name).count(), 1, "{name} is of no feature: tests/features.toml");
    }
    for row in &rows {
        assert!(exported.contains(*row), "{row} of a feature is not exported");
    }
    for feature in &features {
        assert_eq!(feature.cells.len(), features::LANGUAGES.len(), "{feature:?}");
        for (language, _) in features::LANGUAGES {
            let cell = &feature.cells[language];
            match cell.strip_prefix('–') {
                Some(why) => assert!(why.starts_with(": ") && why.len() > 8, "{language}: {cell:?} has no reason"),
                None => assert_named(cell, language, &sources[language]),
            }
        }
    }
}

/// Each name in backticks is of the language's package. What follows a name is an example of its use.
fn assert_named(cell: &str, language: &str, source: &str) {
    for code in cell.split('`').skip(1).step_by(2) {
        let name = code.split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != ':').next();
        let name = name.unwrap_or_default().trim_matches(':').rsplit("::").next().unwrap_or_default();
        assert!(!name.is_empty() && source.contains(name), "{language}: no {name:?} of {code:?} in its package");
    }
}
