//! The methods to create a child, and the method by which a given child was created.

use std::fmt;

/// A method to create a child, for [`Command::launcher`](crate::Command::launcher).
///
/// A [`Zygote`](crate::zygote::Zygote) is not among them: commands are passed to it to launch them.
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

/// How a child was launched, from [`Child::route`](crate::Child::route). Its text also states the reason.
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
    #[non_exhaustive]
    Clone {
        #[doc(hidden)]
        call: CloneCall,
        #[doc(hidden)]
        table: DescriptorTable,
    },
    /// By [`Launcher::Fork`]. The file-descriptor table is a copy.
    Fork {
        /// The program inherits every descriptor, as requested. Otherwise the child closed those that it must not
        /// inherit.
        inherits_all: bool,
    },
    /// By [`Launcher::PosixSpawn`]. The file-descriptor table is a copy.
    PosixSpawn {
        /// As for [`Fork`](Self::Fork).
        inherits_all: bool,
    },
    /// By a [`Zygote`](crate::zygote::Zygote), which received the plan and the descriptors over a socket.
    #[non_exhaustive]
    Zygote {
        #[doc(hidden)]
        call: CloneCall,
    },
    /// By the template of a warm program, which received the plan and the descriptors over a socket: there was no exec.
    Warm,
}

/// The system call that cloned a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloneCall {
    /// `clone3(2)` with `CLONE_CLEAR_SIGHAND`.
    Clone3,
    /// `clone(2)`, because `clone3` is refused or missing here.
    Clone,
}

/// How the file-descriptor table of a cloned child was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescriptorTable {
    /// Made by the child, with a copy of the caller's standard streams. Other descriptors were passed by this method.
    Private(Passing),
    /// Made by the child, with a copy of the caller's descriptors below this number, because `pidfd_getfd` is refused
    /// here. The child closed those that the program must not inherit.
    PrivateBelow(u32),
    /// Copied whole, because `close_range` is refused or missing here.
    Copied,
    /// Copied whole, because the caller launches only once, so probing what the kernel allows would not pay:
    /// [`Command::launched_once`](crate::Command::launched_once).
    CopiedUnprobed,
    /// Copied whole, because the program inherits every descriptor, as requested.
    CopiedOnRequest,
}

/// How descriptors were passed that were not copied with the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passing {
    /// None had to be passed.
    None,
    /// `pidfd_getfd(2)` on the caller.
    PidfdGetfd,
    /// Pipes opened again through `/proc`, because `pidfd_getfd` is refused here.
    Proc,
}

impl fmt::Display for Route {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |inherits_all| match inherits_all {
            true => "copied file-descriptor table (every descriptor is inherited, as requested)",
            false => "copied file-descriptor table (this launcher always copies it)",
        };
        match *self {
            Self::Zygote { call: CloneCall::Clone3 } => {
                write!(out, "clone3 by a zygote; plan and descriptors sent over a socket")
            }
            Self::Zygote { call: CloneCall::Clone } => {
                write!(out, "clone by a zygote; plan and descriptors sent over a socket")
            }
            Self::Warm => {
                write!(out, "clone3 by the template of a warm program; plan and descriptors sent over a socket")
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
                        out.write_str("private file-descriptor table with only the requested descriptors")?;
                        out.write_str(match passing {
                            Passing::None => "",
                            Passing::PidfdGetfd => "; descriptors passed by pidfd_getfd",
                            Passing::Proc => "; pipes opened again through /proc (pidfd_getfd is refused here)",
                        })
                    }
                    DescriptorTable::PrivateBelow(n) => {
                        write!(out, "private file-descriptor table, copied below {n} (pidfd_getfd is refused here)")
                    }
                    DescriptorTable::Copied => {
                        out.write_str("copied file-descriptor table (close_range is refused or missing here)")
                    }
                    DescriptorTable::CopiedUnprobed => {
                        out.write_str("copied file-descriptor table (for a single launch the kernel is not probed)")
                    }
                    DescriptorTable::CopiedOnRequest => out.write_str(whole(true)),
                }
            }
        }
    }
}
