//! Packets of the binary protocol.
//!
//! A packet is a magic word, a type and a length, each of four bytes, and the arguments, with a NUL byte after each but
//! the last.

use std::fmt;

/// The type of a packet, by the name that the protocol gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketKind(pub u32);

impl PacketKind {
    /// A worker can run jobs of a function.
    pub const CAN_DO: Self = Self(1);
    /// A worker sleeps until NOOP.
    pub const PRE_SLEEP: Self = Self(4);
    /// The server wakes a worker.
    pub const NOOP: Self = Self(6);
    /// A client submits a job and waits for its end.
    pub const SUBMIT_JOB: Self = Self(7);
    /// The server has taken a job, and names its handle.
    pub const JOB_CREATED: Self = Self(8);
    /// The server has no job for a worker.
    pub const NO_JOB: Self = Self(10);
    /// Progress of a job.
    pub const WORK_STATUS: Self = Self(12);
    /// The end of a job, with its result.
    pub const WORK_COMPLETE: Self = Self(13);
    /// The end of a job that failed.
    pub const WORK_FAIL: Self = Self(14);
    /// Asks for the same bytes back.
    pub const ECHO_REQ: Self = Self(16);
    /// The bytes of ECHO_REQ: the server has handled everything before them.
    pub const ECHO_RES: Self = Self(17);
    /// A client submits a job and does not wait for it.
    pub const SUBMIT_JOB_BG: Self = Self(18);
    /// An error, with a code and a text.
    pub const ERROR: Self = Self(19);
    /// The name of a client, for the server's list of workers.
    pub const SET_CLIENT_ID: Self = Self(22);
    /// A failure of the worker's code.
    pub const WORK_EXCEPTION: Self = Self(25);
    /// A part of a job's result.
    pub const WORK_DATA: Self = Self(28);
    /// A warning of a job: here, its standard error.
    pub const WORK_WARNING: Self = Self(29);
    /// A worker asks for a job, with its unique id.
    pub const GRAB_JOB_UNIQ: Self = Self(30);
    /// A job for a worker: handle, function, unique id, workload.
    pub const JOB_ASSIGN_UNIQ: Self = Self(31);

    /// How many arguments packets of this type have. The last one may contain NUL bytes. `None`: an unknown type.
    pub fn arguments(self) -> Option<usize> {
        Some(match self {
            Self::PRE_SLEEP | Self::NOOP | Self::NO_JOB | Self::GRAB_JOB_UNIQ => 0,
            Self::CAN_DO
            | Self::JOB_CREATED
            | Self::WORK_FAIL
            | Self::SET_CLIENT_ID
            | Self::ECHO_REQ
            | Self::ECHO_RES => 1,
            Self::WORK_COMPLETE | Self::ERROR | Self::WORK_EXCEPTION | Self::WORK_DATA | Self::WORK_WARNING => 2,
            Self::SUBMIT_JOB | Self::SUBMIT_JOB_BG | Self::WORK_STATUS => 3,
            Self::JOB_ASSIGN_UNIQ => 4,
            _ => return None,
        })
    }
}

/// The side that sends a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// A client or a worker.
    Client,
    /// The server.
    Server,
}

impl From {
    fn magic(self) -> [u8; 4] {
        match self {
            Self::Client => *b"\0REQ",
            Self::Server => *b"\0RES",
        }
    }
}

/// The length of a packet without its arguments.
const HEAD: usize = 12;

/// A packet that has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Its type.
    pub kind: PacketKind,
    /// Its arguments, as many as its type has. Of an unknown type: one.
    pub arguments: Vec<Vec<u8>>,
}

impl Packet {
    /// An argument; empty if there is none.
    pub fn argument(&self, index: usize) -> &[u8] {
        self.arguments.get(index).map_or(&[], Vec::as_slice)
    }
}

/// Why bytes are no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// The magic word is wrong: the peer speaks another protocol.
    Magic,
    /// The packet is longer than allowed.
    Long(u32),
    /// An argument is missing.
    Arguments(PacketKind),
}

impl fmt::Display for Broken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => out.write_str("not a packet of Gearman's binary protocol"),
            Self::Long(length) => write!(out, "a packet of {length} bytes, which is more than allowed"),
            Self::Arguments(kind) => write!(out, "a packet of type {} has too few arguments", kind.0),
        }
    }
}

impl std::error::Error for Broken {}

/// Appends a packet. The arguments before the last one must have no NUL byte.
pub fn encode(from: From, kind: PacketKind, arguments: &[&[u8]], to: &mut Vec<u8>) {
    let separators = arguments.len().saturating_sub(1);
    let length = arguments.iter().map(|argument| argument.len()).sum::<usize>() + separators;
    to.reserve(HEAD + length);
    to.extend_from_slice(&from.magic());
    to.extend_from_slice(&kind.0.to_be_bytes());
    to.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    for (index, argument) in arguments.iter().enumerate() {
        if index > 0 {
            to.push(0);
        }
        to.extend_from_slice(argument);
    }
}

/// Finds packets in a stream of bytes.
#[derive(Debug)]
pub struct Decoder {
    from: From,
    buffer: Vec<u8>,
    /// The bytes before this have been consumed.
    start: usize,
    most: u32,
}

impl Decoder {
    /// Decodes packets from this side, with arguments of at most `most` bytes.
    pub fn new(from: From, most: u32) -> Self {
        Self { from, buffer: Vec::new(), start: 0, most }
    }

    /// Adds bytes that have come.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        } else if self.start > 64 * 1024 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Forgets everything, for a new connection.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.start = 0;
    }

    /// The next packet; `None`: it has not come completely.
    ///
    /// # Errors
    /// The bytes are no packet. What follows cannot be decoded either.
    #[expect(clippy::should_implement_trait, reason = "it is no iterator: more may come after None")]
    pub fn next(&mut self) -> Result<Option<Packet>, Broken> {
        let bytes = &self.buffer[self.start..];
        let magic = self.from.magic();
        let seen = bytes.len().min(magic.len());
        if bytes[..seen] != magic[..seen] {
            return Err(Broken::Magic);
        }
        let Some((head, rest)) = bytes.split_at_checked(HEAD) else { return Ok(None) };
        let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (kind, length) = (PacketKind(number(4)), number(8));
        if length > self.most {
            return Err(Broken::Long(length));
        }
        let Some(body) = rest.get(..length as usize) else { return Ok(None) };
        let packet = Packet { kind, arguments: split(kind, body)? };
        self.start += HEAD + length as usize;
        Ok(Some(packet))
    }
}

/// Splits the arguments. The last one gets the rest, with its NUL bytes.
fn split(kind: PacketKind, body: &[u8]) -> Result<Vec<Vec<u8>>, Broken> {
    let count = kind.arguments().unwrap_or(1);
    if count == 0 {
        return Ok(Vec::new());
    }
    let found: Vec<Vec<u8>> = body.splitn(count, |&byte| byte == 0).map(<[u8]>::to_vec).collect();
    if found.len() == count { Ok(found) } else { Err(Broken::Arguments(kind)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder() -> Decoder {
        Decoder::new(From::Server, 1000)
    }

    #[test]
    fn a_packet_has_the_bytes_of_the_protocols_description() {
        let mut bytes = Vec::new();
        encode(From::Client, PacketKind::SUBMIT_JOB, &[b"reverse", b"", b"test"], &mut bytes);
        assert_eq!(bytes, b"\0REQ\0\0\0\x07\0\0\0\x0dreverse\0\0test");
    }

    #[test]
    fn packets_come_back_however_they_are_cut() {
        let mut bytes = Vec::new();
        encode(From::Server, PacketKind::NOOP, &[], &mut bytes);
        encode(From::Server, PacketKind::JOB_ASSIGN_UNIQ, &[b"H:1", b"f", b"u", b"a\0b"], &mut bytes);
        encode(From::Server, PacketKind(99), &[b"any", b"thing"], &mut bytes);
        for size in 1..=bytes.len() {
            let (mut decoder, mut found) = (decoder(), Vec::new());
            for part in bytes.chunks(size) {
                decoder.push(part);
                while let Some(packet) = decoder.next().expect("packets") {
                    found.push(packet);
                }
            }
            assert_eq!(found.len(), 3, "in pieces of {size}");
            assert_eq!(found[0], Packet { kind: PacketKind::NOOP, arguments: vec![] });
            assert_eq!(found[1].arguments, [&b"H:1"[..], b"f", b"u", b"a\0b"]);
            assert_eq!(found[2].arguments, [b"any\0thing"]);
        }
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        let mut wrong = decoder();
        wrong.push(b"HTTP/1.1 400");
        assert_eq!(wrong.next(), Err(Broken::Magic));
        let mut wrong = decoder();
        wrong.push(b"H");
        assert_eq!(wrong.next(), Err(Broken::Magic), "at the first byte");
        let mut long = decoder();
        long.push(b"\0RES\0\0\0\x06\xff\xff\xff\xff");
        assert_eq!(long.next(), Err(Broken::Long(u32::MAX)));
        let mut short = decoder();
        short.push(b"\0RES\0\0\0\x1f\0\0\0\x03a\0b");
        assert_eq!(short.next(), Err(Broken::Arguments(PacketKind::JOB_ASSIGN_UNIQ)));
    }
}
