//! Debian packages: `forkless` (the command), `libforkless0`, `libforkless-dev` and `libforkless-preload`.

use super::{Build, third_party};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testing::dist::{output, root, run};

struct DebPackage {
    name: &'static str,
    /// Section of Debian's archive.
    section: &'static str,
    /// Its files and directories, relative to `/usr`; `@LIB` is the directory of the libraries. `?`: only some architectures
    /// have it.
    files: &'static [&'static str],
    depends: &'static str,
    /// The first line is the synopsis.
    description: &'static str,
}

const PACKAGES: &[DebPackage] = &[
    DebPackage {
        name: "forkless",
        section: "utils",
        files: &[
            "bin/forkless",
            "bin/forkless-bench",
            "share/man/man1",
            "share/bash-completion",
            "share/zsh",
            "share/fish",
            "?@LIB/forkless",
        ],
        depends: "",
        description: "start, sandbox and measure programs\n \
            forkless run starts a program with settings of env, nice, timeout, setpriv,\n \
            prlimit, unshare and bwrap, or in a sandbox. forkless xargs and forkless\n \
            parallel run very many commands. forkless bench measures how long it takes to\n \
            start a process.\n",
    },
    DebPackage {
        name: "libforkless0",
        section: "libs",
        files: &["@LIB/libforkless.so.0", "@LIB/libpopen_noshell.so.0"],
        depends: "",
        description: "process launcher whose cost does not grow with the caller\n \
            fork copies the caller's page tables, and posix_spawn its table of open files.\n \
            This library copies neither. It has functions like posix_spawn, popen and\n \
            system.\n",
    },
    DebPackage {
        name: "libforkless-dev",
        section: "libdevel",
        files: &[
            "include",
            "@LIB/libforkless.so",
            "@LIB/libforkless.a",
            "@LIB/libpopen_noshell.so",
            "@LIB/libpopen_noshell.a",
            "@LIB/pkgconfig",
        ],
        depends: "libforkless0 (= @VERSION)",
        description: "process launcher whose cost does not grow with the caller (development)\n \
            Headers, static libraries and pkg-config files of libforkless.\n",
    },
    DebPackage {
        name: "libforkless-preload",
        section: "libs",
        files: &["@LIB/libforkless_preload.so"],
        depends: "",
        description: "popen, system and posix_spawn of forkless for unmodified programs\n \
            Set LD_PRELOAD=libforkless_preload.so for a program. It then starts its\n \
            programs through forkless.\n",
    },
];

/// The version of the Debian packages.
fn version() -> String {
    concat!(env!("CARGO_PKG_VERSION"), "-1").to_owned()
}

/// Makes all Debian packages.
pub(super) fn make(build: &Build, out: &Path) -> Result<()> {
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    let triple = output(Command::new("dpkg-architecture").args(["-qDEB_HOST_MULTIARCH"]))?.trim().to_owned();
    let lib = format!("lib/{triple}");
    if std::env::var_os("DEBEMAIL").is_none() {
        println!(
            "DEBEMAIL is not set: the Debian packages name no maintainer that can be reached, which lintian reports"
        );
    }
    let all = build.install("deb", "/usr", &lib, &[])?;
    // Debian's directory for completions of packages.
    let zsh = all.join("usr/share/zsh");
    fs::rename(zsh.join("site-functions"), zsh.join("vendor-completions")).context("completions for zsh")?;
    for package in PACKAGES {
        let tree = build.trees.join(package.name);
        package.fill(&all.join("usr"), &tree.join("usr"), &lib)?;
        package.documents(&tree, build)?;
        package.control(&tree, &architecture)?;
        let file = out.join(format!("{}_{}_{architecture}.deb", package.name, version()));
        let mut deb = Command::new("dpkg-deb");
        deb.args(["--root-owner-group", "-Zxz", "--build"]).arg(&tree).arg(file).env("SOURCE_DATE_EPOCH", &build.date);
        run(deb.stdout(std::process::Stdio::null()))?;
    }
    Ok(())
}

impl DebPackage {
    /// Moves the package's files from the tree of all packages to its own.
    fn fill(&self, all: &Path, tree: &Path, lib: &str) -> Result<()> {
        for name in self.files {
            let is_optional = name.starts_with('?');
            let name = name.trim_start_matches('?').replace("@LIB", lib);
            if is_optional && !all.join(&name).exists() {
                continue;
            }
            let to = tree.join(&name);
            fs::create_dir_all(to.parent().context("a directory")?)?;
            fs::rename(all.join(&name), to).with_context(|| name)?;
        }
        Ok(())
    }

    /// Copyright, changelog, compressed man pages; the modes that Debian wants.
    fn documents(&self, tree: &Path, build: &Build) -> Result<()> {
        let directory = tree.join("usr/share/doc").join(self.name);
        fs::create_dir_all(&directory)?;
        let mit = fs::read_to_string(root().join("LICENSE-MIT"))?;
        fs::write(directory.join("copyright"), copyright(&mit))?;
        let date = output(Command::new("date").args(["-u", "-R", "-d"]).arg(format!("@{}", build.date)))?;
        let changelog = format!(
            "forkless ({}) unstable; urgency=medium\n\n  * Made by cargo xtask package.\n\n -- {}  {}",
            version(),
            maintainer(),
            date
        );
        fs::write(directory.join("changelog.Debian"), changelog)?;
        if self.name == "forkless" {
            third_party::write(
                &testing::dist::COMMANDS,
                "forkless",
                &directory.join("THIRD-PARTY.txt"),
                &directory.join("sbom.json"),
            )?;
            run(Command::new("gzip").arg("-9n").arg(directory.join("THIRD-PARTY.txt")))?;
        }
        let mut pages = vec![directory.join("changelog.Debian")];
        let man = tree.join("usr/share/man/man1");
        if man.exists() {
            pages.extend(fs::read_dir(man)?.flatten().map(|entry| entry.path()));
        }
        run(Command::new("gzip").arg("-9n").args(&pages))?;
        // Debian's policy: libraries are not executable.
        run(Command::new("find").arg(tree).args(["-name", "*.so*", "-type", "f", "-exec", "chmod", "644", "{}", "+"]))?;
        run(Command::new("chmod").args(["-R", "u+rw,go-w,a+rX"]).arg(tree))
    }

    /// The directory `DEBIAN`.
    fn control(&self, tree: &Path, architecture: &str) -> Result<()> {
        let control = tree.join("DEBIAN");
        fs::create_dir_all(&control)?;
        let mut depends = vec![self.depends.replace("@VERSION", &version())];
        depends.push(self.needed(tree)?);
        depends.retain(|words| !words.is_empty());
        let depends = if depends.is_empty() { String::new() } else { format!("Depends: {}\n", depends.join(", ")) };
        let size = output(Command::new("du").args(["-k", "-s", "--apparent-size"]).arg(tree.join("usr")))?;
        let size = size.split_whitespace().next().context("du prints a size")?.to_owned();
        let text = format!(
            "Package: {}\nSource: forkless\nVersion: {}\nArchitecture: {architecture}\nMaintainer: {}\n\
             Installed-Size: {size}\n{depends}Section: {}\nPriority: optional\n{}Description: {}",
            self.name,
            version(),
            maintainer(),
            self.section,
            if self.section == "utils" { "" } else { "Multi-Arch: same\n" },
            self.description
        );
        fs::write(control.join("control"), text)?;
        if self.section == "libs" {
            fs::write(control.join("triggers"), "activate-noawait ldconfig\n")?;
        }
        if self.name == "libforkless0" {
            fs::write(control.join("shlibs"), "libforkless 0 libforkless0\nlibpopen_noshell 0 libforkless0\n")?;
            self.symbols(tree, &control)?;
        }
        self.sums(tree, &control)?;
        // Whatever the umask is.
        run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(control))?;
        run(Command::new("chmod").arg("755").arg(tree))
    }

    /// Debian packages with the libraries that its programs and libraries need.
    fn needed(&self, tree: &Path) -> Result<String> {
        let is_elf = |path: &PathBuf| fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"));
        let elves: Vec<_> = files(&tree.join("usr"))?.into_iter().filter(is_elf).collect();
        if elves.is_empty() {
            return Ok(String::new());
        }
        // dpkg-shlibdeps looks for debian/control.
        let work = tree.with_extension("work");
        fs::create_dir_all(work.join("debian"))?;
        fs::write(
            work.join("debian/control"),
            format!("Source: forkless\n\nPackage: {}\nArchitecture: any\n", self.name),
        )?;
        let text = output(Command::new("dpkg-shlibdeps").current_dir(&work).arg("-O").args(&elves))?;
        let depends = text.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
        Ok(depends.context("dpkg-shlibdeps names no package")?.to_owned())
    }

    /// The file `symbols`: the version since which the library has each function.
    fn symbols(&self, tree: &Path, control: &Path) -> Result<()> {
        let work = tree.with_extension("symbols");
        fs::create_dir_all(work.join("debian"))?;
        fs::write(work.join("debian/control"), "Source: forkless\n\nPackage: libforkless0\nArchitecture: any\n")?;
        let mut make = Command::new("dpkg-gensymbols");
        make.current_dir(&work).args(["-plibforkless0", concat!("-v", env!("CARGO_PKG_VERSION")), "-c0"]);
        output(make.arg(format!("-P{}", tree.display())).arg(format!("-O{}", control.join("symbols").display())))?;
        let text = fs::read_to_string(control.join("symbols"))?;
        ensure!(text.contains("forkless_spawn"), "dpkg-gensymbols found no function of libforkless");
        Ok(())
    }

    fn sums(&self, tree: &Path, control: &Path) -> Result<()> {
        let mut names: Vec<_> = files(&tree.join("usr"))?;
        names.sort();
        let names = names.iter().filter_map(|path| path.strip_prefix(tree).ok());
        let sums = output(Command::new("md5sum").current_dir(tree).args(names))?;
        Ok(fs::write(control.join("md5sums"), sums)?)
    }
}

/// Name and address of the maintainer, from the variables that Debian's tools read.
fn maintainer() -> String {
    let of = |name, or: &str| std::env::var(name).unwrap_or_else(|_| or.to_owned());
    format!("{} <{}>", of("DEBFULLNAME", "The forkless maintainers"), of("DEBEMAIL", "forkless@localhost"))
}

/// The copyright file, in Debian's machine-readable form.
fn copyright(mit: &str) -> String {
    let mit: Vec<_> =
        mit.lines().map(|line| if line.is_empty() { " .".to_owned() } else { format!(" {line}") }).collect();
    format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: forkless\n\n\
         Files: *\nCopyright: 2026 the forkless maintainers\nLicense: MIT or Apache-2.0\n\n\
         License: Apache-2.0\n The full text is in /usr/share/common-licenses/Apache-2.0.\n\n\
         License: MIT\n{}\n",
        mit.join("\n")
    )
}

/// The files below a directory that are no links.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let text = output(Command::new("find").arg(directory).args(["-type", "f", "-print"]))?;
    Ok(text.lines().map(PathBuf::from).collect())
}
