//! What the program may do: named as setpriv(1) and bwrap(1) name theirs.

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

// No doc comment: clap would take it for the description of `forkless run`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Privileges (CAPS: +CAP,-CAP,+all,-all, from what we have)")]
pub(crate) struct Privileges {
    /// Neither the program nor its children gain privileges by executing files
    #[arg(long, visible_alias = "nnp")]
    no_new_privs: bool,

    /// Capabilities that the program and its children can ever get; inheritable ones are dropped like the others, unless
    /// --inh-caps says otherwise
    #[arg(long, value_name = "CAPS", allow_hyphen_values = true, value_parser = capabilities)]
    bounding_set: Option<Changes>,

    /// Permitted capabilities until the program is executed, when execve(2) gives it its own
    #[arg(long, visible_alias = "permitted", value_name = "CAPS", allow_hyphen_values = true, value_parser = capabilities)]
    permitted_caps: Option<Changes>,

    /// Effective capabilities until then, such as executing a file may need
    #[arg(long, visible_alias = "effective", value_name = "CAPS", allow_hyphen_values = true, value_parser = capabilities)]
    effective_caps: Option<Changes>,

    /// Inheritable capabilities
    #[arg(long, value_name = "CAPS", allow_hyphen_values = true, value_parser = capabilities)]
    inh_caps: Option<Changes>,

    /// Capabilities that a program keeps although its user is not root
    #[arg(long, value_name = "CAPS", allow_hyphen_values = true, value_parser = capabilities)]
    ambient_caps: Option<Changes>,

    /// +BIT,-BIT of noroot, no_setuid_fixup, keep_caps, no_cap_ambient_raise, and each with _locked
    #[arg(long, value_name = "BITS", allow_hyphen_values = true, value_parser = securebits)]
    securebits: Option<Changes>,

    /// Filter of system calls: a compiled BPF program, from a file descriptor of ours or a file
    #[arg(long, value_name = "FD|FILE")]
    seccomp: Option<OsString>,

    /// Landlock ruleset: a file descriptor of ours
    #[arg(long, value_name = "FD")]
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
            _ => Err(format!("{part:?} must begin with + or -")),
        };
        word.split(',').map(change).collect::<Result<_, _>>().map(Self)
    }

    fn applied(&self, now: u64) -> u64 {
        self.0.iter().fold(now, |bits, (set, change)| if *set { bits | change } else { bits & !change })
    }
}

impl Privileges {
    /// `in_other_user`: the program is in another user namespace than we, where it begins with every capability.
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

/// A descriptor of ours by its number, copied, for who wants to own one.
pub(crate) fn open_fd(flag: &str, number: u32) -> Result<OwnedFd, Failure> {
    copy_of(number as i32).map_err(|error| Failure::before(format_args!("{flag}: fd {number}: {error}")))
}

fn copy_of(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is touched; a number that is not open is an error.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    // SAFETY: the kernel has just made it for us.
    if copy < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(copy) }) }
}

/// A set of ours, from /proc: the bits that the kernel shows are those that it knows.
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
        // setpriv knows capabilities that have no name yet by their number.
        _ => match name.strip_prefix("cap_").and_then(|number| number.parse::<u32>().ok()).filter(|n| *n < 64) {
            Some(number) => Ok(1 << number),
            None => name.parse::<Capability>().map(|one| 1 << one as u8),
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
        bit.map(|bit| 1 << bit).ok_or_else(|| format!("there is no securebit {name:?}"))
    })
}

/// `struct sock_filter`s, one after the other, as bwrap reads them.
fn filter(source: &OsString) -> io::Result<Vec<BpfInstruction>> {
    let mut file = match parse::fd_number(source) {
        Ok(number) => File::from(copy_of(number)?),
        Err(_) => File::open(PathBuf::from(source))?,
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    if bytes.is_empty() || bytes.len() % 8 != 0 {
        let words = format!("{} bytes are no BPF program, whose instructions have 8 each", bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, words));
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
    fn capabilities_are_changed_from_left_to_right() {
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
