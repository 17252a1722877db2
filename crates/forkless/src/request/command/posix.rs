//! What `posix_spawn(3)` offers and [`Command`] does not: steps in the caller's order, and a program's arguments and environment
//! exactly as given.

use super::{BpfInstruction, Command, FilePlace, MountStep, NewFile, Ready};
use crate::request::environment::Block;
use std::ffi::{CStr, CString, OsString};
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

/// One step of the child: `posix_spawn_file_actions_addopen(3)` and its like. Steps are done in the order in which they were
/// added, with the numbers that descriptors have by then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileAction {
    /// `close(2)`; it is no error if the descriptor is not open.
    Close(RawFd),
    /// `close_range(2)` from the first to the last; -1 as the last closes all above the first.
    CloseRange(RawFd, RawFd),
    /// `dup2(2)`. If both numbers are the same, the descriptor is kept over exec.
    Dup2 {
        /// The descriptor that is copied.
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

/// For this project's own front ends that replace functions of another library: libc's, CPython's.
#[doc(hidden)]
impl Command {
    /// Adds steps that come after the descriptors of [`fd`](Self::fd) and before signals and exec, in this order.
    pub fn file_actions(&mut self, actions: Vec<FileAction>) -> &mut Self {
        self.actions = actions;
        self
    }

    /// Tries the next entry of `PATH`, or the next program of [`or_else`](Self::or_else), after any failure (ENOEXEC,
    /// ELOOP, E2BIG …), as CPython does. If none works, the error is the first failure that is not "no such program".
    /// By default any failure but that and EACCES is final.
    pub fn try_all(&mut self, all: bool) -> &mut Self {
        self.tries_all = all;
        self
    }

    /// [`scripts_by_shell`](Self::scripts_by_shell), also for binaries that the kernel cannot execute, as `execvp(3)`
    /// and libuv do. The shell then prints an error.
    pub fn any_file_by_shell(&mut self, by_shell: bool) -> &mut Self {
        (self.scripts_by_shell, self.any_by_shell) = (by_shell, by_shell);
        self
    }

    /// Sets any scheduling policy and priority, unchecked: `sched_setscheduler(2)`, or `sched_setparam(2)` without a
    /// policy.
    pub fn scheduler_as_given(&mut self, policy: Option<i32>, priority: i32) -> &mut Self {
        self.setup.scheduler = Some((policy, priority));
        self
    }

    /// Sets program, arguments and environment as they are: the files to try in this order, no argument added, no
    /// variable inherited.
    pub fn exactly<'a>(
        &mut self,
        paths: Vec<OsString>,
        args: Vec<OsString>,
        env: impl Iterator<Item = &'a CStr> + Clone,
    ) -> &mut Self {
        self.args = args;
        self.ready = Some(Ready { env: Block::as_given(env), paths: paths.into(), redirections: Vec::new() });
        self
    }
}

/// For the options of `forkless run`.
#[doc(hidden)]
impl Command {
    /// Sets the mode of a file or directory, among the mounts. A symbolic link at the end of the path is an error.
    pub fn set_mode<P: AsRef<Path>>(&mut self, path: P, mode: u32) -> &mut Self {
        self.sandbox.mounts.push(MountStep::Mode { path: path.as_ref().to_owned(), mode });
        self
    }

    /// Makes a file with this mode and the first `length` bytes of `data`, less than 2 GiB, among the mounts. `data` is a regular file
    /// or a memfd, whose offset changes. A file that exists at the path itself is overwritten.
    pub fn make_file<P: AsRef<Path>>(
        &mut self,
        (data, length): (OwnedFd, usize),
        path: P,
        mode: u32,
        place: FilePlace,
    ) -> &mut Self {
        let content = NewFile { data: Arc::new(data), length, path: path.as_ref().to_owned(), mode, place };
        self.sandbox.mounts.push(MountStep::NewFile(content));
        self
    }

    /// The filter of [`seccomp`](Self::seccomp), to combine it with another one.
    pub fn get_seccomp(&self) -> Option<&[BpfInstruction]> {
        self.sandbox.seccomp.as_deref()
    }
}
