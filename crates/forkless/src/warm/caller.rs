//! The caller's attributes that exec would have given the child, or that exec looks at, beyond those that a zygote
//! compares. They are noted when a template is started and compared at each launch: with the caller's own of that time,
//! because exec itself may change them in the template.

use crate::zygote::inherited::Status;
use forkless_core::sys::{self, prctl, uapi};

/// Lines of `/proc/PID/status` in the order of the file.
const LINES: [&str; 14] = [
    "TracerPid:",
    "Uid:",
    "Gid:",
    "Groups:",
    "CapInh:",
    "CapPrm:",
    "CapEff:",
    "CapBnd:",
    "CapAmb:",
    "NoNewPrivs:",
    "Seccomp:",
    "Seccomp_filters:",
    "Speculation_Store_Bypass:",
    "SpeculationIndirectBranch:",
];

/// Files and links of `/proc/thread-self`: the label, the namespaces that no zygote compares, the core dump filter, and
/// audit's numbers.
const FILES: [&str; 5] = ["attr/current", "attr/exec", "coredump_filter", "loginuid", "sessionid"];
const LINKS: [&str; 2] = ["ns/user", "ns/mnt"];

/// The number of values that system calls return.
const VALUES: usize = 15;

/// The attributes of a thread at a moment.
#[derive(PartialEq, Eq)]
pub(super) struct Caller {
    lines: [Option<Vec<u8>>; LINES.len()],
    files: [Option<Vec<u8>>; FILES.len()],
    links: [Option<Vec<u8>>; LINKS.len()],
    /// The device number of the controlling terminal.
    terminal: Option<Vec<u8>>,
    values: [i64; VALUES],
}

impl Caller {
    /// Those of the calling thread. The error is a reason to launch cold.
    pub(super) fn observe() -> Result<Self, &'static str> {
        let status = Status::of_caller().map_err(|_| "/proc cannot be read")?;
        let lines = status.values(LINES).map(|line| line.map(<[u8]>::to_vec));
        if lines[0].as_deref().is_none_or(|tracer| tracer.trim_ascii() != b"0") {
            return Err("the caller is traced");
        }
        let links = LINKS.map(|name| {
            let target = std::fs::read_link(format!("/proc/thread-self/{name}")).ok()?;
            Some(target.into_os_string().into_encoded_bytes())
        });
        Ok(Self { lines, files: FILES.map(whole), links, terminal: terminal(), values: values() })
    }
}

/// A short file, by one read. `None` if it does not exist or cannot be read, or is not short.
fn whole(name: &str) -> Option<Vec<u8>> {
    let file = std::fs::File::open(format!("/proc/thread-self/{name}")).ok()?;
    let mut text = vec![0; 1024];
    let length = rustix::io::read(&file, &mut text[..]).ok().filter(|&length| length < 1024)?;
    text.truncate(length);
    Some(text)
}

/// Field 7 of `/proc/PID/stat`.
fn terminal() -> Option<Vec<u8>> {
    let text = whole("stat")?;
    let end = text.iter().rposition(|&byte| byte == b')')?;
    Some(text.get(end + 2..)?.split(|&byte| byte == b' ').nth(4)?.to_vec())
}

/// The values of system calls; an error as a negative number.
fn values() -> [i64; VALUES] {
    const PR_GET_MDWE: u32 = 66;
    const PR_GET_MEMORY_MERGE: u32 = 68;
    const PR_GET_IO_FLUSHER: u32 = 58;
    const PR_SCHED_CORE: u32 = 62;
    const KEYCTL_GET_KEYRING_ID: usize = 0;
    const KEY_SPEC_SESSION_KEYRING: usize = -3isize as usize;
    let value = |number: u32, args: [usize; 6]| {
        // SAFETY: each call returns a number, or writes to the words below.
        unsafe { sys::syscall(number, args) }.map_or_else(|error| -i64::from(error), |value| value as i64)
    };
    let get = |option: u32| value(uapi::__NR_prctl, [option as usize, 0, 0, 0, 0, 0]);
    let (mut cookie, mut mode) = (0u64, 0u64);
    let cookie_at = &raw mut cookie as usize;
    let has_cookie = value(uapi::__NR_prctl, [PR_SCHED_CORE as usize, 0, 0, 0, cookie_at, 0]);
    let has_mode = value(uapi::__NR_get_mempolicy, [&raw mut mode as usize, 0, 0, 0, 0, 0]);
    let limit = |resource: u32| {
        let mut found = [0u64; 2];
        value(uapi::__NR_prlimit64, [0, resource as usize, 0, found.as_mut_ptr() as usize, 0, 0]);
        found.map(|limit| limit as i64)
    };
    // Exec lays out memory by these limits.
    let ([stack, most_stack], [data, _]) = (limit(uapi::RLIMIT_STACK), limit(uapi::RLIMIT_DATA));
    [
        value(uapi::__NR_personality, [u32::MAX as usize, 0, 0, 0, 0, 0]),
        value(uapi::__NR_keyctl, [KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0, 0, 0, 0]),
        get(prctl::PR_GET_SECUREBITS),
        get(prctl::PR_GET_THP_DISABLE),
        get(PR_GET_MDWE),
        get(PR_GET_MEMORY_MERGE),
        get(PR_GET_IO_FLUSHER),
        has_cookie,
        cookie as i64,
        has_mode,
        // The low half: the kernel writes an int.
        (mode & 0xffff_ffff) as i64,
        stack,
        most_stack,
        data,
        limit(uapi::RLIMIT_AS)[0],
    ]
}
