//! Waiting for `cgroup.events`: whether a cgroup has processes, and whether they are frozen.

use super::about;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Waits until the file has this line, for `limit` at most. Returns whether it has.
pub(super) fn wait(group: &Path, line: &str, limit: Duration) -> io::Result<bool> {
    let path = group.join("cgroup.events");
    let deadline = Instant::now().checked_add(limit);
    let answer = File::open(&path).and_then(|file| {
        loop {
            // Read before each sleep: the kernel wakes the poll for changes since the last read.
            if has_line(&file, line)? {
                return Ok(true);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            // A time that the kernel cannot hold means no limit.
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(&file, PollFlags::PRI)], left.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    });
    answer.map_err(|error| about(error, &path))
}

fn has_line(file: &File, line: &str) -> io::Result<bool> {
    let mut text = [0; 256];
    let len = file.read_at(&mut text, 0)?;
    Ok(text[..len].split(|byte| *byte == b'\n').any(|one| one == line.as_bytes()))
}
