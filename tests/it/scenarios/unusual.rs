//! Hosts that use rare services of the kernel while they launch: `scenario NAME with=userfaultfd:1`. And a host with a rare policy of
//! scheduling.

use crate::elf::Programs;
use crate::observe;
use forkless::zygote::{Zygote, ZygoteOptions};
use forkless::{Command, Launcher, Stdio};
use forkless_tests::process;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::{mem, ptr, thread};

/// Makes this process such a host until it ends; false if the kernel cannot. `None`: no such kind.
pub(crate) fn become_it(kind: &str) -> Option<bool> {
    match kind {
        "userfaultfd" => Some(userfaultfd()),
        "pkey" => Some(protection_key()),
        "sqpoll" => Some(polled_ring()),
        _ => None,
    }
}

/// Blocks all signals of a thread: the handlers of a scenario use memory that this thread must not touch.
fn block_signals() {
    // SAFETY: changes this thread's mask by an initialised set.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigfillset(&raw mut set);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
    }
}

/// The list of mappings. A host keeps it open: a scenario would take what comes and goes for a leak.
fn open_maps() -> i32 {
    // SAFETY: a new descriptor.
    unsafe { libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) }
}

/// The private anonymous mappings in `maps` that can be written to. Allocates nothing.
fn private_memory(maps: i32, mut each: impl FnMut(u64, u64)) {
    let (mut text, mut length) = ([0_u8; 1 << 17], 0);
    // SAFETY: reads into the buffer.
    unsafe {
        libc::lseek(maps, 0, libc::SEEK_SET);
        while let more @ 1.. = libc::read(maps, text[length..].as_mut_ptr().cast(), text.len() - length) {
            length += more as usize;
        }
    }
    for line in text[..length].split(|byte| *byte == b'\n') {
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(place), Some(b"rw-p"), Some(b"0")) = (words.next(), words.next(), words.nth(2)) else { continue };
        let number = |text: &[u8]| str::from_utf8(text).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
        let mut ends = place.split(|byte| *byte == b'-').filter_map(number);
        if let (Some(from), Some(to)) = (ends.next(), ends.next()) {
            each(from, to);
        }
    }
}

const fn ioctl(number: u64, size: u64) -> libc::Ioctl {
    (3 << 30 | size << 16 | 0xaa << 8 | number) as libc::Ioctl
}
const UFFDIO_REGISTER: libc::Ioctl = ioctl(0, 32);
const UFFDIO_ZEROPAGE: libc::Ioctl = ioctl(4, 32);
const UFFDIO_WRITEPROTECT: libc::Ioctl = ioctl(6, 24);
const UFFDIO_API: libc::Ioctl = ioctl(0x3f, 24);
const PROTECT: u64 = 1;

fn new_userfaultfd() -> Option<i32> {
    // SAFETY: a new descriptor; the kernel reads and writes the array.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) as i32;
        // Write protection; with the right to it, also an event for each fork, which waits until that is read.
        let is_ready = |features| libc::ioctl(fd, UFFDIO_API, [0xaa_u64, features, 0].as_mut_ptr()) == 0;
        (fd >= 0 && (is_ready(3) || is_ready(1))).then_some(fd)
    }
}

/// Takes away the right to write to a range, and reports each page that is touched for the first time.
fn protect(fd: i32, from: u64, to: u64) -> bool {
    let (mut all, mut range) = ([from, to - from, 3, 0], [from, to - from, PROTECT]);
    // SAFETY: the kernel reads and writes the arrays.
    unsafe {
        libc::ioctl(fd, UFFDIO_REGISTER, all.as_mut_ptr()) == 0
            && libc::ioctl(fd, UFFDIO_WRITEPROTECT, range.as_mut_ptr()) == 0
    }
}

/// Gives what is missing for each access that waits.
fn serve(fd: i32) {
    const UFFD_EVENT_FORK: u64 = 0x13;
    let mut event = [0_u64; 4];
    // SAFETY: the kernel writes to the array.
    while unsafe { libc::read(fd, event.as_mut_ptr().cast(), 32) } == 32 {
        if event[0] & 0xff == UFFD_EVENT_FORK {
            // SAFETY: the descriptor for the copy, which is left to itself.
            unsafe { libc::close(event[1] as i32) };
            continue;
        }
        let (is_protected, page) = (event[1] & 2 != 0, event[2] & !4095);
        let call = if is_protected { UFFDIO_WRITEPROTECT } else { UFFDIO_ZEROPAGE };
        // SAFETY: the kernel reads and writes the array. While a thread forks it refuses, until the event has been read.
        while unsafe { libc::ioctl(fd, call, [page, 4096, 0, 0].as_mut_ptr()) } != 0
            && std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
        {
            serve(fd);
        }
    }
}

/// All private memory is write-protected again and again, as for a snapshot; one thread gives each page back when it is written to.
fn userfaultfd() -> bool {
    let Some(fd) = new_userfaultfd() else { return false };
    let maps = open_maps();
    thread::spawn(move || {
        block_signals();
        for round in 0_u64.. {
            protect_all(fd, maps);
            // Until the next round.
            for _ in 0..round % 8 {
                let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: one descriptor.
                unsafe { libc::poll(&raw mut poll, 1, 1) };
                serve(fd);
            }
        }
    });
    true
}

/// Protects all private memory but the calling thread's stack, and serves meanwhile. The calling thread must touch nothing else.
fn protect_all(fd: i32, maps: i32) {
    let own = &raw const fd as u64;
    private_memory(maps, |from, to| {
        if !(from..to).contains(&own) {
            protect(fd, from, to);
        }
        serve(fd);
    });
}

part!(killed_while_protected);
/// A child is killed before its exec, when its frame is protected: then the kernel does not clear the futex word.
pub fn killed_while_protected(_: &[String]) {
    let programs = Programs::new();
    assert_eq!(Command::new(programs.exits(4)).status().expect("status").code(), Some(4));
    for form in 0..3 {
        let Some(fd) = new_userfaultfd() else {
            return observe::skip("a child that is killed while its memory is protected", "there is no userfaultfd");
        };
        let fifo = programs.fifo(&format!("hold-{form}"));
        let mut command = Command::new(programs.exits(4));
        command.fd(Stdio::open(&fifo, libc::O_RDONLY, 0), 5);
        let (end, done) = std::io::pipe().expect("a pipe");
        let maps = open_maps();
        let killer = thread::spawn(move || {
            block_signals();
            let mut pid = 0;
            observe::eventually("a child asleep before exec", || {
                pid = observe::opening_child().unwrap_or(0);
                pid != 0
            });
            protect_all(fd, maps);
            process::kill(pid, libc::SIGKILL);
            let mut polls = [fd, end.as_raw_fd()].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
            while polls[1].revents == 0 {
                serve(fd);
                // SAFETY: two descriptors.
                unsafe { libc::poll(polls.as_mut_ptr(), 2, -1) };
            }
            // SAFETY: descriptors of this function's own. Nothing is protected any more.
            unsafe { (libc::close(fd), libc::close(maps)) };
        });
        let error = observe::within("a launch whose child is killed", || match form {
            0 => command.spawn().map(drop),
            1 => command.status().map(drop),
            _ => command.launch().and_then(|mut child| child.wait_exec()),
        });
        let error = error.expect_err("killed").to_string();
        assert!(error.contains("killed"), "{error}");
        drop(done);
        killer.join().expect("the killer");
    }
    observe::assert_no_orphans();
}

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    fn pkey_set(key: i32, rights: u32) -> i32;
}

/// musl has no way to keep its heap together.
#[cfg(not(target_env = "gnu"))]
fn protection_key() -> bool {
    false
}

/// The heap has a protection key that only this thread, and those that it starts, may use.
#[cfg(target_env = "gnu")]
fn protection_key() -> bool {
    // SAFETY: options of malloc; nothing is freed twice; between the two calls of pkey_set the heap is not used.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_MMAP_THRESHOLD, i32::MAX);
        libc::free(libc::malloc(16 << 20));
        let key = libc::syscall(libc::SYS_pkey_alloc, 0, 0) as i32;
        if key < 0 {
            return false;
        }
        let (heap, end) = (libc::malloc(64), libc::sbrk(0) as u64);
        private_memory(open_maps(), |from, to| {
            if to == end {
                assert_eq!(libc::syscall(libc::SYS_pkey_mprotect, from, to - from, 3, key), 0);
            }
        });
        let is_readable = || libc::syscall(libc::SYS_getrandom, heap, 64, 0) == 64;
        pkey_set(key, 3);
        let without_rights = is_readable();
        pkey_set(key, 0);
        assert!(!without_rights && is_readable());
        libc::free(heap);
    }
    true
}

/// A thread of the kernel reads zeroes for an io_uring, one time after another.
fn polled_ring() -> bool {
    const IORING_SETUP_SQPOLL: u32 = 2;
    const IORING_OP_READ: u32 = 22;
    // io_uring_params: 30 words.
    let mut ring = [0_u32; 30];
    (ring[2], ring[4]) = (IORING_SETUP_SQPOLL, 50);
    // SAFETY: the kernel reads and writes the array.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, ring.as_mut_ptr()) } as i32;
    if fd < 0 {
        return false;
    }
    let map = |offset| {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping, of one page.
        let at = unsafe { libc::mmap(ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset) };
        assert_ne!(at, libc::MAP_FAILED);
        at.cast::<u32>()
    };
    let (words, entry) = (map(0), map(0x1000_0000));
    let buffer = Box::leak(Box::new([1_u8; 4096]));
    // SAFETY: the only entry, which the kernel does not read yet; a new descriptor.
    unsafe {
        entry.write(IORING_OP_READ);
        entry.add(1).write(libc::open(c"/dev/zero".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) as u32);
        entry.add(4).cast::<u64>().write(buffer.as_mut_ptr() as u64);
        entry.add(6).write(4096);
    }
    // SAFETY: the kernel's offsets, in a mapping that stays.
    let word = |at: u32| unsafe { &*words.byte_add(at as usize).cast::<AtomicU32>() };
    let [tail, flags, head, ended] = [11, 14, 20, 21].map(|at| word(ring[at]));
    let results = [0, 1].map(|at| word(ring[25] + at * 16 + 8));
    thread::spawn(move || {
        block_signals();
        for n in 0_u32.. {
            tail.store(n + 1, SeqCst);
            while ended.load(Acquire) == n {
                if flags.load(SeqCst) & 1 != 0 {
                    // SAFETY: wakes the kernel's thread.
                    unsafe { libc::syscall(libc::SYS_io_uring_enter, fd, 0, 0, 2, 0, 0) };
                }
                thread::yield_now();
            }
            assert_eq!(results[n as usize % 2].load(Relaxed), 4096);
            head.store(n + 1, Release);
        }
    });
    true
}

part!(deadline);
/// A thread with the policy SCHED_DEADLINE can have no child, and the error says so; with SCHED_FLAG_RESET_ON_FORK it can.
pub fn deadline(_: &[String]) {
    const ALL: [Launcher; 3] = [Launcher::Clone, Launcher::Fork, Launcher::PosixSpawn];
    // glibc 2.31 returns 1 from posix_spawn(3) for each error of clone(2).
    let all = if process::has_no_closefrom() { &ALL[..2] } else { &ALL };
    let zygote = Zygote::start(&ZygoteOptions::new()).expect("a zygote");
    let launches = || {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg("zygote_scheduling::scheduling").stdout(Stdio::piped());
        let of_the_zygote = command.prepare().expect("prepare");
        let mut tied = Command::new("/bin/true");
        tied.parent_death_signal(libc::SIGKILL);
        if let Err(error) = process::run_by_deadline(false) {
            return observe::skip("a caller with SCHED_DEADLINE", &error.to_string());
        }
        let mut answers: Vec<_> = all.iter().map(|&launcher| command.launcher(launcher).output().map(drop)).collect();
        answers.push(tied.status().map(drop));
        for answer in answers {
            let error = answer.expect_err("no child, and no thread, can inherit the policy");
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            assert!(error.to_string().contains("SCHED_DEADLINE"), "{error}");
        }
        let error = zygote.output(&of_the_zygote).expect_err("the same");
        assert!(error.to_string().contains("SCHED_DEADLINE"), "{error}");
        process::run_by_deadline(true).expect("the same policy with another flag");
        for &launcher in all {
            assert_eq!(command.launcher(launcher).output().expect("output").stdout, b"[0, 0, 0]\n");
        }
        assert_eq!(zygote.output(&of_the_zygote).expect("output").stdout, b"[0, 0, 0]\n");
        assert!(tied.status().expect("status").success());
    };
    thread::scope(|scope| scope.spawn(launches).join().expect("a thread"));
    drop(zygote);
    observe::assert_no_orphans();
}
