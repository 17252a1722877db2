//! What doctor says: one structure, of which both the text and the JSON are made. `docs/doctor.md` describes every field.

use std::io;

use serde::Serialize;
use serde_json::Value;

/// Version of the format; it grows when a field goes or changes its meaning.
pub(crate) const FORMAT_VERSION: u32 = 2;

/// All of it, the most important first.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) version: u32,
    pub(crate) verdict: Verdict,
    pub(crate) launch: Launch,
    pub(crate) features: Vec<Feature>,
    pub(crate) limits: Vec<Limit>,
    pub(crate) system: System,
    pub(crate) measurements: Measurements,
}

/// How this machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Health {
    /// Everything that launches rest on is here.
    Well,
    /// Something is missing or nearly used up; launches work.
    Losses,
    /// The library cannot launch.
    Broken,
}

/// The first words.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) health: Health,
    pub(crate) words: String,
    /// What is lost, a sentence each.
    pub(crate) losses: Vec<String>,
    /// What cannot be asked for here.
    pub(crate) settings_missing: Vec<&'static str>,
    pub(crate) exit_status: u8,
}

impl Verdict {
    /// From what is missing of what launches rest on, and from limits that are near; `trouble`: why nothing could be tried.
    pub(crate) fn of(features: &[Feature], limits: &[Limit], trouble: Option<&io::Error>) -> Self {
        let missing: Vec<&Feature> = features.iter().filter(|feature| feature.is_missed()).collect();
        let near = limits.iter().filter_map(|limit| limit.warning.clone());
        let broken = missing.iter().any(|feature| feature.name == "CLONE_VM");
        let losses: Vec<String> = missing.iter().map(|feature| feature.loss()).chain(near).collect();
        let (health, words) = match (trouble, broken, losses.len()) {
            (Some(error), ..) => (
                Health::Broken,
                format!("No process can be made just now ({error}): what follows supposes that one could."),
            ),
            (_, true, _) => (
                Health::Broken,
                "The usual way to launch does not work here: no child can share its caller's memory.".to_owned(),
            ),
            (_, _, 0) => (Health::Well, "Everything forkless needs is here.".to_owned()),
            (_, _, 1) => (Health::Losses, "forkless works here, with one loss.".to_owned()),
            _ => (Health::Losses, "forkless works here, with losses.".to_owned()),
        };
        let absent = features.iter().filter(|feature| feature.state == State::Missing && !feature.is_missed());
        let settings_missing = absent.map(|feature| feature.name).collect();
        Self { health, words, losses, settings_missing, exit_status: (health != Health::Well) as u8 }
    }
}

/// Whether something is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Here,
    Missing,
    /// It could not be tried, or would not be used.
    Untried,
}

/// What needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Need {
    /// Every launch, or its speed.
    Launches,
    /// Some things that can be asked for.
    Settings,
}

/// Something of the kernel's, found by trying it.
#[derive(Debug, Serialize)]
pub(crate) struct Feature {
    pub(crate) name: &'static str,
    pub(crate) state: State,
    pub(crate) needed_for: Need,
    /// The first kernel that has it.
    pub(crate) since: &'static str,
    pub(crate) purpose: &'static str,
    pub(crate) without: &'static str,
    /// What the kernel said, or a version.
    pub(crate) detail: Option<String>,
}

impl Feature {
    /// Does its absence cost every launch something?
    pub(crate) fn is_missed(&self) -> bool {
        self.state == State::Missing && self.needed_for == Need::Launches
    }

    fn loss(&self) -> String {
        format!("{} (Linux {}) is missing or refused: {}", self.name, self.since, self.without)
    }
}

/// A limit or a setting of the system.
#[derive(Debug, Serialize)]
pub(crate) struct Limit {
    pub(crate) name: String,
    /// A number, a word, or null where it cannot be read or does not exist.
    pub(crate) value: Value,
    /// What it means.
    pub(crate) words: String,
    /// What is wrong with it.
    pub(crate) warning: Option<String>,
    /// Bytes before it is reached, where it is one of memory.
    #[serde(skip)]
    pub(crate) memory_left: Option<u64>,
}

/// Where we are.
#[derive(Debug, Serialize)]
pub(crate) struct System {
    pub(crate) forkless: String,
    pub(crate) kernel: String,
    pub(crate) architecture: String,
    pub(crate) libc: String,
    pub(crate) cores: usize,
    pub(crate) memory_mib: u64,
    /// Signs of a container, a virtual machine, an emulator.
    pub(crate) hints: Vec<String>,
}

/// The launch that was asked about.
#[derive(Debug, Serialize)]
pub(crate) struct Launch {
    pub(crate) program: Option<Vec<String>>,
    pub(crate) caller: Caller,
    pub(crate) launcher: &'static str,
    pub(crate) words: &'static str,
    pub(crate) path: Vec<Step>,
    /// What the child would do, as `forkless run --explain` tells it.
    pub(crate) steps: Vec<String>,
    /// What fork would hold such a caller for, in microseconds, from what was measured here.
    pub(crate) fork_us: Option<f64>,
}

/// Who launches.
#[derive(Debug, Serialize)]
pub(crate) struct Caller {
    pub(crate) pid: Option<u32>,
    pub(crate) threads: u64,
    pub(crate) memory_bytes: u64,
    /// All that is resident, shared with others or not; only with a pid.
    pub(crate) resident_bytes: Option<u64>,
    /// None where they may not be looked at.
    pub(crate) files: Option<u64>,
    pub(crate) closures: bool,
    pub(crate) may_share: bool,
}

/// A question with its answer.
#[derive(Debug, Serialize)]
pub(crate) struct Step {
    pub(crate) question: &'static str,
    pub(crate) words: &'static str,
    pub(crate) answer: bool,
    pub(crate) why: String,
}

/// What each launcher takes here.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Measurements {
    /// Why there are none.
    pub(crate) none: Option<String>,
    pub(crate) rows: Vec<Measured>,
    /// What fork takes more for each GiB of the caller's, in microseconds.
    pub(crate) fork_us_per_gib: Option<f64>,
    /// Ours are slower than they would be.
    pub(crate) debug_build: bool,
}

/// One way to launch; held: until the caller goes on, total: until the child has been waited for.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    /// As in `launch.launcher`; null for what is measured only to compare with.
    pub(crate) launcher: Option<&'static str>,
    /// As in `forkless bench`.
    pub(crate) contestant: &'static str,
    pub(crate) n: u64,
    pub(crate) held_p50_us: f64,
    pub(crate) held_p99_us: f64,
    pub(crate) total_p50_us: f64,
    pub(crate) total_p99_us: f64,
    pub(crate) ratio_to_floor: Option<f64>,
}
