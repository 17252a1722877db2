//! The benchmark of popen_noshell's author with our library of that name: launches of a program that prints a line, from a process
//! of which half is written to.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::{
    race::{CampaignContestant, race},
    record::{Figure, Table},
    session::{Common, Session, numbers},
};

/// Compare popen_noshell with vfork, fork, posix_spawn, system and popen.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,

    /// Launch this many times with each method, over all turns
    #[arg(long, value_name = "COUNT", default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..))]
    launches: u32,

    /// Make this many turns
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    turns: u32,

    /// Give the process this many MiB
    #[arg(long, value_name = "MIB", default_value_t = 200)]
    memory: u32,

    /// Compare with the popen_noshell.c and popen_noshell.h in this directory
    #[arg(long, value_name = "DIR")]
    original: Option<PathBuf>,
}

/// The methods, as `launches.c` names them. The first one is the baseline.
const WAYS: &str = "vfork popen_noshell popen_noshell_compat posix_spawn popen_noshell,posix_spawn popen_noshell_compat,posix_spawn \
                    fork popen_noshell,fork popen_noshell_compat,fork system popen";

/// The sources of the launching and of the launched program.
pub(super) const SOURCES: [(&str, &str); 2] =
    [("launches.c", include_str!("../../noshell/launches.c")), ("hello.c", include_str!("../../noshell/hello.c"))];

pub(super) fn measure(options: &Options) -> Result<()> {
    let mut session = Session::begin("noshell", &options.common)?;
    session.unpack(&SOURCES)?;
    let (hello, ours) = (session.cc_tiny("hello")?, session.cc_with("launches", "popen_noshell")?);
    let count = (options.launches / options.turns).max(1);
    let memory = options.memory;
    let new = |prefix: &str, way: &'static str, program: &Path| {
        let (program, hello) = (program.to_owned(), hello.clone());
        CampaignContestant::new(format!("{prefix}{way}"), move || {
            let mut command = Command::new(&program);
            command.arg(way).args([count, memory].map(|number| number.to_string())).arg(&hello);
            let [wall, user, system] = numbers(&mut command)?[..] else { anyhow::bail!("not three numbers") };
            Ok([wall, user + system].map(|time| time / f64::from(count) / 1e3).into())
        })
    };
    let mut all: Vec<_> = WAYS.split_whitespace().map(|way| new("", way, &ours).beside("vfork")).collect();
    if let Some(directory) = &options.original {
        session.unpack(&[("original.c", SOURCES[0].1)])?;
        let source = directory.join("popen_noshell.c").display().to_string();
        let theirs = session.cc("original", [format!("-I{}", directory.display()), source, "-w".to_owned()])?;
        let ways = WAYS.split_whitespace().filter(|way| way.contains("noshell"));
        all.extend(ways.map(|way| new("original ", way, &theirs).beside(way)));
    }
    race("noshell", options.turns as usize, &mut all)?;
    let about = format!(
        "A static program that prints a line, from a process of {memory} MiB of which half is written to; {count} launches a turn. \
         Beside vfork; the original beside ours."
    );
    let figures = [Figure::ratio(0, "wall µs"), Figure::ratio(1, "CPU µs")];
    session.record.tables.push(Table::new("Launches", about, &figures, &all));
    drop(all);
    session.end()
}
