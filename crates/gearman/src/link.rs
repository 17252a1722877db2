//! A connection to a server that is made again when it breaks. Nothing here waits, except for the look-up of a name.

use crate::packet::{Decoder, From, Packet, PacketKind, encode};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The pause before a further try to connect: the first one, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));
/// How much is read at once.
const PIECE: usize = 64 * 1024;
/// The longest packet.
const LONGEST: u32 = 256 << 20;
/// After so many seconds of silence the kernel sends TCP keepalive probes.
const IDLE: u32 = 60;

/// Which servers may be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Those of this machine: loopback addresses.
    Loopback,
    /// All.
    Any,
}

/// What has happened to a [`Link`].
#[derive(Debug)]
pub enum Happening {
    /// It is connected. What was not acknowledged must be sent again.
    Up,
    /// It is broken, or could not be made. It is tried again after a pause.
    Down(io::Error),
    /// A packet has come.
    Packet(Packet),
}

enum State {
    /// Until the timer ends.
    Pausing,
    Connecting(OwnedFd),
    Up(OwnedFd),
}

/// A connection to a server.
pub struct Link {
    server: String,
    trust: Trust,
    state: State,
    /// The addresses that this try to connect has left.
    untried: VecDeque<SocketAddr>,
    /// Readable when there is something to do.
    epoll: OwnedFd,
    timer: OwnedFd,
    pause: Duration,
    decoder: Decoder,
    outgoing: Vec<u8>,
    /// How much of it has been written.
    written: usize,
    /// The kernel takes no more for now.
    is_full: bool,
    happened: VecDeque<Happening>,
    scratch: Vec<u8>,
}

impl Link {
    /// A connection to `HOST:PORT`, which is begun at once.
    ///
    /// # Errors
    /// The text is no host and port; the host is not on this machine, and only that is trusted; or no descriptor is left.
    pub fn new(server: &str, trust: Trust) -> io::Result<Self> {
        let addresses = addresses(server)?;
        if trust == Trust::Loopback && !addresses.iter().any(|address| address.ip().is_loopback()) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the server is not on this machine"));
        }
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &timer, EventData::new_u64(0), EventFlags::IN)?;
        let mut link = Self {
            server: server.to_owned(),
            trust,
            state: State::Pausing,
            untried: VecDeque::new(),
            epoll,
            timer,
            pause: PAUSE.0,
            decoder: Decoder::new(From::Server, LONGEST),
            outgoing: Vec::new(),
            written: 0,
            is_full: false,
            happened: VecDeque::new(),
            scratch: vec![0; PIECE],
        };
        link.connect();
        Ok(link)
    }

    /// The server's name.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Whether it is connected.
    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Whether everything has been given to the kernel.
    pub fn is_flushed(&self) -> bool {
        self.written == self.outgoing.len()
    }

    /// Adds a packet to what is written by the next [`pump`](Self::pump). Without a connection it is dropped:
    /// [`Happening::Up`] reports when to send again.
    pub fn send(&mut self, kind: PacketKind, arguments: &[&[u8]]) {
        if self.is_up() {
            encode(From::Client, kind, arguments, &mut self.outgoing);
        }
    }

    /// Writes and reads what is possible without a wait.
    pub fn pump(&mut self) {
        match &self.state {
            State::Pausing => {
                let mut count = [0; 8];
                if rustix::io::read(&self.timer, &mut count).is_ok() {
                    self.connect();
                }
            }
            State::Connecting(socket) => {
                let mut ready = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::OUT)];
                let is_ready = rustix::event::poll(&mut ready, Some(&Timespec::default()));
                if is_ready.is_ok_and(|count| count > 0) {
                    let answer = sockopt::socket_error(socket);
                    match answer {
                        Ok(Ok(())) => self.connected(),
                        Ok(Err(error)) | Err(error) => self.connect_next(error.into()),
                    }
                }
            }
            State::Up(_) => {
                self.write();
                self.read();
            }
        }
    }

    /// Writes what is possible without a wait.
    pub fn flush(&mut self) {
        if self.is_up() {
            self.write();
        }
    }

    /// What has happened, in its order.
    pub fn take(&mut self) -> Option<Happening> {
        self.happened.pop_front()
    }

    /// Breaks the connection, because the server does not keep to the protocol or refuses what it is sent.
    pub fn fail(&mut self, error: io::Error) {
        self.broken(error);
    }

    fn connect(&mut self) {
        match addresses(&self.server) {
            Ok(found) => {
                let is_trusted = |address: &SocketAddr| self.trust == Trust::Any || address.ip().is_loopback();
                self.untried = found.into_iter().filter(is_trusted).collect();
                self.connect_next(io::Error::other("the name has no address"));
            }
            Err(error) => self.broken(error),
        }
    }

    /// Begins to connect to the next address. Without a further one, the try has failed with this error.
    fn connect_next(&mut self, mut error: io::Error) {
        while let Some(address) = self.untried.pop_front() {
            match self.begin(address) {
                Ok((socket, is_connected)) => {
                    self.state = State::Connecting(socket);
                    if is_connected {
                        self.connected();
                    }
                    return;
                }
                Err(further) => error = further,
            }
        }
        self.broken(error);
    }

    /// Returns a socket that is connecting, and whether it is connected already.
    fn begin(&self, address: SocketAddr) -> io::Result<(OwnedFd, bool)> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        // The packets are written together anyway. A lost peer must be noticed at some time.
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, Duration::from_secs(IDLE.into()))?;
        let is_connected = match net::connect(&socket, &address) {
            Ok(()) => true,
            Err(Errno::INPROGRESS) => false,
            Err(error) => return Err(error.into()),
        };
        epoll::add(&self.epoll, &socket, EventData::new_u64(1), EventFlags::IN | EventFlags::OUT)?;
        Ok((socket, is_connected))
    }

    fn connected(&mut self) {
        if let State::Connecting(socket) = std::mem::replace(&mut self.state, State::Pausing) {
            self.state = State::Up(socket);
            self.is_full = true;
            self.watch_writes(false);
            self.happened.push_back(Happening::Up);
        }
    }

    fn broken(&mut self, error: io::Error) {
        // Its descriptor leaves the epoll instance as it is closed.
        self.state = State::Pausing;
        self.decoder.clear();
        self.outgoing.clear();
        (self.written, self.is_full) = (0, false);
        let it_value = Timespec::try_from(self.pause).unwrap_or_default();
        self.pause = (self.pause * 2).min(PAUSE.1);
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        // Cannot fail: the time and the timer are valid.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
        self.happened.push_back(Happening::Down(error));
    }

    /// Watches whether the socket is writable while `is_full`, if that has changed.
    fn watch_writes(&mut self, is_full: bool) {
        if is_full == self.is_full {
            return;
        }
        self.is_full = is_full;
        let State::Up(socket) = &self.state else { return };
        let flags = if is_full { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        if let Err(error) = epoll::modify(&self.epoll, socket, EventData::new_u64(1), flags) {
            self.broken(error.into());
        }
    }

    fn write(&mut self) {
        while let (State::Up(socket), false) = (&self.state, self.is_flushed()) {
            match net::send(socket, &self.outgoing[self.written..], net::SendFlags::NOSIGNAL) {
                Ok(count) => self.written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return self.watch_writes(true),
                Err(error) => return self.broken(error.into()),
            }
        }
        self.outgoing.clear();
        self.written = 0;
        self.watch_writes(false);
    }

    fn read(&mut self) {
        while let State::Up(socket) = &self.state {
            match rustix::io::read(socket, &mut self.scratch[..]) {
                Ok(0) => return self.broken(io::Error::other("the server has closed the connection")),
                Ok(count) => {
                    self.decoder.push(&self.scratch[..count]);
                    self.understand();
                    if count < PIECE {
                        return;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(error) => return self.broken(error.into()),
            }
        }
    }

    fn understand(&mut self) {
        loop {
            match self.decoder.next() {
                Ok(Some(packet)) => {
                    // Not at each connection: a server that accepts and closes them would get them without pauses.
                    self.pause = PAUSE.0;
                    self.happened.push_back(Happening::Packet(packet));
                }
                Ok(None) => return,
                Err(error) => return self.broken(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
    }
}

fn addresses(server: &str) -> io::Result<Vec<SocketAddr>> {
    let (host, port) = server.rsplit_once(':').unwrap_or((server, ""));
    if host.is_empty() || port.parse::<u16>().is_err() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not HOST:PORT, such as localhost:4730"));
    }
    let found = server.to_socket_addrs();
    Ok(found.map_err(|error| io::Error::new(error.kind(), format!("cannot look up {host:?}: {error}")))?.collect())
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Link").field("server", &self.server).field("up", &self.is_up()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Waits for something to happen. A test that waits for nothing is ended by its harness's limit.
    fn wait(link: &mut Link) -> Happening {
        loop {
            if let Some(happening) = link.take() {
                return happening;
            }
            let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
            assert!(
                poll(&mut [PollFd::new(&*link, PollFlags::IN)], Some(&limit)).expect("poll") > 0,
                "nothing happens"
            );
            link.pump();
        }
    }

    #[test]
    fn a_link_comes_up_again_when_its_server_does() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = server.local_addr().expect("an address");
        let mut link = Link::new(&address.to_string(), Trust::Loopback).expect("a link");
        assert!(matches!(wait(&mut link), Happening::Up));
        let (mut peer, _) = server.accept().expect("a connection");
        link.send(PacketKind::GRAB_JOB_UNIQ, &[]);
        link.pump();
        let mut seen = [0; 12];
        peer.read_exact(&mut seen).expect("a packet");
        assert_eq!(&seen, b"\0REQ\0\0\0\x1e\0\0\0\0");
        peer.write_all(b"\0RES\0\0\0\x0a\0\0\0\0").expect("written");
        assert!(matches!(wait(&mut link), Happening::Packet(Packet { kind: PacketKind::NO_JOB, .. })));
        drop((peer, server));
        assert!(matches!(wait(&mut link), Happening::Down(_)));
        assert!(!link.is_up());
        let server = loop {
            // The port may be busy for a moment.
            if let Ok(server) = TcpListener::bind(address) {
                break server;
            }
        };
        while !matches!(wait(&mut link), Happening::Up) {}
        drop(server.accept().expect("a connection"));
    }

    /// As with a name that has an IPv6 address and a server that listens on IPv4 only.
    #[test]
    fn refused_address_is_followed_by_the_next_one() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let closed = SocketAddr::from(([127, 0, 0, 2], server.local_addr().expect("an address").port()));
        let mut link = Link::new(&closed.to_string(), Trust::Loopback).expect("a link");
        link.untried.push_back(server.local_addr().expect("an address"));
        assert!(matches!(wait(&mut link), Happening::Up));
        drop(server.accept().expect("a connection"));
    }

    /// A server at its limit of connections, or another program.
    #[test]
    fn a_peer_that_closes_at_once_gets_fewer_and_fewer_connections() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut link =
            Link::new(&server.local_addr().expect("an address").to_string(), Trust::Loopback).expect("a link");
        let pause = link.pause;
        for _ in 0..3 {
            assert!(matches!(wait(&mut link), Happening::Up));
            drop(server.accept().expect("a connection"));
            assert!(matches!(wait(&mut link), Happening::Down(_)));
        }
        assert_eq!(link.pause, pause * 8);
    }

    #[test]
    fn a_peer_that_speaks_another_protocol_is_left() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = server.local_addr().expect("an address");
        let mut link = Link::new(&address.to_string(), Trust::Loopback).expect("a link");
        assert!(matches!(wait(&mut link), Happening::Up));
        let (mut peer, _) = server.accept().expect("a connection");
        peer.write_all(b"220 mail.example.org ESMTP\r\n").expect("written");
        let Happening::Down(error) = wait(&mut link) else { panic!("the link is down") };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn servers_elsewhere_need_trust() {
        let refused = Link::new("192.0.2.1:4730", Trust::Loopback).expect_err("not on this machine");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(Link::new("no port", Trust::Loopback).is_err());
    }
}
