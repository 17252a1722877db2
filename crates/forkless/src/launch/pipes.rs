//! The pipes and sockets of one run.

use crate::error::Error;
use crate::plan::{Plan, PlannedStream, TERMINAL_SLOT};
use crate::step::Step;
use forkless_core::frame::{EXEC_SLOT, SLOT_INHERIT, SLOTS};
use forkless_core::sys::errno;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, ptsname};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Both ends of the pipes and sockets that one run needs.
pub(crate) struct Pipes {
    pub(crate) slots: [RawFd; SLOTS],
    /// The first three slots hold only pipes.
    pub(crate) only_pipes: bool,
    /// The caller's ends of standard input, output and error.
    pub(crate) ours: [Option<OwnedFd>; 3],
    /// The caller's ends of socket pairs, by the child's descriptor.
    pub(crate) sockets: Vec<(RawFd, OwnedFd)>,
    /// The reading end of a pipe whose other end exec closes.
    pub(crate) exec: Option<OwnedFd>,
    pub(crate) theirs: Theirs,
}

/// The child's ends: closed when this is dropped, which must not be before the child has taken them.
#[derive(Debug)]
pub(crate) struct Theirs(#[allow(dead_code)] [Option<OwnedFd>; 3], #[allow(dead_code)] Vec<OwnedFd>);

/// The standard streams that the command does not set.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Defaults<'a> {
    /// The caller's.
    Inherit,
    /// No input, captured output.
    Capture,
    /// As given for each.
    Each([DefaultStream<'a>; 3]),
}

/// A standard stream that the command does not set.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DefaultStream<'a> {
    Inherit,
    Null,
    Piped,
    /// For standard error: the same as standard output.
    AsStdout,
    /// An end of a pipe that the caller made.
    Pipe(BorrowedFd<'a>),
    /// Another file of the caller.
    File(BorrowedFd<'a>),
}

impl<'a> Defaults<'a> {
    fn of(self, number: usize) -> DefaultStream<'a> {
        match (self, number) {
            (Self::Inherit, _) => DefaultStream::Inherit,
            (Self::Capture, 0) => DefaultStream::Null,
            (Self::Capture, _) => DefaultStream::Piped,
            (Self::Each(each), _) => each[number],
        }
    }
}

/// The slots of a plan that needs no pipes.
pub(crate) fn plain_slots(plan: &Plan) -> [RawFd; SLOTS] {
    let mut slots = [SLOT_INHERIT; SLOTS];
    for (slot, stream) in slots.iter_mut().zip(plan.fds.stdio) {
        *slot = stream.slot();
    }
    slots
}

impl Pipes {
    /// Makes the pipes and sockets that a run of this plan needs, all close-on-exec.
    ///
    /// On failure those already made are closed.
    pub(crate) fn make(plan: &Plan, defaults: Defaults<'_>) -> Result<Self, Error> {
        let failed = |errno: rustix::io::Errno, number: RawFd| {
            Error::new(plan.program(), Step::Pipe, errno.raw_os_error()).on(format!("for fd {number}"))
        };
        let mut slots = [SLOT_INHERIT; SLOTS];
        let (mut ours, mut theirs) = ([const { None }; 3], [const { None }; 3]);
        let (mut our_sockets, mut their_sockets) = (Vec::new(), Vec::new());
        let mut only_pipes = true;
        for number in 0..3 {
            let unsaid = defaults.of(number);
            let stream = match (plan.fds.stdio[number], unsaid) {
                (PlannedStream::Unset, DefaultStream::Null) => PlannedStream::Null,
                (PlannedStream::Unset, DefaultStream::Piped) => PlannedStream::Piped,
                (PlannedStream::Unset, DefaultStream::AsStdout) => {
                    slots[number] = slots[1];
                    if slots[1] == SLOT_INHERIT {
                        (slots[number], only_pipes) = (1, false);
                    }
                    continue;
                }
                (PlannedStream::Unset, DefaultStream::Pipe(fd)) => {
                    slots[number] = fd.as_raw_fd();
                    continue;
                }
                (PlannedStream::Unset, DefaultStream::File(fd)) => {
                    (slots[number], only_pipes) = (fd.as_raw_fd(), false);
                    continue;
                }
                (stream, _) => stream,
            };
            let pair = match stream {
                PlannedStream::Piped => {
                    let (read, write) =
                        pipe_with(PipeFlags::CLOEXEC).map_err(|errno| failed(errno, number as RawFd))?;
                    if number == 0 { (write, read) } else { (read, write) }
                }
                PlannedStream::SocketPair => sockets().map_err(|errno| failed(errno, number as RawFd))?,
                other => {
                    slots[number] = other.slot();
                    continue;
                }
            };
            slots[number] = pair.1.as_raw_fd();
            theirs[number] = Some(pair.1);
            if stream == PlannedStream::Piped {
                ours[number] = Some(pair.0);
            } else {
                our_sockets.push((number as RawFd, pair.0));
            }
        }
        for (n, &number) in plan.fds.sockets.iter().enumerate() {
            let (our, their) = sockets().map_err(|errno| failed(errno, number))?;
            slots[3 + n] = their.as_raw_fd();
            our_sockets.push((number, our));
            their_sockets.push(their);
        }
        let mut exec = None;
        if plan.fds.exec_pipe {
            let failed = |errno| failed(errno, -1).on("for the report of the exec");
            let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
            slots[EXEC_SLOT] = write.as_raw_fd();
            their_sockets.push(write);
            exec = Some(read);
        }
        if let Some(master) = &plan.fds.pty {
            let closed = || Error::check(plan.program(), "the pseudo-terminal that it is to be on has been closed");
            let master = master.upgrade().ok_or_else(closed)?;
            let follower = open_follower(&master)
                .map_err(|errno| Error::new(plan.program(), Step::OpenTerminal, errno.raw_os_error()))?;
            slots[TERMINAL_SLOT] = follower.as_raw_fd();
            their_sockets.push(follower);
        }
        Ok(Self { slots, only_pipes, ours, sockets: our_sockets, exec, theirs: Theirs(theirs, their_sockets) })
    }
}

/// Opens the other side of a pseudo-terminal.
pub(crate) fn open_follower(master: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    match retry_on_intr(|| ioctl_tiocgptpeer(master, flags)) {
        // Missing before Linux 4.13, or refused by a filter.
        Err(Errno::INVAL | Errno::NOTTY | Errno::NOSYS | Errno::PERM | Errno::ACCESS) => open_by_name(master),
        answer => answer,
    }
}

/// Opens the other side by its path. That may be a terminal of the same number in another mount, which the caller may
/// not be able to open.
fn open_by_name(master: &OwnedFd) -> Result<OwnedFd, Errno> {
    let name = ptsname(master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::open(name.as_c_str(), flags, Mode::empty()))
}

fn sockets() -> Result<(OwnedFd, OwnedFd), rustix::io::Errno> {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// The next descriptor that comes over a socket; `None` at its end.
pub(crate) fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(end) if end.bytes == 0 => return Ok(None),
            Ok(_) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    // A message without a descriptor: RLIMIT_NOFILE left no number for it.
    fds.last().map(Some).ok_or_else(|| io::Error::from_raw_os_error(errno::EMFILE))
}
