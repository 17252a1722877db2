//! The performance targets of forkless, computed from the rows of one run.

use serde::Serialize;

use super::{
    condition::{Condition, OUTPUTS, SOCKETS, TASKS},
    machine::Machine,
    rows::{AliveRow, FEW, Row},
    setting::Setting,
    statistics::round,
};

/// One figure with its target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// Description of the compared figures.
    pub(crate) figure: String,
    /// The measured value.
    pub(crate) value: f64,
    /// `"<="` or `">="`.
    pub(crate) relation: &'static str,
    /// The target.
    pub(crate) target: f64,
    /// Whether the target is met.
    pub(crate) met: bool,
}

impl Figure {
    fn at_most(figure: impl Into<String>, value: f64, target: f64) -> Self {
        let value = round(value);
        Self { figure: figure.into(), value, relation: "<=", target, met: value <= target }
    }

    fn at_least(figure: impl Into<String>, value: f64, target: f64) -> Self {
        let value = round(value);
        Self { figure: figure.into(), value, relation: ">=", target, met: value >= target }
    }
}

/// Lookup of rows by method and condition.
struct Rows<'a>(&'a [Row]);

impl Rows<'_> {
    fn find(&self, launcher: &str, condition: &Condition) -> Option<&Row> {
        self.0.iter().find(|row| row.launcher == launcher && row.condition() == *condition)
    }

    fn total(&self, launcher: &str, condition: &Condition) -> Option<f64> {
        self.find(launcher, condition).map(|row| row.total_p50_us)
    }

    /// Total time of `launcher` under one condition, divided by that under another.
    fn growth(&self, launcher: &str, large: &Condition, small: &Condition) -> Option<f64> {
        Some(self.total(launcher, large)? / self.total(launcher, small)?)
    }

    /// The largest value of a field in the rows of a sweep.
    fn most(&self, field: impl Fn(&Row) -> u64) -> u64 {
        self.0.iter().filter(|row| row.tasks == 0 && row.close_on_exec).map(field).max().unwrap_or(0)
    }
}

/// All figures for which the rows were measured. Others (`--only`, `--memory`…) are left out.
pub(crate) fn judge(rows: &[Row], alive: &[AliveRow], machine: &Machine) -> Vec<Figure> {
    let rows = Rows(rows);
    let mut figures = Vec::new();
    match machine.clone3 {
        true => small_parent(&rows, &mut figures),
        false => small_parent_without_clone3(&rows, &mut figures),
    }
    stand_ins(&rows, &mut figures);
    preloaded(&rows, &mut figures);
    memory(&rows, &mut figures);
    settings(&rows, &mut figures);
    files(&rows, &mut figures);
    threads(&rows, machine.cores, &mut figures);
    output(&rows, &mut figures);
    tasks(&rows, &mut figures);
    waiting(alive, &mut figures);
    figures
}

fn small_parent(rows: &Rows, figures: &mut Vec<Figure>) {
    let small = Condition::SMALL;
    let Some(floor) = rows.find("floor", &small) else { return };
    if let Some(row) = rows.find("forkless-prepared", &small) {
        let words = "prepared spawn + wait without pidfd, small parent / vfork baseline";
        figures.push(Figure::at_most(words, row.total_p50_us / floor.total_p50_us, 1.05));
    }
    for (launcher, name) in [("forkless-status", "status()"), ("forkless-prepared-status", "prepared status()")] {
        if let Some(row) = rows.find(launcher, &small) {
            let words = format!("{name}, small parent / vfork baseline");
            figures.push(Figure::at_most(words, row.total_p50_us / floor.total_p50_us, 1.00));
        }
    }
    for (launcher, name) in [("forkless-launch", "launch()"), ("forkless-prepared-launch", "prepared launch()")] {
        if let Some(row) = rows.find(launcher, &small) {
            let words = format!("time for which {name} blocks the caller / vfork baseline");
            figures.push(Figure::at_most(words, row.held_p50_us / floor.held_p50_us, 0.35));
        }
    }
}

/// With clone, the child resets the handler of each signal, as posix_spawn's does. vfork, the baseline, leaves that out.
fn small_parent_without_clone3(rows: &Rows, figures: &mut Vec<Figure>) {
    let small = Condition::SMALL;
    let Some(theirs) = rows.find("posix_spawn", &small) else { return };
    for (launcher, name) in [
        ("forkless-prepared", "prepared spawn + wait without pidfd"),
        ("forkless-status", "status()"),
        ("forkless-prepared-status", "prepared status()"),
    ] {
        if let Some(row) = rows.find(launcher, &small) {
            let words = format!("{name} by clone, small parent / posix_spawn");
            figures.push(Figure::at_most(words, row.total_p50_us / theirs.total_p50_us, 0.90));
        }
    }
}

/// Replacements of libc functions, relative to these. Most of the gain is the shell, which a single command does not need.
fn stand_ins(rows: &Rows, figures: &mut Vec<Figure>) {
    for (ours, theirs, words, target) in [
        ("forkless-c-system", "system", "forkless_system of one command / libc's system", 0.2),
        ("forkless-c-popen", "popen", "forkless_popen, read and pclose of one command / libc's", 0.25),
    ] {
        if let (Some(ours), Some(theirs)) = (rows.total(ours, &Condition::SMALL), rows.total(theirs, &Condition::SMALL))
        {
            figures.push(Figure::at_most(words, ours / theirs, target));
        }
    }
}

/// posix_spawn under the preload library, relative to glibc's.
fn preloaded(rows: &Rows, figures: &mut Vec<Figure>) {
    let by = |ours: &str, theirs: &str, condition| Some(rows.total(ours, condition)? / rows.total(theirs, condition)?);
    let ours = "forkless-preload-posix_spawn";
    if let Some(ratio) = by(ours, "posix_spawn", &Condition::SMALL) {
        figures.push(Figure::at_most(format!("{ours}, small parent / libc's"), ratio, 0.85));
    }
    let most = rows.most(|row| row.fds);
    if most < MANY_FILES {
        return;
    }
    let (many, words) = (Condition { fds: most, ..Condition::SMALL }, super::units::thousands(most));
    if let Some(ratio) = by(ours, "posix_spawn", &many) {
        figures.push(Figure::at_most(format!("{ours} at {words} open files / libc's"), ratio, 1.0));
    }
    for (ours, theirs) in
        [("forkless-preload-closefrom", "posix_spawn-closefrom"), ("forkless-preload-stdio", "posix_spawn")]
    {
        if let Some(ratio) = by(theirs, ours, &many) {
            figures.push(Figure::at_least(format!("{theirs} of libc at {words} open files / {ours}"), ratio, 8.0));
        }
    }
}

fn memory(rows: &Rows, figures: &mut Vec<Figure>) {
    let large = Condition { parent_mib: 1024, ..Condition::SMALL };
    for launcher in ["forkless-prepared", "forkless-status", "forkless-posix_spawn"] {
        if let Some(growth) = rows.growth(launcher, &large, &Condition::SMALL) {
            figures.push(Figure::at_most(format!("{launcher}: 1 GiB / small parent"), growth, 1.10));
        }
    }
}

/// The time of a launch with settings must not depend on the parent's memory.
fn settings(rows: &Rows, figures: &mut Vec<Figure>) {
    for setting in [Setting::User, Setting::UserNamespace, Setting::All] {
        let small = Condition { setting, ..Condition::SMALL };
        let large = Condition { parent_mib: 1024, ..small };
        for launcher in ["forkless-prepared", "forkless-status"] {
            if let Some(growth) = rows.growth(launcher, &large, &small) {
                let figure = format!("{launcher} with {}: 1 GiB / small parent", setting.words());
                figures.push(Figure::at_most(figure, growth, 1.10));
            }
        }
    }
}

/// The number of open files from which on the target relative to posix_spawn applies.
const MANY_FILES: u64 = 15_000;

fn files(rows: &Rows, figures: &mut Vec<Figure>) {
    let most = rows.most(|row| row.fds);
    if most <= Condition::SMALL.fds {
        return;
    }
    let words = super::units::thousands(most);
    let many = Condition { fds: most, ..Condition::SMALL };
    for launcher in ["forkless-prepared", "forkless-status"] {
        if let Some(growth) = rows.growth(launcher, &many, &Condition::SMALL) {
            figures.push(Figure::at_most(format!("{launcher}: {words} open files / 3 open files"), growth, 1.15));
        }
    }
    // The advantage grows with the number of files, so the target applies to many files only.
    if most >= MANY_FILES {
        if let (Some(theirs), Some(ours)) = (rows.total("posix_spawn", &many), rows.total("forkless-status", &many)) {
            let figure = format!("posix_spawn / forkless-status at {words} open files");
            figures.push(Figure::at_least(figure, theirs / ours, 8.0));
        }
    }
    let piped = Condition { pipes: 3, ..Condition::SMALL };
    let piped_many = Condition { pipes: 3, ..many };
    for launcher in ["forkless-prepared", "forkless-spawn"] {
        if let Some(growth) = rows.growth(launcher, &piped_many, &piped) {
            let figure = format!("{launcher} with three pipes: {words} open files / 3 open files");
            figures.push(Figure::at_most(figure, growth, 1.5));
        }
    }
}

fn threads(rows: &Rows, cores: usize, figures: &mut Vec<Figure>) {
    let crowd = Condition { threads: 2 * cores, ..Condition::SMALL };
    let Some(theirs) = rows.find("posix_spawn", &crowd) else { return };
    // With few CPUs the kernel's work per launch limits the gain.
    let target = if cores >= 16 { 2.0 } else { 1.1 };
    for launcher in ["forkless-prepared-status", "forkless-status"] {
        if let Some(ours) = rows.find(launcher, &crowd) {
            let figure = format!("launches/s of {launcher} on {} threads / posix_spawn's", crowd.threads);
            figures.push(Figure::at_least(figure, ours.rate_per_s / theirs.rate_per_s, target));
        }
    }
}

fn output(rows: &Rows, figures: &mut Vec<Figure>) {
    for (bytes, words, target) in [(OUTPUTS[0], "100 bytes", 0.85), (OUTPUTS[1], "64 MiB", 1.0)] {
        let condition = Condition { output: bytes, ..Condition::SMALL };
        let Some(std) = rows.total("std", &condition) else { continue };
        for launcher in ["forkless-output", "forkless-prepared-output"] {
            if let Some(ours) = rows.total(launcher, &condition) {
                figures.push(Figure::at_most(format!("{launcher} of {words} / std's"), ours / std, target));
            }
        }
        // For large output only: for a line, a pipe is faster.
        if let Some(ours) = rows.total("forkless-memory-file", &condition)
            && bytes == OUTPUTS[1]
        {
            figures.push(Figure::at_most(format!("forkless-memory-file of {words} / std's"), ours / std, 0.6));
        }
    }
}

/// Launches from tasks, relative to tokio's own Command.
fn tasks(rows: &Rows, figures: &mut Vec<Figure>) {
    for (fds, words, target) in [(Condition::SMALL.fds, "small parent", 1.3), (SOCKETS, "10,000 open files", 5.0)] {
        let condition = Condition { fds, tasks: TASKS, ..Condition::SMALL };
        let Some(theirs) = rows.find("tokio", &condition) else { continue };
        for launcher in ["forkless-tokio", "forkless-tokio-status"] {
            if let Some(ours) = rows.find(launcher, &condition) {
                let figure = format!("launches/s of {launcher} from {TASKS} tasks, {words} / tokio's");
                figures.push(Figure::at_least(figure, ours.rate_per_s / theirs.rate_per_s, target));
            }
        }
    }
}

/// The cost of waiting for a child must not depend on the number of children.
fn waiting(alive: &[AliveRow], figures: &mut Vec<Figure>) {
    for row in alive.iter().filter(|row| row.waiter.starts_with("forkless")) {
        let words = super::units::thousands(row.children as u64);
        if let Some(ratio) = row.ratio_to_few {
            let figure = format!("CPU per exit of {}: {words} / {FEW} children alive", row.waiter);
            figures.push(Figure::at_most(figure, ratio, 1.2));
        }
        if let Some(bytes) = row.parent_bytes {
            let figure = format!("memory of the parent per child of {}, {words} children alive, bytes", row.waiter);
            figures.push(Figure::at_most(figure, bytes, 512.0));
        }
    }
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
        let small = Condition::SMALL;
        let rows = [
            row("floor", small, 40.0, 100.0),
            row("posix_spawn", small, 60.0, 150.0),
            row("forkless-status", small, 120.0, 120.0),
        ];
        let clone = Machine { clone3: false, ..machine(2) };
        let found: Vec<(f64, bool)> = judge(&rows, &[], &clone).iter().map(|f| (f.value, f.met)).collect();
        assert_eq!(found, [(0.8, true)]);
        assert_eq!(judge(&rows, &[], &machine(2))[0].value, 1.2);
    }

    #[test]
    fn figures_are_computed_from_the_matching_rows() {
        let small = Condition::SMALL;
        let many = Condition { fds: 15_000, ..small };
        let crowd = Condition { threads: 4, ..small };
        let rows = [
            row("floor", small, 40.0, 100.0),
            row("forkless-status", small, 90.0, 90.0),
            row("forkless-launch", small, 20.0, 95.0),
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
                ("status(), small parent / vfork baseline", 0.9, true),
                ("time for which launch() blocks the caller / vfork baseline", 0.5, false),
                ("forkless-status: 15,000 open files / 3 open files", 1.1, true),
                ("posix_spawn / forkless-status at 15,000 open files", 10.0, true),
                ("launches/s of forkless-status on 4 threads / posix_spawn's", 1.25, true),
            ]
        );
        assert!(judge(&rows[1..2], &[], &machine(2)).is_empty());

        let few = Condition { fds: 36, ..small };
        let rows = [row("posix_spawn", few, 60.0, 100.0), row("forkless-status", few, 70.0, 70.0)];
        assert!(judge(&rows, &[], &machine(2)).is_empty());
    }

    #[test]
    fn replacements_are_compared_with_the_libc_function() {
        let small = Condition::SMALL;
        let many = Condition { fds: 15_000, ..small };
        let rows = [
            row("posix_spawn", small, 50.0, 100.0),
            row("system", small, 800.0, 800.0),
            row("forkless-c-system", small, 80.0, 80.0),
            row("forkless-preload-posix_spawn", small, 50.0, 90.0),
            row("posix_spawn", many, 900.0, 900.0),
            row("forkless-preload-posix_spawn", many, 800.0, 810.0),
            row("forkless-preload-stdio", many, 80.0, 90.0),
        ];
        let found: Vec<(f64, bool)> = judge(&rows, &[], &machine(2)).iter().map(|f| (f.value, f.met)).collect();
        assert_eq!(found, [(0.1, true), (0.9, false), (0.9, true), (10.0, true)]);
    }

    #[test]
    fn setting_is_compared_between_large_and_small_parent() {
        let user = Condition { setting: Setting::User, ..Condition::SMALL };
        let large = Condition { parent_mib: 1024, ..user };
        let rows = [
            row("forkless-status", Condition::SMALL, 50.0, 50.0),
            row("forkless-status", user, 100.0, 100.0),
            row("forkless-status", large, 105.0, 105.0),
        ];
        let figures = judge(&rows, &[], &machine(2));
        let words = "forkless-status with change of user: 1 GiB / small parent";
        assert_eq!(figures.len(), 1);
        assert_eq!((figures[0].figure.as_str(), figures[0].value, figures[0].met), (words, 1.05, true));
    }

    #[test]
    fn target_for_threads_is_higher_with_many_cpus() {
        let crowd = Condition { threads: 32, ..Condition::SMALL };
        let rows = [row("posix_spawn", crowd, 50.0, 100.0), row("forkless-status", crowd, 60.0, 60.0)];
        let figures = judge(&rows, &[], &machine(16));
        assert_eq!((figures[0].target, figures[0].met), (2.0, false));
    }
}
