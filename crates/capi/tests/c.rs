//! Tests of the C library with C programs: it is installed as `cargo xtask dist` does, and programs are compiled against it,
//! linked and run.

testing::usual_surroundings!();

use forkless::settings::{Row, TABLE};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;

mod hosts;
mod noshell;

/// The prefix where it is installed; none if it cannot be built.
fn prefix() -> Option<&'static Path> {
    static PREFIX: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = PREFIX.get_or_init(|| {
        let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let prefix = own.join("c");
        match testing::dist::install_once(&prefix, own.parent().expect("a directory of cargo's")) {
            Ok(()) => Some(prefix),
            // If this user cannot write to the tree, its owner may have installed it before.
            Err(_) if !is_writable(own) && prefix.join("lib/pkgconfig/forkless.pc").exists() => Some(prefix),
            // A tree that this user cannot write to is not a failure of the library; a failing build is.
            Err(error) if !is_writable(own) => {
                say(&format!("SKIPPED: tests in C because cargo cannot build as this user: {error:#}"));
                None
            }
            Err(error) => panic!("{error:#}"),
        }
    });
    made.as_deref()
}

fn is_writable(directory: &Path) -> bool {
    tempfile::tempfile_in(directory).is_ok()
}

/// Written to the terminal directly, because the harness hides the output of passing tests.
fn say(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

fn sources(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let all = fs::read_dir(&directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut found: Vec<_> = all.filter(|path| path.extension() == Some(OsStr::new("c"))).collect();
    found.sort();
    assert!(!found.is_empty(), "no source in {}", directory.display());
    found
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program()))
}

/// Runs the command and returns its output; fails the test if it fails.
#[track_caller]
fn must(command: &mut Command) -> String {
    let output = output(command);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    for line in err.lines().chain(out.lines()).filter(|line| line.starts_with("SKIPPED:")) {
        say(line);
    }
    out.into_owned()
}

/// The flags of `pkg-config`, with which a user would compile.
fn flags(prefix: &Path, words: &[&str]) -> Vec<String> {
    flags_of("forkless", prefix, words)
}

fn flags_of(library: &str, prefix: &Path, words: &[&str]) -> Vec<String> {
    if Command::new("pkg-config").arg("--version").output().is_err() {
        say("SKIPPED: pkg-config's answers because it is not installed; the flags are named here");
        let prefix = prefix.display();
        let libraries = format!("-L{prefix}/lib -l{library} -lutil -lrt -lpthread -lm -ldl");
        let wanted = |what: &str| words.iter().any(|word| word.starts_with(what));
        let mut named = if wanted("--cflags") { vec![format!("-I{prefix}/include")] } else { Vec::new() };
        if wanted("--libs") {
            named.extend(libraries.split(' ').map(str::to_owned));
        }
        return named;
    }
    let mut command = Command::new("pkg-config");
    command.args(words).arg(library).env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    must(&mut command).split_whitespace().map(str::to_owned).collect()
}

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-g"];

/// Compiles a program against the shared library.
fn compile(prefix: &Path, compiler: &[&str], source: &Path, to: &Path) -> PathBuf {
    let program = to.join(source.file_stem().expect("a name"));
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(WARNINGS).arg("-o").arg(&program).arg(source);
    must(command.args(flags(prefix, &["--cflags", "--libs"])).arg("-lpthread"));
    program
}

/// The program, with a generous timeout for busy machines.
fn run(prefix: &Path, before: &[&str], program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg("300").args(before).arg(program).env("LD_LIBRARY_PATH", prefix.join("lib"));
    command
}

fn temporary() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A test written in C: one program for each group of functions.
fn c_test(name: &str) {
    let Some(prefix) = prefix() else { return };
    let directory = temporary();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.c"));
    let program = compile(prefix, &["cc", "-std=c99"], &source, directory.path());
    must(&mut run(prefix, &[], &program));
}

macro_rules! c_tests {
    ($($name:ident)*) => {
        $(#[test] fn $name() { c_test(stringify!($name)); })*

        /// Every C file in the directory has a test here.
        #[test]
        fn every_test_in_c_is_run() {
            let named: BTreeSet<String> = [$(stringify!($name).to_owned()),*].into();
            let there = sources("tests").iter().map(|path| path.file_stem().unwrap().to_string_lossy().into()).collect();
            assert_eq!(named, there);
        }
    };
}

c_tests! { cgroup child command line nulls pipeline pty sandbox sets stream system threads warm zygote }

/// The examples in the documentation compile. The one that needs no files of its own also runs.
#[test]
fn the_examples_in_the_documentation_work() {
    let Some(prefix) = prefix() else { return };
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/c.md");
    let text = fs::read_to_string(guide).expect("the guide");
    let examples: Vec<&str> =
        text.split("```c\n").skip(1).map(|rest| rest.split("```").next().expect("an end")).collect();
    let [_, line] = examples[..] else { panic!("{} examples", examples.len()) };
    let directory = temporary();
    for (n, example) in examples.iter().enumerate() {
        let source = directory.path().join(format!("guide{n}.c"));
        fs::write(&source, example).expect("write");
        let program = compile(prefix, &["cc", "-std=c99"], &source, directory.path());
        if *example == line {
            must(&mut run(prefix, &[], &program));
        }
    }
}

/// The programs of the pages about Go and Java. Each shows that its program is in a sandbox.
#[test]
fn the_examples_in_go_and_java_work() {
    let Some(prefix) = prefix() else { return };
    let directory = temporary();
    let place = directory.path();
    let example = |page: &str, fence: &str| {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).expect("the page");
        let code = text.split_once(fence).expect("an example").1;
        code.split_once("```").expect("its end").0.to_owned()
    };
    let has = |program: &str, option: &str| {
        Command::new(program).arg(option).output().is_ok_and(|found| found.status.success())
    };
    let seen = |program: &mut Command| {
        let output = output(program.current_dir(place).env("LD_LIBRARY_PATH", prefix.join("lib")));
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        // As the test of sandboxes in C: where user namespaces are refused.
        let is_refused = text.contains("clone");
        if is_refused {
            say(&format!("SKIPPED: sandboxes in another language because {text}"));
        }
        (!is_refused).then_some(text)
    };
    if has("go", "version") {
        fs::write(place.join("main.go"), example("../../docs/go.md", "```go\n")).expect("write");
        fs::write(place.join("go.mod"), "module example\n\ngo 1.18\n").expect("write");
        let mut build = Command::new("go");
        build
            .args(["build", "-o", "from-go", "."])
            .current_dir(place)
            .env("GOTOOLCHAIN", "local")
            .env("GOCACHE", place.join("cache"));
        must(build.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
        let seen = seen(&mut Command::new(place.join("from-go")));
        assert!(seen.as_deref().is_none_or(|seen| seen == "1\nno homes\n"), "{seen:?}");
    } else {
        say("SKIPPED: the example in Go because go is not installed");
    }
    let jna = "/usr/share/java/jna.jar";
    if has("javac", "-version") && Path::new(jna).exists() {
        fs::write(place.join("Launch.java"), example("../../docs/java.md", "```java\n")).expect("write");
        must(Command::new("javac").args(["-cp", jna, "Launch.java"]).current_dir(place));
        let seen = seen(Command::new("java").args(["-cp", &format!("{jna}:."), "Launch"]));
        assert!(seen.as_deref().is_none_or(|seen| seen == "1\n64\nno homes\n"), "{seen:?}");
    } else {
        say("SKIPPED: the example in Java because javac or libjna-java is not installed");
    }
}

/// Finds invalid accesses, double frees and leaks. Only functions that do not launch: valgrind does not support this kind of
/// clone.
#[test]
fn functions_that_do_not_launch_run_clean_under_valgrind() {
    let Some(prefix) = prefix() else { return };
    if Command::new("valgrind").arg("--version").output().is_err() {
        say("SKIPPED: C programs under valgrind because it is not installed");
        return;
    }
    let directory = temporary();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nulls.c");
    let program = compile(prefix, &["cc", "-std=c99"], &source, directory.path());
    let valgrind =
        ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"];
    must(&mut run(prefix, &valgrind, &program));
}

/// The symbols in the output of `readelf` or `nm`.
fn symbols(lines: &str, wanted: impl Fn(&[&str]) -> Option<String>) -> BTreeSet<String> {
    lines.lines().filter_map(|line| wanted(&line.split_whitespace().collect::<Vec<_>>())).collect()
}

/// The functions of the header, with the types of their parameters and results in Rust's notation.
fn header() -> Vec<(String, Vec<String>, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/forkless.h");
    let text = fs::read_to_string(path).expect("the header");
    let mut plain = String::new();
    for (n, part) in text.split("/*").enumerate() {
        plain.push_str(if n == 0 { part } else { part.split_once("*/").expect("an end").1 });
    }
    let plain: Vec<_> = plain.lines().filter(|line| !line.starts_with('#')).collect();
    let mut found = Vec::new();
    for statement in plain.join(" ").split(';') {
        let Some((before, rest)) = statement.split_once('(') else { continue };
        let Some(at) = before.find(" forkless_").or(before.find("*forkless_")) else { continue };
        let (result, name) = before.split_at(at + 1);
        let result = result.rsplit(['{', '}']).next().unwrap_or("");
        let parameters = rest.trim_end().trim_end_matches(')').split(',').map(str::trim);
        let types = parameters.filter(|one| *one != "void" && !one.is_empty()).map(|one| in_rust(one, true));
        found.push((name.trim().to_owned(), types.collect(), in_rust(result.trim(), false)));
    }
    found
}

/// Converts a C type, or a parameter of it, to the notation of the sources. Pointers to handles are all `*mut`.
fn in_rust(c: &str, is_named: bool) -> String {
    let brackets = c.matches("[]").count();
    let plain = c.replace("[]", "");
    let stars = plain.matches('*').count() + brackets;
    let words: Vec<&str> = plain.split([' ', '*']).filter(|word| !matches!(*word, "" | "const" | "struct")).collect();
    let base = if is_named { &words[..words.len() - 1] } else { &words[..] };
    let base = match base.join(" ").as_str() {
        "void" if stars == 0 => "()".to_owned(),
        "char" => "c_char".to_owned(),
        "int" => "c_int".to_owned(),
        "unsigned long" => "c_ulong".to_owned(),
        "void" => "c_void".to_owned(),
        "uint64_t" => "u64".to_owned(),
        "uint32_t" => "u32".to_owned(),
        "int64_t" => "i64".to_owned(),
        "forkless_command" => "Settable".to_owned(),
        "forkless_child" => "ChildHandle".to_owned(),
        "forkless_prepared" => "Prepared".to_owned(),
        "forkless_output" => "OutputHandle".to_owned(),
        "forkless_error" => "Error".to_owned(),
        "forkless_usage" => "Usage".to_owned(),
        "forkless_limit_events" => "LimitEvents".to_owned(),
        "forkless_capture" => "Options".to_owned(),
        "forkless_waitset" => "SetHandle".to_owned(),
        "forkless_ended" => "CEnded".to_owned(),
        "forkless_pipeline" => "PipelineHandle".to_owned(),
        "forkless_ending" => "LineEnding".to_owned(),
        "forkless_cgroup" => "Cgroup".to_owned(),
        "forkless_sandbox" => "PreparedSandbox".to_owned(),
        "forkless_sandbox_options" => "SandboxOptions".to_owned(),
        "forkless_pty" => "Pty".to_owned(),
        "forkless_zygote" => "Zygote".to_owned(),
        "forkless_warm" => "Warm".to_owned(),
        "forkless_warm_options" => "WOptions".to_owned(),
        "forkless_warm_stats" => "WStats".to_owned(),
        "forkless_zygote_options" => "ZOptions".to_owned(),
        "forkless_zygote_stats" => "ZStats".to_owned(),
        "forkless_zygote_entry" => "CEntry".to_owned(),
        "forkless_zygote_call" => "CCall".to_owned(),
        "forkless_call_arg" => "CArg".to_owned(),
        "forkless_function" => "Option<Function>".to_owned(),
        "sock_filter" => "BpfInstruction".to_owned(),
        other => other.to_owned(),
    };
    "*".repeat(stars) + &base
}

/// The functions of the sources, in the same form. Parameters that a macro adds are added here.
fn exported() -> Vec<(String, Vec<String>, String)> {
    let mut found = Vec::new();
    for path in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).expect("the sources") {
        let path = path.expect("an entry").path();
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let file = path.file_stem().expect("a name").to_string_lossy().into_owned();
        for part in text.split("fn forkless_").skip(1) {
            let (name, rest) = part.split_once('(').expect("parameters");
            let (parameters, rest) = rest.split_once(')').expect("an end of parameters");
            let mut types: Vec<_> = parameters.split(',').filter_map(|one| one.split_once(':')).map(spelled).collect();
            let after = rest.trim_start();
            let mut result = "c_int".to_owned();
            match (file.as_str(), after) {
                // Not defined by a macro.
                _ if is_extern(&text, name) => {
                    let arrow = after.strip_prefix("->").map(|after| after.split('{').next().unwrap_or(""));
                    result = arrow.map_or("()".to_owned(), |kind| spelled(("", kind)));
                }
                ("pty", _) if name == "command_pty" => types.insert(0, "*Settable".to_owned()),
                ("pty", _) => types.insert(0, "*Pty".to_owned()),
                ("command" | "setup" | "sandbox", _) => types.insert(0, "*Settable".to_owned()),
                ("child", _) => types.insert(0, "*ChildHandle".to_owned()),
                ("cgroup", _) => types = [vec!["*Cgroup".into()], types, vec!["*Error".into()]].concat(),
                (_, after) => {
                    let made =
                        after.strip_prefix("->").and_then(|after| after.split(',').next()).expect("what is made");
                    let by = match file.as_str() {
                        "zygote" => [vec!["*Zygote".into(), "*Prepared".into()], types].concat(),
                        _ => vec!["*".to_owned() + &types[0]],
                    };
                    types = [by, vec!["*".to_owned() + &spelled(("", made)), "*Error".into()]].concat();
                }
            }
            found.push((format!("forkless_{name}"), types, result));
        }
    }
    found.extend(TABLE.iter().map(|row| {
        let types = vec!["*Settable".to_owned(), in_table(row).to_owned()];
        (format!("forkless_command_{}", row.name), types, "c_int".to_owned())
    }));
    found
}

/// The type of what a row of the table of settings takes.
fn in_table(row: &Row) -> &'static str {
    match row.kind {
        "u64" | "capabilities" => "u64",
        "u32" => "u32",
        "mode" => "mode_t",
        "word" | "amount" | "path" | "text" => "*c_char",
        _ => "c_int",
    }
}

/// What makes no sense is an error and no crash, in each function that the table of settings makes.
#[test]
fn settings_of_the_table_refuse_null_pointers() {
    let Some(prefix) = prefix() else { return };
    let mut calls = String::new();
    for row in TABLE {
        calls += &format!("    EXPECT(-EINVAL, forkless_command_{}(NULL, 0));\n", row.name);
        if in_table(row).starts_with('*') {
            calls += &format!("    EXPECT(-EINVAL, forkless_command_{}(command, NULL));\n", row.name);
        }
        if row.kind == "word" {
            calls += &format!("    EXPECT(-EINVAL, forkless_command_{}(command, \"no such word\"));\n", row.name);
            calls += &format!("    EXPECT(0, forkless_command_{}(command, \"{}\"));\n", row.name, row.example);
        }
    }
    let head = "#include \"check.h\"\n\nint main(void) {\n    forkless_command *command;\n";
    let text = format!(
        "{head}    EXPECT(0, forkless_command_new(\"true\", &command));\n{calls}    forkless_command_free(command);\n    \
         return 0;\n}}\n"
    );
    let directory = temporary();
    let source = directory.path().join("table.c");
    fs::write(&source, text).expect("the source");
    let include = format!("-I{}/tests", env!("CARGO_MANIFEST_DIR"));
    let program = compile(prefix, &["cc", "-std=c99", &include], &source, directory.path());
    must(&mut run(prefix, &[], &program));
}

fn is_extern(text: &str, name: &str) -> bool {
    text.contains(&format!("extern \"C\" fn forkless_{name}("))
}

fn spelled((_, kind): (&str, &str)) -> String {
    kind.trim().replace("*const ", "*").replace("*mut ", "*")
}

/// The sources define every function of the header, with these parameters, and no others.
#[test]
fn header_and_sources_agree() {
    let (mut header, mut sources) = (header(), exported());
    header.sort();
    sources.sort();
    for (ours, theirs) in header.iter().zip(&sources) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(header.len(), sources.len());
    assert!(header.len() > 120, "{}", header.len());
}

#[test]
fn only_functions_of_the_header_are_exported_with_a_version() {
    let Some(prefix) = prefix() else { return };
    let named: BTreeSet<String> = header().into_iter().map(|(name, ..)| name).collect();
    let table = must(Command::new("readelf").args(["-W", "--dyn-syms"]).arg(prefix.join("lib/libforkless.so.0")));
    let exported = symbols(&table, |columns| match columns[..] {
        [_, _, _, _, "GLOBAL" | "WEAK" | "UNIQUE", _, section, name] if section != "UND" => Some(name.to_owned()),
        _ => None,
    });
    let expected = named.iter().map(|name| format!("{name}@@FORKLESS_0.1"));
    assert_eq!(exported, expected.chain(["FORKLESS_0.1".to_owned()]).collect());
    let dynamic = must(Command::new("readelf").args(["-W", "-d"]).arg(prefix.join("lib/libforkless.so")));
    assert!(dynamic.contains("soname: [libforkless.so.0]"), "{dynamic}");

    let table = must(Command::new("nm").args(["-g", "--defined-only"]).arg(prefix.join("lib/libforkless.a")));
    let global = symbols(&table, |columns| match columns[..] {
        [_, _, name] => Some(name.to_owned()),
        _ => None,
    });
    assert_eq!(global, named);
}

/// Every setter of the Rust library has a C function of the same name, except for those in this list.
#[test]
fn every_setting_has_a_c_function() {
    let named: BTreeSet<String> = header().into_iter().map(|(name, ..)| name).collect();
    let mut builders = 0;
    for source in ["mod", "launcher", "setup", "sandbox", "../../pty/mod"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../forkless/src/request/command/{source}.rs"));
        let text = fs::read_to_string(path).expect("the source");
        for part in text.split("pub fn ").chain(text.split("pub unsafe fn ").skip(1)).skip(1) {
            let (name, rest) = part.split_once(['(', '<']).expect("parameters");
            let signature = rest.split('{').next().unwrap_or("");
            // (`$name`: what the table of settings makes, below.)
            // (Hidden: `launched_once` is for the command `forkless`, `exec_pipe` for event loops of the language modules.)
            let is_hidden = ["launched_once", "exec_pipe"].contains(&name);
            if !signature.contains("-> &mut Self") || name.starts_with('$') || is_hidden {
                continue;
            }
            let in_c = match name {
                "stdin" | "stdout" | "stderr" => "fd",
                "kill_on_drop" => "kill_on_free",
                "group_name" => "group",
                name => name,
            };
            assert!(named.contains(&format!("forkless_command_{in_c}")), "no function for {name}");
            builders += 1;
        }
    }
    for row in TABLE {
        assert!(named.contains(&format!("forkless_command_{}", row.name)), "no function for {}", row.name);
    }
    assert!(builders > 70, "{builders}");
}

/// The header has the same numbers of steps as the library.
#[test]
fn steps_have_the_numbers_of_the_library() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/forkless.h");
    let text = fs::read_to_string(path).expect("the header");
    let lines = text.lines().filter_map(|line| line.trim().trim_end_matches(',').strip_prefix("FORKLESS_STEP_"));
    let of_header: BTreeSet<(String, u32)> = lines
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, code)| (name.replace('_', "").to_lowercase(), code.parse().expect("a number")))
        .collect();
    let steps = (0..1000).filter_map(forkless::Step::of_code);
    assert_eq!(of_header, steps.map(|step| (format!("{step:?}").to_lowercase(), step.code())).collect());
}

/// The examples compile and run: as C and C++, with the shared and with the static library.
#[test]
fn examples_compile_and_run() {
    let Some(prefix) = prefix() else { return };
    let archive = prefix.join("lib/libforkless.a");
    for source in sources("examples") {
        for compiler in [["cc", "-std=c99", "-pedantic"], ["c++", "-std=c++11", "-xc++"]] {
            let directory = temporary();
            if Command::new(compiler[0]).arg("--version").output().is_err() {
                say(&format!("SKIPPED: {} with {} because it is not installed", source.display(), compiler[0]));
                continue;
            }
            must(&mut run(prefix, &[], &compile(prefix, &compiler, &source, directory.path())));
            let program = directory.path().join("static");
            let mut command = Command::new(compiler[0]);
            command.args(&compiler[1..]).args(WARNINGS).arg("-o").arg(&program).arg(&source);
            command.args(flags(prefix, &["--cflags"])).arg("-xnone").arg(&archive);
            let private = flags(prefix, &["--libs-only-l", "--static"]);
            must(command.args(private.iter().filter(|flag| flag.starts_with("-l") && *flag != "-lforkless")));
            must(Command::new("timeout").arg("300").arg(&program));
        }
    }
}
