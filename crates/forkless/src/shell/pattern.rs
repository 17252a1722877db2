//! An environment that is the same for many lines but for the values of some variables.

use super::known::{ShellKind, ShellName};
use crate::request::command;
use crate::request::environment::Block;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};

/// The environment that a shell passes on for lines that set the same variables, and nothing but their values is different:
/// kept from one line to the next.
#[derive(Debug, Default)]
pub(super) struct Patterns(Mutex<Option<Arc<Pattern>>>);

/// The shell that passes the environment on, and the program if its path is a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Maker<'a> {
    pub(super) kind: ShellKind,
    pub(super) shell: ShellName,
    pub(super) program: &'a [u8],
}

/// An environment without the values of some variables.
#[derive(Debug)]
pub(super) struct Pattern {
    kind: ShellKind,
    shell: ShellName,
    program: Vec<u8>,
    /// The names of these variables, sorted.
    names: Vec<OsString>,
    text: Vec<u8>,
    starts: Vec<usize>,
    /// Where values are missing, in the order of the text: the offset, and which name's.
    gaps: Vec<(usize, usize)>,
}

impl Patterns {
    /// The pattern for a command that sets these variables, if the last one was for the same.
    pub(super) fn find(&self, maker: Maker<'_>, command: &command::EnvironmentChanges) -> Option<Arc<Pattern>> {
        // Not lock(): in a forked copy of the process it may be held forever, by a thread that the copy does not have.
        let kept = self.0.try_lock().ok()?.clone()?;
        let is_same = command.changes.keys().eq(&kept.names);
        let is_same = is_same && kept.maker() == maker;
        is_same.then_some(kept)
    }

    pub(super) fn keep(&self, pattern: &Arc<Pattern>) {
        if let Ok(mut kept) = self.0.try_lock() {
            *kept = Some(Arc::clone(pattern));
        }
    }
}

impl Pattern {
    fn maker(&self) -> Maker<'_> {
        Maker { kind: self.kind, shell: self.shell, program: &self.program }
    }

    pub(super) fn of(block: &Block, maker: Maker<'_>, command: &command::EnvironmentChanges) -> Self {
        let names: Vec<OsString> = command.changes.keys().cloned().collect();
        let Maker { kind, shell, program } = maker;
        let (text, program) = (Vec::new(), program.to_vec());
        let mut pattern = Self { kind, shell, program, names, text, starts: Vec::new(), gaps: Vec::new() };
        for (name, value) in block.variables() {
            pattern.starts.push(pattern.text.len());
            pattern.text.extend_from_slice(name);
            pattern.text.push(b'=');
            match pattern.names.binary_search_by(|known| known.as_os_str().cmp(OsStr::from_bytes(name))) {
                Ok(index) => pattern.gaps.push((pattern.text.len(), index)),
                Err(_) => pattern.text.extend_from_slice(value),
            }
            pattern.text.push(0);
        }
        pattern
    }

    /// The environment with the values that the command sets.
    pub(super) fn with(&self, command: &command::EnvironmentChanges) -> Block {
        let values: Vec<&[u8]> =
            command.changes.values().map(|value| value.as_deref().map_or(&[][..], OsStr::as_bytes)).collect();
        let room = self.text.len() + values.iter().map(|value| value.len()).sum::<usize>();
        let (mut text, mut starts) = (Vec::with_capacity(room), Vec::with_capacity(self.starts.len()));
        let mut from = 0;
        let gaps = self.gaps.iter().map(|&(to, index)| (to, values[index]));
        for (to, value) in gaps.chain([(self.text.len(), &[][..])]) {
            // The variables up to this gap are moved by the values before it.
            let shift = text.len() - from;
            while let Some(start) = self.starts.get(starts.len()).filter(|start| **start < to) {
                starts.push(start + shift);
            }
            text.extend_from_slice(&self.text[from..to]);
            text.extend_from_slice(value);
            from = to;
        }
        Block { text, starts }
    }
}
