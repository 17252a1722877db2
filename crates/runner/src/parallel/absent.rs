//! The errors of `--gearman` and `--slurm` in a build without their features.

#[cfg(not(feature = "gearman"))]
pub(super) mod gearman {
    use forkless_jobs::Remote;

    use crate::parallel::options::ParallelOptions;

    pub(in crate::parallel) const SLOTS: usize = 1;

    pub(in crate::parallel) fn check(_: &ParallelOptions) -> Result<(), String> {
        feeder("").map(drop)
    }

    pub(in crate::parallel) fn feeder(_: &str) -> Result<Box<dyn Remote>, String> {
        Err("--gearman: not in this build: build forkless-cli with its feature gearman".to_owned())
    }
}

#[cfg(not(feature = "slurm"))]
pub(super) mod slurm {
    use forkless_jobs::{Events, JobSource, Options, Sink, Summary};

    use crate::parallel::options::ParallelOptions;

    fn absent<T>() -> Result<T, String> {
        Err("--slurm: not in this build: build forkless-cli with its feature slurm".to_owned())
    }

    pub(in crate::parallel) fn cpus(all: usize) -> usize {
        all
    }

    pub(in crate::parallel) fn check(_: &ParallelOptions) -> Result<(), String> {
        absent()
    }

    pub(in crate::parallel) fn work(_: &ParallelOptions) -> Result<u8, String> {
        absent()
    }

    pub(in crate::parallel) fn submit(_: &ParallelOptions, _: fn(&str)) -> Result<u8, String> {
        absent()
    }

    pub(in crate::parallel) fn run(
        _: &ParallelOptions,
        _: Options,
        _: &mut dyn JobSource,
        _: &mut dyn Events,
        _: &mut dyn Sink,
        _: fn(&str),
    ) -> Result<Summary, String> {
        absent()
    }
}
