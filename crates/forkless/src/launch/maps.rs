//! The id maps of a child's new user namespace, which only a process outside it can write.

use super::Running;
use crate::compile::IdMaps;
use forkless_core::frame::{GO, GO_AWAY};
use forkless_core::sys::{self, errno};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::atomic::Ordering;

/// Writes the maps and lets the child go on, or sends it away; an error says on what.
///
/// The child has not been reaped and waits for us, so its pid is its own.
pub(super) fn write(running: &Running, maps: &IdMaps) -> Result<(), (i32, &'static str)> {
    let answer = write_all(running.pid, maps);
    let go = &running.stack.frame().go;
    go.store(if answer.is_ok() { GO } else { GO_AWAY }, Ordering::Release);
    sys::futex_wake(go);
    answer.map_err(|(error, what)| (error.raw_os_error().unwrap_or(errno::EINVAL), what))
}

fn write_all(pid: i32, maps: &IdMaps) -> Result<(), (io::Error, &'static str)> {
    // In one write each: a map can be written once.
    let put = |file: &'static str, text: &str| {
        let path = format!("/proc/{pid}/{file}");
        let answer = OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(text.as_bytes()));
        answer.map_err(|error| (error, file))
    };
    if !maps.uid.is_empty() {
        put("uid_map", &maps.uid)?;
    }
    if !maps.gid.is_empty() {
        // Without CAP_SETGID the kernel takes a group map only from who has given setgroups up (CVE-2014-8989).
        match put("gid_map", &maps.gid) {
            Err((error, _)) if error.raw_os_error() == Some(errno::EPERM) => {
                put("setgroups", "deny")?;
                put("gid_map", &maps.gid)?;
            }
            answer => answer?,
        }
    }
    Ok(())
}
