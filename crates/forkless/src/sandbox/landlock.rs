//! Rulesets of Landlock: landlock(7), and the kernel's userspace-api/landlock.rst.

use super::REFUSES_SIGNALS;
use crate::request::command::{IsolationArg, IsolationCall, IsolationVariable};
use crate::step::Step;
use forkless_core::sys::{self, Result, uapi};
use rustix::fs::{FileType, fstat};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// LANDLOCK_ACCESS_FS_EXECUTE, READ_FILE and READ_DIR.
pub(super) const READ: u64 = 1 | 1 << 2 | 1 << 3;

/// LANDLOCK_ACCESS_FS_MAKE_CHAR and MAKE_BLOCK: no program in a sandbox makes devices.
const MAKE_DEVICES: u64 = 1 << 6 | 1 << 11;

/// The rights that a file has, and no directory: EXECUTE, WRITE_FILE, READ_FILE, TRUNCATE and IOCTL_DEV.
const OF_FILES: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15;

/// LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET and LANDLOCK_SCOPE_SIGNAL, since version 6.
const SCOPES: u64 = 1 | 1 << 1;

/// The version of Landlock that the kernel has.
///
/// # Errors
/// ENOSYS: the kernel has none. EOPNOTSUPP: it is switched off.
pub(super) fn version() -> Result<u32> {
    const LANDLOCK_CREATE_RULESET_VERSION: usize = 1;
    // SAFETY: without attributes the call reads no memory.
    let version =
        unsafe { sys::syscall(uapi::__NR_landlock_create_ruleset, [0, 0, LANDLOCK_CREATE_RULESET_VERSION, 0, 0, 0]) };
    version.map(|version| version as u32)
}

/// All rights to files that this version can refuse.
fn rights(version: u32) -> u64 {
    let last = match version {
        0 | 1 => 12,
        2 => 13,
        3 | 4 => 14,
        _ => 15,
    };
    (1 << (last + 1)) - 1
}

/// A ruleset that refuses all that this version can refuse, but for its rules.
pub(super) struct Ruleset {
    file: OwnedFd,
    rights: u64,
}

impl Ruleset {
    pub(super) fn new(version: u32) -> Result<Self> {
        /// `struct landlock_ruleset_attr`. Older kernels know the beginning of it.
        #[repr(C)]
        struct Attributes([u64; 3]);
        let rights = rights(version);
        let (attributes, length) = (Attributes([rights, 0, SCOPES]), if version < REFUSES_SIGNALS { 8 } else { 24 });
        // SAFETY: the kernel reads the attributes, which outlive the call.
        let file = unsafe {
            let args = [&raw const attributes as usize, length, 0, 0, 0, 0];
            OwnedFd::from_raw_fd(sys::syscall(uapi::__NR_landlock_create_ruleset, args)? as i32)
        };
        Ok(Self { file, rights })
    }

    /// Lets a program read, and write if `may_write`, the file, or what lies below the directory.
    pub(super) fn allow(&self, place: impl AsFd, may_write: bool) -> Result<()> {
        /// `struct landlock_path_beneath_attr`.
        #[repr(C, packed)]
        struct PathBeneath(u64, i32);
        const LANDLOCK_RULE_PATH_BENEATH: usize = 1;
        let place = place.as_fd();
        let found = fstat(place).map_err(|error| error.raw_os_error())?;
        let is_directory = FileType::from_raw_mode(found.st_mode).is_dir();
        let wanted = if may_write { self.rights & !MAKE_DEVICES } else { READ };
        let allowed = wanted & self.rights & if is_directory { u64::MAX } else { OF_FILES };
        let rule = PathBeneath(allowed, place.as_raw_fd());
        let args = [self.file.as_raw_fd() as usize, LANDLOCK_RULE_PATH_BENEATH, &raw const rule as usize, 0, 0, 0];
        // SAFETY: the kernel reads the rule, which outlives the call.
        unsafe { sys::syscall(uapi::__NR_landlock_add_rule, args) }.map(drop)
    }

    pub(super) fn into_file(self) -> OwnedFd {
        self.file
    }
}

/// What a program in a new root may do at a path, with what lies below it.
pub(super) struct LayerRule {
    pub(super) path: PathBuf,
    pub(super) is_directory: bool,
    pub(super) access: LayerAccess,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LayerAccess {
    Read,
    Write,
    /// Read and write a device, or those in the directory.
    Device,
}

/// The calls that make a ruleset of this version in a new root, whose files exist only there, and restrict the process.
pub(super) fn layer<'a>(version: u32, rules: impl Iterator<Item = &'a LayerRule>) -> Vec<IsolationCall> {
    use IsolationArg::{Address, Bytes, Number, Variable};
    use IsolationVariable::{File, Kept, Word};
    /// LANDLOCK_ACCESS_FS_WRITE_FILE, READ_FILE, TRUNCATE and IOCTL_DEV.
    const OF_DEVICES: u64 = 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15;
    const READ_DIR: u64 = 1 << 3;
    const BELOW_PATH: u64 = 1;
    let rights = rights(version);
    let mut calls = Vec::new();
    let mut call = |number, args, result| {
        calls.push(IsolationCall { step: Step::Landlock, object: "of a sandbox", number, args, result });
    };
    let length = if version < REFUSES_SIGNALS { 8 } else { 24 };
    let attributes = [rights, 0, SCOPES].iter().flat_map(|word| word.to_ne_bytes()).take(length).collect();
    let args = vec![Bytes(attributes), Number(length as u64), Number(0)];
    call(Some(uapi::__NR_landlock_create_ruleset), args, Some(Kept));
    for LayerRule { path, is_directory, access } in rules {
        let wanted = match access {
            LayerAccess::Read => READ,
            LayerAccess::Write => rights & !MAKE_DEVICES,
            LayerAccess::Device => OF_DEVICES | READ_DIR,
        };
        let allowed = wanted & rights & if *is_directory { u64::MAX } else { OF_FILES };
        let here = Number(uapi::AT_FDCWD as i64 as u64);
        let flags = Number((uapi::O_PATH | uapi::O_CLOEXEC).into());
        call(
            Some(uapi::__NR_openat),
            vec![here, Bytes(path.as_os_str().as_bytes().to_vec()), flags, Number(0)],
            Some(File),
        );
        // struct landlock_path_beneath_attr: the access, and the descriptor.
        call(None, vec![Number(allowed)], Some(Word));
        let args = vec![Variable(Kept), Number(BELOW_PATH), Address(Word), Number(0)];
        call(Some(uapi::__NR_landlock_add_rule), args, None);
        call(Some(uapi::__NR_close), vec![Variable(File)], None);
    }
    call(Some(uapi::__NR_landlock_restrict_self), vec![Variable(Kept), Number(0)], None);
    call(Some(uapi::__NR_close), vec![Variable(Kept)], None);
    calls
}
