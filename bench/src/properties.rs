//! The properties of a launching process that are varied one at a time, the most important first: each is a chart, and its largest
//! value is one of the conditions that a summary begins with.

use super::{
    condition::{Condition, TASKS},
    record::Report,
    setting::Setting,
    units::{bytes, mebibytes, thousands},
};

/// One property, with the words of its chart.
pub(crate) struct Property {
    /// The name of the chart's file; also its anchor in the page.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// What is varied, and which methods it affects.
    pub(crate) about: &'static str,
    /// The value, if the condition differs from the small parent in nothing else.
    pub(crate) value: fn(&Condition) -> Option<u64>,
    /// A value as text.
    pub(crate) words: fn(u64) -> String,
}

/// Returns `value` if the condition is `that`.
fn only(condition: &Condition, that: Condition, value: u64) -> Option<u64> {
    (*condition == that).then_some(value)
}

/// The memory of the parent, with a setting.
fn of_memory(c: &Condition, setting: Setting) -> Option<u64> {
    only(c, Condition { setting, parent_mib: c.parent_mib, ..SMALL }, c.parent_mib)
}

const fn with_setting(name: &'static str, title: &'static str, value: fn(&Condition) -> Option<u64>) -> Property {
    let about = "With these settings of the child, other methods fall back to fork. The vfork baseline does not apply them; methods \
                 marked with * in the tables apply only some.";
    Property { name, title, about, value, words: memory }
}

fn memory(mib: u64) -> String {
    if mib == 0 { "small".to_owned() } else { mebibytes(mib) }
}

const SMALL: Condition = Condition::SMALL;

/// All properties.
pub(crate) const PROPERTIES: [Property; 14] = [
    Property {
        name: "memory",
        title: "Memory of the parent",
        about: "fork copies the page tables, so it takes longer the more memory the parent has. Methods that share the memory do not.",
        value: |c| of_memory(c, Setting::None),
        words: memory,
    },
    Property {
        name: "files",
        title: "Open files of the parent",
        about: "Close-on-exec files, such as the sockets of a server. A method that copies the file-descriptor table must close them \
                all again.",
        value: |c| only(c, Condition { fds: c.fds, ..SMALL }, c.fds),
        words: thousands,
    },
    Property {
        name: "mappings",
        title: "Mappings of the parent",
        about: "Many small mappings instead of much memory, as from libraries, mapped files and thread stacks.",
        value: |c| only(c, Condition { mappings: c.mappings, ..SMALL }, c.mappings),
        words: thousands,
    },
    Property {
        name: "threads",
        title: "Threads that launch at once",
        about: "All threads launch as fast as they can. Higher is better in the first panel, lower in the second. A caller of vfork \
                is woken at the exec and again at the exit, one of status() at the exit only. With more threads than CPUs another \
                thread runs meanwhile, so CPU time alone limits all methods.",
        value: |c| only(c, Condition { threads: c.threads, ..SMALL }, c.threads as u64),
        words: thousands,
    },
    with_setting("settings-user", "A change of user, by memory", |c| of_memory(c, Setting::User)),
    with_setting("settings-user-namespace", "A user namespace, by memory", |c| of_memory(c, Setting::UserNamespace)),
    with_setting("settings-all", "All settings, by memory", |c| of_memory(c, Setting::All)),
    Property {
        name: "faulting",
        title: "Page faults in other threads",
        about: "Other threads of the parent map, touch and unmap memory, and so contend for the locks that a launch may need.",
        value: |c| only(c, Condition { faulting: c.faulting, ..SMALL }, c.faulting as u64),
        words: thousands,
    },
    Property {
        name: "environment",
        title: "Size of the environment",
        about: "A larger environment of the parent, which the child inherits. The kernel copies it at exec; some methods also copy it \
                before.",
        value: |c| only(c, Condition { environment: c.environment, ..SMALL }, c.environment),
        words: |count| if count == 0 { "nothing".to_owned() } else { bytes(count) },
    },
    Property {
        name: "path",
        title: "Search in PATH",
        about: "Other directories of PATH come before that of the program. With 0, the program is launched by its path.",
        value: |c| only(c, Condition { path_misses: c.path_misses, ..SMALL }, c.path_misses),
        words: thousands,
    },
    Property {
        name: "files-pipes",
        title: "Open files, with three pipes to the child",
        about: "The same with the child's standard streams on pipes. Creating and closing the pipes is included in the time.",
        value: |c| only(c, Condition { fds: c.fds, pipes: 3, ..SMALL }, c.fds),
        words: thousands,
    },
    Property {
        name: "files-inherited",
        title: "Open files that the child inherits",
        about: "The same files, but not close-on-exec. By the rule of POSIX, most methods pass them all to the child, and so does \
                forkless-inherit. The other methods of forkless pass none.",
        value: |c| only(c, Condition { fds: c.fds, close_on_exec: *c == SMALL, ..SMALL }, c.fds),
        words: thousands,
    },
    Property {
        name: "output",
        title: "Captured output",
        about: "The parent reads all output of the child into memory.",
        value: |c| only(c, Condition { output: c.output, ..SMALL }, c.output).filter(|bytes| *bytes > 0),
        words: bytes,
    },
    Property {
        name: "tasks",
        title: "Launches from tokio tasks, by open files",
        about: "Tasks of one runtime launch concurrently, await the exit and launch again. Higher is better; there is no baseline.",
        value: |c| only(c, Condition { fds: c.fds, tasks: TASKS, ..SMALL }, c.fds),
        words: thousands,
    },
];

impl Property {
    /// The conditions of a record that vary this property, in ascending order.
    pub(crate) fn conditions(&self, report: &Report) -> Vec<Condition> {
        let mut found = report.conditions();
        found.retain(|condition| (self.value)(condition).is_some());
        found.sort_by_key(|condition| (self.value)(condition));
        found.dedup();
        found
    }
}

/// The most important conditions of a record: the small parent, the end of each sweep, and those that belong to no sweep.
pub(crate) fn important(report: &Report) -> Vec<Condition> {
    let measured = report.conditions();
    let ends = PROPERTIES.iter().filter_map(|property| property.conditions(report).last().copied());
    let mut all: Vec<Condition> = measured.iter().filter(|condition| **condition == SMALL).copied().collect();
    all.extend(ends.filter(|condition| *condition != SMALL));
    let is_of_none = |c: &&Condition| PROPERTIES.iter().all(|property| (property.value)(c).is_none());
    all.extend(measured.iter().filter(is_of_none));
    all
}

#[cfg(test)]
mod tests {
    use super::super::machine::Machine;
    use super::super::record::tests::row;
    use super::*;

    #[test]
    fn ends_of_the_sweeps_are_important() {
        let [large, larger] = [100, 1024].map(|parent_mib| Condition { parent_mib, ..SMALL });
        let user = Condition { setting: Setting::User, ..large };
        let output = Condition { output: 100, ..SMALL };
        let rows = [output, larger, large, user, SMALL].map(|condition| row("floor", condition, 20.0, 40.0));
        let report = Report::new(Machine::read(), rows.to_vec(), Vec::new());
        assert_eq!(PROPERTIES[0].conditions(&report), [SMALL, large, larger]);
        assert_eq!(important(&report), [SMALL, larger, user, output]);
    }
}
