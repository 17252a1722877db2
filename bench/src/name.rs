//! Names in records as static strings, also in records that are read back.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::contestant::Contestant;

/// The name of a launcher, a waiter or an engine.
pub(crate) type Name = &'static str;

/// The name as people read it. Records and options call the baseline `floor`.
pub(crate) fn shown(name: Name) -> Name {
    if name == "floor" { "vfork baseline" } else { name }
}

/// The static string for a name. An unknown name of another version is leaked; a process reads only a few records.
pub(crate) fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    String::deserialize(deserializer).map(constant)
}

/// As [`name`], for the names in a map.
pub(crate) fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<Name, Option<String>>, D::Error> {
    let map: BTreeMap<String, Option<String>> = BTreeMap::deserialize(deserializer)?;
    Ok(map.into_iter().map(|(name, version)| (constant(name), version)).collect())
}

fn constant(name: String) -> Name {
    match Contestant::ALL.into_iter().find(|contestant| contestant.name() == name) {
        Some(contestant) => contestant.name(),
        None => name.leak(),
    }
}
