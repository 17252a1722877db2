//! The functions that a zygote's children can run before they execute their program.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

type Function = Box<dyn Fn(&[u8]) -> io::Result<()>>;

/// The functions that children of a [`Zygote`](super::Zygote) can run right before exec, by name.
///
/// They are the helper's functions, not the caller's: what they use must exist when
/// [`serve_if_asked`](super::serve_if_asked) is called, which is the first thing that a program does.
#[derive(Default)]
pub struct Registry {
    functions: BTreeMap<String, Function>,
}

impl Registry {
    /// A registry without functions.
    ///
    /// ```no_run
    /// use forkless::zygote::{Registry, serve_if_asked};
    /// serve_if_asked(&Registry::new());
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a function. It replaces an earlier one of the same name.
    ///
    /// ```
    /// let mut functions = forkless::zygote::Registry::new();
    /// functions.add("greet", |name| std::fs::write("/tmp/greeting", name));
    /// ```
    ///
    /// # In the child
    /// The function gets the bytes given to [`Zygote::launch_with`](super::Zygote::launch_with), and may do anything:
    /// the child is a copy of the helper, which has one thread, and has its own memory. It is called after all other
    /// steps: with the child's user, root, working directory, limits and descriptors, its signal mask and its seccomp
    /// filter. If it returns an error, panics or ends the process, the launch fails. Text that it leaves in a buffer
    /// (of `print!`, for example) is lost at exec.
    pub fn add(&mut self, name: impl Into<String>, function: impl Fn(&[u8]) -> io::Result<()> + 'static) -> &mut Self {
        self.functions.insert(name.into(), Box::new(function));
        self
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&Function> {
        self.functions.get(std::str::from_utf8(name).ok()?)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.functions.keys()).finish()
    }
}

/// Encodes names and bytes as one list, for a parcel.
pub(crate) fn write_calls(calls: &[(&str, &[u8])]) -> Vec<u8> {
    let mut list = Vec::new();
    for (name, bytes) in calls {
        for part in [name.as_bytes(), bytes] {
            list.extend_from_slice(&(part.len() as u64).to_ne_bytes());
            list.extend_from_slice(part);
        }
    }
    list
}

/// Decodes such a list into names and bytes.
pub(crate) fn read_calls(list: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (length, after) = rest.split_first_chunk()?;
        let (part, after) = after.split_at_checked(u64::from_ne_bytes(*length) as usize)?;
        *rest = after;
        Some(part)
    }
    let mut rest = list;
    std::iter::from_fn(move || Some((part(&mut rest)?, part(&mut rest)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_as_they_were_written() {
        let calls: [(&str, &[u8]); 3] = [("one", b""), ("", b"\0\xff"), ("a name", &[7; 300])];
        let list = write_calls(&calls);
        let read: Vec<_> = read_calls(&list).collect();
        assert_eq!(read, calls.map(|(name, bytes)| (name.as_bytes(), bytes)));
        assert_eq!(read_calls(&list[..20]).count(), 1);
    }
}
