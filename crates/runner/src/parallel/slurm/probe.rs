//! Which nodes still answer, after an srun has ended before its jobs.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use forkless::{Child, Command, Stdio};

/// So many nodes are asked at once.
const AT_ONCE: usize = 32;

/// Asks each node by an srun of its own, which runs `true` there. One srun for all would fail with the first dead node.
#[derive(Default)]
pub(super) struct Probe {
    waiting: VecDeque<String>,
    asked: Vec<(String, Child, Instant)>,
    answered: Vec<String>,
}

impl Probe {
    pub(super) fn ask(&mut self, names: Vec<String>) {
        self.waiting.extend(names);
    }

    /// Whether there is a node without an answer.
    pub(super) fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || !self.asked.is_empty()
    }

    /// Goes on, without a wait. A node that needs longer than `patience` is dead. When all have been asked, returns those
    /// that have answered.
    pub(super) fn turn(&mut self, patience: Duration) -> Option<Vec<String>> {
        if !self.is_busy() {
            return None;
        }
        let mut asked = Vec::new();
        for (name, mut srun, since) in self.asked.drain(..) {
            match srun.try_wait() {
                Ok(None) if since.elapsed() < patience => asked.push((name, srun, since)),
                Ok(Some(status)) if status.success() => self.answered.push(name),
                _ => {
                    let _ = srun.kill();
                    let _ = srun.wait();
                }
            }
        }
        self.asked = asked;
        while let Some(name) = (self.asked.len() < AT_ONCE).then(|| self.waiting.pop_front()).flatten() {
            let words = ["--overlap", "--nodes=1", "--ntasks=1", "--quiet"].map(OsString::from);
            let mut command = Command::new("srun");
            command.args(words).arg(format!("--nodelist={name}")).arg("true").process_group(0);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            // An srun that cannot be started counts as no answer.
            self.asked.extend(command.spawn().ok().map(|srun| (name, srun, Instant::now())));
        }
        (!self.is_busy()).then(|| {
            self.answered.sort();
            std::mem::take(&mut self.answered)
        })
    }

    /// Asks no more.
    pub(super) fn stop(&mut self) {
        self.waiting.clear();
        for (_, mut srun, _) in self.asked.drain(..) {
            let _ = srun.kill();
            let _ = srun.wait();
        }
    }
}
