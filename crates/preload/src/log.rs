//! `FORKLESS_LOG`: what was run how, on standard error.

use crate::settings::Settings;
use forkless::{Child, DescriptorTable, Launcher, ShellRoute};
use std::ffi::OsStr;
use std::fmt::Write;
use std::time::Instant;

/// A launch that is told about, if it is to be.
pub(crate) struct Story(Option<Instant>);

impl Story {
    pub(crate) fn begin() -> Self {
        Self(Settings::get().log.then(Instant::now))
    }

    /// What came of it. `what`: the function; `shell`: how a line was run.
    pub(crate) fn end(&self, what: &str, program: &OsStr, shell: Option<&ShellRoute>, child: &Child) {
        let Some(began) = self.0 else { return };
        let mut line = format!("{what}({program:?}): pid {}, after {} µs", child.id(), began.elapsed().as_micros());
        let _ = match shell {
            Some(ShellRoute::Direct) => write!(line, ", without a shell"),
            Some(route) => write!(line, ", {route}"),
            None => Ok(()),
        };
        let route = child.route();
        if route.launcher != Launcher::Clone {
            let _ = write!(line, ", {route}");
        } else if let Some((open, memory)) = size() {
            let _ = write!(line, "; not copied: the page tables of {memory} MiB");
            let _ = match route.table {
                DescriptorTable::Private => write!(line, ", {open} descriptors"),
                _ => write!(line, " ({open} descriptors were)"),
            };
        }
        say(&line);
    }

    /// It was left to libc.
    pub(crate) fn left(&self, what: &str, why: &str) {
        if self.0.is_some() {
            say(&format!("{what}: left to libc, because {why}"));
        }
    }
}

/// Open descriptors, and memory in MiB.
fn size() -> Option<(usize, u64)> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: a name of a constant.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    Some((open, pages * page / (1 << 20)))
}

/// One line, in one piece; nowhere if standard error is closed.
pub(crate) fn say(line: &str) {
    let line = format!("forkless: {line}\n");
    // SAFETY: a text, and a number that may be no descriptor.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}
