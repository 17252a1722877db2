//! Which process sends messages to one that clones for another: to a zygote's helper, or the template of a warm program.
//!
//! Such a process keeps the rights that its caller had when it was started. A caller that has given up rights must not
//! regain them through the helper, nor may another process that has got the caller's end of the socket use them. The
//! caller's library checks both, but an attacker may control it by then. So the helper itself checks what the kernel
//! reports: the process that sent a message, its IDs at that moment (SCM_CREDENTIALS), and the IDs and capabilities of that
//! process's first thread.
//!
//! Not visible to the helper: supplementary groups, seccomp filters, a Landlock domain, and rights other than the real IDs
//! that only a thread other than the first has given up.
//!
//! Source: unix(7), SCM_CREDENTIALS; maybe_add_creds() in net/unix/af_unix.c; proc_pid_status(5).

use crate::parcel::Message;
use crate::procfs;
use crate::sys::{self, Result, uapi};
use core::mem::MaybeUninit;

/// The sender of a message: PID, real UID and real GID, of `struct ucred`.
pub type Credentials = [i32; 3];

/// IDs and capabilities of a process's first thread.
#[derive(Debug, Clone, Copy)]
pub struct Rights {
    /// Real, effective, saved and file system UID, and the same of the GID.
    ids: [u32; 8],
    /// Inheritable, permitted, effective, bounding and ambient.
    capabilities: [u64; 5],
}

impl Rights {
    /// Reads `/proc/PID/status`. `None` if that cannot be read.
    fn parse(mut status: &[u8]) -> Option<Self> {
        let mut found = Self { ids: [0; 8], capabilities: [0; 5] };
        let (uids, gids) = found.ids.split_at_mut(4);
        for (label, ids) in [(&b"\nUid:"[..], uids), (b"\nGid:", gids)] {
            let mut numbers = procfs::numbers(procfs::value(&mut status, label)?, 10);
            for id in ids {
                *id = numbers.next()? as u32;
            }
        }
        let labels = [&b"\nCapInh:"[..], b"\nCapPrm:", b"\nCapEff:", b"\nCapBnd:", b"\nCapAmb:"];
        for (number, (label, set)) in labels.iter().zip(&mut found.capabilities).enumerate() {
            match procfs::value(&mut status, label) {
                Some(value) => *set = procfs::numbers(value, 16).next()?,
                // The last one exists since Linux 4.3.
                None if number == 4 => {}
                None => return None,
            }
        }
        Some(found)
    }

    /// Those of the calling process. `None`: they cannot be read.
    fn own() -> Option<Self> {
        procfs::with_own_status(Self::parse)?
    }

    /// Those of the process whose status file is open as `status`.
    fn of(status: i32) -> Option<Self> {
        procfs::with_open_status(status, Self::parse)?
    }

    /// Number by number: comparing arrays would compile to a call of bcmp.
    fn is_same(&self, other: &Self) -> bool {
        let same_ids = self.ids.iter().zip(&other.ids).all(|(one, other)| one == other);
        same_ids && self.capabilities.iter().zip(&other.capabilities).all(|(one, other)| one == other)
    }

    fn is_empty(&self) -> bool {
        let [_, permitted, ..] = self.capabilities;
        permitted == 0
    }
}

/// The process that may send: the parent, as it was when this process began to serve.
#[derive(Debug, Clone, Copy)]
pub struct Owner {
    pid: i32,
    ids: [i32; 2],
    /// Its rights, and its open status file: a helper must be able to read that also at its limit of descriptors. `None`:
    /// this process has no capabilities, so only the sender's IDs matter; or they cannot be read.
    rights: Option<(i32, Rights)>,
}

impl Owner {
    /// Nobody: it may send nothing.
    pub const NOBODY: Self = Self { pid: -1, ids: [-1; 2], rights: None };

    /// The parent. From now on messages carry the credentials of their sender. `None`: the kernel refuses that.
    pub fn of(socket: i32) -> Option<Self> {
        const SOL_SOCKET: usize = 1;
        const SO_PASSCRED: usize = 16;
        let on = 1u32;
        let args = [socket as usize, SOL_SOCKET, SO_PASSCRED, &raw const on as usize, size_of::<u32>(), 0];
        // SAFETY: the kernel reads a number.
        unsafe { sys::syscall(uapi::__NR_setsockopt, args) }.ok()?;
        let pid = sys::getppid();
        // SAFETY: they return numbers.
        let id = |number: u32| unsafe { sys::syscall(number, [0; 6]) }.map_or(-1, |id| id as i32);
        let ids = [id(uapi::__NR_getuid), id(uapi::__NR_getgid)];
        // A parent outside of this PID namespace has no number here. Its first thread may have other rights than the thread
        // that has started this process: only a change of them matters.
        let matters = pid != 0 && Rights::own().is_none_or(|own| !own.is_empty());
        let status = if matters { procfs::open_status(pid) } else { None };
        let rights = status.and_then(|status| Some((status, Rights::of(status)?)));
        Some(Self { pid, ids, rights })
    }

    /// Whether a message is the owner's, and the owner has the rights that it had.
    pub fn has_sent(&self, sender: Option<Credentials>) -> bool {
        let Some([pid, uid, gid]) = sender else { return false };
        let is_owners = pid == self.pid && uid == self.ids[0] && gid == self.ids[1];
        is_owners
            && self.rights.is_none_or(|(status, rights)| Rights::of(status).is_some_and(|now| now.is_same(&rights)))
    }
}

/// A message that was received.
#[derive(Debug)]
pub struct Received {
    /// The message.
    pub message: Message,
    /// Descriptors were lost.
    pub lost_some: bool,
    /// The sender, if [`Owner::of`] was called for the socket.
    pub sender: Option<Credentials>,
}

/// `recvmsg(2)`; calls `take` for each descriptor, which is close-on-exec. `None` at the end of the stream.
pub fn receive(socket: i32, take: impl FnMut(i32)) -> Result<Option<Received>> {
    const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
    const MSG_CTRUNC: i32 = 8;
    /// The sender, and as many descriptors as the kernel sends at once: struct cmsghdr before each.
    #[repr(C, align(8))]
    struct ControlRoom([u8; 32 + 16 + 4 * 254]);
    /// struct msghdr.
    #[repr(C)]
    struct Header {
        name: usize,
        name_length: u32,
        vector: *const [usize; 2],
        vector_length: usize,
        control: *mut ControlRoom,
        control_length: usize,
        flags: i32,
    }
    let mut message = Message::EMPTY;
    let mut control = MaybeUninit::<ControlRoom>::uninit();
    let vector = [&raw mut message as usize, size_of::<Message>()];
    let mut header = Header {
        name: 0,
        name_length: 0,
        vector: &vector,
        vector_length: 1,
        control: control.as_mut_ptr(),
        control_length: size_of::<ControlRoom>(),
        flags: 0,
    };
    let args = [socket as usize, &raw mut header as usize, MSG_CMSG_CLOEXEC, 0, 0, 0];
    // SAFETY: the kernel writes the message, the control data and the header, within their lengths.
    let bytes = unsafe { sys::syscall(uapi::__NR_recvmsg, args) }?;
    // SAFETY: the kernel has written this much.
    let sender = unsafe { control_messages(control.as_ptr().cast(), header.control_length, take) };
    let lost_some = header.flags & MSG_CTRUNC != 0;
    Ok((bytes > 0).then_some(Received { message, lost_some, sender }))
}

/// Reads the control messages of `recvmsg(2)`: calls `take` for each descriptor and returns the sender. `length`: how many
/// bytes the kernel has written.
///
/// # Safety
/// The memory holds what the kernel has written.
unsafe fn control_messages(control: *const u8, length: usize, mut take: impl FnMut(i32)) -> Option<Credentials> {
    const SCM_RIGHTS: i32 = 1;
    const SCM_CREDENTIALS: i32 = 2;
    /// struct cmsghdr.
    #[repr(C)]
    struct Header {
        length: usize,
        level: i32,
        kind: i32,
    }
    const HEADER: usize = size_of::<Header>();
    let (mut at, mut sender) = (0, None);
    while at + HEADER <= length {
        // SAFETY: the kernel's headers are aligned, and this one is within what it has written.
        let (header, data) = unsafe { (&*control.add(at).cast::<Header>(), control.add(at + HEADER)) };
        let size = header.length.min(length - at).saturating_sub(HEADER);
        match header.kind {
            SCM_RIGHTS => {
                for n in 0..size / 4 {
                    // SAFETY: within the data.
                    take(unsafe { *data.cast::<i32>().add(n) });
                }
            }
            SCM_CREDENTIALS if size >= size_of::<Credentials>() => {
                // SAFETY: within the data.
                sender = Some(unsafe { *data.cast::<Credentials>() });
            }
            _ => {}
        }
        at += header.length.max(HEADER).next_multiple_of(align_of::<usize>());
    }
    sender
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &[u8] = b"Name:\tx\nUid:\t0\t1\t2\t3\nGid:\t4\t5\t6\t7\nCapInh:\t0000000000000001\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000000003\n\
CapBnd:\t0000000000000004\nCapAmb:\t0000000000000005\n";

    #[test]
    fn ids_and_capabilities_are_read() {
        let found = Rights::parse(STATUS).unwrap_or(Rights { ids: [0; 8], capabilities: [0; 5] });
        assert_eq!(found.ids, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(found.capabilities, [1, 0x1ff_ffff_ffff, 3, 4, 5]);
        assert!(Rights::parse(b"Name:\tx\nUid:\t0\t1\n").is_none());
        let fewer = Rights { capabilities: [1, 0, 3, 4, 5], ..found };
        assert!(fewer.is_empty() && !found.is_empty() && !found.is_same(&fewer) && found.is_same(&found));
        assert!(!found.is_same(&Rights { ids: [1; 8], ..found }));
    }

    #[test]
    fn the_rights_of_this_process_are_its_own() {
        let opened = procfs::open_status(sys::getpid()).and_then(Rights::of);
        assert!(Rights::own().zip(opened).is_some_and(|(own, opened)| own.is_same(&opened)));
    }

    #[test]
    fn control_messages_are_read_in_any_order_and_not_beyond_their_end() {
        #[repr(C, align(8))]
        struct ControlRoom([u8; 64]);
        let mut control = ControlRoom([0; 64]);
        let mut put = |at: usize, length: usize, kind: i32, words: &[i32]| {
            control.0[at..at + 8].copy_from_slice(&length.to_ne_bytes());
            control.0[at + 12..at + 16].copy_from_slice(&kind.to_ne_bytes());
            for (n, word) in words.iter().enumerate() {
                control.0[at + 16 + 4 * n..at + 20 + 4 * n].copy_from_slice(&word.to_ne_bytes());
            }
        };
        put(0, 28, 2, &[7, 8, 9]);
        put(32, 24, 1, &[3, 4]);
        let read = |length: usize| {
            let mut found = [0; 4];
            let mut count = 0;
            // SAFETY: filled above.
            let sender = unsafe {
                control_messages(control.0.as_ptr(), length, |fd| {
                    found[count] = fd;
                    count += 1;
                })
            };
            (sender, found)
        };
        assert_eq!(read(56), (Some([7, 8, 9]), [3, 4, 0, 0]));
        assert_eq!(read(52), (Some([7, 8, 9]), [3, 0, 0, 0]));
        assert_eq!(read(32), (Some([7, 8, 9]), [0; 4]));
        assert_eq!(read(0), (None, [0; 4]));
    }
}
