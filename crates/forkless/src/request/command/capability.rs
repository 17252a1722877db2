//! Capabilities and sets of them.

use std::fmt;
use std::str::FromStr;

macro_rules! capabilities {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// A capability, by its number: `capabilities(7)`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Capability {
            $(#[doc = concat!("`CAP_", $text, "`.")] $name = $number,)*
        }

        const ALL: &[(Capability, &str)] = &[$((Capability::$name, $text),)*];
    };
}

capabilities! {
    Chown = 0, "CHOWN";
    DacOverride = 1, "DAC_OVERRIDE";
    DacReadSearch = 2, "DAC_READ_SEARCH";
    Fowner = 3, "FOWNER";
    Fsetid = 4, "FSETID";
    Kill = 5, "KILL";
    Setgid = 6, "SETGID";
    Setuid = 7, "SETUID";
    Setpcap = 8, "SETPCAP";
    LinuxImmutable = 9, "LINUX_IMMUTABLE";
    NetBindService = 10, "NET_BIND_SERVICE";
    NetBroadcast = 11, "NET_BROADCAST";
    NetAdmin = 12, "NET_ADMIN";
    NetRaw = 13, "NET_RAW";
    IpcLock = 14, "IPC_LOCK";
    IpcOwner = 15, "IPC_OWNER";
    SysModule = 16, "SYS_MODULE";
    SysRawio = 17, "SYS_RAWIO";
    SysChroot = 18, "SYS_CHROOT";
    SysPtrace = 19, "SYS_PTRACE";
    SysPacct = 20, "SYS_PACCT";
    SysAdmin = 21, "SYS_ADMIN";
    SysBoot = 22, "SYS_BOOT";
    SysNice = 23, "SYS_NICE";
    SysResource = 24, "SYS_RESOURCE";
    SysTime = 25, "SYS_TIME";
    SysTtyConfig = 26, "SYS_TTY_CONFIG";
    Mknod = 27, "MKNOD";
    Lease = 28, "LEASE";
    AuditWrite = 29, "AUDIT_WRITE";
    AuditControl = 30, "AUDIT_CONTROL";
    Setfcap = 31, "SETFCAP";
    MacOverride = 32, "MAC_OVERRIDE";
    MacAdmin = 33, "MAC_ADMIN";
    Syslog = 34, "SYSLOG";
    WakeAlarm = 35, "WAKE_ALARM";
    BlockSuspend = 36, "BLOCK_SUSPEND";
    AuditRead = 37, "AUDIT_READ";
    Perfmon = 38, "PERFMON";
    Bpf = 39, "BPF";
    CheckpointRestore = 40, "CHECKPOINT_RESTORE";
}

/// A set of capabilities. Bit n is capability n.
///
/// ```
/// use forkless::{Capability, CapabilitySet};
/// let set: CapabilitySet = [Capability::NetBindService, Capability::Kill].into_iter().collect();
/// assert!(set.contains(Capability::Kill));
/// assert_eq!(set.bits(), 1 << 10 | 1 << 5);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CapabilitySet(u64);

impl CapabilitySet {
    /// No capability.
    pub const EMPTY: Self = Self(0);

    /// All capabilities, also those that future kernels add.
    pub const ALL: Self = Self(u64::MAX);

    /// Makes the set of these bits: bit n is capability n.
    ///
    /// ```
    /// use forkless::{Capability, CapabilitySet};
    /// let set = CapabilitySet::from_bits(1 << 5);
    /// assert!(set.contains(Capability::Kill));
    /// ```
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the set as bits: bit n is capability n.
    ///
    /// ```
    /// use forkless::{Capability, CapabilitySet};
    /// assert_eq!(CapabilitySet::from_iter([Capability::Chown, Capability::Kill]).bits(), 1 | 1 << 5);
    /// ```
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Reports whether the capability is in the set.
    ///
    /// ```
    /// use forkless::{Capability, CapabilitySet};
    /// assert!(CapabilitySet::ALL.contains(Capability::SysAdmin));
    /// assert!(!CapabilitySet::EMPTY.contains(Capability::SysAdmin));
    /// ```
    pub const fn contains(self, capability: Capability) -> bool {
        self.0 >> capability as u8 & 1 == 1
    }
}

impl FromIterator<Capability> for CapabilitySet {
    fn from_iter<I: IntoIterator<Item = Capability>>(capabilities: I) -> Self {
        Self(capabilities.into_iter().fold(0, |bits, capability| bits | 1 << capability as u8))
    }
}

impl Capability {
    /// The names, for callers that suggest one.
    #[doc(hidden)]
    pub fn names() -> impl Iterator<Item = &'static str> {
        ALL.iter().map(|(_, text)| *text)
    }
}

impl FromStr for Capability {
    type Err = String;

    /// Parses a name, with or without `CAP_`, in upper or lower case.
    fn from_str(name: &str) -> Result<Self, String> {
        let upper = name.to_ascii_uppercase();
        let short = upper.strip_prefix("CAP_").unwrap_or(&upper);
        let found = ALL.iter().find(|(_, text)| *text == short);
        found.map(|(capability, _)| *capability).ok_or_else(|| format!("there is no capability {name:?}"))
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = ALL.iter().find(|(capability, _)| capability == self).map_or("", |(_, text)| text);
        write!(out, "CAP_{text}")
    }
}
