//! The summary: the fastest method under each condition, and where forkless is slower than another method.

use super::{
    condition::{Condition, OUTPUTS, SOCKETS, TASKS, headline},
    record::Report,
    rows::{AliveRow, FEW, Row},
    setting::Setting,
    units::{figure, thousands},
};

/// A difference of less than one percent is noise.
const NOISE: f64 = 1.01;

/// The fastest method of forkless and the fastest other one, of those that applied all settings. Compares the median of the total
/// time; with threads and tasks, launches per second.
pub(crate) struct Duel<'a> {
    pub(crate) condition: Condition,
    /// The fastest method of forkless, and all of them.
    pub(crate) best: &'a Row,
    ours: Vec<&'a Row>,
    /// The fastest other method.
    pub(crate) rival: &'a Row,
}

impl Duel<'_> {
    /// The speed-up of the fastest method of forkless over the fastest other one.
    pub(crate) fn factor(&self) -> f64 {
        speed(self.best) / speed(self.rival)
    }

    /// The comparison as a sentence.
    pub(crate) fn words(&self) -> String {
        format!(
            "{} {}, fastest alternative {} {} ({}).",
            self.best.launcher,
            pace(self.best),
            self.rival.launcher,
            pace(self.rival),
            comparison(self.factor())
        )
    }
}

/// The comparison under a condition; `None` without a method of forkless or without another one.
pub(crate) fn duel<'a>(report: &'a Report, condition: &Condition) -> Option<Duel<'a>> {
    let rows = report.rows_of(condition).filter(|row| row.is_rival());
    let (ours, theirs): (Vec<&Row>, Vec<&Row>) = rows.partition(|row| row.is_ours());
    Some(Duel { condition: *condition, best: fastest(&ours)?, rival: fastest(&theirs)?, ours })
}

/// One line per condition, then one on methods that are slower than another method, and one on those slower than the baseline.
pub(crate) fn summary(report: &Report) -> Vec<String> {
    let duels: Vec<Duel> = report.conditions().iter().filter_map(|condition| duel(report, condition)).collect();
    let mut lines: Vec<String> =
        duels.iter().map(|duel| format!("{}: {}", headline(&duel.condition), duel.words())).collect();
    if !lines.is_empty() {
        let lost: Vec<String> = losses(report).iter().map(Loss::words).collect();
        let lost = if lost.is_empty() { "none".to_owned() } else { lost.join("; ") };
        lines.push(format!("Slower than the fastest alternative: {lost}."));
    }
    if let Some(behind) = behind_the_floor(report) {
        let behind = if behind.is_empty() {
            ": none".to_owned()
        } else {
            format!(", worst case of each: {}", behind.join("; "))
        };
        lines.push(format!("Slower than the vfork baseline{behind}."));
    }
    lines
}

/// A method of forkless that is slower than the fastest alternative under some condition.
pub(crate) struct Loss {
    pub(crate) launcher: &'static str,
    /// The number of these conditions, and of all in which it takes part.
    conditions: usize,
    of: usize,
    /// The worst condition: the ratio of the times, and the condition with the fastest method.
    factor: f64,
    worst: String,
}

impl Loss {
    /// The loss as text.
    pub(crate) fn words(&self) -> String {
        let Self { launcher, conditions, of, factor, worst } = self;
        format!("{launcher} in {conditions} of {of}, at worst by {} ({worst})", percent(*factor))
    }
}

/// All methods of forkless that are slower than the fastest alternative under some condition.
pub(crate) fn losses(report: &Report) -> Vec<Loss> {
    let mut losses: Vec<Loss> = Vec::new();
    for duel in report.conditions().iter().filter_map(|condition| duel(report, condition)) {
        for row in &duel.ours {
            let factor = speed(duel.rival) / speed(row);
            let index = losses.iter().position(|loss| loss.launcher == row.launcher).unwrap_or_else(|| {
                let none = Loss { launcher: row.launcher, conditions: 0, of: 0, factor: NOISE, worst: String::new() };
                losses.push(none);
                losses.len() - 1
            });
            let loss = &mut losses[index];
            loss.of += 1;
            loss.conditions += usize::from(factor > NOISE);
            if factor > loss.factor {
                loss.factor = factor;
                loss.worst = format!("{}, to {}", duel.condition.words(), duel.rival.launcher);
            }
        }
    }
    losses.retain(|loss| loss.conditions > 0);
    losses
}

/// The methods of forkless that are slower than the vfork baseline, each with its worst condition. Without settings and tasks,
/// which the baseline does not support. `None` if the baseline was not measured.
pub(crate) fn behind_the_floor(report: &Report) -> Option<Vec<String>> {
    let mut worst: Vec<(&str, f64, String)> = Vec::new();
    for condition in report.conditions().into_iter().filter(|condition| condition.has_floor()) {
        let Some(floor) = report.rows_of(&condition).find(|row| row.launcher == "floor") else { continue };
        for row in report.rows_of(&condition).filter(|row| row.is_ours()) {
            let loss = speed(floor) / speed(row);
            match worst.iter_mut().find(|(launcher, ..)| *launcher == row.launcher) {
                Some(entry) if entry.1 >= loss => {}
                Some(entry) => *entry = (row.launcher, loss, condition.words()),
                None => worst.push((row.launcher, loss, condition.words())),
            }
        }
    }
    let words = |(launcher, loss, words): &(&str, f64, String)| format!("{launcher} by {} ({words})", percent(*loss));
    let behind = worst.iter().filter(|(_, loss, _)| *loss > NOISE).map(words).collect();
    (!worst.is_empty()).then_some(behind)
}

/// All cases in which forkless is slower, by heading. If there are none, the list says so.
pub(crate) fn shortfalls(report: &Report) -> Vec<(&'static str, Vec<String>)> {
    let said = |lines: Vec<String>| if lines.is_empty() { vec!["None.".to_owned()] } else { lines };
    let mut found = Vec::new();
    if report.conditions().iter().any(|condition| duel(report, condition).is_some()) {
        found.push((
            "Slower than the fastest alternative (median)",
            said(losses(report).iter().map(Loss::words).collect()),
        ));
        found.push(("Longer 99th percentile than the fastest alternative, worst case", said(longer_tails(report))));
    }
    found.extend(
        behind_the_floor(report).map(|lines| ("Slower than the vfork baseline (median), worst case", said(lines))),
    );
    found
}

/// Tails vary more than medians: a smaller factor is noise.
const TAIL_NOISE: f64 = 1.1;

/// The methods of forkless whose 99th percentile is longer than that of the fastest alternative, each with its worst condition.
/// Only conditions that are compared by time, not by rate.
pub(crate) fn longer_tails(report: &Report) -> Vec<String> {
    let mut worst: Vec<(&str, f64, String)> = Vec::new();
    let duels = report.conditions().into_iter().filter_map(|condition| duel(report, &condition));
    for duel in duels.filter(|duel| !by_rate(duel.best)) {
        for row in &duel.ours {
            let factor = row.total_p99_us / duel.rival.total_p99_us;
            let words = || {
                let (ours, theirs) = (figure(row.total_p99_us), figure(duel.rival.total_p99_us));
                format!("{ours} µs, {theirs} µs with {} ({})", duel.rival.launcher, duel.condition.words())
            };
            match worst.iter_mut().find(|(launcher, ..)| *launcher == row.launcher) {
                Some(entry) if entry.1 >= factor => {}
                Some(entry) => *entry = (row.launcher, factor, words()),
                None => worst.push((row.launcher, factor, words())),
            }
        }
    }
    let longer = worst.into_iter().filter(|(_, factor, _)| *factor > TAIL_NOISE);
    longer.map(|(launcher, _, words)| format!("{launcher}: {words}")).collect()
}

/// The most important conditions of those measured: the small parent, and the end of each sweep.
pub(crate) fn telling(report: &Report) -> Vec<Condition> {
    let small = Condition::SMALL;
    let measured = report.conditions();
    // Of the conditions that differ from the small parent in one property, the one with its largest value.
    let most = |of: fn(&Condition) -> u64, with: fn(Condition, u64) -> Condition| {
        let is_alone = |condition: &&Condition| with(small, of(condition)) == **condition && of(condition) > of(&small);
        measured.iter().filter(is_alone).max_by_key(|condition| of(condition)).copied()
    };
    let memory = most(|c| c.parent_mib, |c, parent_mib| Condition { parent_mib, ..c });
    let large = Condition { parent_mib: memory.unwrap_or(small).parent_mib, ..small };
    let wanted = [
        Some(small),
        memory,
        most(|c| c.mappings, |c, mappings| Condition { mappings, ..c }),
        most(|c| c.fds, |c, fds| Condition { fds, ..c }),
        most(|c| c.faulting as u64, |c, faulting| Condition { faulting: faulting as usize, ..c }),
        most(|c| c.environment, |c, environment| Condition { environment, ..c }),
        most(|c| c.path_misses, |c, path_misses| Condition { path_misses, ..c }),
        most(|c| c.threads as u64, |c, threads| Condition { threads: threads as usize, ..c }),
        Some(Condition { setting: Setting::User, ..large }),
        Some(Condition { setting: Setting::UserNamespace, ..large }),
        Some(Condition { setting: Setting::All, ..large }),
        Some(Condition { output: OUTPUTS[0], ..small }),
        Some(Condition { output: OUTPUTS[1], ..small }),
        Some(Condition { tasks: TASKS, ..small }),
        Some(Condition { tasks: TASKS, fds: SOCKETS, ..small }),
    ];
    wanted.into_iter().flatten().filter(|condition| measured.contains(condition)).collect()
}

/// The results as sentences: the most important conditions, then other figures.
pub(crate) fn plainly(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for duel in telling(report).iter().filter_map(|condition| duel(report, condition)) {
        let floor = report.rows_of(&duel.condition).find(|row| row.launcher == "floor" && row.lacks.is_none());
        let floor = floor.map_or_else(String::new, |floor| format!(" Vfork baseline: {}.", pace(floor)));
        let side = |row: &Row| format!("{} with {}", pace(row), row.launcher);
        lines.push(format!(
            "{}: {}, fastest alternative {}: {}.{floor}",
            headline(&duel.condition),
            side(duel.best),
            side(duel.rival),
            comparison(duel.factor()),
        ));
    }
    lines.extend(besides(report));
    lines
}

/// Other figures: the cost of fork, the time for which the caller is blocked, and the cost of waiting.
pub(crate) fn besides(report: &Report) -> Vec<String> {
    [fork(report), held(report), waiting(&report.alive)].into_iter().flatten().collect()
}

/// The cost of fork in a small and in a large parent.
fn fork(report: &Report) -> Option<String> {
    let of = |parent_mib| {
        let condition = Condition { parent_mib, ..Condition::SMALL };
        report.rows.iter().find(|row| row.launcher == "fork" && row.condition() == condition)
    };
    let most = report.rows.iter().filter(|row| row.launcher == "fork").map(|row| row.parent_mib).max()?;
    let (small, large) = (of(0)?, of(most).filter(|row| row.parent_mib > 0)?);
    Some(format!(
        "fork takes {} in a small process and {} with {}.",
        pace(small),
        pace(large),
        large.condition().words()
    ))
}

/// The method that blocks the caller for the shortest time.
fn held(report: &Report) -> Option<String> {
    let rows = || report.rows_of(&Condition::SMALL).filter(|row| row.is_rival());
    let least = |rows: &mut dyn Iterator<Item = &'_ Row>| -> Option<(&'static str, f64)> {
        rows.map(|row| (row.launcher, row.held_p50_us)).min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let ours = least(&mut rows().filter(|row| row.is_ours()))?;
    let theirs = least(&mut rows().filter(|row| !row.is_ours()))?;
    Some(format!(
        "Shortest time for which a small caller is blocked: {} µs with {}, {} µs with {}, the best alternative.",
        figure(ours.1),
        ours.0,
        figure(theirs.1),
        theirs.0
    ))
}

/// The cost of the exit of one of many children.
fn waiting(alive: &[AliveRow]) -> Option<String> {
    let most = alive.iter().map(|row| row.children).max().filter(|most| *most > FEW)?;
    let of = |waiter: &str| alive.iter().find(|row| row.waiter == waiter && row.children == most);
    let (ours, classic) = (of("forkless-wait-set")?, of("wait-any")?);
    Some(format!(
        "With {} children alive, finding the one that ended costs {} µs of CPU time with forkless-wait-set, {} µs with wait(2).",
        thousands(most as u64),
        figure(ours.cpu_p50_us),
        figure(classic.cpu_p50_us),
    ))
}

/// Launches per second for conditions with threads or tasks, else the inverse of the median time.
fn speed(row: &Row) -> f64 {
    if by_rate(row) { row.rate_per_s } else { 1e6 / row.total_p50_us }
}

fn by_rate(row: &Row) -> bool {
    row.threads > 1 || row.tasks > 0
}

fn fastest<'a>(rows: &[&'a Row]) -> Option<&'a Row> {
    rows.iter().copied().max_by(|a, b| speed(a).total_cmp(&speed(b)))
}

/// The compared figure of a row, as text.
pub(crate) fn pace(row: &Row) -> String {
    if by_rate(row) {
        format!("{} launches/s", figure(row.rate_per_s))
    } else {
        format!("{} µs", figure(row.total_p50_us))
    }
}

fn comparison(factor: f64) -> String {
    match factor {
        f if f >= 1.995 => format!("{} × as fast", figure(f)),
        f if f >= 1.0 => format!("{} faster", percent(f)),
        f => format!("{} slower", percent(1.0 / f)),
    }
}

fn percent(factor: f64) -> String {
    format!("{} %", thousands(((factor - 1.0) * 100.0).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::super::machine::Machine;
    use super::super::record::tests::row;
    use super::*;

    fn report() -> Report {
        let small = Condition::SMALL;
        let crowd = Condition { threads: 4, ..small };
        let rows = vec![
            row("floor", small, 40.0, 80.0),
            row("posix_spawn", small, 60.0, 110.0),
            row("forkless-spawn", small, 50.0, 121.0),
            row("forkless-status", small, 55.0, 55.0),
            row("posix_spawn", crowd, 60.0, 100.0),
            row("forkless-status", crowd, 200.0, 200.0),
        ];
        Report::new(Machine::read(), rows, Vec::new())
    }

    #[test]
    fn summary_names_the_fastest_method_and_where_forkless_is_slower() {
        let lines = summary(&report());
        assert_eq!(
            lines[0],
            "Small parent: forkless-status 55.0 µs, fastest alternative posix_spawn 110 µs (2.0 × as fast)."
        );
        assert_eq!(
            lines[1],
            "4 threads at once: forkless-status 20,000 launches/s, fastest alternative posix_spawn 40,000 launches/s (100 % slower)."
        );
        assert_eq!(
            lines[2],
            "Slower than the fastest alternative: forkless-spawn in 1 of 1, at worst by 10 % (small parent, to posix_spawn); \
             forkless-status in 1 of 2, at worst by 100 % (4 threads at once, to posix_spawn)."
        );
        assert_eq!(
            lines[3],
            "Slower than the vfork baseline, worst case of each: forkless-spawn by 51 % (small parent)."
        );
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn summary_names_methods_slower_than_the_vfork_baseline() {
        let crowd = Condition { threads: 4, ..Condition::SMALL };
        let rows = vec![
            row("floor", Condition::SMALL, 40.0, 80.0),
            row("forkless-spawn", Condition::SMALL, 50.0, 88.0),
            row("forkless-status", Condition::SMALL, 50.0, 79.0),
            row("floor", crowd, 40.0, 80.0),
            row("forkless-spawn", crowd, 50.0, 100.0),
        ];
        let behind = behind_the_floor(&Report::new(Machine::read(), rows, Vec::new()));
        assert_eq!(behind, Some(vec!["forkless-spawn by 25 % (4 threads at once)".to_owned()]));
        let without = Report::new(Machine::read(), vec![row("forkless-spawn", crowd, 50.0, 100.0)], Vec::new());
        assert_eq!(behind_the_floor(&without), None);
    }

    #[test]
    fn longer_tails_are_listed_beyond_the_noise() {
        let mut report = report();
        assert_eq!(longer_tails(&report), Vec::<String>::new(), "10 % is not a difference in tails");
        let row = report.rows.iter_mut().find(|row| row.launcher == "forkless-status").expect("a row");
        row.total_p99_us = 300.0;
        assert_eq!(longer_tails(&report), ["forkless-status: 300 µs, 220 µs with posix_spawn (small parent)"]);
    }

    #[test]
    fn sentences_cover_the_ends_of_the_sweeps() {
        let lines = plainly(&report());
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!(
            lines[0],
            "Small parent: 55.0 µs with forkless-status, fastest alternative 110 µs with posix_spawn: 2.0 × as fast. \
             Vfork baseline: 80.0 µs."
        );
        assert!(lines[1].ends_with("40,000 launches/s with posix_spawn: 100 % slower."), "{lines:?}");
        assert!(lines[2].contains("50.0 µs with forkless-spawn, 60.0 µs with posix_spawn"), "{lines:?}");
    }
}
