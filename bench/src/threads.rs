//! The thread sweep: all threads launch with the same method, in time slices. Engines use their own threads.

use std::{
    sync::Barrier,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::{
    budget::{Budget, Goal, WARM_UP, cpu_time},
    condition::Condition,
    contestant::Contestant,
    launcher::Launcher,
    progress::Progress,
    rows::Row,
    stage::Stage,
    statistics::{Sample, Series},
};

/// Time slices of each method.
const ROUNDS: u32 = 8;

/// Measures the methods: in each turn, all threads launch with the same method for a time slice. After a signal, the rows have the
/// launches so far.
///
/// # Errors
/// If a method does not launch the program.
pub(crate) fn race(
    condition: &Condition,
    contestants: &[Contestant],
    stage: &Stage,
    budget: Budget,
    progress: &Progress,
) -> Result<Vec<Row>> {
    let slice = budget.time / ROUNDS;
    let most = usize::try_from(budget.samples).unwrap_or(usize::MAX);
    let per_thread = most.div_ceil(ROUNDS as usize).div_ceil(condition.threads);
    let goal = Goal { time: slice, fewest: 1, most: per_thread };
    let mut runners = Vec::new();
    for &contestant in contestants {
        let engine = contestant.is_engine().then(|| engine(contestant, condition, stage)).transpose();
        let engine = engine.with_context(|| format!("method {}", contestant.name()))?;
        runners.push((contestant, engine, Series::default()));
    }
    for round in 0..ROUNDS as usize {
        for turn in 0..runners.len() {
            if budget.is_stopped() {
                break;
            }
            let index = (round + turn) % contestants.len();
            let (contestant, engine, series) = &mut runners[index];
            progress.method(contestant.name());
            let ran = match engine {
                Some(engine) => engine.turn(&goal, series),
                None => LaunchingThreads { contestant: *contestant, condition, stage, slice, per_thread }.run(series),
            };
            budget.unless_stopped(ran.with_context(|| format!("method {}", contestant.name())))?;
            progress.inc(slice);
        }
    }
    Ok(runners.into_iter().filter_map(|(c, _, series)| Some(Row::new(c, condition, series.summary()?))).collect())
}

/// Prepares an engine, whose threads have made their uncounted launches.
fn engine<'s>(contestant: Contestant, condition: &Condition, stage: &'s Stage) -> Result<Box<dyn Launcher + 's>> {
    let mut engine = stage.ready(contestant, condition)?;
    let goal = Goal { time: Duration::ZERO, fewest: WARM_UP, most: WARM_UP };
    engine.turn(&goal, &mut Series::default())?;
    Ok(engine)
}

/// Threads that launch concurrently with one method.
struct LaunchingThreads<'a> {
    contestant: Contestant,
    condition: &'a Condition,
    stage: &'a Stage,
    slice: Duration,
    per_thread: usize,
}

impl LaunchingThreads<'_> {
    /// Runs one time slice, starting when all threads are ready.
    fn run(&self, series: &mut Series) -> Result<()> {
        let barrier = Barrier::new(self.condition.threads);
        let cpu = cpu_time();
        let answers: Vec<Result<ThreadRun>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.condition.threads).map(|_| scope.spawn(|| self.run_thread(&barrier))).collect();
            threads.into_iter().map(|t| t.join().expect("no contestant panics")).collect()
        });
        series.cpu += cpu_time().saturating_sub(cpu);
        let runs = answers.into_iter().collect::<Result<Vec<_>>>()?;
        let first = runs.iter().map(|r| r.start).min();
        let last = runs.iter().map(|r| r.end).max();
        if let (Some(first), Some(last)) = (first, last) {
            series.wall += last - first;
        }
        runs.iter().flat_map(|r| &r.samples).for_each(|&sample| series.push(sample));
        Ok(())
    }

    fn run_thread(&self, barrier: &Barrier) -> Result<ThreadRun> {
        let ready = self.stage.ready(self.contestant, self.condition);
        // A thread that failed must reach the barrier, too, or the others would wait for ever.
        barrier.wait();
        let mut launcher = ready?;
        let start = Instant::now();
        let mut samples = Vec::new();
        while samples.is_empty() || start.elapsed() < self.slice && samples.len() < self.per_thread {
            samples.push(launcher.launch()?);
        }
        Ok(ThreadRun { start, end: Instant::now(), samples })
    }
}

/// The launches of one thread in one slice.
struct ThreadRun {
    start: Instant,
    end: Instant,
    samples: Vec<Sample>,
}
