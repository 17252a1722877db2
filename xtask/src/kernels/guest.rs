//! A kernel in qemu without hardware support, on the host's root below a layer in memory: runs jobs and keeps their output.

use super::arch::Arch;
use super::debian::{self, UnpackedKernel};
use super::{image, suites};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use testing::packages;

/// Kernel parameters for an emulated machine on a busy one: no check of timers against each other, which come late here, no
/// waiting for quiet CPUs, and none of the work that guards against other guests and stray writes.
const STEADY: &str = "no_timer_check tsc=reliable nowatchdog rcupdate.rcu_expedited=1 random.trust_cpu=on mitigations=off \
    init_on_alloc=0 randomize_kstack_offset=off hardened_usercopy=off audit=0";

/// A script to run in the guest.
pub struct GuestJob {
    pub name: String,
    /// For bash, as root.
    pub script: String,
    pub limit: Duration,
}

/// The result of a job.
pub struct Done {
    pub name: String,
    /// Of the script; `None` if the guest ended before it.
    pub status: Option<i32>,
    pub seconds: u64,
    pub output: String,
}

/// Hard links to what cargo had built before the guest started: a later build changes nothing in the guest.
pub struct Programs {
    /// Cargo's directory, where the guest sees the copy.
    built: PathBuf,
    /// Removed at the end.
    copy: PathBuf,
    busybox: image::Busybox,
    /// The guest's Debian, unless it has this machine's.
    root: Option<PathBuf>,
}

impl Programs {
    /// # Errors
    /// A package cannot be downloaded, or a file cannot be linked.
    pub fn copy(arch: Arch, target: &Path) -> Result<Self> {
        let place = target.join("kernels");
        // Unpacked, because it conflicts with the ordinary busybox.
        let ours = packages::unpacked("busybox-static", target)?;
        let root = arch.root(&place)?;
        let guests = match root {
            None => ours.clone(),
            Some(_) => debian::unpacked("busybox-static", arch.debian(), &place.join(arch.debian()))?,
        };
        let busybox = image::Busybox { ours: ours.join("bin/busybox"), guests: guests.join("bin/busybox") };
        // Several runs at once, of different kernels, each have a copy.
        let copy = place.join(format!("programs-{}", std::process::id()));
        let built = arch.built(target);
        for directory in ["", "deps"] {
            fs::create_dir_all(copy.join(directory))?;
            for entry in fs::read_dir(built.join(directory))?.filter_map(Result::ok) {
                if entry.file_type()?.is_file() {
                    fs::hard_link(entry.path(), copy.join(directory).join(entry.file_name()))?;
                }
            }
        }
        Ok(Self { built, copy, busybox, root })
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.copy);
    }
}

/// How the guest is made.
#[derive(Clone, clap::Args)]
pub struct Machine {
    /// Memory of the guest, in MiB
    #[arg(long, default_value_t = 3072)]
    memory: u32,
    /// qemu's accelerator, such as `kvm` (default: `tcg`, and for programs that use perf events `tcg,thread=single`)
    #[arg(long, value_name = "WORD")]
    accel: Option<String>,
    /// CPUs of the guest
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// More words for the kernel's command line
    #[arg(long, value_name = "WORDS", default_value = "")]
    append: String,
}

/// Boots the kernel, runs the jobs in turn and ends it. Calls `each` as soon as a job has ended, and for a job during which
/// the guest ended. `directories` are visible in the guest at the same paths.
///
/// # Errors
/// If qemu is missing, the guest does not come up or reports a problem, or `each` fails.
pub fn run(
    kernel: &UnpackedKernel,
    machine: &Machine,
    jobs: &[GuestJob],
    directories: &[PathBuf],
    programs: &Programs,
    place: &Path,
    each: &mut dyn FnMut(Done) -> Result<()>,
) -> Result<()> {
    let initramfs = image::initramfs(kernel, &programs.busybox, programs.root.as_deref(), directories, place)?;
    let (work, logs) = (place.join("work"), place.join("logs"));
    let _ = fs::remove_dir_all(&work);
    for directory in [&work.join("results"), &work.join("jobs"), &logs] {
        fs::create_dir_all(directory)?;
    }
    let numbered = |(n, job): (usize, &GuestJob)| format!("{n:02}-{}", job.name);
    let names: Vec<String> = jobs.iter().enumerate().map(numbered).collect();
    fs::write(work.join("programs"), format!("{}\n{}\n", programs.copy.display(), programs.built.display()))?;
    for (job, name) in jobs.iter().zip(&names) {
        fs::write(work.join("jobs").join(format!("{name}.sh")), &job.script)?;
        fs::write(work.join("jobs").join(format!("{name}.limit")), format!("{}\n", job.limit.as_secs()))?;
    }
    let limit = jobs.iter().map(|job| job.limit).sum::<Duration>() + Duration::from_secs(300);
    // Perf events make the kernel change code that runs, which ends it if each CPU is emulated by a thread of its own: an
    // unexpected int3 in __schedule().
    let single = jobs.iter().any(|job| job.name == suites::WARM).then(|| "tcg,thread=single".to_owned());
    let machine = &Machine { accel: machine.accel.clone().or(single), ..machine.clone() };
    let (mut is_up, mut in_job, mut problem) = (false, None, None);
    boot(kernel, machine, &initramfs, &work, limit, &place.join("console"), &mut |line| {
        let mut words = line.split_whitespace();
        let named = |name: Option<&str>| jobs.iter().zip(&names).find(|(_, known)| Some(known.as_str()) == name);
        match words.next() {
            Some("up") => is_up = true,
            Some("problem") => problem = Some(line.to_owned()),
            Some("begin") => in_job = named(words.next()),
            Some("end") => {
                if let Some((job, name)) = in_job.take() {
                    let done = done(job, name, &work.join("results"))?;
                    // Unlike the results, these stay until a later run has a job of this name.
                    fs::write(logs.join(&job.name), &done.output)?;
                    each(done)?;
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    ensure!(is_up, "the guest did not come up: {}", place.join("console").display());
    if let Some(line) = problem {
        bail!("{line}");
    }
    match in_job {
        Some((job, name)) => each(done(job, name, &work.join("results"))?),
        None => Ok(()),
    }
}

fn done(job: &GuestJob, name: &str, results: &Path) -> Result<Done> {
    let output = fs::read(results.join(format!("{name}.log"))).unwrap_or_default();
    let told = fs::read_to_string(results.join(format!("{name}.status"))).unwrap_or_default();
    let mut numbers = told.split_whitespace().filter_map(|word| word.parse::<i64>().ok());
    let status = numbers.next().map(i32::try_from).transpose().context("a status")?;
    let (begun, ended) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let output = String::from_utf8_lossy(&output).into_owned();
    Ok(Done { name: job.name.clone(), status, seconds: u64::try_from(ended - begun).unwrap_or(0), output })
}

/// Runs qemu to its end, with the console in `log`. Prints, and passes to `each`, what the guest reports on its jobs.
fn boot(
    kernel: &UnpackedKernel,
    machine: &Machine,
    initramfs: &Path,
    work: &Path,
    limit: Duration,
    log: &Path,
    each: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<()> {
    let share = |id: &str, path: &Path, how: &str| -> Result<[String; 4]> {
        let path = std::path::absolute(path)?;
        let path = path.to_str().context("a path in UTF-8")?.replace(',', ",,");
        let device = format!("virtio-9p-pci,fsdev={id},mount_tag={id}");
        let files = format!("local,id={id},path={path},security_model=none,multidevs=remap{how}");
        Ok(["-fsdev".into(), files, "-device".into(), device])
    };
    let words = format!("console={} quiet panic=-1 {STEADY} {}", kernel.arch.console(), machine.append);
    let mut qemu = Command::new("timeout");
    qemu.args(["--foreground", "-s", "KILL", &limit.as_secs().to_string()]);
    qemu.args(kernel.arch.emulator()).args(["-accel", machine.accel.as_deref().unwrap_or("tcg")]);
    qemu.args(["-smp", &machine.cpus.to_string(), "-m", &machine.memory.to_string()]);
    qemu.args(["-display", "none", "-serial", "stdio", "-monitor", "none", "-no-reboot", "-nic", "none"]);
    qemu.args(share("host", Path::new("/"), ",readonly=on")?).args(share("work", work, "")?);
    qemu.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initramfs).args(["-append", &words]);
    let mut child = qemu.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("timeout")?;
    let mut log = fs::File::create(log)?;
    let mut line = Vec::new();
    let mut reader = BufReader::new(child.stdout.take().context("no output")?);
    while reader.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        // The firmware may have written to the same line before.
        let text = text.find("@@ ").map_or(text.as_str(), |at| &text[at..]);
        writeln!(log, "{text}")?;
        if let Some(said) = text.strip_prefix("@@ ") {
            println!("  {text}");
            std::io::stdout().flush()?;
            each(said)?;
        }
        line.clear();
    }
    child.wait()?;
    Ok(())
}
