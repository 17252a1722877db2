//! Runs the C tests in other kinds of processes: statically linked, and built with a sanitizer.

use super::{WARNINGS, flags, must, prefix, say, temporary};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The tests to run in each kind.
const TESTS: [&str; 11] =
    ["child", "command", "nulls", "pipeline", "pty", "sets", "stream", "system", "threads", "warm", "zygote"];

/// The exit status of a sanitizer that has reported an error.
const FOUND: &str = "exitcode=77";

/// Compiles a program with these options and `libforkless.a`. Returns the compiler's message if that fails.
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

/// Runs the tests, built with these options, except for those that are not possible there.
fn tests(kind: &str, options: &[&str], impossible: &[&str]) {
    if prefix().is_none() {
        return;
    }
    let directory = temporary();
    if let Some(why) = is_impossible(options, directory.path()) {
        return say(&format!("SKIPPED: {kind} because {why}"));
    }
    for name in TESTS.into_iter().filter(|name| !impossible.contains(name)) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.c"));
        let program = directory.path().join(name);
        assert_eq!(compile(options, &source, &program), None, "{kind}: {name}");
        must(&mut run(&program));
    }
}

/// The reason why such programs cannot be built or run here, if there is one.
fn is_impossible(options: &[&str], directory: &Path) -> Option<String> {
    if std::env::var_os("FORKLESS_TEST_SLOW").is_some() {
        return Some("it takes too long on a machine that is slow (FORKLESS_TEST_SLOW)".to_owned());
    }
    let (source, program) = (directory.join("empty.c"), directory.join("empty"));
    fs::write(&source, "int main(void) { return 0; }\n").expect("a file");
    if let Some(why) = compile(options, &source, &program) {
        return Some(format!("gcc cannot make one: {why}"));
    }
    // Older sanitizers do not work on every kernel.
    let output = run(&program).output().expect("timeout");
    (!output.status.success()).then(|| format!("even an empty one fails: {}", String::from_utf8_lossy(&output.stderr)))
}

/// gcc 12's AddressSanitizer reports the end of a cancelled thread as an error, in any program, if it has given the thread a
/// signal stack.
fn run(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg("300").arg(program).env("TSAN_OPTIONS", FOUND);
    // A static program is not beside the library.
    command.envs(prefix().map(|prefix| ("WARM_LIBRARY", prefix.join("lib/forkless/libforkless_warm.so"))));
    command.env("ASAN_OPTIONS", format!("{FOUND}:use_sigaltstack=0"));
    command
}

/// Looking up users needs libc's name services, shared libraries that a static program cannot rely on: `docs/gotchas.md`.
#[test]
fn static_hosts() {
    tests("a static host", &["-static"], &["command"]);
}

#[test]
fn hosts_with_address_sanitizer() {
    tests("a host with AddressSanitizer", &["-fsanitize=address"], &[]);
}

/// ThreadSanitizer runs signal handlers at the next call of libc, so not while the library waits: `docs/gotchas.md`. And it does
/// not see the locks with which a thread of the library hands a template to the caller: they are futexes, not libc's.
#[test]
fn hosts_with_thread_sanitizer() {
    tests("a host with ThreadSanitizer", &["-fsanitize=thread"], &["stream", "warm"]);
}

/// Negative control: the sanitizer reports errors outside of launches.
#[test]
fn sanitizers_detect_planted_errors_in_a_host() {
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
        let options = [&format!("-fsanitize={kind}"), "-Wno-use-after-free"];
        if let Some(why) = is_impossible(&options, directory.path()) {
            say(&format!("SKIPPED: what {kind} finds because {why}"));
            continue;
        }
        let program = directory.path().join(kind);
        assert_eq!(compile(&options, &source, &program), None);
        let output = run(&program).output().expect("timeout");
        assert_eq!(output.status.code(), Some(77), "{kind}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
