//! A method prepared for one program: the interface to launch and to measure.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{
    budget::{Goal, cpu_time},
    condition::Condition,
    program::Program,
    statistics::{Sample, Series},
    wishes::Wishes,
};

/// A method prepared for one program.
pub(crate) trait Launcher {
    /// Launches the program once, waits for it and checks that it exited with 0.
    ///
    /// # Errors
    /// If the launch fails or the exit code is not 0.
    fn launch(&mut self) -> Result<Sample>;

    /// Launches once without counting, then until the goal is reached. Adds these launches to `series`, with the time and the CPU
    /// time they took.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    fn turn(&mut self, goal: &Goal, series: &mut Series) -> Result<()> {
        self.launch()?;
        let cpu = cpu_time();
        let start = Instant::now();
        let mut count = 0;
        while goal.is_unfinished(count, start.elapsed()) {
            series.push(self.launch()?);
            count += 1;
        }
        series.wall += start.elapsed();
        series.cpu += cpu_time().saturating_sub(cpu);
        Ok(())
    }

    /// Minimum length of a turn; shorter ones are postponed.
    fn least_turn(&self) -> Duration {
        Duration::ZERO
    }
}

/// The task of a method.
#[derive(Clone, Copy)]
pub(crate) struct Job<'p> {
    pub(crate) program: &'p Program,
    /// The condition of the launch. An engine must also apply the size of the parent; other methods run in this process.
    pub(crate) condition: Condition,
    pub(crate) wishes: &'p Wishes,
}

/// Checks the captured output. Reads every page within the measured time, so that a method that maps the output instead of copying
/// it pays for the page faults.
pub(crate) fn look_through(bytes: &[u8]) -> bool {
    bytes.iter().step_by(4096).all(|&byte| std::hint::black_box(byte) == b'x')
}

/// Checks that the output is complete.
pub(crate) fn check_output(wanted: u64, intact: bool, length: usize) -> Result<()> {
    ensure!(intact && length as u64 == wanted, "{length} bytes of output instead of {wanted}");
    Ok(())
}

/// Time since `start`.
pub(crate) fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
