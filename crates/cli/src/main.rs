//! The `forkless` command: `forkless run` starts a program, `forkless bench` measures every way to start one,
//! `forkless doctor` says which of them suits, and what this machine has for it.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the docs of options are their help texts, where brackets are brackets"
)]

mod run;
mod doctor;

use std::{ffi::OsStr, process::ExitCode};

use clap::{Parser, Subcommand};

/// Start a process from any process, however big, at the speed of exec.
#[derive(Parser, Debug)]
#[command(name = "forkless", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Run(Box<run::RunOptions>),
    Bench(Box<forkless_bench::BenchOptions>),
    Doctor(Box<doctor::DoctorOptions>),
    /// Serve a program that starts a zygote and cannot be its own helper (forkless::zygote)
    #[command(hide = true)]
    Zygote,
}

fn main() -> ExitCode {
    forkless::zygote::serve_if_asked(&forkless::zygote::Registry::new());
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage_error(&error),
    };
    match cli.command {
        Command::Run(options) => run::main(&options),
        Command::Doctor(options) => doctor::main(&options),
        // Started to be a helper it would not have come here.
        Command::Zygote => {
            eprintln!("forkless: zygote: this is for programs that start one (forkless::zygote), not for hands");
            ExitCode::from(2)
        }
        Command::Bench(options) => forkless_bench::main(&options),
    }
}

fn usage_error(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    let runs = std::env::args_os().nth(1).as_deref() == Some(OsStr::new("run"));
    ExitCode::from(if runs { 125 } else { 2 })
}
