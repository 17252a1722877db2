//! What `posix_spawn(3)` lets its callers say and [`Command`] does not: steps in an order of their own, and the words of a program as they are.

use super::{Command, Ready};
use crate::environment::Block;
use std::ffi::{CStr, CString, OsString};
use std::os::fd::RawFd;

/// One step of the child, in the order in which they were asked for, with the numbers that descriptors have by then:
/// `posix_spawn_file_actions_t(3)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileAction {
    /// `close(2)`; one that is not open is no error.
    Close(RawFd),
    /// `close_range(2)` of these and all between them; the last may be -1, for all above.
    CloseRange(RawFd, RawFd),
    /// `dup2(2)`. A descriptor that is to be itself is kept over exec.
    Dup2 {
        /// What is copied.
        from: RawFd,
        /// The number that the copy gets.
        to: RawFd,
    },
    /// `open(2)`.
    Open {
        /// The number that the file gets.
        to: RawFd,
        /// The file.
        path: CString,
        /// As for `open(2)`.
        flags: i32,
        /// As for `open(2)`.
        mode: u32,
    },
    /// `chdir(2)`.
    Chdir(CString),
    /// `fchdir(2)`.
    Fchdir(RawFd),
    /// `tcsetpgrp(3)` of the child's process group.
    Foreground(RawFd),
}

/// For this project's own front ends that stand in for another library's functions: libc's, CPython's.
#[doc(hidden)]
impl Command {
    /// Steps that come after the descriptors of [`fd`](Self::fd) and before signals and exec.
    pub fn file_actions(&mut self, actions: Vec<FileAction>) -> &mut Self {
        self.actions = actions;
        self
    }

    /// Goes on to the next place of `PATH`, or the next program of [`or_else`](Self::or_else), whatever the failure of one
    /// was (ENOEXEC, ELOOP, E2BIG …), as CPython does. If none works, the first failure is reported that is not that there
    /// is no such program. Without it any failure but that and EACCES is final.
    pub fn try_all(&mut self, all: bool) -> &mut Self {
        self.tries_all = all;
        self
    }

    /// `sched_setscheduler(2)` with any policy, or `sched_setparam(2)` where there is none; the kernel says what it takes.
    pub fn scheduler_as_given(&mut self, policy: Option<i32>, priority: i32) -> &mut Self {
        self.setup.scheduler = Some((policy, priority));
        self
    }

    /// Program, arguments and environment as they are given: the files to try in this order, no argument added, nothing inherited.
    pub fn exactly<'a>(
        &mut self,
        paths: Vec<OsString>,
        args: Vec<OsString>,
        env: impl Iterator<Item = &'a CStr> + Clone,
    ) -> &mut Self {
        self.args = args;
        self.ready = Some(Ready { env: Block::as_given(env), paths, redirections: Vec::new() });
        self
    }
}
