//! The report, from which both the text and the JSON are made. `docs/doctor.md` describes every field.

use std::io;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the format; increased when a field is removed or changes its meaning.
pub(crate) const FORMAT_VERSION: u32 = 2;

/// The whole report, the most important part first.
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

/// The overall result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Health {
    /// All required features are available.
    Well,
    /// A feature is missing or a limit is nearly reached; launches work.
    Losses,
    /// The library cannot launch.
    Broken,
}

/// The first lines of the report.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) health: Health,
    pub(crate) words: String,
    /// The consequences of what is missing, one sentence each.
    pub(crate) losses: Vec<String>,
    /// Missing features that only some settings need.
    pub(crate) settings_missing: Vec<&'static str>,
    pub(crate) exit_status: u8,
}

impl Verdict {
    /// From missing features and nearly reached limits. `trouble`: the error if no process could be created.
    pub(crate) fn of(features: &[Feature], limits: &[Limit], trouble: Option<&io::Error>) -> Self {
        let missing: Vec<&Feature> = features.iter().filter(|feature| feature.is_missed()).collect();
        let near = limits.iter().filter_map(|limit| limit.warning.clone());
        let broken = missing.iter().any(|feature| feature.name == "CLONE_VM");
        let losses: Vec<String> = missing.iter().map(|feature| feature.loss()).chain(near).collect();
        let (health, words) = match (trouble, broken, losses.len()) {
            (Some(error), ..) => (
                Health::Broken,
                format!("No process can be created ({error}). The rest of this report assumes that one can."),
            ),
            (_, true, _) => (
                Health::Broken,
                "The default launcher does not work here: a child cannot share its caller's memory.".to_owned(),
            ),
            (_, _, 0) => (Health::Well, "All kernel features that forkless requires are available.".to_owned()),
            (_, _, 1) => (Health::Losses, "forkless works here, with one restriction:".to_owned()),
            _ => (Health::Losses, "forkless works here, with restrictions:".to_owned()),
        };
        let absent = features.iter().filter(|feature| feature.state == State::Missing && !feature.is_missed());
        let settings_missing = absent.map(|feature| feature.name).collect();
        Self { health, words, losses, settings_missing, exit_status: (health != Health::Well) as u8 }
    }
}

/// Whether a feature is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Here,
    Missing,
    /// Not tried, because it cannot be, or because no launch would use it.
    Untried,
}

/// What needs a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Need {
    /// Every launch, or its speed.
    Launches,
    /// Some settings.
    Settings,
}

/// A kernel feature, found by trying it.
#[derive(Debug, Serialize)]
pub(crate) struct Feature {
    pub(crate) name: &'static str,
    pub(crate) state: State,
    pub(crate) needed_for: Need,
    /// The first kernel that has it.
    pub(crate) since: &'static str,
    pub(crate) purpose: &'static str,
    pub(crate) without: &'static str,
    /// The error of the kernel, or a version.
    pub(crate) detail: Option<String>,
}

impl Feature {
    /// Is it missing although every launch needs it?
    pub(crate) fn is_missed(&self) -> bool {
        self.state == State::Missing && self.needed_for == Need::Launches
    }

    fn loss(&self) -> String {
        format!("{} (Linux {}) is missing or refused: {}", self.name, self.since, self.without)
    }
}

/// A limit or a system setting.
#[derive(Debug, Serialize)]
pub(crate) struct Limit {
    pub(crate) name: String,
    /// A number, a string, or null if it cannot be read or does not exist.
    pub(crate) value: Value,
    /// What it means.
    pub(crate) words: String,
    /// A warning if the limit is nearly reached.
    pub(crate) warning: Option<String>,
    /// For a memory limit: the bytes left until it is reached.
    #[serde(skip)]
    pub(crate) memory_left: Option<u64>,
}

/// The system that the report is about.
#[derive(Debug, Serialize)]
pub(crate) struct System {
    pub(crate) forkless: String,
    pub(crate) kernel: String,
    pub(crate) architecture: String,
    pub(crate) libc: String,
    pub(crate) cores: usize,
    pub(crate) memory_mib: u64,
    /// Signs of a container, a virtual machine or an emulator.
    pub(crate) hints: Vec<String>,
}

/// The launch that the options describe.
#[derive(Debug, Serialize)]
pub(crate) struct Launch {
    pub(crate) program: Option<Vec<String>>,
    pub(crate) caller: Caller,
    pub(crate) launcher: &'static str,
    pub(crate) words: &'static str,
    pub(crate) path: Vec<Step>,
    /// The steps of the child, as in `forkless run --explain`.
    pub(crate) steps: Vec<String>,
    /// How long fork would block such a caller, in microseconds, by the measurements on this machine.
    pub(crate) fork_us: Option<f64>,
}

/// The caller that the launch is assumed to have.
#[derive(Debug, Serialize)]
pub(crate) struct Caller {
    pub(crate) pid: Option<u32>,
    pub(crate) threads: u64,
    pub(crate) memory_bytes: u64,
    /// All resident memory, private or shared; only with a PID.
    pub(crate) resident_bytes: Option<u64>,
    /// None if they may not be listed.
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

/// The time that each launcher takes on this machine.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Measurements {
    /// Why nothing was measured.
    pub(crate) none: Option<String>,
    pub(crate) rows: Vec<Measured>,
    /// The additional time of fork for each GiB of the caller's memory, in microseconds.
    pub(crate) fork_us_per_gib: Option<f64>,
    /// This is a debug build: the methods of forkless are slower than in a release build.
    pub(crate) debug_build: bool,
}

/// One method. Held: the time until the caller continues. Total: the time until the child has been reaped.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// As in `launch.launcher`; null for the vfork baseline.
    #[serde(skip_deserializing)]
    pub(crate) launcher: Option<&'static str>,
    /// As in `forkless bench`.
    #[serde(alias = "launcher")]
    pub(crate) contestant: String,
    pub(crate) n: u64,
    pub(crate) held_p50_us: f64,
    pub(crate) held_p99_us: f64,
    pub(crate) total_p50_us: f64,
    pub(crate) total_p99_us: f64,
    pub(crate) ratio_to_floor: Option<f64>,
}
