//! The campaigns: comparisons that are no sweep of one launch. Each is a subcommand, on one harness: `race` lets contestants take
//! turns, `record` makes tables of their figures, and a `session` has the directory, the installation and the programs in C.

mod background;
mod noshell;
mod preload;
mod race;
mod real;
mod record;
mod runners;
mod scale;
mod session;
mod tools;
mod wrappers;

use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand, Debug)]
pub(crate) enum Campaign {
    Background(background::Options),
    Noshell(noshell::Options),
    Preload(preload::Options),
    Real(real::Options),
    Runners(runners::Options),
    /// Print the tables of docs/scale.md, from a simulation of many nodes
    Scale,
    Tools(tools::Options),
    Wrappers(wrappers::Options),
}

/// Measures, prints the tables and writes them.
///
/// # Errors
/// If a program cannot be built, or a contestant of this project fails.
pub(crate) fn main(campaign: &Campaign) -> Result<()> {
    match campaign {
        Campaign::Background(options) => background::measure(options),
        Campaign::Noshell(options) => noshell::measure(options),
        Campaign::Preload(options) => preload::measure(options),
        Campaign::Real(options) => real::measure(options),
        Campaign::Runners(options) => runners::measure(options),
        Campaign::Scale => {
            print!("{}", scale::tables());
            Ok(())
        }
        Campaign::Tools(options) => tools::measure(options),
        Campaign::Wrappers(options) => wrappers::measure(options),
    }
}
