//! Installs the packages in a new, minimal Debian, and uses them there.

use super::PackageKind;
use crate::kernels::debian::mirror;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use testing::dist::output;

/// A use of packages, in a system that has little else.
struct Check {
    /// The kinds that it uses, all of which must be wanted.
    kinds: &'static [PackageKind],
    /// The Debian packages that this check needs, and that the earlier checks must do without.
    debian: &'static str,
    script: &'static str,
    what: &'static str,
}

/// In this order: only the last ones have a compiler.
const CHECKS: [Check; 6] = [
    Check { kinds: &[PackageKind::Archive], debian: "", script: include_str!("archive.sh"), what: "archive" },
    Check { kinds: &[PackageKind::Deb], debian: "", script: include_str!("use.sh"), what: "Debian packages" },
    Check { kinds: &[PackageKind::Python], debian: "python3-venv", script: include_str!("python.sh"), what: "Python" },
    Check { kinds: &[PackageKind::Npm], debian: "npm", script: include_str!("node.sh"), what: "Node" },
    Check {
        kinds: &[PackageKind::Raku, PackageKind::Deb],
        debian: "raku-zef",
        script: include_str!("raku.sh"),
        what: "Raku",
    },
    Check {
        kinds: &[PackageKind::Archive, PackageKind::Deb, PackageKind::Perl],
        debian: "gcc libc6-dev libcrypt-dev make perl pkgconf",
        script: include_str!("develop.sh"),
        what: "a compiler",
    },
];

/// Tries the packages of the directory `packages`, as far as they are wanted, in this release of Debian; returns what was tried. The
/// system is made in the directory `root`, which is removed first.
///
/// # Errors
/// If this user is not root, if debootstrap fails, or if a command in the system fails, which has then been printed.
pub(super) fn check(
    packages: &Path,
    root: &Path,
    release: &str,
    wanted: impl Fn(PackageKind) -> bool,
) -> Result<Vec<&'static str>> {
    let is_root = is_output(Command::new("id").arg("-u"), "0\n");
    ensure!(is_root, "--check needs root: it makes a Debian system with debootstrap and enters it with chroot");
    let checks: Vec<_> = CHECKS.iter().filter(|check| check.kinds.iter().all(|kind| wanted(*kind))).collect();
    ensure!(!checks.is_empty(), "--check has nothing to do: raku needs deb too");
    if root.exists() {
        fs::remove_dir_all(root).with_context(|| format!("{}", root.display()))?;
    }
    output(Command::new("debootstrap").args(["--variant=minbase", release]).arg(root).arg(mirror()?))
        .context("is the package debootstrap installed?")?;
    let inside = root.join("packages");
    fs::create_dir(&inside)?;
    for entry in fs::read_dir(packages)?.flatten() {
        let name = entry.file_name();
        if [".deb", ".tar.gz", ".whl", ".tgz"].iter().any(|end| name.to_string_lossy().ends_with(end)) {
            fs::copy(entry.path(), inside.join(name))?;
        }
    }
    fs::copy(testing::dist::root().join("crates/capi/examples/run.c"), inside.join("run.c"))?;
    for check in &checks {
        if !check.debian.is_empty() {
            // Debian's own packages come from this machine's mirror, whose name must be resolved.
            for name in ["etc/resolv.conf", "etc/hosts"] {
                fs::copy(Path::new("/").join(name), root.join(name))?;
            }
            let install = "apt-get install -q -y --no-install-recommends";
            enter(
                root,
                &format!(
                    "apt-get update -q -o Acquire::Check-Valid-Until=false && {install} {} >/dev/null",
                    check.debian
                ),
            )?;
        }
        enter(root, check.script).with_context(|| format!("in a Debian for the check of {}", check.what))?;
    }
    Ok(checks.iter().map(|check| check.what).collect())
}

/// Runs a script in the system, with its own mounts and processes.
fn enter(root: &Path, script: &str) -> Result<()> {
    // The mounts are removed with the namespace.
    let mount = "mount -t proc proc proc && mount --rbind /dev dev && exec chroot . /bin/sh -euxc \"$1\"";
    let mut command = Command::new("unshare");
    command.current_dir(root).args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", mount, "sh", script]);
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    command.env_clear().envs([
        ("PATH", path),
        ("HOME", "/root"),
        ("LC_ALL", "C.UTF-8"),
        ("DEBIAN_FRONTEND", "noninteractive"),
    ]);
    let status = command.stdin(Stdio::null()).status().context("cannot start unshare")?;
    // The shell has shown the command that failed.
    ensure!(status.success(), "a command failed in {}: {status}", root.display());
    Ok(())
}

fn is_output(command: &mut Command, text: &str) -> bool {
    command.output().is_ok_and(|output| output.stdout == text.as_bytes())
}
