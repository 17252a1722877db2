//! How a child can be made, and how one was.

use std::fmt;

/// The way a child was launched, and why that one: from [`Child::route`](crate::Child::route).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The launcher.
    pub launcher: Launcher,
    /// The system call.
    pub call: Call,
    /// How the child's descriptor table came to be.
    pub table: DescriptorTable,
    /// How descriptors above the copied ones were passed.
    pub passing: Passing,
}

/// A way to make a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// A child that shares the caller's memory until exec: `clone3(2)`.
    Clone,
    /// A child with a copy of the caller's memory: `fork(3)` of the C library, whose cost grows with that memory.
    Fork,
    /// `posix_spawn(3)` of the C library.
    PosixSpawn,
    /// A child that a [`Zygote`](crate::zygote::Zygote) cloned, which never shares the caller's memory.
    Zygote,
}

/// The system call that made the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// `clone3(2)` with `CLONE_CLEAR_SIGHAND`.
    Clone3,
    /// `clone(2)`, because `clone3` is refused or missing here.
    Clone,
    /// Whatever the C library's `fork(3)` uses.
    Fork,
    /// Whatever the C library's `posix_spawn(3)` uses.
    PosixSpawn,
}

/// How the child's descriptor table came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DescriptorTable {
    /// Made by the child, with the caller's standard streams and nothing else copied.
    Private,
    /// Made by the child, with the caller's descriptors below a number copied and closed again where they were not
    /// wanted, because `pidfd_getfd` is refused here.
    PrivateBelow(u32),
    /// Copied whole, because `close_range` is refused or missing here.
    Copied,
    /// Copied whole, because everything is to be inherited.
    CopiedOnRequest,
    /// Copied whole, as the launcher does; what was not asked for is closed again in the child.
    CopiedByLauncher,
    /// A zygote's, with what it was sent for this child.
    Sent,
}

/// How the child got descriptors that were not copied with its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Passing {
    /// There were none.
    None,
    /// `pidfd_getfd(2)` on the parent.
    PidfdGetfd,
    /// Pipes opened anew through `/proc`, because `pidfd_getfd` is refused here.
    Proc,
    /// Sent to a zygote: `unix(7)` SCM_RIGHTS.
    ScmRights,
}

impl fmt::Display for Route {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.launcher == Launcher::Zygote {
            let call = if self.call == Call::Clone3 { "clone3" } else { "clone" };
            return write!(out, "{call} by a zygote; descriptors and plan sent to it");
        }
        let call = match self.call {
            Call::Clone3 => "clone3 in shared memory",
            Call::Clone => "clone in shared memory (clone3 is refused or missing here)",
            Call::Fork => "fork, in a copy of the memory",
            Call::PosixSpawn => "posix_spawn of the C library",
        };
        write!(out, "{call}; ")?;
        match self.table {
            DescriptorTable::Private => write!(out, "private descriptor table with only what was asked for"),
            DescriptorTable::PrivateBelow(n) => {
                write!(out, "private descriptor table, copied below {n} (pidfd_getfd is refused here)")
            }
            DescriptorTable::Copied => write!(out, "copied descriptor table (close_range is refused or missing here)"),
            DescriptorTable::CopiedOnRequest => write!(out, "copied descriptor table (everything is to be inherited)"),
            DescriptorTable::CopiedByLauncher => write!(out, "copied descriptor table (this launcher knows no other)"),
            DescriptorTable::Sent => write!(out, "descriptors sent"),
        }?;
        match self.passing {
            Passing::None | Passing::ScmRights => Ok(()),
            Passing::PidfdGetfd => write!(out, "; descriptors passed by pidfd_getfd"),
            Passing::Proc => write!(out, "; pipes passed through /proc (pidfd_getfd is refused here)"),
        }
    }
}
