//! The functions that a zygote's children may run before they become their program.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

type Function = Box<dyn Fn(&[u8]) -> io::Result<()>>;

/// The functions that children of a [`Zygote`](super::Zygote) may run right before exec, by name.
///
/// They are those of the helper, not of the caller: what they use must have been there when
/// [`serve_if_asked`](super::serve_if_asked) was called, which is the first thing that a program does.
#[derive(Default)]
pub struct Registry {
    functions: BTreeMap<String, Function>,
}

impl Registry {
    /// One without functions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a function; one of the same name is replaced.
    ///
    /// # In the child
    /// It gets the bytes of [`Zygote::launch_with`](super::Zygote::launch_with) and may do anything: the child is a copy of the
    /// helper, which has one thread, with memory of its own. It is called when all else is done: with the child's user, root,
    /// directory, limits and descriptors, its signal mask and its system call filter. An error, a panic or an end of the process
    /// in it is an error of the launch. What it leaves in a buffer (of `print!`, say) is gone with exec.
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

/// Puts names and bytes into one list, as it lies in a parcel.
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

/// The names and bytes of such a list.
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
