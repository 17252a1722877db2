//! Models of what threads share, with loom: every order of their accesses that the memory model of C11 allows, in the
//! product's own sources. `cargo xtask models` runs them.
//!
//! A child that shares the caller's memory is a thread here. Each model runs once as it is, and then once for each place
//! in those sources that orders, changes or wakes, weakened ([`Plant`]): a model must notice it, or
//! the list [`UNNOTICED`] has the reason.
//!
//! Not here: a wait set, which one thread has at a time (`&mut self`), and sets of templates, all of which one lock guards:
//! `docs/design/models/template.pml`. Besides it they have counters, which order nothing (Relaxed).

// The product's modules name these crates.
extern crate self as nix;

mod around;
mod child;
mod launch;
#[path = "models/once.rs"]
mod of_once;
#[path = "models/zygote.rs"]
mod of_zygote;
#[path = "../../../crates/forkless/src/once.rs"]
#[allow(dead_code)]
mod once;

pub use around::time;
use around::{kernel, plan, process, procfs, request};
use child::of_orphans;
use launch::{of_dumpable, of_frame, of_pool, of_probes};

use forkless_core::sync::{self, Plant};
use loom::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// A model.
struct Model {
    name: &'static str,
    run: fn(),
    /// Uses each static once, so that it is known before there is a second thread.
    warm: fn(),
    /// The most thread switches that are not necessary, in one execution; `None`: any number.
    switches: Option<usize>,
}

const MODELS: &[Model] = &[
    of_once::VALUE,
    of_once::KEYS,
    of_pool::MODEL,
    of_probes::MODEL,
    of_orphans::MODEL,
    of_frame::FAILURE,
    of_frame::MAPS,
    of_frame::UNASKED,
    of_dumpable::MODEL,
    of_dumpable::SETTINGS,
    of_zygote::MODEL,
];

/// Places whose weaker form no model notices: the end of the file's name, a part of the line, what is weaker, and why.
const UNNOTICED: &[(&str, &str, Plant, &str)] = &[
    ("once.rs", "let first = self.0.load", Plant::Weaker, "loom does not see the read of `count`, which it is for"),
    ("once.rs", "if self.0.compare_exchange", Plant::NotAtomic, "an entry that is lost is computed again"),
    ("dumpable.rs", "NOTE.load", Plant::Weaker, "the exchange that follows finds that the note was old"),
    (
        "dumpable.rs",
        "NOTE.compare_exchange",
        Plant::Weaker,
        "the load of SLEEPERS has a fence; in C11 both have to be SeqCst",
    ),
    ("dumpable.rs", "NOTE.store", Plant::Weaker, "as the exchange"),
    ("dumpable.rs", "SLEEPERS.fetch_add", Plant::Weaker, "the kernel has a fence before it reads the word"),
    ("dumpable.rs", "SLEEPERS.fetch_sub", Plant::Weaker, "a number that is too large costs a wake-up"),
    ("dumpable.rs", "BEGUN.fetch_add", Plant::Weaker, "the models refuse nothing, so they do not read it"),
    ("dumpable.rs", "BEGUN.fetch_add", Plant::NotAtomic, "as above"),
];

/// Something that was written before it was published.
pub struct Written(UnsafeCell<u32>);

// SAFETY: loom reports accesses that could take place at once.
unsafe impl Send for Written {}
// SAFETY: as above.
unsafe impl Sync for Written {}

impl Written {
    pub fn new(value: u32) -> Self {
        let cell = UnsafeCell::new(0);
        // SAFETY: loom checks the accesses.
        cell.with_mut(|at| unsafe { *at = value });
        Self(cell)
    }

    pub fn read(&self) -> u32 {
        // SAFETY: loom checks the accesses.
        self.0.with(|at| unsafe { *at })
    }
}

fn check(model: &Model) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = model.switches;
    builder.max_branches = 100_000;
    for run in [model.warm, model.run] {
        builder.check(move || {
            sync::begin();
            run();
        });
    }
}

/// `NAME PLACE`: runs one model with one place weakened. `NAME -`: as it is; prints the number of executions and the places.
fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (name, place) = (args.next(), args.next());
    let model = name.as_deref().and_then(|name| MODELS.iter().find(|model| model.name == name));
    if let (Some(model), Some(place)) = (model, place) {
        sync::plant(place);
        check(model);
        println!("{}", sync::executions());
        for site in sync::sites() {
            println!("{site}");
        }
        return ExitCode::SUCCESS;
    }
    println!("{:<10} {:>11} {:>7} {:>8} {:>7}", "model", "executions", "seconds", "weakened", "noticed");
    // Each place, and whether a model has noticed its weaker form.
    let mut places = BTreeMap::new();
    let mut wrong = 0;
    for model in MODELS.iter().filter(|model| name.as_ref().is_none_or(|name| name == model.name)) {
        wrong += usize::from(!table(model, &mut places));
    }
    let mut used = vec![];
    for (place, _) in places.iter().filter(|(_, is_noticed)| !**is_noticed) {
        let code = line(place);
        let known = UNNOTICED.iter().position(|(file, part, plant, _)| {
            place.contains(file) && place.ends_with(&format!("{plant:?}")) && code.contains(part)
        });
        let unknown = if name.is_some() { "another model may notice it" } else { "WRONG: no model notices it" };
        println!("{place}: {}", known.map_or(unknown, |known| UNNOTICED[known].3));
        used.extend(known);
        wrong += usize::from(known.is_none() && name.is_none());
    }
    for (_, (file, part, ..)) in UNNOTICED.iter().enumerate().filter(|(n, _)| name.is_none() && !used.contains(n)) {
        println!("WRONG: {file}: {part}: a model notices it, or it is gone");
        wrong += 1;
    }
    ExitCode::from(u8::from(wrong > 0))
}

/// Runs a model and its weakened forms, and notes what was noticed. False if the model itself fails.
fn table(model: &Model, places: &mut BTreeMap<String, bool>) -> bool {
    let begun = Instant::now();
    let run = |place: &str| {
        let program = std::env::current_exe().expect("this program");
        let output = Command::new(program).arg(model.name).arg(place).output().expect("this program starts");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned()).ok_or(output.stderr)
    };
    let text = match run("-") {
        Ok(text) => text,
        Err(text) => {
            println!("{:<10} WRONG\n{}", model.name, String::from_utf8_lossy(&text));
            return false;
        }
    };
    let (executions, found) = text.split_once('\n').expect("a number and places");
    let (mut weakened, mut noticed) = (0, 0);
    // All at once: each is a process with one thread.
    std::thread::scope(|scope| {
        let run = &run;
        let runs: Vec<_> = found.lines().map(|place| (place, scope.spawn(move || run(place).is_err()))).collect();
        for (place, run) in runs {
            let is_noticed = run.join().expect("no panic");
            weakened += 1;
            noticed += usize::from(is_noticed);
            *places.entry(place.to_owned()).or_default() |= is_noticed;
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    println!("{:<10} {executions:>11} {seconds:>7.1} {weakened:>8} {noticed:>7}", model.name);
    true
}

/// The line of the sources that a place is in.
fn line(site: &str) -> String {
    let mut parts = site.split([':', ' ']);
    let (file, number) =
        (parts.next().unwrap_or_default(), parts.next().and_then(|number| number.parse::<usize>().ok()));
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().nth(number.unwrap_or(1) - 1).unwrap_or_default().to_owned()
}
