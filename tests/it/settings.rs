//! Random combinations of settings, in random order: each is refused, fails at the step that the plan's order predicts,
//! or gives a child with exactly these settings.

testing::usual_surroundings!();

use forkless_tests::process;
use forkless_tests::table::model::{List, simple};
use forkless_tests::table::parent::{cgroup_mount, unmet};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Settings in the form of `Ask`.
fn set(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| format!("[set]\n{text}")).collect()
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

/// The values of each setting; the first few of each are valid.
fn choices(nobody: bool) -> Vec<Vec<String>> {
    let mut all = kernels(nobody);
    all.extend(simple::choices().map(set));
    all.extend(processes());
    all.extend(files());
    let is_there = |need: &str| unmet(&[need.to_owned()]).is_none();
    for (need, word) in [("user namespaces", "['User']"), ("landlock", "landlock")] {
        let is_kept = is_there(need);
        all.retain(|values| is_kept || !values[0].contains(word));
    }
    if is_there("terminals") {
        all.push(texts(&["setsid = true\nfd = { 0 = 'fd 31' }\n[set]\nterminal = 0\nforeground = 0"]));
    }
    if nobody && cgroup_mount().is_ok() {
        all.push(set(&["cgroup = 'mounted'"]));
    }
    if !nobody && is_there("cgroups") {
        all.push(set(&["cgroup = 'new'", "cgroup = 'new'", "cgroup = 'gone'"]));
    }
    if !nobody && is_there("CAP_SYS_ADMIN") {
        all.push(set(&["join = [['Pid', '/proc/self/fd/33']]"]));
    }
    all
}

/// Limits, ids, namespaces, privileges.
fn kernels(nobody: bool) -> Vec<Vec<String>> {
    let id = if nobody { 65534 } else { 0 };
    let maps = format!("unshare = ['User']\nmap_uid = [[0, {id}, 1]]\nmap_gid = [[0, {id}, 1]]");
    vec![
        set(&["umask = 0", "umask = 0o77", "umask = 0o777", "umask = 0o1000"]),
        set(&["rlimit = { core = [0, 0] }", "rlimit = { core = [5, 4] }"]),
        set(&["rlimit = { nofile = [50, 60] }", "rlimit = { nofile = [20, 2000000] }"]),
        set(&["scheduler = ['Batch', 0]", "scheduler = ['Idle', 0]", "scheduler = ['Fifo', 1]"]),
        set(&["affinity = [0]", "affinity = [60000]", "affinity = []"]),
        set(&["uid = 0", "uid = 65534", "uid = 1234"]),
        set(&["gid = 0", "gid = 65534", "gid = 1234"]),
        set(&["groups = []", "groups = [0]", "groups = [7, 8]"]),
        set(&["no_new_privs = true"]),
        set(&["parent_death_signal = 'SIGTERM'", "thread_death_signal = 'SIGHUP'", "parent_death_signal = '65'"]),
        set(&["chroot = '/'", "chroot = '{dir}/none'"]),
        set(&[&maps]),
        set(&["unshare = ['Uts']"]),
        set(&["unshare = ['Mount']"]),
        set(&["unshare = ['Pid', 'Ipc']"]),
        set(&["unshare = ['Cgroup']", "unshare = ['Time']", "unshare = ['Time', 'Cgroup']"]),
        set(&["join = [['Network', '/proc/self/ns/net']]", "join = [['Pid', '/proc/self/ns/pid']]"]),
        // Not the UTS namespace: a host name would be set for the whole system.
        set(&["join = [['Ipc', '/proc/self/ns/ipc']]", "join = [['Time', '/proc/self/ns/time']]"]),
        set(&["hostname = 'box'"]),
        set(&["bounding = ['KILL', 'SETUID']", "bounding = ['ALL']", "bounding = []"]),
        set(&["permitted = ['KILL', 'SYS_ADMIN']", "permitted = []", "permitted = ['ALL']"]),
        set(&["effective = ['SYS_ADMIN']", "effective = []"]),
        set(&["inheritable = ['KILL']", "inheritable = []"]),
        set(&["ambient = ['NET_BIND_SERVICE']", "ambient = ['KILL', 'CHOWN']", "ambient = []"]),
        set(&["securebits = 1", "securebits = 4", "securebits = 0"]),
        set(&["landlock = 'write'"]),
        set(&["seccomp = 'umask EPERM'"]),
        set(&["best_effort = ['Nice']"]),
        set(&["user = 'no such user'"]),
    ]
}

/// Sessions and signals.
fn processes() -> Vec<Vec<String>> {
    vec![
        texts(&["setsid = true"]),
        texts(&["process_group = 0", "process_group = 999999999"]),
        set(&["terminal = 0"]),
        set(&["foreground = 0"]),
        texts(&[
            "signal_ignore = ['SIGUSR1', 'SIGUSR2', 'SIGPIPE']",
            "signal_ignore = ['64']",
            "signal_ignore = ['SIGSTOP']",
        ]),
        texts(&[
            "signal_default = ['SIGUSR1', 'SIGUSR2', '40']",
            "signal_default = ['SIGKILL']",
            "signal_default = ['0']",
        ]),
        texts(&["signal_inherit = ['SIGUSR1', 'SIGPIPE', '40']"]),
        texts(&["signal_block = ['SIGTERM', '64']", "signal_block = ['SIGUSR1']", "signal_block = ['65']"]),
        texts(&["inherit_mask = false"]),
    ]
}

/// Mounts, directories, descriptors, raw calls.
fn files() -> Vec<Vec<String>> {
    let open = |file: &str, more: &str, variable: u32| {
        format!("{{ name = 'openat', args = ['-100', '{file}', '{more}'], result = {variable} }}")
    };
    let (null, none, a) = (open("/dev/null", "0", 0), open("{dir}/none", "0", 1), open("{dir}/a", "524288", 3));
    let copied =
        format!("call = [{null}, {{ name = 'dup3', args = ['$0', '11', '0'] }}, {{ name = 'close', args = ['$0'] }}]");
    vec![
        set(&[
            "mount = ['tmpfs {dir}/t size=1m']",
            "mount = ['bind / {dir}/t']\npivot_root = '{dir}/t'",
            "mount = ['file_system tmpfs {dir}/t 0 size=1m', 'make_dir {dir}/t/d 755']",
            "mount = ['devices {dir}/t']",
            "mount = ['unmount {dir}/t']",
            "mount = ['make_dir {dir}/none/d 755']",
            "pivot_root = '{dir}/none'",
        ]),
        texts(&["cwd = '{dir}/t'", "cwd = '/'", "cwd = '{dir}/none'"]),
        texts(&["fd = { 7 = 'null' }", "fd = { 7 = 'open r /dev/null' }", "fd = { 7 = 'open r {dir}/none' }"]),
        texts(&["fd = { 9 = 'fd 20' }", "fd = { 9 = 'fd 20', 20 = 'fd 21' }", "fd = { 9 = 'fd 600' }"]),
        texts(&["fd = { 5 = 'dup 1' }", "fd = { 5 = 'dup 9' }"]),
        texts(&["inherit_all = true"]),
        set(&[&copied, &format!("call = [{a}]\nhand_back = [3]"), &format!("call = [{none}]"), "hand_back = [2]"]),
    ]
}

/// A few of them, shuffled; mostly valid ones.
fn lists(nobody: bool) -> impl Strategy<Value = List> {
    let all = choices(nobody);
    let count = all.len();
    (vec((any::<Index>(), any::<Index>(), 0..4), 0..11), any::<(bool, bool)>()).prop_map(
        move |(picks, (launch, fork))| {
            let (mut taken, mut one) = (vec![false; count], Vec::new());
            for (which, value, luck) in picks {
                let which = which.index(count);
                let values = &all[which];
                if !std::mem::replace(&mut taken[which], true) {
                    let value = value.index(if luck == 0 { values.len() } else { values.len().min(2) });
                    one.push(values[value].clone());
                }
            }
            List { launch, fork, one, lie: Vec::new() }
        },
    )
}

/// Returns the result: `ran`, `failed` or `refused`.
fn played(list: &List, user: &str, scratch: &Path) -> Result<String, TestCaseError> {
    let text = toml::to_string(list).expect("settings are plain data");
    let helper = Command::new(env!("CARGO_BIN_EXE_case"))
        .args(["--random", &text, user, env!("CARGO_BIN_EXE_probe")])
        .env("TMPDIR", scratch)
        .output()
        .expect("a helper");
    let said = String::from_utf8_lossy(&helper.stderr);
    prop_assert!(helper.status.success(), "{}\n{}", helper.status, said);
    Ok(said.into_owned())
}

/// `FORKLESS_TEST_SCALE` times 300 cases.
fn run(user: &str) {
    let scale = std::env::var("FORKLESS_TEST_SCALE").ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
    let cases = ((300.0 * scale) as u32).max(1);
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let scratch = process::scratch();
    let ends = RefCell::new(BTreeMap::<String, u32>::new());
    let answer = TestRunner::new(config).run(&lists(user == "nobody"), |list| {
        *ends.borrow_mut().entry(played(&list, user, scratch.path())?).or_default() += 1;
        Ok(())
    });
    if let Err(error) = answer {
        panic!("{error}");
    }
    let ends = ends.into_inner();
    eprintln!("{cases} lists as {user}: {ends:?}");
    // The lists must have different results.
    let enough = |end: &str| ends.get(end).is_some_and(|count| *count * 20 > cases);
    assert!(cases < 300 || ["ran", "failed", "refused"].into_iter().all(enough), "{ends:?}");
}

/// Negative controls: the model predicts from other settings than those that are played, and must complain.
#[test]
fn controls() {
    let open = "{ name = 'openat', args = ['-100', '{dir}/a', '524288'], result = 3 }";
    let (opened, back) = (format!("set.call = [{open}]"), format!("set.call = [{open}]\nset.hand_back = [3]"));
    let none = "set.call = [{ name = 'openat', args = ['-100', '{dir}/none', '0'] }]";
    let (one, two) = ("signal_ignore = ['SIGUSR1']", "signal_default = ['SIGUSR1']");
    let pairs: [(&[&str], &[&str], &str); 26] = [
        (&["set.nice = 3"], &["set.nice = 4"], "nice is \"3\", should be \"4\""),
        (&["set.umask = 0o77"], &["set.umask = 0"], "the umask is 0077"),
        (&[""], &["set.rlimit = { core = [0, 0] }\nset.nice = 2"], "nice is"),
        (&["set.nice = 3"], &["set.no_new_privs = true"], "nice is \"3\", should be"),
        (&["set.nice = 20"], &["set.nice = 3"], "Check failed"),
        (&["set.nice = 3"], &["set.nice = 20"], "succeeded"),
        (&["set.affinity = [60000]"], &["set.affinity = [0]"], "Affinity failed"),
        (&[""], &["set.chroot = '{dir}/none'"], "succeeded"),
        (&["setsid = true"], &[""], "the session is"),
        (&[""], &["setsid = true"], "the session is"),
        (&["process_group = 0"], &[""], "the process group is"),
        (&["process_group = 999999999"], &["process_group = 0"], "SetPgid failed"),
        (&[one], &[""], "ignored signals are"),
        (&[one, two], &[two, one], "ignored signals are [12, 40], should be {10, 12, 40}"),
        (&["signal_inherit = ['SIGPIPE']"], &[""], "ignored signals are"),
        (&["signal_block = ['SIGTERM']"], &[""], "blocked signals are"),
        (&["inherit_mask = false"], &[""], "blocked signals are"),
        (&["fd = { 7 = 'null' }"], &[""], "descriptors are"),
        (&["inherit_all = true"], &[""], "descriptors are"),
        (&["fd = { 7 = 'null' }"], &["fd = { 7 = 'fd 20' }"], "fd 7 is \"/dev/null rw\", should be"),
        (&["fd = { 5 = 'dup 1' }"], &["fd = { 5 = 'dup 9' }"], "succeeded"),
        (&["cwd = '/'"], &[""], "cwd is \"/\""),
        (&[none, "fd = { 7 = 'open r {dir}/none' }"], &[none], "Open failed"),
        (&[none], &[none, "fd = { 7 = 'open r {dir}/none' }"], "should be Some(\"Open\")"),
        (&[&back], &[&opened], "handed back was"),
        (&["fd = { 9 = 'fd 600' }"], &["fd = { 9 = 'fd 20' }"], "PassFd failed"),
    ];
    for (said, predicted, complaint) in pairs {
        deny(said, predicted, complaint);
    }
}

/// Plays some settings and predicts from others.
fn deny(said: &[&str], predicted: &[&str], complaint: &str) {
    let words = |all: &[&str]| all.iter().map(|&text| text.into()).collect();
    let list = List { launch: false, fork: false, one: words(said), lie: words(predicted) };
    let scratch = process::scratch();
    let error = played(&list, "root", scratch.path()).expect_err(complaint).to_string();
    assert!(error.contains(complaint), "{said:?} as {predicted:?}: {error}");
}

/// The same, for settings that need root or a feature of this machine.
#[test]
fn controls_with_privileges() {
    let pairs = [
        ("CAP_SETPCAP", "set.bounding = ['KILL']", "", "cap.bounding is"),
        ("CAP_SETPCAP", "set.securebits = 1", "", "securebits is"),
        ("CAP_KILL", "set.ambient = ['KILL']", "", "cap.ambient is"),
        ("CAP_KILL", "set.inheritable = ['KILL']", "", "cap.inheritable is"),
        ("CAP_KILL", "set.uid = 1234\nset.ambient = ['KILL']", "set.uid = 1234", "cap.permitted is \"0x20\""),
        ("CAP_KILL", "set.permitted = []\nset.no_new_privs = true", "set.no_new_privs = true", "cap.permitted is"),
        ("CAP_SETUID", "set.uid = 1234", "set.uid = 1234\nset.landlock = 'write'", "succeeded"),
        (
            "root",
            "set.parent_death_signal = 'SIGTERM'\nset.permitted = []",
            "set.parent_death_signal = 'SIGTERM'",
            "parent_death_signal is \"0\"",
        ),
        ("root", "set.personality = 0x40000\nset.permitted = []", "set.personality = 0x40000", "personality is"),
        ("CAP_SYS_ADMIN", "set.join = [['Pid', '/proc/self/fd/33']]", "", "ns.pid is"),
        ("CAP_SYS_ADMIN", "set.join = [['Time', '/proc/self/ns/time']]", "", "Check failed"),
        ("cgroups", "set.cgroup = 'new'", "", "cgroup is"),
        (
            "terminals",
            "setsid = true\nfd = { 0 = 'fd 31' }\nset.terminal = 0",
            "setsid = true\nfd = { 0 = 'fd 31' }",
            "terminal is \"yes\"",
        ),
        ("terminals", "setsid = true\nfd = { 0 = 'fd 31' }", "setsid = true", "fd 0 is"),
    ];
    for (need, said, predicted, complaint) in pairs {
        match unmet(&[need.to_owned()]) {
            Some(why) => say(&format!("SKIPPED: control {said:?} because {why}\n")),
            None => deny(&[said], &[predicted], complaint),
        }
    }
}

/// Written to the terminal directly, because the harness hides the output of passing tests.
fn say(text: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
}

#[test]
fn as_root() {
    if !forkless_tests::process::is_root() {
        return say("SKIPPED: random settings as root because it needs root\n");
    }
    run("root");
}

#[test]
fn as_an_ordinary_user() {
    run("nobody");
}
