//! Runs a program with and without the library, and compares.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use tempfile::TempDir;

/// The installed library; none if it cannot be built.
pub(crate) fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = LIBRARY.get_or_init(|| {
        let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let prefix = own.join("real");
        let library = prefix.join("lib/libforkless_preload.so");
        let is_writable = tempfile::tempfile_in(own).is_ok();
        match testing::dist::install_once(&prefix, own.parent().expect("a directory of cargo's")) {
            Ok(()) => Some(library),
            // If this user cannot write to the tree, its owner may have installed it before.
            Err(_) if !is_writable && library.exists() => Some(library),
            Err(error) if !is_writable => {
                say(&format!("SKIPPED: real programs because cargo cannot build as this user: {error:#}"));
                None
            }
            Err(error) => panic!("{error:#}"),
        }
    });
    made.as_deref()
}

/// Written to the terminal directly, because the harness hides the output of passing tests.
pub(crate) fn say(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// The directories of Debian's programs.
pub(crate) const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";

/// The path of a program.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    PATH.split(':').map(|directory| Path::new(directory).join(program)).find(|file| file.exists())
}

/// How the program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Without the library.
    Without,
    With,
    /// With the library and a log line for each launch.
    Logged,
    /// With the library and FORKLESS=off: any launch would be logged.
    Off,
    /// With the library, the log, and FORKLESS_INHERIT=stdio.
    Stdio,
}

/// The result of a program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    /// Without the log lines of the library.
    pub(crate) err: String,
}

/// The log lines of the library.
pub(crate) struct Log(pub(crate) Vec<String>);

impl Log {
    /// How often `function` ran `what`, in log lines that contain `how`.
    pub(crate) fn count(&self, function: &str, what: &str, how: &str) -> usize {
        let begin = format!("{function}({:?}): ", OsStr::new(what));
        self.0.iter().filter(|line| line.starts_with(&begin) && line.contains(how)).count()
    }

    /// Asserts that `function` ran `what` at least once.
    #[track_caller]
    pub(crate) fn has(&self, function: &str, what: &str, how: &str) {
        assert!(self.count(function, what, how) > 0, "no {function}({what:?}) … {how} in {:#?}", self.0);
    }
}

/// In the log: without a shell.
pub(crate) const DIRECT: &str = "without a shell";
/// In the log: with a shell.
pub(crate) const SHELL: &str = "by the shell: ";

/// A directory of the same name for every run, and the files that it has at the start.
pub(crate) struct Place {
    own: TempDir,
    library: PathBuf,
    files: Vec<(String, String)>,
    input: &'static str,
    ways: Vec<Way>,
}

impl Place {
    /// None if one of the programs is missing, which is reported.
    pub(crate) fn for_programs(programs: &[&str]) -> Option<Self> {
        for program in programs {
            if find(program).is_none() {
                say(&format!("SKIPPED: {} because {program} is not installed", programs[0]));
                return None;
            }
        }
        let own = tempfile::tempdir().expect("a temporary directory");
        // Programs of other users must be able to find it.
        fs::set_permissions(own.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
        let library = own.path().join("libforkless_preload.so");
        fs::copy(self::library()?, &library).expect("a copy");
        let ways = vec![Way::With, Way::Logged, Way::Off, Way::Stdio];
        Some(Self { own, library, files: Vec::new(), input: "", ways })
    }

    pub(crate) fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    pub(crate) fn input(mut self, text: &'static str) -> Self {
        self.input = text;
        self
    }

    /// Leaves out one setting, for a program that passes descriptors to its children.
    pub(crate) fn but(mut self, way: Way) -> Self {
        self.ways.retain(|one| *one != way);
        self
    }

    /// A directory outside of that of the runs.
    pub(crate) fn outside(&self) -> &Path {
        self.own.path()
    }

    /// The working directory of the runs.
    pub(crate) fn inside(&self) -> PathBuf {
        self.own.path().join("run")
    }

    /// Applies a setting to a command that the test starts itself. Programs get a small, constant environment.
    pub(crate) fn put<'a>(&self, command: &'a mut Command, way: Way) -> &'a mut Command {
        command.env_clear().env("PATH", PATH).env("LANG", "C.UTF-8").env("HOME", self.own.path());
        if way != Way::Without {
            command.env("LD_PRELOAD", &self.library);
        }
        match way {
            Way::Without | Way::With => command,
            Way::Logged => command.env("FORKLESS_LOG", "1"),
            Way::Off => command.env("FORKLESS_LOG", "1").env("FORKLESS", "off"),
            Way::Stdio => command.env("FORKLESS_LOG", "1").env("FORKLESS_INHERIT", "stdio"),
        }
    }

    /// Runs the program in a new directory.
    pub(crate) fn run(&self, words: &[&str], way: Way) -> (Seen, Log) {
        let inside = self.inside();
        let _ = fs::remove_dir_all(&inside);
        fs::create_dir(&inside).expect("a directory");
        for (name, text) in &self.files {
            let file = inside.join(name);
            fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
            fs::write(&file, text).expect("a file");
        }
        // Files instead of pipes: a process that stays in the background keeps them open, and the test must not wait
        // for it.
        let (out, err) = (self.own.path().join("out"), self.own.path().join("err"));
        let input = self.own.path().join("in");
        fs::write(&input, self.input).expect("a file");
        let open = |path: &Path| {
            let _ = fs::remove_file(path);
            OpenOptions::new().create(true).append(true).open(path).expect("a file")
        };
        let mut command = Command::new("/usr/bin/timeout");
        command.args(["-k", "5", "120"]).args(words).current_dir(&inside);
        command.stdin(File::open(&input).expect("a file")).stdout(open(&out)).stderr(open(&err));
        let status = self.put(&mut command, way).status().expect("timeout");
        assert_ne!(status.code(), Some(124), "{words:?} has taken too long, {way:?}");
        let read = |path| String::from_utf8_lossy(&fs::read(path).expect("a file")).into_owned();
        let (err, log) = split(&read(err));
        (Seen { status, out: read(out), err }, log)
    }

    /// Runs the program with all settings. The results must be the same after `plain`, which removes what differs from
    /// run to run. Returns the log lines.
    #[track_caller]
    pub(crate) fn compare_by(&self, words: &[&str], plain: impl Fn(&str) -> String) -> (Seen, Log) {
        let plain = |seen: Seen| Seen { out: plain(&seen.out), err: plain(&seen.err), ..seen };
        let (expected, none) = self.run(words, Way::Without);
        let expected = plain(expected);
        assert!(none.0.is_empty(), "lines without the library: {:#?}", none.0);
        let mut told = Vec::new();
        for &way in &self.ways {
            let (seen, log) = self.run(words, way);
            assert_eq!(plain(seen), expected, "{words:?}, {way:?}\n{:#?}", log.0);
            match way {
                Way::Logged => told = log.0,
                Way::Off | Way::With => assert!(log.0.is_empty(), "lines from {way:?}: {:#?}", log.0),
                Way::Stdio => assert_eq!(log.0.len(), told.len(), "{:#?} with {way:?}, before: {told:#?}", log.0),
                Way::Without => {}
            }
        }
        (expected, Log(told))
    }

    #[track_caller]
    pub(crate) fn compare(&self, words: &[&str]) -> (Seen, Log) {
        self.compare_by(words, str::to_owned)
    }
}

/// Separates a program's standard error from the log lines of the library.
pub(crate) fn split(mixed: &str) -> (String, Log) {
    const MARK: &str = "forkless: ";
    let (mut rest, mut plain, mut lines) = (mixed, String::new(), Vec::new());
    while let Some((before, after)) = rest.split_once(MARK) {
        let (line, after) = after.split_once('\n').unwrap_or((after, ""));
        plain.push_str(before);
        lines.push(line.to_owned());
        rest = after;
    }
    (plain + rest, Log(lines))
}

#[test]
fn log_lines_are_separated_from_standard_error() {
    let (plain, log) = split("a\nbforkless: one\nc\nforkless: two\n");
    assert_eq!((plain.as_str(), log.0), ("a\nbc\n", vec!["one".to_owned(), "two".to_owned()]));
}
