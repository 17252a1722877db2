//! Errors of the command line, in one or two lines: what is wrong, and what would be right.
//!
//! clap finds the errors. Its own texts name the parser's view of an error, such as a missing PROGRAM, where the user's
//! mistake is an option that took the program's name as its value.

mod foreign;
mod scan;

use std::{
    error::Error as _,
    ffi::{OsStr, OsString},
    io::Write as _,
    num::{IntErrorKind, ParseIntError},
};

use clap::{
    Command,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::near::{did_you_mean, near};
use forkless_runner::message::say;

use self::scan::{Scan, Use, scan};
pub(crate) use self::scan::{long_option, short_option};

/// Prints the error, or the text that an option such as `--help` requests.
///
/// # Errors
/// If the requested text cannot be written.
pub(crate) fn print(error: &clap::Error, all: fn() -> Command) -> std::io::Result<()> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    match error.use_stderr().then(|| message(error, all(), &words)).flatten() {
        Some(text) => say(text),
        None if error.use_stderr() => _ = error.print(),
        None => {
            error.print()?;
            std::io::stdout().flush()?;
        }
    }
    Ok(())
}

/// The option right before the program, if it takes a value only after `=`, and the program may be meant as that value. Returns
/// the option as typed.
pub(crate) fn option_before_program(mut run: Command) -> Option<String> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<OsString> = words.into_iter().skip(1).collect();
    run.build();
    let place = UsagePlace::of(&run, &words);
    let used = place.found.uses.last().filter(|used| Some(used.end) == place.found.program)?;
    (used.has_required_equals() && !place.own()[used.at].to_string_lossy().contains('=')).then(|| used.typed.clone())
}

/// How an option of a command was typed at each of its uses, such as `-u`.
pub(crate) fn typed_names(mut command: Command, words: &[OsString], option: &str) -> Vec<String> {
    command.build();
    let uses = scan(&command, words).uses.into_iter();
    uses.filter(|used| used.arg.get_id() == option).map(|used| used.typed).collect()
}

/// The message for an error that clap found in these words, the arguments of `forkless`. None if clap's own text fits: a
/// help text, for example.
pub(crate) fn message(error: &clap::Error, mut all: Command, words: &[OsString]) -> Option<String> {
    all.build();
    let place = UsagePlace::of(&all, words);
    let arg = first(error, ContextKind::InvalidArg).map(bare);
    let value = first(error, ContextKind::InvalidValue).unwrap_or_default();
    Some(match (error.kind(), arg) {
        (ErrorKind::InvalidValue, Some(arg)) if value.is_empty() => place.no_value(arg),
        (ErrorKind::InvalidValue, Some(arg)) => {
            let valid = strings(error, ContextKind::ValidValue);
            format!("{arg}: {value:?} is not one of {}{}", valid.join(", "), did_you_mean(value, &valid))
        }
        (ErrorKind::ValueValidation, Some(arg)) => {
            let reason = error.source().map(reason).unwrap_or_default() + foreign::value_hint(arg, value);
            let quoted = format!("{value:?}");
            if reason.contains(&quoted) { format!("{arg}: {reason}") } else { format!("{arg}: {quoted}: {reason}") }
        }
        (ErrorKind::UnknownArgument, Some(arg)) => place.unknown(arg),
        (ErrorKind::MissingRequiredArgument, Some(_)) => place.missing(&strings(error, ContextKind::InvalidArg)),
        (ErrorKind::ArgumentConflict, Some(arg)) => {
            let others = strings(error, ContextKind::PriorArg);
            place.conflict(arg, others.first().map_or(arg, |other| bare(other)))
        }
        (ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues, Some(arg)) => place.too_few(arg),
        (ErrorKind::TooManyValues, Some(arg)) => format!("{arg} takes no value, and {value:?} is one; leave it out"),
        (ErrorKind::NoEquals, Some(arg)) => format!("{arg} takes its value after =, as in {arg}=VALUE"),
        (ErrorKind::InvalidSubcommand, _) => place.no_command(first(error, ContextKind::InvalidSubcommand)?),
        (ErrorKind::ValueValidation, None) => own_words(error),
        _ => return None,
    })
}

/// Why a value is wrong. clap reads numbers itself, with the texts of the standard library.
fn reason(source: &(dyn std::error::Error + 'static)) -> String {
    let text = source.to_string();
    match source.downcast_ref::<ParseIntError>().map(ParseIntError::kind) {
        Some(IntErrorKind::PosOverflow | IntErrorKind::NegOverflow) => return "is out of range".to_owned(),
        Some(_) => return "must be a whole number".to_owned(),
        None => {}
    }
    let range = text.split_once(" is not in ").and_then(|(_, range)| range.split_once("..="));
    match range {
        Some((low, high)) => format!("must be from {low} to {high}"),
        None => text,
    }
}

/// The text of an error that one of the options made itself.
fn own_words(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

fn first(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text),
        ContextValue::Strings(texts) => texts.first().map(String::as_str),
        _ => None,
    }
}

fn strings(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::Strings(texts)) => texts.clone(),
        Some(ContextValue::String(text)) => vec![text.clone()],
        _ => Vec::new(),
    }
}

/// `--pty[=<SIZE>]` as `--pty`.
fn bare(arg: &str) -> &str {
    if arg.starts_with('-') {
        return arg.split([' ', '=', '[']).next().unwrap_or(arg);
    }
    arg.trim_end_matches("...").trim_matches(['<', '>', '[', ']'])
}

/// `a, b and c`.
fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    }
}

fn quoted(word: &OsStr) -> String {
    format!("{word:?}")
}

/// The subcommand in which the error is.
struct UsagePlace<'a> {
    all: &'a Command,
    command: &'a Command,
    /// `forkless run`, for messages.
    name: String,
    /// All arguments of `forkless`, and how many of them select the subcommand.
    words: &'a [OsString],
    skipped: usize,
    found: Scan<'a>,
}

impl<'a> UsagePlace<'a> {
    fn of(all: &'a Command, words: &'a [OsString]) -> Self {
        let (mut command, mut name, mut skipped) = (all, "forkless".to_owned(), 0);
        while let Some(next) = words.get(skipped).and_then(|word| command.find_subcommand(word)) {
            command = next;
            name = format!("{name} {}", next.get_name());
            skipped += 1;
        }
        Self { all, command, name, words, skipped, found: scan(command, &words[skipped..]) }
    }

    fn own(&self) -> &'a [OsString] {
        &self.words[self.skipped..]
    }

    /// The last use of an option that the error names.
    fn last(&self, arg: &str) -> Option<&Use<'a>> {
        let is_it =
            |used: &&Use<'_>| used.typed == arg || used.arg.get_long().is_some_and(|long| arg == format!("--{long}"));
        self.found.uses.iter().rev().find(is_it)
    }

    fn no_value(&self, arg: &str) -> String {
        let Some(used) = self.last(arg) else { return format!("{arg} requires a value") };
        let operands = listed(&used.operands());
        match self.own().get(used.at + 1) {
            Some(next) if !next.is_empty() => format!("{} requires {operands}, and {next:?} follows it", used.typed),
            Some(_) => format!("{} requires {operands}, and \"\" is empty", used.typed),
            None => format!("{} requires {operands}, and nothing follows it", used.typed),
        }
    }

    fn too_few(&self, arg: &str) -> String {
        let Some(used) = self.last(arg) else { return format!("{arg} requires more values") };
        let got: Vec<String> = self.own()[used.at + 1..used.end].iter().map(|word| quoted(word)).collect();
        let got = if got.is_empty() { "nothing".to_owned() } else { listed(&got) };
        let next = self.own().get(used.end).map_or(String::new(), |next| format!(" before {next:?}"));
        format!("{} requires {}, and got only {got}{next}", used.typed, listed(&used.operands()))
    }

    fn conflict(&self, one: &str, other: &str) -> String {
        if one == other {
            return format!("{one} is given more than once; keep one");
        }
        match [one, other].into_iter().find(|arg| !arg.starts_with('-')) {
            Some(_) if self.last("--shell").is_some() => {
                let more = self.found.program.and_then(|at| self.own().get(at)).cloned().unwrap_or_default();
                format!("--shell takes the whole line as one argument, and {more:?} follows it; put the line in quotes")
            }
            _ => format!("{one} and {other} exclude each other; leave one out"),
        }
    }

    fn missing(&self, args: &[String]) -> String {
        if args.iter().any(|arg| arg.contains("PROGRAM")) {
            return self.no_program();
        }
        let names: Vec<String> = args.iter().map(|arg| bare(arg).to_owned()).collect();
        match self.culprit() {
            Some(option) => format!("{option} requires {}; add it, or leave out {option}", listed(&names)),
            None => format!("{} requires {} (see {} --help)", self.name, listed(&names), self.name),
        }
    }

    /// The option without which nothing would be missing.
    fn culprit(&self) -> Option<String> {
        let one = |used: &&Use<'_>| {
            let from = self.skipped + used.at;
            let others = [&self.words[..from], &self.words[self.skipped + used.end..]].concat();
            self.error_of(&others).is_none_or(|error| error.kind() != ErrorKind::MissingRequiredArgument)
        };
        self.found.uses.iter().find(one).map(|used| used.typed.clone())
    }

    fn error_of(&self, words: &[OsString]) -> Option<clap::Error> {
        let name = OsString::from("forkless");
        self.all.clone().try_get_matches_from(std::iter::once(&name).chain(words)).err()
    }

    fn no_program(&self) -> String {
        let swallowed = self.found.uses.last().filter(|used| used.end == self.own().len() && used.end > used.at + 1);
        let Some(used) = swallowed else {
            return format!(
                "no program given; write it after the options, as in: {} [OPTIONS] PROGRAM [ARGS]",
                self.name
            );
        };
        let operands = used.operands();
        let took: Vec<String> = self.own()[used.at + 1..]
            .iter()
            .zip(&operands)
            .map(|(word, operand)| format!("{word:?} as {operand}"))
            .collect();
        let missing = operands.get(took.len()..).unwrap_or_default();
        let and = if missing.is_empty() { String::new() } else { format!(" and lacks {}", listed(missing)) };
        let operands = operands.join(" ");
        format!(
            "no program given: {0} took {1}{and}; write {0} {operands} and then the program",
            used.typed,
            listed(&took)
        )
    }

    fn no_command(&self, word: &str) -> String {
        let names: Vec<&str> =
            self.command.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name).collect();
        if names.is_empty() {
            // `forkless help run WORD`: there are topics, but no subcommands.
            let name = self.name.replacen(" help", "", 1);
            return format!("{name} has no subcommand {word:?} (see {name} --help)");
        }
        let near = did_you_mean(word, &names);
        let run = if near.is_empty() { format!(", or to run a program: forkless run {word}") } else { near };
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        format!("no command {word:?}: use {}{run}", listed(&names))
    }

    fn unknown(&self, arg: &str) -> String {
        if let Some(text) = self.hyphen_value(arg) {
            return text;
        }
        if !arg.starts_with('-') {
            return format!("{} takes no argument {arg:?} (see {} --help)", self.name, self.name);
        }
        let unknown = format!("unknown option {arg}");
        if self.command.get_name() == "run" {
            if let Some((tool, hint)) = foreign::hint(arg) {
                let after = if arg.len() == 2 { self.of_program() } else { String::new() };
                return format!("{unknown}: for that of {tool}, {hint}{after}");
            }
        }
        if let Some(other) = self.elsewhere(arg) {
            return format!("{unknown}: it belongs to {other}; write {other} {arg}");
        }
        let similar = self.similar(arg);
        let after = if similar.is_empty() { self.of_program() } else { String::new() };
        format!("{unknown}{similar}{after} (see {} --help)", self.name)
    }

    /// An unknown option may be one of the program's.
    fn of_program(&self) -> String {
        let Some(program) = self.found.program.and_then(|at| self.own().get(at)) else { return String::new() };
        // Not a value of the unknown option.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_program = std::env::split_paths(&path).any(|directory| directory.join(program).is_file());
        if is_program { format!("; an option of {program:?} is written after it") } else { String::new() }
    }

    /// The message if a value that begins with `-` was taken for an option.
    fn hyphen_value(&self, arg: &str) -> Option<String> {
        let is_it = |word: &OsString| word.to_str().is_some_and(|text| text == arg || text.starts_with(arg));
        let hungry = |used: &&Use<'_>| {
            let got = used.end - used.at - 1;
            let word = self.own()[used.at].to_string_lossy();
            // The value in -j1 is in the same word.
            let is_attached = !word.starts_with("--") && !word.ends_with(used.typed.trim_start_matches('-'));
            let plain = !word.contains('=') && !is_attached && !used.has_required_equals();
            plain && got < used.wants() && self.own().get(used.end).is_some_and(is_it)
        };
        let used = self.found.uses.iter().find(hungry)?;
        let value = self.own()[used.end].to_str()?;
        if used.wants() > 1 {
            return Some(format!("{} requires {}, and {value:?} is an option", used.typed, listed(&used.operands())));
        }
        let (at, end) = (self.skipped + used.at, self.skipped + used.end);
        let joined =
            OsString::from(format!("{}{}{value}", used.typed, if used.typed.starts_with("--") { "=" } else { "" }));
        let words = [&self.words[..at], std::slice::from_ref(&joined), &self.words[end + 1..]].concat();
        match self.error_of(&words) {
            Some(error) if first(&error, ContextKind::InvalidValue) == Some(value) => {
                message(&error, self.all.clone(), &words)
            }
            _ => Some(format!("{}: {value:?} begins with -; write {}", used.typed, joined.display())),
        }
    }

    /// The subcommand that has this option, if this one has not.
    fn elsewhere(&self, arg: &str) -> Option<String> {
        let long = arg.strip_prefix("--")?;
        let has = |one: &&Command| one.get_arguments().any(|known| known.get_long() == Some(long));
        let others = self.all.get_subcommands().filter(|one| one.get_name() != self.command.get_name());
        others
            .filter(|one| self.command.get_name() == "forkless" || one.get_name() == "run")
            .find(has)
            .map(|one| format!("forkless {}", one.get_name()))
    }

    /// Options with a similar name, or that begin with this one.
    fn similar(&self, arg: &str) -> String {
        let Some(word) = arg.strip_prefix("--") else { return String::new() };
        let shown = self.command.get_arguments().filter(|one| !one.is_hide_set());
        let mut longs: Vec<String> = shown
            .flat_map(|one| one.get_long().into_iter().chain(one.get_visible_aliases().unwrap_or_default()))
            .map(str::to_owned)
            .collect();
        longs.sort();
        if let Some(one) = near(word, &longs) {
            return format!("; did you mean --{one}?");
        }
        let begun: Vec<String> =
            longs.iter().filter(|one| word.len() > 2 && one.starts_with(word)).map(|one| format!("--{one}")).collect();
        match &begun[..] {
            [] => String::new(),
            [some @ .., last] if some.len() < 9 => {
                let or = if some.is_empty() { String::new() } else { format!("{} or ", some.join(", ")) };
                format!("; did you mean {or}{last}?")
            }
            _ => String::new(),
        }
    }
}
