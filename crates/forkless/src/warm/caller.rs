//! The caller's attributes that exec would have given the child, or that exec looks at, beyond those that a zygote
//! compares. They are noted when a template is started and compared at each launch: with the caller's own of that time,
//! because exec itself may change them in the template.

use crate::identity::Status;
use crate::process;
use forkless_core::planted;
use forkless_core::sys::{self, errno, prctl, uapi};
use rustix::fs::{Mode, OFlags};
use std::cell::RefCell;
use std::fs::File;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

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

/// Files of `/proc/thread-self`: the label, the core dump filter, and audit's numbers.
const FILES: [&str; 5] = ["attr/current", "attr/exec", "coredump_filter", "loginuid", "sessionid"];

/// The first two of [`FILES`]: those of security modules.
const LABELS: std::ops::Range<usize> = 0..2;

/// The places of the other files of a thread, behind [`FILES`].
const STATUS: usize = FILES.len();
const STAT: usize = STATUS + 1;

/// The number of system calls that return a value.
const VALUES: usize = 14;

/// A file's contents, or the error of opening or reading it.
type Contents = Result<Vec<u8>, i32>;

/// The attributes of a thread at a moment.
#[derive(PartialEq, Eq)]
pub(super) struct Caller {
    lines: [Option<Vec<u8>>; LINES.len()],
    files: [Contents; FILES.len()],
    /// The device number of the controlling terminal.
    terminal: Option<Vec<u8>>,
    session: i32,
    memory: MemoryPolicy,
    values: [i64; VALUES],
}

/// `get_mempolicy(2)`: the policy for new memory of the calling thread.
#[derive(Debug, PartialEq, Eq)]
struct MemoryPolicy {
    /// The kernel's answer: 0, or an error as a negative number.
    answer: i64,
    mode: i32,
    /// A bit for each node. The kernel has 1024 nodes at most, and refuses a mask that is shorter than the number that it
    /// supports on this machine.
    nodes: [u64; 16],
}

impl MemoryPolicy {
    fn of_caller() -> Self {
        let mut policy = Self { answer: 0, mode: 0, nodes: [0; 16] };
        let (mode, nodes) = (&raw mut policy.mode as usize, policy.nodes.as_mut_ptr() as usize);
        let wants_nodes = !planted!("warm-memory-nodes-not-compared");
        let (nodes, bits) = if wants_nodes { (nodes, size_of_val(&policy.nodes) * 8) } else { (0, 0) };
        policy.answer = value(uapi::__NR_get_mempolicy, [mode, nodes, bits, 0, 0, 0]);
        policy
    }
}

impl Caller {
    /// Those of the calling thread, and its status. `before`: those at an earlier time, of any thread of this process;
    /// what cannot have changed since then is not read again. `keeps`: the thread's files stay open for the next time. The
    /// error is a reason to launch cold.
    pub(super) fn observe(before: Option<&Self>, keeps: bool) -> Result<(Self, Status), &'static str> {
        with_files(keeps, |own| {
            let status = own.file(STATUS).and_then(|file| Status::of_file(file).map_err(|_| errno::EINVAL));
            let Some(status) = status.ok().filter(|status| status.values([LINES[0]])[0].is_some()) else {
                own.forget();
                return Err("/proc cannot be read");
            };
            let lines = status.values(LINES).map(|line| line.map(<[u8]>::to_vec));
            if lines[0].as_deref().is_none_or(|tracer| tracer.trim_ascii() != b"0") {
                return Err("the caller is traced");
            }
            let session = sys::getsid();
            let files = std::array::from_fn(|n| match before.filter(|before| before.is_fixed(n)) {
                Some(before) => before.files[n].clone(),
                None => own.contents(n),
            });
            let terminal = match before.filter(|before| before.keeps_terminal(session)) {
                Some(before) => before.terminal.clone(),
                None => own.contents(STAT).ok().and_then(|text| terminal(&text)),
            };
            let memory = MemoryPolicy::of_caller();
            Ok((Self { lines, files, terminal, session, memory, values: values() }, status))
        })
    }

    /// Whether a file of [`FILES`] has the same contents as long as the system runs.
    fn is_fixed(&self, file: usize) -> bool {
        match LABELS.contains(&file) {
            // EINVAL: no security module has labels, and modules are chosen when the system starts. (The label for the
            // next exec may be EINVAL where there is none at the moment.)
            true => self.files[LABELS.start] == Err(errno::EINVAL),
            // The kernel was built without it.
            false => self.files[file] == Err(errno::ENOENT),
        }
    }

    /// Whether a process in this session has the terminal that it had. A process without one gets one only as the
    /// leader of its session (`tty_ioctl(4)` TIOCSCTTY), and becomes a leader only of a new session.
    fn keeps_terminal(&self, session: i32) -> bool {
        let had_none = self.terminal.as_deref() == Some(b"0");
        let is_led_by_another = session == self.session && session != sys::getpid();
        had_none && (is_led_by_another || planted!("warm-terminal-not-compared"))
    }
}

/// Field 7 of `/proc/PID/stat`.
fn terminal(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|&byte| byte == b')')?;
    Some(text.get(end + 2..)?.split(|&byte| byte == b' ').nth(4)?.to_vec())
}

/// The number of threads whose files stay open. Those of the others are opened at each launch, so that a program with
/// many threads does not reach its limit of descriptors.
const THREADS: u32 = 16;

/// The number of threads whose files are open.
static OPEN: AtomicU32 = AtomicU32::new(0);

/// Files of the calling thread in `/proc`. They stay open, because opening one takes ten times as long as reading it.
struct Own {
    /// The [process](process::generation) whose thread it is: a forked copy has this memory too, but is another process.
    owner: u32,
    /// Whether it is one of [`OPEN`].
    is_kept: bool,
    files: [Option<File>; STAT + 1],
}

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// Calls `work` with the calling thread's files. `keeps`: they stay open.
fn with_files<T>(keeps: bool, work: impl FnOnce(&mut Own) -> T) -> T {
    let owner = process::generation();
    let fresh = |is_kept| Own { owner, is_kept, files: [const { None }; STAT + 1] };
    if !keeps {
        return work(&mut fresh(false));
    }
    let mut work = Some(work);
    let answer = OWN.try_with(|place| {
        let mut place = place.borrow_mut();
        if place.as_ref().is_none_or(|own| own.owner != owner && !planted!("warm-files-of-another-process")) {
            if OPEN.fetch_add(1, Ordering::Relaxed) >= THREADS {
                OPEN.fetch_sub(1, Ordering::Relaxed);
                return None;
            }
            *place = Some(fresh(true));
        }
        Some(work.take()?(place.as_mut()?))
    });
    // Too many threads, or this thread is ending.
    answer.ok().flatten().or_else(|| Some(work.take()?(&mut fresh(false)))).expect("called once")
}

impl Own {
    /// Opens the files again at the next use, without closing them: other code of the process has done that, and the
    /// numbers may be other files by now.
    fn forget(&mut self) {
        for file in self.files.iter_mut().filter_map(Option::take) {
            let _ = file.into_raw_fd();
        }
    }

    /// An open file: of [`FILES`], or one behind it.
    fn file(&mut self, which: usize) -> Result<&File, i32> {
        let Some(place) = self.files.get_mut(which) else { return Err(errno::EINVAL) };
        if place.is_none() {
            let name = match which {
                STATUS => "status",
                STAT => "stat",
                which => FILES[which],
            };
            *place = Some(open(name)?);
        }
        place.as_ref().ok_or(errno::EINVAL)
    }

    /// The contents of a short file, by one read.
    fn contents(&mut self, which: usize) -> Contents {
        let mut text = [0; 1024];
        match rustix::io::pread(self.file(which)?, &mut text[..], 0) {
            Ok(length) if length < text.len() => Ok(text[..length].to_vec()),
            Ok(_) => Err(errno::E2BIG),
            Err(error) => Err(error.raw_os_error()),
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        OPEN.fetch_sub(self.is_kept as u32, Ordering::Relaxed);
    }
}

/// Opens a file of the calling thread, at a number that programs hardly use, but in the first word of the kernel's
/// file-descriptor table.
fn open(name: &str) -> Result<File, i32> {
    const AWAY: i32 = 48;
    let path = format!("/proc/thread-self/{name}");
    let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let opened: OwnedFd = opened.map_err(|error| error.raw_os_error())?;
    Ok(rustix::io::fcntl_dupfd_cloexec(&opened, AWAY).unwrap_or(opened).into())
}

/// The value of a system call that returns a number, or writes to memory of its caller here; an error as a negative number.
fn value(number: u32, args: [usize; 6]) -> i64 {
    // SAFETY: the callers in this file pass numbers, and addresses of their own variables with their sizes.
    unsafe { sys::syscall(number, args) }.map_or_else(|error| -i64::from(error), |value| value as i64)
}

/// The values of system calls; an error as a negative number.
fn values() -> [i64; VALUES] {
    const PR_GET_MDWE: u32 = 66;
    const PR_GET_MEMORY_MERGE: u32 = 68;
    const PR_GET_IO_FLUSHER: u32 = 58;
    const PR_SCHED_CORE: u32 = 62;
    const KEYCTL_GET_KEYRING_ID: usize = 0;
    const KEY_SPEC_SESSION_KEYRING: usize = -3isize as usize;
    let get = |option: u32| value(uapi::__NR_prctl, [option as usize, 0, 0, 0, 0, 0]);
    let mut cookie = 0u64;
    let cookie_at = &raw mut cookie as usize;
    let has_cookie = value(uapi::__NR_prctl, [PR_SCHED_CORE as usize, 0, 0, 0, cookie_at, 0]);
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
        stack,
        most_stack,
        data,
        limit(uapi::RLIMIT_AS)[0],
        // The kernel looks at it when a process is cloned: at that of the template, which is not the caller's.
        if planted!("warm-process-limit-not-compared") { 0 } else { limit(uapi::RLIMIT_NPROC)[0] },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_policies_differ_in_mode_or_nodes() {
        const PREFERRED: usize = 1;
        const BIND: usize = 2;
        let usual = MemoryPolicy::of_caller();
        let set = |mode: usize, nodes: u64| {
            value(uapi::__NR_set_mempolicy, [mode, &raw const nodes as usize, u64::BITS as usize, 0, 0, 0])
        };
        // On a thread of its own, which has its own policy.
        let changed = || [BIND, PREFERRED].map(|mode| (set(mode, 1), MemoryPolicy::of_caller()));
        let [(first, bound), (second, preferred)] =
            std::thread::scope(|scope| scope.spawn(changed).join().expect("a thread"));
        if (first, second) != (0, 0) {
            println!("SKIPPED: memory policies, because set_mempolicy(2) is refused");
            return;
        }
        assert_eq!((usual.answer, bound.answer, bound.mode, bound.nodes[0]), (0, 0, BIND as i32, 1));
        assert_eq!((preferred.mode, preferred.nodes[0]), (PREFERRED as i32, 1));
        assert!(usual != bound && bound != preferred);
    }
}
