//! The tests that run in processes of their own: executes their harness, `scenario --tests`, whose sources are in `scenarios/`.

use std::os::unix::process::CommandExt;
use std::process::Command;

testing::usual_surroundings!();

fn main() {
    let error = Command::new(env!("CARGO_BIN_EXE_scenario")).arg("--tests").args(std::env::args_os().skip(1)).exec();
    panic!("{}: {error}", env!("CARGO_BIN_EXE_scenario"));
}
