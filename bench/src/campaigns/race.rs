//! Contestants that take turns.

use std::{fmt::Display, time::Duration};

use anyhow::{Context, Result};
use nix::{
    sys::{
        resource::{UsageWho, getrusage},
        wait::waitpid,
    },
    unistd::Pid,
};

/// One method: it is run once in each round, and each run gives the same figures.
pub(crate) struct CampaignContestant<'a> {
    pub(super) name: String,
    /// The contestant by whose figures its own are divided.
    pub(super) beside: Option<String>,
    /// Whether it is of another project, whose failures are counted. Any other failure ends the race.
    is_peer: bool,
    run: Box<dyn FnMut() -> Result<Vec<f64>> + 'a>,
    /// The figures of each round that has not failed.
    pub(super) rounds: Vec<Vec<f64>>,
    /// What has failed, once for each round.
    pub(super) failures: Vec<String>,
}

impl<'a> CampaignContestant<'a> {
    pub(super) fn new(name: impl Display, run: impl FnMut() -> Result<Vec<f64>> + 'a) -> Self {
        let (rounds, failures) = Default::default();
        Self { name: name.to_string(), beside: None, is_peer: false, run: Box::new(run), rounds, failures }
    }

    pub(super) fn beside(self, name: impl Display) -> Self {
        Self { beside: Some(name.to_string()).filter(|name| *name != self.name), ..self }
    }

    /// Sets whether the contestant is of another project.
    pub(super) fn peer(self, is_peer: bool) -> Self {
        Self { is_peer, ..self }
    }

    /// A figure of each round.
    pub(super) fn figures(&self, at: usize) -> Vec<f64> {
        self.rounds.iter().map(|figures| figures[at]).collect()
    }

    fn turn(&mut self) -> Result<()> {
        match (self.run)() {
            Ok(figures) => self.rounds.push(figures),
            Err(error) if self.is_peer => {
                eprintln!("{}: {error:#}", self.name);
                self.failures.push(error.root_cause().to_string());
            }
            Err(error) => return Err(error).with_context(|| self.name.clone()),
        }
        Ok(())
    }
}

/// Runs all of them in each round. None always follows the same one, nor is always first.
///
/// # Errors
/// If a contestant of this project fails.
pub(super) fn race(what: &str, rounds: usize, all: &mut [CampaignContestant<'_>]) -> Result<()> {
    for round in 0..rounds {
        // Many short rounds need no line each.
        if rounds < 30 {
            eprintln!("{what}: round {} of {rounds}", round + 1);
        }
        for index in order(all.len(), round) {
            all[index].turn()?;
        }
    }
    Ok(())
}

/// The order of the contestants in a round: each round begins with the next one, and every second round goes backwards.
pub(super) fn order(count: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.rotate_left(round % count.max(1));
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// The CPU time and the page faults of all processes that this one has waited for. Also waits for those that a wrapper has
/// left behind, if this process is a subreaper.
pub(super) fn use_of_children() -> Result<(Duration, i64)> {
    while waitpid(None::<Pid>, None).is_ok() {}
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let all = [usage.user_time(), usage.system_time()].map(|time| time.tv_sec() * 1_000_000 + time.tv_usec());
    Ok((Duration::from_micros(all.iter().sum::<i64>().try_into()?), usage.minor_page_faults()))
}

/// The percentile by nearest rank, which is one of the values; NaN if there are none.
pub(super) fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100);
    values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

pub(super) fn median(values: Vec<f64>) -> f64 {
    percentile(values, 50)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use anyhow::bail;

    use super::*;

    #[test]
    fn nobody_is_always_first_or_behind_the_same_one() {
        let seen = RefCell::new(String::new());
        let mut all: Vec<CampaignContestant<'_>> = ["a", "b", "c"]
            .map(|name| {
                let seen = &seen;
                CampaignContestant::new(name, move || {
                    seen.borrow_mut().push_str(name);
                    Ok(vec![1.0])
                })
            })
            .into();
        race("letters", 4, &mut all).expect("nothing fails");
        assert_eq!(seen.borrow().as_str(), "abc".to_owned() + "acb" + "cab" + "cba");
        assert!(all.iter().all(|one| one.rounds.len() == 4));
    }

    #[test]
    fn failures_of_others_are_counted_and_those_of_ours_end_the_race() {
        let fails = || CampaignContestant::new("x", || bail!("lost a job"));
        let mut peer = [fails().peer(true)];
        race("one", 2, &mut peer).expect("a peer may fail");
        assert_eq!((peer[0].rounds.len(), peer[0].failures.join(", ")), (0, "lost a job, lost a job".to_owned()));
        assert!(race("one", 2, &mut [fails()]).is_err());
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values = || vec![5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!((median(values()), percentile(values(), 99)), (3.0, 5.0));
        assert_eq!(percentile(vec![7.0], 99), 7.0);
        assert!(median(Vec::new()).is_nan());
    }
}
