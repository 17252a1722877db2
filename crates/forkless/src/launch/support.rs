//! The result of the probe, for callers that want to see it.

use super::probe::{Feature, Features, ProbeError, is_refusal};
use crate::route::Launcher;
use std::io;

/// The kernel features that launches use, and whether the kernel, and any seccomp filter of this process, allows
/// them.
///
/// A real child tests them, once per process. A feature that is refused to a later launch counts as missing for a
/// while, and is then tried again.
///
/// ```
/// let here = forkless::Support::probe()?;
/// if !here.close_range {
///     eprintln!("each child gets a copy of the whole file-descriptor table");
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Support {
    /// A child can share the caller's memory: `CLONE_VM` of `clone(2)`. Without it, no launch by
    /// [`Launcher::Clone`](crate::Launcher::Clone) works, and no other feature is available.
    pub shared_memory: bool,
    /// `clone3(2)` with `CLONE_CLEAR_SIGHAND`. Without it, `clone(2)` is used, with every signal blocked during the
    /// clone.
    pub clone3: bool,
    /// `close_range(2)` with `CLOSE_RANGE_UNSHARE`. Without it, the file-descriptor table is copied whole.
    pub close_range: bool,
    /// `pidfd_open(2)` and `pidfd_getfd(2)` on the caller. Without them, pipes are passed through `/proc`, and other
    /// descriptors are copied. `None` if it was not tried, because a copied table has the descriptors already.
    pub pidfd_getfd: Option<bool>,
    /// `pidfd_open(2)` with `PIDFD_THREAD`. Without it, launches from threads other than the first do not use
    /// `pidfd_getfd`. `None` as there.
    pub pidfd_thread: Option<bool>,
}

impl Launcher {
    /// The launcher for this machine: [`Clone`](Self::Clone), the default of a [`Command`](crate::Command), where a child
    /// can share the caller's memory; else [`PosixSpawn`](Self::PosixSpawn), for commands without settings that it lacks.
    ///
    /// ```
    /// let launcher = forkless::Launcher::recommended()?;
    /// assert!(forkless::Command::new("true").launcher(launcher).status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Support::probe`].
    pub fn recommended() -> io::Result<Self> {
        Ok(if Support::probe()?.shared_memory { Self::Clone } else { Self::PosixSpawn })
    }
}

impl Support {
    /// All features.
    pub const ALL: Self = Self {
        shared_memory: true,
        clone3: true,
        close_range: true,
        pidfd_getfd: Some(true),
        pidfd_thread: Some(true),
    };

    /// No child can share the caller's memory.
    pub const NONE: Self =
        Self { shared_memory: false, clone3: false, close_range: false, pidfd_getfd: None, pidfd_thread: None };

    /// Tests the features with a child that only probes, unless this process has launched a program before.
    ///
    /// ```
    /// let here = forkless::Support::probe()?;
    /// println!("a child can share memory: {}", here.shared_memory);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no memory for the child's stack, or no process can be created now (`EAGAIN`, `ENOMEM`). A refused
    /// feature is a result, not an error.
    pub fn probe() -> io::Result<Self> {
        match Features::get() {
            Ok(found) => Ok(Self::of(found)),
            Err(ProbeError::NotShared) => Ok(Self::NONE),
            // User-mode emulation refuses `CLONE_VM` with EINVAL; a seccomp filter may refuse both calls.
            Err(ProbeError::Clone(error)) if is_refusal(error) => Ok(Self::NONE),
            Err(ProbeError::Clone(error) | ProbeError::Stack(error)) => Err(io::Error::from_raw_os_error(error)),
        }
    }

    fn of(found: Features) -> Self {
        let close_range = found.has(Feature::CloseRange);
        let tried = |feature| Some(found.has(feature)).filter(|&has| has || close_range);
        Self {
            shared_memory: true,
            clone3: found.has(Feature::Clone3),
            close_range,
            pidfd_getfd: tried(Feature::GetFd),
            pidfd_thread: tried(Feature::ThreadFd),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{CloneCall, DescriptorTable, Route};

    /// Whatever the probe finds on this machine, launches use the same features.
    #[test]
    fn what_is_told_is_what_launches_use() {
        let support = Support::probe().unwrap();
        let mut child = crate::Command::new("true").spawn().unwrap();
        let Route::Clone { call, table } = child.route() else { panic!("{}", child.route()) };
        assert_eq!(support.clone3, call == CloneCall::Clone3);
        assert_eq!(support.close_range, matches!(table, DescriptorTable::Private(_)));
        assert!(support.shared_memory && child.wait().unwrap().success());
    }
}
