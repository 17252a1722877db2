//! Converts the settings of a case to calls of `Command`.

use super::parent::Place;
use super::{Ask, settings, signal};
use forkless::{Command, Stdio};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// Where the probe reports.
pub fn report_file(place: &Place) -> PathBuf {
    place.dir.join("report")
}

/// The command that a case asks for.
pub fn command(ask: &Ask, place: &Place) -> io::Result<Command> {
    let mut command = Command::new(place.bytes(&ask.program));
    for other in &ask.or_else {
        command.or_else(place.bytes(other));
    }
    if !ask.silent {
        command.arg("--report").arg(report_file(place));
        for action in &ask.then {
            command.arg("--do").arg(place.text(action));
        }
        command.arg("--");
    }
    command.args(ask.args.iter().map(|arg| place.bytes(arg)));
    command.args(std::iter::repeat_n("x", ask.many_args));
    if ask.long_arg > 0 {
        command.arg("x".repeat(ask.long_arg));
    }
    if let Some(arg0) = &ask.arg0 {
        command.arg0(place.bytes(arg0));
    }
    if ask.env_clear {
        command.env_clear();
    }
    for (key, value) in &ask.env {
        command.env(place.bytes(key), place.bytes(value));
    }
    for key in &ask.env_remove {
        command.env_remove(place.bytes(key));
    }
    add(ask, &mut command, place)?;
    Ok(command)
}

/// Adds what is asked beside the program, its arguments and its environment.
pub fn add(ask: &Ask, command: &mut Command, place: &Place) -> io::Result<()> {
    if let Some(directory) = &ask.cwd {
        command.current_dir(place.bytes(directory));
    }
    for (number, source) in &ask.fd {
        let number: RawFd = number.parse().expect("a descriptor's number");
        match (number, stdio(source, place)?) {
            (0, source) => command.stdin(source),
            (1, source) => command.stdout(source),
            (2, source) => command.stderr(source),
            (number, source) => command.fd(source, number),
        };
    }
    session_and_signals(ask, command);
    settings::apply(&ask.set, command, place)
}

fn session_and_signals(ask: &Ask, command: &mut Command) {
    if ask.setsid {
        command.setsid(true);
    }
    if ask.inherit_all {
        command.inherit_all(true);
    }
    if let Some(group) = ask.process_group {
        command.process_group(group);
    }
    for name in &ask.signal_default {
        command.signal_default(signal(name));
    }
    for name in &ask.signal_ignore {
        command.signal_ignore(signal(name));
    }
    for name in &ask.signal_inherit {
        command.signal_inherit(signal(name));
    }
    for name in &ask.signal_block {
        command.signal_block(signal(name));
    }
    if !ask.inherit_mask {
        command.inherit_signal_mask(false);
    }
    if let Some(pidfd) = ask.pidfd {
        command.pidfd(pidfd);
    }
}

/// A source: `inherit`, `null`, `piped`, `socketpair`, `fd N`, `dup N`, `file NAME` (opened here, for reading and
/// writing), `open FLAGS PATH` (opened in the child; FLAGS is one or more of `r`, `w`, `rw`, `create`, `append` and
/// `excl` with `+` in between).
pub fn stdio(source: &str, place: &Place) -> io::Result<Stdio> {
    let (kind, rest) = source.split_once(' ').unwrap_or((source, ""));
    let number = || rest.parse().expect("a descriptor's number");
    Ok(match kind {
        "inherit" => Stdio::inherit(),
        "null" => Stdio::null(),
        "piped" => Stdio::piped(),
        "socketpair" => Stdio::socketpair(),
        // SAFETY: a descriptor of the case's, which is open for as long as that is played, or nothing is open there.
        "fd" => unsafe { Stdio::fd(number()) },
        "dup" => Stdio::dup_of(number()),
        "file" => OpenOptions::new().read(true).write(true).create(true).truncate(false).open(place.file(rest))?.into(),
        "open" => {
            let (flags, path) = rest.split_once(' ').expect("open FLAGS PATH");
            let flags = flags.split('+').fold(0, |all, flag| {
                all | match flag {
                    "r" => libc::O_RDONLY,
                    "w" => libc::O_WRONLY,
                    "rw" => libc::O_RDWR,
                    "create" => libc::O_CREAT,
                    "append" => libc::O_APPEND,
                    "excl" => libc::O_EXCL,
                    _ => panic!("{flag} is no flag of open"),
                }
            });
            Stdio::open(place.bytes(path), flags, 0o644)
        }
        _ => panic!("{source} is no source"),
    })
}
