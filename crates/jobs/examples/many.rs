//! Runs a program many times, from a process with a given amount of memory, and prints the time in nanoseconds that it took:
//! `many MEBIBYTES SLOTS JOBS PROGRAM`. The jobs get the numbers 1 to JOBS as their argument. `forkless bench runners` measures it.

use std::io;
use std::time::Instant;

use forkless_jobs::{Job, Nothing, Options, Standard, from_iter, run};

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| words.get(index).and_then(|word| word.parse::<usize>().ok());
    let (Some(mebibytes), Some(slots), Some(jobs), Some(program)) = (number(0), number(1), number(2), words.get(3))
    else {
        return Err(io::Error::other("usage: many MEBIBYTES SLOTS JOBS PROGRAM"));
    };
    // Every page is written to.
    let memory = vec![1_u8; mebibytes << 20];
    let start = Instant::now();
    let jobs = (1..=jobs).map(|number| Job::program(program, [number.to_string()]));
    let summary = run(Options::default().slots(slots), &mut from_iter(jobs), &mut Nothing, &mut Standard::new())?;
    println!("took {}", start.elapsed().as_nanos());
    std::hint::black_box(memory);
    if !summary.is_success() {
        return Err(io::Error::other(summary.to_string()));
    }
    Ok(())
}
