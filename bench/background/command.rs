//! Rust's `std::process::Command`, spawn and wait, time and again: `command COUNT PROGRAM` prints the wall time of the
//! launches, each until its end is known, in nanoseconds.

use std::process::{Command, Stdio};
use std::time::Instant;

fn launch(program: &str) {
    let mut child = Command::new(program).stdout(Stdio::null()).spawn().expect("a child");
    assert!(child.wait().expect("its end").success());
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, count, program] = &args[..] else { panic!("usage: command COUNT PROGRAM") };
    let count: u32 = count.parse().expect("a number");
    // What is set up once is not timed.
    launch(program);
    let start = Instant::now();
    for _ in 0..count {
        launch(program);
    }
    println!("{}", start.elapsed().as_nanos());
}
