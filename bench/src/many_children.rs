//! Exit of one of many children: the cost for the parent to find it, and the memory for each child.

use std::{
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use forkless::{Child, Command, Prepared, Stdio, WaitSet};
use nix::sys::resource::{Resource, getrlimit};
use rustix::{
    event::epoll,
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions},
    time::ClockId,
};

use super::{
    budget::Budget,
    crowd::{Crowd, Exit, Memory},
    engines::Engines,
    name::Name,
    program::Program,
    rows::{AliveRow, FEW},
    statistics::round,
};

/// The number of runs of each waiting method, with a part of the exits each. A run takes about a second. Several runs at different
/// times make the confidence bounds cover disturbances by other processes.
const TURNS: usize = 2;
/// Exits before the measurement, for each number of children.
const WARM_UP: usize = 5;
/// Exits before ended children are replaced.
const BATCH: usize = 20;
/// Descriptors and processes left for other uses.
const SPARE: u64 = 500;

/// A method to wait for any child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// One epoll with a pidfd for each child, and waitid for the one that ended: the baseline.
    Epoll,
    /// wait(2) for any child, which also reaps children of other code in the process.
    WaitAny,
    /// libuv's event loop.
    Libuv,
    /// forkless::WaitSet.
    ForklessWaitSet,
}

impl Waiter {
    pub(crate) const ALL: [Self; 4] = [Self::Epoll, Self::WaitAny, Self::Libuv, Self::ForklessWaitSet];

    /// Name in tables and in the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::WaitAny => "wait-any",
            Self::Libuv => "libuv",
            Self::ForklessWaitSet => "forkless-wait-set",
        }
    }
}

/// The number of children that the limits of this machine allow, at most `wanted`.
pub(crate) fn most(wanted: usize, fds: u64) -> usize {
    let pids = fs::read_to_string("/proc/sys/kernel/pid_max").ok().and_then(|text| text.trim().parse::<u64>().ok());
    let own = getrlimit(Resource::RLIMIT_NPROC).ok().map(|(soft, _)| soft);
    let limits = [Some(fds), pids.map(|pids| pids / 2), own].into_iter().flatten();
    let least = limits.min().unwrap_or(0).saturating_sub(SPARE);
    wanted.min(usize::try_from(least).unwrap_or(usize::MAX))
}

/// The number of rows of [`measure`], and of its runs.
pub(crate) fn rows(engines: &Engines) -> usize {
    2 * available(engines).count()
}

pub(crate) fn turns(engines: &Engines) -> u32 {
    (TURNS * available(engines).count()) as u32
}

fn available(engines: &Engines) -> impl Iterator<Item = Waiter> {
    let has_libuv = engines.has(super::contestant::Contestant::Libuv);
    Waiter::ALL.into_iter().filter(move |waiter| *waiter != Waiter::Libuv || has_libuv)
}

/// Measures all available waiting methods, with few and with `many` children. Reports each that begins.
///
/// # Errors
/// If one of them fails, or a signal has arrived.
pub(crate) fn measure(
    many: usize,
    exits: usize,
    engines: &Engines,
    budget: Budget,
    mut begins: impl FnMut(&str),
) -> Result<Vec<AliveRow>> {
    let program = Program::waiter()?;
    let mut all: Vec<_> = available(engines).map(|waiter| (waiter, WaitingFigures::default())).collect();
    for turn in 0..TURNS {
        let part = exits * (turn + 1) / TURNS - exits * turn / TURNS;
        for (waiter, found) in &mut all {
            let name = waiter.name();
            begins(name);
            let mut crowd: Box<dyn Crowd> = match waiter {
                Waiter::Epoll => Box::new(Nursery::new(Epoll::new(&program)?)),
                Waiter::WaitAny => Box::new(Nursery::new(WaitAny { starter: Starter::new(&program, false)? })),
                Waiter::Libuv => Box::new(engines.start_alive(super::contestant::Contestant::Libuv, &program)?),
                Waiter::ForklessWaitSet => Box::new(Nursery::new(OurSet::new(&program)?)),
            };
            series(&mut *crowd, many, part, budget, found).with_context(|| format!("method {name}"))?;
        }
    }
    Ok(all.into_iter().flat_map(|(waiter, found)| found.rows(waiter.name(), many)).collect())
}

/// The measurements of one waiting method.
#[derive(Default)]
struct WaitingFigures {
    few: Vec<Exit>,
    many: Vec<Exit>,
    /// Memory of the parent for each of `many` children, measured the first time.
    bytes: Option<f64>,
}

/// Measures few, many and few children again, so that a drift of the machine's speed does not look like a difference.
fn series(crowd: &mut dyn Crowd, many: usize, exits: usize, budget: Budget, found: &mut WaitingFigures) -> Result<()> {
    crowd.resize(FEW)?;
    run(crowd, FEW, exits / 2, budget, &mut found.few)?;
    let before = crowd.memory()?;
    crowd.resize(many)?;
    let growth = crowd.memory()?.growth_since(before);
    found.bytes.get_or_insert(growth / (many - FEW).max(1) as f64);
    run(crowd, many, exits, budget, &mut found.many)?;
    crowd.resize(FEW)?;
    run(crowd, FEW, exits - exits / 2, budget, &mut found.few)?;
    crowd.resize(0)
}

fn run(crowd: &mut dyn Crowd, children: usize, exits: usize, budget: Budget, into: &mut Vec<Exit>) -> Result<()> {
    crowd.exits(WARM_UP)?;
    let end = into.len() + exits;
    while into.len() < end {
        budget.go_on()?;
        crowd.resize(children)?;
        into.extend(crowd.exits(BATCH.min(end - into.len()))?);
    }
    Ok(())
}

impl WaitingFigures {
    fn rows(self, waiter: Name, many: usize) -> [AliveRow; 2] {
        let few = AliveRow::new(waiter, FEW, &self.few);
        let many = AliveRow::new(waiter, many, &self.many);
        let ratio_to_few = Some(round(many.cpu_p50_us / few.cpu_p50_us));
        [few, AliveRow { ratio_to_few, parent_bytes: self.bytes.map(round), ..many }]
    }
}

/// CPU time of this process, without its children.
fn own_cpu() -> u64 {
    let time = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)).as_nanos() as u64
}

/// A waiting method inside this process.
trait Wait {
    /// Launches and adds another child.
    fn launch(&mut self) -> Result<i32>;

    /// Waits for any child to end, reaps it and removes it.
    fn next(&mut self) -> Result<i32>;
}

/// Children of this process.
struct Nursery<W: Wait> {
    wait: W,
    pids: Vec<i32>,
}

impl<W: Wait> Nursery<W> {
    fn new(wait: W) -> Self {
        Self { wait, pids: Vec::new() }
    }
}

impl<W: Wait> Crowd for Nursery<W> {
    fn resize(&mut self, count: usize) -> Result<()> {
        while self.pids.len() < count {
            self.pids.push(self.wait.launch()?);
        }
        // Kill the oldest: wait(2) scans the children in this order.
        let leaving: Vec<i32> = self.pids.drain(..self.pids.len() - count).collect();
        for pid in &leaving {
            kill(*pid)?;
        }
        for _ in &leaving {
            self.wait.next()?;
        }
        Ok(())
    }

    fn exits(&mut self, count: usize) -> Result<Vec<Exit>> {
        let mut exits = Vec::with_capacity(count);
        for turn in 0..count {
            ensure!(!self.pids.is_empty(), "no child is left");
            let victim = self.pids.swap_remove((turn * 7919 + 13) % self.pids.len());
            let start = Instant::now();
            kill(victim)?;
            let cpu = own_cpu();
            let ended = self.wait.next()?;
            let cpu_ns = own_cpu() - cpu;
            exits.push(Exit { cpu_ns, latency_ns: super::launcher::nanoseconds(start) });
            ensure!(ended == victim, "child {ended} ended instead of {victim}");
        }
        Ok(exits)
    }

    fn memory(&self) -> Result<Memory> {
        Memory::own()
    }
}

impl<W: Wait> Drop for Nursery<W> {
    fn drop(&mut self) {
        // Children left after a failure.
        let _ = self.resize(0);
    }
}

fn kill(pid: i32) -> Result<()> {
    let pid = Pid::from_raw(pid).context("no process id")?;
    rustix::process::kill_process(pid, Signal::KILL).context("kill")
}

/// Launches children for waiting methods that need no handle.
struct Starter {
    plan: Prepared,
    _keeps_them_alive: OwnedFd,
}

impl Starter {
    /// The children end at the end of their input, and so when this process ends.
    fn new(program: &Program, pidfd: bool) -> Result<Self> {
        let (input, ours) = io::pipe().context("a pipe")?;
        let mut command = Command::new(&program.path);
        command.stdin(Stdio::from(OwnedFd::from(input))).pidfd(pidfd);
        Ok(Self { plan: command.prepare()?, _keeps_them_alive: ours.into() })
    }

    fn spawn(&self) -> Result<(Child, Pid)> {
        let child = self.plan.spawn()?;
        let pid = Pid::from_raw(i32::try_from(child.id())?).context("no process id")?;
        Ok((child, pid))
    }

    fn launch(&self) -> Result<Pid> {
        let (child, pid) = self.spawn()?;
        // The waiting method reaps the child, so the handle must not.
        std::mem::forget(child);
        Ok(pid)
    }
}

/// wait(2) for any child.
struct WaitAny {
    starter: Starter,
}

impl Wait for WaitAny {
    fn launch(&mut self) -> Result<i32> {
        Ok(self.starter.launch()?.as_raw_pid())
    }

    fn next(&mut self) -> Result<i32> {
        let (pid, _) = rustix::process::wait(WaitOptions::empty())?.context("no child")?;
        Ok(pid.as_raw_pid())
    }
}

/// One pidfd for each child in one epoll.
struct Epoll {
    starter: Starter,
    epoll: OwnedFd,
    /// By number of the pidfd, which epoll returns.
    children: Vec<Option<(OwnedFd, i32)>>,
    events: Vec<epoll::Event>,
}

impl Epoll {
    fn new(program: &Program) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { starter: Starter::new(program, false)?, epoll, children: Vec::new(), events: Vec::with_capacity(1) })
    }
}

impl Wait for Epoll {
    fn launch(&mut self) -> Result<i32> {
        let pid = self.starter.launch()?;
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let number = usize::try_from(pidfd.as_raw_fd())?;
        epoll::add(&self.epoll, &pidfd, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?;
        if self.children.len() <= number {
            self.children.resize_with(number + 1, || None);
        }
        self.children[number] = Some((pidfd, pid.as_raw_pid()));
        Ok(pid.as_raw_pid())
    }

    fn next(&mut self) -> Result<i32> {
        self.events.clear();
        while self.events.is_empty() {
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => bail!(error),
            }
        }
        let number = usize::try_from(self.events[0].data.u64())?;
        let child = self.children.get_mut(number).and_then(Option::take);
        let (pidfd, pid) = child.context("epoll returned an unknown child")?;
        // Remove the pidfd explicitly: closing is not enough if a forked child has a copy.
        epoll::delete(&self.epoll, &pidfd)?;
        rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED)?
            .context("the child has not ended")?;
        Ok(pid)
    }
}

/// The handles of the children in a set.
struct OurSet {
    starter: Starter,
    set: WaitSet<i32>,
}

impl OurSet {
    fn new(program: &Program) -> Result<Self> {
        Ok(Self { starter: Starter::new(program, true)?, set: WaitSet::new()? })
    }
}

impl Wait for OurSet {
    fn launch(&mut self) -> Result<i32> {
        let (child, pid) = self.starter.spawn()?;
        self.set.insert(child, pid.as_raw_pid())?;
        Ok(pid.as_raw_pid())
    }

    fn next(&mut self) -> Result<i32> {
        let ended = self.set.wait()?.context("no child")?;
        ensure!(ended.status?.signal() == Some(Signal::KILL.as_raw()), "the child was not ended by the signal");
        Ok(ended.value)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn check(crowd: &mut dyn Crowd) {
        let budget = Budget { time: Duration::ZERO, samples: 1, stop: &AtomicBool::new(false) };
        let mut found = WaitingFigures::default();
        series(crowd, 150, 21, budget, &mut found).expect("measured");
        let bytes = found.bytes;
        series(crowd, 150, 4, budget, &mut found).expect("measured");
        assert_eq!((found.few.len(), found.many.len()), (25, 25));
        assert!(bytes.is_some() && found.bytes == bytes, "{bytes:?}, and another time {:?}", found.bytes);
        assert!(found.few.iter().chain(&found.many).all(|exit| exit.latency_ns > 0 && exit.cpu_ns > 0));
    }

    // Without wait(2), which would reap children of other tests in this process.
    #[test]
    fn every_waiting_method_returns_the_killed_child() {
        let program = Program::waiter().expect("temporary directory");
        check(&mut Nursery::new(Epoll::new(&program).expect("epoll")));
        check(&mut Nursery::new(OurSet::new(&program).expect("epoll")));
        let engines = Engines::find(&[super::super::contestant::Contestant::Libuv], None).expect("temporary directory");
        match engines.start_alive(super::super::contestant::Contestant::Libuv, &program) {
            Ok(mut engine) => check(&mut engine),
            Err(error) => eprintln!("SKIPPED: libuv, because {error:#}"),
        }
    }

    #[test]
    fn memory_growth_of_the_process_is_measured() {
        let before = Memory::own().expect("status");
        let block = vec![1u8; 32 << 20];
        let grown = Memory::own().expect("status").growth_since(before);
        assert!(grown >= block.len() as f64, "{grown}");
    }
}
