//! The log of jobs, in GNU parallel's format, and which jobs it has as done.

mod outlet;

pub(crate) use outlet::Outlet;

use crate::summary::Ended;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::UNIX_EPOCH;

/// The first line of a log.
const HEAD: &str = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";

/// So many bytes that could not be written are kept, to be written with later lines.
const MOST: usize = 1 << 20;

/// A log with a line for each job that has ended and whose output is out, written then by one `write(2)`.
///
/// The columns are those of GNU parallel's `--joblog`: Seq, Host, Starttime (seconds since 1970), JobRuntime (seconds),
/// Send, Receive (bytes of captured output), Exitval (-1 after a timeout), Signal, Command (newlines as NUL bytes).
///
/// A line that cannot be written, as when the disk is full, is written with the next one. What cannot be written to the
/// end of the run is an error in [`Summary::errors`](crate::Summary).
#[derive(Debug)]
pub struct Log {
    file: File,
    host: String,
    /// What could not be written.
    left: Vec<u8>,
    /// Lines are missing for good.
    lost: bool,
}

impl Log {
    /// A new log. Overwrites the file.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        // Lines of other processes are not overwritten, should they write to the same file.
        std::fs::File::create(&path)?;
        Self::append(path)
    }

    /// A new log in an open file, such as a pipe.
    pub fn to(file: File) -> Self {
        let mut log = Self { file, host: ":".to_owned(), left: HEAD.as_bytes().to_vec(), lost: false };
        let _ = log.flush();
        log
    }

    /// Adds to a log, or makes a new one. A last line that is not whole, because its writer was killed or the disk was full, is
    /// removed: with its end missing, its command could be another one.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn append(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        // A device such as /dev/full may be read for ever.
        let is_regular = file.metadata().is_ok_and(|found| found.is_file());
        let left = match file.seek(SeekFrom::End(-1)) {
            Ok(_) if is_regular => {
                let mut last = [b'\n'];
                file.read_exact(&mut last)?;
                let whole = if last == *b"\n" { Ok(1) } else { cut(&mut file) };
                match whole {
                    Ok(0) => HEAD.into(),
                    Ok(_) => Vec::new(),
                    Err(_) => b"\n".to_vec(),
                }
            }
            // It is empty, or no regular file.
            _ => HEAD.into(),
        };
        // If the disk is full, it is written with the first line.
        let mut log = Self { file, host: ":".to_owned(), left, lost: false };
        let _ = log.flush();
        Ok(log)
    }

    /// Sets the text of the column Host (default: a colon, for this machine).
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = host.into();
        self
    }

    /// Adds the line of a job. If it cannot be written now, it is written later, or the end of the run reports it. Only the
    /// [`Outlet`] may do so.
    fn write(&mut self, ended: &Ended, host: Option<&str>) {
        let before = self.left.len();
        let Self { host: own, left, .. } = self;
        let host = host.unwrap_or(own);
        let Ended { place, started, runtime, received, .. } = ended;
        let started = started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let (status, signal) = ended.ending.numbers();
        let status = if ended.timed_out { -1 } else { status };
        let seconds = runtime.as_secs_f64();
        let line = format!("{}\t{host}\t{started:.3}\t{seconds:10.3}\t0\t{received}\t{status}\t{signal}\t", place.seq);
        left.extend_from_slice(line.as_bytes());
        left.extend(ended.job.text.iter().map(|&byte| if byte == b'\n' { 0 } else { byte }));
        left.push(b'\n');
        if self.flush().is_err() && self.left.len() > MOST {
            self.left.truncate(before);
            self.lost = true;
        }
    }

    /// Writes what could not be written before.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        match self.flush() {
            Ok(()) if self.lost => Err(io::Error::other("the log is not complete: lines could not be written")),
            Ok(()) => Ok(()),
            Err(error) => Err(io::Error::new(error.kind(), format!("the log is not complete: {error}"))),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut done = 0;
        let answer = loop {
            if done == self.left.len() {
                break Ok(());
            }
            match self.file.write(&self.left[done..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.left.drain(..done);
        answer
    }
}

/// Which jobs are done, by their numbers.
///
/// Numbers that follow each other take the space of one, so a log of any length takes little memory.
#[derive(Debug, Default)]
pub struct Done {
    /// The first number of each run of numbers, and the last one.
    runs: BTreeMap<u64, u64>,
}

/// A line of a log.
struct Line<'a> {
    seq: u64,
    failed: bool,
    command: &'a [u8],
}

impl<'a> Line<'a> {
    /// None for the head, and for a line that is not whole.
    fn of(text: &'a [u8]) -> Option<Self> {
        let mut columns = text.strip_suffix(b"\n")?.splitn(9, |&byte| byte == b'\t');
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.trim().parse::<i64>().ok();
        let seq = u64::try_from(number(columns.next()?)?).ok().filter(|seq| *seq > 0)?;
        let failed = number(columns.nth(5)?)? != 0;
        let failed = number(columns.next()?)? != 0 || failed;
        Some(Self { seq, failed, command: columns.next()? })
    }
}

/// Removes what follows the last whole line, and returns the length that is left.
fn cut(file: &mut File) -> io::Result<u64> {
    file.rewind()?;
    let (mut reader, mut text, mut whole) = (BufReader::new(&*file), Vec::new(), 0);
    while reader.read_until(b'\n', &mut text)? > 0 && text.ends_with(b"\n") {
        whole += text.len() as u64;
        text.clear();
    }
    file.set_len(whole)?;
    Ok(whole)
}

fn each_line(path: &Path, mut to: impl FnMut(Line<'_>)) -> io::Result<()> {
    let mut file = match File::open(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    while file.read_until(b'\n', &mut text)? > 0 {
        if let Some(line) = Line::of(&text) {
            to(line);
        }
        text.clear();
    }
    Ok(())
}

impl Done {
    /// The jobs that a log has; with `succeeded`, only those that have succeeded when they last ran. A file that does
    /// not exist has none.
    ///
    /// # Errors
    /// Those of reading the file.
    pub fn read(path: impl AsRef<Path>, succeeded: bool) -> io::Result<Self> {
        let mut done = Self::default();
        each_line(
            path.as_ref(),
            |line| {
                if line.failed && succeeded { done.remove(line.seq) } else { done.insert(line.seq) }
            },
        )?;
        Ok(done)
    }

    /// The jobs of a log that failed when they last ran, with their numbers: what `--retry-failed` runs again.
    ///
    /// # Errors
    /// Those of reading the file.
    pub fn failed(path: impl AsRef<Path>) -> io::Result<BTreeMap<u64, Vec<u8>>> {
        let mut failed = BTreeMap::new();
        each_line(path.as_ref(), |Line { seq, failed: yes, command }| {
            if yes {
                failed.insert(seq, command.iter().map(|&byte| if byte == 0 { b'\n' } else { byte }).collect());
            } else {
                failed.remove(&seq);
            }
        })?;
        Ok(failed)
    }

    /// All jobs before the last one of `open`, but none of `open`, whose numbers must ascend.
    pub fn without(open: impl IntoIterator<Item = u64>) -> Self {
        let (mut runs, mut first) = (BTreeMap::new(), 1);
        for seq in open {
            if first < seq {
                runs.insert(first, seq - 1);
            }
            first = seq + 1;
        }
        Self { runs }
    }

    /// Whether this job is done.
    pub fn contains(&self, seq: u64) -> bool {
        self.next_open(seq) != seq
    }

    /// The first job from this one on that is not done.
    pub(crate) fn next_open(&self, seq: u64) -> u64 {
        let run = self.runs.range(..=seq).next_back().filter(|(_, last)| seq <= **last);
        run.map_or(seq, |(_, last)| last.saturating_add(1))
    }

    /// Adds a job.
    pub fn insert(&mut self, seq: u64) {
        if self.contains(seq) {
            return;
        }
        let (mut first, mut last) = (seq, seq);
        if let Some((&begin, &end)) = self.runs.range(..seq).next_back() {
            if end + 1 == seq {
                first = begin;
            }
        }
        if let Some(end) = seq.checked_add(1).and_then(|next| self.runs.remove(&next)) {
            last = end;
        }
        self.runs.insert(first, last);
    }

    /// Takes a job out.
    pub fn remove(&mut self, seq: u64) {
        let Some((&first, &last)) = self.runs.range(..=seq).next_back() else { return };
        if seq > last {
            return;
        }
        self.runs.remove(&first);
        if first < seq {
            self.runs.insert(first, seq - 1);
        }
        if seq < last {
            self.runs.insert(seq + 1, last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_set_of_runs_holds_what_a_plain_set_holds() {
        let (mut done, mut plain) = (Done::default(), BTreeSet::new());
        let mut random: u64 = 7;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let seq = (random >> 40) % 100;
            if random >> 33 & 3 == 0 {
                done.remove(seq);
                plain.remove(&seq);
            } else {
                done.insert(seq);
                plain.insert(seq);
            }
            assert!((0..=101).all(|n| done.contains(n) == plain.contains(&n)), "{done:?} {plain:?}");
            let open: Vec<_> = (1..=101).filter(|n| !plain.contains(n)).collect();
            let same = Done::without(open);
            assert!((1..=101).all(|n| same.contains(n) == plain.contains(&n)), "{same:?} {plain:?}");
        }
        let runs: Vec<_> = done.runs.iter().collect();
        assert!(runs.windows(2).all(|two| two[0].1 + 1 < *two[1].0), "runs are merged: {runs:?}");
    }

    #[test]
    fn the_last_line_of_a_job_counts_and_half_lines_do_not() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("log");
        let text = "\
            Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n\
            1\t:\t1795362973.752\t     0.107\t0\t2\t0\t0\ta b\n\
            2\t:\t1795362973.752\t     0.107\t0\t2\t3\t0\tc\td\0e\n\
            3\t:\t1795362973.752\t     0.107\t0\t2\t0\t9\tf\n\
            3\t:\t1795362973.752\t     0.107\t0\t2\t0\t0\tf\n\
            4\t:\t1795362973.752\t     0.1";
        std::fs::write(&path, text).expect("a log");
        let contained = |done: &Done| (1..=5).filter(|&seq| done.contains(seq)).collect::<Vec<_>>();
        assert_eq!(contained(&Done::read(&path, false).expect("read")), [1, 2, 3]);
        assert_eq!(contained(&Done::read(&path, true).expect("read")), [1, 3]);
        let failed = Done::failed(&path).expect("read");
        assert_eq!(failed.into_iter().collect::<Vec<_>>(), [(2, b"c\td\ne".to_vec())]);
        // The command may be cut, too.
        let whole = &text[..text.rfind('4').expect("a line")];
        for (found, after) in
            [(text, whole), ("Seq\tHo", HEAD), ("", HEAD), (&format!("{text}\t0\t2\t3\t0\trm -r /tm"), whole)]
        {
            std::fs::write(&path, found).expect("a log");
            drop(Log::append(&path).expect("a log"));
            assert_eq!(std::fs::read_to_string(&path).expect("the log"), after);
        }
    }
}
