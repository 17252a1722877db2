//! Debian's kernels of other suites than the machine's: by apt, with a configuration of its own, from the machine's own mirror.

use super::arch::Arch;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testing::dist::output;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A kernel's packages, unpacked.
pub struct UnpackedKernel {
    pub arch: Arch,
    /// As `uname -r` has it.
    pub release: String,
    /// The version of Debian's package.
    pub package: String,
    pub image: PathBuf,
    /// `lib/modules/RELEASE`.
    pub modules: PathBuf,
}

/// A configuration of apt that has nothing of this machine but the address of its mirror.
pub(crate) struct Apt {
    config: PathBuf,
    arch: &'static str,
}

/// The newest kernel of the first of these suites that has one whose release begins with `version`, unpacked below `place`.
///
/// # Errors
/// If no suite has one, with the reasons.
pub fn fetch(version: &str, suites: &[&str], arch: Arch, place: &Path) -> Result<UnpackedKernel> {
    let mut reasons = Vec::new();
    for suite in suites {
        match from_suite(version, suite, arch, &place.join(suite)) {
            Ok(kernel) => return Ok(kernel),
            Err(error) => reasons.push(format!("{suite}: {error:#}")),
        }
    }
    bail!("{}", reasons.join("; "))
}

fn from_suite(version: &str, suite: &str, arch: Arch, place: &Path) -> Result<UnpackedKernel> {
    let apt = Apt::new(suite, arch.debian(), place)?;
    apt.run("apt-get", &["-q", "update"], place)?;
    let all = apt.kernel_packages(&format!("linux-image-{}", arch.debian()))?;
    let package = apt.field(&all[0], "Version")?.context("a package without a version")?;
    ensure!(
        package.strip_prefix(version).is_some_and(|rest| rest.starts_with(['.', '-', '~', '+'])),
        "the kernel of {suite} is {package} now"
    );
    let tree = place.join(&package);
    if !tree.exists() {
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        apt.unpack(&all, &tree, place)?;
    }
    find_kernel(&tree, package, arch)
}

/// The kernel in an unpacked tree: up to some version in /boot, later beside its modules.
fn find_kernel(tree: &Path, package: String, arch: Arch) -> Result<UnpackedKernel> {
    for modules in ["lib/modules", "usr/lib/modules"] {
        let Ok(releases) = fs::read_dir(tree.join(modules)) else { continue };
        for release in releases {
            let (modules, release) = (release.as_ref().map(|entry| entry.path()), release.as_ref());
            let (Ok(modules), Ok(release)) = (modules, release) else { continue };
            let release = release.file_name().to_string_lossy().into_owned();
            let places = [tree.join("boot").join(format!("vmlinuz-{release}")), modules.join("vmlinuz")];
            if let Some(image) = places.into_iter().find(|place| place.exists()) {
                return Ok(UnpackedKernel { arch, release, package, image, modules });
            }
        }
    }
    bail!("no kernel in {}", tree.display())
}

/// A Debian of this machine's suite for another architecture: these packages and what they depend on, unpacked in `place`. Nothing
/// is configured but users and groups.
///
/// # Errors
/// If a package cannot be downloaded.
pub fn root(packages: &[&str], arch: &'static str, place: &Path) -> Result<PathBuf> {
    let tree = std::path::absolute(place)?.join("root");
    if tree.exists() {
        return Ok(tree);
    }
    let apt = Apt::new(&own_suite(), arch, place)?;
    apt.run("apt-get", &["-q", "update"], place)?;
    let words = ["-q", "-y", "--download-only", "--no-install-recommends", "install"];
    apt.run("apt-get", &[&words, packages].concat(), place)?;
    let new = tree.with_extension("new");
    let _ = fs::remove_dir_all(&new);
    for directory in ["dev", "etc", "proc", "root", "run", "sys", "tmp"] {
        fs::create_dir_all(new.join(directory))?;
    }
    let archives = fs::read_dir(place.join("cache/archives"))?.filter_map(|entry| Some(entry.ok()?.path()));
    for deb in archives.filter(|path| path.extension().is_some_and(|ending| ending == "deb")) {
        output(Command::new("dpkg-deb").arg("-x").arg(deb).arg(&new))?;
    }
    for file in ["passwd", "group"] {
        fs::copy(new.join("usr/share/base-passwd").join(file).with_extension("master"), new.join("etc").join(file))?;
    }
    fs::rename(&new, &tree)?;
    Ok(tree)
}

/// The files of a package of this machine's suite for another architecture.
///
/// # Errors
/// If it cannot be downloaded.
pub fn unpacked(package: &str, arch: &'static str, place: &Path) -> Result<PathBuf> {
    let tree = std::path::absolute(place)?.join(package);
    if tree.exists() {
        return Ok(tree);
    }
    let apt = Apt::new(&own_suite(), arch, place)?;
    apt.run("apt-get", &["-q", "update"], place)?;
    apt.unpack(&[package], &tree, place)?;
    Ok(tree)
}

/// The source of a package of this machine's suite, unpacked in `tree`.
///
/// # Errors
/// If it cannot be downloaded.
pub fn fetch_source(package: &str, place: &Path, tree: &Path) -> Result<()> {
    let apt = Apt::new(&own_suite(), "amd64", &place.join("apt"))?;
    apt.run("apt-get", &["-q", "update"], place)?;
    apt.run("apt-get", &["-q", "--download-only", "source", package], place)?;
    let start = format!("{package}_");
    let found = fs::read_dir(place)?.flatten().map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&start) && name.ends_with(".dsc")
    });
    let found = found.with_context(|| format!("apt has brought no source of {package}"))?;
    output(Command::new("dpkg-source").args(["--no-check", "-x"]).arg(found).arg(tree).current_dir(place)).map(drop)
}

impl Apt {
    pub(crate) fn new(suite: &str, arch: &'static str, place: &Path) -> Result<Self> {
        ensure!(Path::new(KEYRING).exists(), "no {KEYRING} (package debian-archive-keyring)");
        let place = std::path::absolute(place)?;
        for directory in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(place.join(directory))?;
        }
        fs::write(place.join("status"), "")?;
        let mirror = mirror()?;
        let lines = ["deb", "deb-src"].map(|kind| format!("{kind} [signed-by={KEYRING}] {mirror} {suite} main\n"));
        fs::write(place.join("sources.list"), lines.concat())?;
        let shown = place.display();
        let config = place.join("apt.conf");
        fs::write(
            &config,
            format!(
                "Dir::Etc::SourceList \"{shown}/sources.list\";\nDir::Etc::SourceParts \"-\";\nDir::Etc::Preferences \"-\";\n\
                 Dir::Etc::PreferencesParts \"-\";\nDir::State::Lists \"{shown}/lists\";\nDir::State::status \"{shown}/status\";\n\
                 Dir::Cache \"{shown}/cache\";\nAPT::Architecture \"{arch}\";\nAPT::Architectures {{ \"{arch}\"; }};\n\
                 APT::Sandbox::User \"\";\nAPT::Update::Error-Mode \"any\";\nAcquire::Languages \"none\";\n\
                 Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n"
            ),
        )?;
        Ok(Self { config, arch })
    }

    pub(crate) fn run(&self, program: &str, words: &[&str], directory: &Path) -> Result<String> {
        output(Command::new(program).arg("-c").arg(&self.config).args(words).current_dir(directory))
    }

    /// Downloads these packages and unpacks them in `tree`.
    fn unpack(&self, packages: &[&str], tree: &Path, place: &Path) -> Result<()> {
        let (new, debs) = (place.join("new"), place.join("debs"));
        for made in [&new, &debs] {
            let _ = fs::remove_dir_all(made);
            fs::create_dir_all(made)?;
        }
        self.run("apt-get", &[&["-q", "download"], packages].concat(), &debs)?;
        for deb in fs::read_dir(&debs)? {
            output(Command::new("dpkg-deb").arg("-x").arg(deb?.path()).arg(&new))?;
        }
        // Last, so that an incomplete one is made again.
        fs::rename(&new, tree)?;
        Ok(fs::remove_dir_all(&debs)?)
    }

    /// A field of a package's newest version.
    fn field(&self, package: &str, name: &str) -> Result<Option<String>> {
        let shown = self.run("apt-cache", &["--no-all-versions", "show", package], Path::new("/"))?;
        Ok(shown.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned))
    }

    /// The packages that hold the kernel of this metapackage: its image, and its binary and modules where these are apart.
    fn kernel_packages(&self, metapackage: &str) -> Result<Vec<String>> {
        let (mut found, mut next) = (Vec::<String>::new(), vec![metapackage.to_owned()]);
        while let Some(package) = next.pop() {
            let depends = self.field(&package, "Depends")?.unwrap_or_default();
            for name in depends.split([',', '|']).filter_map(|one| one.split_whitespace().next()) {
                let parts = ["linux-image-", "linux-base-", "linux-binary-", "linux-modules-"];
                let is_part = parts.iter().any(|part| name.starts_with(part)) && name.ends_with(self.arch);
                if is_part && !found.iter().any(|known| known == name) {
                    found.push(name.to_owned());
                    next.push(name.to_owned());
                }
            }
        }
        ensure!(!found.is_empty(), "{metapackage} names no kernel");
        Ok(found)
    }
}

/// The machine's own suite.
pub(crate) fn own_suite() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).unwrap_or("stable").to_owned()
}

/// The address of the machine's own mirror of its main suite.
pub(crate) fn mirror() -> Result<String> {
    let suite = own_suite();
    let format = "$(RELEASE) $(COMPONENT) $(REPO_URI)";
    let targets = output(Command::new("apt-get").args(["indextargets", "--format", format, "Created-By: Packages"]))?;
    let main = targets.lines().find_map(|line| line.strip_prefix(&format!("{suite} main ")));
    Ok(main.with_context(|| format!("apt has no source of {suite}"))?.to_owned())
}
