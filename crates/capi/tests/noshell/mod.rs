//! `popen_noshell.h` and its library, shared and static.

use super::{WARNINGS, flags_of, must, prefix, run, say, symbols, temporary};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The functions of the header.
const NAMES: [&str; 6] = [
    "pclose_noshell",
    "popen_noshell",
    "popen_noshell_compat",
    "popen_noshell_get_fork_mode",
    "popen_noshell_set_fork_mode",
    "popen_noshell_vmfork",
];

fn source_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/noshell/{name}.c"))
}

/// Compiles a program with these compiler options, with the shared and with the static library, and runs both.
fn both_ways(compiler: &[&str], source: &Path) {
    let Some(prefix) = prefix() else { return };
    let directory = temporary();
    for is_static in [false, true] {
        let program = directory.path().join(if is_static { "static" } else { "shared" });
        let mut command = Command::new(compiler[0]);
        command.args(&compiler[1..]).args(WARNINGS).arg("-D_GNU_SOURCE").arg("-o").arg(&program).arg(source);
        command.args(flags_of("popen_noshell", prefix, &["--cflags"]));
        if is_static {
            // c++ may be clang, which warns of it where no file follows.
            command.arg("-xnone").arg(prefix.join("lib/libpopen_noshell.a"));
            let private = flags_of("popen_noshell", prefix, &["--libs-only-l", "--static"]);
            command.args(private.iter().filter(|flag| flag.starts_with("-l") && *flag != "-lpopen_noshell"));
        } else {
            command.args(flags_of("popen_noshell", prefix, &["--libs"]));
        }
        must(command.arg("-lpthread"));
        if is_static {
            must(Command::new("timeout").arg("300").arg(&program));
        } else {
            must(&mut run(prefix, &[], &program));
        }
    }
}

macro_rules! c_tests {
    ($($name:ident)*) => {
        $(#[test] fn $name() { both_ways(&["cc", "-std=c99"], &source_file(stringify!($name))); })*

        /// Every C file in the directory has a test here.
        #[test]
        fn every_test_of_popen_noshell_is_run() {
            let named: BTreeSet<String> = [$(stringify!($name).to_owned()),*].into();
            let there = super::sources("tests/noshell");
            assert_eq!(named, there.iter().map(|path| path.file_stem().unwrap().to_string_lossy().into()).collect());
        }
    };
}

c_tests! { behaviour faults hostile layout relink usage }

#[test]
fn the_header_compiles_as_cpp_without_pedantic_warnings() {
    both_ways(&["cc", "-std=c99", "-pedantic", "-xc"], &source_file("layout"));
    if Command::new("c++").arg("--version").output().is_err() {
        say("SKIPPED: popen_noshell.h in C++ because c++ is not installed");
        return;
    }
    both_ways(&["c++", "-std=c++11", "-pedantic", "-xc++"], &source_file("layout"));
}

#[test]
fn only_names_of_popen_noshell_are_exported_with_a_version() {
    let Some(prefix) = prefix() else { return };
    let header = fs::read_to_string(prefix.join("include/popen_noshell.h")).expect("the header");
    let declared = header.split(['*', ' ']).filter_map(|word| word.split_once('(')).map(|(name, _)| name);
    let declared: BTreeSet<&str> = declared.filter(|name| name.contains("noshell")).collect();
    assert_eq!(declared, NAMES.into());

    let table = must(Command::new("readelf").args(["-W", "--dyn-syms"]).arg(prefix.join("lib/libpopen_noshell.so.0")));
    let exported = symbols(&table, |columns| match columns[..] {
        [_, _, _, _, "GLOBAL" | "WEAK" | "UNIQUE", _, section, name] if section != "UND" => Some(name.to_owned()),
        _ => None,
    });
    let expected = NAMES.iter().map(|name| format!("{name}@@POPEN_NOSHELL_0.1"));
    assert_eq!(exported, expected.chain(["POPEN_NOSHELL_0.1".to_owned()]).collect());
    let dynamic = must(Command::new("readelf").args(["-W", "-d"]).arg(prefix.join("lib/libpopen_noshell.so")));
    assert!(dynamic.contains("soname: [libpopen_noshell.so.0]"), "{dynamic}");

    let table = must(Command::new("nm").args(["-g", "--defined-only"]).arg(prefix.join("lib/libpopen_noshell.a")));
    let global = symbols(&table, |columns| match columns[..] {
        [_, _, name] => Some(name.to_owned()),
        _ => None,
    });
    assert_eq!(global, NAMES.map(str::to_owned).into());
}

/// Finds invalid accesses, double frees and leaks, in the only mode that valgrind supports.
#[test]
fn popen_noshell_runs_clean_under_valgrind() {
    let Some(prefix) = prefix() else { return };
    if Command::new("valgrind").arg("--version").output().is_err() {
        say("SKIPPED: popen_noshell under valgrind because it is not installed");
        return;
    }
    let directory = temporary();
    let program = directory.path().join("behaviour");
    let mut command = Command::new("cc");
    command
        .args(["-std=c99", "-D_GNU_SOURCE", "-g"])
        .args(WARNINGS)
        .arg("-o")
        .arg(&program)
        .arg(source_file("behaviour"));
    must(command.args(flags_of("popen_noshell", prefix, &["--cflags", "--libs"])).arg("-lpthread"));
    let valgrind =
        ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"];
    must(run(prefix, &valgrind, &program).env("NOSHELL_TEST_MODE", "1"));
}

/// Both libraries can be used in one program, also as archives.
#[test]
fn both_libraries_work_in_one_program() {
    let Some(prefix) = prefix() else { return };
    let directory = temporary();
    let source = directory.path().join("both.c");
    let text = "#include <forkless.h>\n#include <popen_noshell.h>\nint main(void) {\n\
        struct popen_noshell_pass_to_pclose arg;\nFILE *ours = forkless_popen(\"exit 3\", \"r\");\n\
        return !ours || !popen_noshell_compat(\"true\", \"r\", &arg) || pclose_noshell(&arg) != 0\n\
        || forkless_pclose(arg.fp ? arg.fp : ours) != 3 << 8;\n}\n";
    fs::write(&source, text).expect("write");
    let include = format!("-I{}", prefix.join("include").display());
    let private = flags_of("popen_noshell", prefix, &["--libs-only-l", "--static"]);
    let private = private.iter().filter(|flag| flag.starts_with("-l") && *flag != "-lpopen_noshell");
    for kind in ["so", "a"] {
        let program = directory.path().join(kind);
        let mut command = Command::new("cc");
        command.args(WARNINGS).arg(&include).arg("-o").arg(&program).arg(&source);
        command.args(["forkless", "popen_noshell"].map(|name| prefix.join(format!("lib/lib{name}.{kind}"))));
        must(command.args(private.clone()));
        must(&mut run(prefix, &[], &program));
    }
}
