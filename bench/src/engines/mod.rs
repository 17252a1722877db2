//! Engines: methods that run in separate processes and time themselves. These are programs in other languages and, under some
//! conditions, this program. `engines/README.md` describes the protocol.

mod sources;
mod process;
mod parent;

mod count;

use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use forkless::Command;

pub(crate) use process::{ANSWERS, GREETING, REQUESTS};

use self::process::Process;
use self::sources::{EngineSource, PRELOAD, SOURCES};
use super::budget::Goal;
use super::budget::TURN;
use super::condition::Condition;
use super::contestant::Contestant;
use super::crowd::{Crowd, Exit, Memory};
use super::launcher::{Job, Launcher};
use super::program::Program;
use super::setting::Feature;
use super::statistics::{Sample, Series};

/// Timeout of an answer, in addition to the measured time: filling much memory or forking a large process takes long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Size of each variable that is added to the environment, in bytes, with its name and its pointer.
const VARIABLE: u64 = 1 << 10;

/// The engines that can run here, with their greetings.
pub(crate) struct Engines {
    found: Vec<Found>,
    /// Engines that cannot run, with the reason.
    missing: Vec<(Contestant, String)>,
    /// Idle large engines, kept for the next condition with a parent of the same size.
    idle: Mutex<Vec<(EngineKind, Process)>>,
    /// The library that gives engines open files and mappings, or why it cannot be built.
    parent: OnceLock<Result<PathBuf, String>>,
    /// Inherited descriptors, which engines inherit, too.
    given: Vec<i32>,
    /// The directory of the engines, removed on drop.
    directory: Option<tempfile::TempDir>,
}

/// The properties of an engine that never change.
#[derive(PartialEq, Eq)]
struct EngineKind {
    contestant: Contestant,
    program: Vec<OsString>,
    parent_mib: u64,
    environment: u64,
    path_misses: u64,
}

impl EngineKind {
    fn new(contestant: Contestant, job: &Job) -> Self {
        let Condition { parent_mib, environment, path_misses, .. } = job.condition;
        let path = job.program.path.as_os_str();
        // Only the name, if the engine searches in PATH.
        let name = if path_misses > 0 { job.program.path.file_name().unwrap_or(path) } else { path };
        let program = [name.to_owned()].into_iter().chain(job.program.args.iter().cloned()).collect();
        Self { contestant, program, parent_mib, environment, path_misses }
    }
}

struct Found {
    source: &'static EngineSource,
    version: String,
    can: Vec<Feature>,
    /// Whether it launches from several threads.
    has_threads: bool,
    /// Whether it opens files and creates mappings by itself.
    has_parent: bool,
    /// The running executable, which may differ from the started one.
    program: PathBuf,
}

impl Engines {
    /// No engines.
    pub(crate) fn none() -> Self {
        let (idle, parent) = (Mutex::default(), OnceLock::new());
        Self { found: Vec::new(), missing: Vec::new(), idle, parent, given: Vec::new(), directory: None }
    }

    /// Builds the engines of `contestants` and reads their greetings. `preload`: the path of libforkless_preload.so, if given.
    ///
    /// # Errors
    /// If the temporary directory cannot be created. An engine that cannot be built or run is missing, which is not an error.
    pub(crate) fn find(contestants: &[Contestant], preload: Option<&Path>) -> Result<Self> {
        let wanted: Vec<_> = SOURCES.iter().filter(|source| contestants.contains(&source.contestant)).collect();
        let directory = tempfile::Builder::new()
            .prefix("forkless-engines-")
            .tempdir()
            .context("cannot create a temporary directory")?;
        let mut engines = Self { directory: Some(directory), given: parent::inheritable()?, ..Self::none() };
        // In parallel: compilers and interpreters are slow to start.
        let made: Vec<(Contestant, Result<Found>)> = std::thread::scope(|scope| {
            let engines = &engines;
            let make =
                |source: &'static EngineSource| (source.contestant, scope.spawn(move || engines.make(source, preload)));
            let makers: Vec<_> = wanted.into_iter().map(make).collect();
            makers.into_iter().map(|(contestant, maker)| (contestant, maker.join().expect("no maker panics"))).collect()
        });
        for (contestant, answer) in made {
            match answer {
                Ok(found) => engines.found.push(found),
                Err(error) => engines.missing.push((contestant, why_missing(&error))),
            }
        }
        Ok(engines)
    }

    fn directory(&self) -> PathBuf {
        self.directory.as_ref().map_or_else(PathBuf::new, |directory| directory.path().to_owned())
    }

    fn make(&self, source: &'static EngineSource, preload: Option<&Path>) -> Result<Found> {
        // A separate file for each, since they are built concurrently.
        let directory = self.directory().join(source.contestant.name());
        fs::create_dir(&directory)?;
        match (source.is_preloaded(), preload) {
            (true, None) => bail!("libforkless_preload.so is not given (--preload)"),
            // Use a name without spaces and colons, which separate names in LD_PRELOAD.
            (true, Some(library)) => symlink(fs::canonicalize(library)?, directory.join(PRELOAD))?,
            (false, _) => fs::write(directory.join(source.file), source.text)?,
        }
        if let Some([name, args @ ..]) = source.build {
            let mut build = Command::new(name);
            // Use the installed toolchain, without modules and downloads.
            build.env("GO111MODULE", "off").env("GOTOOLCHAIN", "local").env("GOFLAGS", "").env("CGO_ENABLED", "0");
            let output = build.args(args).current_dir(&directory).output()?;
            let words = String::from_utf8_lossy(&output.stderr);
            let why = words.lines().find(|line| line.contains("error")).or(words.lines().next()).unwrap_or_default();
            ensure!(output.status.success(), "cannot be built: {why}");
        }
        let (process, greeting) = Process::start(self.command(source, &["/bin/true".into()]))?;
        if let (true, Some(library)) = (source.is_preloaded(), preload) {
            let (maps, path) =
                (fs::read_to_string(format!("/proc/{}/maps", process.id()))?, fs::canonicalize(library)?);
            // The loader only prints a warning if it cannot load the library.
            ensure!(
                maps.lines().any(|line| line.ends_with(&*path.to_string_lossy())),
                "libforkless_preload.so was not loaded"
            );
        }
        let mut words = greeting.split_whitespace();
        let version = words.next().context("its greeting has no version")?.to_owned();
        let words: Vec<&str> = words.collect();
        let can = Feature::ALL.into_iter().filter(|feature| words.contains(&feature.name())).collect();
        let (has_threads, has_parent) = (words.contains(&"threads"), words.contains(&"parent"));
        let program = fs::read_link(format!("/proc/{}/exe", process.id()))?;
        Ok(Found { source, version, can, has_threads, has_parent, program })
    }

    fn get(&self, contestant: Contestant) -> Option<&Found> {
        self.found.iter().find(|found| found.source.contestant == contestant)
    }

    /// The missing engines, one line for each reason.
    pub(crate) fn absences(&self) -> Vec<String> {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for (contestant, why) in &self.missing {
            match reasons.iter_mut().find(|(reason, _)| reason == why) {
                Some((_, names)) => names.push(contestant.name()),
                None => reasons.push((why, vec![contestant.name()])),
            }
        }
        reasons.into_iter().map(|(why, names)| format!("no rows of {}: {why}", names.join(", "))).collect()
    }

    /// Whether the method can run.
    pub(crate) fn has(&self, contestant: Contestant) -> bool {
        self.get(contestant).is_some()
    }

    /// The number of engines that are large at the same time.
    pub(crate) fn large(&self) -> u64 {
        self.found.iter().filter(|found| found.source.contestant.does_grow()).count() as u64
    }

    /// Whether the method launches from several threads.
    pub(crate) fn has_threads(&self, contestant: Contestant) -> bool {
        self.get(contestant).is_some_and(|found| found.has_threads)
    }

    /// The settings that the method supports.
    pub(crate) fn can(&self, contestant: Contestant) -> &[Feature] {
        self.get(contestant).map_or(&[], |found| &found.can)
    }

    /// The versions of all selected engines; None for those that cannot run.
    pub(crate) fn versions(&self) -> Vec<(&'static str, Option<String>)> {
        let found = self.found.iter().map(|f| (f.source.contestant.name(), Some(f.version.clone())));
        found.chain(self.missing.iter().map(|(contestant, _)| (contestant.name(), None))).collect()
    }

    /// Starts the engine of a method, or takes an idle one, and applies the condition.
    ///
    /// # Errors
    /// If it does not run or rejects a request.
    pub(crate) fn start(&self, contestant: Contestant, job: &Job) -> Result<Engine<'_>> {
        let found = self.get(contestant).context("not installed")?;
        let kind = EngineKind::new(contestant, job);
        let mut process = match self.take_idle(&kind) {
            Some(process) => process,
            None => {
                let mut command = self.command(found.source, &kind.program);
                self.furnish(&mut command, found, &job.condition)?;
                self.start_process(command, job)?
            }
        };
        process.ask("plain", PATIENCE)?;
        for request in requests(job, &found.can) {
            process.ask(&request, PATIENCE)?;
        }
        if found.has_parent {
            for request in parent::requests(&job.condition) {
                process.ask(&request, PATIENCE)?;
            }
        }
        parent::prove(process.id(), &job.condition, self.given.len())?;
        let threads = job.condition.threads;
        if threads > 1 {
            process.ask(&format!("threads {threads}"), PATIENCE)?;
        }
        Ok(Engine { process: Some(process), home: Some((self, kind)), threads })
    }

    /// Starts this program as an engine for a method that has none.
    ///
    /// # Errors
    /// If it does not run or rejects a request.
    pub(crate) fn serve(&self, contestant: Contestant, job: &Job) -> Result<Engine<'_>> {
        let kind = EngineKind::new(contestant, job);
        let mut command = Command::new("/proc/self/exe");
        command.args(["--serve", contestant.name(), "--"]).args(&kind.program).inherit_all(true);
        let mut process = self.start_process(command, job)?;
        for (word, value) in [("pipes", u64::from(job.condition.pipes)), ("output", job.condition.output)] {
            process.ask(&format!("{word} {value}"), PATIENCE)?;
        }
        Ok(Engine { process: Some(process), home: None, threads: 1 })
    }

    /// The command that runs the engine.
    fn command(&self, source: &EngineSource, program: &[OsString]) -> Command {
        let directory = self.directory().join(source.contestant.name());
        let word = |word: &str| match word.strip_prefix('@') {
            Some(rest) => directory.join(rest.trim_start_matches('/')).into_os_string(),
            None => word.into(),
        };
        let mut words = source.run.iter().map(|text| word(text));
        let mut command = Command::new(words.next().unwrap_or_default());
        // The engine passes its descriptors to its children: the standard streams and other inherited ones.
        command.args(words).args(program).inherit_all(true);
        for (name, value) in source.environment {
            command.env(name, word(value));
        }
        command
    }

    fn start_process(&self, mut command: Command, job: &Job) -> Result<Process> {
        let Condition { parent_mib, environment, path_misses, .. } = job.condition;
        for number in 0..environment / VARIABLE {
            let name = format!("FORKLESS_BENCH_{number}");
            // Count "=", the NUL and the pointer.
            let value = "x".repeat(VARIABLE as usize - name.len() - 2 - size_of::<usize>());
            command.env(name, value);
        }
        if path_misses > 0 {
            command.env("PATH", self.path(path_misses, &job.program.path)?);
        }
        let _small_pages = (parent_mib > 0).then(SmallPages::begin);
        let (mut process, _) = Process::start(command)?;
        if parent_mib > 0 {
            process.ask(&format!("memory {parent_mib}"), PATIENCE)?;
        }
        Ok(process)
    }

    /// A `PATH` with `misses` empty directories, that of the program, and the current `PATH`.
    fn path(&self, misses: u64, program: &Path) -> Result<OsString> {
        let place = self.directory();
        let mut directories: Vec<PathBuf> = (0..misses).map(|number| place.join(format!("miss-{number}"))).collect();
        directories.iter().try_for_each(fs::create_dir_all).context("cannot create directories for PATH")?;
        directories.push(std::path::absolute(program.parent().unwrap_or(Path::new(".")))?);
        let own = env::var_os("PATH").unwrap_or_default();
        directories.extend(env::split_paths(&own));
        Ok(env::join_paths(directories)?)
    }

    fn take_idle(&self, kind: &EngineKind) -> Option<Process> {
        let mut idle = self.idle.lock().ok()?;
        let at = idle.iter().position(|(other, _)| other == kind)?;
        Some(idle.swap_remove(at).1)
    }

    #[cfg(test)]
    pub(crate) fn idle_count(&self) -> usize {
        self.idle.lock().expect("no panic").len()
    }

    /// Ends idle engines, except those with this amount of memory.
    pub(crate) fn keep_only(&self, parent_mib: u64) {
        if let Ok(mut idle) = self.idle.lock() {
            idle.retain(|(kind, _)| kind.parent_mib == parent_mib);
        }
    }
}

impl Engines {
    /// Starts the engine of a method for the part with many children alive.
    ///
    /// # Errors
    /// If it does not run.
    pub(crate) fn start_alive(&self, contestant: Contestant, program: &Program) -> Result<Engine<'_>> {
        let found = self.get(contestant).context("not installed")?;
        let (process, _) = Process::start(self.command(found.source, &[program.path.clone().into()]))?;
        Ok(Engine { process: Some(process), home: None, threads: 1 })
    }
}

/// The reason why an engine cannot run, as text.
fn why_missing(error: &anyhow::Error) -> String {
    let absent = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::NotFound;
    match error.chain().any(|cause| cause.downcast_ref().is_some_and(absent)) {
        true => "not installed".to_owned(),
        false => format!("{error:#}"),
    }
}

/// The requests for the settings, in the protocol of engines.
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
    if let Some((limits, filter)) = job.wishes.restrictions() {
        let limits: String = limits.map(|(resource, value)| format!(" {resource}={value}")).collect();
        request(Feature::Limits, Some(format!("limits{limits}")));
        request(Feature::NoNewPrivs, Some("no-new-privs".to_owned()));
        let digits: String = filter.iter().map(|byte| format!("{byte:02x}")).collect();
        request(Feature::Seccomp, Some(format!("seccomp {digits}")));
    }
    requests
}

/// While this value exists, started processes use no huge pages, so that their page tables are as large as those of a grown heap.
struct SmallPages;

impl SmallPages {
    fn begin() -> Self {
        Self::set(true);
        Self
    }

    /// Kernels without huge pages return an error, which is harmless.
    fn set(on: bool) {
        let _ = rustix::thread::disable_transparent_huge_pages(on);
    }
}

impl Drop for SmallPages {
    fn drop(&mut self) {
        Self::set(false);
    }
}

/// A running engine as a method.
pub(crate) struct Engine<'e> {
    /// None after a failure, which ends the engine.
    process: Option<Process>,
    /// The list of idle engines to which it returns, and its properties.
    home: Option<(&'e Engines, EngineKind)>,
    /// Number of threads that launch concurrently.
    threads: usize,
}

impl Engine<'_> {
    fn ask(&mut self, request: &str, limit: Duration) -> Result<String> {
        let answer = self.process.as_mut().context("the engine has failed before")?.ask(request, limit);
        if answer.is_err() {
            self.process = None;
        }
        answer
    }
}

impl Drop for Engine<'_> {
    fn drop(&mut self) {
        // Only large engines are worth keeping: a small one starts quickly.
        let (Some(process), Some((engines, kind))) = (self.process.take(), self.home.take()) else { return };
        if kind.parent_mib == 0 {
            return;
        }
        if let Ok(mut idle) = engines.idle.lock() {
            idle.push((kind, process));
        }
    }
}

impl Launcher for Engine<'_> {
    fn launch(&mut self) -> Result<Sample> {
        let mut series = Series::default();
        self.turn(&Goal { time: Duration::ZERO, fewest: 1, most: 1 }, &mut series)?;
        series.last().context("the engine made no launch")
    }

    fn turn(&mut self, goal: &Goal, series: &mut Series) -> Result<()> {
        let request = format!("turn {} {} {}", goal.time.as_nanos(), goal.fewest, goal.most);
        let answer = self.ask(&request, goal.time + PATIENCE)?;
        let numbers = |text: &str| -> Result<Vec<u64>> {
            text.split_ascii_whitespace().map(|word| word.parse().context("its figures")).collect()
        };
        let runs: Vec<Vec<u64>> = answer.split('|').map(numbers).collect::<Result<_>>()?;
        ensure!(runs.len() == self.threads, "the engine reported launches of {} threads", runs.len());
        let [wall, cpu, ..] = runs[0][..] else { bail!("the engine answered {answer:?}") };
        for (thread, run) in runs.iter().enumerate() {
            let samples = if thread == 0 { &run[2..] } else { &run[..] };
            add_run(samples, wall, goal, series)?;
        }
        series.wall += Duration::from_nanos(wall);
        series.cpu += Duration::from_nanos(cpu);
        Ok(())
    }

    fn least_turn(&self) -> Duration {
        TURN
    }
}

/// Adds the launches of one thread, given as alternating held and total times.
fn add_run(samples: &[u64], wall: u64, goal: &Goal, series: &mut Series) -> Result<()> {
    let count = samples.len() / 2;
    ensure!(
        samples.len().is_multiple_of(2) && (goal.fewest.min(goal.most)..=goal.most).contains(&count),
        "{count} launches"
    );
    // Launches of one thread are sequential, so their sum cannot exceed the wall time.
    let total: u64 = samples.iter().skip(1).step_by(2).sum();
    ensure!(total <= wall, "the engine reported {total} ns of launches in {wall} ns");
    for pair in samples.chunks_exact(2) {
        ensure!(0 < pair[0] && pair[0] <= pair[1], "the engine reported held {} ns of total {} ns", pair[0], pair[1]);
        series.push(Sample { held_ns: pair[0], total_ns: pair[1] });
    }
    Ok(())
}

impl Crowd for Engine<'_> {
    fn resize(&mut self, count: usize) -> Result<()> {
        self.ask(&format!("alive {count}"), PATIENCE).map(drop)
    }

    fn exits(&mut self, count: usize) -> Result<Vec<Exit>> {
        let answer = self.ask(&format!("exits {count}"), PATIENCE)?;
        let figures: Vec<u64> = answer.split(' ').map(str::parse).collect::<Result<_, _>>().context("its figures")?;
        ensure!(figures.len() == 2 * count, "the engine reported {} figures for {count} exits", figures.len());
        Ok(figures.chunks_exact(2).map(|pair| Exit { cpu_ns: pair[0], latency_ns: pair[1] }).collect())
    }

    fn memory(&self) -> Result<Memory> {
        Memory::of(&self.process.as_ref().context("the engine has failed before")?.id().to_string())
    }
}

#[cfg(test)]
mod tests {
    use testing::modules::{Modules, Profile};

    use super::super::wishes::Wishes;
    use super::*;

    /// Should this process run the test? Only if it finds the language modules by its environment. Otherwise starts another process
    /// with this environment, which runs the test.
    fn has_modules(test: &str) -> bool {
        const HAS: &str = "FORKLESS_TEST_HAS_MODULES";
        if env::var_os(HAS).is_some() {
            return true;
        }
        let program = env::current_exe().expect("this program");
        // CARGO_TARGET_TMPDIR, which cargo sets for integration tests only.
        let target = program.ancestors().nth(3).expect("target/debug/deps/forkless");
        let modules = Modules::build(&target.join("tmp"), target, Profile::Dev).unwrap_or_else(|e| panic!("{e:#}"));
        modules.skipped().iter().for_each(|line| eprintln!("{line}"));
        let mut again = std::process::Command::new(&program);
        again.args(["--exact", "--nocapture", &format!("engines::tests::{test}")]).env(HAS, "1");
        let output = modules.add_to(&mut again).expect("no colon").output().expect("this program");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        eprint!("{err}");
        assert!(output.status.success() && out.contains("1 passed"), "{out}");
        false
    }

    fn large(parent_mib: u64) -> Condition {
        Condition { parent_mib, ..Condition::SMALL }
    }

    /// Tests the greeting, figures and error messages of every installed engine.
    #[test]
    fn engines_launch_and_report_failures() {
        if !has_modules("engines_launch_and_report_failures") {
            return;
        }
        let engines = Engines::find(&Contestant::ALL, None).expect("temporary directory");
        engines.missing.iter().for_each(|(c, why)| eprintln!("SKIPPED: engine {}, because {why}", c.name()));
        let program = Program::embedded().expect("temporary directory");
        let failing = Program::from_words(&["sh".into(), "-c".into(), "exit 3".into()]).expect("sh");
        let (missing, none) = (Program::missing(), Wishes::none());
        for found in &engines.found {
            let contestant = found.source.contestant;
            let job = |program| Job { program, condition: large(2), wishes: &none };
            assert!(found.version.starts_with(|c: char| c.is_ascii_digit()), "{}", found.version);
            let mut series = Series::default();
            let mut engine = engines.start(contestant, &job(&program)).expect("starts");
            engine.turn(&Goal { time: Duration::ZERO, fewest: 3, most: 10 }, &mut series).expect("launches");
            assert_eq!(series.len(), 3);
            engine.turn(&Goal { time: Duration::from_secs(60), fewest: 1, most: 7 }, &mut series).expect("launches");
            assert_eq!(series.len(), 10);
            // Some engines know the CPU time of children in clock ticks only.
            assert!(series.wall > Duration::ZERO);
            let mut engine = engines.start(contestant, &job(&failing)).expect("starts");
            let error = engine.launch().expect_err("exit 3");
            assert!(format!("{error:#}").contains('3'), "{error:#}");
            assert!(engines.start(contestant, &job(&missing)).and_then(|mut e| e.launch()).is_err());
            let mut engine = engines.start(contestant, &job(&program)).expect("starts");
            assert!(engine.ask("nonsense", PATIENCE).is_err());
        }
    }

    /// An engine has touched all requested memory.
    #[test]
    fn engines_allocate_the_requested_memory() {
        if !has_modules("engines_allocate_the_requested_memory") {
            return;
        }
        let engines = Engines::find(&Contestant::ALL, None).expect("temporary directory");
        let (program, none) = (Program::embedded().expect("temporary directory"), Wishes::none());
        for found in &engines.found {
            let job = Job { program: &program, condition: large(64), wishes: &none };
            let engine = engines.start(found.source.contestant, &job).expect("starts");
            let bytes = Memory::of(&pid(&engine).to_string()).expect("alive").resident();
            assert!(bytes >= 64 << 20, "{} has {bytes} bytes", found.source.contestant.name());
        }
    }

    fn pid(engine: &Engine) -> u32 {
        engine.process.as_ref().expect("it has not failed").id()
    }

    /// Each child records which thread has launched it, and waits for a limited time until the given number has been started.
    const RENDEZVOUS: &str = r#"grep -lsw $$ /proc/$PPID/task/*/children >"$0/$$"; left=$2
        until [ "$(ls "$0" | wc -l)" -ge "$1" ]; do
            left=$((left - 1)); [ $left -gt 0 ] || exit 3; sleep 0.02
        done"#;

    /// The children meet only if the threads launch concurrently.
    #[test]
    fn engines_launch_concurrently_from_threads() {
        let engines = Engines::find(&Contestant::ALL, None).expect("temporary directory");
        let none = Wishes::none();
        let meeting = |tries: &str| {
            let place = tempfile::tempdir().expect("temporary directory");
            let words = ["sh", "-c", RENDEZVOUS, &place.path().to_string_lossy(), "3", tries].map(OsString::from);
            (Program::from_words(&words).expect("sh"), place)
        };
        for found in engines.found.iter() {
            let contestant = found.source.contestant;
            let name = contestant.name();
            let start = |threads, program| {
                let condition = Condition { threads, ..Condition::SMALL };
                engines.start(contestant, &Job { program, condition, wishes: &none })
            };
            if !["go", "java", "node-spawn", "forkless-node-spawn", "glib", "libuv"].contains(&name)
                && !name.contains("cpython")
            {
                assert!(!found.has_threads, "{name}");
                continue;
            }
            assert!(found.has_threads, "{name}");
            let (program, place) = meeting("500");
            let mut series = Series::default();
            let mut engine = start(3, &program).expect("starts");
            engine.turn(&Goal { time: Duration::ZERO, fewest: 2, most: 5 }, &mut series).expect(name);
            assert_eq!(series.len(), 6, "{name}");
            launched_by(place.path(), name);
            engine.turn(&Goal { time: Duration::from_secs(60), fewest: 1, most: 4 }, &mut series).expect(name);
            assert_eq!(series.len(), 18, "{name}");
            assert_eq!(children(pid(&engine)), "", "{name}");
            let (lonely, _place) = meeting("5");
            let error = start(2, &lonely).expect("starts").launch().expect_err("two are not three");
            assert!(format!("{error:#}").contains('3'), "{name}: {error:#}");
            // The engine ends when the bench ends or is killed.
            assert!(engine.process.as_mut().expect("alive").leave("").expect(name).success(), "{name}");
            let mut engine = start(3, &program).expect("starts");
            engine.process.as_mut().expect("alive").leave("turn 50000000 1 1000000\n").expect(name);
        }
    }

    /// Checks the number of launching threads. Tasks of asyncio share one thread, and goroutines use any thread.
    fn launched_by(place: &Path, name: &str) {
        let mut threads: Vec<String> = fs::read_dir(place)
            .expect("a directory")
            .map(|entry| fs::read_to_string(entry.expect("an entry").path()).expect("text"))
            .collect();
        // /proc/PID/task/TID/children may miss a child while others start and end.
        threads.retain(|thread| !thread.is_empty());
        threads.sort();
        threads.dedup();
        if threads.is_empty() {
            return eprintln!("SKIPPED: which threads launch, because this kernel has no /proc/PID/task/TID/children");
        }
        let expected = if name.ends_with("asyncio") { 1 } else { 3 };
        assert!(name == "go" || threads.len() == expected, "{name}: {threads:?}");
    }

    /// The PIDs of all children of a process, including zombies.
    fn children(process: u32) -> String {
        let threads = fs::read_dir(format!("/proc/{process}/task")).expect("alive");
        let of = |thread: PathBuf| fs::read_to_string(thread.join("children")).unwrap_or_default();
        threads.map(|thread| of(thread.expect("an entry").path())).collect()
    }

    /// A large engine is kept for the next condition, without the settings of the previous one. A failed engine is not kept.
    #[test]
    fn large_engines_are_reused_without_previous_settings() {
        if !has_modules("large_engines_are_reused_without_previous_settings") {
            return;
        }
        let engines = Engines::find(&Contestant::ALL, None).expect("temporary directory");
        // The launch fails as another user, if a change of user is allowed at all.
        let me = rustix::process::getuid().as_raw();
        let script = format!("[ $(id -u) = {me} ]");
        let program = Program::from_words(&["sh".into(), "-c".into(), script.into()]).expect("sh");
        let (none, mut other) = (Wishes::none(), Wishes::none());
        other.id = Some(me + 1);
        for contestant in engines.found.iter().map(|found| found.source.contestant) {
            let job = |parent_mib, wishes| Job { program: &program, condition: large(parent_mib), wishes };
            let start = |parent_mib, wishes| engines.start(contestant, &job(parent_mib, wishes)).expect("starts");
            let first = pid(&start(2, &none));
            assert_ne!(pid(&start(1, &none)), first);
            drop(start(2, &other));
            let mut again = start(2, &none);
            assert_eq!(pid(&again), first, "{}", contestant.name());
            again
                .launch()
                .unwrap_or_else(|e| panic!("{} still applies its previous settings: {e:#}", contestant.name()));
            drop(again);
            if engines.can(contestant).contains(&Feature::Ids) {
                assert!(start(2, &other).launch().is_err(), "{}", contestant.name());
            } else {
                engines.keep_only(1);
            }
            assert_ne!(pid(&start(2, &none)), first);
            engines.keep_only(1);
            assert_eq!(engines.idle_count(), 1);
            engines.keep_only(0);
        }
    }
}
