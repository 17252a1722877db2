//! The summary: the fastest method under each condition, and where forkless is slower than another method.

use super::{
    charts::Unit,
    condition::{Condition, OUTPUTS, SOCKETS, TASKS, headline},
    record::Report,
    rows::{AliveRow, FEW, Row, enough},
    setting::Setting,
    units::{count, figure, mebibytes, thousands},
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

/// The result under a condition as a heading.
pub(crate) fn duel_words(report: &Report, condition: &Condition) -> Option<String> {
    let duel = duel(report, condition)?;
    let side = |row: &Row| format!("{} with {}", pace(row), row.launcher);
    Some(format!("{}: {}, {}", headline(condition), side(duel.best), side(duel.rival)))
}

/// The beginning of a report: what it costs to start a program from three processes.
pub(crate) struct Opening {
    pub(crate) finding: String,
    pub(crate) sentence: String,
    pub(crate) conditions: Vec<Condition>,
}

/// The method of forkless that stands for all, and the stock methods, with their names in sentences.
const OURS: &str = "forkless-status";
const STOCK: [(&str, &str); 2] = [("fork", "fork"), ("posix_spawn", "posix_spawn")];

/// `None` without a large parent, or without a method to compare with.
pub(crate) fn opening(report: &Report) -> Option<Opening> {
    let small = Condition::SMALL;
    let find = |launcher: &str, condition: &Condition| {
        report.rows_of(condition).find(|row| row.launcher == launcher && row.lacks.is_none())
    };
    let measured: Vec<Condition> = report.conditions().into_iter().filter(|c| find(OURS, c).is_some()).collect();
    let is_large = |c: &&Condition| c.parent_mib > 0 && **c == Condition { parent_mib: c.parent_mib, ..small };
    // 1 GiB is a common size; beside it only the largest.
    let gibibyte = measured.iter().filter(is_large).find(|condition| condition.parent_mib == 1024);
    let large = gibibyte.or_else(|| measured.iter().filter(is_large).max_by_key(|condition| condition.parent_mib));
    let has_files = |c: &&Condition| c.fds > small.fds && **c == Condition { fds: c.fds, ..small };
    let files = measured.iter().filter(has_files).max_by_key(|condition| condition.fds);
    let conditions: Vec<Condition> =
        [measured.iter().find(|c| **c == small), large, files].into_iter().flatten().copied().collect();
    let stock: Vec<(&str, &str)> =
        STOCK.into_iter().filter(|(launcher, _)| conditions.iter().all(|c| find(launcher, c).is_some())).collect();
    let ([first, .., last], [(rival, named), ..]) = (&conditions[..], &stock[..]) else { return None };
    let telling = large.unwrap_or(last);
    let methods = || stock.iter().copied().chain([(OURS, "forkless")]);
    let times = |condition: &Condition, with: bool| {
        let words: Vec<String> = methods()
            .filter_map(|(launcher, name)| {
                let time = pace(find(launcher, condition)?);
                Some(if with { format!("{time} with {name}") } else { time })
            })
            .collect();
        let (last, others) =
            words.split_last().map_or((String::new(), String::new()), |(l, o)| (l.clone(), o.join(", ")));
        format!("{others} and {last} from {}", process(condition))
    };
    let others: Vec<String> = conditions.iter().skip(1).map(|condition| times(condition, false)).collect();
    Some(Opening {
        finding: format!(
            "From {}, {named} starts a program in {}, forkless in {}",
            process(telling),
            pace(find(rival, telling)?),
            pace(find(OURS, telling)?)
        ),
        sentence: format!(
            "To start a program that only exits, and to wait for it, takes {}; {}.",
            times(first, true),
            others.join("; ")
        ),
        conditions,
    })
}

/// The process of a condition, of those of the opening.
pub(crate) fn process(condition: &Condition) -> String {
    match condition {
        Condition { parent_mib: mib @ 1.., .. } => format!("a process with {} of memory", mebibytes(*mib)),
        Condition { fds, .. } if *fds > Condition::SMALL.fds => {
            format!("a process with {}", count(*fds, "open file", "open files"))
        }
        _ => "a small process".to_owned(),
    }
}

/// What a sweep shows: how the stock method that changes most goes from the first to the last condition, and how forkless does. With
/// threads, how many launches per second they reach.
pub(crate) fn trend(report: &Report, conditions: &[Condition], (from, to): (&String, &String)) -> Option<String> {
    let (first, last) = (conditions.first()?, conditions.last()?);
    let find = |launcher: &str, condition: &Condition| {
        report.rows_of(condition).find(|row| row.launcher == launcher && row.lacks.is_none())
    };
    if last.threads > 1 {
        let most = |launcher: &str| {
            conditions.iter().filter_map(|c| find(launcher, c)).max_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s))
        };
        let stock = STOCK.into_iter().filter_map(|(launcher, name)| Some((name, most(launcher)?)));
        let rival = stock.max_by(|a, b| a.1.rate_per_s.total_cmp(&b.1.rate_per_s))?;
        let words = |(name, row): (&str, &Row)| {
            let threads = count(row.threads as u64, "thread", "threads");
            format!("{} launches/s with {name} ({threads})", figure(row.rate_per_s))
        };
        return Some(format!("At most {}, {}", words(("forkless", most(OURS)?)), words(rival)));
    }
    let ends = |launcher: &str| Some((find(launcher, first)?, find(launcher, last)?));
    let change = |(a, b): (&Row, &Row)| speed(a) / speed(b);
    let stock = STOCK.into_iter().filter_map(|launcher| Some((launcher, ends(launcher.0)?)));
    let rival = stock.max_by(|a, b| change(a.1).total_cmp(&change(b.1)));
    let words = |((launcher, name), (a, b)): ((&str, &str), (&Row, &Row))| {
        let is_near = |row: &Row| (0.8..1.25).contains(&change((row, b)));
        let between = || conditions.iter().filter_map(|condition| find(launcher, condition));
        let by_speed = |a: &&Row, b: &&Row| speed(a).total_cmp(&speed(b));
        if between().all(is_near) {
            return format!("{name} stays at {}", pace(b));
        }
        match (between().max_by(by_speed), between().min_by(by_speed)) {
            // A line that returns to where it began.
            (Some(best), Some(worst)) if is_near(a) => format!("{name} takes {} to {}", pace(best), pace(worst)),
            _ => format!("{name} goes from {} to {}", pace(a), pace(b)),
        }
    };
    let ours =
        [OURS, "forkless-spawn"].into_iter().find_map(|launcher| Some(((launcher, "forkless"), ends(launcher)?)));
    let sides: Vec<String> = rival.into_iter().chain(ours).map(words).collect();
    (!sides.is_empty()).then(|| format!("From {from} to {to}: {}", sides.join("; ")))
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

/// The fork mode of forkless. It costs what fork costs, by its nature.
const OWN_FORK: &str = "forkless-fork";

/// A method of forkless that is slower than the fastest alternative under some condition.
pub(crate) struct Loss {
    pub(crate) launcher: &'static str,
    /// The number of these conditions, and of all in which it takes part.
    conditions: usize,
    of: usize,
    /// The worst condition: the ratio of the times, and the condition with the fastest method.
    pub(crate) factor: f64,
    pub(crate) worst: String,
}

impl Loss {
    /// The loss as text.
    pub(crate) fn words(&self) -> String {
        let Self { launcher, conditions, of, factor, worst } = self;
        let of = count(*of as u64, "condition", "conditions");
        format!("{launcher} in {conditions} of {of}, at worst {} ({worst})", comparison(1.0 / factor))
    }
}

/// All methods of forkless that are slower than the fastest alternative under some condition.
pub(crate) fn losses(report: &Report) -> Vec<Loss> {
    let mut losses: Vec<Loss> = Vec::new();
    for duel in report.conditions().iter().filter_map(|condition| duel(report, condition)) {
        // Fork is selected explicitly, by programs that need it.
        for row in duel.ours.iter().filter(|row| row.launcher != OWN_FORK) {
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
        for row in report.rows_of(&condition).filter(|row| row.is_ours() && row.launcher != OWN_FORK) {
            let loss = speed(floor) / speed(row);
            match worst.iter_mut().find(|(launcher, ..)| *launcher == row.launcher) {
                Some(entry) if entry.1 >= loss => {}
                Some(entry) => *entry = (row.launcher, loss, condition.words()),
                None => worst.push((row.launcher, loss, condition.words())),
            }
        }
    }
    let words =
        |(launcher, loss, words): &(&str, f64, String)| format!("{launcher} {} ({words})", comparison(1.0 / loss));
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
        let Some(theirs) = enough(duel.rival.n, duel.rival.total_p99_us) else { continue };
        for row in duel.ours.iter().filter(|row| row.launcher != OWN_FORK) {
            let Some(ours) = enough(row.n, row.total_p99_us) else { continue };
            let factor = ours / theirs;
            let words = || {
                let (ours, theirs) = (figure(ours), figure(theirs));
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
pub(crate) fn waiting(alive: &[AliveRow]) -> Option<String> {
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
pub(crate) fn speed(row: &Row) -> f64 {
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
    if by_rate(row) { format!("{} launches/s", figure(row.rate_per_s)) } else { Unit::Time.short(row.total_p50_us) }
}

pub(crate) fn comparison(factor: f64) -> String {
    match factor {
        f if f >= 1.995 => format!("{} × as fast", figure(f)),
        f if (f.max(1.0 / f) - 1.0) * 100.0 < 0.5 => "equally fast".to_owned(),
        f if f >= 1.0 => format!("{} faster", percent(f)),
        f if 1.0 / f < 1.995 => format!("{} slower", percent(1.0 / f)),
        f if f >= 0.1 => format!("{f:.2} × as fast"),
        f => format!("{} × as slow", figure(1.0 / f)),
    }
}

/// Of ratios below 2.
fn percent(factor: f64) -> String {
    format!("{:.0} %", (factor - 1.0) * 100.0)
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

    /// A difference that would be printed as "0 %" is none.
    #[test]
    fn small_differences_are_none() {
        let words = [1.0, 1.004, 1.0 / 1.004, 1.006, 1.0 / 1.006].map(comparison);
        assert_eq!(words, ["equally fast", "equally fast", "equally fast", "1 % faster", "1 % slower"]);
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
            "4 threads at once: forkless-status 20,000 launches/s, fastest alternative posix_spawn 40,000 launches/s (0.50 × as fast)."
        );
        assert_eq!(
            lines[2],
            "Slower than the fastest alternative: forkless-spawn in 1 of 1 condition, at worst 10 % slower (small parent, to posix_spawn); \
             forkless-status in 1 of 2 conditions, at worst 0.50 × as fast (4 threads at once, to posix_spawn)."
        );
        assert_eq!(
            lines[3],
            "Slower than the vfork baseline, worst case of each: forkless-spawn 51 % slower (small parent)."
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
        assert_eq!(behind, Some(vec!["forkless-spawn 25 % slower (4 threads at once)".to_owned()]));
        let without = Report::new(Machine::read(), vec![row("forkless-spawn", crowd, 50.0, 100.0)], Vec::new());
        assert_eq!(behind_the_floor(&without), None);
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
        let lines = [losses(&report).iter().map(Loss::words).collect(), behind_the_floor(&report).unwrap_or_default()];
        assert_eq!(
            lines[0],
            ["forkless-zygote in 1 of 1 condition, at worst 200 × as slow (1 GiB of memory, to posix_spawn)"]
        );
        assert_eq!(lines[1], ["forkless-zygote 300 × as slow (1 GiB of memory)"]);
        assert_eq!(longer_tails(&report).len(), 1);
    }

    #[test]
    fn few_launches_have_no_tail() {
        let mut report = report();
        for row in &mut report.rows {
            (row.n, row.total_p99_us) = (99, if row.is_ours() { 9_000.0 } else { 90.0 });
        }
        assert_eq!(longer_tails(&report), Vec::<String>::new());
        report.rows.iter_mut().for_each(|row| row.n = 100);
        assert_eq!(longer_tails(&report).len(), 2);
    }

    #[test]
    fn opening_has_three_processes_and_the_trend_both_ends() {
        let large = Condition { parent_mib: 1024, ..Condition::SMALL };
        let files = Condition { fds: 15_000, ..Condition::SMALL };
        let mut rows = Vec::new();
        for (condition, fork, spawn) in
            [(Condition::SMALL, 400.0, 70.0), (large, 20_000.0, 71.0), (files, 1_600.0, 1_100.0)]
        {
            rows.push(row("fork", condition, fork, fork));
            rows.push(row("posix_spawn", condition, 40.0, spawn));
            rows.push(row("forkless-status", condition, 48.0, 48.0));
        }
        let report = Report::new(Machine::read(), rows, Vec::new());
        let opening = opening(&report).expect("three processes");
        assert_eq!(
            opening.finding,
            "From a process with 1 GiB of memory, fork starts a program in 20.0 ms, forkless in 48.0 µs"
        );
        assert_eq!(
            opening.sentence,
            "To start a program that only exits, and to wait for it, takes 400 µs with fork, 70.0 µs with posix_spawn and \
             48.0 µs with forkless from a small process; 20.0 ms, 71.0 µs and 48.0 µs from a process with 1 GiB of memory; \
             1,600 µs, 1,100 µs and 48.0 µs from a process with 15,000 open files."
        );
        let ticks = ("3".to_owned(), "15,000".to_owned());
        let sweep = trend(&report, &[Condition::SMALL, files], (&ticks.0, &ticks.1)).expect("a trend");
        assert_eq!(sweep, "From 3 to 15,000: posix_spawn goes from 70.0 µs to 1,100 µs; forkless stays at 48.0 µs");
        // A line that rises and falls again does not stay.
        let all = [Condition::SMALL, files, Condition::SMALL];
        let sweep = trend(&report, &all, (&ticks.0, &ticks.1)).expect("a trend");
        assert!(sweep.contains("posix_spawn takes 70.0 µs to 1,100 µs; forkless stays"), "{sweep}");
    }

    #[test]
    fn sweeps_of_threads_end_in_the_highest_rates() {
        let mut rows = Vec::new();
        for (threads, ours, spawn) in [(1, 18_000.0, 13_000.0), (2, 32_000.0, 14_200.0), (4, 23_000.0, 14_100.0)] {
            let condition = Condition { threads, ..Condition::SMALL };
            for (launcher, rate_per_s) in [("forkless-status", ours), ("posix_spawn", spawn)] {
                rows.push(Row { rate_per_s, ..row(launcher, condition, 40.0, 50.0) });
            }
        }
        let report = Report::new(Machine::read(), rows, Vec::new());
        let trend = trend(&report, &report.conditions(), (&"1".to_owned(), &"4 threads".to_owned()));
        let expected =
            "At most 32,000 launches/s with forkless (2 threads), 14,200 launches/s with posix_spawn (2 threads)";
        assert_eq!(trend.as_deref(), Some(expected));
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
        assert!(lines[1].ends_with("40,000 launches/s with posix_spawn: 0.50 × as fast."), "{lines:?}");
        assert!(lines[2].contains("50.0 µs with forkless-spawn, 60.0 µs with posix_spawn"), "{lines:?}");
    }
}
