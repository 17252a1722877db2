//! The matrix: every system call of a launch, with every way to refuse it.
//!
//! `FORKLESS_MATRIX=all` plays each row with every setup that makes the call; otherwise only with the first.
//! `FORKLESS_MATRIX_ONLY` selects cells by a part of their names, `FORKLESS_MATRIX_LAUNCHER` all launches of one launcher.

testing::usual_surroundings!();

use forkless_tests::matrix::cells::{Cell, Launch, Traced, cells, without_call, without_row};
use forkless_tests::matrix::page::page;
use forkless_tests::matrix::{BASES, FORMS, LAUNCHERS, Matrix, Setup};
use forkless_tests::process;
use forkless_tests::table::parent::unmet;
use forkless_tests::trace::{Call, Options, trace};
use serde::Serialize;
use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/matrix.toml");

/// The request to the helper.
#[derive(Serialize)]
struct Batch<'a> {
    launch: Option<&'a Launch>,
    setup: Vec<&'a Setup>,
    cell: Vec<&'a Cell>,
}

/// The helper, and the directory with its request and its own files.
fn helper(what: &str, batch: &Batch<'_>) -> (Command, tempfile::TempDir) {
    let scratch = process::scratch();
    let request = scratch.path().join("request");
    std::fs::write(&request, toml::to_string(batch).expect("a text")).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_matrix"));
    command.arg(what).arg(&request).env("TMPDIR", scratch.path());
    (command, scratch)
}

/// Does the work on each element, with as many threads as CPUs.
fn in_parallel<'a, T: Sync>(all: &'a [T], work: impl Fn(&'a T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, |n| n.get()) {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(one);
                }
            });
        }
    });
}

/// `FORKLESS_MATRIX_LAUNCHER`
fn only_launcher() -> Option<String> {
    std::env::var("FORKLESS_MATRIX_LAUNCHER").ok()
}

/// The launches to trace: every form and every setup, and some combinations.
fn launches(matrix: &Matrix) -> Vec<Launch> {
    let mut launches = Vec::new();
    for launcher in LAUNCHERS.into_iter().filter(|launcher| only_launcher().is_none_or(|only| only == *launcher)) {
        for base in BASES {
            for setup in &matrix.setup {
                let is_plain = matches!(setup.name.as_str(), "nothing" | "pipes" | "a file passed");
                let is_of_base = base.is_empty() || is_plain && launcher == "clone";
                let is_impossible = launcher == "posix_spawn" && process::has_no_closefrom();
                if !setup.is_for(launcher) || !is_of_base || is_impossible || unmet(&setup.needs).is_some() {
                    continue;
                }
                for form in FORMS {
                    let [launcher, base, form] = [launcher, base, form].map(String::from);
                    launches.push(Launch { launcher, base, form, setup: setup.name.clone() });
                }
            }
        }
    }
    launches
}

fn traces(matrix: &Matrix) -> Option<Vec<Traced>> {
    let launches = launches(matrix);
    let found = Mutex::new(Vec::new());
    in_parallel(&launches, |launch| {
        let batch = Batch { launch: Some(launch), setup: vec![matrix.setup(&launch.setup)], cell: vec![] };
        let (command, _scratch) = helper("--trace", &batch);
        let options = Options { has_helper: launch.launcher == "zygote", ..Options::default() };
        let calls = trace(&format!("{launch:?}"), command, options).map(|trace| {
            // The marks: before the start of a zygote, before the first launch, and before the next one.
            let [start, next]: [Vec<Call>; 2] =
                [&trace.calls[..trace.marks[1]], &trace.calls[trace.marks[2]..]].map(<[Call]>::to_vec);
            let mut seen = HashSet::new();
            let mut calls = trace.calls[trace.marks[1]..].to_vec();
            calls.retain(|call| seen.insert(*call));
            (start, calls, next)
        });
        found.lock().unwrap().push((launch, calls));
    });
    let mut found = found.into_inner().unwrap();
    found.sort_by_key(|(launch, _)| launches.iter().position(|known| known == *launch));
    found
        .into_iter()
        .map(|(launch, calls)| calls.map(|(start, calls, next)| Traced { launch: launch.clone(), calls, next, start }))
        .collect()
}

#[test]
fn every_refused_call_has_the_listed_outcome() {
    let matrix = Matrix::load(Path::new(DATA)).expect("the matrix");
    let Some(traced) = traces(&matrix) else { return };
    let mut every = traced.clone();
    // A setup that is impossible here, and the calls that only it makes.
    let mut skipped: Vec<String> = matrix
        .setup
        .iter()
        .filter_map(|setup| Some(format!("{}, because {}", setup.name, unmet(&setup.needs)?)))
        .collect();
    skipped
        .extend(process::has_no_closefrom().then(|| "posix_spawn, because the C library has no closefrom".to_owned()));
    skipped.iter().for_each(|line| eprintln!("SKIPPED: launches with {line}"));
    let unmade = |every: &[Traced]| {
        if skipped.is_empty() && only_launcher().is_none() { without_call(&matrix, every) } else { vec![] }
    };
    let mut missing = [without_row(&matrix, &every), unmade(&every)].concat();
    // A fast child or parent may skip a wait, so calls that one launch did not make may appear in the next.
    for _ in 0..3 {
        if missing.is_empty() {
            break;
        }
        every.extend(traces(&matrix).expect("traced before"));
        missing = [without_row(&matrix, &every), unmade(&every)].concat();
    }
    if !skipped.is_empty() {
        without_call(&matrix, &every).iter().for_each(|line| eprintln!("SKIPPED: {line}, because of skipped launches"));
    }
    let whole = std::env::var("FORKLESS_MATRIX").is_ok_and(|what| what == "all");
    let only = std::env::var("FORKLESS_MATRIX_ONLY").unwrap_or_default();
    let mut cells = cells(&matrix, &traced, whole);
    cells.retain(|cell| cell.name().contains(&only));
    eprintln!("{} launches traced, {} cells", traced.len(), cells.len());
    let (batches, wrong) = (cells.chunks(16).collect::<Vec<_>>(), Mutex::new(Vec::new()));
    in_parallel(&batches, |batch| {
        let complaints = play(&matrix, batch);
        wrong.lock().unwrap().extend(complaints);
    });
    let wrong = wrong.into_inner().unwrap();
    eprintln!("{} launches traced, {} cells, {} wrong", traced.len(), cells.len(), wrong.len());
    let missing = missing.join("\n");
    assert!(missing.is_empty() && wrong.is_empty(), "calls:\n{missing}\ncells:\n{}", wrong.join("\n"));
}

/// Plays cells in one helper; returns the errors.
fn play(matrix: &Matrix, cells: &[Cell]) -> Vec<String> {
    let setup = matrix.setup.iter().filter(|setup| cells.iter().any(|cell| cell.launch.setup == setup.name)).collect();
    let (mut command, _scratch) = helper("--play", &Batch { launch: None, setup, cell: cells.iter().collect() });
    let output = command.stdin(Stdio::null()).output().expect("the helper");
    let (out, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut wrong: Vec<String> =
        complaints.lines().filter(|line| !line.starts_with("SKIPPED")).map(String::from).collect();
    for (n, cell) in cells.iter().enumerate() {
        if !out.lines().any(|line| line == format!("{n} right")) && !complaints.contains(&cell.name()) {
            wrong.push(format!("{}: it was not played ({})", cell.name(), output.status));
        }
    }
    wrong
}

/// The page agrees with the data. `FORKLESS_PAGE=write` writes it.
#[test]
fn the_page_is_up_to_date() {
    let matrix = Matrix::load(Path::new(DATA)).expect("the matrix");
    let (path, page) = (concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/refused.md"), page(&matrix));
    if std::env::var("FORKLESS_PAGE").is_ok_and(|what| what == "write") {
        std::fs::write(path, &page).expect("written");
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == page,
        "docs/refused.md is not what tests/matrix.toml says: run this test with FORKLESS_PAGE=write"
    );
}
