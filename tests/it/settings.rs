//! Random combinations of settings in random order: each is refused, fails as one of them predicts, or gives a child that
//! is what was asked.

use forkless_tests::table::model::List;
use forkless_tests::table::settings::Settings;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::Command;

/// What each setting may be; the first few of each are good.
fn choices(nobody: bool) -> Vec<Vec<String>> {
    let id = if nobody { 65534 } else { 0 };
    let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let maps = format!("unshare = ['User']\nmap_uid = [[0, {id}, 1]]\nmap_gid = [[0, {id}, 1]]");
    vec![
        texts(&["umask = 0", "umask = 0o77", "umask = 0o777", "umask = 0o1000"]),
        texts(&["nice = 1", "nice = 19", "nice = 0", "nice = -1", "nice = 20"]),
        texts(&["rlimit = { core = [0, 0] }", "rlimit = { core = [5, 4] }"]),
        texts(&["rlimit = { nofile = [50, 60] }", "rlimit = { nofile = [20, 2000000] }"]),
        texts(&["scheduler = ['Batch', 0]", "scheduler = ['Idle', 0]", "scheduler = ['Fifo', 1]"]),
        texts(&["affinity = [0]", "affinity = [60000]", "affinity = []"]),
        texts(&["timer_slack = 1", "timer_slack = 77777"]),
        texts(&["personality = 0x40000", "personality = 0"]),
        texts(&["oom_score_adj = 1", "oom_score_adj = 1000", "oom_score_adj = -500", "oom_score_adj = 1001"]),
        texts(&["uid = 0", "uid = 65534", "uid = 1234"]),
        texts(&["gid = 0", "gid = 65534", "gid = 1234"]),
        texts(&["groups = []", "groups = [0]", "groups = [7, 8]"]),
        texts(&["no_new_privs = true"]),
        texts(&["parent_death_signal = 'SIGTERM'", "parent_death_signal = '64'", "parent_death_signal = '65'"]),
        texts(&["chroot = '/'", "chroot = '{dir}/none'"]),
        vec![maps],
        texts(&["unshare = ['Uts']"]),
        texts(&["unshare = ['Mount']"]),
        texts(&["unshare = ['Pid', 'Ipc']"]),
        texts(&["unshare = ['Cgroup']", "unshare = ['Time']", "unshare = ['Time', 'Cgroup']"]),
        texts(&["hostname = 'box'"]),
        texts(&["mount = ['tmpfs {dir}/t size=1m']"]),
        texts(&["landlock = 'write'"]),
        texts(&["seccomp = 'umask EPERM'"]),
        texts(&["best_effort = ['Nice']"]),
        texts(&["user = 'no such user'"]),
    ]
}

/// A few settings, shuffled; mostly good ones.
fn lists(nobody: bool) -> impl Strategy<Value = List> {
    let all = choices(nobody);
    let count = all.len();
    (vec((any::<Index>(), any::<Index>(), 0..3), 0..9), any::<bool>()).prop_map(move |(picks, launch)| {
        let (mut taken, mut one) = (vec![false; count], Vec::new());
        for (which, value, luck) in picks {
            let which = which.index(count);
            let values = &all[which];
            if !std::mem::replace(&mut taken[which], true) {
                let value = value.index(if luck == 0 { values.len() } else { values.len().min(2) });
                one.push(toml::from_str::<Settings>(&values[value]).expect("settings"));
            }
        }
        List { launch, one, lie: Vec::new() }
    })
}

/// Gives what it came to: `ran`, `failed` or `refused`.
fn played(list: &List, user: &str) -> Result<String, TestCaseError> {
    let text = toml::to_string(list).expect("settings are plain data");
    let helper = Command::new(env!("CARGO_BIN_EXE_case"))
        .args(["--random", &text, user, env!("CARGO_BIN_EXE_probe")])
        .output()
        .expect("a helper");
    let said = String::from_utf8_lossy(&helper.stderr);
    prop_assert!(helper.status.success(), "{}\n{}\n{}", helper.status, said, text);
    Ok(said.into_owned())
}

/// `FORKLESS_TEST_SCALE` times 75 cases.
fn run(user: &str) {
    let scale = std::env::var("FORKLESS_TEST_SCALE").ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
    let cases = ((75.0 * scale) as u32).max(1);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let ends = RefCell::new(BTreeMap::<String, u32>::new());
    let answer = TestRunner::new(config).run(&lists(user == "nobody"), |list| {
        *ends.borrow_mut().entry(played(&list, user)?).or_default() += 1;
        Ok(())
    });
    if let Err(error) = answer {
        panic!("{error}");
    }
    let ends = ends.into_inner();
    eprintln!("{cases} lists as {user}: {ends:?}");
    // Nothing is shown by lists that all come to the same.
    let enough = |end: &str| ends.get(end).is_some_and(|count| *count * 20 > cases);
    assert!(cases < 75 || ["ran", "failed", "refused"].into_iter().all(enough), "{ends:?}");
}

/// The model is not easily pleased: what is played is not what it goes by.
#[test]
fn controls() {
    let pairs = [
        ("nice = 3", "nice = 4", "nice is \"3\", should be \"4\""),
        ("umask = 0o77", "umask = 0", "the umask is 0077"),
        ("", "rlimit = { core = [0, 0] }\nnice = 2", "nice is"),
        ("nice = 3", "no_new_privs = true", "nice is \"3\", should be"),
        ("nice = 20", "nice = 3", "Check failed"),
        ("nice = 3", "nice = 20", "succeeded"),
        ("affinity = [60000]", "affinity = [0]", "Affinity failed"),
        ("", "chroot = '{dir}/none'", "succeeded"),
    ];
    for (played_words, predicted, complaint) in pairs {
        let settings = |words| toml::from_str::<Settings>(words).expect("settings");
        let list = List { launch: false, one: vec![settings(played_words)], lie: vec![settings(predicted)] };
        let error = played(&list, "root").expect_err(predicted).to_string();
        assert!(error.contains(complaint), "{played_words} as {predicted}: {error}");
    }
}

#[test]
fn as_root() {
    // SAFETY: reads a number.
    if unsafe { libc::geteuid() } != 0 {
        let text = "SKIPPED: random settings as root because it needs root\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
        return;
    }
    run("root");
}

#[test]
fn as_an_ordinary_user() {
    run("nobody");
}
