//! Builds the launching programs, and finds Perl and Raku.

use crate::{dist, modules, noshell, raku};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The locations of all tools.
pub(super) struct Tools {
    place: PathBuf,
    /// perl with Proc::FastSpawn.
    pub(super) has_fastspawn: bool,
    pub(super) has_perl: bool,
    pub(super) has_raku: bool,
    /// A copy of the Raku distribution, in which its compiled modules are kept; empty without raku.
    pub(super) raku: PathBuf,
    /// The built Perl module, or why it cannot be built.
    pub(super) blib: Result<PathBuf, &'static str>,
}

impl Tools {
    /// Builds the programs in `place`, with the libraries from cargo's directory `target`.
    pub(super) fn build(place: &Path, target: &Path) -> Result<Tools> {
        dist::install(place, target)?;
        let blib = Err("perl is not installed");
        let (place_of, raku) = (place.to_owned(), place.join("Forkless"));
        let mut tools = Tools { place: place_of, has_fastspawn: false, has_perl: false, has_raku: false, raku, blib };
        noshell::build(place, &tools.program("hello"), &tools.program("launches"))?;
        for (name, library) in
            [("launch", "-lforkless"), ("growth", ""), ("small_pages", ""), ("checks", "-lpopen_noshell")]
        {
            let mut link = Command::new("cc");
            link.args(["-O2", "-Wall", "-Wextra", "-o"]).arg(tools.program(name));
            link.arg(source(&format!("{name}.c"))).arg("-I").arg(place.join("include"));
            let lib = place.join("lib");
            link.arg("-L").arg(&lib).arg(format!("-Wl,-rpath,{}", lib.display()));
            dist::run(link.args(Some(library).filter(|library| !library.is_empty())))?;
        }
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut build = Command::new(rustc);
        build.args(["--edition", "2024", "-O", "-o"]).arg(tools.program("command")).arg(source("command.rs"));
        dist::run(&mut build)?;
        tools.has_perl = answers(Command::new("perl").args(["-e", "1"]));
        tools.has_fastspawn = answers(Command::new("perl").args(["-MProc::FastSpawn", "-e", "1"]));
        if tools.has_fastspawn {
            tools.blib = tools.module()?;
        }
        tools.has_raku = answers(Command::new("raku").args(["-e", "1"]));
        if tools.has_raku {
            raku::copy_modules(&tools.raku)?;
        }
        Ok(tools)
    }

    /// Builds bindings/perl in a copy, if perl's headers are installed.
    fn module(&self) -> Result<Result<PathBuf, &'static str>> {
        if modules::has_headers().is_err() {
            return Ok(Err("perl's headers (libperl-dev) are not installed"));
        }
        let copy = self.program("perl");
        modules::perl_with(&self.place, &copy)?;
        Ok(Ok(copy.join("blib")))
    }

    /// The path of a built program.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// The path of a built library.
    pub(super) fn library(&self, name: &str) -> PathBuf {
        self.place.join("lib").join(name)
    }
}

/// A file of bench/background.
pub(super) fn source(name: &str) -> PathBuf {
    dist::root().join("bench/background").join(name)
}

fn answers(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
