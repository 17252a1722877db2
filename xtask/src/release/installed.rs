//! Installs the packages in a new, minimal Debian, and uses them there.

use crate::dist::output;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a user does, in a system without a compiler.
const USE: &str = include_str!("use.sh");
/// What a user of the Python package does.
const PYTHON: &str = include_str!("python.sh");
/// What a developer does, in a system with one.
const DEVELOP: &str = include_str!("develop.sh");

/// Tries the packages of the directory `packages`. The system is made in the directory `root`, which is removed first.
///
/// # Errors
/// If the caller is not root, if debootstrap fails, or if a command in the system fails: it says which.
pub(super) fn check(packages: &Path, root: &Path) -> Result<()> {
    let is_root = output_is(Command::new("id").arg("-u"), "0\n");
    ensure!(is_root, "--check needs root: it makes a Debian system with debootstrap and enters it with chroot");
    if root.exists() {
        fs::remove_dir_all(root).with_context(|| format!("{}", root.display()))?;
    }
    let release = Command::new("sh").args(["-c", ". /etc/os-release && echo \"$VERSION_CODENAME\""]).output()?;
    let release = String::from_utf8(release.stdout)?;
    output(Command::new("debootstrap").args(["--variant=minbase", release.trim()]).arg(root))
        .context("is the package debootstrap installed?")?;
    let inside = root.join("packages");
    fs::create_dir(&inside)?;
    for entry in fs::read_dir(packages)?.flatten() {
        let name = entry.file_name();
        if [".deb", ".tar.gz", ".whl"].iter().any(|end| name.to_string_lossy().ends_with(end)) {
            fs::copy(entry.path(), inside.join(name))?;
        }
    }
    fs::copy(crate::dist::root().join("crates/capi/examples/run.c"), inside.join("run.c"))?;
    enter(root, USE).context("in a Debian without a compiler")?;
    // The packages of the compiler come from the registry of this machine.
    for name in ["etc/resolv.conf", "etc/hosts"] {
        fs::copy(Path::new("/").join(name), root.join(name))?;
    }
    let install = |packages: &str| {
        enter(
            root,
            &format!("apt-get update -q && apt-get install -q -y --no-install-recommends {packages} >/dev/null"),
        )
    };
    install("python3-venv")?;
    enter(root, PYTHON).context("in a Debian with Python")?;
    install("gcc libc6-dev make perl pkgconf")?;
    enter(root, DEVELOP).context("in a Debian with a compiler")
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

fn output_is(command: &mut Command, text: &str) -> bool {
    command.output().is_ok_and(|output| output.stdout == text.as_bytes())
}
