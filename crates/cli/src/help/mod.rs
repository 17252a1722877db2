//! Help: `-h` prints the most common options and the names of the topics, `--help TOPIC` one topic, `--help` everything.
//! Man pages and completions come from the same definition of the options.
//!
//! A page is made only when it is requested: without that, parsing costs nothing more.

mod complete;
mod man;
mod markdown;
mod pages;
mod topics;

use std::{
    ffi::{OsStr, OsString},
    fmt,
};

use clap::{
    Arg, ArgAction, Command, Error, Parser,
    builder::TypedValueParser,
    error::{ContextKind, ContextValue, ErrorKind},
};

pub(crate) use complete::{CompletionOptions, complete};
pub(crate) use man::{ManOptions, man};

/// Makes the definition of the whole command line.
pub(crate) type Definition = fn() -> Command;

/// Parses the command line as [`Parser::try_parse`] does, with the help of this module.
pub(crate) fn parse<P: Parser>(words: Vec<OsString>) -> Result<P, Error> {
    let mut command = attach(P::command);
    let mut matches = command.try_get_matches_from_mut(words)?;
    P::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// The definition, with `-h` and `--help [TOPIC]` in each subcommand.
pub(crate) fn attach(definition: Definition) -> Command {
    definition().mut_subcommands(|command| {
        let page = Page { definition, name: command.get_name().to_owned() };
        let short = Arg::new("summary").short('h').action(ArgAction::SetTrue).help("Print the most common options");
        let long = Arg::new("help").long("help");
        let long = if topics::has_topics(&command) {
            let long = long.num_args(0..=1).value_name("TOPIC").default_missing_value(topics::ALL);
            long.help("Print all options, or those of TOPIC; -h lists the topics")
        } else {
            long.action(ArgAction::SetTrue).help("Print all options, with more explanation")
        };
        let (short, long) = (short.value_parser(page.clone()), long.value_parser(page));
        command.disable_help_flag(true).arg(short.help_heading(None)).arg(long.help_heading(None))
    })
}

/// Parses the values of `-h` and `--help` of a subcommand. A page ends the parsing: it is an "error" of kind `DisplayHelp`,
/// as in clap.
#[derive(Clone)]
struct Page {
    definition: Definition,
    name: String,
}

impl fmt::Debug for Page {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "help on {}", self.name)
    }
}

impl Page {
    /// The subcommand.
    fn command(&self) -> Command {
        let command = attach(self.definition).find_subcommand(&self.name).cloned().unwrap_or_default();
        command.bin_name(format!("forkless {}", self.name)).max_term_width(pages::WIDTH)
    }
}

impl TypedValueParser for Page {
    type Value = bool;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<bool, Error> {
        let is_short = arg.is_some_and(|arg| arg.get_short().is_some());
        match value.to_str() {
            // The default of a flag: it was not given.
            Some("false") => Ok(false),
            Some("true") if is_short => Err(pages::summary(self.command())),
            Some("true" | topics::ALL) => Err(pages::all(self.command())),
            word => match word.and_then(|word| pages::topic(self.command(), word)) {
                Some(page) => Err(page),
                None => Err(no_topic(command, &self.command(), &value.to_string_lossy())),
            },
        }
    }
}

fn no_topic(command: &Command, definition: &Command, word: &str) -> Error {
    let names = topics::of(definition).into_iter().map(|topic| topic.name).chain([topics::ALL.to_owned()]);
    let mut error = Error::new(ErrorKind::InvalidValue).with_cmd(command);
    error.insert(ContextKind::InvalidArg, ContextValue::String("--help [TOPIC]".to_owned()));
    error.insert(ContextKind::InvalidValue, ContextValue::String(word.to_owned()));
    error.insert(ContextKind::ValidValue, ContextValue::Strings(names.collect()));
    error
}
