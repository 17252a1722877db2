//! A simulation of many nodes, for docs/scale.md: `forkless bench scale`.
//!
//! Jobs are handed out by one process, which a slot asks when it is free (`forkless parallel --slurm`), or in fixed parts
//! (`--shard auto`). The process needs a time for each job, which grows with the nodes: each order is copied to all.
//! No clock and no random device is used: the same input gives the same table.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;

/// Microseconds.
type Time = u64;

/// What was measured, in microseconds: see docs/scale.md.
#[derive(Debug, Clone, Copy)]
struct Costs {
    /// The launch of a job on one CPU.
    launch: Time,
    /// CPU time of `forkless parallel --slurm` and its srun for a job.
    hand_out: f64,
    /// CPU time of srun to copy a job's order to one further node.
    copy: f64,
    /// From an order to the start of its job.
    latency: Time,
}

/// The figures of the record.
const MEASURED: Costs = Costs { launch: 1000, hand_out: 60.0, copy: 0.1, latency: 20_000 };

/// A cluster and its work.
#[derive(Debug, Clone, Copy)]
struct Scene {
    /// Machines.
    nodes: usize,
    /// CPUs of each.
    slots: usize,
    /// Jobs for each slot, on average.
    jobs_per_slot: usize,
    /// The time of a job.
    job: Time,
    /// The number of jobs that take a hundred times as long.
    long: usize,
    /// The last tenth of the nodes needs twice the time.
    has_slow_nodes: bool,
}

impl Scene {
    fn jobs(&self) -> usize {
        self.nodes * self.slots * self.jobs_per_slot
    }

    /// The time of a job on a node, with its launch.
    fn time(&self, number: usize, node: usize, costs: &Costs) -> Time {
        // Spread evenly, so that every shard is treated alike.
        let is_long = self.long > 0 && number % (self.jobs() / self.long).max(1) == 7;
        let time = costs.launch + if is_long { 100 * self.job } else { self.job };
        if self.has_slow_nodes && node >= self.nodes - self.nodes.div_ceil(10) { 2 * time } else { time }
    }

    /// How long the work takes if no CPU is ever idle and nothing is handed out, on nodes of the same speed.
    fn ideal(&self, costs: &Costs) -> Time {
        let all: Time = (0..self.jobs()).map(|number| self.time(number, 0, costs)).sum();
        all / (self.nodes * self.slots) as Time
    }

    /// Each node has every n-th job, of which each of its slots takes the next one when it is free.
    fn shards(&self, costs: &Costs) -> Time {
        let of_node = |node: usize| {
            let mut slots: BinaryHeap<Reverse<Time>> = (0..self.slots).map(|_| Reverse(0)).collect();
            for number in (node..self.jobs()).step_by(self.nodes) {
                let Reverse(free) = slots.pop().unwrap_or(Reverse(0));
                slots.push(Reverse(free + self.time(number, node, costs)));
            }
            slots.into_iter().map(|Reverse(end)| end).max().unwrap_or(0)
        };
        (0..self.nodes).map(of_node).max().unwrap_or(0)
    }

    /// One process hands all jobs out. Each slot has one job in advance, so the latency counts once, unless the process is
    /// late.
    fn central(&self, costs: &Costs) -> Time {
        let each = costs.hand_out + costs.copy * self.nodes as f64;
        let mut slots: BinaryHeap<Reverse<(Time, usize)>> =
            (0..self.nodes * self.slots).map(|slot| Reverse((0, slot))).collect();
        let mut last = 0;
        for number in 0..self.jobs() {
            let Some(Reverse((free, slot))) = slots.pop() else { break };
            let ready = ((number + 1) as f64 * each) as Time + costs.latency;
            let end = free.max(ready) + self.time(number, slot / self.slots, costs);
            last = last.max(end);
            slots.push(Reverse((end, slot)));
        }
        last
    }

    /// How many jobs the process hands out in a second, at most.
    fn most(&self, costs: &Costs) -> f64 {
        1e6 / (costs.hand_out + costs.copy * self.nodes as f64)
    }
}

/// The tables, in Markdown.
pub(super) fn tables() -> String {
    let costs = MEASURED;
    let mut text = String::from(
        "| nodes of 32 CPUs | a job takes | jobs | without any loss | `--shard auto` | `--slurm` | `--slurm` hands out at most |\n\
         | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for nodes in [10, 1000, 10_000] {
        for (job, what) in [(1_000, "1 ms"), (1_000_000, "1 s"), (60_000_000, "1 min")] {
            let scene = Scene { nodes, slots: 32, jobs_per_slot: 10, job, long: 0, has_slow_nodes: true };
            let seconds = |time: Time| time as f64 / 1e6;
            let (ideal, shards, central) = (scene.ideal(&costs), scene.shards(&costs), scene.central(&costs));
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "| {nodes} | {what} | {} | {:.1} s | {:.1} s | {:.1} s | {:.0}/s |",
                scene.jobs(),
                seconds(ideal),
                seconds(shards),
                seconds(central),
                scene.most(&costs)
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Costs = Costs { launch: 0, hand_out: 0.0, copy: 0.0, latency: 0 };

    fn scene(nodes: usize) -> Scene {
        Scene { nodes, slots: 2, jobs_per_slot: 10, job: 1000, long: 0, has_slow_nodes: false }
    }

    #[test]
    fn without_costs_and_with_equal_jobs_nothing_is_lost() {
        let scene = scene(7);
        assert_eq!((scene.ideal(&FREE), scene.shards(&FREE), scene.central(&FREE)), (10_000, 10_000, 10_000));
    }

    #[test]
    fn slow_nodes_hold_up_shards_only() {
        let scene = Scene { has_slow_nodes: true, ..scene(10) };
        assert_eq!(scene.shards(&FREE), 20_000);
        assert!(scene.central(&FREE) <= 12_000, "{}", scene.central(&FREE));
    }

    #[test]
    fn the_process_that_hands_out_limits_many_nodes() {
        let costs = Costs { hand_out: 10.0, copy: 1.0, ..FREE };
        assert!(scene(10).central(&costs) < 12_000);
        let many = scene(1000);
        // 20,000 jobs of 1,010 microseconds each.
        assert_eq!(many.central(&costs), 20_000 * 1010 + 1000);
        assert_eq!(many.shards(&costs), 10_000);
    }

    /// The page has what the simulation says.
    #[test]
    fn the_page_has_the_tables() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/scale.md")).expect("docs/scale.md");
        assert!(page.contains(&tables()), "docs/scale.md is out of date: forkless bench scale\n{}", tables());
    }
}
