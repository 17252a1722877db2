//! What is measured now, on standard error: on a terminal a line that is overwritten, else a line from time to time.

use std::{
    cell::Cell,
    io::{IsTerminal, stderr},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Updates per second on a terminal.
const HERTZ: u8 = 4;
/// Minimum time between two lines elsewhere.
const PAUSE: Duration = Duration::from_secs(10);

/// The progress of the whole bench. The measuring thread draws it between turns: another thread would disturb the measurement.
pub(crate) struct Progress {
    to: ProgressTarget,
    /// The expected time of everything.
    length: Duration,
    done: Cell<Duration>,
    start: Instant,
    printed: Cell<Option<Instant>>,
    /// Rows in all.
    rows: usize,
    finished: Cell<usize>,
    /// Rows that are measured now; 0: something else is.
    current: Cell<usize>,
    /// The condition of these rows.
    name: std::cell::RefCell<String>,
}

enum ProgressTarget {
    None,
    Terminal(ProgressBar),
    Lines,
}

impl Progress {
    /// Shows nothing.
    pub(crate) fn hidden() -> Self {
        Self::hidden_of(0)
    }

    /// Shows nothing, but counts rows.
    pub(crate) fn hidden_of(rows: usize) -> Self {
        Self::to(ProgressTarget::None, Duration::ZERO, rows)
    }

    /// For so many rows, which are expected to take `length`.
    pub(crate) fn new(length: Duration, rows: usize) -> Self {
        if !stderr().is_terminal() {
            return Self::to(ProgressTarget::Lines, length, rows);
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(HERTZ));
        // The message is cut at the width of the terminal.
        let style = ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
        Self::to(ProgressTarget::Terminal(bar.with_style(style)), length, rows)
    }

    fn to(to: ProgressTarget, length: Duration, rows: usize) -> Self {
        let (done, printed, name) = Default::default();
        let (finished, current) = Default::default();
        Self { to, length, done, start: Instant::now(), printed, rows, finished, current, name }
    }

    /// The next `rows` rows are measured from now on, under the condition `name`.
    pub(crate) fn begin(&self, name: String, rows: usize) {
        self.finished.set(self.finished.get() + self.current.replace(rows));
        self.name.replace(name);
        self.show(None);
    }

    /// All rows of the last [`begin`](Self::begin) are finished.
    pub(crate) fn end(&self) {
        self.finished.set(self.finished.get() + self.current.replace(0));
    }

    /// The number of finished rows, and of all.
    pub(crate) fn rows(&self) -> (usize, usize) {
        (self.finished.get(), self.rows)
    }

    /// This method is measured now.
    pub(crate) fn method(&self, name: &str) {
        if matches!(self.to, ProgressTarget::Terminal(_)) {
            self.show(Some(name));
        }
    }

    /// So much of the expected time is over.
    pub(crate) fn inc(&self, part: Duration) {
        self.done.set((self.done.get() + part).min(self.length));
    }

    /// Removes the line from the terminal.
    pub(crate) fn clear(&self) {
        if let ProgressTarget::Terminal(bar) = &self.to {
            bar.finish_and_clear();
        }
    }

    fn show(&self, method: Option<&str>) {
        let pause = match self.to {
            ProgressTarget::None => return,
            ProgressTarget::Terminal(_) => Duration::from_secs(1) / u32::from(HERTZ),
            ProgressTarget::Lines => PAUSE,
        };
        if self.printed.get().is_some_and(|last| last.elapsed() < pause) {
            return;
        }
        self.printed.set(Some(Instant::now()));
        match &self.to {
            ProgressTarget::None => {}
            ProgressTarget::Terminal(bar) => bar.set_message(self.describe(method)),
            ProgressTarget::Lines => eprintln!("forkless: bench: {}", self.describe(method)),
        }
    }

    /// "37 %, rows 13-24 of 190, about 34 s left: 1 GiB of memory: posix_spawn".
    fn describe(&self, method: Option<&str>) -> String {
        let done = self.done.get();
        let percent = (100.0 * done.as_secs_f64() / self.length.as_secs_f64().max(1e-9)) as u64;
        let rows = match (self.finished.get(), self.current.get()) {
            (finished, 0) => format!("{finished} rows"),
            (finished, current) => format!("rows {}-{}", finished + 1, finished + current),
        };
        let rest = rest(self.length, done, self.start.elapsed());
        let method = method.map_or_else(String::new, |method| format!(": {method}"));
        format!("{percent} %, {rows} of {}, about {rest} left: {}{method}", self.rows, self.name.borrow())
    }
}

/// The expected time left, scaled by real over expected time so far.
fn rest(length: Duration, done: Duration, elapsed: Duration) -> String {
    let left = length.saturating_sub(done).as_secs_f64();
    // At first the ratio is unreliable.
    let is_early = done < length / 20;
    let factor = if is_early { 1.0 } else { elapsed.as_secs_f64() / done.as_secs_f64().max(1e-9) };
    let seconds = (left * factor).ceil();
    if seconds < 100.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", (seconds / 60.0).ceil()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_follows_the_speed_so_far() {
        let s = Duration::from_secs;
        assert_eq!(rest(s(60), s(0), s(30)), "60 s");
        assert_eq!(rest(s(60), s(30), s(60)), "60 s");
        assert_eq!(rest(s(600), s(300), s(300)), "5 min");
        assert_eq!(rest(s(60), s(60), s(90)), "0 s");
    }

    #[test]
    fn line_names_rows_condition_and_method() {
        let progress = Progress::to(ProgressTarget::None, Duration::from_secs(100), 190);
        progress.begin("small parent".to_owned(), 12);
        progress.inc(Duration::from_secs(3));
        assert_eq!(progress.describe(None), "3 %, rows 1-12 of 190, about 97 s left: small parent");
        progress.begin("1 GiB of memory".to_owned(), 9);
        let words = progress.describe(Some("posix_spawn"));
        assert_eq!(words, "3 %, rows 13-21 of 190, about 97 s left: 1 GiB of memory: posix_spawn");
        assert_eq!(progress.rows(), (12, 190));
        progress.end();
        assert_eq!(progress.rows(), (21, 190));
    }
}
