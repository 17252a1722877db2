//! Builds and installs the C libraries: `lib/libforkless.so.0`, `libforkless.so`, `libforkless.a`, `include/forkless.h` and
//! `lib/pkgconfig/forkless.pc` below a prefix, the same of `popen_noshell`, `lib/libforkless_preload.so` and
//! `lib/forkless/libforkless_warm.so`. Also the command `forkless` with its man pages, completions and licences.
//!
//! rustc builds one static library with everything. Each shared library is linked from it with a version script. Each static
//! library is rewritten to export only its own names: otherwise two Rust libraries could not be linked into one program.

use crate::once;
use crate::preload_link::{self, SEPARATE};
use crate::surroundings;
pub use crate::{output, root, run};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library made from the archive.
struct Library {
    /// Base name of the library, its header, its version script and its pkg-config file.
    name: &'static str,
    /// Exported symbols, as in its version script.
    exports: &'static [&'static str],
}

const LIBRARIES: [Library; 2] = [
    Library { name: "forkless", exports: &["forkless_*"] },
    Library { name: "popen_noshell", exports: &["popen_noshell*", "pclose_noshell"] },
];

/// System libraries that the static libraries need; gcc adds its own.
const PRIVATE: &[&str] = &["-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

/// Where files are installed.
#[derive(Clone, Debug)]
pub struct InstallPlace {
    /// The prefix on the machine where the files will be used.
    pub prefix: PathBuf,
    /// The directory of the libraries, relative to the prefix: `lib`, or `lib/x86_64-linux-gnu` on Debian.
    pub libdir: PathBuf,
    /// The files are written below this directory, as if it were `/`. `None`: they are written to the prefix itself.
    pub destdir: Option<PathBuf>,
}

impl InstallPlace {
    /// Below a prefix of this machine.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn at(prefix: &Path) -> Result<Self> {
        fs::create_dir_all(prefix).with_context(|| format!("{}", prefix.display()))?;
        Ok(Self { prefix: fs::canonicalize(prefix)?, libdir: "lib".into(), destdir: None })
    }

    /// The directory to which the files of the prefix are written.
    pub fn root(&self) -> PathBuf {
        match &self.destdir {
            None => self.prefix.clone(),
            Some(destdir) => destdir.join(self.prefix.strip_prefix("/").unwrap_or(&self.prefix)),
        }
    }

    /// Makes a directory of the prefix, below [`root`](Self::root), and returns its path.
    fn directory(&self, name: impl AsRef<Path>) -> Result<PathBuf> {
        let directory = self.root().join(name);
        fs::create_dir_all(&directory).with_context(|| format!("{}", directory.display()))?;
        Ok(directory)
    }
}

/// Builds the libraries in cargo's directory `target`, in release mode, and installs them below `prefix`.
///
/// # Errors
/// If cargo, cc, ld, objcopy or ar fails.
pub fn install(prefix: &Path, target: &Path) -> Result<()> {
    libraries(&InstallPlace::at(prefix)?, target, &[])
}

/// As [`install`], at any place, with further variables in the environment of cargo.
///
/// # Errors
/// As there.
pub fn libraries(place: &InstallPlace, target: &Path, environment: &[(&str, String)]) -> Result<()> {
    surroundings::check_unsplit(&place.prefix)?;
    let target = std::path::absolute(target)?;
    let mut build = cargo_build(&target, environment);
    run(build.args(["--package", "forkless-capi", "--package", "forkless-preload"]))?;
    let archive = target.join("release/libforkless_capi.a");
    LIBRARIES.iter().try_for_each(|library| library.install(&archive, place))?;
    let preload = place.directory(&place.libdir)?.join("libforkless_preload.so");
    let new = preload.with_extension("so.new");
    preload_link::link(&target.join("release/libforkless_preload.a"), &new)?;
    smoke(&new).with_context(|| format!("{} does not work, and is not installed", new.display()))?;
    fs::rename(new, preload)?;
    if HAS_WARM {
        let lib = place.directory(place.libdir.join("forkless"))?;
        warm_with(&lib, &target.join("warm-build"), environment)?;
    }
    Ok(())
}

/// Runs a program with the new preload library: it ends in each of four ways, with and without a launch before.
fn smoke(library: &Path) -> Result<()> {
    const SOURCE: &str = include_str!("smoke.c");
    let place = library.with_extension("smoke");
    fs::create_dir_all(&place)?;
    let (source, program) = (place.join("smoke.c"), place.join("smoke"));
    fs::write(&source, SOURCE)?;
    run(Command::new("cc").args(["-Wall", "-Wextra", "-o"]).arg(&program).arg(&source))?;
    let loaded = surroundings::word(library.to_str().context("a path that is not UTF-8")?);
    for launch in ["none", "system", "popen", "posix_spawn"] {
        for (end, expected) in [("return", Ok(7)), ("exit", Ok(7)), ("_exit", Ok(7)), ("signal", Err(libc::SIGTERM))] {
            let mut test = Command::new(&program);
            test.args([launch, end]).env("LD_PRELOAD", &loaded).env_remove("FORKLESS");
            let status = test.status()?;
            let ended = status.code().ok_or_else(|| status.signal().unwrap_or(0));
            if ended != expected {
                bail!("a program that launches by {launch:?} and ends by {end:?}: {status}");
            }
        }
    }
    Ok(fs::remove_dir_all(place)?)
}

/// Whether this machine has warm programs: docs/warm.md.
pub const HAS_WARM: bool = cfg!(all(target_arch = "x86_64", target_env = "gnu"));

/// The packages of the command: `forkless`, and what `forkless bench` runs.
pub const COMMANDS: [&str; 2] = ["forkless-cli", "forkless-bench"];

/// Builds the command, and installs it with its man pages and completions. `environment` as for [`libraries`].
///
/// # Errors
/// If cargo or the command fails.
pub fn command(place: &InstallPlace, target: &Path, environment: &[(&str, String)]) -> Result<()> {
    let target = std::path::absolute(target)?;
    run(cargo_build(&target, environment).args(COMMANDS.map(|name| format!("--package={name}"))))?;
    install_command(place, &PROGRAMS.map(|name| target.join("release").join(name)))
}

/// The programs of these packages.
pub const PROGRAMS: [&str; 2] = ["forkless", "forkless-bench"];

/// Installs programs that were built already, and the man pages and completions that `forkless` writes.
///
/// # Errors
/// If the command fails.
pub fn install_command(place: &InstallPlace, built: &[PathBuf]) -> Result<()> {
    let bin = place.directory("bin")?;
    for program in built {
        let name = program.file_name().context("a program")?;
        // Replace the file: a running program cannot be written to.
        let new = bin.join(name).with_extension("new");
        run(Command::new("strip").arg("-o").arg(&new).arg(program))?;
        fs::rename(&new, bin.join(name))?;
    }
    let installed = bin.join("forkless");
    run(Command::new(&installed).args(["man", "--dir"]).arg(place.directory("share/man/man1")?))?;
    let completions = [
        ("bash", "share/bash-completion/completions", "forkless"),
        // Where zsh looks below its own prefix and below /usr/local; Debian has another directory for its packages.
        ("zsh", "share/zsh/site-functions", "_forkless"),
        ("fish", "share/fish/vendor_completions.d", "forkless.fish"),
    ];
    for (shell, directory, name) in completions {
        let output = Command::new(&installed).args(["completions", shell]).output()?;
        if !output.status.success() {
            bail!("forkless completions {shell}: {}", output.status);
        }
        fs::write(place.directory(directory)?.join(name), output.stdout)?;
    }
    Ok(())
}

/// Installs the licences.
///
/// # Errors
/// If a file cannot be written.
pub fn licences(place: &InstallPlace) -> Result<()> {
    let directory = place.directory("share/doc/forkless")?;
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        fs::copy(root().join(name), directory.join(name)).with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// `cargo build` in release mode.
fn cargo_build(target: &Path, environment: &[(&str, String)]) -> Command {
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.current_dir(root()).args(["build", "--quiet", "--release", "--locked", "--target-dir"]).arg(target);
    build.envs(environment.iter().map(|(name, value)| (name, value)));
    build
}

/// As [`install`], but once per run of `cargo xtask`: several tests install to one place.
///
/// # Errors
/// As there.
pub fn install_once(prefix: &Path, target: &Path) -> Result<()> {
    if once::is_of_this_run(prefix) {
        return Ok(());
    }
    install(prefix, target)?;
    once::done(prefix)
}

impl Library {
    fn install(&self, archive: &Path, place: &InstallPlace) -> Result<()> {
        let (source, name) = (root().join("crates/capi"), self.name);
        let (lib, include) = (place.directory(&place.libdir)?, place.directory("include")?);
        self.shared(archive, &source.join(format!("lib{name}.map")), &lib)?;
        self.statically(archive, &lib)?;
        let header = format!("{name}.h");
        fs::copy(source.join("include").join(&header), include.join(&header))?;
        let pc = fs::read_to_string(source.join(format!("{name}.pc.in")))?
            .replace("@PREFIX@", place.prefix.to_str().context("the prefix is not UTF-8")?)
            .replace("@LIBDIR@", place.libdir.to_str().context("the directory of the libraries is not UTF-8")?)
            .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
            .replace("@PRIVATE@", &PRIVATE.join(" "));
        fs::write(place.directory(place.libdir.join("pkgconfig"))?.join(format!("{name}.pc")), pc)?;
        Ok(())
    }

    fn shared(&self, archive: &Path, map: &Path, lib: &Path) -> Result<()> {
        let soname = format!("lib{}.so.0", self.name);
        // Replace the file instead of writing to it: running programs keep the old library.
        let new = lib.join(format!("{soname}.new"));
        let mut link = Command::new("cc");
        link.arg("-shared").arg("-o").arg(&new).arg(format!("-Wl,-soname,{soname}"));
        link.arg(format!("-Wl,--version-script={}", map.display()));
        link.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive");
        // nodelete: threads and thread-exit handlers may still run code of the library after dlclose(3).
        link.args(["-Wl,--gc-sections,--strip-debug,-z,defs,-z,relro,-z,now,-z,nodelete", "-lgcc_s"]);
        run(link.args(PRIVATE))?;
        fs::rename(&new, lib.join(&soname))?;
        let link = lib.join(format!("lib{}.so", self.name));
        if link.symlink_metadata().is_ok() {
            fs::remove_file(&link)?;
        }
        Ok(symlink(soname, link)?)
    }

    fn statically(&self, archive: &Path, lib: &Path) -> Result<()> {
        let name = self.name;
        let all = lib.join(format!("{name}-all.o"));
        let (one, new) = (lib.join(format!("{name}.o")), lib.join(format!("lib{name}.a.new")));
        run(Command::new("ld").arg("-r").arg("-o").arg(&all).arg("--whole-archive").arg(archive))?;
        let mut localize = Command::new("objcopy");
        // Sections with bitcode, for which ar would need its plug-in.
        localize.args(["--strip-debug", "--remove-section=.llvmbc", "--remove-section=.llvmcmd", "--wildcard"]);
        localize.args(self.exports.iter().map(|names| format!("--keep-global-symbol={names}")));
        run(localize.arg(&all).arg(&one))?;
        if new.exists() {
            fs::remove_file(&new)?;
        }
        run(Command::new("ar").arg("rcs").arg(&new).arg(&one))?;
        fs::rename(&new, lib.join(format!("lib{name}.a")))?;
        fs::remove_file(all)?;
        Ok(fs::remove_file(one)?)
    }
}

/// Builds `libforkless_warm.so` in cargo's directory `target`, in release mode, and writes it to the directory `lib`.
///
/// # Errors
/// If cargo or cc fails.
pub fn warm(lib: &Path, target: &Path) -> Result<()> {
    warm_with(lib, target, &[])
}

/// As [`warm`], but once per run of `cargo xtask`.
///
/// # Errors
/// As there.
pub fn warm_once(lib: &Path, target: &Path) -> Result<()> {
    if once::is_of_this_run(lib) {
        return Ok(());
    }
    warm(lib, target)?;
    once::done(lib)
}

fn warm_with(lib: &Path, target: &Path, environment: &[(&str, String)]) -> Result<()> {
    let target = std::path::absolute(target)?;
    let mut build = cargo_build(&target, environment);
    // A panic would unwind through frames of the program. The library has no panic, and so needs no unwinder either.
    build.env("CARGO_PROFILE_RELEASE_PANIC", "abort");
    run(build.args(["--package", "forkless-warm"]))?;
    fs::create_dir_all(lib)?;
    let (new, installed) = (lib.join("libforkless_warm.so.new"), lib.join("libforkless_warm.so"));
    let map = root().join("crates/warm/libforkless_warm.map");
    let mut link = Command::new("cc");
    link.args(["-shared", "-nostartfiles", "-static-libgcc"])
        .arg("-o")
        .arg(&new)
        .arg("-Wl,-soname,libforkless_warm.so");
    link.arg(format!("-Wl,--version-script={}", map.display())).args(["-u", "__libc_start_main"]);
    link.arg(target.join("release/libforkless_warm.a"));
    run(link
        .args(["-Wl,--gc-sections,-s,-z,defs,-z,relro,-z,now,-z,nodelete", "-Wl,--as-needed"])
        // A clone copies each mapping, and a library needs at least three.
        .arg("-Wl,-z,noseparate-code")
        .args(SEPARATE))?;
    Ok(fs::rename(new, installed)?)
}
