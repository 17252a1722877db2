//! Runs every code block of the pages for newcomers: docs/install.md, docs/faq.md and docs/tour. The blocks in Rust are documentation
//! tests of the crate `forkless-tests`.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use xtask::modules::{Built, Modules, Profile};

/// A fenced block.
struct Block {
    /// The page and the line, for messages.
    place: String,
    language: String,
    code: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages() -> Vec<PathBuf> {
    let docs = root().join("docs");
    let mut pages = vec![docs.join("install.md"), docs.join("faq.md")];
    let tours = fs::read_dir(docs.join("tour")).expect("the tours");
    pages.extend(tours.map(|entry| entry.expect("an entry").path()));
    assert_eq!(pages.len(), 10, "{pages:?}");
    pages
}

fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        let mut open: Option<Block> = None;
        for (line, words) in text.lines().enumerate() {
            match (words.strip_prefix("```"), &mut open) {
                (Some(language), None) => {
                    let name = page.file_name().expect("a name").to_string_lossy();
                    let place = format!("{name}:{}", line + 1);
                    open = Some(Block { place, language: language.to_owned(), code: String::new() });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (None, Some(block)) => block.code += &format!("{words}\n"),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{page:?}: a block without an end");
    }
    blocks
}

/// The blocks in one language.
fn of(language: &str) -> Vec<Block> {
    let found: Vec<_> = blocks().into_iter().filter(|block| block.language == language).collect();
    assert!(!found.is_empty(), "no block in {language}");
    found
}

/// Runs the command in a directory of its own; an error with all that it wrote unless it succeeds.
#[track_caller]
fn passes(block: &Block, command: &mut Command) -> Output {
    let directory = tempfile::tempdir().expect("temporary directory");
    // As that of a project: a sandbox of root runs as nobody.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let output = command.current_dir(directory.path()).stdin(Stdio::null()).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let place = &block.place;
    assert!(output.status.success(), "{place}: {}\n{}{}", output.status, text(&output.stdout), text(&output.stderr));
    output
}

/// The language modules, built as for their own tests.
fn modules() -> &'static Modules {
    static MODULES: OnceLock<Modules> = OnceLock::new();
    MODULES.get_or_init(|| {
        let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let modules = Modules::build(own, own.parent().expect("a directory of cargo's"), Profile::Dev);
        modules.unwrap_or_else(|error| panic!("{error:#}"))
    })
}

/// Written to the terminal directly, because the harness hides the output of passing tests.
fn module<'a>(built: &'a Built, what: &str) -> Option<&'a Path> {
    match built {
        Ok(place) => Some(place),
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED: blocks in {what} because {why}");
            None
        }
    }
}

/// A block in a language that nothing runs would not be noticed.
#[test]
fn each_language_has_a_test() {
    let known = ["rust", "sh", "text", "toml", "c", "python", "js", "perl"];
    for block in blocks() {
        assert!(known.contains(&&*block.language), "{}: {:?}", block.place, block.language);
    }
    let tests = fs::read_to_string(root().join("tests/src/lib.rs")).expect("the documentation tests");
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        let name = page.strip_prefix(root()).expect("in the tree").to_string_lossy().into_owned();
        let is_tested = tests.contains(&format!("include_str!(\"../../{name}\")"));
        assert_eq!(text.contains("```rust\n"), is_tested, "tests/src/lib.rs and {name}");
    }
}

/// Does the output match? Each "..." is any text.
fn matches(output: &str, expected: &str) -> bool {
    let mut parts = expected.split("...");
    let Some(mut rest) = output.strip_prefix(parts.next().unwrap_or("")) else { return false };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        let at = if parts.peek().is_none() { rest.rfind(part) } else { rest.find(part) };
        let Some(at) = at else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty()
}

#[test]
fn the_comparison_of_outputs_finds_differences() {
    assert!(matches("a\nb\n", "a\nb\n") && matches("a 17 b\n", "a ... b\n") && matches("x\n", "...\n"));
    assert!(!matches("a\nb\n", "a\n") && !matches("a 17 c\n", "a ... b\n") && !matches("b\n", "a\n"));
}

#[test]
fn shell_blocks_print_what_the_page_shows() {
    let place = tempfile::tempdir().expect("temporary directory");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_forkless"), place.path().join("forkless")).expect("a link");
    let path = format!("{}:{}", place.path().display(), std::env::var("PATH").expect("a PATH"));
    let namespaces = Command::new("unshare").args(["--user", "--map-root-user", "true"]).output();
    let namespaces = namespaces.is_ok_and(|output| output.status.success());
    let blocks = blocks();
    let mut ran = 0;
    for (n, block) in blocks.iter().enumerate().filter(|(_, block)| block.language == "sh") {
        if block.code.contains("--sandbox") && !namespaces {
            eprintln!("SKIPPED: {} because user namespaces are refused", block.place);
            continue;
        }
        let shown = blocks.get(n + 1).filter(|next| next.language == "text");
        let shown = shown.unwrap_or_else(|| panic!("{}: no output is shown", block.place));
        let mut shell = Command::new("sh");
        shell.args(["-uc", &block.code]).env("PATH", &path).env("LC_ALL", "C");
        let output = passes(block, &mut shell);
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(matches(&out, &shown.code), "{}: {out:?}, not {:?}", block.place, shown.code);
        ran += 1;
    }
    assert!(ran > 5, "{ran} blocks");
}

#[test]
fn manifests_name_features_and_versions_that_exist() {
    let manifest = fs::read_to_string(root().join("crates/forkless/Cargo.toml")).expect("the manifest");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    for block in of("toml") {
        let table: toml::Table = block.code.parse().unwrap_or_else(|error| panic!("{}: {error}", block.place));
        let dependencies = table.get("dependencies").cloned().or_else(|| {
            let target = table.get("target")?.as_table()?.values().next()?;
            target.get("dependencies").cloned()
        });
        let ours = dependencies.as_ref().and_then(|all| all.get("forkless"));
        let ours = ours.unwrap_or_else(|| panic!("{}: no dependency", block.place));
        if let Some(version) = ours.as_str().or_else(|| ours.get("version")?.as_str()) {
            assert!(env!("CARGO_PKG_VERSION").starts_with(version), "{}: {version}", block.place);
        }
        for feature in ours.get("features").and_then(|all| all.as_array()).into_iter().flatten() {
            let name = feature.as_str().expect("a name");
            assert!(manifest["features"].get(name).is_some(), "{}: {name}", block.place);
        }
    }
}

#[test]
fn python_blocks_run() {
    let Some(python) = module(&modules().python, "Python") else { return };
    for block in of("python") {
        passes(&block, Command::new(python).args(["-c", &block.code]));
    }
}

#[test]
fn node_blocks_run() {
    let Some(modules) = module(&modules().node, "JavaScript") else { return };
    for block in of("js") {
        passes(&block, Command::new("node").args(["-e", &block.code]).env("NODE_PATH", modules));
    }
}

#[test]
fn perl_blocks_run() {
    let Some(dist) = module(&modules().perl, "Perl") else { return };
    for block in of("perl") {
        passes(&block, Command::new("perl").args(["-e", &block.code]).env("PERL5LIB", inc(dist)));
    }
}

/// The directories of a built distribution.
fn inc(dist: &Path) -> String {
    format!("{}:{}", dist.join("blib/lib").display(), dist.join("blib/arch").display())
}

#[test]
fn c_blocks_compile_and_run() {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let prefix = own.join("c");
    if let Err(error) = xtask::dist::install_once(&prefix, own.parent().expect("a directory of cargo's")) {
        assert!(tempfile::tempfile_in(own).is_err(), "{error:#}");
        let _ = writeln!(std::io::stderr(), "SKIPPED: blocks in C because cargo cannot build as this user");
        return;
    }
    let place = tempfile::tempdir().expect("temporary directory");
    let (source, program) = (place.path().join("block.c"), place.path().join("block"));
    for block in of("c") {
        fs::write(&source, &block.code).expect("writable");
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&source);
        passes(&block, cc.arg("-I").arg(prefix.join("include")).arg("-L").arg(prefix.join("lib")).arg("-lforkless"));
        passes(&block, Command::new(&program).env("LD_LIBRARY_PATH", prefix.join("lib")));
    }
}
