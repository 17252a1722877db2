//! The child's capabilities as `capabilities(7)` describes them, independent of the library's implementation.

use super::Settings;
use crate::observe::Observed;
use crate::table::settings::capabilities;
use std::fs;

pub const SETGID: u32 = 6;
pub const SETUID: u32 = 7;
pub const SETPCAP: u32 = 8;
pub const CHROOT: u32 = 18;
pub const ADMIN: u32 = 21;
pub const NICE: u32 = 23;
pub const RESOURCE: u32 = 24;

/// Securebits.
const NOROOT: u32 = 1;
const NO_SETUID_FIXUP: u32 = 4;

/// The sets of a process.
#[derive(Debug, Clone, Copy)]
pub struct Sets {
    pub permitted: u64,
    pub effective: u64,
    pub inheritable: u64,
    pub bounding: u64,
    pub ambient: u64,
    pub securebits: u32,
}

/// The result of the steps before exec.
pub struct Way {
    /// The steps that fail.
    pub failing: Vec<&'static str>,
    /// The capabilities before exec.
    pub sets: Sets,
}

impl Sets {
    /// Those of a process as it was looked at.
    pub fn of(found: &Observed) -> Self {
        let bits = |name: &str| u64::from_str_radix(found[name].trim_start_matches("0x"), 16).unwrap_or(0);
        Self {
            permitted: bits("cap.permitted"),
            effective: bits("cap.effective"),
            inheritable: bits("cap.inheritable"),
            bounding: bits("cap.bounding"),
            ambient: bits("cap.ambient"),
            securebits: bits("securebits") as u32,
        }
    }

    /// Those of the first process of a user namespace.
    pub fn of_namespace() -> Self {
        let all = known();
        Self { permitted: all, effective: all, inheritable: 0, bounding: all, ambient: 0, securebits: 0 }
    }

    pub fn has(&self, capability: u32) -> bool {
        self.effective >> capability & 1 == 1
    }

    /// The steps that change the sets, in the order of the plan. `leaves_root`: the ids were root's, and none is after.
    pub fn steps(mut self, list: &[Settings], leaves_root: bool) -> Way {
        let mut failing = Vec::new();
        let said = |field: fn(&Settings) -> &Option<Vec<String>>| {
            list.iter().rev().find_map(|one| field(one).as_ref()).map(|names| capabilities(names).bits() & known())
        };
        if let Some(kept) = said(|one| &one.bounding) {
            if kept != known() && !self.has(SETPCAP) {
                failing.push("Capabilities bounding");
            }
            self.bounding &= kept;
        }
        if let Some(bits) = list.iter().find_map(|one| one.securebits) {
            if !self.has(SETPCAP) {
                failing.push("Securebits");
            }
            self.securebits = bits;
        }
        let asked = [
            said(|one| &one.permitted),
            said(|one| &one.effective),
            said(|one| &one.inheritable),
            said(|one| &one.ambient),
        ];
        let [permitted, effective, inheritable, ambient] = asked;
        let left = self.permitted;
        if leaves_root && self.securebits & NO_SETUID_FIXUP == 0 {
            // What is asked for may still be had of what there was.
            (self.permitted, self.effective, self.ambient) = (0, 0, 0);
        }
        if asked.iter().any(Option::is_some) {
            let new = Self {
                permitted: permitted.unwrap_or(self.permitted) | ambient.unwrap_or(0),
                inheritable: inheritable.unwrap_or(self.inheritable) | ambient.unwrap_or(0),
                ..self
            };
            let effective = effective.unwrap_or(self.effective) & new.permitted | ambient.unwrap_or(0);
            let inherits = self.inheritable | if self.has(SETPCAP) { !0 } else { left };
            let may = |what: u64, of: u64| what & !of == 0;
            if !may(new.permitted, left)
                || !may(new.inheritable, inherits)
                || !may(new.inheritable, self.inheritable | self.bounding)
            {
                failing.push("Capabilities");
            }
            let ambient = ambient.unwrap_or(self.ambient & new.permitted & new.inheritable);
            self = Self { effective, ambient, ..new };
        }
        Way { failing, sets: self }
    }

    /// The permitted capabilities after exec of a program without file capabilities or setuid bits, without
    /// the limits of no_new_privs.
    fn at_exec(&self, is_root: bool) -> u64 {
        if is_root && self.securebits & NOROOT == 0 { self.bounding | self.inheritable } else { 0 }
    }

    /// Would that be more than is permitted now? Then the kernel takes some personalities for dangerous.
    pub fn can_gain(&self, is_root: bool) -> bool {
        self.at_exec(is_root) & !self.permitted != 0
    }

    /// After exec of such a program.
    pub fn after_exec(mut self, is_root: bool, no_new_privs: bool) -> Self {
        let promised = if no_new_privs { self.permitted } else { !0 };
        self.permitted = self.at_exec(is_root) & promised | self.ambient;
        self.effective = if is_root && self.securebits & NOROOT == 0 { self.permitted } else { self.ambient };
        self
    }

    /// As the child sees them.
    pub fn put(&self, child: &mut Observed) {
        for (name, bits) in [
            ("cap.permitted", self.permitted),
            ("cap.effective", self.effective),
            ("cap.inheritable", self.inheritable),
            ("cap.bounding", self.bounding),
            ("cap.ambient", self.ambient),
            ("securebits", self.securebits.into()),
        ] {
            child.insert(name.into(), format!("{bits:#x}"));
        }
    }
}

/// Every capability of this kernel.
fn known() -> u64 {
    let last =
        fs::read_to_string("/proc/sys/kernel/cap_last_cap").ok().and_then(|text| text.trim().parse::<u32>().ok());
    (2 << last.expect("cap_last_cap")) - 1
}
