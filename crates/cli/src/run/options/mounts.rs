//! What the program finds in its file system: named as bwrap(1) names theirs, and for options of mounts as mount(8) does.

use std::{
    ffi::OsString,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use clap::{ArgMatches, Args, FromArgMatches, error::ErrorKind};
use forkless::{Command, mount_attribute};

use super::{super::failure::Failure, super::parse::octal, limits::amount, privileges::open_fd};

// No doc comment: clap would take it for the description of `forkless run`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Root and mounts (made in the order given, in a mount namespace of the program's)")]
struct Flags {
    /// Have SRC at DST too, with all that is mounted below
    #[arg(long, num_args = 2, value_names = ["SRC", "DST"])]
    bind: Vec<PathBuf>,

    /// The same, to be read only
    #[arg(long, num_args = 2, value_names = ["SRC", "DST"])]
    ro_bind: Vec<PathBuf>,

    /// Have an empty file system in memory at DST, for all to write to
    #[arg(long, value_name = "DST")]
    tmpfs: Vec<PathBuf>,

    /// The most that the next --tmpfs may hold, in bytes (suffixes K, M, G, T)
    #[arg(long, value_name = "BYTES", value_parser = amount)]
    size: Vec<u64>,

    /// The mode of the next --tmpfs, or --dir (there less our umask)
    #[arg(long, value_name = "OCTAL", value_parser = |word: &str| octal(word, 0o7777))]
    perms: Vec<u32>,

    /// Have the processes of a new --unshare-pid at DST
    #[arg(long, value_name = "DST")]
    proc: Vec<PathBuf>,

    /// Have a small /dev at DST: null, zero, full, random, urandom, tty, terminals, shm
    #[arg(long, value_name = "DST")]
    dev: Vec<PathBuf>,

    /// A directory that the next --overlay or --ro-overlay shows, above those given before
    #[arg(long, value_name = "SRC")]
    overlay_src: Vec<PathBuf>,

    /// Have at DST what is in the sources given before and, above them, in RWSRC, where all changes go; WORKDIR is an
    /// empty directory beside that
    #[arg(long, num_args = 3, value_names = ["RWSRC", "WORKDIR", "DST"])]
    overlay: Vec<PathBuf>,

    /// Have at DST what is in the sources given before, two at least, to be read only
    #[arg(long, value_name = "DST")]
    ro_overlay: Vec<PathBuf>,

    /// Have a directory DST, unless it is there, as a place for something else
    #[arg(long, value_name = "DST")]
    dir: Vec<PathBuf>,

    /// Have a symbolic link DST to SRC
    #[arg(long, num_args = 2, value_names = ["SRC", "DST"])]
    symlink: Vec<PathBuf>,

    /// Make what is mounted at DST by then read-only, with all that is mounted below
    #[arg(long, value_name = "DST")]
    remount_ro: Vec<PathBuf>,

    /// Change what is mounted at DST by then, with all below: ro, nosuid, nodev, noexec, noatime, nosymfollow, or rw,
    /// suid, dev, exec, atime, symfollow
    #[arg(long, num_args = 2, value_names = ["OPTIONS", "DST"])]
    remount: Vec<OsString>,

    /// Have a new file system of this kind at DST; OPTIONS as for mount(8), such as size=1m,noexec, or defaults
    #[arg(long, num_args = 3, value_names = ["KIND", "OPTIONS", "DST"])]
    mount: Vec<OsString>,

    /// Have at DST a mount that is attached nowhere: a file descriptor of ours, of open_tree(2) or fsmount(2)
    #[arg(long, num_args = 2, value_names = ["FD", "DST"])]
    attach_mount: Vec<OsString>,

    /// Take away what is mounted at DST by then
    #[arg(long, value_name = "DST")]
    umount: Vec<PathBuf>,

    /// Have the mount point DIR as root, and lose sight of all else
    #[arg(long, value_name = "DIR", conflicts_with = "chroot")]
    pivot_root: Option<PathBuf>,

    /// Have DIR as root, by chroot(2)
    #[arg(long, value_name = "DIR")]
    chroot: Option<PathBuf>,
}

/// A mount, or a change to one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mount {
    Bind(PathBuf, PathBuf),
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
    Unmount(PathBuf),
}

/// A word of the command line: a mount, or what is said of the next one.
enum Word {
    Mount(Mount),
    Size(u64),
    Mode(u32),
    Source(PathBuf),
}

/// Mounts in the order of the command line, which clap keeps apart by option; and the root.
#[derive(Debug)]
pub(crate) struct Mounts {
    mounts: Vec<Mount>,
    pivot_root: Option<PathBuf>,
    chroot: Option<PathBuf>,
}

impl Mounts {
    /// Is a mount namespace needed?
    pub(crate) fn any(&self) -> bool {
        !self.mounts.is_empty() || self.pivot_root.is_some()
    }

    pub(crate) fn apply(&self, command: &mut Command) -> Result<(), Failure> {
        for mount in &self.mounts {
            match mount {
                Mount::Bind(source, target) => command.bind(source, target),
                Mount::ReadOnlyBind(source, target) => command.bind_read_only(source, target),
                Mount::Tmpfs(target, options) => command.tmpfs(target, options),
                Mount::Proc(target) => command.proc(target),
                Mount::Devices(target) => command.devices(target),
                Mount::Overlay(lower, upper, target) => {
                    let upper = upper.as_ref().map(|(upper, work)| (upper.as_path(), work.as_path()));
                    command.overlay(lower, upper, target)
                }
                Mount::Directory(target, mode) => command.make_dir(target, *mode),
                Mount::Symlink(to, path) => command.make_symlink(to, path),
                Mount::Attributes { set, clear, target } => command.mount_attributes(target, *set, *clear),
                Mount::FileSystem { kind, parameters, attributes, target } => {
                    let parameters = parameters.iter().map(|(key, value)| (key.as_str(), value.as_ref()));
                    command.file_system(kind, parameters, *attributes, target)
                }
                Mount::Attach(number, target) => {
                    let tree: OwnedFd = open_fd("--attach-mount", *number)?;
                    command.attach_mount(tree, target)
                }
                Mount::Unmount(target) => command.unmount(target),
            };
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
        for (id, values, words) in flags.words().map_err(wrong)? {
            // clap counts values, so an option with two has two places.
            let places = matches.indices_of(id).into_iter().flatten().step_by(values);
            placed.extend(places.zip(words));
        }
        placed.sort_by_key(|(place, _)| *place);
        let mounts = with_what_was_said(placed.into_iter().map(|(_, word)| word)).map_err(wrong)?;
        Ok(Self { mounts, pivot_root, chroot })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// An option's id, how many values each use of it takes, and its uses in their order.
type Words = (&'static str, usize, Vec<Word>);

impl Flags {
    /// The words of each option.
    fn words(self) -> Result<[Words; 17], String> {
        let one = |paths: Vec<PathBuf>, new: fn(PathBuf) -> Mount| -> Vec<Word> {
            paths.into_iter().map(|path| Word::Mount(new(path))).collect()
        };
        let two = |paths: &[PathBuf], new: fn(PathBuf, PathBuf) -> Mount| -> Vec<Word> {
            paths.chunks_exact(2).map(|two| Word::Mount(new(two[0].clone(), two[1].clone()))).collect()
        };
        let overlay = |three: &[PathBuf]| {
            let upper = Some((three[0].clone(), three[1].clone()));
            Word::Mount(Mount::Overlay(Vec::new(), upper, three[2].clone()))
        };
        let read_only = |target| Mount::Attributes { set: mount_attribute::READ_ONLY, clear: 0, target };
        Ok([
            ("bind", 2, two(&self.bind, Mount::Bind)),
            ("ro_bind", 2, two(&self.ro_bind, Mount::ReadOnlyBind)),
            ("tmpfs", 1, one(self.tmpfs, |target| Mount::Tmpfs(target, String::new()))),
            ("size", 1, self.size.into_iter().map(Word::Size).collect()),
            ("perms", 1, self.perms.into_iter().map(Word::Mode).collect()),
            ("proc", 1, one(self.proc, Mount::Proc)),
            ("dev", 1, one(self.dev, Mount::Devices)),
            ("overlay_src", 1, self.overlay_src.into_iter().map(Word::Source).collect()),
            ("overlay", 3, self.overlay.chunks_exact(3).map(overlay).collect()),
            ("ro_overlay", 1, one(self.ro_overlay, |target| Mount::Overlay(Vec::new(), None, target))),
            ("dir", 1, one(self.dir, |target| Mount::Directory(target, 0o755))),
            ("symlink", 2, two(&self.symlink, Mount::Symlink)),
            ("remount_ro", 1, one(self.remount_ro, read_only)),
            ("remount", 2, self.remount.chunks_exact(2).map(remount).collect::<Result<_, _>>()?),
            ("mount", 3, self.mount.chunks_exact(3).map(file_system).collect::<Result<_, _>>()?),
            ("attach_mount", 2, self.attach_mount.chunks_exact(2).map(attach).collect::<Result<_, _>>()?),
            ("umount", 1, one(self.umount, Mount::Unmount)),
        ])
    }
}

/// Gives each mount what was said of it before it.
fn with_what_was_said(words: impl Iterator<Item = Word>) -> Result<Vec<Mount>, String> {
    let mut mounts = Vec::new();
    let (mut size, mut mode, mut sources) = (None, None, Vec::new());
    for word in words {
        let mut mount = match word {
            Word::Size(bytes) => {
                size = Some(bytes);
                continue;
            }
            Word::Mode(bits) => {
                mode = Some(bits);
                continue;
            }
            Word::Source(path) => {
                sources.push(path);
                continue;
            }
            Word::Mount(mount) => mount,
        };
        match &mut mount {
            Mount::Tmpfs(_, options) => {
                let size = size.take().map(|bytes| format!("size={bytes}"));
                let mode = mode.take().map(|mode| format!("mode={mode:o}"));
                *options = size.into_iter().chain(mode).collect::<Vec<_>>().join(",");
            }
            Mount::Directory(_, bits) => *bits = mode.take().unwrap_or(*bits),
            Mount::Overlay(lower, upper, _) => {
                // The kernel wants the topmost first.
                *lower = sources.drain(..).rev().collect();
                if lower.len() < if upper.is_some() { 1 } else { 2 } {
                    return Err("--overlay needs an --overlay-src before it, and --ro-overlay two of them".to_owned());
                }
            }
            _ => {}
        }
        check_all_was_of_it(size, mode, &sources)?;
        mounts.push(mount);
    }
    check_all_was_of_it(size, mode, &sources)?;
    Ok(mounts)
}

/// What nobody takes was meant for something else.
fn check_all_was_of_it(size: Option<u64>, mode: Option<u32>, sources: &[PathBuf]) -> Result<(), String> {
    if size.is_some() {
        return Err("--size is to be followed by a --tmpfs".to_owned());
    }
    if mode.is_some() {
        return Err("--perms is to be followed by a --tmpfs or --dir".to_owned());
    }
    if !sources.is_empty() {
        return Err("--overlay-src is to be followed by an --overlay or --ro-overlay".to_owned());
    }
    Ok(())
}

/// mount(8)'s words for attributes of a mount, as they are set and cleared.
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
                return Err(format!("--remount: {word:?} is none of {known}"));
            }
        }
    }
    if set & clear != 0 {
        return Err(format!("--remount: {:?} says something and its opposite", words[0]));
    }
    // How times of access are kept is one choice of several, of which the old one has to be cleared: mount_setattr(2).
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

fn text<'a>(flag: &str, word: &'a OsString) -> Result<&'a str, String> {
    word.to_str().ok_or_else(|| format!("{flag}: {:?} is no text", Path::new(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounts(words: &str) -> Result<Vec<Mount>, String> {
        let command = Mounts::augment_args(clap::Command::new("x"));
        let matches = command.try_get_matches_from(words.split(' ')).expect("words");
        Mounts::from_arg_matches(&matches).map(|found| found.mounts).map_err(|error| error.to_string())
    }

    fn path(text: &str) -> PathBuf {
        PathBuf::from(text)
    }

    #[test]
    fn the_order_is_that_of_the_command_line() {
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
    fn what_is_said_before_a_mount_is_of_that_one() {
        let words = "x --perms 700 --size 1M --tmpfs /a --tmpfs /b --perms 1777 --dir /c --dir /d --overlay-src /e \
                     --overlay-src /f --ro-overlay /g --overlay-src /h --overlay /i /j /k";
        let wanted = [
            Mount::Tmpfs(path("/a"), "size=1048576,mode=700".to_owned()),
            Mount::Tmpfs(path("/b"), String::new()),
            Mount::Directory(path("/c"), 0o1777),
            Mount::Directory(path("/d"), 0o755),
            Mount::Overlay(vec![path("/f"), path("/e")], None, path("/g")),
            Mount::Overlay(vec![path("/h")], Some((path("/i"), path("/j"))), path("/k")),
        ];
        assert_eq!(mounts(words).as_deref(), Ok(&wanted[..]));
        for (words, flag) in [
            ("x --size 1M", "--size"),
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
    fn options_are_those_of_mount() {
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
