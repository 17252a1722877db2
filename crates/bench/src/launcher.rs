//! One contestant made ready for one program: what it is asked, and how it is timed.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{
    budget::{Goal, cpu_time},
    condition::Condition,
    program::Program,
    statistics::{Sample, Series},
    wishes::Wishes,
};

/// One contestant made ready for one program.
pub(crate) trait Launcher {
    /// Launches the program once, waits for it and checks that it exited with 0.
    ///
    /// # Errors
    /// When it was not launched or did not exit with 0.
    fn launch(&mut self) -> Result<Sample>;

    /// Launches once, uncounted, and then until the goal is reached; adds those launches to `series`, with the time and the CPU
    /// time they took.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    fn turn(&mut self, goal: &Goal, series: &mut Series) -> Result<()> {
        self.launch()?;
        let cpu = cpu_time();
        let start = Instant::now();
        let mut count = 0;
        while goal.is_ahead(count, start.elapsed()) {
            series.push(self.launch()?);
            count += 1;
        }
        series.wall += start.elapsed();
        series.cpu += cpu_time().saturating_sub(cpu);
        Ok(())
    }

    /// A turn that would be shorter is left for later.
    fn least_turn(&self) -> Duration {
        Duration::ZERO
    }
}

/// What a contestant is to do.
#[derive(Clone, Copy)]
pub(crate) struct Job<'p> {
    pub(crate) program: &'p Program,
    /// What is asked of the launch. A contestant that is a process of its own must also be as large, the others are in ours.
    pub(crate) condition: Condition,
    pub(crate) wishes: &'p Wishes,
}

/// Fails unless the program wrote what it was to write. Looks at every page, in the time, so that whoever has mapped the
/// bytes instead of copying them has paid for that.
pub(crate) fn look_through(bytes: &[u8]) -> bool {
    bytes.iter().step_by(4096).all(|&byte| std::hint::black_box(byte) == b'x')
}

/// Fails unless it was all that the program writes.
pub(crate) fn check_output(wanted: u64, intact: bool, length: usize) -> Result<()> {
    ensure!(intact && length as u64 == wanted, "{length} bytes of output instead of {wanted}");
    Ok(())
}

/// Time since `start`.
pub(crate) fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
