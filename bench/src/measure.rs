//! The measurement of all conditions, the count of system calls and the part with many children alive.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{
    budget::Budget,
    condition::{Condition, OUTPUTS},
    contestant::Contestant,
    interrupt::Interrupt,
    many_children,
    options::{BenchOptions, Part},
    parent::Parent,
    progress::Progress,
    quiet::Quiet,
    race::{self, Raced},
    rows::{AliveRow, FEW, Row},
    stage::Stage,
    sweeps::Limits,
};

/// The time share of two conditions, as a multiple of the others: the small parent, whose ratios are compared with targets of
/// a few percent, and large output, which allows few launches in the same time.
const LARGE_SHARE: u32 = 3;

/// The expected time to count the system calls of a method, and that of each child alive and of each exit. For the progress only.
const COUNTING: Duration = Duration::from_millis(150);
const CHILD: Duration = Duration::from_micros(200);
const EXIT: Duration = Duration::from_millis(1);

/// What is measured, and how much of it.
pub(crate) struct Bench<'a> {
    options: &'a BenchOptions,
    stage: &'a Stage,
    interrupt: &'a Interrupt,
    conditions: &'a [Condition],
    contestants: &'a [Contestant],
    /// The time of one share of a condition.
    share: Duration,
    shares: u32,
    alive: Option<Alive>,
}

/// The part with many children alive.
#[derive(Clone, Copy)]
struct Alive {
    children: usize,
    exits: usize,
}

/// Everything that was measured.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) rows: Vec<Row>,
    pub(crate) alive: Vec<AliveRow>,
    pub(crate) notes: Vec<String>,
}

impl<'a> Bench<'a> {
    /// Plans the measurement. Adds notes on what is left out.
    ///
    /// # Errors
    /// If none of the selected methods is available.
    pub(crate) fn plan(
        (options, limits): (&'a BenchOptions, &Limits),
        (stage, interrupt): (&'a Stage, &'a Interrupt),
        (conditions, contestants): (&'a [Condition], &'a [Contestant]),
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let alive = alive(options, limits, notes);
        let mut own =
            Self { options, stage, interrupt, conditions, contestants, share: Duration::ZERO, shares: 0, alive };
        own.shares = conditions.iter().map(|condition| own.cells(condition)).sum();
        ensure!(own.shares > 0 || conditions.is_empty(), "none of the selected methods is available");
        own.share = options.measuring_time() / own.shares.max(1);
        Ok(own)
    }

    /// The progress of all that follows.
    pub(crate) fn progress(&self) -> Progress {
        if self.options.no_progress {
            return Progress::hidden_of(self.count_rows());
        }
        let countable = self.conditions.iter().filter(|condition| condition.is_countable());
        let counted: usize = countable.map(|condition| self.entrants(condition)).sum();
        let counting = if self.options.quick { Duration::ZERO } else { COUNTING * counted as u32 };
        let alive = self.alive.map_or(Duration::ZERO, |alive| alive.turn() * many_children::turns(&self.stage.engines));
        Progress::new(self.share * self.shares + counting + alive, self.count_rows())
    }

    /// Measures everything, until a signal arrives.
    ///
    /// # Errors
    /// If a method fails or a condition cannot be set up, unless a signal has arrived.
    pub(crate) fn everything(&self, progress: &Progress) -> Result<Measured> {
        // The output of the user's program and of the warm programs must not get into the tables.
        let is_quiet = self.options.program.is_empty() && !self.options.has_part(Part::Warm);
        let quiet = if is_quiet { None } else { Some(Quiet::new()?) };
        let Raced { mut rows, mut notes } = self.races(progress)?;
        self.count(&mut rows, progress, &mut notes);
        drop(quiet);
        let alive = if self.is_stopped() { Vec::new() } else { self.alive(progress)? };
        progress.clear();
        Ok(Measured { rows, alive, notes })
    }

    fn is_stopped(&self) -> bool {
        self.interrupt.signal().is_some()
    }

    fn budget(&self, time: Duration) -> Budget<'_> {
        Budget { time, samples: self.options.samples, stop: self.interrupt.flag() }
    }

    /// The number of rows of a condition.
    fn entrants(&self, condition: &Condition) -> usize {
        self.stage.entrants(condition, self.contestants).len()
    }

    fn count_rows(&self) -> usize {
        let alive = self.alive.map_or(0, |_| many_children::rows(&self.stage.engines));
        self.conditions.iter().map(|condition| self.entrants(condition)).sum::<usize>() + alive
    }

    /// The shares of the time that a condition gets.
    fn cells(&self, condition: &Condition) -> u32 {
        let entrants = self.stage.entrants(condition, self.contestants);
        // Each engine that runs alone shares its turns with the vfork baseline, which needs time, too.
        let alone = entrants.iter().filter(|contestant| contestant.is_engine() && self.stage.is_narrow(condition));
        (entrants.len() + alone.count()) as u32 * weight(condition)
    }

    /// Measures all conditions, one after the other.
    fn races(&self, progress: &Progress) -> Result<Raced> {
        let Raced { mut rows, mut notes } = Raced::default();
        let mut parent: Option<Parent> = None;
        for condition in &with_large_parents_together(self.conditions) {
            let entrants = self.entrants(condition);
            if entrants == 0 || self.is_stopped() {
                continue;
            }
            progress.begin(condition.describe(), entrants);
            self.stage.engines.keep_only(condition.parent_mib);
            parent = match parent.filter(|parent| parent.is_for(condition)) {
                None => Some(Parent::become_like(condition).with_context(|| condition.describe())?),
                same => same,
            };
            let budget = self.budget(self.share * weight(condition));
            match race::race(condition, self.contestants, self.stage, budget, progress) {
                Ok(raced) => {
                    rows.extend(raced.rows);
                    notes.extend(raced.notes);
                }
                // The keys of a terminal send the signal to the launched program, too.
                Err(_) if self.is_stopped() => {}
                Err(error) => return Err(error.context(condition.describe())),
            }
            if self.is_stopped() {
                notes.push(format!("{}: interrupted, the rows have fewer launches", condition.describe()));
            } else {
                progress.end();
            }
        }
        self.stage.engines.keep_only(0);
        let place = |row: &Row| Contestant::ALL.iter().position(|contestant| contestant.name() == row.launcher);
        rows.sort_by_key(|row| (self.conditions.iter().position(|c| *c == row.condition()), place(row)));
        Ok(Raced { rows, notes })
    }

    /// Counts system calls per launch, for the rows in which the number can differ. Not with `--quick`: it takes seconds.
    fn count(&self, rows: &mut [Row], progress: &Progress, notes: &mut Vec<String>) {
        let options = self.options;
        let wanted = |row: &&mut Row| {
            row.condition().is_countable() && (row.path_misses == 0 || options.full || !options.only.is_empty())
        };
        for row in rows.iter_mut().filter(wanted) {
            if options.quick || self.is_stopped() {
                return;
            }
            let Some(contestant) = Contestant::ALL.into_iter().find(|c| c.name() == row.launcher) else { continue };
            progress.begin("system calls".to_owned(), 0);
            progress.method(row.launcher);
            match self.stage.engines.system_calls(contestant, &self.stage.job(&row.condition())) {
                Ok(calls) => row.system_calls = Some(calls),
                Err(_) if self.is_stopped() => return,
                Err(error) => {
                    notes.push(format!("system calls not counted for {} and later rows: {error:#}", row.launcher));
                    return;
                }
            }
            progress.inc(COUNTING);
        }
    }

    /// Measures the part with many children alive, which has a separate table.
    fn alive(&self, progress: &Progress) -> Result<Vec<AliveRow>> {
        let Some(alive) = self.alive else { return Ok(Vec::new()) };
        let engines = &self.stage.engines;
        let count = many_children::rows(engines);
        let name = format!("{} children alive", super::units::thousands(alive.children as u64));
        progress.begin(name, count);
        let rows =
            many_children::measure(alive.children, alive.exits, engines, self.budget(Duration::ZERO), |waiter| {
                progress.method(waiter);
                progress.inc(alive.turn());
            });
        match rows {
            Err(_) if self.is_stopped() => Ok(Vec::new()),
            rows => {
                progress.end();
                rows
            }
        }
    }
}

impl Alive {
    /// The expected time of one method.
    fn turn(self) -> Duration {
        CHILD * self.children as u32 + EXIT * self.exits as u32
    }
}

/// The numbers of children and of exits, if that part is selected and the limits allow it.
fn alive(options: &BenchOptions, limits: &Limits, notes: &mut Vec<String>) -> Option<Alive> {
    if !options.has_part(Part::Alive) {
        return None;
    }
    let (usual, exits) = match (options.quick, options.full) {
        (true, _) => (2_000, 100),
        (false, false) => (10_000, 400),
        (false, true) => (30_000, 400),
    };
    let wanted = options.children.unwrap_or(usual);
    let children = many_children::most(wanted, limits.fds);
    if children < wanted {
        notes.push(format!("{children} instead of {wanted} children alive: limited by open files, processes or PIDs"));
    }
    if children <= FEW {
        notes.push(format!("no table of children alive: needs more than {FEW} children"));
        return None;
    }
    Some(Alive { children, exits: exits.min(usize::try_from(options.samples).unwrap_or(usize::MAX).max(2)) })
}

fn weight(condition: &Condition) -> u32 {
    if *condition == Condition::SMALL || condition.output == OUTPUTS[1] { LARGE_SHARE } else { 1 }
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
