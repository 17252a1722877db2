//! What is open at a place, and that no value runs there: real shells run the lines.

use std::os::unix::ffi::OsStrExt;

use super::super::template::{Fill, Numbers, Strings, Template};
use super::*;

fn quoted(value: &str) -> String {
    String::from_utf8(word(value.as_bytes(), Language::Posix)).expect("UTF-8")
}

#[test]
fn only_words_that_need_it_are_quoted() {
    assert_eq!(quoted("a/b-c_d.e+f"), "a/b-c_d.e+f");
    assert_eq!(quoted(""), "''");
    assert_eq!(quoted("a b"), "'a b'");
    assert_eq!(quoted("it's"), r#"'it'"'"'s'"#);
    assert_eq!(quoted("''"), r#""'"''"'""#);
    assert_eq!(quoted("'a"), r#""'"'a'"#);
    assert_eq!(quoted("~"), "'~'");
}

/// What surrounds a place after this text, or what prevents a value there.
fn find_levels(template: &str, language: Language) -> Result<Vec<Level>, &'static str> {
    let mut lexer = Lexer::new(language);
    template.bytes().for_each(|byte| lexer.take(byte));
    lexer.levels()
}

fn at(template: &str) -> Vec<Level> {
    find_levels(template, Language::Bash).expect("a place")
}

#[test]
fn a_place_in_a_line_knows_what_surrounds_it() {
    use Level::*;
    assert_eq!(at("echo "), []);
    assert_eq!(at("echo '"), [Single]);
    assert_eq!(at("echo 'a' "), []);
    assert_eq!(at(r#"echo "a '"#), [Double]);
    assert_eq!(at(r#"echo "$(cat "#), []);
    assert_eq!(at(r#"echo "$(cat ")" ""#), [Double]);
    assert_eq!(at(r#"echo "`cat "#), [QuotedBackquote]);
    assert_eq!(at("echo `echo $(cat "), [Backquote]);
    assert_eq!(at(r#"echo "$(cat ) "#), [Double]);
    assert_eq!(at("echo \\' "), []);
    assert_eq!(at("echo `cat "), [Backquote]);
    assert_eq!(at("echo `cat` "), []);
    assert_eq!(at("echo a#b "), []);
    assert_eq!(at("echo # it's "), [Comment]);
    assert_eq!(at("echo $'a\\'"), [Ansi]);
    assert_eq!(at("( cd "), []);
}

#[test]
fn no_value_runs_wherever_it_stands() {
    let values =
        ["$(touch ran)", "`touch ran`", "'; touch ran; '", "\"; touch ran; \"", "a\ntouch ran", "\\", "* ~ $HOME"];
    for value in values {
        for line in ["printf %s ", "printf %s '", "printf %s \"", "x=`printf %s ", ": # "] {
            let directory = tempfile::tempdir().expect("a directory");
            let mut text = line.as_bytes().to_vec();
            push_at(&mut text, value.as_bytes(), &at(line), Language::Posix);
            text.extend_from_slice(match line.bytes().find(|byte| b"'\"`".contains(byte)) {
                Some(b'`') => b"`; printf %s \"$x\"",
                Some(b'"') => b"\"",
                Some(_) => b"'",
                None => b"",
            });
            let mut shell = std::process::Command::new("/bin/sh");
            let words = [std::ffi::OsStr::new("-c"), std::os::unix::ffi::OsStrExt::from_bytes(&text[..])];
            let output = shell.args(words).current_dir(&directory).output().expect("a shell");
            assert!(output.status.success(), "{line} {value}: {output:?}");
            assert!(!directory.path().join("ran").exists(), "{line} {value}");
            if line.ends_with("%s ") || line.ends_with('\'') {
                assert_eq!(output.stdout, value.as_bytes(), "{line}");
            }
        }
    }
}

/// The shells of the test that are installed, with the language of their lines.
fn shells() -> Vec<(&'static [&'static str], Language)> {
    let all: [(&[&str], Language); 6] = [
        (&["/bin/sh"], Language::Posix),
        (&["dash"], Language::Posix),
        (&["busybox", "sh"], Language::Posix),
        (&["bash"], Language::Bash),
        (&["zsh"], Language::Bash),
        (&["fish"], Language::Fish),
    ];
    let is_installed = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|entry| entry.join(name).exists())
    };
    all.into_iter().filter(|(words, _)| is_installed(words[0])).collect()
}

/// The line of a command for these values.
fn line(command: &str, values: &[&[u8]], language: Language) -> Result<Vec<u8>, String> {
    let (words, strings) = ([command.as_bytes().to_vec()], Strings::default());
    let template = Template::parse(&words, &strings, Fill::Arguments, false, true, language)?;
    let values: Vec<Vec<u8>> = values.iter().map(|value| value.to_vec()).collect();
    Ok(template.expand(&values, Numbers { seq: 1, slot: 1, slots: 1, total: 1 }))
}

/// Runs a line in a directory. What it wrote, and whether it has made the file `ran`.
fn run(shell: &[&str], line: &[u8], directory: &std::path::Path) -> (Vec<u8>, bool) {
    let mut command = std::process::Command::new(shell[0]);
    command.args(&shell[1..]).arg("-c").arg(std::ffi::OsStr::from_bytes(line)).current_dir(directory);
    command.env("HOME", directory).stdin(std::process::Stdio::null());
    let output = command.output().expect("a shell");
    (output.stdout, std::fs::remove_file(directory.join("ran")).is_ok())
}

/// Random numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// A command: C in a pattern becomes a command, W a word, and N may become a byte that opens or closes something. No
    /// word is a command: the output of `$(…)` would run.
    fn command(&mut self, depth: usize) -> String {
        const COMMANDS: &[&str] = &[
            "printf %s W",
            ": W W",
            "x=W",
            "printf %s W | cat",
            "(C)",
            "( C )",
            "{ C; }",
            "C;C",
            "C & C",
            ": # W\nC",
            ": #NW\nC",
            "case W in (x) C;; *) C;; esac",
            "case x in x) C;; esac",
            "[[ W = W ]]",
            "cat <<< W",
            "a=(W W)",
            "cat <<E\nit's\nE\nC",
            "cat <<-'E F' W\n\"\n\tE F\nC",
            "(cat <<\"E\"\n` (\nE\n); C",
            "echo $((1<<2)) W\nC",
            "if C; then C; fi",
            "f() { C; }; f",
            "C N W",
            "[[ x =~ (a|#b) ]] W",
            "x=W; C",
            "for i in W; do C; done",
        ];
        const WORDS: &[&str] = &[
            "{1}",
            "{2}",
            "'{1}'",
            "\"{1}\"",
            "$'{1}'",
            "a{1}b",
            "\"$(C)\"",
            "$(C)",
            "`C`",
            "\"`C`\"",
            "${x:-W}",
            "{1}",
            "\"${x:-W}\"",
            "\"${x-a{1}}\"",
            "\"${H%{1}}\"",
            "${H#W}",
            "\"a 'b {1}\"",
            "\\W",
            "\\\nW",
            "$\"{1}\"",
            "$W",
            "=W",
            "~W",
            "!W",
            "it\\'s",
            "\"\\\"{2}\\\"\"",
            "$'it\\'s'",
            "'a'\"b\"W",
            "#W",
            "a#W",
            "\\\\",
            "{3}W",
            "<(C)",
            "\"`C \\\"{1}\\\"`\"",
            "$W#",
            "`C # N`",
            "$$W",
            "\"$$(W\"",
            "@(#W)",
            "W\\\n#W",
            "${#x}W",
            "\"${x:-\"W\"}\"",
            "`\\$x \\\\W`",
            "$(C # N\n)",
            "$(C #N\n)",
            "\"W\"",
            "'N{1}'",
            "\"N{2}\"",
            "N",
            "WW",
            "{2}",
            "'{2}'",
        ];
        let mut made = String::new();
        for letter in self.one(COMMANDS).chars() {
            match letter {
                'C' | 'W' if depth == 0 => made.push_str(self.one(&["{1}", "'{2}'", "\"{1}\"", ":", "x"])),
                'C' => made.push_str(&self.command(depth - 1)),
                'W' => made.push_str(&self.make_word(WORDS, depth - 1)),
                'N' => made.push_str(self.one(&["", "'", "\"", "`: ", "$", "\\", ")", "}", "#", " #", "\n: ", "{3}"])),
                letter => made.push(letter),
            }
        }
        made
    }

    fn make_word(&mut self, patterns: &[&str], depth: usize) -> String {
        let mut made = String::new();
        for letter in self.one(patterns).chars() {
            match letter {
                'C' if depth > 0 => made.push_str(&self.command(depth - 1)),
                'W' if depth > 0 => made.push_str(&self.make_word(patterns, depth - 1)),
                'C' | 'W' => made.push_str(self.one(&["{1}", "'{2}'", "\"{1}\"", "x"])),
                'N' => made.push_str(self.one(&["", "'", "\"", "`: ", "$", "\\", ")", "}", "#", " #", "\n: "])),
                letter => made.push(letter),
            }
        }
        made
    }

    /// A value that runs `touch ran` wherever its quotes fail.
    fn value(&mut self) -> Vec<u8> {
        const PIECES: &[&str] = &[
            ";touch ran;",
            "$(touch ran)",
            "`touch ran`",
            "\ntouch ran\n",
            "'",
            "\"",
            "\\",
            "\n",
            "#",
            " #",
            ")",
            "}",
            "(",
            "{",
            "$",
            " ",
            "-",
            "=",
            "~",
            "!",
            "case",
            "E",
            "|touch ran|",
            "&touch ran&",
            "''",
            "\\'",
            "\\\"",
            "`",
            "x",
        ];
        let mut value = Vec::new();
        for _ in 0..=self.below(6) {
            value.extend_from_slice(self.one(PIECES).as_bytes());
        }
        if self.below(8) == 0 {
            value.insert(0, 0xff);
        }
        value
    }
}

#[test]
fn no_value_runs_in_random_commands() {
    let count: usize =
        std::env::var("FORKLESS_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1) * 120;
    std::thread::scope(|scope| {
        for (seed, (shell, language)) in shells().into_iter().enumerate() {
            scope.spawn(move || {
                let directory = tempfile::tempdir().expect("a directory");
                let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ seed as u64);
                let mut made = 0;
                // A start of fish takes long.
                while made < if language == Language::Fish { count / 4 } else { count } {
                    let depth = 1 + dice.below(3);
                    let command = format!(":;{}", dice.command(depth));
                    // The documentation has it as an exception.
                    if command.replace("$((1<<2))", "").contains("((") {
                        continue;
                    }
                    let values = [dice.value(), dice.value()];
                    let Ok(line) = line(&command, &[&values[0], &values[1]], language) else { continue };
                    made += 1;
                    let (_, has_run) = run(shell, &line, directory.path());
                    let [line, first, second] =
                        [&line, &values[0], &values[1]].map(|text| String::from_utf8_lossy(text));
                    assert!(!has_run, "{shell:?}\n{command:?}\n{first:?} {second:?}\n{line}");
                }
            });
        }
    });
}

#[test]
fn a_value_that_is_one_word_arrives_unchanged() {
    let all = ["printf %s {}", "printf %s '{}'", "set x {}; printf %s $x"];
    let posix = [
        "printf %s {}",
        "printf %s '{}'",
        "x={}; printf %s \"$x\"",
        "x=${y:-{}}; printf %s \"$x\"",
        "x=`printf '%s|' {}`; printf %s \"${x%|}\"",
        "x=\"`printf '%s|' {}`\"; printf %s \"${x%|}\"",
        "x=$(printf '%s|' '{}' # it's {}\n); printf %s \"${x%|}\"",
        "x={}; y=a$x; printf %s \"${y#\"a\"}\"",
        "x=a{}b; x=\"${x%{}b}\"{}; printf %s \"${x#a}\"",
        "printf %s `\\\n# it's {}\n`{}",
        "cat << 'E' > /dev/null\nit's\nE\nprintf %s '{}'",
        "printf %s \"$(case {} in *) printf '' ;; esac)\"'{}'",
    ];
    let bash = ["printf %s $'{}'", "x=({}); printf %s \"${x[@]}\"", "printf %s \"$(cat <(printf %s {}; echo '|'))\""];
    let mut dice = Dice(1);
    for (shell, language) in shells() {
        let directory = tempfile::tempdir().expect("a directory");
        let commands: Vec<&str> = match language {
            Language::Posix => posix.to_vec(),
            Language::Bash => posix.iter().chain(&bash).copied().collect(),
            Language::Fish => all.to_vec(),
        };
        for command in commands {
            for _ in 0..4 {
                let value = dice.value();
                let Ok(line) = line(command, &[&value], language) else {
                    assert!(command.contains("case"), "{command}");
                    continue;
                };
                let (output, has_run) = run(shell, &line, directory.path());
                let output = if command.contains("<(") { output[..output.len() - 1].to_vec() } else { output };
                let [found, expected] = [&output, &value].map(|text| String::from_utf8_lossy(text));
                assert!(!has_run && found == expected, "{shell:?} {command}: {found:?} is not {expected:?}");
            }
        }
    }
}

/// The line in its shells does not run the value. What the first one writes.
fn harmless(command: &str, language: Language, value: &str) -> String {
    let line = line(command, &[value.as_bytes()], language).expect("a line");
    let directory = tempfile::tempdir().expect("a directory");
    let shells = shells().into_iter().filter(|(_, other)| *other == language);
    let outputs = shells.map(|(shell, _)| {
        let (output, has_run) = run(shell, &line, directory.path());
        assert!(!has_run, "{shell:?}: {}", String::from_utf8_lossy(&line));
        String::from_utf8(output).expect("UTF-8")
    });
    outputs.collect::<Vec<_>>().into_iter().next().unwrap_or_default()
}

#[test]
fn quotes_in_backquotes_need_no_backslash() {
    let nested = r#"printf %s "`printf %s \"{}\"`""#;
    for language in [Language::Posix, Language::Bash] {
        assert_eq!(harmless(nested, language, "$(touch ran)"), "'$(touch ran)'");
    }
}

#[test]
fn a_backquote_ends_a_comment() {
    assert_eq!(harmless("printf %s `printf %s hi # now` '{}'", Language::Posix, "';touch ran;'"), "hi';touch ran;'");
}

#[test]
fn a_comment_may_follow_a_joined_line() {
    assert_eq!(harmless("echo \\\n# note {}", Language::Posix, "a\ntouch ran #"), "\n");
}

#[test]
fn fish_has_backslashes_in_quotes() {
    let value = r"x\' ; touch ran #";
    let made = |command: &str| String::from_utf8(line(command, &[value.as_bytes()], Language::Fish).expect("a line"));
    assert_eq!(made("echo '{}'").as_deref(), Ok(r"echo 'x\\\' ; touch ran #'"));
    assert_eq!(made("echo \"{}\"").as_deref(), Ok(r#"echo "'x\\\\\\' ; touch ran #'""#));
    harmless("echo '{}'", Language::Fish, value);
    harmless("echo \"{}\"", Language::Fish, value);
    harmless(r"echo 'it\'s' {}", Language::Fish, value);
}

#[test]
fn no_value_runs_after_a_dollar_or_in_braces() {
    for value in ["\\'';touch ran #", "(touch ran)", "it's } \" $(touch ran)", "';touch ran;'", "x\n'"] {
        for command in
            ["echo ${}", "echo $${}", "echo \"${x%{}}\" '{}'", "echo \"${x:-{}}\" '{}'", "echo ${x:-a #b} '{}'"]
        {
            for language in [Language::Posix, Language::Bash] {
                harmless(command, language, value);
            }
        }
    }
}

#[test]
fn where_shells_differ_no_value_is_inserted() {
    let refused = [
        (r#"echo "${x:-"{}"}""#, "quotes in `\"${…}\"`"),
        (r#"echo "${x#'a'}" {}"#, "quotes in `\"${…}\"`"),
        (r#"echo "$(case x in x) echo {};; esac)""#, "`case` in parentheses"),
        ("echo `echo \\`echo {}\\``", "nested backquotes"),
        (r"echo \{}", "a backslash"),
        (r#"echo "\{}""#, "a backslash"),
        ("echo {3}# '{}'", "an argument that may be absent"),
        ("echo ${3}'{}'", "an argument that may be absent"),
        ("cat << {}", "`<<`"),
        ("cat << A << B\nA\n'\nB\necho '{}'", "two here-documents"),
        ("echo $[1] {}", "`$[…]`"),
        ("echo @(#a|b) '{}'", "this `#`"),
        ("echo *(e:{}:)", "`(` in a word or pattern"),
        ("echo ${x:-{} '{}'}", "this `${…}`"),
    ];
    for (command, reason) in refused {
        // Not a replacement string, but a brace.
        let command = command.replace("-{} '", "-{ '");
        for language in [Language::Posix, Language::Bash] {
            let error = line(&command, &[b"x"], language).expect_err(&command);
            assert!(error.contains(reason) && error.contains("script"), "{command}: {error}");
        }
    }
    let error = line("echo $'{}'", &[b"x"], Language::Posix).expect_err("refused");
    assert!(error.contains("`$'`, which not each shell has"), "{error}");
    assert!(line("echo \"$(echo '{}')\"", &[b"x"], Language::Fish).is_err());
}

#[test]
fn usual_commands_take_values() {
    let usual = [
        "gzip -c {} > '{.}.gz'",
        "for i in 1 2; do (cd {} && make); done",
        "x={}; echo \"${x%.*}\" ${x##*/} {/}",
        "awk '{print $1}' {} | sort -k1,1 # it's",
        "echo $((1 + {}))",
        "echo \"$(basename {} .c)\" {}",
        "echo $$ {#} {}#{#}",
        "if [ -e {} ]; then (echo {}); fi",
        "case {} in a) echo {};; (b|c) echo '{}';; esac",
        "[[ {} == *.c ]] && echo {}",
        "cat <<E\n{}\nE\necho {}",
        "diff <(sort {}) <(sort {.})",
        "( # it's\necho {} )",
        "a=({} {.}); echo \"${#a[@]}\" {}",
        "echo \"${OUT:-{}.out}\" \"${HOME}/{}\"",
        "awk \"{print \\$1}\" {}",
        "echo \"`awk '{print \\$2}' {}`\" {}",
        "f() { echo {}; }; f",
    ];
    for command in usual {
        for language in [Language::Posix, Language::Bash] {
            line(command, &[b"a b"], language).expect(command);
        }
    }
}
