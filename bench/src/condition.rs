//! A condition: the parent to launch from, and the settings of the launch.

use serde::Serialize;

use super::{
    name::Name,
    setting::Setting,
    units::{bytes, count, mebibytes},
};

/// Sizes of captured output: a line, and far more than a pipe holds.
pub(crate) const OUTPUTS: [u64; 2] = [100, 64 << 20];

/// Tasks that launch concurrently, and open files of the server that they simulate.
pub(crate) const TASKS: usize = 64;
pub(crate) const SOCKETS: u64 = 10_000;

/// A parent to launch from, and the settings of the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Condition {
    /// Touched private anonymous memory added to the process.
    pub(crate) parent_mib: u64,
    /// Mappings added to the process.
    pub(crate) mappings: u64,
    /// Open files of the process.
    pub(crate) fds: u64,
    /// Threads that launch at once.
    pub(crate) threads: usize,
    /// Pipes between parent and child: 0, or 3 for stdin, stdout and stderr.
    pub(crate) pipes: u8,
    /// Settings of the child.
    pub(crate) setting: Setting,
    /// Bytes that the child writes and the parent captures; 0: nothing is captured.
    pub(crate) output: u64,
    /// Tasks of one tokio runtime that launch at once; 0: threads launch.
    pub(crate) tasks: usize,
    /// Whether the open files that were added are close-on-exec.
    pub(crate) close_on_exec: bool,
    /// Threads that touch memory while others launch.
    pub(crate) faulting: usize,
    /// Bytes added to the environment of caller and child.
    pub(crate) environment: u64,
    /// Directories of `PATH` before the one with the program; 0: it is launched by its path.
    pub(crate) path_misses: u64,
    /// The command line of a program of the part with warm programs; empty: the program of all other conditions.
    pub(crate) program: Name,
}

impl Condition {
    /// The process without any additions, and a launch without settings.
    pub(crate) const SMALL: Self = Self {
        parent_mib: 0,
        mappings: 0,
        fds: 3,
        threads: 1,
        pipes: 0,
        setting: Setting::None,
        output: 0,
        tasks: 0,
        close_on_exec: true,
        faulting: 0,
        environment: 0,
        path_misses: 0,
        program: "",
    };

    /// Whether each method must run in a separate process that is started under this condition.
    pub(crate) fn is_apart(&self) -> bool {
        self.environment > 0 || self.path_misses > 0
    }

    /// Whether the parent has more open files or mappings than the small one.
    pub(crate) fn has_files_or_mappings(&self) -> bool {
        self.fds > Self::SMALL.fds || self.mappings > 0
    }

    /// Whether the parent has something that not every engine can have.
    pub(crate) fn is_demanding(&self) -> bool {
        self.parent_mib > 0 || self.has_files_or_mappings()
    }

    /// Whether system calls are counted: only if their number can differ from the small parent's, and the launch is short.
    pub(crate) fn is_countable(&self) -> bool {
        let Self { pipes, output, path_misses, .. } = *self;
        *self == Self { pipes, output, path_misses, ..Self::SMALL } && output <= OUTPUTS[0]
    }

    /// Whether the vfork baseline does all that the other methods do.
    pub(crate) fn has_floor(&self) -> bool {
        self.setting == Setting::None && self.tasks == 0
    }

    /// A description that names only the differences from [`Condition::SMALL`].
    pub(crate) fn describe(&self) -> String {
        let mut words = Vec::new();
        if !self.program.is_empty() {
            words.push(format!("program {:?}", self.program));
        }
        if self.setting != Setting::None {
            words.push(self.setting.describe().to_owned());
        }
        if self.output > 0 {
            words.push(format!("output of {}", bytes(self.output)));
        }
        if self.parent_mib > 0 {
            words.push(format!("{} of memory", mebibytes(self.parent_mib)));
        }
        if self.mappings > 0 {
            words.push(count(self.mappings, "mapping", "mappings"));
        }
        if self.fds != Self::SMALL.fds || self.pipes > 0 {
            let inherited = if self.close_on_exec { "" } else { ", not close-on-exec" };
            words.push(count(self.fds, "open file", "open files") + inherited);
        }
        if self.pipes > 0 {
            words.push("three pipes to the child".to_owned());
        }
        if self.threads > 1 {
            words.push(count(self.threads as u64, "thread", "threads") + " at once");
        }
        if self.tasks > 0 {
            words.push(count(self.tasks as u64, "task", "tasks") + " at once");
        }
        if self.faulting > 0 {
            words.push(count(self.faulting as u64, "other thread", "other threads") + " causing page faults");
        }
        if self.environment > 0 {
            words.push(format!("{} more of environment", bytes(self.environment)));
        }
        if self.path_misses > 0 {
            let directories = count(self.path_misses, "other directory", "other directories");
            words.push(format!("found in PATH after {directories}"));
        }
        if words.is_empty() { "small parent".to_owned() } else { words.join(", ") }
    }
}

/// The description of a condition as a title.
pub(crate) fn headline(condition: &Condition) -> String {
    let words = condition.describe();
    let mut letters = words.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_names_only_differences() {
        assert_eq!(Condition::SMALL.describe(), "small parent");
        let condition = Condition { parent_mib: 2048, fds: 15_000, pipes: 3, ..Condition::SMALL };
        assert_eq!(condition.describe(), "2 GiB of memory, 15,000 open files, three pipes to the child");
        let one = Condition { faulting: 1, path_misses: 1, ..Condition::SMALL };
        assert_eq!(one.describe(), "1 other thread causing page faults, found in PATH after 1 other directory");
    }
}
