//! `--slurm`: runs the jobs on all nodes of a Slurm allocation, or submits a batch job that does.
//!
//! Slurm places and starts, and carries the bytes. In an allocation, one `srun` starts a worker on each node
//! ([`worker`]): this program with `--slurm-worker`. srun copies its standard input to all of them, so orders name the
//! node that they are for; answers come back in lines on srun's standard output ([`wire`]). This process reads the input,
//! hands the jobs out ([`nodes`]), and has the order, the log and the exit status ([`crew`]). If srun ends or takes no more
//! orders ([`step`]), another one runs the rest on the nodes that still answer ([`probe`]).

mod wire;
mod nodes;
mod step;
mod probe;
mod worker;
mod crew;
mod submit;

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use forkless_jobs::{Control, Events, Gather, JobSource, Options, Output, Sink, Summary, Timeout};

use super::grammar::{self, Asked, Origin};
use super::options::{ParallelOptions, Retries};
use super::plan;
use super::shell::Shell;

use crew::{Crew, Starter};
use submit::Script;
use worker::Variables;

/// After this silence of a node, its jobs run elsewhere.
const LOST_AFTER: Duration = Duration::from_secs(30);

/// So many jobs may wait for one whose output is due: a few long ones must not stop all nodes.
const WINDOW: usize = 1 << 20;

/// How many of a node's CPUs belong to the job.
pub(super) fn cpus(all: usize) -> usize {
    let given = env::var("SLURM_CPUS_ON_NODE").ok().and_then(|text| text.parse().ok());
    given.map_or(all, |given: usize| given.clamp(1, all))
}

/// Refuses options that cannot work on several nodes.
pub(super) fn check(given: &ParallelOptions) -> Result<(), String> {
    let is_tree = given.results.as_ref().is_some_and(|name| !plan::is_table(name.as_ref()));
    let slot = given.slotreplace.as_deref().map_or(&b"{%}"[..], OsStr::as_bytes);
    let has_slot = |word: &OsString| {
        let text = word.as_bytes();
        [slot, b"{0%}"].iter().any(|slot| text.windows(slot.len()).any(|part| part == *slot))
    };
    let reasons = [
        (given.gearman.is_some(), "--gearman: leave one out"),
        (given.has_blocks(), "--pipe: write the blocks to files, and give the jobs their names"),
        (given.ungroup || given.line_buffer, "--ungroup and --line-buffer: output comes in whole jobs, in order"),
        (is_tree, "--results with a directory: give a table, such as NAME.csv"),
        (given.shard.is_some(), "--shard, which also divides the jobs over nodes: leave one out"),
        (given.words.iter().any(has_slot), "{%}: $PARALLEL_JOBSLOT has the slot on the node"),
    ];
    match reasons.iter().find(|(is_so, _)| *is_so) {
        Some((_, what)) => Err(format!("--slurm: not with {what}")),
        None => Ok(()),
    }
}

/// Runs the jobs on the nodes of this allocation.
pub(super) fn run(
    given: &ParallelOptions,
    mut options: Options,
    source: &mut dyn JobSource,
    events: &mut dyn Events,
    sink: &mut dyn Sink,
    say: fn(&str),
) -> Result<Summary, String> {
    options.keep_order = !given.no_keep_order;
    options.window = options.window.max(WINDOW);
    let starter = starter(given)?;
    let lost_after = given.slurm_timeout.unwrap_or(LOST_AFTER);
    let gather = Gather::new(options, source, events, sink).map_err(|error| error.to_string())?;
    let (summary, twice) = Crew::start(gather, starter, lost_after, say)?.run();
    if twice > 0 {
        say(&format!("{twice} jobs may have run twice: their Host in the log is NODE,lost:NODE"));
    }
    Ok(summary)
}

/// The value of `--retries` for the workers.
fn times(given: &ParallelOptions) -> Result<Option<String>, String> {
    match &given.retries {
        None => Ok(None),
        Some(Retries::Times(times)) => Ok(Some(times.to_string())),
        Some(Retries::OfJob(text)) => Err(format!("--retries {text}: not with --slurm: give a number")),
    }
}

/// The command that starts the workers.
fn starter(given: &ParallelOptions) -> Result<Starter, String> {
    let nodes = env::var("SLURM_JOB_NUM_NODES").or_else(|_| env::var("SLURM_NNODES"));
    let nodes = nodes.map_err(
        |_| "--slurm: SLURM_JOB_ID is set, but SLURM_JOB_NUM_NODES is not: run it in a batch script, or under salloc",
    )?;
    let program = env::current_exe().map_err(|error| format!("--slurm: {error}"))?;
    let fixed = ["srun", "--overlap", "--no-kill", "--kill-on-bad-exit=0", "--wait=0"];
    let fixed = fixed.into_iter().chain(["--ntasks-per-node=1", "--input=all", "--output=all"]);
    let own = given.slurm.as_ref().and_then(Option::as_ref);
    let own: Vec<OsString> =
        own.into_iter().flat_map(|own| grammar::split_words(own.as_bytes())).map(OsString::from_vec).collect();
    let mut words = vec![program.into_os_string()];
    words.extend(["parallel", "--plain", "--slurm-worker"].map(OsString::from));
    let seconds = |time: Duration| format!("{:.6}", time.as_secs_f64());
    let timeout = given.timeout.map(|timeout| match timeout {
        Timeout::After(time) => seconds(time),
        Timeout::Percent(percent) => format!("{percent}%"),
    });
    let numbers = [
        ("--jobs=", given.jobs.clone()),
        ("--retries=", times(given)?),
        ("--timeout=", timeout),
        ("--term-seq=", given.term_seq.clone()),
        ("--delay=", given.delay.map(seconds)),
        ("--linger=", given.linger.map(seconds)),
        ("--load=", given.load.clone()),
        ("--memfree=", given.memfree.map(|size| size.to_string())),
        ("--nice=", given.nice.map(|nice| nice.to_string())),
    ];
    words.extend(numbers.into_iter().filter_map(|(name, value)| Some(format!("{name}{}", value?).into())));
    words.extend(given.kill_tree.then(|| "--kill-tree".into()));
    for (name, value) in [
        ("--tmpdir=", given.tmpdir.as_ref().map(|path| path.as_os_str())),
        ("--process-slot-var=", given.process_slot_var.as_deref()),
    ] {
        let word = value.map(|value| [name.as_bytes(), value.as_bytes()].concat());
        words.extend(word.map(OsString::from_vec));
    }
    let shell = Shell::find()?;
    let all_nodes = [format!("--nodes={nodes}"), format!("--ntasks={nodes}")].map(OsString::from);
    Ok(Starter {
        srun: fixed.map(OsString::from).collect(),
        all_nodes: all_nodes.into(),
        own,
        worker: words,
        environment: vec![("PARALLEL_SHELL".into(), shell.path.into_os_string())],
    })
}

/// Runs the worker of a node.
pub(super) fn work(given: &ParallelOptions) -> Result<u8, String> {
    let control = Control::new().map_err(|error| error.to_string())?;
    let mut options = plan::engine(given, &control)?;
    options.output = Output::Group;
    options.setup = Some(Box::new(plan::enter));
    options.shell = Shell::find()?.path;
    let temporary = given.tmpdir.clone().map(Into::into);
    worker::work(options, Variables { slot: given.process_slot_var.clone(), temporary })?;
    Ok(0)
}

/// Submits a batch job that runs this command line, and waits for it; with `--dry-run`, prints its script.
pub(super) fn submit(given: &ParallelOptions, say: fn(&str)) -> Result<u8, String> {
    check(given)?;
    let program = env::current_exe().map_err(|error| format!("--slurm: {error}"))?;
    let words: Vec<OsString> = env::args_os().skip(2).collect();
    let shell = Shell::find()?;
    let script = Script {
        options: given.slurm.as_ref().and_then(|own| own.as_deref()).unwrap_or_default(),
        program: &program,
        words: &words,
        shell: &shell.path,
        resumes: given.joblog.is_some() && (given.resume || given.resume_failed),
        input: None,
    };
    if given.dry_run {
        use std::io::Write;
        let written = std::io::stdout().write_all(&script.text());
        return written.map(|()| 0).map_err(|error| error.to_string());
    }
    let is_stdin = |given: &grammar::Given| given.origin == Origin::File("-".into());
    submit::submit(script, Asked::of(given).sources.iter().any(is_stdin), say)
}
