//! The performance targets of forkless, computed from the rows of one run.

use serde::Serialize;

use super::{
    condition::{Condition, OUTPUTS, SOCKETS, TASKS},
    machine::Machine,
    name::{Name, shown},
    rows::{AliveRow, FEW, Row},
    setting::Setting,
    statistics::round,
    units::thousands,
};

/// One figure with its target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TargetFigure {
    /// What is compared.
    pub(crate) figure: String,
    pub(crate) value: f64,
    /// `"<="` or `">="`.
    pub(crate) relation: &'static str,
    pub(crate) target: f64,
    pub(crate) met: bool,
}

impl TargetFigure {
    fn new(figure: String, value: f64, relation: &'static str, target: f64) -> Self {
        let value = round(value);
        let met = if relation == "<=" { value <= target } else { value >= target };
        Self { figure, value, relation, target, met }
    }

    /// "≤ 1.05".
    pub(crate) fn goal(&self) -> String {
        format!("{} {:.2}", if self.relation == "<=" { "≤" } else { "≥" }, self.target)
    }
}

/// The compared figure of a row, with its name.
type TargetMetric = (&'static str, fn(&Row) -> f64);
const TOTAL: TargetMetric = ("total", |row| row.total_p50_us);
const BLOCKED: TargetMetric = ("blocked time", |row| row.held_p50_us);
const RATE: TargetMetric = ("launches/s", |row| row.rate_per_s);

/// A method under a condition.
type TargetPlace = (Name, Condition);
/// The metric of the first place, divided by that of the second; and its target with the relation.
type Target = (TargetMetric, TargetPlace, TargetPlace, &'static str, f64);

/// All figures for which the rows were measured. Others (`--only`, `--memory`…) are left out.
pub(crate) fn judge(rows: &[Row], alive: &[AliveRow], machine: &Machine) -> Vec<TargetFigure> {
    let find = |(launcher, condition): &TargetPlace| {
        rows.iter().find(|row| row.launcher == *launcher && row.condition() == *condition)
    };
    let figure = |((name, metric), of, to, relation, target): &Target| {
        let value = metric(find(of)?) / metric(find(to)?);
        let words = |(launcher, condition): &TargetPlace| format!("{}, {}", shown(launcher), condition.describe());
        let below = if of.0 == to.0 { to.1.describe() } else { shown(to.0).to_owned() };
        Some(TargetFigure::new(format!("{name} of {} / {below}", words(of)), value, relation, *target))
    };
    let fds = rows.iter().filter(|row| row.tasks == 0 && row.close_on_exec).map(|row| row.fds).max().unwrap_or(0);
    let targets = [at_home(machine), growth(fds), by_libraries(fds)].concat();
    targets.iter().filter_map(figure).chain(waiting(alive)).collect()
}

const SMALL: Condition = Condition::SMALL;

/// A small parent, by the vfork baseline; and many threads, by posix_spawn.
fn at_home(machine: &Machine) -> Vec<Target> {
    // With clone, the child resets the handler of each signal, as posix_spawn's does. vfork, the baseline, leaves that out.
    let (by, fast, faster) = if machine.clone3 { ("floor", 1.05, 1.0) } else { ("posix_spawn", 0.9, 0.9) };
    let crowd = Condition { threads: 2 * machine.cores, ..SMALL };
    // With few CPUs the kernel's work per launch limits the gain.
    let gain = if machine.cores >= 16 { 2.0 } else { 1.1 };
    let mut targets = vec![
        (TOTAL, ("forkless-prepared", SMALL), (by, SMALL), "<=", fast),
        (TOTAL, ("forkless-status", SMALL), (by, SMALL), "<=", faster),
        (TOTAL, ("forkless-prepared-status", SMALL), (by, SMALL), "<=", faster),
        (RATE, ("forkless-prepared-status", crowd), ("posix_spawn", crowd), ">=", gain),
        (RATE, ("forkless-status", crowd), ("posix_spawn", crowd), ">=", gain),
    ];
    if machine.clone3 {
        targets.push((BLOCKED, ("forkless-launch", SMALL), (by, SMALL), "<=", 0.35));
        targets.push((BLOCKED, ("forkless-prepared-launch", SMALL), (by, SMALL), "<=", 0.35));
    }
    targets
}

/// The time of a launch must not depend on the parent's memory and open files, nor with settings or pipes.
fn growth(fds: u64) -> Vec<Target> {
    let memory = |ours, setting| {
        let (small, large) = (Condition { setting, ..SMALL }, Condition { setting, parent_mib: 1024, ..SMALL });
        (TOTAL, (ours, large), (ours, small), "<=", 1.1)
    };
    let mut targets = vec![memory("forkless-posix_spawn", Setting::None)];
    for setting in [Setting::None, Setting::User, Setting::UserNamespace, Setting::All] {
        targets.extend([memory("forkless-prepared", setting), memory("forkless-status", setting)]);
    }
    let (many, pipes) = (Condition { fds, ..SMALL }, Condition { pipes: 3, ..SMALL });
    let both = Condition { pipes: 3, ..many };
    if fds > SMALL.fds {
        targets.extend([
            (TOTAL, ("forkless-prepared", many), ("forkless-prepared", SMALL), "<=", 1.15),
            (TOTAL, ("forkless-status", many), ("forkless-status", SMALL), "<=", 1.15),
            (TOTAL, ("forkless-prepared", both), ("forkless-prepared", pipes), "<=", 1.5),
            (TOTAL, ("forkless-spawn", both), ("forkless-spawn", pipes), "<=", 1.5),
        ]);
    }
    targets
}

/// Relative to the functions of libc, of std and of tokio that forkless replaces.
fn by_libraries(fds: u64) -> Vec<Target> {
    let [few, much] = OUTPUTS.map(|output| Condition { output, ..SMALL });
    let (tasks, sockets) = (Condition { tasks: TASKS, ..SMALL }, Condition { tasks: TASKS, fds: SOCKETS, ..SMALL });
    let many = Condition { fds, ..SMALL };
    let mut targets = vec![
        // Most of the gain is the shell, which a single command does not need.
        (TOTAL, ("forkless-c-system", SMALL), ("system", SMALL), "<=", 0.2),
        (TOTAL, ("forkless-c-popen", SMALL), ("popen", SMALL), "<=", 0.25),
        (TOTAL, ("forkless-preload-posix_spawn", SMALL), ("posix_spawn", SMALL), "<=", 0.85),
        (TOTAL, ("forkless-output", few), ("std", few), "<=", 0.85),
        (TOTAL, ("forkless-prepared-output", few), ("std", few), "<=", 0.85),
        (TOTAL, ("forkless-output", much), ("std", much), "<=", 1.0),
        (TOTAL, ("forkless-prepared-output", much), ("std", much), "<=", 1.0),
        // For large output only: for a line, a pipe is faster.
        (TOTAL, ("forkless-memory-file", much), ("std", much), "<=", 0.6),
        (RATE, ("forkless-tokio", tasks), ("tokio", tasks), ">=", 1.3),
        (RATE, ("forkless-tokio-status", tasks), ("tokio", tasks), ">=", 1.3),
        (RATE, ("forkless-tokio", sockets), ("tokio", sockets), ">=", 5.0),
        (RATE, ("forkless-tokio-status", sockets), ("tokio", sockets), ">=", 5.0),
    ];
    // The advantage grows with the number of files.
    if fds >= 15_000 {
        targets.extend([
            (TOTAL, ("forkless-preload-posix_spawn", many), ("posix_spawn", many), "<=", 1.0),
            (TOTAL, ("posix_spawn", many), ("forkless-status", many), ">=", 8.0),
            (TOTAL, ("posix_spawn", many), ("forkless-preload-stdio", many), ">=", 8.0),
            (TOTAL, ("posix_spawn-closefrom", many), ("forkless-preload-closefrom", many), ">=", 8.0),
        ]);
    }
    targets
}

/// The cost of waiting for a child must not depend on the number of children.
fn waiting(alive: &[AliveRow]) -> Vec<TargetFigure> {
    let mut figures = Vec::new();
    for row in alive.iter().filter(|row| row.waiter.starts_with("forkless")) {
        let (waiter, children) = (row.waiter, thousands(row.children as u64));
        let cpu = format!("CPU per exit of {waiter}: {children} / {FEW} children alive");
        figures.extend(row.ratio_to_few.map(|ratio| TargetFigure::new(cpu, ratio, "<=", 1.2)));
        let memory = format!("memory of the parent per child of {waiter}, {children} children alive, bytes");
        figures.extend(row.parent_bytes.map(|bytes| TargetFigure::new(memory, bytes, "<=", 512.0)));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::row;
    use super::*;

    fn machine(cores: usize) -> Machine {
        Machine { cores, ..Machine::read() }
    }

    #[test]
    fn without_clone3_the_peer_is_posix_spawn() {
        let rows = [
            row("floor", SMALL, 40.0, 100.0),
            row("posix_spawn", SMALL, 60.0, 150.0),
            row("forkless-status", SMALL, 120.0, 120.0),
        ];
        let clone = Machine { clone3: false, ..machine(2) };
        let found: Vec<(f64, bool)> = judge(&rows, &[], &clone).iter().map(|f| (f.value, f.met)).collect();
        assert_eq!(found, [(0.8, true)]);
        assert_eq!(judge(&rows, &[], &machine(2))[0].value, 1.2);
    }

    #[test]
    fn figures_are_computed_from_the_matching_rows() {
        let many = Condition { fds: 15_000, ..SMALL };
        let crowd = Condition { threads: 4, ..SMALL };
        let rows = [
            row("floor", SMALL, 40.0, 100.0),
            row("forkless-status", SMALL, 90.0, 90.0),
            row("forkless-launch", SMALL, 20.0, 95.0),
            row("posix_spawn", many, 900.0, 990.0),
            row("forkless-status", many, 99.0, 99.0),
            row("posix_spawn", crowd, 50.0, 100.0),
            row("forkless-status", crowd, 80.0, 80.0),
        ];
        let figures = judge(&rows, &[], &machine(2));
        let found: Vec<(&str, f64, bool)> = figures.iter().map(|f| (f.figure.as_str(), f.value, f.met)).collect();
        assert_eq!(
            found,
            [
                ("total of forkless-status, small parent / vfork baseline", 0.9, true),
                ("launches/s of forkless-status, 4 threads at once / posix_spawn", 1.25, true),
                ("blocked time of forkless-launch, small parent / vfork baseline", 0.5, false),
                ("total of forkless-status, 15,000 open files / small parent", 1.1, true),
                ("total of posix_spawn, 15,000 open files / forkless-status", 10.0, true),
            ]
        );
        assert!(judge(&rows[1..2], &[], &machine(2)).is_empty());
        assert_eq!((figures[0].goal(), figures[1].goal()), ("≤ 1.00".to_owned(), "≥ 1.10".to_owned()));

        let few = Condition { fds: 36, ..SMALL };
        let rows = [row("posix_spawn", few, 60.0, 100.0), row("forkless-status", few, 70.0, 70.0)];
        assert!(judge(&rows, &[], &machine(2)).is_empty());
    }

    #[test]
    fn setting_is_compared_between_large_and_small_parent() {
        let user = Condition { setting: Setting::User, ..SMALL };
        let large = Condition { parent_mib: 1024, ..user };
        let rows = [
            row("forkless-status", SMALL, 50.0, 50.0),
            row("forkless-status", user, 100.0, 100.0),
            row("forkless-status", large, 105.0, 105.0),
        ];
        let figures = judge(&rows, &[], &machine(2));
        let words = "total of forkless-status, change of user, 1 GiB of memory / change of user";
        assert_eq!(figures.len(), 1);
        assert_eq!((figures[0].figure.as_str(), figures[0].value, figures[0].met), (words, 1.05, true));
    }

    #[test]
    fn target_for_threads_is_higher_with_many_cpus() {
        let crowd = Condition { threads: 32, ..SMALL };
        let rows = [row("posix_spawn", crowd, 50.0, 100.0), row("forkless-status", crowd, 60.0, 60.0)];
        let figures = judge(&rows, &[], &machine(16));
        assert_eq!((figures[0].target, figures[0].met), (2.0, false));
    }
}
