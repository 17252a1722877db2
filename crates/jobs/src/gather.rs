//! Jobs that run elsewhere: their order, their log and their number.
//!
//! [`run`](crate::run) launches jobs. A [`Gather`] does the rest of its work for callers that have the jobs launched by
//! other processes, such as workers on other machines: it takes them from the source, and puts what comes back in order.

use crate::control::{Control, Flow};
use crate::job::{Job, JobPlace, Run, Stdin};
use crate::log::Outlet;
use crate::options::Options;
use crate::output::kept::Kept;
use crate::output::spill::Spill;
use crate::output::tagged;
use crate::source::{Events, JobSource, Next, Sink, Stream};
use crate::summary::{Ended, Ending, Progress, Summary};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime};

/// What [`Gather::offer`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// The job of this number: [`Gather::job`].
    Job(u64),
    /// Input must come first, at [`Gather::waits_for`].
    Later,
    /// So many jobs are ahead of the one whose output is due that no further one may start.
    Full,
    /// There is no further job, or the run is stopped.
    End,
}

/// How a job ended elsewhere.
#[derive(Debug)]
pub struct Came {
    /// How it ended.
    pub ending: Ending,
    /// It was killed because it timed out.
    pub timed_out: bool,
    /// The stop of the run has ended it, and not the job itself: it counts as not run, and gets no line in the log.
    pub cut_short: bool,
    /// When it was launched.
    pub started: SystemTime,
    /// How long it ran.
    pub runtime: Duration,
    /// How often it was launched.
    pub tries: u32,
    /// The slot that it ran in, from 1.
    pub slot: usize,
}

/// A job that was taken from the source, and has not ended.
struct Open {
    job: Job,
    kept: [Kept; 2],
    received: u64,
    /// A part of its output is lost, because neither file nor memory had room for it.
    is_cut: bool,
}

/// A job that has ended.
struct Held {
    ended: Ended,
    kept: [Kept; 2],
    is_cut: bool,
    host: String,
}

/// The order, the log and the number of jobs that run elsewhere.
///
/// Of the [`Options`], it heeds those about the order, the log, jobs that are done, [`Options::halt`] and memory. It
/// does not sleep: the caller waits for [`as_fd`](AsFd::as_fd), the control of the run, and for what it has of its own.
pub struct Gather<'a> {
    options: Options,
    source: &'a mut dyn JobSource,
    events: &'a mut dyn Events,
    sink: Outlet<'a>,
    control: Control,
    spill: Spill,
    open: BTreeMap<u64, Open>,
    /// Jobs that have ended before the one whose output is due.
    held: BTreeMap<u64, Held>,
    due: u64,
    seq: u64,
    input_ended: bool,
    flow: Flow,
    begun: Instant,
    summary: Summary,
}

impl std::fmt::Debug for Gather<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seq, due, flow, .. } = self;
        let (open, held) = (self.open.len(), self.held.len());
        write!(out, "Gather {{ seq: {seq}, due: {due}, open: {open}, held: {held}, flow: {flow:?} }}")
    }
}

impl<'a> Gather<'a> {
    /// Takes jobs from `source`, and passes their output to `sink`.
    ///
    /// # Errors
    /// EMFILE.
    pub fn new(
        mut options: Options,
        source: &'a mut dyn JobSource,
        events: &'a mut dyn Events,
        sink: &'a mut dyn Sink,
    ) -> io::Result<Self> {
        let control = options.control.take().map_or_else(Control::new, Ok)?;
        let spill = Spill::new(options.memory, std::mem::take(&mut options.temporary));
        let sink = Outlet::new(sink, options.log.take());
        let (open, held, summary) = Default::default();
        let (due, seq, input_ended, flow, begun) =
            (options.done.next_open(1), 0, false, Flow::Continue, Instant::now());
        Ok(Self {
            options,
            source,
            events,
            sink,
            control,
            spill,
            open,
            held,
            due,
            seq,
            input_ended,
            flow,
            begun,
            summary,
        })
    }

    /// The next job that is not done. It stays open until [`end_job`](Self::end_job).
    pub fn offer(&mut self) -> Offer {
        while self.flow == Flow::Continue && !self.input_ended {
            if self.options.keep_order && self.held.len() >= self.options.window {
                return Offer::Full;
            }
            match self.source.next(JobPlace { seq: self.seq + 1, slot: 1 }) {
                Ok(Next::Job(job)) => {
                    self.seq += 1;
                    if self.options.done.contains(self.seq) {
                        self.summary.done_before += 1;
                        continue;
                    }
                    self.open.insert(self.seq, Open { job, kept: Default::default(), received: 0, is_cut: false });
                    return Offer::Job(self.seq);
                }
                Ok(Next::Skip(count)) => {
                    self.seq += count;
                    self.summary.done_before += count;
                }
                Ok(Next::Later) => return Offer::Later,
                Ok(Next::End) => self.input_ended = true,
                Ok(Next::Lacks(error)) | Err(error) => {
                    self.fail(error);
                    self.stop(Flow::Soon);
                    self.summary.unread = true;
                }
            }
        }
        Offer::End
    }

    /// The descriptor that becomes readable when the source that had [`Offer::Later`] can go on.
    pub fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        self.source.waits_for()
    }

    /// A job that has not ended.
    pub fn job(&self, seq: u64) -> Option<&Job> {
        self.open.get(&seq).map(|open| &open.job)
    }

    /// How many jobs have been taken and have not ended.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Takes a piece of a job's output. It is kept until the job has ended and its turn has come.
    pub fn output(&mut self, seq: u64, stream: Stream, bytes: &[u8]) {
        let Some(open) = self.open.get_mut(&seq) else { return };
        open.received += bytes.len() as u64;
        if open.is_cut {
            return;
        }
        if let Err(error) = open.kept[usize::from(stream == Stream::Err)].push(bytes, &mut self.spill) {
            open.is_cut = self.spill.is_full();
            self.sink_failed(error);
        }
    }

    /// Forgets the output of a job, which runs again from its beginning.
    pub fn restart(&mut self, seq: u64) {
        let Some(open) = self.open.get_mut(&seq) else { return };
        (open.received, open.is_cut) = (0, false);
        for kept in std::mem::take(&mut open.kept) {
            kept.discard(&mut self.spill);
        }
    }

    /// Takes the end of a job on `host`, which is the text of the log's column Host. Returns false if the job is not open:
    /// unknown, or it has ended before.
    pub fn end_job(&mut self, seq: u64, came: Came, host: &str) -> bool {
        let Some(Open { mut job, kept, received, is_cut }) = self.open.remove(&seq) else {
            return false;
        };
        if came.cut_short {
            kept.into_iter().for_each(|kept| kept.discard(&mut self.spill));
            self.summary.skipped += 1;
            return true;
        }
        (job.run, job.stdin, job.env) = (Run::default(), Stdin::Null, Vec::new());
        let Came { ending, timed_out, started, runtime, tries, slot, .. } = came;
        let place = JobPlace { seq, slot };
        let ended = Ended { job, place, ending, timed_out, cut_short: false, started, runtime, tries, received };
        match ended.ending {
            Ending::NotStarted(_) => self.summary.not_started += 1,
            _ => self.summary.ran += 1,
        }
        self.summary.failed += u64::from(ended.is_failure());
        let flow = self.events.finished(&ended);
        self.stop(flow);
        if let Some(flow) =
            self.options.halt.and_then(|halt| halt.stops(&mut self.summary, &ended, || self.source.total()))
        {
            self.stop(flow);
        }
        let held = Held { ended, kept, is_cut, host: host.to_owned() };
        if self.options.keep_order && seq != self.due {
            self.held.insert(seq, held);
        } else {
            self.write_out(held);
            self.advance();
        }
        true
    }

    /// Carries out the requests of the [`Control`], and returns how the run goes on. Call it when the control is readable.
    pub fn obey(&mut self) -> Flow {
        self.control.slept();
        self.stop(self.control.flow());
        self.flow
    }

    /// How the run goes on.
    pub fn flow(&self) -> Flow {
        self.flow
    }

    /// Writes what is buffered. Call it before each sleep.
    pub fn flush(&mut self) {
        if let Err(error) = self.sink.flush() {
            self.sink_failed(error);
        }
    }

    /// Reports the progress.
    pub fn tick(&mut self, running: usize, slots: usize) {
        let Summary { ran, not_started, failed, done_before, .. } = self.summary;
        let (total, elapsed) = (self.source.total(), self.begun.elapsed());
        let ended = ran + not_started;
        self.events.tick(&Progress { total, ended, failed, done_before, running, slots, elapsed });
    }

    /// Records an error of the run itself. The same text is recorded once.
    pub fn fail(&mut self, error: io::Error) {
        self.summary.add(error);
    }

    /// Counts what was not run, and writes what waited for that.
    pub fn finish(mut self) -> Summary {
        while let Some((seq, held)) = self.held.pop_first() {
            self.due = seq;
            self.write_out(held);
        }
        self.flush();
        if let Err(error) = self.sink.end() {
            self.fail(error);
        }
        self.summary.skipped += self.open.len() as u64;
        self.summary.total = self.seq;
        if !self.input_ended && !self.summary.unread {
            match self.source.left() {
                Some(left) => {
                    self.summary.skipped += left;
                    self.summary.total += left;
                }
                None => self.summary.unread = true,
            }
        }
        self.summary
    }

    /// Stops the run. A weaker stop than an earlier one has no effect.
    pub fn stop(&mut self, flow: Flow) {
        if flow > self.flow {
            self.flow = flow;
            self.summary.stopped = Some(flow);
        }
    }

    fn sink_failed(&mut self, error: io::Error) {
        let flow = Flow::after_output(&error);
        self.fail(error);
        self.stop(flow);
    }

    /// Writes the output that has waited for the output just written.
    fn advance(&mut self) {
        while self.options.keep_order {
            self.due = self.options.done.next_open(self.due + 1);
            let Some(held) = self.held.remove(&self.due) else { break };
            self.write_out(held);
        }
    }

    fn write_out(&mut self, held: Held) {
        let Held { ended, kept, mut is_cut, host } = held;
        let seq = ended.place.seq;
        let mut answer = match ended.job.head.is_empty() {
            true => Ok(()),
            false => self.sink.write(seq, Stream::Out, &ended.job.head),
        };
        for (stream, kept) in [Stream::Out, Stream::Err].into_iter().zip(kept) {
            let (sink, mut fresh) = (&mut self.sink, true);
            let one = kept.drain(&mut self.spill, |bytes| {
                tagged(&ended.job.tag, &mut fresh, bytes, |piece| sink.write(seq, stream, piece))
            });
            is_cut |= one.is_err();
            answer = answer.and(one);
        }
        let completed = self.sink.complete(&ended, Some(&host), !is_cut);
        if let Err(error) = answer.and(completed) {
            self.sink_failed(error);
        }
    }
}

impl AsFd for Gather<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Nothing, from_iter};

    #[derive(Default)]
    struct Text(Vec<u8>);

    impl Sink for Text {
        fn write(&mut self, _: u64, _: Stream, bytes: &[u8]) -> io::Result<()> {
            self.0.extend_from_slice(bytes);
            Ok(())
        }
    }

    fn came(status: i32) -> Came {
        let (timed_out, cut_short, runtime) = (false, false, Duration::ZERO);
        Came {
            ending: Ending::Exited(status),
            timed_out,
            cut_short,
            started: SystemTime::now(),
            runtime,
            tries: 1,
            slot: 1,
        }
    }

    #[test]
    fn output_comes_in_order_and_each_end_counts_once() {
        let (mut source, mut sink) = (from_iter((0..3).map(|_| Job::line("true"))), Text::default());
        let mut events = Nothing;
        let options = Options { keep_order: true, ..Options::default() };
        let mut gather = Gather::new(options, &mut source, &mut events, &mut sink).expect("a control");
        let all: Vec<Offer> = (0..4).map(|_| gather.offer()).collect();
        assert_eq!(all, [Offer::Job(1), Offer::Job(2), Offer::Job(3), Offer::End]);
        gather.output(3, Stream::Out, b"three");
        assert!(gather.end_job(3, came(0), "n1"));
        gather.output(1, Stream::Out, b"lost");
        gather.restart(1);
        gather.output(1, Stream::Out, b"one ");
        assert!(gather.end_job(1, came(2), "n2"));
        assert!(!gather.end_job(1, came(0), "n1"), "it has ended before");
        assert!(!gather.end_job(9, came(0), "n1"), "it was never taken");
        gather.output(2, Stream::Out, b"two ");
        assert!(gather.end_job(2, came(0), "n1"));
        let summary = gather.finish();
        assert_eq!(summary.to_string(), "ran 3, failed 1, skipped 0 of 3");
        assert_eq!(sink.0, b"one two three");
    }

    /// Its second flush fails.
    #[derive(Default)]
    struct Full(u32);

    impl Sink for Full {
        fn write(&mut self, _: u64, _: Stream, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0 += 1;
            if self.0 == 2 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }
    }

    fn logged(path: &std::path::Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).expect("the log");
        let columns = text.lines().skip(1).map(|line| line.split('\t').take(2).collect::<Vec<_>>().join(" "));
        columns.collect()
    }

    #[test]
    fn a_job_is_in_the_log_when_its_output_is_out() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("log");
        let (mut source, mut sink) = (from_iter((0..4).map(|_| Job::line("true"))), Full::default());
        let (mut events, log) = (Nothing, crate::Log::create(&path).expect("a log"));
        let options = Options { keep_order: true, log: Some(log), ..Options::default() };
        let mut gather = Gather::new(options, &mut source, &mut events, &mut sink).expect("a control");
        (0..4).for_each(|_| assert!(matches!(gather.offer(), Offer::Job(_))));
        assert!(gather.end_job(2, came(0), "n2"));
        assert_eq!(logged(&path), [""; 0], "its turn has not come");
        assert!(gather.end_job(1, came(0), "n1"));
        // The disk was full after the first one.
        assert!(gather.end_job(3, came(0), "n3"));
        assert_eq!(gather.finish().errors.len(), 1);
        assert_eq!(logged(&path), ["1 n1"]);
    }

    /// Without a temporary file, and more than memory takes.
    #[test]
    fn a_job_whose_output_has_no_place_is_not_in_the_log() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("log");
        let (mut source, mut sink) = (from_iter((0..2).map(|_| Job::line("true"))), Text::default());
        let (mut events, log) = (Nothing, crate::Log::create(&path).expect("a log"));
        let mut options = Options { keep_order: true, log: Some(log), ..Options::default() };
        (options.memory, options.temporary) = (10, "/no/such/directory".into());
        let mut gather = Gather::new(options, &mut source, &mut events, &mut sink).expect("a control");
        (0..2).for_each(|_| assert!(matches!(gather.offer(), Offer::Job(_))));
        let piece = vec![b'x'; 1 << 20];
        (0..40).for_each(|_| gather.output(2, Stream::Out, &piece));
        assert!(gather.end_job(2, came(0), "n1"));
        assert!(gather.end_job(1, came(0), "n1"));
        let summary = gather.finish();
        assert!(sink.0.len() < 20 << 20, "{} bytes were kept", sink.0.len());
        assert_eq!((summary.errors.len(), logged(&path)), (1, vec!["1 n1".to_owned()]));
    }

    #[test]
    fn what_has_not_ended_is_counted_as_skipped() {
        let (mut source, mut sink) = (from_iter((0..3).map(|_| Job::line("true"))), Text::default());
        let mut events = Nothing;
        let mut gather = Gather::new(Options::default(), &mut source, &mut events, &mut sink).expect("a control");
        assert_eq!(gather.offer(), Offer::Job(1));
        assert_eq!((gather.offer(), gather.open()), (Offer::Job(2), 2));
        assert!(gather.end_job(2, came(0), "n1"));
        let summary = gather.finish();
        assert_eq!((summary.ran, summary.skipped, summary.is_complete()), (1, 1, false));
    }
}
