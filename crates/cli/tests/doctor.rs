//! `forkless doctor`: its text and JSON, refused system calls, and missing features.

testing::usual_surroundings!();

mod callers;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use callers::{Caller, binary, skipped};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, apply_filter,
};
use serde_json::Value;

/// `forkless doctor` with these arguments, without measurements.
fn doctor(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
    command.args(["doctor", "--no-measure"]).args(words);
    command
}

fn output(words: &[&str]) -> Output {
    doctor(words).output().expect("forkless starts")
}

/// The JSON report, after checking that the exit status is the reported one.
fn parsed(output: &Output) -> Value {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(output.status.code().map(i64::from), report["verdict"]["exit_status"].as_i64(), "{output:?}");
    report
}

fn json(words: &[&str]) -> Value {
    parsed(&output(&[&["--json"], words].concat()))
}

fn text(words: &[&str]) -> String {
    let output = output(&[&["--all"], words].concat());
    assert!(matches!(output.status.code(), Some(0 | 1)) && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn feature<'a>(report: &'a Value, name: &str) -> &'a Value {
    let features = report["features"].as_array().expect("features");
    features.iter().find(|feature| feature["name"] == name).unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

// ---- the report ----

#[test]
fn default_text_is_short_and_names_the_rest() {
    for words in [&[][..], &["true"], &["--no-shared-memory", "true"]] {
        let whole = text(words);
        let short = String::from_utf8(output(words).stdout).expect("text");
        assert!(short.lines().count() <= 18 && short.lines().next() == whole.lines().next(), "{short}");
        assert!(short.contains("--all") && short.contains("--chart") && !short.contains('┏'), "{short}");
        let chart = String::from_utf8(output(&[&["--chart"], words].concat()).stdout).expect("text");
        assert!(chart.contains('┏') && whole.contains('┏') && whole.contains("Kernel features"), "{chart}");
    }
}

#[test]
fn text_starts_with_the_verdict_and_fits_80_columns() {
    let report = json(&[]);
    let text = text(&["true"]);
    assert_eq!(text.lines().next(), report["verdict"]["words"].as_str());
    let sections = [
        "Launcher for true, started by ",
        "Steps of the child",
        "Choice of launcher",
        "Kernel features for every launch",
    ];
    let others = ["Kernel features for some settings", "Not measured: --no-measure", "Limits", "System"];
    let mut rest = text.as_str();
    for section in sections.iter().chain(&others) {
        let found = rest.find(&format!("\n{section}")).unwrap_or_else(|| panic!("no {section} in its place\n{text}"));
        rest = &rest[found + 1..];
    }
    // Except lines with a path, which cannot be wrapped.
    let too_long = |line: &&str| line.chars().count() > 80 && !line.trim_start().starts_with('/');
    assert_eq!(text.lines().find(too_long), None, "\n{text}");
    assert!(!text.contains('\u{1b}'));
    for name in report["features"].as_array().expect("features").iter().filter_map(|feature| feature["name"].as_str()) {
        assert!(text.contains(&format!(" {name}")), "no {name} in\n{text}");
    }
}

/// The field names in the tables of docs/doctor.md, by the heading above.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("docs/doctor.md")).expect("docs/doctor.md");
    let mut fields: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut heading = String::new();
    for line in text.lines() {
        if let Some(title) = line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')) {
            heading = title.trim_matches('`').to_owned();
        } else if let Some(field) = line.strip_prefix("| `").and_then(|rest| rest.split('`').next()) {
            fields.entry(heading.clone()).or_default().insert(field.to_owned());
        }
    }
    fields
}

#[test]
fn json_has_exactly_the_documented_fields() {
    let report = json(&["--pid", &std::process::id().to_string(), "true"]);
    let documented = documented();
    let check = |name: &str, value: &Value| {
        let keys: BTreeSet<String> = value.as_object().expect("an object").keys().cloned().collect();
        assert_eq!(Some(&keys), documented.get(name), "{name}");
    };
    assert_eq!(report["version"], 2);
    check("top level", &report);
    for name in ["verdict", "launch", "system", "measurements"] {
        check(name, &report[name]);
    }
    check("launch.caller", &report["launch"]["caller"]);
    for (name, list) in
        [("features", &report["features"]), ("limits", &report["limits"]), ("launch.path", &report["launch"]["path"])]
    {
        let list = list.as_array().expect("a list");
        assert!(!list.is_empty(), "{name}");
        list.iter().for_each(|one| check(name, one));
    }
    let told: BTreeSet<String> = report["features"].as_array().expect("features").iter().map(word("name")).collect();
    assert_eq!(Some(&told), documented.get("features by name"));
}

fn word(key: &str) -> impl Fn(&Value) -> String {
    move |value| value[key].as_str().expect("a word").to_owned()
}

// ---- refused system calls ----

/// The report under a filter of `run` that refuses these system calls.
fn refused(calls: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
    command.args(["run", "--no-new-privs", &format!("--system-call-filter=~{calls}:EPERM")]);
    command.arg(env!("CARGO_BIN_EXE_forkless"));
    parsed(&command.args(["doctor", "--no-measure", "--json"]).output().expect("forkless starts"))
}

#[test]
fn refused_system_calls_are_reported() {
    let here = json(&[]);
    for (calls, name) in [
        ("clone3", "clone3"),
        ("close_range", "close_range"),
        ("pidfd_getfd", "pidfd_getfd"),
        ("pidfd_open", "pidfd_open"),
        ("execveat", "execveat"),
        ("memfd_create", "memfd"),
        ("landlock_create_ruleset", "Landlock"),
        // The call that installs the filter is made before the filter applies.
        ("seccomp", "seccomp"),
        ("statfs", "/proc"),
        ("clone3", "CLONE_INTO_CGROUP"),
        ("clone3", "CLONE_AUTOREAP"),
        ("clone3", "CLONE_PIDFD_AUTOKILL"),
        ("clone3", "CLONE_NNP"),
    ] {
        if feature(&here, name)["state"] != "here" {
            skipped(&format!("refusing {name}"), "it is not here anyway");
            continue;
        }
        let report = refused(calls);
        let found = feature(&report, name);
        assert_eq!(found["state"], "missing", "{calls}: {found:#}");
        assert_eq!(report["launch"]["launcher"], "Clone", "a refused call must not change the launcher");
        let verdict = &report["verdict"];
        if found["needed_for"] == "launches" {
            let told = verdict["losses"].as_array().expect("losses").iter();
            assert!(told.filter_map(Value::as_str).any(|loss| loss.starts_with(name)), "{calls}: {verdict:#}");
            assert_eq!((&verdict["health"], &verdict["exit_status"]), (&"losses".into(), &1.into()), "{calls}");
        } else {
            let missing = verdict["settings_missing"].as_array().expect("a list");
            assert!(missing.contains(&name.into()), "{calls}: {verdict:#}");
        }
    }
}

/// Without close_range the child does not use pidfd_getfd, which is then not reported as missing.
#[test]
fn unused_feature_is_untried_not_missing() {
    let report = refused("close_range");
    assert_eq!(feature(&report, "pidfd_getfd")["state"], "untried");
    assert_eq!(report["verdict"]["losses"].as_array().map(Vec::len), Some(1), "{:#}", report["verdict"]);
}

/// A system call, the index of an argument, a mask, and the value of the masked bits.
type Refusal = (i64, u8, u64, u64);

/// The report under a filter that checks arguments.
fn refused_by_argument(refusals: &[Refusal]) -> Value {
    let mut rules = BTreeMap::new();
    for &(call, index, mask, bits) in refusals {
        let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask), bits);
        let rule = SeccompRule::new(vec![condition.expect("a condition")]).expect("a rule");
        rules.insert(call, vec![rule]);
    }
    let machine = std::env::consts::ARCH.try_into().expect("a known machine");
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, machine).expect("a filter");
    let program: seccompiler::BpfProgram = filter.try_into().expect("a program");
    let mut command = doctor(&["--json"]);
    // SAFETY: the closure only makes two system calls; the BPF program was built before.
    unsafe {
        command.pre_exec(move || apply_filter(&program).map_err(|_| std::io::Error::from_raw_os_error(libc::EPERM)))
    };
    parsed(&command.output().expect("forkless starts"))
}

#[test]
fn system_calls_refused_by_argument_are_reported() {
    const PIDFD_THREAD: u64 = libc::O_EXCL as u64;
    const PIDFD_GET_INFO: u64 = 0xc040_ff0b;
    const EVERY: Refusal = (libc::SYS_clone3, 0, 0, 0);
    const USER: u64 = libc::CLONE_NEWUSER as u64;
    let here = json(&[]);
    let table: [(&[Refusal], &str); 3] = [
        (&[(libc::SYS_pidfd_open, 1, PIDFD_THREAD, PIDFD_THREAD)], "PIDFD_THREAD"),
        (&[(libc::SYS_ioctl, 1, u64::from(u32::MAX), PIDFD_GET_INFO)], "PIDFD_GET_INFO"),
        (&[EVERY, (libc::SYS_clone, 0, USER, USER)], "user namespaces"),
    ];
    for (refusals, name) in table {
        if feature(&here, name)["state"] != "here" {
            skipped(&format!("refusing {name}"), "it is not here anyway");
            continue;
        }
        let report = refused_by_argument(refusals);
        assert_eq!(feature(&report, name)["state"], "missing", "{name}: {report:#}");
        assert_eq!(feature(&report, "pidfd_open")["state"], "here", "{name}");
    }
}

/// Clone does not work if a child cannot share memory; the report recommends another launcher.
#[test]
fn posix_spawn_is_recommended_without_shared_memory() {
    const SHARED: u64 = libc::CLONE_VM as u64;
    let report = refused_by_argument(&[(libc::SYS_clone3, 0, 0, 0), (libc::SYS_clone, 0, SHARED, SHARED)]);
    assert_eq!(report["verdict"]["health"], "broken");
    assert_eq!(feature(&report, "CLONE_VM")["state"], "missing");
    assert_eq!(feature(&report, "close_range")["state"], "untried");
    assert_eq!(report["launch"]["launcher"], "PosixSpawn");
}

// ---- missing features ----

#[test]
fn doctor_works_for_root_and_ordinary_users() {
    for caller in Caller::all("doctor") {
        let mut command = caller.shell(binary());
        let output = command.arg0("forkless").args(["doctor", "--no-measure", "--json", "true"]).output();
        let report = parsed(&output.expect("forkless starts"));
        assert_eq!(report["launch"]["program"], serde_json::json!(["true"]), "{caller:?}");
        assert_ne!(report["verdict"]["health"], "broken", "{caller:?}");
    }
}

/// A user at the process limit still gets the parts of the report that need no process.
#[test]
fn doctor_reports_that_no_process_can_be_created() {
    let file = fs::File::open(env!("CARGO_BIN_EXE_forkless")).expect("the binary");
    // Root has no such limit.
    let mut command = Caller::Ordinary.forkless(&["--nproc", "1", "--exec-fd", "0", "forkless", "doctor", "--json"]);
    let report = parsed(&command.stdin(Stdio::from(file)).output().expect("forkless starts"));
    assert_eq!((&report["verdict"]["health"], &report["verdict"]["exit_status"]), (&"broken".into(), &1.into()));
    assert!(report["verdict"]["words"].as_str().is_some_and(|words| words.starts_with("No process can be created")));
    assert_eq!(feature(&report, "clone3")["state"], "untried");
    assert_eq!(report["measurements"]["none"], "no process can be created");
    let limits = report["limits"].as_array().expect("limits");
    assert_eq!(limits.iter().find(|limit| limit["name"] == "RLIMIT_NPROC").expect("told")["value"], 1);
}

#[test]
fn doctor_works_without_proc() {
    for caller in Caller::with_user_namespaces("doctor without /proc") {
        // By descriptor, because the child cannot use /proc/self/fd here.
        let file = fs::File::open(env!("CARGO_BIN_EXE_forkless")).expect("the binary");
        let mut command = caller.forkless(&["--unshare-user", "--unshare-mount", "--tmpfs", "/proc", "--exec-fd", "0"]);
        command.args(["forkless", "doctor", "--no-measure", "--json"]).stdin(Stdio::from(file));
        let report = parsed(&command.output().expect("forkless starts"));
        assert_eq!(feature(&report, "/proc")["state"], "missing", "{caller:?}");
        assert_eq!(feature(&report, "CLONE_VM")["state"], "here", "{caller:?}");
        let limits = report["limits"].as_array().expect("limits");
        let scope = limits.iter().find(|limit| limit["name"] == "kernel.yama.ptrace_scope").expect("told");
        assert_eq!(scope["value"], Value::Null);
    }
}

#[test]
fn closed_standard_streams_do_not_change_the_exit_status() {
    let shell = |redirection: &str| {
        let line = format!("exec \"$0\" doctor --no-measure {redirection}");
        let mut command = Command::new("sh");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_forkless")]).output().expect("sh")
    };
    let usual = output(&[]).status.code();
    assert_eq!(shell(">&-").status.code(), usual, "{:?}", shell(">&-"));
    assert_eq!(shell("<&- >&- 2>&-").status.code(), usual);
    let full = shell(">/dev/full");
    assert_eq!(full.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&full.stderr).contains("No space left"), "{full:?}");
    // A reader that has gone.
    let mut child = doctor(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("forkless starts");
    drop(child.stdout.take());
    let ended = child.wait_with_output().expect("ends");
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (usual, &b""[..]));
}

// ---- which launcher ----

#[test]
fn launcher_depends_on_the_described_caller() {
    let table: [(&[&str], &str); 6] = [
        (&[], "Clone"),
        (&["--memory=64G", "--threads=500", "--files=100"], "Clone"),
        (&["--no-shared-memory"], "Zygote"),
        (&["--closures"], "Fork"),
        (&["--closures", "--threads=2"], "Zygote"),
        (&["--closures", "--memory=33M"], "Zygote"),
    ];
    for (words, launcher) in table {
        let report = json(&[words, &["true"]].concat());
        assert_eq!(report["launch"]["launcher"], launcher, "{words:?}");
        let path = report["launch"]["path"].as_array().expect("a path");
        assert!(path.iter().all(|step| step["why"].as_str().is_some_and(|why| !why.is_empty())));
    }
}

#[test]
fn program_is_explained_and_not_run() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let file = directory.path().join("file");
    let report = json(&["touch", file.to_str().expect("text"), "--json"]);
    assert!(!file.exists());
    assert_eq!(report["launch"]["program"].as_array().map(Vec::len), Some(3));
    let steps = report["launch"]["steps"].as_array().expect("steps");
    let explained =
        Command::new(env!("CARGO_BIN_EXE_forkless")).args(["run", "--explain", "--supervise", "touch"]).output();
    let explained = String::from_utf8(explained.expect("forkless starts").stdout).expect("text");
    assert!(!steps.is_empty());
    steps.iter().map(|step| step.as_str().expect("words")).for_each(|step| assert!(explained.contains(step), "{step}"));
}

#[test]
fn pid_describes_the_caller_by_a_running_process() {
    let mut sleeper = Command::new("sleep").arg("600").spawn().expect("sleep");
    let pid = sleeper.id().to_string();
    let report = json(&["--pid", &pid, "--closures"]);
    let caller = &report["launch"]["caller"];
    assert_eq!((&caller["pid"], &caller["threads"]), (&sleeper.id().into(), &1.into()));
    assert!(caller["resident_bytes"].as_u64() >= caller["memory_bytes"].as_u64(), "{caller:#}");
    assert_eq!(report["launch"]["launcher"], "Fork");
    assert!(text(&["--pid", &pid]).contains(&format!("process {pid} with")));
    // Options override what is read from the process.
    assert_eq!(json(&["--pid", &pid, "--closures", "--threads=7"])["launch"]["launcher"], "Zygote");
    if !rustix::process::geteuid().is_root() && fs::read_dir("/proc/1/fd").is_err() {
        assert_eq!(json(&["--pid=1"])["launch"]["caller"]["files"], Value::Null, "files that may not be listed");
        assert_eq!(json(&["--pid=1", "--files=9"])["launch"]["caller"]["files"], 9);
    } else {
        skipped("files that may not be listed", "the files of all processes may be listed");
    }
    sleeper.kill().expect("killed");
    sleeper.wait().expect("reaped");
    let gone = output(&["--pid", &pid]);
    assert_eq!(gone.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&gone.stderr).contains(&format!("--pid: process {pid}")), "{gone:?}");
}

#[test]
fn bad_options_exit_with_2() {
    for words in [
        &["--threads=0"][..],
        &["--memory=much"],
        &["--memory=unlimited"],
        &["--pid=0"],
        &["--pid=x"],
        &["--nonsense"],
        &["--svg=/dev/null/chart.svg"],
        &["no-such-program-anywhere"],
        &["/no/such/program"],
        &["/etc/passwd"],
    ] {
        let output = output(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{words:?}: {output:?}");
    }
}

// ---- the SVG ----

/// Checks that tags nest, attributes are quoted and unique, and special characters are escaped.
fn assert_well_formed(text: &str) {
    let mut open = Vec::new();
    let mut elements = 0;
    let mut rest = text;
    while let Some((words, tag)) = rest.split_once('<') {
        let entities = words.split('&').skip(1).all(|after| {
            after.split_once(';').is_some_and(|(name, _)| ["amp", "lt", "gt", "quot", "apos"].contains(&name))
        });
        assert!(entities && !words.contains('>'), "{words:?}");
        let (tag, after) = tag.split_once('>').expect("a tag ends");
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
            continue;
        }
        let inside = tag.strip_suffix('/').unwrap_or(tag);
        let (name, attributes) = inside.split_once(' ').unwrap_or((inside, ""));
        assert!(name.chars().all(|letter| letter.is_ascii_alphanumeric()), "{tag:?}");
        let quoted: Vec<_> = attributes.split('"').collect();
        assert!(quoted.len() % 2 == 1 && quoted.last() == Some(&""), "{tag:?}");
        let names: Vec<_> = quoted.iter().step_by(2).map(|name| name.trim()).filter(|name| !name.is_empty()).collect();
        assert!(names.iter().all(|name| name.ends_with('=')), "{tag:?}");
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "duplicate attribute: {tag:?}");
        elements += 1;
        if tag.len() == inside.len() {
            open.push(name);
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty() && elements > 20, "{open:?} {rest:?}");
}

#[test]
fn svg_is_well_formed_and_self_contained() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let file = directory.path().join("chart.svg");
    text(&["--svg", file.to_str().expect("text"), "--closures"]);
    let picture = fs::read_to_string(&file).expect("written");
    assert_well_formed(&picture);
    for part in ["<title id=\"title\">", "<desc id=\"desc\">", "prefers-color-scheme:dark", "class=\"end taken\""] {
        assert!(picture.contains(part), "no {part}");
    }
    // It loads no external resource.
    assert!(!picture.replace("http://www.w3.org/2000/svg", "").contains("http"));
    assert_eq!(picture.as_bytes(), output(&["--svg=-", "--closures"]).stdout);
}

#[test]
#[should_panic(expected = r#"["g"]"#)]
fn malformed_svg_is_detected() {
    assert_well_formed(&"<g><rect x=\"1\"/></g>".repeat(20).replacen("</g>", "", 1));
}

#[test]
fn committed_svg_is_up_to_date() {
    let committed = fs::read_to_string(root().join("docs/which-launcher.svg")).expect("docs/which-launcher.svg");
    let drawn = String::from_utf8(output(&["--no-path", "--svg=-"]).stdout).expect("text");
    assert_well_formed(&committed);
    assert!(committed == drawn, "out of date: run `forkless doctor --no-path --svg=- >docs/which-launcher.svg`");
}
