//! A real Slurm of three nodes on this machine, on loopback, in a temporary directory. It ends with the test, also when
//! that fails. Needs root, and Debian's packages slurm-wlm and munge.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use forkless::Child;
use rustix::process::{Pid, Signal, getuid, kill_process};

const SIGKILL: i32 = 9;

/// Ends a wait that will never end.
pub(crate) fn limit() -> Duration {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(1.0f64);
    Duration::from_secs(120).mul_f64(number("FORKLESS_TEST_SLOW").max(number("FORKLESS_TEST_SCALE") / 4.0).max(1.0))
}

/// Waits for a state.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit();
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// `FORKLESS_TEST_SCALE` times `count`.
pub(crate) fn scaled(count: usize) -> usize {
    let scale = std::env::var("FORKLESS_TEST_SCALE").ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
    ((count as f64 * scale) as usize).max(20)
}

/// The three nodes n1, n2 and n3, with two CPUs each.
pub(crate) struct Cluster {
    place: tempfile::TempDir,
    daemons: BTreeMap<String, Child>,
}

/// Whether a Slurm can be started here. Prints why not.
fn is_possible(test: &str) -> bool {
    let skip = |why: &str| {
        println!("SKIPPED: {test}: {why}");
        false
    };
    if !getuid().is_root() {
        return skip("slurmctld, slurmd and munged are started as root");
    }
    let has = |program: &&str| {
        ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].iter().any(|place| Path::new(place).join(program).exists())
    };
    match ["slurmctld", "slurmd", "munged", "srun", "sbatch"].iter().find(|program| !has(program)) {
        Some(program) => skip(&format!("{program} is not installed (Debian: slurm-wlm, munge)")),
        None => true,
    }
}

impl Cluster {
    /// Starts it. `None`: it cannot be had here, which is printed.
    pub(crate) fn start(test: &str) -> Option<Self> {
        if !is_possible(test) {
            return None;
        }
        let place = tempfile::Builder::new().prefix("slurm").tempdir().expect("a directory");
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
        let mut cluster = Self { place, daemons: BTreeMap::new() };
        for name in ["state", "spool", "work"] {
            fs::create_dir(cluster.path(name)).expect("a directory");
        }
        let mut key = [0; 1024];
        fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut key)).expect("random bytes");
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o400).open(cluster.path("key"));
        file.as_mut().expect("a file").write_all(&key).expect("a key");
        let option = |name: &str, file: &str| format!("--{name}={}", cluster.path(file).display());
        let words = [
            "--foreground".to_owned(),
            "--force".to_owned(),
            option("socket", "munge.sock"),
            option("key-file", "key"),
            option("pid-file", "munge.pid"),
            option("log-file", "munge.log"),
            option("seed-file", "seed"),
        ];
        cluster.daemon("munged", "/usr/sbin/munged", &words);
        wait_until("munged listens", || cluster.path("munge.sock").exists());
        fs::write(cluster.path("slurm.conf"), cluster.configuration()).expect("a file");
        cluster.daemon("slurmctld", "/usr/sbin/slurmctld", &["-D".to_owned()]);
        for node in ["n1", "n2", "n3"] {
            cluster.daemon(node, "/usr/sbin/slurmd", &["-D".to_owned(), "-N".to_owned(), node.to_owned()]);
        }
        wait_until("three nodes are idle", || {
            let states = cluster.run("sinfo", ["-h", "-N", "-o", "%T"]);
            let text = String::from_utf8_lossy(&states.stdout).into_owned();
            text.lines().count() == 3 && text.lines().all(|state| state == "idle")
        });
        Some(cluster)
    }

    fn configuration(&self) -> String {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // All at once, so that they differ.
        let sockets: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let ports: Vec<u16> = sockets.iter().map(|socket| socket.local_addr().expect("an address").port()).collect();
        let place = self.place.path().display();
        let mut text = format!(
            "ClusterName=forkless\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={place}/munge.sock,cred_expire=15\nCredType=cred/munge\n\
             StateSaveLocation={place}/state\nSlurmdSpoolDir={place}/spool/%n\n\
             SlurmctldPidFile={place}/slurmctld.pid\nSlurmdPidFile={place}/%n.pid\n\
             SlurmctldLogFile={place}/slurmctld.log\nSlurmdLogFile={place}/%n.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nMpiDefault=none\nSwitchType=switch/none\n\
             CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\nReturnToService=2\nSlurmdParameters=config_overrides\n\
             KillWait=2\nSlurmdTimeout=60\nInactiveLimit=0\nMessageTimeout=60\nTCPTimeout=20\n\
             PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
            ports[0]
        );
        for (node, port) in (1..=3).zip(&ports[1..]) {
            text +=
                &format!("NodeName=n{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 State=UNKNOWN\n");
        }
        text
    }

    fn daemon(&mut self, name: &str, program: &str, words: &[String]) {
        let log = fs::File::create(self.path(&format!("{name}.out"))).expect("a file");
        let mut command = forkless::Command::new(program);
        command.args(words).env("SLURM_CONF", self.path("slurm.conf")).stdin(forkless::Stdio::null());
        // It ends with the test, also when that is killed.
        command.stdout(log.try_clone().expect("a descriptor")).stderr(log).parent_death_signal(SIGKILL);
        self.daemons.insert(name.to_owned(), command.spawn().expect("a daemon"));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// A file of the directory in which jobs run.
    pub(crate) fn work(&self, name: &str) -> PathBuf {
        self.path("work").join(name)
    }

    /// What is in such a file; nothing if it does not exist.
    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.work(name)).unwrap_or_default()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.work(name), text).expect("a file");
    }

    /// A command that knows the cluster.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        // The tests may run in a job of another Slurm.
        std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"SLURM")).for_each(|(name, _)| {
            command.env_remove(name);
        });
        command
            .env("SLURM_CONF", self.path("slurm.conf"))
            .env("F", testing::surroundings::word(env!("CARGO_BIN_EXE_forkless")));
        command.env("PARALLEL_SHELL", "/bin/sh").env_remove("PARALLEL").current_dir(self.path("work"));
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn run<W: AsRef<OsStr>>(&self, program: &str, words: impl IntoIterator<Item = W>) -> Output {
        self.command(program).args(words).output().expect("a program of Slurm")
    }

    /// Submits a script for all three nodes. Its output goes to the files `out` and `err`, and its exit status to `code`.
    pub(crate) fn submit(&self, script: &str, options: &[&str]) -> String {
        self.write(
            "job.sh",
            &format!("#!/bin/bash\n{script}\ncode=$?\necho $code > code.new\nmv code.new code\nexit $code\n"),
        );
        let mut sbatch = self.command("sbatch");
        sbatch.args(["--parsable", "-N3", "--exclusive", "--no-kill", "--open-mode=append", "-o", "out", "-e", "err"]);
        let output = sbatch.args(options).arg("job.sh").output().expect("sbatch");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Waits until the submitted script has ended. Returns its exit status.
    pub(crate) fn code(&self) -> i32 {
        wait_until(&format!("the script ends; its messages: {}", self.text("err")), || self.work("code").exists());
        let text = self.text("code");
        fs::remove_file(self.work("code")).expect("removed");
        text.trim().parse().unwrap_or_else(|_| panic!("no exit status: {text:?}"))
    }

    /// Runs a script on all three nodes. Returns its exit status.
    pub(crate) fn batch(&self, script: &str) -> i32 {
        self.submit(script, &[]);
        self.code()
    }

    /// The processes that belong to the cluster, with their command lines.
    pub(crate) fn processes(&self) -> Vec<(i32, String)> {
        let mark = format!("SLURM_CONF={}\0", self.path("slurm.conf").display());
        let all = fs::read_dir("/proc").expect("/proc").flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter_map(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
            let is_own = environment.windows(mark.len()).any(|part| part == mark.as_bytes());
            let line = is_own.then(|| fs::read(format!("/proc/{pid}/cmdline")).ok())??;
            Some((pid, String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned()))
        })
        .collect()
    }

    /// Kills a node: its slurmd and every slurmstepd of it, as the loss of the machine would.
    pub(crate) fn kill_node(&mut self, node: &str) {
        let is_of_node = |pid: i32| {
            let maps = fs::read_dir(format!("/proc/{pid}/fd")).map(|entries| entries.flatten().collect::<Vec<_>>());
            // Its socket lies in the node's directory; its log is the node's.
            maps.unwrap_or_default().iter().any(|entry| {
                fs::read_link(entry.path()).is_ok_and(|target| target == self.path(&format!("{node}.log")))
            })
        };
        let steps =
            self.processes().into_iter().filter(|(pid, line)| line.starts_with("slurmstepd") && is_of_node(*pid));
        let steps: Vec<i32> = steps.map(|(pid, _)| pid).collect();
        assert!(!steps.is_empty(), "no slurmstepd of {node}");
        if let Some(mut daemon) = self.daemons.remove(node) {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        steps.into_iter().for_each(end);
    }

    /// How often each job has run, by the file `marks`.
    pub(crate) fn marks(&self) -> BTreeMap<usize, usize> {
        let mut marks = BTreeMap::new();
        for line in self.text("marks").lines() {
            *marks.entry(line.parse().expect("a number")).or_insert(0) += 1;
        }
        marks
    }

    /// The lines of a log: number and host. Asserts that no job has two.
    pub(crate) fn logged(&self, name: &str) -> BTreeMap<usize, String> {
        let text = self.text(name);
        let whole = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        let mut logged = BTreeMap::new();
        for line in whole.lines().filter(|line| !line.starts_with("Seq\t")) {
            let fields: Vec<&str> = line.split('\t').collect();
            assert!(fields.len() >= 9, "a line of the log: {line:?}");
            let seq = fields[0].parse().expect("a number");
            assert!(logged.insert(seq, fields[1].to_owned()).is_none(), "job {seq} is logged twice");
        }
        logged
    }

    /// Prints a line of the record: a scene, its jobs, those that did not run or are not in the log, and those that ran
    /// twice. Nothing is lost where this is called; the figures are counted again, so that the record is not a constant.
    pub(crate) fn record(&self, scene: &str, jobs: usize, begun: Instant) {
        let (marks, logged) = (self.marks(), self.logged("log"));
        let is_lost = |job: &usize| !logged.contains_key(job) || !(marks.is_empty() || marks.contains_key(job));
        let lost = (1..=jobs).filter(is_lost).count();
        let twice = marks.values().filter(|&&times| times > 1).count();
        println!("RECORD scene | {scene} | {jobs} | {lost} | {twice} | {:.1}", begun.elapsed().as_secs_f64());
    }

    /// Asserts that the log has each of so many jobs.
    pub(crate) fn has_logged_all(&self, jobs: usize) {
        let logged: BTreeSet<usize> = self.logged("log").into_keys().collect();
        let missing: Vec<usize> = (1..=jobs).filter(|job| !logged.contains(job)).collect();
        assert!(missing.is_empty() && logged.len() == jobs, "{} in the log, not {missing:?}", logged.len());
    }
}

/// Kills a process.
pub(crate) fn end(pid: i32) {
    // It may have ended.
    let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if thread::panicking() {
            for name in ["work/out", "work/err", "slurmctld.log", "n1.log", "n2.log", "n3.log", "n1.out", "munged.out"]
            {
                let text = fs::read_to_string(self.path(name)).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                eprintln!("---- {name}\n{}", lines[lines.len().saturating_sub(15)..].join("\n"));
            }
        }
        for daemon in self.daemons.values_mut() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        // Steps and jobs; those that are just being started show up in the next look.
        for _ in 0..100 {
            let left: Vec<i32> = self.processes().into_iter().map(|(pid, _)| pid).collect();
            if left.is_empty() {
                break;
            }
            left.into_iter().for_each(end);
            thread::sleep(Duration::from_millis(20));
        }
    }
}
