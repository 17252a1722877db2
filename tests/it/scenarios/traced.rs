//! The program whose system calls are counted from outside: a warm-up, a mark, one launch, a mark.

use crate::elf::Programs;
use forkless::{Capture, Command, Stdio};
use forkless_tests::filter::{self, Answer, Refusal};
use forkless_tests::trace::mark;
use std::io::Read;
use std::time::Duration;

part!(run);
/// `scenario traced WHAT`.
pub fn run(args: &[String]) {
    let programs = Programs::new();
    let program = programs.exits(0);
    let what = args.first().expect("what to trace").as_str();
    let mut command = Command::new(&program);
    match what {
        "status-chdir" => {
            command.current_dir("/");
        }
        // Of a call that no launch makes.
        "status-filtered" => {
            filter::refuse(&[Refusal::of(libc::SYS_swapoff, Answer::Errno(libc::EPERM))]).expect("a filter")
        }
        "spawn-without-pidfd" => {
            command.pidfd(false);
        }
        "spawn-pipes" => {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        "spawn-read-wait" => {
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        "zygote-uid" => {
            command.uid(7);
            let zygote = forkless::zygote::Zygote::start(&Default::default()).expect("a zygote");
            let prepared = command.prepare().expect("prepare");
            let launch = || assert!(zygote.status(&prepared).expect("status").success());
            (0..2).for_each(|_| launch());
            mark();
            (0..4).for_each(|_| launch());
            return mark();
        }
        "first-status" | "only-status" => {
            command.launched_once(what == "only-status");
            mark();
            assert!(command.status().expect("status").success());
            return mark();
        }
        _ => {}
    }
    let prepared = command.prepare().expect("prepare");
    if what == "set" {
        return set(&prepared);
    }
    if what == "awaited-status" {
        return awaited(prepared.into());
    }
    let limits = Capture::new().timeout(Duration::from_secs(600)).limit(1 << 20);
    let mut launch = || match what {
        "capture" => assert!(prepared.capture(&limits).expect("capture").status.success()),
        "spawn-read-wait" => {
            let mut child = prepared.spawn().expect("spawn");
            let mut text = Vec::new();
            child.stdout.take().expect("a pipe").read_to_end(&mut text).expect("read");
            child.stderr.take().expect("a pipe").read_to_end(&mut text).expect("read");
            assert!(child.wait().expect("wait").success());
        }
        "route" => drop(forkless::shell("uname -a 2>&1").route()),
        "status" | "status-chdir" | "status-filtered" => assert!(command.status().expect("status").success()),
        "hundred" => (0..100).for_each(|_| assert!(command.status().expect("status").success())),
        "prepared-status" => assert!(prepared.status().expect("status").success()),
        "spawn" | "spawn-without-pidfd" | "spawn-pipes" => {
            assert!(prepared.spawn().expect("spawn").wait().expect("wait").success());
        }
        other => panic!("unknown: {other}"),
    };
    launch();
    launch();
    mark();
    launch();
    mark();
}

/// A hundred that have all ended. That they have is seen by looks that leave them as they are, which are not counted.
fn set(prepared: &forkless::Prepared) {
    let mut set = forkless::WaitSet::new().expect("a set");
    for n in 0..100 {
        let child = prepared.spawn().expect("spawn");
        let pid = child.id();
        set.insert(child, n).expect("insert");
        // SAFETY: all zeroes is a valid siginfo_t, which the kernel writes; WNOWAIT leaves the child as it is.
        unsafe {
            let mut info = std::mem::zeroed();
            assert_eq!(libc::waitid(libc::P_PID, pid, &mut info, libc::WEXITED | libc::WNOWAIT), 0);
        }
    }
    mark();
    while let Some(ended) = set.wait().expect("wait") {
        assert!(ended.status.expect("a status").success());
    }
    mark();
}

fn awaited(prepared: forkless::tokio::Prepared) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for _ in 0..2 {
            assert!(prepared.status().await.expect("status").success());
        }
        mark();
        assert!(prepared.status().await.expect("status").success());
        mark();
    });
}
