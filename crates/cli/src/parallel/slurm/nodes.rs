//! Which node gets how many jobs: the arithmetic of `forkless parallel --slurm`, without its streams.
//!
//! A node has jobs that run and jobs that wait there, so that it need not wait for the next order. Fast nodes get more:
//! as many as they end in [`AHEAD`], and twice their slots at least. At the end, jobs that wait on a busy node are asked
//! back for one that is idle.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use forkless_core::planted;

/// A node has jobs for this time.
const AHEAD: f64 = 0.25;
/// Over this time the rate of a node is measured.
const MEASURE: Duration = Duration::from_millis(100);
/// So many jobs are with a node at most.
const MOST: usize = 4000;

/// A node of the step.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) slots: usize,
    /// Jobs that it was given and that have not ended.
    pub(super) jobs: BTreeSet<u64>,
    /// When something came from it.
    pub(super) heard: Instant,
    pub(super) state: State,
    /// Jobs have been asked back, and the answer has not come.
    asked: bool,
    ends: u32,
    measured: Instant,
    /// Ends of jobs in a second.
    rate: f64,
}

/// Whether a node can take jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Works,
    /// It was silent for too long. It may come back.
    Lost,
    /// It takes no more jobs.
    Left,
}

impl Node {
    fn new(name: String, slots: usize, now: Instant) -> Self {
        let (jobs, state, asked, ends, rate) = (BTreeSet::new(), State::Works, false, 0, 0.0);
        Self { name, slots: slots.max(1), jobs, heard: now, state, asked, ends, measured: now, rate }
    }

    /// How many jobs it should have.
    fn wanted(&self) -> usize {
        (2 * self.slots).max(self.slots + (self.rate * AHEAD) as usize).min(MOST.max(2 * self.slots))
    }

    fn measure(&mut self, now: Instant) {
        let time = now.saturating_duration_since(self.measured);
        if time >= MEASURE {
            let rate = f64::from(self.ends) / time.as_secs_f64();
            self.rate = if rate > self.rate { rate } else { (self.rate + rate) / 2.0 };
            (self.ends, self.measured) = (0, now);
        }
    }
}

/// The nodes, by their numbers in the step.
#[derive(Debug, Default)]
pub(super) struct Nodes(pub(super) Vec<Option<Node>>);

impl Nodes {
    pub(super) fn add(&mut self, rank: usize, name: String, slots: usize, now: Instant) {
        if self.0.len() <= rank {
            self.0.resize_with(rank + 1, || None);
        }
        self.0[rank].get_or_insert_with(|| Node::new(name, slots, now));
    }

    pub(super) fn get(&mut self, rank: usize) -> Option<&mut Node> {
        self.0.get_mut(rank)?.as_mut()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Node> {
        self.0.iter().flatten()
    }

    fn working(&mut self) -> impl Iterator<Item = (usize, &mut Node)> {
        let known = self.0.iter_mut().enumerate().filter_map(|(rank, node)| Some((rank, node.as_mut()?)));
        known.filter(|(_, node)| node.state == State::Works)
    }

    /// The node that should get the next job: the one that has least of what it should have. If the input `has_ended`, no
    /// node should have more than it starts at once or next: another one may be idle soon.
    pub(super) fn hungry(&mut self, has_ended: bool) -> Option<usize> {
        let wanted = |node: &Node| if has_ended { 2 * node.slots } else { node.wanted() };
        let share = |node: &Node| node.jobs.len() as f64 / wanted(node) as f64;
        self.working()
            .filter(|(_, node)| node.jobs.len() < wanted(node))
            .min_by(|(_, one), (_, other)| share(one).total_cmp(&share(other)))
            .map(|(rank, _)| rank)
    }

    /// Something has come from a node. It is there, after all.
    pub(super) fn heard(&mut self, rank: usize, now: Instant) {
        if let Some(node) = self.get(rank) {
            node.heard = now;
            if node.state == State::Lost {
                node.state = State::Works;
                node.asked = false;
            }
        }
    }

    /// A job has ended. False if the node did not have it: it was given to another one meanwhile.
    pub(super) fn ended(&mut self, rank: usize, seq: u64, now: Instant) -> bool {
        let Some(node) = self.get(rank) else { return false };
        node.ends += 1;
        node.measure(now);
        node.jobs.remove(&seq)
    }

    /// A node has returned a job that had not begun.
    pub(super) fn returned(&mut self, rank: usize, seq: u64) -> bool {
        self.get(rank).is_some_and(|node| node.jobs.remove(&seq))
    }

    /// The answer to a request has come.
    pub(super) fn answered(&mut self, rank: usize) {
        if let Some(node) = self.get(rank) {
            node.asked = false;
        }
    }

    /// A node takes no more jobs. Returns those that it had.
    pub(super) fn leave(&mut self, rank: usize, state: State) -> BTreeSet<u64> {
        let Some(node) = self.get(rank) else { return BTreeSet::new() };
        node.state = state;
        let jobs = std::mem::take(&mut node.jobs);
        if planted!("jobs-of-dead-node-forgotten") { BTreeSet::new() } else { jobs }
    }

    /// Nodes from which nothing has come for so long.
    pub(super) fn silent(&mut self, now: Instant, patience: Duration) -> Vec<usize> {
        let is_silent = |node: &Node| now.saturating_duration_since(node.heard) >= patience;
        self.working().filter(|(_, node)| is_silent(node)).map(|(rank, _)| rank).collect()
    }

    /// If a node is idle while jobs wait on another one: that one, and how many to ask back.
    pub(super) fn to_ask_back(&mut self) -> Option<(usize, usize)> {
        let idle: usize = self.working().map(|(_, node)| node.slots.saturating_sub(node.jobs.len())).sum();
        if idle == 0 {
            return None;
        }
        let waiting = |node: &Node| node.jobs.len().saturating_sub(node.slots);
        let (rank, node) = self.working().filter(|(_, node)| !node.asked).max_by_key(|(_, node)| waiting(node))?;
        let count = waiting(node);
        if count == 0 {
            return None;
        }
        node.asked = true;
        // Half of them: it goes on meanwhile.
        Some((rank, count.div_ceil(2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(slots: &[usize], now: Instant) -> Nodes {
        let mut nodes = Nodes::default();
        slots.iter().enumerate().for_each(|(rank, &slots)| nodes.add(rank, format!("n{rank}"), slots, now));
        nodes
    }

    /// Gives jobs until each node has what it should have.
    fn fill(nodes: &mut Nodes, next: &mut u64) {
        while let Some(rank) = nodes.hungry(false) {
            nodes.get(rank).expect("a node").jobs.insert(*next);
            *next += 1;
        }
    }

    fn held(nodes: &Nodes) -> Vec<usize> {
        nodes.all().map(|node| node.jobs.len()).collect()
    }

    #[test]
    fn fast_nodes_get_more() {
        let mut now = Instant::now();
        let (mut nodes, mut next) = (nodes(&[1, 4], now), 1);
        fill(&mut nodes, &mut next);
        assert_eq!(held(&nodes), [2, 8]);
        for _ in 0..20 {
            now += MEASURE;
            for (rank, count) in [(0, 1), (1, 40)] {
                for _ in 0..count {
                    let Some(&seq) = nodes.get(rank).expect("a node").jobs.first() else { break };
                    assert!(nodes.ended(rank, seq, now));
                }
            }
            fill(&mut nodes, &mut next);
        }
        let held = held(&nodes);
        assert!(held[0] <= 4 && held[1] > 50, "{held:?}");
    }

    #[test]
    fn a_job_of_another_node_is_not_counted() {
        let now = Instant::now();
        let mut nodes = nodes(&[1, 1], now);
        nodes.get(0).expect("a node").jobs.insert(7);
        assert!(!nodes.ended(1, 7, now));
        assert_eq!(nodes.leave(0, State::Lost), BTreeSet::from([7]));
        nodes.get(1).expect("a node").jobs.insert(7);
        nodes.heard(0, now);
        assert!(!nodes.ended(0, 7, now), "it runs on the other node now");
        assert!(nodes.ended(1, 7, now));
        assert!(!nodes.ended(1, 7, now), "once");
    }

    #[test]
    fn silence_is_noticed_and_forgiven() {
        let (now, limit) = (Instant::now(), Duration::from_secs(5));
        let mut nodes = nodes(&[1, 1], now);
        let later = now + limit;
        nodes.heard(1, later);
        assert_eq!(nodes.silent(later, limit), [0]);
        nodes.leave(0, State::Lost);
        assert_eq!(nodes.silent(later, limit), [0; 0]);
        assert_eq!(nodes.hungry(false), Some(1));
        nodes.heard(0, later);
        assert_eq!(nodes.get(0).expect("a node").state, State::Works);
    }

    #[test]
    fn waiting_jobs_are_asked_back_for_an_idle_node() {
        let now = Instant::now();
        let mut nodes = nodes(&[1, 1], now);
        nodes.get(0).expect("a node").jobs.extend(1..=8);
        assert_eq!(nodes.to_ask_back(), Some((0, 4)));
        assert_eq!(nodes.to_ask_back(), None, "once");
        assert!(nodes.returned(0, 8));
        assert!(!nodes.returned(0, 8));
        nodes.answered(0);
        nodes.get(1).expect("a node").jobs.insert(8);
        assert_eq!(nodes.to_ask_back(), None, "none is idle");
    }
}
