//! A fence around the lines: made at random and run as whoever runs the tests, they must reach nothing but their directory.
//!
//! Landlock: files are written, made and removed in the directory alone, programs executed are those of the list, signals and
//! connections stay inside. It is put up before anything is run, and tried first.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// `struct landlock_ruleset_attr`.
#[repr(C)]
struct Ruleset {
    files: u64,
    net: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct Beneath {
    allowed: u64,
    parent: i32,
}

const EXECUTE: u64 = 1;
const WRITE: u64 = 1 << 1;
/// Writing, removing, making of every kind, renaming elsewhere, truncating.
const CHANGES: u64 = WRITE | 0x7ff << 4;
const TRUNCATE: u64 = 1 << 14;
/// TCP: bind, connect.
const NET: u64 = 3;
/// Abstract sockets, signals.
const SCOPED: u64 = 3;
/// The first with scopes: Linux 6.12.
const VERSION: i64 = 6;

/// Puts it up, for this process and all it will start.
///
/// # Errors
/// `Unsupported` where the kernel has no such fence. Nothing may be run then.
pub(crate) fn put_up(place: &Path, programs: &[&Path]) -> io::Result<()> {
    // SAFETY: asks for the version.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, 1) };
    if version < VERSION {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "Landlock, version 6, is not there"));
    }
    let asked = Ruleset { files: EXECUTE | CHANGES, net: NET, scoped: SCOPED };
    // SAFETY: the kernel reads the structure.
    let made = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const asked, size_of::<Ruleset>(), 0) };
    // SAFETY: a new descriptor, ours.
    let ruleset = unsafe { OwnedFd::from_raw_fd(to_result(made)? as i32) };
    allow(&ruleset, place, EXECUTE | CHANGES)?;
    for device in ["/dev/null", "/dev/full"] {
        allow(&ruleset, Path::new(device), WRITE | TRUNCATE)?;
    }
    // What loads programs.
    for library in ["/lib", "/lib64", "/usr/lib", "/usr/lib64"].map(Path::new).into_iter().filter(|path| path.is_dir())
    {
        allow(&ruleset, library, EXECUTE)?;
    }
    for program in programs {
        allow(&ruleset, program, EXECUTE)?;
    }
    // SAFETY: both change this process alone.
    unsafe {
        to_result(i64::from(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)))?;
        to_result(libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0))?;
    }
    try_it(place)
}

fn allow(ruleset: &OwnedFd, path: &Path, allowed: u64) -> io::Result<()> {
    let file = File::options().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)?;
    let rule = Beneath { allowed, parent: file.as_raw_fd() };
    // SAFETY: the kernel reads the structure; 1 is LANDLOCK_RULE_PATH_BENEATH.
    let added = unsafe { libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), 1, &raw const rule, 0) };
    to_result(added).map(drop)
}

/// A fence that lets something through is none.
fn try_it(place: &Path) -> io::Result<()> {
    let outside = place.with_extension("outside");
    let probe = std::env::current_exe()?;
    let opened = File::options().append(true).open(&probe).is_ok();
    let made = File::create_new(&outside).is_ok();
    let through = opened || made || std::process::Command::new(probe).arg("--nothing").spawn().is_ok();
    File::create(place.join("inside"))?;
    std::fs::remove_file(place.join("inside"))?;
    if through { Err(io::Error::other("the fence lets something through")) } else { Ok(()) }
}

fn to_result(value: i64) -> io::Result<i64> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}
