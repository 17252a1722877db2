//! The life of templates, and what their children do not share.

use crate::common::{SCENARIO, by_template, command, in_own_process, is_warm, library, prepared, until, warm};
use forkless::Stdio;
use std::collections::HashSet;
use std::io::Read;
use std::process::Command as Std;

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a PID");
    rustix::process::kill_process(pid, signal).expect("a process");
}

#[test]
fn a_killed_template_is_replaced() {
    let warm = warm();
    let prepared = prepared(&mut command("/bin/echo", &["text"]));
    by_template(&warm, &prepared).expect("warm");
    for _ in 0..3 {
        let [template] = warm.templates()[..] else { panic!("one template") };
        signal(template, rustix::process::Signal::KILL);
        let child = warm.spawn(&prepared).expect("a child");
        assert!(!is_warm(&child) || warm.templates() == [template]);
        assert_eq!(child.wait_with_output().expect("its output").stdout, b"text\n");
        assert_eq!(by_template(&warm, &prepared).expect("warm again").stdout, b"text\n");
    }
}

#[test]
fn a_stopped_template_loses_no_launch() {
    let warm = warm();
    let prepared = prepared(&mut command("/bin/echo", &["text"]));
    by_template(&warm, &prepared).expect("warm");
    let [template] = warm.templates()[..] else { panic!("one template") };
    signal(template, rustix::process::Signal::STOP);
    let child = warm.spawn(&prepared).expect("a child");
    assert_eq!(child.wait_with_output().expect("its output").stdout, b"text\n");
}

#[test]
fn a_template_is_replaced_after_a_hundred_launches() {
    let warm = warm();
    let prepared = command("/bin/true", &[]).prepare().expect("a plan");
    for _ in 0..205 {
        assert!(warm.status(&prepared).expect("a child").success());
    }
    let stats = warm.stats();
    assert_eq!((stats.warm, stats.starts), (202, 3), "{stats:?}");
}

#[test]
fn templates_end_with_their_owner() {
    let test = "templates::templates_end_with_their_owner";
    library();
    if std::env::var_os(SCENARIO).is_some_and(|name| name == test) {
        let warm = warm();
        by_template(&warm, &command("/bin/true", &[]).prepare().expect("a plan")).expect("warm");
        println!("template {}", warm.templates()[0]);
        std::process::abort();
    }
    let output = Std::new(std::env::current_exe().expect("a program"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(SCENARIO, test)
        .output()
        .expect("a process");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let pid = text.lines().find_map(|line| line.rsplit_once("template ")?.1.parse::<u32>().ok());
    let pid = pid.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    until("the template outlives its owner", || {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
    });
}

#[test]
fn a_dropped_set_ends_its_templates() {
    let warm = warm();
    by_template(&warm, &command("/bin/true", &[]).prepare().expect("a plan")).expect("warm");
    let [template] = warm.templates()[..] else { panic!("one template") };
    drop(warm);
    assert!(!std::path::Path::new(&format!("/proc/{template}")).exists());
}

/// A program has neither the parcels nor the socket of its template, and nothing of another launch.
#[test]
fn nothing_of_other_launches_is_in_a_child() {
    in_own_process("templates::nothing_of_other_launches_is_in_a_child", || {
        let warm = warm();
        let marker = "marker-of-another-launch";
        by_template(&warm, &prepared(&mut command("/bin/cat", &["/dev/null", marker]))).expect("warm");
        let maps = by_template(&warm, &prepared(&mut command("/bin/cat", &["/proc/self/maps"]))).expect("warm");
        assert_eq!(warm.stats().starts, 1, "one template for both");
        let maps = String::from_utf8_lossy(&maps.stdout).into_owned();
        assert!(maps.contains("libforkless_warm.so") && !maps.contains("memfd"), "{maps}");
        // A child that waits for input, whose whole memory is read.
        let mut command = command("/bin/cat", &[]);
        let mut child = warm
            .spawn(&command.stdin(Stdio::piped()).stdout(Stdio::piped()).prepare().expect("a plan"))
            .expect("a child");
        assert!(is_warm(&child));
        let found = memory_contains(child.id(), marker.as_bytes());
        assert!(memory_contains(child.id(), b"libforkless_warm"), "the memory was not read");
        drop(child.stdin.take());
        child.wait().expect("its end");
        assert!(!found, "the arguments of another launch");
    });
}

/// Whether the readable memory of a process contains these bytes.
fn memory_contains(pid: u32, bytes: &[u8]) -> bool {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("a process");
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).expect("a process");
    maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|flags| flags.starts_with('r'))).any(|line| {
        let (first, end) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
        let number = |text| u64::from_str_radix(text, 16).expect("a number");
        let mut part = vec![0; (number(end) - number(first)) as usize];
        let length = memory.read_at(&mut part, number(first)).unwrap_or(0);
        part[..length].windows(bytes.len()).any(|window| window == bytes)
    })
}

/// Each child has its own canary and its own AT_RANDOM bytes.
#[test]
fn secrets_are_new_in_each_child() {
    let directory = tempfile::tempdir().expect("a directory");
    let (source, program) = (directory.path().join("p.c"), directory.path().join("p"));
    let code = "#include <stdio.h>\n#include <string.h>\n#include <sys/auxv.h>\nint main(void) { unsigned long c, r; \
                __asm__(\"mov %%fs:0x28, %0\" : \"=r\"(c)); memcpy(&r, (void *)getauxval(AT_RANDOM), 8); \
                printf(\"%lx %lx\\n\", c, r); return (c & 255) != 0; }\n";
    std::fs::write(&source, code).expect("a file");
    if !Std::new("cc").arg("-o").args([&program, &source]).status().is_ok_and(|status| status.success()) {
        println!("skipped: there is no C compiler");
        return;
    }
    crate::common::grow_old(&program);
    let warm = warm();
    let prepared = prepared(&mut command(program.to_str().expect("UTF-8"), &[]));
    by_template(&warm, &prepared).expect("warm");
    let mut seen = HashSet::new();
    for _ in 0..10 {
        let output = by_template(&warm, &prepared).expect("warm");
        assert!(output.status.success());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.split_whitespace().filter(|word| seen.insert((*word).to_owned())).count(), 2, "{text}");
    }
    assert_eq!(warm.stats().starts, 1);
}

/// Threads launch through one set at the same time.
#[test]
fn threads_launch_at_once() {
    let warm = warm();
    let plans: Vec<_> = (0..4).map(|n| prepared(&mut command("/bin/echo", &[&n.to_string()]))).collect();
    by_template(&warm, &plans[0]).expect("warm");
    std::thread::scope(|scope| {
        for (n, plan) in plans.iter().enumerate() {
            let warm = &warm;
            scope.spawn(move || {
                for _ in 0..100 {
                    let mut child = warm.spawn(plan).expect("a child");
                    let mut text = String::new();
                    child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
                    assert_eq!(text, format!("{n}\n"));
                    assert!(child.wait().expect("its end").success());
                }
            });
        }
    });
    assert!(warm.stats().warm > 300, "{:?}", warm.stats());
}
