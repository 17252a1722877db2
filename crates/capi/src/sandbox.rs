//! Setters for isolation: namespaces, mounts, cgroup, capabilities, seccomp filters.

use crate::boundary::to_status;
use crate::command::setters;
use crate::error::{Failure, bad};
use crate::handle::{NULL, copy, list, optional, slice, text, utf8};
use forkless::{BpfInstruction, Namespace};
use libc::{c_char, c_int, c_ulong, mode_t, size_t};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// By their numbers, `CLONE_NEWNS` and so on.
const NAMESPACES: [Namespace; 8] = [
    Namespace::Time,
    Namespace::Mount,
    Namespace::Cgroup,
    Namespace::Uts,
    Namespace::Ipc,
    Namespace::User,
    Namespace::Pid,
    Namespace::Network,
];

/// The namespaces of these `CLONE_NEW` bits.
fn namespaces(bits: u64) -> Result<Vec<Namespace>, Failure> {
    let found: Vec<_> = NAMESPACES.into_iter().filter(|one| *one as u64 & bits != 0).collect();
    if found.is_empty() || found.iter().fold(bits, |left, one| left & !(*one as u64)) != 0 {
        return Err(bad("no such namespace"));
    }
    Ok(found)
}

/// `name=value`, or a flag.
fn parameter(text: &OsStr) -> Result<(&str, Option<&OsStr>), Failure> {
    let mut parts = text.as_bytes().splitn(2, |&byte| byte == b'=');
    let name = std::str::from_utf8(parts.next().unwrap_or_default());
    let name = name.map_err(|_| Failure::Refused(libc::EILSEQ, "the name of a parameter is not UTF-8"))?;
    Ok((name, parts.next().map(OsStr::from_bytes)))
}

setters! {
    fn forkless_command_unshare(namespaces_bits: u64) command => {
        for namespace in namespaces(namespaces_bits)? {
            command.unshare(namespace);
        }
    }

    fn forkless_command_map_uid(inside: u32, outside: u32, count: u32) command => {
        command.map_uid(inside, outside, count);
    }

    fn forkless_command_map_gid(inside: u32, outside: u32, count: u32) command => {
        command.map_gid(inside, outside, count);
    }

    fn forkless_command_join(namespace_bit: u64, fd: c_int) command => {
        let found = namespaces(namespace_bit)?;
        let [one] = found[..] else { return Err(bad("expected exactly one namespace")) };
        command.join(one, copy(fd)?);
    }

    fn forkless_command_mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_char
    ) command => {
        let kind = if kind.is_null() { None } else { Some(utf8(kind)?) };
        command.mount(optional(source), text(target)?, kind, flags, optional(data));
    }

    fn forkless_command_bind(source: *const c_char, target: *const c_char) command => {
        command.bind(text(source)?, text(target)?);
    }

    fn forkless_command_bind_read_only(source: *const c_char, target: *const c_char) command => {
        command.bind_read_only(text(source)?, text(target)?);
    }

    fn forkless_command_read_only(target: *const c_char) command => {
        command.read_only(text(target)?);
    }

    fn forkless_command_mount_attributes(target: *const c_char, set: u64, clear: u64) command => {
        command.mount_attributes(text(target)?, set, clear);
    }

    fn forkless_command_file_system(
        kind: *const c_char,
        parameters: *const *const c_char,
        attributes: u64,
        target: *const c_char
    ) command => {
        let parameters: Result<Vec<_>, _> = list(parameters)?.into_iter().map(parameter).collect();
        command.file_system(utf8(kind)?, parameters?, attributes, text(target)?);
    }

    fn forkless_command_attach_mount(fd: c_int, target: *const c_char) command => {
        let target = text(target)?;
        command.attach_mount(copy(fd)?, target);
    }

    fn forkless_command_overlay(
        lower: *const *const c_char,
        upper: *const c_char,
        work: *const c_char,
        target: *const c_char
    ) command => {
        let upper = match (optional(upper), optional(work)) {
            (Some(upper), Some(work)) => Some((Path::new(upper), Path::new(work))),
            (None, None) => None,
            _ => return Err(bad("upper and work must both be given, or neither")),
        };
        command.overlay(&list(lower)?, upper, text(target)?);
    }

    fn forkless_command_unmount(target: *const c_char) command => {
        command.unmount(text(target)?);
    }

    fn forkless_command_make_dir(path: *const c_char, mode: mode_t) command => {
        command.make_dir(text(path)?, mode);
    }

    fn forkless_command_make_symlink(to: *const c_char, path: *const c_char) command => {
        command.make_symlink(text(to)?, text(path)?);
    }

    fn forkless_command_devices(target: *const c_char) command => {
        command.devices(text(target)?);
    }

    fn forkless_command_tmpfs(target: *const c_char, options: *const c_char) command => {
        command.tmpfs(text(target)?, utf8(options)?);
    }

    fn forkless_command_proc(target: *const c_char) command => {
        command.proc(text(target)?);
    }

    fn forkless_command_seccomp(filter: *const BpfInstruction, count: size_t) command => {
        command.seccomp(slice(filter, count)?.iter().copied());
    }
}
