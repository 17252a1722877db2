//! A kernel in qemu without hardware support, with the host's root below a layer in memory: runs jobs, and gives what each wrote.

use super::debian::Kernel;
use super::image;
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What is run in the guest.
pub struct Job {
    pub name: String,
    /// For bash, as root.
    pub script: String,
    pub limit: Duration,
}

/// What came of a job.
pub struct Done {
    pub name: String,
    /// Of the script; none where the guest ended before it.
    pub status: Option<i32>,
    pub seconds: u64,
    pub output: String,
}

/// How the guest is made.
#[derive(clap::Args)]
pub struct Machine {
    /// Memory of the guest, in MiB
    #[arg(long, default_value_t = 3072)]
    memory: u32,
    /// CPUs of the guest
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// More words for the kernel's command line
    #[arg(long, value_name = "WORDS", default_value = "")]
    append: String,
}

/// Boots the kernel, runs the jobs in turn and ends it; `directories` are seen in the guest wherever they lie.
///
/// # Errors
/// Without qemu, or where the guest does not come up.
pub fn run(
    kernel: &Kernel,
    machine: &Machine,
    jobs: &[Job],
    directories: &[PathBuf],
    place: &Path,
) -> Result<Vec<Done>> {
    let initramfs = image::initramfs(kernel, directories, place)?;
    let work = place.join("work");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(work.join("results"))?;
    fs::create_dir_all(work.join("jobs"))?;
    let numbered = |(n, job): (usize, &Job)| format!("{n:02}-{}", job.name);
    let names: Vec<String> = jobs.iter().enumerate().map(numbered).collect();
    for (job, name) in jobs.iter().zip(&names) {
        fs::write(work.join("jobs").join(format!("{name}.sh")), &job.script)?;
        fs::write(work.join("jobs").join(format!("{name}.limit")), format!("{}\n", job.limit.as_secs()))?;
    }
    let limit = jobs.iter().map(|job| job.limit).sum::<Duration>() + Duration::from_secs(300);
    let console = boot(kernel, machine, &initramfs, &work, limit, &place.join("console"))?;
    ensure!(console.contains("@@ up "), "the guest did not come up: {}", place.join("console").display());
    if let Some(line) = console.lines().find(|line| line.starts_with("@@ problem")) {
        bail!("{line}");
    }
    jobs.iter().zip(&names).map(|(job, name)| done(job, name, &work.join("results"))).collect()
}

fn done(job: &Job, name: &str, results: &Path) -> Result<Done> {
    let output = fs::read(results.join(format!("{name}.log"))).unwrap_or_default();
    let told = fs::read_to_string(results.join(format!("{name}.status"))).unwrap_or_default();
    let mut numbers = told.split_whitespace().filter_map(|word| word.parse::<i64>().ok());
    let status = numbers.next().map(i32::try_from).transpose().context("a status")?;
    let (begun, ended) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let output = String::from_utf8_lossy(&output).into_owned();
    Ok(Done { name: job.name.clone(), status, seconds: u64::try_from(ended - begun).unwrap_or(0), output })
}

/// Runs qemu to its end and gives what the console said, which goes to the file `log` too; shows how far it is.
fn boot(
    kernel: &Kernel,
    machine: &Machine,
    initramfs: &Path,
    work: &Path,
    limit: Duration,
    log: &Path,
) -> Result<String> {
    let share = |id: &str, path: &Path, how: &str| -> Result<[String; 4]> {
        let path = std::path::absolute(path)?;
        let path = path.to_str().context("a path in UTF-8")?.replace(',', ",,");
        let device = format!("virtio-9p-pci,fsdev={id},mount_tag={id}");
        let files = format!("local,id={id},path={path},security_model=none,multidevs=remap{how}");
        Ok(["-fsdev".into(), files, "-device".into(), device])
    };
    let words = format!("console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on {}", machine.append);
    let mut qemu = Command::new("timeout");
    qemu.args([
        "--foreground",
        "-s",
        "KILL",
        &limit.as_secs().to_string(),
        "qemu-system-x86_64",
        "-accel",
        "tcg",
        "-cpu",
        "max,la57=off",
    ]);
    qemu.args(["-smp", &machine.cpus.to_string(), "-m", &machine.memory.to_string()]);
    qemu.args(["-display", "none", "-serial", "stdio", "-monitor", "none", "-no-reboot", "-nic", "none"]);
    qemu.args(share("host", Path::new("/"), ",readonly=on")?).args(share("work", work, "")?);
    qemu.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initramfs).args(["-append", &words]);
    let mut child = qemu.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("qemu-system-x86_64")?;
    let mut log = fs::File::create(log)?;
    let (mut console, mut line) = (String::new(), Vec::new());
    let mut reader = BufReader::new(child.stdout.take().context("no output")?);
    while reader.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        // The firmware leaves its own on the line.
        let text = text.find("@@ ").map_or(text.as_str(), |at| &text[at..]);
        if text.starts_with("@@ ") {
            println!("  {text}");
            std::io::stdout().flush()?;
        }
        writeln!(log, "{text}")?;
        writeln!(console, "{text}")?;
        line.clear();
    }
    child.wait()?;
    Ok(console)
}
