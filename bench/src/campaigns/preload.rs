//! libc's functions beside those of the preload library, in turn in one process, which prints its own tables.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::session::{Common, Session};

/// Compare the preload library with libc's functions.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,

    /// Make this many launches with each function; slow ones get fewer
    #[arg(long, value_name = "COUNT", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..))]
    launches: u32,
}

const SOURCES: [(&str, &str); 5] = [
    ("tiny.c", include_str!("../../c/target.c")),
    ("hello.c", include_str!("../../noshell/hello.c")),
    ("pairs.c", include_str!("../../preload/pairs.c")),
    ("load.c", include_str!("../../preload/load.c")),
    ("empty.c", "int forkless_empty;\n"),
];

/// Three tables: loading the library beside an empty one, the functions, and the functions with children that inherit only the
/// standard streams.
pub(super) fn measure(options: &Options) -> Result<()> {
    let session = Session::begin("preload", &options.common)?;
    session.unpack(&SOURCES)?;
    let (tiny, hello) = (session.cc_tiny("tiny")?, session.cc_tiny("hello")?);
    let (pairs, load) = (session.cc("pairs", ["-ldl"])?, session.cc("load", [""; 0])?);
    let empty = session.cc("empty", ["-shared", "-fPIC", "-Wl,--no-as-needed", "-lc"])?;
    let (ours, count) = (session.library("libforkless_preload.so")?, options.launches.to_string());
    println!("loading the library, /bin/true");
    run(Command::new(load).args(["/bin/true", &count, "none"]).arg(empty).arg(&ours))?;
    for inherit in ["all", "stdio"] {
        println!("FORKLESS_INHERIT={inherit}");
        let mut command = Command::new(&pairs);
        command.arg(&ours).arg(&tiny).arg(&hello).arg(&count).env("FORKLESS_INHERIT", inherit);
        run(command.env_remove("FORKLESS").env_remove("FORKLESS_LOG"))?;
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{:?}", command.get_program()))?;
    ensure!(status.success(), "{:?}: {status}", command.get_program());
    Ok(())
}
