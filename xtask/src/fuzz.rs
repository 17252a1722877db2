//! Runs the fuzz targets of `fuzz/` with cargo-fuzz on a nightly toolchain, and the fuzzer that compares shell lines with real
//! shells (`tests/src/bin/shellfuzz.rs`).

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;
use testing::dist;

/// The targets, and for how long they run.
#[derive(clap::Args)]
pub struct Options {
    /// Run this target (default: all, one after the other)
    #[arg(value_parser = TARGETS.map(|(name, _)| name).to_vec())]
    target: Option<String>,
    /// Run each target for this many minutes
    #[arg(long, default_value_t = 60)]
    minutes: u64,
}

/// A target and its options of libFuzzer. Children of the C library's target share its memory, which the sanitizer's fake stack
/// and leak detection do not support.
const TARGETS: [(&str, &[&str]); 7] = [
    ("plan", &["-max_len=2048", "-len_control=0"]),
    ("parcel", &["-max_len=4096", "-len_control=0"]),
    ("words", &["-max_len=48", "-dict=dictionaries/words"]),
    ("line", &["-max_len=200", "-dict=dictionaries/line"]),
    ("capi", &["-max_len=512", "-timeout=60", "-len_control=0"]),
    ("gearman", &["-max_len=4096"]),
    (SHELLS, &[]),
];

/// A target that does not use libFuzzer.
const SHELLS: &str = "shells";

/// Builds and runs the targets.
///
/// # Errors
/// If a target finds a failure or cannot be run.
pub fn run(options: &Options, target: &Path) -> Result<()> {
    for (name, words) in TARGETS {
        if options.target.as_ref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        println!("== {name}");
        if name == SHELLS {
            shells(options.minutes * 60, target)?
        } else {
            by_libfuzzer(name, words, options.minutes * 60)?
        }
    }
    Ok(())
}

/// A command that checks that the targets compile, with any toolchain and without libFuzzer.
pub fn check(target: &Path) -> Command {
    let mut check = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    check.args(["check", "--quiet", "--locked", "--manifest-path", "fuzz/Cargo.toml", "--target-dir"]);
    check.arg(target.join("fuzz")).current_dir(dist::root());
    // As cargo-fuzz does. Nothing is linked, so any name serves as libFuzzer's.
    check.env("RUSTFLAGS", "--cfg fuzzing").env("CUSTOM_LIBFUZZER_PATH", "./none");
    check
}

fn by_libfuzzer(name: &str, words: &[&str], seconds: u64) -> Result<()> {
    let place = dist::root().join("fuzz");
    // libFuzzer writes new inputs to the first directory; copy those worth keeping to the seeds by hand.
    let corpus = place.join("corpus").join(name);
    std::fs::create_dir_all(&corpus)?;
    let mut fuzz = Command::new("cargo");
    fuzz.args(["+nightly", "fuzz", "run", name]).arg(&corpus).arg(place.join("seeds").join(name));
    fuzz.args(["--", "-print_final_stats=1", &format!("-max_total_time={seconds}")]).args(words);
    fuzz.env("ASAN_OPTIONS", "detect_stack_use_after_return=0:detect_leaks=0").current_dir(&place);
    let missing = "cargo-fuzz is missing: rustup toolchain install nightly && cargo install cargo-fuzz --locked";
    if !fuzz.status().context(missing)?.success() {
        bail!("{name}: see above (without cargo-fuzz: {missing})");
    }
    Ok(())
}

/// Runs generated lines with and without a shell, and compares with dash, bash and busybox.
fn shells(seconds: u64, target: &Path) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = ["build", "--release", "--locked", "-p", "forkless-tests", "--bins"];
    dist::run(Command::new(cargo).args(build).current_dir(dist::root()))?;
    let links = target.join("shells");
    let seed = std::time::SystemTime::UNIX_EPOCH.elapsed()?.as_secs().to_string();
    let share = (seconds / 3).max(1).to_string();
    for name in ["dash", "bash", "busybox"] {
        let path = Path::new("/bin").join(name);
        if !path.exists() {
            println!("SKIPPED: {name}, because it is not installed");
            continue;
        }
        let mut fuzz = Command::new(std::path::absolute(target)?.join("release/shellfuzz"));
        fuzz.args(["--seed", &seed, "--executed", "1000000000", "--seconds", &share]);
        if name == "bash" {
            // bash behaves as a /bin/sh only under the name sh.
            let link = links.join("sh");
            std::fs::create_dir_all(&links)?;
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(&path, &link)?;
            fuzz.arg("--shell").arg(std::path::absolute(&link)?);
        } else if name == "busybox" {
            fuzz.arg("--against").arg(&path);
        } else {
            fuzz.arg("--shell").arg(&path);
        }
        dist::run(&mut fuzz)?;
    }
    Ok(())
}
