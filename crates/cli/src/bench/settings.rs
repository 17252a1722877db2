//! Settings of the child that the bench launches with, who can do them, and the proof that they were done.

use std::{
    ffi::CString,
    fmt::Write,
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use forkless::{BpfInstruction, Cgroup, Command, Namespace, Resource};
use serde::{Deserialize, Serialize};

use super::{
    conditions::Condition,
    contestants::{Contestant, Job},
    program::Program,
};

/// What is asked for beside the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Setting {
    /// Nothing.
    #[default]
    None,
    /// Another user and group.
    User,
    /// A user namespace with id maps: what an ordinary user may have instead.
    UserNamespace,
    /// All that is allowed here.
    All,
}

impl Setting {
    /// In words, for headlines.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::None => "no settings",
            Self::User => "change of user",
            Self::UserNamespace => "user namespace",
            Self::All => "all settings",
        }
    }
}

/// One thing that a launcher can do to its child, or cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    Ids,
    UserNamespace,
    Cgroup,
    Limits,
    NoNewPrivs,
    Seccomp,
}

impl Feature {
    /// All of them, in the order of the notes.
    pub(crate) const ALL: [Self; 6] =
        [Self::Ids, Self::UserNamespace, Self::Cgroup, Self::Limits, Self::NoNewPrivs, Self::Seccomp];

    /// Name in the notes and in the greeting of an engine.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ids => "ids",
            Self::UserNamespace => "user-namespace",
            Self::Cgroup => "cgroup",
            Self::Limits => "limits",
            Self::NoNewPrivs => "no-new-privs",
            Self::Seccomp => "seccomp",
        }
    }
}

/// The user and group of the child: nobody's on most systems, but any number will do.
const OTHER_ID: u32 = 65_534;
/// Exit status of the proof for a feature that was not done, plus its number.
const NOT_DONE: u8 = 90;
/// Limits of the child: resource, name of it in C, value.
const LIMITS: [(Resource, u32, u64); 3] = [
    (Resource::Files, libc::RLIMIT_NOFILE, 64),
    (Resource::Core, libc::RLIMIT_CORE, 0),
    (Resource::AddressSpace, libc::RLIMIT_AS, 1 << 30),
];

/// The map of a user namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Map {
    pub(crate) inside: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) count: u32,
    /// An ordinary user must deny `setgroups` to map a group.
    pub(crate) deny_setgroups: bool,
}

/// A setting spelled out for this machine and user, in each of the forms that the contestants want.
pub(crate) struct Wishes {
    /// User and group id of the child.
    pub(crate) id: Option<u32>,
    pub(crate) map: Option<Map>,
    /// Directory of the group, open and by name.
    pub(crate) cgroup: Option<(OwnedFd, PathBuf)>,
    /// Limits, no_new_privs and a filter.
    restricted: bool,
    filter: Vec<libc::sock_filter>,
    limits: Vec<CLimit>,
    c_maps: [CString; 2],
}

/// `struct bench_limit` of `c/settings.c`.
#[repr(C)]
pub(crate) struct CLimit {
    resource: libc::c_uint,
    value: u64,
}

/// `struct bench_wishes` of `c/settings.c`.
#[repr(C)]
pub(crate) struct CWishes {
    change_ids: libc::c_int,
    id: libc::c_uint,
    uid_map: *const libc::c_char,
    gid_map: *const libc::c_char,
    deny_setgroups: libc::c_int,
    cgroup: libc::c_int,
    limits: *const CLimit,
    limit_count: usize,
    filter: *const libc::sock_filter,
    filter_length: u16,
}

impl Wishes {
    /// Nothing is asked for.
    pub(crate) fn none() -> Self {
        Self {
            id: None,
            map: None,
            cgroup: None,
            restricted: false,
            filter: Vec::new(),
            limits: Vec::new(),
            c_maps: [CString::default(), CString::default()],
        }
    }

    fn new(setting: Setting, privileged: bool, cgroup: Option<(OwnedFd, PathBuf)>) -> Self {
        let changes_id = privileged && matches!(setting, Setting::User | Setting::All);
        let maps = matches!(setting, Setting::UserNamespace | Setting::All);
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let map = match privileged {
            // The id of the child must be in the map.
            true => Map { inside: 0, uid: 0, gid: 0, count: OTHER_ID + 1, deny_setgroups: false },
            false => Map { inside: 0, uid, gid, count: 1, deny_setgroups: true },
        };
        let c_map = |outside: u32| CString::new(format!("{} {outside} {}", map.inside, map.count)).unwrap_or_default();
        let restricted = setting == Setting::All;
        Self {
            id: changes_id.then_some(OTHER_ID),
            map: maps.then_some(map),
            cgroup,
            restricted,
            filter: if restricted { filter() } else { Vec::new() },
            limits: LIMITS.iter().map(|&(_, resource, value)| CLimit { resource, value }).collect(),
            c_maps: [c_map(map.uid), c_map(map.gid)],
        }
    }

    /// What is asked for.
    pub(crate) fn features(&self) -> Vec<Feature> {
        let asked = |feature: &Feature| match feature {
            Feature::Ids => self.id.is_some(),
            Feature::UserNamespace => self.map.is_some(),
            Feature::Cgroup => self.cgroup.is_some(),
            Feature::Limits | Feature::NoNewPrivs | Feature::Seccomp => self.restricted,
        };
        Feature::ALL.into_iter().filter(asked).collect()
    }

    /// Asks forkless for it.
    ///
    /// # Errors
    /// When there is no descriptor left for the group's directory, which a `Command` owns.
    pub(crate) fn put_on(&self, command: &mut Command) -> Result<()> {
        if let Some(id) = self.id {
            command.uid(id).gid(id).groups(&[]);
        }
        if let Some(map) = self.map {
            command.unshare(Namespace::User);
            command.map_uid(map.inside, map.uid, map.count).map_gid(map.inside, map.gid, map.count);
        }
        if let Some((directory, _)) = &self.cgroup {
            command.cgroup(directory.try_clone()?);
        }
        if self.restricted {
            for (resource, _, value) in LIMITS {
                command.rlimit(resource, value, value);
            }
            let filter = self.filter.iter().map(|i| BpfInstruction { code: i.code, jt: i.jt, jf: i.jf, k: i.k });
            command.no_new_privs(true).seccomp(filter);
        }
        Ok(())
    }

    /// Limits, by their numbers in C, and the filter as the kernel has it in memory; `None` if they are not asked for.
    pub(crate) fn restrictions(&self) -> Option<(impl Iterator<Item = (u32, u64)>, Vec<u8>)> {
        let bytes = |i: &libc::sock_filter| [&i.code.to_ne_bytes()[..], &[i.jt, i.jf], &i.k.to_ne_bytes()].concat();
        let filter = self.filter.iter().flat_map(bytes).collect();
        self.restricted.then(|| (LIMITS.iter().map(|&(_, resource, value)| (resource, value)), filter))
    }

    /// The same for the contestants of C; `None` if nothing is asked for. Points into `self`.
    pub(crate) fn for_c(&self) -> Option<CWishes> {
        use std::os::fd::AsRawFd;
        if self.features().is_empty() {
            return None;
        }
        let map = |which: usize| if self.map.is_some() { self.c_maps[which].as_ptr() } else { std::ptr::null() };
        Some(CWishes {
            change_ids: self.id.is_some().into(),
            id: self.id.unwrap_or(0),
            uid_map: map(0),
            gid_map: map(1),
            deny_setgroups: self.map.is_some_and(|m| m.deny_setgroups).into(),
            cgroup: self.cgroup.as_ref().map_or(-1, |(directory, _)| directory.as_raw_fd()),
            limits: self.limits.as_ptr(),
            limit_count: if self.restricted { self.limits.len() } else { 0 },
            filter: self.filter.as_ptr(),
            filter_length: u16::try_from(self.filter.len()).unwrap_or(0),
        })
    }

    /// A program that exits with 0 only if it was given those of the settings that are in `done`.
    ///
    /// # Errors
    /// When there is no shell.
    fn proof(&self, done: &[Feature]) -> Result<Program> {
        let mut script = String::new();
        let status = |field: &str, value: u32| format!("grep -q '^{field}:.{value}$' /proc/self/status");
        for feature in self.features().iter().filter(|feature| done.contains(feature)) {
            let line = match feature {
                // `id` and not `/proc`, so that it is also the id inside a namespace.
                Feature::Ids => format!("test \"$(id -u) $(id -g) $(id -G)\" = '{OTHER_ID} {OTHER_ID} {OTHER_ID}'"),
                Feature::UserNamespace => {
                    let ours = fs::read_link("/proc/self/ns/user").context("/proc/self/ns/user")?;
                    let count = self.map.map_or(0, |map| map.count);
                    format!(
                        "{{ test \"$(readlink /proc/self/ns/user)\" != '{}' && \
                         read a b count </proc/self/uid_map && test $count = {count} && \
                         read a b count </proc/self/gid_map && test $count = {count}; }}",
                        ours.display()
                    )
                }
                Feature::Cgroup => {
                    let name = self.cgroup.as_ref().and_then(|(_, path)| path.file_name()).unwrap_or_default();
                    format!("grep -q '^0::.*/{}$' /proc/self/cgroup", name.to_string_lossy())
                }
                Feature::Limits => "test \"$(ulimit -n) $(ulimit -c) $(ulimit -v)\" = '64 0 1048576'".to_owned(),
                Feature::NoNewPrivs => status("NoNewPrivs", 1),
                Feature::Seccomp => status("Seccomp", 2),
            };
            let _ = writeln!(script, "{line} || exit {}", NOT_DONE + *feature as u8);
        }
        Program::from_words(&["sh".into(), "-c".into(), script.into()])
    }
}

/// Refuses ptrace(2) with EPERM and allows the rest: four instructions, so that what is measured is the launch with a
/// filter and not the filter.
fn filter() -> Vec<libc::sock_filter> {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let statement = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let ptrace = u32::try_from(libc::SYS_ptrace).unwrap_or(0);
    vec![
        statement(LOAD_WORD, 0),
        libc::sock_filter { code: JUMP_IF_EQUAL, jt: 0, jf: 1, k: ptrace },
        statement(RETURN, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(RETURN, libc::SECCOMP_RET_ALLOW),
    ]
}

/// The settings that can be had here.
pub(crate) struct Settings {
    found: Vec<(Setting, Wishes)>,
    none: Wishes,
    /// What cannot be had, and why.
    pub(crate) notes: Vec<String>,
    _cgroup: Option<Cgroup>,
}

impl Settings {
    /// None are to be measured.
    pub(crate) fn none() -> Self {
        Self { found: Vec::new(), none: Wishes::none(), notes: Vec::new(), _cgroup: None }
    }

    /// Tries out what this user may do on this machine, by launching with it.
    pub(crate) fn find() -> Self {
        let mut settings = Self::none();
        let user = Wishes::new(Setting::User, true, None);
        let privileged = match prove(&user, Contestant::ForklessSpawn, &Feature::ALL, None) {
            Ok(()) => true,
            Err(error) => {
                settings.notes.push(format!("no change of user, but a user namespace: {error:#}"));
                false
            }
        };
        if privileged {
            settings.found.push((Setting::User, user));
        } else {
            settings.try_out(Setting::UserNamespace, Wishes::new(Setting::UserNamespace, false, None));
        }
        let (cgroup, directory) = usable_cgroup();
        if cgroup.is_none() {
            settings.notes.push("all settings but a control group: no version 2 group is writable".to_owned());
        }
        settings.try_out(Setting::All, Wishes::new(Setting::All, privileged, directory));
        settings._cgroup = cgroup;
        settings
    }

    fn try_out(&mut self, setting: Setting, wishes: Wishes) {
        match prove(&wishes, Contestant::ForklessSpawn, &Feature::ALL, None) {
            Ok(()) => self.found.push((setting, wishes)),
            Err(error) => self.notes.push(format!("{} left out: {error:#}", setting.words())),
        }
    }

    /// Those to measure.
    pub(crate) fn list(&self) -> Vec<Setting> {
        self.found.iter().map(|(setting, _)| *setting).collect()
    }

    /// What a setting means here.
    pub(crate) fn wishes(&self, setting: Setting) -> &Wishes {
        self.found.iter().find(|(s, _)| *s == setting).map_or(&self.none, |(_, wishes)| wishes)
    }
}

/// Launches once with the settings a program that looks whether it has those that the contestant can do.
///
/// # Errors
/// When it is not launched, or has not.
pub(crate) fn prove(
    wishes: &Wishes,
    contestant: Contestant,
    can: &[Feature],
    engines: Option<&super::engines::Engines>,
) -> Result<()> {
    let program = wishes.proof(can)?;
    let job = Job { program: &program, condition: Condition::SMALL, wishes, engines };
    contestant.ready(&job)?.launch().map(drop).with_context(|| format!("not all done of: {}", names(can)))
}

fn names(features: &[Feature]) -> String {
    features.iter().map(|feature| feature.name()).collect::<Vec<_>>().join(", ")
}

/// A group of our own, where one can be made and a child be born in it.
fn usable_cgroup() -> (Option<Cgroup>, Option<(OwnedFd, PathBuf)>) {
    let name = format!("forkless-bench-{}", std::process::id());
    for parent in cgroup_parents() {
        let Ok(group) = Cgroup::create(&parent, &name) else { continue };
        let Ok(directory) = group.directory() else { continue };
        let path = group.path().to_owned();
        let born = group
            .directory()
            .and_then(|directory| Command::new("true").cgroup(directory).status())
            .is_ok_and(|status| status.success());
        if born {
            return (Some(group), Some((directory, path)));
        }
    }
    (None, None)
}

/// The roots of the hierarchy, and below each the group that we are in, which may have been handed to us.
fn cgroup_parents() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let roots = roots.iter().filter(|root| root.join("cgroup.procs").exists());
    roots.flat_map(|root| [root.to_path_buf(), root.join(own)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The proof is worth something only if it fails where a setting was not made.
    #[test]
    fn a_launch_without_the_settings_is_found_out() {
        let settings = Settings::find();
        assert!(!settings.list().is_empty() || !settings.notes.is_empty());
        for setting in settings.list() {
            let wishes = settings.wishes(setting);
            for feature in wishes.features() {
                let program = wishes.proof(&[feature]).expect("sh");
                let bare =
                    Job { program: &program, condition: Condition::SMALL, wishes: &Wishes::none(), engines: None };
                let error = Contestant::ForklessSpawn.ready(&bare).expect("ready").launch();
                let text = format!("{:#}", error.expect_err(feature.name()));
                let status = (NOT_DONE + feature as u8).to_string();
                assert!(text.contains(&status), "{}: {text}", feature.name());
            }
        }
    }

    #[test]
    fn each_contestant_does_what_it_says_it_can() {
        let settings = Settings::find();
        for setting in settings.list() {
            let wishes = settings.wishes(setting);
            for contestant in Contestant::ALL.into_iter().filter(|c| !c.is_engine()) {
                let can = contestant.can(None);
                if !can.is_empty() && wishes.features().iter().all(|f| can.contains(f)) {
                    let name = contestant.name();
                    prove(wishes, contestant, &can, None).unwrap_or_else(|e| panic!("{name}: {e:#}"));
                }
            }
        }
        settings.notes.iter().for_each(|note| eprintln!("SKIPPED: {note}"));
    }
}
