//! The results as sentences: the fastest method under each condition, and where forkless is slower than another method.

use std::collections::BTreeMap;

use super::{
    condition::{Condition, headline},
    name::{Name, shown},
    properties::{PROPERTIES, important},
    record::Report,
    rows::{FEW, Row, enough},
    units::{count, figure, thousands, time},
};

/// A difference of less than one percent is noise.
const NOISE: f64 = 1.01;
/// Tails vary more than medians.
const TAIL_NOISE: f64 = 1.1;
/// The fork mode of forkless. It costs what fork costs, by its nature, and is selected by programs that need it.
const OWN_FORK: &str = "forkless-fork";
/// What most programs use, and the method of forkless that stands for all, with their names in headings.
const USUAL: [(&str, &str); 3] = [("fork", "fork"), ("posix_spawn", "posix_spawn"), ("forkless-status", "forkless")];

/// The fastest method of forkless and the fastest other one, of those that applied all settings. Compares the median of the total
/// time; with threads and tasks, launches per second.
struct Duel<'a> {
    condition: Condition,
    /// The fastest method of forkless, and all of them.
    best: &'a Row,
    ours: Vec<&'a Row>,
    /// The fastest other method.
    rival: &'a Row,
}

impl Duel<'_> {
    /// What forkless gains or loses.
    fn verdict(&self) -> String {
        comparison(speed(self.best) / speed(self.rival))
    }
}

/// The comparison under a condition; `None` without a method of forkless or without another one.
fn duel<'a>(report: &'a Report, condition: &Condition) -> Option<Duel<'a>> {
    let rows = report.rows_of(condition).filter(|row| row.is_rival());
    let (ours, theirs): (Vec<&Row>, Vec<&Row>) = rows.partition(|row| row.is_ours());
    let fastest = |rows: &[&'a Row]| rows.iter().copied().max_by(|a, b| speed(a).total_cmp(&speed(b)));
    Some(Duel { condition: *condition, best: fastest(&ours)?, rival: fastest(&theirs)?, ours })
}

/// The times of the usual methods under a condition, as a heading; `None` without forkless or without another one.
pub(crate) fn heading(report: &Report, condition: &Condition) -> Option<String> {
    let find = |launcher| report.rows_of(condition).find(|row| row.launcher == launcher && row.lacks.is_none());
    let found: Vec<_> = USUAL.iter().filter_map(|(launcher, name)| Some((name, find(*launcher)?))).collect();
    let has_both = found.len() > 1 && found.last().is_some_and(|(_, row)| row.is_ours());
    let words: Vec<String> = found.iter().map(|(name, row)| format!("{} with {name}", pace(row))).collect();
    has_both.then(|| format!("{}: {}", headline(condition), words.join(", ")))
}

/// The most important result: with a large parent, if one was measured.
pub(crate) fn finding(report: &Report) -> Option<String> {
    let large = PROPERTIES[0].conditions(report);
    // 1 GiB is a common size; if it was not measured, the largest.
    let gibibyte = large.iter().find(|condition| condition.parent_mib == 1024);
    heading(report, gibibyte.or(large.last())?)
}

/// A line for each condition, the most important first, and for other figures.
pub(crate) fn results(report: &Report) -> Vec<String> {
    let important = important(report);
    let others = report.conditions().into_iter().filter(|condition| !important.contains(condition));
    let mut lines: Vec<String> = important.iter().filter_map(|condition| result(report, condition)).collect();
    lines.extend(blocked(report).into_iter().chain(waiting(report)));
    lines.extend(others.filter_map(|condition| result(report, &condition)));
    lines.into_iter().map(|line| line + ".").collect()
}

/// The comparison under a condition, or the three fastest methods if there is none.
pub(crate) fn result(report: &Report, condition: &Condition) -> Option<String> {
    let side = |row: &Row| format!("{} {}", shown(row.launcher), pace(row));
    let words = match duel(report, condition) {
        Some(duel) => format!("{}, {} ({})", side(duel.best), side(duel.rival), duel.verdict()),
        None => {
            let mut rows: Vec<&Row> = report.rows_of(condition).collect();
            rows.sort_by(|a, b| speed(b).total_cmp(&speed(a)));
            rows.into_iter().take(3).map(side).collect::<Vec<_>>().join(", ")
        }
    };
    (!words.is_empty()).then(|| format!("{}: {words}", headline(condition)))
}

/// The methods that block the caller for the shortest time.
fn blocked(report: &Report) -> Option<String> {
    let least = |is_ours| {
        let rows = report.rows_of(&Condition::SMALL).filter(|row| row.is_rival() && row.is_ours() == is_ours);
        rows.min_by(|a, b| a.held_p50_us.total_cmp(&b.held_p50_us))
    };
    let side = |row: &Row| format!("{} {}", row.launcher, time(row.held_p50_us));
    Some(format!("Shortest time for which a small caller is blocked: {}, {}", side(least(true)?), side(least(false)?)))
}

/// The cost of the exit of one of many children, the cheapest method first.
pub(crate) fn waiting(report: &Report) -> Option<String> {
    let most = report.alive.iter().map(|row| row.children).max().filter(|most| *most > FEW)?;
    let mut rows: Vec<_> = report.alive.iter().filter(|row| row.children == most).collect();
    rows.sort_by(|a, b| a.cpu_p50_us.total_cmp(&b.cpu_p50_us));
    let words: Vec<String> = rows.iter().map(|row| format!("{} {} µs", row.waiter, figure(row.cpu_p50_us))).collect();
    Some(format!("CPU time for the exit of one of {} children: {}", thousands(most as u64), words.join(", ")))
}

/// A method of forkless that is slower than what it is compared with, under some condition.
pub(crate) struct Loss {
    pub(crate) launcher: Name,
    /// The number of these conditions, and of all in which it takes part.
    conditions: u64,
    of: u64,
    /// The worst condition: the ratio of the times, and what is compared.
    factor: f64,
    worst: String,
}

impl Loss {
    /// The loss as text.
    pub(crate) fn describe(&self) -> String {
        let Self { launcher, conditions, of, factor, worst } = self;
        let (of, verdict) = (count(*of, "condition", "conditions"), comparison(1.0 / factor));
        format!("{launcher} in {conditions} of {of}, at worst {verdict} ({worst})")
    }
}

/// The methods that lose in these cases: each is a method, the ratio of its time to another, and what is compared. A ratio
/// up to `noise` is no loss. `None` if nothing was compared.
fn losses(cases: Vec<(Name, f64, String)>, noise: f64) -> Option<Vec<Loss>> {
    let mut losses: BTreeMap<Name, Loss> = BTreeMap::new();
    let is_any = !cases.is_empty();
    for (launcher, factor, worst) in cases.into_iter().filter(|(launcher, ..)| *launcher != OWN_FORK) {
        let none = Loss { launcher, conditions: 0, of: 0, factor: noise, worst: String::new() };
        let loss = losses.entry(launcher).or_insert(none);
        loss.of += 1;
        loss.conditions += u64::from(factor > noise);
        if factor > loss.factor {
            (loss.factor, loss.worst) = (factor, worst);
        }
    }
    is_any.then(|| losses.into_values().filter(|loss| loss.conditions > 0).collect())
}

/// The methods of forkless whose median is longer than that of the fastest alternative.
pub(crate) fn behind_a_rival(report: &Report) -> Option<Vec<Loss>> {
    let mut cases = Vec::new();
    for duel in report.conditions().iter().filter_map(|condition| duel(report, condition)) {
        let words = format!("{}, to {}", duel.condition.describe(), duel.rival.launcher);
        cases.extend(duel.ours.iter().map(|row| (row.launcher, speed(duel.rival) / speed(row), words.clone())));
    }
    losses(cases, NOISE)
}

/// The methods of forkless whose 99th percentile is longer than that of the fastest alternative. Only conditions that are compared by
/// time, not by rate.
fn longer_tails(report: &Report) -> Option<Vec<Loss>> {
    let mut cases = Vec::new();
    let tail = |row: &Row| enough(row.n, row.total_p99_us);
    for duel in report.conditions().iter().filter_map(|condition| duel(report, condition)) {
        let Some(theirs) = tail(duel.rival).filter(|_| !is_by_rate(duel.best)) else { continue };
        for (row, ours) in duel.ours.iter().filter_map(|row| Some((row, tail(row)?))) {
            let words = format!("{}, {} with {}", time(ours), time(theirs), duel.rival.launcher);
            cases.push((row.launcher, ours / theirs, format!("{words}; {}", duel.condition.describe())));
        }
    }
    losses(cases, TAIL_NOISE)
}

/// The methods of forkless that are slower than the vfork baseline. Without settings and tasks, which that does not support.
fn behind_the_floor(report: &Report) -> Option<Vec<Loss>> {
    let mut cases = Vec::new();
    for condition in report.conditions().into_iter().filter(Condition::has_floor) {
        let Some(floor) = report.rows_of(&condition).find(|row| row.launcher == "floor") else { continue };
        let ours = report.rows_of(&condition).filter(|row| row.is_ours());
        cases.extend(ours.map(|row| (row.launcher, speed(floor) / speed(row), condition.describe())));
    }
    losses(cases, NOISE)
}

/// All cases in which forkless is slower, by heading. If there are none, the list says so.
pub(crate) fn shortfalls(report: &Report) -> Vec<(&'static str, Vec<String>)> {
    let words = |(title, losses): (&'static str, Option<Vec<Loss>>)| {
        let lines: Vec<String> = losses?.iter().map(Loss::describe).collect();
        Some((title, if lines.is_empty() { vec!["None.".to_owned()] } else { lines }))
    };
    let lists = [
        ("Slower than the fastest alternative (median)", behind_a_rival(report)),
        ("Longer 99th percentile than the fastest alternative", longer_tails(report)),
        ("Slower than the vfork baseline (median)", behind_the_floor(report)),
    ];
    lists.into_iter().filter_map(words).collect()
}

/// How many methods of forkless are slower than the fastest alternative, and the worst case. `None` if nothing was compared.
pub(crate) fn slower(report: &Report) -> Option<String> {
    let losses = behind_a_rival(report)?;
    let worst = losses.iter().max_by(|a, b| a.factor.total_cmp(&b.factor));
    let methods = count(losses.len() as u64, "method", "methods");
    let words = match worst {
        Some(loss) => format!("{methods} of forkless, most of all {}", loss.describe()),
        None => "no method of forkless".to_owned(),
    };
    Some(format!("Slower than the fastest alternative under some condition: {words}."))
}

/// Launches per second for conditions with threads or tasks, else the inverse of the median time.
fn speed(row: &Row) -> f64 {
    if is_by_rate(row) { row.rate_per_s } else { 1e6 / row.total_p50_us }
}

fn is_by_rate(row: &Row) -> bool {
    row.threads > 1 || row.tasks > 0
}

/// The compared figure of a row, as text.
fn pace(row: &Row) -> String {
    if is_by_rate(row) { format!("{} launches/s", figure(row.rate_per_s)) } else { time(row.total_p50_us) }
}

/// A ratio of speeds as text.
fn comparison(factor: f64) -> String {
    let percent = |factor: f64| format!("{:.0} %", (factor - 1.0) * 100.0);
    match factor {
        f if f >= 1.995 => format!("{} × as fast", figure(f)),
        f if (f.max(1.0 / f) - 1.0) * 100.0 < 0.5 => "equally fast".to_owned(),
        f if f >= 1.0 => format!("{} faster", percent(f)),
        f if 1.0 / f < 1.995 => format!("{} slower", percent(1.0 / f)),
        f if f >= 0.1 => format!("{f:.2} × as fast"),
        f => format!("{} × as slow", figure(1.0 / f)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::Machine;
    use super::super::record::tests::{report, row};
    use super::*;

    fn describe(losses: Option<Vec<Loss>>) -> Vec<String> {
        losses.expect("compared").iter().map(Loss::describe).collect()
    }

    /// A difference that would be printed as "0 %" is none.
    #[test]
    fn small_differences_are_none() {
        let words = [1.0, 1.004, 1.0 / 1.004, 1.006, 1.0 / 1.006].map(comparison);
        assert_eq!(words, ["equally fast", "equally fast", "equally fast", "1 % faster", "1 % slower"]);
    }

    #[test]
    fn results_name_the_fastest_methods() {
        let expected = [
            "Small parent: forkless-status 55.0 µs, posix_spawn 110 µs (2.0 × as fast).",
            "4 threads at once: forkless-status 20,000 launches/s, posix_spawn 40,000 launches/s (0.50 × as fast).",
            "Shortest time for which a small caller is blocked: forkless-spawn 50.0 µs, posix_spawn 60.0 µs.",
        ];
        assert_eq!(results(&report()), expected);
        assert_eq!(finding(&report()).expect("both"), "Small parent: 110 µs with posix_spawn, 55.0 µs with forkless");
    }

    #[test]
    fn losses_are_listed_with_the_worst_case() {
        let expected = [
            "forkless-spawn in 1 of 1 condition, at worst 10 % slower (small parent, to posix_spawn)",
            "forkless-status in 1 of 2 conditions, at worst 0.50 × as fast (4 threads at once, to posix_spawn)",
        ];
        assert_eq!(describe(behind_a_rival(&report())), expected);
        let floor = ["forkless-spawn in 1 of 1 condition, at worst 51 % slower (small parent)"];
        assert_eq!(describe(behind_the_floor(&report())), floor);
        assert!(
            slower(&report())
                .expect("compared")
                .contains("2 methods of forkless, most of all forkless-status in 1 of 2")
        );
        let alone = Report::new(Machine::read(), vec![row("forkless-spawn", Condition::SMALL, 50.0, 99.0)], Vec::new());
        assert!(shortfalls(&alone).is_empty() && slower(&alone).is_none(), "nothing was compared");
    }

    #[test]
    fn own_fork_is_no_loss_and_large_ratios_are_no_per_cent() {
        let large = Condition { parent_mib: 1024, ..Condition::SMALL };
        let rows = vec![
            row("floor", large, 20.0, 40.0),
            row("posix_spawn", large, 40.0, 60.0),
            row("forkless-fork", large, 20_000.0, 20_050.0),
            row("forkless-zygote", large, 12_000.0, 12_000.0),
        ];
        let report = Report::new(Machine::read(), rows, Vec::new());
        let of = |losses| describe(losses).join("\n").replace("forkless-zygote in 1 of 1 condition, at worst ", "");
        assert_eq!(of(behind_a_rival(&report)), "200 × as slow (1 GiB of memory, to posix_spawn)");
        assert_eq!(of(behind_the_floor(&report)), "300 × as slow (1 GiB of memory)");
        assert_eq!(describe(longer_tails(&report)).len(), 1);
    }

    #[test]
    fn longer_tails_are_listed_beyond_the_noise_and_not_of_few_launches() {
        let mut report = report();
        assert_eq!(describe(longer_tails(&report)), [""; 0], "10 % is not a difference in tails");
        report.rows[3].total_p99_us = 300.0;
        let expected =
            "forkless-status in 1 of 1 condition, at worst 36 % slower (300 µs, 220 µs with posix_spawn; small parent)";
        assert_eq!(describe(longer_tails(&report)), [expected]);
        report.rows.iter_mut().for_each(|row| row.n = 99);
        assert!(longer_tails(&report).is_none());
    }
}
