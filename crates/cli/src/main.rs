//! The `forkless` command: `forkless run` starts a program, `forkless bench` compares methods to start one, and
//! `forkless doctor` checks this machine and recommends a launcher.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "doc comments of options are help texts, in which [brackets] are no links"
)]

mod near;
mod usage;
mod run;
mod doctor;
mod help;

use std::{ffi::OsStr, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand};

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
    Bench(Box<forkless_bench::BenchOptions>),
    Doctor(Box<doctor::DoctorOptions>),
    Completions(help::CompletionOptions),
    Man(help::ManOptions),
    /// Run as the zygote helper of a program that cannot be its own helper (forkless::zygote)
    #[command(hide = true)]
    Zygote,
}

fn main() -> ExitCode {
    forkless::zygote::serve_if_asked(&forkless::zygote::Registry::new());
    let cli = match help::parse::<Cli>() {
        Ok(cli) => cli,
        Err(error) => return usage_error(&error),
    };
    match cli.command {
        Command::Run(options) => run::main(&options),
        Command::Doctor(options) => doctor::main(&options),
        Command::Completions(options) => help::complete(Cli::command, &options),
        Command::Man(options) => help::man(Cli::command, &options),
        // A zygote's helper never gets here: `serve_if_asked` does not return.
        Command::Zygote => {
            eprintln!("forkless: zygote: only programs that use forkless::zygote can start this command");
            ExitCode::from(2)
        }
        Command::Bench(options) => forkless_bench::main(&options),
    }
}

/// All options of all subcommands.
fn command() -> clap::Command {
    help::attach(Cli::command)
}

fn usage_error(error: &clap::Error) -> ExitCode {
    usage::print(error, command);
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    let runs = std::env::args_os().nth(1).as_deref() == Some(OsStr::new("run"));
    ExitCode::from(if runs { 125 } else { 2 })
}
