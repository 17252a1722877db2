//! Lines without the shell.

use crate::observe;
use forkless::Stdio;
use forkless_tests::filter::{self, Answer, Refusal};

scenario!(a_status_is_kept_when_no_process_can_be_started);
/// A signal has killed the program, and no process can be started to see how this shell reports that: the status is known all the same.
/// The status of a line is not replaced by the error of a look-up.
pub fn a_status_is_kept_when_no_process_can_be_started(_: &[String]) {
    let mut line = forkless::shell("sleep 100");
    line.settings().stdin(Stdio::null()).stderr(Stdio::null());
    let (mut child, ending) = line.spawn().expect("spawn").into_parts();
    let calls = [libc::SYS_clone, libc::SYS_clone3, libc::SYS_vfork, libc::SYS_fork];
    let refusals: Vec<_> = calls.map(|call| Refusal::of(call, Answer::Errno(libc::EAGAIN))).into();
    filter::refuse(&refusals).expect("a filter");
    child.kill().expect("kill");
    let status = ending.status(child.wait().expect("wait")).expect("a status");
    // With a shell other than dash the line was run by that shell, which was killed.
    use std::os::unix::process::ExitStatusExt;
    assert!(status.code() == Some(128 + libc::SIGKILL) || status.signal() == Some(libc::SIGKILL), "{status}");
    observe::assert_no_orphans();
}
