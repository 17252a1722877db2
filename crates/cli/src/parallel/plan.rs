//! From the options to a run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forkless_jobs::{Control, Input, Job, Limit, Options, Output, Sink, Source, Standard};
use rustix::process::{Resource, getpriority_process, getrlimit};

use super::blocks::{Blocks, Borders};
use super::bytes;
use super::change::regular;
use super::gearman::{self, Feeder};
use super::grammar::{Asked, Given, Origin};
use super::joblog::LogFile;
use super::lines::{Lines, Maker, Supply};
use super::options::ParallelOptions;
use super::pack::{LONGEST, Limits, Packer};
use super::quote::Language;
use super::records::{Feed, Records};
use super::report::Report;
use super::results::{Naming, Silent, Table};
use super::shard::Shard;
use super::shell::Shell;
use super::sources::{Combine, Reading, Sources, Stream};
use super::template::{Fill, Strings, Template};
use super::values::{self, Trim};

/// Everything that a run needs.
pub(super) struct Plan {
    pub(super) options: Options,
    pub(super) source: Box<dyn Source>,
    pub(super) report: Report,
    pub(super) sink: Box<dyn Sink>,
    pub(super) log: Option<LogFile>,
}

/// How many jobs run at once if as many as possible are asked for.
const MOST_SLOTS: u64 = 10_000;

impl Plan {
    pub(super) fn of(given: &ParallelOptions, control: &Control) -> Result<Self, String> {
        let mut options = engine(given, control)?;
        let shard = given.shard.as_deref().map(Shard::parse).transpose()?;
        let is_pipe = given.reads_blocks();
        let asked = Asked::of(given);
        let mut strings = strings(given);
        let mut sources = match is_pipe {
            true => None,
            false => Some(sources(given, &asked)?),
        };
        let names = match (&mut sources, given.header.as_deref()) {
            (Some(sources), Some(_)) => sources.read_header().map_err(|error| format!("--header: {error}"))?,
            _ => Vec::new(),
        };
        strings.name(&names);
        let shell = match &given.gearman {
            // That of the workers.
            Some(server) => {
                gearman::check(given)?;
                if !given.dry_run {
                    options.remote = Some(Box::new(Feeder::new(server)?));
                }
                Shell::standard()
            }
            None => Shell::find()?,
        };
        let maker = maker(given, &strings, &names, shard, shell, options.slots)?;
        let sink = sink(given, &names, shard, maker.results.is_some())?;
        let log = LogFile::of(given, shard)?;
        let again = log.as_ref().map(|log| log.open(given, &mut options)).transpose()?.flatten();
        let (source, total) = match sources {
            Some(sources) => lines(given, &asked, &strings, sources, maker, options.halt, again)?,
            None => (blocks(given, &asked, &strings, maker, shard)?, None),
        };
        let report = Report {
            shows_commands: given.verbose && !given.dry_run,
            names: options.halt.map(|halt| halt.on),
            bar: given.bar,
            progress: given.progress,
            eta: given.eta,
            total: given.total_jobs.or(total),
            removes: given.cat,
            ..Report::default()
        };
        options.tick = report.ticks().then_some(Duration::from_millis(200));
        Ok(Self { options, source, report, sink, log })
    }
}

impl ParallelOptions {
    /// `-l` takes a number: what follows it otherwise is the first word of the command.
    pub(super) fn return_words(&mut self) {
        let is_number = |word: &mut std::ffi::OsString| word.to_str().is_some_and(|word| values::size(word).is_ok());
        if let Some(word) = self.max_lines.take_if(|word| !is_number(word)) {
            self.words.insert(0, word);
            self.max_lines = Some("1".into());
        }
    }

    /// Whether input is given to jobs as blocks.
    pub(super) fn reads_blocks(&self) -> bool {
        self.pipe || self.pipe_part || self.cat || self.fifo || self.round_robin
    }

    /// Whether it is about a semaphore.
    pub(super) fn uses_semaphore(&self) -> bool {
        self.semaphore || self.semaphore_name.is_some() || self.fg || self.bg || self.semaphore_timeout.is_some()
    }

    /// How many jobs run at once.
    pub(super) fn slots(&self) -> Result<usize, String> {
        match (&self.jobs, &self.gearman) {
            (None, Some(_)) => Ok(gearman::SLOTS),
            (jobs, _) => slots(jobs.as_deref().unwrap_or("100%")),
        }
    }
}

/// The number of jobs that a text asks for, or a file that it names.
pub(crate) fn slots(text: &str) -> Result<usize, String> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let slots = match values::slots(text, cpus) {
        Err(error) => match fs::read_to_string(text) {
            Ok(content) => values::slots(&content, cpus)?,
            Err(_) => return Err(format!("--jobs: {error}")),
        },
        Ok(slots) => slots,
    };
    Ok(slots.unwrap_or_else(|| {
        // Each job takes up to four descriptors.
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 4;
        files.clamp(1, MOST_SLOTS) as usize
    }))
}

/// The options of the engine.
fn engine(given: &ParallelOptions, control: &Control) -> Result<Options, String> {
    let output = match (given.ungroup, given.line_buffer) {
        (true, _) => Output::Inherit,
        (_, true) => Output::Lines,
        _ => Output::Group,
    };
    let mut options = Options::default().slots(given.slots()?).output(output);
    options.keep_order = given.keep_order;
    options.tries = match given.retries {
        Some(0) => u32::MAX,
        tries => tries.unwrap_or(1),
    };
    options.timeout = given.timeout;
    if let Some(sequence) = &given.term_seq {
        options.termination = values::termination(sequence).map_err(|error| format!("--term-seq: {error}"))?;
    }
    options.halt = given.halt.and_then(|halt| halt.0);
    options.delay = given.delay.unwrap_or_default();
    options.max_load = given.load.as_deref().map(load).transpose()?;
    options.min_memory = given.memfree;
    if let Some(wanted) = given.nice {
        let now = getpriority_process(None).map_err(|error| format!("--nice: {error}"))?;
        // As GNU parallel: never more urgent than now.
        options.nice = Some((wanted - now).max(0));
    }
    options.groups = true;
    options.dry_run = given.dry_run;
    options.control = Some(control.clone());
    if let Some(directory) = &given.tmpdir {
        options.temporary = directory.clone();
    }
    if given.workdir.is_some() {
        options.setup = Some(Box::new(enter));
    }
    Ok(options)
}

fn load(text: &str) -> Result<f64, String> {
    let wrong = |_| format!("--load: not a number or a percentage: {text:?}");
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64;
    match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map(|percent| cpus * percent / 100.0).map_err(wrong),
        None => text.parse::<f64>().map(|load| load.max(0.01)).map_err(wrong),
    }
}

/// Sets the working directory of a job: its first value. It is made if it is missing; if it cannot be, the launch fails
/// and names it.
fn enter(command: &mut forkless::Command, job: &Job) {
    if let Some(directory) = job.values.first().filter(|directory| !directory.is_empty()) {
        let directory = Path::new(std::ffi::OsStr::from_bytes(directory));
        let _ = fs::create_dir_all(directory);
        command.current_dir(directory);
    }
}

/// The replacement strings.
fn strings(given: &ParallelOptions) -> Strings {
    let mut strings = Strings::default();
    if given.plus {
        strings.plus();
    }
    let plain = given.replacement.as_ref().or(given.replace.as_ref().and_then(Option::as_ref));
    let renamed = [
        ("{}", plain),
        ("{.}", given.extensionreplace.as_ref()),
        ("{/}", given.basenamereplace.as_ref()),
        ("{//}", given.dirnamereplace.as_ref()),
        ("{/.}", given.basenameextensionreplace.as_ref()),
        ("{#}", given.seqreplace.as_ref()),
        ("{%}", given.slotreplace.as_ref()),
    ];
    for (from, to) in renamed {
        if let Some(to) = to {
            strings.rename(from, to.as_bytes());
        }
    }
    strings
}

/// The sources of values.
fn sources(given: &ParallelOptions, asked: &Asked) -> Result<Sources, String> {
    let delimiter = match (&given.delimiter, given.null) {
        (_, true) => vec![0],
        (Some(text), _) => values::delimiter(text.as_bytes()),
        (None, _) => vec![b'\n'],
    };
    let mut columns = given.colsep.clone();
    if let Some(header) = &given.header {
        if header != ":" && header != ".*\\n" {
            return Err(format!("--header: only : is supported without --pipe: {header:?}"));
        }
        columns.get_or_insert_with(|| "\t".to_owned());
    }
    let columns =
        columns.map(|text| regular(&text, |_| {})).transpose().map_err(|error| format!("--colsep: {error}"))?;
    let default_trim = if given.colsep.is_some() { Trim::BOTH } else { Trim::default() };
    let eof = given.eof_string.as_ref().or(given.eof.as_ref().and_then(Option::as_ref));
    let reading = Reading {
        columns,
        trim: given.trim.unwrap_or(default_trim),
        eof: eof.map(|text| bytes(text)),
        continues: given.lines.is_some() || given.max_lines.is_some(),
        skips_blank: given.no_run_if_empty,
    };
    let mut streams = Vec::new();
    for Given { origin, is_linked } in &asked.sources {
        let stream = match origin {
            Origin::Arguments(values) => Stream::Arguments(values.clone().into_iter()),
            Origin::File(path) => Stream::Records(Records::new(Feed::Input(open(path)?), &delimiter)),
        };
        streams.push((stream, *is_linked));
    }
    let combine = if given.link { Combine::Link } else { Combine::Product };
    Ok(Sources::new(streams, reading, combine))
}

/// Opens a file of values; `-` is standard input.
fn open(path: &Path) -> Result<Input, String> {
    let opened: io::Result<OwnedFd> = match path == Path::new("-") {
        true => rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map_err(Into::into),
        false => File::open(path).map(Into::into),
    };
    opened.map(Input::new).map_err(|error| format!("cannot open input file {}: {error}", path.display()))
}

/// What makes jobs of lines.
fn maker(
    given: &ParallelOptions,
    strings: &Strings,
    names: &[Vec<u8>],
    shard: Option<Shard>,
    shell: Shell,
    slots: usize,
) -> Result<Maker, String> {
    let template = |text: &[u8]| Template::text(text, strings);
    let tag = match (&given.tagstring, given.tag) {
        (Some(text), _) => Some(template(text.as_bytes())?),
        (None, true) => Some(Template::text(b"{}", &Strings::default())?),
        (None, false) => None,
    };
    let results = match given.results.as_ref().map(PathBuf::from) {
        Some(path) if !is_table(&path) => Some(naming(&path, strings, names, shard)?),
        _ => None,
    };
    let mut env = vec![
        ("PARALLEL_PID".into(), std::process::id().to_string().into()),
        ("PARALLEL_SSHLOGIN".into(), ":".into()),
        ("PARALLEL_SSHHOST".into(), ":".into()),
    ];
    if let Some(directory) = &given.tmpdir {
        env.push(("TMPDIR".into(), directory.clone().into_os_string()));
    }
    Ok(Maker {
        is_standard: shell.is_standard(),
        shell,
        slots,
        total: 0,
        tag: tag.filter(|_| !given.ungroup),
        directory: given.workdir.as_ref().map(|text| template(text.as_bytes())).transpose()?,
        results,
        shows_command: given.verbose_out > 0 && !given.dry_run,
        slot_variable: given.process_slot_var.clone(),
        env,
        is_dry: given.dry_run,
        shard,
    })
}

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "csv" || ending == "tsv" || ending == "json")
}

fn naming(path: &Path, strings: &Strings, names: &[Vec<u8>], shard: Option<Shard>) -> Result<Naming, String> {
    let text = path.as_os_str().as_bytes();
    let template = Template::text(text, strings)?;
    if template.is_constant() {
        let mut root = path.to_owned();
        root.extend(shard.map(|shard| shard.name()));
        return Ok(Naming::Tree { root, names: names.to_vec() });
    }
    if !text.ends_with(b"/") {
        return Err("--results: a name with replacement strings must end in /: each job gets a directory".to_owned());
    }
    Ok(Naming::Template(template))
}

/// Where the output goes.
fn sink(
    given: &ParallelOptions,
    names: &[Vec<u8>],
    shard: Option<Shard>,
    has_directories: bool,
) -> Result<Box<dyn Sink>, String> {
    if has_directories && !given.dry_run {
        return Ok(Box::new(Silent));
    }
    match given.results.as_ref().map(PathBuf::from).filter(|_| !given.dry_run) {
        Some(path) => {
            let (path, host) = match shard {
                Some(shard) => (named(&path, shard), format!("{}/{}", shard.index, shard.count)),
                None => (path, ":".to_owned()),
            };
            let table = Table::open(&path, &host, names);
            match table.map_err(|error| format!("--results: cannot open {}: {error}", path.display()))? {
                Some(table) => Ok(Box::new(table)),
                None => Ok(Box::new(Standard::new())),
            }
        }
        None => Ok(Box::new(Standard::new())),
    }
}

/// The file of a shard: `log` is `log.2-of-8`, `log.csv` is `log.2-of-8.csv`. Standard output stays.
pub(super) fn named(path: &Path, shard: Shard) -> PathBuf {
    if path.file_stem().is_some_and(|stem| stem == "-") {
        return path.to_owned();
    }
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(".");
    name.push(shard.name());
    if let Some(ending) = path.extension() {
        name.push(".");
        name.push(ending);
    }
    path.with_file_name(name)
}

/// What fits in a job.
fn limits(given: &ParallelOptions) -> Result<(Limits, Fill), String> {
    let lines = match &given.max_lines {
        Some(text) => {
            Some(values::size(&text.to_string_lossy()).map(|lines| lines.max(1)).map_err(|e| format!("-l: {e}"))?)
        }
        None => given.lines,
    };
    let rows = given.max_args.or(given.max_replace_args).or(lines);
    let fills = given.context || given.multiple || given.xargs;
    let limits = Limits {
        rows: match rows {
            Some(rows) => (rows as usize).max(1),
            None if fills => usize::MAX,
            None => 1,
        },
        drops_values: rows == Some(0),
        fills,
        spreads: given.context || given.multiple,
        length: given.max_chars.map_or(LONGEST, |size| (size as usize).min(LONGEST)),
    };
    Ok((limits, if given.context { Fill::Words } else { Fill::Arguments }))
}

/// The jobs for values.
fn lines(
    given: &ParallelOptions,
    asked: &Asked,
    strings: &Strings,
    sources: Sources,
    maker: Maker,
    halt: Option<forkless_jobs::Halt>,
    again: Option<BTreeMap<u64, Vec<u8>>>,
) -> Result<(Box<dyn Source>, Option<u64>), String> {
    let (limits, fill) = limits(given)?;
    let language = maker.shell.language;
    let template = Template::parse(&asked.command, strings, fill, given.quote, true, language)?;
    let packer = Packer::new(sources, limits);
    let mut lines = Lines {
        template,
        maker,
        taken: 0,
        total: None,
        supply: again.map_or_else(|| Supply::Packed(Box::new(packer)), Supply::Again),
    };
    let is_relative = halt.is_some_and(|halt| matches!(halt.limit, Limit::Percent(_)));
    let shows_rest = (given.bar || given.eta) && given.total_jobs.is_none();
    if given.shuf || is_relative || shows_rest || lines.template.needs_total() {
        lines.read_all(given.shuf).map_err(|error| error.to_string())?;
    }
    let total = lines.total;
    Ok((Box::new(lines), total))
}

/// The jobs for blocks.
fn blocks(
    given: &ParallelOptions,
    asked: &Asked,
    strings: &Strings,
    maker: Maker,
    shard: Option<Shard>,
) -> Result<Box<dyn Source>, String> {
    if shard.is_some() {
        return Err("--shard: not with --pipe".to_owned());
    }
    if given.round_robin {
        return Err("--round-robin: not supported yet".to_owned());
    }
    if given.fifo {
        return Err("--fifo: not supported yet; use --cat".to_owned());
    }
    let path = match &asked.sources[..] {
        [Given { origin: Origin::File(path), .. }] => path,
        _ => return Err("--pipe: takes one input, and no values".to_owned()),
    };
    let template = Template::parse(&asked.command, strings, Fill::Arguments, given.quote, false, Language::Posix)?;
    let text = |text: &Option<std::ffi::OsString>| text.as_ref().map(|text| values::delimiter(text.as_bytes()));
    let borders = Borders::new(text(&given.recend), text(&given.recstart), given.regexp)?;
    let header = match given.header.as_deref() {
        None => 0,
        Some(":") => 1,
        Some(text) => text.parse().map_err(|_| format!("--header: only : or a number of lines: {text:?}"))?,
    };
    let size = given.block.unwrap_or(1 << 20).max(1) as usize;
    let mut blocks = Blocks::new(Feed::Input(open(path)?), borders, size, template, maker);
    blocks.records = given.max_replace_args.or(given.max_args).map(|count| count.max(1) as usize);
    blocks.lines = given.lines.unwrap_or(1).max(1) as usize;
    blocks.header_lines = header;
    blocks.removes = given.remove_rec_sep;
    blocks.skips_blank = given.no_run_if_empty;
    blocks.is_part = given.pipe_part;
    if given.cat {
        blocks.directory = Some(given.tmpdir.clone().unwrap_or_else(std::env::temp_dir));
    }
    Ok(Box::new(blocks))
}
