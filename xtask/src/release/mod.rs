//! Makes what users install: crates, Debian packages, an archive with the command and the C libraries, and packages of the
//! language modules (`target/packages`). Nothing is uploaded.
//!
//! Two builds of one commit give equal files: dates are those of the commit, and no path of this machine is in them.

mod crates;
pub use crates::CRATES;
mod deb;
mod installed;
mod modules;
mod npm;
mod raku;
mod third_party;
mod twice;
mod zig;

use crate::kernels::debian::own_suite;
use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testing::dist::{self, InstallPlace, output, root, run};

/// Options of `cargo xtask package`.
#[derive(Debug, Parser)]
pub struct Options {
    /// Kinds of packages (default: all)
    kinds: Vec<PackageKind>,
    /// Directory of the packages
    #[arg(long, value_name = "DIR", default_value = "target/packages")]
    out: PathBuf,
    /// Then use the packages: the crates outside of the tree, all others in a new, minimal Debian (needs root)
    #[arg(long)]
    check: bool,
    /// Then make the packages again, of a clone of the commit in another directory, and compare them byte by byte
    #[arg(long)]
    twice: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PackageKind {
    /// Files for a registry of Rust crates, each built from what it contains
    Crates,
    /// A tar.gz with the command, man pages, completions and the C libraries
    Archive,
    /// Debian packages
    Deb,
    /// A wheel and a source distribution for Python
    Python,
    /// A distribution for CPAN
    Perl,
    /// Packages for npm: the main one, and one with the addon for each platform
    Npm,
    /// A distribution for Raku
    Raku,
}

/// Makes the packages.
///
/// # Errors
/// If a program fails, with its name.
pub fn make(options: &Options, target: &Path) -> Result<()> {
    let out = std::path::absolute(&options.out)?;
    fs::create_dir_all(&out).with_context(|| format!("{}", out.display()))?;
    let wanted = |kind| options.kinds.is_empty() || options.kinds.contains(&kind);
    if wanted(PackageKind::Crates) {
        crates::make(&out, target)?;
    }
    let build = Build::new(target)?;
    if wanted(PackageKind::Archive) {
        build.archive(&out)?;
    }
    if wanted(PackageKind::Deb) {
        deb::make(&build, &out)?;
    }
    if wanted(PackageKind::Python) {
        modules::python(&build, &out)?;
    }
    if wanted(PackageKind::Perl) {
        modules::perl(&build, &out)?;
    }
    if wanted(PackageKind::Npm) {
        npm::make(&build, &out)?;
    }
    if wanted(PackageKind::Raku) {
        raku::make(&build, &out)?;
    }
    let mut files: Vec<_> = fs::read_dir(&out)?.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for path in files {
        println!("{:>10} bytes  {}", fs::metadata(&path)?.len(), path.display());
    }
    if wanted(PackageKind::Crates) {
        println!("order of the crates: {}", crates::CRATES.join(", "));
    }
    if options.twice {
        let kinds = options.kinds.iter().filter_map(ValueEnum::to_possible_value);
        let kinds: Vec<_> = kinds.map(|kind| kind.get_name().to_owned()).collect();
        twice::compare(&kinds, &out, &std::path::absolute(target)?.join("release-packages/twice"))?;
    }
    if options.check {
        if wanted(PackageKind::Crates) {
            crates::check(&out, &std::path::absolute(target)?.join("release-packages/crates"))?;
        }
        if options.kinds != [PackageKind::Crates] {
            let root = std::path::absolute(target)?.join("release-packages/debian");
            installed::check(&out, &root, &own_suite(), wanted)?;
        }
    }
    Ok(())
}

/// Uses packages that were made on this machine in another release of Debian, made in the directory `place`; returns what was tried.
///
/// # Errors
/// If a command there fails, which has then been printed.
pub(crate) fn use_in(suite: &str, packages: &Path, place: &Path) -> Result<Vec<&'static str>> {
    // The Debian packages are for the glibc of this machine and later ones; npm's need a Node that bullseye does not have.
    let portable = [PackageKind::Archive, PackageKind::Python];
    installed::check(packages, place, suite, |kind| suite != "bullseye" || portable.contains(&kind))
}

/// What the binary packages have in common.
struct Build {
    /// cargo's directory for them.
    target: PathBuf,
    /// A new directory for the trees of files.
    trees: PathBuf,
    /// The time of the commit, in seconds since 1970: SOURCE_DATE_EPOCH.
    date: String,
}

impl Build {
    fn new(target: &Path) -> Result<Self> {
        let target = std::path::absolute(target)?.join("release-packages");
        let trees = target.join("trees");
        if trees.exists() {
            fs::remove_dir_all(&trees)?;
        }
        fs::create_dir_all(&trees)?;
        let date = output(Command::new("git").current_dir(root()).args(["log", "-1", "--format=%ct"]))?;
        Ok(Self { target, trees, date: date.trim().to_owned() })
    }

    /// Installs the libraries and the command below a new directory. `programs`: those of the command, if they are built already.
    fn install(&self, name: &str, prefix: &str, libdir: &str, programs: &[PathBuf]) -> Result<PathBuf> {
        let tree = self.trees.join(name);
        let place = InstallPlace { prefix: prefix.into(), libdir: libdir.into(), destdir: Some(tree.clone()) };
        let environment = without_paths()?;
        dist::libraries(&place, &self.target, &environment)?;
        match programs {
            [] => dist::command(&place, &self.target, &environment)?,
            programs => dist::install_command(&place, programs)?,
        }
        let libraries = tree.join(prefix.trim_start_matches('/')).join(libdir);
        for entry in fs::read_dir(libraries)?.flatten().filter(|entry| entry.path().is_file()) {
            run(Command::new("strip").args(["--strip-unneeded", "--enable-deterministic-archives"]).arg(entry.path()))?;
        }
        Ok(tree)
    }

    fn archive(&self, out: &Path) -> Result<()> {
        let name = format!("forkless-{}-{}-linux-gnu", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
        // The command is for every glibc, but the libraries for that of this machine, with whose linker users link them.
        let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let built = zig::release(self, &dist::COMMANDS, &triple)?;
        let programs = dist::PROGRAMS.map(|name| built.join(name));
        for program in &programs {
            let newest = newest_glibc(program)?;
            ensure!(newest <= version(zig::GLIBC), "{} needs glibc {newest:?}", program.display());
        }
        let tree = self.install("archive", &format!("/{name}"), "lib", &programs)?;
        let inside = tree.join(&name);
        for file in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            fs::copy(root().join(file), inside.join(file)).with_context(|| file.to_owned())?;
        }
        third_party::write(&dist::COMMANDS, "forkless", &inside.join("THIRD-PARTY.txt"), &inside.join("sbom.json"))?;
        self.tar(&tree, &name, &out.join(format!("{name}.tar.gz")))
    }

    /// Makes a tar.gz of the directory `name` in `tree`.
    fn tar(&self, tree: &Path, name: &str, file: &Path) -> Result<()> {
        let mut tar = Command::new("tar");
        tar.current_dir(tree).args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u+rw,go=rX"]);
        tar.arg(format!("--mtime=@{}", self.date)).args(["--use-compress-program=gzip -9n", "-cf"]).arg(file);
        run(tar.arg(name))
    }
}

/// The newest version of glibc of which the program needs a symbol.
fn newest_glibc(program: &Path) -> Result<Vec<u32>> {
    let symbols = output(Command::new("objdump").arg("-T").arg(program))?;
    let versions =
        symbols.split("GLIBC_").skip(1).map(|rest| version(rest.split([')', ' ', '\n']).next().unwrap_or("")));
    versions.max().with_context(|| format!("{} needs no glibc", program.display()))
}

/// The numbers of a version.
fn version(text: &str) -> Vec<u32> {
    text.split('.').filter_map(|number| number.parse().ok()).collect()
}

/// Variables for a build whose results contain no path of this machine.
fn without_paths() -> Result<[(&'static str, String); 3]> {
    let (cargo_home, here) = (cargo_home()?, fs::canonicalize(root())?);
    let mut maps = vec![(cargo_home.clone(), "/usr/src/cargo"), (here, "/usr/src/forkless")];
    // The working directory of a compiler has no links in its path.
    if let Ok(registry) = fs::canonicalize(cargo_home.join("registry")) {
        maps.push((registry, "/usr/src/cargo/registry"));
    }
    let rust: Vec<_> = maps.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())).collect();
    let c: Vec<_> = maps.iter().map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display())).collect();
    ensure!(std::env::var_os("RUSTFLAGS").is_none(), "RUSTFLAGS is set, which would change the packages: unset it");
    // The packages are stripped, but the linker's build ID is a hash of the debugging information, too.
    let debug = ("CARGO_PROFILE_RELEASE_DEBUG", "false".to_owned());
    Ok([("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}")), ("CFLAGS", c.join(" ")), debug])
}

/// Cargo's home, which contains its registry.
pub(crate) fn cargo_home() -> Result<PathBuf> {
    Ok(match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => std::env::home_dir().context("no home directory")?.join(".cargo"),
    })
}

fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

#[cfg(test)]
mod tests {
    use super::{newest_glibc, version};

    #[test]
    fn versions_of_glibc_are_compared_as_numbers() {
        assert!(
            version("2.17") < version("2.34") && version("2.2.5") < version("2.17") && version("2.9") < version("2.17")
        );
        let newest = newest_glibc(&std::env::current_exe().expect("this program")).expect("it is linked with glibc");
        assert!(newest >= version("2.2.5"), "{newest:?}");
    }
}
