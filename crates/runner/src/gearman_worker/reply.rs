//! What a client gets for a job.

use forkless_gearman::{monitoring::End, packet::PacketKind, record::Record};
use forkless_jobs::{Ended, Ending};

use super::queue::{ReplyForm, Task, seconds};

/// The packets that answer the job of a line.
pub(super) fn of(task: &Task, ended: &Ended, most: u64) -> Vec<(PacketKind, Vec<u8>)> {
    let [out, err] = &task.outputs;
    let (exit, signal) = ended.ending.numbers();
    let refused = match &ended.ending {
        Ending::NotStarted(error) | Ending::Lost(error) => error.to_string(),
        _ => String::new(),
    };
    let cut = ended.received > most;
    let runtime = ended.runtime.as_secs_f64();
    if matches!(task.form, ReplyForm::Record) {
        let record = Record {
            exit,
            signal,
            timed_out: ended.timed_out,
            cut,
            started: seconds(ended.started),
            seconds: runtime,
            refused,
            out: out.clone(),
            err: err.clone(),
        };
        return vec![(PacketKind::WORK_COMPLETE, record.to_reply())];
    }
    let mut packets = Vec::new();
    let mut warn = |words: Vec<u8>| packets.push((PacketKind::WORK_WARNING, words));
    if !err.is_empty() {
        warn(err.clone());
    }
    if cut {
        warn(format!("forkless: the output is cut after {most} bytes of {}\n", ended.received).into_bytes());
    }
    if !ended.is_failure() {
        packets.push((PacketKind::WORK_COMPLETE, out.clone()));
        return packets;
    }
    let how = match (&refused[..], signal) {
        ("", _) if ended.timed_out => "timed out".to_owned(),
        ("", 0) => format!("exit code {exit}"),
        ("", signal) => format!("killed by signal {signal}"),
        (refused, _) => refused.to_owned(),
    };
    warn(format!("forkless: {how} after {runtime:.3} s\n").into_bytes());
    // A failure has no result, so the output goes ahead of it.
    if !out.is_empty() {
        packets.push((PacketKind::WORK_DATA, out.clone()));
    }
    packets.push((PacketKind::WORK_FAIL, Vec::new()));
    packets
}

/// The packets for a line that may not run.
pub(super) fn refusal(form: &ReplyForm, why: &str) -> Vec<(PacketKind, Vec<u8>)> {
    if matches!(form, ReplyForm::Record) {
        let record = Record { exit: 126, refused: why.to_owned(), ..Record::default() };
        return vec![(PacketKind::WORK_COMPLETE, record.to_reply())];
    }
    vec![
        (PacketKind::WORK_WARNING, format!("forkless: refused: {why}\n").into_bytes()),
        (PacketKind::WORK_FAIL, Vec::new()),
    ]
}

/// How a check ended.
pub(super) fn end_of_check<'a>(task: &'a Task, ended: &Ended) -> End<'a> {
    let [out, err] = &task.outputs;
    if ended.timed_out {
        return End::TimedOut;
    }
    match ended.ending.numbers() {
        (exit, 0) => End::Exited(exit, out, err),
        (_, signal) => End::Killed(signal, out),
    }
}
