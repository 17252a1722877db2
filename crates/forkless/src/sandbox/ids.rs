//! The user and groups that a sandboxed program runs as.

use super::preset::NOBODY;
use crate::kernel;
use crate::procfs;
use crate::request::command::{Command, Name};

/// CAP_SETGID and CAP_SETUID.
const SET_IDS: u64 = 1 << 6 | 1 << 7;

/// The lines of the caller's map of user IDs: first inside, first outside, count. Empty without a procfs.
fn map() -> Vec<[u32; 3]> {
    let text = std::fs::read_to_string(procfs::own("uid_map")).unwrap_or_default();
    let numbers: Vec<u32> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    numbers.chunks_exact(3).map(|line| [line[0], line[1], line[2]]).collect()
}

/// Whether the caller is root. Root of a user namespace that has no other ID, and is not root outside, is an ordinary user.
pub(super) fn is_root() -> bool {
    let is_ordinary = || matches!(*map(), [[0, outside, 1]] if outside != 0);
    rustix::process::geteuid().is_root() && !is_ordinary()
}

/// Makes a program that root starts run as nobody without other groups, where the command sets no IDs.
pub(super) fn of_root(own: &mut Command) -> Result<(), &'static str> {
    let setup = &mut own.setup;
    // A name brings its groups with it.
    let is_named = matches!(setup.user, Some(Name::Name(_)));
    let nobody = Some(Name::Id(NOBODY));
    setup.user = setup.user.take().or_else(|| nobody.clone());
    if !is_named {
        setup.group = setup.group.take().or(nobody);
        setup.groups.get_or_insert_with(Vec::new);
    }
    if is_caller(own) {
        // Root may lack the capabilities for steps that would change nothing.
        let setup = &mut own.setup;
        (setup.user, setup.group, setup.groups) = (None, None, None);
        return Ok(());
    }
    if kernel::capabilities()[0] & SET_IDS != SET_IDS {
        return Err(
            "root without CAP_SETUID and CAP_SETGID cannot start it as user 65534: set user and group to 0 to keep root's",
        );
    }
    let (map, is_nobody) = (map(), matches!(own.setup.user, Some(Name::Id(NOBODY))));
    if is_nobody
        && !map.is_empty()
        && !map.iter().any(|[first, _, count]| (*first..first.saturating_add(*count)).contains(&NOBODY))
    {
        return Err(
            "user 65534, as which root starts it, is not in this user namespace: set user and group to 0 to keep root's",
        );
    }
    Ok(())
}

/// Whether the IDs of the command are those of the caller.
fn is_caller(own: &Command) -> bool {
    let setup = &own.setup;
    let (Some(Name::Id(user)), Some(Name::Id(group)), Some([])) = (&setup.user, &setup.group, setup.groups.as_deref())
    else {
        return false;
    };
    let groups = rustix::process::getgroups();
    kernel::user_ids() == [*user; 3]
        && kernel::group_ids() == [*group; 3]
        && groups.is_ok_and(|groups| groups.iter().all(|one| one.as_raw() == *group))
}
