//! How a child can be made, and how one was.

use std::fmt;

/// How [`Command::launcher`](crate::Command::launcher) can have a child made.
///
/// A [`Zygote`](crate::zygote::Zygote) is not among them: it launches what is given to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// A child that shares the caller's memory until exec: `clone3(2)`.
    Clone,
    /// A child with a copy of the caller's memory: `fork(3)` of the C library, whose cost grows with that memory.
    Fork,
    /// `posix_spawn(3)` of the C library.
    PosixSpawn,
}

/// How a child was launched: from [`Child::route`](crate::Child::route). Printed, it says why, too.
///
/// ```
/// use forkless::{Command, Route};
/// let mut child = Command::new("true").spawn()?;
/// assert!(matches!(child.route(), Route::Clone { .. }));
/// println!("{}", child.route());
/// child.wait()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route {
    /// By [`Launcher::Clone`].
    Clone {
        /// The system call.
        call: CloneCall,
        /// How the child's descriptor table was made.
        table: DescriptorTable,
    },
    /// By [`Launcher::Fork`]. The descriptor table is a copy.
    Fork {
        /// The child inherits every descriptor, on request; else it closes those that it is not to have.
        inherits_all: bool,
    },
    /// By [`Launcher::PosixSpawn`]. The descriptor table is a copy.
    PosixSpawn {
        /// As for [`Fork`](Self::Fork).
        inherits_all: bool,
    },
    /// By a [`Zygote`](crate::zygote::Zygote), which got plan and descriptors over a socket.
    Zygote {
        /// The system call.
        call: CloneCall,
    },
}

/// The system call that cloned a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloneCall {
    /// `clone3(2)` with `CLONE_CLEAR_SIGHAND`.
    Clone3,
    /// `clone(2)`, because `clone3` is refused or missing here.
    Clone,
}

/// How the descriptor table of a cloned child was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DescriptorTable {
    /// Made by the child, with a copy of the caller's standard streams; other descriptors were passed this way.
    Private(Passing),
    /// Made by the child, with a copy of the caller's descriptors below this number. It closed those that it is not to have.
    /// Because `pidfd_getfd` is refused here.
    PrivateBelow(u32),
    /// Copied whole, because `close_range` is refused or missing here.
    Copied,
    /// Copied whole, because the child inherits every descriptor, on request.
    CopiedOnRequest,
}

/// How a child got descriptors that were not copied with its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Passing {
    /// There were none.
    None,
    /// `pidfd_getfd(2)` on the parent.
    PidfdGetfd,
    /// Pipes opened again through `/proc`, because `pidfd_getfd` is refused here.
    Proc,
}

impl fmt::Display for Route {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |inherits_all| match inherits_all {
            true => "copied descriptor table (everything is to be inherited)",
            false => "copied descriptor table (this launcher knows no other)",
        };
        match *self {
            Self::Zygote { call: CloneCall::Clone3 } => {
                write!(out, "clone3 by a zygote; descriptors and plan sent to it")
            }
            Self::Zygote { call: CloneCall::Clone } => {
                write!(out, "clone by a zygote; descriptors and plan sent to it")
            }
            Self::Fork { inherits_all } => write!(out, "fork, in a copy of the memory; {}", whole(inherits_all)),
            Self::PosixSpawn { inherits_all } => write!(out, "posix_spawn of the C library; {}", whole(inherits_all)),
            Self::Clone { call, table } => {
                out.write_str(match call {
                    CloneCall::Clone3 => "clone3 in shared memory; ",
                    CloneCall::Clone => "clone in shared memory (clone3 is refused or missing here); ",
                })?;
                match table {
                    DescriptorTable::Private(passing) => {
                        out.write_str("private descriptor table with only what was asked for")?;
                        out.write_str(match passing {
                            Passing::None => "",
                            Passing::PidfdGetfd => "; descriptors passed by pidfd_getfd",
                            Passing::Proc => "; pipes passed through /proc (pidfd_getfd is refused here)",
                        })
                    }
                    DescriptorTable::PrivateBelow(n) => {
                        write!(out, "private descriptor table, copied below {n} (pidfd_getfd is refused here)")
                    }
                    DescriptorTable::Copied => {
                        out.write_str("copied descriptor table (close_range is refused or missing here)")
                    }
                    DescriptorTable::CopiedOnRequest => out.write_str(whole(true)),
                }
            }
        }
    }
}
