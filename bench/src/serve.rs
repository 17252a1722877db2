//! The bench as an engine: runs a method in a separate process, with the protocol of the engines in other languages.

use std::{
    ffi::OsString,
    fs::File,
    io::{BufRead, BufReader, Write},
    os::fd::{BorrowedFd, FromRawFd},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::io::FdFlags;

use super::{
    budget::Goal,
    condition::Condition,
    contestant::Contestant,
    contestants,
    engines::{ANSWERS, GREETING, REQUESTS},
    launcher::{Job, Launcher},
    parent::Parent,
    program::Program,
    statistics::Series,
    wishes::Wishes,
};

/// Serves requests until their end.
///
/// # Errors
/// If it was not started as an engine, or the bench has ended.
pub(crate) fn serve(contestant: Contestant, words: &[OsString]) -> Result<()> {
    let (requests, mut answers) = (take(REQUESTS)?, take(ANSWERS)?);
    let program = Program::named(words)?;
    writeln!(answers, "{GREETING}{} parent", env!("CARGO_PKG_VERSION"))?;
    let mut served =
        Served { contestant, program: &program, condition: Condition::SMALL, parents: Vec::new(), launcher: None };
    for request in BufReader::new(requests).lines() {
        match served.handle(&request?) {
            Ok(answer) => writeln!(answers, "{answer}")?,
            Err(error) => {
                writeln!(answers, "failed {}", format!("{error:#}").replace('\n', " "))?;
                break;
            }
        }
    }
    Ok(())
}

fn take(number: i32) -> Result<File> {
    // SAFETY: borrowed for one call, which sets a flag or returns an error if the descriptor is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let answer = rustix::io::fcntl_setfd(borrowed, FdFlags::CLOEXEC);
    answer
        .with_context(|| format!("--serve: descriptor {number} is not open; only the bench itself can start this"))?;
    // SAFETY: it is open, and nothing else owns it: this process has not opened any descriptor before `serve`.
    Ok(unsafe { File::from_raw_fd(number) })
}

struct Served<'p> {
    contestant: Contestant,
    program: &'p Program,
    condition: Condition,
    parents: Vec<Parent>,
    launcher: Option<Box<dyn Launcher + 'p>>,
}

impl Served<'_> {
    fn handle(&mut self, request: &str) -> Result<String> {
        let words: Vec<&str> = request.split(' ').collect();
        let number =
            |at: usize| words.get(at).context("the request lacks a number")?.parse::<u64>().context("not a number");
        match words[0] {
            "plain" => {}
            "pipes" => self.condition.pipes = u8::try_from(number(1)?)?,
            "files" => {
                let close_on_exec = words.get(2) == Some(&"cloexec");
                self.become_like(Condition { fds: number(1)?, close_on_exec, ..Condition::SMALL })?;
            }
            "mappings" => self.become_like(Condition { mappings: number(1)?, ..Condition::SMALL })?,
            "memory" => self.become_like(Condition { parent_mib: number(1)?, ..Condition::SMALL })?,
            "output" => self.condition.output = number(1)?,
            "turn" => {
                let (time, fewest, most) = (Duration::from_nanos(number(1)?), number(2)?, number(3)?);
                return self.turn(&Goal { time, fewest: usize::try_from(fewest)?, most: usize::try_from(most)? });
            }
            _ => bail!("unknown request {request:?}"),
        }
        Ok("ok".to_owned())
    }

    /// Gives this process the resources of a condition, until it ends.
    fn become_like(&mut self, condition: Condition) -> Result<()> {
        self.parents.push(Parent::become_like(&condition)?);
        Ok(())
    }

    fn turn(&mut self, goal: &Goal) -> Result<String> {
        static NONE: std::sync::LazyLock<Wishes> = std::sync::LazyLock::new(Wishes::none);
        let launcher = match &mut self.launcher {
            Some(launcher) => launcher,
            none => {
                let job = Job { program: self.program, condition: self.condition, wishes: &NONE };
                none.insert(contestants::ready(self.contestant, &job, None)?)
            }
        };
        let mut series = Series::default();
        launcher.turn(goal, &mut series)?;
        let mut answer = format!("done {} {}", series.wall.as_nanos(), series.cpu.as_nanos());
        for sample in series.samples() {
            answer += &format!(" {} {}", sample.held_ns, sample.total_ns);
        }
        Ok(answer)
    }
}
