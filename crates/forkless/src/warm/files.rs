//! The files that a template was made of: what they were, whether they are the same now, and whether a program can have a
//! template at all.

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file that changed less than this ago may change again within the same time stamp.
const YOUNG: Duration = Duration::from_secs(2);

/// A file at a moment: device, inode, mount, size, mode, owner and times; or that it did not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    path: CString,
    found: Option<FileState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    device: (u32, u32),
    inode: u64,
    mount: u64,
    size: u64,
    mode: u16,
    ids: (u32, u32),
    modified: (i64, u32),
    changed: (i64, u32),
}

impl Stamp {
    /// The file as it is now. `None`: its path contains a NUL byte.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        let found = stat_file(&path);
        Some(Self { path, found })
    }

    pub(super) fn is_current(&self) -> bool {
        stat_file(&self.path) == self.found
    }

    pub(super) fn path(&self) -> &OsStr {
        OsStr::from_bytes(self.path.as_bytes())
    }

    pub(super) fn exists(&self) -> bool {
        self.found.is_some()
    }

    /// Device and inode.
    pub(super) fn identity(&self) -> Option<((u32, u32), u64)> {
        self.found.map(|found| (found.device, found.inode))
    }

    /// Whether it is a regular file.
    pub(super) fn is_regular(&self) -> bool {
        self.found.is_some_and(|found| found.mode & 0o170_000 == 0o100_000)
    }

    /// Whether it has the setuid or the setgid bit.
    pub(super) fn has_ids(&self) -> bool {
        self.found.is_some_and(|found| found.mode & 0o6000 != 0)
    }

    /// Whether it may have changed a moment ago.
    pub(super) fn is_young(&self) -> bool {
        let Some(found) = self.found else { return false };
        let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) else { return true };
        let newest = found.modified.0.max(found.changed.0);
        newest + YOUNG.as_secs() as i64 >= now.as_secs() as i64
    }
}

fn stat_file(path: &CString) -> Option<FileState> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    // A network file system must ask its server: what it remembers may be seconds old.
    const AT_STATX_FORCE_SYNC: AtFlags = AtFlags::from_bits_retain(0x2000);
    let found = statx(CWD, path, AT_STATX_FORCE_SYNC, wanted).ok()?;
    Some(FileState {
        device: (found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        mount: found.stx_mnt_id,
        size: found.stx_size,
        mode: found.stx_mode,
        ids: (found.stx_uid, found.stx_gid),
        modified: (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
        changed: (found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec),
    })
}

/// The directory entry that a path resolves to: its directory, and its name there. Another link of the same file is another one.
#[derive(PartialEq)]
pub(super) struct DirectoryEntry {
    directory: (u64, u64),
    name: OsString,
}

impl DirectoryEntry {
    /// Opens nothing: the caller may be short of descriptors. `None`: the path leads to no directory, or through too many links.
    pub(super) fn of(path: &OsStr) -> Option<Self> {
        let mut path = PathBuf::from(path);
        // As many as the kernel follows (MAXSYMLINKS).
        for _ in 0..40 {
            let directory = path.parent()?;
            match std::fs::read_link(&path) {
                Ok(target) => path = directory.join(target),
                Err(_) => {
                    let found = std::fs::metadata(directory).ok()?;
                    let name = path.file_name()?.to_owned();
                    return Some(Self { directory: (found.dev(), found.ino()), name });
                }
            }
        }
        None
    }
}

/// The dynamic loader of glibc on x86-64.
pub(super) const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Checks that a file is a dynamically linked program for x86-64 and glibc. The error is the reason against it. `None`: it
/// cannot be read now.
pub(super) fn check_program(path: &Path) -> Option<Result<(), &'static str>> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::open(path).ok()?;
    let mut head = [0u8; 4];
    let length = file.read_at(&mut head, 0).ok()?;
    // The numbers are those of the file: a place or a length may be any.
    let number = |at: u64, bytes: usize| {
        let mut field = [0u8; 8];
        file.read_exact_at(field.get_mut(..bytes)?, at).ok()?;
        Some(u64::from_le_bytes(field))
    };
    let read = || -> Option<Result<(), &'static str>> {
        if head.get(..length)?.starts_with(b"#!") {
            return Some(Err("the program is a script"));
        }
        /// Class 64, little-endian.
        const KIND: u64 = 0x0102;
        const X86_64: u64 = 62;
        if head != *b"\x7fELF" || number(4, 2)? != KIND || number(18, 2)? != X86_64 {
            return Some(Err("the program is no ELF file for x86-64"));
        }
        const PT_INTERP: u64 = 3;
        let (first, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        for n in 0..count {
            let at = first.checked_add(n * size)?;
            if number(at, 4)? == PT_INTERP {
                let (offset, length) = (number(at + 8, 8)?, number(at + 32, 8)?);
                let mut loader = [0u8; LOADER.len() + 1];
                let is_usual = length == loader.len() as u64 && {
                    file.read_exact_at(&mut loader, offset).ok()?;
                    loader.strip_suffix(b"\0") == Some(LOADER.as_bytes())
                };
                return Some(if is_usual { Ok(()) } else { Err("the program's loader is not that of glibc") });
            }
        }
        Some(Err("the program is linked statically"))
    };
    Some(read().unwrap_or(Err("the program's file is damaged")))
}

/// Whether a file has capabilities: `capabilities(7)`.
pub(super) fn has_capabilities(path: &Path) -> bool {
    let mut value = [0u8; 64];
    !matches!(
        rustix::fs::getxattr(path, "security.capability", &mut value),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::NOTSUP)
    )
}

/// Whether the caller may execute a file: `faccessat(2)` with the effective ids.
pub(super) fn is_executable(path: &Path) -> bool {
    rustix::fs::accessat(CWD, path, rustix::fs::Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{LOADER, Stamp, check_program};
    use forkless_core::sys::{self, uapi};
    use std::fs::{File, OpenOptions};
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn headers_of_a_program_may_lie_anywhere_and_say_anything() {
        use std::os::unix::fs::FileExt;
        let checked = |first: u64, loader: u64, length: u64| {
            let file = File::from(rustix::fs::memfd_create("elf", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd"));
            let write = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at).map_or((), drop);
            write(0, b"\x7fELF\x02\x01");
            write(18, &[62, 0]);
            write(32, &first.to_le_bytes());
            write(54, &[56, 0, 2, 0]);
            write(first, &[1]);
            let second = first.saturating_add(56);
            write(second, &[3, 0, 0, 0]);
            write(second.saturating_add(8), &loader.to_le_bytes());
            write(second.saturating_add(32), &length.to_le_bytes());
            write(loader, LOADER.as_bytes());
            write(loader.saturating_add(LOADER.len() as u64), b"\0");
            check_program(format!("/proc/self/fd/{}", file.as_raw_fd()).as_ref()).expect("it can be read").err()
        };
        let usual = LOADER.len() as u64 + 1;
        assert_eq!((checked(64, 300, usual), checked(10_000, 20_000, usual)), (None, None));
        let damaged = Some("the program's file is damaged");
        assert_eq!((checked(u64::MAX - 60, 300, usual), checked(64, u64::MAX - 9, usual)), (damaged, damaged));
        let other = Some("the program's loader is not that of glibc");
        assert_eq!((checked(64, 300, u64::MAX), checked(64, 301, usual - 1)), (other, other));
    }

    /// Serves a file system where every name exists, and lets the kernel cache answers for an hour. fuse(4), protocol 7.22.
    fn serve(mut device: File, modified: &AtomicU64) {
        const HOUR: u64 = 3600;
        let mut request = vec![0u8; 1 << 17];
        // Until it is unmounted.
        while device.read(&mut request).is_ok_and(|length| length >= 40) {
            let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().expect("four bytes"));
            let (operation, unique, node) = (word(4), &request[8..16], word(16));
            let mode: u32 = if node == 1 && operation == 3 { 0o040_755 } else { 0o100_755 };
            let mut attributes = Vec::new();
            for value in [2u64, 1, 1, 0, modified.load(Ordering::SeqCst), 0] {
                attributes.extend(value.to_ne_bytes());
            }
            for value in [0u32, 0, 0, mode, 1, 0, 0, 0, 4096, 0] {
                attributes.extend(value.to_ne_bytes());
            }
            let numbers = |values: &[u64]| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>();
            let (error, answer) = match operation {
                // FORGET has no answer.
                2 | 42 => continue,
                // INIT
                26 => (0, [7u32, 22, 0, 0, 0, 4096].iter().flat_map(|value| value.to_ne_bytes()).collect()),
                // LOOKUP and GETATTR
                1 => (0, [numbers(&[2, 1, HOUR, HOUR, 0]), attributes].concat()),
                3 => (0, [numbers(&[HOUR, 0]), attributes].concat()),
                _ => (-38i32, Vec::new()),
            };
            let total = 16 + answer.len() as u32;
            let header = [&total.to_ne_bytes()[..], &error.to_ne_bytes(), unique].concat();
            // An error: the request was given up.
            let _ = device.write(&[header, answer].concat());
        }
    }

    /// What another machine has changed is seen at once, whatever the kernel remembers.
    #[test]
    fn a_network_file_system_is_asked() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: a_network_file_system_is_asked, because the tests run as an ordinary user");
            return;
        }
        let Ok(device) = OpenOptions::new().read(true).write(true).open("/dev/fuse") else {
            eprintln!("SKIPPED: a_network_file_system_is_asked, because there is no /dev/fuse");
            return;
        };
        let directory = std::env::temp_dir().join(format!("forkless-network-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0\0", device.as_raw_fd());
        let place = format!("{}\0", directory.display());
        let modified = Arc::new(AtomicU64::new(1_000_000));
        // A mount namespace of this thread's.
        let look = move || {
            let call = |number: u32, args: [usize; 5]| {
                // SAFETY: the strings end with NUL, and outlive the calls.
                unsafe { sys::syscall(number, [args[0], args[1], args[2], args[3], args[4], 0]) }
            };
            call(uapi::__NR_unshare, [uapi::CLONE_NEWNS as usize, 0, 0, 0, 0])?;
            const MS_REC_PRIVATE: usize = 1 << 14 | 1 << 18;
            let (none, root, fuse) = (c"none".as_ptr() as usize, c"/".as_ptr() as usize, c"fuse".as_ptr() as usize);
            call(uapi::__NR_mount, [none, root, 0, MS_REC_PRIVATE, 0])?;
            let (at, data) = (place.as_ptr() as usize, options.as_ptr() as usize);
            call(uapi::__NR_mount, [none, at, fuse, 0, data])?;
            let served = modified.clone();
            let server = std::thread::spawn(move || serve(device, &served));
            let stamp = Stamp::of(&directory.join("program")).expect("a path");
            let was_current = stamp.exists() && stamp.is_current();
            modified.fetch_add(1, Ordering::SeqCst);
            let is_current = stamp.is_current();
            const MNT_DETACH: usize = 2;
            call(uapi::__NR_umount2, [at, MNT_DETACH, 0, 0, 0]).expect("no mount");
            server.join().expect("a server");
            let _ = std::fs::remove_dir(&directory);
            Ok::<_, i32>((was_current, is_current))
        };
        match std::thread::spawn(look).join().expect("a thread") {
            Err(error) => eprintln!("SKIPPED: a_network_file_system_is_asked, because of error {error} of a mount"),
            Ok(found) => assert_eq!(found, (true, false)),
        }
    }
}
