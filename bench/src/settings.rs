//! The settings that are available on this machine, each found by a launch that verifies it.

use std::{
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use forkless::{Cgroup, Command};

use super::{
    condition::Condition,
    contestant::Contestant,
    contestants,
    engines::Engines,
    launcher::Job,
    setting::{Feature, Setting},
    wishes::Wishes,
};

/// The available settings.
pub(crate) struct Settings {
    found: Vec<(Setting, Wishes)>,
    none: Wishes,
    /// The unavailable settings, with the reason.
    pub(crate) notes: Vec<String>,
    _cgroup: Option<Cgroup>,
}

impl Settings {
    /// No settings, if they are not measured.
    pub(crate) fn none() -> Self {
        Self { found: Vec::new(), none: Wishes::none(), notes: Vec::new(), _cgroup: None }
    }

    /// Finds the settings that this user may use, by launching with them.
    pub(crate) fn find() -> Self {
        let mut settings = Self::none();
        let user = Wishes::new(Setting::User, true, None);
        let privileged = match prove(&user, Contestant::ForklessSpawn, &Feature::ALL, None) {
            Ok(()) => true,
            Err(error) => {
                settings.notes.push(format!("a user namespace instead of a change of user: {error:#}"));
                false
            }
        };
        if privileged {
            settings.found.push((Setting::User, user));
        } else {
            settings.try_out(Setting::UserNamespace, Wishes::new(Setting::UserNamespace, false, None));
        }
        let (cgroup, directory) = usable_cgroup();
        if cgroup.is_none() {
            settings.notes.push("all settings except a cgroup: no cgroup v2 is writable".to_owned());
        }
        settings.try_out(Setting::All, Wishes::new(Setting::All, privileged, directory));
        settings._cgroup = cgroup;
        settings
    }

    fn try_out(&mut self, setting: Setting, wishes: Wishes) {
        match prove(&wishes, Contestant::ForklessSpawn, &Feature::ALL, None) {
            Ok(()) => self.found.push((setting, wishes)),
            Err(error) => self.notes.push(format!("{} skipped: {error:#}", setting.describe())),
        }
    }

    /// The settings to measure.
    pub(crate) fn list(&self) -> Vec<Setting> {
        self.found.iter().map(|(setting, _)| *setting).collect()
    }

    /// What a setting comprises on this machine.
    pub(crate) fn wishes(&self, setting: Setting) -> &Wishes {
        self.found.iter().find(|(s, _)| *s == setting).map_or(&self.none, |(_, wishes)| wishes)
    }
}

/// Launches a program that checks whether the settings that the method supports were applied.
///
/// # Errors
/// If the launch fails or a setting was not applied.
pub(crate) fn prove(wishes: &Wishes, contestant: Contestant, can: &[Feature], engines: Option<&Engines>) -> Result<()> {
    let program = wishes.proof(can)?;
    let job = Job { program: &program, condition: Condition::SMALL, wishes };
    contestants::ready(contestant, &job, engines)?
        .launch()
        .map(drop)
        .with_context(|| format!("not all of these settings were applied: {}", names(can)))
}

fn names(features: &[Feature]) -> String {
    features.iter().map(|feature| feature.name()).collect::<Vec<_>>().join(", ")
}

/// A new cgroup in which a child can be started, if possible.
fn usable_cgroup() -> (Option<Cgroup>, Option<(OwnedFd, PathBuf)>) {
    let name = format!("forkless-bench-{}", std::process::id());
    for parent in cgroup_parents() {
        let Ok(group) = Cgroup::create(&parent, &name) else { continue };
        let Ok(directory) = group.directory() else { continue };
        let path = group.path().to_owned();
        let born = group
            .directory()
            .and_then(|directory| Command::new("true").cgroup(directory).status())
            .is_ok_and(|status| status.success());
        if born {
            return (Some(group), Some((directory, path)));
        }
    }
    (None, None)
}

/// The roots of the cgroup hierarchies, and the cgroup of this process, which may be delegated to the user.
fn cgroup_parents() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let roots = roots.iter().filter(|root| root.join("cgroup.procs").exists());
    roots.flat_map(|root| [root.to_path_buf(), root.join(own)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wishes::NOT_DONE;

    #[test]
    fn verification_fails_for_each_setting_that_was_not_applied() {
        let settings = Settings::find();
        assert!(!settings.list().is_empty() || !settings.notes.is_empty());
        for setting in settings.list() {
            let wishes = settings.wishes(setting);
            for feature in wishes.features() {
                let program = wishes.proof(&[feature]).expect("sh");
                let bare = Job { program: &program, condition: Condition::SMALL, wishes: &Wishes::none() };
                let error = contestants::ready(Contestant::ForklessSpawn, &bare, None).expect("ready").launch();
                let text = format!("{:#}", error.expect_err(feature.name()));
                let status = (NOT_DONE + feature as u8).to_string();
                assert!(text.contains(&status), "{}: {text}", feature.name());
            }
        }
    }

    #[test]
    fn each_method_applies_the_settings_that_it_claims() {
        let settings = Settings::find();
        for setting in settings.list() {
            let wishes = settings.wishes(setting);
            for contestant in Contestant::ALL.into_iter().filter(|c| !c.is_engine()) {
                let can = contestants::can(contestant, None);
                if !can.is_empty() && wishes.features().iter().all(|f| can.contains(f)) {
                    let name = contestant.name();
                    prove(wishes, contestant, &can, None).unwrap_or_else(|e| panic!("{name}: {e:#}"));
                }
            }
        }
        settings.notes.iter().for_each(|note| eprintln!("SKIPPED: {note}"));
    }
}
