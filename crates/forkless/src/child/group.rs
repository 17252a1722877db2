//! The members of a process group, as procfs shows them: the kernel counts a zombie as a member.

use crate::procfs::{self, Process};
use std::fs;

/// Whether the group has members, and all of them have ended and wait for their parents to reap them. False also if procfs
/// does not show it: it is of another PID namespace, or hides processes of other users.
pub(super) fn has_only_zombies(group: i32) -> bool {
    if is_proc_hidden() {
        return false;
    }
    let Ok(processes) = procfs::all_processes() else { return false };
    let mut has_zombie = false;
    for pid in processes {
        // A process that cannot be read has been reaped since.
        let Ok(stat) = Process::open(pid).and_then(|process| process.read("stat")) else { continue };
        match member(&stat) {
            Some(Member { group: its, has_ended }) if its == group => {
                if !has_ended {
                    return false;
                }
                has_zombie = true;
            }
            Some(_) => {}
            None => return false,
        }
    }
    has_zombie
}

#[derive(Debug, PartialEq, Eq)]
struct Member {
    group: i32,
    has_ended: bool,
}

/// Reads `/proc/PID/stat`. The first thread of a process may be a zombie while others run.
fn member(stat: &[u8]) -> Option<Member> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let (state, group, threads) = (fields.first()?, fields.get(2)?, fields.get(17)?);
    let has_ended = matches!(*state, "Z" | "X") && threads.parse::<u32>().ok()? <= 1;
    Some(Member { group: group.parse().ok()?, has_ended })
}

/// Whether a procfs is mounted that shows only some processes: `hidepid` of proc(5).
fn is_proc_hidden() -> bool {
    let Ok(mounts) = fs::read_to_string(procfs::own("mounts")) else { return true };
    let options = mounts.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        (*fields.get(2)? == "proc").then(|| fields.get(3).copied().unwrap_or_default())
    });
    let hides = |option: &str| option.strip_prefix("hidepid=").is_some_and(|value| value != "0" && value != "off");
    options.into_iter().any(|options| options.split(',').any(hides))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_and_state_are_read_whatever_the_name_is() {
        let stat = |state: &str, threads: u32| {
            format!("7 (a) R 1 9) {state} 1 42 42 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 99 0 0\n")
        };
        let read = |state, threads| member(stat(state, threads).as_bytes()).map(|found| (found.group, found.has_ended));
        assert_eq!(read("S", 1), Some((42, false)));
        assert_eq!(read("Z", 1), Some((42, true)));
        assert_eq!(read("Z", 2), Some((42, false)), "its first thread alone has ended");
        assert_eq!(member(b"7 (a) Z 1"), None);
        assert_eq!(member(b""), None);
    }
}
