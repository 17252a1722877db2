//! From the options to a run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use forkless_core::sys::{getrlimit, uapi};
use forkless_jobs::{Control, Input, Job, JobSource, Limit, Options, Output, Sink, Standard};
use rustix::process::getpriority_process;

use super::blocks::{Blocks, Borders, Heading, Round};
use super::change::regular;
use super::files::Files;
use super::grammar::{Asked, Given, Origin};
use super::joblog::LogFile;
use super::lines::{Lines, Maker, Supply};
use super::message::say;
use super::options::{ParallelOptions, Retries};
use super::pack::{LONGEST, PackLimits, RowPacker};
use super::records::Records;
use super::report::{OutputAboveProgress, Report, SlotsFile};
use super::results::{Naming, Silent, Table};
use super::shard::Shard;
use super::shell::Shell;
use super::sources::{Columns, Combine, Reading, Sources, Stream};
use super::tee::Tee;
use super::template::{Fill, Strings, Template};
use super::values::{self, BlockSize, Trim, bytes};
use super::{gearman, processes, slurm};

/// Everything that a run needs.
pub(super) struct Plan {
    pub(super) options: Options,
    pub(super) source: Box<dyn JobSource>,
    pub(super) report: Report,
    pub(super) sink: Box<dyn Sink>,
    pub(super) log: Option<LogFile>,
    pub(super) warm: Option<crate::warm::Templates>,
}

/// How many jobs run at once for `--jobs 0`, at most.
const MOST_SLOTS: u64 = 10_000;

/// Milliseconds between two updates of the progress.
pub(super) const TICK: u32 = 200;

impl Plan {
    pub(super) fn of(given: &ParallelOptions, control: &Control) -> Result<Self, String> {
        if given.slurm.is_some() {
            slurm::check(given)?;
        }
        let mut options = engine(given, control)?;
        let shard = given.shard.as_deref().map(Shard::parse).transpose()?;
        let is_pipe = given.has_blocks();
        let mut asked = Asked::of(given);
        let input = given.tee.then(|| tee_input(given, &mut asked)).transpose()?;
        let mut strings = strings(given)?;
        let mut sources = match is_pipe && !given.tee {
            true => None,
            false => Some(sources(given, &asked)?),
        };
        let names = match (&mut sources, given.header.as_deref()) {
            (Some(sources), Some(_)) => sources.read_header().map_err(|error| format!("--header: {error}"))?,
            _ => Vec::new(),
        };
        strings.name(&names);
        let shell = match &given.gearman {
            // The workers' shell.
            Some(server) => {
                gearman::check(given)?;
                if !given.dry_run {
                    options.remote = Some(gearman::feeder(server)?);
                }
                Shell::standard()
            }
            None => Shell::find()?,
        };
        options.shell.clone_from(&shell.path);
        let warm = given.warm.then(|| crate::warm::install(&mut options)).transpose()?;
        let maker = maker(given, &strings, &names, shard, shell, options.slots)?;
        let shown = Arc::default();
        let sink = sink(given, &names, shard, maker.results.is_some(), &shown)?;
        let log = LogFile::of(given, shard)?;
        let again = log.as_ref().map(|log| log.open(given, &mut options)).transpose()?.flatten();
        let (mut files, slots) = (None, options.slots);
        let (source, total) = match sources {
            Some(sources) => {
                let lines = lines(given, &asked, &strings, sources, maker, options.halt, again)?;
                let total = lines.total;
                if given.tee {
                    (tee(input, lines, &options)?, total)
                } else {
                    (Box::new(lines) as Box<dyn JobSource>, total)
                }
            }
            None => {
                let (source, made) = blocks(given, &asked, &strings, maker, shard, slots)?;
                files = made;
                (source, None)
            }
        };
        let report = Report {
            shows_commands: given.verbose && !given.dry_run,
            names: options.halt.map(|halt| halt.on),
            bar: given.bar,
            progress: Arc::new(given.progress.into()),
            eta: given.eta,
            total: given.total_jobs.or(total),
            files,
            shown,
            slots: given.slots_file().map(|path| SlotsFile { path, control: control.clone() }),
            ..Report::default()
        };
        options.tick = report.is_live().then_some(Duration::from_millis(TICK.into()));
        Ok(Self { options, source, report, sink, log, warm })
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
    pub(super) fn has_blocks(&self) -> bool {
        self.pipe || self.pipe_part || self.cat || self.fifo || self.round_robin || self.tee
    }

    /// Whether an option of the semaphore is given.
    pub(super) fn has_semaphore(&self) -> bool {
        self.semaphore || self.semaphore_name.is_some() || self.fg || self.bg || self.semaphore_timeout.is_some()
    }

    /// How many jobs run at once.
    pub(super) fn slots(&self) -> Result<usize, String> {
        if self.jobs.is_none() && self.gearman.is_some() {
            return Ok(gearman::SLOTS);
        }
        // Jobs of --tee wait for each other.
        let text = self.jobs.as_deref().unwrap_or(if self.tee { "0" } else { "100%" });
        slots_or_file(text, || if self.slurm_worker { slurm::cpus(cpus()) } else { cpus() })
    }

    /// The file with the number of jobs, if it is in one.
    fn slots_file(&self) -> Option<PathBuf> {
        self.jobs.as_ref().filter(|text| slots_of(text).is_err()).map(PathBuf::from)
    }
}

/// The number of slots that a text names, on this machine.
pub(super) fn slots_of(text: &str) -> Result<usize, String> {
    slots_on(text, cpus)
}

/// The number of slots that a text contains, or the file that it names.
#[cfg(feature = "gearman")]
pub(crate) fn slots(text: &str) -> Result<usize, String> {
    slots_or_file(text, cpus)
}

fn slots_or_file(text: &str, cpus: impl Fn() -> usize) -> Result<usize, String> {
    slots_on(text, &cpus).or_else(|error| match fs::read_to_string(text) {
        Ok(content) => slots_on(&content, cpus).map_err(|error| format!("--jobs {text}: {error}")),
        Err(_) => Err(format!("--jobs: {error}")),
    })
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn slots_on(text: &str, cpus: impl FnOnce() -> usize) -> Result<usize, String> {
    Ok(values::slots(text, cpus)?.unwrap_or_else(|| {
        // Each job takes up to four descriptors.
        let files = getrlimit(uapi::RLIMIT_NOFILE).map_or(u64::MAX, |[soft, _]| soft) / 4;
        files.clamp(1, MOST_SLOTS) as usize
    }))
}

/// The options of the engine.
pub(super) fn engine(given: &ParallelOptions, control: &Control) -> Result<Options, String> {
    let is_tree = given.results.as_ref().is_some_and(|name| !is_table(name.as_ref()));
    let output = match (given.ungroup, given.line_buffer) {
        // Captured, so that the files of `--results` get it.
        (true, false) if is_tree => Output::Group,
        (true, _) => Output::Inherit,
        (_, true) => Output::Lines,
        _ => Output::Group,
    };
    if given.linger.is_some() && matches!(output, Output::Inherit) {
        return Err("--linger has no effect with --ungroup, whose jobs write by themselves; leave one out".to_owned());
    }
    let is_here = given.gearman.is_none() && given.slurm.is_none() && !given.dry_run;
    let slots = given.slots()?;
    let mut options = Options::new(if is_here { processes::fit(slots) } else { slots }).output(output);
    options.keep_order = given.keep_order;
    options.tries = match &given.retries {
        Some(Retries::Times(times)) => Retries::most(*times),
        _ => 1,
    };
    options.timeout = given.timeout.filter(|timeout| *timeout != forkless_jobs::Timeout::After(Duration::ZERO));
    if let Some(sequence) = &given.term_seq {
        options.termination = values::termination(sequence).map_err(|error| format!("--term-seq: {error}"))?;
    }
    options.halt = given.halt.and_then(|halt| halt.0);
    options.delay = given.delay.unwrap_or_default();
    options.linger = given.linger.unwrap_or(options.linger);
    options.max_load = given.load.as_deref().map(|text| values::load(text, cpus)).transpose()?;
    options.min_memory = given.memfree;
    if is_here && given.memfree.is_some_and(|least| least > forkless_jobs::memory()) {
        return Err("--memfree: /proc/meminfo shows less memory than that, so no job would ever start".to_owned());
    }
    if let Some(wanted) = given.nice {
        let now = getpriority_process(None).map_err(|error| format!("--nice: {error}"))?;
        // Never a lower niceness than now. GNU parallel lowers it where it may.
        options.nice = Some(wanted.max(now));
    }
    options.groups = true;
    options.kill_tree = given.kill_tree;
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

/// Sets the working directory of a job: its first value. It is made if it is missing; if it cannot be, the launch fails
/// and names it.
pub(super) fn enter(command: &mut forkless::Command, job: &Job) {
    if let Some(directory) = job.values.first().filter(|directory| !directory.is_empty()) {
        let directory = Path::new(std::ffi::OsStr::from_bytes(directory));
        let _ = fs::create_dir_all(directory);
        command.current_dir(directory);
        if let Some(name) = logical(directory) {
            command.env("PWD", name);
        }
    }
}

/// The name of a directory that a link leads to, as a shell keeps it that enters it by `cd`. None if the kernel's name is the
/// same.
fn logical(directory: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(directory).ok()?;
    let name = match directory.is_absolute() {
        true => directory.to_owned(),
        false => std::env::var_os("PWD").map(PathBuf::from).filter(|here| here.is_absolute())?.join(directory),
    };
    let mut plain = PathBuf::new();
    for component in name.components() {
        match component {
            Component::ParentDir => _ = plain.pop(),
            component => plain.push(component),
        }
    }
    (plain != real && fs::canonicalize(&plain).ok() == Some(real)).then_some(plain)
}

fn strings(given: &ParallelOptions) -> Result<Strings, String> {
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
            if to.is_empty() {
                return Err(format!("the replacement string for {from} is empty: give a text, such as {from}"));
            }
            strings.rename(from, to.as_bytes());
        }
    }
    Ok(strings)
}

fn sources(given: &ParallelOptions, asked: &Asked) -> Result<Sources, String> {
    let delimiter = match (&given.delimiter, given.null) {
        (_, true) => vec![0],
        (Some(text), _) => values::delimiter(text.as_bytes()),
        (None, _) => vec![b'\n'],
    };
    let mut columns = given.colsep.clone();
    // As GNU parallel, which takes one line here, whatever the value says.
    if given.header.is_some() {
        columns.get_or_insert_with(|| "\t".to_owned());
    }
    let columns = match given.csv {
        true => Some(Columns::Csv(csv_separator(given)?)),
        false => {
            let regex = columns.map(|text| regular(&text, |_| {})).transpose();
            regex.map_err(|error| format!("--colsep: {error}"))?.map(Columns::Regex)
        }
    };
    let default_trim = if given.colsep.is_some() && !given.csv { Trim::BOTH } else { Trim::default() };
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
            Origin::Arguments(values) if given.delimiter.is_none() => Stream::Arguments(values.clone().into_iter()),
            Origin::Arguments(values) => Stream::Arguments(split_each(values, &delimiter).into_iter()),
            Origin::File(path) => {
                let input = open(path)?;
                Stream::Records(if given.csv { Records::csv(input) } else { Records::new(input, &delimiter) })
            }
        };
        streams.push((stream, *is_linked));
    }
    let combine = if given.link { Combine::Link } else { Combine::Product };
    Ok(Sources::new(streams, reading, combine))
}

/// Values of the command line, which are records like those of a file.
fn split_each(values: &[Vec<u8>], delimiter: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    for value in values {
        let mut rest = &value[..];
        while let Some(end) = memchr::memmem::find(rest, delimiter).filter(|_| !delimiter.is_empty()) {
            records.push(rest[..end].to_vec());
            rest = &rest[end + delimiter.len()..];
        }
        records.push(rest.to_vec());
    }
    records
}

/// The byte between the columns of `--csv`.
fn csv_separator(given: &ParallelOptions) -> Result<u8, String> {
    match given.colsep.as_ref().map(|text| values::delimiter(text.as_bytes())).as_deref() {
        None => Ok(b','),
        Some([byte]) => Ok(*byte),
        Some(_) => Err(format!("--csv: --colsep must be one byte: {:?}", given.colsep.as_deref().unwrap_or_default())),
    }
}

/// Opens a file of values; `-` is standard input.
fn open(path: &Path) -> Result<Input, String> {
    let is_stdin = path == Path::new("-");
    if is_stdin && std::io::stdin().is_terminal() {
        say("reads values from the terminal until Ctrl-D; or give them: ::: VALUES, or -a FILE");
    }
    let opened: io::Result<OwnedFd> = match is_stdin {
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
        (Some(text), _) if text.is_empty() => None,
        (Some(text), _) => {
            let fill = if has_repeated_words(given) { Fill::Words } else { Fill::Arguments };
            Some(Template::text_filled(&values::tag(text.as_bytes()), strings, fill)?)
        }
        (None, true) => Some(Template::text(b"{}", &Strings::default())?),
        (None, false) => None,
    };
    let results = match given.results.as_ref().map(PathBuf::from) {
        Some(path) if !is_table(&path) => Some(naming(&path, strings, names, shard)?),
        _ => None,
    };
    if given.process_slot_var.as_ref().is_some_and(|name| name.is_empty() || name.as_bytes().contains(&b'=')) {
        return Err("--process-slot-var takes the name of a variable, without '='".to_owned());
    }
    let mut env = vec![
        ("PARALLEL_PID".into(), std::process::id().to_string().into()),
        ("PARALLEL_SSHLOGIN".into(), ":".into()),
        ("PARALLEL_SSHHOST".into(), ":".into()),
    ];
    if let Some(directory) = &given.tmpdir {
        env.push(("TMPDIR".into(), directory.clone().into_os_string()));
    }
    Ok(Maker {
        shell,
        slots,
        total: 0,
        tag: tag.filter(|_| !given.ungroup),
        tries: match &given.retries {
            Some(Retries::OfJob(text)) => Some(template(text.as_bytes())?),
            _ => None,
        },
        directory: given.workdir.as_ref().map(|text| template(text.as_bytes())).transpose()?,
        results,
        shows_command: given.verbose_out > 0 && !given.dry_run,
        slot_variable: given.process_slot_var.clone(),
        env,
        is_dry: given.dry_run,
        shard,
    })
}

pub(super) fn is_table(path: &Path) -> bool {
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
    shown: &Arc<AtomicUsize>,
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
            let table = Table::open(&path, &host, names, given.line_buffer);
            match table.map_err(|error| format!("--results: cannot open {}: {error}", path.display()))? {
                Some(table) => Ok(Box::new(table)),
                None => Ok(standard(shown)),
            }
        }
        None => Ok(standard(shown)),
    }
}

fn standard(shown: &Arc<AtomicUsize>) -> Box<dyn Sink> {
    let is_beside = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    match is_beside {
        true => Box::new(OutputAboveProgress { sink: Standard::new(), shown: Arc::clone(shown), has_more: false }),
        false => Box::new(Standard::new()),
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

/// `-l` or `-L`.
fn max_lines(given: &ParallelOptions) -> Result<Option<u64>, String> {
    let Some(text) = &given.max_lines else { return Ok(given.lines) };
    let lines = values::size(&text.to_string_lossy()).map_err(|error| format!("-l: {error}"))?;
    Ok(Some(lines.max(1)))
}

/// Whether a word with a replacement string is repeated for each value: by `-X`, which `-N` implies, and `-L` without `-m` and
/// `--xargs`.
fn has_repeated_words(given: &ParallelOptions) -> bool {
    let by_lines = given.lines.is_some() && !given.multiple && !given.xargs;
    let implied = given.max_replace_args.is_some() || by_lines;
    given.context || implied
}

/// What fits in a job.
fn limits(given: &ParallelOptions) -> Result<(PackLimits, Fill), String> {
    let rows = given.max_args.or(given.max_replace_args).or(max_lines(given)?);
    let fills = given.context || given.multiple || given.xargs;
    let most_rows = match rows {
        Some(rows) => (rows as usize).max(1),
        None if fills => usize::MAX,
        None => 1,
    };
    let longest = match most_rows == 1 && !fills {
        // A line that is too long is launched: its job fails, and not the run.
        true => LONGEST,
        false => LONGEST.min(crate::xargs::Limits::now().with_pointers()),
    };
    let limits = PackLimits {
        rows: most_rows,
        drops_values: rows == Some(0),
        fills,
        spreads: given.context || given.multiple,
        length: given.max_chars.map_or(longest, |size| (size as usize).min(longest)),
    };
    // Words without a value would vanish.
    let repeats = has_repeated_words(given) && !limits.drops_values;
    Ok((limits, if repeats { Fill::Words } else { Fill::Arguments }))
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
) -> Result<Lines, String> {
    let (limits, fill) = limits(given)?;
    let language = maker.shell.language;
    // Without a command, the value is the command.
    let appends = !given.tee || asked.command.is_empty();
    let template = Template::parse(&asked.command, strings, fill, given.quote, appends, language)?;
    let packer = RowPacker::new(sources, limits);
    let mut lines = Lines {
        template,
        maker,
        taken: 0,
        total: None,
        supply: again.map_or_else(|| Supply::Packed(Box::new(packer)), Supply::Again),
    };
    let is_relative = halt.is_some_and(|halt| matches!(halt.limit, Limit::Percent(_)));
    let shows_rest = (given.bar || given.eta) && given.total_jobs.is_none();
    if given.shuf || is_relative || shows_rest || lines.template.has_total() {
        lines.read_all(given.shuf).map_err(|error| error.to_string())?;
    }
    Ok(lines)
}

/// Takes the input of `--tee` out of the sources of values: standard input, or the file of `--pipe-part`.
fn tee_input(given: &ParallelOptions, asked: &mut Asked) -> Result<PathBuf, String> {
    let refused = [
        ("--retries", given.retries.as_ref().is_some_and(Retries::is_any)),
        ("--cat", given.cat),
        ("--fifo", given.fifo),
        ("--round-robin", given.round_robin),
        ("--header", given.header.is_some()),
    ];
    if let Some((name, _)) = refused.iter().find(|(_, is_given)| *is_given) {
        return Err(format!("--tee: not with {name}"));
    }
    let is_input = |source: &Given| source.origin == Origin::File("-".into());
    let place = if given.pipe_part { 0 } else { asked.sources.iter().position(is_input).unwrap_or(usize::MAX) };
    let input = match (place < asked.sources.len()).then(|| asked.sources.remove(place).origin) {
        Some(Origin::File(path)) => path,
        None => PathBuf::from("-"),
        Some(Origin::Arguments(_)) => return Err("--tee: --pipe-part needs a file (-a)".to_owned()),
    };
    match asked.sources.is_empty() || asked.sources.iter().any(is_input) {
        true => Err("--tee: needs values, one for each job: ::: VALUES".to_owned()),
        false => Ok(input),
    }
}

/// The jobs of `--tee`.
fn tee(input: Option<PathBuf>, mut lines: Lines, options: &Options) -> Result<Box<dyn JobSource>, String> {
    lines.read_all(false).map_err(|error| error.to_string())?;
    let tape = tempfile::tempfile_in(&options.temporary);
    let tape = tape.map_err(|error| {
        format!("--tee: cannot create a temporary file in {}: {error}", options.temporary.display())
    })?;
    Ok(Box::new(Tee::new(lines, open(&input.unwrap_or_else(|| "-".into()))?, tape)))
}

/// Jobs, and the files that some of them read their blocks from.
type WithFiles = (Box<dyn JobSource>, Option<Rc<Files>>);

/// The jobs for blocks.
fn blocks(
    given: &ParallelOptions,
    asked: &Asked,
    strings: &Strings,
    maker: Maker,
    shard: Option<Shard>,
    slots: usize,
) -> Result<WithFiles, String> {
    if shard.is_some() {
        return Err("--shard: not with --pipe".to_owned());
    }
    if asked.command.is_empty() {
        return Err("--pipe: needs a command that reads the blocks, such as cat".to_owned());
    }
    let round = given.round_robin.then(|| round(given, slots)).transpose()?;
    let path = match &asked.sources[..] {
        [Given { origin: Origin::File(path), .. }] => path,
        _ => return Err("--pipe: takes one input, and no values".to_owned()),
    };
    let language = maker.shell.language;
    let template = Template::parse(&asked.command, strings, Fill::Arguments, given.quote, false, language)?;
    let text = |text: &Option<std::ffi::OsString>| text.as_ref().map(|text| values::delimiter(text.as_bytes()));
    let borders = match given.csv && given.recend.is_none() && given.recstart.is_none() {
        true => Borders::Csv,
        false => Borders::new(text(&given.recend), text(&given.recstart), given.regexp)?,
    };
    let size = block_size(given, path, slots)?.max(1) as usize;
    let mut blocks = Blocks::new(open(path)?, borders, size, template, maker);
    blocks.records = given.max_replace_args.or(given.max_args).map(|count| count.max(1) as usize);
    blocks.lines = max_lines(given)?.unwrap_or(1).max(1) as usize;
    blocks.heading = Heading::new(given.header.as_deref())?;
    blocks.removes = given.remove_rec_sep;
    blocks.skips_blank = given.no_run_if_empty;
    blocks.is_part = given.pipe_part;
    blocks.patience = given.block_timeout;
    if blocks.patience.is_some_and(|time| time < Duration::from_secs(1)) {
        return Err("--block-timeout: must be at least 1 second".to_owned());
    }
    blocks.round = round;
    let mut files = None;
    if given.cat || given.fifo {
        let parent = given.tmpdir.clone().unwrap_or_else(std::env::temp_dir);
        let made = Files::new(&parent, given.fifo);
        let made =
            made.map_err(|error| format!("cannot create a temporary directory in {}: {error}", parent.display()))?;
        files = Some(Rc::new(made));
        blocks.files = files.clone();
    }
    Ok((Box::new(blocks), files))
}

/// The size of the blocks of a file.
fn block_size(given: &ParallelOptions, path: &Path, slots: usize) -> Result<u64, String> {
    let count = match given.block {
        // As GNU parallel: ten blocks for each slot.
        None if given.pipe_part && fs::metadata(path).is_ok_and(|file| file.is_file()) => 10,
        None | Some(BlockSize::Bytes(0)) => return Ok(1 << 20),
        Some(BlockSize::Bytes(size)) => return Ok(size),
        Some(BlockSize::PerSlot(count)) => count,
    };
    if !given.pipe_part {
        return Err(format!("--block -{count}: needs --pipe-part -a FILE, because a pipe has no length to divide"));
    }
    match fs::metadata(path) {
        // As GNU parallel.
        Ok(file) if file.is_file() => Ok(1 + file.len() / count.saturating_mul(slots as u64).max(1)),
        Ok(_) => Err(format!("--block -{count}: {} is no regular file, so it has no length to divide", path.display())),
        Err(error) => Err(format!("--block -{count}: {}: {error}", path.display())),
    }
}

/// `--round-robin`. The blocks that a job has got are gone, so it cannot run again.
fn round(given: &ParallelOptions, slots: usize) -> Result<Round, String> {
    let refused = [
        ("--retries", given.retries.as_ref().is_some_and(Retries::is_any)),
        ("--resume", given.resume || given.resume_failed || given.retry_failed),
        ("--cat", given.cat),
        ("--fifo", given.fifo),
        ("--pipe-part", given.pipe_part),
    ];
    match refused.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(format!("--round-robin: not with {name}")),
        None => Ok(Round::new(slots, given.keep_order)),
    }
}
