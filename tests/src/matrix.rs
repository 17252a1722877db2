//! The matrix: the outcome of a launch when one of its system calls is refused, by call and by way of refusal.
//!
//! `tests/matrix.toml` has a row for each system call of a launch. The calls are found by tracing launches
//! ([`crate::trace`]): a call without a row is a failure, and so is a row without a call. The traces yield the cells,
//! each of which the program `matrix` plays in a process of its own.

use crate::table::{Ask, Parent, syscall};
use crate::trace::{Call, Who};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::{fs, io};

pub mod cells;

pub mod page;

/// The launchers, by name.
pub const LAUNCHERS: [&str; 4] = ["clone", "fork", "posix_spawn", "zygote"];

/// How long a launch stays with its child.
pub const FORMS: [&str; 4] = ["spawn", "launch", "status", "output"];

/// Further refused calls, so that the fallback is called.
pub const BASES: [&str; 5] = [
    "",
    "clone3 ENOSYS",
    "close_range EPERM",
    "pidfd_getfd EPERM",
    "clone3 EPERM, close_range ENOSYS, pidfd_getfd ENOSYS, pidfd_open ENOSYS, pidfd_send_signal ENOSYS",
];

/// All of `tests/matrix.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// The settings of launches.
    pub setup: Vec<Setup>,
    /// The system calls.
    pub call: Vec<Row>,
}

/// The settings of a launch.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// In words, for the page: "a working directory".
    pub name: String,
    /// The requirements: see [`crate::table::parent::unmet`].
    #[serde(default)]
    pub needs: Vec<String>,
    /// The launchers that can do it; all, if not given.
    pub launchers: Option<Vec<String>>,
    /// The caller's condition.
    #[serde(default)]
    pub parent: Parent,
    /// Why `launch` may wait for the child: then a call of the child's that hangs is not played.
    pub waits: Option<String>,
    /// The settings. The program is the same for all, and exits with 7.
    #[serde(default)]
    pub ask: Ask,
}

/// A system call.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its name, and where the argument matters `argN=VALUE` or `argN&BITS` behind it.
    pub call: String,
    /// The callers: `parent`, `child`, `helper`, separated by spaces.
    pub who: String,
    /// The purpose of the call, for the page.
    pub what: String,
    /// The launchers that this row is about; all, if not given.
    pub launchers: Option<Vec<String>>,
    /// The errors that its man page names and that a launch can meet.
    #[serde(default)]
    pub errnos: Vec<String>,
    /// The outcome of an errno.
    pub refused: Outcome,
    /// The outcome if the child is killed for the call; default: the error at the same step.
    pub killed: Option<Outcome>,
    /// What a refusal leaves behind, because no other call could put it back: `errno` of a call by the C library, `fd` of a
    /// descriptor that could not be closed, and further beginnings of [`crate::state::State::differences`].
    #[serde(default)]
    pub leaves: Vec<String>,
    /// It is not made in every launch of a kind, but where one has to wait.
    #[serde(default)]
    pub rare: bool,
    /// The parent makes it in every launch, though not under a tracer.
    #[serde(default)]
    pub untraced: bool,
    /// Where it is otherwise. The first that fits counts.
    #[serde(default)]
    pub but: Vec<But>,
}

/// Where the outcome is another one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct But {
    /// Launchers; any, if not given, as with everything below.
    pub launchers: Option<Vec<String>>,
    /// Forms.
    pub forms: Option<Vec<String>>,
    /// Answers of the filter.
    pub answers: Option<Vec<String>>,
    /// Setups.
    pub setups: Option<Vec<String>>,
    /// Further refused calls.
    pub bases: Option<Vec<String>>,
    /// Does the child make the call in this launch?
    pub child: Option<bool>,
    /// Is the filter there from the first launch on?
    pub first: Option<bool>,
    /// Why, for the page.
    pub why: String,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Outcome {
    /// The launch works, by this fallback.
    Works(String),
    /// The launch fails at this step, with the error that the call failed with; of a child that was killed it is said.
    Error(String),
    /// The launch fails at this step, with another error.
    ErrorAs([String; 2]),
    /// It works or fails at this step, depending on whether parent or child makes the call first.
    Either([String; 2]),
    /// The first launch of the kind may fail at this step; later ones know, and work.
    OnceError(String),
    /// The program has run; the call's error is returned as it is.
    Io(String),
    /// The child's status is that it was killed by SIGSYS.
    Status(String),
    /// The child does not go on; the caller does, and can kill it.
    Hangs,
    /// It is not played: why.
    NotPlayed(String),
}

impl Matrix {
    /// Reads the file.
    pub fn load(path: &Path) -> io::Result<Self> {
        toml::from_str(&fs::read_to_string(path)?).map_err(|error| io::Error::other(format!("{path:?}: {error}")))
    }

    /// A setup by its name.
    pub fn setup(&self, name: &str) -> &Setup {
        self.setup.iter().find(|setup| setup.name == name).unwrap_or_else(|| panic!("no setup {name:?}"))
    }
}

/// Is it in a list that, if it is not given, has all?
fn is_in(list: &Option<Vec<String>>, name: &str) -> bool {
    list.as_ref().is_none_or(|list| list.iter().any(|known| known == name))
}

impl Setup {
    /// Can this launcher do it?
    pub fn is_for(&self, launcher: &str) -> bool {
        is_in(&self.launchers, launcher)
    }
}

impl Row {
    /// The call's name.
    pub fn name(&self) -> &str {
        self.call.split(' ').next().unwrap_or("")
    }

    /// As the filters are written: `CALL ANSWER CONDITION`.
    pub fn refusal(&self, answer: &str) -> String {
        let (name, condition) = self.call.split_once(' ').unwrap_or((&self.call, ""));
        format!("{name} {answer} {condition}").trim().to_owned()
    }

    /// Is this such a call?
    pub fn is_it(&self, call: &Call) -> bool {
        if call.number != syscall(self.name()) {
            return false;
        }
        let Some((_, condition)) = self.call.split_once(' ') else { return true };
        let number = |text: &str| text.parse::<i64>().expect("a number") as u64;
        let condition = condition.strip_prefix("arg").expect("argN=VALUE or argN&BITS");
        let argument = |index: &str| call.args[number(index) as usize];
        match condition.split_once('=') {
            Some((index, value)) => argument(index) == number(value),
            None => {
                let (index, bits) = condition.split_once('&').expect("argN&BITS");
                argument(index) & number(bits) == number(bits)
            }
        }
    }

    /// Whether this caller makes the call.
    pub fn is_by(&self, who: Who) -> bool {
        self.who.split(' ').any(|name| name == word(who))
    }

    /// Is the row about this launcher?
    pub fn is_for(&self, launcher: &str) -> bool {
        is_in(&self.launchers, launcher)
    }
}

/// A caller's name.
pub fn word(who: Who) -> &'static str {
    match who {
        Who::Parent => "parent",
        Who::Helper => "helper",
        Who::Child => "child",
    }
}
