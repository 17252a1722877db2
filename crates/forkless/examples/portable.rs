//! A program for several systems. With the feature `std-fallback` it compiles on each of them, without a `cfg`:
//! `cargo xtask targets` checks this.

use forkless::{Command, Output, Stdio};
use std::io::{self, Write};

/// Pipes `input` through a program.
fn filtered(program: &str, input: &str) -> io::Result<Output> {
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().expect("a pipe").write_all(input.as_bytes())?;
    child.wait_with_output()
}

fn main() -> io::Result<()> {
    let output = filtered("sort", "b\na\n")?;
    assert!(output.status.success(), "{}", output.status);
    print!("{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// The same with the names of the module `tokio`.
#[cfg(feature = "tokio")]
#[allow(dead_code, reason = "only compiled")]
async fn awaited() -> io::Result<Output> {
    use forkless::tokio::{Command, Stdio};
    Command::new("sort").stdin(Stdio::null()).kill_on_drop(true).output().await
}
