//! Options that are defined to clap only if the command line mentions them.
//!
//! To define every option takes longer than to execute the program. So `forkless run` first tries [`plain`], which parses
//! the most common options without clap. If that fails, it parses with the groups of options that the command line mentions.
//! If that fails, too, it parses with all groups, which makes the message. An option that is not defined is an error, so
//! the earlier parses cannot succeed with another result: a test compares them.

use std::{cell::Cell, ffi::OsString, ops::Deref, os::unix::ffi::OsStrExt};

use clap::{ArgMatches, Args, FromArgMatches};

use super::{
    ChildOptions, RunOptions, cgroup::ControlGroup, filters::Filters, identity::Identity, limits::Limits,
    mounts::Mounts, namespaces::Namespaces, plain, privileges::Privileges, scheduling::Scheduling, settings::Settings,
    signals::SignalOptions,
};

/// A group of options; its default is what clap makes of a command line without them.
pub(crate) trait Group: Args + Default {
    /// Its bit in the set of groups.
    const BIT: u32;

    /// Does this long option belong to the group, or does one that belongs to it name a conflict with the group?
    fn has(option: &str) -> bool;
}

macro_rules! groups {
    ($($bit:literal $group:ident: $has:expr;)*) => {
        $(impl Group for $group {
            const BIT: u32 = 1 << $bit;

            fn has(option: &str) -> bool {
                let has: fn(&str) -> bool = $has;
                has(option)
            }
        })*

        /// The groups that this option needs.
        fn needed(option: &str) -> u32 {
            0 $(| if $group::has(option) { $group::BIT } else { 0 })*
        }
    };
}

groups! {
    0 SignalOptions: |option| ["default-signal", "ignore-signal", "inherit-signal", "block-signal", "empty-signal-mask"].contains(&option);
    1 ChildOptions: |option| ["setsid", "new-session", "ctty", "pty", "process-group", "foreground", "pdeathsig", "die-with-parent", "kill-tree", "pidfd-autokill", "chdir-fd", "exec-fd", "fexec", "retry-busy", "best-effort", "launcher", "syscall"].contains(&option);
    2 Identity: |option| ["reuid", "user", "uid", "regid", "group", "gid", "groups", "clear-groups", "init-groups", "keep-groups", "umask"].contains(&option);
    // The options of `Filters` conflict with some of these.
    3 Privileges: |option| Filters::has(option) || ["no-new-privs", "nnp", "bounding-set", "permitted-caps", "permitted", "effective-caps", "effective", "inh-caps", "ambient-caps", "securebits", "seccomp", "seccomp-filter", "landlock"].contains(&option);
    4 Filters: |option| ["system-call-filter", "landlock-access", "landlock-rule"].contains(&option);
    5 Namespaces: |option| ["unshare-user", "unshare-pid", "unshare-net", "unshare-mount", "unshare-uts", "unshare-ipc", "unshare-cgroup", "unshare-time", "unshare-all", "map-root-user", "map-current-user", "map-users", "map-groups", "join", "hostname"].contains(&option);
    6 ControlGroup: |option| ["cgroup", "new-cgroup", "memory-max", "memory-high", "memory-swap-max", "tasks-max", "cpu-quota", "cpu-weight", "io-weight"].contains(&option);
    7 Mounts: |option| ["bind", "dev-bind", "ro-bind", "bind-try", "dev-bind-try", "ro-bind-try", "tmpfs", "size", "perms", "proc", "dev", "overlay-src", "overlay", "ro-overlay", "dir", "symlink", "file", "bind-data", "ro-bind-data", "chmod", "remount-ro", "remount", "mount", "attach-mount", "umount", "pivot-root", "chroot", "root"].contains(&option);
    8 Scheduling: |option| ["nice", "adjustment", "cpu-list", "cpus", "scheduler", "ionice", "personality", "no-aslr", "addr-no-randomize"].contains(&option);
    9 Settings: Settings::has_option;
    10 Limits: Limits::has_option;
}

thread_local! {
    /// The groups that are defined to clap.
    static DEFINED: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// A group that is left out of the definition where [`quick`] does not need it.
#[derive(Debug, Default)]
pub(crate) struct OnDemand<T>(pub(super) T);

impl<T> Deref for OnDemand<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Group> OnDemand<T> {
    fn is_defined() -> bool {
        DEFINED.get() & T::BIT != 0
    }
}

impl<T: Group> Args for OnDemand<T> {
    fn augment_args(command: clap::Command) -> clap::Command {
        if Self::is_defined() { T::augment_args(command) } else { command }
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        if Self::is_defined() { T::augment_args_for_update(command) } else { command }
    }
}

impl<T: Group> FromArgMatches for OnDemand<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        if Self::is_defined() { T::from_arg_matches(matches).map(Self) } else { Ok(Self::default()) }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        if Self::is_defined() { self.0.update_from_arg_matches(matches) } else { Ok(()) }
    }
}

/// Parses the arguments of `forkless run` with as few definitions as possible. `None`: this needs a parse with all
/// definitions, which also finds what is wrong.
pub(crate) fn quick(words: &[OsString]) -> Option<Box<RunOptions>> {
    plain::parse(words).or_else(|| by_groups(words))
}

/// Parses with the groups of options that the command line mentions.
fn by_groups(words: &[OsString]) -> Option<Box<RunOptions>> {
    // Arguments of the program count too, so more may be defined than is needed.
    let options = words.iter().filter_map(|word| word.as_bytes().strip_prefix(b"--"));
    let names = options.filter_map(|word| str::from_utf8(word.split(|byte| *byte == b'=').next()?).ok());
    parse(words, names.fold(0, |groups, name| groups | needed(name)))
}

/// Parses with these groups.
fn parse(words: &[OsString], groups: u32) -> Option<Box<RunOptions>> {
    DEFINED.set(groups);
    let command = clap::Command::new("run").no_binary_name(true).disable_help_flag(true);
    let matches = RunOptions::augment_args(command).try_get_matches_from(words);
    let options = matches.and_then(|mut matches| RunOptions::from_arg_matches_mut(&mut matches));
    DEFINED.set(u32::MAX);
    options.ok().map(Box::new)
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::BTreeMap, sync::LazyLock};

    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    /// Values of all kinds of options. Each option accepts one of them at least.
    const VALUES: [&str; 34] = [
        "1",
        "0",
        "-1",
        "5",
        "TERM",
        "A=1",
        "null",
        "5=null",
        "5=r:/f",
        "1K",
        "1s",
        "/",
        "always",
        "24x80",
        "fork",
        "nice",
        "root",
        "077",
        "+chown",
        "+noroot",
        "~ptrace",
        "fs",
        "path-beneath::/",
        "net=/proc/1/ns/net",
        "0:0:1",
        "50%",
        "0-1",
        "batch",
        "idle",
        "interleave:all",
        "1:2",
        "strict",
        "default",
        "/a:ro",
    ];

    /// The long names of an option, hidden ones too.
    fn longs(arg: &clap::Arg) -> Vec<String> {
        let aliases = arg.get_all_aliases().into_iter().flatten();
        arg.get_long().into_iter().chain(aliases).map(str::to_owned).collect()
    }

    thread_local! {
        /// All definitions. To build them takes much longer than to parse a line.
        static WHOLE: RefCell<clap::Command> = RefCell::new(Cli::command());
    }

    fn whole(words: &[String]) -> Result<String, clap::Error> {
        let words = ["forkless", "run"].into_iter().chain(words.iter().map(String::as_str));
        let mut matches = WHOLE.with_borrow_mut(|command| command.try_get_matches_from_mut(words))?;
        match Cli::from_arg_matches_mut(&mut matches)?.command {
            crate::Command::Run(options) => Ok(format!("{options:?}")),
            _ => panic!("another command"),
        }
    }

    /// Parses in all ways. Returns whether a quick way succeeded.
    fn is_parsed_quickly(words: &[&str]) -> bool {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let raw: Vec<OsString> = words.iter().map(OsString::from).collect();
        let quickly: Vec<_> = [plain::parse(&raw), by_groups(&raw)].into_iter().flatten().collect();
        assert_eq!(quick(&raw).is_some(), !quickly.is_empty());
        for options in &quickly {
            match whole(&words) {
                Ok(whole) => assert_eq!(format!("{options:?}"), whole, "{words:?}"),
                Err(error) => panic!("{words:?} is accepted, but: {error}"),
            }
        }
        !quickly.is_empty()
    }

    /// Every long option of `run`, with a value that it accepts if it takes any.
    static OPTIONS: LazyLock<BTreeMap<String, Vec<String>>> = LazyLock::new(options);

    fn options() -> BTreeMap<String, Vec<String>> {
        let mut cli = Cli::command();
        cli.build();
        let run = cli.find_subcommand("run").expect("run");
        let (mut options, mut lacking) = (BTreeMap::new(), 0);
        for arg in run.get_arguments().filter(|arg| !arg.is_positional()) {
            for long in longs(arg).into_iter().filter(|long| long != "help") {
                let flag = format!("--{long}");
                let count = arg.get_num_args().map_or(0, |range| range.max_values());
                let line = |value: &str| match count {
                    0 => vec![flag.clone()],
                    1 => vec![format!("{flag}={value}")],
                    _ => [&[flag.clone()][..], &vec![value.to_owned(); count]].concat(),
                };
                let lines = VALUES.iter().map(|value| line(value));
                let fitting = lines.into_iter().find(|line| is_accepted(line));
                if fitting.is_none() {
                    eprintln!("no value for {flag}");
                    lacking += 1;
                }
                options.insert(long.clone(), fitting.unwrap_or_else(|| line("1")));
            }
        }
        assert!(lacking < 6, "{lacking} options accept none of the values");
        options
    }

    /// Is the option accepted, perhaps together with one that it requires?
    fn is_accepted(option: &[String]) -> bool {
        let others: [&[&str]; 8] = [
            &["true"],
            &["--capture", "true"],
            &["--reuid=root", "true"],
            &["--landlock-access=fs", "true"],
            &["--timeout=5", "true"],
            &["--tmpfs=/", "true"],
            &["--overlay-src=/", "--ro-overlay=/", "true"],
            &[],
        ];
        let is_accepted = |others: &&[&str]| {
            let words = option.iter().map(String::as_str).chain(others.iter().copied());
            let words = ["forkless", "run"].into_iter().chain(words);
            WHOLE.with_borrow_mut(|command| command.try_get_matches_from_mut(words)).is_ok()
        };
        others.iter().any(is_accepted)
    }

    #[test]
    fn quick_parse_has_the_result_of_the_whole_parse() {
        assert!(OPTIONS.len() > 120, "{}", OPTIONS.len());
        let mut quickly = 0;
        for words in OPTIONS.values() {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let (flag, value) = words[0].split_once('=').unwrap_or((words[0], ""));
            let mut lines = vec![
                [&words[..], &["true"]].concat(),
                [&words[..], &["--", "true", "--nice"]].concat(),
                [&words[..], &words[..], &["A=1", "true"]].concat(),
                [&words[..], &["--capture", "--limit-output=1K", "--timeout", "5", "true"]].concat(),
                [&["--chdir=/", "--shell=ls"], &words[..]].concat(),
                vec![flag, value, "true"],
                vec![flag, "true"],
                vec![flag],
                vec![&flag[..flag.len() - 1], "true"],
            ];
            lines.extend(VALUES.iter().step_by(7).map(|value| vec![flag, value, "true"]));
            quickly += lines.iter().filter(|line| is_parsed_quickly(line)).count();
        }
        assert!(quickly > 3 * OPTIONS.len(), "only {quickly} lines were parsed quickly");
    }

    #[test]
    fn quick_parse_notices_pairs_that_exclude_each_other() {
        let options: Vec<&Vec<String>> = OPTIONS.values().collect();
        let mut quickly = 0;
        for (index, first) in options.iter().enumerate() {
            // Some pairs of each option; over all options every distance occurs.
            for second in options.iter().skip(index % 19).step_by(19) {
                let words: Vec<&str> = first.iter().chain(*second).map(String::as_str).chain(["true"]).collect();
                quickly += usize::from(is_parsed_quickly(&words));
            }
        }
        assert!(quickly > 400, "only {quickly} pairs were parsed quickly");
    }

    #[test]
    fn quick_parse_without_options_is_the_program() {
        for words in [
            &["true"][..],
            &["A=1", "B=", "true", "--help"],
            &["true", "--", "-x", "--nice=5"],
            &["a", "--version"],
            &["", "x"],
            &["=", "x"],
        ] {
            assert!(is_parsed_quickly(words), "{words:?}");
        }
        for words in [&[][..], &["--help"], &["-h"], &["--nosuch", "true"], &["-x", "true"], &["--nice"], &["--"]] {
            assert!(!is_parsed_quickly(words), "{words:?}");
        }
    }

    /// Options that [`plain`] knows, and words that it must leave to clap, in all combinations of three.
    #[test]
    fn plain_parse_has_the_result_of_the_whole_parse() {
        let words: &[&[&str]] = &[
            &["--timeout", "5"],
            &["--timeout=1m30s"],
            &["--timeout", "-5"],
            &["-s", "KILL"],
            &["--signal=9"],
            &["-k", "1"],
            &["--kill-after=2s"],
            &["--nice", "3"],
            &["--nice=-3"],
            &["--nice=+3"],
            &["--nice", "high"],
            &["--no-new-privs"],
            &["--no-new-privs=1"],
            &["-i"],
            &["--ignore-environment"],
            &["-u", "A"],
            &["--unset=B"],
            &["--unset=A=1"],
            &["--env", "A=1"],
            &["--env="],
            &["--env=A=--"],
            &["-C", "/"],
            &["--chdir="],
            &["--chdir", ""],
            &["--nofile", "100"],
            &["--as=1G:2G"],
            &["--core=-1"],
            &["--"],
            &["-"],
            &["-iu", "A"],
            &["-uA"],
            &["A=1"],
            &["--setsid"],
            &[],
        ];
        let (mut plainly, mut lines) = (0, 0);
        for first in words {
            for second in words {
                for third in words {
                    let line = [*first, *second, *third, &["true", "--nice=1"]].concat();
                    let raw: Vec<OsString> = line.iter().map(OsString::from).collect();
                    lines += 1;
                    if let Some(options) = plain::parse(&raw) {
                        plainly += 1;
                        let whole = by_groups(&raw).unwrap_or_else(|| panic!("{line:?} is accepted, but not by clap"));
                        assert_eq!(format!("{options:?}"), format!("{whole:?}"), "{line:?}");
                    }
                }
            }
        }
        assert!(plainly > 3000 && plainly < lines / 2, "{plainly} of {lines} lines");
        let not_text = std::os::unix::ffi::OsStringExt::from_vec(b"/\xff".to_vec());
        for words in [[OsString::from("-C"), not_text, "true".into()], ["-u".into(), "A".into(), "\u{e9}".into()]] {
            let [plainly, by_groups] = [plain::parse(&words), by_groups(&words)].map(|parsed| format!("{parsed:?}"));
            assert_eq!(plainly, by_groups);
            assert!(plainly.starts_with("Some"));
        }
    }

    /// No group refers to an option of another one, except as [`Group::has`] says: clap checks that where it is built with
    /// debug assertions.
    #[test]
    fn each_group_is_complete_and_stands_alone() {
        let names = |groups: u32| -> Vec<String> {
            DEFINED.set(groups);
            let mut command = RunOptions::augment_args(clap::Command::new("run"));
            command.build();
            DEFINED.set(u32::MAX);
            command.get_arguments().flat_map(longs).collect()
        };
        let always = names(0);
        let mut all = always.clone();
        for bit in 0..=Limits::BIT.trailing_zeros() {
            let group = 1 << bit;
            // The group, and those that its options need.
            let needs = |name: &String| needed(name) & group != 0;
            let own: Vec<String> = names(u32::MAX).into_iter().filter(|name| needs(name)).collect();
            let with = own.iter().fold(group, |groups, name| groups | needed(name));
            let found: Vec<String> = names(with).into_iter().filter(|name| !always.contains(name)).collect();
            assert!(!own.is_empty() && found.iter().all(|name| needed(name) != 0), "{found:?}");
            all.extend(found);
        }
        for name in names(u32::MAX) {
            assert!(all.contains(&name), "--{name} is in no group: add it to the list of its group");
        }
    }
}
