//! Launches the program under test for its stand-in (`client.c`), warm where it can be.

use anyhow::{Context, Result, ensure};
use forkless::warm::{Warm, WarmOptions};
use forkless::{Command, Resource};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The most descriptors of a request, beside that of the directory.
const MOST: usize = 16;

/// The length of `struct request`.
const LENGTH: usize = 3 * 8 + 16 * 16 + 4 * 4 + MOST * 4;

/// The launches of a run.
#[derive(Default, Clone)]
pub(crate) struct Launches {
    pub(crate) warm: u64,
    /// The number of cold launches for each reason.
    pub(crate) cold: BTreeMap<String, u64>,
}

/// A server, until the process ends.
pub(crate) struct Server {
    launches: Arc<Mutex<Launches>>,
}

impl Server {
    /// Listens at `socket`, and launches `program` for each client.
    ///
    /// # Errors
    /// If there is no library, or no socket can be made.
    pub(crate) fn start(socket: &Path, program: &Path, library: &Path) -> Result<Self> {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).with_context(|| socket.display().to_string())?;
        let warm = WarmOptions::new().library(library).templates(64).launches(1_000_000).open()?;
        let launches = Arc::new(Mutex::new(Launches::default()));
        let (counts, program) = (Arc::clone(&launches), program.to_owned());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (warm, counts, program) = (warm.clone(), Arc::clone(&counts), program.clone());
                thread::spawn(move || {
                    if let Err(error) = serve(stream, &program, &warm, &counts) {
                        eprintln!("warm-suites: {error:#}");
                    }
                });
            }
        });
        Ok(Self { launches })
    }

    /// The launches since the last call.
    #[must_use]
    pub(crate) fn launches(&self) -> Launches {
        std::mem::take(&mut *self.launches.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a client sends, but the descriptors.
struct Request {
    ignored: u64,
    blocked: u64,
    limits: [[u64; 2]; 16],
    mask: u32,
    numbers: Vec<i32>,
    arguments: Vec<Vec<u8>>,
    variables: Vec<Vec<u8>>,
}

fn serve(mut stream: UnixStream, program: &Path, warm: &Warm, launches: &Mutex<Launches>) -> Result<()> {
    let (request, directory, files) = receive(&mut stream)?;
    let mut command = Command::new(program);
    let mut arguments = request.arguments.iter().map(|text| OsStr::from_bytes(text));
    command.arg0(arguments.next().context("no argv[0]")?).args(arguments).env_clear();
    // The suites of GNU's packages set this one, which only fills memory that is freed, and with which each launch is cold.
    for text in request.variables.iter().filter(|text| !text.starts_with(b"MALLOC_PERTURB_=")) {
        let at = text.iter().skip(1).position(|&byte| byte == b'=').map(|at| at + 1).context("no variable")?;
        command.env(OsStr::from_bytes(&text[..at]), OsStr::from_bytes(&text[at + 1..]));
    }
    command.current_dir_fd(directory).umask(request.mask);
    for (file, &number) in files.into_iter().zip(&request.numbers) {
        match number {
            0 => command.stdin(file),
            1 => command.stdout(file),
            2 => command.stderr(file),
            number => command.fd(file, number),
        };
    }
    for signal in (1..=64).filter(|signal| ![9, 19, 32, 33].contains(signal)) {
        let is_in = |set: u64| set >> (signal - 1) & 1 == 1;
        if is_in(request.ignored) {
            command.signal_ignore(signal)
        } else {
            command.signal_default(signal)
        };
        if is_in(request.blocked) {
            command.signal_block(signal);
        }
    }
    for (resource, [soft, hard]) in Resource::ALL.into_iter().zip(request.limits) {
        if own_limit(resource) != (soft, hard) {
            command.rlimit(resource, soft, hard);
        }
    }
    let prepared = command.warm(warm).prepare()?;
    // Most tests change the environment, so that nearly all launches would be the first ones.
    let _ = warm.start(&prepared);
    let launched = prepared.spawn();
    drop((prepared, command));
    let mut child = match launched {
        Ok(child) => child,
        Err(error) => {
            eprintln!("warm-suites: {error}");
            let status = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
            stream.write_all(&0i32.to_ne_bytes())?;
            return Ok(stream.write_all(&i32::to_ne_bytes(status))?);
        }
    };
    {
        let mut launches = launches.lock().unwrap_or_else(PoisonError::into_inner);
        match child.cold_reason() {
            None => launches.warm += 1,
            Some(reason) => *launches.cold.entry(reason.to_owned()).or_default() += 1,
        }
    }
    stream.write_all(&(child.id() as i32).to_ne_bytes())?;
    let watched = stream.try_clone()?;
    let pid = child.id();
    // A client that was killed takes the program with it.
    thread::spawn(move || {
        let has_ended = matches!((&watched).read(&mut [0]), Ok(0));
        let exists = |pid: &rustix::process::Pid| Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists();
        let pid = rustix::process::Pid::from_raw(pid as i32).filter(|pid| has_ended && exists(pid));
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    });
    let status = child.wait()?;
    stream.write_all(&status.into_raw().to_ne_bytes())?;
    Ok(stream.shutdown(std::net::Shutdown::Read)?)
}

/// This process's limit.
fn own_limit(resource: Resource) -> (u64, u64) {
    let mut found = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one structure.
    unsafe { libc::getrlimit(resource as _, &mut found) };
    (found.rlim_cur, found.rlim_max)
}

/// Receives a request, the client's directory and its descriptors.
fn receive(stream: &mut UnixStream) -> Result<(Request, OwnedFd, Vec<OwnedFd>)> {
    let mut head = [0u8; LENGTH];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST + 1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let received = recvmsg(&*stream, &mut [IoSliceMut::new(&mut head)], &mut control, flags)?;
    ensure!(received.bytes == LENGTH, "a request of {} bytes", received.bytes);
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    let long = |at: usize| u64::from_ne_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let short = |at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let counts = 3 * 8 + 16 * 16;
    let [arguments, variables, mask, count] = [0, 4, 8, 12].map(|at| short(counts + at));
    ensure!(files.len() == count as usize + 1, "{} descriptors", files.len());
    let mut text = vec![0; long(0) as usize];
    stream.read_exact(&mut text)?;
    let mut strings = text.split(|&byte| byte == 0).map(<[u8]>::to_vec);
    let directory = files.remove(0);
    let request = Request {
        ignored: long(8),
        blocked: long(16),
        limits: std::array::from_fn(|n| [long(24 + 16 * n), long(32 + 16 * n)]),
        mask,
        numbers: (0..count as usize).map(|n| short(counts + 16 + 4 * n) as i32).collect(),
        arguments: strings.by_ref().take(arguments as usize).collect(),
        variables: strings.take(variables as usize).collect(),
    };
    Ok((request, directory, files))
}
