//! Finding the directory of the caller's own cgroup: a path below a mount point, from two files of /proc.

use crate::procfs;
use rustix::fs::getxattr;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// See [`Cgroup::own`](super::Cgroup::own).
pub(super) fn directory() -> io::Result<PathBuf> {
    let missing = |why: &str| io::Error::new(ErrorKind::NotFound, format!("cgroup of this process: {why}"));
    let groups = fs::read(procfs::own("cgroup"))?;
    let group = group(&groups).ok_or_else(|| missing("/proc/self/cgroup has no line of version 2"))?;
    let mounts = fs::read(procfs::own("mountinfo"))?;
    // The last mount is tried first: it may hide the earlier ones.
    let mut found: Vec<_> = mounts.split(|byte| *byte == b'\n').filter_map(|line| parse_mount(line, &group)).collect();
    found.reverse();
    found
        .into_iter()
        .find(|directory| directory.join("cgroup.procs").exists())
        .ok_or_else(|| missing(&format!("no mount of version 2 in /proc/self/mountinfo contains {group:?}")))
}

/// See [`Cgroup::delegated`](super::Cgroup::delegated).
pub(super) fn delegated_above(own: PathBuf) -> PathBuf {
    let found = own.ancestors().find(|directory| is_delegated(directory)).map(Path::to_owned);
    found.unwrap_or(own)
}

/// Whether the cgroup has systemd's mark of a delegated one: `systemd.resource-control(5)`, Delegate.
fn is_delegated(directory: &Path) -> bool {
    let marked = |name: &str| getxattr(directory, name, &mut [0; 2][..]).is_ok_and(|length| length == 1);
    marked("user.delegate") || marked("trusted.delegate")
}

/// The path in the line of version 2 in /proc/self/cgroup, `0::/path`.
fn group(groups: &[u8]) -> Option<PathBuf> {
    let path = groups.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::"))?;
    Some(OsString::from_vec(path.to_vec()).into())
}

/// The directory of `group` below the mount of this line, if the mount is of version 2 and `group` is below its root:
/// `proc_pid_mountinfo(5)`.
fn parse_mount(line: &[u8], group: &Path) -> Option<PathBuf> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (root, mount_point) = (fields.nth(3)?, fields.next()?);
    // A dash ends a variable number of fields. The file system type follows it.
    fields.find(|field| *field == b"-")?;
    if fields.next()? != b"cgroup2" {
        return None;
    }
    let inside = group.strip_prefix(unescaped(root)).ok()?;
    // Outside of this cgroup namespace's root the path begins with "..", and its meaning depends on the reader.
    let plain = inside.components().all(|part| part.as_os_str().as_bytes() != b"..");
    let mount_point = unescaped(mount_point);
    // A path joined with an empty one would end in a slash.
    plain.then(|| if inside.as_os_str().is_empty() { mount_point } else { mount_point.join(inside) })
}

/// A path in which the kernel has escaped spaces and some other bytes as `\040`.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
        match after.get(..3).filter(|_| byte == b'\\').and_then(octal) {
            Some(meant) => {
                bytes.push(meant);
                rest = &after[3..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(line: &str, path: &str) -> Option<String> {
        parse_mount(line.as_bytes(), Path::new(path)).map(|path| path.to_str().expect("text").to_owned())
    }

    #[test]
    fn the_mount_of_version_2_is_found_whatever_its_place_and_root() {
        let whole = "38 31 0:35 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw";
        assert_eq!(below(whole, "/a/b").as_deref(), Some("/sys/fs/cgroup/unified/a/b"));
        assert_eq!(below(whole, "/").as_deref(), Some("/sys/fs/cgroup/unified"));
        // The root of the mount is a cgroup, as in a container without a cgroup namespace.
        let part = "38 31 0:35 /box/7 /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(below(part, "/box/7/in").as_deref(), Some("/sys/fs/cgroup/in"));
        assert_eq!(below(part, "/box/77"), None);
        assert_eq!(below(part, "/"), None);
        // The cgroup is outside of the cgroup namespace whose root is mounted.
        assert_eq!(below(whole, "/../other"), None);
        let odd = r"38 31 0:35 / /mnt/a\040b\134c rw - cgroup2 none rw";
        assert_eq!(below(odd, "/x").as_deref(), Some(r"/mnt/a b\c/x"));
        for line in ["", "1 2 3", "36 31 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory", whole[..40].trim()]
        {
            assert_eq!(below(line, "/"), None, "{line}");
        }
    }

    #[test]
    fn version_2_has_the_line_without_a_number() {
        assert_eq!(group(b"9:name=systemd:/x\n0::/a b\n"), Some("/a b".into()));
        assert_eq!(group(b"4:memory:/x\n"), None);
    }
}
