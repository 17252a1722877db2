//! Tests that change, or need, a whole process: its signals, its allocator, its process group. Each runs in a process of its own.
//!
//! `scenario --tests [ARGS…]` is a test harness, with the arguments of Rust's; the test target `scenarios` executes it. `scenario NAME
//! [ARGS…]` is one of these processes: it runs the function NAME and exits with 0, or the message of a panic has the reason.

use libtest_mimic::{Arguments, Failed, Trial};
use linkme::distributed_slice;
use std::process::ExitCode;

/// A function that a process runs: its name, with that of its module, and what gets the arguments after the name.
type Part = (&'static str, fn(&[String]));

/// A test: its name, that of its module and of its function, and the arguments of each process in which the function must end well.
struct Test {
    name: &'static str,
    function: &'static str,
    runs: &'static [&'static [&'static str]],
}

#[distributed_slice]
static PARTS: [Part];

#[distributed_slice]
static TESTS: [Test];

/// The function after it is run by its name.
macro_rules! part {
    ($function:ident) => {
        const _: () = {
            #[linkme::distributed_slice(crate::PARTS)]
            static PART: crate::Part = (concat!(module_path!(), "::", stringify!($function)), $function);
        };
    };
}

/// The function after it is a test of its name: `function`, or `function["argument"]["in another process"]`. More tests of it follow:
/// `other["argument"]`.
macro_rules! scenario {
    ($function:ident $([$($argument:literal),*])* $(, $test:ident $([$($its:literal),*])+)*) => {
        part!($function);
        scenario!(@ $function $function $([$($argument),*])*);
        $(scenario!(@ $function $test $([$($its),*])+);)*
    };
    (@ $function:ident $test:ident $([$($argument:literal),*])*) => {
        const _: () = {
            #[linkme::distributed_slice(crate::TESTS)]
            static TEST: crate::Test = crate::Test {
                name: concat!(module_path!(), "::", stringify!($test)),
                function: stringify!($function),
                runs: &[$(&[$($argument),*]),*],
            };
        };
    };
}

mod allocator;
mod attributes;
mod autoreap;
mod awaited;
mod bounds;
mod busy;
mod capture;
mod capture_alone;
mod creator;
mod crowd;
mod death;
mod debugged;
mod dumps;
mod elf;
mod ends;
mod environment;
mod exec;
mod foreign;
mod heap;
mod held;
mod holding;
mod hosts;
mod ids;
mod launched;
mod launchers;
mod leaks;
mod lines;
mod locks;
mod maps;
mod observe;
mod oom;
mod pipeline;
mod reported;
mod runner;
mod set;
mod sigpipe;
mod stops;
mod storms;
mod strangers;
mod traced;
mod unusual;
mod visibility;
mod zygote;
mod zygote_bounds;
mod zygote_odd;
mod zygote_owner;
mod zygote_scheduling;

/// Checks for misuse of the heap, and counts.
#[global_allocator]
static ALLOCATOR: allocator::Watched = allocator::Watched;

/// A name without that of this program.
fn short(name: &'static str) -> &'static str {
    name.split_once("::").map_or(name, |(_, rest)| rest)
}

fn main() -> ExitCode {
    forkless::zygote::serve_if_asked(&zygote::functions());
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "--tests") {
        return test(args);
    }
    launched::choose(&mut args);
    let Some((_, run)) = args.first().and_then(|name| PARTS.iter().find(|(known, _)| short(known) == name)) else {
        eprintln!(
            "usage: scenario NAME [ARGS…], with the module and the name of a function: leaks::launches_leak_nothing"
        );
        return ExitCode::from(2);
    };
    // Closes descriptors that the caller of the tests has left open: some scenarios count descriptors, some use up the
    // table.
    // SAFETY: before any descriptor was opened here.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    crowd::choose(&mut args);
    run(&args[1..]);
    ExitCode::SUCCESS
}

/// Runs the tests whose names have one of the words in the arguments, as Rust's harness does; libtest-mimic takes one word. `leaks::`
/// stands for a module: others are left out as if they were in another program.
fn test(args: Vec<String>) -> ExitCode {
    let (mut options, mut words) = (Vec::<String>::new(), Vec::<String>::new());
    for arg in args {
        let is_value = options.last().is_some_and(|option| WITH_VALUE.contains(&option.as_str()));
        if is_value || arg.starts_with('-') { options.push(arg) } else { words.push(arg) }
    }
    let (modules, words): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| word.ends_with("::"));
    let is_chosen = |name: &str| modules.is_empty() || modules.iter().any(|module| name.starts_with(module.as_str()));
    let tests = TESTS.iter().filter(|test| is_chosen(short(test.name)));
    let mut tests: Vec<Trial> = tests.map(|test| Trial::test(short(test.name), || play(test))).collect();
    tests.sort_by(|one, other| one.name().cmp(other.name()));
    // The first one, `--tests`, is in the place of the program's name.
    let mut options = Arguments::from_iter(options);
    let has = |name: &str, word: &String| if options.exact { name == word } else { name.contains(word.as_str()) };
    let is_left_out = |name: &str| {
        !words.is_empty() && !words.iter().any(|word| has(name, word))
            || options.skip.iter().any(|word| has(name, word))
    };
    let left_out = tests.iter().map(Trial::name).filter(|name| is_left_out(name)).map(str::to_owned).collect();
    (options.exact, options.skip) = (true, left_out);
    libtest_mimic::run(&options, tests).exit_code()
}

/// The options whose value is the next argument, unless it follows `=`.
const WITH_VALUE: [&str; 6] = ["--test-threads", "--skip", "--color", "--format", "--logfile", "-Z"];

fn play(test: &Test) -> Result<(), Failed> {
    let module = short(test.name).rsplit_once("::").map_or("", |(module, _)| module);
    let name = format!("{module}::{}", test.function);
    let program = std::env::current_exe()?;
    let runs = if test.runs.is_empty() { &[&[] as &[&str]] } else { test.runs };
    for arguments in runs {
        let ending = runner::end(&program, &[&[&*name], *arguments].concat());
        if !ending.status.success() {
            return Err(format!("{name} {}: {}\n{}", arguments.join(" "), ending.status, ending.text).into());
        }
    }
    Ok(())
}
