//! A zygote's helper serves only the process that started it, and only as long as that has the rights that it had.

use crate::observe::{self, skip};
use crate::zygote::{says, zygote};
use forkless::{Command, Stdio};
use forkless_core::parcel::{Message, MessageKind};
use forkless_core::sys::{self, uapi};
use forkless_tests::patience;
use forkless_tests::process::is_root;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The end of this process's socket to the helper.
fn socket() -> i32 {
    let is_ours = |fd: &i32| {
        let (mut kind, mut size) = (0, size_of::<i32>() as libc::socklen_t);
        // SAFETY: the kernel writes a number.
        let answer =
            unsafe { libc::getsockopt(*fd, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &raw mut size) };
        answer == 0 && kind == libc::SOCK_SEQPACKET
    };
    (3..100).find(is_ours).expect("the socket of a zygote")
}

/// Asks for a launch without the library, which would compare first. The parcel does not exist: a helper that believes
/// it ends with 2.
fn ask_for_a_launch(socket: i32) {
    let message = Message::new(MessageKind::Launch, 77, 0);
    // SAFETY: the kernel reads the message.
    let sent = unsafe { libc::send(socket, (&raw const message).cast(), size_of::<Message>(), libc::MSG_NOSIGNAL) };
    assert_eq!(sent, size_of::<Message>() as isize);
}

/// How a helper ends that is asked for a launch after `change`.
fn end_after(change: impl FnOnce(i32)) -> Option<i32> {
    let zygote = zygote();
    assert_eq!(says(&zygote, "echo served"), "served");
    let helper = zygote.pid().expect("a helper") as i32;
    change(socket());
    let mut status = 0;
    // SAFETY: the kernel writes a status.
    assert_eq!(unsafe { libc::waitpid(helper, &raw mut status, 0) }, helper);
    std::mem::forget(zygote);
    ExitStatus::from_raw(status).code()
}

const TURNED_AWAY: Option<i32> = Some(5);

fn refuse_unless_root(what: &str) -> bool {
    if !is_root() {
        skip(what, "needs root");
    }
    !is_root()
}

scenario!(a_helper_serves_its_caller);
/// The caller itself is believed.
pub fn a_helper_serves_its_caller(_: &[String]) {
    assert_eq!(end_after(ask_for_a_launch), Some(2));
    observe::assert_no_orphans();
}

scenario!(a_helper_ends_when_its_caller_has_dropped_root);
/// A caller that has become another user.
pub fn a_helper_ends_when_its_caller_has_dropped_root(_: &[String]) {
    if refuse_unless_root("a zygote's caller that has dropped root") {
        return;
    }
    let end = end_after(|socket| {
        // SAFETY: of this process.
        assert_eq!(unsafe { libc::setresuid(12345, 12345, 12345) }, 0);
        ask_for_a_launch(socket);
    });
    assert_eq!(end, TURNED_AWAY);
}

scenario!(a_helper_ends_when_its_caller_has_dropped_a_capability);
/// A caller that stays root, with a capability fewer. Its groups stand before those in the status of a process, and have 700 KB.
pub fn a_helper_ends_when_its_caller_has_dropped_a_capability(_: &[String]) {
    if refuse_unless_root("a zygote's caller that has dropped a capability") {
        return;
    }
    let groups: Vec<u32> = (4_000_000_000..4_000_065_536).collect();
    // SAFETY: the kernel reads the numbers; there is one thread.
    assert_eq!(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) }, 0);
    let end = end_after(|socket| {
        const CAP_SYS_BOOT: u32 = 22;
        let header = [0x2008_0522u32, 0];
        let mut sets = [0u32; 6];
        // SAFETY: the kernel writes six words, and reads them.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()), 0);
            for set in &mut sets[..2] {
                *set &= !(1 << CAP_SYS_BOOT);
            }
            assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()), 0);
        }
        ask_for_a_launch(socket);
    });
    assert_eq!(end, TURNED_AWAY);
}

scenario!(a_helper_serves_no_other_process);
/// Another process that has the caller's end of the socket, with the same rights.
pub fn a_helper_serves_no_other_process(_: &[String]) {
    let end = end_after(|socket| crate::hosts::in_a_copy(|| ask_for_a_launch(socket)));
    assert_eq!(end, TURNED_AWAY);
}

scenario!(numbers_that_the_caller_has_closed_are_not_used);
/// Descriptors that a zygote keeps in its caller and that the caller closes by mistake, one by one. Each number is then another file,
/// which is not read, sent to, signalled or closed, and the children are right.
pub fn numbers_that_the_caller_has_closed_are_not_used(_: &[String]) {
    let open = || -> BTreeSet<i32> {
        let numbers = fs::read_dir("/proc/self/fd").expect("/proc").flatten();
        let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        // The directory is closed by now.
        numbers.filter(|number| fs::metadata(format!("/proc/self/fd/{number}")).is_ok()).collect()
    };
    let mut twin = Command::new("/bin/sh");
    twin.args(["-c", "umask 0123; trap '' USR1; echo; exec sleep 600"]).stdout(Stdio::piped()).pidfd(true);
    let mut twin = twin.spawn().expect("spawn");
    io::Read::read_exact(&mut twin.stdout.take().expect("a pipe"), &mut [0]).expect("it has begun");
    let twin_is = |name: &str| format!("/proc/{}/{name}", twin.id());
    let file = |path: String| OwnedFd::from(File::open(path).expect("open"));
    let (socket, theirs) = UnixDatagram::pair().expect("a socket");
    theirs.set_nonblocking(true).expect("a socket");
    let pidfd = twin.pidfd().expect("a pidfd").try_clone_to_owned().expect("a copy");
    // The status first: where it is read, the test ends before an endless file is read.
    let strangers = [
        file(twin_is("status")),
        pidfd,
        socket.into(),
        file("/proc/self/fdinfo".into()),
        file(twin_is("cgroup")),
        file("/dev/zero".into()),
    ];
    let script = "umask; grep SigIgn /proc/self/status; pwd";
    let alone = Command::new("/bin/sh").args(["-c", script]).output().expect("output").stdout;
    let alone = String::from_utf8(alone).expect("text");
    for stranger in &strangers {
        let which = fs::read_link(format!("/proc/self/fd/{}", stranger.as_raw_fd())).expect("/proc");
        let mut nth = 0;
        loop {
            let before = open();
            let zygote = zygote();
            says(&zygote, "echo");
            let mut kept = open().into_iter().filter(|number| !before.contains(number));
            let Some(number) = kept.nth(nth) else { break };
            // SAFETY: this is what is tested.
            assert_eq!(unsafe { libc::dup2(stranger.as_raw_fd(), number) }, number);
            let what = format!("{which:?} at number {nth} of those that are kept, {number}");
            for _ in 0..2 {
                assert_eq!(says(&zygote, script), alone.trim(), "{what}");
            }
            drop(zygote);
            assert!(theirs.recv(&mut [0; 16]).is_err(), "{what}: a message came");
            assert_eq!(twin.try_wait().expect("the twin"), None, "{what}");
            assert!(is_same_file(stranger.as_raw_fd(), number), "{what}: it was closed");
            // SAFETY: it is this function's.
            assert_eq!(unsafe { libc::close(number) }, 0);
            nth += 1;
        }
        assert!(nth >= 6, "{nth} descriptors are kept");
    }
    twin.kill().and_then(|()| twin.wait()).expect("it is still ours");
    observe::assert_no_orphans();
}

/// Whether two numbers are one and the same open file.
fn is_same_file(one: i32, other: i32) -> bool {
    // SAFETY: it compares descriptors.
    unsafe { libc::syscall(libc::SYS_kcmp, libc::getpid(), libc::getpid(), 0, one, other) == 0 }
}

scenario!(a_descriptor_of_another_launch_is_not_taken_for_memory);
/// A launch fails half-way, and the helper is at its limit of descriptors when the memory of the next one is sent: it must not take a
/// descriptor of the first for that memory.
pub fn a_descriptor_of_another_launch_is_not_taken_for_memory(_: &[String]) {
    const BATCH: i32 = 253;
    let zygote = zygote();
    assert_eq!(says(&zygote, "echo served"), "served");
    let helper = zygote.pid().expect("a helper");
    let file = tempfile::tempfile().expect("a file");
    file.set_len(4 << 20).expect("its length");
    let copies: Vec<_> = (0..BATCH + 10).map(|_| file.try_clone().expect("a descriptor")).collect();
    let mut command = Command::new("true");
    // The last one is not open, which the second message notices.
    for (number, ours) in (600..).zip(copies.iter().map(AsRawFd::as_raw_fd).chain([9_000])) {
        // SAFETY: a file that stays open, or none.
        command.fd(unsafe { Stdio::fd(ours) }, number);
    }
    zygote.spawn(&command.prepare().expect("prepare")).expect_err("a descriptor is not open");
    let open = || fs::read_dir(format!("/proc/{helper}/fd")).expect("its files").count() as u64;
    patience::end_after(60);
    while open() <= BATCH as u64 {
        std::thread::yield_now();
    }
    let limit = libc::rlimit { rlim_cur: 3, rlim_max: 3 };
    // SAFETY: the kernel reads the limits.
    assert_eq!(unsafe { libc::prlimit(helper as i32, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) }, 0);
    let large =
        Command::new("/bin/echo").args(vec!["x".repeat(99_999); 12]).stdout(Stdio::piped()).prepare().expect("prepare");
    // By another helper.
    assert_eq!(zygote.output(&large).expect("a launch").stdout.len(), 12 * 100_000);
    let mut content = Vec::new();
    (&file).read_to_end(&mut content).expect("the file");
    assert!(content.iter().all(|byte| *byte == 0), "the caller's file was written to");
}

scenario!(a_launch_waits_while_too_many_descriptors_are_on_their_way);
/// A user without privileges may have only so many descriptors on their way in sockets, those of other processes included.
pub fn a_launch_waits_while_too_many_descriptors_are_on_their_way(_: &[String]) {
    if is_root() {
        return skip("many descriptors in flight", "root has no limit of them");
    }
    let zygote = zygote();
    let (from, to) = UnixDatagram::pair().expect("sockets");
    let send = |socket: &UnixDatagram| {
        const FDS: usize = 100;
        let mut control = [0_u64; 2 + FDS / 2];
        let mut byte = libc::iovec { iov_base: control.as_mut_ptr().cast(), iov_len: 1 };
        // SAFETY: a message with the descriptors behind its header, all in memory that outlives the call.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut byte, 1);
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_len = libc::CMSG_LEN(4 * FDS as u32) as _;
            ((*header).cmsg_level, (*header).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
            let numbers = libc::CMSG_DATA(header).cast::<i32>();
            (0..FDS).for_each(|n| numbers.add(n).write_unaligned(socket.as_raw_fd()));
            assert_eq!(libc::sendmsg(socket.as_raw_fd(), &raw const message, 0), 1, "{}", io::Error::last_os_error());
        }
    };
    send(&from);
    let [_, most] = sys::getrlimit(uapi::RLIMIT_NOFILE).expect("a limit");
    sys::setrlimit(uapi::RLIMIT_NOFILE, &[64, most]).expect("a limit");
    let taker = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        // Without room for descriptors they are dropped.
        to.recv(&mut [0]).expect("a message");
    });
    assert_eq!(says(&zygote, "echo served"), "served");
    taker.join().expect("a thread");
}
