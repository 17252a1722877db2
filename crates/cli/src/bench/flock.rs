//! Many launches at once on one tokio runtime: tasks that each launch, await and launch again.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use tokio::runtime::Runtime;

use super::{
    conditions::Condition,
    contestants::{Contestant, check, nanoseconds},
    program::Program,
    race::{Budget, Stage, cpu_time},
    record::Row,
    statistics::{Sample, Series},
};

/// Turns of each contestant.
const ROUNDS: u64 = 4;
/// Launches of all turns together.
const LAUNCHES: u64 = 1_000;

/// Measures the contestants in turns of a quarter of the launches each, on one runtime with a thread for each core.
///
/// # Errors
/// When one does not launch the program, named.
pub(crate) fn race(
    condition: &Condition,
    contestants: &[Contestant],
    stage: &Stage,
    budget: Budget,
    progress: &ProgressBar,
) -> Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let launches = LAUNCHES.min(budget.samples).div_ceil(ROUNDS);
    let mut series: Vec<(Contestant, Series)> = contestants.iter().map(|&c| (c, Series::default())).collect();
    let count = series.len();
    for round in 0..=ROUNDS as usize {
        for turn in 0..count {
            budget.go_on()?;
            let (contestant, series) = &mut series[(round + turn) % count];
            let run = Run { contestant: *contestant, program: &stage.program, launches, tasks: condition.tasks };
            let name = || format!("contestant {}", contestant.name());
            // The first round is not counted: threads and the watch for children begin in it.
            match round {
                0 => run.go(&runtime, &mut Series::default()).with_context(name)?,
                _ => run.go(&runtime, series).with_context(name)?,
            }
            progress.tick();
        }
    }
    progress.inc((budget.time * u32::try_from(count)?).as_millis() as u64);
    Ok(series.into_iter().filter_map(|(c, s)| Some(Row::new(c, condition, s.summary()?))).collect())
}

/// One turn.
struct Run<'a> {
    contestant: Contestant,
    program: &'a Program,
    launches: u64,
    tasks: usize,
}

impl Run<'_> {
    fn go(&self, runtime: &Runtime, series: &mut Series) -> Result<()> {
        let left = Arc::new(AtomicU64::new(self.launches));
        let samples = Arc::new(Mutex::new(Vec::new()));
        let program = Arc::new((self.program.path.clone(), self.program.args.clone()));
        let cpu = cpu_time();
        let start = Instant::now();
        runtime.block_on(async {
            let task = |_| {
                let (left, samples, program) = (Arc::clone(&left), Arc::clone(&samples), Arc::clone(&program));
                let contestant = self.contestant;
                runtime.spawn(async move {
                    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                        let sample = launch(contestant, &program.0, &program.1).await?;
                        samples.lock().map_err(|_| anyhow::anyhow!("a task has panicked"))?.push(sample);
                    }
                    Ok::<(), anyhow::Error>(())
                })
            };
            // All begin before the first is awaited.
            let tasks: Vec<_> = (0..self.tasks).map(task).collect();
            for task in tasks {
                task.await??;
            }
            Ok::<(), anyhow::Error>(())
        })?;
        series.wall += start.elapsed();
        series.cpu += cpu_time().saturating_sub(cpu);
        samples.lock().map_err(|_| anyhow::anyhow!("a task has panicked"))?.iter().for_each(|&s| series.push(s));
        Ok(())
    }
}

async fn launch(contestant: Contestant, path: &std::path::Path, args: &[std::ffi::OsString]) -> Result<Sample> {
    let start = Instant::now();
    let (held_ns, status) = match contestant {
        Contestant::Tokio => {
            let mut child = tokio::process::Command::new(path).args(args).spawn().context("not launched")?;
            (nanoseconds(start), child.wait().await.context("not waited for")?)
        }
        _ => anyhow::bail!("it does not run on tokio"),
    };
    let total_ns = nanoseconds(start);
    check(status)?;
    Ok(Sample { held_ns, total_ns })
}

#[cfg(test)]
mod tests {
    use super::{super::engines::Engines, super::settings::Settings, *};

    #[test]
    fn all_are_launched_and_failures_are_told() {
        let stage = |program| Stage {
            program,
            writers: Vec::new(),
            settings: Settings::none(),
            engines: Engines::none(),
            memory_mib: 0,
            quick: false,
        };
        let condition = Condition { tasks: 8, ..Condition::SMALL };
        let stop = std::sync::atomic::AtomicBool::new(false);
        let budget = Budget { time: std::time::Duration::ZERO, samples: 40, stop: &stop };
        let go = |stage: &Stage| race(&condition, &[Contestant::Tokio], stage, budget, &ProgressBar::hidden());
        let rows = go(&stage(Program::embedded().expect("temporary directory"))).expect("launches");
        assert_eq!((rows.len(), rows[0].n), (1, 40));
        assert!(rows[0].rate_per_s > 0.0 && rows[0].held_p50_us <= rows[0].total_p50_us);
        let error = go(&stage(Program::missing())).expect_err("nothing to launch");
        assert!(format!("{error:#}").contains("contestant tokio"), "{error:#}");
    }
}
