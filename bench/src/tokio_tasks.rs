//! Concurrent launches on one tokio runtime: each task launches, awaits the exit and launches again.

use std::{
    ffi::OsString,
    io,
    path::PathBuf,
    process::ExitStatus,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use forkless::tokio::{self as ours, Prepared};
use tokio::runtime::Runtime;

use super::{
    budget::{Budget, cpu_time},
    condition::Condition,
    contestant::Contestant,
    launcher::{Job, check_output, look_through, nanoseconds},
    program::check,
    progress::Progress,
    rows::Row,
    stage::Stage,
    statistics::{Sample, Series},
};

/// Launches in a turn.
const TURN: u64 = 250;
/// Minimum number of launches of each method, however slow.
const FEWEST: u64 = 1_000;

/// Measures the methods in turns with equal numbers of launches, on one runtime with a thread for each CPU, until the total time is
/// used.
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
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let most = usize::try_from(budget.samples).unwrap_or(usize::MAX);
    let (launches, fewest) = (TURN.min(budget.samples.div_ceil(4)), most.min(FEWEST as usize));
    let mut series: Vec<(Contestant, Series)> = contestants.iter().map(|&c| (c, Series::default())).collect();
    let count = series.len();
    let time = budget.time * u32::try_from(count)?;
    for round in 0.. {
        let used: Duration = series.iter().map(|(_, series)| series.wall).sum();
        let made = series.iter().map(|(_, series)| series.len()).min().unwrap_or(most);
        if made >= most || made >= fewest && used >= time || budget.is_stopped() {
            break;
        }
        for turn in 0..count {
            let (contestant, series) = &mut series[(round + turn) % count];
            let name = || format!("method {}", contestant.name());
            let way = TaskMethod::new(*contestant, &stage.job(condition)).with_context(name)?;
            progress.method(contestant.name());
            let run = TokioTurn { way, launches, tasks: condition.tasks };
            // The first round is not counted: the runtime starts its threads and its SIGCHLD handling in it.
            let ran = match round {
                0 => run.go(&runtime, &mut Series::default()),
                _ => run.go(&runtime, series),
            };
            budget.unless_stopped(ran.with_context(name))?;
            if budget.is_stopped() {
                break;
            }
        }
    }
    progress.inc(time);
    Ok(series.into_iter().filter_map(|(c, s)| Some(Row::new(c, condition, s.summary()?))).collect())
}

/// One turn.
struct TokioTurn {
    way: TaskMethod,
    launches: u64,
    tasks: usize,
}

impl TokioTurn {
    fn go(self, runtime: &Runtime, series: &mut Series) -> Result<()> {
        let left = Arc::new(AtomicU64::new(self.launches));
        let samples = Arc::new(Mutex::new(Vec::new()));
        let way = Arc::new(self.way);
        let cpu = cpu_time();
        let start = Instant::now();
        runtime.block_on(async {
            let task = |_| {
                let (left, samples, way) = (Arc::clone(&left), Arc::clone(&samples), Arc::clone(&way));
                runtime.spawn(async move {
                    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                        let sample = way.launch().await?;
                        samples.lock().map_err(|_| anyhow::anyhow!("a task has panicked"))?.push(sample);
                    }
                    Ok::<(), anyhow::Error>(())
                })
            };
            // Start all tasks before awaiting the first.
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

/// The method and the program of a task.
struct TaskMethod {
    contestant: Contestant,
    path: PathBuf,
    args: Vec<OsString>,
    /// Bytes that the program writes and the method captures; 0: none.
    output: u64,
    /// The plan of a prepared method, created once, as in a server.
    plan: Option<Prepared>,
}

impl TaskMethod {
    fn new(contestant: Contestant, job: &Job) -> Result<Self> {
        let (path, args) = (job.program.path.clone(), job.program.args.clone());
        let prepare = || Ok::<_, io::Error>(Prepared::from(forkless::Command::new(&path).args(&args).prepare()?));
        let plan = match contestant {
            Contestant::ForklessTokioPreparedStatus => Some(prepare().context("not prepared")?),
            _ => None,
        };
        Ok(Self { contestant, path, args, output: job.condition.output, plan })
    }

    async fn launch(&self) -> Result<Sample> {
        let start = Instant::now();
        if self.output > 0 {
            return self.capture(start).await;
        }
        // A macro, because the child types of both libraries differ.
        macro_rules! finish {
            ($child:expr) => {{
                let mut child = $child.context("not launched")?;
                let held_ns = nanoseconds(start);
                let status = child.wait().await.context("not waited for")?;
                drop(child);
                (held_ns, status)
            }};
        }
        let (held_ns, status) = match (self.contestant, &self.plan) {
            (_, Some(plan)) => whole(start, plan.status()).await?,
            (Contestant::Tokio, _) => finish!(tokio::process::Command::new(&self.path).args(&self.args).spawn()),
            (Contestant::ForklessTokio, _) => finish!(ours::Command::new(&self.path).args(&self.args).spawn()),
            (Contestant::ForklessTokioStatus, _) => {
                whole(start, ours::Command::new(&self.path).args(&self.args).status()).await?
            }
            _ => bail!("this method does not run on tokio"),
        };
        let total_ns = nanoseconds(start);
        check(status)?;
        Ok(Sample { held_ns, total_ns })
    }

    async fn capture(&self, start: Instant) -> Result<Sample> {
        let output = match self.contestant {
            Contestant::Tokio => tokio::process::Command::new(&self.path).args(&self.args).output().await,
            Contestant::ForklessTokio => ours::Command::new(&self.path).args(&self.args).output().await,
            _ => bail!("this method does not capture output on tokio"),
        };
        let output = output.context("not launched")?;
        let intact = look_through(&output.stdout);
        let total_ns = nanoseconds(start);
        check(output.status)?;
        check_output(self.output, intact, output.stdout.len())?;
        Ok(Sample { held_ns: total_ns, total_ns })
    }
}

/// Awaits a child that was launched when its future was created.
async fn whole(start: Instant, end: impl Future<Output = io::Result<ExitStatus>>) -> Result<(u64, ExitStatus)> {
    let held_ns = nanoseconds(start);
    Ok((held_ns, end.await.context("launch or wait failed")?))
}

#[cfg(test)]
mod tests {
    use super::super::engines::Engines;
    use super::super::program::Program;
    use super::super::settings::Settings;
    use super::*;

    #[test]
    fn every_tokio_method_launches_and_reports_failures() {
        let writer = Program::writer(100).expect("temporary directory");
        let stage = |program, writers| Stage {
            program,
            writers,
            warm: crate::warm::WarmPrograms::default(),
            settings: Settings::none(),
            engines: Engines::none(),
            memory_mib: 0,
            quick: false,
        };
        let condition = Condition { tasks: 8, ..Condition::SMALL };
        let stop = std::sync::atomic::AtomicBool::new(false);
        let budget = Budget { time: std::time::Duration::ZERO, samples: 40, stop: &stop };
        let go = |condition: &Condition, contestants: &[Contestant], stage: &Stage| {
            race(condition, contestants, stage, budget, &Progress::hidden())
        };
        let here = stage(Program::embedded().expect("temporary directory"), vec![(100, writer)]);
        let capturing = Condition { output: 100, ..condition };
        for (condition, count) in [(&condition, 4), (&capturing, 2)] {
            let entrants = here.entrants(condition, &Contestant::ALL);
            let rows = go(condition, &entrants, &here).expect("launches");
            assert_eq!(rows.len(), count);
            for row in rows {
                assert_eq!(row.n, 40);
                assert!(row.rate_per_s > 0.0 && row.held_p50_us <= row.total_p50_us, "{row:?}");
            }
        }
        for contestant in here.entrants(&condition, &Contestant::ALL) {
            let error = go(&condition, &[contestant], &stage(Program::missing(), Vec::new())).expect_err("no program");
            assert!(format!("{error:#}").contains(&format!("method {}", contestant.name())), "{error:#}");
        }
        // The captured output is checked.
        let short = vec![(200, Program::writer(100).expect("temporary directory"))];
        let stage = stage(Program::missing(), short);
        let capturing = Condition { output: 200, ..condition };
        for contestant in stage.entrants(&capturing, &Contestant::ALL) {
            let error = go(&capturing, &[contestant], &stage).expect_err("too little");
            assert!(format!("{error:#}").contains("100 bytes of output instead of 200"), "{error:#}");
        }
    }
}
