//! The machine of the measurement. Records are published, so it contains no host name, path or user.

use std::{collections::BTreeMap, ffi::CStr, fs, time::SystemTime};

use serde::{Deserialize, Serialize};

use super::name::Name;

/// The machine and the software that matter for a launch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    /// UTC, RFC 3339.
    pub(crate) date: String,
    /// The version of this library.
    pub(crate) forkless: String,
    /// The release, as in `uname -r`.
    pub(crate) kernel: String,
    /// The architecture, as Rust names it.
    pub(crate) arch: String,
    pub(crate) cpu: String,
    /// CPUs that this process may use.
    pub(crate) cores: usize,
    /// Total memory.
    pub(crate) memory_mib: u64,
    pub(crate) page_size: usize,
    /// Name and version of the C library.
    pub(crate) libc: String,
    pub(crate) mitigations: String,
    /// Versions of the selected engines; None if not installed.
    #[serde(deserialize_with = "super::name::names")]
    pub(crate) engines: BTreeMap<Name, Option<String>>,
    /// Whether the bench launched its own program, which only exits.
    pub(crate) own_target: bool,
    /// Whether launches used clone3. (Records without this field were made with it.)
    #[serde(default = "is_true")]
    pub(crate) clone3: bool,
}

fn is_true() -> bool {
    true
}

impl Machine {
    /// Reads all properties; those that cannot be read are "unknown".
    pub(crate) fn read() -> Self {
        let uname = rustix::system::uname();
        Self {
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            forkless: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: uname.release().to_string_lossy().into_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            cpu: cpu_model().unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: meminfo_mib("MemTotal").unwrap_or(0),
            page_size: rustix::param::page_size(),
            libc: libc_version(),
            mitigations: mitigations().unwrap_or_else(|| "unknown".to_owned()),
            engines: BTreeMap::new(),
            own_target: true,
            clone3: true,
        }
    }

    /// A one-line description.
    pub(crate) fn describe(&self) -> String {
        let known = self.engines.iter().filter_map(|(name, version)| Some(format!("{name} {}, ", version.as_ref()?)));
        let engines: String = known.collect();
        format!("{}, {engines}forkless {}, {}", self.describe_computer(), self.forkless, self.date)
    }

    /// The description without the versions of the compared methods.
    pub(crate) fn describe_computer(&self) -> String {
        let Self { cores, cpu, memory_mib, kernel, libc, .. } = self;
        format!("{cores} × {cpu}, {memory_mib} MiB, Linux {kernel}, {libc}")
    }
}

/// A line of `/proc/meminfo`, in MiB.
pub(crate) fn meminfo_mib(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024)
}

/// `model name` on x86; on Arm, which has no such line, implementer and part number.
fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let field = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    field("model name")
        .or_else(|| Some(format!("implementer {} part {}", field("CPU implementer")?, field("CPU part")?)))
}

#[cfg(target_env = "gnu")]
fn libc_version() -> String {
    // SAFETY: the function has no precondition and returns a pointer to a static string that ends with NUL.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

#[cfg(not(target_env = "gnu"))]
fn libc_version() -> String {
    let _: Option<&CStr> = None;
    if cfg!(target_env = "musl") { "musl".to_owned() } else { "unknown".to_owned() }
}

/// The mitigations of CPU vulnerabilities, which affect the cost of system calls.
fn mitigations() -> Option<String> {
    let mut known = Vec::new();
    for entry in fs::read_dir("/sys/devices/system/cpu/vulnerabilities").ok()? {
        let entry = entry.ok()?;
        let state = fs::read_to_string(entry.path()).ok()?;
        if state.trim() != "Not affected" {
            known.push(format!("{}: {}", entry.file_name().to_string_lossy(), state.trim()));
        }
    }
    known.sort();
    Some(if known.is_empty() { "none needed".to_owned() } else { known.join("; ") })
}
