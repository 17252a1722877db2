//! Who the program is: named as setpriv(1) and systemd-run(1) name theirs.

use std::{
    ffi::{OsStr, OsString},
    fmt::Display,
};

use clap::Args;
use forkless::Command;
use nix::unistd::{Group, User};

use super::super::{failure::Failure, parse::octal};

// No doc comment: clap would take it for the description of `forkless run`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Identity")]
pub(crate) struct Identity {
    /// Run as this user, with its group and supplementary groups unless others are given; an id without a user
    /// entry gets no supplementary groups
    #[arg(long, visible_alias = "user", value_name = "NAME|UID")]
    reuid: Option<OsString>,

    /// Run as this group; without --reuid, one of the options for supplementary groups is needed
    #[arg(long, visible_alias = "group", value_name = "NAME|GID")]
    regid: Option<OsString>,

    /// Have these supplementary groups
    #[arg(long, value_name = "NAME|GID,...", value_delimiter = ',', value_parser = group_id)]
    groups: Vec<u32>,

    /// Have no supplementary groups
    #[arg(long, conflicts_with_all = ["groups", "init_groups"])]
    clear_groups: bool,

    /// Have the user's supplementary groups, which is the default with --reuid
    #[arg(long, requires = "reuid", conflicts_with = "groups")]
    init_groups: bool,

    /// Keep our supplementary groups
    #[arg(long, conflicts_with_all = ["groups", "init_groups", "clear_groups"])]
    keep_groups: bool,

    /// Take these bits off the modes of new files
    #[arg(long, value_name = "OCTAL", value_parser = |word: &str| octal(word, 0o777))]
    umask: Option<u32>,
}

impl Identity {
    pub(crate) fn apply(&self, command: &mut Command) -> Result<(), Failure> {
        if let Some(user) = &self.reuid {
            self.set_user(command, user)?;
        }
        if let Some(group) = &self.regid {
            command.group_name(group);
        }
        let says = self.clear_groups || self.keep_groups || !self.groups.is_empty();
        if self.clear_groups || !self.groups.is_empty() {
            command.groups(&self.groups);
        }
        if self.regid.is_some() && self.reuid.is_none() && !says {
            // As setpriv: whoever gives up a group does not mean to keep the others unseen.
            return Err(Failure::before("--regid needs --reuid, --clear-groups, --groups or --keep-groups"));
        }
        if let Some(mask) = self.umask {
            command.umask(mask);
        }
        Ok(())
    }

    /// The user, and which groups come with it. None of ours ever stays unless that was said.
    fn set_user(&self, command: &mut Command, name: &OsStr) -> Result<(), Failure> {
        let failed = |error: &dyn Display| Failure::before(format_args!("--reuid: {name:?}: {error}"));
        let text = name.to_str().unwrap_or_default();
        let named = User::from_name(text).map_err(|error| failed(&error))?;
        let uid = named.as_ref().map(|user| user.uid.as_raw()).or_else(|| text.parse().ok());
        let known = match (named, uid) {
            (None, Some(uid)) => User::from_uid(uid.into()).map_err(|error| failed(&error))?,
            (named, _) => named,
        };
        match (known, uid) {
            (Some(user), _) if self.keep_groups => {
                // As root a change of user alone would drop them, so they are named.
                command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
                keep_groups(command).map_err(|error| failed(&error))?;
            }
            (None, Some(uid)) if self.keep_groups => {
                command.uid(uid);
                keep_groups(command).map_err(|error| failed(&error))?;
            }
            (None, Some(_)) if self.init_groups => return Err(failed(&"no such user, whose groups could be had")),
            (None, Some(uid)) => _ = command.uid(uid).groups(&[]),
            // By name, so that what is wrong with it is told there.
            _ => _ = command.user(name),
        }
        Ok(())
    }
}

/// Names our supplementary groups where a change of user would drop them.
fn keep_groups(command: &mut Command) -> std::io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let groups: Vec<u32> = rustix::process::getgroups()?.into_iter().map(|group| group.as_raw()).collect();
        command.groups(&groups);
    }
    Ok(())
}

/// A group by name or number; names come first, as everywhere.
fn group_id(word: &str) -> Result<u32, String> {
    match Group::from_name(word) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => word.parse().map_err(|_| format!("there is no group {word:?}")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_by_name_and_number() {
        assert_eq!(group_id("root"), Ok(0));
        assert_eq!(group_id("4242"), Ok(4242));
        assert!(group_id("no-such-group").is_err());
        assert!(group_id("-1").is_err());
    }
}
