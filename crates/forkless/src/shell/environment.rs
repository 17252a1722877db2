//! The environment that a shell would pass to the program: what it drops, what it adds, and in which order.
//!
//! Shells keep variables in hash tables, and pass them on in the order of those tables. Nobody should rely on that
//! order, but `env` shows it, and a direct run promises the same result. The rules were found by observing programs
//! that dash 0.5.12 and bash 5.2 started; the tests repeat the observation.

use super::Reason;
use super::classify::{Simple, is_name};
use super::known::Kind;
use super::pattern::{Pattern, Patterns};
use crate::command;
use crate::compile::environment_of;
use crate::environment::unchanged;
use crate::environment::{Block, Held, Kept};
use crate::once::Once;
use forkless_core::planted;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

/// Variables that are in dash's table before those of the environment. There are others, but an environment that sets
/// them goes to the shell.
const DASH_OWN: [&[u8]; 6] = [b"MAIL", b"MAILPATH", b"PATH", b"PS1", b"PS2", b"PS4"];

/// Variables that dash sets itself, or that change its behaviour when the environment has them.
const DASH_SETS: [&[u8]; 4] = [b"IFS", b"LINENO", b"OPTIND", b"PPID"];

/// The same for bash: these names, and those that begin as in [`BASH_STARTS`].
const BASH_SETS: [&[u8]; 28] = [
    b"COLUMNS",
    b"DIRSTACK",
    b"ENV",
    b"EUID",
    b"FUNCNAME",
    b"FUNCNEST",
    b"GLOBIGNORE",
    b"GROUPS",
    b"IFS",
    b"IGNOREEOF",
    b"LINENO",
    b"LINES",
    b"OPTARG",
    b"OPTERR",
    b"OPTIND",
    b"PIPESTATUS",
    b"POSIXLY_CORRECT",
    b"PPID",
    b"PS0",
    b"PS3",
    b"PS4",
    b"RANDOM",
    b"SECONDS",
    b"SHELLOPTS",
    b"SRANDOM",
    b"TIMEFORMAT",
    b"UID",
    b"histchars",
];

const BASH_STARTS: [&[u8]; 4] = [b"BASH", b"COMP_", b"EPOCH", b"HIST"];

/// A variable as the program gets it: name and value.
type Variable<'a> = (&'a [u8], &'a [u8]);

/// Where a program is run.
pub(super) struct Place<'a> {
    /// The shell's value of PWD.
    pub(super) directory: Vec<u8>,
    /// The program's file.
    pub(super) program: &'a [u8],
}

/// The environment that the shell would get.
pub(super) enum Given<'a> {
    /// The process's environment, which the process has not changed.
    Unchanged(&'static Unchanged),
    /// The same with values that the command sets: not those of PATH and PWD.
    Set(&'static Unchanged, &'a command::Environment),
    /// That of this command, or of this moment.
    Other(Held),
}

/// What is computed from the unchanged environment, once for the life of the process.
pub(super) struct Unchanged {
    block: &'static Kept,
    path: Option<&'static [u8]>,
    pwd: Option<&'static [u8]>,
    /// The environment that dash would pass on, if PWD is right.
    dash: Result<Kept, Reason>,
}

impl Unchanged {
    fn of(block: &'static Kept) -> Self {
        let [path, pwd] = [&b"PATH"[..], b"PWD"].map(|name| last(block, name));
        let given: Vec<Variable<'_>> = block.variables().collect();
        let dash = dash(&given, Vec::new(), pwd.unwrap_or_default()).map(Kept::new);
        Self { block, path, pwd, dash }
    }
}

impl<'a> Given<'a> {
    pub(super) fn of(command: &'a command::Command) -> Self {
        static UNCHANGED: Once<Unchanged> = Once::new();
        let known = |block| UNCHANGED.get_or(|| Unchanged::of(block));
        if let Some(ready) = &command.ready {
            return match (&ready.env, unchanged::given()) {
                (Held::Process(block), Some(given)) if ptr::eq(*block, given) => Self::Unchanged(known(given)),
                _ => Self::Other(ready.env.clone()),
            };
        }
        let command = &command.env;
        let unchanged = unchanged::get().filter(|_| !command.clear).map(known);
        let sets = |(name, value): (&OsString, &Option<OsString>)| value.is_some() && name != "PATH" && name != "PWD";
        match unchanged {
            Some(known) if command.changes.is_empty() => Self::Unchanged(known),
            Some(known) if command.changes.iter().all(sets) => Self::Set(known, command),
            _ => Self::Other(environment_of(command)),
        }
    }

    pub(super) fn path(&self) -> Option<&[u8]> {
        match self {
            Self::Unchanged(known) | Self::Set(known, _) => known.path,
            Self::Other(block) => last(block, b"PATH"),
        }
    }

    pub(super) fn pwd(&self) -> Option<&[u8]> {
        match self {
            Self::Unchanged(known) | Self::Set(known, _) => known.pwd,
            Self::Other(block) => last(block, b"PWD"),
        }
    }

    /// The environment that the shell would pass on. `patterns`: of other lines.
    pub(super) fn by_shell(
        &self,
        kind: Kind,
        form: &Simple,
        place: &Place<'_>,
        patterns: Option<&Patterns>,
    ) -> Result<Held, Reason> {
        let is_plain = kind == Kind::Dash && form.assignments.is_empty() && self.pwd() == Some(&place.directory);
        let made;
        let block = match self {
            Self::Unchanged(known) if is_plain => {
                return known.dash.as_ref().map(Held::Process).map_err(Reason::clone);
            }
            Self::Unchanged(known) => known.block,
            Self::Set(_, command) => {
                if let Some(patterns) = patterns.filter(|_| is_plain) {
                    return by_pattern(patterns, command, &place.directory);
                }
                made = environment_of(command);
                &*made
            }
            Self::Other(block) => block,
        };
        let assigned = form.assignments.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect();
        let given: Vec<Variable<'_>> = block.variables().collect();
        match kind {
            Kind::Dash => dash(&given, assigned, &place.directory),
            Kind::Bash => bash(&given, assigned, place),
            Kind::Other => Err(Reason::Shell),
        }
        .map(Held::of)
    }
}

/// The environment that dash passes on for this command, which only sets variables. The process's environment is unchanged, and
/// `directory` is its value of PWD.
fn by_pattern(patterns: &Patterns, command: &command::Environment, directory: &[u8]) -> Result<Held, Reason> {
    let pattern = match patterns.find(command) {
        Some(pattern) => pattern,
        None => {
            let block = environment_of(command);
            let given: Vec<Variable<'_>> = block.variables().collect();
            let pattern = Arc::new(Pattern::of(&dash(&given, Vec::new(), directory)?, command));
            patterns.keep(&pattern);
            pattern
        }
    };
    Ok(Held::of(pattern.with(command)))
}

/// The last value of a variable, which is the one that shells use.
fn last<'a>(given: &'a Block, name: &[u8]) -> Option<&'a [u8]> {
    given.variables().filter(|(known, _)| *known == name).last().map(|(_, value)| value)
}

/// The size of the variables as text.
fn text_size(given: &[Variable<'_>]) -> usize {
    given.iter().map(|(name, value)| name.len() + value.len() + 2).sum()
}

fn heeded(name: &[u8]) -> Reason {
    Reason::Environment(String::from_utf8_lossy(name).into_owned())
}

/// Invalid names are dropped. Of several values the last one counts, at the place of the first.
fn dash(given: &[Variable<'_>], assigned: Vec<Variable<'_>>, directory: &[u8]) -> Result<Block, Reason> {
    const BUCKETS: usize = 39;
    let bucket = |name: &[u8]| {
        let sum: usize = name.iter().map(|&byte| usize::from(byte)).sum();
        (usize::from(name[0]) * 16 + sum) % BUCKETS
    };
    /// Names in the order of their arrival; a name without a value is known and not set.
    type Chain<'a> = Vec<(&'a [u8], Option<&'a [u8]>)>;
    let mut table: [Chain<'_>; BUCKETS] = [const { Vec::new() }; BUCKETS];
    for name in DASH_OWN {
        table[bucket(name)].push((name, None));
    }
    let pwd = [(&b"PWD"[..], directory)];
    let valid = given.iter().filter(|(name, _)| is_name(name) || planted!("shell-odd-names-kept"));
    for &(name, value) in valid.chain(&pwd).chain(&assigned) {
        if DASH_SETS.contains(&name) && !planted!("shell-environment-heeded") {
            return Err(heeded(name));
        }
        let chain = &mut table[bucket(name)];
        match chain.iter_mut().find(|(known, _)| *known == name) {
            Some(variable) => variable.1 = Some(value),
            None => chain.push((name, Some(value))),
        }
    }
    let set = table.iter().flatten().filter_map(|(name, value)| Some((*name, (*value)?)));
    Ok(Block::of(set, text_size(given)))
}

/// Variables for the program alone come first, then those of the shell. An invalid name is passed on before all of
/// them.
fn bash(given: &[Variable<'_>], assigned: Vec<Variable<'_>>, place: &Place<'_>) -> Result<Block, Reason> {
    /// With more variables the table grows, and the order changes.
    const MOST: usize = 1000;
    let mut known: Vec<Variable<'_>> = Vec::with_capacity(given.len() + 3);
    let mut set = |name, value| match known.iter_mut().find(|(known, _)| *known == name) {
        Some(variable) => variable.1 = value,
        None => known.push((name, value)),
    };
    let mut odd = Vec::new();
    for &(name, value) in given {
        match name {
            b"PS1" | b"PS2" => {}
            b"SHLVL" if !is_level(value) => return Err(heeded(name)),
            b"OLDPWD" if !Path::new(std::ffi::OsStr::from_bytes(value)).is_dir() => return Err(heeded(name)),
            // bash prints a warning for a locale that does not exist.
            b"LC_ALL" if !matches!(value, b"" | b"C" | b"POSIX") => return Err(heeded(name)),
            _ if BASH_SETS.contains(&name) || BASH_STARTS.iter().any(|start| name.starts_with(start)) => {
                return Err(heeded(name));
            }
            _ if !is_name(name) => odd.push((name, value)),
            _ => set(name, value),
        }
    }
    if !given.iter().any(|(name, _)| *name == b"SHLVL") {
        set(b"SHLVL", b"0");
    }
    set(b"PWD", &place.directory);
    let names_last = known.iter().any(|(name, _)| *name == b"_");
    if odd.len() > 1 || assigned.len() > 1 || known.len() > MOST {
        return Err(Reason::Order);
    }
    if let Some((name, _)) = assigned.iter().find(|(name, value)| {
        let is_locale = name.starts_with(b"LC_") || name.starts_with(b"LANG");
        is_locale && !matches!(*value, b"C" | b"POSIX")
    }) {
        return Err(heeded(name));
    }
    let mut order: Vec<(u32, std::cmp::Reverse<usize>, Variable<'_>)> =
        known.into_iter().enumerate().map(|(n, one)| (bash_bucket(one.0), std::cmp::Reverse(n), one)).collect();
    order.sort_unstable();
    let own = order.into_iter().map(|(.., one)| if one.0 == b"_" { (one.0, place.program) } else { one });
    let own = own.filter(|(name, _)| !assigned.iter().any(|(other, _)| other == name));
    let last = (!names_last).then_some((&b"_"[..], place.program));
    Ok(Block::of(odd.into_iter().chain(assigned.iter().copied()).chain(own).chain(last), text_size(given)))
}

/// Whether bash passes this level on unchanged: it adds one for itself, and subtracts it when it replaces itself by
/// the program.
fn is_level(value: &[u8]) -> bool {
    let digits = (1..=3).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    digits && (value == b"0" || value[0] != b'0') && value != b"999"
}

/// FNV-1, 32 bits, in 1024 buckets.
fn bash_bucket(name: &[u8]) -> u32 {
    name.iter().fold(2_166_136_261, |hash: u32, &byte| hash.wrapping_mul(16_777_619) ^ u32::from(byte)) % 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn setting(values: &[(&str, &str)]) -> command::Environment {
        let changes = values.iter().map(|(name, value)| (OsString::from(name), Some(OsString::from(value)))).collect();
        command::Environment { clear: false, changes }
    }

    fn parts(block: &Block) -> (Vec<u8>, Vec<usize>) {
        (block.text.clone(), block.starts.clone())
    }

    /// A caller that gives the whole environment, as Node does, mostly gives that of the process.
    #[test]
    fn an_environment_that_is_given_and_unchanged_is_known() {
        let block = unchanged::given().expect("the kernel's");
        let strings =
            || block.starts.iter().map(|&start| CStr::from_bytes_until_nul(&block.text[start..]).expect("NUL"));
        let mut command = command::Command::new("/bin/sh");
        command.exactly(vec!["/bin/sh".into()], vec!["sh".into()], strings());
        let given = Given::of(&command);
        assert!(matches!(given, Given::Unchanged(_)));
        assert_eq!(given.path(), last(block, b"PATH"));
        command.exactly(vec!["/bin/sh".into()], vec!["sh".into()], strings().chain([c"PATH=/elsewhere"]));
        let given = Given::of(&command);
        assert!(matches!(given, Given::Other(_)));
        assert_eq!(given.path(), Some(&b"/elsewhere"[..]));
    }

    /// What a pattern gives is what dash would pass on, whichever line it was made for.
    #[test]
    fn a_pattern_gives_what_is_computed_for_one_line() {
        let patterns = Patterns::default();
        let long = "x".repeat(5000);
        let lines: [&[(&str, &str)]; 7] = [
            &[("PARALLEL_SEQ", "1"), ("A", "x"), ("ZZ", "")],
            &[("PARALLEL_SEQ", "12345"), ("A", ""), ("ZZ", "a=b")],
            &[("PARALLEL_SEQ", ""), ("A", &long), ("ZZ", "last")],
            &[("PARALLEL_SEQ", "1"), ("B", "x"), ("ZZ", "other names")],
            &[("HOME", "a variable that exists"), ("PS1", "one of dash's own")],
            &[("HOME", "/"), ("PS1", "")],
            &[("odd name", "is dropped"), ("B", "2")],
        ];
        for line in lines {
            let command = setting(line);
            let all = environment_of(&command);
            let given: Vec<Variable<'_>> = all.variables().collect();
            let expected = dash(&given, Vec::new(), b"/tmp").expect("an environment");
            let found = by_pattern(&patterns, &command, b"/tmp").expect("an environment");
            assert_eq!(parts(&found), parts(&expected), "{line:?}");
            let again = by_pattern(&patterns, &command, b"/tmp").expect("an environment");
            assert_eq!(parts(&again), parts(&expected), "{line:?}");
        }
        assert!(by_pattern(&patterns, &setting(&[("IFS", "x")]), b"/tmp").is_err(), "dash heeds it");
    }
}
