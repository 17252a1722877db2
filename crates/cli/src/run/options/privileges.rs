//! Capabilities, securebits, seccomp and Landlock. The options have the names of setpriv(1) and bwrap(1).

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::fd::{FromRawFd, OwnedFd},
    path::PathBuf,
};

use clap::Args;
use forkless::{BpfInstruction, Capability, CapabilitySet, Command};

use super::super::{failure::Failure, parse};
use crate::near::{did_you_mean, near};

// No doc comment: clap would take it for the description of `forkless run`.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Privileges (CAPS: +CAP,-CAP,+all,-all, applied to the current set)")]
pub(crate) struct Privileges {
    /// Set no_new_privs: setuid programs and file capabilities grant no privileges
    #[arg(long, visible_alias = "nnp")]
    pub(super) no_new_privs: bool,

    /// Change the bounding set, which limits all capabilities of the program and its children; unless --inh-caps is given,
    /// drops them from the inheritable set, too
    #[arg(long, value_name = "CAPS", allow_hyphen_values = true, value_parser = capabilities)]
    bounding_set: Option<Changes>,

    /// Change the permitted set until execve(2), which computes it again
    #[arg(long, visible_alias = "permitted", value_name = "CAPS", allow_hyphen_values = true, value_parser = capabilities)]
    permitted_caps: Option<Changes>,

    /// Change the effective set until execve(2), which may need some to execute the file
    #[arg(long, visible_alias = "effective", value_name = "CAPS", allow_hyphen_values = true, value_parser = capabilities)]
    effective_caps: Option<Changes>,

    /// Change the inheritable set
    #[arg(long, value_name = "CAPS", allow_hyphen_values = true, value_parser = capabilities)]
    inh_caps: Option<Changes>,

    /// Change the ambient set, which a program keeps without being root
    #[arg(long, value_name = "CAPS", allow_hyphen_values = true, value_parser = capabilities)]
    ambient_caps: Option<Changes>,

    /// Change securebits: +BIT,-BIT of noroot, no_setuid_fixup, keep_caps, no_cap_ambient_raise, each also with _locked
    #[arg(long, value_name = "BITS", allow_hyphen_values = true, value_parser = securebits)]
    securebits: Option<Changes>,

    /// Install a compiled BPF program, at an inherited descriptor or in a file, as a seccomp filter
    #[arg(long, alias = "seccomp-filter", value_name = "FD|FILE")]
    seccomp: Option<OsString>,

    /// Enforce the Landlock ruleset at an inherited descriptor
    #[arg(long, value_name = "FD", conflicts_with = "sandbox")]
    landlock: Option<u32>,
}

/// Bits to set and to clear, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Changes(Vec<(bool, u64)>);

impl Changes {
    fn of(word: &str, bits: impl Fn(&str) -> Result<u64, String>) -> Result<Self, String> {
        let change = |part: &str| match part.split_at_checked(1) {
            Some(("+", name)) => Ok((true, bits(name)?)),
            Some(("-", name)) => Ok((false, bits(name)?)),
            _ => Err(format!("{part:?} must begin with + to add or - to remove")),
        };
        word.split(',').map(change).collect::<Result<_, _>>().map(Self)
    }

    fn applied(&self, now: u64) -> u64 {
        self.0.iter().fold(now, |bits, (set, change)| if *set { bits | change } else { bits & !change })
    }
}

impl Privileges {
    /// The compiled filter of `--seccomp`, if it can still be read: a pipe cannot.
    pub(crate) fn filter(&self) -> Option<Vec<BpfInstruction>> {
        let source = self.seccomp.as_ref().filter(|source| parse::fd_number(source).is_err())?;
        filter(source).ok()
    }

    /// Is a compiled filter installed? Only its author knows which system calls it refuses.
    pub(crate) fn is_filtered(&self) -> bool {
        self.seccomp.is_some()
    }

    /// `in_other_user`: the program is in another user namespace than forkless, where it starts with all capabilities.
    pub(crate) fn apply(&self, command: &mut Command, in_other_user: bool) -> Result<(), Failure> {
        let now = |field: &str, new: u64| if in_other_user { Ok(new) } else { ours(field) };
        if let Some(changes) = &self.bounding_set {
            command.bounding_set(CapabilitySet::from_bits(changes.applied(now("CapBnd:", u64::MAX)?)));
        }
        if let Some(changes) = &self.permitted_caps {
            command.permitted(CapabilitySet::from_bits(changes.applied(now("CapPrm:", u64::MAX)?)));
        }
        if let Some(changes) = &self.effective_caps {
            command.effective(CapabilitySet::from_bits(changes.applied(now("CapEff:", u64::MAX)?)));
        }
        if let Some(changes) = &self.inh_caps {
            command.inheritable(CapabilitySet::from_bits(changes.applied(now("CapInh:", 0)?)));
        }
        if let Some(changes) = &self.ambient_caps {
            command.ambient(CapabilitySet::from_bits(changes.applied(now("CapAmb:", 0)?)));
        }
        if let Some(changes) = &self.securebits {
            let bits = if in_other_user { 0 } else { our_securebits() };
            command.securebits(changes.applied(bits) as u32);
        }
        if let Some(source) = &self.seccomp {
            let failed = |error| Failure::before(format_args!("--seccomp: cannot read {source:?}: {error}"));
            command.seccomp(filter(source).map_err(failed)?);
        }
        if let Some(number) = self.landlock {
            command.landlock(open_fd("--landlock", number)?);
        }
        command.no_new_privs(self.no_new_privs);
        Ok(())
    }
}

/// Duplicates an inherited descriptor, for callers that need to own it.
pub(crate) fn open_fd(flag: &str, number: u32) -> Result<OwnedFd, Failure> {
    copy_of(number as i32).map_err(|error| Failure::before(format_args!("{flag}: {error}")))
}

fn copy_of(number: i32) -> io::Result<OwnedFd> {
    if !parse::is_inherited(number) {
        return Err(io::Error::other(parse::not_inherited(number)));
    }
    // SAFETY: F_DUPFD_CLOEXEC touches no memory; a number that is not open is an error.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    // SAFETY: fcntl has just returned this descriptor, so nothing else owns it.
    if copy < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(copy) }) }
}

/// A capability set of forkless, from /proc, which shows only bits that the kernel knows.
fn ours(field: &str) -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let digits = status.lines().find_map(|line| line.strip_prefix(field));
    let bits = digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    bits.ok_or_else(|| Failure::before(format_args!("cannot read {field} in /proc/self/status")))
}

fn our_securebits() -> u64 {
    rustix::thread::capabilities_secure_bits().map_or(0, |bits| bits.bits().into())
}

fn capabilities(word: &str) -> Result<Changes, String> {
    Changes::of(word, |name| match name {
        "all" => Ok(u64::MAX),
        // As setpriv(1): capabilities without a name are given by number.
        _ => match name.strip_prefix("cap_").and_then(|number| number.parse::<u32>().ok()).filter(|n| *n < 64) {
            Some(number) => Ok(1 << number),
            None => name.parse::<Capability>().map(|one| 1 << one as u8).map_err(|why| {
                let names = Capability::names().map(|name| format!("CAP_{name}"));
                let near = near(&format!("CAP_{}", name.trim_start_matches("cap_").trim_start_matches("CAP_")), names);
                let near = near.map(|name| name.trim_start_matches("CAP_").to_ascii_lowercase());
                format!("{why}{}", near.map_or_else(String::new, |name| format!("; did you mean {name:?}?")))
            }),
        },
    })
}

fn securebits(word: &str) -> Result<Changes, String> {
    const NAMES: [&str; 8] = [
        "noroot",
        "noroot_locked",
        "no_setuid_fixup",
        "no_setuid_fixup_locked",
        "keep_caps",
        "keep_caps_locked",
        "no_cap_ambient_raise",
        "no_cap_ambient_raise_locked",
    ];
    Changes::of(word, |name| {
        let bit = NAMES.iter().position(|known| *known == name);
        bit.map(|bit| 1 << bit).ok_or_else(|| {
            format!("no securebit {name:?}; use one of {}{}", NAMES.join(", "), did_you_mean(name, NAMES))
        })
    })
}

/// An array of `struct sock_filter`, the format that bwrap reads.
fn filter(source: &OsString) -> io::Result<Vec<BpfInstruction>> {
    let mut file = match parse::fd_number(source) {
        Ok(number) => File::from(copy_of(number)?),
        Err(_) => File::open(PathBuf::from(source))?,
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    if bytes.is_empty() || bytes.len() % 8 != 0 {
        let size = format!("{} bytes are not a multiple of 8", bytes.len());
        let reason = if bytes.is_empty() { "the file is empty" } else { &size };
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("not a BPF program: {reason}")));
    }
    let instruction = |one: &[u8]| BpfInstruction {
        code: u16::from_ne_bytes([one[0], one[1]]),
        jt: one[2],
        jf: one[3],
        k: u32::from_ne_bytes([one[4], one[5], one[6], one[7]]),
    };
    Ok(bytes.chunks_exact(8).map(instruction).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_changes_apply_from_left_to_right() {
        let after = |word: &str, now| capabilities(word).map(|changes| changes.applied(now));
        assert_eq!(after("-all", 7), Ok(0));
        assert_eq!(after("-all,+chown", 6), Ok(1));
        assert_eq!(after("+CAP_KILL,-cap_chown", 1), Ok(1 << 5));
        assert_eq!(after("+cap_63", 0), Ok(1 << 63));
        for word in ["", "chown", "+", "+nonsense", "+chown,", "+cap_64"] {
            assert!(capabilities(word).is_err(), "{word}");
        }
        assert_eq!(securebits("+noroot,-keep_caps").map(|changes| changes.applied(16)), Ok(1));
        assert!(securebits("+nonsense").is_err());
    }
}
