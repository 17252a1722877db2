//! Launching programs of Debian with and without `libforkless_preload.so`: [bench/real](../../real/README.md).
//!
//! A program prints `ready` when it is set up, reads `go`, and prints `done`; the time between the last two is measured.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};

use super::{
    race::{CampaignContestant, race},
    record::{Figure, Table},
    session::{Common, Session},
};

/// Measure real programs with and without libforkless_preload.so.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,

    /// Make this many turns
    #[arg(long, value_name = "COUNT", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    turns: u32,

    /// Measure only programs with this in their name
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
}

/// The name, the number of launches, requests or targets, and the words, in which COUNT is that number.
type Load = (&'static str, u32, &'static str);

/// Fewer launches where fork is slow.
const LOADS: [Load; 16] = [
    ("PHP exec, small", 200, "php -n launches.php exec 0 0 COUNT /usr/bin/true"),
    ("PHP exec, 1 GiB", 200, "php -n launches.php exec 1024 0 COUNT /usr/bin/true"),
    ("PHP exec, 1 GiB, 10,000 files", 200, "php -n launches.php exec 1024 10000 COUNT /usr/bin/true"),
    ("PHP exec of a pipeline, 1 GiB", 200, "php -n launches.php exec 1024 0 COUNT /usr/bin/true|/usr/bin/true"),
    ("PHP proc_open, 1 GiB, 10,000 files", 20, "php -n launches.php proc_open 1024 10000 COUNT /usr/bin/true"),
    ("Lua execute, small", 200, "lua5.4 launches.lua execute 0 0 COUNT /usr/bin/true"),
    ("Lua execute, 1 GiB", 200, "lua5.4 launches.lua execute 1024 0 COUNT /usr/bin/true"),
    ("Lua execute, 1 GiB, 10,000 files", 200, "lua5.4 launches.lua execute 1024 10000 COUNT /usr/bin/true"),
    ("Lua popen, 1 GiB, 10,000 files", 200, "lua5.4 launches.lua popen 1024 10000 COUNT /usr/bin/true"),
    (
        "gawk system, 2,000,000 entries",
        200,
        "gawk -v how=system -v entries=2000000 -v count=COUNT -v line=/usr/bin/true -f launches.awk",
    ),
    (
        "gawk getline, 2,000,000 entries",
        20,
        "gawk -v how=getline -v entries=2000000 -v count=COUNT -v line=/usr/bin/true -f launches.awk",
    ),
    ("PostgreSQL COPY FROM PROGRAM, 1,000 tables open", 200, "./postgres.sh 1000 COUNT /usr/bin/true"),
    ("make, 500 targets", 500, "./make.sh COUNT"),
    ("lighttpd, CGI in sh", 100, "./lighttpd.sh COUNT cgi.sh cgi"),
    ("lighttpd, CGI in Lua with 5 os.execute", 100, "./lighttpd.sh COUNT cgi.lua cgi"),
    ("fcgiwrap, CGI in Lua with 5 os.execute", 100, "./lighttpd.sh COUNT cgi.lua fcgi"),
];

/// The methods: what FORKLESS_INHERIT is, if the library is loaded.
const WAYS: [(&str, Option<&str>); 3] = [("without", None), ("with", Some("all")), ("with stdio", Some("stdio"))];

const SCRIPTS: [(&str, &str); 6] = [
    ("launches.php", include_str!("../../real/launches.php")),
    ("launches.lua", include_str!("../../real/launches.lua")),
    ("launches.awk", include_str!("../../real/launches.awk")),
    ("postgres.sh", include_str!("../../real/postgres.sh")),
    ("make.sh", include_str!("../../real/make.sh")),
    ("lighttpd.sh", include_str!("../../real/lighttpd.sh")),
];

pub(super) fn measure(options: &Options) -> Result<()> {
    let mut session = Session::begin("real", &options.common)?;
    session.unpack(&SCRIPTS)?;
    for (script, _) in SCRIPTS {
        fs::set_permissions(session.place.join(script), fs::Permissions::from_mode(0o755))?;
    }
    let (library, place) = (session.library("libforkless_preload.so")?, session.place.clone());
    let mut everyone = Vec::new();
    for load in LOADS {
        let (name, ..) = load;
        if options.only.as_ref().is_some_and(|word| !name.contains(word.as_str())) {
            continue;
        }
        if let Some(missing) = needs(load).into_iter().find(|program| !is_there(program)) {
            session.record.skip(format!("{name} because {missing} is not installed"));
            continue;
        }
        let mut all = WAYS.map(|(way, inherit)| {
            let preload = inherit.map(|inherit| (library.as_path(), inherit));
            let place = &place;
            let run = move || Ok(vec![run(load, preload, place)?]);
            CampaignContestant::new(format!("{name}: {way}"), run).beside(format!("{name}: {}", WAYS[0].0))
        });
        race(name, options.turns as usize, &mut all)?;
        everyone.extend(all);
    }
    let about =
        "Time for each launch, request or target, with the program's own work. Beside the program without the library.";
    let figures = [Figure::ratio(0, "µs for each")];
    session.record.tables.push(Table::new("Programs with and without the preload library", about, &figures, &everyone));
    drop(everyone);
    session.end()
}

/// The programs of a load that may be missing.
fn needs((_, _, words): Load) -> Vec<&'static str> {
    match words.split(' ').next().unwrap_or_default() {
        "./postgres.sh" => vec!["psql"],
        "./make.sh" => vec!["make"],
        "./lighttpd.sh" => vec!["lighttpd", "fcgiwrap", "lua5.4", "curl"],
        program => vec![program],
    }
}

fn is_there(program: &str) -> bool {
    // A server's program need not be in everyone's PATH.
    let known = ["/usr/sbin", "/sbin"].into_iter().map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(known).any(|directory| directory.join(program).exists())
}

/// Runs a load; returns the microseconds between `go` and `done`, divided by its number.
fn run((_, count, words): Load, preload: Option<(&Path, &str)>, place: &Path) -> Result<f64> {
    let words = words.split(' ').map(|word| word.replace("COUNT", &count.to_string()));
    let mut command = Command::new("timeout");
    command.args(["-k", "10", "300"]).args(words).current_dir(place);
    command.env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").env_remove("LD_PRELOAD").env_remove("FORKLESS_LOG");
    if let Some((library, inherit)) = preload {
        command.env("LD_PRELOAD", library).env("FORKLESS_INHERIT", inherit);
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("timeout")?;
    let measured = time(&mut child);
    // The program ends by itself, or timeout(1) ends it.
    drop(child.stdin.take());
    let status = child.wait()?;
    let seconds = measured?;
    ensure!(status.success(), "{status}");
    Ok(seconds * 1e6 / f64::from(count))
}

fn time(child: &mut Child) -> Result<f64> {
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let mut expect = |wanted: &str| match lines.next().transpose()? {
        Some(line) if line == wanted => Ok(()),
        other => bail!("{other:?} instead of {wanted:?}"),
    };
    expect("ready")?;
    let began = Instant::now();
    child.stdin.as_mut().context("no input")?.write_all(b"go\n")?;
    expect("done")?;
    Ok(began.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_say_done_is_no_measurement() {
        let place = tempfile::tempdir().expect("temporary directory");
        let says = |word: &'static str| {
            let path = place.path().join("says");
            fs::write(&path, format!("echo ready; read -r go; echo {word}")).expect("writable");
            run(("test", 1, "sh says COUNT"), None, place.path())
        };
        assert!(says("done").is_ok_and(|time| time > 0.0));
        assert!(says("no").is_err());
        assert!(LOADS.iter().all(|(_, _, words)| words.contains("COUNT")));
    }
}
