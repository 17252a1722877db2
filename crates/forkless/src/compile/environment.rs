//! The environment that the child is to have.

use crate::command::Environment;
use std::borrow::Cow;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

mod unchanged;

/// `NAME=value` strings, each followed by NUL, and where each starts.
#[derive(Clone)]
pub(crate) struct Block {
    pub(crate) text: Vec<u8>,
    pub(crate) starts: Vec<usize>,
    /// Of a block that is kept for the life of the process: their addresses and a zero word, as `execve(2)` reads them.
    pub(crate) vector: Vec<usize>,
}

/// The caller's environment with the command's changes: a copy, since another thread may change the environment while
/// the child is still reading its own.
pub(crate) fn compile(environment: &Environment) -> Cow<'static, Block> {
    let unchanged = if environment.clear { None } else { unchanged::get() };
    if let Some(all) = unchanged.filter(|_| environment.changes.is_empty()) {
        return Cow::Borrowed(all);
    }
    let mut block = Block::new();
    match unchanged {
        _ if environment.clear => {}
        Some(all) => block.copy(all, environment),
        None if is_single_threaded() => block.copy_environ(environment),
        // Under the lock that guards `std::env::set_var`, at the cost of two allocations per variable.
        None => {
            for (key, value) in std::env::vars_os().filter(|(key, _)| !environment.changes.contains_key(key)) {
                block.push(&key, &value);
            }
        }
    }
    for (key, value) in &environment.changes {
        if let Some(value) = value {
            block.push(key, value);
        }
    }
    Cow::Owned(block)
}

impl Block {
    fn new() -> Self {
        Self { text: Vec::with_capacity(4096), starts: Vec::with_capacity(64), vector: Vec::new() }
    }

    /// For one that is kept for the life of the process: a child may read it where it is.
    pub(crate) fn lasting(mut self) -> Self {
        let base = self.text.as_ptr() as usize;
        self.vector = self.starts.iter().map(|start| base + start).chain([0]).collect();
        self
    }

    /// A block of these variables, in this order.
    pub(crate) fn of<'a>(variables: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut block = Self::new();
        for (key, value) in variables {
            block.push(OsStr::from_bytes(key), OsStr::from_bytes(value));
        }
        block
    }

    /// A block of these entries, whatever they are: often what the kernel gave to this process, which need not be copied.
    pub(crate) fn as_given<'a>(entries: impl Iterator<Item = &'a CStr> + Clone) -> Cow<'static, Self> {
        match unchanged::given().filter(|all| all.is(entries.clone())) {
            Some(all) => Cow::Borrowed(all),
            None => Cow::Owned(Self::copy_of(entries)),
        }
    }

    fn copy_of<'a>(entries: impl Iterator<Item = &'a CStr>) -> Self {
        let mut block = Self::new();
        for entry in entries {
            block.starts.push(block.text.len());
            block.text.extend_from_slice(entry.to_bytes_with_nul());
        }
        block
    }

    /// Does it have these entries, in this order, and no others?
    fn is<'a>(&self, mut entries: impl Iterator<Item = &'a CStr>) -> bool {
        let same = |&start: &usize| {
            entries.next().is_some_and(|entry| self.text[start..].starts_with(entry.to_bytes_with_nul()))
        };
        self.starts.iter().all(same) && entries.next().is_none()
    }

    /// Names and values, in their order.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let ends = self.starts.iter().skip(1).copied().chain([self.text.len()]);
        self.starts.iter().zip(ends).filter_map(|(&start, end)| {
            let text = &self.text[start..end - 1];
            // A leading "=" belongs to the name, as in `std::env`.
            let equals = 1 + text.iter().skip(1).position(|&byte| byte == b'=')?;
            Some((&text[..equals], &text[equals + 1..]))
        })
    }

    fn push(&mut self, key: &OsStr, value: &OsStr) {
        self.starts.push(self.text.len());
        self.text.extend_from_slice(key.as_bytes());
        self.text.push(b'=');
        self.text.extend_from_slice(value.as_bytes());
        self.text.push(0);
    }

    /// Copies another block, without what the command changes.
    fn copy(&mut self, all: &Self, environment: &Environment) {
        for (key, value) in all.variables() {
            let (key, value) = (OsStr::from_bytes(key), OsStr::from_bytes(value));
            if !environment.changes.contains_key(key) {
                self.push(key, value);
            }
        }
    }

    /// Copies libc's own list, without what the command changes. Entries that are not `NAME=value` are left out, as
    /// `std::env` leaves them out.
    fn copy_environ(&mut self, environment: &Environment) {
        unsafe extern "C" {
            static environ: *const *const c_char;
        }
        // SAFETY: no other thread is there to change the list (the caller's check); it ends in a null pointer, and the
        // strings in NUL.
        unsafe {
            let mut entry = environ;
            while !entry.is_null() && !(*entry).is_null() {
                let text = CStr::from_ptr(*entry).to_bytes_with_nul();
                entry = entry.add(1);
                // A leading "=" belongs to the name, as in `std::env`.
                let Some(end) = text.iter().skip(1).position(|&byte| byte == b'=') else { continue };
                if environment.changes.is_empty()
                    || !environment.changes.contains_key(OsStr::from_bytes(&text[..end + 1]))
                {
                    self.starts.push(self.text.len());
                    self.text.extend_from_slice(text);
                }
            }
        }
    }
}

/// Is this certainly the only thread? glibc 2.32 and later says so in a variable; other libcs do not.
///
/// Source: `__libc_single_threaded` in sys/single_threaded.h.
fn is_single_threaded() -> bool {
    unsafe extern "C" {
        fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    }
    /// Not looked for yet. No lock guards the look-up: a forked copy of the process might find it held for ever.
    const UNKNOWN: usize = 1;
    /// Its address; 0 where there is none.
    static ADDRESS: AtomicUsize = AtomicUsize::new(UNKNOWN);
    let mut address = ADDRESS.load(Ordering::Relaxed);
    if address == UNKNOWN {
        // SAFETY: RTLD_DEFAULT is a null handle, and the name ends in NUL.
        address = unsafe { dlsym(null_mut(), c"__libc_single_threaded".as_ptr()) as usize };
        ADDRESS.store(address, Ordering::Relaxed);
    }
    // SAFETY: glibc declares the variable as a char, which lives as long as the process.
    address != 0 && unsafe { (address as *const u8).read_volatile() } != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All ways to read the environment give the same, whatever is in it. (No test here changes it.)
    #[test]
    fn all_ways_to_read_it_agree() {
        let environment = Environment::default();
        let empty = || Block::new();
        let (mut direct, mut copied, mut locked) = (empty(), empty(), empty());
        let seen = unchanged::get().expect("the kernel's");
        direct.copy_environ(&environment);
        copied.copy(seen, &environment);
        std::env::vars_os().for_each(|(key, value)| locked.push(&key, &value));
        assert!(!locked.starts.is_empty());
        let strings =
            || locked.starts.iter().map(|&start| CStr::from_bytes_until_nul(&locked.text[start..]).expect("NUL"));
        assert!(matches!(Block::as_given(strings()), Cow::Borrowed(_)));
        assert!(matches!(Block::as_given(strings().skip(1)), Cow::Owned(_)));
        assert!(matches!(Block::as_given(strings().take(locked.starts.len() - 1)), Cow::Owned(_)));
        assert!(matches!(Block::as_given(strings().chain([c"MORE=1"])), Cow::Owned(_)));
        assert!(matches!(Block::as_given(strings().take(1).map(|_| c"")), Cow::Owned(_)));
        for block in [&direct, &copied, seen, &*compile(&environment)] {
            assert_eq!(block.text, locked.text);
            assert_eq!(block.starts, locked.starts);
        }
    }
}
