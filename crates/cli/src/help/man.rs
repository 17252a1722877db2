//! Man pages, made from the definition of the options and a text per page (`man/`). Each page begins with its examples: most
//! readers look for a line that they can change.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, SystemTime},
};

use clap::{Arg, Args, Command};
use roff::Roff;

use super::{
    Definition, attach,
    markdown::{self, Font, Words},
    topics::visible,
};
use crate::bench;

/// Print a man page, or write all of them to a directory
///
/// To read a page without installing it: forkless man run | man -l -
#[derive(Args, Debug)]
pub(crate) struct ManOptions {
    /// Write all man pages to DIR, as a package does (share/man/man1)
    #[arg(long, value_name = "DIR", conflicts_with = "page")]
    dir: Option<PathBuf>,

    /// Subcommand whose page to print [default: the page forkless(1)]
    #[arg(value_name = "PAGE")]
    page: Option<String>,
}

/// The hand-written text of each page, by subcommand.
const TEXTS: &[(&str, &str)] = &[
    ("forkless", include_str!("man/forkless.md")),
    ("run", include_str!("man/run.md")),
    ("parallel", include_str!("man/parallel.md")),
    ("gearman-worker", include_str!("man/gearman-worker.md")),
    ("doctor", include_str!("man/doctor.md")),
    ("xargs", include_str!("man/xargs.md")),
    ("completions", include_str!("man/completions.md")),
    ("man", include_str!("man/man.md")),
];

/// The subcommand that is a program of its own, and prints its own page.
const BENCH: &str = "bench";

/// The sections of a text that are put before the options.
const FIRST: [&str; 2] = ["## EXAMPLES", "## DESCRIPTION"];

/// The document that has the table of signals.
const RUN: &str = include_str!("../../run.md");

pub(crate) fn man(definition: Definition, options: &ManOptions) -> ExitCode {
    let done = match &options.dir {
        Some(directory) => write_all(definition, directory),
        None => print(definition, options.page.as_deref().unwrap_or("forkless")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forkless: man: {error}");
            ExitCode::from(2)
        }
    }
}

fn print(definition: Definition, name: &str) -> io::Result<()> {
    let pages = pages(definition);
    let names = || pages.iter().map(|page| page.short.as_str()).collect::<Vec<_>>().join(", ");
    // Also by the name of the man page: forkless-bench.
    if name.strip_prefix("forkless-").unwrap_or(name) == BENCH {
        return io::stdout().write_all(&bench::ask(["--man"])?);
    }
    let found = pages.iter().find(|page| page.short == name || page.name == name);
    let page = found.ok_or_else(|| io::Error::other(format!("no page {name:?}; the pages are {}", names())))?;
    io::stdout().write_all(page.text.as_bytes())
}

fn write_all(definition: Definition, directory: &Path) -> io::Result<()> {
    let failed = |path: &Path, error| io::Error::other(format!("cannot write {path:?}: {error}"));
    fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    for page in pages(definition) {
        let path = directory.join(format!("{}.1", page.name));
        fs::write(&path, page.text).map_err(|error| failed(&path, error))?;
    }
    // Only a package with forkless-bench has its page.
    if let Ok(page) = bench::ask(["--man"]) {
        let path = directory.join(format!("forkless-{BENCH}.1"));
        fs::write(&path, page).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// A man page.
struct ManPage {
    /// The subcommand, or `forkless`.
    short: String,
    /// `forkless-run`.
    name: String,
    text: String,
}

/// The pages of the command and of its visible subcommands.
fn pages(definition: Definition) -> Vec<ManPage> {
    let mut root = attach(definition).disable_help_subcommand(true);
    root.build();
    let version = root.get_version().unwrap_or_default().to_owned();
    let subcommands: Vec<&Command> =
        root.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != BENCH).collect();
    let new = |command: &Command, name: String| {
        let others: Vec<String> = subcommands.iter().map(|other| format!("forkless-{}", other.get_name())).collect();
        ManPage { short: command.get_name().to_owned(), text: page(command, &name, &version, &others), name }
    };
    let named = subcommands.iter().map(|command| new(command, format!("forkless-{}", command.get_name())));
    [new(&root, "forkless".to_owned())].into_iter().chain(named).collect()
}

/// The page of one command. `others` are the names of all pages of subcommands.
fn page(command: &Command, name: &str, version: &str, others: &[String]) -> String {
    let mut page = Roff::new();
    let source = format!("forkless {version}");
    page.control("TH", [name.to_uppercase().as_str(), "1", &date(), &source, "User Commands"]);
    page.control("SH", ["NAME"]);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let about = about.trim_end_matches('.');
    let (first, rest) = about.split_at(about.chars().next().map_or(0, char::len_utf8));
    markdown::plain(&mut page, &format!("{name} - {}{rest}", first.to_lowercase()));
    synopsis(&mut page, command);
    let text = TEXTS.iter().find(|(short, _)| *short == command.get_name()).map_or("", |(_, text)| text.trim_end());
    let [examples, description] = FIRST.map(|heading| section(text, heading));
    markdown::document(&mut page, &format!("{}\n{examples}", FIRST[0]));
    page.control("SH", ["DESCRIPTION"]);
    let long = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    // The first paragraph is the one under NAME.
    let (first, rest) = long.split_once("\n\n").unwrap_or((&long, ""));
    let about = if rest.is_empty() { format!("{}.", first.trim_end_matches('.')) } else { rest.to_owned() };
    markdown::document(&mut page, if description.is_empty() { &about } else { &description });
    if name == "forkless" {
        subcommands(&mut page, command, name);
    }
    page.control("SH", ["OPTIONS"]);
    arguments(&mut page, command);
    if name != "forkless" {
        subcommands(&mut page, command, name);
    }
    if name == "forkless-run" {
        let signals = section(RUN, "## Signals");
        if !signals.is_empty() {
            markdown::document(&mut page, &format!("## Signals\n{signals}"));
        }
    }
    exit_status(&mut page, command);
    let text = FIRST.iter().fold(text.to_owned(), |text, heading| without(&text, heading));
    let all = ["forkless".to_owned()];
    let related: Vec<String> =
        all.iter().chain(others).filter(|other| *other != name).map(|other| format!("`{other}`(1)")).collect();
    // A text that has this section ends with it.
    let see_also = if text.contains("## SEE ALSO") { "," } else { "\n\n## SEE ALSO\n\n" };
    markdown::document(&mut page, &format!("{text}{see_also} {}\n", related.join(", ")));
    page.render()
}

fn synopsis(page: &mut Roff, command: &Command) {
    page.control("SH", ["SYNOPSIS"]);
    let usage = command.clone().render_usage().to_string();
    for (number, line) in usage.trim_start_matches("Usage: ").lines().enumerate() {
        if number > 0 {
            page.control("br", []);
        }
        let name = command.get_bin_name().unwrap_or("forkless");
        let rest = line.trim().strip_prefix(name).unwrap_or(line);
        page.text([roff::bold(name), roff::roman(rest)]);
    }
}

/// The options under their headings, those without a heading first.
fn arguments(page: &mut Roff, command: &Command) {
    let mut headings = vec![None];
    for heading in visible(command).map(Arg::get_help_heading) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for heading in headings {
        if let Some(heading) = heading {
            let (title, explained) = heading.split_once(" (").unwrap_or((heading, ""));
            page.control("SS", [title]);
            markdown::plain(page, explained.trim_end_matches(')'));
        }
        for arg in visible(command).filter(|arg| arg.get_help_heading() == heading) {
            argument(page, arg);
        }
    }
}

fn argument(page: &mut Roff, arg: &Arg) {
    markdown::tag(page, &names(arg));
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    markdown::plain(page, &sentence(&help));
    let takes_values = arg.get_num_args().is_some_and(|range| range.takes_values());
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if takes_values && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        markdown::plain(page, &format!("The default is {}.", defaults.join(", ")));
    }
    if !takes_values || arg.is_hide_possible_values_set() {
        return;
    }
    let values = arg.get_possible_values();
    let values: Vec<_> = values.iter().filter(|value| !value.is_hide_set()).collect();
    if values.is_empty() {
        return;
    }
    page.control("RS", []);
    for value in values {
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        markdown::tag(page, &vec![(Font::Bold, value.get_name().to_owned())]);
        markdown::plain(page, &sentence(&help));
    }
    page.control("RE", []);
}

/// With the full stop that help leaves out.
fn sentence(text: &str) -> String {
    let ends = text.is_empty() || text.ends_with(['.', ':']);
    if ends { text.to_owned() } else { format!("{text}.") }
}

/// `-C, --chdir, --cwd DIR`.
fn names(arg: &Arg) -> Words {
    let mut words = Words::new();
    let shorts = arg.get_short_and_visible_aliases().unwrap_or_default().into_iter().map(|name| format!("-{name}"));
    let longs = arg.get_long_and_visible_aliases().unwrap_or_default().into_iter().map(|name| format!("--{name}"));
    for (number, name) in shorts.chain(longs).enumerate() {
        if number > 0 {
            words.push((Font::Roman, ", ".to_owned()));
        }
        words.push((Font::Bold, name));
    }
    let range = arg.get_num_args().unwrap_or_default();
    if !range.takes_values() {
        return words;
    }
    let values =
        arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let (open, close) = match (arg.is_positional(), range.min_values() > 0, arg.is_require_equals_set()) {
        (true, ..) => ("", if range.max_values() > 1 { " ..." } else { "" }),
        (false, true, false) => (" ", ""),
        (false, true, true) => ("=", ""),
        (false, false, true) => ("[=", "]"),
        (false, false, false) => (" [", "]"),
    };
    words.extend([(Font::Roman, open.to_owned()), (Font::Italic, values), (Font::Roman, close.to_owned())]);
    words.retain(|(_, word)| !word.is_empty());
    words
}

/// The subcommands: of `forkless` those that have pages, else each with its options.
fn subcommands(page: &mut Roff, command: &Command, name: &str) {
    let subcommands: Vec<&Command> = command.get_subcommands().filter(|one| !one.is_hide_set()).collect();
    if subcommands.is_empty() {
        return;
    }
    page.control("SH", ["COMMANDS"]);
    for one in subcommands {
        let about = one.get_about().map(ToString::to_string).unwrap_or_default();
        if name == "forkless" {
            markdown::tag(
                page,
                &vec![(Font::Bold, format!("forkless-{}", one.get_name())), (Font::Roman, "(1)".to_owned())],
            );
            markdown::plain(page, &sentence(&about));
            continue;
        }
        page.control("SS", [format!("{} {}", command.get_bin_name().unwrap_or(name), one.get_name()).as_str()]);
        markdown::plain(page, &sentence(&about));
        arguments(page, one);
    }
}

/// The exit codes that end the help: "Exit code: …", then lines of a code and its meaning.
fn exit_status(page: &mut Roff, command: &Command) {
    let Some(text) = command.get_after_help().map(ToString::to_string) else { return };
    let Some(text) = text.strip_prefix("Exit code:").map(str::to_owned) else { return };
    page.control("SH", ["EXIT STATUS"]);
    let mut meaning = String::new();
    for line in text.lines() {
        let words = line.trim();
        let is_code = line.starts_with("  ") && !line.starts_with("   ");
        match words.split_once("  ").filter(|_| is_code) {
            Some((code, first)) => {
                flush(page, &mut meaning);
                markdown::tag(page, &vec![(Font::Bold, code.to_owned())]);
                meaning = first.trim().to_owned();
            }
            None => meaning = format!("{meaning} {words}").trim().to_owned(),
        }
    }
    flush(page, &mut meaning);
}

fn flush(page: &mut Roff, text: &mut String) {
    if !text.is_empty() {
        markdown::plain(page, text);
        text.clear();
    }
}

/// The text of the section whose title begins with `heading`; empty if there is none.
fn section(document: &str, heading: &str) -> String {
    let lines = document.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
    lines.take_while(|line| !line.starts_with("## ")).flat_map(|line| [line, "\n"]).collect()
}

/// The document without that section.
fn without(document: &str, heading: &str) -> String {
    let mut is_inside = false;
    let outside = |line: &&str| {
        if line.starts_with("## ") {
            is_inside = line.starts_with(heading);
        }
        !is_inside
    };
    let text: String = document.lines().filter(outside).flat_map(|line| [line, "\n"]).collect();
    text.trim_end().to_owned()
}

/// Today, or the day of SOURCE_DATE_EPOCH, which makes builds reproducible.
fn date() -> String {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| seconds.parse().ok());
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    day(given.map_or_else(now, Duration::from_secs).as_secs() / 86_400)
}

/// A day since 1970 in the Gregorian calendar.
fn day(days: u64) -> String {
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let (mut year, mut left) = (1970, days);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_is_that_of_the_calendar() {
        for (days, date) in
            [(0, "1970-01-01"), (59, "1970-03-01"), (789, "1972-02-29"), (11_016, "2000-02-29"), (20_779, "2026-11-22")]
        {
            assert_eq!(day(days), date);
        }
    }

    #[test]
    fn section_ends_at_the_next_heading() {
        let document = "# A\n## Signals and jobs\n\none\n### two\n## Other\nthree\n";
        assert_eq!(section(document, "## Signals"), "\none\n### two\n");
        assert_eq!(section(document, "## None"), "");
        assert_eq!(without(document, "## Signals"), "# A\n## Other\nthree");
        assert_eq!(without(document, "## None"), document.trim_end());
    }
}
