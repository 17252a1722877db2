//! Changes of everything that a process inherits: `tests/attributes.toml` lists it.

use crate::filter::{self, Answer, Refusal};
use serde::Deserialize;
use std::ffi::CString;
use std::fs;
use std::io;
use std::path::Path;

/// The list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// What a process inherits.
    pub attribute: Vec<Attribute>,
    /// What it does not.
    pub no_attribute: Vec<Other>,
}

/// A row of the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Where the kernel keeps it.
    pub kernel: String,
    /// What becomes of it in a zygote's child.
    pub zygote: Fate,
    /// What becomes of it in a warm program.
    pub warm: Fate,
    /// The change: an argument of [`change`].
    pub change: Option<String>,
    /// Why there is no change.
    pub untested: Option<String>,
    /// Why a child has the helper's.
    pub why: Option<String>,
    /// What shows it.
    pub shown: Vec<String>,
}

/// What becomes of an attribute if another process clones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// The child sets it.
    #[serde(rename = "taken on")]
    TakenOn,
    /// Another helper is started.
    Compared,
    /// The launch is refused.
    Refused,
    /// The child has the helper's.
    Documented,
}

/// What is no inherited attribute.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Other {
    /// The reason.
    pub why: String,
    /// What shows it.
    pub shown: Vec<String>,
}

/// The list of this checkout.
pub fn table() -> Table {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/attributes.toml");
    toml::from_str(&fs::read_to_string(path).expect(path)).expect("a list of attributes")
}

fn done(answer: libc::c_long) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn call(number: libc::c_long, args: [usize; 5]) -> io::Result<()> {
    // SAFETY: the callers pass numbers, and addresses of their own variables.
    done(unsafe { libc::syscall(number, args[0], args[1], args[2], args[3], args[4]) })
}

fn prctl(option: i32, args: [usize; 4]) -> io::Result<()> {
    call(libc::SYS_prctl, [option as usize, args[0], args[1], args[2], args[3]])
}

fn unshare(flags: i32) -> io::Result<()> {
    // SAFETY: of this thread, or of this process.
    done(unsafe { libc::unshare(flags) }.into())
}

/// Gives this thread a directory, root and umask of its own.
fn own_fs() -> io::Result<()> {
    unshare(libc::CLONE_FS)
}

/// struct sched_attr.
#[repr(C)]
#[derive(Default)]
struct SchedulerAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
    clamps: [u32; 2],
}

fn schedule(attributes: SchedulerAttributes) -> io::Result<()> {
    let attributes = SchedulerAttributes { size: size_of::<SchedulerAttributes>() as u32, ..attributes };
    call(libc::SYS_sched_setattr, [0, &raw const attributes as usize, 0, 0, 0])
}

/// A root with the same files: a bind mount of it in a mount namespace of this thread's own.
fn other_root(scratch: &Path) -> io::Result<()> {
    unshare(libc::CLONE_NEWNS)?;
    let place = CString::new(scratch.to_str().expect("UTF-8")).expect("no NUL");
    let (none, root) = (c"none".as_ptr(), c"/".as_ptr());
    let private = (libc::MS_REC | libc::MS_PRIVATE) as libc::c_ulong;
    let bind = (libc::MS_REC | libc::MS_BIND) as libc::c_ulong;
    // SAFETY: mounts of a namespace that is this thread's alone.
    unsafe {
        done(libc::mount(none, root, std::ptr::null(), private, std::ptr::null()).into())?;
        done(libc::mount(root, place.as_ptr(), std::ptr::null(), bind, std::ptr::null()).into())?;
        done(libc::chroot(place.as_ptr()).into())
    }
}

/// Changes an attribute of the calling thread, or of its process where a thread has none of its own. `scratch`: an empty
/// directory.
///
/// # Errors
/// If the kernel refuses it.
pub fn change(name: &str, scratch: &Path) -> io::Result<()> {
    // libc has this number for glibc only.
    const PR_SET_SPECULATION_CTRL: i32 = 53;
    const PR_SPEC_STORE_BYPASS: usize = 0;
    const PR_SPEC_INDIRECT_BRANCH: usize = 1;
    const PR_SPEC_DISABLE: usize = 4;
    match name {
        "directory" => own_fs().and_then(|()| std::env::set_current_dir("/usr")),
        "umask" => own_fs().map(|()| {
            // SAFETY: of this thread.
            unsafe { libc::umask(0o137) };
        }),
        "root" => other_root(scratch),
        "group" => call(libc::SYS_setresgid, [12345, 12345, 12345, 0, 0]),
        "groups" => {
            let groups = [5u32, 6];
            call(libc::SYS_setgroups, [2, groups.as_ptr() as usize, 0, 0, 0])
        }
        "inheritable" => {
            const CAP_KILL: u32 = 5;
            let header = [0x2008_0522u32, 0];
            let mut sets = [0u32; 6];
            call(libc::SYS_capget, [header.as_ptr() as usize, sets.as_mut_ptr() as usize, 0, 0, 0])?;
            sets[2] |= 1 << CAP_KILL;
            call(libc::SYS_capset, [header.as_ptr() as usize, sets.as_ptr() as usize, 0, 0, 0])
        }
        "bounding set" => prctl(libc::PR_CAPBSET_DROP, [22, 0, 0, 0]),
        "securebits" => prctl(libc::PR_SET_SECUREBITS, [1 << 2, 0, 0, 0]),
        "keyring" => call(libc::SYS_keyctl, [1, 0, 0, 0, 0]),
        "no_new_privs" => prctl(libc::PR_SET_NO_NEW_PRIVS, [1, 0, 0, 0]),
        "filter" => {
            filter::refuse(&[Refusal::of(libc::SYS_membarrier, Answer::Errno(libc::ENOSYS))]).map_err(io::Error::other)
        }
        "speculation" => prctl(PR_SET_SPECULATION_CTRL, [PR_SPEC_STORE_BYPASS, PR_SPEC_DISABLE, 0, 0])
            .or_else(|_| prctl(PR_SET_SPECULATION_CTRL, [PR_SPEC_INDIRECT_BRANCH, PR_SPEC_DISABLE, 0, 0])),
        "login uid" => fs::write("/proc/thread-self/loginuid", "1234"),
        "net" => unshare(libc::CLONE_NEWNET),
        "mnt" => unshare(libc::CLONE_NEWNS),
        "uts" => unshare(libc::CLONE_NEWUTS),
        "ipc" => unshare(libc::CLONE_NEWIPC),
        "cgroup namespace" => unshare(libc::CLONE_NEWCGROUP),
        "time" => unshare(0x80),
        // That of the parent, which has another one.
        "process group" => {
            // SAFETY: these return numbers.
            let group = unsafe { libc::getpgid(libc::getppid()) };
            call(libc::SYS_setpgid, [0, group as usize, 0, 0, 0])
        }
        "limit" => {
            let limit = [77u64, 88];
            call(libc::SYS_prlimit64, [0, libc::RLIMIT_CORE as usize, limit.as_ptr() as usize, 0, 0])
        }
        "nice" => call(libc::SYS_setpriority, [0, 0, 7, 0, 0]),
        "policy" => schedule(SchedulerAttributes { policy: libc::SCHED_BATCH as u32, ..Default::default() }),
        "slice" => schedule(SchedulerAttributes { runtime: 20_000_000, ..Default::default() }),
        "clamps" => schedule(SchedulerAttributes { flags: 0x20 | 0x18, clamps: [100, 900], ..Default::default() }),
        "affinity" => {
            // The last CPU that this thread may use.
            let mut cpus = [0u64; 128];
            call(libc::SYS_sched_getaffinity, [0, size_of_val(&cpus), cpus.as_mut_ptr() as usize, 0, 0])?;
            let at = cpus.iter().rposition(|word| *word != 0).ok_or(io::ErrorKind::NotFound)?;
            cpus[..at].fill(0);
            cpus[at] = 1 << (63 - cpus[at].leading_zeros());
            call(libc::SYS_sched_setaffinity, [0, size_of_val(&cpus), cpus.as_ptr() as usize, 0, 0])
        }
        "cookie" => prctl(62, [1, 0, 0, 0]),
        "I/O priority" => call(libc::SYS_ioprio_set, [1, 0, 2 << 13 | 7, 0, 0]),
        "slack" => prctl(libc::PR_SET_TIMERSLACK, [777_777, 0, 0, 0]),
        // ADDR_COMPAT_LAYOUT: the layout of memory stays random.
        "personality" => call(libc::SYS_personality, [0x0020_0000, 0, 0, 0, 0]),
        "ignored signal" => {
            // SAFETY: of this process.
            let before = unsafe { libc::signal(libc::SIGUSR2, libc::SIG_IGN) };
            if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
        }
        "mask" => {
            let set = 1u64 << (libc::SIGUSR1 - 1);
            call(libc::SYS_rt_sigprocmask, [libc::SIG_BLOCK as usize, &raw const set as usize, 0, 8, 0])
        }
        "memory policy" => {
            let node = 1u64;
            call(libc::SYS_set_mempolicy, [1, &raw const node as usize, 64, 0, 0])
        }
        "memory errors" => prctl(libc::PR_MCE_KILL, [1, 1, 0, 0]),
        "I/O flusher" => prctl(57, [1, 0, 0, 0]),
        // Rust's clock reads the counter, which would end this process: only where the kernel answers instead.
        "time stamp counter" => Err(io::ErrorKind::Unsupported.into()),
        "oom_score_adj" => fs::write("/proc/self/oom_score_adj", "123"),
        "core dump filter" => fs::write("/proc/self/coredump_filter", "0x7f"),
        "huge pages" => prctl(libc::PR_SET_THP_DISABLE, [1, 0, 0, 0]),
        "memory merging" => prctl(67, [1, 0, 0, 0]),
        "MDWE" => prctl(65, [1, 0, 0, 0]),
        other => panic!("no change {other:?}"),
    }
}
