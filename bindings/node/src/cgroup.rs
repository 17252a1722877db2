//! Cgroups that JavaScript has created.

use crate::sandbox::code;
use forkless::Cgroup;
use napi_derive::napi;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A cgroup. `lib/cgroup.js` has the class that is public.
#[napi]
pub struct NativeCgroup {
    /// None: it has been removed.
    group: Option<Cgroup>,
    path: String,
}

fn to_js_error(error: io::Error) -> napi::Error<String> {
    napi::Error::new(code(&error), error.to_string())
}

impl NativeCgroup {
    fn group(&self) -> napi::Result<&Cgroup, String> {
        let gone = || napi::Error::new("ENODEV".to_owned(), format!("cgroup {:?}: it has been removed", self.path));
        self.group.as_ref().ok_or_else(gone)
    }
}

#[napi]
impl NativeCgroup {
    /// Creates one below the cgroup of this directory, or below that of this process. `limits`: files and values.
    #[napi(factory)]
    pub fn create(parent: Option<String>, limits: Vec<Vec<String>>) -> napi::Result<Self, String> {
        let parent = parent.map_or_else(Cgroup::delegated, |parent| Ok(parent.into())).map_err(to_js_error)?;
        let limits: Vec<(&str, &str)> =
            limits.iter().filter_map(|one| Some((one.first()?.as_str(), one.get(1)?.as_str()))).collect();
        let group = Cgroup::with_limits(parent, &limits).map_err(to_js_error)?;
        let path = group.path().display().to_string();
        Ok(Self { group: Some(group), path })
    }

    /// Its directory.
    #[napi]
    pub fn path(&self) -> String {
        self.path.clone()
    }

    /// A descriptor of its directory.
    #[napi]
    pub fn fd(&self) -> napi::Result<i32, String> {
        Ok(self.group()?.as_fd().as_raw_fd())
    }

    /// The contents of a file.
    #[napi]
    pub fn get(&self, file: String) -> napi::Result<String, String> {
        self.group()?.get(&file).map_err(to_js_error)
    }

    /// Writes to a file.
    #[napi]
    pub fn set(&self, file: String, value: String) -> napi::Result<(), String> {
        self.group()?.set(&file, &value).map(drop).map_err(to_js_error)
    }

    /// A file of names and numbers.
    #[napi]
    pub fn counters(&self, file: String) -> napi::Result<BTreeMap<String, f64>, String> {
        let found = self.group()?.counters(&file).map_err(to_js_error)?;
        Ok(found.into_iter().map(|(name, count)| (name, count as f64)).collect())
    }

    /// Signals every process in it.
    #[napi]
    pub fn signal(&self, signal: i32) -> napi::Result<(), String> {
        self.group()?.signal(signal).map_err(to_js_error)
    }

    /// Kills every process in it.
    #[napi]
    pub fn kill(&self) -> napi::Result<(), String> {
        self.group()?.kill().map_err(to_js_error)
    }

    /// Removes it.
    #[napi]
    pub fn remove(&mut self) -> napi::Result<(), String> {
        self.group()?;
        self.group.take().map_or(Ok(()), Cgroup::remove).map_err(to_js_error)
    }
}
