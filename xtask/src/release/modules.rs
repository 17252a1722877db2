//! The packages of the language modules: a wheel and a source distribution for Python, a distribution for CPAN.

use super::{Build, third_party, zig};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use testing::dist::{output, root, run};

/// The tag of [`zig::GLIBC`].
const PLATFORM: &str = "manylinux_2_17";

/// The largest size of a wheel, in bytes.
const LARGEST: u64 = 2 << 20;

/// Makes a wheel for every Python from 3.9 and every glibc from 2.17, and a source distribution.
///
/// # Errors
/// If Python or a program fails, or the wheel would not run with that glibc.
pub(super) fn python(build: &Build, out: &Path) -> Result<()> {
    let place = build.target.join("python");
    let python = zig::python(build)?;
    let wheels = place.join("made");
    if wheels.exists() {
        fs::remove_dir_all(&wheels)?;
    }
    // pyproject.toml names this file.
    let licences = root().join("bindings/python/THIRD-PARTY.txt");
    let sbom = place.join("forkless-python.cdx.json");
    fs::create_dir_all(&place)?;
    third_party::write(&["forkless-python"], "forkless", &licences, &sbom)?;
    // maturin looks for zig by the python of PATH.
    let path = zig::path(&python)?;
    let maturin = |task: &str| {
        let mut maturin = Command::new(&python);
        maturin.env("PATH", &path);
        maturin.args(["-m", "maturin", task, "--out"]).arg(&wheels);
        maturin.arg("--manifest-path").arg(root().join("bindings/python/Cargo.toml"));
        maturin.env("SOURCE_DATE_EPOCH", &build.date).env("CARGO_TARGET_DIR", place.join("target"));
        maturin
    };
    let mut wheel = maturin("build");
    // zig is the linker that knows the symbols of old versions of glibc.
    wheel
        .args(["--quiet", "--release", "--locked", "--strip", "--zig", "--compatibility", PLATFORM, "--sbom-include"])
        .arg(&sbom)
        .arg("--interpreter");
    let wheel = run(wheel.arg(&python).envs(super::without_paths()?));
    fs::remove_file(licences)?;
    wheel?;
    run(&mut maturin("sdist"))?;
    for entry in fs::read_dir(&wheels)? {
        let path = entry?.path();
        let name = path.file_name().context("a file")?.to_string_lossy().into_owned();
        if path.extension().is_some_and(|end| end == "whl") {
            let size = fs::metadata(&path)?.len();
            ensure!(size <= LARGEST, "{name} has {size} bytes, more than {LARGEST}");
            let platform = output(Command::new(&python).args(["-m", "auditwheel", "show"]).arg(&path))?;
            let good = format!("\"{PLATFORM}_{}\"", std::env::consts::ARCH);
            ensure!(platform.contains(&good), "{name} does not run on {good}: {platform}");
        }
        fs::copy(&path, out.join(&name)).context(name)?;
    }
    Ok(())
}

/// Makes the distribution for CPAN. It contains no library: Makefile.PL looks for that of the system.
///
/// # Errors
/// If a program fails.
pub(super) fn perl(build: &Build, out: &Path) -> Result<()> {
    let tree = build.trees.join("perl");
    let files = output(Command::new("git").current_dir(root().join("bindings/perl")).args(["ls-files", "-z"]))?;
    for file in files.split_terminator('\0') {
        let copy = tree.join(file);
        fs::create_dir_all(copy.parent().context("a folder")?)?;
        fs::copy(root().join("bindings/perl").join(file), copy).with_context(|| file.to_owned())?;
    }
    // Makefile.PL is content with any library, since nothing is compiled here.
    let prefix = build.trees.join("prefix");
    fs::create_dir_all(prefix.join("lib"))?;
    fs::write(prefix.join("lib/libforkless.a"), "")?;
    run(Command::new("perl").current_dir(&tree).arg("Makefile.PL").env("FORKLESS_PREFIX", &prefix))?;
    let tar = format!("--sort=name --owner=0 --group=0 --numeric-owner --mode=u+rw,go=rX --mtime=@{} -cf", build.date);
    let mut make = Command::new("make");
    make.current_dir(&tree).args(["dist", "COMPRESS=gzip -9nf", &format!("TARFLAGS={tar}")]);
    run(make.env("SOURCE_DATE_EPOCH", &build.date))?;
    let name = format!("Forkless-{}.tar.gz", env!("CARGO_PKG_VERSION"));
    if !tree.join(&name).exists() {
        bail!("make dist has not made {name}: is the version in lib/Forkless.pm another one?");
    }
    fs::copy(tree.join(&name), out.join(&name)).context(name)?;
    Ok(())
}
