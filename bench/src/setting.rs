//! Settings of the children, and the features that a method needs for them.

use serde::{Deserialize, Serialize};

/// Settings of the child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Setting {
    /// Nothing.
    #[default]
    None,
    /// Another user and group.
    User,
    /// A user namespace with ID maps, for ordinary users.
    UserNamespace,
    /// All settings that this user may use.
    All,
}

impl Setting {
    /// The description in headlines.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::None => "no settings",
            Self::User => "change of user",
            Self::UserNamespace => "user namespace",
            Self::All => "all settings",
        }
    }
}

/// A feature that a method may support.
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
    /// All features, in the order of the notes.
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
