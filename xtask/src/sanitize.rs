//! Runs tests under Miri, AddressSanitizer and ThreadSanitizer, with a nightly toolchain and gcc.
//!
//! A child shares its caller's memory, and has no state of a sanitizer: what it notes of its stack would be taken for the caller's.
//! So `forkless-core`, which has all code that a child runs, is built without the sanitizer.

use crate::{by_own_toolchain, count};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use testing::dist::{self, root};

/// A tool.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Tool {
    /// An interpreter that finds undefined behaviour: unit tests that need few system calls
    Miri,
    /// AddressSanitizer: the C tests of the C library and of the preload library
    Asan,
    /// ThreadSanitizer: the same tests
    Tsan,
}

/// The unit tests for Miri: a package, parts of their names, and parts of names that are left out because they make system calls or
/// take minutes. Miri refuses each system call of ours: `crates/core/src/sys/miri.rs`.
const UNITS: [(&str, &str, &str); 3] = [
    ("forkless-core", "", "every_move_of_four_descriptors the_rights_of_this_process"),
    (
        "forkless",
        "plan:: error:: inherited:: failure:: ::lines_are_found switch:: group:: a_spoilt_plan of_parcels",
        "cgroup:: all_ways",
    ),
    ("forkless-capi", "", "a_panic_is_an_error"),
];

/// C tests of the preload library with their arguments, linked with it, as a sanitizer has to be loaded before. Left out are those that
/// spoil their heap (`handlers`), need other versions of a symbol (`spawn`), or load the library (the others).
const PRELOADED: [(&str, &[&str]); 6] =
    [("actions", &["1", "300"]), ("early", &[]), ("leaks", &[]), ("popen", &[]), ("storm", &["50"]), ("system", &[])];

/// Runs one tool, or all.
///
/// # Errors
/// If something is missing, or a tool finds something.
pub fn run(tool: Option<Tool>, target: &Path) -> Result<()> {
    let target = std::path::absolute(target)?.join("sanitize");
    let wanted = |one: Tool| tool.is_none_or(|tool| tool == one);
    if wanted(Tool::Miri) {
        miri(&target)?;
    }
    for (one, name) in [(Tool::Asan, "address"), (Tool::Tsan, "thread")] {
        if wanted(one) {
            Sanitizer::build(name, &target)?.tests()?;
        }
    }
    Ok(())
}

/// cargo of the nightly toolchain, and the toolchain's directory, which must have this file.
fn nightly(file: &str) -> Result<(Command, PathBuf)> {
    // Where rustup is missing, the toolchain itself may be the nightly one.
    let is_itself =
        testing::output(Command::new("rustc").arg("--version")).is_ok_and(|version| version.contains("nightly"));
    let words: &[&str] = if is_itself { &["env"] } else { &["rustup", "run", "nightly"] };
    let command = |program: &str| {
        let mut command = by_own_toolchain(words[0]);
        command.args(&words[1..]).arg(program);
        command
    };
    let found = command("rustc").args(["--print", "sysroot"]).output().context("rustup is missing")?;
    ensure!(found.status.success(), "no nightly toolchain: rustup toolchain install --profile minimal nightly");
    let sysroot = PathBuf::from(String::from_utf8(found.stdout)?.trim());
    ensure!(sysroot.join(file).exists(), "no {file}: rustup component add --toolchain nightly miri rust-src");
    Ok((command("cargo"), sysroot))
}

fn miri(target: &Path) -> Result<()> {
    for (package, names, skipped) in UNITS {
        let begun = Instant::now();
        let (mut cargo, _) = nightly("bin/cargo-miri")?;
        cargo.args(["miri", "test", "--locked", "--lib", "--package", package, "--target-dir"]).arg(target);
        let skipped = skipped.split_whitespace().flat_map(|name| ["--skip", name]);
        cargo.arg("--").args(names.split_whitespace()).args(skipped);
        // Without isolation: the library reads /proc when it is loaded.
        let output = cargo.env("MIRIFLAGS", "-Zmiri-strict-provenance -Zmiri-disable-isolation").output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let passed = count(text.split("test result:").nth(1).unwrap_or(""), "passed");
        if !output.status.success() || passed == 0 {
            bail!("miri: {package}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        println!("miri: {package}: {passed} tests, {:.0} s", begun.elapsed().as_secs_f64());
    }
    Ok(())
}

/// The C libraries, built with a sanitizer.
struct Sanitizer {
    name: &'static str,
    /// Directory of the archives.
    built: PathBuf,
    /// The sanitizer's own library, of the compiler that built the archives.
    runtime: PathBuf,
    /// Directory of the linked programs.
    place: PathBuf,
}

impl Sanitizer {
    fn build(name: &'static str, target: &Path) -> Result<Self> {
        let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let target = target.join(name);
        let (mut cargo, sysroot) = nightly("lib/rustlib/src/rust/library/Cargo.lock")?;
        cargo.args(["build", "--quiet", "--locked", "-Zprofile-rustflags", "-Zbuild-std"]);
        let mixed = "'-Cunsafe-allow-abi-mismatch=sanitizer'";
        let all = format!("'-Zsanitizer={name}', {mixed}");
        for (profile, flags) in [("", &*all), (".build-override", ""), (".package.forkless-core", mixed)] {
            cargo.args(["--config", &format!("profile.dev{profile}.rustflags=[{flags}]")]);
        }
        cargo.args(["--package=forkless-capi", "--package=forkless-preload", "--target", &triple, "--target-dir"]);
        dist::run(cargo.arg(&target))?;
        let file = format!("lib/rustlib/{triple}/lib/librustc-nightly_rt.{}san.a", &name[..1]);
        let place = target.join("programs");
        fs::create_dir_all(&place)?;
        dist::warm(&place, &target.join("warm"))?;
        let built = target.join(triple).join("debug");
        Ok(Self { name, built, runtime: sysroot.join(file), place })
    }

    fn tests(&self) -> Result<()> {
        let capi = root().join("crates/capi");
        let include = format!("-I{}", capi.join("include").display());
        let (begun, mut programs) = (Instant::now(), 0);
        for entry in fs::read_dir(capi.join("tests"))? {
            let source = entry?.path();
            if source.extension().is_some_and(|extension| extension == "c") {
                let program = self.link(&source, &["-std=c99", &include], "libforkless_capi.a")?;
                self.must(&mut Command::new(program))?;
                programs += 1;
            }
        }
        let tests = root().join("crates/preload/tests/c");
        let facts = self.place.join("facts");
        dist::run(Command::new("gcc").arg("-static").arg(tests.join("facts.c")).arg("-o").arg(&facts))?;
        for (name, args) in PRELOADED {
            // A program reports what its children see, which must be the same without the library.
            let source = tests.join(name).with_extension("c");
            let plain = self.place.join(format!("{name}-without"));
            dist::run(Command::new("gcc").args(["-O1", "-w", "-pthread", "-o"]).arg(&plain).arg(&source))?;
            let with = self.link(&source, &["-std=gnu11", "-w"], "libforkless_preload.a")?;
            let [without, with] = [plain, with].map(|program| -> Result<String> {
                let (work, report) = (self.place.join("work"), self.place.join("report"));
                let _ = (fs::remove_dir_all(&work), fs::remove_file(&report));
                fs::create_dir(&work)?;
                self.must(Command::new(program).arg(&facts).arg(&report).args(args).current_dir(&work))?;
                Ok(String::from_utf8_lossy(&fs::read(report)?).into_owned())
            });
            let (without, with) = (without?, with?);
            ensure!(without == with, "{}: {name}: without the library:\n{without}with it:\n{with}", self.name);
            programs += 1;
        }
        println!("{}: {programs} programs in C, {:.0} s", self.name, begun.elapsed().as_secs_f64());
        Ok(())
    }

    /// A program, linked with one of the archives.
    fn link(&self, source: &Path, options: &[&str], archive: &str) -> Result<PathBuf> {
        let program = self.place.join(source.file_stem().context("a name")?);
        let object = program.with_extension("o");
        let mut compile = Command::new("gcc");
        compile.args(["-g", "-O1", "-c"]).arg(format!("-fsanitize={}", self.name)).args(options);
        dist::run(compile.arg(source).arg("-o").arg(&object))?;
        let mut link = Command::new("gcc");
        link.arg("-o").arg(&program).arg(object).arg("-Wl,--export-dynamic,--whole-archive").arg(&self.runtime);
        link.arg(self.built.join(archive)).arg("-Wl,--no-whole-archive");
        if archive.contains("preload") {
            // As `crates/preload/c/versions.S` does in the shared library.
            link.args(["posix_spawn", "posix_spawnp"].map(|n| format!("-Wl,--defsym={n}=forkless_preload_{n}")));
        }
        dist::run(link.args(["-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lresolv"]))?;
        Ok(program)
    }

    fn must(&self, program: &mut Command) -> Result<()> {
        let shown = format!("{}: {program:?}", self.name);
        // Leaks are detected only in tests of the C library. Those of the other (with a directory) leak streams themselves.
        let leaks = if program.get_current_dir().is_some() { ":detect_leaks=0" } else { "" };
        program.env("ASAN_OPTIONS", format!("exitcode=77:use_sigaltstack=0{leaks}")).env("TSAN_OPTIONS", "exitcode=77");
        program.env("WARM_LIBRARY", self.place.join("libforkless_warm.so"));
        let output = program.stdin(Stdio::null()).output().with_context(|| shown.clone())?;
        let text = String::from_utf8_lossy(&output.stderr);
        let found = text.contains("Sanitizer: ") || output.status.signal().is_some();
        ensure!(output.status.success() && !found, "{shown}: {}\n{text}", output.status);
        Ok(())
    }
}
