//! `forkless parallel --slurm` outside of an allocation: a batch script that runs the same command line inside of one.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::parallel::signals::RESUME;

/// What the script is made of.
pub(super) struct Script<'a> {
    /// Options for sbatch, as they were given.
    pub(super) options: &'a OsStr,
    /// This program.
    pub(super) program: &'a Path,
    /// The arguments of the command line after `parallel`.
    pub(super) words: &'a [OsString],
    pub(super) shell: &'a Path,
    /// The run goes on from its log when it is started again.
    pub(super) resumes: bool,
    /// Where standard input was copied to.
    pub(super) input: Option<PathBuf>,
}

/// A word for sh(1).
fn quoted(word: &OsStr) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./,:=@%+".contains(byte);
    let bytes = word.as_bytes();
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return bytes.to_vec();
    }
    let mut out = b"'".to_vec();
    for &byte in bytes {
        if byte == b'\'' { out.extend_from_slice(b"'\\''") } else { out.push(byte) }
    }
    out.push(b'\'');
    out
}

impl Script<'_> {
    /// The text. It has `--slurm` without options, and no `--dry-run`.
    pub(super) fn text(&self) -> Vec<u8> {
        let mut out = b"#!/bin/sh\n#SBATCH --job-name=forkless --no-kill --open-mode=append\n".to_vec();
        // A minute before the time limit. Without B, the signal would end the jobs, too.
        out.extend_from_slice(b"#SBATCH --signal=B:USR1@60\n");
        if self.resumes {
            out.extend_from_slice(b"#SBATCH --requeue\n");
        }
        if !self.options.is_empty() {
            out.extend_from_slice(&[b"#SBATCH ", self.options.as_bytes(), b"\n"].concat());
        }
        out.extend_from_slice(b"trap 'kill -USR1 $pid' USR1\n");
        let variable = [b"PARALLEL_SHELL=", &quoted(self.shell.as_os_str())[..]].concat();
        out.extend_from_slice(&[&variable[..], b" ", &quoted(self.program.as_os_str()), b" parallel"].concat());
        let (mut has_slurm, mut has_dry) = (false, false);
        for word in self.words {
            let bytes = word.as_bytes();
            if !has_slurm && (bytes == b"--slurm" || bytes.starts_with(b"--slurm=")) {
                has_slurm = true;
                out.extend_from_slice(b" --slurm");
            } else if !has_dry && (bytes == b"--dry-run" || bytes == b"--dryrun") {
                has_dry = true;
            } else {
                out.push(b' ');
                out.extend_from_slice(&quoted(word));
            }
        }
        if let Some(input) = &self.input {
            out.extend_from_slice(&[b" < ", &quoted(input.as_os_str())[..]].concat());
        }
        // A trap interrupts `wait`, so the loop waits until the process is gone.
        out.extend_from_slice(
            b" &\npid=$!\nwhile :; do wait $pid; code=$?; kill -0 $pid 2> /dev/null || break; done\n",
        );
        if self.resumes {
            let again = format!("[ $code -ne {} ] || scontrol requeue \"$SLURM_JOB_ID\"\n", RESUME);
            out.extend_from_slice(again.as_bytes());
        }
        out.extend_from_slice(b"exit $code\n");
        out
    }
}

/// Submits a script, waits for its job, and writes what the job has written. Returns its exit code.
pub(super) fn submit(mut script: Script<'_>, reads_input: bool, say: fn(&str)) -> Result<u8, String> {
    let failed = |error: io::Error| format!("--slurm: {error}");
    // In the working directory, which the nodes have, too.
    let place = tempfile::Builder::new().prefix("forkless-slurm-").tempdir_in(".").map_err(failed)?;
    let place_path = fs::canonicalize(place.path()).map_err(failed)?;
    let [input, out, err, file] = ["input", "stdout", "stderr", "script"].map(|name| place_path.join(name));
    if reads_input {
        io::copy(&mut io::stdin().lock(), &mut File::create(&input).map_err(failed)?).map_err(failed)?;
        script.input = Some(input);
    }
    fs::write(&file, script.text()).map_err(failed)?;
    let option = |name: &str, path: &Path| OsString::from_vec([name.as_bytes(), path.as_os_str().as_bytes()].concat());
    let mut sbatch = Command::new("sbatch");
    sbatch.args(["--wait", "--parsable"]).args([option("--output=", &out), option("--error=", &err)]).arg(&file);
    let started = sbatch.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut sbatch = started.map_err(|error| format!("--slurm: cannot start sbatch: {error}"))?;
    let mut line = String::new();
    if let Some(answer) = sbatch.stdout.take() {
        BufReader::new(answer).read_line(&mut line).map_err(failed)?;
    }
    let id = line.trim().split(';').next().unwrap_or_default().to_owned();
    if !id.is_empty() {
        say(&format!("submitted job {id}, waiting for it"));
        pass_signals_on(id.clone()).map_err(failed)?;
    }
    let status = sbatch.wait().map_err(failed)?;
    for (path, mut to) in [(&out, Box::new(io::stdout()) as Box<dyn Write>), (&err, Box::new(io::stderr()))] {
        if let Ok(mut file) = File::open(path) {
            io::copy(&mut file, &mut to).and_then(|_| to.flush()).map_err(failed)?;
        }
    }
    if id.is_empty() {
        return Err("--slurm: sbatch has submitted no job".to_owned());
    }
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(super::super::message::FAILED),
        (None, signal) => (128 + signal.unwrap_or(0)) as u8,
    })
}

/// SIGTERM and SIGHUP stop the job's run softly; SIGINT, and the second SIGTERM, cancels the job.
fn pass_signals_on(id: String) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut terms = 0;
        for signal in signals.forever() {
            terms += u32::from(signal == SIGTERM);
            let mut scancel = Command::new("scancel");
            if signal != SIGINT && terms <= 1 {
                // scancel signals the steps: the workers stop, and report that.
                scancel.arg("--signal=TERM");
            }
            let _ = scancel.arg(&id).stdin(Stdio::null()).status();
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_the_same_words() {
        let words = ["-k", "--dry-run", "--slurm=-N 3", "echo 'a'", "{}", "--slurm=x", ":::", ""].map(OsString::from);
        let script = Script {
            options: OsStr::new("-N 3 --time=5"),
            program: Path::new("/opt/forkless"),
            words: &words,
            shell: Path::new("/bin/sh"),
            resumes: true,
            input: Some("/home/a b/input".into()),
        };
        let text = String::from_utf8(script.text()).expect("UTF-8");
        assert!(text.starts_with("#!/bin/sh\n#SBATCH "));
        assert!(text.contains("#SBATCH -N 3 --time=5\n"), "{text}");
        let line = "PARALLEL_SHELL=/bin/sh /opt/forkless parallel -k --slurm 'echo '\\''a'\\''' '{}' --slurm=x ::: '' < '/home/a b/input' &\n";
        assert!(text.contains(line), "{text}");
        assert!(text.ends_with("[ $code -ne 75 ] || scontrol requeue \"$SLURM_JOB_ID\"\nexit $code\n"), "{text}");
    }
}
