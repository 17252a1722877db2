//! `FORKLESS_LOG`: reports each launch on standard error.

use crate::settings::{Settings, say};
use forkless::{Child, Route, ShellRoute, internal::DescriptorTable};
use std::ffi::OsStr;
use std::fmt::Write;
use std::time::Instant;

/// A launch to report, if the log is enabled.
pub(crate) struct Story(Option<Instant>);

impl Story {
    pub(crate) fn begin() -> Self {
        Self(Settings::get().log.then(Instant::now))
    }

    /// Reports a launch. `what`: the function; `shell`: how a command line was run.
    pub(crate) fn end(&self, what: &str, program: &OsStr, shell: Option<&ShellRoute>, child: &Child) {
        let Some(began) = self.0 else { return };
        let mut line = format!("{what}({program:?}): pid {}, after {} µs", child.id(), began.elapsed().as_micros());
        let _ = match shell {
            Some(ShellRoute::Direct) => write!(line, ", without a shell"),
            Some(route) => write!(line, ", {route}"),
            None => Ok(()),
        };
        let route = child.route();
        if let Route::Clone { table, .. } = route {
            let copied = if matches!(table, DescriptorTable::Private(_)) { "not copied" } else { "copied" };
            let _ = match open_descriptors() {
                Some(open) => write!(line, "; {open} descriptors {copied}"),
                None => write!(line, "; descriptors {copied}"),
            };
        } else {
            let _ = write!(line, ", {route}");
        }
        say(&line);
    }

    /// Reports a call that was left to libc.
    pub(crate) fn left(&self, what: &str, why: &str) {
        if self.0.is_some() {
            say(&format!("{what}: left to libc, because {why}"));
        }
    }
}

/// The number of open descriptors: the size of `/proc/self/fd`, since Linux 6.2. `None` on older kernels: libc calls malloc
/// to read a directory, and a signal handler may run this while the program is in malloc.
fn open_descriptors() -> Option<usize> {
    let directory = std::fs::metadata("/proc/self/fd").ok()?;
    Some(directory.len() as usize).filter(|count| *count > 0)
}
