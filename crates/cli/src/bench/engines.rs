//! Contestants in other languages: programs of their own that time themselves. `bench/engines/README.md` has the protocol.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use forkless::{Child, ChildStdin, ChildStdout, Command, Stdio};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::{
    alive::{Crowd, Exit, Memory},
    contestants::{Contestant, Job, Launcher},
    program::Program,
    race::Goal,
    settings::Feature,
    statistics::{Sample, Series},
};

/// The first words of a greeting.
const GREETING: &str = "forkless-engine 1 ";
/// How long an engine may be silent, beyond the time it was given: to write to a lot of memory, to fork a large process.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a turn of an engine lasts, about. It sleeps between its turns, so they are longer than those of the others,
/// and come as much less often.
const TURN: Duration = Duration::from_millis(8);

/// The engine of a contestant, as it is carried in this program.
struct Source {
    contestant: Contestant,
    file: &'static str,
    text: &'static str,
    /// How to make a program of it, if that must be done.
    build: Option<&'static [&'static str]>,
    /// The words that run it.
    run: &'static [&'static str],
}

const SOURCES: [Source; 3] = [
    Source {
        contestant: Contestant::Go,
        file: "engine.go",
        text: include_str!("../../../../bench/engines/go/main.go"),
        build: Some(&["go", "build", "-o", "engine-go", "engine.go"]),
        run: &["./engine-go"],
    },
    Source {
        contestant: Contestant::CPython,
        file: "engine.py",
        text: include_str!("../../../../bench/engines/cpython/engine.py"),
        build: None,
        run: &["python3", "-I", "engine.py"],
    },
    Source {
        contestant: Contestant::Libuv,
        file: "engine.c",
        text: include_str!("../../../../bench/engines/libuv/engine.c"),
        build: Some(&["cc", "-O2", "-o", "engine-libuv", "engine.c", "-luv"]),
        run: &["./engine-libuv"],
    },
];

/// The engines that can run here, with what they said of themselves.
pub(crate) struct Engines {
    found: Vec<Found>,
    /// Those that cannot, and why.
    pub(crate) missing: Vec<(Contestant, String)>,
    /// Large ones that have nothing to do, kept for the next condition with as large a parent.
    idle: Mutex<Vec<(Kind, Process)>>,
    /// Where they are; removed in the end.
    directory: Option<tempfile::TempDir>,
}

/// What an engine is for all its life.
#[derive(PartialEq, Eq)]
struct Kind {
    contestant: Contestant,
    program: Vec<OsString>,
    parent_mib: u64,
}

struct Found {
    source: &'static Source,
    version: String,
    can: Vec<Feature>,
}

impl Engines {
    /// None takes part.
    pub(crate) fn none() -> Self {
        Self { found: Vec::new(), missing: Vec::new(), idle: Mutex::default(), directory: None }
    }

    /// Builds those of `contestants` that are engines and asks them who they are.
    ///
    /// # Errors
    /// When there is no place for their files. One that cannot be built or run is missing, not an error.
    pub(crate) fn find(contestants: &[Contestant]) -> Result<Self> {
        let wanted: Vec<_> = SOURCES.iter().filter(|source| contestants.contains(&source.contestant)).collect();
        if wanted.is_empty() {
            return Ok(Self::none());
        }
        let directory = tempfile::Builder::new().prefix("forkless-engines-").tempdir().context("no temporary files")?;
        let mut engines = Self { directory: Some(directory), ..Self::none() };
        for source in wanted {
            match engines.make(source) {
                Ok(found) => engines.found.push(found),
                Err(error) => engines.missing.push((source.contestant, why_missing(&error))),
            }
        }
        Ok(engines)
    }

    fn directory(&self) -> PathBuf {
        self.directory.as_ref().map_or_else(PathBuf::new, |directory| directory.path().to_owned())
    }

    fn make(&self, source: &'static Source) -> Result<Found> {
        let directory = self.directory();
        fs::write(directory.join(source.file), source.text)?;
        if let Some([name, args @ ..]) = source.build {
            let mut build = Command::new(name);
            // As it comes, without modules and without fetching another toolchain.
            build.env("GO111MODULE", "off").env("GOTOOLCHAIN", "local").env("GOFLAGS", "").env("CGO_ENABLED", "0");
            let output = build.args(args).current_dir(&directory).output()?;
            let words = String::from_utf8_lossy(&output.stderr);
            let why = words.lines().find(|line| line.contains("error")).or(words.lines().next()).unwrap_or_default();
            ensure!(output.status.success(), "not built: {why}");
        }
        let (_, greeting) = Process::start(source, &directory, &["/bin/true".into()])?;
        let mut words = greeting.split_whitespace();
        let version = words.next().context("it did not tell its version")?.to_owned();
        let can = words.filter_map(|word| Feature::ALL.into_iter().find(|feature| feature.name() == word)).collect();
        Ok(Found { source, version, can })
    }

    fn get(&self, contestant: Contestant) -> Option<&Found> {
        self.found.iter().find(|found| found.source.contestant == contestant)
    }

    /// Whether the contestant can run.
    pub(crate) fn has(&self, contestant: Contestant) -> bool {
        self.get(contestant).is_some()
    }

    /// Number of those that run.
    pub(crate) fn count(&self) -> u64 {
        self.found.len() as u64
    }

    /// The settings that the contestant can give a child.
    pub(crate) fn can(&self, contestant: Contestant) -> &[Feature] {
        self.get(contestant).map_or(&[], |found| &found.can)
    }

    /// Versions of all that were looked for; none where it cannot run.
    pub(crate) fn versions(&self) -> Vec<(&'static str, Option<String>)> {
        let found = self.found.iter().map(|f| (f.source.contestant.name(), Some(f.version.clone())));
        found.chain(self.missing.iter().map(|(contestant, _)| (contestant.name(), None))).collect()
    }

    /// Starts the contestant's engine, or takes one that is idle, and brings it into the condition.
    ///
    /// # Errors
    /// When it does not run, or not do what it is told.
    pub(crate) fn start(&self, contestant: Contestant, job: &Job) -> Result<Engine<'_>> {
        let found = self.get(contestant).context("not installed")?;
        let mut program = vec![job.program.path.clone().into_os_string()];
        program.extend(job.program.args.iter().cloned());
        let kind = Kind { contestant, program, parent_mib: job.parent_mib };
        let mut process = match self.take_idle(&kind) {
            Some(process) => process,
            None => self.start_process(found, &kind)?,
        };
        process.ask("plain", PATIENCE)?;
        for request in requests(job, &found.can) {
            process.ask(&request, PATIENCE)?;
        }
        Ok(Engine { process: Some(process), home: Some((self, kind)) })
    }

    fn start_process(&self, found: &Found, kind: &Kind) -> Result<Process> {
        let (mut process, _) = Process::start(found.source, &self.directory(), &kind.program)?;
        if kind.parent_mib > 0 {
            process.ask(&format!("memory {}", kind.parent_mib), PATIENCE)?;
        }
        Ok(process)
    }

    fn take_idle(&self, kind: &Kind) -> Option<Process> {
        let mut idle = self.idle.lock().ok()?;
        let at = idle.iter().position(|(other, _)| other == kind)?;
        Some(idle.swap_remove(at).1)
    }

    /// Ends those that are idle, but for those with so much memory.
    pub(crate) fn keep_only(&self, parent_mib: u64) {
        if let Ok(mut idle) = self.idle.lock() {
            idle.retain(|(kind, _)| kind.parent_mib == parent_mib);
        }
    }
}

impl Engines {
    /// Starts the contestant's engine to have many children alive.
    ///
    /// # Errors
    /// When it does not run.
    pub(crate) fn start_alive(&self, contestant: Contestant, program: &Program) -> Result<Engine<'_>> {
        let found = self.get(contestant).context("not installed")?;
        let (process, _) = Process::start(found.source, &self.directory(), &[program.path.clone().into()])?;
        Ok(Engine { process: Some(process), home: None })
    }
}

/// What to say of an engine that cannot run.
fn why_missing(error: &anyhow::Error) -> String {
    let absent = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::NotFound;
    match error.chain().any(|cause| cause.downcast_ref().is_some_and(absent)) {
        true => "not installed".to_owned(),
        false => format!("{error:#}"),
    }
}

/// The settings that the engine can do, in words of the protocol.
fn requests(job: &Job, can: &[Feature]) -> Vec<String> {
    let mut requests = Vec::new();
    let mut request = |feature, words: Option<String>| requests.extend(words.filter(|_| can.contains(&feature)));
    request(Feature::Ids, job.wishes.id.map(|id| format!("ids {id} {id}")));
    let map = job.wishes.map.map(|map| {
        let setgroups = if map.deny_setgroups { "deny" } else { "allow" };
        format!("user-namespace {} {} {} {} {setgroups}", map.inside, map.uid, map.gid, map.count)
    });
    request(Feature::UserNamespace, map);
    request(Feature::Cgroup, job.wishes.cgroup.as_ref().map(|(_, path)| format!("cgroup {}", path.display())));
    requests
}

/// An engine that waits for requests. Ends when dropped.
struct Process {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Process {
    /// Starts it; returns its greeting as well, without the words that all have.
    fn start(source: &Source, directory: &Path, program: &[std::ffi::OsString]) -> Result<(Self, String)> {
        let [name, args @ ..] = source.run else { bail!("nothing to run") };
        let args = args.iter().map(|arg| if *arg == source.file { directory.join(arg) } else { arg.into() });
        let mut command = match name.strip_prefix("./") {
            Some(file) => Command::new(directory.join(file)),
            None => Command::new(name),
        };
        // In a process group of its own: Ctrl-C is for us, and the engine ends when we are gone.
        command.args(args).args(program).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("no pipe")?);
        let mut process = Self { child, requests, answers };
        let greeting = process.line(PATIENCE)?;
        let rest = greeting.strip_prefix(GREETING).with_context(|| format!("its greeting was {greeting:?}"))?;
        let rest = rest.to_owned();
        Ok((process, rest))
    }

    /// Makes a request and returns the answer without its first word.
    fn ask(&mut self, request: &str, limit: Duration) -> Result<String> {
        let requests = self.requests.as_mut().context("no pipe")?;
        requests.write_all(format!("{request}\n").as_bytes()).with_context(|| format!("request {request:?}"))?;
        let answer = self.line(limit).with_context(|| format!("request {request:?}"))?;
        match answer.split_once(' ').unwrap_or((&answer, "")) {
            ("ok" | "done", rest) => Ok(rest.to_owned()),
            ("failed", words) => bail!("{words}"),
            _ => bail!("request {request:?}: it answered {answer:?}"),
        }
    }

    /// One line, without its end.
    fn line(&mut self, limit: Duration) -> Result<String> {
        let end = Instant::now() + limit;
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            if self.answers.buffer().is_empty() {
                self.wait_for_answer(end)?;
            }
            let buffer = self.answers.fill_buf()?;
            ensure!(!buffer.is_empty(), "it ended");
            let length = buffer.iter().position(|&byte| byte == b'\n').map_or(buffer.len(), |newline| newline + 1);
            line.extend_from_slice(&buffer[..length]);
            self.answers.consume(length);
        }
        line.pop();
        Ok(String::from_utf8(line)?)
    }

    fn wait_for_answer(&self, end: Instant) -> Result<()> {
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            ensure!(!rest.is_zero(), "it does not answer");
            let mut files = [PollFd::new(self.answers.get_ref(), PollFlags::IN)];
            match rustix::event::poll(&mut files, Some(&Timespec::try_from(rest)?)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => bail!(error),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.requests.take());
        // It ends at the end of its input; if it does not, it is in a turn that nobody waits for.
        if !matches!(self.child.wait_timeout(Duration::from_secs(2)), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// An engine as a contestant.
pub(crate) struct Engine<'e> {
    /// None once it has failed: it ends then.
    process: Option<Process>,
    /// Where it goes when it has nothing more to do, and what it is.
    home: Option<(&'e Engines, Kind)>,
}

impl Engine<'_> {
    fn ask(&mut self, request: &str, limit: Duration) -> Result<String> {
        let answer = self.process.as_mut().context("it has failed before")?.ask(request, limit);
        if answer.is_err() {
            self.process = None;
        }
        answer
    }
}

impl Drop for Engine<'_> {
    fn drop(&mut self) {
        // A small one is started anew in less time than it takes to think about it.
        if let (Some(process), Some((engines, kind))) = (self.process.take(), self.home.take())
            && kind.parent_mib > 0
            && let Ok(mut idle) = engines.idle.lock()
        {
            idle.push((kind, process));
        }
    }
}

impl Launcher for Engine<'_> {
    fn launch(&mut self) -> Result<Sample> {
        let mut series = Series::default();
        self.turn(&Goal { time: Duration::ZERO, fewest: 1, most: 1 }, &mut series)?;
        series.last().context("it launched nothing")
    }

    fn turn(&mut self, goal: &Goal, series: &mut Series) -> Result<()> {
        let request = format!("turn {} {} {}", goal.time.as_nanos(), goal.fewest, goal.most);
        let answer = self.ask(&request, goal.time + PATIENCE)?;
        let figures: Vec<u64> = answer.split(' ').map(str::parse).collect::<Result<_, _>>().context("its figures")?;
        let [wall, cpu, samples @ ..] = &figures[..] else { bail!("it answered {answer:?}") };
        let count = samples.len() / 2;
        ensure!(
            samples.len() % 2 == 0 && (goal.fewest.min(goal.most)..=goal.most).contains(&count),
            "{count} launches"
        );
        // Launches are made one after the other, so their times cannot be more than the time of all.
        let total: u64 = samples.iter().skip(1).step_by(2).sum();
        ensure!(total <= *wall, "{total} ns in {wall} ns");
        for pair in samples.chunks_exact(2) {
            ensure!(0 < pair[0] && pair[0] <= pair[1], "held {} of {} ns", pair[0], pair[1]);
            series.push(Sample { held_ns: pair[0], total_ns: pair[1] });
        }
        series.wall += Duration::from_nanos(*wall);
        series.cpu += Duration::from_nanos(*cpu);
        Ok(())
    }

    fn least_turn(&self) -> Duration {
        TURN
    }
}

impl Crowd for Engine<'_> {
    fn resize(&mut self, count: usize) -> Result<()> {
        self.ask(&format!("alive {count}"), PATIENCE).map(drop)
    }

    fn exits(&mut self, count: usize) -> Result<Vec<Exit>> {
        let answer = self.ask(&format!("exits {count}"), PATIENCE)?;
        let figures: Vec<u64> = answer.split(' ').map(str::parse).collect::<Result<_, _>>().context("its figures")?;
        ensure!(figures.len() == 2 * count, "{} figures of {count} exits", figures.len());
        Ok(figures.chunks_exact(2).map(|pair| Exit { cpu_ns: pair[0], latency_ns: pair[1] }).collect())
    }

    fn memory(&self) -> Result<Memory> {
        Memory::of(&self.process.as_ref().context("it has failed before")?.child.id().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::settings::Wishes, *};

    /// Every engine that can run here: its greeting, its figures, its complaints.
    #[test]
    fn engines_launch_and_tell_failures() {
        let engines = Engines::find(&Contestant::ALL).expect("temporary directory");
        engines.missing.iter().for_each(|(c, why)| eprintln!("SKIPPED: engine {}, because {why}", c.name()));
        let program = Program::embedded().expect("temporary directory");
        let failing = Program::from_words(&["sh".into(), "-c".into(), "exit 3".into()]).expect("sh");
        let (missing, none) = (Program::missing(), Wishes::none());
        for found in &engines.found {
            let contestant = found.source.contestant;
            let job =
                |program| Job { program, pipes: 0, output: 0, parent_mib: 2, wishes: &none, engines: Some(&engines) };
            assert!(found.version.starts_with(|c: char| c.is_ascii_digit()), "{}", found.version);
            assert!(!found.can.is_empty());
            let mut series = Series::default();
            let mut engine = engines.start(contestant, &job(&program)).expect("starts");
            engine.turn(&Goal { time: Duration::ZERO, fewest: 3, most: 10 }, &mut series).expect("launches");
            assert_eq!(series.len(), 3);
            engine.turn(&Goal { time: Duration::from_secs(60), fewest: 1, most: 7 }, &mut series).expect("launches");
            assert_eq!(series.len(), 10);
            assert!(series.wall > Duration::ZERO && series.cpu > Duration::ZERO);
            let mut engine = engines.start(contestant, &job(&failing)).expect("starts");
            let error = engine.launch().expect_err("exit 3");
            assert!(format!("{error:#}").contains('3'), "{error:#}");
            assert!(engines.start(contestant, &job(&missing)).and_then(|mut e| e.launch()).is_err());
            let mut engine = engines.start(contestant, &job(&program)).expect("starts");
            assert!(engine.ask("nonsense", PATIENCE).is_err());
        }
    }

    /// The memory that an engine is asked for is in it, touched.
    #[test]
    fn engines_have_their_memory() {
        let engines = Engines::find(&Contestant::ALL).expect("temporary directory");
        let (program, none) = (Program::embedded().expect("temporary directory"), Wishes::none());
        for found in &engines.found {
            let job =
                Job { program: &program, pipes: 0, output: 0, parent_mib: 64, wishes: &none, engines: Some(&engines) };
            let engine = engines.start(found.source.contestant, &job).expect("starts");
            let bytes = Memory::of(&pid(&engine).to_string()).expect("alive").resident();
            assert!(bytes >= 64 << 20, "{} has {bytes} bytes", found.source.contestant.name());
        }
    }

    fn pid(engine: &Engine) -> u32 {
        engine.process.as_ref().expect("it has not failed").child.id()
    }

    /// A large engine stays for the next condition, and forgets the settings of the one before; one that has failed does not.
    #[test]
    fn large_engines_are_kept() {
        let engines = Engines::find(&Contestant::ALL).expect("temporary directory");
        // It fails as another user, if it may be launched as one at all.
        let me = rustix::process::getuid().as_raw();
        let script = format!("[ $(id -u) = {me} ]");
        let program = Program::from_words(&["sh".into(), "-c".into(), script.into()]).expect("sh");
        let (none, mut other) = (Wishes::none(), Wishes::none());
        other.id = Some(me + 1);
        for contestant in engines.found.iter().map(|found| found.source.contestant) {
            let job = |parent_mib, wishes| Job {
                program: &program,
                pipes: 0,
                output: 0,
                parent_mib,
                wishes,
                engines: Some(&engines),
            };
            let start = |parent_mib, wishes| engines.start(contestant, &job(parent_mib, wishes)).expect("starts");
            let first = pid(&start(2, &none));
            assert_ne!(pid(&start(1, &none)), first);
            drop(start(2, &other));
            let mut again = start(2, &none);
            assert_eq!(pid(&again), first, "{}", contestant.name());
            again.launch().unwrap_or_else(|e| panic!("{} has not forgotten its settings: {e:#}", contestant.name()));
            drop(again);
            assert!(start(2, &other).launch().is_err(), "{}", contestant.name());
            assert_ne!(pid(&start(2, &none)), first);
            engines.keep_only(1);
            assert_eq!(engines.idle.lock().expect("no panic").len(), 1);
            engines.keep_only(0);
        }
    }
}
