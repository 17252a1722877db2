//! What differs between the architectures of the guests.

use super::debian;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Debian's names.
#[derive(Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Arch {
    /// This machine's: the guest has this machine's root, and all test programs.
    #[default]
    Amd64,
    /// Cross-compiled tests in a Debian of their own, which has no compiler.
    Arm64,
}

/// What the tests run in a Debian of their own.
const PROGRAMS: [&str; 14] = [
    "base-files",
    "base-passwd",
    "bash",
    "busybox",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "libgcc-s1",
    "perl",
    "procps",
    "sed",
    "strace",
    "util-linux",
];

impl Arch {
    pub fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Debian packages without which its tests cannot be built or run.
    pub fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Amd64 => &["qemu-system-x86"],
            Self::Arm64 => &["qemu-system-arm", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
        }
    }

    /// The emulator, and the options for its machine. Without `la57` and pointer authentication, which cost time.
    pub fn emulator(self) -> &'static [&'static str] {
        match self {
            Self::Amd64 => &["qemu-system-x86_64", "-cpu", "max,la57=off"],
            Self::Arm64 => &["qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a72"],
        }
    }

    pub fn console(self) -> &'static str {
        match self {
            Self::Amd64 => "ttyS0",
            Self::Arm64 => "ttyAMA0",
        }
    }

    /// Rust's name of the target and the linker, unless it is this machine's.
    pub fn cross(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Amd64 => None,
            Self::Arm64 => Some(("aarch64-unknown-linux-gnu", "aarch64-linux-gnu-gcc")),
        }
    }

    /// Where cargo puts the test programs.
    pub fn built(self, target: &Path) -> PathBuf {
        self.cross().map_or_else(|| target.to_owned(), |(triple, _)| target.join(triple)).join("debug")
    }

    /// A Debian for the guest, in `place`; `None` if it has this machine's.
    ///
    /// # Errors
    /// If its packages cannot be downloaded.
    pub fn root(self, place: &Path) -> Result<Option<PathBuf>> {
        match self {
            Self::Amd64 => Ok(None),
            Self::Arm64 => debian::root(&PROGRAMS, self.debian(), &place.join(self.debian())).map(Some),
        }
    }

    /// The name of a kernel's column in the record.
    pub fn column(self, version: &str) -> String {
        match self {
            Self::Amd64 => version.to_owned(),
            Self::Arm64 => format!("{version} {}", self.debian()),
        }
    }
}
