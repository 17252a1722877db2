//! `forkless doctor`: checks the machine for what launches need and recommends a launcher.
//!
//! `docs/doctor.md` is the page for users.

mod options;
mod advice;
mod report;
mod trial;
mod features;
mod limits;
mod system;
mod measure;
mod chart;
mod picture;
mod text;
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod warm;

use std::{
    fs, io,
    io::{IsTerminal, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use forkless::{Command, Launcher, Prepared, Support};
use rustix::fs::{Access, AtFlags, CWD, accessat};

pub(crate) use options::DoctorOptions;

use self::{
    advice::{Advice, AnsweredQuestion, Situation},
    chart::Chart,
    limits::Holder,
    report::{Caller, FORMAT_VERSION, Launch, Report, Step, Verdict},
};
use forkless_runner::parallel::look_up;

/// Exit code for bad options and for a report that cannot be written.
const FAILED: u8 = 2;

/// Prints the report and returns the exit code.
pub(crate) fn main(options: &DoctorOptions) -> ExitCode {
    match run(options) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // There is nowhere to report that standard error is closed.
            let _ = writeln!(io::stderr(), "forkless: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

fn run(options: &DoctorOptions) -> Result<u8> {
    if options.warm {
        return examine_warm(options);
    }
    // If no process can be created, nothing can be probed or measured.
    let (support, trouble) = match Support::probe() {
        Ok(support) => (Some(support), None),
        Err(error) => (None, Some(error)),
    };
    let situation = situation(options, support.unwrap_or(Support::ALL))?;
    let command = prepared(options)?;
    let refusal = Command::new("true").launcher(Launcher::PosixSpawn).prepare().err();
    let advice = situation.advise(refusal.map(|error| error.to_string()).as_deref());
    let chart = Chart::of(Some(&advice).filter(|_| !options.no_path));
    if options.svg.as_deref() == Some(Path::new("-")) {
        return written(&picture::svg(&chart)).map(|()| 0);
    }

    let root = Path::new("/");
    let features = features::probe(support);
    let limits = limits::read(&Holder { root: root.to_path_buf(), pid: options.pid, files: situation.files });
    let (measurements, fork) = match (support, options.no_measure) {
        (_, true) => (measure::none("--no-measure"), None),
        (None, _) => (measure::none("no process can be created"), None),
        (Some(support), _) => measure::measure(support.shared_memory, limits::memory_left_mib(&limits)),
    };
    let report = Report {
        version: FORMAT_VERSION,
        verdict: Verdict::of(&features, &limits, trouble.as_ref()),
        launch: launch(options, &situation, &advice, command.as_ref(), fork),
        features,
        limits,
        system: system::read(root),
        measurements,
    };
    if let Some(path) = &options.svg {
        fs::write(path, picture::svg(&chart)).with_context(|| format!("--svg: cannot write {}", path.display()))?;
    }
    let answer = match options.json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => {
            let colour = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            let parts = text::Parts { chart: options.chart, all: options.all };
            text::render(&report, &chart::text(&chart), parts, colour)
        }
    };
    written(&answer)?;
    Ok(report.verdict.exit_status)
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn examine_warm(options: &DoctorOptions) -> Result<u8> {
    // Errors of PATH come before all others.
    prepared(options)?;
    let answer = warm::examine(&options.words, !options.no_measure)?;
    let text = if options.json { serde_json::to_string_pretty(&answer)? + "\n" } else { answer.text() };
    written(&text).map(|()| answer.exit_status())
}

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
fn examine_warm(_: &DoctorOptions) -> Result<u8> {
    anyhow::bail!("--warm: only x86-64 with glibc has warm programs")
}

/// A reader that closes the pipe early (`| head`) is not an error.
fn written(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        answer => answer.context("cannot write to standard output"),
    }
}

/// The caller that the options describe.
fn situation(options: &DoctorOptions, support: Support) -> Result<Situation> {
    let mut situation = match options.pid {
        Some(pid) => Situation::of_process(pid).with_context(|| format!("--pid: process {pid}"))?,
        // Without /proc, assume a small caller.
        None => Situation::of_caller().unwrap_or_else(|_| Situation::small(support)),
    };
    situation.threads = options.threads.unwrap_or(situation.threads);
    situation.memory = options.memory.unwrap_or(situation.memory);
    situation.files = options.files.unwrap_or(situation.files);
    situation.code = options.closures;
    situation.may_share = !options.no_shared_memory;
    Ok(situation)
}

/// The command to launch. It is compiled but never run.
fn prepared(options: &DoctorOptions) -> Result<Option<Prepared>> {
    let Some((program, args)) = options.words.split_first() else { return Ok(None) };
    // A plan can be made for a program that does not exist yet, but here that is most likely a typing error.
    let path = if program.as_bytes().contains(&b'/') {
        PathBuf::from(program)
    } else {
        look_up(program).with_context(|| format!("program {:?} not found in PATH", program.to_string_lossy()))?
    };
    // Checked with the effective IDs, as exec does.
    let may = accessat(CWD, &path, Access::EXEC_OK, AtFlags::EACCESS);
    may.with_context(|| format!("cannot run {}", path.display()))?;
    ensure!(!path.is_dir(), "cannot run {}: it is a directory", path.display());
    Ok(Some(Command::new(program).args(args).prepare()?))
}

fn launch(
    options: &DoctorOptions,
    situation: &Situation,
    advice: &Advice,
    command: Option<&Prepared>,
    fork: Option<measure::Parentage>,
) -> Launch {
    let step = |answer: &AnsweredQuestion| Step {
        question: answer.question.name(),
        words: answer.question.describe(),
        answer: answer.yes,
        why: answer.why.clone(),
    };
    let gib = situation.memory as f64 / f64::from(1 << 30);
    let words = options.words.iter().map(|word| word.to_string_lossy().into_owned());
    Launch {
        program: command.map(|_| words.collect()),
        caller: Caller {
            pid: options.pid,
            threads: situation.threads,
            memory_bytes: situation.memory,
            resident_bytes: options.pid.and_then(resident),
            files: options.files.or_else(|| can_list_files(options.pid).then_some(situation.files)),
            closures: situation.code,
            may_share: situation.may_share,
        },
        launcher: advice.way.name(),
        words: advice.way.describe(),
        path: advice.path.iter().map(step).collect(),
        steps: command.map(Prepared::steps).unwrap_or_default(),
        fork_us: fork.map(|fork| (fork.small_us + fork.gib_us * gib).round()),
    }
}

/// May the open files be listed? Not those of another user's process.
fn can_list_files(pid: Option<u32>) -> bool {
    pid.is_none_or(|pid| fs::read_dir(format!("/proc/{pid}/fd")).is_ok())
}

/// Resident memory: RSS in ps(1).
fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let rest = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(rest.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}
