//! The tool calls of an agent: short programs with captured output and a timeout, from parents in several languages, each by its own
//! module and by forkless, beside the timer of an event loop. [METHODOLOGY](../../METHODOLOGY.md#tool-calls).

use std::{
    cell::Cell,
    collections::BTreeMap,
    env,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::{
    race::{CampaignContestant, median, race},
    record::{Figure, Table},
    session::{Common, Session, does_work, output, versions},
};
use crate::program::search;

/// Compare the tool calls of an agent from Rust, Python, Node and Go, beside an event loop.
///
/// The modules of forkless are those that python3 and node find (PYTHONPATH, NODE_PATH).
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,

    /// Make one round with fewer calls: at most three minutes
    #[arg(long)]
    quick: bool,

    /// Measure all twelve situations instead of six: half an hour
    #[arg(long, conflicts_with = "quick")]
    all: bool,

    /// Call /bin/true instead, 10,000 times, with and without a sandbox: ten minutes
    #[arg(long, conflicts_with_all = ["quick", "all"])]
    sandboxes: bool,

    /// Make a few calls from small parents, as a test
    #[arg(long, hide = true, conflicts_with_all = ["quick", "all"])]
    smoke: bool,
}

/// The parent's memory in MiB, its descriptors, and how many calls it makes at once.
type Situation = [usize; 3];

/// Where the tools are looked for: no wrappers of version managers, which cost more than the tools.
const PATH: &str = "/usr/bin:/bin";

/// Name, program, arguments. bash calls rg.
const TOOLS: [&[&str]; 9] = [
    &["rg", "rg", "-n", "needle", "src"],
    &["git status", "git", "status", "--porcelain"],
    &["git rev-parse", "git", "rev-parse", "HEAD"],
    &["sed", "sed", "-n", "1,40p", "src/d00/f00.txt"],
    &["ls", "ls", "-la", "src"],
    &["cat", "cat", "src/d01/f01.txt"],
    &["python3", "python3", "-c", "pass"],
    &["bash, rg, head", "bash", "-c", "cd src && rg -n needle . | head"],
    &["sh, test", "sh", "-c", "test -f README && echo y"],
];

/// The call of `--sandboxes`, which is made with and without a sandbox.
const TRUE: [&[&str]; 1] = [&["true", "true"]];

const SOURCES: [(&str, &str); 3] = [
    ("calls.py", include_str!("../../tools/calls.py")),
    ("calls.js", include_str!("../../tools/calls.js")),
    ("calls.go", include_str!("../../tools/calls.go")),
];

pub(super) fn measure(options: &Options) -> Result<()> {
    let mut session = Session::begin("tools", &options.common)?;
    session.unpack(&SOURCES)?;
    let (situations, cycles, rounds) = effort(options);
    let tree = Tree::make(&session.place, if options.sandboxes { &TRUE } else { &TOOLS })?;
    tree.lacking.iter().for_each(|tool| session.record.skip(format!("{tool} because it is not installed")));
    let parents = parents(&mut session, options.sandboxes)?;
    let known =
        [("python3", "--version"), ("node", "--version"), ("go", "version"), ("rg", "--version"), ("git", "--version")];
    session.record.about.extend(versions(&known));
    let limit = raise_descriptors()?;
    let room = crate::machine::meminfo_mib("MemAvailable").unwrap_or(0) as usize;
    for situation in situations {
        let [mebibytes, descriptors, slots] = situation;
        let at_once = if slots == 1 { "1 call at a time".to_owned() } else { format!("{slots} calls at once") };
        let title = format!("{}, {descriptors} descriptors, {at_once}", crate::units::mebibytes(mebibytes as u64));
        if descriptors + 300 > limit {
            session.record.skip(format!("{title} because of the limit of {limit} descriptors"));
            continue;
        }
        if mebibytes * 3 / 2 > room {
            session.record.skip(format!("{title} because of the memory of this machine"));
            continue;
        }
        // The bytes that a parent reads, which are the same for all.
        let bytes = Cell::new(0.0);
        let contestant = |parent: &'_ ToolParent| {
            let (parent, tree, bytes) = (parent.clone(), &tree, &bytes);
            let stock = parents.iter().find(|other| other.name == parent.stock).map_or("", |stock| stock.name);
            CampaignContestant::new(parent.name, move || {
                let mounts = fs::read("/proc/self/mountinfo")?;
                let run = parent.run(situation, cycles, tree)?;
                // Another program may have a sandbox just now: wait for its end. Only sandboxes leave any; others may mount, too.
                let begun = Instant::now();
                while options.sandboxes && (inits() > 0 || mounts != fs::read("/proc/self/mountinfo")?) {
                    ensure!(begun.elapsed() < Duration::from_secs(10), "a process or a mount of a sandbox is left");
                    std::thread::sleep(Duration::from_millis(100));
                }
                ensure!([0.0, run.bytes].contains(&bytes.replace(run.bytes)), "it has read {} bytes", run.bytes);
                run.figures(cycles * tree.tools.len(), &tree.tools)
            })
            .beside(stock)
        };
        let mut all: Vec<_> = parents.iter().map(contestant).collect();
        race(&title, rounds, &mut all)?;
        let mut figures = vec![
            Figure::ratio(0, "call ms"),
            Figure::ratio(1, "slowest call ms"),
            Figure::ratio(2, "longest stop ms"),
            Figure::ratio(3, "CPU of the parent µs per call"),
            Figure::plain(4, "CPU of the tool µs"),
        ];
        if options.sandboxes {
            figures.insert(2, Figure::plain(5, "p99.9 of the stops ms"));
        }
        let about = format!(
            "Each call {cycles} times in a round; figures are those of a round. Beside the language's own module."
        );
        session.record.tables.push(Table::new(&title, about, &figures, &all));
        if slots == 1 && mebibytes <= 100 && !options.sandboxes {
            let figures: Vec<Figure> = (6..).zip(&tree.tools).map(|(at, tool)| Figure::plain(at, tool)).collect();
            session.record.tables.push(Table::new(format!("Each tool: {title}"), "ms of a call.", &figures, &all));
        }
    }
    session.end()
}

/// How many inits of sandboxes run.
fn inits() -> usize {
    let lines = fs::read_dir("/proc").into_iter().flatten().flatten().map(|one| fs::read(one.path().join("cmdline")));
    lines.filter(|line| line.as_ref().is_ok_and(|line| line.starts_with(b"forkless-init\0"))).count()
}

/// The situations, how often a parent makes each call in a round, and the rounds.
fn effort(options: &Options) -> (Vec<Situation>, usize, usize) {
    let usual = [[100, 50, 1], [1024, 50, 1], [1024, 5000, 1], [1024, 50, 16], [4096, 50, 1], [4096, 5000, 16]];
    match options {
        Options { smoke: true, sandboxes: true, .. } => (vec![[16, 20, 3]], 20, 1),
        Options { sandboxes: true, .. } => (vec![[4096, 50, 16]], 2500, 4),
        Options { smoke: true, .. } => (vec![[16, 20, 1], [16, 20, 3]], 1, 1),
        Options { quick: true, .. } => (usual[..5].to_vec(), 3, 1),
        Options { all: true, .. } => {
            let slots = |mebibytes| [1, 16].map(|slots| (mebibytes, slots));
            let all = |(mebibytes, slots)| [50, 5000].map(|descriptors| [mebibytes, descriptors, slots]);
            ([100, 1024, 4096].into_iter().flat_map(slots).flat_map(all).collect(), 5, 9)
        }
        _ => (usual.to_vec(), 5, 9),
    }
}

/// Raises the limit for this process and the parents, and returns it.
fn raise_descriptors() -> Result<usize> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(8192), hard)?;
    Ok(hard.min(8192) as usize)
}

/// A program that makes the calls by one method.
#[derive(Clone)]
struct ToolParent {
    name: &'static str,
    /// The method of this language that forkless is compared with. Its own name, if it is one.
    stock: &'static str,
    words: Vec<OsString>,
}

/// Those that exist here. The last word of each is its method.
fn parents(session: &mut Session, sandboxes: bool) -> Result<Vec<ToolParent>> {
    let mut found = Vec::new();
    let mut add = |stock: &'static str, name: &'static str, words: &[&Path], mode: &Path| {
        let words = words.iter().copied().chain([mode]).map(Into::into).collect();
        found.push(ToolParent { name, stock, words });
    };
    let own = env::current_exe()?;
    let rust = own.with_file_name("examples").join("tool_calls");
    if sandboxes {
        // Each language beside itself without a sandbox.
    } else if rust.exists() {
        let stock = "Rust: tokio::process";
        add(stock, stock, &[&rust], Path::new("stock"));
        add(stock, "Rust: forkless::tokio", &[&rust], Path::new("forkless"));
        match session
            .library("forkless/libforkless_warm.so")
            .ok()
            .or_else(|| session.library("libforkless_warm.so").ok())
        {
            Some(library) => add(stock, "Rust: forkless::tokio, warm", &[&rust], &library),
            None => session.record.skip("Rust with warm programs because libforkless_warm.so is not installed"),
        }
    } else {
        let build = "cargo build --release -p forkless --features tokio,warm --example tool_calls";
        session.record.skip(format!("Rust because {build} has not been run"));
    }
    // By their paths: the parents look for tools elsewhere.
    let [python, node] = ["python3", "node"].map(|name| search(OsStr::new(name)).unwrap_or_else(|_| name.into()));
    let go = session.place.join("calls");
    let (py, js) = (session.place.join("calls.py"), session.place.join("calls.js"));
    let of_sandboxes = [
        ("Python: no sandbox", "forkless-asyncio", "Python: namespaces", "forkless-asyncio-namespaces", &python, &py),
        ("Python: no sandbox", "", "Python: Landlock", "forkless-asyncio-landlock", &python, &py),
        ("Node: no sandbox", "none", "Node: namespaces", "namespaces", &node, &js),
        ("Node: no sandbox", "", "Node: Landlock", "landlock", &node, &js),
    ];
    let of_modules = [
        ("Python: asyncio", "stock-asyncio", "Python: forkless.asyncio", "forkless-asyncio", &python, &py),
        (
            "Python: subprocess in threads",
            "stock-threads",
            "Python: forkless in threads",
            "forkless-threads",
            &python,
            &py,
        ),
        ("Node: child_process", "stock", "Node: forkless, install()", "forkless", &node, &js),
    ];
    let pairs = if sandboxes { &of_sandboxes[..] } else { &of_modules[..] };
    for &(stock, mode, ours, our_mode, interpreter, script) in pairs {
        let (word, import) =
            if *interpreter == python { ("-c", "import forkless") } else { ("-e", "require('forkless')") };
        let name = interpreter.to_string_lossy();
        if does_work(&name, &[word, import]) {
            if !mode.is_empty() {
                add(stock, stock, &[interpreter, script], Path::new(mode));
            }
            add(stock, ours, &[interpreter, script], Path::new(our_mode));
        } else {
            session.record.skip(format!("{stock} because {name} does not find forkless"));
        }
    }
    if sandboxes {
        ensure!(!found.is_empty(), "neither python3 nor node can load forkless");
        return Ok(found);
    }
    if does_work("go", &["version"]) {
        let mut build = Command::new("go");
        build.args(["build", "-o"]).arg(&go).arg("calls.go").current_dir(&session.place).env("GO111MODULE", "off");
        output(build.env("GOCACHE", session.place.join("go-cache")).env("GOTOOLCHAIN", "local"))?;
        found.push(ToolParent { name: "Go: os/exec", stock: "Go: os/exec", words: vec![go.into()] });
    } else {
        session.record.skip("Go because go is not installed");
    }
    ensure!(!found.is_empty(), "none of python3, node and go is installed");
    Ok(found)
}

impl ToolParent {
    /// Runs it once.
    fn run(&self, situation: Situation, cycles: usize, tree: &Tree) -> Result<ToolRun> {
        let mut command = Command::new(&self.words[0]);
        let [mebibytes, descriptors, slots] = situation;
        command.args(&self.words[1..]).args([slots, cycles, mebibytes, descriptors].map(|number| number.to_string()));
        command.args([&tree.directory, &tree.list]).current_dir(&tree.directory).envs(tree.environment());
        // cargo sets this variable, with which no program is launched warm.
        command.env_remove("LD_LIBRARY_PATH");
        ToolRun::read(&output(&mut command)?)
    }
}

/// What one parent has reported.
#[derive(Debug, Default)]
struct ToolRun {
    /// Milliseconds of the calls, by tool.
    calls: BTreeMap<String, Vec<f64>>,
    stop_ms: f64,
    /// p99.9 of the stops, from some parents.
    late_ms: f64,
    own_us: f64,
    children_us: f64,
    bytes: f64,
}

impl ToolRun {
    /// Reads the lines `NAME<tab>NUMBER` of a parent.
    fn read(text: &str) -> Result<Self> {
        let mut run = Self::default();
        let mut known = 0;
        for line in text.lines() {
            let (name, number) = line.split_once('\t').with_context(|| line.to_owned())?;
            let number: f64 = number.parse().with_context(|| line.to_owned())?;
            known += 1;
            match name {
                "stop" => run.stop_ms = number.max(0.0) / 1e6,
                "late" => (known, run.late_ms) = (known - 1, number.max(0.0) / 1e6),
                "own" => run.own_us = number,
                "children" => run.children_us = number,
                "bytes" => run.bytes = number,
                tool => {
                    known -= 1;
                    run.calls.entry(tool.to_owned()).or_default().push(number / 1e6);
                }
            }
        }
        ensure!(known == 4, "incomplete: {text}");
        Ok(run)
    }

    fn figures(&self, wanted: usize, tools: &[&'static str]) -> Result<Vec<f64>> {
        let all: Vec<f64> = self.calls.values().flatten().copied().collect();
        ensure!(all.len() == wanted, "{} calls, not {wanted}", all.len());
        let (count, slowest) = (all.len() as f64, all.iter().copied().fold(0.0, f64::max));
        let of_tool = |tool: &&str| median(self.calls.get(*tool).cloned().unwrap_or_default());
        let whole = [median(all), slowest, self.stop_ms, self.own_us / count, self.children_us / count, self.late_ms];
        Ok(whole.into_iter().chain(tools.iter().map(of_tool)).collect())
    }
}

/// The directory in which the calls are made: a repository of 400 files.
struct Tree {
    directory: PathBuf,
    /// The file with the calls, one a line, in fields that are separated by tabs.
    list: PathBuf,
    home: PathBuf,
    tools: Vec<&'static str>,
    /// Tools that are not installed.
    lacking: Vec<&'static str>,
}

impl Tree {
    fn make(place: &Path, tools: &'static [&'static [&'static str]]) -> Result<Self> {
        let has = |name: &str| PATH.split(':').any(|directory| Path::new(directory).join(name).exists());
        let is_there = |tool: &&&[&str]| has(tool[1]) && (tool[1] != "bash" || has("rg"));
        let (there, missing): (Vec<_>, Vec<_>) = tools.iter().partition(is_there);
        let names = |tools: &[&'static &[&'static str]]| tools.iter().map(|tool| tool[0]).collect();
        let tree = Self {
            directory: place.join("tree"),
            list: place.join("calls.txt"),
            home: place.to_owned(),
            tools: names(&there),
            lacking: names(&missing),
        };
        ensure!(!there.is_empty(), "none of the tools is installed");
        if tree.directory.exists() {
            fs::remove_dir_all(&tree.directory)?;
        }
        for n in 0..400 {
            let file = tree.directory.join(format!("src/d{:02}/f{:02}.txt", n / 20, n % 20));
            fs::create_dir_all(file.parent().context("a directory")?)?;
            // All names and lines are of the same length, so that the output has the same size in any order.
            let line = |line| if line == 30 && n % 20 == 7 { "a needle\n" } else { "plain hay\n" };
            fs::write(file, (0..60).map(line).collect::<String>())?;
        }
        fs::write(tree.directory.join("README"), "files to search\n")?;
        for words in [&["init", "--quiet"][..], &["add", "."], &["commit", "--quiet", "-m", "files"], &["status"]] {
            if has("git") {
                let mut git = Command::new("git");
                git.args(["-c", "user.name=tools", "-c", "user.email=tools@localhost"]).args(words);
                output(git.current_dir(&tree.directory).envs(tree.environment()))?;
            }
        }
        fs::write(&tree.list, there.iter().map(|tool| tool.join("\t") + "\n").collect::<String>())?;
        Ok(tree)
    }

    /// Variables of the parents, so that the user's settings do not count.
    fn environment(&self) -> [(&'static str, OsString); 5] {
        let [path, nothing, c] = [PATH, "/dev/null", "C"].map(OsString::from);
        let home = self.home.clone().into();
        [
            ("PATH", path),
            ("HOME", home),
            ("GIT_CONFIG_GLOBAL", nothing.clone()),
            ("GIT_CONFIG_SYSTEM", nothing),
            ("LC_ALL", c),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_an_end_is_refused() {
        let whole = "rg\t5e6\nrg\t7e6\nown\t1\nchildren\t2\nstop\t-3\nlate\t2e6\nbytes\t4\n";
        let run = ToolRun::read(whole).expect("a report");
        assert_eq!(run.figures(2, &["rg"]).expect("two calls"), [5.0, 7.0, 0.0, 0.5, 1.0, 2.0, 5.0]);
        assert!(run.figures(3, &["rg"]).is_err());
        assert!(ToolRun::read(&whole.replace("bytes\t4\n", "")).is_err());
        assert!(ToolRun::read(&whole.replace("stop\t-3", "stop")).is_err());
    }
}
