//! `--shard`: a deterministic part of the input.

use std::env;

/// Part `index` (from 1) of `count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) index: u64,
    pub(super) count: u64,
}

/// Variables with the index and the number of parts, and the first index.
const KNOWN: &[(&str, &str, u64)] = &[
    ("SLURM_PROCID", "SLURM_NTASKS", 0),
    // GitLab
    ("CI_NODE_INDEX", "CI_NODE_TOTAL", 1),
    ("CIRCLE_NODE_INDEX", "CIRCLE_NODE_TOTAL", 0),
    ("BUILDKITE_PARALLEL_JOB", "BUILDKITE_PARALLEL_JOB_COUNT", 0),
];

impl Shard {
    /// `auto` or `I/N`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Self::automatic(|name| env::var(name).ok());
        }
        let wrong = || format!("--shard: must be auto or I/N with I from 1 to N: {text:?}");
        let (index, count) = text.split_once('/').ok_or_else(wrong)?;
        let (index, count) = (index.parse().map_err(|_| wrong())?, count.parse().map_err(|_| wrong())?);
        if (1..=count).contains(&index) { Ok(Self { index, count }) } else { Err(wrong()) }
    }

    fn automatic(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        for (index, count, first) in KNOWN {
            let (Some(index_text), Some(count_text)) = (variable(index), variable(count)) else { continue };
            let wrong = || format!("--shard auto: {index}={index_text} and {count}={count_text} name no part");
            let number: u64 = index_text.parse().map_err(|_| wrong())?;
            let count: u64 = count_text.parse().map_err(|_| wrong())?;
            let index = (number + 1).checked_sub(*first).filter(|index| (1..=count).contains(index));
            return Ok(Self { index: index.ok_or_else(wrong)?, count });
        }
        let names: Vec<_> = KNOWN.iter().map(|(index, count, _)| format!("{index} and {count}")).collect();
        Err(format!("--shard auto: none of these is set: {}", names.join(", ")))
    }

    /// Whether the job of this number, from 0, is in this part.
    pub(super) fn contains(&self, number: u64) -> bool {
        number % self.count == self.index - 1
    }

    /// The name in logs and file names.
    pub(super) fn name(&self) -> String {
        format!("{}-of-{}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_given_by_hand_or_by_the_environment() {
        assert_eq!(Shard::parse("2/3"), Ok(Shard { index: 2, count: 3 }));
        for wrong in ["0/3", "4/3", "x", "1/0", "1"] {
            assert!(Shard::parse(wrong).is_err(), "{wrong}");
        }
        let slurm = |name: &str| match name {
            "SLURM_PROCID" => Some("0".to_owned()),
            "SLURM_NTASKS" => Some("4".to_owned()),
            _ => None,
        };
        assert_eq!(Shard::automatic(slurm), Ok(Shard { index: 1, count: 4 }));
        let gitlab = |name: &str| match name {
            "CI_NODE_INDEX" => Some("4".to_owned()),
            "CI_NODE_TOTAL" => Some("4".to_owned()),
            _ => None,
        };
        assert_eq!(Shard::automatic(gitlab), Ok(Shard { index: 4, count: 4 }));
        assert!(Shard::automatic(|_| None).expect_err("none").contains("CI_NODE_TOTAL"));
    }

    #[test]
    fn each_job_is_in_one_shard() {
        for number in 0..20 {
            let count = (1..=3).filter(|&index| Shard { index, count: 3 }.contains(number)).count();
            assert_eq!(count, 1);
        }
    }
}
