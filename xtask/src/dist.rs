//! The C libraries, installed: `lib/libforkless.so.0`, `libforkless.so`, `libforkless.a`, `include/forkless.h` and
//! `lib/pkgconfig/forkless.pc` below a prefix, and `lib/libforkless_preload.so`.
//!
//! rustc makes a static library of everything, from which the shared one is linked with the version script, and the static one is
//! made anew with the same names and no others: so two Rust libraries can be linked into one program.

use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const SONAME: &str = "libforkless.so.0";

/// What the static library needs of the system's; gcc adds its own.
const PRIVATE: &[&str] = &["-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

/// The workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Builds the libraries in cargo's directory `target`, in release mode, and installs it below `prefix`.
///
/// # Errors
/// What cargo, cc, ld, objcopy or ar say.
pub fn install(prefix: &Path, target: &Path) -> Result<()> {
    let target = std::path::absolute(target)?;
    fs::create_dir_all(prefix).with_context(|| format!("{}", prefix.display()))?;
    let prefix = fs::canonicalize(prefix)?;
    let source = root().join("crates/capi");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(root()).args(["build", "--quiet", "--release", "--locked"]);
    build.args(["--package", "forkless-capi", "--package", "forkless-preload"]);
    run(build.arg("--target-dir").arg(&target))?;
    let archive = target.join("release/libforkless_capi.a");

    let (lib, include) = (prefix.join("lib"), prefix.join("include"));
    fs::create_dir_all(lib.join("pkgconfig")).with_context(|| format!("{}", lib.display()))?;
    fs::create_dir_all(&include)?;
    shared(&archive, &source.join("libforkless.map"), &lib)?;
    statically(&archive, &lib)?;
    preload(&target.join("release/libforkless_preload.a"), &lib)?;
    fs::copy(source.join("include/forkless.h"), include.join("forkless.h"))?;
    let pc = fs::read_to_string(source.join("forkless.pc.in"))?
        .replace("@PREFIX@", prefix.to_str().context("a prefix that is not UTF-8")?)
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace("@PRIVATE@", &PRIVATE.join(" "));
    fs::write(lib.join("pkgconfig/forkless.pc"), pc)?;
    Ok(())
}

fn shared(archive: &Path, map: &Path, lib: &Path) -> Result<()> {
    // A program that runs with the old one keeps it.
    let new = lib.join(format!("{SONAME}.new"));
    let mut link = Command::new("cc");
    link.arg("-shared").arg("-o").arg(&new).arg(format!("-Wl,-soname,{SONAME}"));
    link.arg(format!("-Wl,--version-script={}", map.display()));
    link.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive");
    // Threads of the library's, and what runs at the end of a thread, may be in it when dlclose(3) is called: it stays.
    run(link.args(["-Wl,--gc-sections,--strip-debug,-z,defs,-z,relro,-z,now,-z,nodelete", "-lgcc_s"]).args(PRIVATE))?;
    fs::rename(&new, lib.join(SONAME))?;
    let link = lib.join("libforkless.so");
    if link.symlink_metadata().is_ok() {
        fs::remove_file(&link)?;
    }
    Ok(symlink(SONAME, link)?)
}

/// Every program that the user runs has to load it, so it brings no other library along: what libgcc_s has is linked into it.
fn preload(archive: &Path, lib: &Path) -> Result<()> {
    let map = root().join("crates/preload/libforkless_preload.map");
    let map = if cfg!(target_arch = "x86_64") { map } else { without_versions(&map, lib)? };
    let (new, installed) = (lib.join("libforkless_preload.so.new"), lib.join("libforkless_preload.so"));
    let mut link = Command::new("cc");
    link.arg("-shared").arg("-o").arg(&new).arg("-Wl,-soname,libforkless_preload.so");
    link.arg(format!("-Wl,--version-script={}", map.display()));
    link.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive");
    run(link.args(["-static-libgcc", "-Wl,--gc-sections,-s,-z,defs,-z,relro,-z,now,-z,nodelete", "-lgcc_eh"]))?;
    Ok(fs::rename(new, installed)?)
}

/// The same names for a machine where glibc's functions have other versions: without any, they stand for each.
fn without_versions(map: &Path, lib: &Path) -> Result<PathBuf> {
    let text = fs::read_to_string(map)?;
    let names: Vec<_> =
        text.lines().map(str::trim).filter(|line| line.ends_with(';') && !line.contains(['*', '}'])).collect();
    let plain = lib.join("libforkless_preload.map");
    fs::write(&plain, format!("{{ global: {} local: *; }};\n", names.join(" ")))?;
    Ok(plain)
}

fn statically(archive: &Path, lib: &Path) -> Result<()> {
    let (all, one, new) = (lib.join("all.o"), lib.join("forkless.o"), lib.join("libforkless.a.new"));
    run(Command::new("ld").arg("-r").arg("-o").arg(&all).arg("--whole-archive").arg(archive))?;
    let mut localize = Command::new("objcopy");
    // Bitcode, of which ar would ask its plug-in.
    localize.args(["--strip-debug", "--remove-section=.llvmbc", "--remove-section=.llvmcmd"]);
    run(localize.args(["--wildcard", "--keep-global-symbol=forkless_*"]).arg(&all).arg(&one))?;
    if new.exists() {
        fs::remove_file(&new)?;
    }
    run(Command::new("ar").arg("rcs").arg(&new).arg(&one))?;
    fs::rename(&new, lib.join("libforkless.a"))?;
    fs::remove_file(all)?;
    Ok(fs::remove_file(one)?)
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_owned();
    let status = command.status().with_context(|| format!("{}", name.display()))?;
    if !status.success() {
        bail!("{}: {status}", name.display());
    }
    Ok(())
}
