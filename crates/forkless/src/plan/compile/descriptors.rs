//! The descriptors of the child: their numbers, and the source of each.

use crate::error::Error;
use crate::plan::TERMINAL_SLOT;
use crate::request::command::{Command, MountStep, NewFile};
use crate::request::stdio::FdSource;
use crate::route::Launcher;
use crate::step::Step;
use forkless_core::frame::{EXEC_SLOT, SLOTS};
use forkless_core::plan::{MAX_FDS, Origin, Pair};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// The descriptors of a plan.
pub(super) struct Descriptors {
    pub(super) pairs: Vec<Pair>,
    pub(super) keep: Vec<i32>,
    pub(super) sockets: Vec<RawFd>,
    pub(super) highest_source: RawFd,
    /// Some of the caller's descriptors that are passed are not in `owned`.
    pub(super) borrows: bool,
    pub(super) owned: Vec<Arc<OwnedFd>>,
    // Descriptors that the child uses before exec, by their numbers in the child:
    pub(super) program: Option<RawFd>,
    pub(super) ruleset: Option<RawFd>,
    pub(super) trees: Vec<RawFd>,
    /// The socket over which the child sends descriptors to the caller.
    pub(super) back: Option<RawFd>,
    /// The socket of the init that executes the program.
    pub(super) init: Option<RawFd>,
    /// Each run makes a pipe whose other end exec closes.
    pub(super) exec_pipe: bool,
    /// The pseudo-terminal of `pty`: one of the numbers that it has in the child.
    pub(super) terminal: Option<RawFd>,
    /// Those of these numbers that exec must close.
    pub(super) passing: Vec<RawFd>,
}

impl Descriptors {
    /// Reserves the lowest number that is unused in the child: a number above the highest may be beyond `RLIMIT_NOFILE`.
    /// With `inherit_all` the child may inherit a descriptor at any number: then a close-on-exec descriptor of the caller
    /// occupies the number as long as the plan exists.
    fn free_number(&mut self, command: &Command) -> Result<RawFd, Error> {
        let mut number = (3..RawFd::MAX).find(|number| !self.keep.contains(number)).unwrap_or(RawFd::MAX);
        if command.inherit_all {
            let failed = |errno: rustix::io::Errno| {
                Error::new(&command.program, Step::PassFd, errno.raw_os_error()).on("for the child's own use")
            };
            let holder = eventfd(0, EventfdFlags::CLOEXEC).map_err(failed)?;
            let mut from = 3;
            let held = loop {
                let held = rustix::io::fcntl_dupfd_cloexec(&holder, from).map_err(failed)?;
                if !self.keep.contains(&held.as_raw_fd()) {
                    break held;
                }
                from = held.as_raw_fd() + 1;
            };
            number = held.as_raw_fd();
            self.owned.push(Arc::new(held));
        }
        self.keep.push(number);
        Ok(number)
    }

    /// Passes a descriptor that the child uses before exec, and returns its number in the child.
    fn lend(&mut self, command: &Command, fd: &Arc<OwnedFd>, outlives_exec: bool) -> Result<RawFd, Error> {
        let number = self.free_number(command)?;
        self.pairs.push(Pair::new(Origin::Descriptor(fd.as_raw_fd()), number));
        self.highest_source = self.highest_source.max(fd.as_raw_fd());
        self.owned.push(Arc::clone(fd));
        if !outlives_exec {
            self.passing.push(number);
        }
        Ok(number)
    }
}

pub(super) fn descriptors(command: &Command) -> Result<Descriptors, Error> {
    let refuse = |what: String| Err(Error::check(&command.program, what));
    let mut found = Descriptors {
        pairs: Vec::new(),
        keep: vec![0, 1, 2],
        sockets: Vec::new(),
        highest_source: -1,
        borrows: false,
        owned: Vec::new(),
        program: None,
        ruleset: None,
        trees: Vec::new(),
        back: None,
        init: None,
        // With `PosixSpawn` the launch returns after exec, and close-on-exec cannot be set.
        exec_pipe: command.exec_pipe && command.launcher != Launcher::PosixSpawn,
        terminal: None,
        passing: Vec::new(),
    };
    for number in 0..3 {
        if !command.fds.contains_key(&number) {
            let slot = if command.pty.is_some() { TERMINAL_SLOT } else { number as usize };
            found.pairs.push(Pair::new(Origin::Slot(slot), number));
        }
    }
    for (&number, source) in &command.fds {
        if number < 0 {
            return refuse(format!("fd {number} is not a descriptor number"));
        }
        if number > 2 {
            found.keep.push(number);
        }
        let origin = match source {
            FdSource::Piped if number > 2 => {
                return refuse(format!("a pipe at fd {number} has no known direction: use Stdio::socketpair() there"));
            }
            FdSource::SocketPair if number > 2 => {
                found.sockets.push(number);
                Origin::Slot(2 + found.sockets.len())
            }
            FdSource::Null if number > 2 => Origin::Null,
            FdSource::Inherit | FdSource::Null | FdSource::Piped | FdSource::SocketPair if number <= 2 => {
                Origin::Slot(number as usize)
            }
            FdSource::Borrowed(fd) if *fd < 0 => {
                return refuse(format!("fd {fd}, the source of fd {number}, is not a descriptor number"));
            }
            // A copy of the same number means that the descriptor is inherited.
            FdSource::DupOf(other) if *other == number => {
                if number > 2 {
                    Origin::Descriptor(number)
                } else {
                    Origin::Slot(number as usize)
                }
            }
            FdSource::DupOf(other) => {
                check_dup(command, number, *other)?;
                continue;
            }
            FdSource::Open { path: Err(_), .. } => {
                return refuse(format!("the path for fd {number} contains a NUL byte"));
            }
            FdSource::Open { .. } => continue,
            fixed => Origin::Descriptor(fixed.fixed(number).unwrap_or(number)),
        };
        if let FdSource::Owned(fd) = source {
            found.owned.push(Arc::clone(fd));
        }
        if let Origin::Descriptor(passed) = origin {
            found.highest_source = found.highest_source.max(passed);
            found.borrows |= !matches!(source, FdSource::Owned(_));
        }
        found.pairs.push(Pair::new(origin, number));
    }
    // The descriptor of a script must stay open at exec: the interpreter opens /dev/fd/N. A descriptor that cannot be
    // read (O_PATH) is assumed to be a binary.
    let is_script = |fd: &Arc<OwnedFd>| {
        let mut start = [0; 2];
        rustix::io::pread(fd, &mut start, 0) == Ok(2) && &start == b"#!"
    };
    if let Some(fd) = &command.program_fd {
        found.program = Some(found.lend(command, fd, is_script(fd))?);
    }
    if let Some(init) = &command.sandbox.init {
        found.program = Some(found.lend(command, &init.file, false)?);
        let number = found.free_number(command)?;
        found.sockets.push(number);
        found.pairs.push(Pair::new(Origin::Slot(2 + found.sockets.len()), number));
        found.init = Some(number);
    }
    if let Some(fd) = &command.sandbox.landlock {
        found.ruleset = Some(found.lend(command, fd, false)?);
    }
    for one in &command.sandbox.mounts {
        if let MountStep::Attach { tree: fd, .. } | MountStep::NewFile(NewFile { data: fd, .. }) = one {
            let number = found.lend(command, fd, false)?;
            found.trees.push(number);
        }
    }
    if !command.setup.hand_backs.is_empty() {
        let number = found.free_number(command)?;
        found.sockets.push(number);
        found.pairs.push(Pair::new(Origin::Slot(2 + found.sockets.len()), number));
        found.passing.push(number);
        found.back = Some(number);
    }
    if found.exec_pipe {
        let number = found.free_number(command)?;
        found.pairs.push(Pair::new(Origin::Slot(EXEC_SLOT), number));
        found.passing.push(number);
    }
    if command.pty.is_some() {
        found.terminal = Some(terminal(command, &mut found)?);
    }
    if found.pairs.len() > MAX_FDS {
        return refuse(format!("{} descriptors are more than the {MAX_FDS} of one command", found.pairs.len()));
    }
    let most = match (found.exec_pipe, command.pty.is_some()) {
        (true, _) => EXEC_SLOT - 3,
        (false, true) => TERMINAL_SLOT - 3,
        (false, false) => SLOTS - 3,
    };
    if found.sockets.len() > most {
        return refuse(format!("{} socket pairs are more than the {most} of one command", found.sockets.len()));
    }
    found.pairs.sort_by_key(|pair| pair.target);
    found.keep.sort_unstable();
    Ok(found)
}

/// Whether this standard stream is the pseudo-terminal of `pty`.
pub(super) fn is_terminal(command: &Command, number: RawFd) -> bool {
    command.pty.is_some() && !command.fds.contains_key(&number)
}

/// A number of the pseudo-terminal of `pty` in the child: a standard stream or, if it is none of them, a number that
/// exec closes.
fn terminal(command: &Command, found: &mut Descriptors) -> Result<RawFd, Error> {
    if let Some(number) = (0..3).find(|&number| is_terminal(command, number)) {
        return Ok(number);
    }
    let number = found.free_number(command)?;
    found.pairs.push(Pair::new(Origin::Slot(TERMINAL_SLOT), number));
    found.passing.push(number);
    Ok(number)
}

/// Refuses a copy of a descriptor that the child does not have, and a copy of a copy: copies are made in the order of
/// their numbers, so the source might not exist yet.
fn check_dup(command: &Command, number: RawFd, other: RawFd) -> Result<(), Error> {
    let known = other <= 2 || command.inherit_all || command.fds.contains_key(&other);
    let chained = matches!(command.fds.get(&other), Some(FdSource::DupOf(_)));
    if other < 0 || !known {
        return Err(Error::check(
            &command.program,
            format!("fd {number} cannot be a copy of fd {other}, which the child does not have"),
        ));
    }
    if chained {
        let what = format!("fd {number} cannot be a copy of fd {other}, which is itself a copy: name its source");
        return Err(Error::check(&command.program, what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::stdio::Stdio;
    use std::fs::File;

    /// The child searches the list.
    #[test]
    fn descriptors_are_sorted_by_their_numbers() {
        let mut command = Command::new("true");
        command.stdin(Stdio::null());
        let found = descriptors(&command).expect("descriptors");
        let targets: Vec<RawFd> = found.pairs.iter().map(|pair| pair.target).collect();
        assert_eq!(targets, [0, 1, 2]);
    }
    #[test]
    fn own_descriptors_of_the_child_have_the_lowest_numbers() {
        for highest in [1023, RawFd::MAX] {
            let program = File::open("/bin/true").expect("a program");
            let mut command = Command::new("true");
            command.program_fd(program).fd(Stdio::null(), 3).fd(Stdio::null(), highest);
            assert_eq!(descriptors(&command).expect("descriptors").program, Some(4));
        }
    }
}
