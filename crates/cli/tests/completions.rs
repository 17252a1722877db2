//! The completion scripts in real shells.

testing::usual_surroundings!();

mod callers;

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use callers::skipped;

/// A line, and what the word at its end may become. A space at the end begins a new word.
const LINES: [(&str, &[&str]); 24] = [
    ("forkless do", &["doctor"]),
    ("forkless ", &["run", "bench", "doctor", "completions", "man"]),
    ("forkless run --hostn", &["--hostname"]),
    ("forkless run --unshare-", &["--unshare-user", "--unshare-pid", "--unshare-all"]),
    ("forkless run -i --timeout 5 --kill-a", &["--kill-after"]),
    ("forkless run --help name", &["namespaces"]),
    ("forkless run --signal WIN", &["WINCH"]),
    ("forkless run -s WIN", &["WINCH"]),
    ("forkless run --signal=WIN", &["--signal=WINCH"]),
    ("forkless run --ignore-signal=TERM,WIN", &["--ignore-signal=TERM,WINCH"]),
    ("forkless run --best-effort landl", &["landlock"]),
    ("forkless run --best-effort landlock,timer-", &["landlock,timer-slack"]),
    ("forkless run --launcher posix", &["posix_spawn"]),
    ("forkless run --chdir some-dir", &["some-directory/"]),
    ("forkless run --stdout some-f", &["some-file"]),
    ("forkless run --stdout=some-f", &["--stdout=some-file"]),
    ("forkless run --stdout append:some-f", &["append:some-file"]),
    ("forkless run --fd 5=r:some-f", &["5=r:some-file"]),
    ("forkless run --bind some-file some-f", &["some-file"]),
    ("forkless run cat some-f", &["some-file"]),
    ("forkless run A=1 -u B cat -- some-f", &["some-file"]),
    ("forkless run --timeout 5 -- some-command-of-", &["some-command-of-ours"]),
    ("forkless completions fi", &["fish"]),
    ("forkless man doc", &["doctor"]),
];

struct Place {
    directory: tempfile::TempDir,
    path: String,
}

impl Place {
    /// A directory with two files, and a command in PATH.
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let at = |name: &str| directory.path().join(name);
        fs::write(at("some-file"), "").expect("a file");
        fs::create_dir(at("some-directory")).expect("a directory");
        fs::create_dir(at("bin")).expect("a directory");
        std::os::unix::fs::symlink("/bin/true", at("bin/some-command-of-ours")).expect("a link");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_forkless"), at("bin/forkless")).expect("a link");
        let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").unwrap_or_default());
        Self { directory, path }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Runs a program there, with nothing of the user's configuration.
    fn run(&self, program: &str, words: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(words).current_dir(self.path()).env("PATH", &self.path).env("HOME", self.path());
        for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"] {
            command.env(name, self.path());
        }
        command.env("LC_ALL", "C.UTF-8").env("TERM", "xterm").output().expect("the shell starts")
    }
}

/// Writes the script of a shell; none if the shell is not installed.
fn script(place: &Place, shell: &str, file: &str) -> Option<String> {
    if !Command::new("sh").args(["-c", &format!("command -v {shell}")]).output().expect("sh").status.success() {
        skipped(&format!("completions of {shell}"), "it is not installed");
        return None;
    }
    let output = place.run("forkless", &["completions", shell]);
    assert!(output.status.success(), "{output:?}");
    let path = place.path().join(file);
    fs::write(&path, output.stdout).expect("a script");
    Some(path.to_str().expect("text").to_owned())
}

/// As bash does it: spaces separate words, "=" and ":" are words themselves.
fn bash_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for word in line.split(' ') {
        let mut rest = word;
        while let Some(at) = rest.find(['=', ':']) {
            words.extend([&rest[..at], &rest[at..=at]].map(str::to_owned).into_iter().filter(|part| !part.is_empty()));
            rest = &rest[at + 1..];
        }
        if !rest.is_empty() || word.is_empty() {
            words.push(rest.to_owned());
        }
    }
    words
}

#[test]
fn bash_completes() {
    let place = Place::new();
    let Some(script) = script(&place, "bash", "forkless.bash") else { return };
    for (line, wanted) in LINES {
        let words = bash_words(line);
        let last = words.last().expect("a word");
        let current = if ["=", ":"].contains(&last.as_str()) { "" } else { last };
        let ask = "source \"$1\"; COMP_LINE=$2; COMP_POINT=${#2}; cur=$3; shift 3; COMP_WORDS=(\"$@\"); \
                   COMP_CWORD=$(($# - 1)); _forkless forkless \"$cur\" \"\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
        let given: Vec<&str> = ["--norc", "-c", ask, "bash", &script, line, current]
            .into_iter()
            .chain(words.iter().map(String::as_str))
            .collect();
        let output = place.run("bash", &given);
        let printed = String::from_utf8_lossy(&output.stdout);
        // Bash keeps what is before its last split.
        let whole = line.rsplit(' ').next().unwrap_or_default();
        let kept = whole.strip_suffix(current).unwrap_or_default();
        for word in wanted {
            let word = word.strip_prefix(kept).unwrap_or(word);
            // Bash itself adds the slash of a directory.
            let found = printed.lines().any(|one| one == word.trim_end_matches('/'));
            assert!(found, "{line:?}: {word:?} is not in {output:?}");
        }
        let other = printed.lines().filter(|one| !one.is_empty()).find(|one| !one.starts_with(current));
        assert!(other.is_none(), "{line:?}: {other:?}");
    }
}

#[test]
fn bash_hands_the_rest_of_the_line_to_the_completion_of_the_program() {
    let place = Place::new();
    let Some(script) = script(&place, "bash", "forkless.bash") else { return };
    let ask = "_command_offset() { echo \"offset $1\"; }; source \"$1\"; \
               COMP_LINE='forkless run --env A=b cat x'; COMP_POINT=${#COMP_LINE}; \
               COMP_WORDS=(forkless run --env A = b cat x); COMP_CWORD=7; _forkless forkless x cat";
    let output = place.run("bash", &["--norc", "-c", ask, "bash", &script]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "offset 6\n", "{output:?}");
}

/// A line that the completion of `some-command-of-ours` completes: it knows one word.
const DELEGATED: (&str, &str) = ("forkless run -i -u B some-command-of-ours ze", "zebra");

#[test]
fn fish_completes() {
    let place = Place::new();
    let Some(script) = script(&place, "fish", "forkless.fish") else { return };
    let delegated = [(DELEGATED.0, &[DELEGATED.1][..])];
    for (line, wanted) in LINES.into_iter().chain(delegated) {
        // fish 3.1 has neither --no-config nor arguments of -c.
        let ask = format!("source {script}; complete -c some-command-of-ours -f -a zebra; complete -C'{line}'");
        let output = place.run("fish", &["-c", &ask]);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.stderr.is_empty(), "{line:?}: {output:?}");
        let found: Vec<&str> = printed.lines().filter_map(|line| line.split('\t').next()).collect();
        for word in wanted {
            assert!(found.contains(word), "{line:?}: {word:?} is not in {output:?}");
        }
    }
}

/// What zsh makes of each line when Tab is pressed. The lines of the table that have one completion.
#[test]
fn zsh_completes() {
    let place = Place::new();
    if script(&place, "zsh", "_forkless").is_none() {
        return;
    }
    let mut single: Vec<(&str, &str)> =
        LINES.iter().filter(|(_, wanted)| wanted.len() == 1).map(|(line, wanted)| (*line, wanted[0])).collect();
    single.push(DELEGATED);
    let lines = single.iter().map(|(line, _)| *line);
    let output = place.run("zsh", &["-f", "-c", ZSH, "zsh"].into_iter().chain(lines).collect::<Vec<_>>());
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed.lines().count(), single.len(), "{output:?}");
    for ((line, wanted), found) in single.into_iter().zip(printed.lines()) {
        let (start, _) = line.rsplit_once(' ').expect("words");
        assert_eq!(found.trim_end(), format!("{start} {wanted}"), "{line:?}: {output:?}");
    }
}

/// Types each line and Tab into an interactive zsh, and prints the line that results.
const ZSH: &str = r#"
zmodload zsh/zpty
print -r -- 'PROMPT= RPROMPT=
fpath=($PWD $fpath)
autoload -Uz compinit
compinit -u -D
_ours() { compadd zebra }
compdef _ours some-command-of-ours
LISTMAX=0
unsetopt beep
dump() { print -r -- "$BUFFER" >line.new; BUFFER=; mv line.new line; }
zle -N dump
bindkey "^X" dump
bindkey "^I" complete-word
: >ready' >setup
wait_for() {
    local try
    for try in {1..1200}; do [[ -e $1 ]] && break; zpty -r -t shell >/dev/null; sleep 0.05; done
    cat $1
    rm -f $1
}
zpty shell zsh -f -i
zpty -w shell '. ./setup'
wait_for ready
for typed in "$@"; do
    zpty -n -w shell "$typed"$'\t\C-X'
    wait_for line
done
zpty -d shell
"#;
