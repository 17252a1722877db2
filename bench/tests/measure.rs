//! `forkless bench` end to end with few samples: files, format and errors. Asserts no times.

testing::usual_surroundings!();

mod rows;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Output},
};

use forkless::BpfInstruction;
use rows::rows;
use serde_json::Value;
use testing::modules::{Modules, Profile};

/// A program that exits with 0.
const TRUE: &str = "/bin/true";

/// A short bench, which takes seconds even in a debug build.
fn bench(out: &Path, words: &[&str]) -> Output {
    bench_command(out, words).output().expect("forkless starts")
}

fn bench_command(out: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkless-bench"));
    command.args(["--no-progress", "--samples=5", "--time=1", "--out"]).arg(out);
    if !words.iter().any(|word| word.starts_with("--children")) {
        command.arg("--children=120");
    }
    command.args(words);
    command
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary directory")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The field names in the tables of `bench/FORMAT.md`, by heading.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("FORMAT.md");
    let text = fs::read_to_string(path).expect("bench/FORMAT.md");
    let mut fields: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut heading = String::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            heading = title.trim().trim_matches('`').to_owned();
        } else if let Some(field) = line.strip_prefix("| `").and_then(|rest| rest.split('`').next()) {
            fields.entry(heading.clone()).or_default().insert(field.to_owned());
        }
    }
    fields
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().expect("an object").keys().cloned().collect()
}

#[test]
fn json_has_exactly_the_documented_fields() {
    let out = directory();
    let output = bench(
        out.path(),
        &[
            "--quick",
            "--launchers=floor,forkless-status",
            "--only=memory,fds,alive",
            "--memory=0",
            "--fds=3,100",
            "--json=-",
        ],
    );
    let report = json(&output);
    let documented = documented();
    assert_eq!(report["version"], 4);
    assert_eq!(keys(&report), documented["top level"]);
    assert_eq!(keys(&report["machine"]), documented["machine"]);
    let rows = rows(&report);
    let targets = report["targets"].as_array().expect("targets");
    let alive = report["alive"].as_array().expect("alive");
    assert!(!rows.is_empty() && !targets.is_empty() && !alive.is_empty());
    alive.iter().for_each(|row| assert_eq!(keys(row), documented["alive"]));
    rows.iter().for_each(|row| assert_eq!(keys(row), documented["rows"]));
    targets.iter().for_each(|target| assert_eq!(keys(target), documented["targets"]));
}

/// The same with the language modules of forkless, built as for their own tests.
fn bench_with_modules(out: &Path, words: &[&str]) -> (Output, Modules) {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let modules = Modules::build(own, own.parent().expect("a directory of cargo's"), Profile::Dev);
    let modules = modules.unwrap_or_else(|error| panic!("{error:#}"));
    modules.skipped().iter().for_each(|line| eprintln!("{line}"));
    let mut command = bench_command(out, words);
    let output = modules.add_to(&mut command).expect("no colon").output().expect("forkless starts");
    (output, modules)
}

/// The command beside the library, as `cargo xtask dist` installs both.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[test]
fn warm_programs_have_rows_of_exec_and_of_a_template() {
    let (out, base) = (directory(), Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-warm"));
    testing::dist::warm(&base, &base.join("build")).expect("the library");
    let command = base.join("forkless-bench");
    let _ = fs::remove_file(&command);
    fs::copy(env!("CARGO_BIN_EXE_forkless-bench"), &command).expect("a copy");
    // Templates are not made of files that have just changed.
    std::thread::sleep(std::time::Duration::from_secs(4));
    let mut bench = Command::new(&command);
    bench.args(["--only=warm", "--time=1", "--samples=20", "--no-progress", "--json=-", "--out"]).arg(out.path());
    let report = json(&bench.env_remove("LD_LIBRARY_PATH").output().expect("forkless starts"));
    let rows = rows(&report);
    let of = |launcher: &str| -> BTreeSet<&str> {
        let own = rows.iter().filter(|row| row["launcher"] == launcher);
        own.map(|row| row["program"].as_str().expect("a program")).collect()
    };
    assert!(of("forkless-warm").contains("/bin/true"), "{report:#}");
    assert!(of("forkless-warm").is_subset(&of("posix_spawn")));
    assert_eq!(of("floor"), of("posix_spawn"));
    rows.iter().for_each(|row| assert_eq!(keys(row), documented()["rows"]));
    let page = fs::read_to_string(out.path().join("index.html")).expect("a page");
    // Sentences compare the two only where the difference is clear, which it is not on every machine.
    assert!(page.contains("forkless-warm") && page.contains("Program &quot;/bin/true&quot;"), "it is on the page");
}

#[test]
fn every_launcher_of_the_format_has_a_row() {
    let out = directory();
    let (output, modules) =
        bench_with_modules(out.path(), &["--memory=0,1", "--mappings=100", "--fds=3,64", "--threads=2", "--json=-"]);
    let report = json(&output);
    let rows = rows(&report);
    let names: BTreeSet<String> = rows.iter().map(|row| row["launcher"].as_str().expect("a name").to_owned()).collect();
    let engines = report["machine"]["engines"].as_object().expect("an object");
    let absent: BTreeSet<String> = engines.iter().filter(|(_, v)| v.is_null()).map(|(name, _)| name.clone()).collect();
    absent.iter().for_each(|name| eprintln!("SKIPPED: {name}, because it is not installed"));
    modules.have_rows(&report).expect("all of ours");
    // Only its own part has it.
    let warm = BTreeSet::from(["forkless-warm".to_owned()]);
    let absent: BTreeSet<String> = absent.union(&warm).cloned().collect();
    assert_eq!(names, documented()["launchers"].difference(&absent).cloned().collect());
    for row in &rows {
        for field in ["held_p50_us", "held_p99_us", "total_p50_us", "total_p99_us", "rate_per_s", "cpu_us"] {
            // Some languages know the CPU time of children in clock ticks only, which may be 0 for a few launches.
            let least = if field == "cpu_us" { 0.0 } else { f64::MIN_POSITIVE };
            assert!(row[field].as_f64().is_some_and(|value| value >= least), "{field} of {row}");
        }
        assert!(row["held_p50_us"].as_f64() <= row["total_p50_us"].as_f64(), "{row}");
        for what in ["held", "total"] {
            let spread = ["p50", "p90", "p99", "max"].map(|part| row[format!("{what}_{part}_us")].as_f64());
            assert!(spread.is_sorted(), "{row}");
        }
        for time in ["held", "total"] {
            let of = |what: &str| row[format!("{time}_{what}_us")].as_f64().expect("a time");
            assert!(of("p50_low") <= of("p50") && of("p50") <= of("p50_high"), "{row}");
        }
        assert!(row["n"].as_u64() >= Some(5), "{row}");
    }
    let has = |field: &str, value: u64| rows.iter().any(|row| row[field] == value);
    assert!(has("parent_mib", 1) && has("mappings", 100) && has("fds", 64) && has("threads", 2) && has("pipes", 3));
    // Every engine takes part in the sweeps, except those that launch as another one does. Those with threads take part in that of threads.
    let notes = fs::read_to_string(out.path().join("table.txt")).expect("text");
    for name in engines.keys().filter(|name| !absent.contains(*name)) {
        let of = |field: &str, value: Value| rows.iter().any(|row| row["launcher"] == **name && row[field] == value);
        let alike = ["asyncio", "backticks", "ipc-run", "spawnsync", "forkless-perl-fastspawn", "cpython-run"];
        let alike = alike.iter().any(|end| name.ends_with(end));
        assert_eq!(of("mappings", 100.into()), !alike, "{name}");
        assert!(of("fds", 64.into()), "{name}");
        let told = notes.contains(&format!("no row of {name} with 64 open files, not close-on-exec: "));
        assert_eq!(of("close_on_exec", false.into()), !told, "{name}");
        assert_eq!(told, name.contains("node"), "{name}");
        let threads = ["go", "java", "node-spawn", "forkless-node-spawn", "glib", "libuv"].contains(&name.as_str())
            || name.contains("cpython");
        assert_eq!(of("threads", 2.into()), threads, "{name}");
    }
}

#[test]
fn settings_are_measured_small_and_large() {
    let out = directory();
    let (output, _) = bench_with_modules(out.path(), &["--quick", "--only=settings", "--memory=0,8", "--json=-"]);
    let report = json(&output);
    let rows = rows(&report);
    if rows.is_empty() {
        return eprintln!("SKIPPED: settings, because none is available here");
    }
    for setting in rows.iter().map(|row| &row["setting"]) {
        let of = |launcher: &str, mib: u64| {
            let fits =
                |row: &&Value| row["launcher"] == launcher && row["setting"] == *setting && row["parent_mib"] == mib;
            rows.iter().find(fits).unwrap_or_else(|| panic!("{launcher} with {setting} at {mib} MiB is missing"))
        };
        for mib in [0, 8] {
            assert!(of("floor", mib)["lacks"].is_string());
            for launcher in ["fork", "forkless-spawn", "forkless-status", "forkless-prepared"] {
                assert!(of(launcher, mib)["lacks"].is_null());
            }
        }
    }
    assert!(rows.iter().all(|row| row["setting"] != "none"));
    let text = report["machine"]["engines"].as_object().expect("an object");
    for (name, version) in text {
        let here = rows.iter().any(|row| row["launcher"] == name.as_str());
        // Only Go and the Python package support settings that an ordinary user may use; these engines support none.
        let none = name.contains("perl") || ["java", "glib"].contains(&name.as_str());
        let has_namespaces = name == "go" || name.starts_with("forkless-cpython");
        let asked = has_namespaces || rows.iter().any(|row| row["setting"] == "user") && !none;
        assert_eq!(here, asked && version.is_string(), "{name}");
    }
}

#[test]
fn every_waiting_method_has_rows() {
    let out = directory();
    let report = json(&bench(out.path(), &["--only=alive", "--json=-"]));
    let alive = report["alive"].as_array().expect("alive");
    let names: BTreeSet<String> = alive.iter().map(|row| row["waiter"].as_str().expect("a name").to_owned()).collect();
    let mut expected = documented()["waiters"].clone();
    if report["machine"]["engines"]["libuv"].is_null() {
        eprintln!("SKIPPED: libuv, because it is not installed");
        expected.remove("libuv");
    }
    assert_eq!(names, expected);
    for row in alive {
        assert!(row["cpu_p50_us"].as_f64().is_some_and(|value| value > 0.0), "{row}");
        for time in ["cpu", "latency"] {
            let spread = ["p50_low", "p50", "p50_high"].map(|part| row[format!("{time}_{part}_us")].as_f64());
            assert!(spread.is_sorted() && spread[0].is_some(), "{row}");
            let spread = ["p50", "p90", "p99", "max"].map(|part| row[format!("{time}_{part}_us")].as_f64());
            assert!(spread.is_sorted(), "{row}");
        }
        let many = row["children"] == 120;
        assert!(many || row["children"] == 100, "{row}");
        assert_eq!((row["ratio_to_few"].is_f64(), row["parent_bytes"].is_f64()), (many, many), "{row}");
    }
    let csv = fs::read_to_string(out.path().join("alive.csv")).expect("alive.csv");
    let heads: BTreeSet<String> = csv.lines().next().expect("a head").split(',').map(str::to_owned).collect();
    assert_eq!((heads, csv.lines().count() - 1), (documented()["alive"].clone(), alive.len()));
    let few = bench(out.path(), &["--only=alive", "--children=50", "--json=-"]);
    assert!(json(&few)["alive"].as_array().expect("alive").is_empty());
}

#[test]
fn output_files_are_written_and_consistent() {
    let out = directory();
    let words = ["--tables", "--only=memory,threads", "--launchers=floor,std", "--memory=0,1", "--threads=1,2"];
    let output = bench(out.path(), &words);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    for part in ["Small parent", "launches/s", "Summary", "index.html"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let read = |name: &str| fs::read(out.path().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let report: Value = serde_json::from_slice(&read("results.json")).expect("JSON");
    let csv = String::from_utf8(read("results.csv")).expect("text");
    assert_eq!(csv.lines().count() - 1, rows(&report).len());
    let heads: BTreeSet<String> = csv.lines().next().expect("a head").split(',').map(str::to_owned).collect();
    assert_eq!(heads, documented()["rows"]);
    for plot in ["memory", "threads"] {
        assert!(read(&format!("{plot}.svg")).starts_with(b"<svg"));
        assert!(read(&format!("{plot}-dark.svg")).starts_with(b"<svg"));
    }
    let page = String::from_utf8(read("index.html")).expect("text");
    assert_eq!(page.matches("<svg role=\"img\"").count(), 4, "two panels each of memory and threads");
    let table = String::from_utf8(read("table.txt")).expect("text");
    assert!(text.contains("Small parent") && table.contains("Summary"), "{table}");
}

#[test]
fn record_contains_no_host_name_or_path() {
    let out = directory();
    let output = bench(out.path(), &["--quick", "--launchers=std", "--memory=0", "--fds=3", "--threads=1", "--json=-"]);
    let text = json(&output)["machine"].to_string();
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy().into_owned();
    assert!(host.len() < 4 || !text.contains(&host), "{text}");
    assert!(!text.contains("/home") && !text.contains("/tmp") && !text.contains("/root"), "{text}");
}

#[test]
fn bench_launches_the_given_program() {
    let out = directory();
    let few =
        ["--quick", "--launchers=floor,popen", "--memory=0", "--fds=3", "--threads=1", "--mappings=0", "--json=-"];
    let run = |program: &[&str]| {
        let mut words = few.to_vec();
        words.extend(program);
        bench(out.path(), &words)
    };
    let report = json(&run(&["sh", "-c", "echo 'it'\"'\"'s'; exit 0"]));
    assert_eq!(report["machine"]["own_target"], false);

    let failed = run(&["sh", "-c", "exit 3"]);
    assert_eq!(failed.status.code(), Some(1));
    let words = String::from_utf8(failed.stderr).expect("text");
    assert!(words.contains("method floor") && words.contains('3'), "{words}");

    let missing = run(&["no-such-program-anywhere"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8(missing.stderr).expect("text").contains("no-such-program-anywhere"));
}

#[test]
fn program_may_have_the_name_of_a_subcommand() {
    let out = directory();
    let few = ["--quick", "--only=memory", "--launchers=floor", "--memory=0", "--json=-"];
    let names = directory();
    let program = names.path().join("report");
    fs::copy(TRUE, &program).expect("a copy");
    let after_dashes = bench(out.path(), &[&few[..], &["--", "sh", "-c", "exit 0", "report"]].concat());
    let by_path = bench(out.path(), &[&few[..], &[program.to_str().expect("UTF-8")]].concat());
    for output in [after_dashes, by_path] {
        assert_eq!(json(&output)["machine"]["own_target"], false);
    }
}

#[test]
fn bad_options_exit_with_2() {
    let out = directory();
    for words in
        [["--only=nothing"], ["--launchers=nobody"], ["--time=0"], ["--samples=0"], ["--memory=x"], ["--nonsense"]]
    {
        assert_eq!(bench(out.path(), &words).status.code(), Some(2), "{words:?}");
    }
}

/// A filter that answers this system call with ENOSYS.
fn refusing(number: u32) -> [BpfInstruction; 4] {
    const ANSWER: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    [
        // Loads the number, the first field of `seccomp_data`.
        BpfInstruction { code: 0x20, jt: 0, jf: 0, k: 0 },
        BpfInstruction { code: 0x15, jt: 0, jf: 1, k: number },
        BpfInstruction { code: 0x06, jt: 0, jf: 0, k: ANSWER },
        BpfInstruction { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ]
}

/// Without clone3, forkless launches by clone, and the record notes that.
#[test]
fn record_notes_that_clone3_is_missing() {
    const NOTE: &str = "clone3 is refused or missing: forkless uses clone";
    let words = ["--no-progress", "--quick", "--only=memory", "--memory=0", "--samples=1", "--time=0.1"];
    let table = |change: fn(&mut forkless::Command)| {
        let out = directory();
        let mut command = forkless::Command::new(env!("CARGO_BIN_EXE_forkless-bench"));
        change(command.args(words).args(["--launchers=floor,forkless-status", "--out"]).arg(out.path()));
        let output = command.output().expect("forkless starts");
        assert!(output.status.success(), "{output:?}");
        fs::read_to_string(out.path().join("table.txt")).expect("a table")
    };
    assert!(!table(|_| ()).contains(NOTE));
    let refused = table(|command| {
        command.no_new_privs(true).seccomp(refusing(libc::SYS_clone3 as u32));
    });
    assert!(refused.contains(NOTE), "{refused}");
}

#[test]
fn temporary_program_is_removed() {
    let out = directory();
    let scratch = directory();
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkless-bench"));
    command.args(["--no-progress", "--samples=1", "--time=1", "--launchers=floor", "--quick", "--memory=0"]);
    let output = command.arg("--out").arg(out.path()).env("TMPDIR", scratch.path()).output().expect("forkless starts");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_dir(scratch.path()).expect("directory").count(), 0);
}

#[test]
fn interrupted_bench_removes_its_temporary_files() {
    let out = directory();
    let scratch = directory();
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkless-bench"));
    command.args(["--time=600", "--samples=100000000", "--launchers=floor", "--out"]).arg(out.path());
    let mut child = command.env("TMPDIR", scratch.path()).spawn().expect("forkless starts");
    // The directory of the program is created after the signal handlers are installed.
    while fs::read_dir(scratch.path()).expect("directory").count() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("alive");
    assert_eq!(child.wait().expect("ends").signal(), Some(15));
    assert_eq!(fs::read_dir(scratch.path()).expect("directory").count(), 0);
}

/// A user who can write to the directory must not be able to redirect writes to other files by links.
#[test]
fn symbolic_links_in_the_output_directory_are_not_followed() {
    let place = directory();
    let (out, victim) = (place.path().join("out"), place.path().join("victim"));
    fs::create_dir(&out).expect("a directory");
    fs::write(&victim, "precious").expect("a file");
    let names = ["results.json", "results.csv", "alive.csv", "table.txt", "index.html"];
    for name in names {
        std::os::unix::fs::symlink(&victim, out.join(name)).expect("a link");
    }
    let output = bench(&out, &["--quick", "--launchers=floor", "--only=memory,alive", "--memory=0"]);
    assert!(output.status.success(), "{output:?}");
    assert!(fs::read(&victim).expect("a file") == b"precious", "the bench wrote through a symbolic link");
    for name in names {
        let about = fs::symlink_metadata(out.join(name)).expect("a file");
        assert!(about.is_file() && about.len() > 0, "{name}: {about:?}");
    }
}

/// What `forkless doctor` asks for, and the fields that it reads.
#[test]
fn doctor_gets_the_times_of_its_launchers() {
    let launchers = "floor,forkless-spawn,forkless-status,forkless-prepared-launch,forkless-prepared-zygote,\
                     forkless-posix_spawn,forkless-fork,posix_spawn,fork";
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkless-bench"));
    command.args(["--brief", "1024", "--time", "0.9", "--launchers", launchers]);
    let brief = json(&command.output().expect("forkless starts"));
    let rows = brief["rows"].as_array().expect("rows");
    let names: BTreeSet<&str> = rows.iter().map(|row| row["launcher"].as_str().expect("a name")).collect();
    assert_eq!(names, launchers.split(',').collect());
    for row in rows {
        assert!(row["n"].as_u64() >= Some(5), "{row}");
        assert!(row["held_p50_us"].as_f64() <= row["total_p50_us"].as_f64(), "{row}");
        assert!(row["held_p99_us"].is_f64() && row["total_p99_us"].is_f64(), "{row}");
        assert!(row["ratio_to_floor"].as_f64().is_some_and(|ratio| ratio > 0.0), "{row}");
    }
    // fork takes longer with a parent of 256 MiB than with a small one: it copies more page tables.
    assert!(brief["fork"]["gib_us"].as_f64() > Some(0.0) && brief["fork"]["small_us"].as_f64() > Some(0.0), "{brief}");
    assert!(brief["debug_build"].is_boolean());
}
