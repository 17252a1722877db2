//! Warm programs where there are none: they need x86-64 and glibc. The names are those of docs/warm.md, so that a program that
//! uses them can be built here, too. No set can be opened.

use crate::child::Child;
use crate::prepared::Prepared;
use crate::request::command::Command;
use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::time::Duration;

/// A set of templates. There is none here.
#[derive(Debug, Clone)]
pub struct Warm(Infallible);

impl Warm {
    /// Fails.
    ///
    /// # Errors
    /// `Unsupported`.
    #[doc(hidden)]
    pub fn of_process() -> io::Result<Self> {
        WarmOptions::new().open()
    }

    /// Not reached: there is no set.
    ///
    /// # Errors
    /// None.
    #[doc(hidden)]
    pub fn start(&self, _prepared: &Prepared) -> io::Result<()> {
        match self.0 {}
    }

    /// Not reached: there is no set.
    #[doc(hidden)]
    pub fn stats(&self) -> WarmStats {
        match self.0 {}
    }

    /// Not reached: there is no set.
    #[doc(hidden)]
    pub fn templates(&self) -> Vec<u32> {
        match self.0 {}
    }
}

impl Command {
    /// Not reached: there is no set.
    #[doc(hidden)]
    pub fn warm(&mut self, warm: &Warm) -> &mut Self {
        match warm.0 {}
    }
}

impl Child {
    /// `None`: no command has a set here.
    #[doc(hidden)]
    pub fn cold_reason(&self) -> Option<&str> {
        None
    }
}

/// The configuration of a set.
#[derive(Debug, Clone, Default)]
pub struct WarmOptions(());

impl WarmOptions {
    /// The defaults.
    #[doc(hidden)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Has no effect here.
    #[doc(hidden)]
    pub fn library<P: AsRef<Path>>(&mut self, _library: P) -> &mut Self {
        self
    }

    /// Has no effect here.
    #[doc(hidden)]
    pub fn templates(&mut self, _count: usize) -> &mut Self {
        self
    }

    /// Has no effect here.
    #[doc(hidden)]
    pub fn idle(&mut self, _idle: Duration) -> &mut Self {
        self
    }

    /// Has no effect here.
    #[doc(hidden)]
    pub fn life(&mut self, _life: Duration) -> &mut Self {
        self
    }

    /// Has no effect here.
    #[doc(hidden)]
    pub fn launches(&mut self, _launches: u32) -> &mut Self {
        self
    }

    /// Fails.
    ///
    /// # Errors
    /// `Unsupported`.
    #[doc(hidden)]
    pub fn open(&self) -> io::Result<Warm> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "warm programs need x86-64 and glibc"))
    }
}

/// What a set has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
#[allow(missing_docs, reason = "those of docs/warm.md; no value exists")]
pub struct WarmStats {
    pub warm: u64,
    pub cold: u64,
    pub starts: u64,
    pub refusals: u64,
    pub idle: u64,
    pub crashes: u64,
}
