//! Resource limits. The options have the names of prlimit(1).

use clap::{Arg, ArgMatches, Args, FromArgMatches};
use forkless::{Command, RLIM_INFINITY, Resource};
use rustix::process::{Resource as Ours, getrlimit};

use super::super::failure::Failure;
pub(crate) use super::super::parse::amount;

/// prlimit's name, the limit, ours of the same kind, and what it limits. Only `nice` has another name here, since
/// `--nice` is what nice(1) does.
const LIMITS: [(&str, Resource, Ours, &str); 16] = [
    ("as", Resource::AddressSpace, Ours::As, "Address space, in bytes"),
    ("core", Resource::Core, Ours::Core, "Core dump, in bytes"),
    ("cpu", Resource::Cpu, Ours::Cpu, "Processor time, in seconds"),
    ("data", Resource::Data, Ours::Data, "Data segment, in bytes"),
    ("fsize", Resource::FileSize, Ours::Fsize, "Size of a written file, in bytes"),
    ("locks", Resource::Locks, Ours::Locks, "File locks (without effect)"),
    ("memlock", Resource::LockedMemory, Ours::Memlock, "Locked memory, in bytes"),
    ("msgqueue", Resource::MessageQueues, Ours::Msgqueue, "POSIX message queues, in bytes"),
    ("nofile", Resource::Files, Ours::Nofile, "Open files"),
    ("nproc", Resource::Processes, Ours::Nproc, "Processes of the user"),
    ("rlimit-nice", Resource::Nice, Ours::Nice, "Ceiling of the priority, as 20 minus nice"),
    ("rss", Resource::Rss, Ours::Rss, "Resident set, in bytes (without effect)"),
    ("rtprio", Resource::RealtimePriority, Ours::Rtprio, "Ceiling of the real-time priority"),
    ("rttime", Resource::RealtimeTime, Ours::Rttime, "Real-time processor time, in microseconds"),
    ("sigpending", Resource::PendingSignals, Ours::Sigpending, "Queued signals"),
    ("stack", Resource::Stack, Ours::Stack, "Stack, in bytes"),
];

/// A limit from the command line; a part that is not given stays unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    soft: Option<u64>,
    hard: Option<u64>,
}

/// The limits from the command line.
#[derive(Debug, Default)]
pub(crate) struct Limits(Vec<(&'static str, Limit)>);

impl Limits {
    pub(crate) fn apply(&self, command: &mut Command) -> Result<(), Failure> {
        for (name, limit) in &self.0 {
            let Some((_, resource, ours, _)) = LIMITS.iter().find(|(known, ..)| known == name) else { continue };
            let now = getrlimit(*ours);
            let soft = limit.soft.unwrap_or(now.current.unwrap_or(RLIM_INFINITY));
            let hard = limit.hard.unwrap_or(now.maximum.unwrap_or(RLIM_INFINITY));
            if soft > hard {
                return Err(Failure::before(format_args!(
                    "--{name}: the soft limit is above the hard limit of {hard}"
                )));
            }
            command.rlimit(*resource, soft, hard);
        }
        Ok(())
    }
}

impl Args for Limits {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(LIMITS.map(|(name, _, _, help)| {
            Arg::new(name)
                .long(name)
                .value_name("SOFT[:HARD]")
                .value_parser(limit)
                .help(help)
                .help_heading("Resource limits (SOFT:HARD, SOFT:, :HARD or one for both; K, M, G, T; unlimited)")
        }))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Limits {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut limits = Self::default();
        limits.update_from_arg_matches(matches)?;
        Ok(limits)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let given = LIMITS.iter().filter_map(|(name, ..)| Some((*name, *matches.get_one::<Limit>(name)?)));
        self.0.extend(given);
        Ok(())
    }
}

/// `SOFT:HARD`, `SOFT:`, `:HARD`, or one for both.
fn limit(word: &str) -> Result<Limit, String> {
    let part = |word: &str| if word.is_empty() { Ok(None) } else { amount(word).map(Some) };
    match word.split_once(':') {
        None => amount(word).map(|both| Limit { soft: Some(both), hard: Some(both) }),
        Some(("", "")) => Err("must be SOFT:HARD, SOFT:, :HARD or one for both".to_owned()),
        Some((soft, hard)) => Ok(Limit { soft: part(soft)?, hard: part(hard)? }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_accepts_the_forms_of_prlimit() {
        let both = |soft, hard| Ok(Limit { soft, hard });
        assert_eq!(limit("10"), both(Some(10), Some(10)));
        assert_eq!(limit("10:20"), both(Some(10), Some(20)));
        assert_eq!(limit("10:"), both(Some(10), None));
        assert_eq!(limit(":20"), both(None, Some(20)));
        assert_eq!(limit("1K:unlimited"), both(Some(1024), Some(RLIM_INFINITY)));
        assert_eq!(limit("2G"), both(Some(2 << 30), Some(2 << 30)));
        for word in ["", ":", "-1", "+1", "1x", "K", "1:2:3", "18446744073709551615", "99999999999T"] {
            assert!(limit(word).is_err(), "{word}");
        }
    }
}
