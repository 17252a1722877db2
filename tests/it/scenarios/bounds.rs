//! Every list that is full, and every call after the end.

use crate::observe::{self, skip};
use forkless::{Command, Error, Namespace, Step};
use forkless_tests::filter::{self, Answer, Refusal};
use forkless_tests::process::is_root;
use forkless_tests::supervise::at_each;
use std::thread;

/// The most steps of best effort that may fail: `MISSES` of `crates/core/src/plan.rs`.
const MISSES: usize = 128;

scenario!(a_command_has_no_more_steps_of_best_effort_than_can_be_noted);
/// There is room to note so many steps of best effort that fail, and a command cannot have more.
pub fn a_command_has_no_more_steps_of_best_effort_than_can_be_noted(_: &[String]) {
    let failing = |count: usize| {
        let mut command = Command::new("/bin/true");
        for _ in 0..count {
            // SAFETY: closes a number that is not open.
            unsafe { command.call(libc::SYS_close as u32, [forkless::CallArg::Number(9999)], None) };
        }
        command.best_effort(Step::Call);
        command
    };
    let mut child = failing(MISSES).spawn().expect("a list that is full");
    assert_eq!(child.skipped().len(), MISSES);
    assert!(child.wait().expect("wait").success());
    let error = failing(MISSES + 1).spawn().expect_err("no room");
    let error = Error::of(&error).expect("an error of a launch");
    assert!(error.step() == Step::Check && error.to_string().contains("at most 128 steps"), "{error}");
    observe::assert_no_orphans();
}

scenario!(a_reaped_child_is_not_signalled_by_its_number);
/// A handle without a pidfd signals nobody when its child has been reaped: the number may be a stranger's.
pub fn a_reaped_child_is_not_signalled_by_its_number(_: &[String]) {
    for pidfd in [true, false] {
        thread::scope(|scope| {
            let signals = || {
                let mut child = Command::new("/bin/true").process_group(0).pidfd(pidfd).spawn().expect("spawn");
                child.wait().expect("wait");
                // Each of them would be an error.
                let calls = [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_pidfd_send_signal];
                let refusals: Vec<_> = calls.map(|call| Refusal::of(call, Answer::Errno(libc::EPERM))).into();
                filter::refuse(&refusals).expect("a filter");
                child.kill().expect("nobody is killed");
                child.signal(libc::SIGTERM).expect("nobody is signalled");
                child.terminate(libc::SIGTERM, std::time::Duration::ZERO).expect("nobody is terminated");
                assert!(child.wait().expect("the status again").success());
            };
            scope.spawn(signals).join().expect("a thread");
        });
    }
}

scenario!(the_memory_is_dumpable_again_only_when_a_child_with_failed_maps_is_reaped);
/// ID maps that cannot be written: the memory is made dumpable again only when the child has been reaped.
pub fn the_memory_is_dumpable_again_only_when_a_child_with_failed_maps_is_reaped(_: &[String]) {
    if !is_root() {
        return skip("the dumpable flag with failed ID maps", "needs root");
    }
    // SAFETY: reads a flag.
    let dumpable = || unsafe { libc::prctl(libc::PR_GET_DUMPABLE) };
    // The kernel is probed without a filter.
    assert!(Command::new("/bin/true").status().expect("status").success());
    let mut seen = Vec::new();
    // A map of no IDs is none.
    let launch = || Command::new("/bin/true").unshare(Namespace::User).map_uid(0, 0, 0).spawn().map(drop);
    let error = at_each(libc::SYS_wait4, launch, || seen.push(dumpable())).expect_err("no map");
    assert_eq!(Error::of(&error).map(Error::step), Some(Step::IdMaps), "{error}");
    assert_eq!(seen.first(), Some(&0), "while the child waits to be reaped: {seen:?}");
    assert_eq!(dumpable(), 1, "afterwards");
    observe::assert_no_orphans();
}
