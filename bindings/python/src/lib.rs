//! The native module `forkless._forkless`, on which the modules in `python/forkless` are based.
//!
//! Arguments are converted and the plan is made with the GIL held, because the plan copies the environment, which
//! Python code changes under the GIL. The launch and the waiting release it. A wait that a signal interrupts returns,
//! so that handlers written in Python run at once.

mod convert;
mod request;
mod settings;
mod mounts;
mod error;
mod spawn;
mod run;
mod cgroup;
mod child;
mod prepared;
mod pty;
mod sandbox;
mod warm;

use pyo3::prelude::*;

/// The native module of the package. Its names are private.
// The GIL keeps `os.putenv` from changing the environment while it is copied. The package refuses to import in a
// free-threaded interpreter before it loads this module.
#[pymodule(gil_used = true)]
mod _forkless {
    #[pymodule_export]
    use crate::cgroup::Cgroup;
    #[pymodule_export]
    use crate::child::Child;
    #[pymodule_export]
    use crate::error::tell_of;
    #[pymodule_export]
    use crate::prepared::{Prepared, prepare, start};
    #[pymodule_export]
    use crate::pty::Pty;
    #[pymodule_export]
    use crate::run::run;
    #[pymodule_export]
    use crate::sandbox::Sandbox;
    #[pymodule_export]
    use crate::spawn::{RawUsage, memfd_create, pidfd_open, reap_orphans, spawn, wait4};
    #[pymodule_export]
    use crate::warm::{Ending, Warm};
}
