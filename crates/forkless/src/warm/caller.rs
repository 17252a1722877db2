//! The caller's attributes that exec would have given the child, or that exec reads, beyond those that a zygote
//! compares. The caller's values are recorded when a template is started and compared with the caller's at each launch;
//! not with the template's, which exec may have changed.

use crate::kept::Kept;
use crate::process;
use crate::procfs::{self, Status};
use forkless_core::sys::{self, errno, uapi};
use rustix::fs::{Mode, OFlags};
use std::cell::RefCell;
use std::fs::File;
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

/// Indices of a thread's files.
const STATUS: usize = 0;
const STAT: usize = 1;

/// The number of system calls that return a value.
const VALUES: usize = 6;

/// The attributes of a thread at a moment.
#[derive(PartialEq, Eq)]
pub(super) struct ThreadAttributes {
    lines: [Option<Vec<u8>>; LINES.len()],
    /// The device number of the controlling terminal.
    terminal: Option<Vec<u8>>,
    session: i32,
    values: [i64; VALUES],
}

impl ThreadAttributes {
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
            let terminal = match before.filter(|before| before.can_keep_terminal(session)) {
                Some(before) => before.terminal.clone(),
                None => own.contents(STAT).ok().and_then(|text| terminal(&text)),
            };
            Ok((Self { lines, terminal, session, values: values() }, status))
        })
    }

    /// Whether a process in this session has the terminal that it had. A process without one gets one only as the
    /// leader of its session (`tty_ioctl(4)` TIOCSCTTY), and becomes a leader only of a new session.
    fn can_keep_terminal(&self, session: i32) -> bool {
        let had_none = self.terminal.as_deref() == Some(b"0");
        let is_led_by_another = session == self.session && session != sys::getpid();
        had_none && is_led_by_another
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
    files: [Option<Kept<File>>; 2],
}

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// Calls `work` with the calling thread's files. `keeps`: they stay open.
fn with_files<T>(keeps: bool, work: impl FnOnce(&mut Own) -> T) -> T {
    let owner = process::generation();
    let fresh = |is_kept| Own { owner, is_kept, files: [const { None }; 2] };
    if !keeps {
        return work(&mut fresh(false));
    }
    let mut work = Some(work);
    let answer = OWN.try_with(|place| {
        let mut place = place.borrow_mut();
        if place.as_ref().is_none_or(|own| own.owner != owner) {
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
    /// Opens the files again at the next use: other code of the process may have closed them.
    fn forget(&mut self) {
        self.files = [const { None }; 2];
    }

    fn file(&mut self, which: usize) -> Result<&File, i32> {
        let Some(place) = self.files.get_mut(which) else { return Err(errno::EINVAL) };
        Kept::get_or_open(place, || open(if which == STATUS { "status" } else { "stat" }))
    }

    /// The contents of a short file, by one read.
    fn contents(&mut self, which: usize) -> Result<Vec<u8>, i32> {
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

/// Opens a file of the calling thread.
fn open(name: &str) -> Result<Kept<File>, i32> {
    let opened = rustix::fs::open(procfs::thread(name), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    Ok(Kept::moved_away(opened.map_err(|error| error.raw_os_error())?))
}

/// The value of a system call that returns a number, or writes to memory of its caller here; an error as a negative number.
fn value(number: u32, args: [usize; 6]) -> i64 {
    // SAFETY: the callers in this file pass numbers, and addresses of their own variables with their sizes.
    unsafe { sys::syscall(number, args) }.map_or_else(|error| -i64::from(error), |value| value as i64)
}

/// The values of system calls; an error as a negative number.
fn values() -> [i64; VALUES] {
    let limit = |resource: u32| {
        let mut found = [0u64; 2];
        value(uapi::__NR_prlimit64, [0, resource as usize, 0, found.as_mut_ptr() as usize, 0, 0]);
        found.map(|limit| limit as i64)
    };
    // Exec lays out memory by these limits.
    let ([stack, most_stack], [data, _]) = (limit(uapi::RLIMIT_STACK), limit(uapi::RLIMIT_DATA));
    [
        value(uapi::__NR_personality, [u32::MAX as usize, 0, 0, 0, 0, 0]),
        stack,
        most_stack,
        data,
        limit(uapi::RLIMIT_AS)[0],
        // The kernel checks RLIMIT_NPROC when a process is cloned: the template's, which is not the caller's.
        limit(uapi::RLIMIT_NPROC)[0],
    ]
}
