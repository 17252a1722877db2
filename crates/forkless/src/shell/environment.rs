//! The environment that a shell would pass to the program: what it drops, what it adds, and in which order.
//!
//! Shells keep variables in hash tables, and pass them on in the order of those tables. Nobody should rely on that
//! order, but `env` shows it, and a direct run promises the same result. The rules were found by observing programs
//! that dash 0.5.12 and bash 5.1 to 5.3 started; the tests repeat the observation, also with each word that is in the
//! shell's file as a variable.

use super::Reason;
use super::classify::{SimpleCommand, is_name};
use super::known::{ShellKind, ShellName};
use super::pattern::{Maker, Pattern, Patterns};
use crate::once::Once;
use crate::plan::compile::environment_of;
use crate::request::command;
use crate::request::environment::unchanged;
use crate::request::environment::{Block, Held, KeptEnvironment};
use std::ffi::{OsStr, OsString};
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
    b"DIRSTACK",
    b"ENV",
    b"EUID",
    b"FUNCNAME",
    b"FUNCNEST",
    b"GLOBIGNORE",
    b"GROUPS",
    b"HISTCMD",
    b"IFS",
    b"IGNOREEOF",
    b"LINENO",
    b"LOCPATH",
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

const BASH_STARTS: [&[u8]; 3] = [b"BASH", b"COMP_", b"EPOCH"];

/// Whether bash sets this variable itself, or heeds it.
fn is_bash_own(name: &[u8]) -> bool {
    BASH_SETS.contains(&name) || BASH_STARTS.iter().any(|start| name.starts_with(start))
}

/// A variable as the program gets it: name and value.
type Variable<'a> = (&'a [u8], &'a [u8]);

/// Where a program is run.
pub(super) struct ProgramPlace<'a> {
    /// The shell's value of PWD.
    pub(super) directory: Vec<u8>,
    /// The program's file.
    pub(super) program: &'a [u8],
    /// What the shell is called.
    pub(super) shell: ShellName,
}

/// The environment that the shell would get.
pub(super) enum Given<'a> {
    /// The process's environment, which the process has not changed.
    Unchanged(&'static Unchanged),
    /// The same with values that the command sets: not those of PATH and PWD.
    Set(&'static Unchanged, &'a command::EnvironmentChanges),
    /// That of this command, or of this moment.
    Other(Held),
}

/// What is computed from the unchanged environment, once for the life of the process.
pub(super) struct Unchanged {
    block: &'static KeptEnvironment,
    path: Option<&'static [u8]>,
    pwd: Option<&'static [u8]>,
    /// The environment that dash would pass on, if PWD is right.
    dash: Result<KeptEnvironment, Reason>,
}

impl Unchanged {
    fn of(block: &'static KeptEnvironment) -> Self {
        let [path, pwd] = [&b"PATH"[..], b"PWD"].map(|name| last(block, name));
        let given: Vec<Variable<'_>> = block.variables().collect();
        let dash = dash(&given, Vec::new(), pwd.unwrap_or_default()).map(KeptEnvironment::new);
        Self { block, path, pwd, dash }
    }
}

impl<'a> Given<'a> {
    pub(super) fn of(command: &'a command::Command) -> Self {
        static UNCHANGED: Once<Unchanged> = Once::new();
        let known = |block| UNCHANGED.get_or(|| Unchanged::of(block));
        if let Some(ready) = &command.ready {
            return match (&ready.env, unchanged::environment_at_exec()) {
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
        kind: ShellKind,
        form: &SimpleCommand,
        place: &ProgramPlace<'_>,
        patterns: Option<&Patterns>,
    ) -> Result<Held, Reason> {
        let is_plain = form.assignments.is_empty() && self.pwd() == Some(&place.directory);
        let made;
        let block = match self {
            Self::Unchanged(known) if is_plain && kind == ShellKind::Dash => {
                return known.dash.as_ref().map(Held::Process).map_err(Reason::clone);
            }
            Self::Unchanged(known) => known.block,
            Self::Set(_, command) => {
                let is_plain = is_plain && (kind == ShellKind::Dash || is_same_for_bash(form, command));
                if let Some(patterns) = patterns.filter(|_| is_plain) {
                    return by_pattern(patterns, command, kind, form, place);
                }
                made = environment_of(command);
                &*made
            }
            Self::Other(block) => block,
        };
        computed(block, kind, form, place).map(Held::of)
    }
}

/// The environment that the shell passes on for this command, which only sets variables. The process's environment is unchanged, and
/// the directory is its value of PWD.
fn by_pattern(
    patterns: &Patterns,
    command: &command::EnvironmentChanges,
    kind: ShellKind,
    form: &SimpleCommand,
    place: &ProgramPlace<'_>,
) -> Result<Held, Reason> {
    // The environment that dash passes on does not depend on the program.
    let maker = match kind {
        ShellKind::Bash => Maker { kind, shell: place.shell, program: place.program },
        _ => Maker { kind, shell: ShellName::Sh, program: b"" },
    };
    let pattern = match patterns.find(maker, command) {
        Some(pattern) => pattern,
        None => {
            let block = computed(&environment_of(command), kind, form, place)?;
            let pattern = Arc::new(Pattern::of(&block, maker, command));
            patterns.keep(&pattern);
            pattern
        }
    };
    Ok(Held::of(pattern.with(command)))
}

/// Whether bash passes on the same for any values that the command sets, and for any words of the line.
fn is_same_for_bash(form: &SimpleCommand, command: &command::EnvironmentChanges) -> bool {
    const BY_VALUE: [&str; 6] = ["_", "LANG", "LC_ALL", "LC_CTYPE", "OLDPWD", "SHLVL"];
    let is_ascii = form.words.iter().flatten().all(u8::is_ascii);
    is_ascii && !form.exec && !BY_VALUE.iter().any(|name| command.changes.contains_key(OsStr::new(name)))
}

fn computed(block: &Block, kind: ShellKind, form: &SimpleCommand, place: &ProgramPlace<'_>) -> Result<Block, Reason> {
    let given: Vec<Variable<'_>> = block.variables().collect();
    match kind {
        ShellKind::Dash => dash(&given, assigned(form), &place.directory),
        ShellKind::Bash => bash(&given, form, place),
        ShellKind::Other => Err(Reason::Shell),
    }
}

/// The last value of a variable, which is the one that shells use.
fn last<'a>(given: &'a Block, name: &[u8]) -> Option<&'a [u8]> {
    given.variables().filter(|(known, _)| *known == name).last().map(|(_, value)| value)
}

/// The size of the variables as text.
fn text_size(given: &[Variable<'_>]) -> usize {
    given.iter().map(|(name, value)| name.len() + value.len() + 2).sum()
}

/// The variables for the program alone.
fn assigned(form: &SimpleCommand) -> Vec<Variable<'_>> {
    form.assignments.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect()
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
    let valid = given.iter().filter(|(name, _)| is_name(name));
    for &(name, value) in valid.chain(&pwd).chain(&assigned) {
        if DASH_SETS.contains(&name) {
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
fn bash(given: &[Variable<'_>], form: &SimpleCommand, place: &ProgramPlace<'_>) -> Result<Block, Reason> {
    /// With more variables the table grows, and the order changes.
    const MOST: usize = 1000;
    let assigned = assigned(form);
    check_encoding(given, form)?;
    let mut known: Vec<Variable<'_>> = Vec::with_capacity(given.len() + 3);
    let mut set = |name, value| match known.iter_mut().find(|(known, _)| *known == name) {
        Some(variable) => variable.1 = value,
        None => known.push((name, value)),
    };
    let mut odd = Vec::new();
    let is_sh = place.shell == ShellName::Sh;
    for &(name, value) in given {
        match name {
            b"PS1" | b"PS2" => {}
            b"SHLVL" if !is_level(value, is_sh) => return Err(heeded(name)),
            b"OLDPWD" if !Path::new(OsStr::from_bytes(value)).is_dir() => return Err(heeded(name)),
            // bash prints a warning for a locale that does not exist.
            b"LC_ALL" if !is_locale(value) => return Err(heeded(name)),
            _ if is_bash_own(name) => return Err(heeded(name)),
            _ if !is_name(name) => odd.push((name, value)),
            _ => set(name, value),
        }
    }
    if !given.iter().any(|(name, _)| *name == b"SHLVL") {
        if !is_level(b"0", is_sh) {
            return Err(heeded(b"SHLVL"));
        }
        set(b"SHLVL", b"0");
    }
    set(b"PWD", &place.directory);
    let given_last = known.iter().find(|(name, _)| *name == b"_").map(|(_, value)| *value);
    // `exec` is a builtin: no program has been started yet.
    let last = if form.exec { given_last } else { Some(place.program) };
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
    let own = order.into_iter().map(|(.., one)| (one.0, last.filter(|_| one.0 == b"_").unwrap_or(one.1)));
    let own = own.filter(|(name, _)| !assigned.iter().any(|(other, _)| other == name));
    let last = last.filter(|_| given_last.is_none()).map(|value| (&b"_"[..], value));
    Ok(Block::of(odd.into_iter().chain(assigned.iter().copied()).chain(own).chain(last), text_size(given)))
}

/// In some encodings a backslash or a quote is the second byte of a character.
fn check_encoding(given: &[Variable<'_>], form: &SimpleCommand) -> Result<(), Reason> {
    let words = form.words.iter().chain(form.assignments.iter().map(|(_, value)| value));
    if words.flatten().all(u8::is_ascii) {
        return Ok(());
    }
    let set = |wanted: &[u8]| given.iter().rfind(|(name, value)| *name == wanted && !value.is_empty());
    let Some((name, locale)) = set(b"LC_ALL").or_else(|| set(b"LC_CTYPE")).or_else(|| set(b"LANG")) else {
        return Ok(());
    };
    let encoding = locale.to_ascii_lowercase();
    let is_known = matches!(*locale, b"C" | b"POSIX") || encoding.ends_with(b".utf-8") || encoding.ends_with(b".utf8");
    if is_known { Ok(()) } else { Err(heeded(name)) }
}

/// Whether a C library certainly has this locale.
fn is_locale(name: &[u8]) -> bool {
    match name {
        b"" | b"C" | b"POSIX" => true,
        // Debian 11, where C.utf8 is unknown.
        b"C.UTF-8" if Path::new("/usr/lib/locale/C.UTF-8/LC_CTYPE").exists() => true,
        b"C.UTF-8" | b"C.utf8" => Path::new("/usr/lib/locale/C.utf8/LC_CTYPE").exists(),
        _ => false,
    }
}

/// Whether bash passes this level on unchanged: it adds one for itself, and subtracts it when it replaces itself by
/// the program. A bash that is not called `sh` and that no other shell has started may read `~/.bashrc`: if its standard
/// input is a socket, or sshd has set its variables.
fn is_level(value: &[u8], is_sh: bool) -> bool {
    let digits = (1..=3).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    digits && (value[0] != b'0' || value == b"0" && is_sh) && value != b"999"
}

/// FNV-1, 32 bits, in 1024 buckets.
fn bash_bucket(name: &[u8]) -> u32 {
    name.iter().fold(2_166_136_261, |hash: u32, &byte| hash.wrapping_mul(16_777_619) ^ u32::from(byte)) % 1024
}

#[cfg(test)]
mod tests {
    use super::super::classify::classify;
    use super::*;
    use std::ffi::CStr;

    fn setting(values: &[(&str, &str)]) -> command::EnvironmentChanges {
        let changes = values.iter().map(|(name, value)| (OsString::from(name), Some(OsString::from(value)))).collect();
        command::EnvironmentChanges { clear: false, changes }
    }

    fn parts(block: &Block) -> (Vec<u8>, Vec<usize>) {
        (block.text.clone(), block.starts.clone())
    }

    /// A caller that gives the whole environment, as Node does, mostly gives that of the process.
    #[test]
    fn an_environment_that_is_given_and_unchanged_is_known() {
        let block = unchanged::environment_at_exec().expect("the kernel's");
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
        let (form, place) = (classify(b"p a").expect("a command"), |program, shell| ProgramPlace {
            directory: b"/tmp".to_vec(),
            program,
            shell,
        });
        let makers = [
            (ShellKind::Dash, ShellName::Sh, b"/bin/p"),
            (ShellKind::Bash, ShellName::Bash, b"/bin/p"),
            (ShellKind::Bash, ShellName::Bash, b"/bin/q"),
        ];
        for line in lines {
            let command = setting(line);
            let all = environment_of(&command);
            for (kind, shell, program) in makers {
                let place = place(program, shell);
                let found = || by_pattern(&patterns, &command, kind, &form, &place);
                // The environment of the tests may have something that only the shell knows.
                let Ok(expected) = computed(&all, kind, &form, &place) else {
                    assert!(kind == ShellKind::Bash && found().is_err());
                    continue;
                };
                for _ in 0..2 {
                    assert_eq!(parts(&found().expect("an environment")), parts(&expected), "{line:?} {kind:?}");
                }
            }
        }
        let place = place(b"/bin/p", ShellName::Sh);
        let heeded = setting(&[("IFS", "x")]);
        assert!(by_pattern(&patterns, &heeded, ShellKind::Dash, &form, &place).is_err(), "dash heeds it");
    }

    /// A backslash that is the second byte of a character in GBK is no backslash for bash.
    #[test]
    fn a_line_in_an_unknown_encoding_is_given_to_bash() {
        let place = ProgramPlace { directory: b"/tmp".to_vec(), program: b"/bin/p", shell: ShellName::Bash };
        let bash = |line: &[u8], locale: &[(&str, &str)]| {
            let mut command = setting(locale);
            command.clear = true;
            command.changes.insert("SHLVL".into(), Some("1".into()));
            computed(&environment_of(&command), ShellKind::Bash, &classify(line).expect("a command"), &place).err()
        };
        let line = b"p \"\x81\\\\\"";
        assert_eq!(bash(line, &[("LANG", "zh_CN.GBK")]), Some(Reason::Environment("LANG".into())));
        assert_eq!(bash(line, &[("LANG", "C.UTF-8"), ("LC_CTYPE", "ja_JP.SJIS")]), Some(heeded(b"LC_CTYPE")));
        for known in ["C", "POSIX", "en_US.UTF-8", "de_DE.utf8", ""] {
            assert_eq!(bash(line, &[("LANG", known)]), None, "{known}");
        }
        assert_eq!(bash(b"p a", &[("LANG", "zh_CN.GBK")]), None);
    }
}
