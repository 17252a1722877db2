//! The environment of the child.

use crate::request::command::EnvironmentChanges;
use crate::request::environment::{Block, Held, unchanged};
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The caller's environment with the command's changes. It is a copy, because another thread may change the caller's
/// environment before the child has executed its program.
pub(crate) fn compile(environment: &EnvironmentChanges) -> Held {
    let unchanged = if environment.clear { None } else { unchanged::get() };
    if let Some(all) = unchanged.filter(|_| environment.changes.is_empty()) {
        return Held::Process(all);
    }
    let mut block = Block::with_room(unchanged.map_or(0, |all| all.text.len()));
    match unchanged {
        _ if environment.clear => {}
        Some(all) => block.copy(all, environment),
        None if is_single_threaded() => block.copy_environ(environment),
        // `std::env` takes the lock of `std::env::set_var`. It costs two allocations per variable.
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
    Held::of(block)
}

impl Block {
    /// Copies another block, except the variables that the command changes.
    fn copy(&mut self, all: &Self, environment: &EnvironmentChanges) {
        for (key, value) in all.variables() {
            let (key, value) = (OsStr::from_bytes(key), OsStr::from_bytes(value));
            if !environment.changes.contains_key(key) {
                self.push(key, value);
            }
        }
    }

    /// Copies libc's `environ`, except the variables that the command changes. Skips entries that are not
    /// `NAME=value`, as `std::env` does.
    fn copy_environ(&mut self, environment: &EnvironmentChanges) {
        unsafe extern "C" {
            static environ: *const *const c_char;
        }
        // SAFETY: no other thread exists that could change the list (the caller checks that).
        unsafe { self.copy_list(environ, environment) };
    }

    /// # Safety
    /// `list` is null, or a list of strings that ends in a null pointer and that no other code changes meanwhile.
    unsafe fn copy_list(&mut self, list: *const *const c_char, environment: &EnvironmentChanges) {
        // SAFETY: as this function requires.
        unsafe {
            let entry = |n: usize| if list.is_null() { list } else { list.add(n) };
            let entries = (0..).map_while(|n| entry(n).as_ref().filter(|entry| !entry.is_null()));
            let entries = entries.map(|&entry| CStr::from_ptr(entry).to_bytes_with_nul());
            // Without this the block would be reallocated, and its contents copied, several times.
            self.text.reserve(entries.clone().map(<[u8]>::len).sum());
            for text in entries {
                // A leading "=" belongs to the name, as in `std::env`.
                let end = text.iter().skip(1).position(|&byte| byte == b'=');
                let Some(end) = end else { continue };
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

/// Whether this is certainly the only thread. glibc 2.32 and later has a variable for it, other C libraries do not.
///
/// Source: `__libc_single_threaded` in sys/single_threaded.h.
fn is_single_threaded() -> bool {
    unsafe extern "C" {
        fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    }
    /// The look-up has not been done. It takes no lock: in a forked copy of the process a lock could stay locked for
    /// ever.
    const UNKNOWN: usize = 1;
    /// The address of the variable; 0: the C library has none.
    static ADDRESS: AtomicUsize = AtomicUsize::new(UNKNOWN);
    let mut address = ADDRESS.load(Ordering::Relaxed);
    if address == UNKNOWN {
        // SAFETY: RTLD_DEFAULT is a null handle, and the name ends in NUL.
        address = unsafe { dlsym(null_mut(), c"__libc_single_threaded".as_ptr()) as usize };
        ADDRESS.store(address, Ordering::Relaxed);
    }
    // SAFETY: glibc declares the variable as a char, and it exists as long as the process.
    address != 0 && unsafe { (address as *const u8).read_volatile() } != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All methods of reading the environment have the same result. (No test of this crate changes the environment.)
    #[test]
    fn all_ways_to_read_it_agree() {
        let environment = EnvironmentChanges::default();
        let empty = || Block::with_room(0);
        let (mut direct, mut copied, mut locked) = (empty(), empty(), empty());
        let seen = unchanged::get().expect("the kernel's");
        direct.copy_environ(&environment);
        copied.copy(seen, &environment);
        std::env::vars_os().for_each(|(key, value)| locked.push(&key, &value));
        assert!(!locked.starts.is_empty());
        let strings =
            || locked.starts.iter().map(|&start| CStr::from_bytes_until_nul(&locked.text[start..]).expect("NUL"));
        assert!(matches!(Block::as_given(strings()), Held::Process(_)));
        assert!(matches!(Block::as_given(strings().skip(1)), Held::Shared(_)));
        assert!(matches!(Block::as_given(strings().take(locked.starts.len() - 1)), Held::Shared(_)));
        assert!(matches!(Block::as_given(strings().chain([c"MORE=1"])), Held::Shared(_)));
        assert!(matches!(Block::as_given(strings().take(1).map(|_| c"")), Held::Shared(_)));
        for block in [&direct, &copied, &**seen, &*compile(&environment)] {
            assert_eq!(block.text, locked.text);
            assert_eq!(block.starts, locked.starts);
        }
    }

    /// Variables that the command removes or replaces are not copied, whichever method reads the others.
    #[test]
    fn all_ways_leave_out_what_is_changed() {
        let names: Vec<_> = std::env::vars_os().map(|(name, _)| name).take(2).collect();
        let [removed, replaced] = &names[..] else { panic!("an environment of two variables: {names:?}") };
        let mut environment = EnvironmentChanges::default();
        environment.changes.insert(removed.clone(), None);
        environment.changes.insert(replaced.clone(), Some("new".into()));
        let seen = unchanged::get().expect("the kernel's");
        let (mut direct, mut copied) = (Block::with_room(0), Block::with_room(0));
        direct.copy_environ(&environment);
        copied.copy(seen, &environment);
        let compiled = compile(&environment);
        let values = |block: &Block, name: &OsStr| {
            let found =
                block.variables().filter(|(known, _)| *known == name.as_bytes()).map(|(_, value)| value.to_vec());
            found.collect::<Vec<_>>()
        };
        for block in [&direct, &copied] {
            assert_eq!(block.starts.len() + 2, seen.starts.len());
            assert!(values(block, removed).is_empty() && values(block, replaced).is_empty());
        }
        assert!(values(&compiled, removed).is_empty());
        assert_eq!(values(&compiled, replaced), [b"new"]);
    }

    /// An entry that is not `NAME=value` is skipped, as by `std::env`.
    #[test]
    fn entries_without_an_equals_sign_are_left_out() {
        let list = [c"A=1".as_ptr(), c"nothing".as_ptr(), c"=B=2".as_ptr(), null_mut()];
        let mut block = Block::with_room(0);
        // SAFETY: a local list, which no other code changes.
        unsafe { block.copy_list(list.as_ptr(), &EnvironmentChanges::default()) };
        assert_eq!(block.text, b"A=1\0=B=2\0");
        assert_eq!(block.starts, [0, 4]);
    }
}
