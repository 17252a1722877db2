//! Runs C programs with and without the library: both runs must report the same.

testing::usual_surroundings!();

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// The prefix where the C libraries are installed; none if they cannot be built.
fn prefix() -> Option<&'static Path> {
    static PREFIX: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = PREFIX.get_or_init(|| {
        let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let prefix = own.join("preload");
        let is_ours = tempfile::tempfile_in(own).is_ok();
        match testing::dist::install_once(&prefix, own.parent().expect("a directory of cargo's")) {
            Ok(()) => Some(prefix),
            // If this user cannot write to the tree, its owner may have installed them before.
            Err(_) if !is_ours && prefix.join("lib/libforkless_preload.so").exists() => Some(prefix),
            Err(error) if !is_ours => {
                say(&format!(
                    "SKIPPED: tests of the preload library because cargo cannot build as this user: {error:#}"
                ));
                None
            }
            Err(error) => panic!("{error:#}"),
        }
    });
    made.as_deref()
}

/// Written to the terminal directly, because the harness hides the output of passing tests.
fn say(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

fn library() -> Option<PathBuf> {
    prefix().map(|prefix| prefix.join("lib/libforkless_preload.so"))
}

/// Compiles a program of `tests/c` to `to`.
fn compile(name: &str, flags: &[&str], to: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c");
    let program = to.join(name);
    let mut cc = Command::new("cc");
    cc.args([
        "-std=gnu11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-nonnull",
        "-Wno-unused-function",
        "-Wno-mismatched-dealloc",
    ]);
    let output =
        cc.args(flags).arg("-o").arg(&program).arg(source).args(["-lpthread", "-ldl", "-lrt"]).output().expect("cc");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

/// A test: its compiled programs and a directory for its runs.
struct Trial {
    directory: TempDir,
    program: PathBuf,
}

/// The result of a run.
struct Found {
    facts: String,
    /// The lines of the library's log.
    log: Vec<String>,
}

impl Found {
    /// The number of launches in the log, without those that were left to libc.
    fn served(&self) -> usize {
        self.log.iter().filter(|line| line.contains("): pid ")).count()
    }
}

impl Trial {
    fn new(name: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        compile("facts", &["-static"], directory.path());
        let program = compile(name, &[], directory.path());
        Self { directory, program }
    }

    /// Runs the program, always in a directory of the same name, so that the reports do not differ by that.
    fn run(&self, args: &[&str], variables: &[(&str, &OsStr)]) -> Found {
        let (place, report) = (self.directory.path().join("place"), self.directory.path().join("report"));
        let errors = self.directory.path().join("errors");
        for old in [&report, &errors] {
            let _ = fs::remove_file(old);
        }
        let _ = fs::remove_dir_all(&place);
        fs::create_dir(&place).expect("a directory");
        let mut run = Command::new("timeout");
        run.arg("300").arg(&self.program).arg(self.directory.path().join("facts")).arg(&report).args(args);
        run.current_dir(&place).stdin(Stdio::null()).stdout(Stdio::null());
        run.stderr(fs::File::create(&errors).expect("a file"));
        for name in ["LD_PRELOAD", "FORKLESS", "FORKLESS_LOG", "FORKLESS_INHERIT", "FACT"] {
            run.env_remove(name);
        }
        // The test harness may have further descriptors open.
        let status = run.envs(variables.iter().copied()).status().expect("a run");
        let errors = String::from_utf8_lossy(&fs::read(&errors).expect("errors")).into_owned();
        let facts = String::from_utf8_lossy(&fs::read(&report).expect("a report")).into_owned();
        assert!(status.success(), "{args:?} {variables:?}: {status}\n{errors}\nreported before: {facts}");
        let log = errors.lines().filter(|line| line.starts_with("forkless: ")).map(str::to_owned).collect();
        Found { facts, log }
    }

    /// Runs the program with the library.
    fn with(&self, library: &Path, args: &[&str], more: &[(&str, &str)]) -> Found {
        let mut variables = vec![("LD_PRELOAD", library.as_os_str()), ("FORKLESS_LOG", OsStr::new("1"))];
        variables.extend(more.iter().map(|(name, value)| (*name, OsStr::new(*value))));
        self.run(args, &variables)
    }
}

#[track_caller]
fn same(without: &Found, with: &Found) {
    for (n, (one, other)) in without.facts.lines().zip(with.facts.lines()).enumerate() {
        assert_eq!(one, other, "line {}, without and with the library", n + 1);
    }
    assert_eq!(without.facts.len(), with.facts.len());
    assert!(without.log.is_empty(), "{:?}", without.log);
}

/// Runs a program with and without the library, which must have handled `least` launches, and returns the first result.
fn both(name: &str, args: &[&str], least: usize) {
    let Some(library) = library() else { return };
    let trial = Trial::new(name);
    let (without, with) = (trial.run(args, &[]), trial.with(&library, args, &[]));
    same(&without, &with);
    assert!(with.served() >= least, "{} launches", with.served());
    // With FORKLESS=off it does nothing.
    let off = trial.with(&library, args, &[("FORKLESS", "off")]);
    same(&without, &off);
    assert!(off.log.is_empty(), "{:?}", off.log);
}

#[test]
fn spawn_attributes_errors_and_path_search_match_libc() {
    both("spawn", &[], 50);
}

#[test]
fn popen_streams_match_libc() {
    both("popen", &[], 150);
}

#[test]
fn system_matches_libc() {
    both("system", &[], 700);
}

/// Also: in signal handlers, with a ruined heap, on a small stack, without memory.
#[test]
fn what_programs_rely_on_matches_libc() {
    both("handlers", &[], 60);
}

#[test]
fn launches_before_and_after_main_use_the_library() {
    both("early", &[], 4);
}

#[test]
fn no_child_is_lost_in_a_storm_of_signals() {
    both("storm", &["200"], 20);
}

#[test]
fn launches_leak_no_memory_descriptors_or_children() {
    both("leaks", &[], 300);
}

/// Random lists of file actions. Every second one has `closefrom`, with which the child gets a private file-descriptor
/// table.
#[test]
fn random_file_actions_match_libc() {
    let Some(library) = library() else { return };
    let trial = Trial::new("actions");
    for seed in ["1", "2"] {
        let (without, with) = (trial.run(&[seed, "300"], &[]), trial.with(&library, &[seed, "300"], &[]));
        same(&without, &with);
        let copied = with.log.iter().filter(|line| line.contains("descriptors copied")).count();
        // Without closefrom (before glibc 2.34), which the program reports as ENOSYS, all are copied.
        let private = if without.facts.contains(" (38)") { 0..1 } else { 31..300 };
        assert!(copied > 50 && private.contains(&(with.served() - copied)), "{copied} of {}", with.served());
    }
}

/// Where `close_range(2)` is refused, as before Linux 5.9, descriptors are closed one by one, as by libc.
#[test]
fn file_actions_and_streams_match_libc_without_close_range() {
    let Some(library) = library() else { return };
    let trial = Trial::new("actions");
    let args = ["5", "60", "no-close-range"];
    let (without, with) = (trial.run(&args, &[]), trial.with(&library, &args, &[]));
    same(&without, &with);
    assert!(with.served() > 30, "{}", with.served());
}

/// With FORKLESS_INHERIT=stdio, a child gets what it would get if all descriptors were close-on-exec.
#[test]
fn children_with_only_streams_get_the_descriptors_that_actions_name() {
    let Some(library) = library() else { return };
    let trial = Trial::new("actions");
    for seed in ["3", "4"] {
        let without = trial.run(&[seed, "300", "close-on-exec"], &[]);
        let with = trial.with(&library, &[seed, "300"], &[("FORKLESS_INHERIT", "stdio")]);
        same(&without, &with);
        let private = with.log.iter().filter(|line| !line.contains("descriptors copied")).count();
        assert!(private > 150, "{private} of {}", with.served());
    }
}

#[test]
fn forkless_inherit_selects_the_descriptors() {
    let Some(library) = library() else { return };
    let trial = Trial::new("popen");
    for (setting, expected) in [("stdio", vec![]), ("stdio,5,6,40", vec![5]), ("4,7", vec![4, 7])] {
        let found = trial.with(&library, &[], &[("FORKLESS_INHERIT", setting)]);
        let rows: Vec<_> = found.facts.lines().filter(|line| line.starts_with(" 0=")).collect();
        assert!(rows.len() > 10, "{}", found.facts);
        for row in rows {
            let numbers = row.split_whitespace().filter_map(|word| word.split('=').next()?.parse::<i32>().ok());
            let above: Vec<i32> = numbers.filter(|number| *number > 2).collect();
            // Children that were started before and after a hundred streams were opened.
            assert_eq!(above, expected, "{setting}: {row}");
        }
    }
}

#[test]
fn forkless_children_removes_the_library_from_ld_preload() {
    let Some(library) = library() else { return };
    let trial = Trial::new("preloaded");
    let with = trial.with(&library, &[], &[]);
    assert_eq!(with.facts.lines().filter(|line| line.contains("libforkless_preload.so")).count(), 3, "{}", with.facts);
    let without = trial.with(&library, &[], &[("FORKLESS_CHILDREN", "off")]);
    assert_eq!(without.facts.lines().collect::<Vec<_>>(), ["none"; 3]);
    assert_eq!(without.served(), 3);
}

#[test]
fn an_invalid_setting_is_reported_once() {
    let Some(library) = library() else { return };
    let trial = Trial::new("early");
    let found = trial.with(&library, &[], &[("FORKLESS_INHERIT", "everything")]);
    let complaints = found.log.iter().filter(|line| line.contains("FORKLESS_INHERIT")).count();
    assert!((1..=4).contains(&complaints), "{:?}", found.log);
}

/// A filter may trap calls that the library makes, and the program's own handler answer them.
#[test]
fn a_program_that_answers_trapped_calls_lives_on() {
    let Some(library) = library() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile("trapped", &[], directory.path());
    let output = Command::new(program).env("LD_PRELOAD", &library).env_remove("FORKLESS").output().expect("a run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.lines().count() >= 10, "{text}");
    let killed: Vec<_> = text.lines().filter(|line| !line.ends_with(": lives")).collect();
    assert!(killed.is_empty(), "{killed:?}");
}

/// The exported names and versions are those of libc, and those of the linker map.
#[test]
fn only_libc_names_are_exported() {
    let Some(library) = library() else { return };
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().expect("nm");
    let text = String::from_utf8(output.stdout).expect("text");
    let names: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let (versions, functions): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| name.starts_with("GLIBC_"));
    assert_eq!(functions.len(), 36, "{functions:?}");
    let own = ["popen", "pclose", "fclose", "system", "prctl", "pidfd_spawn"];
    for name in &functions {
        let plain = name.split('@').next().expect("a name");
        assert!(plain.starts_with("posix_spawn") || own.iter().any(|own| plain.starts_with(own)), "{name}");
    }
    if cfg!(target_arch = "x86_64") {
        assert_eq!(versions.len(), 6, "{versions:?}");
        for wanted in ["posix_spawn@GLIBC_2.2.5", "posix_spawn@@GLIBC_2.15", "system@@GLIBC_2.2.5"] {
            assert!(functions.contains(&wanted), "{wanted}: {functions:?}");
        }
    }
}

/// A program of `tests/c`, to be run with the library.
struct First {
    directory: TempDir,
    program: PathBuf,
}

impl First {
    fn new(name: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let program = compile(name, &[], directory.path());
        Self { directory, program }
    }

    /// Runs it; the standard error must be empty but for the library's log, which is returned.
    fn with(&self, library: &Path, args: &[&str], more: &[(&str, &OsStr)]) -> Vec<String> {
        let mut run = Command::new("timeout");
        run.arg("60").arg("env").arg(format!("LD_PRELOAD={}", library.display())).arg(&self.program).args(args);
        for name in ["LD_PRELOAD", "FORKLESS", "FORKLESS_INHERIT"] {
            run.env_remove(name);
        }
        run.env("FORKLESS_LOG", "1").envs(more.iter().copied()).stdin(Stdio::null());
        let output = run.output().expect("a run");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let (log, rest): (Vec<_>, Vec<_>) = errors.lines().partition(|line| line.starts_with("forkless: "));
        assert!(output.status.success() && rest.is_empty(), "{args:?}: {}\n{errors}", output.status);
        log.into_iter().filter(|line| line.contains("): pid ")).map(str::to_owned).collect()
    }
}

/// Several threads may be the first that start a program. So may a child that shares the memory, and a copy of the process
/// that was forked while another thread was at it.
#[test]
fn the_first_launch_may_be_in_any_thread_and_child() {
    let Some(library) = library() else { return };
    let first = First::new("first");
    for _ in 0..100 {
        assert_eq!(first.with(&library, &["threads"], &[]).len(), 16, "launches in threads");
        first.with(&library, &["forks"], &[]);
    }
    assert_eq!(first.with(&library, &["shared"], &[]).len(), 2, "launches in the child and in its parent");
}

/// An error of the caller's own `dlopen` is still there for `dlerror` after the first launch.
#[test]
fn the_first_launch_keeps_the_error_of_dlopen() {
    let Some(library) = library() else { return };
    First::new("first").with(&library, &["dlerror"], &[]);
}

/// Nothing is loaded at the first launch: the process may have another root by then.
#[test]
fn the_first_launch_may_be_after_chroot() {
    let Some(library) = library() else { return };
    // SAFETY: only returns a number.
    if unsafe { libc::geteuid() } != 0 {
        return say("SKIPPED: the_first_launch_may_be_after_chroot, because it needs root");
    }
    let first = First::new("first");
    let root = first.directory.path().join("root");
    fs::create_dir(&root).expect("a directory");
    let inside = compile("nothing", &["-static"], &root);
    let name = format!("/{}", inside.file_name().expect("a name").display());
    let served = first.with(&library, &["chroot", root.to_str().expect("UTF-8"), &name], &[]);
    assert_eq!(served.len(), 1, "{served:?}");
}

/// A child that shares the memory never enters the loader: its stack is small, and the loader's locks and thread data are
/// those of its parent.
#[test]
fn children_look_up_no_function() {
    let Some(library) = library() else { return };
    let first = First::new("first");
    // How many functions of libc were looked up for the library by the process itself, and by others before their exec.
    let looked_up = |which: &str| {
        let place = tempfile::tempdir().expect("a temporary directory");
        let to = place.path().join("bindings");
        let debug = [("LD_DEBUG", OsStr::new("bindings")), ("LD_DEBUG_OUTPUT", to.as_os_str())];
        let served = first.with(&library, &[which], &debug);
        assert!(served.len() >= 3, "{served:?}");
        let (mut own, mut others) = (0, Vec::new());
        for file in fs::read_dir(place.path()).expect("a directory") {
            let path = file.expect("a file").path();
            let pid = path.extension().and_then(OsStr::to_str).expect("a number").to_owned();
            for line in String::from_utf8_lossy(&fs::read(&path).expect("lines")).lines() {
                let Some((process, what)) = line.trim_start().split_once(':') else { continue };
                if what.contains("libforkless_preload.so [0] to") {
                    if process == pid { own += 1 } else { others.push(line.to_owned()) }
                }
            }
        }
        (own, others)
    };
    let (own, others) = looked_up("kinds");
    assert!(own > 50 && others.is_empty(), "{own}, {others:?}");
    // A child that calls libc's functions would be seen.
    let (_, others) = looked_up("kinds-in-a-copy");
    assert!(others.len() > 20, "{others:?}");
}

/// What each program pays: the loader maps the library's file twice, and protects no part of it. It looks few symbols up.
#[test]
fn the_loader_does_little_for_a_program_that_starts_no_other() {
    let Some(library) = library() else { return };
    let output = Command::new("cat").arg("/proc/self/maps").env("LD_PRELOAD", &library).output().expect("cat");
    let text = String::from_utf8_lossy(&output.stdout);
    let ours = text.lines().filter(|line| line.ends_with("libforkless_preload.so"));
    let rights: Vec<_> = ours.filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(rights, ["r-xp", "rw-p"], "{text}");
    let looked_up = |library: &Path| {
        let mut run = Command::new("/bin/true");
        let output = run.env("LD_DEBUG", "statistics").env("LD_PRELOAD", library).output().expect("true");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let found =
            text.lines().find_map(|line| line.split_once("number of relocations:")?.1.trim().parse::<u64>().ok());
        found.unwrap_or_else(|| panic!("no number of relocations in {text}"))
    };
    let (without, with) = (looked_up(Path::new("")), looked_up(&library));
    // Before glibc 2.34 it also needs libdl and libpthread, which look symbols up.
    let most = if text.contains("/libpthread") { 40 } else { 24 };
    assert!(with - without <= most, "{with} symbols, {without} of true alone");
}
