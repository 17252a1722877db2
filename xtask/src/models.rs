//! Checks the models: with spin those of docs/design/models, with loom those of tests/loom. Every property must hold, and
//! every planted error must break one.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use testing::dist::root;

/// What spin has found in a model, or in one with a planted error.
struct Search {
    states: String,
    /// The first property that does not hold, and where.
    found: Option<String>,
    seconds: f64,
}

/// Checks all models, or those of these names; `loom`: all of `tests/loom`.
///
/// # Errors
/// If spin or gcc is missing, a property does not hold, or a planted error is not found.
pub fn run(names: &[String], target: &Path) -> Result<()> {
    let is_loom = |name: &String| name == "loom";
    if names.is_empty() || names.iter().any(is_loom) {
        with_loom("run", target)?;
    }
    if names.is_empty() || !names.iter().all(is_loom) {
        with_spin(names, target)?;
    }
    Ok(())
}

/// Whether spin is installed.
pub fn has_spin() -> bool {
    Command::new("spin").arg("-V").output().is_ok()
}

/// Builds or runs `tests/loom`, which has stand-ins for a part of the library.
///
/// # Errors
/// As for [`run`]; it does not compile.
pub fn with_loom(task: &str, target: &Path) -> Result<()> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([task, "--quiet", "--release", "--locked", "--manifest-path", "tests/loom/Cargo.toml", "--target-dir"]);
    cargo.arg(std::path::absolute(target)?.join("loom")).current_dir(root());
    ensure!(cargo.status()?.success(), "{task}: a model of tests/loom has failed");
    Ok(())
}

fn with_spin(names: &[String], target: &Path) -> Result<()> {
    let mut models = Vec::new();
    for entry in fs::read_dir(root().join("docs/design/models"))? {
        let path = entry?.path();
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.extension().is_some_and(|extension| extension == "pml") && (names.is_empty() || names.contains(&name)) {
            models.push((name, path));
        }
    }
    models.sort();
    ensure!(!models.is_empty(), "no such model in docs/design/models");
    let (place, mut wrong) = (std::path::absolute(target)?.join("models"), 0);
    println!("{:<10} {:<26} {:>11} {:>7}  found", "model", "planted", "states", "seconds");
    let mut searches = Vec::new();
    for (name, path) in &models {
        let plants = plants(&fs::read_to_string(path)?);
        ensure!(!plants.is_empty(), "{name} has no planted error");
        searches.extend(std::iter::once(None).chain(plants.into_iter().map(Some)).map(|plant| (name, path, plant)));
    }
    // In parallel, because gcc takes most of the time.
    for some in searches.chunks(std::thread::available_parallelism().map_or(1, usize::from)) {
        let found: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = some
                .iter()
                .map(|(name, path, plant)| {
                    let place = place.join(format!("{name}-{}", plant.as_deref().unwrap_or_default()));
                    scope.spawn(move || search(path, plant.as_ref(), &place))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        for ((name, _, plant), found) in some.iter().zip(found) {
            let Search { states, found, seconds } = found.with_context(|| name.to_string())?;
            let is_right = plant.is_some() == found.is_some();
            wrong += usize::from(!is_right);
            let (planted, found) = (plant.as_deref().unwrap_or("-"), found.as_deref().unwrap_or("-"));
            println!(
                "{name:<10} {planted:<26} {states:>11} {seconds:>7.1}  {found}{}",
                if is_right { "" } else { "  WRONG" }
            );
        }
    }
    if wrong > 0 {
        bail!("{wrong} of these results are wrong: a property does not hold, or a planted error was not found");
    }
    Ok(())
}

/// The planted errors that the head of a model lists.
fn plants(model: &str) -> Vec<String> {
    let list = model.split("*/").next().and_then(|head| head.split("Plants:\n").nth(1)).unwrap_or("");
    let names = list.lines().filter_map(|line| Some(line.strip_prefix(" * ")?.split_once(": ")?.0.to_owned()));
    names.filter(|name| !name.contains(' ')).collect()
}

/// Searches all states. spin writes a C program that does so.
fn search(model: &Path, plant: Option<&String>, place: &Path) -> Result<Search> {
    let begun = Instant::now();
    fs::create_dir_all(place)?;
    let start = |program: &str, args: &[&str]| -> Result<String> {
        let output = Command::new(program).args(args).current_dir(place).output();
        let output = output.with_context(|| format!("{program}: apt-get install {program}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "{program}: {text}{}", String::from_utf8_lossy(&output.stderr));
        Ok(text)
    };
    let define = plant.map(|plant| format!("-D{}", plant.to_uppercase().replace('-', "_")));
    let mut args = vec!["-a"];
    args.extend(define.as_deref());
    args.push(model.to_str().context("a path that is no text")?);
    start("spin", &args)?;
    start("gcc", &["-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=4096", "-o", "search", "pan.c"])?;
    let text = start("./search", &["-m1000000"])?;
    let after = |mark: &str| text.split_once(mark).map(|(before, after)| (before, after.lines().next().unwrap_or("")));
    let states =
        after(" states, stored").and_then(|(before, _)| before.split_whitespace().last()).context("no states")?;
    let errors = after("errors: ").context("no errors counted")?.1.trim();
    ensure!(!text.contains("max search depth too small") && !text.contains("out of memory"), "not all states: {text}");
    let found = text.lines().find_map(|line| line.strip_prefix("pan:1: ")).map(str::to_owned);
    ensure!(found.is_some() == (errors != "0"), "{text}");
    Ok(Search { states: states.to_owned(), found, seconds: begun.elapsed().as_secs_f64() })
}
