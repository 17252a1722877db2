//! Root and mounts of the program. The options have the names of bwrap(1), and mount options those of mount(8).

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use clap::{ArgMatches, Args, FromArgMatches, error::ErrorKind};
use forkless::{Command, internal::FilePlace, mount_attribute};

use crate::near::did_you_mean;

use super::{super::failure::Failure, super::parse::octal, limits::amount, privileges::open_fd};

// No doc comment: clap would take it for the description of `forkless run`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Root and mounts (made in the order given, in a new mount namespace)")]
struct Flags {
    /// Bind-mount SRC on DST, with all mounts below it, without setuid programs and devices
    #[arg(long, num_args = 2, value_names = ["SRC", "DST"])]
    bind: Vec<PathBuf>,

    /// Bind-mount SRC on DST, with all mounts below it and with devices
    #[arg(long, num_args = 2, value_names = ["SRC", "DST"])]
    dev_bind: Vec<PathBuf>,

    /// Bind-mount SRC on DST read-only, with all mounts below it, without setuid programs and devices
    #[arg(long, num_args = 2, value_names = ["SRC", "DST"])]
    ro_bind: Vec<PathBuf>,

    /// As --bind, if SRC exists
    #[arg(long, num_args = 2, value_names = ["SRC", "DST"])]
    bind_try: Vec<PathBuf>,

    /// As --dev-bind, if SRC exists
    #[arg(long, num_args = 2, value_names = ["SRC", "DST"])]
    dev_bind_try: Vec<PathBuf>,

    /// As --ro-bind, if SRC exists
    #[arg(long, num_args = 2, value_names = ["SRC", "DST"])]
    ro_bind_try: Vec<PathBuf>,

    /// Mount an empty tmpfs on DST (default mode: 1777)
    #[arg(long, value_name = "DST")]
    tmpfs: Vec<PathBuf>,

    /// Limit the size of the next --tmpfs (suffixes K, M, G, T; default: half of RAM)
    #[arg(long, value_name = "BYTES", value_parser = amount)]
    size: Vec<u64>,

    /// Set the mode of the next --tmpfs, --dir, --file, --bind-data or --ro-bind-data (--dir also applies the umask)
    #[arg(long, value_name = "OCTAL", value_parser = |word: &str| octal(word, 0o7777))]
    perms: Vec<u32>,

    /// Mount a new procfs on DST; requires --unshare-pid
    #[arg(long, value_name = "DST")]
    proc: Vec<PathBuf>,

    /// Mount a minimal /dev on DST: null, zero, full, random, urandom, tty, pts, shm
    #[arg(long, value_name = "DST")]
    dev: Vec<PathBuf>,

    /// Add a lower layer to the next --overlay or --ro-overlay, on top of earlier ones
    #[arg(long, value_name = "SRC")]
    overlay_src: Vec<PathBuf>,

    /// Mount an overlay of the preceding --overlay-src on DST, with changes written to RWSRC; WORKDIR is an empty directory
    /// on the file system of RWSRC
    #[arg(long, num_args = 3, value_names = ["RWSRC", "WORKDIR", "DST"])]
    overlay: Vec<PathBuf>,

    /// Mount a read-only overlay of the preceding --overlay-src, at least two, on DST
    #[arg(long, value_name = "DST")]
    ro_overlay: Vec<PathBuf>,

    /// Create the directory DST, for example as a mount point, unless it exists
    #[arg(long, value_name = "DST")]
    dir: Vec<PathBuf>,

    /// Create a symbolic link DST that points to SRC
    #[arg(long, num_args = 2, value_names = ["SRC", "DST"])]
    symlink: Vec<PathBuf>,

    /// Copy inherited descriptor FD to the file DST, which is made or overwritten (default mode: 666)
    #[arg(long, num_args = 2, value_names = ["FD", "DST"])]
    file: Vec<OsString>,

    /// Mount a new file with the content of inherited descriptor FD on the file DST (default mode: 600)
    #[arg(long, num_args = 2, value_names = ["FD", "DST"])]
    bind_data: Vec<OsString>,

    /// As --bind-data, read-only
    #[arg(long, num_args = 2, value_names = ["FD", "DST"])]
    ro_bind_data: Vec<OsString>,

    /// Set the mode of PATH, which must not be a symbolic link
    #[arg(long, num_args = 2, value_names = ["OCTAL", "PATH"])]
    chmod: Vec<OsString>,

    /// Make the mount at DST and all mounts below it read-only
    #[arg(long, value_name = "DST")]
    remount_ro: Vec<PathBuf>,

    /// Change the mount at DST and all mounts below it: ro, nosuid, nodev, noexec, noatime, nosymfollow, or rw, suid, dev,
    /// exec, atime, symfollow
    #[arg(long, num_args = 2, value_names = ["OPTIONS", "DST"])]
    remount: Vec<OsString>,

    /// Mount a new file system of type KIND on DST; OPTIONS are those of mount(8), such as size=1m,noexec, or defaults
    #[arg(long, num_args = 3, value_names = ["KIND", "OPTIONS", "DST"])]
    mount: Vec<OsString>,

    /// Attach the detached mount at inherited descriptor FD, from open_tree(2) or fsmount(2), to DST
    #[arg(long, num_args = 2, value_names = ["FD", "DST"], conflicts_with = "sandbox")]
    attach_mount: Vec<OsString>,

    /// Unmount DST
    #[arg(long, value_name = "DST")]
    umount: Vec<PathBuf>,

    /// Make the mount point DIR the root with pivot_root(2) and unmount the old root
    #[arg(long, value_name = "DIR", conflicts_with_all = ["sandbox", "chroot"])]
    pivot_root: Option<PathBuf>,

    /// Make DIR the root with chroot(2)
    #[arg(long, alias = "root", value_name = "DIR", conflicts_with = "sandbox")]
    chroot: Option<PathBuf>,
}

/// A mount, or a change to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mount {
    Bind(PathBuf, PathBuf),
    DeviceBind(PathBuf, PathBuf),
    ReadOnlyBind(PathBuf, PathBuf),
    Tmpfs(PathBuf, String),
    Proc(PathBuf),
    Devices(PathBuf),
    Overlay(Vec<PathBuf>, Option<(PathBuf, PathBuf)>, PathBuf),
    Directory(PathBuf, u32),
    Symlink(PathBuf, PathBuf),
    Attributes { set: u64, clear: u64, target: PathBuf },
    FileSystem { kind: String, parameters: Vec<(String, Option<String>)>, attributes: u64, target: PathBuf },
    Attach(u32, PathBuf),
    Mode(u32, PathBuf),
    File { number: u32, target: PathBuf, mode: u32, place: FilePlace },
    Unmount(PathBuf),
}

/// What a bind mount leaves out, as in bwrap(1).
const NO_PRIVILEGES: u64 = mount_attribute::NO_SUID | mount_attribute::NO_DEV;
const READ_ONLY_DATA: u64 = NO_PRIVILEGES | mount_attribute::READ_ONLY;

impl Mount {
    pub(crate) fn apply(&self, command: &mut Command) -> Result<(), Failure> {
        match self {
            Self::Bind(source, target) => command.bind(source, target).mount_attributes(target, NO_PRIVILEGES, 0),
            Self::DeviceBind(source, target) => {
                command.bind(source, target).mount_attributes(target, mount_attribute::NO_SUID, 0)
            }
            Self::ReadOnlyBind(source, target) => {
                command.bind_read_only(source, target).mount_attributes(target, NO_PRIVILEGES, 0)
            }
            Self::Tmpfs(target, options) => command.tmpfs(target, options),
            Self::Proc(target) => command.proc(target),
            Self::Devices(target) => command.devices(target),
            Self::Overlay(lower, upper, target) => {
                let upper = upper.as_ref().map(|(upper, work)| (upper.as_path(), work.as_path()));
                command.overlay(lower, upper, target)
            }
            Self::Directory(target, mode) => command.make_dir(target, *mode),
            Self::Symlink(to, path) => command.make_symlink(to, path),
            Self::Attributes { set, clear, target } => command.mount_attributes(target, *set, *clear),
            Self::FileSystem { kind, parameters, attributes, target } => {
                let parameters = parameters.iter().map(|(key, value)| (key.as_str(), value.as_ref()));
                command.file_system(kind, parameters, *attributes, target)
            }
            Self::Attach(number, target) => {
                let tree: OwnedFd = open_fd("--attach-mount", *number)?;
                command.attach_mount(tree, target)
            }
            Self::Mode(mode, path) => command.set_mode(path, *mode),
            Self::File { number, target, mode, place } => {
                command.make_file(content(*number, *place)?, target, *mode, *place)
            }
            Self::Unmount(target) => command.unmount(target),
        };
        Ok(())
    }

    pub(crate) fn target(&self) -> &Path {
        match self {
            Self::Bind(_, target)
            | Self::DeviceBind(_, target)
            | Self::ReadOnlyBind(_, target)
            | Self::Tmpfs(target, _)
            | Self::Proc(target)
            | Self::Devices(target)
            | Self::Overlay(_, _, target)
            | Self::Directory(target, _)
            | Self::Symlink(_, target)
            | Self::Attributes { target, .. }
            | Self::FileSystem { target, .. }
            | Self::Attach(_, target)
            | Self::Mode(_, target)
            | Self::File { target, .. }
            | Self::Unmount(target) => target,
        }
    }
}

/// An option of the command line: a mount, or a modifier of the next mount.
enum Word {
    Mount(Mount),
    Size(u64),
    Mode(u32),
    FdSource(PathBuf),
    /// A mount whose source does not exist, and need not.
    Absent,
}

/// Mounts in the order of the command line, and the root. clap groups values by option, so their order is restored here.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    mounts: Vec<Mount>,
    pivot_root: Option<PathBuf>,
    chroot: Option<PathBuf>,
}

impl Mounts {
    /// Is a mount namespace needed?
    pub(crate) fn has_any(&self) -> bool {
        !self.mounts.is_empty() || self.pivot_root.is_some()
    }

    /// Are there bind mounts, and with them the parts of a whole system?
    pub(crate) fn has_parts_of_a_root(&self, is_apart: bool) -> bool {
        let any = |is_it: fn(&Mount) -> bool| self.mounts.iter().any(is_it);
        let system = any(|mount| matches!(mount, Mount::Proc(_))) && any(|mount| matches!(mount, Mount::Devices(_)));
        let binds = |mount: &Mount| matches!(mount, Mount::Bind(..) | Mount::ReadOnlyBind(..) | Mount::DeviceBind(..));
        any(binds) && (system || is_apart)
    }

    /// The paths that are mounted upon or made.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Path> {
        self.mounts.iter().map(Mount::target)
    }

    /// Has the program another root?
    pub(crate) fn has_root(&self) -> bool {
        self.pivot_root.is_some() || self.chroot.is_some()
    }

    /// The layers of overlays, which errors of the kernel do not name.
    pub(crate) fn layers(&self) -> impl Iterator<Item = &PathBuf> {
        self.mounts.iter().flat_map(|mount| match mount {
            Mount::Overlay(lower, upper, _) => {
                lower.iter().chain(upper.iter().flat_map(|(upper, work)| [upper, work])).collect::<Vec<_>>()
            }
            _ => Vec::new(),
        })
    }

    pub(crate) fn apply(&self, command: &mut Command) -> Result<(), Failure> {
        for mount in &self.mounts {
            mount.apply(command)?;
        }
        if let Some(root) = &self.pivot_root {
            command.pivot_root(root);
        }
        if let Some(root) = &self.chroot {
            command.chroot(root);
        }
        Ok(())
    }
}

impl Args for Mounts {
    fn augment_args(command: clap::Command) -> clap::Command {
        Flags::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Flags::augment_args_for_update(command)
    }
}

impl FromArgMatches for Mounts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Flags::from_arg_matches(matches)?;
        let (pivot_root, chroot) = (flags.pivot_root.take(), flags.chroot.take());
        let wrong = |message| clap::Error::raw(ErrorKind::ValueValidation, format!("{message}\n"));
        let mut placed: Vec<(usize, Word)> = Vec::new();
        for (id, values, words) in flags.into_option_words().map_err(wrong)? {
            // clap counts values, so each use of an option with two values has two indices.
            let places = matches.indices_of(id).into_iter().flatten().step_by(values);
            placed.extend(places.zip(words));
        }
        placed.sort_by_key(|(place, _)| *place);
        let mounts = with_modifiers(placed.into_iter().map(|(_, word)| word)).map_err(wrong)?;
        Ok(Self { mounts, pivot_root, chroot })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The ID of an option, the number of values of each use, and its uses in order.
type OptionWords = (&'static str, usize, Vec<Word>);

impl Flags {
    /// The uses of each option.
    fn into_option_words(self) -> Result<[OptionWords; 25], String> {
        let one = |paths: Vec<PathBuf>, new: fn(PathBuf) -> Mount| -> Vec<Word> {
            paths.into_iter().map(|path| Word::Mount(new(path))).collect()
        };
        let two = |paths: &[PathBuf], new: fn(PathBuf, PathBuf) -> Mount| -> Vec<Word> {
            paths.chunks_exact(2).map(|two| Word::Mount(new(two[0].clone(), two[1].clone()))).collect()
        };
        let tried = |paths: &[PathBuf], new: fn(PathBuf, PathBuf) -> Mount| -> Vec<Word> {
            // Any other error is reported by the mount.
            let is_absent = |path: &Path| matches!(path.try_exists(), Ok(false));
            let word = |word, two: &[PathBuf]| if is_absent(&two[0]) { Word::Absent } else { word };
            two(paths, new).into_iter().zip(paths.chunks_exact(2)).map(|(one, two)| word(one, two)).collect()
        };
        let overlay = |three: &[PathBuf]| {
            let upper = Some((three[0].clone(), three[1].clone()));
            Word::Mount(Mount::Overlay(Vec::new(), upper, three[2].clone()))
        };
        let read_only = |target| Mount::Attributes { set: mount_attribute::READ_ONLY, clear: 0, target };
        Ok([
            ("bind", 2, two(&self.bind, Mount::Bind)),
            ("dev_bind", 2, two(&self.dev_bind, Mount::DeviceBind)),
            ("ro_bind", 2, two(&self.ro_bind, Mount::ReadOnlyBind)),
            ("bind_try", 2, tried(&self.bind_try, Mount::Bind)),
            ("dev_bind_try", 2, tried(&self.dev_bind_try, Mount::DeviceBind)),
            ("ro_bind_try", 2, tried(&self.ro_bind_try, Mount::ReadOnlyBind)),
            ("tmpfs", 1, one(self.tmpfs, |target| Mount::Tmpfs(target, String::new()))),
            ("size", 1, self.size.into_iter().map(Word::Size).collect()),
            ("perms", 1, self.perms.into_iter().map(Word::Mode).collect()),
            ("proc", 1, one(self.proc, Mount::Proc)),
            ("dev", 1, one(self.dev, Mount::Devices)),
            ("overlay_src", 1, self.overlay_src.into_iter().map(Word::FdSource).collect()),
            ("overlay", 3, self.overlay.chunks_exact(3).map(overlay).collect()),
            ("ro_overlay", 1, one(self.ro_overlay, |target| Mount::Overlay(Vec::new(), None, target))),
            ("dir", 1, one(self.dir, |target| Mount::Directory(target, 0o755))),
            ("symlink", 2, two(&self.symlink, Mount::Symlink)),
            ("remount_ro", 1, one(self.remount_ro, read_only)),
            ("remount", 2, self.remount.chunks_exact(2).map(remount).collect::<Result<_, _>>()?),
            ("mount", 3, self.mount.chunks_exact(3).map(file_system).collect::<Result<_, _>>()?),
            ("attach_mount", 2, self.attach_mount.chunks_exact(2).map(attach).collect::<Result<_, _>>()?),
            ("file", 2, files("--file", &self.file, 0o666, FilePlace::Path)?),
            ("bind_data", 2, files("--bind-data", &self.bind_data, 0o600, FilePlace::Mounted(NO_PRIVILEGES))?),
            (
                "ro_bind_data",
                2,
                files("--ro-bind-data", &self.ro_bind_data, 0o600, FilePlace::Mounted(READ_ONLY_DATA))?,
            ),
            ("chmod", 2, self.chmod.chunks_exact(2).map(chmod).collect::<Result<_, _>>()?),
            ("umount", 1, one(self.umount, Mount::Unmount)),
        ])
    }
}

/// Applies `--size`, `--perms` and `--overlay-src` to the mount that follows them.
fn with_modifiers(words: impl Iterator<Item = Word>) -> Result<Vec<Mount>, String> {
    let mut mounts = Vec::new();
    let (mut size, mut mode, mut sources) = (None, None, Vec::new());
    for word in words {
        let mut mount = match word {
            // For tmpfs, 0 is no limit at all, and a number that overflows may become one.
            Word::Size(bytes) if bytes == 0 || i64::try_from(bytes).is_err() => {
                return Err("--size must be from 1 to 2^63-1 bytes; leave it out for half of RAM".to_owned());
            }
            Word::Size(bytes) => {
                once("--size", size.replace(bytes))?;
                continue;
            }
            Word::Mode(bits) => {
                once("--perms", mode.replace(bits))?;
                continue;
            }
            Word::FdSource(path) => {
                sources.push(path);
                continue;
            }
            Word::Absent => continue,
            Word::Mount(mount) => mount,
        };
        match &mut mount {
            Mount::Tmpfs(_, options) => {
                let size = size.take().map(|bytes| format!("size={bytes}"));
                let mode = mode.take().map(|mode| format!("mode={mode:o}"));
                *options = size.into_iter().chain(mode).collect::<Vec<_>>().join(",");
            }
            Mount::Directory(_, bits) | Mount::File { mode: bits, .. } => *bits = mode.take().unwrap_or(*bits),
            Mount::Overlay(lower, upper, _) => {
                // The kernel expects the topmost layer first.
                *lower = sources.drain(..).rev().collect();
                if lower.len() < if upper.is_some() { 1 } else { 2 } {
                    return Err("--overlay requires one --overlay-src before it, --ro-overlay two".to_owned());
                }
            }
            _ => {}
        }
        check_modifiers_used(size, mode, &sources)?;
        mounts.push(mount);
    }
    check_modifiers_used(size, mode, &sources)?;
    Ok(mounts)
}

/// A modifier that is given twice is an error, because it is unclear which one is meant.
fn once<T>(flag: &str, before: Option<T>) -> Result<(), String> {
    before.map_or(Ok(()), |_| Err(format!("{flag} is given twice for one mount; keep one")))
}

/// An unused modifier is an error: the user meant it for another option.
fn check_modifiers_used(size: Option<u64>, mode: Option<u32>, sources: &[PathBuf]) -> Result<(), String> {
    if size.is_some() {
        return Err("--size sets the size of the next --tmpfs, and none follows; add --tmpfs DST after it".to_owned());
    }
    if mode.is_some() {
        return Err(
            "--perms sets the mode of the next --tmpfs, --dir or --file, and none follows; add one after it".to_owned()
        );
    }
    if !sources.is_empty() {
        return Err(
            "--overlay-src adds a layer to the next --overlay or --ro-overlay, and none follows; add one after it"
                .to_owned(),
        );
    }
    Ok(())
}

/// The mount options of mount(8) that set and clear each attribute.
const ATTRIBUTES: [(&str, &str, u64); 6] = [
    ("ro", "rw", mount_attribute::READ_ONLY),
    ("nosuid", "suid", mount_attribute::NO_SUID),
    ("nodev", "dev", mount_attribute::NO_DEV),
    ("noexec", "exec", mount_attribute::NO_EXEC),
    ("noatime", "atime", mount_attribute::NO_ATIME),
    ("nosymfollow", "symfollow", mount_attribute::NO_SYMLINKS),
];

fn remount(words: &[OsString]) -> Result<Word, String> {
    let (mut set, mut clear) = (0, 0);
    for word in text("--remount", &words[0])?.split(',') {
        match ATTRIBUTES.iter().find(|(on, off, _)| [*on, *off].contains(&word)) {
            Some((on, _, bit)) if *on == word => set |= bit,
            Some((_, _, bit)) => clear |= bit,
            None => {
                let known = ATTRIBUTES.map(|(on, off, _)| format!("{on}, {off}")).join(", ");
                return Err(format!(
                    "--remount: unknown option {word:?}; use {known}{}",
                    did_you_mean(word, ATTRIBUTES.iter().flat_map(|(on, off, _)| [*on, *off]))
                ));
            }
        }
    }
    if set & clear != 0 {
        return Err(format!("--remount: {:?} contains an option and its opposite", words[0]));
    }
    // The atime modes exclude each other, and mount_setattr(2) requires the old one to be cleared.
    const ANY_ATIME: u64 = 0x70;
    if (set | clear) & mount_attribute::NO_ATIME != 0 {
        clear |= ANY_ATIME;
    }
    Ok(Word::Mount(Mount::Attributes { set, clear, target: PathBuf::from(&words[1]) }))
}

fn file_system(words: &[OsString]) -> Result<Word, String> {
    let kind = text("--mount", &words[0])?.to_owned();
    let (mut attributes, mut parameters) = (0, Vec::new());
    for word in text("--mount", &words[1])?.split(',').filter(|word| !["", "defaults"].contains(word)) {
        match ATTRIBUTES.iter().find(|(on, off, _)| [*on, *off].contains(&word)) {
            Some((on, _, bit)) => attributes |= if *on == word { *bit } else { 0 },
            None => {
                let (key, value) = word.split_once('=').map_or((word, None), |(key, value)| (key, Some(value)));
                parameters.push((key.to_owned(), value.map(str::to_owned)));
            }
        }
    }
    let target = PathBuf::from(&words[2]);
    Ok(Word::Mount(Mount::FileSystem { kind, parameters, attributes, target }))
}

fn attach(words: &[OsString]) -> Result<Word, String> {
    let number = super::super::parse::fd_number(&words[0]).map_err(|why| format!("--attach-mount: {why}"))?;
    Ok(Word::Mount(Mount::Attach(number as u32, PathBuf::from(&words[1]))))
}

/// The uses of an option with `FD DST`: `words` has two for each.
fn files(flag: &str, words: &[OsString], mode: u32, place: FilePlace) -> Result<Vec<Word>, String> {
    let file = |two: &[OsString]| {
        let number = super::super::parse::fd_number(&two[0]).map_err(|why| format!("{flag}: {why}"))? as u32;
        Ok(Word::Mount(Mount::File { number, target: PathBuf::from(&two[1]), mode, place }))
    };
    words.chunks_exact(2).map(file).collect()
}

/// The content of the descriptor, in a memfd, and its length: one system call of the child copies it.
fn content(number: u32, place: FilePlace) -> Result<(OwnedFd, usize), Failure> {
    const LESS_THAN: u64 = 0x7fff_f000;
    let flag = match place {
        FilePlace::Path => "--file",
        FilePlace::Mounted(set) if set & mount_attribute::READ_ONLY != 0 => "--ro-bind-data",
        FilePlace::Mounted(_) => "--bind-data",
    };
    let failed = |error: io::Error| Failure::before(format_args!("{flag}: cannot copy fd {number}: {error}"));
    let mut source = File::from(open_fd(flag, number)?).take(LESS_THAN);
    let memory = rustix::fs::memfd_create("content", rustix::fs::MemfdFlags::CLOEXEC);
    let mut memory = File::from(memory.map_err(|error| failed(error.into()))?);
    let length = io::copy(&mut source, &mut memory).map_err(failed)?;
    if length == LESS_THAN {
        return Err(Failure::before(format_args!("{flag}: fd {number} has 2 GiB or more; bind a file instead")));
    }
    Ok((memory.into(), length as usize))
}

fn chmod(words: &[OsString]) -> Result<Word, String> {
    let mode = octal(text("--chmod", &words[0])?, 0o7777).map_err(|why| format!("--chmod: {why}"))?;
    Ok(Word::Mount(Mount::Mode(mode, PathBuf::from(&words[1]))))
}

fn text<'a>(flag: &str, word: &'a OsString) -> Result<&'a str, String> {
    word.to_str().ok_or_else(|| format!("{flag}: {:?} is not UTF-8", Path::new(word)))
}

#[cfg(test)]
mod tests {
    use super::{super::sandbox::SandboxOptions, *};

    fn mounts(words: &str) -> Result<Vec<Mount>, String> {
        // Some of these options name a conflict with `--sandbox`.
        let command = Mounts::augment_args(SandboxOptions::augment_args(clap::Command::new("x")));
        let matches = command.try_get_matches_from(words.split(' ')).expect("words");
        Mounts::from_arg_matches(&matches).map(|found| found.mounts).map_err(|error| error.to_string())
    }

    fn path(text: &str) -> PathBuf {
        PathBuf::from(text)
    }

    #[test]
    fn mounts_keep_the_order_of_the_command_line() {
        let words = "x --tmpfs /a --bind /b /c --remount-ro /d --tmpfs /e --ro-bind /f /g --bind /h /i --proc /j \
                     --mount tmpfs size=1m /k --symlink l /m --mount proc defaults /n --attach-mount 7 /o --dev /p";
        let read_only = Mount::Attributes { set: 1, clear: 0, target: path("/d") };
        let new = |kind: &str, parameters, target| Mount::FileSystem {
            kind: kind.to_owned(),
            parameters,
            attributes: 0,
            target: path(target),
        };
        let wanted = [
            Mount::Tmpfs(path("/a"), String::new()),
            Mount::Bind(path("/b"), path("/c")),
            read_only,
            Mount::Tmpfs(path("/e"), String::new()),
            Mount::ReadOnlyBind(path("/f"), path("/g")),
            Mount::Bind(path("/h"), path("/i")),
            Mount::Proc(path("/j")),
            new("tmpfs", vec![("size".to_owned(), Some("1m".to_owned()))], "/k"),
            Mount::Symlink(path("l"), path("/m")),
            new("proc", vec![], "/n"),
            Mount::Attach(7, path("/o")),
            Mount::Devices(path("/p")),
        ];
        assert_eq!(mounts(words).as_deref(), Ok(&wanted[..]));
    }

    #[test]
    fn modifiers_apply_to_the_next_mount_only() {
        let words = "x --perms 700 --size 1M --tmpfs /a --tmpfs /b --perms 1777 --dir /c --dir /d --overlay-src /e \
                     --overlay-src /f --ro-overlay /g --overlay-src /h --overlay /i /j /k --perms 640 --file 3 /l \
                     --bind-data 4 /m --ro-bind-data 5 /n --chmod 1777 /o";
        let wanted = [
            Mount::Tmpfs(path("/a"), "size=1048576,mode=700".to_owned()),
            Mount::Tmpfs(path("/b"), String::new()),
            Mount::Directory(path("/c"), 0o1777),
            Mount::Directory(path("/d"), 0o755),
            Mount::Overlay(vec![path("/f"), path("/e")], None, path("/g")),
            Mount::Overlay(vec![path("/h")], Some((path("/i"), path("/j"))), path("/k")),
            Mount::File { number: 3, target: path("/l"), mode: 0o640, place: FilePlace::Path },
            Mount::File { number: 4, target: path("/m"), mode: 0o600, place: FilePlace::Mounted(NO_PRIVILEGES) },
            Mount::File { number: 5, target: path("/n"), mode: 0o600, place: FilePlace::Mounted(READ_ONLY_DATA) },
            Mount::Mode(0o1777, path("/o")),
        ];
        assert_eq!(mounts(words).as_deref(), Ok(&wanted[..]));
        for (words, flag) in [
            ("x --size 1M", "--size"),
            ("x --size 0 --tmpfs /a", "--size must be"),
            ("x --size 9223372036854775809 --tmpfs /a", "--size must be"),
            ("x --size unlimited --tmpfs /a", "--size must be"),
            ("x --size 1M --size 2M --tmpfs /a", "--size is given twice"),
            ("x --perms 700 --perms 700 --dir /a", "--perms is given twice"),
            ("x --perms 700 --chmod 700 /a", "--perms"),
            ("x --chmod 888 /a", "--chmod"),
            ("x --file x /a", "--file"),
            ("x --size 1M --dir /a --tmpfs /b", "--size"),
            ("x --perms 700 --proc /a", "--perms"),
            ("x --overlay-src /a --tmpfs /b", "--overlay-src"),
            ("x --overlay /a /b /c", "--overlay-src"),
            ("x --overlay-src /a --ro-overlay /b", "--ro-overlay"),
        ] {
            assert!(mounts(words).is_err_and(|error| error.contains(flag)), "{words}");
        }
    }

    #[test]
    fn remount_and_mount_accept_the_options_of_mount() {
        let changed = |set, clear| Ok(vec![Mount::Attributes { set, clear, target: path("/a") }]);
        assert_eq!(mounts("x --remount ro,nosuid,exec /a"), changed(3, 8));
        assert_eq!(mounts("x --remount noatime /a"), changed(0x10, 0x70));
        let wanted = Mount::FileSystem {
            kind: "tmpfs".to_owned(),
            parameters: vec![("mode".to_owned(), Some("700".to_owned())), ("inode64".to_owned(), None)],
            attributes: mount_attribute::NO_EXEC,
            target: path("/a"),
        };
        assert_eq!(mounts("x --mount tmpfs mode=700,noexec,dev,inode64 /a"), Ok(vec![wanted]));
        for (words, flag) in [
            ("x --remount nonsense /a", "--remount"),
            ("x --remount ro,rw /a", "--remount"),
            ("x --attach-mount x /a", "--attach-mount"),
        ] {
            assert!(mounts(words).is_err_and(|error| error.contains(flag)), "{words}");
        }
    }
}
