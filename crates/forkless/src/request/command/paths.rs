//! A list of paths in one block of memory.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The files that may be a program, in the order in which they are tried. PATH may have many entries, and a block of
/// memory for each would cost more than the rest of a look-up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Paths {
    text: Vec<u8>,
    /// Where each path ends in the text.
    ends: Vec<usize>,
}

impl Paths {
    /// Reserves memory for this many paths, of this many bytes together.
    pub(crate) fn with_capacity(count: usize, bytes: usize) -> Self {
        Self { text: Vec::with_capacity(bytes), ends: Vec::with_capacity(count) }
    }

    /// A single path.
    pub(crate) fn one(path: &[u8]) -> Self {
        Self { text: path.to_vec(), ends: vec![path.len()] }
    }

    /// Makes room for this many more.
    pub(crate) fn reserve(&mut self, count: usize, bytes: usize) {
        self.text.reserve(bytes);
        self.ends.reserve(count);
    }

    /// Adds a path that consists of these parts.
    pub(crate) fn push(&mut self, parts: &[&[u8]]) {
        parts.iter().for_each(|part| self.text.extend_from_slice(part));
        self.ends.push(self.text.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The path of this number, which exists.
    pub(crate) fn get(&self, n: usize) -> &OsStr {
        OsStr::from_bytes(&self.text[self.start(n)..self.ends[n]])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &OsStr> {
        (0..self.len()).map(|n| self.get(n))
    }

    fn start(&self, n: usize) -> usize {
        n.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// Moves the path of this number to the front.
    pub(crate) fn move_to_front(&mut self, n: usize) {
        let (start, end) = (self.start(n), self.ends[n]);
        let length = end - start;
        self.text[..end].rotate_right(length);
        self.ends[..n].iter_mut().for_each(|end| *end += length);
        self.ends[..=n].rotate_right(1);
        self.ends[0] = length;
    }
}

impl From<Vec<OsString>> for Paths {
    fn from(paths: Vec<OsString>) -> Self {
        let mut found = Self::with_capacity(paths.len(), paths.iter().map(|path| path.len()).sum());
        paths.iter().for_each(|path| found.push(&[path.as_bytes()]));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_path_moves_to_the_front_and_the_others_keep_their_order() {
        for n in 0..4 {
            let own: Vec<OsString> = ["/a/x", "", "/ccc/x", "x"].map(OsString::from).into();
            let mut paths = Paths::from(own.clone());
            paths.move_to_front(n);
            let mut moved = own;
            moved[..=n].rotate_right(1);
            assert_eq!(paths.iter().collect::<Vec<_>>(), moved);
        }
    }
}
