//! Makes forkless the program: `execve(2)` without a child, as env(1), nice(1) and setpriv(1) do it.

use std::{
    collections::BTreeSet,
    hint::black_box,
    io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

use rustix::{
    io::fcntl_dupfd_cloexec,
    stdio::{dup2_stderr, stderr},
};

use super::{
    failure::{Failure, say},
    options::RunOptions,
    request::Asked,
};

/// Memory kept free for the message of a failure.
const RESERVE: usize = 64 << 10;

/// Executes the program. Returns only on failure, with standard error as it was before.
pub(super) fn run(mut asked: Asked, options: &RunOptions) -> Failure {
    let ours = match options.has_fd(2).then(|| keep_stderr(options)).transpose() {
        Ok(ours) => ours,
        Err(error) => return Failure::before(format_args!("cannot keep standard error: {error}")),
    };
    if options.route {
        say("route: in place");
    }
    if options.limits.has_memory_limit() {
        // Afterwards the allocator has these bytes without asking the kernel, which may refuse more by then.
        drop(black_box(Vec::<u8>::with_capacity(RESERVE)));
    }
    let failure = Failure::from(asked.settings().exec());
    // A limit of file sizes must not end forkless before its message is written, nor a background process group stop it.
    for signal in [libc::SIGXFSZ, libc::SIGTTOU] {
        // SAFETY: an ignored signal runs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    if let Some(ours) = ours {
        // If this fails, there is nowhere to report it.
        let _ = dup2_stderr(&ours);
    }
    failure
}

/// A copy of standard error at a number that no option sets. Exec closes it.
fn keep_stderr(options: &RunOptions) -> io::Result<OwnedFd> {
    let set: BTreeSet<RawFd> = options.fd.iter().chain(&options.open).map(|request| request.number).collect();
    copy_beside(stderr(), &set)
}

fn copy_beside(file: BorrowedFd<'_>, set: &BTreeSet<RawFd>) -> io::Result<OwnedFd> {
    let mut from = 3;
    loop {
        let copy = fcntl_dupfd_cloexec(file, from)?;
        if !set.contains(&copy.as_raw_fd()) {
            return Ok(copy);
        }
        from = copy.as_raw_fd() + 1;
    }
}
