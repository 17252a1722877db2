//! The values of a setting on this machine, in the formats that the methods need, and the program that verifies them.

use std::{ffi::CString, fmt::Write, fs, os::fd::OwnedFd, path::PathBuf};

use anyhow::{Context, Result};
use forkless::{BpfInstruction, Command, Namespace, Resource};

use super::{
    program::Program,
    setting::{Feature, Setting},
};

/// The user and group ID of the child: nobody on most systems, but any number works.
const OTHER_ID: u32 = 65_534;
/// Exit status of the verifying program for a missing feature: this plus the number of the feature.
pub(crate) const NOT_DONE: u8 = 90;
/// Resource limits of the child: resource, its constant in C, value.
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
    /// An ordinary user must set `setgroups` to `deny` to map a group.
    pub(crate) deny_setgroups: bool,
}

/// The values of a setting on this machine for this user, in each of the formats that the methods need.
pub(crate) struct Wishes {
    /// User and group id of the child.
    pub(crate) id: Option<u32>,
    pub(crate) map: Option<Map>,
    /// The directory of the cgroup, as a descriptor and as a path.
    pub(crate) cgroup: Option<(OwnedFd, PathBuf)>,
    /// Whether limits, no_new_privs and a filter are set.
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
    /// No settings.
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

    pub(crate) fn new(setting: Setting, privileged: bool, cgroup: Option<(OwnedFd, PathBuf)>) -> Self {
        let changes_id = privileged && matches!(setting, Setting::User | Setting::All);
        let maps = matches!(setting, Setting::UserNamespace | Setting::All);
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let map = match privileged {
            // The ID of the child must be in the map.
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

    /// The features of the setting.
    pub(crate) fn features(&self) -> Vec<Feature> {
        let asked = |feature: &Feature| match feature {
            Feature::Ids => self.id.is_some(),
            Feature::UserNamespace => self.map.is_some(),
            Feature::Cgroup => self.cgroup.is_some(),
            Feature::Limits | Feature::NoNewPrivs | Feature::Seccomp => self.restricted,
        };
        Feature::ALL.into_iter().filter(asked).collect()
    }

    /// Applies the setting to a `Command`.
    ///
    /// # Errors
    /// If the descriptor of the cgroup's directory, which a `Command` owns, cannot be duplicated.
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

    /// The limits by their C constants, and the filter in the kernel's format; `None` if not set.
    pub(crate) fn restrictions(&self) -> Option<(impl Iterator<Item = (u32, u64)>, Vec<u8>)> {
        let bytes = |i: &libc::sock_filter| [&i.code.to_ne_bytes()[..], &[i.jt, i.jf], &i.k.to_ne_bytes()].concat();
        let filter = self.filter.iter().flat_map(bytes).collect();
        self.restricted.then(|| (LIMITS.iter().map(|&(_, resource, value)| (resource, value)), filter))
    }

    /// The values for the methods in C; `None` without settings. Points into `self`.
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

    /// A program that exits with 0 only if the settings in `done` were applied to it.
    ///
    /// # Errors
    /// If there is no shell.
    pub(crate) fn proof(&self, done: &[Feature]) -> Result<Program> {
        let mut script = String::new();
        let status = |field: &str, value: u32| format!("grep -q '^{field}:.{value}$' /proc/self/status");
        for feature in self.features().iter().filter(|feature| done.contains(feature)) {
            let line = match feature {
                // `id` and not `/proc`: it also shows the ID inside a namespace.
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

/// Refuses ptrace(2) with EPERM and allows the rest. Four instructions only: the launch with a filter is measured, not the filter.
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
