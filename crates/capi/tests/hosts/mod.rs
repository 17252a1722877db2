//! The tests in C as hosts of other kinds: linked statically with all of libc, and built with a sanitizer.

use super::{WARNINGS, flags, must, prefix, say, temporary};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The tests that are run in each.
const TESTS: [&str; 10] =
    ["child", "command", "nulls", "pipeline", "pty", "sets", "stream", "system", "threads", "zygote"];

/// What a sanitizer exits with when it has found something.
const FOUND: &str = "exitcode=77";

/// Compiles a program with these options and `libforkless.a`; none, with what the compiler said, where that cannot be done.
fn compile(options: &[&str], source: &Path, program: &Path) -> Option<String> {
    let prefix = prefix()?;
    let mut command = Command::new("gcc");
    command.args(["-std=c99", "-O1"]).args(WARNINGS).args(options).arg("-o").arg(program).arg(source);
    command.args(flags(prefix, &["--cflags"])).arg(prefix.join("lib/libforkless.a"));
    let private = flags(prefix, &["--libs-only-l", "--static"]);
    command.args(private.iter().filter(|flag| flag.starts_with("-l") && *flag != "-lforkless"));
    let output = command.arg("-lpthread").output().ok()?;
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Runs the tests, built with these options, but for one that is not possible there.
fn tests(kind: &str, options: &[&str], impossible: Option<&str>) {
    if prefix().is_none() {
        return;
    }
    let directory = temporary();
    let empty = directory.path().join("empty.c");
    fs::write(&empty, "int main(void) { return 0; }\n").expect("a file");
    let program = directory.path().join("empty");
    if let Some(why) = compile(options, &empty, &program) {
        return say(&format!("SKIPPED: {kind} because gcc cannot make one: {why}"));
    }
    for name in TESTS.into_iter().filter(|name| Some(*name) != impossible) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.c"));
        let program = directory.path().join(name);
        assert_eq!(compile(options, &source, &program), None, "{kind}: {name}");
        must(&mut run(&program));
    }
}

/// gcc 12's AddressSanitizer takes the end of a cancelled thread, whoever made it, for a fault where it has given that a stack for signals.
fn run(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg("300").arg(program).env("TSAN_OPTIONS", FOUND);
    command.env("ASAN_OPTIONS", format!("{FOUND}:use_sigaltstack=0"));
    command
}

/// Users by name are libc's name services, whose shared libraries a static program cannot count on: `docs/gotchas.md`.
#[test]
fn static_hosts() {
    tests("a static host", &["-static"], Some("command"));
}

#[test]
fn hosts_with_address_sanitizer() {
    tests("a host with AddressSanitizer", &["-fsanitize=address"], None);
}

/// A handler runs when the program next calls libc, so not while the library waits: `docs/gotchas.md`.
#[test]
fn hosts_with_thread_sanitizer() {
    tests("a host with ThreadSanitizer", &["-fsanitize=thread"], Some("stream"));
}

/// A sanitizer's silence means something: what is wrong beside launches is found.
#[test]
fn sanitizers_find_what_is_wrong_in_a_host() {
    let Some(_) = prefix() else { return };
    let directory = temporary();
    for (kind, wrong) in [
        ("address", "char *p = malloc(4); free(p); return p[n % 4];"),
        ("thread", "pthread_t t; pthread_create(&t, 0, add, 0); shared += n; pthread_join(t, 0); return 0;"),
    ] {
        let source = directory.path().join(format!("{kind}.c"));
        let text = format!(
            "#include <forkless.h>\n#include <pthread.h>\n#include <stdlib.h>\nvolatile int shared;\n\
             void *add(void *none) {{ shared++; return none; }}\n\
             static int wrong(int n) {{ {wrong} }}\n\
             int main(int n, char **words) {{\n\
             \tforkless_command *command;\n\tint status;\n\
             \tif (forkless_command_new(\"/bin/true\", &command) || forkless_command_status(command, &status, 0)) return 1;\n\
             \tforkless_command_free(command);\n\
             \treturn words == 0 || status || wrong(n) != 99;\n}}\n"
        );
        fs::write(&source, text).expect("a file");
        let program = directory.path().join(kind);
        if let Some(why) = compile(&[&format!("-fsanitize={kind}"), "-Wno-use-after-free"], &source, &program) {
            assert!(why.contains("san"), "{why}");
            say(&format!("SKIPPED: what {kind} finds because gcc cannot make such a program: {why}"));
            continue;
        }
        let output = run(&program).output().expect("timeout");
        assert_eq!(output.status.code(), Some(77), "{kind}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
