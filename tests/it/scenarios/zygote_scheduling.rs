//! The scheduling of a zygote's children, if its caller keeps its own from its children.

use crate::observe::skip;
use forkless::zygote::Zygote;
use forkless::{Command, Stdio};
use std::io;

/// A caller whose children do not inherit all of its scheduling (SCHED_RESET_ON_FORK). The reference is a direct launch.
/// `zygote`: its helper was started by a thread with the usual scheduling.
pub fn reset_on_fork(zygote: &Zygote) {
    const PLAIN: [i32; 3] = [libc::SCHED_OTHER, 0, 0];
    const RESET: i32 = libc::SCHED_RESET_ON_FORK;
    for (asked, expected) in [
        ([libc::SCHED_OTHER | RESET, 0, -5], PLAIN),
        ([libc::SCHED_OTHER | RESET, 0, 3], [libc::SCHED_OTHER, 0, 3]),
        ([libc::SCHED_BATCH | RESET, 0, 0], [libc::SCHED_BATCH, 0, 0]),
        ([libc::SCHED_BATCH | RESET, 0, -5], [libc::SCHED_BATCH, 0, 0]),
        ([libc::SCHED_FIFO | RESET, 1, 0], PLAIN),
        ([libc::SCHED_RR | RESET, 1, 3], PLAIN),
        ([libc::SCHED_FIFO, 1, 0], [libc::SCHED_FIFO, 1, 0]),
    ] {
        let launches = || {
            let [policy, priority, nice] = asked;
            // SAFETY: of this thread.
            let is_set = unsafe {
                let mut parameters: libc::sched_param = std::mem::zeroed();
                parameters.sched_priority = priority;
                libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0
                    && libc::sched_setscheduler(0, policy, &raw const parameters) == 0
            };
            if !is_set {
                return skip(&format!("a caller with scheduling {asked:x?}"), &io::Error::last_os_error().to_string());
            }
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            let command =
                command.arg("zygote_scheduling::scheduling").stdout(Stdio::piped()).prepare().expect("prepare");
            let text =
                |output: io::Result<forkless::Output>| String::from_utf8(output.expect("output").stdout).expect("text");
            let direct = text(command.output());
            assert_eq!(direct.trim(), format!("{expected:?}"), "what the kernel does for {asked:x?}");
            assert_eq!(text(zygote.output(&command)), direct, "{asked:x?}");
            // By a helper that is itself such a child.
            assert_eq!(text(crate::zygote::zygote().output(&command)), direct, "{asked:x?}, a new helper");
        };
        std::thread::scope(|scope| scope.spawn(launches).join().expect("a thread"));
    }
}

part!(scheduling);
/// The program of [`reset_on_fork`].
pub fn scheduling(_: &[String]) {
    // SAFETY: these return numbers, or write one.
    unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_getparam(0, &raw mut parameters);
        let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        println!("{:?}", [libc::sched_getscheduler(0), parameters.sched_priority, nice]);
    }
}
