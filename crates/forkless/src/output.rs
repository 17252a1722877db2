//! Reading what a child writes.

use crate::child::Child;
use crate::compile::Plan;
use crate::launch::Form;
use crate::pipes::Defaults;
use crate::wait;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{ChildStderr, ChildStdout, Output};
use std::sync::Arc;

/// Runs a plan to its end and gives what it wrote.
pub(crate) fn output(plan: &Arc<Plan>) -> io::Result<Output> {
    // Whether a filter killed it in exec can only be seen before it is reaped.
    let form = if plan.is_filtered { Form::Spawn } else { Form::Launch };
    Child::start(plan, form, Defaults::Capture, wait::sigchld_discards())?.wait_with_output()
}

/// Reads both streams to their ends, as their data come, so that a child that fills one is never kept waiting for a
/// reader of the other.
pub(crate) fn read_both(stdout: Option<ChildStdout>, stderr: Option<ChildStderr>) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    match (stdout, stderr) {
        (None, None) => {}
        (Some(mut stdout), None) => drop(stdout.read_to_end(&mut out)?),
        (None, Some(mut stderr)) => drop(stderr.read_to_end(&mut err)?),
        (Some(mut stdout), Some(mut stderr)) => loop {
            let mut ready = [
                PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::IN),
            ];
            match poll(&mut ready, None) {
                Err(rustix::io::Errno::INTR) => continue,
                answer => answer?,
            };
            let [out_ready, err_ready] = ready.map(|fd| !fd.revents().is_empty());
            if out_ready && read_some(&mut stdout, &mut out)? == 0 {
                stderr.read_to_end(&mut err)?;
                break;
            }
            if err_ready && read_some(&mut stderr, &mut err)? == 0 {
                stdout.read_to_end(&mut out)?;
                break;
            }
        },
    }
    Ok((out, err))
}

/// One read of what is there, into the vector's spare room; 0 at the end.
fn read_some(from: &mut impl Read, into: &mut Vec<u8>) -> io::Result<usize> {
    /// As much as a pipe holds by default.
    const PIPE: usize = 64 * 1024;
    let filled = into.len();
    into.resize(filled + PIPE, 0);
    let answer = loop {
        match from.read(&mut into[filled..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            answer => break answer,
        }
    };
    into.truncate(filled + *answer.as_ref().unwrap_or(&0));
    answer
}
