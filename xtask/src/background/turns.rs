//! Runs launching programs that time themselves, in turns.

use crate::dist::output;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Launches of the trial that estimates how many fit into a turn.
const TRIED: u32 = 3;
/// Minimum number of launches in a turn.
const LEAST: u32 = 2;

/// The number of turns, and the time of each method per turn.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) turns: u32,
    pub(super) each: Duration,
}

/// One method.
pub(super) struct Contestant {
    pub(super) id: String,
    /// The program that launches a given number of times and prints numbers; the first is the total wall time in nanoseconds.
    pub(super) command: Box<dyn Fn(u32) -> Command>,
    /// Computes the figures of a turn from these numbers and the number of launches.
    pub(super) figures: fn(&[f64], f64) -> Vec<f64>,
    /// The figures of each turn.
    pub(super) turns: Vec<Vec<f64>>,
    /// Launches in all turns.
    pub(super) launches: u64,
}

impl Contestant {
    pub(super) fn new(
        id: &str,
        figures: fn(&[f64], f64) -> Vec<f64>,
        command: impl Fn(u32) -> Command + 'static,
    ) -> Contestant {
        Contestant { id: id.to_owned(), command: Box::new(command), figures, turns: Vec::new(), launches: 0 }
    }

    fn run(&self, count: u32) -> Result<Vec<f64>> {
        numbers(&output(&mut (self.command)(count)).with_context(|| self.id.clone())?)
    }
}

/// Runs all methods in turns.
pub(super) fn race(plan: Plan, contestants: &mut [Contestant]) -> Result<()> {
    let mut counts = Vec::new();
    for one in &*contestants {
        // Without a time per turn, no trial is needed.
        let fit = if plan.each.is_zero() {
            LEAST
        } else {
            let wall = one.run(TRIED)?.first().copied().unwrap_or(0.0).max(1.0);
            (plan.each.as_nanos() as f64 / wall * f64::from(TRIED)) as u32
        };
        counts.push(fit.clamp(LEAST, 60_000));
    }
    let all = contestants.len();
    for turn in 0..plan.turns as usize {
        for n in 0..all {
            // Rotate the order, so that no method always follows the same one or is always first.
            let at = (n * if turn % 2 == 0 { 1 } else { all - 1 } + turn) % all;
            let who = &mut contestants[at];
            let numbers = who.run(counts[at])?;
            who.turns.push((who.figures)(&numbers, f64::from(counts[at])));
            who.launches += u64::from(counts[at]);
        }
    }
    Ok(())
}

/// A program that stays alive from turn to turn.
pub(super) struct Asked {
    child: Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Asked {
    pub(super) fn start(command: &mut Command) -> Result<Asked> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start a measured program")?;
        let input = child.stdin.take().context("no input")?;
        let answers = BufReader::new(child.stdout.take().context("no output")?).lines();
        Ok(Asked { child, input, answers })
    }

    /// Makes it launch, and reads the given number of lines with two numbers each.
    pub(super) fn ask(&mut self, lines: usize) -> Result<Vec<Vec<f64>>> {
        self.input.write_all(b"go\n")?;
        let mut all = Vec::new();
        while all.len() < lines {
            let line = numbers(&self.answers.next().context("it has ended")??)?;
            if line.len() != 2 {
                bail!("{line:?}");
            }
            all.push(line);
        }
        Ok(all)
    }

    /// Closes its input and waits for it to end.
    pub(super) fn end(self) -> Result<()> {
        let Asked { mut child, input, .. } = self;
        drop(input);
        let status = child.wait()?;
        if !status.success() {
            bail!("a measured program failed: {status}");
        }
        Ok(())
    }
}

/// The numbers of a line.
pub(super) fn numbers(line: &str) -> Result<Vec<f64>> {
    let numbers: Vec<f64> = line
        .split_whitespace()
        .map(|word| word.parse::<f64>().with_context(|| format!("not a number: {word:?}")))
        .collect::<Result<_>>()?;
    if numbers.is_empty() {
        bail!("no numbers");
    }
    Ok(numbers)
}
