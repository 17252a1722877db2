//! Runs the code blocks of every page. The blocks in Rust are documentation tests of the crate `forkless-tests`. A shell block that
//! needs a cluster, a server or an installation is only checked: its syntax, and the options of `forkless` in it.

testing::usual_surroundings!();

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use testing::modules::{Modules, Profile};
use testing::packages::Built;

/// A fenced block.
struct Block {
    /// The page, relative to the tree.
    page: String,
    /// The page and the line, for messages.
    place: String,
    language: String,
    code: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Markdown files below a directory of the tree, but not those of records, nor the texts of man pages, whose examples
/// `help.rs` runs.
fn markdown(directory: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(root().join(directory)).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = format!("{directory}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if !name.ends_with("/record") && !name.ends_with("/node_modules") {
                markdown(&name, found);
            }
        } else if name.ends_with(".md") && !name.starts_with("crates/cli/") {
            found.push(name);
        }
    }
}

fn pages() -> Vec<String> {
    let mut pages: Vec<String> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned).into();
    ["docs", "bench", "bindings", "crates"].into_iter().for_each(|directory| markdown(directory, &mut pages));
    assert!(pages.len() > 45, "{pages:?}");
    pages
}

/// Pages for newcomers, of which everything runs and shows what it prints.
fn is_for_newcomers(page: &str) -> bool {
    page.starts_with("docs/tour/") || ["docs/install.md", "docs/faq.md"].contains(&page)
}

fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).expect("a page");
        let mut open: Option<Block> = None;
        for (line, words) in text.lines().enumerate() {
            match (words.strip_prefix("```"), &mut open) {
                (Some(language), None) => {
                    let place = format!("{page}:{}", line + 1);
                    open =
                        Some(Block { page: page.clone(), place, language: language.to_owned(), code: String::new() });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (None, Some(block)) => block.code += &format!("{words}\n"),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{page}: a block without an end");
    }
    blocks
}

/// The blocks in one language.
fn of(language: &str) -> Vec<Block> {
    let found: Vec<_> = blocks().into_iter().filter(|block| block.language == language).collect();
    assert!(!found.is_empty(), "no block in {language}");
    found
}

/// The project of a reader: a repository with a directory `work`, and a Makefile that has nothing to do.
fn project() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("temporary directory");
    let place = directory.path();
    // As that of a project: a sandbox of root runs as nobody.
    fs::set_permissions(place, fs::Permissions::from_mode(0o755)).expect("ours");
    fs::create_dir(place.join("work")).expect("writable");
    fs::write(place.join("Makefile"), "all:\n\t@true\n").expect("writable");
    let git =
        "git init --quiet && git -c user.name=a -c user.email=a@example.org commit --quiet --allow-empty -m first";
    let made = Command::new("sh").args(["-ec", git]).current_dir(place).output().expect("sh");
    assert!(made.status.success(), "{made:?}");
    directory
}

/// Runs the command in such a project; an error with all that it wrote unless it succeeds.
#[track_caller]
fn passes(block: &Block, command: &mut Command) -> Output {
    let directory = project();
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
    let known = ["rust", "rust,no_run", "sh", "text", "toml", "c", "python", "js", "perl", "raku", "go", "java"];
    let tests = fs::read_to_string(root().join("tests/src/lib.rs")).expect("the documentation tests");
    for block in blocks() {
        // Only the drawing of a launch has no language.
        let is_known = known.contains(&&*block.language) || block.page == "ARCHITECTURE.md";
        assert!(is_known, "{}: {:?}", block.place, block.language);
        let is_tested = tests.contains(&format!("include_str!(\"../../{}\")", block.page));
        // The page of a crate is a part of its documentation.
        let is_tested = is_tested || block.page == "crates/forkless/README.md";
        assert!(is_tested || !block.language.starts_with("rust"), "{}: tests/src/lib.rs lacks the page", block.place);
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
        let shown = blocks.get(n + 1).filter(|next| next.language == "text" && next.page == block.page);
        let Some(shown) = shown.filter(|_| !is_for_cargo(block)) else {
            assert!(!is_for_newcomers(&block.page), "{}: no output is shown", block.place);
            continue;
        };
        if block.code.contains("--sandbox") && !namespaces {
            eprintln!("SKIPPED: {} because user namespaces are refused", block.place);
            continue;
        }
        if block.code.contains("--user ") && !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: {} because the tests run as an ordinary user", block.place);
            continue;
        }
        if block.code.contains("--nice") && rustix::process::getpriority_process(None).is_ok_and(|nice| nice != 0) {
            eprintln!("SKIPPED: {} because it adds to the nice value, which is not 0 here", block.place);
            continue;
        }
        let mut shell = Command::new("sh");
        shell.args(["-uc", &block.code]).env("PATH", &path).env("LC_ALL", "C");
        let output = passes(block, &mut shell);
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(matches(&out, &shown.code), "{}: {out:?}, not {:?}", block.place, shown.code);
        ran += 1;
    }
    assert!(ran > 5, "{ran} blocks");
}

/// `sandbox.rs` runs the block of docs/run.md that begins with cargo.
fn is_for_cargo(block: &Block) -> bool {
    block.code.starts_with("cargo ")
}

/// The options of `forkless SUBCOMMAND` in a script, with the subcommand. Quoted words are values and programs.
fn options(script: &str) -> Vec<(String, String)> {
    let script = script.replace("\\\n", " ").replace("cargo run --release --", "forkless");
    let mut found = Vec::new();
    for call in script.lines().flat_map(|line| line.split("forkless ").skip(1)) {
        let call = call.split(['|', '>', ';', '&']).next().unwrap_or("");
        // "cargo test -p forkless --lib" has none.
        let Some((subcommand, _)) = call.split_once(' ').filter(|(word, _)| !word.starts_with('-')) else { continue };
        for word in call.split('\'').step_by(2).flat_map(str::split_whitespace).filter(|word| word.starts_with("--")) {
            let name = word.split('=').next().unwrap_or(word);
            found.extend((name != "--").then(|| (subcommand.to_owned(), name.to_owned())));
        }
    }
    found
}

/// What is not run, for want of a cluster or an installation.
#[test]
fn other_shell_blocks_are_shell_with_options_that_exist() {
    assert_eq!(options("a | forkless run --x 'b --y' --z=1 \\\n --v -- c > d --w").len(), 3);
    let (mut blocks_of_others, mut checked) = (0, 0);
    for block in blocks().iter().filter(|block| block.language == "sh" && !is_for_newcomers(&block.page)) {
        blocks_of_others += 1;
        let shell = if block.code.starts_with("#!/bin/bash") { "bash" } else { "sh" };
        passes(block, Command::new(shell).args(["-n", "-c", &block.code]));
        for (subcommand, option) in options(&block.code) {
            let help = Command::new(env!("CARGO_BIN_EXE_forkless")).args([&subcommand, "--help"]).output();
            let help = String::from_utf8_lossy(&help.expect("forkless").stdout).into_owned();
            let is_known =
                help.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-').any(|word| word == option);
            assert!(is_known, "{}: forkless {subcommand} has no {option}", block.place);
            checked += 1;
        }
    }
    assert!(blocks_of_others > 15 && checked > 20, "{blocks_of_others} blocks, {checked} options");
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
        let mut run = Command::new(python);
        if block.code.contains("Warm(") {
            // It needs an installed libforkless_warm.so; test_warm.py of the package makes these calls.
            run.args(["-c", "import sys; compile(sys.argv[1], 'block', 'exec')", &block.code]);
        } else {
            run.args(["-c", &block.code]);
        }
        passes(&block, &mut run);
    }
}

#[test]
fn node_blocks_run() {
    let Some(modules) = module(&modules().node, "JavaScript") else { return };
    // Modules are looked for beside the file, not by NODE_PATH.
    let place = tempfile::tempdir().expect("temporary directory");
    std::os::unix::fs::symlink(modules, place.path().join("node_modules")).expect("a link");
    for block in of("js") {
        let is_module = block.code.lines().any(|line| line.starts_with("import "));
        let file = place.path().join(if is_module { "block.mjs" } else { "block.cjs" });
        fs::write(&file, &block.code).expect("writable");
        passes(&block, Command::new("node").arg(&file));
    }
}

#[test]
fn perl_blocks_run() {
    let Some(dist) = module(&modules().perl, "Perl") else { return };
    for block in of("perl") {
        passes(&block, Command::new("perl").args(["-e", &block.code]).env("PERL5LIB", inc(dist)));
    }
}

#[test]
fn raku_blocks_run() {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let copy = || testing::raku::copy(&own.join("raku"), own.parent().expect("a directory of cargo's"));
    let copy = tempfile::tempfile_in(own).map_or_else(
        |_| Err("this user cannot write to cargo's directory".to_owned()),
        |_| copy().unwrap_or_else(|error| panic!("{error:#}")),
    );
    let copy = match copy {
        Ok(copy) => copy,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED: blocks in Raku because {why}");
            return;
        }
    };
    for block in of("raku") {
        let mut raku = Command::new("raku");
        raku.arg("-I").arg(copy.dist.join("lib")).args(["-e", &block.code]).env("FORKLESS_LIBRARY", &copy.library);
        passes(&block, &mut raku);
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
    if let Err(error) = testing::dist::install_once(&prefix, own.parent().expect("a directory of cargo's")) {
        assert!(tempfile::tempfile_in(own).is_err(), "{error:#}");
        let _ = writeln!(std::io::stderr(), "SKIPPED: blocks in C because cargo cannot build as this user");
        return;
    }
    let place = tempfile::tempdir().expect("temporary directory");
    let (source, program) = (place.path().join("block.c"), place.path().join("block"));
    // The C library's own tests compile those of docs/c.md, and run the one that needs no project.
    for block in of("c").into_iter().filter(|block| block.page != "docs/c.md") {
        fs::write(&source, &block.code).expect("writable");
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&source);
        passes(&block, cc.arg("-I").arg(prefix.join("include")).arg("-L").arg(prefix.join("lib")).arg("-lforkless"));
        passes(&block, Command::new(&program).env("LD_LIBRARY_PATH", prefix.join("lib")));
    }
}
