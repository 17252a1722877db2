//! `--joblog`, and what `--resume` and the like take from it.
//!
//! Beside the log, a file of its name and `.summary` says how the last run ended. GNU parallel refuses a log with a line
//! that is no job, and programs count the lines of a log, so it cannot be in the log itself.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use forkless_jobs::{Done, Log, Options, Summary};

use super::options::ParallelOptions;
use super::plan::named;
use super::shard::Shard;

/// The log of a run.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    /// Lines are added to an existing file.
    appends: bool,
    /// The log is `-`.
    is_stdout: bool,
    host: String,
}

impl LogFile {
    /// The log that the options name, if they do.
    pub(super) fn of(given: &ParallelOptions, shard: Option<Shard>) -> Result<Option<Self>, String> {
        let resumes = given.resume || given.resume_failed || given.retry_failed;
        let Some(text) = &given.joblog else {
            return if resumes {
                Err("--resume, --resume-failed and --retry-failed need --joblog".to_owned())
            } else {
                Ok(None)
            };
        };
        let is_stdout = text == "-";
        if is_stdout && resumes {
            return Err("--joblog -: the log on standard output cannot be resumed: name a file".to_owned());
        }
        let name = text.as_bytes().strip_prefix(b"+");
        let path = Path::new(std::ffi::OsStr::from_bytes(name.unwrap_or(text.as_bytes())));
        let (path, host) = match shard {
            Some(shard) => (named(path, shard), format!("{}/{}", shard.index, shard.count)),
            None => (path.to_owned(), ":".to_owned()),
        };
        Ok((!given.dry_run || resumes).then_some(Self { path, appends: name.is_some() || resumes, is_stdout, host }))
    }

    /// Opens the log for the engine, and reads what is to be skipped. Returns the lines to run again, if only lines of the
    /// log are run (`--retry-failed`).
    pub(super) fn open(
        &self,
        given: &ParallelOptions,
        options: &mut Options,
    ) -> Result<Option<BTreeMap<u64, Vec<u8>>>, String> {
        let failed = |error: io::Error| format!("--joblog: {}: {error}", self.path.display());
        let mut again = None;
        if given.retry_failed && self.path.exists() {
            let lines = Done::failed(&self.path).map_err(failed)?;
            options.done = Done::without(lines.keys().copied());
            again = Some(lines);
        } else if given.resume || given.resume_failed {
            options.done = Done::read(&self.path, given.resume_failed).map_err(failed)?;
        }
        if given.dry_run {
            return Ok(again);
        }
        let log = match (self.is_stdout, self.appends) {
            (true, _) => rustix::io::dup(rustix::stdio::stdout()).map(|fd| Log::to(fd.into())).map_err(Into::into),
            (_, true) => Log::append(&self.path),
            (_, false) => Log::create(&self.path),
        };
        options.log = Some(log.map_err(failed)?.host(&self.host));
        // A log without this file shows that its run has not ended.
        if !self.is_stdout {
            let _ = fs::remove_file(self.summary());
        }
        Ok(again)
    }

    /// Writes how the run ended beside the log.
    pub(super) fn end(&self, summary: &Summary) -> io::Result<()> {
        // Not beside /dev/stderr and the like.
        if self.is_stdout || !fs::metadata(&self.path)?.is_file() {
            return Ok(());
        }
        fs::write(self.summary(), format!("{summary}\n"))
    }

    fn summary(&self) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(".summary");
        name.into()
    }
}
