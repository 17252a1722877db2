//! The `forkless` command: `forkless run` starts a program, `forkless doctor` checks this machine and recommends a launcher, and
//! `forkless bench` executes the benchmark.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "doc comments of options are help texts, in which [brackets] are no links"
)]
// `start` has the main function. Tests need that of their harness, and musl gives the arguments to Rust's only.
#![cfg_attr(all(not(test), target_env = "gnu"), no_main)]

mod start;
mod near;
mod usage;
mod run;
mod doctor;
mod bench;
mod help;

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    mem::ManuallyDrop,
    process::ExitCode,
};

use clap::{CommandFactory, Parser, Subcommand};
#[cfg(feature = "gearman")]
use forkless_runner::gearman_worker;
use forkless_runner::{message, parallel, xargs};

/// Start programs quickly from a process of any size, without fork.
#[derive(Parser, Debug)]
#[command(name = "forkless", version, propagate_version = true, max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Run(Box<run::RunOptions>),
    Xargs(Box<xargs::XargsOptions>),
    Parallel(Box<parallel::ParallelOptions>),
    /// Wait until a slot of a semaphore is free, then run COMMAND: parallel --semaphore
    #[command(hide = true)]
    Sem(Box<parallel::ParallelOptions>),
    #[cfg(feature = "gearman")]
    GearmanWorker(Box<gearman_worker::GearmanWorkerOptions>),
    /// Compare methods to launch a process on this machine
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    Doctor(Box<doctor::DoctorOptions>),
    Completions(help::CompletionOptions),
    Man(help::ManOptions),
    /// Write the filter of run --sandbox to standard output, as bwrap --seccomp reads it; for comparisons
    #[command(hide = true)]
    SandboxFilter,
    /// Run as the zygote helper of a program that cannot be its own helper (forkless::zygote)
    #[command(hide = true)]
    Zygote,
}

/// The main function without `start`.
#[cfg(any(test, not(target_env = "gnu")))]
fn main() -> ExitCode {
    start::prepare();
    begin()
}

/// Parses the command line and runs the subcommand.
fn begin() -> ExitCode {
    // Not dropped: an empty registry owns nothing, and every start would load the code that drops it.
    forkless::zygote::serve_if_asked(&ManuallyDrop::new(forkless::zygote::Registry::new()));
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let subcommand = words.get(1).cloned().unwrap_or_default();
    if subcommand == "run" {
        match run::expand(words.split_off(2), definition_of_run) {
            Ok(expanded) => words.extend(expanded),
            Err(error) => {
                run::say(error);
                return ExitCode::from(125);
            }
        }
    }
    match words.get(1..) {
        Some([name, rest @ ..]) if name == "bench" => return bench::main(rest),
        Some([help, name, ..]) if help == "help" && name == "bench" => return bench::main(&["--help".into()]),
        _ => {}
    }
    if let Some(given) = words.get(2..).filter(|_| subcommand == "run")
        && let Some(options) = run::quick(given)
    {
        return run::main(&options, given);
    }
    let words = parallel::with_defaults(xargs::arguments(words.into_iter()).into_iter());
    // The definitions of all options are built only for command lines that the plain parsers do not accept.
    let arguments = words.get(2..).unwrap_or_default();
    if subcommand == "xargs"
        && let Some(options) = xargs::plain(arguments)
    {
        return xargs::main(options, run::of_program);
    }
    if subcommand == "parallel"
        && let Some(mut options) = parallel::plain(arguments)
    {
        return parallel::main(&mut options, false);
    }
    let cli = match help::parse::<Cli>(words.clone()) {
        Ok(cli) => cli,
        Err(error) => return usage_error(&error, &subcommand),
    };
    match cli.command {
        Command::Run(options) => run::main(&options, arguments),
        Command::Xargs(options) => xargs::main(*options, run::of_program),
        Command::Parallel(mut options) => parallel::main(&mut options, false),
        Command::Sem(mut options) => parallel::main(&mut options, true),
        #[cfg(feature = "gearman")]
        Command::GearmanWorker(options) => gearman_worker::main(&options),
        Command::Doctor(options) => doctor::main(&options),
        Command::Completions(options) => help::complete(Cli::command, &options),
        Command::Man(options) => help::man(Cli::command, &options),
        // A zygote's helper never gets here: `serve_if_asked` does not return.
        Command::Zygote => {
            eprintln!("forkless: zygote: only programs that use forkless::zygote can start this command");
            ExitCode::from(2)
        }
        Command::SandboxFilter => match io::stdout().write_all(&run::sandbox_filter()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Command::Bench { words } => bench::main(&words),
    }
}

/// All options of all subcommands.
fn command() -> clap::Command {
    help::attach(Cli::command)
}

/// All options of `forkless run`.
fn definition_of_run() -> clap::Command {
    let mut root = command();
    root.build();
    root.find_subcommand("run").cloned().unwrap_or_default()
}

fn usage_error(error: &clap::Error, subcommand: &OsStr) -> ExitCode {
    match usage::print(error, command) {
        Ok(()) if !error.use_stderr() => return ExitCode::SUCCESS,
        Ok(()) => {}
        Err(error) => message::say(format_args!("cannot write to standard output: {error}")),
    }
    ExitCode::from(match subcommand.to_str() {
        Some("run") => 125,
        Some("xargs") => 1,
        Some("parallel" | "sem") => parallel::FAILED,
        _ => 2,
    })
}
