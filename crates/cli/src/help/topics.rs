//! The topics of a subcommand: the headings under which its options are listed.

use clap::{Arg, Command};

/// The topic with all options.
pub(super) const ALL: &str = "all";

/// A part of the options.
pub(super) struct Topic {
    /// What follows `--help`.
    pub(super) name: String,
    /// The heading in the help.
    pub(super) heading: String,
    /// One line.
    pub(super) about: String,
}

/// Name, beginning of the heading, and one line for `-h`. A heading without a row is named after its first word.
const TOPICS: &[(&str, &str, &str)] = &[
    ("program", "Program", "environment, working directory, argv[0], shell lines"),
    ("files", "Files", "standard streams, other descriptors, captured output"),
    ("timeout", "Timeout", "time limit, signals to end the program"),
    ("reports", "Reports", "what was used, what would be done, and why"),
    ("signals", "Signals", "ignored and blocked signals of the program"),
    ("session", "Session", "sessions, terminals, process groups, death of forkless"),
    ("sandbox", "Sandbox", "one option that isolates the program, and options that widen it"),
    ("identity", "Identity", "user, groups, umask"),
    ("privileges", "Privileges", "capabilities, securebits, no_new_privs, compiled filters"),
    ("filters", "Filters", "system calls and files that the program may use, by name"),
    ("namespaces", "Namespaces", "new and joined namespaces, maps of IDs, host name"),
    ("mounts", "Root and mounts", "bind mounts, tmpfs, overlays, read-only mounts, chroot"),
    ("cgroup", "Cgroup", "limits of memory, CPU, tasks and I/O for all processes"),
    ("limits", "Resource limits", "limits of each process: descriptors, memory, file size"),
    ("scheduling", "Scheduling", "nice value, CPUs, policy, I/O priority, OOM killer"),
    ("memory", "Memory", "NUMA policy, executable memory"),
    ("advanced", "Advanced", "execution by descriptor, launchers, single system calls"),
    ("output", "Output", "files and formats of the results"),
];

/// The options of `-h` of subcommands with topics, by their IDs. The first that exist are shown.
const COMMON: &[(&str, &[&str])] = &[
    (
        "run",
        &[
            "ignore_environment",
            "unset",
            "env",
            "chdir",
            "stdin",
            "stdout",
            "stderr",
            "capture",
            "timeout",
            "kill_after",
            "usage",
            "explain",
            "pty",
            "sandbox",
            "reuid",
            "no_new_privs",
            "nice",
            "cpu_list",
            "memory_max",
            "nofile",
            "shell",
        ],
    ),
    (
        "parallel",
        &[
            "arg_file",
            "null",
            "delimiter",
            "colsep",
            "max_args",
            "jobs",
            "keep_order",
            "line_buffer",
            "tag",
            "dry_run",
            "bar",
            "halt",
            "timeout",
            "retries",
            "joblog",
            "resume",
            "results",
            "pipe",
            "block",
            "quote",
        ],
    ),
];

/// Options of which `-h` shows another name, because it is better known.
const BETTER_KNOWN: &[(&str, &str)] = &[("reuid", "user")];

/// The number of options that `-h` shows where a subcommand has topics.
const SHOWN: usize = 20;

/// The number of headings that makes topics worth while.
const MANY: usize = 3;

/// Has the subcommand so many headings that help has topics?
pub(super) fn has_topics(command: &Command) -> bool {
    let mut headings: Vec<&str> = visible(command).filter_map(Arg::get_help_heading).collect();
    headings.sort_unstable();
    headings.dedup();
    headings.len() >= MANY
}

/// The topics, in the order of the help.
pub(super) fn of(command: &Command) -> Vec<Topic> {
    let mut topics: Vec<Topic> = Vec::new();
    if !has_topics(command) {
        return topics;
    }
    for heading in visible(command).filter_map(Arg::get_help_heading) {
        if !topics.iter().any(|topic| topic.heading == heading) {
            topics.push(topic(heading));
        }
    }
    // Those without a row come last.
    topics.sort_by_key(|topic| TOPICS.iter().position(|(name, ..)| *name == topic.name).unwrap_or(TOPICS.len()));
    topics
}

/// The topic of this name, or the only one that begins with `word`.
pub(super) fn find(command: &Command, word: &str) -> Option<Topic> {
    let topics = of(command);
    let begin = |topic: &&Topic| topic.name.starts_with(word);
    let one = topics.iter().filter(begin).count() == 1;
    topics.into_iter().find(|topic| topic.name == word || one && topic.name.starts_with(word))
}

fn topic(heading: &str) -> Topic {
    // The parenthesis of a heading explains the values.
    let title = heading.split(" (").next().unwrap_or(heading);
    let row = TOPICS.iter().find(|(_, start, _)| title.starts_with(start));
    let first = || title.split(' ').next().unwrap_or(title).to_lowercase();
    Topic {
        name: row.map_or_else(first, |(name, ..)| (*name).to_owned()),
        heading: heading.to_owned(),
        about: row.map_or(title, |(_, _, about)| about).to_owned(),
    }
}

/// The IDs of the options of `-h`, in their order.
pub(super) fn common(command: &Command) -> Vec<&'static str> {
    let ids = COMMON.iter().find(|(name, _)| *name == command.get_name()).map_or(&[][..], |(_, ids)| ids);
    let exists = |id: &str| visible(command).any(|arg| arg.get_id() == id);
    ids.iter().copied().filter(|id| exists(id)).take(SHOWN).collect()
}

pub(super) fn better_known(id: &str) -> Option<&'static str> {
    BETTER_KNOWN.iter().find(|(option, _)| *option == id).map(|(_, name)| *name)
}

/// The options that help shows.
pub(super) fn visible(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !arg.is_hide_set())
}
