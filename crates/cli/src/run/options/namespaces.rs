//! Namespaces: named as unshare(1), nsenter(1) and bwrap(1) name theirs.

use std::{ffi::OsString, path::PathBuf};

use clap::{
    Args,
    builder::{OsStringValueParser, TypedValueParser},
};
use forkless::{Command, Namespace};

use super::super::{failure::Failure, parse};

// No doc comment: clap would take it for the description of `forkless run`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Namespaces")]
pub(crate) struct Namespaces {
    /// New user namespace, with our ids as they are unless a map is given; lets an ordinary user make the others
    #[arg(long)]
    unshare_user: bool,

    /// New process ids: the program is process 1, and signals that it does not handle, but KILL, pass it by
    #[arg(long)]
    unshare_pid: bool,

    /// New network, with nothing but a loopback device that is down
    #[arg(long)]
    unshare_net: bool,

    /// New mounts; so it is anyway with an option that mounts
    #[arg(long)]
    unshare_mount: bool,

    /// New host name
    #[arg(long)]
    unshare_uts: bool,

    /// New System V IPC and message queues
    #[arg(long)]
    unshare_ipc: bool,

    /// New control-group root
    #[arg(long)]
    unshare_cgroup: bool,

    /// New clocks of boot and uptime
    #[arg(long)]
    unshare_time: bool,

    /// All of these but time
    #[arg(long)]
    unshare_all: bool,

    /// Be root in a new user namespace
    #[arg(long, conflicts_with = "map_current_user")]
    map_root_user: bool,

    /// Be who we are in a new user namespace
    #[arg(long)]
    map_current_user: bool,

    /// Map user ids of a new user namespace
    #[arg(long, value_name = "IN:OUT:COUNT", value_parser = parse::id_map)]
    map_users: Vec<[u32; 3]>,

    /// Map group ids of a new user namespace
    #[arg(long, value_name = "IN:OUT:COUNT", value_parser = parse::id_map)]
    map_groups: Vec<[u32; 3]>,

    /// Join a namespace, such as net=/proc/PID/ns/net: user, mount, net, uts, ipc or cgroup, in
    /// the order given; or pid, which needs privileges in our own user namespace
    #[arg(long, value_name = "KIND=PATH", value_parser = OsStringValueParser::new().try_map(join))]
    join: Vec<Join>,

    /// Host name in a new UTS namespace
    #[arg(long, value_name = "NAME")]
    hostname: Option<OsString>,
}

/// A namespace to join.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Join {
    kind: Namespace,
    path: PathBuf,
}

/// The word for each kind, in the order of clone's line in `--explain`.
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
    /// `mounts`: there are options that mount, which need a namespace to do it in.
    pub(crate) fn apply(&self, command: &mut Command, mounts: bool) -> Result<(), Failure> {
        let made = self.made(mounts);
        if let Some((_, name)) = KINDS.iter().find(|(kind, _)| made.contains(kind) && self.joins(*kind)) {
            let why = if *name == "mount" { ", and mounts need a new one" } else { "" };
            let words = format_args!("--join {name}=PATH excludes a new {name} namespace{why}");
            return Err(Failure::before(words));
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
            if !made.contains(&Namespace::Uts) && !self.joins(Namespace::Uts) {
                let words = "--hostname needs --unshare-uts or --join uts=PATH, since it would be everybody's name";
                return Err(Failure::before(words));
            }
            command.hostname(name);
        }
        Ok(())
    }

    fn joins(&self, kind: Namespace) -> bool {
        self.join.iter().any(|join| join.kind == kind)
    }

    /// The kinds that the program has new ones of.
    fn made(&self, mounts: bool) -> Vec<Namespace> {
        let asked = |kind| match kind {
            Namespace::User => self.makes_user(),
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

    /// The program has another user namespace than we, in which it has every capability to begin with.
    pub(crate) fn changes_user(&self) -> bool {
        self.makes_user() || self.joins(Namespace::User)
    }

    fn makes_user(&self) -> bool {
        let maps = self.map_root_user || self.map_current_user;
        maps || self.unshare_user || self.unshare_all || !self.map_users.is_empty() || !self.map_groups.is_empty()
    }

    /// The id maps of users and of groups.
    fn maps(&self) -> (Vec<[u32; 3]>, Vec<[u32; 3]>) {
        let (mut users, mut groups) = (self.map_users.clone(), self.map_groups.clone());
        // As bwrap: a namespace in which we are nobody is what nobody wants.
        let keep = self.map_current_user || self.makes_user() && users.is_empty() && groups.is_empty();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if self.map_root_user {
            users.push([0, uid, 1]);
            groups.push([0, gid, 1]);
        } else if keep {
            users.push([uid, uid, 1]);
            groups.push([gid, gid, 1]);
        }
        (users, groups)
    }

    /// What the clone itself does, for `--explain`.
    pub(crate) fn words(&self, mounts: bool, how: &str) -> String {
        let made = self.made(mounts);
        // A time namespace is made by a step of the child.
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
                words += &format!("; {what} {inside} in there is {outside} out here");
            }
        }
        words
    }
}

/// `count` ids from the first on.
fn range(first: u32, count: u32) -> String {
    if count == 1 { first.to_string() } else { format!("{first} to {}", u64::from(first) + u64::from(count) - 1) }
}

fn join(word: OsString) -> Result<Join, String> {
    let kinds = "the kind must be user, mount, net, pid, uts, ipc or cgroup";
    let (name, path) = parse::split(&word, b'=').ok_or("must be KIND=PATH")?;
    // nsenter's word and that in /proc are both known.
    let name = if name == "mnt" { "mount".into() } else { name };
    let (kind, _) = KINDS.into_iter().find(|(_, word)| name == *word).ok_or(kinds)?;
    if kind == Namespace::Time {
        return Err(format!("a process that shares memory, as the program does until exec, cannot join one; {kinds}"));
    }
    if path.is_empty() {
        return Err("the namespace has no path".to_owned());
    }
    Ok(Join { kind, path: path.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_to_join_have_a_kind_and_a_path() {
        let wanted = Join { kind: Namespace::Mount, path: "/proc/1/ns/mnt".into() };
        assert_eq!(join("mnt=/proc/1/ns/mnt".into()), Ok(wanted));
        for word in ["", "net", "net=", "time=/proc/1/ns/time", "sea=x", "=x"] {
            assert!(join(word.into()).is_err(), "{word}");
        }
    }
}
