//! Measures the methods in turns of some milliseconds, so that disturbances of the machine affect all of them alike.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{
    budget::{Budget, Goal, TURN, WARM_UP},
    condition::Condition,
    contestant::Contestant,
    launcher::Launcher,
    progress::Progress,
    rows::Row,
    stage::Stage,
    statistics::Series,
};

/// Minimum number of turns: with little time, turns are shorter …
const TURNS: u32 = 8;
/// … but at least this long.
const SHORTEST: Duration = Duration::from_millis(1);
/// Fixed seed: every run uses the same sequence of orders.
const SEED: u64 = 0x666b;
/// Minimum number of launches of each method, however slow.
const FEWEST: usize = 5;

/// The result of a race.
#[derive(Debug, Default)]
pub(crate) struct Raced {
    pub(crate) rows: Vec<Row>,
    /// Methods without a row, with the reason.
    pub(crate) notes: Vec<String>,
}

/// Measures all methods that can take part under a condition, in which the process must already be. After a signal, the rows have
/// the launches so far.
///
/// # Errors
/// If a method does not launch the program.
pub(crate) fn race(
    condition: &Condition,
    contestants: &[Contestant],
    stage: &Stage,
    budget: Budget,
    progress: &Progress,
) -> Result<Raced> {
    let contestants = stage.entrants(condition, contestants);
    if condition.tasks > 0 {
        let rows = super::tokio_tasks::race(condition, &contestants, stage, budget, progress)?;
        return Ok(Raced { rows, ..Raced::default() });
    }
    if condition.threads > 1 {
        let rows = super::threads::race(condition, &contestants, stage, budget, progress)?;
        return Ok(Raced { rows, ..Raced::default() });
    }
    stage.prove(condition, &contestants)?;
    let mut notes = Vec::new();
    let (apart, together): (Vec<_>, Vec<_>) =
        contestants.into_iter().partition(|c| c.is_engine() && stage.is_narrow(condition));
    let mut runners = Vec::new();
    for contestant in together {
        runners.extend(runner(contestant, condition, stage, budget, &mut notes)?);
    }
    budget.unless_stopped(take_turns(&mut runners, budget, progress))?;
    let mut finished: Vec<(Contestant, Series)> = runners.into_iter().map(|r| (r.contestant, r.series)).collect();
    for contestant in apart {
        if budget.is_stopped() {
            break;
        }
        let Some(alone) = runner(contestant, condition, stage, budget, &mut notes)? else { continue };
        let floor = finished.iter_mut().find(|(contestant, _)| *contestant == Contestant::Floor);
        let series = beside_the_floor(alone, floor.map(|(_, series)| series), condition, stage, budget, progress)?;
        finished.push((contestant, series));
        // Free its memory for the next engine.
        stage.engines.keep_only(0);
    }
    let row = |(contestant, series): (Contestant, Series)| {
        let lacks = stage.lacks(contestant, condition);
        Some(Row { lacks, ..Row::new(contestant, condition, series.summary()?) })
    };
    Ok(Raced { rows: finished.into_iter().filter_map(row).collect(), notes })
}

/// Prepares the method. Adds a note if it is an engine that cannot run under the condition.
fn runner<'s>(
    contestant: Contestant,
    condition: &Condition,
    stage: &'s Stage,
    budget: Budget,
    notes: &mut Vec<String>,
) -> Result<Option<RaceRunner<'s>>> {
    let job = stage.job(condition);
    let name = contestant.name();
    let start = || -> Result<RaceRunner<'s>> {
        let launcher = if condition.is_apart() && !contestant.is_engine() {
            Box::new(stage.engines.serve(contestant, &job)?)
        } else {
            stage.ready(contestant, condition)?
        };
        RaceRunner::warmed_up(contestant, launcher, budget)
    };
    match start() {
        Ok(runner) => Ok(Some(runner)),
        Err(error) if contestant.is_engine() && condition.is_demanding() => {
            notes.push(format!("no row of {name} with {}: {error:#}", condition.describe()));
            Ok(None)
        }
        Err(error) => Err(error.context(format!("method {name}"))),
    }
}

/// Measures one engine in turns with the vfork baseline, if that takes part, and adds these launches to those of the baseline.
fn beside_the_floor(
    alone: RaceRunner,
    floor: Option<&mut Series>,
    condition: &Condition,
    stage: &Stage,
    budget: Budget,
    progress: &Progress,
) -> Result<Series> {
    let mut pair = vec![alone];
    if floor.is_some() {
        let launcher = stage.ready(Contestant::Floor, condition)?;
        pair.push(RaceRunner::warmed_up(Contestant::Floor, launcher, budget)?);
    }
    budget.unless_stopped(take_turns(&mut pair, budget, progress))?;
    if let (Some(floor), Some(stretch)) = (floor, pair.get_mut(1)) {
        floor.append(std::mem::take(&mut stretch.series));
    }
    Ok(pair.swap_remove(0).series)
}

/// A method with its launches so far.
struct RaceRunner<'p> {
    contestant: Contestant,
    launcher: Box<dyn Launcher + 'p>,
    series: Series,
}

/// Limits of all launches of a method up to the end of a round.
struct Quota {
    time: Duration,
    fewest: usize,
    most: usize,
}

impl<'p> RaceRunner<'p> {
    fn warmed_up(contestant: Contestant, mut launcher: Box<dyn Launcher + 'p>, budget: Budget) -> Result<Self> {
        let start = Instant::now();
        for _ in 0..WARM_UP {
            launcher.launch()?;
            // A slow method must not use up its time for the warm-up.
            if start.elapsed() > budget.time / 4 {
                break;
            }
        }
        Ok(Self { contestant, launcher, series: Series::default() })
    }

    /// Launches until the quota is reached. Skips the turn if it is reached, or nearly, except in the last round.
    fn turn(&mut self, quota: &Quota, last: bool) -> Result<()> {
        let n = self.series.len();
        let goal = Goal {
            time: quota.time.saturating_sub(self.series.wall),
            fewest: quota.fewest.saturating_sub(n),
            most: quota.most.saturating_sub(n),
        };
        if !goal.is_unfinished(0, Duration::ZERO) || !last && goal.time < self.launcher.least_turn() {
            return Ok(());
        }
        self.launcher.turn(&goal, &mut self.series).with_context(|| format!("method {}", self.contestant.name()))
    }
}

/// Runs rounds of turns, each in a random order, so that no method always follows the same one, which leaves CPUs and caches in a
/// certain state. A method that has used more than its share of the time skips turns, so that also the few launches of a slow
/// method are spread over the whole time.
fn take_turns(runners: &mut [RaceRunner], budget: Budget, progress: &Progress) -> Result<()> {
    let time = (budget.time / TURNS).clamp(SHORTEST, TURN);
    let rounds = u32::try_from((budget.time.as_nanos() / time.as_nanos()).max(1)).unwrap_or(u32::MAX);
    let samples = usize::try_from(budget.samples).unwrap_or(usize::MAX);
    let part = |whole: usize, round: u32| whole.saturating_mul(round as usize).div_ceil(rounds as usize);
    let count = runners.len();
    let mut order: Vec<usize> = (0..count).collect();
    let mut random = fastrand::Rng::with_seed(SEED);
    for round in 1..=rounds {
        budget.go_on()?;
        let quota =
            Quota { time: budget.time / rounds * round, fewest: part(FEWEST, round), most: part(samples, round) };
        random.shuffle(&mut order);
        for &runner in &order {
            progress.method(runners[runner].contestant.name());
            runners[runner].turn(&quota, round == rounds)?;
        }
        progress.inc(time * count as u32);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::engines::Engines;
    use super::super::program::Program;
    use super::super::settings::Settings;
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn stage(program: Program) -> Stage {
        Stage {
            program,
            writers: Vec::new(),
            warm: crate::warm::WarmPrograms::default(),
            settings: Settings::none(),
            engines: Engines::none(),
            memory_mib: 0,
            quick: false,
        }
    }

    #[test]
    fn launches_are_spread_over_all_rounds() {
        let stage = stage(Program::embedded().expect("temporary directory"));
        let budget = Budget { time: Duration::from_secs(1), samples: 40, stop: &AtomicBool::new(false) };
        for threads in [1, 3] {
            let condition = Condition { threads, ..Condition::SMALL };
            let names = [Contestant::Floor, Contestant::PosixSpawn];
            let raced = race(&condition, &names, &stage, budget, &Progress::hidden()).expect("runs");
            assert_eq!((raced.rows.len(), raced.notes.len()), (2, 0));
            for row in raced.rows {
                assert!(row.n >= 5 && row.n <= 48, "{row:?}");
                assert!(row.rate_per_s > 0.0 && row.cpu_us > 0.0, "{row:?}");
            }
        }
    }

    /// With memory for one large engine, each runs in turns with the vfork baseline, and ends before the next one starts.
    #[test]
    fn large_engines_run_one_after_the_other_if_memory_is_short() {
        let wanted = [Contestant::Floor, Contestant::Go, Contestant::CPython, Contestant::PerlSystem];
        let engines = Engines::find(&wanted, None).expect("temporary directory");
        engines.absences().iter().for_each(|absence| eprintln!("SKIPPED: {absence}"));
        let names: Vec<_> = wanted.into_iter().filter(|c| !c.is_engine() || engines.has(*c)).collect();
        if engines.large() < 2 {
            return eprintln!("SKIPPED: large engines one after the other, because fewer than two are installed");
        }
        let condition = Condition { parent_mib: 2, ..Condition::SMALL };
        // Enough time for all samples on a busy machine: they are counted below.
        let budget = Budget { time: Duration::from_secs(20), samples: 30, stop: &AtomicBool::new(false) };
        let program = Program::embedded().expect("temporary directory");
        let mut stage = Stage { engines, memory_mib: 4, ..stage(program) };
        let run = |stage: &Stage| race(&condition, &names, stage, budget, &Progress::hidden()).expect("runs");
        let n = |raced: &Raced| raced.rows.iter().map(|row| (row.launcher, row.n)).collect::<Vec<_>>();
        assert!(stage.is_narrow(&condition));
        let narrow = run(&stage);
        assert_eq!(stage.engines.idle_count(), 0);
        stage.memory_mib = 2 * 20;
        assert!(!stage.is_narrow(&condition));
        let wide = run(&stage);
        assert_eq!(stage.engines.idle_count(), names.len() - 1);
        assert_eq!((narrow.rows.len(), narrow.notes.len()), (names.len(), 0));
        // The baseline runs with each of them.
        assert!(n(&narrow)[0].1 > 30 && n(&wide)[0].1 <= 30, "{:?} {:?}", n(&narrow), n(&wide));
        stage.memory_mib = 3;
        assert_eq!(stage.entrants(&condition, &names), [Contestant::Floor]);
    }

    #[test]
    fn error_names_the_failing_method() {
        let budget = Budget { time: Duration::from_millis(10), samples: 5, stop: &AtomicBool::new(false) };
        for threads in [1, 2] {
            let condition = Condition { threads, ..Condition::SMALL };
            let only = [Contestant::PosixSpawn];
            let error = race(&condition, &only, &stage(Program::missing()), budget, &Progress::hidden());
            let text = format!("{:#}", error.expect_err("nothing to launch"));
            assert!(text.contains("method posix_spawn"), "{text}");
        }
    }

    #[test]
    fn a_signal_stops_the_race() {
        let stage = stage(Program::embedded().expect("temporary directory"));
        let budget = Budget { time: Duration::from_secs(60), samples: 1_000_000, stop: &AtomicBool::new(true) };
        for threads in [1, 2] {
            let condition = Condition { threads, ..Condition::SMALL };
            let raced = race(&condition, &[Contestant::Floor], &stage, budget, &Progress::hidden());
            assert!(raced.expect("stopped").rows.is_empty());
        }
    }
}
