//! Rulesets of Landlock: landlock(7), and the kernel's userspace-api/landlock.rst.

use forkless_core::sys::{self, Result, uapi};
use rustix::fs::{FileType, fstat};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

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
        let (attributes, length) = (Attributes([rights, 0, SCOPES]), if version < 6 { 8 } else { 24 });
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
