//! Options of GNU parallel that are refused, each with what to use instead.

use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};

/// A refused option.
pub(super) struct RefusedOption {
    /// Its long names.
    pub(super) names: &'static [&'static str],
    pub(super) short: Option<char>,
    takes_value: bool,
    pub(super) instead: &'static str,
}

const fn flag(names: &'static [&'static str], instead: &'static str) -> RefusedOption {
    RefusedOption { names, short: None, takes_value: false, instead }
}

const fn value(names: &'static [&'static str], instead: &'static str) -> RefusedOption {
    RefusedOption { names, short: None, takes_value: true, instead }
}

const fn short(short: char, entry: RefusedOption) -> RefusedOption {
    RefusedOption { short: Some(short), ..entry }
}

const REMOTE: &str =
    "jobs run on this machine only: split the input with --shard on each machine, or put ssh into COMMAND";
const SQL: &str = "no database is used: use --joblog and --results NAME.csv";
const RPL: &str = "replacement strings are not written in Perl: use --plus, or the shell, as in 'x={}; echo ${x%.*}'";

/// All of them. The page docs/runner.md lists them too.
pub(super) const ENTRIES: &[RefusedOption] = &[
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
    short('D', value(&["debug"], "use --dry-run, or --joblog and --results")),
    flag(&["tollef"], "write ::: before the arguments"),
    flag(&["bug"], "report it to the authors of forkless"),
    short('g', flag(&["retired-g"], "GNU parallel has retired it, too: use --group")),
    short('U', value(&["retired-U"], "GNU parallel has retired it, too: use -I")),
    short('B', value(&["retired-B"], "GNU parallel has retired it, too: use --basefile on GNU's")),
    short('W', value(&["retired-W"], "GNU parallel has retired it, too: use --workdir")),
    short('T', flag(&["retired-T"], "GNU parallel has retired it, too: use --tty on GNU's")),
    short('H', value(&["retired-H"], "GNU parallel has retired it, too: use --halt")),
    short('Y', flag(&["retired-Y"], "GNU parallel has retired it, too: use --shebang on GNU's")),
    value(&["linkinputsource", "xapplyinputsource"], "use :::+ or --link"),
    flag(&["_pipe-means-argfiles"], "it is internal to GNU parallel"),
    value(&["_test"], "it is internal to GNU parallel"),
    flag(&["ctrl-c", "no-ctrl-c", "no-ctrlc", "noctrlc"], "GNU parallel has retired it, too: leave it out"),
];

/// The prefix of the names of options that have no long one.
const RETIRED: &str = "retired-";

/// Further spellings of options, in groups: GNU parallel writes many with and without hyphens. Each group names one option.
#[rustfmt::skip]
const SPELLINGS: [&str; 64] = [
    "joblog jl", "results result res", "resume-failed resumefailed", "retry-failed retryfailed", "keep-order keeporder",
    "no-keep-order nokeeporder nok no-k", "latest-line latestline ll", "line-buffer line-buffered linebuffer linebuffered lb",
    "tmuxpane tmux-pane", "extensionreplace er", "basenamereplace bnr", "dirnamereplace dnr", "basenameextensionreplace bner",
    "ssh-delay sshdelay", "max-line-length-allowed maxlinelengthallowed", "number-of-cpus numberofcpus",
    "number-of-sockets numberofsockets", "number-of-cores numberofcores", "number-of-threads numberofthreads",
    "use-sockets-instead-of-threads usesocketsinsteadofthreads", "use-cores-instead-of-threads usecoresinsteadofthreads",
    "use-cpus-instead-of-cores usecpusinsteadofcores", "shell-quote shellquote shell_quote", "tagstring tag-string",
    "ctagstring ctag-string", "color colour",
    "color-failed colour-failed colorfailed colourfailed color-fail colour-fail colorfail colourfail cf",
    "filter-hosts filterhosts filter-host", "sshloginfile slf", "transferfile transfer-file transfer-files transferfiles tf",
    "basefile bf", "template tmpl", "ctrl-c ctrlc", "workdir work-dir wd", "rsync-opts rsyncopts", "tmpdir tempdir",
    "compress-program use-compress-program usecompressprogram compressprogram",
    "decompress-program use-decompress-program usedecompressprogram decompressprogram", "dry-run dryrun dr",
    "total-jobs totaljobs total", "arg-sep argsep", "arg-file-sep argfilesep", "record-env recordenv", "link xapply",
    "will-cite willcite nn nonotice no-notice", "termseq term-seq", "max-procs maxprocs", "max-chars maxchars",
    "arg-file argfile", "no-run-if-empty norunifempty", "process-slot-var processslotvar", "max-args maxargs",
    "max-replace-args maxreplaceargs", "colsep col-sep", "max-lines maxlines", "show-limits showlimits",
    "skip-first-line skipfirstline", "semaphore-timeout semaphoretimeout st", "semaphore-name semaphorename id",
    "remove-rec-sep removerecsep rrs", "block block-size blocksize", "hostgroups hgrp hostgrp hostgroup",
    "shell-completion shellcompletion", "block-timeout blocktimeout bt",
];

/// Adds the spellings that options lack.
fn with_spellings(mut command: Command) -> Command {
    for group in SPELLINGS {
        let names: Vec<&'static str> = group.split(' ').collect();
        let of = |arg: &Arg| {
            let own = arg.get_long().into_iter().chain(arg.get_all_aliases().unwrap_or_default());
            own.map(str::to_owned).collect::<Vec<_>>()
        };
        let known: Vec<String> = command.get_arguments().flat_map(of).collect();
        let Some(id) = command
            .get_arguments()
            .find(|arg| of(arg).iter().any(|own| names.contains(&own.as_str())))
            .map(|arg| arg.get_id().clone())
        else {
            debug_assert!(false, "no option has a name of {group}");
            continue;
        };
        let missing = names.into_iter().filter(|name| !known.iter().any(|own| own == name));
        command = command.mut_arg(id, |arg| arg.aliases(missing));
    }
    command
}

/// The refused option that was given, if any.
#[derive(Debug, Default)]
pub(crate) struct Refused(pub(super) Option<String>);

impl clap::Args for Refused {
    fn augment_args(command: Command) -> Command {
        let command = ENTRIES.iter().fold(command, |command, entry| {
            let mut arg = Arg::new(entry.names[0]).long(entry.names[0]).hide(true);
            arg = arg.aliases(&entry.names[1..]);
            if let Some(short) = entry.short {
                arg = arg.short(short);
            }
            command.arg(match entry.takes_value {
                true => arg.action(ArgAction::Append).allow_hyphen_values(true),
                false => arg.action(ArgAction::SetTrue),
            })
        });
        with_spellings(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Refused {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        // GNU parallel's name of this machine is `:`.
        let is_here = |entry: &RefusedOption| {
            let places = || matches.get_many::<String>(entry.names[0]).into_iter().flatten();
            entry.names[0] == "sshlogin" && places().all(|place| place == ":")
        };
        let given = |entry: &&RefusedOption| {
            matches.value_source(entry.names[0]) == Some(clap::parser::ValueSource::CommandLine) && !is_here(entry)
        };
        let words = |entry: &RefusedOption| match (entry.names[0].starts_with(RETIRED), entry.short) {
            (true, Some(short)) => format!("-{short} is refused: {}", entry.instead),
            _ => format!("--{} is refused: {}", entry.names[0], entry.instead),
        };
        Ok(Self(ENTRIES.iter().find(given).map(words)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
