//! The pages of `-h` and `--help`.

use std::fmt::Write;

use clap::{Arg, ArgAction, Command, Error};

use super::topics::{self, Topic};

/// The widest line.
pub(super) const WIDTH: usize = 80;

/// The page of `-h`.
pub(super) fn summary(command: Command) -> Error {
    if !topics::has_topics(&command) {
        return show(command, ArgAction::HelpShort);
    }
    let common = topics::common(&command);
    let place = |arg: &Arg| common.iter().position(|id| arg.get_id() == id);
    let header = command.get_styles().get_header();
    let mut template =
        format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{header}Common options:{header:#}\n{{options}}\n");
    let _ = write!(template, "\n{header}Topics:{header:#}\n");
    for Topic { name, about, .. } in topics::of(&command) {
        let _ = writeln!(template, "  {name:<11} {about}");
    }
    let name = command.get_bin_name().unwrap_or_default().to_owned();
    let man = name.replace(' ', "-");
    let _ = write!(template, "\n{name} --help TOPIC prints a topic, and --help all options.\nSee also: man {man}");
    let command = command.mut_args(|arg| match place(&arg) {
        Some(place) => {
            let better = topics::better_known(common[place]);
            let arg = if let Some(name) = better { arg.long(name) } else { arg };
            brief(arg).help_heading(None).display_order(place)
        }
        None => arg.hide(true),
    });
    show(command.help_template(template), ArgAction::HelpShort)
}

/// On few lines: the first clause, without aliases and values.
fn brief(arg: Arg) -> Arg {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let ends = [" (", " [", "; "].iter().filter_map(|mark| help.find(mark));
    let end = ends.min().unwrap_or(help.len());
    let takes_values = arg.get_action().takes_values();
    let arg = arg.help(help[..end].to_owned()).visible_alias(None);
    if takes_values { arg.hide_possible_values(true) } else { arg }
}

/// The page of `--help`.
pub(super) fn all(command: Command) -> Error {
    let topics = topics::of(&command);
    if topics.is_empty() {
        return show(command, ArgAction::HelpLong);
    }
    let name = command.get_bin_name().unwrap_or_default().to_owned();
    let names = topics.iter().map(|topic| topic.name.as_str()).collect::<Vec<_>>().join(", ");
    let words = wrapped(&format!("Topics: {names} ({name} --help TOPIC prints one of them)"));
    let template =
        format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{words}\n\n{{all-args}}{{after-help}}");
    show(command.help_template(template), ArgAction::HelpLong)
}

/// The page of `--help TOPIC`, or of one option where there is no such topic; none if there is neither.
pub(super) fn topic(command: Command, word: &str) -> Option<Error> {
    let topic = topics::find(&command, word);
    let named = |arg: &Arg| match &topic {
        Some(topic) => arg.get_help_heading() == Some(&topic.heading),
        None => arg.get_long_and_visible_aliases().is_some_and(|names| names.contains(&word)),
    };
    topics::visible(&command).find(|arg| named(arg))?;
    let command = command.clone().mut_args(|arg| if named(&arg) { arg } else { arg.hide(true) });
    Some(show(command.help_template("{usage-heading} {usage}\n\n{all-args}"), ArgAction::HelpLong))
}

/// The page as clap shows it, in colour on a terminal. Only clap can make such an error, from a flag of its own.
fn show(command: Command, action: ArgAction) -> Error {
    let flag = Arg::new("shown-page").long("shown-page").action(action).hide(true);
    match command.arg(flag).try_get_matches_from(["forkless", "--shown-page"]) {
        Err(page) => page,
        Ok(_) => unreachable!("the flag prints the page"),
    }
}

/// The text in lines of at most [`WIDTH`].
fn wrapped(text: &str) -> String {
    let (mut lines, mut width) = (String::new(), 0);
    for word in text.split(' ') {
        if width > 0 && width + 1 + word.len() > WIDTH {
            lines.push('\n');
            width = 0;
        } else if width > 0 {
            lines.push(' ');
            width += 1;
        }
        lines += word;
        width += word.len();
    }
    lines
}
