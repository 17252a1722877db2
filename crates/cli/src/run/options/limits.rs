//! Resource limits. The options have the names of prlimit(1).

use clap::{Arg, ArgMatches, Args, FromArgMatches};
use forkless::{Command, RLIM_INFINITY, Resource};
use forkless_core::sys::getrlimit;
use rustix::{
    fs::{FileType, fstat},
    stdio::stderr,
};

use super::super::failure::Failure;
pub(crate) use super::super::parse::amount;

/// The flag of a limit, which is prlimit's. Only `nice` has another name here, since `--nice` is what nice(1) does.
fn flag(resource: Resource) -> &'static str {
    if resource == Resource::Nice { "rlimit-nice" } else { resource.name() }
}

/// The limits, in the order of their flags.
fn limits() -> Vec<Resource> {
    let mut all = Resource::ALL.to_vec();
    all.sort_by_key(|one| flag(*one));
    all
}

/// Our own soft and hard limit of this kind.
pub(crate) fn ours(resource: Resource) -> (u64, u64) {
    getrlimit(resource as u32).unwrap_or([RLIM_INFINITY; 2]).into()
}

/// A limit from the command line; a part that is not given stays unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ResourceLimit {
    soft: Option<u64>,
    hard: Option<u64>,
}

/// The limits from the command line.
#[derive(Debug, Default)]
pub(crate) struct Limits(Vec<(Resource, ResourceLimit)>);

impl Limits {
    /// Is this long option that of a limit?
    pub(crate) fn has_option(option: &str) -> bool {
        Resource::ALL.iter().any(|one| flag(*one) == option)
    }

    /// Could allocating memory fail?
    pub(crate) fn has_memory_limit(&self) -> bool {
        self.has(Resource::AddressSpace) || self.has(Resource::Data)
    }

    /// The limit of the address space, if it is so small that the kernel may kill the program while it loads it.
    pub(crate) fn is_tight(&self) -> Option<u64> {
        const TIGHT: u64 = 1 << 20;
        let found = self.0.iter().find(|(one, _)| *one == Resource::AddressSpace);
        found.and_then(|(_, limit)| limit.soft).filter(|bytes| *bytes < TIGHT)
    }

    /// Does the limit of file sizes apply to messages on standard error?
    pub(crate) fn does_cut_messages(&self) -> bool {
        let is_file = || fstat(stderr()).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
        self.has(Resource::FileSize) && is_file()
    }

    fn has(&self, resource: Resource) -> bool {
        self.0.iter().any(|(one, _)| *one == resource)
    }

    pub(crate) fn apply(&self, command: &mut Command) -> Result<(), Failure> {
        for &(resource, limit) in &self.0 {
            let (soft, hard) = ours(resource);
            let (soft, hard) = (limit.soft.unwrap_or(soft), limit.hard.unwrap_or(hard));
            if soft > hard {
                let name = flag(resource);
                return Err(Failure::before(format_args!(
                    "--{name}: the soft limit is above the hard limit of {hard}"
                )));
            }
            command.rlimit(resource, soft, hard);
        }
        Ok(())
    }
}

impl Limits {
    /// Sets the limit with this name. `None`: no limit has the name, or the value is invalid.
    pub(super) fn set(&mut self, name: &str, word: &str) -> Option<()> {
        let resource = *Resource::ALL.iter().find(|one| flag(**one) == name)?;
        let place = self.0.iter().position(|(one, _)| flag(*one) >= name).unwrap_or(self.0.len());
        self.0.insert(place, (resource, limit(word).ok()?));
        Some(())
    }
}

impl Args for Limits {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(limits().into_iter().map(|one| {
            Arg::new(flag(one))
                .long(flag(one))
                .value_name("SOFT[:HARD]")
                .value_parser(limit)
                .help(one.describe())
                .help_heading("Resource limits of each process (of all together: --memory-max, --tasks-max; SOFT:HARD, SOFT:, :HARD or one for both; K, M, G, T; unlimited)")
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
        let given = limits().into_iter().filter_map(|one| Some((one, *matches.get_one::<ResourceLimit>(flag(one))?)));
        self.0.extend(given);
        Ok(())
    }
}

/// `SOFT:HARD`, `SOFT:`, `:HARD`, or one for both.
fn limit(word: &str) -> Result<ResourceLimit, String> {
    let part = |word: &str| if word.is_empty() { Ok(None) } else { amount(word).map(Some) };
    match word.split_once(':') {
        None => amount(word).map(|both| ResourceLimit { soft: Some(both), hard: Some(both) }),
        Some(("", "")) => Err("must be SOFT:HARD, SOFT:, :HARD or one for both".to_owned()),
        Some((soft, hard)) => Ok(ResourceLimit { soft: part(soft)?, hard: part(hard)? }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_accepts_the_forms_of_prlimit() {
        let both = |soft, hard| Ok(ResourceLimit { soft, hard });
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
