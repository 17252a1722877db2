//! Compares lines that are run without a shell with `sh -c` of the same.
//!
//! `shellfuzz [--shell FILE] [--against FILE] [--probe FILE] [--seed N] [--executed N] [--classified N] [--seconds N] [--control] [--reasons]
//! [--commands FILE] [--names]`:
//! makes lines until so many have been executed in both ways, and classified at all, or the time is over. Exit code 1 means a
//! difference, 77 that nothing may be run here. With `--control` a rule is broken: a star is taken for itself. With `--commands` the lines come from a file, and
//! each program in them is a stand-in. With `--names` each word that the shell's file
//! contains is a variable of the environment, with several values. With `--against` the other side is that shell, which the library does not know: then what the
//! program finds of its environment and signals, and what is written to standard error, is not compared.

use forkless::ShellRoute;
use grammar::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use world::{Conditions, Outcome, World};

#[path = "../shellfuzz/fence.rs"]
mod fence;
#[path = "../shellfuzz/grammar.rs"]
mod grammar;
#[path = "../shellfuzz/world.rs"]
mod world;

struct Options {
    shell: PathBuf,
    probe: PathBuf,
    seed: u64,
    executed: usize,
    classified: usize,
    seconds: u64,
    control: bool,
    names: bool,
    commands: Option<PathBuf>,
    reasons: bool,
    place: Option<PathBuf>,
    against: Option<PathBuf>,
}

impl Options {
    fn read() -> Self {
        let probe = std::env::current_exe().expect("our own name").with_file_name("shellprobe");
        let (shell, commands) = ("/bin/sh".into(), None);
        let mut found = Self {
            shell,
            probe,
            seed: 1,
            executed: 1000,
            classified: 0,
            seconds: 600,
            control: false,
            names: false,
            commands,
            reasons: false,
            place: None,
            against: None,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_else(|| panic!("{word} needs a value"));
            let number = |text: String| text.parse().unwrap_or_else(|_| panic!("{text} is no number"));
            match word.as_str() {
                "--shell" => found.shell = value().into(),
                "--probe" => found.probe = value().into(),
                "--seed" => found.seed = number(value()),
                "--executed" => found.executed = number(value()) as usize,
                "--classified" => found.classified = number(value()) as usize,
                "--seconds" => found.seconds = number(value()),
                "--commands" => found.commands = Some(std::path::absolute(value()).expect("a directory")),
                "--against" => found.against = Some(value().into()),
                "--place" => found.place = Some(value().into()),
                "--reasons" => found.reasons = true,
                "--control" => found.control = true,
                "--names" => found.names = true,
                other => panic!("{other} is no option"),
            }
        }
        found
    }
}

/// The result of a run.
#[derive(Debug, Default)]
struct Tally {
    classified: usize,
    /// Found fit to be run directly.
    direct: usize,
    /// Run in both ways.
    executed: usize,
    /// Of these, such as went to the shell after all.
    fell_back: usize,
    /// Of these, such as died of a signal that a terminal sends: told otherwise, as documented.
    terminal: usize,
    different: usize,
    reasons: BTreeMap<String, usize>,
}

/// The exit code where nothing may be run.
const SKIPPED: u8 = 77;

fn main() -> ExitCode {
    let options = Options::read();
    let Some(place) = &options.place else { return in_a_directory() };
    let mut world = match World::new(place, &options.shell, options.against.as_deref(), &options.probe) {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            println!("SKIPPED: lines made at random, because {error} to fence them in");
            return ExitCode::from(SKIPPED);
        }
        world => world.expect("a directory to work in"),
    };
    let start = Instant::now();
    let tally = match &options.commands {
        Some(file) => commands(&options, &mut world, file),
        None if options.names => names(&options, &mut world),
        None => fuzz(&options, &mut world, start),
    };
    if options.reasons {
        for (reason, count) in &tally.reasons {
            println!("{count:7} {:5.1} %  {reason}", 100.0 * *count as f64 / tally.classified.max(1) as f64);
        }
    }
    println!(
        "seed {}: classified {}, of them direct {}; executed in both ways {}, of them by the shell after all {}, ended by a \
         terminal's signal {}; different {}; {:.1} s",
        options.seed,
        tally.classified,
        tally.direct,
        tally.executed,
        tally.fell_back,
        tally.terminal,
        tally.different,
        start.elapsed().as_secs_f64()
    );
    if tally.different == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs this program once more, in a directory that it cannot remove itself; in memory if there is such a one.
fn in_a_directory() -> ExitCode {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.expect("a directory");
    let mut again = Command::new(std::env::current_exe().expect("our own name"));
    again.args(std::env::args_os().skip(1)).arg("--place").arg(place.path());
    // It limits the size of its files, and this process may write to one that is larger.
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let mut child = again.stderr(writer.try_clone().expect("a pipe")).stdout(writer).spawn().expect("once more");
    drop(again);
    std::io::copy(&mut reader, &mut std::io::stdout()).expect("its output");
    let status = child.wait().expect("its end");
    let Some(code) = status.code().and_then(|code| u8::try_from(code).ok()) else {
        let last = std::fs::read(place.path().join("w.line")).unwrap_or_default();
        println!("{status}, at {:?}", String::from_utf8_lossy(&last));
        return ExitCode::from(2);
    };
    ExitCode::from(code)
}

fn fuzz(options: &Options, world: &mut World, start: Instant) -> Tally {
    let mut random = Random::new(options.seed);
    let mut tally = Tally::default();
    let limit = Duration::from_secs(options.seconds);
    while (tally.executed < options.executed || tally.classified < options.classified) && start.elapsed() < limit {
        // A new environment costs more than a line.
        let conditions = Conditions::any(&mut random, world);
        world.set_environment(&conditions.environment);
        for _ in 0..8 {
            let line = grammar::line(&mut random);
            if tally.executed < options.executed {
                compare(options, world, &line, &conditions, &mut tally);
            } else {
                classify(world, &line, &conditions, &mut tally);
            }
        }
    }
    tally
}

/// Each word in the shell's file that could be a variable's name: the shell may heed it, or change it. Those that the library does
/// not give to the shell are compared, many at once.
fn names(options: &Options, world: &mut World) -> Tally {
    const AT_ONCE: usize = 10;
    let mut tally = Tally::default();
    let file = std::fs::read(&options.shell).expect("the shell's file");
    let is_name = |word: &&[u8]| {
        word.len() > 1
            && !word[0].is_ascii_digit()
            && word.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    };
    let words: BTreeSet<&str> =
        file.split(|byte| *byte == 0).filter(is_name).filter_map(|word| std::str::from_utf8(word).ok()).collect();
    let own = world.variables();
    for value in ["", "1", "/tmp", "*p"] {
        let mut passed = Vec::new();
        for word in words.iter().filter(|word| !own.iter().any(|own| own.split('=').next() == Some(**word))) {
            let entry = format!("{word}={value}");
            let conditions = Conditions::plain([&own[..], std::slice::from_ref(&entry)].concat());
            world.set_environment(&conditions.environment);
            if classify(world, b"p a", &conditions, &mut tally) {
                passed.push(entry);
            }
        }
        for some in passed.chunks(AT_ONCE) {
            let conditions = Conditions::plain([&own[..], some].concat());
            world.set_environment(&conditions.environment);
            compare(options, world, b"p a", &conditions, &mut tally);
        }
    }
    tally
}

/// Which way would it go?
fn classify(world: &World, line: &[u8], conditions: &Conditions, tally: &mut Tally) -> bool {
    tally.classified += 1;
    let route = world.line(line, conditions).expect("a command").route();
    let direct = route == ShellRoute::Direct;
    tally.direct += usize::from(direct);
    *tally.reasons.entry(route.to_string()).or_default() += 1;
    direct
}

fn compare(options: &Options, world: &World, line: &[u8], conditions: &Conditions, tally: &mut Tally) {
    let mut taken = line.to_vec();
    if options.control {
        if !line.contains(&b'*') {
            return;
        }
        taken = line
            .iter()
            .flat_map(|byte| if *byte == b'*' { &b"\\*"[..] } else { std::slice::from_ref(byte) })
            .copied()
            .collect();
    }
    if !classify(world, &taken, conditions, tally) {
        return;
    }
    tally.executed += 1;
    world.note(&taken).expect("a note");
    let (direct, route) = world.run_line(&taken, conditions).expect("a run");
    if route != ShellRoute::Direct {
        tally.fell_back += 1;
        *tally.reasons.entry(route.to_string()).or_default() += 1;
    }
    let (mut direct, mut by_shell) = (direct, world.run_shell(line, conditions).expect("a run"));
    if options.against.is_some() {
        // A shell's messages about deaths and failures are its own.
        if route != ShellRoute::Direct
            || direct.status.as_ref().is_ok_and(|status| status & 0x7f != 0 || status >> 8 >= 128)
        {
            return;
        }
        // Not the probe: busybox has programs of these names in itself.
        if direct.report.is_none() && by_shell.report.is_none() {
            return;
        }
        [&mut direct, &mut by_shell].into_iter().for_each(Outcome::leave_out_what_is_the_shells);
    }
    if direct == by_shell {
        return;
    }
    if is_terminal_death(&direct, &by_shell) {
        tally.terminal += 1;
        return;
    }
    tally.different += 1;
    if tally.different <= 5 {
        println!("{:?}\n  {conditions:?}\n  {route}", String::from_utf8_lossy(line));
        show_difference(&direct, &by_shell);
    }
}

/// SIGHUP, SIGINT and SIGQUIT are not told as 128+n: a terminal would have sent them to the shell too. Then it cannot say so, either.
fn is_terminal_death(direct: &Outcome, by_shell: &Outcome) -> bool {
    matches!((&direct.status, &by_shell.status), (Ok(signal @ 1..=3), Ok(code)) if *code == (128 + signal) << 8)
}

fn show_difference(direct: &Outcome, by_shell: &Outcome) {
    let (one, other) = (format!("{direct:#?}"), format!("{by_shell:#?}"));
    let text = |report: &Option<Vec<u8>>| {
        report.as_ref().map_or_else(|| "no report".to_owned(), |bytes| String::from_utf8_lossy(bytes).into_owned())
    };
    if direct.report != by_shell.report {
        println!("  directly:\n{}\n  by the shell:\n{}", text(&direct.report), text(&by_shell.report));
    }
    println!("  status {:?} {:?}", direct.status, by_shell.status);
    println!("  {:?} {:?}", String::from_utf8_lossy(&direct.stdout), String::from_utf8_lossy(&by_shell.stdout));
    println!("  {:?} {:?}", String::from_utf8_lossy(&direct.stderr), String::from_utf8_lossy(&by_shell.stderr));
    if direct.files != by_shell.files {
        let lines = one.lines().filter(|line| !other.contains(*line)).count();
        println!("  files differ, in {lines} lines");
        for (path, entry) in &direct.files {
            if by_shell.files.get(path) != Some(entry) {
                println!("  {path:?}: {entry:?} {:?}", by_shell.files.get(path));
            }
        }
        by_shell
            .files
            .keys()
            .filter(|path| !direct.files.contains_key(*path))
            .for_each(|path| println!("  missing: {path:?}"));
    }
}

/// Lines from a file: a share of them runs directly, and that is compared, with stand-ins for their programs.
fn commands(options: &Options, world: &mut World, file: &PathBuf) -> Tally {
    let text = std::fs::read_to_string(file).expect("a file of commands");
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let mut names: Vec<String> = lines
        .iter()
        .flat_map(|line| line.split_whitespace())
        .map(|word| word.trim_matches(['\'', '"']).to_owned())
        .collect();
    names.retain(|name| !name.is_empty() && !name.contains('/') && name.len() < 100);
    let conditions = Conditions::plain(world.stand_ins(&names).expect("stand-ins"));
    world.set_environment(&conditions.environment);
    let mut tally = Tally::default();
    for line in &lines {
        // Nothing outside may be written to, or run.
        let outside = |mark: &str| {
            line.split(mark).skip(1).any(|rest| {
                let target = rest.trim_start_matches(['>', ' ']);
                target.starts_with('/') && !target.starts_with("/dev/null")
            })
        };
        let program = line.split_whitespace().find(|word| *word != "exec" && !word.contains('=')).unwrap_or("");
        if outside(">") || program.contains('/') {
            classify(world, line.as_bytes(), &conditions, &mut tally);
        } else {
            compare(options, world, line.as_bytes(), &conditions, &mut tally);
        }
    }
    tally
}
