//! Checks the library with musl, on other systems (with its feature `std-fallback`), and with the oldest Rust.
//!
//! A target that is not installed is skipped, with the command that installs it. Nothing here needs a linker or a libc of another system: a
//! library is only checked there. Linux runs the programs for musl, and those for 32 bits, which get the fallback.

use crate::by_own_toolchain;
use anyhow::{Context, Result, ensure};
use clap::Parser;
use std::path::Path;
use std::process::Command;
use testing::dist::{root, run};

/// Options of `cargo xtask targets`.
#[derive(Debug, Parser)]
pub struct Options {
    /// Fail if something is skipped
    #[arg(long)]
    all: bool,
}

/// Targets that get the types of std.
const ELSEWHERE: &[&str] = &[
    "x86_64-apple-darwin",
    "aarch64-apple-darwin",
    "x86_64-pc-windows-msvc",
    "x86_64-unknown-freebsd",
    "riscv64gc-unknown-linux-gnu",
    FALLBACK_RUNS,
];

/// One of them whose programs this machine can link and run.
const FALLBACK_RUNS: &str = "i686-unknown-linux-musl";

/// The library on Linux with musl.
const MUSL: [&str; 2] = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"];

/// The oldest Rust.
const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");

/// The example that compiles everywhere.
const PORTABLE: [&str; 4] = ["--package", "forkless", "--example", "portable"];

/// Checks all that is installed.
///
/// # Errors
/// If the library does not compile for a target, or a program is wrong there.
pub fn check(options: &Options, target: &Path) -> Result<()> {
    let target = std::path::absolute(target)?.join("targets");
    let mut skipped = 0;
    let mut skip = |what: &str, remedy: &str| {
        skipped += 1;
        println!("SKIPPED: {what} is not installed: {remedy}");
    };
    for triple in ELSEWHERE {
        if !has(triple) {
            skip(triple, &format!("rustup target add {triple}"));
            continue;
        }
        elsewhere(triple, &target).with_context(|| (*triple).to_owned())?;
        println!("{triple}: the feature std-fallback makes the library std's types");
    }
    for triple in MUSL {
        if !has(triple) {
            skip(triple, &format!("rustup target add {triple}"));
            continue;
        }
        musl(triple, &target).with_context(|| triple.to_owned())?;
    }
    match oldest(&target) {
        Ok(mut cargo) => {
            run(cargo.args(["check", "--quiet", "--workspace", "--locked"]))?;
            println!("Rust {OLDEST}: all crates compile");
        }
        Err(why) => skip(&format!("Rust {OLDEST}"), &why.to_string()),
    }
    ensure!(!options.all || skipped == 0, "{skipped} targets were skipped");
    Ok(())
}

/// Checks what CI checks: another architecture, and another system.
///
/// # Errors
/// As [`check`].
pub fn of_ci(target: &Path) -> Result<()> {
    let target = std::path::absolute(target)?.join("targets");
    for triple in ["aarch64-unknown-linux-musl", "x86_64-pc-windows-msvc"] {
        let _ = Command::new("rustup").args(["--quiet", "target", "add", triple]).status();
        if !has(triple) {
            println!("SKIPPED: {triple} because rustup cannot install it");
        } else if MUSL.contains(&triple) {
            musl(triple, &target)?;
        } else {
            elsewhere(triple, &target)?;
        }
    }
    Ok(())
}

/// The library is std's with the feature, and refuses to compile without it.
fn elsewhere(triple: &str, target: &Path) -> Result<()> {
    for features in ["std-fallback", "std-fallback,tokio"] {
        run(cargo(&["check"], triple, target).args(PORTABLE).args(["--features", features]))?;
    }
    let without = cargo(&["check"], triple, target).args(["--package", "forkless"]).output()?;
    let errors = String::from_utf8_lossy(&without.stderr);
    ensure!(
        !without.status.success() && errors.contains("Its feature `std-fallback`"),
        "without its feature the library must refuse this target, and name the feature: {errors}"
    );
    if triple == FALLBACK_RUNS && cfg!(target_arch = "x86_64") {
        let mut program = cargo(&["run"], triple, target);
        // The linker of Rust itself: no C compiler for 32 bits is needed.
        program
            .args(PORTABLE)
            .args(["--features", "std-fallback"])
            .env("CARGO_TARGET_I686_UNKNOWN_LINUX_MUSL_LINKER", "rust-lld");
        let output = program.output()?;
        ensure!(
            output.status.success() && output.stdout == b"a\nb\n",
            "the example prints {:?}: {}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// The library with musl: tested on this machine's architecture, checked on the other.
fn musl(triple: &str, target: &Path) -> Result<()> {
    let library = ["--package", "forkless-core", "--package", "forkless", "--features", "forkless/tokio"];
    if triple.starts_with(std::env::consts::ARCH) {
        run(cargo(&["test", "--lib"], triple, target).args(library))?;
        println!("{triple}: the library's tests pass");
    } else {
        run(cargo(&["check"], triple, target).args(library))?;
        println!("{triple}: the library compiles");
    }
    Ok(())
}

/// Whether Rust's standard library for this target is installed.
fn has(triple: &str) -> bool {
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", triple]).output();
    // rustc prints the directory also if it does not exist.
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).exists())
}

fn cargo(words: &[&str], triple: &str, target: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).args(words).args(["--quiet", "--locked", "--target", triple, "--target-dir"]).arg(target);
    cargo
}

/// cargo of the oldest Rust, which is installed, if it is missing.
///
/// # Errors
/// It cannot be installed.
pub fn oldest(target: &Path) -> Result<Command> {
    let is_there = by_own_toolchain("rustup").args(["run", OLDEST, "cargo", "--version"]).output();
    if !is_there.context("rustup is missing")?.status.success() {
        run(by_own_toolchain("rustup").args([
            "toolchain",
            "install",
            "--profile",
            "minimal",
            "--no-self-update",
            OLDEST,
        ]))?;
    }
    let mut cargo = by_own_toolchain("rustup");
    cargo.args(["run", OLDEST, "cargo"]).env("CARGO_TARGET_DIR", target.join(OLDEST));
    Ok(cargo)
}
