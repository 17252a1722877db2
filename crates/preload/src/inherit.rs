//! Selects the descriptors that a child inherits without copying the whole file-descriptor table where possible.

use crate::settings::{Inherit, Settings, without_us};
use forkless::internal::posix::FileAction;
use forkless::{Command, Stdio};
use forkless_core::sys;
use libc::c_int;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Applies libc's rule, or FORKLESS_INHERIT, except for descriptors that the child must not inherit.
pub(crate) fn by_setting(command: &mut Command, inherit: &Inherit, is_barred: impl Fn(c_int) -> bool) {
    match inherit {
        Inherit::All => _ = command.inherit_all(true),
        Inherit::Only(list) => {
            for fd in list.iter().copied().filter(|&fd| is_inheritable(fd) && !is_barred(fd)) {
                // SAFETY: by libc's own rule a child inherits this descriptor.
                command.fd(unsafe { Stdio::fd(fd) }, fd);
            }
        }
    }
}

/// Removes this library from LD_PRELOAD of a command line's program, with FORKLESS_CHILDREN=off.
pub(crate) fn spare(command: &mut Command, settings: &Settings) {
    if !settings.spares_children {
        return;
    }
    if let Some(list) = std::env::var_os("LD_PRELOAD") {
        match without_us(list.as_bytes()) {
            rest if rest.is_empty() => command.env_remove("LD_PRELOAD"),
            rest => command.env("LD_PRELOAD", OsStr::from_bytes(&rest)),
        };
    }
}

/// Whether the descriptor is open and not close-on-exec.
fn is_inheritable(fd: c_int) -> bool {
    sys::descriptor_flags(fd).is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0)
}

/// File actions with the same result in a child that only has the standard streams and the descriptors in `passed`: the
/// caller's descriptor, and its number in the child.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Flat {
    pub(crate) passed: Vec<(c_int, c_int)>,
    pub(crate) actions: Vec<FileAction>,
}

/// Descriptors below this number are checked one by one.
const FEW: c_int = 64;

impl Flat {
    /// None if the whole file-descriptor table must be copied: because no action limits what is inherited, or because a
    /// path depends on descriptor numbers.
    pub(crate) fn of(actions: &[FileAction], inherit: &Inherit) -> Option<Self> {
        let closes_from = actions.iter().find_map(|action| match action {
            FileAction::CloseRange(first, -1) => Some(*first),
            _ => None,
        });
        if actions.iter().any(is_of_numbers) {
            return None;
        }
        match (inherit, closes_from) {
            (Inherit::Only(list), _) => {
                let kept = list.iter().copied().filter(|&fd| is_inheritable(fd)).collect();
                Self::translate(actions, 3, &kept, true)
            }
            (Inherit::All, Some(first)) if first <= FEW => {
                let kept = (3..first).filter(|&fd| is_inheritable(fd)).collect();
                Self::translate(actions, first.max(3), &kept, false)
            }
            (Inherit::All, _) => None,
        }
    }

    /// Translates the actions. The standard streams and those in `kept` have their own numbers. `above`: further
    /// descriptors that the actions need are passed from this number on. `tidies`: descriptors that the actions needed
    /// only as a source are closed at the end.
    fn translate(actions: &[FileAction], above: c_int, kept: &BTreeSet<c_int>, tidies: bool) -> Option<Self> {
        let mut state = State {
            kept,
            named: actions.iter().flat_map(numbers).chain(kept.iter().copied()).collect(),
            lent: BTreeMap::new(),
            own: BTreeSet::new(),
            closed_from: c_int::MAX,
            next: above,
        };
        let mut out = Vec::with_capacity(actions.len() + 1);
        for action in actions {
            out.push(match action {
                FileAction::Close(fd) => {
                    state.own.insert(*fd);
                    FileAction::Close(*fd)
                }
                FileAction::CloseRange(first, last) => {
                    if *last != -1 || state.lent.values().any(|lent| lent < first) {
                        return None;
                    }
                    state.closed_from = state.closed_from.min(*first);
                    state.own.retain(|fd| fd < first);
                    FileAction::CloseRange(*first, *last)
                }
                FileAction::Dup2 { from, to } => {
                    let from = state.source_of(*from)?;
                    state.own.insert(*to);
                    FileAction::Dup2 { from, to: *to }
                }
                FileAction::Open { to, path, flags, mode } => {
                    state.own.insert(*to);
                    FileAction::Open { to: *to, path: path.clone(), flags: *flags, mode: *mode }
                }
                FileAction::Chdir(path) => FileAction::Chdir(path.clone()),
                FileAction::Fchdir(fd) => FileAction::Fchdir(state.source_of(*fd)?),
                FileAction::Foreground(fd) => FileAction::Foreground(state.source_of(*fd)?),
            });
        }
        if tidies {
            out.extend(runs(state.lent.values().copied()).into_iter().map(|(a, b)| FileAction::CloseRange(a, b)));
        }
        let passed = kept.iter().map(|&fd| (fd, fd)).chain(state.lent).collect();
        Some(Self { passed, actions: out })
    }
}

/// The meaning of the child's descriptor numbers at one point in the list of actions.
struct State<'a> {
    kept: &'a BTreeSet<c_int>,
    /// Numbers that the actions name, which must not be used for passed descriptors.
    named: BTreeSet<c_int>,
    /// Descriptors of the caller that are passed under another number.
    lent: BTreeMap<c_int, c_int>,
    /// Numbers that an action has closed or opened.
    own: BTreeSet<c_int>,
    closed_from: c_int,
    next: c_int,
}

impl State<'_> {
    /// The child's number for the caller's descriptor `fd`.
    fn source_of(&mut self, fd: c_int) -> Option<c_int> {
        let is_itself = fd < 3 || self.own.contains(&fd) || self.kept.contains(&fd);
        if is_itself || fd >= self.closed_from {
            return Some(fd);
        }
        if let Some(&lent) = self.lent.get(&fd) {
            // None if `fd` is still open, but its replacement was closed by closefrom.
            return (lent < self.closed_from).then_some(lent);
        }
        if self.closed_from != c_int::MAX {
            // The replacement's number would already have been closed by closefrom.
            return None;
        }
        while self.named.contains(&self.next) {
            self.next += 1;
        }
        self.lent.insert(fd, self.next);
        self.next += 1;
        Some(self.next - 1)
    }
}

/// The numbers that an action names.
fn numbers(action: &FileAction) -> impl Iterator<Item = c_int> + use<> {
    let [a, b] = match action {
        FileAction::Close(fd) | FileAction::Fchdir(fd) | FileAction::Foreground(fd) => [Some(*fd), None],
        FileAction::CloseRange(..) | FileAction::Chdir(_) => [None, None],
        FileAction::Dup2 { from, to } => [Some(*from), Some(*to)],
        FileAction::Open { to, .. } => [Some(*to), None],
    };
    [a, b].into_iter().flatten()
}

/// Whether a directory's path depends on descriptor numbers (/proc/self/fd).
fn is_of_numbers(action: &FileAction) -> bool {
    matches!(action, FileAction::Chdir(path) if is_procfs(path.to_bytes()))
}

/// [`is_procfs`] of the path that an action opens.
pub(crate) fn is_open_of_procfs(action: &FileAction) -> bool {
    matches!(action, FileAction::Open { path, .. } if is_procfs(path.to_bytes()))
}

/// Whether a path leads to procfs by its text alone. Other paths may lead there by a symbolic link.
pub(crate) fn is_procfs(path: &[u8]) -> bool {
    [&b"/proc"[..], b"/dev/fd", b"/dev/std"].iter().any(|start| path.starts_with(start))
}

/// Actions for a child with a copy of the whole file-descriptor table: descriptors that FORKLESS_INHERIT excludes are
/// closed at the end.
pub(crate) fn whole(actions: &[FileAction], inherit: &Inherit) -> Vec<FileAction> {
    let mut all = actions.to_vec();
    if let Inherit::Only(list) = inherit {
        let targets = actions.iter().filter_map(|action| match action {
            FileAction::Dup2 { to, .. } | FileAction::Open { to, .. } => Some(*to),
            _ => None,
        });
        let kept: BTreeSet<c_int> = targets.chain(list.iter().copied()).chain(0..3).collect();
        let mut from = 0;
        for (first, last) in runs(kept.into_iter().filter(|&fd| fd >= 0)) {
            if first > from {
                all.push(FileAction::CloseRange(from, first - 1));
            }
            from = last + 1;
        }
        all.push(FileAction::CloseRange(from, -1));
    }
    all
}

/// Sorted numbers as ranges: first and last of each.
pub(crate) fn runs(numbers: impl Iterator<Item = c_int>) -> Vec<(c_int, c_int)> {
    let mut runs: Vec<(c_int, c_int)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::FileAction::{Close, CloseRange, Dup2, Fchdir};
    use super::*;

    fn flat(actions: &[FileAction], above: c_int, kept: &[c_int], tidies: bool) -> Option<Flat> {
        Flat::translate(actions, above, &kept.iter().copied().collect(), tidies)
    }

    #[test]
    fn pipes_with_closefrom_are_passed_beside_named_descriptors() {
        let asked = [Dup2 { from: 9000, to: 0 }, Dup2 { from: 9003, to: 1 }, CloseRange(3, -1)];
        let found = flat(&asked, 3, &[], false).expect("a translation");
        assert_eq!(found.passed, [(9000, 3), (9003, 4)]);
        assert_eq!(found.actions, [Dup2 { from: 3, to: 0 }, Dup2 { from: 4, to: 1 }, CloseRange(3, -1)]);
    }

    #[test]
    fn descriptor_numbers_are_resolved_at_each_action() {
        // 3 is first the caller's descriptor, then a copy of 7; 7 is closed before it is copied again.
        let asked = [Dup2 { from: 3, to: 8 }, Dup2 { from: 7, to: 3 }, Dup2 { from: 3, to: 1 }, Close(7)];
        let again = [Dup2 { from: 7, to: 2 }];
        let found = flat(&[asked.as_slice(), &again].concat(), 3, &[], true).expect("a translation");
        assert_eq!(found.passed, [(3, 4), (7, 5)]);
        let expected = [
            Dup2 { from: 4, to: 8 },
            Dup2 { from: 5, to: 3 },
            Dup2 { from: 3, to: 1 },
            Close(7),
            Dup2 { from: 7, to: 2 },
        ];
        assert_eq!(found.actions[..5], expected);
        assert_eq!(found.actions[5..], [CloseRange(4, 5)]);
    }

    #[test]
    fn kept_and_low_descriptors_keep_their_numbers() {
        let found = flat(&[Dup2 { from: 5, to: 1 }, Fchdir(6), Dup2 { from: 4, to: 4 }], 3, &[5], true);
        let found = found.expect("a translation");
        assert_eq!(found.passed, [(5, 5), (4, 7), (6, 3)]);
        assert_eq!(found.actions[..3], [Dup2 { from: 5, to: 1 }, Fchdir(3), Dup2 { from: 7, to: 4 }]);
    }

    #[test]
    fn a_descriptor_below_closefrom_that_is_used_again_needs_the_whole_table() {
        let again = [Dup2 { from: 5, to: 1 }, CloseRange(10, -1), Dup2 { from: 5, to: 2 }];
        assert_eq!(flat(&again, 10, &[], false), None, "5 is still open, but its replacement is closed");
        let above = [Dup2 { from: 15, to: 1 }, CloseRange(10, -1), Dup2 { from: 15, to: 2 }];
        let found = flat(&above, 10, &[], false).expect("a translation");
        assert_eq!(found.actions[2], Dup2 { from: 15, to: 2 }, "which fails with EBADF, as it should");
    }

    #[test]
    fn descriptors_are_closed_after_closefrom() {
        assert_eq!(flat(&[CloseRange(10, -1), Dup2 { from: 5, to: 1 }], 3, &[], true), None);
        let found = flat(&[CloseRange(3, -1), Dup2 { from: 5, to: 1 }], 3, &[], false).expect("a translation");
        assert_eq!(found.actions[1], Dup2 { from: 5, to: 1 }, "which fails with EBADF, as it should");
    }
}
