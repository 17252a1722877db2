//! Whether a line is one simple command without expansions. A pure function of its bytes.
//!
//! It accepts only what every POSIX shell reads in the same way, and returns the reason for everything else: what is
//! not certain goes to the shell. The rules, each with its section of POSIX, are in `docs/design/shell.md`.

use std::fmt;

/// A simple command: POSIX XCU 2.9.1, without expansions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SimpleCommand {
    /// Variables for the program alone, each name once.
    pub(crate) assignments: Vec<(Vec<u8>, Vec<u8>)>,
    /// The program and its arguments, after quote removal.
    pub(crate) words: Vec<Vec<u8>>,
    /// In their order, which matters.
    pub(crate) redirections: Vec<Redirection>,
    /// It began with `exec`: the shell replaces itself by the program.
    pub(crate) exec: bool,
    /// Nothing follows the newline that ends it, not even a blank.
    pub(crate) bare: bool,
}

/// A redirection of a descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirection {
    /// `<`, `>` and `>>`.
    Open { to: i32, path: Vec<u8>, how: OpenMode },
    /// `>&` and `<&`.
    Copy { to: i32, from: i32 },
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    Read,
    Write,
    Append,
}

/// What in a line only the shell can handle.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Syntax {
    /// It has no program.
    Empty,
    /// It is longer than 100,000 bytes: the kernel might not give it to a shell at all.
    Long,
    /// It begins with `-` or `+`, which `sh -c` takes for an option.
    Option,
    /// A byte outside of quotes that is not printable ASCII; or, anywhere, NUL or a byte that bash uses internally (1,
    /// 127).
    Byte(u8),
    /// `$` or a backquote: XCU 2.6.
    Expansion,
    /// `*`, `?` or `[`: XCU 2.13.
    Pattern,
    /// `~`: XCU 2.6.1.
    Tilde,
    /// `{` or `}`: a group, or a brace expansion of some shells.
    Brace,
    /// `(` or `)`.
    Parenthesis,
    /// `|`: XCU 2.9.2.
    Pipe,
    /// `&`, `&&`, `;` or more than one line: XCU 2.9.3.
    List,
    /// A backslash before a newline: XCU 2.2.1.
    Continuation,
    /// A quote without an end.
    Unterminated,
    /// Another redirection (`<<`, `<>`, `>|`, `>&-`), or one of a descriptor above 9.
    Redirection,
    /// A variable that the shell itself uses, or one that is set twice.
    Assignment(String),
    /// A reserved word where a program is expected: XCU 2.4.
    Reserved(String),
    /// A command that is, or may be, a shell builtin.
    Builtin(String),
    /// `exec` with an option, with variables, or without a program.
    Exec,
    /// A program's name that shells interpret differently.
    Name,
}

impl fmt::Display for Syntax {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::Empty => "no program",
            Self::Long => "a long line",
            Self::Option => "a line that begins like an option",
            Self::Byte(byte) => return write!(out, "the byte {byte:#04x}"),
            Self::Expansion => "an expansion",
            Self::Pattern => "a pattern of file names",
            Self::Tilde => "a tilde",
            Self::Brace => "a brace",
            Self::Parenthesis => "a parenthesis",
            Self::Pipe => "a pipeline",
            Self::List => "a list of commands",
            Self::Continuation => "a continued line",
            Self::Unterminated => "an unterminated quote",
            Self::Redirection => "a redirection that only the shell supports",
            Self::Assignment(name) => return write!(out, "the variable {name}"),
            Self::Reserved(word) => return write!(out, "the reserved word {word}"),
            Self::Builtin(name) => return write!(out, "the builtin {name}"),
            Self::Exec => "exec with options, variables or no program",
            Self::Name => "an unusual program name",
        };
        out.write_str(words)
    }
}

/// The kernel takes strings of up to 131,071 bytes (MAX_ARG_STRLEN).
const LONGEST: usize = 100_000;

/// Reserved words where a program is expected: XCU 2.4, and those that dash and bash add.
const RESERVED: &str = "\
    ! [[ ]] case coproc do done elif else esac fi for function if in namespace select then time until while { }";

/// Commands that dash, bash, or another shell may have as builtins: XCU 2.15, XCU 1.7, and their own.
///
/// A program of the same name may not exist, or may behave differently.
const BUILTINS: &str = "\
    . : [ alias autoload bg bind break builtin caller cd chdir command compgen complete compopt continue declare \
    dirs disown echo enable eval exec exit export false fc fg getopts hash help history integer jobs kill let \
    local login logout mapfile nameref newgrp popd print printf pushd pwd read readarray readonly return set \
    setvar shift shopt source suspend test times trap true type typeset ulimit umask unalias unset wait";

/// Variables that change the behaviour of dash or bash when they are set, or that these shells change.
const HEEDED: &str = "\
    _ CDPATH COLUMNS DIRSTACK ENV EUID FIGNORE FUNCNAME FUNCNEST GLOBIGNORE GROUPS HOSTFILE IFS IGNOREEOF \
    INPUTRC LINENO LINES MAIL MAILCHECK MAILPATH OLDPWD OPTARG OPTERR OPTIND PATH PIPESTATUS POSIXLY_CORRECT \
    PPID PROMPT_COMMAND PS0 PS1 PS2 PS3 PS4 PWD RANDOM READLINE_LINE REPLY SECONDS SHELLOPTS SHLVL SRANDOM \
    TIMEFORMAT UID histchars";

/// The words of a list, which is split when this crate is compiled.
struct WordList<const N: usize>([&'static [u8]; N]);

impl<const N: usize> WordList<N> {
    const fn of(list: &'static str) -> Self {
        const NONE: &[u8] = b"";
        let mut words = [NONE; N];
        let mut rest = list.as_bytes();
        let mut n = 0;
        while let Some((word, after)) = next_word(rest) {
            words[n] = word;
            rest = after;
            n += 1;
        }
        Self(words)
    }

    fn contains(&self, word: &[u8]) -> bool {
        self.0.contains(&word)
    }
}

/// How many words a list has.
const fn count(list: &str) -> usize {
    let (mut rest, mut n) = (list.as_bytes(), 0);
    while let Some((_, after)) = next_word(rest) {
        rest = after;
        n += 1;
    }
    n
}

/// The first word of a list, and what follows it. Words are separated by one space.
const fn next_word(list: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut end = 0;
    while end < list.len() {
        if list[end] == b' ' {
            let (word, after) = list.split_at(end);
            return Some((word, after.split_at(1).1));
        }
        end += 1;
    }
    if list.is_empty() { None } else { Some((list, b"")) }
}

/// Whether a word is in one of the lists above.
macro_rules! is_among {
    ($list:ident, $word:expr) => {{
        static WORDS: WordList<{ count($list) }> = WordList::of($list);
        WORDS.contains($word)
    }};
}

/// Whether a shell treats this variable specially.
fn is_heeded(name: &[u8]) -> bool {
    let starts = ["BASH", "COMP_", "EPOCH", "HIST", "TEXTDOMAIN"];
    is_among!(HEEDED, name) || starts.iter().any(|start| name.starts_with(start.as_bytes()))
}

/// Whether it is a valid name: XBD 3.216.
pub(crate) fn is_name(text: &[u8]) -> bool {
    !text.is_empty()
        && !text[0].is_ascii_digit()
        && text.iter().all(|&byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Reads a line as one simple command, or returns what in it only the shell can handle.
pub(crate) fn classify(line: &[u8]) -> Result<SimpleCommand, Syntax> {
    match line.first() {
        Some(b'-' | b'+') => return Err(Syntax::Option),
        _ if line.len() > LONGEST => return Err(Syntax::Long),
        _ => {}
    }
    // NUL, and the bytes by which bash marks quoted characters: it misreads some that are in the line, `"\<1>\\\\"`.
    if let Some(&mark) = line.iter().find(|byte| matches!(byte, 0 | 1 | 0x7f)) {
        return Err(Syntax::Byte(mark));
    }
    let mut reader =
        LineReader { rest: line, found: SimpleCommand { bare: true, ..SimpleCommand::default() }, ended: false };
    while reader.token()? {}
    let mut found = reader.found;
    check_program(&mut found)?;
    Ok(found)
}

/// Checks that there is a program, and that it is no shell builtin.
fn check_program(found: &mut SimpleCommand) -> Result<(), Syntax> {
    let mut name = found.words.first().ok_or(Syntax::Empty)?;
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    if is_among!(RESERVED, name) {
        return Err(Syntax::Reserved(text(name)));
    }
    if name == b"exec" {
        if !found.assignments.is_empty() || found.words.len() < 2 || found.words[1].starts_with(b"-") {
            return Err(Syntax::Exec);
        }
        found.words.remove(0);
        found.exec = true;
        name = &found.words[0];
    } else if is_among!(BUILTINS, name) {
        return Err(Syntax::Builtin(text(name)));
    }
    // Some shells accept a job (%1), an addition (a+=b) or a history word here.
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b"=!%".contains(byte);
    if name.is_empty() || !name.iter().all(plain) {
        return Err(Syntax::Name);
    }
    let names: Vec<&[u8]> = found.assignments.iter().map(|(name, _)| name.as_slice()).collect();
    match (0..names.len()).find(|&n| is_heeded(names[n]) || names[..n].contains(&names[n])) {
        Some(n) => Err(Syntax::Assignment(text(names[n]))),
        None => Ok(()),
    }
}

/// A word after quote removal.
#[derive(Default)]
struct Word {
    text: Vec<u8>,
    quoted: bool,
    /// The position of the first `=`, if the text before it is an unquoted name.
    equals: Option<usize>,
}

struct LineReader<'a> {
    rest: &'a [u8],
    found: SimpleCommand,
    /// The command's line has ended.
    ended: bool,
}

impl LineReader<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    /// Reads one token; false at the end.
    fn token(&mut self) -> Result<bool, Syntax> {
        let Some(&byte) = self.rest.first() else { return Ok(false) };
        self.found.bare &= !self.ended;
        match byte {
            b' ' | b'\t' => drop(self.next()),
            b'\n' => {
                self.next();
                let found = &self.found;
                self.ended |=
                    !(found.words.is_empty() && found.assignments.is_empty() && found.redirections.is_empty());
            }
            b'#' => {
                let end = self.rest.iter().position(|&byte| byte == b'\n').unwrap_or(self.rest.len());
                if let Some(&odd) = self.rest[..end].iter().find(|byte| !is_plain(**byte)) {
                    return Err(Syntax::Byte(odd));
                }
                self.rest = &self.rest[end..];
            }
            b'|' => return Err(Syntax::Pipe),
            b'&' | b';' => return Err(Syntax::List),
            b'(' | b')' => return Err(Syntax::Parenthesis),
            _ if self.ended => return Err(Syntax::List),
            b'<' | b'>' => self.redirection(None)?,
            _ => self.word_or_number()?,
        }
        Ok(true)
    }

    fn word_or_number(&mut self) -> Result<(), Syntax> {
        let word = self.word()?;
        let is_number = !word.quoted && word.text.iter().all(u8::is_ascii_digit);
        if is_number && matches!(self.rest.first(), Some(b'<' | b'>')) {
            return match word.text[..] {
                [digit] => self.redirection(Some(i32::from(digit - b'0'))),
                _ => Err(Syntax::Redirection),
            };
        }
        match word.equals {
            Some(end) if self.found.words.is_empty() => {
                let (name, value) = word.text.split_at(end);
                self.found.assignments.push((name.to_vec(), value[1..].to_vec()));
            }
            _ => self.found.words.push(word.text),
        }
        Ok(())
    }

    /// Reads the rest of a redirection after a descriptor's number, if there is one: `<`, `>`, `>>`, `<&`, `>&`.
    fn redirection(&mut self, number: Option<i32>) -> Result<(), Syntax> {
        let writes = self.next() == Some(b'>');
        let to = number.unwrap_or(i32::from(writes));
        let mut how = if writes { OpenMode::Write } else { OpenMode::Read };
        let mut copies = false;
        match (self.rest.first(), writes) {
            (Some(b'>'), true) => {
                how = OpenMode::Append;
                self.next();
            }
            (Some(b'&'), _) => {
                copies = true;
                self.next();
            }
            (Some(b'<' | b'>' | b'|'), _) => return Err(Syntax::Redirection),
            _ => {}
        }
        while matches!(self.rest.first(), Some(b' ' | b'\t')) {
            self.next();
        }
        match self.rest.first() {
            None | Some(b'\n' | b'#' | b'<' | b'>' | b'|' | b'&' | b';' | b'(' | b')') => {
                return Err(Syntax::Redirection);
            }
            Some(_) => {}
        }
        let word = self.word()?;
        let is_number = !word.quoted && word.text.iter().all(u8::is_ascii_digit);
        if is_number && matches!(self.rest.first(), Some(b'<' | b'>')) {
            // `>&1>f`: dash takes the number as part of what follows.
            return Err(Syntax::Redirection);
        }
        if !copies {
            self.found.redirections.push(Redirection::Open { to, path: word.text, how });
            return Ok(());
        }
        match word.text[..] {
            // A copy onto itself: if the descriptor is closed, some shells ignore that, and others report an error.
            [digit @ b'0'..=b'9'] if !word.quoted && i32::from(digit - b'0') != to => {
                self.found.redirections.push(Redirection::Copy { to, from: i32::from(digit - b'0') });
                Ok(())
            }
            _ => Err(Syntax::Redirection),
        }
    }

    /// A word up to a blank, a newline or an operator: XCU 2.2, 2.3.
    fn word(&mut self) -> Result<Word, Syntax> {
        let mut word = Word::default();
        while let Some(&byte) = self.rest.first() {
            match byte {
                b' ' | b'\t' | b'\n' | b'<' | b'>' | b'|' | b'&' | b';' | b'(' | b')' => break,
                b'\'' => self.single_quoted(&mut word)?,
                b'"' => self.double_quoted(&mut word)?,
                b'\\' => self.escaped(&mut word)?,
                b'$' | b'`' => return Err(Syntax::Expansion),
                b'*' | b'?' | b'[' => return Err(Syntax::Pattern),
                b'~' => return Err(Syntax::Tilde),
                b'{' | b'}' => return Err(Syntax::Brace),
                odd if !is_plain(odd) => return Err(Syntax::Byte(odd)),
                _ => {
                    if byte == b'=' && word.equals.is_none() && !word.quoted && is_name(&word.text) {
                        word.equals = Some(word.text.len());
                    }
                    word.text.push(byte);
                    self.next();
                }
            }
        }
        Ok(word)
    }

    fn single_quoted(&mut self, word: &mut Word) -> Result<(), Syntax> {
        word.quoted = true;
        self.next();
        let end = self.rest.iter().position(|&byte| byte == b'\'').ok_or(Syntax::Unterminated)?;
        word.text.extend_from_slice(&self.rest[..end]);
        self.rest = &self.rest[end + 1..];
        Ok(())
    }

    /// XCU 2.2.3: a backslash stays unless it stands before one of five characters.
    fn double_quoted(&mut self, word: &mut Word) -> Result<(), Syntax> {
        word.quoted = true;
        self.next();
        loop {
            match self.next().ok_or(Syntax::Unterminated)? {
                b'"' => return Ok(()),
                b'$' | b'`' => return Err(Syntax::Expansion),
                b'\\' => match self.next().ok_or(Syntax::Unterminated)? {
                    b'\n' => return Err(Syntax::Continuation),
                    special @ (b'$' | b'`' | b'"' | b'\\') => word.text.push(special),
                    other => word.text.extend_from_slice(&[b'\\', other]),
                },
                byte => word.text.push(byte),
            }
        }
    }

    fn escaped(&mut self, word: &mut Word) -> Result<(), Syntax> {
        word.quoted = true;
        self.next();
        match self.next() {
            None => Err(Syntax::Unterminated),
            Some(b'\n') => Err(Syntax::Continuation),
            Some(byte) if is_plain(byte) => {
                word.text.push(byte);
                Ok(())
            }
            Some(odd) => Err(Syntax::Byte(odd)),
        }
    }
}

/// Is this byte the same in every locale, and no control character?
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() || byte == b' ' || byte == b'\t'
}

/// What a fuzzer drives.
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzed {
    use super::{OpenMode, Redirection, SimpleCommand, classify};

    fn quoted(word: &[u8], out: &mut Vec<u8>) {
        out.push(b'\'');
        word.iter().for_each(|&byte| match byte {
            b'\'' => out.extend(b"'\\''"),
            byte => out.push(byte),
        });
        out.push(b'\'');
    }

    /// The command, as a line in which nothing is left to be guessed.
    fn written(command: &SimpleCommand) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, value) in &command.assignments {
            out.extend(name);
            out.push(b'=');
            quoted(value, &mut out);
            out.push(b' ');
        }
        if command.exec {
            out.extend(b"exec ");
        }
        for word in &command.words {
            quoted(word, &mut out);
            out.push(b' ');
        }
        for redirection in &command.redirections {
            match redirection {
                Redirection::Copy { to, from } => out.extend(format!("{to}>&{from} ").bytes()),
                Redirection::Open { to, path, how } => {
                    let sign = match how {
                        OpenMode::Read => "<",
                        OpenMode::Write => ">",
                        OpenMode::Append => ">>",
                    };
                    out.extend(format!("{to}{sign}").bytes());
                    quoted(path, &mut out);
                    out.push(b' ');
                }
            }
        }
        out
    }

    pub(crate) fn line(bytes: &[u8]) -> bool {
        let Ok(command) = classify(bytes) else { return false };
        let again = written(&command);
        let bare = SimpleCommand { bare: true, ..command };
        let found = classify(&again);
        // Quotes make a line longer, and one that is too long is the shell's.
        if again.len() <= bytes.len() || found != Err(super::Syntax::Long) {
            assert_eq!(
                found,
                Ok(bare),
                "{:?} for {:?}",
                again.escape_ascii().to_string(),
                bytes.escape_ascii().to_string()
            );
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_words(line: &str) -> Vec<String> {
        let found = classify(line.as_bytes()).unwrap_or_else(|why| panic!("{line:?}: {why}"));
        found.words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    #[test]
    fn quotes_are_taken_off() {
        assert_eq!(split_words("ls -l /tmp"), ["ls", "-l", "/tmp"]);
        assert_eq!(split_words(" \t\n ls\t-l \n\n"), ["ls", "-l"]);
        assert_eq!(
            split_words(r#"p 'a b' "c d" e\ f g'h'"i"\j '' "" \\ \' \#"#),
            ["p", "a b", "c d", "e f", "ghij", "", "", "\\", "'", "#"]
        );
        assert_eq!(split_words(r#"p "\$\`\"\\\n\'" '$`\"*?~'"#), ["p", "$`\"\\\\n\\'", "$`\\\"*?~"]);
        assert_eq!(
            split_words("p a#b ! a! x=y =z ^ @ % , # comment 'a"),
            ["p", "a#b", "!", "a!", "x=y", "=z", "^", "@", "%", ","]
        );
        assert_eq!(split_words("p 'two\nlines' 'é'"), ["p", "two\nlines", "é"]);
        assert_eq!(split_words("'l's"), ["ls"]);
        assert_eq!(split_words("exec echo hi"), ["echo", "hi"]);
    }

    #[test]
    fn variables_and_files_in_their_order() {
        let found = classify(b"A=1 B='x y' C= p 2>&1 >f 3>>g <\"h i\" a B=2 2> k").expect("simple");
        let own = |text: &str| text.as_bytes().to_vec();
        assert_eq!(found.assignments, [(own("A"), own("1")), (own("B"), own("x y")), (own("C"), own(""))]);
        assert_eq!(found.words, [own("p"), own("a"), own("B=2")]);
        let open = |to, path: &str, how| Redirection::Open { to, path: own(path), how };
        assert_eq!(
            found.redirections,
            [
                Redirection::Copy { to: 2, from: 1 },
                open(1, "f", OpenMode::Write),
                open(3, "g", OpenMode::Append),
                open(0, "h i", OpenMode::Read),
                open(2, "k", OpenMode::Write),
            ]
        );
        assert_eq!(split_words("p a2>f 2 >f"), ["p", "a2", "2"]);
        assert!(found.bare && !found.exec);
    }

    /// One line for each reason, and neighbours that look harmless.
    #[test]
    fn what_is_the_shells() {
        use Syntax::*;
        let name = |text: &str| text.to_owned();
        for (line, why) in [
            ("", Empty),
            (" \n", Empty),
            ("# p", Empty),
            ("A=1", Empty),
            (">f", Empty),
            ("-p", Option),
            ("+p", Option),
            ("p \r", Byte(13)),
            ("p é", Byte(0xc3)),
            ("p \\é", Byte(0xc3)),
            ("p \u{1}", Byte(1)),
            ("p # é", Byte(0xc3)),
            ("p $A", Expansion),
            ("p \"$A\"", Expansion),
            ("p `q`", Expansion),
            ("p \"`q`\"", Expansion),
            ("p $", Expansion),
            ("p *", Pattern),
            ("p a?", Pattern),
            ("p [a]", Pattern),
            ("[ -f a ]", Pattern),
            ("p >*", Pattern),
            ("~/p", Tilde),
            ("p a=~", Tilde),
            ("A=~ p", Tilde),
            ("{ p; }", Brace),
            ("p {a,b}", Brace),
            ("p }", Brace),
            ("(p)", Parenthesis),
            ("p()", Parenthesis),
            ("p | q", Pipe),
            ("p || q", Pipe),
            ("p|q", Pipe),
            ("p && q", List),
            ("p;q", List),
            ("p;", List),
            ("p &", List),
            ("p\nq", List),
            ("p\n>f", List),
            ("p \\\n q", Continuation),
            ("p \"a\\\nb\"", Continuation),
            ("p 'a", Unterminated),
            ("p \"a", Unterminated),
            ("p \\", Unterminated),
            ("p <<E\na\nE", Redirection),
            ("p <>f", Redirection),
            ("p >|f", Redirection),
            ("p >&-", Redirection),
            ("p 10>f", Redirection),
            ("p >&10", Redirection),
            ("p >&f", Redirection),
            ("p 1>&1", Redirection),
            ("p >", Redirection),
            ("p > >f", Redirection),
            ("p >&'1'", Redirection),
            ("p >& -", Redirection),
            ("p > #f", Redirection),
            ("p &>f", List),
            ("PATH=/x p", Assignment(name("PATH"))),
            ("A=1 A=2 p", Assignment(name("A"))),
            ("BASH_ENV=x p", Assignment(name("BASH_ENV"))),
            ("if p", Reserved(name("if"))),
            ("! p", Reserved(name("!"))),
            ("time p", Reserved(name("time"))),
            ("echo a", Builtin(name("echo"))),
            ("'cd' /", Builtin(name("cd"))),
            ("A=1 true", Builtin(name("true"))),
            ("exec", Exec),
            ("exec >f", Exec),
            ("exec -a b p", Exec),
            ("A=1 exec p", Exec),
            ("''", Name),
            ("A+=1 p", Name),
            ("\"A\"=1", Name),
            ("%1", Name),
            ("!x", Name),
            ("'a b' c", Name),
            ("1A=1 p", Name),
        ] {
            assert_eq!(classify(line.as_bytes()), Err(why), "{line:?}");
        }
        assert_eq!(classify(b"p a\0b"), Err(Byte(0)));
        assert_eq!(classify(b"p \"\\\x01\\\\\""), Err(Byte(1)));
        assert_eq!(classify(b"p '\x7f'"), Err(Byte(0x7f)));
        assert_eq!(classify(&[b'p'; LONGEST + 1]), Err(Long));
    }
}
