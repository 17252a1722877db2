//! `forkless-bench`, which `forkless bench` runs: compares methods to launch a process on the user's machine.
//!
//! The modules in order: options and conditions, methods (contestants), parents, races, records, and output.
//! `bench/METHODOLOGY.md` says what is timed from where to where.
//!
//! A *method* (contestant) is a way to launch, an *engine* one in a program of another language, the *floor* vfork(2) in C. A *condition* is
//! the state of the launching process, a *sweep* the conditions in which one property varies, a *row* a method under a condition.
//! *Held* is the time until the call returned, *total* until the child was reaped.

mod options;
mod complete;
mod sweeps;
mod units;
mod layout;
mod interrupt;
mod progress;
mod setting;
mod condition;
mod contestant;
mod program;
mod wishes;
mod budget;
mod launcher;
mod native;
mod ours;
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod warm;
#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
#[path = "no_warm.rs"]
mod warm;
mod engines;
mod contestants;
mod settings;
mod stage;
mod faulting;
mod parent;
mod quiet;
mod race;
mod threads;
mod tokio_tasks;
mod crowd;
mod many_children;
mod measure;
mod brief;
mod serve;
mod statistics;
mod name;
mod machine;
mod rows;
mod targets;
mod record;
mod properties;
mod summary;
mod digest;
mod table;
mod looks;
mod charts;
mod svg;
mod page;
mod readme;
mod report;
mod compare;
mod campaigns;

use std::{fs, io::Write, path::Path, process::ExitCode};

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser};

use self::condition::OUTPUTS;
use self::contestant::Contestant;
use self::engines::Engines;
use self::interrupt::Interrupt;
use self::layout::Layout;
use self::machine::Machine;
use self::measure::Bench;
use self::options::{BenchOptions, Part, WithRecords};
use self::program::Program;
use self::record::{Report, write_in, write_to};
use self::settings::Settings;
use self::stage::Stage;
use self::sweeps::{Limits, Sweeps};
use self::warm::WarmPrograms;

/// Measures, or runs the subcommand. Prints errors to standard error. Dies by the signal that interrupted the measurement.
fn main() -> ExitCode {
    // The zygote's helper, if the method `forkless-zygote` has started this program as one.
    forkless::zygote::serve_if_asked(&forkless::zygote::Registry::new());
    let options = BenchOptions::parse();
    let done = match &options.with_records {
        Some(WithRecords::Compare(options)) => return compare::status(compare::main(options)),
        Some(WithRecords::Report(options)) => report::main(options),
        Some(WithRecords::Campaign(campaign)) => campaigns::main(campaign),
        None if options.complete.is_some() => complete::print(options.complete.as_deref().unwrap_or_default()),
        None if options.man => {
            clap_mangen::Man::new(BenchOptions::command()).render(&mut std::io::stdout()).map_err(Into::into)
        }
        None => run(&options).map(|signal| {
            // Everything is removed by now. Dying by the signal also ends a loop of the calling shell.
            signal.map(signal_hook::low_level::emulate_default_handler);
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forkless: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the bench and prints the results. Returns the signal that has interrupted it.
///
/// # Errors
/// If a method fails, a condition cannot be set up or a file cannot be written.
fn run(options: &BenchOptions) -> Result<Option<i32>> {
    if let Some(contestant) = options.serve {
        serve::serve(contestant, &options.program)?;
        return Ok(None);
    }
    if let Some(memory_mib) = options.brief {
        brief::print(&options.contestants(), options.measuring_time(), memory_mib)?;
        return Ok(None);
    }
    let limits = Limits::raise_and_read()?;
    let interrupt = Interrupt::install()?;
    let contestants = options.contestants();
    let stage = match set_up(options, &limits, &contestants) {
        Err(_) if interrupt.signal().is_some() => {
            eprintln!("forkless: interrupted before the first row");
            return Ok(interrupt.signal());
        }
        stage => stage?,
    };
    let mut sweeps = Sweeps::plan(options, &limits, &stage.settings.list());
    sweeps.notes.extend(stage.settings.notes.iter().cloned());
    sweeps.notes.extend(stage.engines.absences());
    sweeps.notes.extend(stage.warm.cold.iter().cloned());
    let clone3 = forkless::Support::probe().is_ok_and(|support| support.clone3 || !support.shared_memory);
    if !clone3 {
        sweeps.notes.push("clone3 is refused or missing: forkless uses clone".to_owned());
    }
    let what = (&*sweeps.conditions, &*contestants);
    let bench = Bench::plan((options, &limits), (&stage, &interrupt), what, &mut sweeps.notes)?;
    let progress = bench.progress();
    let measured = bench.everything(&progress)?;
    sweeps.notes.extend(measured.notes);
    let engines = stage.engines.versions().into_iter().collect();
    let machine = Machine { own_target: options.program.is_empty(), clone3, engines, ..Machine::read() };
    let report = Report::new(machine, measured.rows, measured.alive);
    let mut notes = sweeps.notes;
    let interrupted = interrupt.signal().map(|signal| (signal, progress.rows()));
    let end = match interrupted {
        None => write_all(options, &report, &notes)?,
        Some((_, (finished, all))) => {
            eprintln!("forkless: interrupted after {finished} of {all} rows; no files were written");
            // First: of many notes, standard output has only the first ones.
            notes.insert(0, format!("interrupted after {finished} of {all} rows"));
            String::new()
        }
    };
    if ![&options.json, &options.csv].into_iter().flatten().any(|path| path == Path::new("-")) {
        let layout = Layout::of_stdout(options.targets);
        let text = if options.tables {
            table::render(&report, &notes, &layout) + &end
        } else {
            let file = interrupted.is_none().then(|| options.out.join("table.txt"));
            let elsewhere = file.map_or_else(|| "--tables".to_owned(), |file| file.display().to_string());
            digest::digest(&report, &notes, &layout, &elsewhere, &end)
        };
        let mut stdout = std::io::stdout().lock();
        // A reader that closes the pipe early (`| head`) is not an error.
        let _ = write!(stdout, "{text}").and_then(|()| stdout.flush());
    }
    Ok(interrupted.map(|(signal, _)| signal))
}

/// Prepares what all conditions share: the program, the available settings, the engines.
fn set_up(options: &BenchOptions, limits: &Limits, contestants: &[Contestant]) -> Result<Stage> {
    let program = Program::from_words(&options.program)?;
    let settings = if options.has_part(Part::Settings) { Settings::find() } else { Settings::none() };
    // With many children alive, libuv is the only engine that takes part.
    let race = options.is_sweep() || options.has_part(Part::Settings);
    let wanted = |c: &&Contestant| race || **c == Contestant::Libuv && options.has_part(Part::Alive);
    let wanted: Vec<_> = contestants.iter().filter(wanted).copied().collect();
    let engines = Engines::find(&wanted, options.preload.as_deref())?;
    let outputs = match (options.has_part(Part::Output), options.has_part(Part::Tokio)) {
        (true, _) => options.outputs(),
        (false, true) => vec![OUTPUTS[0]],
        (false, false) => Vec::new(),
    };
    let warm = if options.has_part(Part::Warm) { WarmPrograms::find()? } else { WarmPrograms::default() };
    let writers = outputs.into_iter().map(|bytes| Ok((bytes, Program::writer(bytes)?))).collect::<Result<_>>()?;
    Ok(Stage { program, writers, warm, settings, engines, memory_mib: limits.memory_mib, quick: options.quick })
}

/// Writes the files of `--json`, `--csv` and `--out`; returns lines that name the page.
fn write_all(options: &BenchOptions, report: &Report, notes: &[String]) -> Result<String> {
    let (json, csv) = (report.json()?, report.csv()?);
    if let Some(path) = &options.json {
        write_to(path, &json)?;
    }
    if let Some(path) = &options.csv {
        write_to(path, &csv)?;
    }
    let out = &options.out;
    fs::create_dir_all(out).with_context(|| format!("--out: cannot create the directory {}", out.display()))?;
    write_in(out, "results.json", json.as_bytes())?;
    write_in(out, "results.csv", csv.as_bytes())?;
    if !report.alive.is_empty() {
        write_in(out, "alive.csv", report.alive_csv()?.as_bytes())?;
    }
    let text = table::render(report, notes, &Layout::of_file(options.targets));
    write_in(out, "table.txt", text.as_bytes())?;
    let page = report::write(out, &[(report, notes)], options.targets)?;
    Ok(format!("\nPage with plots and tables:\n{}\n", page.display()))
}
