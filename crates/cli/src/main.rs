//! The `forkless` command: `forkless run` starts a program, `forkless bench` compares methods to start one, and
//! `forkless doctor` checks this machine and recommends a launcher.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "doc comments of options are help texts, in which [brackets] are no links"
)]
// A test has the main function of the test harness.
#![cfg_attr(not(test), no_main)]

mod start;
#[cfg(not(test))]
mod math;
mod run;
mod doctor;

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, Subcommand};

/// Start programs quickly from a process of any size, without fork.
#[derive(Parser, Debug)]
#[command(name = "forkless", version, max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Run(Box<run::RunOptions>),
    Bench(Box<forkless_bench::BenchOptions>),
    Doctor(Box<doctor::DoctorOptions>),
    /// Run as the zygote helper of a program that cannot be its own helper (forkless::zygote)
    #[command(hide = true)]
    Zygote,
}

/// Not called: the test harness has its own.
#[cfg(test)]
fn main() {
    start::main(0, std::ptr::null());
}

/// The whole command. `args` begins with the name of forkless.
fn command(args: &[OsString]) -> ExitCode {
    forkless::zygote::serve_if_asked(&forkless::zygote::Registry::new());
    let runs = args.get(1).is_some_and(|name| name == "run");
    if let Some(options) = args.get(2..).filter(|_| runs).and_then(run::quick) {
        return run::main(&options);
    }
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return usage_error(&error, runs),
    };
    match cli.command {
        Command::Run(options) => run::main(&options),
        Command::Doctor(options) => doctor::main(&options),
        // A zygote's helper never gets here: `serve_if_asked` does not return.
        Command::Zygote => {
            eprintln!("forkless: zygote: only programs that use forkless::zygote can start this command");
            ExitCode::from(2)
        }
        Command::Bench(options) => forkless_bench::main(&options),
    }
}

fn usage_error(error: &clap::Error, runs: bool) -> ExitCode {
    let _ = error.print();
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    ExitCode::from(if runs { 125 } else { 2 })
}
