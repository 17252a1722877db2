//! A release of Debian in a directory.

use super::{Distribution, Options, Part};
use crate::by_own_toolchain;
use crate::kernels::debian::mirror;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testing::dist::{output, root};
use testing::packages;

/// Packages that the tests of this table do not use, and that need much room or services.
const NOT_NEEDED: [&str; 10] = [
    "chromium",
    "libuv1-dev",
    "libglib2.0-dev",
    "linux-perf",
    "lldb",
    "mandoc",
    "munge",
    "moreutils",
    "slurm-wlm",
    "parallel",
];

/// What Debian's smallest system lacks.
const BASE: &str =
    "ca-certificates gcc libc6-dev make pkgconf binutils perl python3 python3-venv procps iproute2 util-linux";

/// Mounts for a script, in a namespace that removes them. `$1`: the sources, `$2`: Rust's toolchain, `$3`: cargo's registry, `$4`: a
/// script for the system.
const ENTER: &str = r#"
mount --bind . .
cd "$PWD"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs run run
bind() { mkdir -p ".$2"; mount --bind "$1" ".$2"; mount -o remount,bind,ro ".$2"; }
bind "$1" "$1"
bind "$2" /opt/rust
bind "$3" /opt/cargo/registry
pivot_root . .
umount -l .
exec chroot . /bin/bash -c "$4"
"#;

/// The directory of Rust's toolchain: a part's script prints it. Default: this machine's.
fn toolchain(script: Option<&str>) -> Result<PathBuf> {
    let script = script.unwrap_or("rustc --print sysroot");
    Ok(output(by_own_toolchain("bash").args(["-ec", script]))?.trim_end().into())
}

/// A system with the packages of the tests.
pub(super) struct System {
    root: PathBuf,
    registry: PathBuf,
}

impl System {
    /// Makes it below `place`, if it is not there yet.
    pub(super) fn new(release: &Distribution, place: &Path) -> Result<Self> {
        let root = place.join(&release.suite);
        let is_root = output(Command::new("id").arg("-u"))? == "0\n";
        ensure!(is_root, "this needs root: it makes Debian systems with debootstrap and enters them with chroot");
        let registry = crate::release::cargo_home()?.join("registry");
        testing::dist::run(
            Command::new("cargo").args(["fetch", "--locked", "--quiet"]).current_dir(testing::dist::root()),
        )?;
        let system = Self { root, registry };
        if !system.root.join("made").exists() {
            system.make(release)?;
            fs::write(system.root.join("made"), "")?;
        }
        Ok(system)
    }

    fn make(&self, release: &Distribution) -> Result<()> {
        let (suite, mirror) = (&release.suite, mirror()?);
        packages::install(&["debootstrap"])?;
        println!("making Debian {suite} in {}", self.root.display());
        let _ = fs::remove_dir_all(&self.root);
        fs::create_dir_all(&self.root)?;
        let mut debootstrap = Command::new("debootstrap");
        output(debootstrap.args(["--variant=minbase", suite]).args([&self.root, Path::new(&mirror)]))?;
        if release.security {
            let (before, after) = mirror.rsplit_once("/debian").context("the mirror's path has no debian")?;
            let line = format!("deb {before}/debian-security{after} {suite}-security main\n");
            fs::write(self.root.join("etc/apt/sources.list.d/security.list"), line)?;
        }
        // A mirror may be a snapshot.
        fs::write(self.root.join("etc/apt/apt.conf.d/90-snapshot"), "Acquire::Check-Valid-Until \"false\";\n")?;
        for name in ["etc/resolv.conf", "etc/hosts"] {
            fs::copy(Path::new("/").join(name), self.root.join(name))?;
        }
        self.script(
            "apt-get update -q && useradd --create-home --uid 1000 user && mkdir /target && chmod 777 /opt/cargo",
        )?;
        self.add(Some(BASE))?;
        // Registries of other languages may have a certificate that only this machine trusts.
        let certificates = "etc/ssl/certs/ca-certificates.crt";
        if let Ok(ours) = fs::read(Path::new("/").join(certificates)) {
            fs::write(self.root.join(certificates), ours)?;
        }
        Ok(())
    }

    /// Installs those of these packages that the release has. `None`: those of `cargo xtask test`.
    pub(super) fn add(&self, names: Option<&str>) -> Result<()> {
        let all = || {
            let all = packages::names().filter(|name| !NOT_NEEDED.contains(name));
            all.chain(["git", "locales-all", "man-db"]).collect::<Vec<_>>().join(" ")
        };
        let names = names.map_or_else(all, str::to_owned);
        let script = format!(
            "missing=$(for names in {names}; do for name in ${{names/:/ }}; do
                 dpkg -s $name >/dev/null 2>&1 && break; apt-cache show $name >/dev/null 2>&1 && echo $name && break; done; done)
             test -z \"$missing\" || apt-get install -q -y --no-install-recommends -o Dpkg::Use-Pty=0 $missing >/tmp/apt.log 2>&1 || {{ tail /tmp/apt.log; exit 1; }}"
        );
        self.script(&script)
    }

    fn script(&self, script: &str) -> Result<()> {
        let variables = [("DEBIAN_FRONTEND", "noninteractive"), ("RUNLEVEL", "1")];
        let output = self.enter(script, &toolchain(None)?, &variables).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{}: {}: {text}", self.root.display(), output.status);
        Ok(())
    }

    /// Runs a part; returns its status, and what it wrote.
    pub(super) fn run(&self, part: &Part, options: &Options) -> Result<(Option<i32>, String)> {
        fs::write(self.root.join("tmp/part.sh"), &part.run)?;
        fs::write(self.root.join("tmp/parts.sh"), include_str!("parts.sh"))?;
        let here = root().canonicalize()?;
        // In a session of its own, because the tests end process groups; with signals as on a terminal. Not as process 1 or its child:
        // timeout(1) takes that for the death of its parent.
        let limit = options.minutes * 60;
        let script = format!(
            "exec 2>&1; cd '{}'; setsid -w env --default-signal=HUP,INT,QUIT timeout -s KILL {limit} bash /tmp/parts.sh; exit $?",
            here.display()
        );
        let scale = options.scale.to_string();
        let variables = [
            ("CARGO_TARGET_DIR", "/target"),
            ("CARGO_INCREMENTAL", "0"),
            ("CARGO_PROFILE_DEV_DEBUG", "0"),
            ("CARGO_NET_OFFLINE", "true"),
            ("FORKLESS_TEST_SCALE", &scale),
            ("PART_USER", if part.user { "user" } else { "root" }),
            (testing::once::RUN, &*testing::once::THIS_RUN),
        ];
        let output = self.enter(&script, &toolchain(part.toolchain.as_deref())?, &variables).output()?;
        Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    /// A command that runs the script, for bash, in the system.
    fn enter(&self, script: &str, toolchain: &Path, variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new("unshare");
        command.current_dir(&self.root).args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", ENTER, "sh"]);
        command.arg(root().canonicalize().unwrap_or_else(|_| root())).args([toolchain, &self.registry]).arg(script);
        command.env_clear().env("PATH", "/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.envs([("HOME", "/root"), ("LC_ALL", "C.UTF-8"), ("CARGO_HOME", "/opt/cargo")]);
        // How registries are reached from this machine.
        let is_theirs =
            |name: &str| name.starts_with("PIP_") || name.starts_with("npm_config_") || name.ends_with("_CA_CERTS");
        command.envs(std::env::vars().filter(|(name, _)| is_theirs(name)));
        command.envs(variables.iter().copied()).stdin(Stdio::null()).stderr(Stdio::inherit());
        command
    }
}
