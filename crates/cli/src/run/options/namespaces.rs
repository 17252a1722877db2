//! Namespaces. The options have the names of unshare(1), nsenter(1) and bwrap(1).

use std::{ffi::OsString, path::PathBuf};

use clap::{
    Args,
    builder::{OsStringValueParser, TypedValueParser},
};
use forkless::{Command, Namespace};

use super::super::{failure::Failure, parse};
use crate::near::did_you_mean;

// No doc comment: clap would take it for the description of `forkless run`.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Namespaces")]
pub(crate) struct Namespaces {
    /// Create a user namespace, which lets an ordinary user create the others (default map: --map-current-user)
    #[arg(long)]
    unshare_user: bool,

    /// Create a PID namespace; as PID 1, the program is not affected by signals that it does not handle, except KILL
    #[arg(long)]
    unshare_pid: bool,

    /// Create a network namespace, with only a loopback device, which is down
    #[arg(long, conflicts_with = "share_net")]
    unshare_net: bool,

    /// Create a mount namespace (default with any option that mounts)
    #[arg(long)]
    unshare_mount: bool,

    /// Create a UTS namespace: host name and domain name
    #[arg(long)]
    unshare_uts: bool,

    /// Create an IPC namespace: System V IPC and POSIX message queues
    #[arg(long)]
    unshare_ipc: bool,

    /// Create a cgroup namespace
    #[arg(long)]
    unshare_cgroup: bool,

    /// Create a time namespace: the monotonic and boot-time clocks
    #[arg(long, conflicts_with = "sandbox")]
    unshare_time: bool,

    /// Create all of these namespaces except time
    #[arg(long)]
    pub(crate) unshare_all: bool,

    /// Create a user namespace in which the current user and group are root
    #[arg(long, conflicts_with_all = ["sandbox", "map_current_user"])]
    map_root_user: bool,

    /// Create a user namespace in which the current user and group keep their IDs
    #[arg(long, conflicts_with = "sandbox")]
    map_current_user: bool,

    /// Create a user namespace that maps COUNT user IDs from IN inside to OUT outside
    #[arg(long, value_name = "IN:OUT:COUNT", value_parser = parse::id_map, conflicts_with = "sandbox")]
    map_users: Vec<[u32; 3]>,

    /// Create a user namespace that maps COUNT group IDs from IN inside to OUT outside
    #[arg(long, value_name = "IN:OUT:COUNT", value_parser = parse::id_map, conflicts_with = "sandbox")]
    map_groups: Vec<[u32; 3]>,

    /// Join the namespace at PATH, such as net=/proc/PID/ns/net
    ///
    /// KIND is user, mount, net, uts, ipc, cgroup or pid. Namespaces are joined in the order given. pid requires
    /// privileges in the current user namespace.
    #[arg(long, value_name = "KIND=PATH", value_parser = OsStringValueParser::new().try_map(join), conflicts_with = "sandbox")]
    join: Vec<Join>,

    /// Set the host name in the UTS namespace of --unshare-uts or --join
    #[arg(long, value_name = "NAME")]
    hostname: Option<OsString>,
}

/// A namespace to join.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Join {
    kind: Namespace,
    path: PathBuf,
}

/// The name of each kind, in the order in which `--explain` lists them.
const KINDS: [(Namespace, &str); 8] = [
    (Namespace::User, "user"),
    (Namespace::Mount, "mount"),
    (Namespace::Network, "net"),
    (Namespace::Pid, "pid"),
    (Namespace::Uts, "uts"),
    (Namespace::Ipc, "ipc"),
    (Namespace::Cgroup, "cgroup"),
    (Namespace::Time, "time"),
];

impl Namespaces {
    /// `mounts`: some option mounts, which requires a mount namespace.
    pub(crate) fn apply(&self, command: &mut Command, mounts: bool) -> Result<(), Failure> {
        let made = self.made(mounts);
        if let Some((_, name)) = KINDS.iter().find(|(kind, _)| made.contains(kind) && self.has_joined(*kind)) {
            let why = if *name == "mount" { ", which options that mount create" } else { "" };
            return Err(Failure::before(format_args!("--join {name}=PATH excludes a new {name} namespace{why}")));
        }
        for kind in &made {
            command.unshare(*kind);
        }
        let (users, groups) = self.maps();
        for [inside, outside, count] in users {
            command.map_uid(inside, outside, count);
        }
        for [inside, outside, count] in groups {
            command.map_gid(inside, outside, count);
        }
        for Join { kind, path } in &self.join {
            command.join(*kind, super::super::failure::open("--join", path)?);
        }
        if let Some(name) = &self.hostname {
            if !made.contains(&Namespace::Uts) && !self.has_joined(Namespace::Uts) {
                let words = "--hostname requires --unshare-uts or --join uts=PATH: it would rename the whole system";
                return Err(Failure::before(words));
            }
            command.hostname(name);
        }
        Ok(())
    }

    pub(crate) fn hostname(&self) -> Option<&OsString> {
        self.hostname.as_ref()
    }

    pub(crate) fn has_joined(&self, kind: Namespace) -> bool {
        self.join.iter().any(|join| join.kind == kind)
    }

    /// The kinds of namespaces to create.
    fn made(&self, mounts: bool) -> Vec<Namespace> {
        let asked = |kind| match kind {
            Namespace::User => self.has_new_user_namespace(),
            Namespace::Mount => self.unshare_mount || self.unshare_all || mounts,
            Namespace::Network => self.unshare_net || self.unshare_all,
            Namespace::Pid => self.unshare_pid || self.unshare_all,
            Namespace::Uts => self.unshare_uts || self.unshare_all,
            Namespace::Ipc => self.unshare_ipc || self.unshare_all,
            Namespace::Cgroup => self.unshare_cgroup || self.unshare_all,
            Namespace::Time => self.unshare_time,
        };
        KINDS.map(|(kind, _)| kind).into_iter().filter(|kind| asked(*kind)).collect()
    }

    /// Is the program in another user namespace than forkless? It then starts with all capabilities.
    pub(crate) fn is_in_user_namespace(&self) -> bool {
        self.has_new_user_namespace() || self.has_joined(Namespace::User)
    }

    /// Is the program in another PID namespace than forkless?
    pub(crate) fn is_in_pid_namespace(&self) -> bool {
        self.unshare_pid || self.unshare_all || self.has_joined(Namespace::Pid)
    }

    /// Is the program in another time namespace than forkless?
    pub(crate) fn is_in_time_namespace(&self) -> bool {
        self.unshare_time
    }

    /// Does the program need ID maps?
    pub(crate) fn has_maps(&self) -> bool {
        self.has_new_user_namespace()
    }

    fn has_new_user_namespace(&self) -> bool {
        let maps = self.map_root_user || self.map_current_user;
        maps || self.unshare_user || self.unshare_all || !self.map_users.is_empty() || !self.map_groups.is_empty()
    }

    /// The ID maps of users and of groups.
    fn maps(&self) -> (Vec<[u32; 3]>, Vec<[u32; 3]>) {
        let (mut users, mut groups) = (self.map_users.clone(), self.map_groups.clone());
        // As bwrap(1): without a map, the program would run as the overflow user (nobody).
        let keep = self.map_current_user || self.has_new_user_namespace() && users.is_empty() && groups.is_empty();
        if self.map_root_user || keep {
            let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            let inside = |id| if self.map_root_user { 0 } else { id };
            users.push([inside(uid), uid, 1]);
            groups.push([inside(gid), gid, 1]);
        }
        (users, groups)
    }

    /// Describes what the clone does, for `--explain`.
    pub(crate) fn describe(&self, mounts: bool, how: &str) -> String {
        let made = self.made(mounts);
        // The child creates a time namespace in a step of its own, which `--explain` lists.
        let born: Vec<_> = KINDS.iter().filter(|(kind, _)| made.contains(kind) && *kind != Namespace::Time).collect();
        let mut words = how.to_owned();
        if !born.is_empty() {
            let names: Vec<_> = born.iter().map(|(_, name)| *name).collect();
            words += &format!("; new namespaces: {}", names.join(", "));
        }
        let (users, groups) = self.maps();
        for (what, maps) in [("user", users), ("group", groups)] {
            for [inside, outside, count] in maps {
                let (inside, outside) = (range(inside, count), range(outside, count));
                words += &format!("; {what} {inside} inside is {outside} outside");
            }
        }
        words
    }
}

/// `count` IDs starting at `first`.
fn range(first: u32, count: u32) -> String {
    if count == 1 { first.to_string() } else { format!("{first} to {}", u64::from(first) + u64::from(count) - 1) }
}

fn join(word: OsString) -> Result<Join, String> {
    let kinds = "the kind must be user, mount, net, pid, uts, ipc or cgroup";
    let (name, path) = parse::split(&word, b'=').ok_or("must be KIND=PATH, such as net=/proc/PID/ns/net")?;
    // nsenter(1) says mount, /proc says mnt: both are accepted.
    let name = if name == "mnt" { "mount".into() } else { name };
    if name == "time" {
        return Err(format!("a child that shares memory cannot join a time namespace; {kinds}"));
    }
    let mut joinable = KINDS.into_iter().filter(|(kind, _)| *kind != Namespace::Time);
    let near = did_you_mean(&name.to_string_lossy(), joinable.clone().map(|(_, word)| word));
    let (kind, _) = joinable.find(|(_, word)| name == *word).ok_or_else(|| format!("{kinds}{near}"))?;
    if path.is_empty() {
        return Err("must be KIND=PATH: the path is empty".to_owned());
    }
    Ok(Join { kind, path: path.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_requires_a_kind_and_a_path() {
        let wanted = Join { kind: Namespace::Mount, path: "/proc/1/ns/mnt".into() };
        assert_eq!(join("mnt=/proc/1/ns/mnt".into()), Ok(wanted));
        for word in ["", "net", "net=", "time=/proc/1/ns/time", "sea=x", "=x"] {
            assert!(join(word.into()).is_err(), "{word}");
        }
        // No namespace is suggested that cannot be joined.
        let suggests = |word: &str| join(word.into()).is_err_and(|why| why.contains("did you mean"));
        assert!(suggests("nett=/x") && !suggests("tim=/x"));
    }
}
