//! `forkless run` beside the wrappers that it replaces: env, nice, setpriv, prlimit, timeout and bwrap; and the sandboxes of the library,
//! firejail, unshare and a program in C beside bwrap. All run the same program.

use std::{
    fs::{self, File},
    io::Read,
    os::fd::AsFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use forkless::{Command, Network, PreparedSandbox, Sandbox, Stdio};
use nix::sys::prctl::set_child_subreaper;

use super::{
    race::{CampaignContestant, median, race, use_of_children},
    record::{Figure, Table},
    session::{Common, Session, output},
};

/// Compare forkless run with env, nice, setpriv, prlimit, timeout and bwrap.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,

    /// Run each command this many times
    #[arg(long, value_name = "COUNT", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// The program that every wrapper runs.
const PROGRAM: &str = "/bin/true";

/// Another wrapper, and ours for the same job.
const PAIRS: [(&str, &str); 15] = [
    ("env", "forkless run"),
    ("nice -n 1", "forkless run --nice 1"),
    ("setpriv --no-new-privs", "forkless run --no-new-privs"),
    ("prlimit --nofile=100:100", "forkless run --nofile 100"),
    ("timeout 5", "forkless run --timeout 5"),
    ("timeout 5", "forkless run --timeout 5 --kill-tree"),
    ("timeout 5", TREE),
    ("timeout 5", GROUP),
    ("bwrap", "forkless run --sandbox --chdir /"),
    ("bwrap", NAMESPACES),
    ("bwrap", REFUSED),
    ("bwrap", LANDLOCK),
    ("bwrap", C),
    ("bwrap", "firejail"),
    ("bwrap", UNSHARE),
];

/// The namespaces and mounts of bwrap below and an init, by bench/c/namespaces.c.
const C: &str = "namespaces.c";

/// The same namespaces, without a root of its own and a filter.
const UNSHARE: &str = "unshare --user --map-root-user --pid --fork --mount-proc --net --ipc --uts --cgroup";

/// Its mounts, filter and namespaces that are nearest to those of bwrap below.
const FIREJAIL: &str =
    "--quiet --noprofile --net=none --private-dev --private-tmp --ipc-namespace --caps.drop=all --nonewprivs --seccomp";

/// Launches by the library, without a wrapper.
const NAMESPACES: &str = "Sandbox::new()";
const REFUSED: &str = "Sandbox::new().network(Network::Refused)";
const LANDLOCK: &str = "Sandbox::landlock()";
const TREE: &str = "Command::kill_tree()";
const GROUP: &str = "Command::cgroup_parent()";

/// The files and namespaces of `forkless run --sandbox`.
const BWRAP: &str = "--unshare-user --unshare-pid --unshare-net --unshare-ipc --unshare-uts --unshare-cgroup --new-session \
                     --die-with-parent --ro-bind /usr /usr --ro-bind /etc /etc --ro-bind-try /opt /opt --symlink usr/bin /bin \
                     --symlink usr/sbin /sbin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev \
                     --tmpfs /tmp --tmpfs /dev/shm --remount-ro / --cap-drop ALL --chdir / --seccomp 9";

/// The number at which bwrap gets its filter.
const FILTER_FD: i32 = 9;

pub(super) fn measure(options: &Options) -> Result<()> {
    let mut session = Session::begin("wrappers", &options.common)?;
    // The init of bwrap outlives bwrap by a moment.
    set_child_subreaper(true)?;
    // Stripped, as it is installed.
    let ours = session.place.join("forkless");
    output(std::process::Command::new("strip").arg("-o").arg(&ours).arg(session.forkless()?))?;
    session.unpack(&[("namespaces.c", include_str!("../../c/namespaces.c"))])?;
    let in_c = session.cc("namespaces", [""; 0])?;
    let filter = session.place.join("filter");
    let bytes = std::process::Command::new(&ours).arg("sandbox-filter").output()?.stdout;
    ensure!(!bytes.is_empty(), "forkless sandbox-filter writes nothing");
    fs::write(&filter, bytes)?;
    let mut all = vec![CampaignContestant::new(PROGRAM, || Wrapper::new("", [&ours, &in_c, &filter]).run())];
    let mut lines: Vec<_> = PAIRS.iter().flat_map(|(theirs, ours)| [*theirs, *ours]).collect();
    let mut seen = std::collections::HashSet::new();
    lines.retain(|line| seen.insert(*line));
    for line in lines {
        let wrapper = Wrapper::new(line, [&ours, &in_c, &filter]);
        if let Err(error) = wrapper.run() {
            session.record.skip(format!("{line}: {error:#}"));
            continue;
        }
        let resident = wrapper.resident()?;
        let other = PAIRS.iter().find(|(_, ours)| *ours == line).map_or(line, |(theirs, _)| *theirs);
        let run = move || Ok([wrapper.run()?, vec![resident]].concat());
        all.push(CampaignContestant::new(line, run).beside(other));
    }
    race("wrappers", options.rounds as usize, &mut all)?;
    let alone = [0, 1].map(|at| median(all[0].figures(at)));
    for one in &mut all {
        // The program alone has no resident size of a wrapper.
        one.rounds.iter_mut().for_each(|figures| {
            figures.resize(4, f64::NAN);
            figures.extend([figures[0] - alone[0], figures[1] - alone[1]]);
        });
    }
    let figures = [
        Figure::tail(0, "wall µs"),
        Figure::tail(1, "CPU µs"),
        Figure::plain(2, "faults"),
        Figure::plain(3, "RSS KiB"),
        Figure::ratio(4, "added wall µs"),
        Figure::ratio(5, "added CPU µs"),
    ];
    let about = "Each beside the wrapper that it replaces; \"added\": to the program alone. bwrap has the filter of --sandbox. \
         Sandbox::new() and Sandbox::landlock() are settings of the library's launch: namespaces and an init, and neither. \
         Command::kill_tree() has an init alone, which ends all that the program has started. Command::cgroup_parent() makes and \
         removes a cgroup, without limits, and kills what is in it. namespaces.c has \
         the namespaces, mounts and filter of bwrap; firejail and unshare have less.";
    session.record.tables.push(Table::new(PROGRAM, about, &figures, &all));
    let bytes = fs::metadata(&ours)?.len();
    session.record.about.push(("forkless, stripped".to_owned(), format!("{:.1} MB", bytes as f64 / 1e6)));
    drop(all);
    session.end()
}

/// Where cgroups of version 2 are mounted.
fn cgroups() -> PathBuf {
    let alone = Path::new("/sys/fs/cgroup");
    if alone.join("cgroup.procs").exists() { alone.to_owned() } else { alone.join("unified") }
}

struct Wrapper<'a> {
    words: Vec<&'a str>,
    /// The sandbox of a launch by the library.
    sandbox: Option<std::io::Result<PreparedSandbox>>,
    kills_tree: bool,
    /// The directory in which each launch makes a cgroup.
    groups: Option<PathBuf>,
    /// The command, the program in C, and the filter.
    files: [&'a Path; 3],
}

impl<'a> Wrapper<'a> {
    fn new(line: &'a str, files: [&'a Path; 3]) -> Self {
        let more = match line {
            "bwrap" => BWRAP,
            "firejail" => FIREJAIL,
            _ => "",
        };
        let sandbox = match line {
            NAMESPACES => Some(Sandbox::new().prepare()),
            REFUSED => Some(Sandbox::new().network(Network::Refused).prepare()),
            LANDLOCK => Some(Sandbox::landlock().prepare()),
            _ => None,
        };
        Self {
            words: [line, more].into_iter().flat_map(str::split_whitespace).collect(),
            sandbox,
            kills_tree: line == TREE,
            groups: (line == GROUP).then(cgroups),
            files,
        }
    }

    /// The wrapper, with this program.
    fn command(&self, program: &[&str]) -> Result<Command> {
        let is_setting = self.sandbox.is_some() || self.kills_tree || self.groups.is_some();
        let mut words = self.words.iter().skip(usize::from(is_setting)).chain(program);
        let mut command = match words.next().context("no program")? {
            &"forkless" => Command::new(self.files[0]),
            &C => Command::new(self.files[1]),
            other => Command::new(other),
        };
        command.args(words).kill_tree(self.kills_tree);
        if let Some(groups) = &self.groups {
            command.cgroup_parent(groups);
        }
        if let Some(sandbox) = &self.sandbox {
            command.current_dir("/").sandbox(sandbox.as_ref().map_err(|error| anyhow!("{error}"))?);
        }
        if self.words.first().is_some_and(|word| ["bwrap", C].contains(word)) {
            command.fd(Stdio::copy_of(File::open(self.files[2])?.as_fd())?, FILTER_FD);
        }
        Ok(command)
    }

    /// Wall and CPU time of one run in microseconds, and its page faults.
    fn run(&self) -> Result<Vec<f64>> {
        let mut command = self.command(&[PROGRAM])?;
        let (cpu_before, faults_before) = use_of_children()?;
        let start = Instant::now();
        let status = command.spawn()?.wait()?;
        let wall = start.elapsed();
        ensure!(status.success(), "{status}");
        let (cpu, faults) = use_of_children()?;
        let [wall, cpu] = [wall, cpu - cpu_before].map(|time| time.as_secs_f64() * 1e6);
        Ok(vec![wall, cpu, (faults - faults_before) as f64])
    }

    /// The largest resident size of the wrapper in KiB: of its process while a shell below it, or in its place, waits.
    fn resident(&self) -> Result<f64> {
        let mut command = self.command(&["/bin/sh", "-c", "echo ready; read -r line"])?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        child.stdout.take().context("no output")?.read_exact(&mut [0; 6])?;
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
        drop(child.stdin.take());
        if child.wait_timeout(Duration::from_secs(10))?.is_none() {
            child.kill()?;
            bail!("it does not end");
        }
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        Ok(peak.trim().trim_end_matches(" kB").parse()?)
    }
}
