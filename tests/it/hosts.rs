//! Plays the behaviour table and some scenarios in many kinds of hosts: containers, services, limits, debuggers, large
//! processes.
//!
//! `bin/host.rs` changes its own environment to that of the host, and executes the programs of other tests there.
//! `FORKLESS_HOST` selects hosts by a part of their names. `FORKLESS_HOST_CASES=n` plays every n-th case of the table
//! in each host, instead of a few. Hosts that change the whole system need `FORKLESS_OWN_SYSTEM=1`.

testing::usual_surroundings!();

use forkless_tests::filter;
use forkless_tests::patience;
use forkless_tests::profile::{self, CONTAINER_CAPABILITIES};
use forkless_tests::table::parent::refusals_of;
use forkless_tests::table::{Case, load};
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use tempfile::TempDir;

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cases");
const HOST: &str = env!("CARGO_BIN_EXE_host");
const SCENARIO: &str = env!("CARGO_BIN_EXE_scenario");

/// The exit status of `host` if it cannot become this kind of host.
const CANNOT: i32 = 77;

/// An ordinary user without any other processes.
const USER: &str = "user=54321";

/// Successful launches of every form, failed ones, a storm of signals, captures, a zygote.
const SCENARIOS: [&str; 7] = [
    "debugged::run",
    "leaks::launches_leak_nothing",
    "leaks::failed_launches_leak_nothing",
    "storms::launches_succeed_in_a_storm_of_signals",
    "capture::all_streams_are_read_and_written_concurrently",
    "capture::input_is_written_to_the_program",
    "zygote::children_are_the_callers_own",
];

/// A case that takes too long to play in many hosts.
const HEAVY: &str = "more arguments than the kernel takes";

/// A kind of host, and the tests to run there.
struct Host {
    name: &'static str,
    /// The arguments before the program.
    words: Vec<String>,
    scenarios: Vec<&'static str>,
    /// The route of the table: the refused calls. None: the table is not played.
    route: Option<&'static str>,
    /// Also plays cases that need a capability, a namespace or a device, if available.
    is_privileged: bool,
    /// Expected failures: the name of a case or scenario, and a part of its message.
    refused: Vec<(&'static str, &'static str)>,
}

impl Host {
    /// A host with all scenarios, without the table.
    fn new(name: &'static str, kinds: &[&str]) -> Self {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned());
        let words = [HOST.to_owned()].into_iter().chain(kinds).chain(["--".to_owned()]).collect();
        Self { name, words, scenarios: SCENARIOS.to_vec(), route: None, is_privileged: false, refused: Vec::new() }
    }

    /// A host under another program, which must be able to run `/bin/true`.
    fn under(name: &'static str, words: &[&str]) -> Self {
        Self { words: words.iter().map(|word| (*word).to_owned()).collect(), ..Self::new(name, &[]) }
    }

    fn scenarios(mut self, scenarios: &[&'static str]) -> Self {
        self.scenarios = scenarios.to_vec();
        self
    }

    fn table(self, route: &'static str) -> Self {
        Self { route: Some(route), ..self }
    }

    fn privileged(self) -> Self {
        Self { is_privileged: true, ..self }
    }

    fn refuses(mut self, refused: &[(&'static str, &'static str)]) -> Self {
        self.refused.extend(refused);
        self
    }

    fn does_play(&self, case: &Case) -> bool {
        let usual = case.routes.as_ref().is_none_or(|routes| routes.iter().any(|route| route == "normal"));
        usual && case.name != HEAVY && (self.is_privileged || case.needs.is_empty())
    }
}

/// Written to the terminal directly, because the harness hides the output of passing tests.
fn say(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The result of a run.
enum Found {
    Good,
    /// This kind of host is not available here.
    NoSuchHost(String),
    Wrong(String),
}

fn run(host: &Host, program: &str, args: &[String]) -> Found {
    let mut command = Command::new(&host.words[0]);
    command.args(&host.words[1..]).arg(program).args(args).env("RUST_BACKTRACE", "0").env("DEBUGINFOD_URLS", "");
    command.env("FORKLESS_TEST_SCALE", "0.02").env("FORKLESS_TEST_SECONDS", "0.3").process_group(0);
    let output = match end(&mut command) {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::NoSuchHost(error.to_string()),
        Err(error) => return Found::Wrong(error.to_string()),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    for line in text.lines().filter(|line| line.starts_with("SKIPPED:") || line.starts_with("USED:")) {
        say(&format!("{line} ({})\n", host.name));
    }
    match output.status.code() {
        Some(0) => Found::Good,
        Some(CANNOT) => Found::NoSuchHost(text.trim().to_owned()),
        _ => Found::Wrong(format!("{}\n{text}", output.status)),
    }
}

/// Runs the command; one that takes far too long is killed and reported.
fn end(command: &mut Command) -> io::Result<Output> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let group = child.id() as i32;
    let (over, limit) = channel::<()>();
    let guard = std::thread::spawn(move || {
        let late = limit.recv_timeout(patience::limit(120)) == Err(RecvTimeoutError::Timeout);
        // SAFETY: the group was created for this run and has no other processes.
        late && unsafe { libc::kill(-group, libc::SIGKILL) } == 0
    });
    let output = child.wait_with_output()?;
    drop(over);
    if guard.join().expect("guard") {
        return Err(io::Error::other(format!("it did not end: {}", String::from_utf8_lossy(&output.stderr))));
    }
    Ok(output)
}

/// A test to run in a host.
struct Run<'a> {
    host: &'a Host,
    /// The name of the case or scenario.
    name: String,
    program: &'static str,
    args: Vec<String>,
}

/// Whether an environment variable does not exclude this test.
fn is_wanted(variable: &str, name: &str) -> bool {
    std::env::var(variable).map_or(true, |part| name.contains(&part))
}

fn runs(hosts: &[Host]) -> Vec<Run<'_>> {
    let cases = load(Path::new(CASES)).expect("the table can be read");
    let every = std::env::var("FORKLESS_HOST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    let mut runs = Vec::new();
    for (at, host) in hosts.iter().enumerate().filter(|(_, host)| is_wanted("FORKLESS_HOST", host.name)) {
        for scenario in &host.scenarios {
            let args = scenario.split(' ').map(str::to_owned).collect();
            runs.push(Run { host, name: (*scenario).to_owned(), program: SCENARIO, args });
        }
        let Some(route) = host.route else { continue };
        let played = cases.iter().filter(|case| host.does_play(case));
        // Different cases in each host.
        for case in played.skip(at % every).step_by(every).filter(|case| is_wanted("FORKLESS_CASE", &case.name)) {
            let args = [&toml::to_string(case).expect("a case"), route, env!("CARGO_BIN_EXE_probe")].map(str::to_owned);
            let program = env!("CARGO_BIN_EXE_case");
            runs.push(Run { host, name: case.name.clone(), program, args: args.to_vec() });
        }
    }
    runs
}

/// Runs all tests in all hosts, a few at a time, and fails with all errors.
#[track_caller]
fn in_each(hosts: &[Host]) {
    let runs = runs(hosts);
    let (next, wrong, missing) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, |n| n.get()) {
            scope.spawn(|| {
                while let Some(Run { host, name, program, args }) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let refused = host.refused.iter().find(|(known, _)| known == name).map(|(_, words)| *words);
                    match (run(host, program, args), refused) {
                        (Found::Good, None) => {}
                        (Found::Wrong(what), Some(words)) if what.contains(words) => {}
                        (Found::NoSuchHost(why), _) => missing.lock().unwrap().push((host.name, why)),
                        (Found::Wrong(what), _) => {
                            let what = format!("{}: {name}: {what}\n", host.name);
                            // At once, because the time limit may end this program before the summary.
                            say(&what);
                            wrong.lock().unwrap().push(what);
                        }
                        (Found::Good, Some(words)) => {
                            wrong.lock().unwrap().push(format!("{}: {name}: should be refused: {words}\n", host.name));
                        }
                    }
                }
            });
        }
    });
    let mut missing = missing.into_inner().unwrap();
    missing.sort_unstable();
    missing.dedup();
    missing.iter().for_each(|(name, why)| say(&format!("SKIPPED: host {name} because {why}\n")));
    let wrong = wrong.into_inner().unwrap();
    eprintln!("{} hosts, {} runs", hosts.len(), runs.len());
    assert!(wrong.is_empty(), "{} of {} runs went wrong:\n{}", wrong.len(), runs.len(), wrong.concat());
}

/// Seccomp filters in files, for `host`.
struct Filters(TempDir);

impl Filters {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        // The host may run as an ordinary user.
        let open = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        fs::set_permissions(place.path(), open).expect("one's own directory");
        Self(place)
    }

    /// The kind of host with this filter; none, with a message, if the filter is not available.
    fn host_kind(&self, name: &str, filter: io::Result<Vec<seccompiler::BpfProgram>>) -> Option<String> {
        match filter {
            Ok(programs) => {
                let path = self.0.path().join(name.replace(' ', "-"));
                fs::write(&path, profile::encode(&programs)).expect("written");
                Some(format!("filter={}", path.display()))
            }
            Err(error) => {
                say(&format!("SKIPPED: host {name} because {error}\n"));
                None
            }
        }
    }
}

/// A file of a Debian package: installed, or unpacked by `cargo xtask test` below cargo's target directory.
fn of_package(package: &str, file: &str) -> io::Result<PathBuf> {
    let unpacked = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("packages").join(package);
    let places = [Path::new("/").join(file), unpacked.join(file)];
    let found = places.into_iter().find(|path| path.exists());
    found.ok_or_else(|| io::Error::other(format!("/{file} of Debian's package {package} is missing")))
}

/// Negative controls: `host` really changes its environment.
#[test]
fn each_kind_of_host_has_its_property() {
    let filters = Filters::new();
    let filter = filters.host_kind("no umask", filter::programs(&refusals_of("umask EPERM")).map_err(io::Error::other));
    let no_change = format!("exec perl -e 'exit(syscall({}, 66, 0, 0, 0, 0) != 1)'", libc::SYS_prctl);
    let hosts: [(&[&str], &str); 14] = [
        (&[&filter.expect("a filter")], "grep -q 'Seccomp:.2' /proc/self/status"),
        (&["capabilities=CAP_CHOWN,CAP_KILL"], "grep -q 'CapBnd:.0*21$' /proc/self/status"),
        (&[USER], "test $(id -u) = 54321"),
        (&["limit=nofile:20"], "test $(ulimit -Hn) = 20"),
        (&["deny-write-execute"], &no_change),
        (&["hidepid=2", USER], "! test -e /proc/1"),
        (&["no-proc"], "! test -e /proc/self"),
        (&["read-only=/mnt"], "! test -w /etc && touch $TMPDIR/x"),
        (&["process-1"], "test $$ = 1 && test $(readlink /proc/self) -lt 10"),
        (&["cgroup=pids:pids.max:24"], "grep -q forkless-host- /proc/self/cgroup"),
        (&["cgroup=memory:memory.max:100000000"], "grep -q forkless-host- /proc/self/cgroup"),
        (&["frozen=1"], "grep -q freezer:.*forkless-host- /proc/self/cgroup"),
        (&["frozen=2"], "grep -q 0::.*forkless-host- /proc/self/cgroup"),
        (&["deadline=reset"], "test $(cut -d' ' -f41 /proc/$$/stat) = 6"),
    ];
    for (kinds, line) in hosts {
        let host = Host::new("control", kinds);
        match run(&host, "/bin/sh", &["-c".to_owned(), line.to_owned()]) {
            Found::Good => {}
            Found::NoSuchHost(why) => say(&format!("SKIPPED: control of host {kinds:?} because {why}\n")),
            Found::Wrong(what) => panic!("{kinds:?} is no such host: {what}"),
        }
        let plain = Host::new("control", &[]);
        let seen = run(&plain, "/bin/sh", &["-c".to_owned(), line.to_owned()]);
        assert!(matches!(seen, Found::Wrong(_)), "an ordinary host looks as one that is {kinds:?}");
    }
}

/// The default profiles of Docker and containerd differ only in three calls that no launch makes; containerd's is Go
/// code.
#[test]
fn containers() {
    let filters = Filters::new();
    let capabilities = format!("capabilities={}", CONTAINER_CAPABILITIES.join(","));
    let docker = "usr/share/gocode/src/github.com/docker/docker/profiles/seccomp/default.json";
    let engines = [
        ("a container of Docker's", "golang-github-docker-docker-dev", docker),
        ("a container of Podman's", "golang-github-containers-common", "usr/share/containers/seccomp.json"),
    ];
    let filters = engines.map(|(name, package, file)| {
        let profile = of_package(package, file).and_then(|file| profile::container(&file, &CONTAINER_CAPABILITIES));
        filters.host_kind(name, profile)
    });
    let mut hosts = Vec::new();
    if let Some(filter) = &filters[0] {
        let docker = Host::new(engines[0].0, &[filter, &capabilities]).table("given:clone3 ENOSYS, pidfd_getfd EPERM");
        hosts.push(docker.refuses(&[
            ("a cgroup that is not a cgroup directory", "that needs clone3, which is refused or missing here"),
            ("a personality", "set the personality 0x40000: Operation not permitted"),
            ("the caller's user namespace to join", "the errno is Some(1)"),
        ]));
    }
    if let Some(filter) = &filters[1] {
        let podman = Host::new(engines[1].0, &[filter, &capabilities]).table("given:");
        hosts.push(podman.refuses(&[
            ("a personality", "set the personality 0x40000: Function not implemented"),
            ("the caller's user namespace to join", "the errno is Some(1)"),
        ]));
    }
    in_each(&hosts);
}

/// Restrictions of services in systemd.exec(5).
#[test]
fn services() {
    let filters = Filters::new();
    let mut hosts = vec![
        Host::new("a service with MemoryDenyWriteExecute", &["deny-write-execute"]).table("given:").privileged(),
        Host::new("a service with a read-only root", &["read-only=/mnt"]).table("given:"),
    ];
    let errno = profile::systemd("@system-service", Some(libc::EPERM)).map(|program| vec![program]);
    let kill = profile::systemd("@system-service", None).map(|program| vec![program]);
    let calls = filters.host_kind("a service with SystemCallFilter", errno);
    let namespaces = filters.host_kind("a service with RestrictNamespaces", profile::restrict_namespaces());
    // Newer versions of systemd have `seccomp` in the set.
    let allowed = profile::systemd_calls("@system-service").unwrap_or_default();
    let missing =
        NOT_IN_SYSTEM_SERVICE.iter().filter(|(call, ..)| !allowed.contains(*call)).flat_map(|(_, cases)| *cases);
    let missing: Vec<_> = missing.collect();
    if let Some(filter) = &calls {
        let host = Host::new("a service with SystemCallFilter, EPERM", &[filter]);
        let refused = missing.iter().map(|(case, errno, _)| (*case, *errno)).filter(|(_, errno)| !errno.is_empty());
        hosts.push(host.table("given:pidfd_getfd EPERM").refuses(&refused.collect::<Vec<_>>()));
    }
    if let Some(filter) = filters.host_kind("a service with SystemCallFilter that kills", kill) {
        let host = Host::new("a service with SystemCallFilter, killed", &[&filter]);
        let refused = missing.iter().map(|(case, _, killed)| (*case, *killed));
        hosts.push(host.table("given:pidfd_getfd KILL").refuses(&refused.collect::<Vec<_>>()));
    }
    if let Some(filter) = &namespaces {
        let host = Host::new("a service with RestrictNamespaces", &[filter]).table("given:clone3 ENOSYS");
        hosts.push(host.refuses(&[
            ("the caller's user namespace to join", "the errno is Some(1)"),
            ("a cgroup that is not a cgroup directory", "that needs clone3, which is refused or missing here"),
        ]));
    }
    if let (Some(calls), Some(namespaces)) = (&calls, &namespaces) {
        // The last filter refuses `seccomp`.
        let kinds = ["read-only=/mnt", "deny-write-execute", namespaces, calls, USER];
        hosts.push(Host::new("a service with all of these and a user of its own", &kinds));
    }
    in_each(&hosts);
}

type Refused = (&'static str, &'static str, &'static str);

/// Calls that no version of `@system-service` has, or that of systemd 252 has not; with the cases that make them, and how those fail
/// if the filter returns EPERM, and if it kills.
const NOT_IN_SYSTEM_SERVICE: [(&str, &[Refused]); 2] = [
    (
        "seccomp",
        &[
            ("a seccomp filter", "set the seccomp filter: Operation not permitted", SECCOMP_KILLED),
            ("a seccomp filter without no_new_privs", "the errno is Some(1)", SECCOMP_KILLED),
            ("a seccomp filter that refuses exec", "the step is \"Seccomp\"", "the step is \"Seccomp\""),
            ("a seccomp filter that kills exec", "the step is \"Seccomp\"", "the step is \"Seccomp\""),
            (
                "a seccomp filter that kills the rest of exec",
                "set the seccomp filter: Operation not permitted",
                SECCOMP_KILLED,
            ),
            ("an invalid seccomp filter", "the errno is Some(1)", "the errno is None"),
        ],
    ),
    (
        "chroot",
        &[
            // With an errno this fails as expected.
            ("several best-effort steps", "", CHROOT_KILLED),
            ("a root directory as an ordinary user", "", CHROOT_KILLED),
        ],
    ),
];
const SECCOMP_KILLED: &str = "set the seccomp filter: the child was killed before it could run the program";
const CHROOT_KILLED: &str = "chroot: the child was killed before it could run the program";

#[test]
fn procfs_hidden_or_missing() {
    let filters = Filters::new();
    let old = filter::programs(&refusals_of("close_range ENOSYS, clone3 ENOSYS, pidfd_open ENOSYS"));
    let old = filters.host_kind("no procfs and an old kernel", old.map_err(io::Error::other)).expect("a filter");
    in_each(&[
        Host::new("an ordinary user where procfs hides others (hidepid=2)", &["hidepid=2", USER]).table("given:"),
        Host::new("no procfs", &["no-proc"])
            .scenarios(&[
                "debugged::run",
                "leaks::launches_leak_nothing",
                "leaks::failed_launches_leak_nothing",
                "leaks::launches_leak_nothing launcher=fork",
                "storms::launches_succeed_in_a_storm_of_signals",
                "capture::input_is_written_to_the_program",
                "zygote::children_are_the_callers_own",
            ])
            // A zygote executes this program again: /proc/self/exe.
            .refuses(&[("zygote::children_are_the_callers_own", "no procfs is mounted")]),
        // The child cannot read the size of its file-descriptor table.
        Host::new("no procfs and an old kernel", &["no-proc", &old]).scenarios(&[
            "debugged::run",
            "leaks::launches_leak_nothing",
            "leaks::failed_launches_leak_nothing",
        ]),
    ]);
}

#[test]
fn limits() {
    // With one thread, because four concurrent launches need more descriptors.
    let few = [
        "debugged::run",
        "leaks::failed_launches_leak_nothing",
        "capture::all_streams_are_read_and_written_concurrently",
        "capture::input_is_written_to_the_program",
        "capture_alone::captures_work_with_few_descriptors",
        "zygote::children_are_the_callers_own",
    ];
    in_each(&[
        Host::new("a limit of 20 descriptors", &["limit=nofile:20"]).scenarios(&few),
        Host::new("a limit of 40 processes", &[USER, "limit=nproc:40"]),
        Host::new("a limit of 300 MB of address space", &["limit=as:300000000"]).table("given:"),
        Host::new("a cgroup of 24 processes", &["cgroup=pids:pids.max:24"]),
        Host::new("a cgroup of 100 MB of memory", &["cgroup=memory:memory.max:100000000"]),
    ]);
}

/// Orphaned grandchildren become children of process 1.
#[test]
fn process_1() {
    let scenarios = [
        "debugged::run",
        "leaks::launches_leak_nothing",
        "leaks::failed_launches_leak_nothing",
        "storms::launches_succeed_in_a_storm_of_signals",
        "capture::all_streams_are_read_and_written_concurrently",
        "zygote::children_are_the_callers_own",
    ];
    in_each(&[Host::new("process 1 of a container", &["process-1"])
        .scenarios(&scenarios)
        .table("given:")
        .privileged()]);
}

/// `debuggers.rs` tests breakpoints and traces.
#[test]
fn debuggers() {
    let gdb = [
        "gdb",
        "-nx",
        "-batch",
        "-return-child-result",
        "-ex",
        "handle all nostop noprint pass",
        "-ex",
        "run",
        "--args",
    ];
    let strace = ["strace", "-f", "-qqq", "-o", "/dev/null", "-e", "trace=process"];
    let perf = ["perf", "stat", "-o", "/dev/null", "-e", "task-clock", "--"];
    let all = [
        "debugged::run",
        "leaks::failed_launches_leak_nothing",
        "storms::launches_succeed_in_a_storm_of_signals",
        "capture::input_is_written_to_the_program",
        "zygote::children_are_the_callers_own",
    ];
    let mut hosts = Vec::new();
    // gdb is slow: it reads a large program in each run.
    for (name, words, scenarios) in
        [("gdb", &gdb[..], &all[..3]), ("strace -f", &strace, &all), ("perf stat", &perf, &all[..3])]
    {
        let host = Host::under(name, words).scenarios(scenarios);
        match run(&host, "/bin/true", &[]) {
            Found::Good => hosts.push(host),
            Found::NoSuchHost(why) | Found::Wrong(why) => say(&format!("SKIPPED: host under {name} because {why}\n")),
        }
    }
    in_each(&hosts);
}

#[test]
fn crowds() {
    in_each(&[
        Host::new("10,000 threads", &[])
            .scenarios(&["debugged::run with=threads:10000", "leaks::launches_leak_nothing with=threads:10000"]),
        // Other scenarios assume that some high descriptor is closed.
        Host::new("500,000 open files", &[]).scenarios(&[
            "debugged::run with=files:500000",
            "storms::launches_succeed_in_a_storm_of_signals with=files:500000",
        ]),
        Host::new("60,000 mappings", &[])
            .scenarios(&["debugged::run with=mappings:60000", "leaks::launches_leak_nothing with=mappings:60000"]),
    ]);
}

/// Caller and children are frozen in the middle of launches.
#[test]
fn freezers() {
    in_each(&[Host::new("a freezer", &["frozen=2"]), Host::new("a freezer of version 1", &["frozen=1"])]);
}

#[test]
fn deadlines() {
    in_each(&[
        Host::new("SCHED_DEADLINE", &[]).scenarios(&["unusual::deadline"]),
        Host::new("SCHED_DEADLINE with SCHED_FLAG_RESET_ON_FORK", &["deadline=reset"]),
    ]);
}

macro_rules! all_with {
    ($kind:literal) => {
        [
            concat!("debugged::run with=", $kind, ":1"),
            concat!("leaks::launches_leak_nothing with=", $kind, ":1"),
            concat!("leaks::launches_leak_nothing launcher=fork with=", $kind, ":1"),
            concat!("leaks::failed_launches_leak_nothing with=", $kind, ":1"),
            concat!("storms::launches_succeed_in_a_storm_of_signals with=", $kind, ":1"),
            concat!("storms::killed_children_do_not_slow_down_later_launches with=", $kind, ":1"),
            concat!("capture::input_is_written_to_the_program with=", $kind, ":1"),
            concat!("zygote::children_are_the_callers_own with=", $kind, ":1"),
        ]
    };
}

#[test]
fn services_of_the_kernel() {
    in_each(&[
        Host::new("write protection by userfaultfd", &[]).scenarios(&all_with!("userfaultfd")),
        Host::new("a child that is killed while its memory is protected", &[])
            .scenarios(&["unusual::killed_while_protected"]),
        Host::new("a heap with a protection key", &[]).scenarios(&all_with!("pkey")),
        Host::new("an io_uring with a thread of the kernel", &[]).scenarios(&all_with!("sqpoll")),
    ]);
}

/// Scope 3 cannot be reset, so this only runs in a system that ends with the tests.
#[test]
fn yama() {
    if std::env::var_os("FORKLESS_OWN_SYSTEM").is_none() {
        return say("SKIPPED: hosts under Yama because its scopes hold for the whole system: cargo xtask kernels\n");
    }
    const REFUSED: &str = "given:pidfd_getfd EPERM";
    in_each(&[Host::new("Yama's scope 0, an ordinary user", &["yama=0", USER]).table("given:")]);
    in_each(&[
        Host::new("Yama's scope 1", &["yama=1"]).table("given:"),
        Host::new("Yama's scope 1, an ordinary user", &["yama=1", USER]).table(REFUSED),
    ]);
    in_each(&[
        Host::new("Yama's scope 2", &["yama=2"]).table("given:"),
        Host::new("Yama's scope 2, an ordinary user", &["yama=2", USER]).table(REFUSED),
    ]);
    in_each(&[
        Host::new("Yama's scope 3", &["yama=3"]).table(REFUSED),
        Host::new("Yama's scope 3, an ordinary user", &["yama=3", USER]).table(REFUSED),
    ]);
}
