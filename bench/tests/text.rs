//! What `forkless bench` prints for people: the width of its lines, the targets, the progress, and the end by a signal.

testing::usual_surroundings!();

mod rows;

use std::{
    fs,
    io::{Read, Write},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, ExitStatus, Output, Stdio},
    thread,
    time::Duration,
};

use forkless::{Pty, PtySize};
use rustix::process::{Pid, Signal, kill_process};

/// How often a bench is interrupted; `FORKLESS_TEST_SCALE` multiplies it.
const INTERRUPTIONS: usize = 4;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary directory")
}

/// A short bench with all tables.
fn bench_words(out: &Path) -> Vec<String> {
    let words = [
        "--tables",
        "--quick",
        "--samples=5",
        "--time=1",
        "--memory=0,1",
        "--mappings=100",
        "--fds=3,64",
        "--threads=2",
    ];
    let launchers = "--launchers=floor,posix_spawn,cpython,tokio,forkless-status,forkless-tokio-prepared-status";
    let mut words: Vec<String> = words.map(str::to_owned).to_vec();
    words.extend([launchers.to_owned(), "--children=120".to_owned(), format!("--out={}", out.display())]);
    words
}

fn forkless(words: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkless-bench"));
    command.args(words).env_remove("COLUMNS");
    command
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// The text without the colours of a terminal.
fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, p)| p))
}

/// The lines that are longer than `width`.
fn longer(text: &str, width: usize) -> Vec<&str> {
    text.lines().filter(|line| line.trim_end_matches('\r').chars().count() > width).collect()
}

#[test]
fn lines_fit_the_width_and_wide_terminals_show_more_columns() {
    let out = directory();
    let mut columns = Vec::new();
    for (width, variable) in [(60, Some("60")), (80, None), (80, Some("80")), (60, Some("20")), (220, Some("220"))] {
        let mut command = forkless(&bench_words(out.path()));
        command.args(["--no-progress", "--targets"]);
        variable.map(|width| command.env("COLUMNS", width));
        let text = text(&command.output().expect("forkless starts"));
        assert_eq!(longer(&text, width), [""; 0], "{width} columns");
        for part in
            ["Small parent", "1 MiB of memory", "2 threads", "Exit of one of many children", "Summary", "Targets"]
        {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        let head = text.lines().find(|line| line.trim_start().starts_with("launcher ")).expect("a table");
        columns.push((head.split_whitespace().count(), text.matches("Columns for a wider terminal").count()));
    }
    assert_eq!(columns[1], columns[2], "80 columns without a terminal");
    assert_eq!(columns[0], columns[3], "60 columns at least");
    assert!(columns[0].0 < columns[1].0 && columns[1].0 < columns[4].0, "{columns:?}");
    assert_eq!(columns[4].1, 0, "{columns:?}");
    // A file has all columns.
    let table = fs::read_to_string(out.path().join("table.txt")).expect("a table");
    assert!(table.contains("launches") && !table.contains("wider terminal"), "{table}");
}

/// The results of all conditions are in files; `--tables` prints them too.
#[test]
fn bench_prints_at_most_25_lines_and_the_tables_only_on_request() {
    const MOST: usize = 25;
    let out = directory();
    for (tables, width) in [(false, "60"), (false, "80"), (true, "80")] {
        let mut words = bench_words(out.path());
        words.retain(|word| tables || word != "--tables");
        let output = forkless(&words).arg("--no-progress").env("COLUMNS", width).output().expect("forkless starts");
        let text = text(&output);
        for part in ["Summary", "Small parent", "Slower than the fastest alternative", "index.html"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        let has_table = text.lines().any(|line| line.trim_start().starts_with("launcher "));
        assert_eq!((text.lines().count() > MOST, has_table), (tables, tables), "{width}: {text}");
        // The file has them always, and what is not shown is there.
        let table = fs::read_to_string(out.path().join("table.txt")).expect("a table");
        assert!(table.contains("2 threads at once") && table.contains("launcher "), "{table}");
        for note in table.split("\nNotes\n").nth(1).into_iter().flat_map(str::lines) {
            assert_eq!(table.matches(note).count(), 1, "{table}");
        }
        let hint = format!("see {}/table.txt", out.path().display());
        assert!(tables || !text.contains("Not shown") || text.replace("\n  ", " ").contains(&hint), "{text}");
    }
}

#[test]
fn comparison_and_report_fit_the_width() {
    let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("record/2026-11-22");
    let out = directory();
    // The same record with other times, so that every figure has changed.
    let text_of = fs::read_to_string(record.join("results.json")).expect("a record");
    let mut other: serde_json::Value = serde_json::from_str(&text_of).expect("JSON");
    let is_changed = |name: &str, column: &str| name != "floor" && column.contains("_p50_");
    rows::multiply(&mut other, |name, _, column| is_changed(name, column).then_some(3.0));
    let changed = out.path().join("results.json");
    fs::write(&changed, other.to_string()).expect("a file");
    let paths = |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
    let (record, changed) = (record.display().to_string(), changed.display().to_string());
    for width in [60, 80] {
        let run = |words: &[String]| {
            let mut command = forkless(words);
            command.env("COLUMNS", width.to_string()).output().expect("forkless starts")
        };
        let compared = run(&paths(&["compare", &record, &changed]));
        assert_eq!(compared.status.code(), Some(1), "{compared:?}");
        let compared = String::from_utf8(compared.stdout).expect("UTF-8");
        assert!(compared.contains("slower") || width < 80, "{compared}");
        let place = format!("--out={}", out.path().display());
        let report = text(&run(&paths(&["report", &record, &place])));
        for text in [&compared, &report] {
            assert_eq!(longer(text, width), [""; 0], "{width} columns");
            assert!(text.lines().count() > 5, "{text}");
        }
        assert!(!report.contains("Targets"), "{report}");
        assert!(text(&run(&paths(&["report", "--targets", &record, &place]))).contains("Targets"));
    }
}

#[test]
fn targets_appear_only_on_request() {
    let out = directory();
    let few = ["--only=fds", "--no-progress"];
    for asked in [false, true] {
        let mut command = forkless(&bench_words(out.path()));
        command.args(few);
        if asked {
            command.arg("--targets");
        }
        let text = text(&command.output().expect("forkless starts"));
        let page = fs::read_to_string(out.path().join("index.html")).expect("a page");
        let table = fs::read_to_string(out.path().join("table.txt")).expect("a table");
        for shown in [&text, &page, &table] {
            assert_eq!(shown.contains("Targets"), asked, "{shown}");
        }
        let json = fs::read_to_string(out.path().join("results.json")).expect("a record");
        assert!(json.contains("vfork baseline"), "the record has the targets always: {json}");
    }
}

#[test]
fn progress_is_a_line_that_is_overwritten_or_sparse_lines() {
    let out = directory();
    let output = forkless(&bench_words(out.path())).output().expect("forkless starts");
    let lines = String::from_utf8(output.stderr).expect("UTF-8");
    let first = lines.lines().next().expect("a line");
    assert!(first.starts_with("forkless: bench: 0 %, rows 1-") && first.ends_with(" left: small parent"), "{lines}");
    // A line in ten seconds.
    assert!(lines.lines().count() < 20, "{lines}");

    let Ok(pty) = Pty::open(PtySize::new(24, 80)) else {
        return eprintln!("SKIPPED: progress on a terminal, because no pseudo-terminal can be opened");
    };
    let mut words = bench_words(out.path());
    words.retain(|word| !word.starts_with("--launchers"));
    words.extend(["--only=memory", "--launchers=floor,std"].map(str::to_owned));
    let (status, shown) = on_terminal(&pty, &words);
    assert!(status.success(), "{status:?}: {shown}");
    assert!(shown.contains(" %, rows 1-2 of 4, about "), "{shown}");
    // What is left on the screen fits, too.
    let shown = plain(&shown);
    let last: Vec<&str> = shown.lines().map(|line| line.trim_end().rsplit('\r').next().unwrap_or("")).collect();
    assert_eq!(longer(&last.join("\n"), 80), [""; 0]);
    assert!(!last.iter().any(|line| line.contains(" left: ")), "{last:?}");
}

/// A bench of some seconds for each of eight conditions, with methods that have other processes.
fn long(out: &Path) -> Vec<String> {
    let words = ["--tables", "--only=memory", "--memory=0,1,2,3,4,5,6,7", "--time=24", "--samples=100000000"];
    let launchers = "--launchers=floor,std,posix_spawn,cpython,forkless-status,forkless-zygote";
    let mut words: Vec<String> = words.map(str::to_owned).to_vec();
    words.extend([launchers.to_owned(), format!("--out={}", out.display())]);
    words
}

/// Waits until no process has this in its environment.
fn wait_for_the_end_of_all(mark: &str) {
    let has_mark = |entry: &fs::DirEntry| {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        environment.windows(mark.len()).any(|part| part == mark.as_bytes())
    };
    let left = || fs::read_dir("/proc").expect("procfs").flatten().filter(has_mark).count();
    for _ in 0..2_000 {
        if left() == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{} processes are left", left());
}

/// Checks what an interrupted bench has printed and left; returns the number of finished rows.
fn check_interrupted(shown: &str, out: &Path, scratch: &Path, width: usize) -> usize {
    assert_eq!(longer(shown, width), [""; 0]);
    let rows = shown.split("nterrupted after ").nth(1).unwrap_or_else(|| panic!("not interrupted: {shown}"));
    let mut numbers = rows.split_whitespace().filter_map(|word| word.parse::<usize>().ok());
    let (finished, all) = (numbers.next().expect("a number"), numbers.next().expect("a number"));
    assert!(finished <= all && all >= 5 * 8, "{shown}");
    let tables = shown.matches("launcher ").count();
    assert!(tables >= finished.div_ceil(6), "{finished} rows, {tables} tables: {shown}");
    assert!(!out.exists() || fs::read_dir(out).expect("a directory").count() == 0, "files of an interrupted bench");
    assert_eq!(fs::read_dir(scratch).expect("a directory").count(), 0, "temporary files are left");
    finished
}

#[test]
fn interrupted_bench_prints_what_it_has_and_leaves_nothing() {
    let scale = std::env::var("FORKLESS_TEST_SCALE").ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
    for round in 0..((INTERRUPTIONS as f64 * scale) as usize).max(1) {
        let (place, scratch) = (directory(), directory());
        let out = place.path().join("out");
        let mark = format!("FORKLESS_TEST_MARK=interrupted-{}-{round}", std::process::id());
        let mut command = forkless(&long(&out));
        command.env("TMPDIR", scratch.path()).env("FORKLESS_TEST_MARK", mark.split_once('=').expect("a value").1);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("forkless starts");
        // Signal handlers are installed before temporary files are made.
        while fs::read_dir(scratch.path()).expect("a directory").count() == 0 {
            thread::sleep(Duration::from_millis(2));
        }
        thread::sleep(Duration::from_millis(fastrand::u64(..8_000)));
        let (signal, number) = if round % 3 == 2 { (Signal::TERM, 15) } else { (Signal::INT, 2) };
        kill_process(Pid::from_child(&child), signal).expect("alive");
        let mut shown = String::new();
        child.stdout.take().expect("a pipe").read_to_string(&mut shown).expect("text");
        let output = child.wait_with_output().expect("ends");
        assert_eq!(output.status.signal(), Some(number), "{output:?}");
        let finished = check_interrupted(&shown, &out, scratch.path(), 80);
        let told = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(told.contains(&format!("interrupted after {finished} of ")), "{told}");
        wait_for_the_end_of_all(&mark);
    }
}

#[test]
fn interrupt_key_ends_the_bench_after_its_finished_rows() {
    let Ok(mut pty) = Pty::open(PtySize::new(24, 80)) else {
        return eprintln!("SKIPPED: the interrupt key, because no pseudo-terminal can be opened");
    };
    let (place, scratch) = (directory(), directory());
    let out = place.path().join("out");
    let mark = format!("FORKLESS_TEST_MARK=key-{}", std::process::id());
    let mut command = forkless::Command::new(env!("CARGO_BIN_EXE_forkless-bench"));
    command.args(long(&out)).env_remove("COLUMNS").env("TERM", "xterm").env("TMPDIR", scratch.path()).pty(&pty);
    command.env("FORKLESS_TEST_MARK", mark.split_once('=').expect("a value").1);
    let mut child = command.spawn().expect("forkless starts");
    drop(command);
    // The second condition is measured.
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains(": 1 MiB of memory: ") {
        let mut buffer = [0; 4096];
        let count = pty.read(&mut buffer).expect("output");
        assert!(count > 0, "{}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&buffer[..count]);
    }
    pty.write_all(b"\x03").expect("a key");
    let mut rest = Vec::new();
    let status = pty.read_until_exit(&mut child, Duration::from_secs(1), &mut rest).expect("ends");
    let shown = plain(&String::from_utf8(rest).expect("UTF-8"));
    let shown: Vec<&str> = shown.lines().map(|line| line.trim_end().rsplit('\r').next().unwrap_or("")).collect();
    assert_eq!(status.signal(), Some(2), "{shown:?}");
    assert!(check_interrupted(&shown.join("\n"), &out, scratch.path(), 80) >= 5, "{shown:?}");
    wait_for_the_end_of_all(&mark);
}

/// Runs the command on the terminal; returns the status and what it has written.
fn on_terminal(pty: &Pty, words: &[String]) -> (ExitStatus, String) {
    let mut command = forkless::Command::new(env!("CARGO_BIN_EXE_forkless-bench"));
    command.args(words).env_remove("COLUMNS").env("TERM", "xterm").pty(pty);
    let mut child = command.spawn().expect("forkless starts");
    let mut text = Vec::new();
    let status = pty.read_until_exit(&mut child, Duration::from_secs(1), &mut text).expect("ends");
    (status, String::from_utf8(text).expect("UTF-8"))
}
