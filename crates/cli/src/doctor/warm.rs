//! `forkless doctor --warm`: whether a program can be launched warm, what that gains here, and what it costs.

use std::{
    ffi::OsString,
    fmt::Write,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use forkless::{Command, Route, Stdio, warm::WarmOptions};
use serde::Serialize;

use super::text::thousands;

/// The number of cold and of warm launches, and the time after which no more are made.
const ROUNDS: usize = 100;
const TIME: Duration = Duration::from_secs(3);

/// The result; `docs/doctor.md` describes every field.
#[derive(Debug, Serialize)]
pub(super) struct WarmAnswer {
    version: u32,
    program: Vec<String>,
    warm: bool,
    reason: Option<String>,
    start_us: Option<f64>,
    template_kib: Option<u64>,
    measured: Option<WarmMedians>,
}

/// Medians from the request to the reaped child.
#[derive(Debug, Serialize)]
struct WarmMedians {
    launches: usize,
    cold_us: f64,
    warm_us: f64,
    ratio: f64,
}

impl WarmAnswer {
    fn cold(program: Vec<String>, reason: String) -> Self {
        let (start_us, template_kib, measured) = (None, None, None);
        Self { version: 1, program, warm: false, reason: Some(reason), start_us, template_kib, measured }
    }

    /// 0 if the program can be launched warm.
    pub(super) fn exit_status(&self) -> u8 {
        u8::from(!self.warm)
    }

    pub(super) fn text(&self) -> String {
        let name = self.program.join(" ");
        if let Some(reason) = &self.reason {
            return format!("{name} cannot be launched warm: {reason}.\n");
        }
        let mut out = format!("{name} can be launched warm (experimental: docs/warm.md).\n");
        if let Some(WarmMedians { launches, cold_us, warm_us, ratio }) = self.measured {
            let _ = writeln!(
                out,
                "  - Cold it takes {} µs, warm {} µs: {ratio:.2} of the time.",
                thousands(cold_us.round() as u64),
                thousands(warm_us.round() as u64)
            );
            let _ = writeln!(out, "    Medians of {launches} launches each, in turn, from the request to the end.");
        }
        if let Some(kib) = self.template_kib {
            let _ = writeln!(out, "  - Its template has {} KiB of private memory.", thousands(kib));
        }
        if let Some(us) = self.start_us {
            let _ = writeln!(out, "  - The template was ready after {:.1} ms.", us / 1000.0);
        }
        out
    }
}

/// Starts a template of the program, and launches it cold and warm in turn if `measures`.
pub(super) fn examine(words: &[OsString], measures: bool) -> Result<WarmAnswer> {
    let program: Vec<_> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (name, args) = words.split_first().context("--warm needs a program")?;
    let warm = match WarmOptions::new().launches(u32::MAX).open() {
        Ok(warm) => warm,
        Err(error) => return Ok(WarmAnswer::cold(program, error.to_string())),
    };
    let mut command = Command::new(name);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let prepared = command.prepare()?;
    let started = Instant::now();
    if let Err(error) = warm.start(&prepared) {
        return Ok(WarmAnswer::cold(program, error.to_string()));
    }
    let start_us = started.elapsed().as_secs_f64() * 1e6;
    let (mut cold, mut by_template) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    while measures && cold.len() < ROUNDS && begun.elapsed() < TIME {
        let started = Instant::now();
        prepared.status()?;
        cold.push(started.elapsed());
        let started = Instant::now();
        let mut child = warm.spawn(&prepared)?;
        child.wait()?;
        by_template.push(started.elapsed());
        if !matches!(child.route(), Route::Warm) {
            return Ok(WarmAnswer::cold(program, child.cold_reason().unwrap_or("unknown").to_owned()));
        }
    }
    let template_kib = warm.templates().first().and_then(|&pid| private_kib(pid));
    let measured = (!cold.is_empty()).then(|| {
        let (launches, cold_us, warm_us) = (cold.len(), median(cold), median(by_template));
        WarmMedians { launches, cold_us, warm_us, ratio: warm_us / cold_us }
    });
    Ok(WarmAnswer { version: 1, program, warm: true, reason: None, start_us: Some(start_us), template_kib, measured })
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

/// The private memory of a process.
fn private_kib(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let of = |label: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(label))?;
        line.trim().split(' ').next()?.parse::<u64>().ok()
    };
    Some(of("Private_Dirty:")? + of("Private_Clean:")?)
}
