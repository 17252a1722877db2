//! Which node gets how many jobs: the arithmetic of `forkless parallel --slurm`, without its streams.
//!
//! A node has jobs that run and jobs that wait there, so that it need not wait for the next order. Fast nodes get more:
//! as many as they end in [`AHEAD`], and twice their slots at least. At the end, jobs that wait on a busy node are asked
//! back for one that is idle.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A node has jobs for so many seconds.
const AHEAD: f64 = 0.25;
/// Over this time the rate of a node is measured.
const MEASURE: Duration = Duration::from_millis(100);
/// So many jobs are with a node at most.
const MOST: usize = 4000;

/// The number of a step, and of a worker in it.
pub(super) type Id = (usize, usize);

/// A node of a step.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) slots: usize,
    /// Jobs that it was given and that have not ended.
    pub(super) jobs: BTreeSet<u64>,
    /// When the last answer came from it.
    pub(super) heard: Instant,
    pub(super) state: NodeState,
    /// Jobs that its predecessor in an older step still has.
    inherited: usize,
    /// Jobs have been asked back, and the answer has not come.
    asked: bool,
    ends: u32,
    measured: Instant,
    /// Ends of jobs in a second.
    rate: f64,
}

/// Whether a node can take jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeState {
    Works,
    /// It gets no more jobs, and ends those that it has: another step has taken its place.
    Retires,
    /// It was silent for too long. It may come back.
    Lost,
    /// It takes no more jobs.
    Left,
}

impl Node {
    fn new(name: String, slots: usize, now: Instant) -> Self {
        let (jobs, state, inherited, asked, ends, rate) = (BTreeSet::new(), NodeState::Works, 0, false, 0, 0.0);
        Self { name, slots: slots.max(1), jobs, heard: now, state, inherited, asked, ends, measured: now, rate }
    }

    /// How many jobs it should have. If the input `has_ended`, no more than it starts at once or next: another node may be
    /// idle soon. Its predecessor's jobs are in its slots.
    fn wanted(&self, has_ended: bool) -> usize {
        if self.inherited > 0 {
            return self.slots.saturating_sub(self.inherited);
        }
        if has_ended {
            return 2 * self.slots;
        }
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

/// The nodes. A machine may have been in several steps: then it is several nodes.
#[derive(Debug, Default)]
pub(super) struct Nodes(BTreeMap<Id, Node>);

impl Nodes {
    pub(super) fn add(&mut self, id: Id, name: String, slots: usize, now: Instant) {
        self.0.entry(id).or_insert_with(|| Node::new(name, slots, now));
    }

    pub(super) fn get(&mut self, id: Id) -> Option<&mut Node> {
        self.0.get_mut(&id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Node> {
        self.0.values()
    }

    /// The nodes of a step.
    pub(super) fn of(&self, step: usize) -> impl Iterator<Item = (Id, &Node)> {
        self.0.range((step, 0)..=(step, usize::MAX)).map(|(&id, node)| (id, node))
    }

    fn working(&mut self) -> impl Iterator<Item = (Id, &mut Node)> {
        self.0.iter_mut().map(|(&id, node)| (id, node)).filter(|(_, node)| node.state == NodeState::Works)
    }

    /// The nodes of a step get no more jobs. One that is lost does not come back.
    pub(super) fn retire(&mut self, step: usize) {
        for (_, node) in self.0.range_mut((step, 0)..=(step, usize::MAX)) {
            node.state = if node.state == NodeState::Works { NodeState::Retires } else { NodeState::Left };
        }
    }

    /// Counts the jobs that older steps still run on the nodes of newer ones.
    pub(super) fn inherit(&mut self) {
        let mut left: BTreeMap<String, usize> = BTreeMap::new();
        for node in self.all().filter(|node| node.state == NodeState::Retires) {
            *left.entry(node.name.clone()).or_default() += node.jobs.len();
        }
        self.working().for_each(|(_, node)| node.inherited = left.get(&node.name).copied().unwrap_or(0));
    }

    /// The node that should get the next job: the one that has least of what it should have.
    pub(super) fn hungry(&mut self, has_ended: bool) -> Option<Id> {
        let share = |node: &Node| node.jobs.len() as f64 / node.wanted(has_ended) as f64;
        self.working()
            .filter(|(_, node)| node.jobs.len() < node.wanted(has_ended))
            .min_by(|(_, one), (_, other)| share(one).total_cmp(&share(other)))
            .map(|(id, _)| id)
    }

    /// An answer has come from a node. If the node was lost, it works again.
    pub(super) fn heard(&mut self, id: Id, now: Instant) {
        if let Some(node) = self.get(id) {
            node.heard = now;
            if node.state == NodeState::Lost {
                node.state = NodeState::Works;
                node.asked = false;
            }
        }
    }

    /// A job has ended. False if the node did not have it: it was given to another one meanwhile.
    pub(super) fn end_job(&mut self, id: Id, seq: u64, now: Instant) -> bool {
        let Some(node) = self.get(id) else { return false };
        node.ends += 1;
        node.measure(now);
        node.jobs.remove(&seq)
    }

    /// A node has returned a job that had not begun.
    pub(super) fn take_back(&mut self, id: Id, seq: u64) -> bool {
        self.get(id).is_some_and(|node| node.jobs.remove(&seq))
    }

    /// Whether jobs wait on the nodes of a step that takes no more orders.
    pub(super) fn has_waiting(&self, step: usize) -> bool {
        self.of(step).any(|(_, node)| node.state == NodeState::Retires && node.jobs.len() > node.slots)
    }

    /// The answer to a request to give back jobs has come.
    pub(super) fn answered(&mut self, id: Id) {
        if let Some(node) = self.get(id) {
            node.asked = false;
        }
    }

    /// A node takes no more jobs. Returns those that it had.
    pub(super) fn leave(&mut self, id: Id, state: NodeState) -> BTreeSet<u64> {
        let Some(node) = self.get(id) else { return BTreeSet::new() };
        node.state = state;
        std::mem::take(&mut node.jobs)
    }

    /// Nodes from which nothing has come for so long.
    pub(super) fn silent(&self, now: Instant, patience: Duration) -> Vec<Id> {
        let is_silent = |node: &Node| now.saturating_duration_since(node.heard) >= patience;
        let hopes = |node: &Node| matches!(node.state, NodeState::Works | NodeState::Retires);
        self.0.iter().filter(|(_, node)| hopes(node) && is_silent(node)).map(|(&id, _)| id).collect()
    }

    /// If a node is idle while jobs wait on others: the one with the most of these, and how many to ask back.
    pub(super) fn ask_back_next(&mut self) -> Option<(Id, usize)> {
        let idle: usize =
            self.working().map(|(_, node)| node.slots.saturating_sub(node.jobs.len() + node.inherited)).sum();
        if idle == 0 {
            return None;
        }
        let waiting = |node: &Node| node.jobs.len().saturating_sub(node.slots);
        let (id, node) = self.working().filter(|(_, node)| !node.asked).max_by_key(|(_, node)| waiting(node))?;
        let count = waiting(node);
        if count == 0 {
            return None;
        }
        node.asked = true;
        // Half of them: the node begins others meanwhile.
        Some((id, count.div_ceil(2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(slots: &[usize], now: Instant) -> Nodes {
        let mut nodes = Nodes::default();
        slots.iter().enumerate().for_each(|(rank, &slots)| nodes.add((0, rank), format!("n{rank}"), slots, now));
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
                    let Some(&seq) = nodes.get((0, rank)).expect("a node").jobs.first() else { break };
                    assert!(nodes.end_job((0, rank), seq, now));
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
        nodes.get((0, 0)).expect("a node").jobs.insert(7);
        assert!(!nodes.end_job((0, 1), 7, now));
        assert_eq!(nodes.leave((0, 0), NodeState::Lost), BTreeSet::from([7]));
        nodes.get((0, 1)).expect("a node").jobs.insert(7);
        nodes.heard((0, 0), now);
        assert!(!nodes.end_job((0, 0), 7, now), "it runs on the other node now");
        assert!(nodes.end_job((0, 1), 7, now));
        assert!(!nodes.end_job((0, 1), 7, now), "once");
    }

    #[test]
    fn silence_is_noticed_and_forgiven() {
        let (now, limit) = (Instant::now(), Duration::from_secs(5));
        let mut nodes = nodes(&[1, 1], now);
        let later = now + limit;
        nodes.heard((0, 1), later);
        assert_eq!(nodes.silent(later, limit), [(0, 0)]);
        nodes.leave((0, 0), NodeState::Lost);
        assert_eq!(nodes.silent(later, limit), []);
        assert_eq!(nodes.hungry(false), Some((0, 1)));
        nodes.heard((0, 0), later);
        assert_eq!(nodes.get((0, 0)).expect("a node").state, NodeState::Works);
    }

    #[test]
    fn a_node_of_a_second_step_leaves_the_slots_of_its_predecessor_alone() {
        let now = Instant::now();
        let mut nodes = nodes(&[2, 2], now);
        nodes.get((0, 0)).expect("a node").jobs.extend(1..=3);
        nodes.leave((0, 1), NodeState::Lost);
        nodes.retire(0);
        nodes.heard((0, 1), now);
        assert_eq!(nodes.hungry(false), None, "the lost one does not come back");
        assert!(nodes.has_waiting(0), "three jobs, two slots");
        nodes.add((1, 0), "n0".to_owned(), 2, now);
        nodes.inherit();
        assert_eq!(nodes.hungry(false), None);
        assert!(nodes.end_job((0, 0), 1, now) && nodes.end_job((0, 0), 2, now));
        assert!(!nodes.has_waiting(0));
        nodes.inherit();
        assert_eq!(nodes.hungry(false), Some((1, 0)));
        nodes.get((1, 0)).expect("a node").jobs.insert(4);
        assert_eq!(nodes.hungry(false), None, "two slots, two jobs");
        assert!(nodes.end_job((0, 0), 3, now));
        nodes.inherit();
        assert_eq!(nodes.hungry(true), Some((1, 0)));
    }

    #[test]
    fn waiting_jobs_are_asked_back_for_an_idle_node() {
        let now = Instant::now();
        let mut nodes = nodes(&[1, 1], now);
        nodes.get((0, 0)).expect("a node").jobs.extend(1..=8);
        assert_eq!(nodes.ask_back_next(), Some(((0, 0), 4)));
        assert_eq!(nodes.ask_back_next(), None, "once");
        assert!(nodes.take_back((0, 0), 8));
        assert!(!nodes.take_back((0, 0), 8));
        nodes.answered((0, 0));
        nodes.get((0, 1)).expect("a node").jobs.insert(8);
        assert_eq!(nodes.ask_back_next(), None, "none is idle");
    }
}
