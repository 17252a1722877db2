//! What the program finds in its file system: named as bwrap(1) names theirs.

use std::path::PathBuf;

use clap::{ArgMatches, Args, FromArgMatches};
use forkless::Command;

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

    /// Have an empty file system in memory at DST
    #[arg(long, value_name = "DST")]
    tmpfs: Vec<PathBuf>,

    /// Have the processes of a new --unshare-pid at DST
    #[arg(long, value_name = "DST")]
    proc: Vec<PathBuf>,

    /// Make what is mounted at DST by then read-only, with all that is mounted below
    #[arg(long, value_name = "DST")]
    remount_ro: Vec<PathBuf>,

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
    Tmpfs(PathBuf),
    Proc(PathBuf),
    ReadOnly(PathBuf),
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

    pub(crate) fn apply(&self, command: &mut Command) {
        for mount in &self.mounts {
            match mount {
                Mount::Bind(source, target) => command.bind(source, target),
                Mount::ReadOnlyBind(source, target) => command.bind_read_only(source, target),
                Mount::Tmpfs(target) => command.tmpfs(target, ""),
                Mount::Proc(target) => command.proc(target),
                Mount::ReadOnly(target) => command.read_only(target),
            };
        }
        if let Some(root) = &self.pivot_root {
            command.pivot_root(root);
        }
        if let Some(root) = &self.chroot {
            command.chroot(root);
        }
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
        let Flags { bind, ro_bind, tmpfs, proc, remount_ro, pivot_root, chroot } = Flags::from_arg_matches(matches)?;
        let pair = |new: fn(PathBuf, PathBuf) -> Mount| move |two: &[PathBuf]| new(two[0].clone(), two[1].clone());
        let groups: [(&str, usize, Vec<Mount>); 5] = [
            ("bind", 2, bind.chunks_exact(2).map(pair(Mount::Bind)).collect()),
            ("ro_bind", 2, ro_bind.chunks_exact(2).map(pair(Mount::ReadOnlyBind)).collect()),
            ("tmpfs", 1, tmpfs.into_iter().map(Mount::Tmpfs).collect()),
            ("proc", 1, proc.into_iter().map(Mount::Proc).collect()),
            ("remount_ro", 1, remount_ro.into_iter().map(Mount::ReadOnly).collect()),
        ];
        let mut placed: Vec<(usize, Mount)> = Vec::new();
        for (id, values, mounts) in groups {
            // clap counts values, so an option with two has two places.
            let places = matches.indices_of(id).into_iter().flatten().step_by(values);
            placed.extend(places.zip(mounts));
        }
        placed.sort_by_key(|(place, _)| *place);
        Ok(Self { mounts: placed.into_iter().map(|(_, mount)| mount).collect(), pivot_root, chroot })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_command_line() {
        let words = "x --tmpfs /a --bind /b /c --remount-ro /d --tmpfs /e --ro-bind /f /g --bind /h /i --proc /j";
        let command = Mounts::augment_args(clap::Command::new("x"));
        let mounts = Mounts::from_arg_matches(&command.get_matches_from(words.split(' '))).expect("mounts").mounts;
        let path = PathBuf::from;
        let wanted = [
            Mount::Tmpfs(path("/a")),
            Mount::Bind(path("/b"), path("/c")),
            Mount::ReadOnly(path("/d")),
            Mount::Tmpfs(path("/e")),
            Mount::ReadOnlyBind(path("/f"), path("/g")),
            Mount::Bind(path("/h"), path("/i")),
            Mount::Proc(path("/j")),
        ];
        assert_eq!(mounts, wanted);
    }
}
