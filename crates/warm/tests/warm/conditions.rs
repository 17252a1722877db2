//! Launches that must be cold, and why.

use crate::common::{by_template, command, grow_old, in_own_process, is_warm, prepared, warm};
use forkless::{Command, Resource};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// The reason why the second launch is cold.
fn reason(command: &mut Command) -> String {
    by_template(&warm(), &prepared(command)).expect_err("a cold launch")
}

#[test]
fn settings_that_exec_interprets_are_cold() {
    let of = || command("/bin/true", &[]);
    let checked = "a setting that exec may interpret";
    assert!(reason(of().rlimit(Resource::Stack, 1 << 20, 1 << 20)).contains(checked));
    assert!(reason(of().no_new_privs(true)).contains(checked));
    assert!(reason(of().parent_death_signal(9)).contains("parent-death signal"));
    assert!(reason(of().inherit_all(true)).contains("inherit_all"));
    assert!(reason(of().env("LD_BIND_NOW", "1")).contains("dynamic loader"));
    assert!(reason(of().env("GLIBC_TUNABLES", "x")).contains("dynamic loader"));
    assert!(reason(of().arg("x".repeat(101 * 1024))).contains("100 KiB"));
}

#[test]
fn programs_that_cannot_have_a_template_are_cold_and_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_owned();
    fs::write(path("script"), "#!/bin/sh\necho script\n").expect("a file");
    fs::set_permissions(path("script"), PermissionsExt::from_mode(0o755)).expect("a file");
    fs::copy("/bin/true", path("setuid")).expect("a file");
    fs::set_permissions(path("setuid"), PermissionsExt::from_mode(0o4755)).expect("a file");
    grow_old(path("setuid").as_ref());
    assert_eq!(reason(&mut command(&path("script"), &[])), "the program is a script");
    assert_eq!(reason(&mut command(&path("setuid"), &[])), "the program gains privileges when it is executed");
}

/// A program whose constructor does what is different in each launch. `$CC` is not needed elsewhere, so a machine without
/// a compiler skips this.
#[test]
fn a_library_that_looks_around_while_it_is_loaded_is_cold() {
    let directory = tempfile::tempdir().expect("a directory");
    let constructors = [
        ("pid", "getpid();", "makes system call"),
        ("open", "open(\"/proc/self/status\", 0);", "reads /proc/self/status"),
        ("write", "write(1, \"x\", 1);", "makes system call"),
        ("random", "char b[32]; syscall(318, b, 32, 0);", "makes system call"),
        ("stream", "struct stat s; fstat(0, &s);", "makes system call"),
        ("fork", "pthread_atfork(0, 0, hook);", "handlers for fork"),
    ];
    for (name, code, _) in constructors {
        let (library, program) = (directory.path().join(format!("lib{name}.so")), directory.path().join(name));
        let source = format!(
            "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <pthread.h>\n#include <sys/stat.h>\n#include <sys/syscall.h>\n\
             #include <unistd.h>\nvoid hook(void) {{}}\n__attribute__((constructor)) static void at_start(void) {{ {code} }}\n"
        );
        fs::write(directory.path().join("library.c"), source).expect("a file");
        fs::write(directory.path().join("program.c"), "void hook(void); int main(void) { hook(); return 7; }\n")
            .expect("a file");
        let cc = |args: &[&std::ffi::OsStr]| {
            let status = std::process::Command::new("cc").arg("-w").args(args).current_dir(&directory).status();
            status.is_ok_and(|status| status.success())
        };
        let made = cc(&["-shared".as_ref(), "-fPIC".as_ref(), "-o".as_ref(), library.as_ref(), "library.c".as_ref()])
            && cc(&["-o".as_ref(), program.as_ref(), "program.c".as_ref(), library.as_ref()]);
        if !made {
            println!("skipped: there is no C compiler");
            return;
        }
    }
    grow_old(&directory.path().join("fork"));
    for (name, _, why) in constructors {
        let program = directory.path().join(name);
        let program = program.to_str().expect("UTF-8");
        let found = reason(&mut command(program, &[]));
        assert!(found.contains(why), "{name}: {found}");
        assert_eq!(command(program, &[]).status().expect("a child").code(), Some(7));
    }
}

/// Another environment is another template, but for a few variables.
#[test]
fn the_environment_is_compared() {
    let warm = warm();
    let of = |value: &str| prepared(command("/usr/bin/env", &[]).env("WHICH", value));
    for value in ["one", "two"] {
        let output = by_template(&warm, &of(value)).expect("warm");
        assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("WHICH={value}\n")));
    }
    assert_eq!(warm.stats().starts, 2);
    let directories = |value: &str| prepared(command("/usr/bin/env", &[]).env("WHICH", "one").env("PWD", value));
    for value in ["/a", "/b"] {
        let output = by_template(&warm, &directories(value)).expect("warm");
        assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("PWD={value}\n")));
    }
    assert_eq!(warm.stats().starts, 2);
}

/// A caller that has changed gets what it would get by exec.
#[test]
fn the_caller_is_compared() {
    in_own_process("conditions::the_caller_is_compared", || {
        let warm = warm();
        let prepared = prepared(&mut command("/bin/cat", &["/proc/self/personality"]));
        by_template(&warm, &prepared).expect("warm");
        // ADDR_NO_RANDOMIZE, which exec reads.
        let child = std::thread::scope(|scope| {
            let changed = || {
                rustix_personality(0x0004_0000);
                let child = warm.spawn(&prepared).expect("a child");
                let is_warm = is_warm(&child);
                (is_warm, child.wait_with_output().expect("its output"))
            };
            scope.spawn(changed).join().expect("a thread")
        });
        assert!(!child.0, "a child with another personality was warm");
        assert_eq!(String::from_utf8_lossy(&child.1.stdout), "00040000\n");
        by_template(&warm, &prepared).expect("warm again");
    });
}

/// `personality(2)` of the calling thread.
fn rustix_personality(value: usize) {
    // SAFETY: changes a number of the calling thread.
    let answer =
        unsafe { forkless_core::sys::syscall(forkless_core::sys::uapi::__NR_personality, [value, 0, 0, 0, 0, 0]) };
    answer.expect("personality");
}

#[test]
fn a_replaced_deleted_or_forbidden_program_is_not_warm() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("program");
    let program = path.to_str().expect("UTF-8");
    let warm = warm();
    fs::copy("/bin/true", &path).expect("a file");
    let prepared = prepared(&mut command(program, &[]));
    // It has changed a moment ago.
    let child = warm.spawn(&prepared).expect("a child");
    assert!(!is_warm(&child));
    assert!(warm.templates().is_empty(), "a template of a file that may still change");
    drop(child);
    grow_old(&path);
    assert!(by_template(&warm, &prepared).expect("warm").status.success());

    // Another program of the same name: the file itself is busy.
    fs::copy("/bin/false", directory.path().join("new")).expect("a file");
    fs::rename(directory.path().join("new"), &path).expect("a file");
    let child = warm.spawn(&prepared).expect("a child");
    assert_eq!(child.cold_reason(), Some("the program's file has changed"));
    assert_eq!(child.wait_with_output().expect("its output").status.code(), Some(1));

    grow_old(&path);
    assert_eq!(by_template(&warm, &prepared).expect("warm").status.code(), Some(1));
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("a file");
    let error = warm.spawn(&prepared).expect_err("not executable");
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    fs::remove_file(&path).expect("a file");
    assert_eq!(warm.spawn(&prepared).expect_err("deleted").kind(), std::io::ErrorKind::NotFound);
}
