//! Environments in the form of `execve(2)`: blocks of strings, and the one that the kernel gave this process.

use std::ffi::{CStr, OsStr};
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

pub(crate) mod unchanged;

/// `NAME=value` strings, each followed by NUL, and their offsets.
pub(crate) struct Block {
    pub(crate) text: Vec<u8>,
    pub(crate) starts: Vec<usize>,
}

/// A block at a fixed address, so that a child can read it there.
pub(crate) struct KeptEnvironment {
    block: Block,
    /// The addresses of its strings and a zero word, as `execve(2)` reads them.
    vector: Vec<usize>,
}

/// The owner of a block.
#[derive(Clone)]
pub(crate) enum Held {
    /// The process: the block exists until it ends.
    Process(&'static KeptEnvironment),
    /// This value.
    Shared(Arc<KeptEnvironment>),
}

impl KeptEnvironment {
    pub(crate) fn new(block: Block) -> Self {
        let base = block.text.as_ptr() as usize;
        let vector = block.starts.iter().map(|start| base + start).chain([0]).collect();
        Self { block, vector }
    }

    pub(crate) fn vector(&self) -> &[usize] {
        &self.vector
    }
}

impl Deref for KeptEnvironment {
    type Target = Block;

    fn deref(&self) -> &Block {
        &self.block
    }
}

impl Held {
    pub(crate) fn of(block: Block) -> Self {
        Self::Shared(Arc::new(KeptEnvironment::new(block)))
    }
}

impl Deref for Held {
    type Target = KeptEnvironment;

    fn deref(&self) -> &KeptEnvironment {
        match self {
            Self::Process(kept) => kept,
            Self::Shared(kept) => kept,
        }
    }
}

impl Block {
    /// An empty block with room for at least this many bytes.
    pub(crate) fn with_room(bytes: usize) -> Self {
        Self { text: Vec::with_capacity(bytes + 4096), starts: Vec::with_capacity(64) }
    }

    /// A block of these variables, in this order. `bytes`: the expected size.
    pub(crate) fn of<'a>(variables: impl Iterator<Item = (&'a [u8], &'a [u8])>, bytes: usize) -> Self {
        let mut block = Self::with_room(bytes);
        for (key, value) in variables {
            block.push(OsStr::from_bytes(key), OsStr::from_bytes(value));
        }
        block
    }

    /// A block of these entries, also if they are not `NAME=value`. It is not copied if they are what the kernel gave
    /// this process, which is common.
    pub(crate) fn as_given<'a>(entries: impl Iterator<Item = &'a CStr> + Clone) -> Held {
        match unchanged::environment_at_exec().filter(|all| all.is(entries.clone())) {
            Some(all) => Held::Process(all),
            None => Held::of(Self::copy_of(entries)),
        }
    }

    pub(super) fn copy_of<'a>(entries: impl Iterator<Item = &'a CStr> + Clone) -> Self {
        let mut block = Self::with_room(entries.clone().map(|entry| entry.count_bytes() + 1).sum());
        for entry in entries {
            block.starts.push(block.text.len());
            block.text.extend_from_slice(entry.to_bytes_with_nul());
        }
        block
    }

    /// Whether it has exactly these entries, in this order.
    fn is<'a>(&self, mut entries: impl Iterator<Item = &'a CStr>) -> bool {
        let same = |&start: &usize| {
            entries.next().is_some_and(|entry| self.text[start..].starts_with(entry.to_bytes_with_nul()))
        };
        self.starts.iter().all(same) && entries.next().is_none()
    }

    /// The names and values, in their order.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let ends = self.starts.iter().skip(1).copied().chain([self.text.len()]);
        self.starts.iter().zip(ends).filter_map(|(&start, end)| {
            let text = &self.text[start..end - 1];
            // A leading "=" belongs to the name, as in `std::env`.
            let equals = 1 + text.iter().skip(1).position(|&byte| byte == b'=')?;
            Some((&text[..equals], &text[equals + 1..]))
        })
    }

    pub(crate) fn push(&mut self, key: &OsStr, value: &OsStr) {
        self.starts.push(self.text.len());
        self.text.extend_from_slice(key.as_bytes());
        self.text.push(b'=');
        self.text.extend_from_slice(value.as_bytes());
        self.text.push(0);
    }
}
