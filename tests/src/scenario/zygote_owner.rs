//! A zygote's helper serves only the process that started it, and only as long as that has the rights that it had.

use crate::observe::{self, skip};
use crate::zygote::{says, zygote};
use forkless_core::parcel::{Kind, Message};
use forkless_tests::process::is_root;
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
    let message = Message::new(Kind::Launch, 77, 0);
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

/// The caller itself is believed.
pub fn unchanged(_: &[String]) {
    assert_eq!(end_after(ask_for_a_launch), Some(2));
    observe::assert_no_orphans();
}

/// A caller that has become another user.
pub fn dropped_ids(_: &[String]) {
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

/// A caller that stays root, with a capability fewer.
pub fn dropped_capability(_: &[String]) {
    if refuse_unless_root("a zygote's caller that has dropped a capability") {
        return;
    }
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

/// Another process that has the caller's end of the socket, with the same rights.
pub fn another_process(_: &[String]) {
    let end = end_after(|socket| crate::hosts::in_a_copy(|| ask_for_a_launch(socket)));
    assert_eq!(end, TURNED_AWAY);
}
