//! The Python package: `forkless._forkless`, on which the modules in `python/forkless` stand.
//!
//! What a call is about is gathered from Python's words with the interpreter held, the plan is made so too (it copies the environment, which
//! Python changes under the same lock), and the launch and the waiting are done without it. A wait that a signal interrupts comes back, so
//! that handlers written in Python run at once.

mod convert;

mod request;

mod settings;

mod mounts;

mod error;

mod spawn;

mod run;

mod child;

mod prepared;

use pyo3::prelude::*;

/// The native part of the package; its names are the package's own business.
// The environment is copied under the interpreter's lock, which keeps `os.putenv` from changing it meanwhile. A free-threaded interpreter
// is refused by the package, before it comes to this module.
#[pymodule(gil_used = true)]
mod _forkless {
    #[pymodule_export]
    use crate::child::Child;
    #[pymodule_export]
    use crate::error::tell_of;
    #[pymodule_export]
    use crate::prepared::{Prepared, prepare, start};
    #[pymodule_export]
    use crate::run::run;
    #[pymodule_export]
    use crate::spawn::{RawUsage, reap_orphans, spawn, wait4};
}
