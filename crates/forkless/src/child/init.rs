//! The connection to the init of a sandbox, which executes the program and reports how it ends: see
//! [`forkless_core::init`].

use super::{Child, State};
use crate::error::Error;
use crate::launch::failure;
use crate::launch::wait;
use crate::plan::{InnerProgram, Plan};
use forkless_core::init::Started;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::ffi::{OsStr, OsString};
use std::fmt::{Debug, Formatter};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Instant;

/// The caller's end of the socket.
pub(super) struct InitLink {
    socket: OwnedFd,
    /// For the error, until init has executed the program.
    plan: Option<Arc<Plan>>,
    kills_tree: bool,
}

impl Debug for InitLink {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("InitLink").field("socket", &self.socket).field("has_started", &self.plan.is_none()).finish()
    }
}

impl InitLink {
    /// Takes the socket out of those of the launch, if the plan has an init.
    pub(super) fn take(sockets: &mut Vec<(RawFd, OwnedFd)>, plan: &Arc<Plan>) -> Option<Self> {
        let inner = plan.inner.as_ref()?;
        let at = sockets.iter().position(|(theirs, _)| *theirs == inner.socket)?;
        Some(Self { socket: sockets.swap_remove(at).1, plan: Some(Arc::clone(plan)), kills_tree: inner.kills_tree })
    }

    /// The socket, until init has executed the program.
    pub(super) fn awaited(&self) -> Option<BorrowedFd<'_>> {
        self.plan.is_some().then(|| self.socket.as_fd())
    }

    /// Whether [`kill`](Self::kill) must replace a SIGKILL to the child.
    pub(super) fn does_kill_tree(&self) -> bool {
        self.kills_tree
    }

    /// Makes init kill all that the program has started, and end by SIGKILL; or start nothing, if it has not begun. Returns
    /// whether init has sent its first report.
    pub(super) fn kill(&self) -> bool {
        let _ = shutdown(&self.socket, Shutdown::Both);
        let said = |byte: &mut [u8]| recv(&self.socket, byte, RecvFlags::DONTWAIT | RecvFlags::PEEK);
        self.plan.is_none() || said(&mut [0]).is_ok_and(|(length, _)| length > 0)
    }

    pub(super) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// Reads init's report of the exec, if it has arrived. `false`: not yet.
    fn read_started(&mut self) -> Result<bool, Error> {
        let Some(plan) = &self.plan else { return Ok(true) };
        let Some(bytes) = self.receive() else { return Ok(false) };
        let started = Started::of(bytes);
        if started.errno != 0 {
            return Err(failure::inner_exec(plan, started));
        }
        self.plan = None;
        Ok(true)
    }

    /// A message, if one has arrived. Init sends each with one call.
    fn receive<const N: usize>(&self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT).ok()?.0 == N).then_some(bytes)
    }

    /// After init has ended: how the program ended; `None` if init was killed before. An error if no program was executed.
    pub(super) fn end(mut self) -> Result<Option<ExitStatus>, Error> {
        if !self.read_started()? {
            return Ok(None);
        }
        Ok(self.receive().map(|bytes| ExitStatus::from_raw(i32::from_ne_bytes(bytes))))
    }
}

impl Child {
    /// Waits until the init of a sandbox has executed the program, if there is one. `false`: the deadline has passed.
    pub(crate) fn look_for_program(&mut self, deadline: Option<Instant>) -> io::Result<bool> {
        let Some(init) = &mut self.inner.init else { return Ok(true) };
        let mut is_over = false;
        loop {
            match init.read_started() {
                Ok(true) => return Ok(true),
                // Init was killed: the wait for it reports the signal.
                Ok(false) if is_over => return Ok(true),
                Ok(false) => {}
                Err(error) => {
                    // Init ends by itself.
                    let _ = wait::reap(self.inner.pid, self.inner.pidfd.as_ref());
                    self.inner.init = None;
                    self.inner.state = State::Failed(error.clone());
                    return Err(error.into());
                }
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let limit = left.and_then(|left| Timespec::try_from(left).ok());
            let mut files = vec![PollFd::new(&init.socket, PollFlags::IN)];
            // A process that another thread has forked meanwhile may keep the other end open: the pidfd is watched too.
            files.extend(self.inner.pidfd.as_ref().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
            match poll(&mut files, limit.as_ref()) {
                Ok(0) => return Ok(false),
                // A message may have come meanwhile.
                Ok(_) if !files[0].revents().contains(PollFlags::IN) => is_over = true,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            // At the end of the stream a message can no longer come.
            let mut byte = [0];
            if recv(&init.socket, &mut byte[..], RecvFlags::DONTWAIT | RecvFlags::PEEK).is_ok_and(|(len, _)| len == 0) {
                return Ok(true);
            }
        }
    }
}

impl InnerProgram {
    /// The path at this index of those that init tries.
    pub(crate) fn path(&self, number: u32) -> Option<&OsStr> {
        self.args.get(self.paths.clone())?.get(number as usize).map(OsString::as_os_str)
    }
}
