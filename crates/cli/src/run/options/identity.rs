//! User, groups and umask of the program. The options have the names of setpriv(1) and systemd-run(1).

use std::{
    ffi::{OsStr, OsString},
    fmt::Display,
};

use clap::{
    Args,
    builder::{OsStringValueParser, TypedValueParser},
};
use forkless::Command;
use nix::unistd::{Group, User};

use super::super::{
    failure::Failure,
    parse::{octal, split},
};
use crate::near::did_you_mean;

// No doc comment: clap would take it for the description of `forkless run`.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Identity")]
pub(crate) struct Identity {
    /// Run as this user, and in GROUP or its own group
    ///
    /// Names and numbers are accepted. The user's supplementary groups are set, unless others are given; a number without
    /// a user entry gets none.
    #[arg(long, visible_aliases = ["user", "uid"], value_name = "USER[:GROUP]",
          value_parser = OsStringValueParser::new().try_map(user))]
    reuid: Option<NewUser>,

    /// Run as this group; without --reuid, also requires an option for supplementary groups
    #[arg(long, visible_aliases = ["group", "gid"], value_name = "NAME|GID")]
    regid: Option<OsString>,

    /// Set these supplementary groups
    #[arg(long, value_name = "NAME|GID,...", value_delimiter = ',', value_parser = group_id)]
    groups: Vec<u32>,

    /// Drop all supplementary groups
    #[arg(long, conflicts_with_all = ["groups", "init_groups"])]
    clear_groups: bool,

    /// Set the supplementary groups of the user (default with --reuid)
    #[arg(long, requires = "reuid", conflicts_with = "groups")]
    init_groups: bool,

    /// Keep the current supplementary groups
    #[arg(long, conflicts_with_all = ["groups", "init_groups", "clear_groups"])]
    keep_groups: bool,

    /// Set the file mode creation mask (default: inherit it)
    #[arg(long, value_name = "OCTAL", value_parser = |word: &str| octal(word, 0o777))]
    umask: Option<u32>,
}

/// `USER[:GROUP]`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NewUser {
    name: OsString,
    group: Option<OsString>,
}

fn user(word: OsString) -> Result<NewUser, String> {
    let (name, group) = match split(&word, b':') {
        Some((name, group)) => (name, Some(group)),
        None => (word, None),
    };
    if name.is_empty() || group.as_ref().is_some_and(|group| group.is_empty()) {
        return Err("must be USER or USER:GROUP".to_owned());
    }
    Ok(NewUser { name, group })
}

/// The IDs of a sandboxed program, inside as outside. No other ones exist in its user namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

impl Identity {
    /// The user given, for messages.
    pub(crate) fn name(&self) -> Option<&OsStr> {
        self.reuid.as_ref().map(|user| user.name.as_os_str())
    }

    pub(crate) fn apply(&self, command: &mut Command) -> Result<(), Failure> {
        let group_of_user = self.reuid.as_ref().and_then(|user| user.group.as_ref());
        if let (Some(group), Some(other)) = (group_of_user, &self.regid) {
            return Err(excludes(group, other));
        }
        if let Some(NewUser { name, .. }) = &self.reuid {
            self.set_user(command, name, group_of_user.or(self.regid.as_ref()).is_some())?;
        }
        if let Some(group) = group_of_user.or(self.regid.as_ref()) {
            command.group_name(group);
        }
        let says = self.clear_groups || self.keep_groups || !self.groups.is_empty();
        if self.clear_groups || !self.groups.is_empty() {
            command.groups(&self.groups);
        }
        if self.regid.is_some() && self.reuid.is_none() && !says {
            // As setpriv(1): a program that drops its group would otherwise silently keep the supplementary groups.
            return Err(Failure::before("--regid requires --reuid, --clear-groups, --groups or --keep-groups"));
        }
        self.set_umask(command);
        Ok(())
    }

    pub(crate) fn set_umask(&self, command: &mut Command) {
        if let Some(mask) = self.umask {
            command.umask(mask);
        }
    }

    /// The IDs of a sandboxed program, which are looked up outside of the sandbox. None: none are given.
    pub(crate) fn outside(&self) -> Result<Option<Ids>, Failure> {
        let is_root = rustix::process::geteuid().is_root();
        if self.clear_groups && !is_root {
            return Err(Failure::before("--sandbox: only root may use --clear-groups"));
        }
        if self.init_groups {
            return Err(Failure::before("--sandbox: --init-groups is not supported; list the groups with --groups"));
        }
        if self.reuid.is_none() && self.regid.is_none() && self.groups.is_empty() && !self.keep_groups {
            return Ok(None);
        }
        let Some(NewUser { name, group: group_of_user }) = &self.reuid else {
            return Err(Failure::before("--sandbox: --regid, --groups and --keep-groups require --reuid"));
        };
        if !is_root || self.keep_groups {
            let why = if self.keep_groups { "--keep-groups is not supported" } else { "only root may use --reuid" };
            return Err(Failure::before(format_args!("--sandbox: {why}")));
        }
        let failed = |error: &dyn Display| Failure::before(format_args!("--reuid: {name:?}: {error}"));
        let text = name.to_str().unwrap_or_default();
        let named = User::from_name(text).map_err(|error| failed(&error))?;
        let uid = named.as_ref().map(|user| user.uid.as_raw()).or_else(|| text.parse().ok());
        let uid = uid.ok_or_else(|| failed(&"no such user"))?;
        let known =
            named.map_or_else(|| User::from_uid(uid.into()), |user| Ok(Some(user))).map_err(|error| failed(&error))?;
        if let (Some(group), Some(other)) = (group_of_user, &self.regid) {
            return Err(excludes(group, other));
        }
        let gid = match group_of_user.as_ref().or(self.regid.as_ref()) {
            Some(group) => group_id(group.to_str().unwrap_or_default())
                .map_err(|why| Failure::before(format_args!("--regid: {why}")))?,
            None => known.ok_or_else(|| failed(&NO_ENTRY))?.gid.as_raw(),
        };
        Ok(Some(Ids { uid, gid, groups: self.groups.clone() }))
    }

    /// Sets the user and the groups that come with it. Current groups are kept only with `--keep-groups`.
    fn set_user(&self, command: &mut Command, name: &OsStr, has_group: bool) -> Result<(), Failure> {
        let failed = |error: &dyn Display| Failure::before(format_args!("--reuid: {name:?}: {error}"));
        let text = name.to_str().unwrap_or_default();
        let named = User::from_name(text).map_err(|error| failed(&error))?;
        let uid = named.as_ref().map(|user| user.uid.as_raw()).or_else(|| text.parse().ok());
        let known = match (named, uid) {
            (None, Some(uid)) => User::from_uid(uid.into()).map_err(|error| failed(&error))?,
            (named, _) => named,
        };
        match (known, uid) {
            // It would silently keep the group of forkless.
            (None, Some(_)) if !has_group => {
                return Err(failed(&NO_ENTRY));
            }
            (Some(user), _) if self.keep_groups => {
                // A change of user alone drops the groups if forkless is root, so they are set explicitly.
                command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
                keep_groups(command).map_err(|error| failed(&error))?;
            }
            (None, Some(uid)) if self.keep_groups => {
                command.uid(uid);
                keep_groups(command).map_err(|error| failed(&error))?;
            }
            (None, Some(_)) if self.init_groups => {
                return Err(failed(&"no user entry, which --init-groups needs; use --groups or --clear-groups"));
            }
            (None, Some(uid)) => _ = command.uid(uid).groups(&[]),
            // By name: the library then reports what is wrong with it.
            _ => _ = command.user(name),
        }
        Ok(())
    }
}

const NO_ENTRY: &str = "no user entry, so --regid is needed";

fn excludes(group: &OsStr, other: &OsStr) -> Failure {
    Failure::before(format_args!("--reuid: group {group:?} excludes --regid {other:?}"))
}

/// Sets the current supplementary groups explicitly if a change of user would drop them.
fn keep_groups(command: &mut Command) -> std::io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let groups: Vec<u32> = rustix::process::getgroups()?.into_iter().map(|group| group.as_raw()).collect();
        command.groups(&groups);
    }
    Ok(())
}

/// A group by name or number. Names take precedence, as in chown(1).
fn group_id(word: &str) -> Result<u32, String> {
    match Group::from_name(word) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => word.parse().map_err(|_| format!("no group {word:?}{}", did_you_mean(word, names("/etc/group")))),
        Err(error) => Err(error.to_string()),
    }
}

/// The names of a file such as /etc/passwd, to suggest one.
pub(crate) fn names(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| line.split(':').next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_may_have_a_group() {
        let new = |name: &str, group: Option<&str>| Ok(NewUser { name: name.into(), group: group.map(Into::into) });
        assert_eq!(user("www-data".into()), new("www-data", None));
        assert_eq!(user("1000:100".into()), new("1000", Some("100")));
        for word in ["", ":", "root:", ":root"] {
            assert!(user(word.into()).is_err(), "{word}");
        }
    }

    #[test]
    fn group_id_accepts_names_and_numbers() {
        assert_eq!(group_id("root"), Ok(0));
        assert_eq!(group_id("4242"), Ok(4242));
        assert!(group_id("no-such-group").is_err());
        assert!(group_id("-1").is_err());
    }
}
