//! Completions. The script of each shell asks this program for the values of the word at the cursor: only the definition
//! of the options knows where PROGRAM begins, after which the completions of that program apply.

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

use clap::{Arg, Args, Command, ValueEnum};
use signal_hook::low_level::signal_name;

use super::{Definition, attach, topics, topics::visible};
use crate::{
    bench,
    run::step_names,
    usage::{long_option, short_option},
};

/// Print a script that completes the words of forkless in a shell
///
/// bash: write it to ~/.local/share/bash-completion/completions/forkless. zsh: to _forkless in a directory of $fpath.
/// fish: to ~/.config/fish/completions/forkless.fish.
#[derive(Args, Debug)]
pub(crate) struct CompletionOptions {
    /// Shell whose script to print
    #[arg(value_name = "SHELL", required_unless_present = "answer")]
    shell: Option<Shell>,

    /// Print the completions of the last of WORDS; used by the scripts
    #[arg(long, hide = true)]
    answer: bool,

    #[arg(last = true, hide = true, value_name = "WORDS")]
    words: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    fn script(self) -> &'static str {
        match self {
            Self::Bash => include_str!("completions/forkless.bash"),
            Self::Zsh => include_str!("completions/forkless.zsh"),
            Self::Fish => include_str!("completions/forkless.fish"),
        }
    }
}

pub(crate) fn complete(definition: Definition, options: &CompletionOptions) -> ExitCode {
    let text = match options.shell {
        Some(shell) => shell.script().to_owned(),
        None => {
            if let [name, rest @ ..] = options.words.as_slice()
                && name == "bench"
                && !rest.is_empty()
            {
                let asked = ["--complete".into()].into_iter().chain(rest.iter().cloned());
                // Without forkless-bench there is nothing to complete.
                let text =
                    bench::ask(asked).unwrap_or_else(|_| Completions::of(CompletedBy::Nothing).text().into_bytes());
                return written(&text);
            }
            let words: Vec<String> = options.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            let mut root = attach(definition);
            root.build();
            complete_last(&root, &words).text()
        }
    };
    written(text.as_bytes())
}

fn written(text: &[u8]) -> ExitCode {
    match io::stdout().write_all(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forkless: completions: {error}");
            ExitCode::from(2)
        }
    }
}

/// What the shell adds to the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CompletedBy {
    Nothing,
    Files,
    Directories,
    Commands,
    Users,
    Groups,
    /// The completions that the program at this word has for the cursor.
    Command(usize),
}

/// The completions of a word.
#[derive(Debug, PartialEq, Eq)]
struct Completions {
    source: CompletedBy,
    /// The part of the word before what `source` completes.
    prefix: String,
    /// Whole words, each with its help.
    values: Vec<(String, String)>,
}

impl Completions {
    fn of(source: CompletedBy) -> Self {
        Self { source, prefix: String::new(), values: Vec::new() }
    }

    /// The first line says what the shell adds, each other line is a value.
    fn text(&self) -> String {
        let first = match self.source {
            CompletedBy::Nothing => "nothing ".to_owned(),
            CompletedBy::Files => format!("files {}", self.prefix),
            CompletedBy::Directories => format!("directories {}", self.prefix),
            CompletedBy::Commands => format!("commands {}", self.prefix),
            CompletedBy::Users => format!("users {}", self.prefix),
            CompletedBy::Groups => format!("groups {}", self.prefix),
            CompletedBy::Command(place) => format!("command {place}"),
        };
        let line = |(value, help): &(String, String)| format!("{value}\t{}\n", help.lines().next().unwrap_or_default());
        first + "\n" + &self.values.iter().map(line).collect::<String>()
    }
}

/// Completes the last of the words that follow `forkless`.
fn complete_last(root: &Command, words: &[String]) -> Completions {
    let Some((word, before)) = words.split_last() else { return Completions::of(CompletedBy::Nothing) };
    let (mut command, mut waiting) = (root, Waiting::Positional);
    for (number, word) in before.iter().enumerate() {
        waiting = match waiting {
            Waiting::Value(arg, place) if place + 1 < arg.get_num_args().unwrap_or_default().min_values() => {
                Waiting::Value(arg, place + 1)
            }
            Waiting::Value(..) => Waiting::Positional,
            Waiting::Maybe(_) if !word.starts_with('-') => Waiting::Positional,
            Waiting::Operand => return operand(command, number),
            _ if word == "--" => Waiting::Operand,
            _ if word.starts_with('-') && word.len() > 1 => after_option(command, word),
            _ => match command.find_subcommand(word) {
                Some(subcommand) => {
                    command = subcommand;
                    Waiting::Positional
                }
                None if is_assignment(command, word) => Waiting::Positional,
                None => return operand(command, number),
            },
        };
    }
    let mut answer = at_cursor(command, waiting, word);
    if command.get_name() == "man" && matches!(waiting, Waiting::Positional) && !word.starts_with('-') {
        answer.values.extend(subcommands(root, word));
    }
    answer
}

/// The subcommands that begin with the word.
fn subcommands(command: &Command, word: &str) -> Vec<(String, String)> {
    let found = command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name().starts_with(word));
    let about = |one: &Command| one.get_about().map(ToString::to_string).unwrap_or_default();
    found.map(|one| (one.get_name().to_owned(), about(one))).collect()
}

/// What the next word may be.
#[derive(Clone, Copy)]
enum Waiting<'a> {
    /// The value of an option; the place counts its values.
    Value(&'a Arg, usize),
    /// An optional value, an option or a positional argument.
    Maybe(&'a Arg),
    /// An option or a positional argument.
    Positional,
    /// A positional argument, after `--`.
    Operand,
}

/// After the positional argument at word `number` (counted without `forkless`): all after PROGRAM belongs to it.
fn operand(command: &Command, number: usize) -> Completions {
    let takes_program = command.get_positionals().any(|arg| arg.is_trailing_var_arg_set());
    Completions::of(if takes_program { CompletedBy::Command(number + 1) } else { CompletedBy::Nothing })
}

/// A variable before PROGRAM.
fn is_assignment(command: &Command, word: &str) -> bool {
    command.get_name() == "run" && word.contains('=')
}

/// What follows an option.
fn after_option<'a>(command: &'a Command, word: &str) -> Waiting<'a> {
    let arg = match word.strip_prefix("--") {
        Some(long) if long.contains('=') => None,
        Some(long) => long_option(command, long),
        // Of a group of letters, the last may have its value in the next word.
        None => short_with_value(command, word).filter(|(_, value)| value.is_empty()).map(|(arg, _)| arg),
    };
    let range = |arg: &Arg| arg.get_num_args().unwrap_or_default();
    match arg {
        Some(arg) if range(arg).min_values() > 0 && !arg.is_require_equals_set() => Waiting::Value(arg, 0),
        Some(arg) if range(arg).takes_values() && !arg.is_require_equals_set() => Waiting::Maybe(arg),
        _ => Waiting::Positional,
    }
}

/// The first letter that takes a value, and what follows it.
fn short_with_value<'a, 'w>(command: &'a Command, word: &'w str) -> Option<(&'a Arg, &'w str)> {
    word.char_indices().skip(1).find_map(|(place, letter)| {
        let arg = short_option(command, letter)?;
        let takes = arg.get_num_args().is_some_and(|range| range.takes_values());
        takes.then(|| (arg, &word[place + letter.len_utf8()..]))
    })
}

fn at_cursor(command: &Command, waiting: Waiting<'_>, word: &str) -> Completions {
    match waiting {
        Waiting::Value(arg, place) => return values(command, arg, place, "", word),
        Waiting::Operand => return positional(command, word),
        _ => {}
    }
    if let Some((name, value)) = word.strip_prefix("--").and_then(|rest| rest.split_once('=')) {
        let arg = long_option(command, name);
        return arg.map_or_else(
            || Completions::of(CompletedBy::Nothing),
            |arg| values(command, arg, 0, &format!("--{name}="), value),
        );
    }
    if word.starts_with('-') {
        return match short_with_value(command, word).filter(|_| !word.starts_with("--")) {
            Some((arg, value)) => values(command, arg, 0, &word[..word.len() - value.len()], value),
            None => Completions { values: options(command, word), ..Completions::of(CompletedBy::Nothing) },
        };
    }
    match waiting {
        Waiting::Maybe(arg) => values(command, arg, 0, "", word),
        _ => positional(command, word),
    }
}

/// The options that begin with the word. Letters are shown only where nothing else follows the dash.
fn options(command: &Command, word: &str) -> Vec<(String, String)> {
    let mut options = Vec::new();
    for arg in visible(command) {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        // The value must follow in the same word.
        let equals = if arg.is_require_equals_set() && arg.get_num_args().unwrap_or_default().min_values() > 0 {
            "="
        } else {
            ""
        };
        let longs =
            arg.get_long_and_visible_aliases().unwrap_or_default().into_iter().map(|long| format!("--{long}{equals}"));
        let shorts = arg.get_short().into_iter().filter(|_| word == "-").map(|short| format!("-{short}"));
        options.extend(shorts.chain(longs).filter(|name| name.starts_with(word)).map(|name| (name, help.clone())));
    }
    options
}

fn positional(command: &Command, word: &str) -> Completions {
    let mut answer = match command.get_positionals().find(|arg| !arg.is_hide_set()) {
        Some(arg) if arg.is_trailing_var_arg_set() => Completions::of(CompletedBy::Commands),
        Some(arg) => values(command, arg, 0, "", word),
        None => Completions::of(CompletedBy::Nothing),
    };
    answer.values.extend(subcommands(command, word));
    answer
}

/// The values of an argument; `place` is the number of the value for options with several.
fn values(command: &Command, arg: &Arg, place: usize, before: &str, word: &str) -> Completions {
    let names = arg.get_value_names().unwrap_or_default();
    let name = names.get(place).or(names.last()).map_or("", |name| name.as_str());
    let mut known: Vec<(String, String)> = Vec::new();
    for value in arg.get_possible_values().iter().filter(|value| !value.is_hide_set()) {
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        known.push((value.get_name().to_owned(), help));
    }
    known.extend(by_meaning(arg.get_id().as_str(), name).into_iter().map(|name| (name, String::new())));
    if name == "TOPIC" {
        known.extend(topics::of(command).into_iter().map(|topic| (topic.name, topic.about)));
    }
    // In a list, the last part is completed.
    let list = arg.get_value_delimiter().and_then(|delimiter| word.rfind(delimiter)).map_or(0, |place| place + 1);
    let prefix = format!("{before}{}", &word[..list]);
    known.retain(|(value, _)| value.starts_with(&word[list..]));
    let values = known.into_iter().map(|(value, help)| (format!("{prefix}{value}"), help)).collect();
    let (source, inner) = completed_by(name, &word[list..]);
    Completions { source, prefix: prefix + inner, values }
}

/// What the shell completes for a value of this name, and the part of the word before that.
fn completed_by<'w>(name: &str, word: &'w str) -> (CompletedBy, &'w str) {
    match name {
        "DIR" | "PARENT" | "WORKDIR" => (CompletedBy::Directories, ""),
        "FILE" | "SRC" | "DST" | "RWSRC" | "FD|FILE" | "PATH" => (CompletedBy::Files, ""),
        "SOURCE" => (CompletedBy::Files, word.strip_prefix("append:").map_or("", |_| "append:")),
        // N=r:FILE.
        "N=SOURCE" => match word.rfind(':') {
            Some(place) => (CompletedBy::Files, &word[..=place]),
            None => (CompletedBy::Nothing, ""),
        },
        "KIND=PATH" => match word.find('=') {
            Some(place) => (CompletedBy::Files, &word[..=place]),
            None => (CompletedBy::Nothing, ""),
        },
        "RULE" => match word.rfind(':') {
            Some(place) => (CompletedBy::Files, &word[..=place]),
            None => (CompletedBy::Nothing, ""),
        },
        "PROGRAM" => (CompletedBy::Commands, ""),
        "USER[:GROUP]" => match word.find(':') {
            Some(place) => (CompletedBy::Groups, &word[..=place]),
            None => (CompletedBy::Users, ""),
        },
        "NAME|GID" | "NAME|GID,..." => (CompletedBy::Groups, ""),
        _ => (CompletedBy::Nothing, ""),
    }
}

/// The values that the definition does not list, by option or by the name of the value.
fn by_meaning(option: &str, name: &str) -> Vec<String> {
    let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    match (option, name) {
        ("default_signal" | "ignore_signal" | "inherit_signal" | "block_signal", _) => {
            signals().chain(["all".to_owned()]).collect()
        }
        (_, "SIG") => signals().collect(),
        (_, "STEP") => step_names(),
        (_, "CAPS") => list(&["+all", "-all", "+", "-"]),
        ("stdin", _) => list(&["inherit", "null", "fd:"]),
        ("stdout", _) => list(&["inherit", "null", "stderr", "append:", "fd:"]),
        ("stderr", _) => list(&["inherit", "null", "stdout", "append:", "fd:"]),
        ("scheduler", _) => list(&["other", "batch", "idle", "fifo", "rr"]),
        ("ionice", _) => list(&["idle", "best-effort", "realtime"]),
        (_, "KIND=PATH") => list(&["user=", "mount=", "net=", "uts=", "ipc=", "cgroup=", "pid="]),
        (_, "RULE") => list(&["path-beneath:"]),
        _ => Vec::new(),
    }
}

fn signals() -> impl Iterator<Item = String> {
    (1..=31).filter_map(signal_name).map(|name| name.trim_start_matches("SIG").to_owned())
}
