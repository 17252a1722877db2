//! What the figures come to, in words: who was fastest under each condition, and where we lose.

use super::{
    condition::{Condition, OUTPUTS, SOCKETS, TASKS, headline},
    record::Report,
    rows::{AliveRow, FEW, Row},
    setting::Setting,
    units::{figure, thousands},
};

/// Less than one percent is not a loss but noise.
const NOISE: f64 = 1.01;

/// Who was fastest of those that did all that was asked for, and who is next to the best of ours. By the median of the total time,
/// with threads and tasks by launches per second.
pub(crate) struct Duel<'a> {
    pub(crate) condition: Condition,
    /// The best of ours, and all of them.
    pub(crate) best: &'a Row,
    ours: Vec<&'a Row>,
    /// The best of the others.
    pub(crate) rival: &'a Row,
}

impl Duel<'_> {
    /// How many times as fast the best of ours is.
    pub(crate) fn factor(&self) -> f64 {
        speed(self.best) / speed(self.rival)
    }

    /// The duel in a sentence.
    pub(crate) fn words(&self) -> String {
        format!(
            "{} {}; next is {} with {} ({}).",
            self.best.launcher,
            pace(self.best),
            self.rival.launcher,
            pace(self.rival),
            comparison(self.factor())
        )
    }
}

/// The duel under a condition; `None` where there are only others, or only ours.
pub(crate) fn duel<'a>(report: &'a Report, condition: &Condition) -> Option<Duel<'a>> {
    let rows = report.rows_of(condition).filter(|row| row.is_rival());
    let (ours, theirs): (Vec<&Row>, Vec<&Row>) = rows.partition(|row| row.is_ours());
    Some(Duel { condition: *condition, best: fastest(&ours)?, rival: fastest(&theirs)?, ours })
}

/// One line per condition, then one on all that loses to another way, and one on all that is behind the floor.
pub(crate) fn summary(report: &Report) -> Vec<String> {
    let duels: Vec<Duel> = report.conditions().iter().filter_map(|condition| duel(report, condition)).collect();
    let mut lines: Vec<String> =
        duels.iter().map(|duel| format!("{}: {}", headline(&duel.condition), duel.words())).collect();
    if !lines.is_empty() {
        let lost: Vec<String> = losses(report).iter().map(Loss::words).collect();
        let lost = if lost.is_empty() { "none of these rows".to_owned() } else { lost.join("; ") };
        lines.push(format!("Where forkless loses to another way: {lost}."));
    }
    if let Some(behind) = behind_the_floor(report) {
        let behind = if behind.is_empty() {
            ": none of these rows".to_owned()
        } else {
            format!(", at worst: {}", behind.join("; "))
        };
        lines.push(format!("Behind the floor{behind}."));
    }
    lines
}

/// One of our launchers that is slower than the best of the others somewhere.
pub(crate) struct Loss {
    pub(crate) launcher: &'static str,
    /// Under how many conditions, of how many in which it takes part.
    conditions: usize,
    of: usize,
    /// Under the worst of them: how many times as long it takes, what is asked for, and who is best.
    factor: f64,
    worst: String,
}

impl Loss {
    /// The loss in words.
    pub(crate) fn words(&self) -> String {
        let Self { launcher, conditions, of, factor, worst } = self;
        format!("{launcher} in {conditions} of {of}, at worst by {} ({worst})", percent(*factor))
    }
}

/// All of our launchers that are slower than the best of the others somewhere.
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

/// Which of our rows are behind the floor, each launcher with its worst condition. Without those with settings or tasks, of
/// which the floor knows nothing. `None` where there is no floor.
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

/// All in which we are behind, under the titles that say to what; never silent where there is something to compare with.
pub(crate) fn shortfalls(report: &Report) -> Vec<(&'static str, Vec<String>)> {
    let said = |lines: Vec<String>| if lines.is_empty() { vec!["In none of these rows.".to_owned()] } else { lines };
    let mut found = Vec::new();
    if report.conditions().iter().any(|condition| duel(report, condition).is_some()) {
        found.push((
            "Where forkless loses to another way, by the median",
            said(losses(report).iter().map(Loss::words).collect()),
        ));
        found.push(("Where its one slow launch in a hundred is slower, at worst", said(longer_tails(report))));
    }
    found.extend(behind_the_floor(report).map(|lines| ("Behind the floor, by the median, at worst", said(lines))));
    found
}

/// Tails vary: less than this much is not a difference.
const TAIL_NOISE: f64 = 1.1;

/// Each of our launchers whose one slow launch in a hundred is slower than that of the best of the others, with its worst condition.
/// Only where the time of a launch counts, not the rate.
pub(crate) fn longer_tails(report: &Report) -> Vec<String> {
    let mut worst: Vec<(&str, f64, String)> = Vec::new();
    let duels = report.conditions().into_iter().filter_map(|condition| duel(report, &condition));
    for duel in duels.filter(|duel| !by_rate(duel.best)) {
        for row in &duel.ours {
            let factor = row.total_p99_us / duel.rival.total_p99_us;
            let words = || {
                let (ours, theirs) = (figure(row.total_p99_us), figure(duel.rival.total_p99_us));
                format!("{ours} µs against {theirs} µs of {} ({})", duel.rival.launcher, duel.condition.words())
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

/// The conditions that matter most, of those that were measured: the small parent, and the end of each sweep.
pub(crate) fn telling(report: &Report) -> Vec<Condition> {
    let small = Condition::SMALL;
    let measured = report.conditions();
    // Of those that differ from the small parent in one thing, the one with the most of it.
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

/// What this machine shows, in plain sentences: the telling conditions, and what they do not say.
pub(crate) fn plainly(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for duel in telling(report).iter().filter_map(|condition| duel(report, condition)) {
        let floor = report.rows_of(&duel.condition).find(|row| row.launcher == "floor" && row.lacks.is_none());
        let floor = floor.map_or_else(String::new, |floor| format!(" The floor: {}.", pace(floor)));
        let side = |row: &Row| format!("{} by {}", pace(row), row.launcher);
        lines.push(format!(
            "{}: {}, the quickest other way {}: {}.{floor}",
            headline(&duel.condition),
            side(duel.best),
            side(duel.rival),
            comparison(duel.factor()),
        ));
    }
    lines.extend(besides(report));
    lines
}

/// What fork costs, how long the caller is held, and what it costs to wait: not a matter of who is fastest.
pub(crate) fn besides(report: &Report) -> Vec<String> {
    [fork(report), held(report), waiting(&report.alive)].into_iter().flatten().collect()
}

/// What memory costs who copies it.
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

/// Who gives control back first: the other half of the story.
fn held(report: &Report) -> Option<String> {
    let rows = || report.rows_of(&Condition::SMALL).filter(|row| row.is_rival());
    let least = |rows: &mut dyn Iterator<Item = &'_ Row>| -> Option<(&'static str, f64)> {
        rows.map(|row| (row.launcher, row.held_p50_us)).min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let ours = least(&mut rows().filter(|row| row.is_ours()))?;
    let theirs = least(&mut rows().filter(|row| !row.is_ours()))?;
    Some(format!(
        "Until the caller can go on, a small process waits {} µs with {}, and {} µs with {}, the least of the other ways.",
        figure(ours.1),
        ours.0,
        figure(theirs.1),
        theirs.0
    ))
}

/// What the end of one of many children costs.
fn waiting(alive: &[AliveRow]) -> Option<String> {
    let most = alive.iter().map(|row| row.children).max().filter(|most| *most > FEW)?;
    let of = |waiter: &str| alive.iter().find(|row| row.waiter == waiter && row.children == most);
    let (ours, classic) = (of("forkless-wait-set")?, of("wait-any")?);
    Some(format!(
        "With {} children alive, to be told which one ended costs {} µs of processor time with forkless-wait-set, {} µs with wait(2).",
        thousands(most as u64),
        figure(ours.cpu_p50_us),
        figure(classic.cpu_p50_us),
    ))
}

/// Launches per second where threads compete, else the inverse of the median time.
fn speed(row: &Row) -> f64 {
    if by_rate(row) { row.rate_per_s } else { 1e6 / row.total_p50_us }
}

fn by_rate(row: &Row) -> bool {
    row.threads > 1 || row.tasks > 0
}

fn fastest<'a>(rows: &[&'a Row]) -> Option<&'a Row> {
    rows.iter().copied().max_by(|a, b| speed(a).total_cmp(&speed(b)))
}

/// What counts of a row, in words.
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
    fn summary_says_who_wins_and_where_we_lose() {
        let lines = summary(&report());
        assert_eq!(lines[0], "Small parent: forkless-status 55.0 µs; next is posix_spawn with 110 µs (2.0 × as fast).");
        assert_eq!(
            lines[1],
            "4 threads at once: forkless-status 20,000 launches/s; next is posix_spawn with 40,000 launches/s (100 % slower)."
        );
        assert_eq!(
            lines[2],
            "Where forkless loses to another way: forkless-spawn in 1 of 1, at worst by 10 % (small parent, to posix_spawn); \
             forkless-status in 1 of 2, at worst by 100 % (4 threads at once, to posix_spawn)."
        );
        assert_eq!(lines[3], "Behind the floor, at worst: forkless-spawn by 51 % (small parent).");
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn summary_says_what_is_behind_the_floor() {
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
    fn longer_tails_are_said() {
        let mut report = report();
        assert_eq!(longer_tails(&report), Vec::<String>::new(), "10 % is not a difference in tails");
        let row = report.rows.iter_mut().find(|row| row.launcher == "forkless-status").expect("a row");
        row.total_p99_us = 300.0;
        assert_eq!(longer_tails(&report), ["forkless-status: 300 µs against 220 µs of posix_spawn (small parent)"]);
    }

    #[test]
    fn plain_words_have_the_ends_of_the_sweeps_and_say_when_we_lose() {
        let lines = plainly(&report());
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!(
            lines[0],
            "Small parent: 55.0 µs by forkless-status, the quickest other way 110 µs by posix_spawn: 2.0 × as fast. \
             The floor: 80.0 µs."
        );
        assert!(lines[1].ends_with("40,000 launches/s by posix_spawn: 100 % slower."), "{lines:?}");
        assert!(lines[2].contains("50.0 µs with forkless-spawn, and 60.0 µs with posix_spawn"), "{lines:?}");
    }
}
