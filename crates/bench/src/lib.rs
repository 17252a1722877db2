//! `forkless bench`: compares methods to launch a process on the user's machine.
//!
//! The modules in order: options and conditions, methods (contestants), parents, races, records, and output.
//! `bench/METHODOLOGY.md` says what is timed from where to where.

mod options;
mod sweeps;

mod units;
mod setting;
mod condition;
mod contestant;

mod program;
mod wishes;
mod budget;
mod launcher;
mod native;
mod ours;
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
mod brief;
mod serve;

mod statistics;
mod name;
mod machine;
mod rows;
mod targets;
mod record;
mod archive;

mod table;
mod summary;
mod charts;
mod plots;
mod page;
mod background;
mod report;
mod readme;
mod compare;

use std::{
    fs,
    io::{IsTerminal, Write},
    path::Path,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rows::FEW;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

pub use brief::{Brief, Parentage};
pub use contestant::Contestant;
pub use machine::Machine;
pub use options::BenchOptions;
pub use program::{TARGET_PROGRAM, search};
pub use rows::Row;
pub use table::new_table;
pub use units::{figure, thousands};

use self::archive::Archived;
use self::budget::Budget;
use self::condition::{Condition, OUTPUTS};
use self::engines::Engines;
use self::options::{Part, WithRecords};
use self::parent::Parent;
use self::program::Program;
use self::quiet::Quiet;
use self::race::Raced;
use self::record::{Report, write_in, write_to};
use self::rows::AliveRow;
use self::settings::Settings;
use self::stage::Stage;
use self::sweeps::{Limits, Sweeps};

/// The time share of two conditions, as a multiple of the others: the small parent, whose ratios are compared with targets of
/// a few percent, and large output, which allows few launches in the same time.
const LARGE_SHARE: u32 = 3;

/// Measures, or runs the subcommand. Prints errors to standard error.
pub fn main(options: &BenchOptions) -> ExitCode {
    let done = match &options.with_records {
        Some(WithRecords::Compare(options)) => return compare::status(compare::main(options)),
        Some(WithRecords::Report(options)) => report::main(options),
        None => run(options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forkless: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the bench and prints the results.
///
/// # Errors
/// If a method fails, a condition cannot be set up or a file cannot be written.
fn run(options: &BenchOptions) -> Result<()> {
    if let Some(contestant) = options.serve {
        return serve::serve(contestant, &options.program);
    }
    let limits = Limits::raise_and_read()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot install a signal handler")?;
    }
    let contestants = options.contestants();
    let stage = set_up(options, &limits, &contestants)?;
    let mut sweeps = Sweeps::plan(options, &limits, &stage.settings.list());
    sweeps.notes.extend(stage.settings.notes.iter().cloned());
    sweeps.notes.extend(stage.engines.absences());
    if forkless::Support::probe().is_ok_and(|support| support.shared_memory && !support.clone3) {
        sweeps.notes.push("clone3 is refused or missing: forkless uses clone".to_owned());
    }

    let quiet = if options.program.is_empty() { None } else { Some(Quiet::new()?) };
    let Raced { mut rows, notes } = measure(options, &stage, &sweeps.conditions, &contestants, &stop)?;
    sweeps.notes.extend(notes);
    count(options, &stage, &mut rows, &stop, &mut sweeps.notes)?;
    drop(quiet);
    let alive = alive(options, &limits, &stage, &stop, &mut sweeps.notes)?;
    let engines = stage.engines.versions().into_iter().collect();
    let machine = Machine { own_target: options.program.is_empty(), engines, ..Machine::read() };
    let record = Archived { report: Report::new(machine, rows, alive), notes: sweeps.notes };
    let wrote = write_all(options, &record)?;

    if ![&options.json, &options.csv].into_iter().flatten().any(|path| path == Path::new("-")) {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let text = table::render(&record.report, &record.notes, colour);
        let mut stdout = std::io::stdout().lock();
        // A reader that closes the pipe early (`| head`) is not an error.
        let _ = write!(stdout, "{text}\n{wrote}\n");
    }
    Ok(())
}

/// Prepares what all conditions share: the program, the available settings, the engines.
fn set_up(options: &BenchOptions, limits: &Limits, contestants: &[Contestant]) -> Result<Stage> {
    let program = Program::from_words(&options.program)?;
    let settings = if options.measures(Part::Settings) { Settings::find() } else { Settings::none() };
    // With many children alive, libuv is the only engine that takes part.
    let race = options.sweeps() || options.measures(Part::Settings);
    let wanted = |c: &&Contestant| race || **c == Contestant::Libuv && options.measures(Part::Alive);
    let wanted: Vec<_> = contestants.iter().filter(wanted).copied().collect();
    let engines = Engines::find(&wanted, options.preload.as_deref())?;
    let outputs = match (options.measures(Part::Output), options.measures(Part::Tokio)) {
        (true, _) => options.outputs(),
        (false, true) => vec![OUTPUTS[0]],
        (false, false) => Vec::new(),
    };
    let writers = outputs.into_iter().map(|bytes| Ok((bytes, Program::writer(bytes)?))).collect::<Result<_>>()?;
    Ok(Stage { program, writers, settings, engines, memory_mib: limits.memory_mib, quick: options.quick })
}

/// Measures all conditions, one after the other.
fn measure(
    options: &BenchOptions,
    stage: &Stage,
    conditions: &[Condition],
    contestants: &[Contestant],
    stop: &AtomicBool,
) -> Result<Raced> {
    let weight = |c: &Condition| if *c == Condition::SMALL || c.output == OUTPUTS[1] { LARGE_SHARE } else { 1 };
    let cells = |c: &Condition| {
        let entrants = stage.entrants(c, contestants);
        // Each engine that runs alone shares its turns with the vfork baseline, which needs time, too.
        let alone = entrants.iter().filter(|contestant| contestant.is_engine() && stage.is_narrow(c)).count();
        (entrants.len() + alone) as u32 * weight(c)
    };
    let shares: u32 = conditions.iter().map(cells).sum();
    ensure!(shares > 0 || conditions.is_empty(), "none of the selected methods is available");
    let share = options.measuring_time() / shares.max(1);

    let progress = progress_bar(options, share * shares);
    let Raced { mut rows, mut notes } = Raced::default();
    let mut parent: Option<Parent> = None;
    for condition in &with_large_parents_together(conditions) {
        if stage.entrants(condition, contestants).is_empty() {
            continue;
        }
        progress.set_message(condition.words());
        progress.tick();
        stage.engines.keep_only(condition.parent_mib);
        parent = match parent.filter(|parent| parent.suits(condition)) {
            None => Some(Parent::become_like(condition).with_context(|| condition.words())?),
            same => same,
        };
        let budget = Budget { time: share * weight(condition), samples: options.samples, stop };
        let raced = race::race(condition, contestants, stage, budget, &progress).with_context(|| condition.words())?;
        rows.extend(raced.rows);
        notes.extend(raced.notes);
    }
    stage.engines.keep_only(0);
    progress.finish_and_clear();
    let place = |row: &Row| Contestant::ALL.iter().position(|contestant| contestant.name() == row.launcher);
    rows.sort_by_key(|row| (conditions.iter().position(|condition| *condition == row.condition()), place(row)));
    Ok(Raced { rows, notes })
}

/// Counts system calls per launch, for the rows in which the number can differ. Not with `--quick`: it takes seconds.
fn count(
    options: &BenchOptions,
    stage: &Stage,
    rows: &mut [Row],
    stop: &AtomicBool,
    notes: &mut Vec<String>,
) -> Result<()> {
    if options.quick {
        return Ok(());
    }
    let progress = progress_bar(options, Duration::ZERO);
    let wanted = |row: &Row| {
        row.condition().is_countable() && (row.path_misses == 0 || options.full || !options.only.is_empty())
    };
    for row in rows.iter_mut().filter(|row| wanted(row)) {
        Budget { time: Duration::ZERO, samples: 0, stop }.go_on()?;
        let Some(contestant) = Contestant::ALL.into_iter().find(|c| c.name() == row.launcher) else { continue };
        progress.set_message(format!("system calls of {}", row.launcher));
        progress.tick();
        match stage.engines.system_calls(contestant, &stage.job(&row.condition())) {
            Ok(calls) => row.system_calls = Some(calls),
            Err(error) => {
                notes.push(format!("system calls not counted for {} and later rows: {error:#}", row.launcher));
                break;
            }
        }
    }
    progress.finish_and_clear();
    Ok(())
}

/// The order of measurement. Conditions with the same amount of memory are grouped, because allocating it can take seconds for
/// each gigabyte.
fn with_large_parents_together(conditions: &[Condition]) -> Vec<Condition> {
    let mut order: Vec<Condition> = Vec::new();
    for condition in conditions {
        let same = |other: &Condition| condition.parent_mib > 0 && other.parent_mib == condition.parent_mib;
        let at = order.iter().rposition(same).map_or(order.len(), |last| last + 1);
        order.insert(at, *condition);
    }
    order
}

/// Measures the part with many children alive, which has a separate table.
fn alive(
    options: &BenchOptions,
    limits: &Limits,
    stage: &Stage,
    stop: &AtomicBool,
    notes: &mut Vec<String>,
) -> Result<Vec<AliveRow>> {
    if !options.measures(Part::Alive) {
        return Ok(Vec::new());
    }
    let (usual, exits) = match (options.quick, options.full) {
        (true, _) => (2_000, 100),
        (false, false) => (10_000, 400),
        (false, true) => (30_000, 400),
    };
    let wanted = options.children.unwrap_or(usual);
    let many = many_children::most(wanted, limits.fds);
    if many < wanted {
        notes.push(format!("{many} instead of {wanted} children alive: limited by open files, processes or PIDs"));
    }
    if many <= FEW {
        notes.push(format!("no table of children alive: needs more than {} children", FEW));
        return Ok(Vec::new());
    }
    let exits = exits.min(usize::try_from(options.samples).unwrap_or(usize::MAX).max(2));
    let budget = Budget { time: Duration::ZERO, samples: options.samples, stop };
    let progress = progress_bar(options, Duration::ZERO);
    let rows = many_children::measure(many, exits, &stage.engines, budget, |words| {
        progress.set_message(words);
        progress.tick();
    });
    progress.finish_and_clear();
    rows
}

/// A progress bar on standard error, if that is a terminal. The measuring thread draws it between rounds: another thread would
/// disturb the measurement.
fn progress_bar(options: &BenchOptions, length: Duration) -> ProgressBar {
    if options.no_progress {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(length.as_millis() as u64), ProgressDrawTarget::stderr_with_hz(4));
    match ProgressStyle::with_template("{bar:32.green/dim} {percent:>3} % {elapsed:>4}  {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Writes the files of `--json`, `--csv` and `--out`; returns a line that names the page.
fn write_all(options: &BenchOptions, record: &Archived) -> Result<String> {
    let (json, csv) = (record.report.json()?, record.report.csv()?);
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
    if !record.report.alive.is_empty() {
        write_in(out, "alive.csv", record.report.alive_csv()?.as_bytes())?;
    }
    write_in(out, "table.txt", table::render(&record.report, &record.notes, false).as_bytes())?;
    let page = report::write(out, &[record], background::found_in(out)?.as_ref())?;
    Ok(format!("Page with plots and tables: {}", page.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_with_equal_memory_are_grouped() {
        let small = Condition::SMALL;
        let large = Condition { parent_mib: 1024, ..small };
        let (user, files) =
            (Condition { setting: crate::setting::Setting::User, ..small }, Condition { fds: 9, ..small });
        let large_user = Condition { parent_mib: 1024, ..user };
        let order = with_large_parents_together(&[small, large, files, user, large_user]);
        assert_eq!(order, [small, large, large_user, files, user]);
    }
}
