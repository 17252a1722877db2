//! Reports what a child inherits, as TOML in a file, and then performs actions.
//!
//! `probe --report FILE [--do ACTION]… -- [ARGS…]`; [`act`] lists the actions. It has no Rust runtime around `main`,
//! which would open closed standard streams and ignore SIGPIPE before the report.

#![no_main]

use forkless_tests::observe::observe;
use forkless_tests::table::{Report, encode};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::{fs, io};

/// The program.
///
/// # Safety
/// Called once, by the C runtime, with the argument vector.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(count: c_int, words: *const *const c_char) -> c_int {
    // Whatever goes wrong, it ends.
    forkless_tests::patience::end_after(20);
    // First of all, before anything could open a descriptor.
    let fds = open_fds();
    // SAFETY: main's arguments.
    let argv: Vec<&[u8]> = (0..count as usize).map(|n| unsafe { CStr::from_ptr(*words.add(n)) }.to_bytes()).collect();
    let mut control = argv.get(1..).unwrap_or_default().iter();
    let (mut file, mut actions, mut own) = (None, Vec::new(), argv.get(..1).unwrap_or_default().to_vec());
    while let Some(&word) = control.next() {
        match word {
            b"--report" => file = control.next().map(|path| String::from_utf8_lossy(path).into_owned()),
            b"--do" => actions.extend(control.next().map(|action| String::from_utf8_lossy(action).into_owned())),
            _ => own.extend(control.by_ref()),
        }
    }
    let mut report = report(fds, &own);
    let mut end = None;
    for action in &actions {
        end = act(action, &mut report).or(end);
    }
    if let Some(file) = file {
        let text = toml::to_string(&report).expect("a report is plain data");
        // Renamed into place, because the reader must not see an incomplete file.
        let half = format!("{file}.half");
        if fs::write(&half, text).and_then(|()| fs::rename(&half, &file)).is_err() {
            return 99;
        }
    }
    match end {
        Some(End::Code(code)) => code,
        Some(End::Signal(signal)) => {
            // SAFETY: ends this process.
            unsafe { libc::raise(signal) };
            98
        }
        None => 0,
    }
}

/// How to end.
enum End {
    Code(i32),
    Signal(i32),
}

/// One action: `say TEXT`, `moan TEXT` (to stderr), `write FD TEXT`, `read` (stdin to its end), `read FD`, `look FILE` (reads it),
/// `make FILE`, `open FILE` (to read and write), `list DIRECTORY`, `follow LINK`, `umask` (is the call refused?), `exit CODE`,
/// `kill SIGNAL`. What is found out by several is reported with `; ` in between.
fn act(action: &str, report: &mut Report) -> Option<End> {
    let (verb, rest) = action.split_once(' ').unwrap_or((action, ""));
    match verb {
        "say" => put(1, rest),
        "moan" => put(2, rest),
        "write" => {
            let (fd, text) = rest.split_once(' ').unwrap_or((rest, ""));
            put(fd.parse().expect("write FD TEXT"), text);
        }
        "exit" => return rest.parse().ok().map(End::Code),
        "kill" => return rest.parse().ok().map(End::Signal),
        _ => {
            let found = find_out(verb, rest);
            let Some(found) = found else { return Some(End::Code(97)) };
            let found = found.unwrap_or_else(|error| error.kind().to_string());
            report.read = Some(report.read.take().map_or_else(|| found.clone(), |before| format!("{before}; {found}")));
        }
    }
    None
}

/// Actions that return a result; none for others.
fn find_out(verb: &str, rest: &str) -> Option<io::Result<String>> {
    Some(match verb {
        "read" => Ok(encode(&take(rest.parse().unwrap_or(0)))),
        "look" => fs::read(rest).map(|bytes| encode(&bytes)),
        "make" => fs::write(rest, "").map(|()| "made".into()),
        "open" => fs::OpenOptions::new().read(true).write(true).open(rest).map(|_| "opened".into()),
        "list" => list(rest),
        "follow" => fs::read_link(rest).map(|link| encode(link.as_os_str().as_bytes())),
        "umask" => {
            // SAFETY: calls without effect.
            let answer = unsafe { libc::umask(0o22) };
            Ok(if answer as i32 == -1 { "refused".into() } else { "allowed".into() })
        }
        _ => return None,
    })
}

/// The sorted names in a directory.
fn list(directory: &str) -> io::Result<String> {
    let mut names: Vec<String> =
        fs::read_dir(directory)?.flatten().map(|entry| encode(entry.file_name().as_bytes())).collect();
    names.sort_unstable();
    Ok(names.join(" "))
}

fn put(fd: c_int, text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        // SAFETY: writes the text's bytes.
        let written = unsafe { libc::write(fd, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(written) => rest = &rest[written..],
            Err(_) => return,
        }
    }
}

fn take(fd: c_int) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0u8; 4096]);
    loop {
        // SAFETY: reads into the buffer.
        let count = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
        match usize::try_from(count) {
            Ok(0) | Err(_) => return all,
            Ok(count) => all.extend_from_slice(&buffer[..count]),
        }
    }
}

fn report(fds: BTreeMap<String, String>, argv: &[&[u8]]) -> Report {
    // Not read as text: a program's name may be any bytes.
    let status = fs::read("/proc/self/status").map(|bytes| encode_lines(&bytes)).unwrap_or_default();
    let field = |key| status.lines().find_map(|line: &str| line.strip_prefix(key)).unwrap_or("0").trim();
    let set = |key| {
        let bits = u64::from_str_radix(field(key), 16).unwrap_or(0);
        (1..=64).filter(|signal| bits >> (signal - 1) & 1 != 0).collect()
    };
    // SAFETY: read numbers.
    let (pid, ppid, sid, pgid) = unsafe { (libc::getpid(), libc::getppid(), libc::getsid(0), libc::getpgrp()) };
    Report {
        argv: argv.iter().map(|arg| encode(arg)).collect(),
        env: environment(),
        cwd: std::env::current_dir().map(|cwd| encode(cwd.as_os_str().as_bytes())).unwrap_or_default(),
        umask: field("Umask:").into(),
        fds,
        pid,
        ppid,
        sid,
        pgid,
        blocked: set("SigBlk:"),
        ignored: set("SigIgn:"),
        caught: set("SigCgt:"),
        read: None,
        set: observe(),
    }
}

fn encode_lines(bytes: &[u8]) -> String {
    bytes.split(|&byte| byte == b'\n').map(|line| String::from_utf8_lossy(line) + "\n").collect()
}

/// Every entry of `environ`, also those that are not `NAME=value`.
fn environment() -> Vec<String> {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    let mut found = Vec::new();
    // SAFETY: the only thread; the list ends in a null pointer.
    unsafe {
        let mut entry = environ;
        while !(*entry).is_null() {
            found.push(encode(CStr::from_ptr(*entry).to_bytes()));
            entry = entry.add(1);
        }
    }
    found
}

/// Number and target of each open descriptor but the listing's own, with `r`, `w` or `rw`.
fn open_fds() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    // SAFETY: opens, reads and closes a directory.
    unsafe {
        let listing = libc::opendir(c"/proc/self/fd".as_ptr());
        if listing.is_null() {
            found.insert("error".into(), io::Error::last_os_error().to_string());
            return found;
        }
        loop {
            let entry = libc::readdir(listing);
            if entry.is_null() {
                break;
            }
            let name = CStr::from_ptr((*entry).d_name.as_ptr()).to_string_lossy().into_owned();
            let Ok(fd) = name.parse::<c_int>() else { continue };
            if fd == libc::dirfd(listing) {
                continue;
            }
            let target = fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
            let mode = match libc::fcntl(fd, libc::F_GETFL) & libc::O_ACCMODE {
                libc::O_RDONLY => "r",
                libc::O_WRONLY => "w",
                _ => "rw",
            };
            found.insert(name, format!("{} {mode}", encode(target.as_os_str().as_bytes())));
        }
        libc::closedir(listing);
    }
    found
}
