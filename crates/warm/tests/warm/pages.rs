//! Pages of code and constants, which a template maps for its children.

use crate::common::{by_template, command, grow_old, is_warm, prepared, slow, warm};
use std::path::Path;

/// Enough launches for a template to have noted all pages.
const LAUNCHES: usize = 14;

/// Whether a template may note the page faults of its children: `perf_event_open(2)`.
fn can_note_faults() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let is_permitted =
        paranoid.trim().parse::<i32>().is_ok_and(|level| level <= 2 || rustix::process::geteuid().is_root());
    is_permitted && status.contains("Seccomp:\t0")
}

#[test]
fn children_get_the_pages_that_they_use() {
    if !can_note_faults() {
        return println!("SKIPPED: the kernel does not let a process note the page faults of others");
    }
    if slow() > 1 {
        return println!(
            "SKIPPED: pages that children use because a child waits 10 ms for the note, too short on a slow machine"
        );
    }
    let warm = warm();
    let prepared = prepared(&mut command("/usr/bin/perl", &["-e", "print 'text'"]));
    warm.start(&prepared).expect("a template");
    let mut faults = Vec::new();
    for _ in 0..LAUNCHES {
        let mut child = warm.spawn(&prepared).expect("a child");
        assert!(is_warm(&child), "{:?}", child.cold_reason());
        child.wait().expect("its end");
        faults.push(child.usage().expect("its usage").minor_faults);
    }
    // Those that are left are for pages that it writes to.
    assert!(faults[LAUNCHES - 1] * 5 < faults[0] * 4, "{faults:?}");
}

/// A library that writes to its own constants while it is loaded, as one may do that repairs its own code: its children find
/// what it has written, also when the template has unmapped pages of the same mapping.
#[test]
fn what_a_library_has_written_to_its_constants_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let put = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("a file");
    put(
        "library.c",
        "#include <sys/mman.h>\n\
         __attribute__((aligned(4096))) const int table[64 * 1024] = { 1 };\n\
         __attribute__((constructor)) static void at_start(void) {\n\
         \tmprotect((void *)table, 4096, PROT_READ | PROT_WRITE);\n\
         \t*(int *)table = 2;\n\
         \tmprotect((void *)table, 4096, PROT_READ);\n}\n",
    );
    put(
        "program.c",
        "#include <stdio.h>\nextern const int table[64 * 1024];\n\
         int main(void) { return printf(\"%d %d\\n\", table[40 * 1024], table[0]) < 0; }\n",
    );
    let path = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_owned();
    let cc = |args: &[&str]| std::process::Command::new("cc").args(args).current_dir(&directory).status();
    let (library, program) = (path("liblibrary.so"), path("program"));
    let made = cc(&["-w", "-shared", "-fPIC", "-o", &library, "library.c"]).is_ok_and(|status| status.success())
        && cc(&["-w", "-fPIC", "-pie", "-o", &program, "program.c", &library]).is_ok_and(|status| status.success());
    if !made {
        return println!("SKIPPED: no compiler for C");
    }
    grow_old(Path::new(&program));
    let warm = warm();
    let prepared = prepared(&mut command(&program, &[]));
    let cold = prepared.spawn().expect("a child").wait_with_output().expect("its output");
    assert_eq!(String::from_utf8_lossy(&cold.stdout), "0 2\n");
    for _ in 0..LAUNCHES {
        let output = by_template(&warm, &prepared).expect("warm");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "0 2\n");
    }
}
