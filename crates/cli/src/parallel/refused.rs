//! Options of GNU parallel that are refused, each with what to use instead.

use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};

/// A refused option.
pub(super) struct Entry {
    /// Its long names.
    pub(super) names: &'static [&'static str],
    pub(super) short: Option<char>,
    takes_value: bool,
    pub(super) instead: &'static str,
}

const fn flag(names: &'static [&'static str], instead: &'static str) -> Entry {
    Entry { names, short: None, takes_value: false, instead }
}

const fn value(names: &'static [&'static str], instead: &'static str) -> Entry {
    Entry { names, short: None, takes_value: true, instead }
}

const fn short(short: char, entry: Entry) -> Entry {
    Entry { short: Some(short), ..entry }
}

const REMOTE: &str =
    "jobs run on this machine only: split the input with --shard on each machine, or put ssh into COMMAND";
const SQL: &str = "no database is used: use --joblog and --results NAME.csv";
const RPL: &str = "replacement strings are not written in Perl: use --plus, or the shell, as in 'x={}; echo ${x%.*}'";

/// All of them. The page docs/runner.md lists them too.
pub(super) const ENTRIES: &[Entry] = &[
    short('S', value(&["sshlogin"], REMOTE)),
    value(&["sshloginfile", "slf"], REMOTE),
    value(&["ssh"], REMOTE),
    value(&["ssh-delay"], REMOTE),
    short('M', flag(&["controlmaster"], REMOTE)),
    flag(&["onall"], REMOTE),
    flag(&["nonall"], REMOTE),
    flag(&["hostgroups", "hgrp"], REMOTE),
    flag(&["filter-hosts"], REMOTE),
    value(&["rsync-opts"], REMOTE),
    value(&["transferfile", "tf"], REMOTE),
    flag(&["transfer"], REMOTE),
    value(&["return"], REMOTE),
    value(&["trc"], REMOTE),
    value(&["basefile", "bf"], REMOTE),
    flag(&["cleanup"], REMOTE),
    flag(&["use-cores-instead-of-threads"], "give --jobs a number"),
    flag(&["use-cpus-instead-of-cores"], "give --jobs a number"),
    flag(&["use-sockets-instead-of-threads"], "give --jobs a number"),
    value(&["sql"], SQL),
    value(&["sql-master", "sqlmaster"], SQL),
    value(&["sql-worker", "sqlworker"], SQL),
    value(&["sql-and-worker", "sqlandworker"], SQL),
    value(&["rpl"], RPL),
    value(&["parens"], RPL),
    value(&["filter"], "it is Perl: filter the input before, with awk or grep"),
    value(&["bin"], "it may be Perl: use --shard, or split the input before"),
    value(&["group-by", "groupby"], "it may be Perl: split the input before, with awk"),
    value(&["template", "tmpl"], "use envsubst or sed in COMMAND"),
    flag(&["tmux"], "use --line-buffer --tag"),
    flag(&["tmuxpane"], "use --line-buffer --tag"),
    flag(&["latest-line", "ll"], "use --line-buffer --tag, or --bar"),
    flag(&["tty"], "use -j1 -u"),
    short('o', flag(&["open-tty"], "use -j1 -u")),
    short('p', flag(&["interactive"], "look at --dry-run first, or use forkless xargs -p")),
    short('J', value(&["profile"], "profiles are not read: put options into the variable PARALLEL")),
    flag(&["record-env"], "jobs have the whole environment; env -i removes it"),
    flag(&["session"], "jobs have the whole environment; env -i removes it"),
    flag(&["embed"], "the program is one file already"),
    flag(&["shebang", "hashbang"], "call it in a script, with its input from a here-document"),
    flag(&["shebang-wrap"], "call it in a script, with its input from a here-document"),
    flag(&["skip-first-line"], "use tail -n +2"),
    flag(&["compress"], "output is kept in memory, then in --tmpdir: choose one on a compressed file system"),
    value(&["compress-program"], "output is kept in memory, then in --tmpdir: choose one on a compressed file system"),
    value(
        &["decompress-program"],
        "output is kept in memory, then in --tmpdir: choose one on a compressed file system",
    ),
    flag(&["color", "colour"], "use --tag"),
    flag(&["color-failed", "cf"], "use --joblog to find failed jobs"),
    flag(&["ctag"], "use --tag"),
    value(&["ctagstring"], "use --tagstring"),
    flag(&["files", "output-as-files", "outputasfiles"], "use --results DIR"),
    value(&["limit"], "use --load or --memfree"),
    flag(&["noswap"], "use --memfree"),
    value(&["memsuspend"], "use --memfree"),
    value(&["shell-completion"], "not supported: completions are installed with the program"),
    flag(&["shell-quote", "shellquote"], "use printf %q of bash"),
    flag(&["show-limits"], "use forkless xargs --show-limits"),
    flag(&["max-line-length-allowed"], "use forkless xargs --show-limits"),
    flag(&["number-of-cores"], "use nproc or lscpu"),
    flag(&["number-of-cpus"], "use nproc or lscpu"),
    flag(&["number-of-sockets"], "use nproc or lscpu"),
    flag(&["number-of-threads"], "use nproc or lscpu"),
    value(&["_parset"], "it is a part of GNU's parset: use --results, and read the files"),
    value(&["minversion"], "use forkless --version"),
    flag(&["citation"], "there is no citation notice"),
];

/// The refused option that was given, if any.
#[derive(Debug, Default)]
pub(crate) struct Refused(pub(super) Option<String>);

impl clap::Args for Refused {
    fn augment_args(command: Command) -> Command {
        ENTRIES.iter().fold(command, |command, entry| {
            let mut arg = Arg::new(entry.names[0]).long(entry.names[0]).hide(true);
            arg = arg.aliases(&entry.names[1..]);
            if let Some(short) = entry.short {
                arg = arg.short(short);
            }
            command.arg(match entry.takes_value {
                true => arg.action(ArgAction::Append).allow_hyphen_values(true),
                false => arg.action(ArgAction::SetTrue),
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Refused {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        // This machine, in GNU parallel's words.
        let is_here = |entry: &Entry| {
            let places = || matches.get_many::<String>(entry.names[0]).into_iter().flatten();
            entry.names[0] == "sshlogin" && places().all(|place| place == ":")
        };
        let given = |entry: &&Entry| {
            matches.value_source(entry.names[0]) == Some(clap::parser::ValueSource::CommandLine) && !is_here(entry)
        };
        let words = |entry: &Entry| format!("--{} is refused: {}", entry.names[0], entry.instead);
        Ok(Self(ENTRIES.iter().find(given).map(words)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
