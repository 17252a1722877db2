//! Settings that children are launched with, and the features that a launcher needs for them.

use serde::{Deserialize, Serialize};

/// What is asked for beside the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Setting {
    /// Nothing.
    #[default]
    None,
    /// Another user and group.
    User,
    /// A user namespace with id maps: what an ordinary user may have instead.
    UserNamespace,
    /// All that is allowed here.
    All,
}

impl Setting {
    /// In words, for headlines.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::None => "no settings",
            Self::User => "change of user",
            Self::UserNamespace => "user namespace",
            Self::All => "all settings",
        }
    }
}

/// One thing that a launcher can do to its child, or cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    Ids,
    UserNamespace,
    Cgroup,
    Limits,
    NoNewPrivs,
    Seccomp,
}

impl Feature {
    /// All of them, in the order of the notes.
    pub(crate) const ALL: [Self; 6] =
        [Self::Ids, Self::UserNamespace, Self::Cgroup, Self::Limits, Self::NoNewPrivs, Self::Seccomp];

    /// Name in the notes and in the greeting of an engine.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ids => "ids",
            Self::UserNamespace => "user-namespace",
            Self::Cgroup => "cgroup",
            Self::Limits => "limits",
            Self::NoNewPrivs => "no-new-privs",
            Self::Seccomp => "seccomp",
        }
    }
}
