//! The report as text, the most important line first.

use std::fmt::Write;

use super::{
    chart::wrap,
    report::{Caller, Feature, Health, Launch, Limit, Measured, Measurements, Need, Report, State},
};

const WIDTH: usize = super::chart::WIDTH;

/// What is shown of the report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    pub(crate) chart: bool,
    /// All features, measurements and limits.
    pub(crate) all: bool,
}

/// The report: the verdict and the launcher, and the requested parts.
pub(crate) fn render(report: &Report, chart: &str, parts: Parts, colour: bool) -> String {
    let mut out = format!("{}\n", report.verdict.words);
    report.verdict.losses.iter().for_each(|loss| out += &item("!", loss));
    if !report.verdict.settings_missing.is_empty() {
        out += &item(
            "-",
            &format!(
                "Some settings are not available. Missing kernel features: {}.",
                report.verdict.settings_missing.join(", ")
            ),
        );
    }
    launch(&mut out, &report.launch, parts.all);
    if !parts.all {
        brief(&mut out, &report.measurements);
    }
    if parts.chart || parts.all {
        let _ = write!(out, "\nChoice of launcher (heavy lines: the path taken)\n{chart}");
    }
    if parts.all {
        features(&mut out, &report.features);
        measured(&mut out, &report.measurements);
        limits(&mut out, &report.limits);
        system(&mut out, report);
    } else {
        out += "\nMore: --all (features, times, limits, this system), --chart, --json\n";
    }
    if colour { painted(&out) } else { out }
}

/// Colours the signs at the start of lines.
fn painted(text: &str) -> String {
    let paint = |line: &str| {
        let sign = line.strip_prefix("  ").and_then(|rest| rest.chars().next());
        let tint = match sign {
            Some('✓') => 32,
            Some('✗') => 31,
            Some('!' | '?') => 33,
            _ => return format!("{line}\n"),
        };
        let (sign, words) = line[2..].split_once(' ').unwrap_or((&line[2..], ""));
        format!("  \u{1b}[{tint}m{sign}\u{1b}[0m {words}\n")
    };
    text.lines().map(paint).collect()
}

/// A list item: a sign, then text with a hanging indent.
fn item(sign: &str, words: &str) -> String {
    let lines = wrap(words, WIDTH - 4);
    let first = lines.first().map_or("", String::as_str);
    let rest: String = lines.iter().skip(1).map(|line| format!("    {line}\n")).collect();
    format!("  {sign} {first}\n{rest}")
}

/// The measurements in one line: the launch that `status` makes.
fn brief(out: &mut String, found: &Measurements) {
    let of = |name: &str| found.rows.iter().find(|row| row.contestant == name);
    if let (Some(ours), Some(floor)) = (of("forkless-status"), of("floor")) {
        let words = format!(
            "From the call until the child is reaped, a launch takes {} here, and by vfork in C {}.",
            duration(ours.total_p50_us),
            duration(floor.total_p50_us)
        );
        *out += &item("-", &words);
    }
}

fn launch(out: &mut String, launch: &Launch, with_steps: bool) {
    let what = launch.program.as_ref().map_or_else(|| "a program".to_owned(), |words| words.join(" "));
    let heading = format!("Launcher for {what}, started by {}: {}", caller(&launch.caller), launch.launcher);
    let _ = writeln!(out, "\n{}", wrap(&heading, WIDTH).join("\n"));
    *out += &item(" ", launch.words);
    for step in &launch.path {
        *out += &item("-", &format!("{} {}: {}.", step.words, if step.answer { "Yes" } else { "No" }, step.why));
    }
    if let Some(us) = launch.fork_us {
        let files = match launch.caller.files {
            None | Some(..100) => String::new(),
            Some(many) => format!(" and copy a table of {} file descriptors", thousands(many)),
        };
        *out += &item("-", &format!("fork would block such a caller for about {} per launch{files}.", duration(us)));
    }
    if with_steps && !launch.steps.is_empty() {
        *out += "\nSteps of the child\n";
        for (number, step) in (1..).zip(&launch.steps) {
            let _ = writeln!(out, "{number:3}. {step}");
        }
    }
}

/// 15000 as "15,000".
pub(super) fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap_or("")).collect();
    groups.join(",")
}

/// Three or four significant digits: 82.4, 1,853.
fn figure(value: f64) -> String {
    if value < 99.95 { format!("{value:.1}") } else { thousands(value.round() as u64) }
}

fn caller(caller: &Caller) -> String {
    let who = caller.pid.map_or_else(|| "a process".to_owned(), |pid| format!("process {pid}"));
    let plural = |count: u64, one: &str| format!("{} {one}{}", thousands(count), if count == 1 { "" } else { "s" });
    let memory = match caller.memory_bytes >> 20 {
        0 => "less than 1 MiB of private memory".to_owned(),
        mib => format!("{} MiB of private memory", thousands(mib)),
    };
    let mut parts = vec![memory];
    parts.extend(caller.resident_bytes.map(|bytes| format!("{} MiB resident", thousands(bytes >> 20))));
    parts.push(plural(caller.threads, "thread"));
    parts.extend(caller.files.map(|files| plural(files, "open file")));
    format!("{who} with {}", parts.join(", "))
}

fn duration(us: f64) -> String {
    if us < 1_000.0 { format!("{us:.0} µs") } else { format!("{} ms", figure(us / 1_000.0)) }
}

fn features(out: &mut String, features: &[Feature]) {
    let titles =
        [(Need::Launches, "Kernel features for every launch"), (Need::Settings, "Kernel features for some settings")];
    for (need, title) in titles {
        let _ = writeln!(out, "\n{title}");
        for feature in features.iter().filter(|feature| feature.needed_for == need) {
            let (sign, name) = (sign(feature.state), feature.name);
            let more = feature.detail.as_ref().map_or_else(String::new, |detail| format!(" ({detail})"));
            *out += &match feature.state {
                State::Here => item(sign, &format!("{name}{more}: {}", feature.purpose)),
                State::Untried => item(sign, &format!("{name}: not tried{more}")),
                State::Missing => {
                    let without = feature.without;
                    item(sign, &format!("{name} (Linux {}) is missing or refused{more}: {without}", feature.since))
                }
            };
        }
    }
}

fn sign(state: State) -> &'static str {
    match state {
        State::Here => "✓",
        State::Missing => "✗",
        State::Untried => "?",
    }
}

fn measured(out: &mut String, found: &Measurements) {
    if let Some(why) = &found.none {
        let _ = writeln!(out, "\n{}", wrap(&format!("Not measured: {why}"), WIDTH).join("\n"));
        return;
    }
    let mut rows =
        vec![["launcher", "blocked p50", "blocked p99", "total p50", "total p99", "ratio"].map(str::to_owned)];
    rows.extend(found.rows.iter().map(|row| {
        let ratio = row.ratio_to_floor.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
        // Of fewer than a hundred values, the 99th percentile would be the largest.
        let tail = |value| if row.n >= 100 { figure(value) } else { "–".to_owned() };
        let (blocked, total) = (tail(row.held_p99_us), tail(row.total_p99_us));
        [name(row), figure(row.held_p50_us), blocked, figure(row.total_p50_us), total, ratio]
    }));
    /// Of the columns of times, with two blanks before each heading.
    const WIDTHS: [usize; 5] = [13, 13, 11, 11, 7];
    let longest = rows.iter().map(|row| row[0].chars().count()).max().unwrap_or_default();
    *out += "\nLaunch times from a small process, in µs (blocked: until the call returns;\ntotal: until the child has been reaped; ratio: total / vfork baseline)\n";
    for (number, [name, times @ ..]) in rows.iter().enumerate() {
        let times: String = times.iter().zip(WIDTHS).map(|(time, width)| format!("{time:>width$}")).collect();
        let _ = writeln!(out, "{name:<longest$}{times}");
        if number == 0 {
            let _ = writeln!(out, "{}", "─".repeat(longest + times.chars().count()));
        }
    }
    if found.debug_build {
        *out += &item("!", "This is a debug build: the methods of forkless are slower than in a release build.");
    }
    if let Some(us) = found.fork_us_per_gib {
        *out += &item("-", &format!("fork blocks its caller {} longer for each GiB of memory.", duration(us)));
    }
}

/// The launcher and its form, such as "Clone (status)". "(in C)" marks the functions of the C library.
fn name(row: &Measured) -> String {
    match (row.launcher, row.contestant.strip_prefix("forkless-")) {
        (None, _) => "vfork baseline (in C)".to_owned(),
        (Some(launcher), None) => format!("{launcher} (in C)"),
        (Some(launcher), Some(form)) => {
            let letters = form.chars().filter(char::is_ascii_alphanumeric);
            let plain = letters.eq(launcher.to_ascii_lowercase().chars());
            format!("{launcher} ({})", if plain { "forkless" } else { form })
        }
    }
}

fn limits(out: &mut String, limits: &[Limit]) {
    *out += "\nLimits and system settings\n";
    for limit in limits {
        let value = match &limit.value {
            serde_json::Value::Null => continue,
            serde_json::Value::String(word) => word.clone(),
            value => value.to_string(),
        };
        let sign = if limit.warning.is_some() { "!" } else { " " };
        *out += &item(sign, &format!("{} = {value} ({})", limit.name, limit.words));
    }
}

fn system(out: &mut String, report: &Report) {
    let system = &report.system;
    let _ = writeln!(out, "\nSystem");
    let cpus = if system.cores == 1 { "CPU" } else { "CPUs" };
    let words = format!(
        "Linux {}, {}, {}, {} {cpus}, {} MiB; forkless {}",
        system.kernel, system.architecture, system.libc, system.cores, system.memory_mib, system.forkless
    );
    *out += &item(" ", &words);
    system.hints.iter().for_each(|hint| *out += &item(" ", hint));
    if report.verdict.health == Health::Well {
        return;
    }
    *out += "\nSee docs/platforms.md for the kernel versions that have each feature.\n";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signs_are_coloured() {
        let text = "first\n  ✓ here\n    ✓ not a sign\n  - item\n  ! near\n";
        let painted = painted(text);
        assert_eq!(painted.matches('\u{1b}').count(), 4);
        assert_eq!(painted.replace("\u{1b}[32m", "").replace("\u{1b}[33m", "").replace("\u{1b}[0m", ""), text);
    }

    #[test]
    fn figures_have_three_or_four_digits_and_commas() {
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(999), "999");
        assert_eq!((figure(82.44), figure(99.96), figure(1_853.2)), ("82.4".into(), "100".into(), "1,853".into()));
    }

    #[test]
    fn row_names_start_with_the_launcher() {
        let named = |launcher, contestant: &str| {
            let us = 1.0;
            name(&Measured {
                launcher,
                contestant: String::from(contestant),
                n: 9,
                held_p50_us: us,
                held_p99_us: us,
                total_p50_us: us,
                total_p99_us: us,
                ratio_to_floor: None,
            })
        };
        assert_eq!(named(None, "floor"), "vfork baseline (in C)");
        assert_eq!(named(Some("Clone"), "forkless-status"), "Clone (status)");
        assert_eq!(named(Some("PosixSpawn"), "posix_spawn"), "PosixSpawn (in C)");
        assert_eq!(named(Some("PosixSpawn"), "forkless-posix_spawn"), "PosixSpawn (forkless)");
    }

    #[test]
    fn items_have_a_hanging_indent() {
        let text = item("!", &"word ".repeat(40));
        assert!(text.starts_with("  ! word") && text.lines().skip(1).all(|line| line.starts_with("    word")));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
    }
}
