//! One run of a campaign: where it builds, what it measures, and how it runs programs.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::record::Record;

/// The options of every campaign.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// Write the tables to DIR, as Markdown and as JSON [default: target/bench/ and the campaign's name]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Measure the installation in DIR, which cargo xtask dist --prefix DIR makes [default: that of this program]
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
}

/// One run of a campaign.
pub(super) struct Session {
    name: &'static str,
    out: PathBuf,
    /// Where programs are built. Absolute.
    pub(super) place: PathBuf,
    prefix: PathBuf,
    pub(super) record: Record,
}

impl Session {
    pub(super) fn begin(name: &'static str, common: &Common) -> Result<Self> {
        let out = common.out.clone().unwrap_or_else(|| Path::new("target/bench").join(name));
        fs::create_dir_all(&out).with_context(|| format!("--out: {}", out.display()))?;
        let place = fs::canonicalize(&out)?.join("built");
        fs::create_dir_all(&place)?;
        let own = env::current_exe()?;
        let prefix = match &common.prefix {
            Some(prefix) => std::path::absolute(prefix)?,
            None => own.ancestors().nth(2).context("a program in a directory")?.to_owned(),
        };
        Ok(Self { name, out, place, prefix, record: Record::new(name) })
    }

    /// Prints the tables, and writes them.
    pub(super) fn end(self) -> Result<()> {
        let text = self.record.markdown();
        fs::write(self.out.join(format!("{}.md", self.name)), &text)?;
        fs::write(self.out.join(format!("{}.json", self.name)), self.record.json()?)?;
        println!("{text}");
        Ok(())
    }

    /// `forkless` of the installation, else that beside this program.
    pub(super) fn forkless(&self) -> Result<PathBuf> {
        let beside = env::current_exe()?.with_file_name("forkless");
        let found = [self.prefix.join("bin/forkless"), beside].into_iter().find(|path| path.exists());
        found.context("no program forkless in the installation or beside this one")
    }

    /// A C library of the installation.
    pub(super) fn library(&self, name: &str) -> Result<PathBuf> {
        let machine = format!("lib/{}-linux-gnu", env::consts::ARCH);
        let found = ["lib", "lib64", &machine].map(|lib| self.prefix.join(lib).join(name));
        let found = found.into_iter().find(|path| path.exists()).with_context(|| {
            format!("{name} is not in {}: cargo xtask dist --prefix DIR, then --prefix DIR", self.prefix.display())
        })?;
        let is_split = found.as_os_str().as_encoded_bytes().iter().any(|byte| b" \t\n:".contains(byte));
        ensure!(!is_split, "{} cannot be measured: LD_PRELOAD is split at blanks and colons", found.display());
        Ok(found)
    }

    /// Writes the files with these names and contents to [`place`](Self::place).
    pub(super) fn unpack(&self, files: &[(&str, &str)]) -> Result<()> {
        files.iter().try_for_each(|(name, text)| fs::write(self.place.join(name), text).context((*name).to_owned()))
    }

    /// Builds the program `name` from the unpacked source `name.c`.
    pub(super) fn cc<W: AsRef<OsStr>>(&self, name: &str, words: impl IntoIterator<Item = W>) -> Result<PathBuf> {
        let program = self.place.join(name);
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-Wall", "-Wextra", "-o"]).arg(&program).arg(self.place.join(name).with_extension("c"));
        output(cc.args(words))?;
        Ok(program)
    }

    /// As [`cc`](Self::cc), with a C library of the installation: `-lforkless`.
    pub(super) fn cc_with(&self, name: &str, library: &str) -> Result<PathBuf> {
        let lib = self.library(&format!("lib{library}.so"))?.parent().context("a directory")?.to_owned();
        let (include, lib) = (self.prefix.join("include").display().to_string(), lib.display().to_string());
        self.cc(name, [format!("-I{include}"), format!("-L{lib}"), format!("-Wl,-rpath,{lib}"), format!("-l{library}")])
    }

    /// Builds a static program without libc.
    pub(super) fn cc_tiny(&self, name: &str) -> Result<PathBuf> {
        self.cc(name, "-static -no-pie -nostdlib -nostartfiles -ffreestanding -fno-stack-protector -s".split(' '))
    }
}

/// What the program writes to standard output.
///
/// # Errors
/// If the program does not run or fails, with its standard error.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| name.clone())?;
    ensure!(output.status.success(), "{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// The numbers that the program prints.
///
/// # Errors
/// As [`output`], and if it prints another word.
pub(super) fn numbers(command: &mut Command) -> Result<Vec<f64>> {
    let text = output(command)?;
    let numbers: Option<Vec<f64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    match numbers {
        Some(numbers) if !numbers.is_empty() => Ok(numbers),
        _ => bail!("{:?} printed {text:?}", command.get_program()),
    }
}

/// Whether the command runs and exits with 0.
pub(super) fn does_work(program: &str, words: &[&str]) -> bool {
    output(Command::new(program).args(words)).is_ok()
}

/// The first line that each program prints about its version, for programs that run.
pub(super) fn versions(programs: &[(&str, &str)]) -> Vec<(String, String)> {
    let line =
        |program: &str, word: &str| output(Command::new(program).arg(word)).ok()?.lines().next().map(str::to_owned);
    programs.iter().filter_map(|(program, word)| Some(((*program).to_owned(), line(program, word)?))).collect()
}

/// CPUs that this process may use.
pub(super) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
