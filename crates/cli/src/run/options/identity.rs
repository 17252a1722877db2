//! Who the program is: named as setpriv(1) and systemd-run(1) name theirs.

use std::ffi::OsString;

use clap::Args;
use forkless::Command;

use super::super::words::octal;

// No doc comment: clap would take it for the description of `forkless run`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Identity")]
pub(crate) struct Identity {
    /// Run as this user, with its groups unless others are given
    #[arg(long, visible_alias = "user", value_name = "NAME|UID")]
    reuid: Option<OsString>,

    /// Run as this group
    #[arg(long, visible_alias = "group", value_name = "NAME|GID")]
    regid: Option<OsString>,

    /// Have these supplementary groups
    #[arg(long, value_name = "NAME|GID,...", value_delimiter = ',', value_parser = group_id)]
    groups: Vec<u32>,

    /// Have no supplementary groups
    #[arg(long, conflicts_with_all = ["groups", "init_groups"])]
    clear_groups: bool,

    /// Have the user's supplementary groups; so it is anyway with --reuid
    #[arg(long, requires = "reuid", conflicts_with = "groups")]
    init_groups: bool,

    /// Take these bits off the modes of new files
    #[arg(long, value_name = "OCTAL", value_parser = |word: &str| octal(word, 0o777))]
    umask: Option<u32>,
}

impl Identity {
    pub(crate) fn apply(&self, command: &mut Command) {
        if let Some(user) = &self.reuid {
            command.user(user);
        }
        if let Some(group) = &self.regid {
            command.group_name(group);
        }
        if self.clear_groups || !self.groups.is_empty() {
            command.groups(&self.groups);
        }
        if let Some(mask) = self.umask {
            command.umask(mask);
        }
    }
}

/// A group by name or number; names come first, as everywhere.
fn group_id(word: &str) -> Result<u32, String> {
    match nix::unistd::Group::from_name(word) {
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
